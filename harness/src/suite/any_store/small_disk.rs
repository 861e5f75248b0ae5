//! A small file system in memory that only one case sees, to be filled and to be made read-only.

use std::path::Path;
use std::thread;

use super::ground::Ground;
use super::{Judged, unsupported, violated};
use crate::subject::command::Manner;

/// Runs the rest of a case with a file system of [`BYTES`] at the session's directory. A thread with a mount namespace of
/// its own does, from which the processes of the store inherit it, so that nothing of it stays and nobody else sees it.
pub(super) fn within<'a>(
    ground: &mut Ground<'a>,
    rest: impl FnOnce(&mut Ground<'a>) -> Judged + Send,
) -> Judged {
    // One that serves other cases, too, has seen other file systems.
    ground.manner = Manner::Apart;
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(&ground.root())?;
            rest(ground)
        });
        thread.join().unwrap_or_else(|_| violated("a thread of the harness panicked"))
    })
}

/// Bytes of the file system.
#[cfg(target_os = "linux")]
const BYTES: u64 = 256 << 10;

#[cfg(target_os = "linux")]
fn enter(at: &Path) -> Judged {
    use std::io;

    use nix::errno::Errno;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => {}
        Err(error @ (Errno::EPERM | Errno::ENOSYS)) => {
            return unsupported(format!("SKIPPED: only root can mount a small file system ({error})"));
        }
        Err(error) => return Err(io::Error::from(error).into()),
    }
    let nothing = None::<&str>;
    let size = format!("size={BYTES},mode=700");
    // What is mounted here must not be seen outside.
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)
        .and_then(|()| mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())))
        .or_else(|error| match error {
            Errno::EPERM | Errno::EACCES | Errno::ENODEV => {
                unsupported(format!("SKIPPED: a small file system cannot be mounted here ({error})"))
            }
            error => Err(io::Error::from(error).into()),
        })
}

#[cfg(not(target_os = "linux"))]
fn enter(_at: &Path) -> Judged {
    unsupported("SKIPPED: a small file system that only one case sees takes Linux")
}

/// Makes the file system at `at` read-only or writable again. Says whether it could: not while a file is open for
/// writing.
#[cfg(target_os = "linux")]
pub(super) fn set_read_only(at: &Path, is_read_only: bool) -> std::io::Result<bool> {
    use nix::errno::Errno;
    use nix::mount::{MsFlags, mount};

    let flag = if is_read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
    match mount(None::<&str>, at, None::<&str>, MsFlags::MS_REMOUNT | flag, None::<&str>) {
        Ok(()) => Ok(true),
        Err(Errno::EBUSY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Never asked: [`within`] has ended the case.
#[cfg(not(target_os = "linux"))]
pub(super) fn set_read_only(_at: &Path, _is_read_only: bool) -> std::io::Result<bool> {
    Ok(false)
}
