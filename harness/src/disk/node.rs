//! Inodes and directory tables, each with what the cache shows and, apart from it, what is durable.

use std::ffi::OsStr;
use std::sync::Arc;

use session_tree::file_ops::FileKind;

/// A name in a directory. Shared, so that copying a table copies no text.
pub type Name = Arc<OsStr>;

/// The identity of an inode within one [`Disk`](super::Disk) and its forks.
///
/// Never the inode's number: two inodes of which one is durable only and the other cached only may have had one
/// number in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) u32);

/// What `chmod` and `chown` set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attributes {
    /// The permission bits, within `0o7777`.
    pub mode: u32,
    /// The owning user.
    pub owner: u32,
    /// The owning group.
    pub group: u32,
}

/// A change of an inode's attributes since its last successful fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeChange {
    /// When, in the order of all changes of the disk.
    pub at: u64,
    /// The attributes from then on.
    pub now: Attributes,
}

/// A change of a file's bytes since its last successful fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataChange {
    /// When, in the order of all changes of the disk.
    pub at: u64,
    /// What.
    pub what: DataEdit,
}

/// What happened to a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataEdit {
    /// Bytes were written; a gap before them, where the file was shorter, became zeros.
    Write {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// The file was cut or grown to this size by `truncate`.
    Resize {
        /// The new size in bytes.
        size: u64,
    },
}

/// A change of one name of a directory since the directory's last successful fsync. A rename makes two, of the
/// same instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameChange {
    /// When, in the order of all changes of the disk.
    pub at: u64,
    /// The name.
    pub name: Name,
    /// What it names from then on.
    pub now: Option<NodeId>,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) born: u64,
    pub(super) modified: u64,
    /// The last change of anything that an inode holds, which is what a journal ties to it.
    pub(super) changed: u64,
    /// Cached names; for a directory 2 and one for each directory in it; 0 once removed.
    pub(super) links: u32,
    pub(super) attributes: Attributes,
    pub(super) durable_attributes: Attributes,
    pub(super) attribute_changes: Vec<AttributeChange>,
    pub(super) body: Body,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    File(FileBody),
    Directory(DirectoryBody),
    Symlink(Name),
    Fifo,
    Other,
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileBody {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) durable: Arc<Vec<u8>>,
    pub(super) changes: Vec<DataChange>,
    /// A failed fsync marked changes clean: `durable` and `changes` no longer add up to what is cached.
    pub(super) lost: bool,
}

#[derive(Debug, Clone)]
pub(super) struct DirectoryBody {
    pub(super) parent: NodeId,
    pub(super) entries: Entries,
    pub(super) durable: Entries,
    pub(super) changes: Vec<NameChange>,
    /// As [`FileBody::lost`].
    pub(super) lost: bool,
}

impl Node {
    pub(super) fn kind(&self) -> FileKind {
        match self.body {
            Body::File(_) => FileKind::Regular,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Fifo => FileKind::Fifo,
            Body::Other => FileKind::Other,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// Bytes that count against the disk's space.
    pub(super) fn file_size(&self) -> u64 {
        match &self.body {
            Body::File(file) => file.bytes.len() as u64,
            _ => 0,
        }
    }

    pub(super) fn size(&self) -> u64 {
        match &self.body {
            Body::File(file) => file.bytes.len() as u64,
            Body::Directory(_) => 4_096,
            Body::Symlink(target) => target.len() as u64,
            Body::Fifo | Body::Other => 0,
        }
    }

    pub(super) fn set_attributes(&mut self, at: u64, now: Attributes) {
        self.attributes = now;
        self.changed = at;
        self.attribute_changes.push(AttributeChange { at, now });
    }
}

impl DirectoryBody {
    pub(super) fn new(parent: NodeId) -> DirectoryBody {
        DirectoryBody {
            parent,
            entries: Entries::default(),
            durable: Entries::default(),
            changes: Vec::new(),
            lost: false,
        }
    }
}

/// The table of a directory, sorted by name: a handful of names is found in two or three comparisons, ten
/// thousand in fourteen. Shared until changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entries(Arc<Vec<(Name, NodeId)>>);

impl Entries {
    pub(super) fn get(&self, name: &OsStr) -> Option<NodeId> {
        self.place(name).ok().map(|place| self.0[place].1)
    }

    pub(super) fn set(&mut self, name: &Name, now: Option<NodeId>) {
        match (self.place(name), now) {
            (Ok(place), Some(id)) => Arc::make_mut(&mut self.0)[place].1 = id,
            (Ok(place), None) => drop(Arc::make_mut(&mut self.0).remove(place)),
            (Err(place), Some(id)) => Arc::make_mut(&mut self.0).insert(place, (name.clone(), id)),
            (Err(_), None) => {}
        }
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, (Name, NodeId)> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn as_slice(&self) -> &[(Name, NodeId)] {
        &self.0
    }

    pub(super) fn from_sorted(entries: Vec<(Name, NodeId)>) -> Entries {
        Entries(Arc::new(entries))
    }

    fn place(&self, name: &OsStr) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.as_ref().cmp(name))
    }
}
