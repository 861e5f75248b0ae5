//! What probably befell a file: what editors, shells, sync tools, other formats and failing disks leave is known by its
//! looks. A guess for people, beside the verdict and never part of it.

use std::path::Path;

use serde::de::IgnoredAny;
use session_tree::{Code, Error, Position};

use super::harmless;
use super::source::{Source, spelled};

/// A cause, and what to do then, as fragments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Likely {
    pub(super) cause: String,
    pub(super) help: String,
    /// Whether what else is wrong with the file follows from it.
    pub(super) of_all: bool,
}

/// What probably made `source`, the file at `path`, wrong in the way that `error` says.
pub(super) fn cause(error: &Error, source: &Source, path: &Path) -> Option<Likely> {
    let look = Look::new(error.position()?, source, path)?;
    match error.code() {
        Code::InvalidHeader => of_all(look.of_the_file()).or_else(|| look.of_a_header()),
        Code::InvalidUtf8 => of_all(look.of_the_file()).or_else(|| look.of_encoding()),
        Code::InvalidJson => of_all(look.of_the_file()).or_else(|| look.of_syntax()),
        Code::InvalidRecord => look.of_a_record(),
        Code::UnsupportedVersion => look.of_a_version(),
        Code::DuplicateEntryId => look.of_a_second_id(),
        Code::ParentNotFound => look.of_a_parent(),
        Code::InvalidToolLinkage => look.of_a_call(error.requirement()),
        _ => None,
    }
}

/// A place in a file.
struct Look<'a> {
    source: &'a Source,
    /// The path as a shell takes it.
    file: String,
    number: usize,
    /// The line without its line feed and a carriage return before it.
    line: &'a [u8],
    /// The place within the line; at most its length.
    at: usize,
    offset: usize,
}

impl<'a> Look<'a> {
    fn new(position: Position, source: &'a Source, path: &Path) -> Option<Look<'a>> {
        let Position { line: number, column, offset } = position;
        let at = column.checked_sub(1)?;
        let rest = source.bytes.get(offset.checked_sub(at)?..)?;
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        (at <= line.len()).then(|| Look {
            source,
            file: harmless::shell_word(path),
            number,
            line,
            at,
            offset,
        })
    }

    fn byte(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    /// From the place to the end of the line.
    fn rest(&self) -> &'a [u8] {
        &self.line[self.at..]
    }

    fn before(&self) -> &'a [u8] {
        &self.line[..self.at]
    }

    /// A command that writes another file, for a person to look at.
    fn convert(&self, command: &str) -> String {
        format!("`{} > NEW`, then verify NEW", command.replace("FILE", &self.file))
    }

    /// Causes that concern a file as a whole, known by its beginning.
    fn of_the_file(&self) -> Option<Likely> {
        if self.number != 1 {
            return None;
        }
        let bytes = self.source.bytes.as_slice();
        let begins = |with: &[u8]| bytes.starts_with(with);
        if let Some((encoding, from)) = utf16(bytes) {
            return likely(
                format!("the file is {encoding}, as some Windows tools write text"),
                self.convert(&format!("iconv -f {from} -t UTF-8 FILE")),
            );
        }
        if begins(b"\xef\xbb\xbf") {
            return likely(
                "a byte order mark stands before the header: an editor put it there",
                self.convert("tail -c +4 FILE"),
            );
        }
        if let Some((_, format, command)) = PACKED.iter().find(|(magic, ..)| begins(magic)) {
            return likely(format!("the file is compressed by {format}"), self.convert(command));
        }
        if begins(b"SQLite format 3\0") {
            return likely("this is an SQLite database", "give the path of the session file itself");
        }
        if begins(b"version https://git-lfs") {
            return likely(
                "this is what Git LFS leaves in place of a file that was not fetched",
                "run `git lfs pull`, then verify again",
            );
        }
        let text = bytes.trim_ascii_start();
        if text
            .get(..5)
            .is_some_and(|start| [&b"<!doc"[..], b"<html"].contains(&&*start.to_ascii_lowercase()))
        {
            return likely(
                "this is an HTML page, as a download or sync that failed leaves it",
                "fetch the session file again",
            );
        }
        match self.line.trim_ascii() {
            b"{" => likely(
                "the records were laid out over several lines, as formatters of JSON do",
                self.convert("jq -c . FILE"),
            ),
            [b'[', rest @ ..] if rest.is_empty() || rest.starts_with(b"{") => likely(
                "the records were put into a JSON array, and are one a line in a session",
                self.convert("jq -c '.[]' FILE"),
            ),
            _ => None,
        }
    }

    fn of_syntax(&self) -> Option<Likely> {
        self.of_text_around_records()
            .or_else(|| self.of_bytes_never_written())
            .or_else(|| self.of_two_records())
            .or_else(|| self.of_an_early_end())
            .or_else(|| self.of_another_notation())
            .or_else(|| self.of_a_flipped_bit())
    }

    /// What tools put between, before and behind records.
    fn of_text_around_records(&self) -> Option<Likely> {
        if let Some(mark) = MERGE_MARKS.iter().find(|mark| self.line.starts_with(mark)) {
            return likely(
                format!("a merge left its conflict here: `{}` is one of its marks", harmless::text(mark)),
                "take out the lines of marks, and lines that stand there twice; entries of both sides may stay, as branches",
            );
        }
        if self.line.trim_ascii_start().to_ascii_lowercase().starts_with(b"insert into") {
            return likely(
                "this is a dump of a database, as statements",
                "export the column's text itself, one record a line",
            );
        }
        if self.line.starts_with(b"\"{\"\"") {
            return likely(
                "the records stand as fields of a CSV file: each in quotes, with its own quotes doubled",
                self.convert("sed 's/^\"//; s/\"$//; s/\"\"/\"/g' FILE"),
            );
        }
        if self.byte() == Some(0x1b) || self.before().contains(&0x1b) {
            return likely(
                "the colours of a terminal were written into the file",
                self.convert(r"sed 's/\x1b\[[0-9;]*m//g' FILE"),
            );
        }
        let record = self.line.iter().position(|byte| *byte == b'{')?;
        if record > 0 && self.at <= record && is_json(&self.line[record..]) {
            let front = harmless::shortened(&self.line[..record], 24);
            return likely(
                format!("`{front}` was put in front of the record, as logs, `cat -n`, `grep` and diffs do"),
                self.convert("sed 's/^[^{]*//' FILE"),
            );
        }
        None
    }

    fn of_bytes_never_written(&self) -> Option<Likely> {
        let zeros = self.source.bytes[self.offset..].iter().take_while(|byte| **byte == 0).count();
        if zeros > 0 {
            let aligned =
                if self.offset.is_multiple_of(512) { ", on the border of a disk's sector" } else { "" };
            let whose = if self.offset + zeros == self.source.bytes.len() {
                "to the end of the file: its size was written and its end was not, as a power cut leaves it"
            } else {
                "in the middle: a block that was never written or could not be read"
            };
            return likely(
                format!("{} follow here{aligned}, {whose}", counted(zeros, "byte of zero", "bytes of zero")),
                "restore the file from a copy, and see after the disk or the tool that copied it",
            );
        }
        if self.rest().trim_ascii() == b"\x1a" && self.is_last_line() {
            return likely(
                "a Ctrl-Z ends the file, as old Windows tools do",
                self.convert(r"tr -d '\032' < FILE"),
            );
        }
        None
    }

    /// Two records in one line.
    fn of_two_records(&self) -> Option<Likely> {
        let whole_before = is_json(self.before());
        let next = self.rest();
        if whole_before && self.before().ends_with(b"\r") {
            return of_all(likely(
                "lines end in a carriage return alone",
                self.convert(r"tr '\r' '\n' < FILE"),
            ));
        }
        if whole_before && next.starts_with(b"{") {
            return likely(
                "the line feed between two records is gone: another one begins here",
                format!("keep a copy, then put a line feed before byte {} of the file", self.offset),
            );
        }
        if whole_before && next.trim_ascii() == b"," {
            return likely(
                "a comma stands behind the record, as in a JSON array",
                self.convert("sed 's/,$//' FILE"),
            );
        }
        let from = self.at.saturating_sub(RECORD.len());
        let until = self.line.len().min(self.at + RECORD.len());
        let again = self.line[from..until].windows(RECORD.len()).rposition(|part| part == RECORD)? + from;
        if again == 0 {
            return None;
        }
        let rest =
            if is_json(&self.line[again..]) { "that one is whole" } else { "that one is not whole either" };
        likely(
            format!(
                "a record was cut off and another one written behind it, at column {}: {rest}",
                again + 1
            ),
            "restore the file from a copy; what was cut off is lost to this one",
        )
    }

    /// A line that ends within its record.
    fn of_an_early_end(&self) -> Option<Likely> {
        if self.at < self.line.len() {
            return None;
        }
        if self.line.trim_ascii().is_empty() {
            return likely(
                "an empty line, as editors and scripts leave them",
                self.convert(r"sed '/^[[:space:]]*$/d' FILE"),
            );
        }
        if self.is_last_line() {
            let before = self.number - 1;
            if before == 0 || !self.source.bytes.ends_with(b"\n") {
                return None;
            }
            return likely(
                "the record was cut off, and somebody wrote behind it: a torn tail has no line feed",
                self.convert(&format!("head -n {before} FILE")),
            );
        }
        let next = self.source.line(self.number + 1)?;
        if next.starts_with(RECORD) {
            return likely(
                "the record was cut off, and another writer went on in the next line",
                "restore the file from a copy; what was cut off is lost to this one",
            );
        }
        let broken = likely(
            format!(
                "the record goes on in the next line: it was broken at {} bytes, by an editor or `fold`",
                self.at
            ),
            "undo the line breaks, or restore the file from a copy",
        );
        // What breaks the short line of the header breaks the others too.
        if self.number == 1 { of_all(broken) } else { broken }
    }

    /// What looks like JSON and is not.
    fn of_another_notation(&self) -> Option<Likely> {
        let (before, rest) = (self.before(), self.rest());
        let begins = |with: &str| rest.starts_with(with.as_bytes());
        if before.ends_with(br#"\\""#) {
            return likely(
                "backslashes are doubled, as a database's COPY writes them",
                self.convert(r"sed 's/\\\\/\\/g' FILE"),
            );
        }
        if ["“", "”", "„", "‘", "’", "«", "»"].iter().any(|quote| begins(quote)) {
            return likely(
                "typographic quotes stand in place of plain ones: an editor changed them",
                "restore the file from a copy; the editor may have changed the contents in the same way",
            );
        }
        if begins("'") {
            let who =
                if self.line.starts_with(b"{'") { "Python's `str` writes" } else { "`sed` and shells leave" };
            return likely(
                format!("single quotes stand in place of double ones, as {who} them"),
                "write the records again as JSON, or restore the file from a copy",
            );
        }
        if ["NaN", "Infinity", "-Infinity", "None", "True", "False", "undefined"]
            .iter()
            .any(|word| begins(word))
        {
            return likely(
                "a word of another language stands in place of a JSON value",
                "write the records again as JSON, or restore the file from a copy",
            );
        }
        match self.byte()? {
            byte @ 1..0x20 if ends_within_string(before) => likely(
                format!(
                    "a raw control byte (0x{byte:02x}) stands within a text: in JSON it is written as an escape"
                ),
                format!("restore the file from a copy, or write that byte as `\\u{byte:04x}`"),
            ),
            _ => None,
        }
    }

    /// Whether one bit makes the difference, here or in the byte before. Of a short line that says nothing.
    fn of_a_flipped_bit(&self) -> Option<Likely> {
        let mut line = self.line.to_vec();
        if line.len() < RECORD_OF_ENTRY.len() {
            return None;
        }
        for place in [Some(self.at), self.at.checked_sub(1)].into_iter().flatten() {
            let Some(found) = line.get(place).copied() else { continue };
            for byte in (0..8).map(|bit| found ^ (1 << bit)).filter(|byte| *byte != b'\n') {
                line[place] = byte;
                if line.starts_with(b"{") && is_json(&line) {
                    let shown = harmless::text(&[byte]);
                    let column = place + 1;
                    return likely(
                        format!(
                            "one bit is flipped: with `{shown}` (0x{byte:02x}) in place of 0x{found:02x} at column {column} \
                             the line is whole"
                        ),
                        "restore the file from a copy, and see after disk and memory",
                    );
                }
            }
            line[place] = found;
        }
        None
    }

    fn of_encoding(&self) -> Option<Likely> {
        if self.rest().len() < MOST_BYTES_OF_A_CHARACTER
            && str::from_utf8(self.rest()).is_err_and(|error| error.error_len().is_none())
        {
            return likely(
                "the line was cut off within a character",
                "restore the file from a copy; what was cut off is lost to this one",
            );
        }
        let near = &self.rest()[..self.rest().len().min(NEAR)];
        let broken: usize = near.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
        if broken * 8 > near.len() && broken > 8 {
            return likely(
                "no text stands here but binary data: another file's, or what a failing disk gave back",
                "restore the file from a copy, and see after the disk or the tool that copied it",
            );
        }
        let byte = self.byte()?;
        let written = match byte {
            0xa0.. => format!("`{}` in Latin-1", harmless::text(char::from(byte).to_string().as_bytes())),
            _ => "a sign of Windows-1252".to_owned(),
        };
        let plain = byte & 0x7f;
        let flipped = if plain.is_ascii_graphic() && plain != b'"' && plain != b'\\' {
            format!(", or `{}` with its highest bit flipped", char::from(plain))
        } else {
            String::new()
        };
        likely(
            format!("byte 0x{byte:02x} is {written}, an older encoding{flipped}"),
            "restore the file from a copy; where all of it is in that encoding, `iconv -f WINDOWS-1252 -t UTF-8` converts it",
        )
    }

    fn of_a_header(&self) -> Option<Likely> {
        if self.line.starts_with(RECORD_OF_ENTRY) {
            let header =
                self.source.bytes.windows(SECOND_HEADER.len()).position(|part| part == SECOND_HEADER);
            return match header {
                Some(feed) => {
                    let number = self.source.bytes[..=feed].split(|byte| *byte == b'\n').count();
                    likely(
                        format!(
                            "the header stands further down, in line {number}: the lines were sorted or joined in another order"
                        ),
                        "restore the file from a copy; the order of the lines is part of a session",
                    )
                }
                None => likely(
                    "the beginning of the file is missing, as `tail` or the rotation of logs leave it",
                    "restore the file from a copy",
                ),
            };
        }
        let has = |part: &[u8]| self.line.windows(part.len()).any(|window| window == part);
        if has(b"\"cwd\":") && has(b"\"timestamp\":") {
            return likely("this is a session of Pi, which is another format", "open it with Pi");
        }
        None
    }

    fn of_a_record(&self) -> Option<Likely> {
        if !self.line.starts_with(RECORD_OF_SESSION) {
            return None;
        }
        let before = self.number - 1;
        let split = format!(
            "take them apart: `head -n {before} {} > ONE` and `tail -n +{} {0} > TWO`, then verify both",
            self.file, self.number
        );
        if self.source.line(1).is_some_and(|first| first.trim_ascii_end() == self.line) {
            likely("the same session begins here again: it was written to the file twice", split)
        } else {
            likely("another session begins here: two files were joined", split)
        }
    }

    fn of_a_version(&self) -> Option<Likely> {
        if !self.rest().starts_with(b"\"1\"") {
            return None;
        }
        likely(
            "the number was put in quotes: a tool took it for a text",
            "write the records again with `\"version\":1`, or restore the file from a copy",
        )
    }

    fn of_a_second_id(&self) -> Option<Likely> {
        let first = self.source.line_of_record(self.string()?).filter(|first| *first < self.number)?;
        if self.source.line(first)?.trim_ascii_end() == self.line {
            return likely(
                format!("this repeats line {first} byte for byte: a part of the file was written twice"),
                "keep a copy, then take out the lines that repeat earlier ones",
            );
        }
        likely(
            format!("line {first} has the id with another content: two writers, or an entry that was edited"),
            "see which of the two is the right one; restore the file from a copy",
        )
    }

    fn of_a_parent(&self) -> Option<Likely> {
        match self.source.line_of_record(self.string()?) {
            Some(line) if line > self.number => likely(
                format!("its parent stands further down, in line {line}: the lines are out of order"),
                "restore the file from a copy, or put parents before their children",
            ),
            Some(line) if line == self.number => {
                likely("the entry names itself as its parent", "restore the file from a copy")
            }
            Some(_) => None,
            None => likely(
                "no line of the file has that id: lines above this one are missing",
                "restore the file from a copy; without its parent the entry has no place in the tree",
            ),
        }
    }

    fn of_a_call(&self, requirement: &str) -> Option<Likely> {
        let line = self.source.line_of_call(self.string()?);
        let (cause, help) = match (requirement, line) {
            ("L1", None) => (
                "no line of the file has that call: a line above is missing, or the id was changed"
                    .to_owned(),
                "restore the file from a copy",
            ),
            ("L1", Some(line)) if line > self.number => (
                format!("the call stands further down, in line {line}: the lines are out of order"),
                "restore the file from a copy, or put calls before their results",
            ),
            ("L1", Some(line)) if line < self.number => (
                format!("line {line} has the call, and is not above this entry on its branch"),
                "see whether the entry has the right parent; restore the file from a copy",
            ),
            ("L2", Some(line)) if line < self.number => (
                format!("line {line} has the call, and this entry repeats it or its result"),
                "see which of the two is the right one; restore the file from a copy",
            ),
            _ => return None,
        };
        likely(cause, help)
    }

    /// The string at the place, as it is spelled.
    fn string(&self) -> Option<&'a [u8]> {
        Some(spelled(self.rest().strip_prefix(b"\"")?))
    }

    fn is_last_line(&self) -> bool {
        let end = self.offset - self.at + self.line.len();
        matches!(self.source.bytes.get(end..), Some(b"" | b"\n" | b"\r\n"))
    }
}

const RECORD: &[u8] = b"{\"type\":\"";
const RECORD_OF_ENTRY: &[u8] = b"{\"type\":\"entry\"";
const RECORD_OF_SESSION: &[u8] = b"{\"type\":\"session\"";
const SECOND_HEADER: &[u8] = b"\n{\"type\":\"session\"";
const MERGE_MARKS: [&[u8]; 4] = [b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>"];
const MOST_BYTES_OF_A_CHARACTER: usize = 4;
/// Bytes by which text and binary data are told apart.
const NEAR: usize = 256;

/// Formats by their first bytes, with the command that unpacks them.
const PACKED: [(&[u8], &str, &str); 5] = [
    (b"\x1f\x8b", "gzip", "gzip -dc FILE"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc FILE"),
    (b"\xfd7zXZ", "xz", "xz -dc FILE"),
    (b"BZh", "bzip2", "bzip2 -dc FILE"),
    (b"PK\x03\x04", "zip", "unzip -p FILE"),
];

fn of_all(likely: Option<Likely>) -> Option<Likely> {
    likely.map(|likely| Likely { of_all: true, ..likely })
}

// What looks for a cause answers with an option.
#[expect(clippy::unnecessary_wraps)]
fn likely(cause: impl Into<String>, help: impl Into<String>) -> Option<Likely> {
    Some(Likely { cause: cause.into(), help: help.into(), of_all: false })
}

/// The encoding in words and for `iconv`, by byte order mark or by the zeros of two plain characters.
fn utf16(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(("UTF-16", "UTF-16")),
        [b'{', 0, b'"', 0, ..] => Some(("UTF-16 without a byte order mark", "UTF-16LE")),
        [0, b'{', 0, b'"', ..] => Some(("UTF-16 without a byte order mark", "UTF-16BE")),
        _ => None,
    }
}

fn is_json(text: &[u8]) -> bool {
    // What is skipped in bytes is not looked at for its encoding.
    str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Whether the beginning of a JSON text ends within a string.
fn ends_within_string(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let string = &rest[quote + 1..];
        match string.get(spelled(string).len() + 1..) {
            Some(after) => rest = after,
            None => return true,
        }
    }
    false
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
