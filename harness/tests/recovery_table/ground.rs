//! A directory with something at the session's and the marker's name, and a look at everything in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use session_harness::disk::Disk;
use session_harness::fault::{Actor, Plan};
use session_harness::inject::Injector;
use session_harness::model;
use session_harness::outsider::{Outsider, Seen};
use session_harness::world::{Backend, World, WorldOps};
use session_tree::file_ops::FileKind;

pub(crate) const SESSION: &str = "session.jsonl";
pub(crate) const MARKER: &str = "session.jsonl.pify-session-recovery";
pub(crate) const ASIDE: &str = "session.jsonl.pify-session-aside-";
pub(crate) const STRAY: &str = "session.jsonl.pify-session-77-00000000-0000-0000-0000-000000000077";

const FILE_LIMIT: usize = 4_194_304;

/// What is put at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Put {
    Absent,
    Empty,
    /// The beginning of a header.
    TornHeader,
    HeaderOnly,
    /// The entries e-1, e-2.
    Two,
    /// The entries e-1, e-2, e-3.
    Three,
    /// The entries e-1, e-2, and the beginning of another one.
    TwoTorn,
    /// The entries e-1, f-2.
    Fork,
    /// The entries e-1, e-2 with another message in the last one.
    Twin,
    /// Another session.
    Other,
    /// A line in the middle that is no JSON.
    BadMiddle,
    InvalidUtf8,
    /// One byte more than a session may have.
    TooLarge,
    Directory,
    /// To a good session.
    Symlink,
    Fifo,
    /// At the marker's name: the session file's inode.
    HardLink,
}

impl Put {
    pub(crate) fn bytes(self) -> Option<Vec<u8>> {
        let (one, two, three) = (entry("e-1", None), entry("e-2", Some("e-1")), entry("e-3", Some("e-2")));
        Some(match self {
            Put::Empty => Vec::new(),
            Put::TornHeader => header("s-1").as_bytes()[..30].to_vec(),
            Put::HeaderOnly => header("s-1").into_bytes(),
            Put::Two => [header("s-1"), one, two].concat().into_bytes(),
            Put::Three => [header("s-1"), one, two, three].concat().into_bytes(),
            Put::TwoTorn => [&header("s-1"), &one, &two, &three[..25]].concat().into_bytes(),
            Put::Fork => [header("s-1"), one, entry("f-2", Some("e-1"))].concat().into_bytes(),
            Put::Twin => [header("s-1"), one, two.replace("what is in", "what was in")].concat().into_bytes(),
            Put::Other => [header("s-2"), one].concat().into_bytes(),
            Put::BadMiddle => [header("s-1"), one, "not-json\n".to_owned(), two].concat().into_bytes(),
            Put::InvalidUtf8 => [header("s-1").as_bytes(), one.as_bytes(), b"{\"a\":\"\xff\"}\n"].concat(),
            Put::TooLarge => {
                let mut bytes = [header("s-1"), one].concat().into_bytes();
                bytes.resize(FILE_LIMIT + 1, b' ');
                bytes
            }
            Put::Absent | Put::Directory | Put::Symlink | Put::Fifo | Put::HardLink => return None,
        })
    }
}

fn header(id: &str) -> String {
    format!(r#"{{"type":"session","version":1,"id":"{id}","createdAt":"2026-01-01T00:00:00Z"}}"#) + "\n"
}

fn entry(id: &str, parent: Option<&str>) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
    let message = format!(r#"{{"id":"m-{id}","role":"user","content":"what is in {id}?"}}"#);
    format!(
        r#"{{"type":"entry","version":1,"id":"{id}","parentId":{parent},"timestamp":"t","message":{message}}}"#
    ) + "\n"
}

/// Files beside the session that recovery has no business with: a neighbour, another session with its marker, a
/// stray, and names that only look like ours.
const NEIGHBOURS: [(&str, Put); 6] = [
    ("notes.txt", Put::BadMiddle),
    ("other.jsonl", Put::Other),
    ("other.jsonl.pify-session-recovery", Put::Other),
    (STRAY, Put::Other),
    ("session.jsonl.pify-session-recovery.old", Put::Three),
    ("session.jsonl.bak", Put::Three),
];

pub(crate) struct Ground {
    pub(crate) world: World,
    pub(crate) injector: Injector,
    pub(crate) ops: WorldOps,
}

impl Ground {
    pub(crate) fn new(backend: Backend, current: Put, marker: Put) -> Ground {
        Ground::disturbed(backend, current, marker, &Plan::default(), |_| {})
    }

    /// With faults, and somebody who acts.
    pub(crate) fn disturbed(
        backend: Backend,
        current: Put,
        marker: Put,
        plan: &Plan,
        act: impl Fn(Actor) + Send + Sync + 'static,
    ) -> Ground {
        let mut world = World::new(backend, SESSION).expect("a directory");
        for (name, put) in NEIGHBOURS {
            place(&world, name, put);
        }
        // The marker last: what it is a second name of must be there.
        place(&world, SESSION, current);
        place(&world, MARKER, marker);
        if let Outsider::Simulated(disk) = world.outsider() {
            disk.sync_all();
        }
        let injector = Injector::new(plan, act);
        let ops = world.process(&injector);
        Ground { world, injector, ops }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.world.session().to_owned()
    }

    pub(crate) fn view(&self) -> Vec<Seen> {
        self.world.outsider().view(self.world.root()).expect("a look at the directory")
    }

    pub(crate) fn disk(&self) -> Disk {
        match self.world.outsider() {
            Outsider::Simulated(disk) => disk.clone(),
            Outsider::Real => panic!("this case is for the simulated disk"),
        }
    }

    /// No descriptor and no lock is left.
    pub(crate) fn assert_nothing_held(&self, what: &str) {
        assert_eq!(self.injector.open_descriptors(), 0, "{what}: descriptors");
        assert_eq!(self.world.held_locks(), 0, "{what}: locks");
    }
}

fn place(world: &World, name: &str, put: Put) {
    let path = world.beside(name);
    let done = match (put, world.outsider()) {
        (Put::Absent, _) => Ok(()),
        (Put::Directory, outsider) => outsider.mkdir(&path),
        (Put::Symlink, Outsider::Simulated(disk)) => {
            disk.symlink("other.jsonl", &path).map_err(std::io::Error::from)
        }
        (Put::Symlink, Outsider::Real) => std::os::unix::fs::symlink("other.jsonl", &path),
        (Put::Fifo, Outsider::Simulated(disk)) => disk.fifo(&path).map_err(std::io::Error::from),
        (Put::Fifo, Outsider::Real) => {
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).map_err(Into::into)
        }
        (Put::HardLink, Outsider::Simulated(disk)) => {
            disk.hard_link(world.session(), &path).map_err(std::io::Error::from)
        }
        (Put::HardLink, Outsider::Real) => fs::hard_link(world.session(), &path),
        (_, outsider) => outsider.write_file(&path, &put.bytes().expect("a regular file")),
    };
    done.unwrap_or_else(|error| panic!("{put:?} at {}: {error}", path.display()));
}

/// The entries that a file holds, each with its session, by the independent model.
pub(crate) fn entries_of(bytes: &[u8]) -> Vec<String> {
    let Ok(session) = model::load(bytes) else { return Vec::new() };
    session.entries().iter().map(|entry| format!("{} {entry:?}", session.header().id)).collect()
}

/// The entries that any name in the directory holds, of whichever session.
pub(crate) fn union(view: &[Seen]) -> BTreeSet<String> {
    ours(view).filter_map(|seen| seen.bytes.as_deref()).flat_map(entries_of).collect()
}

/// What has the session's name, the marker's, or a name that recovery gave.
fn ours(view: &[Seen]) -> impl Iterator<Item = &Seen> {
    view.iter().filter(|seen| seen.name == SESSION || seen.name == MARKER || is_aside(seen))
}

pub(crate) fn is_aside(seen: &Seen) -> bool {
    seen.name.as_encoded_bytes().starts_with(ASIDE.as_bytes())
}

/// Everything that recovery must not touch.
pub(crate) fn others(view: &[Seen]) -> Vec<&Seen> {
    let others: Vec<&Seen> =
        view.iter().filter(|seen| seen.name != SESSION && seen.name != MARKER && !is_aside(seen)).collect();
    assert!(others.len() >= NEIGHBOURS.len());
    others
}

/// No entry that was readable before is gone, and no file that held one has lost its last name, unless the session
/// holds all that it held.
pub(crate) fn assert_nothing_lost(before: &[Seen], after: &[Seen], what: &str) {
    let lost: Vec<String> = union(before).difference(&union(after)).cloned().collect();
    assert!(lost.is_empty(), "{what}: lost {lost:?}");
    let in_session = after
        .iter()
        .find(|seen| seen.name == SESSION)
        .and_then(|seen| seen.bytes.as_deref())
        .map(entries_of)
        .unwrap_or_default();
    for seen in ours(before) {
        let held = seen.bytes.as_deref().map(entries_of).unwrap_or_default();
        let has_a_name = after.iter().any(|other| other.identity == seen.identity);
        assert!(
            held.is_empty() || has_a_name || in_session.starts_with(&held),
            "{what}: {} lost its last name",
            seen.name.display()
        );
    }
}

/// Where a recovery ended: the bytes of session, marker and what was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct End {
    pub(crate) session: Option<Vec<u8>>,
    pub(crate) marker: Option<Vec<u8>>,
    pub(crate) asides: Vec<Vec<u8>>,
}

impl End {
    pub(crate) fn of(view: &[Seen]) -> End {
        let at = |name: &str| view.iter().find(|seen| seen.name == name).and_then(|seen| seen.bytes.clone());
        let mut asides: Vec<Vec<u8>> =
            view.iter().filter(|seen| is_aside(seen)).filter_map(|seen| seen.bytes.clone()).collect();
        asides.sort();
        End { session: at(SESSION), marker: at(MARKER), asides }
    }
}

/// `session.jsonl.pify-session-aside-20260101T000000Z-` and 32 hexadecimal digits.
pub(crate) fn assert_aside_says_when(seen: &Seen) {
    let name = seen.name.to_str().expect("a text");
    let rest = name.strip_prefix(ASIDE).expect("a name that recovery gave");
    let (time, unique) = rest.split_once('-').expect("a time and a unique part");
    let shape: String =
        time.chars().map(|letter| if letter.is_ascii_digit() { '9' } else { letter }).collect();
    assert_eq!(shape, "99999999T999999Z", "{name}");
    assert!(unique.len() == 32 && unique.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(seen.kind, FileKind::Regular);
}

pub(crate) fn look_at(disk: &Disk, root: &Path) -> Vec<Seen> {
    Outsider::simulated(disk.clone()).view(root).expect("a look at the directory")
}
