//! Requests to other services.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// In this header a client says which version of an object it reads.
pub(crate) const READS: &str = "inventory-reads";

/// For so long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks other services.
#[derive(Debug, Clone)]
pub(crate) struct Http(Client<HttpConnector, Full<Bytes>>);

impl Http {
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// The status and the text of the answer. An error is no answer: it may have been done or not.
    pub(crate) async fn ask(
        &self,
        method: Method,
        url: &str,
        reads: &str,
        body: String,
    ) -> Result<(StatusCode, String)> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(READS, reads)
            .body(Full::from(body))?;
        let whole = async {
            let answer = self.0.request(request).await;
            let answer = answer.with_context(|| format!("no answer from {url}"))?;
            let status = answer.status();
            let body = answer.into_body().collect().await;
            let body = body.with_context(|| format!("half an answer from {url}"))?;
            Ok((status, String::from_utf8(body.to_bytes().into())?))
        };
        let answered = tokio::time::timeout(PATIENCE, whole).await;
        answered.with_context(|| format!("no whole answer from {url} in {PATIENCE:?}"))?
    }
}
