//! `run`: the suites, a verdict, and reports.

use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args, ColorChoice};

use super::reports::{Files, Target};
use super::stdout::stdout;
use super::values::{Chosen, duration, profile, subject};
use super::{CliError, interrupt, progress, screen};
use crate::crash::Profile;
use crate::exit_code::Exit;
use crate::expectations::Expectations;
use crate::glob::Filter;
use crate::report::{Report, Verdict, terminal};
use crate::runner::{self, Request};
use crate::shard::Shard;
use crate::subject::REFERENCE;
use crate::subject::command::{Command, Remote, Use};
use crate::suite::Suite;

/// Operations up to which workloads are complete: where everything runs, and where crashes were asked for.
const DEPTH: usize = 2;
const DEPTH_ASKED_FOR: usize = 3;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The suites: all by default.
    #[arg(value_name = "SUITE")]
    suites: Vec<Suite>,
    /// The store under test: a name such as `sqlite`, or the command that starts an adapter for a store of any language, as in
    /// 'python3 adapter.py' (see `session-harness adapter check`).
    #[arg(long, value_name = "NAME-OR-CMD", default_value = "reference", value_parser = subject)]
    subject: Chosen,
    /// One process for many cases, for an adapter that starts slowly.
    #[arg(long)]
    reuse: bool,
    /// Only cases whose id matches; `*` stands for anything. Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// Only one of several parts, such as `1/4`: disjoint, complete together, and the same whatever cases are added.
    /// `merge` makes one report of the JSON reports of all.
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
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
    /// The seed of everything random: of the schedules, batches and delays that `concurrency` draws. The other suites
    /// visit everything and draw nothing.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How long one answer of an adapter may take, such as 10s, which is usual; the first one has at least a minute. Of a
    /// store in this process: how long one case may take; it cannot be stopped, so that the case is told when it is over.
    /// Not for `crash`, whose cases are thousands of histories each.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Known failures, answers and skips, each with a reason; the run fails where one of them is not true any more.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Writes what this run came to in the form that `--expect` reads.
    #[arg(long, value_name = "FILE")]
    write_expect: Option<PathBuf>,
    /// Writes a report: `json=PATH`, `junit=PATH` or `html=PATH`. Repeatable.
    #[arg(long, value_name = "KIND=PATH")]
    report: Vec<Target>,
    /// Ends with the first failure.
    #[arg(long)]
    fail_fast: bool,
    /// Prints the verdict only.
    #[arg(long)]
    quiet: bool,
    /// Whether the verdict is coloured.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Runs the suites and prints the verdict.
pub(super) fn run(options: &Run) -> Result<Exit, CliError> {
    let request = options.request()?;
    let files = Files::open(&options.report)?;
    let interrupted =
        if request.remote.is_some() { interrupt::flag_before_subjects()? } else { interrupt::flag()? };
    let watcher = progress::watcher(options.quiet);
    let report = runner::run(&request, watcher.as_ref(), &interrupted)?;
    // A part may well be empty, and so may be what was interrupted.
    if report.cases.is_empty() && request.shard.is_none() && report.partial.is_none() {
        return Err(CliError::NothingMatches(request.filter.0));
    }
    files.write(&report)?;
    if let Some(path) = &options.write_expect {
        let text = request.expectations.renewed(&report).to_json();
        fs::write(path, text).map_err(|error| CliError::Report { path: path.clone(), error })?;
    }
    print(&report, options)?;
    match request.remote.as_ref().and_then(|remote| remote.first_break()) {
        Some(how) => Err(CliError::BrokeTheProtocol(how)),
        None => Ok(exit(&report)),
    }
}

fn print(report: &Report, options: &Run) -> Result<(), CliError> {
    let color = screen::canvas(&std::io::stdout(), options.color).color;
    let text = if options.quiet { terminal::verdict(report, color) } else { terminal::render(report, color) };
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// How a run ends that came to this report.
pub(super) fn exit(report: &Report) -> Exit {
    match report.verdict() {
        Verdict::Holds => Exit::Holds,
        Verdict::Violated => Exit::Violations,
        Verdict::HarnessFailed | Verdict::Incomplete => Exit::Harness,
    }
}

impl Run {
    fn request(&self) -> Result<Request, CliError> {
        let remote = self.remote()?;
        let suites = match (&remote, &self.suites[..]) {
            (Some(_), []) => vec![Suite::Conformance, Suite::Concurrency],
            _ => chosen(&self.suites),
        };
        if let Some(remote) = &remote
            && let Some(suite) = suites.iter().copied().find(|suite| suite.looks_below())
        {
            return Err(CliError::OnlyHere { suite, subject: remote.quoted() });
        }
        let depth = if suites == [Suite::Crash] { DEPTH_ASKED_FOR } else { DEPTH };
        let expectations = self.expect.as_deref().map(Expectations::read).transpose()?;
        Ok(Request {
            candidate: if let Chosen::Here(candidate) = self.subject { candidate } else { REFERENCE },
            suites,
            filter: Filter(self.filter.clone()),
            shard: self.shard,
            profile: self.profile,
            depth: self.depth.map_or(depth, usize::from),
            jobs: jobs(self.jobs),
            seed: self.seed,
            // An adapter has it for each answer.
            timeout: self.timeout.filter(|_| remote.is_none()),
            remote,
            fail_fast: self.fail_fast,
            expectations: expectations.unwrap_or_default(),
        })
    }
}

impl Run {
    fn remote(&self) -> Result<Option<Arc<Remote>>, CliError> {
        let used = if self.reuse { Use::Again } else { Use::Once };
        Ok(match &self.subject {
            Chosen::Here(_) => None,
            Chosen::Behind(command) => {
                Some(Arc::new(Remote::greet(with_timeout(command, self.timeout), used)?))
            }
            #[cfg(feature = "sqlite")]
            Chosen::Sqlite => Some(Arc::new(Remote::sqlite())),
        })
    }
}

/// A command with another limit, where one is given.
pub(super) fn with_timeout(command: &Command, timeout: Option<Duration>) -> Command {
    timeout.map_or_else(|| command.clone(), |timeout| command.clone().with_timeout(timeout))
}

/// The suites that are asked for, each once and in their order; all where none is named.
pub(super) fn chosen(named: &[Suite]) -> Vec<Suite> {
    let is_chosen = |suite: &Suite| named.is_empty() || named.contains(suite);
    Suite::ALL.into_iter().filter(is_chosen).collect()
}

pub(super) fn jobs(asked_for: Option<NonZeroUsize>) -> usize {
    asked_for.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}
