//! The list of CSV files, and the sources of their columns.
//!
//! Names, columns and their order are those of rocprofv3's own writer, according to its sources.
//!
//! Agents are described as far as `rocpd_info_agent` does: most of it is JSON in its column
//! `extdata`, which may be empty.

use std::io::Write;

use probe_sync_formats::AgentIndex;

use self::Origin::{Agent, Allocator, Bits, Either, Is, Number, Property, Text};

/// Settings of the CSV files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CsvSettings {
    /// How devices are numbered.
    pub agent_index: AgentIndex,
    /// Omit the columns that rocprofv3 does not have: `Host` and `Rank`.
    pub plain_columns: bool,
    /// Write texts that a spreadsheet would run as formulas as they are, without an apostrophe.
    pub raw_cells: bool,
}

/// A kind of event.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// A view of the profiler's.
    pub(super) view: &'static str,
    /// Condition on its rows; may be empty.
    condition: &'static str,
    /// Name of each column, and its origin.
    pub(super) columns: &'static [(&'static str, Origin)],
}

/// The origin of a cell, in SQL.
pub(super) enum Origin {
    /// A constant text.
    Is(&'static str),
    /// A text.
    Text(&'static str),
    /// A number; 0 if it is not set.
    Number(&'static str),
    /// A device, by the common prefix of the names of three columns.
    Agent(&'static str),
    /// A property of an agent, a number in its JSON description, by its path; 0 if it is missing.
    Property(&'static str),
    /// A property that is several numbers there: the path of each, and its first bit.
    Bits(&'static [(&'static str, u32)]),
    /// A property that a column also has, for JSON that lacks it: its path, and the column.
    Either(&'static str, &'static str),
    /// The device of an allocation; freed memory belongs to no device.
    Allocator,
}

impl Table {
    pub(super) fn statement(&self, settings: &CsvSettings) -> String {
        let cells = self.columns.iter().map(|(_, from)| match from {
            Is(text) => format!("'{text}'"),
            Text(sql) => format!("coalesce({sql}, '')"),
            Number(sql) => format!("coalesce({sql}, 0)"),
            Agent(of) => agent(of, settings.agent_index),
            Property(path) => format!("coalesce({}, 0)", property(path)),
            Bits(parts) => {
                let parts = parts.iter().map(|(path, bit)| format!("(coalesce({}, 0) << {bit})", property(path)));
                parts.collect::<Vec<_>>().join(" | ")
            }
            Either(path, column) => format!("coalesce({}, {column}, '')", property(path)),
            Allocator => format!("CASE type WHEN 'FREE' THEN '' ELSE {} END", agent("", settings.agent_index)),
        });
        let cells: Vec<String> = cells.collect();
        let Self { view, condition, .. } = self;
        // Times as they stand have the order of mapped ones.
        format!(
            "SELECT {}, id FROM {view} {condition} ORDER BY {}",
            cells.join(", "),
            if *view == AGENTS { "absolute_index, id" } else { "start, \"end\" DESC, id" }
        )
    }

    /// The line of names.
    pub(super) fn put_head(&self, settings: &CsvSettings, out: &mut impl Write) -> std::io::Result<()> {
        let added: &[&str] = if settings.plain_columns { &[] } else { &["Host", "Rank"] };
        let names = self.columns.iter().map(|(name, _)| name).chain(added);
        let head: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
        writeln!(out, "{}", head.join(","))
    }
}

/// A property of an agent, in SQL; numbers that do not fit signed 64 bits as text.
fn property(path: &str) -> String {
    format!(
        "CASE WHEN NOT json_valid(extdata) THEN NULL WHEN json_type(extdata, '$.{path}') IS 'integer' \
         AND typeof(extdata ->> '$.{path}') IS 'real' THEN extdata -> '$.{path}' ELSE extdata ->> '$.{path}' END"
    )
}

/// The name of a device, in SQL.
fn agent(of: &str, index: AgentIndex) -> String {
    let (name, number) = match index {
        AgentIndex::Absolute => ("'Agent'", "abs"),
        AgentIndex::Relative => ("'Agent'", "log"),
        AgentIndex::TypeRelative => (&*format!("coalesce({of}agent_type, '')"), "type"),
    };
    format!("{name} || ' ' || coalesce({of}agent_{number}_index, 0)")
}

/// Columns of a call of an interface.
const CALL: &[(&str, Origin)] = &[
    ("Guid", Text("guid")),
    ("Domain", Text("category")),
    ("Function", Text("name")),
    ("Process_Id", Number("pid")),
    ("Thread_Id", Number("tid")),
    ("Correlation_Id", Number("stack_id")),
    ("Start_Timestamp", Number("start")),
    ("End_Timestamp", Number("\"end\"")),
];

/// The name of a marker is its text.
const MARKER: &[(&str, Origin)] = &[
    ("Guid", Text("guid")),
    ("Domain", Text("category")),
    ("Function", Text(MESSAGE)),
    ("Process_Id", Number("pid")),
    ("Thread_Id", Number("tid")),
    ("Correlation_Id", Number("stack_id")),
    ("Start_Timestamp", Number("start")),
    ("End_Timestamp", Number("\"end\"")),
];
const MESSAGE: &str =
    "CASE WHEN json_valid(extdata) THEN coalesce(nullif(extdata ->> '$.message', ''), name) ELSE name END";

const fn calls(name: &'static str, condition: &'static str) -> Table {
    Table { name, view: "regions", condition, columns: CALL }
}

/// The table of agents, which is no view.
pub(super) const AGENTS: &str = "rocpd_info_agent";

/// `HSA_CAPABILITY` of hsakmttypes.h; the JSON has no field for bits 30 and 31.
const CAPABILITY: &[(&str, u32)] = &[
    ("capability.HotPluggable", 0),
    ("capability.HSAMMUPresent", 1),
    ("capability.SharedWithGraphics", 2),
    ("capability.QueueSizePowerOfTwo", 3),
    ("capability.QueueSize32bit", 4),
    ("capability.QueueIdleEvent", 5),
    ("capability.VALimit", 6),
    ("capability.WatchPointsSupported", 7),
    ("capability.WatchPointsTotalBits", 8),
    ("capability.DoorbellType", 12),
    ("capability.AQLQueueDoubleMap", 14),
    ("capability.DebugTrapSupported", 15),
    ("capability.WaveLaunchTrapOverrideSupported", 16),
    ("capability.WaveLaunchModeSupported", 17),
    ("capability.PreciseMemoryOperationsSupported", 18),
    ("capability.DEPRECATED_SRAM_EDCSupport", 19),
    ("capability.Mem_EDCSupport", 20),
    ("capability.RASEventNotify", 21),
    ("capability.ASICRevision", 22),
    ("capability.SRAM_EDCSupport", 26),
    ("capability.SVMAPISupported", 27),
    ("capability.CoherentHostAccess", 28),
    ("capability.DebugSupportedFirmware", 29),
];
/// `HSA_ENGINE_ID`.
const ENGINE_VERSION: &[(&str, u32)] =
    &[("fw_version.uCode", 0), ("fw_version.Major", 10), ("fw_version.Minor", 16), ("fw_version.Stepping", 24)];
/// `HSA_ENGINE_VERSION`.
const SDMA_VERSION: &[(&str, u32)] = &[("sdma_fw_version.uCodeSDMA", 0), ("sdma_fw_version.uCodeRes", 10)];

pub(super) const TABLES: &[Table] = &[
    Table {
        name: "agent_info",
        view: AGENTS,
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Node_Id", Either("node_id", "absolute_index")),
            ("Logical_Node_Id", Either("logical_node_id", "logical_index")),
            ("Agent_Type", Text("type")),
            ("Cpu_Cores_Count", Property("cpu_cores_count")),
            ("Simd_Count", Property("simd_count")),
            ("Cpu_Core_Id_Base", Property("cpu_core_id_base")),
            ("Simd_Id_Base", Property("simd_id_base")),
            ("Max_Waves_Per_Simd", Property("max_waves_per_simd")),
            ("Lds_Size_In_Kb", Property("lds_size_in_kb")),
            ("Gds_Size_In_Kb", Property("gds_size_in_kb")),
            ("Num_Gws", Property("num_gws")),
            ("Wave_Front_Size", Property("wave_front_size")),
            ("Num_Xcc", Property("num_xcc")),
            ("Cu_Count", Property("cu_count")),
            ("Array_Count", Property("array_count")),
            ("Num_Shader_Banks", Property("num_shader_banks")),
            ("Simd_Arrays_Per_Engine", Property("simd_arrays_per_engine")),
            ("Cu_Per_Simd_Array", Property("cu_per_simd_array")),
            ("Simd_Per_Cu", Property("simd_per_cu")),
            ("Max_Slots_Scratch_Cu", Property("max_slots_scratch_cu")),
            ("Gfx_Target_Version", Property("gfx_target_version")),
            ("Vendor_Id", Property("vendor_id")),
            ("Device_Id", Property("device_id")),
            ("Location_Id", Property("location_id")),
            ("Domain", Property("domain")),
            ("Drm_Render_Minor", Property("drm_render_minor")),
            ("Num_Sdma_Engines", Property("num_sdma_engines")),
            ("Num_Sdma_Xgmi_Engines", Property("num_sdma_xgmi_engines")),
            ("Num_Sdma_Queues_Per_Engine", Property("num_sdma_queues_per_engine")),
            ("Num_Cp_Queues", Property("num_cp_queues")),
            ("Max_Engine_Clk_Ccompute", Property("max_engine_clk_ccompute")),
            ("Max_Engine_Clk_Fcompute", Property("max_engine_clk_fcompute")),
            ("Sdma_Fw_Version", Bits(SDMA_VERSION)),
            ("Fw_Version", Bits(ENGINE_VERSION)),
            ("Capability", Bits(CAPABILITY)),
            ("Cu_Per_Engine", Property("cu_per_engine")),
            ("Max_Waves_Per_Cu", Property("max_waves_per_cu")),
            ("Family_Id", Property("family_id")),
            ("Workgroup_Max_Size", Property("workgroup_max_size")),
            ("Grid_Max_Size", Property("grid_max_size")),
            ("Local_Mem_Size", Property("local_mem_size")),
            ("Hive_Id", Property("hive_id")),
            ("Gpu_Id", Property("gpu_id")),
            ("Workgroup_Max_Dim_X", Property("workgroup_max_dim.x")),
            ("Workgroup_Max_Dim_Y", Property("workgroup_max_dim.y")),
            ("Workgroup_Max_Dim_Z", Property("workgroup_max_dim.z")),
            ("Grid_Max_Dim_X", Property("grid_max_dim.x")),
            ("Grid_Max_Dim_Y", Property("grid_max_dim.y")),
            ("Grid_Max_Dim_Z", Property("grid_max_dim.z")),
            ("Name", Either("name", "name")),
            ("Vendor_Name", Either("vendor_name", "vendor_name")),
            ("Product_Name", Either("product_name", "product_name")),
            ("Model_Name", Either("model_name", "model_name")),
        ],
    },
    Table {
        name: "kernel_trace",
        view: "kernels",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Kind", Is("KERNEL_DISPATCH")),
            ("Agent_Id", Agent("")),
            ("Queue_Id", Number("queue_id")),
            ("Stream_Id", Number("stream_id")),
            ("Thread_Id", Number("tid")),
            ("Dispatch_Id", Number("dispatch_id")),
            ("Kernel_Id", Number("kernel_id")),
            ("Kernel_Name", Text("name")),
            ("Correlation_Id", Number("stack_id")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
            ("LDS_Block_Size", Number("lds_size")),
            ("Scratch_Size", Number("scratch_size")),
            ("VGPR_Count", Number("vgpr_count")),
            ("Accum_VGPR_Count", Number("accum_vgpr_count")),
            ("SGPR_Count", Number("sgpr_count")),
            ("Workgroup_Size_X", Number("workgroup_x")),
            ("Workgroup_Size_Y", Number("workgroup_y")),
            ("Workgroup_Size_Z", Number("workgroup_z")),
            ("Grid_Size_X", Number("grid_x")),
            ("Grid_Size_Y", Number("grid_y")),
            ("Grid_Size_Z", Number("grid_z")),
        ],
    },
    Table {
        name: "memory_copy_trace",
        view: "memory_copies",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Kind", Is("MEMORY_COPY")),
            ("Direction", Text("name")),
            ("Stream_Id", Number("stream_id")),
            ("Source_Agent_Id", Agent("src_")),
            ("Destination_Agent_Id", Agent("dst_")),
            ("Correlation_Id", Number("stack_id")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
    Table {
        name: "memory_allocation_trace",
        view: "memory_allocations",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Kind", Is("MEMORY_ALLOCATION")),
            ("Operation", Text("'MEMORY_ALLOCATION_' || type")),
            ("Agent_Id", Allocator),
            ("Allocation_Size", Number("size")),
            ("Address", Text("printf('0x%016x', coalesce(address, 0))")),
            ("Correlation_Id", Number("stack_id")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
    Table {
        name: "scratch_memory_trace",
        view: "scratch_memory",
        condition: "",
        columns: &[
            ("Kind", Is("SCRATCH_MEMORY")),
            ("Operation", Text("'SCRATCH_MEMORY_' || operation")),
            ("Agent_Id", Agent("")),
            ("Queue_Id", Number("queue_id")),
            ("Thread_Id", Number("tid")),
            ("Alloc_Flags", Text("alloc_flags")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
    calls("hip_api_trace", "WHERE category GLOB 'HIP_*'"),
    calls("hsa_api_trace", "WHERE category GLOB 'HSA_*'"),
    Table {
        name: "marker_api_trace",
        view: "regions_and_samples",
        condition: "WHERE category GLOB 'MARKER_*'",
        columns: MARKER,
    },
    calls("rccl_api_trace", "WHERE category GLOB 'RCCL_*'"),
    calls("rocdecode_api_trace", "WHERE category GLOB 'ROCDECODE_*'"),
    calls("rocjpeg_api_trace", "WHERE category GLOB 'ROCJPEG_*'"),
    Table {
        name: "counter_collection",
        view: "counters_collection",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Correlation_Id", Number("stack_id")),
            ("Dispatch_Id", Number("dispatch_id")),
            ("Agent_Id", Agent("")),
            ("Queue_Id", Number("queue_id")),
            ("Process_Id", Number("pid")),
            ("Thread_Id", Number("tid")),
            ("Grid_Size", Number("grid_size")),
            ("Kernel_Id", Number("kernel_id")),
            ("Kernel_Name", Text("kernel_name")),
            ("Workgroup_Size", Number("workgroup_size")),
            ("LDS_Block_Size", Number("lds_block_size")),
            ("Scratch_Size", Number("scratch_size")),
            ("VGPR_Count", Number("vgpr_count")),
            ("Accum_VGPR_Count", Number("accum_vgpr_count")),
            ("SGPR_Count", Number("sgpr_count")),
            ("Counter_Name", Text("counter_name")),
            ("Counter_Value", Number("value")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
];
