//! Judging a state: a restart, recovery where it refuses, an append, another cut, another restart.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use super::record::{Camera, Visits, append, disks_after_cut, load, lock, message};
use super::{History, Options, Refusal, SESSION, State, Submission};
use crate::call::{Answer, Call, Did, EntryView, Reply, place};
use crate::disk::Disk;
use crate::inject::Injector;
use crate::promise::{Promise, Violation};
use crate::subject::Subject;
use crate::world::World;

#[derive(Default)]
pub(super) struct Verdict {
    pub(super) violations: Vec<Violation>,
    pub(super) recovered: bool,
    /// The load refuses, and the store has no recovery.
    pub(super) unresolved: bool,
    pub(super) during_recovery: Visits,
}

impl Verdict {
    pub(super) fn refusal(&self) -> Refusal {
        match (self.recovered, self.unresolved) {
            (true, _) => Refusal::Recovered,
            (_, true) => Refusal::Unresolved,
            _ => Refusal::None,
        }
    }

    fn broke(&mut self, promise: Promise, evidence: String) {
        self.violations.push(Violation { promise, evidence });
    }
}

pub(super) const PATH: &str = "/sessions/session.jsonl";

/// Restarts the store on the state, recovers where it refuses, appends, cuts again and loads.
pub(super) fn judge(state: &State, options: &Options) -> Verdict {
    let mut verdict = Verdict::default();
    let disk = state.disk.fork();
    let mut subject = restarted(&disk, options);
    let mut reply = subject.call(&load(PATH, "s", restart_ids()));
    if is_refused_by_marker(&reply) {
        let inspected = inspect(&disk, options, &mut verdict);
        match recover_recording(&disk, state, options, &mut verdict) {
            Reply::Ok(recovery) if inspected.is_none() || inspected == recovery.state => {
                verdict.recovered = true;
            }
            Reply::Ok(recovery) => verdict.broke(
                Promise::AcknowledgedSurvive,
                format!(
                    "inspection says {} where recovery finds {}",
                    inspected.as_deref().unwrap_or("nothing"),
                    recovery.state.as_deref().unwrap_or("nothing")
                ),
            ),
            // Generations that were never made durable may have diverged: then only a person can choose.
            Reply::Refused(_) if state.history.suspended => return verdict,
            Reply::Unsupported(_) => {
                // Whoever cannot recover has lost the session's use, not its entries.
                verdict.unresolved = true;
                return verdict;
            }
            other => {
                let text = format!("recovery does not lead on: {other}");
                verdict.broke(Promise::AcknowledgedSurvive, text);
            }
        }
        check_second_recovery(&disk, options, &mut verdict);
        reply = subject.call(&load(PATH, "s", restart_ids()));
    }
    match reply {
        Reply::Ok(answer) => {
            let shown = answer.entries.unwrap_or_default();
            if !state.history.exists && !state.history.creating {
                verdict.broke(Promise::NothingInvented, "a session is there that nobody created".to_owned());
            }
            match expected(&state.history, &shown, "a restart") {
                Ok(()) => go_on(&disk, subject.as_mut(), &shown, options, &mut verdict),
                Err(violation) => verdict.violations.push(violation),
            }
        }
        Reply::Refused(refusal) if !state.history.exists || state.history.suspended => {
            if !is_absent(&disk) {
                let text = format!("a cut within a create leaves a file that does not load: {refusal}");
                verdict.broke(Promise::AcknowledgedSurvive, text);
            }
        }
        other => verdict
            .broke(Promise::AcknowledgedSurvive, format!("the restart does not show the session: {other}")),
    }
    verdict
}

/// A process that starts after the cut.
fn restarted(disk: &Disk, options: &Options) -> Box<dyn Subject> {
    options.candidate.start(World::on(disk.clone(), SESSION).process(&Injector::blind()))
}

fn restart_ids() -> Vec<String> {
    vec!["after-1".to_owned()]
}

fn is_refused_by_marker(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(refusal) if refusal.code == "SESSION_ROLLBACK_FAILED")
}

fn is_absent(disk: &Disk) -> bool {
    !disk.exists(PATH)
}

/// The state that inspection names; it changes nothing (requirement X1).
fn inspect(disk: &Disk, options: &Options, verdict: &mut Verdict) -> Option<String> {
    let before = disk.time();
    let inspected = restarted(disk, options).call(&Call::Inspect { path: PATH.to_owned() });
    if disk.time() != before {
        verdict.broke(Promise::LoadReadsOnly, "inspection changes the disk".to_owned());
    }
    match inspected {
        Reply::Ok(Answer { state: Some(state), .. }) => Some(state),
        Reply::Unsupported(_) => None,
        other => {
            let text = format!("inspection names no state: {other}");
            verdict.broke(Promise::AcknowledgedSurvive, text);
            None
        }
    }
}

fn recover() -> Call {
    Call::Recover { path: PATH.to_owned(), choose: None }
}

/// Recovering twice is recovering once.
fn check_second_recovery(disk: &Disk, options: &Options, verdict: &mut Verdict) {
    let before = disk.time();
    match restarted(disk, options).call(&recover()) {
        Reply::Ok(Answer { did: Some(did), .. }) if did.is_empty() => {}
        other => {
            let what = match other {
                Reply::Ok(answer) => steps(&answer.did.unwrap_or_default()),
                other => other.to_string(),
            };
            verdict.broke(Promise::AcknowledgedSurvive, format!("recovering again does something: {what}"));
        }
    }
    if disk.time() != before {
        verdict.broke(Promise::FailedMeansOld, "recovering again changes the disk".to_owned());
    }
}

fn steps(did: &[Did]) -> String {
    did.iter().map(|step| format!("{} {}", step.action, step.name)).collect::<Vec<_>>().join(", ")
}

/// Recovers, keeping everything that cuts within the recovery may leave.
fn recover_recording(disk: &Disk, state: &State, options: &Options, verdict: &mut Verdict) -> Reply {
    if !options.cuts_recovery {
        return restarted(disk, options).call(&recover());
    }
    let camera = Arc::new(Mutex::new(Camera::new(disk.clone(), Arc::clone(&state.history), options)));
    let eye = Arc::clone(&camera);
    let injector = Injector::watching();
    injector.observe(move |event| lock(&eye).see(event));
    let ops = World::on(disk.clone(), SESSION).process(&injector);
    let recovered = options.candidate.start(ops).call(&recover());
    verdict.during_recovery = std::mem::take(&mut lock(&camera).visits);
    recovered
}

/// An append after the restart is acknowledged and survives another cut, whatever it loses.
fn go_on(
    disk: &Disk,
    subject: &mut dyn Subject,
    shown: &[EntryView],
    options: &Options,
    verdict: &mut Verdict,
) {
    let submission = Submission {
        parent_id: shown.last().map(|entry| entry.id.clone()),
        message: message(shown.len() + 1, 0),
    };
    let entry = match subject.call(&append("s", &submission)) {
        Reply::Ok(answer) => answer.entry,
        other => {
            return verdict
                .broke(Promise::GoesOnAfterwards, format!("the append after the restart: {other}"));
        }
    };
    for after in disks_after_cut(disk, options) {
        let again = restarted(&after, options).call(&load(PATH, "s", Vec::new()));
        let Reply::Ok(answer) = &again else {
            return verdict
                .broke(Promise::GoesOnAfterwards, format!("the restart after that append: {again}"));
        };
        let entries = answer.entries.as_deref().unwrap_or_default();
        if entries.len() != shown.len() + 1
            || entries[..shown.len()] != *shown
            || entries.last() != entry.as_ref()
        {
            let text = format!(
                "after that append and a cut {} entries are there, expected {}",
                entries.len(),
                shown.len() + 1
            );
            return verdict.broke(Promise::GoesOnAfterwards, text);
        }
    }
}

/// Acknowledged entries in order; then what is in doubt; then the unanswered submission. Nothing else.
pub(super) fn expected(history: &History, shown: &[EntryView], whence: &str) -> Result<(), Violation> {
    let acknowledged = &history.acknowledged;
    let kept = shown.iter().zip(acknowledged).take_while(|(one, other)| one == other).count();
    if kept < acknowledged.len() && !history.suspended {
        let evidence = format!(
            "{whence} shows {} entries, of which {kept} are as acknowledged; {} were acknowledged",
            shown.len(),
            acknowledged.len()
        );
        return Err(Violation { promise: Promise::AcknowledgedSurvive, evidence });
    }
    let mut allowed = history.doubtful.iter().chain(&history.unanswered);
    for entry in &shown[kept..] {
        if !allowed.any(|it| it.parent_id == entry.parent_id && it.message == entry.message) {
            let mut evidence = format!("{whence} shows an entry that nobody is waiting for: ");
            let _ = write!(evidence, "{} {}", entry.id, place(entry.parent_id.as_deref()));
            return Err(Violation { promise: Promise::NothingInvented, evidence });
        }
    }
    Ok(())
}
