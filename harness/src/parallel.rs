//! Work on many things with a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does `work` on the items with `jobs` threads. The answers are in the order of the items, and end with the first one
/// that is `last`: which answers there are does not depend on the threads.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
    is_last: impl Fn(&R) -> bool + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let end = AtomicUsize::new(items.len());
    let slots: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= end.load(Ordering::Relaxed) {
                        break;
                    }
                    let answer = work(&items[at]);
                    if is_last(&answer) {
                        end.fetch_min(at + 1, Ordering::Relaxed);
                    }
                    *slots[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                }
            });
        }
    });
    // Everything before the end was begun, and what was begun is done.
    let answers = slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    answers.take(end.into_inner()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn the_answers_are_those_up_to_the_first_last_one_whatever_the_number_of_threads() {
        let items: Vec<u32> = (0..200).collect();
        for jobs in [0, 1, 2, 7, 500] {
            assert_eq!(map(&items, jobs, |item| item * 2, |_| false).len(), 200);
            let answers = map(&items, jobs, |item| item * 2, |answer| *answer >= 20);
            assert_eq!(answers, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
        }
        assert_eq!(map(&[0_u32; 0], 2, |item| *item, |_| true), [0; 0]);
    }
}
