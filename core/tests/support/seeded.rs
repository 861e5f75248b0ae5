//! Property tests whose one seed is printed and can be given again.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// So many cases, drawn from `SESSION_HARNESS_SEED`, or from a seed that is printed: a failing test shows what it
/// printed, and the variable with that number repeats it.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let given = std::env::var("SESSION_HARNESS_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("a seed is a number"));
    println!("SESSION_HARNESS_SEED={seed}");
    ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::with_cases(cases)
    }
}
