//! A rank's trace as JAX's profiler writes it: one device per process, one program, in which each
//! dimension has an operation with its replica groups.

use std::path::{Path, PathBuf};

use super::{BASE_NS, Done, Draws, Job, below};

/// How a job's XSpaces state their operations.
#[derive(Copy, Clone, Debug)]
pub(super) struct Style {
    device: Device,
    run: Run,
    /// The program is in the file.
    has_program: bool,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Device {
    /// Operations are events of the host, which state their run.
    Cpu,
    /// Operations are kernels; launches say of which run they are.
    Gpu,
    /// Kernels without the host's events.
    GpuAlone,
}

/// The number of a run.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Run {
    /// Made from the program and how often it ran: the same in all processes.
    Shared,
    /// Each process counts for itself.
    Own,
}

impl Style {
    pub(super) fn new(draws: &mut Draws) -> Self {
        let device = [Device::Cpu, Device::Cpu, Device::Gpu, Device::Gpu, Device::GpuAlone][below(draws, 5)];
        let run = [Run::Shared, Run::Shared, Run::Own][below(draws, 3)];
        Self { device, run, has_program: draws.uniform() < 0.9 }
    }
}

/// A message of Protocol Buffers.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value > 127 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, inner: &Self) -> Self {
        self.bytes(field, &inner.0)
    }

    /// An entry of a plane's names of events (4) or stats (5).
    fn name(self, field: u64, number: i64, name: &str) -> Self {
        let value = Self::default().number(1, number).text(2, name);
        self.message(field, &Self::default().number(1, number).message(2, &value))
    }

    fn packed(field: u64, numbers: impl Iterator<Item = usize>) -> Self {
        let mut list = Self::default();
        numbers.for_each(|number| list.varint(number as u64));
        Self::default().bytes(field, &list.0)
    }
}

/// The name of a stat or event, with what its number is in every plane.
const STATS: [(i64, &str); 8] = [
    (1, "hlo_op"),
    (2, "hlo_module"),
    (3, "correlation_id"),
    (4, "run_id"),
    (5, "device"),
    (6, "rank"),
    (7, "clique_key"),
    (8, "device_ordinal"),
];
const EVENTS: [(i64, &str); 4] = [
    (1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"),
    (2, "CommonPjRtLoadedExecutable::Execute (jit_step)"),
    (3, "AcquireGpuClique"),
    (5, "RendezvousAfterInitialization"),
];
const MODULE: i64 = 20;
const CLIQUE: i64 = 21;
/// Operations, by dimension.
const OPERATIONS: i64 = 30;

fn event(name: i64, (start_ns, end_ns): (i64, i64), stats: &[Message]) -> Message {
    let event = Message::default().number(1, name).number(2, start_ns * 1000).number(3, (end_ns - start_ns) * 1000);
    stats.iter().fold(event, |event, stat| event.message(4, stat))
}

fn number(stat: i64, value: i64) -> Message {
    Message::default().number(1, stat).number(4, value)
}

fn reference(stat: i64, value: i64) -> Message {
    Message::default().number(1, stat).number(7, value)
}

fn plane(name: &str, job: &Job, events: &[Message]) -> Message {
    let line = events.iter().fold(Message::default(), |line, event| line.message(4, event));
    let plane = EVENTS
        .iter()
        .fold(Message::default().text(2, name).message(3, &line), |plane, (number, name)| plane.name(4, *number, name));
    let plane = STATS.iter().fold(plane, |plane, (number, name)| plane.name(5, *number, name));
    let ranks = job.steps.len();
    let devices: Vec<String> = (0..ranks).map(|rank| device(rank).to_string()).collect();
    let plane = plane.name(5, MODULE, "jit_step");
    let plane = plane.name(5, CLIQUE, &format!("devices={ranks}:[{}]; is_p2p=0", devices.join(",")));
    (0..=*job.dimensions().last().expect("groups")).fold(plane, |plane, dimension| {
        let (number, name) = (OPERATIONS + dimension as i64, operation(dimension));
        plane.name(4, number, &name).name(5, number, &name)
    })
}

fn operation(dimension: usize) -> String {
    format!("all-reduce.{dimension}")
}

/// The job's number of a rank's device.
fn device(rank: usize) -> usize {
    2048 * rank
}

/// The program with the groups of each dimension.
fn program(job: &Job) -> Message {
    let dimensions = job.dimensions();
    let mut computation = Message::default().text(1, "main");
    for dimension in 0..=*dimensions.last().expect("groups") {
        let of = job.groups.iter().zip(&dimensions).filter(|(_, of)| **of == dimension);
        let list = of.fold(Message::default(), |list, (members, _)| {
            list.message(1, &Message::packed(1, members.iter().copied()))
        });
        let sum = Message::default().text(1, &operation(dimension)).text(2, "all-reduce");
        computation = computation.message(2, &sum.number(26, 1).number(71, 1).message(87, &list));
    }
    let ranks = job.steps.len();
    let assignment = (0..ranks).fold(Message::default().number(1, 1).number(2, ranks as i64), |assignment, rank| {
        assignment.message(3, &Message::packed(1, std::iter::once(device(rank))))
    });
    let module = Message::default().text(1, "jit_step").message(3, &computation).number(5, 9).message(15, &assignment);
    let stat = Message::default().number(1, 4).message(6, &Message::default().message(1, &module));
    let metadata = Message::default().number(1, 1).text(2, "jit_step(9)").message(5, &stat);
    let entry = Message::default().number(1, 1).message(2, &metadata);
    Message::default().text(2, "/host:metadata").message(4, &entry).name(5, 4, "Hlo Proto")
}

pub(super) fn write(job: &Job, style: Style, rank: usize, folder: &Path) -> PathBuf {
    // The session begins a little before the first step that is recorded.
    let steps = &job.steps[rank];
    let recorded = job.recorded[rank].clone();
    let begins = steps[recorded.start as usize].0 - 1_000_000;
    let ends = steps[recorded.end as usize - 1].1 + 1_000_000;
    let started = BASE_NS + 1_000_000_000 + begins + job.ahead[rank];
    let dimensions = job.dimensions();
    let first_run = match style.run {
        Run::Shared => 953_279_600,
        Run::Own => 7 + 5 * (rank as i64 % 2),
    };
    let of_clique = [number(5, 0), number(6, rank as i64), reference(7, CLIQUE)];
    let mut host = vec![event(3, (0, 1000), &of_clique)];
    let mut kernels = Vec::new();
    for step in recorded.clone() {
        let (start, end) = steps[step as usize];
        let run = number(4, first_run + step);
        host.push(event(2, (start - begins, end - begins), std::slice::from_ref(&run)));
        host.push(event(5, (start - begins + 100, start - begins + 200), &[run]));
    }
    for (launch, Done { group, step, stays }) in (1..).zip(&job.done).filter(|(_, done)| recorded.contains(&done.step))
    {
        let Some((start, end)) = stays.get(&rank).map(|stay| (stay.0 - begins, stay.1 - begins)) else { continue };
        let operation = OPERATIONS + dimensions[*group] as i64;
        let stats = [reference(1, operation), reference(2, MODULE)];
        if style.device == Device::Cpu {
            let more = [number(4, first_run + step), number(8, device(rank) as i64)];
            host.push(event(operation, (start, end), &[&stats[..], &more].concat()));
        } else {
            let launched = number(3, launch);
            host.push(event(1, (start - 20_000, start - 19_000), std::slice::from_ref(&launched)));
            kernels.push(event(1, (start, end), &[&stats[..], &[launched]].concat()));
        }
    }
    let mut space = Message::default();
    if style.has_program {
        space = space.message(1, &program(job));
    }
    if style.device != Device::Cpu {
        space = space.message(1, &plane("/device:GPU:0", job, &kernels));
    }
    if style.device != Device::GpuAlone {
        space = space.message(1, &plane("/host:CPU", job, &host));
    }
    let task = Message::default()
        .text(2, "Task Environment")
        .message(6, &Message::default().number(1, 1).number(3, started))
        .message(6, &Message::default().number(1, 2).number(3, started + ends - begins))
        .name(5, 1, "profile_start_time")
        .name(5, 2, "profile_stop_time");
    let path = folder.join(format!("rank{rank}.xplane.pb"));
    std::fs::write(&path, space.message(1, &task).text(4, &format!("host{rank}")).0).expect("written");
    path
}
