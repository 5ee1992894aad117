//! When exchanges start, with whom, and how many may be under way.

use probe_sync_probe::{EndpointConfig, Error, Kind, Packet, Schedule};
use probe_sync_time::{Duration, NodeId, RunId, SessionKey, StampSource};

use crate::wire::{KEY, TIMEOUT, at, config, endpoint, stamp, transmits};

/// The peers of the first packets that node `node` sends when its timer runs at these instants.
fn starts(node: u32, out_edges: &[u32], instants: impl IntoIterator<Item = i64>) -> Vec<u32> {
    let mut endpoint = endpoint(node, 10, out_edges);
    let mut peers = Vec::new();
    for instant in instants {
        endpoint.handle_timer(at(instant));
        peers.extend(transmits(&mut endpoint).iter().filter(|t| t.context.kind == Kind::Pt1).map(|t| t.to.0));
    }
    peers
}

#[test]
fn edges_take_turns_from_the_next_higher_node_on() {
    let milliseconds = (1..=5).map(|ms| ms * 1_000_000);
    assert_eq!(starts(4, &[7, 1, 5], milliseconds.clone()), [5, 7, 1, 5, 7]);
    assert_eq!(starts(9, &[7, 1, 5], milliseconds.clone()), [1, 5, 7, 1, 5]);
    assert!(starts(4, &[], milliseconds).is_empty());
}

#[test]
fn missed_starts_are_skipped_and_counted() {
    let mut zero = endpoint(0, 2, &[1]);
    zero.handle_timer(at(999_999));
    assert_eq!((zero.in_flight(), zero.next_timer()), (0, Some(at(1_000_000))));
    let mut check = |now, started: u64, skipped, next| {
        zero.handle_timer(at(now));
        zero.handle_timer(at(now));
        let counters = zero.counters();
        assert_eq!((counters.total().exchanges.started, counters.skipped_starts), (started, skipped), "at {now}");
        transmits(&mut zero);
        zero.handle_timer(at(now + 100_000));
        assert_eq!(zero.next_timer(), Some(at(next)), "at {now}");
    };
    check(1_000_000, 1, 0, 2_000_000);
    check(2_000_500, 2, 0, 3_000_000);
    check(7_200_000, 3, 4, 8_000_000);
}

#[test]
fn a_burst_starts_with_different_peers_at_once() {
    let schedule = Schedule::in_bursts(Duration::from_ms(1), 3, Duration::from_ms(1)).unwrap();
    let mut zero =
        probe_sync_probe::Endpoint::new(EndpointConfig { schedule, ..config(0, 3, &[1, 2]) }, at(0)).unwrap();
    let mut check = |now, peers: &[u32], next, skipped| {
        zero.handle_timer(at(now));
        let firsts = transmits(&mut zero).into_iter().filter(|t| t.context.kind == Kind::Pt1);
        assert_eq!(firsts.map(|transmit| transmit.to.0).collect::<Vec<_>>(), peers, "at {now}");
        zero.handle_timer(at(now + 100_000));
        transmits(&mut zero);
        assert_eq!((zero.next_timer(), zero.counters().skipped_starts), (Some(at(next)), skipped), "at {now}");
    };
    check(1_000_000, &[1, 2, 1], 4_000_000, 0);
    check(4_000_000, &[2, 1, 2], 7_000_000, 0);
    check(14_000_000, &[1, 2, 1], 16_000_000, 6);
}

#[test]
fn a_train_goes_to_one_peer_and_the_next_to_another() {
    let schedule = Schedule::in_trains(Duration::from_ms(1), 3, Duration::ZERO).unwrap();
    let mut zero =
        probe_sync_probe::Endpoint::new(EndpointConfig { schedule, ..config(0, 3, &[1, 2]) }, at(0)).unwrap();
    let mut train = |now| {
        zero.handle_timer(at(now));
        let firsts = transmits(&mut zero).into_iter().filter(|t| t.context.kind == Kind::Pt1);
        firsts.map(|transmit| transmit.to.0).collect::<Vec<_>>()
    };
    assert_eq!([train(3_000_000), train(6_000_000), train(9_000_000)], [[1; 3], [2; 3], [1; 3]]);
}

#[test]
fn a_new_schedule_holds_from_now_on() {
    let mut zero = endpoint(0, 2, &[1]);
    zero.handle_timer(at(1_000_000));
    zero.handle_timer(at(1_100_000));
    zero.set_schedule(Schedule::new(Duration::from_us(300), Duration::from_us(50)).unwrap());
    assert_eq!(zero.next_timer(), Some(at(1_250_000)));
    zero.set_probing(false);
    assert_eq!(zero.next_timer(), Some(at(1_000_000 + TIMEOUT)), "only the timeout is left");
    zero.set_probing(true);
    assert_eq!(zero.next_timer(), Some(at(1_250_000)));
}

#[test]
fn time_never_goes_back() {
    let mut zero = endpoint(0, 2, &[1]);
    zero.handle_timer(at(5_500_000));
    zero.handle_timer(at(1_000_000));
    zero.set_schedule(Schedule::new(Duration::from_ms(2), Duration::ZERO).unwrap());
    zero.set_probing(false);
    zero.set_probing(true);
    zero.handle_timer(at(5_600_000));
    assert_eq!(zero.next_timer(), Some(at(6_000_000)));
}

#[test]
fn a_dead_peer_fills_the_table_and_no_more() {
    let schedule = Schedule::new(Duration::from_us(200), Duration::ZERO).unwrap();
    let mut zero =
        probe_sync_probe::Endpoint::new(EndpointConfig { schedule, ..config(0, 3, &[1, 2]) }, at(0)).unwrap();
    for tick in 1..=400 {
        zero.handle_timer(at(tick * 200_000));
        transmits(&mut zero);
    }
    let started =
        |zero: &probe_sync_probe::Endpoint| [1, 2].map(|peer| zero.counters().peers[&NodeId(peer)].exchanges.started);
    assert_eq!((started(&zero), zero.counters().refused_starts), ([64, 64], 400 - 128));
    assert_eq!(zero.counters().skipped_starts, 0);
    // The first exchange's timeout is up; its place is free again.
    zero.handle_timer(at(200_000 + TIMEOUT));
    assert_eq!(zero.counters().total().exchanges.timed_out, 1);
    assert_eq!((started(&zero), zero.in_flight()), ([65, 64], 128));
}

#[test]
fn windows_are_cut_per_edge() {
    let mut zero = endpoint(0, 3, &[1, 2]);
    for ms in 1..=3 {
        zero.handle_timer(at(ms * 1_000_000));
    }
    let counts = |endpoint: &mut probe_sync_probe::Endpoint| -> Vec<(u32, u32, u32, u32)> {
        endpoint.cut_window().iter().map(|edge| (edge.peer.0, edge.started, edge.finished, edge.lost)).collect()
    };
    assert_eq!(counts(&mut zero), [(1, 2, 0, 0), (2, 1, 0, 0)]);
    zero.set_probing(false);
    zero.handle_timer(at(2_000_000 + TIMEOUT));
    assert_eq!(counts(&mut zero), [(1, 0, 0, 1), (2, 0, 0, 1)]);
    assert_eq!(counts(&mut zero), [(1, 0, 0, 0), (2, 0, 0, 0)]);
}

fn peers(peers: &[u32]) -> Vec<NodeId> {
    peers.iter().copied().map(NodeId).collect()
}

#[test]
fn out_edges_change_while_running_and_keep_their_sequence_numbers() {
    let mut zero = endpoint(0, 5, &[1, 3]);
    let mut now = 0;
    let mut starts = |zero: &mut probe_sync_probe::Endpoint, count: usize| -> Vec<(u32, u32)> {
        let mut started = Vec::new();
        for _ in 0..count {
            now += 1_000_000;
            zero.handle_timer(at(now));
            let first = |t: &probe_sync_probe::Transmit| t.context.kind == Kind::Pt1;
            started.extend(transmits(zero).iter().filter(|t| first(t)).map(|t| (t.to.0, t.context.seq)));
        }
        started
    };
    assert_eq!(starts(&mut zero, 1), [(1, 0)]);
    zero.set_out_edges(&peers(&[1, 3, 2])).expect("sound edges");
    assert_eq!(starts(&mut zero, 3), [(3, 0), (1, 1), (2, 0)], "the turn goes on where it was");
    zero.set_out_edges(&peers(&[1])).expect("sound edges");
    assert_eq!((starts(&mut zero, 2), zero.in_flight()), (vec![(1, 2), (1, 3)], 6), "nothing in flight is dropped");
    zero.set_out_edges(&peers(&[])).expect("no edges");
    assert_eq!(starts(&mut zero, 2), []);
    zero.set_out_edges(&peers(&[3])).expect("sound edges");
    assert_eq!(starts(&mut zero, 1), [(3, 1)], "a peer must never see a number twice");
    assert_eq!(zero.set_out_edges(&peers(&[5])), Err(Error::NoSuchNode { node: NodeId(5), nodes: 5 }));
    assert_eq!(zero.set_out_edges(&peers(&[2, 2])), Err(Error::BadEdge { node: NodeId(0), peer: NodeId(2) }));
    assert_eq!(zero.set_out_edges(&peers(&[0])), Err(Error::BadEdge { node: NodeId(0), peer: NodeId(0) }));
    assert_eq!(starts(&mut zero, 1), [(3, 2)], "what is refused changes nothing");
}

#[test]
fn an_edge_that_is_no_longer_probed_reports_its_last_exchanges() {
    let mut zero = endpoint(0, 3, &[1, 2]);
    (1..=2).for_each(|ms| zero.handle_timer(at(ms * 1_000_000)));
    let lost = |zero: &mut probe_sync_probe::Endpoint| -> Vec<(u32, u32)> {
        zero.cut_window().iter().map(|edge| (edge.peer.0, edge.lost)).collect()
    };
    zero.set_out_edges(&peers(&[2])).expect("sound edges");
    assert_eq!(lost(&mut zero), [(2, 0)]);
    zero.set_probing(false);
    zero.handle_timer(at(2_000_000 + TIMEOUT));
    assert_eq!(lost(&mut zero), [(1, 1), (2, 1)]);
    assert_eq!(lost(&mut zero), [(2, 0)]);
}

#[test]
fn a_driver_that_never_sends_makes_exchanges_fail_instead_of_memory_grow() {
    let mut zero = endpoint(0, 2, &[1]);
    for tick in 1..=2000 {
        zero.handle_timer(at(tick * 1_000_000));
    }
    let exchanges = zero.counters().total().exchanges;
    assert!(exchanges.send_failed > 0 && exchanges.timed_out > 0);
    assert_eq!(transmits(&mut zero).len(), 1024);
}

#[test]
fn foreign_and_impossible_packets_are_counted_by_reason() {
    let mut zero = endpoint(0, 3, &[1]);
    zero.handle_timer(at(1_000_000));
    let sent = transmits(&mut zero)[0];
    let good = Packet { src: NodeId(1), dst: NodeId(0), ..Packet::decode(&sent.bytes).unwrap() };
    let mut receive = |packet: Packet| {
        zero.handle_packet(&packet.encode(Some(&KEY)), Some(packet.src), stamp(0, StampSource::Kernel), at(1_000_001));
        zero.counters()
    };
    assert_eq!(receive(Packet { run: RunId(78), ..good }).foreign.run, 1);
    assert_eq!(receive(Packet { dst: NodeId(2), ..good }).foreign.destination, 1);
    assert_eq!(receive(Packet { src: NodeId(3), ..good }).foreign.source, 1);
    let answer = Packet { kind: Kind::Pr1, rx: [Some(stamp(0, StampSource::Kernel)); 2], ..good };
    // Before Pt3 has left there can be no answer; of exchange 5, or from node 2, there can be none
    // at all.
    assert_eq!(receive(answer).peers[&NodeId(1)].out_of_state, 1);
    assert_eq!(receive(Packet { seq: 5, ..answer }).peers[&NodeId(1)].out_of_state, 2);
    assert_eq!(receive(Packet { src: NodeId(2), ..answer }).peers[&NodeId(2)].out_of_state, 1);
    assert_eq!(receive(good).total().accepted(), 1);
    let mut receive = |bytes: &[u8], from| {
        zero.handle_packet(bytes, from, stamp(0, StampSource::Kernel), at(1_000_001));
        zero.counters().foreign
    };
    assert_eq!(receive(&good.encode(Some(&KEY)), None).address, 1);
    assert_eq!(receive(&good.encode(Some(&KEY)), Some(NodeId(2))).source, 2);
    assert_eq!(receive(&good.encode(None), Some(NodeId(1))).tag, 1);
    assert_eq!(receive(&good.encode(Some(&SessionKey([8; 32]))), Some(NodeId(1))).tag, 2);
}

#[test]
fn contradictory_configurations_are_refused() {
    let check = |config, expected| {
        assert_eq!(probe_sync_probe::Endpoint::new(config, at(0)).err(), Some(expected));
    };
    check(config(2, 2, &[]), Error::NoSuchNode { node: NodeId(2), nodes: 2 });
    check(config(0, 2, &[1, 2]), Error::NoSuchNode { node: NodeId(2), nodes: 2 });
    check(config(0, 2, &[0]), Error::BadEdge { node: NodeId(0), peer: NodeId(0) });
    check(config(0, 3, &[1, 2, 1]), Error::BadEdge { node: NodeId(0), peer: NodeId(1) });
    let (spacing, timeout) = (Duration::from_ms(200), Duration::from_ns(TIMEOUT));
    check(EndpointConfig { spacing, ..config(0, 2, &[1]) }, Error::Spacing { spacing, timeout });
}
