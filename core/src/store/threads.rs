//! The whole store under threads whose order of running a seed draws, held against a model that does one thing after the
//! other: some order of the calls that keeps to what came before what must explain every answer.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::sync::Mutex;
use shuttle::thread;

use crate::error::Code;
use crate::file_ops::OsFileOps;
use crate::{Message, Options, Store, Tree};

/// Schedules that are tried without `SESSION_TREE_SCHEDULES`.
const SCHEDULES: usize = 500;
/// Places at which a schedule may leave the thread that it would go on with.
const DEPTH: usize = 4;

/// What a thread asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ask {
    /// An append through a tree; the message.
    Extend(usize, String),
    /// The leaf of a tree becomes the first entry.
    Move(usize),
    Flush(usize),
}

/// What it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    /// The entry's parent, by its message.
    Below(String),
    Done,
    Stale,
}

#[derive(Debug, Clone)]
struct Call {
    ask: Ask,
    told: Told,
    /// When it was asked and told, by a count of such moments.
    asked: usize,
    answered: usize,
}

/// Trees 0 and 1 are of the first store, tree 2 is of the second.
const STORE_OF: [usize; 3] = [0, 0, 1];

fn scripts() -> [Vec<Ask>; 3] {
    let extend = |tree, text: &str| Ask::Extend(tree, text.to_owned());
    [
        vec![extend(0, "a-1"), Ask::Move(0), extend(0, "a-2")],
        vec![extend(0, "b-1"), extend(1, "b-2"), Ask::Flush(0)],
        vec![extend(2, "c-1"), Ask::Flush(1)],
    ]
}

fn user(text: &str) -> Message {
    Message::User { id: text.into(), content: "words".into() }
}

// Requirement: Q1, Q2, S5, S8, T3
#[test]
fn threads_see_one_order_of_their_calls() {
    let schedules = env::var("SESSION_TREE_SCHEDULES").map_or(SCHEDULES, |text| text.parse().unwrap());
    shuttle::check_pct(once, schedules, DEPTH);
    println!("{schedules} schedules");
}

fn once() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.jsonl");
    let ops = OsFileOps::new();
    let first = Store::create_with(ops.clone(), &path, Options::new()).unwrap();
    first.append(None, user("first")).unwrap();
    let second = Store::load_with(ops.clone(), &path, Options::new()).unwrap();
    let trees = Arc::new([first.tree(), first.tree(), second.tree()]);
    let stores = Arc::new([first.clone(), second]);
    let clock = Arc::new(AtomicUsize::new(0));
    let calls = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = scripts()
        .into_iter()
        .map(|script| {
            let (trees, stores) = (trees.clone(), stores.clone());
            let (clock, calls) = (clock.clone(), calls.clone());
            thread::spawn(move || {
                for ask in script {
                    let asked = clock.fetch_add(1, Ordering::SeqCst);
                    let told = answer(&ask, &trees, &stores);
                    let answered = clock.fetch_add(1, Ordering::SeqCst);
                    calls.lock().unwrap().push(Call { ask, told, asked, answered });
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let calls = calls.lock().unwrap().clone();
    let shown = Store::load_with(ops, &path, Options::new()).unwrap();
    let shown: Vec<String> = shown.entries().iter().map(|entry| entry.message().id().to_owned()).collect();
    assert!(Model::new().explains(&calls, &shown), "no order explains {calls:#?}, which left {shown:?}");
}

fn answer(ask: &Ask, trees: &[Tree; 3], stores: &[Store; 2]) -> Told {
    let done = match ask {
        Ask::Extend(tree, text) => trees[*tree].append(user(text)).map(|entry| {
            let entries = trees[*tree].store().entries();
            let parent = entries.iter().find(|one| Some(one.id()) == entry.parent_id());
            Told::Below(parent.map_or(String::new(), |one| one.message().id().to_owned()))
        }),
        Ask::Move(tree) => {
            let first = trees[*tree].store().entries()[0].id().to_owned();
            trees[*tree].move_to(Some(&first)).map(|()| Told::Done)
        }
        Ask::Flush(store) => stores[*store].flush().map(|()| Told::Done),
    };
    done.unwrap_or_else(|error| {
        assert_eq!(error.code(), Code::FileChanged, "{error}");
        Told::Stale
    })
}

/// Two stores of one path, one call at a time.
#[derive(Clone)]
struct Model {
    entries: Vec<String>,
    leaves: [String; 3],
    /// The store that has committed, which makes the other one stale.
    winner: Option<usize>,
}

impl Model {
    fn new() -> Model {
        let first = || "first".to_owned();
        Model { entries: vec![first()], leaves: [first(), first(), first()], winner: None }
    }

    /// Whether some order of the calls leads to their answers and to what is shown in the end.
    fn explains(&self, calls: &[Call], shown: &[String]) -> bool {
        if calls.is_empty() {
            return self.entries == shown;
        }
        // Whatever was answered before another call was asked comes before it.
        let earliest = calls.iter().map(|call| call.answered).min().unwrap_or_default();
        (0..calls.len()).filter(|at| calls[*at].asked < earliest).any(|at| {
            let mut next = self.clone();
            let mut rest = calls.to_vec();
            let call = rest.remove(at);
            next.does(&call.ask) == call.told && next.explains(&rest, shown)
        })
    }

    fn does(&mut self, ask: &Ask) -> Told {
        let store = match ask {
            Ask::Extend(tree, _) | Ask::Move(tree) => STORE_OF[*tree],
            Ask::Flush(store) => *store,
        };
        if let Ask::Move(tree) = ask {
            self.leaves[*tree] = self.entries[0].clone();
            return Told::Done;
        }
        if self.winner.is_some_and(|winner| winner != store) {
            return Told::Stale;
        }
        self.winner = Some(store);
        let Ask::Extend(tree, text) = ask else { return Told::Done };
        self.entries.push(text.clone());
        Told::Below(std::mem::replace(&mut self.leaves[*tree], text.clone()))
    }
}
