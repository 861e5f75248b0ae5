//! Faults from outside, turned on a small store that is broken on purpose: each defect is caught by the case that is
//! there for it, and the store without one is not flagged.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::Path;

use session_harness::subject::command::{Command, Remote, Use};
use session_harness::suite::any_store::{CASES, Outcome, Store, check};

use crate::python;

/// The defects of the small store, and the cases that catch each.
const DEFECTS: [(&str, &[&str]); 13] = [
    ("composes-text", &["loaded-again"]),
    ("takes-any-file", &["another-kind"]),
    ("ignores-short-writes", &["file-size-limit"]),
    ("remembers-what-failed", &["file-size-limit", "full-disk", "read-only-disk", "replaced-directory"]),
    ("moves-the-leaf-first", &["file-size-limit-of-a-tree"]),
    ("leaves-half-a-line", &["full-disk-next-append"]),
    ("leaves-half-a-session", &["full-disk-at-create"]),
    ("renames-and-remembers", &["unwritable-directory"]),
    ("makes-what-is-missing", &["replaced-directory"]),
    ("writes-later", &["killed-in-a-burst", "killed-at-a-change"]),
    ("takes-no-lock", &["stopped-within-an-append"]),
    ("joins-without-a-word", &["two-processes-one-branch"]),
    ("believes-parents", &["parent-cycle"]),
];

fn store(defect: Option<&str>) -> Remote {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/any_store_defects/store.py");
    let defect = defect.map(Into::into);
    let command = Command::new("python3", [path.into_os_string()].into_iter().chain(defect));
    Remote::greet(command, Use::Again).expect("a handshake")
}

fn outcome(remote: &Remote, name: &str) -> Outcome {
    let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
    let outcome = check(case, &Store::of(remote.hello(), |manner| remote.start_as(manner)));
    outcome.expect("the harness can do its part")
}

/// Whether the machine did not let the case run, which is said.
pub(crate) fn is_skipped(name: &str, outcome: &Outcome) -> bool {
    let Outcome::Unsupported(reason) = outcome else { return false };
    let is_skipped =
        reason.starts_with("SKIPPED: ") || reason.contains("can be started in the way that this needs");
    if is_skipped {
        // Not with a macro, whose words the test runner keeps to itself.
        let _ = writeln!(io::stderr(), "{name}: {reason}");
    }
    is_skipped
}

// Requirement: S3, S5, S8, T3, C23, R5
#[test]
fn the_small_store_without_a_defect_keeps_every_promise() {
    if !python::is_here() {
        return;
    }
    let remote = store(None);
    let names: BTreeSet<&str> = DEFECTS.iter().flat_map(|(_, names)| *names).copied().collect();
    for name in names {
        let outcome = outcome(&remote, name);
        // It makes no name when it appends.
        let is_asked = name != "unwritable-directory" && !is_skipped(name, &outcome);
        assert!(!is_asked || outcome == Outcome::Pass, "{name}: {outcome:?}");
    }
}

// Requirement: S3, S5, S8, T3, C23, R5
#[test]
fn each_defect_is_caught_by_the_case_that_is_there_for_it() {
    if !python::is_here() {
        return;
    }
    for (defect, names) in DEFECTS {
        let remote = store(Some(defect));
        for name in names {
            let outcome = outcome(&remote, name);
            let is_caught = matches!(outcome, Outcome::Violation(_) | Outcome::Mistaken(_));
            assert!(is_caught || is_skipped(name, &outcome), "{defect} in {name}: {outcome:?}");
        }
    }
}
