//! A durable, fail-closed session store.
#![forbid(unsafe_code)]

pub mod errno;
mod error;
pub mod file_ops;
pub mod limits;
mod path_lock;

pub use errno::Errno;
pub use error::{Code, Error, Position, Result, Stage};
pub use path_lock::PathLocks;
