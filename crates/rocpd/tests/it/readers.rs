//! rocprofv3's own readers on what the writer has written: they open, query, sum up and merge it,
//! and give the sums that were written.
//!
//! They run where ROCPD_SRC names rocprofiler-sdk's `source` folder, ROCPD_TOOL a script that runs
//! its Python modules without ROCm, and ROCPD_PYTHON a Python that has pandas.

use std::path::{Path, PathBuf};
use std::process::Command;

use probe_sync_rocpd::writer::{Process, Settings, Writer};

use crate::writer::{check_whole, number, read, record_all};

const COUNTS: [i64; 2] = [300, 500];

/// Databases of two processes with one pid on two hosts.
fn databases(folder: &Path) -> Vec<PathBuf> {
    let written = COUNTS.into_iter().enumerate().map(|(host, count)| {
        let current = Process::current();
        let guid = format!("{host:08}{}", &current.guid[8..]);
        let process = Process { hostname: format!("host{host}"), machine_id: format!("m{host}"), guid, ..current };
        let settings = Settings { output: folder.join("%hostname%_%pid%.db"), ..Settings::default() };
        let writer = Writer::open(settings, process).expect("a writer");
        record_all(&writer, count);
        writer.finish().expect("a report").path
    });
    written.collect()
}

#[test]
fn rocprofv3s_readers_give_the_sums() {
    let [Ok(_), Ok(tool), Ok(python)] = ["ROCPD_SRC", "ROCPD_TOOL", "ROCPD_PYTHON"].map(std::env::var) else {
        return println!("skipped: ROCPD_SRC, ROCPD_TOOL and ROCPD_PYTHON do not name rocprofv3's readers");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let files = databases(folder.path());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.arg(&tool).arg(arguments[0]).arg("-i").args(&files).args(&arguments[1..]).current_dir(folder.path());
        let output = command.output().expect("a Python");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        println!("{said}");
        said
    };
    let all: i64 = COUNTS.iter().sum();
    let opened = run(&["open"]);
    for (view, expected) in [
        ("regions", all),
        ("kernels", all),
        ("memory_copies", all),
        ("region_args", all),
        ("samples", 2 * all),
        ("rocpd_pmc_event", all),
        ("processes", 2),
    ] {
        assert!(opened.lines().any(|line| line == format!("{view} {expected}")), "{view} {expected}: {opened}");
    }
    let has = |said: &str, words: &[&str]| {
        let found = said.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(words));
        assert!(found, "{words:?}: {said}");
    };
    let queried =
        run(&["query", "--query", "SELECT name, count(*) AS n, sum(duration) AS ns FROM kernels GROUP BY name"]);
    has(&queried, &["gemm", "800", "4000"]);
    let summary = run(&["summary"]);
    has(&summary, &["gemm", "800", "4000"]);
    has(&summary, &["MEMORY_COPY_HOST_TO_DEVICE", "800", "5600"]);
    // Markers by their message.
    has(&summary, &["m", "800", "2400"]);
    run(&["merge", "-o", "merged"]);
    let merged = folder.path().join("merged.db");
    check_whole(&merged);
    let connection = read(&merged);
    for (query, expected) in [
        ("SELECT sum(duration) FROM kernels", 5 * all),
        ("SELECT sum(duration) FROM regions", 3 * all),
        ("SELECT sum(size) FROM memory_copies", 1024 * all),
    ] {
        assert_eq!(number(&connection, query), expected, "{query}");
    }
}
