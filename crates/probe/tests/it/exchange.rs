//! One exchange under every single disturbance: what comes of it, and what both sides count.

use probe_sync_probe::{AnswerCounters, Endpoint, EndpointConfig, ExchangeCounters, Kind, Packet};
use probe_sync_time::{Duration, Exchange, NodeId, RunId, StampSource, Timestamp};

use crate::wire::{GOOD, GRACE, KEY, Plan, TIMEOUT, Tx, at, config, endpoint, run, stamp, transmits};

#[test]
fn an_exchange_by_hand() {
    let outcome = run(&GOOD);
    let exchange = outcome.exchanges[0];
    let expected = [
        1_000_000, 1_001_200, // Pt1 leaves at 1 ms, arrives 200 later on a clock 1000 ahead
        1_100_000, 1_101_200, // Pt2 one spacing later, and Pt3 at once after it
        1_101_200, 1_100_400, // Pr1 when Pt3 has arrived
        1_201_200, 1_200_400, // Pr2 one spacing later
    ];
    assert_eq!(exchange.t.map(Timestamp::as_ns), expected);
    assert_eq!(exchange.forward().map(|(_, u)| u), [Duration::from_ns(1200); 2]);
    assert_eq!(exchange.reverse().map(|(_, l)| l), [Duration::from_ns(800); 2]);
    assert_eq!(exchange.stamp, StampSource::Kernel);
    let [zero, one] = outcome.peers();
    assert_eq!((zero.sent, zero.received, one.sent, one.received), (3, 3, 3, 3));
    assert_eq!(zero.exchanges, ExchangeCounters { started: 1, finished: 1, ..Default::default() });
    assert_eq!(one.answers, AnswerCounters { started: 1, finished: 1, ..Default::default() });
}

/// How an exchange ended: finished, timed out, stamp missing, send failed at node 0; finished
/// without some packet; packets lost towards node 1 and towards node 0; duplicates and late packets
/// at nodes 0 and 1.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    ended: [u64; 4],
    incomplete: u64,
    lost: [u64; 2],
    duplicates: [u64; 2],
    late: [u64; 2],
}

const FINISHED: [u64; 4] = [1, 0, 0, 0];
const TIMED_OUT: [u64; 4] = [0, 1, 0, 0];
const STAMP_MISSING: [u64; 4] = [0, 0, 1, 0];
const SEND_FAILED: [u64; 4] = [0, 0, 0, 1];

fn check(name: &str, plan: Plan, expected: &Expected) {
    let outcome = run(&plan);
    let peers = outcome.peers();
    let ended = peers[0].exchanges;
    let found = Expected {
        ended: [ended.finished, ended.timed_out, ended.stamp_missing, ended.send_failed],
        incomplete: ended.incomplete,
        lost: outcome.lost(),
        duplicates: peers.map(|peer| peer.duplicates),
        late: peers.map(|peer| peer.late),
    };
    assert_eq!(&found, expected, "{name}");
    assert_eq!(outcome.exchanges.len() as u64, ended.finished, "{name}");
    assert_eq!(outcome.counters[0].total().out_of_state + outcome.counters[1].total().out_of_state, 0, "{name}");
    assert_eq!(outcome.counters[0].foreign.total() + outcome.counters[1].foreign.total(), 0, "{name}");
}

/// The exchange of a run with these packets lost: it must end, and is returned where it finishes.
fn losing(name: &str, copies: fn(Kind, u8) -> &'static [i64], expected: &Expected) -> Option<Exchange> {
    check(name, Plan { copies, ..GOOD }, expected);
    run(&Plan { copies, ..GOOD }).exchanges.first().copied()
}

#[test]
fn an_exchange_survives_the_loss_of_any_one_packet() {
    let lost = |lost, incomplete| Expected { ended: FINISHED, incomplete, lost, ..Default::default() };
    let whole = run(&GOOD).exchanges[0];
    let exchange = losing("Pt1", |kind, _| if kind == Kind::Pt1 { &[] } else { &[0] }, &lost([1, 0], 1)).expect("one");
    assert_eq!(exchange.t[..4], [whole.t[2], whole.t[3], whole.t[2], whole.t[3]], "Pt2 stands for Pt1");
    assert!(!exchange.forward_is_whole() && exchange.reverse_is_whole());
    // The answer waited for Pt1 as long as a packet may be late.
    assert_eq!(exchange.t[4] - whole.t[4], Duration::from_ns(GRACE));
    let exchange = losing("Pt2", |kind, _| if kind == Kind::Pt2 { &[] } else { &[0] }, &lost([1, 0], 1)).expect("one");
    assert_eq!(exchange.t[..4], [whole.t[0], whole.t[1], whole.t[0], whole.t[1]], "Pt1 stands for Pt2");
    let exchange = losing("Pr1", |kind, _| if kind == Kind::Pr1 { &[] } else { &[0] }, &lost([0, 1], 1)).expect("one");
    assert_eq!(exchange.t[4..], [whole.t[6], whole.t[7], whole.t[6], whole.t[7]], "Pr2 stands for Pr1");
    let exchange = losing("Pr2", |kind, _| if kind == Kind::Pr2 { &[] } else { &[0] }, &lost([0, 1], 1)).expect("one");
    assert_eq!(exchange.t[4..], [whole.t[4], whole.t[5], whole.t[4], whole.t[5]], "Pr1 stands for Pr2");
    let third = |name, copies, expected: &Expected| losing(name, copies, expected).expect("one");
    let exchange =
        third("Pr3", |kind, again| if (kind, again) == (Kind::Pr3, 0) { &[] } else { &[0] }, &lost([0, 1], 0));
    assert_eq!(exchange.t, whole.t, "it was asked for again");
    let exchange =
        third("Pt3", |kind, again| if (kind, again) == (Kind::Pt3, 0) { &[] } else { &[0] }, &lost([1, 0], 0));
    assert_eq!(exchange.t[..4], whole.t[..4]);
    assert_eq!(exchange.t[4] - whole.t[4], Duration::from_ns(TIMEOUT / 5), "the answer to its repetition");
    third(
        "Pt3 and its answer",
        |kind, again| if kind.place() == 2 && again < 2 { &[] } else { &[0] },
        &lost([2, 1], 0),
    );
}

#[test]
fn an_exchange_that_lost_a_whole_direction_times_out() {
    let lost = |lost| Expected { ended: TIMED_OUT, lost, ..Default::default() };
    let case = |name, copies, expected: &Expected| assert_eq!(losing(name, copies, expected), None, "{name}");
    case("both Pt", |kind, _| if matches!(kind, Kind::Pt1 | Kind::Pt2) { &[] } else { &[0] }, &lost([2, 0]));
    case("both Pr", |kind, _| if matches!(kind, Kind::Pr1 | Kind::Pr2) { &[] } else { &[0] }, &lost([0, 2]));
    case("every Pr3", |kind, _| if kind == Kind::Pr3 { &[] } else { &[0] }, &lost([0, 4]));
    case("every Pt3", |kind, _| if kind == Kind::Pt3 { &[] } else { &[0] }, &lost([4, 0]));
    case("forward", |kind, _| if kind.is_forward() { &[] } else { &[0] }, &lost([6, 0]));
    case("all", |_, _| &[], &lost([6, 0]));
}

#[test]
fn duplicates_during_and_after_the_exchange_are_told_from_late_packets() {
    let case = |name, copies, duplicates| {
        check(name, Plan { copies, ..GOOD }, &Expected { ended: FINISHED, duplicates, ..Default::default() });
    };
    case("each twice", |_, _| &[0, 1], [3, 3]);
    case("each thrice, at once", |_, _| &[0, 0, 0], [6, 6]);
    case("Pt2 after the answer", |kind, _| if kind == Kind::Pt2 { &[0, 500_000] } else { &[0] }, [0, 1]);
    case("Pr1 after the finish", |kind, _| if kind == Kind::Pr1 { &[0, 500_000] } else { &[0] }, [1, 0]);
    case("Pr3 after the timeout", |kind, _| if kind == Kind::Pr3 { &[0, 2 * TIMEOUT] } else { &[0] }, [1, 0]);
}

#[test]
fn reordering_within_an_exchange_does_no_harm() {
    let case = |name, copies| check(name, Plan { copies, ..GOOD }, &Expected { ended: FINISHED, ..Default::default() });
    case("Pt1 last", |kind, _| if kind == Kind::Pt1 { &[300_000] } else { &[0] });
    case("Pt2 last", |kind, _| if kind == Kind::Pt2 { &[300_000] } else { &[0] });
    case("Pr1 last", |kind, _| if kind == Kind::Pr1 { &[300_000] } else { &[0] });
    case("Pr2 last", |kind, _| if kind == Kind::Pr2 { &[300_000] } else { &[0] });
    case("Pr3 before Pr1 and Pr2", |kind, _| if kind == Kind::Pr3 { &[0] } else { &[250_000] });
}

#[test]
fn a_first_copy_after_the_end_is_late_and_not_lost() {
    let case = |name, copies, ended, incomplete, late| {
        check(name, Plan { copies, ..GOOD }, &Expected { ended, incomplete, late, ..Default::default() });
    };
    case("Pr1", |kind, _| if kind == Kind::Pr1 { &[2 * TIMEOUT] } else { &[0] }, FINISHED, 1, [1, 0]);
    case("Pt1", |kind, _| if kind == Kind::Pt1 { &[TIMEOUT / 2] } else { &[0] }, FINISHED, 1, [0, 1]);
    // Three of the pair and its third packet, and three repetitions.
    case("all Pr", |kind, _| if kind.is_forward() { &[0] } else { &[2 * TIMEOUT] }, TIMED_OUT, 0, [6, 0]);
    // Pt1 starts at 1 ms; the timeout is up exactly when the packet arrives: not in time. One ns
    // earlier: in time, and the repetitions are late.
    case("at the limit", |kind, _| if kind == Kind::Pr3 { &[TIMEOUT - 200_400] } else { &[0] }, TIMED_OUT, 0, [4, 0]);
    case("in time", |kind, _| if kind == Kind::Pr3 { &[TIMEOUT - 200_401] } else { &[0] }, FINISHED, 0, [3, 0]);
}

#[test]
fn exchanges_of_one_peer_do_not_disturb_each_other() {
    // The first exchange's Pt3 comes 1.05 ms late, between the second one's Pt1 and Pt2.
    let copies = |kind, _| if kind == Kind::Pt3 { &[950_000][..] } else { &[0] };
    let outcome = run(&Plan { copies, exchanges: 2, ..GOOD });
    let [zero, one] = outcome.peers();
    assert_eq!(zero.exchanges, ExchangeCounters { started: 2, finished: 2, ..Default::default() });
    assert_eq!(one.answers, AnswerCounters { started: 2, finished: 2, ..Default::default() });
    assert_eq!((one.late, outcome.lost()), (0, [0, 0]));
}

#[test]
fn a_peer_with_too_many_requests_loses_the_oldest() {
    let mut one = endpoint(1, 2, &[]);
    for seq in 0..200 {
        let packet = request(Kind::Pt1, seq, 7);
        one.handle_packet(&packet.encode(Some(&KEY)), Some(NodeId(0)), stamp(0, StampSource::Kernel), at(1_000));
    }
    let answers = one.counters().total().answers;
    assert_eq!((answers.incomplete, answers.started), (200 - 128, 0));
    one.handle_packet(
        &request(Kind::Pt1, 200, 7).encode(Some(&KEY)),
        Some(NodeId(0)),
        stamp(0, StampSource::Kernel),
        at(1_000 + TIMEOUT),
    );
    assert_eq!(one.counters().total().answers.incomplete, 200, "the prober has given them up too");
}

fn request(kind: Kind, seq: u32, incarnation: u32) -> Packet {
    let tx = if kind == Kind::Pt3 { [Some(stamp(0, StampSource::Kernel)); 2] } else { [None; 2] };
    let (run, src, dst) = (RunId(77), NodeId(0), NodeId(1));
    Packet { kind, run, src, dst, seq, repetition: 0, incarnation, tx, rx: [None; 2] }
}

#[test]
fn packets_of_an_earlier_life_of_a_node_are_not_mixed_with_its_present_one() {
    let mut one = endpoint(1, 2, &[]);
    let mut take = |kind, seq, incarnation| {
        let bytes = request(kind, seq, incarnation).encode(Some(&KEY));
        one.handle_packet(&bytes, Some(NodeId(0)), stamp(0, StampSource::Kernel), at(1_000));
        let counters = one.counters();
        (transmits(&mut one).len(), counters.total().accepted(), counters.total().out_of_state)
    };
    assert_eq!(take(Kind::Pt1, 90, 4), (0, 1, 0));
    assert_eq!(take(Kind::Pt2, 90, 4), (0, 2, 0));
    // It starts anew, with the numbers that its first life began with.
    assert_eq!(take(Kind::Pt1, 0, 5), (0, 3, 0));
    assert_eq!(take(Kind::Pt3, 90, 4), (0, 3, 1), "of the earlier life");
    assert_eq!(take(Kind::Pt2, 0, 5), (0, 4, 1));
    assert_eq!(take(Kind::Pt3, 0, 5), (1, 5, 1), "answered");
    let mut zero = endpoint(0, 2, &[1]);
    zero.handle_timer(at(1_000_000));
    transmits(&mut zero);
    let answer = Packet {
        kind: Kind::Pr1,
        src: NodeId(1),
        dst: NodeId(0),
        rx: [Some(stamp(0, StampSource::Kernel)); 2],
        ..request(Kind::Pt1, 0, 6)
    };
    zero.handle_packet(&answer.encode(Some(&KEY)), Some(NodeId(1)), stamp(0, StampSource::Kernel), at(1_000_001));
    assert_eq!(zero.counters().total().out_of_state, 1, "an answer to an earlier life");
}

#[test]
fn a_pair_without_spacing_leaves_at_once() {
    let config = EndpointConfig { spacing: Duration::ZERO, ..config(0, 2, &[1]) };
    let mut zero = Endpoint::new(config, at(0)).expect("sound");
    zero.handle_timer(at(1_000_000));
    let pair = transmits(&mut zero);
    assert_eq!(pair.iter().map(|transmit| transmit.context.kind).collect::<Vec<_>>(), [Kind::Pt1, Kind::Pt2]);
    for (transmit, ns) in pair.into_iter().zip(0..) {
        zero.handle_tx_stamp(transmit.context, stamp(ns, StampSource::Kernel), at(1_000_001));
    }
    assert_eq!(transmits(&mut zero).iter().map(|transmit| transmit.context.kind).collect::<Vec<_>>(), [Kind::Pt3]);
}

#[test]
fn a_missing_transmit_stamp_drops_the_exchange() {
    const KERNEL: Tx = Tx::Stamp(StampSource::Kernel);
    let case = |name, tx: fn(Kind) -> Tx, ended| {
        check(name, Plan { tx, ..GOOD }, &Expected { ended, ..Default::default() });
        let outcome = run(&Plan { tx, ..GOOD });
        let missing: u64 = outcome.peers().iter().map(|peer| peer.missing_tx_stamps).sum();
        let failed: u64 = outcome.peers().iter().map(|peer| peer.send_failed).sum();
        (missing, failed, outcome.peers()[1].answers)
    };
    let (missing, failed, _) = case("Pt1", |k| if k == Kind::Pt1 { Tx::Lost } else { KERNEL }, STAMP_MISSING);
    assert_eq!((missing, failed), (1, 0));
    let (missing, failed, _) = case("Pt2", |k| if k == Kind::Pt2 { Tx::Lost } else { KERNEL }, STAMP_MISSING);
    assert_eq!((missing, failed), (1, 0));
    let (.., answers) = case("Pr1", |k| if k == Kind::Pr1 { Tx::Lost } else { KERNEL }, TIMED_OUT);
    assert_eq!(answers, AnswerCounters { started: 1, stamp_missing: 1, ..Default::default() });
    let (.., answers) = case("Pr2", |k| if k == Kind::Pr2 { Tx::Lost } else { KERNEL }, TIMED_OUT);
    assert_eq!(answers, AnswerCounters { started: 1, stamp_missing: 1, ..Default::default() });
    let (missing, failed, _) =
        case("Pt2 refused", |k| if k == Kind::Pt2 { Tx::SendFailed } else { KERNEL }, SEND_FAILED);
    assert_eq!((missing, failed), (0, 1));
    let (_, failed, _) = case("Pt3 refused", |k| if k == Kind::Pt3 { Tx::SendFailed } else { KERNEL }, SEND_FAILED);
    assert_eq!(failed, 1);
    let (.., answers) = case("Pr1 refused", |k| if k == Kind::Pr1 { Tx::SendFailed } else { KERNEL }, TIMED_OUT);
    assert_eq!(answers, AnswerCounters { started: 1, send_failed: 1, ..Default::default() });
    case("a driver that never reports", |k| if k == Kind::Pt1 { Tx::Silence } else { KERNEL }, TIMED_OUT);
    case("third packets need no stamp", |k| if k.needs_tx_stamp() { KERNEL } else { Tx::Lost }, FINISHED);
}

#[test]
fn nothing_is_left_to_wait_for_after_the_end() {
    let mut zero = endpoint(0, 2, &[1]);
    zero.handle_timer(at(1_000_000));
    zero.set_probing(false);
    assert_eq!(zero.next_timer(), Some(at(1_100_000)));
    let first = transmits(&mut zero)[0];
    zero.handle_tx_lost(first.context, at(1_000_001));
    assert_eq!((zero.in_flight(), zero.next_timer()), (0, None));
}

#[test]
fn mixed_stamps_are_marked_as_the_poorer() {
    let case = |tx: fn(Kind) -> Tx, rx, expected| {
        let outcome = run(&Plan { tx, rx, ..GOOD });
        assert_eq!(outcome.exchanges[0].stamp, expected);
    };
    case(|_| Tx::Stamp(StampSource::Hardware), StampSource::Hardware, StampSource::Hardware);
    case(|_| Tx::Stamp(StampSource::Hardware), StampSource::Kernel, StampSource::Kernel);
    let one_poor = |kind| Tx::Stamp(if kind == Kind::Pr2 { StampSource::User } else { StampSource::Hardware });
    case(one_poor, StampSource::Hardware, StampSource::User);
}

#[test]
fn second_packets_carry_the_first_stamp_when_it_is_known() {
    let mut zero = endpoint(0, 2, &[1]);
    zero.handle_timer(at(1_000_000));
    let first = transmits(&mut zero)[0];
    zero.handle_tx_stamp(first.context, stamp(5, StampSource::Kernel), at(1_000_001));
    zero.handle_timer(at(1_100_000));
    let second = Packet::decode(&transmits(&mut zero)[0].bytes).unwrap();
    assert_eq!(second.tx, [Some(stamp(5, StampSource::Kernel)), None]);
}
