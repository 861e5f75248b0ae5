//! Worker processes: this very binary, started again with a role. A worker speaks in lines of words over its
//! standard output and is told things over its standard input.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// Set in a worker only; the role.
const ROLE: &str = "SESSION_TREE_TEST_ROLE";

/// The role of this process, where it is a worker.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// The arguments of this worker.
pub(crate) fn arguments() -> Vec<String> {
    env::args().skip(1).collect()
}

/// Says one line to the process that started this worker, in one write. A listener that is gone ends the worker.
pub(crate) fn say(line: &str) {
    if io::stdout().write_all(format!("{line}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}

/// Waits until this worker is told something, or its starter is gone.
pub(crate) fn listen() {
    let _ = io::stdin().read_line(&mut String::new());
}

/// The command that starts a worker, behind `prefix`, such as a tracer and its options.
pub(crate) fn command(prefix: &[&OsStr], role: &str, arguments: &[&OsStr]) -> Command {
    let exe = env::current_exe().unwrap();
    let mut words = prefix.iter().copied().chain([exe.as_os_str()]).chain(arguments.iter().copied());
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A running worker. Dropping it kills it.
pub(crate) struct Worker {
    child: Child,
    says: Option<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn start(role: &str, arguments: &[&OsStr]) -> Worker {
        let mut child = command(&[], role, arguments).spawn().unwrap();
        let says = child.stdout.take().map(BufReader::new);
        Worker { child, says }
    }

    /// The next line that the worker says.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.as_mut().unwrap().read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the worker ended without the line that was waited for: `{line}`");
        line.trim_end().to_owned()
    }

    /// Tells the worker to go on.
    pub(crate) fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// What the worker says, for a reader of its own.
    pub(crate) fn take_output(&mut self) -> BufReader<ChildStdout> {
        self.says.take().unwrap()
    }

    /// Waits until the worker ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills the worker with a signal that cannot be caught and gives what it had said until then and nobody read.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.says.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
