//! How the small store names and resolves what a crash left (requirements X1, X2).

use std::ffi::{OsStr, OsString};
use std::path::Path;

use session_tree::file_ops::{Access, FileKind, FileOps, FileStat, Lock};
use session_tree::{Errno, Stage};

use super::defect::Defect;
use super::fail::Fail;
use super::place::{Place, changed, is_same, is_unchanged, uninterrupted};
use super::temporary::read_all;
use crate::call::{Choose, Did};
use crate::model::{self, Session};
use crate::world::{WorldFile, WorldOps};

/// The token of the state.
pub(super) fn inspect(ops: &WorldOps, path: &Path, defect: Option<Defect>) -> Result<&'static str, Fail> {
    let place = Place::open(ops, path, defect, Stage::X1)?;
    let seen = match Observed::of(&place, Stage::X1) {
        Err(fail) if fail.refusal().is_some_and(|refusal| refusal.in_flight) => {
            return Ok("commit-in-flight");
        }
        seen => seen?,
    };
    if place.has(Defect::InspectTidies) && seen.state() == "interrupted-before-rename" {
        let _ = place.ops.unlink(&place.dir, &place.marker);
    }
    Ok(seen.state())
}

/// The state as it was found, and what was done.
pub(super) fn recover(
    ops: &WorldOps,
    path: &Path,
    choose: Option<Choose>,
    defect: Option<Defect>,
) -> Result<(&'static str, Vec<Did>), Fail> {
    let place = Place::open(ops, path, defect, Stage::X2)?;
    let seen = Observed::of(&place, Stage::X2)?;
    let state = seen.state();
    let done = Recovery { place: &place, seen: &seen }.resolve(state, choose)?;
    Ok((state, done))
}

/// What stands at one name.
enum Found {
    Nothing,
    /// Not a regular file.
    Foreign,
    Session(Box<Session>, Held),
    /// A file that does not load, and the code that says why.
    Bad(&'static str, Held),
}

struct Held {
    file: WorldFile,
    stat: FileStat,
    /// Whether any line is complete.
    has_record: bool,
}

struct Observed {
    path: Found,
    marker: Found,
}

impl Observed {
    fn of(place: &Place, stage: Stage) -> Result<Observed, Fail> {
        Ok(Observed { path: find(place, &place.name, stage)?, marker: find(place, &place.marker, stage)? })
    }

    fn state(&self) -> &'static str {
        use Found::{Bad, Foreign, Nothing, Session};
        match (&self.path, &self.marker) {
            (Foreign, _) | (_, Foreign) => "foreign",
            (Nothing, Nothing) => "absent",
            (Session(..), Nothing) => "clean",
            (Bad(code, _), Nothing) if *code == "SESSION_INVALID_HEADER" && self.holds_no_record() => {
                "interrupted-create"
            }
            (Bad(..), Nothing) => "damaged",
            (Session(_, one), Session(_, other)) if is_same(&one.stat, &other.stat) => {
                "interrupted-before-rename"
            }
            (Session(one, _), Session(other, _)) if extends(one, other) => "interrupted-after-rename",
            (Session(one, _), Session(other, _)) if extends(other, one) => "path-older",
            (Session(..), Session(..)) => "diverged",
            (Session(..), Bad(..)) => "marker-unreadable",
            (Nothing, Session(..)) => "path-lost",
            (Bad(..), Session(..)) => "path-damaged",
            (Nothing, Bad(..)) => "both-lost",
            (Bad(..), Bad(..)) => "both-bad",
        }
    }

    /// Empty, or only the beginning of a line.
    fn holds_no_record(&self) -> bool {
        matches!(&self.path, Found::Bad(_, held) if !held.has_record)
    }
}

fn extends(long: &Session, short: &Session) -> bool {
    long.header() == short.header() && long.entries().starts_with(short.entries())
}

fn find(place: &Place, name: &OsStr, stage: Stage) -> Result<Found, Fail> {
    let looked = match place.look(name) {
        Ok(None) => return Ok(Found::Nothing),
        Ok(Some(stat)) if stat.kind != FileKind::Regular => return Ok(Found::Foreign),
        Ok(Some(stat)) => stat,
        Err(errno) => return Err(Fail::io("look at the file", errno, stage)),
    };
    let file = uninterrupted(|| place.ops.open(&place.dir, name, Access::Read))
        .map_err(|errno| Fail::io("open the file", errno, stage))?;
    let stat = place.ops.stat(&file).map_err(|errno| Fail::io("look at the file", errno, stage))?;
    if !is_same(&looked, &stat) {
        return Err(changed("the file was replaced", stage));
    }
    // A commit in flight has locked its old generation, which its marker is too. Where there are no locks, whoever
    // recovers must know that nobody writes.
    match uninterrupted(|| place.ops.try_lock(&file, Lock::Shared)) {
        Ok(false) => {
            return Err(Fail::new("SESSION_ROLLBACK_FAILED", "a commit is in flight").at(stage).in_flight());
        }
        Ok(true) | Err(Errno::ENOLCK | Errno::ENOTSUP | Errno::ENOSYS | Errno::EBADF) => {}
        Err(errno) => return Err(Fail::io("lock the file", errno, stage)),
    }
    let bytes = read_all(place, &file, stat.size, stage)?;
    let is_json = |bytes: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    let held = Held { file, stat, has_record: bytes.contains(&b'\n') || is_json(&bytes) };
    Ok(match model::load(&bytes) {
        Ok(session) => Found::Session(Box::new(session), held),
        Err(refusal) => Found::Bad(refusal.code, held),
    })
}

struct Recovery<'a> {
    place: &'a Place,
    seen: &'a Observed,
}

impl Recovery<'_> {
    fn resolve(&self, state: &'static str, choose: Option<Choose>) -> Result<Vec<Did>, Fail> {
        if let Some(done) = self.resolve_badly(state)? {
            return Ok(done);
        }
        match (state, choose) {
            ("clean" | "absent", _) => Ok(Vec::new()),
            ("interrupted-before-rename" | "interrupted-after-rename", _) => {
                self.sync_kept(&self.seen.path)?;
                Ok(vec![self.remove_marker()?])
            }
            ("path-older", _) | ("diverged" | "path-damaged", Some(Choose::Marker)) => {
                self.sync_kept(&self.seen.marker)?;
                Ok(vec![
                    self.set_aside(&self.place.name, "set-aside-current")?,
                    self.marker_becomes_current()?,
                ])
            }
            ("marker-unreadable", _) | ("diverged", Some(Choose::Current)) => {
                self.sync_kept(&self.seen.path)?;
                Ok(vec![self.set_aside(&self.place.marker, "set-aside-marker")?])
            }
            ("path-lost", _) => {
                self.sync_kept(&self.seen.marker)?;
                Ok(vec![self.marker_becomes_current()?])
            }
            ("interrupted-create", Some(Choose::SetAside)) => {
                self.sync_kept(&self.seen.path)?;
                Ok(vec![self.set_aside(&self.place.name, "set-aside-current")?])
            }
            ("damaged" | "interrupted-create", _) => {
                let Found::Bad(code, _) = &self.seen.path else { return Err(refused(state)) };
                Err(Fail::new(code, "the session does not load and there is no marker").at(Stage::X2))
            }
            ("foreign", _) => Err(changed("something that is not a regular file is in the way", Stage::X2)),
            _ => Err(refused(state)),
        }
    }

    /// What a specimen does instead.
    fn resolve_badly(&self, state: &str) -> Result<Option<Vec<Did>>, Fail> {
        let Place { ops, dir, name, marker, .. } = self.place;
        let done = |action: &str, name: &OsStr| vec![did(action, name)];
        if self.place.has(Defect::RecoveryPrefersMarker) && state == "interrupted-after-rename" {
            ops.rename(dir, marker, name).map_err(|errno| failed("rename the marker", errno))?;
            self.sync_dir()?;
            return Ok(Some(done("marker-becomes-current", name)));
        }
        if self.place.has(Defect::RecoveryDeletesDamage) && state == "path-damaged" {
            ops.rename(dir, marker, name).map_err(|errno| failed("rename the marker", errno))?;
            self.sync_dir()?;
            return Ok(Some(done("marker-becomes-current", name)));
        }
        if self.place.has(Defect::RecoveryTakesDiverged) && state == "diverged" {
            self.sync_kept(&self.seen.path)?;
            return Ok(Some(vec![self.remove_marker()?]));
        }
        if self.place.has(Defect::RecoveryDropsUnreadable) && state == "marker-unreadable" {
            self.sync_kept(&self.seen.path)?;
            return Ok(Some(vec![self.remove_marker()?]));
        }
        Ok(None)
    }

    /// What is kept under the session's name is durable, and its name, before another name goes.
    fn sync_kept(&self, kept: &Found) -> Result<(), Fail> {
        if let Found::Session(_, held) | Found::Bad(_, held) = kept {
            self.place.ops.sync(&held.file).map_err(|errno| failed("fsync what is kept", errno))?;
        }
        self.sync_dir()
    }

    fn sync_dir(&self) -> Result<(), Fail> {
        self.place.sync_dir().map_err(|errno| failed("fsync the directory", errno))
    }

    fn remove_marker(&self) -> Result<Did, Fail> {
        self.unlink(&self.place.marker)?;
        Ok(did("remove-marker", &self.place.marker))
    }

    fn set_aside(&self, name: &OsStr, action: &str) -> Result<Did, Fail> {
        let aside = self.place.sibling("aside-");
        self.link(name, &aside)?;
        self.unlink(name)?;
        Ok(did(action, &aside))
    }

    fn marker_becomes_current(&self) -> Result<Did, Fail> {
        self.link(&self.place.marker, &self.place.name)?;
        self.unlink(&self.place.marker)?;
        Ok(did("marker-becomes-current", &self.place.name))
    }

    fn link(&self, from: &OsStr, to: &OsStr) -> Result<(), Fail> {
        let Place { ops, dir, .. } = self.place;
        ops.link(dir, from, to).map_err(|errno| failed("link the file", errno))?;
        self.sync_dir()
    }

    /// Takes a name away that is still what was read.
    fn unlink(&self, name: &OsStr) -> Result<(), Fail> {
        let found = if *name == self.place.marker { &self.seen.marker } else { &self.seen.path };
        let (Found::Session(_, held) | Found::Bad(_, held)) = found else {
            return Err(changed("the file is gone", Stage::X2));
        };
        match self.place.look(name) {
            Ok(Some(stat)) if is_unchanged(&held.stat, &stat) => {}
            Ok(_) => return Err(changed("the file was replaced", Stage::X2)),
            Err(errno) => return Err(failed("look at the file", errno)),
        }
        let Place { ops, dir, .. } = self.place;
        ops.unlink(dir, name).map_err(|errno| failed("remove the name", errno))?;
        self.sync_dir()
    }
}

fn failed(doing: &str, errno: Errno) -> Fail {
    Fail::io(doing, errno, Stage::X2)
}

fn refused(state: &str) -> Fail {
    Fail::new("SESSION_ROLLBACK_FAILED", &format!("{state}: nothing is certain, choose")).at(Stage::X2)
}

fn did(action: &str, name: &OsStr) -> Did {
    Did { action: action.to_owned(), name: OsString::from(name).to_string_lossy().into_owned() }
}
