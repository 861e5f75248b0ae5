//! JSON as the model needs it: spelling of numbers, repeated names and unpaired surrogates stay visible, and depth
//! costs no stack.
//!
//! `serde_json` decides what is well formed. All that reads values works on slices of text that it accepted.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;

use serde::de::IgnoredAny;

/// What an unterminated last line is (requirement F4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// A whole JSON value.
    Complete,
    /// The beginning of a JSON object.
    Incomplete,
    /// Neither.
    Invalid,
}

/// How far below an object its names and strings are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The object itself and arrays in it, not the objects in it (requirement F7).
    Own,
    /// All of it.
    Whole,
}

pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Classifies by trial: a text is a beginning of an object if one of a few endings makes it a JSON text.
///
/// The endings suffice. Whatever the text breaks off in, the shortest way out is: finish the escape (`n`, or the
/// missing digits of `\u`), the literal or the number; close the string; give the value that a name, colon or comma
/// asks for; close what is open. Each step is optional, so all combinations are tried.
pub(super) fn classify(line: &str) -> Tail {
    const TOKEN_ENDINGS: [&str; 15] =
        ["", "0", "n", "00", "000", "0000", "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l"];
    const STRING_ENDINGS: [&str; 2] = ["", "\""];
    const MEMBER_ENDINGS: [&str; 4] = ["", ":0", "0", "\"a\":0"];
    if is_json(line) {
        return Tail::Complete;
    }
    if !line.trim_start_matches(is_space).starts_with('{') {
        return Tail::Invalid;
    }
    let closers = closers(line);
    let mut trial = line.to_owned();
    for token in TOKEN_ENDINGS {
        for string in STRING_ENDINGS {
            for member in MEMBER_ENDINGS {
                trial.truncate(line.len());
                trial.extend([token, string, member, &closers]);
                if is_json(&trial) {
                    return Tail::Incomplete;
                }
            }
        }
    }
    Tail::Invalid
}

/// A whole JSON text without the white space around it; none if it is not one.
pub(super) fn trimmed(text: &str) -> Option<&str> {
    is_json(text).then(|| text.trim_matches(is_space))
}

/// The values of exactly these names, in this order; none if the value is not an object or has other names.
pub(super) fn fields<'a, const N: usize>(object: &'a str, names: [&str; N]) -> Option<[&'a str; N]> {
    let members = members(object)?;
    if members.len() != N {
        return None;
    }
    let mut values = [""; N];
    for (value, name) in values.iter_mut().zip(names) {
        *value = members.iter().find(|(token, _)| string(token).as_deref() == Some(name))?.1;
    }
    Some(values)
}

/// The value of the first member of this name.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    members(object)?
        .into_iter()
        .find(|(token, _)| string(token).as_deref() == Some(name))
        .map(|(_, value)| value)
}

/// The elements of an array; none if the value is not one.
pub(super) fn elements(array: &str) -> Option<Vec<&str>> {
    children(array, '[')
}

/// The text that a string stands for; none if the value is not a string, or holds an unpaired surrogate.
pub(super) fn string(token: &str) -> Option<String> {
    let inner = token.strip_prefix('"')?.strip_suffix('"')?;
    let mut units = Vec::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
            continue;
        }
        units.push(match characters.next()? {
            'b' => 0x08,
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'u' => {
                let digits: String = characters.by_ref().take(4).collect();
                u16::from_str_radix(&digits, 16).ok()?
            }
            itself => itself as u16,
        });
    }
    String::from_utf16(&units).ok()
}

/// A string, escaped minimally (requirement F8).
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => write!(out, "\\u{:04x}", u32::from(character)).expect("a string takes all"),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

/// The value without white space, strings escaped minimally. It must be sound.
pub(super) fn compact(value: &str) -> String {
    tokens(value).map(|token| string(token).map_or_else(|| token.to_owned(), |text| quote(&text))).collect()
}

/// Whether no name comes twice in an object and no string holds an unpaired surrogate, within `reach`.
pub(super) fn is_sound(value: &str, reach: Reach) -> bool {
    let mut open: Vec<Option<HashSet<String>>> = Vec::new();
    let mut objects = 0;
    let mut before = "";
    for token in tokens(value) {
        match token {
            "{" => {
                open.push(Some(HashSet::new()));
                objects += 1;
            }
            "[" => open.push(None),
            "}" | "]" => objects -= usize::from(open.pop().flatten().is_some()),
            _ if token.starts_with('"') && (reach == Reach::Whole || objects <= 1) => {
                let Some(text) = string(token) else { return false };
                if let (Some(Some(names)), "{" | ",") = (open.last_mut(), before)
                    && !names.insert(text)
                {
                    return false;
                }
            }
            _ => {}
        }
        before = token;
    }
    true
}

/// Whether the value is a number that is exactly one, however it is spelled.
pub(super) fn is_number_one(value: &str) -> bool {
    if !value.starts_with(|first: char| first.is_ascii_digit()) {
        return false;
    }
    let (mantissa, exponent) = value.split_once(['e', 'E']).unwrap_or((value, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let from_one = digits.trim_start_matches('0');
    if from_one.trim_end_matches('0') != "1" {
        return false;
    }
    let zeros = from_one.len() - 1;
    // The exponent that moves the digit one to the place of units. One too long for the type is far from it.
    let wanted = i128::try_from(fraction.len()).ok().zip(i128::try_from(zeros).ok());
    wanted.is_some_and(|(fraction, zeros)| integer(exponent) == Some(fraction - zeros))
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.trim_start_matches('0');
    let value: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    Some(if negative { -value } else { value })
}

/// What closes the brackets that are open at the end, innermost first.
fn closers(line: &str) -> String {
    let mut open = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    for character in line.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '{' if !in_string => open.push('}'),
            '[' if !in_string => open.push(']'),
            '}' | ']' if !in_string => drop(open.pop()),
            _ => {}
        }
    }
    open.into_iter().rev().collect()
}

/// The members of an object, as the token of the name and the value; none if the value is not an object.
fn members(object: &str) -> Option<Vec<(&str, &str)>> {
    let split = |member| {
        let (name, rest) = str::split_at(member, string_len(member));
        (name, rest.trim_start_matches(is_space).trim_start_matches(':').trim_start_matches(is_space))
    };
    Some(children(object, '{')?.into_iter().map(split).collect())
}

/// What stands between the commas of an object or array; none if the value does not start with `open`.
fn children(value: &str, open: char) -> Option<Vec<&str>> {
    let value = value.trim_matches(is_space);
    if !value.starts_with(open) {
        return None;
    }
    let mut children = Vec::new();
    let (mut depth, mut start) = (0, 1);
    for span in spans(value) {
        let token = &value[span.clone()];
        match token {
            "{" | "[" => depth += 1,
            "}" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && token == "," {
            children.push(value[start..span.start].trim_matches(is_space));
            start = span.end;
        }
    }
    children.retain(|child| !child.is_empty());
    Some(children)
}

fn tokens(value: &str) -> impl Iterator<Item = &str> {
    spans(value).map(|span| &value[span])
}

/// Where the tokens of a well-formed text stand.
fn spans(value: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += value[at..].len() - value[at..].trim_start_matches(is_space).len();
        let rest = &value[at..];
        let length = match rest.chars().next()? {
            '{' | '}' | '[' | ']' | ':' | ',' => 1,
            '"' => string_len(rest),
            _ => rest.find(|end: char| is_space(end) || "{}[]:,\"".contains(end)).unwrap_or(rest.len()),
        };
        at += length;
        Some(at - length..at)
    })
}

fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}
