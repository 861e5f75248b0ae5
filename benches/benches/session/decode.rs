//! From the bytes of a file to a checked session: by size, then by shape at the ceiling of entries.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use session_benches::session;
use session_harness::generate::Shape;
use session_tree::decode;
use session_tree::limits::MAX_SESSION_RECORDS;

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    let by_size = [64, 512, MAX_SESSION_RECORDS].map(|entries| (Shape::Chain, entries));
    let others = Shape::ALL.into_iter().filter(|shape| *shape != Shape::Chain);
    let by_shape = others.map(|shape| (shape, MAX_SESSION_RECORDS));
    for (shape, entries) in by_size.into_iter().chain(by_shape) {
        let file = session(shape, entries).expect("every shape fits");
        group.throughput(Throughput::Bytes(file.len() as u64));
        group.bench_function(BenchmarkId::new(shape.name(), entries), |bencher| {
            bencher.iter_batched(|| file.clone(), decode, BatchSize::PerIteration);
        });
    }
    group.finish();
}
