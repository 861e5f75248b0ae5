//! One file system for all cases, simulated or real, with injection: the store under test is compiled once, on
//! [`WorldOps`], and a case chooses what is below.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use session_tree::file_ops::{Access, FileOps, FileStat, Lock, OsDir, OsFile, OsFileOps, Tag};
use session_tree::{Errno, PathLocks};

use crate::disk::{self, Disk, SimDir, SimFile};
use crate::fault::{Op, Role, Target};
use crate::inject::{Facts, Injector, Open};
use crate::outsider::Outsider;
use crate::role;

/// The directory of every simulated session.
const SIMULATED_ROOT: &str = "/sessions";

/// Where a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The simulated disk: every fault, and a process that can be killed.
    Simulated,
    /// A temporary directory of the operating system: the same faults but for kills.
    Real,
}

/// A directory for one session, what stands beside it, and the means to disturb both.
pub struct World {
    outsider: Outsider,
    session: PathBuf,
    next_process: u32,
    _real: Option<tempfile::TempDir>,
}

impl World {
    /// A fresh directory for a session file called `name`.
    ///
    /// # Errors
    /// Where the operating system gives no temporary directory.
    pub fn new(backend: Backend, name: &str) -> std::io::Result<World> {
        let (outsider, real) = match backend {
            Backend::Simulated => (Outsider::simulated(Disk::default()), None),
            Backend::Real => (Outsider::real(), Some(tempfile::tempdir()?)),
        };
        let root =
            real.as_ref().map_or_else(|| PathBuf::from(SIMULATED_ROOT), |dir| dir.path().join("sessions"));
        outsider.mkdir(&root)?;
        Ok(World { outsider, session: root.join(name), next_process: 100, _real: real })
    }

    /// A world on a disk that has a directory for a session file called `name` already, made by another world.
    pub fn on(disk: Disk, name: &str) -> World {
        let session = Path::new(SIMULATED_ROOT).join(name);
        World { outsider: Outsider::simulated(disk), session, next_process: 100, _real: None }
    }

    /// The simulated disk; none for a real directory.
    pub fn disk(&self) -> Option<&Disk> {
        match &self.outsider {
            Outsider::Simulated(disk) => Some(disk),
            Outsider::Real => None,
        }
    }

    /// The session file's path.
    pub fn session(&self) -> &Path {
        &self.session
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        self.session.parent().unwrap_or(Path::new("/"))
    }

    /// The path of `name` beside the session file.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Somebody who acts on the directory without the store's locks.
    pub fn outsider(&self) -> &Outsider {
        &self.outsider
    }

    /// A new process on this file system, whose calls `injector` watches.
    pub fn process(&mut self, injector: &Injector) -> WorldOps {
        self.next_process += 1;
        let below = match &self.outsider {
            Outsider::Simulated(disk) => Below::Simulated(disk.process(self.next_process)),
            Outsider::Real => Below::Real { ops: OsFileOps::new(), locks: PathLocks::new() },
        };
        let disk = match &self.outsider {
            Outsider::Simulated(disk) => Some(disk.clone()),
            Outsider::Real => None,
        };
        let session = Arc::from(self.session.file_name().unwrap_or_default());
        WorldOps { below, disk, pid: self.next_process, injector: injector.clone(), session }
    }

    /// Ends the process behind `ops`: descriptors and locks are gone, and no later call of it has an effect.
    pub fn kill(&self, ops: &WorldOps) {
        if let Outsider::Simulated(disk) = &self.outsider {
            disk.kill(ops.pid);
        }
    }

    /// Locks that anybody holds. Unknown, and so 0, on a real directory.
    pub fn held_locks(&self) -> usize {
        match &self.outsider {
            Outsider::Simulated(disk) => disk.held_locks(),
            Outsider::Real => 0,
        }
    }
}

/// File operations of one process in a [`World`].
#[derive(Clone)]
pub struct WorldOps {
    below: Below,
    disk: Option<Disk>,
    pid: u32,
    injector: Injector,
    session: Arc<OsStr>,
}

#[derive(Clone)]
enum Below {
    Simulated(disk::Process),
    Real { ops: OsFileOps, locks: PathLocks },
}

/// An open file of a [`World`].
pub struct WorldFile {
    below: FileBelow,
    role: Role,
    _open: Open,
}

enum FileBelow {
    Simulated(SimFile),
    Real(OsFile),
}

/// An open directory of a [`World`].
pub struct WorldDir {
    below: DirBelow,
    _open: Open,
}

enum DirBelow {
    Simulated(SimDir),
    Real(OsDir),
}

macro_rules! on_file {
    ($self:ident, $file:ident, |$ops:ident, $inner:ident| $call:expr) => {
        match (&$self.below, &$file.below) {
            (Below::Simulated($ops), FileBelow::Simulated($inner)) => $call,
            (Below::Real { ops: $ops, .. }, FileBelow::Real($inner)) => $call,
            _ => Err(Errno::EBADF),
        }
    };
}

macro_rules! on_dir {
    ($self:ident, $dir:ident, |$ops:ident, $inner:ident| $call:expr) => {
        match (&$self.below, &$dir.below) {
            (Below::Simulated($ops), DirBelow::Simulated($inner)) => $call,
            (Below::Real { ops: $ops, .. }, DirBelow::Real($inner)) => $call,
            _ => Err(Errno::EBADF),
        }
    };
}

impl WorldOps {
    /// Cuts or grows an open file. Only a store that is broken on purpose does; on a real directory it cannot.
    ///
    /// # Errors
    /// As [`Process::truncate`](disk::Process::truncate); `ENOTSUP` on a real directory.
    pub fn truncate(&self, file: &WorldFile, size: u64) -> Result<(), Errno> {
        self.injector.call(Op::Truncate, Target::one(file.role), || match (&self.below, &file.below) {
            (Below::Simulated(ops), FileBelow::Simulated(inner)) => ops.truncate(inner, size),
            _ => Err(Errno::ENOTSUP),
        })
    }

    /// Writes behind whatever the file holds by then. Only a store that is broken on purpose does; on a real directory
    /// it cannot.
    ///
    /// # Errors
    /// As [`Process::write_at_end`](disk::Process::write_at_end); `ENOTSUP` on a real directory.
    pub fn write_at_end(&self, file: &WorldFile, bytes: &[u8]) -> Result<usize, Errno> {
        self.injector.transfer(Op::Write, Target::one(file.role), bytes.len(), |most| {
            match (&self.below, &file.below) {
                (Below::Simulated(ops), FileBelow::Simulated(inner)) => {
                    ops.write_at_end(inner, &bytes[..most])
                }
                _ => Err(Errno::ENOTSUP),
            }
        })
    }

    /// Opens without a thought of links and FIFOs. Only a store that is broken on purpose does; on a real directory it
    /// cannot.
    ///
    /// # Errors
    /// As [`Process::open_plainly`](disk::Process::open_plainly); `ENOTSUP` on a real directory.
    pub fn open_plainly(&self, dir: &WorldDir, name: &OsStr, access: Access) -> Result<WorldFile, Errno> {
        let target = self.one(name);
        self.injector.call(Op::Open, target, || match (&self.below, &dir.below) {
            (Below::Simulated(ops), DirBelow::Simulated(dir)) => {
                Ok(self.file(FileBelow::Simulated(ops.open_plainly(dir, name, access)?), target.from))
            }
            _ => Err(Errno::ENOTSUP),
        })
    }

    fn role(&self, name: &OsStr) -> Role {
        role::of(name, &self.session)
    }

    fn one(&self, name: &OsStr) -> Target {
        Target::one(self.role(name))
    }

    /// The machine below; a real directory has no fsync that misbehaves.
    fn disk(&self) -> Result<&Disk, Errno> {
        self.disk.as_ref().ok_or(Errno::ENOTSUP)
    }

    fn file(&self, below: FileBelow, role: Role) -> WorldFile {
        WorldFile { below, role, _open: self.injector.opened() }
    }
}

impl FileOps for WorldOps {
    type File = WorldFile;
    type Dir = WorldDir;

    fn open_dir(&self, path: &Path) -> Result<WorldDir, Errno> {
        self.injector.call(Op::OpenDir, Target::one(Role::Root), || {
            let below = match &self.below {
                Below::Simulated(ops) => DirBelow::Simulated(ops.open_dir(path)?),
                Below::Real { ops, .. } => DirBelow::Real(ops.open_dir(path)?),
            };
            Ok(WorldDir { below, _open: self.injector.opened() })
        })
    }

    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno> {
        self.injector.telling_call(Op::Stat, Target::one(Role::Root), Facts::of_directory, || {
            match &self.below {
                Below::Simulated(ops) => ops.stat_path(path),
                Below::Real { ops, .. } => ops.stat_path(path),
            }
        })
    }

    fn stat_dir(&self, dir: &WorldDir) -> Result<FileStat, Errno> {
        self.injector.telling_call(Op::Fstat, Target::one(Role::Root), Facts::of_directory, || {
            on_dir!(self, dir, |ops, inner| ops.stat_dir(inner))
        })
    }

    fn name_limit(&self, dir: &WorldDir) -> Result<u64, Errno> {
        self.injector.call(Op::Statfs, Target::one(Role::Root), || {
            on_dir!(self, dir, |ops, inner| ops.name_limit(inner))
        })
    }

    fn stat_at(&self, dir: &WorldDir, name: &OsStr) -> Result<FileStat, Errno> {
        self.injector.telling_call(Op::Stat, self.one(name), Facts::of_file, || {
            on_dir!(self, dir, |ops, inner| ops.stat_at(inner, name))
        })
    }

    fn create_new(&self, dir: &WorldDir, name: &OsStr, mode: u32) -> Result<WorldFile, Errno> {
        let target = self.one(name);
        self.injector.telling_call(
            Op::Create,
            target,
            |_| Facts::given_mode(mode),
            || {
                let below = match (&self.below, &dir.below) {
                    (Below::Simulated(ops), DirBelow::Simulated(dir)) => {
                        FileBelow::Simulated(ops.create_new(dir, name, mode)?)
                    }
                    (Below::Real { ops, .. }, DirBelow::Real(dir)) => {
                        FileBelow::Real(ops.create_new(dir, name, mode)?)
                    }
                    _ => return Err(Errno::EBADF),
                };
                Ok(self.file(below, target.from))
            },
        )
    }

    fn open(&self, dir: &WorldDir, name: &OsStr, access: Access) -> Result<WorldFile, Errno> {
        let target = self.one(name);
        self.injector.call(Op::Open, target, || {
            let below = match (&self.below, &dir.below) {
                (Below::Simulated(ops), DirBelow::Simulated(dir)) => {
                    FileBelow::Simulated(ops.open(dir, name, access)?)
                }
                (Below::Real { ops, .. }, DirBelow::Real(dir)) => {
                    FileBelow::Real(ops.open(dir, name, access)?)
                }
                _ => return Err(Errno::EBADF),
            };
            Ok(self.file(below, target.from))
        })
    }

    fn link(&self, dir: &WorldDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let target = Target::two(self.role(from), self.role(to));
        self.injector.call(Op::Link, target, || on_dir!(self, dir, |ops, inner| ops.link(inner, from, to)))
    }

    fn rename(&self, dir: &WorldDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let target = Target::two(self.role(from), self.role(to));
        self.injector
            .call(Op::Rename, target, || on_dir!(self, dir, |ops, inner| ops.rename(inner, from, to)))
    }

    fn unlink(&self, dir: &WorldDir, name: &OsStr) -> Result<(), Errno> {
        self.injector
            .call(Op::Unlink, self.one(name), || on_dir!(self, dir, |ops, inner| ops.unlink(inner, name)))
    }

    fn list(&self, dir: &WorldDir) -> Result<Vec<OsString>, Errno> {
        self.injector
            .call(Op::List, Target::one(Role::Root), || on_dir!(self, dir, |ops, inner| ops.list(inner)))
    }

    fn sync_dir(&self, dir: &WorldDir) -> Result<(), Errno> {
        self.injector.fsync(Target::one(Role::Root), |fault| match (&self.below, &dir.below, fault) {
            (Below::Simulated(_), DirBelow::Simulated(inner), Some(fault)) => {
                self.disk()?.sync_dir_with_fault(inner, fault)
            }
            _ => on_dir!(self, dir, |ops, inner| ops.sync_dir(inner)),
        })
    }

    fn stat(&self, file: &WorldFile) -> Result<FileStat, Errno> {
        self.injector.telling_call(Op::Fstat, Target::one(file.role), Facts::of_file, || {
            on_file!(self, file, |ops, inner| ops.stat(inner))
        })
    }

    fn read_at(&self, file: &WorldFile, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.injector.transfer(Op::Read, Target::one(file.role), buf.len(), |most| {
            on_file!(self, file, |ops, inner| ops.read_at(inner, &mut buf[..most], offset))
        })
    }

    fn write_at(&self, file: &WorldFile, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        let offered = bufs.iter().map(|buf| buf.len()).sum();
        self.injector.transfer(Op::Write, Target::one(file.role), offered, |most| {
            let shortened = shorten(bufs, most);
            on_file!(self, file, |ops, inner| ops.write_at(inner, &shortened, offset))
        })
    }

    fn set_mode(&self, file: &WorldFile, mode: u32) -> Result<(), Errno> {
        self.injector.telling_call(
            Op::Chmod,
            Target::one(file.role),
            |()| Facts::given_mode(mode),
            || on_file!(self, file, |ops, inner| ops.set_mode(inner, mode)),
        )
    }

    fn sync(&self, file: &WorldFile) -> Result<(), Errno> {
        self.injector.fsync(Target::one(file.role), |fault| match (&self.below, &file.below, fault) {
            (Below::Simulated(_), FileBelow::Simulated(inner), Some(fault)) => {
                self.disk()?.sync_with_fault(inner, fault)
            }
            _ => on_file!(self, file, |ops, inner| ops.sync(inner)),
        })
    }

    fn close(&self, file: WorldFile) -> Result<(), Errno> {
        let WorldFile { below, role, _open } = file;
        // A close that fails has closed the file all the same, whichever way it is made to fail.
        let closed = match (&self.below, below) {
            (Below::Simulated(ops), FileBelow::Simulated(inner)) => ops.close(inner),
            (Below::Real { ops, .. }, FileBelow::Real(inner)) => ops.close(inner),
            _ => Err(Errno::EBADF),
        };
        self.injector.call(Op::Close, Target::one(role), || closed)
    }

    fn try_lock(&self, file: &WorldFile, kind: Lock) -> Result<bool, Errno> {
        self.injector
            .lock(Target::one(file.role), || on_file!(self, file, |ops, inner| ops.try_lock(inner, kind)))
    }

    fn unlock(&self, file: &WorldFile) {
        let _ = self.injector.call(Op::Unlock, Target::one(file.role), || {
            on_file!(self, file, |ops, inner| {
                ops.unlock(inner);
                Ok(())
            })
        });
    }

    fn pause(&self, attempt: u32) {
        self.injector.pauses();
        // Virtual on both backends: a fault that holds a lock for ever would cost seconds of real time.
        if let Below::Simulated(ops) = &self.below {
            ops.pause(attempt);
        }
    }

    fn tag(&self) -> Tag {
        match &self.below {
            Below::Simulated(ops) => ops.tag(),
            Below::Real { ops, .. } => ops.tag(),
        }
    }

    fn path_locks(&self) -> &PathLocks {
        match &self.below {
            Below::Simulated(ops) => ops.path_locks(),
            Below::Real { locks, .. } => locks,
        }
    }
}

/// The first `most` bytes of what is offered.
fn shorten<'a>(bufs: &'a [IoSlice<'_>], most: usize) -> Vec<IoSlice<'a>> {
    let mut left = most;
    let mut kept = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let taken = left.min(buf.len());
        if taken > 0 {
            kept.push(IoSlice::new(&buf[..taken]));
        }
        left -= taken;
    }
    kept
}
