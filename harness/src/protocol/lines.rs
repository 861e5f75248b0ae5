//! Bytes that arrive in any pieces, cut into lines.

/// A line has more bytes than it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line of more than {0} bytes")]
pub struct TooLong(pub usize);

/// What arrived and was not taken yet. Holds at most one line of the largest size and one piece.
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    /// How many of them are known to have no line feed.
    searched: usize,
    limit: usize,
}

impl Lines {
    /// Nothing yet; a line may have `limit` bytes, without its line feed.
    pub fn new(limit: usize) -> Lines {
        Lines { bytes: Vec::new(), searched: 0, limit }
    }

    /// Takes a piece in.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole line, without its line feed.
    ///
    /// # Errors
    /// [`TooLong`] as soon as that is certain, whether the line has an end or not.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let length = end.map_or(self.bytes.len(), |end| self.searched + end);
        if length > self.limit {
            return Err(TooLong(self.limit));
        }
        if end.is_none() {
            self.searched = length;
            return Ok(None);
        }
        let rest = self.bytes.split_off(length + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.truncate(length);
        self.searched = 0;
        Ok(Some(line))
    }

    /// What is left of a line that has no end yet, or more lines.
    pub fn rest(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<String> {
        let mut taken = Vec::new();
        while let Some(line) = lines.next_line().expect("short lines") {
            taken.push(String::from_utf8(line).expect("text"));
        }
        taken
    }

    #[test]
    fn lines_are_the_same_in_whatever_pieces_they_arrive() {
        let text = b"one\n\ntwo\r\nhalf";
        for size in 1..=text.len() {
            let mut lines = Lines::new(8);
            let mut taken = Vec::new();
            for piece in text.chunks(size) {
                lines.push(piece);
                taken.extend(all(&mut lines));
            }
            assert_eq!(
                (taken, lines.rest()),
                (vec!["one".into(), String::new(), "two\r".into()], &b"half"[..])
            );
        }
    }

    #[test]
    fn a_line_of_the_limit_is_taken_and_one_byte_more_is_not() {
        let mut lines = Lines::new(4);
        lines.push(b"abcd");
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"\n");
        assert_eq!(lines.next_line(), Ok(Some(b"abcd".to_vec())));
        lines.push(b"abcde");
        assert_eq!(lines.next_line(), Err(TooLong(4)));
        lines.push(b"\n");
        assert_eq!(lines.next_line(), Err(TooLong(4)));
    }
}
