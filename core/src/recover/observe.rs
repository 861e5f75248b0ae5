//! Session file and marker: opened, locked, and read whole and at rest.

use std::ffi::OsStr;
use std::path::Path;

use super::{Content, State, refused};
use crate::decode::decode;
use crate::errno::Errno;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{Access, FileKind, FileOps, FileStat, Lock};
use crate::identity::{Generation, Identity};
use crate::load;
use crate::place::{LOCK_TRIES, Place, Seen, Waits, locks_are_missing, means_gone};

/// How often files are read again because they changed meanwhile.
const RESTARTS: u32 = 20;

/// The two names and what they were read to hold.
pub(super) struct Observed<F> {
    pub(super) names: Names<F>,
    pub(super) current: Content,
    pub(super) marker: Content,
}

/// What the session's and the marker's names stand for.
pub(super) struct Names<F> {
    pub(super) current: Opened<F>,
    pub(super) marker: Opened<F>,
}

pub(super) struct Opened<F> {
    /// None where nothing has the name.
    stat: Option<FileStat>,
    /// None for what is absent or not a regular file.
    pub(super) held: Option<Generation<F>>,
}

/// Both files read while nobody changed them, and whether a live process is committing. Changes nothing.
pub(super) fn at_rest<O: FileOps>(place: &Place<O>) -> Result<(Observed<O::File>, bool)> {
    let mut restarts = Waits::new(RESTARTS);
    loop {
        if let Some(names) = open(place, Stage::X1)?
            && let Some(observed) = read(place, names, Stage::X1)?
            && let Some(in_flight) = observed.names.is_in_flight(place)?
        {
            return Ok((observed, in_flight));
        }
        if !restarts.pause(&place.ops) {
            return Err(keep_changing(place, Stage::X1));
        }
    }
}

/// Both files locked, then read. Closing them ends the locks.
pub(super) fn locked<O: FileOps>(place: &Place<O>, stage: Stage) -> Result<Observed<O::File>> {
    let mut waits = Waits::new(LOCK_TRIES);
    loop {
        let names = lock(place, &mut waits, stage)?;
        // Only somebody who takes no locks can have changed them meanwhile.
        if let Some(observed) = read(place, names, stage)?
            && observed.names.are_unchanged(place, stage)?
        {
            return Ok(observed);
        }
        if !waits.pause(&place.ops) {
            return Err(keep_changing(place, stage));
        }
    }
}

/// Locks the inodes of both names and looks again (requirement S8), waiting for other processes, bounded.
///
/// Nothing is read before: a wait costs looks alone, however large the files are. And nothing is held while waiting,
/// or the one who is waited for could wait in turn.
fn lock<O: FileOps>(place: &Place<O>, waits: &mut Waits, stage: Stage) -> Result<Names<O::File>> {
    loop {
        let hindrance = match try_lock(place, stage)? {
            Ok(names) => return Ok(names),
            Err(hindrance) => hindrance,
        };
        if !waits.pause(&place.ops) {
            return Err(match hindrance {
                Hindrance::MarkerHeld => {
                    refused(place, State::CommitInFlight).with_stage(stage).with_in_flight()
                }
                Hindrance::CurrentHeld => {
                    place.io("wait for another process's lock", Errno::EAGAIN, stage).with_in_flight()
                }
                Hindrance::Changed => keep_changing(place, stage),
            });
        }
    }
}

/// Why both locks were not had.
enum Hindrance {
    MarkerHeld,
    CurrentHeld,
    Changed,
}

fn try_lock<O: FileOps>(
    place: &Place<O>,
    stage: Stage,
) -> Result<std::result::Result<Names<O::File>, Hindrance>> {
    let Some(mut names) = open(place, stage)? else { return Ok(Err(Hindrance::Changed)) };
    // Two descriptors of one inode exclude each other even within a process, so one inode is locked once.
    let is_one_inode = names.is_one_inode();
    if let Some(held) = &mut names.marker.held
        && !place.try_lock_exclusively(&mut held.file, &place.marker, stage)?
    {
        return Ok(Err(Hindrance::MarkerHeld));
    }
    if let Some(held) = &mut names.current.held
        && !is_one_inode
        && !place.try_lock_exclusively(&mut held.file, &place.name, stage)?
    {
        return Ok(Err(Hindrance::CurrentHeld));
    }
    // A commit may have ended before the locks were had; under them nobody who takes them changes anything.
    Ok(if names.are_unchanged(place, stage)? { Ok(names) } else { Err(Hindrance::Changed) })
}

impl<F: Send + Sync + 'static> Names<F> {
    pub(super) fn is_one_inode(&self) -> bool {
        match (&self.current.held, &self.marker.held) {
            (Some(current), Some(marker)) => current.identity.same(&marker.identity),
            _ => false,
        }
    }

    /// Whether a live process has locked the marker's inode; none where the files changed before that could be told.
    fn is_in_flight<O: FileOps<File = F>>(&self, place: &Place<O>) -> Result<Option<bool>> {
        let stage = Stage::X1;
        let abandoned = |unchanged: bool| unchanged.then_some(false);
        let Some(held) = &self.marker.held else { return Ok(abandoned(self.are_unchanged(place, stage)?)) };
        match place.try_lock(&held.file, Lock::Shared) {
            Ok(true) => {
                // Looked at under the lock: a commit that ended just before it took its marker away, and would
                // look like one that was cut off.
                let unchanged = self.are_unchanged(place, stage);
                place.ops.unlock(&held.file);
                Ok(abandoned(unchanged?))
            }
            Ok(false) => Ok(Some(true)),
            Err(errno) if locks_are_missing(errno) => Ok(abandoned(self.are_unchanged(place, stage)?)),
            Err(errno) => {
                Err(place.io("lock the recovery marker", errno, stage).at(&place.path_of(&place.marker)))
            }
        }
    }

    /// Whether the directory is the same one and both names still show what was opened.
    fn are_unchanged<O: FileOps<File = F>>(&self, place: &Place<O>, stage: Stage) -> Result<bool> {
        place.check_root(stage)?;
        for (opened, name) in [(&self.marker, &place.marker), (&self.current, &place.name)] {
            let seen = place
                .look(name)
                .map_err(|errno| place.io("look at the file again", errno, stage).at(&place.path_of(name)))?;
            if !opened.agrees_with(seen) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<F> Opened<F> {
    fn agrees_with(&self, seen: Seen) -> bool {
        match (&self.held, &self.stat, seen) {
            (Some(held), _, Seen::Present(stat)) => held.is_unchanged_in(&stat),
            (None, Some(_), Seen::Present(stat)) => stat.kind != FileKind::Regular,
            (None, None, Seen::Absent) => true,
            (_, _, Seen::Absent) | (None, None, Seen::Present(_)) => false,
        }
    }
}

/// Opens both names; none where one of them changed meanwhile.
fn open<O: FileOps>(place: &Place<O>, stage: Stage) -> Result<Option<Names<O::File>>> {
    let open = |name: &OsStr| open_one(place, name, stage).map_err(|error| error.at(&place.path_of(name)));
    let Some(marker) = open(&place.marker)? else { return Ok(None) };
    let Some(current) = open(&place.name)? else { return Ok(None) };
    Ok(Some(Names { current, marker }))
}

fn open_one<O: FileOps>(place: &Place<O>, name: &OsStr, stage: Stage) -> Result<Option<Opened<O::File>>> {
    let looked = match place.look(name) {
        Ok(Seen::Absent) => return Ok(Some(Opened { stat: None, held: None })),
        Ok(Seen::Present(stat)) if stat.kind != FileKind::Regular => {
            return Ok(Some(Opened { stat: Some(stat), held: None }));
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
    let same = Identity::of(&looked).is(&opened);
    Ok(same.then(|| Opened { stat: Some(opened), held: Some(Generation::new(file, &opened)) }))
}

/// Reads both; none where one of them changed meanwhile.
fn read<O: FileOps>(
    place: &Place<O>,
    names: Names<O::File>,
    stage: Stage,
) -> Result<Option<Observed<O::File>>> {
    let read = |opened: &Opened<O::File>, name: &OsStr| {
        read_one(place, opened, &place.path_of(name), stage).map_err(|error| error.at(&place.path_of(name)))
    };
    let Some(marker) = read(&names.marker, &place.marker)? else { return Ok(None) };
    let Some(current) = read(&names.current, &place.name)? else { return Ok(None) };
    Ok(Some(Observed { names, current, marker }))
}

fn read_one<O: FileOps>(
    place: &Place<O>,
    opened: &Opened<O::File>,
    path: &Path,
    stage: Stage,
) -> Result<Option<Content>> {
    let (stat, held) = match (&opened.stat, &opened.held) {
        (Some(stat), Some(held)) => (stat, held),
        (Some(stat), None) => return Ok(Some(Content::Foreign(stat.kind))),
        (None, _) => return Ok(Some(Content::Absent)),
    };
    if let Err(error) = load::check_readable(place, stat, stage) {
        // Regular and too large: refused for its content, whatever that is.
        return Ok(Some(Content::Refused(error.at(path))));
    }
    let bytes = match load::read_all(place, held, stage) {
        Ok(bytes) => bytes,
        Err(error) if error.code() == Code::FileChanged => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(match decode(bytes) {
        Ok(decoded) => Content::Session(Box::new(decoded)),
        Err(error) => Content::Refused(error.at(path)),
    }))
}

fn keep_changing<O: FileOps>(place: &Place<O>, stage: Stage) -> Error {
    place.file_changed("the files keep changing", stage)
}
