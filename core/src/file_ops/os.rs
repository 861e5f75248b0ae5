//! The real file system, by `rustix`: each method is one system call.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Statx, StatxFlags};

use super::{Access, FileKind, FileOps, FileStat, Lock, MAX_PAUSE_MS, Tag, Timestamp};
use crate::errno::Errno;
use crate::path_lock::PathLocks;

/// The operating system's files. Clones share one table of path locks; [`OsFileOps::new`] gives the process's.
#[derive(Clone, Debug)]
pub struct OsFileOps {
    locks: PathLocks,
}

/// An open file.
#[derive(Debug)]
pub struct OsFile(OwnedFd);

/// An open directory.
#[derive(Debug)]
pub struct OsDir(OwnedFd);

impl OsFileOps {
    /// The operating system's files, with the path locks that all such values of this process share.
    pub fn new() -> OsFileOps {
        static PROCESS: std::sync::LazyLock<PathLocks> = std::sync::LazyLock::new(PathLocks::new);
        OsFileOps { locks: PROCESS.clone() }
    }
}

impl Default for OsFileOps {
    fn default() -> OsFileOps {
        OsFileOps::new()
    }
}

impl FileOps for OsFileOps {
    type File = OsFile;
    type Dir = OsDir;

    fn open_dir(&self, path: &Path) -> Result<OsDir, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(OsDir(fs::open(path, flags, Mode::empty())?))
    }

    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno> {
        look(fs::CWD, path.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn stat_dir(&self, dir: &OsDir) -> Result<FileStat, Errno> {
        look_open(&dir.0)
    }

    fn name_limit(&self, dir: &OsDir) -> Result<u64, Errno> {
        Ok(fs::fstatvfs(&dir.0)?.f_namemax)
    }

    fn stat_at(&self, dir: &OsDir, name: &OsStr) -> Result<FileStat, Errno> {
        look(&dir.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn create_new(&self, dir: &OsDir, name: &OsStr, mode: u32) -> Result<OsFile, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(OsFile(fs::openat(&dir.0, name, flags, Mode::from_raw_mode(mode))?))
    }

    fn open(&self, dir: &OsDir, name: &OsStr, access: Access) -> Result<OsFile, Errno> {
        let access = match access {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(OsFile(fs::openat(&dir.0, name, flags, Mode::empty())?))
    }

    fn link(&self, dir: &OsDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        Ok(fs::linkat(&dir.0, from, &dir.0, to, AtFlags::empty())?)
    }

    fn rename(&self, dir: &OsDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        Ok(fs::renameat(&dir.0, from, &dir.0, to)?)
    }

    fn unlink(&self, dir: &OsDir, name: &OsStr) -> Result<(), Errno> {
        Ok(fs::unlinkat(&dir.0, name, AtFlags::empty())?)
    }

    fn list(&self, dir: &OsDir) -> Result<Vec<OsString>, Errno> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&dir.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    fn sync_dir(&self, dir: &OsDir) -> Result<(), Errno> {
        Ok(fs::fsync(&dir.0)?)
    }

    fn stat(&self, file: &OsFile) -> Result<FileStat, Errno> {
        look_open(&file.0)
    }

    fn read_at(&self, file: &OsFile, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        Ok(rustix::io::pread(&file.0, buf, offset)?)
    }

    fn write_at(&self, file: &OsFile, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        Ok(rustix::io::pwritev(&file.0, bufs, offset)?)
    }

    fn set_mode(&self, file: &OsFile, mode: u32) -> Result<(), Errno> {
        Ok(fs::fchmod(&file.0, Mode::from_raw_mode(mode))?)
    }

    fn sync(&self, file: &OsFile) -> Result<(), Errno> {
        Ok(fs::fsync(&file.0)?)
    }

    fn close(&self, file: OsFile) -> Result<(), Errno> {
        // Dropping an `OwnedFd` closes it too, but swallows the answer, which stage C4 needs.
        nix::unistd::close(file.0).map_err(|errno| Errno::from_raw(errno as i32))
    }

    fn try_lock(&self, file: &OsFile, kind: Lock) -> Result<bool, Errno> {
        let operation = match kind {
            Lock::Shared => FlockOperation::NonBlockingLockShared,
            Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match fs::flock(&file.0, operation) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    fn unlock(&self, file: &OsFile) {
        let _ = fs::flock(&file.0, FlockOperation::Unlock);
    }

    fn pause(&self, attempt: u32) {
        thread::sleep(Duration::from_millis(attempt.clamp(1, MAX_PAUSE_MS).into()));
    }

    fn tag(&self) -> Tag {
        let now = jiff::Timestamp::now();
        let time =
            Timestamp { seconds: now.as_second(), nanoseconds: now.subsec_nanosecond().unsigned_abs() };
        Tag { process: std::process::id(), time, unique: uuid::Uuid::new_v4().to_string() }
    }

    fn path_locks(&self) -> &PathLocks {
        &self.locks
    }
}

fn look(dir: impl AsFd, name: &OsStr, flags: AtFlags) -> Result<FileStat, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(to_stat(&fs::statx(dir, name, flags, wanted)?))
}

fn look_open(descriptor: &OwnedFd) -> Result<FileStat, Errno> {
    look(descriptor, OsStr::new(""), AtFlags::EMPTY_PATH)
}

fn to_stat(seen: &Statx) -> FileStat {
    let mode = u32::from(seen.stx_mode);
    let has_birth = seen.stx_mask & StatxFlags::BTIME.bits() != 0;
    FileStat {
        kind: kind_of(FileType::from_raw_mode(mode)),
        device: fs::makedev(seen.stx_dev_major, seen.stx_dev_minor),
        inode: seen.stx_ino,
        birth: has_birth
            .then_some(Timestamp { seconds: seen.stx_btime.tv_sec, nanoseconds: seen.stx_btime.tv_nsec }),
        size: seen.stx_size,
        modified: Timestamp { seconds: seen.stx_mtime.tv_sec, nanoseconds: seen.stx_mtime.tv_nsec },
        mode: mode & 0o7777,
        owner: seen.stx_uid,
        group: seen.stx_gid,
        links: seen.stx_nlink.into(),
    }
}

fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        _ => FileKind::Other,
    }
}
