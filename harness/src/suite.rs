//! The suites.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub mod any_store;
pub mod concurrency;
pub mod conformance;
pub mod crash;
pub mod explore;
pub mod faults;
pub mod recovery;

/// A suite, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// What a store makes of each case of the corpus.
    Conformance,
    /// Every system call fails in every way that it can.
    Faults,
    /// The power is cut after every system call.
    Crash,
    /// Calls that are begun together, and two processes on one session.
    Concurrency,
}

impl Suite {
    /// Every suite.
    pub const ALL: [Suite; 4] = [Suite::Conformance, Suite::Faults, Suite::Crash, Suite::Concurrency];

    /// Whether it looks below a store, at its system calls. It sees no store that is known by its answers alone.
    pub const fn looks_below(self) -> bool {
        matches!(self, Suite::Faults | Suite::Crash)
    }

    /// The name, with which the ids of its cases begin.
    pub const fn name(self) -> &'static str {
        match self {
            Suite::Conformance => conformance::NAME,
            Suite::Faults => faults::NAME,
            Suite::Crash => crash::NAME,
            Suite::Concurrency => concurrency::NAME,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
