//! One state told from the beginning: what was issued, what of it was durable, where the power was cut, what the
//! restart saw, and which promise broke.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use super::judge::judge;
use super::record::{Visit, Visits, record};
use super::token::Token;
use super::{History, Options, State};
use crate::crash::Profile;
use crate::disk::{Disk, Tree};
use crate::fault::{Op, Role};
use crate::inject::{Event, Outcome};
use crate::model;
use crate::promise::Violation;
use crate::scenario::HarnessError;

/// Replays `token` and tells what happened; with the violations, none where every promise holds.
///
/// # Errors
/// [`HarnessError::NoSuchState`] where the workload has no such cut; otherwise where the harness could not do its work.
pub fn tell(token: &Token, options: &Options) -> Result<(String, Vec<Violation>), HarnessError> {
    let options = Options { profile: token.profile, ..*options };
    let mut out = String::new();
    let _ = writeln!(out, "state     {token}");
    let _ = writeln!(out, "workload  {}", token.workload);
    if !token.plan.0.is_empty() {
        let _ = writeln!(out, "fault     {}", token.plan);
    }
    let _ = writeln!(out, "profile   {}\n", token.profile);
    let Some((first, later)) = token.cuts.split_first() else { return tell_whole(token, &options, out) };
    // A token may name any cut that leaves a state, not only the first.
    let options = Options { keeps_equal: true, ..options };

    let recorded = record(&token.workload, &token.plan, &options)?;
    let made = recorded.visits.moments.get(first.0).copied().ok_or(HarnessError::NoSuchState)?;
    tell_calls(&mut out, &recorded.trace[..made.min(recorded.trace.len())]);
    let mut state = state_at(recorded.visits, *first, &Token { cuts: vec![*first], ..token.clone() })?;
    let _ = writeln!(out, "  power cut {}; of the disks that it may leave, number {}", first.0, first.1);
    tell_disk(&mut out, &state.disk);
    for cut in later {
        let verdict = judge(&state, &options);
        let _ = writeln!(
            out,
            "\nthe restart refuses, recovery begins, and its cut {} leaves disk {}",
            cut.0, cut.1
        );
        let mut longer = state.token.clone();
        longer.cuts.push(*cut);
        state = state_at(verdict.during_recovery, *cut, &longer)?;
        tell_disk(&mut out, &state.disk);
    }
    tell_expected(&mut out, &state.history);
    let verdict = judge(&state, &options);
    if verdict.recovered {
        out.push_str("restart   refuses; recovery leads on\n");
    }
    tell_verdict(&mut out, &verdict.violations);
    if !verdict.violations.is_empty() {
        let _ = writeln!(out, "weakest profile that shows it: {}", weakest_profile(token, &options)?);
    }
    Ok((out, verdict.violations))
}

/// The weakest profile under which the workload of `token` breaks a promise.
///
/// # Errors
/// Where the harness could not do its work.
pub fn weakest_profile(token: &Token, options: &Options) -> Result<Profile, HarnessError> {
    for profile in Profile::ALL {
        let case = Token { profile: *profile, ..token.case() };
        if !super::run_one(&case, options)?.broken.is_empty() {
            return Ok(*profile);
        }
    }
    Ok(token.profile)
}

/// A whole workload: every state of it is judged.
fn tell_whole(
    token: &Token,
    options: &Options,
    mut out: String,
) -> Result<(String, Vec<Violation>), HarnessError> {
    let recorded = record(&token.workload, &token.plan, options)?;
    tell_calls(&mut out, &recorded.trace);
    let case = super::run_one(token, options)?;
    let _ = writeln!(
        out,
        "\n{} cuts, {} disks, {} distinct states, {} of them led on by recovery",
        case.cuts, case.disks, case.states, case.recovered
    );
    for broken in &case.broken {
        let _ = writeln!(out, "\nin {}", broken.token);
        tell_verdict(&mut out, &broken.violations);
    }
    if case.broken.is_empty() {
        tell_verdict(&mut out, &[]);
    }
    Ok((out, case.broken.into_iter().flat_map(|broken| broken.violations).collect()))
}

fn state_at(visits: Visits, at: (usize, usize), token: &Token) -> Result<State, HarnessError> {
    let found = visits.found.into_iter().find(|visit| visit.at == at);
    let Visit { disk, history, .. } = found.ok_or(HarnessError::NoSuchState)?;
    Ok(State { disk, history, token: token.clone() })
}

/// Each call, and for those that change anything whether a later fsync before the cut has made that durable.
fn tell_calls(out: &mut String, calls: &[Event]) {
    let mut during = None;
    for (at, event) in calls.iter().enumerate() {
        if during != Some(&event.during) {
            during = Some(&event.during);
            let _ = writeln!(out, "{}", event.during);
        }
        let durable = match is_durable(event, &calls[at + 1..]) {
            Some(true) => "durable: yes",
            Some(false) => "durable: no",
            None => "",
        };
        let mark = if event.fault.is_some() { "  <- fault" } else { "" };
        let _ = writeln!(out, "  {at:>3}  {:<66} {durable}{mark}", event.traced());
    }
}

/// Whether what the call changed is certain to survive; none for calls that change nothing.
fn is_durable(event: &Event, later: &[Event]) -> Option<bool> {
    let synced = |role: Role| {
        later.iter().any(|other| {
            other.op == Op::Fsync
                && other.target.from == role
                && other.outcome == Outcome::Done
                && other.fault.is_none()
        })
    };
    match event.op {
        Op::Create | Op::Link | Op::Rename | Op::Unlink => Some(synced(Role::Root)),
        Op::Write | Op::Chmod => Some(synced(event.target.from)),
        _ => None,
    }
}

fn tell_disk(out: &mut String, disk: &Disk) {
    out.push_str("\nafter the cut\n");
    let tree: Tree = disk.snapshot();
    let named = |path: &Path| path.file_name().map(OsString::from).unwrap_or_default();
    for (path, node) in tree.iter().filter(|(path, _)| path.components().count() > 2) {
        let content = match model::load(&node.bytes) {
            Ok(session) => format!("a session of {} entries", session.entries().len()),
            Err(refusal) => format!("{} bytes, refused with {}", node.bytes.len(), refusal.code),
        };
        let _ = writeln!(out, "  {:<72} {content}", named(path).to_string_lossy());
    }
}

fn tell_expected(out: &mut String, history: &History) {
    let ids: Vec<&str> = history.acknowledged.iter().map(|entry| entry.id.as_str()).collect();
    let _ = writeln!(out, "\nexpected  acknowledged {ids:?}");
    if let Some(unanswered) = &history.unanswered {
        let _ = writeln!(out, "          unanswered {}", unanswered.message);
    }
    for doubtful in &history.doubtful {
        let _ = writeln!(out, "          in doubt {}", doubtful.message);
    }
}

fn tell_verdict(out: &mut String, violations: &[Violation]) {
    for violation in violations {
        let _ = writeln!(out, "violated  {} ({})", violation.promise.words(), violation.promise);
        let _ = writeln!(out, "          {}", violation.evidence);
    }
    if violations.is_empty() {
        out.push_str("holds: every promise\n");
    }
}
