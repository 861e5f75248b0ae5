//! Reading a session without changing anything on disk (requirement S2, stages V1 to V6).

use std::path::Path;

use crate::decode::{Decoded, decode};
use crate::errno::Errno;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{Access, FileKind, FileOps, FileStat};
use crate::identity::{Generation, Identity};
use crate::limits::MAX_SESSION_FILE_BYTES;
use crate::place::{LOCK_TRIES, Place, Seen, Waits, means_gone, uninterrupted};

/// How often a load starts again because another store's commit replaced the file under it.
const RESTARTS: u32 = 50;

/// A session as it was read.
pub(crate) struct Read<O: FileOps> {
    pub(crate) place: Place<O>,
    pub(crate) generation: Generation<O::File>,
    pub(crate) decoded: Decoded,
}

pub(crate) fn load<O: FileOps>(ops: O, path: &Path) -> Result<Read<O>> {
    let place = Place::open(ops, path, Stage::V1)?;
    let (generation, bytes) = read_generation(&place)?;
    let decoded = decode(bytes).map_err(|error| error.with_path(path))?;
    Ok(Read { place, generation, decoded })
}

/// Bytes of one generation that no commit was replacing or about to take back while they were read.
fn read_generation<O: FileOps>(place: &Place<O>) -> Result<(Generation<O::File>, Vec<u8>)> {
    let mut waits = Waits::new(LOCK_TRIES);
    let mut restarts = Waits::new(RESTARTS);
    let mut seen_before = false;
    loop {
        place.settle_marker(&mut waits, Stage::V2)?;
        match attempt(place, seen_before)? {
            Attempt::Read(generation, bytes) => return Ok((generation, bytes)),
            Attempt::Replaced(stage) => {
                seen_before = true;
                if !restarts.pause(&place.ops) {
                    return Err(
                        place.file_changed("the file was replaced again and again while it was read", stage)
                    );
                }
            }
        }
    }
}

enum Attempt<F> {
    Read(Generation<F>, Vec<u8>),
    /// The path named another file, or none, at a later look.
    Replaced(Stage),
}

fn attempt<O: FileOps>(place: &Place<O>, seen_before: bool) -> Result<Attempt<O::File>> {
    let looked = match place.look(&place.name) {
        Ok(Seen::Present(stat)) => stat,
        Ok(Seen::Absent) if seen_before => return Ok(Attempt::Replaced(Stage::V3)),
        Err(errno) if seen_before && means_gone(errno) => return Ok(Attempt::Replaced(Stage::V3)),
        Ok(Seen::Absent) => return Err(place.io("look at the file", Errno::ENOENT, Stage::V3)),
        Err(errno) => return Err(place.io("look at the file", errno, Stage::V3)),
    };
    check_readable(place, &looked, Stage::V3)?;
    // Another store's commit may fall between the look and the open, and then what was opened is a generation too;
    // so this starts again rather than refusing. A file that keeps being replaced is refused in the end.
    let file = match place.open_name(&place.name, Access::Read) {
        Ok(file) => file,
        Err(errno) if means_gone(errno) => return Ok(Attempt::Replaced(Stage::V4)),
        Err(errno) => return Err(place.io("open the file", errno, Stage::V4)),
    };
    let opened =
        place.ops.stat(&file).map_err(|errno| place.io("look at the open file", errno, Stage::V4))?;
    if !Identity::of(&looked).is(&opened) {
        return Ok(Attempt::Replaced(Stage::V4));
    }
    check_readable(place, &opened, Stage::V4)?;
    let generation = Generation::new(file, &opened);
    let bytes = read_all(place, &generation, Stage::V5)?;
    look_again(place, generation, bytes)
}

/// Refuses what is not a regular file, and what is too large to be read.
pub(crate) fn check_readable<O: FileOps>(place: &Place<O>, stat: &FileStat, stage: Stage) -> Result<()> {
    if stat.kind != FileKind::Regular {
        let message = format!("not a regular file but {}", stat.kind.words());
        return Err(Error::new(Code::FileChanged, "S2", message).with_path(place.path()).with_stage(stage));
    }
    if stat.size > MAX_SESSION_FILE_BYTES as u64 {
        let message = format!("the file has {} bytes, more than {MAX_SESSION_FILE_BYTES}", stat.size);
        return Err(Error::new(Code::FileTooLarge, "F7", message).with_path(place.path()).with_stage(stage));
    }
    Ok(())
}

/// V5. One byte more than the file had is offered, so that growth shows; never more than the limit plus one.
pub(crate) fn read_all<O: FileOps>(
    place: &Place<O>,
    generation: &Generation<O::File>,
    stage: Stage,
) -> Result<Vec<u8>> {
    let size = usize::try_from(generation.size).unwrap_or(MAX_SESSION_FILE_BYTES);
    let mut bytes = vec![0; size + 1];
    let mut filled = 0;
    while filled < bytes.len() {
        match uninterrupted(|| place.ops.read_at(&generation.file, &mut bytes[filled..], filled as u64)) {
            Ok(0) => break,
            Ok(taken) => filled += taken,
            Err(errno) => return Err(place.io("read the file", errno, stage)),
        }
    }
    let after =
        place.ops.stat(&generation.file).map_err(|errno| place.io("look at the open file", errno, stage))?;
    if filled != size || !generation.is_unchanged_in(&after) {
        return Err(Error::new(Code::FileChanged, "S2", "the file changed while it was read")
            .with_path(place.path())
            .with_stage(stage));
    }
    bytes.truncate(size);
    Ok(bytes)
}

/// V6. The marker first: a commit that made the generation visible has a marker there until it is final, so no
/// marker now and the same file after that mean a generation that will not be rolled back.
fn look_again<O: FileOps>(
    place: &Place<O>,
    generation: Generation<O::File>,
    bytes: Vec<u8>,
) -> Result<Attempt<O::File>> {
    let stage = Stage::V6;
    match place.look(&place.marker) {
        Ok(Seen::Absent) => {}
        Ok(Seen::Present(_)) => return Ok(Attempt::Replaced(stage)),
        Err(errno) => return Err(place.io("look for a recovery marker", errno, stage)),
    }
    match place.look(&place.name) {
        Ok(Seen::Present(stat)) if generation.is_unchanged_in(&stat) => {}
        Ok(_) => return Ok(Attempt::Replaced(stage)),
        Err(errno) if means_gone(errno) => return Ok(Attempt::Replaced(stage)),
        Err(errno) => return Err(place.io("look at the file again", errno, stage)),
    }
    place.check_root(stage)?;
    Ok(Attempt::Read(generation, bytes))
}
