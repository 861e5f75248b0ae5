//! A file of the small store that is whole and durable before any name that is read points to it.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;

use session_tree::file_ops::{Access, FileKind, FileOps, FileStat};
use session_tree::{Errno, Stage};

use super::defect::Defect;
use super::fail::Fail;
use super::place::{Place, changed, is_same, is_unchanged, lost, uninterrupted};
use crate::call::Reply;
use crate::world::WorldFile;

const PRIVATE: u32 = 0o600;
const PERMISSIONS: u32 = 0o777;
const WIDE: u32 = 0o644;

/// The file that a store knows as its own.
pub(super) struct Generation {
    pub(super) file: WorldFile,
    pub(super) stat: FileStat,
}

/// The stages at which a temporary is created, written and synced.
pub(super) type Stages = (Stage, Stage, Stage);

pub(super) struct Temporary {
    pub(super) name: OsString,
    /// A look at it when it was whole.
    pub(super) written: FileStat,
    file: WorldFile,
}

impl Temporary {
    /// Creates it, writes everything, gives it the mode, fsyncs and closes it. After a failure nothing is left, but
    /// where the new file's identity was never learnt.
    pub(super) fn write(
        place: &Place,
        name: OsString,
        bytes: &[u8],
        mode: u32,
        stages: Stages,
    ) -> Result<Temporary, Fail> {
        let writer = create(place, &name, stages.0)?;
        let created =
            place.ops.stat(&writer).map_err(|errno| Fail::io("look at the temporary", errno, stages.0))?;
        fill(place, &name, writer, &created, (bytes, mode & PERMISSIONS), stages)
            .inspect_err(|_| {
                if place.has(Defect::StrangersSwept) {
                    place.sweep(|_| true);
                }
                if !place.has(Defect::TemporaryLeft) {
                    let _ = place.remove(&name, &[&created]);
                }
            })
            .map(|(file, written)| Temporary { name, written, file })
    }

    /// Whether the name still stands for the temporary, as it was written.
    pub(super) fn check(&self, place: &Place, stage: Stage) -> Result<(), Fail> {
        match place.ops.stat_at(&place.dir, &self.name) {
            Ok(stat) if is_unchanged(&self.written, &stat) => Ok(()),
            Ok(_) => Err(changed("the temporary was replaced", stage)),
            Err(errno) => Err(lost("look at the temporary", errno, stage)),
        }
    }

    pub(super) fn remove(&self, place: &Place) {
        let _ = place.remove(&self.name, &[&self.written]);
    }

    pub(super) fn into_generation(self) -> Generation {
        Generation { file: self.file, stat: self.written }
    }
}

fn create(place: &Place, name: &OsStr, stage: Stage) -> Result<WorldFile, Fail> {
    let mode = if place.has(Defect::ModeErrorIgnored) { WIDE } else { PRIVATE };
    let created = uninterrupted(|| place.ops.create_new(&place.dir, name, mode));
    if created.as_ref().err() == Some(&Errno::EEXIST) && place.has(Defect::TemporaryReused) {
        let reused = place.ops.open(&place.dir, name, Access::ReadWrite);
        let emptied = reused.and_then(|file| place.ops.truncate(&file, 0).map(|()| file));
        return emptied.map_err(|errno| Fail::io("empty the temporary", errno, stage));
    }
    created.map_err(|errno| Fail::io("create a temporary", errno, stage))
}

fn fill(
    place: &Place,
    name: &OsStr,
    writer: WorldFile,
    created: &FileStat,
    (bytes, mode): (&[u8], u32),
    (create, write, sync): Stages,
) -> Result<(WorldFile, FileStat), Fail> {
    if created.kind != FileKind::Regular {
        return Err(changed("the temporary is not a regular file", create));
    }
    // Open before the other descriptor is closed, so that the inode stays known whatever becomes of its names.
    let access = if place.has(Defect::WritesToHeldFile) { Access::ReadWrite } else { Access::Read };
    let holder = uninterrupted(|| place.ops.open(&place.dir, name, access))
        .map_err(|errno| lost("open the temporary", errno, create))?;
    let held = place.ops.stat(&holder).map_err(|errno| Fail::io("look at the temporary", errno, create))?;
    if !is_same(created, &held) {
        return Err(changed("the temporary was replaced", create));
    }
    if let Err(fail) = write_all(place, &writer, bytes, write) {
        if place.has(Defect::DescriptorLeaked) {
            place.leak(writer);
        }
        return Err(fail);
    }
    if created.mode & PERMISSIONS != mode {
        let set = place.ops.set_mode(&writer, mode);
        if !place.has(Defect::ModeErrorIgnored) {
            set.map_err(|errno| Fail::io("set the temporary's mode", errno, write))?;
        }
    }
    place.sync(&writer).map_err(|errno| Fail::io("fsync the temporary", errno, sync))?;
    let written = place.ops.stat(&writer).map_err(|errno| Fail::io("look at the temporary", errno, sync))?;
    let closed = place.ops.close(writer);
    if !place.has(Defect::CloseIgnored) {
        closed.map_err(|errno| Fail::io("close the temporary", errno, sync))?;
    }
    if written.size != bytes.len() as u64 && !place.has(Defect::ShortWriteBelieved) {
        return Err(changed("the temporary has not the size that was written", sync));
    }
    Ok((holder, written))
}

fn write_all(place: &Place, writer: &WorldFile, bytes: &[u8], stage: Stage) -> Result<(), Fail> {
    let mut done = 0;
    let mut in_vain = 0;
    while done < bytes.len() {
        let rest = [IoSlice::new(&bytes[done..])];
        let taken = uninterrupted(|| place.ops.write_at(writer, &rest, done as u64))
            .map_err(|errno| Fail::io("write the temporary", errno, stage))?;
        if place.has(Defect::ShortWriteBelieved) {
            return Ok(());
        }
        if taken == 0 && place.has(Defect::NoProgressRepeated) {
            in_vain += 1;
            if in_vain > 1_000 {
                return Err(Fail::Broke(Box::new(Reply::Timeout)));
            }
        } else if taken == 0 {
            return Err(Fail::io("write the temporary: no progress", Errno::EIO, stage));
        }
        done += taken;
    }
    Ok(())
}

/// Reads `size` bytes, and sees where there are more or fewer.
pub(super) fn read_all(place: &Place, file: &WorldFile, size: u64, stage: Stage) -> Result<Vec<u8>, Fail> {
    // What is too large is refused before anything is read.
    let size = usize::try_from(size).unwrap_or(usize::MAX - 1);
    let mut bytes = vec![0; size + 1];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        match uninterrupted(|| place.ops.read_at(file, rest, filled as u64)) {
            Ok(0) => break,
            Ok(taken) => filled += taken,
            Err(errno) => return Err(Fail::io("read the file", errno, stage)),
        }
    }
    if filled != size {
        return Err(changed("the file changed while it was read", stage));
    }
    bytes.truncate(size);
    Ok(bytes)
}
