//! Tests of `stragglers` and `merge --mark-late` on a synthetic job with known delays and clocks.
//!
//! Every rank computes, joins a collective, computes, joins a barrier; an operation ends a transfer
//! after its last arrival. Each host's clock is wrong by an offset and a rate, and its markers are
//! late by 13 to 40 µs, as torch's are. Single operations are tested in the crate `analysis`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{complaint, output, probe_sync, text};

/// A job of gloo collectives.
#[derive(Copy, Clone)]
struct Job {
    ranks: usize,
    per_host: usize,
    steps: usize,
    /// First rank and number of ranks that sleep 5 ms, and the interval in steps at which they do.
    late: Option<(usize, usize, usize)>,
}

const T0_NS: f64 = 1_795_187_162_000_000_000.0;
const SLEEP_NS: f64 = 5e6;

/// Draws that look random, the same each time.
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// What computing differs by, ns.
    fn jitter(&mut self) -> f64 {
        -self.uniform().ln() * 40_000.0
    }
}

impl Job {
    /// What the clock of a host shows before the true time, ns since T0.
    fn ahead(host: usize, since_ns: f64) -> f64 {
        [0.0, 2_500_000.0, -15_000_000.0, 800_000.0][host] + [0.0, 50e-6, -100e-6, 20e-6][host] * since_ns
    }

    /// Writes a trace per rank, and the hosts' offsets.
    #[expect(clippy::too_many_lines, reason = "a whole trace")]
    fn write(self, folder: &Path) -> (Vec<PathBuf>, PathBuf) {
        let mut draws = Draws(11);
        let mut ready = vec![1e9; self.ranks];
        let mut events: Vec<Vec<Value>> = vec![Vec::new(); self.ranks];
        let mut put = |rank: usize, event: Value, from: f64, to: f64| {
            let shown = |time: f64| time + Self::ahead(rank / self.per_host, time);
            let mut event = event;
            event["ts"] = json!((shown(from)).round() / 1000.0);
            event["dur"] = json!((shown(to) - shown(from)).round() / 1000.0);
            (event["ph"], event["pid"]) = ("X".into(), (100 + rank).into());
            events[rank].push(event);
        };
        for step in 0..self.steps {
            let begun = ready.clone();
            for (name, compute_ns) in [("gloo:all_gather", 4e6), ("gloo:barrier", 1e6)] {
                for (rank, ready) in ready.iter_mut().enumerate() {
                    *ready += compute_ns + draws.jitter();
                    let sleeps = |(first, count, every): (usize, usize, usize)| {
                        (first..first + count).contains(&rank) && step % every == 0
                    };
                    if name == "gloo:all_gather" && self.late.is_some_and(sleeps) {
                        *ready += SLEEP_NS;
                    }
                }
                let last = ready.iter().copied().fold(0.0, f64::max);
                for (rank, ready) in ready.iter_mut().enumerate() {
                    let end = last + 150_000.0 + 5000.0 * draws.uniform();
                    let args = json!({"Input Dims": [[256]], "Input type": ["float"]});
                    put(rank, json!({"cat": "user_annotation", "name": name, "tid": 7, "args": args}), *ready, end);
                    *ready = end;
                }
            }
            for (rank, (begun, ready)) in begun.iter().zip(&mut ready).enumerate() {
                put(
                    rank,
                    json!({"cat": "user_annotation", "name": format!("ProfilerStep#{step}"), "tid": 100 + rank}),
                    *begun,
                    *ready,
                );
                let shown = T0_NS as i64 + (*ready + Self::ahead(rank / self.per_host, *ready)) as i64;
                let delay = 13_000.0 + 27_000.0 * draws.uniform();
                put(
                    rank,
                    json!({"cat": "user_annotation", "name": format!("clkmark#{shown}#{shown}"), "tid": 100 + rank}),
                    *ready + delay,
                    *ready + delay + 1000.0,
                );
                *ready += 50_000.0;
            }
        }
        let members: Vec<usize> = (0..self.ranks).collect();
        let mut traces = Vec::new();
        for (rank, mut events) in events.into_iter().enumerate() {
            let about = |name: &str, key: &str, value: &str| json!({"ph": "M", "name": name, "pid": 100 + rank, "tid": 0, "ts": 1e6, "args": {key: value}});
            events.push(about("process_name", "name", "python"));
            events.push(about("process_labels", "labels", "CPU"));
            events.push(json!({"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 1e6, "dur": 5}));
            events.push(json!({"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": 1e6}));
            events.push(json!({"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1.1e6}));
            let group = json!([{"pg_name": "0", "ranks": members, "pg_size": self.ranks}]);
            let document = json!({
                "baseTimeNanoseconds": T0_NS as i64,
                "host_name": format!("host{}", rank / self.per_host),
                "distributedInfo": {"rank": rank, "world_size": self.ranks, "pg_config": group},
                "traceEvents": events,
            });
            let path = folder.join(format!("rank{rank}.json"));
            fs::write(&path, document.to_string()).expect("written");
            traces.push(path);
        }
        let mut table = "node,node_realtime_ns,offset_vs_node0_ns\n".to_owned();
        for host in 0..self.ranks / self.per_host {
            for row in 0..200 {
                let since = f64::from(row) * 20e6;
                let ahead = Self::ahead(host, since);
                table += &format!("{host},{},{}\n", T0_NS as i64 + (since + ahead) as i64, ahead.round());
            }
        }
        let offsets = folder.join("offsets.csv");
        fs::write(&offsets, table).expect("written");
        (traces, offsets)
    }

    /// The command on this job, with more flags; its standard output.
    fn told(self, command: &[&str]) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let (traces, offsets) = self.write(folder.path());
        self.on(&traces, &offsets, command)
    }

    fn on(self, traces: &[PathBuf], offsets: &Path, command: &[&str]) -> String {
        let nodes: Vec<String> = (0..self.ranks).map(|rank| (rank / self.per_host).to_string()).collect();
        let mut arguments = command.to_vec();
        arguments.extend(["--traces"].into_iter().chain(traces.iter().map(|path| text(path))));
        arguments.extend(["--nodes"].into_iter().chain(nodes.iter().map(String::as_str)));
        arguments.extend(["--offsets", text(offsets)]);
        let output = output(probe_sync(&arguments));
        assert!(output.status.success(), "{command:?}: {}", complaint(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn found(self, flags: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[&["stragglers", "--json"], flags].concat())).expect("JSON and nothing else")
    }
}

const FOUR: Job = Job { ranks: 4, per_host: 1, steps: 30, late: None };

#[test]
fn the_rank_that_slept_is_named_with_its_steps_and_what_it_cost() {
    let job = Job { late: Some((2, 1, 3)), ..FOUR };
    for flags in [&[][..], &["--realtime-only"]] {
        let found = job.found(flags);
        let stragglers = found["stragglers"].as_array().expect("a list");
        assert_eq!(stragglers.len(), 1, "{stragglers:?}");
        let one = &stragglers[0];
        let slept: Vec<usize> = (0..30).step_by(3).collect();
        assert_eq!((&one["rank"], &one["host"], &one["steps"]), (&json!(2), &json!("host2"), &json!(slept)), "{one}");
        for saved in one["saved_by_step_ns"].as_array().expect("a list") {
            let saved = saved.as_f64().expect("ns");
            assert!((saved / SLEEP_NS - 1.0).abs() < 0.05, "{saved} ns for {SLEEP_NS}: {one}");
        }
        let total = one["saved_ns"].as_f64().expect("ns");
        assert!((total / (10.0 * SLEEP_NS) - 1.0).abs() < 0.05, "{total}");
        assert!(one["chance"].as_f64().expect("a probability") < 1e-3);
        // The clock that runs ahead is what the traces' own times name.
        assert_eq!(found["as_recorded"]["rank"], 1);
        assert_eq!(found["instances"].as_array().expect("a list").len(), 60);
        assert_eq!(found["schema"], 4);
    }
}

#[test]
fn where_nobody_slept_nobody_is_named() {
    for flags in [&[][..], &["--realtime-only"]] {
        let found = FOUR.found(flags);
        assert_eq!(found["stragglers"], json!([]), "{}", found["stragglers"]);
    }
}

#[test]
fn a_host_that_is_late_as_a_whole_is_named_as_host() {
    let job = Job { ranks: 8, per_host: 2, steps: 30, late: Some((2, 2, 2)) };
    let found = job.found(&[]);
    let stragglers = found["stragglers"].as_array().expect("a list");
    assert_eq!(stragglers.len(), 1, "{stragglers:?}");
    let one = &stragglers[0];
    assert_eq!(
        (&one["rank"], &one["host"], one["steps"].as_array().map(Vec::len)),
        (&json!(null), &json!("host1"), Some(15))
    );
    let saved = one["saved_ns"].as_f64().expect("ns");
    assert!((saved / (15.0 * SLEEP_NS) - 1.0).abs() < 0.05, "{saved}");
}

#[test]
fn what_is_told_fits_the_terminal_and_files_hold_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = Job { ranks: 8, per_host: 2, steps: 16, late: Some((2, 2, 2)) };
    let (traces, offsets) = job.write(folder.path());
    let told = job.on(&traces, &offsets, &["stragglers"]);
    assert!(told.contains("Straggler: all of host host1") && told.contains("Without clock correction"), "{told}");
    for line in told.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    let [json, csv] = ["late.json", "late.csv"].map(|name| folder.path().join(name));
    let again = job.on(&traces, &offsets, &["stragglers", "--json", text(&json), "--csv", text(&csv)]);
    assert_eq!(again, told);
    let found: Value = serde_json::from_slice(&fs::read(&json).expect("written")).expect("JSON");
    let table = fs::read_to_string(&csv).expect("written");
    let mut rows = table.lines();
    let columns = rows.next().expect("a head").split(',').count();
    let mut count = 0;
    for (row, part) in rows.zip(
        found["instances"]
            .as_array()
            .expect("a list")
            .iter()
            .flat_map(|instance| instance["arrivals"].as_array().expect("a list")),
    ) {
        let cells: Vec<&str> = row.split(',').collect();
        assert!(cells.len() >= columns, "{row}");
        let arrival = cells[cells.len() - 6];
        assert_eq!(arrival, part["arrival_ns"].to_string(), "{row}");
        count += 1;
    }
    assert_eq!(count, 16 * 2 * 8);
    assert_eq!(job.on(&traces, &offsets, &["stragglers", "--csv"]), table);
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (traces, offsets) = FOUR.write(folder.path());
    let traces: Vec<&str> = traces.iter().map(|path| text(path)).collect();
    let check = |flags: &[&str], status: i32, part: &str| {
        let mut arguments = vec!["stragglers"];
        arguments.extend(flags);
        let output = output(probe_sync(&arguments));
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {}", complaint(&output));
        assert!(complaint(&output).contains(part) && output.stdout.is_empty(), "{flags:?}: {}", complaint(&output));
    };
    let of_all = [&["--traces"], &traces[..]].concat();
    check(&of_all, 2, "give --run-dir, --offsets or --from-collectives");
    check(&[], 2, "--traces");
    let known = [&of_all[..], &["--nodes", "0", "1", "2", "3", "--offsets", text(&offsets)]].concat();
    check(&[&known[..], &["--step-name", "("]].concat(), 2, "--step-name");
    check(&[&known[..], &["--step-name", "step"]].concat(), 2, "no group for the number");
    check(&[&known[..], &["--json", "--csv"]].concat(), 2, "cannot share an output");
    check(&[&known[..], &["--json", text(&offsets)]].concat(), 2, "would overwrite");
    // One rank alone shares nothing with anybody.
    let alone = output(probe_sync(&["stragglers", "--traces", traces[0]]));
    assert_eq!(alone.status.code(), Some(4), "{}", complaint(&alone));
}

#[test]
fn a_merge_names_its_processes_and_marks_who_was_late() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = Job { late: Some((2, 1, 3)), ..FOUR };
    let (traces, offsets) = job.write(folder.path());
    let merged = |name: &str, flags: &[&str]| {
        let path = folder.path().join(name);
        job.on(&traces, &offsets, &[&["merge", "--output", text(&path)], flags].concat());
        fs::read(&path).expect("written")
    };
    let document: Value = serde_json::from_slice(&merged("all.json", &["--mark-late"])).expect("JSON");
    let events = document["traceEvents"].as_array().expect("a list");
    let named = events.iter().filter(|event| event["name"] == "process_name");
    let mut names: Vec<&str> = named.filter_map(|event| event["args"]["name"].as_str()).collect();
    names.sort_unstable();
    let of_rank = |rank: usize| format!("rank {rank} · host{rank} · python {}", 100 + rank);
    assert!(
        names.len() == 5 && names[0].starts_with("late ranks") && (0..4).all(|rank| names[rank + 1] == of_rank(rank)),
        "{names:?}"
    );
    let late = events
        .iter()
        .filter(|event| event["args"]["last_rank"] == 2 && event["dur"].as_f64().is_some_and(|dur| dur > 4000.0));
    assert_eq!(late.count(), 10);
    // Every event is on one of the five.
    let mut pids: Vec<u64> = events.iter().filter_map(|event| event["pid"].as_u64()).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 5);
    let plain = merged("plain.pftrace", &[]);
    let marked = merged("marked.pftrace", &["--mark-late"]);
    let holds = |bytes: &[u8], part: &str| bytes.windows(part.len()).any(|window| window == part.as_bytes());
    assert!(holds(&marked, "all_gather: rank 2 late by") && !holds(&plain, "late by"));
    assert!(holds(&plain, "rank 2 · host2 · python 102"));
    let mut refused =
        probe_sync(&["merge", "--mark-late", "--output", text(&folder.path().join("all.tar")), "--traces"]);
    let refused = output({
        refused.args(&traces).args(["--nodes", "0", "1", "2", "3", "--offsets", text(&offsets)]);
        refused
    });
    assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
}

#[test]
fn planes_are_marked_as_well() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/jax/a_2node_noskew");
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let path = out.path().join("all.xplane.pb");
    let (traces, offsets) =
        ([0, 1].map(|node| folder.join(format!("node{node}.xplane.pb"))), folder.join("offsets.csv"));
    let job = Job { ranks: 2, per_host: 1, steps: 0, late: None };
    job.on(&traces, &offsets, &["merge", "--mark-late", "--output", text(&path)]);
    let bytes = fs::read(&path).expect("written");
    assert!(bytes.windows(10).any(|window| window == b"late ranks"));
    let found: Value = serde_json::from_str(&job.on(&traces, &offsets, &["stragglers", "--json"])).expect("JSON");
    assert_eq!((found["instances"].as_array().map(Vec::len), &found["as_recorded"]["wrong"]), (Some(12), &json!(0)));
}

#[test]
fn a_late_kernel_is_blamed_on_its_host_or_on_its_device() {
    let folder = tempfile::tempdir().expect("a folder");
    // Starts and launches, µs: rank 2 launches the first late, and its device is busy before the
    // second.
    let operations = [([100, 100, 400], [50, 60, 390]), ([1100, 1100, 1400], [1050, 1060, 1055])];
    let traces: Vec<PathBuf> = (0..3)
        .map(|rank| {
            let mut events = Vec::new();
            for (number, (starts, launches)) in (1..).zip(operations) {
                let args = json!({"Collective name": "allreduce", "Process Group Name": "0", "Seq": number, "Process Group Ranks": "[0, 1, 2]", "correlation": 70 + number});
                let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
                let end = starts[2] + 50;
                let kernel = json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": starts[rank], "dur": end - starts[rank], "args": args});
                let args = json!({"correlation": 70 + number});
                let launch = json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 100 + rank, "tid": 1, "ts": launches[rank], "dur": 5, "args": args});
                events.extend([kernel, launch]);
            }
            let document = json!({"host_name": "gpu-01", "distributedInfo": {"rank": rank, "world_size": 3}, "baseTimeNanoseconds": 0, "traceEvents": events});
            let path = folder.path().join(format!("rank{rank}.json"));
            fs::write(&path, document.to_string()).expect("written");
            path
        })
        .collect();
    // All on one host: no clocks are needed.
    let mut arguments = vec!["stragglers", "--json", "-", "--traces"];
    arguments.extend(traces.iter().map(|path| text(path)));
    let output = output(probe_sync(&arguments));
    assert!(output.status.success(), "{}", complaint(&output));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let instances = found["instances"].as_array().expect("a list");
    let told: Vec<(&Value, &Value, &Value)> = instances
        .iter()
        .map(|instance| (&instance["last_rank"], &instance["late_in"], &instance["arrivals"][2]["launch_ns"]))
        .collect();
    let (cpu, gpu) = ((&json!(2), &json!("cpu"), &json!(390_000)), (&json!(2), &json!("gpu"), &json!(1_055_000)));
    assert_eq!(told, [cpu, gpu]);
    assert_eq!((&found["ranks"][0]["times_cpu"], &found["ranks"][0]["times_gpu"]), (&json!(1), &json!(1)));
}
