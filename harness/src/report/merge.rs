//! One report of the reports of all parts.

use std::collections::{BTreeMap, HashSet};

use super::{Report, SCHEMA, Selection, Summary, Tally, sort};
use crate::shard::Shard;
use crate::suite::crash::States;

/// Why reports do not make a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There is no report.
    #[error("no report is given")]
    Nothing,
    /// A report has a form that this release does not know.
    #[error("{name} has the form {found}, and this release reads {SCHEMA}")]
    Schema {
        /// Which.
        name: String,
        /// Its form.
        found: u32,
    },
    /// A report is not of a part.
    #[error("{0} is the report of no part: only reports of runs with `--shard` can be joined")]
    NoPart(String),
    /// A report is of a run that ended early.
    #[error("{0} is of a run that ended early: run that part again")]
    Incomplete(String),
    /// Two reports are of different runs.
    #[error("{one} and {other} differ in the {what}: {first} and {second}")]
    Mixed {
        /// The first report.
        one: String,
        /// The report that differs from it.
        other: String,
        /// What differs.
        what: &'static str,
        /// As the first has it.
        first: String,
        /// As the other has it.
        second: String,
    },
    /// Two reports are of one part.
    #[error("{one} and {other} are both part {shard}")]
    Twice {
        /// The first report.
        one: String,
        /// The second.
        other: String,
        /// Which part.
        shard: String,
    },
    /// A part has no report.
    #[error("part {0} is missing: give the reports of all parts at once")]
    Missing(String),
    /// A case is in two reports.
    #[error("{0} is in two parts: the reports are not of one run")]
    Overlap(String),
}

/// Joins the named reports of all parts of a run. A single report of a whole run stays what it is.
///
/// # Errors
/// Where they are not all parts, each once, of one run.
pub fn merge(reports: Vec<(String, Report)>) -> Result<Report, MergeError> {
    let (_, first) = reports.first().ok_or(MergeError::Nothing)?;
    for (name, report) in &reports {
        check_complete(name, report)?;
    }
    if first.selection.shard.is_none() && reports.len() == 1 {
        return Ok(first.clone());
    }
    check_parts(&reports)?;
    for other in &reports[1..] {
        check_same(&reports[0], other)?;
    }
    join(reports.into_iter().map(|(_, report)| report).collect())
}

fn check_complete(name: &str, report: &Report) -> Result<(), MergeError> {
    if report.schema != SCHEMA {
        return Err(MergeError::Schema { name: name.to_owned(), found: report.schema });
    }
    if report.partial.is_some() {
        return Err(MergeError::Incomplete(name.to_owned()));
    }
    Ok(())
}

/// Each part is there once.
fn check_parts(reports: &[(String, Report)]) -> Result<(), MergeError> {
    let mut parts: BTreeMap<u32, &str> = BTreeMap::new();
    let mut counts: Vec<(u32, &str)> = Vec::new();
    for (name, report) in reports {
        let shard: Option<Shard> = report.selection.shard.as_ref().and_then(|text| text.parse().ok());
        let shard = shard.ok_or_else(|| MergeError::NoPart(name.clone()))?;
        if let Some((first, one)) = counts.first().filter(|(count, _)| *count != shard.count()) {
            return Err(MergeError::Mixed {
                one: (*one).to_owned(),
                other: name.clone(),
                what: "number of parts",
                first: first.to_string(),
                second: shard.count().to_string(),
            });
        }
        counts.push((shard.count(), name));
        if let Some(one) = parts.insert(shard.number(), name) {
            let (one, other, shard) = (one.to_owned(), name.clone(), shard.to_string());
            return Err(MergeError::Twice { one, other, shard });
        }
    }
    let count = counts.first().map_or(0, |(count, _)| *count);
    match (1..=count).find(|number| !parts.contains_key(number)) {
        Some(number) => Err(MergeError::Missing(format!("{number}/{count}"))),
        None => Ok(()),
    }
}

/// Both are of one run.
fn check_same(one: &(String, Report), other: &(String, Report)) -> Result<(), MergeError> {
    let (first, second) = (identity(&one.1), identity(&other.1));
    match first.into_iter().zip(second).find(|(first, second)| first.1 != second.1) {
        None => Ok(()),
        Some(((what, first), (_, second))) => {
            Err(MergeError::Mixed { one: one.0.clone(), other: other.0.clone(), what, first, second })
        }
    }
}

/// What all parts of one run have in common.
fn identity(report: &Report) -> [(&'static str, String); 8] {
    let Selection { suites, filter, depth, expectations, shard: _ } = &report.selection;
    let suites: Vec<&str> = suites.iter().map(|suite| suite.name()).collect();
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    [
        ("tool", format!("{} {}", report.tool, report.version)),
        ("subject", report.subject.clone()),
        ("seed", report.seed.to_string()),
        ("profile", report.profile.clone()),
        ("suites", suites.join(" ")),
        (
            "filter",
            or_none(filter.iter().map(|glob| format!("{glob:?}")).reduce(|all, one| all + " " + &one)),
        ),
        ("depth", or_none(depth.map(|depth| depth.to_string()))),
        ("expectations", or_none(expectations.clone())),
    ]
}

fn join(reports: Vec<Report>) -> Result<Report, MergeError> {
    let mut reports = reports.into_iter();
    let mut whole = reports.next().ok_or(MergeError::Nothing)?;
    let (mut tally, mut duration) = (whole.summary.tally.clone(), whole.summary.duration_ms);
    for part in reports {
        tally.add(&part.summary.tally);
        duration += part.summary.duration_ms;
        whole.cases.extend(part.cases);
        // What one part expects in vain may be in another.
        whole.unmatched_expectations.retain(|glob| part.unmatched_expectations.contains(glob));
        whole.states = unite(whole.states, part.states);
    }
    let mut ids = HashSet::new();
    if let Some(twice) = whole.cases.iter().find(|case| !ids.insert(case.id.as_str())) {
        return Err(MergeError::Overlap(twice.id.clone()));
    }
    sort(&mut whole.cases);
    let tally = Tally { digest: None, ..tally };
    whole.summary = Summary::new(&whole.cases, tally, whole.states.as_ref(), duration);
    whole.states = None;
    whole.selection.shard = None;
    Ok(whole)
}

fn unite(one: Option<States>, other: Option<States>) -> Option<States> {
    match (one, other) {
        (Some(mut one), Some(other)) => {
            one.0.extend(other.0);
            Some(one)
        }
        (one, other) => one.or(other),
    }
}
