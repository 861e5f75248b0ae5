//! Where a session of the small store lives: a held directory, and looks at it that say what they saw.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use session_tree::Errno;
use session_tree::Stage;
use session_tree::file_ops::{Access, FileKind, FileOps, FileStat};

use super::defect::Defect;
use super::fail::Fail;
use crate::world::{WorldDir, WorldFile, WorldOps};

/// How often something is tried before its failure counts.
pub(super) const TRIES: u32 = 3;
const INTERRUPTED_TRIES: u32 = 64;

pub(super) struct Place {
    pub(super) ops: WorldOps,
    pub(super) dir: WorldDir,
    pub(super) name: OsString,
    pub(super) marker: OsString,
    pub(super) defect: Option<Defect>,
    root: FileStat,
    /// Whether the generation's identity was compared once.
    has_compared: Cell<bool>,
    /// Descriptors that nobody closes.
    leaked: RefCell<Vec<WorldFile>>,
    root_path: PathBuf,
    longest_sibling: usize,
}

impl Place {
    pub(super) fn open(
        ops: &WorldOps,
        path: &Path,
        defect: Option<Defect>,
        stage: Stage,
    ) -> Result<Place, Fail> {
        let name = path.file_name().ok_or_else(|| Fail::io("name no file", Errno::EINVAL, stage))?.to_owned();
        let root_path = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let looked = ops.stat_path(&root_path).map_err(|e| Fail::io("look at the directory", e, stage))?;
        if looked.kind != FileKind::Directory {
            return Err(Fail::new("SESSION_ROOT_CHANGED", "the parent is no directory").at(stage));
        }
        let dir = match uninterrupted(|| ops.open_dir(&root_path)) {
            Ok(dir) => dir,
            Err(errno) if is_gone(errno) => {
                return Err(Fail::new("SESSION_ROOT_CHANGED", "the directory is gone").at(stage));
            }
            Err(errno) => return Err(Fail::io("open the directory", errno, stage)),
        };
        let root = ops.stat_dir(&dir).map_err(|e| Fail::io("look at the directory", e, stage))?;
        if !is_same(&root, &looked) {
            return Err(Fail::new("SESSION_ROOT_CHANGED", "the directory was replaced").at(stage));
        }
        let mut marker = name.clone();
        marker.push(".pify-session-recovery");
        let longest_sibling = name.len() + ".pify-session-restore-".len() + 10 + 1 + 36;
        Ok(Place {
            ops: ops.clone(),
            dir,
            name,
            marker,
            defect,
            root,
            has_compared: Cell::new(false),
            leaked: RefCell::default(),
            root_path,
            longest_sibling,
        })
    }

    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Refuses a name whose siblings would be too long, before anything is written.
    pub(super) fn check_name_length(&self, stage: Stage) -> Result<(), Fail> {
        let limit =
            self.ops.name_limit(&self.dir).map_err(|e| Fail::io("ask for the name limit", e, stage))?;
        if self.longest_sibling as u64 > limit {
            return Err(Fail::io("fit the names beside the file", Errno::ENAMETOOLONG, stage));
        }
        Ok(())
    }

    /// A look; nothing where nothing has the name.
    pub(super) fn look(&self, name: &OsStr) -> Result<Option<FileStat>, Errno> {
        match self.ops.stat_at(&self.dir, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// A look that is repeated before its error counts.
    pub(super) fn look_firmly(&self, name: &OsStr) -> Result<Option<FileStat>, Errno> {
        let mut seen = self.look(name);
        for _ in 1..TRIES {
            if seen.is_err() {
                seen = self.look(name);
            }
        }
        seen
    }

    pub(super) fn check_root(&self, stage: Stage) -> Result<(), Fail> {
        match self.ops.stat_path(&self.root_path) {
            Ok(stat) if is_same(&self.root, &stat) => Ok(()),
            Ok(_) => Err(Fail::new("SESSION_ROOT_CHANGED", "the directory was replaced").at(stage)),
            Err(errno) if is_gone(errno) => {
                Err(Fail::new("SESSION_ROOT_CHANGED", "the directory is gone").at(stage))
            }
            Err(errno) => Err(Fail::io("look at the directory", errno, stage)),
        }
    }

    /// Whether directory and path are still what they were.
    pub(super) fn check_storage(&self, known: &FileStat, stage: Stage) -> Result<FileStat, Fail> {
        self.check_root(stage)?;
        match self.ops.stat_at(&self.dir, &self.name) {
            Ok(stat) if Defect::knows(self.defect, known, &stat) => Ok(stat),
            Err(Errno::ENOENT) if self.has(Defect::RecreatesFile) || self.has(Defect::WritesToHeldFile) => {
                Ok(*known)
            }
            Ok(_) => Err(changed("the path does not name this store's generation", stage)),
            Err(errno) => Err(lost("look at the file", errno, stage)),
        }
    }

    /// What the store takes for its generation at the beginning of a commit.
    pub(super) fn adopted(&self, known: &FileStat) -> Result<FileStat, Fail> {
        let adopted = self.adopted_now(known)?;
        self.has_compared.set(true);
        Ok(adopted)
    }

    /// As [`Place::adopted`], where nothing has been begun yet.
    pub(super) fn adopted_now(&self, known: &FileStat) -> Result<FileStat, Fail> {
        let believing = if self.has_compared.get() { Defect::ComparedOnce } else { Defect::ComparedLater };
        if !self.has(believing) {
            return Ok(*known);
        }
        self.ops.stat_at(&self.dir, &self.name).map_err(|e| lost("look at the file", e, Stage::C1))
    }

    pub(super) fn leak(&self, file: WorldFile) {
        self.leaked.borrow_mut().push(file);
    }

    /// Nothing is wrong with temporaries of processes that died, unless the store believes so.
    pub(super) fn refuse_strays(&self, stage: Stage) -> Result<(), Fail> {
        if !self.has(Defect::StraysInTheWay) {
            return Ok(());
        }
        let own = format!(".pify-session-{}-", self.ops.tag().process);
        let names = self.ops.list(&self.dir).map_err(|e| Fail::io("list the directory", e, stage))?;
        let is_in_the_way = |name: &OsString| {
            let text = name.to_string_lossy();
            is_temporary(name) && text.starts_with(&*self.name.to_string_lossy()) && !text.contains(&own)
        };
        if names.iter().any(is_in_the_way) {
            return Err(Fail::io("commit beside another process's temporary", Errno::EBUSY, stage));
        }
        Ok(())
    }

    /// Removes every temporary that `is_meant`, whoever needs it.
    pub(super) fn sweep(&self, is_meant: impl Fn(&OsStr) -> bool) {
        let names = self.ops.list(&self.dir).unwrap_or_default();
        for name in names.iter().filter(|name| is_temporary(name) && is_meant(name)) {
            let _ = self.ops.unlink(&self.dir, name);
        }
    }

    pub(super) fn check_marker_absent(&self, stage: Stage) -> Result<(), Fail> {
        match self.look(&self.marker) {
            Ok(None) => Ok(()),
            Ok(Some(_)) if self.has(Defect::MarkerStolen) && stage != Stage::V2 => Ok(()),
            Ok(Some(_)) => Err(marker_is_there(stage)),
            Err(errno) => Err(Fail::io("look for a marker", errno, stage)),
        }
    }

    /// Removes `name` where it is one of `mine`. `Ok` means that it is gone.
    pub(super) fn remove(&self, name: &OsStr, mine: &[&FileStat]) -> Result<(), Errno> {
        let by_name = self.has(Defect::MarkerByName) && name == self.marker
            || self.has(Defect::TemporaryByName) && name != self.marker;
        let mut last = Errno::EIO;
        for _ in 0..TRIES {
            if !by_name {
                match self.look(name) {
                    Ok(None) => return Ok(()),
                    Ok(Some(stat)) if mine.iter().any(|it| is_same(it, &stat)) => {}
                    // Somebody else's, and not ours to touch.
                    Ok(Some(_)) => return Err(Errno::EEXIST),
                    Err(errno) => {
                        last = errno;
                        continue;
                    }
                }
            }
            if self.has(Defect::MarkerEmptied) && name == self.marker {
                self.empty(name);
            }
            match self.ops.unlink(&self.dir, name) {
                Ok(()) => return Ok(()),
                Err(errno) => last = errno,
            }
        }
        match self.look_firmly(name) {
            Ok(None) => Ok(()),
            _ => Err(last),
        }
    }

    /// What a store does that thinks of a marker as of a copy.
    fn empty(&self, name: &OsStr) {
        if let Ok(file) = self.ops.open(&self.dir, name, Access::ReadWrite) {
            let _ = self.ops.truncate(&file, 0);
        }
    }

    /// Makes names durable. A directory that cannot be synced counts as synced.
    pub(super) fn sync_dir(&self) -> Result<(), Errno> {
        if self.has(Defect::NoDirectoryFsync) {
            return Ok(());
        }
        match self.ops.sync_dir(&self.dir) {
            Err(Errno::EINVAL | Errno::ENOTSUP) => Ok(()),
            Err(Errno::EPERM | Errno::EACCES) if self.has(Defect::DirectoryFsyncRefused) => Ok(()),
            Err(Errno::EINTR) if self.has(Defect::FsyncRepeated) => self.ops.sync_dir(&self.dir),
            answer => answer,
        }
    }

    pub(super) fn sync(&self, file: &WorldFile) -> Result<(), Errno> {
        if self.has(Defect::NoFileFsync) {
            return Ok(());
        }
        match self.ops.sync(file) {
            Err(Errno::EINTR) if self.has(Defect::FsyncRepeated) => self.ops.sync(file),
            Err(_) if self.has(Defect::FsyncRetried) => self.ops.sync(file),
            answer => answer,
        }
    }

    pub(super) fn temporary_name(&self) -> OsString {
        if !self.has(Defect::TemporaryReused) && !self.has(Defect::TemporaryFixed) {
            return self.sibling("");
        }
        let mut name = self.name.clone();
        name.push(".pify-session-next");
        name
    }

    /// A name beside the session that no other call gets.
    pub(super) fn sibling(&self, infix: &str) -> OsString {
        let tag = self.ops.tag();
        let mut name = self.name.clone();
        name.push(format!(".pify-session-{infix}{}-{}", tag.process, tag.unique));
        name
    }
}

/// Whether both looks show one inode.
pub(super) fn is_same(one: &FileStat, other: &FileStat) -> bool {
    let births = one.birth.zip(other.birth);
    (one.kind, one.device, one.inode) == (other.kind, other.device, other.inode)
        && births.is_none_or(|(one, other)| one == other)
}

/// Whether both looks show one inode with the same bytes, as far as a look can tell.
pub(super) fn is_unchanged(one: &FileStat, other: &FileStat) -> bool {
    is_same(one, other) && (one.size, one.modified) == (other.size, other.modified)
}

fn is_temporary(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    text.contains(".pify-session-") && !text.contains("-recovery") && !text.contains("-aside-")
}

pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
}

/// The failure of a look at something that was there before.
pub(super) fn lost(doing: &str, errno: Errno, stage: Stage) -> Fail {
    if is_gone(errno) { changed("the file is gone", stage) } else { Fail::io(doing, errno, stage) }
}

pub(super) fn changed(message: &str, stage: Stage) -> Fail {
    Fail::new("SESSION_FILE_CHANGED", message).at(stage)
}

pub(super) fn marker_is_there(stage: Stage) -> Fail {
    Fail::new("SESSION_ROLLBACK_FAILED", "a recovery marker is there").at(stage)
}

/// Repeats what was interrupted, bounded.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..INTERRUPTED_TRIES {
        match call() {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
    call()
}
