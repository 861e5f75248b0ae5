//! `specimens`: the harness against stores that are broken on purpose.

use std::fmt::Write as _;
use std::io::Write;
use std::num::NonZeroUsize;

use clap::Args;
use serde_json::json;

use super::stdout::stdout;
use super::{CliError, run};
use crate::exit_code::Exit;
use crate::glob::Filter;
use crate::report::replay_command;
use crate::specimens::{self, Control, Gallery, Row, Shown};
use crate::subject::Candidate;

#[derive(Debug, Args)]
pub(super) struct Specimens {
    /// Only specimens whose name matches; `*` stands for anything. Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Threads.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// Hunts every specimen and prints who was caught by what.
pub(super) fn specimens(options: &Specimens) -> Result<Exit, CliError> {
    let filter = Filter(options.filter.clone());
    let chosen = |specimen: &specimens::Specimen| filter.matches(specimen.name);
    if !specimens::ALL.iter().any(&chosen) {
        return Err(CliError::NoSuchSpecimen(options.filter.clone()));
    }
    let gallery = specimens::show(chosen, run::jobs(options.jobs), &|_, _| {})?;
    let mut out = stdout();
    let text = if options.json { as_json(&gallery) } else { as_text(&gallery) };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(if gallery.holds() { Exit::Holds } else { Exit::Violations })
}

fn as_json(gallery: &Gallery) -> String {
    let rows = gallery.rows.iter().map(|row| {
        json!({
            "name": row.specimen.name,
            "kind": row.specimen.kind.as_str(),
            "story": row.specimen.story,
            "promise": row.specimen.shown.map(Shown::promise),
            "profile": profile(row),
            "caught": row.is_right(),
            "by": row.caught.as_ref().map(|caught| &caught.by),
            "evidence": row.caught.as_ref().map(|caught| &caught.evidence),
        })
    });
    let controls = gallery.controls.iter().map(|control| {
        json!({
            "control": control.name,
            "expected": control.expected,
            "cases": control.cases,
            "holds": control.wrong.is_none(),
            "by": control.wrong,
        })
    });
    let mut out = String::new();
    for line in rows.chain(controls) {
        let _ = writeln!(out, "{line}");
    }
    out
}

fn as_text(gallery: &Gallery) -> String {
    let width = gallery.rows.iter().map(|row| row.specimen.name.len()).max().unwrap_or_default();
    let head = format!(
        "{:<width$}  {:<8}  {:<22}  {:<7}  {:<6}  by\n",
        "name", "kind", "promise", "profile", "caught"
    );
    let rows: String = gallery.rows.iter().map(|row| row_in_text(row, width)).collect();
    let controls: String = gallery.controls.iter().map(control_in_text).collect();
    let escaped: Vec<&Row> = gallery.rows.iter().filter(|row| !row.is_right()).collect();
    let verdict = match (gallery.holds(), &*escaped) {
        (true, _) => {
            format!("holds: all {} are caught, and every control comes out right\n", gallery.rows.len())
        }
        (false, []) => "a control does not come out right\n".to_owned(),
        (false, escaped) => {
            format!("{} of {} are not caught as they must be\n", escaped.len(), gallery.rows.len())
        }
    };
    let replay = gallery.rows.iter().find_map(|row| Some((row.specimen, row.caught.as_ref()?)));
    let replay = replay.map_or_else(String::new, |(specimen, caught)| {
        format!("replay one:  {}\n", replay_command(&specimen.name(), &caught.by))
    });
    format!("{head}{rows}\n{controls}\n{replay}{verdict}")
}

fn row_in_text(row: &Row, width: usize) -> String {
    let promise = row.specimen.shown.map_or_else(String::new, Shown::promise);
    let by = row.caught.as_ref().map_or("-", |caught| &caught.by);
    let caught = if row.is_right() { "yes" } else { "NO" };
    let (name, kind) = (row.specimen.name, row.specimen.kind.as_str());
    format!(
        "{name:<width$}  {kind:<8}  {promise:<22}  {:<7}  {caught:<6}  {by}\n",
        profile(row).unwrap_or("-")
    )
}

fn control_in_text(control: &Control) -> String {
    let is = match &control.wrong {
        None => "yes".to_owned(),
        Some(wrong) => format!("NO: {wrong}"),
    };
    format!("control {}: {} in {} cases: {is}\n", control.name, control.expected, control.cases)
}

/// The weakest profile that showed it, or the one that must.
fn profile(row: &Row) -> Option<&'static str> {
    let named = row.specimen.shown.and_then(Shown::profile);
    row.caught.as_ref().map_or(named, |caught| caught.profile).map(crate::crash::Profile::as_str)
}
