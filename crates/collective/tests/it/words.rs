//! Words beside the operations of a TCP group, where ranks are lost or do not listen, and what was
//! carried.

use std::time::{Duration, Instant};

use probe_sync_collective::{
    Call, Collective as _, Deadline, Error, FaultTolerance, Frames, Tcp, TcpOptions, Traffic, WORD_MAX,
};

use crate::backends::{tcp_group, tcp_group_with};

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

/// Polls until this many messages have arrived.
fn hear(group: &mut Tcp, count: usize) -> Vec<Call> {
    let (begun, mut heard) = (Instant::now(), Vec::new());
    while heard.len() < count {
        assert!(begun.elapsed() < Duration::from_secs(120), "{} of {count} words", heard.len());
        heard.extend(group.calls().unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
    heard
}

#[test]
fn words_are_heard_before_the_frame_that_lies_in_front_of_them_is_taken() {
    let mut group = tcp_group(2);
    let mut one = group.pop().unwrap();
    let root = &mut group[0];
    one.gather(&[true; 2], b"early", &mut Frames::default(), &deadline()).unwrap();
    one.call(b"stop").unwrap();
    root.call(b"go on").unwrap();
    assert_eq!(hear(root, 1), [(1, b"stop".to_vec())]);
    assert_eq!(hear(&mut one, 1), [(0, b"go on".to_vec())]);
    let mut frames = Frames::default();
    root.gather(&[true; 2], b"", &mut frames, &deadline()).unwrap();
    assert_eq!(frames.frame(1), b"early");
}

#[test]
fn a_rank_that_has_gone_shows_in_the_next_operation_and_not_in_a_word() {
    let mut group = tcp_group(3);
    let mut two = group.pop().unwrap();
    drop(group.pop());
    let root = &mut group[0];
    root.continue_without_lost(Vec::new()).unwrap();
    for _ in 0..20 {
        root.call(b"word").unwrap();
        assert!(root.calls().unwrap().is_empty());
    }
    assert!(root.attendance().left.is_empty());
    assert_eq!(hear(&mut two, 20).len(), 20);
    root.broadcast(&mut b"x".to_vec(), &deadline()).unwrap();
    let left = root.attendance().left;
    assert!(matches!(&left[..], [(1, Error::Lost { .. })]), "{left:?}");
}

#[test]
fn a_rank_that_hears_nothing_makes_nobody_wait_and_is_given_up() {
    let mut group = tcp_group(2);
    let (_silent, root) = (group.pop().unwrap(), &mut group[0]);
    root.continue_without_lost(Vec::new()).unwrap();
    // More than the system's buffers and ours take.
    for _ in 0..10_000 {
        root.call(&[7; WORD_MAX]).unwrap();
    }
    root.broadcast(&mut b"x".to_vec(), &deadline()).unwrap();
    let left = root.attendance().left;
    assert!(matches!(&left[..], [(1, Error::Lost { reason, .. })] if reason.contains("has not read")), "{left:?}");
}

#[test]
fn what_was_carried_is_counted_at_both_ends() {
    // Where frames move to another socket, one side has said so before the other hears it.
    let mut group = tcp_group_with(2, TcpOptions { local: false, ..TcpOptions::default() });
    let mut one = group.pop().unwrap();
    let root = &mut group[0];
    one.gather(&[true; 2], &[1; 1000], &mut Frames::default(), &deadline()).unwrap();
    root.gather(&[true; 2], b"", &mut Frames::default(), &deadline()).unwrap();
    root.call(b"word").unwrap();
    root.broadcast(&mut vec![2; 500], &deadline()).unwrap();
    one.broadcast(&mut Vec::new(), &deadline()).unwrap();
    let (at_root, at_one) = (root.traffic(), one.traffic());
    let swapped = Traffic {
        messages_sent: at_one.messages_received,
        messages_received: at_one.messages_sent,
        bytes_sent: at_one.bytes_received,
        bytes_received: at_one.bytes_sent,
        retries: at_root.retries,
    };
    assert_eq!(at_root, swapped);
    assert_eq!((at_root.messages_sent, at_root.messages_received), (2, 1));
    assert!(at_root.bytes_received >= 1000 && at_root.bytes_sent >= 504, "{at_root:?}");
}
