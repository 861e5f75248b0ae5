//! What a crash left beside a session, told apart and resolved, and the failures that may strike that.

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use session_tree::file_ops::{Access, FileKind, FileOps, Lock, OsDir, OsFile, OsFileOps};
use session_tree::recover::{
    Action, Choice, Content, Recovery, State, inspect, inspect_with, plan, recover, recover_with,
    remove_strays, remove_strays_with, strays, strays_with,
};
use session_tree::{Code, Errno, Error, Options, Stage, Store};

use support::scripted::{Op, Role, What, actor, at, at_index};
use support::{Fixture, NAME, ids, refused, replace};

/// What stands at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// A generation of the session with so many entries, each one an extension of those with fewer.
    Entries(usize),
    /// A generation of the session with another first entry.
    Other,
    /// The beginning of a header.
    Begun,
    Damaged,
    Directory,
}
use Held::{Begun, Damaged, Directory, Entries, Nothing, Other};

/// What a recovery does without a choice and with each of [`Choice::ALL`]; none where it refuses.
type Plans = [Option<&'static [Action]>; 4];

const REMOVE: Option<&[Action]> = Some(&[Action::RemoveMarker]);
const KEEP_CURRENT: Option<&[Action]> = Some(&[Action::SetAsideMarker]);
const TAKE_MARKER: Option<&[Action]> = Some(&[Action::SetAsideCurrent, Action::MarkerBecomesCurrent]);
const BRING_BACK: Option<&[Action]> = Some(&[Action::MarkerBecomesCurrent]);
const OUT_OF_THE_WAY: Option<&[Action]> = Some(&[Action::SetAsideCurrent]);
const REFUSED: Plans = [None; 4];

/// Session file, marker, the state that this is, and what recovering does.
const STATES: &[(Held, Held, State, Plans)] = &[
    (Entries(2), Nothing, State::Clean, [Some(&[]); 4]),
    (Nothing, Nothing, State::Absent, [Some(&[]); 4]),
    (Begun, Nothing, State::InterruptedCreate, [None, None, None, OUT_OF_THE_WAY]),
    (Damaged, Nothing, State::Damaged, REFUSED),
    (Entries(2), Entries(1), State::InterruptedAfterRename, [REMOVE; 4]),
    (Entries(2), Entries(2), State::InterruptedAfterRename, [REMOVE; 4]),
    (Entries(1), Entries(2), State::PathOlder, [TAKE_MARKER; 4]),
    (Entries(1), Other, State::Diverged, [None, KEEP_CURRENT, TAKE_MARKER, None]),
    (Entries(1), Damaged, State::MarkerUnreadable, [KEEP_CURRENT; 4]),
    (Nothing, Entries(1), State::PathLost, [BRING_BACK; 4]),
    (Damaged, Entries(1), State::PathDamaged, [None, None, TAKE_MARKER, None]),
    (Nothing, Damaged, State::BothLost, REFUSED),
    (Damaged, Damaged, State::BothBad, REFUSED),
    (Directory, Nothing, State::Foreign, REFUSED),
    (Entries(1), Directory, State::Foreign, REFUSED),
];

fn bytes_of(held: Held) -> Vec<u8> {
    match held {
        Entries(count) => Fixture::with_entries(count).0.bytes(),
        Other => String::from_utf8(bytes_of(Entries(1))).unwrap().replace("e-1", "o-1").into_bytes(),
        Begun => b"{\"type\":\"sess".to_vec(),
        Damaged => b"not JSON\n".to_vec(),
        Nothing | Directory => Vec::new(),
    }
}

fn lay(current: Held, marker: Held) -> Fixture {
    let fixture = Fixture::new();
    for (held, path) in [(current, fixture.path()), (marker, fixture.marker())] {
        match held {
            Nothing => {}
            Directory => fs::create_dir(path).unwrap(),
            _ => fs::write(path, bytes_of(held)).unwrap(),
        }
    }
    fixture
}

/// A commit that was cut off between its link and its rename: both names stand for one file.
fn cut_off_before_the_rename() -> Fixture {
    let fixture = lay(Entries(1), Nothing);
    fs::hard_link(fixture.path(), fixture.marker()).unwrap();
    fixture
}

impl Held {
    fn is_file(self) -> bool {
        !matches!(self, Nothing | Directory)
    }
}

fn choices() -> impl Iterator<Item = Option<Choice>> {
    std::iter::once(None).chain(Choice::ALL.iter().copied().map(Some))
}

/// Every case in which a recovery does something: the files, the choice, and what it does.
fn cures() -> Vec<(Held, Held, Option<Choice>, &'static [Action])> {
    let mut cures = Vec::new();
    for &(current, marker, _, plans) in STATES {
        for (choice, actions) in choices().zip(plans) {
            if let Some(actions) = actions.filter(|actions| !actions.is_empty()) {
                cures.push((current, marker, choice, actions));
            }
        }
    }
    cures
}

fn recover_in(fixture: &Fixture, choice: Option<Choice>) -> session_tree::Result<Recovery> {
    recover_with(fixture.ops.clone(), fixture.path(), choice)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

/// What was set aside.
fn asides(fixture: &Fixture) -> Vec<Vec<u8>> {
    let is_aside = |name: &OsString| name.to_string_lossy().contains(".pify-session-aside-");
    let names = fixture.names().into_iter().filter(is_aside);
    names.map(|name| fs::read(fixture.dir().join(name)).unwrap()).collect()
}

/// The files are as `actions` leave them, whatever happened on the way.
#[track_caller]
fn assert_cured(fixture: &Fixture, current: Held, marker: Held, actions: &[Action], at: &str) {
    let (old, newer) = (bytes_of(current), bytes_of(marker));
    let does = |action| actions.contains(&action);
    let kept = if does(Action::MarkerBecomesCurrent) {
        Some(newer.clone())
    } else if does(Action::SetAsideCurrent) {
        None
    } else {
        Some(old.clone())
    };
    let mut aside = Vec::new();
    aside.extend(does(Action::SetAsideCurrent).then_some(old));
    aside.extend(does(Action::SetAsideMarker).then_some(newer));
    assert_eq!(read(&fixture.path()), kept, "{at}");
    assert_eq!(asides(fixture), aside, "{at}");
    assert_eq!(fixture.names().len(), usize::from(kept.is_some()) + aside.len(), "{at}");
}

// Requirement: X1
#[test]
fn every_state_has_its_name_and_looking_changes_nothing() {
    for &(current, marker, state, _) in STATES {
        let fixture = lay(current, marker);
        let names = fixture.names();
        let seen = inspect(fixture.path()).unwrap();
        assert_eq!(seen.state, state, "{current:?} {marker:?}");
        assert_eq!(seen.marker_name, fixture.marker().file_name().unwrap());
        assert!(seen.strays.is_empty());
        for (held, content, path) in
            [(current, seen.current, fixture.path()), (marker, seen.marker, fixture.marker())]
        {
            match (held, content) {
                (Nothing, Content::Absent) | (Directory, Content::Foreign(FileKind::Directory)) => {}
                (Entries(count), Content::Session(decoded)) => assert_eq!(decoded.entries().len(), count),
                (Other, Content::Session(decoded)) => assert_eq!(decoded.entries()[0].id(), "o-1"),
                (Damaged, Content::Refused(error)) => {
                    assert_eq!((error.code(), error.path()), (Code::InvalidJson, Some(&*path)));
                }
                (Begun, Content::Refused(error)) => assert_eq!(error.requirement(), "F6"),
                (held, content) => panic!("{held:?} was seen as {content:?}"),
            }
            if held.is_file() {
                assert_eq!(read(&path).unwrap(), bytes_of(held));
            }
        }
        assert_eq!(fixture.names(), names);
        assert_eq!(fixture.descriptors(), 0);
    }
    let before = inspect(cut_off_before_the_rename().path()).unwrap();
    assert_eq!(before.state, State::InterruptedBeforeRename);
}

// Requirement: X1
#[test]
fn a_file_too_large_to_be_a_session_is_refused_and_not_read() {
    let fixture = lay(Nothing, Entries(1));
    fs::write(fixture.path(), vec![b' '; session_tree::limits::MAX_SESSION_FILE_BYTES + 1]).unwrap();
    let seen = inspect_with(fixture.ops.clone(), fixture.path()).unwrap();
    assert_eq!(seen.state, State::PathDamaged);
    let Content::Refused(error) = seen.current else { panic!("{:?}", seen.current) };
    assert_eq!((error.code(), error.path()), (Code::FileTooLarge, Some(&*fixture.path())));
    assert_eq!(fixture.ops.count(Op::ReadAt, Role::Session), 0);
}

// Requirement: X1
#[test]
fn the_same_entries_under_another_header_are_another_session() {
    let fixture = lay(Entries(2), Nothing);
    let other = String::from_utf8(bytes_of(Entries(1))).unwrap().replacen("\"id\":\"s\"", "\"id\":\"z\"", 1);
    fs::write(fixture.marker(), other).unwrap();
    assert_eq!(inspect(fixture.path()).unwrap().state, State::Diverged);
}

// Requirement: X1
#[test]
fn tokens_are_the_stable_ones() {
    let tokens: Vec<&str> = State::ALL.iter().map(|state| state.token()).collect();
    assert_eq!(
        tokens,
        [
            "commit-in-flight",
            "clean",
            "absent",
            "interrupted-create",
            "damaged",
            "interrupted-before-rename",
            "interrupted-after-rename",
            "path-older",
            "diverged",
            "marker-unreadable",
            "path-lost",
            "path-damaged",
            "both-lost",
            "both-bad",
            "foreign",
        ]
    );
    assert_eq!(format!("[{:>12}]", State::Clean), "[       clean]");
    assert!(State::ALL.iter().all(|state| !state.words().is_empty()));
    assert_eq!(
        Choice::ALL.iter().map(|choice| choice.token()).collect::<Vec<_>>(),
        ["current", "marker", "set-aside"]
    );
    let actions =
        [Action::RemoveMarker, Action::SetAsideCurrent, Action::SetAsideMarker, Action::MarkerBecomesCurrent];
    assert_eq!(
        actions.map(Action::token),
        ["remove-marker", "set-aside-current", "set-aside-marker", "marker-becomes-current"]
    );
}

// Requirement: X2
#[test]
fn what_is_proved_is_resolved_and_the_rest_needs_the_callers_choice() {
    for &(current, marker, state, plans) in STATES {
        for (choice, actions) in choices().zip(plans) {
            let at = format!("{state} {choice:?}");
            assert_eq!(plan(state, choice), actions, "{at}");
            let fixture = lay(current, marker);
            let names = fixture.names();
            match (recover_in(&fixture, choice), actions) {
                (Ok(recovery), Some([])) => {
                    assert_eq!(recovery, Recovery { state, did: Vec::new() });
                    assert_eq!(fixture.names(), names);
                }
                (Ok(recovery), Some(actions)) => {
                    assert_eq!(recovery.state, state, "{at}");
                    assert_eq!(recovery.did.iter().map(|step| step.action).collect::<Vec<_>>(), actions);
                    for step in &recovery.did {
                        let is_there = fixture.dir().join(&step.name).symlink_metadata().is_ok();
                        assert_eq!(is_there, step.action != Action::RemoveMarker, "{at} {step:?}");
                    }
                    assert_cured(&fixture, current, marker, actions, &at);
                    assert_eq!(recover_in(&fixture, choice).unwrap().did, [], "{at}");
                }
                (Err(error), None) => {
                    assert_refused_as(&error, state, &at);
                    assert_eq!(fixture.names(), names, "{at}");
                }
                (answer, actions) => panic!("{at}: {answer:?}, expected {actions:?}"),
            }
            assert_eq!(fixture.descriptors(), 0, "{at}");
        }
    }
    assert_eq!(plan(State::CommitInFlight, Some(Choice::Marker)), None);
}

#[track_caller]
fn assert_refused_as(error: &Error, state: State, at: &str) {
    let code = match state {
        State::Damaged => Code::InvalidJson,
        State::InterruptedCreate => Code::InvalidHeader,
        State::Foreign => Code::FileChanged,
        _ => Code::RollbackFailed,
    };
    assert_eq!((error.code(), error.stage()), (code, Some(Stage::X2)), "{at}: {error}");
    assert!(!error.in_flight() && error.path().is_some(), "{at}: {error}");
    if code == Code::RollbackFailed {
        assert!(error.message().contains(state.token()), "{at}: {error}");
    }
}

// Requirement: X2
#[test]
fn a_commit_that_was_cut_off_before_its_rename_loses_its_marker_and_nothing_else() {
    for choice in choices() {
        let fixture = cut_off_before_the_rename();
        let recovery = recover(fixture.path(), choice).unwrap();
        assert_eq!(recovery.state, State::InterruptedBeforeRename);
        assert_eq!(recovery.did[0].name, fixture.marker().file_name().unwrap());
        assert!(fixture.is_tidy());
        assert_eq!(fixture.cold_ids(), ["e-1"]);
    }
}

// Requirement: X2
#[test]
fn a_recovery_that_any_failure_cut_off_keeps_every_entry_and_ends_in_the_same_place() {
    for (current, marker, choice, actions) in cures() {
        let calls = {
            let fixture = lay(current, marker);
            recover_in(&fixture, choice).unwrap();
            fixture.ops.calls()
        };
        assert!(calls > 10);
        for what in [What::Before as fn(Errno) -> What, What::After] {
            for index in 0..calls {
                let fixture = lay(current, marker);
                fixture.ops.plan(at_index(index, what(Errno::EIO)));
                let answer = recover_in(&fixture, choice);
                let at = format!(
                    "{current:?} {marker:?} {choice:?} call {index} {:?}",
                    fixture.ops.trace()[index]
                );
                assert_eq!(fixture.ops.fired(), 1, "{at}");
                fixture.ops.forget();
                if let Err(error) = &answer {
                    assert_eq!((error.code(), error.errno()), (Code::Io, Some(Errno::EIO)), "{at}: {error}");
                    assert_eq!(error.stage(), Some(Stage::X2), "{at}: {error}");
                    assert!(
                        error.path().is_some_and(|path| path.starts_with(fixture.dir())),
                        "{at}: {error}"
                    );
                }
                for held in [current, marker].into_iter().filter(|held| held.is_file()) {
                    let is_given_up = actions == [Action::RemoveMarker] && held == marker;
                    assert!(is_given_up || holds(&fixture, &bytes_of(held)), "{at}: {held:?} is gone");
                }
                if answer.is_err() {
                    recover_in(&fixture, choice).unwrap();
                }
                assert_cured(&fixture, current, marker, actions, &at);
                assert_eq!(fixture.descriptors(), 0, "{at}");
            }
        }
    }
}

fn holds(fixture: &Fixture, bytes: &[u8]) -> bool {
    fixture.names().iter().any(|name| fs::read(fixture.dir().join(name)).unwrap() == bytes)
}

// Requirement: X2
#[test]
fn each_step_of_a_recovery_is_durable_before_the_next() {
    let fixture = lay(Entries(1), Entries(2));
    recover_in(&fixture, None).unwrap();
    let changes: Vec<_> = fixture
        .ops
        .trace()
        .into_iter()
        .filter(|(op, _)| matches!(op, Op::Sync | Op::SyncDir | Op::Link | Op::Unlink | Op::Rename))
        .collect();
    assert_eq!(
        changes,
        [
            (Op::Sync, Role::Marker),
            (Op::SyncDir, Role::Directory),
            (Op::Link, Role::Temporary),
            (Op::SyncDir, Role::Directory),
            (Op::Unlink, Role::Session),
            (Op::SyncDir, Role::Directory),
            (Op::Link, Role::Session),
            (Op::SyncDir, Role::Directory),
            (Op::Unlink, Role::Marker),
            (Op::SyncDir, Role::Directory),
        ]
    );
    let kept = lay(Entries(2), Entries(1));
    recover_in(&kept, None).unwrap();
    assert_eq!(kept.ops.count(Op::Sync, Role::Session), 1);
    assert_eq!(kept.ops.count(Op::Sync, Role::Marker), 0);
}

// Requirement: X2
#[test]
fn what_was_set_aside_by_a_recovery_that_was_cut_off_keeps_that_name() {
    let fixture = lay(Entries(1), Entries(2));
    // Another session's file, another file, and this one, in the order of the names.
    let aside = |file: &str, time: &str| fixture.dir().join(format!("{file}.pify-session-aside-{time}"));
    fs::hard_link(fixture.path(), aside("b.jsonl", "1")).unwrap();
    fs::write(aside(NAME, "1"), "aside before").unwrap();
    fs::hard_link(fixture.path(), aside(NAME, "2")).unwrap();
    let recovery = recover_in(&fixture, None).unwrap();
    assert_eq!(recovery.did[0].name, aside(NAME, "2").file_name().unwrap());
    assert_eq!(fixture.names().len(), 4);
    assert_eq!(fixture.cold_ids(), ["e-1", "e-2"]);
}

// Requirement: X2, C21
#[test]
fn a_stranger_that_takes_a_name_during_a_recovery_is_left_alone() {
    // At a call of this kind, the stranger takes this name; the answer names it.
    let stranger = b"stranger's".to_vec();
    for (current, marker, op, role, nth, victim) in [
        // Before the link that sets the session aside, and before the one that brings the marker to the path.
        (Entries(1), Entries(2), Op::Sync, Role::Marker, 1, NAME),
        (Nothing, Entries(1), Op::Link, Role::Session, 1, NAME),
        (Nothing, Entries(1), Op::Sync, Role::Marker, 1, "a.jsonl.pify-session-recovery"),
        // Before the removal of a name, what must be kept for it, or the name itself, is another file.
        (Entries(2), Entries(1), Op::SyncDir, Role::Directory, 1, NAME),
        (Entries(2), Entries(1), Op::SyncDir, Role::Directory, 1, "a.jsonl.pify-session-recovery"),
        (Nothing, Entries(1), Op::SyncDir, Role::Directory, 2, NAME),
    ] {
        let fixture = lay(current, marker);
        let path = fixture.dir().join(victim);
        let (place, bytes) = (path.clone(), stranger.clone());
        fixture.ops.plan(at(op, role, actor(move || replace(&place, &bytes))).nth(nth));
        let error = refused(recover_in(&fixture, None), Code::FileChanged);
        assert_eq!(fixture.ops.fired(), 1);
        assert_eq!((error.path(), error.stage()), (Some(&*path), Some(Stage::X2)), "{error}");
        let by_the_link = op == Op::Link;
        assert_eq!(error.errno(), by_the_link.then_some(Errno::EEXIST), "{error}");
        assert_eq!(read(&path).unwrap(), stranger, "{error}");
        fs::remove_file(&path).unwrap();
        let replaced = if victim == NAME { current } else { marker };
        for held in [current, marker].into_iter().filter(|held| held.is_file() && *held != replaced) {
            assert!(holds(&fixture, &bytes_of(held)), "{held:?} is gone: {error}");
        }
    }
}

// Requirement: X2, C21
#[test]
fn a_name_that_cannot_be_removed_is_an_error_and_nothing_is_lost() {
    for (current, marker, role) in
        [(Entries(2), Entries(1), Role::Marker), (Entries(1), Entries(2), Role::Session)]
    {
        let fixture = lay(current, marker);
        fixture.ops.plan(at(Op::Unlink, role, What::Before(Errno::EPERM)).for_ever());
        let error = refused(recover_in(&fixture, None), Code::Io);
        assert_eq!((error.errno(), error.stage()), (Some(Errno::EPERM), Some(Stage::X2)));
        assert_eq!(read(&fixture.path()).unwrap(), bytes_of(current));
        assert_eq!(read(&fixture.marker()).unwrap(), bytes_of(marker));
    }
}

// Requirement: X2, C27
#[test]
fn a_link_that_cannot_be_made_is_an_error_with_its_number() {
    let fixture = lay(Nothing, Entries(1));
    for errno in [Errno::EPERM, Errno::EEXIST] {
        fixture.ops.plan(at(Op::Link, Role::Session, What::Before(errno)));
        let error = refused(recover_in(&fixture, None), Code::Io);
        assert_eq!((error.errno(), error.stage()), (Some(errno), Some(Stage::X2)));
        assert_eq!(fixture.names(), [fixture.marker().file_name().unwrap()]);
    }
    let path = fixture.path();
    let stranger = actor(move || fs::write(&path, "stranger's").unwrap());
    fixture.ops.plan(at(Op::Link, Role::Session, stranger));
    fixture.ops.plan(at(Op::Link, Role::Session, What::Before(Errno::EPERM)));
    assert_eq!(refused(recover_in(&fixture, None), Code::Io).errno(), Some(Errno::EPERM));
    fs::remove_file(fixture.path()).unwrap();
    // One that took effect and failed.
    fixture.ops.plan(at(Op::Link, Role::Session, What::After(Errno::EIO)));
    assert_eq!(recover_in(&fixture, None).unwrap().did.len(), 1);
    assert_eq!(fixture.cold_ids(), ["e-1"]);
}

// ------------------------------------------------------------------------------------------------ other processes

fn open_in(fixture: &Fixture, path: &Path) -> OsFile {
    let os = OsFileOps::new();
    let dir: OsDir = os.open_dir(&fixture.dir()).unwrap();
    os.open(&dir, path.file_name().unwrap(), Access::Read).unwrap()
}

fn lock(file: &OsFile, kind: Lock) -> bool {
    OsFileOps::new().try_lock(file, kind).unwrap()
}

// Requirement: X1, X2, S8
#[test]
fn a_marker_whose_inode_is_locked_is_a_commit_in_flight() {
    for fixture in [cut_off_before_the_rename(), lay(Entries(2), Entries(1)), lay(Nothing, Damaged)] {
        let names = fixture.names();
        let committing = open_in(&fixture, &fixture.marker());
        assert!(lock(&committing, Lock::Exclusive));
        assert_eq!(inspect_with(fixture.ops.clone(), fixture.path()).unwrap().state, State::CommitInFlight);
        let error = refused(recover_in(&fixture, Some(Choice::Current)), Code::RollbackFailed);
        assert!(error.in_flight(), "{error}");
        assert_eq!(error.stage(), Some(Stage::X2));
        assert!(error.message().contains("commit-in-flight"), "{error}");
        assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 100);
        assert_eq!(fixture.names(), names);
        drop(committing);
        assert_ne!(inspect(fixture.path()).unwrap().state, State::CommitInFlight);
    }
}

// Requirement: X1, S8
#[test]
fn a_marker_that_others_only_read_is_no_commit_in_flight() {
    let fixture = lay(Entries(2), Entries(1));
    let reading = open_in(&fixture, &fixture.marker());
    assert!(lock(&reading, Lock::Shared));
    assert_eq!(inspect(fixture.path()).unwrap().state, State::InterruptedAfterRename);
    assert!(lock(&reading, Lock::Exclusive), "the inspection kept its lock");
}

// Requirement: X2, S8
#[test]
fn a_session_that_another_process_keeps_locked_is_refused_after_a_bounded_wait() {
    let fixture = lay(Entries(2), Entries(1));
    let other = open_in(&fixture, &fixture.path());
    assert!(lock(&other, Lock::Exclusive));
    let error = refused(recover_in(&fixture, None), Code::Io);
    assert!(error.in_flight(), "{error}");
    assert_eq!((error.errno(), error.stage()), (Some(Errno::EAGAIN), Some(Stage::X2)));
    assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 100);
    drop(other);
    recover_in(&fixture, None).unwrap();
    assert!(fixture.is_tidy());
}

// Requirement: X2, S8
#[test]
fn both_files_are_locked_while_a_recovery_acts_and_free_afterwards() {
    let fixture = lay(Entries(1), Damaged);
    let (path, marker) = (open_in(&fixture, &fixture.path()), open_in(&fixture, &fixture.marker()));
    let (path, marker) = (std::sync::Arc::new(path), std::sync::Arc::new(marker));
    let (one, two) = (path.clone(), marker.clone());
    fixture.ops.plan(at(
        Op::SyncDir,
        Role::Directory,
        actor(move || assert!(!lock(&one, Lock::Shared) && !lock(&two, Lock::Shared), "not locked")),
    ));
    recover_in(&fixture, None).unwrap();
    assert_eq!(fixture.ops.fired(), 1);
    assert!(lock(&path, Lock::Exclusive) && lock(&marker, Lock::Exclusive));
}

// Requirement: X2, S8
#[test]
fn one_inode_under_both_names_is_locked_once() {
    let fixture = cut_off_before_the_rename();
    recover_in(&fixture, None).unwrap();
    assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 0);
    assert!(fixture.is_tidy());
}

// Requirement: X1, X2, S8
#[test]
fn without_locks_the_files_alone_decide() {
    for errno in [Errno::ENOLCK, Errno::ENOTSUP, Errno::ENOSYS] {
        let fixture = lay(Entries(2), Entries(1));
        for role in [Role::Session, Role::Marker] {
            fixture.ops.plan(at(Op::TryLock, role, What::Before(errno)).for_ever());
        }
        let seen = inspect_with(fixture.ops.clone(), fixture.path()).unwrap();
        assert_eq!(seen.state, State::InterruptedAfterRename);
        recover_in(&fixture, None).unwrap();
        assert!(fixture.is_tidy());
    }
}

// Requirement: X1, X2
#[test]
fn files_that_change_while_they_are_looked_at_are_looked_at_again() {
    // The session file grows a generation at a look, an open, a read, or the lock of the marker.
    for (op, role) in [
        (Op::Open, Role::Session),
        (Op::ReadAt, Role::Session),
        (Op::Stat, Role::Session),
        (Op::ReadAt, Role::Marker),
        (Op::TryLock, Role::Marker),
    ] {
        let begin = || {
            let fixture = lay(Entries(1), Entries(2));
            let (path, bytes) = (fixture.path(), bytes_of(Entries(3)));
            fixture.ops.plan(at(op, role, actor(move || replace(&path, &bytes))));
            fixture
        };
        let fixture = begin();
        let seen = inspect_with(fixture.ops.clone(), fixture.path()).unwrap();
        assert_eq!(seen.state, State::InterruptedAfterRename, "{op:?} {role:?}");
        assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 1, "{op:?} {role:?}");
        let fixture = begin();
        assert_eq!(
            recover_in(&fixture, None).unwrap().state,
            State::InterruptedAfterRename,
            "{op:?} {role:?}"
        );
        assert_eq!(fixture.cold_ids(), ["e-1", "e-2", "e-3"]);
    }
}

// Requirement: X1, X2
#[test]
fn a_file_that_is_written_to_while_it_is_read_is_read_again() {
    let begin = || {
        let fixture = lay(Entries(1), Entries(2));
        let path = fixture.path();
        let grow = actor(move || fs::write(&path, bytes_of(Entries(3))).unwrap());
        fixture.ops.plan(at(Op::ReadAt, Role::Session, grow));
        fixture
    };
    let fixture = begin();
    let seen = inspect_with(fixture.ops.clone(), fixture.path()).unwrap();
    assert_eq!((seen.state, fixture.ops.fired()), (State::InterruptedAfterRename, 1));
    let fixture = begin();
    assert_eq!(recover_in(&fixture, None).unwrap().state, State::InterruptedAfterRename);
    assert_eq!(fixture.cold_ids(), ["e-1", "e-2", "e-3"]);
}

// Requirement: X1, X2
#[test]
fn a_name_that_goes_comes_or_turns_into_something_else_meanwhile_is_looked_at_again() {
    type Act = fn(&Path);
    let go: Act = |path| fs::remove_file(path).unwrap();
    let come: Act = |path| fs::write(path, bytes_of(Entries(1))).unwrap();
    let turn: Act = |path| {
        fs::remove_dir(path).unwrap();
        fs::write(path, bytes_of(Entries(1))).unwrap();
    };
    for (current, act, op, role, state) in [
        (Entries(1), go, Op::Open, Role::Session, State::PathLost),
        (Entries(1), go, Op::ReadAt, Role::Session, State::PathLost),
        (Nothing, come, Op::ReadAt, Role::Marker, State::PathOlder),
        (Directory, turn, Op::ReadAt, Role::Marker, State::PathOlder),
    ] {
        let fixture = lay(current, Entries(2));
        let path = fixture.path();
        fixture.ops.plan(at(op, role, actor(move || act(&path))));
        let seen = inspect_with(fixture.ops.clone(), fixture.path()).unwrap();
        assert_eq!((seen.state, fixture.ops.fired()), (state, 1), "{current:?} {op:?}");
        let fixture = lay(current, Entries(2));
        let path = fixture.path();
        fixture.ops.plan(at(op, role, actor(move || act(&path))));
        assert_eq!(recover_in(&fixture, None).unwrap().state, state, "{current:?} {op:?}");
        assert_eq!(fixture.cold_ids(), ["e-1", "e-2"]);
    }
}

// Requirement: X1, X2
#[test]
fn files_that_keep_changing_are_refused_in_the_end() {
    let begin = || {
        let fixture = lay(Entries(1), Nothing);
        let path = fixture.path();
        let change = actor(move || replace(&path, &bytes_of(Entries(1))));
        fixture.ops.plan(at(Op::ReadAt, Role::Session, change).for_ever());
        fixture
    };
    let fixture = begin();
    let error = refused(inspect_with(fixture.ops.clone(), fixture.path()), Code::FileChanged);
    assert_eq!(error.stage(), Some(Stage::X1));
    assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 20);
    let fixture = begin();
    let error = refused(recover_in(&fixture, None), Code::FileChanged);
    assert_eq!(error.stage(), Some(Stage::X2));
    assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 100);
}

// Requirement: X1
#[test]
fn a_failure_while_looking_is_no_verdict() {
    for (current, marker) in [(Entries(1), Entries(2)), (Damaged, Nothing)] {
        let calls = {
            let fixture = lay(current, marker);
            inspect_with(fixture.ops.clone(), fixture.path()).unwrap();
            fixture.ops.calls()
        };
        for index in 0..calls {
            let fixture = lay(current, marker);
            fixture.ops.plan(at_index(index, What::Before(Errno::EIO)));
            let answer = inspect_with(fixture.ops.clone(), fixture.path());
            let at = format!("{:?}", fixture.ops.trace()[index]);
            let error = refused(answer, Code::Io);
            assert_eq!(error.errno(), Some(Errno::EIO), "{at}");
            assert!(matches!(error.stage(), Some(Stage::X1 | Stage::X3)), "{at}: {error}");
            if fixture.ops.trace()[index].1 == Role::Marker {
                assert_eq!(error.path(), Some(&*fixture.marker()), "{at}: {error}");
            }
        }
    }
}

// Requirement: X1, X2, S3
#[test]
fn a_directory_that_was_replaced_is_noticed() {
    for op in [Op::ReadAt, Op::TryLock] {
        let fixture = lay(Entries(2), Entries(1));
        let (dir, moved) = (fixture.dir(), fixture.outside("moved"));
        fixture.ops.plan(at(
            op,
            Role::Marker,
            actor(move || {
                fs::rename(&dir, &moved).unwrap();
                fs::create_dir(&dir).unwrap();
            }),
        ));
        refused(recover_in(&fixture, None), Code::RootChanged);
        assert_eq!(fs::read_dir(fixture.outside("moved")).unwrap().count(), 2);
    }
}

// ------------------------------------------------------------------------------------------------ opening and strays

// Requirement: X4
#[test]
fn opening_with_recovery_resolves_what_is_proved_and_then_loads() {
    let fixture = lay(Entries(1), Entries(2));
    let (store, recovery) =
        Store::open_recovering(fixture.ops.clone(), fixture.path(), Options::new()).unwrap();
    assert_eq!((recovery.state, ids(&store)), (State::PathOlder, vec!["e-1".to_owned(), "e-2".to_owned()]));
    let fixture = lay(Entries(1), Other);
    refused(
        Store::open_recovering(fixture.ops.clone(), fixture.path(), Options::new()).map(|_| ()),
        Code::RollbackFailed,
    );
    assert_eq!(fixture.names().len(), 2);
}

const UNIQUE: &str = "00000000-0000-0000-0000-000000000000";

fn stray_name(number: u32) -> String {
    format!("{NAME}.pify-session-{number}-{UNIQUE}")
}

fn lay_strays(fixture: &Fixture) {
    fs::write(fixture.dir().join(stray_name(2)), "part").unwrap();
    fs::write(fixture.dir().join(stray_name(1)), "").unwrap();
    fs::create_dir(fixture.dir().join(stray_name(3))).unwrap();
    std::os::unix::fs::symlink("nowhere", fixture.dir().join(stray_name(4))).unwrap();
    fs::write(fixture.dir().join(format!("b.jsonl.pify-session-5-{UNIQUE}")), "another's").unwrap();
}

fn names_of(strays: &[session_tree::recover::Stray]) -> Vec<String> {
    strays.iter().map(|stray| stray.name.to_string_lossy().into_owned()).collect()
}

// Requirement: X3
#[test]
fn strays_are_the_regular_files_of_our_names_that_nobody_has_locked() {
    let fixture = lay(Entries(1), Nothing);
    assert_eq!(strays(fixture.path()).unwrap(), []);
    lay_strays(&fixture);
    let seen = strays(fixture.path()).unwrap();
    assert_eq!(names_of(&seen), [stray_name(1), stray_name(2)]);
    assert_eq!(seen.iter().map(|stray| stray.size).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(inspect(fixture.path()).unwrap().strays, seen);
    let writing = open_in(&fixture, Path::new(&stray_name(1)));
    assert!(lock(&writing, Lock::Exclusive));
    assert_eq!(names_of(&strays(fixture.path()).unwrap()), [stray_name(2)]);
    let before = fixture.names();
    assert_eq!(names_of(&remove_strays(fixture.path()).unwrap()), [stray_name(2)]);
    assert_eq!(fixture.names().len(), before.len() - 1);
    assert!(!fixture.names().contains(&OsString::from(stray_name(2))));
    drop(writing);
    assert_eq!(names_of(&remove_strays(fixture.path()).unwrap()), [stray_name(1)]);
    assert_eq!(fixture.cold_ids(), ["e-1"]);
}

// Requirement: X3
#[test]
fn no_stray_is_removed_where_it_may_be_the_only_copy_of_an_entry() {
    for &(current, marker, state, _) in STATES {
        let fixture = lay(current, marker);
        let stray = fixture.dir().join(stray_name(1));
        fs::write(&stray, bytes_of(Entries(3))).unwrap();
        let answer = remove_strays_with(fixture.ops.clone(), fixture.path());
        match state {
            State::Clean => assert_eq!(names_of(&answer.unwrap()), [stray_name(1)]),
            // Without a session, one with entries is all that is left of it.
            State::Absent => {
                assert_eq!(answer.unwrap(), []);
                fs::write(&stray, bytes_of(Entries(0))).unwrap();
                assert_eq!(names_of(&remove_strays(fixture.path()).unwrap()), [stray_name(1)]);
                fs::write(&stray, bytes_of(Begun)).unwrap();
                assert_eq!(names_of(&remove_strays(fixture.path()).unwrap()), [stray_name(1)]);
                let too_large = vec![b' '; session_tree::limits::MAX_SESSION_FILE_BYTES + 1];
                fs::write(&stray, too_large).unwrap();
                assert_eq!(names_of(&remove_strays(fixture.path()).unwrap()), [stray_name(1)]);
            }
            _ => {
                let error = refused(answer, Code::RollbackFailed);
                assert_eq!((error.stage(), error.path()), (Some(Stage::X3), Some(&*fixture.path())));
                assert!(error.message().contains(state.token()), "{error}");
                assert_eq!(fs::read(&stray).unwrap(), bytes_of(Entries(3)));
            }
        }
    }
}

// Requirement: X3
#[test]
fn a_session_of_exactly_the_limit_that_only_a_stray_holds_stays() {
    let fixture = lay(Nothing, Nothing);
    let mut bytes = bytes_of(Entries(1));
    let content = "x".repeat(60_000);
    let line = |number: usize, content: &str| {
        let message = format!(r#"{{"id":"m","role":"user","content":"{content}"}}"#);
        format!(
            "{{\"type\":\"entry\",\"version\":1,\"id\":\"x{number:03}\",\"parentId\":null,\"timestamp\":\"t\",\"message\":{message}}}\n"
        )
    };
    let limit = session_tree::limits::MAX_SESSION_FILE_BYTES;
    let mut number = 0;
    while bytes.len() + line(number, &content).len() + line(number, "").len() <= limit {
        bytes.extend(line(number, &content).bytes());
        number += 1;
    }
    let rest = limit - bytes.len() - line(number, "").len();
    bytes.extend(line(number, &"x".repeat(rest)).bytes());
    assert_eq!(bytes.len(), limit);
    fs::write(fixture.dir().join(stray_name(1)), bytes).unwrap();
    assert_eq!(remove_strays(fixture.path()).unwrap(), []);
}

// Requirement: X3
#[test]
fn without_locks_nothing_is_a_stray() {
    let fixture = lay(Entries(1), Nothing);
    lay_strays(&fixture);
    fixture.ops.plan(at(Op::TryLock, Role::Temporary, What::Before(Errno::ENOLCK)).for_ever());
    assert_eq!(strays_with(fixture.ops.clone(), fixture.path()).unwrap(), []);
    assert_eq!(remove_strays_with(fixture.ops.clone(), fixture.path()).unwrap(), []);
}

// Requirement: X3
#[test]
fn a_temporary_that_may_not_be_opened_or_goes_meanwhile_is_left_out() {
    for errno in [Errno::EACCES, Errno::EPERM, Errno::ENOENT, Errno::ELOOP] {
        let fixture = lay(Entries(1), Nothing);
        lay_strays(&fixture);
        fixture.ops.plan(at(Op::Open, Role::Temporary, What::Before(errno)));
        assert_eq!(names_of(&strays_with(fixture.ops.clone(), fixture.path()).unwrap()), [stray_name(2)]);
    }
}

// Requirement: X3
#[test]
fn any_other_failure_of_a_look_at_strays_is_an_error() {
    for op in [Op::List, Op::StatAt, Op::Open, Op::Stat, Op::TryLock] {
        let role = if op == Op::List { Role::Directory } else { Role::Temporary };
        let fixture = lay(Entries(1), Nothing);
        lay_strays(&fixture);
        fixture.ops.plan(at(op, role, What::Before(Errno::EIO)));
        let error = refused(strays_with(fixture.ops.clone(), fixture.path()), Code::Io);
        assert_eq!((error.errno(), error.stage()), (Some(Errno::EIO), Some(Stage::X3)), "{op:?}");
    }
    let fixture = lay(Entries(1), Nothing);
    lay_strays(&fixture);
    fixture.ops.plan(at(Op::Unlink, Role::Temporary, What::Before(Errno::EPERM)).for_ever());
    let error = refused(remove_strays_with(fixture.ops.clone(), fixture.path()), Code::Io);
    assert_eq!((error.errno(), error.stage()), (Some(Errno::EPERM), Some(Stage::X3)));
}

// Requirement: X3, C21
#[test]
fn a_stray_that_was_replaced_is_not_removed() {
    let fixture = lay(Entries(1), Nothing);
    let path = fixture.dir().join(stray_name(1));
    fs::write(&path, "part").unwrap();
    let place = path.clone();
    // The first lock is of the list, the second of the removal.
    fixture.ops.plan(at(Op::TryLock, Role::Temporary, actor(move || replace(&place, b"stranger's"))).nth(2));
    assert_eq!(remove_strays_with(fixture.ops.clone(), fixture.path()).unwrap(), []);
    assert_eq!(fixture.ops.fired(), 1);
    assert_eq!(fs::read(&path).unwrap(), b"stranger's");
}

// Requirement: X3, S8
#[test]
fn strays_are_removed_only_while_no_commit_can_be_under_way() {
    let fixture = lay(Entries(1), Nothing);
    lay_strays(&fixture);
    let other = open_in(&fixture, &fixture.path());
    assert!(lock(&other, Lock::Exclusive));
    let error = refused(remove_strays_with(fixture.ops.clone(), fixture.path()), Code::Io);
    assert!(error.in_flight(), "{error}");
    assert_eq!(error.stage(), Some(Stage::X3));
    assert!(fixture.names().iter().any(|name| name == OsStr::new(&stray_name(2))));
}
