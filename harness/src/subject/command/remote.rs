//! A store behind the protocol, as a whole run knows it.

use std::sync::{Mutex, PoisonError};

use super::{Command, StartError, Starter, Use};
use crate::call::{Call, Reply};
use crate::protocol::Hello;
use crate::subject::Subject;

/// A store behind the protocol that has said what it is.
#[derive(Debug)]
pub struct Remote {
    starter: Starter,
    hello: Hello,
    broke: Mutex<Option<String>>,
}

impl Remote {
    /// Starts it once, to be told what it is.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn greet(command: Command, used: Use) -> Result<Remote, StartError> {
        let starter = Starter::new(command, used);
        let hello = starter.start()?.greeting().clone();
        Ok(Remote { starter, hello, broke: Mutex::default() })
    }

    /// What it says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// What starts its processes.
    pub fn starter(&self) -> &Starter {
        &self.starter
    }

    /// As reports name it.
    pub fn title(&self) -> String {
        let Hello { name, version, language, format, .. } = &self.hello;
        format!("{name} {version} ({language}, format {format}, in a process of its own)")
    }

    /// A process of it, or what answers in its place that there is none.
    pub fn start(&self) -> Box<dyn Subject> {
        match self.starter.start() {
            Ok(lent) => Box::new(lent),
            Err(error) => Box::new(Unstarted(error.to_string())),
        }
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
