//! Reading the active path, and moving the leaf from one end of a chain to the other and back.

use std::path::Path;

use criterion::{BenchmarkId, Criterion};
use session_benches::{Loaded, session};
use session_harness::generate::Shape;

use crate::ENTRIES;

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entries in ENTRIES {
        let file = session(Shape::Chain, entries).expect("a chain fits");
        let loaded = Loaded::below(disk, &file).expect("a disk to measure");
        let tree = loaded.store.tree();
        group.bench_function(BenchmarkId::new("active-path", entries), |bencher| {
            bencher.iter(|| tree.active_entries());
        });
        let all = loaded.store.entries();
        let ends = [all.first(), all.last()].map(|entry| entry.expect("a session with entries").id());
        group.bench_function(BenchmarkId::new("move", entries), |bencher| {
            bencher.iter(|| ends.map(|id| tree.move_to(Some(id)).expect("a known id")));
        });
    }
    group.finish();
}
