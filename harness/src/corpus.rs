//! The conformance corpus: cases as data, that a store of any language can be held against.
//!
//! A case is one JSON file `conformance/<topic>/<case>.json`. It gives the bytes of a session file and what a load
//! must make of them, or a script: calls, what somebody else does to the files meanwhile, and what must be answered and
//! seen. `corpus/schema/case.schema.json` describes the files, `corpus/README.md` explains them.
//!
//! [`embedded`] gives the corpus of this repository, [`load`] one of a directory; [`check()`] holds a case against a
//! store.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use include_dir::{Dir, include_dir};
use serde::Deserialize;

use crate::requirement::{self, Level};

mod check;
mod compare;
mod expected;
mod input;
mod script;
mod step;

pub use check::{CheckError, Environment, Outcome, Start, check};
pub use expected::{Canonical, Expected};
pub use input::{Input, InputError, MAX_EXPANDED_BYTES};
pub use step::{Answers, Step, Success};

use expected::Answer;

/// The name of the suite, and of the directory that its cases are in.
pub const NAME: &str = "conformance";

/// The directory of realistic sessions, which cases may use.
const SESSIONS: &str = "sessions";

static CONFORMANCE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../corpus/conformance");
static REALISTIC: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../corpus/sessions");

/// One case.
#[derive(Debug, Clone)]
pub struct Case {
    /// The path of its file without the extension, such as `conformance/tail/incomplete-escape`.
    pub id: String,
    /// What must happen, in one line.
    pub title: String,
    /// The requirements that it is about.
    pub requirements: Vec<String>,
    /// The choice whose answer it finds out; none where a store is held to one outcome.
    pub choice: Option<String>,
    /// What is done and what must come of it.
    pub body: Body,
    files: Arc<Files>,
}

/// What a case does and what must come of it.
#[derive(Debug, Clone)]
pub enum Body {
    /// The bytes of a session file, which are loaded.
    OneShot {
        /// The bytes.
        input: Input,
        /// What may come of it: one thing, or one for each answer to the choice.
        outcomes: Vec<Named<Expected>>,
    },
    /// Calls, and what somebody else does.
    Script {
        /// What comes first in any case.
        steps: Vec<Step>,
        /// What may come of it: nothing more, or further steps for each answer to the choice.
        outcomes: Vec<Named<Vec<Step>>>,
    },
}

/// One thing that may come of a case.
#[derive(Debug, Clone)]
pub struct Named<T> {
    /// The answer to the choice; none where there is no choice.
    pub answer: Option<String>,
    /// What comes of it.
    pub expected: T,
}

/// Why a corpus cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// Something could not be read.
    #[error("cannot read {}: {source}; a corpus is a directory with `{NAME}/TOPIC/CASE.json` in it", path.display())]
    Unreadable {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no case.
    #[error("no case is in {}; a corpus is a directory with `{NAME}/TOPIC/CASE.json` in it", .0.display())]
    Empty(PathBuf),
    /// A case's file is not one.
    #[error("{path} is no case: {what}; corpus/schema/case.schema.json says what one looks like")]
    Malformed {
        /// Its path within the corpus.
        path: String,
        /// What is wrong.
        what: String,
    },
}

/// The cases of this repository's corpus, as it was when this library was compiled, in the order of their ids.
///
/// # Errors
/// Where a file of it is no case.
pub fn embedded() -> Result<Vec<Case>, CorpusError> {
    let mut files = Files::default();
    files.embed(NAME, &CONFORMANCE);
    files.embed(SESSIONS, &REALISTIC);
    files.cases(Path::new(NAME))
}

/// The cases below a directory that is laid out like `corpus/`, in the order of their ids.
///
/// # Errors
/// Where something cannot be read, a file is no case, or there is none.
pub fn load(directory: &Path) -> Result<Vec<Case>, CorpusError> {
    let mut files = Files::default();
    files.read(directory, NAME)?;
    if directory.join(SESSIONS).exists() {
        files.read(directory, SESSIONS)?;
    }
    files.cases(directory)
}

impl Case {
    /// Whether a store is held to it.
    pub fn is_must(&self) -> bool {
        self.choice.is_none()
    }

    /// Every input that it has.
    pub fn inputs(&self) -> Vec<&Input> {
        match &self.body {
            Body::OneShot { input, outcomes } => {
                let canonical = outcomes.iter().filter_map(|outcome| outcome.expected.bytes());
                [input].into_iter().chain(canonical).collect()
            }
            Body::Script { steps, outcomes } => {
                let further = outcomes.iter().flat_map(|outcome| &outcome.expected);
                steps.iter().chain(further).flat_map(Step::inputs).collect()
            }
        }
    }

    /// The requirements that it is about, and the choice whose answer it finds out.
    pub fn about(&self) -> Vec<&str> {
        let choice = self.choice.iter().filter(|choice| !self.requirements.contains(choice));
        self.requirements.iter().chain(choice).map(String::as_str).collect()
    }

    /// The bytes that `input`, which must be one of this case's own, stands for.
    ///
    /// # Errors
    /// Where they are too many, or name a file that is not there.
    pub fn expand(&self, input: &Input) -> Result<Vec<u8>, InputError> {
        input.expand(&|path| self.file(path))
    }

    /// A file by its name beside the case, or one of the realistic sessions.
    fn file(&self, file: input::File<'_>) -> Option<&[u8]> {
        let path = match file {
            input::File::Beside(name) => {
                let (directory, _) = self.id.rsplit_once('/')?;
                format!("{directory}/{name}")
            }
            input::File::Session(name) => format!("{SESSIONS}/{name}"),
        };
        self.files.0.get(&path).map(AsRef::as_ref)
    }
}

/// Every file of a corpus, by its path from there.
#[derive(Debug, Default)]
struct Files(BTreeMap<String, Cow<'static, [u8]>>);

impl Files {
    fn embed(&mut self, name: &str, directory: &'static Dir<'static>) {
        for file in directory.files() {
            let path = format!("{name}/{}", file.path().display());
            self.0.insert(path, Cow::Borrowed(file.contents()));
        }
        for below in directory.dirs() {
            self.embed(name, below);
        }
    }

    fn read(&mut self, root: &Path, directory: &str) -> Result<(), CorpusError> {
        let unreadable = |path: &Path, source| CorpusError::Unreadable { path: path.to_owned(), source };
        let here = root.join(directory);
        for entry in fs::read_dir(&here).map_err(|error| unreadable(&here, error))? {
            let entry = entry.map_err(|error| unreadable(&here, error))?;
            let path = entry.path();
            let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(|error| unreadable(&path, error))?;
            if kind.is_dir() {
                self.read(root, &name)?;
            } else if kind.is_file() {
                let bytes = fs::read(&path).map_err(|error| unreadable(&path, error))?;
                self.0.insert(name, Cow::Owned(bytes));
            }
        }
        Ok(())
    }

    fn cases(self, root: &Path) -> Result<Vec<Case>, CorpusError> {
        let files = Arc::new(self);
        let mut cases = Vec::new();
        for (path, bytes) in &files.0 {
            let Some(id) = path.strip_suffix(".json").filter(|_| path.starts_with(NAME)) else { continue };
            let case = read_case(id, bytes, &files)
                .map_err(|what| CorpusError::Malformed { path: path.clone(), what })?;
            cases.push(case);
        }
        cases.sort_by(|one, other| one.id.cmp(&other.id));
        if cases.is_empty() { Err(CorpusError::Empty(root.to_owned())) } else { Ok(cases) }
    }
}

/// A case as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    title: String,
    requirements: Vec<String>,
    level: String,
    input: Option<Input>,
    expect: Option<Expected>,
    script: Option<Vec<Step>>,
    choice: Option<String>,
    #[serde(default, deserialize_with = "compare::members")]
    answers: Vec<(String, Answer)>,
}

fn read_case(id: &str, bytes: &[u8], files: &Arc<Files>) -> Result<Case, String> {
    if !is_case_id(id) {
        return Err(
            "the path is not `conformance/TOPIC/CASE.json` of lower-case words joined by `-`".to_owned()
        );
    }
    let file: CaseFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if file.requirements.is_empty() {
        return Err("it names no requirement".to_owned());
    }
    if let Some(unknown) = file.requirements.iter().find(|id| requirement::find(id).is_none()) {
        return Err(format!("the contract has no requirement `{unknown}`"));
    }
    check_choice(&file)?;
    let names: BTreeSet<&str> = file.answers.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() != file.answers.len() {
        return Err("an answer is there twice".to_owned());
    }
    let body = body(file.input, file.script, file.expect, file.answers)?;
    let case = Case {
        id: id.to_owned(),
        title: file.title,
        requirements: file.requirements,
        choice: file.choice,
        body,
        files: Arc::clone(files),
    };
    let missing = case.inputs().into_iter().find_map(|input| input.missing_file(&|file| case.file(file)));
    match missing {
        Some(name) => Err(format!("there is no file `{name}`")),
        None => Ok(case),
    }
}

fn is_case_id(id: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let parts: Vec<&str> = id.split('/').collect();
    parts.len() == 3 && parts.iter().all(|part| part.split('-').all(is_word))
}

fn check_choice(file: &CaseFile) -> Result<(), String> {
    match (file.level.as_str(), &file.choice) {
        ("must", None) => Ok(()),
        ("must", Some(_)) => Err("a `must` has no `choice`".to_owned()),
        ("choice", None) => Err("a `choice` names the `choice` that it is about".to_owned()),
        ("choice", Some(id)) => {
            let Some(Level::Choice { answers, .. }) = requirement::find(id).map(|found| found.level) else {
                return Err(format!("the contract has no choice `{id}`"));
            };
            let known = |name: &str| answers.iter().any(|answer| answer.name == name);
            match file.answers.iter().find(|(name, _)| !known(name)) {
                Some((unknown, _)) => Err(format!("`{unknown}` is no answer to {id}")),
                None => Ok(()),
            }
        }
        (other, _) => Err(format!("the level `{other}` is neither `must` nor `choice`")),
    }
}

fn body(
    input: Option<Input>,
    script: Option<Vec<Step>>,
    expect: Option<Expected>,
    answers: Vec<(String, Answer)>,
) -> Result<Body, String> {
    let alone = |expected| vec![Named { answer: None, expected }];
    match (input, script, expect) {
        (Some(input), None, Some(expected)) if answers.is_empty() => {
            Ok(Body::OneShot { input, outcomes: alone(expected) })
        }
        (Some(input), None, None) if !answers.is_empty() => {
            Ok(Body::OneShot { input, outcomes: named(answers, Answer::outcome)? })
        }
        (None, Some(steps), None) if answers.is_empty() => {
            Ok(Body::Script { steps, outcomes: vec![Named { answer: None, expected: Vec::new() }] })
        }
        (None, Some(steps), None) => Ok(Body::Script { steps, outcomes: named(answers, Answer::steps)? }),
        _ => Err("it has neither `input` with `expect` or `answers`, nor `script` with or without `answers`"
            .to_owned()),
    }
}

fn named<T>(
    answers: Vec<(String, Answer)>,
    read: impl Fn(Answer) -> Result<T, String>,
) -> Result<Vec<Named<T>>, String> {
    answers
        .into_iter()
        .map(|(name, answer)| Ok(Named { expected: read(answer)?, answer: Some(name) }))
        .collect()
}

#[cfg(test)]
mod tests;
