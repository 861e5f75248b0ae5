//! Every disk that a power cut may leave, by persistence profile.
//!
//! A disk keeps apart what its cache shows and what is durable. A profile says which combinations of the changes in
//! between a cut may let through; [`disks`] lists them, all of them, but for the contents of large unsynced
//! files, of which it lists declared representatives ([`SUBSETS_UP_TO`]).

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::disk::{
    AttributeChange, Attributes, CutOutcome, DataChange, DataEdit, Disk, Name, NameChange, NodeId, Unsettled,
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
}

/// The grain in bytes at which `ordered` loses unsynced contents.
const PAGE: usize = 4_096;
/// The grain in bytes at which `posix` does.
const SECTOR: usize = 512;

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

/// Something that the store assumes of its storage, to be switched off so that what depends on it shows.
///
/// That an fsync keeps its word, of a file (A1) and of a directory (A2), is switched off by the fault `lies`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Assumption {
    /// A3. Off: after a cut the target of an unsettled rename may name nothing.
    AtomicRename,
    /// A4. Off: after a cut a name that was created or linked may be an empty file of its own.
    WholeNewNames,
    /// A5. Off: a cut may fill any one sector of a durable file with garbage.
    DurableStays,
    /// A6. Off: a second process sees the disk as it was, and its own changes. No matter of cuts.
    OneView,
}

impl Assumption {
    /// Every assumption that has a switch here.
    pub const ALL: &'static [Assumption] =
        &[Assumption::AtomicRename, Assumption::WholeNewNames, Assumption::DurableStays, Assumption::OneView];

    /// Its number in the fault model.
    pub const fn id(self) -> &'static str {
        match self {
            Assumption::AtomicRename => "A3",
            Assumption::WholeNewNames => "A4",
            Assumption::DurableStays => "A5",
            Assumption::OneView => "A6",
        }
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// Up to how many grains of an unsynced file every subset is listed, and every filling of what was lost. Beyond it:
/// none, all, every prefix, every single loss, with one filling for all; and under `posix` those of `ordered` too, so
/// that it lists no less.
pub const SUBSETS_UP_TO: usize = 4;

/// Bytes that nobody wrote, for a lost grain where nothing was before.
const GARBAGE: u8 = 0xa5;

/// Beyond so many combinations of names the profile `posix` is represented by: every prefix in the order of issue, each
/// single name that survives alone, and each that alone is lost. A store that syncs its directory never comes near.
pub const COMBINATIONS_UP_TO: usize = 4_096;

/// Which of an unsynced file's contents are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contents {
    /// All that the profile allows, up to the declared representatives.
    All,
    /// One: nothing of it survived. For files that no later step reads.
    Nothing,
}

/// Every disk that a cut now may leave under `profile`, each choice of what survived once, in a fixed order.
/// `contents_of` says which contents of each unsynced file are listed. Where `off` is given, that assumption does not
/// hold either.
pub fn disks<F>(
    disk: &Disk,
    profile: Profile,
    off: Option<Assumption>,
    contents_of: F,
) -> impl Iterator<Item = Disk> + use<'_, F>
where
    F: Fn(&Unsettled, NodeId) -> Contents,
{
    // Nothing that was issued is lost, not even what a failed fsync has dropped: the cache outlives the process.
    let whole = (profile == Profile::Process).then(|| disk.after_cut_losing_nothing());
    let outcomes =
        if whole.is_some() { Vec::new() } else { outcomes(&disk.unsettled(), profile, off, contents_of) };
    whole.into_iter().chain(outcomes.into_iter().map(|outcome| disk.after_cut(&outcome)))
}

fn outcomes(
    unsettled: &Unsettled,
    profile: Profile,
    off: Option<Assumption>,
    contents_of: impl Fn(&Unsettled, NodeId) -> Contents,
) -> Vec<CutOutcome> {
    let torn_renames = off == Some(Assumption::AtomicRename);
    let mut outcomes = match profile {
        Profile::Process | Profile::Ordered => {
            prefixes_of_all_changes(unsettled, unsettled.journal, torn_renames)
        }
        Profile::Posix => each_name_on_its_own(unsettled, torn_renames),
    };
    if off == Some(Assumption::WholeNewNames) {
        outcomes = with_empty_new_names(unsettled, outcomes);
    }
    for file in &unsettled.files {
        let contents = match contents_of(unsettled, file.id) {
            Contents::Nothing => vec![file.durable.clone()],
            Contents::All => contents(file, profile),
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
    if off == Some(Assumption::DurableStays) {
        outcomes = with_damage(unsettled, outcomes);
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

/// Names and attributes as they were at an instant: what is certain up to one, then any prefix of the rest, in the
/// order in which it was issued over the whole file system. A rename's two changes are of one instant, and
/// with `torn_renames` also without its target.
fn prefixes_of_all_changes(unsettled: &Unsettled, certain: u64, torn_renames: bool) -> Vec<CutOutcome> {
    let names = unsettled.directories.iter().flat_map(|dir| dir.changes.iter().map(|change| change.at));
    let attributes =
        unsettled.attributes.iter().flat_map(|inode| inode.changes.iter().map(|change| change.at));
    let mut instants: Vec<u64> = names.chain(attributes).filter(|at| *at > certain).collect();
    instants.push(certain);
    instants.sort_unstable();
    instants.dedup();
    let mut outcomes: Vec<CutOutcome> =
        instants.into_iter().map(|instant| after_instant(unsettled, instant)).collect();
    if torn_renames {
        let replaced = replaced_names(unsettled);
        for (dir, change) in replaced.into_iter().filter(|(_, change)| change.at > certain) {
            let mut torn = after_instant(unsettled, change.at - 1);
            torn.names.push((dir, change.name.clone(), None));
            outcomes.push(torn);
        }
    }
    outcomes
}

/// Changes by which a name that meant something means something else, which only a rename does.
fn replaced_names(unsettled: &Unsettled) -> Vec<(NodeId, &NameChange)> {
    changes_with_before(unsettled)
        .filter(|(_, before, change)| before.is_some() && change.now.is_some())
        .map(|(dir, _, change)| (dir, change))
        .collect()
}

/// Every unsettled change of a name, with what the name meant before it.
fn changes_with_before(unsettled: &Unsettled) -> impl Iterator<Item = (NodeId, Option<NodeId>, &NameChange)> {
    unsettled.directories.iter().flat_map(|dir| {
        dir.changes.iter().enumerate().map(|(at, change)| {
            let earlier = dir.changes[..at].iter().rev().find(|other| other.name == change.name);
            let before = match earlier {
                Some(earlier) => earlier.now,
                None => dir.durable.iter().find(|(name, _)| *name == change.name).map(|(_, id)| *id),
            };
            (dir.id, before, change)
        })
    })
}

/// Each outcome, and again with any of the names that are new in it as empty files.
fn with_empty_new_names(unsettled: &Unsettled, mut outcomes: Vec<CutOutcome>) -> Vec<CutOutcome> {
    let created = changes_with_before(unsettled).filter(|(_, before, _)| before.is_none());
    for (dir, _, change) in created.filter(|(.., change)| change.now.is_some()) {
        let means_it = |outcome: &&CutOutcome| {
            let last = outcome.names.iter().rev().find(|(at, name, _)| *at == dir && *name == change.name);
            last.is_some_and(|(.., now)| *now == change.now)
        };
        let mut emptied: Vec<CutOutcome> = outcomes.iter().filter(means_it).cloned().collect();
        for outcome in &mut emptied {
            outcome.empty.push((dir, change.name.clone()));
        }
        outcomes.extend(emptied);
    }
    outcomes
}

/// Each outcome, and again with any one sector of any settled file full of garbage.
fn with_damage(unsettled: &Unsettled, mut outcomes: Vec<CutOutcome>) -> Vec<CutOutcome> {
    let undamaged = outcomes.len();
    for (id, bytes) in &unsettled.settled {
        for start in (0..bytes.len()).step_by(SECTOR) {
            let mut damaged = bytes.to_vec();
            let end = (start + SECTOR).min(damaged.len());
            damaged[start..end].fill(GARBAGE);
            let damaged = Arc::new(damaged);
            for at in 0..undamaged {
                let mut outcome = outcomes[at].clone();
                outcome.bytes.push((*id, damaged.clone()));
                outcomes.push(outcome);
            }
        }
    }
    outcomes
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
/// may be gone while its target is still the old one. With `torn_renames`, that target may be gone too.
fn each_name_on_its_own(unsettled: &Unsettled, torn_renames: bool) -> Vec<CutOutcome> {
    if combinations(unsettled) > COMBINATIONS_UP_TO {
        return representatives(unsettled, torn_renames);
    }
    let mut outcomes = vec![CutOutcome::default()];
    for dir in &unsettled.directories {
        let mut names: Vec<&Name> = dir.changes.iter().map(|change| &change.name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let durable = dir.durable.iter().find(|(known, _)| known == name).map(|(_, id)| *id);
            let mut states = states_of_name(durable, &dir.changes, name);
            let is_replaced = states.windows(2).any(|pair| pair[0].is_some() && pair[1].is_some());
            if torn_renames && is_replaced && !states.contains(&None) {
                states.push(None);
            }
            outcomes =
                product(outcomes, &states, |outcome, now| outcome.names.push((dir.id, name.clone(), *now)));
        }
    }
    outcomes
}

/// How many combinations of the states of all names there are, at the most.
fn combinations(unsettled: &Unsettled) -> usize {
    let mut product: usize = 1;
    for dir in &unsettled.directories {
        let mut names: Vec<&Name> = dir.changes.iter().map(|change| &change.name).collect();
        names.sort_unstable();
        for name in names.chunk_by(|one, other| one == other) {
            product = product.saturating_mul(name.len() + 1);
        }
    }
    product
}

fn representatives(unsettled: &Unsettled, torn_renames: bool) -> Vec<CutOutcome> {
    let names_of = |outcome: CutOutcome| CutOutcome { names: outcome.names, ..CutOutcome::default() };
    let mut outcomes: Vec<CutOutcome> =
        prefixes_of_all_changes(unsettled, 0, torn_renames).into_iter().map(names_of).collect();
    let everything = names_of(after_instant(unsettled, u64::MAX));
    for dir in &unsettled.directories {
        let mut names: Vec<&Name> = dir.changes.iter().map(|change| &change.name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (alone, rest) =
                everything.names.iter().cloned().partition(|(id, other, _)| *id == dir.id && other == name);
            outcomes.extend([alone, rest].map(|names| CutOutcome { names, ..CutOutcome::default() }));
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
/// its own, and the size is the old, the new, or an end between.
fn contents(file: &UnsettledFile, profile: Profile) -> Vec<Arc<Vec<u8>>> {
    let mut all = Listed::default();
    match profile {
        Profile::Process => {}
        Profile::Ordered => list_contents(file, PAGE, &[0], false, &mut all),
        Profile::Posix => {
            list_contents(file, SECTOR, &[0, GARBAGE], true, &mut all);
            if written_grains(file, SECTOR).len() > SUBSETS_UP_TO {
                list_contents(file, PAGE, &[0], false, &mut all);
            }
        }
    }
    // All that was issued may always survive, also where a file was cut short and grown again.
    all.add(file.cached.to_vec());
    all.in_order
}

/// Contents, each once.
#[derive(Default)]
struct Listed {
    in_order: Vec<Arc<Vec<u8>>>,
    known: HashSet<Arc<Vec<u8>>>,
}

impl Listed {
    fn add(&mut self, bytes: Vec<u8>) {
        let bytes = Arc::new(bytes);
        if self.known.insert(bytes.clone()) {
            self.in_order.push(bytes);
        }
    }
}

/// `fills` is what may stand in a lost grain where nothing was before; with `odd_sizes`, a size may also be off by one.
fn list_contents(file: &UnsettledFile, grain: usize, fills: &[u8], odd_sizes: bool, all: &mut Listed) {
    let written = written_grains(file, grain);
    let sizes = sizes(file, grain, odd_sizes);
    for fates in fates(written.len(), fills) {
        let whole = mixed(file, grain, &written, &fates);
        for size in &sizes {
            all.add(whole[..*size].to_vec());
        }
    }
}

/// What becomes of a written grain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Survives,
    /// The grain is what it was, and this where nothing was.
    Lost(u8),
}

/// Fates of so many written grains: every combination for few, else none, all, every prefix and every single loss.
fn fates(written: usize, fills: &[u8]) -> Vec<Vec<Fate>> {
    if written <= SUBSETS_UP_TO {
        let mut combinations = vec![Vec::new()];
        for _ in 0..written {
            let each = fills.iter().map(|fill| Fate::Lost(*fill)).chain([Fate::Survives]);
            combinations = each
                .flat_map(|fate| combinations.iter().map(move |begun| [begun.as_slice(), &[fate]].concat()))
                .collect();
        }
        return combinations;
    }
    let mut representatives = Vec::new();
    for fill in fills {
        let lost = Fate::Lost(*fill);
        for length in 0..=written {
            let mut prefix = vec![Fate::Survives; written];
            prefix[length..].fill(lost);
            representatives.push(prefix);
        }
        for single in 0..written {
            let mut all_but_one = vec![Fate::Survives; written];
            all_but_one[single] = lost;
            representatives.push(all_but_one);
        }
    }
    representatives
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

/// The file's bytes where the written grains have these fates. What was never written is as it was durable, and zero
/// where nothing was.
fn mixed(file: &UnsettledFile, grain: usize, written: &[usize], fates: &[Fate]) -> Vec<u8> {
    let mut bytes = vec![0; file.cached.len().max(file.durable.len())];
    bytes[..file.durable.len()].copy_from_slice(&file.durable);
    for (grain_number, fate) in written.iter().zip(fates) {
        let start = grain_number * grain;
        match fate {
            Fate::Survives => {
                let end = (start + grain).min(file.cached.len());
                if start < end {
                    bytes[start..end].copy_from_slice(&file.cached[start..end]);
                }
            }
            Fate::Lost(blank) => {
                let start = start.max(file.durable.len());
                let end = (grain_number * grain + grain).min(bytes.len());
                if start < end {
                    bytes[start..end].fill(*blank);
                }
            }
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
