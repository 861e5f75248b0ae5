//! A session store under test.

use crate::call::{Call, Reply};

mod in_process;

pub use in_process::InProcess;

/// A store under test, whatever it is written in.
pub trait Subject {
    /// Asks one thing and waits for the answer.
    fn call(&mut self, call: &Call) -> Reply;
}
