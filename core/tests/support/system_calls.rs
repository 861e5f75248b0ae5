//! What the kernel sees of one append, by `strace`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use session_tree::{Message, Options, Store};

use super::altered::{AlteredOps, Call};
use super::worker::{self, arguments, say};

/// Looked at just before and just after the append, so that both show in the trace.
const BEGIN: &str = "the-append-begins-here";
const END: &str = "the-append-ends-here";

/// Calls on descriptors or names that are no business of the boundary: a close is shown by the boundary only where
/// its answer counts, memory maps are the allocator's, and the standard library asks for the flags of a descriptor that it is
/// about to close.
const NOT_COMPARED: [&str; 6] = ["close", "mmap", "munmap", "mremap", "brk", "fcntl"];

/// One append as the boundary showed it and as the kernel saw it.
pub(crate) struct Trace {
    /// System calls in the order of the boundary's methods.
    pub(crate) promised: Vec<String>,
    /// System calls in the order of the trace.
    pub(crate) seen: Vec<Seen>,
}

/// A line of the trace.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    /// As the tracer writes them, with the path of each descriptor.
    pub(crate) arguments: String,
    pub(crate) answer: i64,
}

/// Why there is no trace to look at, where the tracer is missing or must not trace.
pub(crate) fn why_not() -> Option<String> {
    let probe = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match probe {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("strace cannot trace here: {status}")),
        Err(error) => Some(format!("strace cannot be started: {error}")),
    }
}

/// Appends once to the session at `path` in a traced process.
pub(crate) fn trace_one_append(path: &Path) -> Trace {
    let output = tempfile::NamedTempFile::new().unwrap();
    let prefix = ["strace", "-f", "-y", "-s", "0", "-e", "trace=%file,%desc", "-o"].map(OsStr::new);
    let prefix: Vec<&OsStr> = prefix.into_iter().chain([output.path().as_os_str()]).collect();
    let done =
        worker::command(&prefix, "append-once", &[path.as_os_str()]).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{}", done.status);
    let promised = String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect();
    Trace { promised, seen: between_the_marks(&fs::read_to_string(output.path()).unwrap()) }
}

fn between_the_marks(trace: &str) -> Vec<Seen> {
    let after = trace.lines().skip_while(|line| !line.contains(BEGIN)).skip(1);
    after.take_while(|line| !line.contains(END)).filter_map(parse).collect()
}

/// `1234 fsync(3</a/b>)   = 0`, unless it is a call that is not compared.
fn parse(line: &str) -> Option<Seen> {
    let call = line.split_once(' ').map_or(line, |(_process, call)| call).trim_start();
    let (call, answer) = call.rsplit_once(" = ").unwrap_or_else(|| panic!("not a whole call: {line}"));
    let (name, arguments) = call.split_once('(').unwrap_or_else(|| panic!("not a call: {line}"));
    if NOT_COMPARED.contains(&name) {
        return None;
    }
    let number = answer.split(['<', ' ']).next().unwrap_or_default();
    Some(Seen {
        // The later forms with further flags do the same where no flag is given.
        name: name.trim_end_matches('2').to_owned(),
        arguments: arguments.trim_end().to_owned(),
        answer: number.parse().unwrap_or_else(|_| panic!("no number: {line}")),
    })
}

/// The role `append-once`: says which system calls the boundary's methods promise, in order.
pub(crate) fn append_once() {
    let arguments = arguments();
    let [path] = &arguments[..] else { panic!("{arguments:?}") };
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let log = Arc::clone(&calls);
    let ops = AlteredOps::witnessed(move |call| {
        log.lock().unwrap().push(call);
        None
    });
    let store = Store::load_with(ops, path, Options::new()).unwrap();
    calls.lock().unwrap().clear();
    let _ = fs::read_link(BEGIN);
    store.append(None, Message::user("m", "text")).unwrap();
    let _ = fs::read_link(END);
    let calls = calls.lock().unwrap();
    for name in calls.iter().filter_map(|call| call.system_call()) {
        if !NOT_COMPARED.contains(&name) {
            say(name);
        }
    }
}
