//! The independent reference model: the contract once more, in the most obvious way, as an oracle for tests.
//!
//! It shares no code with the store that it judges, not even limits or codes. It knows no disk: what it says holds
//! for calls that no failure of the operating system disturbs. It is slow where slow is plain (each entry walks all
//! its ancestors) and does not recurse on its input, so that every file that a store may meet can be given to it.
//!
//! ```
//! use session_harness::model::{Drawn, Session};
//!
//! let mut session = Session::create("s-1", "2026-01-01T00:00:00Z").expect("a valid header");
//! let drawn = Drawn { id: Some("e-1"), timestamp: Some("2026-01-01T00:00:01Z") };
//! let answer = session.append(None, r#"{"id":"m-1","role":"user","content":"hello"}"#, drawn);
//! assert_eq!(answer.result.expect("a valid message").id, "e-1");
//! assert_eq!(session.append(Some("e-2"), r#"{"id":"m-2","role":"user","content":""}"#, drawn).result,
//!     Err("SESSION_PARENT_NOT_FOUND"));
//! ```

use std::collections::HashMap;
use std::fmt;

mod json;

use json::{Reach, Tail};

const LINE_LIMIT: usize = 65_536;
const FILE_LIMIT: usize = 4_194_304;
const ENTRY_LIMIT: usize = 4_096;

/// A stable code, such as `SESSION_INVALID_JSON`.
pub type Code = &'static str;

/// Why a file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// The offending line, from 1; none if the file as a whole is refused.
    pub line: Option<usize>,
}

/// The first line of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The session's id.
    pub id: String,
    /// When it was created, as opaque text.
    pub created_at: String,
}

/// One message in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unique in the session.
    pub id: String,
    /// The id of an earlier entry; none for a root.
    pub parent: Option<String>,
    /// Opaque text.
    pub timestamp: String,
    /// What was said.
    pub message: Message,
}

/// What was said, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A person's words.
    User {
        /// The message's id.
        id: String,
        /// The words.
        content: String,
    },
    /// An assistant's words and tool calls.
    Assistant {
        /// The message's id.
        id: String,
        /// In the order given.
        content: Vec<Part>,
    },
    /// What a tool answered.
    ToolResult {
        /// The message's id.
        id: String,
        /// The id of the call answered.
        call_id: String,
        /// The name of the tool called.
        tool_name: String,
        /// The answer.
        content: String,
        /// Whether the tool failed.
        is_error: bool,
    },
}

/// A part of an assistant's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A call of a tool.
    ToolCall {
        /// The call's id, unique in its branch.
        id: String,
        /// The tool's name.
        name: String,
        /// A JSON object in canonical form: order of members and spelling of numbers as they were given.
        arguments: String,
    },
}

/// What the factories give to one append. `None` stands for a factory that panics or calls back into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn<'a> {
    /// The entry's id, should one be drawn.
    pub id: Option<&'a str>,
    /// The entry's timestamp, should one be drawn.
    pub timestamp: Option<&'a str>,
}

/// What an append must answer, and which factories it must have called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The new entry, or the code of the refusal.
    pub result: Result<Entry, Code>,
    /// Whether an id was drawn (and so is spent, requirement S5).
    pub drew_id: bool,
    /// Whether a timestamp was drawn.
    pub drew_timestamp: bool,
}

/// A session in memory, with the bytes that its file must have.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    header: Header,
    entries: Vec<Entry>,
    places: HashMap<String, usize>,
    file: Vec<u8>,
    torn_tail: usize,
}

/// Reads a whole file (requirements F1 to F9, R1 to R7, L1 to L5).
///
/// # Errors
///
/// The one [`Refusal`] that this file must meet.
pub fn load(file: &[u8]) -> Result<Session, Refusal> {
    if file.len() > FILE_LIMIT {
        return Err(Refusal { code: "SESSION_FILE_TOO_LARGE", line: None });
    }
    let (lines, torn_tail) = read_lines(file)?;
    let at = |line: usize| move |code| Refusal { code, line: Some(line) };
    let first = lines.first().ok_or("SESSION_INVALID_HEADER").map_err(at(1))?;
    let mut session = Session::new(read_header(first).map_err(at(1))?);
    for (index, line) in lines.iter().enumerate().skip(1) {
        session.read_entry(line).map_err(at(index + 1))?;
    }
    session.file = file.to_vec();
    session.torn_tail = torn_tail;
    Ok(session)
}

impl Session {
    /// A new session (requirement S1, as far as no disk is involved).
    ///
    /// # Errors
    ///
    /// `SESSION_INVALID_HEADER` if either text is blank, `SESSION_LINE_TOO_LARGE` if the header does not fit a line.
    pub fn create(id: &str, created_at: &str) -> Result<Session, Code> {
        if is_blank(id) || is_blank(created_at) {
            return Err("SESSION_INVALID_HEADER");
        }
        let mut session = Session::new(Header { id: id.to_owned(), created_at: created_at.to_owned() });
        if session.header.encode().len() > LINE_LIMIT {
            return Err("SESSION_LINE_TOO_LARGE");
        }
        session.file = session.encode();
        Ok(session)
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// All entries, in stored order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of this id.
    pub fn entry(&self, id: &str) -> Option<&Entry> {
        self.places.get(id).map(|place| &self.entries[*place])
    }

    /// The bytes that the file must have now: as loaded, until an append or flush succeeds.
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// How many bytes at the end of the file are ignored as a torn tail.
    pub fn torn_tail(&self) -> usize {
        self.torn_tail
    }

    /// The canonical bytes of the header and all entries (requirement F8).
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.header.encode();
        out.push('\n');
        for entry in &self.entries {
            out.push_str(&entry.encode());
            out.push('\n');
        }
        out.into_bytes()
    }

    /// Appends below `parent`, checking in the order of requirement S5. A refusal changes nothing.
    pub fn append(&mut self, parent: Option<&str>, message: &str, drawn: Drawn<'_>) -> Answer {
        let mut answer = Answer { result: Err(""), drew_id: false, drew_timestamp: false };
        answer.result =
            self.try_append(parent, message, drawn, &mut answer.drew_id, &mut answer.drew_timestamp);
        answer
    }

    /// Writes the canonical form (requirement S6).
    ///
    /// # Errors
    ///
    /// `SESSION_FILE_TOO_LARGE` if that is more than a file may have.
    pub fn flush(&mut self) -> Result<(), Code> {
        let canonical = self.encode();
        if canonical.len() > FILE_LIMIT {
            return Err("SESSION_FILE_TOO_LARGE");
        }
        self.file = canonical;
        self.torn_tail = 0;
        Ok(())
    }

    /// A tree whose leaf is the last entry (requirement T1).
    pub fn tree(&self) -> Tree {
        Tree { leaf: self.entries.last().map(|entry| entry.id.clone()) }
    }

    fn new(header: Header) -> Session {
        Session { header, entries: Vec::new(), places: HashMap::new(), file: Vec::new(), torn_tail: 0 }
    }

    fn try_append(
        &mut self,
        parent: Option<&str>,
        message: &str,
        drawn: Drawn<'_>,
        drew_id: &mut bool,
        drew_timestamp: &mut bool,
    ) -> Result<Entry, Code> {
        let message = Message::read(message)?;
        if self.entries.len() == ENTRY_LIMIT {
            return Err("SESSION_RECORD_LIMIT");
        }
        if parent.is_some_and(|parent| !self.places.contains_key(parent)) {
            return Err("SESSION_PARENT_NOT_FOUND");
        }
        *drew_id = true;
        let id = drawn.id.ok_or("SESSION_FACTORY_FAILED")?;
        if is_blank(id) {
            return Err("SESSION_INVALID_RECORD");
        }
        if self.places.contains_key(id) {
            return Err("SESSION_DUPLICATE_ENTRY_ID");
        }
        *drew_timestamp = true;
        let timestamp = drawn.timestamp.ok_or("SESSION_FACTORY_FAILED")?;
        if is_blank(timestamp) {
            return Err("SESSION_INVALID_RECORD");
        }
        if !self.links(parent, &message) {
            return Err("SESSION_INVALID_TOOL_LINKAGE");
        }
        let entry = Entry {
            id: id.to_owned(),
            parent: parent.map(str::to_owned),
            timestamp: timestamp.to_owned(),
            message,
        };
        if entry.encode().len() > LINE_LIMIT {
            return Err("SESSION_LINE_TOO_LARGE");
        }
        self.push(entry.clone());
        if let Err(code) = self.flush() {
            self.places.remove(&entry.id);
            self.entries.pop();
            return Err(code);
        }
        Ok(entry)
    }

    fn push(&mut self, entry: Entry) {
        self.places.insert(entry.id.clone(), self.entries.len());
        self.entries.push(entry);
    }

    /// The checks of requirement F7 for one line that is JSON.
    fn read_entry(&mut self, line: &str) -> Result<(), Code> {
        const FIELDS: [&str; 6] = ["type", "version", "id", "parentId", "timestamp", "message"];
        if self.entries.len() == ENTRY_LIMIT {
            return Err("SESSION_RECORD_LIMIT");
        }
        let record = || "SESSION_INVALID_RECORD";
        let [kind, version, id, parent, timestamp, message] =
            json::fields(line, FIELDS).ok_or_else(record)?;
        if !json::is_sound(line, Reach::Own) || json::string(kind).as_deref() != Some("entry") {
            return Err("SESSION_INVALID_RECORD");
        }
        if !json::is_number_one(version) {
            return Err("SESSION_UNSUPPORTED_VERSION");
        }
        let id = json::string(id).filter(|id| !is_blank(id)).ok_or_else(record)?;
        let parent = match parent {
            "null" => None,
            parent => Some(json::string(parent).filter(|parent| !is_blank(parent)).ok_or_else(record)?),
        };
        let timestamp =
            json::string(timestamp).filter(|timestamp| !is_blank(timestamp)).ok_or_else(record)?;
        let message = Message::read(message)?;
        if self.places.contains_key(&id) {
            return Err("SESSION_DUPLICATE_ENTRY_ID");
        }
        if parent.as_ref().is_some_and(|parent| !self.places.contains_key(parent)) {
            return Err("SESSION_PARENT_NOT_FOUND");
        }
        if !self.links(parent.as_deref(), &message) {
            return Err("SESSION_INVALID_TOOL_LINKAGE");
        }
        self.push(Entry { id, parent, timestamp, message });
        Ok(())
    }

    /// Requirements L1 to L4, for a message about to stand below `parent`, by a walk over all its ancestors.
    fn links(&self, parent: Option<&str>, message: &Message) -> bool {
        let mut calls_above = Vec::new();
        let mut answered_above = Vec::new();
        for entry in self.ancestry(parent) {
            calls_above.extend(entry.message.calls());
            answered_above.extend(entry.message.answers());
        }
        for (id, _) in message.calls() {
            if calls_above.iter().any(|(above, _)| *above == id) {
                return false;
            }
            calls_above.push((id, ""));
        }
        match message {
            Message::ToolResult { call_id, tool_name, .. } => {
                calls_above.contains(&(call_id, tool_name)) && !answered_above.contains(&call_id.as_str())
            }
            _ => true,
        }
    }

    /// The entry of this id and its ancestors, leaf first.
    fn ancestry<'a>(&'a self, leaf: Option<&str>) -> impl Iterator<Item = &'a Entry> {
        let parent_of = |entry: &&'a Entry| entry.parent.as_deref().and_then(|parent| self.entry(parent));
        std::iter::successors(leaf.and_then(|leaf| self.entry(leaf)), parent_of)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.file))
    }
}

/// A place in a session where the next message goes (requirements T1 to T5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    leaf: Option<String>,
}

impl Tree {
    /// The id of the active leaf; none where the next message becomes a root.
    pub fn leaf(&self) -> Option<&str> {
        self.leaf.as_deref()
    }

    /// Moves the leaf.
    ///
    /// # Errors
    ///
    /// `SESSION_ENTRY_NOT_FOUND` if the session has no such entry.
    pub fn move_to(&mut self, session: &Session, id: Option<&str>) -> Result<(), Code> {
        if id.is_some_and(|id| session.entry(id).is_none()) {
            return Err("SESSION_ENTRY_NOT_FOUND");
        }
        self.leaf = id.map(str::to_owned);
        Ok(())
    }

    /// Appends below the leaf, which moves to the new entry if there is one.
    pub fn append(&mut self, session: &mut Session, message: &str, drawn: Drawn<'_>) -> Answer {
        let answer = session.append(self.leaf.as_deref(), message, drawn);
        if let Ok(entry) = &answer.result {
            self.leaf = Some(entry.id.clone());
        }
        answer
    }

    /// Root to leaf.
    pub fn active<'a>(&self, session: &'a Session) -> Vec<&'a Entry> {
        let mut path: Vec<_> = session.ancestry(self.leaf()).collect();
        path.reverse();
        path
    }
}

impl Header {
    fn encode(&self) -> String {
        format!(
            "{{\"type\":\"session\",\"version\":1,\"id\":{},\"createdAt\":{}}}",
            json::quote(&self.id),
            json::quote(&self.created_at)
        )
    }
}

impl Entry {
    /// The canonical line, without its line feed.
    pub fn encode(&self) -> String {
        format!(
            "{{\"type\":\"entry\",\"version\":1,\"id\":{},\"parentId\":{},\"timestamp\":{},\"message\":{}}}",
            json::quote(&self.id),
            self.parent.as_ref().map_or("null".to_owned(), |parent| json::quote(parent)),
            json::quote(&self.timestamp),
            self.message.encode()
        )
    }
}

impl Message {
    /// Reads the JSON of one message (requirements R3 and R4).
    ///
    /// # Errors
    ///
    /// `SESSION_INVALID_JSON` for text that is not one JSON value, `SESSION_INVALID_MESSAGE` for every value that is
    /// not exactly a message.
    pub fn read(text: &str) -> Result<Message, Code> {
        let text = json::trimmed(text).ok_or("SESSION_INVALID_JSON")?;
        Message::try_read(text).ok_or("SESSION_INVALID_MESSAGE")
    }

    /// The canonical JSON.
    pub fn encode(&self) -> String {
        match self {
            Message::User { id, content } => {
                format!(
                    "{{\"id\":{},\"role\":\"user\",\"content\":{}}}",
                    json::quote(id),
                    json::quote(content)
                )
            }
            Message::Assistant { id, content } => {
                let parts: Vec<_> = content.iter().map(Part::encode).collect();
                format!(
                    "{{\"id\":{},\"role\":\"assistant\",\"content\":[{}]}}",
                    json::quote(id),
                    parts.join(",")
                )
            }
            Message::ToolResult { id, call_id, tool_name, content, is_error } => format!(
                "{{\"id\":{},\"role\":\"toolResult\",\"toolCallId\":{},\"toolName\":{},\"content\":{},\"isError\":{is_error}}}",
                json::quote(id),
                json::quote(call_id),
                json::quote(tool_name),
                json::quote(content)
            ),
        }
    }

    /// The calls that this message makes, as (id, name).
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        let parts = match self {
            Message::Assistant { content, .. } => content.as_slice(),
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::ToolCall { id, name, .. } => Some((id.as_str(), name.as_str())),
            Part::Text(_) => None,
        })
    }

    /// The id of the call that this message answers.
    pub fn answers(&self) -> Option<&str> {
        match self {
            Message::ToolResult { call_id, .. } => Some(call_id),
            _ => None,
        }
    }

    fn try_read(text: &str) -> Option<Message> {
        if !json::is_sound(text, Reach::Whole) {
            return None;
        }
        let role = json::member(text, "role").and_then(json::string)?;
        match role.as_str() {
            "user" => {
                let [id, _, content] = json::fields(text, ["id", "role", "content"])?;
                Some(Message::User { id: name(id)?, content: json::string(content)? })
            }
            "assistant" => {
                let [id, _, content] = json::fields(text, ["id", "role", "content"])?;
                let content = json::elements(content)?.into_iter().map(Part::read).collect::<Option<_>>()?;
                Some(Message::Assistant { id: name(id)?, content })
            }
            "toolResult" => {
                const FIELDS: [&str; 6] = ["id", "role", "toolCallId", "toolName", "content", "isError"];
                let [id, _, call_id, tool_name, content, is_error] = json::fields(text, FIELDS)?;
                Some(Message::ToolResult {
                    id: name(id)?,
                    call_id: name(call_id)?,
                    tool_name: name(tool_name)?,
                    content: json::string(content)?,
                    is_error: is_error.parse().ok()?,
                })
            }
            _ => None,
        }
    }
}

impl Part {
    fn encode(&self) -> String {
        match self {
            Part::Text(text) => format!("{{\"type\":\"text\",\"text\":{}}}", json::quote(text)),
            Part::ToolCall { id, name, arguments } => format!(
                "{{\"type\":\"toolCall\",\"id\":{},\"name\":{},\"arguments\":{arguments}}}",
                json::quote(id),
                json::quote(name)
            ),
        }
    }

    fn read(text: &str) -> Option<Part> {
        match json::member(text, "type").and_then(json::string)?.as_str() {
            "text" => {
                let [_, text] = json::fields(text, ["type", "text"])?;
                Some(Part::Text(json::string(text)?))
            }
            "toolCall" => {
                let [_, id, called, arguments] = json::fields(text, ["type", "id", "name", "arguments"])?;
                let arguments = arguments.starts_with('{').then(|| json::compact(arguments))?;
                Some(Part::ToolCall { id: name(id)?, name: name(called)?, arguments })
            }
            _ => None,
        }
    }
}

/// All lines that are JSON, without their line ends, and the length of a torn tail.
fn read_lines(file: &[u8]) -> Result<(Vec<&str>, usize), Refusal> {
    let mut pieces: Vec<&[u8]> = file.split(|byte| *byte == b'\n').collect();
    let unterminated = pieces.pop().unwrap_or_default();
    let mut lines = Vec::new();
    for (index, piece) in pieces.into_iter().enumerate() {
        let refusal = |code| Refusal { code, line: Some(index + 1) };
        let line = read_text(piece).map_err(refusal)?;
        if !json::is_json(line) {
            return Err(refusal("SESSION_INVALID_JSON"));
        }
        lines.push(line);
    }
    if unterminated.is_empty() {
        return Ok((lines, 0));
    }
    let refusal = |code| Refusal { code, line: Some(lines.len() + 1) };
    let line = read_text(unterminated).map_err(refusal)?;
    match json::classify(line) {
        Tail::Complete => {
            lines.push(line);
            Ok((lines, 0))
        }
        Tail::Incomplete => Ok((lines, unterminated.len())),
        Tail::Invalid => Err(refusal("SESSION_INVALID_JSON")),
    }
}

fn read_text(piece: &[u8]) -> Result<&str, Code> {
    let line = piece.strip_suffix(b"\r").unwrap_or(piece);
    if line.len() > LINE_LIMIT {
        return Err("SESSION_LINE_TOO_LARGE");
    }
    std::str::from_utf8(line).map_err(|_| "SESSION_INVALID_UTF8")
}

fn read_header(line: &str) -> Result<Header, Code> {
    let invalid = || "SESSION_INVALID_HEADER";
    let [kind, version, id, created_at] =
        json::fields(line, ["type", "version", "id", "createdAt"]).ok_or_else(invalid)?;
    if !json::is_sound(line, Reach::Own) || json::string(kind).as_deref() != Some("session") {
        return Err("SESSION_INVALID_HEADER");
    }
    if !json::is_number_one(version) {
        return Err("SESSION_UNSUPPORTED_VERSION");
    }
    let id = name(id).ok_or_else(invalid)?;
    let created_at = name(created_at).ok_or_else(invalid)?;
    Ok(Header { id, created_at })
}

/// The text of a JSON string that must not be blank.
fn name(value: &str) -> Option<String> {
    json::string(value).filter(|text| !is_blank(text))
}

/// Requirement R4, with the reference's choice of what white space is.
fn is_blank(text: &str) -> bool {
    text.chars().all(|character| character.is_whitespace() || character == '\u{feff}')
}

#[cfg(test)]
mod tests;
