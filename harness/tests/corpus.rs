//! The conformance corpus: every case on the reference store as a test of its own, and what must hold of the files.
//!
//! `cargo test --test corpus -- store-append` runs the cases of one topic. The cases with a script are run once more on
//! a real directory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use session_harness::corpus::{self, Body, Case, Environment, Expected, Outcome, Step, check};
use session_harness::fault::Kind;
use session_harness::requirement::{self, Level};
use session_harness::subject::REFERENCE;
use session_harness::world::Backend;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let cases = corpus::load(&directory()).unwrap_or_else(|error| panic!("{error}"));
    let mut trials = vec![
        Trial::test("the_embedded_corpus_is_the_one_of_the_directory", embedded_is_the_same),
        Trial::test("every_case_is_as_the_schema_has_it", every_case_fits_the_schema),
        Trial::test("the_schema_refuses_what_is_no_case", schema_refuses_what_is_no_case),
        Trial::test("no_case_is_there_twice", no_case_is_there_twice),
        Trial::test("the_pinned_choices_are_those_of_the_contract", pinned_choices_are_those_of_the_contract),
    ];
    for case in &cases {
        let (sound, run) = (case.clone(), case.clone());
        trials.push(Trial::test(format!("sound/{}", case.id), move || is_sound(&sound)));
        trials.push(Trial::test(case.id.clone(), move || holds(&run, Backend::Simulated)));
        if is_run_for_real(case) {
            let run = case.clone();
            trials.push(Trial::test(format!("real/{}", case.id), move || holds(&run, Backend::Real)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

/// The reference passes a case that it is held to, and gives the pinned answer to a choice.
fn holds(case: &Case, backend: Backend) -> Result<(), Failed> {
    let expected = match &case.choice {
        None => Outcome::Pass,
        Some(choice) => {
            let answer =
                pinned()?.remove(choice).ok_or_else(|| format!("no answer to {choice} is pinned"))?;
            Outcome::Recorded(answer)
        }
    };
    let outcome = check(case, &Environment::of(REFERENCE, backend))?;
    if outcome == expected { Ok(()) } else { Err(format!("{}: {outcome:?}", case.title).into()) }
}

/// What only a script does shows on a real directory too; pages that an fsync forgets are known to the simulated disk
/// alone.
fn is_run_for_real(case: &Case) -> bool {
    let Body::Script { steps, .. } = &case.body else { return false };
    !steps.iter().any(|step| match step {
        Step::Fault(plan) => plan.0.iter().any(|fault| matches!(fault.kind, Kind::SyncDrops(_))),
        _ => false,
    })
}

/// The answers of the reference, by choice.
fn pinned() -> Result<BTreeMap<String, String>, Failed> {
    Ok(serde_json::from_str(&fs::read_to_string(directory().join("reference-choices.json"))?)?)
}

fn pinned_choices_are_those_of_the_contract() -> Result<(), Failed> {
    let contract: BTreeMap<String, String> = requirement::all()
        .iter()
        .filter_map(|requirement| match requirement.level {
            Level::Choice { reference, .. } => Some((requirement.id.to_owned(), reference.to_owned())),
            Level::Must => None,
        })
        .collect();
    let pinned = pinned()?;
    if pinned == contract {
        Ok(())
    } else {
        Err(format!("pinned {pinned:?}, in the contract {contract:?}").into())
    }
}

fn embedded_is_the_same() -> Result<(), Failed> {
    let (embedded, loaded) = (corpus::embedded()?, corpus::load(&directory())?);
    let told =
        |cases: &[Case]| cases.iter().map(|case| format!("{} {:?}", case.id, case.body)).collect::<Vec<_>>();
    if told(&embedded) == told(&loaded) { Ok(()) } else { Err("another corpus is compiled in".into()) }
}

fn schema() -> Result<jsonschema::Validator, Failed> {
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(directory().join("schema/case.schema.json"))?)?;
    Ok(jsonschema::draft202012::options().build(&schema)?)
}

/// The files of the cases, by id.
fn files() -> Result<Vec<(String, Value)>, Failed> {
    let cases = corpus::load(&directory())?;
    let read = |case: &Case| -> Result<(String, Value), Failed> {
        let text = fs::read_to_string(directory().join(format!("{}.json", case.id)))?;
        if !text.ends_with("}\n") {
            return Err(format!("{} does not end in a line feed", case.id).into());
        }
        Ok((case.id.clone(), serde_json::from_str(&text)?))
    };
    cases.iter().map(read).collect()
}

fn every_case_fits_the_schema() -> Result<(), Failed> {
    let schema = schema()?;
    let mut errors = Vec::new();
    for (id, case) in files()? {
        errors.extend(
            schema.iter_errors(&case).map(|error| format!("{id}: {} at {}", error, error.instance_path())),
        );
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n").into()) }
}

fn schema_refuses_what_is_no_case() -> Result<(), Failed> {
    let schema = schema()?;
    let with =
        |member: &str| format!(r#"{{"title":"a title","requirements":["F1"],"level":"must",{member}}}"#);
    let good = [
        with(r#""input":{"header":true},"expect":{"canonical":"input"}"#),
        with(r#""script":[{"write":"a","bytes":[{"text":""},{"chain":3}]},{"lift":true}]"#),
    ];
    let bad = [
        "[]".to_owned(),
        with(r#""more":1,"input":{"header":true},"expect":{"canonical":"input"}"#),
        with(r#""input":{"header":true}"#),
        with(r#""expect":{"canonical":"input"}"#),
        with(r#""input":{"header":true},"expect":{"canonical":"input","code":"SESSION_IO"}"#),
        with(r#""input":{"header":true},"expect":{"code":"IO"}"#),
        with(r#""input":{"header":true},"expect":{"code":"SESSION_INVALID_JSON","line":0}"#),
        with(r#""input":{"text":"","hex":""},"expect":{"canonical":"input"}"#),
        with(r#""input":{"hex":"0"},"expect":{"canonical":"input"}"#),
        with(r#""input":{"repeat":{"text":"x"}},"expect":{"canonical":"input"}"#),
        with(r#""script":[]"#),
        with(r#""script":[{"write":"../a","bytes":{"text":""}}]"#),
        with(r#""script":[{"write":"a","bytes":{"text":""},"more":1}]"#),
        with(r#""script":[{"call":{"call":"flush","store":"s"}}]"#),
        with(r#""script":[{"call":{"call":"flush","store":"s"},"answers":{"ok":{"more":1}}}]"#),
        with(r#""script":[{"lift":true}],"choice":"F9.bom","answers":{"refused":[{"lift":true}]}"#),
    ];
    for (texts, fits) in [(&good[..], true), (&bad[..], false)] {
        for text in texts {
            if schema.is_valid(&serde_json::from_str(text)?) != fits {
                return Err(format!("{text}: fits the schema: {}", !fits).into());
            }
        }
    }
    Ok(())
}

/// No two cases are about one requirement, do the same and expect the same.
fn no_case_is_there_twice() -> Result<(), Failed> {
    let mut seen: HashMap<(String, Vec<u8>), String> = HashMap::new();
    let mut titles = BTreeSet::new();
    for (case, (id, file)) in corpus::load(&directory())?.iter().zip(files()?) {
        if !titles.insert((id.split('/').nth(1).map(str::to_owned), case.title.clone())) {
            return Err(format!("{id}: another case of its topic has this title").into());
        }
        let done = match &case.body {
            Body::OneShot { input, .. } => case.expand(input)?,
            Body::Script { .. } => file["script"].to_string().into_bytes(),
        };
        for requirement in &case.requirements {
            let key = format!("{requirement} {} {}", file["expect"], file["answers"]);
            if let Some(other) = seen.insert((key, done.clone()), id.clone()) {
                return Err(format!("{id} and {other} are one case of {requirement}").into());
            }
        }
    }
    Ok(())
}

/// Every input of a case stands for a bounded number of bytes, and a torn tail for the end of a line.
fn is_sound(case: &Case) -> Result<(), Failed> {
    for input in case.inputs() {
        case.expand(input)?;
    }
    let Body::OneShot { input, outcomes } = &case.body else { return Ok(()) };
    let input = case.expand(input)?;
    for outcome in outcomes {
        let Expected::Accepted { torn_tail, .. } = outcome.expected else { continue };
        let start = input.len().checked_sub(torn_tail).ok_or("the torn tail is longer than the input")?;
        let (kept, torn) = input.split_at(start);
        if torn_tail > 0 && (torn.contains(&b'\n') || !kept.ends_with(b"\n")) {
            return Err(format!("the last {torn_tail} bytes are not the last line").into());
        }
    }
    Ok(())
}
