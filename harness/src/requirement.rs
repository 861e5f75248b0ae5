//! The contract of a session store, as numbered requirements: what tests, cases, promises and refusals cite.
//!
//! Two levels. A *must* binds every conforming store. A *choice* is a point that the format leaves open: what a store
//! does there is recorded under one of the named answers and never counts as a failure, while everything that must
//! hold holds whichever answer is given.

use std::fmt;

mod contract;

/// One numbered requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirement {
    /// What others cite, such as `F4` or `F9.depth`. A choice about a point of `F9` begins with `F9.`.
    pub id: &'static str,
    /// Whether a store is held to it.
    pub level: Level,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// What it says.
    pub text: &'static str,
}

/// Whether a store is held to a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Every conforming store does it.
    Must,
    /// A store does one of several things, and says which by what it does.
    Choice {
        /// What it may do.
        answers: &'static [Answer],
        /// The name of the answer that the reference store gives.
        reference: &'static str,
    },
}

/// One admissible way to answer a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The name in reports.
    pub name: &'static str,
    /// What a store does that answers so.
    pub means: &'static str,
}

/// The whole contract, in its own order.
pub fn all() -> &'static [Requirement] {
    contract::ALL
}

/// The requirement with this id.
pub fn find(id: &str) -> Option<&'static Requirement> {
    all().iter().find(|requirement| requirement.id == id)
}

impl Level {
    /// `must` or `choice`, as reports write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Must => "must",
            Level::Choice { .. } => "choice",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use session_tree::{Code, Stage};

    use super::*;

    #[test]
    fn every_id_is_there_once_and_is_found() {
        let ids: BTreeSet<&str> = all().iter().map(|requirement| requirement.id).collect();
        assert_eq!(ids.len(), all().len());
        for requirement in all() {
            assert_eq!(find(requirement.id), Some(requirement));
            assert!(!requirement.title.is_empty() && !requirement.text.is_empty(), "{}", requirement.id);
        }
        for absent in ["", "F", "F0", "f1", "F9.", "F1 ", "F10"] {
            assert_eq!(find(absent), None, "{absent:?}");
        }
    }

    #[test]
    fn a_point_of_a_requirement_is_a_choice_and_belongs_to_one_that_is_there() {
        for requirement in all() {
            let whole = requirement.id.split_once('.').map(|(whole, _)| whole);
            assert_eq!(whole.is_some(), requirement.level != Level::Must, "{}", requirement.id);
            assert!(whole.is_none_or(|whole| find(whole).is_some()), "{}", requirement.id);
        }
    }

    #[test]
    fn the_reference_gives_one_of_several_named_answers_to_every_choice() {
        for requirement in all() {
            let Level::Choice { answers, reference } = requirement.level else { continue };
            let names: BTreeSet<&str> = answers.iter().map(|answer| answer.name).collect();
            assert!(names.len() > 1 && names.len() == answers.len(), "{}: {names:?}", requirement.id);
            assert!(names.contains(reference), "{}: {reference} is not in {names:?}", requirement.id);
            assert!(answers.iter().all(|answer| !answer.means.is_empty()), "{}", requirement.id);
        }
    }

    #[test]
    fn every_stage_is_a_requirement_and_every_code_is_explained_somewhere() {
        for stage in Stage::ALL {
            assert!(find(stage.id()).is_some(), "{stage}");
        }
        for code in Code::ALL {
            let explained = all().iter().any(|requirement| requirement.text.contains(code.as_str()));
            assert!(explained, "no requirement speaks of {code}");
        }
    }

    #[test]
    fn what_the_texts_refer_to_is_there() {
        let shaped_like_an_id = |word: &str| {
            let rest = word.strip_prefix(['F', 'R', 'L', 'S', 'C', 'K', 'V', 'T', 'Q', 'X', 'B']);
            let number = rest.and_then(|rest| rest.split('.').next());
            number
                .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        for requirement in all() {
            let words = requirement.text.split([' ', ',', ';', ':', '(', ')', '\n']);
            for word in words.map(|word| word.trim_end_matches('.')).filter(|word| shaped_like_an_id(word)) {
                assert!(find(word).is_some(), "{} refers to {word}", requirement.id);
            }
        }
    }
}
