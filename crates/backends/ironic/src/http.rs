//! The API over HTTP: what it offers, and the conductors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use stagger_engine::cluster::{BackendError, in_full};
use stagger_versioned::Version;

use crate::credentials::{CachedCredential, CredentialSource, Credentials, Header, printed};
use crate::facts::{ApiReport, ConductorReport};

/// An answer is never longer: ten thousand conductors take two of these.
const LARGEST: usize = 1 << 20;

/// The highest version that a service offers; servers differ in how they write the name.
const MAXIMUM: &str = "x-openstack-ironic-api-maximum-version";

/// Where Keystone writes the token that it gives.
const SUBJECT_TOKEN: &str = "x-subject-token";

/// The version in which questions are asked, since it is the first that lists conductors.
const ASKED_IN: (&str, &str) = ("x-openstack-ironic-api-version", "1.49");

/// Asks by HTTP and HTTPS.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    limit: Duration,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// Nobody listens there.
    Away(String),
    /// Unknown.
    Unclear(String),
}

/// An answer.
#[derive(Debug)]
struct Answer {
    code: u16,
    maximum: Option<String>,
    /// Keystone's.
    token: Option<String>,
    body: Value,
}

impl Http {
    /// That believes that authority, or those of the system.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn new(ca: Option<&Path>, limit: Duration) -> Result<Self, BackendError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // A machine without authorities still reaches what does without TLS.
        let builder = match ca {
            Some(file) => HttpsConnectorBuilder::new().with_tls_config(trusting(provider, Some(file))?),
            None => {
                match HttpsConnectorBuilder::new().with_provider_and_native_roots(Arc::clone(&provider)) {
                    Ok(builder) => builder,
                    Err(error) => {
                        tracing::warn!(%error, "this machine has no certificates of authorities");
                        HttpsConnectorBuilder::new().with_tls_config(trusting(provider, None)?)
                    }
                }
            }
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(limit));
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
        Ok(Self {
            // A connection is not kept: one to a service that was restarted tells nothing of it.
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(connector),
            limit,
        })
    }

    /// The same with another limit for an answer, if that is lower.
    pub(crate) fn with_timeout(&self, limit: Duration) -> Self {
        Self {
            limit: self.limit.min(limit),
            ..self.clone()
        }
    }

    /// Asks with what these credentials give. What is refused as too old is asked once more with another.
    async fn ask(
        &self,
        method: &str,
        url: &str,
        who: &Credentials,
        body: Option<&Value>,
    ) -> Result<Answer, HttpError> {
        let header = async || {
            let header = self.header(who).await;
            header.map_err(|why| HttpError::Unclear(format!("{url}: {why}")))
        };
        let answer = self.send(method, url, header().await?, body).await?;
        if answer.code != 401 || !who.can_be_renewed() {
            return Ok(answer);
        }
        who.forget();
        self.send(method, url, header().await?, body).await
    }

    async fn send(
        &self,
        method: &str,
        url: &str,
        header: Option<Header>,
        body: Option<&Value>,
    ) -> Result<Answer, HttpError> {
        let unclear = |why: String| HttpError::Unclear(format!("{url}: {why}"));
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(ASKED_IN.0, ASKED_IN.1)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json");
        if let Some(Header { name, value }) = header {
            request = request.header(name, value);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| unclear(error.to_string()))?;
        let asked = async {
            let answer = self.client.request(request).await.map_err(|error| {
                let why = in_full(&error);
                if error.is_connect() {
                    HttpError::Away(format!("{url}: {why}"))
                } else {
                    unclear(why)
                }
            })?;
            let code = answer.status().as_u16();
            let said = |name: &str| answer.headers().get(name)?.to_str().ok().map(str::to_owned);
            let (maximum, token) = (said(MAXIMUM), said(SUBJECT_TOKEN));
            let body = Limited::new(answer.into_body(), LARGEST)
                .collect()
                .await
                .map_err(|error| unclear(error.to_string()))?
                .to_bytes();
            Ok(Answer {
                code,
                maximum,
                token,
                body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            })
        };
        match tokio::time::timeout(self.limit, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(unclear(format!("no answer for {} s", self.limit.as_secs()))),
        }
    }

    /// Asks what is no Ironic: the code of the answer, and its body as JSON.
    pub(crate) async fn json(
        &self,
        method: &str,
        url: &str,
        who: &Credentials,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        match self.ask(method, url, who, body).await {
            Ok(Answer { code, body, .. }) => Ok((code, body)),
            Err(HttpError::Away(why) | HttpError::Unclear(why)) => Err(why),
        }
    }

    /// What a service of the API says of itself, once it has shown that it reaches its database: the page that tells its
    /// version needs none.
    pub(crate) async fn api(&self, url: &str, who: &Credentials) -> ApiReport {
        let answer = match self.send("GET", &join(url, "/"), None, None).await {
            Ok(answer) => answer,
            Err(HttpError::Away(why)) => return ApiReport::Away(why),
            Err(HttpError::Unclear(why)) => return ApiReport::Unclear(why),
        };
        let Answer {
            code, maximum, body, ..
        } = answer;
        // The header is not there on every page; the page itself says the same.
        let said = maximum.or_else(|| body["default_version"]["version"].as_str().map(str::to_owned));
        let offers = match said.as_deref().map(str::parse::<Version>) {
            Some(Ok(version)) if code == 200 => version,
            Some(Ok(_)) | None => {
                return ApiReport::Unclear(format!("{url} answers {code}, without its highest version"));
            }
            Some(Err(error)) => return ApiReport::Unclear(format!("{url}: {error}")),
        };
        let asked = join(url, "/v1/conductors?limit=1");
        match self.ask("GET", &asked, who, None).await {
            Ok(Answer { code: 200, .. }) => ApiReport::Offers(offers),
            Ok(Answer { code, body, .. }) => {
                ApiReport::Unclear(format!("{asked} answers {code}: {}", error_text(&body)))
            }
            Err(HttpError::Away(why) | HttpError::Unclear(why)) => ApiReport::Unclear(why),
        }
    }

    /// The conductors that an API lists.
    pub(crate) async fn conductors(
        &self,
        url: &str,
        who: &Credentials,
    ) -> Result<BTreeMap<String, ConductorReport>, String> {
        let mut found = BTreeMap::new();
        let mut next = join(url, "/v1/conductors");
        // Pages of at least one each.
        for _ in 0..1000 {
            let answer = self.ask("GET", &next, who, None).await;
            let Answer { code, body, .. } = answer.map_err(|error| match error {
                HttpError::Away(why) | HttpError::Unclear(why) => why,
            })?;
            let listed = body["conductors"].as_array();
            let Some(listed) = listed.filter(|_| code == 200) else {
                return Err(format!("{next} answers {code}: {}", error_text(&body)));
            };
            for conductor in listed {
                let name = conductor["hostname"].as_str();
                let alive = conductor["alive"].as_bool();
                let (Some(name), Some(alive)) = (name, alive) else {
                    return Err(format!(
                        "{next} lists {conductor}, without `hostname` and `alive`"
                    ));
                };
                let group = conductor["conductor_group"].as_str().unwrap_or_default();
                let says = ConductorReport {
                    alive,
                    group: group.to_owned(),
                };
                found.insert(name.to_owned(), says);
            }
            match body["next"].as_str() {
                Some(more) => more.clone_into(&mut next),
                None => return Ok(found),
            }
        }
        Err(format!("{url} lists conductors without an end"))
    }

    /// Stops the heartbeat of a conductor, by its JSON-RPC port.
    pub(crate) async fn halt_keepalive(&self, rpc: &str, who: &Credentials) -> Result<(), String> {
        let call = json!({ "jsonrpc": "2.0", "method": "keepalive_halt", "params": {}, "id": "stagger" });
        match self.ask("POST", &join(rpc, "/"), who, Some(&call)).await {
            Ok(Answer { code: 200, body, .. }) if body.get("error").is_none() => Ok(()),
            Ok(Answer { code, body, .. }) => Err(format!("{rpc} answers {code}: {}", error_text(&body))),
            Err(HttpError::Away(why) | HttpError::Unclear(why)) => Err(why),
        }
    }
}

impl Http {
    /// What is to be sent beside a question, if anything is.
    async fn header(&self, who: &Credentials) -> Result<Option<Header>, String> {
        match who.cached() {
            CachedCredential::Nothing => return Ok(None),
            CachedCredential::Header(header) => return Ok(Some(header)),
            CachedCredential::AskFor => {}
        }
        let (token, ends) = match &who.source {
            CredentialSource::Command(command) => (printed(command, self.limit).await?, None),
            CredentialSource::Keystone { url, request } => self.keystone_token(url, request).await?,
            CredentialSource::Nobody | CredentialSource::Same(_) => return Ok(None),
        };
        Ok(Some(who.store(token, ends)))
    }

    /// A token of Keystone's, and when it ends, if that is said.
    async fn keystone_token(
        &self,
        url: &str,
        request: &Value,
    ) -> Result<(String, Option<Timestamp>), String> {
        match self.send("POST", url, None, Some(request)).await {
            Ok(Answer {
                code: 201,
                token: Some(token),
                body,
                ..
            }) => {
                let ends = body["token"]["expires_at"].as_str();
                Ok((token, ends.and_then(|ends| ends.parse().ok())))
            }
            // Its words name the user, and never the password.
            Ok(Answer { code, body, .. }) => Err(format!(
                "{url} gives no token, it answers {code}: {}",
                error_text(&body)
            )),
            Err(HttpError::Away(why) | HttpError::Unclear(why)) => {
                Err(format!("Keystone gives no token: {why}"))
            }
        }
    }
}

/// A client that believes the authorities of that file, or none.
fn trusting(provider: Arc<CryptoProvider>, file: Option<&Path>) -> Result<ClientConfig, BackendError> {
    let tried = match file {
        Some(file) => format!("use the certificates of {}", file.display()),
        None => "set TLS up".to_owned(),
    };
    let wrong = |why: String| BackendError::permanent(&tried, why);
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        let found = CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
    }
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn join(url: &str, path: &str) -> String {
    format!("{}{path}", url.trim_end_matches('/'))
}

fn error_text(body: &Value) -> String {
    body.to_string().chars().take(200).collect()
}
