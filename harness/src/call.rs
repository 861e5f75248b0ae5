//! What is asked of a store and what it answers: the very types that the protocol carries, so that a store in this
//! process and one behind a pipe are judged alike.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use session_tree::{Entry, Error, Header, Message};

use crate::model;

/// One request to a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Call {
    /// Creates a session.
    Create {
        /// The name by which later calls mean this store.
        store: String,
        /// Where.
        path: String,
        /// The session's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        /// Entry ids, consumed in order; then the subject's own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ids: Vec<String>,
        /// Times, consumed in order; then the subject's own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        clock: Vec<String>,
    },
    /// Loads a session.
    Load {
        /// The name by which later calls mean this store.
        store: String,
        /// Where.
        path: String,
        /// Entry ids, consumed in order; then the subject's own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ids: Vec<String>,
        /// Times, consumed in order; then the subject's own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// Ends a store.
    Close {
        /// Which store.
        store: String,
    },
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
            Call::Close { .. } => "close",
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
}

/// What a successful call gives; which fields are there depends on the call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// The header, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<serde_json::Value>,
    /// The new entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryView>,
    /// Entries in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<EntryView>>,
    /// The active leaf, where the call has one to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<Option<String>>,
}

/// An entry as a subject shows it: its canonical JSON text, and the two ids that the oracle needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// The entry's id.
    pub id: String,
    /// The parent's id; none for a root.
    pub parent_id: Option<String>,
    /// The time that the clock gave.
    pub timestamp: String,
    /// The message's canonical JSON text.
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

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Refusal {
        Refusal {
            code: error.code().as_str().to_owned(),
            message: error.to_string(),
            errno: error.errno().map(|errno| errno.to_string()),
            stage: error.stage().map(|stage| stage.id().to_owned()),
            poisoned: error.poisoned(),
            in_flight: error.in_flight(),
        }
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

/// A header as the protocol shows it.
pub fn header_json(header: &Header) -> serde_json::Value {
    serde_json::json!({
        "type": "session",
        "version": session_tree::limits::SESSION_FORMAT_VERSION,
        "id": header.id(),
        "createdAt": header.created_at(),
    })
}

/// A message as the protocol carries it.
pub fn message_json(message: &Message) -> Box<RawValue> {
    // The canonical form is JSON by construction; a null would be refused by every store as a message.
    RawValue::from_string(message.to_json()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
