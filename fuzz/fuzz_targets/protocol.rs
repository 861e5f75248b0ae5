//! Any bytes as what a subject behind a pipe writes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use session_harness::hooks;

fuzz_target!(|data: &[u8]| {
    hooks::protocol(data);
});
