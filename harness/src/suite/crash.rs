//! The `crash` suite: small workloads, a power cut after every system call, every disk that the profile allows, a
//! restart on each, and an append after it that must survive another cut.
//!
//! States that a restart cannot tell apart are judged once, and the verdict is remembered: what a workload comes to does
//! not depend on which others ran before it. Where a restart refuses, recovery runs with a cut after each of its system
//! calls too, and what those leave is judged likewise, until nothing new turns up: so every sequence of cuts and
//! recoveries is covered, however long.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::ParseIntError;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use serde::{Deserialize, Serialize};
use session_tree::Stage;
use xxhash_rust::xxh3::Xxh3;

use crate::call::EntryView;
use crate::crash::{Assumption, Profile};
use crate::disk::Disk;
use crate::fault::Plan;
use crate::inject::Event;
use crate::promise::{Promise, Violation};
use crate::scenario::HarnessError;
use crate::stage;
use crate::subject::{Candidate, REFERENCE};
use crate::suite::faults;
use crate::workload::{self, Start, Step, Workload};

mod checks;
mod finding;
mod judge;
mod record;
mod tell;
mod token;

pub use checks::{Checks, visited};
pub use finding::{Finding, Seen, finding};
use judge::{Verdict, judge};
use record::{Visits, record};
pub use tell::{tell, weakest_profile};
pub use token::Token;

/// The name of the suite.
pub const NAME: &str = "crash";

const SESSION: &str = "session.jsonl";
const TIME: &str = "2026-01-01T00:00:00.000Z";

/// What a run of the suite covers.
#[expect(clippy::struct_excessive_bools, reason = "switches of one run, each on its own")]
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The store under test.
    pub candidate: &'static dyn Candidate,
    /// What a cut may lose.
    pub profile: Profile,
    /// Every workload of up to so many steps.
    pub depth: usize,
    /// Whether each single fault is planned in single operations too, with a cut at every later call.
    pub faults: bool,
    /// Whether one representative stands for all contents of a file that no later step reads.
    pub merge_strays: bool,
    /// Whether a state is kept once for each cut that leaves it, so that any of them can be named.
    pub keeps_equal: bool,
    /// Whether recoveries are cut too. Without it a verdict is of one state alone, and what a cut recovery leaves is
    /// not found.
    pub cuts_recovery: bool,
    /// An assumption about the storage that does not hold; none in a run that a store can pass.
    pub off: Option<Assumption>,
    /// Threads that judge states.
    pub jobs: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            candidate: REFERENCE,
            profile: Profile::Posix,
            depth: 2,
            faults: true,
            merge_strays: true,
            keeps_equal: false,
            cuts_recovery: true,
            off: None,
            jobs: 1,
        }
    }
}

/// What a run of the suite found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Results {
    /// Each workload, in the order in which they were run.
    pub cases: Vec<CaseResult>,
    /// Distinct states of all of them: the disk as a restart sees it, with what was acknowledged, unanswered and in
    /// doubt.
    pub states: usize,
    /// A digest of the sorted digests of all distinct states: the certificate of what was visited.
    pub digest: u128,
}

/// What one workload came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The workload, without a cut.
    pub token: Token,
    /// System calls and answers after which the power was cut, those of recoveries among them.
    pub cuts: usize,
    /// Disks that these cuts could leave, equal ones counted each time.
    pub disks: usize,
    /// Distinct states among them, whether an earlier workload had them or not.
    pub states: usize,
    /// States among them in which a load refused and recovery led on.
    pub recovered: usize,
    /// States among them in which a load refused and the store has no recovery: its use is lost there, not its entries.
    pub unresolved: usize,
    /// How often the planned faults struck.
    pub fired: u32,
    /// States in which promises were broken, in the order in which they were found.
    pub broken: Vec<Broken>,
    /// For each cut in the workload itself the stage that the last system call before it belongs to, where it has one.
    pub cut_at: Vec<Option<Stage>>,
}

impl CaseResult {
    /// How many cuts came at each stage, and how many of them left a state in which a promise was broken.
    pub fn cuts_by_stage(&self) -> BTreeMap<Stage, (usize, usize)> {
        let bad: HashSet<usize> =
            self.broken.iter().filter_map(|broken| broken.token.cuts.first()).map(|(cut, _)| *cut).collect();
        let mut stages: BTreeMap<Stage, (usize, usize)> = BTreeMap::new();
        for (cut, stage) in self.cut_at.iter().enumerate() {
            let Some(stage) = stage else { continue };
            let (cuts, broken) = stages.entry(*stage).or_default();
            *cuts += 1;
            *broken += usize::from(bad.contains(&cut));
        }
        stages
    }
}

impl Results {
    /// The sum of a count over all workloads.
    pub fn sum(&self, count: impl Fn(&CaseResult) -> usize) -> usize {
        self.cases.iter().map(count).sum()
    }

    /// Every state in which promises were broken; the first one has the shortest workload.
    pub fn broken(&self) -> impl Iterator<Item = &Broken> {
        self.cases.iter().flat_map(|case| &case.broken)
    }
}

/// A state in which promises were broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// How to come there again.
    pub token: Token,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// What the first of them looks like on the disk.
    pub seen: Seen,
}

impl Broken {
    fn new(token: &Token, violations: Vec<Violation>, disk: Option<&Disk>) -> Broken {
        let seen = Seen::of(&violations, disk);
        Broken { token: token.clone(), violations, seen }
    }
}

impl Broken {
    /// Whether the store broke a promise, and not only the harness a plan.
    pub fn is_of_the_store(&self) -> bool {
        self.violations.iter().any(|violation| violation.promise != Promise::FaultFired)
    }
}

/// What the oracle knows at a moment, from the answers of the store alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct History {
    exists: bool,
    creating: bool,
    acknowledged: Vec<EntryView>,
    /// The submission that waits for its answer.
    unanswered: Option<Submission>,
    /// Submissions answered with an error that a cut may show all the same (requirement C24).
    doubtful: Vec<Submission>,
    /// The directory cannot be synced (choice C26.no-directory-sync), so a cut may take any acknowledged entry.
    suspended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Submission {
    parent_id: Option<String>,
    message: String,
}

struct State {
    disk: Disk,
    history: Arc<History>,
    token: Token,
}

/// Runs the workloads that are `chosen`. `tick` is told how many are done, and how many there are.
///
/// # Errors
/// Where the harness could not do its work.
pub fn run(
    options: &Options,
    chosen: impl Fn(&Token) -> bool,
    tick: impl Fn(usize, usize),
) -> Result<Results, HarnessError> {
    let mut cases = cases(options)?;
    cases.retain(chosen);
    let mut search = Search::new(*options);
    let mut results = Results::default();
    for (at, token) in cases.iter().enumerate() {
        results.cases.push(search.run(token)?);
        tick(at + 1, cases.len());
    }
    let states = search.states();
    results.states = states.len();
    results.digest = states.digest();
    Ok(results)
}

/// The first state in which `is_meant` finds what was broken; the workloads after it are not run.
///
/// # Errors
/// Where the harness could not do its work.
pub fn first(options: &Options, is_meant: impl Fn(&Broken) -> bool) -> Result<Option<Broken>, HarnessError> {
    let mut search = Search::new(*options);
    for token in cases(options)? {
        let broken = search.run(&token)?.broken;
        if let Some(found) = broken.into_iter().find(&is_meant) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What is broken in a workload although nothing goes wrong and nothing is cut.
///
/// # Errors
/// Where the harness could not do its work.
pub fn undisturbed(workload: &Workload, options: &Options) -> Result<Vec<Violation>, HarnessError> {
    let options = Options { profile: Profile::Process, off: None, ..*options };
    Ok(record(workload, &Plan::default(), &options)?.violations)
}

/// Every workload that `options` cover, the shorter ones first.
///
/// # Errors
/// Where the fault-free runs that faults are planned from cannot be made.
pub fn cases(options: &Options) -> Result<Vec<Token>, HarnessError> {
    let token = |(workload, plan)| Token { profile: options.profile, workload, plan, cuts: Vec::new() };
    let plain = (1..=options.depth).flat_map(workload::all).map(|workload| (workload, Plan::default()));
    let faulted = if options.faults { faulted_workloads(options)? } else { Vec::new() };
    Ok(plain.chain(faulted).map(token).collect())
}

/// Requirements that a workload is about.
pub fn requirements(case: &Token) -> Vec<&'static str> {
    let mut ids = vec!["C23", "S5", "X1", "X2"];
    if case.workload.start == Start::New {
        ids.extend(["S1", "S1.cut"]);
    }
    if case.workload.start == Start::TornTail {
        ids.push("F5");
    }
    for step in &case.workload.steps {
        ids.extend(match step {
            Step::Append | Step::Branch => &["C10", "C12"][..],
            Step::Move => &["T2"],
            Step::Flush => &["S6"],
            Step::Reload => &["S2"],
            Step::Second => &["S8"],
        });
    }
    if !case.plan.0.is_empty() {
        ids.extend(["C20", "C24"]);
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Runs one workload by itself.
///
/// # Errors
/// Where the harness could not do its work.
pub fn run_one(case: &Token, options: &Options) -> Result<CaseResult, HarnessError> {
    let options = Options { profile: case.profile, ..*options };
    Search::new(options).run(&case.case())
}

/// Workloads one after the other, with what is known by now of the states that they leave.
pub struct Search {
    options: Options,
    /// By the digest of the state. With a state everything that cut recoveries may make of it is here too.
    judged: HashMap<u128, Judged>,
}

/// What is remembered of a state.
struct Judged {
    refusal: Refusal,
    violations: Vec<Violation>,
    seen: Seen,
    cuts: usize,
    disks: usize,
    /// What cuts in its recovery may leave.
    next: Vec<(u128, At)>,
}

/// Which cut, and which of the disks that it may leave.
type At = (usize, usize);

/// Disks that are still to be judged.
type Pending = HashMap<u128, (Disk, Arc<History>)>;

impl Search {
    /// With nothing known.
    pub fn new(options: Options) -> Search {
        Search { options, judged: HashMap::new() }
    }

    /// Every distinct state so far.
    pub fn states(&self) -> States {
        States(self.judged.iter().map(|(digest, judged)| (*digest, judged.refusal)).collect())
    }

    /// Runs a workload, and finds what every state comes to that it may leave, and those that recoveries from these may
    /// leave, until nothing new turns up.
    ///
    /// # Errors
    /// Where the harness could not do its work.
    pub fn run(&mut self, token: &Token) -> Result<CaseResult, HarnessError> {
        let recorded = record(&token.workload, &token.plan, &self.options)?;
        let mut case = CaseResult {
            token: token.clone(),
            cuts: recorded.visits.moments.len(),
            disks: recorded.visits.disks,
            states: 0,
            recovered: 0,
            unresolved: 0,
            fired: recorded.fired.iter().sum(),
            broken: Vec::new(),
            cut_at: cut_at(&recorded.trace, &recorded.visits.moments),
        };
        if !recorded.violations.is_empty() {
            case.broken.push(Broken::new(token, recorded.violations, None));
        }
        if recorded.fired.contains(&0) {
            let evidence = format!("the planned fault never struck: {}", token.plan);
            let violations = vec![Violation { promise: Promise::FaultFired, evidence }];
            case.broken.push(Broken::new(token, violations, None));
        }
        let mut pending = Pending::new();
        let found = self.found(recorded.visits, &mut pending);
        self.follow(&mut case, &found, pending);
        Ok(case)
    }

    /// Goes from `found` to everything that recoveries may make of it.
    fn follow(&mut self, case: &mut CaseResult, found: &[(u128, At)], mut pending: Pending) {
        let mut met = HashSet::new();
        let mut states = reached(&mut met, found, &case.token);
        while !states.is_empty() {
            self.judge_unknown(&states, &mut pending);
            let mut next = Vec::new();
            for (digest, token) in states {
                let Some(judged) = self.judged.get(&digest) else { continue };
                judged.count_in(case, &token);
                next.extend(reached(&mut met, &judged.next, &token));
            }
            states = next;
        }
    }

    fn judge_unknown(&mut self, states: &[(u128, Token)], pending: &mut Pending) {
        let unknown: Vec<(u128, State)> = states
            .iter()
            .filter_map(|(digest, token)| {
                let (disk, history) = pending.remove(digest)?;
                Some((*digest, State { disk, history, token: token.clone() }))
            })
            .collect();
        let verdicts = judge_in_parallel(&unknown, &self.options);
        for ((digest, state), verdict) in unknown.into_iter().zip(verdicts) {
            let judged = Judged {
                refusal: verdict.refusal(),
                seen: Seen::of(&verdict.violations, Some(&state.disk)),
                violations: verdict.violations,
                cuts: verdict.during_recovery.moments.len(),
                disks: verdict.during_recovery.disks,
                next: self.found(verdict.during_recovery, pending),
            };
            self.judged.insert(digest, judged);
        }
    }

    /// The states that were found; the disks of those that are not judged yet are kept for that.
    fn found(&self, visits: Visits, pending: &mut Pending) -> Vec<(u128, At)> {
        let mut found = Vec::with_capacity(visits.found.len());
        for visit in visits.found {
            found.push((visit.digest, visit.at));
            if !self.judged.contains_key(&visit.digest) {
                pending.entry(visit.digest).or_insert((visit.disk, visit.history));
            }
        }
        found
    }
}

/// Those of `found` that were not met before, each with the way to it.
fn reached(met: &mut HashSet<u128>, found: &[(u128, At)], from: &Token) -> Vec<(u128, Token)> {
    let new = found.iter().filter(|(digest, _)| met.insert(*digest));
    new.map(|(digest, at)| {
        let mut token = from.clone();
        token.cuts.push(*at);
        (*digest, token)
    })
    .collect()
}

impl Judged {
    fn count_in(&self, case: &mut CaseResult, token: &Token) {
        case.states += 1;
        case.cuts += self.cuts;
        case.disks += self.disks;
        case.recovered += usize::from(self.refusal == Refusal::Recovered);
        case.unresolved += usize::from(self.refusal == Refusal::Unresolved);
        if !self.violations.is_empty() {
            let (token, violations) = (token.clone(), self.violations.clone());
            case.broken.push(Broken { token, violations, seen: self.seen });
        }
    }
}

/// Whether a restart on a state refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It does not.
    None,
    /// It does, and recovery leads on.
    Recovered,
    /// It does, and the store has no recovery.
    Unresolved,
}

/// Distinct states, by the digest of each, which is written in hexadecimal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "BTreeMap<String, Refusal>", try_from = "BTreeMap<String, Refusal>")]
pub struct States(pub BTreeMap<u128, Refusal>);

impl States {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of them refuse in this way.
    pub fn count(&self, refusal: Refusal) -> usize {
        self.0.values().filter(|it| **it == refusal).count()
    }

    /// A digest of the sorted digests: the certificate of what was visited.
    pub fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        for digest in self.0.keys() {
            hasher.update(&digest.to_le_bytes());
        }
        hasher.digest128()
    }
}

impl From<States> for BTreeMap<String, Refusal> {
    fn from(states: States) -> BTreeMap<String, Refusal> {
        states.0.into_iter().map(|(digest, refusal)| (format!("{digest:032x}"), refusal)).collect()
    }
}

impl TryFrom<BTreeMap<String, Refusal>> for States {
    type Error = ParseIntError;

    fn try_from(written: BTreeMap<String, Refusal>) -> Result<States, ParseIntError> {
        let read =
            written.into_iter().map(|(digest, refusal)| Ok((u128::from_str_radix(&digest, 16)?, refusal)));
        Ok(States(read.collect::<Result<_, ParseIntError>>()?))
    }
}

/// Judges in parallel; the verdicts are in the order of the states.
fn judge_in_parallel(states: &[(u128, State)], options: &Options) -> Vec<Verdict> {
    const WORTH_A_THREAD: usize = 16;
    let jobs = options.jobs.min(states.len() / WORTH_A_THREAD).max(1);
    if jobs == 1 {
        return part_of(states, options);
    }
    let share = states.len().div_ceil(jobs);
    thread::scope(|scope| {
        let judge_share = |part| scope.spawn(move || part_of(part, options));
        let workers: Vec<_> = states.chunks(share).map(judge_share).collect();
        // A panic of a worker is a defect of the harness and goes on as one.
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

fn part_of(states: &[(u128, State)], options: &Options) -> Vec<Verdict> {
    states.iter().map(|(_, state)| judge(state, options)).collect()
}

/// Every single fault of single operations, each with the operation before it and a further append after it.
fn faulted_workloads(options: &Options) -> Result<Vec<(Workload, Plan)>, HarnessError> {
    let mut all = Vec::new();
    for (start, step) in [
        (Start::New, Step::Append),
        (Start::Session, Step::Append),
        (Start::Session, Step::Flush),
        (Start::TornTail, Step::Append),
    ] {
        let workload = Workload { start, steps: vec![step, Step::Append] };
        let clean = clean_trace(&workload, options)?;
        for event in clean.iter().filter(|event| event.during.nth == 1 && is_disturbed(event)) {
            for fault in faults::errors_at(event) {
                all.push((workload.clone(), Plan(vec![fault])));
            }
        }
    }
    Ok(all)
}

/// The stage of the last system call before each cut.
fn cut_at(trace: &[Event], moments: &[usize]) -> Vec<Option<Stage>> {
    let mut stages = Vec::with_capacity(trace.len());
    for calls in trace.chunk_by(|one, other| one.during == other.during) {
        let during = &calls[0].during.call;
        if is_disturbed(&calls[0]) || **during == *"load" {
            stages.extend(stage::of_faulted_trace(during, calls));
        } else {
            stages.resize(stages.len() + calls.len(), None);
        }
    }
    let last = |made: &usize| made.checked_sub(1).and_then(|at| stages.get(at).copied().flatten());
    moments.iter().map(last).collect()
}

fn is_disturbed(event: &Event) -> bool {
    matches!(&*event.during.call, "create" | "append" | "treeAppend" | "flush")
}

/// The system calls of the fault-free run of a workload.
///
/// # Errors
/// Where the harness could not do its work.
pub fn clean_trace(workload: &Workload, options: &Options) -> Result<Vec<Event>, HarnessError> {
    let options = Options { profile: Profile::Process, off: None, ..*options };
    Ok(record(workload, &Plan::default(), &options)?.trace)
}
