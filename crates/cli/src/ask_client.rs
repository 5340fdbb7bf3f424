//! Asks from the command line: by the store of this machine, or by a `stagger serve`.

use std::path::Path;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use stagger_asks::ask::{Ask, AskEnd, AskId, AskState, NewAsk};
use stagger_asks::ledger::{AskLedger, AskedCluster, LedgerError};
use stagger_asks::view::{AskDocument, AskStateWord};
use stagger_core::model::ClusterName;
use stagger_engine::secrets;
use tokio::time::Instant;

use crate::args::{AskDoorArgs, Cli};
use crate::config;
use crate::error::CliError;
use crate::exit::Exit;
use crate::state::ledger;

/// How often the store is looked at while an answer is waited for.
const LOOK: Duration = Duration::from_millis(100);
/// A server is waited for no longer at once, in seconds.
const ONE_WAIT: u64 = 20;
/// One answer of a server may take so long, beside what it was asked to wait.
const ANSWER: Duration = Duration::from_secs(15);
/// No answer is larger.
const LARGEST: usize = 16 << 20;

/// Where is asked.
pub(crate) enum AskClient {
    /// In the store of this machine.
    Store {
        ledger: AskLedger,
        cluster: AskedCluster,
        asker: String,
    },
    /// At a server.
    Server(Box<AskServer>),
}

/// A `stagger serve`.
pub(crate) struct AskServer {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    token: String,
    cluster: Option<ClusterName>,
}

impl AskClient {
    /// By these flags. `asker`: who asks, where no token says so.
    pub(crate) async fn open(cli: &Cli, door: &AskDoorArgs, asker: String) -> Result<Self, CliError> {
        if let Some(url) = &door.url {
            return Ok(Self::Server(Box::new(AskServer::new(url, door)?)));
        }
        let named = match &door.cluster {
            Some(name) => Some(name.clone()),
            None => config::path(cli).and_then(|path| config::name_of(&path)).ok(),
        };
        let ledger = ledger(cli).await?;
        let cluster = ledger.cluster_named(named.as_ref()).await?;
        Ok(Self::Store {
            ledger,
            cluster,
            asker,
        })
    }

    /// Puts an ask: all of it but by whom and of which cluster. One that is open and of the same hosts by the same asker is
    /// that one, where it `lapses`.
    pub(crate) async fn put(&self, wanted: &WantedAsk) -> Result<AskDocument, CliError> {
        match self {
            Self::Store {
                ledger,
                cluster,
                asker,
            } => {
                let wanted = NewAsk {
                    cluster: cluster.identity.clone(),
                    asker: asker.clone(),
                    key: None,
                    hosts: wanted.hosts.iter().cloned().collect(),
                    units: wanted.units.iter().cloned().collect(),
                    hold: wanted.hold,
                    until: wanted.until,
                    lapses: wanted.lapses,
                    why: wanted.why.clone(),
                    run: None,
                };
                // Who kept a place has it still.
                if wanted.lapses {
                    let board = ledger.board(&cluster.identity).await?;
                    let same = |ask: &Ask| {
                        ask.wanted.asker == wanted.asker
                            && ask.wanted.hosts == wanted.hosts
                            && ask.wanted.units == wanted.units
                    };
                    if let Some(known) = board.asks.into_iter().find(same) {
                        ledger.ask_anew(&known.id, &wanted).await?;
                        return Ok(AskDocument::of(&known, cluster));
                    }
                }
                let ask = ledger.place(&wanted).await?;
                Ok(AskDocument::of(&ask, cluster))
            }
            Self::Server(server) => {
                if let (true, [host]) = (wanted.lapses, wanted.hosts.as_slice())
                    && let Some(known) = self.open_of(host).await?.into_iter().next()
                {
                    return Ok(known);
                }
                let mut body = json!({
                    "hosts": wanted.hosts, "units": wanted.units, "for": wanted.hold, "why": wanted.why,
                });
                if let Some(cluster) = &server.cluster {
                    body["cluster"] = json!(cluster);
                }
                if let Some(until) = wanted.until {
                    body["until"] = json!(until);
                }
                server
                    .call(Method::POST, "/v1/asks", Some(&body), Duration::ZERO)
                    .await
            }
        }
    }

    /// What became of it within that time.
    pub(crate) async fn wait(&self, id: &AskId, most: Duration) -> Result<AskDocument, CliError> {
        match self {
            Self::Store { ledger, cluster, .. } => {
                let until = Instant::now() + most;
                loop {
                    let ask = ledger.ask(id).await?;
                    if !matches!(ask.state, AskState::Waiting(_)) || Instant::now() >= until {
                        // Whether somebody answers may have changed.
                        let cluster = ledger.cluster_named(Some(&cluster.name)).await?;
                        return Ok(AskDocument::of(&ask, &cluster));
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }
            Self::Server(server) => {
                let wait = most.as_secs().min(ONE_WAIT);
                let path = format!("/v1/asks/{id}?wait={wait}");
                server
                    .call(Method::GET, &path, None, Duration::from_secs(wait))
                    .await
            }
        }
    }

    /// Ends it.
    pub(crate) async fn done(&self, id: &AskId) -> Result<AskDocument, CliError> {
        match self {
            Self::Store {
                ledger,
                cluster,
                asker,
            } => {
                let ask = ledger.ask(id).await?;
                let how = match &ask.state {
                    AskState::Waiting(_) => AskEnd::Withdrawn,
                    AskState::Granted(_) | AskState::Ended { .. } => AskEnd::Done,
                };
                let why = if ask.wanted.asker == *asker {
                    String::new()
                } else {
                    format!("said by {asker}")
                };
                ledger.end(id, how, &why).await?;
                Ok(AskDocument::of(&ledger.ask(id).await?, cluster))
            }
            Self::Server(server) => {
                let path = format!("/v1/asks/{id}/done");
                server.call(Method::POST, &path, None, Duration::ZERO).await
            }
        }
    }

    /// The newest.
    pub(crate) async fn list(&self) -> Result<Vec<AskDocument>, CliError> {
        match self {
            Self::Store { ledger, cluster, .. } => {
                let found = ledger.history(&cluster.identity, 1_000).await?;
                Ok(found.iter().map(|ask| AskDocument::of(ask, cluster)).collect())
            }
            Self::Server(server) => {
                let path = match &server.cluster {
                    Some(cluster) => format!("/v1/asks?cluster={cluster}"),
                    None => "/v1/asks".to_owned(),
                };
                let mut list: Value = server.call(Method::GET, &path, None, Duration::ZERO).await?;
                serde_json::from_value(list["asks"].take()).map_err(|error| server.odd(&error))
            }
        }
    }

    /// Those that are open and name that host.
    pub(crate) async fn open_of(&self, host: &str) -> Result<Vec<AskDocument>, CliError> {
        let all = self.list().await?.into_iter();
        let ours = all.filter(|ask| ask.state != AskStateWord::Ended && ask.hosts.contains(host));
        Ok(match self {
            Self::Store { asker, .. } => ours.filter(|ask| ask.by == *asker).collect(),
            Self::Server(_) => ours.collect(),
        })
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct WantedAsk {
    /// These hosts.
    pub(crate) hosts: Vec<String>,
    /// These units.
    pub(crate) units: Vec<stagger_core::model::UnitId>,
    /// For so many seconds.
    pub(crate) hold: u32,
    /// Not after that.
    pub(crate) until: Option<jiff::Timestamp>,
    /// `until` is no deadline.
    pub(crate) lapses: bool,
    /// For people.
    pub(crate) why: String,
}

impl AskServer {
    fn new(url: &str, door: &AskDoorArgs) -> Result<Self, CliError> {
        let token = match &door.token_file {
            Some(file) => {
                secrets::read(file).map_err(|why| CliError::usage(format!("read the token: {why}")))?
            }
            None => std::env::var("STAGGER_TOKEN").map_err(|_| {
                CliError::usage("there is no token").hint(
                    "`stagger token add NAME --role ask` on the server makes one; give it in STAGGER_TOKEN or --token-file",
                )
            })?,
        };
        secrets::remember(token.trim());
        let url = url.trim_end_matches('/').to_owned();
        if !url.starts_with("https://") && !url.starts_with("http://localhost:") {
            return Err(CliError::usage(format!("{url:?} is not an https:// address"))
                .hint("a token is sent over TLS, or to localhost, where `ssh -L` ends"));
        }
        Ok(Self {
            client: client(door.ca.as_deref())?,
            url,
            token: token.trim().to_owned(),
            cluster: door.cluster.clone(),
        })
    }

    fn odd(&self, error: &dyn std::error::Error) -> CliError {
        CliError::new(
            Exit::Unreachable,
            format!("{} answered what this release cannot read: {error}", self.url),
        )
    }

    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        wait: Duration,
    ) -> Result<T, CliError> {
        let unreachable = |why: String| CliError::new(Exit::Unreachable, format!("ask {}: {why}", self.url));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.token));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| CliError::usage(format!("ask {}: {error}", self.url)))?;
        let answered = tokio::time::timeout(wait + ANSWER, async {
            let answer = self
                .client
                .request(request)
                .await
                .map_err(|error| unreachable(stagger_engine::cluster::in_full(&error)))?;
            let status = answer.status();
            let bytes = Limited::new(answer.into_body(), LARGEST)
                .collect()
                .await
                .map_err(|error| unreachable(error.to_string()))?
                .to_bytes();
            Ok::<_, CliError>((status, bytes))
        })
        .await;
        let (status, bytes) = answered.map_err(|_| unreachable("no answer in time".to_owned()))??;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|error| self.odd(&error));
        }
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("it says no more");
        let exit = match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::REQUEST_TIMEOUT => Exit::Unreachable,
            StatusCode::CONFLICT => Exit::No,
            _ => Exit::Usage,
        };
        Err(CliError::new(
            exit,
            format!("{} answered {}: {detail}", self.url, status.as_u16()),
        ))
    }
}

fn client(ca: Option<&Path>) -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, CliError> {
    let provider = rustls::crypto::ring::default_provider();
    let builder = HttpsConnectorBuilder::new();
    let connector = match ca {
        None => builder
            .with_provider_and_native_roots(provider)
            .map_err(|error| {
                CliError::usage(format!(
                    "this machine has no certificates of authorities: {error}"
                ))
                .hint("--ca names the certificate of the server")
            })?
            .https_or_http()
            .enable_http1()
            .build(),
        Some(file) => {
            let failed = |why: String| CliError::usage(format!("the certificate {}: {why}", file.display()));
            let certificates = CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| failed(error.to_string()))?;
            let mut roots = rustls::RootCertStore::empty();
            for certificate in certificates {
                roots
                    .add(certificate)
                    .map_err(|error| failed(error.to_string()))?;
            }
            let config = rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(provider))
                .with_safe_default_protocol_versions()
                .map_err(|error| failed(error.to_string()))?
                .with_root_certificates(roots)
                .with_no_client_auth();
            builder
                .with_tls_config(config)
                .https_or_http()
                .enable_http1()
                .build()
        }
    };
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

impl From<LedgerError> for CliError {
    fn from(error: LedgerError) -> Self {
        let text = error.to_string();
        match error {
            LedgerError::NoCluster(_) => CliError::usage(text)
                .hint("`stagger gate`, with the configuration of the cluster, answers for it; --cluster names one of several"),
            LedgerError::NoAsk(_) => CliError::usage(text).hint("`stagger ask list --all` lists them"),
            LedgerError::Ask(_) | LedgerError::OtherAsk => CliError::usage(text),
            LedgerError::Unreadable { .. } => CliError::new(Exit::Internal, text),
            LedgerError::Failed { .. } => {
                CliError::new(Exit::Unreachable, text).hint("nothing is granted while the store is away")
            }
        }
    }
}
