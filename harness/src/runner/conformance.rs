//! The `conformance` suite.

use std::time::Instant;

use super::{Part, Request, Watch, run_parts};
use crate::corpus::{self, Case, Outcome};
use crate::report::{CaseReport, Evidence, Level, Status};
use crate::scenario::HarnessError;
use crate::suite::Suite;
use crate::suite::any_store::{self, CASES};
use crate::suite::conformance::{self, End, Finished};
use crate::world::Backend;

/// A case of the suite.
enum Listed {
    /// One of the corpus.
    Corpus(Box<Case>),
    /// One that fits any store: for those that are known by their answers alone, and for others where a filter names
    /// these cases.
    AnyStore(&'static any_store::Case),
}

impl Listed {
    fn id(&self) -> String {
        match self {
            Listed::Corpus(case) => case.id.clone(),
            Listed::AnyStore(case) => case.id(),
        }
    }
}

pub(super) fn run(request: &Request, watch: &Watch<'_>) -> Result<Part, HarnessError> {
    let of_corpus = corpus::embedded()?.into_iter().map(|case| Listed::Corpus(Box::new(case)));
    let is_named = request.filter.0.iter().any(|glob| glob.contains(any_store::TOPIC));
    let of_any_store = CASES.iter().filter(|_| request.remote.is_some() || is_named).map(Listed::AnyStore);
    let mut cases: Vec<Listed> = of_corpus.chain(of_any_store).collect();
    cases.retain(|case| request.asks_for(&case.id()));
    run_parts(request, watch, Suite::Conformance, &cases, request.jobs, |case| {
        let report = match request.expectations.skip(&case.id()) {
            Some(reason) => unfinished_case(request, case).skipped(reason),
            None => finished_case(request, case),
        };
        Ok(Part { cases: vec![report], ..Part::default() })
    })
}

fn unfinished_case(request: &Request, case: &Listed) -> CaseReport {
    let subject = match &request.remote {
        Some(remote) => remote.name(),
        None => request.candidate.name(),
    };
    match case {
        Listed::Corpus(case) => CaseReport {
            level: if case.is_must() { Level::Must } else { Level::Choice },
            title: Some(case.title.clone()),
            ..CaseReport::new(Suite::Conformance, case.id.clone(), &case.about(), &subject)
        },
        Listed::AnyStore(case) => CaseReport {
            title: Some(case.title.to_owned()),
            ..CaseReport::new(Suite::Conformance, case.id(), case.requirements, &subject)
        },
    }
}

fn finished_case(request: &Request, case: &Listed) -> CaseReport {
    let start = Instant::now();
    let Finished { end, calls } = match (&request.remote, case) {
        (Some(remote), Listed::Corpus(case)) => conformance::run_behind(remote, case),
        (Some(remote), Listed::AnyStore(case)) => conformance::run_any(remote, case),
        (None, Listed::Corpus(case)) => conformance::run(request.candidate, case, Backend::Simulated),
        (None, Listed::AnyStore(case)) => conformance::run_any_here(request.candidate, case),
    };
    let took = start.elapsed();
    let mut report = unfinished_case(request, case);
    take_end(&mut report, end);
    let report = report.took(took, request.timeout);
    let schedule = if report.fails() { calls } else { Vec::new() };
    CaseReport { schedule, ..report }
}

/// What a case ended with, in its report.
pub(super) fn take_end(report: &mut CaseReport, end: End) {
    let (status, seen) = match end {
        End::Judged(Outcome::Pass) => (Status::Pass, None),
        End::Judged(Outcome::Recorded(answer)) => {
            report.answer = Some(answer);
            (Status::Recorded, None)
        }
        End::Judged(Outcome::Unsupported(reason)) => {
            report.reason = Some(reason);
            (Status::Unsupported, None)
        }
        End::Judged(Outcome::Violation(seen)) => (Status::Violation, Some(seen)),
        End::Crash(seen) => (Status::Crash, Some(seen)),
        End::Protocol(how) => (Status::Violation, Some(format!("broke the protocol: {how}"))),
        End::Timeout(seen) => (Status::Timeout, Some(seen)),
        End::HarnessError(what) => (Status::HarnessError, Some(what)),
    };
    report.status = status;
    report.evidence.extend(seen.map(|seen| Evidence { promise: None, seen, state: None, further: 0 }));
}
