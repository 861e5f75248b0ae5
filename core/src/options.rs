//! Where ids and times come from (requirement S9).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Code, Error, Result};

pub(crate) type Factory = Box<dyn FnMut() -> String + Send>;

/// How a store is created or loaded.
///
/// By default ids are random UUIDs and times are the system clock in RFC 3339 with milliseconds. Factories are
/// called while the store holds its place in the queue and the lock of the file: they should return at once. One
/// that panics or calls back into the store makes that append fail with [`Code::FactoryFailed`]; one that waits for
/// another thread's append never returns.
pub struct Options {
    pub(crate) session_id: Option<String>,
    pub(crate) ids: Factory,
    pub(crate) clock: Factory,
}

impl Options {
    /// Random ids and the system clock.
    pub fn new() -> Options {
        Options::default()
    }

    /// The session's id, for `create`. It never comes from the entry id factory.
    #[must_use]
    pub fn with_session_id(mut self, id: impl Into<String>) -> Options {
        self.session_id = Some(id.into());
        self
    }

    /// What gives each new entry its id.
    #[must_use]
    pub fn with_ids(mut self, ids: impl FnMut() -> String + Send + 'static) -> Options {
        self.ids = Box::new(ids);
        self
    }

    /// What gives the header and each new entry its time. The text is opaque to the store, but not blank.
    #[must_use]
    pub fn with_clock(mut self, clock: impl FnMut() -> String + Send + 'static) -> Options {
        self.clock = Box::new(clock);
        self
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { session_id: None, ids: Box::new(random_id), clock: Box::new(system_time) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

pub(crate) fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Calls a factory so that its panic is an error and leaves nothing half made.
pub(crate) fn draw(factory: &mut Factory, what: &str) -> Result<String> {
    catch_unwind(AssertUnwindSafe(factory))
        .map_err(|_| factory_failed(&format!("the {what} factory panicked")))
}

pub(crate) fn factory_failed(message: &str) -> Error {
    Error::new(Code::FactoryFailed, "S9", message)
}

fn system_time() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
