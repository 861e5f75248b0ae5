//! A process with all that it starts, which end together.
//!
//! The process leads a group of its own, so that Ctrl-C reaches the harness alone. One that leaves the group is known
//! by a variable in its environment, as far as the system shows that (Linux does).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::subject::Killer;

/// The variable by which all processes of a subject are known.
const VARIABLE: &str = "SESSION_HARNESS_SUBJECT";

/// How often processes that start others meanwhile are looked for.
const MOST_ROUNDS: u32 = 50;

/// The leaders of the trees that live now, and the value that the variable has there.
static LIVING: Mutex<BTreeMap<u32, OsString>> = Mutex::new(BTreeMap::new());

/// The parent's ends of the three pipes.
pub(super) type Ends = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

/// A process with all that it starts. Ends when it is dropped.
pub(super) struct Tree {
    leader: Child,
    token: OsString,
    /// How the leader ended, once it was waited for: from then on its number may be another process's.
    ended: Option<String>,
}

impl Tree {
    pub(super) fn start(command: &mut Command) -> io::Result<(Tree, Ends)> {
        let token = OsString::from(format!("{}-{:016x}", std::process::id(), fastrand::Rng::new().u64(..)));
        command.process_group(0).env(VARIABLE, &token);
        let mut living = living();
        let mut leader = command.spawn()?;
        living.insert(leader.id(), token.clone());
        let ends = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        Ok((Tree { leader, token, ended: None }, ends))
    }

    /// Whether the leader has ended. It is not waited for, so that its number stays its own.
    pub(super) fn has_ended(&self) -> bool {
        let Some(leader) = Pid::from_raw(self.leader.id().cast_signed()) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.ended.is_some() || !matches!(waitid(WaitId::Pid(leader), options), Ok(None))
    }

    /// All of it, the leader first.
    pub(super) fn processes(&self) -> Vec<Pid> {
        if self.ended.is_some() {
            return Vec::new();
        }
        let leader = Pid::from_raw(self.leader.id().cast_signed());
        let others = with_variable(&assignment(&self.token)).into_iter();
        leader.into_iter().chain(others.filter(|process| Some(*process) != leader)).collect()
    }

    /// What ends all of it from another thread, and does nothing once it has ended.
    pub(super) fn killer(&self) -> Killer {
        let (leader, token) = (self.leader.id(), self.token.clone());
        Box::new(move || {
            // As long as it is among the living it was not waited for, so that its number is its own.
            let living = living();
            if living.get(&leader) == Some(&token) {
                kill(leader, &token);
            }
        })
    }

    /// Ends all of it. Says how the leader ended, by itself or now.
    pub(super) fn end(&mut self) -> String {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        kill(self.leader.id(), &self.token);
        living().remove(&self.leader.id());
        let status = self.leader.wait();
        let ended =
            status.map_or_else(|error| format!("unknown status: {error}"), |status| status.to_string());
        self.ended = Some(ended.clone());
        ended
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end();
    }
}

/// From now on the `nth` SIGINT or SIGTERM to this process, from 1, ends every subject before it ends this process. The ones
/// before it have no effect of their own.
///
/// # Errors
/// Where the operating system takes no handler.
pub fn end_all_at_signal(nth: usize) -> io::Result<()> {
    static INSTALLED: Once = Once::new();
    let mut done = Ok(());
    INSTALLED.call_once(|| done = install(nth));
    done
}

fn install(nth: usize) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let watch = move || {
        if let Some(signal) = signals.forever().nth(nth.saturating_sub(1)) {
            // Held until this process is gone, so that nothing more is started.
            let living = living();
            living.iter().for_each(|(leader, token)| kill(*leader, token));
            // Where that fails this process goes on, without subjects.
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop)
}

/// Nothing that holds the lock can panic half way.
fn living() -> MutexGuard<'static, BTreeMap<u32, OsString>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill(leader: u32, token: &OsString) {
    if let Some(group) = Pid::from_raw(leader.cast_signed()) {
        // An error says that there is none left.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let variable = assignment(token);
    for _ in 0..MOST_ROUNDS {
        let left = with_variable(&variable);
        if left.is_empty() {
            break;
        }
        for process in left {
            let _ = kill_process(process, Signal::KILL);
        }
        thread::yield_now();
    }
}

fn assignment(token: &OsString) -> Vec<u8> {
    [VARIABLE.as_bytes(), b"=", token.as_bytes()].concat()
}

/// Processes whose environment has `variable`; a dead one has none any more.
fn with_variable(variable: &[u8]) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_variable = |number: &i32| {
        let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable)
    };
    numbers.filter(has_variable).filter_map(Pid::from_raw).collect()
}
