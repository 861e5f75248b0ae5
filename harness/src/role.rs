//! The part that a name plays, told from the name alone.

use std::ffi::OsStr;

use crate::fault::Role;

const TEMPORARY: &[u8] = b".pify-session-";
const MARKER: &[u8] = b".pify-session-recovery";
const RESTORE: &[u8] = b".pify-session-restore-";
const ASIDE: &[u8] = b".pify-session-aside-";

/// The role of `name` in the directory of a session file called `session`.
pub fn of(name: &OsStr, session: &OsStr) -> Role {
    let Some(rest) = name.as_encoded_bytes().strip_prefix(session.as_encoded_bytes()) else {
        return Role::Other;
    };
    match rest {
        b"" => Role::Session,
        _ if rest == MARKER => Role::Marker,
        _ if rest.starts_with(RESTORE) => Role::Restore,
        _ if rest.starts_with(ASIDE) => Role::Aside,
        _ if rest.starts_with(TEMPORARY) => Role::Temporary,
        _ => Role::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_contract_have_their_roles() {
        let role = |name: &str| of(OsStr::new(name), OsStr::new("a.jsonl"));
        assert_eq!(role("a.jsonl"), Role::Session);
        assert_eq!(role("a.jsonl.pify-session-recovery"), Role::Marker);
        assert_eq!(role("a.jsonl.pify-session-restore-7-x"), Role::Restore);
        assert_eq!(role("a.jsonl.pify-session-aside-7-x"), Role::Aside);
        assert_eq!(role("a.jsonl.pify-session-7-x"), Role::Temporary);
        assert_eq!(role("a.jsonl.bak"), Role::Other);
        assert_eq!(role("b.jsonl"), Role::Other);
    }
}
