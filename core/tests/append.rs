//! What an append asks, in which order, what it draws and what it leaves behind; on the operating system's files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use session_tree::file_ops::OsFileOps;
use session_tree::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_LINE_BYTES, MAX_SESSION_RECORDS};
use session_tree::{Code, Entry, Errno, Error, Message, Options, Stage, Store};
use tempfile::TempDir;

const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;

/// The line of a root entry of a person's message, with its line feed.
fn line(id: &str, content: &str) -> String {
    format!(
        r#"{{"type":"entry","version":1,"id":"{id}","parentId":null,"timestamp":"t","message":{{"id":"m","role":"user","content":"{content}"}}}}"#
    ) + "\n"
}

/// A session file of the header and these lines, alone in a directory.
fn session(lines: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.jsonl");
    fs::write(&path, format!("{HEADER}\n{lines}")).unwrap();
    (directory, path)
}

/// What the factories will give next, and how often they were asked.
#[derive(Default)]
struct Draws {
    id: Mutex<String>,
    time: Mutex<String>,
    ids: AtomicU32,
    times: AtomicU32,
}

impl Draws {
    fn set(&self, id: &str, time: &str) {
        id.clone_into(&mut self.id.lock().unwrap());
        time.clone_into(&mut self.time.lock().unwrap());
        self.ids.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
    }

    fn counts(&self) -> (u32, u32) {
        (self.ids.load(Ordering::Relaxed), self.times.load(Ordering::Relaxed))
    }
}

fn load(path: &Path) -> (Store, Arc<Draws>) {
    let draws = Arc::new(Draws::default());
    let (for_ids, for_times) = (Arc::clone(&draws), Arc::clone(&draws));
    let options = Options::new()
        .with_ids(move || {
            for_ids.ids.fetch_add(1, Ordering::Relaxed);
            for_ids.id.lock().unwrap().clone()
        })
        .with_clock(move || {
            for_times.times.fetch_add(1, Ordering::Relaxed);
            for_times.time.lock().unwrap().clone()
        });
    (Store::load_with(OsFileOps::new(), path, options).unwrap(), draws)
}

fn refused(answer: session_tree::Result<Entry>) -> Error {
    answer.expect_err("the append succeeded")
}

/// Bytes of an entry's line with an empty content, without its line feed.
fn bytes_around_content(id: &str) -> usize {
    line(id, "").len() - 1
}

// Requirement: S5, R4, R5, L5
#[test]
fn the_checks_of_an_append_come_in_their_order() {
    let (_directory, path) = session(&line("a", "x"));
    let (store, draws) = load(&path);
    let orphan = || Message::tool_result("m", "c", "n", "x".repeat(MAX_SESSION_LINE_BYTES), false);
    let long = || Message::user("m", "x".repeat(MAX_SESSION_LINE_BYTES));
    // Each step mends the first failure of the one before; the last number says how many ids and times were drawn.
    let steps = [
        (Some("nobody"), " ", "", Message::user("", ""), Code::InvalidMessage, (0, 0)),
        (Some("nobody"), " ", "", orphan(), Code::ParentNotFound, (0, 0)),
        (Some(" "), " ", "", orphan(), Code::ParentNotFound, (0, 0)),
        (Some("a"), " ", "", orphan(), Code::InvalidRecord, (1, 0)),
        (Some("a"), "a", "", orphan(), Code::DuplicateEntryId, (1, 0)),
        (Some("a"), "b", "", orphan(), Code::InvalidRecord, (1, 1)),
        (Some("a"), "b", "t", orphan(), Code::InvalidToolLinkage, (1, 1)),
        (Some("a"), "b", "t", long(), Code::LineTooLarge, (1, 1)),
    ];
    let before = fs::read(&path).unwrap();
    for (step, (parent, id, time, message, code, drawn)) in steps.into_iter().enumerate() {
        draws.set(id, time);
        assert_eq!(refused(store.append(parent, message)).code(), code, "step {step}");
        assert_eq!(draws.counts(), drawn, "step {step}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(store.entries().len(), 1);
    }
    draws.set("b", "t");
    store.append(Some("a"), Message::user("m", "x")).unwrap();
    assert_eq!(draws.counts(), (1, 1));
}

// Requirement: S5, S4
#[test]
fn the_file_is_looked_at_before_the_parent_and_before_anything_is_drawn() {
    let (_directory, path) = session(&line("a", "x"));
    let (store, draws) = load(&path);
    draws.set("b", "t");
    fs::write(&path, format!("{HEADER}\n")).unwrap();
    let error = refused(store.append(Some("nobody"), Message::user("m", "x")));
    assert_eq!((error.code(), error.stage()), (Code::FileChanged, Some(Stage::C1)));
    assert_eq!(draws.counts(), (0, 0));
}

// Requirement: S5, F7
#[test]
fn the_last_entry_that_fits_is_taken_and_the_limit_of_entries_comes_before_the_parent() {
    let lines: String = (0..MAX_SESSION_RECORDS - 1).map(|number| line(&number.to_string(), "x")).collect();
    let (_directory, path) = session(&lines);
    let (store, draws) = load(&path);
    draws.set("last", "t");
    store.append(Some("0"), Message::user("m", "x")).unwrap();
    draws.set("beyond", "t");
    let error = refused(store.append(Some("nobody"), Message::user("m", "x")));
    assert_eq!((error.code(), draws.counts()), (Code::RecordLimit, (0, 0)));
    assert_eq!(Store::load(&path).unwrap().entries().len(), MAX_SESSION_RECORDS);
}

// Requirement: F7, S5
#[test]
fn a_line_of_exactly_the_limit_is_appended_and_a_longer_one_is_not() {
    let (_directory, path) = session("");
    let (store, draws) = load(&path);
    let room = MAX_SESSION_LINE_BYTES - bytes_around_content("a");
    draws.set("a", "t");
    let error = refused(store.append(None, Message::user("m", "x".repeat(room + 1))));
    assert_eq!(error.code(), Code::LineTooLarge);
    store.append(None, Message::user("m", "x".repeat(room))).unwrap();
    assert_eq!(Store::load(&path).unwrap().entries().len(), 1);
}

// Requirement: F7, S5
#[test]
fn a_file_of_exactly_the_limit_is_written_and_a_longer_one_is_not() {
    // As many lines of one length as leave room for one more that is not too long.
    let mut lines = String::new();
    for number in 0.. {
        if MAX_SESSION_FILE_BYTES - HEADER.len() - 1 - lines.len() < MAX_SESSION_LINE_BYTES {
            break;
        }
        lines += &line(&format!("{number:04}"), &"x".repeat(60_000));
    }
    let room = MAX_SESSION_FILE_BYTES - HEADER.len() - 1 - lines.len() - line("a", "").len();
    let (_directory, path) = session(&lines);
    let (store, draws) = load(&path);
    draws.set("a", "t");
    let error = refused(store.append(None, Message::user("m", "x".repeat(room + 1))));
    assert_eq!(error.code(), Code::FileTooLarge);
    store.append(None, Message::user("m", "x".repeat(room))).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), MAX_SESSION_FILE_BYTES as u64);
    Store::load(&path).unwrap();
}

// Requirement: S5
#[test]
fn an_id_that_a_refused_append_drew_is_never_given_again() {
    let (_directory, path) = session(&line("a", "x"));
    let mut next = 0..;
    let options = Options::new().with_ids(move || format!("id-{}", next.next().unwrap_or(0)));
    let store = Store::load_with(OsFileOps::new(), &path, options).unwrap();
    let orphan = Message::tool_result("m", "c", "n", "", false);
    assert_eq!(refused(store.append(Some("a"), orphan)).code(), Code::InvalidToolLinkage);
    let long = Message::user("m", "x".repeat(MAX_SESSION_LINE_BYTES));
    assert_eq!(refused(store.append(Some("a"), long)).code(), Code::LineTooLarge);
    assert_eq!(store.append(Some("a"), Message::user("m", "x")).unwrap().id(), "id-2");
}

// Requirement: S9
#[test]
fn a_panic_of_a_factory_is_an_error_and_the_store_goes_on() {
    let (_directory, path) = session("");
    let calls = AtomicU32::new(0);
    let options = Options::new().with_ids(move || {
        // Without a message and a backtrace on standard error.
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            std::panic::resume_unwind(Box::new("no id"));
        }
        "a".to_owned()
    });
    let store = Store::load_with(OsFileOps::new(), &path, options).unwrap();
    assert_eq!(refused(store.append(None, Message::user("m", "x"))).code(), Code::FactoryFailed);
    assert_eq!(store.append(None, Message::user("m", "x")).unwrap().id(), "a");
}

// Requirement: S6, F5
#[test]
fn a_flush_leaves_the_canonical_form_without_the_torn_tail() {
    let (_directory, path) = session(&(line("a", "x").replace(':', ": ") + "{\"torn"));
    let (store, _) = load(&path);
    store.flush().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADER}\n{}", line("a", "x")));
    assert_eq!(store.torn_tail(), 0);
}

// Requirement: S7
#[test]
fn a_snapshot_does_not_see_a_later_append() {
    let (_directory, path) = session(&line("a", "x"));
    let (store, draws) = load(&path);
    let snapshot = store.entries();
    draws.set("b", "t");
    store.append(Some("a"), Message::user("m", "x")).unwrap();
    assert_eq!((snapshot.len(), store.entries().len()), (1, 2));
}

// Requirement: S1
#[test]
fn the_name_of_a_new_session_leaves_room_for_the_longest_sibling() {
    let directory = tempfile::tempdir().unwrap();
    let longest_sibling = ".pify-session-restore-4294967295-00000000-0000-0000-0000-000000000000".len();
    let room = 255 - longest_sibling;
    let error = Store::create(directory.path().join("n".repeat(room + 1))).unwrap_err();
    assert_eq!((error.code(), error.errno()), (Code::Io, Some(Errno::ENAMETOOLONG)));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    Store::create(directory.path().join("n".repeat(room))).unwrap();
}
