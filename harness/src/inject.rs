//! Watches every system call of a store under test, records it, and makes the planned ones go wrong.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use session_tree::Errno;
use session_tree::file_ops::FileStat;

use crate::disk::SyncFault;
use crate::fault::{Actor, During, Fault, Kind, Op, Plan, Span, Target};

/// How a system call ended, as the store saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It succeeded with so many bytes.
    Bytes(usize),
    /// A lock was had, or not.
    Locked(bool),
    /// It failed.
    Failed(Errno),
    /// The process was dead by then.
    Dead,
}

/// What a system call says of a file, as far as it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The inode's number.
    pub inode: Option<u64>,
    /// Bytes.
    pub size: Option<u64>,
    /// The permission bits that it has, or is given.
    pub mode: Option<u32>,
}

impl Facts {
    /// Of a look at a directory, of which only the inode matters.
    pub(crate) fn of_directory(stat: &FileStat) -> Facts {
        Facts { inode: Some(stat.inode), ..Facts::default() }
    }

    /// Of a look at a file.
    pub(crate) fn of_file(stat: &FileStat) -> Facts {
        Facts { inode: Some(stat.inode), size: Some(stat.size), mode: Some(stat.mode) }
    }

    /// Of a call that gives a file these permission bits.
    pub(crate) fn given_mode(mode: u32) -> Facts {
        Facts { mode: Some(mode), ..Facts::default() }
    }
}

/// One system call of the store under test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// The store call that made it.
    pub during: During,
    /// What kind.
    pub op: Op,
    /// About what.
    pub target: Target,
    /// Which of that op and target within the store call, from 1.
    pub nth: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Which fault of the plan struck here, by its place in the plan.
    pub fault: Option<usize>,
    /// Whether it had some effect although it failed.
    pub failed_after: bool,
    /// What it said of the file, where it succeeded.
    pub facts: Facts,
}

impl Event {
    /// The call as a line of a trace: how it ended in a column of its own, then what it said of the file.
    pub fn traced(&self) -> String {
        format!("{:<32} {}{}", self.place(), self.ending(), self.facts)
    }

    fn place(&self) -> String {
        format!("{}@{}#{}", self.op, self.target, self.nth)
    }

    fn ending(&self) -> String {
        format!("{}{}", self.outcome, if self.failed_after { " after its effect" } else { "" })
    }
}

/// Watches and disturbs. Cloning gives another handle on the same watch.
#[derive(Clone)]
pub struct Injector {
    state: Arc<Mutex<State>>,
    /// Calls are let through unseen.
    is_blind: bool,
}

type Act = Arc<dyn Fn(Actor) + Send + Sync>;
type After = Arc<dyn Fn(&Event) + Send + Sync>;
type Gate = Arc<dyn Fn(Moment) + Send + Sync>;

/// When a process could be made to wait for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It is about to make this call.
    Before(Op, Target),
    /// It pauses, because somebody else holds what it needs.
    Pause,
}

struct State {
    plan: Vec<Armed>,
    during: During,
    counts: Vec<(Op, Target, u32)>,
    trace: Vec<Event>,
    killed: bool,
    open: usize,
    lifted: bool,
    act: Act,
    after: Option<After>,
    gate: Option<Gate>,
}

struct Armed {
    fault: Fault,
    /// How often it struck.
    fired: u32,
}

/// An open descriptor, counted until dropped.
pub struct Open(Injector);

impl Injector {
    /// Watches, and disturbs by `plan`. `act` does what an outside actor of the plan does.
    pub fn new(plan: &Plan, act: impl Fn(Actor) + Send + Sync + 'static) -> Injector {
        let state = State {
            plan: plan.0.iter().map(|fault| Armed { fault: fault.clone(), fired: 0 }).collect(),
            during: During { call: "setup".into(), nth: 1 },
            counts: Vec::new(),
            trace: Vec::new(),
            killed: false,
            open: 0,
            lifted: false,
            act: Arc::new(act),
            after: None,
            gate: None,
        };
        Injector { state: Arc::new(Mutex::new(state)), is_blind: false }
    }

    /// Watches only.
    pub fn watching() -> Injector {
        Injector::new(&Plan::default(), |_| {})
    }

    /// Lets every call through unseen: for a process of which only the answers count.
    pub fn blind() -> Injector {
        Injector { is_blind: true, ..Injector::watching() }
    }

    /// `after` is told of every call, once it has had its effect.
    pub fn observe(&self, after: impl Fn(&Event) + Send + Sync + 'static) {
        self.lock_state().after = Some(Arc::new(after));
    }

    /// `gate` is passed before every call and at every pause, and may hold the process up there: so several processes
    /// are made to take turns.
    pub fn gate(&self, gate: impl Fn(Moment) + Send + Sync + 'static) {
        self.lock_state().gate = Some(Arc::new(gate));
    }

    /// The process waits for somebody else.
    pub(crate) fn pauses(&self) {
        self.pass(Moment::Pause);
    }

    /// What follows belongs to the `nth` store call named `call`.
    pub fn begin(&self, call: &str, nth: u32) {
        let mut state = self.lock_state();
        state.during = During { call: call.into(), nth };
        state.counts.clear();
    }

    /// No fault strikes from here on.
    pub fn lift(&self) {
        self.lock_state().lifted = true;
    }

    /// How often each fault of the plan struck.
    pub fn fired(&self) -> Vec<u32> {
        self.lock_state().plan.iter().map(|armed| armed.fired).collect()
    }

    /// Every call so far.
    pub fn trace(&self) -> Vec<Event> {
        self.lock_state().trace.clone()
    }

    /// How many calls so far.
    pub fn calls(&self) -> usize {
        self.lock_state().trace.len()
    }

    /// Whether a fault has killed the process.
    pub fn killed(&self) -> bool {
        self.lock_state().killed
    }

    /// Descriptors that the store holds open.
    pub fn open_descriptors(&self) -> usize {
        self.lock_state().open
    }

    pub(crate) fn opened(&self) -> Open {
        self.lock_state().open += 1;
        Open(self.clone())
    }

    /// A call without a count of bytes.
    pub(crate) fn call<T>(
        &self,
        op: Op,
        target: Target,
        run: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.telling_call(op, target, |_| Facts::default(), run)
    }

    /// A call without a count of bytes, of whose result `facts` are told in the trace.
    pub(crate) fn telling_call<T>(
        &self,
        op: Op,
        target: Target,
        facts: impl FnOnce(&T) -> Facts,
        run: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let run = |kind: Option<Kind>| match kind {
            Some(Kind::Before(errno)) => (Err(errno), Outcome::Failed(errno), Facts::default()),
            Some(Kind::After(errno)) => {
                // The effect happened; what the call gave is dropped, as a caller that saw an error would never close it.
                drop(run());
                (Err(errno), Outcome::Failed(errno), Facts::default())
            }
            _ => match run() {
                Ok(given) => {
                    let facts = facts(&given);
                    (Ok(given), Outcome::Done, facts)
                }
                Err(errno) => (Err(errno), Outcome::Failed(errno), Facts::default()),
            },
        };
        self.decide(op, target, run)
    }

    /// A read or write of `offered` bytes; `run` is told how many of them at most.
    pub(crate) fn transfer(
        &self,
        op: Op,
        target: Target,
        offered: usize,
        mut run: impl FnMut(usize) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let half = (offered / 2).max(1).min(offered);
        self.decide(op, target, |kind| {
            let result = match kind {
                Some(Kind::Before(errno)) => Err(errno),
                Some(Kind::After(errno)) => run(offered).and(Err(errno)),
                Some(Kind::ShortThen(errno)) => run(half).and(Err(errno)),
                Some(Kind::Short) => run(half),
                Some(Kind::NoProgress) => Ok(0),
                _ => run(offered),
            };
            (result, result.map_or_else(Outcome::Failed, Outcome::Bytes), Facts::default())
        })
    }

    /// An fsync; `run` is told how it shall misbehave, if it shall.
    pub(crate) fn fsync(
        &self,
        target: Target,
        run: impl FnOnce(Option<SyncFault>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.decide(Op::Fsync, target, |kind| {
            let result = match kind {
                Some(Kind::Before(errno)) => Err(errno),
                Some(Kind::After(errno)) => run(None).and(Err(errno)),
                Some(Kind::SyncDrops(errno)) => run(Some(SyncFault::FailMarkingClean(errno))),
                Some(Kind::SyncLies) => run(Some(SyncFault::SucceedDoingNothing)),
                _ => run(None),
            };
            (result, result.map_or_else(Outcome::Failed, |()| Outcome::Done), Facts::default())
        })
    }

    /// A try at a lock.
    pub(crate) fn lock(
        &self,
        target: Target,
        mut run: impl FnMut() -> Result<bool, Errno>,
    ) -> Result<bool, Errno> {
        self.decide(Op::Lock, target, |kind| {
            let result = match kind {
                Some(Kind::Before(errno)) => Err(errno),
                Some(Kind::After(errno)) => run().and(Err(errno)),
                Some(Kind::Held) => Ok(false),
                _ => run(),
            };
            (result, result.map_or_else(Outcome::Failed, Outcome::Locked), Facts::default())
        })
    }

    /// Finds the fault that strikes here, if any, runs the call accordingly, and records it.
    fn decide<T>(
        &self,
        op: Op,
        target: Target,
        run: impl FnOnce(Option<Kind>) -> (Result<T, Errno>, Outcome, Facts),
    ) -> Result<T, Errno> {
        if self.is_blind {
            return run(None).0;
        }
        self.pass(Moment::Before(op, target));
        let (at, nth, fault, act) = {
            let mut state = self.lock_state();
            let nth = state.count(op, target);
            if state.killed {
                state.record(op, target, nth, (Outcome::Dead, Facts::default()), None);
                return Err(crate::disk::KILLED);
            }
            let fault = state.strike(op, target, nth);
            if let Some((at, Kind::KillBefore)) = fault {
                state.killed = true;
                state.record(op, target, nth, (Outcome::Dead, Facts::default()), Some(at));
                return Err(crate::disk::KILLED);
            }
            (fault.map(|(at, _)| at), nth, fault.map(|(_, kind)| kind), state.act.clone())
        };
        // The actor and the call run without the lock: both come back to this watch when they open or close files.
        if let Some(Kind::Actor(actor)) = fault {
            act(actor);
        }
        let (result, outcome, facts) = run(fault);
        let watched = {
            let mut state = self.lock_state();
            state.record(op, target, nth, (outcome, facts), at);
            state.killed |= fault == Some(Kind::KillAfter);
            state.after.clone().and_then(|after| Some((after, state.trace.last().cloned()?)))
        };
        if let Some((after, event)) = watched {
            after(&event);
        }
        if fault == Some(Kind::KillAfter) { Err(crate::disk::KILLED) } else { result }
    }

    fn pass(&self, moment: Moment) {
        // Without the lock: whoever takes the turn meanwhile may look at this watch.
        let gate = self.lock_state().gate.clone();
        if let Some(gate) = gate {
            gate(moment);
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, so a panic of the store under test spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Which call of this op and target within the store call this is, from 1.
    fn count(&mut self, op: Op, target: Target) -> u32 {
        if let Some((_, _, count)) =
            self.counts.iter_mut().find(|(seen_op, seen, _)| *seen_op == op && *seen == target)
        {
            *count += 1;
            *count
        } else {
            self.counts.push((op, target, 1));
            1
        }
    }

    /// The first fault of the plan that strikes at this call. A fault begins at its site and goes on, at calls of the
    /// same op and target, for as long as its span says.
    fn strike(&mut self, op: Op, target: Target, nth: u32) -> Option<(usize, Kind)> {
        if self.lifted {
            return None;
        }
        let during = &self.during;
        let (at, armed) = self.plan.iter_mut().enumerate().find(|(_, armed)| {
            let site = &armed.fault.site;
            let begins = site.nth == nth && site.during == *during;
            let goes_on = match armed.fault.span {
                Span::Times(times) => armed.fired < times,
                Span::Forever => true,
            };
            site.op == op && site.target == target && goes_on && (armed.fired > 0 || begins)
        })?;
        armed.fired += 1;
        Some((at, armed.fault.kind))
    }

    fn record(
        &mut self,
        op: Op,
        target: Target,
        nth: u32,
        (outcome, facts): (Outcome, Facts),
        fault: Option<usize>,
    ) {
        let kind = fault.map(|at| self.plan[at].fault.kind);
        let failed_after = matches!(kind, Some(Kind::After(_) | Kind::ShortThen(_)));
        let during = self.during.clone();
        self.trace.push(Event { during, op, target, nth, outcome, fault, failed_after, facts });
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock_state().open -= 1;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("ok"),
            Outcome::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Outcome::Locked(true) => f.write_str("locked"),
            Outcome::Locked(false) => f.write_str("held by another"),
            Outcome::Failed(errno) => write!(f, "{errno}"),
            Outcome::Dead => f.write_str("(the process is dead)"),
        }
    }
}

/// Each fact behind a comma.
impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(inode) = self.inode {
            write!(f, ", inode {inode}")?;
        }
        if let Some(size) = self.size {
            write!(f, ", {size} bytes")?;
        }
        self.mode.map_or(Ok(()), |mode| write!(f, ", mode {mode:04o}"))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place(), self.ending())
    }
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock_state();
        f.debug_struct("Injector").field("during", &state.during).field("calls", &state.trace.len()).finish()
    }
}
