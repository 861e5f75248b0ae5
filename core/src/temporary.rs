//! A file of ours that is complete, durable and locked before any other name points to it: the header of a new
//! session, the next generation, or the copy that a roll back makes (stages K2 to K4, C2 to C4, C20).

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;

use crate::errno::Errno;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{Access, FileKind, FileOps, FileStat};
use crate::identity::{Generation, Identity};
use crate::place::{Place, uninterrupted};

/// The mode that every file of ours is created with.
pub(crate) const PRIVATE: u32 = 0o600;
/// The permission bits that a generation hands on.
const PERMISSIONS: u32 = 0o777;
const OWNER_PERMISSIONS: u32 = 0o700;
/// The most slices that one system call takes on Linux.
const MOST_SLICES: usize = 1_024;
const COPY_CHUNK: usize = 64 * 1_024;

/// The stages that errors are labelled with.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    pub(crate) create: Stage,
    pub(crate) write: Stage,
    pub(crate) sync: Stage,
}

/// Where the bytes come from.
pub(crate) enum Content<'a, F> {
    /// Kept bytes, written without being copied first.
    Slices(&'a [&'a [u8]]),
    /// A generation that no name may hold any more.
    CopyOf(&'a Generation<F>),
}

pub(crate) struct Temporary<F> {
    pub(crate) name: OsString,
    pub(crate) identity: Identity,
    /// A second descriptor: its lock outlives the one that was written through and closed.
    pub(crate) holder: F,
    /// As it was when everything was written: whoever changes it afterwards is noticed.
    pub(crate) written: FileStat,
}

impl<F: Send + Sync + 'static> Temporary<F> {
    /// Creates `name`, writes everything, gives it the mode of `like` (else 0600), fsyncs and closes it. On a
    /// failure nothing is left but, where the new file's identity was never learnt, a stray (requirement X3).
    pub(crate) fn make<O: FileOps<File = F>>(
        place: &Place<O>,
        name: OsString,
        content: &Content<'_, F>,
        like: Option<&FileStat>,
        stages: Stages,
    ) -> Result<Temporary<F>> {
        let writer = uninterrupted(|| place.ops.create_new(&place.dir, &name, PRIVATE))
            .map_err(|errno| place.io("create a temporary", errno, stages.create))?;
        let created = place
            .ops
            .stat(&writer)
            .map_err(|errno| place.io("look at the new temporary", errno, stages.create))?;
        let identity = Identity::of(&created);
        match fill(place, writer, &created, &name, content, like, stages) {
            Ok((holder, written)) => Ok(Temporary { name, identity, holder, written }),
            Err(error) => {
                // A temporary whose unlink fails stays as a stray, which requirement C22 allows.
                let _ = place.remove(&name, &[&identity]);
                Err(error)
            }
        }
    }

    /// Removes the temporary's own name, if it still is the temporary.
    pub(crate) fn remove<O: FileOps<File = F>>(&self, place: &Place<O>) {
        let _ = place.remove(&self.name, &[&self.identity]);
    }

    /// Whether a look shows this temporary with nothing changed since it was written.
    pub(crate) fn is_unchanged_in(&self, stat: &FileStat) -> bool {
        self.identity.is(stat) && (stat.size, stat.modified) == (self.written.size, self.written.modified)
    }

    /// The generation that this temporary has become.
    pub(crate) fn into_generation(self) -> Generation<F> {
        Generation::new(self.holder, &self.written)
    }

    /// The mode that this temporary must have to stand in for `like` (choice C25.mode).
    pub(crate) fn mode_like(&self, like: &FileStat) -> u32 {
        mode_like(like, &self.written)
    }
}

/// The mode of `like`, without group and other bits where owner or group differ: never wider than before.
fn mode_like(like: &FileStat, ours: &FileStat) -> u32 {
    let mask =
        if (like.owner, like.group) == (ours.owner, ours.group) { PERMISSIONS } else { OWNER_PERMISSIONS };
    like.mode & mask
}

fn fill<O: FileOps>(
    place: &Place<O>,
    writer: O::File,
    created: &FileStat,
    name: &OsStr,
    content: &Content<'_, O::File>,
    like: Option<&FileStat>,
    stages: Stages,
) -> Result<(O::File, FileStat)> {
    if created.kind != FileKind::Regular {
        return Err(place.file_changed("the new temporary is not a regular file", stages.create));
    }
    let identity = Identity::of(created);
    let holder = hold(place, name, &identity, stages.create)?;
    let size = write(place, &writer, content, stages.write)?;
    let mode = like.map_or(PRIVATE, |like| mode_like(like, created));
    if created.mode & PERMISSIONS != mode {
        place
            .ops
            .set_mode(&writer, mode)
            .map_err(|errno| place.io("set the temporary's mode", errno, stages.write))?;
    }
    // Neither call is repeated: a second fsync may succeed although the first one lost the bytes (A1), and a second
    // close may hit a descriptor that another thread was given.
    place.ops.sync(&writer).map_err(|errno| place.io("fsync the temporary", errno, stages.sync))?;
    let written =
        place.ops.stat(&writer).map_err(|errno| place.io("look at the temporary", errno, stages.sync))?;
    place.ops.close(writer).map_err(|errno| place.io("close the temporary", errno, stages.sync))?;
    if written.size != size {
        return Err(place.file_changed("the temporary does not have the size written", stages.sync));
    }
    Ok((holder, written))
}

/// Opens a second descriptor and locks it before the file gets any other name (requirement S8).
fn hold<O: FileOps>(place: &Place<O>, name: &OsStr, identity: &Identity, stage: Stage) -> Result<O::File> {
    let mut holder = place
        .open_name(name, Access::Read)
        .map_err(|errno| place.lost("open the temporary again", errno, stage))?;
    let seen =
        place.ops.stat(&holder).map_err(|errno| place.io("look at the new temporary", errno, stage))?;
    if !identity.is(&seen) {
        return Err(place.file_changed("the temporary was replaced", stage));
    }
    place.lock_exclusively(&mut holder, name, stage)?;
    Ok(holder)
}

fn write<O: FileOps>(
    place: &Place<O>,
    writer: &O::File,
    content: &Content<'_, O::File>,
    stage: Stage,
) -> Result<u64> {
    match content {
        Content::Slices(slices) => write_all(place, writer, slices, 0, stage),
        Content::CopyOf(generation) => copy(place, writer, generation, stage),
    }
}

fn write_all<O: FileOps>(
    place: &Place<O>,
    writer: &O::File,
    slices: &[&[u8]],
    start: u64,
    stage: Stage,
) -> Result<u64> {
    let mut offset = start;
    for group in slices.chunks(MOST_SLICES) {
        let mut waiting: Vec<IoSlice<'_>> = group.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut left = &mut waiting[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let taken = uninterrupted(|| place.ops.write_at(writer, left, offset))
                .map_err(|errno| place.io("write the temporary", errno, stage))?;
            let offered: usize = left.iter().map(|slice| slice.len()).sum();
            if taken == 0 || taken > offered {
                return Err(no_progress(place, stage));
            }
            offset += taken as u64;
            IoSlice::advance_slices(&mut left, taken);
        }
    }
    Ok(offset)
}

fn copy<O: FileOps>(
    place: &Place<O>,
    writer: &O::File,
    generation: &Generation<O::File>,
    stage: Stage,
) -> Result<u64> {
    let mut chunk = vec![0; COPY_CHUNK];
    let mut offset = 0;
    while offset < generation.size {
        // Not what somebody may have written behind the generation's end since.
        let left = usize::try_from(generation.size - offset).unwrap_or(COPY_CHUNK).min(COPY_CHUNK);
        let taken = uninterrupted(|| place.ops.read_at(&generation.file, &mut chunk[..left], offset))
            .map_err(|errno| place.io("read the old generation", errno, stage))?;
        if taken == 0 {
            return Err(place.file_changed("the old generation was cut short", stage));
        }
        offset = write_all(place, writer, &[&chunk[..taken]], offset, stage)?;
    }
    Ok(offset)
}

/// A write that takes nothing and reports no error would be repeated for ever (stage C3).
fn no_progress<O: FileOps>(place: &Place<O>, stage: Stage) -> Error {
    Error::new(Code::Io, stage.id(), "a write made no progress")
        .with_errno(Errno::EIO)
        .with_path(place.path())
        .with_stage(stage)
}
