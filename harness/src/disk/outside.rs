//! Someone else on the machine: acts without a process, descriptors or locks, and with all rights unless
//! [`Disk::act_as`] says otherwise.
//!
//! Paths begin at the root, whether or not they begin with a slash. The disk's limits hold here too. Nothing is
//! durable before [`Disk::sync_all`] or an fsync of the file and its directory.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;

use session_tree::Errno;
use session_tree::file_ops::{FileKind, FileStat};

use super::node::Body;
use super::path::{READ, WRITE};
use super::state::{State, Who, name_of};
use super::{Disk, NodeId};

const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// Bytes of a symlink's target.
const TARGET_LIMIT: usize = 4_095;

impl Disk {
    /// From now on the methods of this page act as this user and group, with the rights that these have.
    pub fn act_as(&self, user: u32, group: u32) {
        self.state().outsider = Who { user, group, umask: 0 };
    }

    /// Creates a directory of mode 0755.
    ///
    /// # Errors
    /// As `mkdir`.
    pub fn mkdir(&self, path: impl AsRef<Path>) -> Result<(), Errno> {
        self.make(path, DIRECTORY_MODE, Body::empty_directory)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// As `symlink`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<(), Errno> {
        let target = target.as_ref().as_os_str();
        match target.len() {
            0 => return Err(Errno::ENOENT),
            TARGET_LIMIT.. => return Err(Errno::ENAMETOOLONG),
            _ => {}
        }
        self.make(path, 0o777, |_| Body::Symlink(name_of(target)))
    }

    /// Creates a FIFO of mode 0644.
    ///
    /// # Errors
    /// As `mkfifo`.
    pub fn fifo(&self, path: impl AsRef<Path>) -> Result<(), Errno> {
        self.make(path, FILE_MODE, |_| Body::Fifo)
    }

    /// Creates something that is neither file, directory, symlink nor FIFO and behaves as a socket does: opening it
    /// answers ENXIO.
    ///
    /// # Errors
    /// As `mknod`.
    pub fn other(&self, path: impl AsRef<Path>) -> Result<(), Errno> {
        self.make(path, FILE_MODE, |_| Body::Other)
    }

    /// Puts a new file of mode 0644 with these bytes at the path, in place of any file that is there: another inode,
    /// as an editor leaves that writes beside and renames.
    ///
    /// # Errors
    /// As creating, writing and renaming; a file that is in the way stays on a failure.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.state().write_file(path.as_ref().as_os_str(), bytes.as_ref())
    }

    /// Writes over the first bytes of an existing file.
    ///
    /// # Errors
    /// As `open` with `O_NOFOLLOW | O_NONBLOCK` and `write`; `ENOSPC` also where only a part was written.
    pub fn overwrite_in_place(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        match state.node(id).kind() {
            FileKind::Regular => state.permit(state.outsider, id, WRITE)?,
            FileKind::Directory => return Err(Errno::EISDIR),
            FileKind::Symlink => return Err(Errno::ELOOP),
            FileKind::Fifo | FileKind::Other => return Err(Errno::ENXIO),
        }
        state.write_all(id, bytes.as_ref())
    }

    /// Cuts or grows an existing file.
    ///
    /// # Errors
    /// As `truncate`, which does not follow a symlink here.
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        let who = state.outsider;
        state.truncate(who, id, size)
    }

    /// Removes a name: of an empty directory, or of anything else.
    ///
    /// # Errors
    /// As `unlink` and `rmdir`.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<(), Errno> {
        let mut state = self.state();
        let (dir, name) = state.resolve_parent(state.outsider, path.as_ref().as_os_str())?;
        state.remove(dir, name)
    }

    /// Removes a name and all that is below it.
    ///
    /// # Errors
    /// As `unlink` and `rmdir`.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> Result<(), Errno> {
        self.state().remove_all(path.as_ref().as_os_str())
    }

    /// Renames within a directory or across.
    ///
    /// # Errors
    /// As `rename`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Errno> {
        let mut state = self.state();
        let who = state.outsider;
        let from = state.resolve_parent(who, from.as_ref().as_os_str())?;
        let to = state.resolve_parent(who, to.as_ref().as_os_str())?;
        state.rename(who, from, to)
    }

    /// Gives a file a further name.
    ///
    /// # Errors
    /// As `link`.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Errno> {
        let mut state = self.state();
        let who = state.outsider;
        let from = state.resolve_parent(who, from.as_ref().as_os_str())?;
        state.find(who, from.0, from.1)?;
        let to = state.resolve_parent(who, to.as_ref().as_os_str())?;
        state.link(who, from, to)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As `chmod`; `ENOTSUP` for a symlink, which is not followed.
    pub fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        if state.node(id).kind() == FileKind::Symlink {
            return Err(Errno::ENOTSUP);
        }
        let who = state.outsider;
        state.set_mode(who, id, mode)
    }

    /// Sets the owner; of anything but a directory, the bits that lend the owner's rights are gone then.
    ///
    /// # Errors
    /// As `lchown`; `EPERM` for anyone but user 0.
    pub fn chown(&self, path: impl AsRef<Path>, owner: u32, group: u32) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        let who = state.outsider;
        state.set_owner(who, id, owner, group)
    }

    /// A regular file's bytes.
    ///
    /// # Errors
    /// As `open`; `EINVAL` for what is neither file nor directory, `EISDIR` for a directory.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Errno> {
        let state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        state.permit(state.outsider, id, READ)?;
        match &state.node(id).body {
            Body::File(file) => Ok(file.bytes.to_vec()),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Looks without following a symlink.
    ///
    /// # Errors
    /// As `lstat`.
    pub fn look(&self, path: impl AsRef<Path>) -> Result<FileStat, Errno> {
        let state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        Ok(state.stat(id))
    }

    /// Whether anything has that name, a symlink to nothing included.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.state().existing(path.as_ref().as_os_str()).is_ok()
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// As `open` with `O_DIRECTORY | O_NOFOLLOW`.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>, Errno> {
        let state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        state.permit(state.outsider, id, READ)?;
        Ok(state.directory(id)?.entries.iter().map(|(name, _)| name.as_ref().to_owned()).collect())
    }

    fn make(
        &self,
        path: impl AsRef<Path>,
        mode: u32,
        body: impl FnOnce(NodeId) -> Body,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let who = state.outsider;
        let (dir, name) = state.resolve_parent(who, path.as_ref().as_os_str())?;
        state.create(who, dir, name, mode, body(dir)).map(drop)
    }
}

impl State {
    fn existing(&self, path: &OsStr) -> Result<NodeId, Errno> {
        self.resolve(self.outsider, path)
    }

    fn write_file(&mut self, path: &OsStr, bytes: &[u8]) -> Result<(), Errno> {
        let who = self.outsider;
        let (dir, name) = self.resolve_parent(who, path)?;
        let Some(old) = self.search(who, dir, name)? else {
            let id = self.create(who, dir, name, FILE_MODE, Body::empty_file())?;
            return self.write_all(id, bytes);
        };
        self.may_write_disk()?;
        self.may_take(who, dir, old)?;
        if self.node(old).is_directory() {
            return Err(Errno::EISDIR);
        }
        self.room_for_inode()?;
        if self.room() < bytes.len() as u64 {
            return Err(Errno::ENOSPC);
        }
        let attributes = self.first_attributes(who, dir, FILE_MODE, &Body::empty_file());
        let at = self.tick();
        let id = self.add(at, attributes, Body::empty_file());
        self.set_entry(at, dir, name_of(name), Some(id));
        self.drop_link(at, old);
        self.write_all(id, bytes)
    }

    fn write_all(&mut self, id: NodeId, bytes: &[u8]) -> Result<(), Errno> {
        let written = self.write(self.outsider, (id, true), &[IoSlice::new(bytes)], 0)?;
        if written < bytes.len() { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    fn remove(&mut self, dir: NodeId, name: &OsStr) -> Result<(), Errno> {
        match self.remove_directory(self.outsider, dir, name) {
            Err(Errno::ENOTDIR) => self.unlink(self.outsider, dir, name),
            answer => answer,
        }
    }

    fn remove_all(&mut self, path: &OsStr) -> Result<(), Errno> {
        let (dir, name) = self.resolve_parent(self.outsider, path)?;
        let mut todo = vec![(dir, name_of(name))];
        while let Some((dir, name)) = todo.last().cloned() {
            match self.remove(dir, &name) {
                Err(Errno::ENOTEMPTY) => {
                    let full = self.find(self.outsider, dir, &name)?;
                    todo.extend(self.directory(full)?.entries.iter().map(|(name, _)| (full, name.clone())));
                }
                answer => {
                    answer?;
                    todo.pop();
                }
            }
        }
        Ok(())
    }
}
