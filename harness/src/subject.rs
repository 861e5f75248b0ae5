//! A session store under test.

use std::fmt;

use rustix::process::Pid;

use crate::call::{Call, Reply};
use crate::specimens;
use crate::world::WorldOps;

pub mod command;
mod in_process;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use in_process::{InProcess, REFERENCE, Reference};

/// A process of a store under test, whatever it is written in.
pub trait Subject: Send {
    /// Asks one thing and waits for the answer.
    fn call(&mut self, call: &Call) -> Reply;

    /// The last of what it wrote to its standard error, for people; none where it has none of its own.
    fn said(&mut self) -> Option<String> {
        None
    }

    /// What it sent that no request asked for, as far as that has come; none where it keeps to the protocol.
    fn unasked(&mut self) -> Option<String> {
        None
    }

    /// What ends it as [`Subject::kill`] does, while a call waits for its answer; none where it is not a process.
    fn killer(&self) -> Option<Killer> {
        None
    }

    /// The processes that it consists of now, the first one first; none where it is not a process of its own.
    fn processes(&self) -> Vec<Pid> {
        Vec::new()
    }

    /// Ends it at once, as `kill -9` does: nothing of it runs any more. In this process that is to drop it, where
    /// that does nothing to the disk.
    fn kill(self: Box<Self>) {}
}

/// Ends a subject from another thread.
pub type Killer = Box<dyn Fn() + Send + Sync>;

/// A store that makes all its system calls through [`WorldOps`], so that each can be made to fail.
pub trait Candidate: fmt::Debug + Sync {
    /// The name in reports, and behind `--subject`.
    fn name(&self) -> String;

    /// Starts a process of it.
    fn start(&self, ops: WorldOps) -> Box<dyn Subject>;

    /// As [`Candidate::start`]; calls that are begun together are at work together, where the store can do that.
    fn start_together(&self, ops: WorldOps) -> Box<dyn Subject> {
        self.start(ops)
    }

    /// How many descriptors an open store of it holds between two calls.
    fn descriptors(&self) -> usize;

    /// Whether its I/O errors name the error number and the stage. Where they do, both must be right.
    fn names_causes(&self) -> bool;
}

/// The store with this name.
///
/// # Errors
/// [`UnknownSubject`] where there is none.
pub fn named(name: &str) -> Result<&'static dyn Candidate, UnknownSubject> {
    let specimen = || specimens::find(name).map(|specimen| specimen as &dyn Candidate);
    let reference = (REFERENCE.name() == name).then_some(REFERENCE);
    reference.or_else(specimen).ok_or_else(|| UnknownSubject(name.to_owned()))
}

/// No store has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no store is called `{0}`: `reference` is the one that ships with this tool, and `session-harness specimens` names the broken ones"
)]
pub struct UnknownSubject(String);
