//! The harness against stores that are broken on purpose: none escapes, and no good one is flagged.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use session_harness::call::Call;
use session_harness::corpus::{self, Body, Case, Environment, Outcome, Step, check};
use session_harness::crash::{Profile, disks};
use session_harness::disk::{Disk, WOULD_HANG};
use session_harness::fault::Plan;
use session_harness::inject::Injector;
use session_harness::promise::Promise;
use session_harness::scenario::{self, Scenario};
use session_harness::specimens::{self, ALL, CANARY, Kind, SMALL, Specimen};
use session_harness::subject::{self, Candidate, REFERENCE};
use session_harness::suite::faults::SCENARIOS;
use session_harness::suite::{crash, recovery};
use session_harness::workload::{self, Start, Workload};
use session_harness::world::{Backend, World};
use session_tree::file_ops::{Access, FileOps};

/// For each promise a specimen that this promise catches and no other one does, so that without the promise it would
/// escape.
const ALONE: &[(Promise, &str)] = &[
    (Promise::AcknowledgedSurvive, "short-write-believed"),
    (Promise::NothingInvented, "roll-back-unsynced"),
    (Promise::FailedMeansOld, "marker-stays"),
    (Promise::MemoryAgrees, "failed-append-shown"),
    (Promise::TypedRefusal, "code-unknown"),
    (Promise::CauseIsKept, "errno-lost"),
    (Promise::NoHiddenFailure, "close-error-ignored"),
    (Promise::NothingLeaks, "descriptor-leaked"),
    (Promise::NoStray, "temporary-left"),
    (Promise::ForeignUntouched, "marker-by-name"),
    (Promise::NoSilentContinuation, "size-not-compared"),
    (Promise::PoisonHolds, "poison-forgotten"),
    (Promise::LoadReadsOnly, "load-sweeps"),
    (Promise::ModeIsKept, "mode-error-ignored"),
    (Promise::RetrySucceeds, "doubts-everything"),
    (Promise::GoesOnAfterwards, "strays-in-the-way"),
    (Promise::CallsInOrder, "move-not-queued"),
    (Promise::RecoveryKeeps, "recovery-deletes-damage"),
];

#[test]
fn every_specimen_is_caught_by_the_promise_named_for_it_and_under_no_weaker_profile() {
    let rows = specimens::rows(|_| true, 2, &|_, _| {}).expect("the harness works");
    let escaped: Vec<&str> = rows.iter().filter(|row| !row.is_right()).map(|row| row.specimen.name).collect();
    assert_eq!(escaped, [""; 0], "{rows:#?}");
}

#[test]
fn a_good_store_is_not_flagged_and_a_canary_is_caught_unless_nobody_looks() {
    // Every case of the reference is a test of its own elsewhere.
    for control in specimens::controls(&[&SMALL], 2).expect("the harness works") {
        assert_eq!(control.wrong, None, "{control:?}");
    }
}

#[test]
fn every_specimen_passes_where_nothing_goes_wrong() {
    let workloads: Vec<_> = (1..=2).flat_map(workload::all).collect();
    let found = Mutex::new(Vec::new());
    let keep = |place: String| found.lock().expect("no panic holds it").push(place);
    in_parallel(ALL, |specimen| {
        for scenario in SCENARIOS.iter().filter(|scenario| is_plain(scenario, specimen)) {
            let run = scenario::run(specimen, Backend::Simulated, scenario, &Plan::default())
                .expect("the scenario runs");
            if !run.violations.is_empty() {
                keep(format!("{} in {}: {:?}", specimen.name, scenario.name, run.violations));
            }
        }
        let options = crash::Options { candidate: specimen, ..crash::Options::default() };
        // A torn tail is what a fault has left, and another process is what some cannot bear.
        let is_quiet = |workload: &&Workload| {
            let is_alone = !workload.steps.contains(&workload::Step::Second);
            let bears_others = matches!(specimen.kind, Kind::Commit | Kind::Memory | Kind::Recovery);
            workload.start != Start::TornTail && (is_alone || bears_others)
        };
        for workload in workloads.iter().filter(is_quiet) {
            let violations = crash::undisturbed(workload, &options).expect("the workload runs");
            if !violations.is_empty() {
                keep(format!("{} in {workload}: {violations:?}", specimen.name));
            }
        }
    });
    assert_eq!(found.into_inner().expect("no panic held it"), [""; 0]);
}

#[test]
fn every_specimen_that_reads_and_writes_rightly_passes_the_quiet_cases_of_the_corpus() {
    let cases = corpus::embedded().expect("the corpus reads");
    let quiet: Vec<&Case> = cases.iter().filter(|case| case.is_must() && is_quiet(case)).collect();
    assert!(quiet.len() > 50, "{}", quiet.len());
    let sound: Vec<&Specimen> = ALL.iter().filter(|specimen| specimen.kind != Kind::Format).collect();
    let found = Mutex::new(Vec::new());
    in_parallel(&sound, |specimen| {
        for case in &quiet {
            let outcome =
                check(case, &Environment::of(*specimen, Backend::Simulated)).expect("the case runs");
            if outcome != Outcome::Pass {
                let place = format!("{} in {}: {outcome:?}", specimen.name, case.id);
                found.lock().expect("no panic holds it").push(place);
            }
        }
    });
    assert_eq!(found.into_inner().expect("no panic held it"), [""; 0]);
}

/// One store in one process, on a whole session of its own, and nobody else.
fn is_quiet(case: &Case) -> bool {
    let Body::Script { steps, .. } = &case.body else { return false };
    let ends_whole = |bytes: Vec<u8>| bytes.is_empty() || bytes.ends_with(b"\n");
    let mut stores = BTreeSet::new();
    let mut has_called = false;
    steps.iter().all(|step| match step {
        Step::Call { call, process, .. } => {
            has_called = true;
            if let Call::Create { store, .. } | Call::Load { store, .. } = &**call {
                stores.insert(store.clone());
            }
            *process == 1 && stores.len() <= 1
        }
        Step::Write(name, bytes) => {
            !has_called && !name.contains(".pify-session-") && case.expand(bytes).is_ok_and(ends_whole)
        }
        Step::Bytes(..) | Step::Mode(..) | Step::Names(_) => true,
        _ => false,
    })
}

/// Whether nothing goes wrong in it, and its session is not one that the specimen reads wrongly.
fn is_plain(scenario: &Scenario, specimen: &Specimen) -> bool {
    let is_torn = scenario.session.is_some_and(|bytes| bytes.last() != Some(&b'\n'));
    let is_simple = scenario.name == "append" || scenario.name == "create";
    scenario.base.is_empty() && !is_torn && (specimen.kind != Kind::Format || is_simple)
}

#[test]
fn each_promise_catches_a_specimen_that_no_other_promise_does() {
    let of_the_store: BTreeSet<Promise> =
        Promise::ALL.iter().copied().filter(|promise| *promise != Promise::FaultFired).collect();
    let named: BTreeMap<Promise, &str> = ALONE.iter().copied().collect();
    assert_eq!(named.keys().copied().collect::<BTreeSet<_>>(), of_the_store);
    let pairs: Vec<(Promise, &str)> = named.into_iter().collect();
    in_parallel(&pairs, |(promise, name)| {
        let specimen = specimens::find(&format!("specimen:{name}")).expect("it is in the gallery");
        let broken = specimens::broken_promises(specimen).expect("the harness works");
        assert_eq!(broken, BTreeSet::from([*promise]), "{name}");
    });
}

// Requirement: X1, X2
#[test]
fn the_reference_and_the_small_store_recover_as_the_table_of_states_says() {
    for candidate in [REFERENCE, &SMALL as &dyn Candidate] {
        for case in recovery::cases() {
            let violations = case.run(candidate).expect("the case runs");
            assert_eq!(violations, [], "{} of {}", case.id(), candidate.name());
            assert_eq!(recovery::Case::find(&case.id()), Some(case));
        }
    }
}

#[test]
fn what_escapes_or_shows_too_early_is_not_taken_for_caught() {
    let row = |caught| specimens::Row { specimen: &ALL[0], caught };
    let caught = |profile| {
        Some(specimens::Caught {
            by: "crash/…".to_owned(), profile: Some(profile), evidence: String::new()
        })
    };
    assert_eq!(ALL[0].shown.and_then(specimens::Shown::profile), Some(Profile::Ordered));
    assert!(row(caught(Profile::Ordered)).is_right());
    assert!(!row(caught(Profile::Process)).is_right());
    assert!(!row(None).is_right());
    let gallery = |rows, controls| specimens::Gallery { rows, controls };
    assert!(gallery(vec![row(caught(Profile::Ordered))], Vec::new()).holds());
    assert!(!gallery(vec![row(None)], Vec::new()).holds());
    let wrong = Some("flagged".to_owned());
    let control = specimens::Control { name: "small".to_owned(), expected: "not flagged", cases: 1, wrong };
    assert!(!gallery(Vec::new(), vec![control]).holds());
}

#[test]
fn every_specimen_has_a_name_of_its_own_by_which_it_is_found_and_described() {
    let described = include_str!("../SPECIMENS.md");
    let mut names = BTreeSet::new();
    for specimen in ALL.iter().chain([&SMALL, &CANARY]) {
        assert!(names.insert(specimen.name), "{} is there twice", specimen.name);
        let found = subject::named(&specimen.name()).expect("a subject");
        assert_eq!(found.name(), format!("specimen:{}", specimen.name));
        assert!(described.contains(&format!("`{}`", specimen.name)), "{} is not described", specimen.name);
    }
    assert!(names.len() > 50);
    assert!(subject::named("specimen:none-such").is_err());
}

#[test]
fn a_truncated_file_is_long_again_after_a_cut_unless_it_was_synced() {
    let disk = Disk::default();
    disk.mkdir("/sessions").expect("a directory");
    disk.write_file("/sessions/a", b"0123456789").expect("a file");
    disk.sync_all();
    let process = disk.process(7);
    let dir = process.open_dir(Path::new("/sessions")).expect("a directory");
    let readable = process.open(&dir, "a".as_ref(), Access::Read).expect("a file");
    assert_eq!(process.truncate(&readable, 4), Err(session_tree::Errno::EBADF));
    let file = process.open(&dir, "a".as_ref(), Access::ReadWrite).expect("a file");
    process.truncate(&file, 4).expect("cut");
    assert_eq!(disk.read_file("/sessions/a").expect("a file"), b"0123");
    let sizes = |disk: &Disk| -> BTreeSet<usize> {
        let after = disks(disk, Profile::Ordered, None, |_, _| session_harness::crash::Contents::All);
        after.map(|disk| disk.read_file("/sessions/a").map_or(0, |bytes| bytes.len())).collect()
    };
    assert_eq!(sizes(&disk), BTreeSet::from([4, 10]));
    process.sync(&file).expect("synced");
    assert_eq!(sizes(&disk), BTreeSet::from([4]));
    process.write_at(&file, &[IoSlice::new(b"x")], 4).expect("written");
    assert_eq!(disk.read_file("/sessions/a").expect("a file"), b"0123x");
}

#[test]
fn a_plain_open_follows_links_and_says_where_it_would_wait() {
    let mut world = World::new(Backend::Simulated, "a").expect("a world");
    let disk = world.disk().cloned().expect("a disk");
    disk.write_file(world.beside("b"), b"beside").expect("a file");
    disk.symlink("b", world.session()).expect("a link");
    disk.fifo(world.beside("c")).expect("a FIFO");
    let ops = world.process(&Injector::watching());
    let dir = ops.open_dir(world.root()).expect("a directory");
    assert!(ops.open(&dir, "a".as_ref(), Access::Read).is_err());
    let file = ops.open_plainly(&dir, "a".as_ref(), Access::Read).expect("it leads to b");
    assert_eq!(ops.stat(&file).expect("a look").size, 6);
    assert_eq!(ops.open_plainly(&dir, "c".as_ref(), Access::Read).err(), Some(WOULD_HANG));
}

fn in_parallel<'a, T: Sync>(all: &'a [T], run: impl Fn(&'a T) + Sync) {
    let (run, share) = (&run, all.len().div_ceil(2).max(1));
    thread::scope(|scope| {
        for part in all.chunks(share) {
            scope.spawn(move || part.iter().for_each(run));
        }
    });
}
