//! What the reference answers to single disturbances where the general promises leave several answers open.

use std::sync::{Arc, Mutex};

use session_harness::call::{Refusal, Reply};
use session_harness::fault::Plan;
use session_harness::inject::Injector;
use session_harness::outsider::Outsider;
use session_harness::scenario::{self, Action, Run, Scenario};
use session_harness::subject::REFERENCE;
use session_harness::world::{Backend, World};
use session_tree::file_ops::{Access, FileOps, Lock};
use session_tree::{Errno, Message, Options, Store, Support};

const CHAT: &[u8] = include_bytes!("../../corpus/sessions/plain-chat.jsonl");
const NEW_SESSION: Scenario =
    Scenario { name: "create", action: Action::Create, session: None, mode: 0o600, base: "" };
const CHAT_SESSION: Scenario =
    Scenario { name: "chat", action: Action::Append, session: Some(CHAT), mode: 0o600, base: "" };

fn disturbed(action: Action, plan: &str) -> Run {
    let scenario = match action {
        Action::Create => NEW_SESSION,
        _ => Scenario { action, ..CHAT_SESSION },
    };
    let run =
        scenario::run(REFERENCE, Backend::Simulated, &scenario, &plan.parse::<Plan>().unwrap()).unwrap();
    assert!(run.fired.iter().all(|&fired| fired > 0), "a fault of `{plan}` did not strike: {:?}", run.fired);
    run
}

/// The refusal of the `nth` call.
fn refusal(run: &Run, nth: usize) -> &Refusal {
    match &run.replies[nth - 1].1 {
        Reply::Refused(refusal) => refusal,
        other => panic!("call {nth} answered {other:?}"),
    }
}

fn is_ok(run: &Run, nth: usize) -> bool {
    matches!(run.replies[nth - 1].1, Reply::Ok(_))
}

/// Code, error number, stage, and whether the store is poisoned.
fn told(refusal: &Refusal) -> (&str, Option<&str>, Option<&str>, bool) {
    (&refusal.code, refusal.errno.as_deref(), refusal.stage.as_deref(), refusal.poisoned)
}

// Requirement: C4
#[test]
fn an_error_of_close_is_a_failure_of_its_stage_and_a_retry_works() {
    let run = disturbed(Action::Append, "close@temporary#1 in append#1 = EIO after, once");
    assert_eq!(told(refusal(&run, 1)), ("SESSION_IO", Some("EIO"), Some("C4"), false));
    assert!(is_ok(&run, 2));
}

// Requirement: C3
#[test]
fn an_append_whose_write_was_short_is_whole_on_disk_when_it_is_acknowledged() {
    for span in ["once", "3 times", "for ever"] {
        let mut world = World::new(Backend::Simulated, "session.jsonl").unwrap();
        world.outsider().write_file(world.session(), CHAT).unwrap();
        let plan = format!("write@temporary#1 in append#1 = short, {span}");
        let injector = Injector::new(&plan.parse().unwrap(), |_| {});
        let store = Store::load_with(world.process(&injector), world.session(), Options::new()).unwrap();
        injector.begin("append", 1);
        let entry = store.append(None, Message::user("m", "x")).unwrap();
        assert!(injector.fired()[0] > 0);
        let file = world.outsider().read(world.session()).unwrap();
        assert_eq!(file, [CHAT, entry.to_json().as_bytes(), b"\n"].concat(), "{span}");
    }
}

// Requirement: C5, C21
#[test]
fn a_temporary_that_was_replaced_is_noticed_before_a_marker_is_made() {
    let run = disturbed(Action::Append, "stat@temporary#1 in append#1 = actor plant-temporary, once");
    assert_eq!(told(refusal(&run, 1)), ("SESSION_FILE_CHANGED", None, Some("C5"), false));
    assert_eq!(run.violations, []);
}

// Requirement: C9, C20
#[test]
fn a_stranger_in_place_of_the_new_generation_is_no_success_and_is_left_alone() {
    // The looks at the path: two of C1, then C5, C7, C9.
    let run = disturbed(Action::Append, "stat@session#5 in append#1 = actor replace-file, once");
    assert_eq!(told(refusal(&run, 1)), ("SESSION_ROLLBACK_FAILED", None, Some("C9"), true));
    assert_eq!(run.violations, []);
}

// Requirement: C20.copy, C20
#[test]
fn where_the_marker_cannot_be_renamed_back_a_copy_takes_its_place_and_the_store_goes_on() {
    let plan = "fsync@root#1 in append#1 = EIO before, once; \
                rename@marker>session#1 in append#1 = EIO before, for ever";
    let run = disturbed(Action::Append, plan);
    assert_eq!(told(refusal(&run, 1)), ("SESSION_IO", Some("EIO"), Some("C10"), false));
    assert!(is_ok(&run, 2));
    assert_eq!(run.violations, []);
}

// Requirement: C26, C26.no-directory-sync
#[test]
fn a_directory_that_cannot_be_synced_is_told_from_one_whose_fsync_failed() {
    for errno in ["EINVAL", "ENOTSUP"] {
        let run = disturbed(Action::Append, &format!("fsync@root#1 in append#1 = {errno} before, once"));
        assert!(is_ok(&run, 1), "{errno}: {:?}", run.replies[0]);
    }
    for errno in ["EPERM", "EACCES", "EIO", "EINTR"] {
        let run = disturbed(Action::Append, &format!("fsync@root#1 in append#1 = {errno} before, once"));
        assert_eq!(told(refusal(&run, 1)), ("SESSION_IO", Some(errno), Some("C10"), false));
    }
}

// Requirement: C26, C26.no-directory-sync
#[test]
fn a_store_says_that_its_directory_cannot_be_synced() {
    let mut world = World::new(Backend::Simulated, "session.jsonl").unwrap();
    let Outsider::Simulated(disk) = world.outsider().clone() else { panic!() };
    let store =
        Store::create_with(world.process(&Injector::watching()), world.session(), Options::new()).unwrap();
    assert_eq!(store.directory_sync(), Support::Supported);
    disk.update_options(|options| options.directory_sync = Err(Errno::EINVAL));
    store.append(None, Message::user("m", "x")).unwrap();
    assert_eq!(store.directory_sync(), Support::Unsupported);
}

// Requirement: S4
#[test]
fn a_look_without_a_birth_time_shows_the_same_file() {
    let mut world = World::new(Backend::Simulated, "session.jsonl").unwrap();
    let Outsider::Simulated(disk) = world.outsider().clone() else { panic!() };
    let store =
        Store::create_with(world.process(&Injector::watching()), world.session(), Options::new()).unwrap();
    for birth_times in [false, true] {
        disk.update_options(|options| options.birth_times = birth_times);
        store.append(None, Message::user("m", "x")).unwrap();
    }
    assert_eq!(store.entries().len(), 2);
}

// Requirement: S2
#[test]
fn a_marker_that_appears_while_the_file_is_read_is_seen_before_the_session_is_shown() {
    let run = disturbed(Action::Load, "read@session#1 in load#1 = actor plant-marker, once");
    assert_eq!(refusal(&run, 1).code, "SESSION_ROLLBACK_FAILED");
}

// Requirement: S2, S4
#[test]
fn a_file_that_is_replaced_while_it_is_read_is_read_again() {
    let run = disturbed(Action::Load, "read@session#1 in load#1 = actor replace-file, once");
    let Reply::Ok(answer) = &run.replies[0].1 else { panic!("{:?}", run.replies[0]) };
    assert_eq!(answer.entries.as_deref(), Some(&[][..]), "the stranger's session has no entry");
}

// Requirement: C11
#[test]
fn a_marker_whose_removal_fails_twice_is_removed_at_the_third_try() {
    let run = disturbed(Action::Append, "unlink@marker#1 in append#1 = EIO before, 2 times");
    assert!(is_ok(&run, 1), "{:?}", run.replies[0]);
}

// Requirement: S8, C4
#[test]
fn the_new_generation_is_locked_from_before_it_has_its_name_until_the_answer() {
    let mut world = World::new(Backend::Simulated, "session.jsonl").unwrap();
    world.outsider().write_file(world.session(), CHAT).unwrap();
    let other = world.process(&Injector::watching());
    let (root, free): (_, Arc<Mutex<Vec<bool>>>) = (world.root().to_owned(), Arc::default());
    let seen = Arc::clone(&free);
    let try_to_lock = move |_| {
        let dir = other.open_dir(&root).unwrap();
        let file = other.open(&dir, "session.jsonl".as_ref(), Access::Read).unwrap();
        seen.lock().unwrap().push(other.try_lock(&file, Lock::Shared).unwrap());
        other.unlock(&file);
    };
    let plan = "rename@temporary>session#1 in append#1 = actor chmod, once; \
                fsync@root#1 in append#1 = actor chmod, once; \
                fsync@root#2 in append#1 = actor chmod, once";
    let injector = Injector::new(&plan.parse().unwrap(), try_to_lock);
    let store = Store::load_with(world.process(&injector), world.session(), Options::new()).unwrap();
    injector.begin("append", 1);
    store.append(None, Message::user("m", "x")).unwrap();
    assert_eq!(*free.lock().unwrap(), [false; 3], "the old generation, then the new one twice");
    assert_eq!(world.held_locks(), 0);
}

// Requirement: C6, C21
#[test]
fn a_marker_that_is_there_before_ours_poisons_and_stays_as_it_is() {
    let run = disturbed(Action::Append, "link@session>marker#1 in append#1 = actor plant-marker, once");
    assert_eq!(told(refusal(&run, 1)), ("SESSION_ROLLBACK_FAILED", None, Some("C6"), true));
    assert_eq!(run.violations, []);
    assert!(!run.race_window);
}

// Requirement: S3
#[test]
fn a_directory_that_was_replaced_is_noticed_by_every_later_append() {
    let run = disturbed(Action::Append, "lock@session#1 in append#1 = actor replace-root, once");
    for nth in 1..=3 {
        assert_eq!(told(refusal(&run, nth)), ("SESSION_ROOT_CHANGED", None, Some("C1"), false));
    }
    assert_eq!(run.violations, []);
}
