//! The HTTP client.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use jsonrpsee_core::client::{ClientT as _, Error};
use jsonrpsee_core::traits::ToRpcParams;
use jsonrpsee_http_client::{HttpClient, HttpClientBuilder};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stagger_versioned::boundary::{Held, Unreceived};
use stagger_versioned::{Chain, Pin, Registry, Versioned};

use crate::{Calls, Interface, Message, Params, Received, ServiceVersions, TooNew, VERSIONS};

/// How to call.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    /// The credentials, sent with every request, in whichever version.
    pub headers: HeaderMap,
    /// How long to wait for an answer; 60 s where it is absent.
    pub timeout: Option<Duration>,
}

/// Calls one service.
pub struct Client {
    http: HttpClient,
    calls: Calls,
}

/// A call that did not go well.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The cap forbids it. Nothing was sent.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// The service says no.
    #[error("{method}: {message}")]
    Refused {
        /// The method.
        method: String,
        /// See [`code`](crate::code).
        code: i32,
        /// Why not.
        message: String,
    },
    /// The service does not take these credentials. Nothing was done.
    #[error("{method}: the service does not know who calls; look at the credentials")]
    Denied {
        /// The method.
        method: String,
    },
    /// There was no answer, or none that can be read. What was asked for may have been done all the same.
    #[error("{method}: no answer: {why}")]
    NoAnswer {
        /// The method.
        method: String,
        /// What went wrong.
        why: String,
    },
    /// The answer is no object that can be read here.
    #[error("{method}: {why}")]
    Unreadable {
        /// The method.
        method: String,
        /// Why not.
        why: Unreceived,
    },
    /// The URL is none.
    #[error("{url:?} is no URL of a service: {why}")]
    NoUrl {
        /// The URL.
        url: String,
        /// Why not.
        why: String,
    },
}

impl ToRpcParams for Params {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        serde_json::value::to_raw_value(&self).map(Some)
    }
}

impl Client {
    /// Calls the service at that URL. What this process reads is told with every call.
    pub fn new(
        url: &str,
        interface: Interface,
        registry: &Registry,
        settings: ClientSettings,
    ) -> Result<Self, CallError> {
        let ClientSettings { headers, timeout } = settings;
        let mut builder = HttpClientBuilder::default().set_headers(headers);
        if let Some(timeout) = timeout {
            builder = builder.request_timeout(timeout);
        }
        let http = builder.build(url).map_err(|error| CallError::NoUrl {
            url: url.to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self {
            http,
            calls: Calls::new(interface, registry),
        })
    }

    /// Does not tell what it reads, as old clients did not.
    #[must_use]
    pub fn without_read_versions(mut self) -> Self {
        self.calls = self.calls.without_read_versions();
        self
    }

    /// Calls a method under the cap of the pin: in the lowest version that has all that is asked for.
    pub async fn call(&self, pin: &Pin, method: &str, args: &Map<String, Value>) -> Result<Value, CallError> {
        self.ask(self.calls.ask(pin, method, args)?).await
    }

    /// The same, where the answer is an object. If it is newer than this code, the service is asked for an older one.
    pub async fn call_for<T: Versioned>(
        &self,
        pin: &Pin,
        method: &str,
        args: &Map<String, Value>,
        chain: &Chain<T>,
    ) -> Result<Held<T>, CallError> {
        let answer = self.call(pin, method, args).await?;
        let unreadable = |why: Unreceived| CallError::Unreadable {
            method: method.to_owned(),
            why,
        };
        match self.calls.receive(answer, chain).map_err(unreadable)? {
            Received::Object(held) => Ok(held),
            Received::AskAgain(message) => {
                let older = self.ask(message).await?;
                chain.receive(&older.to_string()).map_err(unreadable)
            }
        }
    }

    /// What the service runs and speaks.
    pub async fn versions(&self) -> Result<ServiceVersions, CallError> {
        let answer = self.ask(self.calls.versions()).await?;
        serde_json::from_value(answer).map_err(|error| CallError::NoAnswer {
            method: VERSIONS.to_owned(),
            why: error.to_string(),
        })
    }

    async fn ask(&self, message: Message) -> Result<Value, CallError> {
        let Message { method, params } = message;
        match self.http.request::<Value, _>(&method, params).await {
            Ok(answer) => Ok(answer),
            Err(Error::Call(error)) => Err(CallError::Refused {
                method,
                code: error.code(),
                message: error.message().to_owned(),
            }),
            Err(Error::Transport(error)) if is_connect_error(error.as_ref()) => {
                Err(CallError::Denied { method })
            }
            Err(error) => Err(CallError::NoAnswer {
                method,
                why: chain_of(&error),
            }),
        }
    }
}

/// Whether the door did not open.
fn is_connect_error(error: &(dyn std::error::Error + 'static)) -> bool {
    use jsonrpsee_http_client::transport::Error as Transport;
    matches!(
        error.downcast_ref(),
        Some(Transport::Rejected { status_code: 401 })
    )
}

fn chain_of(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client(RPC {})", self.calls.interface().version())
    }
}
