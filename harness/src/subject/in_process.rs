//! The reference store in this process.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::value::RawValue;
use session_tree::file_ops::FileOps;
use session_tree::futures::{AsyncStore, AsyncTree};
use session_tree::recover::{inspect_with, recover_with};
use session_tree::{Error, Message, Options, Store, Tree};
use tokio::runtime::Builder;

use super::{Candidate, Subject};
use crate::call::{Answer, Call, Did, EntryView, Refusal, Reply};
use crate::world::WorldOps;

/// The reference store.
#[derive(Debug, Clone, Copy)]
pub struct Reference;

/// The reference store, which is tested where no other is named.
pub const REFERENCE: &dyn Candidate = &Reference;

impl Candidate for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn start(&self, ops: WorldOps) -> Box<dyn Subject> {
        Box::new(InProcess::new(ops))
    }

    fn start_together(&self, ops: WorldOps) -> Box<dyn Subject> {
        Box::new(InProcess { pace: Pace::Together, ..InProcess::new(ops) })
    }

    /// The directory and the present generation.
    fn descriptors(&self) -> usize {
        2
    }

    fn names_causes(&self) -> bool {
        true
    }
}

/// A process of the reference store, on any file operations.
pub struct InProcess<O: FileOps> {
    ops: O,
    stores: Mutex<HashMap<String, Store<O>>>,
    trees: Mutex<HashMap<String, Opened<O>>>,
    pace: Pace,
}

/// A tree, and the name of its store.
struct Opened<O: FileOps> {
    store: String,
    tree: AsyncTree<O>,
}

/// Whether a run must be the same every time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Own ids and times count up. Calls that are begun together are made one after the other, which is one of the
    /// orders that they can take.
    Repeatable,
    /// As [`Pace::Repeatable`], but calls that are begun together take their places in their stores' queues one after the
    /// other, and then stores are at work at the same time.
    Together,
    /// Own ids are random, and times are the clock's. Of calls that are begun together, each store's have a thread: stores
    /// overlap, and the calls of one store keep their order, as its queue has it.
    Live,
}

impl<O: FileOps> InProcess<O> {
    /// A process with no store yet, the same in every run.
    pub fn new(ops: O) -> InProcess<O> {
        InProcess { ops, stores: Mutex::default(), trees: Mutex::default(), pace: Pace::Repeatable }
    }

    /// A process with no store yet, with ids, times and threads as a program has them.
    pub fn live(ops: O) -> InProcess<O> {
        InProcess { pace: Pace::Live, ..InProcess::new(ops) }
    }

    fn reply(&self, call: &Call) -> Reply {
        match catch_unwind(AssertUnwindSafe(|| self.answer(call))) {
            Ok(Ok(answer)) => Reply::Ok(answer),
            Ok(Err(Failure(refusal))) => Reply::Refused(refusal),
            Err(panic) => Reply::Panicked(panic_text(panic.as_ref())),
        }
    }

    fn answer(&self, call: &Call) -> Result<Answer, Failure> {
        match call {
            Call::Create { store, path, session_id, ids, clock } => {
                let mut options = self.options(ids, clock);
                if let Some(id) = session_id {
                    options = options.with_session_id(id);
                }
                let opened = Store::create_with(self.ops.clone(), Path::new(path), options)?;
                let answer = Answer { header: Some((&opened.header()).into()), ..Answer::default() };
                locked(&self.stores).insert(store.clone(), opened);
                Ok(answer)
            }
            Call::Load { store, path, ids, clock } => {
                let opened = Store::load_with(self.ops.clone(), Path::new(path), self.options(ids, clock))?;
                let answer = Answer {
                    header: Some((&opened.header()).into()),
                    entries: Some(views(&opened.entries())),
                    leaf: Some(opened.tree().leaf().map(|leaf| leaf.to_string())),
                    ..Answer::default()
                };
                locked(&self.stores).insert(store.clone(), opened);
                Ok(answer)
            }
            Call::Append { store, parent_id, message } => {
                let entry = self.store(store)?.append(parent_id.as_deref(), parse(message)?)?;
                Ok(Answer { entry: Some((&entry).into()), ..Answer::default() })
            }
            Call::Flush { store } => {
                self.store(store)?.flush()?;
                Ok(Answer::default())
            }
            Call::Entries { store } => {
                Ok(Answer { entries: Some(views(&self.store(store)?.entries())), ..Answer::default() })
            }
            Call::Tree { store, tree } => {
                let opened =
                    Opened { store: store.clone(), tree: AsyncStore::new(self.store(store)?).tree() };
                let answer = leaf(opened.tree.tree());
                locked(&self.trees).insert(tree.clone(), opened);
                Ok(answer)
            }
            Call::MoveTo { tree, entry_id } => {
                let tree = self.tree(tree)?;
                tree.tree().move_to(entry_id.as_deref())?;
                Ok(leaf(tree.tree()))
            }
            Call::TreeAppend { tree, message } => {
                let entry = self.tree(tree)?.tree().append(parse(message)?)?;
                Ok(Answer { entry: Some((&entry).into()), ..Answer::default() })
            }
            Call::Active { tree } => {
                let tree = self.tree(tree)?;
                let tree = tree.tree();
                Ok(Answer { entries: Some(views(&tree.active_entries())), ..leaf(tree) })
            }
            Call::Inspect { path } => {
                let inspection = inspect_with(self.ops.clone(), Path::new(path))?;
                Ok(Answer { state: Some(inspection.state.token().to_owned()), ..Answer::default() })
            }
            Call::Recover { path, choose } => {
                let recovery = recover_with(self.ops.clone(), Path::new(path), choose.map(Into::into))?;
                Ok(Answer {
                    state: Some(recovery.state.token().to_owned()),
                    did: Some(recovery.did.iter().map(Did::from).collect()),
                    ..Answer::default()
                })
            }
            Call::Close { store } => {
                locked(&self.stores).remove(store).ok_or_else(|| Failure::unknown("store", store))?;
                locked(&self.trees).retain(|_, opened| opened.store != *store);
                Ok(Answer::default())
            }
            Call::Concurrent { calls } => {
                Ok(Answer { answers: Some(self.concurrent(calls)?), ..Answer::default() })
            }
        }
    }

    fn concurrent(&self, calls: &[Call]) -> Result<Vec<Reply>, Failure> {
        if calls.iter().any(|call| matches!(call, Call::Concurrent { .. })) {
            return Err(Failure(Refusal::usage("calls that are begun together within ones that are")));
        }
        match self.pace {
            Pace::Repeatable => return Ok(calls.iter().map(|call| self.reply(call)).collect()),
            Pace::Together => return self.together(calls),
            Pace::Live => {}
        }
        let mut lanes: Vec<(String, Vec<usize>)> = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            let name = self.lane(call);
            match lanes.iter_mut().find(|(other, _)| *other == name) {
                Some((_, lane)) => lane.push(at),
                None => lanes.push((name, vec![at])),
            }
        }
        let mut replies: Vec<(usize, Reply)> = thread::scope(|scope| {
            let begun: Vec<_> = lanes
                .iter()
                .map(|(_, lane)| {
                    let in_order =
                        || lane.iter().map(|at| (*at, self.reply(&calls[*at]))).collect::<Vec<_>>();
                    scope.spawn(in_order)
                })
                .collect();
            // No reply panics: it would be one that says so.
            begun.into_iter().flat_map(|lane| lane.join().unwrap_or_default()).collect()
        });
        replies.sort_by_key(|(at, _)| *at);
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    /// Every call takes its place before the next one is looked at; reads are answered at once.
    fn together(&self, calls: &[Call]) -> Result<Vec<Reply>, Failure> {
        let runtime = Builder::new_current_thread().build().map_err(|error| {
            Failure(Refusal::usage(format!("calls cannot be begun together without a runtime: {error}")))
        })?;
        let entered = runtime.enter();
        let begun: Vec<Begun> = calls.iter().map(|call| self.begin(call)).collect();
        drop(entered);
        Ok(begun
            .into_iter()
            .map(|begun| match begun {
                Begun::Answered(reply) => *reply,
                Begun::Queued(future) => runtime.block_on(future),
            })
            .collect())
    }

    fn begin(&self, call: &Call) -> Begun {
        self.queued(call)
            .unwrap_or_else(|Failure(refusal)| Begun::Answered(Box::new(Reply::Refused(refusal))))
    }

    fn queued(&self, call: &Call) -> Result<Begun, Failure> {
        Ok(match call {
            Call::Append { store, parent_id, message } => {
                let store = AsyncStore::new(self.store(store)?);
                Begun::entry(store.append(parent_id.as_deref(), parse(message)?))
            }
            Call::TreeAppend { tree, message } => Begun::entry(self.tree(tree)?.append(parse(message)?)),
            Call::Flush { store } => {
                let flushed = AsyncStore::new(self.store(store)?).flush();
                Begun::queued(async move { flushed.await.map(|()| Answer::default()) })
            }
            Call::MoveTo { tree, entry_id } => {
                let tree = self.tree(tree)?;
                let moved = tree.move_to(entry_id.as_deref());
                Begun::queued(async move { moved.await.map(|()| leaf(tree.tree())) })
            }
            call => Begun::Answered(Box::new(self.reply(call))),
        })
    }

    /// Calls of one lane keep their order: those of a store and its trees, and those about a path.
    fn lane(&self, call: &Call) -> String {
        match call {
            Call::Create { store, .. }
            | Call::Load { store, .. }
            | Call::Append { store, .. }
            | Call::Flush { store }
            | Call::Entries { store }
            | Call::Tree { store, .. }
            | Call::Close { store } => format!("store {store}"),
            Call::MoveTo { tree, .. } | Call::TreeAppend { tree, .. } | Call::Active { tree } => {
                match locked(&self.trees).get(tree) {
                    Some(opened) => format!("store {}", opened.store),
                    None => format!("tree {tree}"),
                }
            }
            Call::Inspect { path } | Call::Recover { path, .. } => format!("path {path}"),
            Call::Concurrent { .. } => String::new(),
        }
    }

    /// Injected ids and times first, then its own.
    fn options(&self, ids: &[String], clock: &[String]) -> Options {
        let (ids, clock) = (ids.to_vec(), clock.to_vec());
        match self.pace {
            Pace::Repeatable | Pace::Together => Options::new()
                .with_session_id("session-1")
                .with_ids(drawn(ids, |count| format!("entry-{count:04}")))
                .with_clock(drawn(clock, |count| {
                    format!("2026-01-01T00:{:02}:{:02}.000Z", count / 60 % 60, count % 60)
                })),
            Pace::Live => Options::new()
                .with_ids(drawn(ids, |_| format!("{:032x}", fastrand::u128(..))))
                .with_clock(drawn(clock, |_| format!("{:.3}", jiff::Timestamp::now()))),
        }
    }

    fn store(&self, name: &str) -> Result<Store<O>, Failure> {
        locked(&self.stores).get(name).cloned().ok_or_else(|| Failure::unknown("store", name))
    }

    fn tree(&self, name: &str) -> Result<AsyncTree<O>, Failure> {
        let trees = locked(&self.trees);
        trees.get(name).map(|opened| opened.tree.clone()).ok_or_else(|| Failure::unknown("tree", name))
    }
}

impl<O: FileOps> Subject for InProcess<O> {
    fn call(&mut self, call: &Call) -> Reply {
        self.reply(call)
    }
}

/// A call that was begun with others.
enum Begun {
    Answered(Box<Reply>),
    Queued(Pin<Box<dyn Future<Output = Reply>>>),
}

impl Begun {
    fn queued(answer: impl Future<Output = session_tree::Result<Answer>> + 'static) -> Begun {
        Begun::Queued(Box::pin(async move {
            answer.await.map_or_else(|error| Reply::Refused(Refusal::from(&error)), Reply::Ok)
        }))
    }

    fn entry(entry: impl Future<Output = session_tree::Result<session_tree::Entry>> + 'static) -> Begun {
        Begun::queued(async move {
            entry.await.map(|entry| Answer { entry: Some((&entry).into()), ..Answer::default() })
        })
    }
}

/// No code of ours panics while it holds one of these locks.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Failure(Refusal);

impl Failure {
    fn unknown(what: &str, name: &str) -> Failure {
        Failure(Refusal::usage(format!("no {what} is called {name:?}")))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(Refusal::from(&error))
    }
}

fn drawn(
    given: Vec<String>,
    own: impl Fn(u32) -> String + Send + 'static,
) -> impl FnMut() -> String + Send + 'static {
    let mut given = given.into_iter();
    let mut count = 0;
    move || {
        given.next().unwrap_or_else(|| {
            count += 1;
            own(count)
        })
    }
}

/// Of a message that is refused the place is one within it, and no line of a session file.
fn parse(message: &RawValue) -> Result<Message, Failure> {
    Message::from_json(message.get())
        .map_err(|error| Failure(Refusal { line: None, ..Refusal::from(&error) }))
}

fn views(entries: &[session_tree::Entry]) -> Vec<EntryView> {
    entries.iter().map(EntryView::from).collect()
}

fn leaf<O: FileOps>(tree: &Tree<O>) -> Answer {
    Answer { leaf: Some(tree.leaf().map(|leaf| leaf.to_string())), ..Answer::default() }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
