//! What someone else does between two calls, on either side.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode};
use session_harness::disk::Disk;
use session_tree::Errno;

type Answer = Result<(), Errno>;

pub(crate) trait Outside {
    fn mkdir(&self, path: &Path) -> Answer;
    fn symlink(&self, target: &str, path: &Path) -> Answer;
    fn fifo(&self, path: &Path) -> Answer;
    fn socket(&self, path: &Path) -> Answer;
    fn remove(&self, path: &Path) -> Answer;
    fn rename(&self, from: &Path, to: &Path) -> Answer;
    fn hard_link(&self, from: &Path, to: &Path) -> Answer;
    fn chmod(&self, path: &Path, mode: u32) -> Answer;
    fn chown(&self, path: &Path, owner: u32, group: u32) -> Answer;
    fn truncate(&self, path: &Path, size: u64) -> Answer;
    fn write_file(&self, path: &Path, bytes: &[u8]) -> Answer;
    fn overwrite(&self, path: &Path, bytes: &[u8]) -> Answer;
}

impl Outside for Disk {
    fn mkdir(&self, path: &Path) -> Answer {
        Disk::mkdir(self, path)
    }

    fn symlink(&self, target: &str, path: &Path) -> Answer {
        Disk::symlink(self, target, path)
    }

    fn fifo(&self, path: &Path) -> Answer {
        Disk::fifo(self, path)
    }

    fn socket(&self, path: &Path) -> Answer {
        self.other(path)
    }

    fn remove(&self, path: &Path) -> Answer {
        Disk::remove(self, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Answer {
        Disk::rename(self, from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Answer {
        Disk::hard_link(self, from, to)
    }

    fn chmod(&self, path: &Path, mode: u32) -> Answer {
        Disk::chmod(self, path, mode)
    }

    fn chown(&self, path: &Path, owner: u32, group: u32) -> Answer {
        Disk::chown(self, path, owner, group)
    }

    fn truncate(&self, path: &Path, size: u64) -> Answer {
        Disk::truncate(self, path, size)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> Answer {
        Disk::write_file(self, path, bytes)
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> Answer {
        self.overwrite_in_place(path, bytes)
    }
}

/// The operating system's files.
pub(crate) struct RealOutside;

impl Outside for RealOutside {
    fn mkdir(&self, path: &Path) -> Answer {
        Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))?)
    }

    fn symlink(&self, target: &str, path: &Path) -> Answer {
        Ok(rustix::fs::symlink(target, path)?)
    }

    fn fifo(&self, path: &Path) -> Answer {
        Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0)?)
    }

    fn socket(&self, path: &Path) -> Answer {
        Ok(rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::from_raw_mode(0o644), 0)?)
    }

    fn remove(&self, path: &Path) -> Answer {
        match rustix::fs::rmdir(path) {
            Err(rustix::io::Errno::NOTDIR) => Ok(rustix::fs::unlink(path)?),
            answer => Ok(answer?),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Answer {
        Ok(rustix::fs::rename(from, to)?)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Answer {
        Ok(rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?)
    }

    fn chmod(&self, path: &Path, mode: u32) -> Answer {
        if kind(path)?.is_symlink() {
            return Err(Errno::ENOTSUP);
        }
        Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
    }

    fn chown(&self, path: &Path, owner: u32, group: u32) -> Answer {
        let (owner, group) = (rustix::fs::Uid::from_raw(owner), rustix::fs::Gid::from_raw(group));
        Ok(rustix::fs::chownat(CWD, path, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn truncate(&self, path: &Path, size: u64) -> Answer {
        let kind = kind(path)?;
        if kind.is_dir() {
            return Err(Errno::EISDIR);
        }
        if !kind.is_file() {
            return Err(Errno::EINVAL);
        }
        OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(size)).map_err(errno)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> Answer {
        let staged = path.with_file_name("staged");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        options.open(&staged).and_then(|mut file| file.write_all(bytes)).map_err(errno)?;
        rustix::fs::rename(&staged, path).map_err(|errno| {
            let _ = std::fs::remove_file(&staged);
            errno.into()
        })
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> Answer {
        let kind = kind(path)?;
        if kind.is_symlink() {
            return Err(Errno::ELOOP);
        }
        if kind.is_fifo() || kind.is_socket() {
            // A FIFO that someone has open for reading would take the bytes, which says nothing about files.
            return Err(Errno::ENXIO);
        }
        OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(bytes)).map_err(errno)
    }
}

fn kind(path: &Path) -> Result<std::fs::FileType, Errno> {
    Ok(std::fs::symlink_metadata(path).map_err(errno)?.file_type())
}

#[expect(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().expect("an error of the operating system"))
}
