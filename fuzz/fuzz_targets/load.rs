//! Any bytes as a session file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use session_harness::hooks;

fuzz_target!(|data: &[u8]| hooks::load(data));
