//! A gallery of broken adapters: each is told apart from the others, in words that help, and nothing of it goes on
//! living. They are shell scripts, so that nothing but the system is needed.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{self, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use session_harness::call::{Call, Reply};
use session_harness::protocol::MAX_LINE_BYTES;
use session_harness::subject::Subject as _;
use session_harness::subject::command::{Command, Limits, Over, Running, StartError, Starter, Use};
use tempfile::TempDir;

/// Long enough for every machine; what waits for it is not in this file.
const PATIENT: Duration = Duration::from_secs(50);
/// For adapters that never answer.
const SHORT: Duration = Duration::from_millis(300);

/// Notes every process, and answers the handshake.
const PRELUDE: &str = r#"
note() { echo "$1" >> "$(dirname "$0")/processes"; }
note $$
greet() {
    read -r line
    echo '{"id":1,"ok":{"protocol":1,"name":"broken","version":"1","language":"sh","format":"other","capabilities":[]}}'
}
"#;

/// An adapter that does what `body` says.
struct Adapter {
    directory: TempDir,
}

impl Adapter {
    fn new(body: &str) -> Adapter {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("adapter.sh"), format!("{PRELUDE}\n{body}\n")).expect("a script");
        fs::create_dir(directory.path().join("empty")).expect("a directory");
        Adapter { directory }
    }

    fn script(&self) -> PathBuf {
        self.directory.path().join("adapter.sh")
    }

    fn command(&self, limits: Limits) -> Command {
        Command::new("sh", [self.script().into_os_string()]).with_limits(limits)
    }

    fn start(&self, limits: Limits) -> Result<Running, StartError> {
        self.command(limits).start(&self.directory.path().join("empty"))
    }

    fn started(&self) -> Running {
        self.start(patient()).expect("a handshake")
    }

    /// How it fails to start, in words, after which none of it lives.
    fn refused(&self, limits: Limits) -> String {
        let error = self.start(limits).map(|running| format!("{running:?}")).expect_err("no handshake");
        assert!(matches!(error, StartError::Handshake { .. } | StartError::Version(_)), "{error:?}");
        self.expect_no_process();
        error.to_string()
    }

    /// The answer to its first call, after which none of it lives.
    fn replied(&self, limits: Limits) -> Reply {
        let mut running = self.start(limits).expect("a handshake");
        let reply = running.call(&flush());
        assert_eq!(running.call(&flush()), reply, "what ended it is the answer to everything from then on");
        self.expect_no_process();
        reply
    }

    fn protocol_error(&self) -> String {
        match self.replied(patient()) {
            Reply::Protocol(what) => what,
            other => panic!("{other:?}"),
        }
    }

    fn processes(&self) -> Vec<i32> {
        let noted = fs::read_to_string(self.directory.path().join("processes")).unwrap_or_default();
        noted.lines().map(|line| line.parse().expect("a process id")).collect()
    }

    /// Waits, since a process that was killed takes a moment to go.
    fn expect_no_process(&self) {
        let processes = self.processes();
        assert!(!processes.is_empty(), "a script that noted no process shows nothing");
        for _ in 0..1_000 {
            if !processes.iter().any(|process| is_alive(*process)) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("of {processes:?} some are alive");
    }
}

/// Whether the process runs; one that has ended may still wait for its parent to look.
fn is_alive(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

fn patient() -> Limits {
    Limits { first: PATIENT, each: PATIENT, end: PATIENT }
}

fn flush() -> Call {
    Call::Flush { store: "s".to_owned() }
}

fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn a_command_that_does_not_exist_or_cannot_run_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = |program: PathBuf| {
        Command::new(program, [])
            .start(directory.path())
            .map(|_| ())
            .expect_err("no such program")
            .to_string()
    };
    contains(&start(directory.path().join("missing")), &["cannot start", "missing", "on PATH"]);
    fs::write(directory.path().join("plain"), "text").expect("a file");
    contains(&start(directory.path().join("plain")), &["cannot start", "make it executable"]);
}

#[test]
fn noise_before_the_first_answer_breaks_the_protocol() {
    let noise = Adapter::new("echo starting up; greet; sleep 1000").refused(patient());
    contains(&noise, &["not JSON", "starting up", "standard error"]);
}

#[test]
fn a_crash_at_the_start_shows_the_status_and_the_standard_error() {
    let crash = Adapter::new("echo 'Traceback: no module' >&2; exit 3").refused(patient());
    contains(
        &crash,
        &["ended before it answered", "exit status: 3", "its standard error:\n  | Traceback: no module"],
    );
}

#[test]
fn silence_at_the_start_is_a_late_answer() {
    let silent = Adapter::new("read -r line; sleep 1000").refused(Limits { first: SHORT, ..patient() });
    contains(&silent, &["did not answer `hello` within 300ms", "flush"]);
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let body = r#"read -r line; echo '{"id":1,"ok":{"protocol":2,"name":"","version":"","language":"","format":"","capabilities":[]}}'; sleep 1000"#;
    contains(&Adapter::new(body).refused(patient()), &["protocol 2", "harness 1"]);
    let incomplete = r#"read -r line; echo '{"id":1,"ok":{"protocol":1,"name":"x"}}'; sleep 1000"#;
    contains(&Adapter::new(incomplete).refused(patient()), &["missing field `version`"]);
}

#[test]
fn a_slow_start_has_the_limit_of_the_first_answer() {
    let adapter = Adapter::new(r#"sleep 1; greet; read -r line; echo '{"id":2,"ok":{}}'; read -r line"#);
    let mut running =
        adapter.start(Limits { each: Duration::from_secs(30), ..patient() }).expect("a handshake");
    assert!(matches!(running.call(&flush()), Reply::Ok(_)));
    assert_eq!(running.finish(), Ok(()));
    adapter.expect_no_process();
}

#[test]
fn a_late_answer_is_told_from_an_end_without_one() {
    let late = Adapter::new("greet; read -r line; sleep 1000");
    assert_eq!(late.replied(Limits { each: SHORT, ..patient() }), Reply::Timeout);
    let ended = Adapter::new("greet; read -r line; exit 7").replied(patient());
    assert_eq!(ended, Reply::Exited("exit status: 7, after `flush`".to_owned()));
    let Reply::Exited(killed) = Adapter::new("greet; read -r line; kill -9 $$").replied(patient()) else {
        panic!("not an end");
    };
    contains(&killed, &["signal: 9", "after `flush`"]);
}

#[test]
fn an_end_is_seen_although_another_process_holds_the_pipes() {
    let adapter = Adapter::new("greet; sleep 1000 & note $!; read -r line; exit 7");
    assert_eq!(adapter.replied(patient()), Reply::Exited("exit status: 7, after `flush`".to_owned()));
}

#[test]
fn answers_that_are_none_are_told_apart() {
    let answer = |text: &str| {
        Adapter::new(&format!("greet; read -r line; printf '%b\\n' '{text}'; sleep 1000")).protocol_error()
    };
    contains(&answer("done"), &["not JSON", "done"]);
    contains(&answer(""), &["not JSON"]);
    contains(&answer("[2]"), &["not an object", "[2]"]);
    contains(&answer(r#"{"ok":{}}"#), &["without `id`"]);
    contains(&answer(r#"{"id":99,"ok":{}}"#), &["the id is 99", "was 2"]);
    contains(&answer(r#"{"id":"2","ok":{}}"#), &["the id must be the number 2, not a string"]);
    contains(&answer(r#"{"id":1,"ok":{}}"#), &["a second answer to request 1"]);
    contains(&answer(r#"{"id":2}"#), &["without `ok`"]);
    contains(&answer(r#"{"id":2,"ok":{},"error":{"code":"X","message":""}}"#), &["more than one"]);
    contains(&answer(r#"{"id":2,"ok":null}"#), &["`flush`", "not an object"]);
    contains(&answer(r#"{"id":2,"error":{"message":"no code"}}"#), &["`error`", "missing field `code`"]);
    contains(&answer(r#"{"id":2,"unsupported":true}"#), &["`unsupported`"]);
    contains(&answer(r#"{"id":2,"ok":"\0377"}"#), &["not UTF-8", r"\xff"]);
}

#[test]
fn a_first_id_that_is_a_string_is_named_and_noise_is_sent_elsewhere() {
    let text = Adapter::new(r#"read -r line; echo '{"id":"1","ok":{}}'; sleep 1000"#).refused(patient());
    contains(&text, &["the id must be the number 1, not a string"]);
    assert!(!text.contains("standard output"), "{text}");
    let noise = Adapter::new(r"read -r line; echo ready; sleep 1000").refused(patient());
    contains(&noise, &["standard output is for answers"]);
}

#[test]
fn unknown_members_do_no_harm() {
    let adapter =
        Adapter::new(r#"greet; read -r line; echo '{"later":[1],"id":2,"ok":{"took":5}}'; read -r line"#);
    assert!(matches!(adapter.started().call(&flush()), Reply::Ok(_)));
}

#[test]
fn what_an_answer_must_have_is_named() {
    let adapter = Adapter::new(r#"greet; read -r line; echo '{"id":2,"ok":{}}'; sleep 1000"#);
    let mut running = adapter.started();
    let reply = running.call(&Call::Entries { store: "s".to_owned() });
    assert_eq!(reply, Reply::Protocol("the answer to `entries`: `entries` is missing".to_owned()));
    adapter.expect_no_process();
}

#[test]
fn a_second_answer_breaks_the_protocol_at_once_or_at_the_end() {
    let two =
        r#"greet; read -r line; printf '{"id":2,"ok":{}}\n{"id":2,"ok":{}}\n'; read -r line; sleep 1000"#;
    let adapter = Adapter::new(two);
    let mut running = adapter.started();
    assert!(matches!(running.call(&flush()), Reply::Ok(_)));
    let Reply::Protocol(what) = running.call(&flush()) else { panic!("a second answer was taken") };
    contains(&what, &["a second answer"]);
    adapter.expect_no_process();

    let at_the_end = Adapter::new(two);
    let mut running = at_the_end.started();
    assert!(matches!(running.call(&flush()), Reply::Ok(_)));
    let Err(Over::Broke(what)) = running.finish() else { panic!("a second answer was passed over") };
    contains(&what, &["a second answer"]);
    at_the_end.expect_no_process();
}

#[test]
fn half_a_line_is_no_answer() {
    let half = Adapter::new(r#"greet; read -r line; printf '{"id":2,"ok'; exit 0"#).protocol_error();
    contains(&half, &["half a line", "exit status: 0", r#"{"id":2,"ok"#]);
    let waiting = Adapter::new(r#"greet; read -r line; printf '{"id":2,"ok":{}}'; sleep 1000"#);
    assert_eq!(waiting.replied(Limits { each: SHORT, ..patient() }), Reply::Timeout);
}

#[test]
fn a_last_answer_before_the_end_counts() {
    let adapter = Adapter::new(r#"greet; read -r line; echo '{"id":2,"ok":{}}'"#);
    let mut running = adapter.started();
    assert!(matches!(running.call(&flush()), Reply::Ok(_)));
    assert!(matches!(running.call(&flush()), Reply::Exited(_)));
}

#[test]
fn output_without_an_end_is_cut_off_and_a_long_line_is_not() {
    let endless = Adapter::new("greet; read -r line; yes | tr -d '\\n'").protocol_error();
    contains(&endless, &[&format!("a line of more than {MAX_LINE_BYTES} bytes"), "`flush`"]);
    let long = r#"greet; read -r line; printf '{"id":2,"unsupported":"'; yes | head -c 4000000 | tr -d '\n'; echo '"}'; read -r line"#;
    let adapter = Adapter::new(long);
    let Reply::Unsupported(why) = adapter.started().call(&flush()) else { panic!("no answer") };
    assert_eq!(why.len(), 2_000_000);
}

#[test]
fn closing_standard_output_is_no_way_to_answer() {
    let closed = Adapter::new("greet; exec 1>&-; read -r line; sleep 1000").protocol_error();
    contains(&closed, &["standard output was closed"]);
}

#[test]
fn standard_error_is_kept_in_part_and_holds_up_nothing() {
    let body = r#"greet; yes noise | head -c 3000000 >&2; echo last words >&2; read -r line; echo '{"id":2,"ok":{}}'; read -r line"#;
    let mut running = Adapter::new(body).started();
    assert!(matches!(running.call(&flush()), Reply::Ok(_)));
    let said = running.said().expect("something was said");
    assert!(said.ends_with("last words\n") && said.len() < 20_000, "{} bytes", said.len());
}

#[test]
fn a_subject_that_does_not_read_is_late() {
    let adapter = Adapter::new("greet; sleep 1000");
    let mut running = adapter.start(Limits { each: SHORT, ..patient() }).expect("a handshake");
    let more_than_a_pipe = Call::Flush { store: "s".repeat(1 << 20) };
    assert_eq!(running.call(&more_than_a_pipe), Reply::Timeout);
    adapter.expect_no_process();
}

#[test]
fn what_ignores_the_end_of_input_and_sigterm_is_killed() {
    let adapter = Adapter::new("trap '' TERM HUP INT; greet; while :; do sleep 1000; done");
    let running = adapter.start(Limits { end: SHORT, ..patient() }).expect("a handshake");
    assert_eq!(running.finish(), Err(Over::Late(SHORT)));
    adapter.expect_no_process();
}

#[test]
fn noise_at_the_end_breaks_the_protocol() {
    let adapter = Adapter::new("greet; read -r line; echo bye");
    let Err(Over::Broke(what)) = adapter.started().finish() else { panic!("noise was passed over") };
    contains(&what, &["nobody asked for", "bye"]);
}

#[test]
fn processes_that_a_subject_started_end_with_it_wherever_they_went() {
    let adapter = Adapter::new(
        "greet; sleep 1000 & note $!; setsid sleep 1000 & note $!; sleep 0.2; read -r line; exit 0",
    );
    assert_eq!(adapter.started().finish(), Ok(()));
    assert_eq!(adapter.processes().len(), 3);
    adapter.expect_no_process();
}

#[test]
fn a_kill_and_a_panic_leave_no_process() {
    let body = "greet; sleep 1000 & note $!; setsid sleep 1000 & note $!; read -r line; sleep 1000";
    let killed = Adapter::new(body);
    Box::new(killed.started()).kill();
    killed.expect_no_process();
    let panicked = Adapter::new(body);
    let running = panicked.started();
    let panic = catch_unwind(AssertUnwindSafe(move || {
        let _running = running;
        panic!("of the harness, on purpose");
    }));
    assert!(panic.is_err());
    panicked.expect_no_process();
}

#[test]
fn ctrl_c_and_sigterm_end_the_subject_before_the_harness() {
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let adapter = Adapter::new("sleep 1000 & note $!; touch \"$0.ready\"; greet; sleep 1000");
        let mut harness = process::Command::new(env!("CARGO_BIN_EXE_session-harness"))
            .args(["adapter", "check", "--subject", &format!("sh {}", adapter.script().display())])
            .stdout(Stdio::null())
            .spawn()
            .expect("the harness starts");
        while !adapter.script().with_extension("sh.ready").exists() {
            sleep(Duration::from_millis(10));
        }
        let id = Pid::from_raw(harness.id().cast_signed()).expect("a process id");
        kill_process(id, signal).expect("the harness is there");
        let status = harness.wait().expect("a status");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(number), "{status}");
        adapter.expect_no_process();
    }
}

#[test]
fn a_subject_that_is_used_again_is_one_process_until_it_breaks() {
    let body = r#"greet; n=2; while read -r line; do
        case "$line" in *'"store":"break"'*) echo nonsense;; *) echo "{\"id\":$n,\"ok\":{\"header\":1}}";; esac; n=$((n + 1)); done"#;
    let adapter = Adapter::new(body);
    let starter = Starter::new(adapter.command(patient()), Use::Again);
    let create = Call::Create {
        store: "s".to_owned(),
        path: "p".to_owned(),
        session_id: None,
        ids: Vec::new(),
        clock: Vec::new(),
    };
    for _ in 0..3 {
        let mut subject = starter.start().expect("a handshake");
        assert!(matches!(subject.call(&create), Reply::Ok(_)));
        assert_eq!(subject.finish(), Ok(()));
    }
    assert_eq!(adapter.processes().len(), 1);
    let mut broken = starter.start().expect("a handshake");
    assert!(matches!(broken.call(&Call::Flush { store: "break".to_owned() }), Reply::Protocol(_)));
    assert!(matches!(broken.finish(), Err(Over::Broke(_))));
    assert_eq!(adapter.processes().len(), 1);
    drop(starter.start().expect("a handshake"));
    assert_eq!(adapter.processes().len(), 2);
    drop(starter);
    adapter.expect_no_process();

    let once = Starter::new(adapter.command(patient()), Use::Once);
    for _ in 0..2 {
        assert_eq!(once.start().expect("a handshake").finish(), Ok(()));
    }
    assert_eq!(adapter.processes().len(), 4);
}
