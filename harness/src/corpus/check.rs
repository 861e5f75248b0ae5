//! Holds one case against a store.

use std::io;

use serde_json::Value;
use serde_json::value::RawValue;

use super::compare::{differs, is_refused_with, short, shows_session};
use super::expected::{Canonical, Expected};
use super::input::{Input, InputError};
use super::{Body, Case, Named, script};
use crate::call::{Answer, Call, Reply};
use crate::inject::Injector;
use crate::outsider::Seen;
use crate::subject::{Candidate, Subject};
use crate::world::{Backend, World};

/// What a case is run on.
pub struct Environment<'a> {
    /// Where the files are.
    pub backend: Backend,
    /// Starts a process of the store.
    pub start: Box<Start<'a>>,
    /// Whether planned faults strike what `start` gives.
    pub injects: bool,
}

/// Starts a process of a store that works in a directory, watched where it can be.
pub type Start<'a> = dyn Fn(&mut World, &Injector) -> Box<dyn Subject> + Sync + 'a;

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The store does what it must.
    Pass,
    /// It does not; the evidence.
    Violation(String),
    /// It gave this answer to the choice.
    Recorded(String),
    /// It cannot be asked; the reason.
    Unsupported(String),
}

/// Why a case could not be run, which says nothing about the store.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The files could not be prepared or looked at.
    #[error("the harness could not prepare or read the files of a case: {0}")]
    Files(#[from] io::Error),
    /// An input of the case stands for no bytes.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The message of a call is no JSON text.
    #[error("the message of a call is no JSON text: {0}; a store is given JSON only")]
    Message(String),
}

impl<'a> Environment<'a> {
    /// For a store in this process.
    pub fn of(candidate: &'a dyn Candidate, backend: Backend) -> Environment<'a> {
        Environment {
            backend,
            start: Box::new(move |world, injector| candidate.start(world.process(injector))),
            injects: true,
        }
    }
}

/// Runs a case.
///
/// # Errors
/// Where the harness could not do its part.
pub fn check(case: &Case, environment: &Environment<'_>) -> Result<Outcome, CheckError> {
    match &case.body {
        Body::OneShot { input, outcomes } => one_shot(case, input, outcomes, environment),
        Body::Script { steps, outcomes } => script::run(case, steps, outcomes, environment),
    }
}

/// The first outcome that holds, or the evidence against each.
pub(super) fn first_that_holds<T>(
    outcomes: &[Named<T>],
    mut judge: impl FnMut(&T) -> Result<Verdict, CheckError>,
) -> Result<Outcome, CheckError> {
    let mut evidence = Vec::new();
    for Named { answer, expected } in outcomes {
        match (judge(expected)?, answer) {
            (Verdict::Holds, None) => return Ok(Outcome::Pass),
            (Verdict::Holds, Some(answer)) => return Ok(Outcome::Recorded(answer.clone())),
            (Verdict::Unsupported(reason), _) => return Ok(Outcome::Unsupported(reason)),
            (Verdict::Broken(what), None) => evidence.push(what),
            (Verdict::Broken(what), Some(answer)) => evidence.push(format!("not {answer}: {what}")),
        }
    }
    Ok(Outcome::Violation(evidence.join("; ")))
}

/// What became of one expectation.
pub(super) enum Verdict {
    Holds,
    Broken(String),
    Unsupported(String),
}

impl From<Result<(), String>> for Verdict {
    fn from(result: Result<(), String>) -> Verdict {
        result.map_or_else(Verdict::Broken, |()| Verdict::Holds)
    }
}

const SESSION: &str = "session.jsonl";
const STORE: &str = "s";
/// The answer to a choice that is none of those that the contract names.
const UNLISTED: &str = "unlisted";

fn one_shot(
    case: &Case,
    input: &Input,
    outcomes: &[Named<Expected>],
    environment: &Environment<'_>,
) -> Result<Outcome, CheckError> {
    let input = case.expand(input)?;
    let observed = observe(&input, environment)?;
    if let Reply::Unsupported(reason) = &observed.loaded {
        return Ok(Outcome::Unsupported(reason.clone()));
    }
    if let Some(changed) = &observed.changed_by_load {
        return Ok(Outcome::Violation(format!("the load changed the directory: {changed}")));
    }
    let outcome = first_that_holds(outcomes, |expected| {
        let canonical = match expected {
            Expected::Accepted { canonical: Canonical::Bytes(bytes), .. } => case.expand(bytes)?,
            _ => input.clone(),
        };
        Ok(judge(&observed, expected, &input, &canonical).into())
    })?;
    Ok(match (outcome, &observed.loaded) {
        // What the contract leaves open fails nobody; that a refusal has no name there is all there is to record.
        (Outcome::Violation(_), Reply::Refused(_)) if case.choice.is_some() => {
            Outcome::Recorded(UNLISTED.to_owned())
        }
        (outcome, _) => outcome,
    })
}

/// What a store makes of a file.
struct Observed {
    loaded: Reply,
    changed_by_load: Option<String>,
    /// Nothing after a load that was refused or changed something.
    afterwards: Option<Afterwards>,
}

/// What comes after a load that succeeded: defects show at the next commit and at the next load.
struct Afterwards {
    flushed: Reply,
    bytes: Vec<u8>,
    appended: Reply,
    loaded_again: Reply,
}

fn observe(input: &[u8], environment: &Environment<'_>) -> Result<Observed, CheckError> {
    let mut world = World::new(environment.backend, SESSION)?;
    let outsider = world.outsider().clone();
    outsider.write_file(world.session(), input)?;
    let before = outsider.view(world.root())?;
    let mut subject = (environment.start)(&mut world, &Injector::watching());
    let loaded = subject.call(&load(&world));
    let changed_by_load = changed(&before, &outsider.view(world.root())?);
    let leaf = match &loaded {
        Reply::Ok(answer) if changed_by_load.is_none() => answer.leaf.clone().flatten(),
        _ => return Ok(Observed { loaded, changed_by_load, afterwards: None }),
    };
    let flushed = subject.call(&Call::Flush { store: STORE.to_owned() });
    // What is gone or no file has no bytes.
    let bytes = outsider.read(world.session()).unwrap_or_default();
    let appended =
        subject.call(&Call::Append { store: STORE.to_owned(), parent_id: leaf, message: message()? });
    let mut other = (environment.start)(&mut world, &Injector::watching());
    let loaded_again = other.call(&load(&world));
    let afterwards = Some(Afterwards { flushed, bytes, appended, loaded_again });
    Ok(Observed { loaded, changed_by_load, afterwards })
}

fn load(world: &World) -> Call {
    Call::Load {
        store: STORE.to_owned(),
        path: world.session().to_string_lossy().into_owned(),
        ids: vec!["appended-by-the-harness".to_owned()],
        clock: vec!["2026-01-01T00:00:00.000Z".to_owned()],
    }
}

fn message() -> Result<Box<RawValue>, CheckError> {
    let text = r#"{"id":"m-appended","role":"user","content":"and now?"}"#;
    RawValue::from_string(text.to_owned()).map_err(|error| CheckError::Message(error.to_string()))
}

/// What is different in a directory, if anything.
pub(super) fn changed(before: &[Seen], after: &[Seen]) -> Option<String> {
    let names = |seen: &[Seen]| seen.iter().map(|seen| seen.name.clone()).collect::<Vec<_>>();
    if names(before) != names(after) {
        return Some(format!("it held {:?} and holds {:?}", names(before), names(after)));
    }
    let (one, other) = before.iter().zip(after).find(|(one, other)| one != other)?;
    let what =
        if one.bytes == other.bytes { "is another file or has another mode" } else { "has other bytes" };
    Some(format!("{} {what}", one.name.display()))
}

fn judge(observed: &Observed, expected: &Expected, input: &[u8], canonical: &[u8]) -> Result<(), String> {
    match (expected, &observed.loaded, &observed.afterwards) {
        (Expected::Refused { code, line }, Reply::Refused(refusal), _) => {
            is_refused_with(refusal, "code", &Value::from(code.as_str()))?;
            line.map_or(Ok(()), |line| is_refused_with(refusal, "line", &Value::from(line)))
                .map_err(|what| format!("load: {what}"))
        }
        (Expected::Accepted { flush_refused, .. }, Reply::Ok(answer), Some(afterwards)) => {
            shows_session(answer, canonical).map_err(|what| format!("load: {what}"))?;
            let committed = match flush_refused {
                Some(code) => afterwards.flush_is_refused(code, input).map(|()| input)?,
                None => afterwards.flush_writes(canonical).map(|()| canonical)?,
            };
            afterwards.goes_on(answer, committed)
        }
        (_, reply, _) => Err(format!("load: expected {}, answered {}", words(expected), short(&told(reply)))),
    }
}

impl Afterwards {
    fn flush_writes(&self, canonical: &[u8]) -> Result<(), String> {
        match &self.flushed {
            Reply::Ok(_) => differs(&self.bytes, canonical)
                .map_or(Ok(()), |what| Err(format!("a flush did not write the canonical form: {what}"))),
            Reply::Unsupported(_) => Ok(()),
            other => Err(format!("a flush was answered with {}", short(&told(other)))),
        }
    }

    fn flush_is_refused(&self, code: &str, input: &[u8]) -> Result<(), String> {
        match &self.flushed {
            Reply::Refused(refusal) => {
                is_refused_with(refusal, "code", &Value::from(code))
                    .map_err(|what| format!("flush: {what}"))?;
                differs(&self.bytes, input)
                    .map_or(Ok(()), |what| Err(format!("a refused flush changed the file: {what}")))
            }
            Reply::Unsupported(_) => Ok(()),
            other => Err(format!("a flush must be refused with {code}, answered {}", short(&told(other)))),
        }
    }

    /// A load in another process shows what was committed, and the entry that was appended, if it was.
    fn goes_on(&self, first: &Answer, committed: &[u8]) -> Result<(), String> {
        let again = match &self.loaded_again {
            Reply::Ok(answer) => answer,
            other => return Err(format!("the next load was answered with {}", short(&told(other)))),
        };
        let added = match &self.appended {
            Reply::Ok(answer) => {
                let entry = answer.entry.as_ref().ok_or("append: the answer has no entry")?;
                Some(entry)
            }
            Reply::Refused(refusal)
                if matches!(refusal.code.as_str(), "SESSION_RECORD_LIMIT" | "SESSION_FILE_TOO_LARGE") =>
            {
                None
            }
            Reply::Unsupported(_) => None,
            other => return Err(format!("an append was answered with {}", short(&told(other)))),
        };
        let Some(added) = added else {
            return shows_session(again, committed).map_err(|what| format!("the next load: {what}"));
        };
        let expected = first.entries.iter().flatten().chain([added]);
        if again.header == first.header && again.entries.iter().flatten().eq(expected) {
            Ok(())
        } else {
            Err(format!(
                "after an append the next load does not show the entries before and the new one: {}",
                short(&told(&self.loaded_again))
            ))
        }
    }
}

fn words(expected: &Expected) -> String {
    match expected {
        Expected::Accepted { .. } => "a session".to_owned(),
        Expected::Refused { code, line: Some(line) } => format!("{code} at line {line}"),
        Expected::Refused { code, line: None } => code.clone(),
    }
}

/// A reply in words.
pub(super) fn told(reply: &Reply) -> String {
    match reply {
        Reply::Ok(answer) => serde_json::to_string(answer).unwrap_or_else(|error| error.to_string()),
        Reply::Refused(refusal) => refusal.to_string(),
        other => other.to_string(),
    }
}
