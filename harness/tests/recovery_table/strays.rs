//! Temporaries of dead processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use session_harness::disk::{Disk, LockSupport, Process, SimFile};
use session_harness::fault::{Actor, Fault, Kind, Plan, Site, Span};
use session_harness::inject::Event;
use session_harness::outsider::Seen;
use session_harness::world::Backend;
use session_tree::file_ops::{Access, FileOps, Lock};
use session_tree::recover::{inspect_with, remove_strays_with, strays_with};
use session_tree::{Entry, Errno, Message, Options, Store};

use super::ground::{Ground, MARKER, Put, SESSION, STRAY};
use super::processes::{hold, with_a_deed_at_every_call};

const LOCKED: &str = "session.jsonl.pify-session-7-00000000-0000-0000-0000-000000000001";
const RESTORE: &str = "session.jsonl.pify-session-restore-7-00000000-0000-0000-0000-000000000002";
/// Names that only look like those of temporaries of this session, and things that are not regular files.
const NOT_STRAYS: [&str; 8] = [
    "other.jsonl.pify-session-7-00000000-0000-0000-0000-000000000003",
    "session.jsonl.pify-session-x-00000000-0000-0000-0000-000000000004",
    "session.jsonl.pify-session-7-00000000",
    "session.jsonl.pify-session-aside-20260101T000000Z-00000000000000000000000000000005",
    "session.jsonl.pify-session-",
    "xsession.jsonl.pify-session-7-00000000-0000-0000-0000-000000000006",
    "session.jsonl.pify-session-7-00000000-0000-0000-0000-000000000007.bak",
    "session.jsonl.pify-session-restore-00000000-0000-0000-0000-000000000008",
];

fn littered() -> Ground {
    let ground = Ground::new(Backend::Simulated, Put::Two, Put::Absent);
    for name in NOT_STRAYS.into_iter().chain([LOCKED, RESTORE]) {
        ground.world.outsider().write_file(&ground.world.beside(name), b"{\"type\"").expect("a file");
    }
    let odd = |last: u32| {
        ground.world.beside(&format!("session.jsonl.pify-session-8-00000000-0000-0000-0000-{last:012}"))
    };
    let disk = ground.disk();
    disk.mkdir(odd(1)).expect("a directory");
    disk.symlink("notes.txt", odd(2)).expect("a link");
    disk.fifo(odd(3)).expect("a FIFO");
    ground
}

fn names(view: &[Seen]) -> Vec<OsString> {
    view.iter().map(|seen| seen.name.clone()).collect()
}

// Requirement: X1, X3
#[test]
fn only_unlocked_regular_files_with_our_names_are_listed_and_removed() {
    let ground = littered();
    let process = ground.disk().process(900);
    let dir = process.open_dir(ground.world.root()).expect("the directory");
    let live = process.open(&dir, LOCKED.as_ref(), Access::Read).expect("the file");
    assert_eq!(process.try_lock(&live, Lock::Exclusive), Ok(true));
    let before = ground.view();

    let listed = strays_with(ground.ops.clone(), ground.path()).expect("a list");
    let named: Vec<&OsString> = listed.iter().map(|stray| &stray.name).collect();
    assert_eq!(named, [STRAY, RESTORE]);
    assert_eq!(listed[1].size, 7);
    let inspected = inspect_with(ground.ops.clone(), ground.path()).expect("an inspection");
    assert_eq!((inspected.state.token(), &inspected.strays), ("clean", &listed));
    assert_eq!(ground.view(), before);

    let removed = remove_strays_with(ground.ops.clone(), ground.path()).expect("a removal");
    assert_eq!(removed, listed);
    let kept: Vec<Seen> =
        before.into_iter().filter(|seen| seen.name != STRAY && seen.name != RESTORE).collect();
    assert_eq!(ground.view(), kept);
    assert_eq!((ground.injector.open_descriptors(), ground.world.held_locks()), (0, 1));

    drop(live);
    let removed = remove_strays_with(ground.ops.clone(), ground.path()).expect("a removal");
    assert_eq!(removed.iter().map(|stray| &stray.name).collect::<Vec<_>>(), [LOCKED]);
    assert!(remove_strays_with(ground.ops.clone(), ground.path()).expect("a removal").is_empty());
    ground.assert_nothing_held("removed");
}

// Requirement: X3, S8
#[test]
fn without_locks_nothing_tells_a_stray_from_a_commit_and_nothing_is_removed() {
    let ground = littered();
    ground.disk().update_options(|options| options.locks = LockSupport::Unsupported(Errno::ENOLCK));
    let before = ground.view();
    assert!(strays_with(ground.ops.clone(), ground.path()).expect("a list").is_empty());
    assert!(remove_strays_with(ground.ops.clone(), ground.path()).expect("a removal").is_empty());
    assert_eq!(ground.view(), before);
}

// Requirement: X1, X3
#[test]
fn a_stray_of_another_user_hides_nothing_and_is_left_alone() {
    let ground = littered();
    let disk = ground.disk();
    disk.chmod(ground.world.root(), 0o777).expect("a directory for all");
    disk.chmod(ground.world.beside(RESTORE), 0o600).expect("a private file");
    let user = disk.process_as(50, 1_000, 1_000, 0o022);
    let inspection = inspect_with(user.clone(), ground.path()).expect("an inspection");
    let named: Vec<&OsString> = inspection.strays.iter().map(|stray| &stray.name).collect();
    assert_eq!(named, [LOCKED, STRAY]);
    remove_strays_with(user, ground.path()).expect("a removal");
    assert!(names(&ground.view()).iter().any(|name| name == RESTORE));
}

// Requirement: X3, S8
#[test]
fn strays_are_removed_at_any_moment_of_a_commit_and_the_commit_does_not_notice() {
    let run = |plan: &Plan| {
        let other = Arc::new(Mutex::new(None::<(Disk, PathBuf)>));
        let given = Arc::clone(&other);
        let ground = Ground::disturbed(Backend::Simulated, Put::Two, Put::Absent, plan, move |_| {
            let Some((disk, path)) = given.lock().expect("another process").clone() else { return };
            match remove_strays_with(disk.process(800), path) {
                Ok(removed) => {
                    assert!(removed.iter().all(|stray| stray.name == STRAY), "{removed:?}");
                }
                Err(error) => assert!(error.in_flight(), "{error}"),
            }
        });
        *other.lock().expect("another process") = Some((ground.disk(), ground.path()));
        let store = Store::load_with(ground.ops.clone(), ground.path(), Options::new()).expect("a store");
        ground.injector.begin("append", 1);
        let entry = store.append(Some("e-2"), Message::user("m-new", "and its tests?"));
        let entry = entry.unwrap_or_else(|error| panic!("{plan}: {error}"));
        (ground, entry)
    };
    let (ground, _) = run(&Plan::default());
    let trace: Vec<Event> =
        ground.injector.trace().into_iter().filter(|event| &*event.during.call == "append").collect();
    assert!(trace.len() > 20);
    for event in trace {
        let site = Site { op: event.op, target: event.target, nth: event.nth, during: event.during };
        let plan = Plan(vec![Fault { site, kind: Kind::Actor(Actor::Chmod), span: Span::Times(1) }]);
        let (ground, entry) = run(&plan);
        assert_eq!(ground.injector.fired(), [1], "{plan}");
        let store = Store::load_with(ground.disk().process(801), ground.path(), Options::new());
        let last = store.expect("a session").entries().last().map(Entry::id).map(str::to_owned);
        assert_eq!(last.as_deref(), Some(entry.id()), "{plan}");
    }
}

// Requirement: X3, S8
#[test]
fn strays_are_told_from_the_temporaries_of_commits_that_follow_each_other() {
    /// Commits once; then it has begun the next commit and not yet locked the temporary of that.
    struct Committing {
        store: Store<Process>,
        disk: Disk,
        begun: Option<(Process, SimFile)>,
    }
    let temporary = Path::new("/sessions").join(LOCKED);
    let mut begun = 0;
    with_a_deed_at_every_call(
        (Put::Two, Put::Absent),
        |ground| {
            let store = Store::load_with(ground.disk().process(700), ground.path(), Options::new());
            Committing { store: store.expect("a store"), disk: ground.disk(), begun: None }
        },
        |ground| remove_strays_with(ground.ops.clone(), ground.path()),
        |committing| match committing.store.append(Some("e-2"), Message::user("m-new", "and its tests?")) {
            Ok(_) => {
                committing.begun = Some(hold(&committing.disk, SESSION));
                committing.disk.write_file(Path::new("/sessions").join(LOCKED), "").expect("a temporary");
            }
            Err(error) => assert!(error.in_flight(), "{error}"),
        },
        |ground, answer, committing, what| {
            match answer {
                Ok(removed) => {
                    let named: Vec<&OsString> = removed.iter().map(|stray| &stray.name).collect();
                    assert_eq!(named, [STRAY], "{what}");
                }
                Err(error) => assert!(error.in_flight(), "{what}: {error}"),
            }
            begun += usize::from(committing.begun.is_some());
            assert_eq!(ground.disk().exists(&temporary), committing.begun.is_some(), "{what}");
        },
    );
    assert!(begun > 5, "{begun}");
}

// Requirement: X3
#[test]
fn a_temporary_that_a_killed_commit_left_is_a_stray_once_its_process_is_gone() {
    let mut ground = Ground::new(Backend::Simulated, Put::Two, Put::Absent);
    let plan: Plan = "write@temporary#1 in append#1 = kill before, once".parse().expect("a plan");
    ground.injector = session_harness::inject::Injector::new(&plan, |_| {});
    ground.ops = ground.world.process(&ground.injector);
    let store = Store::load_with(ground.ops.clone(), ground.path(), Options::new()).expect("a store");
    ground.injector.begin("append", 1);
    assert!(store.append(Some("e-2"), Message::user("m-new", "?")).is_err());
    assert!(ground.injector.killed());
    let survivor = ground.disk().process(801);
    let listed = |survivor| strays_with(survivor, ground.path()).expect("a list").len();
    ground.world.kill(&ground.ops);
    assert_eq!(listed(survivor.clone()), 2);
    assert_eq!(remove_strays_with(survivor, ground.path()).expect("a removal").len(), 2);
    let left = names(&ground.view());
    assert!(left.iter().any(|name| name == SESSION) && !left.iter().any(|name| name == MARKER));
    assert!(!left.iter().any(|name| Path::new(name).to_string_lossy().contains("pify-session-1")));
}
