//! The store on a real directory: create, load, append, flush, and what others do behind its back.

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use session_tree::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_LINE_BYTES, MAX_SESSION_RECORDS};
use session_tree::{Code, Errno, Message, Options, Stage, Store};

use support::scripted::{Op, Role, ScriptedOps, What, at};
use support::{Fixture, NAME, ids, inode_of, mode_of, options, refused, scripted_texts, set_mode, user};

const HEADER: &str = "{\"type\":\"session\",\"version\":1,\"id\":\"s\",\"createdAt\":\"t-1\"}\n";

fn line(id: &str, parent: Option<&str>, content: &str) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
    format!(
        "{{\"type\":\"entry\",\"version\":1,\"id\":\"{id}\",\"parentId\":{parent},\"timestamp\":\"t\",\
         \"message\":{{\"id\":\"m\",\"role\":\"user\",\"content\":\"{content}\"}}}}\n"
    )
}

/// A canonical file of `entries` roots `e-1` and so on that has exactly `bytes` bytes.
fn file_of(entries: usize, bytes: usize) -> String {
    let mut file = HEADER.to_owned();
    for number in 1..=entries {
        let id = format!("e-{number}");
        // What is left is shared by what is to come.
        let share = (bytes - file.len()) / (entries - number + 1);
        let padding = share - line(&id, None, "").len();
        file.push_str(&line(&id, None, &"x".repeat(padding)));
    }
    assert_eq!(file.len(), bytes);
    file
}

/// A fixture whose session has these bytes.
fn with_file(bytes: &[u8]) -> Fixture {
    let fixture = Fixture::new();
    fs::write(fixture.path(), bytes).unwrap();
    fixture
}

/// Puts something that is not a regular file at a path.
type Make = fn(&Path);

const FOREIGN: [(&str, Make); 5] = [
    ("directory", |path| fs::create_dir(path).unwrap()),
    ("symlink", |path| {
        let target = path.with_file_name("target");
        fs::write(&target, HEADER).unwrap();
        symlink(target, path).unwrap();
    }),
    ("dangling symlink", |path| symlink("nowhere", path).unwrap()),
    ("FIFO", |path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }),
    ("socket", |path| drop(UnixListener::bind(path).unwrap())),
];

#[test]
fn by_default_ids_are_uuids_and_times_are_the_clocks_in_milliseconds() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(directory.path().join(NAME)).unwrap();
    let entry = store.append(None, user("m")).unwrap();
    let header = store.header();
    assert_ne!(header.id(), entry.id());
    for id in [header.id(), entry.id()] {
        assert_eq!(id.len(), 36, "{id}");
        assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'), "{id}");
    }
    for time in [header.created_at(), entry.timestamp()] {
        let shape: String = time.chars().map(|char| if char.is_ascii_digit() { '0' } else { char }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{time}");
    }
}

// Requirement: S7
#[test]
fn an_entry_is_found_by_its_id_and_is_the_one_of_every_snapshot_of_its_store() {
    let (fixture, store) = Fixture::with_entries(2);
    let entry = store.entry("e-2").unwrap();
    assert!(entry.ptr_eq(&store.entries()[1]));
    assert!(!entry.ptr_eq(&store.entries()[0]));
    assert!(store.entry("e-3").is_none());
    let again = fixture.load().unwrap().entry("e-2").unwrap();
    assert_eq!(again, entry);
    assert!(!again.ptr_eq(&entry), "two stores do not share entries");
}

// Requirement: S2, S3
#[test]
fn a_name_alone_is_looked_for_in_the_working_directory() {
    let error = refused(Store::load("no-such-session.jsonl"), Code::Io);
    assert_eq!((error.errno(), error.stage()), (Some(Errno::ENOENT), Some(Stage::V3)), "{error}");
}

// Requirement: S1, R1, F8
#[test]
fn a_new_session_is_one_canonical_header_line_of_mode_0600() {
    let fixture = Fixture::new();
    let store = fixture.create().unwrap();
    assert_eq!(fixture.bytes(), HEADER.as_bytes());
    assert_eq!(mode_of(&fixture.path()), 0o600);
    assert!(fixture.is_tidy());
    assert_eq!((store.header().id(), store.header().created_at()), ("s", "t-1"));
    assert!(store.entries().is_empty());
    assert_eq!(store.path(), fixture.path());
}

// Requirement: S1, S9
#[test]
fn create_draws_one_time_and_no_entry_id() {
    let fixture = Fixture::new();
    let options = Options::new()
        .with_ids(scripted_texts(&["first"]))
        .with_clock(scripted_texts(&["created", "appended"]));
    let store = Store::create_with(ScriptedOps::new(), fixture.path(), options).unwrap();
    assert_ne!(store.header().id(), "first");
    assert!(!store.header().id().is_empty());
    assert_eq!(store.header().created_at(), "created");
    let entry = store.append(None, user("m-1")).unwrap();
    assert_eq!((entry.id(), entry.timestamp()), ("first", "appended"));
}

// Requirement: S1
#[test]
fn create_refuses_whatever_has_the_path() {
    for (kind, make) in FOREIGN {
        let fixture = Fixture::new();
        make(&fixture.path());
        let (names, inode) = (fixture.names(), inode_of(&fixture.path()));
        let error = refused(fixture.create(), Code::AlreadyExists);
        assert_eq!(error.stage(), Some(Stage::K1), "{kind}");
        assert_eq!((fixture.names(), inode_of(&fixture.path())), (names, inode), "{kind}");
    }
    let fixture = with_file(b"");
    refused(fixture.create(), Code::AlreadyExists);
    assert_eq!(fixture.bytes(), b"");
}

// Requirement: S1, S2, S3
#[test]
fn root_comes_before_marker_and_marker_before_path() {
    for missing in [true, false] {
        let fixture = Fixture::new();
        fs::write(fixture.marker(), "").unwrap();
        if !missing {
            fs::write(fixture.path(), HEADER).unwrap();
        }
        for error in
            [refused(fixture.create(), Code::RollbackFailed), refused(fixture.load(), Code::RollbackFailed)]
        {
            assert_eq!(error.path(), Some(&*fixture.marker()));
            assert!(!error.in_flight());
        }
        fs::rename(fixture.dir(), fixture.outside("aside")).unwrap();
        symlink(fixture.outside("aside"), fixture.dir()).unwrap();
        refused(fixture.create(), Code::RootChanged);
        refused(fixture.load(), Code::RootChanged);
    }
}

// Requirement: S1, S2
#[test]
fn a_marker_of_any_kind_is_refused() {
    for (kind, make) in FOREIGN {
        let fixture = with_file(HEADER.as_bytes());
        make(&fixture.marker());
        let error = refused(fixture.load(), Code::RollbackFailed);
        assert_eq!(error.stage(), Some(Stage::V2), "{kind}");
        fs::remove_file(fixture.path()).unwrap();
        refused(fixture.create(), Code::RollbackFailed);
    }
}

// Requirement: S3
#[test]
fn the_parent_must_be_a_directory_and_no_symlink() {
    for open in [create_at, load_at] {
        let fixture = Fixture::new();
        let error = refused(open(&fixture.outside("missing").join(NAME)), Code::Io);
        assert_eq!(error.errno(), Some(Errno::ENOENT));
        fs::write(fixture.outside("file"), "").unwrap();
        refused(open(&fixture.outside("file").join(NAME)), Code::RootChanged);
        let error = refused(open(&fixture.outside("file").join("deeper").join(NAME)), Code::Io);
        assert_eq!(error.errno(), Some(Errno::ENOTDIR));
        symlink(fixture.dir(), fixture.outside("link")).unwrap();
        refused(open(&fixture.outside("link").join(NAME)), Code::RootChanged);
        symlink("nowhere", fixture.outside("dangling")).unwrap();
        refused(open(&fixture.outside("dangling").join(NAME)), Code::RootChanged);
        assert!(fixture.names().is_empty());
    }
}

// Requirement: S1, S2
#[test]
fn a_path_that_names_no_file_is_refused() {
    for path in ["", "/", "..", "a/..", "missing/"] {
        for open in [create_at, load_at] {
            assert_eq!(refused(open(Path::new(path)), Code::Io).errno(), Some(Errno::EINVAL), "{path}");
        }
    }
}

fn create_at(path: &Path) -> session_tree::Result<Store> {
    Store::create(path)
}

fn load_at(path: &Path) -> session_tree::Result<Store> {
    Store::load(path)
}

// Requirement: S1
#[test]
fn a_name_is_refused_where_its_longest_sibling_would_not_fit() {
    // Of 255 bytes, the name of a restore temporary takes 69 beyond the file's own.
    let fixture = Fixture::new();
    for (length, fits) in [(185, true), (186, true), (187, false), (255, false)] {
        let path = fixture.dir().join("n".repeat(length));
        let answer = Store::create(&path);
        if fits {
            let store = answer.unwrap();
            store.append(None, user("m-1")).unwrap();
            assert_eq!(Store::load(&path).unwrap().entries().len(), 1);
            fs::remove_file(&path).unwrap();
        } else {
            let error = refused(answer, Code::Io);
            assert_eq!((error.errno(), error.stage()), (Some(Errno::ENAMETOOLONG), Some(Stage::K1)));
        }
        assert!(fixture.names().is_empty(), "{length}");
    }
    // One that another program made can be read, and is refused before anything is written.
    let path = fixture.dir().join("n".repeat(187));
    fs::write(&path, HEADER).unwrap();
    let error = refused(Store::load(&path).unwrap().append(None, user("m-1")), Code::Io);
    assert_eq!((error.errno(), error.stage()), (Some(Errno::ENAMETOOLONG), Some(Stage::C1)));
    assert_eq!(fixture.names().len(), 1);
}

// Requirement: S2
#[test]
fn load_refuses_what_is_not_a_regular_file_without_opening_it() {
    for (kind, make) in FOREIGN {
        let fixture = Fixture::new();
        make(&fixture.path());
        let names = fixture.names();
        let error = refused(fixture.load(), Code::FileChanged);
        assert_eq!(error.stage(), Some(Stage::V3), "{kind}");
        assert_eq!(fixture.ops.count(Op::Open, Role::Session), 0, "{kind}");
        assert_eq!(fixture.names(), names, "{kind}");
        assert_eq!(fixture.descriptors(), 0, "{kind}");
    }
    let error = refused(Fixture::new().load(), Code::Io);
    assert_eq!((error.errno(), error.stage()), (Some(Errno::ENOENT), Some(Stage::V3)));
}

// Requirement: S2
#[test]
fn a_file_above_the_limit_is_refused_unread_and_one_at_it_is_read() {
    let fixture = with_file(file_of(100, MAX_SESSION_FILE_BYTES).as_bytes());
    assert_eq!(fixture.load().unwrap().entries().len(), 100);
    fixture.ops.forget();
    let mut file = fs::OpenOptions::new().append(true).open(fixture.path()).unwrap();
    file.write_all(b"{").unwrap();
    refused(fixture.load(), Code::FileTooLarge);
    assert_eq!(fixture.ops.count(Op::ReadAt, Role::Session), 0);
}

// Requirement: S2, F5
#[test]
fn load_changes_nothing_on_disk() {
    let torn = format!("{HEADER}{}{{\"type\":\"ent", line("e-1", None, ""));
    for bytes in [torn.as_str(), "not a session", ""] {
        let fixture = with_file(bytes.as_bytes());
        set_mode(&fixture.path(), 0o444);
        let (inode, modified) =
            (inode_of(&fixture.path()), fs::metadata(fixture.path()).unwrap().modified().unwrap());
        let _ = fixture.load();
        assert_eq!(fixture.bytes(), bytes.as_bytes());
        assert_eq!(inode_of(&fixture.path()), inode);
        assert_eq!(fs::metadata(fixture.path()).unwrap().modified().unwrap(), modified);
        assert_eq!(mode_of(&fixture.path()), 0o444);
        assert!(fixture.is_tidy());
    }
}

// Requirement: F5, S5, S6
#[test]
fn a_torn_tail_goes_with_the_next_success_and_not_before() {
    let whole = format!("{HEADER}{}", line("e-1", None, ""));
    let torn = format!("{whole}{{\"type\":\"entry\",\"id\":\"cut");
    for flush in [false, true] {
        let fixture = with_file(torn.as_bytes());
        let store = fixture.load().unwrap();
        assert_eq!(store.torn_tail(), torn.len() - whole.len());
        assert_eq!(ids(&store), ["e-1"]);
        fixture.ops.plan(at(Op::WriteAt, Role::Temporary, What::Before(Errno::ENOSPC)));
        refused(store.flush(), Code::Io);
        assert_eq!(
            (fixture.bytes(), store.torn_tail()),
            (torn.clone().into_bytes(), torn.len() - whole.len())
        );
        if flush {
            store.flush().unwrap();
            assert_eq!(fixture.bytes(), whole.as_bytes());
        } else {
            let entry = store.append(Some("e-1"), user("m-2")).unwrap();
            assert_eq!(fixture.bytes(), format!("{whole}{}\n", entry.to_json()).as_bytes());
        }
        assert_eq!(store.torn_tail(), 0);
        assert_eq!(Store::load(fixture.path()).unwrap().torn_tail(), 0);
    }
}

// Requirement: S6, F8, F1
#[test]
fn flush_writes_the_canonical_form_and_leaves_one_as_it_is() {
    let canonical = format!("{HEADER}{}", line("e-1", None, "é/"));
    let loose =
        canonical.replace(':', " : ").replace('é', "\\u00e9").replace('/', "\\/").replace('\n', "\r\n");
    for bytes in [loose.trim_end(), &loose, &canonical] {
        let fixture = with_file(bytes.as_bytes());
        let store = fixture.load().unwrap();
        store.flush().unwrap();
        assert_eq!(fixture.bytes(), canonical.as_bytes());
        store.flush().unwrap();
        assert_eq!(fixture.bytes(), canonical.as_bytes());
        assert!(fixture.is_tidy());
    }
    let fixture = Fixture::new();
    let store = fixture.create().unwrap();
    let inode = inode_of(&fixture.path());
    store.flush().unwrap();
    assert_eq!(fixture.bytes(), HEADER.as_bytes());
    assert_ne!(inode_of(&fixture.path()), inode, "flush commits a generation");
}

/// What is wrong with an append, in the order in which it must be told.
const IN_ORDER: [(&str, Code); 14] = [
    ("message", Code::InvalidMessage),
    ("root", Code::RootChanged),
    ("file", Code::FileChanged),
    ("record limit", Code::RecordLimit),
    ("parent", Code::ParentNotFound),
    ("id factory", Code::FactoryFailed),
    ("blank id", Code::InvalidRecord),
    ("id in use", Code::DuplicateEntryId),
    ("clock", Code::FactoryFailed),
    ("blank time", Code::InvalidRecord),
    ("linkage", Code::InvalidToolLinkage),
    ("line size", Code::LineTooLarge),
    ("file size", Code::FileTooLarge),
    ("marker", Code::RollbackFailed),
];

// Requirement: S5
#[test]
fn an_append_names_the_first_of_all_that_is_wrong_with_it() {
    for (first, (what, code)) in IN_ORDER.iter().enumerate() {
        let is_wrong = |what: &str| IN_ORDER[first..].iter().any(|(wrong, _)| *wrong == what);
        let entries = if is_wrong("record limit") { MAX_SESSION_RECORDS } else { MAX_SESSION_RECORDS - 1 };
        let bytes = MAX_SESSION_FILE_BYTES - if is_wrong("file size") { 0 } else { 1_000 };
        let fixture = with_file(file_of(entries, bytes).as_bytes());
        let (id_panics, time_panics) = (is_wrong("id factory"), is_wrong("clock"));
        let id = match first {
            ..=6 => " ",
            7 => "e-1",
            _ => "fresh",
        };
        let time = if is_wrong("blank time") { "" } else { "t" };
        let options = Options::new()
            .with_ids(move || if id_panics { panic!("the test's id factory") } else { id.to_owned() })
            .with_clock(move || if time_panics { panic!("the test's clock") } else { time.to_owned() });
        let store = Store::load_with(fixture.ops.clone(), fixture.path(), options).unwrap();
        if is_wrong("root") {
            fs::rename(fixture.dir(), fixture.outside("aside")).unwrap();
            fs::create_dir(fixture.dir()).unwrap();
        } else if is_wrong("file") {
            fixture.replace_session(b"stranger");
        }
        fs::write(fixture.marker(), "").unwrap();
        let names = fixture.names();

        let content = "x".repeat(if is_wrong("line size") { MAX_SESSION_LINE_BYTES } else { 10 });
        let message_id = if is_wrong("message") { "" } else { "m" };
        let message = if is_wrong("linkage") {
            Message::tool_result(message_id, "call", "tool", content, false)
        } else {
            Message::user(message_id, content)
        };
        let parent = if is_wrong("parent") { "no such entry" } else { "e-1" };
        fixture.ops.forget();
        let answer = store.append(Some(parent), message);
        assert_eq!(answer.unwrap_err().code(), *code, "{what}");
        assert_eq!(store.entries().len(), entries, "{what}");
        assert_eq!(fixture.names(), names, "{what}");
        assert_eq!(fixture.ops.count(Op::CreateNew, Role::Temporary), 0, "{what}");
    }
}

// Requirement: S5, C20
#[test]
fn a_poisoned_store_says_so_before_it_looks_at_the_disk_and_after_it_looked_at_the_message() {
    let (fixture, store) = Fixture::with_entries(1);
    fixture.ops.plan(at(Op::Link, Role::Marker, What::After(Errno::EEXIST)));
    let poison = refused(store.append(None, user("m-2")), Code::RollbackFailed);
    assert!(poison.poisoned());
    fs::rename(fixture.dir(), fixture.outside("aside")).unwrap();
    refused(store.append(None, user("")), Code::InvalidMessage);
    let again = refused(store.append(Some("no such entry"), user("m-3")), Code::RollbackFailed);
    assert_eq!(again.to_string(), poison.to_string());
}

// Requirement: S5, R5
#[test]
fn a_blank_parent_is_a_parent_that_is_not_there() {
    let (fixture, store) = Fixture::with_entries(1);
    for parent in ["", " ", "e-2", "E-1"] {
        refused(store.append(Some(parent), user("m-2")), Code::ParentNotFound);
    }
    // None of these drew an id.
    assert_eq!(store.append(Some("e-1"), user("m-2")).unwrap().id(), "e-2");
    assert_eq!(fixture.cold_ids(), ["e-1", "e-2"]);
}

// Requirement: S5, S9
#[test]
fn a_drawn_id_is_consumed_by_an_append_that_fails_later() {
    let (fixture, store) = Fixture::with_entries(1);
    refused(store.append(None, Message::tool_result("m", "c", "n", "", false)), Code::InvalidToolLinkage);
    fixture.ops.plan(at(Op::Sync, Role::Temporary, What::Before(Errno::EIO)));
    refused(store.append(None, user("m-2")), Code::Io);
    let entry = store.append(None, user("m-3")).unwrap();
    assert_eq!((entry.id(), entry.timestamp()), ("e-4", "t-5"));
    assert_eq!(fixture.cold_ids(), ["e-1", "e-4"]);
}

// Requirement: S5, F7
#[test]
fn a_line_of_exactly_the_limit_is_appended_and_a_longer_one_refused() {
    for (over, code) in [(-1, None), (0, None), (1, Some(Code::LineTooLarge))] {
        let fixture = Fixture::new();
        let store = fixture.create().unwrap();
        let before = fixture.bytes();
        let overhead = line("e-1", None, "").replace("\"t\"", "\"t-2\"").len() - 1;
        let content = "x".repeat((MAX_SESSION_LINE_BYTES - overhead).checked_add_signed(over).unwrap());
        let answer = store.append(None, Message::user("m", content));
        match code {
            None => {
                let length = answer.unwrap().to_json().len();
                assert_eq!(length, MAX_SESSION_LINE_BYTES.checked_add_signed(over).unwrap());
                assert_eq!(fixture.cold_ids(), ["e-1"]);
            }
            Some(code) => {
                refused(answer, code);
                assert_eq!(fixture.bytes(), before);
            }
        }
    }
}

// Requirement: S1, F7
#[test]
fn a_header_longer_than_a_line_may_be_is_not_created() {
    for (over, code) in [(0, None), (1, Some(Code::LineTooLarge))] {
        let fixture = Fixture::new();
        let id = "s".repeat(MAX_SESSION_LINE_BYTES - (HEADER.len() - 1) + 1 + over);
        let answer = Store::create_with(fixture.ops.clone(), fixture.path(), options().with_session_id(id));
        match code {
            None => {
                answer.unwrap();
                assert_eq!(fixture.bytes().len(), MAX_SESSION_LINE_BYTES + 1);
                fixture.load().unwrap();
            }
            Some(code) => {
                refused(answer, code);
                assert!(fixture.names().is_empty());
            }
        }
    }
}

// Requirement: S5, F7
#[test]
fn a_file_of_exactly_the_limit_is_written_and_a_longer_one_refused() {
    let added = line("l-1", None, "").replace("\"t\"", "\"t-1\"").len();
    for (over, code) in [(-1, None), (0, None), (1, Some(Code::FileTooLarge))] {
        let bytes = (MAX_SESSION_FILE_BYTES - added).checked_add_signed(over).unwrap();
        let fixture = with_file(file_of(100, bytes).as_bytes());
        let store = fixture.load().unwrap();
        let answer = store.append(None, Message::user("m", ""));
        match code {
            None => {
                answer.unwrap();
                assert_eq!(fixture.bytes().len(), bytes + added);
                assert_eq!(fixture.cold_ids().len(), 101);
            }
            Some(code) => {
                refused(answer, code);
                assert_eq!(fixture.bytes().len(), bytes);
                store.flush().unwrap();
            }
        }
    }
}

// Requirement: S5, F7
#[test]
fn as_many_records_as_the_limit_are_appended_and_no_more() {
    let fixture = with_file(file_of(MAX_SESSION_RECORDS - 2, 1_000_000).as_bytes());
    let store = fixture.load().unwrap();
    store.append(None, user("m")).unwrap();
    store.append(None, user("m")).unwrap();
    assert_eq!(store.entries().len(), MAX_SESSION_RECORDS);
    let before = fixture.bytes();
    refused(store.append(None, user("m")), Code::RecordLimit);
    assert_eq!(fixture.bytes(), before);
    store.flush().unwrap();
    assert_eq!(fixture.cold_ids().len(), MAX_SESSION_RECORDS);
}

// Requirement: F8, S6
#[test]
fn a_file_within_the_limit_only_for_want_of_its_last_line_feed_loads_and_is_not_written() {
    let file = file_of(100, MAX_SESSION_FILE_BYTES + 1);
    let fixture = with_file(&file.as_bytes()[..MAX_SESSION_FILE_BYTES]);
    let store = fixture.load().unwrap();
    assert_eq!((store.entries().len(), store.torn_tail()), (100, 0));
    refused(store.flush(), Code::FileTooLarge);
    refused(store.append(None, user("m")), Code::FileTooLarge);
    assert_eq!(fixture.bytes().len(), MAX_SESSION_FILE_BYTES);
    assert!(fixture.is_tidy());
}

// Requirement: S4, S5, S6
#[test]
fn whatever_happened_to_the_file_behind_the_store_is_noticed_and_nothing_is_written() {
    type Change = fn(&Fixture);
    let changes: [(&str, Change); 8] = [
        ("replaced by an equal file", |f| f.replace_session(&f.bytes())),
        ("removed", |f| fs::remove_file(f.path()).unwrap()),
        ("truncated", |f| fs::write(f.path(), "").unwrap()),
        ("grown", |f| {
            fs::OpenOptions::new().append(true).open(f.path()).unwrap().write_all(b"\n").unwrap();
        }),
        ("rewritten in place", |f| {
            let bytes = f.bytes();
            // A clock of coarse grain must not hide the rewrite.
            thread::sleep(Duration::from_millis(30));
            fs::write(f.path(), bytes).unwrap();
        }),
        ("replaced by a symlink", |f| {
            fs::rename(f.path(), f.outside("moved")).unwrap();
            symlink(f.outside("moved"), f.path()).unwrap();
        }),
        ("replaced by a directory", |f| {
            fs::remove_file(f.path()).unwrap();
            fs::create_dir(f.path()).unwrap();
        }),
        ("moved away and replaced", |f| {
            fs::rename(f.path(), f.outside("moved")).unwrap();
            fs::copy(f.outside("moved"), f.path()).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (fixture, store) = Fixture::with_entries(1);
        change(&fixture);
        let names = fixture.names();
        for error in [
            refused(store.append(None, user("m-2")), Code::FileChanged),
            refused(store.flush(), Code::FileChanged),
        ] {
            assert_eq!((error.stage(), error.poisoned()), (Some(Stage::C1), false), "{what}");
        }
        assert_eq!(fixture.names(), names, "{what}");
        assert_eq!(fixture.ops.count(Op::CreateNew, Role::Temporary), 0, "{what}");
        assert_eq!(ids(&store), ["e-1"], "{what}");
    }
}

// Requirement: S4, S5
#[test]
fn a_file_that_comes_back_as_it_was_is_the_same_generation() {
    let (fixture, store) = Fixture::with_entries(1);
    fs::rename(fixture.path(), fixture.outside("moved")).unwrap();
    refused(store.append(None, user("m-2")), Code::FileChanged);
    fs::rename(fixture.outside("moved"), fixture.path()).unwrap();
    store.append(None, user("m-3")).unwrap();
    assert_eq!(fixture.cold_ids(), ["e-1", "e-2"]);
}

// Requirement: S3
#[test]
fn a_directory_that_was_replaced_is_noticed_and_nothing_is_written_into_it() {
    let moved: [fn(&Fixture); 3] =
        [|f| fs::create_dir(f.dir()).unwrap(), |f| symlink(f.outside("aside"), f.dir()).unwrap(), |_| ()];
    for successor in moved {
        let (fixture, store) = Fixture::with_entries(1);
        let before = fixture.bytes();
        fs::rename(fixture.dir(), fixture.outside("aside")).unwrap();
        successor(&fixture);
        refused(store.append(None, user("m-2")), Code::RootChanged);
        refused(store.flush(), Code::RootChanged);
        assert_eq!(fs::read(fixture.outside("aside").join(NAME)).unwrap(), before);
        assert_eq!(fs::read_dir(fixture.outside("aside")).unwrap().count(), 1);
    }
}

// Requirement: C25, S4
#[test]
fn the_mode_is_carried_from_generation_to_generation() {
    for mode in [0o600, 0o640, 0o644, 0o400, 0o444, 0o660, 0o755, 0o666] {
        let (fixture, store) = Fixture::with_entries(1);
        set_mode(&fixture.path(), mode);
        store.append(None, user("m-2")).unwrap();
        assert_eq!(mode_of(&fixture.path()), mode, "{mode:o}");
        store.flush().unwrap();
        assert_eq!(mode_of(&fixture.path()), mode, "{mode:o}");
    }
    let (fixture, store) = Fixture::with_entries(1);
    set_mode(&fixture.path(), 0o4755);
    store.flush().unwrap();
    assert_eq!(mode_of(&fixture.path()), 0o755, "more than the permission bits was carried");
}

// Requirement: C25
#[test]
fn nobody_gains_access_where_owner_or_group_are_not_carried() {
    for (owner, group) in [(Some(1), None), (None, Some(1))] {
        let (fixture, store) = Fixture::with_entries(1);
        set_mode(&fixture.path(), 0o664);
        if chown(fixture.path(), owner, group).is_err() {
            eprintln!("skipped: only root gives files away");
            return;
        }
        store.append(None, user("m-2")).unwrap();
        assert_eq!(mode_of(&fixture.path()), 0o600);
    }
}

// Requirement: C22
#[test]
fn a_temporary_is_never_wider_than_the_owner() {
    let (fixture, store) = Fixture::with_entries(1);
    set_mode(&fixture.path(), 0o644);
    let dir = fixture.dir();
    fixture.ops.plan(at(
        Op::WriteAt,
        Role::Temporary,
        support::scripted::actor(move || {
            let modes: Vec<u32> = fs::read_dir(&dir)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.to_string_lossy().contains(".pify-session-"))
                .map(|path| mode_of(&path))
                .collect();
            assert_eq!(modes, [0o600]);
        }),
    ));
    store.append(None, user("m-2")).unwrap();
    assert_eq!(fixture.ops.fired(), 1);
}

// Requirement: S8
#[test]
fn of_two_stores_on_one_path_the_stale_one_is_refused() {
    let (fixture, store) = Fixture::with_entries(1);
    let other = fixture.load().unwrap();
    other.append(Some("e-1"), user("theirs")).unwrap();
    let before = fixture.bytes();
    fixture.ops.forget();
    refused(store.append(Some("e-1"), user("ours")), Code::FileChanged);
    refused(store.flush(), Code::FileChanged);
    assert_eq!(fixture.bytes(), before);
    assert_eq!(fixture.ops.count(Op::CreateNew, Role::Temporary), 0);
    assert_eq!(ids(&store), ["e-1"]);
    other.append(None, user("theirs")).unwrap();
    assert_eq!(fixture.cold_ids(), ["e-1", "l-1", "l-2"]);
}

// Requirement: S7
#[test]
fn a_snapshot_does_not_see_later_appends_and_no_entry_ever_changes() {
    let (_fixture, store) = Fixture::with_entries(1);
    let (snapshot, header) = (store.entries(), store.header());
    let shown = format!("{snapshot:?}");
    store.append(Some("e-1"), user("m-2")).unwrap();
    store.flush().unwrap();
    assert_eq!(snapshot.len(), 1);
    assert_eq!(format!("{snapshot:?}"), shown);
    assert_eq!(store.header(), header);
    assert_eq!(store.entries().len(), 2);
    assert!(store.entries()[0].ptr_eq(&snapshot[0]));
}

// Requirement: S5, S7
#[test]
fn an_acknowledged_entry_reads_back_as_it_was_answered() {
    let (fixture, store) = Fixture::with_entries(0);
    let root = store.append(None, Message::user("m-1", "a \"quoted\" line\n\u{1}\u{2028}😀")).unwrap();
    let child = store.append(Some(root.id()), Message::assistant("m-2", Vec::new())).unwrap();
    assert_eq!(child.parent_id(), Some("e-1"));
    let loaded = Store::load(fixture.path()).unwrap();
    assert_eq!(*loaded.entries(), [root, child]);
    assert_eq!(loaded.header(), store.header());
    loaded.flush().unwrap();
    assert_eq!(*loaded.entries(), *store.entries());
}

// Requirement: C22
#[test]
fn a_refused_load_keeps_no_descriptor() {
    for bytes in ["", "not-json\n", &HEADER.replace('1', "2"), &format!("{HEADER}{{}}\n")] {
        let fixture = with_file(bytes.as_bytes());
        assert!(fixture.load().is_err(), "{bytes}");
        assert_eq!(fixture.descriptors(), 0, "{bytes}");
    }
    let fixture = with_file(HEADER.as_bytes());
    let store = fixture.load().unwrap();
    assert_eq!(fixture.descriptors(), 2);
    drop((store.tree(), store.clone()));
    assert_eq!(fixture.descriptors(), 2);
    drop(store);
    assert_eq!(fixture.descriptors(), 0);
}

// Requirement: S1, X3
#[test]
fn a_name_that_belongs_beside_another_session_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "a.jsonl.pify-session-recovery",
        "a.jsonl.pify-session-1-00000000-0000-0000-0000-000000000000",
        "a.jsonl.pify-session-restore-1-00000000-0000-0000-0000-000000000000",
        ".pify-session-recovery",
    ] {
        let error = Store::create(directory.path().join(name)).unwrap_err();
        assert_eq!((error.code(), error.errno()), (Code::Io, Some(Errno::EINVAL)), "{name}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(Store::create(directory.path().join("a.pify-session.jsonl")).is_ok());
}
