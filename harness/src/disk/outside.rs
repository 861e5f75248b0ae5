//! Someone else on the machine: acts with all rights and without a process, descriptors or locks.
//!
//! Paths begin at the root, whether or not they begin with a slash. The disk's limits hold here too. Nothing is
//! durable before [`Disk::sync_all`] or an fsync of the file and its directory.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;

use session_tree::Errno;
use session_tree::file_ops::FileStat;

use super::node::Body;
use super::state::{State, Who, name_of};
use super::{Attributes, Disk, NodeId};

const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// Bytes of a symlink's target.
const TARGET_LIMIT: usize = 4_095;

impl Disk {
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
    /// As `open` and `write`; `ENOSPC` also where only a part was written.
    pub fn overwrite_in_place(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        state.write_all(id, bytes.as_ref())
    }

    /// Cuts or grows an existing file.
    ///
    /// # Errors
    /// As `truncate`, which does not follow a symlink here.
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        state.truncate(id, size)
    }

    /// Removes a name: of an empty directory, or of anything else.
    ///
    /// # Errors
    /// As `unlink` and `rmdir`.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<(), Errno> {
        let mut state = self.state();
        let (dir, name) = state.resolve_parent(Who::OUTSIDE, path.as_ref().as_os_str())?;
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
        let from = state.resolve_parent(Who::OUTSIDE, from.as_ref().as_os_str())?;
        let to = state.resolve_parent(Who::OUTSIDE, to.as_ref().as_os_str())?;
        state.rename(Who::OUTSIDE, from, to)
    }

    /// Gives a file a further name.
    ///
    /// # Errors
    /// As `link`.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Errno> {
        let mut state = self.state();
        let from = state.resolve_parent(Who::OUTSIDE, from.as_ref().as_os_str())?;
        let to = state.resolve_parent(Who::OUTSIDE, to.as_ref().as_os_str())?;
        state.link(Who::OUTSIDE, from, to)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As `chmod`.
    pub fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        state.set_mode(Who::OUTSIDE, id, mode)
    }

    /// Sets the owner. The bits that lend the owner's rights stay as they are.
    ///
    /// # Errors
    /// As `lchown`.
    pub fn chown(&self, path: impl AsRef<Path>, owner: u32, group: u32) -> Result<(), Errno> {
        let mut state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
        state.may_write_disk()?;
        let at = state.tick();
        let mode = state.node(id).attributes.mode;
        state.node_mut(id).set_attributes(at, Attributes { mode, owner, group });
        Ok(())
    }

    /// A regular file's bytes.
    ///
    /// # Errors
    /// As `open`; `EINVAL` for what is neither file nor directory, `EISDIR` for a directory.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Errno> {
        let state = self.state();
        let id = state.existing(path.as_ref().as_os_str())?;
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
        Ok(state.directory(id)?.entries.iter().map(|(name, _)| name.as_ref().to_owned()).collect())
    }

    fn make(
        &self,
        path: impl AsRef<Path>,
        mode: u32,
        body: impl FnOnce(NodeId) -> Body,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let (dir, name) = state.resolve_parent(Who::OUTSIDE, path.as_ref().as_os_str())?;
        state.create(Who::OUTSIDE, dir, name, mode, body(dir)).map(drop)
    }
}

impl State {
    fn existing(&self, path: &OsStr) -> Result<NodeId, Errno> {
        self.resolve(Who::OUTSIDE, path)
    }

    fn write_file(&mut self, path: &OsStr, bytes: &[u8]) -> Result<(), Errno> {
        let (dir, name) = self.resolve_parent(Who::OUTSIDE, path)?;
        let Some(old) = self.search(Who::OUTSIDE, dir, name)? else {
            let id = self.create(Who::OUTSIDE, dir, name, FILE_MODE, Body::empty_file())?;
            return self.write_all(id, bytes);
        };
        if self.node(old).is_directory() {
            return Err(Errno::EISDIR);
        }
        self.may_write_disk()?;
        self.room_for_inode()?;
        if self.room() < bytes.len() as u64 {
            return Err(Errno::ENOSPC);
        }
        let at = self.tick();
        let attributes = Attributes { mode: FILE_MODE, owner: 0, group: 0 };
        let id = self.add(at, attributes, Body::empty_file());
        self.set_entry(at, dir, name_of(name), Some(id));
        self.drop_link(at, old);
        self.write_all(id, bytes)
    }

    fn write_all(&mut self, id: NodeId, bytes: &[u8]) -> Result<(), Errno> {
        if self.node(id).is_directory() {
            return Err(Errno::EISDIR);
        }
        let written = self.write(Who::OUTSIDE, (id, true), &[IoSlice::new(bytes)], 0)?;
        if written < bytes.len() { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    fn remove(&mut self, dir: NodeId, name: &OsStr) -> Result<(), Errno> {
        match self.remove_directory(Who::OUTSIDE, dir, name) {
            Err(Errno::ENOTDIR) => self.unlink(Who::OUTSIDE, dir, name),
            answer => answer,
        }
    }

    fn remove_all(&mut self, path: &OsStr) -> Result<(), Errno> {
        let (dir, name) = self.resolve_parent(Who::OUTSIDE, path)?;
        let mut todo = vec![(dir, name_of(name))];
        while let Some((dir, name)) = todo.last().cloned() {
            match self.remove(dir, &name) {
                Err(Errno::ENOTEMPTY) => {
                    let full = self.find(Who::OUTSIDE, dir, &name)?;
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
