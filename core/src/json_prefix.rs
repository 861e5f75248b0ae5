//! What an unterminated last line is: a whole JSON value, an object cut short, or damage (requirement F4).
//!
//! The grammar of RFC 8259 stands here once, as a pushdown automaton over bytes without recursion: a line of
//! 65 000 opening brackets is an ordinary input. Its stack holds one bit a container. [`classify`] runs it for the
//! verdict alone; loading runs the same automaton and keeps the tokens.
//!
//! ```
//! use session_tree::json_prefix::{Tail, classify};
//!
//! assert_eq!(classify(r#"{"id":"cut"#), Tail::Incomplete);
//! assert_eq!(classify(r#"{"id":"cut"}"#), Tail::Complete);
//! assert_eq!(classify(r#"{"id":cut"#), Tail::Invalid);
//! ```

/// The verdict on a last line that has no line feed (requirement F4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tail {
    /// One whole JSON value of any kind, with or without white space around it.
    Complete,
    /// The beginning of a JSON object that some further bytes would complete. Only this may be ignored on load.
    Incomplete,
    /// Neither. Nothing that could follow makes it an object.
    Invalid,
}

/// Classifies a last line, without its carriage return if it had one (requirements F1, F4).
///
/// Linear in the input, with memory of one bit for each open container. The grammar is RFC 8259 alone: unpaired
/// surrogate escapes, duplicate names, depth and the size of numbers do not count. Input that is not UTF-8 is no JSON
/// text and answers [`Tail::Invalid`]; a session load has refused it before (requirement F2).
pub fn classify(input: impl AsRef<[u8]>) -> Tail {
    let input = input.as_ref();
    if std::str::from_utf8(input).is_err() {
        return Tail::Invalid;
    }
    match scan(input, &mut Nesting::default(), &mut Verdict) {
        Ok(()) => Tail::Complete,
        Err(stop) if stop.is_torn_object(input) => Tail::Incomplete,
        Err(_) => Tail::Invalid,
    }
}

/// For [`Tail::Incomplete`] input, a text that continues it to a whole JSON object; otherwise nothing.
///
/// The witness behind the verdict: input followed by it is [`Tail::Complete`]. Its names may repeat ones that the
/// input has.
pub fn completion(input: impl AsRef<[u8]>) -> Option<String> {
    let input = input.as_ref();
    std::str::from_utf8(input).ok()?;
    let mut nesting = Nesting::default();
    let stop = scan(input, &mut nesting, &mut Verdict).err()?;
    if !stop.is_torn_object(input) {
        return None;
    }
    let Why::OutOfInput { owes, then } = stop.why else { return None };
    let mut text = owes.to_owned();
    text.push_str(then.shortest());
    while let Some(container) = nesting.pop() {
        text.push(if container == Container::Object { '}' } else { ']' });
    }
    Some(text)
}

/// Receives what the automaton recognises, in the order of the input. Positions are bytes of the input.
pub(crate) trait Sink {
    fn open(&mut self, container: Container, start: usize);
    fn close(&mut self, end: usize);
    fn name(&mut self, start: usize, end: usize, marks: Marks);
    fn string(&mut self, start: usize, end: usize, marks: Marks);
    fn scalar(&mut self, scalar: Scalar, start: usize, end: usize);
    /// White space stood between two tokens, or around the value.
    fn white_space(&mut self);
}

/// The sink of a caller that wants the verdict alone.
pub(crate) struct Verdict;

impl Sink for Verdict {
    fn open(&mut self, _: Container, _: usize) {}
    fn close(&mut self, _: usize) {}
    fn name(&mut self, _: usize, _: usize, _: Marks) {}
    fn string(&mut self, _: usize, _: usize, _: Marks) {}
    fn scalar(&mut self, _: Scalar, _: usize, _: usize) {}
    fn white_space(&mut self) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    Object,
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Number,
    True,
    False,
    Null,
}

/// What the automaton saw in a string while it looked for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    const ESCAPED: u8 = 1;
    const NOT_MINIMAL: u8 = 2;
    const UNPAIRED: u8 = 4;

    /// The string differs from its source text.
    pub(crate) fn escaped(self) -> bool {
        self.0 & Marks::ESCAPED != 0
    }

    /// Some escape is not the one that the canonical form uses (requirement F8).
    pub(crate) fn not_minimal(self) -> bool {
        self.0 & Marks::NOT_MINIMAL != 0
    }

    /// Some escape is a surrogate without its other half (requirement F9.surrogates).
    pub(crate) fn unpaired(self) -> bool {
        self.0 & Marks::UNPAIRED != 0
    }
}

/// Where and why the automaton stopped before the end of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The first byte that no JSON text has there, or the end of the input.
    pub(crate) offset: usize,
    pub(crate) why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    BadByte,
    /// So far the beginning of a JSON text. `owes` would complete the token that was cut, and `then` is what the
    /// grammar wants after it.
    OutOfInput {
        owes: &'static str,
        then: Expect,
    },
}

impl Stop {
    /// Whether the input, which stopped so, is a proper prefix of a text whose value is an object.
    pub(crate) fn is_torn_object(&self, input: &[u8]) -> bool {
        matches!(self.why, Why::OutOfInput { .. }) && input.get(skip_white_space(input, 0)) == Some(&b'{')
    }

    fn bad(offset: usize) -> Stop {
        Stop { offset, why: Why::BadByte }
    }
}

/// What the grammar wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Value,
    /// Directly after `[`.
    ItemOrEnd,
    /// After a comma in an object.
    Name,
    /// Directly after `{`.
    NameOrEnd,
    Colon,
    CommaOrEnd,
    /// The value is whole: only white space may follow.
    Nothing,
}

impl Expect {
    /// The shortest text that satisfies this up to the end of the container.
    fn shortest(self) -> &'static str {
        match self {
            Expect::Value => "null",
            Expect::Name => "\"\":null",
            Expect::Colon => ":null",
            Expect::ItemOrEnd | Expect::NameOrEnd | Expect::CommaOrEnd | Expect::Nothing => "",
        }
    }
}

/// The open containers, one bit each.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    words: Vec<u64>,
    depth: usize,
}

impl Nesting {
    fn push(&mut self, container: Container) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.words.len() {
            self.words.push(0);
        }
        let flag = u64::from(container == Container::Object);
        self.words[word] = self.words[word] & !(1 << bit) | flag << bit;
        self.depth += 1;
    }

    fn pop(&mut self) -> Option<Container> {
        let top = self.top()?;
        self.depth -= 1;
        Some(top)
    }

    fn top(&self) -> Option<Container> {
        let at = self.depth.checked_sub(1)?;
        let object = self.words[at / 64] >> (at % 64) & 1 == 1;
        Some(if object { Container::Object } else { Container::Array })
    }

    fn after_value(&self) -> Expect {
        if self.depth == 0 { Expect::Nothing } else { Expect::CommaOrEnd }
    }
}

/// Recognises one JSON text that is the whole of `input`, and tells `sink` its tokens. `nesting` is scratch; after
/// a stop it holds the containers that are open there.
pub(crate) fn scan<S: Sink>(input: &[u8], nesting: &mut Nesting, sink: &mut S) -> Result<(), Stop> {
    nesting.depth = 0;
    let mut expect = Expect::Value;
    let mut at = 0;
    loop {
        let start = skip_white_space(input, at);
        if start != at {
            sink.white_space();
        }
        let Some(&byte) = input.get(start) else {
            return match expect {
                Expect::Nothing => Ok(()),
                then => Err(Stop { offset: start, why: Why::OutOfInput { owes: "", then } }),
            };
        };
        (at, expect) = match expect {
            Expect::Value | Expect::ItemOrEnd => match byte {
                b'"' => {
                    let (end, marks) =
                        string(input, start + 1).map_err(|cut| cut.stop(input, nesting.after_value()))?;
                    sink.string(start, end, marks);
                    (end, nesting.after_value())
                }
                b'{' => {
                    nesting.push(Container::Object);
                    sink.open(Container::Object, start);
                    (start + 1, Expect::NameOrEnd)
                }
                b'[' => {
                    nesting.push(Container::Array);
                    sink.open(Container::Array, start);
                    (start + 1, Expect::ItemOrEnd)
                }
                b']' if expect == Expect::ItemOrEnd => close(start, nesting, sink),
                _ => {
                    let (scalar, end) =
                        scalar(input, start, byte).map_err(|cut| cut.stop(input, nesting.after_value()))?;
                    sink.scalar(scalar, start, end);
                    (end, nesting.after_value())
                }
            },
            Expect::Name | Expect::NameOrEnd => match byte {
                b'"' => {
                    let (end, marks) =
                        string(input, start + 1).map_err(|cut| cut.stop(input, Expect::Colon))?;
                    sink.name(start, end, marks);
                    (end, Expect::Colon)
                }
                b'}' if expect == Expect::NameOrEnd => close(start, nesting, sink),
                _ => return Err(Stop::bad(start)),
            },
            Expect::Colon if byte == b':' => (start + 1, Expect::Value),
            Expect::CommaOrEnd => match (byte, nesting.top()) {
                (b',', Some(Container::Object)) => (start + 1, Expect::Name),
                (b',', Some(Container::Array)) => (start + 1, Expect::Value),
                (b'}', Some(Container::Object)) | (b']', Some(Container::Array)) => {
                    close(start, nesting, sink)
                }
                _ => return Err(Stop::bad(start)),
            },
            Expect::Colon | Expect::Nothing => return Err(Stop::bad(start)),
        };
    }
}

fn close<S: Sink>(bracket: usize, nesting: &mut Nesting, sink: &mut S) -> (usize, Expect) {
    nesting.pop();
    sink.close(bracket + 1);
    (bracket + 1, nesting.after_value())
}

#[inline]
fn skip_white_space(input: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = input.get(at) {
        at += 1;
    }
    at
}

/// Why a token has no end.
enum Cut {
    /// The input ended; this would complete the token.
    Owes(&'static str),
    /// No token goes on with the byte here.
    Bad(usize),
}

impl Cut {
    fn stop(self, input: &[u8], then: Expect) -> Stop {
        match self {
            Cut::Owes(owes) => Stop { offset: input.len(), why: Why::OutOfInput { owes, then } },
            Cut::Bad(offset) => Stop::bad(offset),
        }
    }
}

/// A string from the byte after its opening quote, to the byte after its closing one.
fn string(input: &[u8], mut at: usize) -> Result<(usize, Marks), Cut> {
    let mut marks = Marks::default();
    loop {
        at = end_of_plain_run(input, at);
        match input.get(at) {
            Some(b'"') => return Ok((at + 1, marks)),
            Some(b'\\') => at = escape(input, at, &mut marks)?,
            Some(_) => return Err(Cut::Bad(at)),
            None => return Err(Cut::Owes("\"")),
        }
    }
}

/// An escape from its backslash to the byte after it; a pair of surrogates counts as one.
fn escape(input: &[u8], at: usize, marks: &mut Marks) -> Result<usize, Cut> {
    marks.0 |= Marks::ESCAPED;
    match input.get(at + 1).map(|&letter| ESCAPES[usize::from(letter)]) {
        Some(EscapeKind::Minimal) => Ok(at + 2),
        Some(EscapeKind::Solidus) => {
            marks.0 |= Marks::NOT_MINIMAL;
            Ok(at + 2)
        }
        Some(EscapeKind::Unicode) => unicode_escape(input, at, marks),
        Some(EscapeKind::None) => Err(Cut::Bad(at + 1)),
        None => Err(Cut::Owes("n\"")),
    }
}

/// What the letter after a backslash makes of it.
#[derive(Clone, Copy)]
enum EscapeKind {
    None,
    Minimal,
    /// Allowed before a solidus, which never needs it.
    Solidus,
    Unicode,
}

const ESCAPES: [EscapeKind; 256] = {
    let mut kinds = [EscapeKind::None; 256];
    let minimal = b"\"\\bfnrt";
    let mut index = 0;
    while index < minimal.len() {
        kinds[minimal[index] as usize] = EscapeKind::Minimal;
        index += 1;
    }
    kinds[b'/' as usize] = EscapeKind::Solidus;
    kinds[b'u' as usize] = EscapeKind::Unicode;
    kinds
};

fn unicode_escape(input: &[u8], at: usize, marks: &mut Marks) -> Result<usize, Cut> {
    let unit = code_unit(input, at + 2)?;
    let short_form = matches!(unit, 0x08 | 0x09 | 0x0a | 0x0c | 0x0d);
    if unit >= 0x20 || short_form || input[at + 5].is_ascii_uppercase() {
        marks.0 |= Marks::NOT_MINIMAL;
    }
    match unit {
        0xd800..=0xdbff if low_surrogate_at(input, at + 6) => Ok(at + 12),
        0xd800..=0xdfff => {
            marks.0 |= Marks::UNPAIRED;
            Ok(at + 6)
        }
        _ => Ok(at + 6),
    }
}

fn low_surrogate_at(input: &[u8], at: usize) -> bool {
    input.get(at..at + 2) == Some(b"\\u") && matches!(code_unit(input, at + 2), Ok(0xdc00..=0xdfff))
}

/// The four hexadecimal digits at `at`.
fn code_unit(input: &[u8], at: usize) -> Result<u32, Cut> {
    let mut unit = 0;
    for (have, owes) in ["0000\"", "000\"", "00\"", "0\""].into_iter().enumerate() {
        let byte = *input.get(at + have).ok_or(Cut::Owes(owes))?;
        let digit = char::from(byte).to_digit(16).ok_or(Cut::Bad(at + have))?;
        unit = unit << 4 | digit;
    }
    Ok(unit)
}

/// The first byte at or after `at` that is a quote, a backslash or a control byte: what ends a run of bytes that
/// a JSON string holds as they are, and what the canonical form escapes.
#[inline]
pub(crate) fn end_of_plain_run(input: &[u8], mut at: usize) -> usize {
    // Most strings are names and ids, which end within three words; contents go on in wider steps.
    let mut words = 3;
    while let Some(word) = word_at(input, at) {
        let special = special_bytes(word);
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
        words -= 1;
        if words == 0 {
            at = skip_plain_chunks(input, at);
            words = CHUNK / 8;
        }
    }
    while input.get(at).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
        at += 1;
    }
    at
}

/// Bytes that are looked at in one step where nothing special is near.
const CHUNK: usize = 32;

fn skip_plain_chunks(input: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = input.get(at..).and_then(<[u8]>::first_chunk::<CHUNK>)
        && is_plain(chunk)
    {
        at += CHUNK;
    }
    at
}

/// Written without branches, which the compiler turns into vector instructions.
#[inline]
fn is_plain(chunk: &[u8; CHUNK]) -> bool {
    let mut special = 0;
    for &byte in chunk {
        special |= u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
    }
    special == 0
}

/// The eight bytes at `at`, the first of them lowest.
#[inline]
pub(crate) fn word_at(input: &[u8], at: usize) -> Option<u64> {
    let chunk = input.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*chunk))
}

/// A word whose lowest set bit lies in the lowest byte of `word` that is special, or zero. Bits above it mean nothing:
/// a borrow may run upward from a byte that matched, never into the first one that did.
#[inline]
fn special_bytes(word: u64) -> u64 {
    let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
    bytes_equal(word, b'"') | bytes_equal(word, b'\\') | control
}

const ONES: u64 = u64::MAX / 0xff;
const TOPS: u64 = ONES << 7;

/// A word whose lowest set bit lies in the lowest byte of `word` that is `byte`, or zero.
#[inline]
pub(crate) fn bytes_equal(word: u64, byte: u8) -> u64 {
    let zero = word ^ (ONES * u64::from(byte));
    zero.wrapping_sub(ONES) & !zero & TOPS
}

fn scalar(input: &[u8], start: usize, first: u8) -> Result<(Scalar, usize), Cut> {
    match first {
        b'-' | b'0'..=b'9' => number(input, start).map(|end| (Scalar::Number, end)),
        b't' => literal(input, start, "true").map(|end| (Scalar::True, end)),
        b'f' => literal(input, start, "false").map(|end| (Scalar::False, end)),
        b'n' => literal(input, start, "null").map(|end| (Scalar::Null, end)),
        _ => Err(Cut::Bad(start)),
    }
}

fn literal(input: &[u8], start: usize, word: &'static str) -> Result<usize, Cut> {
    for (have, wanted) in word.bytes().enumerate() {
        match input.get(start + have) {
            Some(&byte) if byte == wanted => {}
            Some(_) => return Err(Cut::Bad(start + have)),
            None => return Err(Cut::Owes(&word[have..])),
        }
    }
    Ok(start + word.len())
}

/// A number, up to the first byte that does not continue it.
fn number(input: &[u8], start: usize) -> Result<usize, Cut> {
    let mut at = start + usize::from(input[start] == b'-');
    at = if input.get(at) == Some(&b'0') { at + 1 } else { digits(input, at)? };
    if input.get(at) == Some(&b'.') {
        at = digits(input, at + 1)?;
    }
    if let Some(b'e' | b'E') = input.get(at) {
        at += 1;
        at += usize::from(matches!(input.get(at), Some(b'+' | b'-')));
        at = digits(input, at)?;
    }
    Ok(at)
}

/// One digit or more.
fn digits(input: &[u8], start: usize) -> Result<usize, Cut> {
    match input.get(start) {
        None => return Err(Cut::Owes("0")),
        Some(byte) if !byte.is_ascii_digit() => return Err(Cut::Bad(start)),
        Some(_) => {}
    }
    let mut end = start + 1;
    while input.get(end).is_some_and(u8::is_ascii_digit) {
        end += 1;
    }
    Ok(end)
}
