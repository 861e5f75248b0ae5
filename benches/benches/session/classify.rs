//! The classifier of torn tails, on lines close to the limit.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use session_harness::generate::{self, Shape};
use session_tree::json_prefix::{Tail, classify};
use session_tree::limits::MAX_SESSION_LINE_BYTES;

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("classify");
    let lines = [
        ("prose", cut_entry(Shape::Chain)),
        ("code", cut_entry(Shape::EscapedCode)),
        ("mixed-scripts", cut_entry(Shape::MixedScripts)),
        ("numbers", repeated("{\"a\":[", "-12.5e+3,")),
        ("nesting", repeated("{\"a\":", "[")),
        ("objects", repeated("", "{\"a\":")),
    ];
    for (name, line) in lines {
        assert_eq!(classify(&line), Tail::Incomplete, "{name}");
        group.throughput(Throughput::Bytes(line.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| classify(black_box(&line))));
    }
    group.finish();
}

/// An entry's line without its last brackets.
fn cut_entry(shape: Shape) -> String {
    let file = generate::session(shape, 1, MAX_SESSION_LINE_BYTES, 1).expect("one line is within reach");
    let file = String::from_utf8(file).expect("a session is text");
    let line = file.lines().nth(1).expect("an entry follows the header");
    line.trim_end_matches('}').to_owned()
}

fn repeated(start: &str, part: &str) -> String {
    let times = (MAX_SESSION_LINE_BYTES - start.len()) / part.len();
    format!("{start}{}", part.repeat(times))
}
