//! The tables and tags of schema 3 and 3.0.0, as data.
//!
//! The writer and merges create these tables. AMD's reader of 2026 compares columns (name, type,
//! NOT NULL, default, key), foreign keys in their order, implicit indexes and the text of CHECKs.
//! `fixtures/schema_3.txt` holds these facts from a database that rocprofv3 wrote, and a test
//! compares them. Schemas after 3.0.0 (3.0.1 to 3.0.5, 4.x) are not included; rewriting a database
//! keeps its existing definitions.

use super::union::quoted;

/// Names of the tables of schemas 3 and 3.0.0 without suffix, in the order of creation: a table
/// comes after those it refers to.
pub const BASE_TABLES: [&str; TABLES.len()] = {
    let mut names = [""; TABLES.len()];
    let mut at = 0;
    while at < TABLES.len() {
        names[at] = TABLES[at].base;
        at += 1;
    }
    names
};

/// The versions whose tables are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// "3", of ROCm 7.0.
    Three,
    /// "3.0.0": the same tables, with the tags that AMD's readers of 2026 require.
    ThreeZeroZero,
}

impl Version {
    /// The value of the tag `schema_version`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Three => "3",
            Self::ThreeZeroZero => "3.0.0",
        }
    }
}

/// A table to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDefinition {
    /// Name without suffix, one of [`BASE_TABLES`].
    pub base: &'static str,
    /// Name in the database.
    pub name: String,
    /// `CREATE TABLE …`, without a semicolon.
    pub sql: String,
}

/// Returns the suffix of the tables of a process: an underscore and its guid with underscores.
pub fn suffix_of(guid: &str) -> String {
    format!("_{}", guid.replace('-', "_"))
}

/// Returns the tables of one process, in the order of creation.
pub fn tables(suffix: &str, guid: &str) -> Vec<TableDefinition> {
    TABLES.iter().map(|table| table.definition(suffix, guid)).collect()
}

/// Returns tags and values of `rocpd_metadata`, in rocprofv3's order.
///
/// `created` is the UTC time as `YYYY-MM-DD HH:MM:SS`; schema 3 does not store it.
pub fn tags(version: Version, suffix: &str, guid: &str, created: &str) -> Vec<(&'static str, String)> {
    let own = [("uuid", suffix.to_owned()), ("guid", guid.to_owned())];
    let mut tags = vec![("schema_version", version.text().to_owned())];
    if version == Version::ThreeZeroZero {
        let parts = ["schema_version_major", "schema_version_minor", "schema_version_patch"];
        tags.extend(parts.into_iter().zip(version.text().split('.').map(str::to_owned)));
        tags.push(("schema_creation_time", created.to_owned()));
    }
    tags.extend(own);
    tags
}

struct Table {
    base: &'static str,
    /// Names and definitions of the columns after `id` and `guid`.
    columns: &'static [(&'static str, &'static str)],
    /// Columns and the tables whose `id` they hold, in rocprofv3's order.
    references: &'static [(&'static str, &'static str)],
}

impl Table {
    fn definition(&self, suffix: &str, guid: &str) -> TableDefinition {
        let mut parts = vec![r#""id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"#.to_owned()];
        if self.base != METADATA {
            // In double quotes, as rocprofv3 has it: readers compare the default's text.
            parts.push(format!(r#""guid" TEXT DEFAULT {} NOT NULL"#, quoted(guid)));
        }
        parts.extend(self.columns.iter().map(|(name, kind)| format!("{} {kind}", quoted(name))));
        parts.extend(self.references.iter().map(|(column, table)| {
            let table = quoted(&format!("{table}{suffix}"));
            format!(r#"FOREIGN KEY ({}) REFERENCES {table} ("id") ON UPDATE CASCADE"#, quoted(column))
        }));
        let name = format!("{}{suffix}", self.base);
        let sql = format!("CREATE TABLE {} (\n    {}\n)", quoted(&name), parts.join(",\n    "));
        TableDefinition { base: self.base, name, sql }
    }
}

const METADATA: &str = "rocpd_metadata";

const WHOLE: &str = "INTEGER";
const WHOLE_GIVEN: &str = "INTEGER NOT NULL";
const WIDE: &str = "BIGINT";
const WIDE_GIVEN: &str = "BIGINT NOT NULL";
const TEXT: &str = "TEXT";
const TEXT_GIVEN: &str = "TEXT NOT NULL";
const JSON: &str = r#"JSONB DEFAULT "{}" NOT NULL"#;

const TABLES: [Table; 20] = [
    Table { base: "rocpd_metadata", columns: &[("tag", TEXT_GIVEN), ("value", TEXT_GIVEN)], references: &[] },
    Table { base: "rocpd_string", columns: &[("string", "TEXT NOT NULL UNIQUE ON CONFLICT ABORT")], references: &[] },
    Table {
        base: "rocpd_info_node",
        columns: &[
            ("hash", "BIGINT NOT NULL UNIQUE"),
            ("machine_id", "TEXT NOT NULL UNIQUE"),
            ("system_name", TEXT),
            ("hostname", TEXT),
            ("release", TEXT),
            ("version", TEXT),
            ("hardware_name", TEXT),
            ("domain_name", TEXT),
        ],
        references: &[],
    },
    Table {
        base: "rocpd_info_process",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("ppid", WHOLE),
            ("pid", WHOLE_GIVEN),
            ("init", WIDE),
            ("fini", WIDE),
            ("start", WIDE),
            ("end", WIDE),
            ("command", TEXT),
            ("environment", JSON),
            ("extdata", JSON),
        ],
        references: &[("nid", "rocpd_info_node")],
    },
    Table {
        base: "rocpd_info_thread",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("ppid", WHOLE),
            ("pid", WHOLE_GIVEN),
            ("tid", WHOLE_GIVEN),
            ("name", TEXT),
            ("start", WIDE),
            ("end", WIDE),
            ("extdata", JSON),
        ],
        references: &[("nid", "rocpd_info_node"), ("pid", "rocpd_info_process")],
    },
    Table {
        base: "rocpd_info_agent",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("type", r#"TEXT CHECK ("type" IN ('CPU', 'GPU'))"#),
            ("absolute_index", WHOLE),
            ("logical_index", WHOLE),
            ("type_index", WHOLE),
            ("uuid", WHOLE),
            ("name", TEXT),
            ("model_name", TEXT),
            ("vendor_name", TEXT),
            ("product_name", TEXT),
            ("user_name", TEXT),
            ("extdata", JSON),
        ],
        references: &[("nid", "rocpd_info_node"), ("pid", "rocpd_info_process")],
    },
    Table {
        base: "rocpd_info_queue",
        columns: &[("nid", WHOLE_GIVEN), ("pid", WHOLE_GIVEN), ("name", TEXT), ("extdata", JSON)],
        references: &[("nid", "rocpd_info_node"), ("pid", "rocpd_info_process")],
    },
    Table {
        base: "rocpd_info_stream",
        columns: &[("nid", WHOLE_GIVEN), ("pid", WHOLE_GIVEN), ("name", TEXT), ("extdata", JSON)],
        references: &[("nid", "rocpd_info_node"), ("pid", "rocpd_info_process")],
    },
    Table {
        base: "rocpd_info_pmc",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("agent_id", WHOLE),
            ("target_arch", r#"TEXT CHECK ("target_arch" IN ('CPU', 'GPU'))"#),
            ("event_code", "INT"),
            ("instance_id", WHOLE),
            ("name", TEXT_GIVEN),
            ("symbol", TEXT_GIVEN),
            ("description", TEXT),
            ("long_description", r#"TEXT DEFAULT """#),
            ("component", TEXT),
            ("units", r#"TEXT DEFAULT """#),
            ("value_type", r#"TEXT CHECK ("value_type" IN ('ABS', 'ACCUM', 'RELATIVE'))"#),
            ("block", TEXT),
            ("expression", TEXT),
            ("is_constant", WHOLE),
            ("is_derived", WHOLE),
            ("extdata", JSON),
        ],
        references: &[("nid", "rocpd_info_node"), ("pid", "rocpd_info_process"), ("agent_id", "rocpd_info_agent")],
    },
    Table {
        base: "rocpd_info_code_object",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("agent_id", WHOLE),
            ("uri", TEXT),
            ("load_base", WIDE),
            ("load_size", WIDE),
            ("load_delta", WIDE),
            ("storage_type", r#"TEXT CHECK ("storage_type" IN ('FILE', 'MEMORY'))"#),
            ("extdata", JSON),
        ],
        references: &[("nid", "rocpd_info_node"), ("pid", "rocpd_info_process"), ("agent_id", "rocpd_info_agent")],
    },
    Table {
        base: "rocpd_info_kernel_symbol",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("code_object_id", WHOLE_GIVEN),
            ("kernel_name", TEXT),
            ("display_name", TEXT),
            ("kernel_object", WHOLE),
            ("kernarg_segment_size", WHOLE),
            ("kernarg_segment_alignment", WHOLE),
            ("group_segment_size", WHOLE),
            ("private_segment_size", WHOLE),
            ("sgpr_count", WHOLE),
            ("arch_vgpr_count", WHOLE),
            ("accum_vgpr_count", WHOLE),
            ("extdata", JSON),
        ],
        references: &[
            ("nid", "rocpd_info_node"),
            ("pid", "rocpd_info_process"),
            ("code_object_id", "rocpd_info_code_object"),
        ],
    },
    Table {
        base: "rocpd_track",
        columns: &[("nid", WHOLE_GIVEN), ("pid", WHOLE), ("tid", WHOLE), ("name_id", WHOLE), ("extdata", JSON)],
        references: &[
            ("nid", "rocpd_info_node"),
            ("pid", "rocpd_info_process"),
            ("tid", "rocpd_info_thread"),
            ("name_id", "rocpd_string"),
        ],
    },
    Table {
        base: "rocpd_event",
        columns: &[
            ("category_id", WHOLE),
            ("stack_id", WHOLE),
            ("parent_stack_id", WHOLE),
            ("correlation_id", WHOLE),
            ("call_stack", JSON),
            ("line_info", JSON),
            ("extdata", JSON),
        ],
        references: &[("category_id", "rocpd_string")],
    },
    Table {
        base: "rocpd_arg",
        columns: &[
            ("event_id", WHOLE_GIVEN),
            ("position", WHOLE_GIVEN),
            ("type", TEXT_GIVEN),
            ("name", TEXT_GIVEN),
            ("value", TEXT),
            ("extdata", JSON),
        ],
        references: &[("event_id", "rocpd_event")],
    },
    Table {
        base: "rocpd_pmc_event",
        columns: &[
            ("event_id", WHOLE),
            ("pmc_id", WHOLE_GIVEN),
            ("value", "REAL DEFAULT 0.0"),
            ("extdata", r#"JSONB DEFAULT "{}""#),
        ],
        references: &[("pmc_id", "rocpd_info_pmc"), ("event_id", "rocpd_event")],
    },
    Table {
        base: "rocpd_region",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("tid", WHOLE_GIVEN),
            ("start", WIDE_GIVEN),
            ("end", WIDE_GIVEN),
            ("name_id", WHOLE_GIVEN),
            ("event_id", WHOLE),
            ("extdata", JSON),
        ],
        references: &[
            ("nid", "rocpd_info_node"),
            ("pid", "rocpd_info_process"),
            ("tid", "rocpd_info_thread"),
            ("name_id", "rocpd_string"),
            ("event_id", "rocpd_event"),
        ],
    },
    Table {
        base: "rocpd_sample",
        columns: &[("track_id", WHOLE_GIVEN), ("timestamp", WIDE_GIVEN), ("event_id", WHOLE), ("extdata", JSON)],
        references: &[("track_id", "rocpd_track"), ("event_id", "rocpd_event")],
    },
    Table {
        base: "rocpd_kernel_dispatch",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("tid", WHOLE),
            ("agent_id", WHOLE_GIVEN),
            ("kernel_id", WHOLE_GIVEN),
            ("dispatch_id", WHOLE_GIVEN),
            ("queue_id", WHOLE_GIVEN),
            ("stream_id", WHOLE_GIVEN),
            ("start", WIDE_GIVEN),
            ("end", WIDE_GIVEN),
            ("private_segment_size", WHOLE),
            ("group_segment_size", WHOLE),
            ("workgroup_size_x", WHOLE_GIVEN),
            ("workgroup_size_y", WHOLE_GIVEN),
            ("workgroup_size_z", WHOLE_GIVEN),
            ("grid_size_x", WHOLE_GIVEN),
            ("grid_size_y", WHOLE_GIVEN),
            ("grid_size_z", WHOLE_GIVEN),
            ("region_name_id", WHOLE),
            ("event_id", WHOLE),
            ("extdata", JSON),
        ],
        references: &[
            ("nid", "rocpd_info_node"),
            ("pid", "rocpd_info_process"),
            ("tid", "rocpd_info_thread"),
            ("agent_id", "rocpd_info_agent"),
            ("kernel_id", "rocpd_info_kernel_symbol"),
            ("queue_id", "rocpd_info_queue"),
            ("stream_id", "rocpd_info_stream"),
            ("region_name_id", "rocpd_string"),
            ("event_id", "rocpd_event"),
        ],
    },
    Table {
        base: "rocpd_memory_copy",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("tid", WHOLE),
            ("start", WIDE_GIVEN),
            ("end", WIDE_GIVEN),
            ("name_id", WHOLE_GIVEN),
            ("dst_agent_id", WHOLE),
            ("dst_address", WHOLE),
            ("src_agent_id", WHOLE),
            ("src_address", WHOLE),
            ("size", WHOLE_GIVEN),
            ("queue_id", WHOLE),
            ("stream_id", WHOLE),
            ("region_name_id", WHOLE),
            ("event_id", WHOLE),
            ("extdata", JSON),
        ],
        references: &[
            ("nid", "rocpd_info_node"),
            ("pid", "rocpd_info_process"),
            ("tid", "rocpd_info_thread"),
            ("name_id", "rocpd_string"),
            ("dst_agent_id", "rocpd_info_agent"),
            ("src_agent_id", "rocpd_info_agent"),
            ("stream_id", "rocpd_info_stream"),
            ("queue_id", "rocpd_info_queue"),
            ("region_name_id", "rocpd_string"),
            ("event_id", "rocpd_event"),
        ],
    },
    Table {
        base: "rocpd_memory_allocate",
        columns: &[
            ("nid", WHOLE_GIVEN),
            ("pid", WHOLE_GIVEN),
            ("tid", WHOLE),
            ("agent_id", WHOLE),
            ("type", r#"TEXT CHECK ("type" IN ('ALLOC', 'FREE', 'REALLOC', 'RECLAIM'))"#),
            ("level", r#"TEXT CHECK ("level" IN ('REAL', 'VIRTUAL', 'SCRATCH'))"#),
            ("start", WIDE_GIVEN),
            ("end", WIDE_GIVEN),
            ("address", WHOLE),
            ("size", WHOLE_GIVEN),
            ("queue_id", WHOLE),
            ("stream_id", WHOLE),
            ("event_id", WHOLE),
            ("extdata", JSON),
        ],
        references: &[
            ("nid", "rocpd_info_node"),
            ("pid", "rocpd_info_process"),
            ("tid", "rocpd_info_thread"),
            ("agent_id", "rocpd_info_agent"),
            ("stream_id", "rocpd_info_stream"),
            ("queue_id", "rocpd_info_queue"),
            ("event_id", "rocpd_event"),
        ],
    },
];
