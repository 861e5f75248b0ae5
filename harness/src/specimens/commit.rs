//! How the small store makes a generation the session's file: by a temporary, a recovery marker and a rename, with a
//! roll back that looks at what it believes (requirements C1 to C12, C20, S1).
//!
//! Everything that the contract leaves open is left out: an old generation that cannot be renamed back is not copied,
//! and a marker is refused whether or not its process lives.

use session_tree::file_ops::{FileOps, FileStat};
use session_tree::{Errno, Stage};

use super::defect::Defect;
use super::fail::Fail;
use super::place::{Place, TRIES, changed, is_same, is_unchanged, lost, marker_is_there};
use super::temporary::{Generation, Temporary, read_all};
use crate::world::WorldFile;

/// The generation that a commit replaces.
struct Old<'a> {
    stat: FileStat,
    file: &'a WorldFile,
}

/// Replaces `old` by `bytes`. The caller has locked `old`.
pub(super) fn commit(place: &Place, old: &Generation, bytes: &[u8]) -> Result<Generation, Fail> {
    let known = place.adopted(&old.stat)?;
    let present = place.check_storage(&known, Stage::C1)?;
    place.check_marker_absent(Stage::C1)?;
    place.check_name_length(Stage::C1)?;
    place.refuse_strays(Stage::C1)?;
    let name = place.temporary_name();
    // Whoever takes a stranger's file for its own at least does not take its mode.
    let mode = if is_same(&known, &old.stat) { present.mode } else { old.stat.mode };
    let temporary = Temporary::write(place, name, bytes, mode, (Stage::C2, Stage::C3, Stage::C4))?;
    let old = Old { stat: present, file: &old.file };
    match install(place, &old, &temporary) {
        Ok(()) => Ok(temporary.into_generation()),
        Err(fail) => {
            temporary.remove(place);
            Err(fail)
        }
    }
}

fn install(place: &Place, old: &Old<'_>, temporary: &Temporary) -> Result<(), Fail> {
    if place.has(Defect::LockNotTaken) {
        rename(place, old, temporary)?;
        return finish(place, old, temporary);
    }
    place.check_storage(&old.stat, Stage::C5)?;
    temporary.check(place, Stage::C5)?;
    link_marker(place, old)?;
    if let Err(cause) = check_marker(place, old) {
        return Err(if place.has(Defect::MarkerStays) { cause } else { without_marker(place, old, cause) });
    }
    rename(place, old, temporary)?;
    finish(place, old, temporary).map_err(|cause| roll_back(place, old, temporary, cause))
}

fn link_marker(place: &Place, old: &Old<'_>) -> Result<(), Fail> {
    let link = || place.ops.link(&place.dir, &place.name, &place.marker);
    let linked = match link() {
        Err(Errno::EEXIST) if place.has(Defect::MarkerStolen) => {
            let _ = place.ops.unlink(&place.dir, &place.marker);
            link()
        }
        answer => answer,
    };
    let Err(errno) = linked else { return Ok(()) };
    let cause = Fail::io("link the marker", errno, Stage::C6);
    match place.look_firmly(&place.marker) {
        Ok(None) => Err(cause),
        Ok(Some(_)) if errno == Errno::EEXIST => Err(marker_is_there(Stage::C6).in_doubt()),
        _ => Err(without_marker(place, old, cause)),
    }
}

fn check_marker(place: &Place, old: &Old<'_>) -> Result<(), Fail> {
    match place.look(&place.marker) {
        Ok(Some(stat)) if is_unchanged(&old.stat, &stat) => {}
        Ok(_) => return Err(changed("the marker is not the old generation", Stage::C7)),
        Err(errno) => return Err(lost("look at the marker", errno, Stage::C7)),
    }
    // Last: nothing lies between this look at the path and the rename that replaces what it names.
    place.check_storage(&old.stat, Stage::C7).map(drop)
}

fn rename(place: &Place, old: &Old<'_>, temporary: &Temporary) -> Result<(), Fail> {
    let Err(errno) = place.ops.rename(&place.dir, &temporary.name, &place.name) else { return Ok(()) };
    let cause = Fail::io("rename the temporary", errno, Stage::C8);
    if place.has(Defect::RenameFailureIgnored) {
        return Ok(());
    }
    if place.has(Defect::RenameErrorBelieved) {
        return Err(without_marker(place, old, cause));
    }
    if place.has(Defect::RenameErrorRollsBack) {
        let _ = place.ops.rename(&place.dir, &place.marker, &place.name);
        return Err(cause);
    }
    match place.look_firmly(&place.name) {
        Ok(Some(stat)) if is_same(&old.stat, &stat) => Err(without_marker(place, old, cause)),
        Ok(Some(stat)) if !is_same(&temporary.written, &stat) => Err(cause.in_doubt()),
        Ok(_) => Err(roll_back(place, old, temporary, cause)),
        Err(_) => Err(cause.in_doubt()),
    }
}

fn finish(place: &Place, old: &Old<'_>, temporary: &Temporary) -> Result<(), Fail> {
    if !place.has(Defect::RenameFailureIgnored) {
        match place.ops.stat_at(&place.dir, &place.name) {
            Ok(stat) if is_unchanged(&temporary.written, &stat) => place.check_root(Stage::C9)?,
            Ok(_) => return Err(changed("the path does not name the new generation", Stage::C9)),
            Err(errno) => return Err(lost("look at the new generation", errno, Stage::C9)),
        }
    }
    let synced = place.sync_dir().map_err(|errno| Fail::io("fsync the directory", errno, Stage::C10));
    if !place.has(Defect::DirectoryFsyncIgnored) {
        synced?;
    }
    place
        .remove(&place.marker, &[&old.stat])
        .map_err(|errno| Fail::io("remove the marker", errno, Stage::C11))?;
    // A cut may bring the marker back, beside a generation that holds everything that it holds.
    let _ = place.sync_dir();
    Ok(())
}

/// A failure before the rename had an effect: takes our marker away. Where it stays a load refuses, so the store does.
fn without_marker(place: &Place, old: &Old<'_>, cause: Fail) -> Fail {
    // The marker may be a second name of what somebody put at the path just before the link.
    let named = place.look(&place.name).ok().flatten();
    let mine: Vec<&FileStat> = [Some(&old.stat), named.as_ref()].into_iter().flatten().collect();
    match place.remove(&place.marker, &mine) {
        Ok(()) => cause,
        Err(_) => cause.in_doubt(),
    }
}

fn roll_back(place: &Place, old: &Old<'_>, temporary: &Temporary, cause: Fail) -> Fail {
    if place.has(Defect::NoRollBack) {
        let _ = place.remove(&place.marker, &[&old.stat]);
        return cause;
    }
    let is_restored = restore(place, old, temporary);
    if !is_restored {
        keep_old(place, old);
    }
    if !place.has(Defect::RollBackUnsynced) {
        // Its failure leaves what a cut would show in doubt; what is seen now is proved all the same.
        let _ = place.sync_dir();
    }
    if is_restored { cause } else { cause.in_doubt() }
}

/// Puts the old generation back. True where the path was seen to name it and no marker to be there.
fn restore(place: &Place, old: &Old<'_>, temporary: &Temporary) -> bool {
    for _ in 0..TRIES {
        let marker = place.look_firmly(&place.marker).ok().flatten();
        // The path last: what it names is lost by the rename, and what the marker names is only moved.
        let is_ours = match place.look_firmly(&place.name) {
            Ok(Some(stat)) if is_same(&old.stat, &stat) => break,
            Ok(Some(stat)) => is_same(&temporary.written, &stat) || place.has(Defect::RollBackUnlooked),
            Ok(None) => true,
            Err(_) => false,
        };
        if !is_ours || !marker.is_some_and(|stat| is_same(&old.stat, &stat)) {
            return false;
        }
        let _ = place.ops.rename(&place.dir, &place.marker, &place.name);
    }
    let is_back = |stat: FileStat| is_same(&old.stat, &stat);
    place.look_firmly(&place.name).is_ok_and(|seen| seen.is_some_and(is_back))
        && place.remove(&place.marker, &[&old.stat]).is_ok()
        && place.look_firmly(&place.marker).is_ok_and(|seen| seen.is_none())
}

/// Where no name holds the old generation any more, a copy of it is put at the marker's name, so that a load refuses
/// and a person has something to bring back.
fn keep_old(place: &Place, old: &Old<'_>) {
    let is_named =
        place.look_firmly(&place.name).is_ok_and(|seen| seen.is_some_and(|it| is_same(&old.stat, &it)));
    if is_named || !matches!(place.look_firmly(&place.marker), Ok(None)) {
        return;
    }
    let Ok(bytes) = read_all(place, old.file, old.stat.size, Stage::C20) else { return };
    let stages = (Stage::C20, Stage::C20, Stage::C20);
    if let Ok(copy) = Temporary::write(place, place.sibling("restore-"), &bytes, old.stat.mode, stages) {
        // A failure is seen by nobody: the answer is the gravest already.
        let _ = place.ops.link(&place.dir, &copy.name, &place.marker);
        copy.remove(place);
    }
}
