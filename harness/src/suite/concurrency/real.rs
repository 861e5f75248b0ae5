//! Two processes of a store on one real path, asked at the same time, again and again. Which of them is first is left to
//! the machine; the seed decides by how much one is asked before the other. The entries are known by what was answered,
//! so that a store of any format is judged.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::batch::{is_same, says_stale, untyped};
use super::sides::{STORE, append, message};
use super::{Counts, Setting, Stop, ended};
use crate::call::{Answer, Call, EntryView, Reply};
use crate::promise::{Promise, Violation};
use crate::subject::Subject;

/// How often both are asked at once, in one case.
const ROUNDS: u32 = 12;
/// By how much one is asked before the other at most.
const LONGEST_LEAD: u64 = 400;

/// What both do at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Race {
    Appends,
    AppendAndLoad,
    Creates,
}

impl Race {
    pub(super) const ALL: [Race; 3] = [Race::Appends, Race::AppendAndLoad, Race::Creates];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Race::Appends => "append+append",
            Race::AppendAndLoad => "append+load",
            Race::Creates => "create+create",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Race::Appends => "two processes that append at the same time lose nothing that was acknowledged",
            Race::AppendAndLoad => {
                "a load during another process's append shows the session before it or after it"
            }
            Race::Creates => "of two processes that create one session at the same time one does",
        }
    }

    pub(super) const fn requirements(self) -> &'static [&'static str] {
        match self {
            Race::Appends => &["S5", "S8", "C21"],
            Race::AppendAndLoad => &["S2", "S5", "S8"],
            Race::Creates => &["S1", "S8"],
        }
    }
}

/// What the rounds of a race came to: what is broken, with the number of the round.
#[derive(Default)]
pub(super) struct Raced {
    pub(super) violations: Vec<(usize, Violation)>,
    pub(super) counts: Counts,
}

pub(super) fn run(race: Race, setting: &Setting<'_>, seed: u64) -> Result<Raced, Stop> {
    let path = setting.fresh_path()?;
    let processes = [(setting.start)(), (setting.start)()];
    let random = Rng::with_seed(seed);
    let mut track =
        Track { setting, path, processes, random, known: Vec::new(), round: 0, raced: Raced::default() };
    if race != Race::Creates {
        let create = track.create(&track.path, 0);
        track.ok(0, &create)?;
        track.append_alone()?;
    }
    while track.round < ROUNDS {
        track.round += 1;
        match race {
            Race::Appends => track.appends()?,
            Race::AppendAndLoad => track.append_and_load()?,
            Race::Creates => track.creates()?,
        }
    }
    if race != Race::Creates {
        track.end()?;
    }
    Ok(track.raced)
}

struct Track<'a> {
    setting: &'a Setting<'a>,
    path: String,
    processes: [Box<dyn Subject>; 2],
    random: Rng,
    /// What was acknowledged, or loaded of what was in doubt.
    known: Vec<EntryView>,
    round: u32,
    raced: Raced,
}

/// An answer, and when it was asked for and given.
struct Answered {
    reply: Reply,
    asked: Instant,
    given: Instant,
}

impl Track<'_> {
    fn appends(&mut self) -> Result<(), Stop> {
        for side in 0..2 {
            self.load(side)?;
        }
        let parent = self.known.last().map(|entry| entry.id.clone());
        let calls = ['a', 'b'].map(|name| append(parent.clone(), &message(name, self.round)));
        let [one, other] = self.at_once(&calls);
        self.count([&one, &other], [true, true]);
        let acknowledged: Vec<EntryView> =
            [&one, &other].into_iter().filter_map(|it| entry_of(&it.reply)).cloned().collect();
        if acknowledged.len() == 2 && self.setting.is_native {
            let text = "both processes were at one generation, and both appends were acknowledged";
            self.broke(Promise::NoSilentContinuation, text);
        }
        let is_stale = [&one, &other].into_iter().any(|it| says_stale(&it.reply));
        if self.setting.is_native && acknowledged.is_empty() && !is_stale {
            let text = format!("nobody got on: {}; {}", one.reply, other.reply);
            self.broke(Promise::RetrySucceeds, &text);
        }
        self.check_form(&[&one, &other])?;
        self.known.extend(acknowledged);
        Ok(())
    }

    fn append_and_load(&mut self) -> Result<(), Stop> {
        self.load(0)?;
        let parent = self.known.last().map(|entry| entry.id.clone());
        let calls = [append(parent, &message('a', self.round)), self.load_call(&self.path, 1)];
        let [appended, loaded] = self.at_once(&calls);
        self.count([&appended, &loaded], [true, false]);
        self.check_form(&[&appended, &loaded])?;
        let before = self.known.clone();
        if let Some(entry) = entry_of(&appended.reply) {
            self.known.push(entry.clone());
        } else if self.setting.is_native {
            // Of other stores a reader may keep a writer out.
            let text = format!("nobody else writes, and an append: {}", appended.reply);
            self.broke(Promise::RetrySucceeds, &text);
        }
        if let Reply::Ok(Answer { entries: Some(shown), .. }) = &loaded.reply {
            let is_one_of_both = equal(shown, &before) || equal(shown, &self.known);
            if !is_one_of_both {
                let text =
                    format!("a load beside an append shows {} entries of {}", shown.len(), self.known.len());
                self.broke(Promise::NothingInvented, &text);
            }
        }
        Ok(())
    }

    fn creates(&mut self) -> Result<(), Stop> {
        let path = self.setting.fresh_path()?;
        let calls = [0, 1].map(|side| self.create(&path, side));
        let [one, other] = self.at_once(&calls);
        self.count([&one, &other], [true, true]);
        self.check_form(&[&one, &other])?;
        let created = [&one, &other].into_iter().filter(|it| is_ok(&it.reply)).count();
        if created == 2 {
            self.broke(Promise::AcknowledgedSurvive, "both processes created the session");
        }
        if created == 0 && self.setting.is_native {
            let text = format!("nobody got on: {}; {}", one.reply, other.reply);
            self.broke(Promise::RetrySucceeds, &text);
        } else if created == 0 {
            // Each may keep the other one out.
        } else if let reply @ Reply::Refused(_) = (self.setting.start)().call(&self.load_call(&path, 2)) {
            self.broke(Promise::AcknowledgedSurvive, &format!("a session was created, and a load: {reply}"));
        }
        Ok(())
    }

    /// A new process shows everything, and goes on from there.
    fn end(&mut self) -> Result<(), Stop> {
        self.processes[0] = (self.setting.start)();
        self.load(0)?;
        if self.raced.violations.is_empty() {
            self.append_alone()?;
            self.load(0)?;
        }
        Ok(())
    }

    fn append_alone(&mut self) -> Result<(), Stop> {
        let parent = self.known.last().map(|entry| entry.id.clone());
        let answer = self.ok(0, &append(parent, &message('z', self.round)))?;
        self.known.extend(answer.entry);
        Ok(())
    }

    /// What a process loads is what was acknowledged.
    fn load(&mut self, side: usize) -> Result<(), Stop> {
        let call = self.load_call(&self.path, side);
        let answer = self.ok(side, &call)?;
        let shown = answer.entries.unwrap_or_default();
        let lost: Vec<&str> = self
            .known
            .iter()
            .filter(|entry| !shown.iter().any(|one| is_same(one, entry)))
            .map(|entry| entry.id.as_str())
            .collect();
        if !lost.is_empty() {
            let text = format!("acknowledged and not there when it is loaded again: {}", lost.join(" "));
            self.broke(Promise::AcknowledgedSurvive, &text);
        }
        if let Some(one) = shown.iter().find(|one| !self.known.iter().any(|entry| is_same(one, entry))) {
            let text = format!("{} is there when it is loaded again, and was not acknowledged", one.id);
            self.broke(Promise::NothingInvented, &text);
        }
        // What is broken is told once.
        self.known = shown;
        Ok(())
    }

    fn at_once(&mut self, calls: &[Call; 2]) -> [Answered; 2] {
        let lead = Duration::from_micros(self.random.u64(0..LONGEST_LEAD));
        let late = self.random.usize(0..3);
        let barrier = Barrier::new(2);
        let [one, other] = &mut self.processes;
        let ask = |process: &mut Box<dyn Subject>, side: usize| {
            barrier.wait();
            let asked = Instant::now();
            // A sleep is longer than most commits.
            while side == late && asked.elapsed() < lead {
                std::hint::spin_loop();
            }
            let asked = Instant::now();
            let reply = process.call(&calls[side]);
            Answered { reply, asked, given: Instant::now() }
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| ask(other, 1));
            let one = ask(one, 0);
            let lost = || {
                let (asked, given) = (Instant::now(), Instant::now());
                Answered { reply: Reply::Panicked("its thread ended".to_owned()), asked, given }
            };
            [one, other.join().unwrap_or_else(|_| lost())]
        })
    }

    fn count(&mut self, both: [&Answered; 2], commits: [bool; 2]) {
        let [one, other] = both;
        let meet = one.asked < other.given && other.asked < one.given;
        let won = |side: usize| commits == [true, true] && is_ok(&both[side].reply);
        let first_of_both = won(0) && (!won(1) || one.given <= other.given);
        self.raced.counts.add(&Counts {
            schedules: 1,
            overlaps: usize::from(meet),
            waits: 0,
            first_won: usize::from(first_of_both),
            second_won: usize::from(won(1) && !first_of_both),
        });
    }

    fn check_form(&mut self, both: &[&Answered; 2]) -> Result<(), Stop> {
        for answered in both {
            match &answered.reply {
                Reply::Ok(_) => {}
                Reply::Refused(_) => {
                    if let Some(text) = untyped(&answered.reply, self.setting.is_native) {
                        self.broke(Promise::TypedRefusal, &text);
                    }
                }
                reply => return Err(ended(reply, "a call beside another process's")),
            }
        }
        Ok(())
    }

    fn create(&self, path: &str, side: usize) -> Call {
        Call::Create {
            store: STORE.to_owned(),
            path: path.to_owned(),
            session_id: None,
            ids: self.ids(side),
            clock: Vec::new(),
        }
    }

    fn load_call(&self, path: &str, side: usize) -> Call {
        let ids = self.ids(side);
        Call::Load { store: STORE.to_owned(), path: path.to_owned(), ids, clock: Vec::new() }
    }

    /// No two processes draw the same, and none the same in two rounds.
    fn ids(&self, side: usize) -> Vec<String> {
        let begun = self.raced.counts.schedules;
        (0..4).map(|number| format!("p{side}-{begun}-{}-{number}", self.known.len())).collect()
    }

    fn ok(&mut self, side: usize, call: &Call) -> Result<Answer, Stop> {
        match self.processes[side].call(call) {
            Reply::Ok(answer) => Ok(answer),
            reply => Err(ended(&reply, call.name())),
        }
    }

    fn broke(&mut self, promise: Promise, evidence: &str) {
        let evidence = format!("round {}: {evidence}", self.round);
        self.raced.violations.push((self.round as usize, Violation { promise, evidence }));
    }
}

fn equal(shown: &[EntryView], known: &[EntryView]) -> bool {
    shown.len() == known.len() && shown.iter().zip(known).all(|(one, other)| is_same(one, other))
}

fn entry_of(reply: &Reply) -> Option<&EntryView> {
    match reply {
        Reply::Ok(answer) => answer.entry.as_ref(),
        _ => None,
    }
}

fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Ok(_))
}
