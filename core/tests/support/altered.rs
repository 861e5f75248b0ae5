//! The operating system's files with one thing changed: no lock, a call that fails, or a witness of every call.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use session_tree::file_ops::{Access, FileOps, FileStat, Lock, OsDir, OsFile, OsFileOps, Tag};
use session_tree::{Errno, PathLocks};

/// The methods of the boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    OpenDir,
    StatPath,
    StatDir,
    NameLimit,
    StatAt,
    CreateNew,
    Open,
    Link,
    Rename,
    Unlink,
    List,
    SyncDir,
    Stat,
    ReadAt,
    WriteAt,
    SetMode,
    Sync,
    Close,
    TryLock,
    Unlock,
    /// With the number of the attempt.
    Pause(u32),
}

impl Call {
    /// The system call that the method promises to be; `None` for a pause, which touches no file.
    pub(crate) fn system_call(self) -> Option<&'static str> {
        Some(match self {
            Call::OpenDir | Call::CreateNew | Call::Open => "openat",
            Call::StatPath | Call::StatDir | Call::StatAt | Call::Stat => "statx",
            Call::NameLimit => "fstatfs",
            Call::Link => "linkat",
            Call::Rename => "renameat",
            Call::Unlink => "unlinkat",
            Call::List => "getdents64",
            Call::SyncDir | Call::Sync => "fsync",
            Call::ReadAt => "pread64",
            Call::WriteAt => "pwritev",
            Call::SetMode => "fchmod",
            Call::Close => "close",
            Call::TryLock | Call::Unlock => "flock",
            Call::Pause(_) => return None,
        })
    }
}

/// Sees each call before it is made and may answer it with an error in its stead.
type Witness = dyn Fn(Call) -> Option<Errno> + Send + Sync;

/// [`OsFileOps`], altered.
#[derive(Clone)]
pub(crate) struct AlteredOps {
    os: OsFileOps,
    grants_every_lock: bool,
    witness: Arc<Witness>,
}

impl AlteredOps {
    /// Not altered at all.
    pub(crate) fn faithful() -> AlteredOps {
        AlteredOps::witnessed(|_| None)
    }

    /// Every lock is granted and none is taken: what a store without a lock between processes does.
    pub(crate) fn without_lock() -> AlteredOps {
        AlteredOps { grants_every_lock: true, ..AlteredOps::faithful() }
    }

    pub(crate) fn witnessed(witness: impl Fn(Call) -> Option<Errno> + Send + Sync + 'static) -> AlteredOps {
        AlteredOps { os: OsFileOps::new(), grants_every_lock: false, witness: Arc::new(witness) }
    }

    fn ask(&self, call: Call) -> Result<(), Errno> {
        (self.witness)(call).map_or(Ok(()), Err)
    }
}

impl FileOps for AlteredOps {
    type File = OsFile;
    type Dir = OsDir;

    fn open_dir(&self, path: &Path) -> Result<OsDir, Errno> {
        self.ask(Call::OpenDir)?;
        self.os.open_dir(path)
    }

    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno> {
        self.ask(Call::StatPath)?;
        self.os.stat_path(path)
    }

    fn stat_dir(&self, dir: &OsDir) -> Result<FileStat, Errno> {
        self.ask(Call::StatDir)?;
        self.os.stat_dir(dir)
    }

    fn name_limit(&self, dir: &OsDir) -> Result<u64, Errno> {
        self.ask(Call::NameLimit)?;
        self.os.name_limit(dir)
    }

    fn stat_at(&self, dir: &OsDir, name: &OsStr) -> Result<FileStat, Errno> {
        self.ask(Call::StatAt)?;
        self.os.stat_at(dir, name)
    }

    fn create_new(&self, dir: &OsDir, name: &OsStr, mode: u32) -> Result<OsFile, Errno> {
        self.ask(Call::CreateNew)?;
        self.os.create_new(dir, name, mode)
    }

    fn open(&self, dir: &OsDir, name: &OsStr, access: Access) -> Result<OsFile, Errno> {
        self.ask(Call::Open)?;
        self.os.open(dir, name, access)
    }

    fn link(&self, dir: &OsDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.ask(Call::Link)?;
        self.os.link(dir, from, to)
    }

    fn rename(&self, dir: &OsDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.ask(Call::Rename)?;
        self.os.rename(dir, from, to)
    }

    fn unlink(&self, dir: &OsDir, name: &OsStr) -> Result<(), Errno> {
        self.ask(Call::Unlink)?;
        self.os.unlink(dir, name)
    }

    fn list(&self, dir: &OsDir) -> Result<Vec<OsString>, Errno> {
        self.ask(Call::List)?;
        self.os.list(dir)
    }

    fn sync_dir(&self, dir: &OsDir) -> Result<(), Errno> {
        self.ask(Call::SyncDir)?;
        self.os.sync_dir(dir)
    }

    fn stat(&self, file: &OsFile) -> Result<FileStat, Errno> {
        self.ask(Call::Stat)?;
        self.os.stat(file)
    }

    fn read_at(&self, file: &OsFile, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.ask(Call::ReadAt)?;
        self.os.read_at(file, buf, offset)
    }

    fn write_at(&self, file: &OsFile, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        self.ask(Call::WriteAt)?;
        self.os.write_at(file, bufs, offset)
    }

    fn set_mode(&self, file: &OsFile, mode: u32) -> Result<(), Errno> {
        self.ask(Call::SetMode)?;
        self.os.set_mode(file, mode)
    }

    fn sync(&self, file: &OsFile) -> Result<(), Errno> {
        self.ask(Call::Sync)?;
        self.os.sync(file)
    }

    fn close(&self, file: OsFile) -> Result<(), Errno> {
        // The descriptor is gone whatever the answer, so an error of the witness comes after the call.
        let answer = self.os.close(file);
        self.ask(Call::Close).and(answer)
    }

    fn try_lock(&self, file: &OsFile, kind: Lock) -> Result<bool, Errno> {
        self.ask(Call::TryLock)?;
        if self.grants_every_lock { Ok(true) } else { self.os.try_lock(file, kind) }
    }

    fn unlock(&self, file: &OsFile) {
        // A failure of this call has no answer to show in; the witness is only told.
        let _ = self.ask(Call::Unlock);
        self.os.unlock(file);
    }

    fn pause(&self, attempt: u32) {
        let _ = self.ask(Call::Pause(attempt));
        self.os.pause(attempt);
    }

    fn tag(&self) -> Tag {
        self.os.tag()
    }

    fn path_locks(&self) -> &PathLocks {
        self.os.path_locks()
    }
}
