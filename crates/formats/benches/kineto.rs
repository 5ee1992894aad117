//! How fast Kineto JSON is rewritten:
//! `cargo bench -p probe-sync-formats --bench kineto [-- OPTIONS]`.
//!
//! The input is a real file merged with itself until the size is reached. Options and what is
//! printed: module `support`.

mod support;

use std::path::Path;

use probe_sync_formats::{FactOptions, Kineto, MergeInput, MergeOptions, RewriteOptions, TraceFormat};

use support::{Bench, Outcome};

fn main() -> Outcome<()> {
    let bench = Bench {
        format: &Kineto,
        real: "../../../shared/data/torch/x_real_mi300_8gpu_rank0/resnet_act_checkpoint.json.gz",
        ending: ".json",
        make: repeat,
        script: "kineto_orjson.py",
    };
    bench.run()
}

/// A file of at least `size` bytes with the events of a real one, again and again.
fn repeat(real: &Path, output: &Path, size: u64) -> Outcome<()> {
    let (first, last) = Kineto.read_facts(real, &FactOptions::default())?.span.ok_or("no events")?;
    let once = Kineto.rewrite(real, output, &RewriteOptions::default(), &mut |time| time)?.bytes_written.max(1);
    let later = |copy: u64| move |time: i128| time + i128::from(copy) * (last - first);
    let mut maps: Vec<_> = (0..size.div_ceil(once)).map(later).collect();
    let mut inputs: Vec<MergeInput<'_>> = Vec::new();
    for (copy, map) in (0..).zip(&mut maps) {
        inputs.push(MergeInput {
            path: real.to_path_buf(),
            part: copy,
            name: String::new(),
            map,
            metadata: Vec::new(),
            reach: None,
            known: None,
        });
    }
    Kineto.merge(&mut inputs, output, &MergeOptions::default())?;
    Ok(())
}
