//! Holds the simulated disk against the operating system: random sequences of system calls run on both, and after
//! every step the answers, the tree, the contents and the identities must be the same.
//!
//! `SESSION_HARNESS_SEED` chooses the sequences. A failure prints the shortest failing sequence that dropping
//! operations finds, and the command that replays it.
//!
//! What differs between file systems is taken from the one that holds temporary files: whether a directory's link
//! count counts the directories in it. Sizes of directories are not compared, nor are times and inode numbers, only
//! which names are the same inode.

#[path = "disk_agrees/mod.rs"]
mod disk_agrees;

use disk_agrees::{Setting, check};

/// Sequences that run as the user who runs the tests.
const CASES: u64 = 1_500;
/// Sequences that run as another user among files of several owners.
const CASES_OF_ANOTHER_USER: u64 = 600;

// Requirement: B1
#[test]
fn random_sequences_of_calls_answer_alike() {
    check("random_sequences_of_calls_answer_alike", CASES, Setting::Own);
}

// Requirement: B1
#[test]
fn random_sequences_of_calls_of_another_user_answer_alike() {
    if disk_agrees::is_child() {
        disk_agrees::play_as_child();
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!(
            "skipped: only root can drop to another user, so permission checks between users were not compared"
        );
        return;
    }
    check(
        "random_sequences_of_calls_of_another_user_answer_alike",
        CASES_OF_ANOTHER_USER,
        Setting::AnotherUser,
    );
}
