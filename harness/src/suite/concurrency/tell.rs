//! A schedule of two processes, told so that a person sees whose call came when.

use std::fmt::Write;

use super::sides::Ran;
use crate::replay::FAULT_MARK;

/// Every system call of both, in order, and the answers where they were given.
pub(super) fn schedule(ran: &Ran) -> Vec<String> {
    let mut lines = Vec::new();
    // What a process did before both began is not told.
    let mut traces = [0, 1].map(|side: usize| {
        let count = ran.course.steps.iter().filter(|step| step.side == side).count();
        let trace = &ran.traces[side];
        trace[trace.len().saturating_sub(count)..].iter()
    });
    let mut running = None;
    for (at, step) in ran.course.steps.iter().enumerate() {
        answers(ran, at, &mut lines);
        let Some(event) = traces[step.side].next() else { continue };
        let mut line = String::new();
        let who = if running == Some(step.side) { "  ".to_owned() } else { format!("{} ", step.side + 1) };
        running = Some(step.side);
        let mark = if event.fault.is_some() { FAULT_MARK } else { "" };
        let _ = write!(line, "{who}{at:>4}  {:<10} {event}{mark}", event.during.call);
        lines.push(line);
    }
    answers(ran, ran.course.steps.len(), &mut lines);
    lines
}

/// What was answered when so many system calls had been made.
fn answers(ran: &Ran, at: usize, lines: &mut Vec<String>) {
    for (side, done) in ran.done.iter().enumerate() {
        for done in done.iter().filter(|done| done.span.1 == at) {
            lines.push(format!("{} {} answered: {}", side + 1, done.act.as_str(), done.reply));
        }
    }
}
