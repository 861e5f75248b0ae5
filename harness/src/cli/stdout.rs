//! Standard output that a reader may close at any time.

use std::io::{self, BufWriter, Stdout, Write};

/// Standard output, buffered. Once its reader has gone, what is written is dropped and nothing fails: a closed pipe ends
/// quietly, and the exit status is that of the verdict.
pub(super) fn stdout() -> BufWriter<Patient> {
    BufWriter::new(Patient(io::stdout()))
}

pub(super) struct Patient(Stdout);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            answer => answer,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            answer => answer,
        }
    }
}
