//! Benches of the session store. `cargo bench -p session-benches -- FILTER` runs those whose name contains FILTER.

mod append;
mod classify;
mod crash;
mod decode;
mod tree;
mod verify;

use std::time::Duration;

use criterion::Criterion;

/// Entries of a small, a middling and a full session.
const ENTRIES: [usize; 3] = [10, 512, 4_096];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30)
        .configure_from_args();
    classify::benches(&mut criterion);
    decode::benches(&mut criterion);
    append::benches(&mut criterion);
    tree::benches(&mut criterion);
    verify::benches(&mut criterion);
    crash::benches(&mut criterion);
    criterion.final_summary();
}
