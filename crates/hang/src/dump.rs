//! Reads one rank's Flight Recorder dump, format 2.x, as a pickle or as JSON.
//!
//! Field names are those of `torch/csrc/distributed/c10d/FlightRecorder.hpp`. Fields that are not
//! needed are skipped, and fields that older or newer writers leave out are optional. Other crates
//! see the entries as [`Recorded`] operations.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::pickle::Pickle;

/// Contents of one rank's Flight Recorder.
#[derive(Clone, Debug, Default, Deserialize)]
#[non_exhaustive]
pub struct Dump {
    /// Format version, such as `2.9`.
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// Name of the host, if the writer states it.
    #[serde(default, alias = "hostname")]
    pub(crate) host_name: Option<String>,
    #[serde(default)]
    pub(crate) entries: Vec<Entry>,
    /// Groups of which this rank is a member, by name.
    #[serde(default)]
    pub(crate) pg_config: BTreeMap<String, Group>,
    /// Progress by the group's number within this process.
    #[serde(default)]
    pub(crate) pg_status: BTreeMap<String, Status>,
}

/// One operation in a dump.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Entry {
    /// Order of enqueues in this process.
    #[serde(default)]
    pub record_id: u64,
    /// The group's number within this process.
    #[serde(default)]
    pub pg_id: u64,
    /// Name and description of the group.
    pub process_group: (Text, Text),
    #[serde(default)]
    pub collective_seq_id: u64,
    #[serde(default)]
    pub p2p_seq_id: u64,
    #[serde(default)]
    pub profiling_name: String,
    /// CLOCK_REALTIME of the enqueue, ns.
    #[serde(default)]
    pub time_created_ns: Option<i64>,
    #[serde(default)]
    pub time_discovered_started_ns: Number,
    #[serde(default)]
    pub time_discovered_completed_ns: Number,
    /// Time on the device, if the job had NCCL measure it (`TORCH_NCCL_ENABLE_TIMING`).
    #[serde(default)]
    pub duration_ms: Number,
    #[serde(default)]
    pub input_sizes: Shape,
    #[serde(default)]
    pub input_dtypes: Option<Types>,
    #[serde(default)]
    pub state: Option<String>,
    /// True if the process group has seen the operation finish; gloo leaves `state` unchanged.
    #[serde(default)]
    pub retired: bool,
    #[serde(default)]
    pub is_p2p: bool,
    /// The innermost frame comes first.
    #[serde(default)]
    pub frames: Frames,
}

/// A process group as one rank knows it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Group {
    #[serde(default)]
    pub desc: Option<String>,
    #[serde(default)]
    pub ranks: Members,
}

/// Progress of a rank in a group; −1 if nothing happened yet.
#[derive(Copy, Clone, Debug, Deserialize)]
pub(crate) struct Status {
    #[serde(default)]
    pub last_enqueued_collective: Count,
    #[serde(default)]
    pub last_completed_collective: Count,
}

/// A sequence number, which some writers state as text; `None` if nothing happened yet.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(pub Option<u64>);

/// Text, which some writers state as a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text(pub String);

/// The ranks of a group, in the order of the group; a list, or a list in text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(pub Vec<u32>);

/// A number that is not needed to judge a job, so that anything else in its place is tolerated.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) enum Number {
    #[default]
    Absent,
    Whole(i64),
    Real(f64),
}

/// Dimensions of all tensors of an operation, if stated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape(pub Option<Vec<Vec<u64>>>);

/// The element types of the tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types(pub Vec<String>);

/// The innermost frame of the Python stack, as `function (file:line)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames(pub Option<String>);

/// One operation of a dump, in the words of the Flight Recorder.
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct Recorded<'a> {
    /// Name without the backend, such as `all_reduce` or `send 0->3`.
    pub name: &'a str,
    /// Backend, such as `nccl`; empty if not stated.
    pub backend: &'a str,
    /// Name of the process group.
    pub group: &'a str,
    /// Description of the process group, such as `TENSOR_MODEL_PARALLEL_GROUP`.
    pub description: &'a str,
    /// Global ranks in the order of the group; empty if the dump does not state them.
    pub members: &'a [u32],
    /// Number among the collectives of the group, or among the messages if it is one.
    pub sequence: u64,
    /// True for a message between two ranks.
    pub is_p2p: bool,
    /// CLOCK_REALTIME of the enqueue, ns.
    pub created_ns: Option<i64>,
    /// CLOCK_REALTIME at which the process noticed that the operation had begun, ns: not before it.
    pub discovered_started_ns: Option<i64>,
    /// CLOCK_REALTIME at which the process noticed that the operation was complete, ns: not before
    /// it.
    pub discovered_completed_ns: Option<i64>,
    /// Time on the device, ms, if the job measured it.
    pub duration_ms: Option<f64>,
    /// `scheduled`, `started` or `completed`; gloo leaves it `scheduled`.
    pub state: Option<&'a str>,
    /// True if the operation is known to be finished, whatever its `state`.
    pub is_finished: bool,
    /// Dimensions of the input tensors, if stated.
    pub input_sizes: Option<&'a [Vec<u64>]>,
    /// Element types of the input tensors.
    pub input_types: &'a [String],
    /// Innermost Python frame of the enqueue, as `function (file:line)`.
    pub frame: Option<&'a str>,
}

/// A dump that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The file is larger than any dump can be.
    #[error("the file has {bytes} bytes; such files have at most {most}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The file is neither a pickle nor JSON.
    #[error("the file is neither a pickle nor JSON")]
    Unknown,
    /// The file is truncated or malformed, or a pickle that is not plain data.
    #[error("byte {position}: {problem}")]
    Malformed {
        /// Byte offset in the file.
        position: u64,
        /// What is wrong.
        problem: String,
    },
    /// The file is well-formed, but not a dump of the Flight Recorder, format 2.
    #[error("{0}")]
    NotADump(String),
}

impl Dump {
    /// Reads a dump.
    ///
    /// # Errors
    /// Returns what is wrong with the file and at which byte.
    ///
    /// # Examples
    /// ```
    /// let text = br#"{"version": "2.10", "entries": [], "pg_config": {}}"#;
    /// assert!(probe_sync_hang::Dump::read(text).is_ok());
    /// assert!(probe_sync_hang::Dump::read(b"\x80\x02cos\nsystem\n.").is_err());
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, DumpError> {
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).ok_or(DumpError::Empty)?;
        if bytes.len() > MAX_BYTES {
            return Err(DumpError::TooLarge { bytes: bytes.len(), most: MAX_BYTES });
        }
        let dump = match first {
            b'{' => read_json(bytes)?,
            // A pickle of protocol 2 or later, or a dictionary of an earlier one.
            0x80 | b'(' => {
                let pickle = Pickle::read(bytes)
                    .map_err(|error| DumpError::Malformed { position: error.position as u64, problem: error.what })?;
                Self::deserialize(pickle.value()).map_err(|error| DumpError::NotADump(error.to_string()))?
            }
            _ => return Err(DumpError::Unknown),
        };
        dump.checked()
    }

    /// Returns the name of the rank's host, if the writer states it.
    pub fn host(&self) -> Option<&str> {
        self.host_name.as_deref()
    }

    /// Returns the number of ranks of the job, if the dump states the members of the default group.
    pub fn world_size(&self) -> Option<usize> {
        let is_default = |group: &&Group| group.desc.as_deref() == Some(DEFAULT_GROUP);
        self.pg_config.values().find(is_default).map(|group| group.ranks.0.len()).filter(|size| *size > 0)
    }

    /// Returns the operations in the order of their enqueues.
    pub fn operations(&self) -> impl Iterator<Item = Recorded<'_>> {
        self.entries.iter().map(|entry| {
            let (Text(group), Text(description)) = &entry.process_group;
            Recorded {
                name: entry.name(),
                backend: entry.profiling_name.split_once(':').map_or("", |(backend, _)| backend),
                group,
                description,
                members: if group.is_empty() { &[] } else { self.members(group) },
                sequence: entry.sequence(),
                is_p2p: entry.is_p2p,
                created_ns: entry.time_created_ns.filter(|time| *time > 0),
                discovered_started_ns: entry.time_discovered_started_ns.time(),
                discovered_completed_ns: entry.time_discovered_completed_ns.time(),
                duration_ms: entry.duration_ms.real(),
                state: entry.state.as_deref(),
                is_finished: entry.is_finished(),
                input_sizes: entry.input_sizes.0.as_deref(),
                input_types: entry.input_dtypes.as_ref().map(|types| types.0.as_slice()).unwrap_or_default(),
                frame: entry.frames.0.as_deref(),
            }
        })
    }

    /// Refuses the dump as that of a rank that is not a member of its groups.
    ///
    /// # Errors
    /// [`DumpError::NotADump`] naming a group.
    pub fn refuse_other_rank(&self, rank: u32) -> Result<(), DumpError> {
        match self.stated_groups().find(|(_, group)| !group.ranks.0.contains(&rank)) {
            None => Ok(()),
            Some((name, _)) => Err(DumpError::NotADump(format!(
                "rank {rank} is not a member of its own group {name}; does the file's name end with the rank?"
            ))),
        }
    }

    /// Returns the groups whose members the dump states. Gloo states one group, without a name, and
    /// its ranks as the group numbers them.
    pub(crate) fn stated_groups(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.pg_config.iter().filter(|(name, group)| !name.is_empty() && !group.ranks.0.is_empty())
    }

    /// Returns the members of a group; empty if the dump does not state them.
    pub(crate) fn members(&self, group: &str) -> &[u32] {
        self.pg_config.get(group).map(|group| group.ranks.0.as_slice()).unwrap_or_default()
    }

    fn checked(mut self) -> Result<Self, DumpError> {
        let Some(version) = &self.version else {
            return Err(DumpError::NotADump("it has no version; is it a Flight Recorder dump?".to_owned()));
        };
        if !version.starts_with("2.") {
            return Err(DumpError::NotADump(format!("format {version} is not supported; only 2.x is")));
        }
        self.entries.sort_by_key(|entry| entry.record_id);
        Ok(self)
    }
}

impl Entry {
    /// Returns the operation's name without the backend.
    pub fn name(&self) -> &str {
        self.profiling_name.split_once(':').map_or(self.profiling_name.as_str(), |(_, name)| name)
    }

    /// Returns its number among the collectives of the group, or among the messages if it is one.
    pub fn sequence(&self) -> u64 {
        if self.is_p2p { self.p2p_seq_id } else { self.collective_seq_id }
    }

    /// Returns true if the dump shows that the operation succeeded; gloo's do not tell.
    pub fn has_succeeded(&self) -> bool {
        self.state.as_deref() == Some("completed") || self.time_discovered_completed_ns.time().is_some()
    }

    /// Returns true if the process has seen the operation finish.
    pub fn is_finished(&self) -> bool {
        self.retired || self.state.as_deref() == Some("completed")
    }
}

impl Number {
    /// Returns a time, which writers state as 0 if they do not know it.
    fn time(self) -> Option<i64> {
        if let Self::Whole(time) = self { Some(time).filter(|time| *time > 0) } else { None }
    }

    fn real(self) -> Option<f64> {
        match self {
            Self::Absent => None,
            Self::Whole(value) => Some(value as f64),
            Self::Real(value) => Some(value),
        }
    }
}

impl Shape {
    /// Returns the number of elements of all tensors.
    pub fn elements(&self) -> Option<u64> {
        let of_tensor =
            |dimensions: &Vec<u64>| dimensions.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
        self.0.as_ref().map(|tensors| tensors.iter().map(of_tensor).fold(0, u64::saturating_add))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Number(i64),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Text(text) => Self(text),
            Either::Number(number) => Self(number.to_string()),
        })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let number: i64 = text.trim().parse().map_err(serde::de::Error::custom)?;
        Ok(Self(u64::try_from(number).ok()))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            List(Vec<u32>),
        }
        match Either::deserialize(deserializer)? {
            Either::List(list) => Ok(Self(list)),
            Either::Text(text) => {
                let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
                let numbers = inner.split(',').map(str::trim).filter(|number| !number.is_empty());
                numbers.map(str::parse).collect::<Result<_, _>>().map(Self).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Number;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a number")
            }

            fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
                Ok(Number::Whole(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
                Ok(i64::try_from(value).map_or(Number::Absent, Number::Whole))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
                Ok(Number::Real(value))
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number::Absent)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Number, E> {
                Ok(Number::Absent)
            }

            fn visit_str<E>(self, _: &str) -> Result<Number, E> {
                Ok(Number::Absent)
            }

            fn visit_bytes<E>(self, _: &[u8]) -> Result<Number, E> {
                Ok(Number::Absent)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Number, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Number::Absent)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Number, A::Error> {
                while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Number::Absent)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor).map(Self)
    }
}

/// Reads a list of tensors' dimensions.
struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Option<Vec<Vec<u64>>>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of lists of dimensions")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tensors: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(dimensions) = tensors.next_element()? {
            all.push(dimensions);
        }
        Ok(Some(all))
    }
}

impl<'de> Deserialize<'de> for Types {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<String>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a list of element types")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(vec![text.to_owned()])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut types: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(element) = types.next_element::<serde_json::Value>()? {
                    all.push(element.as_str().unwrap_or_default().to_owned());
                }
                Ok(all)
            }
        }
        deserializer.deserialize_any(All).map(Self)
    }
}

impl<'de> Deserialize<'de> for Frames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Innermost;
        impl<'de> Visitor<'de> for Innermost {
            type Value = Option<String>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a list of frames")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut frames: A) -> Result<Self::Value, A::Error> {
                let first = frames.next_element::<Frame>()?;
                while frames.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first.map(|frame| format!("{} ({}:{})", frame.name, frame.filename, frame.line)))
            }
        }
        deserializer.deserialize_any(Innermost).map(Self)
    }
}

/// Returns the rank of a dump: the last number of its file's name, before `.json`, `.pickle` or
/// `.pkl`.
///
/// # Examples
/// ```
/// use probe_sync_hang::rank_in_name;
///
/// assert_eq!(rank_in_name("nccl_trace_rank_12"), Some(12));
/// assert_eq!(rank_in_name("rank3.json"), Some(3));
/// assert_eq!(rank_in_name("trace.json"), None);
/// ```
pub fn rank_in_name(name: &str) -> Option<u32> {
    let stem = [".json", ".pickle", ".pkl"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let digits = stem.len() - stem.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    stem[stem.len() - digits..].parse().ok()
}

/// Reads JSON; says where it is malformed in bytes, as for pickles.
pub(crate) fn read_json<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, DumpError> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => DumpError::NotADump(error.to_string()),
        _ => malformed_json(bytes, &error),
    })
}

fn malformed_json(bytes: &[u8], error: &serde_json::Error) -> DumpError {
    let before = bytes.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
    let position = before.map(<[u8]>::len).sum::<usize>() + error.column();
    let text = error.to_string();
    let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem).to_owned();
    DumpError::Malformed { position: position as u64, problem }
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    name: String,
    #[serde(default)]
    filename: String,
    #[serde(default)]
    line: i64,
}

/// Description of the group of all ranks.
pub(crate) const DEFAULT_GROUP: &str = "default_pg";

/// Size of the largest file that is read as a dump. A ring of 2000 operations takes about 1 MB,
/// with long stacks 10 MB.
pub const MAX_BYTES: usize = 512 << 20;
