//! Immutable text that is shared instead of copied.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use crate::tape::unescape;

/// An immutable string. A clone copies a pointer.
///
/// The strings of a loaded session are slices of the one buffer that the file was read into, so a text keeps
/// that buffer (at most [`crate::limits::MAX_SESSION_FILE_BYTES`] bytes) alive. Compares, sorts, hashes and prints
/// as the [`str`] that it dereferences to.
#[derive(Clone)]
pub struct Text {
    owner: Arc<Owner>,
    start: u32,
    /// Bytes from `start`, or [`WHOLE`].
    len: u32,
}

/// The length that stands for the whole owner, so that a text of the caller's own may be of any size.
const WHOLE: u32 = u32::MAX;

/// What holds the characters.
#[derive(Debug)]
pub(crate) enum Owner {
    Plain(String),
    Escaped(Escaped),
}

/// A string of a file that has escapes: its value is made when it is first read, since most contents of a session
/// that is loaded to be continued never are.
#[derive(Debug)]
pub(crate) struct Escaped {
    file: Text,
    value: OnceLock<String>,
}

impl Owner {
    /// An owner that texts may be slices of.
    pub(crate) fn plain(text: String) -> Arc<Owner> {
        Arc::new(Owner::Plain(text))
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Owner::Plain(text) => text,
            // A text of this owner is made of a source without unpaired surrogates, which has a value.
            Owner::Escaped(Escaped { file, value }) => {
                value.get_or_init(|| unescape(file).unwrap_or_default())
            }
        }
    }
}

impl Text {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        let text = self.owner.as_str();
        if self.len == WHOLE {
            return text;
        }
        let start = self.start as usize;
        &text[start..start + self.len as usize]
    }

    /// The bytes `range` of `owner`, which lie on character boundaries, within the file limit.
    pub(crate) fn slice(owner: &Arc<Owner>, range: Range<usize>) -> Text {
        debug_assert!(owner.as_str().get(range.clone()).is_some() && range.end < WHOLE as usize);
        Text { owner: Arc::clone(owner), start: range.start as u32, len: range.len() as u32 }
    }

    /// The value of the JSON string whose source between the quotes is the bytes `range` of `owner`: recognised, and
    /// without unpaired surrogates.
    pub(crate) fn unescaped(owner: &Arc<Owner>, range: Range<usize>) -> Text {
        let escaped = Escaped { file: Text::slice(owner, range), value: OnceLock::new() };
        Text { owner: Arc::new(Owner::Escaped(escaped)), start: 0, len: WHOLE }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text { owner: Owner::plain(text), start: 0, len: WHOLE }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::from(text.to_owned())
    }
}

impl Default for Text {
    fn default() -> Text {
        Text::from(String::new())
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Text) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Text) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    // Requirement: S7
    #[test]
    fn a_text_is_two_words_and_shares_its_characters() {
        assert_eq!(size_of::<Text>(), 16);
        let owner = Owner::plain("one two".to_owned());
        let text = Text::slice(&owner, 4..7);
        assert_eq!(text, "two");
        assert_eq!(text.clone().as_ptr(), owner.as_str()[4..].as_ptr());
        assert_eq!(Text::default(), "");
    }

    // Requirement: F8
    #[test]
    fn an_escaped_text_has_its_value_and_shares_it() {
        let owner = Owner::plain(r#""a\n\u00e9\ud83d\ude00""#.to_owned());
        let text = Text::unescaped(&owner, 1..owner.as_str().len() - 1);
        let clone = text.clone();
        assert_eq!(text, "a\né😀");
        assert_eq!(clone.as_ptr(), text.as_ptr());
    }

    // Requirement: R5
    #[expect(
        clippy::mutable_key_type,
        reason = "what a text is equal to never changes: its value is only made late"
    )]
    #[test]
    fn texts_behave_as_the_strings_that_they_hold() {
        let owner = Owner::plain(r"b\u0062b".to_owned());
        let texts =
            [Text::from("a"), Text::slice(&owner, 0..1), Text::unescaped(&owner, 0..8), Text::from("c")];
        let strings = ["a", "b", "bbb", "c"];
        assert!(texts.is_sorted());
        for (text, string) in texts.iter().zip(strings) {
            assert_eq!(text, string);
            assert_ne!(*text, "another");
            assert_eq!(AsRef::<str>::as_ref(text), string);
            assert_eq!((format!("{text}"), format!("{text:?}")), (string.to_owned(), format!("{string:?}")));
        }
        let map: HashMap<Text, usize> = texts.into_iter().zip(0..).collect();
        assert_eq!(map.get("bbb"), Some(&2));
    }
}
