//! `verify` and `tree` on files of every kind: the right code, the right exit status, nothing raw on the terminal,
//! and never more than 64 MiB of memory, which the operating system holds them to.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
use serde_json::{Value, json};
use session_harness::generate::{self, Shape};
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr as _;

#[path = "verify/all.rs"]
mod all;
#[path = "verify/by_hand.rs"]
mod by_hand;

const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"2025-01-01T00:00:00.000Z"}"#;
const LINE_LIMIT: usize = 65_536;
const FILE_LIMIT: usize = 4_194_304;
const ENTRY_LIMIT: usize = 4_096;

/// All memory of the process, mapped code included: more than what is resident, so that the claim is the stronger.
const MEMORY_KIB: usize = 64 * 1024;
/// When a child counts as hanging. Nothing else is concluded from time.
const PATIENCE: Duration = Duration::from_mins(2);

const INCOMPLETE_TAILS: [&str; 12] = [
    "{",
    r#"{"a"#,
    r#"{"a""#,
    r#"{"a":"#,
    r#"{"a":-"#,
    r#"{"a":1."#,
    r#"{"a":1e+"#,
    r#"{"a":tr"#,
    r#"{"a":"\"#,
    r#"{"a":"\u00"#,
    r#"{"a":[[["#,
    " \t{\"type\":\"entry\",\"version\":1,\"id\":\"e",
];

const INVALID_TAILS: [&str; 19] = [
    "not-json",
    "{} x",
    "{}{",
    r#"{"a":1,,"#,
    r#"{"a":truX"#,
    "{,",
    r#"{"a":01"#,
    r#"{"a":1,}"#,
    "[1",
    "\"cut",
    "tru",
    "-",
    "{\"a\":\"\u{1}",
    "{\"a\":\"\u{1b}[31m",
    r#"{"a":"\x"#,
    r#"{"a":"\uZ"#,
    " \t ",
    "\0\0\0",
    "{\"a\":1\0",
];

fn entry(id: &str, parent: Option<&str>, content: &str) -> String {
    let message = json!({"id": "m", "role": "user", "content": content});
    json!({"type": "entry", "version": 1, "id": id, "parentId": parent, "timestamp": "t", "message": message})
        .to_string()
}

/// Each line with a line feed.
fn lines<L: AsRef<[u8]>>(lines: &[L]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_ref(), b"\n"].concat()).collect()
}

/// A header, one entry, and `tail` as it is.
fn with_tail(tail: impl AsRef<[u8]>) -> Vec<u8> {
    [lines(&[HEADER, &entry("e1", None, "hello")]), tail.as_ref().to_vec()].concat()
}

struct Ran {
    /// None where a signal ended it.
    status: Option<i32>,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Ran {
    fn out(&self) -> &str {
        std::str::from_utf8(&self.out).expect("text")
    }

    fn err(&self) -> &str {
        std::str::from_utf8(&self.err).expect("text")
    }

    fn json(&self) -> Value {
        let line = self.out().strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "{line}");
        serde_json::from_str(line).expect("JSON")
    }
}

/// The binary under a limit of memory, with standard input closed.
fn limited(binary: &Path, memory_kib: usize) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {memory_kib} && exec \"$0\" \"$@\"")).arg(binary);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command
}

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_session-harness"))
}

fn harness() -> Command {
    limited(binary(), MEMORY_KIB)
}

/// Runs to the end, and checks what holds of every run.
fn finish(command: &mut Command) -> Ran {
    let mut child = command.spawn().expect("a child");
    let out = child.stdout.take().map(|stream| thread::spawn(move || read_all(stream)));
    let err = child.stderr.take().map(|stream| thread::spawn(move || read_all(stream)));
    let status = wait(&mut child);
    let text = |reader: Option<thread::JoinHandle<Vec<u8>>>| {
        reader.map_or_else(Vec::new, |reader| reader.join().expect("a reader"))
    };
    let ran = Ran { status, out: text(out), err: text(err) };
    assert!(!String::from_utf8_lossy(&ran.err).contains("panicked"), "{}", ran.err());
    ran
}

fn wait(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code();
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("a child");
    panic!("it hangs");
}

fn read_all(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("a pipe");
    bytes
}

fn assert_harmless(text: &str) {
    let is_raw = |character: char| {
        (character.is_control() && character != '\n')
            || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    assert!(!text.contains(is_raw), "{text:?}");
}

/// What should be said of a file.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Accepted {
        entries: usize,
        torn_tail: usize,
    },
    /// With line and column, or without a place.
    Refused {
        code: &'static str,
        at: Option<(usize, usize)>,
    },
}

use Expected::Accepted;

fn refused(code: &'static str, line: usize, column: usize) -> Expected {
    Expected::Refused { code, at: Some((line, column)) }
}

fn refused_whole(code: &'static str) -> Expected {
    Expected::Refused { code, at: None }
}

struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("session.jsonl");
        fs::write(&path, content).expect("a file");
        path
    }
}

/// Checks both commands, in words and as JSON, on one content.
fn check(content: impl AsRef<[u8]>, expected: Expected) {
    let files = Files::new();
    let path = files.file(&content);
    check_path(&path, expected, harness);
    if let Expected::Refused { at: Some(_), .. } = expected {
        check_offset(&path, content.as_ref());
    }
}

fn check_path(path: &Path, expected: Expected, harness: impl Fn() -> Command) {
    let verified = finish(harness().args(["verify", "--json"]).arg(path));
    let words = finish(harness().arg("verify").arg(path));
    let tree = finish(harness().arg("tree").arg(path));
    let tree_json = finish(harness().args(["tree", "--json"]).arg(path));
    let runs = [&verified, &words, &tree, &tree_json];
    for ran in runs {
        assert_harmless(ran.out());
        assert_harmless(ran.err());
    }
    let statuses = runs.map(|ran| ran.status);
    let value = verified.json();
    assert_eq!(value["file"], json!(path.to_str()));
    assert_eq!((verified.err(), words.err()), ("", ""));
    match expected {
        Accepted { entries, torn_tail } => {
            assert_eq!(statuses, [Some(0); 4], "{value}");
            assert_eq!(value["ok"], json!(true));
            assert_eq!((&value["entries"], &value["torn_tail"]), (&json!(entries), &json!(torn_tail)));
            assert!(words.out().contains(": ok, "), "{}", words.out());
            assert_eq!(words.out().contains("warning: torn tail"), torn_tail > 0, "{}", words.out());
            assert_eq!(tree.err().contains("warning: torn tail"), torn_tail > 0, "{}", tree.err());
            let nodes = tree_json.json()["nodes"].as_array().map(Vec::len);
            assert_eq!(nodes, Some(entries));
            assert!(tree.out().lines().count() >= entries);
            assert_eq!(tree_json.json()["leaf"], value["leaf"]);
        }
        Expected::Refused { code, at } => {
            assert_eq!(statuses, [Some(1); 4], "{value}");
            assert_eq!((&value["ok"], &value["code"]), (&json!(false), &json!(code)), "{value}");
            let (line, column) = at.unzip();
            assert_eq!((&value["line"], &value["column"]), (&json!(line), &json!(column)), "{value}");
            assert_eq!(tree_json.json(), value);
            assert_eq!((tree.out(), tree.err()), ("", words.out()));
            assert_explained(words.out(), path, code, at, &value);
        }
    }
}

/// The diagnosis names code, place, requirement and what to do, and shows no long line as a whole.
fn assert_explained(text: &str, path: &Path, code: &str, at: Option<(usize, usize)>, value: &Value) {
    assert!(text.starts_with(&format!("error[{code}]: ")), "{text}");
    let name = path.to_str().expect("a name in UTF-8");
    let place = at.map_or(name.to_owned(), |(line, column)| format!("{name}:{line}:{column}"));
    assert!(text.lines().any(|line| line.trim_start() == format!("--> {place}")), "{text}");
    let requirement = value["requirement"].as_str().expect("a requirement");
    assert!(text.contains(&format!("= note: requirement {requirement}: ")), "{text}");
    assert!(text.contains("= help: "), "{text}");
    assert!(text.lines().all(|line| line.width() < 250), "{text}");
    assert_eq!(text.contains(&format!("^ byte offset {}", value["offset"])), at.is_some(), "{text}");
}

/// Line, column and offset name one byte.
fn check_offset(path: &Path, content: &[u8]) {
    let value = finish(harness().args(["verify", "--json"]).arg(path)).json();
    let number = |key: &str| usize::try_from(value[key].as_u64().expect("a number")).expect("small");
    let before = &content[..number("offset")];
    assert_eq!(number("line"), before.split(|byte| *byte == b'\n').count());
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |feed| feed + 1);
    assert_eq!(number("column"), before.len() - line_start + 1);
}

// Requirement: F4, F5
#[test]
fn an_incomplete_tail_is_accepted_and_counted() {
    for tail in INCOMPLETE_TAILS {
        check(with_tail(tail), Accepted { entries: 1, torn_tail: tail.len() });
    }
    check(with_tail("{\"a\":\r"), Accepted { entries: 1, torn_tail: 6 });
}

// Requirement: F4
#[test]
fn an_invalid_tail_is_refused_at_its_first_wrong_byte() {
    let columns = [2, 4, 3, 8, 9, 2, 7, 8, 3, 5, 4, 2, 7, 7, 8, 9, 4, 1, 7];
    for (tail, column) in INVALID_TAILS.into_iter().zip(columns) {
        check(with_tail(tail), refused("SESSION_INVALID_JSON", 3, column));
    }
}

// Requirement: F3, F4
#[test]
fn a_tail_that_is_incomplete_is_damage_once_it_has_a_line_feed() {
    for tail in INCOMPLETE_TAILS {
        check(with_tail(format!("{tail}\n")), refused("SESSION_INVALID_JSON", 3, tail.len() + 1));
    }
}

// Requirement: F1, F4, R2
#[test]
fn an_unterminated_last_line_that_is_complete_is_judged_as_a_record() {
    check(with_tail("[1]"), refused("SESSION_INVALID_RECORD", 3, 1));
    check(with_tail("12"), refused("SESSION_INVALID_RECORD", 3, 1));
    check(with_tail("{}"), refused("SESSION_INVALID_RECORD", 3, 1));
    check(with_tail(entry("e2", Some("e1"), "x")), Accepted { entries: 2, torn_tail: 0 });
    check(HEADER, Accepted { entries: 0, torn_tail: 0 });
}

// Requirement: F4
#[test]
fn a_tail_of_nul_bytes_is_refused() {
    for count in [1, 4_096, LINE_LIMIT] {
        check(with_tail(vec![0; count]), refused("SESSION_INVALID_JSON", 3, 1));
    }
    let half = r#"{"type":"entry","ver"#;
    let tail = [half.as_bytes(), &[0; 512]].concat();
    check(with_tail(tail), refused("SESSION_INVALID_JSON", 3, half.len() + 1));
}

// Requirement: F3, F4
#[test]
fn damage_before_the_last_line_is_refused() {
    let second = entry("e2", Some("e1"), "second");
    let cut = lines(&[HEADER, &entry("e1", None, "x")[..50], &second]);
    check(cut, refused("SESSION_INVALID_JSON", 2, 51));
    let first = entry("e1", None, "x");
    let joined = lines(&[HEADER, &format!("{first}{second}")]);
    check(joined, refused("SESSION_INVALID_JSON", 2, first.len() + 1));
    check(lines(&[HEADER, "", &second]), refused("SESSION_INVALID_JSON", 2, 1));
    check(format!("\u{feff}{HEADER}\n"), refused("SESSION_INVALID_JSON", 1, 1));
}

// Requirement: F2
#[test]
fn a_character_cut_at_the_end_is_refused() {
    for (character, kept) in [("é", 1), ("漢", 1), ("漢", 2), ("😀", 3)] {
        let whole = [r#"{"type":"e"#.as_bytes(), &character.as_bytes()[..kept]].concat();
        check(with_tail(whole), refused("SESSION_INVALID_UTF8", 3, 11));
    }
}

// Requirement: F1
#[test]
fn a_carriage_return_before_the_line_feed_is_dropped() {
    let file = String::from_utf8(with_tail("")).expect("text");
    check(file.replace('\n', "\r\n"), Accepted { entries: 1, torn_tail: 0 });
    check(file.trim_end(), Accepted { entries: 1, torn_tail: 0 });
    check(file.replace('\n', "\r\r\n"), Accepted { entries: 1, torn_tail: 0 });
    check(with_tail("\r\n"), refused("SESSION_INVALID_JSON", 3, 1));
}

// Requirement: F1, F7
#[test]
fn a_line_is_counted_without_its_end() {
    let line = |length: usize| entry("e2", None, &"x".repeat(length - entry("e2", None, "").len()));
    for end in ["\n", "\r\n", "", "\r"] {
        let (most, beyond) = (line(LINE_LIMIT) + end, line(LINE_LIMIT + 1) + end);
        check(with_tail(most), Accepted { entries: 2, torn_tail: 0 });
        check(with_tail(beyond), refused("SESSION_LINE_TOO_LARGE", 3, LINE_LIMIT + 1));
    }
}

// Requirement: F7
#[test]
fn a_file_at_both_ceilings_is_accepted_in_every_shape() {
    for shape in Shape::ALL {
        let file = generate::ceiling(shape, 1).expect("within reach");
        assert_eq!(file.len(), FILE_LIMIT);
        check(file, Accepted { entries: ENTRY_LIMIT, torn_tail: 0 });
    }
}

// Requirement: F7
#[test]
fn one_byte_or_one_entry_beyond_a_ceiling_is_refused() {
    let long = generate::session(Shape::Chain, ENTRY_LIMIT, FILE_LIMIT + 1, 1).expect("within reach");
    check(long, refused_whole("SESSION_FILE_TOO_LARGE"));
    let many = generate::session(Shape::Chain, ENTRY_LIMIT + 1, FILE_LIMIT, 1).expect("within reach");
    check(many, refused("SESSION_RECORD_LIMIT", ENTRY_LIMIT + 2, 1));
    let full = generate::session(Shape::Chain, ENTRY_LIMIT, FILE_LIMIT, 1).expect("within reach");
    check(&full[..FILE_LIMIT - 1], Accepted { entries: ENTRY_LIMIT, torn_tail: 0 });
}

// Requirement: F3, F4, F9
#[test]
fn depth_is_no_danger() {
    let brackets = "[".repeat(65_000);
    check(with_tail(&brackets), refused("SESSION_INVALID_JSON", 3, 65_001));
    check(with_tail(format!("{brackets}\n")), refused("SESSION_INVALID_JSON", 3, 65_001));
    check(with_tail(format!("{{\"a\":{brackets}")), Accepted { entries: 1, torn_tail: 65_005 });
    let closed = format!("{}{}\n", "[".repeat(32_000), "]".repeat(32_000));
    check(with_tail(closed), refused("SESSION_INVALID_RECORD", 3, 1));
    let objects = "{\"a\":".repeat(13_000);
    check(with_tail(&objects), Accepted { entries: 1, torn_tail: objects.len() });

    let arguments = format!("{{\"a\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    let call = format!(r#"[{{"type":"toolCall","id":"c","name":"n","arguments":{arguments}}}]"#);
    let message = format!(r#"{{"id":"m","role":"assistant","content":{call}}}"#);
    let deep = format!(
        r#"{{"type":"entry","version":1,"id":"e2","parentId":"e1","timestamp":"t","message":{message}}}"#
    );
    check(with_tail(deep + "\n"), Accepted { entries: 2, torn_tail: 0 });
}

// Requirement: R1, R7
#[test]
fn a_session_of_another_format_is_refused() {
    let pi = r#"{"type":"session","version":3,"id":"8e0f","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/home/x"}"#;
    let stranger = pi.find("\"timestamp\"").expect("a field that no header has");
    check(lines(&[pi]), refused("SESSION_INVALID_HEADER", 1, stranger + 1));
    let two = HEADER.replace("\"version\":1", "\"version\":2");
    check(lines(&[two]), refused("SESSION_UNSUPPORTED_VERSION", 1, 29));
}

// Requirement: R2, R3, R4, R5, L1, L2
#[test]
fn every_refusal_of_meaning_is_explained() {
    let result = json!({"id": "m", "role": "toolResult", "toolCallId": "c", "toolName": "n", "content": "", "isError": false});
    let result_of = |message: &Value| {
        json!({"type": "entry", "version": 1, "id": "e2", "parentId": "e1", "timestamp": "t", "message": message})
            .to_string()
    };
    let call = json!({"type": "toolCall", "id": "c", "name": "n", "arguments": {}});
    let twice = json!({"id": "m", "role": "assistant", "content": [call, call]});
    let cases = [
        (entry("e1", None, "again"), "SESSION_DUPLICATE_ENTRY_ID"),
        (entry("e2", Some("e9"), ""), "SESSION_PARENT_NOT_FOUND"),
        (entry(" ", None, ""), "SESSION_INVALID_RECORD"),
        (HEADER.to_owned(), "SESSION_INVALID_RECORD"),
        (result_of(&json!({"role": "system"})), "SESSION_INVALID_MESSAGE"),
        (result_of(&result), "SESSION_INVALID_TOOL_LINKAGE"),
        (result_of(&twice), "SESSION_INVALID_TOOL_LINKAGE"),
        (entry("e2", None, "").replace("\"version\":1", "\"version\":null"), "SESSION_UNSUPPORTED_VERSION"),
    ];
    for (line, code) in cases {
        let files = Files::new();
        let content = with_tail(line + "\n");
        let path = files.file(&content);
        let value = finish(harness().args(["verify", "--json"]).arg(&path)).json();
        let column =
            value["column"].as_u64().and_then(|column| usize::try_from(column).ok()).expect("a column");
        check(content, refused(code, 3, column));
    }
}

// Requirement: S2
#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let files = Files::new();
    let directory = files.path("directory");
    fs::create_dir(&directory).expect("a directory");
    let fifo = files.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    let link = files.path("link");
    symlink(files.file(with_tail("")), &link).expect("a link");
    for path in [&directory, &fifo, &link, Path::new("/dev/zero"), Path::new("/dev/null")] {
        check_path(path, refused_whole("SESSION_FILE_CHANGED"), harness);
    }
}

// Requirement: S2, S3
#[test]
fn what_is_not_there_or_stands_in_no_directory_is_refused() {
    let files = Files::new();
    check_path(&files.path("missing"), refused_whole("SESSION_IO"), harness);
    check_path(&files.path("missing/deeper"), refused_whole("SESSION_IO"), harness);
    check_path(&files.path(".."), refused_whole("SESSION_IO"), harness);
    let below_a_file = files.file(with_tail("")).join("x");
    check_path(&below_a_file, refused_whole("SESSION_ROOT_CHANGED"), harness);

    let missing = finish(harness().args(["verify", "--json"]).arg(files.path("missing"))).json();
    assert_eq!((&missing["errno"], &missing["stage"]), (&json!("ENOENT"), &json!("V3")));
}

// Requirement: S2
#[test]
fn a_file_that_may_not_be_read_is_refused() {
    let files = Files::new();
    let path = files.file(with_tail(""));
    fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("a mode");
    let expected = refused_whole("SESSION_IO");
    if !rustix::process::geteuid().is_root() {
        return check_path(&path, expected, harness);
    }
    // Nothing is unreadable for root, so somebody else reads, with a copy of the binary that anybody may run.
    let nobody = 65_534;
    let copy = files.path("session-harness");
    fs::copy(binary(), &copy).expect("a copy");
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).expect("a mode");
    fs::set_permissions(files.directory.path(), Permissions::from_mode(0o755)).expect("a mode");
    let as_nobody = || {
        let mut command = limited(&copy, MEMORY_KIB);
        command.uid(nobody).gid(nobody);
        command
    };
    match as_nobody().arg("--version").status() {
        Ok(status) if status.success() => check_path(&path, expected, as_nobody),
        answer => eprintln!("SKIPPED: no other user can run the binary here: {answer:?}"),
    }
}

// Requirement: F2, F3, F6
#[test]
fn a_file_that_is_no_session_at_all_is_refused() {
    check("", refused("SESSION_INVALID_HEADER", 1, 1));
    check("{", refused("SESSION_INVALID_HEADER", 1, 1));
    check(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0", refused("SESSION_INVALID_JSON", 1, 1));
    check(b"\x89PNG\r\n\x1a\n", refused("SESSION_INVALID_UTF8", 1, 1));
    for seed in 0..8 {
        let mut bytes = vec![0; 100_000];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        let files = Files::new();
        let path = files.file(&bytes);
        for ran in [finish(harness().arg("verify").arg(&path)), finish(harness().arg("tree").arg(&path))] {
            assert_eq!(ran.status, Some(1));
            assert_harmless(ran.out());
            assert_harmless(ran.err());
        }
    }
}

// Requirement: S2, F7
#[test]
fn a_huge_file_is_refused_without_being_read() {
    let files = Files::new();
    let path = files.file(HEADER);
    let three_gibibytes = 3 << 30;
    File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(three_gibibytes))
        .expect("a sparse file");
    check_path(&path, refused_whole("SESSION_FILE_TOO_LARGE"), harness);
}

// Requirement: S2
#[test]
fn a_recovery_marker_is_refused_with_the_way_out() {
    let files = Files::new();
    let path = files.file(with_tail(""));
    fs::hard_link(&path, files.path("session.jsonl.pify-session-recovery")).expect("a marker");
    check_path(&path, refused_whole("SESSION_ROLLBACK_FAILED"), harness);
    let words = finish(harness().arg("verify").arg(&path));
    assert!(
        words.out().contains("inspect says interrupted-before-rename: ")
            && words.out().contains(&format!("`session-harness recover {}`", path.display())),
        "{}",
        words.out()
    );
    let json = finish(harness().args(["verify", "--json"]).arg(&path)).json();
    assert_eq!(json["state"], "interrupted-before-rename");
    assert!(words.out().contains("note: about ") && words.out().contains(".pify-session-recovery\n"));
}

// Requirement: S8
#[test]
fn a_commit_in_flight_is_told_apart_from_a_crash() {
    let files = Files::new();
    let path = files.file(with_tail(""));
    fs::hard_link(&path, files.path("session.jsonl.pify-session-recovery")).expect("a marker");
    let holder = File::open(&path).expect("a file");
    flock(&holder, FlockOperation::LockExclusive).expect("a lock");
    let ran = finish(harness().args(["verify", "--json"]).arg(&path));
    assert_eq!(ran.status, Some(1));
    assert_eq!(
        (&ran.json()["code"], &ran.json()["in_flight"]),
        (&json!("SESSION_ROLLBACK_FAILED"), &json!(true))
    );
    let words = finish(harness().arg("verify").arg(&path));
    assert!(words.out().contains("help: wait for the other process's commit"), "{}", words.out());
}

// Requirement: S2, F5
#[test]
fn neither_command_changes_anything() {
    let files = Files::new();
    let path = files.file(with_tail("{\"torn"));
    fs::set_permissions(&path, Permissions::from_mode(0o444)).expect("a mode");
    let seen = || {
        let names: Vec<_> = fs::read_dir(files.directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        let metadata = fs::metadata(&path).expect("a file");
        (
            names,
            fs::read(&path).expect("a file"),
            metadata.modified().expect("a time"),
            metadata.permissions(),
        )
    };
    let before = seen();
    for command in ["verify", "tree"] {
        assert_eq!(finish(harness().arg(command).arg(&path)).status, Some(0));
    }
    assert_eq!(seen(), before);
}

// Requirement: S2
#[test]
fn a_file_that_changes_meanwhile_gives_a_verdict_all_the_same() {
    let files = Files::new();
    let path = files.file("");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let contents =
                [with_tail("{\"a\":truX}\n"), with_tail("x".repeat(60_000)), lines(&[HEADER]), Vec::new()];
            for content in contents.iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                fs::write(&path, content).expect("a file");
            }
        });
        let _stop = Stop(&done);
        for _ in 0..100 {
            let ran = finish(harness().arg("verify").arg(&path));
            assert!(matches!(ran.status, Some(0 | 1)), "{:?} {}", ran.status, ran.err());
            assert!(ran.out().contains(": ok, ") || ran.out().starts_with("error["), "{}", ran.out());
            assert_harmless(ran.out());
        }
    });
}

/// Says that it is over, also after a failed assertion: or the scope would wait for the writer for ever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const HOSTILE: &str =
    "\u{1b}[2J\u{1b}[5m\u{1b}]0;owned\u{7}\u{9b}5m\u{7f}\u{8}\u{202e}\u{2066}\u{200f}\u{2028}";

#[test]
fn nothing_of_a_file_reaches_the_terminal_raw() {
    // JSON escapes those below 0x20 in a valid file; the others may stand in it as they are.
    let valid = lines(&[HEADER, &entry(HOSTILE, None, HOSTILE), &entry("x", Some(HOSTILE), HOSTILE)]);
    check(&valid, Accepted { entries: 2, torn_tail: 0 });
    let leaf = lines(&[HEADER, &entry(HOSTILE, None, HOSTILE)]);
    check(&leaf, Accepted { entries: 1, torn_tail: 0 });
    let value = {
        let files = Files::new();
        finish(harness().args(["verify", "--json"]).arg(files.file(&leaf))).json()
    };
    assert_eq!(value["leaf"], HOSTILE, "the escapes are those of JSON");

    let json = serde_json::to_string(HOSTILE).expect("JSON");
    let refusals = [
        with_tail(HOSTILE),
        with_tail(format!("{{{json}:truX,{HOSTILE}")),
        with_tail(format!("{{\"{HOSTILE}")),
        with_tail(format!("{{{json}:1,{json}:2}}\n")),
        with_tail(entry("e2", Some(HOSTILE), HOSTILE)),
        with_tail(entry("e2", None, "").replace("\"user\"", &json)),
        with_tail(entry("e2", None, "").replace("\"id\":\"m\"", &format!("{json}:0"))),
        with_tail(entry("e2", None, "").replace("\"version\":1", &format!("\"version\":{json}"))),
        lines(&[HEADER.replace("\"session\"", &json)]),
        [HOSTILE.as_bytes(), b"\xff\n"].concat(),
    ];
    for content in refusals {
        let files = Files::new();
        let path = files.file(&content);
        for arguments in [&["verify"][..], &["verify", "--json"], &["tree"], &["tree", "--json"]] {
            let ran = finish(harness().args(arguments).arg(&path));
            assert_eq!(ran.status, Some(1));
            assert_harmless(ran.out());
            assert_harmless(ran.err());
        }
        let colored = finish(harness().args(["verify", "--color", "always"]).arg(&path));
        assert_only_colors(colored.out());
    }
}

/// Escape sequences that set colours, and no blinking, which no diagnosis asks for.
fn assert_only_colors(text: &str) {
    let mut parts = text.split('\u{1b}');
    assert_harmless(parts.next().expect("a part"));
    let mut colors = 0;
    for part in parts {
        let (parameters, rest) =
            part.strip_prefix('[').and_then(|part| part.split_once('m')).expect("a colour");
        assert!(parameters.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'), "{part:?}");
        assert_ne!(parameters, "5");
        assert_harmless(rest);
        colors += 1;
    }
    assert!(colors > 0, "{text}");
}

#[test]
fn file_names_of_any_bytes_are_shown_safely_and_kept_in_json() {
    let files = Files::new();
    for (name, shown, hex) in [
        (&b"a\xff\xc3b"[..], r"a\xff\xc3b", Some("61ffc362")),
        (b"a\x1b[2Jb", r"a\u{1b}[2Jb", None),
        ("é\u{202e}漢".as_bytes(), r"é\u{202e}漢", None),
        (b"a\nb", r"a\u{a}b", None),
    ] {
        let path = files.path(OsStr::from_bytes(name));
        for (content, status) in [(with_tail(""), 0), (with_tail("x"), 1)] {
            fs::write(&path, content).expect("a file");
            let words = finish(harness().arg("verify").arg(&path));
            assert_eq!(words.status, Some(status));
            assert!(words.out().contains(shown), "{}", words.out());
            assert_harmless(words.out());
            let json = finish(
                harness()
                    .current_dir(files.directory.path())
                    .args(["verify", "--json"])
                    .arg(OsStr::from_bytes(name)),
            );
            assert_eq!(json.json()["file"], String::from_utf8_lossy(name).into_owned());
            assert_eq!(json.json().get("file_hex"), hex.map(Value::from).as_ref());
            assert_harmless(json.out());
        }
    }
    // What clap says of an argument is not from a file, but an argument may be.
    let from = finish(
        harness()
            .arg("tree")
            .arg(files.file(with_tail("")))
            .arg("--from")
            .arg(OsString::from_vec(vec![0xff])),
    );
    assert_eq!(from.status, Some(2));
}

#[test]
fn the_caret_stands_below_the_byte_whatever_is_before_it() {
    for before in [
        "",
        "plain",
        "é",
        "漢字",
        "😀",
        "e\u{301}",
        "\u{1f469}\u{200d}\u{1f52c}",
        "\u{2764}\u{fe0f}",
        "\u{202e}\u{9b}",
    ] {
        for times in [1, 3, 300] {
            let start = format!("{{\"{}\":", before.repeat(times));
            let line = format!("{start}!}}{}", "漢".repeat(300));
            let ran_on = Files::new();
            let ran = finish(harness().arg("verify").arg(ran_on.file(lines(&[HEADER, &line]))));
            let column = format!(":2:{}\n", start.len() + 1);
            assert!(ran.out().contains(&column), "{}", ran.out());
            let shown = ran.out().lines().find(|line| line.starts_with("2 | ")).expect("the line");
            let caret = ran.out().lines().find(|line| line.contains("^ byte")).expect("a caret");
            let left = |line: &str, mark: char| line[..line.find(mark).expect("the mark")].width();
            assert_eq!(left(shown, '!'), left(caret, '^'), "{}", ran.out());
            assert!(shown.width() < 110, "{shown}");
        }
    }
}

#[test]
fn the_json_of_a_verdict_has_exactly_its_fields() {
    let files = Files::new();
    let (good, bad) = (files.path("good"), files.path("bad"));
    fs::write(&good, with_tail("{\"a")).expect("a file");
    fs::write(&bad, with_tail("x")).expect("a file");
    let ran = finish(harness().args(["verify", "--json"]).args([&good, &bad]));
    assert_eq!(ran.status, Some(1));
    let values: Vec<Value> =
        ran.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let offset = with_tail("").len();
    let wanted = [
        json!({"file": good.to_str(), "ok": true, "entries": 1, "leaf": "e1", "torn_tail": 3}),
        json!({"file": bad.to_str(), "ok": false, "code": "SESSION_INVALID_JSON", "line": 3, "column": 1,
               "offset": offset, "requirement": "F4",
               "message": "expected one JSON value, found a byte that none has here",
               "help": "restore the file from a copy; a complete line that is not JSON is damage, not a torn tail"}),
    ];
    assert_eq!(values, wanted);

    let empty = finish(harness().args(["verify", "--json"]).arg(files.file(HEADER)));
    assert_eq!(empty.json()["leaf"], Value::Null);
}

#[test]
fn one_refused_file_among_many_decides_the_status_and_hides_none() {
    let files = Files::new();
    let (good, bad) = (files.path("good"), files.path("bad"));
    fs::write(&good, with_tail("")).expect("a file");
    fs::write(&bad, with_tail("x")).expect("a file");
    let all_good = finish(harness().arg("verify").args([&good, &good]));
    assert_eq!((all_good.status, all_good.out().lines().count()), (Some(0), 2));
    let mixed = finish(harness().arg("verify").args([&good, &bad, &good]));
    assert_eq!(mixed.status, Some(1));
    assert_eq!(mixed.out().matches(": ok, ").count(), 2);
    assert_eq!(mixed.out().matches("error[").count(), 1);
    for wrong in [&["verify"][..], &["tree"], &["tree", "a", "b"], &["verify", "--color", "pink", "a"]] {
        let ran = finish(harness().args(wrong));
        assert_eq!((ran.status, ran.out()), (Some(2), ""), "{wrong:?}");
    }
}

// Requirement: T2, T5
#[test]
fn a_tree_may_be_drawn_from_an_entry_on() {
    let files = Files::new();
    let path = files.file(lines(&[
        HEADER,
        &entry("a", None, "root"),
        &entry("b", Some("a"), "branch"),
        &entry("c", Some("a"), "other"),
    ]));
    let whole = finish(harness().arg("tree").arg(&path));
    assert_eq!(whole.out().lines().count(), 4, "{}", whole.out());
    let part = finish(harness().arg("tree").arg(&path).args(["--from", "b"]));
    assert_eq!(part.status, Some(0));
    assert!(part.out().contains("branch") && part.out().lines().count() == 1, "{}", part.out());
    let json = finish(harness().args(["tree", "--json", "--from", "b"]).arg(&path)).json();
    assert_eq!(
        (&json["leaf"], &json["nodes"][0]["id"], &json["nodes"][1]),
        (&json!("c"), &json!("b"), &Value::Null)
    );

    for unknown in ["nobody", "\u{1b}[2J"] {
        for mode in [&["tree"][..], &["tree", "--json"]] {
            let ran = finish(harness().args(mode).arg(&path).args(["--from", unknown]));
            assert_eq!((ran.status, ran.out()), (Some(2), ""));
            assert_eq!(ran.err().lines().count(), 1, "{}", ran.err());
            assert!(ran.err().contains("no entry has the id"), "{}", ran.err());
            assert_harmless(ran.err());
        }
    }
}

#[test]
fn colour_is_as_asked_for_and_no_color_is_respected() {
    let files = Files::new();
    let path = files.file(with_tail("x"));
    let is_colored = |color: &[&str], variables: &[(&str, &str)]| {
        let verify = finish(harness().arg("verify").args(color).arg(&path).envs(variables.iter().copied()));
        let tree = finish(harness().arg("tree").args(color).arg(&path).envs(variables.iter().copied()));
        assert_eq!(verify.out(), tree.err());
        verify.out().contains('\u{1b}')
    };
    assert!(!is_colored(&[], &[]), "no terminal");
    assert!(is_colored(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!is_colored(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!is_colored(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(is_colored(&["--color", "always"], &[("NO_COLOR", "1")]), "what is asked for goes first");
    assert!(!is_colored(&["--color=auto"], &[("NO_COLOR", "1")]));
}

#[test]
fn a_closed_pipe_ends_either_command_quietly() {
    let files = Files::new();
    let good = files.path("good");
    fs::write(&good, with_tail("")).expect("a file");
    let bad = files.file(with_tail("x"));
    for arguments in
        [["verify", "--json"], ["verify", "--color=never"], ["tree", "--json"], ["tree", "--color=never"]]
    {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let ran = finish(harness().args(arguments).arg(&good).stdout(writer));
        assert_eq!((ran.status, ran.err()), (Some(0), ""), "{arguments:?}");
    }
    for arguments in [&["verify"][..], &["verify", "--json"], &["tree", "--json"]] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let ran = finish(harness().args(arguments).args([&bad]).stdout(writer));
        assert_eq!((ran.status, ran.err()), (Some(1), ""), "a refusal is none the less one");
    }
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let ran = finish(harness().arg("tree").arg(&bad).stderr(writer));
    assert_eq!((ran.status, ran.out()), (Some(1), ""));
}

#[test]
fn the_limit_of_memory_is_one() {
    let files = Files::new();
    let path = files.file(generate::ceiling(Shape::Chain, 1).expect("within reach"));
    let less_than_the_file = 4_000;
    let ran = finish(limited(binary(), less_than_the_file).arg("verify").arg(&path));
    assert_ne!(ran.status, Some(0));
}
