//! Export of round spans to an OpenTelemetry collector by OTLP over HTTP.
//!
//! This is a layer next to the log, with the feature `otlp`; `OTEL_EXPORTER_OTLP_ENDPOINT` (or
//! `…_TRACES_ENDPOINT`) sets the destination, and the other variables of the standard apply as
//! well. Spans wait in a bounded queue, from which a thread of the SDK sends them: a slow or absent
//! collector costs spans but delays no round.
//!
//! The exporter brings no client of its own without TLS and all that comes with it, so it gets a
//! plain one: `http` only. A collector beside the job encrypts.
//!
//! It does not export metrics (`--metrics-listen`) or logs.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// Sends the remaining spans when it is dropped, for a few seconds at most.
pub struct Sender(SdkTracerProvider);

impl Drop for Sender {
    fn drop(&mut self) {
        // A collector that is away has been told by the SDK, or is nobody's loss.
        let _ = self.0.shutdown_with_timeout(END_LIMIT);
    }
}

/// The layer and the sender, if the environment requests them; if they are requested and cannot be
/// created, the reason.
pub fn layer<S>() -> (Option<impl Layer<S>>, Option<Sender>, Option<String>)
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    if !ENDPOINTS.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return (None, None, None);
    }
    match provider() {
        Ok(provider) => {
            let ours =
                |metadata: &tracing::Metadata<'_>| metadata.is_span() && metadata.target().starts_with("probe_sync");
            let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("probe_sync"));
            (Some(layer.with_filter(filter_fn(ours))), Some(Sender(provider)), None)
        }
        Err(problem) => (None, None, Some(problem)),
    }
}

fn provider() -> Result<SdkTracerProvider, String> {
    let client = PlainClient::new().map_err(|error| error.to_string())?;
    let exporter =
        SpanExporter::builder().with_http().with_http_client(client).build().map_err(|error| error.to_string())?;
    let mut resource = Resource::builder();
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("probe_sync");
    }
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build())
}

/// One request per connection, by HTTP/1.1, without encryption.
#[derive(Debug)]
struct PlainClient(Mutex<Runtime>);

impl PlainClient {
    fn new() -> std::io::Result<Self> {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map(|runtime| Self(Mutex::new(runtime)))
    }
}

#[async_trait::async_trait]
impl HttpClient for PlainClient {
    /// Blocks the caller: the SDK calls it on its own thread, which does nothing else.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let runtime = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(async { tokio::time::timeout(REQUEST_LIMIT, send(request)).await? })
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    if head.uri.scheme_str() != Some("http") {
        return Err(
            format!("{}: only http is supported; give the http address of a collector near the job", head.uri).into()
        );
    }
    let authority = head.uri.authority().ok_or("an address without a host")?.clone();
    let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(HTTP_PORT))).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    head.headers.insert(hyper::header::HOST, hyper::header::HeaderValue::from_str(authority.as_str())?);
    head.uri = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    let answered = async {
        let (head, body) = sender.send_request(Request::from_parts(head, Full::new(body))).await?.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
        Ok::<_, HttpError>(Response::from_parts(head, body))
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        ended = connection => {
            ended?;
            // It may have ended with the answer.
            answered.await
        }
    }
}

/// Standard variables for the destination of spans.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
const HTTP_PORT: u16 = 80;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_MAX: usize = 1 << 20;
