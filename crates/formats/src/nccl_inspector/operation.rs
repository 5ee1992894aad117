//! One line of a log: an operation and its stamps, and the rules that the stamps must obey.

use std::borrow::Cow;

use serde::Deserialize;

use super::lines::Line;
use crate::model::{PS_PER_NS, Picoseconds, Reach};

/// A line as the plugin writes it; members that are not used here are ignored.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    header: Header<'a>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    coll_perf: Option<Perf<'a>>,
    #[serde(borrow)]
    p2p_perf: Option<Perf<'a>>,
}

/// The communicator, and the rank in it.
#[derive(Deserialize)]
pub(super) struct Header<'a> {
    /// Hash of the communicator, of which the plugin writes the first 14 digits.
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    /// Its name; logs before NCCL 2.30 have none, later ones `unknown` for none.
    #[serde(borrow)]
    comm_name: Option<Cow<'a, str>>,
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    inspector_output_format_version: Cow<'a, str>,
    dump_timestamp_us: u64,
    #[serde(borrow)]
    hostname: Cow<'a, str>,
    pid: u64,
}

#[derive(Deserialize)]
struct Perf<'a> {
    #[serde(borrow, rename = "coll", alias = "p2p")]
    name: Cow<'a, str>,
    #[serde(rename = "coll_sn", alias = "p2p_sn")]
    sequence: u64,
    #[serde(rename = "p2p_peer")]
    peer: Option<i64>,
    #[serde(rename = "coll_msg_size_bytes", alias = "p2p_msg_size_bytes")]
    size_bytes: u64,
    #[serde(rename = "coll_exec_time_us", alias = "p2p_exec_time_us")]
    exec_time_us: u64,
    #[serde(borrow, rename = "coll_timing_source", alias = "p2p_timing_source")]
    timing_source: Option<Cow<'a, str>>,
    #[serde(rename = "coll_algobw_gbs", alias = "p2p_algobw_gbs")]
    algobw_gbs: Option<f64>,
    #[serde(rename = "coll_busbw_gbs", alias = "p2p_busbw_gbs")]
    busbw_gbs: Option<f64>,
    event_trace_ts: Option<Stamps>,
}

#[derive(Deserialize)]
struct Stamps {
    #[serde(rename = "coll_start_ts", alias = "p2p_start_ts")]
    start: u64,
    /// 0 if the kernel was complete before the call had returned.
    #[serde(rename = "coll_stop_ts", alias = "p2p_stop_ts")]
    stop: u64,
    kernel_events: Vec<Channel>,
}

/// When the host noticed that a channel of the kernel began and ended, µs.
#[derive(Deserialize)]
pub(super) struct Channel {
    pub(super) channel_id: i64,
    #[serde(rename = "kernel_start_ts")]
    pub(super) start_us: u64,
    #[serde(rename = "kernel_stop_ts")]
    pub(super) stop_us: u64,
    #[serde(rename = "kernel_record_ts")]
    record_us: u64,
}

/// An operation whose stamps agree with each other, µs of CLOCK_REALTIME.
pub(super) struct Operation<'a> {
    pub(super) header: Header<'a>,
    pub(super) host: Cow<'a, str>,
    pub(super) pid: u64,
    pub(super) is_p2p: bool,
    pub(super) name: Cow<'a, str>,
    pub(super) sequence: u64,
    pub(super) peer: Option<i64>,
    pub(super) size_bytes: u64,
    pub(super) exec_time_us: u64,
    pub(super) timing_source: Cow<'a, str>,
    pub(super) algobw_gbs: Option<f64>,
    pub(super) busbw_gbs: Option<f64>,
    /// When the host had launched it.
    pub(super) launch_us: u64,
    /// When the host noticed the start of its first channel: not before it, by an unknown time.
    pub(super) noticed_us: u64,
    /// When the host noticed the end of its last channel.
    pub(super) end_us: u64,
    pub(super) channels: Vec<Channel>,
}

/// Why a line is no operation with known times.
#[derive(Debug)]
pub(super) enum Refused {
    /// The file is not a log that can be read.
    File(String),
    /// The line costs only itself.
    Line(Fault, Option<String>),
}

/// What is wrong with a line.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    CutOff,
    TooLong,
    Unreadable,
    NotVerbose,
    Backwards,
    AfterDump,
    Channels,
    Duration,
    Away,
}

impl<'a> Operation<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// Returns why the line, or the whole file, cannot be used.
    pub(super) fn read(line: &Line<'a>) -> Result<Self, Refused> {
        if line.is_too_long {
            return Err(Refused::Line(Fault::TooLong, None));
        }
        let written: Written<'_> = match serde_json::from_slice(line.text) {
            Ok(written) => written,
            Err(error) if error.is_eof() => return Err(Refused::Line(Fault::CutOff, None)),
            Err(error) => return Err(unreadable(line, &error.to_string())),
        };
        let Written { mut header, metadata, coll_perf, p2p_perf } = written;
        let texts = [&header.id, &metadata.hostname, &metadata.inspector_output_format_version];
        let of_perf = |perf: &Perf<'_>| perf.name.len().max(perf.timing_source.as_ref().map_or(0, |text| text.len()));
        let longest = texts.into_iter().chain(&header.comm_name).map(|text| text.len()).max();
        let longest = coll_perf.iter().chain(&p2p_perf).map(of_perf).chain(longest).max();
        if longest.is_some_and(|bytes| bytes > TEXT_MAX) {
            return Err(unreadable(line, &format!("a text of more than {TEXT_MAX} bytes")));
        }
        let version = &*metadata.inspector_output_format_version;
        if version.split('.').next() != Some(VERSION) {
            return Err(Refused::File(format!("format {version} of the NCCL Inspector is not supported")));
        }
        let (perf, is_p2p) = match (coll_perf, p2p_perf) {
            (Some(perf), None) => (perf, false),
            (None, Some(perf)) => (perf, true),
            _ => return Err(unreadable(line, "neither coll_perf nor p2p_perf alone")),
        };
        if header.rank >= header.n_ranks {
            let (rank, ranks) = (header.rank, header.n_ranks);
            return Err(unreadable(line, &format!("rank {rank} of a communicator of {ranks}")));
        }
        header.comm_name = header.comm_name.filter(|name| !name.is_empty() && name != "unknown");
        let fault = |fault| Refused::Line(fault, None);
        let Some(stamps) = perf.event_trace_ts else { return Err(fault(Fault::NotVerbose)) };
        let timing_source = perf.timing_source.unwrap_or_default();
        let measured_us = (timing_source == KERNEL_GPU).then_some(perf.exec_time_us);
        let (noticed_us, end_us) =
            times(&stamps, perf.exec_time_us, measured_us, metadata.dump_timestamp_us).map_err(fault)?;
        Ok(Self {
            header,
            host: metadata.hostname,
            pid: metadata.pid,
            is_p2p,
            name: perf.name,
            sequence: perf.sequence,
            peer: perf.peer,
            size_bytes: perf.size_bytes,
            exec_time_us: perf.exec_time_us,
            timing_source,
            algobw_gbs: perf.algobw_gbs,
            busbw_gbs: perf.busbw_gbs,
            launch_us: stamps.start,
            noticed_us,
            end_us,
            channels: stamps.kernel_events,
        })
    }

    /// Refuses an operation that is far from all others.
    ///
    /// # Errors
    /// Returns that fault.
    pub(super) fn within(self, reach: Option<Reach>) -> Result<Self, Fault> {
        let (start_ps, end_ps) = self.span_ps();
        match reach {
            Some(reach) if !reach.holds(start_ps, end_ps) => Err(Fault::Away),
            _ => Ok(self),
        }
    }

    /// Launch, and end as the host noticed it.
    pub(super) fn span_ps(&self) -> (Picoseconds, Picoseconds) {
        (ps(self.launch_us), ps(self.end_us))
    }

    /// Events that it is shown as: itself and its channels.
    pub(super) fn events(&self) -> u64 {
        1 + self.channels.len() as u64
    }

    /// Name of its communicator for display.
    pub(super) fn communicator(&self) -> String {
        let Header { id, comm_name, rank, n_ranks } = &self.header;
        let name = comm_name.as_deref().map_or_else(|| id.to_string(), |name| format!("{name} ({id})"));
        format!("{name}, rank {rank} of {n_ranks}")
    }
}

impl Fault {
    /// The lines with this fault, as an object of "ignored".
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::CutOff => "cut off",
            Self::TooLong => "longer than 1 MiB",
            Self::Unreadable => "not as the plugin writes them",
            Self::NotVerbose => "without times (set NCCL_INSPECTOR_DUMP_VERBOSE=1)",
            Self::Backwards => "with a start after its stop",
            Self::AfterDump => "with a stamp after the dump that contains it",
            Self::Channels => "without the stamps of all channels",
            Self::Duration => {
                "with a measured duration that contradicts the stamps (nccl#2369; NCCL_ALLGATHERV_ENABLE=0 avoids it)"
            }
            Self::Away => "days or decades away from all others",
        }
    }
}

/// Returns ps of µs.
pub(super) fn ps(time_us: u64) -> Picoseconds {
    Picoseconds::from(time_us) * 1000 * PS_PER_NS
}

/// Takes the noticed start and end from stamps that agree with each other: each stamp is no earlier than the
/// call before it, none is later than the dump, and a duration fits between them.
///
/// NCCL creates a channel's event with the operation's, so no channel starts before `coll_start_ts`.
/// The device cannot have worked for longer than from the launch, which is at most [`LAUNCH_US`]
/// before `coll_start_ts`, to the noticed end. What the host noticed lags behind the device by the
/// time in which the proxy thread looks again; a longest channel that differs by more than
/// [`LAG_US`] from the duration is another operation's.
fn times(stamps: &Stamps, exec_us: u64, measured_us: Option<u64>, dump_us: u64) -> Result<(u64, u64), Fault> {
    let Stamps { start, stop, kernel_events } = stamps;
    let is_open = |channel: &Channel| channel.start_us == 0 || channel.stop_us == 0;
    if *start == 0 || kernel_events.is_empty() || kernel_events.iter().any(is_open) {
        return Err(Fault::Channels);
    }
    let is_reversed = |channel: &Channel| {
        let Channel { start_us, stop_us, record_us, .. } = *channel;
        start_us < *start || stop_us < start_us || record_us != 0 && !(start_us..=stop_us).contains(&record_us)
    };
    if *stop != 0 && stop < start || kernel_events.iter().any(is_reversed) {
        return Err(Fault::Backwards);
    }
    let first_us = kernel_events.iter().map(|channel| channel.start_us).min().unwrap_or(*start);
    let last_us = kernel_events.iter().map(|channel| channel.stop_us).max().unwrap_or(*start);
    let longest_us = kernel_events.iter().map(|channel| channel.stop_us - channel.start_us).max().unwrap_or(0);
    if last_us.max(*stop) > dump_us || last_us > LATEST_US {
        return Err(Fault::AfterDump);
    }
    // Without any channel's duration the plugin takes that from the first start to the last end.
    let is_near = longest_us.abs_diff(exec_us).min((last_us - first_us).abs_diff(exec_us)) <= LAG_US;
    if !is_near || measured_us.is_some_and(|measured| measured > last_us - start + LAUNCH_US) {
        return Err(Fault::Duration);
    }
    Ok((first_us, last_us))
}

fn unreadable(line: &Line<'_>, problem: &str) -> Refused {
    let fault = if line.is_open { Fault::CutOff } else { Fault::Unreadable };
    // The decoder's messages quote the text that they are about.
    Refused::Line(fault, Some(problem.chars().take(PROBLEM_MAX).collect()))
}

/// Longest text of a line, bytes: the plugin holds host names and names of communicators of 255.
const TEXT_MAX: usize = 256;
/// Characters of a problem that are shown.
const PROBLEM_MAX: usize = 160;
/// Format that is read; NCCL 2.28 to 2.30 write `v4.0`.
const VERSION: &str = "v4";
/// Durations by the device's own timer.
const KERNEL_GPU: &str = "kernel_gpu";
/// Longest time, µs, by which a duration may differ from what the host noticed. A proxy thread
/// without a processor lags by tens of milliseconds; nccl#2369 is about seconds.
const LAG_US: u64 = 100_000;
/// Longest time from a kernel's launch to `coll_start_ts`, µs: NCCL takes it in the next call.
const LAUNCH_US: u64 = 100;
/// Latest time that fits in 64 bits of ns, µs.
const LATEST_US: u64 = (i64::MAX / 1000) as u64;
