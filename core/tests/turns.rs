//! Operations of a store and its trees take their turns in the order of the calls.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use session_tree::file_ops::OsFileOps;
use session_tree::{Message, Options, Store};

// Requirement: Q1, Q2
#[test]
fn a_move_that_is_called_after_an_append_sees_its_entry() {
    let directory = tempfile::tempdir().unwrap();
    let (began, is_under_way) = mpsc::channel();
    let (go, may_end) = mpsc::channel::<()>();
    let options = Options::new().with_ids(move || {
        began.send(()).unwrap();
        may_end.recv().unwrap();
        "a".to_owned()
    });
    let path = directory.path().join("session.jsonl");
    let store = Store::create_with(OsFileOps::new(), path, options).unwrap();
    let (appending, moving) = (store.tree(), store.tree());
    let append = thread::spawn(move || appending.append(Message::user("m", "x")));
    is_under_way.recv().unwrap();
    let (answered, answer) = mpsc::channel();
    let mover = thread::spawn(move || {
        answered.send(moving.move_to(Some("a"))).unwrap();
        moving.leaf()
    });
    // A move that does not queue answers by now, and wrongly, as the entry is not there yet.
    let early = answer.recv_timeout(Duration::from_millis(500));
    go.send(()).unwrap();
    append.join().unwrap().unwrap();
    assert_eq!(mover.join().unwrap().as_deref(), Some("a"));
    assert!(early.is_err(), "the move did not wait for the append: {early:?}");
}
