//! What the harness sees for itself: files by the independent model, traces by what is in them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use session_tree::Errno;

use super::SESSION;
use super::checks::Moment;
use crate::call::EntryView;
use crate::fault::{Actor, Kind, Op, Plan, Role};
use crate::inject::{Event, Outcome};
use crate::model;
use crate::outsider::Seen;
use crate::role;

/// The entries of a session file by the independent model; none where it refuses.
///
/// The model is slow and the same few files turn up in thousands of cases, so what it said of one is kept.
pub(super) fn entries_of(bytes: &[u8]) -> Option<Rc<Vec<EntryView>>> {
    const MOST_KEPT: usize = 256;
    type Kept = HashMap<Vec<u8>, Option<Rc<Vec<EntryView>>>>;
    thread_local! {
        static KEPT: RefCell<Kept> = RefCell::default();
    }
    KEPT.with_borrow_mut(|kept| {
        if let Some(known) = kept.get(bytes) {
            return known.clone();
        }
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        let read = model::load(bytes).ok();
        let entries = read.map(|session| Rc::new(session.entries().iter().map(EntryView::from).collect()));
        kept.insert(bytes.to_vec(), entries.clone());
        entries
    })
}

/// Whether the file under the path holds these entries, as the store's own generation does and a stranger's file does
/// not.
pub(super) fn holds_all(view: &[Seen], known: &[EntryView]) -> bool {
    session_bytes(view).and_then(entries_of).is_some_and(|entries| is_prefix(known, &entries))
}

pub(super) fn session_bytes(view: &[Seen]) -> Option<&[u8]> {
    view.iter().find(|seen| seen.name == SESSION)?.bytes.as_deref()
}

pub(super) fn marker_in(view: &[Seen]) -> Option<&Seen> {
    view.iter().find(|seen| role::of(&seen.name, SESSION.as_ref()) == Role::Marker)
}

pub(super) fn is_of_session(seen: &Seen) -> bool {
    role::of(&seen.name, SESSION.as_ref()) != Role::Other
}

pub(super) fn is_prefix(short: &[EntryView], long: &[EntryView]) -> bool {
    long.len() >= short.len() && long[..short.len()] == *short
}

pub(super) fn difference(shown: &[EntryView], expected: &[EntryView]) -> String {
    let ids = |entries: &[EntryView]| {
        listed(&entries.iter().rev().take(4).rev().map(|entry| entry.id.as_str()).collect::<Vec<_>>())
    };
    format!(
        "{} entries ending in {}, expected {} ending in {}",
        shown.len(),
        ids(shown),
        expected.len(),
        ids(expected)
    )
}

/// Several things in words.
pub(super) fn listed(all: &[impl AsRef<str>]) -> String {
    let all: Vec<&str> = all.iter().map(AsRef::as_ref).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

pub(super) fn actor_ever(plan: &Plan) -> Option<Actor> {
    plan.0.iter().find_map(|fault| match fault.kind {
        Kind::Actor(actor) => Some(actor),
        _ => None,
    })
}

pub(super) fn actor_in<'a>(plan: &Plan, events: &'a [Event]) -> Option<(Actor, &'a Event)> {
    events.iter().find_map(|event| match plan.0[event.fault?].kind {
        Kind::Actor(actor) => Some((actor, event)),
        _ => None,
    })
}

/// Actors after whose act the acknowledged entries are not to be had from the path, whatever the store does.
pub(super) fn destroys(actor: Actor) -> bool {
    !matches!(
        actor,
        Actor::PlantMarker
            | Actor::PlantTemporary
            | Actor::RemoveMarker
            | Actor::RemoveTemporary
            | Actor::Chmod
    )
}

/// Whether the act had an object: there is a temporary to replace only while a commit has one.
pub(super) fn planted_at_all(actor: Actor, moment: &Moment<'_>) -> bool {
    if actor != Actor::PlantTemporary {
        return true;
    }
    let created =
        moment.events.iter().position(|event| event.op == Op::Create && event.outcome == Outcome::Done);
    let gone = moment.events.iter().position(|event| {
        event.outcome == Outcome::Done
            && matches!(
                (event.op, event.target.from),
                (Op::Rename | Op::Unlink, Role::Temporary | Role::Restore)
            )
    });
    let struck = moment.events.iter().position(|event| event.fault.is_some());
    match (created, struck) {
        (Some(created), Some(struck)) => created < struck && gone.is_none_or(|gone| struck <= gone),
        _ => false,
    }
}

/// Whether the system call before which the actor acted is the one that uses the name the actor changed: between
/// the store's last look and that call nothing can be done.
pub(super) fn uses_the_name(event: &Event, actor: Actor) -> bool {
    let names: &[Role] = match actor {
        Actor::PlantMarker => &[Role::Marker],
        Actor::PlantTemporary => &[Role::Temporary, Role::Restore],
        _ => &[Role::Session],
    };
    let uses = names.contains(&event.target.from) || event.target.to.is_some_and(|to| names.contains(&to));
    uses && matches!(event.op, Op::Rename | Op::Unlink | Op::Link)
}

/// Whether the store can know what the actor did: it looks at the name afterwards, while the old generation is still to
/// be replaced, or it had not looked yet. Only between its last look and the call that uses the name can it not.
pub(super) fn could_be_seen(events: &[Event], actor: Actor, struck: &Event) -> bool {
    let Some(at) = events.iter().position(|event| std::ptr::eq(event, struck)) else { return false };
    let name = if actor == Actor::ReplaceRoot { Role::Root } else { Role::Session };
    let looks = |event: &Event| event.op == Op::Stat && event.target.from == name;
    let (earlier, later) = events.split_at(at);
    if earlier.iter().any(|event| uses_the_name(event, actor)) {
        return false;
    }
    let in_time = later.iter().position(|event| uses_the_name(event, actor)).unwrap_or(later.len());
    later[..in_time].iter().any(looks) || !earlier.iter().any(looks)
}

/// A failure after which the new generation is not proved to be durable and whole.
pub(super) fn is_indispensable(event: &Event) -> bool {
    let failed = matches!(event.outcome, Outcome::Failed(errno) if errno != Errno::EINTR);
    let unsupported = matches!(event.outcome, Outcome::Failed(Errno::EINVAL | Errno::ENOTSUP));
    match (event.op, event.target.from) {
        (Op::Fsync | Op::Close, Role::Temporary) => matches!(event.outcome, Outcome::Failed(_)),
        (Op::Fsync, Role::Root) => {
            event.nth == 1 && matches!(event.outcome, Outcome::Failed(_)) && !unsupported
        }
        (Op::Write, _) => failed,
        _ => false,
    }
}

/// The error number that a store should report for a call, by its name.
pub(super) fn number(event: &Event, plan: &Plan) -> Option<String> {
    let kind = event.fault.and_then(|at| plan.0.get(at)).map(|fault| fault.kind);
    Some(match (kind, event.outcome) {
        (Some(Kind::Held), _) => Errno::EAGAIN.to_string(),
        (Some(Kind::NoProgress), _) => Errno::EIO.to_string(),
        (_, Outcome::Failed(errno)) => errno.to_string(),
        _ => return None,
    })
}

/// Whether the removal of `role`'s name, or the look before it, failed.
pub(super) fn cleanup_failed(events: &[Event], role: Role) -> bool {
    events.iter().any(|event| {
        event.fault.is_some()
            && event.target.from == role
            && matches!(event.op, Op::Stat | Op::Unlink)
            && matches!(event.outcome, Outcome::Failed(_))
    })
}

/// Whether a temporary may stay: its identity was never learnt, or neither look nor removal succeeded in as many
/// tries as a store must make.
pub(super) fn stray_is_excused(trace: &[Event]) -> bool {
    let ours = |event: &&Event| {
        matches!(event.target.from, Role::Temporary | Role::Restore) && event.fault.is_some()
    };
    let failed = |event: &&Event| matches!(event.outcome, Outcome::Failed(_));
    let struck: Vec<&Event> = trace.iter().filter(ours).filter(failed).collect();
    let never_learnt =
        struck.iter().any(|event| matches!(event.op, Op::Create | Op::Fstat) && event.nth == 1);
    let not_removed = struck.iter().filter(|event| matches!(event.op, Op::Stat | Op::Unlink)).count() >= 3;
    never_learnt || not_removed
}
