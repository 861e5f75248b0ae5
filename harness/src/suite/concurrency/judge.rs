//! What must hold after two processes worked on one session, whichever way their system calls fell.

use super::Counts;
use super::sides::{Act, Done, Ran, SESSION, STORE, Submitted, Workload, append, changed, message};
use super::turns::Side;
use crate::call::{Answer, Call, EntryView, Reply};
use crate::fault::Role;
use crate::inject::Injector;
use crate::promise::{Promise, Violation};
use crate::role;
use crate::subject::Candidate;

/// What of a schedule is broken, and what is counted of it.
pub(super) fn judge(candidate: &dyn Candidate, workload: &Workload, ran: Ran) -> (Vec<Violation>, Counts) {
    let counts = count(workload, &ran);
    let mut trial = Trial { candidate, workload, ran, violations: Vec::new() };
    trial.check_answers();
    trial.check_readers();
    trial.check_progress();
    trial.check_memory();
    trial.check_directory();
    if let Some(shown) = trial.cold_load() {
        trial.check_shown(&shown);
        trial.check_loads(&shown);
        trial.go_on(&shown);
    }
    (trial.violations, counts)
}

struct Trial<'a> {
    candidate: &'a dyn Candidate,
    workload: &'a Workload,
    ran: Ran,
    violations: Vec<Violation>,
}

/// What a cold load shows.
struct Shown {
    session: String,
    entries: Vec<EntryView>,
}

impl Trial<'_> {
    fn broke(&mut self, promise: Promise, evidence: String) {
        self.violations.push(Violation { promise, evidence });
    }

    fn all(&self) -> impl Iterator<Item = (Side, &Done)> {
        self.ran.done.iter().enumerate().flat_map(|(side, done)| done.iter().map(move |done| (side, done)))
    }

    /// Acknowledged commits, the first one first.
    fn commits(&self) -> Vec<(Side, &Done)> {
        let mut commits: Vec<_> =
            self.all().filter(|(_, done)| done.act.commits() && is_ok(&done.reply)).collect();
        commits.sort_by_key(|(_, done)| done.span.1);
        commits
    }

    /// Whose generation the session is; none where nobody committed, or two commits ended so close together that their
    /// answers do not tell which one was the last.
    fn last_to_commit(&self) -> Option<Side> {
        let commits = self.commits();
        let (side, last) = commits.last()?;
        let is_beside = |(of, done): &(Side, &Done)| of != side && done.span.1 > last.span.0;
        (!commits.iter().any(is_beside)).then_some(*side)
    }

    fn acknowledged(&self) -> impl Iterator<Item = (&Done, &EntryView)> {
        self.all().filter_map(|(_, done)| Some((done, entry_of(done)?)))
    }

    fn in_doubt(&self) -> impl Iterator<Item = &Submitted> {
        self.all()
            .filter(|(_, done)| is_in_doubt(&done.reply))
            .filter_map(|(_, done)| done.submitted.as_ref())
    }

    fn check_answers(&mut self) {
        let mut wrong = Vec::new();
        for (side, done) in self.all() {
            let who = named(side, done);
            match &done.reply {
                Reply::Ok(answer) => {
                    if let Some(submitted) = &done.submitted
                        && !answer.entry.as_ref().is_some_and(|entry| is_of(entry, submitted))
                    {
                        let text =
                            format!("{who} acknowledged {:?}, submitted was {submitted:?}", answer.entry);
                        wrong.push((Promise::NothingInvented, text));
                    }
                }
                Reply::Refused(refusal) if refusal.code.parse::<session_tree::Code>().is_ok() => {}
                reply => wrong.push((Promise::TypedRefusal, format!("{who} answered {reply:?}"))),
            }
        }
        for (promise, text) in wrong {
            self.broke(promise, text);
        }
    }

    /// Loads and inspections change nothing, least of all under another process's commit.
    fn check_readers(&mut self) {
        let is_reader = |call: &str| call == Act::Load.as_str() || call == Act::Inspect.as_str();
        let mut traces = self.ran.traces.iter().flatten();
        let found =
            traces.find(|event| is_reader(&event.during.call) && changed(event)).map(ToString::to_string);
        if let Some(event) = found {
            self.broke(Promise::LoadReadsOnly, format!("a reader changed the disk: {event}"));
        }
    }

    /// Where nothing goes wrong somebody gets on: a store that refuses everything loses nothing either.
    fn check_progress(&mut self) {
        // Where a reader changed the disk, whoever was disturbed is not the one to blame.
        let is_disturbed = self.violations.iter().any(|it| it.promise == Promise::LoadReadsOnly);
        if self.workload.trouble.is_some() || is_disturbed {
            return;
        }
        let refused: Vec<String> = self
            .all()
            .filter(|(_, done)| done.act.commits() && !is_ok(&done.reply))
            .map(|(side, done)| format!("{}: {}", named(side, done), done.reply))
            .collect();
        if !refused.is_empty() && self.commits().is_empty() {
            let text = format!("nothing went wrong, and nobody got on: {}", refused.join("; "));
            self.broke(Promise::RetrySucceeds, text);
        }
        let recovered = |done: &Done| done.act == Act::Recover && is_ok(&done.reply);
        let tried = self.all().any(|(_, done)| done.act == Act::Recover);
        if self.workload.start.is_crashed() && tried && !self.all().any(|(_, done)| recovered(done)) {
            self.broke(Promise::RecoveryKeeps, "no recovery got on".to_owned());
        }
    }

    fn check_memory(&mut self) {
        for side in 0..2 {
            let Some(expected) = known_to(&self.ran.done[side]) else { continue };
            let reply = self.ran.subjects[side].call(&Call::Entries { store: STORE.to_owned() });
            let Reply::Ok(Answer { entries: Some(shown), .. }) = reply else { continue };
            if shown != expected {
                let text = format!("process {} shows {}, knows of {}", side + 1, ids(&shown), ids(&expected));
                self.broke(Promise::MemoryAgrees, text);
            }
        }
    }

    /// No lock, no temporary and no marker is left, but a marker that was there and nobody recovered.
    fn check_directory(&mut self) {
        let locks = self.ran.world.held_locks();
        if locks > 0 {
            self.broke(
                Promise::NothingLeaks,
                format!("{locks} locks are held although every call was answered"),
            );
        }
        let names: Vec<String> = self
            .ran
            .world
            .outsider()
            .view(self.ran.world.root())
            .unwrap_or_default()
            .into_iter()
            .map(|seen| seen.name.to_string_lossy().into_owned())
            .collect();
        for name in names {
            match role::of(name.as_ref(), SESSION.as_ref()) {
                Role::Session => {}
                Role::Marker if self.marker_is_excused() => {}
                Role::Marker => {
                    self.broke(Promise::FailedMeansOld, "a marker is left, and nobody said so".to_owned());
                }
                _ => self.broke(Promise::NoStray, format!("{name} is left")),
            }
        }
    }

    fn marker_is_excused(&self) -> bool {
        let recovered = self.all().any(|(_, done)| done.act == Act::Recover && is_ok(&done.reply));
        self.workload.start.is_crashed() && !recovered || self.all().any(|(_, done)| is_in_doubt(&done.reply))
    }

    fn cold_load(&mut self) -> Option<Shown> {
        let created = self.commits().iter().any(|(_, done)| done.act == Act::Create);
        let is_there = created || !self.ran.known.is_empty();
        let mut process = self.candidate.start(self.ran.world.process(&Injector::blind()));
        let mut reply = process.call(&self.load(&[]));
        if !is_ok(&reply) && self.marker_is_excused() {
            let path = self.ran.world.session().to_string_lossy().into_owned();
            process.call(&Call::Recover { path, choose: None });
            reply = process.call(&self.load(&[]));
        }
        match reply {
            Reply::Ok(answer) => Some(Shown {
                session: answer.header.map(|header| header.id).unwrap_or_default(),
                entries: answer.entries.unwrap_or_default(),
            }),
            reply if is_there => {
                self.broke(Promise::AcknowledgedSurvive, format!("a cold load answers {reply}"));
                None
            }
            _ => None,
        }
    }

    fn load(&self, ids: &[&str]) -> Call {
        let path = self.ran.world.session().to_string_lossy().into_owned();
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        Call::Load { store: STORE.to_owned(), path, ids, clock: Vec::new() }
    }

    fn check_shown(&mut self, shown: &Shown) {
        let mut wrong = Vec::new();
        self.check_created(shown, &mut wrong);
        let of_both = ids(&shown.entries);
        let known = self.ran.known.iter().map(|entry| (None, entry));
        let acknowledged = self.acknowledged().map(|(done, entry)| (Some(done), entry));
        for (done, entry) in known.chain(acknowledged) {
            let Some(at) = shown.entries.iter().position(|one| one == entry) else {
                let text =
                    format!("the acknowledged entry {} is gone: a cold load shows {of_both}", entry.id);
                wrong.push((Promise::AcknowledgedSurvive, text));
                continue;
            };
            if let Some(done) = done
                && done.view != shown.entries[..at]
            {
                let view = ids(&done.view);
                let text = format!(
                    "{} was appended by a store that knew of {view} and had not seen what another one had written: {of_both}",
                    entry.id
                );
                wrong.push((Promise::NoSilentContinuation, text));
            }
        }
        let is_known = |one: &EntryView| {
            self.ran.known.contains(one)
                || self.acknowledged().any(|(_, entry)| entry == one)
                || self.in_doubt().any(|submitted| is_of(one, submitted))
        };
        if let Some(one) = shown.entries.iter().find(|one| !is_known(one)) {
            wrong
                .push((Promise::NothingInvented, format!("{} was never acknowledged, and is shown", one.id)));
        }
        // A lost entry has a place no more; that it is lost is said already.
        for (promise, text) in wrong {
            self.broke(promise, text);
        }
    }

    fn check_created(&self, shown: &Shown, wrong: &mut Vec<(Promise, String)>) {
        let headers: Vec<&str> = self
            .commits()
            .iter()
            .filter_map(|(_, done)| match &done.reply {
                Reply::Ok(answer) if done.act == Act::Create => answer.header.as_ref(),
                _ => None,
            })
            .map(|header| header.id.as_str())
            .collect();
        if headers.iter().any(|id| *id != shown.session) {
            let text = format!("created were {headers:?}, and a cold load shows {:?}", shown.session);
            wrong.push((Promise::AcknowledgedSurvive, text));
        }
    }

    /// A load shows a generation: the beginning of what is there in the end, with all that was acknowledged before it
    /// began and nothing that was asked for after it had ended.
    fn check_loads(&mut self, shown: &Shown) {
        let mut wrong = Vec::new();
        for (side, load) in self.all().filter(|(_, done)| done.act == Act::Load) {
            let Reply::Ok(Answer { entries: Some(seen), .. }) = &load.reply else { continue };
            let who = named(side, load);
            if !shown.entries.starts_with(seen) {
                let (seen, end) = (ids(seen), ids(&shown.entries));
                wrong.push((
                    Promise::NothingInvented,
                    format!("{who} showed {seen}, and in the end there is {end}"),
                ));
            }
            for (done, entry) in self.acknowledged() {
                if done.span.1 <= load.span.0 && !seen.contains(entry) {
                    let text =
                        format!("{who} began after {} was acknowledged, and does not show it", entry.id);
                    wrong.push((Promise::AcknowledgedSurvive, text));
                }
            }
        }
        for (promise, text) in wrong {
            self.broke(promise, text);
        }
    }

    /// The store that holds the last generation appends again, and so does a new process; both entries are there.
    fn go_on(&mut self, shown: &Shown) {
        // What is broken already would only be told once more.
        if !self.violations.is_empty() {
            return;
        }
        let last = self.last_to_commit();
        let mut expected = shown.entries.clone();
        if let Some(side) = last {
            let call = append(expected.last().map(|entry| entry.id.clone()), &message('c', 1));
            match self.ran.subjects[side].call(&call) {
                Reply::Ok(Answer { entry: Some(entry), .. }) => expected.push(entry),
                reply => {
                    let text = format!("process {} committed last, and its next append: {}", side + 1, reply);
                    self.broke(Promise::RetrySucceeds, text);
                    return;
                }
            }
        }
        let load = self.load(&["d-1"]);
        let mut process = self.candidate.start(self.ran.world.process(&Injector::blind()));
        process.call(&load);
        let call = append(expected.last().map(|entry| entry.id.clone()), &message('d', 1));
        let reply = process.call(&call);
        if let Reply::Ok(Answer { entry: Some(entry), .. }) = &reply {
            expected.push(entry.clone());
        }
        let seen = match process.call(&load) {
            Reply::Ok(Answer { entries: Some(entries), .. }) => entries,
            _ => Vec::new(),
        };
        if !is_ok(&reply) || seen != expected {
            let text = format!("a new process's append: {}; then there is {}", reply, ids(&seen));
            self.broke(Promise::GoesOnAfterwards, text);
        }
    }
}

/// What is counted of a schedule: whether both were within a commit at once, whether one waited, and who was first.
fn count(workload: &Workload, ran: &Ran) -> Counts {
    let commits = |side: Side| ran.done[side].iter().filter(|done| done.act.commits());
    let meets = |one: &Done, other: &Done| one.span.0 < other.span.1 && other.span.0 < one.span.1;
    let meet = commits(0).any(|one| commits(1).any(|other| meets(one, other)));
    let first = (0..2)
        .filter_map(|side| {
            commits(side).filter(|done| is_ok(&done.reply)).map(|done| (done.span.1, side)).min()
        })
        .min()
        .filter(|_| workload.is_contest());
    Counts {
        schedules: 1,
        overlaps: usize::from(meet || ran.course.waited),
        waits: usize::from(ran.course.waited),
        first_won: usize::from(first.is_some_and(|(_, side)| side == 0)),
        second_won: usize::from(first.is_some_and(|(_, side)| side == 1)),
    }
}

/// What a process's store must show; none where it has none.
fn known_to(done: &[Done]) -> Option<Vec<EntryView>> {
    let last = done.iter().rfind(|done| !matches!(done.act, Act::Inspect | Act::Recover))?;
    let mut known = last.view.clone();
    match &last.reply {
        Reply::Ok(answer) => match last.act {
            Act::Load => known = answer.entries.clone().unwrap_or_default(),
            _ => known.extend(answer.entry.clone()),
        },
        _ if matches!(last.act, Act::Load | Act::Create) => return None,
        _ => {}
    }
    Some(known)
}

fn entry_of(done: &Done) -> Option<&EntryView> {
    match &done.reply {
        Reply::Ok(answer) => answer.entry.as_ref(),
        _ => None,
    }
}

fn is_of(entry: &EntryView, submitted: &Submitted) -> bool {
    entry.parent_id == submitted.parent_id && entry.message == submitted.message
}

fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Ok(_))
}

fn is_in_doubt(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(refusal) if refusal.code == "SESSION_ROLLBACK_FAILED")
}

fn named(side: Side, done: &Done) -> String {
    format!("{} of process {}", done.act.as_str(), side + 1)
}

fn ids(entries: &[EntryView]) -> String {
    let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    format!("[{}]", ids.join(" "))
}
