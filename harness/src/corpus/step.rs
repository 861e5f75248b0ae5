//! The steps of a script.

use std::path::{Component, Path};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::expected::is_known_code;
use super::input::Input;
use crate::call::Call;
use crate::fault::{Kind, Plan};
use crate::protocol;

/// One step of a script. Names are relative to the session's directory.
#[derive(Debug, Clone)]
pub enum Step {
    /// A call, and how it must be answered.
    Call {
        /// The call, whose path is a name.
        call: Box<Call>,
        /// The text of its message, where that is not written in the call.
        message: Option<Input>,
        /// The process that is asked, from 1.
        process: u32,
        /// How it must be answered.
        answers: Answers,
    },
    /// Somebody puts a new file at a name, in place of any other.
    Write(String, Input),
    /// Somebody writes over the first bytes of a file in place.
    Overwrite(String, Input),
    /// Somebody removes a name.
    Remove(String),
    /// Somebody renames.
    Rename(String, String),
    /// Somebody gives a file a second name.
    Link(String, String),
    /// Somebody makes a directory.
    Mkdir(String),
    /// Somebody makes a symbolic link: its target and its name.
    Symlink(String, String),
    /// Somebody makes a FIFO.
    Fifo(String),
    /// Somebody sets the mode.
    Chmod(String, u32),
    /// Somebody cuts or grows a file in place.
    Truncate(String, u64),
    /// Somebody renames the session's directory away and makes an empty one in its place.
    ReplaceRoot,
    /// A name stands for a file of these bytes, or for nothing.
    Bytes(String, Option<Input>),
    /// A name has this mode.
    Mode(String, u32),
    /// The session's directory holds these names and no other.
    Names(Vec<String>),
    /// From here on something goes wrong.
    Fault(Plan),
    /// From here on nothing goes wrong any more.
    Lift,
}

/// How a call must be answered.
#[derive(Debug, Clone)]
pub enum Answers {
    /// With success.
    Ok(Box<Success>),
    /// With a refusal that has these members. One that the store does not tell is not compared.
    Error(Map<String, Value>),
}

/// What a successful answer must hold; what is not given is not compared.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Success {
    /// The header.
    pub header: Option<Value>,
    /// The new entry.
    pub entry: Option<Value>,
    /// The entries.
    pub entries: Option<Vec<Value>>,
    /// The entries, as canonical lines.
    pub lines: Option<Input>,
    /// Header, entries and leaf, as the canonical bytes of a session whose last entry is the leaf.
    pub session: Option<Input>,
    /// The leaf: an id, or null for none.
    #[serde(default, deserialize_with = "present")]
    pub leaf: Option<Value>,
    /// The state that an inspection or a recovery found.
    pub state: Option<String>,
}

/// A null that is given is not the same as a member that is not.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Step {
    /// Every input that the step has.
    pub fn inputs(&self) -> Vec<&Input> {
        match self {
            Step::Call { message, answers, .. } => {
                let (lines, session) = match answers {
                    Answers::Ok(ok) => (ok.lines.as_ref(), ok.session.as_ref()),
                    Answers::Error(_) => (None, None),
                };
                message.iter().chain(lines).chain(session).collect()
            }
            Step::Write(_, bytes) | Step::Overwrite(_, bytes) | Step::Bytes(_, Some(bytes)) => vec![bytes],
            _ => Vec::new(),
        }
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Step, D::Error> {
        let mut members = Members(Map::deserialize(deserializer)?);
        let step = members.step().map_err(D::Error::custom)?;
        match members.0.keys().next() {
            Some(left) => Err(D::Error::custom(format!("a step has a member `{left}` too many"))),
            None => Ok(step),
        }
    }
}

/// By which of its members a step is known, whatever their order.
const HEADS: [&str; 17] = [
    "call",
    "write",
    "overwrite",
    "remove",
    "rename",
    "link",
    "mkdir",
    "symlink",
    "fifo",
    "chmod",
    "truncate",
    "replace_root",
    "are",
    "is",
    "names",
    "fault",
    "lift",
];

/// What a refusal may be expected to tell.
const REFUSAL_MEMBERS: [&str; 5] = ["code", "errno", "stage", "poisoned", "in_flight"];

/// What is left of a step that is being read.
struct Members(Map<String, Value>);

impl Members {
    fn step(&mut self) -> Result<Step, String> {
        let head = HEADS.into_iter().find(|head| self.0.contains_key(*head));
        Ok(match head {
            Some("call") => return self.call(),
            Some("write") => Step::Write(self.name("write")?, self.take("bytes")?),
            Some("overwrite") => Step::Overwrite(self.name("overwrite")?, self.take("bytes")?),
            Some("remove") => Step::Remove(self.name("remove")?),
            Some("rename") => self.two_names("rename").map(|(from, to)| Step::Rename(from, to))?,
            Some("link") => self.two_names("link").map(|(from, to)| Step::Link(from, to))?,
            Some("mkdir") => Step::Mkdir(self.name("mkdir")?),
            Some("symlink") => self.two_names("symlink").map(|(target, name)| Step::Symlink(target, name))?,
            Some("fifo") => Step::Fifo(self.name("fifo")?),
            Some("chmod") => {
                let (name, bits): (String, String) = self.take("chmod")?;
                Step::Chmod(checked(name)?, mode(&bits)?)
            }
            Some("truncate") => {
                let (name, size): (String, u64) = self.take("truncate")?;
                Step::Truncate(checked(name)?, size)
            }
            Some("replace_root") => self.flag("replace_root", Step::ReplaceRoot)?,
            Some("are") => Step::Bytes(self.name("bytes")?, self.bytes_or_absent()?),
            Some("is") => Step::Mode(self.name("mode")?, mode(&self.take::<String>("is")?)?),
            Some("names") => Step::Names(self.take("names")?),
            Some("fault") => Step::Fault(plan(&self.take::<String>("fault")?)?),
            Some("lift") => self.flag("lift", Step::Lift)?,
            _ => return Err(format!("a step has one of the members {HEADS:?}")),
        })
    }

    fn call(&mut self) -> Result<Step, String> {
        let message: Option<Input> =
            self.0.contains_key("message").then(|| self.take("message")).transpose()?;
        let process = if self.0.contains_key("process") { self.take("process")? } else { 1 };
        let call = Members(self.take("call")?).read_call(message.is_some())?;
        let answers = Members(self.take("answers")?).answers()?;
        Ok(Step::Call { call: Box::new(call), message, process, answers })
    }

    /// A call of the protocol. One that has its message elsewhere gets a null in its place.
    fn read_call(self, message_elsewhere: bool) -> Result<Call, String> {
        let given = Value::Object(self.0.clone());
        let call = self.parse_call(message_elsewhere).map_err(|error| format!("{given}: {error}"))?;
        let path = match &call {
            Call::Create { path, .. }
            | Call::Load { path, .. }
            | Call::Inspect { path }
            | Call::Recover { path, .. } => path.as_str(),
            _ => return Ok(call),
        };
        checked(path.to_owned())?;
        Ok(call)
    }

    /// The protocol passes over members that it does not know; a case has none.
    fn parse_call(mut self, message_elsewhere: bool) -> Result<Call, String> {
        if message_elsewhere && self.0.insert("message".to_owned(), Value::Null).is_some() {
            return Err("it has two messages".to_owned());
        }
        let given = Value::Object(self.0);
        let call = protocol::read_call(&given.to_string())?;
        let known = serde_json::to_value(&call).map_err(|error| error.to_string())?;
        if known == given { Ok(call) } else { Err(format!("read as {known}; leave out everything else")) }
    }

    fn answers(mut self) -> Result<Answers, String> {
        let answers = if self.0.contains_key("ok") {
            Answers::Ok(Box::new(self.take("ok")?))
        } else {
            let members: Map<String, Value> = self.take("error")?;
            if let Some(unknown) = members.keys().find(|member| !REFUSAL_MEMBERS.contains(&member.as_str())) {
                return Err(format!("`{unknown}` is none of {REFUSAL_MEMBERS:?}"));
            }
            let code = members.get("code").and_then(Value::as_str);
            if let Some(unknown) = code.filter(|code| !is_known_code(code)) {
                return Err(format!("the contract has no code `{unknown}`"));
            }
            Answers::Error(members)
        };
        if self.0.is_empty() { Ok(answers) } else { Err("`answers` is `ok` or `error`".to_owned()) }
    }

    fn bytes_or_absent(&mut self) -> Result<Option<Input>, String> {
        match self.0.get("are") {
            Some(Value::String(word)) if word == "absent" => {
                self.0.remove("are");
                Ok(None)
            }
            _ => self.take("are").map(Some),
        }
    }

    fn flag(&mut self, name: &str, step: Step) -> Result<Step, String> {
        if self.take(name)? { Ok(step) } else { Err(format!("`{name}` is not true")) }
    }

    fn name(&mut self, member: &str) -> Result<String, String> {
        checked(self.take(member)?)
    }

    fn two_names(&mut self, member: &str) -> Result<(String, String), String> {
        let (one, other): (String, String) = self.take(member)?;
        Ok((checked(one)?, checked(other)?))
    }

    fn take<T: DeserializeOwned>(&mut self, member: &str) -> Result<T, String> {
        let value = self.0.remove(member).ok_or_else(|| format!("`{member}` is missing"))?;
        serde_json::from_value(value).map_err(|error| format!("`{member}`: {error}"))
    }
}

/// A name that stays within the session's directory.
fn checked(name: String) -> Result<String, String> {
    let mut parts = Path::new(&name).components().peekable();
    if parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_))) {
        Ok(name)
    } else {
        Err(format!("{name:?} is no name within the session's directory"))
    }
}

fn mode(bits: &str) -> Result<u32, String> {
    let parsed = u32::from_str_radix(bits, 8).ok().filter(|bits| *bits <= 0o7777);
    parsed.ok_or_else(|| format!("{bits:?} is no mode; one reads \"0600\""))
}

/// Processes are not killed in a script: what a kill leaves is built from files.
fn plan(text: &str) -> Result<Plan, String> {
    let plan: Plan = text.parse().map_err(|error| format!("{error}"))?;
    let kills = plan.0.iter().any(|fault| matches!(fault.kind, Kind::KillBefore | Kind::KillAfter));
    if kills {
        Err("a script kills nobody; build from files what a kill leaves".to_owned())
    } else {
        Ok(plan)
    }
}
