//! Communicators and collectives of databases, alone and of several together.

use super::*;

#[test]
fn communicators_are_told_apart_by_handle_and_sized_by_the_calls_that_made_them() {
    let made = |calls: &[(&str, Arguments<'_>)]| -> Vec<Communicator> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut database = process(folder.path(), 0, "a", "{}");
        for (at, (name, arguments)) in calls.iter().enumerate() {
            database.call(name, 10 * at as i64 + 1, 10 * at as i64 + 5, arguments);
        }
        let known = database.facts().expect("facts").communicators;
        known.into_iter().map(|known| Communicator { made: None, ..known }).collect::<Vec<_>>()
    };
    let of = |size: Option<u32>, rank: Option<u32>| Communicator { named: true, size, rank, ..Communicator::default() };
    let used = ("ncclAllReduce", SUM);
    let other: (&str, Arguments<'_>) = ("ncclAllReduce", &[("comm", "0x66")]);
    let init = |address: &'static str, size: &'static str, rank: &'static str| {
        [("comm", address), ("nranks", size), ("myrank", rank)]
    };
    let (world, pair) = (init("0x55d0", "4", "2"), init("0x66", "2", "1"));
    let (first, second) = (("ncclCommInitRankConfig", &world[..]), ("ncclCommInitRank", &pair[..]));
    assert_eq!(made(&[used, other]), [of(None, None), of(None, None)]);
    assert_eq!(made(&[first, second, used, other]), [of(Some(4), Some(2)), of(Some(2), Some(1))]);
    assert_eq!(made(&[first, second, used]), [of(Some(4), Some(2)), of(Some(2), Some(1))], "one of them unused");
    // Addresses of variables: which is which is not known where they were not made alike.
    let elsewhere = [init("0x7ffe10", "4", "2"), init("0x7ffe18", "4", "2"), init("0x7ffe18", "2", "2")];
    let calls: Vec<(&str, Arguments<'_>)> = elsewhere.iter().map(|call| ("ncclCommInitRank", &call[..])).collect();
    assert_eq!(made(&[calls[0], used]), [of(Some(4), Some(2))]);
    assert_eq!(made(&[calls[0], calls[1], used, other]), [of(Some(4), Some(2)); 2]);
    assert_eq!(made(&[calls[0], calls[2], used, other]), [of(None, None); 2]);
    assert_eq!(made(&[calls[0], used, other]), [of(None, None); 2], "more are used than were made");
    // Each was used before the next was made.
    assert_eq!(made(&[calls[0], used, calls[2], other]), [of(Some(4), Some(2)), of(Some(2), Some(2))]);
    assert_eq!(made(&[calls[2], other, calls[0], used]), [of(Some(2), Some(2)), of(Some(4), Some(2))]);
    let split: (&str, Arguments<'_>) = ("ncclCommSplit", &[("comm", "0x55d0")]);
    assert_eq!(made(&[calls[0], split, used]), [of(None, None)]);
    // An address that was given to a second communicator.
    let again = init("0x55d0", "2", "0");
    assert!(!made(&[first, used, ("ncclCommInitRank", &again[..])])[0].named);
    assert!(!made(&[("ncclAllReduce", &[])])[0].named);
    assert_eq!(made(&[("ncclGroupStart", &[]), ("ncclCommDestroy", SUM), ("ncclGetVersion", &[])]), []);
}

#[test]
fn boot_clocks_of_several_hosts_give_nothing_to_judge() {
    let check = |hosts: [&str; 2], expected: (usize, usize)| {
        let folder = tempfile::tempdir().expect("a folder");
        let ranks = (0..2).zip(hosts).map(|(rank, host): (u32, &str)| {
            let mut database = process(folder.path(), rank, host, &torch(rank, 2));
            let own = rank.to_string();
            // An hour apart in the second host's count.
            let at = if host == "host1" { 3_600_000_000_000 } else { 1 };
            database.call("ncclCommInitRank", at, at + 1, &[("comm", "0x55d0"), ("nranks", "2"), ("myrank", &own)]);
            database.call("ncclAllReduce", at + 100, at + 200, SUM);
            database
        });
        let report = judged(&ranks.collect::<Vec<_>>());
        assert_eq!((report.edges, report.unjudged_edges), expected, "{hosts:?}");
        assert_eq!((report.broken, report.start_gaps), (0, expected.0 / 2), "{hosts:?}");
    };
    check(["host0", "host0"], (2, 0));
    check(["host0", "host1"], (0, 2));
}

/// Four ranks with a communicator of all and one of each pair, {0, 1} and {2, 3}, at the same
/// addresses; how often each rank added up how many in its pair.
fn pairs(folder: &Path, in_pair: &dyn Fn(u32) -> (u32, &'static str)) -> Vec<Database> {
    let ranks = (0..4).map(|rank: u32| {
        let mut database = process(folder, rank, "host0", &torch(rank, 4));
        let (own, place) = (rank.to_string(), (rank % 2).to_string());
        database.call("ncclCommInitRank", 1, 2, &[("comm", "0x55d0"), ("nranks", "4"), ("myrank", &own)]);
        database.call("ncclCommInitRank", 3, 4, &[("comm", "0x66"), ("nranks", "2"), ("myrank", &place)]);
        database.call("ncclAllReduce", 100, 200, SUM);
        let (turns, count) = in_pair(rank);
        for turn in 0..turns {
            let at = 1000 * i64::from(turn + 1);
            database.call("ncclAllReduce", at, at + 100, &[("count", count), ("datatype", "7"), ("comm", "0x66")]);
        }
        database
    });
    ranks.collect()
}

#[test]
fn communicators_of_all_ranks_are_one_and_smaller_ones_where_nothing_else_is_possible() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        path
    };
    // The pairs added up other things, three times and five times: 4 edges in the communicator of
    // all, 2 in each of eight in the pairs.
    let told = pairs(&at("told"), &|rank| if rank < 2 { (3, "64") } else { (5, "32") });
    assert_eq!(counts(&judged(&told)), (4 + 2 * 8, 0, 0));
    // They did the same: {0, 3} and {1, 2} would fit as well.
    let alike = pairs(&at("alike"), &|_| (3, "64"));
    assert_eq!(counts(&judged(&alike)), (4, 0, 3));
    // A rank is missing: its pair's other half is nobody's, and whose the complete one is nothing
    // proves.
    assert_eq!(counts(&judged(&told[..3])).0, 3);
}

#[test]
fn traces_that_end_early_do_not_make_two_communicators_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        path
    };
    // The traces of ranks 1 and 2 lack the last call of their pairs: by counts {0, 3} and {1, 2}
    // would be one.
    let cut = pairs(&at("cut"), &|rank| (if rank == 1 || rank == 2 { 99 } else { 100 }, "64"));
    assert_eq!(counts(&judged(&cut)).0, 4);
    // Or they lack the only one of its kind.
    let mut lost = pairs(&at("lost"), &|_| (3, "64"));
    for rank in [0, 3] {
        lost[rank].call("ncclAllGather", 9_000, 9_100, &[("count", "1"), ("datatype", "7"), ("comm", "0x66")]);
    }
    assert_eq!(counts(&judged(&lost)).0, 4);
    // Those of ranks 1 and 2 begin after their pairs were made.
    let mut late = pairs(&at("late"), &|rank| (if rank == 1 || rank == 2 { 0 } else { 3 }, "64"));
    for rank in [1, 2] {
        let made = format!("DELETE FROM \"rocpd_arg{}\" WHERE event_id = 2", late[rank].suffix);
        late[rank].connection.execute_batch(&made).expect("deleted");
        for turn in 1..4 {
            let at = 1000 * turn;
            late[rank].call("ncclAllReduce", at, at + 100, &[("count", "64"), ("datatype", "7"), ("comm", "0x66")]);
        }
    }
    assert_eq!(counts(&judged(&late)).0, 4);
}

#[test]
fn messages_and_roots_go_by_ranks_in_the_communicator() {
    let folder = tempfile::tempdir().expect("a folder");
    // Ranks of the communicator are those of the job turned around.
    let ranks: Vec<Database> = (0..3)
        .map(|rank: u32| {
            let mut database = process(folder.path(), rank, "host0", &torch(rank, 3));
            let own = 2 - rank;
            let made = [("comm", "0x55d0"), ("nranks", "3"), ("myrank", &own.to_string())];
            database.call("ncclCommInitRank", 1, 2, &made);
            let with = |name: &'static str, value: &'static str| [SUM, &[(name, value)]].concat();
            // From rank 2 of the communicator, which is 0 of the job: it begins late.
            let begin = if rank == 0 { 500 } else { 100 };
            database.call("ncclBroadcast", begin, if rank == 0 { 900 } else { 400 }, &with("root", "2"));
            match rank {
                0 => database.call("ncclSend", 2_000, 2_100, &with("peer", "0")),
                2 => database.call("ncclRecv", 1_000, 1_900, &with("peer", "2")),
                _ => {}
            }
            database
        })
        .collect();
    // Both receivers of the broadcast ended before it began, and so did the receiver of the
    // message.
    let report = judged(&ranks);
    assert_eq!(counts(&report), (3, 3, 0), "{report:?}");
}

#[test]
fn without_the_calls_that_made_it_a_communicator_is_one_where_it_reaches_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let ranks = |name: &str, environment: &dyn Fn(u32) -> String, roots: &[&str], handles: usize| -> Vec<Database> {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        let one = |rank: u32| {
            let mut database = process(&path, rank, &format!("host{rank}"), &environment(rank));
            for (at, root) in roots.iter().enumerate() {
                database.call(
                    "ncclBroadcast",
                    100 * at as i64 + 1,
                    100 * at as i64 + 50,
                    &[SUM, &[("root", root)]].concat(),
                );
            }
            for handle in 1..handles {
                database.call("ncclAllReduce", 5_000, 5_100, &[("comm", &format!("0x{handle}"))]);
            }
            database
        };
        (0..2).map(one).collect()
    };
    let stated = |rank: u32| torch(rank, 2);
    let silent = |_| "{}".to_owned();
    // One it is, but nothing says that both traces begin at one operation of it.
    let unproven = judged(&ranks("all", &stated, &["0", "1"], 1));
    assert_eq!(counts(&unproven), (0, 0, 2));
    assert!(unproven.ambiguous[0].reason.contains("may begin with different ones"), "{unproven:?}");
    // Root 1 was never named: it may be two communicators of one rank each.
    assert_eq!(counts(&judged(&ranks("unreached", &stated, &["0", "0"], 1))), (0, 0, 2));
    assert_eq!(counts(&judged(&ranks("two", &stated, &["0", "1"], 2))).0, 0);
    assert_eq!(counts(&judged(&ranks("of_more", &|rank| torch(rank, 4), &["0", "1"], 1))).0, 0);
    // Whose root 1 is, no order of a list says.
    let unknown = judged(&ranks("silent", &silent, &["0", "1"], 1));
    assert_eq!((unknown.edges, unknown.unordered_parts), (0, 4), "{unknown:?}");
}

#[test]
fn collectives_alone_give_a_helper_its_hosts_boot_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let hour = 3_600_000_000_000;
    let mut databases: Vec<Database> = Vec::new();
    for (rank, ahead) in [(0, hour), (1, 5 * hour)] {
        let mut database = process(folder.path(), rank, &format!("host{rank}"), &torch(rank, 2));
        let made = [("comm", "0x55d0"), ("nranks", "2"), ("myrank", &rank.to_string())];
        database.call("ncclCommInitRank", ahead + 1, ahead + 2, &made);
        for turn in 1..20 {
            let at = ahead + 100_000_000 * turn;
            database.call("ncclAllReduce", at, at + 20_000, SUM);
        }
        databases.push(database);
    }
    // Helpers of both ranks; one of another boot of the second host; one of a host that is not
    // known otherwise.
    for (number, host, at) in
        [(10, "host0", hour), (11, "host1", 5 * hour), (12, "host1", 9 * hour), (13, "host2", hour)]
    {
        let mut helper = process(folder.path(), number, host, "{}");
        helper.call("work", at, at + 1_000, &[]);
        databases.push(helper);
    }
    let traces: Vec<PathBuf> = databases.iter().map(|database| database.path.clone()).collect();
    let request = Request { traces, clocks: ClockSource::Collectives, ..Request::default() };
    let calibrated = calibrate(&request).expect("two ranks");
    assert_eq!(calibrated.timeline, "boot clock of node 0");
    let mapped = |name: &str, at: i64| {
        let trace = calibrated.traces.iter().find(|trace| trace.trace.path.ends_with(name)).expect("it is there");
        trace.map.as_ref().map(|map| map.map(i128::from(at) * 1000).time_ps / 1000)
    };
    assert_eq!(mapped("10_results.db", hour + 7), Some(i128::from(hour + 7)));
    let (helper, rank) = (mapped("11_results.db", 5 * hour + 7), mapped("1_results.db", 5 * hour + 7));
    assert_eq!(helper, rank);
    assert!(helper.is_some_and(|at| (at - i128::from(hour) - 7).abs() < 30_000), "{helper:?}");
    assert_eq!((mapped("12_results.db", 9 * hour), mapped("13_results.db", hour)), (None, None));
}

#[test]
fn calls_in_a_group_last_until_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let ranks: Vec<Database> = (0..2)
        .map(|rank: u32| {
            let mut database = process(folder.path(), rank, "host0", &torch(rank, 2));
            database.call(
                "ncclCommInitRank",
                1,
                2,
                &[("comm", "0x55d0"), ("nranks", "2"), ("myrank", &rank.to_string())],
            );
            // The call returns at once; rank 1 comes to it later.
            let start = 100 + 500 * i64::from(rank);
            database.call("ncclGroupStart", start, start + 1, &[]);
            database.call("ncclAllReduce", start + 2, start + 3, SUM);
            database.call("ncclGroupEnd", start + 4, 1_000, &[]);
            database
        })
        .collect();
    assert_eq!(counts(&judged(&ranks)), (2, 0, 0));
    // The end of a group is not there.
    let mut open = process(folder.path(), 9, "a", "{}");
    open.call("ncclGroupStart", 10, 11, &[]);
    open.call("ncclAllReduce", 12, 13, SUM);
    let facts = open.facts().expect("facts");
    assert_eq!((facts.collectives.len(), facts.collectives.left_out()), (0, 1));
}

#[test]
fn a_group_that_began_before_the_trace_leaves_out_what_may_be_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "a", "{}");
    // The outer group of two began before the trace; a whole one is in it.
    database.call("ncclAllReduce", 10, 11, SUM);
    database.call("ncclGroupEnd", 12, 13, &[]);
    database.call("ncclAllReduce", 14, 15, SUM);
    database.call("ncclGroupStart", 16, 17, &[]);
    database.call("ncclAllReduce", 18, 19, SUM);
    database.call("ncclGroupEnd", 20, 21, &[]);
    database.call("ncclGroupEnd", 22, 23, &[]);
    database.call("ncclAllReduce", 30, 31, SUM);
    let facts = database.facts().expect("facts");
    assert_eq!((facts.collectives.len(), facts.collectives.left_out()), (1, 3), "{:?}", facts.notes);
    let said = facts.notes.join("; ");
    assert!(said.contains("dropped 3 collectives: a group that began before the trace"), "{said}");
}

#[test]
fn a_collective_whose_times_cannot_be_is_left_out_and_its_row_named() {
    for (start, end) in [(200, i64::MIN), (-5, 300), (300, 299), (200, i64::MAX)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut database = process(folder.path(), 0, "a", "{}");
        database.call("ncclAllReduce", 100, 110, SUM);
        database.call("ncclAllReduce", start, end, SUM);
        database.kernel("work", 400, 500);
        let said = |database: &Database| {
            let facts = database.facts().expect("facts");
            (facts.collectives.len(), facts.collectives.left_out(), facts.notes.join("; "))
        };
        let (kept, left_out, notes) = said(&database);
        let place = format!("in the table rocpd_region{}, row 2 lasts from {start} to {end} ns", database.suffix);
        assert!((kept, left_out) == (1, 1) && notes.contains(&place), "{kept} {left_out} {notes}");
        // The same of kernels.
        database.kernel("ncclDevKernel_AllReduce", start, end);
        let (kept, left_out, notes) = said(&database);
        let place =
            format!("in the table rocpd_kernel_dispatch{}, row 2 lasts from {start} to {end} ns", database.suffix);
        assert!((kept, left_out) == (0, 1) && notes.contains(&place), "{kept} {left_out} {notes}");
    }
}

#[test]
fn what_calls_alone_say_holds_only_if_they_wait_and_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    for (kernels, name) in [(false, "calls"), (true, "kernels")] {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        let ranks: Vec<Database> = (0..2)
            .map(|rank: u32| {
                let mut database = process(&path, rank, "host0", &torch(rank, 2));
                let own = rank.to_string();
                let made = [("comm", "0x55d0"), ("nranks", "2"), ("myrank", own.as_str())];
                database.call("ncclCommInitRank", 1, 2, &made);
                for turn in 1..20 {
                    // Rank 1 comes 0.9 ms later each time, and no call waits.
                    let at = 100_000_000 * turn + 900_000 * i64::from(rank);
                    database.call("ncclAllReduce", at, at + 20_000, SUM);
                    if kernels {
                        database.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", at, at + 20_000);
                    }
                }
                database
            })
            .collect();
        let traces: Vec<PathBuf> = ranks.iter().map(|database| database.path.clone()).collect();
        let verdict = calibrate(&Request { traces: traces.clone(), ..Request::default() }).expect("facts");
        let verdict = check(&verdict);
        let (of_calls, text) = (verdict.result.broken_of_calls, verdict.text());
        assert_eq!((verdict.result.broken, of_calls), (19, if kernels { 0 } else { 19 }), "{text}");
        assert_eq!(text.contains("end with a call"), !kernels, "{text}");
        let request = Request { traces, clocks: ClockSource::Collectives, ..Request::default() };
        let found = calibrate(&request).expect("two ranks").collectives.expect("asked");
        let text = found.text();
        assert_eq!((found.of_calls, text.contains("certain")), (!kernels, kernels), "{text}");
        assert_eq!(text.contains("hold only if every call waits for its operation"), !kernels, "{text}");
    }
}

#[test]
fn where_kernels_are_in_the_database_calls_are_not_judged() {
    let folder = tempfile::tempdir().expect("a folder");
    let ranks: Vec<Database> = (0..2)
        .map(|rank: u32| {
            let mut database = process(folder.path(), rank, "host0", &torch(rank, 2));
            database.call(
                "ncclCommInitRank",
                1,
                2,
                &[("comm", "0x55d0"), ("nranks", "2"), ("myrank", &rank.to_string())],
            );
            // Calls return before the other rank's have begun; kernels wait for each other.
            let start = 100 + 500 * i64::from(rank);
            database.call("ncclAllReduce", start, start + 3, SUM);
            database.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", start + 4, 1_000);
            database.kernel("Cijk_Ailk", start + 4, 1_000);
            database
        })
        .collect();
    assert_eq!(counts(&judged(&ranks)), (2, 0, 0));
    let mut several = process(folder.path(), 9, "a", "{}");
    several.call("ncclAllReduce", 1, 2, SUM);
    several.call("ncclAllReduce", 3, 4, &[("comm", "0x66")]);
    several.kernel("ncclDevKernel_Generic", 5, 6);
    let facts = several.facts().expect("facts");
    assert_eq!((facts.collectives.len(), facts.communicators.iter().filter(|known| !known.named).count()), (1, 1));
}

#[test]
fn many_rows_of_one_number_do_not_multiply() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "a", "{}");
    database.call("ncclAllReduce", 10, 20, SUM);
    let (suffix, guid) = (database.suffix.clone(), database.guid());
    let counted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)";
    // Calls and arguments of event 1; names, events and kernels of a table that has no key.
    let rows = format!(
        "BEGIN;
         {counted} INSERT INTO \"rocpd_arg{suffix}\" (guid, event_id, name, value) SELECT '{guid}', 1, 'comm', i FROM n;
         {counted} INSERT INTO \"rocpd_region{suffix}\" (guid, nid, pid, tid, start, \"end\", name_id, event_id)
            SELECT '{guid}', 7, 1, 1, 100 * i, 100 * i + 5, 1, 1 FROM n;
         DROP TABLE \"rocpd_event{suffix}\";
         CREATE TABLE \"rocpd_event{suffix}\" (id INTEGER, guid TEXT, extdata JSONB);
         {counted} INSERT INTO \"rocpd_event{suffix}\" SELECT 1, '{guid}', '{{\"message\": \"probe_sync.clock#5\"}}' FROM n;
         COMMIT;"
    );
    database.connection.execute_batch(&rows).expect("rows");
    let facts = database.facts().expect("facts");
    assert_eq!((facts.collectives.len(), facts.pairs.len()), (20_001, 0));
    assert!(facts.communicators.iter().all(|known| !known.named), "{:?}", facts.communicators);
    let told = |parts: &[&str]| facts.notes.iter().any(|note| parts.iter().all(|part| note.contains(part)));
    assert!(told(&["20001 NCCL or RCCL calls", "more than 64 arguments", "rocpd_arg_"]), "{:?}", facts.notes);
    assert!(told(&["rocpd_event_", "several rows with the same id"]), "{:?}", facts.notes);
    // So do names and kernels.
    let rows = format!(
        "BEGIN;
         DROP TABLE \"rocpd_string{suffix}\";
         CREATE TABLE \"rocpd_string{suffix}\" (id INTEGER, guid TEXT, string TEXT);
         {counted} INSERT INTO \"rocpd_string{suffix}\" SELECT 1, '{guid}', 'ncclAllReduce' FROM n;
         DROP TABLE \"rocpd_info_kernel_symbol{suffix}\";
         CREATE TABLE \"rocpd_info_kernel_symbol{suffix}\" (id INTEGER, guid TEXT, kernel_name TEXT, display_name TEXT);
         {counted} INSERT INTO \"rocpd_info_kernel_symbol{suffix}\" SELECT 1, '{guid}', 'k.kd', 'ncclDevKernel' FROM n;
         {counted} INSERT INTO \"rocpd_kernel_dispatch{suffix}\" (guid, kernel_id, start, \"end\")
            SELECT '{guid}', 1, 100 * i, 100 * i + 5 FROM n;
         COMMIT;"
    );
    database.connection.execute_batch(&rows).expect("rows");
    assert_eq!(database.facts().expect("facts").collectives.len(), 20_000);
}

#[test]
fn a_damaged_index_hides_no_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "a", "{}");
    let index = format!("CREATE UNIQUE INDEX by_name ON \"rocpd_string{}\" (string)", database.suffix);
    database.connection.execute_batch(&index).expect("an index");
    database.call("ncclAllReduce", 10, 20, SUM);
    assert_eq!(database.facts().expect("facts").collectives.len(), 1);
    let whole = std::fs::read(&database.path).expect("its bytes");
    let name = b"ncclAllReduce";
    let places: Vec<usize> = (0..whole.len()).filter(|at| whole[*at..].starts_with(name)).collect();
    // One is in the table, and one in the index.
    assert_eq!(places.len(), 2);
    let found: Vec<u64> = places
        .iter()
        .map(|at| {
            let mut damaged = whole.clone();
            damaged[*at] = b'x';
            let path = folder.path().join(format!("{at}_results.db"));
            std::fs::write(&path, damaged).expect("written");
            Rocpd.read_facts(&path, &FactOptions::default()).expect("facts").collectives.len()
        })
        .collect();
    assert_eq!(found.iter().sum::<u64>(), 1, "of the two only the table counts: {found:?}");
    assert!(found.contains(&0));
}
