//! The `crash` suite. A part of it holds workloads; what parts know of states they do not share, so that a state which
//! workloads of several parts leave is judged in each of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::faults::is_fault_of_harness;
use super::{Part, Request, Watch, run_parts};
use crate::promise::Promise;
use crate::report::{CaseReport, Cell, Evidence, Status, Tally, replay_command};
use crate::scenario::HarnessError;
use crate::suite::Suite;
use crate::suite::crash::{self, Broken, CaseResult, Options, Search, Token};

pub(super) fn run(request: &Request, watch: &Watch<'_>) -> Result<Part, HarnessError> {
    let options = Options {
        candidate: request.candidate,
        profile: request.profile,
        depth: request.depth,
        jobs: request.jobs,
        ..Options::default()
    };
    let mut workloads = crash::cases(&options)?;
    workloads.retain(|token| request.asks_for(&token.to_string()));
    let search = Mutex::new(Search::new(options));
    // One workload after the other; the states of each are judged in parallel.
    let mut all = run_parts(request, watch, Suite::Crash, &workloads, 1, |token| {
        let id = token.to_string();
        if let Some(reason) = request.expectations.skip(&id) {
            return Ok(Part { cases: vec![case(request, token).skipped(reason)], ..Part::default() });
        }
        let start = Instant::now();
        let result = search.lock().unwrap_or_else(PoisonError::into_inner).run(token)?;
        let report = judged_case(request, &options, &result)?.took(start.elapsed(), None);
        Ok(Part { cases: vec![report], tally: tally(&result), ..Part::default() })
    })?;
    all.states = Some(search.into_inner().unwrap_or_else(PoisonError::into_inner).states());
    Ok(all)
}

fn tally(result: &CaseResult) -> Tally {
    Tally {
        faults_fired: u64::from(result.fired),
        cuts: result.cuts,
        disks: result.disks,
        cuts_by_stage: cuts_by_stage(result),
        ..Tally::default()
    }
}

fn cuts_by_stage(result: &CaseResult) -> BTreeMap<String, Cell> {
    let cells = result.cuts_by_stage().into_iter();
    cells.map(|(stage, (cases, failed))| (stage.id().to_owned(), Cell { cases, failed })).collect()
}

fn case(request: &Request, token: &Token) -> CaseReport {
    CaseReport::new(Suite::Crash, token.to_string(), &crash::requirements(token), &request.candidate.name())
}

fn judged_case(
    request: &Request,
    options: &Options,
    result: &CaseResult,
) -> Result<CaseReport, HarnessError> {
    let mut report = case(request, &result.token);
    // The shortest way to the first violation stands for the others.
    let Some(first) = result.broken.first() else { return Ok(report) };
    let is_fault_of_harness = result.broken.iter().any(|broken| is_fault_of_harness(&broken.violations));
    report.status = if is_fault_of_harness { Status::HarnessError } else { Status::Violation };
    report.evidence = evidence(result);
    report.stage = stage_of_cut(result, first);
    report.replay = replay_command(&request.candidate.name(), &first.token.to_string());
    let (told, _) = crash::tell(&first.token, options)?;
    report.schedule = told.lines().map(str::to_owned).collect();
    Ok(report)
}

/// The stage of the last system call before the first cut.
fn stage_of_cut(result: &CaseResult, broken: &Broken) -> Option<String> {
    let (cut, _) = broken.token.cuts.first()?;
    result.cut_at.get(*cut).copied().flatten().map(|stage| stage.id().to_owned())
}

/// The first state in which each promise was broken, and in how many further ones it was.
fn evidence(result: &CaseResult) -> Vec<Evidence> {
    let mut places: BTreeMap<Promise, usize> = BTreeMap::new();
    let mut all: Vec<Evidence> = Vec::new();
    for broken in &result.broken {
        for violation in &broken.violations {
            if let Some(at) = places.get(&violation.promise) {
                all[*at].further += 1;
            } else {
                places.insert(violation.promise, all.len());
                let state = Some(broken.token.to_string()).filter(|_| !broken.token.cuts.is_empty());
                all.push(Evidence { state, ..Evidence::from(violation) });
            }
        }
    }
    all
}
