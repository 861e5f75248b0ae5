//! What a second process finds, and whether the session goes on.

use super::observe::{
    actor_ever, cleanup_failed, destroys, difference, entries_of, is_prefix, marker_in, session_bytes,
};
use super::{Action, Case, HarnessError, Submission, append, message};
use crate::call::{EntryView, Reply};
use crate::fault::{Actor, Role};
use crate::inject::{Event, Injector};
use crate::outsider::{self, Seen};
use crate::promise::Promise;

impl Case<'_> {
    /// A second process: load, append, load.
    pub(super) fn cold(&mut self, trace: &[Event]) -> Result<(), HarnessError> {
        let actor = actor_ever(&self.plan);
        if actor.is_some_and(destroys) {
            self.cold_after_destruction();
            return Ok(());
        }
        let loaded = self.cold_load();
        let Some(entries) = loaded else {
            return self.cold_refusal(actor);
        };
        if !self.history.exists
            && actor.is_none()
            && self.history.doubtful.is_empty()
            && !self.create_is_doubtful(trace)
        {
            self.violated(Promise::FailedMeansOld, "a session is there although none was created".to_owned());
        }
        self.expect_entries(&entries, "a cold load");
        self.history.acknowledged = entries;
        self.history.doubtful.clear();
        self.goes_on();
        Ok(())
    }

    pub(super) fn create_is_doubtful(&self, trace: &[Event]) -> bool {
        self.scenario.action == Action::Create
            && (self.injector.killed() || cleanup_failed(trace, Role::Session))
    }

    /// After somebody destroyed the file, only this: every answer is typed.
    pub(super) fn cold_after_destruction(&mut self) {
        let reply = self.second_process_load();
        if let Reply::Panicked(text) = reply {
            self.violated(Promise::TypedRefusal, format!("a cold load panicked: {text}"));
        }
    }

    pub(super) fn cold_load(&mut self) -> Option<Vec<EntryView>> {
        match self.second_process_load() {
            Reply::Ok(answer) => Some(answer.entries.unwrap_or_default()),
            Reply::Panicked(text) => {
                self.violated(Promise::TypedRefusal, format!("a cold load panicked: {text}"));
                None
            }
            _ => None,
        }
    }

    pub(super) fn second_process_load(&mut self) -> Reply {
        let injector = Injector::watching();
        let ops = self.world.process(&injector);
        let reply = self.candidate.start(ops).call(&self.load("cold"));
        if let Some(event) = injector.trace().iter().find(|event| event.op.mutates()) {
            self.violated(Promise::LoadReadsOnly, format!("a cold load made {event}"));
        }
        self.replies.push(("cold load".to_owned(), reply.clone()));
        reply
    }

    /// The cold load refused. That is right only beside a marker, and then either name holds everything that was
    /// acknowledged; or where there never was a session.
    pub(super) fn cold_refusal(&mut self, actor: Option<Actor>) -> Result<(), HarnessError> {
        let view = self.view()?;
        if marker_in(&view).is_none() {
            if self.history.exists {
                self.violated(
                    Promise::AcknowledgedSurvive,
                    format!(
                        "a cold load refused without a marker: {}",
                        self.replies.last().map(|(_, reply)| reply.to_string()).unwrap_or_default()
                    ),
                );
            }
            return Ok(());
        }
        if !self.history.may_refuse && actor != Some(Actor::PlantMarker) {
            self.violated(Promise::FailedMeansOld, "a marker is left although no answer said so".to_owned());
        }
        let holds_all = |bytes: Option<&[u8]>| {
            bytes.and_then(entries_of).is_some_and(|entries| is_prefix(&self.history.acknowledged, &entries))
        };
        if self.history.exists
            && !holds_all(session_bytes(&view))
            && !holds_all(marker_in(&view).and_then(|seen| seen.bytes.as_deref()))
        {
            self.violated(
                Promise::AcknowledgedSurvive,
                "neither the session file nor the marker holds every acknowledged entry".to_owned(),
            );
        }
        self.resolve_by_hand(&view)?;
        if self.history.exists || session_bytes(&view).is_some() {
            match self.cold_load() {
                Some(entries) => {
                    self.expect_entries(&entries, "a cold load after the marker was resolved");
                    self.history.acknowledged = entries;
                    self.goes_on();
                }
                None => self.violated(
                    Promise::AcknowledgedSurvive,
                    "the session does not load even after the marker was resolved".to_owned(),
                ),
            }
        }
        Ok(())
    }

    /// What a careful person does about a marker: the path stays where it holds everything, else the marker takes
    /// its place.
    pub(super) fn resolve_by_hand(&self, view: &[Seen]) -> Result<(), HarnessError> {
        let marker = outsider::marker(self.world.session());
        let path_is_good = session_bytes(view)
            .and_then(entries_of)
            .is_some_and(|entries| is_prefix(&self.history.acknowledged, &entries));
        if path_is_good {
            self.world.outsider().remove(&marker)?;
        } else {
            self.world.outsider().rename(&marker, self.world.session())?;
        }
        Ok(())
    }

    /// An append by the second process is there for a third one.
    pub(super) fn goes_on(&mut self) {
        let injector = Injector::watching();
        let ops = self.world.process(&injector);
        let mut subject = self.candidate.start(ops);
        let loaded = subject.call(&self.load("next"));
        let submission = Submission {
            parent_id: self.history.acknowledged.last().map(|entry| entry.id.clone()),
            message: message("m-after", "and after the restart?"),
        };
        let appended = subject.call(&append("next", &submission));
        drop(subject);
        let Reply::Ok(answer) = &appended else {
            return self.violated(
                Promise::GoesOnAfterwards,
                format!("the append after the restart was refused: load: {loaded}; append: {appended}"),
            );
        };
        self.history.acknowledged.extend(answer.entry.clone());
        match self.cold_load() {
            Some(entries) if entries == self.history.acknowledged => {}
            other => self.violated(
                Promise::GoesOnAfterwards,
                format!(
                    "after the append and a restart: {}",
                    other.map_or("no load".to_owned(), |entries| difference(
                        &entries,
                        &self.history.acknowledged
                    ))
                ),
            ),
        }
    }

    pub(super) fn expect_load(&mut self, reply: &Reply) {
        match reply {
            Reply::Ok(answer) => {
                let entries = answer.entries.clone().unwrap_or_default();
                self.expect_entries(&entries, "the first load");
            }
            other => {
                self.violated(Promise::AcknowledgedSurvive, format!("the first load answered {other}"));
            }
        }
    }

    /// Acknowledged entries in order, then at most the doubtful submissions in order.
    pub(super) fn expect_entries(&mut self, shown: &[EntryView], whence: &str) {
        let acknowledged = &self.history.acknowledged;
        if !is_prefix(acknowledged, shown) {
            let text = format!("{whence} shows {}", difference(shown, acknowledged));
            return self.violated(Promise::AcknowledgedSurvive, text);
        }
        let mut doubtful = self.history.doubtful.iter();
        for entry in &shown[acknowledged.len()..] {
            let submitted = |it: &Submission| it.parent_id == entry.parent_id && it.message == entry.message;
            if !doubtful.any(submitted) {
                let text = format!("{whence} shows {entry}, which was never acknowledged or left in doubt");
                return self.violated(Promise::NothingInvented, text);
            }
        }
    }
}
