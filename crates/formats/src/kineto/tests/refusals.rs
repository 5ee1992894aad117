//! Files that are not what they should be.

use super::*;

/// Every reader refuses `text` in one line that names this byte.
fn check_refused(name: &str, text: &[u8], offset: u64, problem: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join(name), folder.path().join("out.json"));
    std::fs::write(&input, text).unwrap();
    let mut identity = |time| time;
    let node = MergeInput {
        path: input.clone(),
        part: 0,
        name: String::new(),
        map: &mut identity,
        metadata: Vec::new(),
        reach: None,
        known: None,
    };
    let errors = [
        read_facts(&input, &FactOptions::default()).map(|_| ()).unwrap_err(),
        rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time).map(|_| ()).unwrap_err(),
        merge(&mut [node], &output, &MergeOptions::default()).map(|_| ()).unwrap_err(),
    ];
    for error in errors {
        let line = error.to_string();
        assert!(line.contains(problem) && line.contains(&format!("byte {offset}:")) && !line.contains('\n'), "{line}");
    }
    assert!(!output.exists());
}

#[test]
fn what_is_broken_is_refused_in_one_line_that_names_the_byte() {
    check_refused("a.json", b"{\"traceEvents\":[{\"ts\":1,\"ts\":2}]}", 29, "twice");
    check_refused("a.json", br#"{"traceEvents":[{"ts":1,"\u0074s":2}]}"#, 34, "twice");
    check_refused("a.json", br#"{"\x":1,"traceEvents":[]}"#, 2, "an escape that is not valid JSON");
    check_refused("a.json", b"{\"baseTimeNanoseconds\":1.5,\"traceEvents\":[]}", 26, "whole number");
    check_refused("a.json", b"{\"traceEvents\":[{\"ts\":1},", 25, "ends inside traceEvents");
    check_refused(
        "a.json",
        &[b"{\"traceEvents\":[{\"args\":".to_vec(), vec![b'['; 10_000]].concat(),
        24 + u64::from(scan::DEPTH_MAX),
        "too deep",
    );
    check_refused("a.json", &vec![b' '; document::BUFFER_MAX + 1], 0, "does not end within");
    check_refused("a.pb", b"\x0a\x10plane", 1, "neither a JSON object nor an array");
    let whole = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, b"{\"traceEvents\":[{\"ts\":1}]}").unwrap();
        encoder.finish().unwrap()
    };
    check_refused("a.json.gz", &whole[..whole.len() - 9], 26, "gzip data ends early");
    let mut wrong = whole;
    let checksum = wrong.len() - 6;
    wrong[checksum] ^= 1;
    check_refused("a.json.gz", &wrong, 26, "gzip data ends early or is damaged");
}
