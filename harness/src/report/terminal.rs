//! The report for a person at a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use clap::builder::styling::{AnsiColor, Style};

use super::{CaseReport, Group, Level, Partial, Report, Status, TABLES, Table, Verdict, grouped};
use crate::promise::Promise;
use crate::replay::FAULT_MARK;
use crate::suite::Suite;

/// Of each broken promise so many kinds of failure are shown, one case of each; the reports have them all.
const SHOWN: usize = 3;

/// Of so many further kinds the id of one case is printed.
const NAMED: usize = 40;

/// Lines of a schedule that are shown.
const SCHEDULE: usize = 16;

/// Columns of a table's cell.
const WIDTH: usize = 7;

/// The whole report.
pub fn render(report: &Report, color: bool) -> String {
    let paint = Paint { color };
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} {}   subject {}   profile {}   seed {}{}\n",
        report.tool,
        report.version,
        report.subject,
        report.profile,
        report.seed,
        report.selection.shard.as_ref().map(|shard| format!("   part {shard}")).unwrap_or_default(),
    );
    for suite in &report.selection.suites {
        suite_line(&mut out, report, *suite);
    }
    if report.summary.tally.faults_fired > 0 {
        let _ = writeln!(out, "             {} faults struck", grouped(report.summary.tally.faults_fired));
    }
    tables(&mut out, report, paint);
    left_out(&mut out, report);
    if report.summary.tally.race_windows > 0 {
        let _ = writeln!(
            out,
            "race windows: in {} cases somebody's file came between the last look at a name and the call that used it",
            report.summary.tally.race_windows
        );
    }
    out.push_str(&verdict(report, color));
    out
}

/// The verdict, and what broke.
pub fn verdict(report: &Report, color: bool) -> String {
    let paint = Paint { color };
    let mut out = String::new();
    for (what, groups) in report.failures() {
        failures(&mut out, what, &groups, paint);
    }
    for glob in &report.unmatched_expectations {
        let _ = writeln!(out, "\n{} no case is called {glob}", paint.bad("expected in vain:"));
    }
    let failed = report.cases.iter().filter(|case| case.fails()).count();
    let (cases, seconds) = (grouped(report.asked()), seconds(report));
    let _ = match (report.verdict(), report.partial) {
        (Verdict::Holds, _) => writeln!(
            out,
            "\n{} in {cases} {}{}: {}   ({seconds})",
            paint.good("holds"),
            if report.asked() == 1 { "case" } else { "cases" },
            known(report),
            report.claim(),
        ),
        (Verdict::Incomplete, _) => writeln!(
            out,
            "\n{} after {cases} cases, none of which failed   ({seconds})",
            paint.bad("interrupted")
        ),
        (Verdict::Violated, _) if failed == 0 => writeln!(
            out,
            "\n{} none of {cases} cases failed, but an expectation matches no case{}   ({seconds})",
            paint.bad("does not hold:"),
            known(report),
        ),
        (_, partial) => writeln!(
            out,
            "\n{} {} of {cases} cases failed{}{}   ({seconds})",
            paint.bad("does not hold:"),
            grouped(failed),
            known(report),
            match partial {
                None => "",
                Some(Partial::Interrupted) => ", and the run was interrupted",
                Some(Partial::FailFast) => ", where the run ended as asked for",
            },
        ),
    };
    out
}

/// What a run says nothing of, and why.
fn left_out(out: &mut String, report: &Report) {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for case in report.cases.iter().filter(|case| case.status == Status::Unsupported) {
        *reasons.entry(case.reason.as_deref().unwrap_or("no reason given")).or_default() += 1;
    }
    if report.not_seen_by.iter().any(|unseen| unseen.suite == Suite::Crash) {
        out.push_str("power cuts and missing fsyncs are not tested for this store\n");
    }
    for unseen in &report.not_seen_by {
        let _ = writeln!(out, "not seen by {}: {}", unseen.suite, unseen.reason);
    }
    for (reason, count) in reasons {
        let cases = if count == 1 { "case" } else { "cases" };
        let _ = writeln!(out, "unsupported, {} {cases}: {}", grouped(count), harmless(reason));
    }
}

fn seconds(report: &Report) -> String {
    format!("{}.{} s", report.summary.duration_ms / 1_000, report.summary.duration_ms % 1_000 / 100)
}

/// What did not pass and fails no run.
fn known(report: &Report) -> String {
    let mut out = String::new();
    for (count, words) in
        [(report.summary.expected_failure, "known failures"), (report.summary.skipped, "skipped")]
    {
        if count > 0 {
            let _ = write!(out, "; {} {words}", grouped(count));
        }
    }
    match report.summary.unsupported {
        0 => {}
        1 => out.push_str("; 1 does not apply"),
        count => {
            let _ = write!(out, "; {} do not apply", grouped(count));
        }
    }
    out
}

fn suite_line(out: &mut String, report: &Report, suite: Suite) {
    let count = |status| report.of_suite(suite).filter(|case| case.status == status).count();
    let counted = report.of_suite(suite).filter(|case| case.level == Level::Must).count();
    let _ = write!(out, "{:<13}{} {}", suite.name(), grouped(counted), unit(suite));
    for (status, words) in STATUSES {
        if count(status) > 0 {
            let _ = write!(out, "   {} {words}", grouped(count(status)));
        }
    }
    let tally = &report.summary.tally;
    match suite {
        Suite::Conformance => out.push('\n'),
        Suite::Faults => {
            let _ = writeln!(out, "   {} more runs had an equal trace", grouped(tally.merged));
        }
        Suite::Concurrency => {
            let counts = tally.concurrency.unwrap_or_default();
            let _ = writeln!(
                out,
                "   {} schedules, {} overlaps, first won {}, second won {}",
                grouped(counts.schedules),
                grouped(counts.overlaps),
                grouped(counts.first_won),
                grouped(counts.second_won),
            );
        }
        Suite::Crash => {
            let _ = writeln!(
                out,
                "   {} cuts   {} disks{}",
                grouped(tally.cuts),
                grouped(tally.disks),
                report
                    .selection
                    .depth
                    .filter(|_| report.is_whole())
                    .map_or(String::new(), |depth| format!("   complete to {depth} operations")),
            );
            let _ = writeln!(
                out,
                "             {} distinct states   in {} a load refused and recovery led on   digest {}",
                grouped(tally.states_checked),
                grouped(tally.refusals_recovered),
                tally.digest.as_deref().unwrap_or_default(),
            );
        }
    }
}

/// What a suite's cases are called.
fn unit(suite: Suite) -> &'static str {
    match suite {
        Suite::Conformance => "must",
        Suite::Faults => "cases with distinct traces",
        Suite::Crash => "workloads",
        Suite::Concurrency => "cases",
    }
}

/// How cases ended, in the words of a line.
pub(super) const STATUSES: [(Status, &str); 9] = [
    (Status::Pass, "pass"),
    (Status::Violation, "violated"),
    (Status::Recorded, "choices recorded"),
    (Status::Timeout, "timed out"),
    (Status::Crash, "crashed"),
    (Status::HarnessError, "errors of the harness"),
    (Status::ExpectedFailure, "known failures"),
    (Status::Skipped, "skipped"),
    (Status::Unsupported, "unsupported"),
];

fn tables(out: &mut String, report: &Report, paint: Paint) {
    let mut is_empty = true;
    for table in &TABLES {
        let Some(rows) = table.cells(report) else { continue };
        is_empty = false;
        out.push('\n');
        heading(out, table);
        for (row, cells) in rows {
            let _ = write!(out, "  {:<14}", row.words());
            for cell in cells {
                let text = match (cell.cases, cell.failed) {
                    (0, _) => String::new(),
                    (cases, 0) => cases.to_string(),
                    (_, failed) => format!("!{failed}"),
                };
                let padded = format!("{text:>WIDTH$}");
                out.push_str(&if cell.failed > 0 { paint.bad(&padded) } else { padded });
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
    }
    if !is_empty {
        out.push_str(
            "\na cell counts cases, of power cuts the cuts; `!` counts those that failed; blank: nothing there can go wrong \
             that way\n",
        );
    }
}

fn heading(out: &mut String, table: &Table) {
    let _ = write!(out, "{:<16}", table.name);
    for stage in table.stages {
        let _ = write!(out, "{:>WIDTH$}", stage.id());
    }
    let _ = write!(out, "\n{:<16}", "");
    for stage in table.stages {
        let short: String = Table::words(*stage).chars().take(WIDTH - 1).collect();
        let _ = write!(out, "{short:>WIDTH$}");
    }
    out.push('\n');
}

fn failures(out: &mut String, what: &str, groups: &[Group<'_>], paint: Paint) {
    let cases: usize = groups.iter().map(|group| group.cases.len()).sum();
    let words = in_words(what);
    let _ = writeln!(out, "\n{} {words}   ({what}, in {} cases)", paint.bad("violated:"), grouped(cases));
    for (at, Group { cases, .. }) in groups.iter().take(SHOWN).enumerate() {
        let Some(case) = cases.first() else { continue };
        let _ = writeln!(out, "  {}{}", case.id, like_it(cases.len() - 1));
        failure(out, case, at == 0);
    }
    if groups.len() > SHOWN {
        others(out, &groups[SHOWN..]);
    }
}

/// The ids of the kinds of failure that are not shown.
fn others(out: &mut String, groups: &[Group<'_>]) {
    let count = |groups: &[Group<'_>]| grouped(groups.iter().map(|group| group.cases.len()).sum::<usize>());
    let _ = writeln!(out, "  and {} more of {} other kinds:", count(groups), grouped(groups.len()));
    let named = &groups[..groups.len().min(NAMED)];
    for Group { cases, .. } in named {
        let Some(case) = cases.first() else { continue };
        let _ = writeln!(out, "    {}{}", case.id, like_it(cases.len() - 1));
    }
    let unnamed = &groups[named.len()..];
    if !unnamed.is_empty() {
        let _ = writeln!(out, "    and {} more, which a report lists", count(unnamed));
    }
}

fn like_it(further: usize) -> String {
    if further == 0 { String::new() } else { format!("   and {} like it", grouped(further)) }
}

fn failure(out: &mut String, case: &CaseReport, with_schedule: bool) {
    if let Some(unexpected) = &case.unexpected {
        let _ = writeln!(out, "    {unexpected}");
    }
    let (causes, consequences) = case.causes_and_consequences();
    for evidence in causes {
        let _ = writeln!(out, "    {}", indented(&evidence.seen));
    }
    let follow: BTreeSet<&str> = consequences.iter().filter_map(|it| it.promise.as_deref()).collect();
    if !follow.is_empty() {
        let _ = writeln!(out, "    in consequence: {}", follow.into_iter().collect::<Vec<_>>().join(", "));
    }
    if with_schedule {
        for line in excerpt(&case.schedule) {
            let _ = writeln!(out, "      {}", harmless(line));
        }
    }
    let _ = writeln!(out, "    replay:  {}", case.replay);
}

/// What leads to the failure: from shortly before the first fault on, or else the end.
fn excerpt(schedule: &[String]) -> &[String] {
    let end = schedule.len().saturating_sub(SCHEDULE);
    let fault = schedule.iter().position(|line| line.contains(FAULT_MARK));
    let start = fault.map_or(end, |at| at.saturating_sub(SCHEDULE / 4).min(end));
    &schedule[start..schedule.len().min(start + SCHEDULE)]
}

/// What a kind of failure means.
pub(super) fn in_words(what: &str) -> &str {
    match what {
        "as-expected" => "a case did not end as it was expected to",
        "in-time" => "there was no answer in time",
        "conformance" => "an answer is none that the contract allows",
        "no-crash" => "the store panicked or ended",
        what => Promise::find(what).map_or(what, |promise| promise.words()),
    }
}

fn indented(text: &str) -> String {
    harmless(text).replace('\n', "\n    ")
}

/// Text of a subject, which must not move the cursor or change colours.
fn harmless(text: &str) -> String {
    text.chars().map(|char| if char.is_control() && char != '\n' { '\u{fffd}' } else { char }).collect()
}

#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

impl Paint {
    fn good(self, text: &str) -> String {
        self.paint(AnsiColor::Green.on_default().bold(), text)
    }

    fn bad(self, text: &str) -> String {
        self.paint(AnsiColor::Red.on_default().bold(), text)
    }

    fn paint(self, style: Style, text: &str) -> String {
        if self.color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;

    #[test]
    fn every_row_of_a_table_has_words_that_fit() {
        assert!(Row::ALL.iter().all(|row| row.words().len() <= 14));
    }

    #[test]
    fn a_subject_cannot_write_to_the_terminal_by_its_evidence() {
        assert_eq!(harmless("a\u{1b}[2Jb\nc\u{9b}d"), "a\u{fffd}[2Jb\nc\u{fffd}d");
    }
}
