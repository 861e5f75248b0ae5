//! The store among real processes: writers that compete, writers that are killed, and what the kernel sees.
//!
//! Every test is a claim. `SESSION_HARNESS_SEED` repeats the delays of an earlier run; the seed is printed.

use std::env;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use fastrand::Rng;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use session_tree::file_ops::MAX_PAUSE_MS;
use session_tree::{Code, Errno, Message, Options, Store};

mod support {
    pub(crate) mod altered;
    pub(crate) mod contention;
    pub(crate) mod descriptors;
    pub(crate) mod files;
    pub(crate) mod killing;
    pub(crate) mod locks;
    pub(crate) mod system_calls;
    pub(crate) mod worker;
}

use support::altered::{AlteredOps, Call};
use support::contention::{Contest, Outcome, contend};
use support::files::{marker_of, names_in, session_in};
use support::killing::{Ordeal, Pace, Tally};
use support::locks::is_free;
use support::worker::{self, Worker};
use support::{contention, descriptors, killing, locks, system_calls};

fn main() {
    match worker::role().as_deref() {
        None => {}
        Some("write") => return contention::write(),
        Some("append-until-killed") => return killing::append_until_killed(),
        Some("count-descriptors") => return descriptors::count_descriptors(),
        Some("append-and-stay") => return locks::append_and_stay(),
        Some("hold") => return locks::hold(),
        Some("append-once") => return system_calls::append_once(),
        Some(other) => panic!("no role is called {other}"),
    }
    libtest_mimic::run(&Arguments::from_args(), trials()).exit();
}

macro_rules! trials {
    ($($claim:ident),* $(,)?) => {
        vec![$(Trial::ignorable_test(stringify!($claim), || Claim::answer($claim()))),*]
    };
}

fn trials() -> Vec<Trial> {
    trials![
        two_writers_and_a_loader_lose_nothing_and_show_only_generations,
        a_store_without_its_lock_is_caught_by_the_same_checks,
        a_kill_at_any_moment_leaves_a_generation_or_a_marker,
        recovery_leads_on_after_every_kill,
        no_descriptor_is_leaked_by_appends_failures_or_loads,
        no_lock_is_held_once_an_append_has_answered,
        a_load_waits_for_a_commit_in_flight_and_then_refuses,
        a_load_that_waited_shows_the_session_once_the_commit_has_ended,
        an_append_waits_for_the_lock_of_another_process_and_then_refuses,
        one_append_is_three_fsyncs_one_file_of_bytes_and_the_calls_that_the_boundary_shows,
    ]
}

/// What a test function gives: nothing, or why it was skipped.
trait Claim {
    fn answer(self) -> Result<Completion, Failed>;
}

impl Claim for () {
    fn answer(self) -> Result<Completion, Failed> {
        Ok(Completion::Completed)
    }
}

impl Claim for Completion {
    fn answer(self) -> Result<Completion, Failed> {
        Ok(self)
    }
}

/// The seed of this run, printed with the claim that uses it.
fn seed(claim: &str) -> u64 {
    let given = env::var("SESSION_HARNESS_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("a seed is a number"));
    println!("{claim}: SESSION_HARNESS_SEED={seed}");
    seed
}

// Requirement: S2, S8
fn two_writers_and_a_loader_lose_nothing_and_show_only_generations() {
    let seed = seed("two writers and a loader");
    let outcome = contend(Contest { appends: 150, most_thinking: 2_000, locked: true, seed });
    let Outcome { findings, acknowledged, changes_of_hand, stale, loads, waits } = outcome;
    println!(
        "two writers and a loader: {acknowledged:?} acknowledged, {changes_of_hand} changes of hand, \
         {stale} stale generations, {loads} loads, {waits} of them told to wait"
    );
    assert_eq!(findings, [""; 0]);
    assert_eq!(acknowledged, [150, 150]);
    assert!(changes_of_hand > 1, "the writers never competed");
    assert!(stale > 0, "no writer ever lost");
}

// Requirement: S8
fn a_store_without_its_lock_is_caught_by_the_same_checks() {
    let seed = seed("no lock");
    let short = Contest { appends: 40, most_thinking: 500, locked: false, seed };
    let caught =
        in_pairs(100, |run| !contend(Contest { seed: seed ^ u64::from(run), ..short }).findings.is_empty());
    // The same checks on the same runs of a good store, or a check that always fires would pass here.
    let with_lock = Contest { locked: true, ..short };
    let wronged = in_pairs(20, |run| {
        !contend(Contest { seed: seed ^ u64::from(run), ..with_lock }).findings.is_empty()
    });
    println!("no lock: caught in {caught} of 100 runs; with the lock in {wronged} of 20");
    assert!(caught >= 95, "caught in {caught} of 100 runs only");
    assert_eq!(wronged, 0);
}

/// How many of `runs` runs answer yes, two at a time.
fn in_pairs(runs: u32, run: impl Fn(u32) -> bool + Sync) -> u32 {
    let next = AtomicU32::new(0);
    let work = || {
        let mut yes = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                return yes;
            }
            yes += u32::from(run(number));
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(work);
        work() + other.join().unwrap()
    })
}

// Requirement: C23, S1, S2, C22
fn a_kill_at_any_moment_leaves_a_generation_or_a_marker() {
    let tally = kill_writers(100, true);
    println!("kill: {tally:?}");
    // Kills that all fell before or between the commits would show nothing.
    assert!(tally.nothing_created > 0 && tally.acknowledged > 0);
    assert!(tally.refused > 0 && tally.strays > 0);
    assert!(tally.recovered > 0 && tally.kept_path + tally.restored_marker > 0);
}

// Requirement: X2, X3
fn recovery_leads_on_after_every_kill() {
    let sessions = env::var("SESSION_HARNESS_KILLED_SESSIONS").ok().and_then(|text| text.parse().ok());
    let tally = kill_writers(sessions.unwrap_or(40), false);
    println!("recover: {} of {} kills needed it: {tally:?}", tally.recovered, tally.kills);
    assert_eq!(tally.recovered, tally.refused);
    assert!(tally.recovered > 0);
}

/// Writers of so many sessions, each killed three times at a random moment.
fn kill_writers(sessions: u32, by_hand: bool) -> Tally {
    const LIVES: u32 = 3;
    let mut random = Rng::with_seed(seed("kill"));
    let mut pace = Pace::measure();
    let mut tally = Tally::default();
    for _ in 0..sessions {
        let mut ordeal = Ordeal::new(by_hand, &mut random, &mut pace, &mut tally);
        for _ in 0..LIVES {
            ordeal.live_and_die();
        }
        ordeal.end();
    }
    assert_eq!(tally.kills, sessions * LIVES);
    tally
}

// Requirement: C22
fn no_descriptor_is_leaked_by_appends_failures_or_loads() {
    let directory = tempfile::tempdir().unwrap();
    let mut worker = Worker::start("count-descriptors", &[directory.path().as_os_str()]);
    assert_eq!(worker.line(), "200 appends, 50 failing appends, 50 loads");
    assert!(worker.wait().success());
    assert_eq!(names_in(directory.path()), ["session.jsonl"]);
}

// Requirement: S8
fn no_lock_is_held_once_an_append_has_answered() {
    for (how, answer) in [
        ("acknowledged", "acknowledged"),
        ("refused", "SESSION_PARENT_NOT_FOUND"),
        ("in-doubt", "SESSION_ROLLBACK_FAILED"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = session_in(directory.path());
        drop(Store::create(&path).unwrap());
        let mut worker = Worker::start("append-and-stay", &[path.as_os_str(), how.as_ref()]);
        assert_eq!(worker.line(), answer);
        // The worker lives and its store is open: only the call is over.
        assert!(is_free(&path), "the session file is still locked, {how}");
        let loaded = Store::load(&path);
        if how == "in-doubt" {
            assert!(is_free(&marker_of(&path)), "the marker is still locked");
            let error = loaded.unwrap_err();
            assert_eq!((error.code(), error.in_flight()), (Code::RollbackFailed, false));
        } else {
            assert_eq!(loaded.unwrap().entries().len(), usize::from(how == "acknowledged"));
        }
        worker.tell();
        assert!(worker.wait().success());
    }
}

/// A session with one entry whose marker stands beside it, as in the middle of a commit, and a worker that has
/// locked the marker's inode.
fn commit_in_flight(path: &Path) -> Worker {
    Store::create(path).unwrap().append(None, Message::user("m", "text")).unwrap();
    fs::hard_link(path, marker_of(path)).unwrap();
    let mut holder = Worker::start("hold", &[marker_of(path).as_os_str()]);
    assert_eq!(holder.line(), "held");
    holder
}

/// Files of the operating system, and the milliseconds that the store asked to pause for.
fn counting_pauses() -> (AlteredOps, Arc<AtomicU32>) {
    let paused = Arc::new(AtomicU32::new(0));
    let sum = Arc::clone(&paused);
    let ops = AlteredOps::witnessed(move |call| {
        if let Call::Pause(attempt) = call {
            sum.fetch_add(attempt.clamp(1, MAX_PAUSE_MS), Ordering::Relaxed);
        }
        None
    });
    (ops, paused)
}

/// The longest that a call may wait for another process, in milliseconds.
const PATIENCE_MS: u32 = 5_000;

// Requirement: S8, S2
fn a_load_waits_for_a_commit_in_flight_and_then_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let path = session_in(directory.path());
    let _holder = commit_in_flight(&path);
    let (ops, paused) = counting_pauses();
    let error = Store::load_with(ops, &path, Options::new()).unwrap_err();
    assert_eq!((error.code(), error.in_flight()), (Code::RollbackFailed, true), "{error}");
    let paused = paused.load(Ordering::Relaxed);
    println!("a load waited {paused} ms for a commit in flight");
    assert!((1..PATIENCE_MS).contains(&paused));
}

// Requirement: S8, S2
fn a_load_that_waited_shows_the_session_once_the_commit_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = session_in(directory.path());
    let holder = Mutex::new(commit_in_flight(&path));
    let ops = AlteredOps::witnessed(move |call| {
        if call == Call::Pause(3) {
            holder.lock().unwrap().tell();
        }
        None
    });
    let store = Store::load_with(ops, &path, Options::new()).unwrap();
    assert_eq!(store.entries().len(), 1);
    assert!(!marker_of(&path).exists());
}

// Requirement: S8
fn an_append_waits_for_the_lock_of_another_process_and_then_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let path = session_in(directory.path());
    drop(Store::create(&path).unwrap());
    let before = fs::read(&path).unwrap();
    let (ops, paused) = counting_pauses();
    let store = Store::load_with(ops, &path, Options::new()).unwrap();
    let mut holder = Worker::start("hold", &[path.as_os_str()]);
    assert_eq!(holder.line(), "held");
    let error = store.append(None, Message::user("m", "text")).unwrap_err();
    assert_eq!((error.code(), error.errno()), (Code::Io, Some(Errno::EAGAIN)), "{error}");
    assert!(error.in_flight() && !error.poisoned());
    assert!((1..PATIENCE_MS).contains(&paused.load(Ordering::Relaxed)));
    assert_eq!(fs::read(&path).unwrap(), before);
    drop(holder);
    store.append(None, Message::user("m", "text")).unwrap();
}

// Requirement: B1, C4, C10, C12
fn one_append_is_three_fsyncs_one_file_of_bytes_and_the_calls_that_the_boundary_shows() -> Completion {
    if let Some(reason) = system_calls::why_not() {
        println!("SKIPPED: the system calls of an append were not looked at: {reason}");
        return Completion::ignored_with(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    // The tracer shows paths as the kernel knows them.
    let path = session_in(&directory.path().canonicalize().unwrap());
    let store = Store::create(&path).unwrap();
    for _ in 0..20 {
        store.append(None, Message::user("m", "text")).unwrap();
    }
    let trace = system_calls::trace_one_append(&path);
    let seen: Vec<&str> = trace.seen.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(seen, trace.promised);

    let synced: Vec<bool> = trace
        .seen
        .iter()
        .filter(|call| call.name.contains("sync"))
        .map(|call| call.arguments.contains(".pify-session-"))
        .collect();
    assert_eq!(synced, [true, false, false], "the temporary, the directory, the directory");
    let written: i64 =
        trace.seen.iter().filter(|call| call.name.contains("write")).map(|call| call.answer).sum();
    assert_eq!(u64::try_from(written).unwrap(), fs::metadata(&path).unwrap().len());
    assert_eq!(Store::load(&path).unwrap().entries().len(), 21);
    Completion::Completed
}
