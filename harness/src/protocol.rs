//! Protocol 1: a store of any language as a child process, JSON lines over standard input and output.
//!
//! One request a line, one answer a line with the same `id`. `PROTOCOL.md` tells it to an author of an adapter; here
//! are both ends of it, so that what the harness asks and what its own reference answers agree with that text by
//! test. Nothing here reads or writes a pipe.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

mod answer;
mod lines;
mod request;

pub use answer::{is_of_loaded_entries, read_hello, read_reply, unasked, write_hello, write_reply};
pub use lines::{Lines, TooLong};
pub use request::{BadRequest, Request, read_call, read_request, write_call, write_hello_request};

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// The name of the session format whose every case is run; of a subject with another one the cases that fit any store.
pub const FORMAT: &str = "session-tree-1";

/// How long a subject has for its first answer: runtimes start slowly.
pub const FIRST_ANSWER: Duration = Duration::from_mins(1);

/// How long a subject has for every other answer.
pub const ANSWER: Duration = Duration::from_secs(10);

/// Bytes of one answer, without its line feed. A session of the largest size stays far below it, even with every
/// character as an escape.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// What a subject says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol that it speaks.
    pub protocol: u32,
    /// The store's name.
    pub name: String,
    /// The store's version.
    pub version: String,
    /// What it is written in.
    pub language: String,
    /// The format of its files.
    pub format: String,
    /// What it can do beyond the calls that every store has. Names that the harness does not know do no harm.
    pub capabilities: Vec<String>,
}

/// Something that a subject may have or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Trees: the calls `tree`, `moveTo`, `treeAppend` and `active`.
    Tree,
    /// Ids and times that the harness injects.
    Factories,
    /// The call `concurrent`.
    Concurrent,
    /// The calls `inspect` and `recover`.
    Recover,
}

impl Capability {
    /// Every one.
    pub const ALL: [Capability; 4] =
        [Capability::Tree, Capability::Factories, Capability::Concurrent, Capability::Recover];

    /// Its name in [`Hello::capabilities`].
    pub const fn name(self) -> &'static str {
        match self {
            Capability::Tree => "tree",
            Capability::Factories => "factories",
            Capability::Concurrent => "concurrent",
            Capability::Recover => "recover",
        }
    }
}

impl Hello {
    /// Whether it says that it can do this.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.iter().any(|name| name == capability.name())
    }

    /// Whether its files are of the format of this contract.
    pub fn is_native(&self) -> bool {
        self.format == FORMAT
    }
}

/// Tells a member that is null from one that is not there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
