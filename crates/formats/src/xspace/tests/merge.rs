//! Several nodes in one file.

use super::*;

/// Merges and decodes names and ids: planes, lines, hosts.
fn merged(paths: &[PathBuf], layout: PlaneLayout, files: &Files) -> (Vec<u8>, MergeStats) {
    let shifts = (0..).map(|node| Picoseconds::from(node) * 1_000_000_000);
    let mut maps = shifts.map(|shift| move |time: Picoseconds| time - shift).take(paths.len()).collect::<Vec<_>>();
    let mut inputs = paths.iter().zip(maps.iter_mut()).zip(0..).map(|((path, map), node)| MergeInput {
        path: path.clone(),
        part: node,
        name: format!("node{node}"),
        map,
        metadata: Vec::new(),
        reach: None,
        known: None,
    });
    let mut inputs = inputs.by_ref().collect::<Vec<_>>();
    let metadata = vec![("method".to_owned(), "by hand".to_owned()), ("version".to_owned(), "1".to_owned())];
    let options = MergeOptions { layout, metadata, ..MergeOptions::default() };
    let stats = merge(&mut inputs, &files.path("merged"), &options).expect("merged");
    (std::fs::read(files.path("merged")).expect("the merged file"), stats)
}

#[test]
fn a_merged_file_has_every_event_and_no_name_or_id_twice() {
    let Some(folder) = data() else { return };
    let files = Files::new();
    let real = real_files(&folder);
    for layout in [PlaneLayout::Xprof, PlaneLayout::GpuTracks] {
        let (bytes, stats) = merged(&real, layout, &files);
        let before = real.iter().map(|path| seen(&std::fs::read(path).expect("input")).len()).sum::<usize>();
        assert_eq!(seen(&bytes).len(), before);
        assert_eq!(stats.inputs.iter().map(|input| input.events).sum::<u64>(), before as u64);
        let planes = children(&bytes, 1);
        let lines = planes.iter().flat_map(|plane| children(plane, 3)).collect::<Vec<_>>();
        distinct(planes.iter().map(|plane| plane_name(plane)));
        distinct(planes.iter().map(|plane| last_number(plane, 1).expect("an id")));
        distinct(lines.iter().map(|line| last_number(line, 1).expect("an id")));
        distinct(children(&bytes, 4));
        assert_eq!(stats.stride, 8, "the largest of the real files has 8 devices");
    }
}

fn distinct<T: std::hash::Hash + Eq + std::fmt::Debug + Clone>(all: impl IntoIterator<Item = T>) {
    let mut known = std::collections::HashSet::new();
    for one in all {
        assert!(known.insert(one.clone()), "{one:?} twice");
    }
}

#[test]
fn planes_of_merged_files_are_called_as_viewers_expect() {
    let files = Files::new();
    let line = || Message::default().number(1, 17).number(10, 17).message(4, event(1, 5_000, 10));
    let link = Message::default().number(1, 2).number(3, 99);
    let linked = Message::default().number(1, 17).message(4, event(1, 6_000, 10).message(4, link));
    let gpu = |ordinal: i64| Message::default().number(1, ordinal).text(2, &format!("/device:GPU:{ordinal}"));
    let bytes = space(&[
        Message::default().text(2, "/host:CPU").message(3, line()),
        gpu(0).message(3, linked).entry(5, 2, "correlation_id"),
        gpu(1).message(3, line()),
    ]);
    let paths = [files.put("first", &bytes), files.put("second", &bytes)];
    let check = |layout: PlaneLayout, expected: &[(&str, i64)]| {
        let (bytes, stats) = merged(&paths, layout, &files);
        let planes = children(&bytes, 1).into_iter().map(|plane| (plane_name(plane), last_number(plane, 1)));
        let devices = planes.filter(|(name, _)| name.starts_with("/")).collect::<Vec<_>>();
        assert_eq!(devices.len(), expected.len());
        for ((name, id), (expected_name, expected_id)) in devices.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!(*expected_id < 0 || *id == Some(*expected_id), "{name}: {id:?}");
        }
        // The second node's map puts it 1 ms earlier, which is the common base.
        assert_eq!(stats.base_ns, START_NS - 1_000_000);
        let links =
            seen(&bytes).into_iter().flat_map(|event| event.numbers).map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(links, [99, 99 + (1 << 44)]);
        let hosts = children(&bytes, 4).into_iter().map(|host| String::from_utf8_lossy(host).into_owned());
        assert_eq!(hosts.collect::<Vec<_>>(), ["host7 (node0)", "host7 (node1)"]);
        let last = *children(&bytes, 1).last().expect("a plane");
        assert_eq!(plane_name(last), "probe_sync");
        assert_eq!(names(last, 5)[&1], "method");
        for line in children(&bytes, 1).iter().flat_map(|plane| children(plane, 3)) {
            let display = last_number(line, 10);
            assert!(display.is_none() || display == last_number(line, 1), "a display id follows its line");
        }
    };
    let devices = ("/device:GPU:0", 0);
    let others = [("/device:GPU:2", 2), ("/device:GPU:3", 3)];
    let first = [("/host:CPU", -1), devices, ("/device:GPU:1", 1)];
    check(PlaneLayout::Xprof, &[&first[..], &[("/host:CPU node1", -1)], &others].concat());
    check(PlaneLayout::GpuTracks, &[&first[..], &[("/device:GPU:4 node1 /host:CPU", 4)], &others].concat());
}
