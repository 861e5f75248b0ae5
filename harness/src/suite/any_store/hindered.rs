//! Appends that fail for a cause outside of the store: no room, no right to write, a limit of a file's size. Each fault is
//! put by the harness and seen to be there; an append that it does not stop is held to what it acknowledges.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::ground::{Appended, Ground, Process, STORE, told};
use super::life::{active_leaf, goes_on, tree_append, with_tree};
use super::{CheckError, Judged, Stop, small_disk, unsupported, violated};
use crate::call::{Call, Refusal};
use crate::diagnose::harmless;
use crate::subject::command::Manner;

/// What a limit of a file's size comes to.
const BEYOND_THE_LIMIT: &str = "a file may grow by half of the next record alone";

/// A user without rights of its own: `nobody`, where that name exists.
const NOBODY: u32 = 65_534;

pub(super) fn file_size_limit(ground: &mut Ground<'_>) -> Judged {
    ground.manner = Manner::IgnoringFileSizeSignal;
    let mut process = ground.session(2)?;
    let before = file_size(ground)?;
    must_append_large(ground, &mut process)?;
    limit_file_size(&process, Some(within_the_next(ground, before)?))?;
    let appended = ground.append_large(&mut process)?;
    expect_memory(ground, &mut process, "the entries after an append beyond the limit of a file's size")?;
    limit_file_size(&process, None)?;
    expect_struck(ground, &appended, BEYOND_THE_LIMIT)?;
    goes_on(ground, &mut process)
}

pub(super) fn file_size_limit_of_a_tree(ground: &mut Ground<'_>) -> Judged {
    ground.manner = Manner::IgnoringFileSizeSignal;
    let mut process = with_tree(ground)?;
    let before = file_size(ground)?;
    must_tree_append_large(ground, &mut process)?;
    let leaf = active_leaf(&mut process)?;
    let message = ground.large_message();
    limit_file_size(&process, Some(within_the_next(ground, before)?))?;
    let reply = process.reply(&tree_append(&message))?;
    limit_file_size(&process, None)?;
    if let Ok(answer) = reply {
        ground.acknowledge(answer, leaf.as_deref(), &message)?;
        return expect_struck(ground, &Appended::Acknowledged, BEYOND_THE_LIMIT);
    }
    let message = ground.message();
    let Ok(answer) = process.reply(&tree_append(&message))? else {
        // It may ask to be opened again.
        return ground.cold_load("loaded after a failed append");
    };
    let Some(entry) = answer.entry.clone() else { return violated("an acknowledged append gives no entry") };
    if entry.parent_id != leaf {
        return violated(format!(
            "an append failed, and the next one was acknowledged below {:?}, which nothing acknowledged: its parent is \
             not on disk; the leaf was {leaf:?}",
            entry.parent_id
        ));
    }
    ground.acknowledge(answer, leaf.as_deref(), &message)?;
    ground.cold_load("loaded after the append that followed a failed one")
}

pub(super) fn full_disk(ground: &mut Ground<'_>) -> Judged {
    small_disk::within(ground, |ground| {
        let mut process = ground.session(2)?;
        must_append_large(ground, &mut process)?;
        let ballast = Ballast::fill(&ground.root())?;
        let appended = ground.append_large(&mut process)?;
        expect_memory(ground, &mut process, "the entries after an append to a full disk")?;
        ballast.remove()?;
        expect_struck(ground, &appended, "there is no room")?;
        goes_on(ground, &mut process)
    })
}

pub(super) fn full_disk_next_append(ground: &mut Ground<'_>) -> Judged {
    small_disk::within(ground, |ground| {
        let mut process = ground.session(2)?;
        must_append_large(ground, &mut process)?;
        let ballast = Ballast::fill(&ground.root())?;
        let appended = ground.append_large(&mut process)?;
        ballast.remove()?;
        expect_struck(ground, &appended, "there is no room")?;
        ground.must_append(&mut process)?;
        let whence =
            "loaded after a full disk, and an append that was acknowledged when there was room again";
        let mut other = ground.start()?;
        let shown = ground.loaded(&mut other, whence)?;
        ground.expect_all(&shown, whence)
    })
}

pub(super) fn full_disk_at_create(ground: &mut Ground<'_>) -> Judged {
    small_disk::within(ground, |ground| {
        let ballast = Ballast::fill(&ground.root())?;
        let mut process = ground.start()?;
        let created = process.reply(&ground.create())?;
        if created.is_ok() {
            // Of a user first: some stores write nothing before the assistant has answered.
            let first = ground.append(&mut process)?;
            let second = ground.append(&mut process)?;
            if matches!((first, second), (Appended::Acknowledged, Appended::Acknowledged)) {
                ballast.remove()?;
                return ground.cold_load("created and appended to where there is no room");
            }
        }
        ballast.remove()?;
        let whence = "there was no room for a new session, and there is again";
        if created.is_ok() {
            let Appended::Refused(refusal) = ground.append(&mut process)? else {
                return ground.cold_load(whence);
            };
            return violated(format!(
                "{whence}: the process that created it is refused with {}",
                told(&refusal)
            ));
        }
        let mut process = ground.start()?;
        if let Err(create) = process.reply(&ground.create())?
            && let Err(load) = process.reply(&ground.load())?
        {
            return violated(format!(
                "{whence}: neither `create` nor `load` takes what is at the path: {}; {}",
                told(&create),
                told(&load)
            ));
        }
        ground.must_append(&mut process)?;
        ground.cold_load(whence)
    })
}

pub(super) fn read_only_disk(ground: &mut Ground<'_>) -> Judged {
    small_disk::within(ground, |ground| {
        let mut process = ground.session(2)?;
        let root = ground.root();
        if !small_disk::set_read_only(&root, true)? {
            // It holds its file open for writing.
            process.ok(&Call::Close { store: STORE.to_owned() })?;
            if !small_disk::set_read_only(&root, true)? {
                return unsupported("it keeps a file open for writing when it is closed");
            }
            if process.reply(&ground.load())?.is_err() {
                small_disk::set_read_only(&root, false)?;
                return ground.cold_load("loaded from a disk that was read-only");
            }
        }
        if access(&root, Access::WRITE_OK).is_ok() {
            return not_struck("the file system is not read-only");
        }
        let appended = ground.append(&mut process)?;
        expect_memory(ground, &mut process, "the entries after an append to a read-only disk")?;
        if matches!(appended, Appended::Acknowledged) {
            return violated("an append to a read-only disk was acknowledged");
        }
        small_disk::set_read_only(&root, false)?;
        goes_on(ground, &mut process)
    })
}

pub(super) fn unwritable_directory(ground: &mut Ground<'_>) -> Judged {
    if geteuid().is_root() {
        ground.manner = Manner::User(NOBODY);
        ground.give_to(NOBODY)?;
    }
    let mut process = ground.session(2)?;
    let root = ground.root();
    fs::set_permissions(&root, Permissions::from_mode(0o500))?;
    let appended = ground.append_large(&mut process)?;
    let shown = process.entries()?;
    fs::set_permissions(&root, Permissions::from_mode(0o700))?;
    ground.expect_all(&shown, "the entries after an append in a directory that cannot be written")?;
    expect_struck(ground, &appended, "no name in its directory may change")?;
    goes_on(ground, &mut process)
}

pub(super) fn replaced_directory(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(2)?;
    fs::rename(ground.root(), ground.elsewhere())?;
    fs::create_dir(ground.root())?;
    let appended = ground.append(&mut process)?;
    let shown = process.entries()?;
    ground.expect_all(&shown, "the entries after an append in another directory")?;
    ground.expect_what_was_acknowledged(&appended, "another directory took the place of its own")?;
    if let Some(stranger) = fs::read_dir(ground.root())?.next() {
        let name = harmless::path(&stranger?.path());
        return violated(format!(
            "a refused append has made {name} in a directory that is not the session's"
        ));
    }
    fs::remove_dir(ground.root())?;
    fs::rename(ground.elsewhere(), ground.root())?;
    goes_on(ground, &mut process)
}

impl Ground<'_> {
    /// Makes the session's directory another user's.
    fn give_to(&self, user: u32) -> io::Result<()> {
        if let Some(above) = self.root().parent() {
            fs::set_permissions(above, Permissions::from_mode(0o711))?;
        }
        chown(self.root(), Some(user), Some(user))?;
        fs::set_permissions(self.root(), Permissions::from_mode(0o700))
    }
}

/// That a message of this size is no reason to refuse.
fn must_append_large(ground: &mut Ground<'_>, process: &mut Process) -> Judged {
    match ground.append_large(process)? {
        Appended::Acknowledged => Ok(()),
        Appended::Refused(refusal) => refuses_large(&refusal),
    }
}

/// As [`must_append_large`], at the leaf of the tree.
fn must_tree_append_large(ground: &mut Ground<'_>, process: &mut Process) -> Judged {
    let leaf = active_leaf(process)?;
    let message = ground.large_message();
    match process.reply(&tree_append(&message))? {
        Ok(answer) => ground.acknowledge(answer, leaf.as_deref(), &message),
        Err(refusal) => refuses_large(&refusal),
    }
}

fn refuses_large(refusal: &Refusal) -> Judged {
    unsupported(format!("it refuses a message of 30 KB where there is room: {}", told(refusal)))
}

/// That the open session shows nothing but what was acknowledged.
fn expect_memory(ground: &Ground<'_>, process: &mut Process, whence: &str) -> Judged {
    let shown = process.entries()?;
    ground.expect_all(&shown, whence)
}

/// Of an append that the fault did not stop: what was acknowledged must be there, and then nothing can be said of failures.
fn expect_struck(ground: &mut Ground<'_>, appended: &Appended, fault: &str) -> Judged {
    ground.expect_what_was_acknowledged(appended, fault)?;
    match appended {
        Appended::Refused(_) => Ok(()),
        Appended::Acknowledged => {
            unsupported(format!("it needs nothing of what was taken away: {fault}, and its append is there"))
        }
    }
}

fn not_struck<T>(what: &str) -> Result<T, Stop> {
    Err(Stop::Error(CheckError::NotStruck(what.to_owned())))
}

/// A limit within the next large record, where the last one began at `before`: the write of a log is cut short first, and
/// only what is written after that fails.
fn within_the_next(ground: &Ground<'_>, before: u64) -> io::Result<u64> {
    let now = file_size(ground)?;
    Ok(now + now.saturating_sub(before) / 2)
}

/// Bytes of the largest file beside the session, itself included.
fn file_size(ground: &Ground<'_>) -> io::Result<u64> {
    let mut largest = 0;
    for entry in fs::read_dir(ground.root())? {
        largest = largest.max(entry?.metadata()?.len());
    }
    Ok(largest)
}

/// Sets the limit of a file's size in every process of a store, or takes it away.
#[cfg(target_os = "linux")]
fn limit_file_size(process: &Process, limit: Option<u64>) -> Judged {
    use rustix::process::{Resource, Rlimit, prlimit};

    let processes = process.0.processes();
    if processes.is_empty() {
        return unsupported("a limit of a file's size takes a process of its own");
    }
    for id in processes {
        // The hard limit stays, so that the soft one can be raised again.
        let set = |current| {
            let unchanged = prlimit(Some(id), Resource::Fsize, Rlimit { current, maximum: None })?;
            Ok::<_, io::Error>(unchanged)
        };
        set(limit)?;
        if set(limit)?.current != limit {
            return not_struck("the limit of a file's size was not taken");
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn limit_file_size(_process: &Process, _limit: Option<u64>) -> Judged {
    unsupported("SKIPPED: to limit the files of a running process takes Linux")
}

/// A file that takes all the room there is.
struct Ballast(PathBuf);

impl Ballast {
    fn fill(root: &Path) -> Result<Ballast, Stop> {
        let path = root.join("ballast");
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        loop {
            match file.write(&[0; 4_096]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(error.into()),
            }
        }
        let proof = root.join("proof");
        let is_full = File::create_new(&proof)?.write(b"x").is_err();
        fs::remove_file(&proof)?;
        if is_full { Ok(Ballast(path)) } else { not_struck("the disk is not full") }
    }

    fn remove(self) -> io::Result<()> {
        fs::remove_file(self.0)
    }
}
