//! Every problem of a file that can be told, for whoever has to mend it. A load stops at the first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::decode::shape::Line;
use crate::decode::{Pass, Span, check_file_size, spans};
use crate::error::{Code, Error};
use crate::limits::MAX_SESSION_RECORDS;
use crate::linkage::violations;
use crate::text::Owner;

/// What is wrong with a session file, in the order of the file: nothing if and only if [`decode`](crate::decode())
/// accepts it, and else at least what that says.
///
/// A line is judged alone as far as that goes. What depends on a line that is refused is not reported: neither a parent
/// that may be an entry which cannot be read, nor the tool linkage below an entry that is in doubt. Lines beyond the most
/// that a session can have are not looked at. Linear in the bytes.
pub fn problems(bytes: Vec<u8>) -> Vec<Error> {
    if let Err(error) = check_file_size(&bytes) {
        return vec![error];
    }
    let mut survey = Survey::of(bytes);
    survey.read_lines();
    survey.check_linkage();
    survey.finish()
}

struct Survey {
    pass: Pass,
    found: Vec<Error>,
    /// Lines that are no UTF-8, by number.
    not_text: HashSet<usize>,
    /// The line of each entry of the pass.
    lines: Vec<Span>,
    /// Entries, by index, above which something is not known.
    apart: HashSet<u32>,
    /// Entries whose id a later line claims as well: what names it as parent may mean either.
    claimed_twice: HashSet<u32>,
    /// Ids of lines that are refused.
    refused: HashSet<String>,
    /// Whether a line is refused whose id is not known.
    nameless: bool,
    /// Parents that no entry has, with the id, while a line without a known id may be the one.
    missing: Vec<(Error, String)>,
}

impl Survey {
    fn of(mut bytes: Vec<u8>) -> Survey {
        // The header is a line too, and one more shows that there are too many.
        let most = MAX_SESSION_RECORDS + 2;
        let end = spans(&bytes).take(most).last().map_or(0, |span| span.next);
        bytes.truncate(end);
        let (mut found, mut not_text) = (Vec::new(), HashSet::new());
        let text = String::from_utf8(bytes).unwrap_or_else(|error| {
            let mut bytes = error.into_bytes();
            for span in spans(&bytes.clone()) {
                let line = &mut bytes[span.start..span.next];
                let Err(error) = str::from_utf8(line) else { continue };
                found.push(match span.check_length() {
                    Err(error) => error,
                    Ok(()) => span.refuse_encoding(span.start + error.valid_up_to()),
                });
                not_text.insert(span.number);
                // The places of all other lines stay what they are.
                line[..span.end - span.start].fill(b' ');
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Survey {
            pass: Pass::new(Owner::plain(text)),
            found,
            not_text,
            lines: Vec::new(),
            apart: HashSet::new(),
            claimed_twice: HashSet::new(),
            refused: HashSet::new(),
            nameless: false,
            missing: Vec::new(),
        }
    }

    fn read_lines(&mut self) {
        let file = Arc::clone(&self.pass.file);
        for span in spans(file.as_str().as_bytes()) {
            if self.not_text.contains(&span.number) {
                self.nameless = true;
                continue;
            }
            let text = &file.as_str().as_bytes()[span.start..span.end];
            let too_long = span.check_length().err();
            match self.pass.tape.read(text, span.start) {
                Ok(()) => match too_long {
                    Some(error) => self.refuse(span, error),
                    None => self.read_record(span),
                },
                Err(stop) if too_long.is_none() && !span.terminated && stop.is_torn_object(text) => {
                    self.pass.torn_tail = span.next - span.start;
                }
                Err(stop) => {
                    self.nameless = true;
                    self.found.push(too_long.unwrap_or_else(|| span.refuse_syntax(stop.offset, stop.why)));
                }
            }
        }
    }

    fn read_record(&mut self, span: Span) {
        if span.number == 1 {
            if let Err(error) = self.pass.read_header(span) {
                self.refuse(span, error);
            }
            return;
        }
        if self.pass.entries.len() == MAX_SESSION_RECORDS && self.pass.header.is_none() {
            return;
        }
        let read =
            if self.pass.header.is_some() { self.pass.read_record(span) } else { self.pass.read_entry(span) };
        match read {
            Ok(()) => self.keep(span),
            Err(error) if error.code() == Code::DuplicateEntryId => {
                let claimed = self.id_of("id", span).and_then(|id| self.pass.ids.get(id.as_str()).copied());
                self.claimed_twice.extend(claimed);
                self.found.push(error);
            }
            Err(error) if error.code() == Code::ParentNotFound => self.keep_apart(span, error),
            Err(error) => self.refuse(span, error),
        }
    }

    /// The entry that was just read, whose parent is known.
    fn keep(&mut self, span: Span) {
        let index = self.lines.len();
        self.lines.push(span);
        let parent = self.pass.parents.get(index).copied().flatten();
        if parent.is_some_and(|parent| self.claimed_twice.contains(&parent)) {
            self.apart.insert(index as u32);
        }
    }

    /// An entry that is sound in itself, without its parent.
    fn keep_apart(&mut self, span: Span, error: Error) {
        let parent = self.id_of("parentId", span).unwrap_or_default();
        if !self.refused.contains(&parent) {
            if self.nameless { self.missing.push((error, parent)) } else { self.found.push(error) }
        }
        let file = Arc::clone(&self.pass.file);
        let Ok(read) = Line::new(&file, &self.pass.tape, span.number, span.start).entry() else { return };
        // The pass knows its id already, under the index that it gets here.
        self.apart.insert(self.lines.len() as u32);
        self.pass.entries.push(read.entry);
        self.pass.parents.push(None);
        self.lines.push(span);
    }

    fn refuse(&mut self, span: Span, error: Error) {
        match self.id_of("id", span) {
            Some(id) => _ = self.refused.insert(id),
            None => self.nameless = true,
        }
        self.found.push(error);
    }

    /// A string of the line that was read last.
    fn id_of(&self, name: &str, span: Span) -> Option<String> {
        Line::new(&self.pass.file, &self.pass.tape, span.number, span.start).string_of(name)
    }

    fn check_linkage(&mut self) {
        let is_known = |entry: usize| !self.apart.contains(&(entry as u32));
        for violation in violations(&self.pass.entries, &self.pass.parents, is_known) {
            let span = self.lines[violation.entry];
            self.found.push(self.pass.refuse_linkage_in(span, violation.breach));
        }
    }

    fn finish(mut self) -> Vec<Error> {
        // An entry further down that has the id is no parent, whatever the unknown lines are.
        for (error, parent) in self.missing {
            if self.pass.ids.contains_key(parent.as_str()) {
                self.found.push(error);
            }
        }
        if self.found.is_empty() && self.pass.header.is_none() {
            return self.pass.finish().err().into_iter().collect();
        }
        self.found.sort_by_key(|error| error.position().map(|at| at.offset));
        self.found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::decode;

    const HEADER: &str = r#"{"type":"session","version":1,"id":"s","createdAt":"t"}"#;

    fn entry(id: &str, parent: Option<&str>, message: &str) -> String {
        let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
        format!(
            r#"{{"type":"entry","version":1,"id":"{id}","parentId":{parent},"timestamp":"t","message":{message}}}"#
        )
    }

    fn user(id: &str, parent: Option<&str>) -> String {
        entry(id, parent, r#"{"id":"m","role":"user","content":""}"#)
    }

    fn call(id: &str, parent: Option<&str>) -> String {
        let block = r#"{"type":"toolCall","id":"c","name":"n","arguments":{}}"#;
        entry(id, parent, &format!(r#"{{"id":"m","role":"assistant","content":[{block}]}}"#))
    }

    fn result(id: &str, parent: Option<&str>) -> String {
        let rest = r#""toolCallId":"c","toolName":"n","content":"","isError":false"#;
        entry(id, parent, &format!(r#"{{"id":"m","role":"toolResult",{rest}}}"#))
    }

    /// Code and line of each.
    fn told(lines: &[String]) -> Vec<(Code, usize)> {
        let file = lines.join("\n") + "\n";
        let line = |error: &Error| error.position().map_or(0, |at| at.line);
        problems(file.into_bytes()).iter().map(|error| (error.code(), line(error))).collect()
    }

    // Requirement: F7
    #[test]
    fn each_line_is_judged_although_others_are_refused() {
        let lines = [
            HEADER.to_owned(),
            user("a", None),
            "{\"torn".to_owned(),
            String::new(),
            HEADER.to_owned(),
            user("b", Some("a")).replace("user", "system"),
            user("a", None),
            user("c", Some("a")),
        ];
        let wanted = [
            (Code::InvalidJson, 3),
            (Code::InvalidJson, 4),
            (Code::InvalidRecord, 5),
            (Code::InvalidMessage, 6),
            (Code::DuplicateEntryId, 7),
        ];
        assert_eq!(told(&lines), wanted);
        let file = [HEADER.as_bytes(), b"\n\xff\n\n"].concat();
        let codes: Vec<Code> = problems(file).iter().map(Error::code).collect();
        assert_eq!(codes, [Code::InvalidUtf8, Code::InvalidJson]);
    }

    // Requirement: R5
    #[test]
    fn a_parent_that_a_refused_line_may_be_is_not_missed() {
        let named = user("b", Some("a")).replace("user", "system");
        let lines = [HEADER.to_owned(), user("a", None), named, user("c", Some("b")), user("d", Some("c"))];
        assert_eq!(told(&lines), [(Code::InvalidMessage, 3)]);
        let unnamed = [
            HEADER.to_owned(),
            user("a", Some("z")),
            "?".to_owned(),
            user("c", Some("b")),
            user("d", Some("e")),
            user("e", None),
        ];
        let wanted = [(Code::ParentNotFound, 2), (Code::InvalidJson, 3), (Code::ParentNotFound, 5)];
        assert_eq!(told(&unnamed), wanted, "the last parent is known to come too late");
    }

    // Requirement: L1, L2
    #[test]
    fn linkage_is_judged_where_all_above_is_known() {
        let lines = [
            HEADER.to_owned(),
            "?".to_owned(),
            result("a", None),
            call("b", Some("lost")),
            result("c", Some("lost")),
            result("d", Some("c")),
            call("e", None),
            call("f", Some("e")),
            result("g", Some("f")),
            call("e", None),
            result("h", Some("e")),
            result("i", Some("h")),
        ];
        let wanted = [
            (Code::InvalidJson, 2),
            (Code::InvalidToolLinkage, 3),
            (Code::InvalidToolLinkage, 8),
            (Code::DuplicateEntryId, 10),
        ];
        assert_eq!(told(&lines), wanted);
    }

    // Requirement: F7
    #[test]
    fn lines_beyond_the_most_that_a_session_has_are_not_looked_at() {
        for line in [&b"\n"[..], b"\xff\n"] {
            assert_eq!(problems(line.repeat(MAX_SESSION_RECORDS * 2)).len(), MAX_SESSION_RECORDS + 2);
        }
        let ids: Vec<String> = (0..=MAX_SESSION_RECORDS).map(|id| user(&id.to_string(), None)).collect();
        let lines = [vec![HEADER.to_owned()], ids, vec![String::new()]].concat();
        assert_eq!(told(&lines), [(Code::RecordLimit, MAX_SESSION_RECORDS + 2)]);
    }

    const DAMAGE: &[&[u8]] = &[b"", b"?", b"{\"a", b"\xff", HEADER.as_bytes()];

    /// Lines of every kind, with ids that often meet.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        let id = || prop::sample::select(&["a", "b", "c", "d", "e"][..]);
        let parent = prop::option::of(id());
        let record = (0..3_u8, id(), parent).prop_map(|(kind, id, parent)| match kind {
            0 => user(id, parent),
            1 => call(id, parent),
            _ => result(id, parent),
        });
        prop_oneof![
            12 => record.clone().prop_map(String::into_bytes),
            1 => record.prop_map(|line| line.replace("timestamp", "time").into_bytes()),
            1 => prop::sample::select(DAMAGE).prop_map(<[u8]>::to_vec),
        ]
    }

    proptest! {
        #![proptest_config(crate::seeded::cases(2_000))]

        // Requirement: F7
        #[test]
        fn a_file_has_problems_if_and_only_if_it_is_refused_and_then_that_one(
            lines in prop::collection::vec(line(), 0..12), headed in 0..8_u8, ended in any::<bool>()
        ) {
            let header = (headed > 0).then(|| HEADER.as_bytes().to_vec());
            let lines: Vec<Vec<u8>> = header.into_iter().chain(lines).collect();
            let mut file = lines.join(&b'\n');
            if ended {
                file.push(b'\n');
            }
            let all: Vec<String> = problems(file.clone()).iter().map(Error::to_string).collect();
            match decode(file) {
                Ok(_) => prop_assert_eq!(all, Vec::<String>::new()),
                Err(error) => prop_assert!(all.contains(&error.to_string()), "{} in {:?}", error, all),
            }
        }
    }
}
