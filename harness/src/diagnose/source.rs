//! The bytes of a file that was refused, read once more to show where and to look for the cause.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::pread;
use session_tree::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_RECORDS};

/// A file of at most the size that a session may have.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) bytes: Vec<u8>,
    index: OnceCell<Index>,
}

/// Where ids stand in a file that may hold anything: found by the spelling of the canonical form alone.
#[derive(Debug, Default)]
struct Index {
    /// The start of each line.
    lines: Vec<usize>,
    /// The first line, from 1, whose first id this is.
    records: HashMap<Vec<u8>, usize>,
    /// The first line, from 1, with a tool call of this id.
    calls: HashMap<Vec<u8>, usize>,
}

impl Source {
    /// The regular file at `path`, if it is one that can be read. Follows no symbolic link and waits for nobody, as a
    /// load does.
    pub(super) fn read(path: &Path) -> Option<Source> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::open(path, flags, Mode::empty()).ok()?;
        let stat = fs::fstat(&file).ok()?;
        let size = usize::try_from(stat.st_size).ok().filter(|size| *size <= MAX_SESSION_FILE_BYTES)?;
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_regular.then(|| read_all(&file, size))?.map(Source::of)
    }

    pub(super) fn of(bytes: Vec<u8>) -> Source {
        Source { bytes, index: OnceCell::new() }
    }

    /// The line of this number, from 1, without its line feed.
    pub(super) fn line(&self, number: usize) -> Option<&[u8]> {
        let start = *self.index().lines.get(number.checked_sub(1)?)?;
        self.bytes[start..].split(|byte| *byte == b'\n').next()
    }

    /// The first line whose record has the id that is spelled so.
    pub(super) fn line_of_record(&self, id: &[u8]) -> Option<usize> {
        self.index().records.get(id).copied()
    }

    /// The first line with a tool call of the id that is spelled so.
    pub(super) fn line_of_call(&self, id: &[u8]) -> Option<usize> {
        self.index().calls.get(id).copied()
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(&self.bytes))
    }
}

const ID: &[u8] = b"\"id\":\"";
const CALL: &[u8] = b"\"toolCall\",";

impl Index {
    fn of(bytes: &[u8]) -> Index {
        let mut index = Index::default();
        let mut start = 0;
        // The header, the entries, and one line that is too many; a file that is no session may have millions.
        let most = MAX_SESSION_RECORDS + 2;
        for (before, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate().take(most) {
            index.lines.push(start);
            start += line.len();
            index.add(line, before + 1);
        }
        index
    }

    fn add(&mut self, line: &[u8], number: usize) {
        let mut at = 0;
        let mut is_first = true;
        while let Some(found) = line[at..].windows(ID.len()).position(|part| part == ID) {
            let before = &line[..at + found];
            at += found + ID.len();
            let id = spelled(&line[at..]).to_vec();
            if std::mem::take(&mut is_first) {
                self.records.entry(id).or_insert(number);
            } else if before.ends_with(CALL) {
                self.calls.entry(id).or_insert(number);
            }
        }
    }
}

/// The beginning of `text` up to the quote that ends a string.
pub(super) fn spelled(text: &[u8]) -> &[u8] {
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    &text[..end.unwrap_or(text.len())]
}

/// At most `size` bytes; fewer where the file is shorter by now, none where reading fails.
fn read_all(file: &OwnedFd, size: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match pread(file, &mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(taken) => filled += taken,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(filled);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_ids_are_found_by_number_and_spelling() {
        let file = concat!(
            "{\"type\":\"session\",\"id\":\"s\"}\n",
            "\n",
            "{\"id\":\"a\\\"b\",\"message\":{\"id\":\"m\",\"content\":[{\"type\":\"toolCall\",\"id\":\"c\"}]}}\r\n",
            "{\"id\":\"s\""
        );
        let source = Source::of(file.as_bytes().to_vec());
        assert_eq!(source.line(2), Some(&b""[..]));
        assert_eq!(source.line(4), Some(&b"{\"id\":\"s\""[..]));
        assert_eq!((source.line(0), source.line(5)), (None, None));
        assert_eq!(source.line_of_record(b"a\\\"b"), Some(3));
        assert_eq!((source.line_of_record(b"s"), source.line_of_record(b"m")), (Some(1), None));
        assert_eq!((source.line_of_call(b"c"), source.line_of_call(b"m")), (Some(3), None));
        assert_eq!(Source::of(Vec::new()).line(1), None);
    }

    #[test]
    fn what_is_no_regular_file_or_too_large_is_not_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        assert!(Source::read(&path).is_none() && Source::read(directory.path()).is_none());
        assert!(Source::read(Path::new("/dev/zero")).is_none());
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(MAX_SESSION_FILE_BYTES as u64 + 1).expect("a size");
        assert!(Source::read(&path).is_none());
        std::fs::write(&path, "x").expect("a file");
        assert_eq!(Source::read(&path).map(|source| source.bytes), Some(b"x".to_vec()));
    }
}
