//! Questions by HTTP.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use stagger_engine::cluster::in_full;
use stagger_engine::secrets;

use crate::config::Endpoint;

/// The timeout for an answer: an observation waits for it and ages meanwhile.
const LIMIT: Duration = Duration::from_secs(3);

/// An answer is never longer: a thousand series take a quarter of it.
const LARGEST: usize = 1 << 20;

/// An HTTP service.
pub(crate) struct HttpService {
    base: String,
    authorization: Option<HeaderValue>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl HttpService {
    /// Reads its secret and certificates.
    ///
    /// # Errors
    /// What of it cannot be used, in words.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, String> {
        Ok(Self {
            base: endpoint.url.trim_end_matches('/').to_owned(),
            authorization: authorization(endpoint)?,
            client: client(endpoint.ca_file.as_deref())?,
        })
    }

    /// The address of a page.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Requests a page, by POST with that form if there is one.
    ///
    /// # Errors
    /// Why there is no JSON answer. A status other than 200 is an answer too.
    pub(crate) async fn ask(&self, path: &str, form: Option<String>) -> Result<(u16, Value), String> {
        let url = self.page(path);
        let mut request = Request::builder()
            .method(if form.is_some() { "POST" } else { "GET" })
            .uri(&url)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("stagger/", env!("CARGO_PKG_VERSION")));
        if form.is_some() {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(Bytes::from(form.unwrap_or_default())))
            .map_err(|error| format!("{url}: {error}"))?;
        let asked = async {
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|error| format!("{url}: {}", in_full(&error)))?;
            let code = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), LARGEST).collect().await;
            let body = body.map_err(|error| format!("{url}: its answer is not read: {error}"))?;
            let body = serde_json::from_slice(&body.to_bytes())
                .map_err(|_| format!("{url} answers {code}, and not in JSON"))?;
            Ok((code, body))
        };
        match tokio::time::timeout(LIMIT, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("{url}: no answer for {} s", LIMIT.as_secs())),
        }
    }
}

fn authorization(endpoint: &Endpoint) -> Result<Option<HeaderValue>, String> {
    let text = if let Some(file) = &endpoint.token_file {
        format!("Bearer {}", secrets::read(file)?)
    } else if let (Some(user), Some(file)) = (&endpoint.user, &endpoint.password_file) {
        let encoded = STANDARD.encode(format!("{user}:{}", secrets::read(file)?));
        secrets::remember(&encoded);
        format!("Basic {encoded}")
    } else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| "the secret has characters that no HTTP header holds".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn client(ca: Option<&Path>) -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = match ca {
        Some(file) => {
            let roots = authorities(file)?;
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| format!("set TLS up: {error}"))?;
            HttpsConnectorBuilder::new()
                .with_tls_config(config.with_root_certificates(roots).with_no_client_auth())
        }
        None => HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(provider)
            .map_err(|error| {
                format!("this machine has no certificates of authorities ({error}): give `ca_file`")
            })?,
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(LIMIT));
    let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |why: String| format!("use the certificates of {}: {why}", file.display());
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there are none in it".to_owned()));
    }
    Ok(roots)
}
