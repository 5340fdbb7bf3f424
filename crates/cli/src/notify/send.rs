//! One attempt to deliver a message.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use serde_json::json;
use sha2::Sha256;
use stagger_engine::secrets;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Format, Message, Receiver};
use crate::error::CliError;

/// So long one attempt may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Sends to one receiver.
pub(super) struct Sender {
    how: Transport,
}

enum Transport {
    Webhook {
        url: String,
        format: Format,
        key: Option<String>,
        client: Box<Client<HttpsConnector<HttpConnector>, Full<Bytes>>>,
    },
    Command(Vec<String>),
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SendError {
    /// Why.
    pub(super) why: String,
    /// Another attempt would fail as well.
    pub(super) for_good: bool,
}

impl SendError {
    fn for_now(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            for_good: false,
        }
    }
}

impl Sender {
    /// For that receiver.
    ///
    /// # Errors
    /// Its secret cannot be read, or this machine has no certificates of authorities.
    pub(super) fn new(receiver: &Receiver) -> Result<Self, CliError> {
        let how = match (&receiver.webhook, &receiver.command) {
            (Some(url), _) => Transport::Webhook {
                url: url.clone(),
                format: receiver.format,
                key: match &receiver.secret_file {
                    None => None,
                    Some(file) => Some(secrets::read(file).map_err(|why| {
                        CliError::usage(format!("read the secret of {}: {why}", receiver.name()))
                    })?),
                },
                client: Box::new(client()?),
            },
            (None, command) => Transport::Command(command.clone().unwrap_or_default()),
        };
        Ok(Self { how })
    }

    /// One attempt.
    pub(super) async fn send(&self, message: &Message) -> Result<(), SendError> {
        let sent = match &self.how {
            Transport::Webhook {
                url,
                format,
                key,
                client,
            } => timeout(LIMIT, post(client, url, *format, key.as_deref(), message)).await,
            Transport::Command(command) => timeout(LIMIT, run(command, message)).await,
        };
        sent.unwrap_or_else(|_| Err(SendError::for_now(format!("no answer for {} s", LIMIT.as_secs()))))
    }
}

fn client() -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, CliError> {
    let provider = rustls::crypto::ring::default_provider();
    let roots = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(provider)
        .map_err(|error| {
            CliError::usage(format!(
                "this machine has no certificates of authorities: {error}"
            ))
        })?;
    let connector = roots.https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

async fn post(
    client: &Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: &str,
    format: Format,
    key: Option<&str>,
    message: &Message,
) -> Result<(), SendError> {
    let (kind, body) = match format {
        Format::Cloudevents => ("application/cloudevents+json", message.cloud_event()),
        Format::Text => (
            "application/json",
            json!({ "text": format!("*{}*\n{}", message.subject, message.text) }),
        ),
    };
    let body = body.to_string();
    let now = Timestamp::now().as_second();
    let mut request = Request::post(url)
        .header("content-type", kind)
        .header("user-agent", concat!("stagger/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &message.id)
        .header("webhook-timestamp", now);
    if let Some(key) = key {
        request = request.header("webhook-signature", signature(key, &message.id, now, &body));
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| SendError {
            why: error.to_string(),
            for_good: true,
        })?;
    let answer = client.request(request).await;
    let status = answer
        .map_err(|error| SendError::for_now(in_full(&error)))?
        .status();
    // Rights and addresses are mended while a run goes on; what is wrong with a message stays so.
    let of_the_message = [
        StatusCode::BAD_REQUEST,
        StatusCode::GONE,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    match status {
        status if status.is_success() => Ok(()),
        status => Err(SendError {
            why: format!("it answered {status}"),
            for_good: of_the_message.contains(&status),
        }),
    }
}

/// An error with what is behind it.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(source) = inner {
        text = format!("{text}: {source}");
        inner = source.source();
    }
    text
}

/// By Standard Webhooks 1.0.0: HMAC-SHA256 over id, time and body. A key with the prefix `whsec_` is base64.
pub(super) fn signature(key: &str, id: &str, at: i64, body: &str) -> String {
    let key = match key.strip_prefix("whsec_").map(|key| STANDARD.decode(key)) {
        Some(Ok(bytes)) => bytes,
        Some(Err(_)) | None => key.as_bytes().to_vec(),
    };
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else {
        return String::new();
    };
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

async fn run(command: &[String], message: &Message) -> Result<(), SendError> {
    let [program, arguments @ ..] = command else {
        return Ok(());
    };
    let failed = |error: std::io::Error| SendError::for_now(format!("{program}: {error}"));
    let mut child = Command::new(program)
        .args(arguments)
        .env("STAGGER_SUBJECT", &message.subject)
        .env("STAGGER_RUN", &message.run)
        .env("STAGGER_CLUSTER", &message.cluster)
        .env("STAGGER_TYPE", &message.kind)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A program that reads nothing is told all the same.
        input.write_all(message.plain().as_bytes()).await.ok();
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(SendError::for_now(format!("{program} ended with {status}")))
}
