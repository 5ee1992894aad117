//! Compares the measurements of a C program with the truth of its run.
//!
//! An example with virtual clocks prints the results of `ps_session_round`, one line per node,
//! `offset NODE MIDDLE OFFSET BOUND95 LOW HIGH` in ns; `truth.json` of its run states what each
//! node's clock showed. With a constant virtual clock, node i shows t + off_i + ppm_i·1e-6·(t −
//! t0_i) when node 0, which has no virtual clock, shows t. Other clock models are not supported;
//! `probe-sync-testbed verify` has them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Compares every line of `output` with the run at `out`, which has that many nodes beside node 0.
///
/// # Errors
/// A true offset lies outside of a hard interval, or a line or a file is missing.
pub fn check(output: &str, out: &Path, others: usize) -> Result<()> {
    let path = out.join("truth.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let truth: Value = serde_json::from_str(&text)?;
    let lines: Vec<&str> = output.lines().filter(|line| line.starts_with("offset ")).collect();
    ensure!(lines.len() == others + 1, "{} lines of offsets, expected {}", lines.len(), others + 1);
    let mut worst = 0.0_f64;
    for line in lines {
        worst = worst.max(error(line, &truth)?.abs());
    }
    println!("   {others} node(s) beside node 0, worst error {worst:.1} ns");
    Ok(())
}

/// Measured minus true, ns.
fn error(line: &str, truth: &Value) -> Result<f64> {
    let fields: Vec<&str> = line.split_whitespace().skip(1).collect();
    let [node, middle, offset, _, low, high] = fields[..] else { anyhow::bail!("not six numbers: {line}") };
    let clock = &truth["nodes"][node];
    let number = |key: &str| clock[key].as_f64().with_context(|| format!("truth.json: node {node} has no {key}"));
    let origin = clock["t0_ns"].as_i64().context("truth.json: no t0_ns")?;
    // The difference first: a time since the epoch has no room for nanoseconds in a float.
    let since_origin = (middle.parse::<i64>()? - origin) as f64;
    let expected = number("off_ns")? + number("ppm")? * 1e-6 * since_origin;
    let (low, high): (f64, f64) = (low.parse()?, high.parse()?);
    // The lines are rounded to a tenth.
    ensure!(
        low - 0.1 <= expected && expected <= high + 0.1,
        "node {node}: true {expected:.1}, not in the interval: {line}"
    );
    Ok(offset.parse::<f64>()? - expected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn an_offset_is_compared_with_its_clock() {
        let truth = json!({"nodes": {"1": {"t0_ns": 1_795_394_947_000_000_000_i64, "off_ns": 500, "ppm": 10.0}}});
        let line = |offset: f64, low: f64| format!("offset 1 1795394948000000000 {offset} 5.0 {low} 11000.0");
        assert_eq!(super::error(&line(10_503.0, 10_000.0), &truth).expect("inside"), 3.0);
        let outside = super::error(&line(10_503.0, 10_501.0), &truth).expect_err("outside").to_string();
        assert!(outside.contains("node 1: true 10500.0"), "{outside}");
    }
}
