//! The views of schemas 3 to 3.0.5, as shapes.
//!
//! Names, columns and their order are those of rocprofv3's `data_views` and `summary_views`, as
//! readers know them; its `marker_views` defines no views. Columns that were added in 3.0.2 and
//! 3.0.3 have a question mark. `hip_events` of 3.0.4 and the positions of `shader_array` and `wgp`
//! (3.0.5) in `spm_counters` are missing because no readable source stated their columns.

use super::shape::{Joined, Shape, inner, left, of};

/// Ordered so that each comes after those it reads.
pub(super) const VIEWS: &[Shape] = &[
    Shape::Joined(CODE_OBJECTS),
    Shape::Joined(KERNEL_SYMBOLS),
    Shape::Joined(PROCESSES),
    Shape::Joined(THREADS),
    Shape::Joined(REGIONS),
    Shape::Joined(REGION_ARGS),
    Shape::Joined(SAMPLES),
    Shape::Joined(SAMPLE_REGIONS),
    REGIONS_AND_SAMPLES,
    Shape::Joined(KERNELS),
    Shape::Joined(PMC_INFO),
    Shape::Joined(PMC_EVENTS),
    Shape::Joined(EVENTS_ARGS),
    Shape::Joined(STREAM_ARGS),
    Shape::Joined(MEMORY_COPIES),
    Shape::Joined(GRAPH_LAUNCHES),
    Shape::Joined(MEMORY_ALLOCATIONS),
    Shape::Joined(SCRATCH_MEMORY),
    Shape::Joined(COUNTERS_COLLECTION),
    Shape::Joined(SPM_COUNTERS),
    TOP_KERNELS,
    BUSY,
    TOP,
];

const CODE_OBJECTS: Joined = Joined {
    name: "code_objects",
    sources: &[
        of("CO", "rocpd_info_code_object"),
        inner("A", "rocpd_info_agent", "A.id = CO.agent_id"),
        inner("P", "rocpd_info_process", "P.id = CO.pid"),
    ],
    columns: "CO.id, CO.guid, CO.nid, P.pid, A.absolute_index AS agent_abs_index, CO.uri, CO.load_base, CO.load_size, \
        CO.load_delta, CO.storage_type AS storage_type_str, {CO.extdata}$.size AS code_object_size, \
        {CO.extdata}$.storage_type AS storage_type, {CO.extdata}$.memory_base AS memory_base, \
        {CO.extdata}$.memory_size AS memory_size",
    tail: &[],
};

pub(super) const KERNEL_SYMBOLS: Joined = Joined {
    name: "kernel_symbols",
    sources: &[of("KS", "rocpd_info_kernel_symbol"), inner("P", "rocpd_info_process", "P.id = KS.pid")],
    columns: "KS.id, KS.guid, KS.nid, P.pid, KS.code_object_id, KS.kernel_name, KS.display_name, KS.kernel_object, \
        KS.kernarg_segment_size, KS.kernarg_segment_alignment, KS.group_segment_size, KS.private_segment_size, \
        KS.sgpr_count, KS.arch_vgpr_count, KS.accum_vgpr_count, {KS.extdata}$.size AS kernel_symbol_size, \
        {KS.extdata}$.kernel_id AS kernel_id, {KS.extdata}$.kernel_code_entry_byte_offset AS \
        kernel_code_entry_byte_offset, {KS.extdata}$.formatted_kernel_name AS formatted_kernel_name, \
        {KS.extdata}$.demangled_kernel_name AS demangled_kernel_name, {KS.extdata}$.truncated_kernel_name AS \
        truncated_kernel_name, {KS.extdata}$.kernel_address.handle AS kernel_address",
    tail: &[],
};

const PROCESSES: Joined = Joined {
    name: "processes",
    sources: &[of("P", "rocpd_info_process"), inner("N", "rocpd_info_node", "N.id = P.nid")],
    columns: "N.id AS nid, N.machine_id, N.system_name, N.hostname, N.release AS system_release, N.version AS \
        system_version, P.guid, P.ppid, P.pid, P.init, P.start, P.end, P.fini, P.command",
    tail: &[],
};

const THREADS: Joined = Joined {
    name: "threads",
    sources: &[
        of("T", "rocpd_info_thread"),
        inner("P", "rocpd_info_process", "P.id = T.pid"),
        inner("N", "rocpd_info_node", "N.id = T.nid"),
    ],
    columns: "N.id AS nid, N.machine_id, N.system_name, N.hostname, N.release AS system_release, N.version AS \
        system_version, P.guid, P.ppid, P.pid, T.tid, T.start, T.end, T.name",
    tail: &[],
};

const REGIONS: Joined = Joined {
    name: "regions",
    sources: &[
        of("R", "rocpd_region"),
        inner("E", "rocpd_event", "E.id = R.event_id"),
        inner("S", "rocpd_string", "S.id = R.name_id"),
        inner("P", "rocpd_info_process", "P.id = R.pid"),
        inner("T", "rocpd_info_thread", "T.id = R.tid"),
    ],
    columns: "R.id, R.guid, @E.category_id AS category, S.string AS name, R.nid, P.pid, T.tid, R.start, R.end, (R.end \
        - R.start) AS duration, R.event_id, E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id, \
        E.extdata, E.call_stack, E.line_info",
    tail: &[],
};

const REGION_ARGS: Joined = Joined {
    name: "region_args",
    sources: &[
        of("R", "rocpd_region"),
        inner("E", "rocpd_event", "E.id = R.event_id"),
        inner("A", "rocpd_arg", "A.event_id = E.id"),
        inner("P", "rocpd_info_process", "P.id = R.pid"),
    ],
    columns: "R.id, R.guid, R.nid, P.pid, A.type, A.name, A.value",
    tail: &[],
};

const SAMPLES: Joined = Joined {
    name: "samples",
    sources: SAMPLE_SOURCES,
    columns: "R.id, R.guid, @E.category_id AS category, @T.name_id AS name, T.nid, P.pid, TH.tid, R.timestamp, \
        R.event_id, E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id, E.extdata, E.call_stack, \
        E.line_info",
    tail: &[],
};

/// Samples with the columns of `regions`.
const SAMPLE_REGIONS: Joined = Joined {
    name: "sample_regions",
    sources: SAMPLE_SOURCES,
    columns: "R.id, R.guid, @E.category_id AS category, @T.name_id AS name, T.nid, P.pid, TH.tid, R.timestamp AS \
        start, R.timestamp AS END, (R.timestamp - R.timestamp) AS duration, R.event_id, E.stack_id, \
        E.parent_stack_id, E.correlation_id AS corr_id, E.extdata, E.call_stack, E.line_info",
    tail: &[],
};

const SAMPLE_SOURCES: &[super::shape::Source] = &[
    of("R", "rocpd_sample"),
    inner("T", "rocpd_track", "T.id = R.track_id"),
    inner("E", "rocpd_event", "E.id = R.event_id"),
    inner("P", "rocpd_info_process", "P.id = T.pid"),
    inner("TH", "rocpd_info_thread", "TH.id = T.tid"),
];

pub(super) const REGIONS_AND_SAMPLES: Shape = Shape::Over {
    name: "regions_and_samples",
    tables: &[("regions", ""), ("sample_regions", "")],
    query: r#"SELECT * FROM "regions" UNION ALL SELECT * FROM "sample_regions""#,
};

const KERNELS: Joined = Joined {
    name: "kernels",
    sources: &[
        of("K", "rocpd_kernel_dispatch"),
        inner("A", "rocpd_info_agent", "A.id = K.agent_id"),
        inner("E", "rocpd_event", "E.id = K.event_id"),
        inner("R", "rocpd_string", "R.id = K.region_name_id"),
        inner("S", "rocpd_info_kernel_symbol", "S.id = K.kernel_id"),
        left("ST", "rocpd_info_stream", "ST.id = K.stream_id"),
        left("Q", "rocpd_info_queue", "Q.id = K.queue_id"),
        inner("P", "rocpd_info_process", "P.id = K.pid"),
        inner("T", "rocpd_info_thread", "T.id = K.tid"),
    ],
    columns: "K.id, K.guid, T.tid, @E.category_id AS category, R.string AS region, S.display_name AS name, K.nid, \
        P.pid, A.absolute_index AS agent_abs_index, A.logical_index AS agent_log_index, A.type_index AS \
        agent_type_index, A.type AS agent_type, S.code_object_id, K.kernel_id, K.dispatch_id, K.stream_id, \
        K.queue_id, ?K.graph_exec_id, ?K.graph_node_id, Q.name AS queue, ST.name AS stream, K.start, K.end, \
        (K.end - K.start) AS duration, K.grid_size_x AS grid_x, K.grid_size_y AS grid_y, K.grid_size_z AS \
        grid_z, K.workgroup_size_x AS workgroup_x, K.workgroup_size_y AS workgroup_y, K.workgroup_size_z AS \
        workgroup_z, K.group_segment_size AS lds_size, K.private_segment_size AS scratch_size, S.arch_vgpr_count \
        AS vgpr_count, S.accum_vgpr_count, S.sgpr_count, S.group_segment_size AS static_lds_size, \
        S.private_segment_size AS static_scratch_size, ?rocpd_pmc_event.sample_id: K.event_id, E.stack_id, E.parent_stack_id, E.correlation_id AS \
        corr_id",
    tail: &[],
};

const PMC_INFO: Joined = Joined {
    name: "pmc_info",
    sources: &[
        of("I", "rocpd_info_pmc"),
        inner("A", "rocpd_info_agent", "A.id = I.agent_id"),
        inner("P", "rocpd_info_process", "P.id = I.pid"),
    ],
    columns: "I.id, I.guid, I.nid, P.pid, A.absolute_index AS agent_abs_index, I.is_constant, I.is_derived, I.name, \
        I.description, I.block, I.expression",
    tail: &[],
};

const PMC_EVENTS: Joined = Joined {
    name: "pmc_events",
    sources: &[
        of("V", "rocpd_pmc_event"),
        inner("I", "rocpd_info_pmc", "I.id = V.pmc_id"),
        inner("E", "rocpd_event", "E.id = V.event_id"),
        inner("K", "rocpd_kernel_dispatch", "K.event_id = V.event_id"),
        left("S", "rocpd_info_kernel_symbol", "S.id = K.kernel_id"),
        inner("P", "rocpd_info_process", "P.id = K.pid"),
    ],
    columns: "V.id, V.guid, V.pmc_id, E.id AS event_id, @E.category_id AS category, S.display_name AS name, K.nid, \
        P.pid, K.dispatch_id, K.start, K.end, (K.end - K.start) AS duration, I.name AS counter_name, V.value AS \
        counter_value",
    tail: &[],
};

const EVENTS_ARGS: Joined = Joined {
    name: "events_args",
    sources: &[of("E", "rocpd_event"), inner("A", "rocpd_arg", "A.event_id = E.id")],
    columns: "E.id AS event_id, @E.category_id AS category, E.stack_id, E.parent_stack_id, E.correlation_id, \
        A.position AS arg_position, A.type AS arg_type, A.name AS arg_name, A.value AS arg_value, E.call_stack, \
        E.line_info, A.extdata",
    tail: &[],
};

const STREAM_ARGS: Joined = Joined {
    name: "stream_args",
    sources: &[
        of("A", "rocpd_arg"),
        inner(
            "S",
            "rocpd_info_stream",
            "S.id = CASE WHEN json_valid(A.extdata) THEN json_extract(A.extdata, '$.stream_id') END",
        ),
        inner("P", "rocpd_info_process", "P.id = S.pid"),
    ],
    columns: "A.id AS argument_id, A.event_id, A.position AS arg_position, A.type AS arg_type, A.value AS arg_value, \
        {A.extdata}$.stream_id AS stream_id, S.nid, P.pid, S.name AS stream_name, S.extdata",
    tail: &["WHERE A.name = 'stream'"],
};

const MEMORY_COPIES: Joined = Joined {
    name: "memory_copies",
    sources: &[
        of("M", "rocpd_memory_copy"),
        inner("S", "rocpd_string", "S.id = M.name_id"),
        left("R", "rocpd_string", "R.id = M.region_name_id"),
        inner("TO_A", "rocpd_info_agent", "TO_A.id = M.dst_agent_id"),
        inner("FROM_A", "rocpd_info_agent", "FROM_A.id = M.src_agent_id"),
        left("Q", "rocpd_info_queue", "Q.id = M.queue_id"),
        left("ST", "rocpd_info_stream", "ST.id = M.stream_id"),
        inner("E", "rocpd_event", "E.id = M.event_id"),
        inner("P", "rocpd_info_process", "P.id = M.pid"),
        inner("T", "rocpd_info_thread", "T.id = M.tid"),
    ],
    columns: "M.id, M.guid, @E.category_id AS category, M.nid, P.pid, T.tid, M.start, M.end, (M.end - M.start) AS \
        duration, S.string AS name, R.string AS region_name, M.stream_id, M.queue_id, ?M.graph_exec_id, \
        ?M.graph_node_id, ST.name AS stream_name, Q.name AS queue_name, M.size, TO_A.name AS dst_device, \
        TO_A.absolute_index AS dst_agent_abs_index, TO_A.logical_index AS dst_agent_log_index, TO_A.type_index \
        AS dst_agent_type_index, TO_A.type AS dst_agent_type, M.dst_address, FROM_A.name AS src_device, \
        FROM_A.absolute_index AS src_agent_abs_index, FROM_A.logical_index AS src_agent_log_index, \
        FROM_A.type_index AS src_agent_type_index, FROM_A.type AS src_agent_type, M.src_address, E.stack_id, \
        E.parent_stack_id, E.correlation_id AS corr_id",
    tail: &[],
};

const GRAPH_LAUNCHES: Joined = Joined {
    name: "graph_launches",
    sources: &[
        of("G", "rocpd_graph_launch"),
        left("A", "rocpd_info_agent", "A.id = G.agent_id"),
        left("Q", "rocpd_info_queue", "Q.id = G.queue_id"),
        inner("E", "rocpd_event", "E.id = G.event_id"),
        inner("P", "rocpd_info_process", "P.id = G.pid"),
        inner("T", "rocpd_info_thread", "T.id = G.tid"),
    ],
    columns: "G.id, G.guid, G.nid, P.pid, T.tid, G.agent_id, A.absolute_index AS agent_abs_index, A.logical_index AS \
        agent_log_index, A.type_index AS agent_type_index, A.type AS agent_type, G.queue_id, Q.name AS queue, \
        'Graph Execution' AS name, G.start, G.end, (G.end - G.start) AS duration, G.graph_exec_id, \
        G.kernel_dispatch_count, G.event_id, E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id",
    tail: &[],
};

const MEMORY_ALLOCATIONS: Joined = Joined {
    name: "memory_allocations",
    sources: ALLOCATION_SOURCES,
    columns: "M.id, M.guid, @E.category_id AS category, M.nid, P.pid, T.tid, M.start, M.end, (M.end - M.start) AS \
        duration, M.type, M.level, A.name AS agent_name, A.absolute_index AS agent_abs_index, A.logical_index AS \
        agent_log_index, A.type_index AS agent_type_index, A.type AS agent_type, M.address, M.size, M.queue_id, \
        Q.name AS queue_name, M.stream_id, ST.name AS stream_name, E.stack_id, E.parent_stack_id, \
        E.correlation_id AS corr_id",
    tail: &[],
};

const SCRATCH_MEMORY: Joined = Joined {
    name: "scratch_memory",
    sources: ALLOCATION_SOURCES,
    columns: "M.id, M.guid, M.nid, P.pid, M.type AS operation, A.name AS agent_name, A.absolute_index AS \
        agent_abs_index, A.logical_index AS agent_log_index, A.type_index AS agent_type_index, A.type AS \
        agent_type, M.queue_id, T.tid, {M.extdata}$.flags AS alloc_flags, M.start, M.end, (M.end - M.start) AS \
        duration, M.size, M.address, E.correlation_id, E.stack_id, E.parent_stack_id, E.correlation_id AS \
        corr_id, @E.category_id AS category, E.extdata AS event_extdata",
    tail: &["WHERE M.level = 'SCRATCH'", "ORDER BY M.start ASC"],
};

const ALLOCATION_SOURCES: &[super::shape::Source] = &[
    of("M", "rocpd_memory_allocate"),
    left("A", "rocpd_info_agent", "A.id = M.agent_id"),
    left("Q", "rocpd_info_queue", "Q.id = M.queue_id"),
    left("ST", "rocpd_info_stream", "ST.id = M.stream_id"),
    inner("E", "rocpd_event", "E.id = M.event_id"),
    inner("P", "rocpd_info_process", "P.id = M.pid"),
    inner("T", "rocpd_info_thread", "T.id = M.tid"),
];

const COUNTERS_COLLECTION: Joined = Joined {
    name: "counters_collection",
    sources: &[
        of("V", "rocpd_pmc_event"),
        inner("I", "rocpd_info_pmc", "I.id = V.pmc_id"),
        inner("E", "rocpd_event", "E.id = V.event_id"),
        inner("K", "rocpd_kernel_dispatch", "K.event_id = V.event_id"),
        inner("A", "rocpd_info_agent", "A.id = K.agent_id"),
        inner("S", "rocpd_info_kernel_symbol", "S.id = K.kernel_id"),
        inner("P", "rocpd_info_process", "P.id = K.pid"),
        inner("T", "rocpd_info_thread", "T.id = K.tid"),
    ],
    columns: "MIN(V.id) AS id, V.guid, K.dispatch_id, K.kernel_id, E.id AS event_id, E.correlation_id, E.stack_id, \
        E.parent_stack_id, P.pid, T.tid, K.agent_id, A.absolute_index AS agent_abs_index, A.logical_index AS \
        agent_log_index, A.type_index AS agent_type_index, A.type AS agent_type, K.queue_id, K.grid_size_x, \
        K.grid_size_y, K.grid_size_z, (K.grid_size_x * K.grid_size_y * K.grid_size_z) AS grid_size, \
        S.display_name AS kernel_name, @K.region_name_id AS kernel_region, K.workgroup_size_x, \
        K.workgroup_size_y, K.workgroup_size_z, (K.workgroup_size_x * K.workgroup_size_y * K.workgroup_size_z) \
        AS workgroup_size, K.group_segment_size AS lds_block_size, K.private_segment_size AS scratch_size, \
        S.arch_vgpr_count AS vgpr_count, S.accum_vgpr_count, S.sgpr_count, I.name AS counter_name, I.symbol AS \
        counter_symbol, I.component, I.description, I.block, I.expression, I.value_type, I.id AS counter_id, \
        SUM(V.value) AS value, K.start, K.end, I.is_constant, I.is_derived, (K.end - K.start) AS duration, \
        @E.category_id AS category, K.nid, E.extdata, S.code_object_id",
    // Records of streaming counters (SPM, 3.0.3) belong to samples and have a view of their own.
    tail: &["WHERE V.sample_id IS NULL", "GROUP BY V.guid, K.dispatch_id, I.name, K.agent_id"],
};

const SPM_COUNTERS: Joined = Joined {
    name: "spm_counters",
    sources: &[
        of("V", "rocpd_pmc_event"),
        inner("SA", "rocpd_sample", "SA.id = V.sample_id"),
        inner("I", "rocpd_info_pmc", "I.id = V.pmc_id"),
        inner("E", "rocpd_event", "E.id = V.event_id"),
        inner("K", "rocpd_kernel_dispatch", "K.event_id = V.event_id"),
        inner("A", "rocpd_info_agent", "A.id = K.agent_id"),
        inner("S", "rocpd_info_kernel_symbol", "S.id = K.kernel_id"),
        inner("P", "rocpd_info_process", "P.id = K.pid"),
        inner("T", "rocpd_info_thread", "T.id = K.tid"),
    ],
    columns: "V.id, V.guid, K.dispatch_id, K.kernel_id, E.id AS event_id, E.correlation_id, E.stack_id, \
        E.parent_stack_id, P.pid, T.tid, K.agent_id, A.absolute_index AS agent_abs_index, A.logical_index AS \
        agent_log_index, A.type_index AS agent_type_index, A.type AS agent_type, K.queue_id, K.grid_size_x, \
        K.grid_size_y, K.grid_size_z, (K.grid_size_x * K.grid_size_y * K.grid_size_z) AS grid_size, \
        S.display_name AS kernel_name, @K.region_name_id AS kernel_region, K.workgroup_size_x, \
        K.workgroup_size_y, K.workgroup_size_z, (K.workgroup_size_x * K.workgroup_size_y * K.workgroup_size_z) \
        AS workgroup_size, K.group_segment_size AS lds_block_size, K.private_segment_size AS scratch_size, \
        S.arch_vgpr_count AS vgpr_count, S.accum_vgpr_count, S.sgpr_count, I.name AS counter_name, I.symbol AS \
        counter_symbol, I.component, I.description, I.block, I.expression, I.value_type, I.id AS counter_id, \
        V.xcc, V.shader_engine, V.instance, V.value, SA.timestamp, I.is_constant, I.is_derived, @E.category_id \
        AS category, K.nid, E.extdata, S.code_object_id",
    tail: &[],
};

pub(super) const TOP_KERNELS: Shape = Shape::Over {
    name: "top_kernels",
    tables: &[("rocpd_kernel_dispatch", "kernel_id"), ("rocpd_info_kernel_symbol", "display_name")],
    query: r#"SELECT S.display_name AS "name", COUNT(K.kernel_id) AS "total_calls",
 SUM(K."end" - K.start) / 1000.0 AS "total_duration",
 (SUM(K."end" - K.start) / COUNT(K.kernel_id)) / 1000.0 AS "average",
 SUM(K."end" - K.start) * 100.0 / (SELECT SUM(D."end" - D.start) FROM "rocpd_kernel_dispatch" D) AS "percentage"
 FROM "rocpd_kernel_dispatch" K INNER JOIN "rocpd_info_kernel_symbol" S ON S.id = K.kernel_id AND S.guid = K.guid
 GROUP BY S.display_name ORDER BY 3 DESC"#,
};

/// How long each agent was busy between the first start and the last end of any event.
const BUSY: Shape = Shape::Over {
    name: "busy",
    tables: &[
        ("rocpd_kernel_dispatch", "agent_id"),
        ("rocpd_memory_copy", "dst_agent_id"),
        ("rocpd_info_agent", "type"),
    ],
    query: r#"WITH done AS (SELECT agent_id, guid, start, "end" FROM "rocpd_kernel_dispatch"
 UNION ALL SELECT dst_agent_id, guid, start, "end" FROM "rocpd_memory_copy")
 SELECT D.agent_id AS "agent_id", A.type AS "type", D.gpu AS "GpuTime", W.wall AS "WallTime", D.gpu * 1.0 / W.wall AS "Busy"
 FROM (SELECT agent_id, guid, SUM("end" - start) AS gpu FROM done GROUP BY agent_id, guid) D
 INNER JOIN (SELECT MAX("end") - MIN(start) AS wall FROM done) W
 INNER JOIN "rocpd_info_agent" A ON A.id = D.agent_id AND A.guid = D.guid"#,
};

pub(super) const TOP: Shape = Shape::Over {
    name: "top",
    tables: &[
        ("rocpd_kernel_dispatch", "kernel_id"),
        ("rocpd_info_kernel_symbol", "display_name"),
        ("rocpd_memory_copy", "name_id"),
        ("rocpd_region", "name_id"),
    ],
    query: r#"WITH done AS (SELECT S.display_name AS name, K."end" - K.start AS lasted FROM "rocpd_kernel_dispatch" K
 INNER JOIN "rocpd_info_kernel_symbol" S ON S.id = K.kernel_id AND S.guid = K.guid
 UNION ALL SELECT N.string, M."end" - M.start FROM "rocpd_memory_copy" M
 INNER JOIN "rocpd_string" N ON N.id = M.name_id AND N.guid = M.guid
 UNION ALL SELECT N.string, R."end" - R.start FROM "rocpd_region" R
 INNER JOIN "rocpd_string" N ON N.id = R.name_id AND N.guid = R.guid)
 SELECT name AS "name", COUNT(*) AS "total_calls", SUM(lasted) / 1000.0 AS "total_duration",
 (SUM(lasted) / COUNT(*)) / 1000.0 AS "average", SUM(lasted) * 100.0 / (SELECT SUM(lasted) FROM done) AS "percentage"
 FROM done GROUP BY name ORDER BY 3 DESC"#,
};
