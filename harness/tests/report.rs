//! The machine-readable report and the commands that it prints, through the built binary.

use std::collections::HashSet;
use std::process::Command;
use std::sync::LazyLock;

use reports::{OF_EVERY_SUITE, harness, timeless};
use serde_json::Value;

mod reports;

/// The report of a run that holds.
fn report(arguments: &[&str]) -> Value {
    let (status, report) = reports::run(arguments);
    assert_eq!(status, Some(0));
    report
}

/// A run of every suite, made once for the tests that only look at it.
static WHOLE: LazyLock<Value> = LazyLock::new(|| report(&[OF_EVERY_SUITE, &["--jobs", "2"]].concat()));

fn of_suite(report: &Value, suite: &str) -> Vec<Value> {
    let cases = report["cases"].as_array().unwrap().iter();
    cases.filter(|case| case["suite"] == suite).cloned().collect()
}

#[test]
fn two_runs_give_the_same_report_whatever_the_number_of_threads() {
    let crash = |depth: &str, jobs: &str| {
        timeless(report(&["crash", "--depth", depth, "--jobs", jobs, "--filter", "*torn*", "--seed", "7"]))
    };
    let one = crash("2", "1");
    assert_eq!(one, crash("2", "2"));
    assert_ne!(one["summary"]["digest"], crash("1", "1")["summary"]["digest"]);
    let faults = timeless(report(&[OF_EVERY_SUITE, &["faults", "--jobs", "1"]].concat()));
    assert!(of_suite(&faults, "faults").len() > 1_000);
    assert!(of_suite(&faults, "faults") == of_suite(&timeless(WHOLE.clone()), "faults"), "a case differs");
}

#[test]
fn the_report_counts_what_it_lists_and_every_id_is_there_once() {
    let report = &*WHOLE;
    assert_eq!((&report["schema"], &report["tool"]), (&1.into(), &"session-harness".into()));
    let cases = report["cases"].as_array().unwrap();
    let passed = cases.iter().filter(|case| case["status"] == "pass").count();
    assert_eq!(report["summary"]["pass"], passed);
    let recorded = cases.iter().filter(|case| case["status"] == "recorded").count();
    assert_eq!(report["summary"]["recorded"], recorded);
    assert!(recorded > 0 && passed + recorded == cases.len());
    let ids: HashSet<&str> = cases.iter().map(|case| case["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), cases.len());
    let fired = report["summary"]["faults_fired"].as_u64().unwrap();
    assert!(
        fired as usize > of_suite(report, "faults").len(),
        "each case of the faults suite has a fault that struck: {fired}"
    );
    assert!(report["summary"]["states_checked"].as_u64().unwrap() > 1_000);
}

#[test]
fn each_printed_replay_command_runs_its_case() {
    let cases = WHOLE["cases"].as_array().unwrap();
    for case in cases.iter().step_by(cases.len() / 40) {
        let (id, command) = (case["id"].as_str().unwrap(), case["replay"].as_str().unwrap());
        assert_eq!(command, format!("session-harness replay '{id}'"));
        let output = harness(&["replay", id]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{id}: {text}");
        let ends = ["holds: every promise", "\nholds\n", "\nrecorded: "];
        assert!(text.contains(id) && ends.iter().any(|end| text.contains(end)), "{id}: {text}");
    }
}

#[test]
fn the_same_seed_explores_the_same_workloads() {
    let explore =
        |seed: &str| harness(&["explore", "--seed", seed, "--workloads", "60", "--time", "10m"]).stdout;
    assert_eq!(explore("11"), explore("11"));
    assert_ne!(explore("11"), explore("12"));
}

#[test]
fn wrong_usage_is_told_from_a_violation() {
    for arguments in [
        &["replay", "faults/append/C8/nonsense"][..],
        &["replay", "crash/posix/session,fly"],
        &["run", "--filter", "no-such-case", "crash"],
        &["run", "no-such-suite"],
        &["run", "--report", "xml=here"],
        &["run", "--report", "json="],
        &["run", "--shard", "0/4"],
        &["run", "--shard", "5/4"],
        &["run", "--timeout", "soon"],
        &["merge"],
        &["run", "--profile", "hopeful"],
        &["explore", "--time", "soon"],
        &["explore", "--workloads", "0"],
        &["explore", "--time", "0s"],
        &["run", "crash", "--depth", "0"],
        &["list", "--filter", "no-such-case"],
        &["replay", "faults/append/C8/"],
        &["replay", "faults/append/C1/rename@temporary>session#1=EIO_after,once"],
        &["replay", "faults/append/C8/rename@temporary>session#99=EIO_after,once"],
        &["replay", "faults/append/C8/rename@temporary>session#1=errno_0_after,once"],
    ] {
        let output = harness(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!output.stderr.is_empty() && !output.stderr.contains(&0x1b), "{arguments:?}");
    }
    let output = harness(&["replay", "crash/posix/session,append@@9999.0"]);
    assert_eq!(output.status.code(), Some(3), "a state that does not exist");
}

#[test]
fn a_planned_fault_that_does_not_strike_is_an_error_of_the_harness() {
    for id in [
        "faults/append/C8/rename@temporary>session#1=EIO_after,once+unlink@restore#7=EIO_before,once",
        "crash/posix/torn,append,append/fsync@root#99_in_treeAppend#1=EIO_dropping,once",
    ] {
        let output = harness(&["replay", id]);
        assert_eq!(output.status.code(), Some(3), "{id}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn a_closed_pipe_changes_no_exit_status() {
    for (arguments, status) in [
        (&["replay", "crash/posix/session,append"][..], 0),
        (&["replay", "crash/posix/torn,append/fsync@root#99_in_treeAppend#1=EIO_before,once"], 3),
        (&["list", "crash"], 0),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_session-harness"))
            .args(arguments)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_work() {
    let output = harness(&["run", "--report", "json=/nonexistent/report.json"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/report.json"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_token_may_name_any_disk_of_a_cut() {
    let replayed = (0..4).filter(|disk| {
        let output = harness(&["replay", &format!("crash/posix/session,append@@5.{disk}")]);
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("holds: every promise")
    });
    assert_eq!(replayed.count(), 4);
}

#[test]
fn real_reports_are_as_the_schema_says_and_it_names_every_member() {
    let text = std::fs::read_to_string("../corpus/schema/report.schema.json").unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let part = reports::run(&[OF_EVERY_SUITE, &["--shard", "2/9"]].concat()).1;
    let failed = reports::run(&["faults", "--filter", "faults/load/*", "--timeout", "0ms", "--fail-fast"]).1;
    let by_hand = serde_json::to_value(reports::sample()).unwrap();
    for report in [&WHOLE, &part, &failed, &by_hand] {
        let errors: Vec<String> = validator
            .iter_errors(report)
            .take(3)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(undescribed(report, &schema, &schema), None);
    }
    for (path, wrong) in [
        ("/schema", Value::from(2)),
        ("/cases/0/status", Value::from("good")),
        ("/cases/2/answer", Value::from(1)),
        ("/summary/pass", Value::from(-1)),
        ("/selection/suites/0", Value::from("hope")),
        ("/cases/0/duration_ms", Value::Null),
    ] {
        let mut report = by_hand.clone();
        *report.pointer_mut(path).unwrap() = wrong;
        assert!(!validator.is_valid(&report), "{path} may be wrong");
    }
}

/// A member that the schema does not describe.
fn undescribed(value: &Value, schema: &Value, root: &Value) -> Option<String> {
    let schema = match schema["$ref"].as_str() {
        Some(at) => root.pointer(at.trim_start_matches('#'))?,
        None => schema,
    };
    match value {
        Value::Array(items) => items.iter().find_map(|item| undescribed(item, &schema["items"], root)),
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let described = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
            match described {
                None => Some(name.clone()),
                Some(described) => undescribed(member, described, root),
            }
        }),
        _ => None,
    }
}

#[test]
fn requirements_are_listed_with_their_cases_and_in_the_source_tree_with_their_tests() {
    let list = |directory: &std::path::Path| -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_session-harness"));
        let output = command
            .args(["list", "--requirements", "--json", "--filter", "conformance/*"])
            .current_dir(directory)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let here = list(std::path::Path::new("."));
    let append = here.iter().find(|line| line["id"] == "S5").unwrap();
    let ids = append["case_ids"].as_array().unwrap();
    assert!(
        append["cases"] == ids.len() && ids.iter().all(|id| id.as_str().unwrap().starts_with("conformance/"))
    );
    assert!(append["tests"].as_array().unwrap().len() > 5);
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(list(elsewhere.path()).iter().all(|line| line.get("tests").is_none()));
}
