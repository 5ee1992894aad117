//! Events of traces as Perfetto's library, PyTorch and Chrome lay them out.

use super::*;
use crate::chunk::{Chunk, TrackKind, Value};
use crate::model::Identity;
use crate::{ChunkOptions, ChunkStats, WantedArgs};

/// A message made of fields.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(mut self, number: u32, value: u64) -> Self {
        put_number(&mut self.0, number, value);
        self
    }

    fn bytes(mut self, number: u32, value: &[u8]) -> Self {
        put_bytes(&mut self.0, number, value);
        self
    }

    fn fixed(mut self, number: u32, value: u64) -> Self {
        crate::protobuf::put_varint(&mut self.0, u64::from(number) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
}

fn event(kind: u64, track: u64, name: &str) -> Message {
    let event = Message::default().number(field::EVENT_TYPE, kind).number(field::EVENT_TRACK, track);
    if name.is_empty() { event } else { event.bytes(field::EVENT_NAME, name.as_bytes()) }
}

fn argument(key: &str, value: impl FnOnce(Message) -> Message) -> Message {
    value(Message::default().bytes(field::ARGUMENT_KEY, key.as_bytes()))
}

#[expect(clippy::needless_pass_by_value, reason = "messages are built where they are passed")]
impl Made {
    fn event(self, time: u64, event: Message) -> Self {
        self.packet(|packet| {
            put_number(packet, field::PACKET_TIME, time);
            put_bytes(packet, field::PACKET_EVENT, &event.0);
        })
    }

    fn describe(self, descriptor: Message) -> Self {
        self.packet(|packet| put_bytes(packet, field::PACKET_DESCRIPTOR, &descriptor.0))
    }

    fn interned(self, flags: u64, tables: &[(u32, &[(u64, &str)])]) -> Self {
        let mut interned = Message::default();
        for (table, entries) in tables {
            for (number, text) in *entries {
                let entry =
                    Message::default().number(field::INTERNED_ID, *number).bytes(field::INTERNED_TEXT, text.as_bytes());
                interned = interned.bytes(*table, &entry.0);
            }
        }
        self.packet(|packet| {
            put_number(packet, field::PACKET_FLAGS, flags);
            put_bytes(packet, field::PACKET_INTERNED, &interned.0);
        })
    }

    fn process(self, track: u64, pid: u64, name: &str) -> Self {
        let process = Message::default().number(field::PROCESS_PID, pid).bytes(field::PROCESS_NAME, name.as_bytes());
        self.describe(
            Message::default().number(field::DESCRIPTOR_UUID, track).bytes(field::DESCRIPTOR_PROCESS, &process.0),
        )
    }

    fn thread(self, track: u64, pid: u64, tid: u64, name: &str) -> Self {
        let thread = Message::default()
            .number(field::THREAD_PID, pid)
            .number(field::THREAD_TID, tid)
            .bytes(field::THREAD_NAME, name.as_bytes());
        self.describe(
            Message::default().number(field::DESCRIPTOR_UUID, track).bytes(field::DESCRIPTOR_THREAD, &thread.0),
        )
    }

    /// All events as lines, sorted, and the statistics.
    fn events(&self) -> (Vec<String>, ChunkStats) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("made.pftrace");
        std::fs::write(&path, &self.0).expect("written");
        let options = ChunkOptions { args: WantedArgs::All, rank: Some(3), ..ChunkOptions::default() };
        let (mut lines, mut tracks) = (Vec::new(), Vec::new());
        let stats = Perfetto
            .read_chunks(&path, &options, &mut |time| time, &mut |chunk| {
                chunk.check(tracks.len()).expect("a sound chunk");
                tracks.extend(chunk.tracks.iter().cloned());
                lines.extend(self::lines(chunk, &tracks));
                Ok(())
            })
            .expect("readable");
        lines.sort();
        (lines, stats)
    }

    fn shows(&self, expected: &[&str]) -> ChunkStats {
        let (lines, stats) = self.events();
        assert_eq!(lines, expected, "{stats:?}");
        stats
    }
}

/// A line for each event: time, end, path of the track, name, category, arguments, flow.
fn lines(chunk: &Chunk, tracks: &[crate::chunk::Track]) -> Vec<String> {
    let text = |id| chunk.strings.text(id);
    let path = |mut place: usize| {
        let mut path = tracks[place].label();
        if let TrackKind::Counter { unit } = &tracks[place].kind {
            path = format!("{path} [{unit}]");
        }
        while let Some(parent) = tracks[place].parent {
            place = parent.0 as usize;
            path = format!("{}/{path}", tracks[place].label());
        }
        path
    };
    let args = |range| arguments(chunk, range);
    let mut lines = Vec::new();
    for row in 0..chunk.slices.track.len() {
        let slices = &chunk.slices;
        let flow = match slices.flow[row].id {
            0 => String::new(),
            _ => format!(" {:?}", slices.flow[row].end),
        };
        lines.push(format!(
            "{}-{} {}: {}{}{}{flow}",
            slices.start_ns[row],
            slices.end_ns[row],
            path(slices.track[row].0 as usize),
            text(slices.name[row]),
            if text(slices.category[row]).is_empty() {
                String::new()
            } else {
                format!(" ({})", text(slices.category[row]))
            },
            args(slices.args[row]),
        ));
    }
    for row in 0..chunk.instants.track.len() {
        let instants = &chunk.instants;
        let track = path(instants.track[row].0 as usize);
        lines.push(format!(
            "{} {track}: {}{}",
            instants.time_ns[row],
            text(instants.name[row]),
            args(instants.args[row])
        ));
    }
    for row in 0..chunk.counters.track.len() {
        let counters = &chunk.counters;
        lines.push(format!(
            "{} {}: {:?}",
            counters.time_ns[row],
            path(counters.track[row].0 as usize),
            counters.value[row]
        ));
    }
    for row in 0..chunk.flows.track.len() {
        let flows = &chunk.flows;
        lines.push(format!("{} {}: {:?}", flows.time_ns[row], path(flows.track[row].0 as usize), flows.flow[row].end));
    }
    lines
}

/// The arguments of an event, each as `key=value`.
fn arguments(chunk: &Chunk, range: crate::chunk::ArgRange) -> String {
    let text = |id| chunk.strings.text(id);
    let rows = range.first as usize..(range.first + range.count) as usize;
    let shown = rows.map(|row| {
        let value = match chunk.args.value[row] {
            Value::Text(id) => format!("{:?}", text(id)),
            Value::Json(id) => text(id).to_owned(),
            Value::Integer(value) => value.to_string(),
            Value::Unsigned(value) => value.to_string(),
            Value::Float(value) => format!("{value:?}"),
            Value::Boolean(value) => value.to_string(),
        };
        format!(" {}={value}", text(chunk.args.key[row]))
    });
    shown.collect()
}

#[test]
fn slices_nest_by_time_in_whichever_order_they_are_written() {
    let made = Made::default().process(1, 40, "train").thread(2, 40, 41, "main");
    let ordered = made
        .clone()
        .event(10, event(field::SLICE_BEGIN, 2, "outer"))
        .event(12, event(field::SLICE_BEGIN, 2, "inner"))
        .event(15, event(field::SLICE_END, 2, ""))
        .event(20, event(field::SLICE_END, 2, ""));
    let expected = ["10-20 rank 3 · train 40/main: outer", "12-15 rank 3 · train 40/main: inner"];
    ordered.shows(&expected);
    // PyTorch writes all begins and then all ends, each in an order of its own.
    let by_kind = made
        .event(12, event(field::SLICE_BEGIN, 2, "inner"))
        .event(10, event(field::SLICE_BEGIN, 2, "outer"))
        .event(20, event(field::SLICE_END, 2, ""))
        .event(15, event(field::SLICE_END, 2, ""));
    by_kind.shows(&expected);
}

#[test]
fn what_does_not_match_is_counted() {
    let made = Made::default()
        .event(5, event(field::SLICE_END, 9, ""))
        .event(10, event(field::SLICE_BEGIN, 9, "endless"))
        .event(30, event(field::INSTANT, 8, "last"));
    let stats = made.shows(&["10-30 rank 3/track 9: endless", "30 rank 3/track 8: last"]);
    assert_eq!(
        stats.notes,
        ["1 slices do not end in the trace; they are drawn to its last event", "1 ends of slices belong to no slice"]
    );
}

#[test]
fn texts_and_defaults_belong_to_a_sequence_until_it_is_cleared() {
    let named = |name: u64| {
        Message::default()
            .number(field::EVENT_TYPE, field::INSTANT)
            .number(field::EVENT_NAME_ID, name)
            .number(field::EVENT_CATEGORY_ID, 5)
    };
    let defaults = |track: u64| {
        let event = Message::default().number(field::EVENT_TRACK, track);
        Message::default().bytes(field::DEFAULTS_EVENT, &event.0)
    };
    let needing = |made: Made, time: u64, name: u64| {
        made.packet(|packet| {
            put_number(packet, field::PACKET_TIME, time);
            put_number(packet, field::PACKET_FLAGS, field::NEEDS_STATE);
            put_bytes(packet, field::PACKET_EVENT, &named(name).0);
        })
    };
    let made = needing(Made::default(), 1, 7);
    let made = made.interned(field::STATE_CLEARED, &[(field::INTERNED_NAME, &[(7, "seven"), (8, "eight")])]);
    let made = made.packet(|packet| put_bytes(packet, field::PACKET_DEFAULTS, &defaults(4).0));
    let made = needing(needing(made, 2, 7), 3, 8);
    let made = made.packet(|packet| put_number(packet, field::PACKET_AFTER_LOSS, 1));
    let made = needing(made, 4, 7).interned(field::STATE_CLEARED, &[(field::INTERNED_NAME, &[(7, "other")])]);
    let stats =
        needing(made, 5, 7).shows(&["2 rank 3/track 4: seven", "3 rank 3/track 4: eight", "5 rank 3/track 0: other"]);
    assert_eq!(stats.notes, ["2 packets refer to others that were lost and are not shown"]);
}

#[test]
fn arguments_of_every_kind_are_read() {
    let pair = argument("b", |value| value.number(field::ARGUMENT_INTEGER, -2_i64 as u64));
    let element = Message::default().bytes(field::ARGUMENT_TEXT, b"x");
    let arguments = [
        argument("flag", |value| value.number(field::ARGUMENT_BOOLEAN, 1)),
        argument("large", |value| value.number(field::ARGUMENT_UNSIGNED, u64::MAX)),
        argument("small", |value| value.number(field::ARGUMENT_INTEGER, -5_i64 as u64)),
        argument("real", |value| value.fixed(field::ARGUMENT_FLOAT, 0.5_f64.to_bits())),
        argument("not", |value| value.fixed(field::ARGUMENT_FLOAT, f64::NAN.to_bits())),
        argument("text", |value| value.bytes(field::ARGUMENT_TEXT, b"[0, 1]")),
        argument("list", |value| value.bytes(field::ARGUMENT_ELEMENT, &element.0)),
        argument("map", |value| value.bytes(field::ARGUMENT_ENTRY, &pair.0)),
        argument("json", |value| value.bytes(field::ARGUMENT_JSON, b"{\"a\": [1]}")),
        argument("nothing", |value| value),
    ];
    let all = arguments
        .iter()
        .fold(event(field::INSTANT, 1, "a"), |event, argument| event.bytes(field::EVENT_ARGUMENT, &argument.0));
    Made::default().event(1, all).shows(&[
        "1 rank 3/track 1: a flag=true large=18446744073709551615 small=-5 real=0.5 not=NaN text=\"[0, 1]\" \
        list=[\"x\"] map={\"b\":-2} json={\"a\":[1]}",
    ]);
}

#[test]
fn counters_add_up_and_have_their_units() {
    let counter = |track: u64, name: &str, fields: Message| {
        Message::default()
            .number(field::DESCRIPTOR_UUID, track)
            .number(field::DESCRIPTOR_PARENT, 1)
            .bytes(field::DESCRIPTOR_NAME, name.as_bytes())
            .bytes(field::DESCRIPTOR_COUNTER, &fields.0)
    };
    let plain = Message::default().number(field::COUNTER_UNIT, 3);
    let summed = Message::default().number(field::COUNTER_IS_INCREMENTAL, 1).number(field::COUNTER_MULTIPLIER, 10);
    let value = |track: u64, value: u64| event(field::COUNTER, track, "").number(field::EVENT_VALUE, value);
    let further =
        event(field::SLICE_BEGIN, 9, "s").number(field::EVENT_EXTRA_TRACKS, 6).number(field::EVENT_EXTRA_VALUES, 4);
    let made = Made::default().process(1, 40, "train").describe(counter(5, "memory", plain));
    let made = made.describe(counter(6, "misses", summed)).event(1, value(5, 100)).event(2, value(6, 3));
    let made = made.event(3, further).event(4, event(field::SLICE_END, 9, ""));
    // A cleared state begins the sum again.
    let made = made.interned(field::STATE_CLEARED, &[]).event(6, value(6, 1));
    let float = event(field::COUNTER, 5, "").fixed(field::EVENT_FLOAT_VALUE, 2.5_f64.to_bits());
    made.event(5, float).shows(&[
        "1 rank 3 · train 40/memory [bytes]: 100.0",
        "2 rank 3 · train 40/misses []: 30.0",
        "3 rank 3 · train 40/misses []: 70.0",
        "3-4 rank 3/track 9: s",
        "5 rank 3 · train 40/memory [bytes]: 2.5",
        "6 rank 3 · train 40/misses []: 10.0",
    ]);
}

#[test]
fn flows_connect_events_in_the_order_of_their_times() {
    let flow = |kind: u64, name: &str, number: u32, id: u64| event(kind, 1, name).fixed(number, id);
    let made = Made::default()
        .event(20, flow(field::SLICE_BEGIN, "middle", field::EVENT_FLOW, 77))
        .event(25, event(field::SLICE_END, 1, ""))
        .event(10, flow(field::SLICE_BEGIN, "first", field::EVENT_FLOW, 77).fixed(field::EVENT_FLOW, 78))
        .event(15, event(field::SLICE_END, 1, ""))
        .event(30, flow(field::INSTANT, "last", field::EVENT_LAST_FLOW, 77));
    made.shows(&[
        "10 rank 3/track 1: Out",
        "10-15 rank 3/track 1: first Out",
        "20-25 rank 3/track 1: middle Step",
        "30-30 rank 3/track 1: last In",
    ]);
}

#[test]
fn a_flows_number_may_be_used_again_after_its_end() {
    let flow = |kind: u64, name: &str, number: u32| event(kind, 1, name).fixed(number, 77);
    let made = Made::default()
        .event(10, flow(field::INSTANT, "sends", field::EVENT_FLOW))
        .event(20, flow(field::INSTANT, "receives", field::EVENT_LAST_FLOW))
        .event(5, flow(field::INSTANT, "too early", field::EVENT_LAST_FLOW))
        .event(30, flow(field::INSTANT, "sends again", field::EVENT_FLOW))
        .event(40, flow(field::INSTANT, "receives again", field::EVENT_FLOW));
    made.shows(&[
        "10-10 rank 3/track 1: sends Out",
        "20-20 rank 3/track 1: receives In",
        "30-30 rank 3/track 1: sends again Out",
        "40-40 rank 3/track 1: receives again In",
        "5-5 rank 3/track 1: too early",
    ]);
}

#[test]
fn events_of_chrome_state_their_kind_as_a_letter() {
    let chrome = |letter: char, duration_us: u64| {
        let of_chrome = Message::default()
            .number(field::CHROME_PHASE, letter.into())
            .number(field::CHROME_DURATION_US, duration_us)
            .number(field::CHROME_TID, 8);
        Message::default().bytes(field::EVENT_NAME, b"c").bytes(field::EVENT_OF_CHROME, &of_chrome.0)
    };
    let thread = Message::default().number(field::THREAD_PID, 40).number(field::THREAD_TID, 7);
    let made = Made::default().packet(|packet| put_bytes(packet, field::PACKET_THREAD, &thread.0));
    let made = made.event(1_000, chrome('X', 5)).event(2_000, chrome('I', 0)).event(3_000, chrome('n', 0));
    let stats = made.shows(&["1000-6000 rank 3 · pid 40/: c", "2000 rank 3 · pid 40/: c"]);
    assert_eq!(Vec::from_iter(stats.other_phases), [('n', 1)]);
}

#[test]
fn gpus_have_queues_and_counters() {
    let kernel = Message::default().number(field::INTERNED_ID, 3).bytes(field::INTERNED_DEMANGLED, b"gemm<float>");
    let stage = |fields: Message| fields.number(field::STAGE_GPU, 1).number(field::STAGE_QUEUE_ID, 1);
    let spec = Message::default().number(field::GPU_COUNTER_ID, 6).bytes(field::GPU_COUNTER_NAME, b"power");
    let descriptor = Message::default().bytes(field::GPU_COUNTER_SPEC, &spec.0);
    let counters = Message::default()
        .number(field::INTERNED_ID, 2)
        .number(field::INTERNED_COUNTERS_GPU, 1)
        .bytes(field::INTERNED_COUNTERS, &descriptor.0);
    let sample = |value: u64| {
        let value = Message::default().number(field::GPU_COUNTER_ID, 6).number(field::GPU_COUNTER_INTEGER, value);
        Message::default().number(field::GPU_COUNTERS_DESCRIPTOR_ID, 2).bytes(field::GPU_COUNTERS_VALUE, &value.0)
    };
    let extra = Message::default().bytes(field::EXTRA_KEY, b"grid").bytes(field::EXTRA_VALUE, b"8");
    let stages: &[(u64, &str)] = &[(1, "stream 7"), (2, "Memcpy")];
    let made = Made::default().interned(field::STATE_CLEARED, &[(field::INTERNED_STAGE, stages)]);
    let more =
        Message::default().bytes(field::INTERNED_KERNEL, &kernel.0).bytes(field::INTERNED_GPU_COUNTERS, &counters.0);
    let made = made.packet(|packet| put_bytes(packet, field::PACKET_INTERNED, &more.0));
    let at = |made: Made, time: u64, number: u32, message: Message| {
        made.packet(|packet| {
            put_number(packet, field::PACKET_TIME, time);
            put_bytes(packet, number, &message.0);
        })
    };
    let launched = Message::default().number(field::STAGE_EVENT_ID, 12).number(field::STAGE_DURATION, 9);
    let launched =
        launched.number(field::STAGE_KERNEL_ID, 3).bytes(field::STAGE_EXTRA, &extra.0).number(field::STAGE_ID, 2);
    let copied = Message::default()
        .number(field::STAGE_EVENT_ID, 13)
        .number(field::STAGE_DURATION, 4)
        .number(field::STAGE_ID, 2);
    let made = at(at(made, 10, field::PACKET_GPU_STAGE, stage(launched)), 30, field::PACKET_GPU_STAGE, stage(copied));
    let starts = Message::default().number(field::GPU_LAUNCHED, 12);
    let launch = event(field::SLICE_BEGIN, 2, "cudaLaunchKernel").bytes(field::EVENT_OF_GPU, &starts.0);
    let made = made.event(5, launch).event(8, event(field::SLICE_END, 2, ""));
    // A sample is about the time before it.
    let made = at(made, 20, field::PACKET_GPU_COUNTERS, sample(300));
    at(made, 25, field::PACKET_GPU_COUNTERS, sample(400)).shows(&[
        "10-19 rank 3/GPU 1/stream 7: gemm<float> grid=\"8\" In",
        "20 rank 3/GPU 1/power []: 400.0",
        "25 rank 3/GPU 1/power []: 0.0",
        "30-34 rank 3/GPU 1/stream 7: Memcpy",
        "5-8 rank 3/track 2: cudaLaunchKernel Out",
    ]);
}

#[test]
fn operations_are_read_as_pytorch_states_them() {
    let text = |key: &str, value: &str| argument(key, |made| made.bytes(field::ARGUMENT_TEXT, value.as_bytes()));
    let number = |key: &str, value: u64| argument(key, |made| made.number(field::ARGUMENT_INTEGER, value));
    let stated = [
        text("Collective name", "allreduce"),
        text("Process Group Name", "0"),
        text("Process Group Ranks", "[0, 1]"),
        number("Group size", 2),
        number("Rank", 1),
        text("Process Group Description", "default_pg"),
        number("Seq", 17),
        text("dtype", "Float"),
        number("In msg nelems", 64),
    ];
    let kernel = |name: &str| {
        stated
            .iter()
            .fold(event(field::SLICE_BEGIN, 1, name), |event, argument| event.bytes(field::EVENT_ARGUMENT, &argument.0))
    };
    let made = Made::default()
        .event(10, kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"))
        .event(30, event(field::SLICE_END, 1, ""))
        .event(40, kernel("record_param_comms"))
        .event(41, event(field::SLICE_END, 1, ""))
        .event(50, event(field::SLICE_BEGIN, 2, "ProfilerStep#4"))
        .event(60, event(field::SLICE_END, 2, ""));
    let facts = made.facts().expect("facts");
    let parts = facts.collectives.events();
    assert_eq!(parts.len(), 1);
    let part = &parts[0];
    assert_eq!((part.label.name.as_str(), part.number, part.start_ps, part.end_ps), ("allreduce", 17, 10_000, 30_000));
    let Identity { rank, world_size, .. } = facts.identity;
    assert_eq!((rank, world_size), (Some(1), Some(2)), "the second of the group's members");
    assert_eq!((facts.groups.len(), facts.groups[0].ranks.as_deref()), (1, Some(&[0, 1][..])));
}
