//! Any bytes as the output of a subject.

use std::str;

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::{Call, Reply};
use crate::protocol::{Lines, MAX_LINE_BYTES, read_hello, read_reply, write_hello, write_reply};

/// The id of the request that is answered.
const ID: u64 = 7;

/// The first line of `data` names a call, `hello` where it names none; the rest is what a subject writes. Each line of it
/// is an outcome of the protocol, the one that another JSON parser allows, and an answer reads back as it was written.
///
/// Gives the outcome of the first line: `ok`, `refused`, `unsupported` or `protocol`; `silent` where there is none.
///
/// # Panics
///
/// If that does not hold.
pub fn protocol(data: &[u8]) -> &'static str {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (name, output) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let call = str::from_utf8(name).ok().and_then(call);
    let lines = lines(output);
    let whole = output.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    assert!(
        whole.map(|line| &line[..line.len() - 1]).eq(lines.iter().map(Vec::as_slice)),
        "lines as they arrived are the lines of the output"
    );
    let mut outcomes = lines.iter().map(|line| match &call {
        Some(call) => {
            outcome(line, call, false);
            outcome(line, call, true)
        }
        None => greeting(line),
    });
    let first = outcomes.next().unwrap_or("silent");
    outcomes.for_each(drop);
    first
}

/// A call of each kind, by its name.
fn call(name: &str) -> Option<Call> {
    let store = || "s".to_owned();
    let tree = || "t".to_owned();
    let path = || "p".to_owned();
    let message = || RawValue::NULL.to_owned();
    Some(match name {
        "create" => Call::Create {
            store: store(),
            path: path(),
            session_id: None,
            ids: Vec::new(),
            clock: Vec::new(),
        },
        "load" => Call::Load { store: store(), path: path(), ids: Vec::new(), clock: Vec::new() },
        "append" => Call::Append { store: store(), parent_id: None, message: message() },
        "flush" => Call::Flush { store: store() },
        "entries" => Call::Entries { store: store() },
        "tree" => Call::Tree { store: store(), tree: tree() },
        "moveTo" => Call::MoveTo { tree: tree(), entry_id: None },
        "treeAppend" => Call::TreeAppend { tree: tree(), message: message() },
        "active" => Call::Active { tree: tree() },
        "inspect" => Call::Inspect { path: path() },
        "recover" => Call::Recover { path: path(), choose: None },
        "close" => Call::Close { store: store() },
        "concurrent" => {
            Call::Concurrent { calls: ["flush", "entries"].into_iter().filter_map(call).collect() }
        }
        _ => return None,
    })
}

/// The lines of an output that arrives in two pieces.
fn lines(output: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Lines::new(MAX_LINE_BYTES);
    let mut taken = Vec::new();
    let (one, other) = output.split_at(output.len() / 2);
    for piece in [one, other] {
        lines.push(piece);
        while let Some(line) = lines.next_line().expect("an input is shorter than the limit") {
            taken.push(line);
        }
    }
    taken
}

fn outcome(line: &[u8], call: &Call, is_native: bool) -> &'static str {
    let reply = read_reply(line, ID, call, is_native);
    let outcome = match &reply {
        Reply::Ok(_) => "ok",
        Reply::Refused(_) => "refused",
        Reply::Unsupported(_) => "unsupported",
        Reply::Protocol(what) => {
            check_words(what);
            return "protocol";
        }
        Reply::Panicked(_) | Reply::Timeout | Reply::Exited(_) => panic!("{reply:?} of a line"),
    };
    assert!(may_be_an_answer(line), "taken for an answer");
    let written = write_reply(ID, &reply).expect("an answer can be written");
    let again = read_reply(written.trim_end().as_bytes(), ID, call, is_native);
    assert_eq!(again, reply, "read back from {written}");
    outcome
}

fn greeting(line: &[u8]) -> &'static str {
    match read_hello(line, ID).map_err(|reply| *reply) {
        Ok(hello) => {
            assert!(may_be_an_answer(line), "taken for an answer");
            let written = write_hello(ID, &hello).expect("a greeting can be written");
            assert_eq!(read_hello(written.trim_end().as_bytes(), ID), Ok(hello), "read back from {written}");
            "ok"
        }
        Err(Reply::Refused(_)) => "refused",
        Err(Reply::Unsupported(_)) => "unsupported",
        Err(Reply::Protocol(what)) => {
            check_words(&what);
            "protocol"
        }
        Err(other) => panic!("{other:?} of a line"),
    }
}

/// What another parser must say of a line for it to be an answer.
fn may_be_an_answer(line: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(line) else { return false };
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return false;
    }
    // That parser takes no unpaired surrogates and no deep nesting; of what it does not take nothing more is said.
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(members)) => {
            let outcomes = ["ok", "error", "unsupported"].iter().filter(|name| members.contains_key(**name));
            members.get("id") == Some(&Value::from(ID)) && outcomes.count() == 1
        }
        Ok(_) => false,
        Err(_) => true,
    }
}

/// A person reads them: some words, and of the line only what fits a screen.
fn check_words(what: &str) {
    assert!(!what.is_empty() && what.len() < 4_096, "{} bytes of words", what.len());
    assert!(!what.chars().any(char::is_control), "{what:?} for a terminal");
}
