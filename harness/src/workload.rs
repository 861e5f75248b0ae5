//! Small workloads of a session store: all of them, up to a length.

use std::fmt;
use std::str::FromStr;

/// One thing that an agent does with its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Appends below the active leaf.
    Append,
    /// Appends below the first entry, on another branch.
    Branch,
    /// Moves the active leaf to the first entry.
    Move,
    /// Flushes.
    Flush,
    /// Loads the session again in the same process.
    Reload,
    /// Another process loads the session and appends.
    Second,
}

impl Step {
    /// Every step.
    pub const ALL: &'static [Step] =
        &[Step::Append, Step::Branch, Step::Move, Step::Flush, Step::Reload, Step::Second];

    /// The step's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Step::Append => "append",
            Step::Branch => "branch",
            Step::Move => "move",
            Step::Flush => "flush",
            Step::Reload => "reload",
            Step::Second => "second",
        }
    }
}

/// What is on the disk before a workload begins, all of it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Start {
    /// Nothing: the workload creates the session first.
    New,
    /// A session of one entry.
    Session,
    /// A session of one entry and a torn tail.
    TornTail,
}

impl Start {
    /// Every start.
    pub const ALL: &'static [Start] = &[Start::New, Start::Session, Start::TornTail];

    /// The start's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Start::New => "new",
            Start::Session => "session",
            Start::TornTail => "torn",
        }
    }
}

/// A start and the steps from there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload {
    /// Where it begins.
    pub start: Start,
    /// What is done.
    pub steps: Vec<Step>,
}

/// Every workload of exactly `length` steps from every start. Shorter ones are their beginnings: a cut after each
/// system call visits those too.
pub fn all(length: usize) -> Vec<Workload> {
    let mut sequences: Vec<Vec<Step>> = vec![Vec::new()];
    for _ in 0..length {
        sequences = sequences
            .into_iter()
            .flat_map(|begun| {
                Step::ALL.iter().map(move |step| {
                    let mut longer = begun.clone();
                    longer.push(*step);
                    longer
                })
            })
            .collect();
    }
    let starts = Start::ALL.iter();
    starts
        .flat_map(|start| sequences.iter().map(|steps| Workload { start: *start, steps: steps.clone() }))
        .collect()
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.start.as_str())?;
        for step in &self.steps {
            write!(f, ",{}", step.as_str())?;
        }
        Ok(())
    }
}

/// The text is no workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no part of a workload: one reads `session,append,second`")]
pub struct UnknownStep(String);

impl FromStr for Workload {
    type Err = UnknownStep;

    fn from_str(text: &str) -> Result<Workload, UnknownStep> {
        let mut words = text.split(',');
        let unknown = |word: &str| UnknownStep(word.to_owned());
        let first = words.next().unwrap_or_default();
        let start =
            Start::ALL.iter().copied().find(|it| it.as_str() == first).ok_or_else(|| unknown(first))?;
        let step = |word: &str| {
            Step::ALL.iter().copied().find(|it| it.as_str() == word).ok_or_else(|| unknown(word))
        };
        Ok(Workload { start, steps: words.map(step).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_is_there_once_and_reads_back() {
        let two = all(2);
        assert_eq!(two.len(), 3 * 36);
        for workload in &two {
            assert_eq!(workload.to_string().parse(), Ok(workload.clone()));
        }
        assert!("session,fly".parse::<Workload>().is_err());
    }
}
