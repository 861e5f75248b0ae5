//! A simulated machine with one disk: directories, files, symlinks, FIFOs, hard links, descriptors, locks, limits,
//! and what is durable kept apart from what is cached.
//!
//! [`Process`] implements [`FileOps`](session_tree::file_ops::FileOps) and agrees with Linux error by error; the
//! test `disk_agrees_with_a_real_directory` holds both side by side. A second process on the same machine has
//! descriptors, locks and path locks of its own. Everything is deterministic: times are virtual, inode numbers are
//! given out lowest first, the unique parts of temporaries count up.
//!
//! # What is durable
//!
//! An inode has bytes and attributes in the cache and, apart from them, durable ones, plus the list of changes since
//! its last successful fsync. A directory has entries in the cache and, apart from them, durable entries, plus the
//! list of changes of names since its last successful fsync. All changes of a disk are ordered by one clock, and the
//! disk remembers up to which instant a journalled file system would have written its journal. [`Disk::unsettled`]
//! shows all this, [`Disk::after_cut`] builds the machine after a power cut from a choice of what survived, and
//! [`Disk::durable_tree`] is the least that survives. Which choices are legal is not decided here.
//!
//! A new inode's kind, mode, owner and, for a symlink, target are durable with its name; its bytes are not.
//!
//! # Where this is simpler than a file system
//!
//! - Space is counted in bytes of file size; holes count. A write past the end needs the gap too.
//! - A directory's size is always 4096.
//! - Processes have one group and no capabilities; user 0 may do anything. A process is always in the root directory.
//! - Names with a slash are answered with EINVAL: the boundary promises single components.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use session_tree::Errno;

mod calls;
mod durability;
mod node;
mod outside;
mod path;
mod process;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;

pub use durability::{
    CutOutcome, SyncFault, Unsettled, UnsettledAttributes, UnsettledDirectory, UnsettledFile,
};
pub use node::{AttributeChange, Attributes, DataChange, DataEdit, Name, NameChange, NodeId};
pub use process::{Process, SimDir, SimFile};
pub use snapshot::{Tree, TreeNode};

use state::{State, Who};

/// What every call of a killed process answers: `ESRCH`, which no real file system call does.
pub const KILLED: Errno = Errno::from_raw(3);

/// What [`Process::open_plainly`] answers where a real program would wait for ever: `EDEADLK`, which no real open does.
pub const WOULD_HANG: Errno = Errno::from_raw(35);

/// A machine. Clones are handles on the same one; [`Disk::fork`] makes another.
#[derive(Clone)]
pub struct Disk(Arc<Machine>);

/// What a machine's disk can do and hold. May be changed at any time with [`Disk::update_options`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
// Each flag is a feature of its own that a file system has or lacks.
#[expect(clippy::struct_excessive_bools)]
pub struct Options {
    /// Bytes of all files together. What is over a lowered limit stays, and nothing more fits.
    pub space: Option<u64>,
    /// Bytes that each name takes of `space`.
    pub entry_space: u64,
    /// Inodes, the root directory included; a file counts until its last name and descriptor are gone.
    pub inodes: Option<u64>,
    /// Open files and directories of one process: one more is `EMFILE`.
    pub descriptors_per_process: Option<usize>,
    /// Bytes of one file: a write that begins beyond is `EFBIG`.
    pub largest_file: u64,
    /// Names of one inode: one more is `EMLINK`.
    pub links_per_inode: u32,
    /// Bytes of one name: a longer one is `ENAMETOOLONG`.
    pub name_limit: u64,
    /// Whether a file may have several names; if not, `link` is `EPERM`.
    pub hard_links: bool,
    /// Whether only a file's owner or someone who may read and write it may give it a further name
    /// (`fs.protected_hardlinks`).
    pub protected_hard_links: bool,
    /// Whether a stranger's symlink is not followed in a sticky directory that anyone may write to
    /// (`fs.protected_symlinks`).
    pub protected_symlinks: bool,
    /// Advisory locks.
    pub locks: LockSupport,
    /// What an fsync of a directory answers. Where it is an error, nothing becomes durable by it.
    pub directory_sync: Result<(), Errno>,
    /// Whether every change is `EROFS`.
    pub read_only: bool,
    /// Whether looks show when an inode came to be.
    pub birth_times: bool,
    /// Whether a new inode gets the lowest number that is free, else one never used before.
    pub reuse_inodes: bool,
}

/// What advisory locks a disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockSupport {
    /// Shared and exclusive, on any descriptor.
    Full,
    /// None: asking for one fails.
    Unsupported(Errno),
    /// An exclusive lock needs a descriptor open for writing, as over NFS; else `EBADF`.
    ExclusiveNeedsWriting,
}

impl Default for Options {
    /// Room for everything, everything supported, numbers of removed inodes used again.
    fn default() -> Options {
        Options {
            space: None,
            entry_space: 0,
            inodes: None,
            descriptors_per_process: None,
            largest_file: 1 << 28,
            links_per_inode: 65_000,
            name_limit: 255,
            hard_links: true,
            protected_hard_links: true,
            protected_symlinks: true,
            locks: LockSupport::Full,
            directory_sync: Ok(()),
            read_only: false,
            birth_times: true,
            reuse_inodes: true,
        }
    }
}

impl Default for Disk {
    fn default() -> Disk {
        Disk::new(Options::default())
    }
}

impl Disk {
    /// A machine with an empty root directory of mode 0755, which belongs to user 0.
    pub fn new(options: Options) -> Disk {
        Disk::from_state(State::new(options))
    }

    /// The present limits.
    pub fn options(&self) -> Options {
        self.state().options
    }

    /// Changes limits: a disk that fills up and is emptied again, a remount.
    pub fn update_options(&self, update: impl FnOnce(&mut Options)) {
        update(&mut self.state().options);
    }

    /// The living process of that id, or a new one of user 0 with the mask 022.
    pub fn process(&self, pid: u32) -> Process {
        Process::new(&self.0, pid, None)
    }

    /// As [`Disk::process`], and from now on the process acts as this user and group with this mask.
    pub fn process_as(&self, pid: u32, user: u32, group: u32, umask: u32) -> Process {
        Process::new(&self.0, pid, Some(Who { user, group, umask }))
    }

    /// Ends a process: its descriptors and locks are gone. Every later call through its handles answers [`KILLED`]
    /// and does nothing, and dropping its files and directories touches nothing. The id may be used again.
    pub fn kill(&self, pid: u32) {
        self.state().kill(pid);
    }

    /// Another machine with the same disk and cache, unsettled changes included, but without processes and without
    /// the action of [`Disk::on_pause`]. Cheap: contents are shared until changed.
    #[must_use]
    pub fn fork(&self) -> Disk {
        Disk::from_state(self.state().fork())
    }

    /// The disk's clock: it moves with every change of anything, so equal times mean that nothing was changed between.
    pub fn time(&self) -> u64 {
        self.state().clock
    }

    /// Descriptors that the living process of that id has.
    pub fn open_descriptors(&self, pid: u32) -> usize {
        self.state().open_descriptors(pid)
    }

    /// Advisory locks that anyone holds.
    pub fn held_locks(&self) -> usize {
        self.state().held_locks()
    }

    /// Bytes that still fit, `u64::MAX` without a limit.
    pub fn room(&self) -> u64 {
        self.state().room()
    }

    /// Inodes that have a name or a descriptor, the root directory included.
    pub fn live_inodes(&self) -> u64 {
        self.state().live
    }

    /// Lets `action` run whenever a process pauses, with the number of the attempt: another process gets its turn.
    /// It may use this disk. It does not run within itself.
    pub fn on_pause(&self, action: impl FnMut(u32) + Send + 'static) {
        *self.0.hook() = Some(Box::new(action));
    }

    fn from_state(state: State) -> Disk {
        Disk(Arc::new(Machine { state: Mutex::new(state), hook: Mutex::new(None) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

type Hook = Box<dyn FnMut(u32) + Send>;

struct Machine {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

impl Machine {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not turn every later look at the disk into another one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hook(&self) -> MutexGuard<'_, Option<Hook>> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paused(&self, attempt: u32) {
        // Taken out while it runs, so that it may pause and may set another one.
        let Some(mut hook) = self.hook().take() else { return };
        hook(attempt);
        self.hook().get_or_insert(hook);
    }
}
