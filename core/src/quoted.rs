//! Foreign text in messages: escaped and shortened, so that no terminal acts on it.

const MOST: usize = 48;

/// `text` in quotes, with control characters escaped, at most 48 characters of it.
pub(crate) fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(MOST).is_some() { "…" } else { "" };
    format!("\"{shown}{more}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_length_are_tamed() {
        assert_eq!(quoted("a\u{1b}[2J\"b"), r#""a\u{1b}[2J\"b""#);
        assert_eq!(quoted(&"x".repeat(49)), format!("\"{}…\"", "x".repeat(48)));
    }
}
