//! Temporaries that dead processes left (requirement X3). They hold nothing that a session needs.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::errno::Errno;
use crate::error::{Result, Stage};
use crate::file_ops::{Access, FileKind, FileOps, Lock, OsFileOps};
use crate::identity::Identity;
use crate::place::{NotRemoved, Place, Seen};
use crate::sibling_name;

const STAGE: Stage = Stage::X3;

/// A temporary that no live process has locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Its name in the session's directory.
    pub name: OsString,
    /// Its size in bytes.
    pub size: u64,
}

/// Lists the temporaries of dead processes beside the session at `path`.
///
/// # Errors
/// [`Code::Io`](crate::Code::Io) and [`Code::RootChanged`](crate::Code::RootChanged).
pub fn strays(path: impl AsRef<Path>) -> Result<Vec<Stray>> {
    strays_with(OsFileOps::new(), path)
}

/// [`strays`] on any file operations.
///
/// # Errors
/// As [`strays`].
pub fn strays_with<O: FileOps>(ops: O, path: impl AsRef<Path>) -> Result<Vec<Stray>> {
    in_place(&Place::open(ops, path.as_ref(), STAGE)?)
}

/// Removes the temporaries of dead processes beside the session at `path`, and says which.
///
/// Only names of the store's own form, only regular files, and only where nobody has locked the inode. Where the file
/// system has no locks nothing tells a stray from a commit under way, and nothing is removed.
///
/// # Errors
/// [`Code::Io`](crate::Code::Io) and [`Code::RootChanged`](crate::Code::RootChanged); what was removed before is gone.
pub fn remove_strays(path: impl AsRef<Path>) -> Result<Vec<Stray>> {
    remove_strays_with(OsFileOps::new(), path)
}

/// [`remove_strays`] on any file operations.
///
/// # Errors
/// As [`remove_strays`].
pub fn remove_strays_with<O: FileOps>(ops: O, path: impl AsRef<Path>) -> Result<Vec<Stray>> {
    let place = Place::open(ops, path.as_ref(), STAGE)?;
    let mut removed = Vec::new();
    for stray in in_place(&place)? {
        let Some((_locked, identity)) = lock_abandoned(&place, &stray.name)? else { continue };
        match place.remove(&stray.name, &[&identity]) {
            Ok(()) => removed.push(stray),
            Err(NotRemoved::Foreign) => {}
            Err(NotRemoved::Failed(errno)) => return Err(place.io("remove a stray temporary", errno, STAGE)),
        }
    }
    Ok(removed)
}

pub(super) fn in_place<O: FileOps>(place: &Place<O>) -> Result<Vec<Stray>> {
    let mut names =
        place.ops.list(&place.dir).map_err(|errno| place.io("list the directory", errno, STAGE))?;
    names.retain(|name| sibling_name::is_temporary_of(&place.name, name));
    names.sort();
    let mut strays = Vec::new();
    for name in names {
        let seen = place.look(&name).map_err(|errno| place.io("look at a temporary", errno, STAGE))?;
        let Seen::Present(stat) = seen else { continue };
        if lock_abandoned(place, &name)?.is_some() {
            strays.push(Stray { name, size: stat.size });
        }
    }
    Ok(strays)
}

/// The file, locked until dropped, where it is regular and nobody else has locked it.
fn lock_abandoned<O: FileOps>(place: &Place<O>, name: &OsStr) -> Result<Option<(O::File, Identity)>> {
    let seen = place.look(name).map_err(|errno| place.io("look at a temporary", errno, STAGE))?;
    if !matches!(seen, Seen::Present(stat) if stat.kind == FileKind::Regular) {
        return Ok(None);
    }
    let file = match place.open_name(name, Access::Read) {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::ELOOP) => return Ok(None),
        Err(errno) => return Err(place.io("open a temporary", errno, STAGE)),
    };
    let opened = place.ops.stat(&file).map_err(|errno| place.io("look at a temporary", errno, STAGE))?;
    if opened.kind != FileKind::Regular || place.try_lock(&file, Lock::Shared) != Ok(true) {
        return Ok(None);
    }
    Ok(Some((file, Identity::of(&opened))))
}
