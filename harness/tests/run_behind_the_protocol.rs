//! `run` and `replay` of stores behind the protocol, through the built binary.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const HARNESS: &str = env!("CARGO_BIN_EXE_session-harness");

fn harness(arguments: &[&str]) -> Output {
    Command::new(HARNESS).args(arguments).output().expect("the harness starts")
}

/// The exit status of a run of the conformance suite, and the report.
fn run(subject: &str, filter: &str, more: &[&str]) -> (Option<i32>, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("report.json");
    let report = format!("json={}", path.display());
    let mut arguments = vec!["run", "--quiet", "--subject", subject, "--filter", filter, "--report", &report];
    arguments.extend(more);
    let output = harness(&arguments);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), serde_json::from_str(&text).expect("JSON"))
}

/// The cases of a report by their status.
fn by_status(report: &Value) -> BTreeMap<&str, Vec<&str>> {
    let mut by_status: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for case in report["cases"].as_array().expect("cases") {
        let status = case["status"].as_str().expect("a status");
        by_status.entry(status).or_default().push(case["id"].as_str().expect("an id"));
    }
    by_status
}

fn reference() -> String {
    format!("'{HARNESS}' subject")
}

fn adapter(name: &str) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/adapters").join(name).join("adapter.py");
    format!("python3 '{}'", path.display())
}

/// Says so where a test cannot run.
fn python_is_here() -> bool {
    let is_here = Command::new("python3")
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"])
        .status()
        .is_ok_and(|status| status.success());
    if !is_here {
        // Not with a macro, whose words the test runner keeps to itself.
        let _ = writeln!(io::stderr(), "SKIPPED: what needs python3 of 3.11 or later, which is not here");
    }
    is_here
}

#[test]
fn the_reference_behind_the_protocol_holds_in_every_case_that_plans_no_fault() {
    // A process of its own takes much longer to start than a case to run: a part of them shows that it makes no difference.
    for more in [&["--shard", "1/8"][..], &["--reuse"]] {
        let (status, report) = run(&reference(), "conformance/*", more);
        let by_status = by_status(&report);
        let failed: Vec<_> = by_status
            .iter()
            .filter(|(status, _)| !["pass", "recorded", "unsupported"].contains(status))
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(status, Some(0), "{by_status:?}");
        assert!(by_status["pass"].len() > 100, "{by_status:?}");
    }
}

// Requirement: Q1, Q2, S8
#[test]
fn the_reference_behind_the_protocol_holds_where_calls_and_processes_meet() {
    let (status, report) = run(&reference(), "concurrency/*", &["--seed", "3"]);
    assert_eq!(status, Some(0), "{report:#}");
    assert!(report["summary"]["pass"].as_u64().expect("a number") >= 12, "{report:#}");
    assert!(report["summary"]["concurrency"]["schedules"].as_u64().expect("a number") > 50, "{report:#}");
}

#[test]
fn the_store_in_python_holds() {
    if python_is_here() {
        let (status, report) = run(&adapter("python"), "conformance/*", &["--reuse"]);
        let failed: Vec<&Value> = report["cases"]
            .as_array()
            .expect("cases")
            .iter()
            .filter(|case| !case["evidence"].as_array().is_none_or(Vec::is_empty))
            .collect();
        assert!(failed.is_empty() && status == Some(0), "{failed:#?}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_keeps_what_it_can_be_asked_for_and_the_report_says_what_does_not_see_it() {
    let of_logs =
        ["damaged-middle", "parent-cycle", "torn-tail"].map(|name| format!("conformance/any-store/{name}"));
    for (subject, least) in [("sqlite".to_owned(), 15), (format!("'{HARNESS}' subject --store sqlite"), 20)] {
        let (status, report) = run(&subject, "conformance/any-store/*", &[]);
        let by_status = by_status(&report);
        let statuses: Vec<&str> = by_status.keys().copied().collect();
        assert_eq!((status, &statuses[..]), (Some(0), &["pass", "unsupported"][..]), "{report:#}");
        assert!(by_status["pass"].len() >= least, "{report:#}");
        assert!(of_logs.iter().all(|id| by_status["unsupported"].contains(&id.as_str())), "{report:#}");
        let unseen: Vec<&Value> =
            report["not_seen_by"].as_array().into_iter().flatten().map(|it| &it["suite"]).collect();
        assert_eq!(unseen, ["faults", "crash"], "{report:#}");
    }
    let (status, report) = run("sqlite", "conformance/store-append/*", &[]);
    assert_eq!(
        (status, report["summary"]["unsupported"] == report["cases"].as_array().map_or(0, Vec::len)),
        (Some(0), true)
    );
    let output = harness(&["run", "--subject", "sqlite", "--filter", "conformance/any-store/loaded-again"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("not seen by faults: ") && told.contains("not seen by crash: "), "{told}");
    assert!(told.contains("power cuts and missing fsyncs are not tested for this store"), "{told}");
    let output = harness(&["run", "--subject", "sqlite", "--filter", "conformance/any-store/killed-*"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("holds in 1 case; 3 do not apply"), "{told}");
    let output = harness(&["run", "faults", "--subject", "sqlite"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn cases_of_any_store_are_listed_and_replayed_in_this_process() {
    let output = harness(&["list", "conformance", "--filter", "conformance/any-store/*"]);
    let ids = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(ids.lines().count() >= 30, "{ids}");
    for id in ["conformance/any-store/full-disk", "conformance/any-store/parent-cycle"] {
        assert!(ids.lines().any(|line| line == id), "{ids}");
        let output = harness(&["replay", id]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let (status, report) = run("reference", "conformance/any-store/loaded-again", &[]);
    assert_eq!((status, &report["cases"][0]["status"]), (Some(0), &Value::from("pass")), "{report:#}");
}

#[test]
fn output_after_the_last_answer_of_a_process_breaks_the_protocol() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("adapter.sh");
    let noise = r#"s/^{"id":5,"ok":{"header".*/&\nnoise/"#;
    fs::write(&path, format!("'{HARNESS}' subject | sed -u '{noise}'\n")).expect("a script");
    let subject = format!("sh {}", path.display());
    let (status, report) = run(&subject, "conformance/any-store/refused-append", &[]);
    let seen = report["cases"][0]["evidence"][0]["seen"].as_str().unwrap_or_default();
    assert!(status == Some(4) && seen.contains("nobody asked for") && seen.contains("noise"), "{report:#}");
}

#[test]
fn a_failure_shows_the_end_of_standard_error_and_replays() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("adapter.sh");
    let lines = "while read -r line; do case \"$line\" in *append*) echo out of eggs >&2; exit 5;; *) echo \"$line\";; esac; done";
    fs::write(&path, format!("{lines} | '{HARNESS}' subject\n")).expect("a script");
    let subject = format!("sh {}", path.display());
    let id = "conformance/any-store/loaded-again";
    let (status, report) = run(&subject, id, &[]);
    let case = &report["cases"][0];
    assert_eq!((status, &case["status"]), (Some(1), &Value::from("crash")), "{case:#}");
    let seen = case["evidence"][0]["seen"].as_str().expect("evidence");
    assert!(seen.contains("after `append`") && seen.contains("  | out of eggs"), "{seen}");
    let replay = case["replay"].as_str().expect("a command");
    let words = replay.strip_prefix("session-harness ").expect("a command of this tool");
    let output = Command::new("sh").arg("-c").arg(format!("'{HARNESS}' {words}")).output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(id) && told.contains("out of eggs"), "{told}");
}

#[test]
fn a_subject_that_breaks_the_protocol_ends_the_run_with_a_status_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("adapter.sh");
    fs::write(&path, format!("'{HARNESS}' subject | sed -u 's/\"entry\"/\"record\"/'\n")).expect("a script");
    let subject = format!("sh {}", path.display());
    let (status, report) = run(&subject, "conformance/any-store/loaded-again", &[]);
    assert_eq!(status, Some(4));
    let seen = report["cases"][0]["evidence"][0]["seen"].as_str().expect("evidence");
    assert!(seen.contains("broke the protocol: the answer to `append`: `entry` is missing"), "{seen}");

    for nobody in ["no-such-adapter", "sh -c 'exit 3'"] {
        let output = harness(&["run", "--subject", nobody]);
        assert_eq!(output.status.code(), Some(4), "{nobody}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{nobody}");
    }
}

#[test]
fn a_store_that_takes_any_file_is_violated_and_breaks_no_protocol() {
    if !python_is_here() {
        return;
    }
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/any_store_defects/store.py");
    let subject = format!("python3 '{}' takes-any-file", store.display());
    let (status, report) = run(&subject, "conformance/any-store/another-kind", &[]);
    let seen = report["cases"][0]["evidence"][0]["seen"].as_str().unwrap_or_default();
    assert!(status == Some(1) && seen.contains("accepted a file of another kind"), "{report:#}");
}

#[test]
fn suites_that_disturb_system_calls_are_not_for_a_process() {
    let output = harness(&["run", "faults", "--subject", &reference()]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("`faults` works only for stores inside the harness"), "{told}");
    assert!(told.contains("run conformance --subject ") && told.contains(HARNESS), "{told}");
}
