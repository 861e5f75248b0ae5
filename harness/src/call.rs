//! What is asked of a store and what it answers: the very types that the protocol carries, so that a store in this
//! process and one behind a pipe are judged alike.

use std::borrow::Cow;
use std::fmt;

use serde::ser::{Error as _, SerializeMap as _, SerializeStruct as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use session_tree::limits::SESSION_FORMAT_VERSION;
use session_tree::recover::{Choice, Step};
use session_tree::{Entry, Error, Header, Message};

use crate::model;

/// One request to a store. [`crate::protocol`] reads and writes it.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "call", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Call {
    /// Creates a session.
    Create {
        /// The name by which later calls mean this store.
        store: String,
        /// Where.
        path: String,
        /// The session's id.
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        /// Entry ids, consumed in order; then the subject's own.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        ids: Vec<String>,
        /// Times, consumed in order; then the subject's own.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        clock: Vec<String>,
    },
    /// Loads a session.
    Load {
        /// The name by which later calls mean this store.
        store: String,
        /// Where.
        path: String,
        /// Entry ids, consumed in order; then the subject's own.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        ids: Vec<String>,
        /// Times, consumed in order; then the subject's own.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        clock: Vec<String>,
    },
    /// Appends an entry below a parent.
    Append {
        /// Which store.
        store: String,
        /// The parent's id; none for a root.
        parent_id: Option<String>,
        /// The message, as JSON text.
        message: Box<RawValue>,
    },
    /// Commits the present entries.
    Flush {
        /// Which store.
        store: String,
    },
    /// Asks for every entry.
    Entries {
        /// Which store.
        store: String,
    },
    /// Opens a tree at the last stored entry.
    Tree {
        /// Which store.
        store: String,
        /// The name by which later calls mean this tree.
        tree: String,
    },
    /// Moves the active leaf.
    MoveTo {
        /// Which tree.
        tree: String,
        /// The new leaf; none for a new root.
        entry_id: Option<String>,
    },
    /// Appends below the active leaf.
    TreeAppend {
        /// Which tree.
        tree: String,
        /// The message, as JSON text.
        message: Box<RawValue>,
    },
    /// Asks for the active path.
    Active {
        /// Which tree.
        tree: String,
    },
    /// Asks what state a crash left a session in.
    Inspect {
        /// Where.
        path: String,
    },
    /// Resolves what a crash left.
    Recover {
        /// Where.
        path: String,
        /// What to keep where that cannot be told from the files.
        #[serde(skip_serializing_if = "Option::is_none")]
        choose: Option<Choose>,
    },
    /// Ends a store.
    Close {
        /// Which store.
        store: String,
    },
    /// Begins several calls together, in this order, and waits for all of them.
    Concurrent {
        /// The calls. A call of this kind cannot be among them.
        calls: Vec<Call>,
    },
}

/// What a recovery is told to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choose {
    /// The session file.
    Current,
    /// The recovery marker.
    Marker,
    /// Neither: the session file gets out of the way.
    SetAside,
}

impl Call {
    /// The call's name in the protocol.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Create { .. } => "create",
            Call::Load { .. } => "load",
            Call::Append { .. } => "append",
            Call::Flush { .. } => "flush",
            Call::Entries { .. } => "entries",
            Call::Tree { .. } => "tree",
            Call::MoveTo { .. } => "moveTo",
            Call::TreeAppend { .. } => "treeAppend",
            Call::Active { .. } => "active",
            Call::Inspect { .. } => "inspect",
            Call::Recover { .. } => "recover",
            Call::Close { .. } => "close",
            Call::Concurrent { .. } => "concurrent",
        }
    }
}

/// How a store answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It did what was asked.
    Ok(Answer),
    /// It refused, with a code.
    Refused(Refusal),
    /// It cannot do that, and says why.
    Unsupported(String),
    /// It panicked.
    Panicked(String),
    /// It did not answer in time.
    Timeout,
    /// Its process ended without an answer; how it ended.
    Exited(String),
    /// What it sent is no answer of the protocol; what was wrong with it.
    Protocol(String),
}

/// What a successful call gives; which fields are there depends on the call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The header, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderView>,
    /// The new entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryView>,
    /// Entries in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<EntryView>>,
    /// The active leaf, where the call has one to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<Option<String>>,
    /// The token of the state that an inspection or a recovery found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What a recovery did, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did: Option<Vec<Did>>,
    /// The answers to calls that were begun together, in the order of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<Vec<Reply>>,
}

/// One thing that a recovery did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Did {
    /// What, by its token.
    pub action: String,
    /// The name that is gone, or that something has now, in the session's directory.
    pub name: String,
}

/// A header as a subject shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderView {
    /// Always `session`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The format's version.
    pub version: u32,
    /// The session's id.
    pub id: String,
    /// The time that the clock gave.
    pub created_at: String,
}

/// An entry as a subject shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntryView {
    /// The entry's id.
    pub id: String,
    /// The parent's id; none for a root.
    pub parent_id: Option<String>,
    /// The time that the clock gave.
    pub timestamp: String,
    /// The message's canonical JSON text; of a subject that has other messages, the text that it gave.
    pub message: String,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The stable code.
    pub code: String,
    /// Words for people.
    pub message: String,
    /// The operating system's error, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// The line of the session file that was refused, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The stage of the commit, create or load, such as `C8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Whether the store refuses everything from now on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub poisoned: bool,
    /// Whether another process's commit was under way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_flight: bool,
}

impl Refusal {
    /// Of a call that makes no sense, such as one about a store that was never opened.
    pub fn usage(message: impl Into<String>) -> Refusal {
        Refusal {
            code: "SUBJECT_USAGE".to_owned(),
            message: message.into(),
            errno: None,
            line: None,
            stage: None,
            poisoned: false,
            in_flight: false,
        }
    }
}

/// The message, with whatever of code, error number, stage, line and state it does not say itself.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.message.contains(&self.code) {
            write!(f, "{}: ", self.code)?;
        }
        f.write_str(&self.message)?;
        let unsaid =
            |fact: &Option<String>| fact.clone().filter(|fact| !self.message.contains(fact.as_str()));
        let line = self.line.map(|line| format!("line {line}"));
        let facts: Vec<String> = [
            unsaid(&self.errno),
            unsaid(&self.stage.as_ref().map(|stage| format!("stage {stage}"))),
            unsaid(&line),
            self.poisoned.then(|| "poisoned".to_owned()),
            self.in_flight.then(|| "a commit is in flight".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if facts.is_empty() { Ok(()) } else { write!(f, " ({})", facts.join(", ")) }
    }
}

/// The answer in a few words.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Ok(answer) => match (&answer.entry, &answer.entries) {
                (Some(entry), _) => write!(f, "acknowledged entry {}", entry.id),
                (None, Some(entries)) => write!(f, "{} entries", entries.len()),
                _ => f.write_str("ok"),
            },
            Reply::Refused(refusal) => write!(f, "refused: {refusal}"),
            Reply::Unsupported(why) => write!(f, "unsupported: {why}"),
            Reply::Panicked(text) => write!(f, "panicked: {text}"),
            Reply::Timeout => f.write_str("no answer in time"),
            Reply::Exited(how) => write!(f, "the process ended: {how}"),
            Reply::Protocol(what) => write!(f, "no answer of the protocol: {what}"),
        }
    }
}

impl fmt::Display for EntryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = place(self.parent_id.as_deref());
        write!(f, "entry {} {place}, of {}, with the message {}", self.id, self.timestamp, self.message)
    }
}

/// One member, `ok`, `error` or `unsupported`. The other outcomes are not sent: they are what the receiver makes of a
/// subject that sends nothing, or nonsense.
impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        match self {
            Reply::Ok(answer) => members.serialize_entry("ok", answer)?,
            Reply::Refused(refusal) => members.serialize_entry("error", refusal)?,
            Reply::Unsupported(why) => members.serialize_entry("unsupported", why)?,
            Reply::Panicked(_) | Reply::Timeout | Reply::Exited(_) | Reply::Protocol(_) => {
                return Err(S::Error::custom("only answers can be sent"));
            }
        }
        members.end()
    }
}

/// The line of a session file that the entry is, whatever it is kept as.
impl Serialize for EntryView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message: &RawValue = serde_json::from_str(&self.message).map_err(S::Error::custom)?;
        let mut members = serializer.serialize_struct("entry", 6)?;
        members.serialize_field("type", "entry")?;
        members.serialize_field("version", &SESSION_FORMAT_VERSION)?;
        members.serialize_field("id", &self.id)?;
        members.serialize_field("parentId", &self.parent_id)?;
        members.serialize_field("timestamp", &self.timestamp)?;
        members.serialize_field("message", message)?;
        members.end()
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Refusal {
        Refusal {
            code: error.code().as_str().to_owned(),
            message: error.to_string(),
            errno: error.errno().map(|errno| errno.to_string()),
            line: error.position().map(|position| position.line),
            stage: error.stage().map(|stage| stage.id().to_owned()),
            poisoned: error.poisoned(),
            in_flight: error.in_flight(),
        }
    }
}

impl From<Choose> for Choice {
    fn from(choose: Choose) -> Choice {
        match choose {
            Choose::Current => Choice::Current,
            Choose::Marker => Choice::Marker,
            Choose::SetAside => Choice::SetAside,
        }
    }
}

impl From<&Step> for Did {
    fn from(step: &Step) -> Did {
        Did { action: step.action.token().to_owned(), name: step.name.to_string_lossy().into_owned() }
    }
}

impl From<&Entry> for EntryView {
    fn from(entry: &Entry) -> EntryView {
        EntryView {
            id: entry.id().to_owned(),
            parent_id: entry.parent_id().map(str::to_owned),
            timestamp: entry.timestamp().to_owned(),
            message: entry.message().to_json(),
        }
    }
}

impl From<&model::Entry> for EntryView {
    fn from(entry: &model::Entry) -> EntryView {
        EntryView {
            id: entry.id.clone(),
            parent_id: entry.parent.clone(),
            timestamp: entry.timestamp.clone(),
            message: entry.message.encode(),
        }
    }
}

impl From<&Header> for HeaderView {
    fn from(header: &Header) -> HeaderView {
        HeaderView {
            kind: Cow::Borrowed("session"),
            version: SESSION_FORMAT_VERSION,
            id: header.id().to_owned(),
            created_at: header.created_at().to_owned(),
        }
    }
}

/// Where an entry with this parent is, in words.
pub(crate) fn place(parent_id: Option<&str>) -> String {
    parent_id.map_or_else(|| "as a root".to_owned(), |parent| format!("below {parent}"))
}

/// A message as the protocol carries it.
pub fn message_json(message: &Message) -> Box<RawValue> {
    // The canonical form is JSON by construction; a null would be refused by every store as a message.
    RawValue::from_string(message.to_json()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(call: &Call) -> String {
        serde_json::to_string(call).expect("a call is JSON")
    }

    // Requirement: X1, X2
    #[test]
    fn recovery_calls_are_written_as_the_protocol_has_them() {
        let path = "a.jsonl".to_owned();
        assert_eq!(written(&Call::Inspect { path: path.clone() }), r#"{"call":"inspect","path":"a.jsonl"}"#);
        for (choose, text) in [
            (None, r#"{"call":"recover","path":"a.jsonl"}"#),
            (Some(Choose::Current), r#"{"call":"recover","path":"a.jsonl","choose":"current"}"#),
            (Some(Choose::Marker), r#"{"call":"recover","path":"a.jsonl","choose":"marker"}"#),
            (Some(Choose::SetAside), r#"{"call":"recover","path":"a.jsonl","choose":"set-aside"}"#),
        ] {
            assert_eq!(written(&Call::Recover { path: path.clone(), choose }), text);
        }
        let answer = Answer {
            state: Some("path-lost".to_owned()),
            did: Some(vec![Did { action: "marker-becomes-current".to_owned(), name: "a.jsonl".to_owned() }]),
            ..Answer::default()
        };
        assert_eq!(
            serde_json::to_string(&answer).expect("an answer is JSON"),
            r#"{"state":"path-lost","did":[{"action":"marker-becomes-current","name":"a.jsonl"}]}"#
        );
    }

    #[test]
    fn a_refusal_is_told_with_its_code_number_and_stage_once_each() {
        let refusal = |message: &str| Refusal {
            errno: Some("EIO".to_owned()),
            stage: Some("C8".to_owned()),
            poisoned: true,
            code: "SESSION_IO".to_owned(),
            ..Refusal::usage(message)
        };
        for (message, told) in [
            ("disk broke", "refused: SESSION_IO: disk broke (EIO, stage C8, poisoned)"),
            ("SESSION_IO: EIO at stage C8 rename", "refused: SESSION_IO: EIO at stage C8 rename (poisoned)"),
        ] {
            assert_eq!(Reply::Refused(refusal(message)).to_string(), told);
        }
    }
}
