//! What each profile lets a power cut leave: the three are one inside the other, and each allows and forbids what real
//! file systems were seen to do.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;

use session_harness::crash::{Contents, Profile, disks};
use session_harness::disk::{Disk, Process, SimDir, SimFile, SyncFault, Tree};
use session_harness::fault::Plan;
use session_harness::role;
use session_harness::suite::crash::{CaseResult, Options, Seen, Token, run_one, visited};
use session_harness::workload::Workload;
use session_tree::Errno;
use session_tree::file_ops::{Access, FileOps};

const PAGE: usize = 4_096;

// --- one inside the other -----------------------------------------------------------------------------------------

// Requirement: C23
#[test]
fn what_a_weaker_profile_leaves_a_stronger_one_leaves_too() {
    const RUNS: u64 = 300;
    let seed = seed();
    println!("SESSION_HARNESS_SEED={seed}");
    let mut compared = [0, 0, 0];
    let mut strictly = [0, 0];
    for run in 0..RUNS {
        let mut player = Player::new(fastrand::Rng::with_seed(seed.wrapping_add(run)));
        for step in 0..14 {
            let done = player.step();
            let sets = Profile::ALL.iter().map(|profile| trees(&player.disk, *profile)).collect::<Vec<_>>();
            for (pair, both) in sets.windows(2).enumerate() {
                let outside = both[0].difference(&both[1]).next();
                assert!(
                    outside.is_none(),
                    "seed {seed}, run {run}, step {step}, after {done:?}: {} leaves and {} does not:\n{}",
                    Profile::ALL[pair],
                    Profile::ALL[pair + 1],
                    outside.map(Tree::to_string).unwrap_or_default()
                );
                strictly[pair] += usize::from(both[0].len() < both[1].len());
            }
            for (count, set) in compared.iter_mut().zip(&sets) {
                *count += set.len();
            }
        }
    }
    println!("{compared:?} trees, {strictly:?} times the stronger profile left more");
    assert!(strictly.iter().all(|times| *times > 100), "the runs hardly tell profiles apart: {strictly:?}");
}

/// The seed of `SESSION_HARNESS_SEED`, else a fixed one.
fn seed() -> u64 {
    std::env::var("SESSION_HARNESS_SEED").ok().map_or(7, |text| text.parse().expect("a number"))
}

/// Random calls of one process on one directory: few names, small files, and every call that the boundary has.
struct Player {
    disk: Disk,
    ops: Process,
    dir: SimDir,
    rng: fastrand::Rng,
    open: Vec<SimFile>,
    /// Writes that no fsync has settled: few, so that every disk can be listed.
    dirty: usize,
}

impl Player {
    fn new(rng: fastrand::Rng) -> Player {
        let (disk, ops, dir) = directory(&[]);
        Player { disk, ops, dir, rng, open: Vec::new(), dirty: 0 }
    }

    /// Does one call, and says which.
    fn step(&mut self) -> String {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        let (from, to) = (NAMES[self.rng.usize(..3)], NAMES[self.rng.usize(..3)]);
        if self.dirty >= 3 {
            self.disk.sync_all();
            self.dirty = 0;
        }
        match self.rng.u8(..9) {
            0 | 1 => {
                let made = self.ops.create_new(&self.dir, OsStr::new(from), 0o644);
                let told = format!("create {from}: {:?}", made.as_ref().err());
                self.open.extend(made);
                told
            }
            2 => {
                let opened = self.ops.open(&self.dir, OsStr::new(from), Access::ReadWrite);
                let told = format!("open {from}: {:?}", opened.as_ref().err());
                self.open.extend(opened);
                told
            }
            3 => {
                let linked = self.ops.link(&self.dir, OsStr::new(from), OsStr::new(to));
                format!("link {from} {to}: {linked:?}")
            }
            4 => {
                let renamed = self.ops.rename(&self.dir, OsStr::new(from), OsStr::new(to));
                format!("rename {from} {to}: {renamed:?}")
            }
            5 => format!("unlink {from}: {:?}", self.ops.unlink(&self.dir, OsStr::new(from))),
            6 if self.rng.bool() => format!("fsync the directory: {:?}", self.ops.sync_dir(&self.dir)),
            _ => self.step_on_file(),
        }
    }

    fn step_on_file(&mut self) -> String {
        let Some(at) = (!self.open.is_empty()).then(|| self.rng.usize(..self.open.len())) else {
            return "nothing is open".to_owned();
        };
        let file = &self.open[at];
        match self.rng.u8(..8) {
            0..=3 => {
                // Within one sector mostly, and over several now and then while nothing else is dirty.
                let wide = self.dirty == 0 && self.rng.u8(..4) == 0;
                let (offset, length) = if wide {
                    (self.rng.u64(..900), 700)
                } else {
                    (self.rng.u64(..100), self.rng.usize(1..200))
                };
                let bytes = vec![self.rng.u8(b'a'..=b'z'); length];
                self.dirty += if wide { 2 } else { 1 };
                let written = self.ops.write_at(file, &[IoSlice::new(&bytes)], offset);
                format!("write {length} at {offset}: {written:?}")
            }
            4 => format!("chmod: {:?}", self.ops.set_mode(file, 0o600 | u32::from(self.rng.u8(..8)))),
            5 => {
                let file = self.open.swap_remove(at);
                format!("close: {:?}", self.ops.close(file))
            }
            _ => format!("fsync: {:?}", self.ops.sync(file)),
        }
    }
}

// Requirement: C23
#[test]
fn what_ordered_leaves_of_a_large_file_posix_leaves_too() {
    let (disk, ops, dir) = directory(&[("x", vec![b'o'; 3 * PAGE])]);
    let file = open(&ops, &dir, "x");
    write(&ops, &file, &vec![b'n'; 3 * PAGE], 0);
    let (ordered, posix) = (trees(&disk, Profile::Ordered), trees(&disk, Profile::Posix));
    assert_eq!(ordered.len(), 8, "three pages, each old or new");
    assert!(ordered.is_subset(&posix) && posix.len() > ordered.len());
}

// --- what real file systems were seen to do -----------------------------------------------------------------------

// Requirement: C23, C24
#[test]
fn the_full_protocol_leaves_the_old_or_the_new_file_under_every_profile() {
    for profile in Profile::ALL {
        let mut seen = BTreeSet::new();
        protocol(&Steps::ALL, |disk| {
            for tree in trees(disk, *profile) {
                let bytes = content(&tree, "path").expect("the path has a file, whatever the cut");
                assert!([OLD, NEW].contains(&bytes.as_slice()), "{profile}:\n{tree}");
                seen.insert(bytes);
            }
        });
        assert_eq!(seen.len(), 2, "{profile}: the old before, the new after");
        let end = protocol(&Steps::ALL, |_| {});
        assert!(trees(&end, *profile).iter().all(|tree| content(tree, "path").as_deref() == Some(NEW)));
    }
}

// Requirement: C4
#[test]
fn a_rename_of_an_unsynced_file_leaves_an_empty_or_zero_filled_one() {
    let end = protocol(&Steps { file_fsync: false, ..Steps::ALL }, |_| {});
    let zeros = vec![0; NEW.len()];
    for (content, name) in [(&b""[..], "empty"), (&zeros, "full length, zero-filled")] {
        assert_eq!(inside(&end, |tree| has(tree, "path", content)), [false, true, true], "{name}");
    }
}

// Requirement: C10
#[test]
fn without_a_directory_fsync_the_old_content_is_back() {
    let end = protocol(&Steps { directory_fsync: false, ..Steps::ALL }, |_| {});
    assert_eq!(inside(&end, |tree| has(tree, "path", OLD)), [false, true, true]);
    assert_eq!(inside(&end, |tree| has(tree, "path", NEW)), [true, true, true]);
}

// Requirement: C10
#[test]
fn fsync_of_an_unchanged_file_makes_no_rename_durable() {
    let (disk, ops, dir) = directory(&[("x", b"x".to_vec()), ("other", b"o".to_vec())]);
    let other = open(&ops, &dir, "other");
    ops.rename(&dir, OsStr::new("x"), OsStr::new("y")).expect("a rename");
    ops.sync(&other).expect("an fsync");
    assert_eq!(inside(&disk, |tree| has(tree, "x", b"x") && !is_there(tree, "y")), [false, true, true]);
}

// Requirement: C10
#[test]
fn fsync_of_a_file_created_after_a_rename_keeps_the_rename_on_a_journalled_file_system_alone() {
    let (disk, ops, dir) = directory(&[("x", b"x".to_vec())]);
    ops.rename(&dir, OsStr::new("x"), OsStr::new("y")).expect("a rename");
    let created = ops.create_new(&dir, OsStr::new("b"), 0o600).expect("a file");
    ops.sync(&created).expect("an fsync");
    let not_renamed = |tree: &Tree| is_there(tree, "b") && is_there(tree, "x") && !is_there(tree, "y");
    assert_eq!(inside(&disk, not_renamed), [false, false, true]);
    // Nor is the new name itself certain by the letter of POSIX.
    assert_eq!(inside(&disk, |tree| !is_there(tree, "b")), [false, false, true]);
}

// Requirement: C23
#[test]
fn overwriting_in_place_leaves_an_old_head_with_a_new_tail() {
    let (disk, ops, dir) = directory(&[("x", vec![b'o'; 2 * PAGE])]);
    let file = open(&ops, &dir, "x");
    write(&ops, &file, &vec![b'n'; 2 * PAGE], 0);
    let mixed = [vec![b'o'; PAGE], vec![b'n'; PAGE]].concat();
    assert_eq!(inside(&disk, |tree| has(tree, "x", &mixed)), [false, true, true]);
}

// Requirement: C23
#[test]
fn a_new_file_may_have_a_head_of_zeros_and_a_tail_of_data() {
    let (disk, ops, dir) = directory(&[]);
    let file = ops.create_new(&dir, OsStr::new("x"), 0o600).expect("a file");
    write(&ops, &file, &vec![b'n'; 2 * PAGE], 0);
    ops.sync_dir(&dir).expect("an fsync");
    let mixed = [vec![0; PAGE], vec![b'n'; PAGE]].concat();
    assert_eq!(inside(&disk, |tree| has(tree, "x", &mixed)), [false, true, true]);
}

// Requirement: C23
#[test]
fn sectors_are_torn_and_filled_with_garbage_by_the_letter_of_posix_alone() {
    let (disk, ops, dir) = directory(&[]);
    let file = ops.create_new(&dir, OsStr::new("x"), 0o600).expect("a file");
    write(&ops, &file, &[b'n'; 3 * 512], 0);
    ops.sync_dir(&dir).expect("an fsync");
    let torn = |fills: [u8; 2]| [[fills[0]; 512], [b'n'; 512], [fills[1]; 512]].concat();
    for content in [torn([0, 0]), torn([0xa5, 0xa5]), torn([0, 0xa5]), torn([0xa5, 0])] {
        assert_eq!(inside(&disk, |tree| has(tree, "x", &content)), [false, false, true]);
    }
    let off_by_one = vec![b'n'; 513];
    assert_eq!(inside(&disk, |tree| has(tree, "x", &off_by_one)), [false, false, true]);
}

// Requirement: C23
#[test]
fn a_hole_that_nobody_wrote_holds_zeros_and_never_garbage() {
    let (disk, ops, dir) = directory(&[("x", vec![b'o'; 100])]);
    let file = open(&ops, &dir, "x");
    write(&ops, &file, b"tail", 1_500);
    let garbage_in_hole = |tree: &Tree| {
        content(tree, "x").is_some_and(|bytes| bytes.get(100..1_024).is_some_and(|hole| hole.contains(&0xa5)))
    };
    assert_eq!(inside(&disk, garbage_in_hole), [false, false, false]);
}

// Requirement: C23
#[test]
fn a_renames_source_may_be_gone_while_its_target_is_old_by_the_letter_of_posix_alone() {
    let (disk, ops, dir) = directory(&[("x", b"x".to_vec()), ("y", b"y".to_vec())]);
    ops.rename(&dir, OsStr::new("x"), OsStr::new("y")).expect("a rename");
    assert_eq!(inside(&disk, |tree| !is_there(tree, "x") && has(tree, "y", b"y")), [false, false, true]);
    // The target itself names the old file or the new one, whatever the profile.
    assert_eq!(inside(&disk, |tree| !is_there(tree, "y")), [false, false, false]);
}

// Requirement: C4
#[test]
fn what_a_failed_fsync_dropped_is_lost_by_a_power_cut_and_not_by_a_kill() {
    let (disk, ops, dir) = directory(&[("x", b"old".to_vec())]);
    let file = open(&ops, &dir, "x");
    write(&ops, &file, b"new", 0);
    let dropped = disk.sync_with_fault(&file, SyncFault::FailMarkingClean(Errno::EIO));
    assert_eq!(dropped, Err(Errno::EIO));
    ops.sync(&file).expect("a later fsync says success");
    assert_eq!(inside(&disk, |tree| has(tree, "x", b"new")), [true, false, false]);
    assert_eq!(inside(&disk, |tree| has(tree, "x", b"old")), [false, true, true]);
}

const OLD: &[u8] = b"the old generation\n";
const NEW: &[u8] = b"the new generation, longer\n";

/// Which fsyncs a careful replacement of a file makes.
struct Steps {
    file_fsync: bool,
    directory_fsync: bool,
}

impl Steps {
    const ALL: Steps = Steps { file_fsync: true, directory_fsync: true };
}

/// Replaces a file as a commit does, showing the disk after each step.
fn protocol(steps: &Steps, mut cut: impl FnMut(&Disk)) -> Disk {
    let (disk, ops, dir) = directory(&[("path", OLD.to_vec())]);
    let temporary = ops.create_new(&dir, OsStr::new("temporary"), 0o600).expect("a file");
    cut(&disk);
    write(&ops, &temporary, NEW, 0);
    cut(&disk);
    if steps.file_fsync {
        ops.sync(&temporary).expect("an fsync");
        cut(&disk);
    }
    ops.link(&dir, OsStr::new("path"), OsStr::new("marker")).expect("a link");
    cut(&disk);
    ops.rename(&dir, OsStr::new("temporary"), OsStr::new("path")).expect("a rename");
    cut(&disk);
    if steps.directory_fsync {
        ops.sync_dir(&dir).expect("an fsync");
        cut(&disk);
    }
    ops.unlink(&dir, OsStr::new("marker")).expect("an unlink");
    cut(&disk);
    if steps.directory_fsync {
        ops.sync_dir(&dir).expect("an fsync");
        cut(&disk);
    }
    disk
}

/// A disk with one directory that holds these files, all of it durable.
fn directory(files: &[(&str, Vec<u8>)]) -> (Disk, Process, SimDir) {
    let disk = Disk::default();
    disk.mkdir("/d").expect("a directory");
    for (name, bytes) in files {
        disk.write_file(Path::new("/d").join(name), bytes).expect("a file");
    }
    disk.sync_all();
    let ops = disk.process(1);
    let dir = ops.open_dir(Path::new("/d")).expect("the directory");
    (disk, ops, dir)
}

fn open(ops: &Process, dir: &SimDir, name: &str) -> SimFile {
    ops.open(dir, OsStr::new(name), Access::ReadWrite).expect("a file")
}

fn write(ops: &Process, file: &SimFile, bytes: &[u8], offset: u64) {
    assert_eq!(ops.write_at(file, &[IoSlice::new(bytes)], offset), Ok(bytes.len()));
}

fn trees(disk: &Disk, profile: Profile) -> HashSet<Tree> {
    disks(disk, profile, None, |_, _| Contents::All).map(|after| after.snapshot()).collect()
}

/// Under which profiles, in their order, a cut may leave what `is_meant` looks for.
fn inside(disk: &Disk, is_meant: impl Fn(&Tree) -> bool) -> [bool; 3] {
    [Profile::Process, Profile::Ordered, Profile::Posix]
        .map(|profile| trees(disk, profile).iter().any(&is_meant))
}

fn content(tree: &Tree, name: &str) -> Option<Vec<u8>> {
    tree.get(Path::new("/d").join(name)).map(|node| node.bytes.to_vec())
}

fn has(tree: &Tree, name: &str, bytes: &[u8]) -> bool {
    content(tree, name).as_deref() == Some(bytes)
}

fn is_there(tree: &Tree, name: &str) -> bool {
    content(tree, name).is_some()
}

// --- merging ------------------------------------------------------------------------------------------------------

/// The smallest workloads, and what goes wrong in them: nothing, or an fsync that lies so that there are violations
/// to compare.
const SMALLEST: [(&str, &str); 7] = [
    ("new", ""),
    ("new,append", ""),
    ("session,append", ""),
    ("session,flush", ""),
    ("torn,append", ""),
    ("session,append", "fsync@temporary#1 in treeAppend#1 = lies, for ever"),
    ("session,append", "fsync@root#1 in treeAppend#1 = lies, for ever"),
];

// Requirement: C23
#[test]
fn leaving_stray_contents_unmerged_changes_no_verdict() {
    let mut more_states = 0;
    for (workload, plan) in SMALLEST {
        for profile in [Profile::Ordered, Profile::Posix] {
            let run = |merge_strays| {
                let case = Token { profile, ..token(workload, plan) };
                run_one(&case, &Options { merge_strays, ..Options::default() }).expect("a run")
            };
            let (merged, unmerged) = (run(true), run(false));
            assert_eq!(verdicts(&merged), verdicts(&unmerged), "{workload} {plan} {profile}");
            assert_eq!(verdicts(&merged).is_empty(), plan.is_empty(), "{workload} {plan} {profile}");
            more_states += unmerged.states - merged.states;
        }
    }
    assert!(more_states > 10, "only {more_states} states were merged: this compares nothing");
}

fn verdicts(case: &CaseResult) -> BTreeSet<(String, Seen)> {
    let words = |violation: &session_harness::promise::Violation| {
        format!("{}: {}", violation.promise, violation.evidence)
    };
    case.broken
        .iter()
        .flat_map(|broken| broken.violations.iter().map(move |violation| (words(violation), broken.seen)))
        .collect()
}

// Requirement: C23
#[test]
fn merged_states_differ_in_strays_only() {
    for (workload, plan) in SMALLEST {
        for profile in [Profile::Ordered, Profile::Posix] {
            let visit = |merge_strays| {
                let options = Options { profile, merge_strays, ..Options::default() };
                let Token { workload, plan, .. } = token(workload, plan);
                visited(&workload, &plan, &options).expect("a run")
            };
            let (merged, unmerged) = (visit(true), visit(false));
            let without_stray_contents = |visits: &[(usize, Disk)]| {
                visits.iter().map(|(calls, disk)| (*calls, readable(disk))).collect::<HashSet<_>>()
            };
            assert_eq!(
                without_stray_contents(&merged),
                without_stray_contents(&unmerged),
                "{workload} {plan} {profile}"
            );
            assert!(merged.len() < unmerged.len(), "{workload} {plan} {profile}: nothing was merged");
        }
    }
}

/// Every name in the directory, with the bytes of what a restart reads.
fn readable(disk: &Disk) -> Vec<(OsString, Vec<u8>)> {
    use session_harness::fault::Role;
    let tree = disk.snapshot();
    let files = tree.iter().filter(|(path, _)| path.parent() == Some(Path::new("/sessions")));
    files
        .map(|(path, node)| {
            let name = path.file_name().expect("a name");
            let is_stray =
                matches!(role::of(name, OsStr::new("session.jsonl")), Role::Temporary | Role::Restore);
            (name.to_owned(), if is_stray { Vec::new() } else { node.bytes.to_vec() })
        })
        .collect()
}

fn token(workload: &str, plan: &str) -> Token {
    let workload: Workload = workload.parse().expect("a workload");
    let plan: Plan = plan.parse().expect("a plan");
    Token { profile: Profile::Posix, workload, plan, cuts: Vec::new() }
}
