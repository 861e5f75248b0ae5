//! A session in a directory of its own, and what tests of the store ask about it.
#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod scripted;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use session_tree::file_ops::FileOps;
use session_tree::{Code, Entry, Error, Message, Options, Store};
use tempfile::TempDir;

use scripted::ScriptedOps;

/// The name that sessions of tests have.
pub(crate) const NAME: &str = "a.jsonl";

/// A directory with room for one session, on the real file system with a script of faults.
pub(crate) struct Fixture {
    root: TempDir,
    pub(crate) ops: ScriptedOps,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("sessions")).unwrap();
        Fixture { root, ops: ScriptedOps::new() }
    }

    /// A fixture with a session of `entries` entries, each below the one before, and the store that wrote them.
    pub(crate) fn with_entries(entries: usize) -> (Fixture, Store<ScriptedOps>) {
        let fixture = Fixture::new();
        let store = fixture.create().unwrap();
        let tree = store.tree();
        for number in 1..=entries {
            tree.append(user(&format!("m-{number}"))).unwrap();
        }
        fixture.ops.forget();
        (fixture, store)
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join("sessions")
    }

    /// A place outside the session's directory.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir().join(NAME)
    }

    pub(crate) fn marker(&self) -> PathBuf {
        self.dir().join(format!("{NAME}.pify-session-recovery"))
    }

    pub(crate) fn create(&self) -> session_tree::Result<Store<ScriptedOps>> {
        Store::create_with(self.ops.clone(), self.path(), options())
    }

    /// The store's entry ids are `l-1`, `l-2` and so on.
    pub(crate) fn load(&self) -> session_tree::Result<Store<ScriptedOps>> {
        Store::load_with(self.ops.clone(), self.path(), options().with_ids(counter("l")))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    /// Every name in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<OsString> {
        let mut names: Vec<OsString> =
            fs::read_dir(self.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    /// Whether the directory holds the session file and nothing else.
    pub(crate) fn is_tidy(&self) -> bool {
        self.names() == [NAME]
    }

    /// What a store that starts from the disk alone shows.
    pub(crate) fn cold_ids(&self) -> Vec<String> {
        ids_of(&Store::load(self.path()).unwrap().entries())
    }

    /// How many descriptors of this process lead into the fixture.
    pub(crate) fn descriptors(&self) -> usize {
        let root = self.root.path().canonicalize().unwrap();
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| target.starts_with(&root))
            .count()
    }

    /// Puts a stranger's file where the session is.
    pub(crate) fn replace_session(&self, bytes: &[u8]) {
        replace(&self.path(), bytes);
    }
}

/// Puts a new file with these bytes at `path`, atomically, as another program would.
pub(crate) fn replace(path: &Path, bytes: &[u8]) {
    let aside = path.with_file_name("stranger");
    fs::write(&aside, bytes).unwrap();
    fs::rename(&aside, path).unwrap();
}

/// Entry ids `e-1`, `e-2` and so on, times `t-1`, `t-2` and so on, session id `s`.
pub(crate) fn options() -> Options {
    Options::new().with_session_id("s").with_ids(counter("e")).with_clock(counter("t"))
}

pub(crate) fn counter(prefix: &'static str) -> impl FnMut() -> String + Send + 'static {
    let mut drawn = 0;
    move || {
        drawn += 1;
        format!("{prefix}-{drawn}")
    }
}

/// Gives these texts, one a call.
pub(crate) fn scripted_texts(texts: &[&str]) -> impl FnMut() -> String + Send + use<> {
    let mut texts: Vec<String> = texts.iter().rev().map(|&text| text.to_owned()).collect();
    move || texts.pop().expect("the test drew more texts than it scripted")
}

/// Runs `body` on a thread of its own and fails if it never ends, so that a deadlock is a failure and not a hang.
#[track_caller]
pub(crate) fn without_deadlock<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, answered) = mpsc::channel();
    let worker = thread::spawn(move || {
        // The receiver is gone only where the test has failed already.
        let _ = answer.send(body());
    });
    match answered.recv_timeout(Duration::from_mins(1)) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a deadlock"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the worker ended without an answer"),
        },
    }
}

pub(crate) fn user(id: &str) -> Message {
    Message::user(id, "words")
}

pub(crate) fn ids_of(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.id().to_owned()).collect()
}

pub(crate) fn ids<O: FileOps>(store: &Store<O>) -> Vec<String> {
    ids_of(&store.entries())
}

pub(crate) fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn inode_of(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[track_caller]
pub(crate) fn refused<T>(answer: session_tree::Result<T>, code: Code) -> Error {
    match answer {
        Ok(_) => panic!("expected {code}, got a success"),
        Err(error) => {
            assert_eq!(error.code(), code, "{error}");
            error
        }
    }
}
