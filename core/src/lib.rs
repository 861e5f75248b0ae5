//! A durable, fail-closed session store.
#![forbid(unsafe_code)]

mod decode;
mod encode;
pub mod errno;
mod error;
pub mod file_ops;
pub mod json_prefix;
pub mod limits;
mod linkage;
mod message;
mod path_lock;
mod record;
mod tape;
mod text;

pub use decode::{Decoded, decode};
pub use errno::Errno;
pub use error::{Code, Error, Position, Result, Stage};
pub use message::{Arguments, Block, Message};
pub use path_lock::PathLocks;
pub use record::{Entry, Header};
pub use text::Text;
