//! Files of marks: whole, cut short, of others, and hostile.

use probe_sync_formats::model::Identity;
use proptest::prelude::*;

use super::*;

const TOKEN: MarkToken = MarkToken(0x00ff_0123_4567_89ab);
const EPOCH_NS: i64 = 1_795_187_116_632_205_972;

struct Run(tempfile::TempDir);

impl Run {
    fn new() -> Self {
        let run = Self(tempfile::tempdir().expect("a temporary directory"));
        std::fs::create_dir(run.0.path().join(MARKS_FOLDER)).expect("writable");
        run
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.0.path().join(MARKS_FOLDER).join(name), content).expect("writable");
    }

    /// What becomes of a trace with these stamps: number and ns after the epoch.
    fn join(&self, stamps: &[(MarkToken, u64, i64)]) -> Result<TraceFacts, String> {
        let stamp = |(token, number, ns): &(MarkToken, u64, i64)| MarkStamp {
            token: *token,
            number: *number,
            tracer_ps: i128::from(EPOCH_NS + ns) * 1000,
            unit_ps: 1000,
        };
        let mut facts = TraceFacts { marks: stamps.iter().map(stamp).collect(), ..TraceFacts::default() };
        let files = MarkFiles::in_run(self.0.path()).map_err(|error| error.to_string())?;
        files.join(Path::new("trace.json"), &mut facts).map_err(|error| error.to_string())?;
        Ok(facts)
    }
}

fn file(rank: u32) -> String {
    probe_sync_lines::marks_file(rank, TOKEN)
}

fn header(token: MarkToken, rank: u32, node: u32) -> String {
    format!(
        "{{\"token\":\"{token}\",\"rank\":{rank},\"world_size\":4,\"node_id\":{node},\"hostname\":\"gpu-07\",\
         \"boot_id\":\"b\",\"pid\":42}}\n"
    )
}

fn line(mark: u64, before_ns: i64, after_ns: i64) -> String {
    let (before, after) = (EPOCH_NS.saturating_add(before_ns), EPOCH_NS.saturating_add(after_ns));
    format!("{{\"mark\":{mark},\"before_ns\":{before},\"after_ns\":{after}}}\n")
}

fn bracket(at_ns: i64, before_ns: i64, after_ns: i64) -> Bracket {
    Bracket {
        tracer_ps: i128::from(EPOCH_NS + at_ns) * 1000,
        unit_ps: 1000,
        before_ns: EPOCH_NS + before_ns,
        after_ns: EPOCH_NS + after_ns,
    }
}

#[test]
fn stamps_and_readings_meet_by_token_and_number() {
    let run = Run::new();
    let lines = [line(8, 1_000, 1_450), line(16, 5_000, 5_400), line(24, 9_000, 9_500)];
    run.write(&file(2), (header(TOKEN, 2, 1) + &lines.concat()).as_bytes());
    // Of eight attempts one was kept; the third mark is after the trace.
    let stamps = [(TOKEN, 7, 900), (TOKEN, 8, 1_200), (TOKEN, 16, 5_300), (TOKEN, 17, 6_000)];
    let facts = run.join(&stamps).expect("one process");
    assert_eq!(facts.brackets, [bracket(1_200, 1_000, 1_450), bracket(5_300, 5_000, 5_400)]);
    assert_eq!(facts.notes, Vec::<String>::new());
    let process = facts.identity.process.expect("its file is there");
    assert_eq!((process.rank, process.world_size, process.node_id.0, process.token), (2, 4, 1, TOKEN));
    assert_eq!(super::process(&process), "rank 2 of 4 on node 1 (process 42 of gpu-07)");
}

#[test]
fn no_other_process_s_readings_are_attached() {
    let other = MarkToken(TOKEN.0 + 1);
    let run = Run::new();
    run.write(&file(2), (header(TOKEN, 2, 1) + &line(8, 1_000, 1_450)).as_bytes());
    let facts = run.join(&[(other, 8, 1_200)]).expect("no contradiction");
    assert_eq!((facts.brackets, facts.identity), (vec![], Identity::default()));
    assert!(facts.notes[0].contains("1 of its marks are from a process (00ff0123456789ac) that has no file in"));
    // A file that was renamed, or whose first line is another's.
    run.write(&file(2), (header(other, 2, 1) + &line(8, 1_000, 1_450)).as_bytes());
    let facts = run.join(&[(TOKEN, 8, 1_200)]).expect("no contradiction");
    assert_eq!((facts.brackets, facts.identity), (vec![], Identity::default()));
    let expected = "line 1: it is from process 00ff0123456789ac, contrary to its name; ignored its marks";
    assert!(facts.notes[0].ends_with(expected), "{:?}", facts.notes);
    // Two processes in one trace.
    run.write(&file(2), header(TOKEN, 2, 1).as_bytes());
    run.write(&probe_sync_lines::marks_file(3, other), header(other, 3, 1).as_bytes());
    let refused = run.join(&[(TOKEN, 8, 1_200), (other, 8, 1_300)]).expect_err("whose is it?");
    assert!(
        refused.contains("contains marks of rank 2 of 4 on node 1 (process 42") && refused.contains("and of rank 3")
    );
    // Two sessions of one process, one after the other.
    run.write(&probe_sync_lines::marks_file(3, other), (header(other, 2, 1) + &line(8, 0, 9)).as_bytes());
    let facts = run.join(&[(TOKEN, 8, 1_200), (other, 8, 5)]).expect("one rank");
    assert_eq!(facts.brackets, [bracket(5, 0, 9)]);
}

#[test]
fn without_a_run_s_folder_there_are_no_readings() {
    let run = tempfile::tempdir().expect("a temporary directory");
    let mut facts = TraceFacts::default();
    let stamp = MarkStamp { token: TOKEN, number: 1, tracer_ps: 0, unit_ps: 1000 };
    facts.marks.push(stamp);
    MarkFiles::in_run(run.path()).expect("no folder is no error").join(Path::new("t"), &mut facts).expect("a note");
    MarkFiles::default().join(Path::new("t"), &mut facts).expect("a note");
    assert!(facts.notes[0].contains("that has no file in") && facts.notes[1].contains("in the directory of a run"));
    let mut unmarked = TraceFacts::default();
    MarkFiles::default().join(Path::new("t"), &mut unmarked).expect("nothing");
    assert_eq!(unmarked.notes, Vec::<String>::new());
}

#[test]
fn what_is_odd_is_left_out_and_counted() {
    let stamps = [(TOKEN, 1, 1_200), (TOKEN, 2, 2_200)];
    let check = |lines: &str, expected: &[Bracket], note: Option<&str>| {
        let run = Run::new();
        run.write(&file(0), (header(TOKEN, 0, 0) + lines).as_bytes());
        let facts = run.join(&stamps).expect("one process");
        assert_eq!(facts.brackets, expected, "{lines}");
        assert_eq!(facts.notes.len(), usize::from(note.is_some()), "{:?}", facts.notes);
        assert!(
            note.is_none_or(|note| facts.notes[0].starts_with(&format!("{}: {note}", file(0)))),
            "{:?}",
            facts.notes
        );
    };
    let (one, two) = (line(1, 1_000, 1_450), line(2, 2_000, 2_450));
    let [first, second] = [bracket(1_200, 1_000, 1_450), bracket(2_200, 2_000, 2_450)];
    check(&(one.clone() + &two), &[first, second], None);
    // Still being written.
    for end in 1..two.len() - 2 {
        check(&(one.clone() + &two[..end]), &[first], None);
    }
    check(&(one.clone() + &two[..two.len() - 1]), &[first, second], None);
    check(&(one.clone() + &two[..9] + "\n"), &[first], Some("1 lines were ignored because they are not marks"));
    check(&(one.clone() + "{}\n\n7\n" + &two), &[first, second], Some("2 lines were ignored"));
    check(
        &(one.clone() + &line(2, 2_450, 2_449)),
        &[first],
        Some("1 lines were ignored because they are not marks or end"),
    );
    check(&line(1, 1_200, 1_200), &[bracket(1_200, 1_200, 1_200)], None);
    // A number that is there twice, the same line twice, and a stamp of another number.
    check(&(one.clone() + &line(1, 1_100, 1_300) + &two), &[second], Some("1 marks were ignored because their number"));
    check(&(one.clone() + &one), &[first], None);
    check(&(line(3, 0, 5) + &line(3, 0, 6)), &[], None);
    check(&line(1, 0, 1_000_000), &[bracket(1_200, 0, 1_000_000)], None);
    check(&line(1, 0, 1_000_001), &[], Some("1 marks were ignored because their readings"));
    let huge = format!("{{\"mark\":1,\"before_ns\":{},\"after_ns\":{}}}\n", i64::MIN, i64::MAX);
    check(&huge, &[], Some("1 marks were ignored because their readings"));
    check("{\"mark\":1,\"before_ns\":1e3,\"after_ns\":99999999999999999999}\n", &[], Some("1 lines were ignored"));
    check("{\"mark\":-1,\"before_ns\":1,\"after_ns\":2}\n", &[], Some("1 lines were ignored"));
    // The same stamp twice in the trace, at one time and at two.
    let run = Run::new();
    run.write(&file(0), (header(TOKEN, 0, 0) + &one).as_bytes());
    let brackets = |stamps: &[(MarkToken, u64, i64)]| run.join(stamps).expect("one process").brackets;
    assert_eq!(brackets(&[(TOKEN, 1, 1_200), (TOKEN, 1, 1_200)]), [first]);
    assert_eq!(brackets(&[(TOKEN, 1, 1_200), (TOKEN, 1, 1_201)]), []);
    assert_eq!(brackets(&[(TOKEN, 1, 1_200), (TOKEN, 1, 1_201), (TOKEN, 1, 1_201)]), []);
}

#[test]
fn a_file_that_does_not_say_whose_it_is_is_not_used() {
    let long = "x".repeat(super::super::lines::LONGEST_LINE + 1);
    for (content, expected) in [
        ("", "line 1: it is empty"),
        (&header(TOKEN, 0, 0)[..40], "line 1: it does not identify the process of its marks"),
        (&line(1, 1_000, 1_450), "line 1: it does not identify the process of its marks"),
        (&long, "longer than"),
        (&(header(TOKEN, 0, 0) + &long), "longer than"),
    ] {
        let run = Run::new();
        run.write(&file(0), content.as_bytes());
        let facts = run.join(&[(TOKEN, 1, 1_200)]).expect("a note");
        assert_eq!((&facts.brackets[..], facts.identity.process), (&[][..], None));
        assert!(facts.notes.len() == 1 && facts.notes[0].contains(expected), "{:?}", facts.notes);
    }
}

proptest! {
    /// Whatever the file holds, a bracket holds the readings of a line of that number, and no more
    /// come out than the trace has marks.
    #[test]
    fn a_bracket_is_what_a_line_says(
        lines in prop::collection::vec((0_u64..6, -2_000_i64..2_000, -2_000_i64..2_000), 0..20),
        cut in 0_usize..80,
    ) {
        let text: String = lines.iter().map(|(mark, before, after)| line(*mark, *before, *after)).collect();
        let run = Run::new();
        let whole = header(TOKEN, 0, 0) + &text;
        run.write(&file(0), &whole.as_bytes()[..whole.len() - cut.min(text.len())]);
        let stamps: Vec<_> = (0..4).map(|number| (TOKEN, number, i64::try_from(number).expect("small"))).collect();
        let facts = run.join(&stamps).expect("one process");
        prop_assert!(facts.brackets.len() <= stamps.len());
        for found in &facts.brackets {
            let number = (found.tracer_ps / 1000 - i128::from(EPOCH_NS)) as u64;
            let stated = |(mark, before, after): &(u64, i64, i64)| {
                *mark == number && EPOCH_NS + before == found.before_ns && EPOCH_NS + after == found.after_ns
            };
            prop_assert!(lines.iter().any(stated) && found.before_ns <= found.after_ns);
        }
    }
}
