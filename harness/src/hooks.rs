//! What fuzz targets run: one function for each, which panics where a promise of the store is broken.
//!
//! They stand here and not beside the targets, so that seeds and former findings are replayed by plain `cargo test`
//! with a stable compiler.

use std::str;

use serde::de::IgnoredAny;
use session_tree::json_prefix::{Tail, classify, completion};
use session_tree::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_RECORDS};
use session_tree::{Code, Decoded, Error, decode};

use crate::model;

mod built;
mod mutated;
mod operations;
mod protocol;
mod recovery;
mod text_forms;

pub use mutated::mutated_session;
pub use operations::operations;
pub use protocol::protocol;
pub use recovery::recover;
pub use text_forms::plan;

/// The verdict on a torn tail, held against another implementation of the JSON grammar (requirement F4).
///
/// Complete means that the text parses. Incomplete means that it does not, and that its own completion makes it an
/// object. Invalid means that it does not, and that a search finds nothing that makes it an object.
///
/// # Panics
///
/// If the verdict is wrong.
pub fn tail(data: &[u8]) {
    let verdict = classify(data);
    let Ok(text) = str::from_utf8(data) else {
        assert_eq!(verdict, Tail::Invalid, "a text that is not UTF-8");
        assert_eq!(completion(data), None, "a text that is not UTF-8");
        return;
    };
    assert_eq!(parses(text), verdict == Tail::Complete, "{verdict:?} of a text that parses or does not");
    let completion = completion(text);
    assert_eq!(completion.is_some(), verdict == Tail::Incomplete, "{verdict:?}, completed by {completion:?}");
    if let Some(rest) = completion {
        let whole = format!("{text}{rest}");
        assert!(is_object(text) && parses(&whole), "completed by {rest:?}, which makes no object");
        assert_eq!(classify(&whole), Tail::Complete, "completed by {rest:?}");
    }
    if verdict != Tail::Complete && text.len() <= MAX_BYTES_TO_COMPLETE {
        let found = found_completion(text);
        assert_eq!(found.is_some(), verdict == Tail::Incomplete, "{verdict:?}, and a search found {found:?}");
    }
}

/// Any bytes as a session file: a refusal that says where, or a session that survives being written and read again;
/// and either one as the reference model has it (requirements F7, F8).
///
/// # Panics
///
/// If that does not hold.
pub fn load(data: &[u8]) {
    let expected = model::load(data);
    match decode(data.to_vec()) {
        Ok(session) => {
            check_session(data, &session);
            let expected = expected.expect("the model accepts what the store accepts");
            assert_eq!(session.torn_tail(), expected.torn_tail(), "bytes of a torn tail");
            assert!(
                canonical_bytes(&session) == expected.encode(),
                "another canonical form than the model's"
            );
        }
        Err(error) => {
            check_refusal(data, &error);
            let expected = expected.expect_err("the model refuses what the store refuses");
            assert_eq!(error.code().as_str(), expected.code, "{error}");
            let line = error.position().map(|position| position.line);
            assert!(
                expected.line.is_none() || expected.line == line,
                "{error}: the model refuses {expected:?}"
            );
        }
    }
}

fn parses(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whether a text that parses, or would if it were completed, is an object.
fn is_object(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{')
}

/// Beyond this the search below would cost more than it finds: what it tries grows with the text.
const MAX_BYTES_TO_COMPLETE: usize = 256;

/// Looks for a text that continues `text` to an object, in a list that has one for every beginning of an object: the
/// rest of a token and of its member, then the brackets that are still open.
fn found_completion(text: &str) -> Option<String> {
    const TOKENS: [&str; 17] = [
        "", "\"", "n\"", "0\"", "00\"", "000\"", "0000\"", "0", "rue", "ue", "e", "alse", "lse", "se", "ull",
        "ll", "l",
    ];
    const AFTER_A_TOKEN: [&str; 2] = ["", ":null"];
    const INSTEAD_OF_ONE: [&str; 2] = ["null", "\"\":null"];
    if !is_object(text) {
        return None;
    }
    let brackets = open_brackets(text);
    let whole_tokens = TOKENS.iter().flat_map(|token| AFTER_A_TOKEN.map(|rest| [token, rest]));
    let missing_tokens = INSTEAD_OF_ONE.iter().map(|member| [*member, ""]);
    let mut whole = text.to_owned();
    whole_tokens.chain(missing_tokens).find_map(|[token, rest]| {
        whole.truncate(text.len());
        whole.extend([token, rest, &brackets]);
        parses(&whole).then(|| whole[text.len()..].to_owned())
    })
}

/// What closes the brackets that are open at the end of `text`, if it has a continuation at all.
fn open_brackets(text: &str) -> String {
    let mut open = Vec::new();
    let mut in_string = false;
    let mut escaped = false;
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' => open.push('}'),
            b'[' => open.push(']'),
            b'}' | b']' => drop(open.pop()),
            _ => {}
        }
    }
    open.iter().rev().collect()
}

fn check_refusal(data: &[u8], error: &Error) {
    assert!(can_refuse_bytes(error.code()), "{error}: no code for the bytes of a file");
    assert!(!error.message().is_empty() && !error.requirement().is_empty(), "{error}: without a reason");
    assert!(!error.poisoned() && !error.in_flight() && error.errno().is_none(), "{error}: speaks of a disk");
    let position = error.position().expect("a refusal of bytes says where");
    assert!(position.offset <= data.len(), "{error}: beyond the end of the file");
    let mut lines = data[..position.offset].rsplit(|byte| *byte == b'\n');
    let column = lines.next().map_or(0, <[u8]>::len) + 1;
    assert_eq!((position.line, position.column), (lines.count() + 1, column), "{error}");
}

fn can_refuse_bytes(code: Code) -> bool {
    matches!(
        code,
        Code::DuplicateEntryId
            | Code::FileTooLarge
            | Code::InvalidHeader
            | Code::InvalidJson
            | Code::InvalidMessage
            | Code::InvalidRecord
            | Code::InvalidToolLinkage
            | Code::InvalidUtf8
            | Code::LineTooLarge
            | Code::ParentNotFound
            | Code::RecordLimit
            | Code::UnsupportedVersion
    )
}

fn check_session(data: &[u8], session: &Decoded) {
    assert!(session.entries().len() <= MAX_SESSION_RECORDS, "more entries than a session may have");
    let canonical = canonical_bytes(session);
    assert_eq!(session.canonical(), canonical == data, "canonical or not");
    check_torn_tail(data, session);
    if canonical.len() > MAX_SESSION_FILE_BYTES {
        assert!(
            !data.ends_with(b"\n"),
            "only a missing line feed lets a file in that is too large when written"
        );
        return;
    }
    let again = decode(canonical.clone()).expect("what is written can be read");
    assert!(again.canonical() && again.torn_tail() == 0, "what is written is canonical and whole");
    assert_eq!(again.header(), session.header());
    assert_eq!(again.entries(), session.entries());
    assert!(canonical_bytes(&again) == canonical, "writing again changes bytes");
}

/// A torn tail is the last line, and taking it away changes nothing else.
fn check_torn_tail(data: &[u8], session: &Decoded) {
    if session.torn_tail() == 0 {
        return;
    }
    let (kept, torn) = data.split_at(data.len() - session.torn_tail());
    assert!(kept.ends_with(b"\n") && !torn.contains(&b'\n'), "a torn tail is one line");
    let line = torn.strip_suffix(b"\r").unwrap_or(torn);
    assert_eq!(classify(line), Tail::Incomplete, "a tail that was ignored");
    let without = decode(kept.to_vec()).expect("complete lines alone can be read");
    assert_eq!(without.torn_tail(), 0);
    assert_eq!((without.header(), without.entries()), (session.header(), session.entries()));
}

fn canonical_bytes(session: &Decoded) -> Vec<u8> {
    let mut text = session.header().to_json();
    text.push('\n');
    for entry in session.entries() {
        text.push_str(&entry.to_json());
        text.push('\n');
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: F4
    #[test]
    fn the_search_completes_every_beginning_of_an_object() {
        let whole = r#" {"a\n\u00e9é":[-1.5e+3,{"b":true,"c":[false,null,{}]}], "d" : {"e":"\\"} } "#;
        let beginnings = (0..whole.trim_end().len()).filter_map(|end| whole.get(..end));
        for text in beginnings.filter(|text| is_object(text)) {
            assert!(found_completion(text).is_some(), "{text}");
        }
    }
}
