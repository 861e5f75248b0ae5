//! The active leaf: where it starts, how it moves, and what it shows.

mod support;

use session_tree::{Code, Errno, Message, Store};

use support::scripted::{Op, Role, What, at};
use support::{Fixture, ids_of, refused, user};

fn message_ids(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(Message::id).collect()
}

// Requirement: T1, T4
#[test]
fn an_empty_session_has_no_leaf_and_its_first_append_is_a_root() {
    let fixture = Fixture::new();
    let tree = fixture.create().unwrap().tree();
    assert_eq!(tree.leaf(), None);
    assert!(tree.active_entries().is_empty() && tree.active_messages().is_empty());
    assert_eq!(tree.append(user("m-1")).unwrap().parent_id(), None);
}

// Requirement: T1
#[test]
fn a_tree_starts_at_the_last_stored_entry_of_whatever_branch() {
    let (fixture, store) = Fixture::with_entries(2);
    store.append(Some("e-1"), user("branch")).unwrap();
    for tree in [store.tree(), fixture.load().unwrap().tree()] {
        assert_eq!(tree.leaf().as_deref(), Some("e-3"));
        assert_eq!(ids_of(&tree.active_entries()), ["e-1", "e-3"]);
    }
}

// Requirement: T2, T5
#[test]
fn a_move_changes_no_byte_and_makes_no_call() {
    let (fixture, store) = Fixture::with_entries(3);
    let (before, tree) = (fixture.bytes(), store.tree());
    fixture.ops.forget();
    tree.move_to(Some("e-1")).unwrap();
    assert_eq!(ids_of(&tree.active_entries()), ["e-1"]);
    tree.move_to(None).unwrap();
    assert_eq!(tree.leaf(), None);
    assert!(tree.active_entries().is_empty());
    assert_eq!(fixture.ops.trace(), []);
    assert_eq!(fixture.bytes(), before);
    assert_eq!(store.entries().len(), 3);
}

// Requirement: T2
#[test]
fn a_move_to_an_unknown_entry_is_refused_and_the_leaf_stays() {
    let (_fixture, store) = Fixture::with_entries(2);
    let tree = store.tree();
    for unknown in ["e-3", "", " ", "E-1", "m-1", "s"] {
        refused(tree.move_to(Some(unknown)), Code::EntryNotFound);
        assert_eq!(tree.leaf().as_deref(), Some("e-2"));
    }
}

// Requirement: T3, T5
#[test]
fn branches_keep_what_is_off_the_active_path() {
    let (fixture, store) = Fixture::with_entries(3);
    let tree = store.tree();
    let old_leaf = store.entries()[2].clone();
    tree.move_to(Some("e-1")).unwrap();
    assert_eq!(tree.append(user("branch")).unwrap().parent_id(), Some("e-1"));
    tree.move_to(None).unwrap();
    assert_eq!(tree.append(user("root")).unwrap().parent_id(), None);
    assert_eq!(message_ids(&tree.active_messages()), ["root"]);
    assert_eq!(fixture.cold_ids(), ["e-1", "e-2", "e-3", "e-4", "e-5"]);
    assert!(store.entries()[2].ptr_eq(&old_leaf));
    tree.move_to(Some("e-3")).unwrap();
    assert_eq!(message_ids(&tree.active_messages()), ["m-1", "m-2", "m-3"]);
}

// Requirement: T3, S5
#[test]
fn the_leaf_advances_only_after_the_commit() {
    let (fixture, store) = Fixture::with_entries(1);
    let tree = store.tree();
    fixture.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(Errno::EIO)));
    refused(tree.append(user("m-2")), Code::Io);
    assert_eq!(tree.leaf().as_deref(), Some("e-1"));
    refused(tree.append(user("")), Code::InvalidMessage);
    refused(tree.append(Message::tool_result("m", "c", "n", "", false)), Code::InvalidToolLinkage);
    assert_eq!(tree.leaf().as_deref(), Some("e-1"));
    assert_eq!(tree.append(user("m-3")).unwrap().parent_id(), Some("e-1"));
}

// Requirement: T4, S7
#[test]
fn a_projection_does_not_see_later_appends_or_moves() {
    let (_fixture, store) = Fixture::with_entries(2);
    let tree = store.tree();
    let (entries, messages) = (tree.active_entries(), tree.active_messages());
    tree.append(user("m-3")).unwrap();
    tree.move_to(None).unwrap();
    assert_eq!(ids_of(&entries), ["e-1", "e-2"]);
    assert_eq!(message_ids(&messages), ["m-1", "m-2"]);
    assert!(entries[0].ptr_eq(&store.entries()[0]));
}

// Requirement: T1, T2
#[test]
fn two_trees_have_leaves_of_their_own_and_a_clone_shares_one() {
    let (_fixture, store) = Fixture::with_entries(2);
    let (tree, other) = (store.tree(), store.tree());
    let same = tree.clone();
    tree.move_to(Some("e-1")).unwrap();
    assert_eq!(same.leaf().as_deref(), Some("e-1"));
    assert_eq!(other.leaf().as_deref(), Some("e-2"));
    assert_eq!(other.append(user("m-3")).unwrap().parent_id(), Some("e-2"));
    assert_eq!(same.append(user("m-4")).unwrap().parent_id(), Some("e-1"));
    assert_eq!(tree.leaf().as_deref(), Some("e-4"));
}

// Requirement: T3, L1, L2
#[test]
fn tool_results_are_judged_along_the_active_path() {
    use session_tree::{Arguments, Block};
    let (fixture, store) = Fixture::with_entries(1);
    let tree = store.tree();
    let call = Block::ToolCall { id: "c".into(), name: "n".into(), arguments: Arguments::default() };
    tree.append(Message::assistant("m-2", vec![call])).unwrap();
    let result = Message::tool_result("m-3", "c", "n", "done", false);
    tree.move_to(Some("e-1")).unwrap();
    refused(tree.append(result.clone()), Code::InvalidToolLinkage);
    tree.move_to(Some("e-2")).unwrap();
    tree.append(result.clone()).unwrap();
    refused(tree.append(result), Code::InvalidToolLinkage);
    assert_eq!(Store::load(fixture.path()).unwrap().entries().len(), 3);
}
