//! `list`: every case, with what it is about; and every requirement, with the cases and tests that are about it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::env;
use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};

use super::stdout::stdout;
use super::{CliError, run};
use crate::citations;
use crate::corpus;
use crate::exit_code::Exit;
use crate::glob::Filter;
use crate::parallel;
use crate::report::Level;
use crate::requirement::{self, Requirement};
use crate::scenario::HarnessError;
use crate::subject::REFERENCE;
use crate::suite::{Suite, any_store, concurrency, crash, faults};

#[derive(Debug, Args)]
pub(super) struct List {
    /// The suites: all by default.
    #[arg(value_name = "SUITE")]
    suites: Vec<Suite>,
    /// One JSON object a line, with stage, requirement ids and level.
    #[arg(long)]
    json: bool,
    /// Only cases whose id matches; `*` stands for anything. Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// Prints the requirements of the contract instead, each with the cases that are about it, and within the source tree
    /// the tests.
    #[arg(long)]
    requirements: bool,
}

/// A case without its verdict.
struct Listed {
    id: String,
    suite: Suite,
    level: Level,
    stage: Option<&'static str>,
    requirements: Vec<Cow<'static, str>>,
}

/// The cases of the suites that are asked for and whose id matches.
fn listed(options: &List) -> Result<Vec<Listed>, CliError> {
    let filter = Filter(options.filter.clone());
    let mut cases = Vec::new();
    for suite in run::chosen(&options.suites) {
        cases.extend(match suite {
            Suite::Conformance => listed_conformance()?,
            Suite::Faults => listed_faults(&filter)?,
            Suite::Crash => listed_crash()?,
            Suite::Concurrency => listed_concurrency(),
        });
    }
    cases.retain(|case| filter.matches(&case.id));
    if cases.is_empty() {
        return Err(CliError::NothingMatches(filter.0));
    }
    Ok(cases)
}

fn listed_conformance() -> Result<Vec<Listed>, HarnessError> {
    let listed = |case: corpus::Case| Listed {
        suite: Suite::Conformance,
        level: if case.is_must() { Level::Must } else { Level::Choice },
        stage: None,
        requirements: case.about().into_iter().map(|id| id.to_owned().into()).collect(),
        id: case.id,
    };
    let of_corpus = corpus::embedded()?.into_iter().map(listed);
    Ok(of_corpus.chain(any_store::CASES.iter().map(listed_any)).collect())
}

/// A case for stores that are known by their answers alone.
fn listed_any(case: &any_store::Case) -> Listed {
    Listed {
        id: case.id(),
        suite: Suite::Conformance,
        level: Level::Must,
        stage: None,
        requirements: case.requirements.iter().copied().map(Cow::Borrowed).collect(),
    }
}

/// They are run, family by family: a case is one only if no other has an equal trace.
fn listed_faults(filter: &Filter) -> Result<Vec<Listed>, HarnessError> {
    let mut families = faults::families(REFERENCE)?;
    families.retain(|family| filter.may_match_below(&family.name()));
    let run = |family: &faults::Family| family.run(REFERENCE, &|_| false);
    let mut results = faults::Results::default();
    for part in parallel::map(&families, run::jobs(None), run, Result::is_err) {
        results.extend(part?);
    }
    let listed = |finished: &faults::Finished| Listed {
        id: finished.case.id(),
        suite: Suite::Faults,
        level: Level::Must,
        stage: Some(finished.case.stage.id()),
        requirements: finished.case.requirements().into_iter().map(Cow::Borrowed).collect(),
    };
    Ok(results.finished.iter().map(listed).collect())
}

fn listed_crash() -> Result<Vec<Listed>, HarnessError> {
    let listed = |token: &crash::Token| Listed {
        id: token.to_string(),
        suite: Suite::Crash,
        level: Level::Must,
        stage: None,
        requirements: crash::requirements(token).into_iter().map(Cow::Borrowed).collect(),
    };
    Ok(crash::cases(&crash::Options::default())?.iter().map(listed).collect())
}

fn listed_concurrency() -> Vec<Listed> {
    let listed = |case: &concurrency::Case| Listed {
        id: case.id(),
        suite: Suite::Concurrency,
        level: Level::Must,
        stage: None,
        requirements: case.requirements().iter().copied().map(Cow::Borrowed).collect(),
    };
    concurrency::cases().iter().map(listed).collect()
}

/// Prints the cases, or the requirements.
pub(super) fn list(options: &List) -> Result<Exit, CliError> {
    let cases = listed(options)?;
    let mut out = stdout();
    if options.requirements {
        print_requirements(&mut out, &cases, options.json)?;
    } else {
        print_cases(&mut out, cases, options.json)?;
    }
    out.flush()?;
    Ok(Exit::Holds)
}

fn print_cases(out: &mut impl Write, cases: Vec<Listed>, as_json: bool) -> io::Result<()> {
    for Listed { id, suite, level, stage, requirements } in cases {
        if as_json {
            let mut line = json!({ "id": id, "suite": suite, "level": level, "requirements": requirements });
            if let Some(stage) = stage {
                line["stage"] = stage.into();
            }
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{id}")?;
        }
    }
    Ok(())
}

/// What is about a requirement.
#[derive(Default)]
struct About<'a> {
    cases: Vec<&'a Listed>,
    /// Files and names; none outside of the source tree, where they are not known.
    tests: Option<Vec<String>>,
}

/// Prints the contract with what is about each requirement.
fn print_requirements(out: &mut impl Write, cases: &[Listed], as_json: bool) -> Result<(), CliError> {
    let mut of: HashMap<&str, Vec<&Listed>> = HashMap::new();
    for case in cases {
        for id in &case.requirements {
            of.entry(id.as_ref()).or_default().push(case);
        }
    }
    let mut tests = cited()?;
    for requirement in requirement::all() {
        let about = About {
            cases: of.remove(requirement.id).unwrap_or_default(),
            tests: tests.as_mut().map(|tests| tests.remove(requirement.id).unwrap_or_default()),
        };
        if as_json {
            writeln!(out, "{}", to_json(requirement, &about))?;
        } else {
            tell(out, requirement, &about)?;
        }
    }
    Ok(())
}

/// The tests that cite each requirement, where the sources are at hand.
fn cited() -> io::Result<Option<HashMap<String, Vec<String>>>> {
    let here = env::current_dir()?;
    let Some(root) = citations::source_tree(&here) else { return Ok(None) };
    let mut tests: HashMap<String, Vec<String>> = HashMap::new();
    for source in citations::sources(root)? {
        for citation in source.read().citations {
            let test = format!("{} {}", source.path.display(), citation.test);
            tests.entry(citation.id).or_default().push(test);
        }
    }
    Ok(Some(tests))
}

fn to_json(requirement: &Requirement, about: &About<'_>) -> Value {
    let Requirement { id, level, title, text } = *requirement;
    let ids: Vec<&str> = about.cases.iter().map(|case| case.id.as_str()).collect();
    let mut line = json!({
        "id": id, "level": level.as_str(), "title": title, "text": text, "cases": ids.len(), "case_ids": ids,
    });
    if let Some(tests) = &about.tests {
        line["tests"] = tests.clone().into();
    }
    if let requirement::Level::Choice { answers, reference } = level {
        let answers = answers.iter().map(|answer| json!({ "name": answer.name, "means": answer.means }));
        line["answers"] = answers.collect();
        line["reference"] = reference.into();
    }
    line
}

/// The first line begins with the id, so that `grep '^[A-Z]'` gives one line for each requirement.
fn tell(out: &mut impl Write, requirement: &Requirement, about: &About<'_>) -> io::Result<()> {
    let Requirement { id, level, title, text } = *requirement;
    writeln!(out, "{id:<24} {level:<6} {:>6} cases  {title}", about.cases.len())?;
    tell_wrapped(out, text, "    ", "    ")?;
    if let requirement::Level::Choice { answers, reference } = level {
        for answer in answers {
            let ours = if answer.name == reference { " (the reference's answer)" } else { "" };
            let text = format!("{}: {}{ours}", answer.name, answer.means);
            tell_wrapped(out, &text, "    - ", "      ")?;
        }
    }
    for suite in Suite::ALL {
        let mut of_suite = about.cases.iter().filter(|case| case.suite == suite).peekable();
        if let Some(example) = of_suite.peek().map(|case| case.id.clone()) {
            writeln!(out, "    {} in {suite}, such as {example}", of_suite.count())?;
        }
    }
    for test in about.tests.iter().flatten() {
        writeln!(out, "    test {test}")?;
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
