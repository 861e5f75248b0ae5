//! The names that a store may use beside its session file (contract section 7).

use std::ffi::{OsStr, OsString};

use crate::file_ops::Tag;

const TEMPORARY: &str = ".pify-session-";
const MARKER: &str = ".pify-session-recovery";
const RESTORE: &str = ".pify-session-restore-";
const ASIDE: &str = ".pify-session-aside-";

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

/// What a recovery keeps but takes out of the way. The unique part is written without its hyphens: only so is the name
/// no longer than [`longest`], and a session that could be created can also be recovered.
pub(crate) fn aside(file: &OsStr, tag: &Tag) -> OsString {
    let time = jiff::Timestamp::from_second(tag.time.seconds).unwrap_or_default();
    let unique = tag.unique.replace('-', "");
    beside(file, &format!("{ASIDE}{}-{unique}", time.strftime("%Y%m%dT%H%M%SZ")))
}

/// Whether `name` is of the form that [`aside`] gives for `file`.
pub(crate) fn is_aside_of(file: &OsStr, name: &OsStr) -> bool {
    let rest = name.as_encoded_bytes().strip_prefix(file.as_encoded_bytes());
    rest.is_some_and(|rest| rest.starts_with(ASIDE.as_bytes()))
}

/// Whether `name` is one that [`temporary`] or [`restore`] gives for `file`, of any process.
pub(crate) fn is_temporary_of(file: &OsStr, name: &OsStr) -> bool {
    let Some(rest) = name.as_encoded_bytes().strip_prefix(file.as_encoded_bytes()) else { return false };
    let Some(rest) =
        rest.strip_prefix(RESTORE.as_bytes()).or_else(|| rest.strip_prefix(TEMPORARY.as_bytes()))
    else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_process = (1..=PROCESS_DIGITS).contains(&digits) && rest.get(digits) == Some(&b'-');
    is_process && is_unique_part(&rest[digits + 1..])
}

fn is_unique_part(part: &[u8]) -> bool {
    part.len() == UNIQUE_BYTES && part.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

/// Whether a name is of the form that stands beside some session: a session of that name could be taken for a marker or a
/// stray, and be removed as one.
pub(crate) fn is_reserved(name: &OsStr) -> bool {
    name.as_encoded_bytes().windows(TEMPORARY.len()).any(|part| part == TEMPORARY.as_bytes())
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
        Tag { process, time: crate::file_ops::Timestamp::default(), unique: uuid::Uuid::nil().to_string() }
    }

    // Requirement: S1, X2
    #[test]
    fn no_sibling_is_longer_than_the_reserved_length() {
        let file = OsStr::new("a.jsonl");
        let longest_tag = tag(u32::MAX);
        for name in [
            marker(file),
            temporary(file, &longest_tag),
            restore(file, &longest_tag),
            aside(file, &longest_tag),
        ] {
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

    // Requirement: X3
    #[test]
    fn only_names_of_the_contract_are_temporaries() {
        let file = OsStr::new("a.jsonl");
        assert!(is_temporary_of(file, &temporary(file, &tag(7))));
        assert!(is_temporary_of(file, &restore(file, &tag(u32::MAX))));
        assert!(!is_temporary_of(OsStr::new("b.jsonl"), &temporary(file, &tag(7))));
        for name in [
            "a.jsonl",
            "a.jsonl.pify-session-recovery",
            "a.jsonl.pify-session-7-",
            "a.jsonl.pify-session-7-00000000-0000-0000-0000-00000000000",
            "a.jsonl.pify-session-7-00000000-0000-0000-0000-00000000000x",
            "a.jsonl.pify-session--00000000-0000-0000-0000-000000000000",
            "a.jsonl.pify-session-12345678901-00000000-0000-0000-0000-000000000000",
            "a.jsonl.pify-session-aside-19700101T000000Z-00000000000000000000000000000000",
        ] {
            assert!(!is_temporary_of(file, OsStr::new(name)), "{name}");
        }
    }

    // Requirement: X2
    #[test]
    fn a_name_set_aside_says_when() {
        let mut tag = tag(7);
        tag.time.seconds = 1_767_225_600;
        let (file, name) = (OsStr::new("a.jsonl"), aside(OsStr::new("a.jsonl"), &tag));
        assert_eq!(name, "a.jsonl.pify-session-aside-20260101T000000Z-00000000000000000000000000000000");
        assert!(is_aside_of(file, &name));
        for other in [marker(file), temporary(file, &tag), restore(file, &tag)] {
            assert!(!is_aside_of(file, &other), "{other:?}");
        }
    }
}
