//! How the small store reads a session, without changing anything (requirement S2, V1 to V6).

use std::path::Path;

use session_tree::file_ops::{Access, FileKind, FileOps, FileStat};
use session_tree::{Errno, Stage};

use super::defect::Defect;
use super::fail::Fail;
use super::place::{Place, TRIES, changed, is_gone, is_same, is_unchanged, uninterrupted};
use super::temporary::{Generation, read_all};
use crate::call::Reply;
use crate::disk::WOULD_HANG;
use crate::world::{WorldFile, WorldOps};

const LARGEST_FILE: u64 = 4_194_304;

/// The bytes of one generation, which no commit was replacing while they were read.
pub(super) fn read(
    ops: &WorldOps,
    path: &Path,
    defect: Option<Defect>,
) -> Result<(Place, Generation, Vec<u8>), Fail> {
    let place = Place::open(ops, path, defect, Stage::V1)?;
    for attempts in 0..TRIES {
        if !place.has(Defect::MarkerIgnored) {
            place.check_marker_absent(Stage::V2)?;
        }
        if let Some((generation, bytes)) = attempt(&place, attempts > 0)? {
            return Ok((place, generation, bytes));
        }
    }
    Err(changed("the file was replaced again and again", Stage::V6))
}

/// Nothing where the path named another file at a later look.
fn attempt(place: &Place, was_seen: bool) -> Result<Option<(Generation, Vec<u8>)>, Fail> {
    let looked = match place.look(&place.name) {
        Ok(Some(stat)) => stat,
        Ok(None) if was_seen => return Ok(None),
        Ok(None) => return Err(Fail::io("look at the file", Errno::ENOENT, Stage::V3)),
        Err(errno) => return Err(Fail::io("look at the file", errno, Stage::V3)),
    };
    if !place.has(Defect::OpensAnything) {
        check_readable(&looked, Stage::V3)?;
    }
    let file = match uninterrupted(|| open(place)) {
        Ok(file) => file,
        Err(WOULD_HANG) => return Err(Fail::Broke(Box::new(Reply::Timeout))),
        Err(errno) if is_gone(errno) => return Ok(None),
        Err(errno) => return Err(Fail::io("open the file", errno, Stage::V4)),
    };
    let stat = place.ops.stat(&file).map_err(|errno| Fail::io("look at the file", errno, Stage::V4))?;
    if !is_same(&looked, &stat) && !place.has(Defect::OpensAnything) {
        return Ok(None);
    }
    check_readable(&stat, Stage::V4)?;
    let bytes = read_all(place, &file, stat.size, Stage::V5)?;
    let after = place.ops.stat(&file).map_err(|errno| Fail::io("look at the file", errno, Stage::V5))?;
    if !is_unchanged(&stat, &after) {
        return Err(changed("the file changed while it was read", Stage::V5));
    }
    if place.has(Defect::LoadSweeps) {
        place.sweep(|name| name.as_encoded_bytes().starts_with(place.name.as_encoded_bytes()));
    }
    let is_still_there = look_again(place, &after)?;
    Ok(is_still_there.then_some((Generation { file, stat: after }, bytes)))
}

fn open(place: &Place) -> Result<WorldFile, Errno> {
    if place.has(Defect::WritesToHeldFile) {
        return place.ops.open(&place.dir, &place.name, Access::ReadWrite);
    }
    if place.has(Defect::OpensAnything) {
        place.ops.open_plainly(&place.dir, &place.name, Access::Read)
    } else {
        place.ops.open(&place.dir, &place.name, Access::Read)
    }
}

fn check_readable(stat: &FileStat, stage: Stage) -> Result<(), Fail> {
    if stat.kind != FileKind::Regular {
        return Err(changed("not a regular file", stage));
    }
    if stat.size > LARGEST_FILE {
        return Err(Fail::new("SESSION_FILE_TOO_LARGE", "the file is too large").at(stage));
    }
    Ok(())
}

/// Whether the path names what was read. A generation that is seen while its commit can still be taken back must not be
/// shown.
fn look_again(place: &Place, known: &FileStat) -> Result<bool, Fail> {
    if !place.has(Defect::MarkerIgnored) {
        place.check_marker_absent(Stage::V6)?;
    }
    match place.look(&place.name) {
        Ok(Some(stat)) if is_unchanged(known, &stat) || place.has(Defect::OpensAnything) => {}
        Ok(_) => return Ok(false),
        Err(errno) if is_gone(errno) => return Ok(false),
        Err(errno) => return Err(Fail::io("look at the file again", errno, Stage::V6)),
    }
    place.check_root(Stage::V6).map(|()| true)
}
