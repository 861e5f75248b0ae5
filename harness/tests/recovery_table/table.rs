//! Every pair of contents, with every choice.

use session_harness::world::Backend;
use session_tree::recover::{Choice, inspect_with, recover_with};
use session_tree::{Code, Options, Store};

use super::ground::{
    End, Ground, MARKER, Put, SESSION, assert_aside_says_when, assert_nothing_lost, entries_of, is_aside,
    others,
};

const CURRENT: [Put; 16] = [
    Put::Absent,
    Put::Empty,
    Put::TornHeader,
    Put::HeaderOnly,
    Put::Two,
    Put::Three,
    Put::TwoTorn,
    Put::Fork,
    Put::Twin,
    Put::Other,
    Put::BadMiddle,
    Put::InvalidUtf8,
    Put::TooLarge,
    Put::Directory,
    Put::Symlink,
    Put::Fifo,
];

/// States by what the marker's name holds, in the order of [`CURRENT`], then a second name of the session's inode.
/// One row for each of [`CURRENT`] at the session's name.
#[rustfmt::skip]
const STATES: [[&str; 17]; 16] = [
    // absent empty torn header two three two-torn fork twin other bad-middle utf8 too-large directory symlink fifo same
    [AB, BL, BL, PL, PL, PL, PL, PL, PL, PL, BL, BL, BL, FO, FO, FO, NO], // absent
    [IC, BB, BB, PD, PD, PD, PD, PD, PD, PD, BB, BB, BB, FO, FO, FO, BB], // empty
    [IC, BB, BB, PD, PD, PD, PD, PD, PD, PD, BB, BB, BB, FO, FO, FO, BB], // torn header
    [CL, MU, MU, AR, PO, PO, PO, PO, PO, DI, MU, MU, MU, FO, FO, FO, BR], // header only
    [CL, MU, MU, AR, AR, PO, AR, DI, DI, DI, MU, MU, MU, FO, FO, FO, BR], // two
    [CL, MU, MU, AR, AR, AR, AR, DI, DI, DI, MU, MU, MU, FO, FO, FO, BR], // three
    [CL, MU, MU, AR, AR, PO, AR, DI, DI, DI, MU, MU, MU, FO, FO, FO, BR], // two, torn tail
    [CL, MU, MU, AR, DI, DI, DI, AR, DI, DI, MU, MU, MU, FO, FO, FO, BR], // fork
    [CL, MU, MU, AR, DI, DI, DI, DI, AR, DI, MU, MU, MU, FO, FO, FO, BR], // twin
    [CL, MU, MU, DI, DI, DI, DI, DI, DI, AR, MU, MU, MU, FO, FO, FO, BR], // other session
    [DA, BB, BB, PD, PD, PD, PD, PD, PD, PD, BB, BB, BB, FO, FO, FO, BB], // bad line in the middle
    [DA, BB, BB, PD, PD, PD, PD, PD, PD, PD, BB, BB, BB, FO, FO, FO, BB], // invalid UTF-8
    [DA, BB, BB, PD, PD, PD, PD, PD, PD, PD, BB, BB, BB, FO, FO, FO, BB], // too large
    [FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, NO], // directory
    [FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, NO], // symbolic link
    [FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, FO, NO], // FIFO
];

const AB: &str = "absent";
const CL: &str = "clean";
const IC: &str = "interrupted-create";
const DA: &str = "damaged";
const BR: &str = "interrupted-before-rename";
const AR: &str = "interrupted-after-rename";
const PO: &str = "path-older";
const DI: &str = "diverged";
const MU: &str = "marker-unreadable";
const PL: &str = "path-lost";
const PD: &str = "path-damaged";
const BL: &str = "both-lost";
const BB: &str = "both-bad";
const FO: &str = "foreign";
/// There is no such pair.
const NO: &str = "";

pub(crate) const CHOICES: [Option<Choice>; 4] =
    [None, Some(Choice::Current), Some(Choice::Marker), Some(Choice::SetAside)];

/// What a recovery may answer.
enum Expected {
    Does(&'static [&'static str]),
    Refuses(Code),
}

use Expected::{Does, Refuses};

fn expected(state: &str, current: Put, choice: Option<Choice>) -> Expected {
    const TAKE_MARKER: &[&str] = &["set-aside-current", "marker-becomes-current"];
    match (state, choice) {
        (CL | AB, _) => Does(&[]),
        (BR | AR, _) => Does(&["remove-marker"]),
        (PL, _) => Does(&["marker-becomes-current"]),
        (MU, _) | (DI, Some(Choice::Current)) => Does(&["set-aside-marker"]),
        (PO, _) | (DI | PD, Some(Choice::Marker)) => Does(TAKE_MARKER),
        (IC, Some(Choice::SetAside)) => Does(&["set-aside-current"]),
        (IC, _) => Refuses(Code::InvalidHeader),
        (DA, _) => Refuses(match current {
            Put::BadMiddle => Code::InvalidJson,
            Put::InvalidUtf8 => Code::InvalidUtf8,
            _ => Code::FileTooLarge,
        }),
        (FO, _) => Refuses(Code::FileChanged),
        _ => Refuses(Code::RollbackFailed),
    }
}

/// Where `actions` lead from these two files.
fn end(actions: &[&str], current: Option<Vec<u8>>, marker: Option<Vec<u8>>) -> End {
    let kept = |bytes: Option<Vec<u8>>| bytes.into_iter().collect();
    match actions {
        [] => End { session: current, marker, asides: Vec::new() },
        ["remove-marker"] => End { session: current, ..End::default() },
        ["set-aside-current"] => End { asides: kept(current), ..End::default() },
        ["set-aside-marker"] => End { session: current, asides: kept(marker), ..End::default() },
        ["marker-becomes-current"] => End { session: marker, ..End::default() },
        _ => End { session: marker, asides: kept(current), ..End::default() },
    }
}

fn pairs() -> impl Iterator<Item = (Put, Put, &'static str)> {
    let markers = CURRENT.into_iter().chain([Put::HardLink]);
    CURRENT
        .into_iter()
        .zip(STATES)
        .flat_map(move |(current, row)| {
            markers.clone().zip(row).map(move |(marker, state)| (current, marker, state))
        })
        .filter(|(_, _, state)| *state != NO)
}

fn inspect_pair(backend: Backend, current: Put, marker: Put, state: &str) {
    let what = format!("{current:?} beside {marker:?}");
    let ground = Ground::new(backend, current, marker);
    let before = ground.view();
    let inspection = inspect_with(ground.ops.clone(), ground.path()).expect(&what);
    assert_eq!(inspection.state.token(), state, "{what}");
    assert_eq!(ground.view(), before, "{what}");
    ground.assert_nothing_held(&what);
}

/// Inspects, recovers, loads and recovers again.
fn recover_pair(backend: Backend, current: Put, marker: Put, state: &str, choice: Option<Choice>) {
    let what = format!("{current:?} beside {marker:?}, {choice:?}");
    let ground = Ground::new(backend, current, marker);
    let before = ground.view();
    let marker_bytes = if marker == Put::HardLink { current.bytes() } else { marker.bytes() };
    let answer = recover_with(ground.ops.clone(), ground.path(), choice);
    ground.assert_nothing_held(&what);
    let after = ground.view();
    assert_nothing_lost(&before, &after, &what);
    assert_eq!(others(&after), others(&before), "{what}");
    let again = recover_with(ground.ops.clone(), ground.path(), choice);
    assert_eq!(ground.view(), after, "{what}: recovered twice");
    ground.assert_nothing_held(&what);
    match expected(state, current, choice) {
        Refuses(code) => {
            for refused in [answer, again] {
                let error = refused.expect_err(&what);
                assert_eq!((error.code(), error.in_flight()), (code, false), "{what}");
            }
            assert_eq!(after, before, "{what}");
        }
        Does(actions) => {
            let (recovery, again) = (answer.expect(&what), again.expect(&what));
            assert_eq!(recovery.state.token(), state, "{what}");
            let did: Vec<&str> = recovery.did.iter().map(|step| step.action.token()).collect();
            assert_eq!(did, actions, "{what}");
            assert_eq!(End::of(&after), end(actions, current.bytes(), marker_bytes), "{what}");
            for step in &recovery.did {
                let there = after.iter().find(|seen| seen.name == step.name);
                match step.action.token() {
                    "remove-marker" => assert_eq!(step.name, MARKER, "{what}"),
                    "marker-becomes-current" => assert_eq!(step.name, SESSION, "{what}"),
                    _ => assert!(there.is_some_and(is_aside), "{what}: {}", step.name.display()),
                }
            }
            after.iter().filter(|seen| is_aside(seen)).for_each(assert_aside_says_when);
            assert!(again.did.is_empty(), "{what}: {again:?}");
            assert_loads(&ground, &after, again.state.token(), &what);
        }
    }
}

/// What is left is a session that loads, or no session.
fn assert_loads(ground: &Ground, after: &[session_harness::outsider::Seen], state: &str, what: &str) {
    let Some(session) = after.iter().find(|seen| seen.name == SESSION) else {
        assert_eq!(state, AB, "{what}");
        return;
    };
    assert_eq!(state, CL, "{what}");
    let store = Store::load_with(ground.ops.clone(), ground.path(), Options::new()).expect(what);
    let held = session.bytes.as_deref().map(entries_of).unwrap_or_default();
    assert_eq!(store.entries().len(), held.len(), "{what}");
}

// Requirement: X1
#[test]
fn every_pair_of_contents_has_the_state_of_the_table_and_inspection_changes_nothing() {
    for (current, marker, state) in pairs() {
        inspect_pair(Backend::Simulated, current, marker, state);
    }
}

// Requirement: X2
#[test]
fn every_pair_is_resolved_or_refused_as_the_table_says_and_nothing_is_lost() {
    for (current, marker, state) in pairs() {
        for choice in CHOICES {
            recover_pair(Backend::Simulated, current, marker, state, choice);
        }
    }
}

// Requirement: X1, X2
#[test]
fn a_real_directory_is_resolved_as_the_simulated_one() {
    for (current, marker, state) in pairs() {
        inspect_pair(Backend::Real, current, marker, state);
        for choice in [None, Some(Choice::Marker)] {
            recover_pair(Backend::Real, current, marker, state, choice);
        }
    }
}

// Requirement: X1
#[test]
fn the_table_reaches_every_state_but_the_one_that_takes_a_live_process() {
    let mut reached: Vec<&str> = pairs().map(|(_, _, state)| state).collect();
    reached.sort_unstable();
    reached.dedup();
    let mut all: Vec<&str> = session_tree::recover::State::ALL.iter().map(|state| state.token()).collect();
    all.retain(|token| *token != "commit-in-flight");
    all.sort_unstable();
    assert_eq!(reached, all);
}

// Requirement: X4
#[test]
fn opening_with_recovery_loads_what_can_be_proved_and_refuses_the_rest() {
    for (current, marker, state) in pairs() {
        let what = format!("{current:?} beside {marker:?}");
        let ground = Ground::new(Backend::Simulated, current, marker);
        let before = ground.view();
        let opened = Store::open_recovering(ground.ops.clone(), ground.path(), Options::new());
        let after = ground.view();
        assert_nothing_lost(&before, &after, &what);
        match (expected(state, current, None), opened) {
            (Does(actions), Ok((store, recovery))) => {
                let did: Vec<&str> = recovery.did.iter().map(|step| step.action.token()).collect();
                assert_eq!((recovery.state.token(), did.as_slice()), (state, actions), "{what}");
                let session = End::of(&after).session.expect(&what);
                assert_eq!(store.entries().len(), entries_of(&session).len(), "{what}");
            }
            (Does(_), Err(error)) => {
                assert_eq!((state, error.code()), (AB, Code::Io), "{what}: {error}");
                assert_eq!(after, before, "{what}");
            }
            (Refuses(code), Err(error)) => {
                assert_eq!(error.code(), code, "{what}");
                assert_eq!(after, before, "{what}");
            }
            (Refuses(_), Ok(_)) => panic!("{what}: opened"),
        }
        ground.assert_nothing_held(&what);
    }
}

// Requirement: X2
#[test]
fn what_is_set_aside_leaves_what_was_set_aside_before() {
    let ground = Ground::new(Backend::Simulated, Put::Two, Put::Absent);
    let mut asides = Vec::new();
    for marker in [Put::Fork, Put::Twin, Put::Other, Put::BadMiddle, Put::Empty] {
        let bytes = marker.bytes().expect("a regular file");
        ground.world.outsider().write_file(&ground.world.beside(MARKER), &bytes).expect("a marker");
        recover_with(ground.ops.clone(), ground.path(), Some(Choice::Current)).expect("a recovery");
        asides.push(bytes);
        asides.sort();
        let end = End { session: Put::Two.bytes(), asides: asides.clone(), ..End::default() };
        assert_eq!(End::of(&ground.view()), end, "{marker:?}");
    }
}

// Requirement: X2, S1
#[test]
fn the_longest_name_that_a_session_can_have_can_be_set_aside_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let fits = |length: usize| Store::create(directory.path().join("n".repeat(length))).is_ok();
    let longest = (1..=255).rev().find(|length| fits(*length)).expect("some name fits");
    let path = directory.path().join("n".repeat(longest));
    let mut marker = path.file_name().expect("a name").to_owned();
    marker.push(".pify-session-recovery");
    std::fs::write(path.with_file_name(marker), "not a session\n").expect("a marker");
    let recovery = session_tree::recover::recover(&path, None).expect("a recovery");
    assert_eq!(recovery.state.token(), MU);
    assert!(path.with_file_name(&recovery.did[0].name).exists());
}
