//! Looking for what a specimen breaks, until it is found.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::Specimen;
use super::conformance::first_failed;
use crate::crash::Profile;
use crate::fault::{Kind as Fault, Plan, Span};
use crate::promise::{Promise, Violation};
use crate::scenario::HarnessError;
use crate::suite::crash::{self, Broken};
use crate::suite::faults::{self, Case, SCENARIOS};
use crate::suite::{concurrency, recovery};
use crate::world::Backend;
use session_tree::Errno;

/// Operations up to which workloads are complete.
pub const DEPTH: usize = 2;

/// Where a specimen must show, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// In the `faults` suite.
    Faults(Promise),
    /// In the `crash` suite, under this profile and no weaker one.
    Crash(Promise, Profile),
    /// In the `recovery` suite.
    Recovery,
    /// In the `concurrency` suite.
    Concurrency(Promise),
    /// In a case of the `conformance` suite that is about one of these requirements and that every store must pass.
    Conformance(&'static [&'static str]),
}

impl Shown {
    /// The promise, or the requirements, that must catch it.
    pub fn promise(self) -> String {
        match self {
            Shown::Faults(promise) | Shown::Crash(promise, _) | Shown::Concurrency(promise) => {
                promise.to_string()
            }
            Shown::Recovery => Promise::RecoveryKeeps.to_string(),
            Shown::Conformance(requirements) => requirements.join(" "),
        }
    }

    /// The weakest profile that shows it; none where no power is cut.
    pub const fn profile(self) -> Option<Profile> {
        match self {
            Shown::Crash(_, profile) => Some(profile),
            _ => None,
        }
    }
}

/// Where a specimen was caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caught {
    /// The case id or token, as `replay` takes it.
    pub by: String,
    /// The weakest profile under which it was.
    pub profile: Option<Profile>,
    /// What was seen.
    pub evidence: String,
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.by)
    }
}

/// Runs the suite that must catch the specimen until it does. Promises that are not `believed` catch nothing.
///
/// # Errors
/// Where the harness could not do its work.
pub fn hunt(
    specimen: &'static Specimen,
    believed: &dyn Fn(Promise) -> bool,
) -> Result<Option<Caught>, HarnessError> {
    let breaks =
        |promise: Promise| move |violation: &Violation| violation.promise == promise && believed(promise);
    match specimen.shown {
        None => Ok(None),
        Some(Shown::Faults(promise)) => in_faults(specimen, &breaks(promise)),
        Some(Shown::Crash(promise, profile)) => in_crash(specimen, profile, &breaks(promise)),
        Some(Shown::Concurrency(promise)) => in_concurrency(specimen, &breaks(promise)),
        Some(Shown::Recovery) => in_recovery(specimen, &breaks(Promise::RecoveryKeeps)),
        // No promise is behind it, but a requirement that none of them stands for.
        Some(Shown::Conformance(requirements)) => in_conformance(specimen, requirements),
    }
}

type IsMeant<'a> = dyn Fn(&Violation) -> bool + 'a;

/// Singles first, the plainest of them before the others; then pairs.
fn in_faults(specimen: &'static Specimen, is_meant: &IsMeant<'_>) -> Result<Option<Caught>, HarnessError> {
    let mut singles = Vec::new();
    for scenario in 0..SCENARIOS.len() {
        singles.extend(faults::single_faults(specimen, scenario)?);
    }
    singles.sort_by_key(|case| rank(&case.plan));
    for case in &singles {
        if let Some(caught) = in_case(specimen, case, is_meant)? {
            return Ok(Some(caught));
        }
    }
    for case in &singles {
        let run = case.run(specimen, Backend::Simulated)?;
        for pair in faults::second_faults(&faults::Finished { case: case.clone(), run, took: Duration::ZERO })
        {
            if let Some(caught) = in_case(specimen, &pair, is_meant)? {
                return Ok(Some(caught));
            }
        }
    }
    Ok(None)
}

fn in_case(
    specimen: &'static Specimen,
    case: &Case,
    is_meant: &IsMeant<'_>,
) -> Result<Option<Caught>, HarnessError> {
    let found = case.run(specimen, Backend::Simulated)?.violations.into_iter().find(is_meant);
    Ok(found.map(|violation| Caught { by: case.id(), profile: None, evidence: violation.evidence }))
}

/// The plainest faults first, so that a specimen is caught by one that can be understood.
fn rank(plan: &Plan) -> u32 {
    let rank_of = |fault: &crate::fault::Fault| match fault.kind {
        _ if fault.span != Span::Times(1) => 3,
        Fault::Before(Errno::EIO) | Fault::After(Errno::EIO) | Fault::Short | Fault::ShortThen(_) => 0,
        Fault::Before(_) | Fault::After(_) => 2,
        _ => 1,
    };
    plan.0.iter().map(rank_of).max().unwrap_or_default()
}

/// The weakest profile that shows it.
fn in_crash(
    specimen: &'static Specimen,
    strongest: Profile,
    is_meant: &IsMeant<'_>,
) -> Result<Option<Caught>, HarnessError> {
    for profile in Profile::ALL.iter().copied().filter(|profile| *profile <= strongest) {
        let options =
            crash::Options { candidate: specimen, profile, depth: DEPTH, ..crash::Options::default() };
        let found = crash::first(&options, |broken: &Broken| broken.violations.iter().any(is_meant))?;
        if let Some(broken) = found {
            let evidence = broken.violations.iter().find(|it| is_meant(it)).map(|it| it.evidence.clone());
            let by = broken.token.to_string();
            return Ok(Some(Caught { by, profile: Some(profile), evidence: evidence.unwrap_or_default() }));
        }
    }
    Ok(None)
}

fn in_recovery(specimen: &'static Specimen, is_meant: &IsMeant<'_>) -> Result<Option<Caught>, HarnessError> {
    for case in recovery::cases() {
        if let Some(violation) = case.run(specimen)?.into_iter().find(is_meant) {
            return Ok(Some(Caught { by: case.id(), profile: None, evidence: violation.evidence }));
        }
    }
    Ok(None)
}

/// Batches first, then two processes.
fn in_concurrency(
    specimen: &'static Specimen,
    is_meant: &IsMeant<'_>,
) -> Result<Option<Caught>, HarnessError> {
    for case in concurrency::cases().iter().filter(|case| case.is_repeatable()) {
        let outcome = case.run(specimen, 0, &|violations| !violations.iter().any(is_meant))?;
        if let Some(found) = outcome.found.into_iter().find(|found| is_meant(&found.violation)) {
            let evidence = found.violation.evidence;
            return Ok(Some(Caught { by: found.token, profile: None, evidence }));
        }
    }
    Ok(None)
}

fn in_conformance(
    specimen: &'static Specimen,
    requirements: &[&str],
) -> Result<Option<Caught>, HarnessError> {
    let failed = first_failed(specimen, Some(requirements))?;
    Ok(failed.map(|failed| Caught { by: failed.id, profile: None, evidence: failed.evidence }))
}

/// Every promise that the specimen breaks in a part of the suites that is complete for itself: every single fault,
/// every state that a cut may leave of workloads of up to [`DEPTH`] operations, every recovery, and every schedule of two
/// processes that do one thing each.
///
/// # Errors
/// Where the harness could not do its work.
pub fn broken_promises(specimen: &'static Specimen) -> Result<BTreeSet<Promise>, HarnessError> {
    let mut broken = BTreeSet::new();
    let mut keep = |violations: Vec<Violation>| broken.extend(violations.into_iter().map(|it| it.promise));
    for scenario in 0..SCENARIOS.len() {
        for case in faults::single_faults(specimen, scenario)? {
            keep(case.run(specimen, Backend::Simulated)?.violations);
        }
    }
    let options = crash::Options { candidate: specimen, depth: DEPTH, ..crash::Options::default() };
    for case in crash::run(&options, |_| true, |_, _| {})?.cases {
        case.broken.into_iter().for_each(|broken| keep(broken.violations));
    }
    for case in recovery::cases() {
        keep(case.run(specimen)?);
    }
    for case in concurrency::cases().iter().filter(|case| case.is_quick()) {
        keep(case.run(specimen, 0, &|_| true)?.found.into_iter().map(|found| found.violation).collect());
    }
    Ok(broken)
}
