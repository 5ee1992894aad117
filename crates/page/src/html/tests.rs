//! What the page may hold, whoever named its hosts.

use probe_sync_time::{NodeId, StampSource};

use super::*;
use crate::simulation::{Sample, Simulated};
use crate::table::Table;
use crate::verdict::Sentence;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\u{202e}gpj.exe\u{7}\u{2028}&amp;\"'{{ x }}";

fn page(host: &str) -> Page {
    let sample = |window: u64, node: u32| Sample {
        node: NodeId(node),
        window,
        at_ns: 1_000_000_000 * window as i64,
        truth_ns: 0.0,
        offset_ns: Some(1.5),
        half_width_95_ns: Some(10.0),
        hard_ns: Some([-100.0, 100.0]),
        rate_ppm: None,
    };
    let mut table = Table::new(host, &[host, "n"]);
    table.rows.push(vec![host.to_owned(), "7".to_owned()]);
    let simulated = Simulated {
        title: host.to_owned(),
        facts: vec![(host.to_owned(), host.to_owned())],
        reference: NodeId(0),
        stamp: StampSource::Kernel,
        samples: (0..4).flat_map(|window| [sample(window, 1), sample(window, 2)]).collect(),
        windows: Vec::new(),
        lost: Vec::new(),
        demands: vec![(true, host.to_owned())],
        tables: vec![table],
    };
    let mut page = simulated.page().expect("a page");
    page.data.nodes.iter_mut().for_each(|row| row.host = host.to_owned());
    page.faults.push(host.to_owned());
    page.late.push(host.to_owned());
    page.notes.push(host.to_owned());
    page.verdict.push(Sentence::bad(host));
    page
}

#[test]
fn hostile_names_are_text() {
    let html = page(HOSTILE).html().expect("a page");
    assert!(!html.contains("<img") && !html.contains(['\u{202e}', '\u{7}', '\u{2028}']));
    assert!(
        html.contains("&#60;/script&#62;&#60;img src=x onerror=alert(1)&#62;\\u{202e}gpj.exe\\u{7}"),
        "escaped once"
    );
    // Of scripts: the data, and those of the page.
    assert_eq!(html.matches("<script").count(), 1 + SCRIPTS.len());
    assert_eq!(html.matches("</script").count(), 1 + SCRIPTS.len());
    let (_, rest) = html.split_once("id=\"data\">").expect("the block");
    let (block, _) = rest.split_once("</script>").expect("its end");
    let data: serde_json::Value = serde_json::from_str(block).expect("JSON");
    assert_eq!(data["nodes"][0]["host"], HOSTILE, "the values are what they were");
}

#[test]
fn the_same_page_has_the_same_bytes() {
    assert_eq!(page("a").html().expect("a page"), page("a").html().expect("a page"));
}

#[test]
fn the_policy_names_the_hash_of_every_style_and_script() {
    let html = page("a").html().expect("a page");
    let (_, rest) = html.split_once("Content-Security-Policy\" content=\"").expect("a policy");
    let policy = rest.split_once('"').expect("its end").0.replace("&#39;", "'");
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    for (open, close, count) in [("<style>", "</style>", STYLES.len()), ("<script>", "</script>", SCRIPTS.len())] {
        let texts: Vec<&str> =
            html.split(open).skip(1).map(|rest| rest.split_once(close).expect("its end").0).collect();
        assert_eq!(texts.len(), count, "{open}");
        texts.iter().for_each(|text| assert!(policy.contains(&format!("'sha256-{}'", hash(text))), "{open}"));
    }
    // No attribute is a script or a style, and nothing is named that would be fetched.
    let own = html.replace(UPLOT, "");
    for word in [" onclick=", " style=\"", " src=", " href=", "innerHTML", "http:", "https:", "@import", "url("] {
        assert!(!own.contains(word), "{word}");
    }
}

#[test]
fn a_hash_is_what_other_programs_compute() {
    // printf abc | openssl dgst -sha256 -binary | base64
    assert_eq!(hash("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
}

#[test]
fn the_vendored_files_are_those_that_were_released() {
    let stated = include_str!("../../assets/uplot/SHA256SUMS");
    let files = [
        ("uPlot.iife.min.js", UPLOT),
        ("uPlot.min.css", STYLES[0]),
        ("LICENSE", include_str!("../../assets/uplot/LICENSE")),
    ];
    for (name, text) in files {
        let sum: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(stated.lines().any(|line| line == format!("{sum}  {name}")), "{name}: {sum}");
    }
}

#[test]
fn nothing_in_a_style_or_script_ends_its_element() {
    for text in STYLES.into_iter().chain(SCRIPTS) {
        assert!(!text.contains("</") && !text.contains("<!--"), "{}", &text[..60]);
    }
}
