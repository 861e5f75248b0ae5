//! Names in a session's directory.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// The session file that these tests use in a directory of their own.
pub(crate) fn session_in(directory: &Path) -> PathBuf {
    directory.join("session.jsonl")
}

/// The recovery marker beside a session file.
pub(crate) fn marker_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pify-session-recovery");
    name.into()
}

/// Every name in a directory, sorted.
pub(crate) fn names_in(directory: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Whether a name is that of a temporary beside the session file.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    let unique = name
        .to_str()
        .and_then(|name| name.strip_prefix("session.jsonl.pify-session-"))
        .and_then(|rest| rest.split_once('-'))
        .filter(|(process, _)| process.parse::<u32>().is_ok())
        .map(|(_, unique)| unique);
    unique.is_some_and(|unique| {
        unique.len() == 36 && unique.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    })
}
