//! The names that a store may use beside its session file (contract section 7).

use std::ffi::{OsStr, OsString};

use crate::file_ops::Tag;

const TEMPORARY: &str = ".pify-session-";
const MARKER: &str = ".pify-session-recovery";
const RESTORE: &str = ".pify-session-restore-";

/// The longest process id that a name is reserved for, in digits.
const PROCESS_DIGITS: usize = 10;
/// The unique part, a hyphenated UUID.
const UNIQUE_BYTES: usize = 36;

/// The recovery marker: a second name of the generation that a commit replaces.
pub(crate) fn marker(file: &OsStr) -> OsString {
    beside(file, MARKER)
}

/// The temporary that becomes the next generation.
pub(crate) fn temporary(file: &OsStr, tag: &Tag) -> OsString {
    beside(file, &format!("{TEMPORARY}{}-{}", tag.process, tag.unique))
}

/// The temporary that a roll back copies the old generation to.
pub(crate) fn restore(file: &OsStr, tag: &Tag) -> OsString {
    beside(file, &format!("{RESTORE}{}-{}", tag.process, tag.unique))
}

/// Bytes of the longest sibling that a file of this name may need.
pub(crate) fn longest(file: &OsStr) -> usize {
    file.len() + RESTORE.len() + PROCESS_DIGITS + "-".len() + UNIQUE_BYTES
}

fn beside(file: &OsStr, suffix: &str) -> OsString {
    let mut name = file.to_owned();
    name.push(suffix);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(process: u32) -> Tag {
        Tag { process, unique: uuid::Uuid::nil().to_string() }
    }

    // Requirement: S1
    #[test]
    fn no_sibling_is_longer_than_the_reserved_length() {
        let file = OsStr::new("a.jsonl");
        for name in [marker(file), temporary(file, &tag(u32::MAX)), restore(file, &tag(u32::MAX))] {
            assert!(name.len() <= longest(file), "{name:?}");
        }
        assert_eq!(restore(file, &tag(u32::MAX)).len(), longest(file));
    }

    #[test]
    fn names_are_those_of_the_contract() {
        let file = OsStr::new("a.jsonl");
        assert_eq!(marker(file), "a.jsonl.pify-session-recovery");
        assert_eq!(temporary(file, &tag(7)), "a.jsonl.pify-session-7-00000000-0000-0000-0000-000000000000");
        assert_eq!(
            restore(file, &tag(7)),
            "a.jsonl.pify-session-restore-7-00000000-0000-0000-0000-000000000000"
        );
    }
}
