//! Plays a sequence on one side and writes down everything that can be seen.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use session_tree::Errno;
use session_tree::file_ops::{Access, FileKind, FileOps, FileStat};

use super::counts_directories;
use super::operation::{DIRS, FILES, Operation};
use super::outside::Outside;

/// What one step answered and what could be seen after it.
pub(crate) struct Step {
    answer: String,
    seen: String,
}

impl Step {
    /// Without NUL, so that steps can be joined by it.
    pub(crate) fn to_line(&self) -> String {
        format!("{}\n{}", self.answer, self.seen)
    }
}

pub(crate) fn play<F: FileOps>(
    files: &F,
    outside: &impl Outside,
    base: &Path,
    operations: &[Operation],
) -> Vec<Step> {
    let mut player = Player {
        files,
        outside,
        base,
        dirs: std::array::from_fn(|_| None),
        open: std::array::from_fn(|_| None),
    };
    operations
        .iter()
        .map(|operation| {
            let mut names = Identities::default();
            let answer = match player.perform(operation, &mut names) {
                Ok(answer) => answer,
                Err(errno) => errno.to_string(),
            };
            Step { answer, seen: player.look_around() }
        })
        .collect()
}

struct Player<'a, F: FileOps, O> {
    files: &'a F,
    outside: &'a O,
    base: &'a Path,
    dirs: [Option<F::Dir>; DIRS],
    open: [Option<F::File>; FILES],
}

/// The descriptor that a step wants is not open.
const NOT_OPEN: Result<String, Errno> = Err(Errno::from_raw(9_999));

macro_rules! opened {
    ($slot:expr) => {
        match &$slot {
            Some(open) => open,
            None => return NOT_OPEN,
        }
    };
}

impl<F: FileOps, O: Outside> Player<'_, F, O> {
    fn perform(&mut self, operation: &Operation, names: &mut Identities) -> Result<String, Errno> {
        use Operation as O;
        let files = self.files;
        match operation {
            O::OpenDir(slot, path) => {
                self.dirs[*slot] = Some(files.open_dir(&self.path(path))?);
                done(())
            }
            O::DropDir(slot) => {
                self.dirs[*slot] = None;
                done(())
            }
            O::StatPath(path) => Ok(names.show(&files.stat_path(&self.path(path))?)),
            O::StatDir(slot) => Ok(names.show(&files.stat_dir(opened!(self.dirs[*slot]))?)),
            O::NameLimit(slot) => Ok(files.name_limit(opened!(self.dirs[*slot]))?.to_string()),
            O::StatAt(slot, name) => Ok(names.show(&files.stat_at(opened!(self.dirs[*slot]), name)?)),
            O::CreateNew(slot, dir, name, mode) => {
                self.open[*slot] = Some(files.create_new(opened!(self.dirs[*dir]), name, *mode)?);
                done(())
            }
            O::Open(slot, dir, name, access) => {
                self.open[*slot] = Some(files.open(opened!(self.dirs[*dir]), name, *access)?);
                done(())
            }
            O::Link(dir, from, to) => done(files.link(opened!(self.dirs[*dir]), from, to)?),
            O::Rename(dir, from, to) => done(files.rename(opened!(self.dirs[*dir]), from, to)?),
            O::Unlink(dir, name) => done(files.unlink(opened!(self.dirs[*dir]), name)?),
            O::List(dir) => Ok(list(files, opened!(self.dirs[*dir]))),
            O::SyncDir(dir) => done(files.sync_dir(opened!(self.dirs[*dir]))?),
            _ => self.perform_on_file(operation, names),
        }
    }

    fn perform_on_file(&mut self, operation: &Operation, names: &mut Identities) -> Result<String, Errno> {
        use Operation as O;
        let files = self.files;
        match operation {
            O::Stat(slot) => Ok(names.show(&files.stat(opened!(self.open[*slot]))?)),
            O::ReadAt(slot, length, offset) => {
                let mut buf = vec![0; *length];
                let count = files.read_at(opened!(self.open[*slot]), &mut buf, *offset)?;
                Ok(format!("{count} bytes, digest {:x}", digest(&buf[..count])))
            }
            O::WriteAt(slot, lengths, offset, fill) => {
                let bufs: Vec<Vec<u8>> = lengths.iter().map(|length| vec![*fill; *length]).collect();
                let slices: Vec<IoSlice<'_>> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
                Ok(files.write_at(opened!(self.open[*slot]), &slices, *offset)?.to_string())
            }
            O::SetMode(slot, mode) => done(files.set_mode(opened!(self.open[*slot]), *mode)?),
            O::Sync(slot) => done(files.sync(opened!(self.open[*slot]))?),
            O::Close(slot) => match self.open[*slot].take() {
                Some(file) => done(files.close(file)?),
                None => NOT_OPEN,
            },
            O::DropFile(slot) => {
                self.open[*slot] = None;
                done(())
            }
            O::TryLock(slot, kind) => Ok(files.try_lock(opened!(self.open[*slot]), *kind)?.to_string()),
            O::Unlock(slot) => {
                files.unlock(opened!(self.open[*slot]));
                done(())
            }
            _ => self.perform_outside(operation),
        }
    }

    fn perform_outside(&self, operation: &Operation) -> Result<String, Errno> {
        use Operation as O;
        let outside = self.outside;
        match operation {
            O::OutsideMkdir(path) => outside.mkdir(&self.path(path)),
            O::OutsideSymlink(target, path) => outside.symlink(target, &self.path(path)),
            O::OutsideFifo(path) => outside.fifo(&self.path(path)),
            O::OutsideSocket(path) => outside.socket(&self.path(path)),
            O::OutsideRemove(path) => outside.remove(&self.path(path)),
            O::OutsideRename(from, to) => outside.rename(&self.path(from), &self.path(to)),
            O::OutsideLink(from, to) => outside.hard_link(&self.path(from), &self.path(to)),
            O::OutsideChmod(path, mode) => outside.chmod(&self.path(path), *mode),
            O::OutsideTruncate(path, size) => outside.truncate(&self.path(path), *size),
            O::OutsideWrite(path, length, fill) => {
                outside.write_file(&self.path(path), &vec![*fill; *length])
            }
            O::OutsideOverwrite(path, length, fill) => {
                outside.overwrite(&self.path(path), &vec![*fill; *length])
            }
            other => unreachable!("{other:?} is not an outside actor's"),
        }?;
        done(())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.base.join(below)
    }

    /// Everything below the base and everything open, with identities that hold within this one look.
    fn look_around(&self) -> String {
        let mut seen = String::new();
        let mut names = Identities::default();
        let mut todo = vec![PathBuf::new()];
        while let Some(below) = todo.pop() {
            let dir = match self.files.open_dir(&self.base.join(&below)) {
                Ok(dir) => dir,
                Err(errno) => {
                    writeln!(seen, "{}: {errno}", below.display()).expect("a string");
                    continue;
                }
            };
            let Ok(mut entries) = self.files.list(&dir) else { continue };
            entries.sort();
            for name in entries {
                let path = below.join(&name);
                let line = self.look_at(&mut names, &dir, &name);
                if line.starts_with("Directory") {
                    todo.push(path.clone());
                }
                writeln!(seen, "{}: {line}", path.display()).expect("a string");
            }
        }
        for (slot, dir) in self.dirs.iter().enumerate() {
            let Some(dir) = dir else { continue };
            let stat = self.files.stat_dir(dir).map(|stat| names.show(&stat));
            writeln!(seen, "dir {slot}: {stat:?} {}", list(self.files, dir)).expect("a string");
        }
        for (slot, file) in self.open.iter().enumerate() {
            let Some(file) = file else { continue };
            let stat = self.files.stat(file).map(|stat| names.show(&stat));
            writeln!(seen, "file {slot}: {stat:?} {}", contents(self.files, file)).expect("a string");
        }
        seen
    }

    fn look_at(&self, names: &mut Identities, dir: &F::Dir, name: &OsStr) -> String {
        let stat = match self.files.stat_at(dir, name) {
            Ok(stat) => stat,
            Err(errno) => return errno.to_string(),
        };
        let shown = names.show(&stat);
        if stat.kind != FileKind::Regular {
            return shown;
        }
        match self.files.open(dir, name, Access::Read) {
            Ok(file) => format!("{shown} {}", contents(self.files, &file)),
            Err(errno) => format!("{shown} {errno}"),
        }
    }
}

/// Which looks show the same inode.
#[derive(Default)]
struct Identities(HashMap<(u64, u64), usize>);

impl Identities {
    fn show(&mut self, stat: &FileStat) -> String {
        let next = self.0.len();
        let identity = *self.0.entry((stat.device, stat.inode)).or_insert(next);
        let is_directory = stat.kind == FileKind::Directory;
        let size = if is_directory { 0 } else { stat.size };
        let links = if is_directory && !counts_directories() { stat.links.min(1) } else { stat.links };
        format!(
            "{:?} inode {identity} size {size} mode {:o} owner {}:{} links {links}",
            stat.kind, stat.mode, stat.owner, stat.group
        )
    }
}

fn list<F: FileOps>(files: &F, dir: &F::Dir) -> String {
    match files.list(dir) {
        Ok(mut names) => {
            names.sort();
            format!("{names:?}")
        }
        Err(errno) => errno.to_string(),
    }
}

fn contents<F: FileOps>(files: &F, file: &F::File) -> String {
    let mut bytes = Vec::new();
    let mut buf = vec![0; 64 << 10];
    loop {
        match files.read_at(file, &mut buf, bytes.len() as u64) {
            Ok(0) => return format!("digest {:x}", digest(&bytes)),
            Ok(count) => bytes.extend_from_slice(&buf[..count]),
            Err(errno) => return errno.to_string(),
        }
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[expect(clippy::unnecessary_wraps, reason = "closes the arm of a step without a value")]
fn done((): ()) -> Result<String, Errno> {
    Ok("done".to_owned())
}
