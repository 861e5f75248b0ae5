//! Beyond what can be visited completely: random workloads, longer than the exhaustive part, with random faults and a
//! cut after every system call. A swarm: some steps are off in each workload and the rest unevenly weighted, so that
//! rare mixtures turn up.

use fastrand::Rng;

use crate::crash::Profile;
use crate::fault::Plan;
use crate::scenario::HarnessError;
use crate::subject::Candidate;
use crate::suite::crash::{self, Broken, CaseResult, Options, Token};
use crate::suite::faults;
use crate::workload::{Start, Step, Workload};

/// What was explored.
#[derive(Debug, Default)]
pub struct Explored {
    /// Workloads that were run.
    pub workloads: usize,
    /// States that were judged; equal ones in different workloads count each time.
    pub states: usize,
    /// Faults that struck.
    pub faults_fired: u64,
    /// The first violation, reduced to the shortest workload and plan that show it.
    pub broken: Option<CaseResult>,
}

const LONGEST: usize = 8;
const MOST_FAULTS: usize = 2;

/// Runs random workloads of `candidate` for as long as `go_on` says so, or until a promise is broken.
///
/// # Errors
/// Where the harness could not do its work.
pub fn explore(
    candidate: &'static dyn Candidate,
    seed: u64,
    profile: Profile,
    mut go_on: impl FnMut(&Explored) -> bool,
) -> Result<Explored, HarnessError> {
    let mut random = Rng::with_seed(seed);
    let options = Options { candidate, profile, ..Options::default() };
    let mut explored = Explored::default();
    while explored.broken.is_none() && go_on(&explored) {
        let token = case(&mut random, LONGEST, &options)?;
        let result = crash::run_one(&token, &options)?;
        explored.workloads += 1;
        explored.states += result.states;
        explored.faults_fired += u64::from(result.fired);
        if is_broken(&result) {
            explored.broken = Some(shrink(result, &options)?);
        }
    }
    Ok(explored)
}

/// Drops steps and faults, one at a time, for as long as a promise stays broken.
///
/// # Errors
/// Where the harness could not do its work.
pub fn shrink(mut broken: CaseResult, options: &Options) -> Result<CaseResult, HarnessError> {
    loop {
        let mut smaller = None;
        for token in with_one_less(&broken.token) {
            let result = crash::run_one(&token, options)?;
            if is_broken(&result) {
                smaller = Some(result);
                break;
            }
        }
        match smaller {
            Some(result) => broken = result,
            None => return Ok(broken),
        }
    }
}

/// A fault that no longer strikes is no violation of the store.
fn is_broken(result: &CaseResult) -> bool {
    result.broken.iter().any(Broken::is_of_the_store)
}

fn with_one_less(token: &Token) -> Vec<Token> {
    let faults = (0..token.plan.0.len()).map(|at| {
        let mut less = token.clone();
        less.plan.0.remove(at);
        less
    });
    let steps = (0..token.workload.steps.len()).flat_map(|at| {
        let mut less = token.clone();
        let step = less.workload.steps.remove(at);
        let mut renumbered = less.clone();
        let faults = renumbered.plan.0.iter_mut().filter(|fault| is_made_by(step, &fault.site.during.call));
        faults.for_each(|fault| fault.site.during.nth = fault.site.during.nth.saturating_sub(1).max(1));
        // A fault in a later call of the same name is meant by one less then.
        [renumbered, less]
    });
    faults.chain(steps).collect()
}

/// Whether a step makes a store call of this name.
fn is_made_by(step: Step, call: &str) -> bool {
    match step {
        Step::Append => call == "treeAppend",
        Step::Branch => call == "append",
        Step::Move => call == "moveTo",
        Step::Flush => call == "flush",
        Step::Reload => matches!(call, "load" | "tree"),
        Step::Second => matches!(call, "load" | "append"),
    }
}

/// What decides a workload and its faults: random numbers, or a fuzzer's bytes.
pub trait Draw {
    /// A number below `count`; 0 where that is 0.
    fn below(&mut self, count: usize) -> usize;
}

impl Draw for Rng {
    fn below(&mut self, count: usize) -> usize {
        if count == 0 { 0 } else { self.usize(..count) }
    }
}

/// A workload of at most `longest` steps with at most two faults.
///
/// # Errors
/// Where the workload's fault-free run cannot be made.
pub fn case(draw: &mut impl Draw, longest: usize, options: &Options) -> Result<Token, HarnessError> {
    let workload = some_workload(draw, longest);
    let plan = some_plan(draw, &workload, options)?;
    Ok(Token { profile: options.profile, workload, plan, cuts: Vec::new() })
}

fn some_workload(draw: &mut impl Draw, longest: usize) -> Workload {
    let start = Start::ALL[draw.below(Start::ALL.len())];
    let weights: Vec<usize> =
        Step::ALL.iter().map(|_| if draw.below(4) == 0 { 0 } else { 1 << draw.below(5) }).collect();
    let total = weights.iter().sum();
    let length = 1 + draw.below(longest);
    let steps = (0..length).map(|_| step_at(&weights, draw.below(total))).collect();
    Workload { start, steps }
}

/// The step in whose share of the weights `at` lies.
fn step_at(weights: &[usize], mut at: usize) -> Step {
    let chosen = weights.iter().position(|weight| {
        let found = at < *weight;
        at = at.saturating_sub(*weight);
        found
    });
    chosen.map_or(Step::Append, |chosen| Step::ALL[chosen])
}

/// Faults at some of the system calls of the fault-free run.
fn some_plan(draw: &mut impl Draw, workload: &Workload, options: &Options) -> Result<Plan, HarnessError> {
    let wanted = draw.below(MOST_FAULTS + 1);
    if wanted == 0 {
        return Ok(Plan::default());
    }
    let trace = crash::clean_trace(workload, options)?;
    let mut plan = Plan::default();
    for _ in 0..wanted {
        let faults = faults::errors_at(&trace[draw.below(trace.len())]);
        if !faults.is_empty() {
            plan.0.push(faults[draw.below(faults.len())].clone());
        }
    }
    Ok(plan)
}
