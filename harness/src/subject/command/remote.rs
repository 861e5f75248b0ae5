//! A store that is known by its answers alone, as a whole run knows it.

use std::sync::{Mutex, PoisonError};

use super::{Command, Manner, StartError, Starter, Use};
use crate::call::{Call, Reply};
use crate::protocol::Hello;
use crate::subject::Subject;
#[cfg(feature = "sqlite")]
use crate::subject::sqlite;

/// A store of which only the answers are seen, on a real directory: one behind the protocol that has said what it is, or
/// one in this process that makes its system calls itself.
#[derive(Debug)]
pub struct Remote {
    source: Source,
    hello: Hello,
    broke: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Source {
    Behind(Starter),
    Here(fn() -> Box<dyn Subject>),
}

impl Remote {
    /// Starts it once, to be told what it is.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn greet(command: Command, used: Use) -> Result<Remote, StartError> {
        let starter = Starter::new(command, used);
        let hello = starter.start()?.greeting().clone();
        Ok(Remote { source: Source::Behind(starter), hello, broke: Mutex::default() })
    }

    /// A store in this process that says `hello` and makes its system calls itself.
    pub fn here(hello: Hello, start: fn() -> Box<dyn Subject>) -> Remote {
        Remote { source: Source::Here(start), hello, broke: Mutex::default() }
    }

    /// SQLite, in this process.
    #[cfg(feature = "sqlite")]
    pub fn sqlite() -> Remote {
        Remote::here(sqlite::hello(), || Box::new(sqlite::Sqlite::default()))
    }

    /// What it says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// What names it behind `--subject`.
    pub fn name(&self) -> String {
        match &self.source {
            Source::Behind(starter) => starter.command().to_string(),
            Source::Here(_) => self.hello.name.clone(),
        }
    }

    /// As one word of a shell behind `--subject`.
    pub fn quoted(&self) -> String {
        match &self.source {
            Source::Behind(starter) => starter.command().quoted(),
            Source::Here(_) => self.hello.name.clone(),
        }
    }

    /// As reports name it.
    pub fn title(&self) -> String {
        let Hello { name, version, language, format, .. } = &self.hello;
        let place = match self.source {
            Source::Behind(_) => "in a process of its own",
            Source::Here(_) => "in process",
        };
        format!("{name} {version} ({language}, format {format}, {place})")
    }

    /// Why suites that disturb system calls do not see it.
    pub fn out_of_sight(&self) -> &'static str {
        match self.source {
            Source::Behind(_) => "the system calls of another process are not open to this harness",
            Source::Here(_) => "it makes its system calls itself, past the harness",
        }
    }

    /// A process of it.
    ///
    /// # Errors
    /// [`StartError`] where there is none, such as one of another manner for a store in this process.
    pub fn start_as(&self, manner: Manner) -> Result<Box<dyn Subject>, StartError> {
        match &self.source {
            Source::Behind(starter) => Ok(Box::new(starter.start_as(manner)?)),
            Source::Here(_) if manner.takes_a_process() => Err(StartError::NoProcess),
            Source::Here(start) => Ok(start()),
        }
    }

    /// A process of it, or what answers in its place that there is none.
    pub fn start(&self) -> Box<dyn Subject> {
        self.start_as(Manner::Plain).unwrap_or_else(|error| Box::new(Unstarted(error.to_string())))
    }

    /// Takes note of how it broke the protocol; of the first time.
    pub fn note_break(&self, how: &str) {
        self.broke.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| how.to_owned());
    }

    /// How it broke the protocol the first time.
    pub fn first_break(&self) -> Option<String> {
        self.broke.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What stands for a process that could not be started, although another one could.
struct Unstarted(String);

impl Subject for Unstarted {
    fn call(&mut self, _call: &Call) -> Reply {
        Reply::Exited(self.0.clone())
    }
}
