//! The boundary to the file system: every access of the store goes through [`FileOps`], one method per system
//! call, so that a harness can fail, cut, delay or observe each step (requirement B1).
//!
//! Names are single path components relative to a held directory descriptor: a directory that is replaced
//! behind the store's back is noticed, and nothing is written into its successor.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;

use crate::errno::Errno;
use crate::path_lock::PathLocks;

mod os;

pub use os::{OsDir, OsFile, OsFileOps};

/// System calls as the store needs them.
///
/// Methods map one to one to system calls and neither repeat nor hide anything: what is done about `EINTR`,
/// short writes or a lost answer is the store's business (requirement C27). A method that fails may all the same
/// have had its effect; the store looks before it believes either.
///
/// Cloning gives another handle on the same file system within the same process.
pub trait FileOps: Clone + Send + Sync + 'static {
    /// An open file. Dropping it closes it; [`FileOps::close`] does so with an answer.
    type File: Send + Sync + 'static;
    /// An open directory. Dropping it closes it.
    type Dir: Send + Sync + 'static;

    /// Opens a directory (`open` with `O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC`).
    ///
    /// # Errors
    /// `ENOENT` where nothing has that name, `ENOTDIR` where a symlink or anything but a directory has it, `EMFILE`, `EACCES`, `EIO` and others.
    fn open_dir(&self, path: &Path) -> Result<Self::Dir, Errno>;

    /// Looks at a path without following a symlink in its last component (`lstat`).
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `EACCES`, `EIO` and others.
    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno>;

    /// Looks at an open directory (`fstat`).
    ///
    /// # Errors
    /// `EIO` and others.
    fn stat_dir(&self, dir: &Self::Dir) -> Result<FileStat, Errno>;

    /// The longest name in bytes that the directory's file system takes (`fstatvfs`).
    ///
    /// # Errors
    /// `EIO` and others.
    fn name_limit(&self, dir: &Self::Dir) -> Result<u64, Errno>;

    /// Looks at a name without following a symlink (`fstatat` with `AT_SYMLINK_NOFOLLOW`).
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`, `EACCES`, `EIO` and others.
    fn stat_at(&self, dir: &Self::Dir, name: &OsStr) -> Result<FileStat, Errno>;

    /// Creates a regular file that must not exist and opens it for reading and writing
    /// (`openat` with `O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC`). `mode` is subject to the process's mask.
    ///
    /// # Errors
    /// `EEXIST` where anything has that name, `ENOSPC`, `EDQUOT`, `EROFS`, `EMFILE`, `EACCES` and others.
    fn create_new(&self, dir: &Self::Dir, name: &OsStr, mode: u32) -> Result<Self::File, Errno>;

    /// Opens an existing file; never follows a symlink, never blocks on a FIFO or device
    /// (`openat` with `O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC`).
    ///
    /// # Errors
    /// `ENOENT`, `ELOOP` where a symlink has that name, `EMFILE`, `EACCES`, `EIO` and others.
    fn open(&self, dir: &Self::Dir, name: &OsStr, access: Access) -> Result<Self::File, Errno>;

    /// Gives the file at `from` the further name `to`, which must not exist (`linkat`).
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EPERM` where the file system has no hard links, `EMLINK`, `ENOSPC`, `EIO` and others.
    fn link(&self, dir: &Self::Dir, from: &OsStr, to: &OsStr) -> Result<(), Errno>;

    /// Renames `from` over `to`, atomically for `to` (`renameat`). Where both already name one inode, nothing
    /// happens and the call succeeds.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOSPC`, `EIO` and others.
    fn rename(&self, dir: &Self::Dir, from: &OsStr, to: &OsStr) -> Result<(), Errno>;

    /// Removes a name that is not a directory (`unlinkat`).
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EBUSY`, `EROFS`, `EIO` and others.
    fn unlink(&self, dir: &Self::Dir, name: &OsStr) -> Result<(), Errno>;

    /// Every name in the directory but `.` and `..`, in no particular order (`getdents`).
    ///
    /// # Errors
    /// `EIO` and others.
    fn list(&self, dir: &Self::Dir) -> Result<Vec<OsString>, Errno>;

    /// Makes earlier changes of the directory's names durable (`fsync` of the directory).
    ///
    /// # Errors
    /// `EIO`; `EINVAL` or `ENOTSUP` where the file system cannot (requirement C26), and others.
    fn sync_dir(&self, dir: &Self::Dir) -> Result<(), Errno>;

    /// Looks at an open file (`fstat`).
    ///
    /// # Errors
    /// `EIO` and others.
    fn stat(&self, file: &Self::File) -> Result<FileStat, Errno>;

    /// Reads at an offset, at most `buf.len()` bytes; 0 is the end of the file (`pread`).
    ///
    /// # Errors
    /// `EINTR`, `EISDIR`, `EIO` and others.
    fn read_at(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> Result<usize, Errno>;

    /// Writes at an offset and says how many bytes were taken, possibly fewer than offered (`pwritev`).
    ///
    /// # Errors
    /// `EINTR`, `ENOSPC`, `EDQUOT`, `EFBIG`, `EIO` and others.
    fn write_at(&self, file: &Self::File, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno>;

    /// Sets the permission bits (`fchmod`).
    ///
    /// # Errors
    /// `EPERM`, `EROFS`, `EIO` and others.
    fn set_mode(&self, file: &Self::File, mode: u32) -> Result<(), Errno>;

    /// Makes a file's bytes, size and inode durable (`fsync`).
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`, `EDQUOT` and others. After a failure a later success proves nothing (storage assumption A1).
    fn sync(&self, file: &Self::File) -> Result<(), Errno>;

    /// Closes a file (`close`). The descriptor is gone whatever the answer.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`, `EDQUOT` and others.
    fn close(&self, file: Self::File) -> Result<(), Errno>;

    /// Takes an advisory lock on the open file, or says `false` where another holder excludes it
    /// (`flock` with `LOCK_NB`). Never blocks: a blocking lock would hang a simulation of one thread.
    ///
    /// # Errors
    /// `EINTR`; `ENOLCK`, `EOPNOTSUPP` or `ENOSYS` where the file system has no locks; `EBADF` where an
    /// exclusive lock needs a file open for writing.
    fn try_lock(&self, file: &Self::File, kind: Lock) -> Result<bool, Errno>;

    /// Gives the lock of the open file back (`flock` with `LOCK_UN`). A failure is of no consequence: closing the
    /// file ends the lock too.
    fn unlock(&self, file: &Self::File);

    /// Waits before the `attempt`th further try (from 1) at something that another process holds. Virtual time in
    /// a simulation; else milliseconds, at most [`MAX_PAUSE_MS`].
    fn pause(&self, attempt: u32);

    /// The process id, the time, and a part that no other call of any process gets, for new names beside a session.
    fn tag(&self) -> Tag;

    /// The process-wide table of path locks. It belongs to this value and not to a global, so that two simulated
    /// file systems never meet and a store that was killed holds nothing.
    fn path_locks(&self) -> &PathLocks;
}

/// The longest single pause in milliseconds.
pub const MAX_PAUSE_MS: u32 = 40;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// For reading.
    Read,
    /// For reading and writing: only where a lock needs it.
    ReadWrite,
}

/// The kinds of advisory lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Excludes exclusive holders.
    Shared,
    /// Excludes every other holder.
    Exclusive,
}

/// What makes a new name beside a session unique.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The process id.
    pub process: u32,
    /// The present time, for names that a person will look at later.
    pub time: Timestamp,
    /// A part that is never given out twice, usually a UUID.
    pub unique: String,
}

/// What kind of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A device, a socket, or something newer.
    Other,
}

impl FileKind {
    /// The kind with its article, for messages.
    pub const fn words(self) -> &'static str {
        match self {
            FileKind::Regular => "a regular file",
            FileKind::Directory => "a directory",
            FileKind::Symlink => "a symbolic link",
            FileKind::Fifo => "a FIFO",
            FileKind::Other => "a device or socket",
        }
    }
}

/// A point in time: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// The rest, below 1 000 000 000.
    pub nanoseconds: u32,
}

/// What a look at a file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStat {
    /// The kind of thing.
    pub kind: FileKind,
    /// The device that holds the inode.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// When the inode came to be, where the file system says so.
    pub birth: Option<Timestamp>,
    /// Bytes.
    pub size: u64,
    /// When the bytes were last written.
    pub modified: Timestamp,
    /// The permission bits, `mode & 0o7777`.
    pub mode: u32,
    /// The owning user.
    pub owner: u32,
    /// The owning group.
    pub group: u32,
    /// Names that the inode has.
    pub links: u64,
}
