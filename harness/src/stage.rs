//! Which stage of a create, load or commit a system call belongs to, told from a fault-free trace alone: by what was
//! done before it, never by what the store says of itself.

use session_tree::Stage;

use crate::fault::{Op, Role, Target};
use crate::inject::Event;

/// The stage of each of `events`, which one fault-free call named `call` made; none for calls that belong to no
/// stage, such as giving a lock back after the answer is certain.
pub fn of_clean_trace(call: &str, events: &[Event]) -> Vec<Option<Stage>> {
    let mut tracker = Tracker::new(call);
    events.iter().map(|event| tracker.next(event.op, event.target)).collect()
}

/// As [`of_clean_trace`] for a call in which something failed: what a roll back did belongs to the roll back.
pub fn of_faulted_trace(call: &str, events: &[Event]) -> Vec<Option<Stage>> {
    let mut stages = of_clean_trace(call, events);
    let is_undoing = |event: &Event| {
        matches!((event.op, event.target.from), (Op::Rename, Role::Marker) | (_, Role::Restore))
    };
    let Some(restored) = events.iter().position(is_undoing) else { return stages };
    let failed = |event: &&Event| event.fault.is_some() && !is_undoing(event);
    let begun = events[..restored].iter().rposition(|event| failed(&event)).map_or(0, |at| at + 1);
    for stage in stages[begun..].iter_mut().flatten() {
        *stage = Stage::C20;
    }
    stages
}

struct Tracker {
    stage: Stage,
    next: fn(Stage, Op, Target) -> Stage,
}

impl Tracker {
    fn new(call: &str) -> Tracker {
        match call {
            "create" => Tracker { stage: Stage::K1, next: after_create_call },
            "load" => Tracker { stage: Stage::V1, next: after_load_call },
            _ => Tracker { stage: Stage::C1, next: after_commit_call },
        }
    }

    fn next(&mut self, op: Op, target: Target) -> Option<Stage> {
        if op == Op::Unlock {
            return None;
        }
        self.stage = (self.next)(self.stage, op, target);
        Some(self.stage)
    }
}

fn after_create_call(stage: Stage, op: Op, target: Target) -> Stage {
    match (op, target.from, stage) {
        (Op::Create, _, _) => Stage::K2,
        (Op::Write | Op::Chmod, _, _) => Stage::K3,
        (Op::Fsync | Op::Close, Role::Temporary, _) => Stage::K4,
        (Op::Stat, Role::Temporary, Stage::K4) | (Op::Link, _, _) => Stage::K5,
        (Op::Stat, Role::Session, Stage::K5) => Stage::K6,
        (Op::Fsync, Role::Root, Stage::K6) => Stage::K7,
        (Op::Stat | Op::Unlink, Role::Temporary, Stage::K7) => Stage::K8,
        (Op::Fsync, Role::Root, _) => Stage::K9,
        _ => stage,
    }
}

fn after_load_call(stage: Stage, op: Op, target: Target) -> Stage {
    match (op, target.from, stage) {
        (Op::Stat, Role::Marker, Stage::V1) => Stage::V2,
        (Op::Stat, Role::Session, Stage::V2) => Stage::V3,
        (Op::Open, Role::Session, _) => Stage::V4,
        (Op::Read, _, _) => Stage::V5,
        (Op::Stat, Role::Marker, Stage::V5) => Stage::V6,
        _ => stage,
    }
}

fn after_commit_call(stage: Stage, op: Op, target: Target) -> Stage {
    match (op, target.from, stage) {
        (Op::Create, _, _) => Stage::C2,
        (Op::Write | Op::Chmod, _, _) => Stage::C3,
        (Op::Fsync | Op::Close, Role::Temporary, _) => Stage::C4,
        (Op::Stat, _, Stage::C4) => Stage::C5,
        (Op::Link, _, _) => Stage::C6,
        (Op::Stat, _, Stage::C6) => Stage::C7,
        (Op::Rename, _, _) => Stage::C8,
        (Op::Stat, _, Stage::C8) => Stage::C9,
        (Op::Fsync, Role::Root, Stage::C9) => Stage::C10,
        (Op::Stat | Op::Unlink, Role::Marker, Stage::C10) => Stage::C11,
        (Op::Fsync, Role::Root, _) => Stage::C12,
        _ => stage,
    }
}
