//! Reports for tests: of real runs, through the built binary, and one made by hand that has everything.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use session_harness::report::{
    CaseReport, Cell, Evidence, Level, Report, Row, SCHEMA, Selection, Status, Summary, Tally,
};
use session_harness::suite::Suite;

pub(crate) fn harness(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_session-harness")).args(arguments).output().expect("the binary starts")
}

/// Runs with these arguments and `--report json=PATH`; gives the exit status and the report.
pub(crate) fn run_into(path: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let target = format!("json={}", path.display());
    let mut all = vec!["run", "--quiet", "--report", target.as_str()];
    all.extend(arguments);
    let output = harness(&all);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

/// The exit status and the report of a run.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    run_into(&directory.path().join("report.json"), arguments)
}

/// Without what differs from one run to the next: how long it took.
pub(crate) fn timeless(mut report: Value) -> Value {
    let summary = report["summary"].as_object_mut().expect("a summary");
    summary.remove("duration_ms").expect("a duration");
    for case in report["cases"].as_array_mut().expect("cases") {
        case.as_object_mut().and_then(|case| case.remove("duration_ms")).expect("a duration");
    }
    report
}

/// Arguments of a run that has every suite, with families of faults of calls, of loads and of roll backs, and takes a
/// tenth of the time of the whole.
pub(crate) const OF_EVERY_SUITE: &[&str] = &[
    "--filter",
    "conformance/*",
    "--filter",
    "faults/create/*",
    "--filter",
    "faults/load/*",
    "--filter",
    "faults/roll-back/*",
    "--filter",
    "crash/*",
];

/// The status of each case of a report by its id.
pub(crate) fn status<'a>(report: &'a Value, id: &str) -> &'a str {
    let cases = report["cases"].as_array().expect("cases");
    let case = cases.iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("{id} is not there"));
    case["status"].as_str().expect("a status")
}

/// Text that breaks out of what is not escaped: of XML, of HTML, of a terminal.
pub(crate) const HOSTILE: &str =
    "]]><script>alert('1')</script>&amp;\"\u{0}\u{8}\u{1b}[31m\u{b}\u{fffe}\u{202e}</pre>é🦀";

/// A report with a case of every status, each of which has hostile text wherever text may be.
pub(crate) fn sample() -> Report {
    let case = |name: &str, status| CaseReport {
        status,
        title: Some(format!("{HOSTILE} {name}")),
        reason: Some(format!("{HOSTILE} reason")),
        ..CaseReport::new(
            Suite::Faults,
            format!("faults/append/{name}{HOSTILE}"),
            &["S5", "F9.bom"],
            "reference",
        )
    };
    let evidence = Evidence {
        promise: Some("acknowledged-survive".to_owned()),
        seen: format!("seen {HOSTILE}"),
        state: None,
        further: 3,
    };
    let failed = |name: &str, status| CaseReport {
        evidence: vec![evidence.clone()],
        schedule: vec![format!("call {HOSTILE}"), "rename  <- fault".to_owned()],
        stage: Some("C8".to_owned()),
        disturbance: Some(Row::FailsAfter),
        ..case(name, status)
    };
    let cases = vec![
        case("pass", Status::Pass),
        failed("violation", Status::Violation),
        CaseReport {
            answer: Some(format!("answer{HOSTILE}")),
            level: Level::Choice,
            ..case("recorded", Status::Recorded)
        },
        case("unsupported", Status::Unsupported),
        case("skipped", Status::Skipped),
        failed("known", Status::ExpectedFailure),
        failed("timeout", Status::Timeout),
        failed("crash", Status::Crash),
        failed("harness-error", Status::HarnessError),
        CaseReport { unexpected: Some(format!("expected {HOSTILE}")), ..case("surprise", Status::Pass) },
    ];
    let cuts_by_stage = [("C8".to_owned(), Cell { cases: 12, failed: 5 })].into();
    let tally = Tally { faults_fired: 10, cuts_by_stage, ..Tally::default() };
    Report {
        schema: SCHEMA,
        tool: "session-harness".to_owned(),
        version: "0.1.0".to_owned(),
        subject: format!("subject {HOSTILE}"),
        seed: 7,
        profile: "posix".to_owned(),
        selection: Selection { suites: vec![Suite::Faults], ..Selection::default() },
        partial: None,
        not_seen_by: Vec::new(),
        summary: Summary::new(&cases, tally, None, 1_234),
        unmatched_expectations: vec![format!("faults/gone{HOSTILE}")],
        cases,
        states: None,
    }
}
