//! What is appended: words that a store may take for something else, break apart, or write in another form.

use serde_json::{Value, json};

/// Texts that must come back as they were given, character by character. Their number is odd, so that in turn each is one
/// of a user and one of an assistant.
const TEXTS: [&str; 13] = [
    "Where is the log?",
    "caf\u{e9} and cafe\u{301}: composed and decomposed",
    "\u{1f469}\u{200d}\u{1f4bb} \u{1f600} beyond the basic plane",
    "\u{4f1a}\u{8bdd}\u{3092}\u{4fdd}\u{5b58}\u{d558}\u{b2e4}",
    "\u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{200f}right to left",
    "\"quoted\", 'quoted' and C:\\new\\table \\u0041 \\",
    "one line\nanother\r\nand\tone more\r",
    "separators: \u{2028}, \u{2029}, \u{85}, \u{b}, \u{c}",
    "controls: \u{1}\u{8}\u{1b}[2J\u{7f}",
    "007",
    "1e400",
    "{\"id\":\"x\",\"parentId\":null}\n",
    " tool ",
];

/// Characters of the long text: its line is within the limits of format 1, also where it is escaped.
const LONG: usize = 30_000;

/// The text of the message of this number.
pub(super) fn text(number: usize) -> &'static str {
    TEXTS[number % TEXTS.len()]
}

/// A message of plain text, of a user and of an assistant in turn.
pub(super) fn plain(number: usize, text: &str) -> Value {
    let id = format!("m-{number}");
    if number.is_multiple_of(2) {
        json!({ "id": id, "role": "assistant", "content": [{ "type": "text", "text": text }] })
    } else {
        json!({ "id": id, "role": "user", "content": text })
    }
}

/// How many messages show every text and every kind of message.
pub(super) const KINDS: usize = TEXTS.len() + 3;

/// One of [`KINDS`] messages: a text, the call of a tool, its result, a long text.
pub(super) fn of_kind(kind: usize, number: usize) -> Value {
    let id = format!("m-{number}");
    match kind.checked_sub(TEXTS.len()) {
        None => plain(number, text(kind)),
        Some(0) => json!({ "id": id, "role": "assistant", "content": [
            { "type": "text", "text": "I look for it." },
            { "type": "toolCall", "id": "call-1", "name": "find", "arguments": {
                "path": "/tmp/\u{e4}", "depth": 2, "hidden": false, "after": null, "names": ["a\"b", ""], "of": {},
            } },
        ] }),
        Some(1) => json!({
            "id": id, "role": "toolResult", "toolCallId": "call-1", "toolName": "find",
            "content": "tool\n/tmp/\u{e4}/log\n", "isError": false,
        }),
        Some(_) => plain(number, &"long \u{4f1a} ".repeat(LONG / "long \u{4f1a} ".chars().count())),
    }
}
