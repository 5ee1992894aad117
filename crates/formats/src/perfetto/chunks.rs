//! A trace as chunks of columns: slices, instants, counters, flows, arguments, and what GPUs did.
//!
//! A first pass finds the tracks, the ends of slices, and the order of flows (`slices`); a second
//! one reads names and arguments and passes the events on. Events of the kernel, and packets of
//! other kinds, are counted and not shown.

use std::path::Path;

use super::event::{Event, Kind};
use super::gpu;
use super::out::Out;
use super::packet::Packet;
use super::sequences::Sequence;
use super::slices::{self, NO_END, Slices};
use super::tracks::Place;
use crate::Error;
use crate::protobuf::Fault;
use crate::{ChunkOptions, ChunkSink, ChunkStats, MapFunction};

/// Reads a trace.
///
/// # Errors
/// The file cannot be read or is no Perfetto trace, with the byte's offset; errors of `sink`.
pub(super) fn read_chunks(
    path: &Path,
    options: &ChunkOptions,
    map: &mut MapFunction<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<ChunkStats, Error> {
    let found = Slices::read(path, options.reach)?;
    let mut out = Out::new(options, map, found.tracks, found.flows);
    let mut reader = Reader { ends: found.ends.into_iter(), last_ns: found.last_ns, endless: 0, of_kernel: 0 };
    let mut failed = None;
    let walked = slices::walk(path, true, &mut |packet, sequence, time_ns| {
        reader.packet(packet, sequence, time_ns, &mut out)?;
        if out.chunk.is_full() {
            if let Err(error) = sink(&out.chunk) {
                failed = Some(error);
                return Err(Fault::new("the consumer stopped"));
            }
            out.chunk.clear();
        }
        Ok(())
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let lost = walked?;
    out.end_samples().map_err(|fault| Error::malformed(path, 0, fault.problem))?;
    let flows_left_out = out.flows.left_out;
    sink(&out.chunk)?;
    let mut stats = out.stats;
    let mut note = |count: u64, text: &str| {
        if count > 0 {
            stats.notes.push(format!("{count} {text}"));
        }
    };
    note(reader.endless, "slices do not end in the trace; they are drawn to its last event");
    note(flows_left_out, "ends of flows beyond the first 16 million are not shown");
    note(found.unmatched, "ends of slices belong to no slice");
    note(found.arguments_of_ends, "arguments are stated where slices end and are not shown");
    note(reader.of_kernel, "packets with events of the kernel are not shown");
    note(lost, "packets refer to others that were lost and are not shown");
    Ok(stats)
}

/// The second pass.
struct Reader {
    ends: std::vec::IntoIter<i64>,
    last_ns: i64,
    endless: u64,
    of_kernel: u64,
}

impl Reader {
    fn packet(
        &mut self,
        packet: &Packet<'_>,
        sequence: &Sequence,
        time_ns: Option<i64>,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Fault> {
        if packet.cleared {
            out.clear(packet.sequence);
        }
        self.of_kernel += u64::from(packet.kernel_events.is_some());
        let has_events = packet.event.is_some() || packet.gpu_stage.is_some() || packet.gpu_counters.is_some();
        let Some(time_ns) = time_ns.filter(|_| has_events) else {
            out.stats.untimed += u64::from(has_events);
            return Ok(());
        };
        if let Some(message) = packet.event {
            self.event(&Event::parse(message)?, sequence, time_ns, out)?;
        }
        if let Some(message) = packet.gpu_stage {
            gpu::stage(message, sequence, time_ns, out)?;
        }
        if let Some(message) = packet.gpu_counters {
            gpu::counters(message, sequence, time_ns, out)?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        sequence: &Sequence,
        at_ns: i64,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Fault> {
        for (track, value) in event.further(sequence) {
            out.value(sequence.number, &Place::Described(track), at_ns, value)?;
        }
        match event.kind {
            Kind::Begin => {
                let end_ns = match self.ends.next() {
                    None | Some(NO_END) => {
                        self.endless += 1;
                        self.last_ns
                    }
                    Some(end_ns) => end_ns,
                };
                out.slice(event, sequence, (at_ns, end_ns.max(at_ns)))
            }
            Kind::Whole(duration_ns) => out.slice(event, sequence, (at_ns, at_ns.saturating_add(duration_ns))),
            Kind::Instant => out.instant(event, sequence, at_ns),
            Kind::Counter => match event.value {
                Some(value) => out.value(sequence.number, &event.place(sequence), at_ns, value),
                None => Ok(()),
            },
            Kind::Other(letter) => {
                *out.stats.other_phases.entry(letter).or_insert(0) += 1;
                Ok(())
            }
            Kind::End | Kind::Nothing => Ok(()),
        }
    }
}
