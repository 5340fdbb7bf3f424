//! `/metrics`, `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::{StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::OperatorError;
use crate::observability::health::LoopHealth;
use crate::observability::metrics::Metrics;

/// What `/metrics` speaks.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long an answer that is under way may keep the operator from ending.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What is shown.
#[derive(Clone)]
struct Endpoints {
    metrics: Arc<Metrics>,
    health: Arc<LoopHealth>,
}

/// Answers until it is ended or dropped.
pub(super) struct Server {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Begins to answer at that address.
    pub(super) async fn begin(
        address: SocketAddr,
        metrics: Arc<Metrics>,
        health: Arc<LoopHealth>,
    ) -> Result<Self, OperatorError> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| OperatorError::Listen { address, source })?;
        let (end, ended) = oneshot::channel();
        let router = router(Endpoints { metrics, health });
        let task = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(async {
                ended.await.ok();
            });
            if let Err(error) = serving.await {
                tracing::error!(%error, "metrics and health are served no more");
            }
        });
        Ok(Self { end, task })
    }

    /// Takes no more questions, and finishes the answers that are under way.
    pub(super) async fn end(self) {
        let Self { end, mut task } = self;
        end.send(()).ok();
        if tokio::time::timeout(LAST_ANSWERS, &mut task).await.is_err() {
            task.abort();
        }
    }
}

fn router(shown: Endpoints) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shown)
}

async fn metrics(
    State(shown): State<Endpoints>,
) -> Result<([(header::HeaderName, &'static str); 1], String), StatusCode> {
    match shown.metrics.text() {
        Ok(text) => Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text)),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            Err(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

async fn healthz(State(shown): State<Endpoints>) -> (StatusCode, String) {
    answer(shown.health.check_loops(Instant::now()))
}

async fn readyz(State(shown): State<Endpoints>) -> (StatusCode, String) {
    answer(shown.health.check_ready())
}

fn answer(found: Result<(), Vec<String>>) -> (StatusCode, String) {
    match found {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(wrong) => (StatusCode::SERVICE_UNAVAILABLE, wrong.join("\n") + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// A port that is free, as far as one can know.
    async fn free() -> SocketAddr {
        let any = TcpListener::bind("127.0.0.1:0").await.unwrap();
        any.local_addr().unwrap()
    }

    #[tokio::test]
    async fn each_path_answers_and_a_taken_port_is_named() {
        let (metrics, health) = (Arc::new(Metrics::new()), Arc::new(LoopHealth::default()));
        let address = free().await;
        let server = Server::begin(address, Arc::clone(&metrics), Arc::clone(&health))
            .await
            .unwrap();
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let not_yet = ask(address, "/readyz").await;
        assert!(not_yet.starts_with("HTTP/1.1 503"), "{not_yet}");
        assert!(not_yet.contains("has granted nothing yet"), "{not_yet}");
        health.api_answered();
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let shown = ask(address, "/metrics").await;
        assert!(
            shown.contains(OPEN_METRICS) && shown.contains("stagger_leader 0"),
            "{shown}"
        );
        let second = Server::begin(address, metrics, health).await.err().unwrap();
        assert!(second.to_string().contains(&address.to_string()), "{second}");
        server.end().await;
        assert!(TcpStream::connect(address).await.is_err());
    }
}
