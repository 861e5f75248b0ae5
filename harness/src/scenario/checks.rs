//! What must hold right after each answer.

use session_tree::file_ops::FileKind;

use super::observe::{
    actor_ever, cleanup_failed, could_be_seen, difference, holds_all, is_indispensable, is_of_session,
    listed, marker_in, number, planted_at_all, session_bytes, stray_is_excused, uses_the_name,
};
use super::{Action, Case, NEIGHBOURS, SESSION, Submission};
use crate::call::{Call, EntryView, Refusal, Reply};
use crate::fault::{Actor, Op, Role};
use crate::inject::Event;
use crate::outsider::{self, STRANGERS_FILE, STRANGERS_SESSION, Seen};
use crate::promise::{Promise, Violation};
use crate::role;
use crate::stage;
use crate::subject::Subject;

/// One answered call, with the directory before and after it.
pub(super) struct Moment<'a> {
    pub(super) call: &'static str,
    pub(super) nth: u32,
    pub(super) submission: Option<Submission>,
    pub(super) reply: &'a Reply,
    pub(super) events: &'a [Event],
    pub(super) before: &'a [Seen],
    pub(super) after: &'a [Seen],
    pub(super) was_poisoned: bool,
    /// The outside actor that acted within this call, and the system call before which it did.
    pub(super) actor: Option<(Actor, &'a Event)>,
}

impl Moment<'_> {
    fn name(&self) -> String {
        format!("{}#{}", self.call, self.nth)
    }
}

impl Case<'_> {
    pub(super) fn acknowledged(&mut self, moment: &Moment<'_>, entry: Option<&EntryView>) {
        match self.scenario.action {
            Action::Append => match (entry, &moment.submission) {
                (Some(entry), Some(submission))
                    if entry.parent_id == submission.parent_id && entry.message == submission.message =>
                {
                    self.history.acknowledged.push(entry.clone());
                }
                (entry, submission) => {
                    let told = entry.map_or("no entry".to_owned(), ToString::to_string);
                    let wanted = submission.as_ref().map(ToString::to_string).unwrap_or_default();
                    let text = format!("{told} was acknowledged, which is not what was submitted, {wanted}");
                    self.violated(Promise::NothingInvented, text);
                }
            },
            Action::Load => {
                if let (Reply::Ok(answer), None) = (moment.reply, actor_ever(&self.plan)) {
                    self.expect_entries(
                        answer.entries.as_deref().unwrap_or_default(),
                        "a load in the same process",
                    );
                }
            }
            Action::Create | Action::Flush => {}
        }
        self.history.exists = true;
        self.check_written(moment);
    }

    /// What was answered with success is in the file now, before a later commit could write it again from memory.
    fn check_written(&mut self, moment: &Moment<'_>) {
        let changed = !matches!(self.scenario.action, Action::Load);
        if changed && actor_ever(&self.plan).is_none() && !holds_all(moment.after, &self.history.acknowledged)
        {
            let text =
                format!("{} answered with success and the file does not hold the entries", moment.name());
            self.violated(Promise::AcknowledgedSurvive, text);
        }
    }

    pub(super) fn refused(&mut self, moment: &Moment<'_>, refusal: &Refusal) {
        let in_doubt = refusal.code == "SESSION_ROLLBACK_FAILED";
        if in_doubt {
            self.history.may_refuse = true;
            if !moment.was_poisoned {
                self.history.doubtful.extend(moment.submission.clone());
            }
        }
        if moment.actor.is_some() || actor_ever(&self.plan).is_some() {
            return;
        }
        if !in_doubt {
            self.check_old_generation(moment);
        }
    }

    /// After an error that is not in doubt the directory is what it was: the same bytes under the path, no marker.
    pub(super) fn check_old_generation(&mut self, moment: &Moment<'_>) {
        let (before, after) = (session_bytes(moment.before), session_bytes(moment.after));
        let create_left_it =
            self.scenario.action == Action::Create && cleanup_failed(moment.events, Role::Session);
        if before != after && !create_left_it {
            self.violated(
                Promise::FailedMeansOld,
                format!("{} answered an error, yet the session file changed", moment.name()),
            );
        }
        if create_left_it && before.is_none() && after.is_some() {
            self.history.exists = true;
        }
        if marker_in(moment.after).is_some() && marker_in(moment.before).is_none() {
            self.violated(
                Promise::FailedMeansOld,
                format!("{} answered an error and left a marker", moment.name()),
            );
        }
    }

    pub(super) fn check_typed(&mut self, moment: &Moment<'_>) {
        match moment.reply {
            Reply::Panicked(text) => {
                self.violated(Promise::TypedRefusal, format!("{} panicked: {text}", moment.name()));
            }
            Reply::Timeout | Reply::Exited(_) | Reply::Protocol(_) => {
                let text = format!("{} was not answered: {}", moment.name(), moment.reply);
                self.violated(Promise::TypedRefusal, text);
            }
            Reply::Refused(refusal) if refusal.code.parse::<session_tree::Code>().is_err() => self.violated(
                Promise::TypedRefusal,
                format!("{} refused with {}, which is no code of the contract", moment.name(), refusal.code),
            ),
            _ => {}
        }
    }

    /// An I/O error keeps the number that struck, and the stage; and what the protocol cannot do without is not
    /// swallowed. Only where nothing but errors of system calls went wrong, in this very call.
    pub(super) fn check_cause(&mut self, moment: &Moment<'_>) {
        if actor_ever(&self.plan).is_some() || moment.was_poisoned {
            return;
        }
        let struck: Vec<&Event> = moment.events.iter().filter(|event| event.fault.is_some()).collect();
        let Some(first) = struck.first() else { return };
        match moment.reply {
            Reply::Refused(refusal) if refusal.code == "SESSION_IO" && self.candidate.names_causes() => {
                // An interrupted call that is repeated may fail with another number, because it had its effect.
                let numbers: Vec<String> =
                    moment.events.iter().filter_map(|event| number(event, &self.plan)).collect();
                if !refusal.errno.as_ref().is_some_and(|errno| numbers.contains(errno)) {
                    self.violated(
                        Promise::CauseIsKept,
                        format!(
                            "{} says {} where {} struck",
                            moment.name(),
                            refusal.errno.as_deref().unwrap_or("no error number"),
                            listed(&numbers)
                        ),
                    );
                }
                self.check_stage(moment, first, refusal);
            }
            Reply::Ok(_) if struck.iter().any(|event| is_indispensable(event)) => self.violated(
                Promise::NoHiddenFailure,
                format!("{} answered with success although {first} failed", moment.name()),
            ),
            _ => {}
        }
    }

    /// The stage of an I/O error is one of those in which a fault struck, told from the calls before it.
    pub(super) fn check_stage(&mut self, moment: &Moment<'_>, first: &Event, refusal: &Refusal) {
        let stages = stage::of_clean_trace(self.scenario.action.call(), moment.events);
        let mut struck: Vec<&'static str> = moment
            .events
            .iter()
            .zip(stages)
            .filter(|(event, _)| event.fault.is_some())
            .filter_map(|(_, stage)| stage.map(session_tree::Stage::id))
            .collect();
        struck.dedup();
        if !refusal.stage.as_deref().is_some_and(|stage| struck.contains(&stage)) {
            self.violated(
                Promise::CauseIsKept,
                format!(
                    "{} names {} where {first} struck in {}",
                    moment.name(),
                    refusal.stage.as_ref().map_or("no stage".to_owned(), |stage| format!("stage {stage}")),
                    listed(&struck)
                ),
            );
        }
    }

    /// With the faults lifted, a store that is not poisoned works again.
    pub(super) fn check_retry(&mut self, moment: &Moment<'_>) {
        if moment.nth < 3 || moment.was_poisoned || actor_ever(&self.plan).is_some() {
            return;
        }
        let already_there = self.scenario.action == Action::Create && self.history.exists;
        let marker_is_there = self.history.may_refuse && marker_in(moment.before).is_some();
        if let Reply::Refused(refusal) = moment.reply
            && !already_there
            && !marker_is_there
        {
            self.violated(
                Promise::RetrySucceeds,
                format!("with nothing going wrong any more, {} was refused: {}", moment.name(), refusal),
            );
        }
    }

    /// A store that poisons itself says `SESSION_ROLLBACK_FAILED`; and it says so only where names were touched or a
    /// marker was there: whatever failed before that leaves the old generation and a store that works.
    pub(super) fn check_doubt(&mut self, moment: &Moment<'_>) {
        let Reply::Refused(refusal) = moment.reply else { return };
        if moment.was_poisoned || actor_ever(&self.plan).is_some() {
            return;
        }
        let in_doubt = refusal.code == "SESSION_ROLLBACK_FAILED";
        let touched = moment.events.iter().any(|event| matches!(event.op, Op::Link | Op::Rename));
        let is_right =
            if in_doubt { touched || marker_in(moment.before).is_some() } else { !refusal.poisoned };
        if !is_right {
            let text =
                format!("{} leaves the store unusable where nothing is in doubt: {}", moment.name(), refusal);
            self.violated(Promise::RetrySucceeds, text);
        }
    }

    pub(super) fn check_leaks(&mut self, moment: &Moment<'_>) {
        let open = self.injector.open_descriptors();
        let stores = match self.scenario.action {
            Action::Append | Action::Flush => 1,
            Action::Create | Action::Load => {
                usize::from(self.replies.iter().any(|(_, reply)| matches!(reply, Reply::Ok(_))))
            }
        };
        let expected = stores * self.candidate.descriptors();
        if open != expected {
            self.violated(
                Promise::NothingLeaks,
                format!("{} left {open} descriptors open, expected {expected}", moment.name()),
            );
        }
        let locks = self.world.held_locks();
        if locks > 0 {
            self.violated(Promise::NothingLeaks, format!("{} left {locks} locks held", moment.name()));
        }
    }

    pub(super) fn check_memory(&mut self, subject: &mut dyn Subject, moment: &Moment<'_>) {
        if !matches!(self.scenario.action, Action::Append | Action::Flush) {
            return;
        }
        let calls = self.injector.calls();
        let Reply::Ok(answer) = subject.call(&Call::Entries { store: "s".to_owned() }) else {
            return self.violated(Promise::MemoryAgrees, "the store does not show its entries".to_owned());
        };
        if self.injector.calls() != calls {
            self.violated(Promise::MemoryAgrees, "reading the entries touched the disk".to_owned());
        }
        let shown = answer.entries.unwrap_or_default();
        if shown != self.history.acknowledged {
            self.violated(
                Promise::MemoryAgrees,
                format!(
                    "after {} memory shows {}",
                    moment.name(),
                    difference(&shown, &self.history.acknowledged)
                ),
            );
        }
    }

    /// Nobody else's file was touched, no temporary stayed, the mode is no wider, and what was replaced was reported.
    pub(super) fn check_directory(&mut self, moment: &Moment<'_>) {
        for (name, bytes) in NEIGHBOURS {
            if !self.neighbour_is_intact(moment, name, bytes) {
                self.violated(Promise::ForeignUntouched, format!("{} touched {name}", moment.name()));
            }
        }
        for seen in moment.after {
            let role = role::of(&seen.name, SESSION.as_ref());
            let is_ours = matches!(role, Role::Temporary | Role::Restore);
            let is_strangers = seen.bytes.as_deref() == Some(STRANGERS_FILE);
            if is_ours && !is_strangers && !stray_is_excused(&self.injector.trace()) {
                self.violated(
                    Promise::NoStray,
                    format!("{} left {}", moment.name(), seen.name.to_string_lossy()),
                );
            }
        }
        self.check_mode(moment);
        self.check_strangers(moment);
    }

    pub(super) fn neighbour_is_intact(&self, moment: &Moment<'_>, name: &str, bytes: &[u8]) -> bool {
        // With the root replaced, the neighbours are in the directory that was moved away.
        if matches!(moment.actor, Some((Actor::ReplaceRoot, _))) || self.root_was_replaced() {
            return true;
        }
        let before = moment.before.iter().find(|seen| seen.name == name);
        let after = moment.after.iter().find(|seen| seen.name == name);
        before == after && after.is_some_and(|seen| seen.bytes.as_deref() == Some(bytes))
    }

    pub(super) fn root_was_replaced(&self) -> bool {
        self.world.outsider().exists(&self.world.root().with_extension("moved"))
    }

    pub(super) fn check_mode(&mut self, moment: &Moment<'_>) {
        let by_actor = if actor_ever(&self.plan) == Some(Actor::Chmod) { outsider::ACTORS_MODE } else { 0 };
        let widest = self.scenario.mode | by_actor;
        let session = moment.after.iter().find(|seen| seen.name == SESSION);
        if let Some(seen) = session
            && seen.kind == FileKind::Regular
            && !matches!(seen.bytes.as_deref(), Some(STRANGERS_SESSION | STRANGERS_FILE))
            && seen.mode & !widest != 0
        {
            self.violated(
                Promise::ModeIsKept,
                format!("{} left mode {:04o}, wider than {widest:04o}", moment.name(), seen.mode),
            );
        }
    }

    /// What somebody put at one of the store's names is still there, or was used up by the very call before which it
    /// came; and a store whose file is not under its path any more does not answer with success.
    pub(super) fn check_strangers(&mut self, moment: &Moment<'_>) {
        if let Some((actor, struck)) = moment.actor {
            let planted: Option<&[u8]> = match actor {
                Actor::ReplaceFile | Actor::ReplaceRoot => Some(STRANGERS_SESSION),
                Actor::PlantMarker | Actor::PlantTemporary => Some(STRANGERS_FILE),
                _ => None,
            };
            let is_there = planted.is_none_or(|bytes| {
                moment.after.iter().any(|seen| seen.bytes.as_deref() == Some(bytes) && is_of_session(seen))
            });
            if !is_there && planted_at_all(actor, moment) {
                if uses_the_name(struck, actor) {
                    self.race_window = true;
                } else {
                    self.violated(
                        Promise::ForeignUntouched,
                        format!("what {actor} put there before {struck} is gone after {}", moment.name()),
                    );
                }
            }
        }
        let acknowledged = &self.history.acknowledged;
        let in_this_call =
            usize::from(self.scenario.action == Action::Append && matches!(moment.reply, Reply::Ok(_)));
        let before = &acknowledged[..acknowledged.len().saturating_sub(in_this_call)];
        let replaced_before = moment.nth > 1 && !holds_all(moment.before, before);
        let replaced_within = moment.actor.is_some_and(|(actor, struck)| {
            actor.takes_the_generation() && could_be_seen(moment.events, actor, struck)
        });
        if (replaced_before || replaced_within)
            && matches!(moment.reply, Reply::Ok(_))
            && self.replaced_matters()
        {
            self.violated(
                Promise::NoSilentContinuation,
                format!("{} went on although the path did not name the store's generation", moment.name()),
            );
        }
    }

    pub(super) fn replaced_matters(&self) -> bool {
        matches!(self.scenario.action, Action::Append | Action::Flush) && actor_ever(&self.plan).is_some()
    }

    pub(super) fn check_poison(&mut self, moment: &Moment<'_>) {
        if !moment.was_poisoned {
            return;
        }
        if let Some(event) = moment.events.iter().find(|event| event.op.mutates()) {
            self.violated(Promise::PoisonHolds, format!("a poisoned store still made {event}"));
        }
        match moment.reply {
            Reply::Refused(refusal) if refusal.code == "SESSION_ROLLBACK_FAILED" && refusal.poisoned => {}
            Reply::Ok(_) => {}
            other => self.violated(Promise::PoisonHolds, format!("a poisoned store answered {other}")),
        }
    }

    pub(super) fn check_load_is_read_only(&mut self, moment: &Moment<'_>) {
        if self.scenario.action != Action::Load {
            return;
        }
        if let Some(event) = moment.events.iter().find(|event| event.op.mutates()) {
            self.violated(Promise::LoadReadsOnly, format!("the load made {event}"));
        }
    }

    pub(super) fn check_fired(&mut self, trace: &[Event]) {
        for (at, fault) in self.plan.0.iter().enumerate().skip(self.own_faults) {
            if !trace.iter().any(|event| event.fault == Some(at)) {
                self.violations.push(Violation {
                    promise: Promise::FaultFired,
                    evidence: format!("the planned fault never struck: {fault}"),
                });
            }
        }
    }
}
