//! The page that browsers show.

use session_harness::report::{Report, html};

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
        "does not hold: 5 of 10 cases failed",
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
