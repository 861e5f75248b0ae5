//! What is run, how it ends, and what is expected of it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use reports::{harness, run, run_into, status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use session_harness::call::{Call, Reply};
use session_harness::crash::Profile;
use session_harness::expectations::Expectations;
use session_harness::glob::Filter;
use session_harness::report::{Report, Status, Verdict};
use session_harness::runner::{self, Request, Watcher};
use session_harness::subject::{Candidate, REFERENCE, Subject};
use session_harness::suite::Suite;
use session_harness::world::WorldOps;

mod reports;

/// A case that passes, and one that records a choice.
const PASSES: &str = "conformance/store-append/after-a-torn-tail";
const TOPIC: &str = "conformance/store-append/*";

/// A store that answers everything in the same way.
#[derive(Debug)]
struct Always(fn() -> Reply);

impl Candidate for Always {
    fn name(&self) -> String {
        "always".to_owned()
    }

    fn start(&self, _: WorldOps) -> Box<dyn Subject> {
        Box::new(Always(self.0))
    }

    fn descriptors(&self) -> usize {
        0
    }

    fn names_causes(&self) -> bool {
        false
    }
}

impl Subject for Always {
    fn call(&mut self, _: &Call) -> Reply {
        (self.0)()
    }
}

struct Nobody;

impl Watcher for Nobody {
    fn begins(&self, _: Suite, _: usize) {}
    fn advances(&self) {}
    fn ends(&self) {}
}

fn request(candidate: &'static dyn Candidate, filter: &str) -> Request {
    Request {
        candidate,
        remote: None,
        suites: vec![Suite::Conformance],
        filter: Filter(vec![filter.to_owned()]),
        shard: None,
        profile: Profile::Posix,
        depth: 1,
        jobs: 2,
        seed: 0,
        timeout: None,
        fail_fast: false,
        expectations: Expectations::default(),
    }
}

fn run_here(request: &Request) -> Report {
    runner::run(request, &Nobody, &AtomicBool::new(false)).expect("a run")
}

#[test]
fn each_way_to_end_is_told_from_the_others() {
    static PANICS: Always = Always(|| Reply::Panicked("out of eggs".to_owned()));
    static EXITS: Always = Always(|| Reply::Exited("signal 9".to_owned()));
    static IS_SILENT: Always = Always(|| Reply::Timeout);
    static CANNOT: Always = Always(|| Reply::Unsupported("no files here".to_owned()));
    static BREAKS_PROTOCOL: Always = Always(|| Reply::Protocol("not JSON".to_owned()));
    for (candidate, status, verdict) in [
        (&PANICS, Status::Crash, Verdict::Violated),
        (&EXITS, Status::Crash, Verdict::Violated),
        (&IS_SILENT, Status::Timeout, Verdict::Violated),
        (&CANNOT, Status::Unsupported, Verdict::Holds),
        (&BREAKS_PROTOCOL, Status::Violation, Verdict::Violated),
    ] {
        let report = run_here(&request(candidate, PASSES));
        let ends: Vec<Status> = report.cases.iter().map(|case| case.status).collect();
        assert_eq!((ends.as_slice(), report.verdict()), (&[status][..], verdict), "{candidate:?}");
        assert_eq!(report.cases[0].fails(), !report.cases[0].schedule.is_empty());
    }
    let good = run_here(&request(REFERENCE, "conformance/*"));
    assert!(good.summary.pass > 100 && good.summary.recorded > 0, "{:?}", good.summary);
    assert_eq!(good.summary.pass + good.summary.recorded, good.cases.len());
    assert_eq!(good.verdict(), Verdict::Holds);
}

#[test]
fn an_interrupted_run_reports_what_was_done() {
    let report = runner::run(&request(REFERENCE, TOPIC), &Nobody, &AtomicBool::new(true)).expect("a run");
    assert_eq!((report.cases.len(), report.verdict()), (0, Verdict::Incomplete));
}

#[test]
fn fail_fast_ends_at_the_first_failure_whatever_the_number_of_threads() {
    let fails = |jobs: &str| {
        run(&["conformance", "--filter", TOPIC, "--timeout", "0ms", "--fail-fast", "--jobs", jobs])
    };
    for jobs in ["1", "2"] {
        let (status, report) = fails(jobs);
        assert_eq!((status, &report["partial"]), (Some(1), &json!("fail_fast")));
        assert_eq!(report["cases"].as_array().map(Vec::len), Some(1));
        assert_eq!(report["summary"]["timeout"], 1);
    }
}

#[test]
fn a_known_failure_does_not_fail_the_run_and_stays_known() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("expected.json");
    let list = list.to_str().unwrap();
    let select = ["conformance", "--filter", TOPIC, "--timeout", "0ms"];
    let (exit, _) = run(&[&select[..], &["--write-expect", list]].concat());
    assert_eq!(exit, Some(1));
    let again = directory.path().join("again.json");
    let again = again.to_str().unwrap();
    let (exit, report) = run(&[&select[..], &["--expect", list, "--write-expect", again]].concat());
    assert_eq!((exit, &report["summary"]["timeout"]), (Some(0), &json!(0)));
    assert!(report["summary"]["expected_failure"].as_u64().unwrap() > 5);
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(list), read(again));
}

#[test]
fn what_is_expected_and_not_true_any_more_fails_the_run() {
    let choice = choice();
    let answer = choice["answer"].as_str().unwrap();
    let id = choice["id"].as_str().unwrap();
    for (entry, exit, unexpected) in [
        (json!({"case": id, "expect": "answer", "answer": answer, "reason": "so it is"}), 0, 0),
        (json!({"case": id, "expect": "answer", "answer": "another", "reason": "so it was"}), 1, 1),
        (json!({"case": PASSES, "expect": "violation", "reason": "a defect that is mended"}), 1, 1),
        (json!({"case": PASSES, "expect": "crash", "reason": "a defect that is mended"}), 1, 1),
        (json!({"case": PASSES, "expect": "answer", "answer": "any", "reason": "no choice"}), 1, 1),
        (json!({"case": "conformance/gone", "expect": "violation", "reason": "renamed"}), 1, 0),
        (json!({"case": "conformance/gone*", "expect": "skip", "reason": "renamed"}), 1, 0),
        (json!({"case": "crash/gone", "expect": "skip", "reason": "of a suite that is not run"}), 0, 0),
    ] {
        let (status, report) = run_expecting(&json!([entry]), &["conformance"]);
        assert_eq!((status, &report["summary"]["unexpected"]), (Some(exit), &json!(unexpected)), "{entry}");
        let in_vain = report["unmatched_expectations"].as_array().map_or(0, Vec::len);
        assert_eq!(in_vain, usize::from(exit == 1 && unexpected == 0), "{entry}");
    }
}

#[test]
fn what_is_to_be_skipped_is_not_run_but_reported() {
    for (id, suite) in [
        (PASSES, "conformance"),
        ("faults/create/K5/link@temporary>session#1=EIO_after,once", "faults"),
        ("crash/posix/new,append", "crash"),
    ] {
        let entries = json!([{"case": id, "expect": "skip", "reason": "hangs this machine"}]);
        let glob = format!("*{id}*");
        let (exit, report) = run_expecting(&entries, &[suite, "--depth", "1", "--filter", &glob]);
        assert_eq!((exit, status(&report, id)), (Some(0), "skipped"), "{id}");
    }
}

#[test]
fn a_list_of_expectations_that_cannot_be_used_is_wrong_usage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("expected.json");
    for text in [
        "",
        "{}",
        r#"{"schema":2,"cases":[]}"#,
        r#"{"schema":1,"cases":[{"case":"x","expect":"violation"}]}"#,
        r#"{"schema":1,"cases":[{"case":"x","expect":"violation","reason":" "}]}"#,
        r#"{"schema":1,"cases":[{"case":"x","expect":"answer","reason":"y"}]}"#,
        r#"{"schema":1,"cases":[{"case":"x","expect":"skip","answer":"z","reason":"y"}]}"#,
        r#"{"schema":1,"cases":[{"case":"x","expect":"hope","reason":"y"}]}"#,
        r#"{"schema":1,"cases":[{"case":"x","expect":"skip","reason":"y","also":1}]}"#,
    ] {
        std::fs::write(&path, text).unwrap();
        let output = harness(&["run", "--expect", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("expectations"), "{text}");
    }
    assert_eq!(harness(&["run", "--expect", "/nonexistent"]).status.code(), Some(2));
}

#[test]
fn a_signal_ends_the_run_with_its_reports_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_session-harness"))
        .args(["run", "crash", "--depth", "4", "--jobs", "1", "--report"])
        .arg(format!("json={}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut begun).unwrap();
    assert!(begun.starts_with("crash: "), "{begun}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("interrupted after"));
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(report["partial"], "interrupted");
}

#[test]
fn colours_are_there_when_asked_for_and_only_then() {
    let select = ["run", "conformance", "--filter", PASSES];
    let colour = |more: &[&str]| harness(&[&select[..], more].concat()).stdout.contains(&0x1b);
    assert!(colour(&["--color", "always"]));
    assert!(!colour(&["--color", "never"]) && !colour(&[]));
}

#[test]
fn a_part_that_holds_nothing_of_a_filter_is_no_failure() {
    let parts = (1..=3).map(|number| {
        let part = format!("{number}/3");
        let (exit, report) = run(&["conformance", "--filter", PASSES, "--shard", &part]);
        assert_eq!(exit, Some(0));
        report["cases"].as_array().map_or(0, Vec::len)
    });
    assert_eq!(parts.sum::<usize>(), 1);
}

/// A case that records a choice.
fn choice() -> Value {
    let (_, report) = run(&["conformance"]);
    let cases = report["cases"].as_array().unwrap();
    cases.iter().find(|case| case["status"] == "recorded").unwrap().clone()
}

fn run_expecting(entries: &Value, arguments: &[&str]) -> (Option<i32>, Value) {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("expected.json");
    std::fs::write(&list, json!({"schema": 1, "cases": entries}).to_string()).unwrap();
    let path: &Path = &directory.path().join("report.json");
    run_into(path, &[arguments, &["--expect", list.to_str().unwrap()]].concat())
}
