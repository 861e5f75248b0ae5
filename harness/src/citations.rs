//! Which tests cite which requirements.
//!
//! A test says what it checks in a line `// Requirement: F4, F6` directly above it. The sources are read when that is
//! asked for, so that nothing has to be registered anywhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where tests stand, from the root of the source tree.
const SOURCES: [&str; 4] = ["core/src", "core/tests", "harness/src", "harness/tests"];

/// The root of the source tree that `directory` is in, if it is in one.
pub fn source_tree(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|root| SOURCES.iter().all(|path| root.join(path).is_dir()))
}

/// Every source file that may have tests.
///
/// # Errors
/// Where one cannot be read.
pub fn sources(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut directories: Vec<PathBuf> = SOURCES.iter().map(PathBuf::from).collect();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(root.join(&path))?;
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sources)
}

/// A source file.
#[derive(Debug)]
pub struct Source {
    /// Its path from the root of the source tree.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

/// A test that says what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// The requirement.
    pub id: String,
    /// The line that says so, from 0.
    pub line: usize,
    /// The name of the test.
    pub test: String,
}

/// What one source file cites.
#[derive(Debug, Default)]
pub struct Read {
    /// In the order of the file.
    pub citations: Vec<Citation>,
    /// Citations that are not written as they must be, or do not stand directly above a test.
    pub misplaced: Vec<String>,
}

impl Source {
    /// Reads what it cites.
    pub fn read(&self) -> Read {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let mut read = Read::default();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_meant_as_citation(line)) {
            let ids =
                ["// Requirement: ", "/// Requirement: "].iter().find_map(|start| line.strip_prefix(start));
            let wrong = match (ids, self.test_at(&lines[at + 1..])) {
                (None, _) => "not `// Requirement: ` and ids",
                (_, None) => "not directly above a test",
                (Some(ids), Some(test)) => {
                    let cited = |id: &str| Citation { id: id.to_owned(), line: at, test: test.to_owned() };
                    read.citations.extend(ids.split(", ").map(cited));
                    continue;
                }
            };
            read.misplaced.push(format!("{}: {wrong}", self.place(at)));
        }
        read
    }

    /// The name of the test that `lines` begin with: attributes, of which one says so, and a function; or, where tests are
    /// listed by hand, a function that is named again.
    fn test_at<'a>(&self, lines: &[&'a str]) -> Option<&'a str> {
        let mut open = 0;
        let mut is_marked = false;
        for line in lines {
            if open == 0 && !line.starts_with("#[") {
                let (_, rest) = line.split_once("fn ").filter(|(before, _)| is_before_fn(before))?;
                let name = rest.split(['(', '<']).next().unwrap_or(rest);
                return Some(name).filter(|name| is_marked || self.lists_by_hand(name));
            }
            open += line.matches('[').count();
            open -= line.matches(']').count().min(open);
            is_marked |= line.contains("test]") || line.contains("test(");
        }
        None
    }

    fn lists_by_hand(&self, name: &str) -> bool {
        let is_word = |at: usize| {
            let around = [self.text[..at].chars().next_back(), self.text[at + name.len()..].chars().next()];
            around.into_iter().flatten().all(|char| !char.is_alphanumeric() && char != '_')
        };
        let named = self.text.match_indices(name).filter(|(at, _)| is_word(*at)).count();
        self.text.contains("libtest_mimic") && named > 1
    }

    /// The file and the line, from 0, as editors take them.
    pub fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path.display(), at + 1)
    }
}

/// Also with the likeliest slips, which would otherwise cite nothing in silence.
fn is_meant_as_citation(line: &str) -> bool {
    let Some(comment) = line.strip_prefix("//") else { return false };
    let comment = comment.trim_start_matches('/').trim_start().to_ascii_lowercase();
    comment.starts_with("requirement:") || comment.starts_with("requirements:")
}

fn is_before_fn(text: &str) -> bool {
    matches!(text, "" | "pub " | "pub(crate) " | "async ")
}
