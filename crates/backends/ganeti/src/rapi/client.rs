//! The RAPI client: finds the master among the candidates, repeats reads, and never repeats a write that may
//! have been carried out.

use std::sync::{Mutex, PoisonError};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use stagger_engine::cluster::BackendError;
use tokio::sync::Semaphore;

use crate::config::{GanetiSettings, GanetiTiming, RapiConfig};
use crate::rapi::tls;
pub use crate::rapi::wire::HttpMethod;
use crate::rapi::wire::{Login, NoAnswer, RapiAddress, RapiResponse, Wire};

/// So often a read is tried.
const READS: u32 = 3;

/// What stays as it is in a path or a query; RAPI's own names have nothing else.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b':')
    .remove(b'~');

/// A word for a path or a query.
pub fn encoded(word: &str) -> String {
    utf8_percent_encode(word, PLAIN).to_string()
}

/// A question that RAPI did not answer as wished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RapiClientError {
    /// Nothing was sent.
    #[error("RAPI cannot be reached: {0}")]
    Unreachable(String),
    /// It was sent, and nobody knows what came of it.
    #[error("the answer was lost: {0}")]
    Lost(String),
    /// RAPI said no.
    #[error("RAPI answered {code}: {why}")]
    Refused {
        /// The status of HTTP.
        code: u16,
        /// What it said.
        why: String,
    },
    /// What it said cannot be read.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// Candidates disagree on who the master is.
    #[error("two nodes are named as the master: {0}")]
    TwoMasters(String),
}

impl RapiClientError {
    /// The error of an effect or of an observation.
    pub fn of(self, tried: impl Into<String>, writes: bool) -> BackendError {
        let why = self.to_string();
        match self {
            Self::Unreachable(said) if said.contains("TLS:") => {
                BackendError::transient(tried, why).hint(tls::HINT)
            }
            Self::Lost(_) | Self::Unreadable(_) if writes => BackendError::transient(tried, why).outcome_unknown(),
            Self::Unreachable(_) | Self::TwoMasters(_) | Self::Lost(_) | Self::Unreadable(_) => {
                BackendError::transient(tried, why)
            }
            Self::Refused { code: 401, .. } => BackendError::permanent(tried, why)
                .hint("see `user` and `password_file`, and /var/lib/ganeti/rapi/users on the master"),
            Self::Refused { code: 403, .. } => BackendError::permanent(tried, why)
                .hint("the user needs `write` in /var/lib/ganeti/rapi/users on the master; `read` is enough to look"),
            Self::Refused { code, why: said } if code >= 500 => {
                let error = BackendError::transient(tried, why);
                // 502: the master's daemon went away, maybe after it had the job.
                if writes && !is_queue_drained(code, &said) {
                    error.outcome_unknown()
                } else {
                    error
                }
            }
            Self::Refused { .. } => BackendError::permanent(tried, why),
        }
    }

    /// What RAPI says where it takes no jobs, as its queue is full or drained. Nothing was submitted then.
    pub fn queue_is_closed(&self) -> Option<String> {
        match self {
            Self::Refused { code, why } if is_queue_drained(*code, why) => Some(format!("{code}, {why}")),
            _ => None,
        }
    }

    /// Whether the same read may be answered a little later.
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Lost(_) | Self::TwoMasters(_) => true,
            Self::Refused { code, .. } => (502..=504).contains(code),
            Self::Unreadable(_) => false,
        }
    }
}

/// Whether that answer says that the queue takes no jobs. RAPI has 503 for it; but of a drained queue `luxid` says so in words alone
/// (`handleCall` in `Ganeti.Query.Server`, 3.0.2), which RAPI passes on with 500.
fn is_queue_drained(code: u16, why: &str) -> bool {
    code == 503 || (code == 500 && why == "Queue drained")
}

/// What RAPI says with a status that is no success. It also explains what the status itself means, which helps nobody.
#[derive(Deserialize)]
struct ErrorBody {
    message: String,
}

impl ErrorBody {
    /// Its words as they were before RAPI escaped them for a page.
    fn unescaped(self) -> String {
        let escaped = [
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&quot;", "\""),
            ("&#x27;", "'"),
            ("&amp;", "&"),
        ];
        let unescape = |words: String, (from, to)| words.replace(from, to);
        escaped.into_iter().fold(self.message, unescape)
    }
}

/// A cluster's RAPI.
#[derive(Debug)]
pub struct Rapi {
    addresses: Vec<RapiAddress>,
    wire: Wire,
    /// Where the master answered last.
    master: Mutex<Option<RapiAddress>>,
    /// Questions that RAPI answers only when something has changed.
    waits: Semaphore,
}

/// So many of those at once.
const WAITS: usize = 8;

impl Rapi {
    /// Reaches a cluster as the configuration says.
    ///
    /// # Errors
    /// What in the configuration cannot be used. Nothing is asked yet.
    pub fn new(settings: &GanetiSettings) -> Result<Self, BackendError> {
        let GanetiSettings { cluster, pace, .. } = settings;
        let wrong = |why: String| {
            BackendError::permanent(format!("use the configuration of cluster {}", cluster.name), why)
        };
        settings.verify().map_err(wrong)?;
        let RapiConfig {
            addresses,
            ca,
            fingerprint,
            user,
            password_file,
            ..
        } = cluster;
        let addresses = addresses
            .iter()
            .map(|text| RapiAddress::parse(text))
            .collect::<Result<Vec<_>, _>>()
            .map_err(wrong)?;
        let tls = tls::client_config(ca.as_deref(), fingerprint.as_deref())
            .map_err(|error| wrong(error.to_string()))?;
        let login = match user.as_deref().zip(password_file.as_deref()) {
            Some((user, file)) => Some(Login::from_file(user, file).map_err(wrong)?),
            None => None,
        };
        Ok(Self {
            addresses,
            wire: Wire::new(tls, login, *pace),
            master: Mutex::new(None),
            waits: Semaphore::new(WAITS),
        })
    }

    /// Its times.
    pub fn pace(&self) -> &GanetiTiming {
        &self.wire.pace
    }

    pub(crate) fn wait_permits(&self) -> &Semaphore {
        &self.waits
    }

    /// The master may have changed: it is looked for anew.
    pub fn forget_master(&self) {
        *self.master.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Reads, and tries again what may pass.
    ///
    /// # Errors
    /// The last answer.
    pub async fn read(
        &self,
        method: HttpMethod,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, RapiClientError> {
        let mut tries = 1;
        loop {
            match self.send_once(method, path, body).await {
                Err(error) if error.may_pass() && tries < READS => {
                    tracing::debug!(path, %error, "asked again");
                    tokio::time::sleep(self.wire.pace.again * tries).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// A `GET` that is repeated as [`Rapi::read`] does.
    ///
    /// # Errors
    /// As [`Rapi::read`].
    pub async fn get(&self, path: &str) -> Result<Value, RapiClientError> {
        self.read(HttpMethod::Get, path, None).await
    }

    /// Writes, once; a second time only where the first was certainly not sent.
    ///
    /// # Errors
    /// The answer, or that there is none.
    pub async fn write(
        &self,
        method: HttpMethod,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, RapiClientError> {
        match self.send_once(method, path, body).await {
            Err(RapiClientError::Unreachable(_)) => self.send_once(method, path, body).await,
            answer => answer,
        }
    }

    async fn send_once(
        &self,
        method: HttpMethod,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, RapiClientError> {
        let master = self.master().await?;
        match self.wire.ask(&master, method, path, body).await {
            Ok(answer) => {
                // The daemon that RAPI asks is the master's: where it is away, the master may be another.
                if answer.code == 502 {
                    self.forget_master();
                }
                value_of(answer)
            }
            Err(NoAnswer::NotSent(why)) => {
                self.forget_master();
                Err(RapiClientError::Unreachable(why))
            }
            Err(NoAnswer::Lost(why)) => {
                self.forget_master();
                Err(RapiClientError::Lost(why))
            }
        }
    }

    /// Where the master answers. RAPI runs on the master only, but a node that was master until a moment
    /// ago may still think so: all candidates are asked, and those that answer must agree.
    async fn master(&self) -> Result<RapiAddress, RapiClientError> {
        if let Some(known) = self.master.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(known);
        }
        let asked = self.addresses.iter().map(|address| async move {
            (
                address,
                self.wire.ask(address, HttpMethod::Get, "/2/info", None).await,
            )
        });
        let mut found: Vec<(&RapiAddress, String)> = Vec::new();
        let mut failed = Vec::new();
        let mut refused = None;
        for (address, answer) in futures::future::join_all(asked).await {
            match answer {
                Ok(answer) => match value_of(answer) {
                    Ok(info) => match info["master"].as_str() {
                        Some(master) => found.push((address, master.to_owned())),
                        None => failed.push(format!("{address}: it does not say who is master")),
                    },
                    Err(error) => {
                        failed.push(format!("{address}: {error}"));
                        refused = Some(error);
                    }
                },
                Err(NoAnswer::NotSent(why) | NoAnswer::Lost(why)) => failed.push(why),
            }
        }
        let Some((first, master)) = found.first() else {
            // One that answers and says no tells more than those that are away.
            return Err(refused.unwrap_or_else(|| RapiClientError::Unreachable(failed.join("; "))));
        };
        if let Some((other, another)) = found.iter().find(|(_, other)| other != master) {
            return Err(RapiClientError::TwoMasters(format!(
                "{first} says {master}, {other} says {another}"
            )));
        }
        let named = |host: &str| host == *master || master.split('.').next() == Some(host);
        let best = found
            .iter()
            .find(|(address, _)| named(&address.host))
            .map_or(*first, |(address, _)| address);
        *self.master.lock().unwrap_or_else(PoisonError::into_inner) = Some(best.clone());
        Ok(best.clone())
    }
}

fn value_of(answer: RapiResponse) -> Result<Value, RapiClientError> {
    let RapiResponse { code, body } = answer;
    if code == 200 {
        return serde_json::from_slice(&body).map_err(|error| RapiClientError::Unreadable(error.to_string()));
    }
    let why = match serde_json::from_slice::<ErrorBody>(&body) {
        Ok(said) => said.unescaped(),
        Err(_) => String::from_utf8_lossy(&body).chars().take(200).collect(),
    };
    Err(RapiClientError::Refused { code, why })
}
