//! The command line.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::exit_code::Exit;
use crate::expectations::ExpectationsError;
use crate::protocol::BadRequest;
use crate::report::MergeError;
use crate::scenario::HarnessError;
use crate::subject::command::StartError;
use crate::suite::Suite;
use crate::tree_view::UnknownEntry;

mod adapter;
mod explore;
mod interrupt;
mod list;
mod merge;
mod progress;
mod recover;
mod replay;
mod reports;
mod run;
mod screen;
mod specimens;
mod stdout;
mod subject;
mod tree;
mod values;
mod verify;

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
    /// Makes one report of those of all parts of a run.
    Merge(merge::Merge),
    /// Prints case ids, one a line.
    List(list::List),
    /// Runs one case alone and tells what happened, call by call.
    Replay(replay::Replay),
    /// Runs random workloads with random faults and power cuts, beyond the exhaustive part.
    Explore(explore::Explore),
    /// Runs the harness against stores that are broken on purpose: which promise caught which, and any that escaped.
    Specimens(specimens::Specimens),
    /// Loads session files as a store does, and tells what is wrong with those that are refused.
    Verify(verify::Verify),
    /// Draws the tree of a session: branches, active leaf, tool calls and results.
    Tree(tree::Tree),
    /// Names the state that a crash left a session in, and changes nothing.
    Inspect(recover::Inspect),
    /// Resolves what a crash left, where nothing has to be guessed or you choose.
    Recover(recover::Recover),
    /// Is a store of this tool behind the protocol of `--subject`, to try a harness or an adapter against.
    Subject(subject::Subject),
    /// Helps to write an adapter for a store of another language.
    #[command(subcommand)]
    Adapter(adapter::Adapter),
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
        Some(Command::Merge(options)) => merge::merge(&options),
        Some(Command::List(options)) => list::list(&options),
        Some(Command::Replay(options)) => replay::replay(&options),
        Some(Command::Explore(options)) => explore::explore(&options),
        Some(Command::Specimens(options)) => specimens::specimens(&options),
        Some(Command::Verify(options)) => verify::verify(&options),
        Some(Command::Tree(options)) => tree::tree(&options),
        Some(Command::Inspect(options)) => recover::inspect(&options),
        Some(Command::Recover(options)) => recover::recover(&options),
        Some(Command::Subject(options)) => subject::subject(&options),
        Some(Command::Adapter(adapter::Adapter::Check(options))) => adapter::check(&options),
    };
    match done {
        Ok(exit) => exit,
        Err(error) => {
            // A person whose terminal is gone needs no words, and a panic would hide the exit status.
            let _ = writeln!(io::stderr(), "session-harness: {error}");
            error.exit()
        }
    }
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Harness(#[from] HarnessError),
    #[error("cannot print: {0}")]
    Io(#[from] io::Error),
    #[error("cannot write the report {path:?}: {error}")]
    Report { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Expectations(#[from] ExpectationsError),
    #[error("cannot join these reports: {0}")]
    Merge(#[from] MergeError),
    #[error("{path:?} is no JSON report of this tool: {what}")]
    NotAReport { path: PathBuf, what: String },
    #[error("no workload was run in that time: give it more, as in `--time 60s`")]
    NothingExplored,
    #[error("{0:?} is no case: `session-harness list` prints every id")]
    NoSuchCase(String),
    #[error("no case matches {0:?}: `session-harness list` prints every id")]
    NothingMatches(Vec<String>),
    #[error("no specimen matches {0:?}: `session-harness specimens` shows them all")]
    NoSuchSpecimen(Vec<String>),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "the subject broke the protocol: {0}\n`session-harness adapter check --subject CMD` goes through it step by step"
    )]
    BrokeTheProtocol(String),
    #[error(
        "`{suite}` works only for stores inside the harness; type `session-harness run conformance --subject {subject}`"
    )]
    OnlyHere { suite: Suite, subject: String },
    #[error("{0}; standard input must have requests of the protocol, one a line")]
    BadRequest(BadRequest),
    #[error("{0}: `session-harness tree FILE` shows them all")]
    NoSuchEntry(#[from] UnknownEntry),
}

impl CliError {
    fn exit(&self) -> Exit {
        match self {
            CliError::NoSuchCase(_)
            | CliError::NothingMatches(_)
            | CliError::NothingExplored
            | CliError::BadRequest(_)
            | CliError::OnlyHere { .. }
            | CliError::Expectations(_)
            | CliError::Merge(_)
            | CliError::NotAReport { .. }
            | CliError::NoSuchSpecimen(_)
            | CliError::NoSuchEntry(_) => Exit::Usage,
            CliError::Start(_) | CliError::BrokeTheProtocol(_) => Exit::Subject,
            CliError::Harness(_) | CliError::Io(_) | CliError::Report { .. } => Exit::Harness,
        }
    }
}
