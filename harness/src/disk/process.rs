//! A process of the simulated machine: its system calls.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use session_tree::file_ops::{Access, FileOps, FileStat, Lock, MAX_PAUSE_MS, Tag};
use session_tree::{Errno, PathLocks};

use super::node::Body;
use super::path::{READ, SEARCH, check_name, check_path};
use super::state::{Handle, State, Who, timestamp};
use super::{Machine, NodeId};

/// Symbolic links that one open follows.
const MOST_LINKS: usize = 40;

/// A process. Clones are the same process: they share descriptors and path locks.
#[derive(Clone)]
pub struct Process {
    machine: Arc<Machine>,
    instance: usize,
    pid: u32,
    locks: PathLocks,
}

/// An open file of a [`Process`]. Dropping it closes the descriptor, unless the process was killed.
pub struct SimFile(Open);

/// An open directory of a [`Process`]. Dropping it closes the descriptor, unless the process was killed.
pub struct SimDir(Open);

struct Open {
    machine: Arc<Machine>,
    instance: usize,
    handle: Handle,
}

impl Process {
    pub(super) fn new(machine: &Arc<Machine>, pid: u32, who: Option<Who>) -> Process {
        let (instance, locks) = machine.state().process(pid, who);
        Process { machine: machine.clone(), instance, pid, locks }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Cuts or grows an open file (`ftruncate`). No store that keeps its promises needs it.
    ///
    /// # Errors
    /// `EBADF` where the file is not open for writing; `EIO`, `EROFS`, `EFBIG`, `ENOSPC`.
    pub fn truncate(&self, file: &SimFile, size: u64) -> Result<(), Errno> {
        self.call_on(&file.0, |state, who, node| {
            let (_, writable) = state.descriptor(self.instance, file.0.handle)?.target();
            if writable { state.truncate(who, node, size) } else { Err(Errno::EBADF) }
        })
    }

    /// Writes behind the file's last byte, wherever that is by now (`write` to a file opened with `O_APPEND`).
    ///
    /// # Errors
    /// As `write_at`.
    pub fn write_at_end(&self, file: &SimFile, bytes: &[u8]) -> Result<usize, Errno> {
        self.call_on(&file.0, |state, who, node| {
            let target = state.descriptor(self.instance, file.0.handle)?.target();
            let end = state.stat(node).size;
            state.write(who, target, &[IoSlice::new(bytes)], end)
        })
    }

    /// Opens as a program does that thinks of nothing: a symbolic link is followed (`openat` without `O_NOFOLLOW` and
    /// `O_NONBLOCK`).
    ///
    /// # Errors
    /// [`WOULD_HANG`](super::WOULD_HANG) for a FIFO, which nobody writes to; else as `open`.
    pub fn open_plainly(&self, dir: &SimDir, name: &OsStr, access: Access) -> Result<SimFile, Errno> {
        self.call_on(&dir.0, |state, who, dir| {
            check_name(name)?;
            check_path(name)?;
            state.room_for_descriptor(self.instance)?;
            let mut name = name.to_owned();
            for _ in 0..MOST_LINKS {
                match &state.node(state.find(who, dir, &name)?).body {
                    Body::Fifo => return Err(super::WOULD_HANG),
                    // The links that the harness makes lead to names in the same directory.
                    Body::Symlink(target) => target.as_ref().clone_into(&mut name),
                    _ => break,
                }
            }
            let node = state.openable(who, dir, &name, access)?;
            Ok(SimFile(self.opened(state, node, access == Access::ReadWrite)))
        })
    }

    fn call<T>(&self, call: impl FnOnce(&mut State, Who) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut state = self.machine.state();
        let who = state.who(self.instance)?;
        call(&mut state, who)
    }

    /// As [`Process::call`], on an open file or directory of this process.
    fn call_on<T>(
        &self,
        open: &Open,
        call: impl FnOnce(&mut State, Who, NodeId) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.call(|state, who| {
            let node = self.own(state, open)?;
            call(state, who, node)
        })
    }

    fn own(&self, state: &State, open: &Open) -> Result<NodeId, Errno> {
        if !Arc::ptr_eq(&self.machine, &open.machine) {
            return Err(Errno::EBADF);
        }
        Ok(state.descriptor(self.instance, open.handle)?.node)
    }

    fn opened(&self, state: &mut State, node: NodeId, writable: bool) -> Open {
        let handle = state.open_node(self.instance, node, writable);
        Open { machine: self.machine.clone(), instance: self.instance, handle }
    }
}

impl FileOps for Process {
    type File = SimFile;
    type Dir = SimDir;

    fn open_dir(&self, path: &Path) -> Result<SimDir, Errno> {
        self.call(|state, who| {
            check_path(path.as_os_str())?;
            state.room_for_descriptor(self.instance)?;
            let node = state.resolve(who, path.as_os_str())?;
            state.directory(node)?;
            state.permit(who, node, READ)?;
            Ok(SimDir(self.opened(state, node, false)))
        })
    }

    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno> {
        self.call(|state, who| {
            let node = state.resolve(who, path.as_os_str())?;
            Ok(state.stat(node))
        })
    }

    fn stat_dir(&self, dir: &SimDir) -> Result<FileStat, Errno> {
        self.call_on(&dir.0, |state, _, node| Ok(state.stat(node)))
    }

    fn name_limit(&self, dir: &SimDir) -> Result<u64, Errno> {
        self.call_on(&dir.0, |state, _, _| Ok(state.options.name_limit))
    }

    fn stat_at(&self, dir: &SimDir, name: &OsStr) -> Result<FileStat, Errno> {
        self.call_on(&dir.0, |state, who, dir| {
            check_name(name)?;
            let node = state.find(who, dir, name)?;
            Ok(state.stat(node))
        })
    }

    fn create_new(&self, dir: &SimDir, name: &OsStr, mode: u32) -> Result<SimFile, Errno> {
        self.call_on(&dir.0, |state, who, dir| {
            check_name(name)?;
            check_path(name)?;
            state.room_for_descriptor(self.instance)?;
            let node = state.create(who, dir, name, mode, Body::empty_file())?;
            Ok(SimFile(self.opened(state, node, true)))
        })
    }

    fn open(&self, dir: &SimDir, name: &OsStr, access: Access) -> Result<SimFile, Errno> {
        self.call_on(&dir.0, |state, who, dir| {
            check_name(name)?;
            check_path(name)?;
            state.room_for_descriptor(self.instance)?;
            let node = state.openable(who, dir, name, access)?;
            Ok(SimFile(self.opened(state, node, access == Access::ReadWrite)))
        })
    }

    fn link(&self, dir: &SimDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.call_on(&dir.0, |state, who, dir| state.link(who, (dir, from), (dir, to)))
    }

    fn rename(&self, dir: &SimDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.call_on(&dir.0, |state, who, dir| state.rename(who, (dir, from), (dir, to)))
    }

    fn unlink(&self, dir: &SimDir, name: &OsStr) -> Result<(), Errno> {
        self.call_on(&dir.0, |state, who, dir| state.unlink(who, dir, name))
    }

    fn list(&self, dir: &SimDir) -> Result<Vec<OsString>, Errno> {
        self.call_on(&dir.0, |state, who, dir| {
            // The real implementation opens `.` in it, so as not to share a position.
            state.room_for_descriptor(self.instance)?;
            state.permit(who, dir, READ | SEARCH)?;
            Ok(state.directory(dir)?.entries.iter().map(|(name, _)| name.as_ref().to_owned()).collect())
        })
    }

    fn sync_dir(&self, dir: &SimDir) -> Result<(), Errno> {
        self.call_on(&dir.0, |state, _, node| state.sync(node))
    }

    fn stat(&self, file: &SimFile) -> Result<FileStat, Errno> {
        self.call_on(&file.0, |state, _, node| Ok(state.stat(node)))
    }

    fn read_at(&self, file: &SimFile, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.call_on(&file.0, |state, _, node| state.read(node, buf, offset))
    }

    fn write_at(&self, file: &SimFile, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        self.call_on(&file.0, |state, who, _| {
            let target = state.descriptor(self.instance, file.0.handle)?.target();
            state.write(who, target, bufs, offset)
        })
    }

    fn set_mode(&self, file: &SimFile, mode: u32) -> Result<(), Errno> {
        self.call_on(&file.0, |state, who, node| state.set_mode(who, node, mode))
    }

    fn sync(&self, file: &SimFile) -> Result<(), Errno> {
        self.call_on(&file.0, |state, _, node| state.sync(node))
    }

    fn close(&self, file: SimFile) -> Result<(), Errno> {
        self.call_on(&file.0, |state, _, _| {
            state.close(file.0.handle);
            Ok(())
        })
    }

    fn try_lock(&self, file: &SimFile, kind: Lock) -> Result<bool, Errno> {
        self.call_on(&file.0, |state, _, _| state.try_lock(self.instance, file.0.handle, kind))
    }

    fn unlock(&self, file: &SimFile) {
        // A failure is of no consequence, as the boundary says.
        let _ = self.call_on(&file.0, |state, _, _| {
            state.set_lock(file.0.handle, None);
            Ok(())
        });
    }

    fn pause(&self, attempt: u32) {
        let milliseconds = attempt.clamp(1, MAX_PAUSE_MS);
        let waited = self.call(|state, _| {
            state.clock += u64::from(milliseconds) * 1_000_000;
            Ok(())
        });
        if waited.is_ok() {
            self.machine.paused(attempt);
        }
    }

    fn tag(&self) -> Tag {
        let mut state = self.machine.state();
        let (count, time) = (state.next_tag(self.pid), timestamp(state.clock));
        // As long as a UUID, so that names are as long as real ones.
        let unique = format!("{:08x}-0000-4000-8000-{:012x}", self.pid, count & 0xffff_ffff_ffff);
        Tag { process: self.pid, time, unique }
    }

    fn path_locks(&self) -> &PathLocks {
        &self.locks
    }
}

impl SimFile {
    pub(super) fn node(&self, state: &State) -> Result<NodeId, Errno> {
        self.0.node(state)
    }
}

impl SimDir {
    pub(super) fn node(&self, state: &State) -> Result<NodeId, Errno> {
        self.0.node(state)
    }
}

impl Open {
    fn node(&self, state: &State) -> Result<NodeId, Errno> {
        state.who(self.instance)?;
        Ok(state.descriptor(self.instance, self.handle)?.node)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.machine.state().close(self.handle);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimFile").field(&self.0.handle).finish()
    }
}

impl fmt::Debug for SimDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimDir").field(&self.0.handle).finish()
    }
}
