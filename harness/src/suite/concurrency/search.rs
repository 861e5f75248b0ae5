//! Which schedules of two processes are tried: all with up to two switches that nobody asked for, or some by a seed.

use fastrand::Rng;

use super::Counts;
use super::judge::judge;
use super::sides::{Ground, Ran, Workload};
use super::turns::Schedule;
use crate::promise::{Promise, Violation};
use crate::scenario::HarnessError;
use crate::subject::Candidate;

/// Schedules that a seed chooses of each workload, and switches of each at most.
const DRAWN: usize = 150;
const MOST_SWITCHES: usize = 5;

/// What is told of each schedule; whether to go on.
pub(super) type Visit<'a> = dyn FnMut(&Schedule, &[Violation]) -> bool + 'a;

/// Tries every schedule in which a process that could go on has to stop at most twice.
///
/// # Errors
/// Where the store does not do alone what the workload begins with.
pub(super) fn all(
    candidate: &dyn Candidate,
    workload: &Workload,
    visit: &mut Visit<'_>,
) -> Result<Counts, HarnessError> {
    let mut search = Search::new(candidate, workload, visit)?;
    'search: for first in 0..2 {
        let Some(points) = search.run(&Schedule { first, switches: Vec::new() })? else { break };
        for one in points {
            let Some(points) = search.run(&Schedule { first, switches: vec![one] })? else { break 'search };
            for two in points.into_iter().filter(|two| *two > one) {
                let schedule = Schedule { first, switches: vec![one, two] };
                if search.run(&schedule)?.is_none() {
                    break 'search;
                }
            }
        }
    }
    Ok(search.end())
}

/// Tries some schedules that a seed chooses.
///
/// # Errors
/// As [`all`].
pub(super) fn some(
    candidate: &dyn Candidate,
    workload: &Workload,
    seed: u64,
    visit: &mut Visit<'_>,
) -> Result<Counts, HarnessError> {
    let mut random = Rng::with_seed(seed);
    let mut search = Search::new(candidate, workload, visit)?;
    let whole = [0, 1].map(|first| Schedule { first, switches: Vec::new() });
    let mut points = Vec::new();
    for schedule in &whole {
        let Some(found) = search.run(schedule)? else { return Ok(search.end()) };
        points.push(found);
    }
    for _ in 0..DRAWN {
        let first = random.usize(0..2);
        let count = random.usize(1..=MOST_SWITCHES);
        let mut switches = random.choose_multiple(points[first].iter().copied(), count);
        switches.sort_unstable();
        if search.run(&Schedule { first, switches })?.is_none() {
            break;
        }
    }
    Ok(search.end())
}

/// Runs one schedule and judges it.
///
/// # Errors
/// As [`all`]; [`HarnessError::NoSuchState`] where the schedule is not one of the workload.
pub(super) fn one(
    candidate: &dyn Candidate,
    workload: &Workload,
    schedule: &Schedule,
    look: impl FnOnce(&Ran),
) -> Result<Vec<Violation>, HarnessError> {
    let ran = Ground::new(candidate, workload)?.run(schedule)?;
    look(&ran);
    Ok(judge(candidate, workload, ran).0)
}

struct Search<'a, 'v> {
    candidate: &'a dyn Candidate,
    workload: &'a Workload,
    ground: Ground<'a>,
    counts: Counts,
    /// Whether the workload's trouble struck in any schedule.
    has_struck: bool,
    visit: &'a mut Visit<'v>,
}

impl<'a, 'v> Search<'a, 'v> {
    fn new(
        candidate: &'a dyn Candidate,
        workload: &'a Workload,
        visit: &'a mut Visit<'v>,
    ) -> Result<Search<'a, 'v>, HarnessError> {
        let ground = Ground::new(candidate, workload)?;
        Ok(Search { candidate, workload, ground, counts: Counts::default(), has_struck: false, visit })
    }

    /// What was counted. A trouble that never struck leaves its workload untried.
    fn end(self) -> Counts {
        if self.workload.trouble.is_some() && !self.has_struck {
            let evidence = "the planned trouble struck in no schedule".to_owned();
            let first = Schedule { first: 0, switches: Vec::new() };
            (self.visit)(&first, &[Violation { promise: Promise::FaultFired, evidence }]);
        }
        self.counts
    }

    /// Where this schedule could be left for another one; none where nobody wants to see more.
    fn run(&mut self, schedule: &Schedule) -> Result<Option<Vec<usize>>, HarnessError> {
        let ran = self.ground.run(schedule)?;
        let points = ran.course.points().collect();
        self.has_struck |= ran.struck > 0;
        let (violations, counts) = judge(self.candidate, self.workload, ran);
        self.counts.add(&counts);
        Ok((self.visit)(schedule, &violations).then_some(points))
    }
}
