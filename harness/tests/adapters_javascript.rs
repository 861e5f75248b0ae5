//! The adapters in JavaScript, where Node.js is: the course's against a stand-in with its interface, and Pi's where its
//! script has installed it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;

use session_harness::subject::command::{Command, Remote, Use};
use session_harness::suite::any_store::{CASES, Outcome, Store, check};

fn adapters() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/adapters")
}

/// Says so where a test cannot run. Not with a macro, whose words the test runner keeps to itself.
fn skip(what: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {what}");
}

fn node_is_here() -> bool {
    let is_new_enough = "process.exit(Number(process.versions.node.split('.')[0]) < 20 ? 1 : 0)";
    let is_here = process::Command::new("node").args(["-e", is_new_enough]).status();
    let is_here = is_here.is_ok_and(|status| status.success());
    if !is_here {
        skip("what needs Node.js of 20 or later, which is not here");
    }
    is_here
}

fn greet(arguments: &[PathBuf]) -> Remote {
    let arguments = arguments.iter().map(|argument| argument.clone().into_os_string());
    Remote::greet(Command::new("node", arguments), Use::Again).expect("a handshake")
}

fn outcome(remote: &Remote, name: &str) -> Outcome {
    let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
    let outcome = check(case, &Store::of(remote.hello(), |manner| remote.start_as(manner)));
    outcome.expect("the harness can do its part")
}

/// The names that the course's store has, on a file of JSON lines without any of its promises.
const STAND_IN: &str = r#"
const fs = require("node:fs");

class SessionStore {
  static async create(file) {
    const header = { type: "session", version: 1, id: "s", createdAt: "t" };
    fs.writeFileSync(file, JSON.stringify(header) + "\n", { flag: "wx" });
    return new SessionStore(file, header, []);
  }

  static async load(file) {
    const [header, ...entries] = fs.readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
    return new SessionStore(file, header, entries);
  }

  constructor(file, header, entries) {
    Object.assign(this, { file, header, entries });
  }

  async append(parentId, message) {
    if (parentId !== null && !this.entries.some((entry) => entry.id === parentId)) {
      throw Object.assign(new Error("no such parent"), { code: "SESSION_PARENT_NOT_FOUND" });
    }
    const id = String(Math.random());
    const entry = { type: "entry", version: 1, id, parentId, timestamp: "t", message };
    fs.appendFileSync(this.file, JSON.stringify(entry) + "\n");
    this.entries.push(entry);
    return entry;
  }

  async flush() {}
}

class SessionTree {
  constructor(store) {
    this.store = store;
    this.activeLeafId = store.entries.at(-1)?.id ?? null;
  }

  async moveTo(id) {
    this.activeLeafId = id;
  }

  async append(message) {
    const entry = await this.store.append(this.activeLeafId, message);
    this.activeLeafId = entry.id;
    return entry;
  }

  get activeEntries() {
    const path = [];
    for (let id = this.activeLeafId; id !== null; id = path[0].parentId) {
      path.unshift(this.store.entries.find((entry) => entry.id === id));
    }
    return path;
  }
}

module.exports = { SessionStore, SessionTree };
"#;

#[test]
fn the_adapter_for_the_course_speaks_for_a_module_with_its_names() {
    if !node_is_here() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let module = directory.path().join("session.cjs");
    fs::write(&module, STAND_IN).expect("a module");
    let remote = greet(&[adapters().join("course/adapter.js"), module]);
    assert_eq!((remote.hello().name.as_str(), remote.hello().is_native()), ("course", true));
    for name in ["loaded-again", "refused-append", "other-branch", "killed-after-an-answer"] {
        assert_eq!(outcome(&remote, name), Outcome::Pass, "{name}");
    }
    // The stand-in does nothing for this.
    assert!(matches!(outcome(&remote, "damaged-middle"), Outcome::Violation(_)));
}

#[test]
fn what_the_readme_says_of_pi_is_seen() {
    if !node_is_here() {
        return;
    }
    let pi = adapters().join("pi");
    if !pi.join("installed/node_modules/@earendil-works/pi-coding-agent").is_dir() {
        skip("what needs Pi, which scripts/adapters/pi/install.sh brings");
        return;
    }
    let readme = fs::read_to_string(pi.join("README.md")).expect("the README");
    let remote = greet(&["--max-old-space-size=256".into(), pi.join("adapter.js")]);
    assert!(readme.contains(&format!("SessionManager {}", remote.hello().version)), "of another version");
    // The slow ones are left to whoever reads it.
    for name in ["loaded-again", "other-branch", "removed", "damaged-middle", "file-size-limit-of-a-tree"] {
        let outcome = outcome(&remote, name);
        let is_broken = matches!(outcome, Outcome::Violation(_));
        assert_eq!(is_broken, readme.contains(&format!("`{name}`")), "{name}: {outcome:?}");
    }
}
