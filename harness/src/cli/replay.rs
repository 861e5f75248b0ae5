//! `replay`: one case alone.

use std::io::Write;

use clap::Args;

use super::CliError;
use super::stdout::stdout;
use super::values::{Chosen, subject};
use crate::corpus::{self, Outcome};
use crate::exit_code::Exit;
use crate::promise::{Promise, Violation};
use crate::replay;
use crate::scenario::HarnessError;
use crate::subject::Candidate;
use crate::subject::command::{self, Remote, Use};
use crate::suite::any_store;
use crate::suite::conformance::{self, End};
use crate::suite::faults::Case;
use crate::suite::{concurrency, crash, recovery};
use crate::world::Backend;

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// A case id or token as `list` and reports print it.
    case: String,
    /// The store under test: a name, or the command that starts an adapter.
    #[arg(long, value_name = "NAME-OR-CMD", default_value = "reference", value_parser = subject)]
    subject: Chosen,
    /// On a temporary directory of the operating system instead of the simulated disk; not for `crash`.
    #[arg(long)]
    real: bool,
}

/// Runs one case or state alone and tells what happened.
pub(super) fn replay(options: &Replay) -> Result<Exit, CliError> {
    let (text, exit) = told(options)?;
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(exit)
}

fn told(options: &Replay) -> Result<(String, Exit), CliError> {
    match &options.subject {
        Chosen::Here(candidate) => told_here(*candidate, options),
        Chosen::Behind(command) => {
            command::end_all_at_signal(1)?;
            told_apart(&Remote::greet(command.clone(), Use::Once)?, &options.case)
        }
        #[cfg(feature = "sqlite")]
        Chosen::Sqlite => told_apart(&Remote::sqlite(), &options.case),
    }
}

/// Of a store that is known by its answers alone.
fn told_apart(remote: &Remote, id: &str) -> Result<(String, Exit), CliError> {
    let of_corpus = corpus::embedded().map_err(HarnessError::from)?.into_iter().find(|case| case.id == id);
    let of_any_store = any_store::CASES.iter().find(|case| case.id() == id);
    let (text, end) = match (of_corpus, of_any_store) {
        (Some(case), _) => {
            let finished = conformance::run_behind(remote, &case);
            replay::tell_conformance(id, &case.title, &case.requirements.join(" "), finished)
        }
        (None, Some(case)) => {
            let finished = conformance::run_any(remote, case);
            replay::tell_conformance(id, case.title, &case.requirements.join(" "), finished)
        }
        (None, None) => {
            let Some(token) = concurrency::Token::find(id) else {
                return Err(CliError::NoSuchCase(id.to_owned()));
            };
            let finished = conformance::run_beside(remote, |start| {
                let outcome = token.run_behind(start, remote.hello()).map_err(|error| error.to_string())?;
                Ok(outcome.judged())
            });
            replay::tell_conformance(id, token.case.title(), &token.case.requirements().join(" "), finished)
        }
    };
    Ok((text, exit_of(&end)))
}

fn told_here(candidate: &'static dyn Candidate, options: &Replay) -> Result<(String, Exit), CliError> {
    let backend = if options.real { Backend::Real } else { Backend::Simulated };
    let conformance = corpus::embedded().map_err(HarnessError::from)?;
    if let Some(case) = conformance.iter().find(|case| case.id == options.case) {
        let (text, end) = replay::replay_conformance(candidate, case, backend);
        return Ok((text, exit_of(&end)));
    }
    if let Some(case) = any_store::CASES.iter().find(|case| case.id() == options.case) {
        let finished = conformance::run_any_here(candidate, case);
        let requirements = case.requirements.join(" ");
        let (text, end) = replay::tell_conformance(&options.case, case.title, &requirements, finished);
        return Ok((text, exit_of(&end)));
    }
    if let Some(case) = Case::find(candidate, &options.case)? {
        let (text, run) = replay::replay(candidate, &case, backend)?;
        return Ok((text, exit(&run.violations)));
    }
    if let Some(case) = recovery::Case::find(&options.case) {
        let (text, violations) = case.tell(candidate)?;
        return Ok((text, exit(&violations)));
    }
    if let Some(token) = concurrency::Token::find(&options.case) {
        let told = token.tell(candidate)?;
        return Ok((replay::tell_concurrency(&options.case, &token, &told), exit(&told.violations)));
    }
    let token: crash::Token = options.case.parse().map_err(|_| CliError::NoSuchCase(options.case.clone()))?;
    let crash_options = crash::Options { candidate, ..crash::Options::default() };
    let (text, violations) = crash::tell(&token, &crash_options)?;
    Ok((text, exit(&violations)))
}

fn exit(violations: &[Violation]) -> Exit {
    if violations.is_empty() {
        Exit::Holds
    } else if violations.iter().any(|violation| violation.promise != Promise::FaultFired) {
        Exit::Violations
    } else {
        // A planned fault that did not strike says nothing of the store.
        Exit::Harness
    }
}

fn exit_of(end: &End) -> Exit {
    match end {
        End::Judged(Outcome::Violation(_)) | End::Crash(_) | End::Timeout(_) => Exit::Violations,
        End::Judged(_) => Exit::Holds,
        End::Protocol(_) => Exit::Subject,
        End::HarnessError(_) => Exit::Harness,
    }
}
