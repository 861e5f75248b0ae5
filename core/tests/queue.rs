//! The queue: order of calls, threads, and factories that do what they should not.

mod support;

use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use session_tree::{Code, Errno, Message, Options, Result, Store};

use support::scripted::{Op, Role, ScriptedOps, What, at};
use support::{Fixture, counter, ids, options, refused, scripted_texts, user, without_deadlock};

type Slot = Arc<Mutex<Option<Store<ScriptedOps>>>>;

/// A store whose id factory, when it is called for the first time, is given its own store.
fn store_with_intruder(
    fixture: &Fixture,
    intrude: impl Fn(&Store<ScriptedOps>) + Send + 'static,
) -> Store<ScriptedOps> {
    let slot = Slot::default();
    let seen = Arc::clone(&slot);
    let mut next = counter("e");
    let options = options().with_ids(move || {
        let store = seen.lock().unwrap().take();
        if let Some(store) = store {
            intrude(&store);
        }
        next()
    });
    let store = Store::create_with(fixture.ops.clone(), fixture.path(), options).unwrap();
    *slot.lock().unwrap() = Some(store.clone());
    store
}

/// The next calls behave as if nothing had happened, from this thread and from another.
fn assert_goes_on(fixture: &Fixture, store: &Store<ScriptedOps>) {
    let before = ids(store).len();
    store.append(None, user("after")).unwrap();
    let other = store.clone();
    thread::spawn(move || other.append(None, user("after")).map(drop)).join().unwrap().unwrap();
    assert_eq!(ids(store).len(), before + 2);
    assert_eq!(fixture.cold_ids(), ids(store));
}

// Requirement: Q1, Q2, S8
#[test]
fn concurrent_appends_through_one_tree_form_one_chain() {
    without_deadlock(|| {
        let (fixture, store) = Fixture::with_entries(0);
        let tree = store.tree();
        let start = Arc::new(Barrier::new(8));
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let (tree, start) = (tree.clone(), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    (0..5)
                        .map(|number| {
                            tree.append(user(&format!("{worker}-{number}"))).unwrap().id().to_owned()
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let answers: Vec<Vec<String>> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        let entries = Store::load(fixture.path()).unwrap().entries();
        assert_eq!(entries.len(), 40);
        for (index, entry) in entries.iter().enumerate() {
            assert_eq!(entry.parent_id(), index.checked_sub(1).map(|before| entries[before].id()));
        }
        // What one thread called in order took effect in that order, and each answer names its own entry.
        for (worker, answer) in answers.iter().enumerate() {
            let own: Vec<&str> = entries
                .iter()
                .filter(|entry| entry.message().id().starts_with(&format!("{worker}-")))
                .map(session_tree::Entry::id)
                .collect();
            assert_eq!(&own, answer);
        }
    });
}

// Requirement: Q1
#[test]
fn a_failed_operation_does_not_stop_the_next() {
    let (fixture, store) = Fixture::with_entries(1);
    let tree = store.tree();
    fixture.ops.plan(at(Op::WriteAt, Role::Temporary, What::Before(Errno::ENOSPC)));
    refused(tree.append(user("m-2")), Code::Io);
    refused(store.append(Some("no such entry"), user("m-3")), Code::ParentNotFound);
    refused(tree.move_to(Some("no such entry")), Code::EntryNotFound);
    tree.append(user("m-4")).unwrap();
    assert_eq!(fixture.cold_ids(), ["e-1", "e-3"]);
}

// Requirement: Q1, Q2
#[test]
fn operations_of_a_store_and_of_its_trees_share_one_queue() {
    without_deadlock(|| {
        let fixture = Fixture::new();
        let (reached, entered) = std::sync::mpsc::channel();
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let mut next = counter("e");
        let options = options().with_ids(move || {
            let id = next();
            if id == "e-1" {
                reached.send(()).unwrap();
                gate.recv().unwrap();
            }
            id
        });
        let store = Store::create_with(fixture.ops.clone(), fixture.path(), options).unwrap();
        let tree = store.tree();
        let first = tree.clone();
        let first = thread::spawn(move || first.append(user("m-1")).map(drop));
        entered.recv().unwrap();
        // The append holds its turn. A move that is called now waits for it, and then sees its entry.
        let mover = tree.clone();
        let mover = thread::spawn(move || mover.move_to(Some("e-1")));
        // Room for a move that does not wait; one that does passes however long this takes.
        thread::sleep(Duration::from_millis(20));
        go_on.send(()).unwrap();
        first.join().unwrap().unwrap();
        mover.join().unwrap().unwrap();
        assert_eq!(tree.leaf().as_deref(), Some("e-1"));
    });
}

// Requirement: S9, S5
#[test]
fn a_factory_that_panics_is_an_error_and_spoils_nothing() {
    without_deadlock(|| {
        for clock in [false, true] {
            let fixture = Fixture::new();
            let mut calls = 0;
            let panics = move || {
                calls += 1;
                assert!(calls != 2, "the factory's own panic");
                format!("x-{calls}")
            };
            // The clock is drawn from for the header first.
            let options = if clock { options().with_clock(panics) } else { options().with_ids(panics) };
            let store = Store::create_with(fixture.ops.clone(), fixture.path(), options).unwrap();
            let first = store.append(None, user("m-1"));
            let error = if clock {
                refused(first, Code::FactoryFailed)
            } else {
                first.unwrap();
                refused(store.append(None, user("m-2")), Code::FactoryFailed)
            };
            assert!(!error.poisoned());
            assert_eq!(fixture.cold_ids(), ids(&store));
            assert_goes_on(&fixture, &store);
        }
    });
}

// Requirement: S9, S5
#[test]
fn a_blank_or_repeated_draw_is_refused_and_consumed() {
    let fixture = Fixture::new();
    let options = options()
        .with_ids(scripted_texts(&["", " \t", "a", "a", "b", "c"]))
        .with_clock(scripted_texts(&["t", "t-1", "\u{feff}", "t-2"]));
    let store = Store::create_with(fixture.ops.clone(), fixture.path(), options).unwrap();
    let before = fixture.bytes();
    refused(store.append(None, user("m")), Code::InvalidRecord);
    refused(store.append(None, user("m")), Code::InvalidRecord);
    assert_eq!(fixture.bytes(), before);
    assert_eq!(store.append(None, user("m")).unwrap().timestamp(), "t-1");
    refused(store.append(None, user("m")), Code::DuplicateEntryId);
    // The id was drawn before the blank time, and is gone.
    refused(store.append(None, user("m")), Code::InvalidRecord);
    assert_eq!(store.append(None, user("m")).unwrap().id(), "c");
    assert_eq!(fixture.cold_ids(), ["a", "c"]);
}

// Requirement: S9
#[test]
fn a_factory_that_calls_back_into_the_store_is_an_error() {
    type Intrusion = fn(&Store<ScriptedOps>) -> Result<()>;
    let intrusions: [Intrusion; 4] = [
        |store| store.append(None, user("inner")).map(drop),
        Store::flush,
        |store| store.tree().append(user("inner")).map(drop),
        |store| store.tree().move_to(None),
    ];
    for intrusion in intrusions {
        without_deadlock(move || {
            let fixture = Fixture::new();
            let store = store_with_intruder(&fixture, move |store| {
                refused(intrusion(store), Code::FactoryFailed);
            });
            let error = refused(store.append(None, user("m-1")), Code::FactoryFailed);
            assert!(!error.poisoned());
            assert!(ids(&store).is_empty());
            assert!(fixture.is_tidy());
            assert_goes_on(&fixture, &store);
        });
    }
}

// Requirement: S9
#[test]
fn a_clock_that_calls_back_into_the_store_is_an_error() {
    without_deadlock(|| {
        let fixture = Fixture::new();
        let slot = Slot::default();
        let seen = Arc::clone(&slot);
        let options = options().with_clock(move || {
            let store = seen.lock().unwrap().take();
            if let Some(store) = store {
                refused(store.flush(), Code::FactoryFailed);
            }
            "t".to_owned()
        });
        let store = Store::create_with(fixture.ops.clone(), fixture.path(), options).unwrap();
        *slot.lock().unwrap() = Some(store.clone());
        refused(store.append(None, user("m-1")), Code::FactoryFailed);
        assert_goes_on(&fixture, &store);
    });
}

// Requirement: S9, S7
#[test]
fn a_factory_may_read_the_store() {
    without_deadlock(|| {
        let fixture = Fixture::new();
        let store = store_with_intruder(&fixture, |store| {
            assert_eq!(store.entries().len(), 0);
            assert_eq!(store.header().id(), "s");
            assert_eq!(store.torn_tail(), 0);
            assert!(store.tree().active_entries().is_empty());
            assert!(format!("{store:?} {:?}", store.tree()).contains("a.jsonl"));
            assert!(store.path().ends_with("a.jsonl"));
        });
        store.append(None, user("m-1")).unwrap();
        assert_goes_on(&fixture, &store);
    });
}

// Requirement: S9, S8
#[test]
fn a_factory_that_writes_the_same_path_through_another_store_is_refused_there() {
    without_deadlock(|| {
        let fixture = Fixture::new();
        let (ops, path) = (fixture.ops.clone(), fixture.path());
        let store = store_with_intruder(&fixture, move |_| {
            let other = Store::load_with(ops.clone(), &path, Options::new()).unwrap();
            refused(other.append(None, user("inner")), Code::FactoryFailed);
            refused(other.flush(), Code::FactoryFailed);
        });
        // Nothing came between, so the outer append holds.
        store.append(None, user("m-1")).unwrap();
        assert_eq!(fixture.cold_ids(), ["e-1"]);
        assert_goes_on(&fixture, &store);
    });
}

// Requirement: S9
#[test]
fn a_factory_may_use_a_store_on_another_path() {
    without_deadlock(|| {
        let (fixture, elsewhere) = (Fixture::new(), Fixture::new());
        let other = elsewhere.create().unwrap();
        let store = store_with_intruder(&fixture, move |_| {
            other.append(None, user("inner")).unwrap();
        });
        store.append(None, user("m-1")).unwrap();
        assert_eq!(elsewhere.cold_ids(), ["e-1"]);
        assert_goes_on(&fixture, &store);
    });
}

// Requirement: S9
#[test]
fn a_call_back_by_way_of_another_store_is_an_error_too() {
    without_deadlock(|| {
        let (fixture, elsewhere) = (Fixture::new(), Fixture::new());
        let slot = Slot::default();
        let seen = Arc::clone(&slot);
        let middle = store_with_intruder(&elsewhere, move |_| {
            let outer = seen.lock().unwrap().take().unwrap();
            refused(outer.append(None, user("inner")), Code::FactoryFailed);
        });
        let store =
            store_with_intruder(&fixture, move |_| middle.append(None, user("middle")).map(drop).unwrap());
        *slot.lock().unwrap() = Some(store.clone());
        refused(store.append(None, user("m-1")), Code::FactoryFailed);
        assert_goes_on(&fixture, &store);
    });
}

// Requirement: S1, S9
#[test]
fn a_create_whose_clock_fails_leaves_nothing() {
    let clocks: [(Code, fn() -> String); 2] = [
        (Code::FactoryFailed, || panic!("the factory's own panic")),
        (Code::InvalidHeader, || " ".to_owned()),
    ];
    for (code, clock) in clocks {
        let fixture = Fixture::new();
        let options = options().with_clock(clock);
        refused(Store::create_with(fixture.ops.clone(), fixture.path(), options), code);
        assert!(fixture.names().is_empty());
        assert_eq!(fixture.descriptors(), 0);
    }
}

// Requirement: S9
#[test]
fn a_clock_of_create_may_create_the_same_session() {
    without_deadlock(|| {
        let fixture = Fixture::new();
        let path: PathBuf = fixture.path();
        let options = options().with_clock(move || {
            Store::create_with(ScriptedOps::new(), &path, options()).unwrap();
            "t".to_owned()
        });
        let answer = Store::create_with(fixture.ops.clone(), fixture.path(), options);
        refused(answer, Code::AlreadyExists);
        assert!(fixture.is_tidy());
        assert_eq!(fixture.cold_ids().len(), 0);
    });
}

// Requirement: S8, Q1
#[test]
fn two_stores_on_one_path_lose_no_acknowledged_entry() {
    without_deadlock(|| {
        let (fixture, _) = Fixture::with_entries(0);
        let start = Arc::new(Barrier::new(4));
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (path, start) = (fixture.path(), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    let mut acknowledged = Vec::new();
                    for number in 0..10 {
                        // Real pauses: a load waits for the commits of the others.
                        let store = Store::load(&path).unwrap();
                        let message = Message::user(format!("{worker}-{number}"), "");
                        match store.append(None, message) {
                            Ok(entry) => acknowledged.push(entry.id().to_owned()),
                            Err(error) => assert_eq!(error.code(), Code::FileChanged, "{error}"),
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        let mut acknowledged: Vec<String> =
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        let mut stored = fixture.cold_ids();
        assert!(!stored.is_empty());
        acknowledged.sort();
        stored.sort();
        assert_eq!(stored, acknowledged);
        assert!(fixture.is_tidy());
    });
}
