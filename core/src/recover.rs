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
use crate::file_ops::{FileOps, OsFileOps};
use crate::options::Options;
use crate::place::{LOCK_TRIES, Place, Waits};
use crate::store::Store;

mod act;
mod observe;
mod strays;

use observe::{Observed, Side};
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

/// What to keep where that cannot be told from the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The session file.
    Current,
    /// The marker.
    Marker,
    /// Neither: the session file is taken out of the way.
    SetAside,
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

/// What [`inspect`] saw.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The state.
    pub state: State,
    /// Entries that the session file holds, where it loads.
    pub entries: Option<usize>,
    /// Entries that the marker holds, where it loads.
    pub marker_entries: Option<usize>,
    /// What a load of the session file says, where it is there and refused for its content.
    pub refusal: Option<Error>,
    /// What a load of the marker says, likewise.
    pub marker_refusal: Option<Error>,
    /// Temporaries of dead processes beside the session.
    pub strays: Vec<Stray>,
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
    let observed = observe::settled(&place, Stage::X1)?;
    let state =
        if observed.is_in_flight(&place, Stage::X1)? { State::CommitInFlight } else { decide(&observed) };
    Ok(Inspection {
        state,
        entries: observed.current.entries(),
        marker_entries: observed.marker.entries(),
        refusal: observed.current.refusal().map(|error| error.clone().with_path(place.path())),
        marker_refusal: observed.marker.refusal().map(|error| error.clone().with_path(&place.marker_path())),
        strays: strays::in_place(&place)?,
    })
}

/// Resolves the state of the session at `path` (requirement X2). Without a `choice`, only where nothing has to be
/// guessed. Never removes the only copy of an entry.
///
/// # Errors
/// [`Code::RollbackFailed`] where a choice is needed or nothing can be saved, with `in_flight` where a live process
/// is committing; what a load says where the session is damaged and no marker is there; [`Code::FileChanged`] for
/// anything but regular files; [`Code::Io`]. After an error the session and its marker hold what they held.
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
    let mut waits = Waits::new(LOCK_TRIES);
    loop {
        let mut observed = observe::settled(&place, Stage::X2)?;
        if !observed.lock(&place)? {
            if !waits.pause(&place.ops) {
                return Err(refused(&place, State::CommitInFlight).with_in_flight());
            }
            continue;
        }
        // A commit may have ended between the reading and the locks; under them nobody who takes them changes anything.
        if !observed.is_unchanged(&place, Stage::X2)? {
            if !waits.pause(&place.ops) {
                return Err(place.file_changed("the files keep changing", Stage::X2));
            }
            continue;
        }
        let state = decide(&observed);
        let actions = plan(state, choice).ok_or_else(|| refusal(&place, state, &observed))?;
        let did = act::carry_out(&place, &observed, actions)?;
        return Ok(Recovery { state, did });
    }
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
    match (&observed.current.side, &observed.marker.side) {
        (Side::Foreign, _) | (_, Side::Foreign) => State::Foreign,
        (Side::Absent, Side::Absent) => State::Absent,
        (Side::Good(_), Side::Absent) => State::Clean,
        (Side::Bad { headless: true, .. }, Side::Absent) => State::InterruptedCreate,
        (Side::Bad { .. }, Side::Absent) => State::Damaged,
        (Side::Good(_), Side::Good(_)) if observed.is_one_inode() => State::InterruptedBeforeRename,
        (Side::Good(current), Side::Good(marker)) if extends(current, marker) => {
            State::InterruptedAfterRename
        }
        (Side::Good(current), Side::Good(marker)) if extends(marker, current) => State::PathOlder,
        (Side::Good(_), Side::Good(_)) => State::Diverged,
        (Side::Good(_), Side::Bad { .. }) => State::MarkerUnreadable,
        (Side::Absent, Side::Good(_)) => State::PathLost,
        (Side::Bad { .. }, Side::Good(_)) => State::PathDamaged,
        (Side::Absent, Side::Bad { .. }) => State::BothLost,
        (Side::Bad { .. }, Side::Bad { .. }) => State::BothBad,
    }
}

/// Whether `long` is the same session as `short` with no entry less and none changed.
fn extends(long: &Decoded, short: &Decoded) -> bool {
    long.header() == short.header() && long.entries().starts_with(short.entries())
}

fn refusal<O: FileOps>(place: &Place<O>, state: State, observed: &Observed<O::File>) -> Error {
    match (state, observed.current.refusal()) {
        (State::Damaged | State::InterruptedCreate, Some(error)) => {
            error.clone().with_path(place.path()).with_stage(Stage::X2)
        }
        (State::Foreign, _) => place.file_changed(State::Foreign.words(), Stage::X2),
        _ => refused(place, state),
    }
}

fn refused<O: FileOps>(place: &Place<O>, state: State) -> Error {
    let message = format!("{state}: {}", state.words());
    Error::new(Code::RollbackFailed, "X2", message).with_path(place.path()).with_stage(Stage::X2)
}
