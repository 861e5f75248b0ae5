//! Putting the old generation back after a rename that took effect, with proof (requirement C20).

use crate::error::{Code, Error, Stage};
use crate::file_ops::FileOps;
use crate::identity::Generation;
use crate::place::{NotRemoved, Place, Seen, TRIES};
use crate::sibling_name;
use crate::temporary::{Content, Stages, Temporary};

/// How a roll back ended.
pub(crate) enum RolledBack<F> {
    /// The path was seen to hold the old generation, or the copy of it that is given here, and the marker was seen
    /// to be absent.
    Proved { adopted: Option<Generation<F>> },
    /// Neither; with what stood in the way. A recovery marker makes every load refuse.
    Doubtful(Error),
}

const STAGE: Stage = Stage::C20;
const STAGES: Stages = Stages { create: STAGE, write: STAGE, sync: STAGE };

/// Brings `old` back under the path, where `temporary` or nothing is now.
pub(crate) fn roll_back<O: FileOps>(
    place: &Place<O>,
    old: &Generation<O::File>,
    temporary: &Temporary<O::File>,
) -> RolledBack<O::File> {
    let mut rollback = RollBack { place, old, temporary, copy: None };
    let restored = rollback.restore();
    if restored.is_err() {
        rollback.keep_a_marker();
    }
    // A failure leaves what a power cut would show in doubt (requirement C24); what is seen now is proved all the same.
    let _ = place.sync_dir();
    if let Some(unused) = rollback.copy {
        unused.remove(place);
    }
    match restored {
        Ok(Restored::Old) => RolledBack::Proved { adopted: None },
        Ok(Restored::Copy(copy)) => RolledBack::Proved { adopted: Some(copy.into_generation()) },
        Err(why) => RolledBack::Doubtful(why),
    }
}

/// What the path was seen to hold after a roll back.
enum Restored<F> {
    Old,
    Copy(Temporary<F>),
}

struct RollBack<'a, O: FileOps> {
    place: &'a Place<O>,
    old: &'a Generation<O::File>,
    temporary: &'a Temporary<O::File>,
    copy: Option<Temporary<O::File>>,
}

impl<O: FileOps> RollBack<'_, O> {
    fn restore(&mut self) -> Result<Restored<O::File>, Error> {
        if self.path_is_old()? || self.rename_marker()? {
            self.remove_marker()?;
            return Ok(Restored::Old);
        }
        let copy = self.install_copy()?;
        self.remove_marker()?;
        Ok(copy.map_or(Restored::Old, Restored::Copy))
    }

    /// Looks at the path. `Ok(false)` means that it is ours to replace: it holds our temporary, our copy, or nothing.
    fn path_is_old(&self) -> Result<bool, Error> {
        match self.place.look_firmly(&self.place.name) {
            Ok(seen) if seen.is(&self.old.identity) => Ok(true),
            Ok(seen) if seen.is_absent() || seen.is(&self.temporary.identity) => Ok(false),
            Ok(seen) if self.copy.as_ref().is_some_and(|copy| seen.is(&copy.identity)) => Ok(false),
            Ok(_) => Err(self.place.file_changed("the path names a stranger's file", STAGE)),
            Err(errno) => Err(self.place.io("look at the path", errno, STAGE)),
        }
    }

    /// Renames the marker over the path, looking at both after each try. The path is never the old generation here:
    /// renaming one link of an inode over another would succeed and do nothing.
    fn rename_marker(&mut self) -> Result<bool, Error> {
        let Place { ops, dir, name, marker, .. } = self.place;
        for _ in 0..TRIES {
            if !matches!(self.place.look_firmly(marker), Ok(seen) if seen.is(&self.old.identity)) {
                return self.path_is_old();
            }
            // The path last: what it names is lost by the rename, and what the marker names is only moved.
            if self.path_is_old()? {
                return Ok(true);
            }
            let _ = ops.rename(dir, marker, name);
        }
        self.path_is_old()
    }

    /// Copies the old generation from the descriptor that the store holds and renames the copy over the path
    /// (choice C20.copy). `None` where the old generation itself came back meanwhile.
    fn install_copy(&mut self) -> Result<Option<Temporary<O::File>>, Error> {
        let Place { ops, dir, name, .. } = self.place;
        let copy = self.copy.insert(self.make_copy()?);
        let copy_name = copy.name.clone();
        for _ in 0..TRIES {
            if self.path_is_old()? {
                return Ok(None);
            }
            let _ = ops.rename(dir, &copy_name, name);
            if self.path_is_copy() {
                return Ok(self.copy.take());
            }
        }
        Err(self.not_restored())
    }

    fn make_copy(&self) -> Result<Temporary<O::File>, Error> {
        let name = sibling_name::restore(&self.place.name, &self.place.ops.tag());
        let like = self
            .place
            .ops
            .stat(&self.old.file)
            .map_err(|errno| self.place.io("look at the old generation", errno, STAGE))?;
        Temporary::make(self.place, name, &Content::CopyOf(self.old), Some(&like), STAGES)
    }

    /// Whether the path is seen to hold the copy, with every byte that was written.
    fn path_is_copy(&self) -> bool {
        let Ok(Seen::Present(stat)) = self.place.look_firmly(&self.place.name) else { return false };
        self.copy.as_ref().is_some_and(|copy| copy.is_unchanged_in(&stat))
    }

    fn remove_marker(&self) -> Result<(), Error> {
        self.place.remove(&self.place.marker, &[&self.old.identity]).map_err(|why| match why {
            NotRemoved::Foreign => self.place.file_changed("the recovery marker was replaced", STAGE),
            NotRemoved::Failed(errno) => self.place.io("remove the recovery marker", errno, STAGE),
        })?;
        // Removed is not yet seen: the proof is a look that shows no marker.
        match self.place.look_firmly(&self.place.marker) {
            Ok(Seen::Absent) => Ok(()),
            Ok(Seen::Present(_)) => Err(self.place.file_changed("a recovery marker is there again", STAGE)),
            Err(errno) => Err(self.place.io("look for the recovery marker", errno, STAGE)),
        }
    }

    /// Where no name is seen to hold the old generation, a copy of it is put at the marker's name: load refuses, and
    /// recovery has something to bring back. A marker that is there already is left alone.
    fn keep_a_marker(&mut self) {
        let Place { ops, dir, marker, .. } = self.place;
        let marker_is_absent = matches!(self.place.look_firmly(marker), Ok(Seen::Absent));
        let on_disk = self.path_is_old().unwrap_or(false) || self.path_is_copy();
        if !marker_is_absent || on_disk {
            return;
        }
        let ready = match self.copy.take() {
            Some(copy) if self.place.look_firmly(&copy.name).is_ok_and(|seen| seen.is(&copy.identity)) => {
                Ok(copy)
            }
            _ => self.make_copy(),
        };
        if let Ok(copy) = ready {
            for _ in 0..TRIES {
                let linked = ops.link(dir, &copy.name, marker).is_ok();
                if linked || self.place.look_firmly(marker).is_ok_and(|seen| !seen.is_absent()) {
                    break;
                }
            }
            self.copy = Some(copy);
        }
    }

    fn not_restored(&self) -> Error {
        Error::new(Code::RollbackFailed, "C20", "the old generation could not be put back")
            .with_path(self.place.path())
            .with_stage(STAGE)
    }
}
