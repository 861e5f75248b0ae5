//! `inspect` and `recover`: what a crash left, told so that a person with a broken session understands it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;
use session_tree::recover::{self as core, Choice, Inspection, Rehearsal, State, Stray};
use session_tree::{Code, Error};

use super::{CliError, screen};
use crate::diagnose::harmless;
use crate::exit_code::Exit;

mod json;
mod text;

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// The session file, whether it is there or not.
    #[arg(value_name = "FILE", value_parser = file_parser())]
    file: PathBuf,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
// Each is an option of its own that can be typed or not.
#[expect(clippy::struct_excessive_bools)]
pub(super) struct Recover {
    /// The session file, whether it is there or not.
    #[arg(value_name = "FILE", value_parser = file_parser())]
    file: PathBuf,
    /// Tells what would be done, and does nothing.
    #[arg(long)]
    dry_run: bool,
    /// What to keep where that cannot be told from the files. The other one gets a new name.
    #[arg(long, value_name = "WHAT")]
    choose: Option<Chosen>,
    /// Gives a session file that holds no complete record a new name.
    #[arg(long, conflicts_with = "choose")]
    set_aside: bool,
    /// Removes the temporaries of dead processes beside the session, and nothing else.
    #[arg(long, conflicts_with_all = ["choose", "set_aside"])]
    remove_strays: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Chosen {
    /// The session file.
    Current,
    /// The recovery marker.
    Marker,
}

impl Recover {
    fn choice(&self) -> Option<Choice> {
        match self.choose {
            Some(Chosen::Current) => Some(Choice::Current),
            Some(Chosen::Marker) => Some(Choice::Marker),
            None => self.set_aside.then_some(Choice::SetAside),
        }
    }
}

/// Tells the state of a session.
pub(super) fn inspect(options: &Inspect) -> Result<Exit, CliError> {
    let file = &options.file;
    match core::inspect(file) {
        Ok(inspection) => {
            let is_held = inspection.state != State::CommitInFlight && is_held(file);
            let told = Told {
                text: text::inspection(file, &inspection) + text::held(is_held),
                json: json::with_held(json::inspection(file, &inspection), is_held),
                exit: match inspection.state {
                    State::Clean | State::Absent => Exit::Holds,
                    _ => Exit::Violations,
                },
            };
            told.tell(options.json)
        }
        Err(error) => failed(file, &error, None, options.json),
    }
}

/// Resolves the state of a session, or removes strays.
pub(super) fn recover(options: &Recover) -> Result<Exit, CliError> {
    let (file, choice) = (&options.file, options.choice());
    if options.remove_strays {
        return remove_strays(file, options.dry_run, options.json);
    }
    let told = if options.dry_run {
        core::rehearse(file, choice).map(|rehearsal| would(file, &rehearsal, choice))
    } else {
        core::recover(file, choice).map(|recovery| {
            let now = core::inspect(file).ok();
            Told {
                text: text::recovery(file, &recovery, choice, now.as_ref()),
                json: json::recovery(file, &recovery, choice, now.as_ref()),
                exit: Exit::Holds,
            }
        })
    };
    match told {
        Ok(told) => told.tell(options.json),
        Err(error) => {
            // What stands there, so that the refusal can say what to do about it.
            let inspection = core::inspect(file).ok();
            let refused = inspection.filter(|inspection| is_refusal(&error, inspection.state, choice));
            failed(file, &error, refused.as_ref().map(|inspection| (inspection, choice)), options.json)
        }
    }
}

fn would(file: &Path, rehearsal: &Rehearsal, choice: Option<Choice>) -> Told {
    Told {
        text: text::plan(file, rehearsal, choice),
        json: json::plan(file, rehearsal, choice),
        exit: if rehearsal.actions.is_some() { Exit::Holds } else { Exit::Violations },
    }
}

/// What becomes of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It decides.
    Used,
    /// The state is resolved without one.
    NotNeeded,
    /// The state is not resolved by this one.
    NoHelp,
}

impl Use {
    fn of(choice: Choice, state: State) -> Use {
        match (core::plan(state, None), core::plan(state, Some(choice))) {
            (Some(_), _) => Use::NotNeeded,
            (None, Some(_)) => Use::Used,
            (None, None) => Use::NoHelp,
        }
    }

    fn token(self) -> &'static str {
        match self {
            Use::Used => "used",
            Use::NotNeeded => "not-needed",
            Use::NoHelp => "no-help",
        }
    }
}

/// Whether another process has locked the session file at this moment: a recovery would wait for it.
fn is_held(file: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(opened) = fs::open(file, flags, Mode::empty()) else { return false };
    matches!(fs::flock(&opened, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
}

fn remove_strays(file: &Path, dry_run: bool, as_json: bool) -> Result<Exit, CliError> {
    let strays: Result<Vec<Stray>, Error> =
        if dry_run { core::strays(file) } else { core::remove_strays(file) };
    match strays {
        Ok(strays) => {
            let told = Told {
                text: text::strays(file, &strays, dry_run),
                json: json::strays(file, &strays, dry_run),
                exit: Exit::Holds,
            };
            told.tell(as_json)
        }
        Err(error) => failed(file, &error, None, as_json),
    }
}

/// What standard output gets.
struct Told {
    text: String,
    json: Value,
    exit: Exit,
}

impl Told {
    fn tell(self, as_json: bool) -> Result<Exit, CliError> {
        let mut out = Vec::new();
        if as_json {
            harmless::write_json(&mut out, &self.json)?;
            out.push(b'\n');
        } else {
            out = self.text.into_bytes();
        }
        let mut stream = io::stdout().lock();
        screen::is_read(stream.write_all(&out).and_then(|()| stream.flush()))?;
        Ok(self.exit)
    }
}

/// What a recovery says no to, and the choice that it was given.
type Refused<'a> = (&'a Inspection, Option<Choice>);

/// An error on standard error, or as JSON on standard output. With what was inspected where it is a refusal.
fn failed(file: &Path, error: &Error, refused: Option<Refused<'_>>, as_json: bool) -> Result<Exit, CliError> {
    let exit = if refused.is_some() || error.in_flight() { Exit::Violations } else { Exit::Harness };
    if !as_json {
        let text = text::error(file, error, refused.is_some());
        screen::is_read(io::stderr().lock().write_all(text.as_bytes()))?;
    }
    let text =
        refused.map(|(inspection, choice)| text::refusal(file, inspection, choice)).unwrap_or_default();
    Told { text, json: json::error(file, error, refused), exit }.tell(as_json)
}

/// Whether `error` says no to what was found, and nothing kept the recovery from working.
fn is_refusal(error: &Error, state: State, choice: Option<Choice>) -> bool {
    !matches!(error.code(), Code::Io | Code::RootChanged) && core::plan(state, choice).is_none()
}

fn file_parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let is_named = path.file_name().is_some() && !path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if is_named { Ok(path) } else { Err("expected the path of a session file, which has a name") }
    })
}

fn name_of(file: &Path) -> OsString {
    file.file_name().unwrap_or_default().to_owned()
}
