//! The fair queue of a store: operations take effect in the order of their calls (requirements Q1, Q2).

use std::collections::BTreeSet;

use crate::sync::PoisonError;
use crate::sync::queue::{Arc, Condvar, Mutex, MutexGuard, ThreadId, thread};

/// A queue of tickets. Cloning gives another handle on the same queue.
#[derive(Clone, Default)]
pub(crate) struct Queue(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// The number that the next ticket gets.
    next: u64,
    /// The number whose turn it is.
    serving: u64,
    /// Tickets behind `serving` that were dropped before their turn came.
    abandoned: BTreeSet<u64>,
    holder: Option<ThreadId>,
    reentered: bool,
}

/// The calling thread has its turn already: waiting for another one would never end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reentered;

impl Queue {
    /// Takes a place in the queue, now. The turn comes with [`Ticket::wait`].
    pub(crate) fn ticket(&self) -> Result<Ticket, Reentered> {
        let mut state = self.0.lock();
        if state.holder == Some(thread::current().id()) {
            state.reentered = true;
            return Err(Reentered);
        }
        let number = state.next;
        state.next += 1;
        Ok(Ticket { queue: self.clone(), number, waited: false })
    }
}

/// A place in the queue. Dropping it gives the place up.
pub(crate) struct Ticket {
    queue: Queue,
    number: u64,
    waited: bool,
}

impl Ticket {
    /// Waits until every earlier ticket was served or given up.
    pub(crate) fn wait(mut self) -> Turn {
        let mut state = self.queue.0.lock();
        while state.serving != self.number {
            state = self.queue.0.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.holder = Some(thread::current().id());
        state.reentered = false;
        drop(state);
        self.waited = true;
        Turn { queue: self.queue.clone() }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.waited {
            return;
        }
        let mut state = self.queue.0.lock();
        state.abandoned.insert(self.number);
        let serving = state.serving;
        state.skip_abandoned();
        if state.serving != serving {
            self.queue.0.moved.notify_all();
        }
    }
}

/// The turn of one operation, until dropped.
pub(crate) struct Turn {
    queue: Queue,
}

impl Turn {
    /// Whether this thread asked for a further turn during this one.
    pub(crate) fn was_reentered(&self) -> bool {
        self.queue.0.lock().reentered
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.queue.0.lock();
        state.holder = None;
        state.serving += 1;
        state.skip_abandoned();
        self.queue.0.moved.notify_all();
    }
}

impl State {
    /// Passes over tickets that were given up. Only while nobody has a turn: a holder's own number is never
    /// abandoned, so the loop stops there.
    fn skip_abandoned(&mut self) {
        while self.abandoned.remove(&self.serving) {
            self.serving += 1;
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, so a panic in another thread spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, loom))]
mod loom;

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn run(queue: &Queue, label: u32, log: &Arc<Mutex<Vec<u32>>>) -> thread::JoinHandle<()> {
        let ticket = queue.ticket().unwrap();
        let log = log.clone();
        thread::spawn(move || {
            let _turn = ticket.wait();
            log.lock().unwrap().push(label);
        })
    }

    // Requirement: Q1
    #[test]
    fn turns_come_in_the_order_of_the_tickets() {
        let queue = Queue::default();
        let log = Arc::new(Mutex::new(Vec::new()));
        let first = queue.ticket().unwrap();
        let workers: Vec<_> = (1..20).map(|label| run(&queue, label, &log)).collect();
        assert!(log.lock().unwrap().is_empty());
        drop(first.wait());
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(*log.lock().unwrap(), (1..20).collect::<Vec<_>>());
    }

    // Requirement: Q1
    #[test]
    fn a_dropped_ticket_holds_nobody_up() {
        let queue = Queue::default();
        let log = Arc::new(Mutex::new(Vec::new()));
        let first = queue.ticket().unwrap();
        let given_up = queue.ticket().unwrap();
        let worker = run(&queue, 1, &log);
        drop(given_up);
        let turn = first.wait();
        drop(queue.ticket());
        drop(turn);
        worker.join().unwrap();
        assert_eq!(*log.lock().unwrap(), [1]);
    }

    // Requirement: Q1
    #[test]
    fn who_waits_already_is_woken_when_the_place_before_is_given_up() {
        let queue = Queue::default();
        let first = queue.ticket().unwrap();
        let second = queue.ticket().unwrap();
        let (answer, answered) = mpsc::channel();
        let worker = thread::spawn(move || answer.send(second.wait().was_reentered()).unwrap());
        // Long enough to be waiting by then; if it is not, it has no need to be woken.
        thread::sleep(Duration::from_millis(50));
        drop(first);
        assert!(answered.recv_timeout(Duration::from_secs(20)).is_ok(), "nobody woke the next in line");
        worker.join().unwrap();
    }

    // Requirement: S9
    #[test]
    fn a_second_turn_within_a_turn_is_refused() {
        let queue = Queue::default();
        let turn = queue.ticket().unwrap().wait();
        assert!(!turn.was_reentered());
        assert_eq!(queue.ticket().err(), Some(Reentered));
        assert!(turn.was_reentered());
        drop(turn);
        assert!(!queue.ticket().unwrap().wait().was_reentered());
    }
}
