//! Sequences of store and tree calls on the simulated disk, with faults, cut after every system call.

use arbitrary::Unstructured;

use crate::crash::Profile;
use crate::suite::crash::{self, Options};
use crate::suite::explore::{self, Draw};

const LONGEST: usize = 4;

/// A short workload with at most two faults: after a cut at any place of it a restart shows what was acknowledged and
/// nothing that was not submitted, by the oracle of the `crash` suite (requirements C23, C24, X2).
///
/// # Panics
///
/// If a promise is broken, with the token that replays it.
pub fn operations(data: &[u8]) {
    let mut input = Bytes(Unstructured::new(data));
    let profile = Profile::ALL[input.below(Profile::ALL.len())];
    let options = Options { profile, ..Options::default() };
    let token = explore::case(&mut input, LONGEST, &options).expect("a fault-free run");
    let result = crash::run_one(&token, &options).expect("a run");
    if let Some(broken) = result.broken.iter().find(|broken| broken.is_of_the_store()) {
        panic!("{}: {:?}", broken.token, broken.violations);
    }
}

/// Choices by a fuzzer's bytes; zero once they are used up.
struct Bytes<'a>(Unstructured<'a>);

impl Draw for Bytes<'_> {
    fn below(&mut self, count: usize) -> usize {
        self.0.int_in_range(0..=count.saturating_sub(1)).unwrap_or_default()
    }
}
