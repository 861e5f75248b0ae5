//! The three pipes to a subject, served together, so that neither side waits for the other for ever.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::Pid;

use super::Manner;
use super::tree::Tree;
use crate::protocol::{Lines, MAX_LINE_BYTES, TooLong};
use crate::subject::Killer;

/// Bytes of standard error that are kept: the last ones, where errors stand.
const KEPT_OF_STANDARD_ERROR: usize = 16 << 10;

/// How often it is looked whether the subject has ended: a process that it has started may keep its pipes open.
const LOOK: Duration = Duration::from_millis(20);

/// How long a subject that has closed its standard output may take to end.
const AFTER_CLOSING: Duration = Duration::from_secs(1);

/// Pieces that are read of a pipe at a time, so that a subject that writes without end holds up nothing.
const PIECES: usize = 64;

/// Why there is no line.
#[derive(Debug)]
pub(super) enum Silence {
    /// The time is over.
    Late,
    /// The process has ended.
    Ended,
    /// It has closed its standard output and not ended.
    Closed,
    /// It wrote something that no request asked for.
    Unasked(Vec<u8>),
    /// A line without an end, or nearly.
    TooLong(TooLong),
    /// The operating system says so.
    Broken(io::Error),
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Silence {
        Silence::Broken(error)
    }
}

impl From<TooLong> for Silence {
    fn from(too_long: TooLong) -> Silence {
        Silence::TooLong(too_long)
    }
}

/// A process and its pipes; each is none when one of both sides has closed it.
pub(super) struct Pipes {
    tree: Tree,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    lines: Lines,
    said: Said,
}

impl Pipes {
    pub(super) fn open(
        program: &OsStr,
        arguments: &[OsString],
        directory: &Path,
        manner: Manner,
    ) -> io::Result<Pipes> {
        let mut command = command(program, manner);
        command.args(arguments).current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (tree, (stdin, stdout, stderr)) = Tree::start(&mut command)?;
        for pipe in [
            stdin.as_ref().map(AsFd::as_fd),
            stdout.as_ref().map(AsFd::as_fd),
            stderr.as_ref().map(AsFd::as_fd),
        ]
        .into_iter()
        .flatten()
        {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(Pipes { tree, stdin, stdout, stderr, lines: Lines::new(MAX_LINE_BYTES), said: Said::default() })
    }

    /// Sends a request and waits for one line. What follows that line is for the next call to judge.
    pub(super) fn exchange(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, Silence> {
        self.nothing_unasked()?;
        let deadline = Instant::now() + limit;
        let mut unsent = request;
        let mut closed = None;
        loop {
            let left = self.serve(&mut unsent, deadline)?;
            // An answer to half a request is none.
            if unsent.is_empty()
                && let Some(line) = self.lines.next_line()?
            {
                return Ok(line);
            }
            if self.tree.has_ended() {
                self.read_standard_output()?;
                return self.lines.next_line()?.ok_or(Silence::Ended);
            }
            if left.is_zero() {
                return Err(Silence::Late);
            }
            if self.stdout.is_none() && closed.get_or_insert_with(Instant::now).elapsed() > AFTER_CLOSING {
                return Err(Silence::Closed);
            }
        }
    }

    /// Ends the subject's input and waits until it has ended.
    pub(super) fn end_of_input(&mut self, limit: Duration) -> Result<(), Silence> {
        self.nothing_unasked()?;
        self.stdin = None;
        let deadline = Instant::now() + limit;
        loop {
            let left = self.serve(&mut &[][..], deadline)?;
            let has_ended = self.tree.has_ended();
            self.nothing_unasked()?;
            if has_ended {
                return Ok(());
            }
            if left.is_zero() {
                return Err(Silence::Late);
            }
        }
    }

    pub(super) fn killer(&self) -> Killer {
        self.tree.killer()
    }

    pub(super) fn processes(&self) -> Vec<Pid> {
        self.tree.processes()
    }

    /// Ends every process of the subject; says how its first one ended, by itself or now.
    pub(super) fn kill(&mut self) -> String {
        self.stdin = None;
        self.tree.end()
    }

    /// What it wrote to its standard error.
    pub(super) fn said(&mut self) -> Option<String> {
        // What cannot be read any more was not said.
        let _ = read_available(&mut self.stderr, |piece| self.said.push(piece));
        self.said.text()
    }

    /// The beginning of a line that has no end.
    pub(super) fn unfinished(&self) -> &[u8] {
        self.lines.rest()
    }

    pub(super) fn nothing_unasked(&mut self) -> Result<(), Silence> {
        self.read_standard_output()?;
        match self.lines.rest() {
            [] => Ok(()),
            rest => Err(Silence::Unasked(rest.to_vec())),
        }
    }

    fn read_standard_output(&mut self) -> io::Result<()> {
        read_available(&mut self.stdout, |piece| self.lines.push(piece))
    }

    /// Waits for a moment until something can be sent or has come, and does that. Says how much time is left.
    fn serve(&mut self, unsent: &mut &[u8], deadline: Instant) -> io::Result<Duration> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waited = Vec::with_capacity(3);
        if let Some(stdin) = self.stdin.as_ref().filter(|_| !unsent.is_empty()) {
            waited.push(PollFd::new(stdin, PollFlags::OUT));
        }
        waited.extend(self.stdout.as_ref().map(|stdout| PollFd::new(stdout, PollFlags::IN)));
        waited.extend(self.stderr.as_ref().map(|stderr| PollFd::new(stderr, PollFlags::IN)));
        let timeout = Timespec::try_from(left.min(LOOK)).map_err(io::Error::other)?;
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.send(unsent)?;
        self.read_standard_output()?;
        read_available(&mut self.stderr, |piece| self.said.push(piece))?;
        Ok(left)
    }

    fn send(&mut self, unsent: &mut &[u8]) -> io::Result<()> {
        while let (Some(stdin), false) = (&mut self.stdin, unsent.is_empty()) {
            match stdin.write(unsent) {
                Ok(sent) => *unsent = &unsent[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It does not read any more. Whether it has ended shows elsewhere.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    self.stdin = None;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads what is there now; closes a pipe that has no more.
fn read_available(pipe: &mut Option<impl Read>, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut piece = [0; 16 << 10];
    for _ in 0..PIECES {
        let Some(open) = pipe else { break };
        match open.read(&mut piece) {
            Ok(0) => *pipe = None,
            Ok(size) => take(&piece[..size]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What starts a program, to which its arguments are to be added.
fn command(program: &OsStr, manner: Manner) -> Command {
    match manner {
        Manner::Plain | Manner::Apart => Command::new(program),
        Manner::User(id) => {
            let mut command = Command::new(program);
            command.uid(id).gid(id);
            command
        }
        // A signal that is ignored stays so in a program that is executed.
        Manner::IgnoringFileSizeSignal => {
            let mut command = Command::new("sh");
            command.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#]).arg(program);
            command
        }
    }
}

/// The end of what a subject wrote to its standard error.
#[derive(Debug, Default)]
struct Said {
    last: VecDeque<u8>,
    left_out: usize,
}

impl Said {
    fn push(&mut self, piece: &[u8]) {
        self.last.extend(piece);
        let excess = self.last.len().saturating_sub(KEPT_OF_STANDARD_ERROR);
        self.last.drain(..excess);
        self.left_out += excess;
    }

    fn text(&self) -> Option<String> {
        let (first, second) = self.last.as_slices();
        let last = String::from_utf8_lossy(&[first, second].concat()).into_owned();
        match self.left_out {
            _ if last.is_empty() => None,
            0 => Some(last),
            left_out => Some(format!("({left_out} bytes before this are left out)\n{last}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_standard_error_the_end_is_kept() {
        let mut said = Said::default();
        assert_eq!(said.text(), None);
        said.push(&vec![b'a'; KEPT_OF_STANDARD_ERROR]);
        said.push("the error".as_bytes());
        let text = said.text().expect("something was said");
        assert!(text.starts_with("(9 bytes before this are left out)\na"), "{}", &text[..60]);
        assert!(text.ends_with("athe error") && text.len() < KEPT_OF_STANDARD_ERROR + 60);
    }
}
