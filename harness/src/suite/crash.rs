//! The `crash` suite: small workloads, a power cut after every system call, every disk that the profile allows, a
//! restart on each, and an append after it that must survive another cut.
//!
//! States that a restart cannot tell apart are judged once. Where a restart refuses, recovery runs with a cut after
//! each of its system calls too, and what those leave is judged likewise, until nothing new turns up: so every
//! sequence of cuts and recoveries is covered, however long.

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::Hash;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use session_tree::{Errno, recover};
use xxhash_rust::xxh3::Xxh3;

use crate::call::{Call, EntryView, Reply};
use crate::crash::{self, Contents, Profile};
use crate::disk::{CutOutcome, Disk, NodeId, Unsettled};
use crate::fault::{Op, Plan, Role};
use crate::inject::{Event, Injector, Outcome};
use crate::promise::{Promise, Violation};
use crate::role;
use crate::scenario::HarnessError;
use crate::subject::{InProcess, Subject};
use crate::suite::faults;
use crate::workload::{self, Start, Step, Workload};
use crate::world::{Backend, World, WorldOps};

/// The name of the suite.
pub const NAME: &str = "crash";

const SESSION: &str = "session.jsonl";
const TIME: &str = "2026-01-01T00:00:00.000Z";

/// What a run of the suite covers.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What a cut may lose.
    pub profile: Profile,
    /// Every workload of up to so many steps.
    pub depth: usize,
    /// Whether each single fault is planned in single operations too, with a cut at every later call.
    pub faults: bool,
    /// Whether one representative stands for all contents of a file that no later step reads.
    pub merge_strays: bool,
    /// Threads that judge states.
    pub jobs: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { profile: Profile::Posix, depth: 2, faults: true, merge_strays: true, jobs: 1 }
    }
}

/// What a run of the suite found.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// Workloads that were run, those with planned faults among them.
    pub workloads: usize,
    /// System calls after which the power was cut.
    pub cuts: usize,
    /// Disks that these cuts could leave, equal ones counted each time.
    pub disks: usize,
    /// Distinct states: the disk as a restart sees it, with what was acknowledged, unanswered and in doubt.
    pub states: usize,
    /// States in which a load refused and recovery led on.
    pub recovered: usize,
    /// Faults that struck, in the workloads with planned faults.
    pub faults_fired: usize,
    /// A digest of the sorted digests of all distinct states: the certificate of what was visited.
    pub digest: u128,
    /// States in which a promise was broken, in the order in which they were found.
    pub broken: Vec<Broken>,
}

/// A state in which promises were broken.
#[derive(Debug, Clone)]
pub struct Broken {
    /// How to come there again.
    pub token: Token,
    /// What was broken.
    pub violations: Vec<Violation>,
}

/// How a state is reached: the workload, what goes wrong in it, and where the power was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What a cut may lose.
    pub profile: Profile,
    /// The workload.
    pub workload: Workload,
    /// What goes wrong besides.
    pub plan: Plan,
    /// The cut in the workload, then those in the recoveries after it: which cut, and which of the disks that it may
    /// leave.
    pub cuts: Vec<(usize, usize)>,
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

/// Runs the suite. `tick` is told how many states were judged, and how many are known.
///
/// # Errors
/// Where the harness could not do its work.
pub fn run(options: &Options, tick: &(dyn Fn(usize, usize) + Sync)) -> Result<Results, HarnessError> {
    let mut search = Search { options, seen: HashSet::new(), results: Results::default() };
    let mut known = 0;
    for length in 1..=options.depth {
        for workload in workload::all(length) {
            let fresh = search.record(&workload, &Plan::default())?;
            known += fresh.len();
            search.judge_all(fresh, tick, known)?;
        }
    }
    if options.faults {
        for (workload, plan) in faulted_workloads()? {
            let fresh = search.record(&workload, &plan)?;
            known += fresh.len();
            search.judge_all(fresh, tick, known)?;
        }
    }
    search.results.states = search.seen.len();
    search.results.digest = certificate(&search.seen);
    Ok(search.results)
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
    results: Results,
}

impl Search<'_> {
    /// Runs a workload and gives the states that no earlier one had.
    fn record(&mut self, workload: &Workload, plan: &Plan) -> Result<Vec<State>, HarnessError> {
        let recorded = record(workload, plan, self.options)?;
        self.results.workloads += 1;
        self.results.faults_fired += recorded.fired.iter().filter(|fired| **fired > 0).count();
        for violation in recorded.violations {
            let token = Token {
                profile: self.options.profile,
                workload: workload.clone(),
                plan: plan.clone(),
                cuts: Vec::new(),
            };
            self.results.broken.push(Broken { token, violations: vec![violation] });
        }
        Ok(self.keep(recorded.visits, |cuts| Token {
            profile: self.options.profile,
            workload: workload.clone(),
            plan: plan.clone(),
            cuts,
        }))
    }

    /// The states among `visits` that are new.
    fn keep(&mut self, visits: Visits, token: impl Fn(Vec<(usize, usize)>) -> Token) -> Vec<State> {
        self.results.cuts += visits.cuts;
        self.results.disks += visits.disks;
        let mut fresh = Vec::new();
        for visit in visits.found {
            if self.seen.insert(visit.digest) {
                let token = token(vec![visit.at]);
                fresh.push(State { disk: visit.disk, history: visit.history, token });
            }
        }
        fresh
    }

    /// Judges states, and what recoveries from them may leave, until nothing new turns up.
    fn judge_all(
        &mut self,
        mut states: Vec<State>,
        tick: &(dyn Fn(usize, usize) + Sync),
        known: usize,
    ) -> Result<(), HarnessError> {
        while !states.is_empty() {
            let judged = judge_in_parallel(&states, self.options)?;
            let mut next = Vec::new();
            for (state, verdict) in states.iter().zip(judged) {
                self.results.recovered += usize::from(verdict.recovered);
                if !verdict.violations.is_empty() {
                    self.results
                        .broken
                        .push(Broken { token: state.token.clone(), violations: verdict.violations });
                }
                next.extend(self.keep(verdict.during_recovery, |cuts| {
                    let mut token = state.token.clone();
                    token.cuts.extend(cuts);
                    token
                }));
            }
            states = next;
        }
        tick(self.seen.len(), known);
        Ok(())
    }
}

/// Judges in parallel; the verdicts are in the order of the states.
fn judge_in_parallel(states: &[State], options: &Options) -> Result<Vec<Verdict>, HarnessError> {
    const WORTH_A_THREAD: usize = 16;
    let jobs = options.jobs.min(states.len() / WORTH_A_THREAD).max(1);
    if jobs == 1 {
        return states.iter().map(|state| judge(state, options)).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Verdict, HarnessError>>>> =
        states.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((at, state)) =
                    states.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed))
                {
                    *slots[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(judge(state, options));
                }
            });
        }
    });
    slots.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Every single fault of single operations, each with the operation before it and a further append after it.
fn faulted_workloads() -> Result<Vec<(Workload, Plan)>, HarnessError> {
    let mut all = Vec::new();
    for (start, step) in [
        (Start::New, Step::Append),
        (Start::Session, Step::Append),
        (Start::Session, Step::Flush),
        (Start::TornTail, Step::Append),
    ] {
        let workload = Workload { start, steps: vec![step, Step::Append] };
        let clean = record_trace(&workload)?;
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

fn record_trace(workload: &Workload) -> Result<Vec<Event>, HarnessError> {
    let options = Options { profile: Profile::Process, ..Options::default() };
    Ok(record(workload, &Plan::default(), &options)?.trace)
}

// --- running a workload -------------------------------------------------------------------------------------------

/// A run of a workload, with the states that a cut in it may leave.
struct Recorded {
    visits: Visits,
    violations: Vec<Violation>,
    fired: Vec<u32>,
    trace: Vec<Event>,
}

#[derive(Default)]
struct Visits {
    cuts: usize,
    disks: usize,
    found: Vec<Visit>,
}

struct Visit {
    digest: u128,
    disk: Disk,
    history: Arc<History>,
    /// Which cut, and which of its disks.
    at: (usize, usize),
}

/// Cuts the power after each system call, on a copy.
struct Camera {
    profile: Profile,
    merge_strays: bool,
    disk: Disk,
    history: Arc<History>,
    visits: Visits,
    seen: HashSet<u128>,
}

impl Camera {
    fn new(disk: Disk, history: Arc<History>, options: &Options) -> Camera {
        Camera {
            profile: options.profile,
            merge_strays: options.merge_strays,
            disk,
            history,
            visits: Visits::default(),
            seen: HashSet::new(),
        }
    }

    /// Every disk that a cut now may leave.
    fn cut(&mut self) {
        let number = self.visits.cuts;
        self.visits.cuts += 1;
        for (at, outcome) in outcomes(&self.disk, self.profile, self.merge_strays).iter().enumerate() {
            self.visits.disks += 1;
            let disk = self.disk.after_cut(outcome);
            let digest = digest(&disk, &self.history);
            if self.seen.insert(digest) {
                let history = Arc::clone(&self.history);
                self.visits.found.push(Visit { digest, disk, history, at: (number, at) });
            }
        }
    }
}

fn outcomes(disk: &Disk, profile: Profile, merge_strays: bool) -> Vec<CutOutcome> {
    let unsettled = disk.unsettled();
    crash::outcomes(&unsettled, profile, |file| {
        if merge_strays && is_stray_only(&unsettled, file) { Contents::Nothing } else { Contents::All }
    })
}

/// Whether every name that the file may have after a cut is a temporary's, which no restart reads.
fn is_stray_only(unsettled: &Unsettled, file: NodeId) -> bool {
    let mut names = unsettled.directories.iter().flat_map(|dir| {
        let durable = dir.durable.iter().filter(move |(_, id)| *id == file).map(|(name, _)| name);
        let changed =
            dir.changes.iter().filter(move |change| change.now == Some(file)).map(|change| &change.name);
        durable.chain(changed)
    });
    let is_temporary =
        |name: &std::ffi::OsStr| matches!(role::of(name, SESSION.as_ref()), Role::Temporary | Role::Restore);
    let mut any = false;
    names.all(|name| {
        any = true;
        is_temporary(name)
    }) && any
}

/// A digest of what a restart can see and of what it must show.
///
/// What a recovery set aside counts by its content alone: the names are fresh each time, and a recovery that is cut
/// off again and again may leave any number of them.
fn digest(disk: &Disk, history: &History) -> u128 {
    let tree = disk.snapshot();
    let paths: Vec<&Path> = tree.paths().collect();
    let is_aside =
        |path: &Path| path.file_name().is_some_and(|name| role::of(name, SESSION.as_ref()) == Role::Aside);
    let mut hasher = Xxh3::new();
    let mut asides: Vec<&[u8]> = Vec::new();
    for (path, node) in tree.iter() {
        if is_aside(path) {
            asides.push(&node.bytes);
            continue;
        }
        let first_name = paths.get(node.identity).filter(|first| !is_aside(first));
        (path, node.kind, &node.bytes, &node.target, node.mode, first_name).hash(&mut hasher);
    }
    asides.sort_unstable();
    asides.dedup();
    (asides, history).hash(&mut hasher);
    hasher.digest128()
}

fn is_effect(event: &Event) -> bool {
    event.op.mutates() || event.op == Op::Fsync
}

/// Runs `workload` under `plan`, cutting after each call that changes anything, and after each answer.
fn record(workload: &Workload, plan: &Plan, options: &Options) -> Result<Recorded, HarnessError> {
    let disk = prepared(workload.start)?;
    let mut runner = Runner::new(disk, workload.start, plan, options);
    runner.run(workload);
    let camera = Arc::clone(&runner.camera);
    let recorded = Recorded {
        visits: std::mem::take(&mut lock(&camera).visits),
        violations: runner.violations,
        fired: runner.injector.fired(),
        trace: runner.injector.trace(),
    };
    Ok(recorded)
}

/// The disk before a workload, all of it durable.
fn prepared(start: Start) -> Result<Disk, HarnessError> {
    let world = World::new(Backend::Simulated, SESSION)?;
    let header =
        format!("{{\"type\":\"session\",\"version\":1,\"id\":\"session-1\",\"createdAt\":\"{TIME}\"}}\n");
    let entry = format!(
        "{{\"type\":\"entry\",\"version\":1,\"id\":\"e1\",\"parentId\":null,\"timestamp\":\"{TIME}\",\
         \"message\":{}}}\n",
        message(1, 0)
    );
    let torn = "{\"type\":\"entry\",\"version\":1,\"id\":\"e2\",\"parentId\":\"e1\",\"times";
    match start {
        Start::New => {}
        Start::Session => world.outsider().write_file(world.session(), (header + &entry).as_bytes())?,
        Start::TornTail => {
            world.outsider().write_file(world.session(), (header + &entry + torn).as_bytes())?
        }
    }
    let disk = world.disk().cloned().unwrap_or_default();
    if start != Start::New {
        world.outsider().chmod(world.session(), 0o600)?;
    }
    disk.sync_all();
    Ok(disk)
}

fn message(number: usize, failures: usize) -> String {
    format!("{{\"id\":\"m{number}-{failures}\",\"role\":\"user\",\"content\":\"what next?\"}}")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Whole between statements, so a panic of the store under test spoils nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Runner {
    world: World,
    injector: Injector,
    camera: Arc<Mutex<Camera>>,
    history: History,
    leaf: Option<String>,
    failures: usize,
    counts: Vec<(&'static str, u32)>,
    violations: Vec<Violation>,
}

impl Runner {
    fn new(disk: Disk, start: Start, plan: &Plan, options: &Options) -> Runner {
        let history = History { exists: start != Start::New, ..History::default() };
        let camera = Camera::new(disk.clone(), Arc::new(history.clone()), options);
        let camera = Arc::new(Mutex::new(camera));
        let injector = Injector::new(plan, |_| {});
        let eye = Arc::clone(&camera);
        injector.observe(move |event| {
            let mut eye = lock(&eye);
            if cannot_sync(event) && !eye.history.suspended {
                Arc::make_mut(&mut eye.history).suspended = true;
            }
            if is_effect(event) {
                eye.cut();
            }
        });
        Runner {
            world: World::on(disk, SESSION),
            injector,
            camera,
            history,
            leaf: None,
            failures: 0,
            counts: Vec::new(),
            violations: Vec::new(),
        }
    }

    fn run(&mut self, workload: &Workload) {
        let mut first = InProcess::new(self.process());
        if workload.start == Start::New {
            self.history.creating = true;
            self.share();
            let reply = self.call(&mut first, &self.create());
            self.history.creating = matches!(reply, Reply::Refused(_));
            self.history.exists |= matches!(reply, Reply::Ok(_));
            self.share();
        } else {
            self.open(&mut first, "s");
        }
        let _ = self.call(&mut first, &Call::Tree { store: "s".to_owned(), tree: "t".to_owned() });
        for step in &workload.steps {
            self.step(&mut first, *step);
        }
    }

    fn step(&mut self, first: &mut InProcess<WorldOps>, step: Step) {
        let root = self.history.acknowledged.first().map(|entry| entry.id.clone());
        match step {
            Step::Append => {
                let submission = self.submission(self.leaf.clone());
                let call = Call::TreeAppend { tree: "t".to_owned(), message: raw(&submission.message) };
                if let Some(entry) = self.submit(first, submission, &call) {
                    self.leaf = Some(entry.id);
                }
            }
            Step::Branch => {
                let submission = self.submission(root);
                let call = append("s", &submission);
                self.submit(first, submission, &call);
            }
            Step::Move => {
                let reply = self.call(first, &Call::MoveTo { tree: "t".to_owned(), entry_id: root.clone() });
                if matches!(reply, Reply::Ok(_)) {
                    self.leaf = root;
                }
            }
            Step::Flush => {
                let _ = self.call(first, &Call::Flush { store: "s".to_owned() });
            }
            Step::Reload => {
                self.open(first, "s");
                let _ = self.call(first, &Call::Tree { store: "s".to_owned(), tree: "t".to_owned() });
            }
            Step::Second => {
                let mut second = InProcess::new(self.process());
                self.open_beside(&mut second);
                let leaf = self.history.acknowledged.last().map(|entry| entry.id.clone());
                let submission = self.submission(leaf);
                let call = append("two", &submission);
                self.submit(&mut second, submission, &call);
            }
        }
    }

    /// Appends; the entry where it was acknowledged.
    fn submit(
        &mut self,
        subject: &mut InProcess<WorldOps>,
        submission: Submission,
        call: &Call,
    ) -> Option<EntryView> {
        self.history.unanswered = Some(submission.clone());
        self.share();
        let before = self.injector.calls();
        let reply = self.call(subject, call);
        self.history.unanswered = None;
        let acknowledged = match reply {
            Reply::Ok(answer) => {
                // What was in doubt is settled by the next generation that is durable.
                self.history.doubtful.clear();
                self.history.acknowledged.extend(answer.entry.clone());
                answer.entry
            }
            Reply::Refused(refusal) => {
                self.failures += 1;
                let events = self.injector.trace().split_off(before);
                if refusal.code == "SESSION_ROLLBACK_FAILED" || leaves_doubt(&events) {
                    self.history.doubtful.push(submission);
                }
                None
            }
            Reply::Unsupported(_) => None,
            Reply::Panicked(text) => {
                self.violated(Promise::TypedRefusal, format!("the append panicked: {text}"));
                None
            }
        };
        self.share();
        acknowledged
    }

    fn open(&mut self, subject: &mut InProcess<WorldOps>, store: &str) {
        let reply = self.call(subject, &self.load(store));
        if let Reply::Ok(answer) = reply {
            self.adopt(&answer.entries.unwrap_or_default(), "a load while the machine is up");
            self.leaf = self.history.acknowledged.last().map(|entry| entry.id.clone());
        }
    }

    fn open_beside(&mut self, subject: &mut InProcess<WorldOps>) {
        let reply = self.call(subject, &self.load("two"));
        if let Reply::Ok(answer) = reply {
            self.adopt(&answer.entries.unwrap_or_default(), "a load by another process");
        }
    }

    /// What a load shows while the machine is up is what is there from now on.
    fn adopt(&mut self, shown: &[EntryView], whence: &str) {
        let first_look = self.history.acknowledged.is_empty() && self.injector.calls() < FIRST_LOAD_CALLS;
        if !first_look && let Err(violation) = expected(&self.history, shown, whence) {
            self.violations.push(violation);
        }
        self.history.acknowledged = shown.to_vec();
        self.history.doubtful.clear();
        self.share();
    }

    fn call(&mut self, subject: &mut InProcess<WorldOps>, call: &Call) -> Reply {
        let name = call.name();
        let nth = match self.counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.counts.push((name, 1));
                1
            }
        };
        self.injector.begin(name, nth);
        subject.call(call)
    }

    fn submission(&self, parent_id: Option<String>) -> Submission {
        Submission { parent_id, message: message(self.history.acknowledged.len() + 1, self.failures) }
    }

    fn create(&self) -> Call {
        Call::Create {
            store: "s".to_owned(),
            path: self.world.session().to_string_lossy().into_owned(),
            session_id: Some("session-1".to_owned()),
            ids: self.ids(),
            clock: vec![TIME.to_owned(); 8],
        }
    }

    fn load(&self, store: &str) -> Call {
        load(&self.world.session().to_string_lossy(), store, self.ids())
    }

    /// Ids by place, so that equal histories are equal however they came about.
    fn ids(&self) -> Vec<String> {
        let count = self.history.acknowledged.len();
        (1..=8).map(|more| format!("e{}", count + more)).collect()
    }

    fn process(&mut self) -> WorldOps {
        let injector = self.injector.clone();
        self.world.process(&injector)
    }

    /// Tells the camera what the oracle knows now, and cuts.
    fn share(&mut self) {
        let mut camera = lock(&self.camera);
        self.history.suspended |= camera.history.suspended;
        camera.history = Arc::new(self.history.clone());
        camera.cut();
    }

    fn violated(&mut self, promise: Promise, evidence: String) {
        self.violations.push(Violation { promise, evidence });
    }
}

/// Whether the directory's file system says that it cannot sync names.
fn cannot_sync(event: &Event) -> bool {
    let unsupported = matches!(event.outcome, Outcome::Failed(Errno::EINVAL | Errno::ENOTSUP));
    event.op == Op::Fsync && event.target.from == Role::Root && unsupported
}

/// The calls of the very first load, before which nothing is known that it could contradict.
const FIRST_LOAD_CALLS: usize = 40;

/// Whether a failed append may still turn up after a cut: its rename was issued, and no directory fsync has succeeded
/// since the last change of a name (requirement C24).
fn leaves_doubt(events: &[Event]) -> bool {
    let position = |matches: &dyn Fn(&&Event) -> bool| events.iter().rposition(|event| matches(&event));
    let renamed = position(&|event| event.op == Op::Rename && event.target.to == Some(Role::Session));
    let synced = position(&|event| {
        event.op == Op::Fsync
            && event.target.from == Role::Root
            && event.outcome == Outcome::Done
            && event.fault.is_none()
    });
    match (renamed, synced) {
        (Some(renamed), Some(synced)) => synced < renamed,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn load(path: &str, store: &str, ids: Vec<String>) -> Call {
    Call::Load { store: store.to_owned(), path: path.to_owned(), ids, clock: vec![TIME.to_owned(); 8] }
}

fn append(store: &str, submission: &Submission) -> Call {
    Call::Append {
        store: store.to_owned(),
        parent_id: submission.parent_id.clone(),
        message: raw(&submission.message),
    }
}

fn raw(message: &str) -> Box<serde_json::value::RawValue> {
    serde_json::value::RawValue::from_string(message.to_owned())
        .unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned())
}

// --- judging a state ----------------------------------------------------------------------------------------------

#[derive(Default)]
struct Verdict {
    violations: Vec<Violation>,
    recovered: bool,
    during_recovery: Visits,
}

impl Verdict {
    fn broke(&mut self, promise: Promise, evidence: String) {
        self.violations.push(Violation { promise, evidence });
    }
}

const PATH: &str = "/sessions/session.jsonl";
/// The process that starts after the cut.
const RESTARTED: u32 = 500;

/// Restarts the store on the state, recovers where it refuses, appends, cuts again and loads.
fn judge(state: &State, options: &Options) -> Result<Verdict, HarnessError> {
    let mut verdict = Verdict::default();
    let disk = state.disk.fork();
    let mut subject = InProcess::new(disk.process(RESTARTED));
    let mut reply = subject.call(&load(PATH, "s", restart_ids()));
    if is_refused_by_marker(&reply) {
        verdict.during_recovery = record_recovery(state, options);
        match recover::recover_with(disk.process(RESTARTED), PATH, None) {
            Ok(_) => verdict.recovered = true,
            Err(error) => verdict.broke(Promise::AcknowledgedSurvive, format!("recovery refuses: {error}")),
        }
        check_second_recovery(&disk, &mut verdict);
        reply = subject.call(&load(PATH, "s", restart_ids()));
    }
    match reply {
        Reply::Ok(answer) => {
            let shown = answer.entries.unwrap_or_default();
            if !state.history.exists && !state.history.creating {
                verdict.broke(Promise::NothingInvented, "a session is there that nobody created".to_owned());
            }
            match expected(&state.history, &shown, "a restart") {
                Ok(()) => go_on(&disk, subject, &shown, options, &mut verdict),
                Err(violation) => verdict.violations.push(violation),
            }
        }
        Reply::Refused(refusal) if !state.history.exists || state.history.suspended => {
            if !is_absent(&disk) {
                let text =
                    format!("a cut within a create leaves a file that does not load: {}", refusal.message);
                verdict.broke(Promise::AcknowledgedSurvive, text);
            }
        }
        other => verdict.broke(Promise::AcknowledgedSurvive, format!("the restart refuses: {other:?}")),
    }
    Ok(verdict)
}

fn restart_ids() -> Vec<String> {
    vec!["after-1".to_owned()]
}

fn is_refused_by_marker(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(refusal) if refusal.code == "SESSION_ROLLBACK_FAILED")
}

fn is_absent(disk: &Disk) -> bool {
    !disk.exists(PATH)
}

/// Recovering twice is recovering once.
fn check_second_recovery(disk: &Disk, verdict: &mut Verdict) {
    let before = disk.snapshot();
    match recover::recover_with(disk.process(RESTARTED), PATH, None) {
        Ok(again) if again.did.is_empty() => {}
        other => {
            verdict.broke(Promise::AcknowledgedSurvive, format!("recovering again does something: {other:?}"))
        }
    }
    if disk.snapshot() != before {
        verdict.broke(Promise::FailedMeansOld, "recovering again changes the disk".to_owned());
    }
}

/// Everything that cuts within a recovery may leave.
fn record_recovery(state: &State, options: &Options) -> Visits {
    let disk = state.disk.fork();
    let camera = Arc::new(Mutex::new(Camera::new(disk.clone(), Arc::clone(&state.history), options)));
    let eye = Arc::clone(&camera);
    let injector = Injector::watching();
    injector.observe(move |event| {
        if is_effect(event) {
            lock(&eye).cut();
        }
    });
    let ops = World::on(disk, SESSION).process(&injector);
    let _ = recover::recover_with(ops, PATH, None);
    std::mem::take(&mut lock(&camera).visits)
}

/// An append after the restart is acknowledged and survives another cut, whatever it loses.
fn go_on(
    disk: &Disk,
    mut subject: InProcess<crate::disk::Process>,
    shown: &[EntryView],
    options: &Options,
    verdict: &mut Verdict,
) {
    let submission = Submission {
        parent_id: shown.last().map(|entry| entry.id.clone()),
        message: message(shown.len() + 1, 0),
    };
    let entry = match subject.call(&append("s", &submission)) {
        Reply::Ok(answer) => answer.entry,
        other => {
            return verdict
                .broke(Promise::GoesOnAfterwards, format!("the append after the restart: {other:?}"));
        }
    };
    for outcome in outcomes(disk, options.profile, options.merge_strays) {
        let after = disk.after_cut(&outcome);
        let again = InProcess::new(after.process(RESTARTED + 1)).call(&load(PATH, "s", Vec::new()));
        let Reply::Ok(answer) = &again else {
            return verdict
                .broke(Promise::GoesOnAfterwards, format!("the restart after that append: {again:?}"));
        };
        let entries = answer.entries.as_deref().unwrap_or_default();
        if entries.len() != shown.len() + 1
            || entries[..shown.len()] != *shown
            || entries.last() != entry.as_ref()
        {
            let text = format!(
                "after that append and a cut {} entries are there, expected {}",
                entries.len(),
                shown.len() + 1
            );
            return verdict.broke(Promise::GoesOnAfterwards, text);
        }
    }
}

/// Acknowledged entries in order; then what is in doubt; then the unanswered submission. Nothing else.
fn expected(history: &History, shown: &[EntryView], whence: &str) -> Result<(), Violation> {
    let acknowledged = &history.acknowledged;
    let kept = shown.iter().zip(acknowledged).take_while(|(one, other)| one == other).count();
    if history.suspended && kept == shown.len() {
        return Ok(());
    }
    if kept < acknowledged.len() {
        let evidence = format!(
            "{whence} shows {} entries, of which {kept} are as acknowledged; {} were acknowledged",
            shown.len(),
            acknowledged.len()
        );
        return Err(Violation { promise: Promise::AcknowledgedSurvive, evidence });
    }
    let mut allowed = history.doubtful.iter().chain(&history.unanswered);
    for entry in &shown[kept..] {
        if !allowed.any(|it| it.parent_id == entry.parent_id && it.message == entry.message) {
            let mut evidence = format!("{whence} shows an entry that nobody is waiting for: ");
            let _ = write!(evidence, "{} below {:?}", entry.id, entry.parent_id);
            return Err(Violation { promise: Promise::NothingInvented, evidence });
        }
    }
    Ok(())
}
