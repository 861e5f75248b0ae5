//! What options take.

use std::env;
use std::time::Duration;

use crate::crash::{Profile, UnknownProfile};
use crate::subject::command::{Command, CommandError};
use crate::subject::{self, Candidate, UnknownSubject};

/// A time such as `60s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let number: u64 = number.parse().map_err(|_| "expected a time such as 60s or 5m".to_owned())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        "h" => Ok(Duration::from_secs(number.saturating_mul(3_600))),
        _ => Err("expected a time such as 60s or 5m".to_owned()),
    }
}

/// A store by its name.
pub(super) fn candidate(name: &str) -> Result<&'static dyn Candidate, UnknownSubject> {
    subject::named(name)
}

/// A store under test.
#[derive(Debug, Clone)]
pub(super) enum Chosen {
    /// One in this process.
    Here(&'static dyn Candidate),
    /// One behind the protocol.
    Behind(Command),
    /// SQLite, in this process.
    #[cfg(feature = "sqlite")]
    Sqlite,
}

/// The text names no store that this build can test.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChosenError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[cfg(not(feature = "sqlite"))]
    #[error("this build has no SQLite: build it with the feature `sqlite`, which needs a C compiler")]
    NoSqlite,
}

/// A store by its name, else by the command that starts it.
pub(super) fn subject(text: &str) -> Result<Chosen, ChosenError> {
    if text == "sqlite" {
        return sqlite();
    }
    match subject::named(text) {
        Ok(candidate) => Ok(Chosen::Here(candidate)),
        Err(_) => Ok(Chosen::Behind(command(text)?)),
    }
}

#[cfg(feature = "sqlite")]
#[expect(clippy::unnecessary_wraps, reason = "a build without SQLite has none to give")]
fn sqlite() -> Result<Chosen, ChosenError> {
    Ok(Chosen::Sqlite)
}

#[cfg(not(feature = "sqlite"))]
fn sqlite() -> Result<Chosen, ChosenError> {
    Err(ChosenError::NoSqlite)
}

/// A command, with the files of the present directory.
pub(super) fn command(text: &str) -> Result<Command, CommandError> {
    // Without a present directory there is nothing to look words up in.
    Command::parse(text, &env::current_dir().unwrap_or_default())
}

/// A persistence profile by its name.
pub(super) fn profile(text: &str) -> Result<Profile, UnknownProfile> {
    text.parse()
}
