//! The `concurrency` suite: calls that are begun together, and two processes on one session.
//!
//! - `batch`: calls of one process that are begun together, on several trees of a store and several stores on a path. What
//!   must come of them is told by the independent model, which takes them one after the other.
//! - `processes`: two processes on one simulated disk, under every schedule of their system calls in which a process that
//!   could go on has to stop at most twice; `seeded`: longer workloads, under schedules that the seed chooses.
//! - `real`: two processes on one real path, at once.
//!
//! Locks are only ever tried on the simulated disk and pauses take no time there, so that a process which waits gives its
//! turn to the other one, and every schedule ends.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::call::Reply;
use crate::corpus;
use crate::inject::Injector;
use crate::promise::{Promise, Violation};
use crate::protocol::{Capability, Hello};
use crate::scenario::HarnessError;
use crate::subject::{Candidate, Subject};
use crate::world::{Backend, World};

mod batch;
mod judge;
mod real;
mod search;
mod sides;
mod tell;
mod turns;

use batch::{SCRIPTS, Script};
use real::Race;
use sides::{SESSION, Workload};
use turns::Schedule;

/// The name of the suite.
pub const NAME: &str = "concurrency";

/// What is counted over schedules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Ways in which the calls of two processes fell, or batches of calls that were begun together.
    pub schedules: usize,
    /// Among them those in which both were within a commit at once, or one waited for the other's lock.
    pub overlaps: usize,
    /// Among them those in which one waited for the other's lock.
    pub waits: usize,
    /// Where both would commit: those in which the first process's commit was the first.
    pub first_won: usize,
    /// Where both would commit: those in which the second process's commit was the first.
    pub second_won: usize,
}

impl Counts {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Counts) {
        self.schedules += other.schedules;
        self.overlaps += other.overlaps;
        self.waits += other.waits;
        self.first_won += other.first_won;
        self.second_won += other.second_won;
    }
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Batch(&'static Script),
    /// Batches that the seed chooses.
    Drawn,
    /// Under every schedule.
    Processes(Workload),
    /// Under schedules that the seed chooses.
    Seeded(Workload),
    Real(Race),
}

/// Workloads that are small enough for every schedule.
const COMPLETE: &[&str] = &[
    "session:append+append",
    "session:append+flush",
    "session:flush+flush",
    "session:append+load",
    "session:flush+load",
    "session:append+inspect",
    "session:append+recover",
    "session:flush+recover",
    "new:create+create",
    "new:create+load",
    "new:create+recover",
    "before-rename:load+recover",
    "after-rename:load+recover",
    "before-rename:recover+recover",
    "after-rename:recover+recover",
    "session!short-write:append+append",
    "session!directory-fsync:append+load",
    "session!directory-fsync:append+append",
];

/// Longer ones.
const LONGER: &[&str] = &[
    "session:append,append+load,append",
    "session:append,flush,append+append,load,append",
    "session:load,append,load,append+load,append,load,append",
    "new:create,append,append+load,append,load",
    "session:append,append+inspect,load,append",
    "after-rename:recover,load,append+recover,load,append",
];

/// A promise that was broken in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The first violation.
    pub violation: Violation,
    /// What replays it.
    pub token: String,
    /// In how many further schedules of the case the same promise was broken.
    pub further: usize,
}

/// What came of a case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What was counted.
    pub counts: Counts,
    /// What was broken.
    pub found: Vec<Found>,
    /// Why the store cannot be asked.
    pub unsupported: Option<String>,
}

/// A case alone, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Whose call came when, where one schedule was asked for.
    pub schedule: Vec<String>,
}

/// What `replay` takes: a case, and where it has many schedules one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The case.
    pub case: Case,
    schedule: Option<Schedule>,
    /// The seed of what is drawn.
    seed: Option<u64>,
}

/// Every case.
pub fn cases() -> Vec<Case> {
    // Every text is a workload: a test reads them all.
    let workloads =
        |texts: &[&str]| texts.iter().filter_map(|text| text.parse().ok()).collect::<Vec<Workload>>();
    let batches = SCRIPTS.iter().map(Kind::Batch).chain([Kind::Drawn]);
    let complete = workloads(COMPLETE).into_iter().map(Kind::Processes);
    let longer = workloads(LONGER).into_iter().map(Kind::Seeded);
    let real = Race::ALL.into_iter().map(Kind::Real);
    batches.chain(complete).chain(longer).chain(real).map(Case).collect()
}

/// The cases that a store behind the protocol can be asked: those whose system calls nobody needs to see.
pub fn cases_behind() -> Vec<Case> {
    cases().into_iter().filter(|case| !matches!(case.0, Kind::Processes(_) | Kind::Seeded(_))).collect()
}

impl Token {
    /// The token that this text is, such as `concurrency/processes/session:append+append@1.14.30`.
    pub fn find(text: &str) -> Option<Token> {
        let (id, detail) = text.split_once('@').map_or((text, None), |(id, detail)| (id, Some(detail)));
        let case = cases().into_iter().find(|case| case.id() == id)?;
        let seed = detail.and_then(|detail| detail.strip_prefix("seed-"));
        let token = Token { case, schedule: None, seed: None };
        match (detail, seed) {
            (None, _) => Some(token),
            (Some(_), Some(seed)) => Some(Token { seed: Some(seed.parse().ok()?), ..token }),
            (Some(schedule), None) => Some(Token { schedule: Some(schedule.parse().ok()?), ..token }),
        }
    }

    /// Runs it on a store in this process.
    ///
    /// # Errors
    /// Where the harness could not do its work.
    pub fn tell(&self, candidate: &dyn Candidate) -> Result<Told, HarnessError> {
        let (Some(schedule), Kind::Processes(workload) | Kind::Seeded(workload)) =
            (&self.schedule, &self.case.0)
        else {
            let outcome = self.case.run(candidate, self.seed.unwrap_or_default(), &|_| true)?;
            let violations = outcome.found.iter().map(|found| found.violation.clone()).collect();
            let schedule = match outcome.found.first().and_then(|found| Token::find(&found.token)) {
                Some(token) if token.schedule.is_some() => token.tell(candidate)?.schedule,
                _ => Vec::new(),
            };
            return Ok(Told { violations, schedule });
        };
        let mut lines = Vec::new();
        let violations = search::one(candidate, workload, schedule, |ran| lines = tell::schedule(ran))?;
        Ok(Told { violations, schedule: lines })
    }

    /// Runs it on a store behind the protocol, whose processes `start` starts.
    ///
    /// # Errors
    /// As [`Case::run_behind`].
    pub fn run_behind(&self, start: &Start<'_>, hello: &Hello) -> Result<Outcome, HarnessError> {
        self.case.run_behind(start, hello, self.seed.unwrap_or_default())
    }
}

/// Starts a process of a store.
pub type Start<'a> = dyn Fn() -> Box<dyn Subject> + 'a;

impl Case {
    /// The stable id, such as `concurrency/processes/session:append+append`.
    pub fn id(&self) -> String {
        match &self.0 {
            Kind::Batch(script) => format!("{NAME}/batch/{}", script.name),
            Kind::Drawn => format!("{NAME}/batch/drawn"),
            Kind::Processes(workload) => format!("{NAME}/processes/{workload}"),
            Kind::Seeded(workload) => format!("{NAME}/seeded/{workload}"),
            Kind::Real(race) => format!("{NAME}/real/{}", race.as_str()),
        }
    }

    /// The requirements of the contract that it is about.
    pub fn requirements(&self) -> &'static [&'static str] {
        match &self.0 {
            Kind::Batch(script) => script.requirements,
            Kind::Drawn => &["Q1", "Q2", "S8", "T3"],
            Kind::Processes(workload) | Kind::Seeded(workload) => workload.requirements(),
            Kind::Real(race) => race.requirements(),
        }
    }

    /// Whether it takes no more than a moment, and comes out the same every time.
    pub fn is_quick(&self) -> bool {
        match &self.0 {
            Kind::Batch(_) | Kind::Drawn => true,
            Kind::Processes(workload) => !workload.looks_at_temporaries(),
            Kind::Seeded(_) | Kind::Real(_) => false,
        }
    }

    /// Whether it comes out the same every time, where stores of one process do not race.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self.0, Kind::Real(_))
    }

    /// What must happen, in words.
    pub fn title(&self) -> &'static str {
        match &self.0 {
            Kind::Batch(script) => script.title,
            Kind::Drawn => "calls that are begun together take effect in the order in which they were begun",
            Kind::Processes(_) => {
                "whichever way the calls of two processes fall, nothing that was acknowledged is lost"
            }
            Kind::Seeded(_) => "two processes that work at once lose nothing that was acknowledged",
            Kind::Real(race) => race.title(),
        }
    }

    /// Runs the case on a store in this process, until `go_on` does not want to see more.
    ///
    /// # Errors
    /// Where the harness could not do its work.
    pub fn run(
        &self,
        candidate: &dyn Candidate,
        seed: u64,
        go_on: &dyn Fn(&[Violation]) -> bool,
    ) -> Result<Outcome, HarnessError> {
        let mut outcome = Outcome::default();
        let mut visit = |schedule: &Schedule, violations: &[Violation]| {
            for violation in violations {
                outcome.keep(violation, || format!("{}@{schedule}", self.id()));
            }
            go_on(violations)
        };
        let searched = match &self.0 {
            Kind::Processes(workload) => search::all(candidate, workload, &mut visit),
            Kind::Seeded(workload) => search::some(candidate, workload, self.seed(seed), &mut visit),
            Kind::Batch(_) | Kind::Drawn => {
                return self.run_in(&Setting::of_candidate(candidate, Backend::Simulated), seed);
            }
            Kind::Real(_) => return self.run_in(&Setting::of_candidate(candidate, Backend::Real), seed),
        };
        match searched {
            Ok(counts) => outcome.counts = counts,
            // Said of the store, and no reason to end a run over the other cases.
            Err(HarnessError::NoSuchState) => {
                outcome.unsupported =
                    Some("it makes no system call at which what is to go wrong could strike".to_owned());
            }
            Err(HarnessError::Session(answer)) => {
                let evidence = format!("before both begin, and alone, it does not get so far: {answer}");
                let violation = Violation { promise: Promise::RetrySucceeds, evidence };
                outcome.keep(&violation, || self.id());
            }
            Err(error) => return Err(error),
        }
        Ok(outcome)
    }

    /// Runs the case on a store behind the protocol, whose processes `start` starts, on a real directory.
    ///
    /// # Errors
    /// Where the harness could not do its work.
    pub fn run_behind(&self, start: &Start<'_>, hello: &Hello, seed: u64) -> Result<Outcome, HarnessError> {
        let lacks = |capability: Capability| !hello.can(capability);
        let unsupported =
            |reason: &str| Ok(Outcome { unsupported: Some(reason.to_owned()), ..Outcome::default() });
        match &self.0 {
            Kind::Processes(_) | Kind::Seeded(_) => {
                return unsupported("its system calls cannot be put in an order from outside");
            }
            Kind::Batch(_) | Kind::Drawn if lacks(Capability::Concurrent) => {
                return unsupported("it does not begin calls together: no capability `concurrent`");
            }
            Kind::Batch(_) | Kind::Drawn if lacks(Capability::Tree) => {
                return unsupported("it has no trees: no capability `tree`");
            }
            Kind::Batch(_) | Kind::Drawn | Kind::Real(_) => {}
        }
        let directory = tempfile::tempdir()?;
        self.run_in(&Setting::behind(start, hello, directory.path().to_owned()), seed)
    }

    fn run_in(&self, setting: &Setting<'_>, seed: u64) -> Result<Outcome, HarnessError> {
        let drawn = |seed| format!("{}@seed-{seed}", self.id());
        let mut outcome = Outcome::default();
        let ended = match &self.0 {
            Kind::Real(race) => real::run(*race, setting, self.seed(seed)).map(|raced| {
                outcome.counts = raced.counts;
                (raced.violations, drawn(seed))
            }),
            Kind::Batch(script) => batch::run(script, setting).map(|batches| {
                outcome.counts.schedules = batches.count;
                (batches.violations, self.id())
            }),
            _ => batch::run_drawn(setting, self.seed(seed)).map(|batches| {
                outcome.counts.schedules = batches.count;
                (batches.violations, drawn(seed))
            }),
        };
        match ended {
            Ok((violations, token)) => {
                for (_, violation) in &violations {
                    outcome.keep(violation, || token.clone());
                }
            }
            Err(Stop::Unsupported(reason)) => outcome.unsupported = Some(reason),
            Err(Stop::Broke(violation)) => outcome.keep(&violation, || drawn(seed)),
            Err(Stop::Harness(error)) => return Err(error),
        }
        Ok(outcome)
    }

    /// Each case draws from numbers of its own, whichever others are run.
    fn seed(&self, seed: u64) -> u64 {
        xxh3_64_with_seed(self.id().as_bytes(), seed)
    }
}

impl Outcome {
    /// As a case of the corpus ends.
    pub fn judged(&self) -> corpus::Outcome {
        match (&self.unsupported, self.found.first()) {
            (_, Some(found)) => {
                let Violation { promise, evidence } = &found.violation;
                corpus::Outcome::Violation(format!("{evidence} ({promise})"))
            }
            (Some(reason), None) => corpus::Outcome::Unsupported(reason.clone()),
            (None, None) => corpus::Outcome::Pass,
        }
    }

    fn keep(&mut self, violation: &Violation, token: impl FnOnce() -> String) {
        match self.found.iter_mut().find(|found| found.violation.promise == violation.promise) {
            Some(found) => found.further += 1,
            None => self.found.push(Found { violation: violation.clone(), token: token(), further: 0 }),
        }
    }
}

/// A store with files of its own, whose processes can be started.
struct Setting<'a> {
    start: Box<Start<'a>>,
    /// A process that begins calls together in truth, and not one after the other.
    start_together: Box<Start<'a>>,
    /// A path where no session is yet.
    fresh_path: Box<dyn Fn() -> io::Result<String> + 'a>,
    /// Whether it is held to the contract's codes and generations, and not only to what every store must keep.
    is_native: bool,
    /// Whether it takes the ids that it is given.
    has_factories: bool,
}

/// How a case ends before its last line.
enum Stop {
    Unsupported(String),
    /// It went no further.
    Broke(Violation),
    Harness(HarnessError),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Harness(error.into())
    }
}

fn stop(what: impl Into<String>) -> Stop {
    Stop::Broke(Violation { promise: Promise::NothingInvented, evidence: what.into() })
}

impl<'a> Setting<'a> {
    fn of_candidate(candidate: &'a dyn Candidate, backend: Backend) -> Setting<'a> {
        let world: Rc<RefCell<Option<World>>> = Rc::default();
        let started = |together: bool| {
            let world = world.clone();
            move || {
                let mut world = world.borrow_mut();
                // A path is asked for first.
                match world.as_mut().map(|world| world.process(&Injector::watching())) {
                    Some(ops) if together => candidate.start_together(ops),
                    Some(ops) => candidate.start(ops),
                    None => Box::new(Nobody),
                }
            }
        };
        Setting {
            start: Box::new(started(false)),
            start_together: Box::new(started(true)),
            fresh_path: Box::new(move || {
                let fresh = World::new(backend, SESSION)?;
                let path = fresh.session().to_string_lossy().into_owned();
                *world.borrow_mut() = Some(fresh);
                Ok(path)
            }),
            is_native: true,
            has_factories: true,
        }
    }

    fn behind(start: &'a Start<'_>, hello: &Hello, directory: std::path::PathBuf) -> Setting<'a> {
        let paths = RefCell::new(0);
        Setting {
            start: Box::new(start),
            start_together: Box::new(start),
            fresh_path: Box::new(move || {
                *paths.borrow_mut() += 1;
                let root = directory.join(paths.borrow().to_string());
                fs::create_dir(&root)?;
                Ok(root.join(SESSION).to_string_lossy().into_owned())
            }),
            is_native: hello.is_native(),
            has_factories: hello.can(Capability::Factories),
        }
    }

    fn fresh_path(&self) -> io::Result<String> {
        (self.fresh_path)()
    }
}

/// What an answer means that is not one to go on with.
fn ended(reply: &Reply, call: &str) -> Stop {
    match reply {
        Reply::Unsupported(why) => Stop::Unsupported(format!("no `{call}`: {why}")),
        Reply::Refused(_) => Stop::Broke(Violation {
            promise: Promise::RetrySucceeds,
            evidence: format!("`{call}`, which nothing disturbs, was {reply}"),
        }),
        _ => Stop::Broke(Violation {
            promise: Promise::TypedRefusal,
            evidence: format!("`{call}` was answered: {reply}"),
        }),
    }
}

/// What stands for a process before there is a directory for it.
struct Nobody;

impl Subject for Nobody {
    fn call(&mut self, _call: &crate::call::Call) -> Reply {
        Reply::Exited("it was never started".to_owned())
    }
}
