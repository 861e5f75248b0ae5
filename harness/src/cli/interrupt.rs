//! Ctrl-C: the first one ends a run so that its reports can still be written, the second one ends it at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;

use crate::exit_code::Exit;
use crate::subject::command;

/// A flag that is set when somebody asks this process to end.
pub(super) fn flag() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        // In this order: the flag is still clear at the first signal.
        flag::register_conditional_shutdown(*signal, Exit::Harness.code().into(), Arc::clone(&asked))?;
        flag::register(*signal, Arc::clone(&asked))?;
    }
    Ok(asked)
}

/// As [`flag`], where processes of a store must not outlive this one: the second signal ends them first.
pub(super) fn flag_before_subjects() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        flag::register(*signal, Arc::clone(&asked))?;
    }
    command::end_all_at_signal(2)?;
    Ok(asked)
}
