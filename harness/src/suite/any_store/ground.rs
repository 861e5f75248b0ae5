//! A directory with one session, what of it was acknowledged, and the questions that every case asks.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::{Judged, Stop, Store, messages, silent, unsupported, violated};
use crate::call::{Answer, Call, EntryView, Refusal, Reply};
use crate::diagnose::harmless;
use crate::subject::Subject;
use crate::subject::command::Manner;

/// The name of the store in every process.
pub(super) const STORE: &str = "s";

/// Ids that a process is given.
const IDS: usize = 128;

/// Bytes of a large message: more than a page, so that it finds no room in what a file has left of its last one, and a
/// line of it is within the limits of format 1.
const LARGE: usize = 30_000;

/// A directory for one session.
pub(super) struct Ground<'a> {
    pub(super) store: &'a Store<'a>,
    directory: TempDir,
    /// What was acknowledged, as the store gave it.
    pub(super) acknowledged: Vec<EntryView>,
    /// How many messages were made up, so that each is another one.
    made_up: usize,
    /// How many ids were handed out: two processes of one case must not draw the same.
    handed_out: Cell<usize>,
    /// How its processes are started.
    pub(super) manner: Manner,
    /// Messages of appends that were not answered: their entries may be there or not.
    pub(super) in_doubt: Vec<Value>,
}

/// A process of the store.
pub(super) struct Process(pub(super) Box<dyn Subject>);

/// What became of an append.
pub(super) enum Appended {
    Acknowledged,
    Refused(Refusal),
}

impl<'a> Ground<'a> {
    pub(super) fn new(store: &'a Store<'a>) -> io::Result<Ground<'a>> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("sessions"))?;
        Ok(Ground {
            store,
            directory,
            acknowledged: Vec::new(),
            made_up: 0,
            handed_out: Cell::new(0),
            manner: Manner::Plain,
            in_doubt: Vec::new(),
        })
    }

    /// The session's directory, which a case may rename.
    pub(super) fn root(&self) -> PathBuf {
        self.directory.path().join("sessions")
    }

    /// A name that is free for a case to move something to.
    pub(super) fn elsewhere(&self) -> PathBuf {
        self.directory.path().join("elsewhere")
    }

    pub(super) fn path(&self) -> PathBuf {
        self.root().join("session.jsonl")
    }

    pub(super) fn start(&self) -> Result<Process, Stop> {
        match (self.store.start)(self.manner) {
            Ok(process) => Ok(Process(process)),
            // Of another user the program itself may be out of reach.
            Err(error) if self.manner.takes_a_process() => {
                unsupported(format!("no process of it can be started in the way that this needs: {error}"))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A process with a new session of `entries` entries in a chain.
    pub(super) fn session(&mut self, entries: usize) -> Result<Process, Stop> {
        let mut process = self.start()?;
        process.ok(&self.create())?;
        for _ in 0..entries {
            self.must_append(&mut process)?;
        }
        Ok(process)
    }

    pub(super) fn create(&self) -> Call {
        Call::Create {
            store: STORE.to_owned(),
            path: self.path().to_string_lossy().into_owned(),
            session_id: None,
            ids: self.ids(),
            clock: Vec::new(),
        }
    }

    pub(super) fn load(&self) -> Call {
        Call::Load {
            store: STORE.to_owned(),
            path: self.path().to_string_lossy().into_owned(),
            ids: self.ids(),
            clock: Vec::new(),
        }
    }

    /// As many as one process of a case may need, for stores that take them.
    fn ids(&self) -> Vec<String> {
        let first = self.handed_out.get();
        self.handed_out.set(first + IDS);
        (first..first + IDS).map(|number| format!("id-{number}")).collect()
    }

    /// A message that no entry has yet, of a user and of an assistant in turn, with the texts of [`messages`] in turn.
    pub(super) fn message(&mut self) -> Value {
        self.message_of(messages::text(self.made_up))
    }

    /// A message that no entry has yet, and that takes more room than is left where there is none.
    pub(super) fn large_message(&mut self) -> Value {
        let words = format!("{} {}", self.made_up + 1, "many words ".repeat(LARGE / "many words ".len()));
        self.message_of(&words)
    }

    fn message_of(&mut self, words: &str) -> Value {
        self.made_up += 1;
        messages::plain(self.made_up, words)
    }

    /// Appends below the last acknowledged entry.
    pub(super) fn append(&mut self, process: &mut Process) -> Result<Appended, Stop> {
        let parent = self.acknowledged.last().map(|entry| entry.id.clone());
        self.append_below(process, parent.as_deref())
    }

    pub(super) fn append_below(
        &mut self,
        process: &mut Process,
        parent: Option<&str>,
    ) -> Result<Appended, Stop> {
        let message = self.message();
        self.append_this(process, parent, &message)
    }

    /// Appends a large message below the last acknowledged entry.
    pub(super) fn append_large(&mut self, process: &mut Process) -> Result<Appended, Stop> {
        let parent = self.acknowledged.last().map(|entry| entry.id.clone());
        let message = self.large_message();
        self.append_this(process, parent.as_deref(), &message)
    }

    fn append_this(
        &mut self,
        process: &mut Process,
        parent: Option<&str>,
        message: &Value,
    ) -> Result<Appended, Stop> {
        let call = Call::Append {
            store: STORE.to_owned(),
            parent_id: parent.map(str::to_owned),
            message: raw(message),
        };
        match process.reply(&call)? {
            Ok(answer) => {
                self.acknowledge(answer, parent, message)?;
                Ok(Appended::Acknowledged)
            }
            Err(refusal) => Ok(Appended::Refused(refusal)),
        }
    }

    /// An append that nothing disturbs.
    pub(super) fn must_append(&mut self, process: &mut Process) -> Judged {
        let message = self.message();
        self.must_append_this(process, &message)
    }

    /// Appends a message of every kind, in a chain.
    pub(super) fn must_append_every_kind(&mut self, process: &mut Process) -> Judged {
        for kind in 0..messages::KINDS {
            self.made_up += 1;
            let message = messages::of_kind(kind, self.made_up);
            self.must_append_this(process, &message)?;
        }
        Ok(())
    }

    fn must_append_this(&mut self, process: &mut Process, message: &Value) -> Judged {
        let parent = self.acknowledged.last().map(|entry| entry.id.clone());
        match self.append_this(process, parent.as_deref(), message)? {
            Appended::Acknowledged => Ok(()),
            Appended::Refused(refusal) => violated(format!(
                "an append that nothing disturbs was refused with {}; the message: {}",
                told(&refusal),
                harmless::shortened(message.to_string().as_bytes(), 80)
            )),
        }
    }

    /// Keeps the entry of an answer, which must be the one that was asked for.
    pub(super) fn acknowledge(&mut self, answer: Answer, parent: Option<&str>, message: &Value) -> Judged {
        let Some(entry) = answer.entry else { return violated("an acknowledged append gives no entry") };
        if entry.parent_id.as_deref() != parent {
            return violated(format!(
                "appended below {parent:?}, the entry's parent is {:?}",
                entry.parent_id
            ));
        }
        if !is_of(&entry, message) {
            return violated(format!(
                "appended {}, the entry's message is {}",
                harmless::shortened(message.to_string().as_bytes(), 200),
                harmless::shortened(entry.message.as_bytes(), 200)
            ));
        }
        if self.acknowledged.iter().any(|known| known.id == entry.id) {
            return violated(format!("two entries have the id {:?}", entry.id));
        }
        self.acknowledged.push(entry);
        Ok(())
    }

    /// That exactly what was acknowledged is shown, in whatever order two processes gave it.
    pub(super) fn expect_all(&self, shown: &[EntryView], whence: &str) -> Judged {
        self.expect_but(0, shown, whence)
    }

    /// That what was acknowledged is shown but for at most `lost` of the last entries, and nothing else but what is in
    /// doubt.
    pub(super) fn expect_but(&self, lost: usize, shown: &[EntryView], whence: &str) -> Judged {
        let needed = &self.acknowledged[..self.acknowledged.len().saturating_sub(lost)];
        for entry in needed {
            match shown.iter().filter(|one| one.id == entry.id).collect::<Vec<_>>()[..] {
                [one] if is_equal(one, entry) => {}
                [one] => {
                    return violated(format!("{whence}: {} has become {}", in_short(entry), in_short(one)));
                }
                [] => return violated(format!("{whence}: the acknowledged entry {:?} is gone", entry.id)),
                _ => return violated(format!("{whence}: the entry {:?} is there twice", entry.id)),
            }
        }
        let is_known = |one: &EntryView| self.acknowledged.iter().any(|entry| is_equal(one, entry));
        let is_in_doubt = |one: &EntryView| self.in_doubt.iter().any(|message| is_of(one, message));
        match shown.iter().find(|one| !is_known(one) && !is_in_doubt(one)) {
            Some(one) => violated(format!("{whence}: {} was never acknowledged", in_short(one))),
            None => Ok(()),
        }
    }

    /// Takes note of what a load shows of the appends in doubt: from now on they are there.
    pub(super) fn settle(&mut self, shown: &[EntryView]) {
        let doubtful = std::mem::take(&mut self.in_doubt);
        let settled = shown.iter().filter(|one| doubtful.iter().any(|message| is_of(one, message)));
        self.acknowledged.extend(settled.cloned());
    }

    /// What another process loads, which must be possible; with a recovery, where the store has one.
    pub(super) fn loaded(&self, process: &mut Process, whence: &str) -> Result<Vec<EntryView>, Stop> {
        match self.loaded_or_recovered(process)? {
            Ok(shown) => Ok(shown),
            Err(refusal) => violated(format!("{whence}: refused with {}", told(&refusal))),
        }
    }

    /// What a process loads after an append that was acknowledged although `what` had happened.
    pub(super) fn loaded_after_append(
        &self,
        process: &mut Process,
        what: &str,
    ) -> Result<Vec<EntryView>, Stop> {
        match self.loaded_or_recovered(process)? {
            Ok(shown) => Ok(shown),
            Err(refusal) => violated(format!(
                "{what}; the append was acknowledged, but the load after it was refused: {}",
                told(&refusal)
            )),
        }
    }

    /// What a load shows, after a recovery where it is refused and the store has one.
    fn loaded_or_recovered(&self, process: &mut Process) -> Result<Result<Vec<EntryView>, Refusal>, Stop> {
        let mut loaded = process.reply(&self.load())?;
        if loaded.is_err() && self.store.recovers {
            let path = self.path().to_string_lossy().into_owned();
            if process.reply(&Call::Recover { path, choose: None })?.is_ok() {
                loaded = process.reply(&self.load())?;
            }
        }
        Ok(loaded.map(|answer| answer.entries.unwrap_or_default()))
    }

    /// That a new process shows exactly what was acknowledged, and that it can go on from there.
    pub(super) fn cold_load(&mut self, whence: &str) -> Judged {
        let mut process = self.start()?;
        let shown = self.loaded(&mut process, whence)?;
        self.expect_all(&shown, whence)?;
        self.settle(&shown);
        self.must_append(&mut process)?;
        process.ok(&Call::Close { store: STORE.to_owned() })?;
        let again = self.loaded(&mut process, whence)?;
        self.expect_all(&again, &format!("{whence}, after one more append"))
    }

    /// That the last append, if it was acknowledged although `what` had happened, is there with all before it.
    pub(super) fn expect_what_was_acknowledged(&mut self, appended: &Appended, what: &str) -> Judged {
        match appended {
            Appended::Refused(_) => Ok(()),
            Appended::Acknowledged => {
                let mut process = self.start()?;
                let shown = self.loaded_after_append(&mut process, what)?;
                self.expect_all(&shown, &format!("{what}, and an append was acknowledged"))
            }
        }
    }

    /// That the file grows at its end with each append, so that its last entry is there.
    pub(super) fn grown_log(&mut self) -> Result<Log, Stop> {
        let mut process = self.session(1)?;
        let mut ends = vec![fs::read(self.path())?];
        for _ in 0..3 {
            self.must_append(&mut process)?;
            ends.push(fs::read(self.path())?);
        }
        if ends.windows(2).any(|two| two[1].len() <= two[0].len() || !two[1].starts_with(&two[0])) {
            return unsupported("its file does not grow at the end with each append");
        }
        let bytes = ends.last().cloned().unwrap_or_default();
        Ok(Log { bytes, ends: ends.iter().map(Vec::len).collect() })
    }
}

/// A file that grew at its end.
pub(super) struct Log {
    pub(super) bytes: Vec<u8>,
    /// Where it ended after each append.
    pub(super) ends: Vec<usize>,
}

impl Process {
    /// What it answers; nothing but an answer goes on.
    pub(super) fn reply(&mut self, call: &Call) -> Result<Result<Answer, Refusal>, Stop> {
        match self.0.call(call) {
            Reply::Ok(answer) => Ok(Ok(answer)),
            Reply::Refused(refusal) => Ok(Err(refusal)),
            Reply::Unsupported(why) => unsupported(format!("no `{}`: {why}", call.name())),
            reply => {
                let said = self.0.said();
                Err(silent(reply, said.as_deref()))
            }
        }
    }

    /// What it answers to a call that nothing disturbs.
    pub(super) fn ok(&mut self, call: &Call) -> Result<Answer, Stop> {
        match self.reply(call)? {
            Ok(answer) => Ok(answer),
            Err(refusal) => violated(format!("`{}` was refused with {}", call.name(), told(&refusal))),
        }
    }

    pub(super) fn entries(&mut self) -> Result<Vec<EntryView>, Stop> {
        let answer = self.ok(&Call::Entries { store: STORE.to_owned() })?;
        Ok(answer.entries.unwrap_or_default())
    }
}

pub(super) fn raw(message: &Value) -> Box<RawValue> {
    // Every value is JSON.
    serde_json::value::to_raw_value(message).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

pub(super) fn told(refusal: &Refusal) -> String {
    format!("{} ({})", refusal.code, refusal.message)
}

/// An entry with the beginning of its message.
fn in_short(entry: &EntryView) -> String {
    let EntryView { id, parent_id, message, .. } = entry;
    format!("the entry {id:?} below {parent_id:?}, with {}", harmless::shortened(message.as_bytes(), 80))
}

fn value(entry: &EntryView) -> Option<Value> {
    serde_json::from_str(&entry.message).ok()
}

fn is_of(entry: &EntryView, message: &Value) -> bool {
    value(entry).as_ref() == Some(message)
}

/// The same entry, whatever of it the format keeps beyond what every store must.
fn is_equal(one: &EntryView, other: &EntryView) -> bool {
    (&one.id, &one.parent_id, value(one)) == (&other.id, &other.parent_id, value(other))
}
