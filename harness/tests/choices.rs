//! What the reference store does where the contract leaves something open: each answer is found out by asking the
//! store, and is the one that the contract names for it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use session_harness::call::{Refusal, Reply};
use session_harness::disk::{CutOutcome, Disk, Options as DiskOptions, Process, Unsettled};
use session_harness::fault::{Actor, Fault, Kind, Op, Plan, Role, Site, Span};
use session_harness::inject::{Event, Injector, Outcome};
use session_harness::outsider::Outsider;
use session_harness::requirement::{self, Level};
use session_harness::scenario::{self, Run};
use session_harness::subject::REFERENCE;
use session_harness::suite::faults::SCENARIOS;
use session_harness::world::{Backend, World};
use session_tree::file_ops::{Access, FileOps, Lock};
use session_tree::{Code, Decoded, Errno, Error, Message, Options, Stage, Store, Support, decode};

/// The reference's answer, as the contract names it, is `seen`.
fn assert_answer(id: &str, seen: &str) {
    let requirement = requirement::find(id).unwrap_or_else(|| panic!("the contract does not have {id}"));
    let Level::Choice { reference, .. } = requirement.level else { panic!("{id} is no choice") };
    assert_eq!(seen, reference, "{id}");
}

// ---------------------------------------------------------------- the format

const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;
const MESSAGE: &str = r#"{"id":"m","role":"user","content":""}"#;

fn entry_of(message: &str) -> String {
    format!(r#"{{"type":"entry","version":1,"id":"e","parentId":null,"timestamp":"t","message":{message}}}"#)
}

fn call_with(arguments: &str) -> String {
    let call = format!(r#"{{"type":"toolCall","id":"c","name":"n","arguments":{arguments}}}"#);
    entry_of(&format!(r#"{{"id":"m","role":"assistant","content":[{call}]}}"#))
}

fn read(lines: &[&str]) -> Result<Decoded, Error> {
    decode((lines.join("\n") + "\n").into_bytes())
}

fn code_of(lines: &[&str]) -> Option<Code> {
    read(lines).err().map(|error| error.code())
}

// Requirement: F9.bom
#[test]
fn a_byte_order_mark_is_no_json() {
    for lines in [[&format!("\u{feff}{HEADER}"), ""], [HEADER, &format!("\u{feff}{}", entry_of(MESSAGE))]] {
        let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(code_of(&lines), Some(Code::InvalidJson), "{lines:?}");
    }
    assert_answer("F9.bom", "refused");
}

// Requirement: F9.duplicate-names
#[test]
fn repeated_names_have_the_code_of_their_place() {
    let header = HEADER.replace(r#""id":"s""#, r#""id":"s","id":"s""#);
    assert_eq!(code_of(&[&header]), Some(Code::InvalidHeader));
    for (entry, code) in [
        (entry_of(MESSAGE).replace(r#""id":"e""#, r#""id":"e","id":"e""#), Code::InvalidRecord),
        (entry_of(&MESSAGE.replace(r#""id":"m""#, r#""id":"m","id":"m""#)), Code::InvalidMessage),
        (call_with(r#"{"a":{"b":1,"b":1}}"#), Code::InvalidMessage),
    ] {
        assert_eq!(code_of(&[HEADER, &entry]), Some(code), "{entry}");
    }
    assert_answer("F9.duplicate-names", "refused");
}

// Requirement: F9.surrogates
#[test]
fn half_a_surrogate_has_the_code_of_its_place() {
    let half = |text: &str, whole: &str| text.replacen(whole, r#""\ud800""#, 1);
    assert_eq!(code_of(&[&half(HEADER, r#""s""#)]), Some(Code::InvalidHeader));
    for (entry, code) in [
        (half(&entry_of(MESSAGE), r#""e""#), Code::InvalidRecord),
        (half(&entry_of(MESSAGE), r#""m""#), Code::InvalidMessage),
        (call_with(r#"{"a":"\udc00"}"#), Code::InvalidMessage),
    ] {
        assert_eq!(code_of(&[HEADER, &entry]), Some(code), "{entry}");
    }
    assert_answer("F9.surrogates", "refused");
}

// Requirement: F9.numbers
#[test]
fn numbers_beyond_a_double_keep_every_digit_over_a_commit() {
    let written = r#"{"a":12345678901234567890,"b":1.10,"c":-0,"d":1e999}"#;
    let line = call_with(written);
    let fixture = Fixture::with(format!("{HEADER}\n{line}\n"));
    let store = fixture.load();
    store.append(None, Message::user("m-2", "again")).unwrap();
    let reloaded = fixture.load();
    let kept = reloaded.entries()[0].to_json() == line;
    assert_answer("F9.numbers", if kept { "kept" } else { "rounded" });
}

// Requirement: F9.version
#[test]
fn a_version_counts_by_its_decimal_value() {
    let versions = ["1.0", "1e0", "10e-1", "0.1e1"];
    let accepts = |text: &str| read(&[&HEADER.replace("\"version\":1", &format!("\"version\":{text}"))]);
    assert!(versions.iter().all(|version| accepts(version).is_ok()));
    for other in ["1.5", "2", "\"1\"", "10e0"] {
        assert_eq!(accepts(other).unwrap_err().code(), Code::UnsupportedVersion, "{other}");
    }
    assert_answer("F9.version", "accepted");
}

// Requirement: F9.depth
#[test]
fn arguments_may_be_as_deep_as_a_line_is_long() {
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(32_000), "]".repeat(32_000));
    let fixture = Fixture::with(format!("{HEADER}\n{}\n", call_with(&deep)));
    fixture.load().append(None, Message::user("m-2", "and on")).unwrap();
    assert_eq!(fixture.load().entries().len(), 2);
    assert_answer("F9.depth", "unbounded");
}

// Requirement: R4.blank
#[test]
fn white_space_of_unicode_counts_as_nothing() {
    let refused = |blank: &str| {
        let code = code_of(&[HEADER, &entry_of(&MESSAGE.replace("\"m\"", &format!("\"{blank}\"")))]);
        assert!(code.is_none_or(|code| code == Code::InvalidMessage));
        code.is_some()
    };
    let answer = match ["\u{a0}", "\u{feff}", "\u{85}"].map(refused) {
        [true, true, true] => "unicode",
        [true, true, false] => "ecmascript",
        [false, false, false] => "ascii",
        other => panic!("neither of the answers: {other:?}"),
    };
    assert_answer("R4.blank", answer);
}

// ---------------------------------------------------------------- the store

const ROOT: &str = "/sessions";
const SESSION: &str = "/sessions/session.jsonl";
const NAME: &str = "session.jsonl";
const MARKER: &str = "session.jsonl.pify-session-recovery";

/// A simulated disk with a session on it.
struct Fixture(Disk);

impl Fixture {
    fn with(bytes: impl AsRef<[u8]>) -> Fixture {
        let disk = Disk::default();
        disk.mkdir(ROOT).unwrap();
        disk.write_file(SESSION, bytes).unwrap();
        disk.sync_all();
        Fixture(disk)
    }

    fn small() -> Fixture {
        Fixture::with(format!("{HEADER}\n{}\n", entry_of(MESSAGE)))
    }

    fn try_load(&self) -> Result<Store<Process>, Error> {
        Store::load_with(self.0.process(1), SESSION, Options::new())
    }

    fn load(&self) -> Store<Process> {
        self.try_load().unwrap()
    }

    fn mode(&self) -> u32 {
        self.0.look(SESSION).unwrap().mode
    }
}

fn append(store: &Store<Process>) -> Result<(), Error> {
    store.append(None, Message::user("m-2", "what now?")).map(drop)
}

/// A create on a disk of its own, under `plan`: what it did, and the disk as it was left.
fn create(plan: &Plan) -> (Vec<Event>, Disk) {
    let mut world = World::new(Backend::Simulated, NAME).unwrap();
    let Outsider::Simulated(disk) = world.outsider().clone() else { panic!("not a simulated disk") };
    disk.sync_all();
    let injector = Injector::new(plan, |_| {});
    let ops = world.process(&injector);
    injector.begin("create", 1);
    let options = Options::new().with_session_id("s").with_clock(|| "t".to_owned());
    drop(Store::create_with(ops.clone(), world.session(), options));
    world.kill(&ops);
    (injector.trace(), disk)
}

/// Whether nothing has the path, or a file of exactly the header, both now and after any power cut: whatever file the
/// path may name then has no byte that is not durable.
fn whole_or_nothing(disk: &Disk) -> bool {
    let holds_header = |disk: &Disk| {
        !disk.exists(SESSION) || disk.read_file(SESSION).unwrap() == format!("{HEADER}\n").into_bytes()
    };
    let Unsettled { directories, files, .. } = disk.unsettled();
    let mut named_after_a_cut = directories
        .iter()
        .flat_map(|directory| &directory.changes)
        .filter(|change| change.name.as_ref() == NAME)
        .filter_map(|change| change.now);
    let all_durable = named_after_a_cut.all(|id| files.iter().all(|file| file.id != id));
    holds_header(disk) && holds_header(&disk.after_cut(&CutOutcome::default())) && all_durable
}

// Requirement: S1, S1.cut
#[test]
fn a_create_that_is_cut_off_anywhere_leaves_the_whole_header_or_nothing() {
    let (events, finished) = create(&Plan::default());
    assert!(finished.exists(SESSION) && whole_or_nothing(&finished));
    let mut seen = [false; 2];
    for event in &events {
        for kind in [Kind::KillBefore, Kind::KillAfter] {
            let site =
                Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() };
            let (_, disk) = create(&Plan(vec![Fault { site, kind, span: Span::Times(1) }]));
            assert!(whole_or_nothing(&disk), "{kind} {event}");
            seen[usize::from(disk.exists(SESSION))] = true;
        }
    }
    assert_eq!(seen, [true, true], "both outcomes occur");
    let written_at_the_path = Disk::default();
    written_at_the_path.mkdir(ROOT).unwrap();
    written_at_the_path.sync_all();
    written_at_the_path.write_file(SESSION, format!("{HEADER}\n")).unwrap();
    assert!(!whole_or_nothing(&written_at_the_path), "a header that was not synced first is noticed");
    assert_answer("S1.cut", "whole-or-nothing");
}

// Requirement: S4, S4.rewrite
#[test]
fn a_rewrite_in_place_of_equal_size_is_seen() {
    let fixture = Fixture::small();
    let store = fixture.load();
    let before = fixture.0.look(SESSION).unwrap();
    Outsider::simulated(fixture.0.clone()).act(Actor::Rewrite, Path::new(SESSION));
    let after = fixture.0.look(SESSION).unwrap();
    assert_eq!((before.inode, before.size), (after.inode, after.size));
    let answer = match append(&store) {
        Ok(()) => "unseen",
        Err(error) => {
            assert_eq!(error.code(), Code::FileChanged);
            "seen"
        }
    };
    assert_answer("S4.rewrite", answer);
}

/// A commit of process 2 that got as far as its marker, and the file that holds its lock.
fn commit_in_flight(disk: &Disk) -> (Process, impl FnMut() + use<>) {
    let other = disk.process(2);
    let dir = other.open_dir(Path::new(ROOT)).unwrap();
    let file = other.open(&dir, NAME.as_ref(), Access::Read).unwrap();
    assert_eq!(other.try_lock(&file, Lock::Exclusive), Ok(true));
    other.link(&dir, NAME.as_ref(), MARKER.as_ref()).unwrap();
    let ops = other.clone();
    let mut held = Some((dir, file));
    let end = move || {
        if let Some((dir, file)) = held.take() {
            ops.unlink(&dir, MARKER.as_ref()).unwrap();
            ops.unlock(&file);
        }
    };
    (other, end)
}

// Requirement: S8.wait, V2
#[test]
fn a_load_waits_for_a_commit_in_flight_but_not_for_a_dead_one() {
    let fixture = Fixture::small();
    let (_other, mut end) = commit_in_flight(&fixture.0);
    let pauses = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&pauses);
    fixture.0.on_pause(move |_| {
        *counted.lock().unwrap() += 1;
        if *counted.lock().unwrap() == 3 {
            end();
        }
    });
    let answer = if fixture.try_load().is_ok() { "waits" } else { "refused" };
    assert_eq!(*pauses.lock().unwrap(), 3);
    assert_answer("S8.wait", answer);

    let fixture = Fixture::small();
    let (other, _end) = commit_in_flight(&fixture.0);
    let refused = fixture.try_load().unwrap_err();
    assert_eq!((refused.code(), refused.in_flight()), (Code::RollbackFailed, true));
    fixture.0.kill(other.pid());
    let refused = fixture.try_load().unwrap_err();
    assert_eq!((refused.code(), refused.in_flight()), (Code::RollbackFailed, false));
}

/// The scenario of this name, with no fault but its own.
fn run_of(name: &str) -> Run {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
    let run = scenario::run(REFERENCE, Backend::Simulated, scenario, &Plan::default()).unwrap();
    assert_eq!(run.violations, []);
    run
}

fn refusal(run: &Run) -> &Refusal {
    match &run.replies[0].1 {
        Reply::Refused(refusal) => refusal,
        other => panic!("the disturbed call was answered with {other:?}"),
    }
}

// Requirement: C11, C11.code
#[test]
fn a_marker_that_stays_and_is_rolled_back_is_answered_with_its_first_cause() {
    let run = run_of("roll-back-at-the-end");
    let refusal = refusal(&run);
    assert!(!refusal.poisoned);
    let answer = match refusal.code.as_str() {
        "SESSION_IO" => "first-cause",
        "SESSION_ROLLBACK_FAILED" => "rollback-failed",
        other => panic!("answered {other}"),
    };
    assert_eq!((refusal.errno.as_deref(), refusal.stage.as_deref()), (Some("EIO"), Some(Stage::C11.id())));
    assert_answer("C11.code", answer);
}

// Requirement: C20, C20.copy
#[test]
fn an_old_generation_whose_marker_cannot_be_renamed_is_copied_back() {
    let run = run_of("roll-back-by-copy");
    let is_restored = |event: &Event| {
        event.op == Op::Rename && event.target.from == Role::Restore && event.outcome == Outcome::Done
    };
    let answer = if run.trace.iter().any(is_restored) { "copies" } else { "gives-up" };
    assert!(!refusal(&run).poisoned);
    assert_answer("C20.copy", answer);
}

// Requirement: C25, C25.mode
#[test]
fn permission_bits_are_carried_but_never_to_another_owner_or_group() {
    let fixture = Fixture::small();
    fixture.0.chmod(SESSION, 0o640).unwrap();
    append(&fixture.load()).unwrap();
    let answer = if fixture.mode() == 0o640 { "carried" } else { "private" };
    assert_answer("C25.mode", answer);

    for (owner, group) in [(0, 7), (7, 0)] {
        let fixture = Fixture::small();
        fixture.0.chown(SESSION, owner, group).unwrap();
        fixture.0.chmod(SESSION, 0o664).unwrap();
        append(&fixture.load()).unwrap();
        assert_eq!(fixture.mode(), 0o600, "owner {owner}, group {group}");
    }
}

fn disk_whose_directories_answer(errno: Errno) -> Fixture {
    let fixture = Fixture::small();
    fixture.0.update_options(|options: &mut DiskOptions| options.directory_sync = Err(errno));
    fixture
}

// Requirement: C26, C26.no-directory-sync
#[test]
fn a_file_system_without_directory_fsync_is_told_from_one_whose_fsync_fails() {
    for errno in [Errno::EINVAL, Errno::ENOTSUP] {
        let fixture = disk_whose_directories_answer(errno);
        let store = fixture.load();
        assert_eq!(store.directory_sync(), Support::Supported);
        let answer = if append(&store).is_ok() { "counts-as-done" } else { "fails" };
        assert_eq!(store.directory_sync(), Support::Unsupported);
        assert_answer("C26.no-directory-sync", answer);
    }
    for errno in [Errno::EPERM, Errno::EACCES, Errno::EIO] {
        let fixture = disk_whose_directories_answer(errno);
        let store = fixture.load();
        let error = append(&store).unwrap_err();
        assert_eq!((error.code(), error.errno(), error.stage()), (Code::Io, Some(errno), Some(Stage::C10)));
        assert_eq!(store.directory_sync(), Support::Supported);
        assert_eq!(fixture.load().entries().len(), 1);
    }
}
