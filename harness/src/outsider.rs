//! Somebody who acts on a directory without the store's locks, and the harness's own eyes.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use session_tree::file_ops::{FileKind, FileOps, FileStat, OsFileOps};

use crate::disk::Disk;
use crate::fault::{Actor, Role};
use crate::role;

/// Acts on a simulated disk or on a real directory.
#[derive(Clone)]
pub enum Outsider {
    /// On a simulated disk.
    Simulated(Disk),
    /// On the operating system's files.
    Real,
}

/// What stands at one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The name.
    pub name: OsString,
    /// Device, inode and birth, which tell one file from another.
    pub identity: (u64, u64, Option<session_tree::file_ops::Timestamp>),
    /// The kind of thing.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// A regular file's bytes.
    pub bytes: Option<Vec<u8>>,
}

macro_rules! either {
    ($self:ident, |$disk:ident| $simulated:expr, $real:expr) => {
        match $self {
            Outsider::Simulated($disk) => $simulated.map_err(io::Error::from),
            Outsider::Real => $real,
        }
    };
}

impl Outsider {
    /// On a simulated disk.
    pub fn simulated(disk: Disk) -> Outsider {
        Outsider::Simulated(disk)
    }

    /// On the operating system's files.
    pub fn real() -> Outsider {
        Outsider::Real
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As `mkdir`.
    pub fn mkdir(&self, path: &Path) -> io::Result<()> {
        either!(self, |disk| disk.mkdir(path), fs::create_dir(path))
    }

    /// Puts a new file at `path`, in place of any other.
    ///
    /// # Errors
    /// As creating, writing and renaming.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        either!(self, |disk| disk.write_file(path, bytes), {
            let beside = path.with_extension("being-written");
            fs::write(&beside, bytes)?;
            fs::rename(&beside, path)
        })
    }

    /// Writes over the first bytes of a file and keeps its inode; a longer text makes the file longer.
    ///
    /// # Errors
    /// As `open` and `write`.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        either!(self, |disk| disk.overwrite_in_place(path, bytes), {
            use std::os::unix::fs::FileExt;
            fs::OpenOptions::new().write(true).open(path)?.write_all_at(bytes, 0)
        })
    }

    /// Cuts or grows a file and keeps its inode.
    ///
    /// # Errors
    /// As `truncate`.
    pub fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        either!(
            self,
            |disk| disk.truncate(path, size),
            fs::OpenOptions::new().write(true).open(path)?.set_len(size)
        )
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As `symlink`.
    pub fn symlink(&self, target: &str, path: &Path) -> io::Result<()> {
        either!(self, |disk| disk.symlink(target, path), std::os::unix::fs::symlink(target, path))
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// As `link`.
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        either!(self, |disk| disk.hard_link(from, to), fs::hard_link(from, to))
    }

    /// Makes a FIFO.
    ///
    /// # Errors
    /// As `mkfifo`.
    pub fn fifo(&self, path: &Path) -> io::Result<()> {
        either!(
            self,
            |disk| disk.fifo(path),
            Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0)?)
        )
    }

    /// Sets permission bits.
    ///
    /// # Errors
    /// As `chmod`.
    pub fn chmod(&self, path: &Path, mode: u32) -> io::Result<()> {
        either!(
            self,
            |disk| disk.chmod(path, mode),
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        )
    }

    /// Renames.
    ///
    /// # Errors
    /// As `rename`.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        either!(self, |disk| disk.rename(from, to), fs::rename(from, to))
    }

    /// Removes whatever is there, if anything.
    ///
    /// # Errors
    /// As `unlink` and `rmdir`.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = either!(
            self,
            |disk| disk.remove(path),
            if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }
        );
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            answer => answer,
        }
    }

    /// A regular file's bytes.
    ///
    /// # Errors
    /// As `open` and `read`.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        either!(self, |disk| disk.read_file(path), fs::read(path))
    }

    /// Every name in a directory with what stands there, in the order of the names.
    ///
    /// # Errors
    /// As `readdir` and `lstat`.
    pub fn view(&self, directory: &Path) -> io::Result<Vec<Seen>> {
        let mut names = either!(
            self,
            |disk| disk.list(directory),
            fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
        )?;
        names.sort();
        names.into_iter().map(|name| self.seen(&directory.join(&name), name)).collect()
    }

    /// Whether anything has this name.
    pub fn exists(&self, path: &Path) -> bool {
        self.look(path).is_ok()
    }

    /// Looks without following a symbolic link.
    ///
    /// # Errors
    /// As `lstat`.
    pub fn look(&self, path: &Path) -> io::Result<FileStat> {
        either!(self, |disk| disk.look(path), Ok(OsFileOps::new().stat_path(path)?))
    }

    fn seen(&self, path: &Path, name: OsString) -> io::Result<Seen> {
        let stat = self.look(path)?;
        let bytes = (stat.kind == FileKind::Regular).then(|| self.read(path)).transpose()?;
        let identity = (stat.device, stat.inode, stat.birth);
        Ok(Seen { name, identity, kind: stat.kind, mode: stat.mode, bytes })
    }

    /// Does what `actor` does to the session at `session`. What it finds missing it leaves missing.
    pub fn act(&self, actor: Actor, session: &Path) {
        // An act whose object is not there has no effect; the case then says that nothing changed.
        let _ = self.try_act(actor, session);
    }

    fn try_act(&self, actor: Actor, session: &Path) -> io::Result<()> {
        let root = session.parent().unwrap_or(Path::new("/"));
        match actor {
            Actor::ReplaceFile => self.write_file(session, STRANGERS_SESSION),
            Actor::ReplaceRoot => {
                self.rename(root, &root.with_extension("moved"))?;
                self.mkdir(root)?;
                self.write_file(session, STRANGERS_SESSION)
            }
            Actor::PlantMarker => self.write_file(&marker(session), STRANGERS_FILE),
            Actor::PlantTemporary => match self.temporary(session)? {
                Some(path) => self.write_file(&path, STRANGERS_FILE),
                None => Ok(()),
            },
            Actor::RemoveMarker => self.remove(&marker(session)),
            Actor::RemoveTemporary => match self.temporary(session)? {
                Some(path) => self.remove(&path),
                None => Ok(()),
            },
            Actor::SwapSymlink => {
                self.remove(session)?;
                self.symlink(NEIGHBOUR, session)
            }
            Actor::SwapFifo => {
                self.remove(session)?;
                self.fifo(session)
            }
            Actor::SwapDirectory => {
                self.remove(session)?;
                self.mkdir(session)
            }
            Actor::Truncate => self.truncate(session, TRUNCATED),
            Actor::Rewrite => {
                let mut bytes = self.read(session)?;
                bytes.iter_mut().rev().take(REWRITTEN).for_each(|byte| *byte = 0);
                self.overwrite(session, &bytes)
            }
            Actor::Grow => {
                let mut bytes = self.read(session)?;
                bytes.extend_from_slice(STRANGERS_FILE);
                self.overwrite(session, &bytes)
            }
            Actor::Remove => self.remove(session),
            Actor::Chmod => self.chmod(session, ACTORS_MODE),
        }
    }

    /// The temporary of a commit that is under way.
    fn temporary(&self, session: &Path) -> io::Result<Option<PathBuf>> {
        let root = session.parent().unwrap_or(Path::new("/"));
        let name = session.file_name().unwrap_or_default();
        let is_temporary =
            |seen: &Seen| matches!(role::of(&seen.name, name), Role::Temporary | Role::Restore);
        Ok(self.view(root)?.into_iter().find(is_temporary).map(|seen| root.join(seen.name)))
    }
}

/// The recovery marker's path for a session file.
pub fn marker(session: &Path) -> PathBuf {
    let mut name = session.file_name().unwrap_or_default().to_owned();
    name.push(".pify-session-recovery");
    session.with_file_name(name)
}

/// The file beside the session that no store has any business with.
pub const NEIGHBOUR: &str = "notes.txt";

/// The mode that [`Actor::Chmod`] sets.
pub const ACTORS_MODE: u32 = 0o640;

/// A valid session of somebody else.
pub const STRANGERS_SESSION: &[u8] =
    b"{\"type\":\"session\",\"version\":1,\"id\":\"stranger\",\"createdAt\":\"2026-02-02T02:02:02.000Z\"}\n";

/// A file of somebody else.
pub const STRANGERS_FILE: &[u8] = b"a stranger's file\n";

const TRUNCATED: u64 = 40;
const REWRITTEN: usize = 24;
