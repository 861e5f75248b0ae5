//! Explicit recovery on the simulated disk: which state is told, what is done about it, and that nothing is lost on
//! the way, whenever the process dies or the power is cut.

use std::collections::BTreeSet;
use std::path::Path;

use session_harness::disk::{CutOutcome, Disk, Name, Process};
use session_harness::fault::{Fault, Kind, Plan, Site, Span};
use session_harness::inject::{Event, Injector};
use session_harness::outsider::Outsider;
use session_harness::world::{Backend, World};
use session_tree::file_ops::{Access, FileOps, Lock};
use session_tree::recover::{
    Action, Choice, Content, State, inspect_with, recover_with, remove_strays_with, strays_with,
};
use session_tree::{Code, Options, Store, decode};

const ROOT: &str = "/sessions";
const NAME: &str = "session.jsonl";
const MARKER: &str = "session.jsonl.pify-session-recovery";

/// What stands at a name.
#[derive(Debug, Clone, Copy)]
enum At {
    Nothing,
    /// A session of these entries.
    Session(&'static [&'static str]),
    Bytes(&'static str),
    /// The very file that has the session's name.
    SameFile,
    Directory,
    Fifo,
}

use At::{Bytes, Directory, Fifo, Nothing, SameFile, Session};

/// One state of session and marker, and what is to come of it.
struct Row {
    current: At,
    marker: At,
    state: State,
    choice: Option<Choice>,
    /// The entries that the session has afterwards; none where the recovery is refused.
    ends: Option<&'static [&'static str]>,
}

const fn row(
    current: At,
    marker: At,
    state: State,
    choice: Option<Choice>,
    ends: Option<&'static [&'static str]>,
) -> Row {
    Row { current, marker, state, choice, ends }
}

const ONE: At = Session(&["a"]);
const TWO: At = Session(&["a", "b"]);
const OTHER: At = Session(&["c"]);
const BAD: At = Bytes("not-json\n");

const TABLE: &[Row] = &[
    row(ONE, Nothing, State::Clean, None, Some(&["a"])),
    row(Bytes(""), Nothing, State::InterruptedCreate, None, None),
    row(Bytes("{\"type"), Nothing, State::InterruptedCreate, None, None),
    row(BAD, Nothing, State::Damaged, None, None),
    row(BAD, Nothing, State::Damaged, Some(Choice::Marker), None),
    row(ONE, SameFile, State::InterruptedBeforeRename, None, Some(&["a"])),
    row(TWO, ONE, State::InterruptedAfterRename, None, Some(&["a", "b"])),
    row(ONE, ONE, State::InterruptedAfterRename, None, Some(&["a"])),
    row(ONE, TWO, State::PathOlder, None, Some(&["a", "b"])),
    row(TWO, OTHER, State::Diverged, None, None),
    row(TWO, OTHER, State::Diverged, Some(Choice::Current), Some(&["a", "b"])),
    row(TWO, OTHER, State::Diverged, Some(Choice::Marker), Some(&["c"])),
    row(ONE, BAD, State::MarkerUnreadable, None, Some(&["a"])),
    row(ONE, Bytes(""), State::MarkerUnreadable, None, Some(&["a"])),
    row(Nothing, ONE, State::PathLost, None, Some(&["a"])),
    row(BAD, ONE, State::PathDamaged, None, None),
    row(BAD, ONE, State::PathDamaged, Some(Choice::Marker), Some(&["a"])),
    row(Nothing, BAD, State::BothLost, None, None),
    row(Nothing, BAD, State::BothLost, Some(Choice::Marker), None),
    row(BAD, BAD, State::BothBad, None, None),
    row(BAD, BAD, State::BothBad, Some(Choice::Current), None),
    row(Directory, ONE, State::Foreign, None, None),
    row(ONE, Fifo, State::Foreign, None, None),
];

/// A directory in the state of a row, all of it durable.
fn world_of(row: &Row) -> (World, Disk) {
    let world = World::new(Backend::Simulated, NAME).unwrap();
    let Outsider::Simulated(disk) = world.outsider().clone() else { panic!("not a simulated disk") };
    for (name, at) in [(NAME, row.current), (MARKER, row.marker)] {
        let path = world.beside(name);
        match at {
            Nothing => Ok(()),
            Session(ids) => disk.write_file(&path, session(ids)),
            Bytes(bytes) => disk.write_file(&path, bytes),
            SameFile => disk.hard_link(world.session(), &path),
            Directory => disk.mkdir(&path),
            Fifo => disk.fifo(&path),
        }
        .unwrap();
    }
    disk.sync_all();
    (world, disk)
}

fn session(ids: &[&str]) -> String {
    let header = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#.to_owned();
    let entry = |id: &&str| {
        let message = r#"{"id":"m","role":"user","content":""}"#;
        format!(
            r#"{{"type":"entry","version":1,"id":"{id}","parentId":null,"timestamp":"t","message":{message}}}"#
        )
    };
    let lines: Vec<String> = std::iter::once(header).chain(ids.iter().map(entry)).collect();
    lines.join("\n") + "\n"
}

fn path() -> &'static Path {
    Path::new("/sessions/session.jsonl")
}

fn ids(bytes: Vec<u8>) -> Vec<String> {
    let decoded = decode(bytes).map(|session| session.entries().to_vec()).unwrap_or_default();
    decoded.iter().map(|entry| entry.id().to_owned()).collect()
}

/// Every entry that any file of the directory holds.
fn held_somewhere(disk: &Disk) -> Vec<String> {
    let tree = disk.snapshot();
    let mut held: Vec<String> = tree.iter().flat_map(|(_, node)| ids(node.bytes.to_vec())).collect();
    held.sort();
    held.dedup();
    held
}

/// The session has these entries and nothing is left to recover.
fn assert_recovered(disk: &Disk, row: &Row, held_before: &[String]) {
    let expected = row.ends.unwrap_or_default();
    let again = recover_with(disk.process(9), path(), row.choice).unwrap();
    assert_eq!((again.state, again.did.len()), (State::Clean, 0));
    let store = Store::load_with(disk.process(9), path(), Options::new()).unwrap();
    let shown: Vec<String> = store.entries().iter().map(|entry| entry.id().to_owned()).collect();
    assert_eq!(shown, expected);
    assert_eq!(held_somewhere(disk), held_before, "an entry is held by no file any more");
}

// Requirement: X1
#[test]
fn inspect_names_every_state_and_changes_nothing() {
    for row in TABLE {
        let (_world, disk) = world_of(row);
        let before = disk.snapshot();
        let seen = inspect_with(disk.process(1), path()).unwrap();
        assert_eq!(seen.state, row.state, "{:?} and {:?}", row.current, row.marker);
        assert_eq!((disk.snapshot(), disk.held_locks()), (before, 0));
        let entries = |at: At| if let Session(ids) = at { Some(ids.len()) } else { None };
        let read =
            if let Content::Session(session) = seen.current { Some(session.entries().len()) } else { None };
        assert_eq!(read, entries(row.current));
    }
    let unnamed: Vec<&State> =
        State::ALL.iter().filter(|state| TABLE.iter().all(|row| row.state != **state)).collect();
    assert_eq!(unnamed, [&State::CommitInFlight, &State::Absent], "which have tests of their own");
}

// Requirement: X1, X2
#[test]
fn where_there_is_nothing_recovery_says_so() {
    let (_world, disk) = world_of(&row(Nothing, Nothing, State::Absent, None, None));
    assert_eq!(inspect_with(disk.process(1), path()).unwrap().state, State::Absent);
    let recovery = recover_with(disk.process(1), path(), None).unwrap();
    assert_eq!((recovery.state, recovery.did.len()), (State::Absent, 0));
}

// Requirement: X1, X2, S8
#[test]
fn a_commit_in_flight_is_told_from_a_dead_one_and_not_touched() {
    let (_world, disk) = world_of(&row(ONE, SameFile, State::InterruptedBeforeRename, None, None));
    let committing = disk.process(2);
    let dir = committing.open_dir(Path::new(ROOT)).unwrap();
    let file = committing.open(&dir, NAME.as_ref(), Access::Read).unwrap();
    assert_eq!(committing.try_lock(&file, Lock::Exclusive), Ok(true));
    let before = disk.snapshot();
    assert_eq!(inspect_with(disk.process(1), path()).unwrap().state, State::CommitInFlight);
    let refused = recover_with(disk.process(1), path(), None).unwrap_err();
    assert_eq!((refused.code(), refused.in_flight()), (Code::RollbackFailed, true));
    assert_eq!(disk.snapshot(), before);
    disk.kill(2);
    let recovery = recover_with(disk.process(1), path(), None).unwrap();
    assert_eq!(recovery.state, State::InterruptedBeforeRename);
    assert_eq!(recovery.did.iter().map(|step| step.action).collect::<Vec<_>>(), [Action::RemoveMarker]);
}

// Requirement: X2
#[test]
fn recovery_ends_as_the_table_says_and_loses_no_entry() {
    for row in TABLE {
        let (_world, disk) = world_of(row);
        let (before, held) = (disk.snapshot(), held_somewhere(&disk));
        match (recover_with(disk.process(1), path(), row.choice), row.ends) {
            (Ok(recovery), Some(_)) => {
                assert_eq!(recovery.state, row.state);
                assert_recovered(&disk, row, &held);
            }
            (Err(_), None) => assert_eq!(disk.snapshot(), before),
            (other, _) => panic!("{:?} and {:?}: {other:?}", row.current, row.marker),
        }
    }
}

/// The recovery of a row under `plan`: the calls that it made, and the disk as it was left.
fn recover_under(row: &Row, plan: &Plan) -> (Vec<Event>, Disk) {
    let (mut world, disk) = world_of(row);
    let injector = Injector::new(plan, |_| {});
    let ops = world.process(&injector);
    injector.begin("recover", 1);
    let _ = recover_with(ops.clone(), path(), row.choice);
    world.kill(&ops);
    (injector.trace(), disk)
}

/// The disk after every power cut that POSIX allows: each name on its own is what it was durably, or what any change
/// since then made it. A recovery writes no bytes, so there is nothing else to lose.
fn after_any_cut(disk: &Disk) -> Vec<Disk> {
    let unsettled = disk.unsettled();
    assert!(unsettled.files.is_empty(), "a recovery writes no bytes");
    let mut outcomes = vec![CutOutcome::default()];
    for directory in &unsettled.directories {
        let names: BTreeSet<&Name> = directory.changes.iter().map(|change| &change.name).collect();
        for name in names {
            let changes = directory.changes.iter().filter(|change| change.name == *name);
            let kept = outcomes.clone();
            for change in changes {
                outcomes.extend(kept.iter().cloned().map(|mut outcome| {
                    outcome.names.push((directory.id, name.clone(), change.now));
                    outcome
                }));
            }
        }
    }
    outcomes.iter().map(|outcome| disk.after_cut(outcome)).collect()
}

// Requirement: X2, C23
#[test]
fn a_recovery_that_is_cut_off_anywhere_is_finished_by_the_next_one() {
    for row in TABLE.iter().filter(|row| row.ends.is_some()) {
        let held = held_somewhere(&world_of(row).1);
        let (events, _) = recover_under(row, &Plan::default());
        for event in events {
            for kind in [Kind::KillBefore, Kind::KillAfter] {
                let site =
                    Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() };
                let plan = Plan(vec![Fault { site, kind, span: Span::Times(1) }]);
                let (_, killed) = recover_under(row, &plan);
                for disk in after_any_cut(&killed).into_iter().chain([killed]) {
                    recover_with(disk.process(8), path(), row.choice).unwrap();
                    assert_recovered(&disk, row, &held);
                }
            }
        }
    }
}

const TEMPORARY: &str = "session.jsonl.pify-session-7-00000000-0000-4000-8000-000000000001";
const RESTORE: &str = "session.jsonl.pify-session-restore-7-00000000-0000-4000-8000-000000000002";

// Requirement: X3
#[test]
fn only_files_of_our_names_that_nobody_has_locked_are_strays() {
    let (world, disk) = world_of(&row(ONE, Nothing, State::Clean, None, None));
    let own_form = |unique: u32| format!("{NAME}.pify-session-7-00000000-0000-4000-8000-{unique:012x}");
    disk.write_file(world.beside(TEMPORARY), "left").unwrap();
    disk.write_file(world.beside(RESTORE), "").unwrap();
    disk.write_file(world.beside(&own_form(3)), "locked").unwrap();
    disk.mkdir(world.beside(&own_form(4))).unwrap();
    for other in ["other.jsonl.pify-session-7-00000000-0000-4000-8000-000000000001", "session.jsonl.bak"] {
        disk.write_file(world.beside(other), "").unwrap();
    }
    let committing: Process = disk.process(7);
    let dir = committing.open_dir(Path::new(ROOT)).unwrap();
    let file = committing.open(&dir, own_form(3).as_ref(), Access::Read).unwrap();
    assert_eq!(committing.try_lock(&file, Lock::Exclusive), Ok(true));

    let names = |strays: Vec<session_tree::recover::Stray>| {
        strays.into_iter().map(|stray| stray.name).collect::<Vec<_>>()
    };
    let before = disk.list(ROOT).unwrap();
    assert_eq!(names(strays_with(disk.process(1), path()).unwrap()), [TEMPORARY, RESTORE]);
    assert_eq!(disk.list(ROOT).unwrap(), before, "listing removes nothing");
    assert_eq!(names(remove_strays_with(disk.process(1), path()).unwrap()), [TEMPORARY, RESTORE]);
    let left: Vec<_> = before.into_iter().filter(|name| name != TEMPORARY && name != RESTORE).collect();
    assert_eq!(disk.list(ROOT).unwrap(), left);
}

// Requirement: X4, S2
#[test]
fn only_an_open_that_says_so_recovers() {
    for table_row in TABLE {
        let (_world, disk) = world_of(table_row);
        let before = disk.snapshot();
        let is_clean = table_row.state == State::Clean;
        assert_eq!(Store::load_with(disk.process(1), path(), Options::new()).is_ok(), is_clean);
        assert_eq!(disk.snapshot(), before);

        let opened = Store::open_recovering(disk.process(1), path(), Options::new());
        match (opened, table_row.ends.filter(|_| table_row.choice.is_none())) {
            (Ok((store, recovery)), Some(ends)) => {
                assert_eq!((recovery.state, store.entries().len()), (table_row.state, ends.len()));
                assert_eq!(recovery.did.is_empty(), is_clean);
            }
            (Err(_), None) => assert_eq!(disk.snapshot(), before),
            (other, _) => panic!("{:?} and {:?}: {other:?}", table_row.current, table_row.marker),
        }
    }
}
