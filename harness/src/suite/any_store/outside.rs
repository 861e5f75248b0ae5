//! What somebody else puts in place of a session.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::ground::{Appended, Ground, Process, STORE};
use super::{Judged, Outcome, Stop, silent, violated};
use crate::call::{Answer, Call, Refusal, Reply};
use crate::protocol;

pub(super) fn created_twice(ground: &mut Ground<'_>) -> Judged {
    let process = ground.session(2)?;
    drop(process);
    let before = fs::read(ground.path())?;
    let mut other = ground.start()?;
    if other.reply(&ground.create())?.is_ok() {
        return violated("create of a session that is there was acknowledged");
    }
    if fs::read(ground.path())? != before {
        return violated("create of a session that is there was refused, and has changed its file");
    }
    ground.cold_load("loaded after a second create")
}

pub(super) fn replaced(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(1)?;
    let older = fs::read(ground.path())?;
    ground.must_append(&mut process)?;
    ground.must_append(&mut process)?;
    let another = ground.elsewhere();
    fs::write(&another, &older)?;
    fs::rename(&another, ground.path())?;
    go_on(ground, &mut process, Some(&older), "an older copy took its place")
}

pub(super) fn removed(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(3)?;
    fs::remove_file(ground.path())?;
    go_on(ground, &mut process, None, "it was removed")
}

pub(super) fn cut_short(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(3)?;
    let whole = fs::read(ground.path())?;
    let file = fs::OpenOptions::new().write(true).open(ground.path())?;
    file.set_len(whole.len() as u64 / 2)?;
    drop(file);
    go_on(ground, &mut process, Some(&whole[..whole.len() / 2]), "half of it was cut off")
}

/// The next append is refused and leaves what is there alone, or it is acknowledged and everything is there.
fn go_on(ground: &mut Ground<'_>, process: &mut Process, there: Option<&[u8]>, what: &str) -> Judged {
    let appended = ground.append(process)?;
    ground.expect_what_was_acknowledged(&appended, what)?;
    if matches!(appended, Appended::Refused(_)) && fs::read(ground.path()).ok().as_deref() != there {
        return violated(format!("{what}, an append was refused, and what was there has changed"));
    }
    Ok(())
}

/// Puts something at the second path, given a session at the first.
type Put = fn(&Path, &Path) -> io::Result<()>;

pub(super) fn no_regular_file(ground: &mut Ground<'_>) -> Judged {
    let process = ground.session(2)?;
    drop(process);
    let session = ground.elsewhere();
    fs::rename(ground.path(), &session)?;
    let before = fs::read(&session)?;
    let kinds: [(&str, Put); 4] = [
        ("a symbolic link to a session", |session, path| symlink(session, path)),
        ("a symbolic link to nothing", |session, path| symlink(session.with_extension("missing"), path)),
        ("a FIFO", |_, path| Ok(mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?)),
        ("a directory", |_, path| fs::create_dir(path)),
    ];
    for (kind, put) in kinds {
        put(&session, &ground.path())?;
        let mut process = ground.start()?;
        for call in [ground.load(), ground.create()] {
            if process.reply(&call)?.is_ok() {
                return violated(format!("{kind} is in its place, and `{}` was acknowledged", call.name()));
            }
        }
        if fs::read(&session)? != before || session.with_extension("missing").exists() {
            return violated(format!("{kind} is in its place, and what it leads to has changed"));
        }
        match fs::symlink_metadata(ground.path())? {
            is if is.is_dir() => fs::remove_dir(ground.path())?,
            is if is.is_file() => return violated(format!("{kind} was in its place, and is a file now")),
            _ => fs::remove_file(ground.path())?,
        }
    }
    fs::rename(&session, ground.path())?;
    ground.cold_load("loaded from its place again")
}

pub(super) fn another_kind(ground: &mut Ground<'_>) -> Judged {
    let kinds: [(&str, &[u8]); 4] = [
        ("a text", b"Dear diary,\nnothing of this is a session.\n"),
        ("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0"),
        (
            "JSON lines of another program",
            b"{\"level\":\"info\",\"words\":\"started\"}\n{\"level\":\"info\"}\n",
        ),
        ("a JSON document", b"{\n  \"name\": \"package\",\n  \"private\": true\n}\n"),
    ];
    for (kind, bytes) in kinds {
        fs::write(ground.path(), bytes)?;
        let mut process = ground.start()?;
        let loaded = loaded_or_mistaken(&mut process, &ground.load(), kind)?;
        let close = Call::Close { store: STORE.to_owned() };
        if let Ok(answer) = &loaded {
            if answer.entries.iter().flatten().next().is_some() {
                return violated(format!("{kind} was loaded as a session, with entries"));
            }
            process.ok(&close)?;
        }
        if process.reply(&ground.create())?.is_ok() {
            return violated(format!("create where {kind} is was acknowledged"));
        }
        drop(process);
        if fs::read(ground.path())? != bytes {
            return violated(format!("{kind} was opened, and has changed"));
        }
    }
    Ok(())
}

/// What a load of a file of another kind comes to, where entries that lack members tell that it was accepted.
fn loaded_or_mistaken(
    process: &mut Process,
    load: &Call,
    kind: &str,
) -> Result<Result<Answer, Refusal>, Stop> {
    match process.0.call(load) {
        Reply::Ok(answer) => Ok(Ok(answer)),
        Reply::Refused(refusal) => Ok(Err(refusal)),
        Reply::Protocol(what) if protocol::is_of_loaded_entries(&what) => {
            Err(Stop::Outcome(Outcome::Mistaken(format!(
                "the store accepted a file of another kind, {kind}, as a session; {what}"
            ))))
        }
        reply => {
            let said = process.0.said();
            Err(silent(reply, said.as_deref()))
        }
    }
}
