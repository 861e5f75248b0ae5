//! One state of the `crash` suite, checked in full and by one thread: restart, inspection and recovery where the restart
//! refuses, append, power cut, restart. Nothing is answered from memory of an equal state. What cuts within a recovery
//! leave are states of their own and not part of a check.

use criterion::{Criterion, Throughput};
use session_harness::crash::Profile;
use session_harness::suite::crash::{Checks, Options};
use session_harness::workload::{Start, Step, Workload};

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crash states");
    group.throughput(Throughput::Elements(1));
    let workload = Workload { start: Start::Session, steps: vec![Step::Append, Step::Append] };
    for profile in Profile::ALL {
        let options = Options { profile: *profile, cuts_recovery: false, ..Options::default() };
        let checks = Checks::of(&workload, &options).expect("a run of the workload");
        let mut at = 0;
        group.bench_function(profile.as_str(), |bencher| {
            bencher.iter(|| {
                at += 1;
                assert!(checks.check(at).expect("a verdict"), "a good store keeps its promises");
            });
        });
    }
    group.finish();
}
