//! Records traces of this process with Perfetto's own library, for tests of programs that read them.
//!
//! ```text
//! record ROUNDS [CONFIG OUTPUT]...
//! ```
//!
//! Each CONFIG is a serialized `TraceConfig`, each OUTPUT the trace of its session; all sessions run
//! at the same time. Threads write nested slices, instants, counters, flows and arguments of all
//! types, and events with times of their own, as rocprofv3 writes what it recorded earlier.
#![forbid(unsafe_code)]

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use perfetto_sdk::producer::{Backends, Producer, ProducerInitArgsBuilder};
use perfetto_sdk::protos::trace::trace_packet::TracePacket;
use perfetto_sdk::track_event::{
    EventContext, TraceContext, TrackEvent, TrackEventCounter, TrackEventDebugArg, TrackEventFlow,
    TrackEventNestedTrack, TrackEventNestedTracks, TrackEventProtoField, TrackEventProtoFields, TrackEventProtoTrack,
    TrackEventTimestamp, TrackEventTrack, TrackEventType,
};
use perfetto_sdk::tracing_session::TracingSession;
use perfetto_sdk::{
    scoped_track_event, trace_for_category, track_event, track_event_begin, track_event_categories,
    track_event_counter, track_event_end, track_event_instant,
};

track_event_categories! {
    pub mod categories {
        ("step", "Steps and what they call", ["host"]),
        ("device", "Work of a device, written later", []),
        ("count", "Counters", []),
    }
}

use categories as perfetto_te_ns;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let rounds: u64 = arguments.next().context("ROUNDS is missing")?.parse().context("ROUNDS")?;
    let files: Vec<String> = arguments.collect();
    if files.len() % 2 != 0 {
        bail!("each CONFIG needs an OUTPUT");
    }
    Producer::init(ProducerInitArgsBuilder::new().backends(Backends::IN_PROCESS).shmem_size_hint_kb(4096).build());
    TrackEvent::init();
    categories::register()?;
    let mut sessions = Vec::new();
    for pair in files.chunks(2) {
        let mut session = TracingSession::in_process()?;
        session.setup(&fs::read(&pair[0]).with_context(|| pair[0].clone())?);
        session.start_blocking();
        sessions.push((session, &pair[1]));
    }
    work(rounds, &mut sessions[0].0)?;
    for (session, output) in &mut sessions {
        session.stop_blocking();
        let file = Arc::new(Mutex::new(File::create(&**output)?));
        session.read_trace_blocking(move |content, _| {
            file.lock().expect("no reader panicked").write_all(content).expect("the output can be written");
        });
    }
    Ok(())
}

/// Runs the threads, and asks for a flush between two rounds.
fn work(rounds: u64, session: &mut TracingSession) -> Result<()> {
    let queue = TrackEventTrack::register_named_track("QUEUE [0] (GPU)", 7, TrackEventTrack::process_track_uuid())?;
    let bytes = TrackEventTrack::register_counter_track("bytes", TrackEventTrack::process_track_uuid())?;
    let load = TrackEventTrack::register_counter_track("load", 0)?;
    thread::scope(|scope| {
        for worker in 0..3 {
            let (queue, bytes, load) = (&queue, &bytes, &load);
            scope.spawn(move || {
                for round in 0..rounds {
                    step(worker, round, bytes, load);
                    if worker == 0 && round % 8 == 7 {
                        device(round - 7..=round, queue);
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        thread::sleep(Duration::from_millis(rounds));
        session.flush_blocking(Duration::from_secs(5));
    });
    Ok(())
}

/// A step of a thread; its flow goes to the same step of the next thread.
fn step(worker: u64, round: u64, bytes: &TrackEventTrack, load: &TrackEventTrack) {
    let flow = TrackEventFlow::process_scoped_flow(1 + round * 3 + worker);
    let before = TrackEventFlow::global_flow(0xF00D_0000 + round * 3 + (worker + 2) % 3);
    let after = TrackEventFlow::global_flow(0xF00D_0000 + round * 3 + worker);
    scoped_track_event!(
        "step",
        "step",
        |event: &mut EventContext| {
            event.set_flow(&flow).set_flow(&after);
            event.add_debug_arg("round", TrackEventDebugArg::Uint64(round));
            event.add_debug_arg("worker", TrackEventDebugArg::Int64(-(worker as i64)));
        },
        |_| {}
    );
    spin();
    track_event_begin!("step", "forward", |event: &mut EventContext| arguments(event, round));
    spin();
    track_event_instant!("step", "half", |event: &mut EventContext| {
        event.set_terminating_flow(&flow).set_terminating_flow(&before);
    });
    let name = format!("layer {}\0", round % 5);
    track_event!("step", TrackEventType::SliceBegin(name.as_ptr().cast()), |event: &mut EventContext| {
        event.set_no_intern();
    });
    spin();
    track_event_end!("step");
    track_event_end!("step");
    track_event_counter!("count", |event: &mut EventContext| {
        event.set_track(bytes).set_counter(TrackEventCounter::Int64((round as i64 - 9) << 33));
    });
    track_event_counter!("count", |event: &mut EventContext| {
        event.set_track(load).set_counter(TrackEventCounter::Double(round as f64 / 7.0));
    });
    // Values that add up; a unit of 1000.
    let counter = [TrackEventProtoField::VarInt(4, 1000), TrackEventProtoField::VarInt(5, 1)];
    let fields = [TrackEventProtoField::Cstr(2, "added"), TrackEventProtoField::Nested(8, &counter)];
    track_event_counter!("count", |event: &mut EventContext| {
        event.set_proto_track(&TrackEventProtoTrack { uuid: 0xADD0 + worker, fields: &fields });
        event.set_counter(TrackEventCounter::Int64(2));
    });
    track_event_instant!("step", "nested", |event: &mut EventContext| {
        let tracks = [TrackEventNestedTrack::Process, TrackEventNestedTrack::Named("lane", worker)];
        event.set_nested_tracks(&TrackEventNestedTracks { tracks: &tracks });
    });
}

/// Arguments of each type; a dictionary with an array.
fn arguments(event: &mut EventContext, round: u64) {
    event.add_debug_arg("yes", TrackEventDebugArg::Bool(round.is_multiple_of(2)));
    event.add_debug_arg("ratio", TrackEventDebugArg::Double(round as f64 * 0.1 - 1.0));
    event.add_debug_arg("large", TrackEventDebugArg::Uint64(u64::MAX - round));
    event.add_debug_arg("text", TrackEventDebugArg::String("é \"quoted\" \\ \n"));
    event.add_debug_arg("address", TrackEventDebugArg::Pointer(0xDEAD_BEEF));
    let first = [TrackEventProtoField::VarInt(4, round)];
    let second = [TrackEventProtoField::Cstr(6, "two")];
    let array = [
        TrackEventProtoField::Cstr(10, "shape"),
        TrackEventProtoField::Nested(12, &first),
        TrackEventProtoField::Nested(12, &second),
    ];
    let number = [TrackEventProtoField::Cstr(10, "stride"), TrackEventProtoField::VarInt(4, 3)];
    let dictionary = [
        TrackEventProtoField::Cstr(10, "tensor"),
        TrackEventProtoField::Nested(11, &array),
        TrackEventProtoField::Nested(11, &number),
    ];
    event.set_proto_fields(&TrackEventProtoFields { fields: &[TrackEventProtoField::Nested(4, &dictionary)] });
}

/// Work of a device in the past eight rounds: times in full, all of them before the thread's last.
fn device(rounds: std::ops::RangeInclusive<u64>, queue: &TrackEventTrack) {
    let TrackEventTimestamp::Boot(now) = TrackEventTimestamp::now() else { return };
    for round in rounds.clone() {
        let begin = now - Duration::from_micros(2000 * (1 + rounds.end() - round));
        let end = begin + Duration::from_nanos(900_001);
        let flow = TrackEventFlow::process_scoped_flow(1 + round * 3);
        track_event_begin!("device", "kernel", |event: &mut EventContext| {
            event.set_track(queue).set_timestamp(TrackEventTimestamp::Boot(begin)).set_flow(&flow);
            event.add_debug_arg("begin_ns", TrackEventDebugArg::Uint64(begin.as_nanos() as u64));
        });
        track_event_end!("device", |event: &mut EventContext| {
            event.set_track(queue).set_timestamp(TrackEventTimestamp::Boot(end));
        });
        stage(begin, end, round);
    }
}

/// The same work as a driver of a GPU states it, in a packet of its own.
fn stage(begin: Duration, end: Duration, round: u64) {
    trace_for_category!("device", |context: &mut TraceContext| {
        context.add_packet(|packet: &mut TracePacket| {
            packet.set_timestamp(begin.as_nanos() as u64).set_timestamp_clock_id(6).set_sequence_flags(2);
            // `InternedData` with an `InternedGpuRenderStageSpecification`, which the library's classes lack.
            packet.msg.append_nested(12, |interned| {
                interned.append_nested(24, |entry| {
                    entry.append_type0_field(1, 1);
                    entry.append_cstr_field(2, "compute");
                });
            });
            packet.msg.append_nested(53, |stage| {
                stage.append_type0_field(1, round);
                stage.append_type0_field(2, (end - begin).as_nanos() as u64);
                stage.append_type0_field(13, 1);
                stage.append_type0_field(14, 1);
            });
        });
    });
}

/// Takes some microseconds.
fn spin() {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_micros(20) {
        std::hint::spin_loop();
    }
}
