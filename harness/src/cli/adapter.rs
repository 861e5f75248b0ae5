//! `adapter check`: what of the protocol an adapter has, step by step, and what to do next.

use std::io::Write as _;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::run::with_timeout;
use super::stdout::stdout;
use super::{CliError, values};
use crate::exit_code::Exit;
use crate::protocol::{Capability, Hello};
use crate::subject::command::{self, Command, Running, indented};

mod steps;

use steps::{Ground, STEPS, Step, Trouble};

#[derive(Debug, Subcommand)]
pub(super) enum Adapter {
    /// Starts an adapter, goes through the calls one by one, and tells what works and what to do next.
    Check(Check),
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The command that starts the adapter, as in 'python3 adapter.py'.
    #[arg(long, value_name = "CMD", value_parser = values::command)]
    subject: Command,
    /// How long an answer may take, such as 10s; the first one has at least a minute.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout: Option<Duration>,
}

/// Checks an adapter.
pub(super) fn check(options: &Check) -> Result<Exit, CliError> {
    command::end_all_at_signal(1)?;
    let command = with_timeout(&options.subject, options.timeout);
    let directory = tempfile::tempdir()?;
    let mut out = stdout();
    writeln!(out, "command   {command}")?;
    out.flush()?;
    let mut ground = match Ground::new(&command, directory.path()) {
        Ok(ground) => ground,
        Err(error) => {
            writeln!(out, "  broken  hello\n\n{error}")?;
            out.flush()?;
            return Ok(Exit::Subject);
        }
    };
    writeln!(out, "{}", greeting(ground.hello()))?;
    let exit = go(&command, &mut ground, &mut out)?;
    out.flush()?;
    Ok(exit)
}

fn go(command: &Command, ground: &mut Ground, out: &mut impl std::io::Write) -> Result<Exit, CliError> {
    for Step { name, run } in STEPS {
        match run(ground) {
            Ok(()) => writeln!(out, "  ok      {name}")?,
            Err(Trouble::Absent(why)) => writeln!(out, "  absent  {name}: {why}")?,
            Err(Trouble::Wrong(what)) => {
                writeln!(out, "  wrong   {name}\n\nnext: {what}{}", said(ground.subject()))?;
                return Ok(Exit::Violations);
            }
            Err(Trouble::Broke(what)) => {
                writeln!(out, "  broken  {name}\n\nnext: {what}{}", said(ground.subject()))?;
                return Ok(Exit::Subject);
            }
        }
        out.flush()?;
    }
    let absent: Vec<&str> = Capability::ALL
        .into_iter()
        .filter(|capability| !ground.hello().can(*capability))
        .map(Capability::name)
        .collect();
    writeln!(out, "\n{}", last_words(command, ground.hello(), &absent))?;
    Ok(Exit::Holds)
}

fn greeting(hello: &Hello) -> String {
    let Hello { name, version, language, format, capabilities, .. } = hello;
    let unknown: Vec<&str> = capabilities
        .iter()
        .map(String::as_str)
        .filter(|name| !Capability::ALL.iter().any(|known| known.name() == *name))
        .collect();
    let other_format = if hello.is_native() {
        ""
    } else {
        "\n          of another format than session-tree-1: only what every store promises is asked of it"
    };
    let passed_over = if unknown.is_empty() {
        String::new()
    } else {
        format!("\n          not known here, and passed over: capability {}", unknown.join(", "))
    };
    format!("  ok      hello: {name} {version} ({language}), format {format}{other_format}{passed_over}")
}

fn last_words(command: &Command, hello: &Hello, absent: &[&str]) -> String {
    let without = if absent.is_empty() {
        String::new()
    } else {
        format!("; without {}, whose cases are left out", absent.join(", "))
    };
    let which = if hello.is_native() { "" } else { ", which runs the cases that fit any format" };
    format!(
        "the adapter speaks the protocol{without}\n\
         next: session-harness run conformance --subject {}{which}",
        command.quoted()
    )
}

fn said(subject: &mut Running) -> String {
    use crate::subject::Subject as _;
    subject.said().map_or_else(String::new, |said| format!("\nits standard error:\n{}", indented(&said)))
}
