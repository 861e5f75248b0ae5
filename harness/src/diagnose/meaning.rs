//! What a requirement says, in a line that helps whoever reads a refusal.

use std::fs;
use std::path::Path;

use session_tree::recover::{Choice, State, plan};
use session_tree::{Code, Errno, Error, Stage};

use super::harmless;
use crate::requirement;

/// What to do next about a refusal of `path`, as a fragment.
pub(crate) fn help(error: &Error, path: &Path) -> String {
    match (error.code(), error.stage(), error.errno()) {
        // A look before anything was read: nothing changed, the path names something else from the beginning.
        (Code::FileChanged, Some(Stage::V3 | Stage::V4), _) => instead_of(path),
        (Code::RootChanged, ..) => instead_of_parent(path),
        (Code::FileTooLarge, Some(Stage::V3 | Stage::V4), _) => {
            "no store lets a session grow so large: see whether several files were joined, or this is none".to_owned()
        }
        (Code::Io, Some(Stage::V1 | Stage::X1 | Stage::X2 | Stage::X3), Some(Errno::ENOENT)) => {
            "check the path: its directory is not there".to_owned()
        }
        (Code::Io, Some(Stage::V3), Some(Errno::ENOENT)) => {
            "check the path: nothing has that name, and no recovery marker stands beside it".to_owned()
        }
        (Code::Io, _, Some(Errno::EACCES)) => {
            "ask whoever owns the file or a directory above it for the right to read it, as `ls -l` and `ls -ld` show"
                .to_owned()
        }
        (Code::Io, Some(Stage::X2), Some(Errno::ENAMETOOLONG)) => {
            "nothing was done: what is set aside gets a name that is 69 bytes longer, which does not fit here; give session \
             and marker shorter names first, `mv SESSION SHORT` and `mv SESSION.pify-session-recovery \
             SHORT.pify-session-recovery`, then recover SHORT"
                .to_owned()
        }
        _ => error.help().to_owned(),
    }
}

/// Which command is next where a recovery marker made a load refuse and an inspection says `state`.
pub(super) fn way_out(state: State, path: &Path) -> String {
    let file = harmless::shell_word(path);
    match state {
        State::Clean | State::Absent => "the marker is gone by now: load again".to_owned(),
        State::CommitInFlight => "wait for the other process's commit, then try again".to_owned(),
        State::Foreign => {
            format!("see what that is and move it away yourself: `session-harness inspect {file}`")
        }
        _ if plan(state, None).is_some() => format!(
            "nothing has to be guessed: `session-harness recover {file}` resolves it, and with `--dry-run` only says how"
        ),
        _ if Choice::ALL.iter().any(|choice| plan(state, Some(*choice)).is_some()) => {
            format!(
                "choose what goes on: `session-harness inspect {file}` shows what each file holds, and the commands"
            )
        }
        _ => "restore the session from a copy; nothing here loads, and no recovery removes any of it"
            .to_owned(),
    }
}

/// The path that was probably meant, where `path` names no regular file.
fn instead_of(path: &Path) -> String {
    let kind = fs::symlink_metadata(path).ok().map(|metadata| metadata.file_type());
    match (kind, fs::canonicalize(path)) {
        (Some(kind), Ok(target)) if kind.is_symlink() => {
            format!("a link is not followed: give the path that it leads to, {}", harmless::path(&target))
        }
        (Some(kind), _) if kind.is_symlink() => {
            "a link is not followed, and this one leads nowhere: give the path of the session file itself"
                .to_owned()
        }
        (Some(kind), _) if kind.is_dir() => "give the path of a session file in that directory".to_owned(),
        _ => "give the path of the session file itself".to_owned(),
    }
}

/// The same where its directory is none, or was reached through a link.
fn instead_of_parent(path: &Path) -> String {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let kind = fs::symlink_metadata(parent).ok().map(|metadata| metadata.file_type());
    match (kind, fs::canonicalize(parent), path.file_name()) {
        (Some(kind), Ok(target), Some(name)) if kind.is_symlink() => format!(
            "the directory is a symbolic link, which could be turned elsewhere at any time: give the path without \
             it, {}",
            harmless::path(&target.join(name))
        ),
        (Some(kind), ..) if kind.is_symlink() => {
            "the directory is a symbolic link that leads nowhere: check the path".to_owned()
        }
        (Some(kind), ..) if !kind.is_dir() => {
            "check the path: what stands before the last `/` is no directory".to_owned()
        }
        _ => "the directory was moved or replaced meanwhile: give its present path".to_owned(),
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
