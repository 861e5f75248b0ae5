//! The reference store in this process.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::value::RawValue;
use session_tree::file_ops::FileOps;
use session_tree::recover::{inspect_with, recover_with};
use session_tree::{Error, Message, Options, Store, Tree};

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
    stores: HashMap<String, Store<O>>,
    trees: HashMap<String, Tree<O>>,
}

impl<O: FileOps> InProcess<O> {
    /// A process with no store yet.
    pub fn new(ops: O) -> InProcess<O> {
        InProcess { ops, stores: HashMap::new(), trees: HashMap::new() }
    }

    fn answer(&mut self, call: &Call) -> Result<Answer, Failure> {
        match call {
            Call::Create { store, path, session_id, ids, clock } => {
                let mut options = options(ids, clock);
                if let Some(id) = session_id {
                    options = options.with_session_id(id);
                }
                let opened = Store::create_with(self.ops.clone(), Path::new(path), options)?;
                let answer = Answer { header: Some((&opened.header()).into()), ..Answer::default() };
                self.stores.insert(store.clone(), opened);
                Ok(answer)
            }
            Call::Load { store, path, ids, clock } => {
                let opened = Store::load_with(self.ops.clone(), Path::new(path), options(ids, clock))?;
                let answer = Answer {
                    header: Some((&opened.header()).into()),
                    entries: Some(views(&opened.entries())),
                    leaf: Some(opened.tree().leaf().map(|leaf| leaf.to_string())),
                    ..Answer::default()
                };
                self.stores.insert(store.clone(), opened);
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
                let opened = self.store(store)?.tree();
                let answer = leaf(&opened);
                self.trees.insert(tree.clone(), opened);
                Ok(answer)
            }
            Call::MoveTo { tree, entry_id } => {
                let tree = self.tree(tree)?;
                tree.move_to(entry_id.as_deref())?;
                Ok(leaf(tree))
            }
            Call::TreeAppend { tree, message } => {
                let entry = self.tree(tree)?.append(parse(message)?)?;
                Ok(Answer { entry: Some((&entry).into()), ..Answer::default() })
            }
            Call::Active { tree } => {
                let tree = self.tree(tree)?;
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
                self.stores.remove(store).ok_or_else(|| Failure::unknown("store", store))?;
                Ok(Answer::default())
            }
        }
    }

    fn store(&self, name: &str) -> Result<&Store<O>, Failure> {
        self.stores.get(name).ok_or_else(|| Failure::unknown("store", name))
    }

    fn tree(&self, name: &str) -> Result<&Tree<O>, Failure> {
        self.trees.get(name).ok_or_else(|| Failure::unknown("tree", name))
    }
}

impl<O: FileOps> Subject for InProcess<O> {
    fn call(&mut self, call: &Call) -> Reply {
        match catch_unwind(AssertUnwindSafe(|| self.answer(call))) {
            Ok(Ok(answer)) => Reply::Ok(answer),
            Ok(Err(Failure(refusal))) => Reply::Refused(refusal),
            Err(panic) => Reply::Panicked(panic_text(panic.as_ref())),
        }
    }
}

struct Failure(Refusal);

impl Failure {
    fn unknown(what: &str, name: &str) -> Failure {
        Failure(Refusal {
            code: "SUBJECT_USAGE".to_owned(),
            message: format!("no {what} is called {name:?}"),
            errno: None,
            line: None,
            stage: None,
            poisoned: false,
            in_flight: false,
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(Refusal::from(&error))
    }
}

/// Injected ids and times first, then ones that count up, so that a case is the same in every run.
fn options(ids: &[String], clock: &[String]) -> Options {
    Options::new()
        .with_session_id("session-1")
        .with_ids(drawn(ids.to_vec(), |count| format!("entry-{count:04}")))
        .with_clock(drawn(clock.to_vec(), |count| {
            format!("2026-01-01T00:{:02}:{:02}.000Z", count / 60 % 60, count % 60)
        }))
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

fn parse(message: &RawValue) -> Result<Message, Failure> {
    Ok(Message::from_json(message.get())?)
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
