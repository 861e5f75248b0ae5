//! What a store shows, against what a case expects.
//!
//! JSON texts are compared as values: the order of members does not count. Numbers are compared as they are written:
//! where their spelling is open, a case is a choice. Nothing is parsed into a tree of values, which could neither hold
//! every number nor every depth.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::expected::is_known_code;
use crate::call::{Answer, EntryView, HeaderView, Refusal};

/// The code of a failure of the operating system.
const IO: &str = "SESSION_IO";

/// Whether a load or a tree shows header, entries and leaf of the session with these canonical bytes.
pub(super) fn shows_session(answer: &Answer, canonical: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(canonical).map_err(|_| "the expected canonical form is not UTF-8")?;
    let (header, lines) = text.split_once('\n').ok_or("the expected canonical form has no header")?;
    let shown = answer.header.as_ref().ok_or("the answer has no header")?;
    shows_header(shown, header)?;
    shows_lines(answer, lines)?;
    let leaf = answer.leaf.as_ref().ok_or("the answer has no leaf")?;
    let leaf = Value::from(leaf.as_deref()).to_string();
    let expected = lines.lines().next_back().map(id_of).transpose()?.unwrap_or("null");
    if same(&leaf, expected) { Ok(()) } else { Err(format!("expected the leaf {expected}, shown {leaf}")) }
}

pub(super) fn shows_header(header: &HeaderView, expected: &str) -> Result<(), String> {
    let shown = serde_json::to_string(header).map_err(|error| error.to_string())?;
    if same(&shown, expected) {
        Ok(())
    } else {
        Err(format!("expected the header {}, shown {}", short(expected), short(&shown)))
    }
}

/// Whether the entries of an answer are the ones of these lines.
pub(super) fn shows_lines(answer: &Answer, lines: &str) -> Result<(), String> {
    // Not `lines`, which would take a carriage return away.
    let expected = lines.split_terminator('\n');
    shows_entries(answer, expected)
}

/// Whether the entries of an answer are these.
pub(super) fn shows_entries<'a>(
    answer: &Answer,
    expected: impl IntoIterator<Item = &'a str>,
) -> Result<(), String> {
    let shown = answer.entries.as_ref().ok_or("the answer has no entries")?;
    let expected: Vec<&str> = expected.into_iter().collect();
    for (nth, (entry, expected)) in shown.iter().zip(&expected).enumerate() {
        shows_entry(entry, expected).map_err(|what| format!("entry {}: {what}", nth + 1))?;
    }
    if shown.len() == expected.len() {
        Ok(())
    } else {
        Err(format!("expected {} entries, shown {}", expected.len(), shown.len()))
    }
}

pub(super) fn shows_entry(entry: &EntryView, expected: &str) -> Result<(), String> {
    let EntryView { id, parent_id, timestamp, message } = entry;
    let shown = format!(
        r#"{{"type":"entry","version":1,"id":{},"parentId":{},"timestamp":{},"message":{message}}}"#,
        Value::from(id.as_str()),
        Value::from(parent_id.as_deref()),
        Value::from(timestamp.as_str())
    );
    if same(&shown, expected) {
        Ok(())
    } else {
        Err(format!("expected {}, shown {}", short(expected), short(&shown)))
    }
}

fn id_of(line: &str) -> Result<&str, String> {
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }

    serde_json::from_str::<Id<'_>>(line).map(|line| line.id.get()).map_err(|error| format!("{line}: {error}"))
}

/// Whether a member of a refusal is the expected one. A member that the store does not tell is not compared.
pub(super) fn is_refused_with(refusal: &Refusal, member: &str, expected: &Value) -> Result<(), String> {
    let shown = serde_json::to_value(refusal).map_err(|error| error.to_string())?;
    let Some(shown) = shown.get(member).filter(|shown| !shown.is_null()) else { return Ok(()) };
    // Which code a store other than the reference gives to a failure of the operating system is its own affair.
    let is_io = member == "code"
        && expected == IO
        && shown.as_str().is_some_and(|code| code == IO || !is_known_code(code));
    if is_io || shown == expected {
        Ok(())
    } else {
        Err(format!("expected the {member} {expected}, answered {shown}: {}", short(&refusal.message)))
    }
}

/// What is different, if anything.
pub(super) fn differs(shown: &[u8], expected: &[u8]) -> Option<String> {
    if shown == expected {
        return None;
    }
    let at = shown.iter().zip(expected).take_while(|(one, other)| one == other).count();
    let from = |bytes: &[u8]| {
        short(&String::from_utf8_lossy(&bytes[at.saturating_sub(20)..])).escape_debug().to_string()
    };
    Some(format!(
        "{} bytes and not {}, different from byte {at} on: expected `{}`, is `{}`",
        shown.len(),
        expected.len(),
        from(expected),
        from(shown)
    ))
}

/// The beginning of a text.
pub(super) fn short(text: &str) -> String {
    const CHARACTERS: usize = 200;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Deeper than this two values are the same only as texts.
const DEEPEST: usize = 64;

/// Whether two JSON texts mean the same.
pub(super) fn same(one: &str, other: &str) -> bool {
    same_to(DEEPEST, one.trim(), other.trim())
}

fn same_to(depth: usize, one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let Some(below) = depth.checked_sub(1) else { return false };
    match one.as_bytes().first() {
        Some(b'{') => both::<Members<'_>>(one, other).is_some_and(|(one, other)| {
            let (one, other) = (one.sorted(), other.sorted());
            one.len() == other.len()
                && one.iter().zip(&other).all(|((name, value), (other_name, other_value))| {
                    name == other_name && same_to(below, value.get(), other_value.get())
                })
        }),
        Some(b'[') => both::<Vec<&RawValue>>(one, other).is_some_and(|(one, other)| {
            one.len() == other.len()
                && one.iter().zip(&other).all(|(one, other)| same_to(below, one.get(), other.get()))
        }),
        Some(b'"') => both::<String>(one, other).is_some_and(|(one, other)| one == other),
        _ => false,
    }
}

fn both<'a, T: Deserialize<'a>>(one: &'a str, other: &'a str) -> Option<(T, T)> {
    Some((serde_json::from_str(one).ok()?, serde_json::from_str(other).ok()?))
}

/// The members of an object, repeated names included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// By name; members of one name stay in their order.
    fn sorted(mut self) -> Vec<(String, &'a RawValue)> {
        self.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.0
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        members(deserializer).map(Members)
    }
}

/// The members of an object in their order, repeated names included.
pub(super) fn members<'de, T, D>(deserializer: D) -> Result<Vec<(String, T)>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct AnObject<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for AnObject<T> {
        type Value = Vec<(String, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }

    deserializer.deserialize_map(AnObject(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_members_white_space_and_escapes_do_not_count() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [ true , null ] , "a" : 1 }"#),
            (r#"{"\u0061":"\u00e9\/"}"#, r#"{"a":"é/"}"#),
            (r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"c":2,"b":1}}"#),
            (r#""\ud83d\ude00""#, "\"😀\""),
        ] {
            assert!(same(one, other), "{one} {other}");
        }
    }

    #[test]
    fn every_other_difference_counts() {
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1}"#, r#"{"a":1,"a":1}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            (r#"{"a":1}"#, r#"{"a":1.0}"#),
            (r#"{"a":12345678901234567890123}"#, r#"{"a":12345678901234567890124}"#),
            ("[1,2]", "[2,1]"),
            ("[1]", "[1,1]"),
            ("\"a\"", "\"b\""),
            ("null", "false"),
            ("{}", "[]"),
        ] {
            assert!(!same(one, other) && !same(other, one), "{one} {other}");
        }
    }

    #[test]
    fn values_as_deep_as_a_line_is_long_are_compared() {
        let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(32_000), "]".repeat(32_000));
        assert!(same(&deep("1"), &deep("1")));
        assert!(!same(&deep("1"), &deep("2")));
    }
}
