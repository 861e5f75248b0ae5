//! The command line.

use std::io;

use clap::{Args, Parser, Subcommand};

use crate::exit_code::Exit;
use crate::scenario::HarnessError;

mod list;
mod run;

/// Tests whether a session store can be trusted, and looks into session files.
#[derive(Debug, Parser)]
#[command(name = "session-harness", version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::Run,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs suites against the reference store and prints a verdict (also without any command).
    Run(run::Run),
    /// Prints case ids, one a line.
    List(List),
    /// Runs one case alone and tells what happened, call by call.
    Replay(run::Replay),
}

#[derive(Debug, Args)]
struct List {
    /// The suites: all by default.
    #[arg(value_name = "SUITE", value_parser = run::SUITES)]
    suites: Vec<String>,
    /// One JSON object a line, with stage, requirement ids and level.
    #[arg(long)]
    json: bool,
    /// Only cases whose id matches; `*` stands for anything. Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// Prints the requirements of the contract instead, each with the number of cases that are about it.
    #[arg(long)]
    requirements: bool,
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
        None => run::run(&cli.run),
        Some(Command::Run(options)) => run::run(&options),
        Some(Command::List(options)) if options.requirements => list::requirements(&options),
        Some(Command::List(options)) => list::list(&options),
        Some(Command::Replay(options)) => run::replay(&options),
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
}

impl CliError {
    fn exit(&self) -> Exit {
        match self {
            CliError::NoSuchCase(_) | CliError::NothingMatches(_) => Exit::Usage,
            CliError::Harness(_) | CliError::Io(_) => Exit::Harness,
        }
    }
}
