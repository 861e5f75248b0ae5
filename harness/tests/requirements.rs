//! The contract against what cites it: tests, cases of the suites, and promises.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use session_harness::citations::{self, Source, source_tree};
use session_harness::promise::Promise;
use session_harness::requirement;
use session_harness::subject::REFERENCE;
use session_harness::suite::faults;

#[test]
fn every_requirement_is_cited() {
    let cited = cited();
    let uncited: Vec<&str> = requirement::all()
        .iter()
        .map(|requirement| requirement.id)
        .filter(|id| !cited.contains_key(*id))
        .collect();
    assert!(uncited.is_empty(), "no test, case or promise cites {}", uncited.join(", "));
}

#[test]
fn every_cited_id_is_in_the_contract() {
    let unknown: Vec<String> = cited()
        .into_iter()
        .filter(|(id, _)| requirement::find(id).is_none())
        .map(|(id, places)| format!("{id:?} at {}", places.join(", ")))
        .collect();
    assert!(unknown.is_empty(), "the contract does not have {}", unknown.join("; "));
}

#[test]
fn every_citation_stands_directly_above_a_test() {
    let misplaced: Vec<String> = sources().iter().flat_map(|source| source.read().misplaced).collect();
    assert!(misplaced.is_empty(), "\n{}", misplaced.join("\n"));
}

#[test]
fn every_refusal_of_the_store_names_a_requirement() {
    let mut seen = 0;
    for source in sources().iter().filter(|source| source.path.starts_with("core/src")) {
        for (at, line) in source.text.lines().enumerate() {
            for id in line.split('"').skip(1).step_by(2).filter(|quoted| is_shaped_like_an_id(quoted)) {
                seen += 1;
                assert!(requirement::find(id).is_some(), "{}: {id} is no requirement", source.place(at));
            }
        }
    }
    assert!(seen > 20, "{seen} ids only: refusals are not written as this test expects");
}

#[test]
fn the_reader_of_sources_tells_good_citations_from_bad_ones() {
    let read = |lines: &[&str]| Source { path: PathBuf::from("a.rs"), text: lines.join("\n") }.read();
    let test = ["// Requirement: F1, F9.bom", "#[expect(", "    clippy::all,", ")]", "#[test]", "fn a() {}"];
    let good = read(&test);
    assert_eq!(good.misplaced, [""; 0]);
    assert_eq!(cites(&good), [("F1", "a"), ("F9.bom", "a")]);
    let mimic = ["use libtest_mimic::Trial;", "list![a]", "// Requirement: F1", "fn a() {}"];
    assert_eq!(read(&mimic).misplaced, [""; 0]);
    for bad in [
        &["// Requirement: F1", "fn helper() {}"][..],
        &["// Requirement: F1", "", "#[test]", "fn a() {}"],
        &["// Requirement: F1", "// more", "#[test]", "fn a() {}"],
        &["// Requirement: F1", "struct S;"],
        &["// Requirement: F1"],
        &["// Requirements: F1", "#[test]", "fn a() {}"],
        &["//Requirement: F1", "#[test]", "fn a() {}"],
        &["// requirement: F1", "#[test]", "fn a() {}"],
        &["use libtest_mimic::Trial;", "// Requirement: F1", "fn a() {}"],
    ] {
        assert_eq!(read(bad).misplaced.len(), 1, "{bad:?}");
    }
    assert_eq!(read(&["/// Requirement R4 in words", "fn a() {}"]).citations.len(), 0);
    assert_eq!(cites(&read(&["// Requirement: F1,F2", "#[test]", "fn a() {}"])), [("F1,F2", "a")]);
}

/// Ids with the names of the tests that cite them.
fn cites(read: &citations::Read) -> Vec<(&str, &str)> {
    read.citations.iter().map(|citation| (citation.id.as_str(), citation.test.as_str())).collect()
}

/// Every cited id, with the places that cite it.
fn cited() -> BTreeMap<String, Vec<String>> {
    let mut cited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut cite = |id: &str, place: String| cited.entry(id.to_owned()).or_default().push(place);
    for source in sources() {
        for citation in source.read().citations {
            cite(&citation.id, source.place(citation.line));
        }
    }
    for promise in Promise::ALL {
        for id in promise.requirements() {
            cite(id, format!("promise {promise}"));
        }
    }
    for (scenario, named) in faults::SCENARIOS.iter().enumerate() {
        let cases = faults::single_faults(REFERENCE, scenario).expect("a fault-free run of a scenario");
        let ids: BTreeSet<&str> = cases.iter().flat_map(faults::Case::requirements).collect();
        for id in ids {
            cite(id, format!("cases of {}", named.name));
        }
    }
    cited
}

fn sources() -> Vec<Source> {
    let root = source_tree(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("the source tree");
    citations::sources(root).expect("the sources")
}

fn is_shaped_like_an_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| b"FRLSCKVTQXB".contains(&first))
        && bytes.len() > 0
        && text[1..].split('.').next().is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}
