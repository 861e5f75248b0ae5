//! Store and tree operations as futures, with the `tokio` feature.
//!
//! An operation takes its place in the store's queue when the method is called, not when its future is first polled,
//! and runs to its end whatever becomes of the future: **dropping a future does not cancel the operation**. One
//! blocking task per store drains what is waiting.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::error::{Code, Error, Result};
use crate::file_ops::{FileOps, OsFileOps};
use crate::message::Message;
use crate::queue::Ticket;
use crate::record::Entry;
use crate::store::Store;
use crate::text::Text;
use crate::tree::Tree;

type Job = Box<dyn FnOnce() + Send>;

/// A store whose operations are futures. Cloning gives another handle on the same store and queue.
#[derive(Clone)]
pub struct AsyncStore<O: FileOps = OsFileOps> {
    store: Store<O>,
    jobs: Arc<Mutex<Jobs>>,
}

/// A tree whose operations are futures. Cloning gives another handle on the same leaf.
#[derive(Clone)]
pub struct AsyncTree<O: FileOps = OsFileOps> {
    tree: Tree<O>,
    store: AsyncStore<O>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    draining: bool,
}

impl<O: FileOps> AsyncStore<O> {
    /// Wraps a store. Blocking calls on `store` itself share the one queue.
    pub fn new(store: Store<O>) -> AsyncStore<O> {
        AsyncStore { store, jobs: Arc::default() }
    }

    /// The store, for everything that neither queues nor touches the disk.
    pub fn store(&self) -> &Store<O> {
        &self.store
    }

    /// A tree whose active leaf is the last stored entry.
    pub fn tree(&self) -> AsyncTree<O> {
        AsyncTree { tree: self.store.tree(), store: self.clone() }
    }

    /// As [`Store::append`].
    ///
    /// # Errors
    /// As [`Store::append`].
    ///
    /// # Panics
    /// Where no tokio runtime is entered.
    pub fn append(
        &self,
        parent: Option<&str>,
        message: Message,
    ) -> impl Future<Output = Result<Entry>> + Send + use<O> {
        let (store, parent) = (self.store.clone(), parent.map(Text::from));
        let valid = message.validate();
        self.submit(valid, move |ticket| store.append_in(&ticket.wait(), parent.as_deref(), message))
    }

    /// As [`Store::flush`].
    ///
    /// # Errors
    /// As [`Store::flush`].
    ///
    /// # Panics
    /// Where no tokio runtime is entered.
    pub fn flush(&self) -> impl Future<Output = Result<()>> + Send + use<O> {
        let store = self.store.clone();
        self.submit(Ok(()), move |ticket| store.flush_in(&ticket.wait()))
    }

    /// Queues `run` behind every operation that was called before, and gives its answer when it comes.
    fn submit<T, F>(&self, valid: Result<()>, run: F) -> impl Future<Output = Result<T>> + Send + use<T, F, O>
    where
        T: Send + 'static,
        F: FnOnce(Ticket) -> Result<T> + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let queued = valid.and_then(|()| {
            self.enqueue(|ticket| {
                Box::new(move || {
                    // Nobody may be listening any more; the operation has happened all the same.
                    let _ = answer.send(run(ticket));
                })
            })
        });
        async move {
            queued?;
            receiver.await.unwrap_or_else(|_| Err(runtime_gone()))
        }
    }

    /// The ticket is drawn under the lock of the jobs, so that both queues have one order: a job that waited for a
    /// ticket behind it would hold its own drain up for ever.
    fn enqueue(&self, job: impl FnOnce(Ticket) -> Job) -> Result<()> {
        let mut jobs = lock(&self.jobs);
        jobs.waiting.push_back(job(self.store.ticket()?));
        if !jobs.draining {
            jobs.draining = true;
            let drain = Drain(Arc::clone(&self.jobs));
            spawn_blocking(move || drain.run());
        }
        Ok(())
    }
}

impl<O: FileOps> AsyncTree<O> {
    /// The tree, for reads.
    pub fn tree(&self) -> &Tree<O> {
        &self.tree
    }

    /// As [`Tree::move_to`].
    ///
    /// # Errors
    /// As [`Tree::move_to`].
    ///
    /// # Panics
    /// Where no tokio runtime is entered.
    pub fn move_to(&self, id: Option<&str>) -> impl Future<Output = Result<()>> + Send + use<O> {
        let (tree, id) = (self.tree.clone(), id.map(Text::from));
        self.store.submit(Ok(()), move |ticket| {
            let _turn = ticket.wait();
            tree.move_in(id.as_deref())
        })
    }

    /// As [`Tree::append`].
    ///
    /// # Errors
    /// As [`Tree::append`].
    ///
    /// # Panics
    /// Where no tokio runtime is entered.
    pub fn append(&self, message: Message) -> impl Future<Output = Result<Entry>> + Send + use<O> {
        let tree = self.tree.clone();
        let valid = message.validate();
        self.store.submit(valid, move |ticket| tree.append_in(&ticket.wait(), message))
    }
}

impl<O: FileOps> fmt::Debug for AsyncStore<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncStore").field(&self.store).finish()
    }
}

impl<O: FileOps> fmt::Debug for AsyncTree<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncTree").field(&self.tree).finish()
    }
}

/// Runs the waiting jobs one after the other.
struct Drain(Arc<Mutex<Jobs>>);

impl Drain {
    fn run(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = lock(&self.0);
        let job = jobs.waiting.pop_front();
        jobs.draining = job.is_some();
        job
    }
}

impl Drop for Drain {
    /// A runtime that shuts down drops a drain that never ran: its jobs give their places in the queue up, so that
    /// blocking calls on the store go on.
    fn drop(&mut self) {
        let mut jobs = lock(&self.0);
        if jobs.draining {
            jobs.draining = false;
            let given_up = std::mem::take(&mut jobs.waiting);
            drop(jobs);
            drop(given_up);
        }
    }
}

fn lock(jobs: &Mutex<Jobs>) -> MutexGuard<'_, Jobs> {
    // Held for one push or one pop, so a panic elsewhere leaves it whole.
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime_gone() -> Error {
    Error::new(Code::Io, "Q1", "the runtime was shut down before the operation began")
}
