//! The report for CI systems, as JUnit XML.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::terminal::in_words;
use super::{CaseReport, Report, Status};
use crate::suite::Suite;

/// The whole report as one XML document.
///
/// # Errors
/// Where XML cannot be written.
pub fn render(report: &Report) -> Result<String, SerializeError> {
    let mut document = quick_junit::Report::new(report.tool.as_str());
    document.set_time(Duration::from_millis(report.summary.duration_ms));
    let suites = report.selection.suites.iter();
    document.add_test_suites(suites.map(|suite| test_suite(report, *suite)));
    if !report.unmatched_expectations.is_empty() && report.selection.shard.is_none() {
        document.add_test_suite(in_vain(report));
    }
    // The two characters that XML forbids and the writer lets through.
    Ok(document.to_string()?.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"))
}

fn test_suite(report: &Report, suite: Suite) -> TestSuite {
    let mut out = TestSuite::new(suite.name());
    out.add_property(("subject", report.subject.as_str()));
    out.add_property(("version", report.version.as_str()));
    out.add_property(("profile", report.profile.as_str()));
    out.add_property(("seed", report.seed.to_string().as_str()));
    if report.partial.is_some() {
        out.add_property(("partial", "true"));
    }
    out.set_time(report.of_suite(suite).map(time).sum());
    out.add_test_cases(report.of_suite(suite).map(test_case));
    out
}

/// Expectations that match no case fail a run, and so must show as a failure here.
fn in_vain(report: &Report) -> TestSuite {
    let mut out = TestSuite::new("expectations");
    for glob in &report.unmatched_expectations {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message("no case has this id");
        out.add_test_case(TestCase::new(glob.as_str(), status));
    }
    out
}

fn test_case(case: &CaseReport) -> TestCase {
    let mut out = TestCase::new(case.id.as_str(), status(case));
    out.set_classname(class(case));
    out.set_time(time(case));
    if let Some(answer) = &case.answer {
        out.add_property(Property::new("answer", answer.as_str()));
    }
    out
}

/// The part of the id that many cases share, by which CI systems group.
fn class(case: &CaseReport) -> String {
    case.id.split('/').take(2).collect::<Vec<_>>().join(".")
}

fn time(case: &CaseReport) -> Duration {
    Duration::try_from_secs_f64(case.duration_ms / 1e3).unwrap_or_default()
}

fn status(case: &CaseReport) -> TestCaseStatus {
    let kind = match case.status {
        Status::Timeout | Status::Crash | Status::HarnessError => NonSuccessKind::Error,
        _ => NonSuccessKind::Failure,
    };
    if case.fails() {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_type(case.what_failed());
        status.set_message(in_words(case.what_failed()));
        status.set_description(description(case));
        return status;
    }
    match case.status {
        Status::Unsupported | Status::Skipped | Status::ExpectedFailure => {
            let mut status = TestCaseStatus::skipped();
            let words = match case.status {
                Status::Unsupported => "unsupported",
                Status::Skipped => "skipped",
                _ => "known failure",
            };
            status
                .set_message(format!("{words}: {}", case.reason.as_deref().unwrap_or("no reason is given")));
            status
        }
        _ => TestCaseStatus::success(),
    }
}

fn description(case: &CaseReport) -> String {
    let mut lines: Vec<&str> = Vec::new();
    lines.extend(case.title.as_deref());
    lines.extend(case.unexpected.as_deref());
    lines.extend(case.evidence.iter().map(|evidence| evidence.seen.as_str()));
    lines.extend(case.schedule.iter().map(String::as_str));
    let replay = format!("replay: {}", case.replay);
    lines.push(&replay);
    lines.join("\n")
}
