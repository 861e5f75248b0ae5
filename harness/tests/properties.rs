//! The store against the independent model, on random trees, files and sequences of operations.

#[path = "../../core/tests/support/seeded.rs"]
mod seeded;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::iter::zip;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use session_harness::model;
use session_tree::file_ops::OsFileOps;
use session_tree::{Entries, Entry, Message, Options, Store, Tree, decode};
use tempfile::TempDir;

// ---------------------------------------------------------------- files

/// What a loader makes of the bytes of a file.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Refused { code: String, line: Option<usize> },
    Accepted { header: String, entries: Vec<String>, torn_tail: usize, canonical: bool },
}

fn judged_by_core(file: &[u8]) -> Judged {
    match decode(file.to_vec()) {
        Ok(decoded) => Judged::Accepted {
            header: decoded.header().to_json(),
            entries: jsons(decoded.entries()),
            torn_tail: decoded.torn_tail(),
            canonical: decoded.canonical(),
        },
        Err(error) => {
            let line = error.position().map(|position| position.line);
            Judged::Refused { code: error.code().as_str().to_owned(), line }
        }
    }
}

fn judged_by_model(file: &[u8]) -> Judged {
    match model::load(file) {
        Ok(session) => {
            let canonical = session.encode();
            let text = String::from_utf8(canonical.clone()).expect("the model writes text");
            let mut lines: Vec<_> = text.split_terminator('\n').map(str::to_owned).collect();
            Judged::Accepted {
                header: lines.remove(0),
                entries: lines,
                torn_tail: session.torn_tail(),
                canonical: canonical == file,
            }
        }
        Err(refusal) => Judged::Refused { code: refusal.code.to_owned(), line: refusal.line },
    }
}

fn jsons(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(Entry::to_json).collect()
}

/// Every line of the file is the header, an entry, or ignored under the rule of torn tails: nothing is skipped.
fn accounts_for_every_line(file: &[u8], judged: &Judged) -> bool {
    let Judged::Accepted { entries, torn_tail, .. } = judged else { return true };
    let (whole, torn) = file.split_at(file.len() - torn_tail);
    let lines = whole.split_inclusive(|byte| *byte == b'\n').count();
    let torn_is_last = torn.is_empty() || whole.ends_with(b"\n") && !torn.contains(&b'\n');
    torn_is_last && entries.len() + 1 == lines
}

fn check_file(file: &[u8]) -> Result<Judged, TestCaseError> {
    let judged = judged_by_core(file);
    prop_assert_eq!(&judged, &judged_by_model(file), "{}", String::from_utf8_lossy(file));
    prop_assert!(accounts_for_every_line(file, &judged), "{}", String::from_utf8_lossy(file));
    Ok(judged)
}

// ---------------------------------------------------------------- inputs

fn text() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "a",
        "word ",
        "\"",
        "\\",
        "/",
        "\n",
        "\r",
        "\t",
        "\u{8}",
        "\u{c}",
        "\0",
        "\u{1f}",
        "\u{7f}",
        "\u{85}",
        "é",
        "e\u{301}",
        "\u{2028}",
        "\u{feff}",
        "שלום",
        "漢",
        "🙂",
        "👩‍💻",
        "}",
        "{\"",
        "\\u00",
    ];
    vec(select(PIECES), 0..5).prop_map(|pieces| pieces.concat())
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}

fn message() -> impl Strategy<Value = String> {
    const INVALID: &[&str] = &[
        r#"{"id":"m","role":"user"}"#,
        r#"{"id":" ","role":"user","content":""}"#,
        r#"{"id":"m","role":"user","content":"\ud800"}"#,
        r#"{"id":"m","role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"a":1,"a":1}}]}"#,
        "[]",
        "{",
    ];
    prop_oneof![
        4 => text().prop_map(|text| format!(r#"{{"id":"m","role":"user","content":{}}}"#, quoted(&text))),
        5 => vec(block(), 0..3).prop_map(|blocks| assistant(&blocks)),
        6 => (call_id(), tool(), text(), any::<bool>())
            .prop_map(|(id, name, text, is_error)| tool_result(id, name, &text, is_error)),
        1 => select(INVALID).prop_map(str::to_owned),
    ]
}

fn block() -> impl Strategy<Value = String> {
    const ARGUMENTS: &[&str] = &[
        "{}",
        r#"{"path":"src/lib.rs","line":12}"#,
        r#" { "b" : [ 1.50 , -0 , 1e400 ] , "a" : { "b" : null } } "#,
        r#"{"deep":[[[[{"x":[]}]]]],"escaped":"\u00e9\/\ud83d\ude42\u001F"}"#,
    ];
    prop_oneof![
        text().prop_map(|text| format!(r#"{{"type":"text","text":{}}}"#, quoted(&text))),
        (call_id(), tool(), select(ARGUMENTS))
            .prop_map(|(id, name, arguments)| tool_call(id, name, arguments)),
    ]
}

/// Few, so that they meet.
fn call_id() -> impl Strategy<Value = &'static str> {
    select(&["c0", "c1", "c2", "c3"][..])
}

fn tool() -> impl Strategy<Value = &'static str> {
    prop_oneof![5 => Just("bash"), 1 => Just("read")]
}

fn assistant(blocks: &[String]) -> String {
    format!(r#"{{"id":"m","role":"assistant","content":[{}]}}"#, blocks.join(","))
}

fn tool_call(id: &str, name: &str, arguments: &str) -> String {
    format!(r#"{{"type":"toolCall","id":"{id}","name":"{name}","arguments":{arguments}}}"#)
}

fn tool_result(id: &str, name: &str, text: &str, is_error: bool) -> String {
    format!(
        r#"{{"id":"m","role":"toolResult","toolCallId":"{id}","toolName":"{name}","content":{},"isError":{is_error}}}"#,
        quoted(text)
    )
}

fn entry_line(id: usize, parent: Option<usize>, message: &str) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"e{parent}\""));
    format!(
        "{{\"type\":\"entry\",\"version\":1,\"id\":\"e{id}\",\"parentId\":{parent},\"timestamp\":\"t\",\"message\":{message}}}\n"
    )
}

fn header_line() -> String {
    "{\"type\":\"session\",\"version\":1,\"id\":\"s\",\"createdAt\":\"t\"}\n".to_owned()
}

/// Below which entry something goes: none, one of those there are, or one that is not there.
#[derive(Debug, Clone)]
enum Place {
    Root,
    Last,
    At(Index),
    Unknown(&'static str),
}

impl Place {
    fn id(&self, session: &model::Session) -> Option<String> {
        let entries = session.entries();
        match self {
            Place::Root => None,
            Place::Last => entries.last().map(|entry| entry.id.clone()),
            Place::At(_) if entries.is_empty() => None,
            Place::At(index) => Some(index.get(entries).id.clone()),
            Place::Unknown(id) => Some((*id).to_owned()),
        }
    }
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        1 => Just(Place::Root),
        6 => Just(Place::Last),
        6 => any::<Index>().prop_map(Place::At),
        1 => select(&["nobody", "", " "][..]).prop_map(Place::Unknown),
    ]
}

/// A valid session: whatever of the steps is not refused.
fn session() -> impl Strategy<Value = model::Session> {
    vec((place(), message(), text()), 0..14).prop_map(|steps| {
        let mut session =
            model::Session::create("session", "2026-01-01T00:00:00.000Z").expect("a valid header");
        for (index, (place, message, timestamp)) in steps.into_iter().enumerate() {
            let (id, timestamp) = (format!("e{index}"), format!("t{timestamp}"));
            let parent = place.id(&session);
            let drawn = model::Drawn { id: Some(&id), timestamp: Some(&timestamp) };
            // A refused step leaves the session as it was.
            let _ = session.append(parent.as_deref(), &message, drawn);
        }
        session
    })
}

// ---------------------------------------------------------------- decoding

proptest! {
    #![proptest_config(seeded::cases(300))]

    // Requirement: F8, R1, R2, R3
    #[test]
    fn canonical_files_decode_to_what_was_written(session in session()) {
        let accepted = check_file(&session.encode())?;
        let canonical = matches!(accepted, Judged::Accepted { canonical: true, torn_tail: 0, .. });
        prop_assert!(canonical);
    }

    // Requirement: F1, F3, F8
    #[test]
    fn loose_spelling_decodes_to_the_same_session(session in session(), seed in any::<u64>()) {
        let plain = check_file(&session.encode())?;
        let loose = check_file(&loosened(&session, seed))?;
        let same = match (plain, loose) {
            (
                Judged::Accepted { header: plain_header, entries: plain_entries, .. },
                Judged::Accepted { header, entries, torn_tail: 0, .. },
            ) => header == plain_header && entries == plain_entries,
            _ => false,
        };
        prop_assert!(same);
    }

    // Requirement: F7, R5, L1, L2, L3, L4, L5
    #[test]
    fn unchecked_histories_are_judged_as_the_model_judges_them(
        lines in vec((0..9_usize, proptest::option::weighted(0.7, 0..9_usize), message()), 0..12),
    ) {
        let mut file = header_line();
        for (id, parent, message) in lines {
            file.push_str(&entry_line(id, parent, &message));
        }
        check_file(file.as_bytes())?;
    }

    // Requirement: F3, F4, F5, F6
    #[test]
    fn tails_are_judged_as_the_model_judges_them(session in session(), tail in tail(), terminated in any::<bool>()) {
        let mut file = session.encode();
        file.extend_from_slice(tail.as_bytes());
        if terminated {
            file.push(b'\n');
        }
        check_file(&file)?;
        check_file(tail.as_bytes())?;
    }
}

proptest! {
    #![proptest_config(seeded::cases(150))]

    /// What is refused is put as a plain message instead, so that branches grow long.
    // Requirement: L1, L2, L3, L4
    #[test]
    fn linkage_along_random_branches_is_the_naive_definition(
        steps in vec((0..4_usize, linked_message()), 1..30),
    ) {
        let mut file = header_line();
        for (index, (back, message)) in steps.into_iter().enumerate() {
            let parent = index.checked_sub(back + 1);
            let tried = format!("{file}{}", entry_line(index, parent, &message));
            file = match check_file(tried.as_bytes())? {
                Judged::Accepted { .. } => tried,
                Judged::Refused { code, line } => {
                    prop_assert_eq!((code.as_str(), line), ("SESSION_INVALID_TOOL_LINKAGE", Some(index + 2)));
                    format!("{file}{}", entry_line(index, parent, r#"{"id":"m","role":"user","content":""}"#))
                }
            };
        }
    }
}

fn linked_message() -> impl Strategy<Value = String> {
    let calls = vec(call_id(), 1..3).prop_map(|ids| {
        let calls: Vec<_> = ids.into_iter().map(|id| tool_call(id, "bash", "{}")).collect();
        assistant(&calls)
    });
    prop_oneof![calls, (call_id(), tool()).prop_map(|(id, name)| tool_result(id, name, "", false))]
}

/// Pieces of JSON in any order, and objects cut anywhere.
fn tail() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\\", "\\u", "\\n", "00", "d8", "tr", "ue", "true",
        "null", "nul", "-", "0", "1", ".", "e", "+", " ", "\t", "\r", "\u{1}", "é", "\u{feff}", "\u{2028}",
        "x",
    ];
    const WHOLE: &str = r#"{"a\u00e9\n":[-1.5e+10,true,false,null,{},[],"x\"\\y"],"b":{"c":[0,{"d":1E5}]}}"#;
    let soup = || vec(select(PIECES), 0..9).prop_map(|pieces| pieces.concat());
    prop_oneof![
        soup(),
        soup().prop_map(|soup| format!("{{{soup}")),
        soup().prop_map(|soup| format!("{{\"a\":{soup}")),
        soup().prop_map(|soup| format!("{{\"a\":[{soup}")),
        (0..=WHOLE.len(), soup()).prop_map(|(cut, soup)| format!("{}{soup}", &WHOLE[..cut])),
    ]
}

/// The same session with members in another order, white space between tokens, escapes where none is needed,
/// versions spelled as decimals, and carriage returns before line feeds.
fn loosened(session: &model::Session, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let header = session.header();
    let version = *rng.choice(&["1", "1.0", "10e-1", "0.1E+1"]).expect("four spellings");
    let mut records = vec![vec![
        ("type", quoted("session")),
        ("version", version.to_owned()),
        ("id", quoted(&header.id)),
        ("createdAt", quoted(&header.created_at)),
    ]];
    records.extend(session.entries().iter().map(|entry| {
        vec![
            ("type", quoted("entry")),
            ("version", version.to_owned()),
            ("id", quoted(&entry.id)),
            ("parentId", entry.parent.as_ref().map_or("null".to_owned(), |parent| quoted(parent))),
            ("timestamp", quoted(&entry.timestamp)),
            ("message", entry.message.encode()),
        ]
    }));
    let mut file = String::new();
    for mut members in records {
        rng.shuffle(&mut members);
        let members: Vec<_> =
            members.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
        file.push_str(&respelled(&format!("{{{}}}", members.join(",")), &mut rng));
        file.push_str(if rng.bool() { "\n" } else { "\r\n" });
    }
    if rng.bool() {
        file.pop();
    }
    file.into_bytes()
}

fn respelled(json: &str, rng: &mut fastrand::Rng) -> String {
    let mut out = String::new();
    let mut in_string = false;
    // Characters that belong to an escape, and so stay as they are.
    let mut verbatim = 0;
    for character in json.chars() {
        if verbatim > 0 {
            verbatim =
                if character == 'u' && verbatim == 1 && out.ends_with('\\') { 4 } else { verbatim - 1 };
            out.push(character);
            continue;
        }
        match character {
            '"' => in_string = !in_string,
            '\\' => verbatim = 1,
            _ if in_string && rng.u8(..8) == 0 => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04X}").expect("a string takes all");
                }
                continue;
            }
            '{' | '}' | '[' | ']' | ':' | ',' if !in_string && rng.u8(..4) == 0 => {
                out.push_str([" ", "\t", "  "][rng.usize(..3)]);
            }
            _ => {}
        }
        out.push(character);
    }
    out
}

// ---------------------------------------------------------------- damage

/// Something that happens to a file.
#[derive(Debug, Clone)]
enum Damage {
    Change(Index, u8),
    Flip(Index, u8),
    Remove(Index),
    Insert(Index, Vec<u8>),
    Cut(Index),
    Double(Index),
    Drop(Index),
    Swap(Index, Index),
    Copy(Index, Index, Index),
}

impl Damage {
    fn strike(&self, file: &mut Vec<u8>) {
        match self {
            Damage::Insert(at, bytes) => {
                let at = at.index(file.len() + 1);
                file.splice(at..at, bytes.iter().copied());
            }
            _ if file.is_empty() => {}
            Damage::Change(at, to) => *at.get_mut(file) = *to,
            Damage::Flip(at, bit) => *at.get_mut(file) ^= 1 << (bit % 8),
            Damage::Remove(at) => {
                file.remove(at.index(file.len()));
            }
            Damage::Cut(at) => file.truncate(at.index(file.len())),
            Damage::Copy(from, to, length) => {
                let from = from.index(file.len());
                let taken = file[from..file.len().min(from + length.index(40))].to_vec();
                let to = to.index(file.len());
                file.splice(to..to, taken);
            }
            Damage::Double(_) | Damage::Drop(_) | Damage::Swap(..) => self.strike_lines(file),
        }
    }

    fn strike_lines(&self, file: &mut Vec<u8>) {
        let mut lines: Vec<_> = file.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        match self {
            Damage::Double(at) => {
                let doubled = at.get(&lines).clone();
                lines.insert(at.index(lines.len()), doubled);
            }
            Damage::Drop(at) => {
                lines.remove(at.index(lines.len()));
            }
            Damage::Swap(one, other) => {
                let (one, other) = (one.index(lines.len()), other.index(lines.len()));
                lines.swap(one, other);
            }
            _ => {}
        }
        *file = lines.concat();
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    const BYTES: &[u8] = b"\"\\{}[]:,\n\r\t 019-.eEtn\0\x1f\x7f\x80\xc3\xff";
    let byte = || prop_oneof![3 => select(BYTES), 1 => any::<u8>()];
    let at = any::<Index>;
    prop_oneof![
        6 => (at(), byte()).prop_map(|(at, to)| Damage::Change(at, to)),
        4 => (at(), any::<u8>()).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        3 => at().prop_map(Damage::Remove),
        4 => (at(), vec(byte(), 1..4)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        3 => at().prop_map(Damage::Cut),
        1 => at().prop_map(Damage::Double),
        2 => at().prop_map(Damage::Drop),
        2 => (at(), at()).prop_map(|(one, other)| Damage::Swap(one, other)),
        2 => (at(), at(), at()).prop_map(|(from, to, length)| Damage::Copy(from, to, length)),
    ]
}

proptest! {
    #![proptest_config(seeded::cases(1_000))]

    // Requirement: F1, F2, F3, F4, F6, F7, R1, R2, R3, R4, R5, L5
    #[test]
    fn damaged_files_give_what_the_model_gives_and_nothing_is_skipped(
        session in session(),
        seed in proptest::option::of(any::<u64>()),
        damages in vec(damage(), 1..4),
    ) {
        let mut file = seed.map_or_else(|| session.encode(), |seed| loosened(&session, seed));
        for damage in &damages {
            damage.strike(&mut file);
            check_file(&file)?;
        }
    }
}

proptest! {
    #![proptest_config(seeded::cases(300))]

    // Requirement: F2, F4, F5, F6
    #[test]
    fn a_cut_file_shows_a_prefix_or_is_refused(session in session(), at in any::<Index>()) {
        let mut file = session.encode();
        let Judged::Accepted { header, entries, .. } = check_file(&file)? else {
            return Err(TestCaseError::fail("a valid session is refused"));
        };
        file.truncate(at.index(file.len()));
        match check_file(&file)? {
            Judged::Accepted { header: cut_header, entries: cut_entries, .. } => {
                prop_assert_eq!(cut_header, header);
                prop_assert!(entries.starts_with(&cut_entries));
            }
            // Cut inside a character, or inside the header, so that there is no session to show.
            Judged::Refused { code, line } => {
                let last = file.split(|byte| *byte == b'\n').count();
                let wanted = match std::str::from_utf8(&file) {
                    Ok(_) => ("SESSION_INVALID_HEADER", Some(1)),
                    Err(_) => ("SESSION_INVALID_UTF8", Some(last)),
                };
                prop_assert_eq!((code.as_str(), line), wanted);
                prop_assert!(last == 1 || wanted.0 == "SESSION_INVALID_UTF8");
            }
        }
    }
}

const SMALL: &str = concat!(
    r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#,
    "\n",
    r#"{"type":"entry","version":1,"id":"a","parentId":null,"timestamp":"t","message":{"id":"m","role":"user","content":"é\n\u0001"}}"#,
    "\n",
    r#"{"type":"entry","version":1,"id":"b","parentId":"a","timestamp":"t","message":{"id":"m","role":"assistant","content":[{"type":"text","text":""},{"type":"toolCall","id":"c","name":"n","arguments":{"k":[-1.5e+3,true,null]}}]}}"#,
    "\n",
    r#"{"type":"entry","version":1,"id":"d","parentId":"b","timestamp":"t","message":{"id":"m","role":"toolResult","toolCallId":"c","toolName":"n","content":"","isError":false}}"#,
    "\n",
);

fn check_small(file: &[u8]) {
    if let Err(error) = check_file(file) {
        panic!("{error}");
    }
}

// Requirement: F1, F2, F3, F4, F6, F7
#[test]
fn every_single_edit_of_a_small_file_is_judged_as_the_model_judges_it() {
    let file = SMALL.as_bytes();
    for at in 0..=file.len() {
        let (before, after) = file.split_at(at);
        check_small(before);
        check_small(&[before, after.get(1..).unwrap_or_default()].concat());
        for byte in *b"\"\\{}[],:\n\r 0a-\x01\x80" {
            check_small(&[before, &[byte], after].concat());
            check_small(&[before, &[byte], after.get(1..).unwrap_or_default()].concat());
        }
    }
}

// Requirement: F7, R5, R6, L5
#[test]
fn every_order_of_a_small_files_lines_is_judged_as_the_model_judges_it() {
    let lines: Vec<_> = SMALL.split_inclusive('\n').collect();
    // All sequences of up to five of the four lines, repetitions and omissions included.
    let mut sequences = vec![String::new()];
    let mut checked = 0;
    for _ in 0..=5 {
        for file in &sequences {
            check_small(file.as_bytes());
            checked += 1;
        }
        sequences =
            sequences.iter().flat_map(|file| lines.iter().map(move |line| format!("{file}{line}"))).collect();
    }
    assert_eq!(checked, 1 + 4 + 16 + 64 + 256 + 1_024);
}

// ---------------------------------------------------------------- operations

/// What the factories will give (none: they panic), and whether they were asked.
#[derive(Debug, Default)]
struct Draws {
    id: Option<String>,
    timestamp: Option<String>,
    drew_id: bool,
    drew_timestamp: bool,
}

#[derive(Debug, Clone)]
enum Op {
    Append {
        place: Place,
        message: String,
        id: Draw,
        timestamp: Draw,
    },
    TreeAppend {
        tree: usize,
        message: String,
        id: Draw,
        timestamp: Draw,
    },
    MoveTo {
        tree: usize,
        place: Place,
    },
    NewTree {
        tree: usize,
    },
    Flush,
    /// After something was left at the end of the file.
    Reload {
        tail: &'static str,
    },
}

#[derive(Debug, Clone)]
enum Draw {
    Fresh,
    Known(Index),
    Blank(&'static str),
    Panic,
}

impl Draw {
    fn value(&self, fresh: String, session: &model::Session) -> Option<String> {
        match self {
            Draw::Known(index) if !session.entries().is_empty() => {
                Some(index.get(session.entries()).id.clone())
            }
            Draw::Fresh | Draw::Known(_) => Some(fresh),
            Draw::Blank(text) => Some((*text).to_owned()),
            Draw::Panic => None,
        }
    }
}

fn draw() -> impl Strategy<Value = Draw> {
    prop_oneof![
        20 => Just(Draw::Fresh),
        1 => any::<Index>().prop_map(Draw::Known),
        1 => select(&["", " \t", "\u{a0}", "\u{feff}"][..]).prop_map(Draw::Blank),
        1 => Just(Draw::Panic),
    ]
}

const TREES: usize = 3;

fn op() -> impl Strategy<Value = Op> {
    const TAILS: &[&str] =
        &["", "{", "{\"type\":\"entry\",\"id\":\"cut", " {\"a\":1\r", "not-json", "\u{2028}", "{}", "\n"];
    prop_oneof![
        8 => (place(), message(), draw(), draw())
            .prop_map(|(place, message, id, timestamp)| Op::Append { place, message, id, timestamp }),
        12 => (0..TREES, message(), draw(), draw())
            .prop_map(|(tree, message, id, timestamp)| Op::TreeAppend { tree, message, id, timestamp }),
        8 => (0..TREES, place()).prop_map(|(tree, place)| Op::MoveTo { tree, place }),
        1 => (0..TREES).prop_map(|tree| Op::NewTree { tree }),
        2 => Just(Op::Flush),
        2 => select(TAILS).prop_map(|tail| Op::Reload { tail }),
    ]
}

/// A store on a real disk beside the model of it.
struct World {
    _dir: TempDir,
    path: PathBuf,
    draws: Arc<Mutex<Draws>>,
    store: Store,
    trees: Vec<Tree>,
    session: model::Session,
    model_trees: Vec<model::Tree>,
    steps: usize,
}

type AppendCall = Box<dyn FnOnce(Message) -> session_tree::Result<Entry>>;

impl World {
    fn new() -> World {
        let dir = TempDir::new().expect("a temporary directory");
        let path = dir.path().join("session.jsonl");
        let draws = Arc::new(Mutex::new(Draws { timestamp: Some("created".to_owned()), ..Draws::default() }));
        let store = Store::create_with(OsFileOps::new(), &path, options(&draws)).expect("a new session");
        let session = model::Session::create("session", "created").expect("a valid header");
        let mut world = World {
            _dir: dir,
            path,
            draws,
            store,
            trees: Vec::new(),
            session,
            model_trees: Vec::new(),
            steps: 0,
        };
        world.plant_trees();
        world
    }

    fn run(ops: &[Op]) -> Result<World, TestCaseError> {
        let mut world = World::new();
        for op in ops {
            world.step(op)?;
        }
        Ok(world)
    }

    /// Does the same to both, and compares answers and states.
    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.steps += 1;
        match op {
            Op::Append { place, message, id, timestamp } => {
                let parent = place.id(&self.session);
                self.append(message, id, timestamp, |world, drawn| {
                    let wanted = world.session.append(parent.as_deref(), message, drawn);
                    let store = world.store.clone();
                    (wanted, Box::new(move |message| store.append(parent.as_deref(), message)))
                })?;
            }
            Op::TreeAppend { tree, message, id, timestamp } => {
                self.append(message, id, timestamp, |world, drawn| {
                    let wanted = world.model_trees[*tree].append(&mut world.session, message, drawn);
                    let tree = world.trees[*tree].clone();
                    (wanted, Box::new(move |message| tree.append(message)))
                })?;
            }
            Op::MoveTo { tree, place } => {
                let id = place.id(&self.session);
                let wanted = self.model_trees[*tree].move_to(&self.session, id.as_deref());
                let answer = self.trees[*tree].move_to(id.as_deref());
                prop_assert_eq!(answer.map_err(|error| error.code().as_str()), wanted);
            }
            Op::NewTree { tree } => {
                self.trees[*tree] = self.store.tree();
                self.model_trees[*tree] = self.session.tree();
            }
            Op::Flush => {
                let answer = self.store.flush().map_err(|error| error.code().as_str());
                prop_assert_eq!(answer, self.session.flush());
            }
            Op::Reload { tail } => self.reload(tail)?,
        }
        self.compare()
    }

    fn append(
        &mut self,
        message: &str,
        id: &Draw,
        timestamp: &Draw,
        prepare: impl FnOnce(&mut World, model::Drawn<'_>) -> (model::Answer, AppendCall),
    ) -> Result<(), TestCaseError> {
        let id = id.value(format!("e{}", self.steps), &self.session);
        let timestamp = timestamp.value(format!("t{}", self.steps), &self.session);
        let (wanted, call) =
            prepare(self, model::Drawn { id: id.as_deref(), timestamp: timestamp.as_deref() });
        *locked(&self.draws) = Draws { id, timestamp, drew_id: false, drew_timestamp: false };
        let answer = Message::from_json(message).and_then(call);
        let answer = answer.as_ref().map(Entry::to_json).map_err(|error| error.code().as_str());
        prop_assert_eq!(answer, wanted.result.as_ref().map(model::Entry::encode).map_err(|code| *code));
        let draws = locked(&self.draws);
        prop_assert_eq!((draws.drew_id, draws.drew_timestamp), (wanted.drew_id, wanted.drew_timestamp));
        Ok(())
    }

    fn reload(&mut self, tail: &str) -> Result<(), TestCaseError> {
        let before = self.file();
        let file = [&before, tail.as_bytes()].concat();
        self.write(&file);
        match (self.load(), model::load(&file)) {
            (Ok(store), Ok(session)) => (self.store, self.session) = (store, session),
            (Err(error), Err(refusal)) => {
                let line = error.position().map(|position| position.line);
                prop_assert_eq!((error.code().as_str(), line), (refusal.code, refusal.line));
                self.write(&before);
                self.store = self.load().map_err(|error| TestCaseError::fail(error.to_string()))?;
                self.session = model::load(&before).expect("the file is valid without the tail");
            }
            (loaded, wanted) => {
                return Err(TestCaseError::fail(format!("{loaded:?}, but the model says {wanted:?}")));
            }
        }
        self.plant_trees();
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let (file, wanted) = (self.file(), self.session.file());
        prop_assert_eq!(String::from_utf8_lossy(&file), String::from_utf8_lossy(wanted));
        prop_assert_eq!(self.store.torn_tail(), self.session.torn_tail());
        let wanted: Vec<_> = self.session.entries().iter().map(model::Entry::encode).collect();
        prop_assert_eq!(jsons(&self.store.entries()), wanted);
        for (tree, model_tree) in zip(&self.trees, &self.model_trees) {
            let leaf = tree.leaf();
            prop_assert_eq!(leaf.as_deref(), model_tree.leaf());
            let wanted: Vec<_> =
                model_tree.active(&self.session).into_iter().map(model::Entry::encode).collect();
            prop_assert_eq!(jsons(&tree.active_entries()), wanted);
        }
        Ok(())
    }

    fn plant_trees(&mut self) {
        self.trees = (0..TREES).map(|_| self.store.tree()).collect();
        self.model_trees = (0..TREES).map(|_| self.session.tree()).collect();
    }

    fn load(&self) -> session_tree::Result<Store> {
        Store::load_with(OsFileOps::new(), &self.path, options(&self.draws))
    }

    fn file(&self) -> Vec<u8> {
        std::fs::read(&self.path).expect("a readable file")
    }

    fn write(&self, bytes: &[u8]) {
        std::fs::write(&self.path, bytes).expect("a writable file");
    }
}

fn options(draws: &Arc<Mutex<Draws>>) -> Options {
    let (ids, clock) = (Arc::clone(draws), Arc::clone(draws));
    let next_id = move || {
        let mut draws = locked(&ids);
        draws.drew_id = true;
        given(draws.id.clone())
    };
    let next_time = move || {
        let mut draws = locked(&clock);
        draws.drew_timestamp = true;
        given(draws.timestamp.clone())
    };
    Options::new().with_session_id("session").with_ids(next_id).with_clock(next_time)
}

/// Panics without a message and a backtrace on standard error.
fn given(value: Option<String>) -> String {
    value.unwrap_or_else(|| resume_unwind(Box::new("nothing to give")))
}

fn locked(draws: &Mutex<Draws>) -> MutexGuard<'_, Draws> {
    draws.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parent walk, from the entries alone.
fn walk(entries: &[Entry], leaf: Option<&str>) -> Vec<String> {
    let by_id: HashMap<_, _> = entries.iter().map(|entry| (entry.id(), entry)).collect();
    let mut path = Vec::new();
    let mut at = leaf;
    while let Some(id) = at {
        path.push(id.to_owned());
        at = by_id[id].parent_id();
    }
    path.reverse();
    path
}

fn active_ids(tree: &Tree) -> Vec<String> {
    tree.active_entries().iter().map(|entry| entry.id().to_owned()).collect()
}

proptest! {
    #![proptest_config(seeded::cases(60))]

    // Requirement: S5, S6, S9, F5, F8, T1, T2, T3, T4, T5
    #[test]
    fn a_store_answers_and_writes_what_the_model_does(ops in vec(op(), 1..40)) {
        World::run(&ops)?;
    }
}

proptest! {
    #![proptest_config(seeded::cases(30))]

    // Requirement: S7, T5
    #[test]
    fn entries_never_change_or_vanish(ops in vec(op(), 1..30)) {
        let mut world = World::new();
        let mut snapshots: Vec<(Entries, Vec<String>)> = Vec::new();
        for op in &ops {
            world.step(op)?;
            if matches!(op, Op::Reload { .. }) {
                // Entries of the store before are not those of the store after.
                snapshots.clear();
            }
            let now = world.store.entries();
            for (snapshot, shown) in &snapshots {
                prop_assert_eq!(&jsons(snapshot), shown);
                prop_assert!(snapshot.len() <= now.len());
                prop_assert!(zip(snapshot.iter(), now.iter()).all(|(then, now)| then.ptr_eq(now)));
            }
            let shown = jsons(&now);
            snapshots.push((now, shown));
        }
    }

    // Requirement: T4
    #[test]
    fn the_active_path_is_the_parent_walk(ops in vec(op(), 1..30)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op)?;
            for tree in &world.trees {
                let leaf = tree.leaf();
                prop_assert_eq!(active_ids(tree), walk(&world.store.entries(), leaf.as_deref()));
            }
        }
    }

    // Requirement: T3, T5, S7
    #[test]
    fn an_append_extends_exactly_one_path(ops in vec(op(), 1..30)) {
        let mut world = World::new();
        for op in &ops {
            let before: Vec<_> = world.trees.iter().map(active_ids).collect();
            let count = world.store.entries().len();
            world.step(op)?;
            let extended = match op {
                Op::Append { .. } => None,
                Op::TreeAppend { tree, .. } => Some(*tree),
                _ => continue,
            };
            let entries = world.store.entries();
            for (index, mut wanted) in before.into_iter().enumerate() {
                if Some(index) == extended {
                    wanted.extend(entries.get(count).map(|entry| entry.id().to_owned()));
                }
                prop_assert_eq!(active_ids(&world.trees[index]), wanted);
            }
        }
    }

    // Requirement: T2
    #[test]
    fn a_move_changes_no_byte_of_the_file(ops in vec(op(), 1..20), moves in vec((0..TREES, place()), 1..10)) {
        let mut world = World::run(&ops)?;
        let before = (world.file(), jsons(&world.store.entries()));
        for (tree, place) in moves {
            world.step(&Op::MoveTo { tree, place })?;
        }
        prop_assert_eq!((world.file(), jsons(&world.store.entries())), before);
    }

    // Requirement: L1, L2, L3, L4, L5
    #[test]
    fn appends_refuse_exactly_what_breaks_the_naive_definition(
        steps in vec((0..4_usize, linked_message()), 1..30),
    ) {
        let mut world = World::new();
        for (back, message) in steps {
            let entries = world.session.entries();
            let place = entries.len().checked_sub(back + 1).map(|at| entries[at].id.clone());
            for tree in &mut world.model_trees {
                tree.move_to(&world.session, place.as_deref()).expect("a known entry");
            }
            for tree in &world.trees {
                tree.move_to(place.as_deref()).expect("a known entry");
            }
            world.step(&Op::TreeAppend { tree: 0, message, id: Draw::Fresh, timestamp: Draw::Fresh })?;
        }
    }

    /// Two histories in turn below two roots of one store, and one of them alone in another.
    // Requirement: L3, T3
    #[test]
    fn siblings_are_independent(left in vec(message(), 1..8), right in vec(message(), 1..8)) {
        let (mut shared, mut alone) = (World::new(), World::new());
        let append = |tree, message: &String| {
            Op::TreeAppend { tree, message: message.clone(), id: Draw::Fresh, timestamp: Draw::Fresh }
        };
        for step in 0..left.len().max(right.len()) {
            if let Some(message) = left.get(step) {
                shared.step(&append(0, message))?;
            }
            if let Some(message) = right.get(step) {
                shared.step(&append(1, message))?;
                alone.step(&append(1, message))?;
            }
            prop_assert_eq!(shared.trees[1].active_messages(), alone.trees[1].active_messages());
        }
    }
}
