//! All counters of a run, each defined once with its name and meaning.
//!
//! Every rank counts while it measures; [`Counter`] names the counts in the ranks' accounts, in
//! `report.json` and in `metrics.prom`. The sources are destructured field by field, so a new field
//! does not compile until it is reported here.

use probe_sync_probe::{AnswerCounters, Counters, ExchangeCounters, ForeignCounters, PeerCounters};
use probe_sync_sys::udp::UdpCounters;
use serde::{Deserialize, Serialize};

/// Defines [`Counter`] from a list: variant, name in files, help.
macro_rules! counters {
    ($( $counter:ident $name:literal $help:literal; )+) => {
        /// A counter of a run.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum Counter {
            $( #[doc = $help] #[serde(rename = $name)] $counter, )+
        }

        impl Counter {
            /// All counters, in order of their names.
            pub const ALL: &[Self] = &[ $( Self::$counter, )+ ];

            /// Returns the name in files.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$counter => $name, )+ }
            }

            /// Returns what it counts.
            pub const fn help(self) -> &'static str {
                match self { $( Self::$counter => $help, )+ }
            }
        }
    };
}

counters! {
    AnswersFinished "answers_finished" "Answers whose third packet was queued.";
    AnswersIncomplete "answers_incomplete" "Requests abandoned because not all of their packets arrived.";
    AnswersSendFailed "answers_send_failed" "Answers aborted because a packet could not be sent.";
    AnswersStarted "answers_started" "Answers whose first packet was queued.";
    AnswersSuperseded "answers_superseded" "Answers abandoned because the peer had too many in progress.";
    AnswersWithoutStamp "answers_without_stamp" "Answers aborted because a transmit timestamp never arrived.";
    ClockReadingsDiscarded "clock_readings_discarded" "Readings of the clock watch that were too imprecise to use.";
    DatagramsOversized "datagrams_oversized" "Datagrams dropped because they were longer than any probe packet.";
    DatagramsReceived "datagrams_received" "Datagrams that the socket received.";
    DatagramsSent "datagrams_sent" "Datagrams handed to the kernel.";
    ExchangesBeyondWindowLimit "exchanges_beyond_window_limit" "Finished exchanges that no longer fit in their window.";
    ExchangesFinished "exchanges_finished" "Exchanges with packets in both directions.";
    ExchangesIncomplete "exchanges_incomplete" "Finished exchanges that are missing a packet of a coded pair.";
    ExchangesOfMixedStamps "exchanges_of_mixed_stamps"
        "Exchanges not used by any fit because their timestamps came from a source other than the window's best, or because they \
        began long before the window.";
    ExchangesSendFailed "exchanges_send_failed" "Exchanges aborted because a packet could not be sent.";
    ExchangesStarted "exchanges_started" "Exchanges whose first packet was queued.";
    ExchangesTimedOut "exchanges_timed_out" "Exchanges that timed out.";
    ExchangesUnread "exchanges_unread" "Finished exchanges that were not read from the endpoint in time.";
    ExchangesWithoutStamp "exchanges_without_stamp" "Exchanges aborted because a transmit timestamp never arrived.";
    IcmpOther "icmp_other" "Other ICMP or local errors of the socket.";
    IcmpRefused "icmp_refused" "ICMP: port unreachable.";
    IcmpUnreachable "icmp_unreachable" "ICMP: host or network unreachable.";
    PacketsDroppedByKernel "packets_dropped_by_kernel" "Datagrams dropped because the receive buffer was full.";
    PacketsDuplicate "packets_duplicate" "Duplicate packets.";
    PacketsForeign "packets_foreign" "Datagrams that were not probe packets for this node; packets_foreign_* counts them by reason.";
    PacketsForeignAddress "packets_foreign_address" "Foreign datagrams: sender is not a node of this run.";
    PacketsForeignDestination "packets_foreign_destination" "Foreign datagrams: for another node.";
    PacketsForeignKind "packets_foreign_kind" "Foreign datagrams: unknown packet type.";
    PacketsForeignLength "packets_foreign_length" "Foreign datagrams: wrong length.";
    PacketsForeignMagic "packets_foreign_magic" "Foreign datagrams: from another program.";
    PacketsForeignRun "packets_foreign_run" "Foreign datagrams: from another run.";
    PacketsForeignSource "packets_foreign_source" "Foreign datagrams: from a node that does not exist.";
    PacketsForeignStamps "packets_foreign_stamps" "Foreign datagrams: impossible timestamps.";
    PacketsForeignTag "packets_foreign_tag" "Foreign datagrams: forged, or from another session.";
    PacketsForeignVersion "packets_foreign_version" "Foreign datagrams: another version of the packet format.";
    PacketsLate "packets_late" "Packets that arrived (for the first time) after their exchange had ended.";
    PacketsOutOfState "packets_out_of_state" "Packets that belong to no exchange of this node.";
    PacketsReceived "packets_received" "Well-formed packets of this run, duplicates included.";
    PacketsSendFailed "packets_send_failed" "Packets that the system failed to send.";
    PacketsSent "packets_sent" "Packets handed to the network.";
    PacketsTooOld "packets_too_old" "Packets too old to distinguish a late packet from a replay.";
    PacketsWithoutStamp "packets_without_stamp" "Coded packets whose transmit timestamp never arrived.";
    SendBufferFull "send_buffer_full" "Sends that failed because the buffer was full.";
    SendRefused "send_refused" "Sends that failed with another error.";
    SendUnreachable "send_unreachable" "Sends that failed for lack of a route or network.";
    SnapshotsDropped "snapshots_dropped" "Snapshot pairs written only to the JSON lines, because there were too many.";
    SnapshotsFailed "snapshots_failed" "Snapshot pairs not taken because the tracer clock could not be read.";
    SnapshotsMissedDeadline "snapshots_missed_deadline" "Periods that passed without a snapshot pair.";
    SnapshotsNotSent "snapshots_not_sent"
        "Snapshot pairs that are only in the directory of their node's host, because they were too many to be sent to rank 0.";
    SnapshotsTaken "snapshots_taken" "Snapshot pairs taken.";
    SnapshotsWide "snapshots_wide" "Snapshot pairs whose bracket was at least 5 us wide in every attempt.";
    StampIdRecoveries "stamp_id_recoveries" "Times the packet count was reset after a failed send.";
    StampsMissingRx "stamps_missing_rx" "Datagrams without a timestamp of the kind in use, which got a less accurate one.";
    StampsMissingTx "stamps_missing_tx" "Transmit timestamps that were missing or late.";
    StampsStray "stamps_stray" "Transmit timestamps for exchanges that had ended.";
    StampsTx "stamps_tx" "Transmit timestamps delivered by the socket.";
    StampsUnmatchedTx "stamps_unmatched_tx" "Transmit timestamps that matched no waiting packet.";
    StampsUser "stamps_user" "Timestamps taken by the process itself.";
    StartsRefused "starts_refused" "Exchanges not started because too many were in flight.";
    StartsSkipped "starts_skipped" "Exchanges not started because the process ran too late for them.";
}

/// Counts by counter.
pub type Counts = Vec<(Counter, u64)>;

/// Returns the counts of an endpoint.
pub(crate) fn of_endpoint(counters: &Counters) -> Counts {
    let Counters { peers: _, foreign, skipped_starts, refused_starts, stray_tx_stamps, unread_exchanges } = counters;
    let PeerCounters {
        sent,
        send_failed,
        received,
        duplicates,
        late,
        too_old,
        out_of_state,
        missing_tx_stamps,
        exchanges,
        answers,
    } = counters.total();
    let mut counts = vec![
        (Counter::StartsSkipped, *skipped_starts),
        (Counter::StartsRefused, *refused_starts),
        (Counter::StampsStray, *stray_tx_stamps),
        (Counter::ExchangesUnread, *unread_exchanges),
        (Counter::PacketsSent, sent),
        (Counter::PacketsSendFailed, send_failed),
        (Counter::PacketsReceived, received),
        (Counter::PacketsDuplicate, duplicates),
        (Counter::PacketsLate, late),
        (Counter::PacketsTooOld, too_old),
        (Counter::PacketsOutOfState, out_of_state),
        (Counter::PacketsWithoutStamp, missing_tx_stamps),
        (Counter::PacketsForeign, foreign.total()),
    ];
    counts.extend(of_foreign(*foreign));
    counts.extend(of_exchanges(exchanges));
    counts.extend(of_answers(answers));
    counts
}

/// Returns the counts of a socket.
pub(crate) fn of_socket(counters: UdpCounters) -> Counts {
    let UdpCounters {
        sent,
        received,
        transmit_stamps,
        transmit_stamps_missing,
        transmit_stamps_unmatched,
        user_stamps,
        receive_stamps_missing,
        send_full,
        send_unreachable,
        send_refused,
        icmp_refused,
        icmp_unreachable,
        icmp_other,
        dropped_by_kernel,
        oversized,
        id_recoveries,
    } = counters;
    vec![
        (Counter::DatagramsSent, sent),
        (Counter::DatagramsReceived, received),
        (Counter::StampsTx, transmit_stamps),
        (Counter::StampsMissingTx, transmit_stamps_missing),
        (Counter::StampsUnmatchedTx, transmit_stamps_unmatched),
        (Counter::StampsUser, user_stamps),
        (Counter::StampsMissingRx, receive_stamps_missing),
        (Counter::SendBufferFull, send_full),
        (Counter::SendUnreachable, send_unreachable),
        (Counter::SendRefused, send_refused),
        (Counter::IcmpRefused, icmp_refused),
        (Counter::IcmpUnreachable, icmp_unreachable),
        (Counter::IcmpOther, icmp_other),
        (Counter::PacketsDroppedByKernel, dropped_by_kernel),
        (Counter::DatagramsOversized, oversized),
        (Counter::StampIdRecoveries, id_recoveries),
    ]
}

fn of_foreign(counters: ForeignCounters) -> Counts {
    let ForeignCounters { length, magic, version, kind, run, address, tag, destination, source, stamps } = counters;
    vec![
        (Counter::PacketsForeignLength, length),
        (Counter::PacketsForeignMagic, magic),
        (Counter::PacketsForeignVersion, version),
        (Counter::PacketsForeignKind, kind),
        (Counter::PacketsForeignRun, run),
        (Counter::PacketsForeignAddress, address),
        (Counter::PacketsForeignTag, tag),
        (Counter::PacketsForeignDestination, destination),
        (Counter::PacketsForeignSource, source),
        (Counter::PacketsForeignStamps, stamps),
    ]
}

fn of_exchanges(counters: ExchangeCounters) -> Counts {
    let ExchangeCounters { started, finished, incomplete, timed_out, stamp_missing, send_failed } = counters;
    vec![
        (Counter::ExchangesStarted, started),
        (Counter::ExchangesFinished, finished),
        (Counter::ExchangesIncomplete, incomplete),
        (Counter::ExchangesTimedOut, timed_out),
        (Counter::ExchangesWithoutStamp, stamp_missing),
        (Counter::ExchangesSendFailed, send_failed),
    ]
}

fn of_answers(counters: AnswerCounters) -> Counts {
    let AnswerCounters { started, finished, stamp_missing, send_failed, superseded, incomplete } = counters;
    vec![
        (Counter::AnswersStarted, started),
        (Counter::AnswersFinished, finished),
        (Counter::AnswersWithoutStamp, stamp_missing),
        (Counter::AnswersSendFailed, send_failed),
        (Counter::AnswersSuperseded, superseded),
        (Counter::AnswersIncomplete, incomplete),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_one_name_and_a_help_text() {
        let names: Vec<&str> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "in order and once: {names:?}");
        for counter in Counter::ALL {
            let plain = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(plain(counter.name()) && counter.help().ends_with('.'), "{counter:?}");
            let json = serde_json::to_string(counter).expect("a name");
            assert_eq!(json, format!("\"{}\"", counter.name()));
        }
    }

    #[test]
    fn what_is_counted_is_reported_once() {
        let all = [of_endpoint(&Counters::default()), of_socket(UdpCounters::default())].concat();
        let mut seen: Vec<Counter> = all.iter().map(|(counter, _)| *counter).collect();
        seen.sort_unstable();
        let count = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), count);
        // The others: six of the snapshot thread, two of the probe thread, one of the fits.
        assert_eq!(Counter::ALL.len() - count, 9);
    }
}
