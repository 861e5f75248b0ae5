//! What a run showed, as data and for people.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::call::Reply;
use crate::promise::Promise;
use crate::suite::faults::{Finished, Results};

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
    pub stage: &'static str,
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
}

impl Report {
    /// The report of a `faults` run over the reference.
    pub fn of_faults(results: &Results, subject: &str, seed: u64, duration: Duration) -> Report {
        let cases: Vec<CaseReport> = results.finished.iter().map(case_report).collect();
        let count = |status| cases.iter().filter(|case| case.status == status).count();
        let summary = Summary {
            pass: count(Status::Pass),
            violation: count(Status::Violation),
            harness_error: count(Status::HarnessError),
            crash: results.finished.iter().filter(|finished| panicked(finished)).count(),
            faults_fired: results
                .finished
                .iter()
                .flat_map(|it| &it.run.fired)
                .map(|fired| u64::from(*fired))
                .sum(),
            merged: results.merged,
            race_windows: results.finished.iter().filter(|finished| finished.run.race_window).count(),
            duration_ms: duration.as_millis(),
            ..Summary::default()
        };
        Report {
            schema: SCHEMA,
            tool: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            subject: subject.to_owned(),
            seed,
            profile: "process",
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

/// The command that replays a case.
pub fn replay_command(id: &str) -> String {
    format!("session-harness replay '{id}'")
}

fn case_report(finished: &Finished) -> CaseReport {
    let id = finished.case.id();
    let violations = &finished.run.violations;
    let status = match violations.iter().any(|violation| violation.promise == Promise::FaultFired) {
        true => Status::HarnessError,
        false if violations.is_empty() => Status::Pass,
        false => Status::Violation,
    };
    CaseReport {
        suite: crate::suite::faults::NAME,
        level: "must",
        stage: finished.case.stage.id(),
        requirements: finished.case.requirements(),
        status,
        evidence: violations
            .iter()
            .map(|violation| Evidence { promise: violation.promise.name(), seen: violation.evidence.clone() })
            .collect(),
        replay: replay_command(&id),
        id,
    }
}

fn panicked(finished: &Finished) -> bool {
    finished.run.replies.iter().any(|(_, reply)| matches!(reply, Reply::Panicked(_)))
}
