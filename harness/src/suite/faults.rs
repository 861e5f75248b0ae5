//! The `faults` suite: every system call of every store call fails in every way that it can, once, three times and
//! for ever; then every pair of faults whose second strikes the handling of the first.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use session_tree::{Errno, Stage};

use crate::fault::{Actor, During, Fault, Kind, Op, Plan, Role, Site, Span, Target};
use crate::inject::{Event, Outcome};
use crate::parallel;
use crate::scenario::{self, Action, HarnessError, Run, Scenario};
use crate::stage;
use crate::subject::Candidate;
use crate::world::Backend;

/// The name of the suite.
pub const NAME: &str = "faults";

const CHAT: &[u8] = include_bytes!("../../../corpus/sessions/plain-chat.jsonl");
const CODING: &[u8] = include_bytes!("../../../corpus/sessions/coding-parallel-tools.jsonl");
const BRANCHES: &[u8] = include_bytes!("../../../corpus/sessions/branches-three-levels.jsonl");
const SCRIPTS: &[u8] = include_bytes!("../../../corpus/sessions/scripts-and-emoji.jsonl");
const TORN: &[u8] = include_bytes!("../../../corpus/faults/torn-tail.jsonl");

/// The roll back that renames the marker back.
const DIRECTORY_FSYNC_FAILS: &str = "fsync@root#1 in append#1 = EIO before, once";
/// The roll back that has to copy the old generation.
const MARKER_RENAME_FAILS: &str = "fsync@root#1 in append#1 = EIO before, once; \
                                   rename@marker>session#1 in append#1 = EIO before, for ever";
/// The roll back after the last step.
const MARKER_STAYS: &str = "unlink@marker#1 in append#1 = EIO before, 3 times";

/// The mode of a session that nobody else may read, and of one that its group may.
const PRIVATE: u32 = 0o600;
const SHARED: u32 = 0o640;

/// The histories that are disturbed.
pub const SCENARIOS: &[Scenario] = &[
    undisturbed("create", Action::Create, None),
    undisturbed("load", Action::Load, Some(CODING)),
    undisturbed("append", Action::Append, Some(CHAT)),
    undisturbed("append-to-branches", Action::Append, Some(BRANCHES)),
    undisturbed("append-after-torn-tail", Action::Append, Some(TORN)),
    Scenario { mode: SHARED, ..undisturbed("append-to-shared", Action::Append, Some(CHAT)) },
    undisturbed("flush", Action::Flush, Some(SCRIPTS)),
    Scenario { base: DIRECTORY_FSYNC_FAILS, ..undisturbed("roll-back", Action::Append, Some(CHAT)) },
    Scenario { base: MARKER_RENAME_FAILS, ..undisturbed("roll-back-by-copy", Action::Append, Some(CHAT)) },
    Scenario { base: MARKER_STAYS, ..undisturbed("roll-back-at-the-end", Action::Append, Some(CHAT)) },
];

const fn undisturbed(name: &'static str, action: Action, session: Option<&'static [u8]>) -> Scenario {
    Scenario { name, action, session, mode: PRIVATE, base: "" }
}

/// One planned disturbance of one scenario.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Case {
    /// Which scenario, by its place in [`SCENARIOS`].
    pub scenario: usize,
    /// The stage that the first planned fault strikes.
    pub stage: Stage,
    /// What goes wrong, besides the scenario's own faults.
    pub plan: Plan,
}

/// A case and what its run showed.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The case.
    pub case: Case,
    /// What was seen.
    pub run: Run,
    /// How long it took.
    pub took: Duration,
}

/// Every fault at one system call of one scenario, with every pair that begins there.
///
/// Runs of two families differ from the first fault on, which strikes at different places, so their traces are never
/// equal: a family can be run without the others.
#[derive(Debug, Clone)]
pub struct Family {
    singles: Vec<Case>,
}

/// Every case whose trace is like no other's, and how many more were like one of them.
#[derive(Debug, Default)]
pub struct Results {
    /// The cases, in a fixed order.
    pub finished: Vec<Finished>,
    /// Runs whose trace was equal to an earlier one's.
    pub merged: usize,
    /// Cases that were to be left out.
    pub skipped: Vec<Case>,
}

impl Case {
    /// The scenario.
    pub fn scenario(&self) -> &'static Scenario {
        &SCENARIOS[self.scenario]
    }

    /// The stable id, from which [`Case::find`] makes the case again.
    pub fn id(&self) -> String {
        let scenario = self.scenario();
        let here = format!("_in_{}#1", scenario.action.call());
        let plan = self.plan.slug().replace(&here, "");
        format!("{NAME}/{}/{}/{plan}", scenario.name, self.stage.id())
    }

    /// The case with this id, of `candidate`; none where it is no id of this suite, names no fault, or names a first fault that the
    /// scenario does not have at that stage.
    ///
    /// # Errors
    /// Where the scenario's fault-free run cannot be made.
    pub fn find(candidate: &dyn Candidate, id: &str) -> Result<Option<Case>, HarnessError> {
        let Some(case) = Case::parse(id) else { return Ok(None) };
        let singles = single_faults(candidate, case.scenario)?;
        let strikes_there = |single: &Case| {
            single.stage == case.stage
                && single.plan.0.first().map(|it| &it.site) == case.plan.0.first().map(|it| &it.site)
        };
        Ok(singles.iter().any(strikes_there).then_some(case))
    }

    fn parse(id: &str) -> Option<Case> {
        let mut parts = id.splitn(4, '/');
        let (suite, name, stage, plan) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let scenario = SCENARIOS.iter().position(|scenario| suite == NAME && scenario.name == name)?;
        let stage = Stage::ALL.iter().copied().find(|known| known.id() == stage)?;
        let call = SCENARIOS[scenario].action.call();
        let plan = Plan::from_slug(plan, Some(call)).ok().filter(|plan| !plan.0.is_empty())?;
        Some(Case { scenario, stage, plan })
    }

    /// Requirements that this case is about: its stage's, and those of the promises that every case checks.
    pub fn requirements(&self) -> Vec<&'static str> {
        let mut ids = vec![self.stage.id()];
        ids.extend(match self.scenario().action {
            Action::Create => &["S1", "C24"][..],
            Action::Load => &["S2", "S3"],
            Action::Append => &["S5", "C22", "C23", "C24"],
            Action::Flush => &["S6", "C22", "C23", "C24"],
        });
        if self.scenario().session.is_some_and(|bytes| std::ptr::eq(bytes, TORN)) {
            ids.push("F5");
        }
        if self.scenario().mode == SHARED {
            ids.push("C25.mode");
        }
        ids.extend(self.plan.0.iter().filter_map(|fault| match fault.kind {
            Kind::Before(Errno::EINTR) | Kind::After(Errno::EINTR) => Some("C27"),
            Kind::Actor(_) => Some("C21"),
            Kind::Held => Some("S8"),
            _ => None,
        }));
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Runs the case on `candidate`.
    ///
    /// # Errors
    /// As [`scenario::run`].
    pub fn run(&self, candidate: &dyn Candidate, backend: Backend) -> Result<Run, HarnessError> {
        scenario::run(candidate, backend, self.scenario(), &self.plan)
    }
}

/// Runs everything on `candidate` and the simulated disk with `jobs` threads; `tick` is told how many families of cases
/// are done.
///
/// # Errors
/// The first case that the harness could not run.
pub fn run_all(
    candidate: &dyn Candidate,
    jobs: usize,
    tick: &(dyn Fn(usize, usize) + Sync),
) -> Result<Results, HarnessError> {
    let families = families(candidate)?;
    let done = AtomicUsize::new(0);
    let run = |family: &Family| {
        let results = family.run(candidate, &|_| false);
        tick(done.fetch_add(1, Ordering::Relaxed) + 1, families.len());
        results
    };
    let mut all = Results::default();
    for results in parallel::map(&families, jobs, run, Result::is_err) {
        all.extend(results?);
    }
    Ok(all)
}

/// Every family of cases, in the order of scenarios and of the system calls of their fault-free runs.
///
/// # Errors
/// Where the fault-free runs cannot be made.
pub fn families(candidate: &dyn Candidate) -> Result<Vec<Family>, HarnessError> {
    let mut families: Vec<Family> = Vec::new();
    for scenario in 0..SCENARIOS.len() {
        for case in single_faults(candidate, scenario)? {
            match families.last_mut().filter(|family| family.is_of(&case)) {
                Some(family) => family.singles.push(case),
                None => families.push(Family { singles: vec![case] }),
            }
        }
    }
    Ok(families)
}

impl Family {
    /// What the ids of its cases begin with, which no other family has.
    pub fn name(&self) -> String {
        let id = self.singles.first().map(Case::id).unwrap_or_default();
        id.split_once('=').map_or(id.clone(), |(place, _)| format!("{place}="))
    }

    /// Runs the cases one after the other, without those that `is_skipped`, and without pairs that begin with one of
    /// these.
    ///
    /// # Errors
    /// The first case that the harness could not run.
    pub fn run(
        &self,
        candidate: &dyn Candidate,
        is_skipped: &dyn Fn(&Case) -> bool,
    ) -> Result<Results, HarnessError> {
        let mut results = Results::default();
        let mut seen = HashSet::new();
        let mut pairs = Vec::new();
        for case in &self.singles {
            if let Some(finished) = results.attempt(case, candidate, is_skipped)? {
                pairs.extend(second_faults(&finished));
                results.keep(finished, &mut seen);
            }
        }
        for case in &pairs {
            if let Some(finished) = results.attempt(case, candidate, is_skipped)? {
                results.keep(finished, &mut seen);
            }
        }
        Ok(results)
    }

    fn is_of(&self, case: &Case) -> bool {
        let site = |case: &Case| case.plan.0.first().map(|fault| fault.site.clone());
        self.singles.first().is_some_and(|first| {
            (first.scenario, first.stage) == (case.scenario, case.stage) && site(first) == site(case)
        })
    }
}

impl Results {
    /// Takes over what another family came to.
    pub fn extend(&mut self, other: Results) {
        self.finished.extend(other.finished);
        self.merged += other.merged;
        self.skipped.extend(other.skipped);
    }

    fn attempt(
        &mut self,
        case: &Case,
        candidate: &dyn Candidate,
        is_skipped: &dyn Fn(&Case) -> bool,
    ) -> Result<Option<Finished>, HarnessError> {
        if is_skipped(case) {
            self.skipped.push(case.clone());
            return Ok(None);
        }
        let start = Instant::now();
        let run = case.run(candidate, Backend::Simulated)?;
        Ok(Some(Finished { case: case.clone(), run, took: start.elapsed() }))
    }

    /// Keeps the first of all runs with equal traces.
    fn keep(&mut self, finished: Finished, seen: &mut HashSet<u64>) {
        if seen.insert(trace_digest(&finished)) {
            self.finished.push(finished);
        } else {
            self.merged += 1;
        }
    }
}

fn trace_digest(finished: &Finished) -> u64 {
    let mut hasher = DefaultHasher::new();
    finished.case.scenario.hash(&mut hasher);
    for event in &finished.run.trace {
        // Which fault of the plan struck is not part of what happened.
        (event.op, event.target, event.outcome, event.failed_after, &event.during).hash(&mut hasher);
    }
    for fault in &finished.case.plan.0 {
        // What an outside actor did and when a process died does not show in the calls before it.
        if matches!(fault.kind, Kind::Actor(_) | Kind::KillBefore | Kind::KillAfter) {
            (fault.kind, &fault.site).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Every single fault of a scenario, told from the fault-free trace of `candidate`.
///
/// # Errors
/// Where the fault-free run cannot be made.
pub fn single_faults(candidate: &dyn Candidate, scenario: usize) -> Result<Vec<Case>, HarnessError> {
    let run = scenario::run(candidate, Backend::Simulated, &SCENARIOS[scenario], &Plan::default())?;
    let own_faults = run.fired.len();
    let during = During { call: SCENARIOS[scenario].action.call().into(), nth: 1 };
    let events: Vec<Event> = run.trace.into_iter().filter(|event| event.during == during).collect();
    let stages = stage::of_clean_trace(&during.call, &events);
    // A scenario with faults of its own is about what they lead to.
    let start = if own_faults == 0 {
        0
    } else {
        events.iter().position(|event| event.fault.is_some()).map_or(0, |at| at + 1)
    };
    let mut cases = Vec::new();
    for (event, stage) in events.iter().zip(stages).skip(start) {
        // Where one of the scenario's own faults strikes, no other one can.
        let Some(stage) = stage.filter(|_| event.fault.is_none()) else { continue };
        let stage = if own_faults == 0 { stage } else { Stage::C20 };
        for fault in faults_at(event, SCENARIOS[scenario].action) {
            cases.push(Case { scenario, stage, plan: Plan(vec![fault]) });
        }
    }
    Ok(cases)
}

/// Pairs: a second fault at every call that the handling of the first one makes.
pub fn second_faults(first: &Finished) -> Vec<Case> {
    let case = &first.case;
    if !PAIRED.contains(&case.scenario().name) || !case.plan.0.iter().all(is_paired) {
        return Vec::new();
    }
    let during = &case.plan.0[0].site.during;
    // The scenario's own faults stand first in the plan that ran.
    let planned = first.run.fired.len() - 1;
    let struck = first.run.trace.iter().position(|event| event.fault == Some(planned));
    let handling = struck.map_or(&[][..], |at| &first.run.trace[at + 1..]);
    let mut cases = Vec::new();
    let handling = handling.iter().take_while(|event| event.during == *during);
    for event in handling.filter(|event| event.fault.is_none()) {
        for (kind, span) in second_kinds(event) {
            let mut plan = case.plan.clone();
            plan.0.push(Fault { site: site_of(event), kind, span });
            cases.push(Case { plan, ..case.clone() });
        }
    }
    cases
}

/// The scenarios whose handling is disturbed a second time; the others differ from these in their data only.
const PAIRED: &[&str] = &[
    "create",
    "load",
    "append",
    "append-to-shared",
    "flush",
    "roll-back",
    "roll-back-by-copy",
    "roll-back-at-the-end",
];

/// One representative of each way to fail: the number alone does not change the handling, but for EINTR and EEXIST,
/// whose handling is short and disturbed as a single fault.
fn is_paired(fault: &Fault) -> bool {
    let kind = matches!(
        fault.kind,
        Kind::Before(Errno::EIO) | Kind::After(Errno::EIO) | Kind::ShortThen(_) | Kind::NoProgress
    );
    kind && fault.span != Span::Times(3)
}

fn second_kinds(event: &Event) -> Vec<(Kind, Span)> {
    if event.op == Op::Unlock {
        return Vec::new();
    }
    let mut kinds = vec![
        (Kind::Before(Errno::EIO), Span::Times(1)),
        (Kind::Before(Errno::EIO), Span::Forever),
        (Kind::KillBefore, Span::Times(1)),
    ];
    if has_effect(event.op) {
        kinds.push((Kind::After(Errno::EIO), Span::Times(1)));
        kinds.push((Kind::After(Errno::EIO), Span::Forever));
        kinds.push((Kind::KillAfter, Span::Times(1)));
    }
    kinds
}

/// Every fault that can strike at the place of `event`.
fn faults_at(event: &Event, action: Action) -> Vec<Fault> {
    let mut faults = errors_at(event);
    let mut add = |kind, span| faults.push(Fault { site: site_of(event), kind, span });
    if event.op == Op::Lock {
        add(Kind::Held, Span::Times(1));
        add(Kind::Held, Span::Times(3));
        add(Kind::Held, Span::Forever);
    }
    add(Kind::KillBefore, Span::Times(1));
    if has_effect(event.op) {
        add(Kind::KillAfter, Span::Times(1));
    }
    for actor in Actor::ALL {
        if can_act(*actor, action) {
            add(Kind::Actor(*actor), Span::Times(1));
        }
    }
    faults
}

/// Every error and short transfer that the system call of `event` can come to.
pub(super) fn errors_at(event: &Event) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut add = |kind, span| faults.push(Fault { site: site_of(event), kind, span });
    for errno in errors_of(event.op, event.target) {
        for span in [Span::Times(1), Span::Times(3), Span::Forever] {
            add(Kind::Before(*errno), span);
        }
    }
    for errno in errors_after(event.op) {
        for span in [Span::Times(1), Span::Times(3), Span::Forever] {
            add(Kind::After(*errno), span);
        }
    }
    if matches!(event.outcome, Outcome::Bytes(_)) {
        for span in [Span::Times(1), Span::Times(3), Span::Forever] {
            add(Kind::Short, span);
        }
    }
    if event.op == Op::Write {
        add(Kind::ShortThen(Errno::ENOSPC), Span::Times(1));
        add(Kind::ShortThen(Errno::EIO), Span::Times(1));
        add(Kind::ShortThen(Errno::ENOSPC), Span::Forever);
        add(Kind::NoProgress, Span::Times(1));
        add(Kind::NoProgress, Span::Forever);
    }
    if event.op == Op::Fsync {
        add(Kind::SyncDrops(Errno::EIO), Span::Times(1));
    }
    faults
}

fn site_of(event: &Event) -> Site {
    Site { op: event.op, target: event.target, nth: event.nth, during: event.during.clone() }
}

/// Whether the call does something that a later look could see.
fn has_effect(op: Op) -> bool {
    op.mutates() || matches!(op, Op::Open | Op::OpenDir | Op::Fsync | Op::Close | Op::Lock)
}

/// Error numbers that the call can give without an effect. A look never answers ENOENT falsely: that would be a
/// wrong answer, not a failure.
fn errors_of(op: Op, target: Target) -> &'static [Errno] {
    use Errno as E;
    match op {
        Op::OpenDir => &[E::EIO, E::EACCES, E::EMFILE, E::EINTR, E::ENOENT, E::ENOTDIR],
        Op::Stat => &[E::EIO, E::EACCES],
        Op::Fstat | Op::Statfs => &[E::EIO],
        Op::Create => &[
            E::EIO,
            E::ENOSPC,
            E::EDQUOT,
            E::EROFS,
            E::EACCES,
            E::EMFILE,
            E::EINTR,
            E::EEXIST,
            E::ENOENT,
            E::EINVAL,
        ],
        Op::Open => &[E::EIO, E::EACCES, E::EMFILE, E::EINTR, E::ENOENT, E::EBUSY],
        Op::Link => &[
            E::EIO,
            E::ENOSPC,
            E::EDQUOT,
            E::EROFS,
            E::EACCES,
            E::EPERM,
            E::EMLINK,
            E::EEXIST,
            E::ENOENT,
            E::EINTR,
        ],
        Op::Rename => &[
            E::EIO,
            E::ENOSPC,
            E::EDQUOT,
            E::EROFS,
            E::EACCES,
            E::EBUSY,
            E::EEXIST,
            E::ENOENT,
            E::EINVAL,
            E::EINTR,
        ],
        Op::Unlink => &[E::EIO, E::EROFS, E::EACCES, E::EBUSY, E::ENOENT, E::EINTR],
        Op::Fsync if target.from == Role::Root => {
            &[E::EIO, E::ENOSPC, E::EROFS, E::EINTR, E::EINVAL, E::ENOTSUP, E::EACCES, E::EPERM]
        }
        Op::Fsync => &[E::EIO, E::ENOSPC, E::EDQUOT, E::EROFS, E::EINTR, E::EINVAL],
        Op::Read => &[E::EIO, E::EINTR],
        Op::Write => &[E::EIO, E::ENOSPC, E::EDQUOT, E::EFBIG, E::EINTR, E::EROFS],
        Op::Truncate => &[E::EIO, E::ENOSPC, E::EROFS],
        Op::Chmod => &[E::EIO, E::EROFS, E::EPERM],
        Op::Close => &[E::EIO, E::ENOSPC, E::EDQUOT, E::EINTR],
        Op::Lock => &[E::EIO, E::EINTR, E::ENOLCK, E::ENOTSUP, E::EBADF],
        Op::List | Op::Unlock => &[],
    }
}

/// Error numbers that the call can give although it had its effect: a lost answer, or one that was asked for twice.
fn errors_after(op: Op) -> &'static [Errno] {
    use Errno as E;
    match op {
        Op::Create | Op::Link => &[E::EIO, E::EINTR, E::EEXIST],
        Op::Rename | Op::Unlink => &[E::EIO, E::EINTR, E::ENOENT],
        Op::OpenDir | Op::Open | Op::Write | Op::Truncate | Op::Lock => &[E::EIO, E::EINTR],
        Op::Fsync | Op::Chmod | Op::Close => &[E::EIO],
        _ => &[],
    }
}

/// Whether the actor can do anything in this scenario: a create has no session file to disturb but by making one.
fn can_act(actor: Actor, action: Action) -> bool {
    match action {
        Action::Create => matches!(
            actor,
            Actor::ReplaceFile
                | Actor::ReplaceRoot
                | Actor::PlantMarker
                | Actor::PlantTemporary
                | Actor::RemoveTemporary
        ),
        Action::Load => {
            !matches!(actor, Actor::PlantTemporary | Actor::RemoveTemporary | Actor::RemoveMarker)
        }
        Action::Append | Action::Flush => true,
    }
}
