//! Every system call of every recovery that does something fails in turn, or is the last of its process, or of its
//! machine.

use std::collections::BTreeSet;
use std::path::Path;

use session_harness::disk::{CutOutcome, Disk};
use session_harness::fault::{Fault, Kind, Op, Plan, Role, Site, Span};
use session_harness::inject::{Event, Injector, Outcome};
use session_harness::world::Backend;
use session_tree::recover::{Choice, Recovery, recover_with};
use session_tree::{Code, Errno};

use super::ground::{End, Ground, MARKER, Put, SESSION, assert_nothing_lost, look_at, others, union};

/// One of each kind of doing, with what the two files hold.
const CASES: [(Put, Put, Option<Choice>); 10] = [
    (Put::Empty, Put::Absent, Some(Choice::SetAside)),
    (Put::Two, Put::HardLink, None),
    (Put::Three, Put::Two, None),
    (Put::TwoTorn, Put::Two, None),
    (Put::Two, Put::Three, None),
    (Put::Two, Put::BadMiddle, None),
    (Put::Absent, Put::Two, None),
    (Put::Three, Put::Fork, Some(Choice::Current)),
    (Put::Three, Put::Fork, Some(Choice::Marker)),
    (Put::BadMiddle, Put::Two, Some(Choice::Marker)),
];

/// A recovery without faults: where it ends, and its system calls.
fn undisturbed(case: (Put, Put, Option<Choice>)) -> (End, Vec<Event>) {
    let ground = Ground::new(Backend::Simulated, case.0, case.1);
    let recovery = recover(&ground, case.2, 1).expect("a recovery without faults");
    assert!(!recovery.did.is_empty(), "{case:?}");
    (End::of(&ground.view()), ground.injector.trace())
}

fn recover(ground: &Ground, choice: Option<Choice>, nth: u32) -> session_tree::Result<Recovery> {
    ground.injector.begin("recover", nth);
    recover_with(ground.ops.clone(), ground.path(), choice)
}

/// The ways in which a call may go wrong.
fn kinds(event: &Event) -> Vec<Kind> {
    use Kind::{After, Before, Held, NoProgress, Short};
    let mut kinds = vec![Kind::KillBefore, Kind::KillAfter];
    kinds.extend([Before(Errno::EIO), After(Errno::EIO), Before(Errno::EINTR)]);
    kinds.extend(match event.op {
        Op::Link => vec![
            Before(Errno::EEXIST),
            After(Errno::EEXIST),
            Before(Errno::ENOENT),
            Before(Errno::ENOSPC),
            After(Errno::ENOSPC),
            Before(Errno::EPERM),
        ],
        Op::Unlink => vec![Before(Errno::ENOENT), After(Errno::ENOENT), Before(Errno::EBUSY)],
        Op::Stat => vec![Before(Errno::ENOENT), Before(Errno::EACCES)],
        Op::Open | Op::OpenDir => vec![Before(Errno::ENOENT), Before(Errno::EMFILE), Before(Errno::EACCES)],
        Op::Read => vec![Short, NoProgress],
        Op::Fsync => vec![Before(Errno::ENOSPC), After(Errno::ENOSPC), Before(Errno::EINVAL)],
        Op::Lock => vec![Held, Before(Errno::ENOLCK), Before(Errno::EBADF)],
        _ => Vec::new(),
    });
    kinds
}

fn spans(kind: Kind) -> &'static [Span] {
    match kind {
        Kind::KillBefore | Kind::KillAfter => &[Span::Times(1)],
        _ => &[Span::Times(1), Span::Times(3), Span::Forever],
    }
}

fn plans(trace: &[Event]) -> impl Iterator<Item = Plan> + '_ {
    trace.iter().flat_map(|event| {
        kinds(event).into_iter().flat_map(move |kind| {
            spans(kind).iter().map(move |span| {
                let site =
                    Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() };
                Plan(vec![Fault { site, kind, span: *span }])
            })
        })
    })
}

// Requirement: X2, C21, C22
#[test]
fn a_recovery_that_failed_anywhere_lost_nothing_and_ends_in_the_same_place_when_repeated() {
    let mut runs = 0;
    for case in CASES {
        let (end, trace) = undisturbed(case);
        for plan in plans(&trace) {
            run_with(case, &plan, &end);
            runs += 1;
        }
    }
    println!("{runs} recoveries with a fault");
    assert!(runs > 3_000);
}

fn run_with(case: (Put, Put, Option<Choice>), plan: &Plan, end: &End) {
    let what = format!("{case:?} with {plan}");
    let mut ground = Ground::disturbed(Backend::Simulated, case.0, case.1, plan, |_| {});
    let before = ground.view();
    let answer = recover(&ground, case.2, 1);
    assert!(ground.injector.fired()[0] > 0, "{what}: the fault did not strike");
    let killed = ground.injector.killed();
    if killed {
        ground.world.kill(&ground.ops);
    } else {
        assert_typed(answer, plan, &ground.injector.trace(), &what);
        ground.assert_nothing_held(&what);
    }
    let between = ground.view();
    assert_nothing_lost(&before, &between, &what);
    assert_eq!(others(&between), others(&before), "{what}");

    ground.injector = Injector::watching();
    ground.ops = ground.world.process(&ground.injector);
    recover(&ground, case.2, 1).unwrap_or_else(|error| panic!("{what}: recovered again: {error}"));
    ground.assert_nothing_held(&what);
    let after = ground.view();
    assert_nothing_lost(&before, &after, &what);
    assert_eq!(others(&after), others(&before), "{what}");
    assert_eq!(&End::of(&after), end, "{what}");
}

/// A refusal has one of four codes, and an I/O error the number that a system call answered. Where a look said that
/// something is not there which is, the refusal is that of another state.
fn assert_typed(answer: session_tree::Result<Recovery>, plan: &Plan, trace: &[Event], what: &str) {
    let Err(error) = answer else { return };
    let was_lied_to = plan.0[0].site.op == Op::Stat && plan.0[0].kind == Kind::Before(Errno::ENOENT);
    match error.code() {
        Code::Io if error.in_flight() => assert_eq!(error.errno(), Some(Errno::EAGAIN), "{what}: {error}"),
        Code::Io => {
            let errno = error.errno().expect(what);
            let answered = trace.iter().any(|event| event.outcome == Outcome::Failed(errno));
            assert!(answered, "{what}: {error}");
        }
        Code::FileChanged | Code::RootChanged => {}
        _ if was_lied_to => {}
        Code::RollbackFailed => assert!(error.in_flight(), "{what}: {error}"),
        code => panic!("{what}: {code}"),
    }
}

// Requirement: X2, C23
#[test]
fn a_power_cut_at_any_moment_of_a_recovery_loses_nothing_and_it_can_be_done_again() {
    let mut cuts = 0;
    for case in CASES {
        let (end, trace) = undisturbed(case);
        for disk in moments(case, case.0, &trace, |_| {}) {
            let root = Path::new("/sessions");
            for cut in disks_after_a_cut(&disk, false) {
                let what = format!("{case:?}, a cut that leaves\n{}", cut.snapshot());
                assert_holds(&cut, &union(&look_at(&disk, root)), &what);
                recover_with(cut.process(500), root.join(SESSION), case.2)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(End::of(&look_at(&cut, root)), end, "{what}");
                for again in disks_after_a_cut(&cut, false) {
                    assert_eq!(End::of(&look_at(&again, root)), end, "{what}: cut after the recovery");
                }
                cuts += 1;
            }
        }
    }
    println!("{cuts} disks after a cut");
    assert!(cuts > 300);
}

// Requirement: X2
#[test]
fn what_is_kept_is_durable_before_what_is_not_kept_goes() {
    for case in CASES {
        let (_, trace) = undisturbed(case);
        // The session was written by somebody who syncs nothing: neither its name nor its bytes need survive a cut.
        let (start, unsynced) = match case.1 {
            Put::HardLink => (case.0, None),
            _ => (Put::Absent, case.0.bytes()),
        };
        let unsynced = |ground: &Ground| {
            if let Some(bytes) = &unsynced {
                ground.world.outsider().write_file(&ground.path(), bytes).expect("a session");
            }
        };
        let root = Path::new("/sessions");
        let mut safe = None;
        for disk in moments(case, start, &trace, unsynced) {
            let first = safe.get_or_insert_with(|| {
                let durable = disks_after_a_cut(&disk, true);
                let held = durable.iter().map(|cut| union(&look_at(cut, root)));
                held.reduce(|one, other| &one & &other).unwrap_or_default()
            });
            for cut in disks_after_a_cut(&disk, true) {
                assert_holds(&cut, first, &format!("{case:?}, a cut that leaves\n{}", cut.snapshot()));
            }
        }
    }
}

// Requirement: X2
#[test]
fn a_recovery_whose_fsync_fails_says_so_and_takes_no_name_away_afterwards() {
    let mut failures = 0;
    for case in CASES {
        let (_, mut fsyncs) = undisturbed(case);
        fsyncs.retain(|event| event.op == Op::Fsync);
        for plan in plans(&fsyncs) {
            let what = format!("{case:?} with {plan}");
            let (Kind::Before(errno) | Kind::After(errno)) = plan.0[0].kind else { continue };
            // By this one a file system says that its directories need no fsync, or cannot have one.
            if errno == Errno::EINVAL {
                continue;
            }
            let ground = Ground::disturbed(Backend::Simulated, case.0, case.1, &plan, |_| {});
            let error = recover(&ground, case.2, 1).expect_err(&what);
            assert_eq!((error.code(), error.errno()), (Code::Io, Some(errno)), "{what}");
            let trace = ground.injector.trace();
            let struck = trace.iter().position(|event| event.fault.is_some()).expect(&what);
            let later = trace[struck + 1..].iter().find(|event| event.op.mutates());
            assert!(later.is_none(), "{what}: {later:?}");
            failures += 1;
        }
    }
    assert!(failures > 300, "{failures}");
}

/// The disk before each system call of a recovery, and after the last one. It begins with `start` in the place of the
/// session, and everything durable; then somebody prepares it.
fn moments(
    case: (Put, Put, Option<Choice>),
    start: Put,
    trace: &[Event],
    prepare: impl Fn(&Ground),
) -> Vec<Disk> {
    let last = trace.len() - 1;
    let kills = trace.iter().map(|event| (event, Kind::KillBefore)).chain([(&trace[last], Kind::KillAfter)]);
    kills
        .map(|(event, kind)| {
            let site =
                Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() };
            let plan = Plan(vec![Fault { site, kind, span: Span::Times(1) }]);
            let ground = Ground::disturbed(Backend::Simulated, start, case.1, &plan, |_| {});
            prepare(&ground);
            let answer = recover(&ground, case.2, 1);
            assert!(ground.injector.killed(), "{case:?}: {plan} did not strike: {answer:?}");
            ground.disk().fork()
        })
        .collect()
}

/// Every disk that a cut may leave where names do not depend on each other (and, if asked for, unsynced files are
/// empty or whole).
fn disks_after_a_cut(disk: &Disk, with_bytes: bool) -> Vec<Disk> {
    let unsettled = disk.unsettled();
    let mut outcomes = vec![CutOutcome::default()];
    for directory in &unsettled.directories {
        let names: BTreeSet<_> = directory.changes.iter().map(|change| change.name.clone()).collect();
        for name in names {
            let later = directory.changes.iter().filter(|change| change.name == name);
            let choices: Vec<_> = later.map(|change| change.now).collect();
            let longer = outcomes.iter().flat_map(|outcome| {
                choices.iter().map(|now| {
                    let mut outcome = outcome.clone();
                    outcome.names.push((directory.id, name.clone(), *now));
                    outcome
                })
            });
            let longer: Vec<_> = longer.collect();
            outcomes.extend(longer);
        }
    }
    for file in unsettled.files.iter().filter(|_| with_bytes) {
        let whole: Vec<_> = outcomes
            .iter()
            .map(|outcome| {
                let mut outcome = outcome.clone();
                outcome.bytes.push((file.id, file.cached.clone()));
                outcome
            })
            .collect();
        outcomes.extend(whole);
    }
    outcomes.iter().map(|outcome| disk.after_cut(outcome)).collect()
}

fn assert_holds(disk: &Disk, entries: &BTreeSet<String>, what: &str) {
    let held = union(&look_at(disk, Path::new("/sessions")));
    let lost: Vec<_> = entries.difference(&held).collect();
    assert!(lost.is_empty(), "{what}: lost {lost:?}");
}

// Requirement: X1
#[test]
fn a_look_that_fails_is_an_error_and_never_a_verdict() {
    for (current, marker) in
        [(Put::Three, Put::Two), (Put::Two, Put::HardLink), (Put::Absent, Put::Two), (Put::Two, Put::Absent)]
    {
        let ground = Ground::new(Backend::Simulated, current, marker);
        let inspect = |ground: &Ground| {
            ground.injector.begin("inspect", 1);
            session_tree::recover::inspect_with(ground.ops.clone(), ground.path())
        };
        let state = inspect(&ground).expect("an inspection").state;
        for event in ground.injector.trace() {
            if event.op == Op::Unlock {
                continue;
            }
            let site =
                Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() };
            for span in [Span::Times(1), Span::Forever] {
                let plan = Plan(vec![Fault { site: site.clone(), kind: Kind::Before(Errno::EIO), span }]);
                let ground = Ground::disturbed(Backend::Simulated, current, marker, &plan, |_| {});
                let before = ground.view();
                let Err(error) = inspect(&ground) else { panic!("{plan}: a verdict") };
                assert_eq!((error.code(), error.errno()), (Code::Io, Some(Errno::EIO)), "{plan}");
                let named = error.path().and_then(Path::file_name).expect("a path");
                match event.target.from {
                    Role::Session => assert_eq!(named, SESSION, "{plan}: {error}"),
                    Role::Marker => assert_eq!(named, MARKER, "{plan}: {error}"),
                    _ => {}
                }
                assert_eq!(ground.view(), before, "{plan}");
                ground.assert_nothing_held(&plan.to_string());
            }
            // A read that ends early, or a name that is seen to be absent once, is looked at again.
            for kind in [Kind::Short, Kind::NoProgress, Kind::Before(Errno::EINTR)] {
                if event.op != Op::Read {
                    continue;
                }
                let plan = Plan(vec![Fault { site: site.clone(), kind, span: Span::Times(1) }]);
                let ground = Ground::disturbed(Backend::Simulated, current, marker, &plan, |_| {});
                let again = inspect(&ground).map(|inspection| inspection.state);
                assert!(again.is_ok_and(|again| again == state), "{plan}");
                assert_eq!(ground.injector.fired(), [1], "{plan}");
            }
        }
    }
}
