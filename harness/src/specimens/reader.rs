//! How a session file is read and written: by the independent model, and by specimens that read or write it wrongly.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::EntryView;
use crate::model::{self, Message, Session};

use super::fail::Fail;

macro_rules! flaws {
    ($($name:ident, $words:literal;)*) => {
        /// One way to read or write the format wrongly.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum Flaw { $(#[doc = $words] $name,)* }
    };
}

flaws! {
    BadLinesSkipped, "A line that is not JSON is skipped.";
    StopsAtBadLine, "What stands before the first line that is not JSON is the session.";
    ZerosSkipped, "Runs of NUL bytes are skipped.";
    BlankLinesSkipped, "Blank lines are skipped.";
    ArrayTailDropped, "A cut-off array at the end is taken for a torn tail.";
    AnyTailDropped, "Whatever follows the last line feed is taken for a torn tail.";
    TailUnchecked, "A torn tail need not be UTF-8.";
    TailRefused, "A torn tail is refused.";
    ShallowTail, "A torn tail of many levels is refused.";
    WholeTailDropped, "A last line without its line feed is dropped although it is whole.";
    ReturnCounted, "The carriage return before a line feed counts towards the line.";
    SeparatorEndsLine, "U+2028 ends a line.";
    LossyText, "What is not UTF-8 becomes a replacement character.";
    LossyChunks, "Text is decoded in chunks, and a character at their edge is lost.";
    CharactersCounted, "A line's length is counted in characters.";
    LastDuplicateWins, "Of two entries with one id the last one counts.";
    LaterParents, "A parent may stand later in the file.";
    ParentsUnchecked, "An entry whose parent is not there becomes a root.";
    CallsAnywhere, "A tool result is satisfied by a call on any branch.";
    LinkageUnchecked, "Tool results are not compared with calls.";
    CallsOnceAFile, "A call id may occur once in the whole file.";
    UnknownFields, "Members that the format does not have are ignored.";
    AnyVersion, "The version is not looked at.";
    TextVersion, "A version may be written as a string.";
    BlankIds, "An id of white space is an id.";
    EmptyAnswersRefused, "An assistant's message without content is refused.";
    SecondHeaderSkipped, "A second header is skipped.";
    OneEntryLess, "The limit of entries is one less.";
    OneByteLess, "The limit of a line is one byte less.";
    FieldsSorted, "The members of a written entry are sorted.";
    SlashesEscaped, "Slashes are escaped when written.";
    ControlsUpper, "Control characters are escaped with upper-case digits.";
    TextEscaped, "Characters beyond ASCII are escaped when written.";
    LinesEndInReturn, "Lines are written with a carriage return.";
    LastLineOpen, "The last line feed is not written.";
}

/// A session as it was read.
pub(super) struct Read {
    pub(super) session: Session,
    /// What is shown in place of its entries.
    pub(super) shown: Option<Vec<EntryView>>,
}

/// Reads a file, with a flaw or as the model does.
pub(super) fn read(bytes: &[u8], flaw: Option<Flaw>) -> Result<Read, Fail> {
    let session = match flaw {
        None => load(bytes)?,
        Some(flaw) => {
            flaw.refuses(bytes)?;
            match load(&flaw.before(bytes)) {
                Ok(session) => session,
                Err(fail) => return flaw.leniently(bytes, fail),
            }
        }
    };
    Ok(Read { session, shown: None })
}

/// The model is slow and the same few files turn up again and again, so what it said of one is kept.
fn load(bytes: &[u8]) -> Result<Session, Fail> {
    const MOST_KEPT: usize = 128;
    thread_local! {
        static KEPT: RefCell<HashMap<Vec<u8>, Result<Session, model::Refusal>>> = RefCell::default();
    }
    let read = KEPT.with_borrow_mut(|kept| {
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.entry(bytes.to_vec()).or_insert_with(|| model::load(bytes)).clone()
    });
    read.map_err(|refusal| {
        let fail = Fail::new(refusal.code, "the file does not load");
        match refusal.line {
            Some(line) => fail.in_line(line),
            None => fail,
        }
    })
}

const LINE_LIMIT: usize = 65_536;
const ENTRY_LIMIT: usize = 4_096;
const CHUNK: usize = 4_096;
const DEEPEST: usize = 128;

impl Flaw {
    /// What is refused although it is right.
    fn refuses(self, bytes: &[u8]) -> Result<(), Fail> {
        let refused = |code: &str| Err(Fail::new(code, "the file does not load"));
        let tail = tail_of(bytes);
        let is_torn = !tail.is_empty() && !is_json(tail);
        match self {
            Flaw::TailRefused if is_torn => refused("SESSION_INVALID_JSON"),
            Flaw::ShallowTail if is_torn && depth(tail) > DEEPEST => refused("SESSION_INVALID_JSON"),
            Flaw::ReturnCounted if lines(bytes).any(|line| line.len() > LINE_LIMIT) => {
                refused("SESSION_LINE_TOO_LARGE")
            }
            Flaw::OneByteLess if lines(bytes).any(|line| line.len() == LINE_LIMIT) => {
                refused("SESSION_LINE_TOO_LARGE")
            }
            Flaw::OneEntryLess if lines(bytes).count() > ENTRY_LIMIT => refused("SESSION_RECORD_LIMIT"),
            Flaw::EmptyAnswersRefused if contains(bytes, b"\"content\":[]") => {
                refused("SESSION_INVALID_MESSAGE")
            }
            Flaw::CallsOnceAFile if calls_repeat(bytes) => refused("SESSION_INVALID_TOOL_LINKAGE"),
            _ => Ok(()),
        }
    }

    /// What the model is given in place of the file.
    fn before(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        let kept = |keep: &dyn Fn(&[u8]) -> bool| Cow::Owned(only(bytes, keep));
        match self {
            Flaw::BadLinesSkipped => kept(&is_json),
            Flaw::BlankLinesSkipped => kept(&|line| !line.trim_ascii().is_empty()),
            Flaw::StopsAtBadLine => {
                let good: usize = bytes
                    .split_inclusive(|byte| *byte == b'\n')
                    .take_while(|line| is_json(line))
                    .map(<[u8]>::len)
                    .sum();
                Cow::Borrowed(&bytes[..good])
            }
            Flaw::ZerosSkipped => Cow::Owned(bytes.iter().copied().filter(|byte| *byte != 0).collect()),
            Flaw::ArrayTailDropped if tail_of(bytes).starts_with(b"[") && !is_json(tail_of(bytes)) => {
                without_tail(bytes)
            }
            Flaw::AnyTailDropped if !is_json(tail_of(bytes)) => without_tail(bytes),
            Flaw::TailUnchecked if std::str::from_utf8(tail_of(bytes)).is_err() => without_tail(bytes),
            Flaw::WholeTailDropped => without_tail(bytes),
            Flaw::SeparatorEndsLine => Cow::Owned(replaced(bytes, "\u{2028}".as_bytes(), b"\n")),
            Flaw::LossyText => Cow::Owned(String::from_utf8_lossy(bytes).into_owned().into_bytes()),
            Flaw::LossyChunks => {
                Cow::Owned(bytes.chunks(CHUNK).map(String::from_utf8_lossy).collect::<String>().into_bytes())
            }
            Flaw::LastDuplicateWins => Cow::Owned(last_of_each_id(bytes)),
            Flaw::SecondHeaderSkipped => {
                let mut seen = false;
                Cow::Owned(only_mut(bytes, |line| {
                    let is_header = contains(line, b"\"type\":\"session\"");
                    !is_header || !std::mem::replace(&mut seen, true)
                }))
            }
            Flaw::AnyVersion => Cow::Owned(with_version_one(bytes, |_| true)),
            Flaw::TextVersion => Cow::Owned(with_version_one(bytes, |version| version == "\"1\"")),
            _ => Cow::Borrowed(bytes),
        }
    }

    /// What is shown although the model refuses.
    fn leniently(self, bytes: &[u8], fail: Fail) -> Result<Read, Fail> {
        let code = fail.refusal().map_or("", |refusal| refusal.code.as_str());
        let excused = match self {
            Flaw::LaterParents | Flaw::ParentsUnchecked => "SESSION_PARENT_NOT_FOUND",
            Flaw::CallsAnywhere | Flaw::LinkageUnchecked => "SESSION_INVALID_TOOL_LINKAGE",
            Flaw::UnknownFields | Flaw::BlankIds => "SESSION_INVALID_RECORD",
            Flaw::CharactersCounted => "SESSION_LINE_TOO_LARGE",
            _ => return Err(fail),
        };
        if code != excused {
            return Err(fail);
        }
        match self.loosely(bytes) {
            Some(read) => Ok(read),
            None => Err(fail),
        }
    }

    /// The entries one by one, with no check between them but the flaw's own.
    fn loosely(self, bytes: &[u8]) -> Option<Read> {
        let mut lines = lines(bytes);
        let header = lines.next()?;
        let session = model::load(&[header, b"\n"].concat()).ok()?;
        let mut shown: Vec<EntryView> = Vec::new();
        for line in lines {
            let line = std::str::from_utf8(line).ok()?;
            if self == Flaw::CharactersCounted && line.chars().count() > LINE_LIMIT {
                return None;
            }
            let loose: Loose<'_> = serde_json::from_str(line).ok()?;
            let message = Message::read(loose.message.get()).ok()?.encode();
            let (id, parent_id) = (loose.id, loose.parent_id);
            shown.push(EntryView { id, parent_id, timestamp: loose.timestamp, message });
        }
        let is_there = |id: &String| shown.iter().any(|entry| entry.id == *id);
        let is_known = |entry: &EntryView| entry.parent_id.as_ref().is_none_or(is_there);
        match self {
            Flaw::LaterParents if !shown.iter().all(is_known) => return None,
            Flaw::CallsAnywhere if !every_result_has_a_call(bytes) => return None,
            Flaw::ParentsUnchecked => {
                let known: Vec<bool> = shown.iter().map(is_known).collect();
                for (entry, known) in shown.iter_mut().zip(known) {
                    if !known {
                        entry.parent_id = None;
                    }
                }
            }
            _ => {}
        }
        Some(Read { session, shown: Some(shown) })
    }

    /// The bytes of a generation.
    pub(super) fn written(self, session: &Session) -> Vec<u8> {
        let file = session.file();
        match self {
            Flaw::FieldsSorted => {
                let mut out = Vec::new();
                for line in lines(file) {
                    let mut value: Value = serde_json::from_slice(line).unwrap_or_default();
                    value.sort_all_objects();
                    out.extend_from_slice(value.to_string().as_bytes());
                    out.push(b'\n');
                }
                out
            }
            Flaw::SlashesEscaped => replaced(file, b"/", b"\\/"),
            Flaw::ControlsUpper => {
                let text = String::from_utf8_lossy(file);
                let mut parts = text.split("\\u");
                let mut out = parts.next().unwrap_or_default().to_owned();
                for part in parts {
                    let (digits, rest) = part.split_at(part.len().min(4));
                    out.extend(["\\u", &digits.to_uppercase(), rest]);
                }
                out.into_bytes()
            }
            Flaw::TextEscaped => {
                let mut out = String::new();
                for character in String::from_utf8_lossy(file).chars() {
                    if character.is_ascii() {
                        out.push(character);
                    } else {
                        let mut units = [0; 2];
                        let units = character.encode_utf16(&mut units);
                        out.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
                    }
                }
                out.into_bytes()
            }
            Flaw::LinesEndInReturn => replaced(file, b"\n", b"\r\n"),
            Flaw::LastLineOpen => file.strip_suffix(b"\n").unwrap_or(file).to_vec(),
            _ => file.to_vec(),
        }
    }
}

#[derive(Deserialize)]
struct Loose<'a> {
    id: String,
    #[serde(rename = "parentId")]
    parent_id: Option<String>,
    timestamp: String,
    #[serde(borrow)]
    message: &'a RawValue,
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

/// Each line without its line feed; nothing for an empty end.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// What follows the last line feed.
fn tail_of(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &bytes[start..]
}

fn without_tail(bytes: &[u8]) -> Cow<'_, [u8]> {
    Cow::Borrowed(&bytes[..bytes.len() - tail_of(bytes).len()])
}

fn depth(tail: &[u8]) -> usize {
    tail.iter().filter(|byte| matches!(byte, b'[' | b'{')).count()
}

/// The lines to keep; what follows the last line feed always stays.
fn only(bytes: &[u8], keep: &dyn Fn(&[u8]) -> bool) -> Vec<u8> {
    only_mut(bytes, keep)
}

fn only_mut(bytes: &[u8], mut keep: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| !line.ends_with(b"\n") || keep(line)).flatten().copied().collect()
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if let Some(after) = rest.strip_prefix(from) {
            out.extend_from_slice(to);
            rest = after;
        } else {
            out.push(*first);
            rest = &rest[1..];
        }
    }
    out
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn last_of_each_id(bytes: &[u8]) -> Vec<u8> {
    let id = |line: &[u8]| serde_json::from_slice::<Loose<'_>>(line).ok().map(|loose| loose.id);
    let all: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let ids: Vec<Option<String>> = all.iter().map(|line| id(line)).collect();
    let is_last = |at: usize| ids[at].is_none() || !ids[at + 1..].contains(&ids[at]);
    (0..all.len()).filter(|at| is_last(*at)).flat_map(|at| all[at]).copied().collect()
}

/// The file with the versions that are `meant` written as 1.
fn with_version_one(bytes: &[u8], meant: impl Fn(&str) -> bool) -> Vec<u8> {
    #[derive(Deserialize)]
    struct Versioned<'a> {
        #[serde(borrow)]
        version: &'a RawValue,
    }
    let mut out = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice::<Versioned<'_>>(line) {
            Ok(Versioned { version }) if meant(version.get()) => {
                let found = format!("\"version\":{}", version.get());
                out.extend(replaced(line, found.as_bytes(), b"\"version\":1"));
            }
            _ => out.extend_from_slice(line),
        }
    }
    out
}

/// Ids of tool calls, in the order of the file.
fn calls(bytes: &[u8]) -> Vec<String> {
    let messages = lines(bytes).filter_map(|line| {
        let loose = serde_json::from_slice::<Loose<'_>>(line).ok()?;
        Message::read(loose.message.get()).ok()
    });
    messages.flat_map(|message| message.calls().map(|(id, _)| id.to_owned()).collect::<Vec<_>>()).collect()
}

fn calls_repeat(bytes: &[u8]) -> bool {
    let mut ids = calls(bytes);
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    ids.len() < count
}

fn every_result_has_a_call(bytes: &[u8]) -> bool {
    let ids = calls(bytes);
    let messages = lines(bytes).filter_map(|line| {
        let loose = serde_json::from_slice::<Loose<'_>>(line).ok()?;
        Message::read(loose.message.get()).ok()
    });
    messages.into_iter().all(|message| message.answers().is_none_or(|id| ids.iter().any(|known| known == id)))
}
