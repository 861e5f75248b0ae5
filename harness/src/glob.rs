//! Which case ids are meant.

/// What the user typed: `*` stands for any text, everything else for itself, since ids hold characters that richer
/// globs give a meaning. One without `*` matches anywhere in an id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter(pub Vec<String>);

impl Filter {
    /// Whether the id matches one of the globs, or there are none.
    pub fn matches(&self, id: &str) -> bool {
        let is_match =
            |glob: &String| if glob.contains('*') { matches(glob, id) } else { id.contains(glob.as_str()) };
        self.0.is_empty() || self.0.iter().any(is_match)
    }

    /// Whether an id that begins with `start` may match. Only a definite beginning of a glob rules anything out.
    pub fn may_match_below(&self, start: &str) -> bool {
        let may_match = |glob: &String| match glob.split_once('*') {
            Some((first, _)) => first.starts_with(start) || start.starts_with(first),
            None => true,
        };
        self.0.is_empty() || self.0.iter().any(may_match)
    }
}

/// Whether the whole `id` is as `glob` says, in which `*` stands for any text.
pub fn matches(glob: &str, id: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = parts.next().and_then(|first| id.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    match last {
        None => rest.is_empty(),
        Some(last) => rest.is_empty() || id.ends_with(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "faults/append/C8/rename@temporary>session#1=EIO_after,once";

    #[test]
    fn a_star_stands_for_any_text() {
        for (glob, id, is_match) in [
            ("faults/*/C8/*", ID, true),
            ("*once", "faults/append/C8/x,once,once", true),
            ("faults/*/C9/*", ID, false),
            ("append*", "faults/append", false),
            ("*append", "faults/append/x", false),
            ("*", "", true),
            ("faults/append", "faults/append", true),
            ("faults/append", "faults/append/x", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(glob, id), is_match, "{glob} {id}");
        }
    }

    #[test]
    fn a_glob_without_a_star_matches_anywhere() {
        assert!(Filter(vec!["rename".to_owned()]).matches(ID));
        assert!(Filter::default().matches(ID));
        assert!(!Filter(vec!["C9".to_owned(), "crash".to_owned()]).matches(ID));
    }

    #[test]
    fn only_a_definite_beginning_rules_out_what_begins_otherwise() {
        let filter = |glob: &str| Filter(vec![glob.to_owned()]);
        for (glob, start, may) in [
            ("faults/append/*", "faults/append/C8/rename=", true),
            ("faults/append/C8/rename=EIO*", "faults/append/C8/rename=", true),
            ("crash/*", "faults/append/C8/rename=", false),
            ("faults/create/*", "faults/append/C8/rename=", false),
            ("C9", "faults/append/C8/rename=", true),
        ] {
            assert_eq!(filter(glob).may_match_below(start), may, "{glob}");
        }
    }
}
