//! What a run showed, as data. Everything that people and programs read of a run is made from a [`Report`] alone, so that
//! one that was read back, or joined from parts, shows the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::promise::{Promise, Violation};
use crate::subject::REFERENCE;
use crate::suite::Suite;
use crate::suite::concurrency::Counts;
use crate::suite::crash::{Refusal, States};

mod cluster;
pub mod html;
pub mod junit;
mod matrix;
mod merge;
pub mod terminal;

pub use cluster::{Cluster, Group, groups};
pub use matrix::{Cell, Row, TABLES, Table};
pub use merge::{MergeError, merge};

/// The version of the report's form.
pub const SCHEMA: u32 = 1;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// The tool.
    pub tool: String,
    /// The tool's version.
    pub version: String,
    /// What was tested.
    pub subject: String,
    /// The seed that decides everything random.
    pub seed: u64,
    /// The persistence profile of the disk.
    pub profile: String,
    /// What was asked for.
    pub selection: Selection,
    /// Why not everything was run that was asked for; none where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// Suites that do not see the subject, so that they say nothing of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_seen_by: Vec<Unseen>,
    /// The numbers.
    pub summary: Summary,
    /// Known failures and skips that match no case.
    pub unmatched_expectations: Vec<String>,
    /// Case by case: suite by suite, in each the shorter histories first.
    pub cases: Vec<CaseReport>,
    /// The distinct states of a part, from which those of the whole are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<States>,
}

/// What was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The suites.
    pub suites: Vec<Suite>,
    /// Globs, one of which each case matches; none where all cases were asked for.
    pub filter: Vec<String>,
    /// Operations up to which the workloads of the `crash` suite are complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// Which part of the whole, as `K/N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// A digest of the known failures and skips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectations: Option<String>,
}

/// A suite that does not see the subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// The suite.
    pub suite: Suite,
    /// Why it does not.
    pub reason: String,
}

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partial {
    /// Somebody stopped it.
    Interrupted,
    /// A case failed, and no more was asked for.
    FailFast,
}

/// The numbers of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Cases in which everything held.
    pub pass: usize,
    /// Cases in which something did not.
    pub violation: usize,
    /// Cases that record a choice.
    pub recorded: usize,
    /// Cases that the subject cannot be asked.
    pub unsupported: usize,
    /// Cases that were not run because they were to be skipped.
    pub skipped: usize,
    /// Failures that were expected.
    pub expected_failure: usize,
    /// Cases without an answer in time.
    pub timeout: usize,
    /// Cases that ended the subject.
    pub crash: usize,
    /// Cases that the harness could not do, such as a fault that did not strike.
    pub harness_error: usize,
    /// Cases that did not end as they were expected to.
    pub unexpected: usize,
    /// Failures that look alike, those with the gravest broken promise first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Cluster>,
    /// Requirements that broken promises stand for, each with the number of cases that broke one of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub broken: BTreeMap<String, usize>,
    /// What was done and seen along the way.
    #[serde(flatten)]
    pub tally: Tally,
    /// Milliseconds, of all parts together.
    pub duration_ms: u64,
}

/// Counts over all cases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
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
    /// Distinct states in which a load refused and recovery led on.
    pub refusals_recovered: usize,
    /// Distinct states in which a load refused and the store has no recovery.
    pub refusals_unresolved: usize,
    /// The digest of all distinct states, in hexadecimal: the certificate of what was visited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Power cuts by the stage that they came in, and those among them after which a promise was broken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cuts_by_stage: BTreeMap<String, Cell>,
    /// Ways in which the calls of two processes fell; none where the `concurrency` suite was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Counts>,
    /// Cases in which somebody's file was lost between the last look and the call that used its name.
    pub race_windows: usize,
}

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything held.
    Pass,
    /// Something did not.
    Violation,
    /// It has no right and wrong; what the subject did was recorded.
    Recorded,
    /// The subject cannot be asked.
    Unsupported,
    /// It was not run because it was to be skipped.
    Skipped,
    /// It failed as expected.
    ExpectedFailure,
    /// There was no answer in time.
    Timeout,
    /// The subject panicked or ended.
    Crash,
    /// The harness could not do its work.
    HarnessError,
}

/// Whether every store is held to a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It is.
    Must,
    /// The case records which of several things a store does.
    Choice,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// The stable id.
    pub id: String,
    /// The suite.
    pub suite: Suite,
    /// Whether every store must pass it.
    pub level: Level,
    /// Requirements of the contract.
    pub requirements: Vec<String>,
    /// What must happen, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The stage that the first fault struck; of a failure after a power cut, the stage that was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// What went wrong at that stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Row>,
    /// How it ended.
    pub status: Status,
    /// Of a choice: the name of the subject's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Why it is unsupported, skipped or expected to fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was expected instead, where the end was not the expected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unexpected: Option<String>,
    /// What was seen.
    pub evidence: Vec<Evidence>,
    /// What led to it, line by line; of cases that failed only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<String>,
    /// A command that runs it alone.
    pub replay: String,
    /// Milliseconds.
    pub duration_ms: f64,
}

/// What was seen of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The broken promise, where it is a named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
    /// What was seen.
    pub seen: String,
    /// The state after a power cut in which it was seen, as a token that replays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// In how many further states of the case the same promise was broken.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub further: usize,
}

/// A promise that stands for more requirements than this says little of each.
const MANY: usize = 4;

/// What a run comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything held.
    Holds,
    /// Something did not, or not as expected.
    Violated,
    /// The harness could not do its work in some case.
    HarnessFailed,
    /// Nothing failed, but not everything was run.
    Incomplete,
}

impl Report {
    /// What the run comes to.
    pub fn verdict(&self) -> Verdict {
        let Summary { violation, timeout, crash, unexpected, harness_error, .. } = self.summary;
        // An expectation may be about a case of another part.
        let unmatched = self.selection.shard.is_none() && !self.unmatched_expectations.is_empty();
        if violation + timeout + crash + unexpected > 0 || unmatched {
            Verdict::Violated
        } else if harness_error > 0 {
            Verdict::HarnessFailed
        } else if self.partial.is_some() {
            Verdict::Incomplete
        } else {
            Verdict::Holds
        }
    }

    /// What a run that holds has shown.
    pub fn claim(&self) -> &'static str {
        if self.selection.suites == [Suite::Conformance] {
            "every answer is one that the contract allows"
        } else {
            "every acknowledged entry survives, nothing is invented, no failure is hidden"
        }
    }

    /// Cases that apply to the subject.
    pub fn asked(&self) -> usize {
        self.cases.len() - self.cases.iter().filter(|case| case.status == Status::Unsupported).count()
    }

    /// Failures by what was broken, the gravest first, and in that by what they look like.
    pub fn failures(&self) -> Vec<(&str, Vec<Group<'_>>)> {
        let mut failures: Vec<(&str, Vec<Group<'_>>)> = Vec::new();
        for group in groups(&self.cases) {
            let what = group.cases.first().map_or("", |case| case.what_failed());
            match failures.last_mut() {
                Some((last, groups)) if *last == what => groups.push(group),
                _ => failures.push((what, vec![group])),
            }
        }
        failures
    }

    /// Cases of a suite.
    pub fn of_suite(&self, suite: Suite) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(move |case| case.suite == suite)
    }

    /// Whether nothing was left out of what the suites have.
    pub fn is_whole(&self) -> bool {
        self.partial.is_none() && self.selection.shard.is_none() && self.selection.filter.is_empty()
    }
}

impl Summary {
    /// The numbers of `cases`.
    pub fn new(cases: &[CaseReport], mut tally: Tally, states: Option<&States>, duration_ms: u64) -> Summary {
        let count = |status| cases.iter().filter(|case| case.status == status).count();
        if let Some(states) = states {
            tally.states_checked = states.len();
            tally.states_remembered = tally.disks.saturating_sub(states.len());
            tally.refusals_recovered = states.count(Refusal::Recovered);
            tally.refusals_unresolved = states.count(Refusal::Unresolved);
            tally.digest = Some(format!("{:032x}", states.digest()));
        }
        Summary {
            pass: count(Status::Pass),
            violation: count(Status::Violation),
            recorded: count(Status::Recorded),
            unsupported: count(Status::Unsupported),
            skipped: count(Status::Skipped),
            expected_failure: count(Status::ExpectedFailure),
            timeout: count(Status::Timeout),
            crash: count(Status::Crash),
            harness_error: count(Status::HarnessError),
            unexpected: cases.iter().filter(|case| case.unexpected.is_some()).count(),
            clusters: groups(cases).into_iter().map(|group| group.cluster).collect(),
            broken: broken(cases),
            tally,
            duration_ms,
        }
    }
}

fn broken(cases: &[CaseReport]) -> BTreeMap<String, usize> {
    let mut broken: BTreeMap<String, usize> = BTreeMap::new();
    for id in cases.iter().flat_map(CaseReport::broken_requirements) {
        *broken.entry(id.to_owned()).or_default() += 1;
    }
    broken
}

impl Tally {
    /// Adds what another part counted. What is told from the distinct states of all parts is not a sum.
    pub fn add(&mut self, other: &Tally) {
        self.faults_fired += other.faults_fired;
        self.merged += other.merged;
        self.cuts += other.cuts;
        self.disks += other.disks;
        self.race_windows += other.race_windows;
        if let Some(counts) = &other.concurrency {
            self.concurrency.get_or_insert_default().add(counts);
        }
        for (stage, cell) in &other.cuts_by_stage {
            self.cuts_by_stage.entry(stage.clone()).or_default().add(*cell);
        }
    }
}

impl CaseReport {
    /// A case that passed so far.
    pub fn new(suite: Suite, id: String, requirements: &[&str], subject: &str) -> CaseReport {
        CaseReport {
            suite,
            level: Level::Must,
            requirements: requirements.iter().map(|id| (*id).to_owned()).collect(),
            title: None,
            stage: None,
            disturbance: None,
            status: Status::Pass,
            answer: None,
            reason: None,
            unexpected: None,
            evidence: Vec::new(),
            schedule: Vec::new(),
            replay: replay_command(subject, &id),
            duration_ms: 0.0,
            id,
        }
    }

    /// It was not run.
    #[must_use]
    pub fn skipped(self, reason: &str) -> CaseReport {
        CaseReport { status: Status::Skipped, reason: Some(reason.to_owned()), ..self }
    }

    /// It took so long. More than `limit` is too long.
    #[must_use]
    pub fn took(mut self, time: Duration, limit: Option<Duration>) -> CaseReport {
        self.duration_ms = (time.as_secs_f64() * 1e6).round() / 1e3;
        // A failure stays what it is.
        if let Some(limit) = limit.filter(|limit| time > *limit && !self.fails()) {
            self.status = Status::Timeout;
            let seen = format!("took {time:.1?}, more than {limit:?}");
            self.evidence.push(Evidence { promise: None, seen, state: None, further: 0 });
        }
        self
    }

    /// Whether a run with this case is one that failed.
    pub fn fails(&self) -> bool {
        let is_failure =
            matches!(self.status, Status::Violation | Status::Timeout | Status::Crash | Status::HarnessError);
        is_failure || self.unexpected.is_some()
    }

    /// By what failures are told apart: the broken promise where there is one.
    pub fn what_failed(&self) -> &str {
        match (self.status, self.evidence.first()) {
            _ if self.unexpected.is_some() => "as-expected",
            (Status::Timeout, _) => "in-time",
            (Status::Crash, _) => "no-crash",
            (_, Some(Evidence { promise: Some(promise), .. })) => promise,
            _ => self.suite.name(),
        }
    }

    /// Requirements that were broken, each once: of what the broken promises stand for what the case is about, or all
    /// of it where it is about none of that, unless it is so much that the stage says more; where no promise has a name,
    /// all that the case is about. A case cites more: what every case of its kind is held to, most of which still holds.
    pub fn broken_requirements(&self) -> BTreeSet<&str> {
        if !self.fails() {
            return BTreeSet::new();
        }
        let (causes, _) = self.causes_and_consequences();
        let promises: Vec<Promise> =
            causes.iter().filter_map(|evidence| Promise::find(evidence.promise.as_deref()?)).collect();
        if promises.is_empty() {
            return self.requirements.iter().map(String::as_str).collect();
        }
        let mut broken = BTreeSet::new();
        for promise in promises {
            let all = promise.requirements().iter().copied();
            let is_cited = |id: &&str| self.requirements.iter().any(|cited| cited == id);
            let cited: Vec<&str> = all.clone().filter(is_cited).collect();
            broken.extend(match (&self.stage, cited.is_empty()) {
                (_, false) => cited,
                (Some(stage), _) if promise.requirements().len() > MANY => vec![stage.as_str()],
                _ => all.collect(),
            });
        }
        broken
    }

    /// What was seen, without what follows as a rule once something is broken; and that.
    pub fn causes_and_consequences(&self) -> (Vec<&Evidence>, Vec<&Evidence>) {
        let follows = |evidence: &Evidence| {
            evidence.promise.as_deref().and_then(Promise::find).is_some_and(Promise::is_consequence)
        };
        let (mut causes, mut consequences) = (Vec::new(), Vec::new());
        for (at, evidence) in self.evidence.iter().enumerate() {
            if at > 0 && follows(evidence) { consequences.push(evidence) } else { causes.push(evidence) }
        }
        (causes, consequences)
    }

    /// Cases with fewer steps and faults come first: ids join these with `,` and `+`.
    fn place(&self) -> (Suite, usize, &str) {
        (self.suite, self.id.matches([',', '+']).count(), &self.id)
    }
}

/// The order of a report, whichever order the cases were run in.
pub fn sort(cases: &mut [CaseReport]) {
    cases.sort_by(|one, other| one.place().cmp(&other.place()));
}

/// The command that replays a case of a store, by the store's name behind `--subject`.
pub fn replay_command(subject: &str, id: &str) -> String {
    if subject == REFERENCE.name() {
        format!("session-harness replay '{id}'")
    } else {
        let quoted = shlex::try_quote(subject).unwrap_or_else(|_| subject.into());
        format!("session-harness replay --subject {quoted} '{id}'")
    }
}

impl From<&Violation> for Evidence {
    fn from(violation: &Violation) -> Evidence {
        Evidence {
            promise: Some(violation.promise.name().to_owned()),
            seen: violation.evidence.clone(),
            state: None,
            further: 0,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A number with a narrow gap between thousands.
pub(crate) fn grouped(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}
