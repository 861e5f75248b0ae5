//! What a crash left, told apart and resolved: explicit, and never inside a load (requirements X1 to X4).
//!
//! [`inspect`] names the state of a session file and its recovery marker. [`recover`] resolves the states in which
//! nothing has to be guessed; the others need a [`Choice`], and what is not chosen is kept under a new name. Each step
//! is durable before the next depends on it, so recovering again, or after a crash, ends in the same place.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::decode::Decoded;
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{FileKind, FileOps, OsFileOps};
use crate::options::Options;
use crate::place::Place;
use crate::store::Store;

mod act;
mod observe;
mod strays;

use observe::Observed;
pub use strays::{Stray, remove_strays, remove_strays_with, strays, strays_with};

macro_rules! states {
    ($($variant:ident = $token:literal, $words:literal;)*) => {
        /// The state of a session file and its recovery marker.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum State { $(#[doc = $words] $variant,)* }

        impl State {
            /// Every state.
            pub const ALL: &'static [State] = &[$(State::$variant),*];

            /// The stable token, such as `path-lost`.
            pub const fn token(self) -> &'static str {
                match self { $(State::$variant => $token),* }
            }

            /// What it means, as a fragment.
            pub const fn words(self) -> &'static str {
                match self { $(State::$variant => $words),* }
            }
        }
    };
}

states! {
    CommitInFlight = "commit-in-flight", "a live process is committing";
    Clean = "clean", "the session loads and no marker is there";
    Absent = "absent", "there is neither a session nor a marker";
    InterruptedCreate = "interrupted-create", "the file holds no complete header: a writer that is not crash-safe was cut off while creating it";
    Damaged = "damaged", "the session does not load and there is no marker to fall back to";
    InterruptedBeforeRename = "interrupted-before-rename", "a commit was cut off before its rename; the old generation is in its place";
    InterruptedAfterRename = "interrupted-after-rename", "a commit was cut off after its rename; the session holds everything that the marker holds";
    PathOlder = "path-older", "the marker holds everything that the session holds, and more";
    Diverged = "diverged", "session and marker each hold entries that the other does not";
    MarkerUnreadable = "marker-unreadable", "the session loads, the marker does not";
    PathLost = "path-lost", "the session is gone and the marker holds a generation of it";
    PathDamaged = "path-damaged", "the session does not load, the marker does; entries acknowledged after the marker was made may be lost";
    BothLost = "both-lost", "the session is gone and the marker does not load";
    BothBad = "both-bad", "neither the session nor the marker loads";
    Foreign = "foreign", "something that is not a regular file has the session's or the marker's name";
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}

/// What to keep where that cannot be told from the files. Where it can, a choice changes nothing: what it names is
/// kept in any case, or held by what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The session file.
    Current,
    /// The marker.
    Marker,
    /// Neither: the session file is taken out of the way.
    SetAside,
}

impl Choice {
    /// Every choice.
    pub const ALL: &'static [Choice] = &[Choice::Current, Choice::Marker, Choice::SetAside];

    /// The stable token.
    pub const fn token(self) -> &'static str {
        match self {
            Choice::Current => "current",
            Choice::Marker => "marker",
            Choice::SetAside => "set-aside",
        }
    }
}

/// One thing that a recovery does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The marker is removed, because the session file holds everything that it holds.
    RemoveMarker,
    /// The session file is given a new name.
    SetAsideCurrent,
    /// The marker is given a new name.
    SetAsideMarker,
    /// The marker takes the session file's place.
    MarkerBecomesCurrent,
}

impl Action {
    /// The stable token.
    pub const fn token(self) -> &'static str {
        match self {
            Action::RemoveMarker => "remove-marker",
            Action::SetAsideCurrent => "set-aside-current",
            Action::SetAsideMarker => "set-aside-marker",
            Action::MarkerBecomesCurrent => "marker-becomes-current",
        }
    }
}

/// Something that a recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub action: Action,
    /// The name that is gone, or that something has now, in the session's directory.
    pub name: OsString,
}

/// What stands at one name.
#[derive(Debug)]
pub enum Content {
    /// Nothing.
    Absent,
    /// Something that is not a regular file. It was not opened.
    Foreign(FileKind),
    /// A session that loads.
    Session(Box<Decoded>),
    /// A regular file that a load refuses for its content, and what it says.
    Refused(Error),
}

/// What [`inspect`] saw.
#[derive(Debug)]
pub struct Inspection {
    /// The state.
    pub state: State,
    /// What the session's name stands for.
    pub current: Content,
    /// What the marker's name stands for.
    pub marker: Content,
    /// The marker's name in the session's directory.
    pub marker_name: OsString,
    /// Temporaries of dead processes beside the session.
    pub strays: Vec<Stray>,
}

/// What [`rehearse`] found, and what [`recover`] would do about it.
#[derive(Debug)]
pub struct Rehearsal {
    /// What was seen.
    pub inspection: Inspection,
    /// The actions; none where a recovery would refuse.
    pub actions: Option<&'static [Action]>,
}

/// What [`recover`] found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The state as it was found.
    pub state: State,
    /// What was done, in order; nothing where nothing had to be.
    pub did: Vec<Step>,
}

/// Names the state of the session at `path` and changes nothing (requirement X1).
///
/// # Errors
/// [`Code::Io`] where something could not be read: that is never a verdict. [`Code::FileChanged`] where the files
/// keep changing while they are read, [`Code::RootChanged`] where the parent is not a directory.
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection> {
    inspect_with(OsFileOps::new(), path)
}

/// [`inspect`] on any file operations.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_with<O: FileOps>(ops: O, path: impl AsRef<Path>) -> Result<Inspection> {
    let place = Place::open(ops, path.as_ref(), Stage::X1)?;
    let (observed, in_flight) = observe::at_rest(&place)?;
    let state = if in_flight { State::CommitInFlight } else { decide(&observed) };
    let strays = strays::in_place(&place)?;
    let Observed { current, marker, .. } = observed;
    Ok(Inspection { state, current, marker, marker_name: place.marker, strays })
}

/// Resolves the state of the session at `path` (requirement X2). Without a `choice`, only where nothing has to be
/// guessed. Never removes the only copy of an entry.
///
/// # Errors
/// [`Code::RollbackFailed`] where a choice is needed or nothing can be saved, with `in_flight` where a live process
/// is committing; what a load says where the session is damaged and no marker is there; [`Code::FileChanged`] for
/// anything but regular files; [`Code::Io`], with `in_flight` where another process kept the session locked.
/// After an error, and after a crash, every entry is where it was or under a new name beside it: recover again.
pub fn recover(path: impl AsRef<Path>, choice: Option<Choice>) -> Result<Recovery> {
    recover_with(OsFileOps::new(), path, choice)
}

/// [`recover`] on any file operations.
///
/// # Errors
/// As [`recover`].
pub fn recover_with<O: FileOps>(ops: O, path: impl AsRef<Path>, choice: Option<Choice>) -> Result<Recovery> {
    let place = Place::open(ops, path.as_ref(), Stage::X2)?;
    let _guard = place.lock_in_process(Stage::X2)?;
    let observed = observe::locked(&place, Stage::X2)?;
    let state = decide(&observed);
    let actions = plan(state, choice).ok_or_else(|| refusal(&place, state, &observed))?;
    let did = act::carry_out(&place, &observed.names, actions)?;
    Ok(Recovery { state, did })
}

/// What [`recover`] would do at `path` now: it looks under the same locks, waits for the same processes, and does
/// nothing.
///
/// # Errors
/// As [`recover`] before it does anything, but for the refusal of a state; and [`Code::Io`] with `ENAMETOOLONG` where
/// a file would have to be set aside and the name for that does not fit.
pub fn rehearse(path: impl AsRef<Path>, choice: Option<Choice>) -> Result<Rehearsal> {
    rehearse_with(OsFileOps::new(), path, choice)
}

/// [`rehearse`] on any file operations.
///
/// # Errors
/// As [`rehearse`].
pub fn rehearse_with<O: FileOps>(
    ops: O,
    path: impl AsRef<Path>,
    choice: Option<Choice>,
) -> Result<Rehearsal> {
    let place = Place::open(ops, path.as_ref(), Stage::X2)?;
    let _guard = place.lock_in_process(Stage::X2)?;
    let observed = observe::locked(&place, Stage::X2)?;
    let state = decide(&observed);
    let actions = plan(state, choice);
    let sets_aside = |action: &Action| matches!(action, Action::SetAsideCurrent | Action::SetAsideMarker);
    if actions.is_some_and(|actions| actions.iter().any(sets_aside)) {
        // No sibling is longer than the name that something is set aside under.
        place.check_name_length(Stage::X2)?;
    }
    let strays = strays::in_place(&place)?;
    let Observed { current, marker, .. } = observed;
    let inspection = Inspection { state, current, marker, marker_name: place.marker, strays };
    Ok(Rehearsal { inspection, actions })
}

/// What [`recover`] would do in `state`; none where it would refuse.
pub fn plan(state: State, choice: Option<Choice>) -> Option<&'static [Action]> {
    const TAKE_MARKER: &[Action] = &[Action::SetAsideCurrent, Action::MarkerBecomesCurrent];
    match (state, choice) {
        (State::Clean | State::Absent, _) => Some(&[]),
        (State::InterruptedBeforeRename | State::InterruptedAfterRename, _) => Some(&[Action::RemoveMarker]),
        (State::PathOlder, _) | (State::Diverged | State::PathDamaged, Some(Choice::Marker)) => {
            Some(TAKE_MARKER)
        }
        (State::MarkerUnreadable, _) | (State::Diverged, Some(Choice::Current)) => {
            Some(&[Action::SetAsideMarker])
        }
        (State::PathLost, _) => Some(&[Action::MarkerBecomesCurrent]),
        (State::InterruptedCreate, Some(Choice::SetAside)) => Some(&[Action::SetAsideCurrent]),
        _ => None,
    }
}

impl<O: FileOps> Store<O> {
    /// For callers that say so: [`recover`] where nothing has to be guessed, then [`Store::load_with`]
    /// (requirement X4).
    ///
    /// # Errors
    /// As [`recover`] without a choice, then as [`Store::load_with`].
    pub fn open_recovering(ops: O, path: impl AsRef<Path>, options: Options) -> Result<(Store<O>, Recovery)> {
        let recovery = recover_with(ops.clone(), path.as_ref(), None)?;
        Ok((Store::load_with(ops, path, options)?, recovery))
    }
}

/// The state, from what was observed alone. Locks are somebody else's question.
fn decide<F: Send + Sync + 'static>(observed: &Observed<F>) -> State {
    use Content::{Absent, Foreign, Refused, Session};
    match (&observed.current, &observed.marker) {
        (Foreign(_), _) | (_, Foreign(_)) => State::Foreign,
        (Absent, Absent) => State::Absent,
        (Session(_), Absent) => State::Clean,
        (Refused(error), Absent) if holds_no_record(error) => State::InterruptedCreate,
        (Refused(_), Absent) => State::Damaged,
        (Session(_), Session(_)) if observed.names.is_one_inode() => State::InterruptedBeforeRename,
        (Session(current), Session(marker)) if extends(current, marker) => State::InterruptedAfterRename,
        (Session(current), Session(marker)) if extends(marker, current) => State::PathOlder,
        (Session(_), Session(_)) => State::Diverged,
        (Session(_), Refused(_)) => State::MarkerUnreadable,
        (Absent, Session(_)) => State::PathLost,
        (Refused(_), Session(_)) => State::PathDamaged,
        (Absent, Refused(_)) => State::BothLost,
        (Refused(_), Refused(_)) => State::BothBad,
    }
}

/// Empty, or the beginning of a header.
fn holds_no_record(error: &Error) -> bool {
    error.requirement() == "F6"
}

/// Whether `long` is the same session as `short` with no entry less and none changed.
fn extends(long: &Decoded, short: &Decoded) -> bool {
    long.header() == short.header() && long.entries().starts_with(short.entries())
}

fn refusal<O: FileOps>(place: &Place<O>, state: State, observed: &Observed<O::File>) -> Error {
    match (state, &observed.current) {
        (State::Damaged | State::InterruptedCreate, Content::Refused(error)) => {
            error.clone().with_stage(Stage::X2)
        }
        (State::Foreign, _) => place.file_changed(State::Foreign.words(), Stage::X2),
        _ => refused(place, state).with_stage(Stage::X2),
    }
}

fn refused<O: FileOps>(place: &Place<O>, state: State) -> Error {
    Error::new(Code::RollbackFailed, "X2", format!("{state}: {}", state.words())).with_path(place.path())
}
