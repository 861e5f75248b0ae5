//! Tool linkage, per branch: an entry and its ancestors (requirements L1 to L5).

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

    /// `step` is told of every entry entered and every change made or taken back.
    fn first_violation(mut self, step: &mut impl FnMut()) -> Option<Violation> {
        let mut first: Option<Violation> = None;
        let mut events: Vec<Event> =
            self.roots.iter().rev().map(|&root| Event::Enter(root as usize)).collect();
        while let Some(event) = events.pop() {
            match event {
                Event::Leave(mark) => self.branch.take_back(mark, step),
                // Descendants come later in the file than what they descend from.
                Event::Enter(entry) if first.as_ref().is_some_and(|first| first.entry < entry) => {}
                Event::Enter(entry) => {
                    step();
                    events.push(Event::Leave(self.branch.log.len()));
                    match self.branch.enter(self.entries[entry].message(), step) {
                        Ok(()) => events.extend(self.children(entry).map(Event::Enter)),
                        Err(breach) => first = Some(Violation { entry, breach }),
                    }
                }
            }
        }
        first
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
