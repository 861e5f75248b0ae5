//! Failures that look like one another, so that a person reads one of them and knows how many there are.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::CaseReport;
use crate::promise::Promise;
use crate::suite::{Suite, faults};

/// Characters of a kind of evidence; what is longer holds a message or a file, which says no more of its kind.
const LONGEST: usize = 160;

/// Failures in which the same thing went wrong first: the same promise at the same stage of the same call, and the same
/// was seen but for numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cluster {
    /// What was broken, as [`CaseReport::what_failed`] tells it.
    pub what: String,
    /// The suite.
    pub suite: Suite,
    /// The store call that was disturbed, where the suite disturbs a certain one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The stage that was disturbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// What was seen first, without the numbers, by which such cases differ.
    pub like: String,
    /// How many cases.
    pub cases: usize,
    /// The id of the first, which has the shortest history.
    pub first: String,
}

/// A cluster with its cases, the shortest history first.
#[derive(Debug)]
pub struct Group<'a> {
    /// What they have in common.
    pub cluster: Cluster,
    /// The cases, at least one.
    pub cases: Vec<&'a CaseReport>,
    /// Whether it stands for its suite among the clusters of what was broken: it is the largest.
    pub stands_for_suite: bool,
}

/// The failures among `cases`, clustered: promise by promise in the order of [`Promise::ALL`], in each the largest cluster
/// of every suite first, so that whoever reads the beginning sees a case of each suite, then the others by their size.
pub fn groups(cases: &[CaseReport]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut places: HashMap<Cluster, usize> = HashMap::new();
    for case in cases.iter().filter(|case| case.fails()) {
        let key = Cluster::of(case);
        if let Some(at) = places.get(&key) {
            groups[*at].cases.push(case);
        } else {
            let cluster = Cluster { first: case.id.clone(), ..key.clone() };
            places.insert(key, groups.len());
            groups.push(Group { cluster, cases: vec![case], stands_for_suite: false });
        }
    }
    for group in &mut groups {
        group.cluster.cases = group.cases.len();
    }
    // Both sorts are stable: of equals, the one with the shortest history stays first.
    groups.sort_by_key(|group| (rank(&group.cluster.what), std::cmp::Reverse(group.cases.len())));
    let mut seen: HashSet<(String, Suite)> = HashSet::new();
    for Group { cluster, stands_for_suite, .. } in &mut groups {
        *stands_for_suite = seen.insert((cluster.what.clone(), cluster.suite));
    }
    groups.sort_by_key(|group| (rank(&group.cluster.what), !group.stands_for_suite));
    groups
}

/// Lost and invented entries come first; what is no promise comes last.
fn rank(what: &str) -> (usize, usize, String) {
    const GRAVEST: [Promise; 3] =
        [Promise::AcknowledgedSurvive, Promise::NothingInvented, Promise::GoesOnAfterwards];
    let place = |all: &[Promise]| all.iter().position(|promise| promise.name() == what).unwrap_or(all.len());
    (place(&GRAVEST), place(Promise::ALL), what.to_owned())
}

impl Cluster {
    /// What the case has in common with those of its cluster.
    fn of(case: &CaseReport) -> Cluster {
        Cluster {
            what: case.what_failed().to_owned(),
            suite: case.suite,
            call: disturbed_call(case).map(str::to_owned),
            stage: case.stage.clone(),
            like: case.evidence.first().map(|evidence| kind_of(&evidence.seen)).unwrap_or_default(),
            cases: 0,
            first: String::new(),
        }
    }
}

fn disturbed_call(case: &CaseReport) -> Option<&'static str> {
    let name = case.id.split('/').nth(1).filter(|_| case.suite == Suite::Faults)?;
    faults::SCENARIOS.iter().find(|scenario| scenario.name == name).map(|scenario| scenario.action.call())
}

/// The first line of evidence without its numbers, the names of errors, and whatever JSON it holds. The number of a call or a stage is no such
/// number: `append#2` and `C8`.
fn kind_of(seen: &str) -> String {
    let (words, has_json) = seen.split_once('{').map_or((seen, false), |(words, _)| (words, true));
    let text = without_numbers(words) + if has_json { "{…}" } else { "" };
    let words = text.split(' ').map(|word| if is_errno(word) { "E…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn is_errno(word: &str) -> bool {
    word.len() > 2 && word.starts_with('E') && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn without_numbers(seen: &str) -> String {
    let mut kind = String::new();
    let mut last = [' ', ' '];
    for char in seen.lines().next().unwrap_or_default().chars().take(LONGEST) {
        let names_something = last[1] == '#' || (last[1].is_ascii_uppercase() && !last[0].is_alphanumeric());
        let goes_on = last[1].is_ascii_digit() || last[1] == '…';
        match char {
            '0'..='9' if last[1] == '…' => continue,
            '0'..='9' if !names_something && !goes_on => {
                kind.push('…');
                last = [last[1], '…'];
                continue;
            }
            char => kind.push(char),
        }
        last = [last[1], char];
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_evidence_have_no_numbers_but_those_of_calls_and_stages() {
        for (seen, kind) in [
            ("append#2 left 14 descriptors open", "append#2 left … descriptors open"),
            ("names stage C10 where C3 struck", "names stage C10 where C3 struck"),
            ("shows entry s-12 below s-1", "shows entry s-… below s-…"),
            ("mode 0644, wider than 0600\nsecond line", "mode …, wider than …"),
            ("says EIO where EACCES struck", "says E… where E… struck"),
            ("append: answered {\"id\": 1}", "append: answered {…}"),
            ("", ""),
        ] {
            assert_eq!(kind_of(seen), kind);
        }
    }
}
