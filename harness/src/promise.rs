//! The promises that are checked after every case, each with the requirements that it stands for.

use std::fmt;

macro_rules! promises {
    ($($variant:ident = $name:literal, [$($requirement:literal),*], $words:literal;)*) => {
        /// What a session store must hold to, whatever goes wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Promise { $(#[doc = $words] $variant,)* }

        impl Promise {
            /// Every promise.
            pub const ALL: &'static [Promise] = &[$(Promise::$variant),*];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Promise::$variant => $name),* }
            }

            /// The requirements of the contract behind it.
            pub const fn requirements(self) -> &'static [&'static str] {
                match self { $(Promise::$variant => &[$($requirement),*]),* }
            }

            /// What it says.
            pub const fn words(self) -> &'static str {
                match self { $(Promise::$variant => $words),* }
            }
        }
    };
}

promises! {
    AcknowledgedSurvive = "acknowledged-survive", ["C23", "S5"], "an acknowledged entry is there after a cold load";
    NothingInvented = "nothing-invented", ["C23", "S7"], "a cold load shows nothing that was not submitted, in no other order and under no other parent";
    FailedMeansOld = "failed-means-old", ["S5", "C20", "C24"], "after an error the file is byte by byte the old generation and no marker is there, unless the answer was `SESSION_ROLLBACK_FAILED`";
    MemoryAgrees = "memory-agrees", ["S5", "S7"], "memory shows the acknowledged entries and nothing else";
    TypedRefusal = "typed-refusal", ["S2", "S9"], "every refusal has a code of the contract, and nothing panics";
    CauseIsKept = "cause-is-kept", ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C27"], "an I/O error names the error number that struck and the stage it struck in";
    NoHiddenFailure = "no-hidden-failure", ["C3", "C4", "C10"], "a failure that the protocol cannot do without is not reported as success";
    NothingLeaks = "nothing-leaks", ["C22", "S8"], "no descriptor and no lock outlives a call, but the store's own two descriptors";
    NoStray = "no-stray", ["C22", "C2"], "no temporary outlives a call, but where its identity was never learnt or its removal failed";
    ForeignUntouched = "foreign-untouched", ["C21", "C22"], "no file of anybody else is changed or removed";
    NoSilentContinuation = "no-silent-continuation", ["S2", "S4", "S3"], "a file or directory that was replaced behind the store's back is reported, not silently continued";
    PoisonHolds = "poison-holds", ["C20"], "a poisoned store refuses everything that touches the disk, and writes nothing";
    LoadReadsOnly = "load-reads-only", ["S2", "F5"], "a load changes nothing on disk";
    ModeIsKept = "mode-is-kept", ["C25.mode", "S1"], "the file's permission bits are never wider than before";
    RetrySucceeds = "retry-succeeds", ["C2", "C3", "C4", "S5"], "once nothing goes wrong any more, a store that is not poisoned appends again";
    GoesOnAfterwards = "goes-on-afterwards", ["C23", "F5"], "an append after the cold load is there after another cold load";
    CallsInOrder = "calls-in-order", ["Q1", "Q2", "T3"], "calls that are begun together take effect in the order in which they were begun, and a failed one does not stop the next";
    RecoveryKeeps = "recovery-keeps", ["X1", "X2"], "a recovery names the state, does what the table of states says, and takes the last copy of nothing away";
    FaultFired = "fault-fired", [], "the planned fault struck, as the backend's own trace says; else the harness itself is at fault";
}

impl Promise {
    /// The promise with this name.
    pub fn find(name: &str) -> Option<Promise> {
        Promise::ALL.iter().copied().find(|promise| promise.name() == name)
    }

    /// Whether a case that broke another promise first breaks this one too as a rule, so that it says nothing new.
    pub const fn is_consequence(self) -> bool {
        matches!(self, Promise::ModeIsKept | Promise::RetrySucceeds)
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A promise that was broken, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// What was seen, and what was expected.
    pub evidence: String,
}
