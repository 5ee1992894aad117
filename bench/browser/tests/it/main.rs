//! Tests of the report page in headless Chromium: an empty console, a single request, every chart
//! painted, the values of `report.json`, a size of at most 3 MB and no axe-core violations.
//!
//! `cargo xtask test` runs these tests with the program it has built (`PROBE_SYNC`) and the
//! axe-core file (`AXE`). Without a browser each test reports that it is skipped and why. The pages
//! and their screenshots stay in `target/browser` for inspection. It prints times but does not
//! assert them.

mod browser;
mod made;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use browser::{Browser, Server};
use made::Made;

const HOSTILE: &str =
    "</script><script>window.hasRun = 1</script><img src=x onerror=\"window.hasRun = 1\">\u{202e}gpj\u{7}'\"&amp;";

fn plain(node: u32) -> String {
    format!("gpu-{node:03}")
}

fn hostile(node: u32) -> String {
    format!("{node}{HOSTILE}")
}

/// Makes a run in a folder, has the program write its page, and looks at it.
fn check(
    name: &str,
    prepare: impl FnOnce(&Path) -> Result<Vec<String>>,
    expect: impl AsyncFnOnce(&Browser, &Seen) -> Result<()>,
) {
    if let Some(reason) = browser::missing() {
        println!("SKIPPED {name}: {reason}");
        return;
    }
    let Some(program) = std::env::var_os("PROBE_SYNC") else {
        println!("SKIPPED {name}: PROBE_SYNC does not name the program");
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let result = runtime.block_on(look(name, Path::new(&program), prepare, expect));
    result.unwrap_or_else(|error| panic!("{name}: {error:#}"));
}

/// What a test knows of its page.
struct Seen {
    out: PathBuf,
    data: Value,
}

async fn look(
    name: &str,
    program: &Path,
    prepare: impl FnOnce(&Path) -> Result<Vec<String>>,
    expect: impl AsyncFnOnce(&Browser, &Seen) -> Result<()>,
) -> Result<()> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/browser");
    std::fs::create_dir_all(&pages)?;
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let arguments = prepare(&out)?;
    let page = pages.join(format!("{name}.html"));
    if arguments.is_empty() {
        std::fs::copy(out.join("report.html"), &page)?;
    } else {
        let made = Command::new(program)
            .args(["report", &out.to_string_lossy(), "-o", &page.to_string_lossy()])
            .args(&arguments[1..])
            .output()?;
        ensure!(made.status.success(), "report: {}", String::from_utf8_lossy(&made.stderr));
    }
    let bytes = std::fs::metadata(&page)?.len();
    ensure!(bytes <= 3_000_000, "the page has {bytes} bytes");
    let server = Server::of(&page)?;
    let browser = Browser::start().await?;
    let seen = page_holds(name, &browser, &server, &pages, out).await;
    let result = match seen {
        Ok((seen, load_ms)) => {
            println!("{name}: {bytes} bytes, loaded and painted in {load_ms} ms");
            expect(&browser, &seen).await
        }
        Err(error) => Err(error),
    };
    let ended = browser.end().await;
    result.and(ended)
}

/// What holds of every page.
async fn page_holds(
    name: &str,
    browser: &Browser,
    server: &Server,
    pages: &Path,
    out: PathBuf,
) -> Result<(Seen, Value)> {
    open(name, browser, server).await?;
    let load_ms = browser.ask("const of = performance.getEntriesByType('navigation')[0]; return Math.round(of.loadEventEnd - of.startTime)").await?;
    picture(browser, pages, &format!("{name}-light")).await?;
    holds_as_it_is(browser, "light, wide").await?;
    accessible(browser, "light").await?;
    // Both grounds, both widths, and every choice that is there.
    browser.ask("document.getElementById('theme').click()").await?;
    picture(browser, pages, &format!("{name}-dark")).await?;
    accessible(browser, "dark").await?;
    browser.ask(CHOICES).await?;
    holds_as_it_is(browser, "every choice").await?;
    browser.client.set_window_size(420, 900).await?;
    browser.ask("document.getElementById('theme').click()").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    picture(browser, pages, &format!("{name}-narrow")).await?;
    holds_as_it_is(browser, "narrow").await?;
    browser
        .ask("window.dispatchEvent(new Event('beforeprint')); window.dispatchEvent(new Event('afterprint'))")
        .await?;
    let said = browser.console().await?;
    ensure!(said.is_empty(), "the console says {said:#?}");
    let asked = server.asked();
    ensure!(asked.len() == 1, "one request, not {asked:?}");
    ensure!(browser.ask("return performance.getEntriesByType('resource').length").await? == 0, "something was fetched");
    ensure!(browser.ask("return window.hasRun === undefined").await? == true, "a name has run");
    let data = browser.ask("return JSON.parse(document.getElementById('data').textContent)").await?;
    Ok((Seen { out, data }, load_ms))
}

/// Opens the page and waits until its script has come to its end.
///
/// A browser that has just started may still load its own first page, and that may take the place
/// of ours. Then ours is opened again, and only what was asked for after that counts.
async fn open(name: &str, browser: &Browser, server: &Server) -> Result<()> {
    let begun = Instant::now();
    browser.client.goto(&server.address).await?;
    loop {
        let at = browser.ask(STATE).await?;
        if at["address"] != server.address {
            println!("{name}: the browser is at {at}, opened again");
            server.forget();
            browser.client.goto(&server.address).await?;
        } else if at["painted"] == "yes" {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < PAINTED,
            "the script has not come to its end: {at}, asked {:?}, console {:?}",
            server.asked(),
            browser.console().await?
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Where the browser is.
const STATE: &str = "return {address: location.href, ready: document.readyState, painted: document.documentElement.dataset.painted || null, bytes: document.documentElement.outerHTML.length}";

const PAINTED: Duration = Duration::from_secs(30);

/// No blank chart, and nothing that sticks out to the side.
async fn holds_as_it_is(browser: &Browser, when: &str) -> Result<()> {
    let blank = browser.ask(BLANK).await?;
    ensure!(blank == json!([]), "{when}: not painted: {blank}");
    let beyond =
        browser.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await?;
    ensure!(beyond == 0, "{when}: the page is {beyond} px too wide");
    Ok(())
}

async fn accessible(browser: &Browser, when: &str) -> Result<()> {
    let Some(axe) = std::env::var_os("AXE").filter(|axe| std::path::Path::new(axe).exists()) else {
        println!("skipped: axe-core, {when}: AXE does not name its file");
        return Ok(());
    };
    let source = std::fs::read_to_string(&axe).context("axe-core")?;
    browser.ask(&format!("{source}; window.axe = axe;")).await?;
    let run = "const done = arguments[arguments.length - 1]; \
               axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations.map((of) => [of.id, of.nodes.slice(0, 3).map((node) => node.html + ' ' + node.failureSummary)])))";
    let found = browser.client.execute_async(run, Vec::new()).await?;
    ensure!(found == json!([]), "axe-core, {when}: {found:#}");
    Ok(())
}

async fn picture(browser: &Browser, pages: &Path, name: &str) -> Result<()> {
    let height =
        browser.ask("return document.documentElement.scrollHeight").await?.as_u64().unwrap_or(900).min(12_000) as u32;
    let width = browser.ask("return window.outerWidth").await?.as_u64().unwrap_or(1280) as u32;
    browser.client.set_window_size(width, height + 150).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::write(pages.join(format!("{name}.png")), browser.client.screenshot().await?)?;
    browser.client.set_window_size(width, 900).await?;
    Ok(())
}

/// Canvases of one colour, by their labels.
const BLANK: &str = "
    const blank = [];
    for (const canvas of document.querySelectorAll('canvas')) {
        if (!canvas.width || !canvas.height) { blank.push('empty'); continue; }
        const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        if (pixels.every((pixel) => pixel === pixels[0])) blank.push(canvas.getAttribute('aria-label') || canvas.className || 'scale');
        if (!canvas.getAttribute('aria-label') && !canvas.getAttribute('aria-hidden')) blank.push('no label');
    }
    return blank;";

/// Takes every value of every choice, all nodes and none and all again, and zooms into a chart and
/// out of it.
const CHOICES: &str = "
    for (const select of document.querySelectorAll('select')) {
        for (const option of [...select.options].slice(0, 3)) { select.value = option.value; select.dispatchEvent(new Event('change')); }
    }
    for (const button of document.querySelectorAll('#nodes button')) button.click();
    const all = document.querySelector('#nodes button');
    if (all) all.click();
    const over = document.querySelector('#offset .u-over');
    if (over) {
        const box = over.getBoundingClientRect();
        const at = (type, share) => over.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: box.left + share * box.width, clientY: box.top + 50}));
        at('mousemove', 0.3); at('mousedown', 0.3); at('mousemove', 0.6);
        document.dispatchEvent(new MouseEvent('mouseup', {bubbles: true, clientX: box.left + 0.6 * box.width, clientY: box.top + 50}));
    }";

fn program(arguments: &[&str]) -> Result<()> {
    let program = std::env::var_os("PROBE_SYNC").context("PROBE_SYNC")?;
    let done = Command::new(program).args(arguments).output()?;
    ensure!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn report() -> Vec<String> {
    vec!["report".to_owned()]
}

/// Whether two documents say the same; to JavaScript 0.0 and 0 are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        _ => a == b,
    }
}

/// Rows of the table, as numbers.
const TABLE: &str = "return [...document.querySelectorAll('#node-table tbody tr')].map((row) => [...row.querySelectorAll('data')].map((of) => Number(of.value)))";

#[test]
fn eight_ranks_with_a_step() {
    check(
        "eight",
        |out| {
            program(&[
                "run",
                "--local",
                "8",
                "--inject-skew",
                "7",
                "--inject-step",
                "3@4s:200us",
                "--fixed",
                "--window",
                "500ms",
                "--duration",
                "8s",
                "--out",
                &out.to_string_lossy(),
            ])?;
            Ok(Vec::new())
        },
        async |browser, seen| {
            let report: Value = serde_json::from_slice(&std::fs::read(seen.out.join("report.json"))?)?;
            ensure!(same(&seen.data["nodes"], &report["nodes"]), "the nodes are not those of report.json");
            ensure!(same(&seen.data["truth"], &report["truth"]), "the truth is not that of report.json");
            let rows = report["nodes"].as_array().context("nodes")?.iter();
            let expected: Vec<Value> = rows.map(|row| json!([row["offset_ns"], row["half_width_95_ns"]])).collect();
            let found = browser.ask(TABLE).await?;
            let numbers = |value: &Value| value.as_array().map(|all| all.iter().map(Value::as_f64).collect::<Vec<_>>());
            let found: Vec<_> = found.as_array().context("rows")?.iter().map(numbers).collect();
            ensure!(found == expected.iter().map(numbers).collect::<Vec<_>>(), "the table says {found:?}");
            ensure!(seen.data["marks"].as_array().is_some_and(|marks| !marks.is_empty()), "the step is not marked");
            ensure!(
                seen.data["series"]["nodes"][0]["error"].as_array().is_some_and(|errors| errors.len() > 5),
                "no errors are drawn"
            );
            let said = browser.ask("return document.querySelector('.verdict').textContent").await?;
            ensure!(said.as_str().is_some_and(|said| said.contains("Hard intervals were never violated.")), "{said}");
            Ok(())
        },
    );
}

#[test]
fn sixty_four_nodes_for_an_hour() {
    check(
        "hour",
        |out| {
            made::run(out, &Made { nodes: 64, rounds: 900, host: &plain, faults: true, cut: false })?;
            Ok(report())
        },
        async |browser, seen| {
            ensure!(seen.data["series"]["t"].as_array().map(Vec::len) == Some(900), "a column a round");
            ensure!(seen.data["series"]["nodes"].as_array().map(Vec::len) == Some(63), "all nodes");
            ensure!(seen.data["marks"].as_array().map(Vec::len) == Some(3), "all faults");
            let rows = browser.ask(TABLE).await?;
            ensure!(rows.as_array().map(Vec::len) == Some(64), "a row a node");
            Ok(())
        },
    );
}

#[test]
fn a_thousand_nodes_for_days() {
    check(
        "thousand",
        |out| {
            made::run(out, &Made { nodes: 1000, rounds: 60, host: &plain, faults: false, cut: false })?;
            Ok(report())
        },
        async |browser, seen| {
            ensure!(seen.data["series"]["others"]["nodes"] == 935, "{}", seen.data["series"]["others"]["nodes"]);
            let said = browser.ask("return document.getElementById('notes').textContent").await?;
            ensure!(said.as_str().is_some_and(|said| said.contains("64 nodes with the largest uncertainty")), "{said}");
            Ok(())
        },
    );
}

#[test]
fn a_simulation() {
    check(
        "sim",
        |out| {
            program(&[
                "sim",
                "--nodes",
                "8",
                "--neighbors",
                "4",
                "--load",
                "0.5",
                "--rate",
                "20",
                "--duration",
                "40s",
                "--window",
                "2s",
                "--out",
                &out.to_string_lossy(),
            ])?;
            Ok(Vec::new())
        },
        async |browser, seen| {
            ensure!(seen.data["truth"]["outside_hard_interval"] == 0, "{}", seen.data["truth"]);
            // Who probed whom, and the rates, as on the page of a run.
            let edges = seen.data["edges"]["edges"].as_array().map_or(0, Vec::len);
            ensure!(edges > 8 && seen.data["edges"]["nodes"].as_array().map_or(0, Vec::len) == 8, "{edges} edges");
            ensure!(seen.data["nodes"][0]["edges"].as_u64() > Some(0), "{}", seen.data["nodes"][0]);
            let there = "return ['rate', 'edges'].filter((id) => document.querySelector('#' + id + ' canvas')).join()";
            let there = browser.ask(there).await?;
            ensure!(there == "rate,edges", "charts that are there: {there}");
            Ok(())
        },
    );
}

#[test]
fn an_empty_run() {
    check(
        "empty",
        |out| {
            made::run(out, &Made { nodes: 4, rounds: 0, host: &plain, faults: false, cut: true })?;
            Ok(report())
        },
        async |browser, _| {
            let said = browser.ask("return document.body.textContent").await?;
            ensure!(said.as_str().is_some_and(|said| said.contains("Nothing was measured")), "{said}");
            Ok(())
        },
    );
}

#[test]
fn hostile_names_and_traces() {
    check(
        "traces",
        |out| {
            made::run(out, &Made { nodes: 8, rounds: 40, host: &hostile, faults: false, cut: true })?;
            let traces = made::traces(out, 8, &hostile)?;
            let paths = traces.iter().map(|path| path.to_string_lossy().into_owned());
            Ok(report()
                .into_iter()
                .chain(["--traces".to_owned()])
                .chain(paths)
                .chain(["--assume-order".to_owned()])
                .collect())
        },
        async |browser, seen| {
            ensure!(seen.data["nodes"][3]["host"] == hostile(3), "the name is what it was");
            let said = browser.ask("return document.querySelector('.verdict').textContent").await?;
            ensure!(said.as_str().is_some_and(|said| said.contains("after alignment")), "{said}");
            ensure!(
                seen.data["traces"]["columns"].as_array().map(Vec::len) == Some(40),
                "{}",
                seen.data["traces"]["columns"]
            );
            ensure!(
                seen.data["traces"]["columns"][0]["label"] == "step 20",
                "in order of time: {}",
                seen.data["traces"]["columns"][0]
            );
            Ok(())
        },
    );
}
