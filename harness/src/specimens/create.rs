//! How the small store creates a session: nothing or the whole header, never a part (requirement S1, K1 to K9).

use session_tree::file_ops::FileOps;
use session_tree::{Errno, Stage};

use super::defect::Defect;
use super::fail::Fail;
use super::place::{Place, changed, is_same, is_unchanged, lost};
use super::temporary::{Generation, Temporary};

const PRIVATE: u32 = 0o600;

/// Refuses where there is something already, before anything is drawn or written.
pub(super) fn verify(place: &Place) -> Result<(), Fail> {
    place.check_name_length(Stage::K1)?;
    place.check_marker_absent(Stage::K1)?;
    match place.look(&place.name) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(exists(Stage::K1)),
        Err(errno) => Err(Fail::io("look at the path", errno, Stage::K1)),
    }
}

pub(super) fn write(place: &Place, header: &[u8]) -> Result<Generation, Fail> {
    let name = place.temporary_name();
    let temporary = Temporary::write(place, name, header, PRIVATE, (Stage::K2, Stage::K3, Stage::K4))?;
    match publish(place, &temporary) {
        Ok(()) => Ok(temporary.into_generation()),
        Err(fail) => {
            // A create that failed must not turn up after a cut either.
            if !place.has(Defect::FailedCreateStays) {
                let _ = place.remove(&place.name, &[&temporary.written]);
            }
            temporary.remove(place);
            let _ = place.sync_dir();
            Err(fail)
        }
    }
}

fn publish(place: &Place, temporary: &Temporary) -> Result<(), Fail> {
    temporary.check(place, Stage::K5)?;
    if place.has(Defect::CreateReplaces) {
        place
            .ops
            .rename(&place.dir, &temporary.name, &place.name)
            .map_err(|errno| Fail::io("rename the new session", errno, Stage::K5))?;
    } else {
        place
            .ops
            .link(&place.dir, &temporary.name, &place.name)
            .map_err(|errno| not_linked(place, temporary, errno))?;
    }
    match place.ops.stat_at(&place.dir, &place.name) {
        Ok(stat) if is_unchanged(&temporary.written, &stat) => place.check_root(Stage::K6)?,
        Ok(_) => return Err(changed("the path does not name the new session", Stage::K6)),
        Err(errno) => return Err(lost("look at the new session", errno, Stage::K6)),
    }
    place.sync_dir().map_err(|errno| Fail::io("fsync the directory", errno, Stage::K7))?;
    // The session is complete; what stays is a stray.
    temporary.remove(place);
    let _ = place.sync_dir();
    Ok(())
}

fn not_linked(place: &Place, temporary: &Temporary, errno: Errno) -> Fail {
    let seen = place.look_firmly(&place.name).ok().flatten();
    let is_anothers = seen.is_some_and(|stat| !is_same(&temporary.written, &stat));
    if errno == Errno::EEXIST && is_anothers {
        exists(Stage::K5)
    } else {
        Fail::io("link the new session", errno, Stage::K5)
    }
}

fn exists(stage: Stage) -> Fail {
    Fail::new("SESSION_ALREADY_EXISTS", "something has this name already").at(stage)
}
