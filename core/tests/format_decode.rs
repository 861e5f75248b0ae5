//! Files and what they are read as: order of checks, places of failures, limits, the canonical form.

#[path = "support/seeded.rs"]
mod seeded;

use proptest::prelude::*;
use session_tree::limits::{MAX_SESSION_FILE_BYTES, MAX_SESSION_LINE_BYTES, MAX_SESSION_RECORDS};
use session_tree::{Block, Code, Decoded, Message, decode};

const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;

fn user(id: &str, content: &str) -> String {
    format!(r#"{{"id":"{id}","role":"user","content":"{content}"}}"#)
}

fn call(id: &str, arguments: &str) -> String {
    format!(
        r#"{{"id":"m","role":"assistant","content":[{{"type":"toolCall","id":"{id}","name":"n","arguments":{arguments}}}]}}"#
    )
}

fn result(id: &str, tool: &str) -> String {
    format!(
        r#"{{"id":"m","role":"toolResult","toolCallId":"{id}","toolName":"{tool}","content":"","isError":false}}"#
    )
}

/// An entry's line; `parent` is JSON.
fn entry(id: &str, parent: &str, message: &str) -> String {
    format!(
        r#"{{"type":"entry","version":1,"id":"{id}","parentId":{parent},"timestamp":"t","message":{message}}}"#
    )
}

fn root(id: &str) -> String {
    entry(id, "null", &user("m", "x"))
}

/// Lines, each ended by a line feed.
fn file(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}

fn loaded(bytes: impl Into<Vec<u8>>) -> Decoded {
    decode(bytes.into()).unwrap_or_else(|error| panic!("refused: {error}"))
}

/// The canonical form, from what the API gives.
fn canonical_form(decoded: &Decoded) -> String {
    let entries = decoded.entries().iter().map(|entry| entry.to_json() + "\n");
    std::iter::once(decoded.header().to_json() + "\n").chain(entries).collect()
}

/// Checks the refusal of a file: code, requirement, and the byte it points at, which also gives line and column.
#[track_caller]
fn assert_refused(bytes: impl Into<Vec<u8>>, code: Code, requirement: &str, offset: usize) {
    let bytes = bytes.into();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
    let before = &bytes[..offset];
    let line = before.split(|byte| *byte == b'\n').count();
    let column = before.rsplit(|byte| *byte == b'\n').next().map_or(0, <[u8]>::len) + 1;
    let error = decode(bytes.clone()).err().unwrap_or_else(|| panic!("accepted: {shown}"));
    let at = error.position().unwrap_or_else(|| panic!("no place: {error}"));
    assert_eq!((error.code(), error.requirement()), (code, requirement), "{error}\n{shown}");
    assert_eq!((at.line, at.column, at.offset), (line, column, offset), "{error}\n{shown}");
    assert!(
        error.message().starts_with("expected ") && !error.message().contains(char::is_control),
        "{error}"
    );
}

/// The same for a file of a header and these lines, pointing at the first occurrence of `at` beyond the header.
#[track_caller]
fn assert_lines_refused(lines: &[&str], code: Code, requirement: &str, at: &str) {
    let text = file(&[&[HEADER], lines].concat());
    let offset = HEADER.len() + 1 + text[HEADER.len() + 1..].find(at).expect("the place is in the file");
    assert_refused(text, code, requirement, offset);
}

// Requirement: F8
#[test]
fn a_canonical_file_reads_back_byte_for_byte() {
    let lines = [
        HEADER.to_owned(),
        entry("e1", "null", &user("m", r#"\"\\\b\f\n\r\t\u0000\u001f/é😀"#)),
        entry("e2", "\"e1\"", r#"{"id":"m","role":"assistant","content":[]}"#),
        entry("e3", "\"e2\"", &call("c", r#"{"z":1,"a":[1.10,-0,12345678901234567890,1e400,{"":null}]}"#)),
        entry("e4", "\"e3\"", &result("c", "n")),
        entry("e5", "\"e1\"", r#"{"id":"m","role":"assistant","content":[{"type":"text","text":""}]}"#),
    ];
    let text: String = lines.iter().map(|line| line.to_owned() + "\n").collect();
    let decoded = loaded(text.clone());
    assert!(decoded.canonical());
    assert_eq!(canonical_form(&decoded), text);
    assert_eq!(decoded.torn_tail(), 0);
    assert_eq!(decoded.entries()[4].parent_id(), Some("e1"));
    let Message::User { content, .. } = decoded.entries()[0].message() else { panic!() };
    assert_eq!(content, "\"\\\u{8}\u{c}\n\r\t\0\u{1f}/é😀");
}

// Requirement: F8, R1, R2, R3
#[test]
fn any_spelling_of_a_session_has_the_one_canonical_form() {
    let canonical = file(&[
        HEADER,
        &entry("e", "null", &call("c", r#"{"b":[1.0,"é\n/"],"a":{"x y":"\u0001"}}"#)),
        &entry("f", "\"e\"", &result("c", "n")),
    ]);
    let spelled = [
        "\t{ \"id\" :\"\\u0073\", \"createdAt\":\"t\", \"version\":1.0, \"\\u0074ype\":\"session\" } ",
        concat!(
            r#"{"message":{"content":[{"name":"n","arguments": { "b" : [ 1.0 , "\u00e9\u000a\/" ] , "a" : {"x y":"\u0001"} },"#,
            r#""id":"\u0063","type":"toolCall"}],"role":"\u0061ssistant","id":"m"},"#,
            r#""parentId":null,"id":"e","version":10e-1,"timestamp":"t","type":"entry"}"#
        ),
        concat!(
            r#"{"type":"entry","version":0.01E+2,"id":"f","parentId":"\u0065","timestamp":"t","message":"#,
            r#"{"isError":false,"content":"","toolName":"n","toolCallId":"c","role":"toolResult","id":"m"}}"#
        ),
    ];
    for separator in ["\n", "\r\n"] {
        let decoded = loaded(spelled.join(separator) + separator);
        assert!(!decoded.canonical());
        assert_eq!(canonical_form(&decoded), canonical);
        assert_eq!(decoded.entries(), loaded(canonical.clone()).entries());
    }
    assert!(loaded(canonical.clone()).canonical());
}

// Requirement: F8
#[test]
fn each_deviation_alone_makes_a_file_not_canonical() {
    let text = file(&[HEADER, &entry("e", "null", &call("c", r#"{"a":"b"}"#))]);
    assert!(loaded(text.clone()).canonical());
    let deviations = [
        text.replace('\n', "\r\n"),
        text.trim_end().to_owned(),
        text.replace("\"version\":1,", "\"version\":1.0,"),
        text.replace(r#""a":"b""#, r#""a": "b""#),
        text.replace(r#""a":"b""#, r#""a":"\u0062""#),
        text.replace(r#""id":"c","name":"n""#, r#""name":"n","id":"c""#),
        text.replace(r#""id":"s","createdAt":"t""#, r#""createdAt":"t","id":"s""#),
        text.replace("\"e\"", "\"\\u0065\""),
        text.clone() + "{",
    ];
    for deviation in deviations {
        let decoded = loaded(deviation.clone());
        assert!(!decoded.canonical(), "{deviation}");
        assert_eq!(canonical_form(&decoded), text, "{deviation}");
    }
}

// Requirement: F1
#[test]
fn one_carriage_return_before_the_end_of_a_line_is_dropped() {
    let entry = root("e");
    for text in [
        format!("{HEADER}\r\n{entry}\r\n"),
        format!("{HEADER}\n{entry}\r"),
        format!("{HEADER}\r\n{entry}"),
        format!("{HEADER}\n{entry}\r\r\n"),
    ] {
        assert_eq!(loaded(text).entries().len(), 1);
    }
    assert_eq!(loaded(format!("{HEADER}\r")).entries().len(), 0);
    assert_refused("\r\n", Code::InvalidJson, "F3", 0);
    assert_refused("\r", Code::InvalidJson, "F4", 0);
}

// Requirement: F4, F5, F6
#[test]
fn only_an_incomplete_object_at_the_end_is_ignored() {
    let whole = file(&[HEADER, &root("e")]);
    for tail in
        ["{", "{\"type\":\"entry\",\"id\":\"cut", " {\"a\":[[[", "{\"a\":1\r", "{\"\\ud800\":1,\"\\ud800\":2"]
    {
        let decoded = loaded(whole.clone() + tail);
        assert_eq!((decoded.entries().len(), decoded.torn_tail()), (1, tail.len()), "{tail:?}");
        assert_eq!(canonical_form(&decoded), whole);
    }
    for (tail, bad) in [
        ("not-json", 1),
        ("{,", 1),
        ("{}x", 2),
        ("[1", 2),
        ("  ", 2),
        ("\0", 0),
        ("{\"a\":1,}", 7),
        ("[1\r", 2),
    ] {
        assert_refused(whole.clone() + tail, Code::InvalidJson, "F4", whole.len() + bad);
        assert_refused(
            whole.clone() + tail + "\n",
            Code::InvalidJson,
            "F3",
            whole.len() + if tail == "[1\r" { 2 } else { bad },
        );
        assert_refused(tail, Code::InvalidJson, "F4", bad);
    }
    for complete in ["[1]", "12", "{}", "\"cut\""] {
        assert_refused(whole.clone() + complete, Code::InvalidRecord, "R2", whole.len());
    }
    for nothing in ["", "{", "{\"type\":\"session\""] {
        assert_refused(nothing, Code::InvalidHeader, "F6", 0);
    }
}

// Requirement: F3, F9.bom
#[test]
fn malformed_complete_lines_are_refused_where_they_go_wrong() {
    assert_lines_refused(&["", &root("e")], Code::InvalidJson, "F3", "\n");
    assert_lines_refused(&["{\"type\":\"entry\"", &root("e")], Code::InvalidJson, "F3", "\n");
    assert_lines_refused(&[&root("e"), "{\"a\":1e+]"], Code::InvalidJson, "F3", "]");
    assert_lines_refused(&["{\"a\":\"\u{1}\"}"], Code::InvalidJson, "F3", "\u{1}");
    assert_lines_refused(&["\u{feff}{}"], Code::InvalidJson, "F3", "\u{feff}");
    assert_refused(format!("\u{feff}{HEADER}\n"), Code::InvalidJson, "F3", 0);
}

// Requirement: F2
#[test]
fn bytes_that_are_not_utf8_are_refused_everywhere() {
    let whole = file(&[HEADER, &root("e")]).into_bytes();
    for bad in [&b"\xff"[..], b"\xc0\x80", b"\xed\xa0\x80", b"\xf0\x9f\x98"] {
        for rest in [&b"\"}\n"[..], b"\n", b"", b"\r\nnot-json\n"] {
            let bytes = [&whole, &b"{\"a\":\""[..], bad, rest].concat();
            assert_refused(bytes, Code::InvalidUtf8, "F2", whole.len() + 6);
        }
    }
    // Of one line the encoding comes before the syntax, and the length before both.
    assert_refused(b"not-json \xff".to_vec(), Code::InvalidUtf8, "F2", 9);
    let long = [b"\xff".repeat(MAX_SESSION_LINE_BYTES + 1), b"\n".to_vec()].concat();
    assert_refused(long, Code::LineTooLarge, "F7", MAX_SESSION_LINE_BYTES);
    assert_refused(b"\xff".repeat(MAX_SESSION_LINE_BYTES), Code::InvalidUtf8, "F2", 0);
    // An earlier line comes first, a later one does not.
    assert_refused(b"not-json\n\xff".to_vec(), Code::InvalidJson, "F3", 1);
    assert_refused(b"\xff\nnot-json\n".to_vec(), Code::InvalidUtf8, "F2", 0);
}

// Requirement: F7
#[test]
fn the_syntax_of_any_line_comes_before_the_meaning_of_every_line() {
    for wrong in ["[]", &file(&[HEADER, "{}"]), &file(&[HEADER, &root("e"), &root("e")])] {
        let wrong = wrong.trim_end().to_owned() + "\n";
        assert_refused(wrong.clone() + "not-json\n", Code::InvalidJson, "F3", wrong.len() + 1);
        assert_refused(wrong.clone() + "not-json", Code::InvalidJson, "F4", wrong.len() + 1);
        let long = " ".repeat(MAX_SESSION_LINE_BYTES + 1);
        assert_refused(wrong.clone() + &long, Code::LineTooLarge, "F7", wrong.len() + MAX_SESSION_LINE_BYTES);
        let bytes = [wrong.as_bytes(), b"\xff"].concat();
        assert_refused(bytes, Code::InvalidUtf8, "F2", wrong.len());
        let code = decode(wrong.clone().into_bytes()).unwrap_err().code();
        assert_eq!(decode((wrong + "{\"torn").into_bytes()).unwrap_err().code(), code);
    }
}

// Requirement: F7
#[test]
fn the_checks_of_one_entry_come_in_their_order() {
    // Each step mends the first failure of the one before.
    let first = entry("e", "null", &call("c", "{}"));
    let steps = [
        (r#"{"version":2,"id":"","parentId":5,"timestamp":"","message":{}}"#, Code::InvalidRecord),
        (
            r#"{"type":"entry","version":2,"id":"","parentId":5,"timestamp":"","message":{}}"#,
            Code::UnsupportedVersion,
        ),
        (
            r#"{"type":"entry","version":1,"id":"e","parentId":5,"timestamp":"","message":{}}"#,
            Code::InvalidRecord,
        ),
        (
            r#"{"type":"entry","version":1,"id":"e","parentId":"x","timestamp":"","message":{}}"#,
            Code::InvalidRecord,
        ),
        (
            r#"{"type":"entry","version":1,"id":"e","parentId":"x","timestamp":"t","message":{}}"#,
            Code::InvalidMessage,
        ),
        (&entry("e", "\"x\"", &call("c", "{}")), Code::DuplicateEntryId),
        (&entry("f", "\"x\"", &call("c", "{}")), Code::ParentNotFound),
        (&entry("f", "\"e\"", &call("c", "{}")), Code::InvalidToolLinkage),
    ];
    for (line, code) in steps {
        let error = decode(file(&[HEADER, &first, line]).into_bytes()).unwrap_err();
        assert_eq!(error.code(), code, "{line}");
    }
    assert_eq!(loaded(file(&[HEADER, &first, &entry("f", "\"e\"", &call("d", "{}"))])).entries().len(), 2);
}

// Requirement: F7
#[test]
fn the_first_wrong_entry_decides_also_when_the_fault_is_linkage() {
    let orphan = entry("o", "null", &result("c", "n"));
    assert_lines_refused(&[&orphan, "{}"], Code::InvalidToolLinkage, "L1", "\"c\"");
    assert_lines_refused(&["{}", &orphan], Code::InvalidRecord, "R2", "{}");
    let header = HEADER.replace("session", "sessions");
    assert_refused(file(&[&header, &orphan]), Code::InvalidHeader, "R1", header.find("\"sessions").unwrap());
}

// Requirement: R1, R7, F7
#[test]
fn headers_that_deviate_are_refused() {
    let cases = [
        ("[]", Code::InvalidHeader, "R1", "["),
        ("\"session\"", Code::InvalidHeader, "R1", "\"session\""),
        (r#"{"type":"entry","version":1,"id":"s","createdAt":"t"}"#, Code::InvalidHeader, "R1", "\"entry\""),
        (r#"{"type":"session","version":1,"id":"s"}"#, Code::InvalidHeader, "R1", "{"),
        (
            r#"{"type":"session","version":1,"id":"s","createdAt":"t","x":1}"#,
            Code::InvalidHeader,
            "R1",
            "\"x\"",
        ),
        (
            r#"{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}"#,
            Code::InvalidHeader,
            "R1",
            "\"timestamp\"",
        ),
        (r#"{"type":"session","version":2,"id":"","createdAt":""}"#, Code::UnsupportedVersion, "R1", "2"),
        (
            r#"{"type":"session","version":"1","id":"s","createdAt":"t"}"#,
            Code::UnsupportedVersion,
            "R1",
            "\"1\"",
        ),
        (r#"{"type":"session","version":1,"id":7,"createdAt":"t"}"#, Code::InvalidHeader, "R1", "7"),
        (r#"{"type":"session","version":1,"id":" ","createdAt":"t"}"#, Code::InvalidHeader, "R4", "\" \""),
        (
            r#"{"type":"session","version":1,"id":"s","createdAt":"\ufeff"}"#,
            Code::InvalidHeader,
            "R4",
            "\"\\ufeff",
        ),
        (
            r#"{"type":"session","version":1,"id":"s","id":"s","createdAt":"t"}"#,
            Code::InvalidHeader,
            "F9.duplicate-names",
            "\"id\":\"s\",\"c",
        ),
        (
            r#"{"type":"session","version":1,"id":"s\udc00","createdAt":"t"}"#,
            Code::InvalidHeader,
            "F9.surrogates",
            "\\udc00",
        ),
    ];
    for (header, code, requirement, at) in cases {
        assert_refused(file(&[header]), code, requirement, header.find(at).unwrap());
    }
}

// Requirement: R2, R4, R5, R6, F7
#[test]
fn entries_that_deviate_are_refused() {
    let good = entry("e", "null", &user("m", "x"));
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let record = Code::InvalidRecord;
    let cases = [
        ("[{\"type\":1}]".to_owned(), record, "R2", "[{"),
        (HEADER.to_owned(), record, "R2", "\"session\""),
        (with("\"timestamp\":\"t\",", ""), record, "R2", "{\"type"),
        (with("\"type\"", "\"x\":{},\"type\""), record, "R2", "\"x\""),
        (with("\"entry\"", "true"), record, "R2", "true"),
        (with(":1,", ":2,"), Code::UnsupportedVersion, "R2", "2,"),
        (with(":1,", ":{\"a\":1,\"a\":\"\\ud800\"},"), Code::UnsupportedVersion, "R2", "{\"a\""),
        (with(":1,", ":[{\"\\ud800\":1}],"), Code::UnsupportedVersion, "R2", "[{"),
        (with(":1,", ":[\"\\ud800\"],"), record, "F9.surrogates", "\\ud800"),
        (with(":1,", ":-1,"), Code::UnsupportedVersion, "R2", "-1,"),
        (with("\"e\"", "null"), record, "R2", "null,\"parentId"),
        (with("\"e\"", "\"\\u2003\""), record, "R4", "\"\\u2003"),
        (with("null", "\"\""), record, "R4", "\"\","),
        (with("null", "0"), record, "R2", "0,"),
        (with("null", "{\"a\":1,\"a\":1}"), record, "R2", "{\"a\""),
        (with("null", "\"e\""), Code::ParentNotFound, "R5", "\"e\",\"timestamp"),
        (with("null", "\"nowhere\""), Code::ParentNotFound, "R5", "\"nowhere"),
        (with("\"t\"", "\"\\t\""), record, "R4", "\"\\t\""),
        (with("\"t\"", "[]"), record, "R2", "[]"),
        (
            with("\"type\":\"entry\"", "\"type\":\"entry\",\"\\u0074ype\":\"entry\""),
            record,
            "F9.duplicate-names",
            "\"\\u0074",
        ),
        (with("\"e\"", "\"\\ud800\""), record, "F9.surrogates", "\\ud800"),
        (with("\"e\"", "\"\\ud83d\\ude00\\ude00x\""), record, "F9.surrogates", "\\ude00x"),
        (with(&user("m", "x"), "[\"\\udfff\"]"), record, "F9.surrogates", "\\udfff"),
    ];
    for (line, code, requirement, at) in &cases {
        assert_lines_refused(&[line], *code, requirement, at);
    }
    assert_lines_refused(
        &[&good, &entry("e", "null", &user("n", "y"))],
        Code::DuplicateEntryId,
        "R5",
        "\"e\",\"parentId\":null,\"timestamp\":\"t\",\"message\":{\"id\":\"n",
    );
    assert_lines_refused(
        &[&entry("a", "\"b\"", &user("m", "x")), &root("b")],
        Code::ParentNotFound,
        "R5",
        "\"b\",\"timestamp",
    );
    assert_eq!(
        loaded(file(&[HEADER, &root("a"), &root("b")])).entries().len(),
        2,
        "several roots, message ids repeat"
    );
}

// Requirement: R3, R4, F7, F9.duplicate-names, F9.surrogates
#[test]
fn messages_within_a_file_are_refused_where_they_go_wrong() {
    let message = Code::InvalidMessage;
    let cases = [
        (entry("e", "null", "5"), "R3", "5}"),
        (entry("e", "null", &user("m", "x").replace("user", "system")), "R3", "\"system"),
        (entry("e", "null", &user(" ", "x")), "R4", "\" \""),
        (entry("e", "null", &user("m", "\\udc00")), "F9.surrogates", "\\udc00"),
        (entry("e", "null", &call("c", r#"{"a":{"b":0,"b":1}}"#)), "F9.duplicate-names", "\"b\":1"),
        (entry("e", "null", &call("c", r#"[{"a":0,"a":1}]"#)), "R3", "[{\"a\""),
    ];
    for (line, requirement, at) in &cases {
        assert_lines_refused(&[&root("before"), line, "{}"], message, requirement, at);
    }
}

// Requirement: F9.version
#[test]
fn a_version_is_one_by_its_decimal_value() {
    let huge = "9".repeat(400);
    let ones = [
        "1",
        "1.0",
        "1.000",
        "10e-1",
        "0.01e2",
        "1e0",
        "1E-0",
        "1e+0",
        "0.1E+1",
        "100.0e-2",
        "1e000000000000000000000000000",
    ];
    let zeros = format!("0.{}1e30001", "0".repeat(30_000));
    for version in ones.into_iter().chain([zeros.as_str()]) {
        let text = file(&[HEADER, &root("e").replacen(":1,", &format!(":{version},"), 1)]);
        let decoded = loaded(text);
        assert_eq!(canonical_form(&decoded), file(&[HEADER, &root("e")]), "{version}");
    }
    let others = [
        "-1",
        "0",
        "-0",
        "0e9",
        "2",
        "11",
        "1.1",
        "12e-1",
        "0.21e1",
        "10",
        "1e1",
        "0.1",
        "1e-1",
        "0.11e1",
        "1.01",
        "1e4294967296",
        "100e-18446744073709551614",
    ];
    let exponents = [format!("1e{huge}"), format!("1e-{huge}"), format!("0e{huge}")];
    for version in others.into_iter().chain(exponents.iter().map(String::as_str)) {
        assert_lines_refused(
            &[&root("e").replacen(":1,", &format!(":{version},"), 1)],
            Code::UnsupportedVersion,
            "R2",
            &format!("{version},"),
        );
    }
}

// Requirement: L1, L2, L3, L4, L5
#[test]
fn broken_linkage_points_at_the_value() {
    let calls = concat!(
        r#"{"id":"m","role":"assistant","content":[{"type":"text","text":"c"},"#,
        r#"{"type":"toolCall","id":"c","name":"n","arguments":{}},"#,
        r#"{"type":"toolCall","id":"c","name":"other","arguments":{}}]}"#
    );
    let linkage = Code::InvalidToolLinkage;
    let a = entry("a", "null", &call("c", "{}"));
    let b = entry("b", "\"a\"", &result("c", "n"));
    assert_lines_refused(&[&entry("a", "null", calls)], linkage, "L2", "\"c\",\"name\":\"other");
    assert_lines_refused(&[&a, &entry("b", "\"a\"", &result("d", "n"))], linkage, "L1", "\"d\"");
    assert_lines_refused(&[&a, &entry("b", "\"a\"", &result("c", "o"))], linkage, "L1", "\"o\"");
    let second = entry("x", "\"b\"", &result("c", "n").replace("\"content\":\"\"", "\"content\":\"again\""));
    assert_lines_refused(&[&a, &b, &second], linkage, "L2", "\"c\",\"toolName\":\"n\",\"content\":\"again");
    assert_eq!(loaded(file(&[HEADER, &a, &b, &second.replace("\"b\"", "\"a\"")])).entries().len(), 3);
}

// Requirement: F7
#[test]
fn a_line_may_have_exactly_the_limit() {
    let line = |bytes: usize, end: &str| {
        let empty = entry("e", "null", &user("m", ""));
        format!("{HEADER}\n{}{end}", entry("e", "null", &user("m", &"x".repeat(bytes - empty.len()))))
    };
    for end in ["\n", "\r\n", "", "\r"] {
        for bytes in [MAX_SESSION_LINE_BYTES - 1, MAX_SESSION_LINE_BYTES] {
            assert_eq!(loaded(line(bytes, end)).entries().len(), 1, "{bytes} {end:?}");
        }
        let offset = HEADER.len() + 1 + MAX_SESSION_LINE_BYTES;
        assert_refused(line(MAX_SESSION_LINE_BYTES + 1, end), Code::LineTooLarge, "F7", offset);
    }
    // The header's line and a torn tail are lines too.
    let header = |bytes: usize| format!("{}{HEADER}\n", " ".repeat(bytes - HEADER.len()));
    assert_eq!(loaded(header(MAX_SESSION_LINE_BYTES)).entries().len(), 0);
    assert_refused(header(MAX_SESSION_LINE_BYTES + 1), Code::LineTooLarge, "F7", MAX_SESSION_LINE_BYTES);
    let tail = |bytes: usize| format!("{HEADER}\n{{\"{}", "x".repeat(bytes - 2));
    assert_eq!(loaded(tail(MAX_SESSION_LINE_BYTES)).torn_tail(), MAX_SESSION_LINE_BYTES);
    assert_refused(
        tail(MAX_SESSION_LINE_BYTES + 1),
        Code::LineTooLarge,
        "F7",
        HEADER.len() + 1 + MAX_SESSION_LINE_BYTES,
    );
}

// Requirement: F7
#[test]
fn a_file_may_have_exactly_the_limit() {
    let sized = |bytes: usize| {
        let mut text = file(&[HEADER]);
        let mut number = 0;
        while text.len() < bytes {
            let empty = entry(&format!("{number:04}"), "null", &user("m", "")).len() + 1;
            let left = bytes - text.len();
            // No remainder too small for an entry.
            let this = if left <= 60_000 { left } else { 50_000 };
            text += &entry(&format!("{number:04}"), "null", &user("m", &"x".repeat(this - empty)));
            text.push('\n');
            number += 1;
        }
        text
    };
    for bytes in [MAX_SESSION_FILE_BYTES - 1, MAX_SESSION_FILE_BYTES] {
        let text = sized(bytes);
        assert_eq!(text.len(), bytes);
        assert!(loaded(text).canonical());
    }
    assert_refused(sized(MAX_SESSION_FILE_BYTES + 1), Code::FileTooLarge, "F7", MAX_SESSION_FILE_BYTES);
    // The size comes before all else.
    assert_refused(
        b"\xff".repeat(MAX_SESSION_FILE_BYTES + 1),
        Code::FileTooLarge,
        "F7",
        MAX_SESSION_FILE_BYTES,
    );
}

// Requirement: F7
#[test]
fn a_session_may_have_exactly_the_limit_of_entries() {
    let with = |entries: usize| {
        let lines: Vec<String> = (0..entries).map(|number| root(&number.to_string())).collect();
        file(&[&[HEADER], &lines.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat())
    };
    for entries in [MAX_SESSION_RECORDS - 1, MAX_SESSION_RECORDS] {
        assert_eq!(loaded(with(entries)).entries().len(), entries);
    }
    let full = with(MAX_SESSION_RECORDS);
    assert_refused(with(MAX_SESSION_RECORDS + 1), Code::RecordLimit, "F7", full.len());
    // The limit comes before the shape, not before syntax; a torn tail is no entry.
    assert_refused(full.clone() + "{}\n", Code::RecordLimit, "F7", full.len());
    assert_refused(full.clone() + "{}", Code::RecordLimit, "F7", full.len());
    assert_refused(full.clone() + "{}\nx\n", Code::InvalidJson, "F3", full.len() + 3);
    assert_eq!(loaded(full + "{").entries().len(), MAX_SESSION_RECORDS);
}

// Requirement: F4, F9.depth
#[test]
fn a_line_of_brackets_is_an_ordinary_input() {
    let whole = file(&[HEADER]);
    let open = "[".repeat(65_000);
    assert_refused(format!("{whole}{open}"), Code::InvalidJson, "F4", whole.len() + 65_000);
    assert_refused(format!("{whole}{open}\n"), Code::InvalidJson, "F3", whole.len() + 65_000);
    assert_eq!(loaded(format!("{whole}{{\"a\":{open}")).torn_tail(), 65_005);
    let closed = format!("{}{}", "[".repeat(32_000), "]".repeat(32_000));
    assert_refused(format!("{whole}{closed}\n"), Code::InvalidRecord, "R2", whole.len());
}

// Requirement: F8, F9.depth, F9.numbers
#[test]
fn arguments_keep_depth_and_digits() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    let numbers = r#"{"z":-0,"y":1.10,"x":12345678901234567890123,"w":1e400,"v":1E+07,"u":0.1000}"#;
    for arguments in [deep.as_str(), numbers] {
        let text = file(&[HEADER, &entry("e", "null", &call("c", arguments))]);
        let decoded = loaded(text.clone());
        assert_eq!(canonical_form(&decoded), text);
        let Message::Assistant { content, .. } = decoded.entries()[0].message() else { panic!() };
        let Block::ToolCall { arguments: kept, .. } = &content[0] else { panic!() };
        assert_eq!(kept.as_str(), arguments);
        // Spread over white space they still come out dense.
        let spread = text.replacen("\"arguments\":{", "\"arguments\": { ", 1);
        assert_eq!(loaded(spread).entries(), decoded.entries());
    }
}

/// A session that has every kind of record, several branches and every kind of spelling that is not canonical.
fn specimen() -> String {
    let lines = [
        HEADER.to_owned(),
        root("a"),
        entry("b", "\"a\"", &call("c", r#"{"k":[1.0,{"x":"\u0041\n"}],"\u00e9":-0}"#)),
        entry("d", "\"b\"", &result("c", "n")).replace(',', " , "),
        entry("e", "\"b\"", &result("c", "n")),
        entry("f", "null", &user("m", r"é😀\ud83d\ude00\u0000")).replace(":1,", ":1.0,"),
    ];
    lines.join("\r\n") + "\n{\"type\":\"en"
}

/// One change of a file: what and where.
fn change(text: &mut Vec<u8>, kind: u8, at: usize, piece: &[u8]) {
    let at = at % (text.len() + 1);
    match kind {
        0 => text.truncate(at),
        1 => drop(text.splice(at..at, piece.iter().copied())),
        2 => drop(text.splice(at..(at + piece.len()).min(text.len()), piece.iter().copied())),
        3 => drop(text.drain(at..(at + 7).min(text.len()))),
        _ => {
            // A whole line again, at the end.
            let line = text[at..].split_inclusive(|byte| *byte == b'\n').nth(1).unwrap_or_default().to_vec();
            text.extend(line);
        }
    }
}

proptest! {
    #![proptest_config(seeded::cases(4_000))]

    // Requirement: F7, F8
    #[test]
    fn a_damaged_file_is_refused_at_a_place_or_has_a_canonical_form_that_reads_the_same(
        changes in prop::collection::vec((0..5_u8, any::<usize>(), prop::sample::select(&PIECES[..])), 0..3)
    ) {
        let mut text = specimen().into_bytes();
        for (kind, at, piece) in changes {
            change(&mut text, kind, at, piece);
        }
        match decode(text.clone()) {
            Ok(decoded) => {
                let canonical = canonical_form(&decoded);
                let again = loaded(canonical.clone());
                prop_assert!(again.canonical());
                prop_assert_eq!(again.torn_tail(), 0);
                prop_assert_eq!(again.header(), decoded.header());
                prop_assert_eq!(again.entries(), decoded.entries());
                prop_assert_eq!(&canonical_form(&again), &canonical);
                prop_assert_eq!(decoded.canonical(), canonical.as_bytes() == text);
            }
            Err(error) => {
                let at = error.position().unwrap();
                let before = &text[..at.offset];
                prop_assert_eq!(at.line, before.split(|byte| *byte == b'\n').count());
                prop_assert_eq!(at.column, before.rsplit(|byte| *byte == b'\n').next().unwrap().len() + 1);
            }
        }
    }
}

const PIECES: [&[u8]; 14] = [
    b"\n",
    b"\r",
    b" ",
    b"\"",
    b"{",
    b"}",
    b",",
    b"\\ud800",
    b"\xff",
    b"1",
    b"null",
    b"\"c\"",
    b"\"id\":\"a\",",
    b"\0",
];
