//! The command line.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};

use crate::exit_code::Exit;
use crate::replay;
use crate::report::{Report, terminal};
use crate::scenario::HarnessError;
use crate::suite::faults::{self, Case, Results};
use crate::tree_view::UnknownEntry;
use crate::world::Backend;

mod list;
mod recover;
mod screen;
mod tree;
mod verify;

/// Tests whether a session store can be trusted, and looks into session files.
#[derive(Debug, Parser)]
#[command(name = "session-harness", version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs suites against the reference store and prints a verdict (also without any command).
    Run(Run),
    /// Prints case ids, one a line.
    List(List),
    /// Runs one case alone and tells what happened, call by call.
    Replay(Replay),
    /// Loads session files as a store does, and tells what is wrong with those that are refused.
    Verify(verify::Verify),
    /// Draws the tree of a session: branches, active leaf, tool calls and results.
    Tree(tree::Tree),
    /// Names the state that a crash left a session in, and changes nothing.
    Inspect(recover::Inspect),
    /// Resolves what a crash left, where nothing has to be guessed or you choose.
    Recover(recover::Recover),
}

#[derive(Debug, Args)]
struct Run {
    /// The suites: all by default.
    #[arg(value_name = "SUITE", value_parser = [faults::NAME])]
    suites: Vec<String>,
    /// Only cases whose id matches; `*` stands for anything. Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// Threads.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// The seed of everything random; the suites so far visit everything and draw nothing.
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
struct List {
    /// The suites: all by default.
    #[arg(value_name = "SUITE", value_parser = [faults::NAME])]
    suites: Vec<String>,
    /// One JSON object a line, with stage, requirement ids and level.
    #[arg(long)]
    json: bool,
    /// Only cases whose id matches; `*` stands for anything. Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
}

#[derive(Debug, Args)]
struct Replay {
    /// A case id as `list` and reports print it.
    case: String,
    /// On a temporary directory of the operating system instead of the simulated disk.
    #[arg(long)]
    real: bool,
}

/// Runs the command line of this process.
pub fn main() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe ends quietly, here as everywhere.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Holds };
        }
    };
    let done = match cli.command {
        None => run(&cli.run),
        Some(Command::Run(options)) => run(&options),
        Some(Command::List(options)) => list::list(&options.filter, options.json),
        Some(Command::Replay(options)) => replay_one(&options),
        Some(Command::Verify(options)) => verify::verify(&options),
        Some(Command::Tree(options)) => tree::tree(&options),
        Some(Command::Inspect(options)) => recover::inspect(&options),
        Some(Command::Recover(options)) => recover::recover(&options),
    };
    match done {
        Ok(exit) => exit,
        Err(CliError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Holds,
        Err(error) => {
            eprintln!("session-harness: {error}");
            error.exit()
        }
    }
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Harness(#[from] HarnessError),
    #[error("cannot print or write: {0}")]
    Io(#[from] io::Error),
    #[error("`{0}` is no case: `session-harness list` prints every id")]
    NoSuchCase(String),
    #[error("no case matches {0:?}: `session-harness list` prints every id")]
    NothingMatches(Vec<String>),
    #[error("{0}: `session-harness tree FILE` shows them all")]
    NoSuchEntry(#[from] UnknownEntry),
}

impl CliError {
    fn exit(&self) -> Exit {
        match self {
            CliError::NoSuchCase(_) | CliError::NothingMatches(_) | CliError::NoSuchEntry(_) => Exit::Usage,
            CliError::Harness(_) | CliError::Io(_) => Exit::Harness,
        }
    }
}

/// Whether the reader is still there. One that has gone away is no failure, and changes no verdict.
fn is_read(written: io::Result<()>) -> Result<bool, CliError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

fn run(options: &Run) -> Result<Exit, CliError> {
    let start = Instant::now();
    let results = run_matching(&options.filter, options.jobs, options.quiet)?;
    let duration = start.elapsed();
    let report = Report::of_faults(&results, "reference (in process)", options.seed, duration);
    for path in &options.report {
        let mut file = io::BufWriter::new(fs::File::create(path)?);
        serde_json::to_writer_pretty(&mut file, &report).map_err(io::Error::from)?;
        file.write_all(b"\n")?;
        file.flush()?;
    }
    let text = terminal::render(&report, &results, duration.as_secs_f64());
    let shown = if options.quiet { text.rsplit("\n\n").next().unwrap_or(&text) } else { &text };
    io::stdout().write_all(shown.as_bytes())?;
    let broken = report.summary.violation > 0;
    let unsound = report.summary.harness_error > 0;
    Ok(if broken {
        Exit::Violations
    } else if unsound {
        Exit::Harness
    } else {
        Exit::Holds
    })
}

fn run_matching(filter: &[String], jobs: Option<NonZeroUsize>, quiet: bool) -> Result<Results, CliError> {
    let jobs = jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let is_shown = !quiet && io::stderr().is_terminal();
    let tick = |done: usize, all: usize| {
        if is_shown && done.is_multiple_of(250) {
            eprint!("\r{done} of {all} cases ");
        }
    };
    let mut results = faults::run_all(jobs, &tick)?;
    if is_shown {
        eprint!("\r{:<32}\r", "");
    }
    if !filter.is_empty() {
        results.finished.retain(|finished| list::matches(filter, &finished.case.id()));
        if results.finished.is_empty() {
            return Err(CliError::NothingMatches(filter.to_vec()));
        }
    }
    Ok(results)
}

fn replay_one(options: &Replay) -> Result<Exit, CliError> {
    let case = Case::from_id(&options.case).ok_or_else(|| CliError::NoSuchCase(options.case.clone()))?;
    let backend = if options.real { Backend::Real } else { Backend::Simulated };
    let (text, run) = replay::replay(&case, backend)?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(if run.violations.is_empty() { Exit::Holds } else { Exit::Violations })
}

fn report_target(text: &str) -> Result<PathBuf, String> {
    match text.split_once('=') {
        Some(("json", path)) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err("expected `json=PATH`".to_owned()),
    }
}
