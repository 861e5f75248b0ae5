//! Session file and marker, each read whole and at rest.

use std::ffi::OsStr;

use crate::decode::{Decoded, decode};
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{Access, FileKind, FileOps, FileStat, Lock};
use crate::identity::{Generation, Identity};
use crate::load;
use crate::place::{Place, Seen, Waits, locks_are_missing, means_gone};

/// How often files are read again because they changed meanwhile.
const RESTARTS: u32 = 20;

pub(super) struct Observed<F> {
    pub(super) current: Found<F>,
    pub(super) marker: Found<F>,
}

/// What stands at one name.
pub(super) struct Found<F> {
    pub(super) side: Side,
    /// The open file and its identity; none for what is absent or not a regular file.
    pub(super) held: Option<Generation<F>>,
}

pub(super) enum Side {
    Absent,
    /// Not a regular file.
    Foreign,
    Good(Box<Decoded>),
    Bad {
        error: Error,
        /// No complete record at all: empty, or the beginning of a header.
        headless: bool,
    },
}

impl<F> Found<F> {
    pub(super) fn entries(&self) -> Option<usize> {
        match &self.side {
            Side::Good(decoded) => Some(decoded.entries().len()),
            _ => None,
        }
    }

    pub(super) fn refusal(&self) -> Option<&Error> {
        match &self.side {
            Side::Bad { error, .. } => Some(error),
            _ => None,
        }
    }

    fn agrees_with(&self, seen: Seen) -> bool {
        match (&self.held, seen) {
            (Some(held), Seen::Present(stat)) => held.is_unchanged_in(&stat),
            (None, Seen::Absent) => matches!(self.side, Side::Absent),
            (None, Seen::Present(stat)) => {
                matches!(self.side, Side::Foreign) && stat.kind != FileKind::Regular
            }
            (Some(_), Seen::Absent) => false,
        }
    }
}

impl<F: Send + Sync + 'static> Observed<F> {
    pub(super) fn is_one_inode(&self) -> bool {
        match (&self.current.held, &self.marker.held) {
            (Some(current), Some(marker)) => current.identity.same(&marker.identity),
            _ => false,
        }
    }

    /// Whether a live process has locked the marker's inode. Changes nothing: the lock that is tried is given back.
    pub(super) fn is_in_flight<O: FileOps<File = F>>(&self, place: &Place<O>, stage: Stage) -> Result<bool> {
        let Some(held) = &self.marker.held else { return Ok(false) };
        match place.try_lock(&held.file, Lock::Shared) {
            Ok(true) => {
                place.ops.unlock(&held.file);
                Ok(false)
            }
            Ok(false) => Ok(true),
            Err(errno) if locks_are_missing(errno) => Ok(false),
            Err(errno) => Err(place.io("lock the recovery marker", errno, stage)),
        }
    }

    /// Locks both inodes without waiting (requirement S8); `false` where somebody holds one. Closing the files ends
    /// the locks.
    pub(super) fn lock<O: FileOps<File = F>>(&mut self, place: &Place<O>) -> Result<bool> {
        // Two descriptors of one inode exclude each other even within a process, so one inode is locked once.
        let one_inode = self.is_one_inode();
        let both = [(&mut self.current, &place.name), (&mut self.marker, &place.marker)];
        for (found, name) in both.into_iter().take(if one_inode { 1 } else { 2 }) {
            let Some(held) = &mut found.held else { continue };
            if !place.try_lock_exclusively(&mut held.file, name, Stage::X2)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether both names still show what was read.
    pub(super) fn is_unchanged<O: FileOps<File = F>>(&self, place: &Place<O>, stage: Stage) -> Result<bool> {
        place.check_root(stage)?;
        for (found, name) in [(&self.marker, &place.marker), (&self.current, &place.name)] {
            let seen = place.look(name).map_err(|errno| place.io("look at the files again", errno, stage))?;
            if !found.agrees_with(seen) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Reads both files, again while they change, bounded.
pub(super) fn settled<O: FileOps>(place: &Place<O>, stage: Stage) -> Result<Observed<O::File>> {
    let mut restarts = Waits::new(RESTARTS);
    loop {
        let marker = read(place, &place.marker, stage)?;
        let current = read(place, &place.name, stage)?;
        if let (Some(marker), Some(current)) = (marker, current) {
            let observed = Observed { current, marker };
            if observed.is_unchanged(place, stage)? {
                return Ok(observed);
            }
        }
        if !restarts.pause(&place.ops) {
            return Err(place.file_changed("the files keep changing while they are read", stage));
        }
    }
}

/// Reads one name; none where it changed meanwhile.
fn read<O: FileOps>(place: &Place<O>, name: &OsStr, stage: Stage) -> Result<Option<Found<O::File>>> {
    let looked = match place.look(name) {
        Ok(Seen::Absent) => return Ok(Some(Found { side: Side::Absent, held: None })),
        Ok(Seen::Present(stat)) if stat.kind != FileKind::Regular => {
            return Ok(Some(Found { side: Side::Foreign, held: None }));
        }
        Ok(Seen::Present(stat)) => stat,
        Err(errno) => return Err(place.io("look at the file", errno, stage)),
    };
    let file = match place.open_name(name, Access::Read) {
        Ok(file) => file,
        Err(errno) if means_gone(errno) => return Ok(None),
        Err(errno) => return Err(place.io("open the file", errno, stage)),
    };
    let opened = place.ops.stat(&file).map_err(|errno| place.io("look at the open file", errno, stage))?;
    if !Identity::of(&looked).is(&opened) {
        return Ok(None);
    }
    let held = Generation::new(file, &opened);
    let side = judge(place, &held, &opened, stage)?;
    Ok(side.map(|side| Found { side, held: Some(held) }))
}

/// Reads and decodes; none where the file changed while it was read.
fn judge<O: FileOps>(
    place: &Place<O>,
    held: &Generation<O::File>,
    opened: &FileStat,
    stage: Stage,
) -> Result<Option<Side>> {
    if let Err(error) = load::check_readable(place, opened, stage) {
        // Regular and too large: refused for its content, whatever that is.
        return Ok(Some(Side::Bad { error, headless: false }));
    }
    let bytes = match load::read_all(place, held, stage) {
        Ok(bytes) => bytes,
        Err(error) if error.code() == Code::FileChanged => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(match decode(bytes) {
        Ok(decoded) => Side::Good(Box::new(decoded)),
        Err(error) => Side::Bad { headless: error.requirement() == "F6", error },
    }))
}
