//! What a load says of one file: for people in the manner of a compiler, for programs as one JSON object.
//!
//! ```text
//! error[SESSION_INVALID_JSON]: expected one JSON value, found a byte that none has here
//!  --> session.jsonl:2:12
//!   |
//! 2 | {"type":truX}
//!   |            ^ byte offset 67
//!   |
//!   = note: requirement F3: every line is one JSON value; a blank line is none
//!   = help: restore the file from a copy; a complete line that is not JSON is damage, not a torn tail
//! ```
//!
//! Nothing of the file or of its name reaches a terminal as it stands: what a terminal might obey, hide or reorder
//! is shown as an escape. A line is never shown, nor read, as a whole.

use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Map, Value};
use session_tree::{Error, Position, Store};

use crate::diagnose::excerpt::Excerpt;

mod excerpt;
pub mod harmless;
mod meaning;

/// The answer of one load, with the path that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    path: &'a Path,
    loaded: &'a session_tree::Result<Store>,
}

/// What a diagnosis is drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// Whether escape sequences of the diagnosis's own colour it.
    pub color: bool,
    /// Columns. Only the excerpt of the file keeps to them.
    pub width: usize,
}

impl<'a> Verdict<'a> {
    /// What `loaded` says of `path`, which it was loaded from.
    pub fn new(path: &'a Path, loaded: &'a session_tree::Result<Store>) -> Verdict<'a> {
        Verdict { path, loaded }
    }

    /// The verdict as JSON. `file`, and `file_hex` where the name is not UTF-8; `ok`; then of an accepted file
    /// `entries`, `leaf` (an id or null) and `torn_tail` in bytes; of a refused one `code`, `line` and `column` from 1,
    /// `offset` from 0 (all three null where the refusal is about no place in the file), `requirement`, `message`,
    /// and where they are known `errno`, `stage` and `in_flight`.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("file", self.path.to_string_lossy().into());
        if self.path.to_str().is_none() {
            put("file_hex", hex(self.path.as_os_str().as_encoded_bytes()).into());
        }
        put("ok", self.loaded.is_ok().into());
        match self.loaded {
            Ok(store) => {
                let entries = store.entries();
                put("entries", entries.len().into());
                put("leaf", entries.last().map(session_tree::Entry::id).into());
                put("torn_tail", store.torn_tail().into());
            }
            Err(error) => {
                let position = error.position();
                put("code", error.code().as_str().into());
                put("line", position.map(|at| at.line).into());
                put("column", position.map(|at| at.column).into());
                put("offset", position.map(|at| at.offset).into());
                put("requirement", error.requirement().into());
                put("message", error.message().into());
                if let Some(errno) = error.errno() {
                    put("errno", errno.to_string().into());
                }
                if let Some(stage) = error.stage() {
                    put("stage", stage.id().into());
                }
                if error.in_flight() {
                    put("in_flight", true.into());
                }
            }
        }
        object.into()
    }

    /// The verdict in words, one or more whole lines: `ok` and what the session holds, or a diagnosis.
    pub fn to_text(&self, canvas: Canvas) -> String {
        match self.loaded {
            Ok(store) => self.summary(store) + &self.torn_tail(canvas).unwrap_or_default(),
            Err(error) => self.refusal(error, canvas),
        }
    }

    /// The warning about a torn tail, of an accepted file that has one (requirements F4, F5).
    pub fn torn_tail(&self, canvas: Canvas) -> Option<String> {
        let store = self.loaded.as_ref().ok().filter(|store| store.torn_tail() > 0)?;
        let bytes = store.torn_tail();
        // One line of the header, and one an entry, before it.
        let line = store.entries().len() + 2;
        let shown = excerpt::at_end(self.path, line, bytes, canvas.room());
        let title = format!("torn tail: the last {bytes} bytes begin a record that was never completed");
        let place =
            Place { path: self.path, line, column: bytes + 1, label: "the file ends here".to_owned() };
        let group = place.draw(Group::with_title(Level::WARNING.primary_title(title)), shown.as_ref());
        let meaning = meaning::of_requirement("F5").unwrap_or_default();
        let group = group.element(Level::NOTE.message(format!("requirement F5: {meaning}"))).element(
            Level::HELP.message("nothing is lost: the next append or flush writes the session without them"),
        );
        Some(canvas.render(group))
    }

    fn summary(&self, store: &Store) -> String {
        let entries = store.entries();
        let count = match entries.len() {
            1 => "1 entry".to_owned(),
            count => format!("{count} entries"),
        };
        let leaf = entries.last().map_or_else(String::new, |entry| {
            format!(", leaf {}", harmless::shortened(entry.id().as_bytes(), LEAF_WIDTH))
        });
        let torn = match store.torn_tail() {
            0 => String::new(),
            bytes => format!(", torn tail of {bytes} bytes"),
        };
        format!("{}: ok, {count}{leaf}{torn}\n", harmless::path(self.path))
    }

    fn refusal(&self, error: &Error, canvas: Canvas) -> String {
        let message = harmless::text(error.message().as_bytes());
        let mut group = Group::with_title(Level::ERROR.primary_title(message).id(error.code().as_str()));
        let mut unseen = false;
        match error.position() {
            Some(position) => {
                let shown = excerpt::around(self.path, position, canvas.room());
                unseen = shown.is_none();
                group = Place::of(self.path, position).draw(group, shown.as_ref());
            }
            None => group = group.element(Origin::path(harmless::path(self.path))),
        }
        let notes = [
            unseen.then(|| "the line is not shown: the file has changed since".to_owned()),
            error
                .path()
                .filter(|path| *path != self.path)
                .map(|path| format!("about {}", harmless::path(path))),
            system_note(error),
            Some(requirement_note(error)),
        ];
        let notes = notes.into_iter().flatten().map(|note| Level::NOTE.message(note));
        canvas.render(group.elements(notes).element(Level::HELP.message(meaning::help(error))))
    }
}

/// Columns of an id in a summary.
const LEAF_WIDTH: usize = 48;
/// Fewer columns show too little of a line to recognise it, more are hard to find the caret in.
const ROOM: Range<usize> = 24..100;
/// Columns left of the line and right of the caret that the drawing itself takes.
const DRAWING: usize = 12;

impl Canvas {
    /// Columns for the excerpt of a line.
    fn room(self) -> usize {
        self.width.saturating_sub(DRAWING).clamp(ROOM.start, ROOM.end)
    }

    fn render(self, group: Group<'_>) -> String {
        // What is shown has been shortened already, and is not to be shortened around another centre.
        let renderer =
            if self.color { Renderer::styled() } else { Renderer::plain() }.term_width(usize::MAX / 4);
        let drawing = renderer.render(&[group]);
        let lines = drawing.lines().filter(|line| !is_second_location(line));
        lines.flat_map(|line| [line, "\n"]).collect::<String>() + "\n"
    }
}

/// Whether a line of a drawing announces a further location that has no name. The location of a line that was shortened
/// is drawn apart from it, since the library would count columns in what is shown; it then takes the line for a second one.
fn is_second_location(line: &str) -> bool {
    anstream::adapter::strip_str(line).to_string().trim() == ":::"
}

/// A place in a file, and what is said at the caret.
struct Place<'a> {
    path: &'a Path,
    line: usize,
    column: usize,
    label: String,
}

impl<'a> Place<'a> {
    fn of(path: &'a Path, position: Position) -> Place<'a> {
        let Position { line, column, offset } = position;
        Place { path, line, column, label: format!("byte offset {offset}") }
    }

    fn draw<'g>(self, group: Group<'g>, shown: Option<&Excerpt>) -> Group<'g> {
        let origin = Origin::path(harmless::path(self.path)).line(self.line).char_column(self.column);
        let group = group.element(origin);
        match shown {
            Some(excerpt) => {
                let caret = AnnotationKind::Primary.span(excerpt.caret.clone()).label(self.label);
                group.element(Snippet::source(excerpt.text.clone()).line_start(self.line).annotation(caret))
            }
            None => group,
        }
    }
}

fn system_note(error: &Error) -> Option<String> {
    let errno = error.errno()?;
    let stage = error.stage().map_or_else(String::new, |stage| format!(", at stage {stage}"));
    Some(format!("{} ({errno}){stage}", errno.description()))
}

fn requirement_note(error: &Error) -> String {
    let requirement = error.requirement();
    match meaning::of(error) {
        Some(meaning) => format!("requirement {requirement}: {meaning}"),
        None => format!("requirement {requirement}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}
