//! Every disk that a power cut may leave, by persistence profile.
//!
//! A disk keeps apart what its cache shows and what is durable. A profile says which combinations of the changes in
//! between a cut may let through; [`outcomes`] lists them, all of them, but for the contents of large unsynced
//! files, of which it lists declared representatives.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::disk::{
    AttributeChange, Attributes, CutOutcome, DataChange, DataEdit, Name, NameChange, NodeId, Unsettled,
    UnsettledAttributes, UnsettledFile,
};

/// What a file system may lose in a power cut. Each is inside the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Profile {
    /// Nothing: only processes die.
    Process,
    /// A journalled file system: names in the order of their changes, pages on their own.
    Ordered,
    /// What POSIX promises: each name on its own, sectors on their own.
    Posix,
}

impl Profile {
    /// Every profile, the weakest demand on the store first.
    pub const ALL: &'static [Profile] = &[Profile::Process, Profile::Ordered, Profile::Posix];

    /// The profile's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Profile::Process => "process",
            Profile::Ordered => "ordered",
            Profile::Posix => "posix",
        }
    }

    /// The grain in bytes at which unsynced contents are lost.
    const fn grain(self) -> usize {
        match self {
            Profile::Posix => 512,
            Profile::Process | Profile::Ordered => 4_096,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text names no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no profile: expected process, ordered or posix")]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Profile, UnknownProfile> {
        Profile::ALL
            .iter()
            .copied()
            .find(|it| it.as_str() == text)
            .ok_or_else(|| UnknownProfile(text.to_owned()))
    }
}

/// Up to how many grains of an unsynced file every subset is listed. Beyond it: none, all, every prefix, every single
/// loss.
pub const SUBSETS_UP_TO: usize = 4;

/// Bytes that nobody wrote, for a lost grain where nothing was before.
const GARBAGE: u8 = 0xa5;

/// Which of an unsynced file's contents are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contents {
    /// All that the profile allows, up to the declared representatives.
    All,
    /// One: nothing of it survived. For files that no later step reads.
    Nothing,
}

/// Every outcome of a cut that `profile` allows where this much is unsettled, each once, in a fixed order.
/// `contents_of` says which contents of each unsynced file are listed.
pub fn outcomes(
    unsettled: &Unsettled,
    profile: Profile,
    contents_of: impl Fn(NodeId) -> Contents,
) -> Vec<CutOutcome> {
    let names = match profile {
        Profile::Process => vec![everything_named(unsettled)],
        Profile::Ordered => prefixes_of_all_changes(unsettled),
        Profile::Posix => each_name_on_its_own(unsettled),
    };
    let mut outcomes = names;
    for file in &unsettled.files {
        let contents = match (profile, contents_of(file.id)) {
            (Profile::Process, _) => vec![file.cached.clone()],
            (_, Contents::Nothing) => vec![file.durable.clone()],
            (Profile::Ordered, Contents::All) => contents(file, profile.grain(), &[0], false),
            (Profile::Posix, Contents::All) => contents(file, profile.grain(), &[0, GARBAGE], true),
        };
        outcomes =
            product(outcomes, &contents, |outcome, bytes| outcome.bytes.push((file.id, bytes.clone())));
    }
    if profile == Profile::Posix {
        for inode in &unsettled.attributes {
            let values = attribute_values(inode);
            outcomes = product(outcomes, &values, |outcome, now| outcome.attributes.push((inode.id, *now)));
        }
    }
    outcomes
}

fn product<T>(outcomes: Vec<CutOutcome>, values: &[T], set: impl Fn(&mut CutOutcome, &T)) -> Vec<CutOutcome> {
    let mut all = Vec::with_capacity(outcomes.len() * values.len());
    for outcome in outcomes {
        for value in values {
            let mut next = outcome.clone();
            set(&mut next, value);
            all.push(next);
        }
    }
    all
}

/// All names and attributes as they were issued.
fn everything_named(unsettled: &Unsettled) -> CutOutcome {
    after_instant(unsettled, u64::MAX)
}

/// Names and attributes as they were at an instant: what the journal holds for certain, then any prefix of the rest,
/// in the order in which it was issued over the whole file system. A rename's two changes are of one instant.
fn prefixes_of_all_changes(unsettled: &Unsettled) -> Vec<CutOutcome> {
    let names = unsettled.directories.iter().flat_map(|dir| dir.changes.iter().map(|change| change.at));
    let attributes =
        unsettled.attributes.iter().flat_map(|inode| inode.changes.iter().map(|change| change.at));
    let mut instants: Vec<u64> = names.chain(attributes).filter(|at| *at > unsettled.journal).collect();
    instants.push(unsettled.journal);
    instants.sort_unstable();
    instants.dedup();
    instants.into_iter().map(|instant| after_instant(unsettled, instant)).collect()
}

/// What was changed up to an instant, and nothing later.
fn after_instant(unsettled: &Unsettled, instant: u64) -> CutOutcome {
    let mut outcome = CutOutcome::default();
    for dir in &unsettled.directories {
        for change in dir.changes.iter().filter(|change| change.at <= instant) {
            outcome.names.push((dir.id, change.name.clone(), change.now));
        }
    }
    for inode in &unsettled.attributes {
        let last = inode.changes.iter().rev().find(|change| change.at <= instant);
        outcome.attributes.extend(last.map(|change| (inode.id, change.now)));
    }
    outcome
}

/// For every name, its state after any prefix of the changes to it: a file fsync fixes no name, and a rename's source
/// may be gone while its target is still the old one.
fn each_name_on_its_own(unsettled: &Unsettled) -> Vec<CutOutcome> {
    let mut outcomes = vec![CutOutcome::default()];
    for dir in &unsettled.directories {
        let mut names: Vec<&Name> = dir.changes.iter().map(|change| &change.name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let durable = dir.durable.iter().find(|(known, _)| known == name).map(|(_, id)| *id);
            let states = states_of_name(durable, &dir.changes, name);
            outcomes =
                product(outcomes, &states, |outcome, now| outcome.names.push((dir.id, name.clone(), *now)));
        }
    }
    outcomes
}

fn states_of_name(durable: Option<NodeId>, changes: &[NameChange], name: &Name) -> Vec<Option<NodeId>> {
    let mut states = vec![durable];
    for change in changes.iter().filter(|change| change.name == *name) {
        if !states.contains(&change.now) {
            states.push(change.now);
        }
    }
    states
}

fn attribute_values(inode: &UnsettledAttributes) -> Vec<Attributes> {
    let mut values = vec![inode.durable];
    for AttributeChange { now, .. } in &inode.changes {
        if !values.contains(now) {
            values.push(*now);
        }
    }
    values
}

/// Every content that a cut may leave of an unsynced file: each grain written since the last fsync is old or new, on
/// its own, and the size is the old, the new, or an end between. `fills` is what may stand where nothing was before.
fn contents(file: &UnsettledFile, grain: usize, fills: &[u8], odd_sizes: bool) -> Vec<Arc<Vec<u8>>> {
    let written = written_grains(file, grain);
    let mut all: Vec<Arc<Vec<u8>>> = Vec::new();
    for survivors in surviving_subsets(&written) {
        for fill in fills {
            let whole = mixed(file, grain, &survivors, *fill);
            for size in sizes(file, grain, odd_sizes) {
                let mut bytes = whole.clone();
                bytes.truncate(size);
                let bytes = Arc::new(bytes);
                if !all.contains(&bytes) {
                    all.push(bytes);
                }
            }
        }
    }
    all
}

/// Grains of the file, in its cached or durable extent, that were written since the last fsync.
fn written_grains(file: &UnsettledFile, grain: usize) -> Vec<usize> {
    let mut grains = Vec::new();
    for DataChange { what, .. } in &file.changes {
        if let DataEdit::Write { offset, length } = *what
            && length > 0
        {
            let first = offset as usize / grain;
            let last = (offset + length - 1) as usize / grain;
            grains.extend(first..=last);
        }
    }
    grains.sort_unstable();
    grains.dedup();
    grains
}

/// Which of the written grains survive: every subset of few, else none, all, every prefix and every single loss.
fn surviving_subsets(written: &[usize]) -> Vec<Vec<usize>> {
    if written.len() <= SUBSETS_UP_TO {
        let subset = |bits: usize| {
            written
                .iter()
                .enumerate()
                .filter(move |(at, _)| bits >> at & 1 == 1)
                .map(|(_, grain)| *grain)
                .collect()
        };
        return (0..1_usize << written.len()).map(subset).collect();
    }
    let prefixes = (0..=written.len()).map(|length| written[..length].to_vec());
    let losses = written.iter().map(|lost| written.iter().copied().filter(|grain| grain != lost).collect());
    prefixes.chain(losses).collect()
}

/// The file's bytes with only these grains new. A lost grain holds what was durable there, and `fill` where nothing was.
fn mixed(file: &UnsettledFile, grain: usize, survivors: &[usize], fill: u8) -> Vec<u8> {
    let size = file.cached.len().max(file.durable.len());
    let mut bytes = vec![fill; size];
    bytes[..file.durable.len()].copy_from_slice(&file.durable);
    for survivor in survivors {
        let start = survivor * grain;
        let end = (start + grain).min(file.cached.len());
        if start < end {
            bytes[start..end].copy_from_slice(&file.cached[start..end]);
        }
    }
    bytes
}

/// The old size, the new one, and grain ends between; with `odd`, also one byte on either side of those ends.
fn sizes(file: &UnsettledFile, grain: usize, odd: bool) -> Vec<usize> {
    let (low, high) = match (file.durable.len(), file.cached.len()) {
        (old, new) if old <= new => (old, new),
        (old, new) => (new, old),
    };
    let mut sizes = vec![low, high];
    let ends = (low / grain + 1..).map(|count| count * grain).take_while(|end| *end < high);
    for end in ends {
        sizes.push(end);
        if odd {
            sizes.extend([end - 1, end + 1].into_iter().filter(|size| (low..=high).contains(size)));
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
