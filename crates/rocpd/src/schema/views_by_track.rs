//! The views of schema 4, in which events name a track instead of node, process and thread.
//!
//! They apply where `rocpd_region` has a `track_id`. Names, columns and their order are those of
//! rocprofv3's 4.1.0 branch; columns that another branch lacks are NULL. Where rocprofv3 joins by
//! pid and tid, these views join by id, as the foreign keys do; the join between kernels and
//! counters, which rocprofv3 makes by event alone, also uses the guid. Compressed columns are not
//! unpacked: a value that is not text is not JSON and yields NULL.

use super::shape::{Joined, Shape, Source, inner, left, of};
use super::views::{REGIONS_AND_SAMPLES, TOP, TOP_KERNELS};

/// Ordered so that each comes after those it reads.
pub(super) const VIEWS_BY_TRACK: &[Shape] = &[
    Shape::Joined(TRACKS),
    Shape::Joined(EVENTS),
    Shape::Joined(CODE_OBJECTS),
    Shape::Joined(KERNEL_SYMBOLS),
    Shape::Joined(PROCESSES),
    Shape::Joined(THREADS),
    Shape::Joined(REGIONS),
    Shape::Joined(SAMPLES),
    Shape::Joined(SAMPLE_REGIONS),
    REGIONS_AND_SAMPLES,
    Shape::Joined(KERNELS),
    Shape::Joined(PMC_INFO),
    Shape::Joined(PMC_EVENTS),
    Shape::Joined(MEMORY_COPIES),
    Shape::Joined(MEMORY_ALLOCATIONS),
    KERNEL_PMC_EVENTS,
    TOP_KERNELS,
    BUSY,
    TOP,
];

const TRACKS: Joined = Joined {
    name: "tracks",
    sources: &[
        of("T", "rocpd_track"),
        left("N", "rocpd_info_node", "N.id = T.nid"),
        left("P", "rocpd_info_process", "P.id = T.pid"),
        left("TH", "rocpd_info_thread", "TH.id = T.tid"),
        left("A", "rocpd_info_agent", "A.id = T.agent_id"),
        left("Q", "rocpd_info_queue", "Q.id = T.queue_id"),
        left("S", "rocpd_info_stream", "S.id = T.stream_id"),
        left("ST", "rocpd_string", "ST.id = T.name_id"),
    ],
    columns: "T.id, T.guid, T.name_id AS track_name_id, ST.string AS track_name, T.nid, N.name AS node_name, \
        N.hash AS node_hash, N.machine_id AS node_machine_id, N.system_name AS node_system_name, \
        N.hostname AS node_hostname, N.release AS node_release, N.version AS node_version, \
        N.hardware_name AS node_hardware_version, T.pid, P.name AS process_name, P.ppid, P.init AS process_init, \
        P.fini AS process_fini, P.start AS process_start, P.end AS process_end, P.command AS process_command, T.tid, \
        TH.name AS thread_name, TH.start AS thread_start, TH.end AS thread_end, T.agent_id, A.name AS agent_name, \
        A.type AS agent_type, A.absolute_index AS agent_absolute_index, A.logical_index AS agent_logical_index, \
        A.type_index AS agent_type_index, A.uuid AS agent_uuid, A.generic_name AS agent_generic_name, \
        A.model_name AS agent_model_name, A.vendor_name AS agent_vendor_name, A.product_name AS agent_product_name, \
        T.queue_id, Q.name AS queue_name, T.stream_id, S.name AS stream_name",
    tail: &[],
};

const EVENTS: Joined = Joined {
    name: "events",
    sources: &[of("E", "rocpd_event"), left("C", "rocpd_info_category", "C.id = E.category_id")],
    columns: "E.id, E.guid, E.category_id, C.name AS category, E.stack_id, E.parent_stack_id, E.correlation_id, E.extdata",
    tail: &[],
};

const CODE_OBJECTS: Joined = Joined {
    name: "code_objects",
    sources: &[
        of("CO", "rocpd_info_code_object"),
        inner("A", "rocpd_info_agent", "A.id = CO.agent_id"),
        inner("P", "rocpd_info_process", "P.id = CO.pid"),
    ],
    columns: "CO.id, CO.guid, CO.nid, P.pid, A.absolute_index AS agent_absolute_index, CO.uri, CO.load_base, CO.load_size, \
        CO.load_delta, CO.storage_type AS storage_type_str, {CO.extdata}$.size AS code_object_size, \
        {CO.extdata}$.storage_type AS storage_type, {CO.extdata}$.memory_base AS memory_base, \
        {CO.extdata}$.memory_size AS memory_size",
    tail: &[],
};

const KERNEL_SYMBOLS: Joined = super::views::KERNEL_SYMBOLS;

const PROCESSES: Joined = Joined {
    name: "processes",
    sources: &[of("P", "rocpd_info_process"), inner("N", "rocpd_info_node", "N.id = P.nid")],
    columns: "P.id, N.id AS nid, N.machine_id, N.system_name, N.hostname, N.release AS system_release, \
        N.version AS system_version, P.guid, P.ppid, P.pid, P.init, P.start, P.end, P.fini, P.command",
    tail: &[],
};

const THREADS: Joined = Joined {
    name: "threads",
    sources: &[
        of("T", "rocpd_info_thread"),
        inner("P", "rocpd_info_process", "P.id = T.pid"),
        inner("N", "rocpd_info_node", "N.id = T.nid"),
    ],
    columns: "T.id, N.id AS nid, N.machine_id, N.system_name, N.hostname, N.release AS system_release, \
        N.version AS system_version, P.guid, P.ppid, P.pid, T.tid, T.start, T.end, T.name",
    tail: &[],
};

const REGIONS: Joined = Joined {
    name: "regions",
    sources: &[
        of("R", "rocpd_region"),
        inner("E", "rocpd_event", "E.id = R.event_id"),
        inner("T", "rocpd_track", "T.id = R.track_id"),
        inner("NS", "rocpd_string", "NS.id = R.name_id"),
        left("C", "rocpd_info_category", "C.id = E.category_id"),
    ],
    columns: "R.id, R.guid, C.name AS category, NS.string AS name, T.nid, T.pid, T.tid, R.start, R.end, \
        (R.end - R.start) AS duration, R.event_id, R.track_id, E.stack_id, E.parent_stack_id, E.correlation_id, E.extdata",
    tail: &[],
};

const SAMPLES: Joined = Joined {
    name: "samples",
    sources: SAMPLE_SOURCES,
    columns: "S.id, S.guid, C.name AS category, NS.string AS name, T.nid, T.pid, T.tid, S.timestamp, S.event_id, S.track_id, \
        E.stack_id, E.parent_stack_id, E.correlation_id, E.extdata",
    tail: &[],
};

const SAMPLE_REGIONS: Joined = Joined {
    name: "sample_regions",
    sources: SAMPLE_SOURCES,
    columns: "S.id, S.guid, C.name AS category, NS.string AS name, T.nid, T.pid, T.tid, S.timestamp AS start, \
        S.timestamp AS end, (S.timestamp - S.timestamp) AS duration, S.event_id, S.track_id, E.stack_id, E.parent_stack_id, \
        E.correlation_id, E.extdata",
    tail: &[],
};

const SAMPLE_SOURCES: &[Source] = &[
    of("S", "rocpd_sample"),
    inner("T", "rocpd_track", "T.id = S.track_id"),
    inner("E", "rocpd_event", "E.id = S.event_id"),
    inner("NS", "rocpd_string", "NS.id = S.name_id"),
    left("C", "rocpd_info_category", "C.id = E.category_id"),
];

const KERNELS: Joined = Joined {
    name: "kernels",
    sources: &[
        of("K", "rocpd_kernel_dispatch"),
        inner("T", "rocpd_track", "T.id = K.track_id"),
        inner("E", "rocpd_event", "E.id = K.event_id"),
        inner("R", "rocpd_string", "R.id = K.region_name_id"),
        inner("S", "rocpd_info_kernel_symbol", "S.id = K.kernel_id"),
        left("C", "rocpd_info_category", "C.id = E.category_id"),
        left("A", "rocpd_info_agent", "A.id = T.agent_id"),
        left("Q", "rocpd_info_queue", "Q.id = T.queue_id"),
        left("ST", "rocpd_info_stream", "ST.id = T.stream_id"),
    ],
    columns: "K.id, K.guid, T.nid, T.pid, T.tid, C.name AS category, R.string AS region, S.display_name AS name, T.agent_id, \
        A.absolute_index AS agent_absolute_index, A.logical_index AS agent_logical_index, A.type_index AS agent_type_index, \
        A.type AS agent_type, S.code_object_id, K.kernel_id, K.dispatch_id, T.queue_id, Q.name AS queue, T.stream_id, \
        ST.name AS stream, K.start, K.end, (K.end - K.start) AS duration, K.event_id, K.track_id, K.grid_size_x AS grid_x, \
        K.grid_size_y AS grid_y, K.grid_size_z AS grid_z, \
        (K.grid_size_x * K.grid_size_y * K.grid_size_z) AS ocl_grid_size, K.workgroup_size_x AS workgroup_x, \
        K.workgroup_size_y AS workgroup_y, K.workgroup_size_z AS workgroup_z, \
        (K.workgroup_size_x * K.workgroup_size_y * K.workgroup_size_z) AS ocl_workgroup_size, \
        K.workgroup_size_x AS block_size_x, K.workgroup_size_y AS block_size_y, K.workgroup_size_z AS block_size_z, \
        (K.workgroup_size_x * K.workgroup_size_y * K.workgroup_size_z) AS block_size, \
        (K.grid_size_x / K.workgroup_size_x) AS grid_size_x, (K.grid_size_y / K.workgroup_size_y) AS grid_size_y, \
        (K.grid_size_z / K.workgroup_size_z) AS grid_size_z, (K.grid_size_x / K.workgroup_size_x) * \
        (K.grid_size_y / K.workgroup_size_y) * (K.grid_size_z / K.workgroup_size_z) AS grid_size, \
        ((K.group_segment_size + 511) / 512) * 512 AS lds_block_size, K.private_segment_size AS scratch_size, \
        S.group_segment_size AS static_lds_block_size, S.private_segment_size AS static_scratch_size, S.sgpr_count, \
        S.arch_vgpr_count, S.accum_vgpr_count, E.stack_id, E.parent_stack_id, E.correlation_id, E.extdata",
    tail: &[],
};

const PMC_INFO: Joined = Joined {
    name: "pmc_info",
    sources: &[
        of("I", "rocpd_info_pmc"),
        inner("A", "rocpd_info_agent", "A.id = I.agent_id"),
        inner("P", "rocpd_info_process", "P.id = I.pid"),
    ],
    columns: "I.id, I.guid, I.nid, P.pid, A.absolute_index AS agent_absolute_index, I.is_constant, I.is_derived, I.name, \
        I.description, I.block, I.expression",
    tail: &[],
};

const PMC_EVENTS: Joined = Joined {
    name: "pmc_events",
    sources: &[
        of("V", "rocpd_pmc_event"),
        inner("I", "rocpd_info_pmc", "I.id = V.pmc_id"),
        inner("E", "rocpd_event", "E.id = V.event_id"),
        left("C", "rocpd_info_category", "C.id = E.category_id"),
    ],
    columns: "V.id, V.guid, V.pmc_id, V.event_id, E.category_id, C.name AS category, I.name, I.symbol, V.value, I.agent_id, \
        I.target_arch, I.event_code, I.instance_id, I.component, I.units, I.value_type, I.block, I.expression, \
        I.is_constant, I.is_derived, I.description, I.long_description, I.extdata AS pmc_info_extdata, \
        V.extdata AS pmc_event_extdata",
    tail: &[],
};

const MEMORY_COPIES: Joined = Joined {
    name: "memory_copies",
    sources: &[
        of("M", "rocpd_memory_copy"),
        inner("E", "rocpd_event", "E.id = M.event_id"),
        inner("T", "rocpd_track", "T.id = M.track_id"),
        inner("NS", "rocpd_string", "NS.id = M.name_id"),
        left("R", "rocpd_string", "R.id = M.region_name_id"),
        inner("TO_A", "rocpd_info_agent", "TO_A.id = M.dst_agent_id"),
        inner("FROM_A", "rocpd_info_agent", "FROM_A.id = M.src_agent_id"),
        left("C", "rocpd_info_category", "C.id = E.category_id"),
        left("Q", "rocpd_info_queue", "Q.id = T.queue_id"),
        left("ST", "rocpd_info_stream", "ST.id = T.stream_id"),
    ],
    columns: "M.id, M.guid, T.nid, T.pid, T.tid, E.id AS event_id, C.name AS category, NS.string AS name, \
        R.string AS region_name, M.start, M.end, (M.end - M.start) AS duration, T.queue_id, Q.name AS queue_name, \
        T.stream_id, ST.name AS stream_name, M.size, TO_A.name AS dst_device, TO_A.id AS dst_agent_id, \
        TO_A.absolute_index AS dst_agent_absolute_index, TO_A.logical_index AS dst_agent_logical_index, \
        TO_A.type_index AS dst_agent_type_index, TO_A.type AS dst_agent_type, M.dst_address, FROM_A.name AS src_device, \
        FROM_A.id AS src_agent_id, FROM_A.absolute_index AS src_agent_absolute_index, \
        FROM_A.logical_index AS src_agent_logical_index, FROM_A.type_index AS src_agent_type_index, \
        FROM_A.type AS src_agent_type, M.src_address, E.stack_id, E.parent_stack_id, E.correlation_id, E.extdata",
    tail: &[],
};

const MEMORY_ALLOCATIONS: Joined = Joined {
    name: "memory_allocations",
    sources: &[
        of("M", "rocpd_memory_allocate"),
        inner("E", "rocpd_event", "E.id = M.event_id"),
        inner("T", "rocpd_track", "T.id = M.track_id"),
        inner("NS", "rocpd_string", "NS.id = M.name_id"),
        left("R", "rocpd_string", "R.id = M.region_name_id"),
        left("C", "rocpd_info_category", "C.id = E.category_id"),
        left("A", "rocpd_info_agent", "A.id = T.agent_id"),
        left("Q", "rocpd_info_queue", "Q.id = T.queue_id"),
        left("ST", "rocpd_info_stream", "ST.id = T.stream_id"),
    ],
    columns: "M.id, M.guid, T.nid, T.pid, T.tid, E.id AS event_id, C.name AS category, NS.string AS name, \
        R.string AS region_name, M.start, M.end, (M.end - M.start) AS duration, T.queue_id, Q.name AS queue_name, \
        T.stream_id, ST.name AS stream_name, M.size, M.type, M.level, A.name AS agent_name, \
        A.absolute_index AS agent_absolute_index, A.logical_index AS agent_logical_index, A.type_index AS agent_type_index, \
        A.type AS agent_type, M.address, E.stack_id, E.parent_stack_id, E.correlation_id, E.extdata",
    tail: &[],
};

const KERNEL_PMC_EVENTS: Shape = Shape::Over {
    name: "kernel_pmc_events",
    tables: &[("kernels", ""), ("pmc_events", "")],
    query: r#"SELECT K.id AS "id", K.guid AS "guid", K.nid AS "nid", K.pid AS "pid", K.tid AS "tid", K.category AS "category",
 K.region AS "region", K.name AS "name", K.agent_id AS "agent_id", K.agent_absolute_index AS "agent_absolute_index",
 K.agent_logical_index AS "agent_logical_index", K.agent_type_index AS "agent_type_index", K.agent_type AS "agent_type",
 K.code_object_id AS "code_object_id", K.kernel_id AS "kernel_id", K.dispatch_id AS "dispatch_id", K.queue_id AS "queue_id",
 K.queue AS "queue", K.stream_id AS "stream_id", K.stream AS "stream", K.start AS "start", K."end" AS "end",
 K.duration AS "duration", K.event_id AS "event_id", K.track_id AS "track_id", K.stack_id AS "stack_id",
 K.parent_stack_id AS "parent_stack_id", K.correlation_id AS "correlation_id", K.grid_x AS "grid_x", K.grid_y AS "grid_y",
 K.grid_z AS "grid_z", K.workgroup_x AS "workgroup_x", K.workgroup_y AS "workgroup_y", K.workgroup_z AS "workgroup_z",
 K.lds_block_size AS "lds_block_size", K.scratch_size AS "scratch_size", K.static_lds_block_size AS "static_lds_block_size",
 K.static_scratch_size AS "static_scratch_size", K.sgpr_count AS "sgpr_count", K.arch_vgpr_count AS "arch_vgpr_count",
 K.accum_vgpr_count AS "accum_vgpr_count", V.pmc_id AS "pmc_id", V.name AS "pmc_name", V.symbol AS "pmc_symbol",
 V.value AS "pmc_value", V.agent_id AS "pmc_agent_id", V.target_arch AS "pmc_target_arch", V.event_code AS "pmc_event_code",
 V.instance_id AS "pmc_instance_id", V.component AS "pmc_component", V.units AS "pmc_units",
 V.value_type AS "pmc_value_type", V.block AS "pmc_block", V.expression AS "pmc_expression",
 V.is_constant AS "pmc_is_constant", V.is_derived AS "pmc_is_derived", V.description AS "pmc_description",
 V.long_description AS "pmc_long_description"
 FROM "kernels" K INNER JOIN "pmc_events" V ON V.event_id = K.event_id AND V.guid = K.guid"#,
};

const BUSY: Shape = Shape::Over {
    name: "busy",
    tables: &[
        ("rocpd_kernel_dispatch", "track_id"),
        ("rocpd_track", "agent_id"),
        ("rocpd_memory_copy", "dst_agent_id"),
        ("rocpd_info_agent", "type"),
    ],
    query: r#"WITH done AS (SELECT T.agent_id, K.guid, K.start, K."end" FROM "rocpd_kernel_dispatch" K
 INNER JOIN "rocpd_track" T ON T.id = K.track_id AND T.guid = K.guid
 UNION ALL SELECT dst_agent_id, guid, start, "end" FROM "rocpd_memory_copy")
 SELECT D.agent_id AS "agent_id", A.type AS "type", D.gpu AS "GpuTime", W.wall AS "WallTime", D.gpu * 1.0 / W.wall AS "Busy"
 FROM (SELECT agent_id, guid, SUM("end" - start) AS gpu FROM done GROUP BY agent_id, guid) D
 INNER JOIN (SELECT MAX("end") - MIN(start) AS wall FROM done) W
 INNER JOIN "rocpd_info_agent" A ON A.id = D.agent_id AND A.guid = D.guid"#,
};
