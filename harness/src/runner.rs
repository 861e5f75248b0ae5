//! Runs suites on a store, and reports case by case.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::crash::Profile;
use crate::expectations::Expectations;
use crate::glob::Filter;
use crate::parallel;
use crate::report::{self, CaseReport, Partial, Report, SCHEMA, Selection, Summary, Tally, Unseen};
use crate::scenario::HarnessError;
use crate::shard::Shard;
use crate::subject::Candidate;
use crate::subject::command::Remote;
use crate::suite::Suite;
use crate::suite::crash::States;

mod concurrency;
mod conformance;
mod crash;
mod faults;

/// What is to be run, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// The store under test.
    pub candidate: &'static dyn Candidate,
    /// The store under test, where it is behind the protocol and not in this process.
    pub remote: Option<Arc<Remote>>,
    /// The suites.
    pub suites: Vec<Suite>,
    /// Which cases.
    pub filter: Filter,
    /// Which part of them; none for all.
    pub shard: Option<Shard>,
    /// What a power cut may lose.
    pub profile: Profile,
    /// Operations up to which the workloads of the `crash` suite are complete.
    pub depth: usize,
    /// Threads.
    pub jobs: usize,
    /// What decides everything random.
    pub seed: u64,
    /// How long one case may take; none for as long as it likes. A store in this process cannot be stopped, so that a
    /// case that takes longer is told when it is over. A workload of the `crash` suite is thousands of histories and has
    /// no limit.
    pub timeout: Option<Duration>,
    /// Whether a failure ends the run.
    pub fail_fast: bool,
    /// How cases are expected to end.
    pub expectations: Expectations,
}

/// Who looks on.
pub trait Watcher: Sync {
    /// A suite begins, of which so many parts are to be run.
    fn begins(&self, suite: Suite, parts: usize);

    /// One part more is done.
    fn advances(&self);

    /// The suite is over.
    fn ends(&self);
}

/// Runs what is asked for, until it is done or `interrupted` is set. Failures are in the report.
///
/// # Errors
/// Where the harness could not do its work.
pub fn run(
    request: &Request,
    watcher: &dyn Watcher,
    interrupted: &AtomicBool,
) -> Result<Report, HarnessError> {
    let start = Instant::now();
    let watch = Watch { watcher, interrupted };
    let mut all = Part::default();
    for suite in &request.suites {
        let part = match suite {
            Suite::Conformance => conformance::run(request, &watch)?,
            Suite::Faults => faults::run(request, &watch)?,
            Suite::Crash => crash::run(request, &watch)?,
            Suite::Concurrency => concurrency::run(request, &watch)?,
        };
        all.extend(part);
        if all.partial.is_some() {
            break;
        }
    }
    Ok(report(request, all, start.elapsed()))
}

fn report(request: &Request, all: Part, took: Duration) -> Report {
    let Part { mut cases, tally, states, partial } = all;
    report::sort(&mut cases);
    let is_all = partial.is_none() && request.filter.0.is_empty();
    let unmatched = || request.expectations.unmatched(&cases, &request.suites);
    let unmatched_expectations = if is_all { unmatched() } else { Vec::new() };
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    Report {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        subject: match &request.remote {
            Some(remote) => remote.title(),
            None => format!("{} (in process)", request.candidate.name()),
        },
        seed: request.seed,
        profile: request.profile.to_string(),
        selection: request.selection(),
        partial,
        not_seen_by: request.not_seen_by(),
        summary: Summary::new(&cases, tally, states.as_ref(), took),
        unmatched_expectations,
        cases,
        // The whole run needs its numbers only; of a part the states themselves say which ones other parts have too.
        states: states.filter(|_| request.shard.is_some()),
    }
}

impl Request {
    /// Whether a case with this id is asked for, where its id alone decides which part it belongs to.
    fn asks_for(&self, id: &str) -> bool {
        self.filter.matches(id) && self.shard.is_none_or(|shard| shard.holds(id))
    }

    /// The suites to which only answers are open do not see what is below them.
    fn not_seen_by(&self) -> Vec<Unseen> {
        let below = |remote: &Arc<Remote>| {
            let reason = remote.out_of_sight();
            let suites = Suite::ALL.into_iter().filter(|suite| suite.looks_below());
            suites.map(|suite| Unseen { suite, reason: reason.to_owned() }).collect()
        };
        self.remote.as_ref().map_or_else(Vec::new, below)
    }

    fn selection(&self) -> Selection {
        Selection {
            suites: self.suites.clone(),
            filter: self.filter.0.clone(),
            depth: self.suites.contains(&Suite::Crash).then_some(self.depth),
            shard: self.shard.map(|shard| shard.to_string()),
            expectations: self.expectations.digest(),
        }
    }
}

struct Watch<'a> {
    watcher: &'a dyn Watcher,
    interrupted: &'a AtomicBool,
}

/// What some cases came to.
#[derive(Debug, Default)]
struct Part {
    cases: Vec<CaseReport>,
    tally: Tally,
    states: Option<States>,
    partial: Option<Partial>,
}

impl Part {
    fn extend(&mut self, other: Part) {
        self.cases.extend(other.cases);
        self.tally.add(&other.tally);
        self.states = other.states.or_else(|| self.states.take());
        self.partial = self.partial.or(other.partial);
    }
}

/// Does `work` on each of the parts of a suite, until all are done or the run is over.
fn run_parts<T: Sync>(
    request: &Request,
    watch: &Watch<'_>,
    suite: Suite,
    parts: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Result<Part, HarnessError> + Sync,
) -> Result<Part, HarnessError> {
    watch.watcher.begins(suite, parts.len());
    let work = |part: &T| {
        if watch.interrupted.load(Ordering::Relaxed) {
            return Ok(Part { partial: Some(Partial::Interrupted), ..Part::default() });
        }
        let mut done = work(part)?;
        for case in &mut done.cases {
            request.expectations.judge(case);
        }
        if request.fail_fast && done.cases.iter().any(CaseReport::fails) {
            done.partial = Some(Partial::FailFast);
        }
        watch.watcher.advances();
        Ok(done)
    };
    let is_last = |done: &Result<Part, HarnessError>| done.as_ref().map_or(true, |it| it.partial.is_some());
    let done = parallel::map(parts, jobs, work, is_last);
    watch.watcher.ends();
    let mut all = Part::default();
    for part in done {
        all.extend(part?);
    }
    Ok(all)
}
