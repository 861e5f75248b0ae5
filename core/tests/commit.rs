//! The stages of create, load and commit, each with the failures that may strike it.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

use session_tree::file_ops::{Access, FileOps, Lock, OsDir, OsFile, OsFileOps};
use session_tree::{Code, Errno, Error, Stage, Store, Support};

use support::scripted::{Op, Role, ScriptedOps, What, actor, at, at_index};
use support::{Fixture, NAME, ids, inode_of, mode_of, refused, replace, set_mode, user};

/// Not ENOENT: of a look it is an answer, which nothing can tell from the truth.
const ERRNOS: [Errno; 3] = [Errno::EIO, Errno::EINTR, Errno::EEXIST];

fn append(store: &Store<ScriptedOps>, id: &str) -> session_tree::Result<session_tree::Entry> {
    store.append(None, user(id))
}

/// An append on a session of one entry, struck by `plan`.
struct Struck {
    fixture: Fixture,
    store: Store<ScriptedOps>,
    before: Vec<u8>,
    answer: session_tree::Result<session_tree::Entry>,
}

fn strike(plan: impl FnOnce(&Fixture)) -> Struck {
    let (fixture, store) = Fixture::with_entries(1);
    let before = fixture.bytes();
    plan(&fixture);
    let answer = append(&store, "m-2");
    Struck { fixture, store, before, answer }
}

impl Struck {
    /// Refused with this at this stage; memory and disk on the old generation, nothing left, the store usable.
    #[track_caller]
    fn leaves_the_old_generation(self, code: Code, errno: Option<Errno>, stage: Stage) -> Fixture {
        let Struck { fixture, store, before, answer } = self;
        let error = refused(answer, code);
        assert_eq!((error.errno(), error.stage()), (errno, Some(stage)), "{error}");
        assert!(!error.poisoned() && !error.in_flight(), "{error}");
        assert!(fixture.ops.fired() > 0, "the planned fault did not fire");
        assert_eq!(fixture.bytes(), before);
        assert!(fixture.is_tidy(), "{:?}", fixture.names());
        assert_eq!(ids(&store), ["e-1"]);
        assert_goes_on(&fixture, &store);
        fixture
    }

    /// Refused as not proved: a marker is kept, the store is poisoned, and a load refuses.
    #[track_caller]
    fn ends_poisoned(self) -> (Fixture, Error) {
        let Struck { fixture, store, answer, .. } = self;
        let error = refused(answer, Code::RollbackFailed);
        assert!(fixture.ops.fired() > 0, "the planned fault did not fire");
        assert!(error.poisoned(), "{error}");
        assert!(fixture.marker().symlink_metadata().is_ok(), "no marker is kept");
        assert_refuses_all(&fixture, &store, &error);
        (fixture, error)
    }

    /// As [`Struck::ends_poisoned`], with a stranger's file at the path and the old generation at the marker's name.
    #[track_caller]
    fn ends_poisoned_beside_a_stranger(self) {
        let before = self.before.clone();
        let (fixture, _) = self.ends_poisoned();
        assert_eq!(fixture.bytes(), b"stranger");
        assert_eq!(fs::read(fixture.marker()).unwrap(), before);
        assert_eq!(fixture.names().len(), 2, "{:?}", fixture.names());
    }

    /// Acknowledged, on disk, and nothing left beside it.
    #[track_caller]
    fn succeeds(self) -> Fixture {
        let Struck { fixture, store, answer, .. } = self;
        assert_eq!(answer.unwrap().id(), "e-2");
        assert!(fixture.ops.fired() > 0, "the planned fault did not fire");
        assert!(fixture.is_tidy(), "{:?}", fixture.names());
        assert_eq!(fixture.cold_ids(), ["e-1", "e-2"]);
        assert_goes_on(&fixture, &store);
        fixture
    }
}

/// The next append works and a cold load shows all that memory shows.
#[track_caller]
fn assert_goes_on(fixture: &Fixture, store: &Store<ScriptedOps>) {
    fixture.ops.forget();
    append(store, "m-next").unwrap();
    assert_eq!(fixture.cold_ids(), ids(store));
    assert!(fixture.is_tidy(), "{:?}", fixture.names());
}

#[track_caller]
fn assert_refuses_all(fixture: &Fixture, store: &Store<ScriptedOps>, error: &Error) {
    fixture.ops.forget();
    let names = fixture.names();
    let again = refused(append(store, "m-3"), Code::RollbackFailed);
    assert_eq!(again.to_string(), error.to_string());
    assert_eq!(refused(store.flush(), Code::RollbackFailed).to_string(), error.to_string());
    assert_eq!(fixture.ops.trace(), [], "a poisoned store touched the disk");
    assert_eq!(fixture.names(), names);
    // What needs no disk still works.
    assert_eq!(ids(store), ["e-1"]);
    store.tree().move_to(Some("e-1")).unwrap();
    let load = refused(fixture.load(), Code::RollbackFailed);
    assert!(!load.in_flight() && !load.poisoned(), "{load}");
}

// Requirement: C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C22, B1
#[test]
fn a_commit_makes_the_calls_of_its_stages_in_order() {
    let (fixture, store) = Fixture::with_entries(1);
    append(&store, "m-2").unwrap();
    let changes: Vec<_> = fixture
        .ops
        .trace()
        .into_iter()
        .filter(|(op, _)| {
            !matches!(op, Op::StatAt | Op::StatPath | Op::Stat | Op::NameLimit | Op::TryLock | Op::Open)
        })
        .collect();
    assert_eq!(
        changes,
        [
            (Op::CreateNew, Role::Temporary),
            (Op::WriteAt, Role::Temporary),
            (Op::Sync, Role::Temporary),
            (Op::Close, Role::Temporary),
            (Op::Link, Role::Marker),
            (Op::Rename, Role::Temporary),
            (Op::SyncDir, Role::Directory),
            (Op::Unlink, Role::Marker),
            (Op::SyncDir, Role::Directory),
        ]
    );
    assert_eq!(fixture.descriptors(), 2, "a store holds its directory and its generation");
    drop(store);
    assert_eq!(fixture.descriptors(), 0);
}

/// Strikes each call of an append once, in turn, and judges what is left.
fn sweep_of_append(what: fn(Errno) -> What) {
    let calls = {
        let (fixture, store) = Fixture::with_entries(1);
        append(&store, "m-2").unwrap();
        fixture.ops.calls()
    };
    assert!(calls > 20);
    for errno in ERRNOS {
        for index in 0..calls {
            let struck = strike(|fixture| fixture.ops.plan(at_index(index, what(errno))));
            let call = struck.fixture.ops.trace()[index];
            judge(struck, &format!("{errno} at call {index}, {call:?}"));
        }
    }
}

/// What must hold after any single fault.
fn judge(struck: Struck, at: &str) {
    let Struck { fixture, store, before, answer } = struck;
    assert_eq!(fixture.ops.fired(), 1, "{at}");
    fixture.ops.forget();
    let strays = fixture.names().iter().filter(|name| name.to_string_lossy().contains("-session-")).count();
    match answer {
        Ok(_) => assert_eq!(fixture.cold_ids(), ["e-1", "e-2"], "{at}"),
        Err(error) if error.poisoned() => {
            assert_eq!(error.code(), Code::RollbackFailed, "{at}: {error}");
            assert!([fixture.path(), fixture.marker()].iter().any(|kept| fs::read(kept).unwrap() == before));
            assert_refuses_all(&fixture, &store, &error);
            return;
        }
        Err(error) => {
            assert!(error.stage().is_some(), "{at}: {error}");
            assert_eq!(fixture.bytes(), before, "{at}: {error}");
            // A temporary whose identity was never learnt stays (requirement C2).
            assert!(strays == 0 || error.stage() == Some(Stage::C2), "{at}: {error}");
        }
    }
    assert_eq!(fixture.cold_ids(), ids(&store), "{at}");
    assert_eq!(fixture.descriptors(), 2, "{at}");
    append(&store, "m-3").unwrap();
    assert_eq!(fixture.cold_ids(), ids(&store), "{at}");
    drop(store);
    assert_eq!(fixture.descriptors(), 0, "{at}");
}

// Requirement: C20, C21, C22, S5
#[test]
fn no_single_failure_before_its_effect_breaks_a_promise() {
    sweep_of_append(What::Before);
}

// Requirement: C20, C21, C22, S5
#[test]
fn no_single_failure_after_its_effect_breaks_a_promise() {
    sweep_of_append(What::After);
}

// Requirement: C20, C22
#[test]
fn a_kind_of_call_that_fails_for_ever_loses_no_acknowledged_entry() {
    let calls = {
        let (fixture, store) = Fixture::with_entries(1);
        append(&store, "m-2").unwrap();
        let mut calls = fixture.ops.trace();
        calls.dedup();
        calls
    };
    for (what, nth) in
        [(What::Before as fn(Errno) -> What, 1), (What::Before, 2), (What::After, 1), (What::After, 2)]
    {
        for &(op, role) in &calls {
            let struck =
                strike(|fixture| fixture.ops.plan(at(op, role, what(Errno::EIO)).nth(nth).for_ever()));
            let Struck { fixture, store, before, answer } = struck;
            fixture.ops.forget();
            let at = format!("{op:?} {role:?} from the {nth}th");
            let current = fs::read(fixture.path()).unwrap();
            match answer {
                Ok(_) => assert_eq!(fixture.cold_ids(), ["e-1", "e-2"], "{at}"),
                Err(error) if error.poisoned() => {
                    assert!(current == before || fs::read(fixture.marker()).unwrap() == before, "{at}");
                }
                Err(error) => {
                    assert_eq!(current, before, "{at}: {error}");
                    append(&store, "m-3").unwrap();
                }
            }
            drop(store);
            assert_eq!(fixture.descriptors(), 0, "{at}");
        }
    }
}

// Requirement: C1
#[test]
fn a_marker_at_the_first_look_is_refused_without_poison() {
    let (fixture, store) = Fixture::with_entries(1);
    fs::write(fixture.marker(), "left by a crash").unwrap();
    let error = refused(append(&store, "m-2"), Code::RollbackFailed);
    assert_eq!((error.stage(), error.poisoned()), (Some(Stage::C1), false));
    assert_eq!(fixture.ops.count(Op::CreateNew, Role::Temporary), 0);
    fs::remove_file(fixture.marker()).unwrap();
    assert_goes_on(&fixture, &store);
}

// Requirement: C2
#[test]
fn a_temporary_that_cannot_be_created_leaves_nothing() {
    let struck = strike(|f| f.ops.plan(at(Op::CreateNew, Role::Temporary, What::Before(Errno::EMFILE))));
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EMFILE), Stage::C2);
}

// Requirement: C2, C22
#[test]
fn a_temporary_of_unknown_identity_stays_as_a_stray() {
    for rule in [
        at(Op::CreateNew, Role::Temporary, What::After(Errno::EIO)),
        at(Op::Stat, Role::Temporary, What::Before(Errno::EIO)),
    ] {
        let Struck { fixture, store, before, answer } = strike(|f| f.ops.plan(rule));
        let error = refused(answer, Code::Io);
        assert_eq!((error.stage(), error.errno()), (Some(Stage::C2), Some(Errno::EIO)));
        assert_eq!(fixture.names().len(), 2);
        assert_eq!(fixture.bytes(), before);
        append(&store, "m-3").unwrap();
        assert_eq!(fixture.cold_ids(), ["e-1", "e-3"]);
    }
}

// Requirement: C3
#[test]
fn short_writes_are_continued() {
    let struck = strike(|f| f.ops.plan(at(Op::WriteAt, Role::Temporary, What::AtMost(1)).times(40)));
    assert!(struck.fixture.ops.count(Op::WriteAt, Role::Temporary) > 40);
    struck.succeeds();
}

// Requirement: C3
#[test]
fn a_write_that_fails_or_stands_still_leaves_the_old_generation() {
    let full = strike(|f| f.ops.plan(at(Op::WriteAt, Role::Temporary, What::Before(Errno::ENOSPC))));
    full.leaves_the_old_generation(Code::Io, Some(Errno::ENOSPC), Stage::C3);
    let later = strike(|f| {
        f.ops.plan(at(Op::WriteAt, Role::Temporary, What::AtMost(7)));
        f.ops.plan(at(Op::WriteAt, Role::Temporary, What::Before(Errno::EDQUOT)).nth(2));
    });
    later.leaves_the_old_generation(Code::Io, Some(Errno::EDQUOT), Stage::C3);
    let still = strike(|f| f.ops.plan(at(Op::WriteAt, Role::Temporary, What::AtMost(0)).for_ever()));
    assert_eq!(still.fixture.ops.count(Op::WriteAt, Role::Temporary), 1);
    still.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C3);
}

// Requirement: C4, C27
#[test]
fn an_fsync_or_close_that_fails_is_a_failure_and_is_not_repeated() {
    for op in [Op::Sync, Op::Close] {
        for errno in [Errno::EIO, Errno::EINTR, Errno::ENOSPC] {
            for what in [What::Before(errno), What::After(errno)] {
                let struck = strike(|f| f.ops.plan(at(op, Role::Temporary, what)));
                assert_eq!(struck.fixture.ops.count(op, Role::Temporary), 1, "{op:?} {errno}");
                struck.leaves_the_old_generation(Code::Io, Some(errno), Stage::C4);
            }
        }
    }
}

// Requirement: C4, S8
#[test]
fn the_new_generation_is_locked_before_it_gets_its_name() {
    let (fixture, store) = Fixture::with_entries(1);
    let (dir, path) = (fixture.dir(), fixture.path());
    fixture.ops.plan(at(
        Op::SyncDir,
        Role::Directory,
        actor(move || assert!(!lock(&open_in(&dir, NAME), Lock::Shared), "{} is free", path.display())),
    ));
    append(&store, "m-2").unwrap();
    assert_eq!(fixture.ops.fired(), 1);
    assert!(lock(&open_in(&fixture.dir(), NAME), Lock::Exclusive), "the lock outlived the call");
}

// Requirement: C5, S4, C21
#[test]
fn a_temporary_that_was_replaced_or_removed_is_noticed_and_a_stranger_is_left_alone() {
    for stranger in [true, false] {
        let (fixture, store) = Fixture::with_entries(1);
        let (before, dir) = (fixture.bytes(), fixture.dir());
        fixture.ops.plan(at(
            Op::StatAt,
            Role::Temporary,
            actor(move || {
                let temporary = fs::read_dir(&dir)
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .find(|path| path.to_string_lossy().contains(".pify-session-"))
                    .unwrap();
                if stranger { replace(&temporary, b"stranger") } else { fs::remove_file(temporary).unwrap() }
            }),
        ));
        let error = refused(append(&store, "m-2"), Code::FileChanged);
        assert_eq!(error.stage(), Some(Stage::C5));
        assert_eq!(fixture.bytes(), before);
        assert_eq!(fixture.names().len(), if stranger { 2 } else { 1 });
        fixture.ops.forget();
        append(&store, "m-3").unwrap();
        assert_eq!(fixture.cold_ids(), ["e-1", "e-3"]);
    }
}

// Requirement: C5, C9
#[test]
fn names_that_were_recorded_and_are_gone_count_as_changed() {
    for errno in [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP] {
        let struck = strike(|f| f.ops.plan(at(Op::StatAt, Role::Temporary, What::Before(errno))));
        struck.leaves_the_old_generation(Code::FileChanged, Some(errno), Stage::C5);
        // Looks at the path: after the lock, C1, C5, C7, then C9.
        let struck = strike(|f| f.ops.plan(at(Op::StatAt, Role::Session, What::Before(errno)).nth(5)));
        struck.leaves_the_old_generation(Code::FileChanged, Some(errno), Stage::C9);
        let struck = strike(|f| f.ops.plan(at(Op::StatAt, Role::Session, What::Before(errno))));
        struck.leaves_the_old_generation(Code::FileChanged, Some(errno), Stage::C1);
        let struck = strike(|f| f.ops.plan(at(Op::StatPath, Role::Directory, What::Before(errno))));
        struck.leaves_the_old_generation(Code::RootChanged, Some(errno), Stage::C1);
        let struck = strike(|f| f.ops.plan(at(Op::Open, Role::Temporary, What::Before(errno))));
        struck.leaves_the_old_generation(Code::FileChanged, Some(errno), Stage::C2);
    }
}

// Requirement: C6, C27
#[test]
fn without_hard_links_the_commit_fails_and_leaves_nothing() {
    for errno in [Errno::EPERM, Errno::ENOTSUP, Errno::EMLINK, Errno::EINTR] {
        let struck = strike(|f| f.ops.plan(at(Op::Link, Role::Marker, What::Before(errno)).for_ever()));
        assert_eq!(struck.fixture.ops.count(Op::Link, Role::Marker), 1);
        struck.leaves_the_old_generation(Code::Io, Some(errno), Stage::C6);
    }
}

// Requirement: C6
#[test]
fn a_link_that_fails_after_its_effect_is_undone() {
    let struck = strike(|f| f.ops.plan(at(Op::Link, Role::Marker, What::After(Errno::EIO))));
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C6);
}

// Requirement: C6, C21
#[test]
fn a_marker_that_appears_before_ours_poisons_and_is_left_alone() {
    let struck = strike(|f| {
        let marker = f.marker();
        f.ops.plan(at(Op::Link, Role::Marker, actor(move || fs::write(&marker, "foreign").unwrap())));
    });
    let before = struck.before.clone();
    let (fixture, error) = struck.ends_poisoned();
    assert_eq!(error.stage(), Some(Stage::C6));
    assert_eq!(fs::read(fixture.marker()).unwrap(), b"foreign");
    assert_eq!(fixture.bytes(), before);
    assert_eq!(fixture.names().len(), 2);
}

// Requirement: C6, C7, C21
#[test]
fn a_file_replaced_before_the_link_is_refused_and_its_second_name_is_removed() {
    for fails in [false, true] {
        let (fixture, store) = Fixture::with_entries(1);
        let path = fixture.path();
        fixture.ops.plan(at(Op::Link, Role::Marker, actor(move || replace(&path, b"stranger"))));
        if fails {
            fixture.ops.plan(at(Op::Link, Role::Marker, What::After(Errno::EIO)));
        }
        let code = if fails { Code::Io } else { Code::FileChanged };
        let error = refused(append(&store, "m-2"), code);
        assert_eq!(error.stage(), Some(if fails { Stage::C6 } else { Stage::C7 }));
        assert!(!error.poisoned());
        assert_eq!(fixture.bytes(), b"stranger");
        assert!(fixture.is_tidy(), "{:?}", fixture.names());
    }
}

// Requirement: C5, S1
#[test]
fn a_temporary_that_was_written_to_since_never_gets_the_path() {
    let grow = |dir: std::path::PathBuf| {
        actor(move || {
            use std::io::Write;
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                if path.file_name().unwrap() != NAME {
                    let mut temporary = fs::OpenOptions::new().append(true).open(path).unwrap();
                    temporary.write_all(b"a stranger's").unwrap();
                }
            }
        })
    };
    let struck = strike(|f| f.ops.plan(at(Op::StatAt, Role::Temporary, grow(f.dir()))));
    struck.leaves_the_old_generation(Code::FileChanged, None, Stage::C5);
    let fixture = Fixture::new();
    fixture.ops.plan(at(Op::StatAt, Role::Temporary, grow(fixture.dir())));
    let error = refused(fixture.create(), Code::FileChanged);
    assert_eq!((error.stage(), fixture.ops.fired()), (Some(Stage::K5), 1));
    assert!(fixture.path().symlink_metadata().is_err());
}

// Requirement: C7, C21
#[test]
fn a_marker_replaced_before_it_was_verified_is_left_alone_and_nothing_is_renamed() {
    let struck = strike(|f| {
        let marker = f.marker();
        let swap = actor(move || {
            replace(&marker, b"stranger");
            set_mode(&marker, 0o600);
        });
        f.ops.plan(at(Op::StatAt, Role::Marker, swap).nth(2));
    });
    assert_eq!(struck.fixture.ops.count(Op::Rename, Role::Temporary), 0);
    let before = struck.before.clone();
    let (fixture, error) = struck.ends_poisoned();
    assert_eq!(error.stage(), Some(Stage::C7), "{error}");
    assert_eq!(fixture.bytes(), before);
    assert_eq!(fs::read(fixture.marker()).unwrap(), b"stranger");
    assert_eq!(fixture.names().len(), 2);
}

// Requirement: C7, S3
#[test]
fn a_file_or_directory_replaced_before_the_rename_is_noticed() {
    let (fixture, store) = Fixture::with_entries(1);
    let path = fixture.path();
    fixture.ops.plan(at(Op::StatAt, Role::Session, actor(move || replace(&path, b"stranger"))).nth(4));
    let error = refused(append(&store, "m-2"), Code::FileChanged);
    assert_eq!((error.stage(), error.poisoned()), (Some(Stage::C7), false));
    assert_eq!(fixture.bytes(), b"stranger");
    assert!(fixture.is_tidy(), "{:?}", fixture.names());

    let (fixture, store) = Fixture::with_entries(1);
    let (dir, aside) = (fixture.dir(), fixture.outside("aside"));
    // Looks at the directory by its path: after the lock, C1, C5, C7, C9.
    let moved = (dir.clone(), aside.clone());
    fixture.ops.plan(
        at(
            Op::StatPath,
            Role::Directory,
            actor(move || {
                fs::rename(&moved.0, &moved.1).unwrap();
                fs::create_dir(&moved.0).unwrap();
            }),
        )
        .nth(4),
    );
    let error = refused(append(&store, "m-2"), Code::RootChanged);
    assert_eq!((error.stage(), error.poisoned()), (Some(Stage::C7), false));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "something was written into the successor");
    assert_eq!(fs::read_dir(&aside).unwrap().count(), 1);
}

// Requirement: C25, C7
#[test]
fn a_mode_that_changes_during_the_commit_is_a_failure() {
    let struck = strike(|f| {
        let path = f.path();
        f.ops.plan(at(Op::Link, Role::Marker, actor(move || set_mode(&path, 0o640))));
    });
    let fixture = struck.leaves_the_old_generation(Code::FileChanged, None, Stage::C7);
    assert_eq!(mode_of(&fixture.path()), 0o640);
    // A mode that the file system did not take is a failure too.
    let struck = strike(|f| {
        set_mode(&f.path(), 0o640);
        f.ops.plan(at(Op::SetMode, Role::Temporary, What::Lie));
    });
    struck.leaves_the_old_generation(Code::FileChanged, None, Stage::C7);
    let struck = strike(|f| {
        set_mode(&f.path(), 0o640);
        f.ops.plan(at(Op::SetMode, Role::Temporary, What::Before(Errno::EPERM)));
    });
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EPERM), Stage::C3);
}

// Requirement: C7, C8
#[test]
fn a_marker_of_ours_that_cannot_be_removed_again_poisons() {
    for (rule, stage) in [
        (at(Op::Link, Role::Marker, What::After(Errno::EIO)), Stage::C6),
        (at(Op::StatAt, Role::Marker, What::Before(Errno::EIO)).nth(2), Stage::C7),
        (at(Op::Rename, Role::Temporary, What::Before(Errno::EIO)), Stage::C8),
    ] {
        let struck = strike(|f| {
            f.ops.plan(rule);
            f.ops.plan(at(Op::Unlink, Role::Marker, What::Before(Errno::EROFS)).for_ever());
        });
        let before = struck.before.clone();
        assert_eq!(struck.fixture.ops.count(Op::Unlink, Role::Marker), 3);
        let (fixture, error) = struck.ends_poisoned();
        assert_eq!((error.stage(), error.errno()), (Some(stage), Some(Errno::EIO)), "{error}");
        let cause = error.rollback_cause().unwrap();
        assert_eq!((cause.errno(), cause.stage()), (Some(Errno::EROFS), Some(stage)), "{error}");
        assert_eq!(fixture.bytes(), before);
        assert_eq!(inode_of(&fixture.marker()), inode_of(&fixture.path()));
        assert_eq!(fixture.names().len(), 2);
    }
}

// Requirement: C8, C20, C27
#[test]
fn a_rename_that_fails_leaves_the_old_generation_whether_it_had_an_effect_or_not() {
    for errno in [Errno::EIO, Errno::EINTR, Errno::ENOSPC] {
        for what in [What::Before(errno), What::After(errno)] {
            let struck = strike(|f| f.ops.plan(at(Op::Rename, Role::Temporary, what)));
            assert_eq!(struck.fixture.ops.count(Op::Rename, Role::Temporary), 1);
            struck.leaves_the_old_generation(Code::Io, Some(errno), Stage::C8);
        }
    }
}

// Requirement: C8, C20
#[test]
fn a_path_that_is_gone_after_the_rename_failed_is_restored() {
    let struck = strike(|f| {
        let path = f.path();
        f.ops.plan(at(Op::Rename, Role::Temporary, What::Before(Errno::EIO)));
        f.ops.plan(at(Op::Rename, Role::Temporary, actor(move || fs::remove_file(&path).unwrap())));
    });
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C8);
}

// Requirement: C8, C21
#[test]
fn a_stranger_at_the_path_after_the_rename_failed_is_left_alone_and_the_marker_kept() {
    let struck = strike(|f| {
        let path = f.path();
        f.ops.plan(at(Op::Rename, Role::Temporary, What::Before(Errno::EIO)));
        f.ops.plan(at(Op::Rename, Role::Temporary, actor(move || replace(&path, b"stranger"))));
    });
    let before = struck.before.clone();
    let (fixture, error) = struck.ends_poisoned();
    assert_eq!((error.stage(), error.errno()), (Some(Stage::C8), Some(Errno::EIO)));
    assert_eq!(error.rollback_cause().and_then(Error::stage), Some(Stage::C8), "a roll back was begun");
    assert_eq!(fixture.bytes(), b"stranger");
    assert_eq!(fs::read(fixture.marker()).unwrap(), before);
    assert_eq!(fixture.names().len(), 2);
}

// Requirement: C8
#[test]
fn a_path_that_cannot_be_seen_after_the_rename_failed_is_doubtful() {
    for what in [What::Before(Errno::EIO), What::After(Errno::EIO)] {
        let struck = strike(|f| {
            f.ops.plan(at(Op::Rename, Role::Temporary, what));
            f.ops.plan(at(Op::StatAt, Role::Session, What::Before(Errno::EACCES)).nth(5).for_ever());
        });
        let before = struck.before.clone();
        let (fixture, error) = struck.ends_poisoned();
        assert_eq!(error.stage(), Some(Stage::C8));
        assert_eq!(error.rollback_cause().unwrap().errno(), Some(Errno::EACCES));
        assert_eq!(fs::read(fixture.marker()).unwrap(), before);
    }
}

// Requirement: C9, C20
#[test]
fn a_rename_that_lied_is_noticed_and_the_marker_removed() {
    let struck = strike(|f| f.ops.plan(at(Op::Rename, Role::Temporary, What::Lie)));
    struck.leaves_the_old_generation(Code::FileChanged, None, Stage::C9);
}

// Requirement: C9, C20
#[test]
fn a_failure_of_the_look_at_the_new_generation_rolls_back() {
    let struck = strike(|f| f.ops.plan(at(Op::StatAt, Role::Session, What::Before(Errno::EIO)).nth(5)));
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C9);
    let struck = strike(|f| f.ops.plan(at(Op::StatPath, Role::Directory, What::Before(Errno::EIO)).nth(5)));
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C9);
}

// Requirement: C9, S3
#[test]
fn a_directory_replaced_after_the_rename_rolls_back_in_the_held_one() {
    let (fixture, store) = Fixture::with_entries(1);
    let (before, dir, aside) = (fixture.bytes(), fixture.dir(), fixture.outside("aside"));
    let moved = (dir.clone(), aside.clone());
    fixture.ops.plan(
        at(
            Op::StatPath,
            Role::Directory,
            actor(move || {
                fs::rename(&moved.0, &moved.1).unwrap();
                symlink(&moved.1, &moved.0).unwrap();
            }),
        )
        .nth(5),
    );
    let error = refused(append(&store, "m-2"), Code::RootChanged);
    assert_eq!((error.stage(), error.poisoned()), (Some(Stage::C9), false));
    assert_eq!(fs::read(aside.join(NAME)).unwrap(), before);
    assert_eq!(fs::read_dir(&aside).unwrap().count(), 1);
    fs::remove_file(&dir).unwrap();
    fs::rename(&aside, &dir).unwrap();
    assert_goes_on(&fixture, &store);
}

// Requirement: C9, C20, C21
#[test]
fn a_stranger_in_place_of_the_new_generation_is_left_alone_and_the_marker_kept() {
    let struck = strike(|f| {
        let path = f.path();
        f.ops.plan(at(Op::StatAt, Role::Session, actor(move || replace(&path, b"stranger"))).nth(5));
    });
    let before = struck.before.clone();
    let (fixture, error) = struck.ends_poisoned();
    assert_eq!((error.stage(), error.rollback_cause().unwrap().stage()), (Some(Stage::C9), Some(Stage::C20)));
    assert_eq!(fixture.bytes(), b"stranger");
    assert_eq!(fs::read(fixture.marker()).unwrap(), before);
}

// Requirement: C10, C20, C24, C26, C27
#[test]
fn a_directory_fsync_that_fails_rolls_back_and_is_not_repeated() {
    for errno in [Errno::EIO, Errno::EPERM, Errno::EACCES, Errno::EINTR, Errno::ENOSPC] {
        let struck = strike(|f| f.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(errno))));
        // The failed one, and that of the roll back.
        assert_eq!(struck.fixture.ops.count(Op::SyncDir, Role::Directory), 2);
        assert_eq!(struck.store.directory_sync(), Support::Supported);
        struck.leaves_the_old_generation(Code::Io, Some(errno), Stage::C10);
    }
}

// Requirement: C26
#[test]
fn a_file_system_without_directory_fsync_is_taken_and_said() {
    for errno in [Errno::EINVAL, Errno::ENOTSUP] {
        let struck = strike(|f| f.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(errno)).for_ever()));
        assert_eq!(struck.store.directory_sync(), Support::Unsupported);
        struck.succeeds();

        let fixture = Fixture::new();
        fixture.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(errno)).for_ever());
        assert_eq!(fixture.create().unwrap().directory_sync(), Support::Unsupported);
    }
}

// Requirement: C20, C24
#[test]
fn a_roll_back_whose_directory_fsync_fails_answers_the_first_cause() {
    let struck = strike(|f| f.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(Errno::EIO)).times(2)));
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
}

// Requirement: C11
#[test]
fn a_marker_is_removed_in_up_to_three_tries_and_absent_counts_as_removed() {
    let twice = strike(|f| f.ops.plan(at(Op::Unlink, Role::Marker, What::Before(Errno::EIO)).times(2)));
    twice.succeeds();
    let after = strike(|f| f.ops.plan(at(Op::Unlink, Role::Marker, What::After(Errno::EINTR))));
    assert_eq!(after.fixture.ops.count(Op::Unlink, Role::Marker), 1);
    after.succeeds();
    let at_the_last_try = strike(|f| {
        f.ops.plan(at(Op::Unlink, Role::Marker, What::Before(Errno::EIO)).times(2));
        f.ops.plan(at(Op::Unlink, Role::Marker, What::After(Errno::EIO)).nth(3));
    });
    at_the_last_try.succeeds();
    let gone = strike(|f| {
        let marker = f.marker();
        f.ops.plan(at(Op::SyncDir, Role::Directory, actor(move || fs::remove_file(&marker).unwrap())));
    });
    gone.succeeds();
}

// Requirement: C11, C20
#[test]
fn a_marker_that_cannot_be_removed_is_renamed_back_and_the_first_cause_answered() {
    let struck = strike(|f| f.ops.plan(at(Op::Unlink, Role::Marker, What::Before(Errno::EIO)).for_ever()));
    assert_eq!(struck.fixture.ops.count(Op::Unlink, Role::Marker), 3);
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C11);
}

// Requirement: C11, C20, C21
#[test]
fn a_marker_that_was_replaced_is_left_alone_and_poisons() {
    let struck = strike(|f| {
        let marker = f.marker();
        f.ops.plan(at(Op::SyncDir, Role::Directory, actor(move || replace(&marker, b"stranger"))));
    });
    let before = struck.before.clone();
    let (fixture, error) = struck.ends_poisoned();
    assert_eq!(error.stage(), Some(Stage::C11));
    assert_eq!(fs::read(fixture.marker()).unwrap(), b"stranger");
    assert_eq!(fixture.bytes(), before, "the old generation was copied back");
    assert_eq!(fixture.names().len(), 2);
}

// Requirement: C12
#[test]
fn the_last_directory_fsync_is_best_effort() {
    for errno in [Errno::EIO, Errno::EPERM, Errno::EINTR] {
        let struck = strike(|f| f.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(errno)).nth(2)));
        struck.succeeds();
    }
}

/// A commit whose directory fsync fails, so that it must be rolled back, under `plan`.
fn roll_back(plan: impl FnOnce(&Fixture)) -> Struck {
    strike(|fixture| {
        fixture.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(Errno::EIO)));
        plan(fixture);
    })
}

// Requirement: C20
#[test]
fn the_marker_is_renamed_back_in_up_to_three_tries() {
    for (times, what) in [(2, What::Before as fn(Errno) -> What), (1, What::After)] {
        let struck = roll_back(|f| f.ops.plan(at(Op::Rename, Role::Marker, what(Errno::EIO)).times(times)));
        assert_eq!(struck.fixture.ops.count(Op::Rename, Role::Marker), times + usize::from(times == 2));
        assert_eq!(struck.fixture.ops.count(Op::CreateNew, Role::Restore), 0);
        struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
    }
}

// Requirement: C20, C25
#[test]
fn a_marker_that_cannot_be_renamed_is_replaced_by_a_copy_with_the_old_mode() {
    let struck = roll_back(|f| {
        set_mode(&f.path(), 0o640);
        f.ops.plan(at(Op::Rename, Role::Marker, What::Before(Errno::EIO)).for_ever());
    });
    assert_eq!(struck.fixture.ops.count(Op::Rename, Role::Marker), 3);
    assert_eq!(struck.fixture.ops.count(Op::Sync, Role::Restore), 1);
    assert_eq!(mode_of(&struck.fixture.path()), 0o640);
    assert_eq!(struck.fixture.descriptors(), 2, "the copy replaces the generation that was held");
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
}

// Requirement: C20
#[test]
fn a_marker_that_vanished_is_replaced_by_a_copy() {
    let struck = roll_back(|f| {
        let marker = f.marker();
        f.ops.plan(at(Op::SyncDir, Role::Directory, actor(move || fs::remove_file(&marker).unwrap())));
    });
    assert_eq!(struck.fixture.ops.count(Op::CreateNew, Role::Restore), 1);
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
}

// Requirement: C20
#[test]
fn a_copy_holds_the_old_generation_and_not_what_was_written_behind_it() {
    let struck = roll_back(|f| {
        let marker = f.marker();
        f.ops.plan(at(
            Op::SyncDir,
            Role::Directory,
            actor(move || {
                use std::io::Write;
                let mut old = fs::OpenOptions::new().append(true).open(&marker).unwrap();
                old.write_all(b"appended by a stranger").unwrap();
            }),
        ));
        f.ops.plan(at(Op::Rename, Role::Marker, What::Before(Errno::EIO)).for_ever());
    });
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
}

// Requirement: C20
#[test]
fn a_copy_is_renamed_in_up_to_three_tries() {
    for what in [What::Before as fn(Errno) -> What, What::After] {
        let struck = roll_back(|f| {
            f.ops.plan(at(Op::Rename, Role::Marker, What::Before(Errno::EIO)).for_ever());
            f.ops.plan(at(Op::Rename, Role::Restore, what(Errno::EIO)).times(2));
        });
        struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
    }
}

// Requirement: C20
#[test]
fn a_copy_that_could_not_be_seen_at_first_is_not_taken_for_a_strangers_file() {
    let struck = roll_back(|f| {
        f.ops.plan(at(Op::Rename, Role::Marker, What::Before(Errno::EIO)).for_ever());
        let ops = f.ops.clone();
        let blind = actor(move || ops.plan(at(Op::StatAt, Role::Session, What::Before(Errno::EIO)).times(3)));
        f.ops.plan(at(Op::Rename, Role::Restore, blind));
    });
    struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
}

// Requirement: C20
#[test]
fn a_copy_of_many_parts_ends_where_the_old_generation_ended() {
    let (fixture, store) = Fixture::with_entries(1);
    for _ in 0..2 {
        store.append(None, session_tree::Message::user("m", "x".repeat(60_000))).unwrap();
    }
    let (before, marker) = (fixture.bytes(), fixture.marker());
    fixture.ops.forget();
    fixture.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(Errno::EIO)));
    let grow = actor(move || {
        use std::io::Write;
        let mut old = fs::OpenOptions::new().append(true).open(&marker).unwrap();
        old.write_all(b"appended by a stranger").unwrap();
    });
    fixture.ops.plan(at(Op::SyncDir, Role::Directory, grow));
    fixture.ops.plan(at(Op::Rename, Role::Marker, What::Before(Errno::EIO)).for_ever());
    assert_eq!(refused(append(&store, "m-4"), Code::Io).stage(), Some(Stage::C10));
    assert_eq!(fixture.bytes(), before);
    assert_goes_on(&fixture, &store);
}

// Requirement: C20, C22
#[test]
fn an_old_generation_that_cannot_be_put_back_stays_at_the_marker_and_poisons() {
    for rule in [
        at(Op::Rename, Role::Restore, What::Before(Errno::EIO)).for_ever(),
        at(Op::WriteAt, Role::Restore, What::Before(Errno::ENOSPC)).for_ever(),
        at(Op::Sync, Role::Restore, What::Before(Errno::EIO)).for_ever(),
        at(Op::ReadAt, Role::Session, What::Before(Errno::EIO)).for_ever(),
        at(Op::ReadAt, Role::Temporary, What::Before(Errno::EIO)).for_ever(),
        at(Op::CreateNew, Role::Restore, What::Before(Errno::EROFS)).for_ever(),
    ] {
        let struck = roll_back(|f| {
            f.ops.plan(at(Op::Rename, Role::Marker, What::Before(Errno::EIO)).for_ever());
            f.ops.plan(rule);
        });
        let before = struck.before.clone();
        if struck.answer.as_ref().is_err_and(|error| !error.poisoned()) {
            // The held descriptor has one of the two roles that are read from.
            struck.leaves_the_old_generation(Code::Io, Some(Errno::EIO), Stage::C10);
            continue;
        }
        let (fixture, error) = struck.ends_poisoned();
        assert_eq!((error.stage(), error.errno()), (Some(Stage::C10), Some(Errno::EIO)));
        assert_eq!(error.rollback_cause().unwrap().stage(), Some(Stage::C20));
        assert_eq!(fs::read(fixture.marker()).unwrap(), before);
        assert_eq!(fixture.names().len(), 2, "{:?}", fixture.names());
    }
}

// Requirement: C20
#[test]
fn a_copy_is_put_at_the_marker_in_up_to_three_tries_and_once_where_the_first_took_effect() {
    for (what, times, links) in [(What::Before as fn(Errno) -> What, 2, 4), (What::After, 1, 2)] {
        let struck = roll_back(|f| {
            let marker = f.marker();
            f.ops.plan(at(Op::SyncDir, Role::Directory, actor(move || fs::remove_file(&marker).unwrap())));
            f.ops.plan(at(Op::Rename, Role::Restore, What::Before(Errno::EIO)).for_ever());
            // The first link is the one of the commit.
            f.ops.plan(at(Op::Link, Role::Marker, what(Errno::EIO)).nth(2).times(times));
        });
        assert_eq!(struck.fixture.ops.count(Op::Link, Role::Marker), links);
        let before = struck.before.clone();
        let (fixture, _) = struck.ends_poisoned();
        assert_eq!(fs::read(fixture.marker()).unwrap(), before);
        assert_eq!(fixture.names().len(), 2, "{:?}", fixture.names());
    }
}

// Requirement: C20
#[test]
fn a_copy_that_lost_its_name_is_made_again_for_the_marker() {
    let struck = roll_back(|f| {
        let (marker, path, ops) = (f.marker(), f.path(), f.ops.clone());
        f.ops.plan(at(Op::SyncDir, Role::Directory, actor(move || fs::remove_file(&marker).unwrap())));
        // A stranger takes the path as soon as the copy has got it, and with that the copy's only name.
        let take = actor(move || {
            let path = path.clone();
            ops.plan(at(Op::StatAt, Role::Session, actor(move || replace(&path, b"stranger"))));
        });
        f.ops.plan(at(Op::Rename, Role::Restore, take));
    });
    struck.ends_poisoned_beside_a_stranger();
}

// Requirement: C20
#[test]
fn no_marker_is_made_where_the_path_holds_the_old_generation() {
    let (fixture, store) = Fixture::with_entries(1);
    let before = fixture.bytes();
    fixture.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(Errno::EIO)));
    let ops = fixture.ops.clone();
    // After the marker was renamed back: the look that ends the tries, the one before its removal, then the proof.
    let blind = actor(move || {
        ops.plan(at(Op::StatAt, Role::Marker, What::Before(Errno::EACCES)).nth(3).times(3));
    });
    fixture.ops.plan(at(Op::Rename, Role::Marker, blind));
    let error = refused(append(&store, "m-2"), Code::RollbackFailed);
    assert!(error.poisoned());
    assert_eq!(fixture.ops.fired(), 5);
    assert_eq!(fixture.ops.count(Op::CreateNew, Role::Restore), 0);
    assert_eq!(fixture.bytes(), before);
    assert!(fixture.is_tidy(), "{:?}", fixture.names());
}

// Requirement: C20
#[test]
fn where_no_name_holds_the_old_generation_a_copy_is_put_at_the_marker() {
    let struck = roll_back(|f| {
        let marker = f.marker();
        f.ops.plan(at(Op::SyncDir, Role::Directory, actor(move || fs::remove_file(&marker).unwrap())));
        f.ops.plan(at(Op::Rename, Role::Restore, What::Before(Errno::EIO)).for_ever());
    });
    let before = struck.before.clone();
    let (fixture, _) = struck.ends_poisoned();
    assert_eq!(fs::read(fixture.marker()).unwrap(), before);
    assert_eq!(fixture.names().len(), 2, "{:?}", fixture.names());
    assert_eq!(fixture.descriptors(), 0);
}

// Requirement: C20, C21
#[test]
fn a_stranger_at_the_path_is_left_alone_and_the_lost_marker_is_made_anew() {
    let struck = roll_back(|f| {
        let (path, marker) = (f.path(), f.marker());
        f.ops.plan(at(
            Op::SyncDir,
            Role::Directory,
            actor(move || {
                fs::remove_file(&marker).unwrap();
                replace(&path, b"stranger");
            }),
        ));
    });
    struck.ends_poisoned_beside_a_stranger();
}

// Requirement: C20
#[test]
fn a_marker_that_cannot_be_seen_to_be_absent_is_not_proved() {
    let (fixture, store) = Fixture::with_entries(1);
    let before = fixture.bytes();
    fixture.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(Errno::EIO)));
    // Looks at the marker: C1, C7, the one before it is renamed back, then those that would prove its absence.
    fixture.ops.plan(at(Op::StatAt, Role::Marker, What::Before(Errno::EACCES)).nth(4).for_ever());
    let error = refused(append(&store, "m-2"), Code::RollbackFailed);
    assert!(error.poisoned());
    assert_eq!(error.rollback_cause().unwrap().errno(), Some(Errno::EACCES));
    assert_eq!(fixture.bytes(), before);
    fixture.ops.forget();
    assert!(refused(store.flush(), Code::RollbackFailed).poisoned());
}

// Requirement: C20, S8
#[test]
fn locks_end_with_the_call_also_where_it_poisoned() {
    let struck = roll_back(|f| {
        f.ops.plan(at(Op::Rename, Role::Marker, What::Before(Errno::EIO)).for_ever());
        f.ops.plan(at(Op::Rename, Role::Restore, What::Before(Errno::EIO)).for_ever());
    });
    assert!(struck.answer.is_err_and(|error| error.poisoned()));
    for name in struck.fixture.names() {
        let file = open_in(&struck.fixture.dir(), &name.to_string_lossy());
        assert!(lock(&file, Lock::Exclusive), "{name:?} is still locked");
    }
}

// Requirement: C27
#[test]
fn interrupted_open_read_write_and_flock_are_repeated() {
    for (op, role) in [
        (Op::CreateNew, Role::Temporary),
        (Op::Open, Role::Temporary),
        (Op::WriteAt, Role::Temporary),
        (Op::TryLock, Role::Temporary),
        (Op::TryLock, Role::Session),
    ] {
        let (fixture, _) = Fixture::with_entries(1);
        let store = fixture.load().unwrap();
        fixture.ops.forget();
        fixture.ops.plan(at(op, role, What::Before(Errno::EINTR)).times(5));
        append(&store, "m-2").unwrap();
        assert_eq!(fixture.ops.fired(), 5, "{op:?}");
        assert_eq!(fixture.cold_ids(), ids(&store));
    }
    for (op, role) in [(Op::OpenDir, Role::Directory), (Op::Open, Role::Session), (Op::ReadAt, Role::Session)]
    {
        let (fixture, _) = Fixture::with_entries(1);
        fixture.ops.plan(at(op, role, What::Before(Errno::EINTR)).times(5));
        assert_eq!(ids(&fixture.load().unwrap()), ["e-1"]);
        assert_eq!(fixture.ops.fired(), 5, "{op:?}");
    }
}

// Requirement: C27
#[test]
fn calls_that_are_interrupted_for_ever_are_given_up() {
    for (op, role, stage) in [
        (Op::CreateNew, Role::Temporary, Stage::C2),
        (Op::Open, Role::Temporary, Stage::C2),
        (Op::WriteAt, Role::Temporary, Stage::C3),
    ] {
        let struck = strike(|f| f.ops.plan(at(op, role, What::Before(Errno::EINTR)).for_ever()));
        assert!(struck.fixture.ops.fired() < 1_000);
        struck.leaves_the_old_generation(Code::Io, Some(Errno::EINTR), stage);
    }
    for (role, stage) in [(Role::Session, Stage::C1), (Role::Temporary, Stage::C2)] {
        let (fixture, _) = Fixture::with_entries(1);
        let store = fixture.load().unwrap();
        fixture.ops.plan(at(Op::TryLock, role, What::Before(Errno::EINTR)).for_ever());
        let error = refused(append(&store, "m-2"), Code::Io);
        assert_eq!((error.errno(), error.stage()), (Some(Errno::EINTR), Some(stage)));
        assert!(fixture.is_tidy());
    }
    for (op, role, stage) in [
        (Op::OpenDir, Role::Directory, Stage::V1),
        (Op::Open, Role::Session, Stage::V4),
        (Op::ReadAt, Role::Session, Stage::V5),
    ] {
        let (fixture, _) = Fixture::with_entries(1);
        fixture.ops.plan(at(op, role, What::Before(Errno::EINTR)).for_ever());
        let error = refused(fixture.load(), Code::Io);
        assert_eq!((error.errno(), error.stage()), (Some(Errno::EINTR), Some(stage)));
    }
}

// Requirement: S8
#[test]
fn a_commit_waits_for_another_process_and_is_refused_in_the_end() {
    let (fixture, store) = Fixture::with_entries(1);
    fixture.ops.plan(at(Op::TryLock, Role::Temporary, What::Held).times(3));
    append(&store, "m-2").unwrap();
    assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 3);

    fixture.ops.forget();
    let before = fixture.bytes();
    let other = open_in(&fixture.dir(), NAME);
    assert!(lock(&other, Lock::Exclusive));
    let error = refused(append(&store, "m-3"), Code::Io);
    assert!(error.in_flight() && !error.poisoned());
    assert_eq!((error.errno(), error.stage()), (Some(Errno::EAGAIN), Some(Stage::C1)));
    assert_eq!(fixture.ops.count(Op::CreateNew, Role::Temporary), 0);
    assert_eq!(fixture.bytes(), before);
    OsFileOps::new().unlock(&other);
    assert_goes_on(&fixture, &store);
}

// Requirement: S8
#[test]
fn a_lock_that_was_had_although_it_failed_ends_with_the_call() {
    let (fixture, store) = Fixture::with_entries(1);
    fixture.ops.plan(at(Op::TryLock, Role::Temporary, What::After(Errno::EIO)));
    let error = refused(append(&store, "m-2"), Code::Io);
    assert_eq!((error.errno(), error.stage()), (Some(Errno::EIO), Some(Stage::C1)));
    assert!(lock(&open_in(&fixture.dir(), NAME), Lock::Exclusive), "the lock outlived the call");
}

// Requirement: S8
#[test]
fn a_lock_that_needs_a_writable_descriptor_gets_one_once() {
    let (fixture, _) = Fixture::with_entries(1);
    let store = fixture.load().unwrap();
    fixture.ops.forget();
    fixture.ops.plan(at(Op::TryLock, Role::Session, What::Before(Errno::EBADF)));
    append(&store, "m-2").unwrap();
    assert_eq!(fixture.ops.count(Op::Open, Role::Session), 1);
    assert_eq!(store.locking(), Support::Supported);
    assert_eq!(fixture.descriptors(), 2);

    fixture.ops.forget();
    fixture.ops.plan(at(Op::TryLock, Role::Temporary, What::Before(Errno::EBADF)).for_ever());
    append(&store, "m-3").unwrap();
    assert_eq!(store.locking(), Support::Unsupported);
}

// Requirement: S8
#[test]
fn a_file_system_without_locks_is_said_and_every_marker_refused() {
    for errno in [Errno::ENOLCK, Errno::ENOTSUP, Errno::ENOSYS] {
        let (fixture, store) = Fixture::with_entries(1);
        assert_eq!(store.locking(), Support::Supported);
        for role in [Role::Session, Role::Temporary, Role::Marker] {
            fixture.ops.plan(at(Op::TryLock, role, What::Before(errno)).for_ever());
        }
        append(&store, "m-2").unwrap();
        assert_eq!(store.locking(), Support::Unsupported);

        fs::hard_link(fixture.path(), fixture.marker()).unwrap();
        let other = open_in(&fixture.dir(), NAME);
        assert!(lock(&other, Lock::Exclusive));
        let error = refused(fixture.load(), Code::RollbackFailed);
        assert!(!error.in_flight());
    }
}

// Requirement: S2, S8
#[test]
fn a_load_waits_for_a_commit_in_flight_and_refuses_one_that_does_not_end() {
    let (fixture, _) = Fixture::with_entries(1);
    fs::hard_link(fixture.path(), fixture.marker()).unwrap();
    let other = open_in(&fixture.dir(), NAME);
    assert!(lock(&other, Lock::Exclusive));
    for error in
        [refused(fixture.load(), Code::RollbackFailed), refused(fixture.create(), Code::RollbackFailed)]
    {
        assert!(error.in_flight() && !error.poisoned(), "{error}");
    }
    assert!(fixture.ops.count(Op::Pause, Role::Session) < 1_000);

    fixture.ops.forget();
    let marker = fixture.marker();
    fixture.ops.plan(at(Op::Pause, Role::Session, actor(move || fs::remove_file(&marker).unwrap())).nth(5));
    assert_eq!(ids(&fixture.load().unwrap()), ["e-1"]);
    assert_eq!(fixture.ops.fired(), 1);
}

// Requirement: S2, S8
#[test]
fn a_marker_that_nobody_holds_is_a_crash() {
    let (fixture, _) = Fixture::with_entries(1);
    fs::hard_link(fixture.path(), fixture.marker()).unwrap();
    let error = refused(fixture.load(), Code::RollbackFailed);
    assert_eq!((error.in_flight(), error.stage()), (false, Some(Stage::V2)));
    assert_eq!(fixture.ops.count(Op::Pause, Role::Session), 0);
    let error = refused(fixture.create(), Code::RollbackFailed);
    assert_eq!((error.in_flight(), error.stage()), (false, Some(Stage::K1)));
    assert_eq!(fixture.descriptors(), 0);
}

// Requirement: S2, S8
#[test]
fn a_marker_that_cannot_be_opened_or_locked_is_an_error_with_its_number() {
    for (op, errno) in [(Op::Open, Errno::EACCES), (Op::TryLock, Errno::EIO)] {
        let (fixture, _) = Fixture::with_entries(1);
        fs::hard_link(fixture.path(), fixture.marker()).unwrap();
        fixture.ops.plan(at(op, Role::Marker, What::Before(errno)));
        let error = refused(fixture.load(), Code::Io);
        assert_eq!((error.errno(), error.stage()), (Some(errno), Some(Stage::V2)));
    }
}

// Requirement: S8
#[test]
fn a_marker_is_judged_while_no_commit_can_begin() {
    let (fixture, _) = Fixture::with_entries(1);
    fs::hard_link(fixture.path(), fixture.marker()).unwrap();
    let dir = fixture.dir();
    // The look that decides: were the lock given back before it, the marker could be that of the next commit.
    fixture.ops.plan(
        at(
            Op::StatAt,
            Role::Marker,
            actor(move || assert!(!lock(&open_in(&dir, NAME), Lock::Exclusive), "a commit could begin")),
        )
        .nth(2),
    );
    refused(fixture.load(), Code::RollbackFailed);
    assert_eq!(fixture.ops.fired(), 1);
}

// Requirement: S2
#[test]
fn a_marker_that_turns_into_a_symlink_is_refused_and_not_followed() {
    let (fixture, _) = Fixture::with_entries(1);
    fs::hard_link(fixture.path(), fixture.marker()).unwrap();
    let (marker, target) = (fixture.marker(), fixture.path());
    fixture.ops.plan(at(
        Op::Open,
        Role::Marker,
        actor(move || {
            fs::remove_file(&marker).unwrap();
            symlink(&target, &marker).unwrap();
        }),
    ));
    let error = refused(fixture.load(), Code::RollbackFailed);
    assert_eq!(error.stage(), Some(Stage::V2));
}

// Requirement: S1, C22
#[test]
fn a_create_that_fails_at_any_call_leaves_nothing_or_a_whole_session() {
    let calls = {
        let fixture = Fixture::new();
        fixture.create().unwrap();
        fixture.ops.calls()
    };
    for what in [What::Before as fn(Errno) -> What, What::After] {
        for errno in ERRNOS {
            for index in 0..calls {
                let fixture = Fixture::new();
                fixture.ops.plan(at_index(index, what(errno)));
                let answer = fixture.create();
                let at = format!("{errno} at {:?}", fixture.ops.trace()[index]);
                assert_eq!(fixture.ops.fired(), 1);
                fixture.ops.forget();
                match answer {
                    Ok(store) => append(&store, "m-1").map(drop).unwrap(),
                    Err(error) => {
                        assert!(error.stage().is_some(), "{at}: {error}");
                        let strays = fixture.names().len();
                        assert!(strays == 0 || error.stage() == Some(Stage::K2), "{at}: {error}");
                        append(&fixture.create().unwrap(), "m-1").unwrap();
                    }
                }
                assert_eq!(fixture.cold_ids(), ["e-1"], "{at}");
                assert_eq!(fixture.descriptors(), 0, "{at}");
            }
        }
    }
}

// Requirement: S1, C27
#[test]
fn each_stage_of_create_answers_with_its_name() {
    let cases = [
        (Op::NameLimit, Role::Directory, Stage::K1),
        (Op::StatAt, Role::Marker, Stage::K1),
        (Op::StatAt, Role::Session, Stage::K1),
        (Op::CreateNew, Role::Temporary, Stage::K2),
        (Op::WriteAt, Role::Temporary, Stage::K3),
        (Op::Sync, Role::Temporary, Stage::K4),
        (Op::Close, Role::Temporary, Stage::K4),
        (Op::Link, Role::Session, Stage::K5),
        (Op::SyncDir, Role::Directory, Stage::K7),
    ];
    for (op, role, stage) in cases {
        let fixture = Fixture::new();
        fixture.ops.plan(at(op, role, What::Before(Errno::EIO)));
        let error = refused(fixture.create(), Code::Io);
        assert_eq!((error.stage(), error.errno()), (Some(stage), Some(Errno::EIO)), "{error}");
        assert_eq!(fixture.names().len(), 0);
    }
    let fixture = Fixture::new();
    fixture.ops.plan(at(Op::StatAt, Role::Session, What::Before(Errno::EIO)).nth(2));
    assert_eq!(refused(fixture.create(), Code::Io).stage(), Some(Stage::K6));
    assert_eq!(fixture.names().len(), 0);
    let fixture = Fixture::new();
    fixture.ops.plan(at(Op::StatAt, Role::Session, What::Before(Errno::ENOENT)).nth(2));
    assert_eq!(refused(fixture.create(), Code::FileChanged).stage(), Some(Stage::K6));
}

// Requirement: S1
#[test]
fn a_link_of_create_that_failed_after_its_effect_is_undone() {
    for errno in [Errno::EIO, Errno::EINTR, Errno::EEXIST] {
        let fixture = Fixture::new();
        fixture.ops.plan(at(Op::Link, Role::Session, What::After(errno)));
        let error = refused(fixture.create(), Code::Io);
        assert_eq!((error.stage(), error.errno()), (Some(Stage::K5), Some(errno)));
        assert_eq!(fixture.names().len(), 0);
        assert_eq!(fixture.ops.count(Op::SyncDir, Role::Directory), 1);
    }
}

// Requirement: S1, C21
#[test]
fn a_path_that_appears_during_create_is_left_alone() {
    let fixture = Fixture::new();
    let path = fixture.path();
    fixture.ops.plan(at(Op::Link, Role::Session, actor(move || fs::write(&path, "stranger").unwrap())));
    let error = refused(fixture.create(), Code::AlreadyExists);
    assert_eq!(error.stage(), Some(Stage::K5));
    assert_eq!(fixture.bytes(), b"stranger");
    assert!(fixture.is_tidy());

    let fixture = Fixture::new();
    let path = fixture.path();
    fixture.ops.plan(at(Op::StatAt, Role::Session, actor(move || replace(&path, b"stranger"))).nth(2));
    let error = refused(fixture.create(), Code::FileChanged);
    assert_eq!(error.stage(), Some(Stage::K6));
    assert_eq!(fixture.bytes(), b"stranger");
    assert!(fixture.is_tidy());
}

// Requirement: S3
#[test]
fn a_directory_that_goes_between_the_look_and_the_open_has_changed() {
    for errno in [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP] {
        let (fixture, _) = Fixture::with_entries(1);
        fixture.ops.plan(at(Op::OpenDir, Role::Directory, What::Before(errno)));
        let error = refused(fixture.load(), Code::RootChanged);
        assert_eq!((error.errno(), error.stage()), (Some(errno), Some(Stage::V1)));
    }
}

// Requirement: S1, C21
#[test]
fn a_temporary_replaced_before_create_links_it_never_gets_the_path() {
    let fixture = Fixture::new();
    let dir = fixture.dir();
    let swap = actor(move || {
        let entry = fs::read_dir(&dir).unwrap().next().unwrap().unwrap();
        replace(&entry.path(), b"stranger");
    });
    fixture.ops.plan(at(Op::StatAt, Role::Temporary, swap));
    let error = refused(fixture.create(), Code::FileChanged);
    assert_eq!((error.stage(), fixture.ops.fired()), (Some(Stage::K5), 1));
    assert!(fixture.path().symlink_metadata().is_err(), "the stranger's file got the path");
    assert_eq!(fixture.names().len(), 1);
}

// Requirement: S1
#[test]
fn a_create_whose_temporary_stays_is_a_success() {
    let fixture = Fixture::new();
    fixture.ops.plan(at(Op::Unlink, Role::Temporary, What::Before(Errno::EIO)).for_ever());
    fixture.ops.plan(at(Op::SyncDir, Role::Directory, What::Before(Errno::EIO)).nth(2));
    append(&fixture.create().unwrap(), "m-1").unwrap();
    assert_eq!(fixture.ops.count(Op::Unlink, Role::Temporary), 3);
    assert_eq!(fixture.cold_ids(), ["e-1"]);
}

// Requirement: S1, S8
#[test]
fn a_new_session_is_locked_before_it_gets_its_name_and_free_afterwards() {
    let fixture = Fixture::new();
    let dir = fixture.dir();
    fixture.ops.plan(at(
        Op::SyncDir,
        Role::Directory,
        actor(move || assert!(!lock(&open_in(&dir, NAME), Lock::Shared), "a new session is free")),
    ));
    let store = fixture.create().unwrap();
    assert_eq!(fixture.ops.fired(), 1);
    assert!(lock(&open_in(&fixture.dir(), NAME), Lock::Exclusive));
    assert_eq!(fixture.descriptors(), 2);
    drop(store);
}

// Requirement: S2, C22
#[test]
fn a_load_that_fails_at_any_call_changes_nothing() {
    let (fixture, _) = Fixture::with_entries(2);
    let before = fixture.bytes();
    fixture.load().unwrap();
    let calls = fixture.ops.calls();
    for errno in [Errno::EIO, Errno::EMFILE, Errno::EACCES] {
        for index in 0..calls {
            fixture.ops.forget();
            fixture.ops.plan(at_index(index, What::Before(errno)));
            let error = refused(fixture.load(), Code::Io);
            assert_eq!(error.errno(), Some(errno));
            assert!(error.stage().is_some_and(|stage| stage.id().starts_with('V')), "{error}");
            assert_eq!(fixture.bytes(), before);
            assert!(fixture.is_tidy());
            assert_eq!(fixture.descriptors(), 0);
        }
    }
}

// Requirement: S2
#[test]
fn each_stage_of_load_answers_with_its_name() {
    let cases = [
        (Op::StatPath, Role::Directory, 1, Stage::V1),
        (Op::OpenDir, Role::Directory, 1, Stage::V1),
        (Op::StatDir, Role::Directory, 1, Stage::V1),
        (Op::StatAt, Role::Marker, 1, Stage::V2),
        (Op::StatAt, Role::Session, 1, Stage::V3),
        (Op::Open, Role::Session, 1, Stage::V4),
        (Op::Stat, Role::Session, 1, Stage::V4),
        (Op::ReadAt, Role::Session, 1, Stage::V5),
        (Op::Stat, Role::Session, 2, Stage::V5),
        (Op::StatAt, Role::Marker, 2, Stage::V6),
        (Op::StatAt, Role::Session, 2, Stage::V6),
        (Op::StatPath, Role::Directory, 2, Stage::V6),
    ];
    let (fixture, _) = Fixture::with_entries(1);
    for (op, role, nth, stage) in cases {
        fixture.ops.forget();
        fixture.ops.plan(at(op, role, What::Before(Errno::EIO)).nth(nth));
        let error = refused(fixture.load(), Code::Io);
        assert_eq!((error.stage(), error.errno()), (Some(stage), Some(Errno::EIO)), "{error}");
    }
}

// Requirement: S2
#[test]
fn a_read_is_continued_and_one_that_ends_early_is_refused() {
    let (fixture, _) = Fixture::with_entries(2);
    fixture.ops.plan(at(Op::ReadAt, Role::Session, What::AtMost(5)).for_ever());
    assert_eq!(ids(&fixture.load().unwrap()), ["e-1", "e-2"]);
    fixture.ops.forget();
    fixture.ops.plan(at(Op::ReadAt, Role::Session, What::AtMost(0)));
    let error = refused(fixture.load(), Code::FileChanged);
    assert_eq!(error.stage(), Some(Stage::V5));
}

// Requirement: S2
#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    for grow in [true, false] {
        let (fixture, _) = Fixture::with_entries(2);
        let path = fixture.path();
        fixture.ops.plan(at(
            Op::ReadAt,
            Role::Session,
            actor(move || {
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                let size = file.metadata().unwrap().len();
                file.set_len(if grow { size + 1 } else { size - 1 }).unwrap();
            }),
        ));
        let error = refused(fixture.load(), Code::FileChanged);
        assert_eq!(error.stage(), Some(Stage::V5));
        assert_eq!(fixture.descriptors(), 0);
    }
}

// Requirement: S2
#[test]
fn a_generation_that_may_still_be_rolled_back_is_never_shown() {
    let (fixture, store) = Fixture::with_entries(1);
    let old = fixture.bytes();
    append(&store, "m-2").unwrap();
    fixture.ops.forget();
    // While the new generation is read, its commit is seen to be in flight; then it is taken back.
    let (dir, path, marker) = (fixture.dir(), fixture.path(), fixture.marker());
    fs::write(fixture.outside("old"), &old).unwrap();
    let aside = fixture.outside("old");
    let held: Arc<Mutex<Option<OsFile>>> = Arc::default();
    let (second_name, holder) = (marker.clone(), Arc::clone(&held));
    fixture.ops.plan(at(
        Op::ReadAt,
        Role::Session,
        actor(move || {
            fs::hard_link(&aside, &second_name).unwrap();
            let other = open_in(&dir, &format!("{NAME}.pify-session-recovery"));
            assert!(lock(&other, Lock::Exclusive));
            *holder.lock().unwrap() = Some(other);
        }),
    ));
    fixture.ops.plan(at(Op::Pause, Role::Session, actor(move || fs::rename(&marker, &path).unwrap())).nth(3));
    assert_eq!(ids(&fixture.load().unwrap()), ["e-1"]);
    assert_eq!(fixture.ops.fired(), 2);
}

// Requirement: S2
#[test]
fn a_file_replaced_during_a_load_is_read_again_and_given_up_in_the_end() {
    for (op, nth) in [(Op::Open, 1), (Op::StatAt, 2), (Op::ReadAt, 1)] {
        let (fixture, _) = Fixture::with_entries(1);
        let bytes = fixture.bytes();
        let other = String::from_utf8(bytes.clone()).unwrap().replace("e-1", "x-1");
        let path = fixture.path();
        fixture.ops.plan(at(op, Role::Session, actor(move || replace(&path, other.as_bytes()))).nth(nth));
        assert_eq!(ids(&fixture.load().unwrap()), ["x-1"], "{op:?}");
        assert_eq!(fixture.ops.fired(), 1);

        fixture.ops.forget();
        let path = fixture.path();
        fixture.ops.plan(at(op, Role::Session, actor(move || replace(&path, &bytes))).nth(nth).for_ever());
        refused(fixture.load(), Code::FileChanged);
        assert!(fixture.ops.fired() < 1_000);
        assert_eq!(fixture.descriptors(), 0);
    }
}

// Requirement: S2
#[test]
fn a_file_that_goes_during_a_load_is_refused_in_the_end() {
    for errno in [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP] {
        let (fixture, _) = Fixture::with_entries(1);
        fixture.ops.plan(at(Op::StatAt, Role::Session, What::Before(errno)).nth(2).for_ever());
        let error = refused(fixture.load(), Code::FileChanged);
        assert!(error.stage() == Some(Stage::V3) || error.stage() == Some(Stage::V6), "{error}");
        fixture.ops.forget();
        fixture.ops.plan(at(Op::Open, Role::Session, What::Before(errno)).for_ever());
        let error = refused(fixture.load(), Code::FileChanged);
        assert_eq!(error.stage(), Some(Stage::V4));
        // At a first look it is what the system said.
        fixture.ops.forget();
        fixture.ops.plan(at(Op::StatAt, Role::Session, What::Before(errno)));
        assert_eq!(refused(fixture.load(), Code::Io).errno(), Some(errno));
    }
}

fn open_in(dir: &std::path::Path, name: &str) -> OsFile {
    let ops = OsFileOps::new();
    let dir: OsDir = ops.open_dir(dir).unwrap();
    ops.open(&dir, name.as_ref(), Access::Read).unwrap()
}

fn lock(file: &OsFile, kind: Lock) -> bool {
    OsFileOps::new().try_lock(file, kind).unwrap()
}
