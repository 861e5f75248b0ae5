//! From the tokens of one line to a header, an entry or a message: exact fields, and no value before its checks
//! (requirements R1 to R4, F7, F9).

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use crate::encode::push_string;
use crate::error::{Code, Error, Position, Result};
use crate::limits::MAX_SESSION_FILE_BYTES;
use crate::linkage::Culprit;
use crate::message::{Arguments, Block, Message, is_blank};
use crate::record::{Entry, Header};
use crate::tape::{Kind, ROOT, Tape, Token};
use crate::text::{Owner, Text};

/// Reads one message that is the whole of `text`.
pub(crate) fn read_message(text: &str) -> Result<Message> {
    read_alone(text, |line| {
        line.check_own_surrogates(ROOT, MESSAGE)?;
        line.message(ROOT)
    })
}

/// Reads the arguments of one tool call that are the whole of `text`.
pub(crate) fn read_arguments(text: &str) -> Result<Arguments> {
    read_alone(text, |line| {
        line.check_own_surrogates(ROOT, TOOL_CALL)?;
        line.arguments(ROOT)
    })
}

fn read_alone<T>(text: &str, read: impl FnOnce(&Line<'_>) -> Result<T>) -> Result<T> {
    let at = |offset| Position { line: 1, column: offset + 1, offset };
    if text.len() > MAX_SESSION_FILE_BYTES {
        let message = format!("expected at most {MAX_SESSION_FILE_BYTES} bytes, found {}", text.len());
        return Err(Error::new(Code::LineTooLarge, "F7", message).with_position(at(MAX_SESSION_FILE_BYTES)));
    }
    let mut tape = Tape::default();
    tape.read(text.as_bytes(), 0).map_err(|stop| {
        let message = "expected one JSON value, found a byte or an end that none has here";
        Error::new(Code::InvalidJson, "F3", message).with_position(at(stop.offset))
    })?;
    let owner = Owner::plain(text.to_owned());
    read(&Line::new(&owner, &tape, 1, 0))
}

/// One line with its tokens.
pub(crate) struct Line<'a> {
    owner: &'a Arc<Owner>,
    file: &'a str,
    tape: &'a Tape,
    number: usize,
    start: usize,
    /// No field out of the canonical order and no unusual spelling so far.
    ordered: Cell<bool>,
}

/// An entry and where the values stand that the rest of the file judges.
pub(crate) struct ReadEntry {
    pub(crate) entry: Entry,
    pub(crate) id_at: usize,
    pub(crate) parent_at: usize,
}

/// An object of fixed fields, and what a deviation is called.
#[derive(Clone, Copy)]
struct Shape {
    what: &'static str,
    code: Code,
    requirement: &'static str,
}

const HEADER: Shape = Shape { what: "a header", code: Code::InvalidHeader, requirement: "R1" };
const ENTRY: Shape = Shape { what: "an entry", code: Code::InvalidRecord, requirement: "R2" };
const MESSAGE: Shape = Shape { what: "a message", code: Code::InvalidMessage, requirement: "R3" };
const TEXT_BLOCK: Shape = Shape { what: "a text block", ..MESSAGE };
const TOOL_CALL: Shape = Shape { what: "a tool call", ..MESSAGE };

/// Most objects are of few members, for which comparing each pair is faster than hashing.
const FEW_MEMBERS: usize = 8;

/// Characters of a value that an error shows.
const SHOWN: usize = 40;

impl<'a> Line<'a> {
    /// The tokens in `tape` are those of the line `number`, which starts at byte `start` of `owner`.
    pub(crate) fn new(owner: &'a Arc<Owner>, tape: &'a Tape, number: usize, start: usize) -> Line<'a> {
        Line { owner, file: owner.as_str(), tape, number, start, ordered: Cell::new(true) }
    }

    /// Whether the line, once it has been read, turned out to be in the canonical form up to its end.
    pub(crate) fn canonical(&self) -> bool {
        self.ordered.get() && self.tape.tight()
    }

    pub(crate) fn header(&self) -> Result<Header> {
        self.record_type(HEADER, "session")?;
        let [_, version, id, created_at] =
            self.fields(ROOT, HEADER, ["type", "version", "id", "createdAt"])?;
        self.version(version, "R1")?;
        let id = self.filled(id, HEADER, "id")?;
        let created_at = self.filled(created_at, HEADER, "createdAt")?;
        Ok(Header::new(id, created_at))
    }

    pub(crate) fn entry(&self) -> Result<ReadEntry> {
        let names = ["type", "version", "id", "parentId", "timestamp", "message"];
        self.record_type(ENTRY, "entry")?;
        let [_, version, id, parent, timestamp, message] = self.fields(ROOT, ENTRY, names)?;
        self.version(version, "R2")?;
        let (id_at, parent_at) = (self.at(id), self.at(parent));
        let id = self.filled(id, ENTRY, "id")?;
        let parent = match self.tape.token(parent).kind {
            Kind::Null => None,
            _ => Some(self.filled(parent, ENTRY, "parentId")?),
        };
        let timestamp = self.filled(timestamp, ENTRY, "timestamp")?;
        let message = self.message(message)?;
        Ok(ReadEntry { entry: Entry::new(id, parent, timestamp, message), id_at, parent_at })
    }

    /// The value of a member of the line's object, if it is a string.
    pub(crate) fn string_of(&self, name: &str) -> Option<String> {
        if self.tape.token(ROOT).kind != Kind::Object {
            return None;
        }
        let value = self.member(ROOT, name).filter(|&value| self.tape.token(value).kind == Kind::String)?;
        Some(self.value(value)?.into_owned())
    }

    /// Where the culprit of a broken linkage stands in this line, which has been read as an entry before.
    pub(crate) fn culprit(&self, culprit: Culprit) -> usize {
        let member = |object, name| self.member(object, name);
        let message = member(ROOT, "message");
        let value = match culprit {
            Culprit::ResultCallId => message.and_then(|message| member(message, "toolCallId")),
            Culprit::ResultToolName => message.and_then(|message| member(message, "toolName")),
            Culprit::CallId { block } => message
                .and_then(|message| member(message, "content"))
                .and_then(|content| self.tape.items(content).nth(block))
                .and_then(|block| member(block, "id")),
        };
        value.map_or(self.start, |value| self.at(value))
    }

    fn message(&self, index: usize) -> Result<Message> {
        self.expect_object(index, MESSAGE)?;
        match self.discriminant(index, MESSAGE, "role")?.as_ref() {
            "user" => {
                let [id, _, content] = self.fields(index, MESSAGE, ["id", "role", "content"])?;
                let id = self.filled(id, MESSAGE, "id")?;
                Ok(Message::User { id, content: self.string(content, MESSAGE, "content")? })
            }
            "assistant" => {
                let [id, _, content] = self.fields(index, MESSAGE, ["id", "role", "content"])?;
                let id = self.filled(id, MESSAGE, "id")?;
                Ok(Message::Assistant { id, content: self.blocks(content)? })
            }
            "toolResult" => self.tool_result(index),
            _ => Err(self.unexpected_role(index)),
        }
    }

    fn tool_result(&self, index: usize) -> Result<Message> {
        let names = ["id", "role", "toolCallId", "toolName", "content", "isError"];
        let [id, _, tool_call_id, tool_name, content, is_error] = self.fields(index, MESSAGE, names)?;
        Ok(Message::ToolResult {
            id: self.filled(id, MESSAGE, "id")?,
            tool_call_id: self.filled(tool_call_id, MESSAGE, "toolCallId")?,
            tool_name: self.filled(tool_name, MESSAGE, "toolName")?,
            content: self.string(content, MESSAGE, "content")?,
            is_error: self.boolean(is_error, MESSAGE, "isError")?,
        })
    }

    fn unexpected_role(&self, message: usize) -> Error {
        let role = self.member(message, "role").unwrap_or(message);
        self.unexpected(role, MESSAGE, "role", "`user`, `assistant` or `toolResult`")
    }

    fn blocks(&self, content: usize) -> Result<Vec<Block>> {
        if self.tape.token(content).kind != Kind::Array {
            return Err(self.unexpected(content, MESSAGE, "content", "an array"));
        }
        self.tape.items(content).map(|block| self.block(block)).collect()
    }

    fn block(&self, index: usize) -> Result<Block> {
        self.expect_object(index, Shape { what: "a content block", ..MESSAGE })?;
        let kind = self.discriminant(index, Shape { what: "a content block", ..MESSAGE }, "type")?;
        match kind.as_ref() {
            "text" => {
                let [_, text] = self.fields(index, TEXT_BLOCK, ["type", "text"])?;
                Ok(Block::Text { text: self.string(text, TEXT_BLOCK, "text")? })
            }
            "toolCall" => {
                let [_, id, name, arguments] =
                    self.fields(index, TOOL_CALL, ["type", "id", "name", "arguments"])?;
                Ok(Block::ToolCall {
                    id: self.filled(id, TOOL_CALL, "id")?,
                    name: self.filled(name, TOOL_CALL, "name")?,
                    arguments: self.arguments(arguments)?,
                })
            }
            _ => {
                let kind = self.member(index, "type").unwrap_or(index);
                Err(self.unexpected(
                    kind,
                    Shape { what: "a content block", ..MESSAGE },
                    "type",
                    "`text` or `toolCall`",
                ))
            }
        }
    }

    fn arguments(&self, index: usize) -> Result<Arguments> {
        if self.tape.token(index).kind != Kind::Object {
            return Err(self.unexpected(index, TOOL_CALL, "arguments", "an object"));
        }
        for (offset, token) in self.tape.within(index).iter().enumerate() {
            if token.kind == Kind::Object {
                self.check_duplicates(index + offset, TOOL_CALL)?;
            } else if token.marks.unpaired() {
                return Err(self.unpaired(*token, TOOL_CALL));
            }
        }
        Ok(Arguments::from_canonical(self.canonical_value(index)))
    }

    /// The value without white space and with minimal escapes. All that stands between strings is punctuation, numbers,
    /// literals and white space.
    fn canonical_value(&self, index: usize) -> Text {
        let Token { start, end, .. } = self.tape.token(index);
        let (mut at, end) = (start as usize, end as usize);
        if self.tape.tight() {
            return Text::slice(self.owner, at..end);
        }
        let mut text = String::with_capacity(end - at);
        let push_dense = |text: &mut String, from: usize, to: usize| {
            text.extend(self.file[from..to].split([' ', '\t', '\n', '\r']));
        };
        for &token in
            self.tape.within(index).iter().filter(|token| matches!(token.kind, Kind::Name | Kind::String))
        {
            push_dense(&mut text, at, token.start as usize);
            match token.value(self.file) {
                Ok(value) if token.marks.not_minimal() => push_string(&mut text, &value),
                _ => text.push_str(token.source(self.file)),
            }
            at = token.end as usize;
        }
        push_dense(&mut text, at, end);
        Text::from(text)
    }

    /// The values of exactly these fields, in this order.
    fn fields<const N: usize>(
        &self,
        object: usize,
        shape: Shape,
        names: [&'static str; N],
    ) -> Result<[usize; N]> {
        self.expect_object(object, shape)?;
        self.check_own_surrogates(object, shape)?;
        // The root is no member, so its index is free to mean absent.
        let mut found = [ROOT; N];
        for (count, (name, value)) in self.tape.members(object).enumerate() {
            let slot = self.slot(name, &names, count).ok_or_else(|| self.extra(name, shape))?;
            if found[slot] != ROOT {
                return Err(self.duplicate(name, shape));
            }
            if slot != count {
                self.ordered.set(false);
            }
            found[slot] = value;
        }
        match found.iter().position(|&value| value == ROOT) {
            Some(missing) => Err(self.missing(object, shape, names[missing])),
            None => Ok(found),
        }
    }

    /// Which of `names` the name is; most likely the one at `guess`.
    fn slot(&self, name: usize, names: &[&'static str], guess: usize) -> Option<usize> {
        let name = self.value(name)?;
        if names.get(guess).is_some_and(|guess| *guess == name) {
            return Some(guess);
        }
        names.iter().position(|candidate| *candidate == name)
    }

    /// The string that tells which fields an object has.
    fn discriminant(&self, object: usize, shape: Shape, name: &'static str) -> Result<Cow<'a, str>> {
        let value = self.member(object, name).ok_or_else(|| self.missing(object, shape, name))?;
        if self.tape.token(value).kind != Kind::String {
            return Err(self.unexpected(value, shape, name, "a string"));
        }
        self.value(value).ok_or_else(|| self.unpaired(self.tape.token(value), shape))
    }

    fn member(&self, object: usize, name: &str) -> Option<usize> {
        self.tape
            .members(object)
            .find(|&(member, _)| self.value(member).as_deref() == Some(name))
            .map(|(_, value)| value)
    }

    /// Checked before the fields, since a record of another type has others: its type says more than its first field
    /// that is one too many.
    fn record_type(&self, shape: Shape, wanted: &str) -> Result<()> {
        self.expect_object(ROOT, shape)?;
        match self.member(ROOT, "type") {
            Some(kind)
                if self.tape.token(kind).kind != Kind::String
                    || self.value(kind).as_deref() != Some(wanted) =>
            {
                Err(self.unexpected(kind, shape, "type", &format!("`{wanted}`")))
            }
            _ => Ok(()),
        }
    }

    /// A number of the decimal value 1, however it is written (requirement F9.version).
    fn version(&self, index: usize, requirement: &'static str) -> Result<()> {
        let token = self.tape.token(index);
        let source = token.source(self.file);
        if source == "1" {
            return Ok(());
        }
        if token.kind == Kind::Number && is_one(source) {
            self.ordered.set(false);
            return Ok(());
        }
        let shape = Shape { what: "a record", code: Code::UnsupportedVersion, requirement };
        Err(self.unexpected(index, shape, "version", "1"))
    }

    fn string(&self, index: usize, shape: Shape, name: &str) -> Result<Text> {
        let token = self.tape.token(index);
        if token.kind != Kind::String {
            return Err(self.unexpected(index, shape, name, "a string"));
        }
        if token.marks.unpaired() {
            return Err(self.unpaired(token, shape));
        }
        let quoted = token.start as usize + 1..token.end as usize - 1;
        Ok(if token.marks.escaped() {
            Text::unescaped(self.owner, quoted)
        } else {
            Text::slice(self.owner, quoted)
        })
    }

    /// A string that is not blank (requirement R4).
    fn filled(&self, index: usize, shape: Shape, name: &str) -> Result<Text> {
        let text = self.string(index, shape, name)?;
        if is_blank(&text) {
            return Err(self.unexpected(
                index,
                Shape { requirement: "R4", ..shape },
                name,
                "a string that is not blank",
            ));
        }
        Ok(text)
    }

    fn boolean(&self, index: usize, shape: Shape, name: &str) -> Result<bool> {
        match self.tape.token(index).kind {
            Kind::True => Ok(true),
            Kind::False => Ok(false),
            _ => Err(self.unexpected(index, shape, name, "a boolean")),
        }
    }

    fn expect_object(&self, index: usize, shape: Shape) -> Result<()> {
        if self.tape.token(index).kind == Kind::Object {
            return Ok(());
        }
        let message = format!("expected {}, which is an object, found {}", shape.what, self.found(index));
        Err(self.refuse(shape.code, shape.requirement, message, self.at(index)))
    }

    /// Refuses unpaired surrogates in the names of an object and in its values, arrays included, but for the objects
    /// among them (requirements F7, F9.surrogates).
    fn check_own_surrogates(&self, object: usize, shape: Shape) -> Result<()> {
        if !self.tape.unpaired() {
            return Ok(());
        }
        let tokens = self.tape.within(object);
        let mut at = usize::from(tokens[0].kind == Kind::Object);
        while let Some(&token) = tokens.get(at) {
            if token.marks.unpaired() {
                return Err(self.unpaired(token, shape));
            }
            at = if token.kind == Kind::Object { token.next as usize - object } else { at + 1 };
        }
        Ok(())
    }

    /// Refuses an object that has a name twice (requirement F9.duplicate-names).
    fn check_duplicates(&self, object: usize, shape: Shape) -> Result<()> {
        let mut few = [ROOT; FEW_MEMBERS];
        for (count, (name, _)) in self.tape.members(object).enumerate() {
            let Some(place) = few.get_mut(count) else { return self.check_many_duplicates(object, shape) };
            *place = name;
            if few[..count].iter().any(|&earlier| self.value(earlier) == self.value(name)) {
                return Err(self.duplicate(name, shape));
            }
        }
        Ok(())
    }

    fn check_many_duplicates(&self, object: usize, shape: Shape) -> Result<()> {
        let mut names = HashSet::new();
        for (name, _) in self.tape.members(object) {
            if !names.insert(self.value(name)) {
                return Err(self.duplicate(name, shape));
            }
        }
        Ok(())
    }

    /// The value of a name or string, unless a surrogate in it is unpaired.
    fn value(&self, index: usize) -> Option<Cow<'a, str>> {
        self.tape.token(index).value(self.file).ok()
    }

    fn at(&self, index: usize) -> usize {
        self.tape.token(index).start as usize
    }

    fn extra(&self, name: usize, shape: Shape) -> Error {
        let message =
            format!("expected only the fields of {}, found {} as well", shape.what, self.quote(name));
        self.refuse(shape.code, shape.requirement, message, self.at(name))
    }

    fn duplicate(&self, name: usize, shape: Shape) -> Error {
        let message = format!(
            "expected each name once in an object of {}, found {} again",
            shape.what,
            self.quote(name)
        );
        self.refuse(shape.code, "F9.duplicate-names", message, self.at(name))
    }

    fn missing(&self, object: usize, shape: Shape, name: &str) -> Error {
        let message = format!("expected {} with the field `{name}`, found none of that name", shape.what);
        self.refuse(shape.code, shape.requirement, message, self.at(object))
    }

    fn unpaired(&self, token: Token, shape: Shape) -> Error {
        let offset = token.value(self.file).err().unwrap_or(token.start as usize);
        let message =
            format!("expected text within {}, found an escape of half a surrogate pair", shape.what);
        self.refuse(shape.code, "F9.surrogates", message, offset)
    }

    fn unexpected(&self, index: usize, shape: Shape, name: &str, wanted: &str) -> Error {
        let message =
            format!("expected the {name} of {} to be {wanted}, found {}", shape.what, self.found(index));
        self.refuse(shape.code, shape.requirement, message, self.at(index))
    }

    fn refuse(&self, code: Code, requirement: &'static str, message: String, offset: usize) -> Error {
        let position = Position { line: self.number, column: offset - self.start + 1, offset };
        Error::new(code, requirement, message).with_position(position)
    }

    /// What kind of value stands at `index`, with a scalar's text.
    fn found(&self, index: usize) -> String {
        match self.tape.token(index).kind {
            Kind::Object => "an object".to_owned(),
            Kind::Array => "an array".to_owned(),
            Kind::String | Kind::Name => format!("the string {}", self.quote(index)),
            Kind::Number => format!("the number {}", self.quote(index)),
            Kind::True | Kind::False | Kind::Null => self.quote(index),
        }
    }

    /// The text of a scalar, shortened and without control characters.
    fn quote(&self, index: usize) -> String {
        let token = self.tape.token(index);
        let text = match token.kind {
            Kind::String | Kind::Name => token.quoted(self.file),
            _ => token.source(self.file),
        };
        let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
        format!("`{shown}{}`", if text.chars().nth(SHOWN).is_some() { "…" } else { "" })
    }
}

/// Whether the decimal value of a JSON number is exactly 1.
fn is_one(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // The only digit that is not zero must be a 1, and the exponent must undo its distance from the units.
    match (whole.trim_start_matches('0'), fraction.trim_end_matches('0')) {
        (whole, "") if whole.strip_prefix('1').is_some_and(is_zeros) => {
            is_exponent(exponent, true, whole.len() - 1)
        }
        ("", fraction) if fraction.strip_suffix('1').is_some_and(is_zeros) => {
            is_exponent(exponent, false, fraction.len())
        }
        _ => false,
    }
}

fn is_zeros(digits: &str) -> bool {
    digits.bytes().all(|digit| digit == b'0')
}

/// Whether a JSON exponent has this sign and magnitude. Its digits may be of any number.
fn is_exponent(exponent: &str, negative: bool, magnitude: usize) -> bool {
    let digits = exponent.trim_start_matches(['+', '-']).trim_start_matches('0');
    if magnitude == 0 {
        return digits.is_empty();
    }
    exponent.starts_with('-') == negative && digits == magnitude.to_string()
}
