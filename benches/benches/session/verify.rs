//! What `verify` does with a session at the ceiling: a good one, one whose last line is wrong, and every problem of that.

use std::fs;

use criterion::Criterion;
use session_benches::session;
use session_harness::diagnose::{Canvas, Verdict};
use session_harness::generate::Shape;
use session_tree::Store;
use session_tree::limits::MAX_SESSION_RECORDS;

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("verify");
    let good = session(Shape::Chain, MAX_SESSION_RECORDS).expect("every shape fits");
    let bad = [good.strip_suffix(b"}\n").expect("a record"), b"!\n"].concat();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("session.jsonl");
    let canvas = Canvas { color: false, width: 100 };
    for (name, file, all) in [("good", &good, false), ("last-line", &bad, false), ("all", &bad, true)] {
        fs::write(&path, file).expect("a file");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let loaded = Store::load(&path);
                let verdict = Verdict::new(&path, &loaded);
                if all { verdict.all_to_text(canvas) } else { verdict.to_text(canvas) }
            });
        });
    }
    group.finish();
}
