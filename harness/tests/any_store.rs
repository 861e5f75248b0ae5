//! The promises of any store, held against stores that keep them and one that does not.

#[path = "any_store_defects/mod.rs"]
mod defects;
mod python;

use std::fs;
use std::path::Path;

use session_harness::subject::REFERENCE;
use session_harness::subject::command::{Command, Remote, Use};
use session_harness::suite::any_store::{CASES, Outcome, Store, check};

/// What came of each case, by its name.
fn outcomes(store: &Store<'_>) -> Vec<(&'static str, Outcome)> {
    CASES.iter().map(|case| (case.name, check(case, store).expect("the harness can do its part"))).collect()
}

fn outcomes_of_command(command: Command) -> Vec<(&'static str, Outcome)> {
    let remote = Remote::greet(command, Use::Once).expect("a handshake");
    outcomes(&Store::of(remote.hello(), |manner| remote.start_as(manner)))
}

fn expect_all_pass(outcomes: &[(&'static str, Outcome)], but: &[&str]) {
    for (name, outcome) in outcomes {
        if but.contains(name) {
            assert!(matches!(outcome, Outcome::Unsupported(_)), "{name}: {outcome:?}");
        } else if !defects::is_skipped(name, outcome) {
            assert_eq!(*outcome, Outcome::Pass, "{name}");
        }
    }
}

#[test]
fn the_reference_keeps_every_promise_in_this_process() {
    let of_processes = [
        "killed-within-an-append",
        "killed-in-a-burst",
        "killed-at-a-change",
        "stopped-within-an-append",
        "file-size-limit",
        "file-size-limit-of-a-tree",
    ];
    expect_all_pass(&outcomes(&Store::of_candidate(REFERENCE)), &of_processes);
}

#[test]
fn the_reference_keeps_every_promise_behind_the_protocol() {
    let command = Command::new(env!("CARGO_BIN_EXE_session-harness"), ["subject".into()]);
    expect_all_pass(&outcomes_of_command(command), &[]);
}

#[test]
fn of_the_smallest_adapter_every_promise_is_missed_that_it_does_nothing_for() {
    if !python::is_here() {
        return;
    }
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("PROTOCOL.md");
    let text = fs::read_to_string(text).expect("the protocol's text");
    let (_, rest) = text.split_once("```python\n").expect("the adapter in the text");
    let (adapter, _) = rest.split_once("```").expect("its end");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("adapter.py");
    fs::write(&path, adapter).expect("a file");
    let outcomes = outcomes_of_command(python::command(&path));
    let broken: Vec<&str> = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Violation(_) | Outcome::Silent(..)))
        .map(|(name, _)| *name)
        .collect();
    let mut expected = vec![
        "file-size-limit",
        "full-disk",
        "full-disk-next-append",
        "replaced-directory",
        "replaced",
        "removed",
        "cut-short",
        "no-regular-file",
        "torn-tail",
        "damaged-middle",
        "parent-cycle",
    ];
    expected.retain(|name| {
        outcomes.iter().any(|(one, outcome)| one == name && !defects::is_skipped(name, outcome))
    });
    assert_eq!(broken, expected, "{outcomes:#?}");
    assert!(
        !outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Silent(..))),
        "it answers all the same: {outcomes:#?}"
    );
}
