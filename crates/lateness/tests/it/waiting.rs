//! Who is waited for.

use probe_sync_lateness::live::{Event, Waiting};

use crate::job::Job;

const SECOND: i64 = 1_000_000_000;

/// Goes on reporting with nobody arriving, until a wait is told; after how many tenths of a second.
fn until_told(job: &mut Job, silent: &[u32]) -> (i64, Vec<Event>) {
    for tenth in 1..100 {
        job.now_ns += SECOND / 10;
        // The watch looks ten times a second, ranks report once.
        let events = if tenth % 10 == 0 { job.report(silent) } else { job.look() };
        if !events.is_empty() {
            return (tenth, events);
        }
    }
    (100, Vec::new())
}

fn missing(events: &[Event]) -> Vec<u32> {
    let Some(Event::WaitBegun(Waiting { missing, .. })) = events.first() else { panic!("{events:?}") };
    missing.iter().map(|(rank, _)| *rank).collect()
}

#[test]
fn a_rank_that_was_stopped_is_waited_for_within_five_seconds() {
    let mut job = Job::new(4, 1);
    job.run(200, |_, _| 0);
    job.step(|rank| (rank != 3).then_some(0));
    job.report(&[3]);
    let (tenths, events) = until_told(&mut job, &[3]);
    assert_eq!(missing(&events), [3]);
    assert!(tenths <= 40, "{tenths} tenths of a second");
    // It comes after all.
    job.step -= 1;
    job.step(|rank| (rank == 3).then_some(0));
    let ended = job.report(&[]);
    assert!(matches!(ended[..], [Event::WaitEnded(_)]), "{ended:?}");
    assert!(job.watch.standing(job.now_ns).waiting.is_empty());
}

#[test]
fn a_rank_that_skips_an_operation_is_named_with_where_it_is() {
    let mut job = Job::new(4, 2);
    job.run(200, |_, _| 0);
    let step = job.step;
    job.step(|rank| (rank != 1).then_some(0));
    job.step(|rank| (rank == 1).then_some(0));
    job.report(&[]);
    let (tenths, events) = until_told(&mut job, &[]);
    let Some(Event::WaitBegun(wait)) = events.first() else { panic!("{events:?}") };
    assert_eq!((wait.step, &wait.missing[..], &wait.waiting[..]), (step, &[(1, Some(step + 1))][..], &[0, 2, 3][..]));
    assert!(tenths <= 40, "{tenths} tenths of a second");
}

#[test]
fn a_rank_whose_arrival_was_lost_is_not_waited_for() {
    let mut job = Job::new(4, 5);
    job.run(200, |_, _| 0);
    job.step(|rank| (rank != 1).then_some(0));
    job.dropped[1] += 1;
    job.report(&[]);
    assert!(until_told(&mut job, &[]).1.is_empty());
    // What it loses before an operation proves nothing about this one.
    job.step(|_| Some(0));
    job.dropped[1] += 1;
    job.report(&[]);
    job.now_ns += SECOND / 10;
    job.step(|rank| (rank != 1).then_some(0));
    job.report(&[]);
    assert_eq!(missing(&until_told(&mut job, &[]).1), [1]);
}

#[test]
fn a_rank_whose_reports_add_nothing_is_waited_for_after_ten_seconds() {
    let mut job = Job::new(4, 6);
    job.run(200, |_, _| 0);
    job.unchanged.push((2, job.now_ns));
    job.report(&[]);
    job.step(|rank| (rank != 2).then_some(0));
    job.report(&[]);
    let (tenths, _) = until_told(&mut job, &[]);
    assert!(tenths >= 95, "{tenths} tenths of a second: it may only be late to say that it arrived");
    assert_eq!(missing(&until_told(&mut job, &[]).1), [2]);
}

#[test]
fn an_end_of_the_loop_and_slow_steps_name_nobody() {
    let mut job = Job::new(4, 3);
    job.run(200, |_, _| 0);
    job.report(&[]);
    assert!(until_told(&mut job, &[]).1.is_empty());
    // Steps that usually take 1.5 s between the first and the last: 5 s are nothing.
    let mut job = Job::new(4, 4);
    job.run(100, |_, rank| i64::from(rank) * SECOND / 2);
    job.step(|rank| (rank != 3).then_some(0));
    job.report(&[]);
    for _ in 0..5 {
        job.now_ns += SECOND;
        assert!(job.report(&[]).iter().all(|event| !matches!(event, Event::WaitBegun(_))));
    }
}
