//! The binary: see `session-harness --help`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    session_harness::cli::main().into()
}
