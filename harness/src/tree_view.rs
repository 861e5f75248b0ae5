//! Draws a session tree for people, and as JSON for programs.
//!
//! The drawing reads from top to bottom, like a conversation. One branch goes straight down; where it forks, the
//! other branches come first, one column to the right:
//!
//! ```text
//! * a1  user       Which database would you use?  [root]
//! * a2  assistant  Three options.
//! |\
//! | o b1  user       Tell me about the second.
//! * c1  user       The first, please.
//! * c2  assistant  Let me measure. -> python(call_1)
//! * c3  tool       <- python(call_1): 24342528  [active leaf]
//! ```
//!
//! `*` is on the active path, `o` is not. The active path keeps its column; elsewhere the branch with the most
//! entries does. What leaves a branch off the active path has then at most half of its entries, so that a session at
//! the ceiling needs thirteen columns at most, whatever its shape. A long id is shown by its first characters, as many as
//! tell it from all others, and may be given so. Text from the session is made harmless for terminals: control characters,
//! bidirectional controls and other invisible characters are shown as escapes.

use std::collections::HashMap;
use std::fmt::Write as _;

use annotate_snippets::renderer::{AnsiColor, Effects, Style};
use serde_json::{Value, json};
use session_tree::{Block, Entry, Message};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr as _};

/// How a tree is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Columns of the terminal. Words that do not fit are cut off; ids, marks and at least some words are kept,
    /// so that a row may be longer on a narrow terminal.
    pub width: usize,
    /// Whether escape sequences colour what deserves a look: the active path, failures, calls without a result.
    pub color: bool,
}

impl Default for Options {
    /// 100 columns, no colours.
    fn default() -> Options {
        Options { width: 100, color: false }
    }
}

/// An id that names no entry, or not one alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownEntry {
    /// No entry has this id, nor does one begin with it.
    #[error("no entry has the id `{}`", shortened(.0, ID_WIDTH))]
    Unknown(String),
    /// The ids of so many entries begin with it.
    #[error("{count} entries have an id that begins with `{}`", shortened(.id, ID_WIDTH))]
    Ambiguous {
        /// The beginning.
        id: String,
        /// How many begin so.
        count: usize,
    },
}

/// Draws the tree (requirements T1, T4, T5), or the part of it that begins at `from`, one line an entry.
///
/// `active` is the id of the active leaf. After a load it is the last entry's. `from` may be the beginning of an id.
///
/// # Errors
///
/// [`UnknownEntry`] if `active` or `from` names no entry, or `from` several.
pub fn render(
    entries: &[Entry],
    active: Option<&str>,
    from: Option<&str>,
    options: Options,
) -> Result<String, UnknownEntry> {
    let forest = Forest::new(entries, active)?;
    let rows = forest.rows(forest.starts(from)?);
    let labels = forest.labels();
    let drawn = rows.iter().filter_map(|row| row.node);
    let id_width = drawn.map(|node| labels[node].width()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        match row.node {
            Some(node) => {
                let padding = " ".repeat(id_width - labels[node].width());
                forest.push_entry(&mut out, node, row.column, (&labels[node], &padding), options);
            }
            None => push_fork(&mut out, row.column, options),
        }
    }
    Ok(out)
}

/// The tree as JSON: `leaf`, the active leaf's id or null, and `nodes` in stored order. A node has `id`, `parentId`,
/// `role`, `preview` (its first words, harmless for terminals), `depth` (0 at a root), `children` (ids), `leaf`
/// (whether it has none), `active` (whether it is on the active path) and `danglingCalls` (ids of its tool calls
/// that no entry below answers).
///
/// # Errors
///
/// [`UnknownEntry`] if `active` or `from` names no entry, or `from` several.
pub fn to_json(entries: &[Entry], active: Option<&str>, from: Option<&str>) -> Result<Value, UnknownEntry> {
    let forest = Forest::new(entries, active)?;
    let mut nodes: Vec<_> = forest.rows(forest.starts(from)?).iter().filter_map(|row| row.node).collect();
    nodes.sort_unstable();
    let nodes: Vec<_> = nodes.into_iter().map(|node| forest.node_json(node)).collect();
    Ok(json!({ "leaf": active, "nodes": nodes }))
}

const ID_WIDTH: usize = 36;
/// Characters of an id that is shown whole in any case.
const SHORT_ID: usize = 12;
/// Characters that are shown of a longer one at least.
const LEAST_ID: usize = 8;
const CALL_ID_WIDTH: usize = 16;
const PREVIEW_WIDTH: usize = 80;
const LEAST_WORDS: usize = 16;

/// What is known of the entries, each by its place in stored order.
struct Forest<'a> {
    entries: &'a [Entry],
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    depths: Vec<usize>,
    /// Entries of each subtree.
    sizes: Vec<usize>,
    on_active_path: Vec<bool>,
    leaf: Option<usize>,
    /// Whether each entry's tool calls, in order, are answered somewhere below.
    answered: Vec<Vec<bool>>,
    places: HashMap<&'a str, usize>,
}

/// One line of a drawing: an entry, or none where a branch begins.
struct Row {
    node: Option<usize>,
    column: usize,
}

impl<'a> Forest<'a> {
    fn new(entries: &'a [Entry], active: Option<&str>) -> Result<Forest<'a>, UnknownEntry> {
        let count = entries.len();
        let mut forest = Forest {
            entries,
            parents: Vec::with_capacity(count),
            children: vec![Vec::new(); count],
            depths: Vec::with_capacity(count),
            sizes: vec![1; count],
            on_active_path: vec![false; count],
            leaf: None,
            answered: entries.iter().map(|entry| vec![false; calls(entry.message()).count()]).collect(),
            places: HashMap::with_capacity(count),
        };
        for (place, entry) in entries.iter().enumerate() {
            // Looked up among earlier entries only, so that no cycle can be.
            let parent = entry.parent_id().and_then(|id| forest.places.get(id).copied());
            forest.depths.push(parent.map_or(0, |parent| forest.depths[parent] + 1));
            if let Some(parent) = parent {
                forest.children[parent].push(place);
            }
            forest.parents.push(parent);
            forest.places.insert(entry.id(), place);
        }
        for place in (0..count).rev() {
            if let Some(parent) = forest.parents[place] {
                forest.sizes[parent] += forest.sizes[place];
            }
        }
        forest.leaf = active.map(|id| forest.find(id)).transpose()?;
        forest.mark_active_path();
        forest.mark_answered_calls();
        Ok(forest)
    }

    fn find(&self, id: &str) -> Result<usize, UnknownEntry> {
        self.places.get(id).copied().ok_or_else(|| UnknownEntry::Unknown(id.to_owned()))
    }

    /// The entry of this id, else the one whose id begins so.
    fn find_by_beginning(&self, id: &str) -> Result<usize, UnknownEntry> {
        let unknown = match self.find(id) {
            Ok(place) => return Ok(place),
            Err(unknown) => unknown,
        };
        let begins = |place: &usize| !id.is_empty() && self.entries[*place].id().starts_with(id);
        let found: Vec<usize> = (0..self.entries.len()).filter(begins).collect();
        match found.as_slice() {
            [] => Err(unknown),
            [place] => Ok(*place),
            many => Err(UnknownEntry::Ambiguous { id: id.to_owned(), count: many.len() }),
        }
    }

    /// What is shown of each id: as much as tells it from all others.
    fn labels(&self) -> Vec<String> {
        let mut sorted: Vec<usize> = (0..self.entries.len()).collect();
        sorted.sort_unstable_by_key(|place| self.entries[*place].id());
        let mut shared = vec![0; self.entries.len()];
        for pair in sorted.windows(2) {
            let common = common_characters(self.entries[pair[0]].id(), self.entries[pair[1]].id());
            for place in pair {
                shared[*place] = common.max(shared[*place]);
            }
        }
        let label = |(entry, shared): (&Entry, usize)| {
            let id = entry.id();
            let told = (shared + 1).max(LEAST_ID);
            let is_short = id.chars().nth(SHORT_ID).is_none();
            let end = if is_short { None } else { id.char_indices().nth(told).map(|(end, _)| end) };
            shortened(&id[..end.unwrap_or(id.len())], ID_WIDTH)
        };
        self.entries.iter().zip(shared).map(label).collect()
    }

    fn starts(&self, from: Option<&str>) -> Result<Vec<usize>, UnknownEntry> {
        match from {
            Some(id) => Ok(vec![self.find_by_beginning(id)?]),
            None => Ok(self.roots().collect()),
        }
    }

    fn roots(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.entries.len()).filter(|place| self.parents[*place].is_none())
    }

    fn mark_active_path(&mut self) {
        let mut at = self.leaf;
        while let Some(place) = at {
            self.on_active_path[place] = true;
            at = self.parents[place];
        }
    }

    /// Walks all branches and keeps the calls of the present one: a call id may be in use on many, once on each.
    fn mark_answered_calls(&mut self) {
        enum Visit {
            Enter(usize),
            Leave(usize),
        }
        let mut open: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut visits: Vec<_> = self.roots().rev().map(Visit::Enter).collect();
        while let Some(visit) = visits.pop() {
            match visit {
                Visit::Enter(place) => {
                    let message = self.entries[place].message();
                    if let Message::ToolResult { tool_call_id, .. } = message
                        && let Some((caller, call)) = open.get(tool_call_id.as_str())
                    {
                        self.answered[*caller][*call] = true;
                    }
                    open.extend(calls(message).enumerate().map(|(call, (id, _))| (id, (place, call))));
                    visits.push(Visit::Leave(place));
                    visits.extend(self.children[place].iter().copied().map(Visit::Enter));
                }
                Visit::Leave(place) => {
                    for (id, _) in calls(self.entries[place].message()) {
                        open.remove(id);
                    }
                }
            }
        }
    }

    /// Depth first, the branch that keeps its column last.
    fn rows(&self, starts: Vec<usize>) -> Vec<Row> {
        let at = |column| move |node| Row { node: Some(node), column };
        let mut rows = Vec::with_capacity(self.entries.len());
        let mut pending: Vec<_> = starts.into_iter().rev().map(at(0)).collect();
        while let Some(row) = pending.pop() {
            if let Some(node) = row.node {
                let straight = self.straight_on(node);
                pending.extend(straight.map(at(row.column)));
                for child in self.children[node].iter().rev().filter(|child| Some(**child) != straight) {
                    pending.push(Row { node: Some(*child), column: row.column + 1 });
                    pending.push(Row { node: None, column: row.column });
                }
            }
            rows.push(row);
        }
        rows
    }

    /// The child on the active path, else the one with the most entries, of equal ones the newest.
    fn straight_on(&self, node: usize) -> Option<usize> {
        let rank = |child: &usize| (self.on_active_path[*child], self.sizes[*child]);
        self.children[node].iter().copied().max_by_key(rank)
    }

    fn push_entry(
        &self,
        out: &mut String,
        node: usize,
        column: usize,
        (id, padding): (&str, &str),
        options: Options,
    ) {
        let message = self.entries[node].message();
        let is_active = self.on_active_path[node];
        let (glyph, path) = if is_active { ("*", ACTIVE) } else { ("o", PLAIN) };
        let lines = "| ".repeat(column);
        let role = format!("{padding}  {:<9}  ", role_word(message));
        let marks = self.marks(node);
        let taken: usize = marks.iter().map(|(_, mark)| mark.width()).sum();
        let taken = taken + [&lines, glyph, " ", id, &role].iter().map(|part| part.width()).sum::<usize>();
        let words = self.words(node, options.width.saturating_sub(taken).max(LEAST_WORDS));
        let tone = if matches!(message, Message::ToolResult { is_error: true, .. }) { FAILED } else { PLAIN };
        let row = [(LINES, lines), (path, format!("{glyph} {id}")), (PLAIN, role), (tone, words)];
        let parts = row.into_iter().chain(marks).map(|(style, text)| painted(style, &text, options));
        writeln!(out, "{}", parts.collect::<String>().trim_end()).expect("a string takes all");
    }

    fn marks(&self, node: usize) -> Vec<(Style, String)> {
        let mut marks = Vec::new();
        if self.parents[node].is_none() {
            marks.push((LINES, "  [root]".to_owned()));
        }
        let calls = self.answered[node].len();
        let dangling: Vec<_> = self.dangling(node).collect();
        match dangling.as_slice() {
            [] => {}
            [id] => marks.push((DANGLING, format!("  [no result: {}]", shortened(id, CALL_ID_WIDTH)))),
            ids => marks.push((DANGLING, format!("  [no result: {} of {calls} calls]", ids.len()))),
        }
        if self.leaf == Some(node) {
            marks.push((ACTIVE, "  [active leaf]".to_owned()));
        }
        marks
    }

    fn dangling(&self, node: usize) -> impl Iterator<Item = &'a str> {
        let calls = calls(self.entries[node].message());
        calls.zip(&self.answered[node]).filter(|(_, answered)| !**answered).map(|((id, _), _)| id)
    }

    /// The first words of a message, and what it has to do with tools, in at most `room` columns.
    fn words(&self, node: usize, room: usize) -> String {
        match self.entries[node].message() {
            Message::User { content, .. } => shortened(content, room),
            Message::Assistant { content, .. } => assistant_words(content, room),
            Message::ToolResult { tool_call_id, tool_name, content, is_error, .. } => {
                let mut words = Words::new(room);
                let verdict = if *is_error { ") failed: " } else { "): " };
                for text in ["<- ", tool_name, "(", &shortened(tool_call_id, CALL_ID_WIDTH), verdict, content]
                {
                    words.push(text);
                }
                words.finish()
            }
        }
    }

    fn node_json(&self, node: usize) -> Value {
        let entry = &self.entries[node];
        let children: Vec<_> = self.children[node].iter().map(|child| self.entries[*child].id()).collect();
        json!({
            "id": entry.id(),
            "parentId": entry.parent_id(),
            "role": entry.message().role(),
            "preview": self.words(node, PREVIEW_WIDTH),
            "depth": self.depths[node],
            "leaf": children.is_empty(),
            "children": children,
            "active": self.on_active_path[node],
            "danglingCalls": self.dangling(node).collect::<Vec<_>>(),
        })
    }
}

/// Texts, then calls, of which many do not crowd out the texts nor long texts the calls.
fn assistant_words(content: &[Block], room: usize) -> String {
    let texts = || {
        content.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::ToolCall { .. } => None,
        })
    };
    let room_of_calls = if texts().all(str::is_empty) { room } else { room / 3 * 2 };
    let mut calls = Words::new(room_of_calls);
    for (id, name) in calls_of(content) {
        for text in [" -> ", name, "(", &shortened(id, CALL_ID_WIDTH), ")"] {
            calls.push(text);
        }
    }
    let calls = calls.finish();
    let taken = if calls.is_empty() { 0 } else { calls.width() + 1 };
    let mut words = Words::new(room.saturating_sub(taken));
    for text in texts() {
        words.push(text);
        words.push(" ");
    }
    let words = words.finish();
    if words.is_empty() || calls.is_empty() { words + &calls } else { format!("{words} {calls}") }
}

fn push_fork(out: &mut String, column: usize, options: Options) {
    let lines = format!("{}|\\", "| ".repeat(column));
    writeln!(out, "{}", painted(LINES, &lines, options)).expect("a string takes all");
}

const PLAIN: Style = Style::new();
const LINES: Style = Style::new().effects(Effects::DIMMED);
const ACTIVE: Style = AnsiColor::Green.on_default().effects(Effects::BOLD);
const DANGLING: Style = AnsiColor::Yellow.on_default();
const FAILED: Style = AnsiColor::Red.on_default();

fn painted(style: Style, text: &str, options: Options) -> String {
    if options.color && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// How many characters two texts begin with in common.
fn common_characters(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

fn role_word(message: &Message) -> &'static str {
    match message {
        Message::ToolResult { .. } => "tool",
        other => other.role(),
    }
}

/// The calls of a message, as (id, name).
fn calls(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    let blocks = match message {
        Message::Assistant { content, .. } => content.as_slice(),
        _ => &[],
    };
    calls_of(blocks)
}

fn calls_of(blocks: &[Block]) -> impl Iterator<Item = (&str, &str)> {
    blocks.iter().filter_map(|block| match block {
        Block::ToolCall { id, name, .. } => Some((id.as_str(), name.as_str())),
        Block::Text { .. } => None,
    })
}

fn shortened(text: &str, room: usize) -> String {
    let mut words = Words::new(room);
    words.push(text);
    words.finish()
}

/// Text for one row of a terminal: white space of any kind is one space, what a terminal might obey or hide is an
/// escape, and what does not fit is left out. Looks no further into a text than it shows.
struct Words {
    out: String,
    room: usize,
    width: usize,
    characters: usize,
    full: bool,
}

impl Words {
    /// Combining marks have no width: without a limit of their own, one letter could carry a whole line of them.
    const CHARACTERS_PER_COLUMN: usize = 4;

    fn new(room: usize) -> Words {
        Words { out: String::new(), room, width: 0, characters: 0, full: false }
    }

    fn push(&mut self, text: &str) {
        for character in text.chars() {
            if self.full {
                return;
            }
            match character {
                _ if character.is_whitespace() => {
                    if !self.out.is_empty() && !self.out.ends_with(' ') {
                        self.push_piece(" ");
                    }
                }
                _ if is_unsafe(character) => self.push_piece(&character.escape_unicode().to_string()),
                _ => self.push_piece(character.encode_utf8(&mut [0; 4])),
            }
        }
    }

    fn push_piece(&mut self, piece: &str) {
        let width: usize = piece.chars().filter_map(UnicodeWidthChar::width).sum();
        self.characters += 1;
        if self.width + width > self.room || self.characters > self.room * Words::CHARACTERS_PER_COLUMN {
            self.full = true;
            return;
        }
        self.width += width;
        self.out.push_str(piece);
    }

    fn finish(mut self) -> String {
        if !self.full {
            self.out.truncate(self.out.trim_end().len());
            return self.out;
        }
        // Room for the mark of what is left out; a joiner before it would join with it.
        while self.out.width() + 1 > self.room || self.out.ends_with([' ', '\u{200d}']) {
            if self.out.pop().is_none() {
                break;
            }
        }
        self.out.push('…');
        self.out
    }
}

/// Whether a terminal might obey the character (controls), reorder others because of it (bidirectional controls), or
/// show nothing at all for it. The joiners stay, since scripts and emoji need them.
pub(crate) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, Shape};

    const CEILING: usize = 4_096;

    fn user(text: &str) -> String {
        format!(r#"{{"id":"m","role":"user","content":{}}}"#, json!(text))
    }

    fn assistant(text: &str, calls: &[&str]) -> String {
        let mut blocks = vec![json!({"type": "text", "text": text})];
        blocks.extend(
            calls.iter().map(|id| json!({"type": "toolCall", "id": id, "name": "bash", "arguments": {}})),
        );
        json!({"id": "m", "role": "assistant", "content": blocks}).to_string()
    }

    fn result(id: &str, text: &str, is_error: bool) -> String {
        json!({"id": "m", "role": "toolResult", "toolCallId": id, "toolName": "bash", "content": text, "isError": is_error})
            .to_string()
    }

    /// Entries from (id, parent, message).
    fn entries(entries: &[(&str, Option<&str>, String)]) -> Vec<Entry> {
        let mut file = "{\"type\":\"session\",\"version\":1,\"id\":\"s\",\"createdAt\":\"t\"}\n".to_owned();
        for (id, parent, message) in entries {
            let (id, parent) = (json!(id), json!(parent));
            writeln!(
                file,
                r#"{{"type":"entry","version":1,"id":{id},"parentId":{parent},"timestamp":"t","message":{message}}}"#
            )
            .expect("a string takes all");
        }
        decoded(file.into_bytes())
    }

    fn decoded(file: Vec<u8>) -> Vec<Entry> {
        session_tree::decode(file).expect("a valid session").entries().to_vec()
    }

    fn drawn(entries: &[Entry]) -> String {
        let leaf = entries.last().map(Entry::id);
        render(entries, leaf, None, Options::default()).expect("a known leaf")
    }

    /// Binary, every level full.
    fn bushy(count: usize) -> Vec<Entry> {
        let ids: Vec<_> = (0..count).map(|place| format!("e{place}")).collect();
        let tree: Vec<_> = (0..count)
            .map(|place| {
                let parent = place.checked_sub(1).map(|below| ids[below / 2].as_str());
                (ids[place].as_str(), parent, user("x"))
            })
            .collect();
        entries(&tree)
    }

    // Requirement: T1, T4, T5
    #[test]
    fn a_chain_goes_straight_down_and_ends_at_the_active_leaf() {
        let chain = [
            ("a1", None, user("Which  database\nwould you use?")),
            ("a2", Some("a1"), assistant("Let me measure.", &["c1", "c2"])),
            ("a3", Some("a2"), result("c2", "disk I/O error", true)),
            ("a10", Some("a3"), result("c1", "24342528\n", false)),
            ("a11", Some("a10"), assistant("", &[])),
        ];
        let wanted = "\
* a1   user       Which database would you use?  [root]
* a2   assistant  Let me measure. -> bash(c1) -> bash(c2)
* a3   tool       <- bash(c2) failed: disk I/O error
* a10  tool       <- bash(c1): 24342528
* a11  assistant    [active leaf]
";
        assert_eq!(drawn(&entries(&chain)), wanted);
    }

    // Requirement: T1, T4, T5
    #[test]
    fn branches_leave_to_the_right_and_the_active_path_keeps_its_column() {
        let tree = entries(&[
            ("a", None, user("start")),
            ("b", Some("a"), user("first")),
            ("c", Some("b"), user("first, on")),
            ("d", Some("b"), user("first, other")),
            ("e", Some("d"), user("first, other, on")),
            ("f", Some("a"), user("second")),
            ("g", Some("a"), user("third")),
        ]);
        let wanted = "\
* a  user       start  [root]
|\\
| o b  user       first
| |\\
| | o c  user       first, on
| o d  user       first, other
| o e  user       first, other, on
|\\
| o f  user       second
* g  user       third  [active leaf]
";
        assert_eq!(drawn(&tree), wanted);
        let moved = "\
* a  user       start  [root]
|\\
| o f  user       second
|\\
| o g  user       third
* b  user       first
|\\
| o d  user       first, other
| o e  user       first, other, on
* c  user       first, on  [active leaf]
";
        assert_eq!(render(&tree, Some("c"), None, Options::default()).as_deref(), Ok(moved));
        let part = "\
o b  user       first
|\\
| o c  user       first, on
o d  user       first, other
o e  user       first, other, on
";
        assert_eq!(render(&tree, Some("g"), Some("b"), Options::default()).as_deref(), Ok(part));
    }

    // Requirement: L3, L4
    #[test]
    fn a_call_dangles_unless_an_entry_below_it_answers() {
        let tree = entries(&[
            ("a", None, assistant("", &["c1", "c2"])),
            ("b", Some("a"), result("c1", "done", false)),
            ("c", None, assistant("", &["c2"])),
            ("d", Some("c"), result("c2", "done", false)),
            ("e", None, assistant("", &["c1", "c2", "c3"])),
            ("f", Some("e"), result("c2", "done", false)),
        ]);
        let wanted = "\
o a  assistant  -> bash(c1) -> bash(c2)  [root]  [no result: c2]
o b  tool       <- bash(c1): done
o c  assistant  -> bash(c2)  [root]
o d  tool       <- bash(c2): done
* e  assistant  -> bash(c1) -> bash(c2) -> bash(c3)  [root]  [no result: 2 of 3 calls]
* f  tool       <- bash(c2): done  [active leaf]
";
        assert_eq!(drawn(&tree), wanted);
    }

    // Requirement: T4
    #[test]
    fn terminal_escapes_and_bidirectional_controls_are_shown_not_obeyed() {
        let hostile = "\u{1b}[2J\u{7}\u{202e}abc\u{2066}\u{200f}\u{9b}31m\u{feff}\u{200b}\u{e0041}\u{0}|\r\n\u{2028}end";
        let tree = entries(&[("\u{1b}]0;x\u{7}", None, user(hostile)), ("b", None, result_like(hostile))]);
        let picture = drawn(&tree);
        assert!(picture.chars().all(|character| character == '\n' || !is_unsafe(character)), "{picture}");
        assert_eq!(picture.lines().count(), 2, "{picture}");
        assert!(picture.contains(r"\u{1b}[2J\u{7}\u{202e}abc\u{2066}\u{200f}\u{9b}31m"), "{picture}");
        let json = to_json(&tree, None, None).expect("no leaf");
        let preview = json["nodes"][0]["preview"].as_str().expect("a text");
        assert!(preview.starts_with(r"\u{1b}[2J") && !preview.contains(is_unsafe), "{preview}");
    }

    fn result_like(text: &str) -> String {
        json!({"id": "m", "role": "assistant", "content": [{"type": "toolCall", "id": text, "name": text, "arguments": {}}]})
            .to_string()
    }

    // Requirement: T4
    #[test]
    fn rows_are_as_wide_as_the_terminal_allows() {
        let texts = [
            "word ".repeat(100),
            "漢字".repeat(100),
            "👩‍💻".repeat(100),
            "e\u{301}".repeat(200),
            "\u{301}".repeat(9_000),
        ];
        for text in texts {
            let tree = entries(&[("a", None, user(&text)), ("b", Some("a"), assistant(&text, &["call"]))]);
            for width in [79, 80, 120] {
                let picture =
                    render(&tree, Some("b"), None, Options { width, color: false }).expect("a known leaf");
                for row in picture.lines() {
                    assert!(row.width() <= width && row.len() < 8 * width, "{row}");
                    assert!(row.contains('…'), "{row}");
                }
                assert!(
                    picture.ends_with("… -> bash(call)  [no result: call]  [active leaf]\n"),
                    "{picture}"
                );
            }
        }
        let long = assistant(&"word ".repeat(100), &["call-1", "call-2"]);
        let picture =
            render(&entries(&[("a", None, long)]), None, None, Options { width: 120, color: false })
                .expect("no leaf");
        assert!(picture.contains("w… -> bash(call-1) -> bash(call-2)  [root]"), "{picture}");
        let narrow = render(
            &entries(&[("a", None, user("some words"))]),
            None,
            None,
            Options { width: 0, color: false },
        );
        assert_eq!(narrow.as_deref(), Ok("o a  user       some words  [root]\n"));
    }

    // Requirement: T5
    #[test]
    fn every_shape_at_the_ceiling_is_drawn_without_absurd_indentation() {
        let trees = Shape::ALL.map(|shape| decoded(generate::ceiling(shape, 1).expect("within reach")));
        for tree in trees.into_iter().chain([bushy(CEILING)]) {
            for leaf in [0, 1, CEILING / 2, CEILING - 1] {
                let picture =
                    render(&tree, Some(tree[leaf].id()), None, Options::default()).expect("a known leaf");
                let is_entry = |row: &&str| !row.ends_with('\\');
                assert_eq!(picture.lines().filter(is_entry).count(), CEILING);
                let columns = picture.lines().map(|row| row.matches("| ").count()).max();
                assert!(columns <= Some(12), "{columns:?}");
            }
            let json = to_json(&tree, None, None).expect("no leaf");
            assert_eq!(json["nodes"].as_array().map(Vec::len), Some(CEILING));
        }
    }

    // Requirement: T5
    #[test]
    fn chains_roots_and_combs_are_as_narrow_as_can_be() {
        let columns = |shape| {
            let picture = drawn(&decoded(generate::session(shape, 500, 500_000, 1).expect("within reach")));
            picture.lines().map(|row| row.matches("| ").count()).max()
        };
        assert_eq!(columns(Shape::Chain), Some(0));
        assert_eq!(columns(Shape::Roots), Some(0));
        assert_eq!(columns(Shape::Comb), Some(1));
    }

    // Requirement: T1, T4, L4
    #[test]
    fn json_has_every_node_in_stored_order() {
        let tree = entries(&[
            ("a", None, user("start")),
            ("b", Some("a"), assistant("look", &["c1", "c2"])),
            ("c", Some("a"), user("other")),
            ("d", Some("b"), result("c2", "", false)),
        ]);
        let wanted = json!({
            "leaf": "d",
            "nodes": [
                {"id": "a", "parentId": null, "role": "user", "preview": "start", "depth": 0, "leaf": false,
                 "children": ["b", "c"], "active": true, "danglingCalls": []},
                {"id": "b", "parentId": "a", "role": "assistant", "preview": "look -> bash(c1) -> bash(c2)", "depth": 1,
                 "leaf": false, "children": ["d"], "active": true, "danglingCalls": ["c1"]},
                {"id": "c", "parentId": "a", "role": "user", "preview": "other", "depth": 1, "leaf": true,
                 "children": [], "active": false, "danglingCalls": []},
                {"id": "d", "parentId": "b", "role": "toolResult", "preview": "<- bash(c2):", "depth": 2, "leaf": true,
                 "children": [], "active": true, "danglingCalls": []},
            ],
        });
        assert_eq!(to_json(&tree, Some("d"), None), Ok(wanted.clone()));
        let part = to_json(&tree, Some("d"), Some("b")).expect("known entries");
        assert_eq!(part["nodes"], json!([wanted["nodes"][1], wanted["nodes"][3]]));
    }

    // Requirement: T1
    #[test]
    fn a_long_id_is_shown_and_found_by_as_much_as_tells_it_from_others() {
        let ids = [
            "0123456789-abc",
            "0123456789-abd",
            "9876543210-xyz",
            "0123456789",
            "漢漢漢漢漢漢漢漢漢漢漢漢漢漢",
        ];
        let tree = entries(&ids.map(|id| (id, None, user("x"))));
        let picture = drawn(&tree);
        let shown: Vec<&str> = picture.lines().filter_map(|row| row.split_whitespace().nth(1)).collect();
        assert_eq!(shown, ["0123456789-abc", "0123456789-abd", "98765432", "0123456789", "漢漢漢漢漢漢漢漢"]);
        let from = |id| render(&tree, None, Some(id), Options::default());
        assert_eq!(from("98").map(|picture| picture.lines().count()), Ok(1));
        assert!(from("0123456789").is_ok_and(|picture| picture.starts_with("o 0123456789 ")));
        assert_eq!(
            from("0123456789-"),
            Err(UnknownEntry::Ambiguous { id: "0123456789-".to_owned(), count: 2 })
        );
        assert_eq!(from("").err().map(|error| error.to_string()).as_deref(), Some("no entry has the id ``"));
        assert_eq!(to_json(&tree, None, Some("98")).expect("an id")["nodes"][0]["id"], ids[2]);
    }

    #[test]
    fn colours_add_nothing_but_themselves() {
        let tree = entries(&[
            ("a", None, assistant("look", &["c1", "c2"])),
            ("b", Some("a"), result("c1", "gone", true)),
            ("c", Some("a"), user("")),
        ]);
        let paint =
            |color| render(&tree, Some("c"), None, Options { width: 80, color }).expect("a known leaf");
        let (plain, colored) = (paint(false), paint(true));
        assert!(colored.contains("\u{1b}[33m  [no result: c2]\u{1b}[0m") && !plain.contains('\u{1b}'));
        let mut parts = colored.split('\u{1b}');
        let bare = parts.next().map(str::to_owned).into_iter();
        let bare: String =
            bare.chain(parts.filter_map(|part| Some(part.split_once('m')?.1.to_owned()))).collect();
        assert_eq!(bare, plain);
    }

    // Requirement: T2
    #[test]
    fn an_unknown_id_is_an_error_and_no_session_is_an_empty_drawing() {
        let tree = entries(&[("a", None, user("x"))]);
        let unknown = || UnknownEntry::Unknown("\u{1b}b".to_owned());
        assert_eq!(render(&tree, Some("\u{1b}b"), None, Options::default()), Err(unknown()));
        assert_eq!(to_json(&tree, None, Some("\u{1b}b")), Err(unknown()));
        assert_eq!(unknown().to_string(), r"no entry has the id `\u{1b}b`");
        assert_eq!(drawn(&[]), "");
    }
}
