//! `tree`: a session drawn.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ColorChoice};
use session_tree::Store;

use super::CliError;
use super::screen;
use crate::diagnose::{Canvas, Verdict, harmless};
use crate::exit_code::Exit;
use crate::tree_view;

#[derive(Debug, Args)]
pub(super) struct Tree {
    /// The session file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// One JSON object: the active leaf and the nodes in stored order.
    #[arg(long)]
    json: bool,
    /// Only the part that begins at this entry; the first characters of its id are enough where no other begins so.
    #[arg(long, value_name = "ID")]
    from: Option<String>,
    /// Whether drawing and diagnosis are coloured.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Draws the session on standard output. A diagnosis goes to standard error, as JSON to standard output.
pub(super) fn tree(options: &Tree) -> Result<Exit, CliError> {
    let loaded = Store::load(&options.file);
    let verdict = Verdict::new(&options.file, &loaded);
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let canvas = screen::canvas(&err, options.color);
    let mut text = Vec::new();
    match &loaded {
        Ok(store) if options.json => harmless::write_json(&mut text, &to_json(store, options)?)?,
        Ok(store) => {
            text.extend(render(store, options, screen::canvas(&out, options.color))?.into_bytes());
            screen::is_read(err.write_all(verdict.torn_tail(canvas).unwrap_or_default().as_bytes()))?;
        }
        Err(_) if options.json => harmless::write_json(&mut text, &verdict.to_json())?,
        Err(_) => {
            screen::is_read(err.write_all(verdict.to_text(canvas).as_bytes()))?;
        }
    }
    if options.json {
        text.push(b'\n');
    }
    screen::is_read(out.write_all(&text).and_then(|()| out.flush()))?;
    Ok(if loaded.is_ok() { Exit::Holds } else { Exit::Violations })
}

fn to_json(store: &Store, options: &Tree) -> Result<serde_json::Value, CliError> {
    let entries = store.entries();
    let leaf = entries.last().map(session_tree::Entry::id);
    Ok(tree_view::to_json(&entries, leaf, options.from.as_deref())?)
}

fn render(store: &Store, options: &Tree, Canvas { color, width }: Canvas) -> Result<String, CliError> {
    let entries = store.entries();
    let leaf = entries.last().map(session_tree::Entry::id);
    Ok(tree_view::render(&entries, leaf, options.from.as_deref(), tree_view::Options { width, color })?)
}
