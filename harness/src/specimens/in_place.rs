//! Stores that write into the session's file itself, as most do that append lines.

use std::io::IoSlice;

use session_tree::file_ops::{Access, FileOps, FileStat};
use session_tree::{Errno, Stage};

use super::defect::Defect;
use super::fail::Fail;
use super::place::{Place, uninterrupted};
use super::temporary::Generation;
use crate::call::Reply;
use crate::disk::WOULD_HANG;
use crate::model::Session;
use crate::world::WorldFile;

/// Brings the file from what `before` holds to what `next` holds, and looks at it then.
pub(super) fn write(
    place: &Place,
    known: &Generation,
    before: &Session,
    next: &Session,
) -> Result<FileStat, Fail> {
    let (old, whole) = (before.file(), next.file());
    let file = open(place, known)?;
    let file = file.as_ref().unwrap_or(&known.file);
    let size = place.ops.stat(file).map_err(|errno| Fail::io("look at the file", errno, Stage::C1))?.size;
    let from = if place.has(Defect::RewritesInPlace) {
        0
    } else if whole.starts_with(old) && !place.has(Defect::AppendsAtKnownEnd) {
        size
    } else {
        old.iter().zip(whole).take_while(|(one, other)| one == other).count() as u64
    };
    let done = usize::try_from(if from == size { old.len() as u64 } else { from }).unwrap_or(usize::MAX);
    let bytes = whole.get(done..).unwrap_or_default();
    let is_longer = size > from && !place.has(Defect::AppendsAtKnownEnd) || before.torn_tail() > 0;
    if is_longer {
        place.ops.truncate(file, from).map_err(|errno| Fail::io("cut the file", errno, Stage::C1))?;
    }
    if let Err(fail) = write_all(place, file, bytes, from) {
        // The partial line goes, or so it should.
        if !place.has(Defect::PartialLineStays) {
            let _ = place.ops.truncate(file, from);
        }
        return Err(fail);
    }
    if !place.has(Defect::AppendsUnsynced) {
        place.ops.sync(file).map_err(|errno| Fail::io("fsync the file", errno, Stage::C3))?;
    }
    place.ops.stat(file).map_err(|errno| Fail::io("look at the file", errno, Stage::C3))
}

/// The file to write into; none where it is held open.
fn open(place: &Place, known: &Generation) -> Result<Option<WorldFile>, Fail> {
    let Place { ops, dir, name, .. } = place;
    let opened = match place.defect {
        Some(Defect::WritesToHeldFile) => return Ok(None),
        Some(Defect::FollowsLinks) => ops.open_plainly(dir, name, Access::ReadWrite),
        Some(Defect::RecreatesFile) => match ops.open(dir, name, Access::ReadWrite) {
            Err(Errno::ENOENT) => ops.create_new(dir, name, known.stat.mode),
            answer => answer,
        },
        _ => uninterrupted(|| ops.open(dir, name, Access::ReadWrite)),
    };
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(WOULD_HANG) => Err(Fail::Broke(Box::new(Reply::Timeout))),
        Err(errno) => Err(Fail::io("open the file", errno, Stage::C1)),
    }
}

fn write_all(place: &Place, file: &WorldFile, bytes: &[u8], from: u64) -> Result<(), Fail> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = [IoSlice::new(&bytes[done..])];
        let write = || match place.defect {
            Some(Defect::UndoCutsRival) => place.ops.write_at_end(file, &bytes[done..]),
            _ => place.ops.write_at(file, &rest, from + done as u64),
        };
        let taken = uninterrupted(write).map_err(|errno| Fail::io("write the file", errno, Stage::C3))?;
        if taken == 0 {
            return Err(Fail::io("write the file: no progress", Errno::EIO, Stage::C3));
        }
        done += taken;
    }
    Ok(())
}
