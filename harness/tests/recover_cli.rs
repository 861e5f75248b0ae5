//! `inspect` and `recover` through the built binary: every state is told, resolved or refused with its exit status,
//! and nothing raw reaches the terminal.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tempfile::TempDir;

const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"2026-01-01T00:00:00Z"}"#;
const MARKER: &str = "session.jsonl.pify-session-recovery";
const STRAY: &str = "session.jsonl.pify-session-77-00000000-0000-0000-0000-000000000077";

/// A session with these entries, each the child of the one before.
fn session(ids: &[&str]) -> Vec<u8> {
    let mut text = format!("{HEADER}\n");
    let mut parent = Value::Null;
    for id in ids {
        let message = json!({"id": "m", "role": "user", "content": id});
        let entry = json!({
            "type": "entry", "version": 1, "id": id, "parentId": parent, "timestamp": format!("time of {id}"),
            "message": message
        });
        text += &entry.to_string();
        text.push('\n');
        parent = (*id).into();
    }
    text.into_bytes()
}

struct Ground {
    directory: TempDir,
    path: PathBuf,
}

impl Ground {
    fn new(current: Option<&[u8]>, marker: Option<&[u8]>) -> Ground {
        let directory = tempfile::tempdir().expect("a directory");
        let ground = Ground { path: directory.path().join("session.jsonl"), directory };
        for (path, bytes) in [(ground.path.clone(), current), (ground.marker(), marker)] {
            if let Some(bytes) = bytes {
                fs::write(path, bytes).expect("a file");
            }
        }
        ground
    }

    fn marker(&self) -> PathBuf {
        self.directory.path().join(MARKER)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Every name with its bytes.
    fn contents(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let read = |name: String| {
            let bytes = fs::read(self.directory.path().join(&name)).ok();
            (name, bytes)
        };
        self.names().into_iter().map(read).collect()
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        run(self.directory.path(), arguments, self.path.as_os_str())
    }
}

struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        let line = self.out.strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "{line}");
        serde_json::from_str(line).expect("JSON")
    }
}

fn run(directory: &Path, arguments: &[&str], file: &OsStr) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_session-harness"))
        .args(arguments)
        .arg(file)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let ran = Ran { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    for stream in [&ran.out, &ran.err] {
        let raw = |letter: char| letter.is_control() && letter != '\n';
        assert!(!stream.contains(raw) && !stream.contains("panicked"), "{stream:?}");
    }
    ran
}

/// A state with what brings it about, and what a person is told and can do.
struct Case {
    state: &'static str,
    current: Option<Vec<u8>>,
    marker: Option<Vec<u8>>,
    /// What a recovery without a choice does; none where it refuses.
    alone: Option<&'static [&'static str]>,
    /// A choice that resolves it, where it takes one, and what that does.
    choice: Option<(&'static [&'static str], &'static [&'static str])>,
    /// A part of the advice.
    advice: &'static str,
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let (two, three, fork) = (session(&["a", "b"]), session(&["a", "b", "c"]), session(&["a", "x", "y"]));
    let bad = [HEADER.as_bytes(), b"\nnot-json\n{}\n"].concat();
    let take_marker: &[&str] = &["set-aside-current", "marker-becomes-current"];
    let case = |state, current: Option<&[u8]>, marker: Option<&[u8]>, alone, choice, advice| Case {
        state, current: current.map(<[u8]>::to_vec), marker: marker.map(<[u8]>::to_vec), alone, choice, advice,
    };
    vec![
        case("clean", Some(&two), None, Some(&[][..]), None, "nothing to do"),
        case("absent", None, None, Some(&[][..]), None, "a session can be created here"),
        case("interrupted-create", Some(b"{\"type\""), None, None, Some((&["--set-aside"], &["set-aside-current"])), "recover --set-aside"),
        case("damaged", Some(&bad), None, None, None, "restore it from a copy"),
        case("interrupted-after-rename", Some(&three), Some(&two), Some(&["remove-marker"][..]), None, "remove the marker"),
        case("path-older", Some(&two), Some(&three), Some(take_marker), None, "make the marker the session file"),
        case("diverged", Some(&three), Some(&fork), None, Some((&["--choose", "marker"], take_marker)), "recover --choose current"),
        case("diverged", Some(&three), Some(&fork), None, Some((&["--choose", "current"], &["set-aside-marker"])), "recover --choose marker"),
        case("marker-unreadable", Some(&two), Some(b"?"), Some(&["set-aside-marker"][..]), None, "keep the marker under a new name"),
        case("path-lost", None, Some(&two), Some(&["marker-becomes-current"][..]), None, "make the marker the session file"),
        case("path-damaged", Some(&bad), Some(&two), None, Some((&["--choose", "marker"], take_marker)), "recover --choose marker"),
        case("both-lost", None, Some(&bad), None, None, "from a copy"),
        case("both-bad", Some(&bad), Some(b""), None, None, "from a copy"),
    ]
}

fn tokens(actions: &[&str]) -> Value {
    actions.to_vec().into()
}

// Requirement: X1
#[test]
fn inspect_names_each_state_and_says_what_it_means_and_what_to_do() {
    for Case { state, current, marker, alone, advice, choice } in cases() {
        let ground = Ground::new(current.as_deref(), marker.as_deref());
        let before = ground.contents();
        let expected = i32::from(!matches!(state, "clean" | "absent"));
        let told = ground.run(&["inspect"]);
        assert_eq!((told.status, told.err.as_str()), (Some(expected), ""), "{state}");
        assert!(told.out.contains(&format!("session.jsonl: {state}\n")), "{}", told.out);
        assert!(told.out.contains(advice) && told.out.contains(MARKER), "{}", told.out);

        let object = ground.run(&["inspect", "--json"]);
        assert_eq!(object.status, Some(expected), "{state}");
        let object = object.json();
        assert_eq!(object["state"], state);
        assert!(told.out.contains(object["meaning"].as_str().expect("words")), "{}", told.out);
        assert_eq!(object["recover"], alone.map_or(Value::Null, tokens), "{state}");
        if let Some((choice, did)) = choice {
            let name = choice.last().expect("a choice").trim_start_matches("--");
            assert_eq!(object["choices"][name], tokens(did), "{state}");
        } else {
            assert_eq!(object["choices"], json!({}), "{state}");
        }
        assert_eq!(ground.contents(), before, "{state}");
    }
}

// Requirement: X2
#[test]
fn recover_resolves_or_refuses_each_state_and_a_second_time_has_nothing_to_do() {
    for Case { state, current, marker, alone, choice, advice } in cases() {
        let ground = Ground::new(current.as_deref(), marker.as_deref());
        let before = ground.contents();
        let Some(did) = alone else {
            let refused = ground.run(&["recover"]);
            assert_eq!(refused.status, Some(1), "{state}: {}", refused.err);
            assert!(refused.err.starts_with("session-harness: SESSION_"), "{}", refused.err);
            assert!(refused.out.contains(state) && refused.out.contains(advice), "{}", refused.out);
            let object = ground.run(&["recover", "--json"]);
            assert_eq!((object.status, object.err.as_str()), (Some(1), ""), "{state}");
            let object = object.json();
            assert_eq!(object["state"], state);
            assert!(object["code"].as_str().expect("a code").starts_with("SESSION_"));
            assert_eq!(ground.contents(), before, "{state}");
            if let Some((arguments, did)) = choice {
                resolve(&ground, state, arguments, did);
            }
            continue;
        };
        resolve(&ground, state, &[], did);
    }
}

fn resolve(ground: &Ground, state: &str, choice: &[&str], did: &[&str]) {
    let before = ground.contents();
    let with = |more: &[&'static str]| [&["recover"], choice, more].concat();
    let dry = ground.run(&with(&["--dry-run", "--json"]));
    assert_eq!(dry.status, Some(0), "{state}");
    assert_eq!(dry.json()["would"], tokens(did), "{state}");
    assert_eq!(ground.run(&with(&["--dry-run"])).status, Some(0), "{state}");
    assert_eq!(ground.contents(), before, "{state}: dry run");

    let done = ground.run(&with(&["--json"]));
    assert_eq!((done.status, done.err.as_str()), (Some(0), ""), "{state}");
    let done = done.json();
    assert_eq!(done["state"], state);
    let steps = done["did"].as_array().expect("steps");
    let actions: Vec<&Value> = steps.iter().map(|step| &step["action"]).collect();
    assert_eq!(actions, did, "{state}");
    for step in steps.iter().filter(|step| step["action"].as_str() != Some("remove-marker")) {
        assert!(ground.names().iter().any(|name| step["name"] == name.as_str()), "{step}");
    }
    assert!(!ground.marker().exists(), "{state}");
    assert_eq!(done["now"], if ground.path.exists() { "clean" } else { "absent" });

    let again = ground.run(&with(&[]));
    assert_eq!(again.status, Some(0), "{state}: {}", again.err);
    assert!(again.out.contains("nothing to do"), "{}", again.out);
}

// Requirement: X2
#[test]
fn what_was_done_is_told_in_words_with_the_names() {
    let ground = Ground::new(Some(&session(&["a", "b"])), Some(&session(&["a", "b", "c"])));
    let done = ground.run(&["recover"]);
    assert_eq!(done.status, Some(0), "{}", done.err);
    let aside = ground.names().into_iter().find(|name| name.contains("-aside-")).expect("a name");
    for part in [
        "path-older",
        &format!("gave the session file the new name {aside}"),
        "made the marker the session file session.jsonl",
        "loads: 3 entries, the last of time of c",
        &format!("/{aside}\n"),
    ] {
        assert!(done.out.contains(part), "{part:?} in {}", done.out);
    }
}

// Requirement: X1
#[test]
fn a_person_who_must_choose_is_told_what_each_file_holds() {
    let ground = Ground::new(Some(&session(&["a", "b", "c"])), Some(&session(&["a", "x"])));
    let told = ground.run(&["inspect"]).out;
    for part in [
        "loads: 3 entries, the last of time of c",
        "loads: 2 entries, the last of time of x",
        "both hold the same first 1 entry; then the session has 2 entries more, the marker 1 entry more",
    ] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
    let object = ground.run(&["inspect", "--json"]).json();
    assert_eq!(object["current"]["entries"], 3);
    assert_eq!(object["marker"]["leaf"], "x");
}

// Requirement: X1, X2
#[test]
fn a_marker_that_is_a_second_name_of_the_session_is_removed() {
    let ground = Ground::new(Some(&session(&["a"])), None);
    fs::hard_link(&ground.path, ground.marker()).expect("a link");
    assert_eq!(ground.run(&["inspect", "--json"]).json()["state"], "interrupted-before-rename");
    resolve(&ground, "interrupted-before-rename", &[], &["remove-marker"]);
    assert_eq!(fs::read(&ground.path).expect("the session"), session(&["a"]));
}

// Requirement: X1, X2
#[test]
fn what_is_no_regular_file_is_named_and_left_alone() {
    let ground = Ground::new(None, Some(&session(&["a"])));
    symlink(MARKER, &ground.path).expect("a link");
    let told = ground.run(&["inspect"]);
    assert_eq!(told.status, Some(1));
    assert!(told.out.contains("foreign") && told.out.contains("a symbolic link"), "{}", told.out);
    let refused = ground.run(&["recover", "--choose", "marker"]);
    assert_eq!(refused.status, Some(1), "{}", refused.err);
    assert!(refused.err.contains("SESSION_FILE_CHANGED"), "{}", refused.err);
    assert_eq!(ground.names(), ["session.jsonl", MARKER]);
}

// Requirement: S8, X1, X2
#[test]
fn a_commit_in_flight_is_waited_for_and_then_refused() {
    let ground = Ground::new(Some(&session(&["a", "b"])), Some(&session(&["a"])));
    let live = File::open(ground.marker()).expect("the marker");
    flock(&live, FlockOperation::NonBlockingLockExclusive).expect("a lock");
    let told = ground.run(&["inspect"]);
    assert_eq!(told.status, Some(1));
    assert!(told.out.contains("commit-in-flight"), "{}", told.out);
    let refused = ground.run(&["recover", "--json"]);
    assert_eq!(refused.status, Some(1));
    let object = refused.json();
    assert_eq!(
        (object["code"].as_str(), &object["in_flight"]),
        (Some("SESSION_ROLLBACK_FAILED"), &json!(true))
    );
    assert!(ground.marker().exists());
    drop(live);
    assert_eq!(ground.run(&["recover"]).status, Some(0));
}

// Requirement: X1
#[test]
fn an_io_error_is_no_verdict_and_has_its_own_status() {
    let ground = Ground::new(None, None);
    let missing = ground.directory.path().join("missing/session.jsonl");
    for command in
        [&["inspect"][..], &["recover"], &["recover", "--dry-run"], &["recover", "--remove-strays"]]
    {
        let failed = run(ground.directory.path(), command, missing.as_os_str());
        assert_eq!((failed.status, failed.out.as_str()), (Some(3), ""), "{command:?}");
        assert!(failed.err.contains("SESSION_IO") && failed.err.contains("ENOENT"), "{}", failed.err);
        let failed = run(ground.directory.path(), &[command, &["--json"]].concat(), missing.as_os_str());
        assert_eq!((failed.status, failed.err.as_str()), (Some(3), ""), "{command:?}");
        assert_eq!(failed.json()["errno"], "ENOENT");
    }
}

// Requirement: X2, X3
#[test]
fn wrong_usage_is_refused_before_anything_is_touched() {
    let ground = Ground::new(None, Some(&session(&["a"])));
    for arguments in [
        &["recover", "--choose", "both"][..],
        &["recover", "--choose", "marker", "--set-aside"],
        &["recover", "--remove-strays", "--set-aside"],
        &["inspect", "--choose", "marker"],
    ] {
        let refused = ground.run(arguments);
        assert_eq!((refused.status, refused.out.as_str()), (Some(2), ""), "{arguments:?}");
    }
    for file in ["/", "..", "session.jsonl/"] {
        let refused = run(ground.directory.path(), &["inspect"], file.as_ref());
        assert_eq!(refused.status, Some(2), "{file}: {}", refused.err);
    }
    assert_eq!(ground.names(), [MARKER]);
}

// Requirement: X3
#[test]
fn strays_are_listed_and_removed_on_request_alone() {
    let ground = Ground::new(Some(&session(&["a"])), None);
    let stray = ground.directory.path().join(STRAY);
    fs::write(&stray, "{}").expect("a stray");
    let told = ground.run(&["inspect"]);
    assert_eq!(told.status, Some(0));
    assert!(told.out.contains(&format!("{STRAY} (2 bytes)")), "{}", told.out);
    assert!(told.out.contains("recover --remove-strays"), "{}", told.out);
    assert_eq!(ground.run(&["recover"]).status, Some(0));
    let dry = ground.run(&["recover", "--remove-strays", "--dry-run", "--json"]);
    assert_eq!(dry.json()["would_remove"], json!([{"name": STRAY, "size": 2}]));
    assert!(stray.exists());

    let live = File::open(&stray).expect("the stray");
    flock(&live, FlockOperation::NonBlockingLockExclusive).expect("a lock");
    assert_eq!(ground.run(&["recover", "--remove-strays", "--json"]).json()["removed"], json!([]));
    assert!(stray.exists());
    drop(live);
    let removed = ground.run(&["recover", "--remove-strays"]);
    assert_eq!(removed.status, Some(0));
    assert!(removed.out.contains("removed 1\n") && removed.out.contains(STRAY), "{}", removed.out);
    assert_eq!(ground.names(), ["session.jsonl"]);
}

// Requirement: X1, X2
#[test]
fn names_and_contents_that_a_terminal_would_obey_are_escaped() {
    let directory = tempfile::tempdir().expect("a directory");
    let name = OsStr::from_bytes(b"a\x1b[2J\xff\n.jsonl");
    let path = directory.path().join(name);
    fs::write(&path, session(&["a\u{1b}[31m"])).expect("a session");
    let mut marker = name.to_owned();
    marker.push(".pify-session-recovery");
    fs::write(directory.path().join(marker), session(&["b"])).expect("a marker");
    for arguments in [
        &["inspect"][..],
        &["inspect", "--json"],
        &["recover"],
        &["recover", "--json"],
        &["recover", "--choose", "marker", "--dry-run"],
        &["recover", "--choose", "marker"],
    ] {
        let ran = run(directory.path(), arguments, path.as_os_str());
        assert!(matches!(ran.status, Some(0 | 1)), "{}", ran.err);
        if !arguments.contains(&"--json") {
            let shown = ran.out.contains(r"a\u{1b}[2J\xff\u{a}.jsonl");
            assert!(shown, "{}", ran.out);
        }
    }
}

// Requirement: X2
#[test]
fn a_choice_that_decides_nothing_is_told_aloud() {
    let older = || Ground::new(Some(&session(&["a"])), Some(&session(&["a", "b"])));
    let loud = "`--choose current` decides nothing here";
    for more in [&["--dry-run"][..], &[]] {
        let ground = older();
        let told = ground.run(&[&["recover", "--choose", "current"], more].concat());
        assert_eq!(told.status, Some(0));
        assert!(told.out.contains(loud), "{}", told.out);
        let ground = older();
        let object = ground.run(&[&["recover", "--choose", "current", "--json"], more].concat()).json();
        assert_eq!(object["choice"], json!({"name": "current", "is": "not-needed"}));
    }
    let plain = older().run(&["recover"]);
    assert!(!plain.out.contains("decides nothing"), "{}", plain.out);

    let ground = Ground::new(Some(&session(&["a", "b"])), Some(&session(&["a", "c"])));
    for more in [&["--dry-run"][..], &[]] {
        let refused = ground.run(&[&["recover", "--set-aside"], more].concat());
        assert_eq!(refused.status, Some(1));
        assert!(refused.out.contains("`--set-aside` does not resolve this state"), "{}", refused.out);
        let object = ground.run(&[&["recover", "--set-aside", "--json"], more].concat()).json();
        assert_eq!(object["choice"], json!({"name": "set-aside", "is": "no-help"}));
    }
    let object = ground.run(&["recover", "--choose", "marker", "--json"]).json();
    assert_eq!(object["choice"], json!({"name": "marker", "is": "used"}));
}

// Requirement: X1, X2
#[test]
fn a_dry_run_fails_where_the_recovery_would() {
    let directory = tempfile::tempdir().expect("a directory");
    let (fits, too_long) = ("n".repeat(186), "n".repeat(187));
    for (name, status) in [(fits, Some(0)), (too_long, Some(3))] {
        let path = directory.path().join(&name);
        let marker = directory.path().join(format!("{name}.pify-session-recovery"));
        fs::write(&path, session(&["a"])).expect("a session");
        fs::write(&marker, session(&["a", "b"])).expect("a marker");
        let both = [&["recover", "--dry-run", "--json"][..], &["recover", "--json"]];
        for arguments in both {
            let ran = run(directory.path(), arguments, path.as_os_str());
            assert_eq!(ran.status, status, "{arguments:?} {}", ran.out);
            if status == Some(3) {
                assert_eq!(ran.json()["errno"], "ENAMETOOLONG");
                assert!(ran.json()["help"].as_str().is_some_and(|help| help.contains("shorter names")));
                assert_eq!(fs::read(&path).expect("the session"), session(&["a"]));
                assert!(marker.exists());
            }
        }
    }
}

// Requirement: S8, X1, X2
#[test]
fn a_session_that_another_process_has_locked_is_told_by_all_three() {
    let ground = Ground::new(Some(&session(&["a", "b"])), Some(&session(&["a"])));
    let locked = |ground: &Ground| ground.run(&["inspect", "--json"]).json()["locked"].clone();
    assert_eq!(locked(&ground), json!(false));
    let live = File::open(&ground.path).expect("the session");
    flock(&live, FlockOperation::NonBlockingLockExclusive).expect("a lock");
    assert_eq!(locked(&ground), json!(true));
    let told = ground.run(&["inspect"]);
    assert!(told.out.contains("another process has the session locked at this moment"), "{}", told.out);
    for arguments in [&["recover", "--json"][..], &["recover", "--dry-run", "--json"]] {
        let refused = ground.run(arguments);
        assert_eq!(refused.status, Some(1), "{arguments:?}");
        assert_eq!(
            (&refused.json()["errno"], &refused.json()["in_flight"]),
            (&json!("EAGAIN"), &json!(true))
        );
    }
    assert!(ground.marker().exists());
    drop(live);
    assert_eq!(ground.run(&["recover", "--dry-run"]).status, Some(0));
    assert_eq!(ground.run(&["recover"]).status, Some(0));
}

// Requirement: S3, X1
#[test]
fn a_directory_behind_a_link_is_told_with_its_own_path() {
    let ground = Ground::new(Some(&session(&["a"])), None);
    let link = ground.directory.path().join("link");
    symlink(".", &link).expect("a link");
    let real = ground.path.canonicalize().expect("a path");
    for arguments in
        [&["inspect"][..], &["recover"], &["recover", "--dry-run"], &["recover", "--remove-strays"]]
    {
        let failed = run(ground.directory.path(), arguments, link.join("session.jsonl").as_os_str());
        assert_eq!(failed.status, Some(3), "{arguments:?}");
        assert!(failed.err.contains("SESSION_ROOT_CHANGED"), "{}", failed.err);
        assert!(
            failed.err.contains(&format!("give the path without it, {}\n", real.display())),
            "{}",
            failed.err
        );
    }
}

// Requirement: X2
#[test]
fn after_a_recovery_a_person_knows_how_to_go_on() {
    for Case { state, current, marker, alone, choice, .. } in cases() {
        let ground = Ground::new(current.as_deref(), marker.as_deref());
        let arguments = match (alone, choice) {
            (Some([]), _) | (None, None) => continue,
            (Some(_), _) => vec!["recover"],
            (None, Some((arguments, _))) => [&["recover"], arguments].concat(),
        };
        let done = ground.run(&arguments);
        let next = if ground.path.exists() {
            "the session loads again"
        } else {
            "a session can be created here again"
        };
        assert!(done.out.contains(&format!("\n{next}\n")), "{state}: {}", done.out);
        if let Some(aside) = ground.names().into_iter().find(|name| name.contains("-aside-")) {
            assert!(done.out.contains(&format!("/{aside}\n")), "{state}: {}", done.out);
        }
    }
}
