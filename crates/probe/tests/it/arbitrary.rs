//! An endpoint fed with arbitrary bytes, packets, stamps and times in any order: it neither panics
//! nor grows, and its books balance.

use probe_sync_probe::{Endpoint, Kind, PACKET_BYTES, Packet, Schedule, TxContext};
use probe_sync_time::{Duration, NodeId, RunId, StampSource};
use proptest::prelude::*;

use crate::wire::{KEY, at, endpoint, stamp};

const NODES: u32 = 5;

#[derive(Clone, Debug)]
enum Action {
    Timer(i64),
    Packet(Packet, i64),
    Bytes(Vec<u8>, i64),
    TxStamp(TxContext, i64),
    TxLost(TxContext, i64),
    SendFailed(TxContext, i64),
    /// Takes packets and gives their stamps back, as a good driver does.
    Drive(i64),
    PollExchange,
    Schedule(i64, i64),
    Probing(bool),
    OutEdges(Vec<u32>),
    Cut,
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0i64..500_000_000, 1 => any::<i64>()]
}

fn context() -> impl Strategy<Value = TxContext> {
    (0..NODES + 2, prop::sample::select(Kind::ALL.to_vec()), 0u32..20).prop_map(|(peer, kind, seq)| TxContext {
        peer: NodeId(peer),
        kind,
        seq,
        repetition: 0,
    })
}

/// Mostly packets that the endpoint must take seriously.
fn packet() -> impl Strategy<Value = Packet> {
    let seq = prop_oneof![8 => 0u32..20, 1 => any::<u32>()];
    let incarnation = prop_oneof![8 => Just(7u32), 1 => 6u32..9];
    let header = (prop::sample::select(Kind::ALL.to_vec()), 0..NODES + 1, seq, any::<i64>(), 0u64..30);
    (header, 0u8..4, incarnation).prop_map(|((kind, src, seq, ns, run), repetition, incarnation)| {
        let stamps = [Some(stamp(ns, StampSource::Kernel)); 2];
        let tx = if matches!(kind, Kind::Pt3 | Kind::Pr3) { stamps } else { [None; 2] };
        let rx = if kind.is_forward() { [None; 2] } else { stamps };
        let run = RunId(if run == 0 { 1 } else { 77 });
        let repetition = if kind.place() == 2 { repetition } else { 0 };
        Packet { kind, run, src: NodeId(src), dst: NodeId(0), seq, repetition, incarnation, tx, rx }
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => time().prop_map(Action::Timer),
        6 => (packet(), time()).prop_map(|(packet, now)| Action::Packet(packet, now)),
        1 => (prop::collection::vec(any::<u8>(), 0..2 * PACKET_BYTES), time()).prop_map(|(b, now)| Action::Bytes(b, now)),
        2 => (context(), time()).prop_map(|(context, now)| Action::TxStamp(context, now)),
        1 => (context(), time()).prop_map(|(context, now)| Action::TxLost(context, now)),
        1 => (context(), time()).prop_map(|(context, now)| Action::SendFailed(context, now)),
        4 => time().prop_map(Action::Drive),
        1 => Just(Action::PollExchange),
        1 => (time(), time()).prop_map(|(gap, phase)| Action::Schedule(gap, phase)),
        1 => any::<bool>().prop_map(Action::Probing),
        1 => prop::collection::vec(0..NODES + 1, 0..5).prop_map(Action::OutEdges),
        1 => Just(Action::Cut),
    ]
}

fn perform(endpoint: &mut Endpoint, action: Action) {
    match action {
        Action::Timer(now) => endpoint.handle_timer(at(now)),
        Action::Packet(packet, now) => {
            endpoint.handle_packet(
                &packet.encode(Some(&KEY)),
                Some(packet.src),
                stamp(now, StampSource::Kernel),
                at(now),
            );
        }
        Action::Bytes(bytes, now) => endpoint.handle_packet(&bytes, None, stamp(now, StampSource::User), at(now)),
        Action::TxStamp(context, now) => endpoint.handle_tx_stamp(context, stamp(now, StampSource::User), at(now)),
        Action::TxLost(context, now) => endpoint.handle_tx_lost(context, at(now)),
        Action::SendFailed(context, now) => endpoint.handle_send_failed(context, at(now)),
        Action::Drive(now) => {
            while let Some(transmit) = endpoint.poll_transmit() {
                endpoint.handle_tx_stamp(transmit.context, stamp(now, StampSource::Kernel), at(now));
            }
        }
        Action::PollExchange => drop(endpoint.poll_exchange()),
        Action::Schedule(gap, phase) => {
            if let Some(schedule) = Schedule::new(Duration::from_ns(gap), Duration::from_ns(phase)) {
                endpoint.set_schedule(schedule);
            }
        }
        Action::Probing(probing) => endpoint.set_probing(probing),
        Action::OutEdges(peers) => {
            let peers: Vec<NodeId> = peers.into_iter().map(NodeId).collect();
            // Impossible edges are refused and change nothing.
            let _ = endpoint.set_out_edges(&peers);
        }
        Action::Cut => drop(endpoint.cut_window()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn books_balance_after_any_history(actions in prop::collection::vec(action(), 0..300)) {
        let mut endpoint = endpoint(0, NODES, &[1, 2, 3]);
        let packets = actions.iter().filter(|a| matches!(a, Action::Packet(..) | Action::Bytes(..))).count() as u64;
        for action in actions {
            perform(&mut endpoint, action);
        }
        let counters = endpoint.counters();
        let total = counters.total();
        prop_assert_eq!(total.received + counters.foreign.total(), packets);
        prop_assert_eq!(total.accepted() + total.duplicates + total.late + total.too_old + total.out_of_state, total.received);
        let exchanges = total.exchanges;
        prop_assert_eq!(exchanges.started, exchanges.finished + exchanges.lost() + endpoint.in_flight() as u64);
        prop_assert!(endpoint.in_flight() <= 3 * 64);
        prop_assert!(exchanges.incomplete <= exchanges.finished);
        prop_assert!(counters.peers.keys().all(|peer| peer.0 > 0 && peer.0 < NODES));
    }
}
