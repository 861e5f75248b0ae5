//! Plays the steps of a script.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_json::value::RawValue;
use session_tree::file_ops::FileKind;

use super::check::{CheckError, Environment, Outcome, Verdict, first_that_holds, told};
use super::compare::{
    differs, is_refused_with, short, shows_entries, shows_entry, shows_header, shows_lines, shows_session,
};
use super::input::Input;
use super::step::{Answers, Step, Success};
use super::{Case, Named};
use crate::call::{Answer, Call, Reply};
use crate::fault::Plan;
use crate::inject::Injector;
use crate::outsider::Outsider;
use crate::subject::Subject;
use crate::world::World;

/// The session that a planned fault speaks of.
const SESSION: &str = "session.jsonl";

/// Plays the steps, then those of each answer, from the start for each.
pub(super) fn run(
    case: &Case,
    steps: &[Step],
    outcomes: &[Named<Vec<Step>>],
    environment: &Environment<'_>,
) -> Result<Outcome, CheckError> {
    first_that_holds(outcomes, |further| {
        let steps: Vec<&Step> = steps.iter().chain(further).collect();
        Play::new(case, &steps, environment)?.all(&steps)
    })
}

struct Play<'a> {
    case: &'a Case,
    environment: &'a Environment<'a>,
    world: World,
    plan: Plan,
    lifted: bool,
    processes: HashMap<u32, Process>,
    /// How often each call was made, by its name.
    calls: HashMap<&'static str, u32>,
}

struct Process {
    subject: Box<dyn Subject>,
    injector: Injector,
}

impl<'a> Play<'a> {
    fn new(
        case: &'a Case,
        steps: &[&Step],
        environment: &'a Environment<'a>,
    ) -> Result<Play<'a>, CheckError> {
        let faults = steps.iter().filter_map(|step| match step {
            Step::Fault(plan) => Some(plan.0.iter().cloned()),
            _ => None,
        });
        Ok(Play {
            case,
            environment,
            world: World::new(environment.backend, SESSION)?,
            // A fault's site says in which call it strikes, so all of them can be armed at the start.
            plan: Plan(faults.flatten().collect()),
            lifted: false,
            processes: HashMap::new(),
            calls: HashMap::new(),
        })
    }

    fn all(&mut self, steps: &[&Step]) -> Result<Verdict, CheckError> {
        if !self.plan.0.is_empty() && !self.environment.injects {
            return Ok(Verdict::Unsupported("no fault can be planned for this store".to_owned()));
        }
        for (nth, step) in steps.iter().enumerate() {
            let verdict = match self.play(step) {
                Err(CheckError::Files(error)) if is_the_stores_doing(&error) => {
                    Verdict::Broken(format!("which needs what the store has taken away or made: {error}"))
                }
                verdict => verdict?,
            };
            match verdict {
                Verdict::Holds => {}
                Verdict::Broken(what) => return Ok(Verdict::Broken(format!("step {}, {what}", nth + 1))),
                Verdict::Unsupported(reason) => return Ok(Verdict::Unsupported(reason)),
            }
        }
        Ok(self.all_faults_struck())
    }

    /// A fault that never struck proves nothing.
    fn all_faults_struck(&self) -> Verdict {
        let struck = |at: usize| self.processes.values().any(|process| process.injector.fired()[at] > 0);
        match self.plan.0.iter().enumerate().find(|(at, _)| !struck(*at)) {
            Some((_, fault)) => {
                Verdict::Unsupported(format!("`{fault}` did not strike: the store makes no such call"))
            }
            None => Verdict::Holds,
        }
    }

    fn play(&mut self, step: &Step) -> Result<Verdict, CheckError> {
        let outsider = self.world.outsider().clone();
        match step {
            Step::Call { call, message, process, answers } => {
                return self.call(call, message.as_ref(), *process, answers);
            }
            Step::Write(name, bytes) => outsider.write_file(&self.path(name), &self.case.expand(bytes)?)?,
            Step::Overwrite(name, bytes) => {
                outsider.overwrite(&self.path(name), &self.case.expand(bytes)?)?;
            }
            Step::Remove(name) => outsider.remove(&self.path(name))?,
            Step::Rename(from, to) => outsider.rename(&self.path(from), &self.path(to))?,
            Step::Link(from, to) => outsider.link(&self.path(from), &self.path(to))?,
            Step::Mkdir(name) => outsider.mkdir(&self.path(name))?,
            Step::Symlink(target, name) => outsider.symlink(target, &self.path(name))?,
            Step::Fifo(name) => outsider.fifo(&self.path(name))?,
            Step::Chmod(name, mode) => outsider.chmod(&self.path(name), *mode)?,
            Step::Truncate(name, size) => outsider.truncate(&self.path(name), *size)?,
            Step::ReplaceRoot => replace_root(&outsider, self.world.root())?,
            Step::Bytes(name, expected) => {
                let expected = expected.as_ref().map(|bytes| self.case.expand(bytes)).transpose()?;
                return Ok(self.has_bytes(name, expected.as_deref())?.into());
            }
            Step::Mode(name, expected) => {
                let mode = outsider.look(&self.path(name))?.mode & 0o7777;
                return Ok(expect(mode == *expected, || {
                    format!("{name}: expected the mode {expected:04o}, is {mode:04o}")
                })
                .into());
            }
            Step::Names(expected) => return Ok(self.has_names(expected)?.into()),
            Step::Fault(_) => {}
            Step::Lift => {
                self.lifted = true;
                self.processes.values().for_each(|process| process.injector.lift());
            }
        }
        Ok(Verdict::Holds)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.beside(name)
    }

    fn call(
        &mut self,
        call: &Call,
        message: Option<&Input>,
        process: u32,
        answers: &Answers,
    ) -> Result<Verdict, CheckError> {
        let mut call = call.clone();
        match &mut call {
            Call::Create { path, .. }
            | Call::Load { path, .. }
            | Call::Inspect { path }
            | Call::Recover { path, .. } => *path = self.path(path).to_string_lossy().into_owned(),
            Call::Append { message: text, .. } | Call::TreeAppend { message: text, .. } => {
                if let Some(input) = message {
                    *text = self.message(input)?;
                }
            }
            _ => {}
        }
        let name = call.name();
        let count = self.calls.entry(name).or_default();
        *count += 1;
        let nth = *count;
        let process = self.process(process);
        process.injector.begin(name, nth);
        let reply = process.subject.call(&call);
        Ok(match (answers, &reply) {
            (_, Reply::Unsupported(reason)) => Verdict::Unsupported(reason.clone()),
            (Answers::Ok(expected), Reply::Ok(answer)) => {
                self.succeeds(expected, answer)?.map_err(|what| format!("{name}: {what}")).into()
            }
            (Answers::Error(expected), Reply::Refused(refusal)) => expected
                .iter()
                .try_for_each(|(member, value)| is_refused_with(refusal, member, value))
                .map_err(|what| format!("{name}: {what}"))
                .into(),
            (Answers::Ok(_), other) => {
                Verdict::Broken(format!("{name}: expected success, answered {}", short(&told(other))))
            }
            (Answers::Error(expected), other) => {
                let expected = expected.get("code").map_or("a refusal".to_owned(), ToString::to_string);
                Verdict::Broken(format!("{name}: expected {expected}, answered {}", short(&told(other))))
            }
        })
    }

    fn message(&self, input: &Input) -> Result<Box<RawValue>, CheckError> {
        let text = String::from_utf8(self.case.expand(input)?);
        let text = text.map_err(|error| CheckError::Message(error.to_string()))?;
        RawValue::from_string(text).map_err(|error| CheckError::Message(error.to_string()))
    }

    fn process(&mut self, number: u32) -> &mut Process {
        self.processes.entry(number).or_insert_with(|| {
            let (outsider, session) = (self.world.outsider().clone(), self.world.session().to_owned());
            let injector = Injector::new(&self.plan, move |actor| outsider.act(actor, &session));
            if self.lifted {
                injector.lift();
            }
            Process { subject: (self.environment.start)(&mut self.world, &injector), injector }
        })
    }

    fn succeeds(&self, expected: &Success, answer: &Answer) -> Result<Result<(), String>, CheckError> {
        let Success { header, entry, entries, lines, session, leaf, state } = expected;
        let lines = lines.as_ref().map(|lines| self.case.expand(lines)).transpose()?;
        let session = session.as_ref().map(|session| self.case.expand(session)).transpose()?;
        Ok((|| {
            if let Some(header) = header {
                shows_header(answer.header.as_ref().ok_or("the answer has no header")?, &header.to_string())?;
            }
            if let Some(entry) = entry {
                shows_entry(answer.entry.as_ref().ok_or("the answer has no entry")?, &entry.to_string())?;
            }
            if let Some(entries) = entries {
                let texts: Vec<String> = entries.iter().map(ToString::to_string).collect();
                shows_entries(answer, texts.iter().map(String::as_str))?;
            }
            if let Some(lines) = lines {
                shows_lines(answer, &String::from_utf8_lossy(&lines))?;
            }
            if let Some(session) = session {
                shows_session(answer, &session)?;
            }
            if let Some(leaf) = leaf {
                let shown = Value::from(answer.leaf.clone().ok_or("the answer has no leaf")?);
                expect(shown == *leaf, || format!("expected the leaf {leaf}, shown {shown}"))?;
            }
            if let Some(state) = state {
                let shown = answer.state.as_ref().ok_or("the answer has no state")?;
                expect(shown == state, || format!("expected the state {state}, shown {shown}"))?;
            }
            Ok(())
        })())
    }

    fn has_bytes(&self, name: &str, expected: Option<&[u8]>) -> io::Result<Result<(), String>> {
        let outsider = self.world.outsider();
        let found = match name.strip_suffix('*') {
            Some(beginning) => self.names()?.into_iter().filter(|name| name.starts_with(beginning)).collect(),
            None if outsider.exists(&self.path(name)) => vec![name.to_owned()],
            None => Vec::new(),
        };
        Ok(match (expected, found.as_slice()) {
            (None, []) => Ok(()),
            (Some(expected), [found]) => {
                let path = self.path(found);
                if outsider.look(&path)?.kind == FileKind::Regular {
                    differs(&outsider.read(&path)?, expected)
                        .map_or(Ok(()), |what| Err(format!("{found}: {what}")))
                } else {
                    Err(format!("{found} is no regular file"))
                }
            }
            (None, found) => Err(format!("{found:?} should not be there")),
            (Some(_), found) => Err(format!("expected one file `{name}`, there are {found:?}")),
        })
    }

    fn has_names(&self, expected: &[String]) -> io::Result<Result<(), String>> {
        let names = self.names()?;
        let matches = |name: &str, expected: &String| match expected.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == expected,
        };
        let mut sorted = expected.to_vec();
        sorted.sort();
        let equal = names.len() == sorted.len()
            && names.iter().zip(&sorted).all(|(name, expected)| matches(name, expected));
        Ok(expect(equal, || format!("expected the names {sorted:?}, there are {names:?}")))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let seen = self.world.outsider().view(self.world.root())?;
        Ok(seen.into_iter().map(|seen| seen.name.to_string_lossy().into_owned()).collect())
    }
}

/// On a good store every step can be taken. A name that is missing or taken is no failure of the harness then.
fn is_the_stores_doing(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | IsADirectory | NotADirectory | NotFound)
}

fn replace_root(outsider: &Outsider, root: &Path) -> io::Result<()> {
    outsider.rename(root, &root.with_extension("moved"))?;
    outsider.mkdir(root)
}

fn expect(holds: bool, evidence: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(evidence()) }
}
