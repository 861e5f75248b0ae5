//! What is durable, what an fsync makes so, and what a power cut may leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use session_tree::Errno;

use super::node::{AttributeChange, Body, DataChange, DataEdit, DirectoryBody, Entries, FileBody, Node};
use super::state::{FIRST_NUMBER, ROOT, State};
use super::{Attributes, Disk, Name, NameChange, NodeId, SimDir, SimFile};

/// How an fsync misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncFault {
    /// It fails, and everything stays dirty: a later success makes it durable.
    FailKeepingDirty(Errno),
    /// It fails, and what was dirty counts as clean from then on: reads still show it, a later fsync says success,
    /// and a cut loses it. For a directory this breaks storage assumption A2.
    FailMarkingClean(Errno),
    /// It says success and does nothing. This breaks storage assumption A1, for a directory A2.
    SucceedDoingNothing,
}

/// Everything that a power cut now could lose, and the settled state beneath it.
///
/// Only inodes that some legal state after a cut can show are listed. Instants (`at`) order all changes of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    /// On a journalled file system every change up to this instant is durable: the last metadata change of an
    /// inode that was fsynced with success, the latest of them all.
    pub journal: u64,
    /// Directories with changed names.
    pub directories: Vec<UnsettledDirectory>,
    /// Files with changed bytes.
    pub files: Vec<UnsettledFile>,
    /// Files whose bytes are all durable, with these bytes.
    pub settled: Vec<(NodeId, Arc<Vec<u8>>)>,
    /// Inodes with changed mode or owner.
    pub attributes: Vec<UnsettledAttributes>,
}

/// A directory whose names changed since its last successful fsync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledDirectory {
    /// Which directory.
    pub id: NodeId,
    /// Its names as they are durable, sorted.
    pub durable: Vec<(Name, NodeId)>,
    /// What changed since, in order.
    pub changes: Vec<NameChange>,
}

/// A file whose bytes changed since its last successful fsync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledFile {
    /// Which file.
    pub id: NodeId,
    /// Its bytes as they are durable.
    pub durable: Arc<Vec<u8>>,
    /// Its bytes as they are read.
    pub cached: Arc<Vec<u8>>,
    /// What changed since, in order.
    pub changes: Vec<DataChange>,
}

/// An inode whose attributes changed since its last successful fsync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledAttributes {
    /// Which inode.
    pub id: NodeId,
    /// Its attributes as they are durable.
    pub durable: Attributes,
    /// What changed since, in order.
    pub changes: Vec<AttributeChange>,
}

/// Which unsettled changes a power cut let through. What is not named here is as it was durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CutOutcome {
    /// Names of directories, and what each means after the cut.
    pub names: Vec<(NodeId, Name, Option<NodeId>)>,
    /// Bytes of files.
    pub bytes: Vec<(NodeId, Arc<Vec<u8>>)>,
    /// Attributes of inodes.
    pub attributes: Vec<(NodeId, Attributes)>,
    /// Names of directories that are empty files of their own after the cut, whatever they meant: what storage
    /// assumption A4 rules out.
    pub empty: Vec<(NodeId, Name)>,
}

impl Disk {
    /// What a cut now could lose.
    pub fn unsettled(&self) -> Unsettled {
        self.state().unsettled()
    }

    /// The machine after a power cut with this outcome: no processes, descriptors and locks, and a cache that shows
    /// what survived, all of it durable. This disk is left as it is.
    ///
    /// Link counts follow from the surviving names. A directory that two surviving names mean keeps the one that
    /// comes first when the tree is walked in order. Where two inodes that never were cached together have one
    /// number, the later one gets another: which number an inode has is not a promise across a cut.
    #[must_use]
    pub fn after_cut(&self, outcome: &CutOutcome) -> Disk {
        Disk::from_state(self.state().after_cut(outcome))
    }

    /// The machine after a cut under the profile `process`: all that was issued survives and is durable.
    #[must_use]
    pub fn after_cut_losing_nothing(&self) -> Disk {
        Disk::from_state(self.state().rebuild(&Everything))
    }

    /// What is durable now whatever the profile, as a tree.
    pub fn durable_tree(&self) -> super::Tree {
        self.after_cut(&CutOutcome::default()).snapshot()
    }

    /// Makes everything durable (`sync`), as a machine does that is left alone for long enough.
    pub fn sync_all(&self) {
        self.state().settle_all();
    }

    /// Does to a file what an fsync with this fault does.
    ///
    /// # Errors
    /// The fault's; `ESRCH` and `EBADF` as without a fault.
    pub fn sync_with_fault(&self, file: &SimFile, fault: SyncFault) -> Result<(), Errno> {
        let mut state = self.state();
        let node = file.node(&state)?;
        state.sync_with_fault(node, fault)
    }

    /// Does to a directory what an fsync with this fault does.
    ///
    /// # Errors
    /// The fault's; `ESRCH` and `EBADF` as without a fault.
    pub fn sync_dir_with_fault(&self, dir: &SimDir, fault: SyncFault) -> Result<(), Errno> {
        let mut state = self.state();
        let node = dir.node(&state)?;
        state.sync_with_fault(node, fault)
    }
}

/// Decides what of each inode a cut leaves.
trait Survival {
    fn entries(&self, id: NodeId, directory: &DirectoryBody) -> Entries;
    fn bytes(&self, id: NodeId, file: &FileBody) -> Arc<Vec<u8>>;
    fn attributes(&self, id: NodeId, node: &Node) -> Attributes;
}

struct Everything;

impl Survival for Everything {
    fn entries(&self, _: NodeId, directory: &DirectoryBody) -> Entries {
        directory.entries.clone()
    }

    fn bytes(&self, _: NodeId, file: &FileBody) -> Arc<Vec<u8>> {
        file.bytes.clone()
    }

    fn attributes(&self, _: NodeId, node: &Node) -> Attributes {
        node.attributes
    }
}

impl Survival for CutOutcome {
    fn entries(&self, id: NodeId, directory: &DirectoryBody) -> Entries {
        let mut entries = directory.durable.clone();
        for (_, name, now) in self.names.iter().filter(|(dir, ..)| *dir == id) {
            entries.set(name, *now);
        }
        entries
    }

    fn bytes(&self, id: NodeId, file: &FileBody) -> Arc<Vec<u8>> {
        let chosen = self.bytes.iter().find(|(file, _)| *file == id);
        chosen.map_or_else(|| file.durable.clone(), |(_, bytes)| bytes.clone())
    }

    fn attributes(&self, id: NodeId, node: &Node) -> Attributes {
        let chosen = self.attributes.iter().find(|(inode, _)| *inode == id);
        chosen.map_or(node.durable_attributes, |(_, attributes)| *attributes)
    }
}

impl State {
    /// # Errors
    /// `EINVAL` for what has no bytes; as the options say for a directory.
    pub(super) fn sync(&mut self, id: NodeId) -> Result<(), Errno> {
        match self.node(id).body {
            Body::File(_) => {}
            Body::Directory(_) => self.options.directory_sync?,
            Body::Symlink(_) | Body::Fifo | Body::Other => return Err(Errno::EINVAL),
        }
        self.settle(id);
        Ok(())
    }

    fn sync_with_fault(&mut self, id: NodeId, fault: SyncFault) -> Result<(), Errno> {
        match fault {
            SyncFault::FailKeepingDirty(errno) => Err(errno),
            SyncFault::FailMarkingClean(errno) => {
                self.lose(id);
                Err(errno)
            }
            SyncFault::SucceedDoingNothing => Ok(()),
        }
    }

    fn settle(&mut self, id: NodeId) {
        self.journal = self.journal.max(self.node(id).changed);
        if self.node(id).is_settled() {
            return;
        }
        let node = self.node_mut(id);
        if let Some(last) = node.attribute_changes.last() {
            node.durable_attributes = last.now;
            node.attribute_changes.clear();
        }
        match &mut node.body {
            Body::File(file) => file.settle(),
            Body::Directory(directory) => directory.settle(),
            Body::Symlink(_) | Body::Fifo | Body::Other => {}
        }
    }

    fn lose(&mut self, id: NodeId) {
        if self.node(id).is_settled() {
            return;
        }
        let node = self.node_mut(id);
        node.attribute_changes.clear();
        match &mut node.body {
            Body::File(file) => {
                file.lost |= !file.changes.is_empty();
                file.changes.clear();
            }
            Body::Directory(directory) => {
                directory.lost |= !directory.changes.is_empty();
                directory.changes.clear();
            }
            Body::Symlink(_) | Body::Fifo | Body::Other => {}
        }
    }

    fn settle_all(&mut self) {
        self.journal = self.clock;
        for slot in 0..self.nodes.len() as u32 {
            if self.nodes[slot as usize].is_some() {
                self.settle(NodeId(slot));
            }
        }
    }

    fn unsettled(&self) -> Unsettled {
        let mut unsettled = Unsettled {
            journal: self.journal,
            directories: Vec::new(),
            files: Vec::new(),
            settled: Vec::new(),
            attributes: Vec::new(),
        };
        for id in self.survivable() {
            let node = self.node(id);
            if !node.attribute_changes.is_empty() {
                let changes = node.attribute_changes.clone();
                unsettled.attributes.push(UnsettledAttributes {
                    id,
                    durable: node.durable_attributes,
                    changes,
                });
            }
            match &node.body {
                Body::File(file) if !file.changes.is_empty() => unsettled.files.push(UnsettledFile {
                    id,
                    durable: file.durable.clone(),
                    cached: file.bytes.clone(),
                    changes: file.changes.clone(),
                }),
                Body::File(file) => unsettled.settled.push((id, file.durable.clone())),
                Body::Directory(directory) if !directory.changes.is_empty() => {
                    unsettled.directories.push(UnsettledDirectory {
                        id,
                        durable: directory.durable.as_slice().to_vec(),
                        changes: directory.changes.clone(),
                    });
                }
                _ => {}
            }
        }
        unsettled
    }

    /// Inodes that some state after a cut can show, each once.
    fn survivable(&self) -> Vec<NodeId> {
        let mut reached = vec![false; self.nodes.len()];
        let mut order = vec![ROOT];
        reached[ROOT.0 as usize] = true;
        let mut next = 0;
        while let Some(id) = order.get(next).copied() {
            next += 1;
            let Body::Directory(directory) = &self.node(id).body else { continue };
            let durable = directory.durable.iter().map(|(_, id)| *id);
            for id in durable.chain(directory.changes.iter().filter_map(|change| change.now)) {
                if !std::mem::replace(&mut reached[id.0 as usize], true) {
                    order.push(id);
                }
            }
        }
        order
    }

    fn after_cut(&self, outcome: &CutOutcome) -> State {
        let mut state = self.rebuild(outcome);
        for (dir, name) in &outcome.empty {
            let at = state.tick();
            let attributes = Attributes { mode: 0o600, owner: 0, group: 0 };
            let id = state.add(at, attributes, Body::empty_file());
            let meant = state.directory(*dir).ok().and_then(|directory| directory.entries.get(name));
            state.set_entry(at, *dir, name.clone(), Some(id));
            if let Some(meant) = meant {
                state.drop_link(at, meant);
            }
        }
        if !outcome.empty.is_empty() {
            state.settle_all();
        }
        state
    }

    fn rebuild(&self, survival: &impl Survival) -> State {
        let mut nodes: Vec<Option<Arc<Node>>> = vec![None; self.nodes.len()];
        let mut numbers = BTreeSet::new();
        let mut homeless = Vec::new();
        let mut todo = vec![(ROOT, ROOT)];
        while let Some((parent, id)) = todo.pop() {
            if let Some(known) = &mut nodes[id.0 as usize] {
                Arc::make_mut(known).links += 1;
                continue;
            }
            let node = self.survivor(id, parent, survival);
            if !numbers.insert(node.number) {
                homeless.push(id);
            }
            if let Body::Directory(directory) = &node.body {
                todo.extend(directory.entries.iter().rev().map(|(_, child)| (id, *child)));
            }
            nodes[id.0 as usize] = Some(Arc::new(node));
        }
        drop_second_names(&mut nodes);
        renumber(&mut nodes, &mut numbers, &homeless);
        let mut state = State::with_nodes(self.options, nodes);
        state.continue_from(self);
        state.account();
        state
    }

    fn survivor(&self, id: NodeId, parent: NodeId, survival: &impl Survival) -> Node {
        let node = self.node(id);
        let attributes = survival.attributes(id, node);
        let body = match &node.body {
            Body::File(file) => {
                let bytes = survival.bytes(id, file);
                Body::File(FileBody { durable: bytes.clone(), bytes, ..FileBody::default() })
            }
            Body::Directory(directory) => {
                let entries = survival.entries(id, directory);
                let durable = entries.clone();
                Body::Directory(DirectoryBody { entries, durable, ..DirectoryBody::new(parent) })
            }
            other => other.clone(),
        };
        Node {
            number: node.number,
            born: node.born,
            modified: node.modified,
            changed: node.changed,
            links: 1,
            attributes,
            durable_attributes: attributes,
            attribute_changes: Vec::new(),
            body,
        }
    }
}

/// A directory has one name: the one by which its parent was reached. Then its link count is known too.
fn drop_second_names(nodes: &mut [Option<Arc<Node>>]) {
    for slot in 0..nodes.len() {
        let Some(Body::Directory(directory)) = nodes[slot].as_deref().map(|node| &node.body) else {
            continue;
        };
        let id = NodeId(slot as u32);
        let mut mine = BTreeSet::new();
        let mut kept = Vec::with_capacity(directory.entries.len());
        for (name, child) in directory.entries.iter() {
            let is_second = match nodes[child.0 as usize].as_deref().map(|node| &node.body) {
                Some(Body::Directory(below)) => below.parent != id || !mine.insert(*child),
                _ => false,
            };
            if !is_second {
                kept.push((name.clone(), *child));
            }
        }
        let links = 2 + mine.len() as u32;
        let changed = kept.len() != directory.entries.len();
        let Some(node) = nodes[slot].as_mut().map(Arc::make_mut) else { continue };
        node.links = links;
        if let (true, Body::Directory(directory)) = (changed, &mut node.body) {
            directory.entries = Entries::from_sorted(kept);
            directory.durable = directory.entries.clone();
        }
    }
}

/// Gives each inode of `homeless` the lowest number that is not in `taken`.
fn renumber(nodes: &mut [Option<Arc<Node>>], taken: &mut BTreeSet<u64>, homeless: &[NodeId]) {
    let mut next = FIRST_NUMBER;
    for id in homeless {
        while !taken.insert(next) {
            next += 1;
        }
        if let Some(node) = &mut nodes[id.0 as usize] {
            Arc::make_mut(node).number = next;
        }
    }
}

impl Node {
    fn is_settled(&self) -> bool {
        self.attribute_changes.is_empty()
            && match &self.body {
                Body::File(file) => file.changes.is_empty(),
                Body::Directory(directory) => directory.changes.is_empty(),
                Body::Symlink(_) | Body::Fifo | Body::Other => true,
            }
    }
}

impl FileBody {
    fn settle(&mut self) {
        if self.lost {
            // Only what is dirty is written, so what was lost stays lost until it is written anew.
            let durable = Arc::make_mut(&mut self.durable);
            for change in &self.changes {
                apply(durable, change.what, &self.bytes);
            }
            self.lost = self.durable != self.bytes;
        } else {
            self.durable = self.bytes.clone();
        }
        self.changes.clear();
    }
}

impl DirectoryBody {
    fn settle(&mut self) {
        if self.lost {
            for change in &self.changes {
                self.durable.set(&change.name, change.now);
            }
            self.lost = self.durable != self.entries;
        } else {
            self.durable = self.entries.clone();
        }
        self.changes.clear();
    }
}

fn apply(durable: &mut Vec<u8>, edit: DataEdit, cached: &[u8]) {
    match edit {
        DataEdit::Resize { size } => durable.resize(size as usize, 0),
        DataEdit::Write { offset, length } => {
            let (start, end) = (offset as usize, (offset + length) as usize);
            durable.resize(durable.len().max(end), 0);
            let end = end.min(cached.len());
            if start < end {
                durable[start..end].copy_from_slice(&cached[start..end]);
            }
        }
    }
}
