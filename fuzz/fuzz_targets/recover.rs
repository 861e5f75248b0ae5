//! Recovery from any pair of files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use session_harness::hooks;

fuzz_target!(|data: &[u8]| hooks::recover(data));
