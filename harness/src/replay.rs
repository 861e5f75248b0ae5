//! One case alone, told so that a person sees what broke and when.

use std::fmt::Write;

use crate::corpus::{self, Outcome};
use crate::promise::Violation;
use crate::scenario::{HarnessError, Run};
use crate::stage;
use crate::subject::Candidate;
use crate::suite::concurrency::{Token, Told};
use crate::suite::conformance::{self, End, Finished};
use crate::suite::faults::Case;
use crate::world::Backend;

/// Ends the line of a system call that a planned fault struck.
pub const FAULT_MARK: &str = "  <- fault";

/// Runs `case` on `candidate` and tells what happened, call by call.
///
/// # Errors
/// Where the harness could not run it.
pub fn replay(
    candidate: &dyn Candidate,
    case: &Case,
    backend: Backend,
) -> Result<(String, Run), HarnessError> {
    let run = case.run(candidate, backend)?;
    let mut out = String::new();
    let scenario = case.scenario();
    let _ = writeln!(out, "case      {}", case.id());
    let _ = writeln!(out, "scenario  {}: {}", scenario.name, scenario.action.call());
    if !scenario.base.is_empty() {
        let _ = writeln!(out, "with      {}", scenario.base);
    }
    let _ = writeln!(out, "fault     {}", case.plan);
    let _ = writeln!(out, "requires  {}\n", case.requirements().join(" "));
    tell_trace(&mut out, case, &run);
    tell_replies(&mut out, &run);
    if run.race_window {
        let _ = writeln!(
            out,
            "race window: a file of somebody else came between the last look and the call that used its name"
        );
    }
    tell_violations(&mut out, &run.violations);
    Ok((out, run))
}

/// The system calls and answers of a run, line by line.
pub fn schedule(case: &Case, run: &Run) -> Vec<String> {
    let mut out = String::new();
    tell_trace(&mut out, case, run);
    tell_replies(&mut out, run);
    out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn tell_trace(out: &mut String, case: &Case, run: &Run) {
    let mut during = None;
    let mut stages = Vec::new().into_iter();
    for event in &run.trace {
        if during != Some(&event.during) {
            during = Some(&event.during);
            let _ = writeln!(out, "{}", event.during);
            let of_call: Vec<_> =
                run.trace.iter().filter(|other| other.during == event.during).cloned().collect();
            stages = stage::of_faulted_trace(case.scenario().action.call(), &of_call).into_iter();
        }
        let stage = stages.next().flatten().map_or("", session_tree::Stage::id);
        let mark = if event.fault.is_some() { FAULT_MARK } else { "" };
        let _ = writeln!(out, "  {stage:<4}{}{mark}", event.traced());
    }
    out.push('\n');
}

fn tell_replies(out: &mut String, run: &Run) {
    for (call, reply) in &run.replies {
        let _ = writeln!(out, "{call:<12} {reply}");
    }
    out.push('\n');
}

/// Runs a case of the corpus on `candidate` and tells what was asked and answered; with how it ended.
pub fn replay_conformance(candidate: &dyn Candidate, case: &corpus::Case, backend: Backend) -> (String, End) {
    tell_conformance(
        &case.id,
        &case.title,
        &case.requirements.join(" "),
        conformance::run(candidate, case, backend),
    )
}

/// What came of a case of the `concurrency` suite, in words.
pub fn tell_concurrency(id: &str, token: &Token, told: &Told) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "case      {id}");
    let _ = writeln!(out, "claim     {}", token.case.title());
    let _ = writeln!(out, "requires  {}\n", token.case.requirements().join(" "));
    for line in &told.schedule {
        let _ = writeln!(out, "{line}");
    }
    if !told.schedule.is_empty() {
        out.push('\n');
    }
    tell_violations(&mut out, &told.violations);
    out
}

fn tell_violations(out: &mut String, violations: &[Violation]) {
    for violation in violations {
        let _ = writeln!(out, "violated: {} ({})", violation.promise.words(), violation.promise);
        let _ = writeln!(out, "  {}", violation.evidence);
    }
    if violations.is_empty() {
        out.push_str("holds: every promise\n");
    }
}

/// What came of a case of the conformance suite, in words.
pub fn tell_conformance(id: &str, title: &str, requirements: &str, finished: Finished) -> (String, End) {
    let Finished { end, calls } = finished;
    let mut out = String::new();
    let _ = writeln!(out, "case      {id}");
    let _ = writeln!(out, "claim     {title}");
    let _ = writeln!(out, "requires  {requirements}\n");
    for call in calls {
        let _ = writeln!(out, "{call}");
    }
    out.push('\n');
    let _ = match &end {
        End::Judged(Outcome::Pass) => writeln!(out, "holds"),
        End::Judged(Outcome::Recorded(answer)) => writeln!(out, "recorded: {answer}"),
        End::Judged(Outcome::Unsupported(why)) => writeln!(out, "unsupported: {why}"),
        End::Judged(Outcome::Violation(seen)) | End::Crash(seen) | End::Timeout(seen) => {
            writeln!(out, "violated: {seen}")
        }
        End::Protocol(how) => writeln!(out, "broke the protocol: {how}"),
        End::HarnessError(what) => writeln!(out, "the harness could not run it: {what}"),
    };
    (out, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::REFERENCE;

    #[test]
    fn a_trace_says_of_a_file_what_the_calls_say_of_it() {
        let id = "faults/append/C8/rename@temporary>session#1=EIO_before,once";
        let case = Case::find(REFERENCE, id).expect("a fault-free run").expect("a case");
        let run = case.run(REFERENCE, Backend::Simulated).expect("a run");
        let lines = schedule(&case, &run);
        let has = |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(has(&["stat@session#1 ", "ok, inode ", "5095 bytes, mode 0600"]), "{lines:#?}");
        assert!(has(&["create@temporary#1 ", "ok, mode 0600"]), "{lines:#?}");
        assert!(has(&["rename@temporary>session#1 ", "EIO", FAULT_MARK]), "{lines:#?}");
        assert!(has(&["append#1 ", "refused: SESSION_IO: ", "C8"]), "{lines:#?}");
    }
}
