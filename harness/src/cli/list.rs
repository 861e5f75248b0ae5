//! `list`: every case, with what it is about.

use std::io::{self, BufWriter, Write};

use super::CliError;
use crate::exit_code::Exit;
use crate::suite::faults;

/// Prints the cases whose id matches `filter`.
pub(super) fn list(filter: &[String], json: bool) -> Result<Exit, CliError> {
    let results = super::run_matching(filter, None, true)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for finished in &results.finished {
        let case = &finished.case;
        if json {
            let line = serde_json::json!({
                "id": case.id(),
                "suite": faults::NAME,
                "level": "must",
                "stage": case.stage.id(),
                "requirements": case.requirements(),
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{}", case.id())?;
        }
    }
    out.flush()?;
    Ok(Exit::Holds)
}

/// Whether an id matches one of the globs, or there are none. A glob without `*` matches anywhere in the id.
pub(super) fn matches(globs: &[String], id: &str) -> bool {
    globs.is_empty()
        || globs
            .iter()
            .any(|glob| if glob.contains('*') { matches_whole(glob, id) } else { id.contains(glob.as_str()) })
}

/// `*` stands for any text, everything else for itself: ids hold characters that richer globs give a meaning.
fn matches_whole(glob: &str, id: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = parts.next().and_then(|first| id.strip_prefix(first)) else { return false };
    let mut last = "";
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = part;
    }
    rest.is_empty() || last.is_empty() || id.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        let globs = |glob: &str| vec![glob.to_owned()];
        assert!(matches(&globs("rename"), "faults/append/C8/rename@temporary>session#1=EIO_after,once"));
        assert!(matches(&globs("faults/*/C8/*"), "faults/append/C8/rename"));
        assert!(matches(&globs("*once"), "faults/append/C8/x,once,once"));
        assert!(!matches(&globs("faults/*/C9/*"), "faults/append/C8/rename"));
        assert!(!matches(&globs("append*"), "faults/append"));
        assert!(!matches(&globs("*append"), "faults/append/x"));
    }
}
