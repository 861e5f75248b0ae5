//! Every case of the `faults` and `crash` suites as a test of its own, and a declared part of the former once more on a
//! real directory.
//!
//! `cargo test --test cases -- C8/rename` runs those of one stage; a failure prints the command that replays it.

use std::collections::HashSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use session_harness::call::Reply;
use session_harness::fault::{Kind, Span};
use session_harness::inject::{Event, Outcome};
use session_harness::report::{Row, replay_command};
use session_harness::scenario::Run;
use session_harness::subject::REFERENCE;
use session_harness::suite::crash;
use session_harness::suite::faults::{self, Case, Finished, Results, SCENARIOS};
use session_harness::world::Backend;
use session_tree::Errno;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for scenario in 0..SCENARIOS.len() {
        let singles = faults::single_faults(REFERENCE, scenario)
            .unwrap_or_else(|error| panic!("no fault-free run: {error}"));
        for case in singles.into_iter().filter(is_run_for_real) {
            trials.push(Trial::test(format!("real/{}", case.id()), move || agrees_for_real(&case)));
        }
    }
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let results = faults::run_all(REFERENCE, jobs, &|_, _| {})
        .unwrap_or_else(|error| panic!("no enumeration: {error}"));
    let met = Met::of(&results);
    trials.push(Trial::test("every_stage_is_met_by_every_kind_that_can_strike_it", move || met.check()));
    trials.extend(results.finished.into_iter().map(|finished| {
        let case = finished.case;
        Trial::test(case.id(), move || holds(&case))
    }));
    let options = crash::Options::default();
    let cases = crash::cases(&options).unwrap_or_else(|error| panic!("no enumeration: {error}"));
    trials.extend(cases.into_iter().map(|case| Trial::test(case.to_string(), move || survives(&case))));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// How many cases with distinct traces there are, and which ways to go wrong meet which stages.
struct Met {
    cases: usize,
    cells: HashSet<(&'static str, &'static str)>,
}

impl Met {
    fn of(results: &Results) -> Met {
        let cell = |finished: &Finished| (Row::of(&finished.case.plan).words(), finished.case.stage.id());
        Met { cases: results.finished.len(), cells: results.finished.iter().map(cell).collect() }
    }

    fn check(&self) -> Result<(), Failed> {
        const EVERY: [&str; 28] = [
            "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12", "C20", "K1", "K2",
            "K3", "K4", "K5", "K6", "K7", "K8", "K9", "V1", "V2", "V3", "V4", "V5", "V6",
        ];
        // Only what has an effect can fail after it.
        const WITH_EFFECT: [&str; 20] = [
            "C1", "C2", "C3", "C4", "C6", "C8", "C10", "C11", "C12", "C20", "K1", "K2", "K3", "K4", "K5",
            "K7", "K8", "K9", "V1", "V4",
        ];
        let expected = [
            (Row::FailsBefore, &EVERY[..]),
            (Row::Actor, &EVERY),
            (Row::Killed, &EVERY),
            (Row::FailsAfter, &WITH_EFFECT),
            (Row::Short, &["C3", "C20", "K3", "V5"]),
            (Row::Held, &["C1", "C2", "C20", "K2"]),
        ];
        for (row, stages) in expected {
            let missing: Vec<_> =
                stages.iter().filter(|stage| !self.cells.contains(&(row.words(), **stage))).collect();
            if !missing.is_empty() {
                return Err(format!("no case of `{}` strikes {missing:?}", row.words()).into());
            }
        }
        if self.cases < 1_000 { Err(format!("only {} distinct traces", self.cases).into()) } else { Ok(()) }
    }
}

/// The part that is run on a real directory too: single faults that strike once, one representative of each way to
/// fail, and every outside actor. Kills are left to tests with real processes.
fn is_run_for_real(case: &Case) -> bool {
    const SCENARIOS: [&str; 5] = ["create", "load", "append", "roll-back", "roll-back-by-copy"];
    let representative = case.plan.0.iter().all(|fault| {
        fault.span == Span::Times(1)
            && match fault.kind {
                Kind::Before(errno) | Kind::After(errno) => {
                    matches!(errno, Errno::EIO | Errno::EINTR | Errno::EEXIST)
                }
                Kind::Short | Kind::ShortThen(_) | Kind::NoProgress | Kind::Held | Kind::Actor(_) => true,
                Kind::KillBefore | Kind::KillAfter | Kind::SyncDrops(_) | Kind::SyncLies => false,
            }
    });
    representative && SCENARIOS.contains(&case.scenario().name)
}

fn holds(case: &Case) -> Result<(), Failed> {
    let run = case.run(REFERENCE, Backend::Simulated)?;
    judged(case, &run)
}

/// Every state that a cut in the workload may leave, judged by itself.
fn survives(case: &crash::Token) -> Result<(), Failed> {
    let result = crash::run_one(case, &crash::Options::default())?;
    let Some(broken) = result.broken.first() else { return Ok(()) };
    let evidence: Vec<_> =
        broken.violations.iter().map(|it| format!("{}: {}", it.promise, it.evidence)).collect();
    Err(format!(
        "{}\nreplay: {}",
        evidence.join("; "),
        replay_command("reference", &broken.token.to_string())
    )
    .into())
}

fn judged(case: &Case, run: &Run) -> Result<(), Failed> {
    let Some(violation) = run.violations.first() else { return Ok(()) };
    let replay = replay_command("reference", &case.id());
    Err(format!(
        "{} ({}): {}\nreplay: {replay}",
        violation.promise.words(),
        violation.promise,
        violation.evidence
    )
    .into())
}

/// The same answers and the same system calls as on the simulated disk, and no broken promise.
fn agrees_for_real(case: &Case) -> Result<(), Failed> {
    let (simulated, real) = (case.run(REFERENCE, Backend::Simulated)?, case.run(REFERENCE, Backend::Real)?);
    judged(case, &real)?;
    let (expected, seen) = (calls(&simulated.trace), calls(&real.trace));
    if expected != seen {
        let at = expected.iter().zip(&seen).take_while(|(one, other)| one == other).count();
        return Err(format!(
            "system call {at} differs: simulated {:?}, real {:?}",
            expected.get(at),
            seen.get(at)
        )
        .into());
    }
    let (expected, seen) = (answers(&simulated), answers(&real));
    if expected != seen {
        return Err(format!("answers differ: simulated {expected:?}, real {seen:?}").into());
    }
    Ok(())
}

fn calls(trace: &[Event]) -> Vec<(String, Outcome)> {
    trace
        .iter()
        .map(|event| (format!("{} {}@{}#{}", event.during, event.op, event.target, event.nth), event.outcome))
        .collect()
}

/// What was answered, without what names the directory.
fn answers(run: &Run) -> Vec<String> {
    let told = |reply: &Reply| match reply {
        Reply::Refused(refusal) => {
            format!("{} {:?} {:?} {}", refusal.code, refusal.errno, refusal.stage, refusal.poisoned)
        }
        other => format!("{other:?}"),
    };
    run.replies.iter().map(|(call, reply)| format!("{call}: {}", told(reply))).collect()
}
