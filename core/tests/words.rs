//! What refusals and values say to people.

mod support;

use session_tree::file_ops::{FileKind, FileOps};
use session_tree::{Code, Errno, Error, Message, Stage, Store, decode, problems};

use support::scripted::{Op, Role, Rule, ScriptedOps, What, at};
use support::{Fixture, options, refused, user};

#[test]
fn a_code_is_printed_as_its_text_reads_back_and_has_help() {
    for code in Code::ALL {
        assert_eq!(code.to_string(), code.as_str());
        assert_eq!(code.as_str().parse(), Ok(*code));
        assert!(!code.help().is_empty(), "{code}");
    }
    for text in ["", "SESSION_", "SESSION_IO ", "session_io"] {
        let unknown = text.parse::<Code>().unwrap_err();
        assert_eq!(unknown.to_string(), format!("`{text}` is not a code of this contract"));
    }
}

#[test]
fn a_stage_is_printed_as_its_id_and_what_it_does() {
    assert_eq!(Stage::C8.to_string(), "C8 rename");
    assert_eq!(Stage::K5.to_string(), "K5 link");
    assert!(Stage::ALL.iter().all(|stage| stage.to_string() == format!("{} {}", stage.id(), stage.words())));
}

#[test]
fn an_error_number_is_printed_as_its_name() {
    assert_eq!((Errno::ENOSPC.to_string(), Errno::ENOSPC.name()), ("ENOSPC".to_owned(), Some("ENOSPC")));
    assert_eq!(format!("{:?} {:?}", Errno::EIO, Errno::from_raw(4_000)), "EIO errno 4000");
    assert_eq!(std::io::Error::from(Errno::ENOSPC).raw_os_error(), Some(Errno::ENOSPC.raw()));
    assert_eq!(
        "ENOSUCH".parse::<Errno>().unwrap_err().to_string(),
        "`ENOSUCH` is not an error number: expected a name such as ENOSPC, or `errno 28`"
    );
}

/// The refusal of an append that `rules` strike.
fn refusal(code: Code, rules: Vec<Rule>) -> (Fixture, Store<ScriptedOps>, Error) {
    let (fixture, store) = Fixture::with_entries(1);
    for rule in rules {
        fixture.ops.plan(rule);
    }
    let error = refused(store.append(None, user("m")), code);
    (fixture, store, error)
}

#[test]
fn a_refusal_names_code_cause_error_number_path_stage_and_requirement() {
    let full = at(Op::CreateNew, Role::Temporary, What::Before(Errno::ENOSPC));
    let (fixture, _store, error) = refusal(Code::Io, vec![full]);
    assert_eq!(
        error.to_string(),
        format!(
            "SESSION_IO: cannot create a temporary: no space left on device (ENOSPC), at {}, stage C2 temp-create [C2]",
            fixture.path().display()
        )
    );
    assert_eq!(format!("{error:?}"), error.to_string());
    assert_eq!(error.help(), Code::Io.help());
    assert_eq!(error.message(), "cannot create a temporary");
}

#[test]
fn a_refused_file_is_refused_with_line_column_and_byte() {
    let error = decode(b"\n".to_vec()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "SESSION_INVALID_JSON: expected one JSON value, found an empty line, line 1, column 1, byte 0 [F3]"
    );
}

// Requirement: S8
#[test]
fn a_refusal_because_of_another_commit_says_so_and_advises_to_wait() {
    let held = at(Op::TryLock, Role::Temporary, What::Held).for_ever();
    let (_fixture, _store, error) = refusal(Code::Io, vec![held]);
    assert!(error.to_string().ends_with(", stage C1 verify, another commit is in flight [C1]"), "{error}");
    assert_eq!(error.help(), "wait for the other process's commit, then try again");
}

// Requirement: C20
#[test]
fn a_doubtful_commit_says_both_causes_and_that_the_store_is_poisoned() {
    let rename = at(Op::Rename, Role::Temporary, What::Before(Errno::EIO));
    let unlink = at(Op::Unlink, Role::Marker, What::Before(Errno::EPERM)).for_ever();
    let (fixture, _store, error) = refusal(Code::RollbackFailed, vec![rename, unlink]);
    let at = format!(", at {}", fixture.path().display());
    assert_eq!(
        error.to_string(),
        format!(
            "SESSION_ROLLBACK_FAILED: the commit failed and its roll back is not proved: \
             SESSION_IO: cannot rename the temporary over the file: input/output error (EIO){at}, stage C8 rename [C8]\
             : input/output error (EIO){at}, stage C8 rename, the store is poisoned [C20]; roll back: \
             SESSION_IO: cannot remove the recovery marker: operation not permitted (EPERM){at}, stage C8 rename [C8]"
        )
    );
    assert_eq!((error.errno(), error.stage()), (Some(Errno::EIO), Some(Stage::C8)));
    assert_eq!(error.path(), Some(&*fixture.path()));
    assert_eq!(error.rollback_cause().and_then(Error::errno), Some(Errno::EPERM));
}

// Requirement: F3, F4
#[test]
fn a_line_that_is_not_json_says_what_was_found_instead() {
    let header = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;
    for (line, requirement, found) in [
        ("\n", "F3", "one JSON value, found an empty line"),
        ("\r\n", "F3", "one JSON value, found an empty line"),
        ("\r", "F4", "one JSON value, found an empty line"),
        ("{\"a\":\n", "F3", "one JSON value, found the end of the line within it"),
        (" \n", "F3", "one JSON value, found the end of the line within it"),
        ("[1", "F4", "a JSON value or the beginning of an object, found another beginning"),
        (" ", "F4", "a JSON value or the beginning of an object, found another beginning"),
        ("{,", "F4", "one JSON value, found a byte that none has here"),
        ("{,\n", "F3", "one JSON value, found a byte that none has here"),
    ] {
        let error = decode(format!("{header}\n{line}").into_bytes()).unwrap_err();
        assert_eq!((error.code(), error.requirement()), (Code::InvalidJson, requirement), "{line:?}");
        assert_eq!(error.message(), format!("expected {found}"), "{line:?}");
    }
}

#[test]
fn what_is_printed_for_debugging_names_session_entries_and_leaf() {
    let (fixture, store) = Fixture::with_entries(1);
    let tree = store.tree();
    let shown = format!("Store {{ path: {:?}, session: \"s\", entries: 1 }}", fixture.path());
    assert_eq!(format!("{store:?}"), shown);
    assert_eq!(format!("{tree:?}"), format!("Tree {{ store: {shown}, leaf: Some(\"e-1\") }}"));
    let entry = "Entry { id: \"e-1\", parent_id: None, timestamp: \"t-2\", \
                 message: User { id: \"m-1\", content: \"words\" } }";
    assert_eq!(format!("{:?}", store.entries()), format!("[{entry}]"));
    assert_eq!(format!("{:?}", options()), "Options { session_id: Some(\"s\"), .. }");
    assert_eq!(format!("{:?}", fixture.ops.path_locks()), "PathLocks { .. }");
}

// Requirement: R3, R4, F9.duplicate-names, F9.surrogates
#[test]
fn a_refused_message_says_what_was_expected_and_what_was_found_there() {
    // A bar stands before what is refused.
    for (message, words) in [
        ("|[]", "a message, which is an object, found an array"),
        (r#"|{"role":"user","content":""}"#, "a message with the field `id`, found none of that name"),
        (
            r#"{"id":|"","role":"user","content":""}"#,
            "the id of a message to be a string that is not blank, found the string ``",
        ),
        (
            r#"{"id":"m","role":"user","content":|{}}"#,
            "the content of a message to be a string, found an object",
        ),
        (
            r#"{"id":"m","role":"user","content":|[]}"#,
            "the content of a message to be a string, found an array",
        ),
        (
            r#"{"id":"m","role":"user","content":|-1.5e3}"#,
            "the content of a message to be a string, found the number `-1.5e3`",
        ),
        (
            r#"{"id":"m","role":"user","content":|null}"#,
            "the content of a message to be a string, found `null`",
        ),
        (
            r#"{"id":"m","role":"user","content":"a|\ud83d"}"#,
            "text within a message, found an escape of half a surrogate pair",
        ),
        (
            r#"{"id":"m","role":"user","content":"",|"extra":1}"#,
            "only the fields of a message, found `extra` as well",
        ),
        (
            r#"{"id":"m",|"id":"n","role":"user","content":""}"#,
            "each name once in an object of a message, found `id` again",
        ),
        (
            r#"{"id":"m","role":|"model","content":""}"#,
            "the role of a message to be `user`, `assistant` or `toolResult`, found the string `model`",
        ),
        (
            r#"{"id":"m","role":|"forty-letters-are-shown-of-a-long-string","content":""}"#,
            "the role of a message to be `user`, `assistant` or `toolResult`, \
             found the string `forty-letters-are-shown-of-a-long-string`",
        ),
        (
            r#"{"id":"m","role":|"forty-letters-are-shown-of-a-long-string!","content":""}"#,
            "the role of a message to be `user`, `assistant` or `toolResult`, \
             found the string `forty-letters-are-shown-of-a-long-string…`",
        ),
        (
            r#"{"id":"m","role":"assistant","content":[|7]}"#,
            "a content block, which is an object, found the number `7`",
        ),
        (
            r#"{"id":"m","role":"assistant","content":[|{}]}"#,
            "a content block with the field `type`, found none of that name",
        ),
        (
            r#"{"id":"m","role":"assistant","content":[{"type":|"image"}]}"#,
            "the type of a content block to be `text` or `toolCall`, found the string `image`",
        ),
        (
            r#"{"id":"m","role":"assistant","content":[|{"type":"text"}]}"#,
            "a text block with the field `text`, found none of that name",
        ),
        (
            r#"{"id":"m","role":"assistant","content":[{"type":"toolCall",|"x":1}]}"#,
            "only the fields of a tool call, found `x` as well",
        ),
        (
            r#"{"id":"m","role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":|[]}]}"#,
            "the arguments of a tool call to be an object, found an array",
        ),
        (
            r#"{"id":"m","role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"b":1,|"b":2}}]}"#,
            "each name once in an object of a tool call, found `b` again",
        ),
    ] {
        let place = message.find('|').unwrap();
        let error = Message::from_json(&message.replace('|', "")).unwrap_err();
        assert_eq!(error.message(), format!("expected {words}"), "{message}");
        assert_eq!(error.position().map(|position| position.offset), Some(place), "{message}");
        assert_eq!(error.position().map(|position| (position.line, position.column)), Some((1, place + 1)));
    }
}

#[test]
fn what_is_not_a_session_file_is_called_by_its_kind() {
    for (kind, words) in [
        (FileKind::Regular, "a regular file"),
        (FileKind::Directory, "a directory"),
        (FileKind::Symlink, "a symbolic link"),
        (FileKind::Fifo, "a FIFO"),
        (FileKind::Other, "a device or socket"),
    ] {
        assert_eq!(kind.words(), words);
    }
}

// Requirement: F2, F7
#[test]
fn a_survey_tells_the_place_of_a_byte_that_is_no_text_and_goes_on_behind_a_refused_header() {
    let header = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;
    let file = [header.as_bytes(), b"\n{\"a\":\"\xff\"}\n"].concat();
    let at = header.len() + 1 + 6;
    let places: Vec<_> =
        problems(file.clone()).iter().map(|error| error.position().unwrap().offset).collect();
    assert_eq!(places, [at]);
    assert_eq!(decode(file).unwrap_err().position().unwrap().offset, at);

    let file = b"{\"type\":\"header\"}\n{\"type\":\"entry\"}\n";
    let told: Vec<_> =
        problems(file.to_vec()).iter().map(|error| (error.code(), error.position().unwrap().line)).collect();
    assert_eq!(told, [(Code::InvalidHeader, 1), (Code::InvalidRecord, 2)]);
}

// Requirement: F7, F9.surrogates
#[test]
fn half_a_pair_within_an_array_of_a_message_is_the_messages_also_behind_an_object() {
    let header = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;
    let message = r#"{"id":"m","role":"assistant","content":[{"type":"text","text":"x"},"\ud83d"]}"#;
    let entry = format!(
        r#"{{"type":"entry","version":1,"id":"e","parentId":null,"timestamp":"t","message":{message}}}"#
    );
    let error = decode(format!("{header}\n{entry}\n").into_bytes()).unwrap_err();
    assert_eq!((error.code(), error.requirement()), (Code::InvalidMessage, "F9.surrogates"), "{error}");
    assert_eq!(error.position().map(|place| place.line), Some(2));
}

// Requirement: F3
#[test]
fn text_that_is_not_json_is_refused_at_the_first_byte_that_none_has_there() {
    for (text, column) in [
        ("x", 1),
        (r#"{"a":"\x"}"#, 8),
        (r#""\u12g4""#, 6),
        (r#""\ug123""#, 4),
        (r#""\ud83d\u00g0""#, 12),
        ("\"a\u{1}\"", 3),
        ("trux", 4),
        ("fals3", 5),
        ("nulL", 4),
        ("-a", 2),
        ("1.x", 3),
        ("1e+x", 4),
        ("01", 2),
        (r#"{"a" 1}"#, 6),
        (r#"{"a":1,}"#, 8),
        (r#"{"a":1]"#, 7),
        ("{1}", 2),
        ("[1 2]", 4),
        ("[1,]", 4),
        ("[1]]", 4),
    ] {
        let error = Message::from_json(text).unwrap_err();
        assert_eq!(error.code(), Code::InvalidJson, "{text}");
        assert_eq!(error.position().map(|place| place.column), Some(column), "{text}");
    }
}
