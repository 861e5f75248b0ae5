//! What each storage assumption carries: switched off, a promise falls, and this says which, how it looks, and how weak
//! a file system shows it. With all of them in force nothing falls.

use std::collections::BTreeSet;

use session_harness::crash::{Assumption, Profile};
use session_harness::fault::Plan;
use session_harness::model;
use session_harness::promise::Promise;
use session_harness::suite::crash::{CaseResult, Finding, Options, Seen, Token, finding, run_one, visited};
use session_harness::workload::Workload;

const PATH: &str = "/sessions/session.jsonl";

// Requirement: C23
#[test]
fn with_every_assumption_in_force_nothing_falls() {
    for workload in ["new,append", "session,append", "session,second", "torn,append", "session,append,second"]
    {
        for profile in Profile::ALL {
            let case = run(workload, "", *profile, None);
            assert!(case.broken.is_empty(), "{workload} {profile}: {:?}", case.broken.first());
        }
    }
}

// Requirement: C4, C23
#[test]
fn where_a_file_fsync_lies_the_session_is_empty_or_zero_filled_on_a_journalled_file_system() {
    let lies = "fsync@temporary#1 in treeAppend#1 = lies, for ever";
    let findings = findings("session,append", lies, None);
    let expected = Finding {
        promise: Promise::AcknowledgedSurvive,
        seen: Seen::EmptyOrZeroFilled,
        profile: Profile::Ordered,
    };
    assert!(findings.contains(&expected.to_string()), "{findings:?}");
    assert_eq!(expected.to_string(), "acknowledged-survive: empty or zero-filled, ordered");
    assert!(run("session,append", lies, Profile::Process, None).broken.is_empty(), "a kill loses no cache");
}

// Requirement: C4, S1, S1.cut
#[test]
fn where_the_fsync_of_a_create_lies_the_session_is_empty_or_zero_filled_too() {
    let findings = findings("new,append", "fsync@temporary#1 in create#1 = lies, for ever", None);
    assert!(findings.contains("acknowledged-survive: empty or zero-filled, ordered"), "{findings:?}");
}

// Requirement: C4, C23
#[test]
fn where_a_file_fsync_lies_a_session_of_several_sectors_is_cut_short_by_the_letter_of_posix() {
    let lies = "fsync@temporary#1 in treeAppend#1 = lies, for ever";
    let findings = findings("session,append,append,append,append", lies, None);
    // Cut within an entry, it loads without that one and the later ones; with a sector amiss, not at all.
    let expected = ["damaged, posix", "empty or zero-filled, ordered", "lost, posix"];
    assert_eq!(findings, expected.map(|end| format!("acknowledged-survive: {end}")).into());
}

// Requirement: C10, C23
#[test]
fn where_a_directory_fsync_lies_an_acknowledged_entry_is_lost_on_a_journalled_file_system() {
    for (workload, lies) in [
        ("session,append", "fsync@root#1 in treeAppend#1 = lies, for ever"),
        ("new,append", "fsync@root#1 in create#1 = lies, for ever"),
    ] {
        let findings = findings(workload, lies, None);
        assert_eq!(
            findings,
            BTreeSet::from(["acknowledged-survive: lost, ordered".to_owned()]),
            "{workload}"
        );
        assert!(run(workload, lies, Profile::Process, None).broken.is_empty(), "a kill loses no name");
    }
}

// Requirement: C8, C23
#[test]
fn where_renames_are_not_atomic_the_session_is_lost_by_the_letter_of_posix() {
    let findings = findings("session,append", "", Some(Assumption::AtomicRename));
    assert_eq!(findings, BTreeSet::from(["acknowledged-survive: lost, posix".to_owned()]));
    // Where names keep their order, the marker was linked before the rename and recovery brings it back.
    let ordered = run("session,append", "", Profile::Ordered, Some(Assumption::AtomicRename));
    assert!(ordered.broken.is_empty() && ordered.recovered > 0, "{:?}", ordered.broken.first());
}

// Requirement: S1.cut, C23
#[test]
fn where_new_names_may_be_empty_a_create_leaves_an_empty_session() {
    let findings = findings("new,append", "", Some(Assumption::WholeNewNames));
    assert_eq!(findings, BTreeSet::from(["acknowledged-survive: empty or zero-filled, ordered".to_owned()]));
    // A commit gives the session its name by a rename, and an empty marker beside it is set aside.
    for profile in Profile::ALL {
        let commit = run("session,append", "", *profile, Some(Assumption::WholeNewNames));
        assert!(commit.broken.is_empty(), "{profile}: {:?}", commit.broken.first());
    }
}

// Requirement: C23
#[test]
fn where_durable_sectors_are_damaged_the_session_is_refused_and_not_taken_for_another() {
    let findings = findings("session,append", "", Some(Assumption::DurableStays));
    // The second cut, after the restart's own append, damages sectors too.
    let expected = ["acknowledged-survive: damaged, ordered", "goes-on-afterwards: stuck, ordered"];
    assert_eq!(findings, expected.map(str::to_owned).into());
}

// Requirement: S8, C23
#[test]
fn where_a_process_sees_an_older_view_it_loads_without_what_was_acknowledged() {
    let off = Some(Assumption::OneView);
    let findings = findings("session,append,second", "", off);
    assert_eq!(findings, BTreeSet::from(["acknowledged-survive: lost, process".to_owned()]));
    // What it misses when it loads is still there; its own commit then takes it from the disk.
    let case = run("session,append,second", "", Profile::Process, off);
    let told: Vec<&str> =
        case.broken.iter().flat_map(|broken| &broken.violations).map(|it| &*it.evidence).collect();
    for begins in ["a load by another process shows 1 entries", "a restart shows 2 entries"] {
        assert!(told.iter().any(|evidence| evidence.starts_with(begins)), "{told:?}");
    }
    let options = Options { profile: Profile::Process, off, ..Options::default() };
    let Token { workload, plan, .. } = token("session,append,second", "", Profile::Process);
    let disks = visited(&workload, &plan, &options).expect("a run");
    let (_, last) = disks.last().expect("a cut at the end");
    assert_eq!(entries(&last.read_file(PATH).expect("a session")), ["m1-0", "m3-0"]);
}

// Requirement: C26, C26.no-directory-sync
#[test]
fn where_directories_cannot_be_synced_durability_is_suspended_and_nothing_is_invented() {
    let unsupported = "fsync@root#1 in treeAppend#1 = EINVAL before, for ever";
    for workload in ["session,append", "session,append,append", "session,append,second"] {
        for profile in Profile::ALL {
            let case = run(workload, unsupported, *profile, None);
            assert!(case.broken.is_empty(), "{workload} {profile}: {:?}", case.broken.first());
            let Token { workload, plan, .. } = token(workload, unsupported, *profile);
            let options = Options { profile: *profile, ..Options::default() };
            let disks = visited(&workload, &plan, &options).expect("a run");
            let last = disks.last().expect("a cut at the end").0;
            let at_the_end: BTreeSet<Vec<String>> = disks
                .iter()
                .filter(|(calls, _)| *calls == last)
                .map(|(_, disk)| entries(&disk.read_file(PATH).expect("a session, whatever the cut")))
                .collect();
            let submitted: Vec<String> =
                (1..=1 + workload.steps.len()).map(|nth| format!("m{nth}-0")).collect();
            // What was acknowledged may be gone, so the suspension is at work; and all that is there was submitted.
            let is_losing = at_the_end.len() > 1;
            assert_eq!(is_losing, *profile != Profile::Process, "{workload} {profile}: {at_the_end:?}");
            assert!(at_the_end.contains(&submitted), "{workload} {profile}: {at_the_end:?}");
            let is_prefix = |shown: &Vec<String>| submitted.starts_with(shown);
            assert!(at_the_end.iter().all(is_prefix), "{workload} {profile}: {at_the_end:?}");
        }
    }
}

/// The ids of the messages that these bytes hold, read by the harness's own model of the format.
fn entries(bytes: &[u8]) -> Vec<String> {
    let session = model::load(bytes).unwrap_or_else(|refusal| panic!("{}", refusal.code));
    let id = |entry: &model::Entry| {
        let message: serde_json::Value = serde_json::from_str(&entry.message.encode()).expect("JSON");
        message["id"].as_str().expect("an id").to_owned()
    };
    session.entries().iter().map(id).collect()
}

/// Every distinct finding of a workload under `posix`, each with the weakest profile that shows it.
fn findings(workload: &str, plan: &str, off: Option<Assumption>) -> BTreeSet<String> {
    let options = Options { off, ..Options::default() };
    let case = run(workload, plan, Profile::Posix, off);
    let mut kinds = BTreeSet::new();
    let first_of_a_kind =
        case.broken.iter().filter(|broken| kinds.insert((broken.violations[0].promise, broken.seen)));
    first_of_a_kind.map(|broken| finding(broken, &options).expect("runs").to_string()).collect()
}

fn run(workload: &str, plan: &str, profile: Profile, off: Option<Assumption>) -> CaseResult {
    let options = Options { off, ..Options::default() };
    run_one(&token(workload, plan, profile), &options).expect("a run of the workload")
}

fn token(workload: &str, plan: &str, profile: Profile) -> Token {
    let workload: Workload = workload.parse().expect("a workload");
    let plan: Plan = plan.parse().expect("a plan");
    Token { profile, workload, plan, cuts: Vec::new() }
}
