//! Files as editors, sync tools, other formats, databases and failing disks leave them: the diagnosis names the line and the
//! cause, and where it gives a command, that command mends the file.

use super::*;

struct Broken {
    name: &'static str,
    content: Vec<u8>,
    code: &'static str,
    line: usize,
    /// A part of the cause.
    cause: &'static str,
}

/// Header and entries of the canonical form, one a line: six messages, one of them with text that other tools trip over.
fn good() -> Vec<String> {
    let texts = ["first", "a \"quoted\" word\nand 21 °C", "third", "fourth", "fifth", "sixth"];
    let ids = ["a", "b", "c", "d", "e", "f"];
    let mut lines = vec![HEADER.to_owned()];
    for (place, (id, text)) in ids.iter().zip(texts).enumerate() {
        lines.push(entry(id, place.checked_sub(1).map(|before| ids[before]), text));
    }
    lines
}

/// Each line changed.
fn each(change: impl Fn(&str) -> String) -> Vec<u8> {
    lines(&good().iter().map(|line| change(line)).collect::<Vec<_>>())
}

/// The lines of a good file, changed as a whole.
fn with(change: impl FnOnce(&mut Vec<String>)) -> Vec<u8> {
    let mut good = good();
    change(&mut good);
    lines(&good)
}

fn utf16(text: &[u8], bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    String::from_utf8_lossy(text).encode_utf16().flat_map(bytes).collect()
}

fn replaced(content: &[u8], from: &str, to: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(content);
    let (before, after) = text.split_once(from).expect("it is there");
    [before.as_bytes(), to, after.as_bytes()].concat()
}

/// Laid out as formatters do, without the white space within lines that does not matter here.
fn laid_out(line: &str) -> String {
    line.replace("{\"", "{\n  \"").replace(",\"", ",\n  \"").replace('}', "\n}")
}

#[rustfmt::skip]
fn cases() -> Vec<Broken> {
    let file = lines(&good());
    let case = |name, content, code, line, cause| Broken { name, content, code, line, cause };
    let json = "SESSION_INVALID_JSON";
    let zeros = {
        [&file[..512], &[0; 64], &file[576..]].concat()
    };
    vec![
        case("PowerShell's redirection", [b"\xff\xfe".to_vec(), utf16(&file, u16::to_le_bytes)].concat(), "SESSION_INVALID_UTF8", 1, "the file is UTF-16"),
        case("UTF-16 without a mark", utf16(&file, u16::to_be_bytes), json, 1, "UTF-16 without a byte order mark"),
        case("Notepad's UTF-8", [&b"\xef\xbb\xbf"[..], &file].concat(), json, 1, "a byte order mark stands before the header"),
        case("a merge conflict", with(|lines| { lines.insert(5, "=======".to_owned()); lines.insert(4, "<<<<<<< HEAD".to_owned()); }), json, 5, "a merge left its conflict here"),
        case("cat of two sessions", [file.clone(), lines(&[HEADER.replace("\"s\"", "\"t\""), entry("z", None, "")])].concat(), "SESSION_INVALID_RECORD", 8, "another session begins here"),
        case("a backup restored by appending", file.repeat(2), "SESSION_INVALID_RECORD", 8, "the same session begins here again"),
        case("a rotated log", with(|lines| _ = lines.drain(..2)), "SESSION_INVALID_HEADER", 1, "the beginning of the file is missing"),
        case("sort", with(|lines| lines.sort()), "SESSION_INVALID_HEADER", 1, "the header stands further down, in line 7"),
        case("tac of the entries", with(|lines| lines[1..].reverse()), "SESSION_PARENT_NOT_FOUND", 2, "its parent stands further down, in line 3"),
        case("a copy that was resumed too early", with(|lines| lines.extend(lines[5..].to_vec())), "SESSION_DUPLICATE_ENTRY_ID", 8, "this repeats line 6 byte for byte"),
        case("two writers", with(|lines| lines.push(entry("f", Some("e"), "another"))), "SESSION_DUPLICATE_ENTRY_ID", 8, "line 7 has the id with another content"),
        case("grep -v", with(|lines| _ = lines.remove(3)), "SESSION_PARENT_NOT_FOUND", 4, "lines above this one are missing"),
        case("a hole after a disk check", zeros, json, 5, "64 bytes of zero follow here, on the border of a disk's sector"),
        case("a power cut during another tool's write", [&file[..file.len() - 40], &[0; 40]].concat(), json, 7, "40 bytes of zero follow here, to the end of the file"),
        case("a tab from the clipboard", with(|lines| lines[4] = lines[4].replace("fourth", "fou\trth")), json, 5, "a raw control byte (0x09) stands within a text"),
        case("a flipped bit in a quote", replaced(&file, "\"id\":\"d\"", b"\"id\":\"d\xa2"), "SESSION_INVALID_UTF8", 5, "byte 0xa2 is `¢` in Latin-1"),
        case("a flipped bit in a colon", replaced(&file, "\"id\":\"d\"", b"\"id\";\"d\""), json, 5, "one bit is flipped: with `:`"),
        case("an editor in Latin-1", replaced(&file, "°", b"\xb0"), "SESSION_INVALID_UTF8", 3, "byte 0xb0 is `°` in Latin-1"),
        case("a character cut off", [&replaced(&file, "third", "thi\u{20ac}".as_bytes())[..], b"{\"type\":\"\xe2\x82"].concat(), "SESSION_INVALID_UTF8", 8, "cut off within a character"),
        case("binary data", [&file[..], &(0..=255).rev().collect::<Vec<u8>>(), b"\n"].concat(), "SESSION_INVALID_UTF8", 8, "binary data"),
        case("export as CSV", each(|line| format!("\"{}\"", line.replace('"', "\"\""))), json, 1, "fields of a CSV file"),
        case("COPY of a database", each(|line| line.replace('\\', r"\\")), json, 3, "backslashes are doubled"),
        case("a dump of a database", each(|line| format!("INSERT INTO lines VALUES ('{line}');")), json, 1, "a dump of a database"),
        case("cat -n", each(|line| format!("     1\t{line}")), json, 1, r"`     1\u{9}` was put in front of the record"),
        case("docker logs", each(|line| format!("2026-01-01T00:00:00Z {line}")), json, 1, "`2026-01-01T00:00:00Z ` was put in front"),
        case("the plus of a diff", with(|lines| lines[3].insert(0, '+')), json, 4, "`+` was put in front of the record"),
        case("fold", each(|line| line.as_bytes().chunks(60).map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join("\n")), json, 1, "it was broken at 60 bytes"),
        case("a line wrapped by an editor", with(|lines| lines[3].insert(70, '\n')), json, 4, "it was broken at 70 bytes"),
        case("jq without -c", each(laid_out), json, 1, "laid out over several lines"),
        case("jq -s", format!("[\n{}\n]\n", good().join(",\n")).into_bytes(), json, 1, "put into a JSON array"),
        case("the inside of an array", each(|line| format!("{line},")), json, 1, "a comma stands behind the record"),
        case("line ends of old", each(str::to_owned).iter().map(|byte| if *byte == b'\n' { b'\r' } else { *byte }).collect(), json, 1, "lines end in a carriage return alone"),
        case("J in vi", with(|lines| { let next = lines.remove(4); lines[3] += &next; }), json, 4, "the line feed between two records is gone"),
        case("a torn tail that was written on", with(|lines| { let next = lines.remove(4); lines[3].truncate(60); lines[3] += &next; }), json, 4, "a record was cut off and another one written behind it, at column 61"),
        case("a torn tail with a line feed", with(|lines| lines[3].truncate(60)), json, 4, "the record was cut off, and another writer went on"),
        case("echo behind a torn tail", with(|lines| lines.push("{\"type\":\"entry\",\"ver".to_owned())), json, 8, "somebody wrote behind it: a torn tail has no line feed"),
        case("empty lines", with(|lines| lines.insert(1, String::new())), json, 2, "an empty line"),
        case("an editor of DOS", [&file[..], b"\x1a"].concat(), json, 8, "a Ctrl-Z ends the file"),
        case("grep with colours", with(|lines| lines[2] = format!("\u{1b}[31m{}\u{1b}[0m", lines[2])), json, 3, "the colours of a terminal"),
        case("Python's str", each(|line| line.replace('"', "'")), json, 1, "as Python's `str` writes them"),
        case("a shell's quotes", with(|lines| lines[2] = lines[2].replace("\"role\"", "'role'")), json, 3, "as `sed` and shells leave them"),
        case("a word processor", with(|lines| lines[2] = lines[2].replacen("\"role\"", "“role”", 1)), json, 3, "typographic quotes"),
        case("JavaScript", with(|lines| lines[2] = lines[2].replacen("\"b\"", "undefined", 1)), json, 3, "a word of another language"),
        case("a spreadsheet", each(|line| line.replace("\"version\":1", "\"version\":\"1\"")), "SESSION_UNSUPPORTED_VERSION", 1, "the number was put in quotes"),
        case("an error page", b"<!DOCTYPE html>\n<title>502</title>\n".to_vec(), json, 1, "an HTML page"),
        case("Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec(), json, 1, "what Git LFS leaves"),
        case("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec(), "SESSION_INVALID_UTF8", 1, "compressed by gzip"),
        case("SQLite", b"SQLite format 3\0\x10\0\x01\x01".to_vec(), json, 1, "an SQLite database"),
        case("Pi", br#"{"type":"session","version":3,"id":"8e","timestamp":"t","cwd":"/home/x"}"#.to_vec(), "SESSION_INVALID_HEADER", 1, "a session of Pi"),
    ]
}

// Requirement: F2, F3, F4, R1, R2, R5, R7
#[test]
fn what_tools_and_accidents_do_to_a_file_is_told_with_line_and_cause() {
    check(lines(&good()), Accepted { entries: 6, torn_tail: 0 });
    for Broken { name, content, code, line, cause } in cases() {
        let files = Files::new();
        let path = files.file(&content);
        let value = finish(harness().args(["verify", "--json"]).arg(&path)).json();
        assert_eq!(
            (value["code"].as_str(), value["line"].as_u64()),
            (Some(code), Some(line as u64)),
            "{name}: {value}"
        );
        let likely = value["likely"].as_str().unwrap_or_default();
        assert!(likely.contains(cause), "{name}: {value}");
        let words = finish(harness().arg("verify").arg(&path));
        for part in [
            format!("likely cause: {likely}\n"),
            format!("help: {}\n", value["help"].as_str().expect("help")),
        ] {
            assert!(words.out().contains(&part), "{name}: {part} in {}", words.out());
        }
        assert_harmless(words.out());
        assert!(words.out().lines().all(|line| line.width() < 250), "{}", words.out());
        mend(name, &files, value["help"].as_str().expect("help"));
    }
}

/// Runs the command that the advice gives, if it gives one, and checks that the outcome loads.
fn mend(name: &str, files: &Files, help: &str) {
    let Some((command, _)) = help.strip_prefix('`').and_then(|rest| rest.split_once(" > NEW`")) else {
        return;
    };
    let mended = files.path("NEW");
    let ran = Command::new("sh")
        .args(["-c", &format!("{command} > '{}'", mended.display())])
        .stderr(Stdio::null())
        .status()
        .expect("a shell");
    if ran.code() == Some(127) || name == "gzip" {
        return eprintln!("SKIPPED: `{command}` needs a program that is not here, or a whole file");
    }
    let verified = finish(harness().arg("verify").arg(&mended));
    assert_eq!(verified.status, Some(0), "{name}: {command}: {}", verified.out());
    assert!(verified.out().contains(": ok, 6 entries"), "{name}: {command}: {}", verified.out());
}

// Requirement: L1, L2
#[test]
fn a_broken_linkage_is_told_with_the_line_of_the_call() {
    let of = |id: &str, parent: Option<&str>, message: Value| {
        json!({"type": "entry", "version": 1, "id": id, "parentId": parent, "timestamp": "t", "message": message}).to_string()
    };
    let call = json!({"id": "m", "role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "n", "arguments": {}}]});
    let result = json!({"id": "m", "role": "toolResult", "toolCallId": "c", "toolName": "n", "content": "", "isError": false});
    let (call, result) =
        (|id, parent| of(id, parent, call.clone()), |id, parent| of(id, parent, result.clone()));
    let cases = [
        (vec![result("a", None)], 2, "no line of the file has that call"),
        (vec![result("a", None), call("b", Some("a"))], 2, "the call stands further down, in line 3"),
        (vec![call("a", None), result("b", None)], 3, "line 2 has the call, and is not above"),
        (
            vec![call("a", None), result("b", Some("a")), result("c", Some("b"))],
            4,
            "line 2 has the call, and this entry repeats",
        ),
        (vec![call("a", None), call("b", Some("a"))], 3, "line 2 has the call, and this entry repeats"),
    ];
    for (entries, line, cause) in cases {
        let files = Files::new();
        let path = files.file(lines(&[vec![HEADER.to_owned()], entries].concat()));
        let value = finish(harness().args(["verify", "--json"]).arg(&path)).json();
        assert_eq!(
            (value["code"].as_str(), value["line"].as_u64()),
            (Some("SESSION_INVALID_TOOL_LINKAGE"), Some(line))
        );
        assert!(value["likely"].as_str().is_some_and(|likely| likely.contains(cause)), "{value}");
    }
}

// Requirement: S2, S3
#[test]
fn a_path_that_is_not_the_sessions_own_is_told_with_the_one_that_is() {
    let files = Files::new();
    let path = files.file(lines(&good()));
    let real = path.canonicalize().expect("a path");
    symlink(&path, files.path("link")).expect("a link");
    symlink(files.directory.path(), files.path("directory")).expect("a link");
    symlink("nowhere", files.path("broken")).expect("a link");
    let through = files.path("directory").join("session.jsonl");
    for (path, part) in [
        (files.path("link"), real.to_str().expect("text")),
        (through, real.to_str().expect("text")),
        (files.path("broken"), "this one leads nowhere"),
        (files.path("broken/x"), "leads nowhere: check the path"),
        (files.directory.path().to_owned(), "a session file in that directory"),
        (path.join("x"), "is no directory"),
        (files.path("missing"), "nothing has that name"),
        (files.path("missing/x"), "its directory is not there"),
    ] {
        let ran = finish(harness().arg("verify").arg(&path));
        assert!(ran.out().contains("= help: ") && ran.out().contains(part), "{part}: {}", ran.out());
    }
}
