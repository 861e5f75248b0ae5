//! Reports of parts become the report of the whole, or are refused.

use std::path::PathBuf;
use std::sync::LazyLock;

use reports::{OF_EVERY_SUITE, harness, run_into, timeless};
use serde_json::Value;
use session_harness::report::{self, MergeError, Report};

mod reports;

type Parts = Vec<(String, Report)>;

const PARTS: usize = 7;

/// A run of every suite, small enough to be made twice.
static SMALL: LazyLock<Vec<&str>> =
    LazyLock::new(|| [OF_EVERY_SUITE, &["--depth", "1", "--jobs", "2"]].concat());

/// The reports of all parts of a run, made once.
static SHARDS: LazyLock<(tempfile::TempDir, Vec<PathBuf>)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let shard = |number: usize| {
        let path = directory.path().join(format!("{number}.json"));
        let part = format!("{number}/{PARTS}");
        let (status, _) = run_into(&path, &[&SMALL[..], &["--shard", part.as_str()]].concat());
        assert_eq!(status, Some(0));
        path
    };
    let paths = (1..=PARTS).map(shard).collect();
    (directory, paths)
});

#[test]
fn the_parts_together_are_the_whole() {
    let (directory, shards) = &*SHARDS;
    let whole = directory.path().join("whole.json");
    let (_, whole) = run_into(&whole, &SMALL);
    let joined = directory.path().join("joined.json");
    let target = format!("json={}", joined.display());
    let mut arguments = vec!["merge", "--quiet", "--report", target.as_str()];
    // In any order.
    arguments.extend(shards.iter().rev().map(|path| path.to_str().unwrap()));
    let output = harness(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let joined: Value = serde_json::from_slice(&std::fs::read(joined).unwrap()).unwrap();
    let (whole, joined) = (timeless(whole), timeless(joined));
    // Compared piece by piece: a difference is not told by megabytes.
    assert_eq!(joined["summary"], whole["summary"]);
    assert_eq!(joined["cases"].as_array().map(Vec::len), whole["cases"].as_array().map(Vec::len));
    assert!(joined == whole, "a case differs");
}

#[test]
fn each_part_holds_some_cases_and_none_of_another() {
    let sizes = SHARDS.1.iter().map(|path| read(path).cases.len());
    let sizes: Vec<usize> = sizes.collect();
    // Parts of a faults suite are families of very different sizes, so they are not equal; but none is nearly all.
    let all: usize = sizes.iter().sum();
    assert!(sizes.iter().all(|size| *size > 0 && size * 2 < all), "{sizes:?}");
}

#[test]
fn what_is_not_one_run_is_refused_and_said_to_be() {
    let parts = || -> Parts {
        let named = |path: &PathBuf| (path.file_name().unwrap().to_string_lossy().into_owned(), read(path));
        SHARDS.1.iter().map(named).collect()
    };
    let refused = |change: &dyn Fn(&mut Parts)| -> String {
        let mut changed = parts();
        change(&mut changed);
        report::merge(changed).map_or_else(|error| error.to_string(), |_| "joined".to_owned())
    };
    assert_eq!(refused(&|_| {}), "joined");
    for (change, words) in [
        (&|all: &mut Parts| drop(all.remove(3)), "part 4/7 is missing"),
        (&|all| all[2] = all[1].clone(), "2.json and 2.json are both part 2/7"),
        (&|all| all[4].1.seed = 9, "1.json and 5.json differ in the seed: 0 and 9"),
        (&|all| all[4].1.subject = "other".to_owned(), "differ in the subject"),
        (&|all| all[4].1.version = "9.9.9".to_owned(), "differ in the tool"),
        (&|all| all[4].1.profile = "ordered".to_owned(), "differ in the profile"),
        (&|all| all[4].1.selection.depth = Some(3), "differ in the depth: 1 and 3"),
        (
            &|all| all[4].1.selection.filter = vec!["x".to_owned()],
            "differ in the filter: \"conformance/*\" \"faults/create/*\" \"faults/load/*\" \"faults/roll-back/*\" \"crash/*\" and \"x\"",
        ),
        (&|all| all[4].1.selection.suites.truncate(1), "differ in the suites"),
        (&|all| all[4].1.selection.expectations = Some("0".to_owned()), "differ in the expectations"),
        (&|all| all[4].1.selection.shard = Some("5/8".to_owned()), "differ in the number of parts: 7 and 8"),
        (&|all| all[4].1.selection.shard = None, "5.json is the report of no part"),
        (&|all| all[4].1.partial = Some(report::Partial::Interrupted), "5.json is of a run that ended early"),
        (&|all| all[4].1.schema = 2, "5.json has the form 2"),
        (
            &|all| {
                let case = all[0].1.cases[0].clone();
                all[4].1.cases.push(case);
            },
            "is in two parts",
        ),
        (&|all| all.clear(), "no report is given"),
    ] as [(&dyn Fn(&mut Parts), &str); 16]
    {
        let told = refused(change);
        assert!(told.contains(words), "{told:?} does not say {words:?}");
    }
    assert_eq!(report::merge(Vec::new()), Err(MergeError::Nothing));
}

#[test]
fn an_expectation_is_in_vain_only_where_no_part_needs_it() {
    let mut parts: Parts = SHARDS.1.iter().map(|path| (path.display().to_string(), read(path))).collect();
    for (at, (_, part)) in parts.iter_mut().enumerate() {
        part.unmatched_expectations = vec!["gone".to_owned()];
        if at != 3 {
            part.unmatched_expectations.push("in part 4".to_owned());
        }
    }
    let whole = report::merge(parts).unwrap();
    assert_eq!(whole.unmatched_expectations, ["gone"]);
    assert_eq!(whole.verdict(), report::Verdict::Violated);
}

#[test]
fn files_that_are_no_reports_of_parts_are_wrong_usage() {
    let (directory, shards) = &*SHARDS;
    let text = directory.path().join("text");
    std::fs::write(&text, "{\"schema\": 1}").unwrap();
    let one = shards[0].to_str().unwrap();
    for files in [&[one][..], &[text.to_str().unwrap()], &["/nonexistent"], &[one, one]] {
        let output = harness(&[&["merge"], files].concat());
        assert_eq!(output.status.code(), Some(2), "{files:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty());
    }
}

fn read(path: &PathBuf) -> Report {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
