//! What a requirement says, in a line that helps whoever reads a refusal.

use session_tree::{Code, Error, Stage};

use crate::requirement;

/// What to do next, as a fragment.
pub(super) fn help(error: &Error) -> &'static str {
    match (error.code(), error.requirement(), error.stage()) {
        // A look before anything was read: nothing changed, the path names something else from the beginning.
        (Code::FileChanged, "S2", Some(Stage::V3 | Stage::V4)) => "give the path of the session file itself",
        _ => error.help(),
    }
}

/// What the requirement that refuses says, as a fragment.
pub(super) fn of(error: &Error) -> Option<&'static str> {
    match (error.code(), error.requirement()) {
        (Code::RollbackFailed, _) if error.in_flight() => {
            Some("while a commit is under way its marker is there, and a load waits for it, but not for ever")
        }
        (Code::RollbackFailed, _) => Some(
            "a commit ended before it was final and left its marker: which generation holds is decided first, \
             and never by a load",
        ),
        (_, requirement) => of_requirement(requirement),
    }
}

/// What a requirement of the contract says, in a line: for those that a load refuses by, else what it is about.
pub(super) fn of_requirement(id: &str) -> Option<&'static str> {
    let in_short = IN_SHORT.iter().find(|(known, _)| *known == id).map(|(_, text)| *text);
    in_short.or_else(|| requirement::find(id).map(|requirement| requirement.title))
}

/// The contract is exact, and too long for a note.
const IN_SHORT: &[(&str, &str)] = &[
    ("F2", "every line is UTF-8, an unfinished last one too"),
    ("F3", "every line is one JSON value; a blank line is none"),
    (
        "F4",
        "only a last line without line feed may be unfinished, and only as the beginning of a JSON object",
    ),
    ("F5", "a torn tail is left out of the session, and left in the file until the next commit"),
    ("F6", "a session file begins with a complete header line"),
    ("F7", "a line holds at most 65 536 bytes, a file 4 194 304 bytes and 4 096 entries"),
    (
        "R1",
        "the first line is a header: `type` \"session\", `version` 1, `id`, `createdAt`, and nothing else",
    ),
    (
        "R2",
        "every other line is an entry: `type` \"entry\", `version` 1, `id`, `parentId`, `timestamp`, `message`, \
             and nothing else",
    ),
    (
        "R3",
        "a message is of role `user`, `assistant` or `toolResult`, and has the fields of its role and no others",
    ),
    ("R4", "ids, names and times are not blank"),
    ("R5", "each entry has an id of its own, and its parent is null or an entry before it"),
    ("L1", "a tool result answers a call above it on its branch, by that call's id and tool name"),
    ("L2", "on one branch a call id occurs once, and so does the result of a call"),
    ("S1", "the path of a session ends in the name of a file"),
    (
        "S2",
        "a session is a regular file, never reached through a symbolic link, that stays the same while it is read",
    ),
    ("S3", "the directory of a session is a directory and no symbolic link, and stays the same one"),
    ("S4", "the file stays the one that was looked at"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_short_is_in_the_contract() {
        for (id, _) in IN_SHORT {
            assert!(requirement::find(id).is_some(), "{id}");
        }
        assert_eq!(of_requirement("V3"), requirement::find("V3").map(|requirement| requirement.title));
        assert_eq!(of_requirement("Z9"), None);
    }
}
