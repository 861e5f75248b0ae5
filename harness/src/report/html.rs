//! The report for a browser: one page that needs nothing from elsewhere, and no script.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::terminal::{STATUSES, in_words};
use super::{CaseReport, Cell, Evidence, Partial, Report, Row, Status, TABLES, Table, Verdict};
use crate::replay::FAULT_MARK;
use crate::requirement::{self, Requirement};
use crate::suite::Suite;

/// Of each kind of failure so many cases are shown at once and in full; the others on demand, with their evidence.
const IN_FULL: usize = 5;

/// Of each kind of failure so many cases are shown at all; the JSON report has them all.
const SHOWN: usize = 200;

const STYLE: &str = include_str!("html/style.css");

/// The whole page.
pub fn render(report: &Report) -> String {
    let about = about(report);
    let title = format!("{} — {}", report.subject, headline(report));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (verdict(report))
                    (suites(report))
                    (matrix(report))
                    (coverage(&about))
                    (failures(report))
                    (known(report))
                    (choices(report))
                    (requirements(&about))
                }
            }
        }
    };
    page.into_string()
}

fn headline(report: &Report) -> String {
    let cases = grouped(report.cases.len());
    let failed = report.cases.iter().filter(|case| case.fails()).count();
    match report.verdict() {
        Verdict::Holds => format!("holds in {cases} cases"),
        Verdict::Violated if failed == 0 => "expectations that match no case".to_owned(),
        Verdict::Violated => format!("does not hold: {} of {cases} cases failed", grouped(failed)),
        Verdict::HarnessFailed => format!("{} errors of the harness in {cases} cases", grouped(failed)),
        Verdict::Incomplete => format!("interrupted after {cases} cases, none of which failed"),
    }
}

fn verdict(report: &Report) -> Markup {
    let class = match report.verdict() {
        Verdict::Holds => "verdict good",
        Verdict::Violated | Verdict::HarnessFailed => "verdict bad",
        Verdict::Incomplete => "verdict open",
    };
    html! {
        header class=(class) {
            p.subject { (report.subject) span.count { " tested by " (report.tool) " " (report.version) } }
            h1 { (headline(report)) }
            @if report.verdict() == Verdict::Holds {
                p { (sentence(report.claim())) "." }
            }
            @if let Some(partial) = report.partial {
                p.partial {
                    @match partial {
                        Partial::Interrupted => "The run was interrupted: what follows is a part of it.",
                        Partial::FailFast => "The run ended at the first failure, as asked for: what follows is a part of it.",
                    }
                }
            }
            @for glob in &report.unmatched_expectations {
                p.partial { "An expectation matches no case: " code { (glob) } }
            }
            (facts(report))
        }
    }
}

fn facts(report: &Report) -> Markup {
    let selection = &report.selection;
    html! {
        dl.facts {
            div { dt { "profile" } dd { (report.profile) } }
            div { dt { "seed" } dd { (report.seed) } }
            @if let Some(depth) = selection.depth { div { dt { "depth" } dd { (depth) } } }
            @if let Some(shard) = &selection.shard { div { dt { "part" } dd { (shard) } } }
            @for glob in &selection.filter { div { dt { "filter" } dd { code { (glob) } } } }
            div { dt { "time" } dd { (seconds(report.summary.duration_ms)) } }
        }
    }
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100)
}

fn suites(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Suites" }
            div.scroll {
                table.suites {
                    thead {
                        tr { th { "suite" } th { "cases" } @for (_, words) in seen_statuses(report) { th { (words) } } }
                    }
                    tbody {
                        @for suite in &report.selection.suites { (suite_row(report, *suite)) }
                    }
                }
            }
            p.note { (tallies(report).join("; ")) }
            @if let Some(digest) = &report.summary.tally.digest {
                p.note { "Digest of the states: " code { (digest) } }
            }
        }
    }
}

/// What was done and seen along the way.
fn tallies(report: &Report) -> Vec<String> {
    let tally = &report.summary.tally;
    let faults = usize::try_from(tally.faults_fired).unwrap_or(usize::MAX);
    [
        (faults, format!("{} faults struck", grouped(faults))),
        (tally.merged, format!("{} more runs had a trace equal to that of a case", grouped(tally.merged))),
        (
            tally.cuts,
            format!(
                "the power was cut {} times, which left {} disks in {} distinct states",
                grouped(tally.cuts),
                grouped(tally.disks),
                grouped(tally.states_checked)
            ),
        ),
        (
            tally.refusals_recovered,
            format!("in {} of these a load refused and recovery led on", grouped(tally.refusals_recovered)),
        ),
        (
            tally.race_windows,
            format!(
                "in {} cases somebody’s file came between the last look at a name and the call that used it",
                grouped(tally.race_windows)
            ),
        ),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(_, words)| words)
    .collect()
}

/// The ways to end that some case has.
fn seen_statuses(report: &Report) -> impl Iterator<Item = (Status, &'static str)> {
    STATUSES.into_iter().filter(|(status, _)| report.cases.iter().any(|case| case.status == *status))
}

fn suite_row(report: &Report, suite: Suite) -> Markup {
    let count = |status| report.of_suite(suite).filter(|case| case.status == status).count();
    html! {
        tr {
            th scope="row" { (suite) }
            td { (grouped(report.of_suite(suite).count())) }
            @for (status, _) in seen_statuses(report) {
                td class=[is_bad(status, count(status)).then_some("bad")] { (grouped(count(status))) }
            }
        }
    }
}

fn is_bad(status: Status, count: usize) -> bool {
    let bad = [Status::Violation, Status::Timeout, Status::Crash, Status::HarnessError];
    count > 0 && bad.contains(&status)
}

fn failures(report: &Report) -> Markup {
    let failures = report.failures();
    html! {
        @if !failures.is_empty() {
            section {
                h2 { "Failures" }
                @for (what, cases) in failures {
                    h3 { (sentence(in_words(what))) " " span.count { (grouped(cases.len())) " cases" } }
                    @for (at, case) in cases.iter().take(IN_FULL).enumerate() { (failure(case, at)) }
                    @if cases.len() > IN_FULL { (further(&cases[IN_FULL..])) }
                }
            }
        }
    }
}

fn further(cases: &[&CaseReport]) -> Markup {
    let shown = cases.len().min(SHOWN);
    html! {
        details {
            summary { (grouped(cases.len())) " further cases" }
            @for case in &cases[..shown] { (failure(case, IN_FULL)) }
            @if cases.len() > shown {
                p.note { "and " (grouped(cases.len() - shown)) " more, which the JSON report lists" }
            }
        }
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn failure(case: &CaseReport, at: usize) -> Markup {
    html! {
        details.failure open[at == 0] {
            summary { code { (case.id) } }
            @if let Some(title) = &case.title { p { (title) } }
            @if let Some(unexpected) = &case.unexpected { p { (unexpected) } }
            @for evidence in &case.evidence { (evidence_of(evidence)) }
            @if !case.schedule.is_empty() && at < IN_FULL {
                pre.schedule { @for line in &case.schedule { (schedule_line(line)) "\n" } }
            }
            p.requires { "requires " @for id in &case.requirements { (link(id)) " " } }
            p.replay { "replay: " code { (case.replay) } }
        }
    }
}

fn schedule_line(line: &str) -> Markup {
    html! { @if line.contains(FAULT_MARK) { mark { (line) } } @else { (line) } }
}

fn evidence_of(evidence: &Evidence) -> Markup {
    html! {
        p.evidence {
            @if let Some(promise) = &evidence.promise { span.promise { (promise) } " " }
            (evidence.seen)
            @if evidence.further > 0 { " (and in " (grouped(evidence.further)) " further states)" }
        }
    }
}

fn link(id: &str) -> Markup {
    html! { a href={ "#" (id) } { (id) } }
}

/// What fails no run and did not pass either, by reason.
fn known(report: &Report) -> Markup {
    let mut groups: BTreeMap<(Status, &str), Vec<&CaseReport>> = BTreeMap::new();
    for case in report.cases.iter().filter(|case| !case.fails()) {
        if matches!(case.status, Status::ExpectedFailure | Status::Skipped | Status::Unsupported) {
            let reason = case.reason.as_deref().unwrap_or("no reason is given");
            groups.entry((case.status, reason)).or_default().push(case);
        }
    }
    html! {
        @if !groups.is_empty() {
            section {
                h2 { "Known failures, skipped and unsupported cases" }
                @for ((status, reason), cases) in groups {
                    details {
                        summary {
                            (words(status)) ": " (reason) " " span.count { (grouped(cases.len())) " cases" }
                        }
                        ul.ids { @for case in cases.iter().take(SHOWN) { li { code { (case.id) } } } }
                    }
                }
            }
        }
    }
}

fn words(status: Status) -> &'static str {
    STATUSES.iter().find(|(it, _)| *it == status).map_or("", |(_, words)| words)
}

fn matrix(report: &Report) -> Markup {
    let tables: Vec<_> = TABLES.iter().filter_map(|table| Some((table, table.cells(report)?))).collect();
    html! {
        @if !tables.is_empty() {
            section {
                h2 { "Stages and faults" }
                p.note {
                    "A cell counts the cases in which a fault struck that stage, and for power cuts the cuts that came there; red ones count those that failed. An empty cell: nothing there can go wrong that way."
                }
                @for (table, rows) in tables { (stage_table(table, &rows)) }
            }
        }
    }
}

fn stage_table(table: &Table, rows: &[(Row, Vec<Cell>)]) -> Markup {
    html! {
        div.scroll {
            table.matrix {
                thead {
                    tr {
                        th { (table.name) }
                        @for stage in table.stages {
                            th { a href={ "#" (stage.id()) } { (stage.id()) } br; small { (Table::words(*stage)) } }
                        }
                    }
                }
                tbody {
                    @for (row, cells) in rows {
                        tr { th scope="row" { (row.words()) } @for cell in cells { (cell_of(*cell)) } }
                    }
                }
            }
        }
    }
}

fn cell_of(cell: Cell) -> Markup {
    html! {
        @match cell {
            Cell { cases: 0, .. } => td.none {},
            Cell { cases, failed: 0 } => td.good { (grouped(cases)) },
            Cell { cases, failed } => td.bad title={ (failed) " of " (cases) " failed" } {
                (grouped(failed)) small { "/" (grouped(cases)) }
            },
        }
    }
}

fn choices(report: &Report) -> Markup {
    let recorded: Vec<_> = report.cases.iter().filter(|case| case.status == Status::Recorded).collect();
    html! {
        @if !recorded.is_empty() {
            section {
                h2 { "Choices" }
                p.note { "Where the contract leaves a point open, a store answers in one of several named ways. No answer is a failure." }
                div.scroll {
                    table.choices {
                        thead { tr { th { "choice" } th { "answer" } th { "case" } } }
                        tbody {
                            @for case in recorded {
                                tr {
                                    td { @for id in choice_ids(case) { (link(id)) " " } }
                                    td { strong { (case.answer.as_deref().unwrap_or_default()) } }
                                    td { (case.title.as_deref().unwrap_or(&case.id)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn choice_ids(case: &CaseReport) -> impl Iterator<Item = &str> {
    let is_choice = |id: &&str| {
        requirement::find(id).is_some_and(|it| matches!(it.level, requirement::Level::Choice { .. }))
    };
    case.requirements.iter().map(String::as_str).filter(is_choice)
}

/// The cases about each requirement.
type About<'a> = BTreeMap<&'a str, Vec<&'a CaseReport>>;

fn about(report: &Report) -> About<'_> {
    let mut about = About::new();
    for case in &report.cases {
        for id in &case.requirements {
            about.entry(id).or_default().push(case);
        }
    }
    about
}

fn of<'a>(about: &'a About<'_>, requirement: &Requirement) -> &'a [&'a CaseReport] {
    about.get(requirement.id).map_or(&[], Vec::as_slice)
}

fn coverage(about: &About<'_>) -> Markup {
    let covered = requirement::all().iter().filter(|it| !of(about, it).is_empty()).count();
    html! {
        section {
            h2 { "Requirements" }
            p.note { (covered) " of " (requirement::all().len()) " have cases in this run." }
            p.chips {
                @for requirement in requirement::all() {
                    @let cases = of(about, requirement);
                    a class={ "chip " (health(cases)) } href={ "#" (requirement.id) } title=(requirement.title) {
                        (requirement.id) @if !cases.is_empty() { " " small { (grouped(cases.len())) } }
                    }
                    " "
                }
            }
        }
    }
}

fn requirements(about: &About<'_>) -> Markup {
    html! {
        section {
            h2 { "Requirements in words" }
            div.requirements {
                @for requirement in requirement::all() { (one_requirement(requirement, of(about, requirement))) }
            }
        }
    }
}

fn health(cases: &[&CaseReport]) -> &'static str {
    match cases {
        [] => "none",
        cases if cases.iter().any(|case| case.fails()) => "bad",
        _ => "good",
    }
}

fn one_requirement(requirement: &Requirement, cases: &[&CaseReport]) -> Markup {
    let failed = cases.iter().filter(|case| case.fails()).count();
    html! {
        details class=(health(cases)) id=(requirement.id) {
            summary {
                b { (requirement.id) } " " (requirement.title) " "
                span.count {
                    @match (cases.len(), failed) {
                        (0, _) => "no case here",
                        (1, 0) => "1 case",
                        (cases, 0) => { (grouped(cases)) " cases" },
                        (cases, failed) => { (grouped(failed)) " of " (grouped(cases)) " failed" },
                    }
                }
            }
            p { (requirement.text) }
            @if let Some(example) = cases.iter().find(|case| case.fails()).or(cases.first()) {
                p.note { "such as " code { (example.id) } }
            }
        }
    }
}

/// As on a terminal, but a line never ends within a number.
fn grouped(number: usize) -> String {
    super::grouped(number).replace(' ', "\u{202f}")
}
