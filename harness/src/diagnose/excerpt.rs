//! The part of a line around a place.
//!
//! The file may have changed since the place was found: what does not look like the line any more is not shown.

use std::collections::VecDeque;
use std::ops::Range;

use session_tree::Position;

use super::harmless::{Piece, pieces};

/// Text of one line, and the bytes of it that the caret goes below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) text: String,
    /// Empty at the end of the line.
    pub(super) caret: Range<usize>,
}

/// The line of `file` around `position` in at most about `room` columns. None where the file has no such line.
pub(super) fn around(file: &[u8], position: Position, room: usize) -> Option<Excerpt> {
    Some(Window::new(file, position)?.excerpt(room))
}

/// The end of `file`, whose last line is `line` and has `bytes` bytes and no line feed.
pub(super) fn at_end(file: &[u8], line: usize, bytes: usize, room: usize) -> Option<Excerpt> {
    around(file, Position { line, column: bytes + 1, offset: file.len() }, room)
}

/// Bytes before and after the place. Characters have at most four, so more than enough for a terminal's width.
const REACH: usize = 512;
/// Bytes of a character after the first.
const MOST_CONTINUATION_BYTES: usize = 3;
const MARK: &str = "…";

/// Bytes of one line around a place in it.
struct Window {
    bytes: Vec<u8>,
    /// The place, as an index of `bytes`; at most their number.
    at: usize,
    cut_before: bool,
    cut_after: bool,
}

impl Window {
    fn new(file: &[u8], position: Position) -> Option<Window> {
        let Position { column, offset, .. } = position;
        let line_start = offset.checked_sub(column.checked_sub(1)?)?;
        let start = line_start.max(offset.saturating_sub(REACH));
        if start == line_start && start > 0 && file.get(start - 1) != Some(&b'\n') {
            return None;
        }
        let mut bytes = file.get(start..file.len().min(offset + REACH))?.to_vec();
        let at = offset - start;
        if bytes.get(..at)?.contains(&b'\n') {
            return None;
        }
        let end = bytes[at..].iter().position(|byte| *byte == b'\n').map(|feed| at + feed);
        let is_cut = end.is_none() && bytes.len() == offset + REACH - start;
        bytes.truncate(end.unwrap_or(bytes.len()));
        if !is_cut && bytes.last() == Some(&b'\r') && bytes.len() > at + 1 {
            bytes.pop();
        }
        let mut window = Window { bytes, at, cut_before: start > line_start, cut_after: is_cut };
        window.drop_parts_of_characters();
        Some(window)
    }

    /// A cut may fall into a character, whose other bytes would look like damage.
    fn drop_parts_of_characters(&mut self) {
        if self.cut_before {
            let is_continuation = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
            let parts = self.bytes.iter().take(MOST_CONTINUATION_BYTES).take_while(is_continuation).count();
            let parts = parts.min(self.at);
            self.bytes.drain(..parts);
            self.at -= parts;
        }
        if self.cut_after {
            let whole = whole_characters(&self.bytes);
            self.bytes.truncate(whole.max(self.at));
        }
    }

    /// As many characters on both sides of the place as fit, with marks where something was left out.
    fn excerpt(&self, room: usize) -> Excerpt {
        let mut before: Vec<Piece> = Vec::new();
        let mut after: VecDeque<Piece> = VecDeque::new();
        for piece in pieces(&self.bytes) {
            if piece.start + piece.length <= self.at { before.push(piece) } else { after.push_back(piece) }
        }
        let culprit = after.pop_front();
        let left = room.saturating_sub(culprit.as_ref().map_or(1, |piece| piece.width));
        let (columns_before, columns_after) = (columns(&before), columns(&after));
        // A side that needs less than half leaves the rest to the other.
        let share_before = columns_before.min((left / 2).max(left.saturating_sub(columns_after)));
        let share_after = left - share_before;
        let shown_before = fitting(before.iter().rev(), share_before);
        let shown_after = fitting(after.iter(), share_after);

        let mut text = String::new();
        if self.cut_before || shown_before < before.len() {
            text.push_str(MARK);
        }
        text.extend(before[before.len() - shown_before..].iter().map(|piece| piece.shown.as_str()));
        let start = text.len();
        text.push_str(culprit.as_ref().map_or("", |piece| &piece.shown));
        let caret = start..text.len();
        text.extend(after.iter().take(shown_after).map(|piece| piece.shown.as_str()));
        if self.cut_after || shown_after < after.len() {
            text.push_str(MARK);
        }
        Excerpt { text, caret }
    }
}

/// How many bytes of `bytes` a character does not begin in that their end cuts off.
fn whole_characters(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        Some(last) if last.invalid().len() <= MOST_CONTINUATION_BYTES => {
            let is_unfinished =
                std::str::from_utf8(last.invalid()).is_err_and(|error| error.error_len().is_none());
            bytes.len() - if is_unfinished { last.invalid().len() } else { 0 }
        }
        _ => bytes.len(),
    }
}

fn columns<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> usize {
    pieces.into_iter().map(|piece| piece.width).sum()
}

/// How many pieces fit into `room` columns.
fn fitting<'a>(pieces: impl Iterator<Item = &'a Piece>, room: usize) -> usize {
    let mut left = room;
    pieces
        .map_while(|piece| {
            left = left.checked_sub(piece.width)?;
            Some(())
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(
        file: &[u8],
        line: usize,
        column: usize,
        offset: usize,
        room: usize,
    ) -> Option<(String, String)> {
        let excerpt = around(file, Position { line, column, offset }, room)?;
        let caret = excerpt.text[excerpt.caret].to_owned();
        Some((excerpt.text, caret))
    }

    fn excerpt(text: &str, caret: &str) -> (String, String) {
        (text.to_owned(), caret.to_owned())
    }

    #[test]
    fn a_short_line_is_shown_whole_and_alone() {
        assert_eq!(shown(b"one\nt\xc3\xa9o\r\nthree", 2, 2, 5, 40), Some(excerpt("téo", "é")));
        assert_eq!(shown(b"one\ntwo\nthree", 3, 6, 13, 40), Some(excerpt("three", "")));
        assert_eq!(shown(b"", 1, 1, 0, 40), Some(excerpt("", "")));
    }

    #[test]
    fn a_long_line_is_shown_around_the_place_in_any_width_of_characters() {
        for letter in ["x", "é", "漢", "😀", "\u{301}"] {
            let line = letter.repeat(20_000);
            let at = letter.len() * 10_000;
            let file = format!("{}!{}", &line[..at], &line[at..]);
            let (text, caret) = shown(file.as_bytes(), 1, at + 1, at, 40).expect("the line is there");
            assert_eq!(caret, "!");
            assert!(text.starts_with('…') && text.ends_with('…'), "{text}");
            assert!(text.len() < 1_100 && !text.contains("\\x"), "{text}");
            assert_eq!(text.trim_matches('…').replace('!', "").replace(letter, ""), "");
        }
    }

    #[test]
    fn the_room_that_one_side_does_not_need_goes_to_the_other() {
        let file = [b"!".as_slice(), &[b'x'; 100]].concat();
        assert_eq!(shown(&file, 1, 1, 0, 11), Some(excerpt("!xxxxxxxxxx…", "!")));
        assert_eq!(shown(&[b'x'; 100], 1, 101, 100, 11), Some(excerpt("…xxxxxxxxxx", "")));
    }

    #[test]
    fn damaged_bytes_are_shown_where_a_cut_would_hide_them() {
        let file = [[0x80; 600].as_slice(), b"!", &[0xff; 600]].concat();
        let (text, caret) = shown(&file, 1, 601, 600, 21).expect("the line is there");
        assert_eq!((text.as_str(), caret.as_str()), (r"…\x80\x80!\xff\xff…", "!"));
    }

    #[test]
    fn a_file_that_changed_is_not_shown() {
        assert_eq!(shown(b"one\ntwo", 2, 2, 50, 40), None, "shorter");
        assert_eq!(shown(b"one two", 2, 2, 5, 40), None, "no line starts there");
        assert_eq!(shown(b"one\nt\no", 2, 3, 6, 40), None, "the line ends before");
        assert_eq!(shown(b"one", 1, 9, 2, 40), None, "no such place");
    }
}
