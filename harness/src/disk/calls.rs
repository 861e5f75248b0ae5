//! What system calls do to the tables. Checks stand in the order of Linux, so that where several errors apply the
//! same one is answered.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::Arc;

use session_tree::Errno;
use session_tree::file_ops::{Access, FileKind};

use super::node::{Body, DataChange, DataEdit, DirectoryBody, FileBody, Node};
use super::path::{READ, WRITE, check_name, is_dots};
use super::state::{Descriptor, State, Who, name_of};
use super::{Attributes, NodeId};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
/// Slices that one call takes; the rest is left to the next one.
const MAX_SLICES: usize = 1_024;
/// What a position in a FIFO is answered with.
pub(super) const ESPIPE: Errno = Errno::from_raw(29);

impl State {
    /// # Errors
    /// `EEXIST`, `EROFS`, `EACCES`, `ENOSPC`, `ENOENT`, `ENAMETOOLONG`, `EINVAL`.
    pub(super) fn create(
        &mut self,
        who: Who,
        dir: NodeId,
        name: &OsStr,
        mode: u32,
        body: Body,
    ) -> Result<NodeId, Errno> {
        check_name(name)?;
        if self.search(who, dir, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        self.may_write_disk()?;
        self.may_add(who, dir)?;
        self.room_for_inode()?;
        let attributes = self.first_attributes(who, dir, mode, &body);
        let at = self.tick();
        let is_directory = matches!(body, Body::Directory(_));
        let id = self.add(at, attributes, body);
        if is_directory {
            self.node_mut(dir).links += 1;
        }
        self.set_entry(at, dir, name_of(name), Some(id));
        Ok(id)
    }

    /// # Errors
    /// `ENOENT`, `ELOOP`, `EISDIR`, `EROFS`, `EACCES`, `ENXIO`, `ENAMETOOLONG`, `EINVAL`.
    pub(super) fn openable(
        &self,
        who: Who,
        dir: NodeId,
        name: &OsStr,
        access: Access,
    ) -> Result<NodeId, Errno> {
        let id = self.find(who, dir, name)?;
        let kind = self.node(id).kind();
        let writes = access == Access::ReadWrite;
        if kind == FileKind::Symlink {
            return Err(Errno::ELOOP);
        }
        if kind == FileKind::Directory && writes {
            return Err(Errno::EISDIR);
        }
        if kind == FileKind::Regular && writes {
            self.may_write_disk()?;
        }
        self.permit(who, id, if writes { READ | WRITE } else { READ })?;
        if kind == FileKind::Other { Err(Errno::ENXIO) } else { Ok(id) }
    }

    /// # Errors
    /// `ENOENT`, `EEXIST`, `EROFS`, `EPERM`, `EACCES`, `EMLINK`, `ENOSPC`, `ENAMETOOLONG`, `EINVAL`.
    pub(super) fn link(
        &mut self,
        who: Who,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
    ) -> Result<(), Errno> {
        check_name(from.1)?;
        check_name(to.1)?;
        let id = self.find(who, from.0, from.1)?;
        if self.search(who, to.0, to.1)?.is_some() {
            return Err(Errno::EEXIST);
        }
        self.may_write_disk()?;
        self.may_share(who, id)?;
        self.may_add(who, to.0)?;
        let node = self.node(id);
        if !self.options.hard_links || node.is_directory() {
            return Err(Errno::EPERM);
        }
        if node.links >= self.options.links_per_inode {
            return Err(Errno::EMLINK);
        }
        self.room_for_entry()?;
        let at = self.tick();
        let node = self.node_mut(id);
        node.links += 1;
        node.changed = at;
        self.set_entry(at, to.0, name_of(to.1), Some(id));
        Ok(())
    }

    /// # Errors
    /// `EBUSY`, `EROFS`, `ENOENT`, `EINVAL`, `ENOTEMPTY`, `EACCES`, `EPERM`, `ENOTDIR`, `EISDIR`, `ENAMETOOLONG`.
    pub(super) fn rename(
        &mut self,
        who: Who,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
    ) -> Result<(), Errno> {
        check_name(from.1)?;
        check_name(to.1)?;
        self.enter(who, from.0, from.1)?;
        self.enter(who, to.0, to.1)?;
        if is_dots(from.1) || is_dots(to.1) {
            return Err(Errno::EBUSY);
        }
        self.may_write_disk()?;
        let source = self.find(who, from.0, from.1)?;
        let target = self.search(who, to.0, to.1)?;
        if self.is_within(to.0, source) {
            return Err(Errno::EINVAL);
        }
        if target.is_some_and(|target| self.is_within(from.0, target)) {
            return Err(Errno::ENOTEMPTY);
        }
        if target == Some(source) {
            return Ok(());
        }
        self.may_replace(who, from.0, source, to.0, target)?;
        self.do_rename(source, from, target, to);
        Ok(())
    }

    /// # Errors
    /// `EISDIR`, `EROFS`, `ENOENT`, `EACCES`, `EPERM`, `ENAMETOOLONG`, `EINVAL`.
    pub(super) fn unlink(&mut self, who: Who, dir: NodeId, name: &OsStr) -> Result<(), Errno> {
        check_name(name)?;
        self.enter(who, dir, name)?;
        if is_dots(name) {
            return Err(Errno::EISDIR);
        }
        self.may_write_disk()?;
        let victim = self.find(who, dir, name)?;
        self.may_take(who, dir, victim)?;
        if self.node(victim).is_directory() {
            return Err(Errno::EISDIR);
        }
        let at = self.tick();
        self.set_entry(at, dir, name_of(name), None);
        self.drop_link(at, victim);
        Ok(())
    }

    /// # Errors
    /// `EINVAL`, `EROFS`, `ENOENT`, `EACCES`, `EPERM`, `ENOTDIR`, `ENOTEMPTY`, `ENAMETOOLONG`.
    pub(super) fn remove_directory(&mut self, who: Who, dir: NodeId, name: &OsStr) -> Result<(), Errno> {
        check_name(name)?;
        self.enter(who, dir, name)?;
        if is_dots(name) {
            return Err(Errno::EINVAL);
        }
        self.may_write_disk()?;
        let victim = self.find(who, dir, name)?;
        self.may_take(who, dir, victim)?;
        if !self.directory(victim)?.entries.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        let at = self.tick();
        self.set_entry(at, dir, name_of(name), None);
        self.node_mut(dir).links -= 1;
        self.drop_link(at, victim);
        Ok(())
    }

    /// # Errors
    /// `EINVAL`, `ESPIPE`, `EISDIR`.
    pub(super) fn read(&self, node: NodeId, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        position(offset, 0)?;
        match &self.node(node).body {
            Body::File(file) => {
                position(offset, buf.len() as u64)?;
                let rest = usize::try_from(offset).ok().and_then(|offset| file.bytes.get(offset..));
                let rest = rest.unwrap_or_default();
                let count = rest.len().min(buf.len());
                buf[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
            Body::Directory(_) => position(offset, buf.len() as u64).and(Err(Errno::EISDIR)),
            Body::Symlink(_) | Body::Fifo | Body::Other => Err(ESPIPE),
        }
    }

    /// # Errors
    /// `EINVAL`, `ESPIPE`, `EBADF`, `EFBIG`, `ENOSPC`, `EROFS`.
    pub(super) fn write(
        &mut self,
        who: Who,
        descriptor: (NodeId, bool),
        bufs: &[IoSlice<'_>],
        offset: u64,
    ) -> Result<usize, Errno> {
        let (id, writable) = descriptor;
        position(offset, 0)?;
        if self.node(id).kind() == FileKind::Fifo {
            return Err(ESPIPE);
        }
        if !writable {
            return Err(Errno::EBADF);
        }
        let bufs = &bufs[..bufs.len().min(MAX_SLICES)];
        let offered: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        if offered == 0 {
            return Ok(0);
        }
        position(offset, offered)?;
        self.may_write_disk()?;
        let size = self.node(id).file_size();
        let limit = self.options.largest_file;
        if offset >= limit {
            return Err(Errno::EFBIG);
        }
        let end = (offset + offered).min(limit).min(size.saturating_add(self.room()));
        if end <= offset {
            return Err(Errno::ENOSPC);
        }
        self.put(who, id, bufs, offset, end);
        Ok((end - offset) as usize)
    }

    /// # Errors
    /// `EISDIR`, `EINVAL`, `EROFS`, `EACCES`, `EFBIG`, `ENOSPC`.
    pub(super) fn truncate(&mut self, who: Who, id: NodeId, size: u64) -> Result<(), Errno> {
        let before = match self.node(id).kind() {
            FileKind::Regular => self.node(id).file_size(),
            FileKind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        self.may_write_disk()?;
        self.permit(who, id, WRITE)?;
        if size > self.options.largest_file {
            return Err(Errno::EFBIG);
        }
        if size > before && size - before > self.room() {
            return Err(Errno::ENOSPC);
        }
        let at = self.tick();
        self.bytes = self.bytes - before + size;
        self.edit(at, id, DataEdit::Resize { size }, |bytes| bytes.resize(size as usize, 0));
        self.drop_privileges(who, at, id);
        Ok(())
    }

    /// # Errors
    /// `EROFS`, `EPERM`.
    pub(super) fn set_mode(&mut self, who: Who, id: NodeId, mode: u32) -> Result<(), Errno> {
        self.may_write_disk()?;
        let before = self.node(id).attributes;
        if who.user != 0 && who.user != before.owner {
            return Err(Errno::EPERM);
        }
        let mut mode = mode & 0o7777;
        if who.user != 0 && who.group != before.group {
            mode &= !SET_GROUP;
        }
        let at = self.tick();
        self.node_mut(id).set_attributes(at, Attributes { mode, ..before });
        Ok(())
    }

    /// # Errors
    /// `EROFS`, `EPERM`.
    pub(super) fn set_owner(&mut self, who: Who, id: NodeId, owner: u32, group: u32) -> Result<(), Errno> {
        self.may_write_disk()?;
        if who.user != 0 {
            return Err(Errno::EPERM);
        }
        let node = self.node(id);
        let mut mode = node.attributes.mode;
        if !node.is_directory() {
            mode &= !SET_USER;
            if mode & GROUP_EXECUTE != 0 {
                mode &= !SET_GROUP;
            }
        }
        let at = self.tick();
        self.node_mut(id).set_attributes(at, Attributes { mode, owner, group });
        Ok(())
    }

    pub(super) fn first_attributes(&self, who: Who, dir: NodeId, mode: u32, body: &Body) -> Attributes {
        let parent = self.node(dir).attributes;
        let inherits = parent.mode & SET_GROUP != 0;
        let group = if inherits { parent.group } else { who.group };
        let mut mode = mode & 0o7777 & !who.umask;
        match body {
            Body::Symlink(_) => mode = 0o777,
            Body::Directory(_) if inherits => mode |= SET_GROUP,
            _ if inherits && who.user != 0 && who.group != group && mode & GROUP_EXECUTE != 0 => {
                mode &= !SET_GROUP;
            }
            _ => {}
        }
        Attributes { mode, owner: who.user, group }
    }

    /// Whether someone may give another's file a further name.
    fn may_share(&self, who: Who, id: NodeId) -> Result<(), Errno> {
        let node = self.node(id);
        if !self.options.protected_hard_links || who.user == 0 || who.user == node.attributes.owner {
            return Ok(());
        }
        let mode = node.attributes.mode;
        let special = mode & SET_USER != 0 || mode & (SET_GROUP | GROUP_EXECUTE) == SET_GROUP | GROUP_EXECUTE;
        if node.kind() == FileKind::Regular && !special && self.permit(who, id, READ | WRITE).is_ok() {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    fn may_replace(
        &self,
        who: Who,
        from: NodeId,
        source: NodeId,
        to: NodeId,
        target: Option<NodeId>,
    ) -> Result<(), Errno> {
        self.may_take(who, from, source)?;
        let moves_directory = self.node(source).is_directory();
        match target {
            None => self.may_add(who, to)?,
            Some(target) => {
                self.may_take(who, to, target)?;
                match (moves_directory, self.node(target).is_directory()) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ => {}
                }
            }
        }
        if moves_directory && from != to {
            self.permit(who, source, WRITE)?;
        }
        match target.map(|target| self.directory(target)) {
            Some(Ok(directory)) if !directory.entries.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn do_rename(
        &mut self,
        source: NodeId,
        from: (NodeId, &OsStr),
        target: Option<NodeId>,
        to: (NodeId, &OsStr),
    ) {
        let at = self.tick();
        self.set_entry(at, from.0, name_of(from.1), None);
        self.set_entry(at, to.0, name_of(to.1), Some(source));
        let node = self.node_mut(source);
        node.changed = at;
        if let Body::Directory(directory) = &mut node.body {
            directory.parent = to.0;
            self.node_mut(from.0).links -= 1;
            self.node_mut(to.0).links += 1;
        }
        if let Some(target) = target {
            if self.node(target).is_directory() {
                self.node_mut(to.0).links -= 1;
            }
            self.drop_link(at, target);
        }
    }

    /// Whether `inner` is `outer` or anywhere below it.
    fn is_within(&self, inner: NodeId, outer: NodeId) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.directory(at) {
                Ok(directory) if directory.parent != at => at = directory.parent,
                _ => return false,
            }
        }
    }

    fn put(&mut self, who: Who, id: NodeId, bufs: &[IoSlice<'_>], offset: u64, end: u64) {
        let at = self.tick();
        let before = self.node(id).file_size();
        self.bytes += end.saturating_sub(before);
        self.edit(at, id, DataEdit::Write { offset, length: end - offset }, |bytes| {
            bytes.resize(bytes.len().max(end as usize), 0);
            let mut room = &mut bytes[offset as usize..end as usize];
            for buf in bufs {
                let count = buf.len().min(room.len());
                let (now, later) = room.split_at_mut(count);
                now.copy_from_slice(&buf[..count]);
                room = later;
            }
        });
        self.drop_privileges(who, at, id);
    }

    fn edit(&mut self, at: u64, id: NodeId, what: DataEdit, edit: impl FnOnce(&mut Vec<u8>)) {
        let node = self.node_mut(id);
        node.modified = at;
        node.changed = at;
        if let Body::File(file) = &mut node.body {
            edit(Arc::make_mut(&mut file.bytes));
            file.changes.push(DataChange { at, what });
        }
    }

    /// Writing by anyone but the superuser takes the bits that would lend the owner's rights.
    fn drop_privileges(&mut self, who: Who, at: u64, id: NodeId) {
        let before = self.node(id).attributes;
        if who.user == 0 || before.mode & (SET_USER | SET_GROUP) == 0 {
            return;
        }
        let mut mode = before.mode & !SET_USER;
        if mode & GROUP_EXECUTE != 0 || who.group != before.group {
            mode &= !SET_GROUP;
        }
        if mode != before.mode {
            self.node_mut(id).set_attributes(at, Attributes { mode, ..before });
        }
    }
}

impl Body {
    pub(super) fn empty_file() -> Body {
        Body::File(FileBody::default())
    }

    pub(super) fn empty_directory(parent: NodeId) -> Body {
        Body::Directory(DirectoryBody::new(parent))
    }
}

impl Descriptor {
    pub(super) fn target(&self) -> (NodeId, bool) {
        (self.node, self.writable)
    }
}

/// # Errors
/// `EINVAL` where the range ends beyond what a signed offset can say.
fn position(offset: u64, length: u64) -> Result<(), Errno> {
    let end = offset.checked_add(length).and_then(|end| i64::try_from(end).ok());
    end.map(drop).ok_or(Errno::EINVAL)
}

impl Node {
    pub(super) fn symlink_target(&self) -> Option<&OsStr> {
        match &self.body {
            Body::Symlink(target) => Some(target),
            _ => None,
        }
    }
}
