//! The canonical form (requirement F8), and canonical bytes kept so that a commit serialises nothing twice.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use crate::json_prefix::end_of_plain_run;
use crate::message::{Block, Message};
use crate::record::{Entry, Header};
use crate::text::Owner;

/// The header's line with its line feed.
pub(crate) fn header_line(header: &Header) -> String {
    let mut line = String::new();
    let mut fields = Fields::begin(&mut line);
    fields.string("type", "session");
    fields.raw("version", "1");
    fields.string("id", header.id());
    fields.string("createdAt", header.created_at());
    fields.end();
    line.push('\n');
    line
}

/// The entry's line with its line feed.
pub(crate) fn entry_line(entry: &Entry) -> String {
    let mut line = String::new();
    let mut fields = Fields::begin(&mut line);
    fields.string("type", "entry");
    fields.raw("version", "1");
    fields.string("id", entry.id());
    match entry.parent_id() {
        Some(parent) => fields.string("parentId", parent),
        None => fields.raw("parentId", "null"),
    }
    fields.string("timestamp", entry.timestamp());
    push_message(fields.value_of("message"), entry.message());
    fields.end();
    line.push('\n');
    line
}

/// Appends a message as a compact JSON object.
pub(crate) fn push_message(out: &mut String, message: &Message) {
    let mut fields = Fields::begin(out);
    fields.string("id", message.id());
    fields.string("role", message.role());
    match message {
        Message::User { content, .. } => fields.string("content", content),
        Message::Assistant { content, .. } => push_blocks(fields.value_of("content"), content),
        Message::ToolResult { tool_call_id, tool_name, content, is_error, .. } => {
            fields.string("toolCallId", tool_call_id);
            fields.string("toolName", tool_name);
            fields.string("content", content);
            fields.raw("isError", if *is_error { "true" } else { "false" });
        }
    }
    fields.end();
}

/// Appends `text` as a JSON string with the fewest escapes.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let special = end_of_plain_run(bytes, at);
        out.push_str(&text[at..special]);
        let Some(&byte) = bytes.get(special) else { break };
        push_escape(out, byte);
        at = special + 1;
    }
    out.push('"');
}

fn push_escape(out: &mut String, byte: u8) {
    match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        0x08 => out.push_str("\\b"),
        0x0c => out.push_str("\\f"),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        _ => {
            // Writing to a `String` has no failure.
            let _ = write!(out, "\\u{byte:04x}");
        }
    }
}

fn push_blocks(out: &mut String, blocks: &[Block]) {
    out.push('[');
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_block(out, block);
    }
    out.push(']');
}

fn push_block(out: &mut String, block: &Block) {
    let mut fields = Fields::begin(out);
    match block {
        Block::Text { text } => {
            fields.string("type", "text");
            fields.string("text", text);
        }
        Block::ToolCall { id, name, arguments } => {
            fields.string("type", "toolCall");
            fields.string("id", id);
            fields.string("name", name);
            fields.raw("arguments", arguments.as_str());
        }
    }
    fields.end();
}

/// An object under construction, of names that need no escapes.
struct Fields<'a> {
    out: &'a mut String,
    opening: &'static str,
}

impl Fields<'_> {
    fn begin(out: &mut String) -> Fields<'_> {
        Fields { out, opening: "{\"" }
    }

    fn string(&mut self, name: &str, value: &str) {
        push_string(self.value_of(name), value);
    }

    fn raw(&mut self, name: &str, json: &str) {
        self.value_of(name).push_str(json);
    }

    /// Where the value of the next member belongs.
    fn value_of(&mut self, name: &str) -> &mut String {
        self.out.push_str(self.opening);
        self.opening = ",\"";
        self.out.push_str(name);
        self.out.push_str("\":");
        self.out
    }

    fn end(self) {
        self.out.push('}');
    }
}

/// The canonical bytes of a session as slices of shared buffers.
///
/// A clone shares them. Pushing lines keeps the slices few: each is at least twice as long as the next, so there are
/// about as many as a file's length has bits, and each byte is copied about that often over all pushes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    slices: Vec<Slice>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Slice {
    owner: Arc<Owner>,
    range: Range<usize>,
}

impl Segments {
    /// Bytes in all.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slices in the order of the file.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.slices.iter().map(|slice| slice.text().as_bytes())
    }

    /// Adds a canonical line with its line feed.
    pub(crate) fn push_line(&mut self, line: String) {
        self.len += line.len();
        // Whatever is less than twice as long as all that comes after it is joined with that, in one copy: a byte
        // that is copied ends in a slice of at least one and a half times the length of the one it was in.
        let mut first = self.slices.len();
        let mut joined = line.len();
        while first > 0 && self.slices[first - 1].range.len() < 2 * joined {
            first -= 1;
            joined += self.slices[first].range.len();
        }
        if first == self.slices.len() {
            return self.push(Owner::plain(line));
        }
        let mut owner = String::with_capacity(joined);
        for slice in self.slices.drain(first..) {
            owner.push_str(slice.text());
        }
        owner.push_str(&line);
        self.push(Owner::plain(owner));
    }

    fn push(&mut self, owner: Arc<Owner>) {
        let range = 0..owner.as_str().len();
        self.slices.push(Slice { owner, range });
    }
}

impl Slice {
    fn text(&self) -> &str {
        &self.owner.as_str()[self.range.clone()]
    }
}

/// Collects the canonical bytes of a file that is being loaded: the leading lines that are canonical already stay a
/// slice of the file's buffer, the rest is one buffer of its own.
#[derive(Debug)]
pub(crate) struct Canonical {
    file: Arc<Owner>,
    kept: usize,
    rest: String,
}

impl Canonical {
    pub(crate) fn of(file: &Arc<Owner>) -> Canonical {
        Canonical { file: Arc::clone(file), kept: 0, rest: String::new() }
    }

    /// The next line of the file, line feed included, is canonical as it stands.
    pub(crate) fn keep(&mut self, line: Range<usize>) {
        if self.rest.is_empty() {
            self.kept = line.end;
        } else {
            self.rest.push_str(&self.file.as_str()[line]);
        }
    }

    /// The next line of the file reads canonically as `line`, line feed included.
    pub(crate) fn rewrite(&mut self, line: &str) {
        self.rest.push_str(line);
    }

    /// Whether the canonical form is the file itself, byte by byte.
    pub(crate) fn is_whole_file(&self) -> bool {
        self.rest.is_empty() && self.kept == self.file.as_str().len()
    }

    pub(crate) fn into_segments(self) -> Segments {
        let mut segments = Segments { slices: Vec::new(), len: self.kept + self.rest.len() };
        if self.kept > 0 {
            segments.slices.push(Slice { owner: self.file, range: 0..self.kept });
        }
        if !self.rest.is_empty() {
            segments.push(Owner::plain(self.rest));
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(segments: &Segments) -> Vec<u8> {
        segments.iter().flatten().copied().collect()
    }

    fn line(number: usize, length: usize) -> String {
        format!("{number:x<length$}\n")
    }

    // Requirement: F8
    #[test]
    fn pushed_lines_come_out_in_order_as_few_slices() {
        let lengths: [fn(usize) -> usize; 4] =
            [|_| 1_000, |number| 1 + number * 7_919 % 2_000, |number| 4_200 - number, |number| 4 + number];
        for length in lengths {
            let mut segments = Segments::default();
            let mut expected = Vec::new();
            for number in 0..4_096 {
                let line = line(number, length(number));
                expected.extend(line.bytes());
                segments.push_line(line);
                assert_eq!(segments.len(), expected.len());
                assert!(segments.iter().count() <= 23);
            }
            assert_eq!(bytes(&segments), expected);
        }
    }

    // Requirement: F8
    #[test]
    fn pushing_copies_each_byte_a_logarithmic_number_of_times() {
        let mut segments = Segments::default();
        let mut copied = 0;
        for number in 0..4_096 {
            // The old generation stays while the new one is written.
            let before = segments.clone();
            segments.push_line(line(number, 1_000));
            let kept = |slice: &[u8]| before.iter().any(|old| std::ptr::eq(old, slice));
            copied += segments.iter().filter(|slice| !kept(slice)).map(<[u8]>::len).sum::<usize>();
        }
        assert!(copied <= segments.len() * 12, "{copied} of {}", segments.len());
    }

    // Requirement: F8
    #[test]
    fn a_clone_is_not_changed_by_what_is_pushed_later() {
        let mut segments = Segments::default();
        segments.push_line("a\n".to_owned());
        let old = segments.clone();
        segments.push_line("b\n".to_owned());
        assert_eq!(bytes(&old), b"a\n");
        assert_eq!(bytes(&segments), b"a\nb\n");
    }

    // Requirement: F8
    #[test]
    fn a_loaded_file_keeps_its_canonical_beginning_and_rewrites_the_rest() {
        let file = Owner::plain("a\nb\n c\nd\n".to_owned());
        let mut canonical = Canonical::of(&file);
        canonical.keep(0..2);
        canonical.keep(2..4);
        assert!(!canonical.is_whole_file());
        canonical.rewrite("c\n");
        canonical.keep(7..9);
        assert!(!canonical.is_whole_file());
        let segments = canonical.into_segments();
        assert_eq!((segments.iter().count(), segments.len()), (2, 8));
        assert_eq!(bytes(&segments), b"a\nb\nc\nd\n");
        assert_eq!(segments.iter().next().unwrap().as_ptr(), file.as_str().as_ptr());
    }

    // Requirement: F8
    #[test]
    fn strings_have_the_fewest_escapes() {
        for byte in 0..=0x7f_u8 {
            let mut out = String::new();
            push_string(&mut out, &char::from(byte).to_string());
            let expected = match byte {
                b'"' => r#"\""#.to_owned(),
                b'\\' => r"\\".to_owned(),
                8 => r"\b".to_owned(),
                9 => r"\t".to_owned(),
                10 => r"\n".to_owned(),
                12 => r"\f".to_owned(),
                13 => r"\r".to_owned(),
                0..0x20 => format!(r"\u00{byte:02x}"),
                _ => char::from(byte).to_string(),
            };
            assert_eq!(out, format!("\"{expected}\""));
        }
    }
}
