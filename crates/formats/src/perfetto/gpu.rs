//! What GPUs did, and their counters, as `gpu_render_stage_event.proto` and `gpu_counter_event.proto`
//! state them.

use std::rc::Rc;

use super::fields as field;
use super::out::Out;
use super::packet::{bytes, inside};
use super::sequences::{GpuCounters, Sequence, Texts};
use super::tracks::Place;
use crate::chunk::{ArgRange, FlowEnd, StringId, Value as Argument, lossy};
use crate::protobuf::{Fault, Fields, Value};

/// Adds what a GPU did: on its queue, with the kernel's name, its own, or its stage's.
///
/// # Errors
/// The message cannot be read, or a time does not fit.
pub(super) fn stage(message: &[u8], sequence: &Sequence, at_ns: i64, out: &mut Out<'_, '_>) -> Result<(), Fault> {
    let (mut id, mut duration_ns, mut gpu, mut queue, mut extra) = (None, 0, 0, None, Vec::new());
    // In the order in which they are preferred.
    let mut names: [Option<&[u8]>; 3] = [None; 3];
    let of = |table, number| sequence.text(table, number).map(str::as_bytes);
    for found in Fields::of(message) {
        let found = found?;
        match (found.number, found.value) {
            (field::STAGE_EVENT_ID, Value::Number(number)) => id = Some(number),
            (field::STAGE_DURATION, Value::Number(ns)) => duration_ns = i64::try_from(ns).unwrap_or(i64::MAX),
            (field::STAGE_GPU, Value::Number(id)) => gpu = id as i64,
            (field::STAGE_QUEUE_ID, Value::Number(iid)) => {
                queue = of(Texts::Stage, iid).map(|name| lossy(name).into_owned());
            }
            (field::STAGE_QUEUE_NUMBER, Value::Number(number)) if queue.is_none() => {
                queue = Some(format!("queue {number}"));
            }
            (field::STAGE_KERNEL_ID, Value::Number(iid)) => names[0] = of(Texts::Kernel, iid),
            (field::STAGE_NAME, Value::Bytes(name)) => names[1] = Some(name),
            (field::STAGE_NAME_ID, Value::Number(iid)) => names[1] = names[1].or(of(Texts::Name, iid)),
            (field::STAGE_ID, Value::Number(iid)) => names[2] = of(Texts::Stage, iid),
            (field::STAGE_EXTRA, _) => extra.push(found),
            _ => {}
        }
    }
    // Without a number a packet states names only.
    let Some(id) = id else { return Ok(()) };
    let Some(span) = out.span((at_ns, at_ns.saturating_add(duration_ns)))? else { return Ok(()) };
    let track = out.track(&Place::Queue(gpu, queue.unwrap_or_else(|| "queue".to_owned())));
    let (chunk, wanted) = (&mut out.chunk, out.options.args);
    let name = chunk.strings.intern_lossy(names.into_iter().flatten().next().unwrap_or(b"GPU"));
    let first = chunk.args.key.len() as u32;
    for argument in &extra {
        let (mut key, mut text) = (&b""[..], &b""[..]);
        for found in inside(argument) {
            let found = found?;
            match found.number {
                field::EXTRA_KEY => key = bytes(&found).unwrap_or_default(),
                field::EXTRA_VALUE => text = bytes(&found).unwrap_or_default(),
                _ => {}
            }
        }
        if wanted.takes(key) {
            chunk.args.key.push(chunk.strings.intern_lossy(key));
            chunk.args.value.push(Argument::Text(chunk.strings.push(&lossy(text))));
        }
    }
    let args = ArgRange { first, count: chunk.args.key.len() as u32 - first };
    let flow = out.flows.of_stage(out.options.part, id, FlowEnd::In).unwrap_or_default();
    out.chunk.slices.push(track, span, (name, StringId::EMPTY), flow, args);
    out.stats.events += 1;
    Ok(())
}

/// Adds values of a GPU's counters, which a descriptor names. A value holds from the sample before to its
/// own, unless the descriptor says that it holds from then on.
///
/// # Errors
/// The message cannot be read, or a time does not fit.
pub(super) fn counters(message: &[u8], sequence: &Sequence, at_ns: i64, out: &mut Out<'_, '_>) -> Result<(), Fault> {
    let (mut gpu, mut described, mut values) = (None, None, Vec::new());
    for found in Fields::of(message) {
        let found = found?;
        match (found.number, found.value) {
            (field::GPU_COUNTERS_GPU, Value::Number(id)) => gpu = Some(id as i64),
            (field::GPU_COUNTERS_DESCRIPTOR, Value::Bytes(stated)) => {
                described = Some(Rc::new(GpuCounters::parse(stated)?));
            }
            (field::GPU_COUNTERS_DESCRIPTOR_ID, Value::Number(iid)) => {
                if let Some((id, counters)) = sequence.counters(iid) {
                    (gpu, described) = (gpu.or(Some(id)), Some(counters));
                }
            }
            (field::GPU_COUNTERS_VALUE, _) => values.push(found),
            _ => {}
        }
    }
    let gpu = gpu.unwrap_or_default();
    // A driver states it once, in an earlier packet.
    let described = match described {
        Some(described) if out.counters.len() < GPUS_MAX => {
            out.counters.insert(gpu, Rc::clone(&described));
            described
        }
        Some(described) => described,
        None => out.counters.get(&gpu).cloned().unwrap_or_default(),
    };
    for value in &values {
        let (mut counter, mut number) = (0, None);
        for found in inside(value) {
            let found = found?;
            match (found.number, found.value) {
                (field::GPU_COUNTER_ID, Value::Number(id)) => counter = id,
                (field::GPU_COUNTER_INTEGER, Value::Number(value)) => number = Some(value as i64 as f64),
                (field::GPU_COUNTER_FLOAT, Value::Fixed(value)) => {
                    number = value.try_into().ok().map(f64::from_le_bytes);
                }
                _ => {}
            }
        }
        let Some(number) = number else { continue };
        let (name, is_forward) = described.counter(counter);
        let place = Place::GpuCounter(gpu, name);
        let since_ns = if is_forward { Some(at_ns) } else { out.samples.insert(place.clone(), at_ns) };
        if let Some(since_ns) = since_ns {
            out.value(sequence.number, &place, since_ns, number)?;
        }
    }
    Ok(())
}

/// GPUs whose counters are remembered.
const GPUS_MAX: usize = 1024;
