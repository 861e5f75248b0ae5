//! The operating system's files with a script: the nth matching call fails, lies, is cut short, or lets an outside
//! actor act first.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Mutex};

use session_tree::file_ops::{Access, FileOps, FileStat, Lock, OsDir, OsFile, OsFileOps, Tag};
use session_tree::{Errno, PathLocks};

/// The kinds of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    OpenDir,
    StatPath,
    StatDir,
    NameLimit,
    StatAt,
    CreateNew,
    Open,
    Link,
    Rename,
    Unlink,
    SyncDir,
    Stat,
    ReadAt,
    WriteAt,
    SetMode,
    Sync,
    Close,
    TryLock,
    Pause,
    List,
}

/// What a call is about: of `link` the name that is made, of `rename` the name that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Directory,
    Session,
    Marker,
    Temporary,
    Restore,
}

/// What is to happen at a call.
pub(crate) enum What {
    /// It fails without an effect.
    Before(Errno),
    /// It has its effect and fails.
    After(Errno),
    /// It has no effect and says that it had.
    Lie,
    /// It takes at most so many bytes.
    AtMost(usize),
    /// A lock is held by another process.
    Held,
    /// Somebody acts just before it.
    Actor(Box<dyn FnMut() + Send>),
}

/// One line of a script.
pub(crate) struct Rule {
    matches: Box<dyn Fn(Op, Role) -> bool + Send>,
    skip: usize,
    times: usize,
    what: What,
}

/// The next call of this kind does `what`.
pub(crate) fn at(op: Op, role: Role, what: What) -> Rule {
    Rule { matches: Box::new(move |o, r| (o, r) == (op, role)), skip: 0, times: 1, what }
}

/// The `index`th call of any kind from now on, from 0, does `what`.
pub(crate) fn at_index(index: usize, what: What) -> Rule {
    Rule { matches: Box::new(|op, _| op != Op::Pause), skip: index, times: 1, what }
}

pub(crate) fn actor(act: impl FnMut() + Send + 'static) -> What {
    What::Actor(Box::new(act))
}

impl Rule {
    /// The first call that it strikes, from 1.
    pub(crate) fn nth(mut self, nth: usize) -> Rule {
        self.skip = nth - 1;
        self
    }

    pub(crate) fn times(mut self, times: usize) -> Rule {
        self.times = times;
        self
    }

    pub(crate) fn for_ever(self) -> Rule {
        self.times(usize::MAX)
    }
}

#[derive(Clone)]
pub(crate) struct ScriptedOps {
    os: OsFileOps,
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    rules: Vec<Rule>,
    trace: Vec<(Op, Role)>,
    fired: usize,
}

/// An open file that knows what it is.
pub(crate) struct ScriptedFile {
    file: OsFile,
    role: Role,
}

impl ScriptedOps {
    pub(crate) fn new() -> ScriptedOps {
        ScriptedOps { os: OsFileOps::new(), script: Arc::default() }
    }

    pub(crate) fn plan(&self, rule: Rule) {
        self.script.lock().unwrap().rules.push(rule);
    }

    /// Drops all rules and the trace.
    pub(crate) fn forget(&self) {
        *self.script.lock().unwrap() = Script::default();
    }

    /// How many calls a rule struck.
    pub(crate) fn fired(&self) -> usize {
        self.script.lock().unwrap().fired
    }

    pub(crate) fn trace(&self) -> Vec<(Op, Role)> {
        self.script.lock().unwrap().trace.clone()
    }

    /// Calls of the trace that are not pauses.
    pub(crate) fn calls(&self) -> usize {
        self.trace().iter().filter(|(op, _)| *op != Op::Pause).count()
    }

    pub(crate) fn count(&self, op: Op, role: Role) -> usize {
        self.trace().iter().filter(|&&call| call == (op, role)).count()
    }

    /// What is to happen at this call, if anything. An actor acts here, without the script being held.
    fn strike(&self, op: Op, role: Role) -> Option<Struck> {
        let mut script = self.script.lock().unwrap();
        script.trace.push((op, role));
        let mut acting = Vec::new();
        let mut struck = None;
        let rules = std::mem::take(&mut script.rules);
        for mut rule in rules {
            if !(rule.matches)(op, role) {
                script.rules.push(rule);
            } else if rule.skip > 0 {
                rule.skip -= 1;
                script.rules.push(rule);
            } else if rule.times > 0 {
                rule.times -= 1;
                script.fired += 1;
                match &rule.what {
                    What::Before(errno) => struck = Some(Struck::Before(*errno)),
                    What::After(errno) => struck = Some(Struck::After(*errno)),
                    What::Lie => struck = Some(Struck::Lie),
                    What::AtMost(bytes) => struck = Some(Struck::AtMost(*bytes)),
                    What::Held => struck = Some(Struck::Held),
                    What::Actor(_) => {
                        acting.push(rule);
                        continue;
                    }
                }
                script.rules.push(rule);
            }
        }
        drop(script);
        for rule in &mut acting {
            if let What::Actor(act) = &mut rule.what {
                act();
            }
        }
        self.script.lock().unwrap().rules.extend(acting);
        struck
    }

    fn run<T>(&self, op: Op, role: Role, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        match self.strike(op, role) {
            Some(Struck::Before(errno)) => Err(errno),
            Some(Struck::After(errno)) => call().and(Err(errno)),
            _ => call(),
        }
    }

    /// A call whose success carries nothing, so that it can be a lie.
    fn run_unit(&self, op: Op, role: Role, call: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        match self.strike(op, role) {
            Some(Struck::Before(errno)) => Err(errno),
            Some(Struck::After(errno)) => call().and(Err(errno)),
            Some(Struck::Lie) => Ok(()),
            _ => call(),
        }
    }
}

enum Struck {
    Before(Errno),
    After(Errno),
    Lie,
    AtMost(usize),
    Held,
}

fn role_of(name: &OsStr) -> Role {
    let name = name.to_string_lossy();
    if name.ends_with(".pify-session-recovery") {
        Role::Marker
    } else if name.contains(".pify-session-restore-") {
        Role::Restore
    } else if name.contains(".pify-session-") {
        Role::Temporary
    } else {
        Role::Session
    }
}

impl FileOps for ScriptedOps {
    type File = ScriptedFile;
    type Dir = OsDir;

    fn open_dir(&self, path: &Path) -> Result<OsDir, Errno> {
        self.run(Op::OpenDir, Role::Directory, || self.os.open_dir(path))
    }

    fn stat_path(&self, path: &Path) -> Result<FileStat, Errno> {
        self.run(Op::StatPath, Role::Directory, || self.os.stat_path(path))
    }

    fn stat_dir(&self, dir: &OsDir) -> Result<FileStat, Errno> {
        self.run(Op::StatDir, Role::Directory, || self.os.stat_dir(dir))
    }

    fn name_limit(&self, dir: &OsDir) -> Result<u64, Errno> {
        self.run(Op::NameLimit, Role::Directory, || self.os.name_limit(dir))
    }

    fn stat_at(&self, dir: &OsDir, name: &OsStr) -> Result<FileStat, Errno> {
        self.run(Op::StatAt, role_of(name), || self.os.stat_at(dir, name))
    }

    fn create_new(&self, dir: &OsDir, name: &OsStr, mode: u32) -> Result<ScriptedFile, Errno> {
        let role = role_of(name);
        let file = self.run(Op::CreateNew, role, || self.os.create_new(dir, name, mode))?;
        Ok(ScriptedFile { file, role })
    }

    fn open(&self, dir: &OsDir, name: &OsStr, access: Access) -> Result<ScriptedFile, Errno> {
        let role = role_of(name);
        let file = self.run(Op::Open, role, || self.os.open(dir, name, access))?;
        Ok(ScriptedFile { file, role })
    }

    fn link(&self, dir: &OsDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.run_unit(Op::Link, role_of(to), || self.os.link(dir, from, to))
    }

    fn rename(&self, dir: &OsDir, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.run_unit(Op::Rename, role_of(from), || self.os.rename(dir, from, to))
    }

    fn unlink(&self, dir: &OsDir, name: &OsStr) -> Result<(), Errno> {
        self.run_unit(Op::Unlink, role_of(name), || self.os.unlink(dir, name))
    }

    fn list(&self, dir: &OsDir) -> Result<Vec<OsString>, Errno> {
        self.run(Op::List, Role::Directory, || self.os.list(dir))
    }

    fn sync_dir(&self, dir: &OsDir) -> Result<(), Errno> {
        self.run_unit(Op::SyncDir, Role::Directory, || self.os.sync_dir(dir))
    }

    fn stat(&self, file: &ScriptedFile) -> Result<FileStat, Errno> {
        self.run(Op::Stat, file.role, || self.os.stat(&file.file))
    }

    fn read_at(&self, file: &ScriptedFile, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        match self.strike(Op::ReadAt, file.role) {
            Some(Struck::Before(errno) | Struck::After(errno)) => Err(errno),
            Some(Struck::AtMost(bytes)) => {
                let most = bytes.min(buf.len());
                self.os.read_at(&file.file, &mut buf[..most], offset)
            }
            _ => self.os.read_at(&file.file, buf, offset),
        }
    }

    fn write_at(&self, file: &ScriptedFile, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        let bytes = match self.strike(Op::WriteAt, file.role) {
            Some(Struck::Before(errno)) => return Err(errno),
            Some(Struck::After(errno)) => {
                return self.os.write_at(&file.file, bufs, offset).and(Err(errno));
            }
            Some(Struck::AtMost(bytes)) => bytes,
            _ => return self.os.write_at(&file.file, bufs, offset),
        };
        match bufs.iter().find(|buf| !buf.is_empty()) {
            Some(first) if bytes > 0 => {
                let most = bytes.min(first.len());
                self.os.write_at(&file.file, &[IoSlice::new(&first[..most])], offset)
            }
            _ => Ok(0),
        }
    }

    fn set_mode(&self, file: &ScriptedFile, mode: u32) -> Result<(), Errno> {
        self.run_unit(Op::SetMode, file.role, || self.os.set_mode(&file.file, mode))
    }

    fn sync(&self, file: &ScriptedFile) -> Result<(), Errno> {
        self.run_unit(Op::Sync, file.role, || self.os.sync(&file.file))
    }

    fn close(&self, file: ScriptedFile) -> Result<(), Errno> {
        // However it is answered, the descriptor is gone afterwards.
        self.run_unit(Op::Close, file.role, || self.os.close(file.file))
    }

    fn try_lock(&self, file: &ScriptedFile, kind: Lock) -> Result<bool, Errno> {
        match self.strike(Op::TryLock, file.role) {
            Some(Struck::Before(errno)) => Err(errno),
            Some(Struck::After(errno)) => self.os.try_lock(&file.file, kind).and(Err(errno)),
            Some(Struck::Held) => Ok(false),
            _ => self.os.try_lock(&file.file, kind),
        }
    }

    fn unlock(&self, file: &ScriptedFile) {
        self.os.unlock(&file.file);
    }

    /// Virtual time: a pause takes none.
    fn pause(&self, _attempt: u32) {
        self.strike(Op::Pause, Role::Session);
    }

    fn tag(&self) -> Tag {
        self.os.tag()
    }

    fn path_locks(&self) -> &PathLocks {
        self.os.path_locks()
    }
}
