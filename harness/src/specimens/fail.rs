//! Why the small store did not do what it was asked.

use session_tree::{Errno, Stage};

use crate::call::{Refusal, Reply};

/// No answer of success.
pub(super) enum Fail {
    /// It refused.
    Refused(Box<Refusal>),
    /// It would never answer, or panic: what the defect does in a real process, told to the harness as such.
    Broke(Box<Reply>),
}

impl Fail {
    pub(super) fn new(code: &str, message: &str) -> Fail {
        Fail::Refused(Box::new(Refusal {
            code: code.to_owned(),
            message: message.to_owned(),
            errno: None,
            line: None,
            stage: None,
            poisoned: false,
            in_flight: false,
        }))
    }

    pub(super) fn io(doing: &str, errno: Errno, stage: Stage) -> Fail {
        let mut fail = Fail::new("SESSION_IO", &format!("cannot {doing}: {errno}")).at(stage);
        if let Fail::Refused(refusal) = &mut fail {
            refusal.errno = Some(errno.to_string());
        }
        fail
    }

    #[must_use]
    pub(super) fn at(mut self, stage: Stage) -> Fail {
        if let Fail::Refused(refusal) = &mut self {
            refusal.stage = Some(stage.id().to_owned());
        }
        self
    }

    /// The answer where it is not known which generation a restart will find.
    #[must_use]
    pub(super) fn in_doubt(mut self) -> Fail {
        if let Fail::Refused(refusal) = &mut self {
            "SESSION_ROLLBACK_FAILED".clone_into(&mut refusal.code);
            refusal.message = format!("the commit failed and is not proved undone: {}", refusal.message);
            refusal.poisoned = true;
        }
        self
    }

    pub(super) fn in_line(mut self, line: usize) -> Fail {
        if let Fail::Refused(refusal) = &mut self {
            refusal.line = Some(line);
        }
        self
    }

    pub(super) fn in_flight(mut self) -> Fail {
        if let Fail::Refused(refusal) = &mut self {
            refusal.in_flight = true;
        }
        self
    }

    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Fail::Refused(refusal) => Some(refusal),
            Fail::Broke(_) => None,
        }
    }
}

impl From<Refusal> for Fail {
    fn from(refusal: Refusal) -> Fail {
        Fail::Refused(Box::new(refusal))
    }
}

impl From<Fail> for Reply {
    fn from(fail: Fail) -> Reply {
        match fail {
            Fail::Refused(refusal) => Reply::Refused(*refusal),
            Fail::Broke(reply) => *reply,
        }
    }
}
