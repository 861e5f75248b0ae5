//! The contract against what cites it: tests, cases of the suites, and promises.
//!
//! A test says what it checks in a line `// Requirement: F4, F6` directly above it. The sources are read when this
//! test runs, so that nothing has to be registered anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use session_harness::promise::Promise;
use session_harness::requirement;
use session_harness::subject::REFERENCE;
use session_harness::suite::faults;

/// Where tests stand, relative to the harness's package.
const SOURCES: [&str; 4] = ["../core/src", "../core/tests", "src", "tests"];

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
    for source in sources().iter().filter(|source| source.path.starts_with("../core/src")) {
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
    assert_eq!((good.misplaced.as_slice(), good.ids()), (&[][..], vec!["F1", "F9.bom"]));
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
    assert_eq!(read(&["// Requirement: F1,F2", "#[test]", "fn a() {}"]).ids(), ["F1,F2"]);
}

/// Every cited id, with the places that cite it.
fn cited() -> BTreeMap<String, Vec<String>> {
    let mut cited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut cite = |id: &str, place: String| cited.entry(id.to_owned()).or_default().push(place);
    for source in sources() {
        for (id, at) in source.read().citations {
            cite(&id, source.place(at));
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
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    let mut directories: Vec<PathBuf> = SOURCES.iter().map(PathBuf::from).collect();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(package.join(&directory)).expect("a directory of sources") {
            let entry = entry.expect("an entry of a directory of sources");
            let path = directory.join(entry.file_name());
            if entry.file_type().expect("its kind").is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(package.join(&path)).expect("a source file");
                sources.push(Source { path, text });
            }
        }
    }
    sources
}

struct Source {
    path: PathBuf,
    text: String,
}

/// What one source file cites.
#[derive(Default)]
struct Read {
    /// Ids, and the line of each, from 0.
    citations: Vec<(String, usize)>,
    /// Citations that are not written as they must be, or do not stand directly above a test.
    misplaced: Vec<String>,
}

impl Read {
    fn ids(&self) -> Vec<&str> {
        self.citations.iter().map(|(id, _)| id.as_str()).collect()
    }
}

impl Source {
    fn read(&self) -> Read {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let mut read = Read::default();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_meant_as_citation(line)) {
            let ids =
                ["// Requirement: ", "/// Requirement: "].iter().find_map(|start| line.strip_prefix(start));
            match ids {
                None => read.misplaced.push(format!("{}: not `// Requirement: ` and ids", self.place(at))),
                Some(_) if !self.is_test(&lines[at + 1..]) => {
                    read.misplaced.push(format!("{}: not directly above a test", self.place(at)));
                }
                Some(ids) => read.citations.extend(ids.split(", ").map(|id| (id.to_owned(), at))),
            }
        }
        read
    }

    /// Whether `lines` begin with a test: attributes, of which one says so, and a function; or, where tests are listed
    /// by hand, a function that is named again.
    fn is_test(&self, lines: &[&str]) -> bool {
        let mut open = 0;
        let mut is_marked = false;
        for line in lines {
            if open == 0 && !line.starts_with("#[") {
                let Some((_, rest)) = line.split_once("fn ").filter(|(before, _)| is_before_fn(before))
                else {
                    return false;
                };
                let name = rest.split(['(', '<']).next().unwrap_or(rest);
                return is_marked || self.lists_by_hand(name);
            }
            open += line.matches('[').count();
            open -= line.matches(']').count().min(open);
            is_marked |= line.contains("test]") || line.contains("test(");
        }
        false
    }

    fn lists_by_hand(&self, name: &str) -> bool {
        let is_word = |at: usize| {
            let around = [self.text[..at].chars().next_back(), self.text[at + name.len()..].chars().next()];
            around.into_iter().flatten().all(|char| !char.is_alphanumeric() && char != '_')
        };
        let named = self.text.match_indices(name).filter(|(at, _)| is_word(*at)).count();
        self.text.contains("libtest_mimic") && named > 1
    }

    /// The file and the line, from 0, as editors take them.
    fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path.display(), at + 1)
    }
}

/// Also with the likeliest slips, which would otherwise cite nothing in silence.
fn is_meant_as_citation(line: &str) -> bool {
    let Some(comment) = line.strip_prefix("//") else { return false };
    let comment = comment.trim_start_matches('/').trim_start().to_ascii_lowercase();
    comment.starts_with("requirement:") || comment.starts_with("requirements:")
}

fn is_before_fn(text: &str) -> bool {
    matches!(text, "" | "pub " | "pub(crate) " | "async ")
}

fn is_shaped_like_an_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| b"FRLSCKVTQXB".contains(&first))
        && bytes.len() > 0
        && text[1..].split('.').next().is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}
