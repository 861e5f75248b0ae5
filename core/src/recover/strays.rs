//! Temporaries that dead processes left (requirement X3). A session that loads needs none of them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::{State, decide, observe};
use crate::decode::decode;
use crate::errno::Errno;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{Access, FileKind, FileOps, Lock, OsFileOps};
use crate::identity::Generation;
use crate::limits::MAX_SESSION_FILE_BYTES;
use crate::load;
use crate::place::{NotRemoved, Place, Seen, locks_are_missing};
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

/// Removes the temporaries of dead processes beside the session at `path`, and says which. A commit under way is
/// waited for, bounded.
///
/// Only beside a session that loads and has no marker, and where there is neither: in every other state a temporary
/// may be the only copy of an entry. Where there is no session, one that holds entries stays, for the same reason.
/// Only names of the store's own form, only regular files, and only where nobody has locked the inode. Where the file
/// system has no locks nothing tells a stray from a commit under way, and nothing is removed. A power cut may bring
/// back what was removed.
///
/// # Errors
/// [`Code::RollbackFailed`](crate::Code::RollbackFailed) in a state that has to be resolved first,
/// [`Code::Io`](crate::Code::Io) and [`Code::RootChanged`](crate::Code::RootChanged); what was removed before is gone.
/// With `in_flight` where another process kept the session or its marker locked.
pub fn remove_strays(path: impl AsRef<Path>) -> Result<Vec<Stray>> {
    remove_strays_with(OsFileOps::new(), path)
}

/// [`remove_strays`] on any file operations.
///
/// # Errors
/// As [`remove_strays`].
pub fn remove_strays_with<O: FileOps>(ops: O, path: impl AsRef<Path>) -> Result<Vec<Stray>> {
    let place = Place::open(ops, path.as_ref(), STAGE)?;
    // A commit locks its temporary only after creating it, but the session before: with that lock no commit has one.
    let _guard = place.lock_in_process(STAGE)?;
    let observed = observe::locked(&place, STAGE)?;
    let state = decide(&observed);
    if !matches!(state, State::Clean | State::Absent) {
        let message = format!("{state}: a temporary may be the only copy of an entry; resolve this first");
        return Err(Error::new(Code::RollbackFailed, "X3", message)
            .with_path(place.path())
            .with_stage(STAGE));
    }
    let mut removed = Vec::new();
    for stray in in_place(&place)? {
        let Some(held) = lock_abandoned(&place, &stray.name)? else { continue };
        if state == State::Absent && holds_entries(&place, &held)? {
            continue;
        }
        match place.remove(&stray.name, &[&held.identity]) {
            Ok(()) => removed.push(stray),
            Err(NotRemoved::Foreign) => {}
            Err(NotRemoved::Failed(errno)) => return Err(place.io("remove a stray temporary", errno, STAGE)),
        }
    }
    Ok(removed)
}

/// Whether a temporary is a session with entries.
fn holds_entries<O: FileOps>(place: &Place<O>, held: &Generation<O::File>) -> Result<bool> {
    if held.size > MAX_SESSION_FILE_BYTES as u64 {
        return Ok(false);
    }
    Ok(decode(load::read_all(place, held, STAGE)?).is_ok_and(|decoded| !decoded.entries().is_empty()))
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

/// The file, locked until dropped, where it is regular and nobody else has locked it. One that may not be opened, as
/// another user's, is left out: nothing tells whether it is locked.
fn lock_abandoned<O: FileOps>(place: &Place<O>, name: &OsStr) -> Result<Option<Generation<O::File>>> {
    let seen = place.look(name).map_err(|errno| place.io("look at a temporary", errno, STAGE))?;
    if !matches!(seen, Seen::Present(stat) if stat.kind == FileKind::Regular) {
        return Ok(None);
    }
    let file = match place.open_name(name, Access::Read) {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::ELOOP | Errno::EACCES | Errno::EPERM) => return Ok(None),
        Err(errno) => return Err(place.io("open a temporary", errno, STAGE)),
    };
    let opened = place.ops.stat(&file).map_err(|errno| place.io("look at a temporary", errno, STAGE))?;
    if opened.kind != FileKind::Regular {
        return Ok(None);
    }
    match place.try_lock(&file, Lock::Shared) {
        Ok(true) => Ok(Some(Generation::new(file, &opened))),
        Ok(false) => Ok(None),
        Err(errno) if locks_are_missing(errno) => Ok(None),
        Err(errno) => Err(place.io("lock a temporary", errno, STAGE)),
    }
}
