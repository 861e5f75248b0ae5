//! Any text as a fault plan, a workload or a replay token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use session_harness::hooks;

fuzz_target!(|data: &[u8]| {
    hooks::plan(data);
});
