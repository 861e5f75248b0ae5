//! The corpus of cases held against a store that is built in.

use std::sync::OnceLock;

use crate::corpus::{self, Case, Environment, Outcome, check};
use crate::scenario::HarnessError;
use crate::subject::Candidate;
use crate::world::Backend;

/// A case that a store fails, and what was seen.
#[derive(Debug)]
pub struct Failed {
    /// The case's id.
    pub id: String,
    /// What was seen.
    pub evidence: String,
}

/// The first case that every store must pass, is about one of `requirements`, and that `candidate` fails. Without
/// requirements every case counts.
///
/// # Errors
/// Where the harness could not do its work.
pub fn first_failed(
    candidate: &dyn Candidate,
    requirements: Option<&[&str]>,
) -> Result<Option<Failed>, HarnessError> {
    for case in cases()?.iter().filter(|case| case.is_must() && is_about(case, requirements)) {
        let outcome = check(case, &Environment::of(candidate, Backend::Simulated))
            .map_err(|error| HarnessError::Case(format!("{}: {error}", case.id)))?;
        if let Outcome::Violation(evidence) = outcome {
            return Ok(Some(Failed { id: case.id.clone(), evidence }));
        }
    }
    Ok(None)
}

/// How many cases every store must pass.
///
/// # Errors
/// As [`first_failed`].
pub fn musts() -> Result<usize, HarnessError> {
    Ok(cases()?.iter().filter(|case| case.is_must()).count())
}

fn is_about(case: &Case, requirements: Option<&[&str]>) -> bool {
    requirements.is_none_or(|ids| case.requirements.iter().any(|id| ids.contains(&id.as_str())))
}

/// The corpus, read once.
fn cases() -> Result<&'static [Case], HarnessError> {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    if let Some(cases) = CASES.get() {
        return Ok(cases);
    }
    let read = corpus::embedded()?;
    Ok(CASES.get_or_init(|| read))
}
