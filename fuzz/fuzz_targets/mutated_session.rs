//! A valid session with one change.
#![no_main]

use libfuzzer_sys::fuzz_target;
use session_harness::hooks;

fuzz_target!(|data: &[u8]| hooks::mutated_session(data));
