//! Appends, refusals, kills and second processes.

use std::fs;
use std::sync::Mutex;
use std::thread;

use serde_json::{Value, json};

use super::ground::{Appended, Ground, Process, STORE, raw, told};
use super::{Judged, LONGEST_DELAY, Stop, silent, unsupported, violated};
use crate::call::{Call, EntryView, Reply};

/// Rounds of the cases that have no fixed number of steps.
const ROUNDS: usize = 12;

pub(super) fn loaded_again(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(2)?;
    // A second root and a second child of the first one.
    ground.append_below(&mut process, None)?;
    let first = ground.acknowledged.first().map(|entry| entry.id.clone());
    ground.append_below(&mut process, first.as_deref())?;
    ground.must_append_every_kind(&mut process)?;
    let shown = process.entries()?;
    ground.expect_all(&shown, "the entries of the open session")?;
    process.ok(&Call::Close { store: STORE.to_owned() })?;
    let shown = ground.loaded(&mut process, "loaded again")?;
    ground.expect_all(&shown, "loaded again")?;
    if shown.iter().map(|entry| &entry.id).ne(ground.acknowledged.iter().map(|entry| &entry.id)) {
        return violated("loaded again: the entries are in another order");
    }
    ground.cold_load("loaded in another process")
}

pub(super) fn killed_after_an_answer(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(0)?;
    for _ in 0..ROUNDS {
        ground.must_append(&mut process)?;
        process.0.kill();
        process = ground.start()?;
        let shown = ground.loaded(&mut process, "after kill -9")?;
        ground.expect_all(&shown, "after kill -9")?;
    }
    Ok(())
}

pub(super) fn killed_within_an_append(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(1)?;
    for round in 0..ROUNDS {
        let Some(kill) = process.0.killer() else {
            return unsupported("it is no process of its own that can be killed");
        };
        let parent = ground.acknowledged.last().map(|entry| entry.id.clone());
        let message = ground.message();
        let append =
            Call::Append { store: STORE.to_owned(), parent_id: parent.clone(), message: raw(&message) };
        let delay = LONGEST_DELAY * u32::try_from(round).unwrap_or(0) / u32::try_from(ROUNDS).unwrap_or(1);
        let reply = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(delay);
                kill();
            });
            process.0.call(&append)
        });
        match reply {
            Reply::Ok(answer) => ground.acknowledge(answer, parent.as_deref(), &message)?,
            Reply::Refused(refusal) => return violated(format!("refused with {}", told(&refusal))),
            _ => ground.in_doubt.push(message),
        }
        process = ground.start()?;
        let Some(shown) = shown_if_not_refused(ground, &mut process, "after kill -9 within an append")?
        else {
            return Ok(());
        };
        ground.expect_all(&shown, "after kill -9 within an append")?;
        ground.settle(&shown);
    }
    ground.cold_load("after kill -9 within an append")
}

/// A store without a recovery may refuse what it cannot prove, for a person to look at.
pub(super) fn shown_if_not_refused(
    ground: &Ground<'_>,
    process: &mut Process,
    whence: &str,
) -> Result<Option<Vec<EntryView>>, Stop> {
    if ground.store.recovers {
        return ground.loaded(process, whence).map(Some);
    }
    Ok(process.reply(&ground.load())?.ok().map(|answer| answer.entries.unwrap_or_default()))
}

pub(super) fn refused_append(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(2)?;
    let call = Call::Append {
        store: STORE.to_owned(),
        parent_id: Some("an id that no entry has".to_owned()),
        message: raw(&json!({ "id": "m", "role": "user", "content": "an orphan" })),
    };
    if process.reply(&call)?.is_ok() {
        return violated("an append below an entry that does not exist was acknowledged");
    }
    let shown = process.entries()?;
    ground.expect_all(&shown, "the entries after a refused append")?;
    ground.must_append(&mut process)?;
    ground.cold_load("loaded after a refused append")
}

pub(super) fn failed_append(ground: &mut Ground<'_>) -> Judged {
    let mut process = ground.session(2)?;
    fs::rename(ground.root(), ground.elsewhere())?;
    let appended = ground.append(&mut process)?;
    let shown = process.entries()?;
    ground.expect_all(&shown, "the entries after an append without a directory")?;
    fs::rename(ground.elsewhere(), ground.root())?;
    ground.expect_what_was_acknowledged(&appended, "its directory had another name")?;
    goes_on(ground, &mut process)?;
    match appended {
        Appended::Refused(_) => Ok(()),
        Appended::Acknowledged => nothing_failed(),
    }
}

/// Of a store that appends to a file which it holds open, whatever its directory is called.
fn nothing_failed() -> Judged {
    unsupported("nothing failed: it appends without its directory's name, and the append is there")
}

/// That nothing of a failed append shows any more once its cause is gone.
pub(super) fn goes_on(ground: &mut Ground<'_>, process: &mut Process) -> Judged {
    // It may ask to be opened again.
    ground.append(process)?;
    let shown = process.entries()?;
    ground.expect_all(&shown, "the entries after the append that followed a failed one")?;
    ground.cold_load("loaded after a failed append")
}

pub(super) fn failed_append_of_a_tree(ground: &mut Ground<'_>) -> Judged {
    let mut process = with_tree(ground)?;
    let leaf = active_leaf(&mut process)?;
    fs::rename(ground.root(), ground.elsewhere())?;
    let message = ground.message();
    let reply = process.reply(&tree_append(&message))?;
    let now = active_leaf(&mut process)?;
    fs::rename(ground.elsewhere(), ground.root())?;
    match reply {
        Ok(answer) => {
            ground.acknowledge(answer, leaf.as_deref(), &message)?;
            ground.cold_load("after an append without a directory that was acknowledged")?;
            nothing_failed()
        }
        Err(_) if now == leaf => ground.cold_load("loaded after a failed append"),
        Err(_) => violated(format!("an append failed, and the leaf went from {leaf:?} to {now:?}")),
    }
}

pub(super) fn other_branch(ground: &mut Ground<'_>) -> Judged {
    let mut process = with_tree(ground)?;
    let root = ground.acknowledged.first().map(|entry| entry.id.clone());
    process.ok(&Call::MoveTo { tree: "t".to_owned(), entry_id: root.clone() })?;
    let message = ground.message();
    let answer = process.ok(&tree_append(&message))?;
    ground.acknowledge(answer, root.as_deref(), &message)?;
    let active = process.ok(&active())?.entries.unwrap_or_default();
    let path: Vec<_> = active.iter().map(|entry| Some(entry.id.clone())).collect();
    let leaf = ground.acknowledged.last().map(|entry| entry.id.clone());
    if path != [root, leaf] {
        return violated(format!("the active path of the second branch is {path:?}"));
    }
    let shown = process.entries()?;
    ground.expect_all(&shown, "the entries after a change of the branch")?;
    ground.cold_load("loaded after a change of the branch")
}

pub(super) fn with_tree(ground: &mut Ground<'_>) -> Result<Process, Stop> {
    if !ground.store.has_trees {
        return unsupported("it has no trees");
    }
    let mut process = ground.session(3)?;
    process.ok(&tree())?;
    Ok(process)
}

pub(super) fn tree() -> Call {
    Call::Tree { store: STORE.to_owned(), tree: "t".to_owned() }
}

pub(super) fn tree_append(message: &Value) -> Call {
    Call::TreeAppend { tree: "t".to_owned(), message: raw(message) }
}

pub(super) fn active() -> Call {
    Call::Active { tree: "t".to_owned() }
}

pub(super) fn active_leaf(process: &mut Process) -> Result<Option<String>, Stop> {
    Ok(process.ok(&active())?.leaf.flatten())
}

pub(super) fn two_processes_in_turn(ground: &mut Ground<'_>) -> Judged {
    let mut processes = [ground.session(2)?, ground.start()?];
    processes[1].ok(&ground.load())?;
    let root = ground.acknowledged.first().map(|entry| entry.id.clone());
    for round in 0..ROUNDS {
        let process = &mut processes[round % 2];
        // Below the root, which both know.
        if matches!(ground.append_below(process, root.as_deref())?, Appended::Refused(_)) {
            // It has noticed the other one. What it loads now has everything, and it can go on.
            let shown = ground.loaded(process, "loaded after a refusal")?;
            ground.expect_all(&shown, "loaded after a refusal")?;
            if matches!(ground.append_below(process, root.as_deref())?, Appended::Refused(_)) {
                return violated("refused although it was just loaded");
            }
        }
    }
    ground.cold_load("loaded after two processes appended in turn")
}

pub(super) fn two_processes_one_branch(ground: &mut Ground<'_>) -> Judged {
    let mut processes = [with_tree(ground)?, ground.start()?];
    open_tree(ground, &mut processes[1])?;
    for round in 0..4 {
        let process = &mut processes[round % 2];
        let message = ground.message();
        let answer = if let Ok(answer) = process.reply(&tree_append(&message))? {
            answer
        } else {
            // It has noticed the other one.
            open_tree(ground, process)?;
            process.ok(&tree_append(&message))?
        };
        let parent = answer.entry.as_ref().and_then(|entry| entry.parent_id.clone());
        ground.acknowledge(answer, parent.as_deref(), &message)?;
    }
    drop(processes);
    let mut process = ground.start()?;
    open_tree(ground, &mut process)?;
    let active = process.ok(&active())?.entries.unwrap_or_default();
    let is_active = |entry: &&EntryView| active.iter().any(|one| one.id == entry.id);
    match ground.acknowledged.iter().find(|entry| !is_active(entry)) {
        None => Ok(()),
        Some(entry) => violated(format!(
            "two processes appended at their leaves in turn and neither was refused; loaded again, the acknowledged \
             entry {:?} is not on the active branch, which has {} of {} entries",
            entry.id,
            active.len(),
            ground.acknowledged.len()
        )),
    }
}

fn open_tree(ground: &Ground<'_>, process: &mut Process) -> Judged {
    let shown = ground.loaded(process, "loaded beside another process")?;
    ground.expect_all(&shown, "loaded beside another process")?;
    process.ok(&tree()).map(drop)
}

pub(super) fn two_processes_at_once(ground: &mut Ground<'_>) -> Judged {
    let mut processes = [ground.session(2)?, ground.start()?];
    processes[1].ok(&ground.load())?;
    let root = ground.acknowledged.first().map(|entry| entry.id.clone());
    let shared = Mutex::new(ground);
    let stops: Vec<Judged> = thread::scope(|scope| {
        let running: Vec<_> = processes
            .iter_mut()
            .map(|process| {
                scope.spawn(|| (0..ROUNDS).try_for_each(|_| one_of_two(&shared, process, root.as_deref())))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| violated("a thread of the harness panicked")))
            .collect()
    });
    stops.into_iter().collect::<Judged>()?;
    drop(processes);
    let ground = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ground.cold_load("loaded after two processes appended at once")
}

/// An append, and a load where it was refused, beside another process that does the same.
fn one_of_two(shared: &Mutex<&mut Ground<'_>>, process: &mut Process, parent: Option<&str>) -> Judged {
    let lock = || shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (message, load) = {
        let mut ground = lock();
        (ground.message(), ground.load())
    };
    let parent_id = parent.map(str::to_owned);
    let call = Call::Append { store: STORE.to_owned(), parent_id, message: raw(&message) };
    match process.reply(&call)? {
        Ok(answer) => lock().acknowledge(answer, parent, &message),
        Err(_) => match process.0.call(&load) {
            // Refused once more, since the other one is at work: the next round comes.
            Reply::Ok(_) | Reply::Refused(_) => Ok(()),
            reply => {
                let said = process.0.said();
                Err(silent(reply, said.as_deref()))
            }
        },
    }
}
