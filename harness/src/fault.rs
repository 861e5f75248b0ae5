//! Faults: what goes wrong, during which call, at which system call, and how often; with a text form that can be
//! typed and replayed.
//!
//! A fault reads `rename@temporary>session#1 in append#2 = EIO after, once`: the first rename of a temporary over
//! the session file that the second append makes has its effect and then answers EIO, one time. Several faults are
//! joined by `; `.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use session_tree::Errno;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal: $(#[doc = $meaning:literal] $variant:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $(#[doc = $meaning] $variant,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word in the text form.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            /// What it means, in a line.
            pub const fn meaning(self) -> &'static str {
                match self { $($name::$variant => $meaning.trim_ascii()),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = PlanError;

            fn from_str(text: &str) -> Result<$name, PlanError> {
                $name::ALL.iter().copied().find(|value| value.as_str() == text)
                    .ok_or_else(|| PlanError::new($what, text))
            }
        }
    };
}

words! {
    /// A system call, named by what it does and not by which of several calls does it: `pwrite64` and `pwritev` are
    /// both a `write`.
    Op, "an operation":
    /// Opening a directory.
    OpenDir = "opendir",
    /// A look at a name.
    Stat = "stat",
    /// A look at something open.
    Fstat = "fstat",
    /// Asking for the file system's limits.
    Statfs = "statfs",
    /// Exclusive creation.
    Create = "create",
    /// Opening a file.
    Open = "open",
    /// Giving a file a further name.
    Link = "link",
    /// Renaming.
    Rename = "rename",
    /// Removing a name.
    Unlink = "unlink",
    /// Listing a directory.
    List = "list",
    /// Making a file or directory durable.
    Fsync = "fsync",
    /// Reading.
    Read = "read",
    /// Writing.
    Write = "write",
    /// Cutting a file short, or making it longer. No good store does it.
    Truncate = "truncate",
    /// Setting permission bits.
    Chmod = "chmod",
    /// Closing.
    Close = "close",
    /// Taking a lock, or not.
    Lock = "lock",
    /// Giving a lock back.
    Unlock = "unlock",
}

impl Op {
    /// Whether the call changes names, bytes or permissions.
    pub const fn mutates(self) -> bool {
        matches!(self, Op::Create | Op::Link | Op::Rename | Op::Unlink | Op::Write | Op::Truncate | Op::Chmod)
    }
}

words! {
    /// What part a name plays for the session under test. The harness derives it from the name, since a broken store
    /// would lie about it.
    Role, "a role":
    /// The directory.
    Root = "root",
    /// The session file.
    Session = "session",
    /// The recovery marker.
    Marker = "marker",
    /// The next generation before its rename.
    Temporary = "temporary",
    /// The copy that a roll back makes.
    Restore = "restore",
    /// What a recovery took out of the way.
    Aside = "aside",
    /// Anything else.
    Other = "other",
}

/// The name or names that a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The name, or the one that is linked or renamed from.
    pub from: Role,
    /// The name that is linked or renamed to.
    pub to: Option<Role>,
}

impl Target {
    /// A call about one name.
    pub const fn one(role: Role) -> Target {
        Target { from: role, to: None }
    }

    /// A call that takes one name to another.
    pub const fn two(from: Role, to: Role) -> Target {
        Target { from, to: Some(to) }
    }
}

/// Where a fault strikes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The kind of system call.
    pub op: Op,
    /// What it is about.
    pub target: Target,
    /// Which of the matching system calls within the store call, from 1.
    pub nth: u32,
    /// The store call: its name and which of that name, from 1.
    pub during: During,
}

/// A call of the store, such as the second append.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct During {
    /// The call's name in the protocol.
    pub call: Arc<str>,
    /// Which call of that name, from 1.
    pub nth: u32,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The call fails and has no effect.
    Before(Errno),
    /// The call has its effect and fails all the same.
    After(Errno),
    /// A write or read takes half of what was offered, and says so.
    Short,
    /// A write takes half of what was offered, and fails.
    ShortThen(Errno),
    /// A write takes nothing, and says so.
    NoProgress,
    /// A lock is said to be held by somebody else.
    Held,
    /// An fsync fails, and what was dirty counts as clean from then on: reads show it, a later fsync says success,
    /// and a power cut loses it.
    SyncDrops(Errno),
    /// An fsync says success and does nothing. No store can hold its promises then: it shows that the harness sees it.
    SyncLies,
    /// The process is killed before the call.
    KillBefore,
    /// The process is killed after the call.
    KillAfter,
    /// Somebody else acts just before the call.
    Actor(Actor),
}

words! {
    /// What somebody who does not take the store's locks does between two of its calls.
    Actor, "an outside actor":
    /// Puts another valid session file in place of the session file.
    ReplaceFile = "replace-file",
    /// Renames the directory away and makes a new one with a session file of its own.
    ReplaceRoot = "replace-root",
    /// Puts a file at the recovery marker's name, in place of any that is there.
    PlantMarker = "plant-marker",
    /// Puts a file in place of the temporary.
    PlantTemporary = "plant-temporary",
    /// Removes the recovery marker.
    RemoveMarker = "remove-marker",
    /// Removes the temporary.
    RemoveTemporary = "remove-temporary",
    /// Puts a symbolic link to a neighbour in place of the session file.
    SwapSymlink = "swap-symlink",
    /// Puts a FIFO in place of the session file.
    SwapFifo = "swap-fifo",
    /// Puts a directory in place of the session file.
    SwapDirectory = "swap-directory",
    /// Cuts the session file short.
    Truncate = "truncate",
    /// Overwrites the session file in place, with equal size.
    Rewrite = "rewrite",
    /// Appends a line to the session file in place.
    Grow = "grow",
    /// Removes the session file.
    Remove = "remove",
    /// Sets the session file's mode to 0640.
    Chmod = "chmod",
}

impl Actor {
    /// Whether the path does not name the store's generation afterwards, or not with the size that it had: what a store
    /// must see (S4). A rewrite of equal size is a choice.
    pub const fn takes_the_generation(self) -> bool {
        match self {
            Actor::ReplaceFile
            | Actor::ReplaceRoot
            | Actor::SwapSymlink
            | Actor::SwapFifo
            | Actor::SwapDirectory
            | Actor::Truncate
            | Actor::Grow
            | Actor::Remove => true,
            Actor::PlantMarker
            | Actor::PlantTemporary
            | Actor::RemoveMarker
            | Actor::RemoveTemporary
            | Actor::Rewrite
            | Actor::Chmod => false,
        }
    }
}

/// How often a fault strikes, from its site on, at system calls of the same kind and target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Span {
    /// So many times in a row.
    Times(u32),
    /// Until the harness lifts it.
    Forever,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fault {
    /// Where.
    pub site: Site,
    /// What.
    pub kind: Kind,
    /// How often.
    pub span: Span,
}

/// Everything that goes wrong in one case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Plan(pub Vec<Fault>);

/// A text that is not a fault plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is not {expected}; a fault reads `rename@temporary>session#1 in append#1 = EIO after, once`"
)]
pub struct PlanError {
    expected: &'static str,
    found: String,
}

impl PlanError {
    fn new(expected: &'static str, found: &str) -> PlanError {
        PlanError { expected, found: found.to_owned() }
    }
}

impl Plan {
    /// The plan as a part of a case id: no spaces, and shorter. Faults within the first call keep their site whole.
    pub fn slug(&self) -> String {
        self.to_string().replace("; ", "+").replace(" = ", "=").replace(", ", ",").replace(' ', "_")
    }

    /// Reads a slug back. A fault that names no store call is within the first one named `call`.
    ///
    /// # Errors
    /// Where the text is no plan.
    pub fn from_slug(slug: &str, call: Option<&str>) -> Result<Plan, PlanError> {
        let spelled_out = |fault: &str| {
            let fault = fault.replace('_', " ").replace(',', ", ");
            match (fault.split_once('='), call) {
                (Some((site, what)), Some(call)) if !site.contains(" in ") => {
                    format!("{site} in {call}#1 = {what}")
                }
                (Some((site, what)), _) => format!("{site} = {what}"),
                (None, _) => fault,
            }
        };
        slug.split('+').map(spelled_out).collect::<Vec<_>>().join("; ").parse()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(to) => write!(f, "{}>{to}", self.from),
            None => write!(f, "{}", self.from),
        }
    }
}

impl FromStr for Target {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Target, PlanError> {
        Ok(match text.split_once('>') {
            Some((from, to)) => Target::two(from.parse()?, to.parse()?),
            None => Target::one(text.parse()?),
        })
    }
}

impl fmt::Display for During {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.call, self.nth)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}#{} in {}", self.op, self.target, self.nth, self.during)
    }
}

impl FromStr for Site {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Site, PlanError> {
        let wrong = || PlanError::new("a site", text);
        let (place, during) = text.split_once(" in ").ok_or_else(wrong)?;
        let (op, rest) = place.split_once('@').ok_or_else(wrong)?;
        let (target, nth) = rest.split_once('#').ok_or_else(wrong)?;
        let (call, call_nth) = during.split_once('#').ok_or_else(wrong)?;
        if call.is_empty() || !call.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(wrong());
        }
        Ok(Site {
            op: op.trim().parse()?,
            target: target.parse()?,
            nth: ordinal(nth)?,
            during: During { call: call.into(), nth: ordinal(call_nth.trim())? },
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Before(errno) => write!(f, "{errno} before"),
            Kind::After(errno) => write!(f, "{errno} after"),
            Kind::Short => f.write_str("short"),
            Kind::ShortThen(errno) => write!(f, "short then {errno}"),
            Kind::NoProgress => f.write_str("no progress"),
            Kind::Held => f.write_str("held"),
            Kind::SyncDrops(errno) => write!(f, "{errno} dropping"),
            Kind::SyncLies => f.write_str("lies"),
            Kind::KillBefore => f.write_str("kill before"),
            Kind::KillAfter => f.write_str("kill after"),
            Kind::Actor(actor) => write!(f, "actor {actor}"),
        }
    }
}

impl FromStr for Kind {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Kind, PlanError> {
        let errno = |name: &str| name.parse::<Errno>().map_err(|_| PlanError::new("an error number", name));
        match text {
            "short" => return Ok(Kind::Short),
            "no progress" => return Ok(Kind::NoProgress),
            "held" => return Ok(Kind::Held),
            "lies" => return Ok(Kind::SyncLies),
            "kill before" => return Ok(Kind::KillBefore),
            "kill after" => return Ok(Kind::KillAfter),
            _ => {}
        }
        if let Some(actor) = text.strip_prefix("actor ") {
            return Ok(Kind::Actor(actor.parse()?));
        }
        if let Some(name) = text.strip_prefix("short then ") {
            return Ok(Kind::ShortThen(errno(name)?));
        }
        if let Some(name) = text.strip_suffix(" dropping") {
            return Ok(Kind::SyncDrops(errno(name)?));
        }
        if let Some(name) = text.strip_suffix(" before") {
            return Ok(Kind::Before(errno(name)?));
        }
        match text.strip_suffix(" after") {
            Some(name) => Ok(Kind::After(errno(name)?)),
            None => Err(PlanError::new("a kind of fault", text)),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Span::Times(1) => f.write_str("once"),
            Span::Times(times) => write!(f, "{times} times"),
            Span::Forever => f.write_str("for ever"),
        }
    }
}

impl FromStr for Span {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Span, PlanError> {
        match text {
            "once" => Ok(Span::Times(1)),
            "for ever" => Ok(Span::Forever),
            _ => {
                let times = text.strip_suffix(" times").ok_or_else(|| PlanError::new("a span", text))?;
                ordinal(times).map(Span::Times)
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}, {}", self.site, self.kind, self.span)
    }
}

impl FromStr for Fault {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Fault, PlanError> {
        let (site, what) = text.split_once('=').ok_or_else(|| PlanError::new("a fault", text))?;
        let (kind, span) = what.rsplit_once(',').ok_or_else(|| PlanError::new("a fault", text))?;
        Ok(Fault { site: site.trim().parse()?, kind: kind.trim().parse()?, span: span.trim().parse()? })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Plan, PlanError> {
        let faults = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        faults.map(str::parse).collect::<Result<_, _>>().map(Plan)
    }
}

fn ordinal(text: &str) -> Result<u32, PlanError> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| PlanError::new("a number from 1", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_reads_back() {
        let text = "rename@temporary>session#1 in append#2 = EIO after, once; \
                    write@temporary#2 in flush#1 = short then ENOSPC, for ever; \
                    stat@session#3 in load#1 = actor swap-fifo, 3 times; \
                    fsync@temporary#1 in append#1 = EIO dropping, once; \
                    fsync@root#1 in append#1 = lies, once";
        let plan: Plan = text.parse().unwrap();
        assert_eq!(plan.to_string(), text);
        assert_eq!(plan.0.len(), 5);
        assert_eq!(plan.0[0].kind, Kind::After(Errno::EIO));
    }

    #[test]
    fn wrong_text_says_what_was_expected() {
        for (text, expected) in [
            ("rename@temporary>session in append#1 = EIO after, once", "a site"),
            ("rename@temporary>session#0 in append#1 = EIO after, once", "a number from 1"),
            ("renaem@temporary#1 in append#1 = EIO after, once", "an operation"),
            ("rename@temp#1 in append#1 = EIO after, once", "a role"),
            ("rename@temporary#1 in append#1 = EIO, once", "a kind of fault"),
            ("rename@temporary#1 in append#1 = EIO after, twice", "a span"),
            ("rename", "a fault"),
        ] {
            assert_eq!(text.parse::<Plan>().unwrap_err().expected, expected, "{text}");
        }
    }
}
