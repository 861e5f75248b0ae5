//! Where a session lives: a held directory, the file's name in it, and looks at both that say what they saw.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::errno::Errno;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{Access, FileKind, FileOps, FileStat, Lock};
use crate::identity::{Generation, Identity};
use crate::options;
use crate::path_lock::{NotLocked, PathGuard};
use crate::sibling_name;

/// How often something that can be interrupted or contended for is tried before it counts as failed.
const INTERRUPTED_TRIES: u32 = 64;
/// How often a look is repeated before its error counts as "not to be seen".
pub(crate) const TRIES: u32 = 3;
/// How often a lock that another process holds is tried: with the pauses between, about three seconds.
pub(crate) const LOCK_TRIES: u32 = 100;

pub(crate) struct Place<O: FileOps> {
    pub(crate) ops: O,
    pub(crate) dir: O::Dir,
    root: Identity,
    dir_path: PathBuf,
    path: PathBuf,
    pub(crate) name: OsString,
    pub(crate) marker: OsString,
    directory_sync_unsupported: AtomicBool,
    locking_unsupported: AtomicBool,
}

/// What a look at a name showed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seen {
    Absent,
    Present(FileStat),
}

impl Seen {
    pub(crate) fn is(self, identity: &Identity) -> bool {
        matches!(self, Seen::Present(stat) if identity.is(&stat))
    }

    pub(crate) fn is_absent(self) -> bool {
        matches!(self, Seen::Absent)
    }
}

impl<O: FileOps> Place<O> {
    /// Opens the directory of `path` (requirement S3).
    pub(crate) fn open(ops: O, path: &Path, stage: Stage) -> Result<Place<O>> {
        let name = path.file_name().filter(|_| !ends_in_slash(path)).ok_or_else(|| {
            let message = "the path names no file";
            Error::new(Code::Io, "S1", message).with_errno(Errno::EINVAL).with_path(path).with_stage(stage)
        })?;
        let dir_path = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let (dir, root) = open_root(&ops, &dir_path, stage)?;
        Ok(Place {
            dir,
            root,
            dir_path,
            path: path.to_owned(),
            name: name.to_owned(),
            marker: sibling_name::marker(name),
            directory_sync_unsupported: AtomicBool::new(false),
            locking_unsupported: AtomicBool::new(false),
            ops,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name beside the session.
    pub(crate) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.with_file_name(name)
    }

    pub(crate) fn directory_sync_unsupported(&self) -> bool {
        self.directory_sync_unsupported.load(Ordering::Relaxed)
    }

    pub(crate) fn locking_unsupported(&self) -> bool {
        self.locking_unsupported.load(Ordering::Relaxed)
    }

    /// Refuses a file name beside which the siblings would not fit, before anything is written.
    pub(crate) fn check_name_length(&self, stage: Stage) -> Result<()> {
        let limit = self
            .ops
            .name_limit(&self.dir)
            .map_err(|errno| self.io("ask for the name limit", errno, stage))?;
        if sibling_name::longest(&self.name) as u64 > limit {
            return Err(self.io("fit the names beside a file of this name", Errno::ENAMETOOLONG, stage));
        }
        Ok(())
    }

    /// One look at a name beside the session or the session itself.
    pub(crate) fn look(&self, name: &OsStr) -> std::result::Result<Seen, Errno> {
        match self.ops.stat_at(&self.dir, name) {
            Ok(stat) => Ok(Seen::Present(stat)),
            Err(Errno::ENOENT) => Ok(Seen::Absent),
            Err(errno) => Err(errno),
        }
    }

    /// A look that is repeated before its error counts: what cannot be seen cannot be proved.
    pub(crate) fn look_firmly(&self, name: &OsStr) -> std::result::Result<Seen, Errno> {
        let mut last = Errno::EIO;
        for _ in 0..TRIES {
            match self.look(name) {
                Ok(seen) => return Ok(seen),
                Err(errno) => last = errno,
            }
        }
        Err(last)
    }

    /// Whether the directory that `dir_path` names is still the held one.
    pub(crate) fn check_root(&self, stage: Stage) -> Result<()> {
        match self.ops.stat_path(&self.dir_path) {
            Ok(stat) if stat.kind == FileKind::Directory && self.root.is(&stat) => Ok(()),
            Ok(_) => Err(root_changed(&self.dir_path, "the directory was replaced", stage)),
            Err(errno) if means_gone(errno) => {
                Err(root_changed(&self.dir_path, "the directory is gone", stage).with_errno(errno))
            }
            Err(errno) => Err(io("look at the directory", &self.dir_path, errno, stage)),
        }
    }

    /// Whether root and session file are still the recorded ones (requirements S3, S4).
    pub(crate) fn check_storage(&self, generation: &Generation<O::File>, stage: Stage) -> Result<FileStat> {
        self.check_root(stage)?;
        match self.ops.stat_at(&self.dir, &self.name) {
            Ok(stat) if generation.is_unchanged_in(&stat) => Ok(stat),
            Ok(_) => Err(self.file_changed("the file is not the generation that this store knows", stage)),
            Err(errno) => Err(self.lost("look at the file", errno, stage)),
        }
    }

    /// Refuses while a recovery marker is there (requirement C1).
    pub(crate) fn check_marker_absent(&self, stage: Stage) -> Result<()> {
        match self.look(&self.marker) {
            Ok(Seen::Absent) => Ok(()),
            Ok(Seen::Present(_)) => Err(self.marker_present(stage)),
            Err(errno) => Err(self.io("look for a recovery marker", errno, stage)),
        }
    }

    /// Waits for a commit in flight, bounded, and refuses a marker that nobody holds (requirements S1, S2, S8).
    pub(crate) fn settle_marker(&self, waits: &mut Waits, stage: Stage) -> Result<()> {
        loop {
            match self.look(&self.marker) {
                Ok(Seen::Absent) => return Ok(()),
                Ok(Seen::Present(stat)) if stat.kind != FileKind::Regular => {
                    return Err(self.marker_present(stage));
                }
                Ok(Seen::Present(stat)) => {
                    if self.marker_is_abandoned(&stat, stage)? {
                        return Err(self.marker_present(stage));
                    }
                }
                Err(errno) => return Err(self.io("look for a recovery marker", errno, stage)),
            }
            if !waits.pause(&self.ops) {
                return Err(self.marker_present(stage).with_in_flight());
            }
        }
    }

    /// Whether nobody has locked the marker's inode: then the process that put it there is dead. `false` also where
    /// the marker was gone before that could be told.
    fn marker_is_abandoned(&self, seen: &FileStat, stage: Stage) -> Result<bool> {
        let file = match self.open_name(&self.marker, Access::Read) {
            Ok(file) => file,
            Err(errno) if means_gone(errno) => return Ok(false),
            Err(errno) => return Err(self.io("open the recovery marker", errno, stage)),
        };
        let again = match self.try_lock(&file, Lock::Shared) {
            // The commit may have ended between the look and the lock: only a marker that is still there is
            // abandoned. Looked at under the lock, or it could be the marker of that store's next commit.
            Ok(true) => self.look(&self.marker),
            Ok(false) => return Ok(false),
            // Without locks nothing tells a live commit from a dead one, so every marker is refused.
            Err(errno) if locks_are_missing(errno) => return Ok(true),
            Err(errno) => return Err(self.io("lock the recovery marker", errno, stage)),
        };
        self.ops.unlock(&file);
        let again = again.map_err(|errno| self.io("look for a recovery marker", errno, stage))?;
        Ok(again.is(&Identity::of(seen)))
    }

    /// Opens a name, repeated while interrupted (requirement C27).
    pub(crate) fn open_name(&self, name: &OsStr, access: Access) -> std::result::Result<O::File, Errno> {
        uninterrupted(|| self.ops.open(&self.dir, name, access))
    }

    pub(crate) fn try_lock(&self, file: &O::File, kind: Lock) -> std::result::Result<bool, Errno> {
        uninterrupted(|| self.ops.try_lock(file, kind))
    }

    /// Locks the inode behind `file` exclusively, waiting for other processes, bounded (requirement S8).
    pub(crate) fn lock_exclusively(&self, file: &mut O::File, name: &OsStr, stage: Stage) -> Result<()> {
        let mut waits = Waits::new(LOCK_TRIES);
        while !self.try_lock_exclusively(file, name, stage)? {
            if !waits.pause(&self.ops) {
                return Err(self
                    .io("wait for another process's lock", Errno::EAGAIN, stage)
                    .with_in_flight());
            }
        }
        Ok(())
    }

    /// Locks the inode behind `file` exclusively, or says that somebody else has locked it.
    ///
    /// Where an exclusive lock needs a descriptor that is open for writing, `file` is replaced by one, once; where
    /// there are no locks at all, that is noted and the lock counts as had.
    pub(crate) fn try_lock_exclusively(
        &self,
        file: &mut O::File,
        name: &OsStr,
        stage: Stage,
    ) -> Result<bool> {
        let mut answer = self.try_lock(file, Lock::Exclusive);
        if answer == Err(Errno::EBADF) {
            *file = self.reopen_for_writing(file, name, stage)?;
            answer = self.try_lock(file, Lock::Exclusive);
        }
        match answer {
            Ok(had) => Ok(had),
            Err(errno) if locks_are_missing(errno) => {
                self.locking_unsupported.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(errno) => Err(self.io("lock the file", errno, stage)),
        }
    }

    /// The path lock of this process (requirement S8).
    pub(crate) fn lock_in_process(&self, stage: Stage) -> Result<PathGuard> {
        let root = &self.root;
        self.ops.path_locks().lock(root.device(), root.inode(), &self.name).map_err(|why| match why {
            NotLocked::HeldByThisThread => {
                options::factory_failed("a factory called back into the store").with_path(&self.path)
            }
            NotLocked::TimedOut => {
                self.io("wait for another store's commit", Errno::EAGAIN, stage).with_in_flight()
            }
        })
    }

    fn reopen_for_writing(&self, file: &O::File, name: &OsStr, stage: Stage) -> Result<O::File> {
        let held = self.ops.stat(file).map_err(|errno| self.io("look at the open file", errno, stage))?;
        let writable = self
            .open_name(name, Access::ReadWrite)
            .map_err(|errno| self.lost("open the file for its lock", errno, stage))?;
        let seen =
            self.ops.stat(&writable).map_err(|errno| self.io("look at the open file", errno, stage))?;
        if Identity::of(&held).is(&seen) {
            Ok(writable)
        } else {
            Err(self.file_changed("the file was replaced while it was opened", stage))
        }
    }

    /// Makes the directory's names durable. `EINVAL` and `ENOTSUP` count as done (choice C26.no-directory-sync).
    pub(crate) fn sync_dir(&self) -> std::result::Result<(), Errno> {
        match self.ops.sync_dir(&self.dir) {
            Err(Errno::EINVAL | Errno::ENOTSUP) => {
                self.directory_sync_unsupported.store(true, Ordering::Relaxed);
                Ok(())
            }
            answer => answer,
        }
    }

    /// Removes `name` if it is one of `mine`, looking immediately before each try and after each error
    /// (requirement C21). `Ok` means seen absent, or removed.
    pub(crate) fn remove(&self, name: &OsStr, mine: &[&Identity]) -> std::result::Result<(), NotRemoved> {
        let mut last = None;
        for _ in 0..TRIES {
            match self.look(name) {
                Ok(Seen::Absent) => return Ok(()),
                Ok(seen) if mine.iter().any(|identity| seen.is(identity)) => {}
                Ok(_) => return Err(NotRemoved::Foreign),
                Err(errno) => {
                    last = Some(errno);
                    continue;
                }
            }
            match self.ops.unlink(&self.dir, name) {
                Ok(()) => return Ok(()),
                Err(errno) => last = Some(errno),
            }
        }
        match self.look_firmly(name) {
            Ok(Seen::Absent) => Ok(()),
            _ => Err(NotRemoved::Failed(last.unwrap_or(Errno::EIO))),
        }
    }

    pub(crate) fn io(&self, doing: &str, errno: Errno, stage: Stage) -> Error {
        io(doing, &self.path, errno, stage)
    }

    /// The failure of a look at, or of an open of, a name that was there before: that it is gone is a change of the
    /// storage and no failure of the system (contract section 2).
    pub(crate) fn lost(&self, doing: &str, errno: Errno, stage: Stage) -> Error {
        if means_gone(errno) {
            self.file_changed(&format!("cannot {doing}, which is gone"), stage).with_errno(errno)
        } else {
            self.io(doing, errno, stage)
        }
    }

    pub(crate) fn file_changed(&self, message: &str, stage: Stage) -> Error {
        Error::new(Code::FileChanged, "S4", message).with_path(&self.path).with_stage(stage)
    }

    pub(crate) fn marker_present(&self, stage: Stage) -> Error {
        let path = self.path.with_file_name(&self.marker);
        Error::new(Code::RollbackFailed, "S2", "a recovery marker is present")
            .with_path(&path)
            .with_stage(stage)
    }
}

/// Why a name is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotRemoved {
    /// It is somebody else's.
    Foreign,
    /// It is ours, or could not be seen, and the system refused.
    Failed(Errno),
}

/// A bounded number of pauses.
pub(crate) struct Waits {
    taken: u32,
    most: u32,
}

impl Waits {
    pub(crate) fn new(most: u32) -> Waits {
        Waits { taken: 0, most }
    }

    /// Pauses, or says that the waiting is over.
    pub(crate) fn pause<O: FileOps>(&mut self, ops: &O) -> bool {
        if self.taken == self.most {
            return false;
        }
        self.taken += 1;
        ops.pause(self.taken);
        true
    }
}

/// Repeats a call that was interrupted, bounded. Only for calls that C27 lets be repeated.
pub(crate) fn uninterrupted<T>(
    mut call: impl FnMut() -> std::result::Result<T, Errno>,
) -> std::result::Result<T, Errno> {
    for _ in 1..INTERRUPTED_TRIES {
        match call() {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
    call()
}

/// Error numbers by which a name that was there says that it is not any more (contract section 2).
pub(crate) fn means_gone(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
}

/// Error numbers by which a file system says that it has no locks.
pub(crate) fn locks_are_missing(errno: Errno) -> bool {
    matches!(errno, Errno::ENOLCK | Errno::ENOTSUP | Errno::ENOSYS | Errno::EBADF)
}

fn open_root<O: FileOps>(ops: &O, path: &Path, stage: Stage) -> Result<(O::Dir, Identity)> {
    let looked = ops.stat_path(path).map_err(|errno| io("look at the directory", path, errno, stage))?;
    if looked.kind != FileKind::Directory {
        return Err(root_changed(path, &format!("the parent is {}", looked.kind.words()), stage));
    }
    let dir = match uninterrupted(|| ops.open_dir(path)) {
        Ok(dir) => dir,
        Err(errno) if means_gone(errno) => {
            return Err(root_changed(path, "the directory is gone", stage).with_errno(errno));
        }
        Err(errno) => return Err(io("open the directory", path, errno, stage)),
    };
    let opened = ops.stat_dir(&dir).map_err(|errno| io("look at the open directory", path, errno, stage))?;
    let root = Identity::of(&opened);
    if root.is(&looked) {
        Ok((dir, root))
    } else {
        Err(root_changed(path, "the directory was replaced", stage))
    }
}

fn root_changed(path: &Path, message: &str, stage: Stage) -> Error {
    Error::new(Code::RootChanged, "S3", message).with_path(path).with_stage(stage)
}

fn io(doing: &str, path: &Path, errno: Errno, stage: Stage) -> Error {
    Error::new(Code::Io, stage.id(), format!("cannot {doing}"))
        .with_errno(errno)
        .with_path(path)
        .with_stage(stage)
}

fn ends_in_slash(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}
