//! Running a workload with a power cut, on a copy, after each system call that changes anything.

use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use session_tree::Errno;
use xxhash_rust::xxh3::Xxh3;

use super::judge::expected;
use super::{History, Options, SESSION, Submission, TIME};
use crate::call::{Call, EntryView, Refusal, Reply, place};
use crate::crash::{self, Assumption, Contents};
use crate::disk::{Disk, NodeId, Unsettled};
use crate::fault::{Op, Plan, Role};
use crate::inject::{Event, Injector, Outcome};
use crate::promise::{Promise, Violation};
use crate::role;
use crate::scenario::HarnessError;
use crate::stale::StaleOps;
use crate::subject::{Candidate, InProcess, Subject};
use crate::workload::{Start, Step, Workload};
use crate::world::{Backend, World, WorldOps};

/// A run of a workload, with the states that a cut in it may leave.
pub(super) struct Recorded {
    pub(super) visits: Visits,
    pub(super) violations: Vec<Violation>,
    pub(super) fired: Vec<u32>,
    pub(super) trace: Vec<Event>,
}

#[derive(Default)]
pub(super) struct Visits {
    /// For each cut, how many system calls were made before it.
    pub(super) moments: Vec<usize>,
    pub(super) disks: usize,
    pub(super) found: Vec<Visit>,
}

pub(super) struct Visit {
    pub(super) digest: u128,
    pub(super) disk: Disk,
    pub(super) history: Arc<History>,
    /// Which cut, and which of its disks.
    pub(super) at: (usize, usize),
}

/// Cuts the power after each system call, on a copy.
pub(super) struct Camera {
    options: Options,
    disk: Disk,
    history: Arc<History>,
    pub(super) visits: Visits,
    seen: HashSet<u128>,
    /// System calls so far.
    calls: usize,
}

impl Camera {
    pub(super) fn new(disk: Disk, history: Arc<History>, options: &Options) -> Camera {
        Camera { options: *options, disk, history, visits: Visits::default(), seen: HashSet::new(), calls: 0 }
    }

    /// Takes note of a system call, and cuts the power after it where it changed anything.
    pub(super) fn see(&mut self, event: &Event) {
        self.calls += 1;
        if cannot_sync(event) && !self.history.suspended {
            Arc::make_mut(&mut self.history).suspended = true;
        }
        if is_effect(event) {
            self.cut();
        }
    }

    /// Every disk that a cut now may leave.
    fn cut(&mut self) {
        let number = self.visits.moments.len();
        self.visits.moments.push(self.calls);
        for (at, disk) in disks_after_cut(&self.disk, &self.options).enumerate() {
            self.visits.disks += 1;
            let digest = digest(&disk, &self.history);
            if self.seen.insert(digest) || self.options.keeps_equal {
                let history = Arc::clone(&self.history);
                self.visits.found.push(Visit { digest, disk, history, at: (number, at) });
            }
        }
    }
}

pub(super) fn disks_after_cut<'a>(disk: &'a Disk, options: &Options) -> impl Iterator<Item = Disk> + use<'a> {
    let merge_strays = options.merge_strays;
    crash::disks(disk, options.profile, options.off, move |unsettled, file| {
        if merge_strays && is_stray_only(unsettled, file) { Contents::Nothing } else { Contents::All }
    })
}

/// Whether every name that the file may have after a cut is a temporary's, which no restart reads.
pub(super) fn is_stray_only(unsettled: &Unsettled, file: NodeId) -> bool {
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
pub(super) fn digest(disk: &Disk, history: &History) -> u128 {
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

pub(super) fn is_effect(event: &Event) -> bool {
    event.op.mutates() || event.op == Op::Fsync
}

/// Runs `workload` under `plan`, cutting after each call that changes anything, and after each answer.
pub(super) fn record(workload: &Workload, plan: &Plan, options: &Options) -> Result<Recorded, HarnessError> {
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
pub(super) fn prepared(start: Start) -> Result<Disk, HarnessError> {
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
            world.outsider().write_file(world.session(), (header + &entry + torn).as_bytes())?;
        }
    }
    let disk = world.disk().cloned().unwrap_or_default();
    if start != Start::New {
        world.outsider().chmod(world.session(), 0o600)?;
    }
    disk.sync_all();
    Ok(disk)
}

/// The entry that a prepared session holds.
fn first_entry() -> EntryView {
    EntryView { id: "e1".to_owned(), parent_id: None, timestamp: TIME.to_owned(), message: message(1, 0) }
}

pub(super) fn message(number: usize, failures: usize) -> String {
    format!("{{\"id\":\"m{number}-{failures}\",\"role\":\"user\",\"content\":\"what next?\"}}")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Whole between statements, so a panic of the store under test spoils nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Runner {
    candidate: &'static dyn Candidate,
    world: World,
    injector: Injector,
    camera: Arc<Mutex<Camera>>,
    history: History,
    leaf: Option<String>,
    failures: usize,
    counts: Vec<(&'static str, u32)>,
    violations: Vec<Violation>,
    /// The disk before the workload, where a second process does not see what became of it since.
    stale: Option<Disk>,
}

impl Runner {
    fn new(disk: Disk, start: Start, plan: &Plan, options: &Options) -> Runner {
        let exists = start != Start::New;
        let acknowledged = if exists { vec![first_entry()] } else { Vec::new() };
        let history = History { exists, acknowledged, ..History::default() };
        let camera = Camera::new(disk.clone(), Arc::new(history.clone()), options);
        let camera = Arc::new(Mutex::new(camera));
        let injector = Injector::new(plan, |_| {});
        let stale = (options.off == Some(Assumption::OneView)).then(|| disk.fork());
        let eye = Arc::clone(&camera);
        injector.observe(move |event| lock(&eye).see(event));
        Runner {
            candidate: options.candidate,
            world: World::on(disk, SESSION),
            injector,
            camera,
            history,
            leaf: None,
            failures: 0,
            counts: Vec::new(),
            violations: Vec::new(),
            stale,
        }
    }

    fn run(&mut self, workload: &Workload) {
        let mut first = self.candidate.start(self.process());
        let first = first.as_mut();
        if workload.start == Start::New {
            self.history.creating = true;
            self.share();
            let before = self.injector.calls();
            let reply = self.call(first, &self.create());
            // A create that failed may turn up only where its clean-up could not be made durable, or not be done.
            let in_doubt = leaves_doubt(&self.injector.trace().split_off(before))
                || self.world.outsider().exists(self.world.session());
            self.history.creating = matches!(reply, Reply::Refused(_)) && in_doubt;
            self.history.exists |= matches!(reply, Reply::Ok(_));
            self.share();
        } else {
            self.open(first, "s");
        }
        self.open_tree(first);
        for step in &workload.steps {
            self.step(first, *step);
        }
    }

    fn step(&mut self, first: &mut dyn Subject, step: Step) {
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
                self.open_tree(first);
            }
            Step::Second => {
                let mut second = self.second();
                let second = second.as_mut();
                let leaf = self.open_beside(second);
                let submission = self.submission(leaf);
                let call = append("two", &submission);
                self.submit(second, submission, &call);
            }
        }
    }

    /// Appends; the entry where it was acknowledged.
    fn submit(
        &mut self,
        subject: &mut dyn Subject,
        submission: Submission,
        call: &Call,
    ) -> Option<EntryView> {
        self.history.unanswered = Some(submission.clone());
        self.share();
        let before = self.injector.calls();
        let reply = self.call(subject, call);
        self.history.unanswered = None;
        let events = self.injector.trace().split_off(before);
        let acknowledged = match reply {
            Reply::Ok(answer) => {
                self.check_acknowledged(&submission, answer.entry.as_ref());
                // What was in doubt is settled by the next generation that is durable.
                self.history.suspended |= lock(&self.camera).history.suspended;
                if !self.history.suspended {
                    self.history.doubtful.clear();
                }
                self.history.acknowledged.extend(answer.entry.clone());
                answer.entry
            }
            Reply::Refused(refusal) => {
                self.failures += 1;
                self.check_refusal(&refusal, &events);
                if refusal.code == "SESSION_ROLLBACK_FAILED" || leaves_doubt(&events) {
                    self.history.doubtful.push(submission);
                }
                None
            }
            Reply::Unsupported(_) => None,
            other => {
                self.violated(Promise::TypedRefusal, format!("the append was not answered: {other}"));
                None
            }
        };
        self.share();
        acknowledged
    }

    /// What is acknowledged is what was submitted.
    fn check_acknowledged(&mut self, submission: &Submission, entry: Option<&EntryView>) {
        let is_it = |entry: &EntryView| {
            entry.parent_id == submission.parent_id && entry.message == submission.message
        };
        if !entry.is_some_and(is_it) {
            let text = format!(
                "{} {} was submitted and {} acknowledged",
                submission.message,
                place(submission.parent_id.as_deref()),
                entry.map_or("nothing".to_owned(), ToString::to_string)
            );
            self.violated(Promise::NothingInvented, text);
        }
    }

    /// A store whose generation another process has replaced since must refuse; nothing else may stop an append in
    /// which nothing goes wrong, unless an earlier failure left a store or a marker in doubt, or no store at all.
    fn check_refusal(&mut self, refusal: &Refusal, events: &[Event]) {
        let strikes = events.iter().any(|event| event.fault.is_some());
        let is_planned = !self.injector.fired().is_empty();
        let is_right = match refusal.code.as_str() {
            "SESSION_FILE_CHANGED" => true,
            "SESSION_ROLLBACK_FAILED" | "SUBJECT_USAGE" => is_planned,
            _ => strikes,
        };
        if !is_right {
            let text = format!("nothing goes wrong, and an append is refused: {refusal}");
            self.violated(Promise::RetrySucceeds, text);
        }
    }

    fn open(&mut self, subject: &mut dyn Subject, store: &str) {
        let reply = self.load_reading_only(subject, store);
        if let Reply::Ok(answer) = reply {
            self.adopt(&answer.entries.unwrap_or_default(), "a load while the machine is up");
        }
    }

    /// Loads; a load changes nothing on disk.
    fn load_reading_only(&mut self, subject: &mut dyn Subject, store: &str) -> Reply {
        let before = self.injector.calls();
        let reply = self.call(subject, &self.load(store));
        let events = self.injector.trace().split_off(before);
        if let Some(event) = events.iter().find(|event| event.op.mutates()) {
            self.violated(Promise::LoadReadsOnly, format!("a load made {event}"));
        }
        reply
    }

    /// A fresh tree, also over the store of before where a load failed; the leaf is what it answers.
    fn open_tree(&mut self, subject: &mut dyn Subject) {
        let reply = self.call(subject, &Call::Tree { store: "s".to_owned(), tree: "t".to_owned() });
        if let Reply::Ok(answer) = reply {
            self.leaf = answer.leaf.flatten();
        }
    }

    /// The leaf that the other process sees.
    fn open_beside(&mut self, subject: &mut dyn Subject) -> Option<String> {
        let Reply::Ok(answer) = self.load_reading_only(subject, "two") else { return None };
        let shown = answer.entries.unwrap_or_default();
        self.adopt(&shown, "a load by another process");
        shown.last().map(|entry| entry.id.clone())
    }

    /// What a load shows while the machine is up is what is there from now on, unless it breaks a promise: then what
    /// was acknowledged is still owed.
    fn adopt(&mut self, shown: &[EntryView], whence: &str) {
        if let Err(violation) = expected(&self.history, shown, whence) {
            self.violations.push(violation);
            return;
        }
        self.history.acknowledged = shown.to_vec();
        // What is in doubt stays so until a commit succeeds: that it is seen, or not, makes nothing durable.
        self.share();
    }

    fn call(&mut self, subject: &mut dyn Subject, call: &Call) -> Reply {
        let name = call.name();
        let known = self.counts.iter().position(|(known, _)| *known == name);
        let nth = known.unwrap_or(self.counts.len());
        if known.is_none() {
            self.counts.push((name, 0));
        }
        self.counts[nth].1 += 1;
        let nth = self.counts[nth].1;
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

    fn second(&mut self) -> Box<dyn Subject> {
        let ops = self.process();
        match &self.stale {
            Some(earlier) => Box::new(InProcess::new(StaleOps::new(earlier, ops))),
            None => self.candidate.start(ops),
        }
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
pub(super) fn cannot_sync(event: &Event) -> bool {
    let unsupported = matches!(event.outcome, Outcome::Failed(Errno::EINVAL | Errno::ENOTSUP));
    event.op == Op::Fsync && event.target.from == Role::Root && unsupported
}

/// Whether a failed append or create may still turn up after a cut: since the path was last changed a directory fsync
/// was tried, and none has succeeded (requirement C24).
///
/// A store that does not even try to sync is given no such doubt: then what failed must not turn up.
pub(super) fn leaves_doubt(events: &[Event]) -> bool {
    let changes_the_path = |event: &&Event| {
        event.op == Op::Rename && event.target.to == Some(Role::Session)
            || event.op == Op::Link && event.target.to == Some(Role::Session)
            || event.op == Op::Unlink && event.target.from == Role::Session
    };
    let Some(changed) = events.iter().rposition(|event| changes_the_path(&event)) else { return false };
    let syncs =
        events[changed..].iter().filter(|event| event.op == Op::Fsync && event.target.from == Role::Root);
    let outcomes: Vec<bool> =
        syncs.map(|event| event.outcome == Outcome::Done && event.fault.is_none()).collect();
    !outcomes.is_empty() && !outcomes.contains(&true)
}

pub(super) fn load(path: &str, store: &str, ids: Vec<String>) -> Call {
    // A time is drawn after an id, so no more of them are.
    let clock = vec![TIME.to_owned(); ids.len()];
    Call::Load { store: store.to_owned(), path: path.to_owned(), ids, clock }
}

pub(super) fn append(store: &str, submission: &Submission) -> Call {
    Call::Append {
        store: store.to_owned(),
        parent_id: submission.parent_id.clone(),
        message: raw(&submission.message),
    }
}

pub(super) fn raw(message: &str) -> Box<serde_json::value::RawValue> {
    serde_json::value::RawValue::from_string(message.to_owned())
        .unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned())
}
