//! A tree: an active leaf over a store, moved without touching the file (contract section 8).

use std::fmt;

use crate::error::{Code, Error, Result};
use crate::file_ops::{FileOps, OsFileOps};
use crate::message::Message;
use crate::quoted::quoted;
use crate::record::Entry;
use crate::store::Store;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::text::Text;

/// One active leaf over a store. Cloning gives another handle on the same leaf; [`Store::tree`] gives a tree with a
/// leaf of its own.
///
/// Changing branches deletes nothing: entries off the active path stay in the store and on disk (requirement T5).
/// Operations take their place in the store's queue, so they take effect in the order of the calls.
pub struct Tree<O: FileOps = OsFileOps> {
    store: Store<O>,
    leaf: Arc<Mutex<Option<Text>>>,
}

impl<O: FileOps> Tree<O> {
    pub(crate) fn new(store: Store<O>, leaf: Option<Text>) -> Tree<O> {
        Tree { store, leaf: Arc::new(Mutex::new(leaf)) }
    }

    /// The store below.
    pub fn store(&self) -> &Store<O> {
        &self.store
    }

    /// The id of the active leaf; none where the next append is a root.
    pub fn leaf(&self) -> Option<Text> {
        self.leaf_slot().clone()
    }

    /// Makes `id` the active leaf, or none, so that the next append is a root. Changes no byte of the file
    /// (requirement T2).
    ///
    /// # Errors
    /// [`Code::EntryNotFound`] where no entry has that id; the leaf stays.
    pub fn move_to(&self, id: Option<&str>) -> Result<()> {
        let _turn = self.store.ticket()?.wait();
        self.move_in(id)
    }

    /// Appends below the active leaf and then makes the new entry the leaf (requirement T3).
    ///
    /// # Errors
    /// As [`Store::append`]; the leaf stays.
    pub fn append(&self, message: Message) -> Result<Entry> {
        message.validate()?;
        let turn = self.store.ticket()?.wait();
        self.append_in(&turn, message)
    }

    /// The entries from the root to the active leaf (requirement T4).
    pub fn active_entries(&self) -> Vec<Entry> {
        self.leaf().map_or_else(Vec::new, |leaf| self.store.path_to_root(&leaf))
    }

    /// The messages from the root to the active leaf (requirement T4).
    pub fn active_messages(&self) -> Vec<Message> {
        self.active_entries().iter().map(|entry| entry.message().clone()).collect()
    }

    pub(crate) fn move_in(&self, id: Option<&str>) -> Result<()> {
        if let Some(id) = id
            && !self.store.contains(id)
        {
            let message = format!("no entry has the id {}", quoted(id));
            return Err(Error::new(Code::EntryNotFound, "T2", message).with_path(self.store.path()));
        }
        *self.leaf_slot() = id.map(Text::from);
        Ok(())
    }

    pub(crate) fn append_in(&self, turn: &crate::queue::Turn, message: Message) -> Result<Entry> {
        let parent = self.leaf();
        let entry = self.store.append_in(turn, parent.as_deref(), message)?;
        *self.leaf_slot() = Some(entry.id_text().clone());
        Ok(entry)
    }

    fn leaf_slot(&self) -> MutexGuard<'_, Option<Text>> {
        // Held for one read or one assignment, so a panic elsewhere leaves it whole.
        self.leaf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: FileOps> Clone for Tree<O> {
    fn clone(&self) -> Tree<O> {
        Tree { store: self.store.clone(), leaf: Arc::clone(&self.leaf) }
    }
}

impl<O: FileOps> fmt::Debug for Tree<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("store", &self.store).field("leaf", &self.leaf()).finish()
    }
}
