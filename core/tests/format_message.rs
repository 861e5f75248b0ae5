//! Messages and tool arguments on their own.

#[path = "support/seeded.rs"]
mod seeded;

use proptest::prelude::*;
use session_tree::json_prefix::{Tail, classify};
use session_tree::limits::MAX_SESSION_FILE_BYTES;
use session_tree::{Arguments, Block, Code, Error, Message};

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(
    read: fn(&str) -> Result<T, Error>,
    text: &str,
    code: Code,
    requirement: &str,
    at: &str,
) {
    let error = read(text).expect_err(text);
    let offset = text.find(at).expect("the place is in the text");
    let place = error.position().expect("a refused text has a place");
    assert_eq!((error.code(), error.requirement()), (code, requirement), "{error}\n{text}");
    assert_eq!((place.line, place.column, place.offset), (1, offset + 1, offset), "{error}\n{text}");
}

// Requirement: R3, R4, F9
#[test]
fn messages_that_deviate_are_refused() {
    let user = r#"{"id":"m","role":"user","content":"x"}"#;
    let result =
        r#"{"id":"m","role":"toolResult","toolCallId":"c","toolName":"n","content":"x","isError":false}"#;
    let call = r#"{"id":"m","role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"k":1}}]}"#;
    let text = r#"{"id":"m","role":"assistant","content":[{"type":"text","text":"x"}]}"#;
    for good in [user, result, call, text] {
        assert_eq!(Message::from_json(good).unwrap().to_json(), good);
    }
    let cases = [
        ("5", "R3", "5"),
        ("[]", "R3", "[]"),
        ("\"\\ud800\"", "F9.surrogates", "\\ud800"),
        ("{}", "R3", "{}"),
        (&user.replace("\"user\"", "\"system\""), "R3", "\"system\""),
        (&user.replace("\"user\"", "1"), "R3", "1"),
        (&user.replace("\"user\"", "\"\\udc00\""), "F9.surrogates", "\\udc00"),
        (&user.replace(",\"content\":\"x\"", ""), "R3", "{"),
        (&user.replace("\"x\"", "[\"\"]"), "R3", "[\"\"]"),
        (&user.replace("\"m\"", "\"\""), "R4", "\"\""),
        (&user.replace("\"m\"", "7"), "R3", "7"),
        (&user.replace('}', ",\"isError\":false}"), "R3", "\"isError"),
        (&user.replace('}', ",\"role\":\"user\"}"), "F9.duplicate-names", "\"role\":\"user\"}"),
        (&user.replace("\"x\"", "\"x\\ud800x\""), "F9.surrogates", "\\ud800x"),
        (&result.replace("false", "0"), "R3", "0"),
        (&result.replace("\"c\"", "\"\\u0085\""), "R4", "\"\\u0085"),
        (&result.replace("\"n\"", "\" \""), "R4", "\" \""),
        (&result.replace("\"toolName\":\"n\",", ""), "R3", "{"),
        (&text.replace("[{", "{\"a\":[{").replace("}]", "}]}"), "R3", "{\"a\""),
        (&text.replace("[{", "[null,{"), "R3", "null"),
        (&text.replace("\"text\",", "\"image\","), "R3", "\"image\""),
        (&text.replace("\"type\":\"text\",", ""), "R3", "{\"text\""),
        (&text.replace("\"x\"", "\"x\",\"extra\":0"), "R3", "\"extra\""),
        (&text.replace("\"x\"", "\"x\",\"text\":0"), "F9.duplicate-names", "\"text\":0"),
        (&text.replace("[{", "[\"\\udbff\",{"), "F9.surrogates", "\\udbff"),
        (&call.replace("\"c\"", "\"\\u00a0\""), "R4", "\"\\u00a0"),
        (&call.replace("\"n\"", "\"\""), "R4", "\"\""),
        (&call.replace("{\"k\":1}", "[]"), "R3", "[]"),
        (&call.replace("{\"k\":1}", "null"), "R3", "null"),
        (&call.replace("\"k\":1", "\"k\":1,\"\\u006b\":2"), "F9.duplicate-names", "\"\\u006b"),
        (&call.replace("\"k\":1", "\"k\":[{\"a\":{},\"b\":0,\"a\":1}]"), "F9.duplicate-names", "\"a\":1"),
        (&call.replace("\"k\":1", "\"k\":[[\"\\ud800\\u0041\"]]"), "F9.surrogates", "\\ud800"),
        (&call.replace("\"k\":1", "\"\\udead\":1"), "F9.surrogates", "\\udead"),
    ];
    for (text, requirement, at) in cases {
        assert_refused(Message::from_json, text, Code::InvalidMessage, requirement, at);
    }
    assert_refused(Message::from_json, "{\"id\":x", Code::InvalidJson, "F3", "x");
    assert_eq!(Message::from_json("").unwrap_err().code(), Code::InvalidJson);
}

// Requirement: R3
#[test]
fn empty_contents_are_valid() {
    for text in [
        r#"{"id":"m","role":"assistant","content":[]}"#,
        r#"{"id":"m","role":"assistant","content":[{"type":"text","text":""}]}"#,
        r#"{"id":"m","role":"user","content":""}"#,
    ] {
        assert_eq!(Message::from_json(text).unwrap().to_json(), text);
    }
}

// Requirement: F9.duplicate-names
#[test]
fn duplicates_are_found_in_objects_of_any_size() {
    for size in [1, 2, 7, 8, 9, 10, 500] {
        let names: Vec<String> = (0..size).map(|number| format!("\"{number}\":0")).collect();
        assert!(Arguments::parse(&format!("{{{}}}", names.join(","))).is_ok());
        for repeated in [0, size / 2, size - 1] {
            let text = format!("{{{},\"\\u003{}\":1}}", names.join(","), repeated % 10);
            assert_refused(Arguments::parse, &text, Code::InvalidMessage, "F9.duplicate-names", "\"\\u003");
        }
    }
    // Equal names of different objects are none.
    assert!(Arguments::parse(r#"{"a":{"a":{"a":[{"a":0},{"a":0}]}}}"#).is_ok());
}

// Requirement: F8
#[test]
fn arguments_are_brought_into_the_canonical_form() {
    let spread = " { \"b\\/\" : [ 1.50 , true ,\t-0 , \"\\u0041 \\u00e9\\ud83d\\ude00 \\u001F\\u000a x\" ] ,\r\n\"a\":{ } } ";
    let parsed = Arguments::parse(spread).unwrap();
    assert_eq!(parsed.as_str(), "{\"b/\":[1.50,true,-0,\"A é😀 \\u001f\\n x\"],\"a\":{}}");
    assert_eq!(Arguments::parse(parsed.as_str()).unwrap(), parsed);
    assert_eq!(Arguments::default(), Arguments::parse("{}").unwrap());
    assert_refused(Arguments::parse, "[1]", Code::InvalidMessage, "R3", "[1]");
    assert_refused(Arguments::parse, "{\"a\":01}", Code::InvalidJson, "F3", "1");
}

// Requirement: F9.depth
#[test]
fn arguments_may_be_as_deep_as_they_are_long() {
    let deep = format!("{}{}", "{\"a\":".repeat(30_000) + "{}", "}".repeat(30_000));
    assert_eq!(Arguments::parse(&deep).unwrap().as_str(), deep);
}

// Requirement: F7
#[test]
fn text_beyond_the_file_limit_is_refused() {
    let spaces = " ".repeat(MAX_SESSION_FILE_BYTES - 2) + "{}";
    assert!(Arguments::parse(&spaces).is_ok());
    let error = Arguments::parse(&(spaces + " ")).unwrap_err();
    assert_eq!(
        (error.code(), error.position().unwrap().offset),
        (Code::LineTooLarge, MAX_SESSION_FILE_BYTES)
    );
}

// Requirement: F8
#[test]
fn errors_show_no_control_characters_and_no_long_values() {
    let text = format!("{{\"id\":\"m\",\"role\":\"\u{7f}\u{9b}31m{}\",\"content\":\"\"}}", "y".repeat(500));
    let error = Message::from_json(&text).unwrap_err().to_string();
    assert!(!error.contains(char::is_control) && error.len() < 300, "{error}");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,12}", any::<String>(), "[\\x00-\\x1f\"\\\\/\u{7f}é😀]{0,12}"]
}

fn filled() -> impl Strategy<Value = String> {
    text().prop_map(|text| text + "x")
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        text().prop_map(Into::into)
    ];
    leaf.prop_recursive(3, 16, 12, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::vec((text(), inner), 0..12)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        text().prop_map(|text| Block::Text { text: text.into() }),
        (filled(), filled(), json(), any::<bool>()).prop_map(|(id, name, value, pretty)| {
            let value = serde_json::json!({ "v": value });
            let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            Block::ToolCall { id: id.into(), name: name.into(), arguments: Arguments::parse(&text).unwrap() }
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (filled(), text()).prop_map(|(id, content)| Message::user(id, content)),
        (filled(), prop::collection::vec(block(), 0..4))
            .prop_map(|(id, content)| Message::assistant(id, content)),
        (filled(), filled(), filled(), text(), any::<bool>()).prop_map(
            |(id, call, tool, content, failed)| Message::tool_result(id, call, tool, content, failed)
        ),
    ]
}

// Requirement: F8
#[test]
fn what_needs_an_escape_has_it_wherever_it_stands() {
    for special in ["\"", "\\", "\n", "\u{1}", "\u{1f}"] {
        for repeated in [1, 7, 32, 40] {
            for before in 0..72 {
                let content = "x".repeat(before) + &special.repeat(repeated) + &" y".repeat(20);
                let text = Message::user("m", content.as_str()).to_json();
                let value = serde_json::json!({ "id": "m", "role": "user", "content": content });
                assert_eq!(text, value.to_string());
                assert_eq!(Message::from_json(&text).unwrap(), Message::user("m", content));
            }
        }
    }
}

proptest! {
    #![proptest_config(seeded::cases(512))]

    // Requirement: F8, R3
    #[test]
    fn every_message_reads_back_from_its_own_text(message in message()) {
        let text = message.to_json();
        prop_assert!(message.validate().is_ok());
        prop_assert_eq!(classify(&text), Tail::Complete);
        let read = Message::from_json(&text).unwrap();
        prop_assert_eq!(&read, &message);
        prop_assert_eq!(read.to_json(), text.clone());
        // Another parser sees the same values, and any spelling of them reads as the same message.
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(value["id"].as_str(), Some(message.id()));
        let spelled = serde_json::to_string_pretty(&value).unwrap();
        if !matches!(&message, Message::Assistant { .. }) {
            prop_assert_eq!(Message::from_json(&spelled).unwrap(), message);
        }
    }

    // Requirement: F8
    #[test]
    fn canonical_arguments_hold_what_another_parser_reads(value in json()) {
        let value = serde_json::json!({ "v": value });
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let arguments = Arguments::parse(&pretty).unwrap();
        prop_assert_eq!(arguments.as_str(), serde_json::to_string(&value).unwrap());
        let escaped: String = pretty.chars().flat_map(|char| if char.is_ascii() { vec![char.to_string()] } else {
            char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect()
        }).collect();
        prop_assert_eq!(Arguments::parse(&escaped).unwrap(), arguments);
    }
}
