//! What a case expects of a load.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use session_tree::Code;

use super::input::Input;
use super::step::Step;

/// What comes of loading an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// It is a session.
    Accepted {
        /// What a load shows, and what a flush writes.
        canonical: Canonical,
        /// How many bytes at the end were left out.
        torn_tail: usize,
        /// The code with which a flush is refused all the same.
        flush_refused: Option<String>,
    },
    /// It is none.
    Refused {
        /// The code.
        code: String,
        /// The line, from 1; none where a check of the whole file refuses.
        line: Option<usize>,
    },
}

/// The canonical form of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Canonical {
    /// The input itself.
    Input,
    /// Other bytes.
    Bytes(Input),
}

impl Expected {
    /// The canonical form, where it is not the input.
    pub fn bytes(&self) -> Option<&Input> {
        match self {
            Expected::Accepted { canonical: Canonical::Bytes(bytes), .. } => Some(bytes),
            _ => None,
        }
    }
}

/// What stands below the name of an answer.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Outcome(Expected),
    Steps(Vec<Step>),
}

impl Answer {
    pub(super) fn outcome(self) -> Result<Expected, String> {
        match self {
            Answer::Outcome(expected) => Ok(expected),
            Answer::Steps(_) => Err("an answer to an `input` is an outcome, not steps".to_owned()),
        }
    }

    pub(super) fn steps(self) -> Result<Vec<Step>, String> {
        match self {
            Answer::Steps(steps) => Ok(steps),
            Answer::Outcome(_) => Err("an answer to a `script` is an array of further steps".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Answer, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = if value.is_array() {
            serde_json::from_value(value).map(Answer::Steps)
        } else {
            serde_json::from_value(value).map(Answer::Outcome)
        };
        read.map_err(D::Error::custom)
    }
}

/// An outcome as a case's file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedFile {
    canonical: Option<Canonical>,
    torn_tail: Option<usize>,
    flush: Option<FlushFile>,
    code: Option<String>,
    line: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlushFile {
    code: String,
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Expected, D::Error> {
        match ExpectedFile::deserialize(deserializer)? {
            ExpectedFile { canonical: Some(canonical), torn_tail, flush, code: None, line: None } => {
                let flush_refused = flush.map(|flush| known_code(flush.code)).transpose();
                Ok(Expected::Accepted {
                    canonical,
                    torn_tail: torn_tail.unwrap_or_default(),
                    flush_refused: flush_refused.map_err(D::Error::custom)?,
                })
            }
            ExpectedFile { canonical: None, torn_tail: None, flush: None, code: Some(code), line } => {
                Ok(Expected::Refused { code: known_code(code).map_err(D::Error::custom)?, line })
            }
            _ => Err(D::Error::custom(
                "an outcome is `canonical` with or without `torn_tail` and `flush`, or `code` with or without `line`",
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Canonical {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Canonical, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(word) if word == "input" => Ok(Canonical::Input),
            other => serde_json::from_value(other).map(Canonical::Bytes).map_err(D::Error::custom),
        }
    }
}

/// The code, if it is one of the contract.
pub(super) fn known_code(code: String) -> Result<String, String> {
    if is_known_code(&code) { Ok(code) } else { Err(format!("the contract has no code `{code}`")) }
}

pub(super) fn is_known_code(code: &str) -> bool {
    Code::ALL.iter().any(|known| known.as_str() == code)
}
