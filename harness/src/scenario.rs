//! Small histories of a session store, each run under a fault plan and judged afterwards.
//!
//! A run calls the store, asks again while the faults may still strike, asks once more when they are lifted, and then
//! starts a second process that loads, appends and loads again. The oracle's list of acknowledged entries comes from
//! the store's answers alone.

use std::fmt;

use crate::call::{Call, EntryView, Reply, place};
use crate::fault::Plan;
use crate::inject::{Event, Injector};
use crate::outsider::{NEIGHBOUR, STRANGERS_SESSION, Seen};
use crate::promise::{Promise, Violation};
use crate::subject::{Candidate, Subject};
use crate::world::{Backend, World};

mod checks;
mod observe;
mod restart;

use checks::Moment;
use observe::{actor_in, entries_of};

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
    /// The session file's permission bits at the start.
    pub mode: u32,
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

/// Runs `scenario` on `candidate` with its own faults and those of `plan`.
///
/// # Errors
/// Where the harness itself could not do its work: no temporary directory, or a plan that does not parse.
pub fn run(
    candidate: &dyn Candidate,
    backend: Backend,
    scenario: &Scenario,
    plan: &Plan,
) -> Result<Run, HarnessError> {
    let mut all: Plan = scenario.base.parse()?;
    let own_faults = all.0.len();
    all.0.extend(plan.0.iter().cloned());
    Case::new(candidate, backend, scenario, all, own_faults)?.run()
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
    /// A token names a cut that its workload does not have.
    #[error("the workload has no such state; was the token made by another release?")]
    NoSuchState,
    /// The corpus that ships with the harness cannot be used.
    #[error(transparent)]
    Corpus(#[from] crate::corpus::CorpusError),
    /// A case of the corpus cannot be held against a store.
    #[error("a conformance case cannot be run: {0}")]
    Case(String),
    /// A session that ships with the harness does not load.
    #[error("a session that the harness starts from does not load: {0}")]
    Session(String),
}

struct Case<'a> {
    candidate: &'a dyn Candidate,
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

impl fmt::Display for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.message, place(self.parent_id.as_deref()))
    }
}

impl<'a> Case<'a> {
    fn new(
        candidate: &'a dyn Candidate,
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
            world.outsider().chmod(world.session(), scenario.mode)?;
            history.acknowledged =
                entries_of(bytes).ok_or_else(|| HarnessError::Session(scenario.name.to_owned()))?.to_vec();
            history.exists = true;
        }
        let (outsider, session) = (world.outsider().clone(), world.session().to_owned());
        let injector = Injector::new(&plan, move |actor| outsider.act(actor, &session));
        Ok(Case {
            candidate,
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
        let mut subject = self.candidate.start(ops.clone());
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
            asked = self.ask(subject.as_mut(), nth, asked)?;
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
    fn ask(&mut self, subject: &mut dyn Subject, nth: u32, before: Asked) -> Result<Asked, HarnessError> {
        let was_poisoned = before == Asked::Go { poisoned: true };
        let view_before = self.view()?;
        let submission = self.next_submission();
        let call = self.call(submission.as_ref());
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
        self.judge(subject, &moment);
        Ok(Asked::Go {
            poisoned: was_poisoned || matches!(&reply, Reply::Refused(refusal) if refusal.poisoned),
        })
    }

    /// The process died within a call: its submission may show or not, and a marker may be there.
    fn killed(&mut self, submission: Option<Submission>) {
        self.history.doubtful.extend(submission);
        self.history.may_refuse = true;
    }

    fn judge(&mut self, subject: &mut dyn Subject, moment: &Moment<'_>) {
        self.check_typed(moment);
        match moment.reply {
            Reply::Ok(answer) => {
                if moment.was_poisoned {
                    self.violated(Promise::PoisonHolds, "a poisoned store answered with success".to_owned());
                }
                self.acknowledged(moment, answer.entry.as_ref());
            }
            Reply::Refused(refusal) => self.refused(moment, refusal),
            // What is no answer at all is told by the check of the refusal's type.
            _ => {}
        }
        self.check_cause(moment);
        self.check_retry(moment);
        self.check_doubt(moment);
        self.check_leaks(moment);
        self.check_memory(subject, moment);
        self.check_directory(moment);
        self.check_poison(moment);
        self.check_load_is_read_only(moment);
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

    fn call(&self, submission: Option<&Submission>) -> Call {
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
