//! A worker that counts its open descriptors after every operation.

use std::fs;
use std::ops::Range;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use session_tree::limits::MAX_SESSION_LINE_BYTES;
use session_tree::{Code, Errno, Error, Message, Options, Store};

use super::altered::{AlteredOps, Call};
use super::files::{is_temporary, marker_of, names_in, session_in};
use super::worker::{arguments, say};

const ROUNDS: u32 = 5;
const APPENDS_BEFORE_A_FAILURE: u32 = 4;

const EVER: u32 = u32::MAX;

/// An append that fails, and the code that it must fail with.
struct Failing {
    /// The calls that fail: which, and which of their occurrences during the append, from 0.
    faults: &'static [(Call, Range<u32>, Errno)],
    submission: Submission,
    code: Code,
    poisoned: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Submission {
    Good,
    ResultWithoutCall,
    LongLine,
    PanickingFactory,
    /// Good, but another store has committed since.
    Stale,
}

const fn refused(submission: Submission, code: Code) -> Failing {
    Failing { faults: &[], submission, code, poisoned: false }
}

const fn faulty(faults: &'static [(Call, Range<u32>, Errno)]) -> Failing {
    Failing { faults, submission: Submission::Good, code: Code::Io, poisoned: false }
}

const fn in_doubt(faults: &'static [(Call, Range<u32>, Errno)]) -> Failing {
    Failing { faults, submission: Submission::Good, code: Code::RollbackFailed, poisoned: true }
}

const FAILING: [Failing; 10] = [
    refused(Submission::ResultWithoutCall, Code::InvalidToolLinkage),
    refused(Submission::LongLine, Code::LineTooLarge),
    refused(Submission::PanickingFactory, Code::FactoryFailed),
    refused(Submission::Stale, Code::FileChanged),
    // The second descriptor of the temporary is not to be had.
    faulty(&[(Call::Open, 0..1, Errno::EMFILE)]),
    faulty(&[(Call::Sync, 0..1, Errno::EIO)]),
    // Rolled back by renaming the marker.
    faulty(&[(Call::SyncDir, 0..1, Errno::EIO)]),
    // Rolled back by a copy, since every rename of the marker fails.
    faulty(&[(Call::SyncDir, 0..1, Errno::EIO), (Call::Rename, 1..4, Errno::EIO)]),
    // Not done, and the marker stays.
    in_doubt(&[(Call::Rename, 0..EVER, Errno::EIO), (Call::Unlink, 0..EVER, Errno::EIO)]),
    // Done and not undone: the copy cannot be put in place either.
    in_doubt(&[(Call::SyncDir, 0..1, Errno::EIO), (Call::Rename, 1..EVER, Errno::EIO)]),
];

/// Faults of the present append, each with how often its call was seen.
type Faults = Arc<Mutex<Vec<(Call, Range<u32>, Errno, u32)>>>;

/// The role `count-descriptors`.
pub(crate) fn count_descriptors() {
    let arguments = arguments();
    let [directory] = &arguments[..] else { panic!("{arguments:?}") };
    // The panic of a factory is part of the plan, and its report would hide others.
    panic::set_hook(Box::new(|panic| {
        if panic.payload_as_str() != Some(PLANNED) {
            eprintln!("{panic}");
        }
    }));
    let path = session_in(Path::new(directory));
    drop(Store::create(&path).unwrap());
    let mut run = Run::new(&path);
    run.append();
    let open = open_descriptors();
    let mut done = [0; 3];
    for round in 0..ROUNDS {
        for (at, failing) in FAILING.iter().enumerate() {
            for _ in 0..APPENDS_BEFORE_A_FAILURE {
                run.append();
                done[0] += 1;
                assert_eq!(open_descriptors(), open, "after an append");
            }
            run.fail(failing);
            done[1] += 1;
            assert_eq!(open_descriptors(), open, "after failing append {at}");
            run.load(round);
            done[2] += 1;
            assert_eq!(open_descriptors(), open, "after a load");
        }
    }
    say(&format!("{} appends, {} failing appends, {} loads", done[0], done[1], done[2]));
}

const PLANNED: &str = "a planned panic";

struct Run<'a> {
    path: &'a Path,
    faults: Faults,
    drawn: Arc<AtomicU32>,
    panics: Arc<Mutex<bool>>,
    store: Store<AlteredOps>,
}

impl<'a> Run<'a> {
    fn new(path: &'a Path) -> Run<'a> {
        let (faults, drawn, panics) = (Faults::default(), Arc::default(), Arc::default());
        let store = open(path, &faults, &drawn, &panics);
        Run { path, faults, drawn, panics, store }
    }

    fn append(&self) {
        self.store.append(None, Message::user("m", "text")).unwrap();
    }

    fn fail(&mut self, failing: &Failing) {
        if failing.submission == Submission::Stale {
            Store::load(self.path).unwrap().append(None, Message::user("m", "of another store")).unwrap();
        }
        *self.panics.lock().unwrap() = failing.submission == Submission::PanickingFactory;
        *self.faults.lock().unwrap() =
            failing.faults.iter().map(|(call, span, errno)| (*call, span.clone(), *errno, 0)).collect();
        let error = self.submit(failing.submission).unwrap_err();
        self.faults.lock().unwrap().clear();
        *self.panics.lock().unwrap() = false;
        assert_eq!((error.code(), error.poisoned()), (failing.code, failing.poisoned), "{error}");
        if failing.poisoned {
            self.clear_up();
        }
        if failing.poisoned || failing.submission == Submission::Stale {
            self.store = open(self.path, &self.faults, &self.drawn, &self.panics);
        }
    }

    fn submit(&self, submission: Submission) -> Result<session_tree::Entry, Error> {
        match submission {
            Submission::ResultWithoutCall => {
                self.store.append(None, Message::tool_result("m", "call", "tool", "text", false))
            }
            Submission::LongLine => {
                self.store.append(None, Message::user("m", "x".repeat(MAX_SESSION_LINE_BYTES)))
            }
            _ => self.store.append(None, Message::user("m", "text")),
        }
    }

    /// What the poisoned store left for somebody to decide. Either generation will do here, so the path wins.
    fn clear_up(&self) {
        fs::remove_file(marker_of(self.path)).unwrap();
        let directory = self.path.parent().unwrap();
        for stray in names_in(directory).iter().filter(|name| is_temporary(name)) {
            fs::remove_file(directory.join(stray)).unwrap();
        }
    }

    /// A load that shows the session, or one that is refused.
    fn load(&self, round: u32) {
        let marker = marker_of(self.path);
        let elsewhere = self.path.with_file_name("elsewhere");
        let refused = match round % 4 {
            0 => return drop(Store::load(self.path).unwrap()),
            1 => {
                fs::write(&marker, "").unwrap();
                Store::load(self.path)
            }
            2 => {
                fs::write(&elsewhere, "not a session\n").unwrap();
                Store::load(&elsewhere)
            }
            _ => Store::load(&elsewhere),
        };
        assert!(refused.is_err());
        let _ = fs::remove_file(marker);
        let _ = fs::remove_file(elsewhere);
    }
}

fn open(
    path: &Path,
    faults: &Faults,
    drawn: &Arc<AtomicU32>,
    panics: &Arc<Mutex<bool>>,
) -> Store<AlteredOps> {
    let (faults, drawn, panics) = (Arc::clone(faults), Arc::clone(drawn), Arc::clone(panics));
    let ops = AlteredOps::witnessed(move |call| strike(&faults, call));
    let options = Options::new().with_ids(move || {
        // The guard must be gone before the panic, or the flag could not be read again.
        let panics = *panics.lock().unwrap();
        assert!(!panics, "{PLANNED}");
        format!("e-{}", drawn.fetch_add(1, Ordering::Relaxed))
    });
    Store::load_with(ops, path, options).unwrap()
}

fn strike(faults: &Faults, call: Call) -> Option<Errno> {
    let mut faults = faults.lock().unwrap();
    let (_, span, errno, seen) = faults.iter_mut().find(|fault| fault.0 == call)?;
    let nth = *seen;
    *seen += 1;
    span.contains(&nth).then_some(*errno)
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
