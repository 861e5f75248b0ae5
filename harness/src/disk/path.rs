//! Names, paths and permissions, in the order in which Linux checks them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use session_tree::Errno;

use super::NodeId;
use super::node::Body;
use super::state::{ROOT, State, Who};

/// Bytes of a path, its closing NUL included.
const PATH_MAX: usize = 4_096;
/// Symlinks followed on one path.
const MAX_SYMLINKS: usize = 40;

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

const STICKY: u32 = 0o1000;

/// What is refused before the kernel is asked: a text that cannot be handed to it, and a name that is a path.
///
/// A real directory descriptor would resolve a name with a slash, but the boundary promises single components, so
/// one with a slash is a defect of the caller.
///
/// # Errors
/// `EINVAL`.
pub(super) fn check_name(name: &OsStr) -> Result<(), Errno> {
    let odd = name.as_bytes().iter().any(|byte| matches!(byte, 0 | b'/'));
    if odd { Err(Errno::EINVAL) } else { Ok(()) }
}

/// What is refused of a path or name before anything is looked up.
///
/// # Errors
/// `EINVAL`, `ENOENT` for an empty text, `ENAMETOOLONG`.
pub(super) fn check_path(path: &OsStr) -> Result<(), Errno> {
    if path.as_bytes().contains(&0) {
        return Err(Errno::EINVAL);
    }
    match path.len() {
        0 => Err(Errno::ENOENT),
        PATH_MAX.. => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

pub(super) fn is_dots(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"." | b"..")
}

impl State {
    /// What `name` of `dir` stands for.
    ///
    /// # Errors
    /// `EACCES`; `ENOENT` in a removed directory; `ENAMETOOLONG`.
    pub(super) fn search(&self, who: Who, dir: NodeId, name: &OsStr) -> Result<Option<NodeId>, Errno> {
        let directory = self.directory(dir)?;
        self.enter(who, dir, name)?;
        match name.as_bytes() {
            b"." => return Ok(Some(dir)),
            b".." => return Ok(Some(directory.parent)),
            _ => {}
        }
        if self.node(dir).links == 0 {
            return Err(Errno::ENOENT);
        }
        if name.len() as u64 > self.options.name_limit {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(directory.entries.get(name))
    }

    /// What [`State::search`] refuses whatever the directory holds.
    ///
    /// # Errors
    /// `EINVAL`, `ENOENT`, `ENAMETOOLONG`, `EACCES`.
    pub(super) fn enter(&self, who: Who, dir: NodeId, name: &OsStr) -> Result<(), Errno> {
        check_path(name)?;
        self.permit(who, dir, SEARCH)
    }

    /// As [`State::search`], where there must be something.
    ///
    /// # Errors
    /// `ENOENT` and those of [`State::search`].
    pub(super) fn find(&self, who: Who, dir: NodeId, name: &OsStr) -> Result<NodeId, Errno> {
        self.search(who, dir, name)?.ok_or(Errno::ENOENT)
    }

    /// What `path` stands for. A symlink in its last component is not followed, unless a slash comes after it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, `EACCES`, `EINVAL`.
    pub(super) fn resolve(&self, who: Who, path: &OsStr) -> Result<NodeId, Errno> {
        check_path(path)?;
        let mut text = Cow::Borrowed(path.as_bytes());
        let mut start = 0;
        let mut at = ROOT;
        let mut followed = 0;
        loop {
            start += slashes(&text[start..]);
            if start == text.len() {
                return Ok(at);
            }
            let end = start + component(&text[start..]);
            let next = self.find(who, at, OsStr::from_bytes(&text[start..end]))?;
            let more = end < text.len();
            match &self.node(next).body {
                Body::Symlink(target) if more => {
                    if followed == MAX_SYMLINKS {
                        return Err(Errno::ELOOP);
                    }
                    followed += 1;
                    self.may_follow(who, at, next)?;
                    if target.as_bytes().starts_with(b"/") {
                        at = ROOT;
                    }
                    text = Cow::Owned([target.as_bytes(), &text[end..]].concat());
                    start = 0;
                }
                Body::Directory(_) => (at, start) = (next, end),
                _ if more => return Err(Errno::ENOTDIR),
                _ => return Ok(next),
            }
        }
    }

    /// The directory that holds the last component of `path`, and that component.
    ///
    /// # Errors
    /// As [`State::resolve`]; `EBUSY` for the root.
    pub(super) fn resolve_parent<'a>(&self, who: Who, path: &'a OsStr) -> Result<(NodeId, &'a OsStr), Errno> {
        check_path(path)?;
        let bytes = path.as_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').ok_or(Errno::EBUSY)? + 1;
        let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let dir = match start {
            0 => ROOT,
            _ => self.resolve(who, OsStr::from_bytes(&bytes[..start]))?,
        };
        self.permit(who, dir, SEARCH)?;
        Ok((dir, OsStr::from_bytes(&bytes[start..end])))
    }

    /// # Errors
    /// `EACCES`.
    pub(super) fn permit(&self, who: Who, id: NodeId, wanted: u32) -> Result<(), Errno> {
        let attributes = self.node(id).attributes;
        if who.user == 0 {
            return Ok(());
        }
        let granted = if attributes.owner == who.user {
            attributes.mode >> 6
        } else if attributes.group == who.group {
            attributes.mode >> 3
        } else {
            attributes.mode
        };
        if granted & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether a symlink may be followed: a stranger's in a directory where anyone may plant one may not.
    ///
    /// # Errors
    /// `EACCES`.
    fn may_follow(&self, who: Who, dir: NodeId, link: NodeId) -> Result<(), Errno> {
        let of_dir = self.node(dir).attributes;
        let of_link = self.node(link).attributes;
        let anyone = of_dir.mode & (STICKY | WRITE) == STICKY | WRITE;
        if self.options.protected_symlinks && anyone && ![who.user, of_dir.owner].contains(&of_link.owner) {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// Whether names may be added to `dir`.
    ///
    /// # Errors
    /// `EACCES`.
    pub(super) fn may_add(&self, who: Who, dir: NodeId) -> Result<(), Errno> {
        self.permit(who, dir, WRITE | SEARCH)
    }

    /// Whether the name of `victim` may be taken from `dir`.
    ///
    /// # Errors
    /// `EACCES`; `EPERM` in a sticky directory.
    pub(super) fn may_take(&self, who: Who, dir: NodeId, victim: NodeId) -> Result<(), Errno> {
        self.may_add(who, dir)?;
        let of_dir = self.node(dir).attributes;
        let of_victim = self.node(victim).attributes;
        let sticky = of_dir.mode & STICKY != 0;
        if sticky && who.user != 0 && ![of_dir.owner, of_victim.owner].contains(&who.user) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}

fn slashes(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte == b'/').count()
}

fn component(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte != b'/').count()
}
