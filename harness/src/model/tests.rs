use super::*;

const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;
const USER: &str = r#"{"id":"m","role":"user","content":"hi"}"#;

fn entry(id: &str, parent: &str, message: &str) -> String {
    format!(
        r#"{{"type":"entry","version":1,"id":"{id}","parentId":{parent},"timestamp":"t","message":{message}}}"#
    )
}

fn call(id: &str) -> String {
    format!(
        r#"{{"id":"m","role":"assistant","content":[{{"type":"toolCall","id":"{id}","name":"n","arguments":{{}}}}]}}"#
    )
}

fn result(id: &str, name: &str) -> String {
    format!(
        r#"{{"id":"m","role":"toolResult","toolCallId":"{id}","toolName":"{name}","content":"","isError":false}}"#
    )
}

fn refused(file: impl AsRef<[u8]>) -> (Code, usize) {
    let refusal = load(file.as_ref()).expect_err("the file is not valid");
    (refusal.code, refusal.line.unwrap_or(0))
}

fn refused_line(line: &str) -> Code {
    let (code, at) = refused(format!("{HEADER}\n{line}\n"));
    assert_eq!(at, 2, "{line}");
    code
}

fn loaded(file: impl AsRef<[u8]>) -> Session {
    load(file.as_ref()).expect("the file is valid")
}

const DRAWN: Drawn<'_> = Drawn { id: Some("e"), timestamp: Some("t") };

// Requirement: F4
#[test]
fn beginnings_of_objects_are_incomplete() {
    let deep = format!("{{\"a\":{}", "[".repeat(60_000));
    let tails = [
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
        "{\"a\":1,",
        "{\"a\":[1,",
        " \t{ ",
        "{\"\\",
        "{\"\\ud8",
        "{\"a\":{\"b\":f",
        "{\"a\":nul",
        "{\"a\":0",
        "{\"a\":\"\\ud800",
        "{\"a\":1,\"a\":1",
        "{\"a\":1e9999",
        "{\"a\":\"}",
        "{\"a\":[{}",
        &deep,
    ];
    for tail in tails {
        assert_eq!(json::classify(tail), Tail::Incomplete, "{tail}");
        let file = format!("{HEADER}\n{}\n{tail}", entry("a", "null", USER));
        assert_eq!((loaded(&file).entries().len(), loaded(&file).torn_tail()), (1, tail.len()), "{tail}");
    }
}

// Requirement: F4, F3
#[test]
fn what_begins_no_object_is_invalid() {
    let deep = "[".repeat(65_000);
    let tails = [
        "not-json",
        "{} x",
        "{}{",
        "{\"a\":1,,",
        "{\"a\":truX",
        "{,",
        "{\"a\":01",
        "{\"a\":1,}",
        "[1",
        "{\"a\":\"\u{1}",
        "{\"a\":\"\\x",
        "{\"a\":\"\\uZ",
        "  ",
        "\r",
        "\0\0",
        "\"cut",
        "[",
        "{\"a\":]",
        "{\"a\":[}",
        "{a",
        "{\"a\":1 2",
        "{\"a\":.5",
        "{\"a\":+",
        "{\"a\":-x",
        "tru",
        "\u{feff}{",
        "\u{a0}{",
        &deep,
    ];
    for tail in tails {
        assert_eq!(json::classify(tail), Tail::Invalid, "{tail:?}");
        assert_eq!(refused(format!("{HEADER}\n{tail}")), ("SESSION_INVALID_JSON", 2), "{tail:?}");
    }
}

// Requirement: F4
#[test]
fn every_cut_of_an_object_is_incomplete() {
    let text =
        r#" { "a\n\u00e9" : [ -1.5e+10 , true,false, null , { } , [ ], "x\"\\y" , {"b":0}] ,"c":1E5 } "#;
    let object = text.find('{').expect("an object");
    let end = text.trim_end().len();
    for cut in 0..=text.len() {
        let wanted = match cut {
            _ if cut >= end => Tail::Complete,
            _ if cut > object => Tail::Incomplete,
            _ => Tail::Invalid,
        };
        assert_eq!(json::classify(&text[..cut]), wanted, "{}", &text[..cut]);
    }
}

// Requirement: F1, F2, F3, F6
#[test]
fn line_ends_and_encodings_are_judged_before_content() {
    let one = entry("a", "null", USER);
    assert_eq!(loaded(format!("{HEADER}\r\n{one}\r\n")).entries().len(), 1);
    assert_eq!(loaded(format!("{HEADER}\n{one}")).entries().len(), 1);
    assert_eq!(loaded(format!("{HEADER}\n{one}\r")).entries().len(), 1);
    assert_eq!(loaded(format!("{HEADER}\n{{\"a\":\"\r")).torn_tail(), 7);
    assert_eq!(refused(""), ("SESSION_INVALID_HEADER", 1));
    assert_eq!(refused("{\"type"), ("SESSION_INVALID_HEADER", 1));
    assert_eq!(refused("\n"), ("SESSION_INVALID_JSON", 1));
    assert_eq!(refused(format!("{HEADER}\n\n{one}\n")), ("SESSION_INVALID_JSON", 2));
    assert_eq!(refused([HEADER.as_bytes(), b"\n{\"a\":\"\xc3"].concat()), ("SESSION_INVALID_UTF8", 2));
    assert_eq!(refused(format!("[]\n{one}\nx\n")), ("SESSION_INVALID_JSON", 3));
    assert_eq!(refused(format!("{HEADER}\n{one}\n12")), ("SESSION_INVALID_RECORD", 3));
}

// Requirement: F7, R1, R7, F9
#[test]
fn headers_are_exact() {
    let header = |line: &str| refused(line).0;
    let accepted =
        |version: &str| load(HEADER.replace("\"version\":1", &format!("\"version\":{version}")).as_bytes());
    for version in ["1", "1.0", "10e-1", "0.1E+1", "0.001e0003", "1e-0", "1000.0e-3"] {
        assert!(accepted(version).is_ok(), "{version}");
    }
    let others = [
        "2",
        "-1",
        "0",
        "1.01",
        "\"1\"",
        "null",
        "[1]",
        "{\"a\":1,\"a\":\"\\ud800\"}",
        "1e1",
        "1e-99999999999999999999999999999999999999999999",
    ];
    for version in others {
        let code = accepted(version).expect_err("not version 1").code;
        assert_eq!(code, "SESSION_UNSUPPORTED_VERSION", "{version}");
    }
    assert_eq!(accepted("[\"\\ud800\"]").expect_err("unpaired").code, "SESSION_INVALID_HEADER");
    let invalid = [
        "[]",
        r#"{"type":"session","version":3,"id":"x","timestamp":"t","cwd":"/"}"#,
        r#"{"type":"session","version":1,"id":"s","createdAt":" "}"#,
        r#"{"type":"session","version":1,"id":"﻿\u0085","createdAt":"t"}"#,
        r#"{"type":"session","version":1,"id":7,"createdAt":"t"}"#,
        r#"{"type":"entry","version":2,"id":"s","createdAt":"t"}"#,
        r#"{"type":"session","version":1,"id":"s","createdAt":"t","\u0069d":"s"}"#,
        r#"{"type":"session","version":2,"id":"\udc00","createdAt":"t"}"#,
    ];
    for line in invalid {
        assert_eq!(header(line), "SESSION_INVALID_HEADER", "{line}");
    }
    let spaced = "\t{ \"createdAt\" : \"t\",\"\\u0069d\":\"\\u0073\", \"version\":1 ,\"type\":\"session\" } ";
    assert_eq!(loaded(spaced).encode(), format!("{HEADER}\n").as_bytes());
}

// Requirement: F7, R2, R4, R5
#[test]
fn the_first_check_that_fails_names_the_code() {
    let good = entry("a", "null", USER);
    let with = |from: &str, to: &str| refused_line(&good.replace(from, to));
    assert_eq!(with("\"entry\"", "\"session\""), "SESSION_INVALID_RECORD");
    assert_eq!(with("\"timestamp\":\"t\",", ""), "SESSION_INVALID_RECORD");
    assert_eq!(
        with("\"version\":1,\"id\":\"a\"", "\"version\":2,\"id\":\"\""),
        "SESSION_UNSUPPORTED_VERSION"
    );
    assert_eq!(
        with("\"version\":1,\"id\":\"a\"", "\"version\":2,\"id\":\"\\ud800\""),
        "SESSION_INVALID_RECORD"
    );
    assert_eq!(with("\"id\":\"a\"", "\"id\":\"\\t\""), "SESSION_INVALID_RECORD");
    assert_eq!(with("\"parentId\":null", "\"parentId\":\"\""), "SESSION_INVALID_RECORD");
    assert_eq!(with("\"parentId\":null", "\"parentId\":0"), "SESSION_INVALID_RECORD");
    assert_eq!(with("\"parentId\":null", "\"parentId\":\"a\""), "SESSION_PARENT_NOT_FOUND");
    assert_eq!(with(USER, "0"), "SESSION_INVALID_MESSAGE");
    assert_eq!(with(USER, "[\"\\ud800\"]"), "SESSION_INVALID_RECORD");
    assert_eq!(with("\"hi\"", "\"\\ud800\""), "SESSION_INVALID_MESSAGE");
    assert_eq!(with("null", "\"b\""), "SESSION_PARENT_NOT_FOUND");
    assert_eq!(refused_line(&entry("a", "\"b\"", "{}")), "SESSION_INVALID_MESSAGE");
    assert_eq!(with(USER, &result("c", "n")), "SESSION_INVALID_TOOL_LINKAGE");
    assert_eq!(refused_line(&entry("a", "\"b\"", &result("c", "n"))), "SESSION_PARENT_NOT_FOUND");
    assert_eq!(refused(format!("{HEADER}\n{good}\n{good}\n")), ("SESSION_DUPLICATE_ENTRY_ID", 3));
    assert_eq!(
        refused(format!("{HEADER}\n{good}\n{}\n", entry("a", "\"b\"", USER))),
        ("SESSION_DUPLICATE_ENTRY_ID", 3)
    );
}

// Requirement: R3, R4, F9
#[test]
fn messages_are_exact() {
    let part = |part: &str| format!(r#"{{"id":"m","role":"assistant","content":[{part}]}}"#);
    let refused = [
        r#"{"id":"m","role":"user"}"#.to_owned(),
        r#"{"id":"m","role":"user","content":[]}"#.to_owned(),
        r#"{"id":"m","role":"system","content":""}"#.to_owned(),
        r#"{"id":" ","role":"user","content":""}"#.to_owned(),
        r#"{"id":"m","role":"user","content":"","content":""}"#.to_owned(),
        r#"{"id":"m","role":"assistant","content":""}"#.to_owned(),
        part("1"),
        part("[]"),
        part(r#"{"type":"text"}"#),
        part(r#"{"type":"text","text":"","x":0}"#),
        part(r#"{"type":"image","text":""}"#),
        part(r#"{"type":"toolCall","id":"c","name":"n","arguments":[]}"#),
        part(r#"{"type":"toolCall","id":"c","name":"","arguments":{}}"#),
        part(r#"{"type":"toolCall","id":"c","name":"n","arguments":{"a":[{"b":0,"\u0062":1}]}}"#),
        part(r#"{"type":"toolCall","id":"c","name":"n","arguments":{"a":{"\ud800":1}}}"#),
        result("c", " "),
        result("", "n"),
        result("c", "n").replace("false", "null"),
        "[]".to_owned(),
    ];
    assert_eq!(Message::read("{"), Err("SESSION_INVALID_JSON"));
    for message in refused {
        assert_eq!(Message::read(&message), Err("SESSION_INVALID_MESSAGE"), "{message}");
    }
    for message in
        [USER.to_owned(), part(""), part(r#"{"type":"text","text":""}"#), call("c"), result("c", "n")]
    {
        assert_eq!(Message::read(&message).expect("a valid message").encode(), message);
    }
    let loose = part(
        r#"{ "arguments" : { "b" : -0.0, "a\/":[1e400 , {"x":"\u00e9\ud83d\ude42\u001F\u0008"}] } ,"id":"c","name":"n","type":"toolCall"}"#,
    );
    let canonical = part(
        "{\"type\":\"toolCall\",\"id\":\"c\",\"name\":\"n\",\"arguments\":{\"b\":-0.0,\"a/\":[1e400,{\"x\":\"é🙂\\u001f\\b\"}]}}",
    );
    assert_eq!(Message::read(&loose).expect("a valid message").encode(), canonical);
}

// Requirement: F9
#[test]
fn depth_up_to_a_whole_line_is_accepted() {
    let (open, close) = ("[".repeat(30_000), "]".repeat(30_000));
    let message = call("c").replace("{}", &format!("{{\"a\":{open}{close}}}"));
    let line = entry("a", "null", &message);
    let file = format!("{HEADER}\n{line}\n");
    assert_eq!(loaded(&file).encode(), file.as_bytes());
}

// Requirement: L1, L2, L3, L4
#[test]
fn linkage_is_judged_along_the_branch() {
    let chain = |messages: &[String]| {
        let mut session = Session::create("s", "t").expect("a valid header");
        let mut tree = session.tree();
        for (index, message) in messages.iter().enumerate() {
            let id = format!("e{index}");
            tree.append(&mut session, message, Drawn { id: Some(&id), timestamp: Some("t") }).result?;
        }
        Ok(session)
    };
    let refused = Err("SESSION_INVALID_TOOL_LINKAGE");
    assert_eq!(chain(&[result("c", "n")]).map(drop), refused);
    assert_eq!(chain(&[call("c"), result("c", "other")]).map(drop), refused);
    assert_eq!(chain(&[call("c"), result("c", "n"), result("c", "n")]).map(drop), refused);
    assert_eq!(chain(&[call("c"), call("c")]).map(drop), refused);
    let part = r#"{"type":"toolCall","id":"c","name":"n","arguments":{}}"#;
    let twice = format!(r#"{{"id":"m","role":"assistant","content":[{part},{part}]}}"#);
    assert_eq!(chain(&[twice]).map(drop), refused);
    let mut session = chain(&[call("c"), USER.to_owned(), result("c", "n")]).expect("a valid branch");
    let on_sibling = session.append(Some("e1"), &result("c", "n"), DRAWN);
    assert!(on_sibling.result.is_ok());
    let drawn = Drawn { id: Some("f"), timestamp: Some("t") };
    assert!(session.append(None, &call("c"), drawn).result.is_ok());
    assert_eq!(
        session.append(None, &result("c", "n"), Drawn { id: Some("g"), ..drawn }).result.map(drop),
        refused
    );
}

// Requirement: S5
#[test]
fn an_append_checks_in_order_and_spends_what_it_drew() {
    let mut session = loaded(format!("{HEADER}\n{}\n", entry("a", "null", USER)));
    let before = session.clone();
    let mut tried = |parent, message: &str, id, timestamp| {
        let answer = session.append(parent, message, Drawn { id, timestamp });
        assert_eq!(session, before);
        (answer.result.expect_err("a refusal"), answer.drew_id, answer.drew_timestamp)
    };
    assert_eq!(tried(Some("x"), "{}", None, None), ("SESSION_INVALID_MESSAGE", false, false));
    assert_eq!(tried(Some("x"), USER, None, None), ("SESSION_PARENT_NOT_FOUND", false, false));
    assert_eq!(tried(Some(""), USER, None, None), ("SESSION_PARENT_NOT_FOUND", false, false));
    assert_eq!(tried(None, USER, None, None), ("SESSION_FACTORY_FAILED", true, false));
    assert_eq!(tried(None, USER, Some("\u{feff}"), None), ("SESSION_INVALID_RECORD", true, false));
    assert_eq!(tried(None, USER, Some("a"), None), ("SESSION_DUPLICATE_ENTRY_ID", true, false));
    assert_eq!(tried(None, &result("c", "n"), Some("b"), None), ("SESSION_FACTORY_FAILED", true, true));
    assert_eq!(tried(None, &result("c", "n"), Some("b"), Some("")), ("SESSION_INVALID_RECORD", true, true));
    let long = "x".repeat(65_536);
    let wide = result("c", "n").replace("\"content\":\"", &format!("\"content\":\"{long}"));
    assert_eq!(tried(None, &wide, Some("b"), Some("t")), ("SESSION_INVALID_TOOL_LINKAGE", true, true));
    let wide = USER.replace("hi", &long);
    assert_eq!(tried(None, &wide, Some("b"), Some("t")), ("SESSION_LINE_TOO_LARGE", true, true));
}

// Requirement: F5, F8, S6
#[test]
fn a_torn_tail_stays_until_the_next_commit() {
    let canonical = format!("{HEADER}\n{}\n", entry("a", "null", USER));
    let mut session = loaded(format!("{canonical}{{\"type"));
    assert!(session.file().ends_with(b"{\"type"));
    session.flush().expect("room enough");
    assert_eq!((session.file(), session.torn_tail()), (canonical.as_bytes(), 0));
}

// Requirement: F8
#[test]
fn a_file_that_only_lacks_its_last_line_feed_to_be_too_large_loads_and_refuses_commits() {
    let full = crate::generate::session(crate::generate::Shape::Roots, 4_000, FILE_LIMIT + 1, 4)
        .expect("within reach");
    let mut session = loaded(&full[..FILE_LIMIT]);
    assert_eq!(session.flush(), Err("SESSION_FILE_TOO_LARGE"));
    let before = session.clone();
    assert_eq!(session.append(None, USER, DRAWN).result, Err("SESSION_FILE_TOO_LARGE"));
    assert_eq!(session, before);
}

// Requirement: T1, T2, T3, T4, T5
#[test]
fn a_tree_follows_its_leaf() {
    let mut session =
        loaded(format!("{HEADER}\n{}\n{}\n", entry("a", "null", USER), entry("b", "\"a\"", USER)));
    let mut tree = session.tree();
    assert_eq!(tree.leaf(), Some("b"));
    assert_eq!(tree.move_to(&session, Some("x")), Err("SESSION_ENTRY_NOT_FOUND"));
    tree.move_to(&session, Some("a")).expect("a known entry");
    assert_eq!(tree.append(&mut session, USER, DRAWN).result.expect("valid").parent.as_deref(), Some("a"));
    assert_eq!(tree.active(&session).iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["a", "e"]);
    tree.move_to(&session, None).expect("a root position");
    assert_eq!((tree.leaf(), tree.active(&session).len(), session.entries().len()), (None, 0, 3));
}

// Requirement: F8, L1, L2, R5
#[test]
fn realistic_sessions_are_valid_and_canonical() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/sessions");
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("the corpus stands beside the harness") {
        let path = file.expect("a readable folder").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        assert!(loaded(&bytes).encode() == bytes, "{} is not canonical", path.display());
        count += 1;
    }
    assert!(count >= 6, "{count} sessions");
}
