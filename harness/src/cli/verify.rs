//! `verify`: what a store says of files, and what to do about it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ColorChoice};
use session_tree::Store;

use super::CliError;
use super::screen;
use crate::diagnose::{Canvas, Verdict, harmless};
use crate::exit_code::Exit;

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The session files.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What is wrong with a file behind the first problem too, as far as that can be told.
    #[arg(long)]
    all: bool,
    /// One JSON object a file, each on a line; with `--all` followed by one for each problem.
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
    let mut is_read = true;
    for path in &options.files {
        let loaded = Store::load(path);
        if loaded.is_err() {
            exit = Exit::Violations;
        }
        // A reader that has gone away changes no verdict, so the other files are still loaded.
        if is_read {
            let text = told(&Verdict::new(path, &loaded), options, canvas)?;
            // Flushed, so that each verdict is there as soon as it is known.
            is_read = screen::is_read(out.write_all(&text).and_then(|()| out.flush()))?;
        }
    }
    Ok(exit)
}

fn told(verdict: &Verdict<'_>, options: &Verify, canvas: Canvas) -> io::Result<Vec<u8>> {
    let objects = match (options.json, options.all) {
        (false, false) => return Ok(verdict.to_text(canvas).into_bytes()),
        (false, true) => return Ok(verdict.all_to_text(canvas).into_bytes()),
        (true, false) => vec![verdict.to_json()],
        (true, true) => verdict.all_to_json(),
    };
    let mut text = Vec::new();
    for object in objects {
        harmless::write_json(&mut text, &object)?;
        text.push(b'\n');
    }
    Ok(text)
}
