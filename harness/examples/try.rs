//! Scratch.
use session_harness::suite::faults;
use std::collections::BTreeMap;
fn main() {
    let start = std::time::Instant::now();
    let results = faults::run_all(2, &|_, _| {}).unwrap();
    println!("{} cases, {} merged, {:?}", results.finished.len(), results.merged, start.elapsed());
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut bad = 0;
    for finished in &results.finished {
        if !finished.run.violations.is_empty() {
            bad += 1;
        }
        for violation in &finished.run.violations {
            groups
                .entry(format!("{} {}", violation.promise, finished.case.scenario().name))
                .or_default()
                .push(format!("{}\n      {}", finished.case.id(), violation.evidence));
        }
    }
    println!("{bad} bad; races {}", results.finished.iter().filter(|f| f.run.race_window).count());
    for (name, list) in groups {
        println!("{name}: {}", list.len());
        for text in list.iter().take(4) {
            println!("   {text}");
        }
    }
}
