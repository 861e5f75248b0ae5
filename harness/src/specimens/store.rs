//! A small good store, written from the contract on the independent model: the control that must never be flagged, and
//! with one [`Defect`] a specimen that must.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use session_tree::file_ops::{Access, FileOps, Lock};
use session_tree::{Errno, Stage};

use super::commit::commit;
use super::create;
use super::defect::Defect;
use super::fail::Fail;
use super::in_place;
use super::load;
use super::place::{Place, uninterrupted};
use super::reader::{self, Flaw};
use super::recover;
use super::temporary::Generation;
use crate::call::{Answer, Call, EntryView, HeaderView, Reply};
use crate::model::{Drawn, Message, Session};
use crate::subject::Subject;
use crate::world::WorldOps;

/// How often a lock that somebody holds is asked for.
const LOCK_TRIES: u32 = 8;

/// A process of the small store.
pub(super) struct SmallStore {
    ops: WorldOps,
    defect: Option<Defect>,
    flaw: Option<Flaw>,
    stores: HashMap<String, Opened>,
    trees: HashMap<String, Tree>,
}

struct Opened {
    place: Place,
    generation: Generation,
    session: Session,
    drawn: Factories,
    /// The answer to every further call, once the old generation's place was not proved.
    poison: Option<Fail>,
    /// What is shown besides the session's entries.
    ghosts: Vec<EntryView>,
    has_failed: bool,
    flaw: Option<Flaw>,
}

struct Tree {
    store: String,
    leaf: Option<String>,
}

/// Ids and times: those given first, then ones that count up.
#[derive(Default)]
struct Factories {
    ids: VecDeque<String>,
    clock: VecDeque<String>,
    own_ids: u32,
    own_times: u32,
}

impl SmallStore {
    pub(super) fn new(ops: WorldOps, defect: Option<Defect>, flaw: Option<Flaw>) -> SmallStore {
        SmallStore { ops, defect, flaw, stores: HashMap::new(), trees: HashMap::new() }
    }

    fn answer(&mut self, call: &Call) -> Result<Answer, Fail> {
        match call {
            Call::Create { store, path, session_id, ids, clock } => {
                let id = session_id.as_deref().unwrap_or("session-1");
                self.create(store, path, id, Factories::given(ids, clock))
            }
            Call::Load { store, path, ids, clock } => self.load(store, path, Factories::given(ids, clock)),
            Call::Append { store, parent_id, message } => {
                let entry = self.store(store)?.append(parent_id.as_deref(), message.get())?;
                Ok(Answer { entry: Some(entry), ..Answer::default() })
            }
            Call::Flush { store } => self.store(store)?.flush().map(|()| Answer::default()),
            Call::Entries { store } => {
                let shown = self.store(store)?.shown();
                Ok(Answer { entries: Some(shown), ..Answer::default() })
            }
            Call::Tree { store, tree } => {
                let leaf = self.store(store)?.session.tree().leaf().map(str::to_owned);
                self.trees.insert(tree.clone(), Tree { store: store.clone(), leaf: leaf.clone() });
                Ok(Answer { leaf: Some(leaf), ..Answer::default() })
            }
            Call::MoveTo { tree, entry_id } => self.move_to(tree, entry_id.as_deref()),
            Call::TreeAppend { tree, message } => self.tree_append(tree, message.get()),
            Call::Active { tree } => self.active(tree),
            Call::Inspect { path } => {
                let state = recover::inspect(&self.ops, Path::new(path), self.defect)?;
                Ok(Answer { state: Some(state.to_owned()), ..Answer::default() })
            }
            Call::Recover { path, choose } => {
                let (state, did) = recover::recover(&self.ops, Path::new(path), *choose, self.defect)?;
                Ok(Answer { state: Some(state.to_owned()), did: Some(did), ..Answer::default() })
            }
            // One thread, so begun together means one after the other.
            Call::Concurrent { calls }
                if calls.iter().all(|call| !matches!(call, Call::Concurrent { .. })) =>
            {
                Ok(Answer { answers: Some(self.together(calls)), ..Answer::default() })
            }
            Call::Concurrent { .. } => {
                Err(Fail::new("SUBJECT_USAGE", "concurrent calls within concurrent calls"))
            }
            Call::Close { store } => {
                self.stores.remove(store).map(|_| Answer::default()).ok_or_else(|| unknown("store", store))
            }
        }
    }

    fn together(&mut self, calls: &[Call]) -> Vec<Reply> {
        let mut order: Vec<usize> = (0..calls.len()).collect();
        match self.defect {
            Some(Defect::QueueOrderLost) => order.reverse(),
            Some(Defect::MoveNotQueued) => order.sort_by_key(|at| !matches!(calls[*at], Call::MoveTo { .. })),
            _ => {}
        }
        let mut replies: Vec<(usize, Reply)> =
            order.into_iter().map(|at| (at, self.call(&calls[at]))).collect();
        replies.sort_by_key(|(at, _)| *at);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    fn create(&mut self, store: &str, path: &str, id: &str, mut drawn: Factories) -> Result<Answer, Fail> {
        let place = Place::open(&self.ops, Path::new(path), self.defect, Stage::K1)?;
        create::verify(&place)?;
        let session = Session::create(id, &drawn.next_time())
            .map_err(|code| Fail::new(code, "this is no header").at(Stage::K1))?;
        drawn.spend(false, true);
        let bytes = self.flaw.map_or_else(|| session.file().to_vec(), |flaw| flaw.written(&session));
        let generation = create::write(&place, &bytes)?;
        let answer = Answer { header: Some(header(&session)), ..Answer::default() };
        self.stores.insert(store.to_owned(), Opened::new(place, generation, session, drawn));
        Ok(answer)
    }

    fn load(&mut self, store: &str, path: &str, drawn: Factories) -> Result<Answer, Fail> {
        let (place, generation, bytes) = load::read(&self.ops, Path::new(path), self.defect)?;
        let read = reader::read(&bytes, self.flaw)?;
        let mut opened = Opened::new(place, generation, read.session, drawn);
        if self.defect == Some(Defect::LoadRepairs) {
            opened.drop_tail();
        }
        let shown = read.shown.unwrap_or_else(|| opened.entries());
        let leaf = shown.last().map(|entry| entry.id.clone());
        let answer = Answer {
            header: Some(header(&opened.session)),
            entries: Some(shown),
            leaf: Some(leaf),
            ..Answer::default()
        };
        opened.flaw = self.flaw;
        self.stores.insert(store.to_owned(), opened);
        Ok(answer)
    }

    fn move_to(&mut self, tree: &str, id: Option<&str>) -> Result<Answer, Fail> {
        let tree = self.trees.get_mut(tree).ok_or_else(|| unknown("tree", tree))?;
        let store = self.stores.get(&tree.store).ok_or_else(|| unknown("store", &tree.store))?;
        if id.is_some_and(|id| store.session.entry(id).is_none()) {
            return Err(Fail::new("SESSION_ENTRY_NOT_FOUND", "no entry has this id"));
        }
        tree.leaf = id.map(str::to_owned);
        Ok(Answer { leaf: Some(tree.leaf.clone()), ..Answer::default() })
    }

    fn tree_append(&mut self, tree: &str, message: &str) -> Result<Answer, Fail> {
        let tree = self.trees.get_mut(tree).ok_or_else(|| unknown("tree", tree))?;
        let store = self.stores.get_mut(&tree.store).ok_or_else(|| unknown("store", &tree.store))?;
        let foreseen = store.drawn.next_id();
        let appended = store.append(tree.leaf.as_deref(), message);
        match &appended {
            Ok(entry) => tree.leaf = Some(entry.id.clone()),
            Err(fail) if self.defect == Some(Defect::LeafMovedFirst) && is_io(fail) => {
                tree.leaf = Some(foreseen);
            }
            Err(_) => {}
        }
        appended.map(|entry| Answer { entry: Some(entry), ..Answer::default() })
    }

    fn active(&mut self, tree: &str) -> Result<Answer, Fail> {
        let tree = self.trees.get(tree).ok_or_else(|| unknown("tree", tree))?;
        let store = self.stores.get(&tree.store).ok_or_else(|| unknown("store", &tree.store))?;
        let mut path = Vec::new();
        let mut at = tree.leaf.as_deref().and_then(|leaf| store.session.entry(leaf));
        while let Some(entry) = at {
            path.push(EntryView::from(entry));
            at = entry.parent.as_deref().and_then(|parent| store.session.entry(parent));
        }
        path.reverse();
        Ok(Answer { leaf: Some(tree.leaf.clone()), entries: Some(path), ..Answer::default() })
    }

    fn store(&mut self, name: &str) -> Result<&mut Opened, Fail> {
        self.stores.get_mut(name).ok_or_else(|| unknown("store", name))
    }
}

impl Subject for SmallStore {
    fn call(&mut self, call: &Call) -> Reply {
        match self.answer(call) {
            Ok(answer) => Reply::Ok(answer),
            Err(fail) => Defect::told(self.defect, fail.into()),
        }
    }
}

impl Opened {
    fn new(place: Place, generation: Generation, session: Session, drawn: Factories) -> Opened {
        Opened {
            place,
            generation,
            session,
            drawn,
            poison: None,
            ghosts: Vec::new(),
            has_failed: false,
            flaw: None,
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.place.has(defect)
    }

    /// Requirement S5, in its order.
    fn append(&mut self, parent: Option<&str>, message: &str) -> Result<EntryView, Fail> {
        Message::read(message).map_err(|code| Fail::new(code, "this is no message"))?;
        self.check_health()?;
        self.locked(|store| {
            let (id, time) = (store.drawn.next_id(), store.drawn.next_time());
            let mut next = store.session.clone();
            let answer = next.append(parent, message, Drawn { id: Some(&id), timestamp: Some(&time) });
            store.drawn.spend(answer.drew_id, answer.drew_timestamp);
            let entry = answer.result.map_err(|code| Fail::new(code, "the append is refused"))?;
            let view = EntryView::from(&entry);
            let committed = store.commit(&next);
            if committed.is_err() && store.has(Defect::FailedShown) {
                store.ghosts.push(view.clone());
            }
            if committed.is_ok() || store.has(Defect::FailedKept) {
                store.session = next;
            }
            committed.map(|()| view)
        })
    }

    fn flush(&mut self) -> Result<(), Fail> {
        self.check_health()?;
        self.locked(|store| {
            let mut next = store.session.clone();
            next.flush().map_err(|code| Fail::new(code, "the flush is refused"))?;
            store.commit(&next)?;
            store.session = next;
            Ok(())
        })
    }

    fn shown(&self) -> Vec<EntryView> {
        if self.has_failed && self.has(Defect::EntriesFromDisk) {
            let _ = self.place.look(&self.place.name);
        }
        self.entries().into_iter().chain(self.ghosts.iter().cloned()).collect()
    }

    fn entries(&self) -> Vec<EntryView> {
        self.session.entries().iter().map(EntryView::from).collect()
    }

    fn check_health(&self) -> Result<(), Fail> {
        if self.has_failed && self.has(Defect::FailsForEver) {
            return Err(Fail::io("go on after the failure of before", Errno::EIO, Stage::C1));
        }
        match &self.poison {
            Some(Fail::Refused(refusal)) => Err((**refusal).clone().into()),
            _ => Ok(()),
        }
    }

    /// Runs `body` under the lock of the generation's inode, once the path was seen to name it.
    fn locked<T>(&mut self, body: impl FnOnce(&mut Opened) -> Result<T, Fail>) -> Result<T, Fail> {
        let stage = Stage::C1;
        let locked = self.lock();
        let done = locked.and_then(|()| {
            let known = self.place.adopted_now(&self.generation.stat)?;
            self.place.check_storage(&known, stage)?;
            body(self)
        });
        // After a commit this is the new generation, which nobody has locked.
        if done.is_ok() || !self.has(Defect::LockLeaked) {
            self.place.ops.unlock(&self.generation.file);
        }
        let done = done.map_err(|fail| self.admitted(fail));
        if let Err(fail) = &done {
            self.has_failed |= is_io(fail);
            let is_poison = fail.refusal().is_some_and(|refusal| refusal.poisoned);
            if is_poison && !self.has(Defect::PoisonForgotten) {
                self.poison = fail.refusal().cloned().map(Fail::from);
            }
        }
        done
    }

    fn admitted(&self, fail: Fail) -> Fail {
        if is_io(&fail) && self.has(Defect::DoubtsEverything) { fail.in_doubt() } else { fail }
    }

    fn lock(&self) -> Result<(), Fail> {
        let Place { ops, defect, .. } = &self.place;
        if defect.is_some_and(Defect::takes_no_lock) {
            return Ok(());
        }
        for attempt in 1..=LOCK_TRIES {
            match uninterrupted(|| ops.try_lock(&self.generation.file, Lock::Exclusive)) {
                Ok(false) => ops.pause(attempt),
                // Where there are no locks the rest of the protocol must do.
                Ok(true) | Err(Errno::ENOLCK | Errno::ENOTSUP | Errno::ENOSYS | Errno::EBADF) => {
                    return Ok(());
                }
                Err(errno) => return Err(Fail::io("lock the file", errno, Stage::C1)),
            }
        }
        Err(Fail::io("wait for another process's lock", Errno::EAGAIN, Stage::C1).in_flight())
    }

    fn commit(&mut self, next: &Session) -> Result<(), Fail> {
        if self.has(Defect::AcknowledgesOnly) {
            return Ok(());
        }
        let bytes = self.flaw.map_or_else(|| next.file().to_vec(), |flaw| flaw.written(next));
        let tail = self.session.torn_tail();
        let bytes = if tail > 0 && self.has(Defect::TornTailKept) {
            let (before, canonical) = (self.session.file(), self.session.encode().len());
            [before, next.file().get(canonical..).unwrap_or_default()].concat()
        } else {
            bytes
        };
        if self.place.defect.is_some_and(Defect::is_in_place) {
            self.generation.stat = in_place::write(&self.place, &self.generation, &self.session, next)?;
            return Ok(());
        }
        let generation = commit(&self.place, &self.generation, &bytes)?;
        self.place.ops.unlock(&self.generation.file);
        self.generation = generation;
        Ok(())
    }

    /// What no load should do.
    fn drop_tail(&mut self) {
        let tail = self.session.torn_tail() as u64;
        if tail == 0 {
            return;
        }
        let Place { ops, dir, name, .. } = &self.place;
        if let Ok(file) = ops.open(dir, name, Access::ReadWrite)
            && ops.truncate(&file, self.generation.stat.size - tail).is_ok()
            && let Ok(stat) = ops.stat(&file)
        {
            self.generation.stat = stat;
        }
    }
}

impl Factories {
    fn given(ids: &[String], clock: &[String]) -> Factories {
        Factories {
            ids: ids.iter().cloned().collect(),
            clock: clock.iter().cloned().collect(),
            ..Factories::default()
        }
    }

    fn next_id(&self) -> String {
        self.ids.front().cloned().unwrap_or_else(|| format!("entry-{:04}", self.own_ids + 1))
    }

    fn next_time(&self) -> String {
        let own = || {
            let count = self.own_times + 1;
            format!("2026-01-01T00:{:02}:{:02}.000Z", count / 60 % 60, count % 60)
        };
        self.clock.front().cloned().unwrap_or_else(own)
    }

    /// What was drawn is used up, whatever became of it.
    fn spend(&mut self, id: bool, time: bool) {
        if id && self.ids.pop_front().is_none() {
            self.own_ids += 1;
        }
        if time && self.clock.pop_front().is_none() {
            self.own_times += 1;
        }
    }
}

fn header(session: &Session) -> HeaderView {
    HeaderView {
        kind: "session".into(),
        version: 1,
        id: session.header().id.clone(),
        created_at: session.header().created_at.clone(),
    }
}

/// Whether the system failed, and not the caller.
fn is_io(fail: &Fail) -> bool {
    fail.refusal().is_some_and(|refusal| refusal.code == "SESSION_IO")
}

fn unknown(what: &str, name: &str) -> Fail {
    Fail::new("SUBJECT_USAGE", &format!("no {what} is called {name:?}"))
}
