//! What anyone who looks can see of a disk, as a value.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use session_tree::file_ops::FileKind;

use super::node::Body;
use super::state::{ROOT, State};
use super::{Disk, NodeId};

/// Every path of a disk with what stands there, in the order of a walk that takes names in byte order.
///
/// Equal trees are disks that no look at names, kinds, bytes, modes, owners and identities tells apart. Inode
/// numbers and times are left out, so that how a state came about does not make it another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tree {
    nodes: Vec<(PathBuf, TreeNode)>,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TreeNode {
    /// The kind of thing.
    pub kind: FileKind,
    /// A regular file's bytes.
    pub bytes: Arc<Vec<u8>>,
    /// What a symlink points to.
    pub target: Option<OsString>,
    /// The permission bits.
    pub mode: u32,
    /// The owning user.
    pub owner: u32,
    /// The owning group.
    pub group: u32,
    /// Names that the inode has.
    pub links: u32,
    /// The place in the tree of the first path that names this inode: two paths are one inode if this is equal.
    pub identity: usize,
}

impl Tree {
    /// Every path but the root, with what stands there.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &TreeNode)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// What stands at `path`.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<&TreeNode> {
        self.iter().find(|(other, _)| *other == path.as_ref()).map(|(_, node)| node)
    }

    /// Every path but the root.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.iter().map(|(path, _)| path)
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, node) in self.iter() {
            write!(f, "{} {:?} {:04o}", path.display(), node.kind, node.mode)?;
            match &node.target {
                Some(target) => writeln!(f, " -> {}", target.display())?,
                None => writeln!(f, " {:?}", String::from_utf8_lossy(&node.bytes))?,
            }
        }
        Ok(())
    }
}

impl Disk {
    /// What the disk shows now, from the cache.
    pub fn snapshot(&self) -> Tree {
        self.state().snapshot()
    }
}

impl State {
    fn snapshot(&self) -> Tree {
        let mut tree = Tree::default();
        let mut first = HashMap::new();
        let mut todo = Vec::new();
        self.push_children(ROOT, Path::new("/"), &mut todo);
        while let Some((path, id)) = todo.pop() {
            let place = tree.nodes.len();
            let identity = *first.entry(id).or_insert(place);
            if self.node(id).is_directory() {
                self.push_children(id, &path, &mut todo);
            }
            tree.nodes.push((path, self.view(id, identity)));
        }
        tree
    }

    fn push_children(&self, id: NodeId, path: &Path, todo: &mut Vec<(PathBuf, NodeId)>) {
        if let Body::Directory(directory) = &self.node(id).body {
            todo.extend(
                directory.entries.iter().rev().map(|(name, child)| (path.join(name.as_ref()), *child)),
            );
        }
    }

    fn view(&self, id: NodeId, identity: usize) -> TreeNode {
        let node = self.node(id);
        let bytes = match &node.body {
            Body::File(file) => file.bytes.clone(),
            _ => Arc::default(),
        };
        TreeNode {
            kind: node.kind(),
            bytes,
            target: node.symlink_target().map(OsString::from),
            mode: node.attributes.mode,
            owner: node.attributes.owner,
            group: node.attributes.group,
            links: node.links,
            identity,
        }
    }
}
