//! The `concurrency` suite.

use std::time::Instant;

use super::conformance::take_end;
use super::faults::is_fault_of_harness;
use super::{Part, Request, Watch, run_parts};
use crate::promise::Violation;
use crate::report::{CaseReport, Evidence, Status, Tally, replay_command};
use crate::scenario::HarnessError;
use crate::subject::command::Remote;
use crate::suite::Suite;
use crate::suite::concurrency::{self, Case, Counts, Outcome, Token};
use crate::suite::conformance::{self, Finished};

pub(super) fn run(request: &Request, watch: &Watch<'_>) -> Result<Part, HarnessError> {
    let mut cases = if request.remote.is_some() { concurrency::cases_behind() } else { concurrency::cases() };
    cases.retain(|case| request.asks_for(&case.id()));
    run_parts(request, watch, Suite::Concurrency, &cases, request.jobs, |case| {
        let unfinished = unfinished_case(request, case);
        if let Some(reason) = request.expectations.skip(&case.id()) {
            return Ok(Part { cases: vec![unfinished.skipped(reason)], ..Part::default() });
        }
        let start = Instant::now();
        let (report, counts) = match &request.remote {
            Some(remote) => finished_behind(remote, case, request, unfinished),
            None => finished_here(case, request, unfinished)?,
        };
        let tally = Tally { concurrency: Some(counts), ..Tally::default() };
        Ok(Part { cases: vec![report.took(start.elapsed(), request.timeout)], tally, ..Part::default() })
    })
}

fn subject(request: &Request) -> String {
    match &request.remote {
        Some(remote) => remote.name(),
        None => request.candidate.name(),
    }
}

fn unfinished_case(request: &Request, case: &Case) -> CaseReport {
    let title = Some(case.title().to_owned());
    CaseReport {
        title,
        ..CaseReport::new(Suite::Concurrency, case.id(), case.requirements(), &subject(request))
    }
}

fn finished_here(
    case: &Case,
    request: &Request,
    mut report: CaseReport,
) -> Result<(CaseReport, Counts), HarnessError> {
    let outcome = case.run(request.candidate, request.seed, &|_| true)?;
    report.evidence = evidence(&outcome);
    let Some(first) = outcome.found.first() else {
        if let Some(reason) = outcome.unsupported {
            report.status = Status::Unsupported;
            report.reason = Some(reason);
        }
        return Ok((report, outcome.counts));
    };
    let violations: Vec<Violation> = outcome.found.iter().map(|found| found.violation.clone()).collect();
    report.status = if is_fault_of_harness(&violations) { Status::HarnessError } else { Status::Violation };
    report.replay = replay_command(&subject(request), &first.token);
    // Without a schedule of its own where the store did not get as far as to begin one.
    if let Some(token) = Token::find(&first.token) {
        report.schedule = token.tell(request.candidate).map(|told| told.schedule).unwrap_or_default();
    }
    Ok((report, outcome.counts))
}

fn finished_behind(
    remote: &Remote,
    case: &Case,
    request: &Request,
    mut report: CaseReport,
) -> (CaseReport, Counts) {
    let mut outcome = Outcome::default();
    let Finished { end, calls } = conformance::run_beside(remote, |start| {
        outcome = case.run_behind(start, remote.hello(), request.seed).map_err(|error| error.to_string())?;
        Ok(outcome.judged())
    });
    take_end(&mut report, end);
    if let Some(first) = outcome.found.first().filter(|_| report.status == Status::Violation) {
        report.evidence = evidence(&outcome);
        report.replay = replay_command(&subject(request), &first.token);
    }
    if report.fails() {
        report.schedule = calls;
    }
    (report, outcome.counts)
}

fn evidence(outcome: &Outcome) -> Vec<Evidence> {
    let told = outcome
        .found
        .iter()
        .map(|found| Evidence { further: found.further, ..Evidence::from(&found.violation) });
    told.collect()
}
