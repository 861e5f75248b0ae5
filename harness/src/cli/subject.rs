//! `subject`: a store of this tool as a child process that speaks the protocol.

use std::io::{self, BufRead as _, Write as _};

use clap::{Args, ValueEnum};
use session_tree::file_ops::OsFileOps;

use super::{CliError, screen};
use crate::call::{Refusal, Reply};
use crate::exit_code::Exit;
use crate::protocol::{self, Capability, FORMAT, Hello, Request, VERSION};
#[cfg(feature = "sqlite")]
use crate::subject::sqlite::{self, Sqlite};
use crate::subject::{self, InProcess};

#[derive(Debug, Args)]
pub(super) struct Subject {
    /// Which store.
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Which::Reference)]
    store: Which,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The reference.
    Reference,
    /// SQLite with `synchronous=FULL`, of a format of its own.
    #[cfg(feature = "sqlite")]
    Sqlite,
}

/// Answers until the input ends.
pub(super) fn subject(options: &Subject) -> Result<Exit, CliError> {
    let (hello, mut store): (Hello, Box<dyn subject::Subject>) = match options.store {
        Which::Reference => (hello(), Box::new(InProcess::live(OsFileOps::new()))),
        #[cfg(feature = "sqlite")]
        Which::Sqlite => (sqlite::hello(), Box::new(Sqlite::default())),
    };
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let Some(answer) = answer(&hello, store.as_mut(), &line?)? else { return Ok(Exit::Harness) };
        let is_read = screen::is_read(output.write_all(answer.as_bytes()).and_then(|()| output.flush()))?;
        if !is_read {
            break;
        }
    }
    Ok(Exit::Holds)
}

/// None where there is none to give: a store that panicked is in no state to go on, and the harness must see that.
fn answer(hello: &Hello, store: &mut dyn subject::Subject, line: &str) -> Result<Option<String>, CliError> {
    let answer = match protocol::read_request(line) {
        Ok((id, Request::Hello(_))) => protocol::write_hello(id, hello),
        Ok((id, Request::Call(call))) => match store.call(&call) {
            Reply::Panicked(_) => return Ok(None),
            reply => protocol::write_reply(id, &reply),
        },
        Err(bad) => match bad.id {
            Some(id) => protocol::write_reply(id, &Reply::Refused(Refusal::usage(bad.to_string()))),
            None => return Err(CliError::BadRequest(bad)),
        },
    };
    Ok(Some(answer.map_err(io::Error::from)?))
}

/// What the reference says of itself.
fn hello() -> Hello {
    Hello {
        protocol: VERSION,
        name: "reference".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        language: "Rust".to_owned(),
        format: FORMAT.to_owned(),
        capabilities: Capability::ALL.map(|capability| capability.name().to_owned()).to_vec(),
    }
}
