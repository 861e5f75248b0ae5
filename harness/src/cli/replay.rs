//! `replay`: one case alone.

use std::io::Write;

use clap::Args;

use super::CliError;
use super::stdout::stdout;
use super::values::candidate;
use crate::exit_code::Exit;
use crate::promise::Promise;
use crate::replay;
use crate::subject::Candidate;
use crate::suite::crash;
use crate::suite::faults::Case;
use crate::world::Backend;

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// A case id or token as `list` and reports print it.
    case: String,
    /// The store under test, by name.
    #[arg(long, value_name = "NAME", default_value = "reference", value_parser = candidate)]
    subject: &'static dyn Candidate,
    /// On a temporary directory of the operating system instead of the simulated disk; for `faults` only.
    #[arg(long)]
    real: bool,
}

/// Runs one case or state alone and tells what happened.
pub(super) fn replay(options: &Replay) -> Result<Exit, CliError> {
    let (text, violations) = if let Some(case) = Case::find(options.subject, &options.case)? {
        let backend = if options.real { Backend::Real } else { Backend::Simulated };
        let (text, run) = replay::replay(options.subject, &case, backend)?;
        (text, run.violations)
    } else {
        let token: crash::Token =
            options.case.parse().map_err(|_| CliError::NoSuchCase(options.case.clone()))?;
        let crash_options = crash::Options { candidate: options.subject, ..crash::Options::default() };
        crash::tell(&token, &crash_options)?
    };
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(if violations.is_empty() {
        Exit::Holds
    } else if violations.iter().any(|violation| violation.promise != Promise::FaultFired) {
        Exit::Violations
    } else {
        // A planned fault that did not strike says nothing of the store.
        Exit::Harness
    })
}
