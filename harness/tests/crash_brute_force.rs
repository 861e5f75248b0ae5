//! The enumeration of disks after a power cut, held against a second one that shares no code with it.
//!
//! A store runs a workload once more on a disk that records every call with names and bytes. From that list alone, the
//! definitions of the profiles are followed to the letter, prefix by prefix and grain by grain, without a thought for
//! speed, and for a cut after each call the trees that may be left are compared one by one, both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use session_harness::call::{Call, Reply};
use session_harness::crash::Profile;
use session_harness::disk::{Disk, Process, SimDir, SimFile};
use session_harness::fault::Plan;
use session_harness::subject::{InProcess, Subject};
use session_harness::suite::crash::{Options, visited};
use session_harness::workload::{Start, Step, Workload};
use session_tree::file_ops::{Access, FileKind, FileOps, FileStat, Lock, Tag};
use session_tree::{Errno, PathLocks};

const PATH: &str = "/sessions/session.jsonl";
const TIME: &str = "2026-01-01T00:00:00.000Z";

// Requirement: C23, S1.cut
#[test]
fn a_create_leaves_what_brute_force_says() {
    compare(Start::New, &[], None);
}

// Requirement: C23
#[test]
fn an_append_leaves_what_brute_force_says() {
    compare(Start::Session, &[Step::Append], None);
}

// Requirement: C23, S6
#[test]
fn a_flush_leaves_what_brute_force_says() {
    compare(Start::Session, &[Step::Flush], None);
}

// Requirement: C23, F5
#[test]
fn an_append_after_a_torn_tail_leaves_what_brute_force_says() {
    compare(Start::TornTail, &[Step::Append], None);
}

// Requirement: C23, C20
#[test]
fn a_failing_commit_with_its_roll_back_leaves_what_brute_force_says() {
    let fails = Failure {
        plan: "rename@temporary>session#1 in treeAppend#1 = EIO after, once",
        of: RENAME,
        errno: Errno::EIO,
    };
    compare(Start::Session, &[Step::Append], Some(&fails));
}

// Requirement: C23
#[test]
fn two_appends_leave_what_brute_force_says() {
    compare(Start::Session, &[Step::Append, Step::Append], None);
}

// Requirement: C23, S1
#[test]
fn a_create_and_an_append_leave_what_brute_force_says() {
    compare(Start::New, &[Step::Append], None);
}

/// The directory of sessions, in an order that does not depend on how it came about: name, bytes, permission bits, and
/// the first name of the same file.
type Tree = Vec<(String, Vec<u8>, u32, String)>;

/// A call that fails after its effect: as the harness is told it, and as the recorder is.
struct Failure {
    plan: &'static str,
    of: &'static str,
    errno: Errno,
}

const RENAME: &str = "rename";

/// Compares, for a cut after each system call, what the suite's camera visits with what brute force finds.
fn compare(start: Start, steps: &[Step], failure: Option<&Failure>) {
    let workload = Workload { start, steps: steps.to_vec() };
    let plan: Plan = failure.map_or("", |failure| failure.plan).parse().expect("a plan");
    let recording = play(&workload, failure);
    for profile in Profile::ALL {
        let options = Options { profile: *profile, merge_strays: false, ..Options::default() };
        let mut seen: BTreeMap<usize, BTreeSet<Tree>> = BTreeMap::new();
        for (calls, disk) in visited(&workload, &plan, &options).expect("a run of the workload") {
            seen.entry(calls).or_default().insert(tree_of(&disk));
        }
        let changing =
            recording.calls.iter().enumerate().filter(|(_, call)| !matches!(call, Change::Nothing));
        for (at, call) in changing {
            assert!(seen.contains_key(&(at + 1)), "{workload} {profile}: no cut after {call:?}");
        }
        for (calls, trees) in seen {
            let brute = Machine::after(&recording, calls).trees(*profile);
            let missing: Vec<&Tree> = brute.difference(&trees).collect();
            let surplus: Vec<&Tree> = trees.difference(&brute).collect();
            assert!(
                missing.is_empty() && surplus.is_empty(),
                "{workload} {profile} after {calls} calls, the last {:?}: {} and {} trees\nmissing {}\nsurplus {}",
                recording.calls.get(calls.wrapping_sub(1)),
                brute.len(),
                trees.len(),
                shown(&missing),
                shown(&surplus)
            );
        }
    }
}

fn shown(trees: &[&Tree]) -> String {
    let line = |(name, bytes, mode, first): &(String, Vec<u8>, u32, String)| {
        format!("  {name} {mode:o} ({first}) {}", String::from_utf8_lossy(bytes).escape_debug())
    };
    let first = trees.first().map(|tree| tree.iter().map(line).collect::<Vec<_>>().join("\n"));
    format!("{}\n{}", trees.len(), first.unwrap_or_default())
}

fn tree_of(disk: &Disk) -> Tree {
    let whole = disk.snapshot();
    let paths: Vec<&Path> = whole.paths().collect();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    whole
        .iter()
        .filter(|(path, _)| path.parent() == Some(Path::new("/sessions")))
        .map(|(path, node)| {
            assert_eq!(node.kind, FileKind::Regular, "{}", path.display());
            (name(path), node.bytes.to_vec(), node.mode, name(paths[node.identity]))
        })
        .collect()
}

// --- recording ----------------------------------------------------------------------------------------------------

/// What a call changed, with files told apart by the order in which they came to be.
#[derive(Debug, Clone)]
enum Change {
    Nothing,
    Create { name: String, file: usize, mode: u32 },
    Link { file: usize, to: String },
    Rename { from: String, to: String },
    Unlink { name: String },
    Write { file: usize, offset: usize, bytes: Vec<u8> },
    Chmod { file: usize, mode: u32 },
    SyncFile { file: usize },
    SyncDirectory,
}

struct Recording {
    /// What was in the directory before, all of it durable.
    before: Vec<(String, Vec<u8>, u32)>,
    calls: Vec<Change>,
}

/// Runs the steps of a workload as the suite does, on a disk that records.
fn play(workload: &Workload, failure: Option<&Failure>) -> Recording {
    let disk = prepared(workload.start);
    let before: Vec<_> =
        tree_of(&disk).into_iter().map(|(name, bytes, mode, _)| (name, bytes, mode)).collect();
    let log = Arc::new(Mutex::new(Log {
        calls: Vec::new(),
        names: before.iter().enumerate().map(|(file, (name, ..))| (name.clone(), file)).collect(),
        files: before.len(),
        fails: failure.map(|failure| (failure.of, failure.errno)),
    }));
    // The process id that the suite gives to the first process of a world, since names of temporaries hold it.
    let ops = Recorder { disk: disk.process(101), log: Arc::clone(&log) };
    let mut subject = InProcess::new(ops);
    let mut acknowledged = 0;
    let (store, path) = ("s".to_owned(), PATH.to_owned());
    let clock = vec![TIME.to_owned(); 8];
    let ids = |from: usize| (1..=8).map(|more| format!("e{}", from + more)).collect();
    if workload.start == Start::New {
        let session_id = Some("session-1".to_owned());
        ok(&subject.call(&Call::Create { store, path, session_id, ids: ids(0), clock }));
    } else {
        acknowledged = 1;
        ok(&subject.call(&Call::Load { store, path, ids: ids(acknowledged), clock }));
    }
    ok(&subject.call(&Call::Tree { store: "s".to_owned(), tree: "t".to_owned() }));
    let mut failures = 0;
    for step in &workload.steps {
        let reply = match step {
            Step::Append => {
                let message = message(acknowledged + 1, failures);
                subject.call(&Call::TreeAppend { tree: "t".to_owned(), message })
            }
            Step::Flush => subject.call(&Call::Flush { store: "s".to_owned() }),
            other => panic!("{} is not played here", other.as_str()),
        };
        match reply {
            Reply::Ok(_) => acknowledged += usize::from(*step == Step::Append),
            Reply::Refused(_) => failures += 1,
            other => panic!("{other:?}"),
        }
    }
    let calls = std::mem::take(&mut log.lock().expect("no panic").calls);
    Recording { before, calls }
}

fn ok(reply: &Reply) {
    assert!(matches!(reply, Reply::Ok(_)), "{reply:?}");
}

fn message(number: usize, failures: usize) -> Box<RawValue> {
    let text = format!("{{\"id\":\"m{number}-{failures}\",\"role\":\"user\",\"content\":\"what next?\"}}");
    RawValue::from_string(text).expect("JSON")
}

/// The disk as a workload of the suite finds it: taken from the suite itself, before the first call.
fn prepared(start: Start) -> Disk {
    let options = Options { profile: Profile::Process, ..Options::default() };
    let workload = Workload { start, steps: vec![Step::Flush] };
    let first = visited(&workload, &Plan::default(), &options).expect("a run").swap_remove(0);
    first.1
}

struct Log {
    calls: Vec<Change>,
    names: BTreeMap<String, usize>,
    files: usize,
    fails: Option<(&'static str, Errno)>,
}

#[derive(Clone)]
struct Recorder {
    disk: Process,
    log: Arc<Mutex<Log>>,
}

struct RecordedFile {
    file: SimFile,
    number: usize,
}

impl Recorder {
    /// Notes a call, with what it changed where it succeeded.
    fn note<T>(
        &self,
        result: Result<T, Errno>,
        change: impl FnOnce(&mut Log, &T) -> Change,
    ) -> Result<T, Errno> {
        let mut log = self.log.lock().expect("no panic");
        let change = result.as_ref().map_or(Change::Nothing, |value| change(&mut log, value));
        log.calls.push(change);
        result
    }

    fn look<T>(&self, result: Result<T, Errno>) -> Result<T, Errno> {
        self.note(result, |_, _| Change::Nothing)
    }

    /// Whether the call named `of` is the one that shall fail after its effect.
    fn fails(&self, of: &str) -> Result<(), Errno> {
        let mut log = self.log.lock().expect("no panic");
        match log.fails {
            Some((call, errno)) if call == of => {
                log.fails = None;
                Err(errno)
            }
            _ => Ok(()),
        }
    }
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

impl FileOps for Recorder {
    type File = RecordedFile;
    type Dir = SimDir;

    fn open_dir(&self, path: &Path) -> Result<SimDir, Errno> {
        self.look(self.disk.open_dir(path))
    }

    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno> {
        self.look(self.disk.stat_path(path))
    }

    fn stat_dir(&self, dir: &SimDir) -> Result<FileStat, Errno> {
        self.look(self.disk.stat_dir(dir))
    }

    fn name_limit(&self, dir: &SimDir) -> Result<u64, Errno> {
        self.look(self.disk.name_limit(dir))
    }

    fn stat_at(&self, dir: &SimDir, name: &OsStr) -> Result<FileStat, Errno> {
        self.look(self.disk.stat_at(dir, name))
    }

    fn create_new(&self, dir: &SimDir, name: &OsStr, mode: u32) -> Result<RecordedFile, Errno> {
        let created = self.disk.create_new(dir, name, mode).map(|file| {
            let number = self.log.lock().expect("no panic").files;
            RecordedFile { file, number }
        });
        self.note(created, |log, created| {
            log.files += 1;
            log.names.insert(text(name), created.number);
            // The mask of a new process, which takes write permission from group and others.
            Change::Create { name: text(name), file: created.number, mode: mode & !0o022 }
        })
    }

    fn open(&self, dir: &SimDir, name: &OsStr, access: Access) -> Result<RecordedFile, Errno> {
        let opened = self.disk.open(dir, name, access).map(|file| {
            let number = self.log.lock().expect("no panic").names[&text(name)];
            RecordedFile { file, number }
        });
        self.look(opened)
    }

    fn link(&self, dir: &SimDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.note(self.disk.link(dir, from, to), |log, ()| {
            let file = log.names[&text(from)];
            log.names.insert(text(to), file);
            Change::Link { file, to: text(to) }
        })
    }

    fn rename(&self, dir: &SimDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let result = self.disk.rename(dir, from, to);
        self.note(result, |log, ()| {
            let file = log.names.remove(&text(from)).expect("a name");
            log.names.insert(text(to), file);
            Change::Rename { from: text(from), to: text(to) }
        })?;
        self.fails(RENAME)
    }

    fn unlink(&self, dir: &SimDir, name: &OsStr) -> Result<(), Errno> {
        self.note(self.disk.unlink(dir, name), |log, ()| {
            log.names.remove(&text(name));
            Change::Unlink { name: text(name) }
        })
    }

    fn list(&self, dir: &SimDir) -> Result<Vec<OsString>, Errno> {
        self.look(self.disk.list(dir))
    }

    fn sync_dir(&self, dir: &SimDir) -> Result<(), Errno> {
        self.note(self.disk.sync_dir(dir), |_, ()| Change::SyncDirectory)
    }

    fn stat(&self, file: &RecordedFile) -> Result<FileStat, Errno> {
        self.look(self.disk.stat(&file.file))
    }

    fn read_at(&self, file: &RecordedFile, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.look(self.disk.read_at(&file.file, buf, offset))
    }

    fn write_at(&self, file: &RecordedFile, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        let offset_there = usize::try_from(offset).expect("small");
        self.note(self.disk.write_at(&file.file, bufs, offset), |_, taken| {
            let mut bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            bytes.truncate(*taken);
            Change::Write { file: file.number, offset: offset_there, bytes }
        })
    }

    fn set_mode(&self, file: &RecordedFile, mode: u32) -> Result<(), Errno> {
        self.note(self.disk.set_mode(&file.file, mode), |_, ()| Change::Chmod { file: file.number, mode })
    }

    fn sync(&self, file: &RecordedFile) -> Result<(), Errno> {
        self.note(self.disk.sync(&file.file), |_, ()| Change::SyncFile { file: file.number })
    }

    fn close(&self, file: RecordedFile) -> Result<(), Errno> {
        self.look(self.disk.close(file.file))
    }

    fn try_lock(&self, file: &RecordedFile, kind: Lock) -> Result<bool, Errno> {
        self.look(self.disk.try_lock(&file.file, kind))
    }

    fn unlock(&self, file: &RecordedFile) {
        self.disk.unlock(&file.file);
        let _ = self.look(Ok(()));
    }

    fn pause(&self, attempt: u32) {
        self.disk.pause(attempt);
    }

    fn tag(&self) -> Tag {
        self.disk.tag()
    }

    fn path_locks(&self) -> &PathLocks {
        self.disk.path_locks()
    }
}

// --- brute force --------------------------------------------------------------------------------------------------

const PAGE: usize = 4_096;
const SECTOR: usize = 512;
const GARBAGE: u8 = 0xa5;

type Names = BTreeMap<String, usize>;

/// A machine after some calls: every change that was issued, and what each fsync made durable.
struct Machine {
    before: Names,
    /// Changes of names and permission bits in the order in which they were issued; a call is one of them, whole.
    metadata: Vec<Change>,
    files: Vec<File>,
    /// How many of `metadata` were issued when the directory was last synced.
    directory_synced: usize,
    /// How many of `metadata` a journal holds for certain.
    journal: usize,
    /// How many of `metadata` there were after the last change of the directory.
    directory_changed: usize,
}

#[derive(Clone)]
struct File {
    durable: Vec<u8>,
    writes: Vec<(usize, Vec<u8>)>,
    durable_mode: u32,
    modes: Vec<u32>,
    /// How many of `metadata` there were after the last change of anything that the file's inode holds.
    changed: usize,
}

impl Machine {
    fn after(recording: &Recording, calls: usize) -> Machine {
        let file = |(_, bytes, mode): &(String, Vec<u8>, u32)| File {
            durable: bytes.clone(),
            writes: Vec::new(),
            durable_mode: *mode,
            modes: Vec::new(),
            changed: 0,
        };
        let names = recording.before.iter().enumerate().map(|(at, (name, ..))| (name.clone(), at));
        let mut machine = Machine {
            before: names.collect(),
            metadata: Vec::new(),
            files: recording.before.iter().map(file).collect(),
            directory_synced: 0,
            journal: 0,
            directory_changed: 0,
        };
        for change in &recording.calls[..calls] {
            machine.issue(change);
        }
        machine
    }

    fn issue(&mut self, change: &Change) {
        let names = self.names_after(self.metadata.len());
        // Inodes whose count of names or whose bits change.
        let touched: Vec<usize> = match change {
            Change::Create { file, mode, .. } => {
                assert_eq!(*file, self.files.len());
                self.files.push(File {
                    durable: Vec::new(),
                    writes: Vec::new(),
                    durable_mode: *mode,
                    modes: Vec::new(),
                    changed: 0,
                });
                vec![*file]
            }
            Change::Link { file, .. } => vec![*file],
            Change::Rename { from, to } => {
                [from, to].iter().filter_map(|name| names.get(*name).copied()).collect()
            }
            Change::Unlink { name } => vec![names[name]],
            Change::Chmod { file, mode } => {
                self.files[*file].modes.push(*mode);
                vec![*file]
            }
            Change::Write { file, offset, bytes } => {
                // Size and time of the inode change, so that its fsync takes along what was issued before.
                self.files[*file].writes.push((*offset, bytes.clone()));
                self.files[*file].changed = self.metadata.len();
                return;
            }
            Change::SyncFile { file } => {
                let cached = self.files[*file].cached();
                let synced = &mut self.files[*file];
                synced.durable = cached;
                synced.writes.clear();
                synced.durable_mode = synced.modes.last().copied().unwrap_or(synced.durable_mode);
                synced.modes.clear();
                self.journal = self.journal.max(synced.changed);
                return;
            }
            Change::SyncDirectory => {
                self.directory_synced = self.metadata.len();
                self.journal = self.journal.max(self.directory_changed);
                return;
            }
            Change::Nothing => return,
        };
        self.metadata.push(change.clone());
        for file in touched {
            self.files[file].changed = self.metadata.len();
        }
        if !matches!(change, Change::Chmod { .. }) {
            self.directory_changed = self.metadata.len();
        }
    }

    /// The names after the first `count` changes of metadata.
    fn names_after(&self, count: usize) -> Names {
        let mut names = self.before.clone();
        for change in &self.metadata[..count] {
            for (name, now) in effects(change, &names) {
                match now {
                    Some(file) => names.insert(name, file),
                    None => names.remove(&name),
                };
            }
        }
        names
    }

    fn trees(&self, profile: Profile) -> BTreeSet<Tree> {
        let all = self.metadata.len();
        let mut trees = BTreeSet::new();
        match profile {
            Profile::Process => {
                let names = self.names_after(all);
                let modes = self.files.iter().map(|file| vec![file.last_mode()]).collect::<Vec<_>>();
                let contents = self.files.iter().map(|file| vec![file.cached()]).collect::<Vec<_>>();
                add(&names, &contents, &modes, &mut trees);
            }
            Profile::Ordered => {
                let contents: Vec<_> =
                    self.files.iter().map(|file| file.contents(PAGE, &[0], false)).collect();
                for prefix in self.journal..=all {
                    let names = self.names_after(prefix);
                    let modes = (0..self.files.len()).map(|file| vec![self.mode_after(prefix, file)]);
                    add(&names, &contents, &modes.collect::<Vec<_>>(), &mut trees);
                }
            }
            Profile::Posix => {
                let contents: Vec<_> =
                    self.files.iter().map(|file| file.contents(SECTOR, &[0, GARBAGE], true)).collect();
                let modes: Vec<_> = self.files.iter().map(File::possible_modes).collect();
                for names in self.names_each_on_its_own() {
                    add(&names, &contents, &modes, &mut trees);
                }
            }
        }
        trees
    }

    fn mode_after(&self, prefix: usize, file: usize) -> u32 {
        let last = self.metadata[..prefix].iter().rev().find_map(|change| match change {
            Change::Chmod { file: of, mode } if *of == file => Some(*mode),
            Change::Create { file: of, mode, .. } if *of == file => Some(*mode),
            _ => None,
        });
        last.unwrap_or(self.files[file].durable_mode)
    }

    /// For every name its meaning after any prefix of the changes to it since the directory was synced.
    fn names_each_on_its_own(&self) -> Vec<Names> {
        let mut meanings: BTreeMap<String, Vec<Option<usize>>> = self
            .names_after(self.directory_synced)
            .into_iter()
            .map(|(name, file)| (name, vec![Some(file)]))
            .collect();
        for at in self.directory_synced..self.metadata.len() {
            for (name, now) in effects(&self.metadata[at], &self.names_after(at)) {
                meanings.entry(name).or_insert_with(|| vec![None]).push(now);
            }
        }
        let mut all = vec![Names::new()];
        for (name, choices) in meanings {
            let mut longer = Vec::new();
            for names in &all {
                for choice in &choices {
                    let mut names = names.clone();
                    if let Some(file) = choice {
                        names.insert(name.clone(), *file);
                    }
                    longer.push(names);
                }
            }
            all = longer;
        }
        all
    }
}

/// Which names a change gives a new meaning, where the names were `before` it.
fn effects(change: &Change, before: &Names) -> Vec<(String, Option<usize>)> {
    match change {
        Change::Create { name, file, .. } => vec![(name.clone(), Some(*file))],
        Change::Link { file, to } => vec![(to.clone(), Some(*file))],
        Change::Rename { from, to } => vec![(from.clone(), None), (to.clone(), Some(before[from]))],
        Change::Unlink { name } => vec![(name.clone(), None)],
        _ => Vec::new(),
    }
}

impl File {
    fn cached(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (offset, written) in &self.writes {
            let end = offset + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset..end].copy_from_slice(written);
        }
        bytes
    }

    fn last_mode(&self) -> u32 {
        self.modes.last().copied().unwrap_or(self.durable_mode)
    }

    fn possible_modes(&self) -> Vec<u32> {
        [self.durable_mode].iter().chain(&self.modes).copied().collect()
    }

    /// Every byte sequence that a cut may leave, grain by grain and size by size.
    fn contents(&self, grain: usize, fills: &[u8], off_by_one: bool) -> Vec<Vec<u8>> {
        let cached = self.cached();
        if self.writes.is_empty() {
            return vec![self.durable.clone()];
        }
        let (old, new) = (self.durable.len(), cached.len());
        let is_written = |at: usize| {
            self.writes.iter().any(|(offset, bytes)| {
                !bytes.is_empty() && offset / grain <= at && (offset + bytes.len() - 1) / grain >= at
            })
        };
        let mut sizes = vec![old, new];
        for size in old.min(new)..=old.max(new) {
            let at_an_end = size % grain == 0;
            let beside_an_end = off_by_one && (size % grain == 1 || (size + 1) % grain == 0);
            let end = if size % grain == 1 { size - 1 } else { size.next_multiple_of(grain) };
            let end_is_between = old.min(new) < end && end < old.max(new);
            if (at_an_end || beside_an_end) && end_is_between {
                sizes.push(size);
            }
        }
        let mut wholes: Vec<Vec<u8>> = vec![Vec::new()];
        let longest = old.max(new);
        for at in 0..longest.div_ceil(grain) {
            let (start, end) = (at * grain, ((at + 1) * grain).min(longest));
            let before = |fill: u8| -> Vec<u8> {
                (start..end).map(|place| self.durable.get(place).copied().unwrap_or(fill)).collect()
            };
            let mut choices: Vec<Vec<u8>> = Vec::new();
            if is_written(at) {
                choices.push((start..end).map(|place| cached.get(place).copied().unwrap_or(0)).collect());
                choices.extend(fills.iter().map(|fill| before(*fill)));
            } else {
                choices.push(before(0));
            }
            wholes = wholes
                .iter()
                .flat_map(|begun| choices.iter().map(move |choice| [begun.as_slice(), choice].concat()))
                .collect();
        }
        let mut all: BTreeSet<Vec<u8>> = BTreeSet::new();
        for whole in &wholes {
            all.extend(sizes.iter().map(|size| whole[..*size].to_vec()));
        }
        all.into_iter().collect()
    }
}

/// Adds every tree of these names, over all contents and permission bits of the files that have a name.
fn add(names: &Names, contents: &[Vec<Vec<u8>>], modes: &[Vec<u32>], trees: &mut BTreeSet<Tree>) {
    let files: BTreeSet<usize> = names.values().copied().collect();
    let mut chosen: Vec<BTreeMap<usize, (&[u8], u32)>> = vec![BTreeMap::new()];
    for file in files {
        let mut longer = Vec::new();
        for choice in &chosen {
            for bytes in &contents[file] {
                for mode in &modes[file] {
                    let mut choice = choice.clone();
                    choice.insert(file, (bytes.as_slice(), *mode));
                    longer.push(choice);
                }
            }
        }
        chosen = longer;
    }
    let first_name = |file: usize| names.iter().find(|(_, other)| **other == file).map(|(name, _)| name);
    for choice in chosen {
        let tree = names.iter().map(|(name, file)| {
            let (bytes, mode) = choice[file];
            (name.clone(), bytes.to_vec(), mode, first_name(*file).expect("itself").clone())
        });
        trees.insert(tree.collect());
    }
}
