//! The programs in a file, as far as they state which devices take part in a collective together.
//!
//! `outline` passes on every entry of the plane `/host:metadata`, one per module; `facts` asks for
//! an operation's replica groups. The fields, taken from real files and XLA's published schema,
//! are:
//!
//! ```text
//! HloProto                module=1
//! HloModule               name=1 computations=3 id=5 device_assignment=15
//! computation             instructions=2
//! instruction             name=1 opcode=2 channel_id=26 replica_groups=49 use_global_device_ids=71
//!                         collective_device_list=87 (replica_groups=1 | iota=2) mesh_axes_list=93
//! replica group           replica_ids=1
//! iota                    groups=1 devices_per_group=2 reshape_dims=3 transpose_perm=4
//! mesh axes list          mesh=1 (axes=1 (name=1 size=2)) axes=2 (mesh_axis_index=1)
//! device_assignment       replica_count=1 computation_count=2 computation_devices=3 (replica_device_ids=1)
//! ```
//!
//! What the numbers in a group count depends on the operation ([`Mode`]); the device assignment
//! turns them into the job's numbers of devices. Without it an operation's groups stay unknown,
//! even where all devices take part: nothing would tell a program that runs on two meshes at once
//! from one that runs on both together. A program may be hundreds of megabytes (constants), so it
//! is walked, not held; only collectives are looked at. It does not guess: if anything about an
//! operation is not fully understood, its groups are unknown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::device_groups::{DEVICES_MAX, Groups, device_list, mesh_list, replica_group};
use crate::Error;
use crate::model::Replicas;
use crate::protobuf::{Fault, Fields, Header, Source, Value};

/// The collectives of all programs of a file.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// By module, program number and operation.
    programs: HashMap<String, HashMap<u64, HashMap<String, Replicas>>>,
    /// Each list of groups once: most operations of a program share it.
    lists: HashSet<Arc<[Vec<u64>]>>,
    bytes: usize,
}

impl Programs {
    /// Which devices take part together in an operation; without a program number all programs of
    /// the module's name have to agree.
    pub(super) fn replicas(&self, module: &str, program: Option<u64>, operation: &str) -> Replicas {
        let Some(of_module) = self.programs.get(module) else { return Replicas::Unknown };
        if let Some(program) = program {
            let known = of_module.get(&program).and_then(|operations| operations.get(operation));
            return known.cloned().unwrap_or(Replicas::Unknown);
        }
        let mut found = None;
        for operations in of_module.values() {
            match (operations.get(operation), found) {
                (Some(replicas), None) => found = Some(replicas),
                (Some(replicas), Some(other)) if replicas == other => {}
                _ => return Replicas::Unknown,
            }
        }
        found.cloned().unwrap_or(Replicas::Unknown)
    }

    /// Reads the program in a stat of an entry of the metadata plane, if it contains one.
    pub(super) fn read_stat(&mut self, source: &mut Source, stat: &Header) -> Result<(), Error> {
        while let Some(field) = source.next_header(stat.end())? {
            match (field.number, field.wire) {
                (STAT_BYTES, 2) => {
                    while let Some(module) = source.next_header(field.end())? {
                        match (module.number, module.wire) {
                            (MODULE, 2) => self.read_module(source, &module)?,
                            _ => source.skip(module.body())?,
                        }
                    }
                }
                _ => source.skip(field.body())?,
            }
        }
        Ok(())
    }

    fn read_module(&mut self, source: &mut Source, header: &Header) -> Result<(), Error> {
        let (mut name, mut number) = (String::new(), 0);
        let mut assignment = None;
        let mut instructions: Vec<Instruction> = Vec::new();
        let mut stated_bytes = 0;
        while let Some(field) = source.next_header(header.end())? {
            match (field.number, field.wire) {
                (module::NAME, 2) => name = short_text(source, &field)?,
                (module::ID, 0) => number = field.value,
                (module::DEVICE_ASSIGNMENT, 2) => assignment = small(source, &field, Assignment::parse)?,
                (module::COMPUTATIONS, 2) => {
                    while let Some(inner) = source.next_header(field.end())? {
                        match (inner.number, inner.wire) {
                            (INSTRUCTIONS, 2) => {
                                let Some(mut instruction) = Instruction::read(source, &inner)? else { continue };
                                // A few bytes may state a million groups: beyond the limit none is
                                // held.
                                let stated = instruction.groups.heap_bytes();
                                if self.bytes + stated_bytes + stated > PROGRAM_BYTES_MAX {
                                    instruction.groups = Groups::Odd;
                                }
                                stated_bytes += instruction.groups.heap_bytes();
                                instructions.push(instruction);
                            }
                            _ => source.skip(inner.body())?,
                        }
                    }
                }
                _ => source.skip(field.body())?,
            }
        }
        let mut operations = HashMap::new();
        for instruction in instructions {
            let groups = assignment.as_ref().and_then(|assignment| instruction.devices(assignment));
            let replicas = groups.map_or(Replicas::Unknown, |groups| self.shared(groups));
            self.bytes += instruction.name.len() + size_of::<Replicas>() + 64;
            if self.bytes <= PROGRAM_BYTES_MAX {
                operations.insert(instruction.name, replicas);
            }
        }
        // Two programs of one number: neither is certain.
        let known = self.programs.entry(name).or_default().entry(number).or_default();
        for (operation, replicas) in operations {
            let slot = known.entry(operation).or_insert_with(|| replicas.clone());
            if *slot != replicas {
                *slot = Replicas::Unknown;
            }
        }
        Ok(())
    }

    /// A list of groups, stored once.
    fn shared(&mut self, groups: Vec<Vec<u64>>) -> Replicas {
        if let Some(known) = self.lists.get(&groups[..]) {
            return Replicas::Groups(Arc::clone(known));
        }
        let bytes = groups.iter().map(|group| size_of::<Vec<u64>>() + group.len() * 8).sum::<usize>();
        if self.bytes + bytes > PROGRAM_BYTES_MAX {
            return Replicas::Unknown;
        }
        self.bytes += bytes;
        let groups = Arc::from(groups);
        self.lists.insert(Arc::clone(&groups));
        Replicas::Groups(groups)
    }
}

/// A collective of a program.
#[derive(Debug, Default)]
struct Instruction {
    name: String,
    opcode: String,
    has_channel: bool,
    global_ids: bool,
    groups: Groups,
}

/// Meaning of the numbers in a group, as XLA defines it by channel and `use_global_device_ids`.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Mode {
    /// Replicas; each partition separately.
    CrossReplica,
    /// Partitions; each replica separately.
    CrossPartition,
    /// Replicas, with all their partitions.
    ReplicasWhole,
    /// replica · partitions + partition.
    Flattened,
}

impl Instruction {
    /// An instruction, if it is a collective.
    fn read(source: &mut Source, header: &Header) -> Result<Option<Self>, Error> {
        let mut found = Self::default();
        while let Some(field) = source.next_header(header.end())? {
            match (field.number, field.wire) {
                (instruction::NAME, 2) => found.name = short_text(source, &field)?,
                (instruction::OPCODE, 2) => found.opcode = short_text(source, &field)?,
                (instruction::CHANNEL, 0) => found.has_channel = field.value > 0,
                (instruction::GLOBAL_IDS, 0) => found.global_ids = field.value != 0,
                (instruction::GROUPS, 2) => match small(source, &field, replica_group)? {
                    Some(group) => found.groups.push(group),
                    None => found.groups = Groups::Odd,
                },
                (instruction::DEVICE_LIST, 2) => {
                    found.groups = small(source, &field, device_list)?.unwrap_or(Groups::Odd);
                }
                (instruction::MESH_LIST, 2) => {
                    found.groups = small(source, &field, mesh_list)?.unwrap_or(Groups::Odd);
                }
                _ => source.skip(field.body())?,
            }
        }
        Ok(found.mode().is_some().then_some(found))
    }

    /// `None` for anything but collectives.
    fn mode(&self) -> Option<Mode> {
        let plain = self.opcode.trim_end_matches("-start").trim_end_matches("-done");
        let whole = match plain {
            "all-reduce" | "all-gather" | "reduce-scatter" => Mode::ReplicasWhole,
            "all-to-all" | "ragged-all-to-all" | "collective-permute" | "collective-broadcast" => Mode::CrossPartition,
            _ => return None,
        };
        Some(match (self.has_channel, self.global_ids) {
            (_, true) => Mode::Flattened,
            (true, false) => whole,
            (false, false) => Mode::CrossReplica,
        })
    }

    /// Its groups in the job's device numbers, if they are supported.
    fn devices(&self, assignment: &Assignment) -> Option<Vec<Vec<u64>>> {
        let listed: &[Vec<u64>] = match &self.groups {
            Groups::Odd => return None,
            Groups::Unstated => &[],
            Groups::Listed(groups) => groups,
        };
        assignment.devices(self.mode()?, listed)
    }
}

/// Which device runs which partition of which replica.
#[derive(Debug, Default, PartialEq)]
struct Assignment {
    /// By partition, then replica.
    devices: Vec<Vec<u64>>,
}

impl Assignment {
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let mut found = Self::default();
        for field in Fields::of(bytes) {
            let field = field?;
            if let (3, Value::Bytes(inner)) = (field.number, field.value) {
                match replica_group(inner)? {
                    Some(devices) => found.devices.push(devices),
                    None => return Ok(None),
                }
            }
        }
        let replicas = found.devices.first().map_or(0, Vec::len);
        let even = replicas > 0 && found.devices.iter().all(|of_partition| of_partition.len() == replicas);
        let mut all = found.devices.concat();
        all.sort_unstable();
        let once = all.windows(2).all(|pair| pair[0] != pair[1]);
        Ok((even && once && all.len() <= DEVICES_MAX).then_some(found))
    }

    /// Groups of devices; `None` if a number is not one of theirs.
    fn devices(&self, mode: Mode, groups: &[Vec<u64>]) -> Option<Vec<Vec<u64>>> {
        let (partitions, replicas) = (self.devices.len() as u64, self.devices[0].len() as u64);
        let device = |replica: u64, partition: u64| {
            let of_partition = self.devices.get(usize::try_from(partition).ok()?)?;
            of_partition.get(usize::try_from(replica).ok()?).copied()
        };
        let counted = match mode {
            Mode::CrossReplica | Mode::ReplicasWhole => replicas,
            Mode::CrossPartition => partitions,
            Mode::Flattened => replicas * partitions,
        };
        let all = [(0..counted).collect::<Vec<u64>>()];
        let groups = if groups.is_empty() { &all[..] } else { groups };
        let each = |group: &Vec<u64>, device: &dyn Fn(u64) -> Option<u64>| -> Option<Vec<u64>> {
            group.iter().map(|&number| device(number)).collect()
        };
        match mode {
            Mode::Flattened => {
                groups.iter().map(|group| each(group, &|id| device(id / partitions, id % partitions))).collect()
            }
            Mode::CrossReplica => {
                let of = |partition: u64| groups.iter().map(move |group| (partition, group));
                let pairs = (0..partitions).flat_map(of);
                pairs.map(|(partition, group)| each(group, &|replica| device(replica, partition))).collect()
            }
            Mode::CrossPartition => {
                let of = |replica: u64| groups.iter().map(move |group| (replica, group));
                let pairs = (0..replicas).flat_map(of);
                pairs.map(|(replica, group)| each(group, &|partition| device(replica, partition))).collect()
            }
            Mode::ReplicasWhole => {
                let whole = |group: &Vec<u64>| -> Option<Vec<u64>> {
                    let of_partition =
                        (0..partitions).map(|partition| each(group, &|replica| device(replica, partition)));
                    Some(of_partition.collect::<Option<Vec<Vec<u64>>>>()?.concat())
                };
                groups.iter().map(whole).collect()
            }
        }
    }
}

/// A small message, parsed; `None` if it exceeds the limit.
fn small<T>(
    source: &mut Source,
    field: &Header,
    parse: impl FnOnce(&[u8]) -> Result<Option<T>, Fault>,
) -> Result<Option<T>, Error> {
    if field.body() > SMALL_BYTES_MAX {
        source.skip(field.body())?;
        return Ok(None);
    }
    source.ensure(field.body())?;
    let parsed = parse(source.shown(field.body())).map_err(|fault| source.fault(field.body_at(), fault))?;
    source.consume(field.body() as usize);
    Ok(parsed)
}

/// A name; of a very long one nothing.
fn short_text(source: &mut Source, field: &Header) -> Result<String, Error> {
    let text = |bytes: &[u8]| Ok(Some(String::from_utf8_lossy(bytes).into_owned()));
    Ok(small(source, field, text)?.unwrap_or_default())
}

/// Field numbers of a module.
mod module {
    pub(super) const NAME: u32 = 1;
    pub(super) const COMPUTATIONS: u32 = 3;
    pub(super) const ID: u32 = 5;
    pub(super) const DEVICE_ASSIGNMENT: u32 = 15;
}

/// Field numbers of an instruction.
mod instruction {
    pub(super) const NAME: u32 = 1;
    pub(super) const OPCODE: u32 = 2;
    pub(super) const CHANNEL: u32 = 26;
    pub(super) const GROUPS: u32 = 49;
    pub(super) const GLOBAL_IDS: u32 = 71;
    pub(super) const DEVICE_LIST: u32 = 87;
    pub(super) const MESH_LIST: u32 = 93;
}

/// `bytes_value` of a stat.
const STAT_BYTES: u32 = 6;
/// `hlo_module` of an HloProto.
const MODULE: u32 = 1;
/// `instructions` of a computation.
const INSTRUCTIONS: u32 = 2;
/// Larger lists and names are ignored.
const SMALL_BYTES_MAX: u64 = 8 << 20;
/// Memory for the collectives of all programs; operations beyond it have unknown groups.
const PROGRAM_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xspace::device_groups::testing::{message, number, packed};

    fn assignment(devices: &[&[u64]]) -> Assignment {
        let bytes: Vec<u8> = devices.iter().flat_map(|of| message(3, &packed(1, of))).collect();
        Assignment::parse(&bytes).expect("a message").expect("an assignment")
    }

    #[test]
    fn numbers_in_a_group_count_what_the_operation_says() {
        // Two replicas of two partitions: replica 0 on devices 10 and 30, replica 1 on 20 and 40.
        let assigned = assignment(&[&[10, 20], &[30, 40]]);
        let check = |opcode: &str, (has_channel, global_ids): (bool, bool), groups: &[&[u64]], expected: &[&[u64]]| {
            let listed: Vec<Vec<u64>> = groups.iter().map(|group| group.to_vec()).collect();
            let groups = if listed.is_empty() { Groups::Unstated } else { Groups::Listed(listed) };
            let opcode = opcode.to_owned();
            let instruction = Instruction { opcode, has_channel, global_ids, groups, ..Instruction::default() };
            // No groups expected: they are not understood.
            let expected: Vec<Vec<u64>> = expected.iter().map(|group| group.to_vec()).collect();
            assert_eq!(instruction.devices(&assigned).unwrap_or_default(), expected, "{instruction:?}");
        };
        check("all-reduce", (false, false), &[&[0, 1]], &[&[10, 20], &[30, 40]]);
        check("all-reduce", (false, false), &[], &[&[10, 20], &[30, 40]]);
        check("all-reduce-start", (true, false), &[&[0], &[1]], &[&[10, 30], &[20, 40]]);
        check("all-gather", (true, false), &[], &[&[10, 20, 30, 40]]);
        check("reduce-scatter", (true, true), &[&[0, 1], &[2, 3]], &[&[10, 30], &[20, 40]]);
        check("all-reduce", (true, true), &[&[0, 2], &[1, 3]], &[&[10, 20], &[30, 40]]);
        check("all-reduce", (true, true), &[&[0, 1, 2, 3]], &[&[10, 30, 20, 40]]);
        check("all-to-all", (true, false), &[&[0, 1]], &[&[10, 30], &[20, 40]]);
        check("all-to-all", (false, false), &[&[0, 1]], &[&[10, 20], &[30, 40]]);
        check("all-reduce", (true, true), &[&[0, 9]], &[]);
        check("add", (true, true), &[&[0, 1, 2, 3]], &[]);
        let odd = Instruction { opcode: "all-reduce".into(), groups: Groups::Odd, ..Instruction::default() };
        assert_eq!(odd.devices(&assigned), None);
    }

    /// A module with these instructions, as in the metadata plane.
    fn read(assignment: &[&[u64]], instructions: &[Vec<u8>]) -> Programs {
        let listed: Vec<u8> = instructions.iter().flat_map(|instruction| message(INSTRUCTIONS, instruction)).collect();
        let assignment: Vec<u8> = assignment.iter().flat_map(|of| message(3, &packed(1, of))).collect();
        let fields = [
            message(module::NAME, b"jit_step"),
            message(module::COMPUTATIONS, &listed),
            message(module::DEVICE_ASSIGNMENT, &assignment),
        ];
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let stat = message(9, &message(STAT_BYTES, &message(MODULE, &fields.concat())));
        std::fs::write(file.path(), stat).expect("writable");
        let mut source = Source::open(file.path()).expect("a file");
        let stat = source.next_header(source.limit()).expect("a message").expect("a field");
        let mut programs = Programs::default();
        programs.read_stat(&mut source, &stat).expect("well formed");
        programs
    }

    #[test]
    fn lists_of_groups_are_held_once() {
        // A thousand sums over 4096 devices: 32 MB of numbers, were each held.
        let devices: Vec<Vec<u64>> = (0..4096).map(|device| vec![device]).collect();
        let devices: Vec<&[u64]> = devices.iter().map(Vec::as_slice).collect();
        let all_reduce = |place: usize| {
            let name = message(instruction::NAME, format!("all-reduce.{place}").as_bytes());
            [name, message(instruction::OPCODE, b"all-reduce"), number(instruction::CHANNEL, 1)].concat()
        };
        let programs = read(&devices, &(0..1000).map(all_reduce).collect::<Vec<_>>());
        assert!(programs.bytes < 300_000, "{} bytes", programs.bytes);
        let groups = |place: usize| match programs.replicas("jit_step", Some(0), &format!("all-reduce.{place}")) {
            Replicas::Groups(groups) => groups,
            other => panic!("{other:?}"),
        };
        assert_eq!((groups(0).len(), groups(0)[0].len()), (1, 4096));
        assert!(Arc::ptr_eq(&groups(0), &groups(999)));
    }

    #[test]
    fn a_program_without_its_devices_says_nothing_of_its_groups() {
        let all_reduce = [message(instruction::NAME, b"psum.7"), message(instruction::OPCODE, b"all-reduce")].concat();
        let whole = [all_reduce, number(instruction::CHANNEL, 1), number(instruction::GLOBAL_IDS, 1)].concat();
        let of = |assignment: &[&[u64]]| {
            read(assignment, std::slice::from_ref(&whole)).replicas("jit_step", Some(0), "psum.7")
        };
        assert_eq!(of(&[]), Replicas::Unknown);
        assert_eq!(of(&[&[4], &[6]]), Replicas::Groups(Arc::from([vec![4, 6]])));
        assert_eq!(of(&[&[4], &[4]]), Replicas::Unknown, "one device cannot run two partitions");
    }

    #[test]
    fn few_bytes_that_state_many_groups_are_not_held() {
        // Each instruction states 2^18 groups of one device in some twenty bytes: 8 MB of numbers.
        let iota = [number(1, 1 << 18), number(2, 1), packed(3, &[1 << 18])].concat();
        let all_reduce = |place: usize| {
            let name = message(instruction::NAME, format!("all-reduce.{place}").as_bytes());
            let list = message(instruction::DEVICE_LIST, &message(2, &iota));
            [name, message(instruction::OPCODE, b"all-reduce"), number(instruction::GLOBAL_IDS, 1), list].concat()
        };
        let programs = read(&[], &(0..40).map(all_reduce).collect::<Vec<_>>());
        // Of those that fit while they are read, the last is not one.
        assert!(programs.bytes <= PROGRAM_BYTES_MAX + (1 << 20), "{} bytes", programs.bytes);
        assert_eq!(programs.replicas("jit_step", Some(0), "all-reduce.39"), Replicas::Unknown);
    }

    #[test]
    fn uneven_assignments_say_nothing() {
        let parse = |devices: &[&[u64]]| {
            let bytes: Vec<u8> = devices.iter().flat_map(|of| message(3, &packed(1, of))).collect();
            Assignment::parse(&bytes).expect("a message")
        };
        assert_eq!(parse(&[&[0, 1], &[2]]), None);
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[&[0, 1], &[2, 0]]), None);
        assert_eq!(parse(&[&[7]]), Some(Assignment { devices: vec![vec![7]] }));
    }
}
