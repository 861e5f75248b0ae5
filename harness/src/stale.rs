//! A process that sees the disk as it was, with its own changes and nobody else's: what storage assumption A6 rules
//! out, and what a network file system with long-lived caches may do.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;

use session_tree::file_ops::{Access, FileOps, FileStat, Lock, Tag};
use session_tree::{Errno, PathLocks};

use crate::disk::{Disk, Process, SimDir, SimFile};
use crate::world::{WorldDir, WorldFile, WorldOps};

/// Answers from an earlier disk, while every change is made on the present one too.
///
/// What a change meets on the present disk is not answered: whoever does not see the others' changes does not see
/// what they do to its own.
#[derive(Clone)]
pub struct StaleOps {
    view: Process,
    present: WorldOps,
}

/// An open file of [`StaleOps`].
pub struct StaleFile {
    view: SimFile,
    present: Option<WorldFile>,
}

/// An open directory of [`StaleOps`].
pub struct StaleDir {
    view: SimDir,
    present: WorldDir,
}

impl StaleOps {
    /// A process that sees a copy of `earlier`, and changes what `present` is about.
    pub fn new(earlier: &Disk, present: WorldOps) -> StaleOps {
        // Another process id than any on the present disk, so that its temporaries have names of their own there.
        const PROCESS: u32 = 900;
        StaleOps { view: earlier.fork().process(PROCESS), present }
    }
}

impl FileOps for StaleOps {
    type File = StaleFile;
    type Dir = StaleDir;

    fn open_dir(&self, path: &Path) -> Result<StaleDir, Errno> {
        Ok(StaleDir { view: self.view.open_dir(path)?, present: self.present.open_dir(path)? })
    }

    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno> {
        self.view.stat_path(path)
    }

    fn stat_dir(&self, dir: &StaleDir) -> Result<FileStat, Errno> {
        self.view.stat_dir(&dir.view)
    }

    fn name_limit(&self, dir: &StaleDir) -> Result<u64, Errno> {
        self.view.name_limit(&dir.view)
    }

    fn stat_at(&self, dir: &StaleDir, name: &OsStr) -> Result<FileStat, Errno> {
        self.view.stat_at(&dir.view, name)
    }

    fn create_new(&self, dir: &StaleDir, name: &OsStr, mode: u32) -> Result<StaleFile, Errno> {
        let present = self.present.create_new(&dir.present, name, mode).ok();
        Ok(StaleFile { view: self.view.create_new(&dir.view, name, mode)?, present })
    }

    fn open(&self, dir: &StaleDir, name: &OsStr, access: Access) -> Result<StaleFile, Errno> {
        let present = self.present.open(&dir.present, name, access).ok();
        Ok(StaleFile { view: self.view.open(&dir.view, name, access)?, present })
    }

    fn link(&self, dir: &StaleDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let _ = self.present.link(&dir.present, from, to);
        self.view.link(&dir.view, from, to)
    }

    fn rename(&self, dir: &StaleDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let _ = self.present.rename(&dir.present, from, to);
        self.view.rename(&dir.view, from, to)
    }

    fn unlink(&self, dir: &StaleDir, name: &OsStr) -> Result<(), Errno> {
        let _ = self.present.unlink(&dir.present, name);
        self.view.unlink(&dir.view, name)
    }

    fn list(&self, dir: &StaleDir) -> Result<Vec<OsString>, Errno> {
        self.view.list(&dir.view)
    }

    fn sync_dir(&self, dir: &StaleDir) -> Result<(), Errno> {
        let _ = self.present.sync_dir(&dir.present);
        self.view.sync_dir(&dir.view)
    }

    fn stat(&self, file: &StaleFile) -> Result<FileStat, Errno> {
        self.view.stat(&file.view)
    }

    fn read_at(&self, file: &StaleFile, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.view.read_at(&file.view, buf, offset)
    }

    fn write_at(&self, file: &StaleFile, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        if let Some(present) = &file.present {
            let _ = self.present.write_at(present, bufs, offset);
        }
        self.view.write_at(&file.view, bufs, offset)
    }

    fn set_mode(&self, file: &StaleFile, mode: u32) -> Result<(), Errno> {
        if let Some(present) = &file.present {
            let _ = self.present.set_mode(present, mode);
        }
        self.view.set_mode(&file.view, mode)
    }

    fn sync(&self, file: &StaleFile) -> Result<(), Errno> {
        if let Some(present) = &file.present {
            let _ = self.present.sync(present);
        }
        self.view.sync(&file.view)
    }

    fn close(&self, file: StaleFile) -> Result<(), Errno> {
        if let Some(present) = file.present {
            let _ = self.present.close(present);
        }
        self.view.close(file.view)
    }

    fn try_lock(&self, file: &StaleFile, kind: Lock) -> Result<bool, Errno> {
        self.view.try_lock(&file.view, kind)
    }

    fn unlock(&self, file: &StaleFile) {
        self.view.unlock(&file.view);
    }

    fn pause(&self, attempt: u32) {
        self.view.pause(attempt);
    }

    fn tag(&self) -> Tag {
        self.view.tag()
    }

    fn path_locks(&self) -> &PathLocks {
        self.view.path_locks()
    }
}
