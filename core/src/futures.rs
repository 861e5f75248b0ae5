//! Store and tree operations as futures, with the `tokio` feature.
//!
//! An operation takes its place in the store's queue when the method is called, not when its future is first polled,
//! and runs to its end whatever becomes of the future: **dropping a future does not cancel the operation**. One
//! blocking task per store drains what is waiting.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

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
}

/// A tree whose operations are futures. Cloning gives another handle on the same leaf.
#[derive(Clone)]
pub struct AsyncTree<O: FileOps = OsFileOps> {
    tree: Tree<O>,
    store: AsyncStore<O>,
}

/// The jobs of one store, however many wrappers it has: two drains could wait for each other where a runtime has
/// threads for one only. A job keeps its store alive, and with that these jobs, until it was run or given up.
#[derive(Clone, Default)]
pub(crate) struct Jobs(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    draining: bool,
}

impl<O: FileOps> AsyncStore<O> {
    /// Wraps a store. Blocking calls on `store` itself, and on other wrappers of it, share the one queue.
    pub fn new(store: Store<O>) -> AsyncStore<O> {
        AsyncStore { store }
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
        // Before a ticket is drawn, because it panics where no runtime is entered.
        let runtime = Handle::current();
        let jobs = self.store.jobs();
        let mut state = jobs.lock();
        state.waiting.push_back(job(self.store.ticket()?));
        let idle = !std::mem::replace(&mut state.draining, true);
        drop(state);
        if idle {
            // Not under the lock: a runtime that was shut down drops the drain at once, and a drain locks the jobs.
            let drain = Drain { jobs: jobs.clone(), done: false };
            runtime.spawn_blocking(move || drain.run());
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
struct Drain {
    jobs: Jobs,
    /// Nothing was waiting any more: what waits from then on is another drain's.
    done: bool,
}

impl Drain {
    fn run(mut self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&mut self) -> Option<Job> {
        let mut state = self.jobs.lock();
        let job = state.waiting.pop_front();
        state.draining = job.is_some();
        self.done = job.is_none();
        job
    }
}

impl Drop for Drain {
    /// A runtime that shuts down drops a drain that never ran: its jobs give their places in the queue up, so that
    /// blocking calls on the store go on.
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.jobs.lock();
        state.draining = false;
        let given_up = std::mem::take(&mut state.waiting);
        drop(state);
        drop(given_up);
    }
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Held for one push or one pop, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn runtime_gone() -> Error {
    Error::new(Code::Io, "Q1", "the runtime was shut down before the operation began")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: Q1
    #[test]
    fn a_drain_that_is_done_leaves_the_jobs_of_the_next_one_alone() {
        let jobs = Jobs::default();
        jobs.lock().draining = true;
        let mut ending = Drain { jobs: jobs.clone(), done: false };
        assert!(ending.next().is_none());
        // A call comes in before the first drain is gone.
        jobs.lock().waiting.push_back(Box::new(|| ()));
        jobs.lock().draining = true;
        drop(ending);
        assert_eq!(seen(&jobs), (1, true));
        drop(Drain { jobs: jobs.clone(), done: false });
        assert_eq!(seen(&jobs), (0, false));
    }

    fn seen(jobs: &Jobs) -> (usize, bool) {
        let state = jobs.lock();
        (state.waiting.len(), state.draining)
    }
}
