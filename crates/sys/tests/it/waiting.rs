//! One task waits for datagrams, transmit stamps and a timer. Lost edges would hang these tests;
//! the limit around them turns that into a failure.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use probe_sync_sys::udp::{AsyncUdp, TimestampMode, UdpOptions, Wake, wait};
use probe_sync_sys::{MonotonicClock, Timer};
use probe_sync_time::{Clock, Duration as Span};

use super::loopbacks;

/// Runs a task as the node does: one thread, no tokio timers. Fails instead of hanging.
fn run<F: Future<Output = ()>>(task: impl FnOnce() -> F + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(task());
        // The receiver is gone only when the test has failed already.
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(30)) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().expect("the task's own assertions hold"),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the task hangs: an edge was lost"),
    }
}

fn open(bind: SocketAddr) -> AsyncUdp {
    let options = UdpOptions { timestamps: TimestampMode::Kernel, ..UdpOptions::new(bind) };
    AsyncUdp::bind(&options).expect("loopback has room")
}

/// A peer on a thread of its own that sends every datagram back, until an empty one comes.
fn echo(bind: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let socket = UdpSocket::bind(bind).expect("loopback has room");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("not zero");
    let address = socket.local_addr().expect("bound");
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if length == 0 {
                break;
            }
            socket.send_to(&buffer[..length], from).expect("loopback takes it");
        }
    });
    (address, thread)
}

/// Plays ping-pong, taking at most `per_turn` from each queue after each wake-up.
fn check_ping_pong(per_turn: usize, burst: u32) {
    for loopback in loopbacks() {
        let (peer, thread) = echo(loopback);
        run(move || async move {
            let (mut udp, timer) = (open(loopback), Timer::new().expect("a timer"));
            let (mut echoes, mut awaited) = (0u32, HashSet::new());
            let mut buffer = [0; 64];
            for round in 1..=100u32 {
                for _ in 0..burst {
                    awaited.insert(udp.try_send(&round.to_le_bytes(), peer).expect("loopback takes it"));
                }
                while echoes < round * burst || !awaited.is_empty() {
                    let wake = wait(&mut udp, &timer).await.expect("the runtime runs");
                    assert!((wake.readable || wake.stamped) && !wake.expired);
                    for _ in 0..per_turn {
                        let Some((token, _)) = udp.try_transmit_stamp().expect("the socket works") else { break };
                        assert!(awaited.remove(&token));
                    }
                    for _ in 0..per_turn {
                        let Some(_) = udp.try_recv(&mut buffer).expect("the socket works") else { break };
                        echoes += 1;
                    }
                }
            }
            assert_eq!((udp.udp().counters().transmit_stamps_missing, udp.udp().stamps_awaited()), (0, 0));
            udp.try_send(&[], peer).expect("loopback takes it");
        });
        thread.join().expect("the echo ends");
    }
}

/// True when nothing wakes the task although it is polled again and again, the driver running in
/// between.
async fn stays_asleep(udp: &mut AsyncUdp, timer: &Timer) -> bool {
    for _ in 0..50 {
        let mut waiting = pin!(wait(udp, timer));
        let woken = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_ready())).await;
        if woken {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

#[test]
fn emptied_queues_and_a_stopped_timer_wake_nobody() {
    for loopback in loopbacks() {
        run(move || async move {
            let (mut a, mut timer) = (open(loopback), Timer::new().expect("a timer"));
            let here = a.udp().local_addr();
            let mut buffer = [0; 8];
            for _ in 0..20 {
                a.try_send(&[1], here).expect("loopback takes it");
                let (mut stamped, mut received) = (false, false);
                while !(stamped && received) {
                    wait(&mut a, &timer).await.expect("the runtime runs");
                    stamped |= a.try_transmit_stamp().expect("the socket works").is_some();
                    received |= a.try_recv(&mut buffer).expect("the socket works").is_some();
                }
                while a.try_transmit_stamp().expect("the socket works").is_some() {}
                while a.try_recv(&mut buffer).expect("the socket works").is_some() {}
                // An edge that is still under way may wake it once, for nothing.
                if !stays_asleep(&mut a, &timer).await {
                    assert_eq!(a.try_transmit_stamp().expect("the socket works"), None);
                    assert_eq!(a.try_recv(&mut buffer).expect("the socket works"), None);
                    assert!(stays_asleep(&mut a, &timer).await);
                }
                // A timer that has expired and is stopped before anyone looked.
                timer.set(Some(MonotonicClock.now())).expect("a timer");
                tokio::task::yield_now().await;
                timer.set(None).expect("a timer");
                assert!(stays_asleep(&mut a, &timer).await);
            }
        });
    }
}

#[test]
fn the_timer_wakes_the_task_again_and_again() {
    run(|| async {
        let (mut udp, mut timer) = (open(loopbacks()[0]), Timer::new().expect("a timer"));
        while !stays_asleep(&mut udp, &timer).await {
            udp.try_transmit_stamp().expect("the socket works");
            udp.try_recv(&mut [0; 8]).expect("the socket works");
        }
        for step_us in [-10, 0, 1, 50, 300, 2000, 20, 20] {
            let deadline = MonotonicClock.now() + Span::from_us(step_us);
            // Set twice, the first time to something that is over before anyone waits.
            timer.set(Some(MonotonicClock.now())).expect("a timer");
            tokio::task::yield_now().await;
            timer.set(Some(deadline)).expect("a timer");
            let wake = wait(&mut udp, &timer).await.expect("the runtime runs");
            assert_eq!(wake, Wake { expired: true, ..Wake::default() });
            assert!(MonotonicClock.now() >= deadline);
        }
    });
}

#[test]
fn no_edge_is_lost_when_queues_are_emptied() {
    check_ping_pong(usize::MAX, 1);
    check_ping_pong(usize::MAX, 20);
}

#[test]
fn no_edge_is_lost_when_queues_are_left_half_full() {
    check_ping_pong(1, 1);
    check_ping_pong(1, 20);
    check_ping_pong(3, 20);
}
