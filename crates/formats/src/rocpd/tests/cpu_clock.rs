//! Rows of `rocprof-sys` on CLOCK_MONOTONIC beside those of rocprofiler-sdk on CLOCK_BOOTTIME:
//! which are moved, and what is refused.

use std::collections::BTreeMap;

use probe_sync_time::Duration;

use super::*;
use crate::CpuClock;

/// The categories of this database's events are its strings 1, 2, …; event k is of category k.
const CATEGORIES: [&str; 5] = ["host", "rocm_hip_api", "timer_sampling", "rocm_smi_busy", "HIP_RUNTIME_API"];
/// For how long the machine was suspended, ns.
const SUSPENDED: i64 = 10_800_000_000_000;
const BOOT: i64 = 90_000_000_000_000;

/// A process of rocprof-sys: functions and samples are behind, calls of HIP and kernels are not.
/// `more` are rows beside.
fn recorded(path: &Path, suspended_ns: i64, more: Rows<'_>) {
    let names: Vec<[(&str, Value); 2]> =
        (1_i64..).zip(CATEGORIES).map(|(id, name)| [("id", id.into()), ("string", name.to_owned().into())]).collect();
    let events: Vec<[(&str, Value); 2]> =
        (1..=5_i64).map(|id| [("id", id.into()), ("category_id", id.into())]).collect();
    let own = BOOT - suspended_ns;
    let process: [(&str, Value); 5] = [
        ("nid", 7.into()),
        ("ppid", 1.into()),
        ("pid", 5.into()),
        ("start", own.into()),
        ("end", (own + 1_000).into()),
    ];
    let of_event =
        |event: i64, start: i64, end: i64| [&region(start, end)[..], &[("event_id", Value::from(event))]].concat();
    let (host, hip) = (of_event(1, own + 100, own + 900), of_event(2, BOOT + 200, BOOT + 300));
    let sample =
        |event: i64, at: i64| [("track_id", Value::from(1)), ("timestamp", at.into()), ("event_id", event.into())];
    let (stack, busy) = (sample(3, own + 250), sample(4, own + 260));
    let mut rows: Vec<(&str, &[(&str, Value)])> = Vec::new();
    rows.extend(names.iter().map(|row| ("rocpd_string", &row[..])));
    rows.extend(events.iter().map(|row| ("rocpd_event", &row[..])));
    rows.push(("rocpd_info_process", &process));
    rows.extend([("rocpd_region", &host[..]), ("rocpd_region", &hip[..])]);
    rows.extend([("rocpd_sample", &stack[..]), ("rocpd_sample", &busy[..])]);
    rows.extend(more);
    drop(made(path, GUID, "", &rows));
}

fn clock(host: &str) -> FactOptions {
    let suspended = BTreeMap::from([(host.to_owned(), Duration::from_ns(SUSPENDED))]);
    FactOptions { cpu_clock: Some(CpuClock { suspended, elsewhere: None }), ..FactOptions::default() }
}

fn written(input: &Path, behind_ns: Option<i64>) -> Result<PathBuf, String> {
    let output = input.with_extension("aligned.db");
    let options = RewriteOptions { cpu_behind_ns: behind_ns, ..RewriteOptions::default() };
    rewrite(input, &output, &options, &mut later(7)).map(|_| output).map_err(|refused| refused.to_string())
}

#[test]
fn rows_that_the_profiler_stamped_itself_are_brought_to_the_boot_clock_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input.db");
    recorded(&input, SUSPENDED, &[]);
    let facts = Rocpd.read_facts(&input, &clock("gpu-1")).expect("facts");
    assert_eq!(facts.cpu_behind_ns, Some(SUSPENDED));
    // The process's own lifetime describes, and is no event.
    let ps = |ns: i64| Picoseconds::from(BOOT + ns) * 1000;
    assert_eq!(facts.span, Some((ps(100), ps(900))));
    let output = Connection::open(written(&input, facts.cpu_behind_ns).expect("written")).expect("a database");
    let times = |sql: &str| -> Vec<i64> {
        let mut statement = output.prepare(sql).expect("a view");
        statement
            .query_map([], |row| row.get::<_, i64>(0))
            .expect("rows")
            .map(|time| time.expect("a time") - BOOT - 7)
            .collect()
    };
    assert_eq!(times("SELECT start FROM rocpd_region ORDER BY id"), [100, 200]);
    assert_eq!(times("SELECT \"end\" FROM rocpd_region ORDER BY id"), [900, 300]);
    assert_eq!(times("SELECT timestamp FROM rocpd_sample ORDER BY id"), [250, 260]);
    assert_eq!(
        times("SELECT start FROM rocpd_info_process UNION ALL SELECT \"end\" FROM rocpd_info_process"),
        [0, 1_000]
    );
    // A second time would be wrong.
    drop(output);
    let again = input.with_extension("aligned.db");
    let refused = Rocpd.read_facts(&again, &clock("gpu-1")).expect_err("done already").to_string();
    assert!(refused.contains("already converted to one clock"), "{refused}");
    Rocpd.read_facts(&again, &FactOptions::default()).expect("one clock");
}

#[test]
fn a_database_whose_rows_cannot_be_on_one_clock_is_refused_without_the_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    for (suspended_ns, expected) in [(0, true), (900_000_000, true), (1_100_000_000, false), (SUSPENDED, false)] {
        let input = folder.path().join(format!("{suspended_ns}.db"));
        recorded(&input, suspended_ns, &[]);
        let read = Rocpd.read_facts(&input, &FactOptions::default()).map_err(|refused| refused.to_string());
        assert_eq!(read.is_ok(), expected, "{suspended_ns}");
        if let Err(refused) = read {
            assert!(refused.contains("use two clocks") && refused.contains("90000.000 to 90000.000 s"), "{refused}");
        }
    }
}

#[test]
fn a_row_or_a_host_of_which_nothing_is_known_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input.db");
    recorded(&input, SUSPENDED, &[]);
    let refused = Rocpd.read_facts(&input, &clock("gpu-2")).expect_err("another host").to_string();
    assert!(refused.contains("its host gpu-1 was suspended") && refused.contains("--suspended"), "{refused}");
    let of_rocprofv3 = [&region(BOOT + 1, BOOT + 2)[..], &[("event_id", Value::from(5))]].concat();
    let without_event = region(BOOT + 1, BOOT + 2);
    for (name, row) in [("v3", &of_rocprofv3[..]), ("no_event", &without_event[..])] {
        let input = folder.path().join(format!("{name}.db"));
        recorded(&input, SUSPENDED, &[("rocpd_region", row)]);
        let refused = written(&input, Some(SUSPENDED)).expect_err("no clock is known");
        assert!(refused.contains("row 3: has no category to determine its clock"), "{refused}");
    }
}

/// A region with this name and event.
fn named(name: i64, event: i64, start: i64, end: i64) -> Vec<(&'static str, Value)> {
    let times = region(start, end).into_iter().filter(|(column, _)| *column != "name_id");
    times.chain([("name_id", name.into()), ("event_id", event.into())]).collect()
}

fn string(id: i64, text: &str) -> [(&'static str, Value); 2] {
    [("id", id.into()), ("string", text.to_owned().into())]
}

#[test]
fn markers_in_rows_of_the_profiler_itself_are_on_the_boot_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input.db");
    let own = BOOT - SUSPENDED;
    let (first, second) =
        (string(6, "probe_sync.clock#1700000000000000000"), string(7, "clkmark#5#1700000000000000300"));
    let (behind, not_behind) = (named(6, 1, own + 500, own + 501), named(7, 2, BOOT + 800, BOOT + 801));
    let message = ("extdata", Value::from("{\"message\": \"probe_sync.clock#1700000000000000600\"}".to_owned()));
    let event = [("id", Value::from(6)), ("category_id", 3.into()), message];
    let sample = [("track_id", Value::from(1)), ("timestamp", (own + 1_100).into()), ("event_id", 6.into())];
    let rows: Rows<'_> = &[
        ("rocpd_string", &first),
        ("rocpd_string", &second),
        ("rocpd_event", &event),
        ("rocpd_region", &behind),
        ("rocpd_region", &not_behind),
        ("rocpd_sample", &sample),
    ];
    recorded(&input, SUSPENDED, rows);
    let facts = Rocpd.read_facts(&input, &clock("gpu-1")).expect("facts");
    let mut pairs: Vec<(i64, i64)> = facts
        .pairs
        .iter()
        .map(|pair| ((pair.tracer_ps / 1000) as i64 - BOOT, pair.system_ns - 1_700_000_000_000_000_000))
        .collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(500, 0), (800, 300), (1_100, 600)]);
}

#[test]
fn calls_of_nccl_in_rows_of_the_profiler_itself_are_on_the_boot_clock_and_in_its_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input.db");
    let own = BOOT - SUSPENDED;
    let names = [string(6, "ncclAllReduce"), string(7, "ncclGroupStart"), string(8, "ncclGroupEnd")];
    // A call alone, and one of rocprofiler-sdk inside a group of the profiler's own.
    let regions = [
        named(6, 1, own + 400, own + 450),
        named(7, 1, own + 500, own + 510),
        named(6, 2, BOOT + 520, BOOT + 530),
        named(8, 1, own + 540, own + 600),
    ];
    let mut rows: Vec<(&str, &[(&str, Value)])> = Vec::new();
    rows.extend(names.iter().map(|row| ("rocpd_string", &row[..])));
    rows.extend(regions.iter().map(|row| ("rocpd_region", &row[..])));
    recorded(&input, SUSPENDED, &rows);
    let facts = Rocpd.read_facts(&input, &clock("gpu-1")).expect("facts");
    let mut found: Vec<(i64, i64)> = facts
        .collectives
        .events()
        .iter()
        .map(|event| ((event.start_ps / 1000) as i64 - BOOT, (event.end_ps / 1000) as i64 - BOOT))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(400, 450), (520, 600)]);
}
