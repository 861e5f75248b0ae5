//! The suite as a measuring instrument: it reads zero for a good store, not for a bad one, and twice the same.

use session_harness::crash::{Assumption, Profile};
use session_harness::fault::Plan;
use session_harness::promise::Promise;
use session_harness::suite::crash::{Checks, Options, Results, Token, run, run_one};
use session_harness::workload::{self, Workload};

// Requirement: C23
#[test]
fn a_good_store_breaks_no_promise_in_any_workload_of_one_operation() {
    for profile in Profile::ALL {
        let results = complete(&Options { profile: *profile, depth: 1, faults: false, ..Options::default() });
        assert_eq!(results.broken().count(), 0, "{:?}", results.broken().next());
        assert_eq!(results.cases.len(), workload::all(1).len());
        assert!(results.states > 40, "{profile}: {} states", results.states);
    }
}

// Requirement: C4, C10
#[test]
fn a_store_that_is_known_to_be_bad_is_never_given_zero_violations() {
    // What a store does that forgets the one fsync or the other, which is what a lying one comes to.
    for lies in [
        "fsync@temporary#1 in treeAppend#1 = lies, for ever",
        "fsync@root#1 in treeAppend#1 = lies, for ever",
    ] {
        for workload in ["new,append", "session,append", "torn,append", "session,append,append"] {
            for (profile, is_bad) in
                [(Profile::Process, false), (Profile::Ordered, true), (Profile::Posix, true)]
            {
                let case = run_one(&token(workload, lies, profile), &Options::default()).expect("a run");
                assert!(case.fired > 0, "the fault never struck");
                let lost = case.broken.iter().flat_map(|broken| &broken.violations);
                let lost = lost.filter(|violation| violation.promise == Promise::AcknowledgedSurvive).count();
                assert_eq!(lost > 0, is_bad, "{workload} {lies} {profile}: {lost} violations");
            }
        }
    }
}

// Requirement: C23
#[test]
fn a_whole_run_without_atomic_renames_is_never_given_zero_violations() {
    let options =
        Options { depth: 1, faults: false, off: Some(Assumption::AtomicRename), ..Options::default() };
    let results = complete(&options);
    let workloads = results.cases.iter().filter(|case| !case.broken.is_empty()).count();
    assert!(workloads >= 6, "only {workloads} of {} workloads are bad", results.cases.len());
}

// Requirement: C23
#[test]
fn a_fault_that_never_strikes_is_an_error_of_the_harness_and_no_pass() {
    let never = "fsync@restore#1 in treeAppend#1 = EIO before, once";
    let case = run_one(&token("session,append", never, Profile::Posix), &Options::default()).expect("a run");
    let promises: Vec<Promise> =
        case.broken.iter().flat_map(|broken| &broken.violations).map(|it| it.promise).collect();
    assert_eq!(promises, [Promise::FaultFired]);
}

// Requirement: C23
#[test]
fn two_runs_with_the_same_options_agree_in_everything_whatever_the_number_of_jobs() {
    for off in [None, Some(Assumption::AtomicRename)] {
        let options = Options { depth: 2, faults: false, off, ..Options::default() };
        let (first, again) = (complete(&options), complete(&options));
        assert_eq!(first, again);
        assert_ne!(first.digest, 0);
        assert_eq!(first, complete(&Options { jobs: 2, ..options }), "with two jobs");
        assert_eq!(first.broken().count() > 0, off.is_some());
    }
}

// Requirement: C23
#[test]
fn the_certificate_tells_apart_what_was_visited() {
    let run = |profile, depth| {
        let options = Options { profile, depth, faults: false, ..Options::default() };
        let results = complete(&options);
        (results.states, results.digest)
    };
    let (posix, ordered, deeper) = (run(Profile::Posix, 1), run(Profile::Ordered, 1), run(Profile::Posix, 2));
    assert!(ordered.0 < posix.0 && posix.0 < deeper.0, "{ordered:?} {posix:?} {deeper:?}");
    assert_ne!(posix.1, ordered.1);
    assert_ne!(posix.1, deeper.1);
}

// Requirement: C23
#[test]
fn a_state_that_is_judged_again_is_judged_the_same() {
    let workload: Workload = "session,append".parse().expect("a workload");
    let good = Checks::of(&workload, &Options::default()).expect("a run");
    assert!(good.len() >= 10, "{} states", good.len());
    let bad = Options { off: Some(Assumption::AtomicRename), ..Options::default() };
    let bad = Checks::of(&workload, &bad).expect("a run");
    let verdicts = |checks: &Checks| -> Vec<bool> {
        (0..checks.len()).map(|at| checks.check(at).expect("a verdict")).collect()
    };
    assert_eq!(verdicts(&good), vec![true; good.len()]);
    assert!(verdicts(&bad).contains(&false));
    assert_eq!(verdicts(&bad), verdicts(&bad));
}

fn complete(options: &Options) -> Results {
    run(options, |_| true, |_, _| {}).expect("a run of the suite")
}

fn token(workload: &str, plan: &str, profile: Profile) -> Token {
    let workload: Workload = workload.parse().expect("a workload");
    let plan: Plan = plan.parse().expect("a plan");
    Token { profile, workload, plan, cuts: Vec::new() }
}
