//! Creating a session: nothing or the whole header, never a part (requirement S1, stages K1 to K9).

use crate::errno::Errno;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::FileOps;
use crate::identity::Generation;
use crate::place::{LOCK_TRIES, Place, Seen, Waits};
use crate::sibling_name;
use crate::temporary::{Content, Stages, Temporary};

const STAGES: Stages = Stages { create: Stage::K2, write: Stage::K3, sync: Stage::K4 };

/// K1. Refuses where a session, its recovery marker, or anything else is already.
pub(crate) fn verify<O: FileOps>(place: &Place<O>) -> Result<()> {
    if sibling_name::is_reserved(&place.name) {
        return Err(place.io(
            "create a session under a name that belongs beside another one",
            Errno::EINVAL,
            Stage::K1,
        ));
    }
    place.check_name_length(Stage::K1)?;
    place.settle_marker(&mut Waits::new(LOCK_TRIES), Stage::K1)?;
    match place.look(&place.name) {
        Ok(Seen::Absent) => Ok(()),
        Ok(Seen::Present(_)) => Err(already_exists(place, Stage::K1)),
        Err(errno) => Err(place.io("look at the path", errno, Stage::K1)),
    }
}

/// K2 to K9. Gives the first generation: `header`, one canonical line.
pub(crate) fn write<O: FileOps>(place: &Place<O>, header: &[u8]) -> Result<Generation<O::File>> {
    // K2 to K4. A crash leaves a stray temporary and no session.
    let name = sibling_name::temporary(&place.name, &place.ops.tag());
    let temporary = Temporary::make(place, name, &Content::Slices(&[header]), None, STAGES)?;
    match publish(place, &temporary) {
        Ok(()) => {
            place.ops.unlock(&temporary.holder);
            Ok(temporary.into_generation())
        }
        Err(error) => {
            undo(place, &temporary);
            Err(error)
        }
    }
}

fn publish<O: FileOps>(place: &Place<O>, temporary: &Temporary<O::File>) -> Result<()> {
    // K5. The link refuses an existing path, and what it makes visible is complete, durable and locked. It names
    // whatever the temporary's name stands for, so that is looked at immediately before.
    match place.look(&temporary.name) {
        Ok(Seen::Present(stat)) if temporary.is_unchanged_in(&stat) => {}
        Ok(_) => return Err(place.file_changed("the temporary was replaced or changed", Stage::K5)),
        Err(errno) => return Err(place.lost("look at the temporary", errno, Stage::K5)),
    }
    place
        .ops
        .link(&place.dir, &temporary.name, &place.name)
        .map_err(|errno| link_failed(place, temporary, errno))?;
    // K6.
    match place.ops.stat_at(&place.dir, &place.name) {
        Ok(stat) if temporary.is_unchanged_in(&stat) => {}
        Ok(_) => return Err(place.file_changed("the path does not name the new session", Stage::K6)),
        Err(errno) => return Err(place.lost("look at the new session", errno, Stage::K6)),
    }
    place.check_root(Stage::K6)?;
    // K7. Makes the path durable; before this a cut shows either nothing or the whole header.
    place.sync_dir().map_err(|errno| place.io("fsync the directory", errno, Stage::K7))?;
    // K8 and K9. The session is complete without them; what stays is a stray.
    temporary.remove(place);
    let _ = place.sync_dir();
    Ok(())
}

fn link_failed<O: FileOps>(place: &Place<O>, temporary: &Temporary<O::File>, errno: Errno) -> Error {
    let taken = place.look_firmly(&place.name);
    let by_another = taken.is_ok_and(|seen| !seen.is_absent() && !seen.is(&temporary.identity));
    if errno == Errno::EEXIST && by_another {
        already_exists(place, Stage::K5).with_errno(errno)
    } else {
        place.io("link the new session to its path", errno, Stage::K5)
    }
}

/// Removes the path and the temporary where they are ours, and makes that durable, so that a create that was
/// answered with an error does not come back after a power cut (requirement C24).
fn undo<O: FileOps>(place: &Place<O>, temporary: &Temporary<O::File>) {
    let _ = place.remove(&place.name, &[&temporary.identity]);
    temporary.remove(place);
    let _ = place.sync_dir();
}

fn already_exists<O: FileOps>(place: &Place<O>, stage: Stage) -> Error {
    Error::new(Code::AlreadyExists, "S1", "something has this name already")
        .with_path(place.path())
        .with_stage(stage)
}
