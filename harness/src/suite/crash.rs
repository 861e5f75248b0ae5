//! The `crash` suite: small workloads, a power cut after every system call, every disk that the profile allows, a
//! restart on each, and an append after it that must survive another cut.
//!
//! States that a restart cannot tell apart are judged once. Where a restart refuses, recovery runs with a cut after
//! each of its system calls too, and what those leave is judged likewise, until nothing new turns up: so every
//! sequence of cuts and recoveries is covered, however long.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use xxhash_rust::xxh3::Xxh3;

use crate::call::EntryView;
use crate::crash::{Assumption, Profile};
use crate::disk::Disk;
use crate::fault::Plan;
use crate::inject::Event;
use crate::promise::{Promise, Violation};
use crate::scenario::HarnessError;
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
    /// States that no earlier workload had.
    pub fresh: usize,
    /// States among them in which a load refused and recovery led on.
    pub recovered: usize,
    /// States among them in which a load refused and the store has no recovery: its use is lost there, not its entries.
    pub unresolved: usize,
    /// How often the planned faults struck.
    pub fired: u32,
    /// States in which promises were broken, in the order in which they were found.
    pub broken: Vec<Broken>,
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
    let mut search = Search { options, seen: HashSet::new() };
    let mut results = Results::default();
    for (at, token) in cases.iter().enumerate() {
        results.cases.push(search.run(token)?);
        tick(at + 1, cases.len());
    }
    results.states = search.seen.len();
    results.digest = certificate(&search.seen);
    Ok(results)
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
    Search { options: &options, seen: HashSet::new() }.run(&case.case())
}

fn certificate(seen: &HashSet<u128>) -> u128 {
    let mut digests: Vec<u128> = seen.iter().copied().collect();
    digests.sort_unstable();
    let mut hasher = Xxh3::new();
    for digest in digests {
        hasher.update(&digest.to_le_bytes());
    }
    hasher.digest128()
}

struct Search<'a> {
    options: &'a Options,
    seen: HashSet<u128>,
}

impl Search<'_> {
    /// Runs a workload, and judges every state that no earlier one had, and what recoveries from it may leave, until
    /// nothing new turns up.
    fn run(&mut self, token: &Token) -> Result<CaseResult, HarnessError> {
        let recorded = record(&token.workload, &token.plan, self.options)?;
        let mut case = CaseResult {
            token: token.clone(),
            cuts: 0,
            disks: 0,
            fresh: 0,
            recovered: 0,
            unresolved: 0,
            fired: recorded.fired.iter().sum(),
            broken: Vec::new(),
        };
        if !recorded.violations.is_empty() {
            case.broken.push(Broken::new(token, recorded.violations, None));
        }
        if recorded.fired.contains(&0) {
            let evidence = format!("the planned fault never struck: {}", token.plan);
            let violations = vec![Violation { promise: Promise::FaultFired, evidence }];
            case.broken.push(Broken::new(token, violations, None));
        }
        let mut states = self.keep(&mut case, recorded.visits, token);
        while !states.is_empty() {
            let judged = judge_in_parallel(&states, self.options);
            let mut next = Vec::new();
            for (state, verdict) in states.iter().zip(judged) {
                case.recovered += usize::from(verdict.recovered);
                case.unresolved += usize::from(verdict.unresolved);
                if !verdict.violations.is_empty() {
                    case.broken.push(Broken::new(&state.token, verdict.violations, Some(&state.disk)));
                }
                next.extend(self.keep(&mut case, verdict.during_recovery, &state.token));
            }
            states = next;
        }
        Ok(case)
    }

    /// The states among `visits` that are new, reached from `token`.
    fn keep(&mut self, case: &mut CaseResult, visits: Visits, token: &Token) -> Vec<State> {
        case.cuts += visits.moments.len();
        case.disks += visits.disks;
        let new = visits.found.into_iter().filter(|visit| self.seen.insert(visit.digest));
        let states: Vec<State> = new
            .map(|visit| {
                let mut token = token.clone();
                token.cuts.push(visit.at);
                State { disk: visit.disk, history: visit.history, token }
            })
            .collect();
        case.fresh += states.len();
        states
    }
}

/// Judges in parallel; the verdicts are in the order of the states.
fn judge_in_parallel(states: &[State], options: &Options) -> Vec<Verdict> {
    const WORTH_A_THREAD: usize = 16;
    let jobs = options.jobs.min(states.len() / WORTH_A_THREAD).max(1);
    if jobs == 1 {
        return states.iter().map(|state| judge(state, options)).collect();
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

fn part_of(states: &[State], options: &Options) -> Vec<Verdict> {
    states.iter().map(|state| judge(state, options)).collect()
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
