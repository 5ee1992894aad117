//! One exchange under every single disturbance: what comes of it, and what both sides count.

use probe_sync_probe::{AnswerCounters, ExchangeCounters, Kind};
use probe_sync_time::{Duration, StampSource, Timestamp};

use crate::wire::{GOOD, Plan, Tx, endpoint, run, stamp, transmits};
use crate::wire::{TIMEOUT, at};

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

/// How an exchange ended: finished, timed out, stamp missing, send failed at node 0; packets lost towards node 1 and
/// towards node 0; duplicates and late packets at nodes 0 and 1.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    ended: [u64; 4],
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
        lost: outcome.lost(),
        duplicates: peers.map(|peer| peer.duplicates),
        late: peers.map(|peer| peer.late),
    };
    assert_eq!(&found, expected, "{name}");
    assert_eq!(outcome.exchanges.len() as u64, ended.finished, "{name}");
    assert_eq!(outcome.counters[0].total().out_of_state + outcome.counters[1].total().out_of_state, 0, "{name}");
    assert_eq!(outcome.counters[0].foreign.total() + outcome.counters[1].foreign.total(), 0, "{name}");
}

#[test]
fn every_packet_lost_once() {
    // A lost third packet of one direction takes the other direction's with it, but those were never sent.
    let case = |name, copies, lost| {
        check(name, Plan { copies, ..GOOD }, &Expected { ended: TIMED_OUT, lost, ..Default::default() });
    };
    case("Pt1", |kind| if kind == Kind::Pt1 { &[] } else { &[0] }, [1, 0]);
    case("Pt2", |kind| if kind == Kind::Pt2 { &[] } else { &[0] }, [1, 0]);
    case("Pt3", |kind| if kind == Kind::Pt3 { &[] } else { &[0] }, [1, 0]);
    case("Pr1", |kind| if kind == Kind::Pr1 { &[] } else { &[0] }, [0, 1]);
    case("Pr2", |kind| if kind == Kind::Pr2 { &[] } else { &[0] }, [0, 1]);
    case("Pr3", |kind| if kind == Kind::Pr3 { &[] } else { &[0] }, [0, 1]);
    case("forward", |kind| if kind.is_forward() { &[] } else { &[0] }, [3, 0]);
    case("all", |_| &[], [3, 0]);
}

#[test]
fn duplicates_during_and_after_the_exchange_are_told_from_late_packets() {
    let case = |name, copies, duplicates| {
        check(name, Plan { copies, ..GOOD }, &Expected { ended: FINISHED, duplicates, ..Default::default() });
    };
    case("each twice", |_| &[0, 1], [3, 3]);
    case("each thrice, at once", |_| &[0, 0, 0], [6, 6]);
    case("Pt2 after the answer", |kind| if kind == Kind::Pt2 { &[0, 500_000] } else { &[0] }, [0, 1]);
    case("Pr1 after the finish", |kind| if kind == Kind::Pr1 { &[0, 500_000] } else { &[0] }, [1, 0]);
    case("Pr3 after the timeout", |kind| if kind == Kind::Pr3 { &[0, 2 * TIMEOUT] } else { &[0] }, [1, 0]);
}

#[test]
fn reordering_within_an_exchange_does_no_harm() {
    let case = |name, copies| check(name, Plan { copies, ..GOOD }, &Expected { ended: FINISHED, ..Default::default() });
    case("Pt1 last", |kind| if kind == Kind::Pt1 { &[300_000] } else { &[0] });
    case("Pt2 last", |kind| if kind == Kind::Pt2 { &[300_000] } else { &[0] });
    case("Pr1 last", |kind| if kind == Kind::Pr1 { &[300_000] } else { &[0] });
    case("Pr2 last", |kind| if kind == Kind::Pr2 { &[300_000] } else { &[0] });
    case("Pr3 before Pr1 and Pr2", |kind| if kind == Kind::Pr3 { &[0] } else { &[250_000] });
}

#[test]
fn a_first_copy_after_the_end_is_late_and_not_lost() {
    let case = |name, copies, late| {
        check(name, Plan { copies, ..GOOD }, &Expected { ended: TIMED_OUT, late, ..Default::default() });
    };
    case("Pt3", |kind| if kind == Kind::Pt3 { &[2 * TIMEOUT] } else { &[0] }, [0, 1]);
    case("Pr1", |kind| if kind == Kind::Pr1 { &[2 * TIMEOUT] } else { &[0] }, [1, 0]);
    case("all Pr", |kind| if kind.is_forward() { &[0] } else { &[2 * TIMEOUT] }, [3, 0]);
    // Pt1 starts at 1 ms; the timeout is up exactly when the packet arrives: not in time. One ns earlier: in time.
    case("at the limit", |kind| if kind == Kind::Pr3 { &[TIMEOUT - 200_400] } else { &[0] }, [1, 0]);
    let copies = |kind| if kind == Kind::Pr3 { &[TIMEOUT - 200_401][..] } else { &[0] };
    check("just in time", Plan { copies, ..GOOD }, &Expected { ended: FINISHED, ..Default::default() });
}

#[test]
fn a_newer_exchange_replaces_an_older_request() {
    // The first exchange's Pt3 comes 1.05 ms late, between the second one's Pt1 and Pt2.
    let copies = |kind| if kind == Kind::Pt3 { &[950_000][..] } else { &[0] };
    let outcome = run(&Plan { copies, exchanges: 2, ..GOOD });
    let [zero, one] = outcome.peers();
    assert_eq!(zero.exchanges, ExchangeCounters { started: 2, finished: 1, timed_out: 1, ..Default::default() });
    assert_eq!(one.answers, AnswerCounters { started: 1, finished: 1, incomplete: 1, ..Default::default() });
    assert_eq!((one.late, outcome.lost()), (1, [0, 0]));
    assert_eq!(outcome.exchanges[0].seq, 1);
}

#[test]
fn a_newer_exchange_replaces_an_answer_under_way() {
    let mut one = endpoint(1, 2, &[]);
    let mut zero = endpoint(0, 2, &[1]);
    let mut deliver = |start: i64, arrival: i64| {
        zero.handle_timer(at(start));
        let mut packets = transmits(&mut zero);
        zero.handle_timer(at(start + 100_000));
        packets.extend(transmits(&mut zero));
        for packet in packets.clone() {
            zero.handle_tx_stamp(packet.context, stamp(start, StampSource::Kernel), at(start + 100_000));
        }
        packets.extend(transmits(&mut zero));
        assert_eq!(packets.len(), 3);
        for packet in packets {
            one.handle_packet(&packet.bytes, stamp(start, StampSource::Kernel), at(arrival));
        }
    };
    deliver(1_000_000, 3_000_000);
    deliver(2_000_000, 3_050_000);
    let kinds: Vec<(Kind, u32)> = transmits(&mut one).iter().map(|t| (t.context.kind, t.context.seq)).collect();
    assert_eq!(kinds, [(Kind::Pr1, 0), (Kind::Pr1, 1)]);
    one.handle_timer(at(3_100_000));
    assert_eq!(transmits(&mut one), [], "the older answer's alarm must not ring for the newer");
    one.handle_timer(at(3_150_000));
    let kinds: Vec<(Kind, u32)> = transmits(&mut one).iter().map(|t| (t.context.kind, t.context.seq)).collect();
    assert_eq!(kinds, [(Kind::Pr2, 1)], "the older answer's second packet must not leave");
    assert_eq!(one.counters().total().answers, AnswerCounters { started: 2, superseded: 1, ..Default::default() });
    assert_eq!(one.next_timer(), None);
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
    let second = probe_sync_probe::Packet::decode(&transmits(&mut zero)[0].bytes).unwrap();
    assert_eq!(second.tx, [Some(stamp(5, StampSource::Kernel)), None]);
}
