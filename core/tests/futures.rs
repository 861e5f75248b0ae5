//! Operations as futures: their order, their end, and runtimes that go away.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use session_tree::futures::AsyncStore;
use session_tree::{Code, Store};
use tokio::runtime::{Builder, Runtime};

use support::scripted::ScriptedOps;
use support::{Fixture, counter, ids, options, refused, user, without_deadlock};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// A runtime with one thread for blocking work.
fn narrow_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build().unwrap()
}

fn session() -> (Fixture, AsyncStore<ScriptedOps>) {
    let fixture = Fixture::new();
    let store = fixture.create().unwrap();
    (fixture, AsyncStore::new(store))
}

fn message_ids(store: &Store<ScriptedOps>) -> Vec<String> {
    store.entries().iter().map(|entry| entry.message().id().to_owned()).collect()
}

#[test]
fn what_is_printed_for_debugging_names_the_store_or_tree() {
    let (_fixture, store) = session();
    assert_eq!(format!("{store:?}"), format!("AsyncStore({:?})", store.store()));
    assert_eq!(format!("{:?}", store.tree()), format!("AsyncTree({:?})", store.store().tree()));
}

// Requirement: Q1, S5
#[test]
fn operations_take_effect_in_the_order_of_the_calls_and_not_of_the_polls() {
    without_deadlock(|| {
        let (fixture, store) = session();
        runtime().block_on(async {
            let first = store.append(None, user("m-1"));
            let second = store.append(Some("e-1"), user("m-2"));
            let third = store.append(Some("e-2"), user("m-3"));
            assert_eq!(third.await.unwrap().parent_id(), Some("e-2"));
            assert_eq!(second.await.unwrap().parent_id(), Some("e-1"));
            assert_eq!(first.await.unwrap().id(), "e-1");
        });
        assert_eq!(message_ids(store.store()), ["m-1", "m-2", "m-3"]);
        assert_eq!(fixture.cold_ids(), ids(store.store()));
    });
}

// Requirement: Q1
#[test]
fn blocking_calls_share_the_queue_of_the_futures() {
    without_deadlock(|| {
        let (_fixture, store) = session();
        let runtime = runtime();
        let _entered = runtime.enter();
        let first = store.append(None, user("m-1"));
        store.store().append(None, user("m-2")).unwrap();
        let third = store.append(None, user("m-3"));
        store.store().append(None, user("m-4")).unwrap();
        assert_eq!(message_ids(store.store()), ["m-1", "m-2", "m-3", "m-4"]);
        runtime.block_on(async { (first.await.unwrap(), third.await.unwrap()) });
    });
}

// Requirement: Q1
#[test]
fn a_dropped_future_does_not_cancel_its_operation() {
    without_deadlock(|| {
        let (fixture, store) = session();
        runtime().block_on(async {
            drop(store.append(None, user("m-1")));
            store.flush().await.unwrap();
        });
        assert_eq!(fixture.cold_ids(), ["e-1"]);
    });
}

// Requirement: Q1, Q2, T2, T3
#[test]
fn a_move_sees_the_append_before_it_and_a_failure_stops_nothing() {
    without_deadlock(|| {
        let (_fixture, store) = session();
        let tree = store.tree();
        runtime().block_on(async {
            let first = tree.append(user("m-1"));
            let second = tree.append(user("m-2"));
            let unknown = tree.move_to(Some("e-9"));
            let back = tree.move_to(Some("e-1"));
            let invalid = tree.append(user(" "));
            let branch = tree.append(user("m-3"));
            let root = tree.move_to(None);
            let other = tree.append(user("m-4"));
            assert_eq!(first.await.unwrap().parent_id(), None);
            assert_eq!(second.await.unwrap().parent_id(), Some("e-1"));
            refused(unknown.await, Code::EntryNotFound);
            back.await.unwrap();
            refused(invalid.await, Code::InvalidMessage);
            assert_eq!(branch.await.unwrap().parent_id(), Some("e-1"));
            root.await.unwrap();
            assert_eq!(other.await.unwrap().parent_id(), None);
        });
        assert_eq!(tree.tree().leaf().as_deref(), Some("e-4"));
    });
}

// Requirement: S9
#[test]
fn a_factory_that_calls_back_through_a_future_is_an_error() {
    without_deadlock(|| {
        let fixture = Fixture::new();
        let slot: Arc<Mutex<Option<AsyncStore<ScriptedOps>>>> = Arc::default();
        let seen = Arc::clone(&slot);
        let mut ids_of_entries = counter("e");
        let options = options().with_ids(move || {
            if let Some(store) = seen.lock().unwrap().take() {
                assert_eq!(store.store().entries().len(), 0);
                drop(store.append(None, user("inner")));
            }
            ids_of_entries()
        });
        let store =
            AsyncStore::new(Store::create_with(fixture.ops.clone(), fixture.path(), options).unwrap());
        *slot.lock().unwrap() = Some(store.clone());
        runtime().block_on(async {
            refused(store.append(None, user("m-1")).await, Code::FactoryFailed);
            assert_eq!(store.append(None, user("m-2")).await.unwrap().id(), "e-2");
        });
        assert_eq!(fixture.cold_ids(), ["e-2"]);
    });
}

// Requirement: Q1
#[test]
fn no_operation_is_lost_where_one_drain_ends_as_the_next_begins() {
    without_deadlock(|| {
        let (_fixture, store) = session();
        let runtime = runtime();
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let tree = store.tree();
                runtime.spawn(async move {
                    for _ in 0..5_000 {
                        tree.move_to(None).await.unwrap();
                    }
                })
            })
            .collect();
        for caller in callers {
            runtime.block_on(caller).unwrap();
        }
    });
}

// Requirement: Q1
#[test]
fn all_that_waits_for_one_store_is_run_by_one_blocking_thread() {
    without_deadlock(|| {
        let fixture = Fixture::new();
        let (go_on, gate) = mpsc::channel::<()>();
        let threads = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut next_id) = (threads.clone(), counter("e"));
        let options = options().with_ids(move || {
            let mut seen = seen.lock().unwrap();
            if seen.is_empty() {
                gate.recv().unwrap();
            }
            seen.push(std::thread::current().id());
            next_id()
        });
        let store =
            AsyncStore::new(Store::create_with(fixture.ops.clone(), fixture.path(), options).unwrap());
        runtime().block_on(async {
            let appends: Vec<_> =
                (0..4).map(|number| store.append(None, user(&format!("m-{number}")))).collect();
            go_on.send(()).unwrap();
            for append in appends {
                append.await.unwrap();
            }
        });
        let threads = threads.lock().unwrap();
        assert_eq!(threads.len(), 4);
        assert!(threads.iter().all(|thread| *thread == threads[0]));
    });
}

// Requirement: Q1
#[test]
fn two_wrappers_of_one_store_need_one_blocking_thread_only() {
    without_deadlock(|| {
        let (_fixture, first) = session();
        let second = AsyncStore::new(first.store().clone());
        narrow_runtime().block_on(async {
            for _ in 0..10 {
                let appends = [first.append(None, user("a")), second.append(None, user("b"))];
                let last = first.append(None, user("c"));
                for append in appends {
                    append.await.unwrap();
                }
                last.await.unwrap();
            }
        });
        assert_eq!(message_ids(first.store()), ["a", "b", "c"].repeat(10));
    });
}

// Requirement: Q1
#[test]
fn a_runtime_shut_down_while_an_operation_waits_leaves_the_store_usable() {
    without_deadlock(|| {
        let (fixture, store) = session();
        let runtime = narrow_runtime();
        let (go_on, gate) = mpsc::channel::<()>();
        let (begun, occupied) = mpsc::channel();
        runtime.spawn_blocking(move || {
            begun.send(()).unwrap();
            gate.recv().unwrap_or_default();
        });
        occupied.recv().unwrap();
        let waiting = {
            let _entered = runtime.enter();
            store.append(None, user("m-1"))
        };
        runtime.shutdown_background();
        drop(go_on);
        let other = self::runtime();
        // The runtime may run what waits or drop it; the answer says which.
        let mut expected = vec!["m-2", "m-3"];
        match other.block_on(waiting) {
            Ok(_) => expected.insert(0, "m-1"),
            Err(error) => assert_eq!(error.code(), Code::Io),
        }
        store.store().append(None, user("m-2")).unwrap();
        other.block_on(async { store.append(None, user("m-3")).await }).unwrap();
        assert_eq!(message_ids(store.store()), expected);
        assert_eq!(fixture.cold_ids(), ids(store.store()));
    });
}

// Requirement: Q1
#[test]
fn a_call_on_a_runtime_that_is_gone_is_refused() {
    without_deadlock(|| {
        let (_fixture, store) = session();
        let gone = runtime();
        let handle = gone.handle().clone();
        gone.shutdown_background();
        let refusal = {
            let _entered = handle.enter();
            store.append(None, user("m-1"))
        };
        refused(runtime().block_on(refusal), Code::Io);
        store.store().append(None, user("m-2")).unwrap();
        assert_eq!(message_ids(store.store()), ["m-2"]);
    });
}

// Requirement: Q1
#[test]
fn a_call_outside_of_any_runtime_panics_and_takes_no_place() {
    without_deadlock(|| {
        let (_fixture, store) = session();
        let outside = catch_unwind(AssertUnwindSafe(|| drop(store.append(None, user("m-1")))));
        assert!(outside.is_err());
        store.store().append(None, user("m-2")).unwrap();
        runtime().block_on(async { store.append(None, user("m-3")).await }).unwrap();
        assert_eq!(message_ids(store.store()), ["m-2", "m-3"]);
    });
}
