//! The `conformance` suite.

use std::time::Instant;

use super::{Part, Request, Watch, run_parts};
use crate::corpus::{self, Case, Outcome};
use crate::report::{CaseReport, Evidence, Level, Status};
use crate::scenario::HarnessError;
use crate::suite::Suite;
use crate::suite::conformance::{self, End, Finished};
use crate::world::Backend;

pub(super) fn run(request: &Request, watch: &Watch<'_>) -> Result<Part, HarnessError> {
    let mut cases = corpus::embedded()?;
    cases.retain(|case| request.asks_for(&case.id));
    run_parts(request, watch, Suite::Conformance, &cases, request.jobs, |case| {
        let report = match request.expectations.skip(&case.id) {
            Some(reason) => unfinished_case(request, case).skipped(reason),
            None => finished_case(request, case),
        };
        Ok(Part { cases: vec![report], ..Part::default() })
    })
}

fn unfinished_case(request: &Request, case: &Case) -> CaseReport {
    let subject = request.candidate.name();
    CaseReport {
        level: if case.is_must() { Level::Must } else { Level::Choice },
        title: Some(case.title.clone()),
        ..CaseReport::new(Suite::Conformance, case.id.clone(), &case.about(), &subject)
    }
}

fn finished_case(request: &Request, case: &Case) -> CaseReport {
    let start = Instant::now();
    let Finished { end, calls } = conformance::run(request.candidate, case, Backend::Simulated);
    let took = start.elapsed();
    let mut report = unfinished_case(request, case);
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
        End::Timeout(seen) => (Status::Timeout, Some(seen)),
        End::HarnessError(what) => (Status::HarnessError, Some(what)),
    };
    report.status = status;
    report.evidence.extend(seen.map(|seen| Evidence { promise: None, seen, state: None, further: 0 }));
    let report = report.took(took, request.timeout);
    let schedule = if report.fails() { calls } else { Vec::new() };
    CaseReport { schedule, ..report }
}
