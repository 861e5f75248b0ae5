//! What a power cut may leave of a create, an append, a flush or a roll back, at every moment of each.
//!
//! A moment is the state of the simulated disk before one system call, or after the answer. Of each moment every
//! choice is tried: each name after any prefix of its own changes, each file that was not synced with its old bytes,
//! its new ones, and zeros in place of the new ones.

use std::iter;
use std::sync::{Arc, Mutex};

use session_harness::call::{Call, EntryView, Reply};
use session_harness::disk::{CutOutcome, Disk, Name, NodeId};
use session_harness::fault::{Actor, During, Fault, Kind, Plan, Site, Span};
use session_harness::inject::{Event, Injector};
use session_harness::model;
use session_harness::outsider::{self, Outsider};
use session_harness::subject::{InProcess, Subject};
use session_harness::world::{Backend, World};

const SESSION: &str = "session.jsonl";
const CHAT: &[u8] = include_bytes!("../../corpus/sessions/plain-chat.jsonl");

/// One call on a disk of its own, seen from outside.
struct Watched {
    world: World,
    reply: Reply,
    events: Vec<Event>,
    /// The disk before each system call, and at last after the answer.
    moments: Vec<Disk>,
}

/// Makes the call, on a session that is durable where there is one, with faults.
fn watch(session: Option<&[u8]>, call: &dyn Fn(&World) -> Call, faults: &str) -> Watched {
    let faults: Plan = faults.parse().unwrap();
    let first = attempt(session, call, &faults);
    // Where a fault of the plan strikes nobody looks: what is seen before the next call is what it left.
    let looks = first.events.iter().filter(|event| event.fault.is_none()).map(|event| Fault {
        site: Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() },
        kind: Kind::Actor(Actor::Chmod),
        span: Span::Times(1),
    });
    let plan = Plan(faults.0.iter().cloned().chain(looks).collect());
    let watched = attempt(session, call, &plan);
    assert!(watched.moments.len() > faults.0.len() + 2, "nobody looked");
    watched
}

/// Every act of the plan is a look.
fn attempt(session: Option<&[u8]>, call: &dyn Fn(&World) -> Call, plan: &Plan) -> Watched {
    let mut world = World::new(Backend::Simulated, SESSION).unwrap();
    if let Some(bytes) = session {
        world.outsider().write_file(world.session(), bytes).unwrap();
    }
    let disk = disk_of(&world);
    disk.sync_all();
    let moments: Arc<Mutex<Vec<Disk>>> = Arc::default();
    let (seen, looked_at) = (Arc::clone(&moments), disk.clone());
    let injector = Injector::new(plan, move |_| seen.lock().unwrap().push(looked_at.fork()));
    let mut subject = InProcess::new(world.process(&injector));
    if session.is_some() {
        assert!(matches!(subject.call(&load(&world)), Reply::Ok(_)));
    }
    let call = call(&world);
    injector.begin(call.name(), 1);
    let reply = subject.call(&call);
    let during = During { call: call.name().into(), nth: 1 };
    let events = injector.trace().into_iter().filter(|event| event.during == during).collect();
    let mut moments: Vec<Disk> = moments.lock().unwrap().drain(..).collect();
    moments.push(disk.fork());
    Watched { world, reply, events, moments }
}

fn disk_of(world: &World) -> Disk {
    match world.outsider() {
        Outsider::Simulated(disk) => disk.clone(),
        Outsider::Real => panic!("a real directory has no power cut"),
    }
}

fn path_of(world: &World) -> String {
    world.session().to_string_lossy().into_owned()
}

fn create(world: &World) -> Call {
    Call::Create {
        store: "s".to_owned(),
        path: path_of(world),
        session_id: None,
        ids: Vec::new(),
        clock: Vec::new(),
    }
}

fn load(world: &World) -> Call {
    Call::Load { store: "s".to_owned(), path: path_of(world), ids: Vec::new(), clock: Vec::new() }
}

fn append(_: &World) -> Call {
    let message = session_tree::Message::user("m-new", "why does the build fail?");
    let message = session_harness::call::message_json(&message);
    Call::Append { store: "s".to_owned(), parent_id: None, message }
}

fn flush(_: &World) -> Call {
    Call::Flush { store: "s".to_owned() }
}

/// What a process that starts now is shown of the session; nothing where its load refuses.
fn shown(disk: &Disk, world: &World) -> Option<Vec<EntryView>> {
    match InProcess::new(disk.process(999)).call(&load(world)) {
        Reply::Ok(answer) => Some(answer.entries.unwrap_or_default()),
        _ => None,
    }
}

fn entries_of(bytes: &[u8]) -> Option<Vec<EntryView>> {
    Some(model::load(bytes).ok()?.entries().iter().map(EntryView::from).collect())
}

/// The entries of the file at the path, and of the one at the recovery marker.
fn both(disk: &Disk, world: &World) -> [Option<Vec<EntryView>>; 2] {
    [world.session().to_owned(), outsider::marker(world.session())]
        .map(|path| entries_of(&disk.read_file(path).ok()?))
}

/// Every state that a power cut may leave.
fn cuts(disk: &Disk) -> Vec<Disk> {
    let unsettled = disk.unsettled();
    let mut outcomes = vec![CutOutcome::default()];
    for directory in &unsettled.directories {
        let mut names: Vec<Name> = directory.changes.iter().map(|change| change.name.clone()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let changes = directory.changes.iter().filter(|change| change.name == name);
            let choices: Vec<Option<NodeId>> = changes.map(|change| change.now).collect();
            outcomes = with_each(&outcomes, &choices, |outcome, now| {
                outcome.names.push((directory.id, name.clone(), *now));
            });
        }
    }
    for file in &unsettled.files {
        let choices = [file.cached.clone(), Arc::new(vec![0; file.cached.len()])];
        outcomes =
            with_each(&outcomes, &choices, |outcome, bytes| outcome.bytes.push((file.id, bytes.clone())));
    }
    outcomes.iter().map(|outcome| disk.after_cut(outcome)).collect()
}

/// Each outcome as it is, and with each of the choices.
fn with_each<T>(
    outcomes: &[CutOutcome],
    choices: &[T],
    choose: impl Fn(&mut CutOutcome, &T),
) -> Vec<CutOutcome> {
    let chosen = |outcome: &CutOutcome, choice: &T| {
        let mut outcome = outcome.clone();
        choose(&mut outcome, choice);
        outcome
    };
    outcomes
        .iter()
        .flat_map(|outcome| {
            iter::once(outcome.clone()).chain(choices.iter().map(|choice| chosen(outcome, choice)))
        })
        .collect()
}

/// Checks every cut at every moment of a call on a session of `old` entries: a load shows the old entries or those
/// and the new one, or refuses beside a marker where one of both files holds them; and nothing that a load was shown
/// before the cut, or that the answer acknowledges, is gone after it. Returns how many cuts were checked.
fn check(watched: &Watched, old: &[EntryView]) -> usize {
    let world = &watched.world;
    let last = watched.moments.len() - 1;
    let mut checked = 0;
    for (at, moment) in watched.moments.iter().enumerate() {
        // What anybody can know by now: the old entries, what a load shows, and what the answer says.
        let mut known = old.to_vec();
        if let Some(entries) = shown(&moment.fork(), world) {
            assert!(entries.starts_with(old), "moment {at} shows less than was acknowledged");
            known = entries;
        }
        if at == last
            && let Reply::Ok(answer) = &watched.reply
        {
            known = old.iter().cloned().chain(answer.entry.clone()).collect();
        }
        for cut in cuts(moment) {
            checked += 1;
            let before = watched.events.get(at);
            if let Some(entries) = shown(&cut, world) {
                assert!(entries.starts_with(&known), "lost by a cut at moment {at}, before {before:?}");
                assert!(entries.len() <= old.len() + 1, "invented by a cut at moment {at}");
            } else {
                let [path, marker] = both(&cut, world);
                let holds = |file: &Option<Vec<EntryView>>| {
                    file.as_ref().is_some_and(|entries| entries.starts_with(&known))
                };
                assert!(marker.is_some(), "no session and no marker at moment {at}, before {before:?}");
                assert!(
                    holds(&path) || holds(&marker),
                    "in neither file after a cut at moment {at}, before {before:?}"
                );
            }
        }
    }
    checked
}

fn acknowledged(reply: &Reply) {
    assert!(matches!(reply, Reply::Ok(_)), "{reply:?}");
}

fn refused_with_io(reply: &Reply) {
    assert!(matches!(reply, Reply::Refused(refusal) if refusal.code == "SESSION_IO"), "{reply:?}");
}

// Requirement: C4, C10, C11, C23, S2
#[test]
fn no_cut_during_or_after_an_append_loses_or_takes_back_an_entry() {
    let old = entries_of(CHAT).unwrap();
    let watched = watch(Some(CHAT), &append, "");
    acknowledged(&watched.reply);
    assert!(check(&watched, &old) > 20);
    let [path, marker] = both(watched.moments.last().unwrap(), &watched.world);
    assert_eq!((path.map(|entries| entries.len()), marker), (Some(old.len() + 1), None));
}

// Requirement: S6, C4, C23
#[test]
fn no_cut_during_or_after_a_flush_loses_an_entry() {
    let old = entries_of(CHAT).unwrap();
    let watched = watch(Some(CHAT), &flush, "");
    acknowledged(&watched.reply);
    assert!(check(&watched, &old) > 20);
}

// Requirement: S1, S1.cut, C4
#[test]
fn a_cut_during_a_create_leaves_nothing_or_the_whole_header_and_none_undoes_it_afterwards() {
    let watched = watch(None, &create, "");
    acknowledged(&watched.reply);
    let last = watched.moments.len() - 1;
    for (at, moment) in watched.moments.iter().enumerate() {
        for cut in cuts(moment) {
            let is_there = cut.look(watched.world.session()).is_ok();
            assert_eq!(shown(&cut, &watched.world).is_some(), is_there, "a part of a session at moment {at}");
            assert!(is_there || at < last, "an acknowledged session is gone");
        }
    }
}

// Requirement: C20, C24
#[test]
fn an_append_that_was_rolled_back_never_comes_back() {
    let old = entries_of(CHAT).unwrap();
    for faults in [
        "fsync@root#1 in append#1 = EIO after, once",
        "unlink@marker#1 in append#1 = EIO before, 3 times",
        "fsync@root#1 in append#1 = EIO after, once; rename@marker>session#1 in append#1 = EIO before, for ever",
    ] {
        let watched = watch(Some(CHAT), &append, faults);
        refused_with_io(&watched.reply);
        for cut in cuts(watched.moments.last().unwrap()) {
            assert_eq!(shown(&cut, &watched.world).as_deref(), Some(&old[..]), "{faults}");
        }
    }
}

// Requirement: C24, S1
#[test]
fn a_create_that_was_answered_with_an_error_never_comes_back() {
    for faults in [
        "fsync@root#1 in create#1 = EIO after, once",
        "fsync@root#1 in create#1 = EIO before, once",
        "link@temporary>session#1 in create#1 = EIO after, once",
    ] {
        let watched = watch(None, &create, faults);
        refused_with_io(&watched.reply);
        for cut in cuts(watched.moments.last().unwrap()) {
            assert!(cut.look(watched.world.session()).is_err(), "{faults}");
        }
    }
}
