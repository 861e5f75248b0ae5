//! `verify`: what a store says of files, and what to do about it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ColorChoice};
use session_tree::Store;

use super::CliError;
use super::screen;
use crate::diagnose::{Verdict, harmless};
use crate::exit_code::Exit;

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The session files.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// One JSON object a file, each on a line.
    #[arg(long)]
    json: bool,
    /// Whether diagnoses are coloured.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Loads each file as a store does, one after the other, and prints the verdicts as they come.
pub(super) fn verify(options: &Verify) -> Result<Exit, CliError> {
    let mut out = io::stdout().lock();
    let canvas = screen::canvas(&out, options.color);
    let mut exit = Exit::Holds;
    for path in &options.files {
        let loaded = Store::load(path);
        if loaded.is_err() {
            exit = Exit::Violations;
        }
        let verdict = Verdict::new(path, &loaded);
        let mut text = Vec::new();
        if options.json {
            harmless::write_json(&mut text, &verdict.to_json())?;
            text.push(b'\n');
        } else {
            text.extend(verdict.to_text(canvas).into_bytes());
        }
        // Flushed, so that each verdict is there as soon as it is known.
        if !screen::is_read(out.write_all(&text).and_then(|()| out.flush()))? {
            break;
        }
    }
    Ok(exit)
}
