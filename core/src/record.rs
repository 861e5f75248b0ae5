//! The two kinds of record: a header, and entries below it (requirements R1, R2).

use std::fmt;
use std::sync::Arc;

use crate::encode;
use crate::message::Message;
use crate::text::Text;

/// The first record of a session (requirement R1). A clone copies pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    id: Text,
    created_at: Text,
}

impl Header {
    pub(crate) fn new(id: Text, created_at: Text) -> Header {
        Header { id, created_at }
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When the session was created, as the clock of its creator wrote it: opaque text.
    pub fn created_at(&self) -> &str {
        &self.created_at
    }

    /// The header as compact JSON in the canonical form, without a line feed (requirement F8).
    pub fn to_json(&self) -> String {
        without_line_feed(encode::header_line(self))
    }
}

/// An immutable record of a session (requirement R2). A clone copies a pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry(Arc<Parts>);

#[derive(PartialEq, Eq)]
struct Parts {
    id: Text,
    parent: Option<Text>,
    timestamp: Text,
    message: Message,
}

impl Entry {
    pub(crate) fn new(id: Text, parent: Option<Text>, timestamp: Text, message: Message) -> Entry {
        Entry(Arc::new(Parts { id, parent, timestamp, message }))
    }

    /// The entry's id, unique in its session (requirement R5).
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The id of an earlier entry, or nothing for a root (requirement R5).
    pub fn parent_id(&self) -> Option<&str> {
        self.0.parent.as_deref()
    }

    /// When the entry was appended, as the store's clock wrote it: opaque text.
    pub fn timestamp(&self) -> &str {
        &self.0.timestamp
    }

    /// What the entry carries.
    pub fn message(&self) -> &Message {
        &self.0.message
    }

    /// The entry as compact JSON in the canonical form, without a line feed (requirement F8).
    pub fn to_json(&self) -> String {
        without_line_feed(encode::entry_line(self))
    }

    /// Whether both are the very same entry in memory, not only equal ones.
    pub fn ptr_eq(&self, other: &Entry) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn id_text(&self) -> &Text {
        &self.0.id
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.0.id)
            .field("parent_id", &self.0.parent)
            .field("timestamp", &self.0.timestamp)
            .field("message", &self.0.message)
            .finish()
    }
}

fn without_line_feed(mut line: String) -> String {
    line.pop();
    line
}
