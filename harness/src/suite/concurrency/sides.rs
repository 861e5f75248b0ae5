//! What two processes do with one session, and what came of it under one schedule.

use std::fmt;
use std::str::FromStr;
use std::thread;

use super::turns::{Course, Part, Schedule, Side, Turns};
use crate::call::{Answer, Call, EntryView, Reply};
use crate::disk::Disk;
use crate::fault::{During, Fault, Kind, Op, Plan, Role, Site, Span, Target};
use crate::inject::{Event, Injector, Outcome};
use crate::outsider;
use crate::scenario::HarnessError;
use crate::subject::{Candidate, Subject};
use crate::world::{Backend, World, WorldOps};
use session_tree::Errno;

pub(super) const SESSION: &str = "session.jsonl";
pub(super) const STORE: &str = "s";

/// One thing that a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Act {
    Create,
    Load,
    Append,
    Flush,
    Inspect,
    Recover,
}

impl Act {
    const ALL: [Act; 6] = [Act::Create, Act::Load, Act::Append, Act::Flush, Act::Inspect, Act::Recover];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Act::Create => "create",
            Act::Load => "load",
            Act::Append => "append",
            Act::Flush => "flush",
            Act::Inspect => "inspect",
            Act::Recover => "recover",
        }
    }

    /// Whether it makes a new generation.
    pub(super) const fn commits(self) -> bool {
        matches!(self, Act::Create | Act::Append | Act::Flush)
    }
}

/// What stands on the disk at the beginning, all of it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Start {
    /// Nothing.
    New,
    /// A session of one entry.
    Session,
    /// The same, whose marker a process left that died before its rename.
    BeforeRename,
    /// A session of two entries, whose marker a process left that died after its rename.
    AfterRename,
}

impl Start {
    const ALL: [Start; 4] = [Start::New, Start::Session, Start::BeforeRename, Start::AfterRename];

    const fn as_str(self) -> &'static str {
        match self {
            Start::New => "new",
            Start::Session => "session",
            Start::BeforeRename => "before-rename",
            Start::AfterRename => "after-rename",
        }
    }

    pub(super) const fn is_crashed(self) -> bool {
        matches!(self, Start::BeforeRename | Start::AfterRename)
    }
}

/// What goes wrong in the first process's first append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The disk takes half of what is written, and then nothing.
    ShortWrite,
    /// The directory's fsync behind the rename fails.
    DirectorySync,
}

impl Trouble {
    const ALL: [Trouble; 2] = [Trouble::ShortWrite, Trouble::DirectorySync];

    const fn as_str(self) -> &'static str {
        match self {
            Trouble::ShortWrite => "short-write",
            Trouble::DirectorySync => "directory-fsync",
        }
    }
}

/// A start and what both do from there, written `session:append+load,append`; with a trouble in the first one's append
/// `session!short-write:append+append`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Workload {
    pub(super) start: Start,
    pub(super) trouble: Option<Trouble>,
    pub(super) sides: [Vec<Act>; 2],
}

impl Workload {
    /// The requirements of the contract that it is about.
    pub(super) fn requirements(&self) -> &'static [&'static str] {
        let has = |act| self.sides.iter().flatten().any(|it| *it == act);
        match self.trouble {
            Some(Trouble::ShortWrite) => &["S8", "C3", "C21"],
            Some(Trouble::DirectorySync) => &["S2", "S8", "C20"],
            None if has(Act::Recover) => &["S8", "X2"],
            None if has(Act::Inspect) => &["S8", "X1"],
            None if has(Act::Create) => &["S1", "S8"],
            None if has(Act::Load) => &["S2", "S5", "S8"],
            None => &["S5", "S8", "C21"],
        }
    }

    /// Whether both would make a new generation.
    pub(super) fn is_contest(&self) -> bool {
        self.sides.iter().all(|acts| acts.iter().any(|act| act.commits()))
    }

    fn is_opened_before(&self, side: Side) -> bool {
        matches!(self.sides[side].first(), Some(Act::Append | Act::Flush))
    }

    /// Whether anybody looks at temporaries that are not its own.
    pub(super) fn looks_at_temporaries(&self) -> bool {
        self.sides.iter().flatten().any(|act| matches!(act, Act::Inspect | Act::Recover))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |acts: &[Act]| acts.iter().map(|act| act.as_str()).collect::<Vec<_>>().join(",");
        f.write_str(self.start.as_str())?;
        if let Some(trouble) = self.trouble {
            write!(f, "!{}", trouble.as_str())?;
        }
        write!(f, ":{}+{}", words(&self.sides[0]), words(&self.sides[1]))
    }
}

/// The text is no workload of two processes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no workload of two processes: one reads `session:append+load,append`")]
pub(super) struct UnknownSides(String);

impl FromStr for Workload {
    type Err = UnknownSides;

    fn from_str(text: &str) -> Result<Workload, UnknownSides> {
        let unknown = || UnknownSides(text.to_owned());
        let (start, sides) = text.split_once(':').ok_or_else(unknown)?;
        let (start, trouble) = match start.split_once('!') {
            Some((start, trouble)) => (start, Some(trouble)),
            None => (start, None),
        };
        let start = Start::ALL.into_iter().find(|it| it.as_str() == start).ok_or_else(unknown)?;
        let find = |word: &str| Trouble::ALL.into_iter().find(|it| it.as_str() == word).ok_or_else(unknown);
        let trouble = trouble.map(find).transpose()?;
        let act = |word: &str| Act::ALL.into_iter().find(|it| it.as_str() == word).ok_or_else(unknown);
        let acts = |text: &str| text.split(',').map(act).collect::<Result<Vec<_>, _>>();
        let (one, other) = sides.split_once('+').ok_or_else(unknown)?;
        Ok(Workload { start, trouble, sides: [acts(one)?, acts(other)?] })
    }
}

/// A workload whose beginning is on a disk, of which each schedule gets a copy.
pub(super) struct Ground<'a> {
    candidate: &'a dyn Candidate,
    workload: &'a Workload,
    disk: Disk,
    /// What was acknowledged at the beginning.
    known: Vec<EntryView>,
    plan: Plan,
}

/// One call and its answer.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) act: Act,
    /// How many system calls both had made when it began and when it was answered.
    pub(super) span: (usize, usize),
    pub(super) reply: Reply,
    /// Of an append: what was submitted.
    pub(super) submitted: Option<Submitted>,
    /// What the process knew of the session before.
    pub(super) view: Vec<EntryView>,
}

/// An entry that a process asked for.
#[derive(Debug, Clone)]
pub(super) struct Submitted {
    pub(super) parent_id: Option<String>,
    pub(super) message: String,
}

/// What came of one schedule.
pub(super) struct Ran {
    pub(super) done: [Vec<Done>; 2],
    pub(super) course: Course,
    pub(super) traces: [Vec<Event>; 2],
    /// How often the trouble struck.
    pub(super) struck: u32,
    /// What was acknowledged before.
    pub(super) known: Vec<EntryView>,
    pub(super) world: World,
    /// The processes, still alive.
    pub(super) subjects: Vec<Box<dyn Subject>>,
}

impl<'a> Ground<'a> {
    /// Puts the beginning on a disk.
    ///
    /// # Errors
    /// Where the store does not do as much when it is alone, or the trouble has no place in it.
    pub(super) fn new(
        candidate: &'a dyn Candidate,
        workload: &'a Workload,
    ) -> Result<Ground<'a>, HarnessError> {
        let mut world = World::new(Backend::Simulated, SESSION)?;
        let disk = world.disk().cloned().unwrap_or_default();
        let mut known = Vec::new();
        if workload.start != Start::New {
            known = begin(candidate, &mut world, workload.start)?;
        }
        disk.sync_all();
        let mut ground = Ground { candidate, workload, disk, known, plan: Plan::default() };
        if let Some(trouble) = workload.trouble {
            ground.plan = Plan(vec![ground.place_of(trouble)?]);
        }
        Ok(ground)
    }

    /// Runs both processes under a schedule.
    ///
    /// # Errors
    /// Where a process cannot open the session before both begin.
    pub(super) fn run(&self, schedule: &Schedule) -> Result<Ran, HarnessError> {
        let mut world = World::on(self.disk.fork(), SESSION);
        let turns = Turns::new(schedule, self.workload.looks_at_temporaries());
        let injectors = [Injector::new(&self.plan, |_| {}), Injector::watching()];
        let mut processes = Vec::new();
        for (side, injector) in injectors.iter().enumerate() {
            processes.push(self.process(&mut world, side, injector)?);
        }
        for (side, injector) in injectors.iter().enumerate() {
            let turns = turns.clone();
            injector.gate(move |moment| turns.pass(side, moment));
        }
        let done: Vec<Vec<Done>> = thread::scope(|scope| {
            let begun: Vec<_> = processes
                .iter_mut()
                .enumerate()
                .map(|(side, process)| {
                    let (turns, injector, acts) = (&turns, &injectors[side], &self.workload.sides[side]);
                    scope.spawn(move || {
                        let _part = Part { turns, side };
                        process.acts(acts, turns, injector)
                    })
                })
                .collect();
            // A store that panics is caught by its subject, or else has no answers.
            begun.into_iter().map(|side| side.join().unwrap_or_default()).collect()
        });
        let course = turns.end();
        for injector in &injectors {
            injector.lift();
        }
        let [one, other] = <[Vec<Done>; 2]>::try_from(done).unwrap_or_default();
        Ok(Ran {
            done: [one, other],
            course,
            traces: [injectors[0].trace(), injectors[1].trace()],
            struck: injectors[0].fired().iter().sum(),
            known: self.known.clone(),
            world,
            subjects: processes.into_iter().map(|process| process.subject).collect(),
        })
    }

    fn process(&self, world: &mut World, side: Side, injector: &Injector) -> Result<Process, HarnessError> {
        let path = world.session().to_string_lossy().into_owned();
        let ops = world.process(injector);
        let mut process = Process::new(self.candidate, ops, side, path);
        if self.workload.is_opened_before(side) {
            match process.subject.call(&process.load()) {
                Reply::Ok(answer) => process.view = answer.entries.unwrap_or_default(),
                reply => return Err(HarnessError::Session(reply.to_string())),
            }
        }
        Ok(process)
    }

    /// Where the trouble strikes: told from what the store does when it is alone.
    fn place_of(&self, trouble: Trouble) -> Result<Fault, HarnessError> {
        let mut world = World::on(self.disk.fork(), SESSION);
        let injector = Injector::watching();
        let mut process = self.process(&mut world, 0, &injector)?;
        let turns = Turns::new(&Schedule { first: 0, switches: Vec::new() }, false);
        process.act(Act::Append, &turns, &injector);
        let trace = injector.trace();
        let of_append = || trace.iter().filter(|event| &*event.during.call == Act::Append.as_str());
        let is_directory = |event: &&Event| event.op == Op::Fsync && event.target == Target::one(Role::Root);
        let found = match trouble {
            Trouble::ShortWrite => of_append().find(|event| event.op == Op::Write),
            Trouble::DirectorySync => of_append().find(is_directory),
        };
        let event = found.ok_or(HarnessError::NoSuchState)?;
        let kind = match trouble {
            Trouble::ShortWrite => Kind::ShortThen(Errno::ENOSPC),
            Trouble::DirectorySync => Kind::Before(Errno::EIO),
        };
        let during = During { call: Act::Append.as_str().into(), nth: 1 };
        let site = Site { during, op: event.op, target: event.target, nth: event.nth };
        Ok(Fault { site, kind, span: Span::Times(1) })
    }
}

/// What the start needs, made by the store itself; and what of it was acknowledged.
fn begin(candidate: &dyn Candidate, world: &mut World, start: Start) -> Result<Vec<EntryView>, HarnessError> {
    let path = world.session().to_string_lossy().into_owned();
    let ops = world.process(&Injector::blind());
    let mut process = Process { name: 'z', ..Process::new(candidate, ops.clone(), 0, path) };
    process.must(Act::Create)?;
    process.must(Act::Append)?;
    let marker = outsider::marker(world.session());
    match start {
        Start::BeforeRename => world.outsider().link(world.session(), &marker)?,
        Start::AfterRename => {
            let old = world.outsider().read(world.session())?;
            process.must(Act::Append)?;
            world.outsider().write_file(&marker, &old)?;
        }
        Start::New | Start::Session => {}
    }
    let view = process.view.clone();
    drop(process);
    world.kill(&ops);
    Ok(view)
}

/// A process of the store, and what it knows of the session.
struct Process {
    subject: Box<dyn Subject>,
    name: char,
    path: String,
    view: Vec<EntryView>,
    begun: Vec<(Act, u32)>,
    messages: u32,
}

impl Process {
    fn new(candidate: &dyn Candidate, ops: WorldOps, side: Side, path: String) -> Process {
        let name = if side == 0 { 'a' } else { 'b' };
        let (view, begun) = (Vec::new(), Vec::new());
        Process { subject: candidate.start(ops), name, path, view, begun, messages: 0 }
    }

    /// Does one thing after the other, as long as it has a store.
    fn acts(&mut self, acts: &[Act], turns: &Turns, injector: &Injector) -> Vec<Done> {
        let mut all = Vec::new();
        for act in acts {
            let done = self.act(*act, turns, injector);
            let has_no_store = matches!(act, Act::Create | Act::Load) && !matches!(done.reply, Reply::Ok(_));
            all.push(done);
            if has_no_store {
                break;
            }
        }
        all
    }

    /// Does one thing in its turn.
    fn act(&mut self, act: Act, turns: &Turns, injector: &Injector) -> Done {
        let side = usize::from(self.name == 'b');
        let begins = turns.enter(side);
        injector.begin(act.as_str(), self.count(act));
        let (call, submitted) = self.call(act);
        let view = self.view.clone();
        let reply = self.subject.call(&call);
        let ends = turns.enter(side);
        self.learn(act, &reply);
        Done { act, span: (begins, ends), reply, submitted, view }
    }

    fn must(&mut self, act: Act) -> Result<(), HarnessError> {
        let (call, _) = self.call(act);
        match self.subject.call(&call) {
            reply @ Reply::Ok(_) => {
                self.learn(act, &reply);
                Ok(())
            }
            reply => Err(HarnessError::Session(reply.to_string())),
        }
    }

    fn count(&mut self, act: Act) -> u32 {
        if let Some((_, count)) = self.begun.iter_mut().find(|(known, _)| *known == act) {
            *count += 1;
            return *count;
        }
        self.begun.push((act, 1));
        1
    }

    fn call(&mut self, act: Act) -> (Call, Option<Submitted>) {
        let path = self.path.clone();
        let call = match act {
            Act::Create => Call::Create {
                store: STORE.to_owned(),
                path,
                session_id: Some(format!("session-{}", self.name)),
                ids: self.ids(),
                clock: Vec::new(),
            },
            Act::Load => self.load(),
            Act::Append => return self.append(),
            Act::Flush => Call::Flush { store: STORE.to_owned() },
            Act::Inspect => Call::Inspect { path },
            Act::Recover => Call::Recover { path, choose: None },
        };
        (call, None)
    }

    fn append(&mut self) -> (Call, Option<Submitted>) {
        self.messages += 1;
        let message = message(self.name, self.messages);
        let parent_id = self.view.last().map(|entry| entry.id.clone());
        let submitted = Submitted { parent_id: parent_id.clone(), message: message.clone() };
        (append(parent_id, &message), Some(submitted))
    }

    fn load(&self) -> Call {
        Call::Load { store: STORE.to_owned(), path: self.path.clone(), ids: self.ids(), clock: Vec::new() }
    }

    /// No two processes draw the same, and none the same twice.
    fn ids(&self) -> Vec<String> {
        (1..=8).map(|number| format!("{}-{}-{number}", self.name, self.messages)).collect()
    }

    fn learn(&mut self, act: Act, reply: &Reply) {
        let Reply::Ok(Answer { entry, entries, .. }) = reply else { return };
        match act {
            Act::Create => self.view.clear(),
            Act::Load => self.view = entries.clone().unwrap_or_default(),
            Act::Append => self.view.extend(entry.clone()),
            Act::Flush | Act::Inspect | Act::Recover => {}
        }
    }
}

/// A message that no other process sends, and this one once.
pub(super) fn message(process: char, number: u32) -> String {
    format!(
        "{{\"id\":\"m-{process}-{number}\",\"role\":\"user\",\"content\":\"words {number} of {process}\"}}"
    )
}

pub(super) fn append(parent_id: Option<String>, message: &str) -> Call {
    // The text is JSON.
    let message = serde_json::value::RawValue::from_string(message.to_owned())
        .unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned());
    Call::Append { store: STORE.to_owned(), parent_id, message }
}

/// Whether a call changed names, bytes or permissions.
pub(super) fn changed(event: &Event) -> bool {
    event.op.mutates() && matches!(event.outcome, Outcome::Done | Outcome::Bytes(1..))
}
