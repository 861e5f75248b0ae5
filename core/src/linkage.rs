//! Tool linkage, per branch: an entry and its ancestors (requirements L1 to L5).

use std::cell::Cell;
use std::collections::hash_map::{Entry as Slot, HashMap};

use crate::error::{Code, Error, Result};
use crate::message::{Block, Message};
use crate::record::Entry;

/// The first entry of a file that breaks the linkage of its branch.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) entry: usize,
    pub(crate) breach: Breach,
}

/// What is wrong with one message below its ancestors.
#[derive(Debug)]
pub(crate) struct Breach {
    pub(crate) culprit: Culprit,
    requirement: &'static str,
    message: String,
}

/// The value to point at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Culprit {
    /// The id of the tool call that is this block of the assistant's message.
    CallId {
        block: usize,
    },
    ResultCallId,
    ResultToolName,
}

/// The violation of the smallest index, if any. `parents` holds the index of each entry's parent, which is smaller than
/// the entry's own.
///
/// Walks each root's tree once with one map of the calls above and a log that takes back what an entry added:
/// linear in entries and tool calls, however the branches share call ids.
pub(crate) fn first_violation(entries: &[Entry], parents: &[Option<u32>]) -> Option<Violation> {
    Walk::new(entries, parents).first_violation(&mut || {})
}

/// Every violation, but for those below another one or below an entry that is not `known`: what is above these is in doubt.
pub(crate) fn violations(
    entries: &[Entry],
    parents: &[Option<u32>],
    is_known: impl Fn(usize) -> bool,
) -> Vec<Violation> {
    let mut found = Vec::new();
    Walk::new(entries, parents).run(&mut || {}, is_known, |violation| found.push(violation));
    found
}

/// Whether `message` may stand below `parent` in a session whose linkage holds: one walk over the ancestors.
///
/// # Errors
///
/// [`Code::InvalidToolLinkage`].
pub(crate) fn check_append(
    entries: &[Entry],
    parent_of: impl Fn(usize) -> Option<usize>,
    parent: Option<usize>,
    message: &Message,
) -> Result<()> {
    let mut ancestors =
        std::iter::successors(parent, |&entry| parent_of(entry)).map(|entry| entries[entry].message());
    match message {
        Message::User { .. } => Ok(()),
        Message::Assistant { content, .. } => check_calls(content, ancestors),
        Message::ToolResult { tool_call_id, tool_name, .. } => {
            check_result(tool_call_id, tool_name, &mut ancestors)
        }
    }
    .map_err(Breach::into_error)
}

impl Breach {
    pub(crate) fn into_error(self) -> Error {
        Error::new(Code::InvalidToolLinkage, self.requirement, self.message)
    }

    fn repeated_call(block: usize) -> Breach {
        Breach {
            culprit: Culprit::CallId { block },
            requirement: "L2",
            message: "expected a tool call id that is new on this branch, found one that occurs before"
                .to_owned(),
        }
    }

    fn unknown_call() -> Breach {
        Breach {
            culprit: Culprit::ResultCallId,
            requirement: "L1",
            message: "expected the id of a tool call among the ancestors, found no such call".to_owned(),
        }
    }

    fn other_tool() -> Breach {
        Breach {
            culprit: Culprit::ResultToolName,
            requirement: "L1",
            message: "expected the tool name of the call, found another one".to_owned(),
        }
    }

    fn repeated_result() -> Breach {
        Breach {
            culprit: Culprit::ResultCallId,
            requirement: "L2",
            message: "expected one result a tool call on this branch, found a second one".to_owned(),
        }
    }
}

type Checked = std::result::Result<(), Breach>;

fn check_calls<'a>(content: &[Block], ancestors: impl Iterator<Item = &'a Message>) -> Checked {
    let mut fresh = HashMap::new();
    for (block, id, _) in calls(content) {
        if fresh.insert(id, block).is_some() {
            return Err(Breach::repeated_call(block));
        }
    }
    if fresh.is_empty() {
        return Ok(());
    }
    let repeated = ancestors.flat_map(calls_of).find_map(|(_, id, _)| fresh.get(id).copied());
    repeated.map_or(Ok(()), |block| Err(Breach::repeated_call(block)))
}

fn check_result<'a>(call_id: &str, tool: &str, ancestors: &mut impl Iterator<Item = &'a Message>) -> Checked {
    // Upwards, a result of the call comes before the call itself.
    let mut answered = false;
    for message in ancestors {
        if matches!(message, Message::ToolResult { tool_call_id, .. } if tool_call_id == call_id) {
            answered = true;
        }
        if let Some((_, _, name)) = calls_of(message).find(|&(_, id, _)| id == call_id) {
            return answer(name, tool, answered);
        }
    }
    Err(Breach::unknown_call())
}

fn answer(called: &str, tool: &str, answered: bool) -> Checked {
    if called != tool {
        Err(Breach::other_tool())
    } else if answered {
        Err(Breach::repeated_result())
    } else {
        Ok(())
    }
}

fn calls_of(message: &Message) -> impl Iterator<Item = (usize, &str, &str)> {
    let content = if let Message::Assistant { content, .. } = message { content.as_slice() } else { &[] };
    calls(content)
}

/// The tool calls among blocks: index, id, name.
fn calls(content: &[Block]) -> impl Iterator<Item = (usize, &str, &str)> {
    content.iter().enumerate().filter_map(|(block, content)| match content {
        Block::ToolCall { id, name, .. } => Some((block, id.as_str(), name.as_str())),
        Block::Text { .. } => None,
    })
}

/// A walk down the trees of a file.
struct Walk<'a> {
    entries: &'a [Entry],
    /// The first child of each entry and the next sibling of each, as indices.
    first_child: Vec<Option<u32>>,
    next_sibling: Vec<Option<u32>>,
    roots: Vec<u32>,
    branch: Branch<'a>,
}

/// The tool calls from a root down to where the walk is.
#[derive(Default)]
struct Branch<'a> {
    calls: HashMap<&'a str, Call<'a>>,
    log: Vec<Change<'a>>,
}

struct Call<'a> {
    name: &'a str,
    answered: bool,
}

enum Change<'a> {
    Called(&'a str),
    Answered(&'a str),
}

enum Event {
    Enter(usize),
    /// Takes back all changes beyond the first so many.
    Leave(usize),
}

impl<'a> Walk<'a> {
    fn new(entries: &'a [Entry], parents: &[Option<u32>]) -> Walk<'a> {
        let mut walk = Walk {
            entries,
            first_child: vec![None; entries.len()],
            next_sibling: vec![None; entries.len()],
            roots: Vec::new(),
            branch: Branch::default(),
        };
        for (child, parent) in parents.iter().enumerate().take(entries.len()) {
            match *parent {
                Some(parent) => {
                    walk.next_sibling[child] = walk.first_child[parent as usize].replace(child as u32);
                }
                None => walk.roots.push(child as u32),
            }
        }
        walk
    }

    fn first_violation(self, step: &mut impl FnMut()) -> Option<Violation> {
        let mut first: Option<Violation> = None;
        let before = Cell::new(self.entries.len());
        // Descendants come later in the file than what they descend from.
        let is_earlier = |entry| entry < before.get();
        self.run(step, is_earlier, |violation| {
            before.set(violation.entry);
            first = Some(violation);
        });
        first
    }

    /// Reports violations among the entries that are `wanted` and not below others. `step` is told of every entry
    /// entered and every change made or taken back.
    fn run(
        mut self,
        step: &mut impl FnMut(),
        is_wanted: impl Fn(usize) -> bool,
        mut report: impl FnMut(Violation),
    ) {
        let mut events: Vec<Event> =
            self.roots.iter().rev().map(|&root| Event::Enter(root as usize)).collect();
        while let Some(event) = events.pop() {
            match event {
                Event::Leave(mark) => self.branch.take_back(mark, step),
                Event::Enter(entry) if !is_wanted(entry) => {}
                Event::Enter(entry) => {
                    step();
                    events.push(Event::Leave(self.branch.log.len()));
                    match self.branch.enter(self.entries[entry].message(), step) {
                        Ok(()) => events.extend(self.children(entry).map(Event::Enter)),
                        Err(breach) => report(Violation { entry, breach }),
                    }
                }
            }
        }
    }

    fn children(&self, entry: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.first_child[entry], |&child| self.next_sibling[child as usize])
            .map(|child| child as usize)
    }
}

impl<'a> Branch<'a> {
    /// Adds a message. One that breaks the linkage leaves changes behind, which the log has.
    fn enter(&mut self, message: &'a Message, step: &mut impl FnMut()) -> Checked {
        match message {
            Message::User { .. } => Ok(()),
            Message::Assistant { content, .. } => calls(content).try_for_each(|(block, id, name)| {
                step();
                match self.calls.entry(id) {
                    Slot::Occupied(_) => Err(Breach::repeated_call(block)),
                    Slot::Vacant(slot) => {
                        slot.insert(Call { name, answered: false });
                        self.log.push(Change::Called(id));
                        Ok(())
                    }
                }
            }),
            Message::ToolResult { tool_call_id, tool_name, .. } => {
                step();
                let call = self.calls.get_mut(tool_call_id.as_str()).ok_or_else(Breach::unknown_call)?;
                answer(call.name, tool_name, call.answered)?;
                call.answered = true;
                self.log.push(Change::Answered(tool_call_id));
                Ok(())
            }
        }
    }

    fn take_back(&mut self, mark: usize, step: &mut impl FnMut()) {
        for change in self.log.drain(mark..).rev() {
            step();
            match change {
                Change::Called(id) => {
                    self.calls.remove(id);
                }
                Change::Answered(id) => {
                    if let Some(call) = self.calls.get_mut(id) {
                        call.answered = false;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::Arguments;

    fn entry(message: Message) -> Entry {
        Entry::new("e".into(), None, "t".into(), message)
    }

    fn assistant(calls: &[(&str, &str)]) -> Message {
        let block = |&(id, name): &(&str, &str)| Block::ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: Arguments::default(),
        };
        Message::assistant("m", calls.iter().map(block).collect())
    }

    fn result(id: &str, name: &str) -> Message {
        Message::tool_result("m", id, name, "", false)
    }

    /// Requirements L1 and L2 word by word: what is above an entry is gathered anew for each entry.
    fn naive(messages: &[Message], parents: &[Option<u32>]) -> Option<usize> {
        (0..messages.len()).find(|&index| {
            let above: Vec<&Message> =
                std::iter::successors(parents[index], |&parent| parents[parent as usize])
                    .map(|parent| &messages[parent as usize])
                    .collect();
            !allowed_below(&above, &messages[index])
        })
    }

    fn allowed_below(above: &[&Message], message: &Message) -> bool {
        let calls: Vec<(&str, &str)> =
            above.iter().copied().flat_map(calls_of).map(|(_, id, name)| (id, name)).collect();
        match message {
            Message::User { .. } => true,
            Message::Assistant { .. } => {
                let own: Vec<&str> = calls_of(message).map(|(_, id, _)| id).collect();
                let all: Vec<&str> = calls.iter().map(|(id, _)| *id).chain(own.iter().copied()).collect();
                own.iter().all(|id| all.iter().filter(|other| *other == id).count() == 1)
            }
            Message::ToolResult { tool_call_id: id, tool_name, .. } => {
                let answered = above
                    .iter()
                    .any(|earlier| matches!(earlier, Message::ToolResult { tool_call_id, .. } if tool_call_id == id));
                !answered && calls.contains(&(id, tool_name))
            }
        }
    }

    fn message() -> impl Strategy<Value = Message> {
        let ids = || prop::sample::select(&["a", "b", "c", "d", "e", "f", "g", "h"][..]);
        // Mostly one name, so that most results fit their call.
        let names = || prop::sample::select(&["n", "n", "n", "n", "n", "n", "o"][..]);
        prop_oneof![
            1 => Just(Message::user("m", "")),
            2 => prop::collection::vec((ids(), names()), 0..3).prop_map(|calls| assistant(&calls)),
            3 => (ids(), names()).prop_map(|(id, name)| result(id, name)),
        ]
    }

    type Forest = (Vec<Message>, Vec<Option<u32>>);

    /// Messages and their parents, with forks and several roots. Messages that break their branch are mostly dropped, so
    /// that sound files grow long enough to matter.
    fn forest() -> impl Strategy<Value = Forest> {
        let node = (message(), any::<prop::sample::Index>(), 0..8_u8, 0..12_u8);
        prop::collection::vec(node, 1..40).prop_map(|nodes| {
            let (mut messages, mut parents): Forest = (Vec::new(), Vec::new());
            for (message, pick, way, keep) in nodes {
                let index = messages.len();
                parents.push(match way {
                    _ if index == 0 => None,
                    0 => None,
                    1 | 2 => Some(pick.index(index) as u32),
                    _ => Some(index as u32 - 1),
                });
                messages.push(message);
                if keep > 0 && naive(&messages, &parents) == Some(index) {
                    messages.pop();
                    parents.pop();
                }
            }
            (messages, parents)
        })
    }

    proptest! {
        #![proptest_config(crate::seeded::cases(2_000))]

        // Requirement: L1, L2, L3, L4, L5
        #[test]
        fn a_file_is_judged_as_by_the_definition((messages, parents) in forest()) {
            let entries: Vec<Entry> = messages.iter().cloned().map(entry).collect();
            let found = first_violation(&entries, &parents);
            prop_assert_eq!(found.map(|violation| violation.entry), naive(&messages, &parents));
        }

        // Requirement: L1, L2, L3, L4, L5
        #[test]
        fn an_append_is_judged_as_the_file_that_it_would_make((messages, parents) in forest(), next in message()) {
            let sound = naive(&messages, &parents).unwrap_or(messages.len());
            let entries: Vec<Entry> = messages[..sound].iter().cloned().map(entry).collect();
            let parent_of = |index: usize| parents[index].map(|parent| parent as usize);
            for parent in (0..sound).map(Some).chain([None]) {
                let checked = check_append(&entries, parent_of, parent, &next);
                let above = std::iter::successors(parent, |&index| parent_of(index));
                let above: Vec<&Message> = above.map(|index| &messages[index]).collect();
                prop_assert_eq!(checked.is_ok(), allowed_below(&above, &next));
                if let Err(error) = checked {
                    prop_assert_eq!(error.code(), Code::InvalidToolLinkage);
                }
            }
        }
    }

    fn violation(messages: &[Message], parents: &[Option<u32>]) -> Option<(usize, Culprit, &'static str)> {
        let entries: Vec<Entry> = messages.iter().cloned().map(entry).collect();
        let parents = &parents[..messages.len()];
        first_violation(&entries, parents)
            .map(|found| (found.entry, found.breach.culprit, found.breach.requirement))
    }

    // Requirement: L1, L2
    #[test]
    fn a_violation_names_what_is_wrong() {
        let chain = &[None, Some(0), Some(1)];
        let twice = assistant(&[("c", "n"), ("d", "n"), ("c", "n")]);
        let again = assistant(&[("d", "n"), ("c", "n")]);
        let call = assistant(&[("c", "n")]);
        let answer = result("c", "n");
        let cases = [
            (vec![twice], (0, Culprit::CallId { block: 2 }, "L2")),
            (vec![call.clone(), again], (1, Culprit::CallId { block: 1 }, "L2")),
            (vec![call.clone(), result("x", "n")], (1, Culprit::ResultCallId, "L1")),
            (vec![call.clone(), result("c", "x")], (1, Culprit::ResultToolName, "L1")),
            (vec![call, answer.clone(), answer], (2, Culprit::ResultCallId, "L2")),
        ];
        for (messages, expected) in cases {
            assert_eq!(violation(&messages, chain), Some(expected));
        }
    }

    // Requirement: L3
    #[test]
    fn branches_neither_satisfy_nor_disturb_each_other() {
        let call = assistant(&[("c", "n")]);
        let answer = result("c", "n");
        let plain = Message::user("m", "");
        let fork_after = [call.clone(), answer.clone(), answer.clone()];
        assert_eq!(violation(&fork_after, &[None, Some(0), Some(0)]), None);
        let siblings = [plain.clone(), call.clone(), call.clone(), answer.clone(), answer.clone()];
        assert_eq!(violation(&siblings, &[None, Some(0), Some(0), Some(1), Some(2)]), None);
        let elsewhere = [plain.clone(), call, plain, answer];
        let expected = Some((3, Culprit::ResultCallId, "L1"));
        assert_eq!(violation(&elsewhere, &[None, Some(0), Some(0), Some(2)]), expected);
    }

    /// Entries entered, and changes made and taken back.
    fn steps(entries: &[Entry], parents: &[Option<u32>]) -> usize {
        let mut steps = 0;
        assert!(Walk::new(entries, parents).first_violation(&mut || steps += 1).is_none());
        steps
    }

    // Requirement: L5
    #[test]
    fn a_file_is_checked_in_steps_linear_in_its_calls() {
        for size in [100_u32, 1_000, 4_000] {
            let entries =
                |message: &dyn Fn(u32) -> Message| (0..size).map(|at| entry(message(at))).collect::<Vec<_>>();
            let chain: Vec<Option<u32>> = (0..size).map(|at| at.checked_sub(1)).collect();
            let star: Vec<Option<u32>> = (0..size).map(|at| (at > 0).then_some(0)).collect();
            // A long branch with a leaf at every other entry.
            let comb: Vec<Option<u32>> =
                (0..size).map(|at| at.checked_sub(1).map(|last| last - last % 2)).collect();
            let pairs = entries(&|at| {
                let id = format!("c{}", at / 2);
                if at % 2 == 0 { assistant(&[(&id, "n")]) } else { result(&id, "n") }
            });
            let one_id =
                entries(&|at| if at == 0 { Message::user("m", "") } else { assistant(&[("c", "n")]) });
            let many_ids = entries(&|at| assistant(&[(&format!("c{at}"), "n")]));
            for (entries, parents) in
                [(&pairs, &chain), (&one_id, &star), (&many_ids, &comb), (&many_ids, &chain)]
            {
                assert!(steps(entries, parents) <= 3 * size as usize);
            }
        }
    }

    // Requirement: L5
    #[test]
    fn an_append_walks_its_ancestors_once() {
        let entries: Vec<Entry> =
            (0..4_000).map(|at| entry(assistant(&[(&format!("c{at}"), "n")]))).collect();
        let many: Vec<String> = (0..500).map(|at| format!("d{at}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|id| (id.as_str(), "n")).collect();
        for message in [assistant(&many), result("c0", "n"), assistant(&[])] {
            let asked = Cell::new(0);
            let parent_of = |at: usize| {
                asked.set(asked.get() + 1);
                at.checked_sub(1)
            };
            assert!(check_append(&entries, parent_of, Some(entries.len() - 1), &message).is_ok());
            assert!(asked.get() <= entries.len());
        }
    }
}
