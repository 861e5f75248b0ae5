//! The suite's own means, open to what checks and measures them.

use super::judge::judge;
use super::record::record;
use super::{Options, State, Token};
use crate::disk::Disk;
use crate::fault::Plan;
use crate::scenario::HarnessError;
use crate::workload::Workload;

/// Every disk that a cut in `workload` may leave, equal ones again for each cut that leaves them, each with how many
/// system calls of the store had been made when the power was cut. For checks of the enumeration by other means.
///
/// # Errors
/// Where the workload cannot be run.
pub fn visited(
    workload: &Workload,
    plan: &Plan,
    options: &Options,
) -> Result<Vec<(usize, Disk)>, HarnessError> {
    let visits = record(workload, plan, &Options { keeps_equal: true, ..*options })?.visits;
    let moments = visits.moments;
    Ok(visits.found.into_iter().map(|visit| (moments[visit.at.0], visit.disk)).collect())
}

/// The distinct states of one workload, to be judged again and again: no verdict is remembered.
pub struct Checks {
    options: Options,
    states: Vec<State>,
}

impl Checks {
    /// The states that cuts in `workload` may leave.
    ///
    /// # Errors
    /// Where the workload cannot be run.
    pub fn of(workload: &Workload, options: &Options) -> Result<Checks, HarnessError> {
        let plan = Plan::default();
        let visits = record(workload, &plan, options)?.visits;
        let token = |at| Token {
            profile: options.profile,
            workload: workload.clone(),
            plan: plan.clone(),
            cuts: vec![at],
        };
        let states = visits.found.into_iter();
        let states =
            states.map(|visit| State { disk: visit.disk, history: visit.history, token: token(visit.at) });
        Ok(Checks { options: *options, states: states.collect() })
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Judges one state in full: restart, inspection and recovery where the restart refuses, append, cut, restart; with
    /// the cuts within the recovery, if the options say so.
    /// Whether every promise held; states beyond the last begin again at the first.
    ///
    /// # Errors
    /// Where the harness could not do its work.
    pub fn check(&self, at: usize) -> Result<bool, HarnessError> {
        match self.states.get(at % self.states.len().max(1)) {
            Some(state) => Ok(judge(state, &self.options).violations.is_empty()),
            None => Err(HarnessError::NoSuchState),
        }
    }
}
