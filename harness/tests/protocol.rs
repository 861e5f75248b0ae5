//! The protocol's text, its schema, and both ends of it, held against each other.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use jsonschema::Validator;
use serde_json::{Value, json};
use tempfile::TempDir;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn documentation() -> String {
    fs::read_to_string(repository().join("harness/PROTOCOL.md")).expect("the protocol's text")
}

/// The only block of that text which is marked with this language.
fn block(language: &str) -> String {
    let text = documentation();
    let (_, rest) = text.split_once(&format!("```{language}\n")).expect("the beginning of the block");
    let (block, rest) = rest.split_once("```").expect("its end");
    assert!(!rest.contains(&format!("```{language}\n")), "two blocks of {language}");
    block.to_owned()
}

/// Requests and answers of the conversation in the text.
fn conversation() -> Vec<(String, String)> {
    let block = block("text");
    let lines: Vec<&str> = block.lines().collect();
    let pairs = lines.chunks(2).map(|pair| {
        let request = pair[0].strip_prefix("> ").expect("a request");
        let answer = pair.get(1).and_then(|line| line.strip_prefix("< ")).expect("its answer");
        (request.to_owned(), answer.to_owned())
    });
    pairs.collect()
}

fn subject(directory: &Path, input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_session-harness"))
        .arg("subject")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the reference starts");
    // Less than a pipe takes: it never waits for what it answers to be read.
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn adapter_check(command: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_session-harness"))
        .args(["adapter", "check", "--subject", command])
        .output()
        .expect("the check starts");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

/// A subject that answers as the reference does, but for what a `sed` script changes.
fn altered(directory: &TempDir, script: &str) -> String {
    let path = directory.path().join("altered.sh");
    let reference = env!("CARGO_BIN_EXE_session-harness");
    fs::write(&path, format!("'{reference}' subject | sed -u -E '{script}'\n")).expect("a script");
    format!("sh {}", path.display())
}

struct Schema(Value);

impl Schema {
    fn read() -> Schema {
        let path = repository().join("corpus/schema/protocol.schema.json");
        let text = fs::read_to_string(path).expect("the schema");
        Schema(serde_json::from_str(&text).expect("JSON"))
    }

    fn part(&self, name: &str) -> Validator {
        let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": self.0["$defs"] });
        jsonschema::validator_for(&schema).expect("a schema")
    }

    fn expect(&self, name: &str, value: &Value) {
        let wrong: Vec<String> = self.part(name).iter_errors(value).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{value} is no {name}: {}", wrong.join("; "));
    }
}

#[test]
fn the_conversation_in_the_text_is_what_the_reference_answers() {
    let directory = tempfile::tempdir().expect("a directory");
    let (requests, expected): (Vec<_>, Vec<_>) = conversation().into_iter().unzip();
    let input = requests.join("\n") + "\n";
    let output = subject(directory.path(), &input);
    let answers = String::from_utf8(output.stdout).expect("text");
    assert_eq!(answers, expected.join("\n") + "\n");
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn the_schema_describes_every_line_of_the_conversation() {
    let schema = Schema::read();
    let mut calls = Vec::new();
    for (request, answer) in conversation() {
        let request: Value = serde_json::from_str(&request).expect("JSON");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        schema.expect("request", &request);
        schema.expect("answer", &answer);
        let call = request["call"].as_str().expect("a name").to_owned();
        if let Some(ok) = answer.get("ok") {
            schema.expect(&format!("ok-{call}"), ok);
        }
        calls.push(call);
    }
    for call in [
        "hello",
        "create",
        "load",
        "append",
        "tree",
        "moveTo",
        "treeAppend",
        "active",
        "concurrent",
        "inspect",
        "recover",
        "close",
    ] {
        assert!(calls.iter().any(|one| one == call), "{call} is not in the conversation");
    }
}

#[test]
fn the_schema_refuses_what_the_harness_refuses() {
    let schema = Schema::read();
    let (request, answer) = (schema.part("request"), schema.part("answer"));
    for wrong in [
        json!({ "id": 1, "call": "fly" }),
        json!({ "id": 1, "call": "flush" }),
        json!({ "call": "flush", "store": "s" }),
        json!({ "id": 1, "call": "append", "store": "s", "message": 1 }),
        json!({ "id": 1, "call": "hello" }),
        json!({ "id": 1, "call": "concurrent", "calls": [{ "call": "hello", "protocol": 1 }] }),
    ] {
        assert!(!request.is_valid(&wrong), "{wrong}");
    }
    for wrong in [
        json!([1]),
        json!({ "ok": {} }),
        json!({ "id": "1", "ok": {} }),
        json!({ "id": 1 }),
        json!({ "id": 1, "ok": null }),
        json!({ "id": 1, "ok": {}, "unsupported": "why" }),
        json!({ "id": 1, "error": { "message": "no code" } }),
    ] {
        assert!(!answer.is_valid(&wrong), "{wrong}");
    }
    assert!(request.is_valid(&json!({ "id": 1, "call": "flush", "store": "s", "later": [] })));
    assert!(answer.is_valid(&json!({ "id": 1, "ok": { "later": 1 }, "took": 5 })));
}

#[test]
fn the_reference_passes_its_own_check() {
    let (status, told) = adapter_check(&format!("{} subject", env!("CARGO_BIN_EXE_session-harness")));
    assert_eq!(status, Some(0), "{told}");
    assert!(!told.contains("absent") && told.contains("the adapter speaks the protocol"), "{told}");
    let next = format!("--subject '{} subject'", env!("CARGO_BIN_EXE_session-harness"));
    assert!(told.trim_end().ends_with(&next), "{told}");
}

#[test]
fn the_smallest_adapter_of_the_text_passes_the_check() {
    if !is_here("python3") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("adapter.py"), block("python")).expect("a file");
    let (status, told) = adapter_check(&format!("python3 {}", directory.path().join("adapter.py").display()));
    assert_eq!(status, Some(0), "{told}");
    for absent in ["tree", "factories", "concurrent", "recover"] {
        assert!(told.contains(&format!("`{absent}` is not among its capabilities")), "{told}");
    }
}

#[test]
fn the_check_names_the_first_thing_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    for (change, status, step, next) in [
        ("s/\"name\":\"reference\",//", 4, "broken  hello", "missing field `name`"),
        ("s/\"sessionId\"//; s/session-of-the-check/other/", 1, "wrong   create", "`sessionId`"),
        ("s/(\"entry\":.*\"parentId\":)\"first\"/\\1null/", 1, "wrong   append", "`parentId` is None"),
        ("s/time-2/time-3/", 1, "wrong   injected ids", "\"time-2\""),
        ("s/U\\+2028/U+2029/", 1, "wrong   text of any kind", "must be"),
        ("s/SESSION_PARENT_NOT_FOUND/NO_PARENT/", 1, "wrong   a parent that is not there", "NO_PARENT"),
        ("s/SUBJECT_USAGE/USAGE/", 1, "wrong   a name that was never given", "SUBJECT_USAGE"),
        ("s/\"state\":\"clean\"/\"state\":\"fine\"/", 1, "wrong   inspect", "\"clean\""),
        ("s/,\"leaf\":\"[^\"]*\"//", 4, "broken  tree", "`leaf` is missing"),
        ("s/\"id\":4,/\"id\":40,/", 4, "broken  append", "the id is 40"),
        ("s/,\"factories\"//", 0, "absent  injected ids", "without factories"),
    ] {
        let (given, told) = adapter_check(&altered(&directory, change));
        assert_eq!(given, Some(status), "{change}: {told}");
        assert!(told.contains(&format!("  {step}")), "{change}: {told}");
        assert!(told.contains(next), "{change}: {told}");
    }
}

#[test]
fn a_command_line_without_a_command_is_wrong_usage() {
    for command in ["", "  ", "python3 'adapter.py"] {
        let output = Command::new(env!("CARGO_BIN_EXE_session-harness"))
            .args(["adapter", "check", "--subject", command])
            .output()
            .expect("the check starts");
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn the_reference_answers_what_it_can_of_a_wrong_request() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = subject(
        directory.path(),
        "{\"id\":1,\"call\":\"fly\"}\n{\"id\":2,\"call\":\"entries\",\"store\":\"s\"}\n",
    );
    let answers = String::from_utf8(output.stdout).expect("text");
    let codes: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["error"]["code"].clone())
        .collect();
    assert_eq!(codes, ["SUBJECT_USAGE", "SUBJECT_USAGE"]);
    let output = subject(directory.path(), "not a request\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && !output.stderr.is_empty());
}

/// Says so where a test cannot run.
fn is_here(program: &str) -> bool {
    let is_here = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_here {
        // Not with a macro, whose words the test runner keeps to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: what is written in {program}, which is not here");
    }
    is_here
}
