//! The `conformance` suite: what a store makes of each case of the corpus.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;

use crate::call::{Call, Reply};
use crate::corpus::{Case, Environment, Outcome, check};
use crate::subject::command::{Remote, indented};
use crate::subject::{Candidate, Killer, Subject};
use crate::suite::any_store::{self, CheckError};
use crate::world::Backend;

pub use crate::corpus::NAME;

/// A case and what it came to.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// Every call with its answer, in words.
    pub calls: Vec<String>,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The store did what it must, or something that it may, or not; or cannot be asked.
    Judged(Outcome),
    /// It did not, and panicked or ended meanwhile.
    Crash(String),
    /// It did not, and gave no answer in time.
    Timeout(String),
    /// It sent what is no answer of the protocol.
    Protocol(String),
    /// The harness could not do its part.
    HarnessError(String),
}

/// Runs a case on a store.
pub fn run(candidate: &dyn Candidate, case: &Case, backend: Backend) -> Finished {
    let log = Log::default();
    let start = |world: &mut _, injector: &_| {
        let Environment { start, .. } = Environment::of(candidate, backend);
        log.watch(start(world, injector))
    };
    let environment = Environment { backend, start: Box::new(start), injects: true };
    log.finished(check(case, &environment).map_err(|error| error.to_string()))
}

/// Runs a case on a store behind the protocol, on a real directory.
pub fn run_behind(remote: &Remote, case: &Case) -> Finished {
    if !remote.hello().is_native() {
        let format = &remote.hello().format;
        let reason = format!("its files are of the format {format:?}, and the case is of this contract's");
        return Finished { end: End::Judged(Outcome::Unsupported(reason)), calls: Vec::new() };
    }
    let log = Log::default();
    let start = |_: &mut _, _: &_| log.watch(remote.start());
    let environment = Environment { backend: Backend::Real, start: Box::new(start), injects: false };
    let finished = log.finished(check(case, &environment).map_err(|error| error.to_string()));
    note_break(remote, finished)
}

/// Runs a case that fits any store on one behind the protocol.
pub fn run_any(remote: &Remote, case: &any_store::Case) -> Finished {
    let log = Log::default();
    let start = |manner| Ok(log.watch(remote.start_as(manner)?));
    let outcome = any_store::check(case, &any_store::Store::of(remote.hello(), start));
    note_break(remote, log.finished_any(outcome))
}

/// Runs a case that fits any store on one in this process, on a real directory.
pub fn run_any_here(candidate: &dyn Candidate, case: &any_store::Case) -> Finished {
    Log::default().finished_any(any_store::check(case, &any_store::Store::of_candidate(candidate)))
}

/// Runs something else on a store behind the protocol, whose answers are kept and whose silence is told as that of a case
/// is.
pub fn run_beside(
    remote: &Remote,
    run: impl FnOnce(&dyn Fn() -> Box<dyn Subject>) -> Result<Outcome, String>,
) -> Finished {
    let log = Log::default();
    let outcome = run(&|| log.watch(remote.start()));
    let finished = log.finished(outcome);
    note_break(remote, finished)
}

fn note_break(remote: &Remote, finished: Finished) -> Finished {
    if let End::Protocol(how) = &finished.end {
        remote.note_break(how);
    }
    finished
}

/// What was asked and answered, by all processes of the store.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Answers>>);

#[derive(Default)]
struct Answers {
    calls: Vec<String>,
    crashed: bool,
    timed_out: bool,
    broke: Option<String>,
    /// The last of what was written to standard error, of the process that failed first.
    said: Option<String>,
}

impl Log {
    fn finished_any(&self, outcome: Result<any_store::Outcome, CheckError>) -> Finished {
        if let Ok(any_store::Outcome::Mistaken(seen)) = outcome {
            // Not the adapter, which gave what the store took for entries.
            let calls = self.locked().calls.clone();
            return Finished { end: End::Judged(Outcome::Violation(seen)), calls };
        }
        let outcome = outcome.map(|outcome| match outcome {
            any_store::Outcome::Pass => Outcome::Pass,
            any_store::Outcome::Unsupported(reason) => Outcome::Unsupported(reason),
            any_store::Outcome::Violation(seen)
            | any_store::Outcome::Mistaken(seen)
            | any_store::Outcome::Silent(_, seen) => Outcome::Violation(seen),
        });
        self.finished(outcome.map_err(|error| error.to_string()))
    }

    fn watch(&self, subject: Box<dyn Subject>) -> Box<dyn Subject> {
        Box::new(Watched { subject: Some(subject), log: self.clone(), may_be_killed: Cell::new(false) })
    }

    fn locked(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came of a case, where a failure may be that of a process that gave no answer.
    fn finished(&self, outcome: Result<Outcome, String>) -> Finished {
        let log = self.locked();
        let seen_with_said = |seen: String| match &log.said {
            Some(said) if !seen.contains("its standard error:") => {
                format!("{seen}\nits standard error:\n{}", indented(said))
            }
            _ => seen,
        };
        let end = match outcome {
            Err(error) => End::HarnessError(error),
            Ok(_) if log.broke.is_some() => {
                End::Protocol(seen_with_said(log.broke.clone().unwrap_or_default()))
            }
            Ok(Outcome::Violation(seen)) if log.crashed => End::Crash(seen_with_said(seen)),
            Ok(Outcome::Violation(seen)) if log.timed_out => End::Timeout(seen_with_said(seen)),
            Ok(outcome) => End::Judged(outcome),
        };
        Finished { end, calls: log.calls.clone() }
    }
}

struct Watched {
    /// There until it is killed.
    subject: Option<Box<dyn Subject>>,
    log: Log,
    /// Whether the harness may have ended it on purpose, so that its silence says nothing.
    may_be_killed: Cell<bool>,
}

impl Subject for Watched {
    fn call(&mut self, call: &Call) -> Reply {
        let Some(subject) = &mut self.subject else { return Reply::Exited("it was killed".to_owned()) };
        let reply = subject.call(call);
        let is_answer = matches!(reply, Reply::Ok(_) | Reply::Refused(_) | Reply::Unsupported(_));
        let said = if is_answer { None } else { subject.said() };
        let mut log = self.log.locked();
        log.calls.push(format!("{:<12} {reply}", call.name()));
        if self.may_be_killed.get() {
            return reply;
        }
        log.crashed |= matches!(reply, Reply::Panicked(_) | Reply::Exited(_));
        log.timed_out |= matches!(reply, Reply::Timeout);
        if let Reply::Protocol(what) = &reply {
            log.broke.get_or_insert_with(|| what.clone());
        }
        log.said = log.said.take().or(said);
        reply
    }

    fn said(&mut self) -> Option<String> {
        self.subject.as_mut().and_then(|subject| subject.said())
    }

    fn killer(&self) -> Option<Killer> {
        self.may_be_killed.set(true);
        self.subject.as_ref().and_then(|subject| subject.killer())
    }

    fn processes(&self) -> Vec<Pid> {
        self.subject.as_ref().map_or_else(Vec::new, |subject| subject.processes())
    }

    fn kill(mut self: Box<Self>) {
        if let Some(subject) = self.subject.take() {
            subject.kill();
        }
    }
}

/// What follows the last answer of a process, nobody waits for.
impl Drop for Watched {
    fn drop(&mut self) {
        let may_be_killed = self.may_be_killed.get();
        let unasked = self.subject.as_mut().filter(|_| !may_be_killed).and_then(|subject| subject.unasked());
        if let Some(what) = unasked {
            self.log.locked().broke.get_or_insert(what);
        }
    }
}
