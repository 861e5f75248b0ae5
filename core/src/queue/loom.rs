//! Every order in which a few threads can use the queue. What the test itself keeps is in types that loom does not see,
//! so that only the queue's own steps are put in other orders.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use loom::model::Builder;
use loom::thread;

use super::Queue;

/// What a thread does with its place.
#[derive(Clone, Copy)]
enum Use {
    Waits,
    GivesUp,
}

/// Threads that each take a place for each of `uses`. Turns come one at a time and in the order of the places, and every
/// thread ends: the model fails where one waits for ever.
fn run(threads: u32, uses: &'static [Use]) {
    let queue = Queue::default();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let has_turn = Arc::new(AtomicBool::new(false));
    let work = || {
        let (queue, turns, has_turn) = (queue.clone(), turns.clone(), has_turn.clone());
        move || {
            for used in uses {
                let ticket = queue.ticket().unwrap();
                let number = ticket.number;
                match used {
                    Use::GivesUp => drop(ticket),
                    Use::Waits => {
                        let _turn = ticket.wait();
                        assert!(!has_turn.swap(true, Ordering::SeqCst), "two have the turn");
                        turns.lock().unwrap().push(number);
                        has_turn.store(false, Ordering::SeqCst);
                    }
                }
            }
        }
    };
    let others: Vec<_> = (1..threads).map(|_| thread::spawn(work())).collect();
    work()();
    for other in others {
        other.join().unwrap();
    }
    let turns = turns.lock().unwrap();
    let waited = uses.iter().filter(|used| matches!(used, Use::Waits)).count();
    assert_eq!(turns.len(), threads as usize * waited);
    assert!(turns.is_sorted(), "{turns:?}");
}

// Requirement: Q1
#[test]
fn turns_of_two_threads_come_in_the_order_of_their_places_in_every_order_of_running() {
    loom::model(|| run(2, &[Use::Waits, Use::Waits]));
}

// Requirement: Q1
#[test]
fn a_place_that_is_given_up_holds_nobody_up_in_any_order_of_running() {
    loom::model(|| run(2, &[Use::GivesUp, Use::Waits]));
    loom::model(|| run(2, &[Use::Waits, Use::GivesUp]));
}

// Requirement: Q1
#[test]
fn turns_of_three_threads_come_in_the_order_of_their_places_with_three_preemptions() {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| run(3, &[Use::Waits, Use::Waits]));
}
