//! `tree` through the built binary: what it draws for a pipe and for a terminal, from which entry on, and of sessions as
//! large as they come.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use session_tree::limits::MAX_SESSION_RECORDS;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr as _;

const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"2026-01-01T00:00:00Z"}"#;

/// The place of an entry's parent.
type Parent = fn(usize) -> Option<usize>;

/// A session of (id, parent) in a file of its own.
fn session(entries: &[(String, Option<String>)]) -> (TempDir, std::path::PathBuf) {
    let mut text = format!("{HEADER}\n");
    for (id, parent) in entries {
        let message = json!({"id": "m", "role": "user", "content": format!("words of {id}, {}", "and more ".repeat(30))});
        let entry = json!({"type": "entry", "version": 1, "id": id, "parentId": parent, "timestamp": "t", "message": message});
        text += &entry.to_string();
        text.push('\n');
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("session.jsonl");
    fs::write(&path, text).expect("a session");
    (directory, path)
}

fn tree(path: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_session-harness"))
        .arg("tree")
        .args(arguments)
        .arg(path)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn drawn(path: &Path, arguments: &[&str]) -> String {
    let output = tree(path, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn ids(count: usize, parent: impl Fn(usize) -> Option<usize>) -> Vec<(String, Option<String>)> {
    let id = |place: usize| format!("e{place}");
    (0..count).map(|place| (id(place), parent(place).map(id))).collect()
}

// Requirement: T1, T4
#[test]
fn a_pipe_gets_no_colours_and_whoever_asks_gets_them() {
    let (_directory, path) = session(&ids(3, |place| (place > 0).then_some(0)));
    let plain = drawn(&path, &[]);
    assert!(!plain.contains('\u{1b}') && plain.contains("[active leaf]"), "{plain}");
    assert_eq!(drawn(&path, &["--color", "never"]), plain);
    let colored = drawn(&path, &["--color", "always"]);
    assert!(colored.contains("\u{1b}[1m\u{1b}[32m* e2\u{1b}[0m"), "{colored:?}");
}

// Requirement: T2
#[test]
fn the_beginning_of_an_id_is_enough_where_it_is_the_only_one() {
    let long = |tail: &str| format!("7c1e0d9a-52a4-4f0e-9c55-{tail}");
    let (_directory, path) = session(&[
        ("01234567-89ab".to_owned(), None),
        (long("1b6e0b2f6a31"), Some("01234567-89ab".to_owned())),
        (long("1b6e0b2f6a32"), Some(long("1b6e0b2f6a31"))),
    ]);
    let whole = drawn(&path, &[]);
    assert!(whole.starts_with("* 01234567 ") && whole.contains(&long("1b6e0b2f6a31")), "{whole}");
    assert_eq!(drawn(&path, &["--from", "0123"]), whole);
    let object: Value = serde_json::from_str(&drawn(&path, &["--json", "--from", "01"])).expect("JSON");
    assert_eq!(object["nodes"][0]["id"], "01234567-89ab", "a program gets whole ids");
    let several = tree(&path, &["--from", "7c1e"]);
    assert_eq!((several.status.code(), several.stdout.as_slice()), (Some(2), &b""[..]));
    let told = String::from_utf8_lossy(&several.stderr).into_owned();
    assert!(told.contains("2 entries have an id that begins with `7c1e`"), "{told}");
}

// Requirement: T5
#[test]
fn fans_and_chains_of_every_entry_that_fits_are_drawn_in_narrow_rows() {
    let count = MAX_SESSION_RECORDS;
    let shapes: [(Parent, usize); 4] = [
        (|place| place.checked_sub(1), 0),
        (|place| (place > 0).then_some(0), 1),
        (|_| None, 0),
        (|place| place.checked_sub(1).map(|before| before / 2), 12),
    ];
    for (parent, columns) in shapes {
        let (_directory, path) = session(&ids(count, parent));
        let picture = drawn(&path, &[]);
        assert_eq!(picture.lines().filter(|row| row.contains("words of")).count(), count);
        assert!(picture.lines().all(|row| row.width() <= 100), "the width of a pipe");
        let most = picture.lines().map(|row| row.matches("| ").count()).max();
        assert!(most <= Some(columns), "{most:?}");
        assert_eq!(picture.matches("[active leaf]").count(), 1);
    }
}
