//! SQLite in this process, with `synchronous=FULL`: a store of another format whose durability nobody doubts, as a
//! control of the harness.
//!
//! SQLite makes its system calls itself, so that neither faults nor power cuts of the simulated disk reach it: it is
//! asked what every store promises, on a real directory. A session is one database with a rollback journal, so that a
//! commit is durable when it is answered.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior};
use serde_json::value::RawValue;

use super::Subject;
use crate::call::{Answer, Call, EntryView, Refusal, Reply};
use crate::protocol::{Capability, Hello, VERSION};

/// The name behind `--subject` and in reports.
pub const NAME: &str = "sqlite";

/// Marks a database as a session.
const APPLICATION_ID: i32 = 0x5345_5353;

const SCHEMA: &str = "CREATE TABLE entry (position INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, parent TEXT, \
                      message TEXT NOT NULL)";

/// How long a commit of another process is waited for: less than what an answer may take.
const BUSY: Duration = Duration::from_secs(4);

/// What it says of itself.
pub fn hello() -> Hello {
    Hello {
        protocol: VERSION,
        name: NAME.to_owned(),
        version: rusqlite::version().to_owned(),
        language: "C, called by Rust".to_owned(),
        format: NAME.to_owned(),
        capabilities: vec![Capability::Tree.name().to_owned()],
    }
}

/// A process of it.
#[derive(Debug, Default)]
pub struct Sqlite {
    sessions: BTreeMap<String, Session>,
    trees: BTreeMap<String, Branch>,
}

/// A tree: the name of its session, and its active leaf.
#[derive(Debug)]
struct Branch {
    store: String,
    leaf: Option<String>,
}

impl Subject for Sqlite {
    fn call(&mut self, call: &Call) -> Reply {
        match self.answer(call) {
            Ok(answer) => Reply::Ok(answer),
            Err(Failure::Refused(refusal)) => Reply::Refused(refusal),
            Err(Failure::Unsupported) => Reply::Unsupported("this store has no such call".to_owned()),
        }
    }
}

impl Sqlite {
    fn answer(&mut self, call: &Call) -> Result<Answer, Failure> {
        match call {
            Call::Create { store, path, .. } => {
                self.sessions.insert(store.clone(), Session::create(Path::new(path))?);
                Ok(Answer::default())
            }
            Call::Load { store, path, .. } => {
                let mut session = Session::load(Path::new(path))?;
                let entries = session.entries()?;
                self.sessions.insert(store.clone(), session);
                let leaf = entries.last().map(|entry| entry.id.clone());
                Ok(Answer { entries: Some(entries), leaf: Some(leaf), ..Answer::default() })
            }
            Call::Append { store, parent_id, message } => {
                let entry = self.session(store)?.append(parent_id.as_deref(), message.get())?;
                Ok(Answer { entry: Some(entry), ..Answer::default() })
            }
            Call::Flush { store } => self.session(store).map(|_| Answer::default()),
            Call::Entries { store } => {
                Ok(Answer { entries: Some(self.session(store)?.entries()?), ..Answer::default() })
            }
            Call::Tree { store, tree } => {
                let leaf = self.session(store)?.entries()?.pop().map(|entry| entry.id);
                self.trees.insert(tree.clone(), Branch { store: store.clone(), leaf: leaf.clone() });
                Ok(Answer { leaf: Some(leaf), ..Answer::default() })
            }
            Call::MoveTo { tree, entry_id } => {
                let (session, branch) = self.branch(tree)?;
                if let Some(id) = entry_id
                    && !session.entries()?.iter().any(|entry| entry.id == *id)
                {
                    return Err(Failure::refused("NO_SUCH_ENTRY", format!("no entry has the id {id}")));
                }
                branch.leaf.clone_from(entry_id);
                Ok(Answer { leaf: Some(entry_id.clone()), ..Answer::default() })
            }
            Call::TreeAppend { tree, message } => {
                let (session, branch) = self.branch(tree)?;
                let entry = session.append(branch.leaf.as_deref(), message.get())?;
                branch.leaf = Some(entry.id.clone());
                Ok(Answer { entry: Some(entry), ..Answer::default() })
            }
            Call::Active { tree } => {
                let (session, branch) = self.branch(tree)?;
                let leaf = branch.leaf.clone();
                let entries = path_to(leaf.as_deref(), session.entries()?);
                Ok(Answer { entries: Some(entries), leaf: Some(leaf), ..Answer::default() })
            }
            Call::Close { store } => {
                self.sessions.remove(store).ok_or_else(|| Failure::unknown(store))?;
                self.trees.retain(|_, branch| branch.store != *store);
                Ok(Answer::default())
            }
            Call::Inspect { .. } | Call::Recover { .. } | Call::Concurrent { .. } => {
                Err(Failure::Unsupported)
            }
        }
    }

    fn session(&mut self, name: &str) -> Result<&mut Session, Failure> {
        self.sessions.get_mut(name).ok_or_else(|| Failure::unknown(name))
    }

    fn branch(&mut self, name: &str) -> Result<(&mut Session, &mut Branch), Failure> {
        let branch = self.trees.get_mut(name).ok_or_else(|| Failure::unknown(name))?;
        let session = self.sessions.get_mut(&branch.store).ok_or_else(|| Failure::unknown(&branch.store))?;
        Ok((session, branch))
    }
}

/// The entries from the root to `leaf`. A parent is there before its children, so that the path has an end.
fn path_to(leaf: Option<&str>, entries: Vec<EntryView>) -> Vec<EntryView> {
    let mut next = leaf.map(str::to_owned);
    let mut path = Vec::new();
    for entry in entries.into_iter().rev() {
        if next.as_ref() == Some(&entry.id) {
            next.clone_from(&entry.parent_id);
            path.push(entry);
        }
    }
    path.reverse();
    path
}

/// An open database.
#[derive(Debug)]
struct Session {
    base: Connection,
    path: PathBuf,
    inode: u64,
    /// The position of the last entry that was shown: one behind it is another process's.
    seen: i64,
}

impl Session {
    fn create(path: &Path) -> Result<Session, Failure> {
        // SQLite opens what is there; only an exclusive creation tells that it is new.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Session::begin(path).inspect_err(|_| {
            // Nothing of it was acknowledged. Where that fails too, what stays is an empty file or no session.
            let _ = fs::remove_file(path);
        })
    }

    fn begin(path: &Path) -> Result<Session, Failure> {
        let session = Session::open(path)?;
        session
            .base
            .execute_batch(&format!("BEGIN; {SCHEMA}; PRAGMA application_id = {APPLICATION_ID}; COMMIT;"))?;
        Ok(session)
    }

    fn load(path: &Path) -> Result<Session, Failure> {
        let metadata = fs::symlink_metadata(path)?;
        if !metadata.is_file() {
            return Err(Failure::refused("NOT_A_FILE", format!("{} is not a regular file", path.display())));
        }
        // SQLite takes an empty file for a new database.
        if metadata.len() == 0 {
            return Err(Failure::refused("NOT_A_SESSION", format!("{} is empty", path.display())));
        }
        let session = Session::open(path)?;
        let id: i32 = session.base.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        if id != APPLICATION_ID {
            let message = format!("{} is another program's database", path.display());
            return Err(Failure::refused("NOT_A_SESSION", message));
        }
        Ok(session)
    }

    fn open(path: &Path) -> Result<Session, Failure> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let base = Connection::open_with_flags(path, flags)?;
        base.busy_timeout(BUSY)?;
        base.pragma_update(None, "synchronous", "FULL")?;
        Ok(Session { base, path: path.to_owned(), inode: fs::symlink_metadata(path)?.ino(), seen: 0 })
    }

    fn append(&mut self, parent: Option<&str>, message: &str) -> Result<EntryView, Failure> {
        // SQLite goes on with a file that has lost its name.
        if fs::symlink_metadata(&self.path)?.ino() != self.inode {
            let message = format!("{} is another file", self.path.display());
            return Err(Failure::refused("CHANGED", message));
        }
        let id = format!("{:032x}", fastrand::u128(..));
        // Dropped before its commit, it is rolled back.
        let transaction = self.base.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if last_position(&transaction)? != self.seen {
            let message = "another process has appended; load again".to_owned();
            return Err(Failure::refused("CHANGED", message));
        }
        if let Some(parent) = parent
            && !is_here(&transaction, parent)?
        {
            return Err(Failure::refused("NO_SUCH_PARENT", format!("no entry has the id {parent}")));
        }
        let insert = "INSERT INTO entry (id, parent, message) VALUES (?, ?, ?)";
        transaction.execute(insert, (&id, parent, message))?;
        let seen = transaction.last_insert_rowid();
        transaction.commit()?;
        self.seen = seen;
        Ok(view(id, parent.map(str::to_owned), message.to_owned()))
    }

    fn entries(&mut self) -> Result<Vec<EntryView>, Failure> {
        let mut select =
            self.base.prepare("SELECT id, parent, message, position FROM entry ORDER BY position")?;
        let rows =
            select.query_map([], |row| Ok((view(row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?)))?;
        let mut entries = Vec::new();
        let mut seen = 0;
        for row in rows {
            let (entry, position): (EntryView, i64) = row?;
            serde_json::from_str::<&RawValue>(&entry.message).map_err(|error| {
                Failure::refused("DAMAGED", format!("the message of the entry {}: {error}", entry.id))
            })?;
            entries.push(entry);
            seen = position;
        }
        drop(select);
        self.seen = seen;
        Ok(entries)
    }
}

fn last_position(base: &Transaction<'_>) -> rusqlite::Result<i64> {
    base.query_row("SELECT coalesce(max(position), 0) FROM entry", [], |row| row.get(0))
}

fn is_here(base: &Transaction<'_>, id: &str) -> rusqlite::Result<bool> {
    let found = base.query_row("SELECT 1 FROM entry WHERE id = ?", [id], |_| Ok(())).optional()?;
    Ok(found.is_some())
}

fn view(id: String, parent_id: Option<String>, message: String) -> EntryView {
    EntryView { id, parent_id, timestamp: String::new(), message }
}

enum Failure {
    Refused(Refusal),
    Unsupported,
}

impl Failure {
    fn refused(code: &str, message: String) -> Failure {
        Failure::Refused(Refusal { code: code.to_owned(), ..Refusal::usage(message) })
    }

    fn unknown(name: &str) -> Failure {
        Failure::Refused(Refusal::usage(format!("nothing is called {name:?}")))
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        let code = error.sqlite_error_code().unwrap_or(ErrorCode::Unknown);
        Failure::refused(&format!("SQLITE_{code:?}"), error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::refused("IO", error.to_string())
    }
}
