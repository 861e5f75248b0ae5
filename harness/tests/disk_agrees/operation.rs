//! Random sequences: few names and few descriptors, so that operations meet.

use std::ffi::OsString;
use std::path::Path;

use fastrand::Rng;
use session_tree::file_ops::{Access, Lock};

use super::outside::Outside;

pub(crate) const DIRS: usize = 3;
pub(crate) const FILES: usize = 3;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const MODES: [u32; 10] = [0o600, 0o644, 0o755, 0o700, 0o777, 0o000, 0o1777, 0o4755, 0o2755, 0o440];
const OFFSETS: [u64; 10] = [0, 0, 1, 5, 511, 4_096, 20_000, 70_000, i64::MAX.unsigned_abs(), u64::MAX];
const LENGTHS: [usize; 6] = [0, 1, 3, 10, 512, 5_000];
const TARGETS: [&str; 11] = ["a", "b", "c", "e", "d", "d/a", "./e", ".", "missing", "d/", "../a"];

/// One sequence of so many syncs.
const SYNCING: u64 = 6;

/// One step. Numbers before a name choose descriptors.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    OpenDir(usize, String),
    DropDir(usize),
    StatPath(String),
    StatDir(usize),
    NameLimit(usize),
    StatAt(usize, OsString),
    CreateNew(usize, usize, OsString, u32),
    Open(usize, usize, OsString, Access),
    Link(usize, OsString, OsString),
    Rename(usize, OsString, OsString),
    Unlink(usize, OsString),
    List(usize),
    SyncDir(usize),
    Stat(usize),
    ReadAt(usize, usize, u64),
    WriteAt(usize, Vec<usize>, u64, u8),
    SetMode(usize, u32),
    Sync(usize),
    Close(usize),
    DropFile(usize),
    TryLock(usize, Lock),
    Unlock(usize),
    OutsideMkdir(String),
    OutsideSymlink(&'static str, String),
    OutsideFifo(String),
    OutsideSocket(String),
    OutsideRemove(String),
    OutsideRename(String, String),
    OutsideLink(String, String),
    OutsideChmod(String, u32),
    OutsideTruncate(String, u64),
    OutsideWrite(String, usize, u8),
    OutsideOverwrite(String, usize, u8),
}

/// The sequence of a seed. A `furnished` directory has things in it already.
pub(crate) fn sequence(seed: u64, furnished: bool) -> Vec<Operation> {
    let mut rng = Rng::with_seed(seed);
    let length = rng.usize(20..90);
    let mut operations = vec![Operation::OpenDir(0, ".".to_owned())];
    if !furnished {
        operations.push(Operation::OutsideMkdir("d".to_owned()));
    }
    operations.push(Operation::OpenDir(1, "d".to_owned()));
    operations.extend((0..length).map(|_| random(&mut rng)));
    if seed.is_multiple_of(SYNCING) {
        operations.push(Operation::OutsideFifo("e".to_owned()));
        operations.push(Operation::Open(0, 0, "e".into(), Access::Read));
        operations.push(Operation::Sync(0));
        operations.extend(lock_duel(&mut rng));
    } else {
        // A real fsync waits for the disk: a few sequences with some say as much as all of them would.
        operations.retain(|it| !matches!(it, Operation::Sync(_) | Operation::SyncDir(_)));
    }
    operations
}

/// Two descriptors of one file and many changes of their locks.
fn lock_duel(rng: &mut Rng) -> Vec<Operation> {
    let mut operations = vec![
        Operation::OutsideWrite("c".to_owned(), 1, 1),
        Operation::Open(0, 0, "c".into(), Access::ReadWrite),
        Operation::Open(1, 0, "c".into(), Access::Read),
    ];
    operations.extend((0..16).map(|_| match rng.u32(0..7) {
        0 => Operation::Unlock(rng.usize(0..2)),
        1..4 => Operation::TryLock(rng.usize(0..2), Lock::Shared),
        _ => Operation::TryLock(rng.usize(0..2), Lock::Exclusive),
    }));
    operations
}

/// Fills a directory with files of several owners and modes.
pub(crate) fn furnish(outside: &impl Outside, base: &Path, seed: u64) {
    let mut rng = Rng::with_seed(!seed);
    for dir in ["", "d", "e"] {
        let path = base.join(dir);
        if !dir.is_empty() {
            outside.mkdir(&path).expect("a new directory");
        }
        for name in ["a", "b", "c"] {
            let path = path.join(name);
            match rng.u32(0..8) {
                0 => outside.symlink(rng.choice(TARGETS).expect("targets"), &path),
                1 => outside.fifo(&path),
                2 => outside.mkdir(&path),
                _ => outside.write_file(&path, b"furniture"),
            }
            .expect("a new name");
            own(outside, &mut rng, &path);
        }
    }
    for path in [base.join("d"), base.join("e"), base.to_owned()] {
        own(outside, &mut rng, &path);
    }
}

fn own(outside: &impl Outside, rng: &mut Rng, path: &Path) {
    let owner = *rng.choice(&[0, super::NOBODY, super::NOBODY, 1]).expect("owners");
    let group = *rng.choice(&[0, super::NOBODY, 1]).expect("groups");
    outside.chown(path, owner, group).expect("root may");
    let mode = *rng
        .choice(&[0o777, 0o755, 0o700, 0o770, 0o007, 0o1777, 0o3777, 0o2777, 0o644, 0o6777, 0o311, 0o444])
        .expect("modes");
    // A symlink has no mode of its own, which both sides say.
    let _ = outside.chmod(path, mode);
}

fn random(rng: &mut Rng) -> Operation {
    if rng.u32(0..100) < 30 { outside(rng) } else { call(rng) }
}

fn call(rng: &mut Rng) -> Operation {
    use Operation as O;
    match rng.u32(0..100) {
        0..6 => O::OpenDir(dir(rng), path(rng)),
        6..8 => O::DropDir(dir(rng)),
        8..13 => O::StatPath(path(rng)),
        13..14 => O::StatDir(dir(rng)),
        14 => O::NameLimit(dir(rng)),
        15..18 => O::StatAt(dir(rng), name(rng)),
        18..30 => O::CreateNew(file(rng), dir(rng), any_name(rng), mode(rng)),
        30..43 => O::Open(file(rng), dir(rng), name(rng), access(rng)),
        43..50 => O::Link(dir(rng), any_name(rng), any_name(rng)),
        50..57 => O::Rename(dir(rng), any_name(rng), any_name(rng)),
        57..62 => O::Unlink(dir(rng), any_name(rng)),
        62 => O::List(dir(rng)),
        63..65 => O::SyncDir(dir(rng)),
        65 => O::Stat(file(rng)),
        66..69 => O::ReadAt(file(rng), length(rng), offset(rng)),
        69..77 => O::WriteAt(file(rng), lengths(rng), offset(rng), rng.u8(..)),
        77..79 => O::SetMode(file(rng), mode(rng)),
        79..81 => O::Sync(file(rng)),
        81..84 => O::Close(file(rng)),
        84..86 => O::DropFile(file(rng)),
        86..98 => O::TryLock(file(rng), if rng.bool() { Lock::Shared } else { Lock::Exclusive }),
        _ => O::Unlock(file(rng)),
    }
}

fn outside(rng: &mut Rng) -> Operation {
    use Operation as O;
    match rng.u32(0..100) {
        0..20 => O::OutsideMkdir(place(rng)),
        20..30 => O::OutsideSymlink(rng.choice(TARGETS).expect("targets"), place(rng)),
        30..36 => O::OutsideFifo(place(rng)),
        36..40 => O::OutsideSocket(place(rng)),
        40..52 => O::OutsideRemove(place(rng)),
        52..65 => O::OutsideRename(place(rng), place(rng)),
        65..72 => O::OutsideLink(place(rng), place(rng)),
        72..80 => O::OutsideChmod(place(rng), mode(rng)),
        80..85 => O::OutsideTruncate(place(rng), rng.u64(0..6_000)),
        85..95 => O::OutsideWrite(place(rng), length(rng), rng.u8(..)),
        _ => O::OutsideOverwrite(place(rng), length(rng), rng.u8(..)),
    }
}

fn dir(rng: &mut Rng) -> usize {
    if rng.u32(0..3) > 0 { 0 } else { rng.usize(0..DIRS) }
}

fn file(rng: &mut Rng) -> usize {
    rng.usize(0..FILES)
}

fn access(rng: &mut Rng) -> Access {
    if rng.bool() { Access::Read } else { Access::ReadWrite }
}

fn mode(rng: &mut Rng) -> u32 {
    *rng.choice(&MODES).expect("modes")
}

fn offset(rng: &mut Rng) -> u64 {
    *rng.choice(&OFFSETS).expect("offsets")
}

fn length(rng: &mut Rng) -> usize {
    *rng.choice(&LENGTHS).expect("lengths")
}

fn lengths(rng: &mut Rng) -> Vec<usize> {
    (0..rng.usize(0..4)).map(|_| length(rng)).collect()
}

/// A name whose look shows nothing from outside the directory.
fn name(rng: &mut Rng) -> OsString {
    match rng.u32(0..40) {
        0 => OsString::new(),
        1 => ".".into(),
        2 => "n".repeat(255).into(),
        3 => "n".repeat(256).into(),
        4 => "n".repeat(5_000).into(),
        5 => "a\0b".into(),
        _ => (*rng.choice(&NAMES).expect("names")).into(),
    }
}

fn any_name(rng: &mut Rng) -> OsString {
    if rng.u32(0..30) == 0 { "..".into() } else { name(rng) }
}

/// A path for someone else's acts, without anything odd.
fn place(rng: &mut Rng) -> String {
    let name = rng.choice(NAMES).expect("names");
    match rng.u32(0..4) {
        0 => format!("d/{name}"),
        1 => format!("{}/{name}", rng.choice(NAMES).expect("names")),
        _ => name.to_owned(),
    }
}

fn path(rng: &mut Rng) -> String {
    let mut path = match rng.u32(0..40) {
        0 => return "a/".repeat(3_000),
        1 => return "a\0b".to_owned(),
        2 => "n".repeat(256),
        3 => ".".to_owned(),
        _ => rng.choice(NAMES).expect("names").to_owned(),
    };
    for _ in 0..rng.u32(0..3) {
        path += if rng.u32(0..8) == 0 { "//" } else { "/" };
        path += if rng.u32(0..8) == 0 { "." } else { rng.choice(NAMES).expect("names") };
    }
    match rng.u32(0..10) {
        0 => path + "/..",
        1 | 2 => path + "/",
        _ => path,
    }
}
