//! An admission webhook on `pods/eviction`: it tells the client of a drain why a pod of Ceph may not be
//! evicted now, and until when.
//!
//! The budgets apply in any case, also while the webhook does not answer (`failurePolicy: Ignore`). Only the
//! leader answers, since only it has observed the cluster: it publishes its address and its certificate where
//! the API server finds them.

mod certificate;
mod registration;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::Eviction;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use tokio::time::sleep;

use crate::disruption::evictions::EvictionReviewer;
use crate::reconcile::Shared;
use certificate::{Certificate, CertificateError};
use registration::Registration;

/// The path that the API server asks.
const PATH: &str = "/evictions";
/// What `kubectl drain` takes for "not now": it asks again.
const NOT_NOW: u16 = 429;
/// How often it is looked whether what was written down is still there.
const LOOK: Duration = Duration::from_mins(10);
/// The same after it could not be written.
const AGAIN: Duration = Duration::from_secs(15);

/// Where evictions are answered, and how the API server gets there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where is listened.
    pub listen: SocketAddr,
    /// How it is reached.
    pub reached: Reached,
}

/// How the API server gets to the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// By the Service, which leads to the leader's pod.
    Service {
        /// The address of this pod.
        pod: IpAddr,
    },
    /// At this host or address, for an operator outside of the cluster.
    Host(String),
}

/// Answers for as long as this operator leads.
pub(super) async fn serve(shared: Shared, webhook: Webhook) {
    loop {
        let ended = answer_at(&shared, &webhook).await;
        shared.evictions.set_registered(false);
        let error = ended.err().map(|error| error.to_string());
        tracing::error!(
            address = %webhook.listen, error,
            "evictions are not answered, only budgets hold; --webhook names another address, or off"
        );
        sleep(AGAIN).await;
    }
}

/// Why evictions are answered no more.
#[derive(Debug, thiserror::Error)]
enum WebhookError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("listen: {0}")]
    Listen(#[from] io::Error),
}

async fn answer_at(shared: &Shared, webhook: &Webhook) -> Result<(), WebhookError> {
    let registration = Registration::new(shared, webhook);
    let certificate = Certificate::new(&registration.host())?;
    let config = RustlsConfig::from_config(certificate.server());
    let listener = TcpListener::bind(webhook.listen)?;
    listener.set_nonblocking(true)?;
    let server = axum_server::from_tcp_rustls(listener, config.clone())?;
    let router = router(Arc::clone(&shared.evictions));
    tokio::select! {
        ended = server.serve(router.into_make_service()) => Ok(ended?),
        ended = keep_registered(shared, &registration, certificate, &config) => Ok(ended?),
    }
}

/// Has the API server know it; a new certificate is known before it is shown.
async fn keep_registered(
    shared: &Shared,
    registration: &Registration,
    first: Certificate,
    config: &RustlsConfig,
) -> Result<(), CertificateError> {
    let (mut newest, mut before) = (first, None);
    loop {
        let trusted: Vec<&Certificate> = std::iter::once(&newest).chain(&before).collect();
        let registered = registration.write(&trusted).await;
        shared.evictions.set_registered(registered.is_ok());
        match &registered {
            Ok(()) => config.reload_from_config(newest.server()),
            Err(error) => {
                tracing::warn!(%error, hint = error.hint, "the webhook on evictions is not registered, only budgets hold");
            }
        }
        sleep(if registered.is_ok() { LOOK } else { AGAIN }).await;
        if newest.is_to_be_renewed(Timestamp::now()) {
            let renewed = Certificate::new(&registration.host())?;
            before = Some(std::mem::replace(&mut newest, renewed));
        }
    }
}

fn router(evictions: Arc<EvictionReviewer>) -> Router {
    Router::new().route(PATH, post(answer)).with_state(evictions)
}

async fn answer(
    State(evictions): State<Arc<EvictionReviewer>>,
    Json(review): Json<AdmissionReview<Eviction>>,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    let request: AdmissionRequest<Eviction> = review.try_into().map_err(|_| StatusCode::BAD_REQUEST)?;
    let mut response = AdmissionResponse::from(&request);
    let namespace = request.namespace.clone().unwrap_or_default();
    if let Err(why) = evictions.may_go(&namespace, &request.name, request.dry_run).await {
        tracing::info!(namespace, pod = request.name, why, "an eviction is refused");
        response = response.deny(why);
        response.result.code = NOT_NOW;
        "TooManyRequests".clone_into(&mut response.result.reason);
    }
    Ok(Json(response.into_review()))
}
