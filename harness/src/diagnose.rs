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

use std::cell::OnceCell;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Map, Value};
use session_tree::recover::{Content, Inspection, inspect};
use session_tree::{Code, Error, Position, Store};

use crate::diagnose::excerpt::Excerpt;
use crate::diagnose::likely::Likely;
use crate::diagnose::source::Source;

mod excerpt;
pub mod harmless;
mod likely;
mod meaning;
mod source;

pub(crate) use meaning::help;

/// The answer of one load, with the path that was asked for.
#[derive(Debug)]
pub struct Verdict<'a> {
    path: &'a Path,
    loaded: &'a session_tree::Result<Store>,
    /// The file, read again where there is something to show of it.
    source: OnceCell<Option<Source>>,
    /// What stands beside it, where a recovery marker does.
    beside: OnceCell<Option<Inspection>>,
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
        Verdict { path, loaded, source: OnceCell::new(), beside: OnceCell::new() }
    }

    /// The verdict as JSON. `file`, and `file_hex` where the name is not UTF-8; `ok`; then of an accepted file
    /// `entries`, `leaf` (an id or null) and `torn_tail` in bytes; of a refused one `code`, `line` and `column` from 1,
    /// `offset` from 0 (all three null where the refusal is about no place in the file), `requirement`, `message`,
    /// `help`, and where they are known `likely` (a guess at the cause), `state` (what an inspection says where a
    /// recovery marker is there), `errno`, `stage` and `in_flight`.
    pub fn to_json(&self) -> Value {
        let mut object = self.named();
        object.insert("ok".to_owned(), self.loaded.is_ok().into());
        match self.loaded {
            Ok(store) => {
                let entries = store.entries();
                object.insert("entries".to_owned(), entries.len().into());
                object.insert("leaf".to_owned(), entries.last().map(session_tree::Entry::id).into());
                object.insert("torn_tail".to_owned(), store.torn_tail().into());
            }
            Err(error) => self.put_error(&mut object, error),
        }
        object.into()
    }

    /// [`Verdict::to_json`] with `problems`, the number of all problems that can be told, and then one object for each of
    /// them in the order of the file: `file`, `problem` (from 1), and what a refusal has.
    pub fn all_to_json(&self) -> Vec<Value> {
        let problems = self.problems();
        let Value::Object(mut verdict) = self.to_json() else { return Vec::new() };
        verdict.insert("problems".to_owned(), problems.len().into());
        let one = |(number, error): (usize, &Error)| {
            let mut object = self.named();
            object.insert("problem".to_owned(), number.into());
            self.put_error(&mut object, error);
            object.into()
        };
        [verdict.into()].into_iter().chain((1..).zip(&problems).map(one)).collect()
    }

    fn named(&self) -> Map<String, Value> {
        let mut object = Map::from_iter([("file".to_owned(), self.path.to_string_lossy().into())]);
        if self.path.to_str().is_none() {
            object.insert("file_hex".to_owned(), hex(self.path.as_os_str().as_encoded_bytes()).into());
        }
        object
    }

    fn put_error(&self, object: &mut Map<String, Value>, error: &Error) {
        let position = error.position();
        let likely = self.likely(error);
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("code", error.code().as_str().into());
        put("line", position.map(|at| at.line).into());
        put("column", position.map(|at| at.column).into());
        put("offset", position.map(|at| at.offset).into());
        put("requirement", error.requirement().into());
        put("message", error.message().into());
        put("help", self.help(error, likely.as_ref()).into());
        if let Some(likely) = likely {
            put("likely", likely.cause.into());
        }
        if let Some(beside) = self.beside(error) {
            put("state", beside.state.token().into());
        }
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

    /// The verdict in words, one or more whole lines: `ok` and what the session holds, or a diagnosis.
    pub fn to_text(&self, canvas: Canvas) -> String {
        match self.loaded {
            Ok(store) => self.summary(store) + &self.torn_tail(canvas).unwrap_or_default(),
            Err(error) => {
                let content = self.beside(error).and_then(|beside| match &beside.current {
                    Content::Refused(content) => Some(self.diagnosis(content, None, canvas)),
                    _ => None,
                });
                self.diagnosis(error, None, canvas) + &content.unwrap_or_default()
            }
        }
    }

    /// [`Verdict::to_text`] with all problems that can be told, the verdict's first. Neighbouring lines that are refused
    /// for one reason are told once, what follows from a cause that concerns the whole file only by number, and of very
    /// many problems the first.
    pub fn all_to_text(&self, canvas: Canvas) -> String {
        let Err(error) = self.loaded else { return self.to_text(canvas) };
        let problems = self.problems();
        let mut runs: Vec<&[Error]> = problems.chunk_by(is_continued).collect();
        runs.sort_by_key(|run| !run.iter().any(|problem| is_same(problem, error)));
        let follows = self.likely(error).is_some_and(|likely| likely.of_all);
        let drawn = if follows { 1 } else { MOST_DRAWN };
        let mut text = String::new();
        for run in runs.iter().take(drawn) {
            text += &self.diagnosis(&run[0], run.last().filter(|_| run.len() > 1), canvas);
        }
        let left = match runs.iter().skip(drawn).map(|run| run.len()).sum::<usize>() {
            0 => String::new(),
            left if follows => format!("; {left} of them probably follow from that"),
            left => format!("; {left} of them are not drawn here, and are in `--all --json`"),
        };
        let count = problems.len();
        let plural = if count == 1 { "" } else { "s" };
        text + &format!("{}: refused, {count} problem{plural}{left}\n", harmless::path(self.path))
    }

    /// Every problem that can be told, in the order of the file: the refusal among them, whether it has a place or not.
    fn problems(&self) -> Vec<Error> {
        let Err(error) = self.loaded else { return Vec::new() };
        let mut problems = match error.code() {
            Code::FileTooLarge => Vec::new(),
            _ => self.source().map(|source| session_tree::problems(source.bytes.clone())).unwrap_or_default(),
        };
        if !problems.iter().any(|problem| is_same(problem, error)) {
            problems.insert(0, error.clone());
        }
        problems
    }

    fn source(&self) -> Option<&Source> {
        self.source.get_or_init(|| Source::read(self.path)).as_ref()
    }

    fn likely(&self, error: &Error) -> Option<Likely> {
        error.position().and_then(|_| likely::cause(error, self.source()?, self.path))
    }

    /// What stands beside the file, where `error` is about a recovery marker that nobody is at work with.
    fn beside(&self, error: &Error) -> Option<&Inspection> {
        let is_about_marker = error.code() == Code::RollbackFailed && !error.in_flight();
        is_about_marker.then(|| self.beside.get_or_init(|| inspect(self.path).ok()).as_ref())?
    }

    fn help(&self, error: &Error, likely: Option<&Likely>) -> String {
        match (likely, self.beside(error)) {
            (Some(likely), _) => likely.help.clone(),
            (None, Some(beside)) => meaning::way_out(beside.state, self.path),
            (None, None) => help(error, self.path),
        }
    }

    /// The warning about a torn tail, of an accepted file that has one (requirements F4, F5).
    pub fn torn_tail(&self, canvas: Canvas) -> Option<String> {
        let store = self.loaded.as_ref().ok().filter(|store| store.torn_tail() > 0)?;
        let bytes = store.torn_tail();
        // One line of the header, and one an entry, before it.
        let line = store.entries().len() + 2;
        let shown = self.source().and_then(|file| excerpt::at_end(&file.bytes, line, bytes, canvas.room()));
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

    /// A problem drawn; with the last one of a run of neighbours that are of its kind.
    fn diagnosis(&self, error: &Error, until: Option<&Error>, canvas: Canvas) -> String {
        let message = harmless::text(error.message().as_bytes());
        let mut group = Group::with_title(Level::ERROR.primary_title(message).id(error.code().as_str()));
        let mut unseen = false;
        match error.position() {
            Some(position) => {
                let shown =
                    self.source().and_then(|file| excerpt::around(&file.bytes, position, canvas.room()));
                unseen = shown.is_none();
                group = Place::of(self.path, position).draw(group, shown.as_ref());
            }
            None => group = group.element(Origin::path(harmless::path(self.path))),
        }
        let likely = self.likely(error);
        let notes = [
            unseen.then(|| "the line is not shown: the file has changed since".to_owned()),
            until
                .and_then(Error::position)
                .map(|last| format!("so are the lines after it, up to line {}", last.line)),
            error
                .path()
                .filter(|path| *path != self.path)
                .map(|path| format!("about {}", harmless::path(path))),
            system_note(error),
            likely.as_ref().map(|likely| format!("likely cause: {}", likely.cause)),
            Some(requirement_note(error)),
            self.beside(error)
                .map(|beside| format!("inspect says {}: {}", beside.state, beside.state.words())),
        ];
        let notes = notes.into_iter().flatten().map(|note| Level::NOTE.message(note));
        let help = self.help(error, likely.as_ref());
        canvas.render(group.elements(notes).element(Level::HELP.message(help)))
    }
}

/// Columns of an id in a summary.
const LEAF_WIDTH: usize = 48;
/// Problems of one file that are drawn at most, besides its verdict.
const MOST_DRAWN: usize = 30;
/// Fewer columns show too little of a line to recognise it, more are hard to find the caret in.
const ROOM: Range<usize> = 24..100;
/// Columns left of the line and right of the caret that the drawing itself takes.
const DRAWING: usize = 12;

/// Whether two problems are one.
fn is_same(one: &Error, other: &Error) -> bool {
    one.code() == other.code() && one.position() == other.position()
}

/// Whether the next line is refused for the same reason.
fn is_continued(one: &Error, next: &Error) -> bool {
    let line = |error: &Error| error.position().map(|at| at.line);
    one.code() == next.code()
        && one.message() == next.message()
        && line(one).zip(line(next)).is_some_and(|(one, next)| one + 1 == next)
}

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
