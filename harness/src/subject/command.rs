//! A store as a child process that speaks [`crate::protocol`].
//!
//! However a subject ends, nothing of it stays: [`Running`] ends the whole tree of processes when it is dropped, also
//! by a panic, and [`end_all_at_signal`] does when this process is told to end. What cannot be caught is a SIGKILL of
//! the harness itself; a subject that keeps to the protocol then ends with its input.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use crate::call::{Call, Refusal, Reply};
use crate::diagnose::harmless;
use crate::protocol::{self, Hello};
use crate::subject::{Killer, Subject};

mod pipes;
mod remote;
mod starter;
mod tree;

use pipes::{Pipes, Silence};
pub use remote::Remote;
pub use starter::{Lent, Starter, Use};
pub use tree::end_all_at_signal;

/// How to start a subject.
#[derive(Debug, Clone)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    limits: Limits,
}

/// How long a subject may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For its first answer.
    pub first: Duration,
    /// For every other one.
    pub each: Duration,
    /// To end after its input has.
    pub end: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { first: protocol::FIRST_ANSWER, each: protocol::ANSWER, end: Duration::from_secs(2) }
    }
}

/// How a process is started, beside the words of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As they say.
    Plain,
    /// For one case alone, in surroundings of that case, such as the file systems that it sees.
    Apart,
    /// With SIGXFSZ ignored, so that a write beyond the limit of a file's size fails and does not end the process.
    IgnoringFileSizeSignal,
    /// As this user, with the group of the same number and no other one. Only root can.
    User(u32),
}

impl Manner {
    /// Whether only a process of its own can be started so.
    pub const fn takes_a_process(self) -> bool {
        matches!(self, Manner::IgnoringFileSizeSignal | Manner::User(_))
    }
}

/// The text is no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no word in it.
    #[error(
        "the command is empty: type the words that start your adapter, as in `--subject 'python3 adapter.py'`"
    )]
    Empty,
    /// A quote without its partner, or a backslash at the end.
    #[error("a quote in {0:?} has no end: quote the whole command once more for your shell")]
    Quotes(String),
}

impl Command {
    /// Splits `text` into words as a shell does. Nothing else of a shell is done: no variables, no pipes.
    ///
    /// A subject starts in an empty directory, so a word that names a file from `here` on is given to it as a whole
    /// path.
    ///
    /// # Errors
    /// [`CommandError`] where that gives no words.
    pub fn parse(text: &str, here: &Path) -> Result<Command, CommandError> {
        let words = shlex::split(text).ok_or_else(|| CommandError::Quotes(text.to_owned()))?;
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.is_empty()).ok_or(CommandError::Empty)?;
        // A program without a slash is looked for as a shell would, not here.
        let program = if program.contains('/') { whole_path(program, here) } else { program.into() };
        Ok(Command {
            program,
            arguments: words.map(|word| whole_path(word, here)).collect(),
            limits: Limits::default(),
        })
    }

    /// A program with arguments, as they are.
    pub fn new(program: impl Into<OsString>, arguments: impl IntoIterator<Item = OsString>) -> Command {
        Command {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            limits: Limits::default(),
        }
    }

    /// Other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Command {
        self.limits = limits;
        self
    }

    /// The limit of every answer but the first, which has at least that long.
    #[must_use]
    pub fn with_timeout(mut self, each: Duration) -> Command {
        self.limits.each = each;
        self.limits.first = self.limits.first.max(each);
        self
    }

    /// As one word of a shell, to be typed after `--subject`.
    pub fn quoted(&self) -> String {
        let text = self.to_string();
        shlex::try_quote(&text).map_or_else(|_| text.clone(), Cow::into_owned)
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Starts a subject whose working directory is `directory`, which should be empty, and greets it.
    ///
    /// # Errors
    /// [`StartError`] where it cannot be started, or the handshake is not one.
    pub fn start(&self, directory: &Path) -> Result<Running, StartError> {
        self.start_as(directory, Manner::Plain)
    }

    /// As [`Command::start`], in another manner.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn start_as(&self, directory: &Path, manner: Manner) -> Result<Running, StartError> {
        let pipes = Pipes::open(&self.program, &self.arguments, directory, manner)
            .map_err(|source| StartError::Spawn { command: self.to_string(), source })?;
        let mut running = Running {
            pipes,
            // Set by the handshake below, without which nobody sees it.
            hello: Hello {
                protocol: 0,
                name: String::new(),
                version: String::new(),
                language: String::new(),
                format: String::new(),
                capabilities: Vec::new(),
            },
            limits: self.limits,
            last: 0,
            over: None,
        };
        match running.greet() {
            Ok(hello) if hello.protocol == protocol::VERSION => {
                running.hello = hello;
                Ok(running)
            }
            Ok(hello) => Err(StartError::Version(hello.protocol)),
            Err(reply) => {
                let said = running.said();
                Err(StartError::Handshake { reply, limit: self.limits.first, said })
            }
        }
    }
}

/// As a person would type it.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        for (at, word) in words.enumerate() {
            let word = word.to_string_lossy();
            let quoted = shlex::try_quote(&word).unwrap_or_else(|_| word.clone());
            write!(f, "{}{}", if at == 0 { "" } else { " " }, harmless::text(quoted.as_bytes()))?;
        }
        Ok(())
    }
}

fn whole_path(word: String, here: &Path) -> OsString {
    let path = here.join(&word);
    if Path::new(&word).is_relative() && path.is_file() { path.into_os_string() } else { word.into() }
}

/// Why there is no subject.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command could not be started at all.
    #[error("cannot start `{command}`: {source}{}", spawn_help(source))]
    Spawn {
        /// The command.
        command: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// What came first was no greeting.
    #[error("{}{}", handshake(reply, *limit), after(said.as_deref()))]
    Handshake {
        /// What it counts as.
        reply: Box<Reply>,
        /// How long the subject had.
        limit: Duration,
        /// The last of what the subject wrote to its standard error.
        said: Option<String>,
    },
    /// It speaks another version.
    #[error("the subject speaks protocol {0}, and this harness {ours}", ours = protocol::VERSION)]
    Version(u32),
    /// It runs in this process.
    #[error("it is no process of its own")]
    NoProcess,
    /// There was no directory for it.
    #[error("cannot make an empty directory to start the subject in: {0}")]
    Directory(io::Error),
}

fn spawn_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; give the program's whole path, or see that it is on PATH",
        io::ErrorKind::PermissionDenied => "; make it executable, or name its interpreter before it",
        _ => "",
    }
}

fn handshake(reply: &Reply, limit: Duration) -> String {
    match reply {
        Reply::Timeout => {
            format!(
                "the subject did not answer `hello` within {limit:?}; write the answer as one line to standard \
                 output and flush it"
            )
        }
        Reply::Exited(how) => format!("the subject ended before it answered: {how}"),
        Reply::Protocol(what) => format!("the subject's first answer breaks the protocol: {what}"),
        Reply::Refused(Refusal { code, message, .. }) => {
            format!("the subject refused `hello`: {code}: {message}")
        }
        Reply::Unsupported(why) => format!("the subject does not support `hello`: {why}"),
        Reply::Ok(_) | Reply::Panicked(_) => "the subject answered something else than `hello`".to_owned(),
    }
}

fn after(said: Option<&str>) -> String {
    said.map_or_else(String::new, |said| format!("\nits standard error:\n{}", indented(said)))
}

/// What a subject wrote, set off from what the harness says.
pub fn indented(said: &str) -> String {
    said.lines().map(|line| format!("  | {}", harmless::text(line.as_bytes()))).collect::<Vec<_>>().join("\n")
}

/// How a subject ended its part in the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// By not answering in time.
    #[error("it did not answer within {0:?}")]
    Late(Duration),
    /// By ending without an answer.
    #[error("it ended: {0}")]
    Exited(String),
    /// By sending what is no answer.
    #[error("{0}")]
    Broke(String),
}

impl From<Over> for Reply {
    fn from(over: Over) -> Reply {
        match over {
            Over::Late(_) => Reply::Timeout,
            Over::Exited(how) => Reply::Exited(how),
            Over::Broke(what) => Reply::Protocol(what),
        }
    }
}

/// A subject that was started and greeted.
pub struct Running {
    pipes: Pipes,
    hello: Hello,
    limits: Limits,
    /// The id of the last request.
    last: u64,
    /// What ended it, which is the answer to everything from then on.
    over: Option<Over>,
}

impl Running {
    /// What it says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Ends its input, which it must take as its end.
    ///
    /// # Errors
    /// What it did instead.
    pub fn finish(mut self) -> Result<(), Over> {
        if let Some(over) = self.over.take() {
            return Err(over);
        }
        let limit = self.limits.end;
        self.pipes.end_of_input(limit).map_err(|silence| self.verdict(silence, limit, "the end of its input"))
    }

    /// What ended it; none while it answers.
    pub fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    fn greet(&mut self) -> Result<Hello, Box<Reply>> {
        self.last += 1;
        let request = protocol::write_hello_request(self.last);
        let line = self.exchange(&request, self.limits.first, "`hello`").map_err(Reply::from)?;
        protocol::read_hello(&line, self.last)
    }

    fn exchange(&mut self, request: &str, limit: Duration, what: &str) -> Result<Vec<u8>, Over> {
        if let Some(over) = &self.over {
            return Err(over.clone());
        }
        self.pipes.exchange(request.as_bytes(), limit).map_err(|silence| self.verdict(silence, limit, what))
    }

    /// Ends it, and keeps why.
    fn verdict(&mut self, silence: Silence, limit: Duration, what: &str) -> Over {
        let status = self.pipes.kill();
        let unfinished = self.pipes.unfinished();
        let over = match silence {
            Silence::Late => Over::Late(limit),
            Silence::Ended if unfinished.is_empty() => Over::Exited(format!("{status}, after {what}")),
            Silence::Ended => Over::Broke(format!(
                "half a line and then the end of the process ({status}), after {what}: {}",
                harmless::shortened(unfinished, 120)
            )),
            Silence::Closed => {
                Over::Broke(format!("standard output was closed while the process went on, after {what}"))
            }
            Silence::Unasked(bytes) => Over::Broke(format!(
                "{}, before {what}: {}; one answer to each request, and nothing else on standard output",
                protocol::unasked(&bytes),
                harmless::shortened(&bytes, 120)
            )),
            Silence::TooLong(too_long) => Over::Broke(format!("{too_long}, after {what}")),
            Silence::Broken(error) => Over::Broke(format!("a pipe that fails, after {what}: {error}")),
        };
        self.over = Some(over.clone());
        over
    }
}

impl Subject for Running {
    fn call(&mut self, call: &Call) -> Reply {
        self.last += 1;
        let request = match protocol::write_call(self.last, call) {
            Ok(request) => request,
            Err(error) => return Reply::Protocol(format!("the request could not be written: {error}")),
        };
        let what = format!("`{}`", call.name());
        let line = match self.exchange(&request, self.limits.each, &what) {
            Ok(line) => line,
            Err(over) => return over.into(),
        };
        let reply = protocol::read_reply(&line, self.last, call, self.hello.is_native());
        if let Reply::Protocol(what) = &reply {
            // No later answer can be believed.
            self.over = Some(Over::Broke(what.clone()));
            self.pipes.kill();
        }
        reply
    }

    fn said(&mut self) -> Option<String> {
        self.pipes.said()
    }

    fn unasked(&mut self) -> Option<String> {
        if self.over.is_some() {
            return None;
        }
        let silence = self.pipes.nothing_unasked().err()?;
        match self.verdict(silence, Duration::ZERO, "the end of the case") {
            Over::Broke(what) => Some(what),
            Over::Late(_) | Over::Exited(_) => None,
        }
    }

    fn killer(&self) -> Option<Killer> {
        Some(self.pipes.killer())
    }

    fn processes(&self) -> Vec<Pid> {
        self.pipes.processes()
    }

    fn kill(mut self: Box<Self>) {
        self.pipes.kill();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("hello", &self.hello)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, here: &Path) -> String {
        Command::parse(text, here).expect("a command").to_string()
    }

    #[test]
    fn a_command_is_split_as_a_shell_does_and_files_become_whole_paths() {
        let here = tempfile::tempdir().expect("a directory");
        let at = |name: &str| here.path().join(name).to_string_lossy().into_owned();
        std::fs::write(at("adapter.py"), "").expect("a file");
        assert_eq!(
            shown("python3 -u adapter.py 'two words' --x=adapter.py missing.py", here.path()),
            format!("python3 -u {} 'two words' '--x=adapter.py' missing.py", at("adapter.py"))
        );
        assert_eq!(shown("./adapter.py", here.path()), at("./adapter.py"));
        // As a shell: a program without a slash is not one that lies here.
        assert_eq!(shown("adapter.py", here.path()), "adapter.py");
        assert_eq!(Command::parse("  ", here.path()).map(|_| ()), Err(CommandError::Empty));
        assert!(matches!(Command::parse("a 'b", here.path()), Err(CommandError::Quotes(_))));
    }
}
