//! The tail classifier against definitions that share nothing with it.

#[path = "support/seeded.rs"]
mod seeded;

use proptest::prelude::*;
use session_tree::json_prefix::{Tail, classify, completion};

/// The grammar of RFC 8259 once more, as recursive functions that return every way to read a prefix: a text is a
/// prefix of another when reading it runs out of input.
mod definition {
    /// How a rule fared at a place.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Read {
        /// The rule ends before this byte.
        To(usize),
        /// The input ended where the rule wants more.
        Ran,
        /// The rule does not allow what stands there.
        No,
    }
    use Read::{No, Ran, To};

    pub(super) fn json_text(s: &[u8]) -> Read {
        match element(s, 0) {
            To(end) if end == s.len() => To(end),
            To(_) => No,
            other => other,
        }
    }

    pub(super) fn starts_an_object(s: &[u8]) -> bool {
        s.get(ws(s, 0)) == Some(&b'{')
    }

    fn ws(s: &[u8], i: usize) -> usize {
        i + s[i..].iter().take_while(|b| b" \t\r\n".contains(b)).count()
    }

    fn element(s: &[u8], i: usize) -> Read {
        match value(s, ws(s, i)) {
            To(end) => To(ws(s, end)),
            other => other,
        }
    }

    fn value(s: &[u8], i: usize) -> Read {
        match s.get(i) {
            None => Ran,
            Some(b'{') => sequence(s, i + 1, b'}', member),
            Some(b'[') => sequence(s, i + 1, b']', element),
            Some(b'"') => characters(s, i + 1),
            Some(b't') => word(s, i, b"true"),
            Some(b'f') => word(s, i, b"false"),
            Some(b'n') => word(s, i, b"null"),
            Some(_) => number(s, i),
        }
    }

    /// Items with commas between them, up to the closing byte; none at all is fine.
    fn sequence(s: &[u8], i: usize, close: u8, item: fn(&[u8], usize) -> Read) -> Read {
        let mut i = ws(s, i);
        if s.get(i) == Some(&close) {
            return To(i + 1);
        }
        loop {
            match item(s, i) {
                To(end) => i = end,
                other => return other,
            }
            match s.get(i) {
                None => return Ran,
                Some(b',') => i += 1,
                Some(b) if *b == close => return To(i + 1),
                Some(_) => return No,
            }
        }
    }

    fn member(s: &[u8], i: usize) -> Read {
        let i = ws(s, i);
        let name = match s.get(i) {
            None => return Ran,
            Some(b'"') => characters(s, i + 1),
            Some(_) => return No,
        };
        let To(end) = name else { return name };
        let colon = ws(s, end);
        match s.get(colon) {
            None => Ran,
            Some(b':') => element(s, colon + 1),
            Some(_) => No,
        }
    }

    fn characters(s: &[u8], mut i: usize) -> Read {
        loop {
            match s.get(i) {
                None => return Ran,
                Some(b'"') => return To(i + 1),
                Some(b'\\') => match s.get(i + 1) {
                    None => return Ran,
                    Some(b'u') => {
                        let digits = &s[i + 2..s.len().min(i + 6)];
                        if !digits.iter().all(u8::is_ascii_hexdigit) {
                            return No;
                        }
                        if digits.len() < 4 {
                            return Ran;
                        }
                        i += 6;
                    }
                    Some(b) if br#""\/bfnrt"#.contains(b) => i += 2,
                    Some(_) => return No,
                },
                Some(0..=0x1f) => return No,
                Some(_) => i += 1,
            }
        }
    }

    fn word(s: &[u8], i: usize, word: &[u8]) -> Read {
        let have = &s[i..s.len().min(i + word.len())];
        if have == word {
            To(i + word.len())
        } else if word.starts_with(have) {
            Ran
        } else {
            No
        }
    }

    fn number(s: &[u8], i: usize) -> Read {
        let int = if s[i] == b'-' { i + 1 } else { i };
        let mut end = match (s.get(int), some_digits(s, int)) {
            (Some(b'0'), _) => int + 1,
            (_, To(end)) => end,
            (_, other) => return other,
        };
        if s.get(end) == Some(&b'.') {
            match some_digits(s, end + 1) {
                To(after) => end = after,
                other => return other,
            }
        }
        if matches!(s.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(s.get(end + 1), Some(b'+' | b'-')));
            return some_digits(s, end + 1 + sign);
        }
        To(end)
    }

    fn some_digits(s: &[u8], i: usize) -> Read {
        match s[i.min(s.len())..].iter().take_while(|b| b.is_ascii_digit()).count() {
            0 if i >= s.len() => Ran,
            0 => No,
            n => To(i + n),
        }
    }
}

fn defined(input: &[u8]) -> Tail {
    match definition::json_text(input) {
        definition::Read::To(_) => Tail::Complete,
        definition::Read::Ran if definition::starts_an_object(input) => Tail::Incomplete,
        definition::Read::Ran | definition::Read::No => Tail::Invalid,
    }
}

// Requirement: F4
#[test]
fn the_contracts_examples_have_their_verdicts() {
    let invalid = [
        "not-json",
        "{}x",
        "{\"a\":1}{",
        "{} ,",
        "{\"a\":1,,",
        "{\"a\":truX",
        "{,",
        "{\"a\":01",
        "{\"a\":1,}",
        "[1",
        "{\"a\":\"\u{1}",
        "{\"a\":\"\n",
        "{\"\u{1f}",
        "{\"a\":\"\\x",
        "{\"a\":\"\\uZ",
        "",
        " ",
        " \t\r\n ",
        "\0",
        "{\0",
        "\0\0{}",
        "\"cut",
        "[",
        "[{",
        "tru",
        "-",
        "\u{feff}{}",
        "\u{feff}{",
        "{\"a\":.5",
        "{\"a\":+1",
        "{\"a\":--",
        "{a",
        "{'a",
        "{\"a\":1 2",
        "{\"a\" 1",
        "{\"a\":]",
        "{\"a\":[}",
        "{\"a\":[1,]",
        "{\"a\":1.e",
        "{\"a\":nulL",
        "{\"a\":[1}",
        "}",
        "]",
        ",",
        ":",
        "{\"a\":\u{a0}",
    ];
    let incomplete = [
        "{",
        "{\"a",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":-",
        "{\"a\":1.",
        "{\"a\":1e+",
        "{\"a\":tr",
        "{\"a\":\"\\",
        "{\"a\":\"\\u00",
        "{\"a\":[[[",
        " \t{",
        "{ ",
        "{\"\\ud800",
        "{\"\\ud800\\",
        "{\"a\":1,",
        "{\"a\":{}",
        "{\"a\":[{}",
        "{\"a\":0",
        "{\"a\":-0",
        "{\"a\":1E",
        "{\"a\":1e",
        "{\"a\":1e-",
        "{\"a\":fals",
        "{\"a\":n",
        "{\"a\":\"\u{7f}é\u{10ffff}",
        "{\"a\":1,\"a\":2",
        "{\"type\":\"entry\",\"id\":\"cut",
    ];
    let complete = [
        "{}",
        " {} ",
        "[1]",
        "12",
        "-0",
        "1e400",
        "\"\"",
        "true",
        "null ",
        "{\"a\":1,\"a\":2}",
        "\"\\ud800\"",
    ];
    for (verdict, texts) in
        [(Tail::Invalid, &invalid[..]), (Tail::Incomplete, &incomplete[..]), (Tail::Complete, &complete[..])]
    {
        for text in texts {
            assert_eq!(classify(text), verdict, "{text:?}");
            assert_eq!(defined(text.as_bytes()), verdict, "the definition, {text:?}");
        }
    }
}

// Requirement: F2, F4
#[test]
fn bytes_that_are_not_utf8_are_no_tail() {
    for bytes in [&b"{\"a\":\"\xff"[..], b"{\"a\":\"\xc3", b"\"\xed\xa0\x80\""] {
        assert_eq!(classify(bytes), Tail::Invalid, "{bytes:?}");
        assert_eq!(completion(bytes), None, "{bytes:?}");
    }
}

/// Reaches every position of the grammar but the inside of a literal, which has a starting point of its own below.
const ALPHABET: [&str; 16] =
    ["{", "}", "[", "]", ",", ":", "\"", "\\", "u", "0", "1", "-", ".", "e", "t", " "];
const LONGEST: usize = 7;

/// Whether a prefix is dead: neither complete nor the beginning of any JSON text.
fn dead(input: &[u8]) -> bool {
    definition::json_text(input) == definition::Read::No
}

/// Compares all extensions of `text`, which is alive, by up to `left` symbols. Returns how many texts were compared.
fn compare_extensions(text: &mut Vec<u8>, left: usize) -> usize {
    let mut compared = 0;
    for symbol in ALPHABET {
        text.extend(symbol.bytes());
        let (ours, theirs) = (classify(&*text), defined(text));
        assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(text));
        compared += 1;
        // An array or a scalar cut short is invalid as a tail, yet can become complete: it is not dead.
        if left > 1 && !(ours == Tail::Invalid && dead(text)) {
            compared += compare_extensions(text, left - 1);
        }
        text.truncate(text.len() - symbol.len());
    }
    compared
}

// Requirement: F4
#[test]
fn every_short_text_has_the_verdict_of_the_definition() {
    let compared = compare_extensions(&mut Vec::new(), LONGEST);
    // Also from inside an object, where the interesting tails are.
    let nested = ["{\"", "{\"\":", "{\"\":[", "{\"\":\"\\u0", "{\"\":tru", "{\"\":{\"t\":1e"]
        .map(|start| compare_extensions(&mut start.as_bytes().to_vec(), LONGEST - 1));
    assert!(compared > 1_000_000 && nested.iter().all(|&n| n > 1_000), "{compared} {nested:?}");
}

prop_compose! {
    fn symbols(most: usize)(picks in prop::collection::vec(prop::sample::select(&ALPHABET[..]), 0..most)) -> String {
        picks.concat()
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::vec((".{0,4}", inner), 0..5)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn parses(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

proptest! {
    #![proptest_config(seeded::cases(2_000))]

    // Requirement: F4
    #[test]
    fn nothing_after_a_dead_prefix_revives_it(prefix in symbols(8), more in symbols(5)) {
        if dead(prefix.as_bytes()) {
            let longer = prefix + &more;
            prop_assert_eq!(classify(&longer), Tail::Invalid);
            prop_assert!(dead(longer.as_bytes()));
        }
    }

    // Requirement: F4
    #[test]
    fn a_value_is_complete_its_cuts_are_torn_and_each_cut_has_a_completion(value in json(), pretty: bool) {
        let value = serde_json::json!({ "v": value });
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assert_eq!(classify(&text), Tail::Complete);
        prop_assert_eq!(completion(&text), None);
        for cut in (1..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
            prop_assert_eq!(classify(&text[..cut]), Tail::Incomplete);
            let whole = text[..cut].to_owned() + &completion(&text[..cut]).unwrap();
            prop_assert_eq!(classify(&whole), Tail::Complete, "{}", whole);
            prop_assert!(parses(&whole), "{}", whole);
        }
    }

    // Requirement: F4
    #[test]
    fn a_damaged_text_has_the_verdict_of_the_definition(value in json(), at: prop::sample::Index, byte in "[\\x00-\\x7f]") {
        let mut text = serde_json::json!({ "v": value }).to_string();
        let at = (0..=at.index(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        text.insert_str(at, &byte);
        prop_assert_eq!(classify(&text), defined(text.as_bytes()));
        prop_assert_eq!(classify(&text) == Tail::Complete, parses(&text));
    }

    // Requirement: F4
    #[test]
    fn complete_means_that_another_parser_takes_it(text in symbols(14)) {
        prop_assert_eq!(classify(&text) == Tail::Complete, parses(&text));
        prop_assert_eq!(classify(&text), defined(text.as_bytes()));
        let rest = completion(&text);
        prop_assert_eq!(rest.is_some(), classify(&text) == Tail::Incomplete);
        prop_assert!(rest.is_none_or(|rest| parses(&(text + &rest))));
    }
}

// Requirement: F4, F9.depth
#[test]
fn depth_up_to_the_line_limit_is_ordinary() {
    let brackets = format!("{{\"a\":{}", "[".repeat(65_000));
    assert_eq!(classify(&brackets), Tail::Incomplete);
    assert_eq!(completion(&brackets), Some("]".repeat(65_000) + "}"));
    assert_eq!(classify("[".repeat(65_000)), Tail::Invalid);
    assert_eq!(classify(format!("{brackets}{}}}", "]".repeat(65_000))), Tail::Complete);
    let objects = "{\"a\":".repeat(13_000);
    assert_eq!(classify(&objects), Tail::Incomplete);
    assert_eq!(completion(&objects), Some("null".to_owned() + &"}".repeat(13_000)));
}
