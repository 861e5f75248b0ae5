//! `list`: every case, with what it is about; and every requirement, with how many cases are about it.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::stdout::stdout;
use super::{CliError, List, run};
use crate::exit_code::Exit;
use crate::requirement::{self, Level, Requirement};
use crate::subject::REFERENCE;
use crate::suite::{crash, faults};

/// A case without its verdict.
struct Listed {
    id: String,
    suite: &'static str,
    stage: Option<&'static str>,
    requirements: Vec<&'static str>,
}

/// The cases of the suites that are asked for and whose id matches.
fn listed(options: &List) -> Result<Vec<Listed>, CliError> {
    let asked_for =
        |suite: &str| options.suites.is_empty() || options.suites.iter().any(|name| name == suite);
    let mut cases = Vec::new();
    if asked_for(faults::NAME) {
        let results = run::matching_faults(REFERENCE, &options.filter, run::jobs(None), true)?;
        cases.extend(results.finished.iter().map(|finished| Listed {
            id: finished.case.id(),
            suite: faults::NAME,
            stage: Some(finished.case.stage.id()),
            requirements: finished.case.requirements(),
        }));
    }
    if asked_for(crash::NAME) {
        let tokens = crash::cases(&crash::Options::default())?;
        let all = tokens.iter().map(|token| Listed {
            id: token.to_string(),
            suite: crash::NAME,
            stage: None,
            requirements: crash::requirements(token),
        });
        cases.extend(all.filter(|case| matches(&options.filter, &case.id)));
    }
    if cases.is_empty() {
        return Err(CliError::NothingMatches(options.filter.clone()));
    }
    Ok(cases)
}

/// Prints the cases.
pub(super) fn list(options: &List) -> Result<Exit, CliError> {
    let mut out = stdout();
    for Listed { id, suite, stage, requirements } in listed(options)? {
        if options.json {
            let mut line = json!({ "id": id, "suite": suite, "level": "must", "requirements": requirements });
            if let Some(stage) = stage {
                line["stage"] = stage.into();
            }
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{id}")?;
        }
    }
    out.flush()?;
    Ok(Exit::Holds)
}

/// Prints the contract, with the number of cases about each requirement.
pub(super) fn requirements(options: &List) -> Result<Exit, CliError> {
    let as_json = options.json;
    let mut cases: HashMap<&str, usize> = HashMap::new();
    for id in listed(options)?.into_iter().flat_map(|case| case.requirements) {
        *cases.entry(id).or_default() += 1;
    }
    let mut out = stdout();
    for requirement in requirement::all() {
        let cases = cases.get(requirement.id).copied().unwrap_or_default();
        if as_json {
            writeln!(out, "{}", to_json(requirement, cases))?;
        } else {
            tell(&mut out, requirement, cases)?;
        }
    }
    out.flush()?;
    Ok(Exit::Holds)
}

fn to_json(requirement: &Requirement, cases: usize) -> Value {
    let Requirement { id, level, title, text } = *requirement;
    let mut line = json!({ "id": id, "level": level.as_str(), "title": title, "text": text, "cases": cases });
    if let Level::Choice { answers, reference } = level {
        let answers = answers.iter().map(|answer| json!({ "name": answer.name, "means": answer.means }));
        line["answers"] = answers.collect();
        line["reference"] = reference.into();
    }
    line
}

/// The first line begins with the id, so that `grep '^[A-Z]'` gives one line for each requirement.
fn tell(out: &mut impl Write, requirement: &Requirement, cases: usize) -> io::Result<()> {
    let Requirement { id, level, title, text } = *requirement;
    writeln!(out, "{id:<24} {level:<6} {cases:>6} cases  {title}")?;
    tell_wrapped(out, text, "    ", "    ")?;
    let Level::Choice { answers, reference } = level else { return Ok(()) };
    for answer in answers {
        let ours = if answer.name == reference { " (the reference's answer)" } else { "" };
        let text = format!("{}: {}{ours}", answer.name, answer.means);
        tell_wrapped(out, &text, "    - ", "      ")?;
    }
    Ok(())
}

fn tell_wrapped(out: &mut impl Write, text: &str, first: &str, others: &str) -> io::Result<()> {
    const COLUMNS: usize = 100;
    let mut line = first.to_owned();
    for (at, word) in text.split(' ').enumerate() {
        if line.len() + word.len() > COLUMNS {
            writeln!(out, "{}", line.trim_end())?;
            others.clone_into(&mut line);
        } else if at > 0 {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{line}")
}

/// Whether an id matches one of the globs, or there are none. A glob without `*` matches anywhere in the id.
pub(super) fn matches(globs: &[String], id: &str) -> bool {
    globs.is_empty()
        || globs
            .iter()
            .any(|glob| if glob.contains('*') { matches_whole(glob, id) } else { id.contains(glob.as_str()) })
}

/// `*` stands for any text, everything else for itself: ids hold characters that richer globs give a meaning.
fn matches_whole(glob: &str, id: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = parts.next().and_then(|first| id.strip_prefix(first)) else { return false };
    let mut last = "";
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = part;
    }
    rest.is_empty() || last.is_empty() || id.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        let globs = |glob: &str| vec![glob.to_owned()];
        assert!(matches(&globs("rename"), "faults/append/C8/rename@temporary>session#1=EIO_after,once"));
        assert!(matches(&globs("faults/*/C8/*"), "faults/append/C8/rename"));
        assert!(matches(&globs("*once"), "faults/append/C8/x,once,once"));
        assert!(!matches(&globs("faults/*/C9/*"), "faults/append/C8/rename"));
        assert!(!matches(&globs("append*"), "faults/append"));
        assert!(!matches(&globs("*append"), "faults/append/x"));
    }
}
