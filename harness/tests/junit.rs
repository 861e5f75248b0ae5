//! The JUnit report, read back by another library than the one that wrote it.

use roxmltree::{Document, Node};
use session_harness::report::junit;

mod reports;

fn children<'a>(node: Node<'a, 'a>, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.children().filter(move |child| child.has_tag_name(name))
}

#[test]
fn every_case_is_there_and_ends_in_xml_as_it_ended() {
    let xml = junit::render(&reports::sample()).unwrap();
    let document = Document::parse(&xml).unwrap();
    let suite = children(document.root_element(), "testsuite").next().unwrap();
    let counts = ["tests", "failures", "errors", "disabled", "skipped"].map(|name| suite.attribute(name));
    let skipped = counts[3].or(counts[4]);
    assert_eq!((counts[0], counts[1], counts[2], skipped), (Some("10"), Some("2"), Some("3"), Some("3")));
    let ends: Vec<(String, &str)> = children(suite, "testcase")
        .map(|case| {
            let end = case.children().find(|it| it.is_element() && !it.has_tag_name("properties"));
            let name = case.attribute("name").unwrap().split(']').next().unwrap();
            (name.trim_start_matches("faults/append/").to_owned(), end.map_or("", |it| it.tag_name().name()))
        })
        .collect();
    let ends: Vec<(&str, &str)> = ends.iter().map(|(name, end)| (name.as_str(), *end)).collect();
    assert_eq!(
        ends,
        [
            ("pass", ""),
            ("violation", "failure"),
            ("recorded", ""),
            ("unsupported", "skipped"),
            ("skipped", "skipped"),
            ("known", "skipped"),
            ("timeout", "error"),
            ("crash", "error"),
            ("harness-error", "error"),
            ("surprise", "failure"),
        ]
    );
}

#[test]
fn hostile_evidence_stays_text() {
    let xml = junit::render(&reports::sample()).unwrap();
    let document = Document::parse(&xml).unwrap();
    let failure = document.descendants().find(|node| node.has_tag_name("failure")).unwrap();
    let text = failure.text().unwrap();
    for part in [
        "seen ]]><script>alert('1')</script>&amp;\"",
        "</pre>é🦀",
        "rename  <- fault",
        "replay: session-harness",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(document.descendants().all(|node| !node.has_tag_name("script")));
    let forbidden =
        |char: char| matches!(char, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}');
    assert!(!xml.contains(forbidden));
}

#[test]
fn an_expectation_in_vain_is_a_failure_of_its_own() {
    let xml = junit::render(&reports::sample()).unwrap();
    let document = Document::parse(&xml).unwrap();
    let suites = children(document.root_element(), "testsuite");
    let failures: Vec<_> = suites.map(|suite| suite.attribute("failures").unwrap().to_owned()).collect();
    assert_eq!(failures, ["2", "1"]);
}
