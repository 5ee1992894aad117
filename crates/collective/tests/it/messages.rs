//! The backend over a launcher's messages, with messages that are queues in memory: who moves them,
//! what breaks, who is named.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use probe_sync_collective::suite::{CASES, Case};
use probe_sync_collective::{
    ByMessages, Carrier, Collective, Deadline, Error, Frames, Messages, Rank, Threads, by_messages,
};

/// Messages that have come, with their senders; one queue for each rank.
type Queues = Arc<Vec<Mutex<VecDeque<(Rank, Vec<u8>)>>>>;

#[derive(Debug)]
struct InMemory {
    rank: Rank,
    queues: Queues,
    threads: Threads,
    /// From then on nothing moves.
    finalised: Arc<AtomicBool>,
}

impl Messages for InMemory {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.queues.len()
    }

    fn backend(&self) -> &'static str {
        "in-memory"
    }

    fn threads(&self) -> Threads {
        self.threads
    }

    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<(), Error> {
        self.queues[to].lock().unwrap().push_back((self.rank, message));
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>, Error> {
        if self.finalised.load(Ordering::Relaxed) {
            return Err(Error::Backend { operation: "receive", reason: "finalised".into() });
        }
        Ok(self.queues[self.rank].lock().unwrap().pop_front())
    }

    fn sending(&self) -> bool {
        false
    }

    fn release(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

fn ends(size: usize, threads: Threads) -> Vec<(ByMessages, Carrier)> {
    let queues: Queues = Arc::new((0..size).map(|_| Mutex::default()).collect());
    let finalised = Arc::new(AtomicBool::new(false));
    let end = |rank| InMemory { rank, queues: queues.clone(), threads, finalised: finalised.clone() };
    (0..size).map(|rank| by_messages(Box::new(end(rank)))).collect()
}

/// Runs a case with all ranks, whose mail is moved by themselves or by launchers' threads that come
/// to it now and then.
fn check(case: &Case, size: usize, threads: Threads) {
    let over = AtomicBool::new(false);
    let complaints: Vec<String> = std::thread::scope(|scope| {
        let ranks: Vec<_> = ends(size, threads)
            .into_iter()
            .map(|(group, mut carrier)| {
                if threads == Threads::Any {
                    let mut group = group.carried_by(carrier);
                    return scope.spawn(move || ((case.run)(&mut group), Some(group)));
                }
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        carrier.step(Duration::from_micros(200)).unwrap();
                        std::thread::sleep(Duration::from_micros(100));
                    }
                });
                let mut group = group;
                scope.spawn(move || ((case.run)(&mut group), Some(group)))
            })
            .collect();
        let ends: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        // Before a rank's panic is passed on: the scope waits for those who move mail.
        over.store(true, Ordering::Relaxed);
        ends.into_iter().filter_map(|end| end.unwrap().0.err()).collect()
    });
    assert!(complaints.is_empty(), "{} with {size} ranks, {threads:?}: {complaints:#?}", case.name);
}

fn passes_the_suite(threads: Threads) {
    std::thread::scope(|scope| {
        for size in [1, 2, 3, 8] {
            scope.spawn(move || {
                CASES.iter().filter(|case| case.smallest_size <= size).for_each(|case| check(case, size, threads));
            });
        }
    });
}

#[test]
fn mail_that_every_rank_moves_itself_passes_the_suite() {
    passes_the_suite(Threads::Any);
}

#[test]
fn mail_that_launchers_move_passes_the_suite() {
    passes_the_suite(Threads::OneAtATime);
}

#[test]
fn a_rank_without_a_part_that_moves_no_mail_is_named() {
    let mut ranks: Vec<_> =
        ends(3, Threads::Any).into_iter().map(|(group, carrier)| group.carried_by(carrier)).collect();
    let deadline = Deadline::new(Duration::from_millis(50), None);
    let mut frames = Frames::default();
    let participants = [true, true, false];
    ranks[1].gather(&participants, b"here", &mut frames, &deadline).unwrap();
    let error = ranks[0].gather(&participants, b"here", &mut frames, &deadline).unwrap_err();
    assert!(matches!(&error, Error::Late { missing, .. } if *missing == [2]), "{error}");
    // The root says so, and everybody hears it.
    ranks[0].abort(&error.to_string());
    let error = ranks[1].broadcast(&mut Vec::new(), &deadline).unwrap_err().to_string();
    assert!(error.contains("rank 0 ended the run: gather: no data from rank(s) 2"), "{error}");
}

#[test]
fn a_step_ends_in_time_moves_nothing_unasked_and_is_refused_on_another_thread() {
    let mut ends = ends(2, Threads::Own);
    let (mut one, mut carrier) = ends.remove(1);
    let (_zero, mut carrier_of_zero) = ends.remove(0);
    assert!(carrier.made_here() && !carrier.any_thread());
    let mut frames = Frames::default();
    one.gather(&[true, true], b"here", &mut frames, &Deadline::new(Duration::from_secs(1), None)).unwrap();
    // No time is enough for one message; the root is late, and nobody waits for it.
    carrier.step(Duration::ZERO).unwrap();
    carrier.step(Duration::from_secs(3600)).unwrap();
    // Nobody waits at rank 0: what has come stays with the launcher's library.
    carrier_of_zero.step(Duration::from_secs(3600)).unwrap();
    let refused = std::thread::spawn(move || carrier.step(Duration::ZERO).unwrap_err().to_string()).join().unwrap();
    assert!(refused.contains("wrong thread"), "{refused}");
}

#[test]
fn a_root_whose_launcher_moves_nothing_blames_nobody_else() {
    let mut ends = ends(2, Threads::OneAtATime);
    let (_one, _) = ends.remove(1);
    let (mut zero, _carrier) = ends.remove(0);
    let deadline = Deadline::new(Duration::from_millis(50), None);
    let error = zero.gather(&[true, true], b"here", &mut Frames::default(), &deadline).unwrap_err().to_string();
    assert!(error.contains("gather: step() has moved no messages for"), "{error}");
}

#[test]
fn who_waits_learns_that_nothing_moves_any_more() {
    let queues: Queues = Arc::new((0..2).map(|_| Mutex::default()).collect());
    let finalised = Arc::new(AtomicBool::new(true));
    let messages = InMemory { rank: 1, queues, threads: Threads::Any, finalised };
    let (group, carrier) = by_messages(Box::new(messages));
    let mut group = group.carried_by(carrier);
    let deadline = Deadline::new(Duration::from_secs(60), None);
    for _ in 0..2 {
        let error = group.broadcast(&mut Vec::new(), &deadline).unwrap_err().to_string();
        assert!(error.contains("finalised"), "{error}");
    }
}
