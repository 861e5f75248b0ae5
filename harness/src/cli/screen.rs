//! What a stream can show.

use std::io;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice as Shown};
use clap::ColorChoice;
use rustix::fd::AsFd;
use rustix::termios::tcgetwinsize;

use super::CliError;
use crate::diagnose::Canvas;

/// Columns where the stream is no terminal, or does not say.
const COLUMNS: usize = 100;

/// Colours as asked for; by default if the stream is a terminal that has them and `NO_COLOR` is not set.
pub(super) fn canvas(stream: &(impl RawStream + AsFd), color: ColorChoice) -> Canvas {
    let color = match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => AutoStream::choice(stream) != Shown::Never,
    };
    Canvas { color, width: columns(stream) }
}

/// The columns of the terminal behind the stream.
fn columns(stream: &impl AsFd) -> usize {
    match tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => COLUMNS,
    }
}

/// Whether the reader is still there. One that has gone away is no failure, and changes no verdict.
pub(super) fn is_read(written: io::Result<()>) -> Result<bool, CliError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}
