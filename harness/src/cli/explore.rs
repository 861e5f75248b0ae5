//! `explore`: beyond what can be visited completely.

use std::io::Write;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use clap::Args;

use super::CliError;
use super::stdout::stdout;
use super::values::{candidate, duration, profile};
use crate::crash::Profile;
use crate::exit_code::Exit;
use crate::report::replay_command;
use crate::subject::Candidate;
use crate::suite::explore;

#[derive(Debug, Args)]
pub(super) struct Explore {
    /// The store under test, by name.
    #[arg(long, value_name = "NAME", default_value = "reference", value_parser = candidate)]
    subject: &'static dyn Candidate,
    /// What decides every workload and fault; drawn and printed where it is not given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// For how long, such as 60s or 5m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// At most so many workloads, whatever the time: with a seed this makes two runs equal.
    #[arg(long, value_name = "N")]
    workloads: Option<NonZeroUsize>,
    /// What a power cut may lose: process, ordered or posix.
    #[arg(long, default_value_t = Profile::Posix, value_parser = profile)]
    profile: Profile,
}

/// Explores until the time is over or a promise is broken.
pub(super) fn explore(options: &Explore) -> Result<Exit, CliError> {
    let mut out = stdout();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    writeln!(out, "seed {seed}   profile {}", options.profile)?;
    out.flush()?;
    let start = Instant::now();
    let explored = explore::explore(options.subject, seed, options.profile, |so_far| {
        start.elapsed() < options.time && options.workloads.is_none_or(|most| so_far.workloads < most.get())
    })?;
    if explored.workloads == 0 {
        return Err(CliError::NothingExplored);
    }
    writeln!(
        out,
        "{} workloads   {} states   {} faults struck",
        explored.workloads, explored.states, explored.faults_fired
    )?;
    let Some(broken) = explored.broken else {
        writeln!(out, "holds: nothing was found")?;
        out.flush()?;
        return Ok(Exit::Holds);
    };
    for state in broken.broken.iter().filter(|broken| broken.is_of_the_store()).take(1) {
        for violation in &state.violations {
            writeln!(
                out,
                "violated: {} ({})\n  {}",
                violation.promise.words(),
                violation.promise,
                violation.evidence
            )?;
        }
        writeln!(out, "  replay:  {}", replay_command(&options.subject.name(), &state.token.to_string()))?;
    }
    out.flush()?;
    Ok(Exit::Violations)
}
