//! Replays the seeds of the fuzz targets, former findings among them, without a fuzzer.
//!
//! A seed of `tail` and `load` is named `VERDICT-what-it-is`: the verdict is checked, and then everything that the fuzz
//! target checks. The other targets make their cases of bytes that nobody can read; they run on random ones too.

#[path = "../../core/tests/support/seeded.rs"]
mod seeded;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use session_harness::hooks;
use session_tree::decode;
use session_tree::json_prefix::{Tail, classify};

// Requirement: F4
#[test]
fn tail_seeds_have_the_verdict_of_their_name() {
    for seed in seeds("tail") {
        let verdict = match classify(&seed.bytes) {
            Tail::Complete => "complete",
            Tail::Incomplete => "incomplete",
            Tail::Invalid => "invalid",
        };
        assert_eq!(verdict, seed.verdict, "{}", seed.path.display());
        hooks::tail(&seed.bytes);
    }
}

// Requirement: F1, F2, F3, F4, F6, F7, F8, F9, R1, R2, R3, R4, R5, L1, L2, L3, L4
#[test]
fn load_seeds_have_the_verdict_of_their_name() {
    for seed in seeds("load") {
        let verdict = decode(seed.bytes.clone()).map_or_else(|error| error.code().as_str(), |_| "accepted");
        assert_eq!(verdict, seed.verdict, "{}", seed.path.display());
        hooks::load(&seed.bytes);
    }
}

#[test]
fn plan_seeds_read_back_or_are_refused_as_their_name_says() {
    for seed in seeds("plan") {
        let verdict = if hooks::plan(&seed.bytes) { "read" } else { "refused" };
        assert_eq!(verdict, seed.verdict, "{}", seed.path.display());
    }
}

#[test]
fn protocol_seeds_have_the_outcome_of_their_name() {
    for seed in seeds("protocol") {
        assert_eq!(hooks::protocol(&seed.bytes), seed.verdict, "{}", seed.path.display());
    }
}

proptest! {
    #![proptest_config(seeded::cases(512))]

    // Requirement: F4, F7, R5
    #[test]
    fn a_changed_session_is_never_another_history(data in vec(any::<u8>(), 0..400)) {
        hooks::mutated_session(&data);
    }

    // Requirement: X1, X2
    #[test]
    fn recovery_of_any_pair_of_files_loses_no_entry(data in vec(any::<u8>(), 0..600)) {
        hooks::recover(&data);
    }
}

proptest! {
    #![proptest_config(seeded::cases(32))]

    // Requirement: C23, C24
    #[test]
    fn any_sequence_of_operations_survives_every_cut(data in vec(any::<u8>(), 0..64)) {
        hooks::operations(&data);
    }
}

struct Seed {
    path: PathBuf,
    verdict: String,
    bytes: Vec<u8>,
}

/// The seeds of one target, in the order of their names.
fn seeds(target: &str) -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/fuzz").join(target);
    let mut seeds: Vec<Seed> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| seed(file.expect("a readable folder").path()))
        .collect();
    seeds.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(seeds.len() >= 20, "{} seeds in {}", seeds.len(), folder.display());
    seeds
}

fn seed(path: PathBuf) -> Seed {
    let name = path.file_name().expect("a file").to_string_lossy().into_owned();
    let (verdict, _) = name.split_once('-').unwrap_or_else(|| panic!("{name}: not VERDICT-what-it-is"));
    let bytes = fs::read(&path).expect("a readable seed");
    Seed { verdict: verdict.to_owned(), path, bytes }
}
