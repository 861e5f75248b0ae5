//! Which file is which (requirement S4).

use crate::file_ops::{FileKind, FileStat, Timestamp};

/// A file or directory, however many names it has: device, inode and, where known, birth time.
///
/// The birth time tells a new file apart from an old one whose inode number it was given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    birth: Option<Timestamp>,
}

impl Identity {
    pub(crate) fn of(stat: &FileStat) -> Identity {
        Identity { device: stat.device, inode: stat.inode, birth: stat.birth }
    }

    /// Whether a look shows this very file. Birth times are compared only when both looks have one.
    pub(crate) fn is(&self, stat: &FileStat) -> bool {
        self.same(&Identity::of(stat))
    }

    /// Whether two looks showed one file.
    pub(crate) fn same(&self, other: &Identity) -> bool {
        let born_alike = match (self.birth, other.birth) {
            (Some(mine), Some(theirs)) => mine == theirs,
            _ => true,
        };
        self.device == other.device && self.inode == other.inode && born_alike
    }

    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }
}

/// One generation of a session file, held open so that its inode number is not given to another file.
#[derive(Debug)]
pub(crate) struct Generation<F> {
    pub(crate) file: F,
    pub(crate) identity: Identity,
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
}

impl<F> Generation<F> {
    pub(crate) fn new(file: F, stat: &FileStat) -> Generation<F> {
        Generation { file, identity: Identity::of(stat), size: stat.size, modified: stat.modified }
    }

    /// Whether a look shows this generation with the bytes that it was recorded with. A rewrite in place of equal
    /// size shows in the modification time (choice S4.rewrite).
    pub(crate) fn is_unchanged_in(&self, stat: &FileStat) -> bool {
        stat.kind == FileKind::Regular
            && self.identity.is(stat)
            && self.size == stat.size
            && self.modified == stat.modified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(device: u64, inode: u64, birth: Option<i64>) -> Identity {
        let birth = birth.map(|seconds| Timestamp { seconds, nanoseconds: 0 });
        Identity { device, inode, birth }
    }

    // Requirement: S4
    #[test]
    fn device_and_inode_decide_and_birth_times_where_both_are_known() {
        let known = identity(5, 6, Some(3));
        for same in [known, identity(5, 6, None)] {
            assert!(known.same(&same) && same.same(&known), "{same:?}");
        }
        for other in
            [identity(9, 6, Some(3)), identity(5, 9, Some(3)), identity(5, 6, Some(9)), identity(5, 9, None)]
        {
            assert!(!known.same(&other) && !other.same(&known), "{other:?}");
        }
        assert_eq!((known.device(), known.inode()), (5, 6));
    }
}
