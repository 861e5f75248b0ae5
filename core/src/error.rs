//! What a refusal says: a stable code, the evidence, and what to do next.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::errno::Errno;

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! codes {
    ($($variant:ident = $text:literal, $help:literal, $doc:literal;)*) => {
        /// The stable code of a refusal (contract section 2).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $doc] $variant,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];

            /// The code as it is written in reports and protocols, such as `SESSION_INVALID_JSON`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text),* }
            }

            /// What to do next, as a fragment.
            pub const fn help(self) -> &'static str {
                match self { $(Code::$variant => $help),* }
            }
        }
    };
}

codes! {
    AlreadyExists = "SESSION_ALREADY_EXISTS", "load the existing session, or choose another path", "`create` found something at the path.";
    DuplicateEntryId = "SESSION_DUPLICATE_ENTRY_ID", "restore the file from a copy; two entries claim one identity", "Two entries have one id (requirement R5).";
    EntryNotFound = "SESSION_ENTRY_NOT_FOUND", "choose the id of an entry of this session", "A tree was asked to move to an id that no entry has (requirement T2).";
    FactoryFailed = "SESSION_FACTORY_FAILED", "mend the id or clock factory; nothing was written", "An id or clock factory panicked or called back into the store (requirement S9).";
    FileChanged = "SESSION_FILE_CHANGED", "load the session again and repeat the operation", "The file is not the one that the store knows (requirements S2, S4, S8).";
    FileTooLarge = "SESSION_FILE_TOO_LARGE", "start a new session; this one is at its ceiling", "The file has, or would have, more than 4 194 304 bytes.";
    InvalidHeader = "SESSION_INVALID_HEADER", "check that this is a session file of format 1; if so, restore it from a copy", "The first line is not a header of this format (requirements R1, F6).";
    InvalidJson = "SESSION_INVALID_JSON", "restore the file from a copy; a complete line that is not JSON is damage, not a torn tail", "A line is not one JSON value (requirements F3, F4).";
    InvalidMessage = "SESSION_INVALID_MESSAGE", "give the message exactly the fields of its role", "A message has the wrong shape (requirement R3).";
    InvalidRecord = "SESSION_INVALID_RECORD", "restore the file from a copy; this line is JSON but not an entry", "A line is JSON but not an entry (requirement R2).";
    InvalidToolLinkage = "SESSION_INVALID_TOOL_LINKAGE", "append a result once, below the call that it answers, on the same branch", "A tool call or result breaks requirements L1 to L4.";
    InvalidUtf8 = "SESSION_INVALID_UTF8", "restore the file from a copy; the bytes are not text", "A line is not UTF-8 (requirement F2).";
    Io = "SESSION_IO", "see the operating system's error; the stage says what was being done", "The operating system failed in a way that no other code names.";
    LineTooLarge = "SESSION_LINE_TOO_LARGE", "split or shorten the message", "A line has, or would have, more than 65 536 bytes.";
    ParentNotFound = "SESSION_PARENT_NOT_FOUND", "choose the id of an earlier entry, or none for a root", "A parent is not an earlier entry (requirement R5).";
    RecordLimit = "SESSION_RECORD_LIMIT", "start a new session; this one is at its ceiling", "The session has, or would have, more than 4 096 entries.";
    RollbackFailed = "SESSION_ROLLBACK_FAILED", "inspect the session's recovery marker and recover explicitly, then load again", "A recovery marker is present, or a roll back could not be proved (requirements C1, C20).";
    RootChanged = "SESSION_ROOT_CHANGED", "open the session again under its present directory", "The directory is not the one that the store knows, or not a directory (requirement S3).";
    UnsupportedVersion = "SESSION_UNSUPPORTED_VERSION", "use a release that knows this version", "A version is not 1 (requirements R1, R2).";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a code of this contract")]
pub struct UnknownCode(String);

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> std::result::Result<Code, UnknownCode> {
        Code::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == text)
            .ok_or_else(|| UnknownCode(text.to_owned()))
    }
}

macro_rules! stages {
    ($($variant:ident, $words:literal;)*) => {
        /// The step during which something failed (contract sections 6 and 7).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Stage {
            $(#[doc = concat!("`", stringify!($variant), "`: ", $words)] $variant,)*
        }

        impl Stage {
            /// Every stage.
            pub const ALL: &'static [Stage] = &[$(Stage::$variant),*];

            /// The stage's id, such as `C8`.
            pub const fn id(self) -> &'static str {
                match self { $(Stage::$variant => stringify!($variant)),* }
            }

            /// What the stage does, in a word or two.
            pub const fn words(self) -> &'static str {
                match self { $(Stage::$variant => $words),* }
            }
        }
    };
}

stages! {
    K1, "verify"; K2, "temp-create"; K3, "write"; K4, "fsync"; K5, "link"; K6, "verify"; K7, "dir-fsync"; K8, "temp-remove"; K9, "dir-fsync";
    V1, "root"; V2, "marker"; V3, "look"; V4, "open"; V5, "read"; V6, "look again";
    C1, "verify"; C2, "temp-create"; C3, "temp-write"; C4, "temp-fsync"; C5, "temp-verify"; C6, "marker-link"; C7, "marker-verify";
    C8, "rename"; C9, "install-verify"; C10, "dir-fsync"; C11, "marker-remove"; C12, "dir-fsync"; C20, "roll back";
    X1, "inspect"; X2, "recover"; X3, "strays";
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id(), self.words())
    }
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The byte within the line, from 1.
    pub column: usize,
    /// The byte within the file, from 0: the first that makes the file wrong, else the start of the offending value.
    pub offset: usize,
}

/// Why a store refused.
///
/// Cheap to clone. [`Error::code`] is stable; the words are for people.
#[derive(Clone, thiserror::Error)]
#[error("{}", self.0)]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    code: Code,
    message: String,
    requirement: &'static str,
    path: Option<PathBuf>,
    stage: Option<Stage>,
    errno: Option<Errno>,
    position: Option<Position>,
    poisoned: bool,
    in_flight: bool,
    rollback_cause: Option<Error>,
}

impl Error {
    /// The stable code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What is wrong, as a lower-case fragment without the evidence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The requirement of the contract that refuses, such as `F4`.
    pub fn requirement(&self) -> &'static str {
        self.0.requirement
    }

    /// The file or directory that the refusal is about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The stage of a create, load or commit that failed.
    pub fn stage(&self) -> Option<Stage> {
        self.0.stage
    }

    /// The operating system's error number.
    pub fn errno(&self) -> Option<Errno> {
        self.0.errno
    }

    /// Where in the file.
    pub fn position(&self) -> Option<Position> {
        self.0.position
    }

    /// Whether the store refuses every further call that touches the disk.
    pub fn poisoned(&self) -> bool {
        self.0.poisoned
    }

    /// Whether another process's commit was under way for as long as this call was ready to wait.
    pub fn in_flight(&self) -> bool {
        self.0.in_flight
    }

    /// With [`Code::RollbackFailed`] after a commit: what stopped the roll back, where [`Error::message`] names
    /// what stopped the commit.
    pub fn rollback_cause(&self) -> Option<&Error> {
        self.0.rollback_cause.as_ref()
    }

    /// What to do next, as a fragment.
    pub fn help(&self) -> &'static str {
        if self.in_flight() {
            "wait for the other process's commit, then try again"
        } else {
            self.code().help()
        }
    }
}

impl Error {
    pub(crate) fn new(code: Code, requirement: &'static str, message: impl Into<String>) -> Error {
        Error(Box::new(Parts {
            code,
            message: message.into(),
            requirement,
            path: None,
            stage: None,
            errno: None,
            position: None,
            poisoned: false,
            in_flight: false,
            rollback_cause: None,
        }))
    }

    pub(crate) fn with_path(mut self, path: &Path) -> Error {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Puts `path` in place of any other: of a check that serves several files.
    pub(crate) fn at(mut self, path: &Path) -> Error {
        self.0.path = Some(path.to_owned());
        self
    }

    pub(crate) fn with_stage(mut self, stage: Stage) -> Error {
        self.0.stage.get_or_insert(stage);
        self
    }

    pub(crate) fn with_errno(mut self, errno: Errno) -> Error {
        self.0.errno = Some(errno);
        self
    }

    pub(crate) fn with_position(mut self, position: Position) -> Error {
        self.0.position = Some(position);
        self
    }

    pub(crate) fn with_poisoned(mut self) -> Error {
        self.0.poisoned = true;
        self
    }

    pub(crate) fn with_in_flight(mut self) -> Error {
        self.0.in_flight = true;
        self
    }

    pub(crate) fn with_rollback_cause(mut self, cause: Error) -> Error {
        self.0.rollback_cause = Some(cause);
        self
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if let Some(errno) = self.errno {
            write!(f, ": {} ({errno})", errno.description())?;
        }
        if let Some(path) = &self.path {
            write!(f, ", at {}", path.display())?;
        }
        if let Some(Position { line, column, offset }) = self.position {
            write!(f, ", line {line}, column {column}, byte {offset}")?;
        }
        if let Some(stage) = self.stage {
            write!(f, ", stage {stage}")?;
        }
        if self.in_flight {
            f.write_str(", another commit is in flight")?;
        }
        if self.poisoned {
            f.write_str(", the store is poisoned")?;
        }
        write!(f, " [{}]", self.requirement)?;
        if let Some(cause) = &self.rollback_cause {
            write!(f, "; roll back: {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
