//! Subjects for one case after another: a process for each, or one that is used again.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::fs::chown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tempfile::TempDir;

use super::{Command, Manner, Over, Running, StartError};
use crate::call::{Call, Reply};
use crate::protocol::Hello;
use crate::subject::{Killer, Subject};

/// Whether a process serves more than one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Each case has one of its own.
    Once,
    /// A process that a case leaves in order serves another one: for runtimes that start slowly.
    Again,
}

/// Starts subjects, each in an empty directory that goes with it. A clone shares the idle ones.
#[derive(Debug, Clone)]
pub struct Starter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    command: Command,
    used: Use,
    idle: Mutex<Vec<Started>>,
}

#[derive(Debug)]
struct Started {
    running: Running,
    _directory: TempDir,
}

impl Starter {
    /// No subject yet.
    pub fn new(command: Command, used: Use) -> Starter {
        Starter(Arc::new(Shared { command, used, idle: Mutex::default() }))
    }

    /// The command.
    pub fn command(&self) -> &Command {
        &self.0.command
    }

    /// A subject that has no store open.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn start(&self) -> Result<Lent, StartError> {
        let idle = self.idle().pop();
        match idle {
            Some(idle) => Ok(self.lend(idle, self.0.used)),
            None => self.fresh(Manner::Plain, self.0.used),
        }
    }

    /// A subject of a process of its own, which serves one case.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn start_as(&self, manner: Manner) -> Result<Lent, StartError> {
        match manner {
            Manner::Plain => self.start(),
            _ => self.fresh(manner, Use::Once),
        }
    }

    fn fresh(&self, manner: Manner, used: Use) -> Result<Lent, StartError> {
        let directory = tempfile::tempdir().map_err(StartError::Directory)?;
        if let Manner::User(id) = manner {
            chown(directory.path(), Some(id), Some(id)).map_err(StartError::Directory)?;
        }
        let running = self.0.command.start_as(directory.path(), manner)?;
        Ok(self.lend(Started { running, _directory: directory }, used))
    }

    fn lend(&self, started: Started, used: Use) -> Lent {
        let greeting = started.running.hello().clone();
        Lent { started: Some(started), greeting, used, opened: BTreeSet::new(), starter: self.clone() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Started>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subject for one case. Dropped, it is killed, unless it serves another case.
pub struct Lent {
    /// There until it is killed or given back.
    started: Option<Started>,
    greeting: Hello,
    used: Use,
    opened: BTreeSet<String>,
    starter: Starter,
}

impl Lent {
    /// What it says of itself.
    pub fn greeting(&self) -> &Hello {
        &self.greeting
    }

    /// Ends the case: in an orderly way the process too, unless it serves another case.
    ///
    /// # Errors
    /// What the subject did at the end of its input instead of ending; its stores are closed by then.
    pub fn finish(mut self) -> Result<(), Over> {
        if self.give_back() {
            return Ok(());
        }
        self.started.take().map_or(Ok(()), |started| started.running.finish())
    }

    /// Whether it serves another case now: one that still answers, with every store closed.
    fn give_back(&mut self) -> bool {
        if self.used == Use::Once {
            return false;
        }
        for store in std::mem::take(&mut self.opened) {
            if !matches!(self.call(&Call::Close { store }), Reply::Ok(_)) {
                return false;
            }
        }
        match self.started.take_if(|started| started.running.over().is_none()) {
            Some(started) => {
                self.starter.idle().push(started);
                true
            }
            None => false,
        }
    }

    fn note(&mut self, call: &Call, reply: &Reply) {
        let Reply::Ok(answer) = reply else { return };
        match call {
            Call::Create { store, .. } | Call::Load { store, .. } => {
                self.opened.insert(store.clone());
            }
            Call::Close { store } => {
                self.opened.remove(store);
            }
            Call::Concurrent { calls } => {
                let replies = answer.answers.as_deref().unwrap_or_default();
                calls.iter().zip(replies).for_each(|(call, reply)| self.note(call, reply));
            }
            _ => {}
        }
    }
}

impl Subject for Lent {
    fn call(&mut self, call: &Call) -> Reply {
        let Some(started) = &mut self.started else {
            return Reply::Exited("it was given back".to_owned());
        };
        let reply = started.running.call(call);
        self.note(call, &reply);
        reply
    }

    fn said(&mut self) -> Option<String> {
        self.started.as_mut().and_then(|started| started.running.said())
    }

    fn unasked(&mut self) -> Option<String> {
        self.started.as_mut().and_then(|started| started.running.unasked())
    }

    fn killer(&self) -> Option<Killer> {
        self.started.as_ref().and_then(|started| started.running.killer())
    }

    fn processes(&self) -> Vec<Pid> {
        self.started.as_ref().map_or_else(Vec::new, |started| started.running.processes())
    }

    fn kill(mut self: Box<Self>) {
        if let Some(started) = self.started.take() {
            Box::new(started.running).kill();
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("started", &self.started).finish_non_exhaustive()
    }
}
