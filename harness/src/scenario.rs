//! Small histories of a session store, each run under a fault plan and judged afterwards.
//!
//! A run calls the store, asks again while the faults may still strike, asks once more when they are lifted, and then
//! starts a second process that loads, appends and loads again. The oracle's list of acknowledged entries comes from
//! the store's answers alone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use session_tree::Errno;
use session_tree::file_ops::FileKind;

use crate::call::{Call, EntryView, Refusal, Reply};
use crate::fault::{Actor, Kind, Op, Plan, Role};
use crate::inject::{Event, Injector, Outcome};
use crate::model;
use crate::outsider::{self, NEIGHBOUR, STRANGERS_FILE, STRANGERS_SESSION, Seen};
use crate::promise::{Promise, Violation};
use crate::role;
use crate::stage;
use crate::subject::{InProcess, Subject};
use crate::world::{Backend, World, WorldOps};

/// Which call of a store is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Creating a session.
    Create,
    /// Loading one.
    Load,
    /// Appending to one.
    Append,
    /// Flushing one.
    Flush,
}

impl Action {
    /// The call's name in the protocol.
    pub const fn call(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Load => "load",
            Action::Append => "append",
            Action::Flush => "flush",
        }
    }
}

/// A small history.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name in case ids.
    pub name: &'static str,
    /// What is disturbed.
    pub action: Action,
    /// The session file at the start; none where there is none.
    pub session: Option<&'static [u8]>,
    /// Faults that every run of this scenario has, before the planned ones.
    pub base: &'static str,
}

/// What one run showed.
#[derive(Debug, Clone)]
pub struct Run {
    /// Every system call of the first process from the disturbed call on.
    pub trace: Vec<Event>,
    /// How often each fault struck, the scenario's own first.
    pub fired: Vec<u32>,
    /// The answers in order, with the names of the calls.
    pub replies: Vec<(String, Reply)>,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    /// Whether somebody's file was lost between the last look at its name and the call that used it, which no store
    /// can prevent.
    pub race_window: bool,
}

const SESSION: &str = "session.jsonl";
const NEIGHBOURS: [(&str, &[u8]); 3] = [
    (NEIGHBOUR, b"not a session\n"),
    ("other.jsonl", STRANGERS_SESSION),
    ("other.jsonl.pify-session-1-00000000-0000-0000-0000-000000000001", b"another session's temporary\n"),
];

/// Runs `scenario` with its own faults and those of `plan`.
///
/// # Errors
/// Where the harness itself could not do its work: no temporary directory, or a plan that does not parse.
pub fn run(backend: Backend, scenario: &Scenario, plan: &Plan) -> Result<Run, HarnessError> {
    let mut all: Plan = scenario.base.parse()?;
    let own_faults = all.0.len();
    all.0.extend(plan.0.iter().cloned());
    Case::new(backend, scenario, all, own_faults)?.run()
}

/// The harness could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The operating system refused something that the harness itself needs.
    #[error("the harness could not prepare or inspect a case: {0}")]
    Io(#[from] std::io::Error),
    /// A plan does not parse.
    #[error(transparent)]
    Plan(#[from] crate::fault::PlanError),
    /// A session that ships with the harness does not load.
    #[error("a session that the harness starts from does not load: {0}")]
    Session(String),
}

struct Case<'a> {
    scenario: &'a Scenario,
    plan: Plan,
    world: World,
    injector: Injector,
    history: History,
    violations: Vec<Violation>,
    replies: Vec<(String, Reply)>,
    race_window: bool,
    submitted: u32,
    /// How many faults of the plan are the scenario's own, which a planned one may keep from striking.
    own_faults: usize,
}

/// The oracle's own account of what was acknowledged and what is in doubt.
#[derive(Debug, Clone, Default)]
struct History {
    /// Acknowledged entries, in order.
    acknowledged: Vec<EntryView>,
    /// Submissions whose outcome a cold load may show either way: unanswered ones, and ones answered with
    /// `SESSION_ROLLBACK_FAILED`.
    doubtful: Vec<Submission>,
    /// Whether the file is there for the history to be read from.
    exists: bool,
    /// Whether a marker may be there, so that a cold load may refuse.
    may_refuse: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Submission {
    parent_id: Option<String>,
    message: String,
}

impl<'a> Case<'a> {
    fn new(
        backend: Backend,
        scenario: &'a Scenario,
        plan: Plan,
        own_faults: usize,
    ) -> Result<Case<'a>, HarnessError> {
        let world = World::new(backend, SESSION)?;
        for (name, bytes) in NEIGHBOURS {
            world.outsider().write_file(&world.beside(name), bytes)?;
        }
        let mut history = History::default();
        if let Some(bytes) = scenario.session {
            world.outsider().write_file(world.session(), bytes)?;
            world.outsider().chmod(world.session(), 0o600)?;
            history.acknowledged =
                entries_of(bytes).ok_or_else(|| HarnessError::Session(scenario.name.to_owned()))?.to_vec();
            history.exists = true;
        }
        let (outsider, session) = (world.outsider().clone(), world.session().to_owned());
        let injector = Injector::new(&plan, move |actor| outsider.act(actor, &session));
        Ok(Case {
            scenario,
            plan,
            world,
            injector,
            history,
            violations: Vec::new(),
            replies: Vec::new(),
            race_window: false,
            submitted: 0,
            own_faults,
        })
    }

    fn run(mut self) -> Result<Run, HarnessError> {
        let injector = self.injector.clone();
        let ops = self.world.process(&injector);
        let mut subject = InProcess::new(ops.clone());
        if matches!(self.scenario.action, Action::Append | Action::Flush) {
            let reply = subject.call(&self.load("s"));
            self.expect_load(&reply);
        }
        let first_event = injector.calls();

        let mut asked = Asked::Go { poisoned: false };
        for nth in 1..=3 {
            if nth == 3 {
                injector.lift();
            }
            asked = self.ask(&mut subject, nth, asked)?;
            if asked == Asked::Killed {
                break;
            }
        }
        let trace: Vec<Event> = injector.trace().split_off(first_event);
        injector.lift();
        self.world.kill(&ops);
        drop(subject);
        self.check_fired(&trace);
        self.cold(&trace)?;
        Ok(Run {
            trace,
            fired: injector.fired(),
            replies: self.replies,
            violations: self.violations,
            race_window: self.race_window,
        })
    }

    /// One call of the disturbed kind, with everything that must hold right after it.
    fn ask(
        &mut self,
        subject: &mut InProcess<WorldOps>,
        nth: u32,
        before: Asked,
    ) -> Result<Asked, HarnessError> {
        let was_poisoned = before == Asked::Go { poisoned: true };
        let view_before = self.view()?;
        let submission = self.next_submission();
        let call = self.call(&submission);
        self.injector.begin(call.name(), nth);
        let first = self.injector.calls();
        let reply = subject.call(&call);
        let events: Vec<Event> = self.injector.trace().split_off(first);
        self.replies.push((format!("{}#{nth}", call.name()), reply.clone()));
        if self.injector.killed() {
            self.killed(submission);
            return Ok(Asked::Killed);
        }
        let view_after = self.view()?;
        let moment = Moment {
            call: call.name(),
            nth,
            submission,
            reply: &reply,
            events: &events,
            before: &view_before,
            after: &view_after,
            was_poisoned,
            actor: actor_in(&self.plan, &events),
        };
        self.judge(subject, &moment)?;
        Ok(Asked::Go {
            poisoned: was_poisoned || matches!(&reply, Reply::Refused(refusal) if refusal.poisoned),
        })
    }

    /// The process died within a call: its submission may show or not, and a marker may be there.
    fn killed(&mut self, submission: Option<Submission>) {
        self.history.doubtful.extend(submission);
        self.history.may_refuse = true;
    }

    fn judge(&mut self, subject: &mut InProcess<WorldOps>, moment: &Moment<'_>) -> Result<(), HarnessError> {
        self.check_typed(moment);
        match moment.reply {
            Reply::Ok(answer) => {
                if moment.was_poisoned {
                    self.violated(Promise::PoisonHolds, "a poisoned store answered with success".to_owned());
                }
                self.acknowledged(moment, answer.entry.as_ref());
            }
            Reply::Refused(refusal) => self.refused(moment, refusal),
            Reply::Unsupported(_) | Reply::Panicked(_) => {}
        }
        self.check_cause(moment);
        self.check_retry(moment);
        self.check_leaks(moment);
        self.check_memory(subject, moment);
        self.check_directory(moment)?;
        self.check_poison(moment);
        self.check_load_is_read_only(moment);
        Ok(())
    }

    fn acknowledged(&mut self, moment: &Moment<'_>, entry: Option<&EntryView>) {
        match self.scenario.action {
            Action::Append => match (entry, &moment.submission) {
                (Some(entry), Some(submission))
                    if entry.parent_id == submission.parent_id && entry.message == submission.message =>
                {
                    self.history.acknowledged.push(entry.clone());
                }
                _ => self.violated(
                    Promise::NothingInvented,
                    format!(
                        "the acknowledged entry {entry:?} is not the one submitted, {:?}",
                        moment.submission
                    ),
                ),
            },
            Action::Load => {
                if let (Reply::Ok(answer), None) = (moment.reply, actor_ever(&self.plan)) {
                    self.expect_entries(
                        answer.entries.as_deref().unwrap_or_default(),
                        "a load in the same process",
                    );
                }
            }
            Action::Create | Action::Flush => {}
        }
        self.history.exists = true;
    }

    fn refused(&mut self, moment: &Moment<'_>, refusal: &Refusal) {
        let in_doubt = refusal.code == "SESSION_ROLLBACK_FAILED";
        if in_doubt {
            self.history.may_refuse = true;
            if !moment.was_poisoned {
                self.history.doubtful.extend(moment.submission.clone());
            }
        }
        if moment.actor.is_some() || actor_ever(&self.plan).is_some() {
            return;
        }
        if !in_doubt {
            self.check_old_generation(moment);
        }
    }

    /// After an error that is not in doubt the directory is what it was: the same bytes under the path, no marker.
    fn check_old_generation(&mut self, moment: &Moment<'_>) {
        let (before, after) = (session_bytes(moment.before), session_bytes(moment.after));
        let create_left_it =
            self.scenario.action == Action::Create && cleanup_failed(moment.events, Role::Session);
        if before != after && !create_left_it {
            self.violated(
                Promise::FailedMeansOld,
                format!("{} answered an error, yet the session file changed", moment.name()),
            );
        }
        if create_left_it && before.is_none() && after.is_some() {
            self.history.exists = true;
        }
        if marker_in(moment.after).is_some() && marker_in(moment.before).is_none() {
            self.violated(
                Promise::FailedMeansOld,
                format!("{} answered an error and left a marker", moment.name()),
            );
        }
    }

    fn check_typed(&mut self, moment: &Moment<'_>) {
        match moment.reply {
            Reply::Panicked(text) => {
                self.violated(Promise::TypedRefusal, format!("{} panicked: {text}", moment.name()))
            }
            Reply::Refused(refusal) if refusal.code.parse::<session_tree::Code>().is_err() => self.violated(
                Promise::TypedRefusal,
                format!("{} refused with {}, which is no code of the contract", moment.name(), refusal.code),
            ),
            _ => {}
        }
    }

    /// An I/O error keeps the number that struck, and the stage; and what the protocol cannot do without is not
    /// swallowed. Only where nothing but errors of system calls went wrong, in this very call.
    fn check_cause(&mut self, moment: &Moment<'_>) {
        if actor_ever(&self.plan).is_some() || moment.was_poisoned {
            return;
        }
        let struck: Vec<&Event> = moment.events.iter().filter(|event| event.fault.is_some()).collect();
        let Some(first) = struck.first() else { return };
        match moment.reply {
            Reply::Refused(refusal) if refusal.code == "SESSION_IO" => {
                // An interrupted call that is repeated may fail with another number, because it had its effect.
                let numbers: Vec<String> =
                    moment.events.iter().filter_map(|event| number(event, &self.plan)).collect();
                if !refusal.errno.as_ref().is_some_and(|errno| numbers.contains(errno)) {
                    self.violated(
                        Promise::CauseIsKept,
                        format!("{} says {:?} where {numbers:?} struck", moment.name(), refusal.errno),
                    );
                }
                self.check_stage(moment, first, refusal);
            }
            Reply::Ok(_) if struck.iter().any(|event| is_indispensable(event)) => self.violated(
                Promise::NoHiddenFailure,
                format!("{} answered with success although {first} failed", moment.name()),
            ),
            _ => {}
        }
    }

    /// The stage of an I/O error is one of those in which a fault struck, told from the calls before it.
    fn check_stage(&mut self, moment: &Moment<'_>, first: &Event, refusal: &Refusal) {
        let stages = stage::of_clean_trace(self.scenario.action.call(), moment.events);
        let struck: Vec<&'static str> = moment
            .events
            .iter()
            .zip(stages)
            .filter(|(event, _)| event.fault.is_some())
            .filter_map(|(_, stage)| stage.map(session_tree::Stage::id))
            .collect();
        if !refusal.stage.as_deref().is_some_and(|stage| struck.contains(&stage)) {
            self.violated(
                Promise::CauseIsKept,
                format!(
                    "{} names stage {:?} where {first} struck in {struck:?}",
                    moment.name(),
                    refusal.stage
                ),
            );
        }
    }

    /// With the faults lifted, a store that is not poisoned works again.
    fn check_retry(&mut self, moment: &Moment<'_>) {
        if moment.nth < 3 || moment.was_poisoned || actor_ever(&self.plan).is_some() {
            return;
        }
        let already_there = self.scenario.action == Action::Create && self.history.exists;
        let marker_is_there = self.history.may_refuse && marker_in(moment.before).is_some();
        if let Reply::Refused(refusal) = moment.reply
            && !already_there
            && !marker_is_there
        {
            self.violated(
                Promise::RetrySucceeds,
                format!(
                    "with nothing going wrong any more, {} was refused: {}",
                    moment.name(),
                    refusal.message
                ),
            );
        }
    }

    fn check_leaks(&mut self, moment: &Moment<'_>) {
        let open = self.injector.open_descriptors();
        let stores = match self.scenario.action {
            Action::Append | Action::Flush => 1,
            Action::Create | Action::Load => {
                usize::from(self.replies.iter().any(|(_, reply)| matches!(reply, Reply::Ok(_))))
            }
        };
        if open != 2 * stores {
            self.violated(
                Promise::NothingLeaks,
                format!("{} left {open} descriptors open, expected {}", moment.name(), 2 * stores),
            );
        }
        let locks = self.world.held_locks();
        if locks > 0 {
            self.violated(Promise::NothingLeaks, format!("{} left {locks} locks held", moment.name()));
        }
    }

    fn check_memory(&mut self, subject: &mut InProcess<WorldOps>, moment: &Moment<'_>) {
        if !matches!(self.scenario.action, Action::Append | Action::Flush) {
            return;
        }
        let calls = self.injector.calls();
        let Reply::Ok(answer) = subject.call(&Call::Entries { store: "s".to_owned() }) else {
            return self.violated(Promise::MemoryAgrees, "the store does not show its entries".to_owned());
        };
        if self.injector.calls() != calls {
            self.violated(Promise::MemoryAgrees, "reading the entries touched the disk".to_owned());
        }
        let shown = answer.entries.unwrap_or_default();
        if shown != self.history.acknowledged {
            self.violated(
                Promise::MemoryAgrees,
                format!(
                    "after {} memory shows {}",
                    moment.name(),
                    difference(&shown, &self.history.acknowledged)
                ),
            );
        }
    }

    /// Nobody else's file was touched, no temporary stayed, the mode is no wider, and what was replaced was reported.
    fn check_directory(&mut self, moment: &Moment<'_>) -> Result<(), HarnessError> {
        for (name, bytes) in NEIGHBOURS {
            if !self.neighbour_is_intact(moment, name, bytes) {
                self.violated(Promise::ForeignUntouched, format!("{} touched {name}", moment.name()));
            }
        }
        for seen in moment.after {
            let role = role::of(&seen.name, SESSION.as_ref());
            let is_ours = matches!(role, Role::Temporary | Role::Restore);
            let is_strangers = seen.bytes.as_deref() == Some(STRANGERS_FILE);
            if is_ours && !is_strangers && !stray_is_excused(&self.injector.trace()) {
                self.violated(
                    Promise::NoStray,
                    format!("{} left {}", moment.name(), seen.name.to_string_lossy()),
                );
            }
        }
        self.check_mode(moment);
        self.check_strangers(moment)?;
        Ok(())
    }

    fn neighbour_is_intact(&self, moment: &Moment<'_>, name: &str, bytes: &[u8]) -> bool {
        // With the root replaced, the neighbours are in the directory that was moved away.
        if matches!(moment.actor, Some((Actor::ReplaceRoot, _))) || self.root_was_replaced() {
            return true;
        }
        let before = moment.before.iter().find(|seen| seen.name == name);
        let after = moment.after.iter().find(|seen| seen.name == name);
        before == after && after.is_some_and(|seen| seen.bytes.as_deref() == Some(bytes))
    }

    fn root_was_replaced(&self) -> bool {
        self.world.outsider().exists(&self.world.root().with_extension("moved"))
    }

    fn check_mode(&mut self, moment: &Moment<'_>) {
        let widest = if actor_ever(&self.plan) == Some(Actor::Chmod) { outsider::ACTORS_MODE } else { 0o600 };
        let session = moment.after.iter().find(|seen| seen.name == SESSION);
        if let Some(seen) = session
            && seen.kind == FileKind::Regular
            && !matches!(seen.bytes.as_deref(), Some(STRANGERS_SESSION | STRANGERS_FILE))
            && seen.mode & !widest != 0
        {
            self.violated(
                Promise::ModeIsKept,
                format!("{} left mode {:04o}, wider than {widest:04o}", moment.name(), seen.mode),
            );
        }
    }

    /// What somebody put at one of the store's names is still there, or was used up by the very call before which it
    /// came; and a store whose file is not under its path any more does not answer with success.
    fn check_strangers(&mut self, moment: &Moment<'_>) -> Result<(), HarnessError> {
        if let Some((actor, struck)) = moment.actor {
            let planted: Option<&[u8]> = match actor {
                Actor::ReplaceFile | Actor::ReplaceRoot => Some(STRANGERS_SESSION),
                Actor::PlantMarker | Actor::PlantTemporary => Some(STRANGERS_FILE),
                _ => None,
            };
            let is_there = planted.is_none_or(|bytes| {
                moment.after.iter().any(|seen| seen.bytes.as_deref() == Some(bytes) && is_of_session(seen))
            });
            if !is_there && planted_at_all(actor, moment) {
                if uses_the_name(struck, actor) {
                    self.race_window = true;
                } else {
                    self.violated(
                        Promise::ForeignUntouched,
                        format!("what {actor} put there before {struck} is gone after {}", moment.name()),
                    );
                }
            }
        }
        let replaced_before = !self.names_own_generation(moment.before);
        if replaced_before
            && moment.nth > 1
            && matches!(moment.reply, Reply::Ok(_))
            && self.replaced_matters()
        {
            self.violated(
                Promise::NoSilentContinuation,
                format!("{} went on although the path did not name the store's generation", moment.name()),
            );
        }
        Ok(())
    }

    fn replaced_matters(&self) -> bool {
        matches!(self.scenario.action, Action::Append | Action::Flush) && actor_ever(&self.plan).is_some()
    }

    /// Whether the file under the path holds the acknowledged entries, as the store's own generation does.
    fn names_own_generation(&self, view: &[Seen]) -> bool {
        session_bytes(view).and_then(|bytes| entries_of(bytes)).is_some_and(|entries| {
            is_prefix(&entries, &self.history.acknowledged) || is_prefix(&self.history.acknowledged, &entries)
        })
    }

    fn check_poison(&mut self, moment: &Moment<'_>) {
        if !moment.was_poisoned {
            return;
        }
        if let Some(event) = moment.events.iter().find(|event| event.op.mutates()) {
            self.violated(Promise::PoisonHolds, format!("a poisoned store still made {event}"));
        }
        match moment.reply {
            Reply::Refused(refusal) if refusal.code == "SESSION_ROLLBACK_FAILED" && refusal.poisoned => {}
            Reply::Ok(_) => {}
            other => self.violated(Promise::PoisonHolds, format!("a poisoned store answered {other:?}")),
        }
    }

    fn check_load_is_read_only(&mut self, moment: &Moment<'_>) {
        if self.scenario.action != Action::Load {
            return;
        }
        if let Some(event) = moment.events.iter().find(|event| event.op.mutates()) {
            self.violated(Promise::LoadReadsOnly, format!("the load made {event}"));
        }
    }

    fn check_fired(&mut self, trace: &[Event]) {
        for (at, fault) in self.plan.0.iter().enumerate().skip(self.own_faults) {
            if !trace.iter().any(|event| event.fault == Some(at)) {
                self.violations.push(Violation {
                    promise: Promise::FaultFired,
                    evidence: format!("the planned fault never struck: {fault}"),
                });
            }
        }
    }

    /// A second process: load, append, load.
    fn cold(&mut self, trace: &[Event]) -> Result<(), HarnessError> {
        let actor = actor_ever(&self.plan);
        if actor.is_some_and(destroys) {
            return self.cold_after_destruction();
        }
        let loaded = self.cold_load();
        let Some(entries) = loaded else {
            return self.cold_refusal(actor);
        };
        if !self.history.exists
            && actor.is_none()
            && self.history.doubtful.is_empty()
            && !self.create_is_doubtful(trace)
        {
            self.violated(Promise::FailedMeansOld, "a session is there although none was created".to_owned());
        }
        self.expect_entries(&entries, "a cold load");
        self.history.acknowledged = entries;
        self.history.doubtful.clear();
        self.goes_on();
        Ok(())
    }

    fn create_is_doubtful(&self, trace: &[Event]) -> bool {
        self.scenario.action == Action::Create
            && (self.injector.killed() || cleanup_failed(trace, Role::Session))
    }

    /// After somebody destroyed the file, only this: every answer is typed.
    fn cold_after_destruction(&mut self) -> Result<(), HarnessError> {
        let reply = self.second_process_load();
        if let Reply::Panicked(text) = reply {
            self.violated(Promise::TypedRefusal, format!("a cold load panicked: {text}"));
        }
        Ok(())
    }

    fn cold_load(&mut self) -> Option<Vec<EntryView>> {
        match self.second_process_load() {
            Reply::Ok(answer) => Some(answer.entries.unwrap_or_default()),
            Reply::Panicked(text) => {
                self.violated(Promise::TypedRefusal, format!("a cold load panicked: {text}"));
                None
            }
            _ => None,
        }
    }

    fn second_process_load(&mut self) -> Reply {
        let injector = Injector::watching();
        let ops = self.world.process(&injector);
        let reply = InProcess::new(ops).call(&self.load("cold"));
        self.replies.push(("cold load".to_owned(), reply.clone()));
        reply
    }

    /// The cold load refused. That is right only beside a marker, and then either name holds everything that was
    /// acknowledged; or where there never was a session.
    fn cold_refusal(&mut self, actor: Option<Actor>) -> Result<(), HarnessError> {
        let view = self.view()?;
        if marker_in(&view).is_none() {
            if self.history.exists {
                self.violated(
                    Promise::AcknowledgedSurvive,
                    format!(
                        "a cold load refused without a marker: {:?}",
                        self.replies.last().map(|(_, reply)| reply)
                    ),
                );
            }
            return Ok(());
        }
        if !self.history.may_refuse && actor != Some(Actor::PlantMarker) {
            self.violated(Promise::FailedMeansOld, "a marker is left although no answer said so".to_owned());
        }
        let holds_all = |bytes: Option<&[u8]>| {
            bytes.and_then(entries_of).is_some_and(|entries| is_prefix(&self.history.acknowledged, &entries))
        };
        if self.history.exists
            && !holds_all(session_bytes(&view))
            && !holds_all(marker_in(&view).and_then(|seen| seen.bytes.as_deref()))
        {
            self.violated(
                Promise::AcknowledgedSurvive,
                "neither the session file nor the marker holds every acknowledged entry".to_owned(),
            );
        }
        self.resolve_by_hand(&view)?;
        if self.history.exists || session_bytes(&view).is_some() {
            match self.cold_load() {
                Some(entries) => {
                    self.expect_entries(&entries, "a cold load after the marker was resolved");
                    self.history.acknowledged = entries;
                    self.goes_on();
                }
                None => self.violated(
                    Promise::AcknowledgedSurvive,
                    "the session does not load even after the marker was resolved".to_owned(),
                ),
            }
        }
        Ok(())
    }

    /// What a careful person does about a marker: the path stays where it holds everything, else the marker takes
    /// its place.
    fn resolve_by_hand(&self, view: &[Seen]) -> Result<(), HarnessError> {
        let marker = outsider::marker(self.world.session());
        let path_is_good = session_bytes(view)
            .and_then(entries_of)
            .is_some_and(|entries| is_prefix(&self.history.acknowledged, &entries));
        if path_is_good {
            self.world.outsider().remove(&marker)?;
        } else {
            self.world.outsider().rename(&marker, self.world.session())?;
        }
        Ok(())
    }

    /// An append by the second process is there for a third one.
    fn goes_on(&mut self) {
        let injector = Injector::watching();
        let ops = self.world.process(&injector);
        let mut subject = InProcess::new(ops);
        let loaded = subject.call(&self.load("next"));
        let submission = Submission {
            parent_id: self.history.acknowledged.last().map(|entry| entry.id.clone()),
            message: message("m-after", "and after the restart?"),
        };
        let appended = subject.call(&append("next", &submission));
        drop(subject);
        let Reply::Ok(answer) = &appended else {
            return self.violated(
                Promise::GoesOnAfterwards,
                format!("the append after the restart was refused: {loaded:?}, {appended:?}"),
            );
        };
        self.history.acknowledged.extend(answer.entry.clone());
        match self.cold_load() {
            Some(entries) if entries == self.history.acknowledged => {}
            other => self.violated(
                Promise::GoesOnAfterwards,
                format!(
                    "after the append and a restart: {:?}",
                    other.map(|entries| difference(&entries, &self.history.acknowledged))
                ),
            ),
        }
    }

    fn expect_load(&mut self, reply: &Reply) {
        match reply {
            Reply::Ok(answer) => {
                let entries = answer.entries.clone().unwrap_or_default();
                self.expect_entries(&entries, "the first load");
            }
            other => {
                self.violated(Promise::AcknowledgedSurvive, format!("the first load answered {other:?}"))
            }
        }
    }

    /// Acknowledged entries in order, then at most the doubtful submissions in order.
    fn expect_entries(&mut self, shown: &[EntryView], whence: &str) {
        let acknowledged = &self.history.acknowledged;
        if !is_prefix(acknowledged, shown) {
            let text = format!("{whence} shows {}", difference(shown, acknowledged));
            return self.violated(Promise::AcknowledgedSurvive, text);
        }
        let mut doubtful = self.history.doubtful.iter();
        for entry in &shown[acknowledged.len()..] {
            let submitted = |it: &Submission| it.parent_id == entry.parent_id && it.message == entry.message;
            if !doubtful.any(submitted) {
                let text = format!("{whence} shows {entry:?}, which was never acknowledged or left in doubt");
                return self.violated(Promise::NothingInvented, text);
            }
        }
    }

    fn next_submission(&mut self) -> Option<Submission> {
        if self.scenario.action != Action::Append {
            return None;
        }
        self.submitted += 1;
        Some(Submission {
            parent_id: self.history.acknowledged.last().map(|entry| entry.id.clone()),
            message: message(&format!("m-new-{}", self.submitted), "why does the build fail?"),
        })
    }

    fn call(&self, submission: &Option<Submission>) -> Call {
        let path = self.world.session().to_string_lossy().into_owned();
        let store = "s".to_owned();
        match (self.scenario.action, submission) {
            (Action::Append, Some(submission)) => append("s", submission),
            (Action::Create, _) => Call::Create {
                store,
                path,
                session_id: Some("session-1".to_owned()),
                ids: Vec::new(),
                clock: Vec::new(),
            },
            (Action::Load, _) => self.load("s"),
            (Action::Flush | Action::Append, _) => Call::Flush { store },
        }
    }

    fn load(&self, store: &str) -> Call {
        Call::Load {
            store: store.to_owned(),
            path: self.world.session().to_string_lossy().into_owned(),
            ids: (1..=4).map(|count| format!("{store}-{count}")).collect(),
            clock: Vec::new(),
        }
    }

    fn view(&self) -> Result<Vec<Seen>, HarnessError> {
        Ok(self.world.outsider().view(self.world.root())?)
    }

    fn violated(&mut self, promise: Promise, evidence: String) {
        self.violations.push(Violation { promise, evidence });
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Go { poisoned: bool },
    Killed,
}

/// One answered call, with the directory before and after it.
struct Moment<'a> {
    call: &'static str,
    nth: u32,
    submission: Option<Submission>,
    reply: &'a Reply,
    events: &'a [Event],
    before: &'a [Seen],
    after: &'a [Seen],
    was_poisoned: bool,
    /// The outside actor that acted within this call, and the system call before which it did.
    actor: Option<(Actor, &'a Event)>,
}

impl Moment<'_> {
    fn name(&self) -> String {
        format!("{}#{}", self.call, self.nth)
    }
}

fn append(store: &str, submission: &Submission) -> Call {
    Call::Append {
        store: store.to_owned(),
        parent_id: submission.parent_id.clone(),
        message: serde_json::value::RawValue::from_string(submission.message.clone())
            .unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned()),
    }
}

fn message(id: &str, text: &str) -> String {
    session_tree::Message::user(id, text).to_json()
}

/// The entries of a session file by the independent model; none where it refuses.
///
/// The model is slow and the same few files turn up in thousands of cases, so what it said of one is kept.
fn entries_of(bytes: &[u8]) -> Option<Rc<Vec<EntryView>>> {
    const MOST_KEPT: usize = 256;
    thread_local! {
        static KEPT: RefCell<HashMap<Vec<u8>, Option<Rc<Vec<EntryView>>>>> = RefCell::default();
    }
    KEPT.with_borrow_mut(|kept| {
        if let Some(known) = kept.get(bytes) {
            return known.clone();
        }
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        let read = model::load(bytes).ok();
        let entries = read.map(|session| Rc::new(session.entries().iter().map(EntryView::from).collect()));
        kept.insert(bytes.to_vec(), entries.clone());
        entries
    })
}

fn session_bytes(view: &[Seen]) -> Option<&[u8]> {
    view.iter().find(|seen| seen.name == SESSION)?.bytes.as_deref()
}

fn marker_in(view: &[Seen]) -> Option<&Seen> {
    view.iter().find(|seen| role::of(&seen.name, SESSION.as_ref()) == Role::Marker)
}

fn is_of_session(seen: &Seen) -> bool {
    role::of(&seen.name, SESSION.as_ref()) != Role::Other
}

fn is_prefix(short: &[EntryView], long: &[EntryView]) -> bool {
    long.len() >= short.len() && long[..short.len()] == *short
}

fn difference(shown: &[EntryView], expected: &[EntryView]) -> String {
    let ids = |entries: &[EntryView]| {
        entries.iter().rev().take(4).rev().map(|entry| entry.id.clone()).collect::<Vec<_>>()
    };
    format!(
        "{} entries ending in {:?}, expected {} ending in {:?}",
        shown.len(),
        ids(shown),
        expected.len(),
        ids(expected)
    )
}

fn actor_ever(plan: &Plan) -> Option<Actor> {
    plan.0.iter().find_map(|fault| match fault.kind {
        Kind::Actor(actor) => Some(actor),
        _ => None,
    })
}

fn actor_in<'a>(plan: &Plan, events: &'a [Event]) -> Option<(Actor, &'a Event)> {
    events.iter().find_map(|event| match plan.0[event.fault?].kind {
        Kind::Actor(actor) => Some((actor, event)),
        _ => None,
    })
}

/// Actors after whose act the acknowledged entries are not to be had from the path, whatever the store does.
fn destroys(actor: Actor) -> bool {
    !matches!(
        actor,
        Actor::PlantMarker
            | Actor::PlantTemporary
            | Actor::RemoveMarker
            | Actor::RemoveTemporary
            | Actor::Chmod
    )
}

/// Whether the act had an object: there is a temporary to replace only while a commit has one.
fn planted_at_all(actor: Actor, moment: &Moment<'_>) -> bool {
    if actor != Actor::PlantTemporary {
        return true;
    }
    let created =
        moment.events.iter().position(|event| event.op == Op::Create && event.outcome == Outcome::Done);
    let gone = moment.events.iter().position(|event| {
        event.outcome == Outcome::Done
            && matches!(
                (event.op, event.target.from),
                (Op::Rename | Op::Unlink, Role::Temporary | Role::Restore)
            )
    });
    let struck = moment.events.iter().position(|event| event.fault.is_some());
    match (created, struck) {
        (Some(created), Some(struck)) => created < struck && gone.is_none_or(|gone| struck <= gone),
        _ => false,
    }
}

/// Whether the system call before which the actor acted is the one that uses the name the actor changed: between
/// the store's last look and that call nothing can be done.
fn uses_the_name(event: &Event, actor: Actor) -> bool {
    let names: &[Role] = match actor {
        Actor::PlantMarker => &[Role::Marker],
        Actor::PlantTemporary => &[Role::Temporary, Role::Restore],
        _ => &[Role::Session],
    };
    let uses = names.contains(&event.target.from) || event.target.to.is_some_and(|to| names.contains(&to));
    uses && matches!(event.op, Op::Rename | Op::Unlink | Op::Link)
}

/// A failure after which the new generation is not proved to be durable and whole.
fn is_indispensable(event: &Event) -> bool {
    let failed = matches!(event.outcome, Outcome::Failed(errno) if errno != Errno::EINTR);
    let unsupported = matches!(event.outcome, Outcome::Failed(Errno::EINVAL | Errno::ENOTSUP));
    match (event.op, event.target.from) {
        (Op::Fsync, Role::Temporary) => matches!(event.outcome, Outcome::Failed(_)),
        (Op::Fsync, Role::Root) => {
            event.nth == 1 && matches!(event.outcome, Outcome::Failed(_)) && !unsupported
        }
        (Op::Write, _) => failed,
        _ => false,
    }
}

/// The error number that a store should report for a call, by its name.
fn number(event: &Event, plan: &Plan) -> Option<String> {
    let kind = event.fault.and_then(|at| plan.0.get(at)).map(|fault| fault.kind);
    Some(match (kind, event.outcome) {
        (Some(Kind::Held), _) => Errno::EAGAIN.to_string(),
        (Some(Kind::NoProgress), _) => Errno::EIO.to_string(),
        (_, Outcome::Failed(errno)) => errno.to_string(),
        _ => return None,
    })
}

/// Whether the removal of `role`'s name, or the look before it, failed.
fn cleanup_failed(events: &[Event], role: Role) -> bool {
    events.iter().any(|event| {
        event.fault.is_some()
            && event.target.from == role
            && matches!(event.op, Op::Stat | Op::Unlink)
            && matches!(event.outcome, Outcome::Failed(_))
    })
}

/// Whether a temporary may stay: its identity was never learnt, or neither look nor removal succeeded in as many
/// tries as a store must make.
fn stray_is_excused(trace: &[Event]) -> bool {
    let ours = |event: &&Event| {
        matches!(event.target.from, Role::Temporary | Role::Restore) && event.fault.is_some()
    };
    let failed = |event: &&Event| matches!(event.outcome, Outcome::Failed(_));
    let struck: Vec<&Event> = trace.iter().filter(ours).filter(failed).collect();
    let never_learnt =
        struck.iter().any(|event| matches!(event.op, Op::Create | Op::Fstat) && event.nth == 1);
    let not_removed = struck.iter().filter(|event| matches!(event.op, Op::Stat | Op::Unlink)).count() >= 3;
    never_learnt || not_removed
}
