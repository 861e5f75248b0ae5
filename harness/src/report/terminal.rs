//! The report for a person at a terminal.

use std::fmt::Write;

use session_tree::Stage;

use super::{Outcomes, Report, Status};
use crate::fault::Kind;
use crate::suite::crash;
use crate::suite::faults::{self, Finished, Results};

/// The stages of a commit, of a create, of a load, and of a roll back: one table each.
const TABLES: [(&str, &[Stage]); 3] = [
    (
        "commit",
        &[
            Stage::C1,
            Stage::C2,
            Stage::C3,
            Stage::C4,
            Stage::C5,
            Stage::C6,
            Stage::C7,
            Stage::C8,
            Stage::C9,
            Stage::C10,
            Stage::C11,
            Stage::C12,
            Stage::C20,
        ],
    ),
    (
        "create",
        &[Stage::K1, Stage::K2, Stage::K3, Stage::K4, Stage::K5, Stage::K6, Stage::K7, Stage::K8, Stage::K9],
    ),
    ("load", &[Stage::V1, Stage::V2, Stage::V3, Stage::V4, Stage::V5, Stage::V6]),
];

/// The ways to go wrong, as rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A call fails without effect.
    FailsBefore,
    /// A call fails with effect.
    FailsAfter,
    /// A transfer is cut short, or makes no progress.
    Short,
    /// A lock is held by somebody else.
    Held,
    /// Somebody else acts.
    Actor,
    /// The process is killed.
    Killed,
    /// A second fault strikes the handling of the first.
    Twice,
}

impl Row {
    /// Every row.
    pub const ALL: [Row; 7] =
        [Row::FailsBefore, Row::FailsAfter, Row::Short, Row::Held, Row::Actor, Row::Killed, Row::Twice];

    /// The row's words.
    pub const fn words(self) -> &'static str {
        match self {
            Row::FailsBefore => "fails before",
            Row::FailsAfter => "fails after",
            Row::Short => "short transfer",
            Row::Held => "lock held",
            Row::Actor => "outside actor",
            Row::Killed => "killed",
            Row::Twice => "fails twice",
        }
    }

    /// The row of a case.
    pub fn of(finished: &Finished) -> Row {
        match finished.case.plan.0.as_slice() {
            [only] => match only.kind {
                Kind::Before(_) | Kind::SyncDrops(_) => Row::FailsBefore,
                Kind::After(_) | Kind::SyncLies => Row::FailsAfter,
                Kind::Short | Kind::ShortThen(_) | Kind::NoProgress => Row::Short,
                Kind::Held => Row::Held,
                Kind::Actor(_) => Row::Actor,
                Kind::KillBefore | Kind::KillAfter => Row::Killed,
            },
            _ => Row::Twice,
        }
    }
}

/// The whole report. `seconds` is how long the run took.
pub fn render(report: &Report, outcomes: &Outcomes, seconds: f64) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} {}   subject {}   profile {}   seed {:x}\n",
        report.tool, report.version, report.subject, report.profile, report.seed
    );
    let passed = |suite: &str| {
        let of_suite = || report.cases.iter().filter(|case| case.suite == suite);
        (of_suite().count() as u64, of_suite().filter(|case| case.status == Status::Pass).count() as u64)
    };
    if let Some(results) = &outcomes.faults {
        let (cases, pass) = passed(faults::NAME);
        let _ = writeln!(
            out,
            "faults   {} cases with distinct traces   {} pass   {} more runs had an equal trace",
            grouped(cases),
            grouped(pass),
            grouped(results.merged as u64),
        );
    }
    if let Some(results) = &outcomes.crash {
        let (cases, pass) = passed(crash::NAME);
        crash_line(&mut out, report, results, cases, pass);
    }
    let _ = writeln!(out, "         {} faults struck\n", grouped(report.summary.faults_fired));
    if let Some(results) = &outcomes.faults {
        for (name, stages) in TABLES {
            table(&mut out, results, name, stages);
        }
        let _ = writeln!(
            out,
            "a cell counts cases; `!` marks violations; blank: nothing there can go wrong that way"
        );
    }
    if report.summary.race_windows > 0 {
        let _ = writeln!(
            out,
            "race windows: in {} cases somebody's file came between the last look at a name and the call that used it",
            report.summary.race_windows
        );
    }
    verdict(&mut out, report, seconds);
    out
}

fn crash_line(out: &mut String, report: &Report, results: &crash::Results, cases: u64, pass: u64) {
    let longest = results.cases.iter().filter(|case| case.token.plan.0.is_empty());
    let longest = longest.map(|case| case.token.workload.steps.len()).max().unwrap_or(0);
    let _ = writeln!(
        out,
        "crash    {} workloads   {} pass   {} cuts   {} disks   {} distinct states   complete to {longest} operations",
        grouped(cases),
        grouped(pass),
        grouped(report.summary.cuts as u64),
        grouped(report.summary.disks as u64),
        grouped(report.summary.states_checked as u64),
    );
    let _ = writeln!(
        out,
        "         in {} states a load refused and recovery led on   digest {}",
        grouped(report.summary.refusals_recovered as u64),
        report.summary.digest.as_deref().unwrap_or_default(),
    );
}

fn table(out: &mut String, results: &Results, name: &str, stages: &[Stage]) {
    let _ = write!(out, "{name:<16}");
    for stage in stages {
        let _ = write!(out, "{:>7}", stage.id());
    }
    let _ = write!(out, "\n{:<16}", "");
    for stage in stages {
        let short: String = short_words(*stage).chars().take(6).collect();
        let _ = write!(out, "{short:>7}");
    }
    out.push('\n');
    for row in Row::ALL {
        let cells: Vec<(usize, usize)> = stages.iter().map(|stage| count(results, row, *stage)).collect();
        if cells.iter().all(|(cases, _)| *cases == 0) {
            continue;
        }
        let _ = write!(out, "  {:<14}", row.words());
        for (cases, bad) in cells {
            let text = match (cases, bad) {
                (0, _) => String::new(),
                (cases, 0) => cases.to_string(),
                (_, bad) => format!("!{bad}"),
            };
            let _ = write!(out, "{text:>7}");
        }
        out.push('\n');
    }
    out.push('\n');
}

/// Cases of a cell, and those among them with violations.
fn count(results: &Results, row: Row, stage: Stage) -> (usize, usize) {
    let in_cell = || {
        results
            .finished
            .iter()
            .filter(move |finished| finished.case.stage == stage && Row::of(finished) == row)
    };
    (in_cell().count(), in_cell().filter(|finished| !finished.run.violations.is_empty()).count())
}

fn short_words(stage: Stage) -> &'static str {
    match stage {
        Stage::C2 | Stage::K2 => "create",
        Stage::C3 => "write",
        Stage::C4 => "fsync",
        Stage::C5 | Stage::C7 | Stage::C9 => "verify",
        Stage::C6 => "link",
        Stage::C10 | Stage::C12 | Stage::K7 | Stage::K9 => "dsync",
        Stage::C11 | Stage::K8 => "unlink",
        Stage::C20 => "undo",
        Stage::V6 => "again",
        other => other.words(),
    }
}

fn verdict(out: &mut String, report: &Report, seconds: f64) {
    let broken = report.broken_promises();
    if broken.is_empty() {
        let _ = writeln!(
            out,
            "\nholds in {} cases: every acknowledged entry survives, nothing is invented, no failure is hidden   ({seconds:.1} s)",
            grouped(report.cases.len() as u64)
        );
        return;
    }
    for (promise, (times, case)) in broken {
        let seen = case.evidence.iter().find(|evidence| evidence.promise == promise);
        let _ = writeln!(out, "\nviolated: {promise}, {times} times; the first:\n  {}", case.id);
        let _ = writeln!(out, "  {}", seen.map_or("", |evidence| evidence.seen.as_str()));
        let _ = writeln!(out, "  replay:  {}", case.replay);
    }
    let _ = writeln!(
        out,
        "\n{} of {} cases broke a promise   ({seconds:.1} s)",
        report.summary.violation + report.summary.harness_error,
        report.cases.len()
    );
}

/// A number with a narrow gap between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}
