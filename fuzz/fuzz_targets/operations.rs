//! Store and tree calls with faults, and a power cut after every system call.
#![no_main]

use libfuzzer_sys::fuzz_target;
use session_harness::hooks;

fuzz_target!(|data: &[u8]| hooks::operations(data));
