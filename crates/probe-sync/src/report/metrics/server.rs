//! `/metrics` over HTTP, for scraping the root.
//!
//! `--metrics-listen` starts it with the run; the recorder publishes each round's text, and a
//! separate thread answers with the latest one. The round loop never waits for it, because
//! publishing swaps a pointer. Each connection serves one request and lasts a few seconds at most;
//! if too many are open, the oldest is closed, so that silent clients cannot block others.
//!
//! It has no encryption or authentication; it listens where it was configured to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use probe_sync_sys::fork;
use probe_sync_sys::process::block_signals;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use super::text::{prometheus_text, whole};
use crate::Error;

/// Serves the metrics on a thread of its own until dropped.
#[derive(Debug)]
pub(in crate::report) struct MetricsServer {
    published: Arc<Published>,
    /// Dropped to end the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The current response.
#[derive(Debug, Default)]
struct Published(Mutex<(Arc<str>, Option<Instant>)>);

impl MetricsServer {
    /// Listens at `address`.
    ///
    /// # Errors
    /// [`Error::Listen`] if the address cannot be used.
    pub fn start(address: SocketAddr) -> Result<Self, Error> {
        let cannot = |reason: std::io::Error| {
            let reason = match reason.kind() {
                ErrorKind::AddrInUse => format!("{reason}; give --metrics-listen another port, or 0 for any"),
                _ => reason.to_string(),
            };
            Error::Listen { address, reason }
        };
        let listener = fork::opened(|| StdListener::bind(address)).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let at = listener.local_addr().map_err(cannot)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(cannot)?;
        let published = Arc::new(Published::default());
        let (end, ended) = oneshot::channel();
        let answers = Arc::clone(&published);
        let body = move || {
            // Handlers run on the process's other threads. Where that cannot be, a signal that
            // comes here is handled here.
            if let Err(error) = block_signals() {
                tracing::debug!("{error}");
            }
            // Of this thread alone, on Linux; where it cannot be, the thread is as important as
            // others.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, answers) => {}
                    // The sender says nothing: it goes.
                    _ = ended => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(body).map_err(cannot)?;
        tracing::info!("metrics at http://{at}/metrics");
        Ok(Self { published, end: Some(end), thread: Some(thread) })
    }

    /// Replaces the response: the metrics as OpenMetrics text without the end marker, just updated
    /// by a round.
    pub fn publish(&self, metrics: Arc<str>) {
        *self.published.0.lock().unwrap_or_else(PoisonError::into_inner) = (metrics, Some(Instant::now()));
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but its tasks, which end with it.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: StdListener, published: Arc<Published>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!("cannot serve metrics: {error}"),
    };
    let mut connections = JoinSet::new();
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match accept(&listener).await {
            Ok(stream) => stream,
            Err(error) => {
                // Out of descriptors, say: what is open ends within seconds.
                tracing::debug!("metrics: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
            // Clients who come again and again take no processor from the rounds.
            tokio::time::sleep(CROWDED).await;
        }
        open.push_back(connections.spawn(connection(stream, Arc::clone(&published))));
    }
}

/// Accepts the next client. No child process inherits its connection: accepting does not block, and
/// is all that happens while no other thread can fork.
async fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    let look = |context: &mut Context<'_>| {
        let looked = fork::opened(|| match listener.poll_accept(context) {
            Poll::Ready(Ok((stream, _))) => Ok(stream),
            Poll::Ready(Err(error)) => Err(Some(error)),
            Poll::Pending => Err(None),
        });
        match looked {
            Ok(stream) => Poll::Ready(Ok(stream)),
            Err(Some(error)) => Poll::Ready(Err(error)),
            Err(None) => Poll::Pending,
        }
    };
    poll_fn(look).await
}

async fn connection(stream: TcpStream, published: Arc<Published>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &published);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(REQUEST_MAX);
    let served = http.serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(REQUEST_LIMIT, served).await {
        Ok(Ok(())) | Err(_) => {}
        // Garbage and broken connections are the clients' business.
        Ok(Err(error)) => tracing::debug!("metrics: {error}"),
    }
}

fn respond(request: &Request<Incoming>, published: &Published) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let (metrics, at) = published.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = whole(&metrics, at.map(|at| at.elapsed()));
    let accepted = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(OPEN_METRICS));
    let (text, kind) = if request.headers().get_all(ACCEPT).iter().any(accepted) {
        (text, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    } else {
        (prometheus_text(&text), "text/plain; version=0.0.4; charset=utf-8")
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

const OPEN_METRICS: &str = "application/openmetrics-text";
/// Low priority, since rounds and training come first.
const NICENESS: i32 = 10;
/// Most concurrent connections; there are few scrapers.
const CONNECTIONS_MAX: usize = 32;
/// Longest request; a scrape of thousands of nodes takes well under a second.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const REQUEST_MAX: usize = 16 << 10;
/// Pause between connections if there are too many, which limits them to 500 per second.
const CROWDED: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(100);
