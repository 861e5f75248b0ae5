//! What a subject answers: read by the harness, and written by a subject in Rust.

use std::str;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Hello, MAX_LINE_BYTES, present};
use crate::call::{Answer, Call, Did, EntryView, HeaderView, Refusal, Reply};
use crate::diagnose::harmless;
use crate::model;

/// An answer to the handshake, as a line.
///
/// # Errors
/// Does not happen: its parts are text.
pub fn write_hello(id: u64, hello: &Hello) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Greeting<'a> {
        id: u64,
        ok: &'a Hello,
    }

    serde_json::to_string(&Greeting { id, ok: hello }).map(|line| line + "\n")
}

/// An answer to a call, as a line.
///
/// # Errors
/// Where `reply` is none that a subject sends, or an entry's message is not JSON.
pub fn write_reply(id: u64, reply: &Reply) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Numbered<'a> {
        id: u64,
        #[serde(flatten)]
        reply: &'a Reply,
    }

    serde_json::to_string(&Numbered { id, reply }).map(|line| line + "\n")
}

/// Reads the answer to the handshake `id`.
///
/// # Errors
/// The reply, where it is another one than what was asked for.
pub fn read_hello(line: &[u8], id: u64) -> Result<Hello, Box<Reply>> {
    let hello = match outcome(line, Some(id)) {
        Ok(Outcome::Ok(answer)) => object(answer),
        Ok(Outcome::Refused(refusal)) => return Err(Reply::Refused(refusal).into()),
        Ok(Outcome::Unsupported(why)) => return Err(Reply::Unsupported(why).into()),
        Err(what) if is_json(line) => Err(what),
        // Most often a banner or a line of a log.
        Err(what) => {
            Err(format!("{what}; standard output is for answers, everything else belongs on standard error"))
        }
    };
    hello.map_err(|what| Reply::Protocol(what).into())
}

/// What `line` is as the answer to `call` with this id. `is_native` says whether headers are those of the contract.
pub fn read_reply(line: &[u8], id: u64, call: &Call, is_native: bool) -> Reply {
    outcome(line, Some(id))
        .and_then(|outcome| reply(outcome, call, is_native))
        .unwrap_or_else(Reply::Protocol)
}

/// Whether what broke the protocol is within the entries that a `load` gave.
pub fn is_of_loaded_entries(what: &str) -> bool {
    what.starts_with("the answer to `load`: `entries`: ")
}

/// What bytes are that came without a request.
pub fn unasked(bytes: &[u8]) -> &'static str {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = str::from_utf8(line).unwrap_or_default();
    match parse::<Members>(text) {
        Ok(Members { id: Some(_), .. }) => "a second answer",
        _ => "output that nobody asked for",
    }
}

/// The three things that an answer may say.
enum Outcome<'a> {
    Ok(&'a RawValue),
    Refused(Refusal),
    Unsupported(String),
}

/// Every member that some answer has. Others do no harm.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    ok: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    unsupported: Option<&'a RawValue>,
}

/// Without an id for answers within an answer.
fn outcome(line: &[u8], id: Option<u64>) -> Result<Outcome<'_>, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("a line of more than {MAX_LINE_BYTES} bytes"));
    }
    let Ok(text) = str::from_utf8(line) else {
        return Err(format!("a line that is not UTF-8: {}", excerpt(line)));
    };
    let members: Members = parse(text).map_err(|what| format!("{what}: {}", excerpt(line)))?;
    if let Some(id) = id {
        check_id(members.id, id).map_err(|what| format!("{what}: {}", excerpt(line)))?;
    }
    match (members.ok, members.error, members.unsupported) {
        (Some(answer), None, None) => Ok(Outcome::Ok(answer)),
        (None, Some(refusal), None) => object(refusal)
            .map(Outcome::Refused)
            .map_err(|what| format!("`error`: {what}: {}", excerpt(line))),
        (None, None, Some(why)) => serde_json::from_str(why.get())
            .map(Outcome::Unsupported)
            .map_err(|_| format!("`unsupported` is not a text that says why: {}", excerpt(line))),
        (None, None, None) => {
            Err(format!("an answer without `ok`, `error` or `unsupported`: {}", excerpt(line)))
        }
        _ => {
            Err(format!("an answer with more than one of `ok`, `error` and `unsupported`: {}", excerpt(line)))
        }
    }
}

fn check_id(id: Option<&RawValue>, expected: u64) -> Result<(), String> {
    let Some(id) = id else { return Err("an answer without `id`".to_owned()) };
    match serde_json::from_str::<u64>(id.get()) {
        Ok(id) if id == expected => Ok(()),
        Ok(id) if id < expected => {
            Err(format!("a second answer to request {id}, where the answer to request {expected} is due"))
        }
        Err(_) if id.get().starts_with('"') => {
            Err(format!("the id must be the number {expected}, not a string"))
        }
        _ => {
            Err(format!("the id is {}, and that of the request was {expected}", excerpt(id.get().as_bytes())))
        }
    }
}

fn reply(outcome: Outcome<'_>, call: &Call, is_native: bool) -> Result<Reply, String> {
    match outcome {
        Outcome::Ok(answer) => read_answer(answer, call, is_native)
            .map(Reply::Ok)
            .map_err(|what| format!("the answer to `{}`: {what}", call.name())),
        Outcome::Refused(refusal) => Ok(Reply::Refused(refusal)),
        Outcome::Unsupported(why) => Ok(Reply::Unsupported(why)),
    }
}

/// What `ok` holds, with messages and nested answers as they were written.
#[derive(Deserialize)]
struct Success<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    header: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    entry: Option<&'a RawValue>,
    #[serde(borrow)]
    entries: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, deserialize_with = "present")]
    leaf: Option<&'a RawValue>,
    state: Option<String>,
    did: Option<Vec<Did>>,
    #[serde(borrow)]
    answers: Option<Vec<&'a RawValue>>,
}

fn read_answer(answer: &RawValue, call: &Call, is_native: bool) -> Result<Answer, String> {
    let success: Success = object(answer)?;
    let header =
        success.header.map(object::<HeaderView>).transpose().map_err(|what| format!("`header`: {what}"));
    let answer = Answer {
        // Of another format it is that format's business what a header is.
        header: if is_native { header? } else { header.ok().flatten() },
        entry: success.entry.map(read_entry).transpose().map_err(|what| format!("`entry`: {what}"))?,
        entries: success
            .entries
            .map(|entries| entries.into_iter().map(read_entry).collect::<Result<_, _>>())
            .transpose()
            .map_err(|what| format!("`entries`: {what}"))?,
        leaf: success.leaf.map(read_leaf).transpose()?,
        state: success.state,
        did: success.did,
        answers: success.answers.map(|answers| read_answers(&answers, call, is_native)).transpose()?,
    };
    match missing(&answer, call, is_native) {
        Some(name) => Err(format!("`{name}` is missing")),
        None => Ok(answer),
    }
}

/// The first member that an answer to `call` must have and this one does not.
fn missing(answer: &Answer, call: &Call, is_native: bool) -> Option<&'static str> {
    let header = ("header", answer.header.is_some() || !is_native);
    let (entry, entries) = (("entry", answer.entry.is_some()), ("entries", answer.entries.is_some()));
    let (leaf, state) = (("leaf", answer.leaf.is_some()), ("state", answer.state.is_some()));
    let needed: &[(&'static str, bool)] = match call {
        Call::Create { .. } => &[header],
        Call::Load { .. } => &[header, entries, leaf],
        Call::Append { .. } | Call::TreeAppend { .. } => &[entry],
        Call::Entries { .. } => &[entries],
        Call::Tree { .. } | Call::MoveTo { .. } => &[leaf],
        Call::Active { .. } => &[leaf, entries],
        Call::Inspect { .. } => &[state],
        Call::Recover { .. } => &[state, ("did", answer.did.is_some())],
        Call::Concurrent { .. } => &[("answers", answer.answers.is_some())],
        Call::Flush { .. } | Call::Close { .. } => &[],
    };
    needed.iter().find(|(_, is_there)| !is_there).map(|(name, _)| *name)
}

fn read_answers(answers: &[&RawValue], call: &Call, is_native: bool) -> Result<Vec<Reply>, String> {
    let Call::Concurrent { calls } = call else { return Err("`answers`, where one was due".to_owned()) };
    if answers.len() != calls.len() {
        return Err(format!("{} answers to {} calls", answers.len(), calls.len()));
    }
    let read =
        |(answer, call): (&&RawValue, &Call)| reply(outcome(answer.get().as_bytes(), None)?, call, is_native);
    answers.iter().zip(calls).map(read).collect()
}

fn read_leaf(leaf: &RawValue) -> Result<Option<String>, String> {
    if leaf.get() == "null" {
        return Ok(None);
    }
    text(leaf).map(Some).ok_or_else(|| "`leaf` is neither an id nor null".to_owned())
}

/// An entry has at least these members, whatever the format.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    parent_id: &'a RawValue,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    message: &'a RawValue,
}

fn read_entry(entry: &RawValue) -> Result<EntryView, String> {
    let entry: Entry = object(entry)?;
    let needed = |value: &RawValue, name| text(value).ok_or_else(|| format!("`{name}` is not a text"));
    Ok(EntryView {
        id: needed(entry.id, "id")?,
        parent_id: match entry.parent_id.get() {
            "null" => None,
            _ => Some(needed(entry.parent_id, "parentId")?),
        },
        timestamp: entry.timestamp.map(|time| needed(time, "timestamp")).transpose()?.unwrap_or_default(),
        message: canonical(entry.message),
    })
}

/// A text; one with unpaired surrogates, which some stores accept and no Rust string holds, as it is written.
fn text(value: &RawValue) -> Option<String> {
    let written = value.get().strip_prefix('"')?.strip_suffix('"')?;
    Some(serde_json::from_str(value.get()).unwrap_or_else(|_| written.to_owned()))
}

/// A subject may order members, space and escape as it likes; what is no message of the contract stays as it is.
fn canonical(message: &RawValue) -> String {
    model::Message::read(message.get()).map_or_else(|_| message.get().to_owned(), |message| message.encode())
}

fn object<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, String> {
    parse(value.get())
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

/// Reads an object; a derived reader would take an array of the members for one as well.
fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    let is_object = text.trim_ascii_start().starts_with('{');
    match serde_json::from_str(text) {
        Ok(value) if is_object => Ok(value),
        Err(error) if error.is_syntax() || error.is_eof() => Err(format!("text that is not JSON ({error})")),
        Err(error) if is_object => Err(error.to_string()),
        _ => Err("JSON that is not an object".to_owned()),
    }
}

/// As much of a line as a person needs to know it again.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    harmless::shortened(bytes, 120)
}
