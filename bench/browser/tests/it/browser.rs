//! A headless Chromium driven over WebDriver, and a server for one page that counts its requests.
//!
//! It connects only to the loopback interface.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// A browser and its driver, which end with it.
pub struct Browser {
    pub client: Client,
    driver: Child,
    _profile: tempfile::TempDir,
}

/// Why there is no browser here; `None` if there is one.
pub fn missing() -> Option<&'static str> {
    let there = |program: &str| {
        let mut asked = Command::new(program);
        asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    match (there("chromium"), there("chromedriver")) {
        (false, _) => Some("chromium is not installed"),
        (_, false) => Some("chromedriver is not installed (Debian's package chromium-driver)"),
        _ => None,
    }
}

impl Browser {
    pub async fn start() -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let profile = tempfile::tempdir()?;
        let mut driver = Command::new("chromedriver");
        driver.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = driver.spawn().context("chromedriver")?;
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-device-scale-factor=1",
            "--window-size=1280,900",
            &folder,
        ];
        let capabilities = json!({
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let Value::Object(capabilities) = capabilities else { bail!("capabilities are an object") };
        let begun = Instant::now();
        loop {
            let address = format!("http://127.0.0.1:{port}");
            let mut builder = ClientBuilder::new(HttpConnector::new());
            match builder.capabilities(capabilities.clone()).connect(&address).await {
                Ok(client) => return Ok(Self { client, driver, _profile: profile }),
                Err(error) if begun.elapsed() > START => {
                    end(driver);
                    bail!("no session with the browser: {error}");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// What a script returns.
    pub async fn ask(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// What the console has said since it was asked last.
    pub async fn console(&self) -> Result<Vec<String>> {
        let entries = self.client.issue_cmd(Log).await?;
        let told = |entry: &Value| {
            format!("{}: {}", entry["level"].as_str().unwrap_or(""), entry["message"].as_str().unwrap_or(""))
        };
        let all: Vec<String> = entries.as_array().map(|all| all.iter().map(told).collect()).unwrap_or_default();
        // That is what the tests themselves do to canvases.
        Ok(all.into_iter().filter(|entry| !entry.contains("willReadFrequently")).collect())
    }

    pub async fn end(self) -> Result<()> {
        let closed = self.client.clone().close().await;
        end(self.driver);
        Ok(closed?)
    }
}

fn end(mut driver: Child) {
    // It may be gone already.
    let _ = driver.kill();
    let _ = driver.wait();
}

/// Chromium's way to its console.
#[derive(Debug)]
struct Log;

impl WebDriverCompatibleCommand for Log {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}

/// Serves one page, whatever is asked for, and keeps what was.
pub struct Server {
    pub address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn of(page: &Path) -> Result<Self> {
        let html: Arc<[u8]> = std::fs::read(page)?.into();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("http://{}/", listener.local_addr()?);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (html, kept) = (html.clone(), kept.clone());
                // A browser opens connections before it needs them: none may hold up the others.
                std::thread::spawn(move || answer(stream, &html, &kept));
            }
        });
        Ok(Self { address, asked })
    }

    /// Forgets what was asked.
    pub fn forget(&self) {
        self.asked.lock().expect("nobody panics with it").clear();
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics with it").clone()
    }
}

/// Answers one request. A browser that hangs up has seen enough.
fn answer(mut stream: TcpStream, html: &[u8], kept: &Mutex<Vec<String>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    let first = lines.next().filter(|line| !line.is_empty())?;
    lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
    kept.lock().expect("nobody panics with it").push(first);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        html.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(html)).ok()?;
    stream.shutdown(Shutdown::Write).ok()?;
    // To close with something unread would take back what was sent.
    lines.for_each(drop);
    Some(())
}

const START: Duration = Duration::from_secs(60);
