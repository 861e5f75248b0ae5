//! The promises that every session store makes, whatever its format: nothing that was acknowledged is lost, nothing is
//! invented, and what somebody else did to the files is noticed.
//!
//! The cases know a store by its answers alone, on a real directory. Of its files they know the path; they cut, damage and
//! replace them, and compare their bytes. Where a promise can only be asked of a file that grows at its end, that is looked
//! at first, and a store with other files is not asked.

use std::io;
use std::time::Duration;

use crate::call::Reply;
use crate::inject::Injector;
use crate::protocol::{Capability, Hello};
use crate::subject::command::{Manner, StartError, indented};
use crate::subject::{Candidate, Subject};
use crate::world::{Backend, World};

mod damage;
mod ground;
mod hindered;
mod life;
mod messages;
mod outside;
mod signals;
mod small_disk;

use ground::Ground;

/// The topic of these cases within the conformance suite.
pub const TOPIC: &str = "conformance/any-store";

/// A store on a real directory, whose processes can be started.
pub struct Store<'a> {
    /// Starts a process of it.
    start: Box<Start<'a>>,
    /// Whether it has trees.
    has_trees: bool,
    /// Whether it can inspect and recover.
    recovers: bool,
}

/// Starts a process of a store.
type Start<'a> = dyn Fn(Manner) -> Result<Box<dyn Subject>, StartError> + Sync + 'a;

impl<'a> Store<'a> {
    /// A store that said `hello`, and what starts a process of it.
    pub fn of(
        hello: &Hello,
        start: impl Fn(Manner) -> Result<Box<dyn Subject>, StartError> + Sync + 'a,
    ) -> Store<'a> {
        let (has_trees, recovers) = (hello.can(Capability::Tree), hello.can(Capability::Recover));
        Store { start: Box::new(start), has_trees, recovers }
    }

    /// A store in this process.
    pub fn of_candidate(candidate: &'a dyn Candidate) -> Store<'a> {
        let start = |manner: Manner| {
            if manner.takes_a_process() {
                return Err(StartError::NoProcess);
            }
            // The files of a case are not in that world's directory, which goes at once.
            let mut world = World::new(Backend::Real, "session.jsonl").map_err(StartError::Directory)?;
            Ok(candidate.start(world.process(&Injector::watching())))
        };
        Store { start: Box::new(start), has_trees: true, recovers: true }
    }
}

/// One case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name below [`TOPIC`].
    pub name: &'static str,
    /// What must happen, in one line.
    pub title: &'static str,
    /// The requirements of the contract that say so.
    pub requirements: &'static [&'static str],
    run: fn(&mut Ground<'_>) -> Judged,
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The store keeps the promise.
    Pass,
    /// It does not; the evidence.
    Violation(String),
    /// It cannot be asked; the reason.
    Unsupported(String),
    /// It took a file of another kind for its own, so that what it answered is no answer; the evidence.
    Mistaken(String),
    /// It gave no answer: what became of it instead, and words on that.
    Silent(Silence, String),
}

/// What there was instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// Nothing, for too long.
    Timeout,
    /// The end of the process, or a panic.
    Crash,
    /// Something that is no answer of the protocol.
    Protocol,
}

/// Why a case could not be run, which says nothing about the promise.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The files could not be prepared or looked at.
    #[error("the harness could not prepare or read the files of a case: {0}")]
    Files(#[from] io::Error),
    /// What was to disturb the store did not.
    #[error("the fault did not strike: {0}")]
    NotStruck(String),
    /// No process of the store could be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// How a case ends before its last line.
enum Stop {
    Outcome(Outcome),
    Error(CheckError),
}

type Judged = Result<(), Stop>;

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Error(error.into())
    }
}

impl From<StartError> for Stop {
    fn from(error: StartError) -> Stop {
        Stop::Error(error.into())
    }
}

fn violated<T>(evidence: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Outcome(Outcome::Violation(evidence.into())))
}

/// Of a reply that is no answer.
fn silent(reply: Reply, said: Option<&str>) -> Stop {
    let (silence, mut words) = match reply {
        Reply::Timeout => (Silence::Timeout, "no answer in time".to_owned()),
        Reply::Exited(how) => (Silence::Crash, how),
        Reply::Panicked(what) => (Silence::Crash, what),
        Reply::Protocol(what) => (Silence::Protocol, what),
        // All of these are answers.
        answer @ (Reply::Ok(_) | Reply::Refused(_) | Reply::Unsupported(_)) => {
            (Silence::Protocol, format!("{answer:?}"))
        }
    };
    if let Some(said) = said {
        words += "\nits standard error:\n";
        words += &indented(said);
    }
    Stop::Outcome(Outcome::Silent(silence, words))
}

fn unsupported<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Outcome(Outcome::Unsupported(reason.into())))
}

/// How long the kill of a process is put off at most, in the case that kills within an append.
const LONGEST_DELAY: Duration = Duration::from_millis(12);

/// Every case.
pub const CASES: [Case; 30] = [
    Case {
        name: "loaded-again",
        title: "a session that was closed is loaded again as it was, in this process and in another one",
        requirements: &["S5", "S7"],
        run: life::loaded_again,
    },
    Case {
        name: "killed-after-an-answer",
        title: "what was acknowledged is there after kill -9",
        requirements: &["S5", "C23"],
        run: life::killed_after_an_answer,
    },
    Case {
        name: "killed-within-an-append",
        title: "what was acknowledged is there after kill -9 at any moment of the next append",
        requirements: &["C23"],
        run: life::killed_within_an_append,
    },
    Case {
        name: "killed-in-a-burst",
        title: "what was acknowledged is there after kill -9 at random moments of many appends",
        requirements: &["C23"],
        run: signals::killed_in_a_burst,
    },
    Case {
        name: "killed-at-a-change",
        title: "what was acknowledged is there after kill -9 at each change of the session's directory",
        requirements: &["C23"],
        run: signals::killed_at_a_change,
    },
    Case {
        name: "stopped-within-an-append",
        title: "a process that stands still within an append, beside another one, loses nothing",
        requirements: &["S8"],
        run: signals::stopped_within_an_append,
    },
    Case {
        name: "refused-append",
        title: "a refused append changes neither the entries nor what the next load shows",
        requirements: &["S5"],
        run: life::refused_append,
    },
    Case {
        name: "failed-append",
        title: "an append that fails for want of its directory is in doubt nowhere: not in memory, not on disk",
        requirements: &["S5", "S3"],
        run: life::failed_append,
    },
    Case {
        name: "failed-append-of-a-tree",
        title: "an append that fails does not move the leaf",
        requirements: &["T3"],
        run: life::failed_append_of_a_tree,
    },
    Case {
        name: "file-size-limit",
        title: "an append beyond the limit of a file's size fails, and nothing of it stays",
        requirements: &["S5", "C3"],
        run: hindered::file_size_limit,
    },
    Case {
        name: "file-size-limit-of-a-tree",
        title: "after an append that failed, the next one has a parent that is on disk",
        requirements: &["T3", "S5"],
        run: hindered::file_size_limit_of_a_tree,
    },
    Case {
        name: "full-disk",
        title: "an append to a full disk fails, and nothing of it stays",
        requirements: &["S5", "C3"],
        run: hindered::full_disk,
    },
    Case {
        name: "full-disk-next-append",
        title: "after a full disk, the next append works and is there after a load",
        requirements: &["S5", "C3"],
        run: hindered::full_disk_next_append,
    },
    Case {
        name: "full-disk-at-create",
        title: "a session that had no room to begin can begin when there is room",
        requirements: &["S1"],
        run: hindered::full_disk_at_create,
    },
    Case {
        name: "read-only-disk",
        title: "an append to a disk that became read-only fails, and nothing of it stays",
        requirements: &["S5", "C2"],
        run: hindered::read_only_disk,
    },
    Case {
        name: "unwritable-directory",
        title: "an append in a directory that cannot be written fails whole, or is there",
        requirements: &["S5", "C2"],
        run: hindered::unwritable_directory,
    },
    Case {
        name: "replaced-directory",
        title: "another directory in place of the session's is noticed, or nothing is lost",
        requirements: &["S3"],
        run: hindered::replaced_directory,
    },
    Case {
        name: "other-branch",
        title: "going to another branch loses no entry",
        requirements: &["T2", "T4", "T5"],
        run: life::other_branch,
    },
    Case {
        name: "two-processes-in-turn",
        title: "two processes that append in turn lose nothing that was acknowledged",
        requirements: &["S8"],
        run: life::two_processes_in_turn,
    },
    Case {
        name: "two-processes-one-branch",
        title: "what two processes append at their leaves in turn is one branch, or one of them is refused",
        requirements: &["S8", "T1", "T3"],
        run: life::two_processes_one_branch,
    },
    Case {
        name: "two-processes-at-once",
        title: "two processes that append at the same time lose nothing that was acknowledged",
        requirements: &["S8"],
        run: life::two_processes_at_once,
    },
    Case {
        name: "created-twice",
        title: "create leaves a session that is there alone",
        requirements: &["S1"],
        run: outside::created_twice,
    },
    Case {
        name: "replaced",
        title: "a session that was replaced while it was open is noticed, or nothing is lost",
        requirements: &["S4"],
        run: outside::replaced,
    },
    Case {
        name: "removed",
        title: "a session that was removed while it was open is noticed, or nothing is lost",
        requirements: &["S4"],
        run: outside::removed,
    },
    Case {
        name: "cut-short",
        title: "a session that was cut short while it was open is noticed, or nothing is lost",
        requirements: &["S4"],
        run: outside::cut_short,
    },
    Case {
        name: "no-regular-file",
        title: "a symbolic link, a FIFO or a directory in place of a session is refused and left alone",
        requirements: &["S1", "S2"],
        run: outside::no_regular_file,
    },
    Case {
        name: "another-kind",
        title: "a file of another kind is not changed by being opened",
        requirements: &["S1", "S2", "R7"],
        run: outside::another_kind,
    },
    Case {
        name: "torn-tail",
        title: "a file that ends within its last entry costs that entry at most, also after the next append",
        requirements: &["F4", "F5"],
        run: damage::torn_tail,
    },
    Case {
        name: "damaged-middle",
        title: "a file that is damaged before its end is refused, or nothing is missing",
        requirements: &["F3"],
        run: damage::damaged_middle,
    },
    Case {
        name: "parent-cycle",
        title: "a file whose entries descend from themselves is refused, and quickly",
        requirements: &["R5"],
        run: damage::parent_cycle,
    },
];

impl Case {
    /// Its id among all cases.
    pub fn id(&self) -> String {
        format!("{TOPIC}/{}", self.name)
    }
}

/// Runs a case.
///
/// # Errors
/// Where the harness could not do its part.
pub fn check(case: &Case, store: &Store<'_>) -> Result<Outcome, CheckError> {
    let mut ground = Ground::new(store)?;
    match (case.run)(&mut ground) {
        Ok(()) => Ok(Outcome::Pass),
        Err(Stop::Outcome(outcome)) => Ok(outcome),
        Err(Stop::Error(error)) => Err(error),
    }
}
