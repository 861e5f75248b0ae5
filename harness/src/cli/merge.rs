//! `merge`: the reports of all parts of a run become one.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ColorChoice};

use super::reports::{Files, Target};
use super::run::exit;
use super::stdout::stdout;
use super::{CliError, screen};
use crate::exit_code::Exit;
use crate::report::{self, Report, terminal};

#[derive(Debug, Args)]
pub(super) struct Merge {
    /// The JSON reports of all parts; or the one of a whole run, to make another kind of it.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Writes the joined report: `json=PATH`, `junit=PATH` or `html=PATH`. Repeatable.
    #[arg(long, value_name = "KIND=PATH")]
    report: Vec<Target>,
    /// Prints the verdict only.
    #[arg(long)]
    quiet: bool,
    /// Whether the verdict is coloured.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Joins the reports, and ends as the whole run would have.
pub(super) fn merge(options: &Merge) -> Result<Exit, CliError> {
    let named = options.files.iter().map(|path| Ok((path.display().to_string(), read(path)?)));
    let whole = report::merge(named.collect::<Result<_, CliError>>()?)?;
    if whole.cases.is_empty() {
        return Err(CliError::NothingMatches(whole.selection.filter));
    }
    // The sources are read by now, so that one of them may be written anew.
    Files::open(&options.report)?.write(&whole)?;
    let color = screen::canvas(&std::io::stdout(), options.color).color;
    let text = if options.quiet { terminal::verdict(&whole, color) } else { terminal::render(&whole, color) };
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(exit(&whole))
}

fn read(path: &Path) -> Result<Report, CliError> {
    let unusable = |what: String| CliError::NotAReport { path: path.to_owned(), what };
    let bytes = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))
}
