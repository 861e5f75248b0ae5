//! Valid sessions from a fuzzer's bytes.

use arbitrary::{Result, Unstructured};

use crate::model::{Drawn, Message, Part, Session};

const MOST_ENTRIES: usize = 8;
const IDS: [&str; 3] = ["call-a", "call-b", "__proto__"];
const TOOLS: [&str; 2] = ["read", "bash"];
const TEXTS: [&str; 8] =
    ["", "x", "a\nb", "\u{2028}", "\u{7f}\u{85}", "é漢🙂", "\"\\\u{0}", "{\"type\":\"entry\"}"];
const ARGUMENTS: [&str; 4] = [
    "{}",
    "{\"a\":[1,-0,1.50e+2],\"b\":{\"c\":null}}",
    "{\"\":[[[[]]]]}",
    "{\"é\":true,\"n\":12345678901234567890}",
];

/// A session of a few entries: branches, roots, tool calls and results as the bytes say.
pub(super) fn session(input: &mut Unstructured<'_>) -> Result<Session> {
    // Both texts are fixed and not blank, so the model takes them.
    let mut session = Session::create("s", "t").map_err(|_| arbitrary::Error::IncorrectFormat)?;
    for place in 0..input.int_in_range(0..=MOST_ENTRIES)? {
        let known = session.entries().len();
        let parent = match input.int_in_range(0..=known)? {
            0 => None,
            below => Some(session.entries()[below - 1].id.clone()),
        };
        let id = format!("e{place}");
        let drawn = Drawn { id: Some(&id), timestamp: Some("t") };
        // A call twice on a branch, or a result without its call, is refused by the model: then there is one entry less.
        let _ = session.append(parent.as_deref(), &message(input)?.encode(), drawn);
    }
    Ok(session)
}

fn message(input: &mut Unstructured<'_>) -> Result<Message> {
    let id = "m".to_owned();
    Ok(match input.int_in_range(0..=2)? {
        0 => Message::User { id, content: text(input)? },
        1 => Message::Assistant {
            id,
            content: (0..input.int_in_range(0..=3)?).map(|_| part(input)).collect::<Result<_>>()?,
        },
        _ => Message::ToolResult {
            id,
            call_id: chosen(input, &IDS)?,
            tool_name: chosen(input, &TOOLS)?,
            content: text(input)?,
            is_error: input.arbitrary()?,
        },
    })
}

fn part(input: &mut Unstructured<'_>) -> Result<Part> {
    Ok(if input.arbitrary()? {
        Part::Text(text(input)?)
    } else {
        Part::ToolCall {
            id: chosen(input, &IDS)?,
            name: chosen(input, &TOOLS)?,
            arguments: chosen(input, &ARGUMENTS)?,
        }
    })
}

fn text(input: &mut Unstructured<'_>) -> Result<String> {
    chosen(input, &TEXTS)
}

fn chosen(input: &mut Unstructured<'_>, from: &[&str]) -> Result<String> {
    Ok((*input.choose(from)?).to_owned())
}
