//! A broken promise in a few words: which one, what is left of the session, and how weak a file system shows it.

use std::fmt;

use super::judge::PATH;
use super::{Broken, Options, Token, run_one};
use crate::crash::Profile;
use crate::disk::Disk;
use crate::model;
use crate::promise::{Promise, Violation};
use crate::scenario::HarnessError;

/// What a broken promise looks like to whoever finds the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Seen {
    /// The session is gone, or loads without something that was acknowledged.
    Lost,
    /// The session file has its name and no content: no bytes, or zeros.
    EmptyOrZeroFilled,
    /// The session file ends too early to load.
    Short,
    /// The session file does not load for another reason.
    Damaged,
    /// Something is shown that nobody submitted or created.
    Invented,
    /// The session loads but does not go on from there.
    Stuck,
    /// Nothing on the disk: an answer was wrong.
    WrongAnswer,
}

impl Seen {
    /// The words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Seen::Lost => "lost",
            Seen::EmptyOrZeroFilled => "empty or zero-filled",
            Seen::Short => "short",
            Seen::Damaged => "damaged",
            Seen::Invented => "invented",
            Seen::Stuck => "stuck",
            Seen::WrongAnswer => "wrong answer",
        }
    }

    /// What the first violation looks like on the disk as the restart found it; none where it turned up while the
    /// machine was running.
    pub(super) fn of(violations: &[Violation], disk: Option<&Disk>) -> Seen {
        match (violations.first().map(|violation| violation.promise), disk) {
            (Some(Promise::AcknowledgedSurvive), Some(disk)) => Seen::in_session(disk),
            (Some(Promise::AcknowledgedSurvive), None) => Seen::Lost,
            (Some(Promise::NothingInvented), _) => Seen::Invented,
            (Some(Promise::GoesOnAfterwards), _) => Seen::Stuck,
            _ => Seen::WrongAnswer,
        }
    }

    fn in_session(disk: &Disk) -> Seen {
        disk.read_file(PATH).map_or(Seen::Lost, |bytes| Seen::in_bytes(&bytes))
    }

    fn in_bytes(bytes: &[u8]) -> Seen {
        // A session file holds JSON, in which no zero byte can stand.
        if bytes.is_empty() || bytes.contains(&0) {
            Seen::EmptyOrZeroFilled
        } else if model::load(bytes).is_ok() {
            Seen::Lost
        } else if bytes.is_ascii() && bytes.last() != Some(&b'\n') {
            Seen::Short
        } else {
            Seen::Damaged
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A broken promise in a few words; reads `acknowledged-survive: lost, ordered`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Finding {
    /// Which promise.
    pub promise: Promise,
    /// What is left.
    pub seen: Seen,
    /// The weakest profile under which the same workload breaks the same promise in the same way.
    pub profile: Profile,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.promise, self.seen, self.profile)
    }
}

/// Puts a broken promise into words. The workload is run again under each profile, so that a defect that shows on a
/// journalled file system is not taken for one that only the letter of POSIX allows.
///
/// # Errors
/// [`HarnessError::NoSuchState`] where nothing is broken in `broken`; otherwise where the workload cannot be run.
pub fn finding(broken: &Broken, options: &Options) -> Result<Finding, HarnessError> {
    let promise = broken.violations.first().ok_or(HarnessError::NoSuchState)?.promise;
    let is_same = |other: &Broken| {
        other.seen == broken.seen && other.violations.first().is_some_and(|it| it.promise == promise)
    };
    for profile in Profile::ALL.iter().copied().filter(|profile| *profile < broken.token.profile) {
        let case = Token { profile, ..broken.token.case() };
        if run_one(&case, options)?.broken.iter().any(is_same) {
            return Ok(Finding { promise, seen: broken.seen, profile });
        }
    }
    Ok(Finding { promise, seen: broken.seen, profile: broken.token.profile })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_session_is_told_apart() {
        let header = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;
        let whole = format!("{header}\n");
        for (bytes, seen) in [
            (whole.as_bytes(), Seen::Lost),
            (&[whole.as_bytes(), b"{\"type"].concat(), Seen::Lost),
            (b"", Seen::EmptyOrZeroFilled),
            (&[0; 100], Seen::EmptyOrZeroFilled),
            (&[whole.as_bytes(), &[0; 20]].concat(), Seen::EmptyOrZeroFilled),
            (&header.as_bytes()[..30], Seen::Short),
            (&[whole.as_bytes(), b"{\"type\":7}\n"].concat(), Seen::Damaged),
            (&[whole.as_bytes(), &[0xa5; 20]].concat(), Seen::Damaged),
        ] {
            assert_eq!(Seen::in_bytes(bytes), seen, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
