//! How far a run has come, on standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::runner::Watcher;
use crate::suite::Suite;

/// Between two plain lines about one suite.
const PAUSE: Duration = Duration::from_secs(10);

/// A bar on a terminal, else a plain line now and then, which logs can keep.
pub(super) fn watcher(quiet: bool) -> Box<dyn Watcher> {
    if quiet {
        Box::new(Silent)
    } else if io::stderr().is_terminal() {
        Box::new(Bar(ProgressBar::hidden().with_style(style())))
    } else {
        Box::new(Lines(Mutex::new(None)))
    }
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{msg:<12} {bar:40} {pos} of {len}   {elapsed}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

struct Silent;

impl Watcher for Silent {
    fn begins(&self, _: Suite, _: usize) {}
    fn advances(&self) {}
    fn ends(&self) {}
}

struct Bar(ProgressBar);

impl Watcher for Bar {
    fn begins(&self, suite: Suite, parts: usize) {
        self.0.reset();
        self.0.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        self.0.set_length(parts as u64);
        self.0.set_message(suite.name());
    }

    fn advances(&self) {
        self.0.inc(1);
    }

    fn ends(&self) {
        self.0.finish_and_clear();
    }
}

struct Lines(Mutex<Option<Line>>);

struct Line {
    suite: Suite,
    done: usize,
    parts: usize,
    last: Instant,
}

impl Watcher for Lines {
    fn begins(&self, suite: Suite, parts: usize) {
        // Nobody who reads this is no reason to stop.
        let _ = writeln!(io::stderr(), "{suite}: {parts} parts");
        let line = Line { suite, done: 0, parts, last: Instant::now() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    fn advances(&self) {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = line.as_mut() else { return };
        line.done += 1;
        if line.last.elapsed() >= PAUSE && line.done < line.parts {
            line.last = Instant::now();
            let _ = writeln!(io::stderr(), "{}: {} of {} parts done", line.suite, line.done, line.parts);
        }
    }

    fn ends(&self) {}
}
