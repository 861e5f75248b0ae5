//! A durable, fail-closed store for the sessions of an AI agent: append-only trees of messages, one JSON object a
//! line.
//!
//! # What holds
//!
//! - An entry that [`Store::append`] returned survives a crash of the process and a power cut.
//! - At every instant the directory holds the old generation of the session, the new one, or a recovery marker
//!   beside either. There is no third state: a reader never sees half a record, half a commit, or a commit that is
//!   taken back later.
//! - A failed operation leaves memory and disk on the old generation. Where that cannot be proved, the answer is
//!   [`Code::RollbackFailed`], a recovery marker stays, and every load refuses until somebody decides.
//! - Loading fails closed. One thing is forgiven: a last line without line feed that is the beginning of a JSON
//!   object, a torn tail. It is left out of the view and goes with the next successful append.
//! - Two stores on one path, in one process or in two, never lose each other's acknowledged entries: the one whose
//!   generation is stale gets [`Code::FileChanged`] and writes nothing.
//!
//! # What is assumed of the storage
//!
//! 1. An fsync of a file that succeeds made its bytes, size, mode and inode durable, if none failed since they changed.
//! 2. An fsync of a directory that succeeds made all earlier changes of its names durable.
//! 3. A rename over an existing name is atomic for that name.
//! 4. A name made by a link or an exclusive create names that inode or nothing.
//! 5. What is durable is not damaged by a later power cut.
//! 6. Between two cuts every process sees everybody's changes at once.
//!
//! Nothing else: no order between changes that were not synced, nothing durable by waiting, no rename that flushes
//! data. Owner, access control lists and extended attributes of the file are not carried from one generation to the
//! next; permission bits are.
//!
//! # Example
//!
//! ```
//! use session_tree::{Message, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("session.jsonl");
//!
//! let store = Store::create(&path)?;
//! let tree = store.tree();
//! let question = tree.append(Message::user("m-1", "which file holds the parser?"))?;
//! tree.append(Message::user("m-2", "and who calls it?"))?;
//!
//! // Another branch from the question. Nothing is deleted, and the file is not touched by the move.
//! tree.move_to(Some(question.id()))?;
//! tree.append(Message::user("m-3", "show me its tests"))?;
//!
//! let reloaded = Store::load(&path)?;
//! assert_eq!(reloaded.entries().len(), 3);
//! assert_eq!(reloaded.tree().active_entries().len(), 2);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod commit;
mod create;
mod decode;
mod encode;
pub mod errno;
mod error;
pub mod file_ops;
#[cfg(feature = "tokio")]
pub mod futures;
mod identity;
pub mod json_prefix;
pub mod limits;
mod linkage;
mod load;
mod message;
mod options;
mod path_lock;
mod place;
mod queue;
mod quoted;
mod record;
pub mod recover;
mod rollback;
#[cfg(test)]
#[path = "../tests/support/seeded.rs"]
mod seeded;
mod sibling_name;
mod store;
mod sync;
mod tape;
mod temporary;
mod text;
mod tree;

pub use decode::{Decoded, decode, problems};
pub use errno::Errno;
pub use error::{Code, Error, Position, Result, Stage};
pub use message::{Arguments, Block, Message};
pub use options::Options;
pub use path_lock::PathLocks;
pub use record::{Entry, Header};
pub use store::{Entries, Store, Support};
pub use text::Text;
pub use tree::Tree;
