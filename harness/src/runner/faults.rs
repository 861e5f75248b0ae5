//! The `faults` suite. A part of it holds whole families of cases: of equal traces one is kept, and those of two families
//! are never equal.

use super::{Part, Request, Watch, run_parts};
use crate::call::Reply;
use crate::promise::{Promise, Violation};
use crate::replay;
use crate::report::{CaseReport, Evidence, Row, Status, Tally};
use crate::scenario::{HarnessError, Run};
use crate::suite::Suite;
use crate::suite::faults::{self, Case, Family, Finished, Results};

pub(super) fn run(request: &Request, watch: &Watch<'_>) -> Result<Part, HarnessError> {
    let mut families = faults::families(request.candidate)?;
    families.retain(|family| is_asked_for(request, family));
    let is_skipped = |case: &Case| request.expectations.skip(&case.id()).is_some();
    run_parts(request, watch, Suite::Faults, &families, request.jobs, |family: &Family| {
        Ok(part(request, &family.run(request.candidate, &is_skipped)?))
    })
}

fn is_asked_for(request: &Request, family: &Family) -> bool {
    let name = family.name();
    request.shard.is_none_or(|shard| shard.holds(&name)) && request.filter.may_match_below(&name)
}

fn part(request: &Request, results: &Results) -> Part {
    let is_asked_for = |case: &Case| request.filter.matches(&case.id());
    let kept = || results.finished.iter().filter(|finished| is_asked_for(&finished.case));
    let tally = Tally {
        faults_fired: kept().flat_map(|it| &it.run.fired).map(|fired| u64::from(*fired)).sum(),
        merged: results.merged,
        race_windows: kept().filter(|finished| finished.run.race_window).count(),
        ..Tally::default()
    };
    let mut cases: Vec<CaseReport> = kept().map(|finished| finished_case(request, finished)).collect();
    for case in results.skipped.iter().filter(|case| is_asked_for(case)) {
        let case = unfinished_case(request, case);
        let reason = request.expectations.skip(&case.id).unwrap_or_default();
        cases.push(case.skipped(reason));
    }
    Part { cases, tally, ..Part::default() }
}

fn unfinished_case(request: &Request, case: &Case) -> CaseReport {
    CaseReport {
        stage: Some(case.stage.id().to_owned()),
        disturbance: Some(Row::of(&case.plan)),
        ..CaseReport::new(Suite::Faults, case.id(), &case.requirements(), &request.candidate.name())
    }
}

fn finished_case(request: &Request, finished: &Finished) -> CaseReport {
    let Finished { case, run, took } = finished;
    let mut report = unfinished_case(request, case);
    report.status = status(run);
    report.evidence = run.violations.iter().map(Evidence::from).collect();
    let report = report.took(*took, request.timeout);
    let schedule = if report.fails() { replay::schedule(case, run) } else { Vec::new() };
    CaseReport { schedule, ..report }
}

fn status(run: &Run) -> Status {
    let replied = |is: fn(&Reply) -> bool| run.replies.iter().any(|(_, reply)| is(reply));
    if run.violations.is_empty() {
        Status::Pass
    } else if is_fault_of_harness(&run.violations) {
        Status::HarnessError
    } else if replied(|reply| matches!(reply, Reply::Panicked(_) | Reply::Exited(_))) {
        Status::Crash
    } else if replied(|reply| matches!(reply, Reply::Timeout)) {
        Status::Timeout
    } else {
        Status::Violation
    }
}

/// Whether a planned fault did not strike, so that the rest says nothing.
pub(super) fn is_fault_of_harness(violations: &[Violation]) -> bool {
    violations.iter().any(|violation| violation.promise == Promise::FaultFired)
}
