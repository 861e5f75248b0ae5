//! Two processes that take turns at the grain of system calls: one runs until a schedule says that the other one goes
//! on, until it waits for the other one, or until it is done.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::fault::{Op, Role, Target};
use crate::inject::Moment;

/// One of the two processes: 0 or 1.
pub(super) type Side = usize;

/// Which process begins, and before which system calls the other one goes on. Calls are counted from 0, over both.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Schedule {
    pub(super) first: Side,
    pub(super) switches: Vec<usize>,
}

/// One system call, as the schedule saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) side: Side,
    /// Whether the other process could see that it was made, or it what the other one did.
    is_shared: bool,
    /// Whether the other process was still at work.
    has_rival: bool,
}

/// What came of a schedule.
#[derive(Debug, Clone, Default)]
pub(super) struct Course {
    pub(super) steps: Vec<Step>,
    /// Whether a process waited for the other one.
    pub(super) waited: bool,
    /// Switches of the schedule that were made.
    pub(super) switched: usize,
}

impl Course {
    /// The calls before which a switch leads to something new: within a run of one process, before a call by which one
    /// can see the other. Calls that only their own process can see may be made earlier or later, and nothing differs.
    pub(super) fn points(&self) -> impl Iterator<Item = usize> {
        let is_within = |pair: &[Step]| pair[0].side == pair[1].side && pair[1].has_rival;
        self.steps
            .windows(2)
            .enumerate()
            .filter(move |(_, pair)| is_within(pair) && pair[1].is_shared)
            .map(|(at, _)| at + 1)
    }
}

/// Whose turn it is. Cloning gives another handle.
#[derive(Clone)]
pub(super) struct Turns(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    moved: Condvar,
    /// Whether temporaries are looked at by the other process too.
    shares_temporaries: bool,
}

struct State {
    running: Side,
    is_done: [bool; 2],
    switches: Vec<usize>,
    course: Course,
    /// Nobody waits for anybody any more.
    is_over: bool,
}

impl Turns {
    pub(super) fn new(schedule: &Schedule, shares_temporaries: bool) -> Turns {
        let state = State {
            running: schedule.first,
            is_done: [false; 2],
            switches: schedule.switches.clone(),
            course: Course::default(),
            is_over: false,
        };
        Turns(Arc::new(Shared { state: Mutex::new(state), moved: Condvar::new(), shares_temporaries }))
    }

    /// What the process's system calls pass; see [`Injector::gate`](crate::inject::Injector::gate).
    pub(super) fn pass(&self, side: Side, moment: Moment) {
        match moment {
            Moment::Before(op, target) => self.step(side, op, target),
            Moment::Pause => self.give_way(side),
        }
    }

    /// Waits until it is this process's turn, and says how many system calls were made by then.
    pub(super) fn enter(&self, side: Side) -> usize {
        self.wait(side, self.lock()).course.steps.len()
    }

    /// The process is done, and the other one goes on.
    pub(super) fn finish(&self, side: Side) {
        let mut state = self.lock();
        state.is_done[side] = true;
        state.running = 1 - side;
        self.0.moved.notify_all();
    }

    /// Both are done: what their stores do from now on is nobody's turn.
    pub(super) fn end(&self) -> Course {
        let mut state = self.lock();
        state.is_over = true;
        std::mem::take(&mut state.course)
    }

    fn step(&self, side: Side, op: Op, target: Target) {
        let mut state = self.wait(side, self.lock());
        if state.is_over {
            return;
        }
        let at = state.course.steps.len();
        if state.switches.first() == Some(&at) {
            state.switches.remove(0);
            if !state.is_done[1 - side] {
                state.course.switched += 1;
                state = self.switch(side, state);
            }
        }
        let step = Step {
            side,
            is_shared: is_shared(op, target, self.0.shares_temporaries),
            has_rival: !state.is_done[1 - side],
        };
        state.course.steps.push(step);
    }

    fn give_way(&self, side: Side) {
        let mut state = self.wait(side, self.lock());
        state.course.waited |= !state.is_over;
        if !state.is_done[1 - side] && !state.is_over {
            drop(self.switch(side, state));
        }
    }

    fn switch<'a>(&'a self, side: Side, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.running = 1 - side;
        self.0.moved.notify_all();
        self.wait(side, state)
    }

    fn wait<'a>(&'a self, side: Side, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.running != side && !state.is_over {
            state = self.0.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, so a panic of the store under test spoils nothing.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a process's part, also where the store panics.
pub(super) struct Part<'a> {
    pub(super) turns: &'a Turns,
    pub(super) side: Side,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.turns.finish(self.side);
    }
}

/// Whether a call can be told from one that was made earlier or later, by either process. What is durable is nobody's
/// sight but a power cut's.
fn is_shared(op: Op, target: Target, shares_temporaries: bool) -> bool {
    let is_of_one = |role| target == Target::one(role);
    let is_about_root =
        matches!(op, Op::Stat | Op::Fstat | Op::OpenDir | Op::Statfs) && is_of_one(Role::Root);
    let is_own = is_of_one(Role::Temporary) && matches!(op, Op::Fstat | Op::Write) && !shares_temporaries;
    !is_about_root && !is_own && !matches!(op, Op::Fsync | Op::Chmod)
}

/// Which process begins, from 1, and the calls before which the other one goes on, as `1.14.30`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first + 1)?;
        self.switches.iter().try_for_each(|at| write!(f, ".{at}"))
    }
}

/// The text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no schedule of two processes: one reads `1.14.30`")]
pub(super) struct UnknownSchedule(String);

impl FromStr for Schedule {
    type Err = UnknownSchedule;

    fn from_str(text: &str) -> Result<Schedule, UnknownSchedule> {
        let unknown = || UnknownSchedule(text.to_owned());
        let (first, switches) =
            text.split_once('.').map_or((text, None), |(first, rest)| (first, Some(rest)));
        let first = match first {
            "1" => 0,
            "2" => 1,
            _ => return Err(unknown()),
        };
        let switches = switches.into_iter().flat_map(|rest| rest.split('.'));
        let switches: Vec<usize> =
            switches.map(str::parse).collect::<Result<_, _>>().map_err(|_| unknown())?;
        if switches.is_sorted() { Ok(Schedule { first, switches }) } else { Err(unknown()) }
    }
}
