//! Clients that count requests to the API server and to Ceph.

use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use serde_json::Value;
use stagger_ceph::api::{Body, CephAnswer, CephApi, CephApiError, QueryTarget};
use tower::{Layer, Service};

use crate::observability::health::LoopHealth;
use crate::observability::metrics::{ClusterMetrics, Metrics};

/// Counts requests to the API server; one that it grants shows that it is there.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<LoopHealth>,
}

impl<S> Layer<S> for Requests {
    type Service = CountedRequests<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CountedRequests {
            inner,
            to: self.clone(),
        }
    }
}

/// A client whose requests are counted.
#[derive(Clone)]
pub(crate) struct CountedRequests<S> {
    inner: S,
    to: Requests,
}

impl<S, A, B> Service<Request<A>> for CountedRequests<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let verb = verb(request.method(), request.uri().path(), request.uri().query());
        let to = self.to.clone();
        let answer = self.inner.call(request);
        answer
            .inspect(move |answer| {
                let status = answer.as_ref().ok().map(Response::status);
                to.metrics.request(verb, status.map(|status| status.as_u16()));
                if status.is_some_and(|status| status.is_success()) {
                    to.health.api_answered();
                }
            })
            .boxed()
    }
}

/// The verb of Kubernetes' rules of access that a request is.
fn verb(method: &Method, path: &str, query: Option<&str>) -> &'static str {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let within = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let within = match within {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    let one = within.len() != 1;
    let watches = query.is_some_and(|query| {
        query
            .split('&')
            .any(|word| matches!(word, "watch=true" | "watch=1"))
    });
    match *method {
        Method::GET if watches => "watch",
        Method::GET if one => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if one => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    }
}

/// Ceph, with what it is asked counted.
pub(crate) struct InstrumentedCephApi {
    pub(crate) api: Arc<dyn CephApi>,
    pub(crate) metrics: Arc<ClusterMetrics>,
}

#[async_trait]
impl CephApi for InstrumentedCephApi {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let prefix = command["prefix"].as_str().unwrap_or("other").to_owned();
        let answer = self.api.command(whom, command).await;
        self.metrics.command(prefix, answer.is_ok());
        answer
    }

    async fn ask_for_much(&self, whom: QueryTarget, command: Value) -> Result<Body, CephApiError> {
        let prefix = command["prefix"].as_str().unwrap_or("other").to_owned();
        let answer = self.api.ask_for_much(whom, command).await;
        let answered = matches!(&answer, Ok(_) | Err(CephApiError::Refused { .. }));
        self.metrics.command(prefix, answered);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_those_of_the_roles() {
        let namespaced = "/apis/apps/v1/namespaces/rook-ceph/deployments";
        let one = format!("{namespaced}/rook-ceph-osd-0");
        let status = format!("{one}/status");
        for (method, path, query, expected) in [
            (Method::GET, namespaced, Some("limit=500"), "list"),
            (Method::GET, namespaced, Some("limit=1&watch=true"), "watch"),
            (Method::GET, "/api/v1/nodes", Some(""), "list"),
            (Method::GET, "/api/v1/nodes/n1", None, "get"),
            (Method::GET, "/api/v1/namespaces", None, "list"),
            (Method::GET, "/api/v1/namespaces/rook-ceph", None, "get"),
            (Method::GET, &one, None, "get"),
            (Method::GET, "/version", None, "get"),
            (Method::PATCH, &status, None, "patch"),
            (Method::POST, namespaced, None, "create"),
            (Method::PUT, &one, None, "update"),
            (Method::DELETE, &one, None, "delete"),
            (Method::DELETE, namespaced, None, "deletecollection"),
        ] {
            assert_eq!(verb(&method, path, query), expected, "{method} {path}");
        }
    }
}
