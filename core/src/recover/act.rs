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
    let current = || held(place, names.current.held.as_ref());
    let marker = || held(place, names.marker.held.as_ref());
    make_kept_durable(
        place,
        if actions.contains(&Action::MarkerBecomesCurrent) { marker()? } else { current()? },
    )?;
    let name_of = |action: &Action| match action {
        Action::RemoveMarker => {
            let kept = (place.name.as_os_str(), &current()?.identity);
            give_up(place, &place.marker, &marker()?.identity, kept)?;
            Ok(place.marker.clone())
        }
        Action::SetAsideCurrent => set_aside(place, &place.name, &current()?.identity),
        Action::SetAsideMarker => set_aside(place, &place.marker, &marker()?.identity),
        Action::MarkerBecomesCurrent => {
            let identity = &marker()?.identity;
            link(place, &place.marker, &place.name, identity)?;
            hand_over(place, &place.marker, &place.name, identity)?;
            Ok(place.name.clone())
        }
    };
    actions.iter().map(|action| Ok(Step { action: *action, name: name_of(action)? })).collect()
}

/// What is kept under the session's name is fsynced, and the directory, before anything loses a name: until then a
/// cut could leave neither the one nor the other.
fn make_kept_durable<O: FileOps>(place: &Place<O>, kept: &Generation<O::File>) -> Result<()> {
    place.ops.sync(&kept.file).map_err(|errno| place.io("fsync what is kept", errno, STAGE))?;
    sync_dir(place)
}

/// Gives what `name` stands for a fresh name instead: link, directory fsync, unlink, directory fsync.
fn set_aside<O: FileOps>(place: &Place<O>, name: &OsStr, identity: &Identity) -> Result<OsString> {
    let aside = if let Some(aside) = given_before(place, identity)? {
        aside
    } else {
        let fresh = sibling_name::aside(&place.name, &place.ops.tag());
        link(place, name, &fresh, identity)?;
        fresh
    };
    hand_over(place, name, &aside, identity)?;
    Ok(aside)
}

/// The name that an earlier recovery gave this file before it was cut off: recovering again ends in the same place
/// and does not pile up names.
fn given_before<O: FileOps>(place: &Place<O>, identity: &Identity) -> Result<Option<OsString>> {
    let mut names =
        place.ops.list(&place.dir).map_err(|errno| place.io("list the directory", errno, STAGE))?;
    names.retain(|name| sibling_name::is_aside_of(&place.name, name));
    names.sort();
    for name in names {
        let seen =
            place.look(&name).map_err(|errno| place.io("look at a file that was set aside", errno, STAGE))?;
        if seen.is(identity) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Gives a file a further name. Never a rename: a cut may take both names of a rename to a new name away, and neither
/// of these.
fn link<O: FileOps>(place: &Place<O>, from: &OsStr, to: &OsStr, identity: &Identity) -> Result<()> {
    // The link names whatever `from` stands for, so that is looked at immediately before.
    expect(place, from, identity)?;
    let Err(errno) = place.ops.link(&place.dir, from, to) else { return Ok(()) };
    // Only what the new name stands for says whether the link took effect.
    match place.look_firmly(to) {
        Ok(seen) if seen.is(identity) => Ok(()),
        Ok(Seen::Present(_)) if errno == Errno::EEXIST => Err(taken(place, to).with_errno(errno)),
        _ => Err(place.io("link a recovered file to its new name", errno, STAGE)),
    }
}

/// The further name is durable before the old one goes.
fn hand_over<O: FileOps>(place: &Place<O>, from: &OsStr, to: &OsStr, identity: &Identity) -> Result<()> {
    sync_dir(place)?;
    give_up(place, from, identity, (to, identity))
}

/// Removes `name`, durably, while `kept` still has the name that makes it dispensable.
fn give_up<O: FileOps>(
    place: &Place<O>,
    name: &OsStr,
    identity: &Identity,
    kept: (&OsStr, &Identity),
) -> Result<()> {
    expect(place, kept.0, kept.1)?;
    place.remove(name, &[identity]).map_err(|why| match why {
        NotRemoved::Foreign => taken(place, name),
        NotRemoved::Failed(errno) => place.io("remove a name", errno, STAGE),
    })?;
    sync_dir(place)
}

fn expect<O: FileOps>(place: &Place<O>, name: &OsStr, identity: &Identity) -> Result<()> {
    match place.look(name) {
        Ok(seen) if seen.is(identity) => Ok(()),
        Ok(_) => Err(taken(place, name)),
        Err(errno) => Err(place.io("look at a file that is being recovered", errno, STAGE)),
    }
}

fn sync_dir<O: FileOps>(place: &Place<O>) -> Result<()> {
    place.sync_dir().map_err(|errno| place.io("fsync the directory", errno, STAGE))
}

/// An action is planned only for what was observed to be a regular file.
fn held<'a, O: FileOps>(
    place: &Place<O>,
    held: Option<&'a Generation<O::File>>,
) -> Result<&'a Generation<O::File>> {
    held.ok_or_else(|| place.file_changed("a file that is to be recovered is not there", STAGE))
}

fn taken<O: FileOps>(place: &Place<O>, name: &OsStr) -> Error {
    place
        .file_changed("the name does not stand for the file that is being recovered", STAGE)
        .at(&place.path_of(name))
}
