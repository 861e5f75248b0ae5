//! Messages: what an entry carries (requirement R3).

use crate::decode::shape;
use crate::encode;
use crate::error::{Code, Error, Result};
use crate::text::Text;

/// A message of a conversation (requirement R3).
///
/// Ids and names are non-empty and not blank (requirement R4); [`Message::from_json`] and a load see to that, and
/// [`Message::validate`] checks a message that was built by hand. Contents may be empty. Message ids need not be
/// unique (requirement R6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What a person said.
    User {
        /// The message's id.
        id: Text,
        /// The words.
        content: Text,
    },
    /// What the model said and asked for. May be without any block.
    Assistant {
        /// The message's id.
        id: Text,
        /// Texts and tool calls, in order.
        content: Vec<Block>,
    },
    /// What a tool answered to a call among the entry's ancestors (requirement L1).
    ToolResult {
        /// The message's id.
        id: Text,
        /// The id of the call that this answers.
        tool_call_id: Text,
        /// The name of the tool, equal to the call's.
        tool_name: Text,
        /// The answer.
        content: Text,
        /// Whether the tool failed.
        is_error: bool,
    },
}

/// A part of an assistant's message (requirement R3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Words.
    Text {
        /// The words; may be empty.
        text: Text,
    },
    /// A request to run a tool.
    ToolCall {
        /// The call's id, once per branch (requirement L2).
        id: Text,
        /// The tool's name.
        name: Text,
        /// What the tool is given.
        arguments: Arguments,
    },
}

/// The arguments of a tool call: the canonical text of a JSON object (requirement F8).
///
/// They stay text, so that nesting may be as deep as a line is long, numbers keep every digit and members their
/// order. White space is dropped, names and strings have the fewest escapes. Equal when these texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments(Text);

impl Message {
    /// A person's message.
    pub fn user(id: impl Into<Text>, content: impl Into<Text>) -> Message {
        Message::User { id: id.into(), content: content.into() }
    }

    /// A model's message.
    pub fn assistant(id: impl Into<Text>, content: Vec<Block>) -> Message {
        Message::Assistant { id: id.into(), content }
    }

    /// A tool's answer to the call `tool_call_id` of the tool `tool_name`.
    pub fn tool_result(
        id: impl Into<Text>,
        tool_call_id: impl Into<Text>,
        tool_name: impl Into<Text>,
        content: impl Into<Text>,
        is_error: bool,
    ) -> Message {
        Message::ToolResult {
            id: id.into(),
            tool_call_id: tool_call_id.into(),
            tool_name: tool_name.into(),
            content: content.into(),
            is_error,
        }
    }

    /// Reads one JSON object with exactly the fields of its role, in any order.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidJson`] for text that is not one JSON value, [`Code::InvalidMessage`] for one that is not a
    /// message (requirements R3, R4, F9), [`Code::LineTooLarge`] for more than
    /// [`crate::limits::MAX_SESSION_FILE_BYTES`] bytes. The position counts in `text`, as line 1.
    pub fn from_json(text: &str) -> Result<Message> {
        shape::read_message(text)
    }

    /// The message as compact JSON, in the canonical form (requirement F8).
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        encode::push_message(&mut text, self);
        text
    }

    /// The message's id.
    pub fn id(&self) -> &str {
        match self {
            Message::User { id, .. } | Message::Assistant { id, .. } | Message::ToolResult { id, .. } => id,
        }
    }

    /// The role as it is written in a session file: `user`, `assistant` or `toolResult`.
    pub fn role(&self) -> &'static str {
        match self {
            Message::User { .. } => "user",
            Message::Assistant { .. } => "assistant",
            Message::ToolResult { .. } => "toolResult",
        }
    }

    /// Checks ids and names (requirement R4), the only rule of messages that the types do not keep.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidMessage`] when one is empty or blank.
    pub fn validate(&self) -> Result<()> {
        filled("the id of a message", self.id())?;
        match self {
            Message::User { .. } => Ok(()),
            Message::Assistant { content, .. } => content.iter().try_for_each(Block::validate),
            Message::ToolResult { tool_call_id, tool_name, .. } => {
                filled("the toolCallId of a tool result", tool_call_id)?;
                filled("the toolName of a tool result", tool_name)
            }
        }
    }
}

impl Block {
    fn validate(&self) -> Result<()> {
        match self {
            Block::Text { .. } => Ok(()),
            Block::ToolCall { id, name, .. } => {
                filled("the id of a tool call", id)?;
                filled("the name of a tool call", name)
            }
        }
    }
}

impl Arguments {
    /// Reads one JSON object and brings it into the canonical form.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidJson`] for text that is not one JSON value; [`Code::InvalidMessage`] for a value that is not an
    /// object, and for duplicate names or unpaired surrogates at any depth (requirements F9.duplicate-names,
    /// F9.surrogates); [`Code::LineTooLarge`] for more than [`crate::limits::MAX_SESSION_FILE_BYTES`] bytes.
    pub fn parse(text: &str) -> Result<Arguments> {
        shape::read_arguments(text)
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Text that is known to be a canonical object.
    pub(crate) fn from_canonical(text: Text) -> Arguments {
        Arguments(text)
    }
}

impl Default for Arguments {
    /// An object without members.
    fn default() -> Arguments {
        Arguments(Text::from("{}"))
    }
}

/// Whether a text counts as empty: nothing but white space of Unicode and byte order marks (requirement R4).
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(|char| char.is_whitespace() || char == '\u{feff}')
}

fn filled(what: &str, text: &str) -> Result<()> {
    if is_blank(text) {
        return Err(Error::new(Code::InvalidMessage, "R4", format!("{what} is empty or blank")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: R4
    #[test]
    fn blank_means_white_space_of_unicode_and_byte_order_marks() {
        for blank in ["", " ", "\t\n\u{b}\u{c}\r ", "\u{85}", "\u{a0}", "\u{2003}\u{3000}", "\u{feff}"] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for filled in ["a", " a ", "\0", "\u{200b}", "\u{1f}"] {
            assert!(!is_blank(filled), "{filled:?}");
        }
    }

    // Requirement: R3, R4
    #[test]
    fn a_hand_built_message_with_a_blank_id_or_name_is_refused() {
        let call = |id: &str, name: &str| {
            let call = Block::ToolCall { id: id.into(), name: name.into(), arguments: Arguments::default() };
            Message::assistant("m", vec![Block::Text { text: Text::default() }, call])
        };
        let refused = [
            Message::user(" ", "x"),
            Message::assistant("", vec![]),
            call("\u{feff}", "n"),
            call("c", "\t"),
            Message::tool_result("", "c", "n", "x", false),
            Message::tool_result("m", "\u{a0}", "n", "x", false),
            Message::tool_result("m", "c", "", "x", false),
        ];
        for message in refused {
            let error = message.validate().unwrap_err();
            assert_eq!((error.code(), error.requirement()), (Code::InvalidMessage, "R4"), "{message:?}");
        }
        for message in [
            Message::user("m", ""),
            Message::assistant("m", vec![]),
            call("c", "n"),
            Message::tool_result("m", "c", "n", "", true),
        ] {
            assert!(message.validate().is_ok(), "{message:?}");
        }
    }
}
