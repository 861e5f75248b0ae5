//! The page that browsers show.

use session_harness::report::{CaseReport, Evidence, Report, Status, Summary, Tally, html};
use session_harness::suite::Suite;

mod reports;

#[test]
fn nothing_that_a_subject_says_becomes_markup() {
    let page = html::render(&reports::sample());
    assert!(!page.contains("<script") && !page.contains("&amp;amp;\"") && page.contains("&lt;script&gt;"));
    let body = page.split_once("<body>").map(|(_, body)| body).unwrap();
    assert_eq!(body.matches("<pre").count(), body.matches("</pre>").count());
    assert_eq!(body.matches("<details").count(), body.matches("</details>").count());
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = html::render(&reports::sample());
    for outside in ["http:", "https:", "//", "src=", "<link", "@import", "url("] {
        let places: Vec<_> = page.match_indices(outside).map(|(at, _)| &page[at..]).collect();
        assert!(places.is_empty(), "{outside}: {:?}", places.first().map(|text| text.get(..40)));
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
}

#[test]
fn the_verdict_comes_first_then_matrix_coverage_and_failures() {
    let page = html::render(&reports::sample());
    let body = page.split_once("<body>").map(|(_, body)| body).unwrap();
    let parts = [
        "does not hold: 5 of 9 cases failed",
        "Stages and faults",
        ">Requirements<",
        ">Failures<",
        ">Choices<",
    ];
    let places: Vec<Option<usize>> = parts.iter().map(|part| body.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
}

#[test]
fn each_failure_has_its_evidence_its_schedule_and_its_replay_line() {
    let mut report = reports::sample();
    report.cases.retain(|case| case.id.contains("violation"));
    let page = html::render(&report);
    for part in [
        "acknowledged-survive",
        "and in 3 further states",
        "<mark>rename  &lt;- fault</mark>",
        "session-harness replay &#39;faults",
    ] {
        let unquoted = part.replace("&#39;", "'");
        assert!(page.contains(part) || page.contains(&unquoted), "{part}");
    }
}

#[test]
fn links_within_the_page_lead_somewhere() {
    let page = html::render(&reports::sample());
    let mut links = page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap());
    assert!(links.clone().count() > 100);
    assert_eq!(links.find(|id| !page.contains(&format!("id=\"{id}\""))), None);
}

#[test]
fn what_was_expected_in_vain_and_what_is_partial_is_said() {
    let page = html::render(&reports::sample());
    assert!(page.contains("An expectation matches no case"));
    let partial: Report = serde_json::from_str(&serde_json::to_string(&reports::sample()).unwrap().replacen(
        "\"summary\"",
        "\"partial\":\"interrupted\",\"summary\"",
        1,
    ))
    .unwrap();
    assert!(html::render(&partial).contains("The run was interrupted"));
}

/// A failure of the sample with what was broken and seen, and nothing else.
fn failed(id: &str, suite: Suite, seen: &[(&str, &str)]) -> CaseReport {
    let evidence = |(promise, seen): &(&str, &str)| Evidence {
        promise: Some((*promise).to_owned()),
        seen: (*seen).to_owned(),
        state: None,
        further: 0,
    };
    CaseReport {
        status: Status::Violation,
        evidence: seen.iter().map(evidence).collect(),
        stage: Some("C8".to_owned()),
        ..CaseReport::new(suite, id.to_owned(), &["C8", "C23", "S5", "X1"], "reference")
    }
}

fn page_of(cases: Vec<CaseReport>) -> String {
    let sample = reports::sample();
    let summary = Summary::new(&cases, Tally::default(), None, 0);
    html::render(&Report { cases, summary, unmatched_expectations: Vec::new(), ..sample })
}

#[test]
fn failures_that_look_alike_are_told_once_and_a_power_cut_is_among_those_shown_in_full() {
    let lost = |id: &str, suite, count: u32| {
        failed(id, suite, &[("acknowledged-survive", &format!("append#1 shows {count} entries"))])
    };
    let mut cases: Vec<_> =
        (0..40).map(|at| lost(&format!("faults/append/C8/{at}"), Suite::Faults, at)).collect();
    cases.push(lost("crash/posix/session,append", Suite::Crash, 3));
    let page = page_of(cases);
    assert!(page.contains("append, at <a href=\"#C8\">C8</a>: append#1 shows … entries"));
    assert_eq!(page.matches("class=\"failure\" open").count(), 2, "one of each suite");
    assert!(page.contains("39 further cases") && page.contains("replay 'crash/posix/session,append'"));
}

#[test]
fn a_requirement_is_red_by_the_broken_promise_and_not_by_what_the_case_cites_besides() {
    let page = page_of(vec![failed("crash/posix/x", Suite::Crash, &[("acknowledged-survive", "gone")])]);
    let chip = |id: &str| {
        let end = page.find(&format!("href=\"#{id}\" title")).unwrap();
        page[..end].rsplit_once("class=\"").unwrap().1.split('"').next().unwrap().trim().to_owned()
    };
    let chips = ["C23", "S5", "X1", "C8", "F1"].map(chip);
    assert_eq!(chips, ["chip bad", "chip bad", "chip touched", "chip touched", "chip none"]);
}

#[test]
fn what_follows_from_the_first_broken_promise_is_folded() {
    let page = page_of(vec![failed(
        "faults/append/C8/x",
        Suite::Faults,
        &[("nothing-leaks", "a lock"), ("retry-succeeds", "refused again"), ("mode-is-kept", "mode 0644")],
    )]);
    let (before, folded) = page.split_once("<summary>in consequence: mode-is-kept, retry-succeeds").unwrap();
    assert!(before.contains("a lock") && !before.contains("refused again"));
    assert!(folded.contains("refused again"));
}

#[test]
fn the_words_of_ids_and_traces_are_explained() {
    let page = html::render(&reports::sample());
    for word in ["swap-fifo", "plant-marker", "fstat", "temporary"] {
        assert!(page.contains(&format!("<dt><code>{word}</code></dt><dd>")), "{word}");
    }
}
