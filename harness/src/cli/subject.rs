//! `subject`: the reference store as a child process that speaks the protocol.

use std::io::{self, BufRead as _, Write as _};

use session_tree::file_ops::OsFileOps;

use super::{CliError, screen};
use crate::call::{Refusal, Reply};
use crate::exit_code::Exit;
use crate::protocol::{self, Capability, FORMAT, Hello, Request, VERSION};
use crate::subject::{InProcess, Subject as _};

/// Answers until the input ends.
pub(super) fn subject() -> Result<Exit, CliError> {
    let mut reference = InProcess::live(OsFileOps::new());
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let Some(answer) = answer(&mut reference, &line?)? else { return Ok(Exit::Harness) };
        let is_read = screen::is_read(output.write_all(answer.as_bytes()).and_then(|()| output.flush()))?;
        if !is_read {
            break;
        }
    }
    Ok(Exit::Holds)
}

/// None where there is none to give: a store that panicked is in no state to go on, and the harness must see that.
fn answer(reference: &mut InProcess<OsFileOps>, line: &str) -> Result<Option<String>, CliError> {
    let answer = match protocol::read_request(line) {
        Ok((id, Request::Hello(_))) => protocol::write_hello(id, &hello()),
        Ok((id, Request::Call(call))) => match reference.call(&call) {
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
