//! Calls of one process that are begun together. Within a store and its trees they must take effect in the order in which
//! they were begun, so that the independent model, which takes them one after the other, tells every answer. Of several
//! stores on one path the one that commits first has won, and the others are stale.

use std::collections::HashMap;

use fastrand::Rng;
use serde_json::Value;
use serde_json::value::RawValue;

use super::sides::message;
use super::{Setting, Stop, ended, stop};
use crate::call::{Answer, Call, EntryView, Reply};
use crate::model::{Drawn, Session, Tree};
use crate::promise::{Promise, Violation};
use crate::subject::Subject;

/// Entries of the session at the beginning: a chain.
const FIRST: usize = 2;
/// Batches that a seed chooses, and calls of each.
const DRAWN: usize = 24;
const CALLS: std::ops::RangeInclusive<usize> = 3..=9;
/// Batches of several stores fall in other ways each time.
const AGAIN: usize = 6;

/// One call of a batch. Stores and trees have numbers; each tree belongs to one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// Appends below a tree's leaf.
    Extend(usize),
    /// Appends to a store below one of the first entries, or as a root.
    Append(usize, Option<usize>),
    /// Appends below an entry that is not there.
    AppendNowhere(usize),
    /// Appends the result of a tool that nobody called.
    Orphan(usize),
    /// Moves a tree's leaf to one of the first entries, or to none.
    Move(usize, Option<usize>),
    /// Moves a tree's leaf to the entry that an earlier call of the batch, counted in appends to that store, makes.
    MoveToNew(usize, usize),
    /// Moves a tree's leaf to an entry that is not there.
    MoveNowhere(usize),
    Flush(usize),
    Entries(usize),
    Active(usize),
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) requirements: &'static [&'static str],
    /// The store of each tree.
    trees: &'static [usize],
    asks: &'static [Ask],
}

use Ask::{Active, Append, AppendNowhere, Entries, Extend, Flush, Move, MoveNowhere, MoveToNew, Orphan};

/// Every batch that is written down.
pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "one-tree",
        title: "appends through one tree that are begun together form one chain in the order of the calls",
        requirements: &["Q1", "Q2", "T3"],
        trees: &[0],
        asks: &[Extend(0), Extend(0), Extend(0), Extend(0)],
    },
    Script {
        name: "moves-between",
        title: "a move that is begun between two appends lies between them",
        requirements: &["Q1", "Q2", "T2"],
        trees: &[0],
        asks: &[Extend(0), Move(0, None), Extend(0), Move(0, Some(0)), Extend(0)],
    },
    Script {
        name: "move-to-new",
        title: "a move that is begun after an append sees its entry",
        requirements: &["Q2", "T2"],
        trees: &[0],
        asks: &[Extend(0), Move(0, None), MoveToNew(0, 0), Extend(0)],
    },
    Script {
        name: "failures-between",
        title: "calls that fail stop none of those that were begun after them",
        requirements: &["Q1", "S5", "T3"],
        trees: &[0],
        asks: &[
            Extend(0),
            MoveNowhere(0),
            Extend(0),
            Orphan(0),
            AppendNowhere(0),
            Extend(0),
            Flush(0),
            Extend(0),
        ],
    },
    Script {
        name: "two-trees",
        title: "calls on two trees and their store that are begun together keep one order",
        requirements: &["Q1", "Q2", "T3"],
        trees: &[0, 0],
        asks: &[
            Extend(0),
            Extend(1),
            Extend(0),
            Move(1, None),
            Extend(1),
            Append(0, Some(0)),
            Flush(0),
            Extend(0),
        ],
    },
    Script {
        name: "reads-between",
        title: "reads that are begun among appends show the beginning of what is there in the end",
        requirements: &["Q1", "S7", "T4"],
        trees: &[0],
        asks: &[Extend(0), Entries(0), Active(0), Extend(0), Entries(0), Active(0)],
    },
    Script {
        name: "two-stores",
        title: "of two stores on one path whose calls are begun together one goes on, and the other says that it is stale",
        requirements: &["S8", "Q1", "S5"],
        trees: &[0, 1],
        asks: &[Extend(0), Extend(1), Extend(0), Extend(1), Flush(0), Flush(1), Extend(1), Extend(0)],
    },
    Script {
        name: "three-stores",
        title: "of three stores on one path whose calls are begun together one goes on, and its trees keep their order",
        requirements: &["S8", "Q1", "Q2"],
        trees: &[0, 1, 2, 0],
        asks: &[
            Extend(1),
            Extend(2),
            Extend(0),
            Extend(3),
            Move(2, None),
            Move(0, None),
            Extend(0),
            Extend(1),
            Extend(2),
        ],
    },
];

/// What batches came to: what is broken, with the number of the batch, and how many there were.
#[derive(Default)]
pub(super) struct Batches {
    pub(super) violations: Vec<(usize, Violation)>,
    pub(super) count: usize,
}

/// Runs a written batch.
pub(super) fn run(script: &Script, setting: &Setting<'_>) -> Result<Batches, Stop> {
    let again = if script.trees.iter().any(|store| *store > 0) { AGAIN } else { 1 };
    let mut batches = Batches::default();
    for _ in 0..again {
        batches.add(setting, script.trees, script.asks)?;
    }
    Ok(batches)
}

/// Runs batches that a seed chooses.
pub(super) fn run_drawn(setting: &Setting<'_>, seed: u64) -> Result<Batches, Stop> {
    let mut random = Rng::with_seed(seed);
    let mut batches = Batches::default();
    for _ in 0..DRAWN {
        let trees: &[usize] = if random.bool() { &[0, 0] } else { &[0, 0, 1] };
        let count = random.usize(CALLS);
        let mut appends = [0; 2];
        let asks: Vec<Ask> = (0..count).map(|_| drawn(&mut random, trees, &mut appends)).collect();
        batches.add(setting, trees, &asks)?;
    }
    Ok(batches)
}

fn drawn(random: &mut Rng, trees: &[usize], appends: &mut [usize; 2]) -> Ask {
    let tree = random.usize(0..trees.len());
    let store = trees[tree];
    let place = Some(random.usize(0..FIRST)).filter(|_| random.bool());
    match random.usize(0..16) {
        0..=6 => {
            appends[store] += 1;
            Extend(tree)
        }
        7 => {
            appends[store] += 1;
            Append(store, place)
        }
        8 => AppendNowhere(store),
        9 => Orphan(tree),
        10 | 11 => Move(tree, place),
        12 if appends[store] > 0 => MoveToNew(tree, random.usize(0..appends[store])),
        12 | 13 => MoveNowhere(tree),
        14 => Flush(store),
        _ if random.bool() => Entries(store),
        _ => Active(tree),
    }
}

impl Batches {
    fn add(&mut self, setting: &Setting<'_>, trees: &[usize], asks: &[Ask]) -> Result<(), Stop> {
        self.count += 1;
        let at = self.count;
        let found = Batch::begin(setting, trees)?.run(asks)?;
        self.violations.extend(found.into_iter().map(|violation| (at, violation)));
        Ok(())
    }
}

/// A session with stores and trees on it, and what the model knows of them.
struct Batch<'a> {
    setting: &'a Setting<'a>,
    subject: Box<dyn Subject>,
    path: String,
    stores: Vec<Store>,
    /// Trees by the model, and their stores.
    trees: Vec<(usize, Tree)>,
    /// The store's own ids by those of the model.
    names: HashMap<String, String>,
    /// What was acknowledged, and by which store.
    acknowledged: Vec<(usize, EntryView)>,
    violations: Vec<Violation>,
}

struct Store {
    session: Session,
    /// Ids that were drawn.
    drawn: usize,
    /// Whether it has said that the path is not its generation any more.
    is_stale: bool,
}

impl Store {
    fn next_id(&self, store: usize) -> String {
        format!("s{store}-{}", self.drawn + 1)
    }
}

impl<'a> Batch<'a> {
    fn begin(setting: &'a Setting<'a>, trees: &[usize]) -> Result<Batch<'a>, Stop> {
        let path = setting.fresh_path()?;
        let mut batch = Batch {
            setting,
            subject: (setting.start_together)(),
            path,
            stores: Vec::new(),
            trees: Vec::new(),
            names: HashMap::new(),
            acknowledged: Vec::new(),
            violations: Vec::new(),
        };
        batch.open(trees.iter().max().map_or(1, |most| most + 1))?;
        for (tree, store) in trees.iter().enumerate() {
            batch.ok(&Call::Tree { store: store_name(*store), tree: tree_name(tree) })?;
            let opened = batch.stores[*store].session.tree();
            batch.trees.push((*store, opened));
        }
        Ok(batch)
    }

    /// The first store makes the session, the others load it.
    fn open(&mut self, count: usize) -> Result<(), Stop> {
        let create = Call::Create {
            store: store_name(0),
            path: self.path.clone(),
            session_id: None,
            ids: ids_of(0),
            clock: Vec::new(),
        };
        self.ok(&create)?;
        // The model's header is nobody's: headers are not asked for here.
        let session = Session::create("session", "now").map_err(|code| stop(format!("the model: {code}")))?;
        self.stores.push(Store { session, drawn: 0, is_stale: false });
        for number in 1..=FIRST {
            let parent = (number > 1).then(|| format!("s0-{}", number - 1));
            let text = message('z', number as u32);
            let call = append(0, parent.as_ref().map(|id| self.named(id)), &text);
            let Some(entry) = self.ok(&call)?.entry else { return Err(stop("an append gave no entry")) };
            let id = self.stores[0].next_id(0);
            let drawn = Drawn { id: Some(&id), timestamp: Some("now") };
            let expected = self.stores[0].session.append(parent.as_deref(), &text, drawn);
            expected.result.map_err(|code| stop(format!("the model: {code}")))?;
            self.stores[0].drawn += 1;
            self.names.insert(id, entry.id.clone());
            self.acknowledged.push((0, entry));
        }
        for store in 1..count {
            let path = self.path.clone();
            let load = Call::Load { store: store_name(store), path, ids: ids_of(store), clock: Vec::new() };
            self.ok(&load)?;
            let session = self.stores[0].session.clone();
            self.stores.push(Store { session, drawn: 0, is_stale: false });
        }
        Ok(())
    }

    fn run(mut self, asks: &[Ask]) -> Result<Vec<Violation>, Stop> {
        let calls: Vec<Call> = asks.iter().enumerate().map(|(at, ask)| self.call(asks, at, *ask)).collect();
        let reply = self.subject.call(&Call::Concurrent { calls: calls.clone() });
        let replies = match reply {
            Reply::Ok(Answer { answers: Some(answers), .. }) if answers.len() == calls.len() => answers,
            reply => return Err(ended(&reply, "concurrent")),
        };
        if let Some(Reply::Unsupported(why)) = replies.iter().find(|it| matches!(it, Reply::Unsupported(_))) {
            return Err(Stop::Unsupported(format!("a call of the batch: {why}")));
        }
        for (at, reply) in replies.iter().enumerate() {
            self.check(asks[at], at, &calls[at], reply);
        }
        self.check_winner(asks, &replies);
        self.check_reads(asks, &replies);
        self.check_afterwards()?;
        Ok(self.violations)
    }

    fn call(&self, asks: &[Ask], at: usize, ask: Ask) -> Call {
        let nowhere = || Some("no-such-entry".to_owned());
        let text = text_of(at, ask);
        let first = |place: usize| self.named(&format!("s0-{}", place + 1));
        match ask {
            Extend(tree) | Orphan(tree) => Call::TreeAppend { tree: tree_name(tree), message: raw(&text) },
            Append(store, place) => append(store, place.map(first), &text),
            AppendNowhere(store) => append(store, nowhere(), &text),
            Move(tree, place) => Call::MoveTo { tree: tree_name(tree), entry_id: place.map(first) },
            MoveToNew(tree, nth) => {
                let entry_id = Some(self.foreseen(asks, self.trees[tree].0, nth));
                Call::MoveTo { tree: tree_name(tree), entry_id }
            }
            MoveNowhere(tree) => Call::MoveTo { tree: tree_name(tree), entry_id: nowhere() },
            Flush(store) => Call::Flush { store: store_name(store) },
            Entries(store) => Call::Entries { store: store_name(store) },
            Active(tree) => Call::Active { tree: tree_name(tree) },
        }
    }

    /// The id that the `nth` append of the batch to a store draws, if every call before it does what it should.
    fn foreseen(&self, asks: &[Ask], store: usize, nth: usize) -> String {
        // What is appended nowhere is refused before an id is drawn; an orphan draws one.
        let is_append = |ask: &&Ask| match **ask {
            Extend(tree) => self.trees[tree].0 == store,
            Append(of, _) => of == store,
            _ => false,
        };
        let place =
            asks.iter().enumerate().filter(|(_, ask)| is_append(ask)).nth(nth).map_or(0, |(at, _)| at);
        let draws = |ask: &Ask| match *ask {
            Extend(tree) | Orphan(tree) => self.trees[tree].0 == store,
            Append(of, _) => of == store,
            _ => false,
        };
        let before = asks[..place].iter().filter(|ask| draws(ask)).count();
        format!("s{store}-{}", self.stores[store].drawn + before + 1)
    }

    /// Holds an answer against the model, which makes the call after all before it.
    fn check(&mut self, ask: Ask, at: usize, call: &Call, reply: &Reply) {
        if let Some(text) = untyped(reply, self.setting.is_native) {
            self.broke(Promise::TypedRefusal, format!("call {} of the batch: {text}", at + 1));
        }
        match ask {
            Extend(_) | Orphan(_) | Append(..) | AppendNowhere(_) | Flush(_) => {
                self.check_commit(ask, at, call, reply);
            }
            Move(tree, _) | MoveToNew(tree, _) | MoveNowhere(tree) => {
                let Call::MoveTo { entry_id, .. } = call else { return };
                let store = self.trees[tree].0;
                let to = entry_id.as_ref().map(|id| self.model_id(id));
                let (_, model) = &mut self.trees[tree];
                let expected = model.move_to(&self.stores[store].session, to.as_deref());
                if expected.is_ok() != is_ok(reply) {
                    self.out_of_order(at, call, reply, expected.err());
                }
            }
            Entries(_) | Active(_) => {}
        }
    }

    fn check_commit(&mut self, ask: Ask, at: usize, call: &Call, reply: &Reply) {
        let store = self.store_of(ask);
        if self.is_contested() && says_stale(reply) {
            self.stores[store].is_stale = true;
            return;
        }
        if self.stores[store].is_stale && is_ok(reply) && self.setting.is_native {
            let text = format!("a store that said it was stale answers call {} of the batch", at + 1);
            self.broke(Promise::NoSilentContinuation, text);
        }
        if let Reply::Ok(Answer { entry: Some(entry), .. }) = reply {
            self.acknowledged.push((store, entry.clone()));
        }
        let before = self.stores[store].session.entries().len();
        let expected = self.on_model(ask, at);
        let right = match (&expected, reply) {
            (Err(code), Reply::Refused(refusal)) => !self.setting.is_native || *code == refusal.code,
            (Ok(()), Reply::Ok(_)) => true,
            _ => false,
        };
        if !right {
            self.out_of_order(at, call, reply, expected.err());
            return;
        }
        let appended = self.stores[store].session.entries().get(before).cloned();
        if let (Some(model), Reply::Ok(Answer { entry, .. })) = (appended, reply) {
            let parent = model.parent.as_ref().map(|id| self.named(id));
            let is_right = entry.as_ref().is_some_and(|entry| {
                entry.parent_id == parent
                    && value(&entry.message) == value(&model.message.encode())
                    && (!self.setting.has_factories || entry.id == model.id)
            });
            if let Some(entry) = entry {
                self.names.insert(model.id.clone(), entry.id.clone());
            }
            if !is_right {
                let text = format!(
                    "call {} of the batch, `{}`: answered {entry:?}, expected {:?} below {parent:?}",
                    at + 1,
                    call.name(),
                    model.id
                );
                self.broke(Promise::CallsInOrder, text);
            }
        }
    }

    fn on_model(&mut self, ask: Ask, at: usize) -> Result<(), &'static str> {
        let text = text_of(at, ask);
        let store = self.store_of(ask);
        let of = &mut self.stores[store];
        let id = of.next_id(store);
        let drawn = Drawn { id: Some(&id), timestamp: Some("now") };
        let answer = match ask {
            Extend(tree) | Orphan(tree) => self.trees[tree].1.append(&mut of.session, &text, drawn),
            Append(_, place) => {
                let parent = place.map(|place| format!("s0-{}", place + 1));
                of.session.append(parent.as_deref(), &text, drawn)
            }
            AppendNowhere(_) => of.session.append(Some("no-such-entry"), &text, drawn),
            _ => return of.session.flush(),
        };
        of.drawn += usize::from(answer.drew_id);
        answer.result.map(drop)
    }

    fn out_of_order(&mut self, at: usize, call: &Call, reply: &Reply, expected: Option<&'static str>) {
        let expected = expected.map_or("success".to_owned(), |code| format!("a refusal with {code}"));
        let text = format!("call {} of the batch, `{}`: {}, expected {expected}", at + 1, call.name(), reply);
        self.broke(Promise::CallsInOrder, text);
    }

    /// Of several stores on a path one has committed, and unless all were refused for a reason of their own, one had to.
    fn check_winner(&mut self, asks: &[Ask], replies: &[Reply]) {
        if !self.is_contested() || !self.setting.is_native {
            return;
        }
        let commits = |store: usize| {
            asks.iter().zip(replies).any(|(ask, reply)| {
                matches!(ask, Extend(_) | Append(..) | Flush(_))
                    && self.store_of(*ask) == store
                    && is_ok(reply)
            })
        };
        let winners = (0..self.stores.len()).filter(|store| commits(*store)).count();
        if winners > 1 {
            let text = format!("{winners} stores on one path committed from one generation");
            self.broke(Promise::NoSilentContinuation, text);
        }
        if winners == 0 && self.stores.iter().any(|store| store.is_stale) {
            self.broke(Promise::RetrySucceeds, "every store says that another one was first".to_owned());
        }
    }

    /// A read shows either side of what was begun with it, and nothing else.
    fn check_reads(&mut self, asks: &[Ask], replies: &[Reply]) {
        let mut wrong = Vec::new();
        for (at, (ask, reply)) in asks.iter().zip(replies).enumerate() {
            let (Entries(_) | Active(_), Reply::Ok(Answer { entries: Some(shown), .. })) = (ask, reply)
            else {
                continue;
            };
            let known: Vec<&EntryView> = self.acknowledged.iter().map(|(_, entry)| entry).collect();
            if let Some(one) = shown.iter().find(|one| !known.iter().any(|entry| is_same(entry, one))) {
                wrong.push((
                    Promise::NothingInvented,
                    format!("read {} of the batch shows {}", at + 1, one.id),
                ));
            }
            let is_chain = |pair: &[EntryView]| pair[1].parent_id.as_ref() == Some(&pair[0].id);
            if matches!(ask, Active(_)) && !shown.windows(2).all(is_chain) {
                let text = format!("read {} of the batch shows an active path that is no chain", at + 1);
                wrong.push((Promise::CallsInOrder, text));
            }
        }
        for (promise, text) in wrong {
            self.broke(promise, text);
        }
    }

    /// Every store shows what it acknowledged, and a cold load what all of them did.
    fn check_afterwards(&mut self) -> Result<(), Stop> {
        for store in 0..self.stores.len() {
            let shown = self.ok(&Call::Entries { store: store_name(store) })?.entries.unwrap_or_default();
            let own: Vec<EntryView> = self
                .acknowledged
                .iter()
                .enumerate()
                .filter(|(at, (of, _))| *of == store || *at < FIRST)
                .map(|(_, (_, entry))| entry.clone())
                .collect();
            let holds = own.iter().all(|entry| shown.iter().any(|one| is_same(one, entry)));
            if !holds || self.setting.is_native && shown.len() != own.len() {
                let text = format!("store {store} shows {}, acknowledged were {}", ids(&shown), ids(&own));
                self.broke(Promise::MemoryAgrees, text);
            }
        }
        let mut cold = (self.setting.start)();
        let path = self.path.clone();
        let load = Call::Load { store: store_name(9), path, ids: Vec::new(), clock: Vec::new() };
        let shown = match cold.call(&load) {
            Reply::Ok(answer) => answer.entries.unwrap_or_default(),
            Reply::Refused(refusal) => {
                let text = format!("a cold load is refused with {} ({})", refusal.code, refusal.message);
                self.broke(Promise::AcknowledgedSurvive, text);
                return Ok(());
            }
            reply => return Err(ended(&reply, "load")),
        };
        self.check_shown(&shown);
        Ok(())
    }

    fn check_shown(&mut self, shown: &[EntryView]) {
        let known: Vec<EntryView> = self.acknowledged.iter().map(|(_, entry)| entry.clone()).collect();
        for entry in &known {
            if !shown.iter().any(|one| is_same(one, entry)) {
                let text = format!("{} was acknowledged, a cold load shows {}", entry.id, ids(shown));
                self.broke(Promise::AcknowledgedSurvive, text);
            }
        }
        if let Some(one) = shown.iter().find(|one| !known.iter().any(|entry| is_same(entry, one))) {
            self.broke(
                Promise::NothingInvented,
                format!("a cold load shows {}, which nobody acknowledged", one.id),
            );
        }
        let in_order =
            shown.len() != known.len() || shown.iter().zip(&known).all(|(one, two)| is_same(one, two));
        if !in_order && !self.is_contested() {
            let text = format!("a cold load shows {}, begun in the order {}", ids(shown), ids(&known));
            self.broke(Promise::CallsInOrder, text);
        }
    }

    fn ok(&mut self, call: &Call) -> Result<Answer, Stop> {
        match self.subject.call(call) {
            Reply::Ok(answer) => Ok(answer),
            reply => Err(ended(&reply, call.name())),
        }
    }

    fn broke(&mut self, promise: Promise, evidence: String) {
        self.violations.push(Violation { promise, evidence });
    }

    fn is_contested(&self) -> bool {
        self.stores.len() > 1
    }

    fn store_of(&self, ask: Ask) -> usize {
        match ask {
            Append(store, _) | AppendNowhere(store) | Flush(store) | Entries(store) => store,
            Extend(tree)
            | Orphan(tree)
            | Move(tree, _)
            | MoveToNew(tree, _)
            | MoveNowhere(tree)
            | Active(tree) => self.trees[tree].0,
        }
    }

    fn named(&self, id: &str) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    fn model_id(&self, name: &str) -> String {
        let found = self.names.iter().find(|(_, own)| *own == name);
        found.map_or_else(|| name.to_owned(), |(id, _)| id.clone())
    }
}

fn ids_of(store: usize) -> Vec<String> {
    (1..=32).map(|number| format!("s{store}-{number}")).collect()
}

fn store_name(store: usize) -> String {
    format!("store-{store}")
}

fn tree_name(tree: usize) -> String {
    format!("tree-{tree}")
}

fn text_of(at: usize, ask: Ask) -> String {
    match ask {
        Orphan(_) => format!(
            "{{\"id\":\"m-n-{at}\",\"role\":\"toolResult\",\"toolCallId\":\"never-called\",\"toolName\":\"none\",\
             \"content\":\"\",\"isError\":false}}"
        ),
        _ => message('n', at as u32),
    }
}

fn append(store: usize, parent_id: Option<String>, text: &str) -> Call {
    Call::Append { store: store_name(store), parent_id, message: raw(text) }
}

fn raw(text: &str) -> Box<RawValue> {
    // Every text here is JSON.
    RawValue::from_string(text.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// The same entry, whatever of it the format keeps beyond what every store must.
pub(super) fn is_same(one: &EntryView, other: &EntryView) -> bool {
    (&one.id, &one.parent_id) == (&other.id, &other.parent_id)
        && (one.message == other.message || value(&one.message) == value(&other.message))
}

fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Ok(_))
}

/// Whether a commit is refused because somebody else was first, or still is at it.
pub(super) fn says_stale(reply: &Reply) -> bool {
    let Reply::Refused(refusal) = reply else { return false };
    matches!(&*refusal.code, "SESSION_FILE_CHANGED" | "SESSION_ROLLBACK_FAILED") || refusal.in_flight
}

/// What is wrong with the form of an answer.
pub(super) fn untyped(reply: &Reply, is_native: bool) -> Option<String> {
    match reply {
        Reply::Ok(_) => None,
        Reply::Refused(refusal) if !is_native || refusal.code.parse::<session_tree::Code>().is_ok() => None,
        reply => Some(reply.to_string()),
    }
}

fn ids(entries: &[EntryView]) -> String {
    let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    format!("[{}]", ids.join(" "))
}
