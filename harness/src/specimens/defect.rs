//! What a specimen does that a good store does not. Each is asked about where it acts, in a line or two.

use session_tree::Errno;
use session_tree::file_ops::{FileKind, FileStat};

use super::place::{is_same, is_unchanged};
use crate::call::Reply;

macro_rules! defects {
    ($($name:ident, $words:literal;)*) => {
        /// One defect of the small store.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum Defect { $(#[doc = $words] $name,)* }
    };
}

defects! {
    NoFileFsync, "The new generation is renamed without an fsync of its bytes.";
    NoDirectoryFsync, "Names are never made durable.";
    DirectoryFsyncIgnored, "A failed fsync of the directory is not reported.";
    DirectoryFsyncRefused, "An fsync of the directory that is not permitted counts as one that a file system does not have.";
    FsyncRetried, "A second fsync after a failed one is believed.";
    FsyncRepeated, "An interrupted fsync is repeated.";
    CloseIgnored, "A failed close is not reported.";
    ShortWriteBelieved, "One write is taken to have written everything.";
    NoProgressRepeated, "A write that takes nothing is repeated for ever.";
    TemporaryLeft, "After a failed write the temporary stays.";
    TemporaryFixed, "Every temporary has one name.";
    TemporaryReused, "Every temporary has one name, and one that is there is emptied and used.";
    TemporaryByName, "The temporary is removed by its name, whatever has it.";
    StraysInTheWay, "Nothing is written where another process left a temporary.";
    StrangersSwept, "A commit removes every temporary in the directory.";
    DescriptorLeaked, "After a failed write the descriptor stays open.";
    LockLeaked, "After a failure the lock stays.";
    ModeErrorIgnored, "A temporary is created for everybody, and whether it was made private is not looked at.";
    MarkerByName, "The marker is removed by its name, whatever has it.";
    MarkerStolen, "A marker that is there already is removed and made anew.";
    MarkerEmptied, "The marker is emptied before it is removed.";
    MarkerStays, "After a failed look at the marker it stays.";
    MarkerIgnored, "A load does not look for a marker.";
    RenameErrorBelieved, "A rename that answers an error is taken to have done nothing.";
    RenameErrorRollsBack, "After a failed rename the marker is renamed back, without a look.";
    RenameFailureIgnored, "A rename that answers an error is taken to have succeeded.";
    NoRollBack, "After a failure behind the rename the new generation stays.";
    RollBackUnlooked, "A roll back does not look at what it replaces.";
    RollBackUnsynced, "A roll back is not made durable.";
    PoisonForgotten, "A store whose generation is in doubt goes on.";
    FailsForEver, "After one failure every later call fails.";
    DoubtsEverything, "Every failure is answered as one that is in doubt.";
    StaleViewWrites, "Whatever the path names is replaced.";
    ComparedOnce, "Only the first commit compares the path with what was loaded.";
    SizeUncompared, "Whether the file is as long as it was is not looked at.";
    ComparedLater, "The first commit takes whatever the path names for what was loaded.";
    FailedCreateStays, "A create that fails leaves the session.";
    CreateReplaces, "A create renames over whatever is there.";
    AppendsUnsynced, "A line is appended to the file, without an fsync.";
    AppendsAtKnownEnd, "A line is written where the file ended when it was loaded.";
    TornTailKept, "A torn tail is written again before the new line.";
    PartialLineStays, "What a failed append wrote stays, and the next line is glued to it.";
    RewritesInPlace, "The file is emptied and written anew.";
    WritesToHeldFile, "A line is appended to the file that was opened at first, wherever it is now.";
    RecreatesFile, "A file that is gone is made anew, without its header.";
    FollowsLinks, "A line is appended to whatever a link at the path leads to.";
    LeafMovedFirst, "The leaf moves before the commit.";
    FailedShown, "An entry whose commit failed is shown.";
    FailedKept, "An entry whose commit failed is kept, and written by the next one.";
    EntriesFromDisk, "After a failure, showing the entries looks at the disk.";
    OpensAnything, "A load opens the path as any program would: it follows links and waits for a FIFO.";
    LoadSweeps, "A load removes temporaries of processes that died.";
    LoadRepairs, "A load cuts a torn tail off.";
    InspectTidies, "An inspection removes a marker that is not needed.";
    RecoveryPrefersMarker, "A recovery takes the marker where the session holds more.";
    RecoveryDeletesDamage, "A recovery puts the marker over a damaged session.";
    RecoveryTakesDiverged, "A recovery drops the marker where both hold entries of their own.";
    RecoveryDropsUnreadable, "A recovery removes a marker that it cannot read.";
    QueueOrderLost, "Of calls that are begun together the last one takes effect first.";
    MoveNotQueued, "A move takes effect at once, before appends that were begun earlier.";
    LockNotTaken, "A commit takes no lock, makes no marker, and looks at the path only when it begins.";
    UndoCutsRival, "Lines are appended without a lock, and a failed append cuts the file to where it ended before.";
    CodeUnknown, "Waiting too long for a lock has a code of its own.";
    ErrnoLost, "Every I/O error is told as EIO.";
    StageLost, "Every I/O error is told to have struck at the beginning.";
    PanicsWhenFull, "A full disk is a panic.";
    AcknowledgesOnly, "An append is acknowledged, and nothing is written.";
}

impl Defect {
    /// Whether the session's file is written in place.
    pub(super) const fn is_in_place(self) -> bool {
        matches!(
            self,
            Defect::AppendsUnsynced
                | Defect::AppendsAtKnownEnd
                | Defect::PartialLineStays
                | Defect::RewritesInPlace
                | Defect::WritesToHeldFile
                | Defect::RecreatesFile
                | Defect::FollowsLinks
                | Defect::UndoCutsRival
        )
    }

    /// Whether no other process is kept out of a commit.
    pub(super) const fn takes_no_lock(self) -> bool {
        matches!(self, Defect::LockNotTaken | Defect::UndoCutsRival)
    }

    /// Whether the path is not compared with what was loaded.
    const fn trusts_the_path(self) -> bool {
        matches!(self, Defect::WritesToHeldFile)
    }

    /// Whether the file's size and time are not compared.
    const fn trusts_the_bytes(self) -> bool {
        matches!(
            self,
            Defect::AppendsAtKnownEnd
                | Defect::PartialLineStays
                | Defect::UndoCutsRival
                | Defect::SizeUncompared
        )
    }

    /// Whether a look at the path shows what the store knows.
    pub(super) fn knows(defect: Option<Defect>, known: &FileStat, seen: &FileStat) -> bool {
        is_unchanged(known, seen)
            || defect == Some(Defect::StaleViewWrites)
            || defect.is_some_and(Defect::trusts_the_path)
            || defect == Some(Defect::FollowsLinks) && seen.kind == FileKind::Symlink
            || defect.is_some_and(Defect::trusts_the_bytes) && is_same(known, seen)
    }

    /// What becomes of an answer on its way to the caller.
    pub(super) fn told(defect: Option<Defect>, reply: Reply) -> Reply {
        let Reply::Refused(mut refusal) = reply else { return reply };
        let is_io = refusal.code == "SESSION_IO";
        match defect {
            Some(Defect::CodeUnknown) if refusal.in_flight => "SESSION_BUSY".clone_into(&mut refusal.code),
            Some(Defect::ErrnoLost) if is_io && refusal.errno != Some(Errno::ENOENT.to_string()) => {
                refusal.errno = Some(Errno::EIO.to_string());
            }
            Some(Defect::StageLost) if is_io => refusal.stage = Some("C1".to_owned()),
            Some(Defect::PanicsWhenFull) if refusal.errno == Some(Errno::ENOSPC.to_string()) => {
                return Reply::Panicked(
                    "called `Result::unwrap()` on an `Err` value: no space left".to_owned(),
                );
            }
            _ => {}
        }
        Reply::Refused(refusal)
    }
}
