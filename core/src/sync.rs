//! What threads meet at: the standard library's, or in the crate's own tests that of a tool which tries the orders in
//! which threads can run. With `--cfg loom` every order up to a bound is tried, with `--cfg shuttle` a seed draws them;
//! `scripts/threads.sh` runs both.
//!
//! Loom has no timed waits and no locks for many readers, so that with it only the queue is asked.

#[cfg(all(test, loom))]
pub(crate) mod queue {
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;
    pub(crate) use loom::thread::ThreadId;
}

#[cfg(not(all(test, loom)))]
pub(crate) mod queue {
    pub(crate) use super::{Arc, Condvar, Mutex, MutexGuard, ThreadId, thread};
}

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{
    sync::atomic::AtomicUsize,
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
    thread::ThreadId,
};

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::{
    sync::atomic::AtomicUsize,
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
    thread::ThreadId,
};

// Neither tool has anything of its own here but loom, whose counts only its own threads need.
pub(crate) use std::sync::{Arc, PoisonError, atomic::Ordering};
