//! Files that are not what they should be.

use super::*;

/// What reading and rewriting say of a file, which must be the same, in one line.
fn refusal(path: &Path) -> String {
    let facts = read_facts(path, &FactOptions::default()).expect_err("refused by the reader").to_string();
    let output = path.with_extension("out");
    let rewritten = rewrite(path, &output, &RewriteOptions::default(), &mut |time| time);
    assert_eq!(rewritten.expect_err("refused by the writer").to_string(), facts);
    assert!(!output.exists());
    assert!(!facts.contains('\n'));
    facts
}

#[test]
fn files_that_are_no_xspace_are_refused_with_the_place() {
    let files = Files::new();
    let good =
        space(&[Message::default().text(2, "/host:CPU").message(3, Message::default().message(4, event(1, 2, 3)))]);
    let check = |what: &str, bytes: &[u8], part: &str| {
        let said = refusal(&files.put("in", bytes));
        assert!(said.contains(part), "{what}: {said}");
    };
    check("empty", b"", "byte 0: the file is empty");
    check("spaces", &b" ".repeat(100_000), "byte 0: not XSpace protobuf: field 4 of XSpace has wire type 0");
    check("JSON", b"{\"traceEvents\": []}", "byte 0: not the expected protobuf: field 15 has wire type 3");
    check("cut", &good[..good.len() - 20], "extends past the end");
    check("cut in a header", &good[..good.len() - 6], "truncated");
    check("huge length", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1], "extends past the end");
    check("longest length", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "extends past the end");
    check("groups", &[0x0b].repeat(100_000), "field 1 has wire type 3");
    let mut nested = Vec::new();
    for _ in 0..2000 {
        let inner = std::mem::take(&mut nested);
        put_bytes(&mut nested, 1, &inner);
    }
    check("deep nesting", &nested, "field 1 of a plane has wire type 2");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&good).expect("packed");
    let packed = packer.finish().expect("packed");
    check("cut gzip", &packed[..packed.len() / 2], "gzip data is damaged or truncated");
    check("no plane", &Message::default().text(4, "host").0, "it contains no plane");
    let late = Message::default().message(4, event(1, 2, 3)).number(3, 9);
    let late = space(&[Message::default().message(3, late)]);
    let path = files.put("late", &late);
    let said = read_facts(&path, &FactOptions::default()).expect_err("refused").to_string();
    assert!(said.contains("has its start after its events"), "{said}");
}

#[test]
fn the_mangled_file_is_refused() {
    let Some(folder) = data() else { return };
    let path = folder.join("x_corrupt_utf8_mangled/tpu_inference_2.xplane.pb");
    let said = read_facts(&path, &FactOptions::default()).expect_err("refused").to_string();
    println!("{said}");
    assert!(said.contains("byte ") && !said.contains('\n'));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 1..400)) {
        let files = Files::new();
        let input = files.put("in", &bytes);
        let _ = read_facts(&input, &FactOptions::default());
        let _ = rewrite(&input, &files.path("out"), &RewriteOptions::default(), &mut |time| time);
    }

    #[test]
    fn damaged_files_never_panic(at in 0usize..400, with in any::<u8>(), cut in 0usize..400) {
        let line = Message::default().number(1, 17).number(3, 5).message(4, event(1, 5_000, 10).message(4, event(2, 3, 1)));
        let plane = Message::default().text(2, "/host:CPU").message(3, line).entry(4, 1, "clkmark").entry(5, 2, "node_ns");
        let mut bytes = space(&[plane]);
        let at = at % bytes.len();
        bytes[at] = with;
        bytes.truncate(bytes.len() - cut % bytes.len() / 4);
        let files = Files::new();
        let input = files.put("in", &bytes);
        let _ = read_facts(&input, &FactOptions::default());
        let _ = rewrite(&input, &files.path("out"), &RewriteOptions { annotate: true, ..Default::default() }, &mut |time| -time);
        let mut map = |time: Picoseconds| time;
        let mut inputs = [MergeInput { path: input, part: 3, name: "n".to_owned(), map: &mut map , metadata: Vec::new(), reach: None, known: None }];
        let _ = merge(&mut inputs, &files.path("out"), &MergeOptions::default());
    }
}
