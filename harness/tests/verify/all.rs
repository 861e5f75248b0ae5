//! `verify --all`: what else is wrong, once each, and never more than a person can read.

use super::*;

fn objects(ran: &Ran) -> Vec<Value> {
    ran.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn all(path: &Path) -> (Ran, Vec<Value>) {
    let words = finish(harness().args(["verify", "--all"]).arg(path));
    let json = finish(harness().args(["verify", "--all", "--json"]).arg(path));
    assert_eq!((words.status, words.err()), (json.status, json.err()));
    assert_harmless(words.out());
    assert_harmless(json.out());
    let objects = objects(&json);
    (words, objects)
}

// Requirement: F7
#[test]
fn every_problem_follows_the_verdict_in_the_order_of_the_file() {
    let files = Files::new();
    let path = files.file(lines(&[
        HEADER,
        &entry("a", None, "x").replace("\"user\"", "\"system\""),
        &entry("b", Some("a"), "x"),
        &entry("b", None, "again"),
        "{\"cut",
        "{\"cut",
        "{\"cut",
        &entry("c", Some("lost with a line above"), "x"),
        &entry("d", Some("b"), "x").replace("\"timestamp\"", "\"time\""),
    ]));
    let (words, objects) = all(&path);
    let verdict = finish(harness().args(["verify", "--json"]).arg(&path)).json();
    let mut first = objects[0].clone();
    assert_eq!(first.as_object_mut().and_then(|object| object.remove("problems")), Some(json!(6)));
    assert_eq!(first, verdict);
    let told: Vec<_> = objects[1..]
        .iter()
        .map(|object| {
            assert!(object.get("ok").is_none() && object["file"] == verdict["file"], "{object}");
            (object["problem"].as_u64(), object["line"].as_u64(), object["code"].as_str())
        })
        .collect();
    let wanted = [
        (2, "SESSION_INVALID_MESSAGE"),
        (4, "SESSION_DUPLICATE_ENTRY_ID"),
        (5, "SESSION_INVALID_JSON"),
        (6, "SESSION_INVALID_JSON"),
        (7, "SESSION_INVALID_JSON"),
        (9, "SESSION_INVALID_RECORD"),
    ];
    let wanted =
        wanted.iter().zip(1..).map(|((line, code), number)| (Some(number), Some(*line), Some(*code)));
    assert_eq!(told, wanted.collect::<Vec<_>>());

    let lines: Vec<&str> = words.out().lines().filter(|line| line.trim_start().starts_with("--> ")).collect();
    let ends: Vec<&str> =
        lines.iter().filter_map(|line| line.split("jsonl:").nth(1)?.split(':').next()).collect();
    assert_eq!(ends, ["5", "2", "4", "9"], "the verdict's first, and lines of one kind once");
    assert!(words.out().contains("so are the lines after it, up to line 7"), "{}", words.out());
    assert!(words.out().ends_with("session.jsonl: refused, 6 problems\n"), "{}", words.out());
}

// Requirement: F7
#[test]
fn an_accepted_file_has_no_problems_and_a_refused_one_at_least_its_own() {
    let files = Files::new();
    let good = files.file(with_tail("{\"torn"));
    let (words, objects) = all(&good);
    assert_eq!((words.status, objects.len(), &objects[0]["problems"]), (Some(0), 1, &json!(0)));
    assert_eq!(words.out(), finish(harness().arg("verify").arg(&good)).out());

    for path in [files.path("missing"), files.directory.path().to_owned()] {
        let (words, objects) = all(&path);
        assert_eq!((words.status, objects.len(), &objects[0]["problems"]), (Some(1), 2, &json!(1)));
        assert_eq!(objects[0]["code"], objects[1]["code"]);
        assert!(words.out().ends_with(": refused, 1 problem\n"), "{}", words.out());
    }
}

// Requirement: S2, F7
#[test]
fn what_a_marker_hides_is_told_too() {
    let files = Files::new();
    let path = files.file(with_tail("x\n"));
    fs::write(files.path("session.jsonl.pify-session-recovery"), with_tail("")).expect("a marker");
    let (words, objects) = all(&path);
    let codes: Vec<_> = objects.iter().map(|object| object["code"].as_str()).collect();
    let wanted = ["SESSION_ROLLBACK_FAILED", "SESSION_ROLLBACK_FAILED", "SESSION_INVALID_JSON"];
    assert_eq!(codes, wanted.map(Some));
    assert_eq!(objects[0]["state"], "path-damaged");
    for text in [words.out(), finish(harness().arg("verify").arg(&path)).out()] {
        assert!(text.contains("inspect says path-damaged") && text.contains("session.jsonl:3:1"), "{text}");
    }
}

// Requirement: F7
#[test]
fn what_follows_from_one_cause_is_only_counted() {
    let files = Files::new();
    let text =
        String::from_utf8(lines(&[HEADER, &entry("a", None, "é"), &entry("b", None, "漢")])).expect("text");
    let path = files.file(
        [&b"\xff\xfe"[..], &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()].concat(),
    );
    let (words, objects) = all(&path);
    assert_eq!(words.out().matches("error[").count(), 1, "{}", words.out());
    assert!(
        words.out().contains("problems; ") && words.out().contains(" of them probably follow from that\n")
    );
    assert!(objects.len() > 3);
}

// Requirement: F7, S2
#[test]
fn garbage_of_any_kind_is_told_in_few_words() {
    let mut random = vec![0; FILE_LIMIT];
    fastrand::Rng::with_seed(7).fill(&mut random);
    let line_by_line = |line: &[u8]| line.repeat(FILE_LIMIT / line.len());
    let cases = [
        random,
        line_by_line(b"\n"),
        line_by_line(b"\xff\n"),
        line_by_line(b"?\n\n"),
        line_by_line(b"{\"id\":\"\x1b[2J\n"),
    ];
    for content in cases {
        let files = Files::new();
        let (words, objects) = all(&files.file(content));
        assert_eq!(words.status, Some(1));
        assert!(words.out().len() < 64 * 1024, "{}", words.out().len());
        assert!(objects.len() <= ENTRY_LIMIT + 3, "{}", objects.len());
    }
}
