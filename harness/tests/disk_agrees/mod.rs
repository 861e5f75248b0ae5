//! Running one sequence on both sides, comparing, and shrinking what differs.

mod operation;
mod outside;
mod play;

use std::collections::HashSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::Mode;
use session_harness::disk::{Disk, Options};
use session_tree::file_ops::{FileOps, OsFileOps};
use tempfile::TempDir;

use operation::{Operation, sequence};
use outside::{Outside, RealOutside};
use play::{Step, play};

const SEED: &str = "SESSION_HARNESS_SEED";
/// Set in a child process: where its cases lie.
const CHILD: &str = "SESSION_HARNESS_DISK_CASES";
const DEFAULT_SEED: u64 = 1;
/// The user and group that nothing belongs to.
const NOBODY: u32 = 65_534;
const UMASK: u32 = 0o022;
/// Above the directory that is compared: deep enough that `..` never leads out of what both sides have.
const ABOVE: &str = "n/n";

/// As whom sequences run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// As the user who runs the tests, in an empty directory.
    Own,
    /// As another user, in a directory with files of several owners and modes.
    AnotherUser,
}

/// Runs `cases` sequences and panics at the first that differs, with the shortest one found.
pub(crate) fn check(test: &str, cases: u64, setting: Setting) {
    let seed = seed();
    println!("{SEED}={seed}");
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    let all: Vec<Case> = (0..cases).map(|case| Case::new(seed.wrapping_add(case), setting)).collect();
    let mut reached = Reached::default();
    for batch in all.chunks(100) {
        let Some(place) = first_difference(batch, setting, &mut reached) else { continue };
        let failing = &batch[place];
        let shortest = shrink(failing, setting);
        let found = compare(&shortest, setting).unwrap_or_else(|| "not again: a race?".to_owned());
        panic!(
            "the simulated disk and the operating system differ\n{}{found}\nreplay: {SEED}={} cargo test -p \
             session-harness --test disk_agrees_with_a_real_directory -- --exact {test} --nocapture",
            shortest.listing(),
            failing.seed,
        );
    }
    let missing = reached.missing(setting.must_reach());
    assert!(
        missing.is_empty(),
        "the sequences never came to {missing:?}, so they compared less than they claim"
    );
}

impl Setting {
    /// Calls and answers that the sequences must come to, or they prove nothing about them.
    fn must_reach(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Setting::Own => &[
                ("OpenDir", &["ok", "ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "EINVAL"]),
                ("StatPath", &["ok", "ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "EINVAL"]),
                ("StatAt", &["ok", "ENOENT", "ENAMETOOLONG", "EINVAL"]),
                ("CreateNew", &["ok", "EEXIST", "ENOENT", "ENAMETOOLONG", "EINVAL"]),
                ("Open", &["ok", "ENOENT", "ELOOP", "EISDIR", "ENXIO", "ENAMETOOLONG", "EINVAL"]),
                ("Link", &["ok", "EEXIST", "ENOENT", "EPERM", "ENAMETOOLONG", "EINVAL"]),
                (
                    "Rename",
                    &["ok", "ENOENT", "EISDIR", "ENOTDIR", "ENOTEMPTY", "EBUSY", "ENAMETOOLONG", "EINVAL"],
                ),
                ("Unlink", &["ok", "ENOENT", "EISDIR", "ENAMETOOLONG", "EINVAL"]),
                ("StatDir", &["ok"]),
                ("NameLimit", &["ok"]),
                ("List", &["ok"]),
                ("SyncDir", &["ok"]),
                ("Stat", &["ok"]),
                ("ReadAt", &["ok", "EISDIR", "EINVAL"]),
                ("WriteAt", &["ok", "EBADF", "EINVAL"]),
                ("SetMode", &["ok"]),
                ("Sync", &["ok", "EINVAL"]),
                ("Close", &["ok"]),
                ("DropFile", &["ok"]),
                ("TryLock", &["ok", "false"]),
                ("Unlock", &["ok"]),
            ],
            Setting::AnotherUser => &[
                ("OpenDir", &["ok", "EACCES"]),
                ("StatPath", &["ok", "EACCES"]),
                ("StatAt", &["ok", "EACCES"]),
                ("CreateNew", &["ok", "EACCES"]),
                ("Open", &["ok", "EACCES"]),
                ("Link", &["ok", "EACCES", "EPERM"]),
                ("Rename", &["ok", "EACCES", "EPERM"]),
                ("Unlink", &["ok", "EACCES", "EPERM"]),
                ("SetMode", &["ok", "EPERM"]),
            ],
        }
    }
}

/// Which calls came to which answers.
#[derive(Default)]
struct Reached(HashSet<(String, String)>);

impl Reached {
    fn note(&mut self, case: &Case, steps: &[String]) {
        for (operation, step) in case.operations.iter().zip(steps) {
            let call: String =
                format!("{operation:?}").chars().take_while(char::is_ascii_alphabetic).collect();
            let answer = step.lines().next().unwrap_or_default();
            let is_error = answer.starts_with('E') || answer.starts_with("errno ") || answer == "false";
            self.0.insert((call, if is_error { answer } else { "ok" }.to_owned()));
        }
    }

    fn missing(&self, wanted: &[(&str, &[&str])]) -> Vec<String> {
        let pairs =
            wanted.iter().flat_map(|(call, answers)| answers.iter().map(move |answer| (*call, *answer)));
        let unseen =
            pairs.filter(|(call, answer)| !self.0.contains(&((*call).to_owned(), (*answer).to_owned())));
        unseen.map(|(call, answer)| format!("{call} {answer}")).collect()
    }
}

/// Whether this process is the child of [`check`] that runs as another user.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Plays the cases that the parent prepared, and leaves what was seen beside them.
pub(crate) fn play_as_child() {
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    let root = PathBuf::from(std::env::var_os(CHILD).expect("set by the parent"));
    for case in 0.. {
        let Ok(text) = fs::read_to_string(plan(&root, case)) else { break };
        let case_dir = root.join(format!("case{case}"));
        let operations = Case::read(&text, Setting::AnotherUser).operations;
        let steps = play_real(&case_dir, &operations);
        let answers: Vec<String> = steps.iter().map(Step::to_line).collect();
        fs::write(case_dir.join("stage/answers"), answers.join("\0")).expect("the stage is writable");
    }
}

/// One sequence: what the seed gives, without the dropped operations.
#[derive(Clone)]
struct Case {
    seed: u64,
    kept: Vec<usize>,
    operations: Vec<Operation>,
}

impl Case {
    fn new(seed: u64, setting: Setting) -> Case {
        let operations = sequence(seed, setting == Setting::AnotherUser);
        Case { seed, kept: (0..operations.len()).collect(), operations }
    }

    fn without(&self, dropped: std::ops::Range<usize>) -> Case {
        let mut case = self.clone();
        case.kept.drain(dropped.clone());
        case.operations.drain(dropped);
        case
    }

    fn write(&self) -> String {
        let kept: Vec<String> = self.kept.iter().map(usize::to_string).collect();
        format!("{} {}", self.seed, kept.join(" "))
    }

    fn read(text: &str, setting: Setting) -> Case {
        let mut numbers = text.split_ascii_whitespace();
        let seed = numbers.next().and_then(|seed| seed.parse().ok()).expect("a plan begins with its seed");
        let kept: Vec<usize> = numbers.map(|it| it.parse().expect("a plan lists operations")).collect();
        let all = Case::new(seed, setting).operations;
        let operations = kept.iter().map(|place| all[*place].clone()).collect();
        Case { seed, kept, operations }
    }

    fn listing(&self) -> String {
        let lines = self.operations.iter().enumerate();
        lines.fold(String::new(), |text, (place, it)| format!("{text}{:>3}. {it:?}\n", place + 1))
    }
}

fn seed() -> u64 {
    match std::env::var(SEED) {
        Ok(text) => text.parse().expect("a seed is a number of 64 bits"),
        Err(_) => DEFAULT_SEED,
    }
}

/// Drops operations for as long as both sides still differ.
fn shrink(failing: &Case, setting: Setting) -> Case {
    let mut shortest = failing.clone();
    let mut chunk = shortest.operations.len() / 2;
    while chunk > 0 {
        let mut start = 0;
        while start < shortest.operations.len() {
            let end = (start + chunk).min(shortest.operations.len());
            let shorter = shortest.without(start..end);
            if compare(&shorter, setting).is_some() {
                shortest = shorter;
            } else {
                start = end;
            }
        }
        chunk /= 2;
    }
    shortest
}

fn first_difference(batch: &[Case], setting: Setting, reached: &mut Reached) -> Option<usize> {
    let mut together = match setting {
        Setting::Own => None,
        Setting::AnotherUser => Some(real_as_another_user(batch).into_iter()),
    };
    batch.iter().position(|case| {
        let real = together.as_mut().and_then(Iterator::next).unwrap_or_else(|| real_as_oneself(case));
        reached.note(case, &real);
        describe(&real, &simulated(case, setting)).is_some()
    })
}

/// What differs, in words.
fn compare(case: &Case, setting: Setting) -> Option<String> {
    let real = match setting {
        Setting::Own => real_as_oneself(case),
        Setting::AnotherUser => real_as_another_user(std::slice::from_ref(case)).remove(0),
    };
    describe(&real, &simulated(case, setting))
}

fn describe(real: &[String], simulated: &[String]) -> Option<String> {
    let place = real.iter().zip(simulated).position(|(real, simulated)| real != simulated);
    let place = place.or_else(|| (real.len() != simulated.len()).then(|| real.len().min(simulated.len())))?;
    let line = |side: &[String]| side.get(place).cloned().unwrap_or_else(|| "nothing".to_owned());
    Some(format!("after step {}\nreal: {}\nsimulated: {}", place + 1, line(real), line(simulated)))
}

fn simulated(case: &Case, setting: Setting) -> Vec<String> {
    let disk = Disk::new(Options {
        protected_hard_links: sysctl("protected_hardlinks"),
        protected_symlinks: sysctl("protected_symlinks"),
        ..Options::default()
    });
    let mut above = PathBuf::from("/");
    for name in ABOVE.split('/') {
        above.push(name);
        disk.mkdir(&above).expect("an empty disk");
    }
    let base = above.join("base");
    disk.mkdir(&base).expect("an empty disk");
    let (user, group) = match setting {
        Setting::Own => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        Setting::AnotherUser => {
            operation::furnish(&disk, &base, case.seed);
            (NOBODY, NOBODY)
        }
    };
    if setting == Setting::Own {
        let mut path = PathBuf::from("/");
        for name in base.strip_prefix("/").expect("an absolute path").components() {
            path.push(name);
            disk.chown(&path, user, group).expect("user 0 may");
        }
    }
    disk.act_as(user, group);
    let process = disk.process_as(1, user, group, UMASK);
    play(&process, &disk, &base, &case.operations).iter().map(Step::to_line).collect()
}

fn prepare_real(root: &Path) {
    for directory in ["stage", &format!("{ABOVE}/base")] {
        fs::create_dir_all(root.join(directory)).expect("a new directory");
    }
}

fn play_real(root: &Path, operations: &[Operation]) -> Vec<Step> {
    play(&OsFileOps::new(), &RealOutside, &root.join(ABOVE).join("base"), operations)
}

fn real_as_oneself(case: &Case) -> Vec<String> {
    let root = TempDir::new().expect("a temporary directory");
    prepare_real(root.path());
    let steps = play_real(root.path(), &case.operations);
    if !rustix::process::geteuid().is_root() {
        make_removable(root.path());
    }
    steps.iter().map(Step::to_line).collect()
}

/// Gives directories the rights without which only root could remove what is in them.
fn make_removable(root: &Path) {
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        rustix::fs::chmod(&dir, Mode::RWXU).expect("its own directory");
        let entries = fs::read_dir(&dir).expect("a directory with all rights");
        let below = entries.map(|entry| entry.expect("a directory with all rights"));
        todo.extend(below.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())).map(|it| it.path()));
    }
}

/// Lets a child process of another user play all cases of the batch.
fn real_as_another_user(batch: &[Case]) -> Vec<Vec<String>> {
    let root = TempDir::new().expect("a temporary directory");
    rustix::fs::chmod(root.path(), Mode::from_raw_mode(0o755)).expect("its own directory");
    let program = root.path().join("program");
    fs::copy(std::env::current_exe().expect("a running program"), &program).expect("room for a copy");
    for (place, case) in batch.iter().enumerate() {
        let case_dir = root.path().join(format!("case{place}"));
        prepare_real(&case_dir);
        let stage = case_dir.join("stage");
        operation::furnish(&RealOutside, &case_dir.join(ABOVE).join("base"), case.seed);
        RealOutside.chown(&stage, NOBODY, NOBODY).expect("root may");
        fs::write(plan(root.path(), place), case.write()).expect("room for a plan");
    }
    let child = Command::new(&program)
        .args(["random_sequences_of_calls_of_another_user_answer_alike", "--exact", "--test-threads=1"])
        .env(CHILD, root.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("temporary files may be executed");
    assert!(child.status.success(), "the child failed: {}", String::from_utf8_lossy(&child.stdout));
    let answers = (0..batch.len()).map(|place| root.path().join(format!("case{place}/stage/answers")));
    answers
        .map(|path| fs::read_to_string(path).expect("the child leaves its answers"))
        .map(|text| if text.is_empty() { Vec::new() } else { text.split('\0').map(str::to_owned).collect() })
        .collect()
}

fn plan(root: &Path, case: usize) -> PathBuf {
    root.join(format!("plan{case}"))
}

fn sysctl(name: &str) -> bool {
    fs::read_to_string(Path::new("/proc/sys/fs").join(name)).is_ok_and(|text| text.trim() == "1")
}

/// Whether a real directory's link count counts the directories in it.
fn counts_directories() -> bool {
    static COUNTS: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let root = TempDir::new().expect("a temporary directory");
        fs::create_dir(root.path().join("a")).expect("an empty directory");
        OsFileOps::new().stat_path(root.path()).is_ok_and(|seen| seen.links == 3)
    });
    *COUNTS
}
