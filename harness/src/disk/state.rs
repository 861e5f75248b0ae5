//! The tables of one machine: inodes, descriptors, processes, and what is accounted.

use std::ffi::OsStr;
use std::sync::Arc;

use session_tree::file_ops::{FileStat, Lock, Timestamp};
use session_tree::{Errno, PathLocks};

use super::node::{Body, DirectoryBody, NameChange, Node};
use super::{Attributes, KILLED, LockSupport, Name, NodeId, Options};

/// Virtual time that passes with each change, so that no two changes share an instant.
const TICK: u64 = 1_000;
/// Where virtual time begins: 2026-01-01T00:00:00Z.
const EPOCH_SECONDS: i64 = 1_767_225_600;
/// The number of the root directory and the first one of others, as ext4 has them.
pub(super) const ROOT_NUMBER: u64 = 2;
pub(super) const FIRST_NUMBER: u64 = 11;
const DEVICE: u64 = 0x5e55;

pub(super) const ROOT: NodeId = NodeId(0);

pub(super) struct State {
    pub(super) options: Options,
    /// Shared with the forks of this disk until changed.
    pub(super) nodes: Vec<Option<Arc<Node>>>,
    vacant_nodes: Vec<u32>,
    /// How many slots may be in use before the next sweep; doubling keeps sweeps at constant cost a creation.
    sweep_at: usize,
    /// Numbers below `next_number` that no cached inode has, the lowest last.
    free_numbers: Vec<u64>,
    next_number: u64,
    /// Inodes with a name or a descriptor.
    pub(super) live: u64,
    /// Bytes of these.
    pub(super) bytes: u64,
    /// Cached names of all directories.
    pub(super) entries: u64,
    /// Virtual nanoseconds; the instant of a change is its place in the order of all changes.
    pub(super) clock: u64,
    /// Under the profile `ordered`: every change up to this instant is durable.
    pub(super) journal: u64,
    descriptors: Vec<Option<Descriptor>>,
    vacant_descriptors: Vec<u32>,
    next_serial: u64,
    processes: Vec<Instance>,
    /// As whom someone acts who is no process of the simulation.
    pub(super) outsider: Who,
    /// The next unique part for each process id; outlives processes, so that a restarted one draws new names.
    tags: Vec<(u32, u64)>,
}

/// Which descriptor: a slot, and a serial number that tells the slot's tenants apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    slot: u32,
    serial: u64,
}

pub(super) struct Descriptor {
    serial: u64,
    process: usize,
    pub(super) node: NodeId,
    pub(super) writable: bool,
    lock: Option<Lock>,
}

struct Instance {
    pid: u32,
    alive: bool,
    who: Who,
    open: usize,
    locks: PathLocks,
}

/// As whom something is done. User 0 may do anything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) umask: u32,
}

impl Who {
    pub(super) const ROOT: Who = Who { user: 0, group: 0, umask: 0 };
}

impl State {
    pub(super) fn new(options: Options) -> State {
        let attributes = Attributes { mode: 0o755, owner: 0, group: 0 };
        let root = Node {
            number: ROOT_NUMBER,
            born: 0,
            modified: 0,
            changed: 0,
            links: 2,
            attributes,
            durable_attributes: attributes,
            attribute_changes: Vec::new(),
            body: Body::Directory(DirectoryBody::new(ROOT)),
        };
        let mut state = State::with_nodes(options, vec![Some(Arc::new(root))]);
        state.live = 1;
        state
    }

    /// A machine without processes around these inodes. The caller accounts for them.
    pub(super) fn with_nodes(options: Options, nodes: Vec<Option<Arc<Node>>>) -> State {
        State {
            options,
            nodes,
            vacant_nodes: Vec::new(),
            sweep_at: 32,
            free_numbers: Vec::new(),
            next_number: FIRST_NUMBER,
            live: 0,
            bytes: 0,
            entries: 0,
            clock: 0,
            journal: 0,
            descriptors: Vec::new(),
            vacant_descriptors: Vec::new(),
            next_serial: 0,
            processes: Vec::new(),
            outsider: Who::ROOT,
            tags: Vec::new(),
        }
    }

    /// The same disk and cache in a machine without processes.
    pub(super) fn fork(&self) -> State {
        let mut fork = State {
            options: self.options,
            nodes: self.nodes.clone(),
            vacant_nodes: self.vacant_nodes.clone(),
            sweep_at: self.sweep_at,
            free_numbers: self.free_numbers.clone(),
            next_number: self.next_number,
            live: self.live,
            bytes: self.bytes,
            entries: self.entries,
            clock: self.clock,
            journal: self.journal,
            descriptors: Vec::new(),
            vacant_descriptors: Vec::new(),
            next_serial: self.next_serial,
            processes: Vec::new(),
            outsider: self.outsider,
            tags: self.tags.clone(),
        };
        // Inodes that only a descriptor kept are gone with the descriptors.
        for (place, descriptor) in self.descriptors.iter().enumerate() {
            let Some(descriptor) = descriptor else { continue };
            let first = self.descriptors[..place].iter().flatten().all(|other| other.node != descriptor.node);
            if first && fork.node(descriptor.node).links == 0 {
                fork.bury(descriptor.node);
            }
        }
        fork
    }

    /// Takes over from `before` what a cut does not touch: time, and which unique parts were given out.
    pub(super) fn continue_from(&mut self, before: &State) {
        self.clock = before.clock;
        self.journal = before.clock;
        self.outsider = before.outsider;
        self.tags.clone_from(&before.tags);
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock += TICK;
        self.clock
    }

    // Inodes.

    pub(super) fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize].as_deref().expect("an inode that something names is in the table")
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        let node = self.nodes[id.0 as usize].as_mut();
        Arc::make_mut(node.expect("an inode that something names is in the table"))
    }

    pub(super) fn directory(&self, id: NodeId) -> Result<&DirectoryBody, Errno> {
        match &self.node(id).body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn add(&mut self, at: u64, attributes: Attributes, body: Body) -> NodeId {
        let node = Arc::new(Node {
            number: self.take_number(),
            born: at,
            modified: at,
            changed: at,
            links: if matches!(body, Body::Directory(_)) { 2 } else { 1 },
            attributes,
            durable_attributes: attributes,
            attribute_changes: Vec::new(),
            body,
        });
        self.live += 1;
        self.bytes += node.file_size();
        if self.vacant_nodes.is_empty() && self.nodes.len() >= self.sweep_at {
            self.sweep();
        }
        if let Some(slot) = self.vacant_nodes.pop() {
            self.nodes[slot as usize] = Some(node);
            return NodeId(slot);
        }
        let slot = self.nodes.len() as u32;
        self.nodes.push(Some(node));
        NodeId(slot)
    }

    /// Lets `name` of `dir` mean `now`, in the cache; the change is unsettled until the directory is synced.
    pub(super) fn set_entry(&mut self, at: u64, dir: NodeId, name: Name, now: Option<NodeId>) {
        let node = self.node_mut(dir);
        node.modified = at;
        node.changed = at;
        let Body::Directory(directory) = &mut node.body else { return };
        let before = directory.entries.len() as u64;
        directory.entries.set(&name, now);
        let after = directory.entries.len() as u64;
        directory.changes.push(NameChange { at, name, now });
        self.entries = self.entries - before + after;
    }

    /// Takes one name from an inode; for a directory, the only one.
    pub(super) fn drop_link(&mut self, at: u64, id: NodeId) {
        let node = self.node_mut(id);
        node.changed = at;
        node.links = if node.is_directory() { 0 } else { node.links - 1 };
        if node.links == 0 && !self.is_open(id) {
            self.bury(id);
        }
    }

    /// Gives back what an inode without name and descriptor occupied. It stays in the table for as long as a
    /// cut could bring it back.
    fn bury(&mut self, id: NodeId) {
        let (number, size) = (self.node(id).number, self.node(id).file_size());
        self.live -= 1;
        self.bytes -= size;
        let place = self.free_numbers.partition_point(|other| *other > number);
        self.free_numbers.insert(place, number);
    }

    fn take_number(&mut self) -> u64 {
        if self.options.reuse_inodes
            && let Some(lowest) = self.free_numbers.pop()
        {
            return lowest;
        }
        self.next_number += 1;
        self.next_number - 1
    }

    /// Tells the table which numbers are taken, after inodes were put into it by hand.
    pub(super) fn account(&mut self) {
        let mut numbers: Vec<u64> = self.nodes.iter().flatten().map(|node| node.number).collect();
        numbers.sort_unstable();
        self.next_number = numbers.last().map_or(FIRST_NUMBER, |last| (last + 1).max(FIRST_NUMBER));
        self.free_numbers =
            (FIRST_NUMBER..self.next_number).rev().filter(|it| numbers.binary_search(it).is_err()).collect();
        self.live = numbers.len() as u64;
        self.bytes = self.nodes.iter().flatten().map(|node| node.file_size()).sum();
        let tables = self.nodes.iter().flatten().filter_map(|node| match &node.body {
            Body::Directory(directory) => Some(directory.entries.len() as u64),
            _ => None,
        });
        self.entries = tables.sum();
        self.vacant_nodes =
            (0..self.nodes.len() as u32).rev().filter(|it| self.nodes[*it as usize].is_none()).collect();
        self.sweep_at = (self.nodes.len() * 2).max(32);
    }

    /// Frees the slots of inodes that neither the cache, nor a descriptor, nor any state after a cut can reach.
    fn sweep(&mut self) {
        let mut reached = vec![false; self.nodes.len()];
        let mut todo = vec![ROOT];
        todo.extend(self.descriptors.iter().flatten().map(|descriptor| descriptor.node));
        while let Some(id) = todo.pop() {
            if std::mem::replace(&mut reached[id.0 as usize], true) {
                continue;
            }
            if let Body::Directory(directory) = &self.node(id).body {
                todo.push(directory.parent);
                todo.extend(directory.entries.iter().map(|(_, id)| *id));
                todo.extend(directory.durable.iter().map(|(_, id)| *id));
                todo.extend(directory.changes.iter().filter_map(|change| change.now));
            }
        }
        for (slot, reached) in reached.iter().enumerate() {
            if !reached && self.nodes[slot].take().is_some() {
                self.vacant_nodes.push(slot as u32);
            }
        }
        self.sweep_at = ((self.nodes.len() - self.vacant_nodes.len()) * 2).max(32);
    }

    // Limits.

    /// # Errors
    /// `EROFS`.
    pub(super) fn may_write_disk(&self) -> Result<(), Errno> {
        if self.options.read_only { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// # Errors
    /// `ENOSPC`.
    pub(super) fn room_for_entry(&self) -> Result<(), Errno> {
        if self.room() < self.options.entry_space { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// # Errors
    /// `ENOSPC`.
    pub(super) fn room_for_inode(&self) -> Result<(), Errno> {
        let full = self.options.inodes.is_some_and(|limit| self.live >= limit);
        if full { Err(Errno::ENOSPC) } else { self.room_for_entry() }
    }

    /// Bytes that still fit.
    pub(super) fn room(&self) -> u64 {
        let used = self.bytes.saturating_add(self.entries.saturating_mul(self.options.entry_space));
        self.options.space.map_or(u64::MAX, |space| space.saturating_sub(used))
    }

    // Processes.

    pub(super) fn process(&mut self, pid: u32, who: Option<Who>) -> (usize, PathLocks) {
        let alive = self.processes.iter().position(|it| it.alive && it.pid == pid);
        let place = alive.unwrap_or_else(|| {
            let who = Who { umask: 0o022, ..Who::ROOT };
            self.processes.push(Instance { pid, alive: true, who, open: 0, locks: PathLocks::new() });
            self.processes.len() - 1
        });
        let instance = &mut self.processes[place];
        instance.who = who.unwrap_or(instance.who);
        (place, instance.locks.clone())
    }

    /// # Errors
    /// `ESRCH` where the process was killed.
    pub(super) fn who(&self, process: usize) -> Result<Who, Errno> {
        let instance = &self.processes[process];
        if instance.alive { Ok(instance.who) } else { Err(KILLED) }
    }

    pub(super) fn next_tag(&mut self, pid: u32) -> u64 {
        let place = self.tags.iter().position(|(other, _)| *other == pid).unwrap_or_else(|| {
            self.tags.push((pid, 0));
            self.tags.len() - 1
        });
        self.tags[place].1 += 1;
        self.tags[place].1
    }

    pub(super) fn kill(&mut self, pid: u32) {
        let Some(process) = self.processes.iter().position(|it| it.alive && it.pid == pid) else { return };
        self.processes[process].alive = false;
        for slot in 0..self.descriptors.len() {
            if self.descriptors[slot].as_ref().is_some_and(|it| it.process == process) {
                self.free_descriptor(slot);
            }
        }
    }

    pub(super) fn open_descriptors(&self, pid: u32) -> usize {
        self.processes.iter().filter(|it| it.alive && it.pid == pid).map(|it| it.open).sum()
    }

    // Descriptors.

    /// # Errors
    /// `EMFILE`.
    pub(super) fn room_for_descriptor(&self, process: usize) -> Result<(), Errno> {
        let limit = self.options.descriptors_per_process;
        let full = limit.is_some_and(|limit| self.processes[process].open >= limit);
        if full { Err(Errno::EMFILE) } else { Ok(()) }
    }

    pub(super) fn open_node(&mut self, process: usize, node: NodeId, writable: bool) -> Handle {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.processes[process].open += 1;
        let descriptor = Some(Descriptor { serial, process, node, writable, lock: None });
        if let Some(slot) = self.vacant_descriptors.pop() {
            self.descriptors[slot as usize] = descriptor;
            return Handle { slot, serial };
        }
        let slot = self.descriptors.len() as u32;
        self.descriptors.push(descriptor);
        Handle { slot, serial }
    }

    /// # Errors
    /// `EBADF` where the descriptor is another process's or closed.
    pub(super) fn descriptor(&self, process: usize, handle: Handle) -> Result<&Descriptor, Errno> {
        self.descriptors
            .get(handle.slot as usize)
            .and_then(Option::as_ref)
            .filter(|it| it.serial == handle.serial && it.process == process)
            .ok_or(Errno::EBADF)
    }

    /// Closes a descriptor that is still open; its lock ends with it.
    pub(super) fn close(&mut self, handle: Handle) {
        let slot = handle.slot as usize;
        if self.descriptors.get(slot).and_then(Option::as_ref).is_some_and(|it| it.serial == handle.serial) {
            self.free_descriptor(slot);
        }
    }

    fn free_descriptor(&mut self, slot: usize) {
        let Some(descriptor) = self.descriptors[slot].take() else { return };
        self.vacant_descriptors.push(slot as u32);
        self.processes[descriptor.process].open -= 1;
        if self.node(descriptor.node).links == 0 && !self.is_open(descriptor.node) {
            self.bury(descriptor.node);
        }
    }

    fn is_open(&self, id: NodeId) -> bool {
        self.descriptors.iter().flatten().any(|it| it.node == id)
    }

    // Advisory locks.

    /// # Errors
    /// As [`LockSupport`] says.
    pub(super) fn try_lock(&mut self, process: usize, handle: Handle, kind: Lock) -> Result<bool, Errno> {
        let descriptor = self.descriptor(process, handle)?;
        match self.options.locks {
            LockSupport::Unsupported(errno) => return Err(errno),
            LockSupport::ExclusiveNeedsWriting if kind == Lock::Exclusive && !descriptor.writable => {
                return Err(Errno::EBADF);
            }
            LockSupport::ExclusiveNeedsWriting | LockSupport::Full => {}
        }
        if descriptor.lock == Some(kind) {
            return Ok(true);
        }
        let node = descriptor.node;
        let excluded = self.descriptors.iter().flatten().any(|other| {
            other.node == node
                && other.serial != handle.serial
                && match other.lock {
                    None => false,
                    Some(Lock::Shared) => kind == Lock::Exclusive,
                    Some(Lock::Exclusive) => true,
                }
        });
        // Linux converts a lock by giving it back first: where the new kind is excluded, the old one is gone too.
        self.set_lock(handle, (!excluded).then_some(kind));
        Ok(!excluded)
    }

    pub(super) fn set_lock(&mut self, handle: Handle, lock: Option<Lock>) {
        if let Some(descriptor) = self.descriptors.get_mut(handle.slot as usize).and_then(Option::as_mut)
            && descriptor.serial == handle.serial
        {
            descriptor.lock = lock;
        }
    }

    pub(super) fn held_locks(&self) -> usize {
        self.descriptors.iter().flatten().filter(|it| it.lock.is_some()).count()
    }

    // Looks.

    pub(super) fn stat(&self, id: NodeId) -> FileStat {
        let node = self.node(id);
        FileStat {
            kind: node.kind(),
            device: DEVICE,
            inode: node.number,
            birth: self.options.birth_times.then(|| timestamp(node.born)),
            size: node.size(),
            modified: timestamp(node.modified),
            mode: node.attributes.mode,
            owner: node.attributes.owner,
            group: node.attributes.group,
            links: node.links.into(),
        }
    }
}

pub(super) fn name_of(text: &OsStr) -> Name {
    Arc::from(text)
}

pub(super) fn timestamp(clock: u64) -> Timestamp {
    Timestamp {
        seconds: EPOCH_SECONDS + (clock / 1_000_000_000).cast_signed(),
        nanoseconds: (clock % 1_000_000_000) as u32,
    }
}

#[cfg(test)]
impl State {
    /// Inodes that a name or a descriptor keeps, found by looking at all names and descriptors.
    pub(super) fn living_nodes(&self) -> Vec<NodeId> {
        let mut living = vec![ROOT];
        let mut next = 0;
        while let Some(id) = living.get(next).copied() {
            next += 1;
            let Body::Directory(directory) = &self.node(id).body else { continue };
            for (_, child) in directory.entries.iter() {
                if !living.contains(child) {
                    living.push(*child);
                }
            }
        }
        for descriptor in self.descriptors.iter().flatten() {
            if !living.contains(&descriptor.node) {
                living.push(descriptor.node);
            }
        }
        living
    }
}
