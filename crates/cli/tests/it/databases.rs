//! `align` and `merge` of databases of rocprofv3, on sets whose clocks are known exactly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use probe_sync_rocpd::schema::{self, Version};
use probe_sync_rocpd::writer::{Process, Region, Settings, Writer};
use rusqlite::{Connection, ToSql, params};
use serde_json::Value;

use crate::boot_clock::{Set, run};
use crate::support::{complaint, probe_sync, text, wait};

/// By process: how much later than the true time its markers are stamped, ns. The tracer stamps
/// some microseconds after the program has read the time.
fn delays(database: &Path) -> BTreeMap<String, Vec<i64>> {
    let connection = Connection::open(database).expect("a database");
    let sql = "SELECT s.guid, s.timestamp, e.extdata FROM rocpd_sample s JOIN rocpd_event e ON e.id = s.event_id AND e.guid = s.guid";
    let mut statement = connection.prepare(sql).expect("its views");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?)));
    let mut delays: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for row in rows.expect("rows") {
        let (guid, stamped, extdata) = row.expect("a row");
        let extdata: Value = serde_json::from_str(&extdata).expect("JSON");
        let truth =
            extdata["message"].as_str().and_then(|message| message.strip_prefix("clkmark#")?.parse::<i64>().ok());
        delays.entry(guid).or_default().extend(truth.map(|truth| stamped - truth));
    }
    delays
}

/// Every process's markers are as late as those of the others, and by no more than a tracer takes.
fn check_truth(delays: &BTreeMap<String, Vec<i64>>, nodes: usize) {
    assert_eq!(delays.len(), nodes);
    let median = |delays: &Vec<i64>| {
        let mut sorted = delays.clone();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let medians: Vec<i64> = delays.values().map(median).collect();
    let spread = medians.iter().max().expect("nodes") - medians.iter().min().expect("nodes");
    assert!(spread <= 3_000, "{medians:?} ns");
    let all = delays.values().flatten();
    assert!(all.clone().count() >= 10 * nodes && all.clone().all(|delay| (0..20_000).contains(delay)), "{delays:?}");
}

#[test]
fn databases_of_all_nodes_are_on_one_clock_alone_and_together() {
    for (name, nodes) in [("a_2node", 2), ("b_4node_offset_drift", 4)] {
        let Some(set) = Set::find(name, nodes) else { return };
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
        let clocks: [(&str, &[PathBuf]); 2] = [("--offsets", &offsets), ("--snapshots", &pairs)];
        let together = [scratch.path().join("all.db")];
        let alone = [scratch.path().join("aligned")];
        for (command, output) in [("merge", &together), ("align", &alone)] {
            let files = [&clocks[..], &[("--output", &output[..])]].concat();
            let done = run(command, &set.databases(), &["--assume-order", "--validate"], &files);
            assert!(done.status.success(), "{}", complaint(&done));
            let said = String::from_utf8_lossy(&done.stdout);
            assert_eq!(said.matches("moved to another clock").count(), nodes, "{said}");
        }
        check_truth(&delays(&together[0]), nodes);
        let mut each = BTreeMap::new();
        for node in 0..nodes {
            each.extend(delays(&alone[0].join(format!("node{node}_results.db"))));
        }
        assert_eq!(each, delays(&together[0]));
        // Once more would be wrong by decades.
        let again = run(
            "align",
            &[alone[0].join("node1_results.db")],
            &["--nodes", "1"],
            &[("--offsets", &offsets), ("--output", &[scratch.path().join("again.db")])],
        );
        assert!(!again.status.success() && complaint(&again).contains("already aligned"), "{}", complaint(&again));
    }
}

/// Regions that both processes have at the same moments, on CLOCK_BOOTTIME as rocprofv3, for as
/// long as the run goes on.
fn recorded_beside(run: &mut Child, folder: &Path) -> Vec<PathBuf> {
    let writers: Vec<Writer> = (0..2)
        .map(|rank| {
            let output = folder.join(format!("host{rank}/1_results.db"));
            let mut process = Process::current();
            process.guid = format!("0000000{rank}-0000-7000-8000-000000000000");
            Writer::open(Settings { output, ..Settings::default() }, process).expect("a new file")
        })
        .collect();
    let threads: Vec<_> = writers.iter().map(|writer| writer.thread(1, Some("main"))).collect();
    let names: Vec<_> = writers.iter().map(|writer| writer.intern("step")).collect();
    while run.try_wait().expect("our own child").is_none() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let start_ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        for (thread, &name) in threads.iter().zip(&names) {
            assert!(thread.region(Region {
                name,
                category: name,
                start_ns,
                end_ns: start_ns + 7_000,
                ..Region::default()
            }));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let paths = writers.iter().map(|writer| writer.path().to_owned()).collect();
    drop(threads);
    writers.into_iter().for_each(|writer| assert_eq!(writer.finish().expect("written").dropped, 0));
    paths
}

/// The way of docs/guide/rocprof.md: a run beside the job, databases on each node's boot clock, one
/// database of all. The ranks' system clocks differ by injected errors and their boot clock is one,
/// so what both have recorded at one moment must be at one moment again.
#[test]
fn a_run_beside_the_job_puts_its_databases_on_one_clock() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let run_dir = [scratch.path().join("run")];
    let flags = ["run", "--local", "2", "--duration", "5s", "--window", "500ms", "--fixed", "--inject-skew", "7"];
    let mut measuring = probe_sync(&flags);
    measuring.args(["--tracer-clock", "boottime", "--snapshot-pair-period-ms", "100", "--out"]).arg(&run_dir[0]);
    let mut child = measuring.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let databases = recorded_beside(&mut child, &scratch.path().join("traces"));
    assert!(wait(child).status.success());
    let merged = [scratch.path().join("job.db")];
    let files: [(&str, &[PathBuf]); 2] = [("--run-dir", &run_dir), ("--output", &merged)];
    // What was recorded before the first window and after the last is no matter here.
    let done = run("merge", &databases, &["--nodes", "0", "1", "--extrapolate", "10s"], &files);
    assert!(done.status.success(), "{}", complaint(&done));
    let connection = Connection::open(&merged[0]).expect("a database");
    let mut statement =
        connection.prepare("SELECT start FROM rocpd_region WHERE guid = ?1 ORDER BY id").expect("its views");
    let mut starts = |rank: usize| -> Vec<i64> {
        let rows = statement.query_map([format!("0000000{rank}-0000-7000-8000-000000000000")], |row| row.get(0));
        rows.expect("rows").collect::<Result<_, _>>().expect("rows")
    };
    let (zero, one) = (starts(0), starts(1));
    assert!(zero.len() == one.len() && zero.len() > 100, "{} and {}", zero.len(), one.len());
    // The first and the last half second are extrapolated.
    let inside = 50..zero.len() - 50;
    let mut apart: Vec<i64> = zero[inside.clone()].iter().zip(&one[inside]).map(|(a, b)| (a - b).abs()).collect();
    apart.sort_unstable();
    let [median, worst] = [apart[apart.len() / 2], apart[apart.len() - 1]];
    println!("the same moment in two databases: {median} ns apart, at worst {worst}, of {} moments", apart.len());
    assert!(median < 2_000 && worst < 50_000, "{median} ns, at worst {worst}");
}

#[test]
fn one_bad_database_of_many_is_named_and_may_be_left_out() {
    let Some(set) = Set::find("b_4node_offset_drift", 4) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
    let mut databases = set.databases();
    let whole = std::fs::read(&databases[2]).expect("a database");
    databases[2] = scratch.path().join("node2_results.db");
    // Where no fact is looked for: a page of arguments.
    let mut damaged = whole.clone();
    let middle = whole.len() / 8192 * 4096;
    damaged[middle..middle + 4096].fill(0x5a);
    for bad in [&whole[..whole.len() / 2], &damaged[..]] {
        std::fs::write(&databases[2], bad).expect("written");
        let output = [scratch.path().join("all.db")];
        let files: [(&str, &[PathBuf]); 3] = [("--offsets", &offsets), ("--snapshots", &pairs), ("--output", &output)];
        let refused = run("merge", &databases, &["--assume-order"], &files);
        assert_eq!(refused.status.code(), Some(1), "{}", complaint(&refused));
        assert!(complaint(&refused).contains(text(&databases[2])) && !output[0].exists(), "{}", complaint(&refused));
        let done = run("merge", &databases, &["--assume-order", "--skip-bad"], &files);
        let said = complaint(&done);
        assert!(done.status.success() && said.contains("skipped") && said.contains(text(&databases[2])), "{said}");
        check_truth(&delays(&output[0]), 3);
        std::fs::remove_file(&output[0]).expect("written");
    }
}

/// A process of rocprof-sys on a host that was suspended for so long: its function `main` around a
/// call of HIP around a kernel, at known times of the boot clock; `main` is stamped with
/// CLOCK_MONOTONIC.
fn recorded_by_rocprof_sys(path: &Path, host: &str, number: u32, boot_ns: i64, suspended_ns: i64) {
    let guid = format!("0000000{number}-0000-7000-8000-00000000000{number}");
    let suffix = schema::suffix_of(&guid);
    let out = Connection::open(path).expect("a new file");
    for table in schema::tables(&suffix, &guid) {
        out.execute_batch(&table.sql).expect("a table");
    }
    let put = |base: &str, columns: &str, values: &[&dyn ToSql]| {
        let marks = vec!["?"; values.len()].join(", ");
        out.execute(&format!("INSERT INTO {base}{suffix} ({columns}) VALUES ({marks})"), values).expect("a row");
    };
    out.execute_batch("PRAGMA foreign_keys = OFF").expect("set");
    for (tag, value) in schema::tags(Version::Three, &suffix, &guid, "") {
        put("rocpd_metadata", "tag, value", params![tag, value]);
    }
    put("rocpd_info_node", "id, hash, machine_id, hostname", params![1, 1, "0", host]);
    let own_ns = boot_ns - suspended_ns;
    let environment = format!(r#"{{"RANK": "{number}", "WORLD_SIZE": "2"}}"#);
    let process = params![5, 1, 1, 5, own_ns, own_ns + 1_000_000, environment];
    put("rocpd_info_process", "id, nid, ppid, pid, start, \"end\", environment", process);
    for (id, name) in
        [(1, "host"), (2, "rocm_hip_api"), (3, "rocm_kernel_dispatch"), (4, "main"), (5, "hipLaunchKernel")]
    {
        put("rocpd_string", "id, string", params![id, name]);
    }
    for category in 1..=3 {
        put("rocpd_event", "id, category_id", params![category, category]);
    }
    let region = "nid, pid, tid, start, \"end\", name_id, event_id";
    put("rocpd_region", region, params![1, 5, 5, own_ns + 100_000, own_ns + 900_000, 4, 1]);
    put("rocpd_region", region, params![1, 5, 5, boot_ns + 200_000, boot_ns + 210_000, 5, 2]);
    let dispatch = "nid, pid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, workgroup_size_x, workgroup_size_y, workgroup_size_z, \
                    grid_size_x, grid_size_y, grid_size_z, start, \"end\", event_id";
    let one = 1;
    let kernel =
        params![one, 5, one, one, one, one, one, one, one, one, one, one, one, boot_ns + 220_000, boot_ns + 300_000, 3];
    put("rocpd_kernel_dispatch", dispatch, kernel);
}

#[test]
fn rows_of_two_clocks_of_one_host_are_brought_to_one_and_then_aligned() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| scratch.path().join(name);
    const UNIX_NS: i64 = 1_795_000_000_000_000_000;
    const SUSPENDED_NS: i64 = 11_525_000_000_123;
    let (mut databases, mut pairs) = (Vec::new(), Vec::new());
    for (node, host, boot_ns, suspended_ns) in
        [(0, "gpu-01", 40_000_000_000_000, SUSPENDED_NS), (1, "gpu-02", 95_000_000_000_000, 0)]
    {
        databases.push(at(&format!("node{node}_results.db")));
        recorded_by_rocprof_sys(&databases[node as usize], host, node, boot_ns, suspended_ns);
        let pair = |second: i64| {
            let (system, boot) = (UNIX_NS + second * 1_000_000_000, boot_ns + second * 1_000_000_000);
            // Node 1's system clock is 2.5 ms ahead.
            let system = system + i64::from(node) * 2_500_000;
            format!(
                "{{\"sys_clock_ns\":{system},\"tracer_clock_ns\":{boot},\"bracket_ns\":100,\"tracer_clock\":\"boottime\"}}\n"
            )
        };
        pairs.push(at(&format!("node{node}.jsonl")));
        std::fs::write(&pairs[node as usize], (-2..4).map(pair).collect::<String>()).expect("written");
    }
    let sample = |second: i64| format!("1,{},2500000\n", UNIX_NS + second * 1_000_000_000);
    let offsets = [at("offsets.csv")];
    let table: String = (-2..4).map(sample).collect();
    std::fs::write(&offsets[0], format!("node,node_realtime_ns,offset_vs_node0_ns\n{table}")).expect("written");
    let (all, folder) = ([at("all.db")], [at("aligned")]);
    let clocks: [(&str, &[PathBuf]); 2] = [("--offsets", &offsets), ("--snapshots", &pairs)];
    let done = |command: &str, output: &[PathBuf], more: &[&str]| {
        let flags = [&["--nodes", "0", "1"][..], more].concat();
        run(command, &databases, &flags, &[&clocks[..], &[("--output", output)]].concat())
    };
    // What cannot be on one clock is not taken for one.
    let refused = done("merge", &all, &[]);
    assert!(
        !refused.status.success() && complaint(&refused).contains("they use two clocks"),
        "{}",
        complaint(&refused)
    );
    let suspended = format!("gpu-01={SUSPENDED_NS}ns");
    let of_one = ["--cpu-clock", "monotonic", "--suspended", &suspended];
    let refused = done("merge", &all, &of_one);
    assert!(complaint(&refused).contains("its host gpu-02 was suspended"), "{}", complaint(&refused));
    assert!(!all[0].exists());
    let of_both = [&of_one[..], &["gpu-02=0s"]].concat();
    for (command, output) in [("merge", &all), ("align", &folder)] {
        let done = done(command, output, &of_both);
        assert!(done.status.success(), "{}", complaint(&done));
    }
    let times = |database: &Path| -> Vec<(i64, i64)> {
        let out = Connection::open(database).expect("a database");
        let both = "SELECT start, \"end\" FROM rocpd_region UNION ALL SELECT start, \"end\" FROM rocpd_kernel_dispatch ORDER BY 1, 2";
        let mut statement = out.prepare(both).expect("its views");
        let rows =
            statement.query_map([], |row| Ok((row.get::<_, i64>(0)? - UNIX_NS, row.get::<_, i64>(1)? - UNIX_NS)));
        rows.expect("rows").map(|row| row.expect("times")).collect()
    };
    let [main, call, kernel] = [(100_000, 900_000), (200_000, 210_000), (220_000, 300_000)];
    assert_eq!(times(&all[0]), [main, main, call, call, kernel, kernel]);
    for node in 0..2 {
        assert_eq!(times(&folder[0].join(format!("node{node}_results.db"))), [main, call, kernel]);
    }
    // The flag is of databases that are not on one clock yet.
    let again = run("merge", &all, &[&["--no-correction"][..], &of_both].concat(), &[("--output", &[at("again.db")])]);
    assert!(complaint(&again).contains("already converted to one clock"), "{}", complaint(&again));
}
