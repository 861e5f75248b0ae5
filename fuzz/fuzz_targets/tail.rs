//! Any bytes as an unterminated last line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use session_harness::hooks;

fuzz_target!(|data: &[u8]| hooks::tail(data));
