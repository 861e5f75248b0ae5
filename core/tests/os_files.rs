//! What stands at a session's names on a real file system, and how the operating system is asked about it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use session_tree::file_ops::{Access, FileKind, FileOps, OsFileOps};
use session_tree::recover::remove_strays;
use session_tree::{Code, Errno, Message, Store};
use tempfile::TempDir;

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.jsonl");
    (directory, path)
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

// Requirement: C2, S1
#[test]
fn an_exclusive_create_refuses_a_name_that_is_taken() {
    let (directory, path) = directory();
    fs::write(&path, "somebody else's").unwrap();
    let ops = OsFileOps::new();
    let root = ops.open_dir(directory.path()).unwrap();
    let answer = ops.create_new(&root, OsStr::new("session.jsonl"), 0o600);
    assert_eq!(answer.err(), Some(Errno::EEXIST));
    assert_eq!(fs::read_to_string(&path).unwrap(), "somebody else's");
}

// Requirement: S2
#[test]
fn only_a_regular_file_is_loaded_and_no_link_is_followed() {
    let (directory, path) = directory();
    let elsewhere = directory.path().join("elsewhere.jsonl");
    drop(Store::create(&elsewhere).unwrap());
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(Store::load(&path).unwrap_err().code(), Code::FileChanged, "a symbolic link");
    fs::remove_file(&path).unwrap();
    fifo(&path);
    assert_eq!(Store::load(&path).unwrap_err().code(), Code::FileChanged, "a FIFO");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(Store::load(&path).unwrap_err().code(), Code::FileChanged, "a directory");
}

// Requirement: S3
#[test]
fn a_directory_that_is_a_link_is_refused() {
    let (directory, _) = directory();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let error = Store::create(link.join("session.jsonl")).unwrap_err();
    assert_eq!(error.code(), Code::RootChanged);
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
}

// Requirement: S2, S3
#[test]
fn neither_a_directory_nor_a_file_is_opened_through_a_link() {
    let (directory, path) = directory();
    fs::write(&path, "a file").unwrap();
    symlink(&path, directory.path().join("link")).unwrap();
    symlink(".", directory.path().join("here")).unwrap();
    let ops = OsFileOps::new();
    let root = ops.open_dir(directory.path()).unwrap();
    assert_eq!(ops.open_dir(&path).err(), Some(Errno::ENOTDIR));
    assert!(ops.open_dir(&directory.path().join("here")).is_err());
    for access in [Access::Read, Access::ReadWrite] {
        assert_eq!(ops.open(&root, OsStr::new("link"), access).err(), Some(Errno::ELOOP));
    }
    assert_eq!(ops.create_new(&root, OsStr::new("link"), 0o600).err(), Some(Errno::EEXIST));
}

// Requirement: S2, X3
#[test]
fn every_name_is_listed_once_and_told_by_its_kind() {
    let (directory, path) = directory();
    fs::write(&path, "a file").unwrap();
    symlink(&path, directory.path().join("link")).unwrap();
    fs::create_dir(directory.path().join("directory")).unwrap();
    fifo(&directory.path().join("fifo"));
    let _socket = UnixListener::bind(directory.path().join("socket")).unwrap();
    let ops = OsFileOps::new();
    let root = ops.open_dir(directory.path()).unwrap();
    let mut names = ops.list(&root).unwrap();
    names.sort();
    let kinds: Vec<_> =
        names.iter().map(|name| (name.to_str().unwrap(), ops.stat_at(&root, name).unwrap().kind)).collect();
    assert_eq!(
        kinds,
        [
            ("directory", FileKind::Directory),
            ("fifo", FileKind::Fifo),
            ("link", FileKind::Symlink),
            ("session.jsonl", FileKind::Regular),
            ("socket", FileKind::Other),
        ]
    );
}

// Requirement: S4
#[test]
fn a_file_has_a_birth_time_where_its_file_system_knows_one() {
    let (_directory, path) = directory();
    fs::write(&path, "a file").unwrap();
    let ops = OsFileOps::new();
    let known = fs::metadata(&path).unwrap().created().ok();
    let seconds = known.map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_secs());
    let birth = ops.stat_path(&path).unwrap().birth;
    assert_eq!(birth.map(|time| time.seconds.unsigned_abs()), seconds);
    // No file system of processes keeps them.
    assert_eq!(ops.stat_path(Path::new("/proc/self/status")).unwrap().birth, None);
}

// Requirement: C4, C10
#[test]
fn an_fsync_that_the_system_refuses_is_no_success() {
    let (directory, path) = directory();
    fifo(&path);
    let ops = OsFileOps::new();
    let root = ops.open_dir(directory.path()).unwrap();
    let fifo = ops.open(&root, OsStr::new("session.jsonl"), Access::Read).unwrap();
    assert_eq!(ops.sync(&fifo), Err(Errno::EINVAL));
    let processes = ops.open_dir(Path::new("/proc/self/fd")).unwrap();
    assert_eq!(ops.sync_dir(&processes), Err(Errno::EINVAL));
}

// Requirement: C22
#[test]
fn no_descriptor_is_handed_on_to_a_program_that_is_started() {
    let (directory, path) = directory();
    fs::write(&path, "a file").unwrap();
    let ops = OsFileOps::new();
    let root = ops.open_dir(directory.path()).unwrap();
    let held = [
        ops.open(&root, OsStr::new("session.jsonl"), Access::Read).unwrap(),
        ops.open(&root, OsStr::new("session.jsonl"), Access::ReadWrite).unwrap(),
        ops.create_new(&root, OsStr::new("new"), 0o600).unwrap(),
    ];
    let within = directory.path().canonicalize().unwrap();
    let descriptors: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(&within)))
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(descriptors.len(), 1 + held.len());
    for descriptor in descriptors {
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        let flags = u32::from_str_radix(flags, 8).unwrap();
        assert_ne!(flags & OFlags::CLOEXEC.bits(), 0, "{about}");
    }
}

// Requirement: S2
#[test]
fn opening_a_fifo_that_nobody_writes_to_does_not_wait() {
    let (directory, path) = directory();
    fifo(&path);
    let ops = OsFileOps::new();
    let root = ops.open_dir(directory.path()).unwrap();
    let (told, answer) = mpsc::channel();
    let opener = thread::spawn(move || {
        let file = ops.open(&root, OsStr::new("session.jsonl"), Access::Read);
        told.send(file.is_ok()).unwrap();
    });
    let is_open = answer.recv_timeout(Duration::from_secs(20));
    if is_open.is_err() {
        // Lets the opener go, or its thread would outlive the test.
        drop(File::options().write(true).open(&path));
    }
    opener.join().unwrap();
    assert_eq!(is_open, Ok(true));
}

// Requirement: S1, S2, C1
#[test]
fn a_marker_that_nobody_holds_refuses_load_create_and_append() {
    let (directory, path) = directory();
    let store = Store::create(&path).unwrap();
    fs::hard_link(&path, directory.path().join("session.jsonl.pify-session-recovery")).unwrap();
    let error = Store::load(&path).unwrap_err();
    assert_eq!((error.code(), error.in_flight()), (Code::RollbackFailed, false));
    assert_eq!(Store::create(&path).unwrap_err().code(), Code::RollbackFailed);
    let error = store.append(None, Message::user("m", "x")).unwrap_err();
    assert_eq!((error.code(), error.poisoned()), (Code::RollbackFailed, false));
    assert!(fs::exists(directory.path().join("session.jsonl.pify-session-recovery")).unwrap());
}

// Requirement: S4, S4.rewrite
#[test]
fn a_rewrite_in_place_of_equal_size_is_noticed() {
    let (_directory, path) = directory();
    let store = Store::create(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(modified + Duration::from_secs(1)).unwrap();
    let error = store.append(None, Message::user("m", "x")).unwrap_err();
    assert_eq!(error.code(), Code::FileChanged);
}

// Requirement: S4
#[test]
fn another_file_of_equal_size_and_time_is_noticed() {
    let (directory, path) = directory();
    let store = Store::create(&path).unwrap();
    let other = directory.path().join("other");
    fs::copy(&path, &other).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(&other, &path).unwrap();
    let error = store.append(None, Message::user("m", "x")).unwrap_err();
    assert_eq!(error.code(), Code::FileChanged);
}

// Requirement: X2, X3
#[test]
fn a_stray_that_may_be_the_only_copy_of_an_entry_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.jsonl");
    let beside = |kind: &str| directory.path().join(format!("s.jsonl.pify-session-{kind}1-{ID}"));
    let store = Store::create(&path).unwrap();
    store.append(None, Message::user("m", "text")).unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();
    let header = &whole[..=whole.iter().position(|byte| *byte == b'\n').unwrap()];

    // Damaged, and a temporary holds the entry.
    fs::write(&path, "not-json").unwrap();
    fs::write(beside("restore-"), &whole).unwrap();
    assert_eq!(remove_strays(&path).unwrap_err().code(), Code::RollbackFailed);
    assert_eq!(fs::read(beside("restore-")).unwrap(), whole);

    // Gone: what holds no entry may go, what holds one stays.
    fs::remove_file(&path).unwrap();
    fs::write(beside(""), header).unwrap();
    let removed = remove_strays(&path).unwrap();
    assert_eq!(removed.len(), 1);
    assert!(!beside("").exists() && beside("restore-").exists());

    // The session loads: it needs none of them.
    fs::write(&path, &whole).unwrap();
    assert_eq!(remove_strays(&path).unwrap().len(), 1);
    assert!(!beside("restore-").exists());
}

const ID: &str = "11111111-1111-1111-1111-111111111111";
