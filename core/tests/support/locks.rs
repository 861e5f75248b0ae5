//! Workers that hold locks, or that must not hold any.

use std::fs::File;
use std::path::Path;
use std::{fs, io};

use session_tree::{Errno, Message, Options, Store};

use super::altered::{AlteredOps, Call};
use super::worker::{arguments, listen, say};

/// The role `append-and-stay`: one append, acknowledged, refused or left in doubt, whose answer it says; then the store stays open
/// until the worker is told to go.
pub(crate) fn append_and_stay() {
    let arguments = arguments();
    let [path, how] = &arguments[..] else { panic!("{arguments:?}") };
    let in_doubt = how == "in-doubt";
    let ops = AlteredOps::witnessed(move |call| {
        (in_doubt && matches!(call, Call::Rename | Call::Unlink)).then_some(Errno::EIO)
    });
    let store = Store::load_with(ops, path, Options::new()).unwrap();
    let parent = (how == "refused").then_some("nobody");
    match store.append(parent, Message::user("m", "text")) {
        Ok(_) => say("acknowledged"),
        Err(error) => say(error.code().as_str()),
    }
    listen();
    drop(store);
}

/// The role `hold`: locks a file exclusively and says so; when told, removes the file and gives the lock back.
pub(crate) fn hold() {
    let arguments = arguments();
    let [path] = &arguments[..] else { panic!("{arguments:?}") };
    let file = File::open(path).unwrap();
    file.lock().unwrap();
    say("held");
    listen();
    // A worker that is not told but left alone ends here too; its starter is gone and does not look.
    fs::remove_file(path).unwrap();
    drop(file);
}

/// Whether this process gets the exclusive lock of a file at once.
pub(crate) fn is_free(path: &Path) -> bool {
    match File::open(path).unwrap().try_lock() {
        Ok(()) => true,
        Err(fs::TryLockError::WouldBlock) => false,
        Err(fs::TryLockError::Error(error)) => {
            let error: io::Error = error;
            panic!("{}: {error}", path.display())
        }
    }
}
