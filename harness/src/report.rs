//! What a run showed, as data and for people.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::call::Reply;
use crate::crash::Profile;
use crate::promise::{Promise, Violation};
use crate::subject::{Candidate, REFERENCE};
use crate::suite::crash::{self, CaseResult};
use crate::suite::faults::{self, Finished};

pub mod terminal;

/// The version of the report's form.
pub const SCHEMA: u32 = 1;

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// The tool.
    pub tool: &'static str,
    /// The tool's version.
    pub version: &'static str,
    /// What was tested.
    pub subject: String,
    /// The seed that decides everything random.
    pub seed: u64,
    /// The persistence profile of the disk.
    pub profile: &'static str,
    /// The numbers.
    pub summary: Summary,
    /// Case by case.
    pub cases: Vec<CaseReport>,
}

/// The numbers of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Cases in which every promise held.
    pub pass: usize,
    /// Cases in which one did not.
    pub violation: usize,
    /// Cases that record a choice.
    pub recorded: usize,
    /// Cases that the subject cannot be asked.
    pub unsupported: usize,
    /// Cases that were not run.
    pub skipped: usize,
    /// Violations that were expected.
    pub expected_failure: usize,
    /// Cases without an answer in time.
    pub timeout: usize,
    /// Cases that ended the subject.
    pub crash: usize,
    /// Cases that the harness could not do, such as a fault that did not strike.
    pub harness_error: usize,
    /// Faults that struck, as the backend's own traces say.
    pub faults_fired: u64,
    /// Runs whose trace was equal to another's and that count once.
    pub merged: usize,
    /// System calls and answers after which the power was cut.
    pub cuts: usize,
    /// Disks that these cuts could leave, equal ones counted each time.
    pub disks: usize,
    /// Distinct states that were judged.
    pub states_checked: usize,
    /// Disks whose state had been judged already.
    pub states_remembered: usize,
    /// States in which a load refused and recovery led on.
    pub refusals_recovered: usize,
    /// States in which a load refused and the store has no recovery.
    pub refusals_unresolved: usize,
    /// The digest of all distinct states, in hexadecimal: the certificate of what was visited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Cases in which somebody's file was lost between the last look and the call that used its name.
    pub race_windows: usize,
    /// Milliseconds.
    pub duration_ms: u128,
}

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every promise held.
    Pass,
    /// One did not.
    Violation,
    /// The harness could not do its work.
    HarnessError,
}

/// One case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// The stable id.
    pub id: String,
    /// The suite.
    pub suite: &'static str,
    /// Whether every store must pass it.
    pub level: &'static str,
    /// The stage that the first fault struck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<&'static str>,
    /// Requirements of the contract.
    pub requirements: Vec<&'static str>,
    /// How it ended.
    pub status: Status,
    /// What was seen.
    pub evidence: Vec<Evidence>,
    /// A command that runs it alone.
    pub replay: String,
}

/// A broken promise with what was seen.
#[derive(Debug, Clone, Serialize)]
pub struct Evidence {
    /// The promise.
    pub promise: &'static str,
    /// What was seen.
    pub seen: String,
    /// The state after a power cut in which it was seen, as a token that replays it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// What the suites gave.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Of the `faults` suite, where it ran.
    pub faults: Option<faults::Results>,
    /// Of the `crash` suite, where it ran.
    pub crash: Option<crash::Results>,
}

impl Report {
    /// The report of a run.
    pub fn new(
        outcomes: &Outcomes,
        candidate: &dyn Candidate,
        seed: u64,
        profile: Profile,
        duration: Duration,
    ) -> Report {
        let subject = candidate.name();
        let mut cases = Vec::new();
        let mut summary = Summary { duration_ms: duration.as_millis(), ..Summary::default() };
        if let Some(results) = &outcomes.faults {
            cases.extend(results.finished.iter().map(|finished| fault_case(&subject, finished)));
            summary.crash = results.finished.iter().filter(|finished| panicked(finished)).count();
            summary.faults_fired =
                results.finished.iter().flat_map(|it| &it.run.fired).map(|fired| u64::from(*fired)).sum();
            summary.merged = results.merged;
            summary.race_windows =
                results.finished.iter().filter(|finished| finished.run.race_window).count();
        }
        if let Some(results) = &outcomes.crash {
            cases.extend(results.cases.iter().map(|case| crash_case(&subject, case)));
            summary.faults_fired += results.cases.iter().map(|case| u64::from(case.fired)).sum::<u64>();
            summary.cuts = results.sum(|case| case.cuts);
            summary.disks = results.sum(|case| case.disks);
            summary.states_checked = results.states;
            summary.states_remembered = summary.disks - results.states;
            summary.refusals_recovered = results.sum(|case| case.recovered);
            summary.refusals_unresolved = results.sum(|case| case.unresolved);
            summary.digest = Some(format!("{:032x}", results.digest));
        }
        let count = |status| cases.iter().filter(|case| case.status == status).count();
        summary.pass = count(Status::Pass);
        summary.violation = count(Status::Violation);
        summary.harness_error = count(Status::HarnessError);
        Report {
            schema: SCHEMA,
            tool: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            subject: format!("{subject} (in process)"),
            seed,
            profile: profile.as_str(),
            summary,
            cases,
        }
    }

    /// Violations by promise, with the first case of each.
    pub fn broken_promises(&self) -> BTreeMap<&'static str, (usize, &CaseReport)> {
        let mut broken = BTreeMap::new();
        for case in &self.cases {
            for evidence in &case.evidence {
                broken.entry(evidence.promise).or_insert((0, case)).0 += 1;
            }
        }
        broken
    }
}

/// The command that replays a case of a store, by the store's name behind `--subject`.
pub fn replay_command(subject: &str, id: &str) -> String {
    if subject == REFERENCE.name() {
        format!("session-harness replay '{id}'")
    } else {
        format!("session-harness replay --subject {subject} '{id}'")
    }
}

fn fault_case(subject: &str, finished: &Finished) -> CaseReport {
    let id = finished.case.id();
    CaseReport {
        suite: faults::NAME,
        level: "must",
        stage: Some(finished.case.stage.id()),
        requirements: finished.case.requirements(),
        status: status_of(&finished.run.violations),
        evidence: evidence_of(&finished.run.violations, None),
        replay: replay_command(subject, &id),
        id,
    }
}

fn crash_case(subject: &str, case: &CaseResult) -> CaseReport {
    let id = case.token.to_string();
    let violations: Vec<Violation> =
        case.broken.iter().flat_map(|broken| broken.violations.clone()).collect();
    let evidence = case.broken.iter().flat_map(|broken| {
        let token = broken.token.to_string();
        evidence_of(&broken.violations, Some(&token))
    });
    // The shortest way to the first violation, else the whole workload.
    let shown = case.broken.first().map_or_else(|| id.clone(), |broken| broken.token.to_string());
    CaseReport {
        suite: crash::NAME,
        level: "must",
        stage: None,
        requirements: crash::requirements(&case.token),
        status: status_of(&violations),
        evidence: evidence.collect(),
        replay: replay_command(subject, &shown),
        id,
    }
}

fn status_of(violations: &[Violation]) -> Status {
    if violations.iter().any(|violation| violation.promise == Promise::FaultFired) {
        Status::HarnessError
    } else if violations.is_empty() {
        Status::Pass
    } else {
        Status::Violation
    }
}

fn evidence_of(violations: &[Violation], state: Option<&str>) -> Vec<Evidence> {
    let evidence = |violation: &Violation| Evidence {
        promise: violation.promise.name(),
        seen: violation.evidence.clone(),
        state: state.map(str::to_owned),
    };
    violations.iter().map(evidence).collect()
}

fn panicked(finished: &Finished) -> bool {
    finished.run.replies.iter().any(|(_, reply)| matches!(reply, Reply::Panicked(_)))
}
