//! The store: one session file, its entries in memory, and the operations on both (contract section 6).

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::path::Path;

use crate::commit::{self, Failure};
use crate::create;
use crate::encode::{self, Segments};
use crate::error::{Code, Error, Result, Stage};
use crate::file_ops::{FileOps, OsFileOps};
use crate::identity::Generation;
use crate::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_LINE_BYTES, MAX_SESSION_RECORDS};
use crate::linkage;
use crate::load::{self, Read};
use crate::message::{Message, is_blank};
use crate::options::{self, Factory, Options};
use crate::place::Place;
use crate::queue::{Queue, Ticket, Turn};
use crate::quoted::quoted;
use crate::record::{Entry, Header};
use crate::sync::{
    Arc, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use crate::text::Text;
use crate::tree::Tree;

/// A durable store of one session.
///
/// Cloning gives another handle on the same store; its operations share one queue. Calls block until they are
/// durable or refused. Reads never queue and never touch the disk.
pub struct Store<O: FileOps = OsFileOps>(Arc<Shared<O>>);

struct Shared<O: FileOps> {
    place: Place<O>,
    queue: Queue,
    view: RwLock<View>,
    torn_tail: AtomicUsize,
    writer: Mutex<Writer<O>>,
    #[cfg(feature = "tokio")]
    jobs: crate::futures::Jobs,
}

/// What readers see: always one whole generation.
struct View {
    header: Header,
    entries: Arc<Vec<Entry>>,
    index: HashMap<Text, u32>,
    parents: Vec<Option<u32>>,
}

/// What only the holder of the queue's turn uses.
struct Writer<O: FileOps> {
    generation: Generation<O::File>,
    canonical: Segments,
    options: Options,
    poisoned: Option<Error>,
}

/// Whether the file system does something that a store can do without, as far as it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Nothing has said otherwise.
    Supported,
    /// The file system answered that it does not.
    Unsupported,
}

/// An immutable snapshot of a session's entries, in stored order (requirement S7). Later appends do not show in it.
#[derive(Clone)]
pub struct Entries(Arc<Vec<Entry>>);

impl Store {
    /// Creates a session at `path` on the operating system's files.
    ///
    /// # Errors
    /// As [`Store::create_with`].
    pub fn create(path: impl AsRef<Path>) -> Result<Store> {
        Store::create_with(OsFileOps::new(), path, Options::new())
    }

    /// Loads the session at `path` from the operating system's files.
    ///
    /// # Errors
    /// As [`Store::load_with`].
    pub fn load(path: impl AsRef<Path>) -> Result<Store> {
        Store::load_with(OsFileOps::new(), path, Options::new())
    }
}

impl<O: FileOps> Store<O> {
    /// Creates a session at `path`, durably, with mode 0600 (requirement S1).
    ///
    /// # Errors
    /// [`Code::RollbackFailed`] where a recovery marker stands beside the path, [`Code::AlreadyExists`] where
    /// anything has the path, [`Code::RootChanged`] where its parent is not a directory, [`Code::InvalidHeader`]
    /// for a blank session id or time, [`Code::LineTooLarge`], [`Code::FactoryFailed`], and [`Code::Io`]. After an
    /// error nothing of the new session is left, unless its removal failed too.
    pub fn create_with(ops: O, path: impl AsRef<Path>, mut options: Options) -> Result<Store<O>> {
        let path = path.as_ref();
        let place = Place::open(ops, path, Stage::K1)?;
        create::verify(&place)?;
        let header = new_header(&mut options).map_err(|error| error.with_path(path))?;
        let line = encode::header_line(&header);
        check_line(&line).map_err(|error| error.with_path(path))?;
        let generation = create::write(&place, line.as_bytes())?;
        let mut canonical = Segments::default();
        canonical.push_line(line);
        let writer = Writer { generation, canonical, options, poisoned: None };
        Ok(Store::assemble(place, View::new(header, Vec::new()), writer, 0))
    }

    /// Loads the session at `path` and changes nothing on disk (requirement S2).
    ///
    /// Only a torn tail is forgiven: a last line without line feed that is the beginning of a JSON object. It stays
    /// on disk until the next successful append or flush.
    ///
    /// # Errors
    /// [`Code::RollbackFailed`] where a recovery marker stands beside the path (after a bounded wait, where another
    /// process's commit is in flight), [`Code::FileChanged`], [`Code::FileTooLarge`], [`Code::RootChanged`],
    /// [`Code::Io`], and every code of the format with line, column and byte offset.
    pub fn load_with(ops: O, path: impl AsRef<Path>, options: Options) -> Result<Store<O>> {
        let Read { place, generation, decoded } = load::load(ops, path.as_ref())?;
        let (header, entries, canonical, torn_tail) = decoded.into_parts();
        let writer = Writer { generation, canonical, options, poisoned: None };
        Ok(Store::assemble(place, View::new(header, entries), writer, torn_tail))
    }

    fn assemble(place: Place<O>, view: View, writer: Writer<O>, torn_tail: usize) -> Store<O> {
        Store(Arc::new(Shared {
            place,
            queue: Queue::default(),
            view: RwLock::new(view),
            torn_tail: AtomicUsize::new(torn_tail),
            writer: Mutex::new(writer),
            #[cfg(feature = "tokio")]
            jobs: crate::futures::Jobs::default(),
        }))
    }

    /// The path that the session was opened with.
    pub fn path(&self) -> &Path {
        self.0.place.path()
    }

    /// The session's header.
    pub fn header(&self) -> Header {
        self.view().header.clone()
    }

    /// A snapshot of every entry, in stored order.
    pub fn entries(&self) -> Entries {
        Entries(Arc::clone(&self.view().entries))
    }

    /// The entry with this id.
    pub fn entry(&self, id: &str) -> Option<Entry> {
        let view = self.view();
        view.find(id).map(|at| view.entries[at].clone())
    }

    /// Bytes of a torn tail that the load ignored and that are still on disk.
    pub fn torn_tail(&self) -> usize {
        self.0.torn_tail.load(Ordering::Relaxed)
    }

    /// Whether the directory's file system can make names durable (choice C26.no-directory-sync). `Supported` until
    /// a commit was told otherwise.
    pub fn directory_sync(&self) -> Support {
        support(self.0.place.directory_sync_unsupported())
    }

    /// Whether the file system has the locks that keep other processes out (requirement S8). `Supported` until a
    /// commit was told otherwise; without them, two processes must not write one session.
    pub fn locking(&self) -> Support {
        support(self.0.place.locking_unsupported())
    }

    /// A tree whose active leaf is the last stored entry (requirement T1).
    pub fn tree(&self) -> Tree<O> {
        let leaf = self.view().entries.last().map(|entry| entry.id_text().clone());
        Tree::new(self.clone(), leaf)
    }

    /// Appends an entry below `parent`, or a root, and returns it once it is durable (requirement S5).
    ///
    /// # Errors
    /// In this order: [`Code::InvalidMessage`], the error that poisoned the store, [`Code::Io`] with `in_flight`
    /// where another process held the file's lock too long, [`Code::RootChanged`], [`Code::FileChanged`],
    /// [`Code::RecordLimit`], [`Code::ParentNotFound`], [`Code::FactoryFailed`], [`Code::InvalidRecord`] for a blank
    /// id or time, [`Code::DuplicateEntryId`], [`Code::InvalidToolLinkage`], [`Code::LineTooLarge`],
    /// [`Code::FileTooLarge`], then what the commit says. After every error the entries in memory are what they
    /// were, and so is the file, unless the code is [`Code::RollbackFailed`].
    pub fn append(&self, parent: Option<&str>, message: Message) -> Result<Entry> {
        message.validate()?;
        let turn = self.ticket()?.wait();
        self.append_in(&turn, parent, message)
    }

    /// Writes the present entries as a canonical generation; a torn tail goes with that (requirement S6).
    ///
    /// # Errors
    /// As [`Store::append`], as far as no entry is concerned.
    pub fn flush(&self) -> Result<()> {
        let turn = self.ticket()?.wait();
        self.flush_in(&turn)
    }

    pub(crate) fn ticket(&self) -> Result<Ticket> {
        self.0.queue.ticket().map_err(|_| self.here(reentered()))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn jobs(&self) -> &crate::futures::Jobs {
        &self.0.jobs
    }

    pub(crate) fn append_in(&self, turn: &Turn, parent: Option<&str>, message: Message) -> Result<Entry> {
        self.locked(|writer| {
            let (entry, parent) = self.prepare(turn, writer, parent, message)?;
            let line = encode::entry_line(&entry);
            check_line(&line)?;
            check_size(writer.canonical.len() + line.len())?;
            self.commit(writer, Some(&line))?;
            writer.canonical.push_line(line);
            self.view_mut().push(entry.clone(), parent);
            Ok(entry)
        })
    }

    pub(crate) fn flush_in(&self, _turn: &Turn) -> Result<()> {
        self.locked(|writer| {
            check_size(writer.canonical.len())?;
            self.commit(writer, None)
        })
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.view().find(id).is_some()
    }

    pub(crate) fn path_to_root(&self, leaf: &str) -> Vec<Entry> {
        let view = self.view();
        let mut path = Vec::new();
        let mut at = view.find(leaf);
        while let Some(index) = at {
            path.push(view.entries[index].clone());
            at = view.parents[index].map(|parent| parent as usize);
        }
        path.reverse();
        path
    }

    /// Runs `body` under the path lock of this process and the lock of the generation's inode, after the checks that
    /// what was locked is still what the path names (requirement S8).
    fn locked<T>(&self, body: impl FnOnce(&mut Writer<O>) -> Result<T>) -> Result<T> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        if let Some(error) = &writer.poisoned {
            return Err(error.clone());
        }
        let place = &self.0.place;
        let _guard = place.lock_in_process(Stage::C1)?;
        let result = place
            .lock_exclusively(&mut writer.generation.file, &place.name, Stage::C1)
            .and_then(|()| place.check_storage(&writer.generation, Stage::C1))
            .and_then(|_| body(writer));
        // After a commit this is the new generation, which was locked before it got its name. Also after a lock that
        // failed, because it may have been had all the same.
        place.ops.unlock(&writer.generation.file);
        result.map_err(|error| self.here(error))
    }

    /// Everything that S5 asks between the look at the file and the commit, in its order. No lock that a reader
    /// needs is held while a factory runs.
    fn prepare(
        &self,
        turn: &Turn,
        writer: &mut Writer<O>,
        parent: Option<&str>,
        message: Message,
    ) -> Result<(Entry, Option<u32>)> {
        let parent_at = self.view().place_for_child(parent)?;
        let id = draw(turn, &mut writer.options.ids, "id")?;
        if self.contains(&id) {
            let message = format!("the id factory gave {}, which an entry has already", quoted(&id));
            return Err(Error::new(Code::DuplicateEntryId, "R5", message));
        }
        let timestamp = draw(turn, &mut writer.options.clock, "clock")?;
        let view = self.view();
        let parent_of = |at: usize| view.parents[at].map(|up| up as usize);
        linkage::check_append(&view.entries, parent_of, parent_at.map(|at| at as usize), &message)?;
        Ok((Entry::new(id.into(), parent.map(Text::from), timestamp.into(), message), parent_at))
    }

    /// Memory changes only after this.
    fn commit(&self, writer: &mut Writer<O>, line: Option<&str>) -> Result<()> {
        let content: Vec<&[u8]> = writer.canonical.iter().chain(line.map(str::as_bytes)).collect();
        match commit::commit(&self.0.place, &writer.generation, &content) {
            Ok(generation) => {
                writer.generation = generation;
                self.0.torn_tail.store(0, Ordering::Relaxed);
                Ok(())
            }
            Err(Failure { error, adopted }) => {
                if let Some(copy) = adopted {
                    writer.generation = copy;
                }
                if error.poisoned() {
                    writer.poisoned = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    fn here(&self, error: Error) -> Error {
        error.with_path(self.path())
    }

    // None of these locks is held while foreign code runs but the writer's, around the factories, whose panics are
    // caught; and what they guard is whole between statements. So a poisoned one says nothing.
    fn view(&self) -> RwLockReadGuard<'_, View> {
        self.0.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.0.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer<O>> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: FileOps> Clone for Store<O> {
    fn clone(&self) -> Store<O> {
        Store(Arc::clone(&self.0))
    }
}

impl<O: FileOps> fmt::Debug for Store<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        f.debug_struct("Store")
            .field("path", &self.path())
            .field("session", &view.header.id())
            .field("entries", &view.entries.len())
            .finish()
    }
}

impl Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.0
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl View {
    fn new(header: Header, entries: Vec<Entry>) -> View {
        let mut view = View {
            header,
            index: HashMap::with_capacity(entries.len()),
            parents: Vec::with_capacity(entries.len()),
            entries: Arc::new(Vec::with_capacity(entries.len())),
        };
        for entry in entries {
            let parent = entry.parent_id().and_then(|id| view.find(id)).map(|at| at as u32);
            view.push(entry, parent);
        }
        view
    }

    /// Where the parent of a new entry is (the record limit comes before the parent, requirement S5).
    fn place_for_child(&self, parent: Option<&str>) -> Result<Option<u32>> {
        if self.entries.len() >= MAX_SESSION_RECORDS {
            let message = format!("the session has {MAX_SESSION_RECORDS} entries already");
            return Err(Error::new(Code::RecordLimit, "F7", message));
        }
        let Some(id) = parent else { return Ok(None) };
        match self.find(id) {
            Some(at) => Ok(Some(at as u32)),
            None => {
                Err(Error::new(Code::ParentNotFound, "R5", format!("no entry has the id {}", quoted(id))))
            }
        }
    }

    fn find(&self, id: &str) -> Option<usize> {
        self.index.get(id).map(|at| *at as usize)
    }

    fn push(&mut self, entry: Entry, parent: Option<u32>) {
        self.index.insert(entry.id_text().clone(), self.parents.len() as u32);
        self.parents.push(parent);
        // Copies the pointers only while a snapshot is held elsewhere.
        Arc::make_mut(&mut self.entries).push(entry);
    }
}

fn new_header(options: &mut Options) -> Result<Header> {
    let id = options.session_id.take().unwrap_or_else(options::random_id);
    let created_at = options::draw(&mut options.clock, "clock")?;
    for (value, what) in [(&id, "session id"), (&created_at, "time")] {
        if is_blank(value) {
            return Err(Error::new(Code::InvalidHeader, "R4", format!("the {what} is blank")));
        }
    }
    Ok(Header::new(id.into(), created_at.into()))
}

fn draw(turn: &Turn, factory: &mut Factory, what: &str) -> Result<String> {
    let value = options::draw(factory, what)?;
    if turn.was_reentered() {
        return Err(reentered());
    }
    if is_blank(&value) {
        return Err(Error::new(Code::InvalidRecord, "R4", format!("the {what} factory gave a blank text")));
    }
    Ok(value)
}

fn reentered() -> Error {
    options::factory_failed("a factory called back into the store")
}

/// `line` with its line feed.
fn check_line(line: &str) -> Result<()> {
    let bytes = line.len() - 1;
    if bytes <= MAX_SESSION_LINE_BYTES {
        return Ok(());
    }
    let message = format!("the line would have {bytes} bytes, more than {MAX_SESSION_LINE_BYTES}");
    Err(Error::new(Code::LineTooLarge, "F7", message))
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes <= MAX_SESSION_FILE_BYTES {
        return Ok(());
    }
    let message = format!("the file would have {bytes} bytes, more than {MAX_SESSION_FILE_BYTES}");
    Err(Error::new(Code::FileTooLarge, "F7", message))
}

fn support(unsupported: bool) -> Support {
    if unsupported { Support::Unsupported } else { Support::Supported }
}

#[cfg(all(test, shuttle))]
mod threads;
