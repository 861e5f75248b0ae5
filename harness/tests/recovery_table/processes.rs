//! Recovery and inspection beside processes that live and commit.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use session_harness::disk::{Disk, LockSupport, Process, SimFile};
use session_harness::fault::{Actor, Fault, Kind, Op, Plan, Role, Site, Span};
use session_harness::inject::{Event, Outcome};
use session_harness::world::Backend;
use session_tree::file_ops::{Access, FileOps, Lock};
use session_tree::recover::{Action, State, inspect_with, recover_with};
use session_tree::{Code, Entry, Errno, Message, Options, Store};

use super::ground::{End, Ground, MARKER, Put, SESSION, union};

/// A file that another process has open and locked.
pub(crate) fn hold(disk: &Disk, name: &str) -> (Process, SimFile) {
    let process = disk.process(900);
    let dir = process.open_dir(Path::new("/sessions")).expect("the directory");
    let file = process.open(&dir, name.as_ref(), Access::Read).expect("the file");
    assert_eq!(process.try_lock(&file, Lock::Exclusive), Ok(true));
    (process, file)
}

// Requirement: X1, X2, S8
#[test]
fn a_marker_that_a_live_process_has_locked_is_a_commit_in_flight_whatever_the_session_is() {
    for (current, marker) in [
        (Put::Two, Put::HardLink),
        (Put::Three, Put::Two),
        (Put::Two, Put::Three),
        (Put::Absent, Put::Two),
        (Put::BadMiddle, Put::Two),
        (Put::Two, Put::Empty),
        (Put::Absent, Put::BadMiddle),
        (Put::Directory, Put::Two),
    ] {
        let what = format!("{current:?} beside {marker:?}");
        let ground = Ground::new(Backend::Simulated, current, marker);
        let (_process, _file) = hold(&ground.disk(), MARKER);
        let before = ground.view();
        let state = inspect_with(ground.ops.clone(), ground.path()).expect(&what).state;
        assert_eq!(state, State::CommitInFlight, "{what}");
        let waits = count_pauses(&ground.disk());
        for choice in super::table::CHOICES {
            let error = recover_with(ground.ops.clone(), ground.path(), choice).expect_err(&what);
            assert_eq!((error.code(), error.in_flight()), (Code::RollbackFailed, true), "{what}");
        }
        let waits = *waits.lock().expect("a count");
        assert!((4..=800).contains(&waits), "{what}: waited {waits} times");
        assert_eq!(ground.view(), before, "{what}");
        assert_eq!((ground.injector.open_descriptors(), ground.world.held_locks()), (0, 1), "{what}");
    }
}

// Requirement: X2, S8
#[test]
fn a_session_that_a_live_process_has_locked_is_waited_for_and_then_left_alone() {
    for marker in [Put::Absent, Put::Two] {
        let ground = Ground::new(Backend::Simulated, Put::Three, marker);
        let (_process, _file) = hold(&ground.disk(), SESSION);
        let before = ground.view();
        let waits = count_pauses(&ground.disk());
        let error = recover_with(ground.ops.clone(), ground.path(), None).expect_err("it is locked");
        assert_eq!((error.code(), error.errno()), (Code::Io, Some(Errno::EAGAIN)), "{error}");
        assert!(error.in_flight());
        assert!(*waits.lock().expect("a count") > 0);
        assert_eq!(ground.view(), before);
        assert_eq!((ground.injector.open_descriptors(), ground.world.held_locks()), (0, 1));
    }
}

fn count_pauses(disk: &Disk) -> Arc<Mutex<u32>> {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    disk.on_pause(move |_| *counted.lock().expect("a count") += 1);
    count
}

// Requirement: X2, S8
#[test]
fn a_recovery_waits_for_the_lock_without_holding_one_itself_and_reads_once() {
    let ground = Ground::new(Backend::Simulated, Put::Three, Put::Two);
    let disk = ground.disk();
    let held = Arc::new(Mutex::new(Some(hold(&disk, SESSION))));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (holder, locks, machine) = (Arc::clone(&held), Arc::clone(&seen), disk.clone());
    disk.on_pause(move |attempt| {
        locks.lock().expect("a list").push(machine.held_locks());
        if attempt == 5 {
            holder.lock().expect("a holder").take();
        }
    });
    let recovery = recover_with(ground.ops.clone(), ground.path(), None).expect("the lock is given back");
    assert_eq!(recovery.state, State::InterruptedAfterRename);
    assert_eq!(*seen.lock().expect("a list"), [1; 5], "only the other process's lock");
    let read = |event: &&Event| event.op == Op::Read;
    let (reads, bytes) = (ground.injector.trace(), Put::Three.bytes().map(|bytes| bytes.len()));
    // Each file once: its bytes, then its end.
    assert_eq!(reads.iter().filter(read).count(), 4, "{bytes:?}");
    ground.assert_nothing_held("recovered");
}

// Requirement: X2, S8
#[test]
fn a_file_system_without_locks_or_with_locks_for_writers_alone_can_be_recovered() {
    for locks in [LockSupport::Unsupported(Errno::ENOLCK), LockSupport::ExclusiveNeedsWriting] {
        for (current, marker, action) in [
            (Put::Two, Put::HardLink, Action::RemoveMarker),
            (Put::Three, Put::Two, Action::RemoveMarker),
            (Put::Absent, Put::Two, Action::MarkerBecomesCurrent),
        ] {
            let ground = Ground::new(Backend::Simulated, current, marker);
            ground.disk().update_options(|options| options.locks = locks);
            inspect_with(ground.ops.clone(), ground.path()).expect("an inspection");
            let recovery = recover_with(ground.ops.clone(), ground.path(), None).expect("a recovery");
            assert_eq!(recovery.did.iter().map(|step| step.action).collect::<Vec<_>>(), [action]);
            ground.assert_nothing_held("recovered");
        }
    }
}

/// Everywhere in `trace` an outside actor, whom a case gives its own deed.
fn everywhere(trace: &[Event]) -> impl Iterator<Item = Plan> + '_ {
    trace.iter().map(|event| {
        let site = Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() };
        Plan(vec![Fault { site, kind: Kind::Actor(Actor::Chmod), span: Span::Times(1) }])
    })
}

/// Runs `call` on a fresh ground once for each of its own system calls, and just before that one `deed` of somebody
/// else.
pub(crate) fn with_a_deed_at_every_call<Context: Send + 'static, Answer>(
    (current, marker): (Put, Put),
    arrange: impl Fn(&Ground) -> Context,
    call: impl Fn(&Ground) -> Answer,
    deed: impl Fn(&mut Context) + Copy + Send + Sync + 'static,
    mut check: impl FnMut(&Ground, Answer, Context, &str),
) {
    let run = |plan: &Plan| {
        let context = Arc::new(Mutex::new(None));
        let given = Arc::clone(&context);
        let ground = Ground::disturbed(Backend::Simulated, current, marker, plan, move |_| {
            if let Some(context) = given.lock().expect("a context").as_mut() {
                deed(context);
            }
        });
        *context.lock().expect("a context") = Some(arrange(&ground));
        ground.injector.begin("call", 1);
        let answer = call(&ground);
        let context = context.lock().expect("a context").take().expect("it is put there once");
        (ground, answer, context)
    };
    let (ground, answer, context) = run(&Plan::default());
    check(&ground, answer, context, "undisturbed");
    let trace: Vec<Event> =
        ground.injector.trace().into_iter().filter(|event| &*event.during.call == "call").collect();
    assert!(trace.len() > 10);
    for plan in everywhere(&trace) {
        let (ground, answer, context) = run(&plan);
        assert_eq!(ground.injector.fired(), [1], "{plan}");
        check(&ground, answer, context, &plan.to_string());
    }
}

fn message() -> Message {
    Message::user("m-new", "and where are its tests?")
}

// Requirement: X1, X2, S8
#[test]
fn inspection_and_recovery_in_the_middle_of_a_commit_disturb_nothing_and_take_it_for_no_crash() {
    struct Other {
        disk: Disk,
        path: PathBuf,
        states: Vec<State>,
    }
    let mut in_flight = 0;
    let committing = |plan: &Plan| {
        let other = Arc::new(Mutex::new(None::<Other>));
        let given = Arc::clone(&other);
        let ground = Ground::disturbed(Backend::Simulated, Put::Two, Put::Absent, plan, move |_| {
            let mut given = given.lock().expect("the other process");
            let Some(other) = given.as_mut() else { return };
            let (process, path) = (other.disk.process(800), other.path.clone());
            other.states.push(inspect_with(process.clone(), &path).expect("an inspection").state);
            match recover_with(process, &path, None) {
                Ok(recovery) => assert_eq!((recovery.state, recovery.did.len()), (State::Clean, 0)),
                Err(error) => assert!(error.in_flight(), "{error}"),
            }
        });
        *other.lock().expect("the other process") =
            Some(Other { disk: ground.disk(), path: ground.path(), states: Vec::new() });
        let store = Store::load_with(ground.ops.clone(), ground.path(), Options::new()).expect("a store");
        ground.injector.begin("append", 1);
        let entry = store.append(Some("e-2"), message());
        let states = other.lock().expect("the other process").take().expect("it is there").states;
        (ground, entry, states)
    };
    let (ground, ..) = committing(&Plan::default());
    let trace: Vec<Event> =
        ground.injector.trace().into_iter().filter(|event| &*event.during.call == "append").collect();
    for plan in everywhere(&trace) {
        let (ground, entry, states) = committing(&plan);
        let entry = entry.unwrap_or_else(|error| panic!("{plan}: {error}"));
        assert!(matches!(states[..], [State::Clean | State::CommitInFlight]), "{plan}: {states:?}");
        in_flight += usize::from(states[0] == State::CommitInFlight);
        let session = End::of(&ground.view());
        assert_eq!((session.marker, session.asides.len()), (None, 0), "{plan}");
        let store = Store::load_with(ground.disk().process(801), ground.path(), Options::new());
        let last = store.expect("a session").entries().last().map(Entry::id).map(str::to_owned);
        assert_eq!(last.as_deref(), Some(entry.id()), "{plan}");
    }
    assert!((1..trace.len()).contains(&in_flight), "{in_flight} of {}", trace.len());
}

// Requirement: X1, X2, S8
#[test]
fn a_commit_that_ends_while_it_is_looked_at_is_not_taken_for_a_crash() {
    struct Committing {
        disk: Disk,
        held: Option<(Process, SimFile)>,
    }
    let arrange =
        |ground: &Ground| Committing { disk: ground.disk(), held: Some(hold(&ground.disk(), MARKER)) };
    let end_it = |commit: &mut Committing| {
        commit.disk.remove(Path::new("/sessions").join(MARKER)).expect("the marker");
        commit.held = None;
    };
    with_a_deed_at_every_call(
        (Put::Two, Put::HardLink),
        arrange,
        |ground| inspect_with(ground.ops.clone(), ground.path()).expect("an inspection").state,
        end_it,
        |ground, state, commit, what| {
            assert!(matches!(state, State::Clean | State::CommitInFlight), "{what}: {state}");
            drop(commit);
            ground.assert_nothing_held(what);
        },
    );
    let (mut clean, mut late) = (0, 0);
    with_a_deed_at_every_call(
        (Put::Two, Put::HardLink),
        arrange,
        |ground| recover_with(ground.ops.clone(), ground.path(), None),
        end_it,
        |ground, answer, commit, what| {
            match answer {
                Ok(recovery) => {
                    assert_eq!((recovery.state, recovery.did.len()), (State::Clean, 0), "{what}");
                    clean += 1;
                }
                // It ended within the last try.
                Err(error) if error.code() == Code::FileChanged => late += 1,
                Err(error) => assert!(error.in_flight(), "{what}: {error}"),
            }
            drop(commit);
            ground.assert_nothing_held(what);
        },
    );
    assert!(clean > 10 && late < 10, "{clean} {late}");
}

// Requirement: X1, S2, S8
#[test]
fn those_who_only_look_do_not_take_each_other_for_a_commit() {
    struct Other(Disk, PathBuf);
    with_a_deed_at_every_call(
        (Put::Two, Put::HardLink),
        |ground| Other(ground.disk(), ground.path()),
        |ground| inspect_with(ground.ops.clone(), ground.path()).expect("an inspection").state,
        |Other(disk, path)| {
            let state = inspect_with(disk.process(600), &*path).expect("an inspection").state;
            assert_eq!(state, State::InterruptedBeforeRename);
            let loaded = Store::load_with(disk.process(601), &*path, Options::new());
            let refused = loaded.map(drop).expect_err("nobody has recovered");
            assert_eq!((refused.code(), refused.in_flight()), (Code::RollbackFailed, false), "{refused}");
        },
        |ground, state, _, what| {
            assert_eq!(state, State::InterruptedBeforeRename, "{what}");
            ground.assert_nothing_held(what);
        },
    );
}

// Requirement: X2, S8
#[test]
fn a_commit_of_another_process_in_the_middle_of_a_recovery_loses_nothing() {
    struct Other {
        store: Store<Process>,
        acknowledged: Vec<Entry>,
    }
    for (current, marker, state) in
        [(Put::Two, Put::HardLink, State::InterruptedBeforeRename), (Put::Two, Put::Absent, State::Clean)]
    {
        let mut commits = 0;
        with_a_deed_at_every_call(
            (current, Put::Absent),
            |ground| {
                let store = Store::load_with(ground.disk().process(700), ground.path(), Options::new());
                // Another writer was cut off after this one had loaded the session.
                if marker == Put::HardLink {
                    let marker = ground.world.beside(MARKER);
                    ground.disk().hard_link(ground.path(), marker).expect("a marker");
                }
                Other { store: store.expect("a store"), acknowledged: Vec::new() }
            },
            |ground| recover_with(ground.ops.clone(), ground.path(), None),
            |other| match other.store.append(Some("e-2"), message()) {
                Ok(entry) => other.acknowledged.push(entry),
                Err(error) => {
                    assert!(
                        error.in_flight() || error.code() == Code::RollbackFailed && !error.poisoned(),
                        "{error}"
                    );
                }
            },
            |ground, answer, other, what| {
                let recovery = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(recovery.state, state, "{what}");
                commits += other.acknowledged.len();
                let process = ground.disk().process(701);
                let loaded = Store::load_with(process, ground.path(), Options::new()).expect(what);
                let ids: Vec<String> = loaded.entries().iter().map(|entry| entry.id().to_owned()).collect();
                for entry in &other.acknowledged {
                    assert!(ids.iter().any(|id| id == entry.id()), "{what}: {ids:?}");
                }
                assert_eq!(union(&ground.view()).len(), 2 + other.acknowledged.len(), "{what}");
                // The store that was refused goes on.
                other.store.append(Some("e-2"), message()).unwrap_or_else(|error| panic!("{what}: {error}"));
            },
        );
        assert_eq!(commits > 0, state == State::Clean);
    }
}

// Requirement: X2
#[test]
fn two_recoveries_of_one_session_at_once_end_as_one() {
    struct Other(Disk, PathBuf);
    for (current, marker) in
        [(Put::Three, Put::Two), (Put::Absent, Put::Two), (Put::Two, Put::Three), (Put::Two, Put::Empty)]
    {
        let alone = Ground::new(Backend::Simulated, current, marker);
        recover_with(alone.ops.clone(), alone.path(), None).expect("a recovery");
        let end = End::of(&alone.view());
        with_a_deed_at_every_call(
            (current, marker),
            |ground| Other(ground.disk(), ground.path()),
            |ground| recover_with(ground.ops.clone(), ground.path(), None),
            |other| match recover_with(other.0.process(600), &other.1, None) {
                Ok(_) => {}
                Err(error) => assert!(error.in_flight(), "{error}"),
            },
            |ground, answer, _, what| {
                let recovery = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(recovery.did.is_empty() == (recovery.state == State::Clean), "{what}: {recovery:?}");
                assert_eq!(End::of(&ground.view()), end, "{what}");
                ground.assert_nothing_held(what);
            },
        );
    }
}

// Requirement: X2, C21
#[test]
fn a_stranger_who_takes_the_session_away_meanwhile_does_not_make_recovery_remove_the_last_copy() {
    struct Stranger(Disk);
    let mut in_time = 0;
    for (current, marker) in [(Put::Two, Put::HardLink), (Put::Three, Put::Two), (Put::Two, Put::Three)] {
        with_a_deed_at_every_call(
            (current, marker),
            |ground| Stranger(ground.disk()),
            |ground| recover_with(ground.ops.clone(), ground.path(), None),
            |stranger| {
                // May be gone already.
                let _ = stranger.0.remove(Path::new("/sessions").join(SESSION));
            },
            |ground, answer, _, what| {
                // Whatever is answered: what the marker held is there, unless the stranger came after the last look
                // at the session, which only the look at the marker and its removal follow.
                let trace = ground.injector.trace();
                let removed = trace.iter().position(|event| {
                    (event.op, event.target.from) == (Op::Unlink, Role::Marker)
                        && event.outcome == Outcome::Done
                });
                let came = trace.iter().position(|event| event.fault.is_some());
                if came.zip(removed).is_some_and(|(came, removed)| came + 1 >= removed) {
                    return;
                }
                let held = union(&ground.view());
                assert!(held.len() >= 2, "{what}: {answer:?} and {held:?} left");
                in_time += usize::from(came.is_some());
            },
        );
    }
    assert!(in_time > 50, "{in_time}");
}
