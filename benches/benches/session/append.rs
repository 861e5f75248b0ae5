//! One durable append, as the n-th entry of a session on the disk that holds the build directory.

use std::path::Path;

use criterion::{BatchSize, BenchmarkId, Criterion};
use session_benches::{BYTES_AN_ENTRY, Loaded, session};
use session_harness::generate::Shape;
use session_tree::Message;

use crate::ENTRIES;

pub(crate) fn benches(criterion: &mut Criterion) {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let words = "a".repeat(BYTES_AN_ENTRY / 2);
    let mut group = criterion.benchmark_group("append");
    for entries in ENTRIES {
        let file = session(Shape::Chain, entries - 1).expect("a chain fits");
        group.bench_function(BenchmarkId::from_parameter(entries), |bencher| {
            bencher.iter_batched(
                || {
                    let loaded = Loaded::below(disk, &file).expect("a disk to measure");
                    let leaf = loaded.store.tree().leaf();
                    (loaded, leaf, Message::user("m-new", words.as_str()))
                },
                |(loaded, leaf, message)| {
                    let entry = loaded.store.append(leaf.as_deref(), message).expect("an append");
                    // Handed out, so that removing the directory is not measured.
                    (loaded, entry)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}
