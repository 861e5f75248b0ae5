//! The steps of the check, each of which needs those before it.

use std::fs;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::{Answer, Call, EntryView, Reply};
use crate::model;
use crate::protocol::{Capability, Hello};
use crate::subject::Subject as _;
use crate::subject::command::{Command, Running, StartError};

/// Why a step was not gone.
pub(super) enum Trouble {
    /// The adapter does not have that, and need not.
    Absent(String),
    /// What it does is wrong; what to do about it.
    Wrong(String),
    /// It broke the protocol; how.
    Broke(String),
}

type Gone = Result<(), Trouble>;

/// One step.
pub(super) struct Step {
    /// What it shows, for people.
    pub(super) name: &'static str,
    /// Goes it.
    pub(super) run: fn(&mut Ground) -> Gone,
}

/// All of them, in order.
pub(super) const STEPS: [Step; 16] = [
    Step { name: "create makes a session file", run: create },
    Step { name: "append a root and a child", run: append },
    Step { name: "injected ids and times are used", run: factories },
    Step { name: "text of any kind comes back as it was given", run: odd_text },
    Step { name: "a long message passes the pipes", run: long_text },
    Step { name: "a parent that is not there is refused, and nothing changes", run: refusal },
    Step { name: "flush", run: flush },
    Step { name: "tree, moveTo, treeAppend and active", run: tree },
    Step { name: "concurrent", run: concurrent },
    Step { name: "a name that was never given is SUBJECT_USAGE", run: unknown_name },
    Step { name: "a second store on the same file", run: second_store },
    Step { name: "close, and load again in the same process", run: reload },
    Step { name: "inspect", run: inspect },
    Step { name: "the end of input ends the process", run: end_of_input },
    Step { name: "another process loads what was acknowledged", run: second_process },
    Step { name: "a file that is not there is refused", run: nothing_there },
];

const STORE: &str = "a";

/// A running adapter, a directory, and what was acknowledged in it.
pub(super) struct Ground<'a> {
    subject: Running,
    command: &'a Command,
    directory: &'a Path,
    entries: Vec<EntryView>,
}

impl<'a> Ground<'a> {
    pub(super) fn new(command: &'a Command, directory: &'a Path) -> Result<Ground<'a>, StartError> {
        let ground =
            Ground { subject: start(command, directory, "one")?, command, directory, entries: Vec::new() };
        Ok(ground)
    }

    pub(super) fn hello(&self) -> &Hello {
        self.subject.hello()
    }

    pub(super) fn subject(&mut self) -> &mut Running {
        &mut self.subject
    }

    fn path(&self) -> String {
        self.directory.join("session.jsonl").to_string_lossy().into_owned()
    }

    fn ask(&mut self, call: &Call) -> Result<Answer, Trouble> {
        let name = call.name();
        match self.reply(call)? {
            Reply::Ok(answer) => Ok(answer),
            Reply::Refused(refusal) => Err(Trouble::Wrong(format!(
                "`{name}` was refused ({}: {}); it must work here",
                refusal.code, refusal.message
            ))),
            Reply::Unsupported(why) => Err(Trouble::Absent(why)),
            other => Err(Trouble::Broke(format!("{other:?}"))),
        }
    }

    /// An answer of the protocol, whatever it says.
    fn reply(&mut self, call: &Call) -> Result<Reply, Trouble> {
        let name = call.name();
        match self.subject.call(call) {
            Reply::Timeout => Err(Trouble::Broke(format!(
                "`{name}` had no answer within {:?}: answer with one line, and flush standard output after it",
                self.command.limits().each
            ))),
            Reply::Exited(how) => Err(Trouble::Broke(format!("the process ended without an answer ({how})"))),
            Reply::Protocol(what) => Err(Trouble::Broke(what)),
            reply => Ok(reply),
        }
    }

    fn append(&mut self, parent: Option<&str>, content: &str) -> Result<EntryView, Trouble> {
        let message = user(self.entries.len(), content);
        let call = Call::Append {
            store: STORE.to_owned(),
            parent_id: parent.map(str::to_owned),
            message: raw(&message)?,
        };
        let entry = self.ask(&call)?.entry;
        self.acknowledge(entry, parent, &message)
    }

    fn acknowledge(
        &mut self,
        entry: Option<EntryView>,
        parent: Option<&str>,
        message: &Value,
    ) -> Result<EntryView, Trouble> {
        let Some(entry) = entry else { return wrong("`entry` is missing") };
        if entry.parent_id.as_deref() != parent {
            return wrong(format!("the entry's `parentId` is {:?}; it must be {parent:?}", entry.parent_id));
        }
        if entry.id.is_empty() || self.entries.iter().any(|other| other.id == entry.id) {
            return wrong(format!("the entry's `id` is {:?}: it must be a new one", entry.id));
        }
        if !is_same(&entry.message, message) {
            return wrong(format!("the entry's `message` is {}; it must be {message}", entry.message));
        }
        self.entries.push(entry.clone());
        Ok(entry)
    }

    /// That `shown` are the acknowledged entries, in order.
    fn expect_all(&self, shown: Option<&[EntryView]>, whence: &str) -> Gone {
        let shown = shown.unwrap_or_default();
        let ids = |entries: &[EntryView]| entries.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>();
        if ids(shown) != ids(&self.entries) {
            return wrong(format!("{whence} gives {:?}; it must give {:?}", ids(shown), ids(&self.entries)));
        }
        match shown.iter().zip(&self.entries).find(|(shown, entry)| !is_equal(shown, entry)) {
            Some((shown, entry)) => wrong(format!("{whence} gives {shown:?}; it must give {entry:?}")),
            None => Ok(()),
        }
    }
}

fn start(command: &Command, directory: &Path, name: &str) -> Result<Running, StartError> {
    let working = directory.join(name);
    fs::create_dir(&working).map_err(StartError::Directory)?;
    command.start(&working)
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Wrong(what.into()))
}

fn needs(ground: &Ground, capability: Capability) -> Gone {
    if ground.hello().can(capability) {
        return Ok(());
    }
    Err(Trouble::Absent(format!("`{}` is not among its capabilities", capability.name())))
}

fn user(number: usize, content: &str) -> Value {
    json!({ "id": format!("m-{number}"), "role": "user", "content": content })
}

fn raw(message: &Value) -> Result<Box<RawValue>, Trouble> {
    serde_json::value::to_raw_value(message).map_err(|error| Trouble::Broke(error.to_string()))
}

fn is_same(shown: &str, given: &Value) -> bool {
    serde_json::from_str::<Value>(shown).is_ok_and(|shown| shown == *given)
}

fn is_equal(one: &EntryView, other: &EntryView) -> bool {
    let value = |entry: &EntryView| serde_json::from_str::<Value>(&entry.message).ok();
    one.parent_id == other.parent_id && value(one) == value(other)
}

fn create(ground: &mut Ground) -> Gone {
    let answer = ground.ask(&Call::Create {
        store: STORE.to_owned(),
        path: ground.path(),
        session_id: Some("session-of-the-check".to_owned()),
        ids: vec!["first".to_owned(), "second".to_owned()],
        clock: vec!["time-0".to_owned(), "time-1".to_owned(), "time-2".to_owned()],
    })?;
    if ground.hello().is_native() {
        let Some(header) = answer.header else { return wrong("`header` is missing") };
        if header.id != "session-of-the-check" {
            return wrong(format!(
                "the header's `id` is {:?}; it must be the `sessionId` of the request",
                header.id
            ));
        }
        let file = fs::read(ground.path()).unwrap_or_default();
        if model::load(&file).is_err() {
            return wrong("`create` answered, and no session of one header line is at `path`");
        }
    } else if fs::symlink_metadata(ground.path()).is_err() {
        return wrong("`create` answered, and nothing is at `path`");
    }
    Ok(())
}

fn append(ground: &mut Ground) -> Gone {
    let root = ground.append(None, "a root")?;
    ground.append(Some(&root.id), "its child")?;
    let entries = ground.ask(&Call::Entries { store: STORE.to_owned() })?.entries;
    ground.expect_all(entries.as_deref(), "`entries`")
}

fn factories(ground: &mut Ground) -> Gone {
    needs(ground, Capability::Factories)?;
    let drawn: Vec<_> = ground.entries.iter().map(|entry| (&*entry.id, &*entry.timestamp)).collect();
    if drawn != [("first", "time-1"), ("second", "time-2")] {
        return wrong(format!(
            "the entries have (id, timestamp) {drawn:?}; with `factories` they are (\"first\", \"time-1\") and \
             (\"second\", \"time-2\"): of `clock`, the header has the first"
        ));
    }
    Ok(())
}

fn last(ground: &Ground) -> Option<String> {
    ground.entries.last().map(|entry| entry.id.clone())
}

fn odd_text(ground: &mut Ground) -> Gone {
    let parent = last(ground);
    let odd = "quotes \" and \\, tab \t, line \n, nul \0, U+2028 \u{2028}, U+0085 \u{85}, e\u{301}, \u{1f9d1}\u{200d}\u{1f4bb}";
    ground.append(parent.as_deref(), odd).map(drop)
}

fn long_text(ground: &mut Ground) -> Gone {
    let parent = last(ground);
    ground.append(parent.as_deref(), &"long ".repeat(12_800)).map(drop)
}

fn refusal(ground: &mut Ground) -> Gone {
    let call = Call::Append {
        store: STORE.to_owned(),
        parent_id: Some("nobody".to_owned()),
        message: raw(&user(99, "an orphan"))?,
    };
    match ground.reply(&call)? {
        Reply::Refused(refusal)
            if ground.hello().is_native() && refusal.code != "SESSION_PARENT_NOT_FOUND" =>
        {
            return wrong(format!("the code is {}; it must be SESSION_PARENT_NOT_FOUND", refusal.code));
        }
        Reply::Refused(_) => {}
        Reply::Unsupported(why) => return Err(Trouble::Absent(why)),
        _ => return wrong("an append below a parent that does not exist was not refused"),
    }
    let entries = ground.ask(&Call::Entries { store: STORE.to_owned() })?.entries;
    ground.expect_all(entries.as_deref(), "`entries` after a refused append")
}

fn flush(ground: &mut Ground) -> Gone {
    ground.ask(&Call::Flush { store: STORE.to_owned() }).map(drop)
}

fn tree(ground: &mut Ground) -> Gone {
    needs(ground, Capability::Tree)?;
    let name = || "t".to_owned();
    let leaf = ground.ask(&Call::Tree { store: STORE.to_owned(), tree: name() })?.leaf.flatten();
    if leaf != last(ground) {
        return wrong(format!(
            "a new tree's `leaf` is {leaf:?}; it must be the last entry, {:?}",
            last(ground)
        ));
    }
    let Some(root) = ground.entries.first().map(|entry| entry.id.clone()) else { return Ok(()) };
    let moved = ground.ask(&Call::MoveTo { tree: name(), entry_id: Some(root.clone()) })?.leaf.flatten();
    if moved.as_deref() != Some(&*root) {
        return wrong(format!("after `moveTo` {root:?} the `leaf` is {moved:?}"));
    }
    let message = user(ground.entries.len(), "a second branch");
    let entry = ground.ask(&Call::TreeAppend { tree: name(), message: raw(&message)? })?.entry;
    let entry = ground.acknowledge(entry, Some(&root), &message)?;
    let active = ground.ask(&Call::Active { tree: name() })?;
    let path: Vec<_> = active.entries.unwrap_or_default().into_iter().map(|entry| entry.id).collect();
    if path != [root, entry.id.clone()] || active.leaf.flatten() != Some(entry.id) {
        return wrong(format!(
            "`active` gives {path:?}; it must give the path from the root to the new leaf"
        ));
    }
    Ok(())
}

fn concurrent(ground: &mut Ground) -> Gone {
    needs(ground, Capability::Concurrent)?;
    let store = || STORE.to_owned();
    let answers = ground.ask(&Call::Concurrent {
        calls: vec![Call::Flush { store: store() }, Call::Entries { store: store() }],
    })?;
    match answers.answers.as_deref() {
        Some([Reply::Ok(_), Reply::Ok(entries)]) => {
            ground.expect_all(entries.entries.as_deref(), "`entries` within `concurrent`")
        }
        other => wrong(format!("`answers` are {other:?}; a flush and the entries must both work here")),
    }
}

fn unknown_name(ground: &mut Ground) -> Gone {
    match ground.reply(&Call::Flush { store: "nobody".to_owned() })? {
        Reply::Refused(refusal) if refusal.code == "SUBJECT_USAGE" => Ok(()),
        other => wrong(format!(
            "`flush` of a store that was never opened gives {other:?}; it must be an `error` with the code SUBJECT_USAGE"
        )),
    }
}

fn second_store(ground: &mut Ground) -> Gone {
    let call = Call::Load {
        store: "b".to_owned(),
        path: ground.path(),
        ids: vec!["unused".to_owned()],
        clock: vec!["unused".to_owned()],
    };
    let entries = ground.ask(&call)?.entries;
    ground.expect_all(entries.as_deref(), "`load` of a session that is open already")?;
    ground.ask(&Call::Close { store: "b".to_owned() }).map(drop)
}

fn reload(ground: &mut Ground) -> Gone {
    ground.ask(&Call::Close { store: STORE.to_owned() })?;
    load(ground, "`load`")
}

fn load(ground: &mut Ground, whence: &str) -> Gone {
    let call =
        Call::Load { store: STORE.to_owned(), path: ground.path(), ids: Vec::new(), clock: Vec::new() };
    let answer = ground.ask(&call)?;
    ground.expect_all(answer.entries.as_deref(), whence)?;
    let leaf = answer.leaf.flatten();
    if ground.hello().is_native() && leaf != last(ground) {
        return wrong(format!(
            "{whence} gives the leaf {leaf:?}; it must be the last entry, {:?}",
            last(ground)
        ));
    }
    Ok(())
}

fn inspect(ground: &mut Ground) -> Gone {
    needs(ground, Capability::Recover)?;
    match ground.ask(&Call::Inspect { path: ground.path() })?.state.as_deref() {
        Some("clean") => Ok(()),
        state => wrong(format!("`inspect` of a session in order gives {state:?}; it must be \"clean\"")),
    }
}

fn end_of_input(ground: &mut Ground) -> Gone {
    let second = start(ground.command, ground.directory, "two");
    let second = second.map_err(|error| Trouble::Broke(format!("a second process: {error}")))?;
    let first = std::mem::replace(&mut ground.subject, second);
    first.finish().map_err(|over| {
        Trouble::Broke(format!(
            "at the end of its input the process must end, with nothing more to say: {over}"
        ))
    })
}

fn second_process(ground: &mut Ground) -> Gone {
    load(ground, "`load` in another process")
}

fn nothing_there(ground: &mut Ground) -> Gone {
    let path = ground.directory.join("missing.jsonl").to_string_lossy().into_owned();
    let call = Call::Load { store: "c".to_owned(), path, ids: Vec::new(), clock: Vec::new() };
    match ground.reply(&call)? {
        Reply::Refused(_) => Ok(()),
        _ => wrong("`load` of a file that does not exist must be an `error`"),
    }
}
