//! The tokens of one JSON text, flat and in the order of the text.

use std::borrow::Cow;

use crate::json_prefix::{Container, Marks, Nesting, Scalar, Sink, Stop, bytes_equal, scan, word_at};

/// The tokens of the last text that was read. The buffers are kept from line to line.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    tokens: Vec<Token>,
    nesting: Nesting,
    /// Where in the surrounding buffer the text starts.
    base: u32,
    /// The innermost open container, while reading.
    open: u32,
    spaced: bool,
    not_minimal: bool,
    unpaired: bool,
}

/// A token; positions are bytes of the surrounding buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) start: u32,
    /// One past the last byte; of a container, one past its closing bracket.
    pub(crate) end: u32,
    /// The first token that is not within this value.
    pub(crate) next: u32,
    pub(crate) kind: Kind,
    pub(crate) marks: Marks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    Name,
    String,
    Number,
    True,
    False,
    Null,
}

/// The token of the whole value.
pub(crate) const ROOT: usize = 0;

impl Tape {
    /// Reads `text`, which starts at byte `base` of its buffer. The offset of a stop is relative to `text`.
    pub(crate) fn read(&mut self, text: &[u8], base: usize) -> Result<(), Stop> {
        self.tokens.clear();
        self.base = base as u32;
        (self.spaced, self.not_minimal, self.unpaired) = (false, false, false);
        let mut nesting = std::mem::take(&mut self.nesting);
        let outcome = scan(text, &mut nesting, self);
        self.nesting = nesting;
        outcome
    }

    pub(crate) fn token(&self, index: usize) -> Token {
        self.tokens[index]
    }

    /// The tokens within the value at `index`, itself first.
    pub(crate) fn within(&self, index: usize) -> &[Token] {
        &self.tokens[index..self.tokens[index].next as usize]
    }

    /// The direct members of an object: the indices of name and value.
    pub(crate) fn members(&self, object: usize) -> impl Iterator<Item = (usize, usize)> {
        self.items(object).map(|name| (name, name + 1))
    }

    /// The direct items of an array.
    pub(crate) fn items(&self, container: usize) -> impl Iterator<Item = usize> {
        let end = self.tokens[container].next as usize;
        let mut at = container + 1;
        std::iter::from_fn(move || {
            let item = (at < end).then_some(at)?;
            at = self.after(item);
            Some(item)
        })
    }

    /// Whether the text has no white space around tokens and only the escapes of the canonical form.
    pub(crate) fn tight(&self) -> bool {
        !self.spaced && !self.not_minimal
    }

    /// Whether any string or name holds a surrogate without its other half.
    pub(crate) fn unpaired(&self) -> bool {
        self.unpaired
    }

    fn after(&self, item: usize) -> usize {
        let token = self.tokens[item];
        if token.kind == Kind::Name { self.tokens[item + 1].next as usize } else { token.next as usize }
    }

    #[inline]
    fn push(&mut self, kind: Kind, start: usize, end: usize, marks: Marks) {
        let next = self.tokens.len() as u32 + 1;
        self.tokens.push(Token {
            start: self.base + start as u32,
            end: self.base + end as u32,
            next,
            kind,
            marks,
        });
        self.not_minimal |= marks.not_minimal();
        self.unpaired |= marks.unpaired();
    }
}

impl Sink for Tape {
    #[inline]
    fn open(&mut self, container: Container, start: usize) {
        let index = self.tokens.len() as u32;
        let kind = if container == Container::Object { Kind::Object } else { Kind::Array };
        self.push(kind, start, start, Marks::default());
        // Until the container ends, its link leads to the container around it.
        self.tokens[index as usize].next = self.open;
        self.open = index;
    }

    #[inline]
    fn close(&mut self, end: usize) {
        let next = self.tokens.len() as u32;
        let token = &mut self.tokens[self.open as usize];
        self.open = token.next;
        token.next = next;
        token.end = self.base + end as u32;
    }

    #[inline]
    fn name(&mut self, start: usize, end: usize, marks: Marks) {
        self.push(Kind::Name, start, end, marks);
    }

    #[inline]
    fn string(&mut self, start: usize, end: usize, marks: Marks) {
        self.push(Kind::String, start, end, marks);
    }

    #[inline]
    fn scalar(&mut self, scalar: Scalar, start: usize, end: usize) {
        let kind = match scalar {
            Scalar::Number => Kind::Number,
            Scalar::True => Kind::True,
            Scalar::False => Kind::False,
            Scalar::Null => Kind::Null,
        };
        self.push(kind, start, end, Marks::default());
    }

    fn white_space(&mut self) {
        self.spaced = true;
    }
}

impl Token {
    /// The source text of the token.
    pub(crate) fn source(self, buffer: &str) -> &str {
        &buffer[self.start as usize..self.end as usize]
    }

    /// The source text of a name or string between its quotes.
    pub(crate) fn quoted(self, buffer: &str) -> &str {
        &buffer[self.start as usize + 1..self.end as usize - 1]
    }

    /// The value of a name or string, or the byte of the buffer at which its first unpaired surrogate stands.
    pub(crate) fn value(self, buffer: &str) -> Result<Cow<'_, str>, usize> {
        let quoted = self.quoted(buffer);
        if self.marks.escaped() {
            unescape(quoted).map(Cow::Owned).map_err(|offset| self.start as usize + 1 + offset)
        } else {
            Ok(Cow::Borrowed(quoted))
        }
    }
}

/// The value of a string whose source between the quotes, already recognised, is `source`; or the byte at which an
/// unpaired surrogate stands in it.
pub(crate) fn unescape(source: &str) -> Result<String, usize> {
    let bytes = source.as_bytes();
    // A value is never longer than its source. What is read at `from` is written at `to`, which is not behind it.
    let mut value = vec![0; bytes.len()];
    let (mut from, mut to) = (0, 0);
    loop {
        let run = copy_to_backslash(bytes, from, &mut value[to..]);
        (from, to) = (from + run, to + run);
        let Some(&escaped) = bytes.get(from + 1) else { break };
        if escaped == b'u' {
            let (char, end) = unicode_scalar(source, from + 2).ok_or(from)?;
            to += char.encode_utf8(&mut value[to..]).len();
            from = end;
        } else {
            value[to] = ESCAPES[usize::from(escaped)];
            (from, to) = (from + 2, to + 1);
        }
    }
    value.truncate(to);
    // Whole characters were copied and whole ones written.
    Ok(String::from_utf8(value).unwrap_or_default())
}

/// What a backslash followed by a letter stands for; other characters stand for themselves.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = byte as u8;
        byte += 1;
    }
    table[b'b' as usize] = 0x08;
    table[b'f' as usize] = 0x0c;
    table[b'n' as usize] = b'\n';
    table[b'r' as usize] = b'\r';
    table[b't' as usize] = b'\t';
    table
};

/// Copies what stands before the next backslash, and returns how much that is. What lies beyond in `to` is scratch.
fn copy_to_backslash(bytes: &[u8], from: usize, to: &mut [u8]) -> usize {
    let mut run = 0;
    while let Some(word) = word_at(bytes, from + run)
        && let Some(target) = to.get_mut(run..).and_then(<[u8]>::first_chunk_mut::<8>)
    {
        *target = word.to_le_bytes();
        let backslashes = bytes_equal(word, b'\\');
        if backslashes != 0 {
            return run + backslashes.trailing_zeros() as usize / 8;
        }
        run += 8;
    }
    while let Some(&byte) = bytes.get(from + run)
        && byte != b'\\'
    {
        to[run] = byte;
        run += 1;
    }
    run
}

/// The scalar value of the one or two escapes whose first digits start at `at`, and where they end.
fn unicode_scalar(source: &str, at: usize) -> Option<(char, usize)> {
    let unit = |at: usize| u32::from_str_radix(source.get(at..at + 4)?, 16).ok();
    let first = unit(at)?;
    if let Some(char) = char::from_u32(first) {
        return Some((char, at + 4));
    }
    if first >= 0xdc00 || source.get(at + 4..at + 6) != Some("\\u") {
        return None;
    }
    let low = unit(at + 6).filter(|low| (0xdc00..=0xdfff).contains(low))?;
    Some((char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00))?, at + 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: F4, F9.depth
    #[test]
    fn tokens_are_fewer_than_bytes_whatever_the_nesting() {
        let mut tape = Tape::default();
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        let wide = format!("[{}0]", "0,".repeat(30_000));
        for (text, tokens) in [(&deep, 30_000), (&wide, 30_002)] {
            assert!(tape.read(text.as_bytes(), 0).is_ok());
            assert_eq!((tape.tokens.len(), tape.within(ROOT).len()), (tokens, tokens));
        }
    }

    // Requirement: F9.duplicate-names
    #[test]
    fn direct_members_and_items_skip_what_is_nested() {
        let text = r#" {"a":[1,{"x":[2]},[]],"b":{"y":{}},"c":null} "#;
        let mut tape = Tape::default();
        tape.read(text.as_bytes(), 0).unwrap();
        let sources = |indices: Vec<usize>| {
            indices.into_iter().map(|at| tape.token(at).source(text)).collect::<Vec<_>>()
        };
        let (names, values): (Vec<_>, Vec<_>) = tape.members(ROOT).unzip();
        assert_eq!(sources(names), ["\"a\"", "\"b\"", "\"c\""]);
        assert_eq!(sources(values.clone()), [r#"[1,{"x":[2]},[]]"#, r#"{"y":{}}"#, "null"]);
        assert_eq!(sources(tape.items(values[0]).collect()), ["1", r#"{"x":[2]}"#, "[]"]);
        assert!(!tape.tight());
    }

    // Requirement: F9.surrogates
    #[test]
    fn half_a_surrogate_pair_has_no_value() {
        for (source, expected) in [
            (r"\ud83d\ude00", Ok("😀")),
            (r"\uD83D\uDE00", Ok("😀")),
            (r"a\ud83d", Err(1)),
            (r"a\ude00", Err(1)),
            (r"\ud83dx", Err(0)),
            (r"\ud83dxxde00", Err(0)),
            (r"\ud83d\n", Err(0)),
            (r"\ud83d\u0041", Err(0)),
            (r"\ud83d\ud83d\ude00", Err(0)),
            (r"\ud83d\ude00\ude00", Err(12)),
            (r#"\"\\\/\b\f\n\r\t\u0000é"#, Ok("\"\\/\u{8}\u{c}\n\r\t\0é")),
        ] {
            assert_eq!(unescape(source).as_deref().map_err(|at| *at), expected, "{source}");
            let mut tape = Tape::default();
            tape.read(format!("\"{source}\"").as_bytes(), 0).unwrap();
            assert_eq!(tape.unpaired(), expected.is_err(), "{source}");
        }
    }

    // Requirement: F8
    #[test]
    fn only_the_escapes_of_the_canonical_form_are_tight() {
        for tight in [r#""\"\\\b\f\n\r\t\u0000\u001f\u000b""#, "{\"a\":[1,null]}", "\"/\u{7f}\""] {
            let mut tape = Tape::default();
            tape.read(tight.as_bytes(), 0).unwrap();
            assert!(tape.tight(), "{tight}");
        }
        for loose in [
            r#""\/""#,
            r#""\u001F""#,
            r#""\u0008""#,
            r#""\u000a""#,
            r#""\u0022""#,
            r#""\u007f""#,
            r#"{"\u0061":1}"#,
            "[ ]",
            "1 ",
        ] {
            let mut tape = Tape::default();
            tape.read(loose.as_bytes(), 0).unwrap();
            assert!(!tape.tight(), "{loose}");
        }
    }
}
