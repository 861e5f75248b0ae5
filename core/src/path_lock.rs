//! One commit at a time per session file within a process (requirement S8).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::{Duration, Instant};

use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, ThreadId, thread};

/// Which session file: the directory's device and inode, and the name. A path would be wrong here, since a
/// directory has many.
type Key = (u64, u64, OsString);

/// The locks of one process on one file system.
#[derive(Clone, Default)]
pub struct PathLocks(Arc<Table>);

#[derive(Default)]
struct Table {
    holders: Mutex<HashMap<Key, ThreadId>>,
    changed: Condvar,
}

/// Why a path lock was not had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotLocked {
    /// This very thread holds it: waiting would never end.
    HeldByThisThread,
    /// Another thread held it for as long as the caller was ready to wait.
    TimedOut,
}

/// How long a commit waits for another one of the same process on the same file. With the three seconds that it may
/// then wait for another process this stays below the five within which a caller over a protocol expects an answer.
const PATIENCE: Duration = Duration::from_millis(1_500);

impl PathLocks {
    /// A table of its own, for a new file system or a new process.
    pub fn new() -> PathLocks {
        PathLocks::default()
    }

    pub(crate) fn lock(&self, device: u64, inode: u64, name: &OsStr) -> Result<PathGuard, NotLocked> {
        let key = (device, inode, name.to_owned());
        let me = thread::current().id();
        let deadline = Instant::now() + PATIENCE;
        let mut holders = self.holders();
        loop {
            match holders.get(&key) {
                None => {
                    holders.insert(key.clone(), me);
                    return Ok(PathGuard { locks: self.clone(), key });
                }
                Some(holder) if *holder == me => return Err(NotLocked::HeldByThisThread),
                Some(_) => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NotLocked::TimedOut);
            }
            holders = self.0.changed.wait_timeout(holders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<Key, ThreadId>> {
        // The map is whole after every statement that holds the guard, so a panic elsewhere spoils nothing.
        self.0.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PathLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathLocks").finish_non_exhaustive()
    }
}

/// Holds a path lock until dropped.
#[derive(Debug)]
pub(crate) struct PathGuard {
    locks: PathLocks,
    key: Key,
}

impl Drop for PathGuard {
    fn drop(&mut self) {
        self.locks.holders().remove(&self.key);
        self.locks.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_by_the_holder_is_refused_at_once() {
        let locks = PathLocks::new();
        let held = locks.lock(1, 2, OsStr::new("a")).unwrap();
        assert_eq!(locks.lock(1, 2, OsStr::new("a")).unwrap_err(), NotLocked::HeldByThisThread);
        assert!(locks.lock(1, 2, OsStr::new("b")).is_ok());
        drop(held);
        assert!(locks.lock(1, 2, OsStr::new("a")).is_ok());
    }

    #[test]
    fn another_thread_waits_for_its_turn() {
        let locks = PathLocks::new();
        let held = locks.lock(1, 2, OsStr::new("a")).unwrap();
        let other = locks.clone();
        let waiter = thread::spawn(move || other.lock(1, 2, OsStr::new("a")).is_ok());
        drop(held);
        assert!(waiter.join().unwrap());
    }
}
