//! The checker against a store that lies, and the reader against files that are no case.

use std::path::PathBuf;

use super::*;
use crate::call::{Answer, Call, Refusal, Reply};
use crate::outsider::Outsider;
use crate::subject::{REFERENCE, Subject};
use crate::world::Backend;

const ENTRY: &str = r#"{"type":"entry","version":1,"id":"e1","parentId":null,"timestamp":"t","message":{"id":"m1","role":"user","content":"x"}}"#;

/// A case with these members, beside its title and level.
fn case(members: &str) -> Case {
    try_case(members).unwrap_or_else(|what| panic!("{members}: {what}"))
}

fn try_case(members: &str) -> Result<Case, String> {
    read_text(&format!(r#"{{"title":"a title","requirements":["F1"],"level":"must",{members}}}"#))
}

fn read_text(text: &str) -> Result<Case, String> {
    read_case("conformance/a/b", text.as_bytes(), &Arc::new(Files::default()))
}

type Alter = fn(&mut Reply);
type Act = fn(&Outsider, &Path);

/// How a store misbehaves: it acts on the files after a call, or gives another reply than it should.
#[derive(Clone, Copy)]
enum Lie {
    Files(&'static str, Act),
    Reply(&'static str, Alter),
}

struct Liar {
    honest: Box<dyn Subject>,
    lie: Lie,
    outsider: Outsider,
    session: PathBuf,
}

impl Subject for Liar {
    fn call(&mut self, call: &Call) -> Reply {
        let mut reply = self.honest.call(call);
        match self.lie {
            Lie::Files(name, act) if name == call.name() => act(&self.outsider, &self.session),
            Lie::Reply(name, alter) if name == call.name() => alter(&mut reply),
            Lie::Files(..) | Lie::Reply(..) => {}
        }
        reply
    }
}

fn check_liar(case: &Case, lie: Lie) -> Outcome {
    let honest = Environment::of(REFERENCE, Backend::Simulated);
    let start: Box<Start<'_>> = Box::new(|world, injector| {
        let honest = (honest.start)(world, injector);
        Box::new(Liar {
            honest,
            lie,
            outsider: world.outsider().clone(),
            session: world.session().to_owned(),
        })
    });
    let environment = Environment { backend: Backend::Simulated, start, injects: true };
    check(case, &environment).expect("a case that can be run")
}

#[track_caller]
fn assert_caught(case: &Case, lie: Lie, evidence: &str) {
    match check_liar(case, lie) {
        Outcome::Violation(told) => assert!(told.contains(evidence), "{told}"),
        other => panic!("{other:?}"),
    }
}

fn check_reference(case: &Case) -> Outcome {
    check(case, &Environment::of(REFERENCE, Backend::Simulated)).expect("a case that can be run")
}

fn change_answer(reply: &mut Reply, change: impl FnOnce(&mut Answer)) {
    if let Reply::Ok(answer) = reply {
        change(answer);
    }
}

fn change_refusal(reply: &mut Reply, change: impl FnOnce(&mut Refusal)) {
    if let Reply::Refused(refusal) = reply {
        change(refusal);
    }
}

fn accepted() -> Case {
    case(r#""input":[{"header":true},{"chain":2}],"expect":{"canonical":"input"}"#)
}

#[test]
fn an_honest_store_passes() {
    let canonical = ENTRY.replace('"', "\\\"");
    for members in [
        r#""input":[{"header":true},{"chain":2}],"expect":{"canonical":"input"}"#.to_owned(),
        r#""input":[{"header":true},{"text":"{"}],"expect":{"canonical":{"header":true},"torn_tail":1}"#.to_owned(),
        format!(r#""input":[{{"header":true}},{{"text":" {canonical}"}}],"expect":{{"canonical":[{{"header":true}},{{"text":"{canonical}\n"}}]}}"#),
        r#""input":[{"header":true},{"text":"\n"}],"expect":{"code":"SESSION_INVALID_JSON","line":2}"#.to_owned(),
        r#""script":[{"call":{"call":"load","store":"s","path":"session.jsonl"},"answers":{"error":{"code":"SESSION_IO","errno":"ENOENT"}}}]"#.to_owned(),
    ] {
        assert_eq!(check_reference(&case(&members)), Outcome::Pass, "{members}");
    }
}

#[test]
fn a_load_that_shows_something_else_is_caught() {
    let case = accepted();
    let lies: [(Alter, &str); 7] = [
        (|reply| change_answer(reply, |answer| answer.header.as_mut().unwrap().id.push('!')), "the header"),
        (
            |reply| change_answer(reply, |answer| drop(answer.entries.as_mut().unwrap().pop())),
            "expected 2 entries",
        ),
        (|reply| change_answer(reply, |answer| answer.entries.as_mut().unwrap().swap(0, 1)), "entry 1"),
        (
            |reply| change_answer(reply, |answer| answer.entries.as_mut().unwrap()[1].parent_id = None),
            "entry 2",
        ),
        (
            |reply| {
                change_answer(reply, |answer| answer.entries.as_mut().unwrap()[1].message = "{}".to_owned());
            },
            "entry 2",
        ),
        (|reply| change_answer(reply, |answer| answer.leaf = Some(Some("e1".to_owned()))), "the leaf \"e2\""),
        (|reply| *reply = Reply::Panicked("oh".to_owned()), "panicked: oh"),
    ];
    for (lie, evidence) in lies {
        assert_caught(&case, Lie::Reply("load", lie), evidence);
    }
}

#[test]
fn a_refusal_with_another_code_or_line_is_caught() {
    let case =
        case(r#""input":[{"header":true},{"text":"\n"}],"expect":{"code":"SESSION_INVALID_JSON","line":2}"#);
    assert_caught(
        &case,
        Lie::Reply("load", |reply| {
            change_refusal(reply, |refusal| refusal.code = "SESSION_INVALID_RECORD".to_owned());
        }),
        "the code",
    );
    assert_caught(
        &case,
        Lie::Reply("load", |reply| change_refusal(reply, |it| it.line = Some(1))),
        "the line",
    );
    assert_caught(
        &case,
        Lie::Reply("load", |reply| *reply = Reply::Ok(Answer::default())),
        "SESSION_INVALID_JSON",
    );
    let untold = Lie::Reply("load", |reply| change_refusal(reply, |refusal| refusal.line = None));
    assert_eq!(check_liar(&case, untold), Outcome::Pass, "a line that is not told is not compared");
}

#[test]
fn a_load_that_changes_the_directory_is_caught() {
    let acts: [Act; 5] = [
        |outsider, session| outsider.truncate(session, 3).unwrap(),
        |outsider, session| outsider.write_file(session, &outsider.read(session).unwrap()).unwrap(),
        |outsider, session| outsider.chmod(session, 0o600).unwrap(),
        |outsider, session| outsider.write_file(&session.with_file_name("more"), b"").unwrap(),
        |outsider, session| outsider.remove(session).unwrap(),
    ];
    for act in acts {
        assert_caught(&accepted(), Lie::Files("load", act), "the load changed the directory");
    }
}

#[test]
fn a_flush_that_writes_something_else_is_caught() {
    let acts: [Act; 2] = [
        |outsider, session| outsider.truncate(session, 3).unwrap(),
        |outsider, session| outsider.overwrite(session, b"{ ").unwrap(),
    ];
    for act in acts {
        assert_caught(&accepted(), Lie::Files("flush", act), "did not write the canonical form");
    }
    let refused = Lie::Reply("flush", |reply| *reply = Reply::Timeout);
    assert_caught(&accepted(), refused, "a flush was answered");
    let unsupported = Lie::Reply("flush", |reply| *reply = Reply::Unsupported("no flush".to_owned()));
    assert_eq!(check_liar(&accepted(), unsupported), Outcome::Pass, "a store may have no flush");
}

#[test]
fn an_append_that_is_lost_or_refused_is_caught() {
    let forgotten = Lie::Files("append", |outsider, session| {
        let bytes = outsider.read(session).unwrap();
        let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
        outsider.truncate(session, last as u64 + 1).unwrap();
    });
    assert_caught(&accepted(), forgotten, "after an append");
    let refused = Lie::Reply("append", |reply| *reply = Reply::Exited("status 1".to_owned()));
    assert_caught(&accepted(), refused, "an append was answered");
}

#[test]
fn a_store_that_cannot_load_is_not_judged() {
    let unsupported = Lie::Reply("load", |reply| *reply = Reply::Unsupported("no load".to_owned()));
    assert_eq!(check_liar(&accepted(), unsupported), Outcome::Unsupported("no load".to_owned()));
}

const SCRIPT: &str = r#""script":[
    {"call":{"call":"create","store":"s","path":"session.jsonl","sessionId":"session-1","ids":["e1","x"],
      "clock":["2026-01-01T00:00:00.000Z","2026-01-01T00:00:00.000Z"]},
     "answers":{"ok":{"header":{"type":"session","version":1,"id":"session-1","createdAt":"2026-01-01T00:00:00.000Z"}}}},
    {"call":{"call":"append","store":"s","parentId":null,"message":{"id":"m1","role":"user","content":"x"}},
     "answers":{"ok":{"entry":{"type":"entry","version":1,"id":"e1","parentId":null,
       "timestamp":"2026-01-01T00:00:00.000Z","message":{"content":"x","id":"m1","role":"user"}}}}},
    {"call":{"call":"entries","store":"s"},"answers":{"ok":{"lines":{"chain":1}}}},
    {"bytes":"session.jsonl","are":[{"header":true},{"chain":1}]},
    {"mode":"session.jsonl","is":"0600"},
    {"names":["session.jsonl"]},
    {"call":{"call":"append","store":"s","parentId":"y","message":{"id":"m1","role":"user","content":"x"}},
     "answers":{"error":{"code":"SESSION_PARENT_NOT_FOUND","poisoned":false}}}]"#;

#[test]
fn a_script_passes_on_an_honest_store() {
    assert_eq!(check_reference(&case(SCRIPT)), Outcome::Pass);
}

#[test]
fn a_script_is_violated_where_an_answer_or_the_disk_is_not_as_expected() {
    let case = case(SCRIPT);
    for (lie, evidence) in [
        (
            Lie::Reply("create", |reply| change_answer(reply, |answer| answer.header = None)),
            "step 1, create: ",
        ),
        (
            Lie::Reply("append", |reply| {
                change_answer(reply, |answer| answer.entry.as_mut().unwrap().id = "e2".to_owned());
            }),
            "step 2, append: expected",
        ),
        (
            Lie::Reply("entries", |reply| {
                change_answer(reply, |answer| answer.entries.as_mut().unwrap().clear());
            }),
            "step 3, entries: expected 1 entries, shown 0",
        ),
        (
            Lie::Files("append", |outsider, session| outsider.overwrite(session, b"[").unwrap()),
            "step 4, session.jsonl: ",
        ),
        (
            Lie::Files("append", |outsider, session| outsider.remove(session).unwrap()),
            "step 4, expected one file",
        ),
        (
            Lie::Files("append", |outsider, session| outsider.chmod(session, 0o644).unwrap()),
            "step 5, session.jsonl: expected the mode 0600, is 0644",
        ),
        (
            Lie::Files("create", |outsider, session| outsider.remove(session).unwrap()),
            "step 2, append: expected success",
        ),
        (
            Lie::Files("append", |outsider, session| outsider.mkdir(&session.with_file_name("x")).unwrap()),
            "step 6, expected the names [\"session.jsonl\"]",
        ),
        (
            Lie::Reply("append", |reply| {
                change_refusal(reply, |refusal| refusal.code = "SESSION_IO".to_owned());
            }),
            "step 7, append: expected the code",
        ),
        (
            Lie::Reply("append", |reply| change_refusal(reply, |refusal| refusal.poisoned = true)),
            "step 7, append: expected the poisoned",
        ),
        (
            Lie::Reply("create", |reply| *reply = Reply::Protocol("no JSON".to_owned())),
            "step 1, create: expected success",
        ),
    ] {
        assert_caught(&case, lie, evidence);
    }
}

#[test]
fn a_failure_of_the_operating_system_may_have_any_code_but_one_of_the_contract() {
    let case = case(
        r#""script":[{"call":{"call":"load","store":"s","path":"session.jsonl"},"answers":{"error":{"code":"SESSION_IO"}}}]"#,
    );
    let renamed = Lie::Reply("load", |reply| change_refusal(reply, |it| it.code = "OS_ERROR".to_owned()));
    assert_eq!(check_liar(&case, renamed), Outcome::Pass);
    let taken =
        Lie::Reply("load", |reply| change_refusal(reply, |it| it.code = "SESSION_FILE_CHANGED".to_owned()));
    assert_caught(&case, taken, "the code");
}

#[test]
fn a_store_that_takes_away_what_a_later_step_needs_is_caught() {
    let case = case(
        r#""script":[{"call":{"call":"create","store":"s","path":"session.jsonl"},"answers":{"ok":{}}},{"chmod":["session.jsonl","0640"]}]"#,
    );
    assert_eq!(check_reference(&case), Outcome::Pass);
    let removes = Lie::Files("create", |outsider, session| outsider.remove(session).unwrap());
    assert_caught(&case, removes, "step 2, which needs what the store has taken away");
}

fn choice(outcomes: &str) -> Case {
    let text = format!(
        r#"{{"title":"a title","requirements":["C25.mode"],"level":"choice","choice":"C25.mode",{outcomes}}}"#
    );
    read_text(&text).unwrap_or_else(|what| panic!("{text}: {what}"))
}

#[test]
fn a_choice_is_recorded_by_the_first_answer_that_holds() {
    let case = choice(
        r#""script":[{"write":"session.jsonl","bytes":{"header":true}},{"chmod":["session.jsonl","0640"]},
            {"call":{"call":"load","store":"s","path":"session.jsonl"},"answers":{"ok":{}}},
            {"call":{"call":"flush","store":"s"},"answers":{"ok":{}}}],
           "answers":{"private":[{"mode":"session.jsonl","is":"0600"}],"carried":[{"mode":"session.jsonl","is":"0640"}]}"#,
    );
    assert_eq!(check_reference(&case), Outcome::Recorded("carried".to_owned()));
    let private = Lie::Files("flush", |outsider, session| outsider.chmod(session, 0o600).unwrap());
    assert_eq!(check_liar(&case, private), Outcome::Recorded("private".to_owned()));
    let neither = Lie::Files("flush", |outsider, session| outsider.chmod(session, 0o666).unwrap());
    assert_caught(
        &case,
        neither,
        "not private: step 5, session.jsonl: expected the mode 0600, is 0666; not carried",
    );
}

#[test]
fn a_choice_of_one_input_is_recorded_too() {
    let case = choice(
        r#""input":{"header":true},"answers":{"private":{"code":"SESSION_INVALID_JSON"},"carried":{"canonical":"input"}}"#,
    );
    assert_eq!(check_reference(&case), Outcome::Recorded("carried".to_owned()));
}

const FAULT: &str = r#""script":[{"fault":"NAME@session#1 in load#1 = EIO before, once"},
    {"call":{"call":"load","store":"s","path":"session.jsonl"},"answers":{"error":{}}}]"#;

#[test]
fn a_fault_that_does_not_strike_makes_no_verdict() {
    assert_eq!(check_reference(&case(&FAULT.replace("NAME", "stat"))), Outcome::Pass);
    let outcome = check_reference(&case(&FAULT.replace("NAME", "rename")));
    assert!(
        matches!(&outcome, Outcome::Unsupported(reason) if reason.contains("did not strike")),
        "{outcome:?}"
    );
    let deaf = Environment { injects: false, ..Environment::of(REFERENCE, Backend::Simulated) };
    let outcome = check(&case(&FAULT.replace("NAME", "stat")), &deaf).expect("a case that can be run");
    assert!(matches!(outcome, Outcome::Unsupported(_)), "{outcome:?}");
}

#[test]
fn inputs_are_expanded_part_by_part() {
    let expand = |input: &str| {
        let case = case(&format!(r#""input":{input},"expect":{{"canonical":"input"}}"#));
        let Body::OneShot { input, .. } = &case.body else { panic!("one shot") };
        case.expand(input).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let header = "{\"type\":\"session\",\"version\":1,\"id\":\"session-1\",\"createdAt\":\"2026-01-01T00:00:00.000Z\"}\n";
    let line = |id: u8, parent: &str, content: &str| {
        format!(
            "{{\"type\":\"entry\",\"version\":1,\"id\":\"e{id}\",\"parentId\":{parent},\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"message\":{{\"id\":\"m{id}\",\"role\":\"user\",\"content\":\"{content}\"}}}}\n"
        )
    };
    for (input, expected) in [
        (r#"{"text":"a\u00e9"}"#, "aé".to_owned()),
        (r#"{"hex":"7b 22\n0A"}"#, "{\"\n".to_owned()),
        (
            r#"[{"text":"a"},{"repeat":[{"text":"b"},{"hex":"63"}],"times":2},{"cut":{"text":"def"},"to":2}]"#,
            "abcbcde".to_owned(),
        ),
        (r#"{"repeat":{"text":""},"times":18446744073709551615}"#, String::new()),
        (r#"{"header":true}"#, header.to_owned()),
        (r#"{"chain":2}"#, line(1, "null", "x") + &line(2, "\"e1\"", "x")),
        (r#"{"chain":1,"content":{"repeat":{"text":"\""},"times":2}}"#, line(1, "null", "\\\"\\\"")),
    ] {
        assert_eq!(expand(input).as_deref(), Ok(expected.as_str()), "{input}");
    }
    for (input, error) in [
        (r#"{"repeat":{"text":"12345678"},"times":2097153}"#, InputError::TooLarge),
        (r#"{"repeat":{"repeat":{"text":"x"},"times":4097},"times":4096}"#, InputError::TooLarge),
        (r#"[{"repeat":{"text":"x"},"times":16777216},{"text":"x"}]"#, InputError::TooLarge),
        (r#"{"chain":1000000}"#, InputError::TooLarge),
        (r#"{"cut":{"text":"ab"},"to":3}"#, InputError::NothingToCut { size: 2, to: 3 }),
        (r#"{"chain":1,"content":{"hex":"ff"}}"#, InputError::NotText),
    ] {
        assert_eq!(expand(input), Err(error), "{input}");
    }
}

#[test]
fn what_is_no_case_is_refused_with_a_reason() {
    let step = |step: &str| format!(r#""script":[{step}]"#);
    for (members, reason) in [
        (r#""input":{"header":true}"#.to_owned(), "it has neither"),
        (
            r#""input":{"header":true},"expect":{"canonical":"input"},"more":1"#.to_owned(),
            "unknown field `more`",
        ),
        (r#""input":{"header":true},"expect":{"canonical":"input","line":1}"#.to_owned(), "an outcome is"),
        (r#""input":{"header":true},"expect":{"code":"SESSION_NONE"}"#.to_owned(), "no code `SESSION_NONE`"),
        (r#""input":{"text":"a","hex":""},"expect":{"canonical":"input"}"#.to_owned(), "no part of an input"),
        (
            r#""input":{"repeat":{"text":"a"}},"expect":{"canonical":"input"}"#.to_owned(),
            "no part of an input",
        ),
        (r#""input":{"hex":"7b2"},"expect":{"canonical":"input"}"#.to_owned(), "not pairs"),
        (r#""input":{"file":"a.jsonl"},"expect":{"canonical":"input"}"#.to_owned(), "no file `a.jsonl`"),
        (r#""choice":"F9.bom","script":[{"lift":true}]"#.to_owned(), "a `must` has no `choice`"),
        (step(r#"{"jump":1}"#), "a step has one of"),
        (step(r#"{"remove":"a","more":1}"#), "a member `more` too many"),
        (step(r#"{"remove":"../a"}"#), "no name within"),
        (step(r#"{"remove":"/a"}"#), "no name within"),
        (step(r#"{"symlink":["/etc","a"]}"#), "no name within"),
        (step(r#"{"chmod":["a","9"]}"#), "no mode"),
        (step(r#"{"lift":false}"#), "is not true"),
        (step(r#"{"fault":"rename"}"#), "is not a fault"),
        (step(r#"{"fault":"stat@session#1 in load#1 = kill before, once"}"#), "kills nobody"),
        (step(r#"{"call":{"call":"flush","store":"s"}}"#), "`answers` is missing"),
        (step(r#"{"call":{"call":"flush","store":"s","more":1},"answers":{"ok":{}}}"#), "leave out"),
        (step(r#"{"call":{"call":"fly"},"answers":{"ok":{}}}"#), "no call is named `fly`"),
        (
            step(r#"{"call":{"call":"append","store":"s","message":{}},"answers":{"ok":{}}}"#),
            "`append` without `parentId`",
        ),
        (step(r#"{"call":{"call":"inspect","path":"../a"},"answers":{"ok":{}}}"#), "no name within"),
        (
            step(r#"{"call":{"call":"flush","store":"s"},"answers":{"ok":{"more":1}}}"#),
            "unknown field `more`",
        ),
        (
            step(r#"{"call":{"call":"flush","store":"s"},"answers":{"error":{"line":1}}}"#),
            "`line` is none of",
        ),
        (step(r#"{"call":{"call":"flush","store":"s"},"answers":{"error":{"code":"X"}}}"#), "no code `X`"),
    ] {
        let error = try_case(&members).expect_err(&members);
        assert!(error.contains(reason), "{members}: {error}");
    }
    for (text, reason) in [
        (r#"{"title":"a","requirements":[],"level":"must"}"#, "no requirement"),
        (r#"{"title":"a","requirements":["F99"],"level":"must"}"#, "no requirement `F99`"),
        (r#"{"title":"a","requirements":["F1"],"level":"may"}"#, "neither `must` nor `choice`"),
        (r#"{"title":"a","requirements":["F1"],"level":"choice"}"#, "names the `choice`"),
        (r#"{"title":"a","requirements":["F1"],"level":"choice","choice":"F1"}"#, "no choice `F1`"),
        (
            r#"{"title":"a","requirements":["F1"],"level":"choice","choice":"F9.bom","input":{"text":""},"answers":{"kept":{"canonical":"input"}}}"#,
            "`kept` is no answer to F9.bom",
        ),
        (
            r#"{"title":"a","requirements":["F1"],"level":"choice","choice":"F9.bom","script":[{"lift":true}],"answers":{"refused":{"canonical":"input"}}}"#,
            "an array of further steps",
        ),
    ] {
        let error = read_text(text).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn a_corpus_is_read_from_a_directory_in_the_order_of_its_ids() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(load(root.path()), Err(CorpusError::Unreadable { .. })));
    for topic in ["b", "a"] {
        fs::create_dir_all(root.path().join(NAME).join(topic)).unwrap();
    }
    assert!(matches!(load(root.path()), Err(CorpusError::Empty(_))));
    let write = |name: &str, text: &str| fs::write(root.path().join(NAME).join(name), text).unwrap();
    write("a/bytes.jsonl", "x");
    for name in ["b/one.json", "a/two.json", "a/one.json"] {
        write(
            name,
            r#"{"title":"a","requirements":["F3"],"level":"must","input":{"repeat":{"text":"x"},"times":1},"expect":{"code":"SESSION_INVALID_JSON"}}"#,
        );
    }
    write(
        "a/two.json",
        r#"{"title":"a","requirements":["F3"],"level":"must","input":{"file":"bytes.jsonl"},"expect":{"code":"SESSION_INVALID_JSON","line":1}}"#,
    );
    let cases = load(root.path()).unwrap();
    let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids, ["conformance/a/one", "conformance/a/two", "conformance/b/one"]);
    assert!(cases.iter().all(|case| check_reference(case) == Outcome::Pass));
    write("a/Upper.json", "{}");
    let error = load(root.path()).unwrap_err();
    assert!(error.to_string().starts_with("conformance/a/Upper.json is no case: "), "{error}");
}
