//! Bytes as a case gives them: written out, taken from a file, or generated.

use std::str;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// More than this no input may stand for: four files of the largest size.
pub const MAX_EXPANDED_BYTES: usize = 16 << 20;

const HEADER: &str =
    "{\"type\":\"session\",\"version\":1,\"id\":\"session-1\",\"createdAt\":\"2026-01-01T00:00:00.000Z\"}\n";

/// Bytes: parts, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Bytes(Vec<u8>),
    Beside(String),
    Session(String),
    Repeat(Input, usize),
    Cut(Input, usize),
    Chain(usize, Option<Input>),
    Header,
}

/// A file that an input names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File<'a> {
    /// By its name beside the case.
    Beside(&'a str),
    /// One of the realistic sessions.
    Session(&'a str),
}

/// Why an input stands for no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// It would be too large.
    #[error("an input of more than {MAX_EXPANDED_BYTES} bytes; repeat fewer times")]
    TooLarge,
    /// It names a file that is not there.
    #[error("there is no file `{0}`; `file` names one beside the case, `session` one of corpus/sessions/")]
    NoFile(String),
    /// The content of generated messages is not text.
    #[error("the content of a chain is not UTF-8; write it as `text`")]
    NotText,
    /// A part is cut where it ends already.
    #[error("a part of {size} bytes is cut to {to}; cut it to fewer")]
    NothingToCut {
        /// How many bytes there are.
        size: usize,
        /// How many are wanted.
        to: usize,
    },
}

impl Input {
    pub(super) fn expand<'a>(
        &self,
        file: &impl Fn(File<'_>) -> Option<&'a [u8]>,
    ) -> Result<Vec<u8>, InputError> {
        let mut bytes = Vec::new();
        for part in &self.0 {
            part.expand(&mut bytes, file)?;
        }
        Ok(bytes)
    }

    /// The first file that it names and that is not there.
    pub(super) fn missing_file<'a>(&self, file: &impl Fn(File<'_>) -> Option<&'a [u8]>) -> Option<&str> {
        let absent = |named, name| if file(named).is_some() { None } else { Some(name) };
        self.0.iter().find_map(|part| match part {
            Part::Beside(name) => absent(File::Beside(name), name.as_str()),
            Part::Session(name) => absent(File::Session(name), name.as_str()),
            Part::Repeat(inner, _) | Part::Cut(inner, _) | Part::Chain(_, Some(inner)) => {
                inner.missing_file(file)
            }
            Part::Text(_) | Part::Bytes(_) | Part::Chain(_, None) | Part::Header => None,
        })
    }
}

impl Part {
    fn expand<'a>(
        &self,
        out: &mut Vec<u8>,
        file: &impl Fn(File<'_>) -> Option<&'a [u8]>,
    ) -> Result<(), InputError> {
        let found = |named, name: &str| file(named).ok_or_else(|| InputError::NoFile(name.to_owned()));
        match self {
            Part::Text(text) => push(out, text.as_bytes()),
            Part::Bytes(bytes) => push(out, bytes),
            Part::Beside(name) => push(out, found(File::Beside(name), name)?),
            Part::Session(name) => push(out, found(File::Session(name), name)?),
            Part::Header => push(out, HEADER.as_bytes()),
            Part::Repeat(inner, times) => {
                let inner = inner.expand(file)?;
                let size = inner.len().checked_mul(*times).filter(|size| *size <= MAX_EXPANDED_BYTES);
                size.ok_or(InputError::TooLarge)?;
                push(out, &inner.repeat(*times))
            }
            Part::Cut(inner, to) => {
                let inner = inner.expand(file)?;
                let kept = inner.get(..*to).ok_or(InputError::NothingToCut { size: inner.len(), to: *to })?;
                push(out, kept)
            }
            Part::Chain(entries, content) => {
                let content = content.as_ref().map(|content| content.expand(file)).transpose()?;
                let content = content.as_deref().map_or(Ok("x"), str::from_utf8);
                chain(out, *entries, content.map_err(|_| InputError::NotText)?)
            }
        }
    }
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), InputError> {
    if out.len() + bytes.len() > MAX_EXPANDED_BYTES {
        return Err(InputError::TooLarge);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// Canonical lines of `entries` user messages, each the child of the one before.
fn chain(out: &mut Vec<u8>, entries: usize, content: &str) -> Result<(), InputError> {
    let content = Value::from(content).to_string();
    for nth in 1..=entries {
        let parent = if nth == 1 { "null".to_owned() } else { format!("\"e{}\"", nth - 1) };
        let line = format!(
            "{{\"type\":\"entry\",\"version\":1,\"id\":\"e{nth}\",\"parentId\":{parent},\
             \"timestamp\":\"2026-01-01T00:00:00.000Z\",\
             \"message\":{{\"id\":\"m{nth}\",\"role\":\"user\",\"content\":{content}}}}}\n"
        );
        push(out, line.as_bytes())?;
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Input, D::Error> {
        let parts = match Value::deserialize(deserializer)? {
            Value::Array(parts) => parts,
            part => vec![part],
        };
        let parts = parts.into_iter().map(|part| {
            if !has_a_shape(&part) {
                return Err(format!("{part} is no part of an input; it is an object of one of {SHAPES:?}"));
            }
            serde_json::from_value(part).map_err(|error| error.to_string()).and_then(Part::read)
        });
        parts.collect::<Result<_, _>>().map(Input).map_err(D::Error::custom)
    }
}

/// The members that parts have.
const SHAPES: [&[&str]; 9] = [
    &["text"],
    &["hex"],
    &["file"],
    &["session"],
    &["repeat", "times"],
    &["cut", "to"],
    &["chain"],
    &["chain", "content"],
    &["header"],
];

fn has_a_shape(part: &Value) -> bool {
    let Value::Object(part) = part else { return false };
    SHAPES.iter().any(|shape| shape.len() == part.len() && shape.iter().all(|name| part.contains_key(*name)))
}

/// The members of any part.
#[derive(Deserialize)]
struct PartFile {
    text: Option<String>,
    hex: Option<String>,
    file: Option<String>,
    session: Option<String>,
    repeat: Option<Input>,
    times: Option<usize>,
    cut: Option<Input>,
    to: Option<usize>,
    chain: Option<usize>,
    content: Option<Input>,
    header: Option<bool>,
}

impl Part {
    fn read(file: PartFile) -> Result<Part, String> {
        match file {
            PartFile { text: Some(text), .. } => Ok(Part::Text(text)),
            PartFile { hex: Some(hex), .. } => unhex(&hex).map(Part::Bytes),
            PartFile { file: Some(name), .. } => Ok(Part::Beside(name)),
            PartFile { session: Some(name), .. } => Ok(Part::Session(name)),
            PartFile { repeat: Some(inner), times: Some(times), .. } => Ok(Part::Repeat(inner, times)),
            PartFile { cut: Some(inner), to: Some(to), .. } => Ok(Part::Cut(inner, to)),
            PartFile { chain: Some(entries), content, .. } => Ok(Part::Chain(entries, content)),
            PartFile { header: Some(true), .. } => Ok(Part::Header),
            _ => Err("a member of a part of an input is null or false".to_owned()),
        }
    }
}

/// Pairs of hexadecimal digits, with white space between any of them.
fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|character| character.to_digit(16).map(|digit| digit as u8))
        .collect();
    let pairs = digits.filter(|digits| digits.len() % 2 == 0);
    let pairs = pairs.ok_or_else(|| format!("{text:?} is not pairs of hexadecimal digits"))?;
    Ok(pairs.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
