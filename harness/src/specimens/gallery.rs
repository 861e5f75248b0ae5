//! Every specimen hunted, and every control left alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::Specimen;
use super::conformance::{first_failed, musts};
use super::hunt::{Caught, DEPTH, hunt};
use super::table::{ALL, CANARY, SMALL};
use crate::crash::Profile;
use crate::parallel;
use crate::scenario::HarnessError;
use crate::subject::{Candidate, REFERENCE};
use crate::suite::{concurrency, crash, faults, recovery};
#[cfg(feature = "sqlite")]
use crate::{subject::command::Remote, suite::any_store};

/// What came of one specimen.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub specimen: &'static Specimen,
    /// Where it was caught by the promise named for it, under the weakest profile that shows it; none where it escaped.
    pub caught: Option<Caught>,
}

impl Row {
    /// Whether it was caught as it must be: under the profile named for it, and under no weaker one.
    pub fn is_right(&self) -> bool {
        let named = self.specimen.shown.and_then(super::Shown::profile);
        self.caught.as_ref().is_some_and(|caught| caught.profile == named)
    }
}

/// What came of a control.
#[derive(Debug)]
pub struct Control {
    /// Its name.
    pub name: String,
    /// What must come of it.
    pub expected: &'static str,
    /// Cases in which it was tried.
    pub cases: usize,
    /// The first sign that the harness is wrong; none where it is right.
    pub wrong: Option<String>,
}

/// What came of all of them.
#[derive(Debug)]
pub struct Gallery {
    /// Every specimen that was asked for.
    pub rows: Vec<Row>,
    /// Every control.
    pub controls: Vec<Control>,
}

impl Gallery {
    /// Whether every specimen was caught as it must be, and every control came out right.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(Row::is_right) && self.controls.iter().all(|control| control.wrong.is_none())
    }
}

/// Hunts the specimens that are `chosen`, and tries the controls, with `jobs` threads. `tick` is told how many
/// specimens are done, and how many there are.
///
/// # Errors
/// The first that the harness could not do.
pub fn show(
    chosen: impl Fn(&Specimen) -> bool,
    jobs: usize,
    tick: &(dyn Fn(usize, usize) + Sync),
) -> Result<Gallery, HarnessError> {
    Ok(Gallery { rows: rows(chosen, jobs, tick)?, controls: controls(&[REFERENCE, &SMALL], jobs)? })
}

/// What comes of the specimens that are `chosen`; see [`show`].
///
/// # Errors
/// As [`show`].
pub fn rows(
    chosen: impl Fn(&Specimen) -> bool,
    jobs: usize,
    tick: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Row>, HarnessError> {
    let specimens: Vec<&'static Specimen> = ALL.iter().filter(|specimen| chosen(specimen)).collect();
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Row, HarnessError>>>> =
        specimens.iter().map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some((specimen, slot)) = pick(&next, &specimens, &slots) {
                    let row = hunt(specimen, &|_| true).map(|caught| Row { specimen, caught });
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(row);
                    tick(done.fetch_add(1, Ordering::Relaxed) + 1, specimens.len());
                }
            });
        }
    });
    slots.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// What comes of the controls: these good stores, SQLite, and the canary.
///
/// # Errors
/// As [`show`].
pub fn controls(stores: &[&'static dyn Candidate], jobs: usize) -> Result<Vec<Control>, HarnessError> {
    let mut controls = stores.iter().map(|store| good(*store, jobs)).collect::<Result<Vec<_>, _>>()?;
    #[cfg(feature = "sqlite")]
    controls.push(good_apart(&Remote::sqlite()));
    controls.extend([canary()?, blindfold()?]);
    Ok(controls)
}

fn pick<'a, T>(
    next: &AtomicUsize,
    specimens: &[&'static Specimen],
    slots: &'a [Mutex<T>],
) -> Option<(&'static Specimen, &'a Mutex<T>)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    specimens.get(at).copied().zip(slots.get(at))
}

/// A good store, in everything there is.
fn good(candidate: &'static dyn Candidate, jobs: usize) -> Result<Control, HarnessError> {
    let faults = faults::run_all(candidate, jobs, &|_, _| {})?;
    let mut cases = faults.finished.len();
    let broken = |finished: &&faults::Finished| !finished.run.violations.is_empty();
    let mut wrong = faults.finished.iter().find(broken).map(|finished| finished.case.id());
    let options = crash::Options {
        candidate,
        profile: Profile::Posix,
        depth: DEPTH,
        jobs,
        ..crash::Options::default()
    };
    let cut = crash::run(&options, |_| true, |_, _| {})?;
    cases += cut.cases.len();
    wrong = wrong.or_else(|| cut.broken().next().map(|broken| broken.token.to_string()));
    for case in recovery::cases() {
        cases += 1;
        if !case.run(candidate)?.is_empty() {
            wrong = wrong.or_else(|| Some(case.id()));
        }
    }
    let met = concurrency::cases();
    for (case, outcome) in
        met.iter().zip(parallel::map(&met, jobs, |case| case.run(candidate, 0, &|_| true), |_| false))
    {
        cases += 1;
        if !outcome?.found.is_empty() {
            wrong = wrong.or_else(|| Some(case.id()));
        }
    }
    cases += musts()?;
    wrong = match wrong {
        None => first_failed(candidate, None)?.map(|failed| format!("{}: {}", failed.id, failed.evidence)),
        wrong => wrong,
    };
    Ok(Control { name: candidate.name(), expected: "not flagged", cases, wrong })
}

/// A good store that is known by its answers alone, in everything that it can be asked.
#[cfg(feature = "sqlite")]
fn good_apart(remote: &Remote) -> Control {
    let store = any_store::Store::of(remote.hello(), |manner| remote.start_as(manner));
    let mut control = Control { name: remote.name(), expected: "not flagged", cases: 0, wrong: None };
    for case in &any_store::CASES {
        let flagged = match any_store::check(case, &store) {
            Ok(any_store::Outcome::Unsupported(_)) => continue,
            Ok(any_store::Outcome::Pass) => None,
            Ok(
                any_store::Outcome::Violation(seen)
                | any_store::Outcome::Mistaken(seen)
                | any_store::Outcome::Silent(_, seen),
            ) => Some(seen),
            Err(error) => Some(error.to_string()),
        };
        control.cases += 1;
        control.wrong = control.wrong.or_else(|| flagged.map(|flagged| format!("{}: {flagged}", case.id())));
    }
    control
}

/// What cannot escape, unless nobody looks.
fn canary() -> Result<Control, HarnessError> {
    let caught = hunt(&CANARY, &|_| true)?;
    let wrong = caught.is_none().then(|| "it was not caught".to_owned());
    Ok(Control { name: CANARY.name(), expected: "caught", cases: 1, wrong })
}

/// The same with every promise switched off: then it must escape, or its being caught says nothing.
fn blindfold() -> Result<Control, HarnessError> {
    let wrong = hunt(&CANARY, &|_| false)?.map(|caught| caught.by);
    Ok(Control { name: format!("{} without promises", CANARY.name()), expected: "escapes", cases: 1, wrong })
}
