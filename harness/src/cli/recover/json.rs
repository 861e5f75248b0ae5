//! The same for programs: one object.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Map, Value, json};
use session_tree::recover::{
    self as core, Action, Choice, Content, Inspection, Recovery, Rehearsal, State, Stray,
};
use session_tree::{Entry, Error};

use super::{Refused, Use, name_of};
use crate::call::{Did, Refusal};
use crate::diagnose;

/// What an inspection says. `recover` is what a recovery without a choice does, null where it refuses, and `choices`
/// what it does with each choice that resolves the state then.
pub(super) fn inspection(file: &Path, inspection: &Inspection) -> Value {
    let mut object = state(file, inspection);
    let alone = core::plan(inspection.state, None);
    object.insert("recover".to_owned(), actions(alone));
    let choices = Choice::ALL.iter().filter(|_| alone.is_none()).filter_map(|choice| {
        let plan = core::plan(inspection.state, Some(*choice))?;
        Some((choice.token().to_owned(), actions(Some(plan))))
    });
    object.insert("choices".to_owned(), Value::Object(choices.collect()));
    object.into()
}

/// `locked`: whether another process has locked the session file, so that a recovery would wait.
pub(super) fn with_held(mut inspection: Value, is_held: bool) -> Value {
    inspection["locked"] = is_held.into();
    inspection
}

/// What a recovery would do, null where it would refuse.
pub(super) fn plan(file: &Path, rehearsal: &Rehearsal, choice: Option<Choice>) -> Value {
    let mut object = state(file, &rehearsal.inspection);
    put_choice(&mut object, choice, rehearsal.inspection.state);
    object.insert("would".to_owned(), actions(rehearsal.actions));
    object.into()
}

/// What a recovery found and did, and the state afterwards, null where that could not be told.
pub(super) fn recovery(
    file: &Path,
    recovery: &Recovery,
    choice: Option<Choice>,
    now: Option<&Inspection>,
) -> Value {
    let mut object = named(file);
    object.insert("state".to_owned(), recovery.state.token().into());
    object.insert("meaning".to_owned(), recovery.state.words().into());
    put_choice(&mut object, choice, recovery.state);
    let did: Vec<Did> = recovery.did.iter().map(Did::from).collect();
    object.insert("did".to_owned(), json!(did));
    object.insert("now".to_owned(), now.map(|now| now.state.token()).into());
    object.into()
}

/// Strays that were removed, or would be.
pub(super) fn strays(file: &Path, strays: &[Stray], dry_run: bool) -> Value {
    let mut object = named(file);
    object.insert(if dry_run { "would_remove" } else { "removed" }.to_owned(), stray_list(strays));
    object.into()
}

/// An error, and what was found where it is a refusal.
pub(super) fn error(file: &Path, error: &Error, refused: Option<Refused<'_>>) -> Value {
    let mut object = match refused.map(|(found, _)| inspection(file, found)) {
        Some(Value::Object(object)) => object,
        _ => named(file),
    };
    if let Some((found, choice)) = refused {
        put_choice(&mut object, choice, found.state);
    } else {
        object.insert("help".to_owned(), diagnose::help(error, file).into());
    }
    if let Value::Object(refusal) = json!(Refusal::from(error)) {
        object.extend(refusal);
    }
    object.into()
}

/// The choice that was given, and what becomes of it: `used`, `not-needed` or `no-help`.
fn put_choice(object: &mut Map<String, Value>, choice: Option<Choice>, state: State) {
    if let Some(choice) = choice {
        let uses = Use::of(choice, state).token();
        object.insert("choice".to_owned(), json!({"name": choice.token(), "is": uses}));
    }
}

fn state(file: &Path, inspection: &Inspection) -> Map<String, Value> {
    let mut object = named(file);
    object.insert("state".to_owned(), inspection.state.token().into());
    object.insert("meaning".to_owned(), inspection.state.words().into());
    object.insert("current".to_owned(), content(&name_of(file), &inspection.current));
    object.insert("marker".to_owned(), content(&inspection.marker_name, &inspection.marker));
    object.insert("strays".to_owned(), stray_list(&inspection.strays));
    object
}

fn named(file: &Path) -> Map<String, Value> {
    Map::from_iter([("file".to_owned(), file.to_string_lossy().into())])
}

fn content(name: &OsStr, content: &Content) -> Value {
    let name = name.to_string_lossy();
    match content {
        Content::Absent => json!({"name": name, "is": "absent"}),
        Content::Foreign(kind) => json!({"name": name, "is": "foreign", "kind": kind.words()}),
        Content::Session(session) => json!({
            "name": name,
            "is": "session",
            "id": session.header().id(),
            "entries": session.entries().len(),
            "leaf": session.entries().last().map(Entry::id),
            "last_timestamp": session.entries().last().map(Entry::timestamp),
            "torn_tail": session.torn_tail(),
        }),
        Content::Refused(error) => json!({
            "name": name,
            "is": "refused",
            "code": error.code().as_str(),
            "line": error.position().map(|at| at.line),
            "message": error.message(),
        }),
    }
}

fn actions(plan: Option<&[Action]>) -> Value {
    plan.map(|actions| actions.iter().map(|action| action.token()).collect::<Vec<_>>()).into()
}

fn stray_list(strays: &[Stray]) -> Value {
    let one = |stray: &Stray| json!({"name": stray.name.to_string_lossy(), "size": stray.size});
    strays.iter().map(one).collect()
}
