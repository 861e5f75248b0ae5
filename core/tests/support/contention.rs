//! Two writer processes and a loading one on a single session, and what must hold whoever wins.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::ChildStdout;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use session_tree::file_ops::FileOps;
use session_tree::{Code, Entry, Error, Message, Options, Stage, Store};

use super::altered::AlteredOps;
use super::files::{names_in, session_in};
use super::worker::{Worker, arguments, say};

/// How often in a row a process may be told to wait before it counts as stuck.
const MOST_WAITS_IN_A_ROW: u32 = 20;

/// One contest.
#[derive(Clone, Copy)]
pub(crate) struct Contest {
    /// Acknowledged appends of each writer.
    pub(crate) appends: u32,
    /// The longest time in microseconds that a writer thinks before an append.
    pub(crate) most_thinking: u32,
    /// Whether the processes take the lock between processes.
    pub(crate) locked: bool,
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Everything that must not happen.
    pub(crate) findings: Vec<String>,
    /// Acknowledged appends by writer.
    pub(crate) acknowledged: [usize; 2],
    /// How often an entry of one writer follows one of the other in the file.
    pub(crate) changes_of_hand: usize,
    /// Appends that met another writer's generation.
    pub(crate) stale: usize,
    pub(crate) loads: usize,
    /// Refusals that say to wait, of loads.
    pub(crate) waits: usize,
}

const TAGS: [&str; 2] = ["a", "b"];

/// Runs the writers to their end, loads all the while, and checks.
pub(crate) fn contend(contest: Contest) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let path = session_in(directory.path());
    drop(Store::create(&path).unwrap());
    let reports = TAGS.map(|_| Arc::new(Mutex::new(Report::default())));
    let listeners: Vec<_> = TAGS
        .iter()
        .zip(&reports)
        .map(|(tag, report)| listen_to(start_writer(&path, tag, contest), Arc::clone(report)))
        .collect();

    let mut loader = Loader::new(contest, &path, &reports);
    while !listeners.iter().all(thread::JoinHandle::is_finished) && !loader.gave_up() {
        loader.load();
    }
    for listener in listeners {
        listener.join().unwrap();
    }
    // Nothing is in flight any more, so this one has nothing to wait for.
    let last = loader.load();
    let mut outcome = loader.outcome;
    let names = names_in(directory.path());
    if names != [OsStr::new("session.jsonl")] {
        outcome.findings.push(format!("the directory holds {names:?}"));
    }
    judge(&mut outcome, last, &reports, contest);
    outcome
}

fn judge(
    outcome: &mut Outcome,
    last: Option<Vec<Entry>>,
    reports: &[Arc<Mutex<Report>>; 2],
    contest: Contest,
) {
    let mut acknowledged = 0;
    for (at, report) in reports.iter().enumerate() {
        let report = report.lock().unwrap();
        outcome.findings.extend(report.findings.iter().cloned());
        outcome.acknowledged[at] = report.acknowledged.len();
        outcome.stale += report.stale;
        acknowledged += report.acknowledged.len();
        if report.acknowledged.len() != contest.appends as usize {
            outcome.findings.push(format!("a writer got {} acknowledged", report.acknowledged.len()));
        }
    }
    let Some(last) = last else {
        outcome.findings.push("the session does not load when everything is over".to_owned());
        return;
    };
    if last.len() != acknowledged {
        outcome.findings.push(format!("{} entries, but {acknowledged} were acknowledged", last.len()));
    }
    outcome.changes_of_hand =
        last.windows(2).filter(|pair| pair[0].id().as_bytes()[0] != pair[1].id().as_bytes()[0]).count();
}

/// What a writer has said so far.
#[derive(Default)]
struct Report {
    acknowledged: Vec<Submission>,
    stale: usize,
    findings: Vec<String>,
}

#[derive(Clone)]
struct Submission {
    id: String,
    parent: Option<String>,
}

impl Submission {
    fn message(&self) -> Message {
        message(&self.id)
    }
}

fn message(id: &str) -> Message {
    Message::user(format!("message-{id}"), format!("what {id} says"))
}

fn start_writer(path: &Path, tag: &str, contest: Contest) -> Worker {
    let numbers = [contest.appends.to_string(), contest.most_thinking.to_string(), contest.seed.to_string()];
    let lock = if contest.locked { "locked" } else { "unlocked" };
    let [appends, thinking, seed] = numbers.each_ref().map(OsStr::new);
    Worker::start("write", &[path.as_os_str(), tag.as_ref(), lock.as_ref(), appends, thinking, seed])
}

fn listen_to(mut writer: Worker, report: Arc<Mutex<Report>>) -> thread::JoinHandle<()> {
    let output = writer.take_output();
    thread::spawn(move || {
        take_down(output, &report);
        let status = writer.wait();
        if !status.success() {
            report.lock().unwrap().findings.push(format!("a writer ended with {status}"));
        }
    })
}

fn take_down(output: BufReader<ChildStdout>, report: &Mutex<Report>) {
    for line in output.lines() {
        let line = line.unwrap();
        let mut report = report.lock().unwrap();
        match line.split_once(' ') {
            Some(("acknowledged", words)) => {
                let (id, parent) = words.split_once(' ').unwrap();
                let parent = (parent != "-").then(|| parent.to_owned());
                report.acknowledged.push(Submission { id: id.to_owned(), parent });
            }
            Some(("stale", _)) => report.stale += 1,
            _ => report.findings.push(format!("a writer says: {line}")),
        }
    }
}

/// The process that only loads: this one.
struct Loader<'a> {
    ops: AlteredOps,
    path: &'a Path,
    reports: &'a [Arc<Mutex<Report>>; 2],
    shown: Vec<Entry>,
    waits_in_a_row: u32,
    outcome: Outcome,
}

impl<'a> Loader<'a> {
    fn new(contest: Contest, path: &'a Path, reports: &'a [Arc<Mutex<Report>>; 2]) -> Loader<'a> {
        Loader {
            ops: ops(contest.locked),
            path,
            reports,
            shown: Vec::new(),
            waits_in_a_row: 0,
            outcome: Outcome::default(),
        }
    }

    /// One finding is enough, and a session that is stuck would be asked for ever.
    fn gave_up(&self) -> bool {
        !self.outcome.findings.is_empty()
    }

    /// Loads once and checks what it shows, if it shows anything.
    fn load(&mut self) -> Option<Vec<Entry>> {
        let acknowledged: Vec<Submission> =
            self.reports.iter().flat_map(|report| report.lock().unwrap().acknowledged.clone()).collect();
        self.outcome.loads += 1;
        match Store::load_with(self.ops.clone(), self.path, Options::new()) {
            Ok(store) => {
                self.waits_in_a_row = 0;
                let entries = store.entries().to_vec();
                self.check(&entries, &acknowledged);
                self.shown.clone_from(&entries);
                Some(entries)
            }
            Err(error) if says_wait(&error) && self.waits_in_a_row < MOST_WAITS_IN_A_ROW => {
                self.waits_in_a_row += 1;
                self.outcome.waits += 1;
                None
            }
            Err(error) => {
                self.outcome.findings.push(format!("a load is refused: {error}"));
                None
            }
        }
    }

    fn check(&mut self, entries: &[Entry], acknowledged: &[Submission]) {
        if !entries.starts_with(&self.shown) {
            let (now, before) = (entries.len(), self.shown.len());
            self.outcome.findings.push(format!("{now} entries do not begin with the {before} shown before"));
        }
        let by_id: std::collections::HashMap<&str, &Entry> =
            entries.iter().map(|entry| (entry.id(), entry)).collect();
        for submission in acknowledged {
            let found = by_id.get(submission.id.as_str()).is_some_and(|entry| {
                entry.parent_id() == submission.parent.as_deref() && *entry.message() == submission.message()
            });
            if !found {
                self.outcome.findings.push(format!("{} is lost or changed", submission.id));
            }
        }
    }
}

fn ops(locked: bool) -> AlteredOps {
    if locked { AlteredOps::faithful() } else { AlteredOps::without_lock() }
}

fn says_wait(error: &Error) -> bool {
    matches!(error.code(), Code::RollbackFailed | Code::Io) && error.in_flight() && !error.poisoned()
}

/// The role `write`: appends to the leaf until enough is acknowledged, and loads again whenever the generation is
/// stale. Ends at the first answer that must not be.
pub(crate) fn write() {
    let arguments = arguments();
    let [path, tag, lock, appends, most_thinking, seed] = &arguments[..] else { panic!("{arguments:?}") };
    let mut writer =
        Writer { ops: ops(lock == "locked"), path: Path::new(path), tag, drawn: Arc::default(), store: None };
    let (most_thinking, appends): (u64, u32) = (most_thinking.parse().unwrap(), appends.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(seed.parse::<u64>().unwrap() ^ u64::from(tag.as_bytes()[0]));
    let (mut acknowledged, mut waits_in_a_row) = (0, 0);
    while acknowledged < appends {
        thread::sleep(Duration::from_micros(random.u64(0..=most_thinking)));
        match writer.step() {
            Step::Loaded => waits_in_a_row = 0,
            Step::Appended(entry) => {
                say(&format!("acknowledged {} {}", entry.id(), entry.parent_id().unwrap_or("-")));
                acknowledged += 1;
                waits_in_a_row = 0;
            }
            Step::Stale => say("stale generation"),
            Step::Wait if waits_in_a_row < MOST_WAITS_IN_A_ROW => waits_in_a_row += 1,
            Step::Wait => return say("stuck"),
            Step::Finding(error) => return say(&error.to_string()),
        }
    }
}

struct Writer<'a> {
    ops: AlteredOps,
    path: &'a Path,
    tag: &'a str,
    drawn: Arc<AtomicU32>,
    store: Option<Store<AlteredOps>>,
}

enum Step {
    Loaded,
    Appended(Entry),
    Stale,
    Wait,
    Finding(Error),
}

impl Writer<'_> {
    fn step(&mut self) -> Step {
        let done = match &self.store {
            Some(store) => self.append(store).map(Step::Appended),
            None => Store::load_with(self.ops.clone(), self.path, self.options()).map(|store| {
                self.store = Some(store);
                Step::Loaded
            }),
        };
        match done {
            Ok(step) => step,
            Err(error) if says_wait(&error) => Step::Wait,
            // Only the first look may find another generation: behind it the lock keeps others out.
            Err(error) if error.code() == Code::FileChanged && error.stage() == Some(Stage::C1) => {
                self.store = None;
                Step::Stale
            }
            Err(error) => Step::Finding(error),
        }
    }

    fn append<O: FileOps>(&self, store: &Store<O>) -> session_tree::Result<Entry> {
        let next = format!("{}-{}", self.tag, self.drawn.load(Ordering::Relaxed));
        store.append(store.entries().last().map(Entry::id), message(&next))
    }

    fn options(&self) -> Options {
        let (tag, drawn) = (self.tag.to_owned(), Arc::clone(&self.drawn));
        Options::new().with_ids(move || format!("{tag}-{}", drawn.fetch_add(1, Ordering::Relaxed)))
    }
}
