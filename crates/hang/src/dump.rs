//! Reads one rank's Flight Recorder dump, format 2.x, as a pickle or as JSON.
//!
//! Field names are those of `torch/csrc/distributed/c10d/FlightRecorder.hpp`. Fields that are not
//! needed are skipped, and fields that older or newer writers leave out are optional.

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

/// Number of elements of all tensors of an operation, if stated.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape(pub Option<u64>);

/// The element type of the first tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types(pub Option<String>);

/// The innermost frame of the Python stack, as `function (file:line)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames(pub Option<String>);

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
    #[error("{0}")]
    Malformed(String),
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
            b'{' => serde_json::from_slice(bytes).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => DumpError::NotADump(error.to_string()),
                _ => DumpError::Malformed(error.to_string()),
            })?,
            // A pickle of protocol 2 or later, or a dictionary of an earlier one.
            0x80 | b'(' => {
                let pickle = Pickle::read(bytes).map_err(|error| DumpError::Malformed(error.to_string()))?;
                Self::deserialize(pickle.value()).map_err(|error| DumpError::NotADump(error.to_string()))?
            }
            _ => return Err(DumpError::Unknown),
        };
        dump.checked()
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

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor).map(Self)
    }
}

/// Reads a list of tensors' dimensions into a number of elements.
struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Option<u64>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of lists of dimensions")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tensors: A) -> Result<Self::Value, A::Error> {
        let mut sum = 0_u64;
        while let Some(dimensions) = tensors.next_element::<Vec<u64>>()? {
            let elements = dimensions.iter().fold(1_u64, |product, dimension| product.saturating_mul(*dimension));
            sum = sum.saturating_add(elements);
        }
        Ok(Some(sum))
    }
}

impl<'de> Deserialize<'de> for Types {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First;
        impl<'de> Visitor<'de> for First {
            type Value = Option<String>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a list of element types")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Some(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut types: A) -> Result<Self::Value, A::Error> {
                let first = types.next_element::<String>()?;
                while types.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first)
            }
        }
        deserializer.deserialize_any(First).map(Self)
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

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    name: String,
    #[serde(default)]
    filename: String,
    #[serde(default)]
    line: i64,
}

/// A ring of 2000 operations takes about 1 MB, with long stacks 10 MB.
const MAX_BYTES: usize = 512 << 20;
