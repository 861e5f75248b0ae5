//! `run` and `replay`.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::stdout::stdout;
use super::{CliError, list};
use crate::crash::{Profile, UnknownProfile};
use crate::exit_code::Exit;
use crate::promise::Promise;
use crate::replay;
use crate::report::{Outcomes, Report, replay_command, terminal};
use crate::subject::{self, Candidate, UnknownSubject};
use crate::suite::faults::Case;
use crate::suite::{crash, explore, faults};
use crate::world::Backend;

/// The suites, in the order in which they run.
pub(super) const SUITES: [&str; 2] = [faults::NAME, crash::NAME];

/// Operations up to which workloads are complete: where everything runs, and where crashes were asked for.
const DEPTH: usize = 2;
const DEPTH_ASKED_FOR: usize = 3;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The suites: all by default.
    #[arg(value_name = "SUITE", value_parser = SUITES)]
    suites: Vec<String>,
    /// The store under test, by name.
    #[arg(long, value_name = "NAME", default_value = "reference", value_parser = candidate)]
    subject: &'static dyn Candidate,
    /// Only cases whose id matches; `*` stands for anything. Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// What a power cut may lose: process, ordered or posix.
    #[arg(long, default_value_t = Profile::Posix, value_parser = profile)]
    profile: Profile,
    /// Operations up to which every workload is cut: 2, or 3 where only `crash` runs. Each one more takes six times as
    /// long.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=6))]
    depth: Option<u8>,
    /// Threads.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// The seed of everything random; these suites visit everything and draw nothing.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Writes a machine-readable report: `json=PATH`. Repeatable.
    #[arg(long, value_name = "KIND=PATH", value_parser = report_target)]
    report: Vec<PathBuf>,
    /// Prints the verdict only.
    #[arg(long)]
    quiet: bool,
}

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

/// Runs the suites and prints the verdict.
pub(super) fn run(options: &Run) -> Result<Exit, CliError> {
    // Before the work, so that a path that cannot be written costs none.
    let mut files = options.report.iter().map(report_file).collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let outcomes = outcomes(options)?;
    let duration = start.elapsed();
    let report = Report::new(&outcomes, options.subject, options.seed, options.profile, duration);
    if report.cases.is_empty() {
        return Err(CliError::NothingMatches(options.filter.clone()));
    }
    for (path, file) in &mut files {
        let written = serde_json::to_writer_pretty(&mut *file, &report).map_err(io::Error::from);
        let written = written.and_then(|()| file.write_all(b"\n")).and_then(|()| file.flush());
        written.map_err(|error| CliError::Report { path: path.clone(), error })?;
    }
    let text = terminal::render(&report, &outcomes, duration.as_secs_f64());
    let shown = if options.quiet { text.rsplit("\n\n").next().unwrap_or(&text) } else { &text };
    let mut out = stdout();
    out.write_all(shown.as_bytes())?;
    out.flush()?;
    Ok(if report.summary.violation > 0 {
        Exit::Violations
    } else if report.summary.harness_error > 0 {
        Exit::Harness
    } else {
        Exit::Holds
    })
}

fn report_file(path: &PathBuf) -> Result<(PathBuf, io::BufWriter<fs::File>), CliError> {
    match fs::File::create(path) {
        Ok(file) => Ok((path.clone(), io::BufWriter::new(file))),
        Err(error) => Err(CliError::Report { path: path.clone(), error }),
    }
}

fn outcomes(options: &Run) -> Result<Outcomes, CliError> {
    let asked_for =
        |suite: &str| options.suites.is_empty() || options.suites.iter().any(|name| name == suite);
    let jobs = jobs(options.jobs);
    let mut outcomes = Outcomes::default();
    if asked_for(faults::NAME) {
        outcomes.faults = Some(matching_faults(options.subject, &options.filter, jobs, options.quiet)?);
    }
    if asked_for(crash::NAME) {
        let only_crash = options.suites.iter().all(|name| name == crash::NAME) && !options.suites.is_empty();
        let depth = options.depth.map_or(if only_crash { DEPTH_ASKED_FOR } else { DEPTH }, usize::from);
        let crash_options = crash::Options {
            candidate: options.subject,
            profile: options.profile,
            depth,
            jobs,
            ..crash::Options::default()
        };
        let chosen = |token: &crash::Token| list::matches(&options.filter, &token.to_string());
        outcomes.crash = Some(crash::run(&crash_options, chosen, progress(options.quiet))?);
        clear_progress(options.quiet);
    }
    Ok(outcomes)
}

/// The `faults` cases that match. All of them are run, since a case is one only if no other has an equal trace.
pub(super) fn matching_faults(
    candidate: &dyn Candidate,
    filter: &[String],
    jobs: usize,
    quiet: bool,
) -> Result<faults::Results, CliError> {
    let mut results = faults::run_all(candidate, jobs, &progress(quiet))?;
    clear_progress(quiet);
    results.finished.retain(|finished| list::matches(filter, &finished.case.id()));
    Ok(results)
}

pub(super) fn jobs(asked_for: Option<NonZeroUsize>) -> usize {
    asked_for.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

fn progress(quiet: bool) -> impl Fn(usize, usize) {
    let is_shown = !quiet && io::stderr().is_terminal();
    move |done, all| {
        if is_shown && done.is_multiple_of(250) {
            let _ = write!(io::stderr(), "\r{done} of {all} cases ");
        }
    }
}

fn clear_progress(quiet: bool) {
    if !quiet && io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r{:<32}\r", "");
    }
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

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let number: u64 = number.parse().map_err(|_| "expected a time such as 60s or 5m".to_owned())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        "h" => Ok(Duration::from_secs(number.saturating_mul(3_600))),
        _ => Err("expected a time such as 60s or 5m".to_owned()),
    }
}

fn candidate(name: &str) -> Result<&'static dyn Candidate, UnknownSubject> {
    subject::named(name)
}

fn profile(text: &str) -> Result<Profile, UnknownProfile> {
    text.parse()
}

fn report_target(text: &str) -> Result<PathBuf, String> {
    match text.split_once('=') {
        Some(("json", path)) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err("expected `json=PATH`".to_owned()),
    }
}
