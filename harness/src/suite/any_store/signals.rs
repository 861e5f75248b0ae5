//! Processes that are killed or stopped from outside, with what they acknowledged kept by the harness.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::ground::{Ground, Process, STORE, raw, told};
use super::life::shown_if_not_refused;
use super::{CheckError, Judged, Stop, unsupported, violated};
use crate::call::{Call, Reply};

/// Decides every random delay here.
const SEED: u64 = 1;

/// Times that a process is killed at a random moment.
const KILLS: usize = 8;

/// A kill comes this long after the first append at most.
const LONGEST_BURST: Duration = Duration::from_millis(60);

/// Changes of the directory at which a process is killed: each of the first so many, in turn.
const CHANGES: usize = 8;

/// Appends in which a change is waited for.
const MOST_APPENDS: usize = 64;

/// Times that a change is waited for, since whoever watches may come too late.
const MOST_WATCHES: usize = 8;

/// Appends that are stopped half way.
const STOPS: usize = 4;

/// Tries to stop an append before it is answered.
const MOST_TRIES: usize = 60;

/// How long a process stands still.
const STANDSTILL: Duration = Duration::from_millis(30);

pub(super) fn killed_in_a_burst(ground: &mut Ground<'_>) -> Judged {
    let mut rng = Rng::with_seed(SEED);
    let mut process = ground.session(1)?;
    for _ in 0..KILLS {
        let Some(kill) = process.0.killer() else { return no_process() };
        let delay = LONGEST_BURST.mul_f64(rng.f64());
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(delay);
                kill();
            });
            append_until_killed(ground, &mut process, usize::MAX)
        })?;
        let whence = "after kill -9 at a random moment of many appends";
        let Some(next) = loaded_after_kill(ground, whence)? else { return Ok(()) };
        process = next;
    }
    ground.cold_load("after kill -9 at random moments")
}

pub(super) fn killed_at_a_change(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(1)?;
    for nth in 1..=CHANGES {
        let mut watches = 0;
        while !is_killed_at(nth, ground, &mut process)? {
            watches += 1;
            if watches == MOST_WATCHES {
                let what = format!("no kill came at change {nth} of the session's directory");
                return Err(Stop::Error(CheckError::NotStruck(what)));
            }
        }
        let whence = format!("after kill -9 at change {nth} of the session's directory");
        let Some(next) = loaded_after_kill(ground, &whence)? else { return Ok(()) };
        process = next;
    }
    ground.cold_load("after kill -9 at chosen moments")
}

/// Appends until the process is killed at a change of the directory, or so many times in vain.
fn is_killed_at(nth: usize, ground: &mut Ground<'_>, process: &mut Process) -> Result<bool, Stop> {
    let Some(kill) = process.0.killer() else {
        no_process()?;
        return Ok(false);
    };
    let root = ground.root();
    let before = look(&root);
    let (over, killed, watches) = (AtomicBool::new(false), AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            watches.wait();
            if wait_for_change(&root, before.clone(), nth, &over) {
                killed.store(true, Ordering::Relaxed);
                kill();
            }
        });
        watches.wait();
        let appended = append_until_killed(ground, process, MOST_APPENDS);
        over.store(true, Ordering::Relaxed);
        appended
    })?;
    if !killed.load(Ordering::Relaxed) && look(&root) == before {
        return unsupported("nothing changes in the session's directory when it appends");
    }
    Ok(killed.into_inner())
}

pub(super) fn stopped_within_an_append(ground: &mut Ground<'_>) -> Judged {
    let mut rng = Rng::with_seed(SEED);
    let mut process = ground.session(1)?;
    if process.0.processes().is_empty() {
        return no_process();
    }
    let mut other = ground.start()?;
    other.ok(&ground.load())?;
    let began = Instant::now();
    ground.must_append(&mut process)?;
    let usual = began.elapsed();
    let mut stopped = 0;
    for _ in 0..MOST_TRIES {
        if stopped == STOPS {
            break;
        }
        // The first one that stands still meets another process, which may have to wait for it.
        let meets = (stopped == 0).then_some(&mut other);
        if stopped_append(ground, &mut process, usual.mul_f64(rng.f64()), meets)? {
            stopped += 1;
        }
    }
    if stopped == 0 {
        let what = format!("none of {MOST_TRIES} stops came before the answer, which takes {usual:?}");
        return Err(Stop::Error(CheckError::NotStruck(what)));
    }
    drop(process);
    ground.cold_load("after a process that stood still within an append went on")
}

fn no_process() -> Judged {
    unsupported("it is no process of its own that can be stopped or killed")
}

/// Appends in a chain, at most `most` times, until there is no answer. The message without one is in doubt.
fn append_until_killed(ground: &mut Ground<'_>, process: &mut Process, most: usize) -> Judged {
    for _ in 0..most {
        let (append, message, parent) = next_append(ground);
        match process.0.call(&append) {
            Reply::Ok(answer) => ground.acknowledge(answer, parent.as_deref(), &message)?,
            Reply::Refused(refusal) => return violated(format!("refused with {}", told(&refusal))),
            _ => {
                ground.in_doubt.push(message);
                break;
            }
        }
    }
    Ok(())
}

fn next_append(ground: &mut Ground<'_>) -> (Call, serde_json::Value, Option<String>) {
    let parent = ground.acknowledged.last().map(|entry| entry.id.clone());
    let message = ground.message();
    let call = Call::Append { store: STORE.to_owned(), parent_id: parent.clone(), message: raw(&message) };
    (call, message, parent)
}

/// A new process that shows what was acknowledged; none where it refuses and has no recovery.
fn loaded_after_kill(ground: &mut Ground<'_>, whence: &str) -> Result<Option<Process>, Stop> {
    let mut process = ground.start()?;
    let Some(shown) = shown_if_not_refused(ground, &mut process, whence)? else { return Ok(None) };
    ground.expect_all(&shown, whence)?;
    ground.settle(&shown);
    Ok(Some(process))
}

/// A name with what can be seen of its file without reading it.
type Seen = BTreeSet<(OsString, u64, u64, i64, i64)>;

fn look(root: &Path) -> Seen {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    // What went meanwhile is a change, too.
    let seen = entries.filter_map(|entry| {
        let is = entry.metadata().ok()?;
        Some((entry.file_name(), is.ino(), is.len(), is.mtime(), is.mtime_nsec()))
    });
    seen.collect()
}

/// Whether the directory changed `nth` times before it was over.
fn wait_for_change(root: &Path, mut before: Seen, nth: usize, over: &AtomicBool) -> bool {
    let mut changes = 0;
    while !over.load(Ordering::Relaxed) {
        let now = look(root);
        if now != before {
            changes += 1;
            before = now;
        }
        if changes == nth {
            return true;
        }
    }
    false
}

/// Whether the process stood still before it answered an append; meanwhile `meets` appends.
fn stopped_append(
    ground: &mut Ground<'_>,
    process: &mut Process,
    delay: Duration,
    meets: Option<&mut Process>,
) -> Result<bool, Stop> {
    let processes = process.0.processes();
    let (append, message, parent) = next_append(ground);
    let beside = ground.message();
    let root = ground.acknowledged.first().map(|entry| entry.id.clone());
    let call = Call::Append { store: STORE.to_owned(), parent_id: root.clone(), message: raw(&beside) };
    let goes_on = AtomicBool::new(false);
    let (reply, before_answer, met) = thread::scope(|scope| {
        let stop = scope.spawn(|| {
            thread::sleep(delay);
            signal(&processes, Signal::STOP);
            thread::sleep(STANDSTILL);
            let met = meets.map(|other| other.0.call(&call));
            goes_on.store(true, Ordering::SeqCst);
            signal(&processes, Signal::CONT);
            met
        });
        let reply = process.0.call(&append);
        let before_answer = goes_on.load(Ordering::SeqCst);
        (reply, before_answer, stop.join().unwrap_or_default())
    });
    match met {
        Some(Reply::Ok(answer)) => ground.acknowledge(answer, root.as_deref(), &beside)?,
        None | Some(Reply::Refused(_)) => {}
        Some(_) => ground.in_doubt.push(beside),
    }
    match reply {
        Reply::Ok(answer) => ground.acknowledge(answer, parent.as_deref(), &message)?,
        // It has noticed the other one.
        Reply::Refused(_) => {
            let shown = ground.loaded(process, "loaded after a refusal")?;
            ground.expect_all(&shown, "loaded after a refusal")?;
        }
        reply => {
            let said = process.0.said();
            return Err(super::silent(reply, said.as_deref()));
        }
    }
    Ok(before_answer)
}

/// One that has ended meanwhile needs no signal.
fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ = kill_process(*process, signal);
    }
}
