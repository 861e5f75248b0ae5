//! How cases of a subject are expected to end: its known failures, what is not to be run, and its answers to choices. Each
//! is written down with a reason, and each that is no longer true fails the run, so that the list never rots.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::glob;
use crate::report::{CaseReport, Report, Status};
use crate::suite::Suite;

/// The version of the file's form.
const SCHEMA: u32 = 1;

/// What is expected, entry by entry. Of several entries that match a case the first one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectations(Vec<Entry>);

/// A file of expectations.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    cases: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// A case id, in which `*` stands for any text.
    case: String,
    expect: End,
    /// Of a choice: the name of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Violation,
    Timeout,
    Crash,
    Answer,
    Skip,
}

/// Why a file of expectations cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExpectationsError {
    /// It cannot be read.
    #[error("cannot read the expectations {path:?}: {source}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not a file of expectations.
    #[error(
        "{path:?} is no list of expectations: {what}; one reads {{\"schema\":1,\"cases\":[{{\"case\":ID,\"expect\":\"violation\",\
         \"reason\":WHY}}]}}, and `--write-expect FILE` makes one"
    )]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Expectations {
    /// Reads a file.
    ///
    /// # Errors
    /// Where it cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Expectations, ExpectationsError> {
        let bytes = fs::read(path)
            .map_err(|source| ExpectationsError::Unreadable { path: path.to_owned(), source })?;
        Expectations::parse(&bytes)
            .map_err(|what| ExpectationsError::Malformed { path: path.to_owned(), what })
    }

    fn parse(bytes: &[u8]) -> Result<Expectations, String> {
        let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if file.schema != SCHEMA {
            return Err(format!("it has the form {}, and this release reads {SCHEMA}", file.schema));
        }
        for entry in &file.cases {
            entry.check().map_err(|what| format!("{:?}: {what}", entry.case))?;
        }
        Ok(Expectations(file.cases))
    }

    /// What a run came to under these expectations, as those of the next one: its failures, its skips and its answers to
    /// choices. Entries that are still true stay as they are.
    #[must_use]
    pub fn renewed(&self, report: &Report) -> Expectations {
        let mut entries: Vec<Entry> = Vec::new();
        for case in &report.cases {
            let kept = self.entry(&case.id).filter(|_| case.unexpected.is_none());
            let entry = kept.cloned().or_else(|| Entry::of(case));
            entries.extend(entry.filter(|entry| entries.last() != Some(entry) && !entries.contains(entry)));
        }
        Expectations(entries)
    }

    /// As the text of a file.
    pub fn to_json(&self) -> String {
        let file = File { schema: SCHEMA, cases: self.0.clone() };
        let text = serde_json::to_string_pretty(&file).unwrap_or_default();
        text + "\n"
    }

    /// A digest by which two lists are told apart; none where nothing is expected.
    pub fn digest(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| format!("{:016x}", xxh3_64(self.to_json().as_bytes())))
    }

    /// Why a case is not to be run; none where it is.
    pub fn skip(&self, id: &str) -> Option<&str> {
        self.entry(id).filter(|entry| entry.expect == End::Skip).map(|entry| entry.reason.as_str())
    }

    /// Holds a case that was run against what is expected of it.
    pub fn judge(&self, case: &mut CaseReport) {
        let Some(entry) = self.entry(&case.id).filter(|entry| entry.expect != End::Skip) else { return };
        if !entry.is_met_by(case) {
            let (expected, found) = (entry.words(), words(case));
            case.unexpected = Some(format!("expected {expected} ({}), found {found}", entry.reason));
        } else if entry.expect != End::Answer {
            case.status = Status::ExpectedFailure;
            case.reason = Some(entry.reason.clone());
        }
    }

    /// The entries that match none of the cases. Where not all suites were run, only those that name one that was.
    pub fn unmatched(&self, cases: &[CaseReport], suites: &[Suite]) -> Vec<String> {
        let is_of = |entry: &Entry, suite: &Suite| entry.case.starts_with(&format!("{suite}/"));
        let is_due = |entry: &Entry| {
            suites.iter().any(|suite| is_of(entry, suite)) || Suite::ALL.iter().all(|it| suites.contains(it))
        };
        let mut used = vec![false; self.0.len()];
        for case in cases {
            if let Some(at) = self.0.iter().position(|entry| glob::matches(&entry.case, &case.id)) {
                used[at] = true;
            }
        }
        let unused = self.0.iter().zip(used).filter(|(entry, used)| !used && is_due(entry));
        unused.map(|(entry, _)| entry.case.clone()).collect()
    }

    fn entry(&self, id: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| glob::matches(&entry.case, id))
    }
}

impl Entry {
    fn check(&self) -> Result<(), &'static str> {
        if self.reason.trim().is_empty() {
            return Err("it gives no reason");
        }
        match (self.expect, &self.answer) {
            (End::Answer, None) => Err("which `answer` is expected?"),
            (End::Answer, Some(_)) | (_, None) => Ok(()),
            (_, Some(_)) => Err("only what expects an `answer` names one"),
        }
    }

    fn of(case: &CaseReport) -> Option<Entry> {
        let expect = match case.status {
            Status::Violation => End::Violation,
            Status::Timeout => End::Timeout,
            Status::Crash => End::Crash,
            Status::Recorded => End::Answer,
            Status::Pass
            | Status::Unsupported
            | Status::HarnessError
            | Status::Skipped
            | Status::ExpectedFailure => return None,
        };
        let answer = case.answer.clone().filter(|_| expect == End::Answer);
        Some(Entry { case: case.id.clone(), expect, answer, reason: reason(case) })
    }

    fn is_met_by(&self, case: &CaseReport) -> bool {
        match self.expect {
            End::Violation => case.status == Status::Violation,
            End::Timeout => case.status == Status::Timeout,
            End::Crash => case.status == Status::Crash,
            End::Answer => case.status == Status::Recorded && case.answer == self.answer,
            End::Skip => case.status == Status::Skipped,
        }
    }

    fn words(&self) -> String {
        match (self.expect, &self.answer) {
            (End::Answer, Some(answer)) => format!("the answer `{answer}`"),
            (End::Violation, _) => "a violation".to_owned(),
            (End::Timeout, _) => "no answer in time".to_owned(),
            (End::Crash, _) => "a crash".to_owned(),
            (End::Answer | End::Skip, _) => "something else".to_owned(),
        }
    }
}

fn words(case: &CaseReport) -> String {
    match (case.status, &case.answer) {
        (Status::Recorded, Some(answer)) => format!("the answer `{answer}`"),
        (Status::Pass, _) => "a pass".to_owned(),
        (Status::Violation, _) => "a violation".to_owned(),
        (Status::Timeout, _) => "no answer in time".to_owned(),
        (Status::Crash, _) => "a crash".to_owned(),
        (Status::Unsupported, _) => "that the subject cannot be asked".to_owned(),
        _ => "an error of the harness".to_owned(),
    }
}

/// What was seen, for somebody to write the reason instead.
fn reason(case: &CaseReport) -> String {
    const LONGEST: usize = 160;
    let seen = case.evidence.first().map(|evidence| evidence.seen.trim()).filter(|text| !text.is_empty());
    seen.unwrap_or("as found").chars().take(LONGEST).collect()
}
