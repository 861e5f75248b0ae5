//! Text from files and names in a form that no terminal acts on.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use unicode_width::UnicodeWidthStr as _;

use crate::tree_view::is_unsafe;

/// The bytes as text on one line: controls, bidirectional controls and what is invisible or changes the look of its
/// neighbours as `\u{1b}`, bytes that are no UTF-8 as `\xff`, all else as it is.
pub fn text(bytes: &[u8]) -> String {
    pieces(bytes).map(|piece| piece.shown).collect()
}

/// [`text`] of a path.
pub fn path(path: &Path) -> String {
    text(path.as_os_str().as_encoded_bytes())
}

/// [`text`] in at most `columns` columns, cut off with `…`.
pub fn shortened(bytes: &[u8], columns: usize) -> String {
    let whole: Vec<Piece> = pieces(&bytes[..bytes.len().min(columns * MOST_BYTES_A_COLUMN)]).collect();
    let width: usize = whole.iter().map(|piece| piece.width).sum();
    if width <= columns && bytes.len() <= columns * MOST_BYTES_A_COLUMN {
        return whole.into_iter().map(|piece| piece.shown).collect();
    }
    let mut left = columns.saturating_sub(1);
    let fitting = whole.into_iter().map_while(|piece| {
        left = left.checked_sub(piece.width)?;
        Some(piece.shown)
    });
    fitting.collect::<String>() + "…"
}

/// The path as a shell takes it, or `FILE` where it cannot be typed as it stands.
pub fn shell_word(file: &Path) -> String {
    let shown = path(file);
    if file.to_str() != Some(shown.as_str()) {
        return "FILE".to_owned();
    }
    let word = if shown.starts_with('-') { format!("./{shown}") } else { shown };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/+,:@%".contains(&byte);
    if word.bytes().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Writes `value` as JSON on one line, with what a terminal might act on as `\u` escapes: the same value to every
/// parser.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, Harmless)).map_err(io::Error::from)
}

/// Bytes that one column may take before text counts as longer: a letter may carry some combining marks.
const MOST_BYTES_A_COLUMN: usize = 8;

/// One character, or one byte that belongs to none.
pub(super) struct Piece {
    /// The first byte's place in what was given.
    pub(super) start: usize,
    /// How many bytes it is of.
    pub(super) length: usize,
    /// What stands for it.
    pub(super) shown: String,
    /// The columns of that.
    pub(super) width: usize,
}

/// The characters of `bytes`, and the bytes that belong to none, in order.
pub(super) fn pieces(bytes: &[u8]) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    bytes
        .utf8_chunks()
        .flat_map(|chunk| {
            let valid = chunk.valid().chars().map(|character| (character.len_utf8(), shown(character)));
            let invalid = chunk.invalid().iter().map(|byte| (1, format!("\\x{byte:02x}")));
            valid.chain(invalid).collect::<Vec<_>>()
        })
        .map(move |(length, shown)| {
            let start = at;
            at += length;
            let width = shown.width();
            Piece { start, length, shown, width }
        })
}

fn shown(character: char) -> String {
    if is_unsafe(character) || is_odd_space(character) || changes_its_neighbours(character) {
        character.escape_unicode().to_string()
    } else {
        character.to_string()
    }
}

fn is_odd_space(character: char) -> bool {
    character.is_whitespace() && character != ' '
}

/// Joiners, variation selectors and skin tones: terminals disagree about their columns, so that a caret would
/// not stand where it points.
fn changes_its_neighbours(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}'
        | '\u{e0100}'..='\u{e01ef}')
}

/// JSON may hold everything but the controls below 0x20 unescaped; terminals obey more than these.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut plain = 0;
        for (at, character) in fragment.char_indices() {
            if is_unsafe(character) || is_odd_space(character) {
                writer.write_all(&fragment.as_bytes()[plain..at])?;
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
                plain = at + character.len_utf8();
            }
        }
        writer.write_all(&fragment.as_bytes()[plain..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_hides_or_reorders_is_an_escape() {
        assert_eq!(
            text("a\u{1b}[2J\u{9b}0m\u{7f}\t\u{2028}é漢".as_bytes()),
            r"a\u{1b}[2J\u{9b}0m\u{7f}\u{9}\u{2028}é漢"
        );
        assert_eq!(text("\u{202e}\u{2066}\u{200d}\u{feff}".as_bytes()), r"\u{202e}\u{2066}\u{200d}\u{feff}");
        assert_eq!(text(b"a\xff\xc3"), r"a\xff\xc3");
    }

    #[test]
    fn shortened_text_keeps_to_its_columns() {
        assert_eq!(shortened("漢漢漢".as_bytes(), 6), "漢漢漢");
        assert_eq!(shortened("漢漢漢漢".as_bytes(), 6), "漢漢…");
        assert_eq!(shortened(b"\x1b\x1b", 8), r"\u{1b}…");
        let marks = "a".to_owned() + &"\u{301}".repeat(1_000);
        assert!(shortened(marks.as_bytes(), 10).len() < 100);
    }

    #[test]
    fn a_path_is_shown_as_a_shell_takes_it() {
        for (path, word) in [
            ("a/b.jsonl", "a/b.jsonl"),
            ("-x", "./-x"),
            ("my session.jsonl", "'my session.jsonl'"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a\u{1b}[2J", "FILE"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }

    #[test]
    fn pieces_cover_every_byte_once() {
        let bytes = b"a\xf0\x9f\x98\xf0\x9f\x98\x80\x80\x1b";
        let mut at = 0;
        for piece in pieces(bytes) {
            assert_eq!(piece.start, at);
            at += piece.length;
        }
        assert_eq!(at, bytes.len());
    }

    #[test]
    fn json_is_the_same_value_without_what_a_terminal_obeys() {
        let value = serde_json::json!({"a\u{9b}": "\u{1b}\u{7f}\u{202e}\u{e0001}\"\\漢"});
        let mut out = Vec::new();
        write_json(&mut out, &value).expect("a vector takes all");
        let written = String::from_utf8(out).expect("JSON is text");
        assert_eq!(written, r#"{"a\u009b":"\u001b\u007f\u202e\udb40\udc01\"\\漢"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&written).expect("JSON"), value);
    }
}
