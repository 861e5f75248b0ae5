//! One commit: the next generation becomes the session file, atomically, or the old one stays
//! (contract section 7, stages C1 to C12, read from top to bottom).
//!
//! At every instant the directory holds the old generation, the new one, or a recovery marker beside either; the
//! argument stands beside each stage. Three fsyncs: the temporary, the directory, the directory.

use crate::errno::Errno;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::FileOps;
use crate::identity::{Generation, Identity};
use crate::place::{NotRemoved, Place, Seen, TRIES};
use crate::rollback::{self, RolledBack};
use crate::sibling_name;
use crate::temporary::{Content, Stages, Temporary};

/// A commit that did not happen.
pub(crate) struct Failure<F> {
    /// Carries `poisoned` where the old generation's place could not be proved.
    pub(crate) error: Error,
    /// The copy that now stands in for the old generation, where a roll back had to make one.
    pub(crate) adopted: Option<Generation<F>>,
}

impl<F> From<Error> for Failure<F> {
    fn from(error: Error) -> Failure<F> {
        Failure { error, adopted: None }
    }
}

const STAGES: Stages = Stages { create: Stage::C2, write: Stage::C3, sync: Stage::C4 };

/// Replaces `old` by `content`. The caller holds the path's lock and the lock of `old`'s inode; the generation that it
/// gets, the new one or an adopted copy, is locked too, and the caller unlocks it.
pub(crate) fn commit<O: FileOps>(
    place: &Place<O>,
    old: &Generation<O::File>,
    content: &[&[u8]],
) -> std::result::Result<Generation<O::File>, Failure<O::File>> {
    // C1. Nothing is written yet, so a crash or failure here leaves the old generation alone in its place.
    let present = place.check_storage(old, Stage::C1)?;
    place.check_marker_absent(Stage::C1)?;
    place.check_name_length(Stage::C1)?;

    // C2 to C4. A crash leaves the old generation and a stray temporary that nothing reads. From here on the
    // temporary is complete, durable and locked, so no later rename can show a part of it.
    let name = sibling_name::temporary(&place.name, &place.ops.tag());
    let temporary = Temporary::make(place, name, &Content::Slices(content), Some(&present), STAGES)?;

    let commit = Commit { place, old, temporary: &temporary };
    match commit.install() {
        Ok(()) => Ok(temporary.into_generation()),
        Err(failure) => {
            temporary.remove(place);
            Err(failure)
        }
    }
}

struct Commit<'a, O: FileOps> {
    place: &'a Place<O>,
    old: &'a Generation<O::File>,
    temporary: &'a Temporary<O::File>,
}

impl<O: FileOps> Commit<'_, O> {
    /// C5 to C12.
    fn install(&self) -> std::result::Result<(), Failure<O::File>> {
        self.verify_temporary()?;
        self.link_marker()?;
        self.verify_marker()?;
        self.rename()?;
        // From here on the new generation may be seen. The marker makes every load refuse until the rename is
        // durable, so that nobody acts on a generation that a power cut could still take back.
        self.finish().map_err(|cause| self.roll_back(cause))
    }

    /// C5. Still only the old generation has a name that is read.
    fn verify_temporary(&self) -> Result<()> {
        self.place.check_storage(self.old, Stage::C5)?;
        match self.place.ops.stat_at(&self.place.dir, &self.temporary.name) {
            Ok(stat) if self.temporary.is_unchanged_in(&stat) => Ok(()),
            Ok(_) => Err(self.place.file_changed("the temporary was replaced or changed", Stage::C5)),
            Err(errno) => Err(self.place.lost("look at the temporary", errno, Stage::C5)),
        }
    }

    /// C6. After a crash the marker is a second name of the old generation: recovery removes it.
    fn link_marker(&self) -> Result<()> {
        let Place { ops, dir, name, marker, .. } = self.place;
        ops.link(dir, name, marker).map_err(|errno| self.marker_link_failed(errno))
    }

    fn marker_link_failed(&self, errno: Errno) -> Error {
        let cause = self.place.io("link the recovery marker", errno, Stage::C6);
        match self.place.look_firmly(&self.place.marker) {
            Ok(Seen::Absent) => cause,
            // A marker was there before ours could be: somebody else's commit or crash, and not ours to touch.
            Ok(Seen::Present(_)) if errno == Errno::EEXIST => self.foreign_marker(Stage::C6),
            _ => self.without_marker(cause),
        }
    }

    /// C7. The marker must hold the very generation that is about to lose its place, or a roll back would restore
    /// something else.
    fn verify_marker(&self) -> Result<()> {
        self.check_marker().map_err(|cause| self.without_marker(cause))
    }

    fn check_marker(&self) -> Result<()> {
        let stage = Stage::C7;
        let marked = match self.place.look(&self.place.marker) {
            Ok(Seen::Present(stat)) if self.old.is_unchanged_in(&stat) => stat,
            Ok(_) => {
                return Err(self.place.file_changed("the recovery marker is not the old generation", stage));
            }
            Err(errno) => return Err(self.place.lost("look at the recovery marker", errno, stage)),
        };
        let ready = self
            .place
            .ops
            .stat(&self.temporary.holder)
            .map_err(|errno| self.place.io("look at the temporary", errno, stage))?;
        if ready.mode & 0o777 != self.temporary.mode_like(&marked) {
            return Err(self.place.file_changed("the file's mode changed during the commit", stage));
        }
        // Last, because the rename replaces whatever the path names: nothing lies between this look and that call.
        self.place.check_storage(self.old, stage)?;
        Ok(())
    }

    /// C8. Atomic for the path (A3): a crash shows the old generation or the new one there, and the marker holds the
    /// old one.
    fn rename(&self) -> std::result::Result<(), Failure<O::File>> {
        let Place { ops, dir, name, .. } = self.place;
        let Err(errno) = ops.rename(dir, &self.temporary.name, name) else { return Ok(()) };
        let cause = self.place.io("rename the temporary over the file", errno, Stage::C8);
        // An error does not say that nothing happened. Only what the path now names does.
        match self.place.look_firmly(name) {
            Ok(seen) if seen.is(&self.old.identity) => Err(self.without_marker(cause).into()),
            Ok(seen) if seen.is_absent() || seen.is(&self.temporary.identity) => Err(self.roll_back(cause)),
            Ok(_) => {
                Err(in_doubt(&cause, self.place.file_changed("the path names a stranger's file", Stage::C8))
                    .into())
            }
            Err(errno) => Err(in_doubt(&cause, self.place.io("look at the path", errno, Stage::C8)).into()),
        }
    }

    /// C9 to C12.
    fn finish(&self) -> Result<()> {
        self.verify_installed()?;
        // C10. Makes the marker's name and the rename durable. Only then may the marker go: were it removed first, a
        // cut could show the old generation with nothing to say that a newer one was acknowledged.
        self.place.sync_dir().map_err(|errno| self.place.io("fsync the directory", errno, Stage::C10))?;
        self.remove_marker()?;
        // C12. A cut may bring the marker back beside the new generation, which recovery resolves to the new one; so
        // a failure here endangers nothing and the commit has succeeded.
        let _ = self.place.sync_dir();
        Ok(())
    }

    /// C9.
    fn verify_installed(&self) -> Result<()> {
        let stage = Stage::C9;
        match self.place.ops.stat_at(&self.place.dir, &self.place.name) {
            Ok(stat) if self.temporary.is_unchanged_in(&stat) => self.place.check_root(stage),
            Ok(_) => Err(self.place.file_changed("the path does not name the new generation", stage)),
            Err(errno) => Err(self.place.lost("look at the new generation", errno, stage)),
        }
    }

    /// C11. The moment of the commit: from here on a load shows the new generation.
    fn remove_marker(&self) -> Result<()> {
        self.place.remove(&self.place.marker, &[&self.old.identity]).map_err(|why| match why {
            NotRemoved::Foreign => self.place.file_changed("the recovery marker was replaced", Stage::C11),
            NotRemoved::Failed(errno) => self.place.io("remove the recovery marker", errno, Stage::C11),
        })
    }

    /// A failure before the rename took effect: takes our marker away again. Where it stays, load must refuse, so the
    /// store is poisoned.
    fn without_marker(&self, cause: Error) -> Error {
        let stage = cause.stage().unwrap_or(Stage::C7);
        let mut mine: Vec<Identity> = vec![self.old.identity];
        // The link names what the path named at that moment, which may be a stranger's file by now.
        if let Ok(Seen::Present(stat)) = self.place.look(&self.place.name) {
            mine.push(Identity::of(&stat));
        }
        let mine: Vec<&Identity> = mine.iter().collect();
        match self.place.remove(&self.place.marker, &mine) {
            Ok(()) => cause,
            Err(NotRemoved::Foreign) => in_doubt(&cause, self.foreign_marker(stage)),
            Err(NotRemoved::Failed(errno)) => {
                in_doubt(&cause, self.place.io("remove the recovery marker", errno, stage))
            }
        }
    }

    fn foreign_marker(&self, stage: Stage) -> Error {
        self.place.marker_present(stage).with_poisoned()
    }

    fn roll_back(&self, cause: Error) -> Failure<O::File> {
        match rollback::roll_back(self.place, self.old, self.temporary) {
            RolledBack::Proved { adopted } => Failure { error: cause, adopted },
            RolledBack::Doubtful(why) => in_doubt(&cause, why).into(),
        }
    }
}

/// The answer where the old generation's place could not be proved: both causes, and a poisoned store.
fn in_doubt(cause: &Error, why: Error) -> Error {
    let mut error = Error::new(
        Code::RollbackFailed,
        "C20",
        format!("the commit failed and its roll back is not proved: {cause}"),
    );
    if let Some(errno) = cause.errno() {
        error = error.with_errno(errno);
    }
    if let Some(path) = cause.path() {
        error = error.with_path(path);
    }
    if let Some(stage) = cause.stage() {
        error = error.with_stage(stage);
    }
    error.with_poisoned().with_rollback_cause(why)
}

const _: () = assert!(TRIES == 3, "requirement C11 allows up to three tries");
