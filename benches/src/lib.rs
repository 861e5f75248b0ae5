//! What benches work on: sessions of a chosen size, and stores on a real disk.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use session_harness::generate::{self, Shape};
use session_tree::Store;
use tempfile::TempDir;

/// Bytes of an entry's line on average, so that 4 096 entries and one append stay within the file's limit.
pub const BYTES_AN_ENTRY: usize = 1_000;

/// The canonical bytes of a session of `entries` entries. The same arguments give the same bytes.
///
/// # Errors
///
/// If the shape's lines do not fit into [`BYTES_AN_ENTRY`].
pub fn session(shape: Shape, entries: usize) -> Result<Vec<u8>, generate::SizeError> {
    const HEADER: usize = 200;
    generate::session(shape, entries, HEADER + entries * BYTES_AN_ENTRY, 1)
}

/// A store in a directory of its own, which is removed with it.
#[derive(Debug)]
pub struct Loaded {
    /// The store, as loaded from the file.
    pub store: Store,
    _directory: TempDir,
}

impl Loaded {
    /// Loads `bytes` from a file in a new directory below `folder`, which decides what disk is measured.
    ///
    /// The file is durable before it is loaded, so that a commit that is measured pays for its own bytes alone.
    ///
    /// # Errors
    ///
    /// From the file system, and from the load.
    pub fn below(folder: &Path, bytes: &[u8]) -> Result<Loaded, Box<dyn Error>> {
        let directory = tempfile::tempdir_in(folder)?;
        let path = directory.path().join("session.jsonl");
        fs::write(&path, bytes)?;
        File::open(&path)?.sync_all()?;
        File::open(directory.path())?.sync_all()?;
        Ok(Loaded { store: Store::load(&path)?, _directory: directory })
    }
}
