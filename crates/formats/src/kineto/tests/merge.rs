//! Several nodes in one file.

use super::*;

#[test]
fn merged_nodes_share_no_number_and_keep_their_links() {
    let Some(folder) = data() else { return };
    let (set, target) = (folder.join("b_4node_offset_drift"), tempfile::tempdir().unwrap());
    let offsets = exact_offsets(&set);
    let output = target.path().join("all.json.gz");
    let inputs = traces(&set);
    let mut maps: Vec<_> = (0..inputs.len())
        .map(|node| {
            let series = &offsets[&node];
            move |time| corrected(series, time)
        })
        .collect();
    let mut nodes: Vec<_> = maps
        .iter_mut()
        .enumerate()
        .map(|(node, map)| MergeInput {
            path: inputs[node].clone(),
            part: node as u32,
            name: format!("rank {node} (node 0, host{node})"),
            map,
            metadata: Vec::new(),
            reach: None,
            known: None,
        })
        .collect();
    let options =
        MergeOptions { metadata: vec![("method".into(), "exact \"offsets\"".into())], ..MergeOptions::default() };
    let stats = merge(&mut nodes, &output, &options).unwrap();
    let merged = json(&contents(&output));
    assert_eq!(merged["probe_sync"]["method"], "exact \"offsets\"");
    assert_eq!(merged["nodes"][2]["distributedInfo"]["rank"], 2);
    assert_eq!(stats.headers_left_out, 0);
    let events = merged["traceEvents"].as_array().unwrap();
    let (mut owners, mut names, mut threads) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for event in events {
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let node = (pid - 1_000_000) / 1_000_000;
        assert!(pid < 1 << 32 && tid < 1 << 32 && event["ts"].as_f64().unwrap() >= 0.0);
        if event["ph"] != "M" {
            assert_eq!(*threads.entry(tid).or_insert(pid), pid, "a thread belongs to one process");
        }
        if let Some(id) = event["id"].as_u64().or(event["args"]["External id"].as_u64()) {
            assert_eq!(*owners.entry((event["id"].is_null(), id)).or_insert(node), node, "an id belongs to one node");
        }
        if event["name"] == "process_name" {
            names.insert(event["args"]["name"].as_str().unwrap().to_owned());
        }
    }
    assert!(names.contains("rank 1 (node 0, host1) · python 30592") && names.len() == 4, "{names:?}");
    for (node, input) in inputs.iter().enumerate() {
        // Flows still begin and end on the same slices.
        let original = json(&contents(input));
        let flow = |events: &[Value], shift: u64| -> Vec<(String, u64, String)> {
            let flows = events.iter().filter(|event| !event["id"].is_null());
            flows
                .map(|event| (event["ph"].to_string(), event["id"].as_u64().unwrap() - shift, event["cat"].to_string()))
                .collect()
        };
        let mine: Vec<_> = events
            .iter()
            .filter(|event| event["pid"].as_u64().unwrap() / 1_000_000 == node as u64 + 1)
            .cloned()
            .collect();
        assert_eq!(flow(&mine, node as u64 * stats.stride), flow(original["traceEvents"].as_array().unwrap(), 0));
        let lasting = |events: &[Value]| events.iter().filter(|event| event["ph"] == "X").count();
        assert_eq!(lasting(&mine), lasting(original["traceEvents"].as_array().unwrap()));
    }
}

#[test]
fn odd_numbers_are_merged_too() {
    let folder = tempfile::tempdir().unwrap();
    let text = "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":5,\"name\":\"no pid\"},{\"ph\":\"s\",\"id\":\"0x1f\",\"pid\":\"\",\"tid\":-1,\"ts\":6},{\"ph\":\"s\",\"id\":\"a!\",\"pid\":7,\"tid\":7,\"ts\":7,\"args\":{\"correlation\":12,\"External id\":-1}}],\"name\":\"x\",\"baseTimeNanoseconds\":9000}";
    let input = folder.path().join("in.json");
    std::fs::write(&input, text).unwrap();
    let (mut one, mut two) = (|time| time, |time: Picoseconds| time + MICROSECOND);
    let mut nodes = [
        MergeInput {
            path: input.clone(),
            part: 4,
            name: "a\"b".into(),
            map: &mut one,
            metadata: Vec::new(),
            reach: None,
            known: None,
        },
        MergeInput {
            path: input.clone(),
            part: 9,
            name: String::new(),
            map: &mut two,
            metadata: Vec::new(),
            reach: None,
            known: None,
        },
    ];
    let output = folder.path().join("out.json");
    let stats = merge(&mut nodes, &output, &MergeOptions { base_ns: Some(9000), ..MergeOptions::default() }).unwrap();
    let merged = json(&contents(&output));
    assert_eq!((stats.stride, stats.base_ns), (100, 9000));
    assert_eq!(
        (&merged["nodes"][0]["inputName"], &merged["nodes"][0]["inputBaseTimeNanoseconds"]),
        (&"x".into(), &9000.into())
    );
    let events: Vec<_> = merged["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] != "M").collect();
    let fields = |key: &str| events.iter().map(|event| event[key].to_string()).collect::<Vec<_>>();
    assert_eq!(fields("ts"), ["5", "6", "7", "6.0", "7.0", "8.0"]);
    assert_eq!(fields("id"), ["null", "\"0x1f\"", "\"1:a!\"", "null", "\"0x83\"", "\"2:a!\""]);
    assert_eq!(fields("pid"), ["1000000", "1000001", "1000003", "2000000", "2000001", "2000003"]);
    assert_eq!((&events[5]["args"]["correlation"], &events[5]["args"]["External id"]), (&112.into(), &(-1).into()));
    let names: BTreeSet<_> = merged["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["a\"b · instants", "a\"b · pid 7", "trace 9 · instants", "trace 9 · pid 7"]
    );
}

/// Merges two copies of a text; what comes out, which must be JSON.
fn merged_twice(text: &str) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.json"), folder.path().join("out.json"));
    std::fs::write(&input, text).unwrap();
    let (mut one, mut two) = (|time| time, |time: Picoseconds| time + MICROSECOND);
    let mut nodes = [
        MergeInput {
            path: input.clone(),
            part: 0,
            name: "a".into(),
            map: &mut one,
            metadata: Vec::new(),
            reach: None,
            known: None,
        },
        MergeInput {
            path: input.clone(),
            part: 1,
            name: "b".into(),
            map: &mut two,
            metadata: Vec::new(),
            reach: None,
            known: None,
        },
    ];
    let merged = merge(&mut nodes, &output, &MergeOptions { base_ns: Some(0), ..MergeOptions::default() });
    assert_eq!(output.exists(), merged.is_ok());
    merged.map(|_| json(&contents(&output))).map_err(|error| error.to_string())
}

#[test]
fn tracks_that_would_make_invalid_json_are_refused_by_byte() {
    for (event, what) in [
        (r#"{"ph":"X","ts":1,"pid":{"a":"b"},"tid":1}"#, "pid"),
        (r#"{"ph":"X","ts":1,"pid":["x"],"tid":1}"#, "pid"),
        (r#"{"ph":"X","ts":1,"pid":1,"tid":["x"]}"#, "tid"),
        (r#"{"ph":"M","ts":1,"name":"process_name","pid":{},"args":{"name":"p"}}"#, "pid"),
    ] {
        let text = format!(r#"{{"traceEvents":[{event}]}}"#);
        let byte = text.find(&format!("\"{what}\":")).unwrap() + what.len() + 3;
        let refusal = merged_twice(&text).unwrap_err();
        assert!(refusal.contains(&format!("in.json: byte {byte}: {what}")), "{event}: {refusal}");
    }
    for pid in ["1", "-1", "1.5", "true", "null", r#""a\"b""#, "\"\""] {
        let merged =
            merged_twice(&format!(r#"{{"traceEvents":[{{"ph":"X","ts":1,"pid":{pid},"tid":{pid}}}]}}"#)).unwrap();
        assert!(merged["traceEvents"].as_array().unwrap().len() > 2, "{pid}");
    }
}

#[test]
fn keys_with_escapes_are_the_keys_that_they_say() {
    let text = r#"{"\u0062aseTimeNanoseconds":0,"n\u0061me":"x","o\u0074her \"key\"":1,
        "\u0074raceEvents":[{"ph":"X","\u0074s":5,"\u0070id":1,"tid":1,"args":{"c\u006frrelation":3}}]}"#;
    let merged = merged_twice(text).unwrap();
    let node = &merged["nodes"][1];
    let [base, name, own] = ["inputBaseTimeNanoseconds", "inputName", "name"].map(|key| node[key].clone());
    assert_eq!((base, name, own), (0.into(), "x".into(), "b".into()));
    assert_eq!(node["other \"key\""], 1);
    let events: Vec<_> = merged["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!((events[0]["ts"].as_f64(), events[1]["ts"].as_f64()), (Some(5.0), Some(6.0)));
    assert_eq!((&events[1]["pid"], &events[1]["args"]["correlation"]), (&2_000_000.into(), &13.into()));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(proptest::sample::select(&b"{}[]\",:\\ \n1.5-e"[..]), 0..120), cut in 0_usize..140) {
        let head = b"{\"baseTimeNanoseconds\":5,\"traceEvents\":[{\"ph\":\"X\",\"ts\":1.5,\"dur\":2,\"args\":{\"a\":1}},";
        let text = [&head[..cut.min(head.len())], &bytes].concat();
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.json"), folder.path().join("out.json"));
        std::fs::write(&input, &text).unwrap();
        let _ = read_facts(&input, &FactOptions::default());
        let _ = rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time + 1000);
        let mut identity = |time| time;
        let node = MergeInput { path: input, part: 0, name: String::new(), map: &mut identity , metadata: Vec::new(), reach: None, known: None };
        let _ = merge(&mut [node], &output, &MergeOptions::default());
    }
}
