//! What chunks of a file hold, against what align writes of it.

use super::*;
use crate::WantedArgs;
use crate::chunk::Sorter;
use crate::chunk::{Chunk, StringId, TrackKind, Value as Argument};

/// Everything of a file as one chunk, in the order of time.
fn read(path: &Path, shift_ns: i64) -> Result<(Chunk, ChunkStats), Error> {
    let mut sorter = Sorter::default();
    let mut map = |time: Picoseconds| time + Picoseconds::from(shift_ns) * 1000;
    let options =
        ChunkOptions { args: WantedArgs::All, host: "gpu-07".into(), rank: Some(3), ..ChunkOptions::default() };
    let stats = XSpace.read_chunks(path, &options, &mut map, &mut |chunk| sorter.push(chunk, |_, _| true))?;
    let (mut sorted, mut chunk, mut more) = (sorter.finish(0)?, Chunk::default(), Chunk::default());
    assert!(sorted.next(&mut chunk)?);
    chunk.check(0)?;
    assert!(!sorted.next(&mut more)?, "it fits into one chunk");
    Ok((chunk, stats))
}

fn nearest(ps: Picoseconds) -> i64 {
    (ps + 500).div_euclid(1000) as i64
}

#[test]
fn chunks_of_real_files_hold_what_align_writes() {
    let Some(folder) = data() else { return };
    for path in real_files(&folder) {
        let files = Files::new();
        let bytes = std::fs::read(&path).expect("a file");
        let aligned = files.rewritten(&bytes, &RewriteOptions::default(), &mut |time| time + 7_000_000);
        let mut expected: Vec<(String, i64, i64, usize)> = seen(&aligned)
            .into_iter()
            .map(|event| {
                let end = event.start_ps + event.duration_ps;
                // A large unsigned number is a text, since an argument is an `i64`.
                let numbers = event.numbers.iter().filter(|(_, value)| *value >= 0).count();
                (event.name, nearest(event.start_ps), nearest(end), numbers)
            })
            .collect();
        expected.sort();
        let (chunk, stats) = read(&path, 7_000).expect("read");
        let Chunk { strings, slices, args, .. } = &chunk;
        let numbers = |row: usize| {
            let range = slices.args[row].first as usize..(slices.args[row].first + slices.args[row].count) as usize;
            args.value[range].iter().filter(|value| matches!(value, Argument::Integer(0..))).count()
        };
        let row = |row: usize| {
            (strings.text(slices.name[row]).to_owned(), slices.start_ns[row], slices.end_ns[row], numbers(row))
        };
        let mut found: Vec<_> = (0..slices.track.len()).map(row).collect();
        found.sort();
        assert!(!found.is_empty() && stats.events == found.len() as u64, "{}", path.display());
        let other = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!((other, found.len()), (None, expected.len()), "{}", path.display());
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a whole file as its chunks")]
fn planes_are_processes_and_stats_are_arguments() {
    let stat = |number: i64| Message::default().number(1, number);
    let first = event(1, 2_400, 3_000)
        .message(4, stat(1).raw(&[0x11]).raw(&0.25_f64.to_le_bytes()))
        .message(4, stat(2).number(3, -1))
        .message(4, stat(3).number(4, -7))
        .message(4, stat(4).text(5, "ring"))
        .message(4, stat(5).text(6, "program"))
        .message(4, stat(6).number(7, 7))
        .message(4, stat(9).number(3, 8));
    let counted = Message::default().number(1, 1).number(5, 12);
    let host = Message::default()
        .text(2, "/host:CPU")
        .message(
            3,
            Message::default()
                .number(1, 4711)
                .text(2, "python")
                .number(3, 1000)
                .message(4, first)
                .message(4, event(2, 5_600, 0))
                .message(4, counted)
                .text(11, "main"),
        )
        .message(3, Message::default().number(1, 4712).text(2, "no events"))
        .entry(4, 1, "all-reduce.1");
    let host = [(1, "ratio"), (2, "large"), (3, "small"), (4, "algorithm"), (5, "bytes"), (6, "name"), (7, "psum.3")]
        .into_iter()
        .fold(host, |host, (number, name)| host.entry(5, number, name));
    let line = Message::default().number(1, 14).number(3, 1003).message(4, event(1, 0, 9_000));
    let device = Message::default().text(2, "/device:GPU:0").message(3, line).entry(4, 1, "AllReduceKernel");
    let snapshots =
        Message::default().text(2, "/host:snapshots").message(3, Message::default().message(4, event(1, 0, 0)));
    let files = Files::new();
    let path = files.put("in", &space(&[host, snapshots, device]));
    let (chunk, stats) = read(&path, 0).expect("read");
    assert_eq!((stats.events, stats.untimed), (3, 1));
    assert!(stats.notes.len() == 1 && stats.notes[0].starts_with("/host:snapshots: "), "{:?}", stats.notes);
    let tracks: Vec<(String, Option<u32>)> =
        chunk.tracks.iter().map(|track| (track.label(), track.parent.map(|parent| parent.0))).collect();
    let expected = [
        ("rank 3 · gpu-07 · /host:CPU", None),
        ("main", Some(0)),
        ("rank 3 · gpu-07 · /device:GPU:0", None),
        ("line 14", Some(2)),
    ];
    assert_eq!(tracks, expected.map(|(name, parent)| (name.to_owned(), parent)));
    assert_eq!(chunk.tracks[1].kind, TrackKind::Thread { tid: 4711 });
    assert_eq!(chunk.tracks[3].kind, TrackKind::Stream);
    let text = |id: StringId| chunk.strings.text(id);
    let slices: Vec<_> = (0..3)
        .map(|row| {
            let of = &chunk.slices;
            (text(of.name[row]), of.start_ns[row] - START_NS, of.end_ns[row] - START_NS, of.track[row].0)
        })
        .collect();
    // Each end to its nearest nanosecond.
    assert_eq!(
        slices,
        [("all-reduce.1", 1002, 1005, 1), ("AllReduceKernel", 1003, 1012, 3), ("event 2", 1006, 1006, 1)]
    );
    let shown: Vec<String> = (0..chunk.args.key.len())
        .map(|index| match chunk.args.value[index] {
            Argument::Text(id) => format!("{}={}", text(chunk.args.key[index]), text(id)),
            other => format!("{}={other:?}", text(chunk.args.key[index])),
        })
        .collect();
    let expected = [
        "ratio=Float(0.25)",
        "large=Unsigned(18446744073709551615)",
        "small=Integer(-7)",
        "algorithm=ring",
        "name=psum.3",
        "stat 9=Integer(8)",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn long_names_of_kernels_are_whole() {
    let name = "k".repeat(5000);
    let line = Message::default().message(4, event(1, 0, 9_000));
    let plane = Message::default().text(2, "/device:GPU:0").message(3, line).entry(4, 1, &name);
    let files = Files::new();
    let (chunk, _) = read(&files.put("in", &space(&[plane])), 0).expect("read");
    assert_eq!(chunk.strings.text(chunk.slices.name[0]), name);
}

#[test]
fn an_event_that_ends_before_it_begins_costs_itself() {
    let line =
        [event(1, 0, -1), event(1, 5_000, 1_000)].iter().fold(Message::default(), |line, event| line.message(4, event));
    let plane = Message::default().text(2, "/host:CPU").message(3, line);
    let files = Files::new();
    let path = files.put("in", &space(&[plane]));
    let (chunk, stats) = read(&path, 0).expect("read");
    assert_eq!((chunk.slices.start_ns.len(), stats.left_out), (1, 1));
    let facts = read_facts(&path, &FactOptions::default()).expect("facts");
    assert_eq!(facts.events, 1);
    assert!(facts.warnings[0].starts_with("ignored 1 event (1 with a negative length"), "{:?}", facts.warnings);
}

#[test]
fn an_event_whose_stats_are_damaged_is_refused_with_its_place() {
    let check = |events: &[Message], part: &str| {
        let line = events.iter().fold(Message::default(), |line, event| line.message(4, event));
        let plane = Message::default().text(2, "/host:CPU").message(3, line);
        let files = Files::new();
        let said = read(&files.put("in", &space(&[plane])), 0).expect_err(part).to_string();
        assert!(said.contains(part) && said.contains("byte"), "{said}");
    };
    let wrong = event(1, 0, 1).message(4, Message::default().text(1, "a"));
    check(&[wrong], "a stat's metadata_id is not a number");
}
