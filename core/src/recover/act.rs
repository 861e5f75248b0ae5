//! The doing of a recovery: each step is durable before the next one depends on it, and none takes away the last name
//! of a file.

use std::ffi::{OsStr, OsString};

use super::observe::Names;
use super::{Action, Step};
use crate::errno::Errno;
use crate::error::{Error, Result, Stage};
use crate::file_ops::FileOps;
use crate::identity::{Generation, Identity};
use crate::place::{NotRemoved, Place, Seen};
use crate::sibling_name;

const STAGE: Stage = Stage::X2;

/// Does `actions` in order, on the files that were observed and are locked.
pub(super) fn carry_out<O: FileOps>(
    place: &Place<O>,
    names: &Names<O::File>,
    actions: &[Action],
) -> Result<Vec<Step>> {
    if actions.is_empty() {
        return Ok(Vec::new());
    }
    make_kept_durable(place, names, actions)?;
    let name_of = |action: &Action| match action {
        Action::RemoveMarker => {
            remove(place, &place.marker, &held(place, names.marker.held.as_ref())?.identity)?;
            Ok(place.marker.clone())
        }
        Action::SetAsideCurrent => set_aside(place, &place.name, held(place, names.current.held.as_ref())?),
        Action::SetAsideMarker => set_aside(place, &place.marker, held(place, names.marker.held.as_ref())?),
        Action::MarkerBecomesCurrent => {
            move_name(place, &place.marker, &place.name, &held(place, names.marker.held.as_ref())?.identity)?;
            Ok(place.name.clone())
        }
    };
    actions.iter().map(|action| Ok(Step { action: *action, name: name_of(action)? })).collect()
}

/// What is kept under the session's name is fsynced, and the directory, before anything loses a name: until then a
/// cut could leave neither the one nor the other.
fn make_kept_durable<O: FileOps>(place: &Place<O>, names: &Names<O::File>, actions: &[Action]) -> Result<()> {
    let kept = if actions.contains(&Action::MarkerBecomesCurrent) { &names.marker } else { &names.current };
    let kept = held(place, kept.held.as_ref())?;
    place.ops.sync(&kept.file).map_err(|errno| place.io("fsync what is kept", errno, STAGE))?;
    sync_dir(place)
}

/// Gives what `name` stands for a fresh name instead.
fn set_aside<O: FileOps>(
    place: &Place<O>,
    name: &OsStr,
    generation: &Generation<O::File>,
) -> Result<OsString> {
    let aside = sibling_name::aside(&place.name, &place.ops.tag());
    move_name(place, name, &aside, &generation.identity)?;
    Ok(aside)
}

/// Link, directory fsync, unlink, directory fsync. Never a rename: a cut may take both names of a rename to a new
/// name away, and neither of these.
fn move_name<O: FileOps>(place: &Place<O>, from: &OsStr, to: &OsStr, identity: &Identity) -> Result<()> {
    if let Err(errno) = place.ops.link(&place.dir, from, to) {
        // Only what the new name stands for says whether the link took effect.
        match place.look_firmly(to) {
            Ok(seen) if seen.is(identity) => {}
            Ok(Seen::Present(_)) if errno == Errno::EEXIST => return Err(taken(place, to).with_errno(errno)),
            _ => return Err(place.io("link a recovered file to its new name", errno, STAGE)),
        }
    }
    match place.look(to) {
        Ok(seen) if seen.is(identity) => {}
        Ok(_) => return Err(taken(place, to)),
        Err(errno) => return Err(place.io("look at a recovered file", errno, STAGE)),
    }
    sync_dir(place)?;
    remove(place, from, identity)
}

fn remove<O: FileOps>(place: &Place<O>, name: &OsStr, identity: &Identity) -> Result<()> {
    place.remove(name, &[identity]).map_err(|why| match why {
        NotRemoved::Foreign => taken(place, name),
        NotRemoved::Failed(errno) => place.io("remove a name", errno, STAGE),
    })?;
    sync_dir(place)
}

fn sync_dir<O: FileOps>(place: &Place<O>) -> Result<()> {
    place.sync_dir().map_err(|errno| place.io("fsync the directory", errno, STAGE))
}

/// An action is planned only for a side that was observed to be a regular file.
fn held<'a, O: FileOps>(
    place: &Place<O>,
    held: Option<&'a Generation<O::File>>,
) -> Result<&'a Generation<O::File>> {
    held.ok_or_else(|| place.file_changed("a file that is to be recovered is not there", STAGE))
}

fn taken<O: FileOps>(place: &Place<O>, name: &OsStr) -> Error {
    place.file_changed(&format!("{} names somebody else's file", name.to_string_lossy()), STAGE)
}
