//! The `conformance` suite: what a store makes of each case of the corpus.

use std::sync::{Arc, Mutex, PoisonError};

use crate::call::{Call, Reply};
use crate::corpus::{Case, Environment, Outcome, check};
use crate::replay::told;
use crate::subject::{Candidate, Subject};
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
    /// The harness could not do its part.
    HarnessError(String),
}

/// Runs a case on a store.
pub fn run(candidate: &dyn Candidate, case: &Case, backend: Backend) -> Finished {
    let log = Log::default();
    let start = |world: &mut _, injector: &_| {
        let Environment { start, .. } = Environment::of(candidate, backend);
        let watched = Watched { subject: start(world, injector), log: log.clone() };
        Box::new(watched) as Box<dyn Subject>
    };
    let environment = Environment { backend, start: Box::new(start), injects: true };
    let outcome = check(case, &environment);
    let log = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    let end = match outcome {
        Err(error) => End::HarnessError(error.to_string()),
        Ok(Outcome::Violation(seen)) if log.crashed => End::Crash(seen),
        Ok(Outcome::Violation(seen)) if log.timed_out => End::Timeout(seen),
        Ok(outcome) => End::Judged(outcome),
    };
    Finished { end, calls: log.calls.clone() }
}

/// What was asked and answered, by all processes of the store.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Answers>>);

#[derive(Default)]
struct Answers {
    calls: Vec<String>,
    crashed: bool,
    timed_out: bool,
}

struct Watched {
    subject: Box<dyn Subject>,
    log: Log,
}

impl Subject for Watched {
    fn call(&mut self, call: &Call) -> Reply {
        let reply = self.subject.call(call);
        let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.calls.push(format!("{:<12} {}", call.name(), told(&reply)));
        log.crashed |= matches!(reply, Reply::Panicked(_) | Reply::Exited(_));
        log.timed_out |= matches!(reply, Reply::Timeout);
        reply
    }
}
