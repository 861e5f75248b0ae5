//! The store in Python, where Python is.

use std::io::{self, Write as _};
use std::path::Path;
use std::process;

use session_harness::subject::command::Command;

/// Whether a Python can run it; says so where none can.
pub(crate) fn is_here() -> bool {
    let is_new_enough = "import sys; sys.exit(sys.version_info < (3, 11))";
    let is_here = process::Command::new("python3")
        .args(["-c", is_new_enough])
        .status()
        .is_ok_and(|status| status.success());
    if !is_here {
        // Not with a macro, whose words the test runner keeps to itself.
        let _ = writeln!(io::stderr(), "SKIPPED: what needs python3 of 3.11 or later, which is not here");
    }
    is_here
}

pub(crate) fn command(adapter: &Path) -> Command {
    Command::new("python3", [adapter.into()])
}
