//! What the harness asks: written by it, and read by a subject in Rust.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{VERSION, present};
use crate::call::{Call, Choose};

/// What a line asks for.
#[derive(Debug, Clone)]
pub enum Request {
    /// The handshake, with the protocol's version.
    Hello(u32),
    /// A call.
    Call(Call),
}

/// A line that is no request of this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a request: {what}")]
pub struct BadRequest {
    /// Its id, where that can be read, so that it can be answered.
    pub id: Option<u64>,
    what: String,
}

/// The first request, as a line.
pub fn write_hello_request(id: u64) -> String {
    format!("{{\"id\":{id},\"call\":\"hello\",\"protocol\":{VERSION}}}\n")
}

/// A call, as a line.
///
/// # Errors
/// Does not happen: the parts of a call are text and JSON.
pub fn write_call(id: u64, call: &Call) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Numbered<'a> {
        id: u64,
        #[serde(flatten)]
        call: &'a Call,
    }

    serde_json::to_string(&Numbered { id, call }).map(|line| line + "\n")
}

/// Reads a request. Members that it does not know do no harm.
///
/// # Errors
/// [`BadRequest`] for everything else.
pub fn read_request(line: &str) -> Result<(u64, Request), BadRequest> {
    let members: Members = serde_json::from_str(line)
        .map_err(|error| BadRequest { id: id_of(line), what: error.to_string() })?;
    let id = members.id;
    let bad = |what: String| BadRequest { id, what };
    let Some(id) = id else { return Err(bad("without `id`".to_owned())) };
    if members.call == "hello" {
        let protocol = members.protocol.ok_or_else(|| bad("`hello` without `protocol`".to_owned()))?;
        return Ok((id, Request::Hello(protocol)));
    }
    members.into_call(true).map(|call| (id, Request::Call(call))).map_err(bad)
}

/// Reads a call without an id.
///
/// # Errors
/// What is wrong with it.
pub fn read_call(text: &str) -> Result<Call, String> {
    let members: Members = serde_json::from_str(text).map_err(|error| error.to_string())?;
    members.into_call(true)
}

/// The id of a line that is wrong in something else.
fn id_of(line: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Id {
        id: u64,
    }

    serde_json::from_str(line).ok().map(|Id { id }| id)
}

/// Every member that some request has. Messages stay text, so that numbers, names and escapes reach the store as they
/// were written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    call: Cow<'a, str>,
    protocol: Option<u32>,
    store: Option<String>,
    path: Option<String>,
    session_id: Option<String>,
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default)]
    clock: Vec<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    parent_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    message: Option<&'a RawValue>,
    tree: Option<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    entry_id: Option<&'a RawValue>,
    choose: Option<Choose>,
    #[serde(borrow)]
    calls: Option<Vec<&'a RawValue>>,
}

impl Members<'_> {
    fn into_call(self, is_outermost: bool) -> Result<Call, String> {
        let Members { call, store, path, session_id, ids, clock, tree, choose, calls, .. } = self;
        let missing = |what: &str| format!("`{call}` without `{what}`");
        let store = || store.ok_or_else(|| missing("store"));
        let path = || path.ok_or_else(|| missing("path"));
        let tree = || tree.ok_or_else(|| missing("tree"));
        let message = || self.message.map(ToOwned::to_owned).ok_or_else(|| missing("message"));
        Ok(match &*call {
            "create" => Call::Create { store: store()?, path: path()?, session_id, ids, clock },
            "load" => Call::Load { store: store()?, path: path()?, ids, clock },
            "append" => {
                let parent = self.parent_id.ok_or_else(|| missing("parentId"))?;
                Call::Append { store: store()?, parent_id: id_or_none(parent)?, message: message()? }
            }
            "flush" => Call::Flush { store: store()? },
            "entries" => Call::Entries { store: store()? },
            "tree" => Call::Tree { store: store()?, tree: tree()? },
            "moveTo" => {
                let entry = self.entry_id.ok_or_else(|| missing("entryId"))?;
                Call::MoveTo { tree: tree()?, entry_id: id_or_none(entry)? }
            }
            "treeAppend" => Call::TreeAppend { tree: tree()?, message: message()? },
            "active" => Call::Active { tree: tree()? },
            "inspect" => Call::Inspect { path: path()? },
            "recover" => Call::Recover { path: path()?, choose },
            "close" => Call::Close { store: store()? },
            "concurrent" if is_outermost => {
                let calls = calls.ok_or_else(|| missing("calls"))?;
                let calls = calls.into_iter().map(|call| {
                    let members: Members =
                        serde_json::from_str(call.get()).map_err(|error| error.to_string())?;
                    members.into_call(false)
                });
                Call::Concurrent { calls: calls.collect::<Result<_, _>>()? }
            }
            _ => return Err(format!("no call is named `{call}` here")),
        })
    }
}

fn id_or_none(id: &RawValue) -> Result<Option<String>, String> {
    serde_json::from_str(id.get()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call_of(line: &str) -> Call {
        match read_request(line) {
            Ok((_, Request::Call(call))) => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_call_is_read_as_it_was_written() {
        for body in [
            r#""call":"create","store":"s","path":"/a b","sessionId":"x","ids":["1"],"clock":["2"]"#,
            r#""call":"create","store":"s","path":"p""#,
            r#""call":"load","store":"s","path":"p","ids":["\n"]"#,
            r#""call":"append","store":"s","parentId":null,"message":{"n":1.10,"n":-0,"s":"\ud800"}"#,
            r#""call":"append","store":"s","parentId":"e","message":12345678901234567890"#,
            r#""call":"append","store":"s","parentId":null,"message":null"#,
            r#""call":"flush","store":"s""#,
            r#""call":"entries","store":"s""#,
            r#""call":"tree","store":"s","tree":"t""#,
            r#""call":"moveTo","tree":"t","entryId":null"#,
            r#""call":"moveTo","tree":"t","entryId":"e""#,
            r#""call":"treeAppend","tree":"t","message":[]"#,
            r#""call":"active","tree":"t""#,
            r#""call":"inspect","path":"p""#,
            r#""call":"recover","path":"p","choose":"set-aside""#,
            r#""call":"close","store":"s""#,
            r#""call":"concurrent","calls":[{"call":"flush","store":"s"},{"call":"treeAppend","tree":"t","message":"m"}]"#,
        ] {
            let line = format!("{{\"id\":7,{body}}}\n");
            assert_eq!(write_call(7, &call_of(&line)).expect("JSON"), line);
        }
        let hello = write_hello_request(1);
        assert!(matches!(read_request(&hello), Ok((1, Request::Hello(VERSION)))), "{hello}");
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_unknown_is_passed_over() {
        let because = |line: &str| read_request(line).map(|(id, _)| id).expect_err(line).to_string();
        assert_eq!(because(r#"{"call":"flush","store":"s"}"#), "not a request: without `id`");
        assert_eq!(because(r#"{"id":1,"call":"flush"}"#), "not a request: `flush` without `store`");
        assert_eq!(
            because(r#"{"id":1,"call":"append","store":"s","message":1}"#),
            "not a request: `append` without `parentId`"
        );
        assert_eq!(because(r#"{"id":1,"call":"fly"}"#), "not a request: no call is named `fly` here");
        let nested = r#"{"id":1,"call":"concurrent","calls":[{"call":"concurrent","calls":[]}]}"#;
        assert_eq!(because(nested), "not a request: no call is named `concurrent` here");
        let wrong =
            read_request(r#"{"id":3,"call":"flush","store":4}"#).map(|(id, _)| id).expect_err("a number");
        assert_eq!(wrong.id, Some(3));
        assert!(matches!(call_of(r#"{"id":1,"call":"flush","store":"s","later":[{}]}"#), Call::Flush { .. }));
    }
}
