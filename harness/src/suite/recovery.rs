//! The `recovery` suite: every pair of things that may stand at the session's and the marker's name, inspected and
//! recovered with every choice. What must come of it is told here from the recovery table of the contract alone.

use std::fmt::Write;

use crate::call::{Answer, Call, Choose, Reply};
use crate::disk::Disk;
use crate::inject::Injector;
use crate::model::{self, Session};
use crate::outsider;
use crate::promise::{Promise, Violation};
use crate::scenario::HarnessError;
use crate::subject::Candidate;
use crate::world::{Backend, World};

/// The name of the suite.
pub const NAME: &str = "recovery";

const SESSION: &str = "session.jsonl";

/// What may stand at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Absent,
    /// No bytes, as an interrupted create leaves them.
    Empty,
    /// The beginning of a header.
    TornHeader,
    /// A header and a line that is not JSON.
    Damaged,
    /// A session of one entry.
    Older,
    /// The same with one more.
    Newer,
    /// The same as the older one with another one more.
    Other,
    /// The newer one with another message in its last entry.
    Twin,
    /// A directory.
    Directory,
    /// A second name of what stands at the session's name; of the marker only.
    Same,
}

impl Content {
    const ALL: [Content; 10] = [
        Content::Absent,
        Content::Empty,
        Content::TornHeader,
        Content::Damaged,
        Content::Older,
        Content::Newer,
        Content::Other,
        Content::Twin,
        Content::Directory,
        Content::Same,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Content::Absent => "absent",
            Content::Empty => "empty",
            Content::TornHeader => "torn-header",
            Content::Damaged => "damaged",
            Content::Older => "older",
            Content::Newer => "newer",
            Content::Other => "other",
            Content::Twin => "twin",
            Content::Directory => "directory",
            Content::Same => "same",
        }
    }

    fn bytes(self) -> Option<Vec<u8>> {
        const HEADER: &str =
            "{\"type\":\"session\",\"version\":1,\"id\":\"session-1\",\"createdAt\":\"t\"}\n";
        let entry = |id: &str, parent: &str, text: &str| {
            format!(
                "{{\"type\":\"entry\",\"version\":1,\"id\":\"{id}\",\"parentId\":{parent},\"timestamp\":\"t\",\
                 \"message\":{{\"id\":\"m-{id}\",\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
            )
        };
        let older = format!("{HEADER}{}", entry("e1", "null", "what next?"));
        Some(match self {
            Content::Empty => Vec::new(),
            Content::TornHeader => HEADER.as_bytes()[..20].to_vec(),
            Content::Damaged => format!("{HEADER}not JSON\n").into_bytes(),
            Content::Older => older.into_bytes(),
            Content::Newer => format!("{older}{}", entry("e2", "\"e1\"", "what next?")).into_bytes(),
            Content::Other => format!("{older}{}", entry("e3", "\"e1\"", "what next?")).into_bytes(),
            Content::Twin => format!("{older}{}", entry("e2", "\"e1\"", "what else?")).into_bytes(),
            Content::Absent | Content::Directory | Content::Same => return None,
        })
    }

    fn is_good(self) -> bool {
        matches!(self, Content::Older | Content::Newer | Content::Other | Content::Twin)
    }

    /// Whether a session of `self` holds every entry of `other`, both good.
    fn holds(self, other: Content) -> bool {
        self == other || other == Content::Older
    }
}

/// One pair, and what the recovery is told to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    path: Content,
    marker: Content,
    choose: Option<Choose>,
}

/// Every case.
pub fn cases() -> impl Iterator<Item = Case> {
    const CHOICES: [Option<Choose>; 4] =
        [None, Some(Choose::Current), Some(Choose::Marker), Some(Choose::SetAside)];
    let pairs =
        Content::ALL.into_iter().flat_map(|path| Content::ALL.into_iter().map(move |marker| (path, marker)));
    pairs
        .filter(|(path, marker)| *path != Content::Same && (*marker != Content::Same || path.is_good()))
        .flat_map(|(path, marker)| CHOICES.into_iter().map(move |choose| Case { path, marker, choose }))
}

impl Case {
    /// The stable id, such as `recovery/newer/older/none`.
    pub fn id(self) -> String {
        format!("{NAME}/{}/{}/{}", self.path.as_str(), self.marker.as_str(), in_words(self.choose))
    }

    /// The case with this id.
    pub fn find(id: &str) -> Option<Case> {
        cases().find(|case| case.id() == id)
    }

    /// The token of the state.
    fn state(self) -> &'static str {
        use Content::{Absent, Directory, Empty, Same, TornHeader};
        match (self.path, self.marker) {
            (Directory, _) | (_, Directory) => "foreign",
            (Absent, Absent) => "absent",
            (path, Absent) if path.is_good() => "clean",
            (Empty | TornHeader, Absent) => "interrupted-create",
            (_, Absent) => "damaged",
            (_, Same) => "interrupted-before-rename",
            (path, marker) if path.is_good() && marker.is_good() && path.holds(marker) => {
                "interrupted-after-rename"
            }
            (path, marker) if path.is_good() && marker.is_good() && marker.holds(path) => "path-older",
            (path, marker) if path.is_good() && marker.is_good() => "diverged",
            (path, _) if path.is_good() => "marker-unreadable",
            (Absent, marker) if marker.is_good() => "path-lost",
            (_, marker) if marker.is_good() => "path-damaged",
            (Absent, _) => "both-lost",
            _ => "both-bad",
        }
    }

    /// What the path must hold after the recovery; none where it must refuse.
    fn outcome(self) -> Option<Content> {
        match (self.state(), self.choose) {
            (
                "clean"
                | "absent"
                | "interrupted-before-rename"
                | "interrupted-after-rename"
                | "marker-unreadable",
                _,
            )
            | ("diverged", Some(Choose::Current)) => Some(self.path),
            ("path-older" | "path-lost", _) | ("diverged" | "path-damaged", Some(Choose::Marker)) => {
                Some(self.marker)
            }
            ("interrupted-create", Some(Choose::SetAside)) => Some(Content::Absent),
            _ => None,
        }
    }

    /// Runs the case on `candidate`.
    ///
    /// # Errors
    /// Where the files cannot be prepared.
    pub fn run(self, candidate: &dyn Candidate) -> Result<Vec<Violation>, HarnessError> {
        let mut world = World::new(Backend::Simulated, SESSION)?;
        self.prepare(&world)?;
        let disk = world.disk().cloned().unwrap_or_default();
        disk.sync_all();
        let mut trial = Trial { case: self, disk, violations: Vec::new() };
        let mut subject = candidate.start(world.process(&Injector::blind()));
        let path = world.session().to_string_lossy().into_owned();
        let before = trial.disk.time();
        let inspected = subject.call(&Call::Inspect { path: path.clone() });
        trial.check_inspection(&inspected, before);
        let call = Call::Recover { path: path.clone(), choose: self.choose };
        let recovered = subject.call(&call);
        let is_right = trial.check_answer(&recovered, before);
        trial.check_copies();
        if is_right && matches!(recovered, Reply::Ok(_)) {
            trial.check_path(&world);
            let settled = trial.disk.time();
            let again = subject.call(&call);
            if trial.disk.time() != settled
                || !matches!(again, Reply::Ok(Answer { did: Some(did), .. }) if did.is_empty())
            {
                trial.broke("recovering again does something".to_owned());
            }
        }
        Ok(trial.violations)
    }

    fn prepare(self, world: &World) -> std::io::Result<()> {
        let outsider = world.outsider();
        let marker = outsider::marker(world.session());
        for (path, content) in [(world.session(), self.path), (&*marker, self.marker)] {
            match content {
                Content::Directory => outsider.mkdir(path)?,
                Content::Same => {
                    if let Some(disk) = world.disk() {
                        disk.hard_link(world.session(), path)?;
                    }
                }
                content => {
                    if let Some(bytes) = content.bytes() {
                        outsider.write_file(path, &bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs the case and tells what came of it.
    ///
    /// # Errors
    /// As [`Case::run`].
    pub fn tell(self, candidate: &dyn Candidate) -> Result<(String, Vec<Violation>), HarnessError> {
        let violations = self.run(candidate)?;
        let mut out = String::new();
        let _ = writeln!(out, "case      {}", self.id());
        let _ = writeln!(out, "session   {}", self.path.as_str());
        let _ = writeln!(out, "marker    {}", self.marker.as_str());
        let _ = writeln!(out, "choose    {}", in_words(self.choose));
        let _ = writeln!(out, "state     {}", self.state());
        let expected = self.outcome().map_or("a refusal", Content::as_str);
        let _ = writeln!(out, "expected  {expected}\n");
        for violation in &violations {
            let _ = writeln!(out, "violated  {} ({})", violation.promise.words(), violation.promise);
            let _ = writeln!(out, "          {}", violation.evidence);
        }
        if violations.is_empty() {
            out.push_str("holds: every promise\n");
        }
        Ok((out, violations))
    }
}

fn in_words(choose: Option<Choose>) -> &'static str {
    match choose {
        None => "none",
        Some(Choose::Current) => "current",
        Some(Choose::Marker) => "marker",
        Some(Choose::SetAside) => "set-aside",
    }
}

struct Trial {
    case: Case,
    disk: Disk,
    violations: Vec<Violation>,
}

impl Trial {
    fn broke(&mut self, evidence: String) {
        self.violations.push(Violation { promise: Promise::RecoveryKeeps, evidence });
    }

    fn check_inspection(&mut self, inspected: &Reply, before: u64) {
        if self.disk.time() != before {
            self.broke("the inspection changes the disk".to_owned());
        }
        let expected = self.case.state();
        if !matches!(inspected, Reply::Ok(Answer { state: Some(state), .. }) if state == expected) {
            self.broke(format!("the inspection of {expected} answers {inspected:?}"));
        }
    }

    /// Whether it is the answer that the table asks for.
    fn check_answer(&mut self, recovered: &Reply, before: u64) -> bool {
        let is_right = match (recovered, self.case.outcome()) {
            (Reply::Ok(answer), Some(_)) => answer.state.as_deref() == Some(self.case.state()),
            (Reply::Refused(_), None) => true,
            _ => false,
        };
        if !is_right {
            let expected = if self.case.outcome().is_some() { "an answer" } else { "a refusal" };
            self.broke(format!(
                "the recovery of {} answers {recovered:?}, expected {expected}",
                self.case.state()
            ));
        }
        if matches!(recovered, Reply::Refused(_)) && self.disk.time() != before {
            self.broke("the recovery refuses and changes the disk".to_owned());
        }
        is_right
    }

    /// What was there before is there still: a session as itself or within one that holds every entry of it, anything
    /// else as the very bytes.
    fn check_copies(&mut self) {
        let tree = self.disk.snapshot();
        let files: Vec<&[u8]> = tree.iter().map(|(_, node)| node.bytes.as_slice()).collect();
        let sessions: Vec<Session> = files.iter().filter_map(|bytes| model::load(bytes).ok()).collect();
        for bytes in [self.case.path, self.case.marker].into_iter().filter_map(Content::bytes) {
            let is_kept = bytes.is_empty()
                || files.contains(&&*bytes)
                || model::load(&bytes)
                    .is_ok_and(|lost| sessions.iter().any(|kept| kept.entries().starts_with(lost.entries())));
            if !is_kept {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                self.broke(format!("the last copy is gone of {text:?}"));
            }
        }
    }

    fn check_path(&mut self, world: &World) {
        let expected = self.case.outcome().and_then(Content::bytes);
        let found = world.outsider().read(world.session()).ok();
        if found != expected {
            self.broke(format!("after the recovery of {} the path holds something else", self.case.state()));
        }
    }
}
