use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use session_tree::Errno;
use session_tree::file_ops::{Access, FileKind, FileOps, Lock};

use super::state::ROOT_NUMBER;
use super::*;

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn root(process: &Process) -> SimDir {
    process.open_dir(Path::new("/")).unwrap()
}

fn create(process: &Process, text: &str, bytes: &[u8]) -> SimFile {
    let file = process.create_new(&root(process), name(text), 0o600).unwrap();
    assert_eq!(write(process, &file, bytes, 0), Ok(bytes.len()));
    file
}

fn write(process: &Process, file: &SimFile, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    process.write_at(file, &[IoSlice::new(bytes)], offset)
}

fn limited(limit: impl FnOnce(&mut Options)) -> Disk {
    let disk = Disk::default();
    disk.update_options(limit);
    disk
}

fn names(disk: &Disk) -> Vec<OsString> {
    disk.list("/").unwrap()
}

fn durable(disk: &Disk, path: &str) -> Option<Vec<u8>> {
    disk.durable_tree().get(path).map(|node| node.bytes.to_vec())
}

// Requirement: C3
#[test]
fn write_that_does_not_fit_writes_what_fits_and_then_nothing() {
    let disk = limited(|it| it.space = Some(10));
    let process = disk.process(1);
    let file = create(&process, "a", b"123456");
    assert_eq!(write(&process, &file, b"abcdefgh", 6), Ok(4));
    assert_eq!(write(&process, &file, b"x", 10), Err(Errno::ENOSPC));
    assert_eq!(write(&process, &file, b"XY", 0), Ok(2), "overwriting takes no room");
    assert_eq!(disk.read_file("/a"), Ok(b"XY3456abcd".to_vec()));
}

// Requirement: C3
#[test]
fn full_disk_that_is_emptied_takes_writes_again() {
    let disk = limited(|it| it.space = Some(4));
    let process = disk.process(1);
    let file = create(&process, "a", b"1234");
    let other = process.create_new(&root(&process), name("b"), 0o600).unwrap();
    process.unlink(&root(&process), name("a")).unwrap();
    assert_eq!(write(&process, &other, b"x", 0), Err(Errno::ENOSPC), "an open file keeps its room");
    drop(file);
    assert_eq!(write(&process, &other, b"x", 0), Ok(1));
    disk.update_options(|it| it.space = None);
    assert_eq!(write(&process, &other, b"12345", 0), Ok(5));
}

#[test]
fn gap_before_a_write_needs_room_too() {
    let disk = limited(|it| it.space = Some(10));
    let process = disk.process(1);
    let file = create(&process, "a", b"");
    assert_eq!(write(&process, &file, b"x", 10), Err(Errno::ENOSPC));
    assert_eq!(write(&process, &file, b"xyz", 8), Ok(2));
    assert_eq!(disk.read_file("/a"), Ok(b"\0\0\0\0\0\0\0\0xy".to_vec()));
}

// Requirement: C2, C6
#[test]
fn names_that_cost_space_are_refused_on_a_full_disk() {
    let disk = limited(|it| (it.space, it.entry_space) = (Some(25), 10));
    let process = disk.process(1);
    drop(create(&process, "a", b""));
    let dir = root(&process);
    assert_eq!(process.link(&dir, name("a"), name("b")), Ok(()));
    assert_eq!(process.link(&dir, name("a"), name("c")), Err(Errno::ENOSPC));
    assert_eq!(process.create_new(&dir, name("c"), 0o600).err(), Some(Errno::ENOSPC));
    assert_eq!(process.rename(&dir, name("b"), name("c")), Ok(()));
    assert_eq!(process.unlink(&dir, name("c")), Ok(()));
    assert_eq!(disk.room(), 15);
}

// Requirement: C2
#[test]
fn disk_without_free_inodes_refuses_new_files_until_one_is_gone() {
    let disk = limited(|it| it.inodes = Some(2));
    let process = disk.process(1);
    let file = create(&process, "a", b"");
    let dir = root(&process);
    assert_eq!(process.create_new(&dir, name("b"), 0o600).err(), Some(Errno::ENOSPC));
    assert_eq!(process.link(&dir, name("a"), name("b")), Ok(()));
    process.unlink(&dir, name("a")).unwrap();
    process.unlink(&dir, name("b")).unwrap();
    assert_eq!(process.create_new(&dir, name("c"), 0o600).err(), Some(Errno::ENOSPC));
    process.close(file).unwrap();
    assert!(process.create_new(&dir, name("c"), 0o600).is_ok());
}

// Requirement: C22
#[test]
fn descriptors_are_counted_per_process_and_freed_on_drop_and_close() {
    let disk = limited(|it| it.descriptors_per_process = Some(3));
    let (one, two) = (disk.process(1), disk.process(2));
    let dir = root(&one);
    let file = create(&one, "a", b"");
    let read = one.open(&dir, name("a"), Access::Read).unwrap();
    assert_eq!(one.open(&dir, name("a"), Access::Read).err(), Some(Errno::EMFILE));
    assert_eq!(one.create_new(&dir, name("b"), 0o600).err(), Some(Errno::EMFILE));
    assert_eq!(one.open_dir(Path::new("/")).err(), Some(Errno::EMFILE));
    assert_eq!(one.list(&dir), Err(Errno::EMFILE));
    assert!(!disk.exists("/b"), "nothing was made");
    assert_eq!((disk.open_descriptors(1), disk.open_descriptors(2)), (3, 0));
    drop(root(&two));
    drop(read);
    one.close(file).unwrap();
    assert_eq!(disk.open_descriptors(1), 1);
    assert_eq!(one.list(&dir), Ok(vec!["a".into()]));
}

#[test]
fn read_only_disk_refuses_every_change_and_shows_everything() {
    let disk = Disk::default();
    disk.write_file("/a", "text").unwrap();
    let process = disk.process(1);
    let dir = root(&process);
    let file = process.open(&dir, name("a"), Access::ReadWrite).unwrap();
    let before = disk.snapshot();
    disk.update_options(|it| it.read_only = true);
    assert_eq!(process.create_new(&dir, name("b"), 0o600).err(), Some(Errno::EROFS));
    assert_eq!(process.create_new(&dir, name("a"), 0o600).err(), Some(Errno::EEXIST));
    assert_eq!(process.open(&dir, name("a"), Access::ReadWrite).err(), Some(Errno::EROFS));
    assert_eq!(process.link(&dir, name("a"), name("b")), Err(Errno::EROFS));
    assert_eq!(process.rename(&dir, name("a"), name("b")), Err(Errno::EROFS));
    assert_eq!(process.unlink(&dir, name("a")), Err(Errno::EROFS));
    assert_eq!(process.set_mode(&file, 0o777), Err(Errno::EROFS));
    assert_eq!(write(&process, &file, b"x", 0), Err(Errno::EROFS));
    assert_eq!(disk.mkdir("/d"), Err(Errno::EROFS));
    assert_eq!(disk.write_file("/a", "new"), Err(Errno::EROFS));
    assert_eq!(disk.snapshot(), before);
    assert_eq!(disk.read_file("/a"), Ok(b"text".to_vec()));
}

// Requirement: S8
#[test]
fn locks_exclude_between_descriptors_and_end_with_them() {
    let disk = Disk::default();
    disk.write_file("/a", "").unwrap();
    let (one, two) = (disk.process(1), disk.process(2));
    let of_one = one.open(&root(&one), name("a"), Access::Read).unwrap();
    let second_of_one = one.open(&root(&one), name("a"), Access::Read).unwrap();
    let of_two = two.open(&root(&two), name("a"), Access::Read).unwrap();
    assert_eq!(one.try_lock(&of_one, Lock::Exclusive), Ok(true));
    assert_eq!(one.try_lock(&second_of_one, Lock::Shared), Ok(false));
    assert_eq!(two.try_lock(&of_two, Lock::Shared), Ok(false));
    assert_eq!(disk.held_locks(), 1);
    one.close(of_one).unwrap();
    assert_eq!(two.try_lock(&of_two, Lock::Shared), Ok(true));
    assert_eq!(one.try_lock(&second_of_one, Lock::Shared), Ok(true));
    assert_eq!(one.try_lock(&second_of_one, Lock::Exclusive), Ok(false));
    assert_eq!(disk.held_locks(), 1, "a conversion that fails has given the lock back");
    one.unlock(&second_of_one);
    disk.kill(2);
    assert_eq!(disk.held_locks(), 0);
}

// Requirement: S8
#[test]
fn disk_without_locks_says_so() {
    let disk = limited(|it| it.locks = LockSupport::Unsupported(Errno::ENOLCK));
    let process = disk.process(1);
    let file = create(&process, "a", b"");
    assert_eq!(process.try_lock(&file, Lock::Shared), Err(Errno::ENOLCK));
    assert_eq!(disk.held_locks(), 0);
}

// Requirement: S8
#[test]
fn exclusive_lock_may_need_a_descriptor_open_for_writing() {
    let disk = limited(|it| it.locks = LockSupport::ExclusiveNeedsWriting);
    disk.write_file("/a", "").unwrap();
    let process = disk.process(1);
    let read = process.open(&root(&process), name("a"), Access::Read).unwrap();
    assert_eq!(process.try_lock(&read, Lock::Exclusive), Err(Errno::EBADF));
    assert_eq!(process.try_lock(&read, Lock::Shared), Ok(true));
    drop(read);
    let write = process.open(&root(&process), name("a"), Access::ReadWrite).unwrap();
    assert_eq!(process.try_lock(&write, Lock::Exclusive), Ok(true));
}

// Requirement: C27
#[test]
fn disk_without_hard_links_refuses_them() {
    let disk = limited(|it| it.hard_links = false);
    let process = disk.process(1);
    drop(create(&process, "a", b""));
    assert_eq!(process.link(&root(&process), name("a"), name("b")), Err(Errno::EPERM));
    disk.update_options(|it| (it.hard_links, it.links_per_inode) = (true, 2));
    assert_eq!(process.link(&root(&process), name("a"), name("b")), Ok(()));
    assert_eq!(process.link(&root(&process), name("a"), name("c")), Err(Errno::EMLINK));
}

// Requirement: C26
#[test]
fn unsupported_directory_fsync_answers_so_and_makes_nothing_durable() {
    let disk = limited(|it| it.directory_sync = Err(Errno::EINVAL));
    let process = disk.process(1);
    let file = create(&process, "a", b"text");
    process.sync(&file).unwrap();
    assert_eq!(process.sync_dir(&root(&process)), Err(Errno::EINVAL));
    assert_eq!(durable(&disk, "/a"), None);
}

#[test]
fn file_beyond_the_largest_size_is_refused() {
    let disk = limited(|it| it.largest_file = 4);
    let process = disk.process(1);
    let file = create(&process, "a", b"");
    assert_eq!(write(&process, &file, b"123456", 0), Ok(4));
    assert_eq!(write(&process, &file, b"5", 4), Err(Errno::EFBIG));
    assert_eq!(disk.truncate("/a", 5), Err(Errno::EFBIG));
}

// Requirement: S1
#[test]
fn longer_name_than_the_limit_is_refused_and_the_limit_is_told() {
    let disk = limited(|it| it.name_limit = 143);
    let process = disk.process(1);
    let dir = root(&process);
    assert_eq!(process.name_limit(&dir), Ok(143));
    assert!(process.create_new(&dir, name(&"n".repeat(143)), 0o600).is_ok());
    assert_eq!(process.create_new(&dir, name(&"n".repeat(144)), 0o600).err(), Some(Errno::ENAMETOOLONG));
    assert_eq!(process.stat_at(&dir, name("a/b")), Err(Errno::EINVAL));
}

#[test]
fn killed_process_has_no_further_effect() {
    let disk = Disk::default();
    let process = disk.process(7);
    let dir = root(&process);
    let file = create(&process, "a", b"text");
    assert_eq!(process.try_lock(&file, Lock::Exclusive), Ok(true));
    let copy = process.clone();
    let before = disk.snapshot();
    disk.kill(7);
    assert_eq!((disk.open_descriptors(7), disk.held_locks()), (0, 0));
    assert_eq!(write(&copy, &file, b"x", 0), Err(KILLED));
    assert_eq!(copy.create_new(&dir, name("b"), 0o600).err(), Some(KILLED));
    assert_eq!(copy.unlink(&dir, name("a")), Err(KILLED));
    assert_eq!(copy.stat_path(Path::new("/")), Err(KILLED));
    assert_eq!(copy.sync(&file), Err(KILLED));
    assert_eq!(disk.sync_with_fault(&file, SyncFault::SucceedDoingNothing), Err(KILLED));
    assert_eq!(disk.snapshot(), before);

    let next = disk.process(7);
    let files = [root(&next), root(&next)];
    drop((dir, file));
    assert_eq!(disk.open_descriptors(7), 2, "dropping a killed process's files touches no one else's");
    assert_eq!(files.iter().filter(|dir| next.stat_dir(dir).is_ok()).count(), 2);
    assert_eq!(copy.stat_path(Path::new("/")), Err(KILLED), "the old handle stays dead");
}

#[test]
fn file_of_another_process_or_machine_is_a_bad_descriptor() {
    let disk = Disk::default();
    let file = create(&disk.process(1), "a", b"text");
    assert_eq!(disk.process(2).stat(&file), Err(Errno::EBADF));
    assert_eq!(disk.fork().process(1).stat(&file), Err(Errno::EBADF));
    assert!(disk.process(1).stat(&file).is_ok());
}

#[test]
fn fork_and_original_do_not_see_each_other() {
    let disk = Disk::default();
    disk.write_file("/a", "text").unwrap();
    let process = disk.process(1);
    let held = process.open(&root(&process), name("a"), Access::ReadWrite).unwrap();
    assert_eq!(process.try_lock(&held, Lock::Exclusive), Ok(true));
    let fork = disk.fork();
    let before = disk.snapshot();
    assert_eq!(fork.snapshot(), before);
    assert_eq!(fork.unsettled(), disk.unsettled());
    assert_eq!((fork.held_locks(), fork.open_descriptors(1)), (0, 0));
    fork.overwrite_in_place("/a", "TEXT").unwrap();
    fork.write_file("/b", "").unwrap();
    fork.sync_all();
    assert_eq!(disk.snapshot(), before);
    assert_eq!(durable(&disk, "/a"), None);
    write(&process, &held, b"other", 0).unwrap();
    assert_eq!(fork.read_file("/a"), Ok(b"TEXT".to_vec()));
}

#[test]
fn fork_frees_what_only_a_descriptor_kept() {
    let disk = Disk::default();
    let process = disk.process(1);
    let (_one, _two) =
        (create(&process, "a", b"text"), process.open(&root(&process), name("a"), Access::Read));
    disk.remove("/a").unwrap();
    assert_eq!((disk.live_inodes(), disk.fork().live_inodes()), (2, 1));
    assert_books_balance(&disk);
    assert_books_balance(&disk.fork());
}

// Requirement: S4
#[test]
fn number_of_a_removed_inode_is_used_again_with_another_birth_time() {
    let disk = Disk::default();
    disk.write_file("/a", "").unwrap();
    let first = disk.look("/a").unwrap();
    disk.remove("/a").unwrap();
    disk.write_file("/a", "").unwrap();
    let second = disk.look("/a").unwrap();
    assert_eq!(first.inode, second.inode);
    assert_ne!(first.birth, second.birth);
    disk.update_options(|it| (it.reuse_inodes, it.birth_times) = (false, false));
    disk.remove("/a").unwrap();
    disk.write_file("/a", "").unwrap();
    let third = disk.look("/a").unwrap();
    assert_ne!(third.inode, second.inode);
    assert_eq!(third.birth, None);
}

// Requirement: S4
#[test]
fn every_write_changes_the_modification_time() {
    let disk = Disk::default();
    disk.write_file("/a", "text").unwrap();
    let first = disk.look("/a").unwrap();
    disk.overwrite_in_place("/a", "TEXT").unwrap();
    let second = disk.look("/a").unwrap();
    assert!(second.modified > first.modified);
    assert_eq!((second.inode, second.size), (first.inode, first.size));
}

#[test]
fn tags_differ_between_calls_processes_and_lives_and_are_as_long_as_uuids() {
    let disk = Disk::default();
    let first = disk.process(1).tag();
    disk.kill(1);
    let tags = [disk.process(1).tag(), disk.process(2).tag(), disk.fork().process(1).tag()];
    assert!(tags.iter().all(|tag| tag.unique != first.unique && tag.unique.len() == 36), "{tags:?}");
    assert_ne!(tags[0].unique, tags[1].unique);
    assert_eq!(Disk::default().process(1).tag(), first, "the same on every run");
}

#[test]
fn pause_lets_the_other_process_act_and_time_pass() {
    let disk = Disk::default();
    let process = disk.process(1);
    let calls = Arc::new(AtomicU32::new(0));
    let (handle, seen) = (disk.clone(), calls.clone());
    disk.on_pause(move |attempt| {
        seen.fetch_add(attempt, Ordering::Relaxed);
        handle.process(2).pause(100);
        let _ = handle.write_file("/a", "");
    });
    process.pause(1);
    process.pause(2);
    assert_eq!(calls.load(Ordering::Relaxed), 3, "not within itself");
    assert!(disk.exists("/a"));
    disk.kill(1);
    process.pause(4);
    assert_eq!(calls.load(Ordering::Relaxed), 3, "a killed process waits for no one");
}

// Requirement: S3
#[test]
fn replaced_directory_is_another_one_and_the_held_one_takes_nothing_new() {
    let disk = Disk::default();
    disk.mkdir("/d").unwrap();
    let process = disk.process(1);
    let held = process.open_dir(Path::new("/d")).unwrap();
    disk.remove_all("/d").unwrap();
    disk.mkdir("/d").unwrap();
    let by_path = process.stat_path(Path::new("/d")).unwrap();
    assert_ne!(process.stat_dir(&held).unwrap().inode, by_path.inode);
    assert_eq!(process.stat_dir(&held).unwrap().links, 0);
    assert_eq!(process.create_new(&held, name("a"), 0o600).err(), Some(Errno::ENOENT));
    assert_eq!(process.list(&held), Ok(Vec::new()));
}

#[test]
fn removing_a_deep_tree_leaves_nothing() {
    let disk = Disk::default();
    for path in ["/d", "/d/d", "/d/d/d", "/d/e"] {
        disk.mkdir(path).unwrap();
        disk.write_file(format!("{path}/f"), "text").unwrap();
    }
    disk.remove_all("/d").unwrap();
    assert_eq!(names(&disk), Vec::<OsString>::new());
    assert_books_balance(&disk);
    assert_eq!(disk.look("/").unwrap().links, 2);
}

#[test]
fn ten_thousand_names_are_found_and_listed() {
    let disk = Disk::default();
    for number in 0..10_000 {
        disk.write_file(format!("/{number}"), "").unwrap();
    }
    assert_eq!(names(&disk).len(), 10_000);
    assert!(disk.exists("/9999"));
    assert_eq!(disk.after_cut_losing_nothing().snapshot(), disk.snapshot());
    assert_books_balance(&disk);
}

// Requirement: C4
#[test]
fn fsync_makes_bytes_size_and_mode_durable_and_the_directory_the_name() {
    let disk = Disk::default();
    let process = disk.process(1);
    let file = create(&process, "a", b"text");
    process.set_mode(&file, 0o640).unwrap();
    process.sync(&file).unwrap();
    assert_eq!(durable(&disk, "/a"), None, "no name");
    process.sync_dir(&root(&process)).unwrap();
    let node = disk.durable_tree().get("/a").unwrap().clone();
    assert_eq!((node.bytes.as_slice(), node.mode), (&b"text"[..], 0o640));
    write(&process, &file, b"TEXT and more", 0).unwrap();
    process.set_mode(&file, 0o600).unwrap();
    assert_eq!(disk.durable_tree().get("/a"), Some(&node));
}

#[test]
fn name_made_durable_without_fsync_of_the_file_is_empty() {
    let disk = Disk::default();
    let process = disk.process(1);
    let _file = create(&process, "a", b"text");
    process.sync_dir(&root(&process)).unwrap();
    assert_eq!(durable(&disk, "/a"), Some(Vec::new()));
}

// Requirement: C10
#[test]
fn rename_is_durable_with_the_directory_and_old_until_then() {
    let disk = Disk::default();
    disk.write_file("/a", "old").unwrap();
    disk.sync_all();
    let process = disk.process(1);
    let file = create(&process, "t", b"new");
    process.sync(&file).unwrap();
    process.rename(&root(&process), name("t"), name("a")).unwrap();
    assert_eq!(durable(&disk, "/a"), Some(b"old".to_vec()));
    process.sync_dir(&root(&process)).unwrap();
    assert_eq!(durable(&disk, "/a"), Some(b"new".to_vec()));
    assert_eq!(durable(&disk, "/t"), None);
}

#[test]
fn failed_fsync_that_keeps_pages_dirty_is_made_good_by_the_next_one() {
    let disk = Disk::default();
    let process = disk.process(1);
    let file = create(&process, "a", b"text");
    process.sync_dir(&root(&process)).unwrap();
    let fault = SyncFault::FailKeepingDirty(Errno::EIO);
    assert_eq!(disk.sync_with_fault(&file, fault), Err(Errno::EIO));
    assert_eq!(durable(&disk, "/a"), Some(Vec::new()));
    process.sync(&file).unwrap();
    assert_eq!(durable(&disk, "/a"), Some(b"text".to_vec()));
}

#[test]
fn failed_fsync_that_marks_pages_clean_loses_them_in_spite_of_a_later_success() {
    let disk = Disk::default();
    let process = disk.process(1);
    let file = create(&process, "a", b"text");
    process.set_mode(&file, 0o644).unwrap();
    process.sync_dir(&root(&process)).unwrap();
    let fault = SyncFault::FailMarkingClean(Errno::EIO);
    assert_eq!(disk.sync_with_fault(&file, fault), Err(Errno::EIO));
    assert_eq!(disk.read_file("/a"), Ok(b"text".to_vec()), "reads still show it");
    assert_eq!(process.sync(&file), Ok(()));
    assert_eq!(durable(&disk, "/a"), Some(Vec::new()));
    assert_eq!(disk.durable_tree().get("/a").unwrap().mode, 0o600);
    assert!(disk.unsettled().files.is_empty(), "nothing is dirty");

    write(&process, &file, b"!", 4).unwrap();
    process.sync(&file).unwrap();
    assert_eq!(durable(&disk, "/a"), Some(b"\0\0\0\0!".to_vec()), "only what was written anew");
    write(&process, &file, b"text", 0).unwrap();
    process.sync(&file).unwrap();
    assert_eq!(durable(&disk, "/a"), Some(b"text!".to_vec()));
}

#[test]
fn fsync_that_lies_leaves_everything_dirty() {
    let disk = Disk::default();
    let process = disk.process(1);
    let file = create(&process, "a", b"text");
    let dir = root(&process);
    assert_eq!(disk.sync_with_fault(&file, SyncFault::SucceedDoingNothing), Ok(()));
    assert_eq!(disk.sync_dir_with_fault(&dir, SyncFault::SucceedDoingNothing), Ok(()));
    let unsettled = disk.unsettled();
    assert_eq!((unsettled.files.len(), unsettled.directories.len(), unsettled.journal), (1, 1, 0));
    process.sync(&file).unwrap();
    process.sync_dir(&dir).unwrap();
    assert_eq!(durable(&disk, "/a"), Some(b"text".to_vec()));
}

// Requirement: C24
#[test]
fn failed_directory_fsync_is_covered_by_a_later_success_unless_it_marks_clean() {
    for (fault, survives) in
        [(SyncFault::FailKeepingDirty(Errno::EIO), true), (SyncFault::FailMarkingClean(Errno::EIO), false)]
    {
        let disk = Disk::default();
        let process = disk.process(1);
        let dir = root(&process);
        drop(create(&process, "a", b""));
        assert_eq!(disk.sync_dir_with_fault(&dir, fault), Err(Errno::EIO));
        drop(create(&process, "b", b""));
        process.sync_dir(&dir).unwrap();
        assert_eq!(durable(&disk, "/a").is_some(), survives);
        assert!(durable(&disk, "/b").is_some());
        assert!(disk.exists("/a"));
    }
}

#[test]
fn unsettled_changes_are_listed_in_order_and_a_rename_is_one_instant() {
    let disk = Disk::default();
    disk.write_file("/a", "old").unwrap();
    disk.sync_all();
    let process = disk.process(1);
    let file = create(&process, "t", b"new");
    process.rename(&root(&process), name("t"), name("a")).unwrap();
    let unsettled = disk.unsettled();
    let [directory] = &unsettled.directories[..] else { panic!("one directory: {unsettled:?}") };
    let changes: Vec<(&OsStr, bool)> =
        directory.changes.iter().map(|it| (it.name.as_ref(), it.now.is_some())).collect();
    assert_eq!(changes, [(name("t"), true), (name("t"), false), (name("a"), true)]);
    let at: Vec<u64> = directory.changes.iter().map(|it| it.at).collect();
    assert!(unsettled.journal < at[0] && at[0] < at[1] && at[1] == at[2], "{at:?}");
    let [file_changed] = &unsettled.files[..] else { panic!("one file: {unsettled:?}") };
    assert_eq!(file_changed.changes[0].what, DataEdit::Write { offset: 0, length: 3 });
    assert_eq!((file_changed.durable.len(), file_changed.cached.as_slice()), (0, &b"new"[..]));

    process.sync(&file).unwrap();
    assert!(disk.unsettled().journal >= at[2], "the rename changed the inode that was synced");
    assert_eq!(disk.unsettled().directories, unsettled.directories, "a file's fsync fixes no name");
}

#[test]
fn cut_leaves_exactly_what_the_outcome_says() {
    let disk = Disk::default();
    disk.write_file("/a", "old").unwrap();
    disk.sync_all();
    disk.write_file("/a", "new").unwrap();
    disk.hard_link("/a", "/m").unwrap();
    let unsettled = disk.unsettled();
    let (directory, file) = (&unsettled.directories[0], &unsettled.files[0]);
    let marker = directory.changes.iter().find(|it| it.name.as_ref() == "m").unwrap();
    let mut outcome = CutOutcome::default();
    outcome.names.push((directory.id, marker.name.clone(), marker.now));
    outcome.bytes.push((file.id, Arc::new(b"ne".to_vec())));
    let after = disk.after_cut(&outcome);
    assert_eq!(after.read_file("/a"), Ok(b"old".to_vec()));
    assert_eq!(after.read_file("/m"), Ok(b"ne".to_vec()));
    assert_ne!(after.look("/a").unwrap().inode, after.look("/m").unwrap().inode);
    assert_eq!(after.look("/m").unwrap().links, 1);
    assert_eq!(after.durable_tree(), after.snapshot(), "all that survived is durable");
    assert_books_balance(&after);
    assert_eq!(disk.read_file("/m"), Ok(b"new".to_vec()), "the disk itself is left as it is");
}

#[test]
fn inodes_that_shared_a_number_in_turn_are_told_apart_after_a_cut() {
    let disk = Disk::default();
    disk.write_file("/a", "old").unwrap();
    disk.sync_all();
    disk.remove("/a").unwrap();
    disk.write_file("/b", "new").unwrap();
    let unsettled = disk.unsettled();
    let change = unsettled.directories[0].changes.iter().find(|it| it.name.as_ref() == "b").unwrap();
    let outcome = CutOutcome {
        names: vec![(unsettled.directories[0].id, change.name.clone(), change.now)],
        ..CutOutcome::default()
    };
    let after = disk.after_cut(&outcome);
    assert_eq!(disk.look("/b").unwrap().inode, after.look("/a").unwrap().inode);
    assert_ne!(after.look("/a").unwrap().inode, after.look("/b").unwrap().inode);
    assert_eq!(after.snapshot().get("/b").unwrap().identity, 1);
    assert_books_balance(&after);
}

#[test]
fn directory_that_two_surviving_names_mean_keeps_one() {
    let disk = Disk::default();
    disk.mkdir("/d").unwrap();
    disk.write_file("/d/f", "text").unwrap();
    disk.sync_all();
    disk.rename("/d", "/e").unwrap();
    let directory = disk.unsettled().directories[0].clone();
    let new = directory.changes.iter().find(|it| it.now.is_some()).unwrap();
    let outcome =
        CutOutcome { names: vec![(directory.id, new.name.clone(), new.now)], ..CutOutcome::default() };
    let after = disk.after_cut(&outcome);
    assert_eq!(names(&after), ["d"]);
    assert_eq!(after.read_file("/d/f"), Ok(b"text".to_vec()));
    assert_eq!(after.look("/").unwrap().links, 3);
    assert_books_balance(&after);
}

#[test]
fn cut_that_loses_nothing_shows_what_the_cache_showed() {
    let disk = Disk::default();
    disk.mkdir("/d").unwrap();
    disk.symlink("d", "/l").unwrap();
    disk.fifo("/p").unwrap();
    disk.other("/s").unwrap();
    disk.write_file("/d/f", "text").unwrap();
    disk.hard_link("/d/f", "/g").unwrap();
    disk.chmod("/g", 0o751).unwrap();
    disk.chown("/g", 3, 4).unwrap();
    let process = disk.process(1);
    let _gone = create(&process, "gone", b"text");
    disk.remove("/gone").unwrap();
    let after = disk.after_cut_losing_nothing();
    assert_eq!(after.snapshot(), disk.snapshot());
    assert_eq!(after.durable_tree(), disk.snapshot());
    assert_eq!(after.live_inodes(), disk.live_inodes() - 1);
    let kinds: Vec<FileKind> = after.snapshot().iter().map(|(_, node)| node.kind).collect();
    let expected = [
        FileKind::Directory,
        FileKind::Regular,
        FileKind::Regular,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Other,
    ];
    assert_eq!(kinds, expected);
    assert_books_balance(&after);
}

#[test]
fn equal_trees_do_not_depend_on_how_they_came_about() {
    let one = Disk::default();
    one.write_file("/x", "").unwrap();
    one.write_file("/a", "text").unwrap();
    one.remove("/x").unwrap();
    let two = Disk::default();
    two.write_file("/a", "text").unwrap();
    assert_ne!(one.look("/a").unwrap().inode, two.look("/a").unwrap().inode);
    assert_eq!(one.snapshot(), two.snapshot());
    two.hard_link("/a", "/b").unwrap();
    one.write_file("/b", "text").unwrap();
    assert_ne!(one.snapshot(), two.snapshot(), "two names of one inode are not two equal files");
}

/// Random lives of a disk with forks and cuts: what is counted while it happens is what counting afterwards finds,
/// and inodes that a cut could bring back are never forgotten.
#[test]
fn books_balance_after_any_history() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut disk = Disk::default();
        let mut process = disk.process(1);
        let mut held = Vec::new();
        for _ in 0..200 {
            let dir = root(&process);
            let names: [String; 2] = std::array::from_fn(|_| format!("/{}", rng.u8(b'a'..b'f') as char));
            let [a, b] = [&names[0], &names[1]];
            let _ = match rng.u32(0..12) {
                0 | 1 => disk.write_file(a, b),
                2 => disk.hard_link(a, b),
                3 => disk.rename(a, b),
                4 => disk.remove_all(a),
                5 => disk.mkdir(a),
                6 => disk.truncate(a, rng.u64(0..9)),
                7 => process.sync_dir(&dir),
                8 => process.open(&dir, name(&a[1..]), Access::Read).map(|file| held.push(file)),
                9 => {
                    if !held.is_empty() {
                        held.swap_remove(rng.usize(0..held.len()));
                    }
                    Ok(())
                }
                10 => held.last().map_or(Ok(()), |file| process.sync(file)),
                _ => {
                    if rng.u32(0..8) == 0 {
                        disk = if rng.bool() { disk.fork() } else { disk.after_cut(&CutOutcome::default()) };
                        process = disk.process(1);
                        held.clear();
                    }
                    Ok(())
                }
            };
            assert_books_balance(&disk);
            assert_books_balance(&disk.after_cut(&CutOutcome::default()));
        }
    }
}

/// Counts everything anew and compares.
fn assert_books_balance(disk: &Disk) {
    let tree = disk.snapshot();
    let state = disk.state();
    let living = state.living_nodes();
    assert_eq!(state.live, living.len() as u64, "inodes");
    assert_eq!(state.bytes, living.iter().map(|id| state.node(*id).file_size()).sum::<u64>(), "bytes");
    assert_eq!(state.entries, tree.iter().count() as u64, "entries");
    let mut numbers: Vec<u64> = living.iter().map(|id| state.node(*id).number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers.first(), Some(&ROOT_NUMBER));
    assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "one number for two inodes: {numbers:?}");
}
