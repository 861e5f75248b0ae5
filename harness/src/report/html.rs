//! The report for a browser: one page that needs nothing from elsewhere, and no script.

use std::collections::{BTreeMap, BTreeSet};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::terminal::{STATUSES, in_words};
use super::{CaseReport, Cell, Evidence, Group, Partial, Report, Row, Status, TABLES, Table, Verdict};
use crate::fault::{Actor, Op, Role};
use crate::replay::FAULT_MARK;
use crate::requirement::{self, Requirement};
use crate::suite::Suite;

/// Of each broken promise so many kinds of failure are shown with a case in full.
const KINDS: usize = 12;

/// So much of the evidence of a case is shown at once.
const CAUSES: usize = 3;

/// Where a suite has no more cases than this, none of its requirements is said to be everywhere.
const FEW: usize = 20;

/// In a list so many cases are shown; the JSON report has them all.
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
                    (glossary())
                }
            }
        }
    };
    page.into_string()
}

fn headline(report: &Report) -> String {
    let cases = grouped(report.asked());
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
                p.note {
                    "Under each broken promise, cases that look alike are told once: the same call, the same stage, the same seen but for numbers. "
                    a href="#words" { "Words" }
                    " explains actors and operations."
                }
                @for (what, groups) in failures {
                    @let cases: usize = groups.iter().map(|group| group.cases.len()).sum();
                    h3 {
                        (sentence(in_words(what))) " "
                        span.count { (counted(cases, "case")) ", " (counted(groups.len(), "kind")) }
                    }
                    @for group in groups.iter().take(KINDS) { (kind_of_failure(group)) }
                    @if groups.len() > KINDS { (further_kinds(&groups[KINDS..])) }
                }
            }
        }
    }
}

/// A kind of failure: one case in full, the others by their ids.
fn kind_of_failure(group: &Group<'_>) -> Markup {
    let cluster = &group.cluster;
    html! {
        details.failure open[group.stands_for_suite] {
            summary {
                (cluster.suite)
                @if let Some(call) = &cluster.call { ", " (call) }
                @if let Some(stage) = &cluster.stage { ", at " (link(stage)) }
                ": " (cluster.like) " " span.count { (counted(cluster.cases, "case")) }
            }
            @if let Some((example, others)) = group.cases.split_first() {
                (failure(example))
                @if !others.is_empty() {
                    details {
                        summary { (counted(others.len(), "further case")) " like it" }
                        (ids(others))
                    }
                }
            }
        }
    }
}

fn further_kinds(groups: &[Group<'_>]) -> Markup {
    html! {
        details {
            summary { (counted(groups.len(), "further kind")) }
            @for group in groups.iter().take(SHOWN) {
                @if let Some(example) = group.cases.first() {
                    p { (group.cluster.like) " " span.count { (counted(group.cases.len(), "case")) } br; code { (example.id) } }
                }
            }
            @if groups.len() > SHOWN { p.note { "and " (grouped(groups.len() - SHOWN)) " more, which the JSON report lists" } }
        }
    }
}

fn ids(cases: &[&CaseReport]) -> Markup {
    html! {
        ul.ids { @for case in cases.iter().take(SHOWN) { li { code { (case.id) } } } }
        @if cases.len() > SHOWN {
            p.note { "and " (grouped(cases.len() - SHOWN)) " more, which the JSON report lists" }
        }
    }
}

/// A number with what it counts.
fn counted(number: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn failure(case: &CaseReport) -> Markup {
    let (causes, consequences) = case.causes_and_consequences();
    let (shown, more) = causes.split_at(causes.len().min(CAUSES));
    let broken = case.broken_requirements();
    html! {
        p.id { code { (case.id) } }
        @if let Some(title) = &case.title { p { (title) } }
        @if let Some(unexpected) = &case.unexpected { p { (unexpected) } }
        @for evidence in shown { (evidence_of(evidence)) }
        @if !more.is_empty() { (folded("further evidence", more)) }
        @if !consequences.is_empty() { (folded("in consequence", &consequences)) }
        @if !case.schedule.is_empty() {
            pre.schedule { @for line in &case.schedule { (schedule_line(line)) "\n" } }
        }
        p.requires {
            @if !broken.is_empty() { "broken: " @for id in &broken { (link(id)) " " } }
            @let held: Vec<_> = case.requirements.iter().filter(|id| !broken.contains(id.as_str())).collect();
            @if !held.is_empty() { span.held { "also about: " @for id in held { (link(id)) " " } } }
        }
        p.replay { "replay: " code { (case.replay) } }
    }
}

/// Evidence that a reader of the first needs no more.
fn folded(what: &str, all: &[&Evidence]) -> Markup {
    let promises: BTreeSet<&str> = all.iter().filter_map(|evidence| evidence.promise.as_deref()).collect();
    html! {
        details {
            summary {
                (what) ": " (promises.into_iter().collect::<Vec<_>>().join(", ")) " "
                span.count { (grouped(all.len())) }
            }
            @for evidence in all { (evidence_of(evidence)) }
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
                            (words(status)) ": " (reason) " " span.count { (counted(cases.len(), "case")) }
                        }
                        (ids(&cases))
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

/// What a run says of a requirement.
#[derive(Default)]
struct About<'a> {
    /// The cases that cite it.
    cases: Vec<&'a CaseReport>,
    /// The cases that broke a promise which stands for it, cited or not.
    broken: Vec<&'a CaseReport>,
    /// Whether most cases of a suite cite it, so that it has part in every failure there.
    is_everywhere: bool,
}

type AboutAll<'a> = BTreeMap<&'a str, About<'a>>;

fn about(report: &Report) -> AboutAll<'_> {
    let mut about = AboutAll::new();
    for requirement in requirement::all() {
        about.insert(requirement.id, About::default());
    }
    for case in &report.cases {
        for id in &case.requirements {
            about.entry(id).or_default().cases.push(case);
        }
        for id in case.broken_requirements() {
            about.entry(id).or_default().broken.push(case);
        }
    }
    for suite in &report.selection.suites {
        let all = report.of_suite(*suite).count();
        for one in about.values_mut() {
            let citing = one.cases.iter().filter(|case| case.suite == *suite).count();
            one.is_everywhere |= all > FEW && citing * 2 > all;
        }
    }
    about
}

impl About<'_> {
    fn health(&self) -> &'static str {
        if !self.broken.is_empty() {
            "bad"
        } else if self.cases.is_empty() {
            "none"
        } else if self.failed_otherwise() > 0 {
            "touched"
        } else {
            "good"
        }
    }

    /// Cases that cite it and failed by something else.
    fn failed_otherwise(&self) -> usize {
        self.cases.iter().filter(|case| case.fails()).count()
    }

    fn words(&self) -> String {
        let cases = counted(self.cases.len(), "case");
        match (self.cases.len(), self.broken.len(), self.failed_otherwise()) {
            (0, 0, _) => "no case here".to_owned(),
            (_, 0, 0) => cases,
            (_, 0, failed) => format!("held; {} of {cases} failed otherwise", grouped(failed)),
            (_, broken, _) => format!("broken in {}", counted(broken, "case")),
        }
    }

    /// A case of each suite, one that broke it where there is one.
    fn examples(&self) -> BTreeMap<Suite, &str> {
        let mut examples = BTreeMap::new();
        for case in self.broken.iter().chain(&self.cases) {
            examples.entry(case.suite).or_insert(case.id.as_str());
        }
        examples
    }
}

fn coverage(about: &AboutAll<'_>) -> Markup {
    let all = || requirement::all().iter().filter_map(|it| Some((it, about.get(it.id)?)));
    let covered = all().filter(|(_, about)| !about.cases.is_empty()).count();
    html! {
        section {
            h2 { "Requirements" }
            p.note {
                (covered) " of " (requirement::all().len()) " have cases in this run. "
                "Red: a promise that stands for it was broken. "
                @if all().any(|(_, about)| about.health() == "touched") {
                    "Amber: cases that cite it failed, by something else. "
                }
                @if all().any(|(_, about)| about.is_everywhere) {
                    "Dashed: most cases of a suite cite it, whatever they are about."
                }
            }
            p.chips {
                @for (requirement, about) in all() {
                    a class={ "chip " (about.health()) @if about.is_everywhere { " everywhere" } }
                        href={ "#" (requirement.id) } title={ (requirement.title) ": " (about.words()) } {
                        (requirement.id)
                        @match (about.broken.len(), about.cases.len()) {
                            (0, 0) => {},
                            (0, cases) => { " " small { (grouped(cases)) } },
                            (broken, _) => { " " small { (grouped(broken)) " broken" } },
                        }
                    }
                    " "
                }
            }
        }
    }
}

fn requirements(about: &AboutAll<'_>) -> Markup {
    html! {
        section {
            h2 { "Requirements in words" }
            div.requirements {
                @for requirement in requirement::all() {
                    @if let Some(about) = about.get(requirement.id) { (one_requirement(requirement, about)) }
                }
            }
        }
    }
}

fn one_requirement(requirement: &Requirement, about: &About<'_>) -> Markup {
    let examples = about.examples();
    html! {
        details class=(about.health()) id=(requirement.id) {
            summary {
                b { (requirement.id) } " " (requirement.title) " " span.count { (about.words()) }
            }
            p { (requirement.text) }
            @if !examples.is_empty() {
                p.note { "such as " @for id in examples.values() { code { (id) } " " } }
            }
        }
    }
}

/// What the words of ids and traces mean: `rename@temporary>session#1` is an operation on one or two roles of files.
fn glossary() -> Markup {
    let ops = Op::ALL.iter().map(|it| (it.as_str(), it.meaning()));
    let roles = Role::ALL.iter().map(|it| (it.as_str(), it.meaning()));
    let actors = Actor::ALL.iter().map(|it| (it.as_str(), it.meaning()));
    html! {
        section id="words" {
            h2 { "Words" }
            p.note {
                "A fault reads " code { "rename@temporary>session#1=EIO_after,once" }
                ": at the first rename of the temporary over the session file, the call has its effect and then answers EIO, one time. "
                code { "before" } " is without an effect."
            }
            (words_of("Operations", ops)) (words_of("Files", roles)) (words_of("Outside actors", actors))
        }
    }
}

fn words_of(title: &str, words: impl Iterator<Item = (&'static str, &'static str)>) -> Markup {
    html! {
        details {
            summary { (title) }
            dl.words { @for (word, meaning) in words { div { dt { code { (word) } } dd { (meaning) } } } }
        }
    }
}

/// As on a terminal, but a line never ends within a number.
fn grouped(number: usize) -> String {
    super::grouped(number).replace(' ', "\u{202f}")
}
