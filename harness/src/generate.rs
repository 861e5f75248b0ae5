//! Sessions of an exact size: the ceilings of the format, and one step beyond them, in shapes that are hard on
//! one part of a store each.
//!
//! ```
//! use session_harness::generate::{self, Shape};
//!
//! let file = generate::session(Shape::Comb, 100, 40_000, 7)?;
//! assert_eq!(file.len(), 40_000);
//! assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), 101);
//! # Ok::<(), generate::SizeError>(())
//! ```

use std::fmt;
use std::iter;

use fastrand::Rng;
use jiff::Timestamp;
use session_tree::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_LINE_BYTES, MAX_SESSION_RECORDS};

/// How the entries of a generated session hang together, and what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One branch: each entry is the child of the one before, users and assistants in turn.
    Chain,
    /// Every entry is a root.
    Roots,
    /// A spine with one tooth at each of its entries: as many branches as there are teeth.
    Comb,
    /// One branch of tool calls, each followed by its result.
    ToolPairs,
    /// Siblings (all are roots) that each make a call, all under the same call id.
    ReusedCallId,
    /// One branch of source code, full of quotes, backslashes, tabs and line ends that JSON must escape.
    EscapedCode,
    /// One branch of text in many scripts, with combining marks, emoji and U+2028.
    MixedScripts,
    /// One branch of tool calls, each followed by its result, whose arguments are nested as deep as room allows.
    DeepArguments,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 8] = [
        Shape::Chain,
        Shape::Roots,
        Shape::Comb,
        Shape::ToolPairs,
        Shape::ReusedCallId,
        Shape::EscapedCode,
        Shape::MixedScripts,
        Shape::DeepArguments,
    ];

    /// The shape's name, such as `tool-pairs`.
    pub const fn name(self) -> &'static str {
        match self {
            Shape::Chain => "chain",
            Shape::Roots => "roots",
            Shape::Comb => "comb",
            Shape::ToolPairs => "tool-pairs",
            Shape::ReusedCallId => "reused-call-id",
            Shape::EscapedCode => "escaped-code",
            Shape::MixedScripts => "mixed-scripts",
            Shape::DeepArguments => "deep-arguments",
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No session of this shape has this many entries in this many bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The lines are longer than that even with empty texts.
    #[error("{entries} entries of shape `{shape}` take at least {least} bytes")]
    TooFewBytes {
        /// The shape asked for.
        shape: Shape,
        /// The entries asked for.
        entries: usize,
        /// The fewest bytes that would do.
        least: usize,
    },
    /// The lines are shorter than that even if each is at the line limit.
    #[error("{entries} entries of shape `{shape}` take at most {most} bytes")]
    TooManyBytes {
        /// The shape asked for.
        shape: Shape,
        /// The entries asked for.
        entries: usize,
        /// The most bytes that would do.
        most: usize,
    },
}

/// The canonical bytes of a valid session with exactly `entries` entries in exactly `bytes` bytes.
///
/// The same arguments give the same bytes. Only the line limit is kept: more entries or bytes than a session may
/// have can be asked for, so that the step beyond a ceiling can be tested too.
///
/// # Errors
///
/// [`SizeError`] if `bytes` is out of reach of this many entries.
pub fn session(shape: Shape, entries: usize, bytes: usize, seed: u64) -> Result<Vec<u8>, SizeError> {
    let mut rng = Rng::with_seed(seed);
    let header = header(&mut rng);
    let mut stamps = Stamps::new();
    let mut ids: Vec<String> = Vec::with_capacity(entries);
    let mut lines: Vec<Line> = Vec::with_capacity(entries);
    for index in 0..entries {
        let (id, timestamp) = stamps.next(&mut rng);
        let parent = parent(shape, index).map(|at| ids[at].as_str());
        lines.push(Line::new(shape, index, &id, parent, &timestamp));
        ids.push(id);
    }

    let least = header.len() + lines.iter().map(|line| line.bare_len() + 1).sum::<usize>();
    let rooms = lines.iter().map(Line::room).sum::<usize>();
    let Some(fill) = bytes.checked_sub(least) else {
        return Err(SizeError::TooFewBytes { shape, entries, least });
    };
    if fill > rooms {
        return Err(SizeError::TooManyBytes { shape, entries, most: least + rooms });
    }

    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(header.as_bytes());
    for (line, share) in iter::zip(&lines, shares(&lines, fill, rooms, &mut rng)) {
        line.write(share, shape, &mut rng, &mut out);
    }
    Ok(out)
}

/// A session at both ceilings: 4 096 entries in 4 194 304 bytes.
///
/// # Errors
///
/// None for the shapes there are; the type is that of [`session`].
pub fn ceiling(shape: Shape, seed: u64) -> Result<Vec<u8>, SizeError> {
    session(shape, MAX_SESSION_RECORDS, MAX_SESSION_FILE_BYTES, seed)
}

fn header(rng: &mut Rng) -> String {
    let mut stamps = Stamps::new();
    let (id, created_at) = stamps.next(rng);
    format!("{{\"type\":\"session\",\"version\":1,\"id\":\"{id}\",\"createdAt\":\"{created_at}\"}}\n")
}

fn parent(shape: Shape, index: usize) -> Option<usize> {
    match shape {
        Shape::Roots | Shape::ReusedCallId => None,
        Shape::Comb if index.is_multiple_of(2) => index.checked_sub(2),
        _ => index.checked_sub(1),
    }
}

/// Ids that carry their time, as UUIDs of version 7 do: times rise strictly, hence no id comes twice.
struct Stamps {
    milliseconds: i64,
}

impl Stamps {
    const FIRST_MILLISECOND: i64 = 1_772_000_000_000;

    fn new() -> Stamps {
        Stamps { milliseconds: Stamps::FIRST_MILLISECOND }
    }

    fn next(&mut self, rng: &mut Rng) -> (String, String) {
        self.milliseconds += rng.i64(40..90_000);
        let time = self.milliseconds;
        let timestamp = Timestamp::from_millisecond(time).expect("a time of this century");
        let id = format!(
            "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
            time >> 16,
            time & 0xffff,
            rng.u16(..0x1000),
            rng.u16(0x8000..0xc000),
            rng.u64(..1 << 48)
        );
        (id, format!("{timestamp:.3}"))
    }
}

/// A line of the file around the place where its text goes.
struct Line {
    head: String,
    hole: Hole,
    tail: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hole {
    /// Inside a string.
    Text,
    /// Inside a tool call's arguments, the last of which is the string `note`.
    Arguments,
}

const NOTE: &str = "\"note\":\"";

impl Line {
    fn new(shape: Shape, index: usize, id: &str, parent: Option<&str>, timestamp: &str) -> Line {
        let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
        let (message, hole, tail) = message(shape, index);
        let head = format!(
            "{{\"type\":\"entry\",\"version\":1,\"id\":\"{id}\",\"parentId\":{parent},\"timestamp\":\"{timestamp}\",\
             \"message\":{{\"id\":\"m{index}\",{message}"
        );
        Line { head, hole, tail }
    }

    /// The length with an empty text, without the line feed.
    fn bare_len(&self) -> usize {
        let note = if self.hole == Hole::Arguments { NOTE.len() } else { 0 };
        self.head.len() + note + self.tail.len()
    }

    fn room(&self) -> usize {
        MAX_SESSION_LINE_BYTES - self.bare_len()
    }

    fn write(&self, bytes: usize, shape: Shape, rng: &mut Rng, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head.as_bytes());
        let mut text = bytes;
        if self.hole == Hole::Arguments {
            text -= write_nest(shape, bytes, out);
            out.extend_from_slice(NOTE.as_bytes());
        }
        write_text(words(shape), text, rng, out);
        out.extend_from_slice(self.tail.as_bytes());
        out.push(b'\n');
    }
}

fn message(shape: Shape, index: usize) -> (String, Hole, &'static str) {
    let call = |id: &str, name: &str| {
        format!(
            "\"role\":\"assistant\",\"content\":[{{\"type\":\"toolCall\",\"id\":\"{id}\",\"name\":\"{name}\",\"arguments\":{{"
        )
    };
    match shape {
        Shape::ReusedCallId => (call("call_1", "search"), Hole::Arguments, "\"}}]}}"),
        Shape::ToolPairs | Shape::DeepArguments => {
            let pair = index / 2;
            let id = format!("call_{pair:x}");
            let name = ["bash", "read", "edit", "grep"][pair % 4];
            if index.is_multiple_of(2) {
                (call(&id, name), Hole::Arguments, "\"}}]}}")
            } else {
                let is_error = pair % 9 == 4;
                let head = format!(
                    "\"role\":\"toolResult\",\"toolCallId\":\"{id}\",\"toolName\":\"{name}\",\"content\":\""
                );
                (head, Hole::Text, if is_error { "\",\"isError\":true}}" } else { "\",\"isError\":false}}" })
            }
        }
        _ if index.is_multiple_of(2) => ("\"role\":\"user\",\"content\":\"".to_owned(), Hole::Text, "\"}}"),
        _ => {
            let head = "\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"".to_owned();
            (head, Hole::Text, "\"}]}}")
        }
    }
}

/// How many bytes each line's text gets: uneven, within each line's room, `fill` in all.
fn shares(lines: &[Line], fill: usize, rooms: usize, rng: &mut Rng) -> Vec<usize> {
    let (mut fill, mut rooms) = (fill, rooms);
    iter::zip(lines, (1..=lines.len()).rev())
        .map(|(line, lines_left)| {
            rooms -= line.room();
            let least = fill.saturating_sub(rooms);
            let even = fill / lines_left;
            let share = (even / 2 + rng.usize(..=even)).clamp(least, line.room().min(fill));
            fill -= share;
            share
        })
        .collect()
}

/// Writes a deeply nested argument into at most three quarters of `room` bytes; answers how many it took.
fn write_nest(shape: Shape, room: usize, out: &mut Vec<u8>) -> usize {
    const NAME: &str = "\"plan\":";
    const OPEN: &str = "[{\"a\":";
    const CLOSE: &str = "}]";
    let fixed = NAME.len() + "0,".len();
    let levels = (room / 4 * 3).saturating_sub(fixed) / (OPEN.len() + CLOSE.len());
    if shape != Shape::DeepArguments || levels == 0 {
        return 0;
    }
    let before = out.len();
    out.extend_from_slice(NAME.as_bytes());
    out.extend(iter::repeat_n(OPEN.as_bytes(), levels).flatten());
    out.push(b'0');
    out.extend(iter::repeat_n(CLOSE.as_bytes(), levels).flatten());
    out.push(b',');
    out.len() - before
}

/// Writes exactly `bytes` bytes of words that are escaped already.
fn write_text(words: &[&str], bytes: usize, rng: &mut Rng, out: &mut Vec<u8>) {
    /// Longer than every word, so that it fills the room that the last word does not fit into.
    const ENDING: &str = "and so on, as above, until nothing is left to be done about it all";
    let end = out.len() + bytes;
    loop {
        let word = words[rng.usize(..words.len())];
        let room = end - out.len();
        if room <= word.len() {
            out.extend_from_slice(&ENDING.as_bytes()[..room]);
            return;
        }
        out.extend_from_slice(word.as_bytes());
        out.push(b' ');
    }
}

fn words(shape: Shape) -> &'static [&'static str] {
    match shape {
        Shape::EscapedCode => CODE,
        Shape::MixedScripts => SCRIPTS,
        _ => PROSE,
    }
}

const PROSE: &[&str] = &[
    "the",
    "test",
    "fails",
    "after",
    "merge",
    "because",
    "a",
    "request",
    "is",
    "counted",
    "twice",
    "please",
    "look",
    "at",
    "function",
    "again",
    "and",
    "tell",
    "me",
    "whether",
    "this",
    "could",
    "break",
    "older",
    "clients",
    "I",
    "would",
    "rather",
    "keep",
    "interface",
    "as",
    "it",
    "was",
    "then",
    "we",
    "run",
    "benchmark",
    "on",
    "both",
    "branches",
    "before",
    "writing",
    "anything",
    "down",
    "in",
    "changelog",
    "no",
    "timeout",
    "of",
    "30",
    "seconds",
    "seems",
    "enough",
    "for",
    "slowest",
    "machine",
];

const CODE: &[&str] = &[
    "if (line === \\\"\\\\n\\\") {\\n\\t\\t",
    "return",
    "const path = \\\"C:\\\\\\\\build\\\\\\\\out\\\";\\n",
    "printf(\\\"%s\\\\t%d\\\\n\\\", name, count);\\n",
    "}\\n\\n",
    "let re = /\\\\d+\\\\.\\\\d+/u;\\n",
    "// \\\"quoted\\\" in a comment\\n",
    "match self {\\n\\t",
    "Some(b'\\\\\\\\') => escape(out),\\n",
    "\\u001b[31merror\\u001b[0m:",
    "echo \\\"$HOME\\\"",
    "x",
    "+=",
    "1;\\r\\n",
];

const SCRIPTS: &[&str] = &[
    "صباح",
    "الخير",
    "מה",
    "שלומך",
    "नमस्ते",
    "दुनिया",
    "今天",
    "天气",
    "很好",
    "ファイル",
    "保存",
    "안녕하세요",
    "Ελλάδα",
    "привет",
    "ქართული",
    "ไทย",
    "தமிழ்",
    "e\u{301}te\u{301}",
    "👩‍💻",
    "👨‍👩‍👧‍👦",
    "🏳️‍🌈",
    "𠮷野家",
    "na\u{308}ive",
    "one\u{2028}two",
    "and",
    "then",
    "ok",
    "\u{2067}עברית\u{2069}",
    "፩፪፫",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    /// Accepted by the store as by the model.
    fn accepted(file: &[u8]) -> model::Session {
        let decoded = session_tree::decode(file.to_vec()).expect("a generated session is valid");
        assert!(decoded.canonical() && decoded.torn_tail() == 0);
        let session = model::load(file).expect("a generated session is valid");
        assert_eq!(decoded.entries().len(), session.entries().len());
        session
    }

    // Requirement: F8, L1, L2, R5
    #[test]
    fn every_shape_at_the_ceiling_is_exact_valid_and_canonical() {
        for shape in Shape::ALL {
            let file = ceiling(shape, 1).expect("the ceiling is in reach of every shape");
            assert_eq!(file.len(), MAX_SESSION_FILE_BYTES, "{shape}");
            let session = accepted(&file);
            assert_eq!(session.entries().len(), MAX_SESSION_RECORDS, "{shape}");
            assert!(session.encode() == file, "{shape} is not canonical");
        }
    }

    // Requirement: F8, L1, L2, R5
    #[test]
    fn small_sessions_are_exact_at_every_byte_count() {
        for shape in Shape::ALL {
            let least = match session(shape, 7, 0, 3) {
                Err(SizeError::TooFewBytes { least, .. }) => least,
                other => panic!("{shape}: {other:?}"),
            };
            for bytes in (least..least + 150).chain([least + 5_000, least + 50_001]) {
                let file = session(shape, 7, bytes, 3).expect("within reach");
                assert_eq!(file.len(), bytes, "{shape}");
                let session = accepted(&file);
                assert_eq!(session.entries().len(), 7, "{shape}");
                assert!(session.encode() == file, "{shape} of {bytes} bytes is not canonical");
            }
        }
    }

    // Requirement: F8
    #[test]
    fn the_most_bytes_that_fit_have_every_line_at_the_limit() {
        for shape in Shape::ALL {
            let most = match session(shape, 3, MAX_SESSION_FILE_BYTES, 5) {
                Err(SizeError::TooManyBytes { most, .. }) => most,
                other => panic!("{shape}: {other:?}"),
            };
            let file = session(shape, 3, most, 5).expect("within reach");
            assert_eq!(accepted(&file).entries().len(), 3);
            let entries = file.split(|byte| *byte == b'\n').skip(1).take(3);
            assert!(entries.into_iter().all(|line| line.len() == MAX_SESSION_LINE_BYTES), "{shape}");
        }
    }

    // Requirement: F7
    #[test]
    fn one_step_beyond_each_ceiling_can_be_made_and_is_refused() {
        let records =
            session(Shape::Chain, MAX_SESSION_RECORDS + 1, MAX_SESSION_FILE_BYTES, 1).expect("within reach");
        let refusal = model::load(&records).expect_err("one entry too many");
        assert_eq!((refusal.code, refusal.line), ("SESSION_RECORD_LIMIT", Some(MAX_SESSION_RECORDS + 2)));
        let bytes =
            session(Shape::Chain, MAX_SESSION_RECORDS, MAX_SESSION_FILE_BYTES + 1, 1).expect("within reach");
        assert_eq!(model::load(&bytes).expect_err("one byte too many").code, "SESSION_FILE_TOO_LARGE");
    }

    // Requirement: F8
    #[test]
    fn one_seed_gives_the_same_bytes_and_another_seed_gives_others() {
        for shape in Shape::ALL {
            let made = |seed| session(shape, 20, 30_000, seed).expect("within reach");
            assert_eq!(made(9), made(9));
            assert_ne!(made(9), made(10));
        }
    }

    // Requirement: T4, L3
    #[test]
    fn shapes_have_the_form_they_are_named_for() {
        let made = |shape| accepted(&session(shape, 40, 40_000, 2).expect("within reach"));
        let depth = |session: &model::Session| session.tree().active(session).len();
        let roots = |session: &model::Session| {
            session.entries().iter().filter(|entry| entry.parent.is_none()).count()
        };
        assert_eq!(depth(&made(Shape::Chain)), 40);
        assert_eq!(roots(&made(Shape::Roots)), 40);
        assert_eq!(depth(&made(Shape::Comb)), 21);
        assert_eq!(depth(&made(Shape::ToolPairs)), 40);
        assert_eq!(roots(&made(Shape::ReusedCallId)), 40);
        let deep = session(Shape::DeepArguments, 40, 40_000, 2).expect("within reach");
        let open = deep.windows(6).filter(|window| window == b"[{\"a\":").count();
        assert!(open > 1_000, "{open} levels in 20 calls");
    }

    // Requirement: F8
    #[test]
    fn a_session_without_entries_is_its_header() {
        let Err(SizeError::TooFewBytes { least, .. }) = session(Shape::Chain, 0, 0, 1) else {
            panic!("a header takes some bytes")
        };
        assert_eq!(
            accepted(&session(Shape::Chain, 0, least, 1).expect("the header alone")).entries().len(),
            0
        );
        let more = session(Shape::Chain, 0, least + 1, 1);
        assert_eq!(more, Err(SizeError::TooManyBytes { shape: Shape::Chain, entries: 0, most: least }));
    }
}
