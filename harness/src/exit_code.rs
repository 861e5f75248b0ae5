//! Exit statuses, which scripts depend on.

use std::process::ExitCode;

/// How a run of the binary ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The subject holds; every file was accepted.
    Holds,
    /// Promises were broken; a file was refused.
    Violations,
    /// The command line was wrong.
    Usage,
    /// The harness itself could not do its work.
    Harness,
    /// The subject could not be started, or broke the protocol.
    Subject,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Holds => 0,
            Exit::Violations => 1,
            Exit::Usage => 2,
            Exit::Harness => 3,
            Exit::Subject => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
