//! Recovery from any pair of files.

use std::path::Path;

use arbitrary::{Arbitrary, Result, Unstructured};
use session_tree::recover::{Choice, inspect_with, recover_with};

use super::built;
use crate::disk::Disk;
use crate::model;
use crate::outsider::marker;

const ROOT: &str = "/sessions";
const PATH: &str = "/sessions/session.jsonl";
const PROCESS: u32 = 7;

/// What stands at a name, besides nothing.
#[derive(Debug, Clone, Arbitrary)]
enum Content {
    /// So many entries of the one session, and this after them.
    Beginning(u8, Vec<u8>),
    /// So many entries of the other session.
    Other(u8),
    /// Anything.
    Bytes(Vec<u8>),
    /// Nothing.
    Absent,
    /// The file that the session's name has; nothing there for that name itself.
    SameFile,
}

/// Whatever stands at a session's name and at its marker's: inspection changes nothing and agrees with recovery, a
/// recovery that refuses changes nothing, and afterwards every entry that either file held is still in some file;
/// recovering twice is recovering once (requirements X1, X2).
///
/// # Panics
///
/// If that does not hold.
pub fn recover(data: &[u8]) {
    let mut input = Unstructured::new(data);
    if let Ok(case) = Case::of(&mut input) {
        case.check();
    }
}

struct Case {
    disk: Disk,
    choice: Option<Choice>,
}

impl Case {
    fn of(input: &mut Unstructured<'_>) -> Result<Case> {
        let choice =
            *input.choose(&[None, Some(Choice::Current), Some(Choice::Marker), Some(Choice::SetAside)])?;
        let (one, other) = (built::session(input)?.encode(), built::session(input)?.encode());
        let bytes = |content: &Content| match content {
            Content::Beginning(entries, rest) => Some([first_lines(&one, *entries), rest].concat()),
            Content::Other(entries) => Some(first_lines(&other, *entries).to_vec()),
            Content::Bytes(bytes) => Some(bytes.clone()),
            Content::Absent | Content::SameFile => None,
        };
        let (at_path, at_marker) = (Content::arbitrary(input)?, Content::arbitrary(input)?);
        let disk = Disk::default();
        let put = |path: &Path, content: &Content| match bytes(content) {
            Some(bytes) => disk.write_file(path, bytes),
            None => Ok(()),
        };
        disk.mkdir(ROOT)
            .and_then(|()| put(PATH.as_ref(), &at_path))
            .and_then(|()| put(&marker(PATH.as_ref()), &at_marker))
            .map_err(|_| arbitrary::Error::IncorrectFormat)?;
        if matches!(at_marker, Content::SameFile) {
            // Without a session file there is nothing to link.
            let _ = disk.hard_link(PATH, marker(PATH.as_ref()));
        }
        disk.sync_all();
        Ok(Case { disk, choice })
    }

    fn check(&self) {
        let (before, held) = (self.disk.time(), self.entries());
        let inspected = inspect_with(self.disk.process(PROCESS), PATH).expect("nothing fails");
        assert_eq!(self.disk.time(), before, "inspection changes the disk");
        match recover_with(self.disk.process(PROCESS), PATH, self.choice) {
            Ok(recovery) => {
                assert_eq!(recovery.state, inspected.state, "inspection and recovery disagree");
                self.check_again();
            }
            Err(_) => assert_eq!(self.disk.time(), before, "a recovery that refuses changes the disk"),
        }
        let kept = self.entries();
        let lost: Vec<_> = held.iter().filter(|entry| !kept.contains(entry)).collect();
        assert!(lost.is_empty(), "entries that were there are in no file any more: {lost:?}");
    }

    fn check_again(&self) {
        let before = self.disk.time();
        if let Ok(again) = recover_with(self.disk.process(PROCESS), PATH, None) {
            assert!(again.did.is_empty(), "recovering again does something: {again:?}");
        }
        assert_eq!(self.disk.time(), before, "recovering again changes the disk");
    }

    /// The entries of every file that loads, by the independent model.
    fn entries(&self) -> Vec<model::Entry> {
        let names = self.disk.list(ROOT).unwrap_or_default();
        let files = names.iter().filter_map(|name| self.disk.read_file(Path::new(ROOT).join(name)).ok());
        files
            .filter_map(|file| model::load(&file).ok())
            .flat_map(|session| session.entries().to_vec())
            .collect()
    }
}

/// The header and so many entries.
fn first_lines(file: &[u8], entries: u8) -> &[u8] {
    let mut ends = file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    &file[..ends.nth(usize::from(entries)).unwrap_or(file.len())]
}
