//! Error numbers of the operating system as plain values: compared, injected and printed alike.

use std::fmt;
use std::str::FromStr;

use rustix::io::Errno as Os;

/// An error number, such as `ENOSPC`.
///
/// Prints as its name where it has one here, else as `errno 123`; [`Errno::from_str`] reads both back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(i32);

macro_rules! named {
    ($($name:ident = $os:expr;)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`")]
            pub const $name: Errno = Errno($os.raw_os_error());)*

            /// Every error number that has a name here.
            pub const NAMED: &'static [(&'static str, Errno)] = &[$((stringify!($name), Errno::$name)),*];
        }
    };
}

named! {
    EACCES = Os::ACCESS; EAGAIN = Os::AGAIN; EBADF = Os::BADF; EBUSY = Os::BUSY; EDQUOT = Os::DQUOT;
    EEXIST = Os::EXIST; EFBIG = Os::FBIG; EINTR = Os::INTR; EINVAL = Os::INVAL; EIO = Os::IO;
    EISDIR = Os::ISDIR; ELOOP = Os::LOOP; EMFILE = Os::MFILE; EMLINK = Os::MLINK;
    ENAMETOOLONG = Os::NAMETOOLONG; ENFILE = Os::NFILE; ENODEV = Os::NODEV; ENOENT = Os::NOENT;
    ENOLCK = Os::NOLCK; ENOMEM = Os::NOMEM; ENOSPC = Os::NOSPC; ENOSYS = Os::NOSYS; ENOTDIR = Os::NOTDIR;
    ENOTEMPTY = Os::NOTEMPTY; ENOTSUP = Os::NOTSUP; ENXIO = Os::NXIO; EPERM = Os::PERM; EROFS = Os::ROFS;
    ESTALE = Os::STALE; ETXTBSY = Os::TXTBSY; EXDEV = Os::XDEV;
}

impl Errno {
    /// The error number `raw`, as the operating system counts them.
    pub const fn from_raw(raw: i32) -> Errno {
        Errno(raw)
    }

    /// The number itself.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The name, such as `ENOSPC`, where this crate knows one.
    pub fn name(self) -> Option<&'static str> {
        Errno::NAMED.iter().find(|(_, errno)| *errno == self).map(|(name, _)| *name)
    }

    /// The operating system's own words, such as `no space left on device`.
    pub fn description(self) -> String {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        let mut letters = text.chars();
        letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text names no error number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an error number: expected a name such as ENOSPC, or `errno 28`")]
pub struct UnknownErrno(String);

impl FromStr for Errno {
    type Err = UnknownErrno;

    fn from_str(text: &str) -> Result<Errno, UnknownErrno> {
        if let Some((_, errno)) = Errno::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*errno);
        }
        text.strip_prefix("errno ")
            .and_then(|number| number.parse().ok())
            .filter(|number| *number > 0)
            .map(Errno)
            .ok_or_else(|| UnknownErrno(text.to_owned()))
    }
}

impl From<Os> for Errno {
    fn from(os: Os) -> Errno {
        Errno(os.raw_os_error())
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(errno.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_form_reads_back() {
        for (_, errno) in Errno::NAMED {
            assert_eq!(errno.to_string().parse(), Ok(*errno));
        }
        assert_eq!(Errno::from_raw(4_000).to_string(), "errno 4000");
        assert_eq!("errno 4000".parse(), Ok(Errno::from_raw(4_000)));
        for text in ["ENOSUCH", "errno 0", "errno -5", "errno"] {
            assert!(text.parse::<Errno>().is_err(), "{text}");
        }
    }

    #[test]
    fn description_is_a_lower_case_fragment() {
        assert_eq!(Errno::ENOSPC.description(), "no space left on device");
    }
}
