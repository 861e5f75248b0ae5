//! Workers that are killed at random moments, and an operator who clears up after them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use session_tree::recover::{State, inspect, recover, remove_strays};
use session_tree::{Code, Entry, Errno, Message, Options, Store, decode};
use tempfile::TempDir;

use super::files::{is_temporary, marker_of, names_in, session_in};
use super::worker::{Worker, arguments, say};

/// What the kills met.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u32,
    /// Killed before a session was at its path.
    pub(crate) nothing_created: u32,
    /// Killed when the session was at its path and not one append was acknowledged in that life.
    pub(crate) nothing_appended: u32,
    /// Entries acknowledged before a kill.
    pub(crate) acknowledged: usize,
    /// The submission that the kill left unanswered is in the session.
    pub(crate) unanswered_kept: u32,
    /// Loads that a recovery marker refused.
    pub(crate) refused: u32,
    /// Markers that were taken away, and markers that were put back over the path.
    pub(crate) kept_path: u32,
    pub(crate) restored_marker: u32,
    /// Markers that `recover` resolved.
    pub(crate) recovered: u32,
    /// Temporaries that the kills left behind.
    pub(crate) strays: usize,
}

/// The longest lives of writers. They follow what the kills met, so that kills fall into a create and into appends on
/// fast disks and slow ones, idle machines and busy ones.
pub(crate) struct Pace {
    creating: Duration,
    appending: Duration,
}

impl Pace {
    /// To begin with, a few creates or appends as they take here.
    pub(crate) fn measure() -> Pace {
        let directory = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let store = Store::create(session_in(directory.path())).unwrap();
        let creating = start.elapsed() * 2;
        let start = Instant::now();
        for _ in 0..4 {
            store.append(None, message("pace")).unwrap();
        }
        Pace { creating, appending: start.elapsed() }
    }

    fn after_create(&mut self, created: bool) {
        self.creating = self.creating.mul_f64(if created { 0.95 } else { 1.1 });
    }

    fn after_appends(&mut self, acknowledged: usize) {
        self.appending = self.appending.mul_f64(match acknowledged {
            0 => 1.1,
            1..4 => 1.0,
            _ => 0.9,
        });
    }
}

/// One session over several lives of its writer, each ended by a kill.
pub(crate) struct Ordeal<'a> {
    directory: TempDir,
    path: PathBuf,
    /// The ids that the session must hold, in stored order.
    known: Vec<String>,
    exists: bool,
    lives: u32,
    /// Whether some markers are resolved by hand; else all of them by `recover`.
    by_hand: bool,
    random: &'a mut Rng,
    pace: &'a mut Pace,
    tally: &'a mut Tally,
}

impl<'a> Ordeal<'a> {
    pub(crate) fn new(
        by_hand: bool,
        random: &'a mut Rng,
        pace: &'a mut Pace,
        tally: &'a mut Tally,
    ) -> Ordeal<'a> {
        let directory = tempfile::tempdir().unwrap();
        let path = session_in(directory.path());
        Ordeal { directory, path, known: Vec::new(), exists: false, lives: 0, by_hand, random, pace, tally }
    }

    /// Lets a worker live for a random while, kills it, checks what it left, and clears up.
    pub(crate) fn live_and_die(&mut self) {
        let existed = self.exists;
        let most = if existed { self.pace.appending } else { self.pace.creating };
        let delay = most.mul_f64(self.random.f64());
        self.lives += 1;
        let tag = format!("life{}", self.lives);
        let said = run_and_kill(&self.path, &tag, delay);
        self.tally.kills += 1;

        let acknowledged = said.lines().filter_map(|line| line.strip_prefix("acknowledged "));
        let before = self.known.len();
        self.known.extend(acknowledged.map(str::to_owned));
        let acknowledged = self.known.len() - before;
        let created = self.exists || said.starts_with("created\n");
        self.tally.acknowledged += acknowledged;
        let unanswered = format!("{tag}-{acknowledged}");
        self.inspect(created, &unanswered);
        if self.exists && acknowledged == 0 {
            self.tally.nothing_appended += 1;
        }
        if existed {
            self.pace.after_appends(acknowledged);
        } else {
            self.pace.after_create(self.exists);
        }
        self.look_for_strangers();
    }

    /// The session still takes an append and shows everything afterwards; then its strays are counted.
    pub(crate) fn end(mut self) {
        if !self.exists {
            assert!(Store::create(&self.path).is_ok());
        }
        let store = Store::load_with(
            session_tree::file_ops::OsFileOps::new(),
            &self.path,
            Options::new().with_ids(|| "last".to_owned()),
        )
        .unwrap();
        store.append(store.entries().last().map(Entry::id), message("last")).unwrap();
        self.known.push("last".to_owned());
        self.check(&Store::load(&self.path).unwrap().entries(), None);
        let names = names_in(self.directory.path());
        let strays = names.iter().filter(|name| is_temporary(name)).count();
        assert_eq!(remove_strays(&self.path).unwrap().len(), strays);
        assert_eq!(names_in(self.directory.path()), ["session.jsonl"]);
        self.tally.strays += strays;
    }

    fn inspect(&mut self, created: bool, unanswered: &str) {
        match Store::load(&self.path) {
            Ok(store) => {
                assert_eq!(store.torn_tail(), 0, "a generation is whole");
                let extra = self.check(&store.entries(), Some(unanswered));
                self.adopt(extra, unanswered);
            }
            Err(error) if error.code() == Code::RollbackFailed => {
                assert!(!error.in_flight() && !error.poisoned(), "the writer is dead: {error}");
                self.tally.refused += 1;
                self.resolve(unanswered);
            }
            Err(error) if error.errno() == Some(Errno::ENOENT) && !created => {
                assert!(!marker_of(&self.path).exists(), "a create makes no marker");
                self.tally.nothing_created += 1;
            }
            Err(error) => panic!("neither a generation nor a marker: {error}"),
        }
    }

    /// Notes what the session was seen to hold.
    fn adopt(&mut self, extra: bool, unanswered: &str) {
        self.exists = true;
        if extra {
            self.tally.unanswered_kept += 1;
            self.known.push(unanswered.to_owned());
        }
    }

    /// What is done about a marker: `recover`, or what an operator does who looks at both files and chooses one. Both
    /// hold all that was acknowledged, so either choice is admissible.
    fn resolve(&mut self, unanswered: &str) {
        if self.by_hand && self.random.bool() {
            self.resolve_by_hand(unanswered);
        } else {
            let recovery = recover(&self.path, None).unwrap();
            assert_eq!(recovery.did.len(), 1, "{recovery:?}");
            assert_eq!(inspect(&self.path).unwrap().state, State::Clean);
            self.tally.recovered += 1;
            let extra = self.check(&Store::load(&self.path).unwrap().entries(), Some(unanswered));
            self.adopt(extra, unanswered);
        }
        self.check(&Store::load(&self.path).unwrap().entries(), None);
    }

    fn resolve_by_hand(&mut self, unanswered: &str) {
        let marker = marker_of(&self.path);
        let at_path = decode(fs::read(&self.path).unwrap()).unwrap();
        let at_marker = decode(fs::read(&marker).unwrap()).unwrap();
        assert!(at_path.canonical() && at_marker.canonical());
        self.check(at_marker.entries(), None);
        let extra = self.check(at_path.entries(), Some(unanswered));
        // Where both are names of one file, renaming one over the other would do nothing and leave the marker.
        if extra && self.random.bool() {
            fs::rename(&marker, &self.path).unwrap();
            self.tally.restored_marker += 1;
            self.adopt(false, unanswered);
        } else {
            fs::remove_file(&marker).unwrap();
            self.tally.kept_path += 1;
            self.adopt(extra, unanswered);
        }
    }

    /// Every known entry in its place and unchanged, and at most the one that was under way behind them. Says
    /// whether that one is there.
    fn check(&self, entries: &[Entry], unanswered: Option<&str>) -> bool {
        let extra = entries.len() == self.known.len() + 1;
        let expected: Vec<&str> =
            self.known.iter().map(String::as_str).chain(unanswered.filter(|_| extra)).collect();
        let ids: Vec<&str> = entries.iter().map(Entry::id).collect();
        assert_eq!(ids, expected);
        for (at, entry) in entries.iter().enumerate() {
            assert_eq!(entry.parent_id(), at.checked_sub(1).map(|above| ids[above]));
            assert_eq!(*entry.message(), message(entry.id()));
        }
        extra
    }

    fn look_for_strangers(&self) {
        for name in names_in(self.directory.path()) {
            let ours = name == OsStr::new("session.jsonl") || is_temporary(&name);
            assert!(ours, "{} is nothing of the store's", name.display());
        }
    }
}

fn run_and_kill(path: &Path, tag: &str, delay: Duration) -> String {
    let mut worker = Worker::start("append-until-killed", &[path.as_os_str(), tag.as_ref()]);
    assert_eq!(worker.line(), "ready");
    thread::sleep(delay);
    worker.kill()
}

fn message(id: &str) -> Message {
    Message::user(format!("message-{id}"), format!("what {id} says"))
}

/// The role `append-until-killed`: creates the session where there is none, then appends for ever, and says each
/// acknowledged id before it submits the next one.
pub(crate) fn append_until_killed() {
    let arguments = arguments();
    let [path, tag] = &arguments[..] else { panic!("{arguments:?}") };
    let tag = tag.clone();
    let mut drawn = 0..;
    let id = tag.clone();
    let options = Options::new().with_ids(move || format!("{id}-{}", drawn.next().unwrap_or(0)));
    let ops = session_tree::file_ops::OsFileOps::new();
    let exists = Path::new(path).exists();
    say("ready");
    let store = if exists {
        Store::load_with(ops, path, options).unwrap()
    } else {
        let store = Store::create_with(ops, path, options).unwrap();
        say("created");
        store
    };
    for number in 0.. {
        let parent = store.entries().last().map(|entry| entry.id().to_owned());
        let entry = store.append(parent.as_deref(), message(&format!("{tag}-{number}"))).unwrap();
        say(&format!("acknowledged {}", entry.id()));
    }
}
