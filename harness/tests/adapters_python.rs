//! The store in Python against the reference: the same calls, the same answers, the same bytes.

mod python;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use session_harness::call::{Call, EntryView, Reply};
use session_harness::protocol::Capability;
use session_harness::subject::command::Running;
use session_harness::subject::{InProcess, Subject};
use session_tree::file_ops::OsFileOps;
use tempfile::TempDir;

#[path = "../../core/tests/support/seeded.rs"]
mod seeded;

/// The adapter of the store in this repository.
fn adapter() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/adapters/python/adapter.py")
}

/// Two directories and two stores that are asked the same.
struct Both {
    directories: [TempDir; 2],
    subjects: [Box<dyn Subject>; 2],
}

impl Both {
    fn new() -> Both {
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let python = python::command(&adapter()).start(directories[1].path()).expect("a handshake");
        Both { directories, subjects: [Box::new(InProcess::live(OsFileOps::new())), Box::new(python)] }
    }

    fn path(&self, which: usize) -> PathBuf {
        self.directories[which].path().join("session.jsonl")
    }

    /// Asks both, with the path of each in place of `PATH`, and expects the same of both.
    fn ask(&mut self, call: &Call) -> Told {
        let told: Vec<Told> = (0..2)
            .map(|which| {
                let path = self.path(which).to_string_lossy().into_owned();
                Told::of(self.subjects[which].call(&with_path(call, &path)))
            })
            .collect();
        assert_eq!(told[1], told[0], "Python and the reference, to {call:?}");
        let bytes = [0, 1].map(|which| fs::read(self.path(which)).ok());
        assert!(bytes[0] == bytes[1], "other bytes after {call:?}: {bytes:?}");
        let names = [0, 1].map(|which| names(self.directories[which].path()));
        assert_eq!(names[1], names[0], "after {call:?}");
        told[0].clone()
    }

    fn put(&self, bytes: &[u8]) {
        for which in 0..2 {
            fs::write(self.path(which), bytes).expect("a file");
        }
    }
}

/// What must be the same of both.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Ok(Value),
    Refused {
        code: String,
        line: Option<usize>,
        stage: Option<String>,
        errno: Option<String>,
        poisoned: bool,
    },
}

impl Told {
    fn of(reply: Reply) -> Told {
        match reply {
            Reply::Ok(answer) => Told::Ok(serde_json::to_value(answer).expect("JSON")),
            // Codes of the format come without a stage.
            Reply::Refused(refusal) => Told::Refused {
                code: refusal.code,
                line: refusal.line,
                stage: refusal.stage,
                errno: refusal.errno,
                poisoned: refusal.poisoned,
            },
            other => panic!("{other:?}"),
        }
    }

    fn entry(&self) -> Option<String> {
        match self {
            Told::Ok(answer) => answer["entry"]["id"].as_str().map(str::to_owned),
            Told::Refused { .. } => None,
        }
    }
}

const PATH: &str = "PATH";

fn with_path(call: &Call, path: &str) -> Call {
    let mut call = call.clone();
    if let Call::Create { path: given, .. } | Call::Load { path: given, .. } = &mut call {
        path.clone_into(given);
    }
    call
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn store() -> String {
    "s".to_owned()
}

fn tree() -> String {
    "t".to_owned()
}

fn raw(message: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(message).expect("JSON")
}

fn create() -> Call {
    let many = |what: &str| (0..200).map(|n| format!("{what}-{n}")).collect();
    Call::Create {
        store: store(),
        path: PATH.to_owned(),
        session_id: Some("s-1".to_owned()),
        ids: many("e"),
        clock: many("t"),
    }
}

fn load() -> Call {
    Call::Load {
        store: store(),
        path: PATH.to_owned(),
        ids: vec!["later".to_owned()],
        clock: vec!["then".to_owned()],
    }
}

/// Some call of a conversation, with what it is about chosen among what there is.
#[derive(Debug, Clone)]
enum Ask {
    Append(usize, Box<RawValue>),
    TreeAppend(Box<RawValue>),
    MoveTo(usize),
    Flush,
    Active,
    Entries,
    Tree,
}

fn asks() -> impl Strategy<Value = Ask> {
    prop_oneof![
        4 => (any::<usize>(), messages()).prop_map(|(parent, message)| Ask::Append(parent, message)),
        3 => messages().prop_map(Ask::TreeAppend),
        2 => any::<usize>().prop_map(Ask::MoveTo),
        1 => Just(Ask::Flush),
        1 => Just(Ask::Active),
        1 => Just(Ask::Entries),
        1 => Just(Ask::Tree),
    ]
}

/// Messages of which some are wrong, and whose calls and results meet.
fn messages() -> impl Strategy<Value = Box<RawValue>> {
    let id = prop_oneof![8 => Just("m"), 1 => Just(""), 1 => Just(" \t")];
    let call = prop_oneof![Just("c-1"), Just("c-2")];
    let name = prop_oneof![4 => Just("find"), 1 => Just("read")];
    let text = prop_oneof![Just(String::new()), ".{0,8}", Just("\u{2028}\"\\\u{1f}\u{7f}".to_owned())];
    (id, call, name, text, 0..6_u8).prop_map(|(id, call, name, text, kind)| {
        raw(&match kind {
            0 | 1 => json!({ "id": id, "role": "user", "content": text }),
            2 => json!({ "role": "assistant", "content": [
                { "type": "text", "text": text },
                { "type": "toolCall", "id": call, "name": name, "arguments": { "a b": [1.5, null, { "é": text }] } },
            ], "id": id }),
            3 | 4 => json!({ "id": id, "role": "toolResult", "toolCallId": call, "toolName": name, "content": text,
                "isError": kind == 4 }),
            _ => json!({ "id": id, "role": "user", "content": text, "more": 1 }),
        })
    })
}

proptest! {
    #![proptest_config(seeded::cases(8))]

    // Requirement: S5, S6, S7, T1, T2, T3, T4, L1, L2, L3, R3, R4, F8
    #[test]
    fn the_store_in_python_answers_as_the_reference(asks in prop::collection::vec(asks(), 1..40)) {
        if python::is_here() {
            converse(&asks);
        }
    }
}

fn converse(asks: &[Ask]) {
    let mut both = Both::new();
    both.ask(&create());
    both.ask(&Call::Tree { store: store(), tree: tree() });
    let mut known = Vec::new();
    for ask in asks {
        // One in so many is an id that no entry has, another one stands for none.
        let id = |at: usize| match at % (known.len() + 2) {
            0 => None,
            at => Some(known.get(at - 1).cloned().unwrap_or_else(|| "nobody".to_owned())),
        };
        let told = both.ask(&match ask {
            Ask::Append(parent, message) => {
                Call::Append { store: store(), parent_id: id(*parent), message: message.clone() }
            }
            Ask::TreeAppend(message) => Call::TreeAppend { tree: tree(), message: message.clone() },
            Ask::MoveTo(at) => Call::MoveTo { tree: tree(), entry_id: id(*at) },
            Ask::Flush => Call::Flush { store: store() },
            Ask::Active => Call::Active { tree: tree() },
            Ask::Entries => Call::Entries { store: store() },
            Ask::Tree => Call::Tree { store: store(), tree: tree() },
        });
        known.extend(told.entry());
    }
    both.ask(&Call::Close { store: store() });
    both.ask(&Call::Active { tree: tree() });
    both.ask(&load());
}

// Requirement: F1, F4, F5, F8
#[test]
fn realistic_sessions_are_read_and_written_alike() {
    if !python::is_here() {
        return;
    }
    let sessions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/sessions");
    for name in names(&sessions) {
        let bytes = fs::read(sessions.join(&name)).expect("a session");
        let mut both = Both::new();
        for cut in [bytes.len(), bytes.len() - 1, bytes.len() - 9] {
            both.put(&bytes[..cut]);
            both.ask(&load());
            both.ask(&Call::Append {
                store: store(),
                parent_id: None,
                message: raw(&json!({ "id": "m", "role": "user", "content": "" })),
            });
            both.ask(&Call::Flush { store: store() });
            both.ask(&Call::Close { store: store() });
        }
    }
}

/// Puts something at a path.
type Put = fn(&Path);

// Requirement: S1, S2, S4
#[test]
fn what_stands_in_the_way_is_refused_alike() {
    if !python::is_here() {
        return;
    }
    let puts: [Put; 6] = [
        |path| drop(fs::remove_file(path)),
        |path| std::os::unix::fs::symlink("elsewhere", path).expect("a link"),
        |path| fs::create_dir(path).expect("a directory"),
        |path| fs::write(path.with_extension("jsonl.pify-session-recovery"), "").expect("a marker"),
        |path| fs::write(path, vec![b' '; 4_194_305]).expect("a large file"),
        |path| fs::write(path, "").expect("an empty file"),
    ];
    for put in puts {
        let mut both = Both::new();
        for which in 0..2 {
            put(&both.path(which));
        }
        both.ask(&load());
        both.ask(&create());
        both.ask(&load());
    }
    let mut both = Both::new();
    both.ask(&create());
    let append = Call::Append {
        store: store(),
        parent_id: None,
        message: raw(&json!({ "id": "m", "role": "user", "content": "x" })),
    };
    both.ask(&append);
    both.put(b"other bytes");
    both.ask(&append);
    both.ask(&Call::Entries { store: store() });
    for which in 0..2 {
        fs::remove_file(both.path(which)).expect("the session is there");
    }
    both.ask(&append);
    both.ask(&Call::Flush { store: store() });
}

// Requirement: S8
#[test]
fn two_processes_in_python_serialise_their_commits() {
    if !python::is_here() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("session.jsonl").to_string_lossy().into_owned();
    let start = || -> Running { python::command(&adapter()).start(directory.path()).expect("a handshake") };
    let mut first = start();
    assert!(first.hello().can(Capability::Concurrent));
    assert!(matches!(first.call(&with_path(&create(), &path)), Reply::Ok(_)));
    let mut second = start();
    assert!(matches!(second.call(&with_path(&load(), &path)), Reply::Ok(_)));
    let append = |store: &str| Call::Append {
        store: store.to_owned(),
        parent_id: None,
        message: raw(&json!({ "id": "m", "role": "user", "content": "x" })),
    };
    assert!(matches!(second.call(&append("s")), Reply::Ok(_)));
    let Reply::Refused(stale) = first.call(&append("s")) else { panic!("a stale store has appended") };
    assert_eq!(stale.code, "SESSION_FILE_CHANGED");
    // Two stores of one process, at once: one of them comes second, and is stale.
    for name in ["a", "b"] {
        let call =
            Call::Load { store: name.to_owned(), path: path.clone(), ids: Vec::new(), clock: Vec::new() };
        assert!(matches!(first.call(&call), Reply::Ok(_)));
    }
    let together = first.call(&Call::Concurrent { calls: vec![append("a"), append("b")] });
    let Reply::Ok(answer) = together else { panic!("{together:?}") };
    let done: Vec<EntryView> = answer
        .answers
        .into_iter()
        .flatten()
        .filter_map(|reply| match reply {
            Reply::Ok(answer) => answer.entry,
            Reply::Refused(refusal) => {
                assert_eq!(refusal.code, "SESSION_FILE_CHANGED");
                None
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(done.len(), 1);
}
