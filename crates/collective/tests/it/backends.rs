//! Runs the shared suite on groups of threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use probe_sync_collective::suite::{CASES, Case};
use probe_sync_collective::{Collective, Deadline, FanOut, InProcess, JobKey, Tcp, TcpOptions, bind};

const SIZES: [usize; 4] = [1, 2, 3, 8];

/// Nobody listens here. A port that was free a moment ago may be another test's by now.
pub const NOWHERE: &str = "127.0.0.1:1";

/// Connects `size` ranks over loopback, each in a thread of its own.
pub fn tcp_group(size: usize) -> Vec<Tcp> {
    tcp_group_with(size, TcpOptions::default())
}

/// The same with these options.
pub fn tcp_group_with(size: usize, options: TcpOptions) -> Vec<Tcp> {
    tcp_group_at(size, options).0
}

/// The same, and where its root listens.
pub fn tcp_group_at(size: usize, options: TcpOptions) -> (Vec<Tcp>, SocketAddr) {
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let address = at.to_string();
    let deadline = Deadline::new(Duration::from_secs(60), None);
    std::thread::scope(|scope| {
        let joining: Vec<_> = (1..size)
            .map(|rank| {
                let (address, deadline) = (&address, &deadline);
                let join = move || {
                    Tcp::join_any(std::slice::from_ref(address), rank, size, JobKey::of(b"7"), options, deadline)
                };
                scope.spawn(move || join().unwrap())
            })
            .collect();
        let mut group = vec![Tcp::host_with(listener, size, JobKey::of(b"7"), options, &deadline).unwrap()];
        group.extend(joining.into_iter().map(|thread| thread.join().unwrap()));
        (group, at)
    })
}

fn check<C: Collective + Send>(case: &Case, group: Vec<C>) {
    let size = group.len();
    let complaints: Vec<String> = std::thread::scope(|scope| {
        // The ends outlive the case: a rank that is done must not look like a rank that is lost.
        let ranks: Vec<_> = group.into_iter().map(|mut end| scope.spawn(move || ((case.run)(&mut end), end))).collect();
        let ends: Vec<_> = ranks.into_iter().map(|thread| thread.join().unwrap()).collect();
        ends.into_iter().filter_map(|(result, _)| result.err()).collect()
    });
    assert!(complaints.is_empty(), "{} with {size} ranks: {complaints:#?}", case.name);
}

fn for_all<C: Collective + Send>(make: impl Fn(usize) -> Vec<C> + Sync) {
    for_sizes(&SIZES, make);
}

/// All cases of the suite on groups of these sizes.
pub fn for_sizes<C: Collective + Send>(sizes: &[usize], make: impl Fn(usize) -> Vec<C> + Sync) {
    std::thread::scope(|scope| {
        for &size in sizes {
            let make = &make;
            scope.spawn(move || {
                for case in CASES.iter().filter(|case| case.smallest_size <= size) {
                    check(case, make(size));
                }
            });
        }
    });
}

#[test]
fn in_process_passes_the_suite() {
    for_all(InProcess::group);
}

#[test]
fn tcp_passes_the_suite() {
    for_all(tcp_group);
}

/// A tree in which each rank serves up to `fan_out` others.
pub fn tree(fan_out: usize) -> TcpOptions {
    TcpOptions { fan_out: FanOut::Tree(fan_out), ..TcpOptions::default() }
}

/// Full trees of two and of three, those with a rank more, and others. A few groups at a time: some
/// cases say that a rank is late after half a second, and the others must not be.
fn check_tree(fan_out: usize) {
    for sizes in [1, 2, 3, 4, 7, 8, 13, 20].chunks(4) {
        for_sizes(sizes, |size| tcp_group_with(size, tree(fan_out)));
    }
}

#[test]
fn a_tree_of_two_passes_the_suite() {
    check_tree(2);
}

#[test]
#[ignore = "long: runs the suite again over a deeper tree"]
fn a_tree_of_three_passes_the_suite() {
    check_tree(3);
}
