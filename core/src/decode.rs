//! From the bytes of a file to a checked session (requirement F7).
//!
//! One pass over the lines. The syntax of every line is judged before the meaning of any, so that each input has one
//! code: while lines are read, the first entry that is wrong is only kept as pending, and a later line that is no
//! JSON overrides it. Nothing of an entry is usable before all of its own checks are done.

mod problems;
pub(crate) mod shape;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memrchr};

use crate::decode::shape::{Line, ReadEntry};
use crate::encode::{Canonical, Segments, entry_line, header_line};
use crate::error::{Code, Error, Position, Result};
use crate::json_prefix::{Nesting, Verdict, Why, scan};
use crate::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_LINE_BYTES, MAX_SESSION_RECORDS};
use crate::linkage::{Breach, Violation, first_violation};
use crate::record::{Entry, Header};
use crate::tape::Tape;
use crate::text::{Owner, Text};

pub use problems::problems;

/// A session as it was read from the bytes of a file.
#[derive(Debug)]
pub struct Decoded {
    header: Header,
    entries: Vec<Entry>,
    segments: Segments,
    torn_tail: usize,
    canonical: bool,
}

impl Decoded {
    /// The session's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The entries in stored order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Bytes of an incomplete last line, which were ignored (requirement F4). They stay in the file until the next
    /// commit (requirement F5).
    pub fn torn_tail(&self) -> usize {
        self.torn_tail
    }

    /// Whether the bytes are the canonical form already, so that writing the session again changes none (requirement F8).
    pub fn canonical(&self) -> bool {
        self.canonical
    }

    /// Header, entries, canonical bytes, and the bytes of a torn tail.
    pub(crate) fn into_parts(self) -> (Header, Vec<Entry>, Segments, usize) {
        (self.header, self.entries, self.segments, self.torn_tail)
    }
}

/// Reads and checks a whole session file.
///
/// Linear in the bytes, without recursion. The strings of the session are slices of `bytes`, which is kept.
///
/// # Errors
///
/// The first failure in the order of requirement F7, with its place: file size, then length, encoding and syntax of
/// all lines, then the header, then entry by entry. The error has no path.
pub fn decode(bytes: Vec<u8>) -> Result<Decoded> {
    check_file_size(&bytes)?;
    match String::from_utf8(bytes) {
        Ok(text) => {
            let mut pass = Pass::new(Owner::plain(text));
            pass.read_lines()?;
            pass.finish()
        }
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            Err(refuse_encoding(error.into_bytes(), offset))
        }
    }
}

/// The pass over one file.
struct Pass {
    file: Arc<Owner>,
    tape: Tape,
    header: Option<Header>,
    entries: Vec<Entry>,
    /// The index of each entry's parent.
    parents: Vec<Option<u32>>,
    ids: HashMap<Text, u32>,
    canonical: Canonical,
    torn_tail: usize,
    /// The first failure of the kind that later lines may override.
    pending: Option<Error>,
}

/// By which the number of entries is guessed, so that a long file's tables do not grow step by step.
const TYPICAL_LINE_BYTES: usize = 512;

/// Where a line lies in the file, and what of it counts.
#[derive(Clone, Copy)]
struct Span {
    number: usize,
    start: usize,
    /// The end of what is judged: without line feed and without one carriage return before it (requirement F1).
    end: usize,
    /// The start of the next line.
    next: usize,
    terminated: bool,
}

impl Pass {
    fn new(file: Arc<Owner>) -> Pass {
        let entries = (file.as_str().len() / TYPICAL_LINE_BYTES).min(MAX_SESSION_RECORDS);
        Pass {
            canonical: Canonical::of(&file),
            file,
            tape: Tape::default(),
            header: None,
            entries: Vec::with_capacity(entries),
            parents: Vec::with_capacity(entries),
            ids: HashMap::with_capacity(entries),
            torn_tail: 0,
            pending: None,
        }
    }

    /// Fails with a failure of syntax alone; one of meaning becomes pending.
    fn read_lines(&mut self) -> Result<()> {
        let file = Arc::clone(&self.file);
        for span in spans(file.as_str().as_bytes()) {
            span.check_length()?;
            let text = &file.as_str().as_bytes()[span.start..span.end];
            let scanned = if self.pending.is_none() {
                self.tape.read(text, span.start)
            } else {
                scan(text, &mut Nesting::default(), &mut Verdict)
            };
            match scanned {
                Ok(()) if self.pending.is_none() => self.pending = self.read_record(span).err(),
                Ok(()) => {}
                Err(stop) if !span.terminated && stop.is_torn_object(text) => {
                    self.torn_tail = span.next - span.start;
                }
                Err(stop) => return Err(span.refuse_syntax(stop.offset, stop.why)),
            }
        }
        Ok(())
    }

    fn read_record(&mut self, span: Span) -> Result<()> {
        if self.header.is_none() {
            return self.read_header(span);
        }
        if self.entries.len() == MAX_SESSION_RECORDS {
            let message = format!("expected at most {MAX_SESSION_RECORDS} entries, found one more");
            return Err(Error::new(Code::RecordLimit, "F7", message).with_position(span.position(span.start)));
        }
        self.read_entry(span)
    }

    fn read_header(&mut self, span: Span) -> Result<()> {
        let line = Line::new(&self.file, &self.tape, span.number, span.start);
        let header = line.header()?;
        if line.canonical() && span.is_bare() {
            self.canonical.keep(span.start..span.next);
        } else {
            self.canonical.rewrite(&header_line(&header));
        }
        self.header = Some(header);
        Ok(())
    }

    fn read_entry(&mut self, span: Span) -> Result<()> {
        let line = Line::new(&self.file, &self.tape, span.number, span.start);
        let ReadEntry { entry, id_at, parent_at } = line.entry()?;
        let index = self.entries.len() as u32;
        // The parent is looked up before the entry's own id is known: an entry is not its own parent. That it is
        // refused after a duplicate id has its order from requirement F7.
        let parent = entry.parent_id().map(|parent| self.ids.get(parent).copied());
        match self.ids.entry(entry.id_text().clone()) {
            Slot::Occupied(_) => {
                let message = "expected an entry id that is new in this file, found one that occurs before";
                return Err(
                    Error::new(Code::DuplicateEntryId, "R5", message).with_position(span.position(id_at))
                );
            }
            Slot::Vacant(slot) => slot.insert(index),
        };
        if parent == Some(None) {
            let message =
                "expected null or the id of an earlier entry, found an id that no earlier entry has";
            return Err(
                Error::new(Code::ParentNotFound, "R5", message).with_position(span.position(parent_at))
            );
        }
        if line.canonical() && span.is_bare() {
            self.canonical.keep(span.start..span.next);
        } else {
            self.canonical.rewrite(&entry_line(&entry));
        }
        self.parents.push(parent.flatten());
        self.entries.push(entry);
        Ok(())
    }

    /// The session, or the first failure of meaning: a broken linkage among the entries before a pending failure has
    /// the smaller index.
    fn finish(mut self) -> Result<Decoded> {
        if let Some(violation) = first_violation(&self.entries, &self.parents) {
            return Err(self.refuse_linkage(violation));
        }
        if let Some(error) = self.pending {
            return Err(error);
        }
        let Some(header) = self.header else {
            let message = "expected a header, found a file without any complete record";
            let start = Position { line: 1, column: 1, offset: 0 };
            return Err(Error::new(Code::InvalidHeader, "F6", message).with_position(start));
        };
        Ok(Decoded {
            header,
            entries: self.entries,
            canonical: self.canonical.is_whole_file(),
            segments: self.canonical.into_segments(),
            torn_tail: self.torn_tail,
        })
    }

    /// Reads the line again, since entries do not remember where their values stood.
    fn refuse_linkage(&mut self, violation: Violation) -> Error {
        let file = Arc::clone(&self.file);
        // The header is the first line, and there are no others between it and the entries.
        match spans(file.as_str().as_bytes()).nth(violation.entry + 1) {
            Some(span) => self.refuse_linkage_in(span, violation.breach),
            None => violation.breach.into_error(),
        }
    }

    fn refuse_linkage_in(&mut self, span: Span, breach: Breach) -> Error {
        let culprit = breach.culprit;
        let error = breach.into_error();
        let file = Arc::clone(&self.file);
        let text = &file.as_str().as_bytes()[span.start..span.end];
        if self.tape.read(text, span.start).is_err() {
            return error;
        }
        let line = Line::new(&file, &self.tape, span.number, span.start);
        error.with_position(span.position(line.culprit(culprit)))
    }
}

impl Span {
    fn check_length(self) -> Result<()> {
        let length = self.end - self.start;
        if length <= MAX_SESSION_LINE_BYTES {
            return Ok(());
        }
        let message = format!("expected a line of at most {MAX_SESSION_LINE_BYTES} bytes, found {length}");
        let beyond = self.position(self.start + MAX_SESSION_LINE_BYTES);
        Err(Error::new(Code::LineTooLarge, "F7", message).with_position(beyond))
    }

    fn refuse_syntax(self, offset: usize, why: Why) -> Error {
        let requirement = if self.terminated { "F3" } else { "F4" };
        let message = match why {
            Why::BadByte => "expected one JSON value, found a byte that none has here",
            Why::OutOfInput { .. } if self.start == self.end => {
                "expected one JSON value, found an empty line"
            }
            Why::OutOfInput { .. } if self.terminated => {
                "expected one JSON value, found the end of the line within it"
            }
            Why::OutOfInput { .. } => {
                "expected a JSON value or the beginning of an object, found another beginning"
            }
        };
        Error::new(Code::InvalidJson, requirement, message).with_position(self.position(self.start + offset))
    }

    fn refuse_encoding(self, offset: usize) -> Error {
        not_utf8().with_position(self.position(offset))
    }

    /// Whether the line ends in a line feed without a carriage return.
    fn is_bare(self) -> bool {
        self.terminated && self.end + 1 == self.next
    }

    fn position(self, offset: usize) -> Position {
        Position { line: self.number, column: offset - self.start + 1, offset }
    }
}

/// The lines of a file. After a last line feed there is none.
fn spans(file: &[u8]) -> impl Iterator<Item = Span> {
    let (mut number, mut next) = (0, 0);
    std::iter::from_fn(move || {
        let rest = file.get(next..).filter(|rest| !rest.is_empty())?;
        let start = next;
        let feed = memchr(b'\n', rest).map(|feed| start + feed);
        let stop = feed.unwrap_or(file.len());
        number += 1;
        next = stop + usize::from(feed.is_some());
        let end = if file[start..stop].ends_with(b"\r") { stop - 1 } else { stop };
        Some(Span { number, start, end, next, terminated: feed.is_some() })
    })
}

fn check_file_size(bytes: &[u8]) -> Result<()> {
    if bytes.len() <= MAX_SESSION_FILE_BYTES {
        return Ok(());
    }
    let message = format!("expected a file of at most {MAX_SESSION_FILE_BYTES} bytes, found {}", bytes.len());
    let within = &bytes[..MAX_SESSION_FILE_BYTES];
    let line_start = memrchr(b'\n', within).map_or(0, |feed| feed + 1);
    let beyond = Position {
        line: memchr_iter(b'\n', within).count() + 1,
        column: MAX_SESSION_FILE_BYTES - line_start + 1,
        offset: MAX_SESSION_FILE_BYTES,
    };
    Err(Error::new(Code::FileTooLarge, "F7", message).with_position(beyond))
}

/// The failure of a file whose byte at `offset` is the first that is not UTF-8 (requirement F2): one of an earlier line's
/// syntax or of the line's own length comes first.
fn refuse_encoding(mut bytes: Vec<u8>, offset: usize) -> Error {
    let line_start = memrchr(b'\n', &bytes[..offset]).map_or(0, |feed| feed + 1);
    let number = memchr_iter(b'\n', &bytes[..line_start]).count() + 1;
    let span = spans(&bytes[line_start..]).next().map(|span| Span {
        number,
        start: line_start,
        end: line_start + span.end,
        next: line_start + span.next,
        terminated: span.terminated,
    });
    bytes.truncate(line_start);
    let earlier = String::from_utf8_lossy(&bytes).into_owned();
    if let Err(error) = Pass::new(Owner::plain(earlier)).read_lines() {
        return error;
    }
    span.map_or_else(not_utf8, |span| {
        span.check_length().err().unwrap_or_else(|| span.refuse_encoding(offset))
    })
}

fn not_utf8() -> Error {
    Error::new(Code::InvalidUtf8, "F2", "expected UTF-8, found a byte that continues no character")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;

    fn entry(id: usize, content: &str) -> String {
        let message = format!(r#"{{"id":"m","role":"user","content":"{content}"}}"#);
        format!(
            r#"{{"type":"entry","version":1,"id":"{id}","parentId":null,"timestamp":"t","message":{message}}}"#
        )
    }

    // Requirement: F5, F8
    #[test]
    fn the_kept_bytes_are_the_canonical_form_of_what_was_read() {
        let canonical = format!("{HEADER}\n{}\n{}\n", entry(1, "é\\n"), entry(2, ""));
        let files = [
            canonical.clone(),
            canonical.clone() + "{\"torn",
            canonical.trim_end().to_owned(),
            canonical.replace('\n', "\r\n"),
            canonical.replacen("\"é", " \"\\u00e9", 1),
            canonical.replacen('{', "{ ", 1),
        ];
        for file in files {
            let (header, entries, segments, torn_tail) =
                decode(file.clone().into_bytes()).unwrap().into_parts();
            let kept: Vec<u8> = segments.iter().flatten().copied().collect();
            assert_eq!(String::from_utf8(kept).unwrap(), canonical, "{file}");
            assert_eq!(segments.len(), canonical.len());
            let encoded: String = entries.iter().map(entry_line).collect();
            assert_eq!(header_line(&header) + &encoded, canonical);
            assert_eq!(torn_tail, if file.ends_with("torn") { 6 } else { 0 });
        }
    }

    // Requirement: F8
    #[test]
    fn a_canonical_file_is_kept_as_one_slice_of_what_was_read() {
        let lines: Vec<String> = (0..1_000).map(|id| entry(id, "x") + "\n").collect();
        let file = format!("{HEADER}\n{}", lines.concat()).into_bytes();
        let start = file.as_ptr();
        let (_, entries, segments, _) = decode(file).unwrap().into_parts();
        let slices: Vec<*const u8> = segments.iter().map(<[u8]>::as_ptr).collect();
        assert_eq!(slices, [start]);
        let id = entries[500].id_text().as_ptr() as usize;
        assert!(
            (start as usize..start as usize + segments.len()).contains(&id),
            "ids are slices of the file"
        );
    }
}
