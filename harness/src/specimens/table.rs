//! The gallery: what each specimen does, and which promise must catch it.

use super::Specimen;
use super::defect::Defect as D;
use super::hunt::Shown;
use super::reader::Flaw as F;
use crate::crash::Profile::{Ordered, Process};
use crate::promise::Promise as P;

/// What a specimen is broken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The commit of a generation, and what follows its failure.
    Commit,
    /// What is shown from memory.
    Memory,
    /// What becomes of a session after a crash.
    Recovery,
    /// What processes and strangers do to each other.
    Process,
    /// How bytes are read and written.
    Format,
    /// How files are opened, created and kept.
    File,
    /// Nothing: the harness itself is tested by it.
    Control,
}

impl Kind {
    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Commit => "commit",
            Kind::Memory => "memory",
            Kind::Recovery => "recovery",
            Kind::Process => "process",
            Kind::Format => "format",
            Kind::File => "file",
            Kind::Control => "control",
        }
    }
}

const fn broken(name: &'static str, kind: Kind, defect: D, shown: Shown, story: &'static str) -> Specimen {
    Specimen { name, kind, story, shown: Some(shown), defect: Some(defect), flaw: None }
}

const fn flawed(
    name: &'static str,
    flaw: F,
    requirements: &'static [&'static str],
    story: &'static str,
) -> Specimen {
    let shown = Some(Shown::Conformance(requirements));
    Specimen { name, kind: Kind::Format, story, shown, defect: None, flaw: Some(flaw) }
}

/// The small good store.
pub static SMALL: Specimen = Specimen {
    name: "small",
    kind: Kind::Control,
    story: "a small store, written from the contract, that keeps every promise",
    shown: None,
    defect: None,
    flaw: None,
};

/// What is certain to be caught: where it is not, the harness sees nothing.
pub static CANARY: Specimen = broken(
    "canary",
    Kind::Control,
    D::AcknowledgesOnly,
    Shown::Faults(P::AcknowledgedSurvive),
    "an append is acknowledged and nothing is written",
);

/// Every specimen.
pub static ALL: &[Specimen] = &[
    // Durability.
    broken(
        "no-file-fsync",
        Kind::Commit,
        D::NoFileFsync,
        Shown::Crash(P::AcknowledgedSurvive, Ordered),
        "the new generation is renamed into place before its bytes are durable",
    ),
    broken(
        "no-directory-fsync",
        Kind::Commit,
        D::NoDirectoryFsync,
        Shown::Crash(P::AcknowledgedSurvive, Ordered),
        "a rename is acknowledged before it is durable",
    ),
    broken(
        "directory-fsync-error-ignored",
        Kind::Commit,
        D::DirectoryFsyncIgnored,
        Shown::Crash(P::AcknowledgedSurvive, Ordered),
        "the fsync of the directory fails and the commit goes on",
    ),
    broken(
        "directory-fsync-not-permitted",
        Kind::Commit,
        D::DirectoryFsyncRefused,
        Shown::Faults(P::NoHiddenFailure),
        "EPERM from the fsync of a directory counts as success",
    ),
    broken(
        "fsync-again",
        Kind::Commit,
        D::FsyncRetried,
        Shown::Crash(P::AcknowledgedSurvive, Ordered),
        "an fsync that failed is made again, and the second answer is believed",
    ),
    broken(
        "fsync-interrupted-again",
        Kind::Commit,
        D::FsyncRepeated,
        Shown::Faults(P::NoHiddenFailure),
        "an interrupted fsync is repeated like a read",
    ),
    broken(
        "close-error-ignored",
        Kind::Commit,
        D::CloseIgnored,
        Shown::Faults(P::NoHiddenFailure),
        "nobody looks at what close answers",
    ),
    broken(
        "short-write-believed",
        Kind::Commit,
        D::ShortWriteBelieved,
        Shown::Faults(P::AcknowledgedSurvive),
        "one write is taken to have written everything",
    ),
    broken(
        "no-progress-for-ever",
        Kind::Commit,
        D::NoProgressRepeated,
        Shown::Faults(P::TypedRefusal),
        "a write that takes nothing is repeated without end",
    ),
    // Rename, marker, roll back.
    broken(
        "rename-error-believed",
        Kind::Commit,
        D::RenameErrorBelieved,
        Shown::Faults(P::FailedMeansOld),
        "a rename that answers an error is taken to have done nothing",
    ),
    broken(
        "rename-error-rolls-back",
        Kind::Commit,
        D::RenameErrorRollsBack,
        Shown::Faults(P::FailedMeansOld),
        "after a failed rename the marker is renamed over the path, which is the same inode",
    ),
    broken(
        "rename-failure-ignored",
        Kind::Commit,
        D::RenameFailureIgnored,
        Shown::Faults(P::AcknowledgedSurvive),
        "success is reported although the rename failed",
    ),
    broken(
        "no-roll-back",
        Kind::Commit,
        D::NoRollBack,
        Shown::Faults(P::FailedMeansOld),
        "after a failure behind the rename the new generation stays",
    ),
    broken(
        "roll-back-unsynced",
        Kind::Commit,
        D::RollBackUnsynced,
        Shown::Crash(P::NothingInvented, Ordered),
        "what was rolled back comes back after a power cut",
    ),
    broken(
        "roll-back-unlooked",
        Kind::Process,
        D::RollBackUnlooked,
        Shown::Faults(P::ForeignUntouched),
        "a roll back replaces whatever is at the path by now",
    ),
    broken(
        "marker-stays",
        Kind::Commit,
        D::MarkerStays,
        Shown::Faults(P::FailedMeansOld),
        "a commit that fails behind the marker's link leaves it",
    ),
    broken(
        "marker-by-name",
        Kind::Process,
        D::MarkerByName,
        Shown::Faults(P::ForeignUntouched),
        "the marker is removed by its name, whoever has put it there",
    ),
    broken(
        "marker-stolen",
        Kind::Process,
        D::MarkerStolen,
        Shown::Faults(P::ForeignUntouched),
        "a marker that is in the way is removed",
    ),
    broken(
        "marker-emptied",
        Kind::Commit,
        D::MarkerEmptied,
        Shown::Faults(P::AcknowledgedSurvive),
        "the marker is emptied before it is removed, and with it the file whose second name it is",
    ),
    broken(
        "marker-ignored",
        Kind::Recovery,
        D::MarkerIgnored,
        Shown::Faults(P::GoesOnAfterwards),
        "a load shows what a marker says is undecided, and nothing can be appended to it",
    ),
    broken(
        "poison-forgotten",
        Kind::Commit,
        D::PoisonForgotten,
        Shown::Faults(P::PoisonHolds),
        "a store whose generation is in doubt goes on",
    ),
    broken(
        "fails-for-ever",
        Kind::Commit,
        D::FailsForEver,
        Shown::Faults(P::RetrySucceeds),
        "after one failed write every later one fails",
    ),
    broken(
        "doubts-everything",
        Kind::Commit,
        D::DoubtsEverything,
        Shown::Faults(P::RetrySucceeds),
        "every failure poisons the store, also one that touched nothing",
    ),
    // Temporaries, descriptors, locks, modes.
    broken(
        "temporary-left",
        Kind::File,
        D::TemporaryLeft,
        Shown::Faults(P::NoStray),
        "after a failed write the temporary stays",
    ),
    broken(
        "temporary-fixed",
        Kind::File,
        D::TemporaryFixed,
        Shown::Faults(P::GoesOnAfterwards),
        "every temporary has one name, and one that a dead process left stops every other",
    ),
    broken(
        "temporary-reused",
        Kind::File,
        D::TemporaryReused,
        Shown::Crash(P::AcknowledgedSurvive, Process),
        "a temporary that is there is emptied and used, although it may be the session's second name",
    ),
    broken(
        "temporary-by-name",
        Kind::Process,
        D::TemporaryByName,
        Shown::Faults(P::ForeignUntouched),
        "the temporary is removed by its name, whatever has taken it",
    ),
    broken(
        "strays-in-the-way",
        Kind::Process,
        D::StraysInTheWay,
        Shown::Faults(P::GoesOnAfterwards),
        "nothing is written where a dead process left a temporary",
    ),
    broken(
        "strangers-swept",
        Kind::Process,
        D::StrangersSwept,
        Shown::Faults(P::ForeignUntouched),
        "other sessions' temporaries are swept away",
    ),
    broken(
        "descriptor-leaked",
        Kind::File,
        D::DescriptorLeaked,
        Shown::Faults(P::NothingLeaks),
        "after a failed write the descriptor stays open",
    ),
    broken(
        "lock-leaked",
        Kind::Process,
        D::LockLeaked,
        Shown::Faults(P::NothingLeaks),
        "after a failure the lock stays",
    ),
    broken(
        "mode-error-ignored",
        Kind::File,
        D::ModeErrorIgnored,
        Shown::Faults(P::ModeIsKept),
        "a temporary is created for everybody, and nobody looks whether it was made private",
    ),
    // Strangers and other processes.
    broken(
        "stale-view-writes",
        Kind::Process,
        D::StaleViewWrites,
        Shown::Crash(P::AcknowledgedSurvive, Process),
        "a rewrite from an old view erases what another process appended",
    ),
    broken(
        "compared-once",
        Kind::Process,
        D::ComparedOnce,
        Shown::Faults(P::NoSilentContinuation),
        "only the first commit compares the path with what was loaded",
    ),
    broken(
        "size-not-compared",
        Kind::Process,
        D::SizeUncompared,
        Shown::Faults(P::NoSilentContinuation),
        "a file that was cut or grew behind the store's back is still taken for its generation",
    ),
    broken(
        "compared-later",
        Kind::Process,
        D::ComparedLater,
        Shown::Faults(P::NoSilentContinuation),
        "the first commit takes whatever the path names for what was loaded",
    ),
    broken(
        "failed-create-stays",
        Kind::File,
        D::FailedCreateStays,
        Shown::Faults(P::FailedMeansOld),
        "a create that fails leaves a session that no create accepts afterwards",
    ),
    broken(
        "create-replaces",
        Kind::Process,
        D::CreateReplaces,
        Shown::Faults(P::ForeignUntouched),
        "a create renames over what somebody put there meanwhile",
    ),
    broken(
        "fifo-waited-for",
        Kind::File,
        D::OpensAnything,
        Shown::Faults(P::TypedRefusal),
        "a load opens the path as any program would, and waits for the writer of a FIFO",
    ),
    broken(
        "load-sweeps",
        Kind::Recovery,
        D::LoadSweeps,
        Shown::Faults(P::LoadReadsOnly),
        "a load removes what a dead process left",
    ),
    broken(
        "load-repairs",
        Kind::File,
        D::LoadRepairs,
        Shown::Crash(P::LoadReadsOnly, Process),
        "a load cuts the torn tail off",
    ),
    broken(
        "lock-not-taken",
        Kind::Process,
        D::LockNotTaken,
        Shown::Concurrency(P::AcknowledgedSurvive),
        "two processes commit at once, and the second one's rename erases what the first one acknowledged",
    ),
    // Stores that write in place.
    broken(
        "append-unsynced",
        Kind::File,
        D::AppendsUnsynced,
        Shown::Crash(P::AcknowledgedSurvive, Ordered),
        "a line is appended and acknowledged without an fsync",
    ),
    broken(
        "append-at-known-end",
        Kind::Process,
        D::AppendsAtKnownEnd,
        Shown::Crash(P::AcknowledgedSurvive, Process),
        "a line is written where the file ended when it was loaded, over another process's",
    ),
    broken(
        "torn-tail-kept",
        Kind::File,
        D::TornTailKept,
        Shown::Crash(P::AcknowledgedSurvive, Process),
        "a torn tail is written again, and the new line is glued to it",
    ),
    broken(
        "partial-line-stays",
        Kind::File,
        D::PartialLineStays,
        Shown::Faults(P::AcknowledgedSurvive),
        "a full disk leaves half a line, and the next one is glued to it",
    ),
    broken(
        "rewrite-in-place",
        Kind::File,
        D::RewritesInPlace,
        Shown::Crash(P::AcknowledgedSurvive, Process),
        "the file is emptied and written anew",
    ),
    broken(
        "writes-to-held-file",
        Kind::File,
        D::WritesToHeldFile,
        Shown::Faults(P::NoSilentContinuation),
        "lines go to the file that was opened at first, which has no name any more",
    ),
    broken(
        "file-recreated",
        Kind::File,
        D::RecreatesFile,
        Shown::Faults(P::NoSilentContinuation),
        "a session that was removed is made anew without its header",
    ),
    broken(
        "link-followed",
        Kind::File,
        D::FollowsLinks,
        Shown::Faults(P::ForeignUntouched),
        "a line is appended to the file that a symbolic link leads to",
    ),
    broken(
        "undo-cuts-rival",
        Kind::Process,
        D::UndoCutsRival,
        Shown::Concurrency(P::AcknowledgedSurvive),
        "after a short write the file is cut to its old length, and with it what another process appended meanwhile",
    ),
    // Memory and trees.
    broken(
        "failed-append-shown",
        Kind::Memory,
        D::FailedShown,
        Shown::Faults(P::MemoryAgrees),
        "an entry whose commit failed is shown",
    ),
    broken(
        "failed-append-kept",
        Kind::Memory,
        D::FailedKept,
        Shown::Faults(P::MemoryAgrees),
        "an entry whose commit failed is written by the next one",
    ),
    broken(
        "entries-from-disk",
        Kind::Memory,
        D::EntriesFromDisk,
        Shown::Faults(P::MemoryAgrees),
        "after a failure, showing the entries asks the disk",
    ),
    broken(
        "leaf-moved-first",
        Kind::Memory,
        D::LeafMovedFirst,
        Shown::Crash(P::RetrySucceeds, Process),
        "the leaf moves before the commit, and after a failure no append has a parent",
    ),
    broken(
        "queue-order-lost",
        Kind::Memory,
        D::QueueOrderLost,
        Shown::Concurrency(P::CallsInOrder),
        "of calls that are begun together the last one takes effect first",
    ),
    broken(
        "move-not-queued",
        Kind::Memory,
        D::MoveNotQueued,
        Shown::Concurrency(P::CallsInOrder),
        "a move does not wait for the appends that were begun before it",
    ),
    // Answers.
    broken(
        "code-unknown",
        Kind::Commit,
        D::CodeUnknown,
        Shown::Faults(P::TypedRefusal),
        "a refusal has a code that nobody knows",
    ),
    broken(
        "errno-lost",
        Kind::Commit,
        D::ErrnoLost,
        Shown::Faults(P::CauseIsKept),
        "every failure is told as EIO",
    ),
    broken(
        "stage-lost",
        Kind::Commit,
        D::StageLost,
        Shown::Faults(P::CauseIsKept),
        "every failure is told to have struck at the beginning",
    ),
    broken(
        "panics-when-full",
        Kind::Commit,
        D::PanicsWhenFull,
        Shown::Faults(P::TypedRefusal),
        "a full disk is a panic",
    ),
    // Recovery.
    broken(
        "recovery-prefers-marker",
        Kind::Recovery,
        D::RecoveryPrefersMarker,
        Shown::Crash(P::AcknowledgedSurvive, Ordered),
        "a recovery puts the old generation back although the new one was acknowledged",
    ),
    broken(
        "recovery-deletes-damage",
        Kind::Recovery,
        D::RecoveryDeletesDamage,
        Shown::Recovery,
        "a recovery replaces a damaged session, and what could be read of it is gone",
    ),
    broken(
        "recovery-takes-either",
        Kind::Recovery,
        D::RecoveryTakesDiverged,
        Shown::Recovery,
        "a recovery drops a marker that holds entries of its own",
    ),
    broken(
        "recovery-drops-unreadable",
        Kind::Recovery,
        D::RecoveryDropsUnreadable,
        Shown::Recovery,
        "a recovery removes a marker that it cannot read",
    ),
    broken(
        "inspection-tidies",
        Kind::Recovery,
        D::InspectTidies,
        Shown::Crash(P::LoadReadsOnly, Process),
        "an inspection removes a marker",
    ),
    // Reading.
    flawed(
        "bad-lines-skipped",
        F::BadLinesSkipped,
        &["F3"],
        "a line that is not JSON is skipped, and its children with it",
    ),
    flawed(
        "stops-at-bad-line",
        F::StopsAtBadLine,
        &["F3"],
        "what stands before the first bad line is the session",
    ),
    flawed("zeros-skipped", F::ZerosSkipped, &["F3", "F4"], "runs of NUL bytes are skipped"),
    flawed("blank-lines-skipped", F::BlankLinesSkipped, &["F3"], "blank lines are skipped"),
    flawed("array-tail-dropped", F::ArrayTailDropped, &["F4"], "a cut-off array is taken for a torn tail"),
    flawed(
        "any-tail-dropped",
        F::AnyTailDropped,
        &["F4"],
        "whatever follows the last line feed is taken for a torn tail",
    ),
    flawed("tail-unchecked", F::TailUnchecked, &["F2"], "a torn tail need not be UTF-8"),
    flawed("tail-refused", F::TailRefused, &["F4"], "a torn tail is refused"),
    flawed(
        "shallow-tail",
        F::ShallowTail,
        &["F4"],
        "a torn tail of many levels is refused, as a parser that recurses does",
    ),
    flawed(
        "whole-tail-dropped",
        F::WholeTailDropped,
        &["F1", "F4"],
        "a whole last line without its line feed is dropped",
    ),
    flawed(
        "return-counted",
        F::ReturnCounted,
        &["F1"],
        "the carriage return before a line feed counts towards the line",
    ),
    flawed("separator-ends-line", F::SeparatorEndsLine, &["F1", "F3", "F8"], "U+2028 ends a line"),
    flawed("lossy-text", F::LossyText, &["F2"], "what is not UTF-8 becomes a replacement character"),
    flawed("lossy-chunks", F::LossyChunks, &["F2"], "a character that lies across two reads is lost"),
    flawed("characters-counted", F::CharactersCounted, &["F7"], "a line's length is counted in characters"),
    flawed(
        "last-duplicate-wins",
        F::LastDuplicateWins,
        &["R5"],
        "of two entries with one id the last one counts",
    ),
    flawed("later-parents", F::LaterParents, &["R5"], "a parent may stand later in the file"),
    flawed(
        "parents-unchecked",
        F::ParentsUnchecked,
        &["R5"],
        "an entry whose parent is not there becomes a root",
    ),
    flawed(
        "calls-anywhere",
        F::CallsAnywhere,
        &["L1", "L3"],
        "a tool result is satisfied by a call on any branch",
    ),
    flawed(
        "linkage-unchecked",
        F::LinkageUnchecked,
        &["L1", "L5"],
        "tool results are not compared with calls",
    ),
    flawed("calls-once-a-file", F::CallsOnceAFile, &["L3"], "a call id may occur once in the whole file"),
    flawed("unknown-fields", F::UnknownFields, &["R2"], "members that the format does not have are ignored"),
    flawed("any-version", F::AnyVersion, &["R1", "R2"], "nobody looks at the version"),
    flawed("text-version", F::TextVersion, &["R1", "R2"], "a version may be written as a string"),
    flawed("blank-ids", F::BlankIds, &["R4"], "an id of white space is an id"),
    flawed(
        "empty-answers-refused",
        F::EmptyAnswersRefused,
        &["R3"],
        "an assistant's message without content is refused",
    ),
    flawed("second-header-skipped", F::SecondHeaderSkipped, &["R6"], "a second header is skipped"),
    flawed("one-entry-less", F::OneEntryLess, &["F7"], "the limit of entries is one less"),
    flawed("one-byte-less", F::OneByteLess, &["F7"], "the limit of a line is one byte less"),
    // Writing.
    flawed("fields-sorted", F::FieldsSorted, &["F8"], "the members of a written entry are sorted"),
    flawed("slashes-escaped", F::SlashesEscaped, &["F8"], "slashes are escaped"),
    flawed(
        "controls-upper",
        F::ControlsUpper,
        &["F8"],
        "control characters are escaped with upper-case digits",
    ),
    flawed("text-escaped", F::TextEscaped, &["F8"], "characters beyond ASCII are escaped"),
    flawed(
        "lines-end-in-return",
        F::LinesEndInReturn,
        &["F1", "F8"],
        "lines are written with a carriage return",
    ),
    flawed("last-line-open", F::LastLineOpen, &["F8"], "the last line feed is not written"),
];
