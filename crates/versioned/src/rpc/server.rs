//! The side that is called.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin as Pinned;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use http::{HeaderMap, StatusCode, header};
use jsonrpsee_server::{
    HttpBody, HttpRequest, HttpResponse, RpcModule, ServerBuilder, ServerConfig, ServerHandle,
};
use jsonrpsee_types::ErrorObjectOwned;
use serde_json::{Map, Value};
use tower::{BoxError, Layer, Service};

use super::interface::Mismatch;
use super::{BACKPORT, Interface, Params, ServiceVersions, VERSIONS, code};
use crate::boundary::{Held, NotBackported, Unreceived, Unsaved};
use crate::chain::Chain;
use crate::object::Versioned;
use crate::pin::{NotWhilePinned, Pin, Pins};
use crate::{Registry, Version};

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name that its credentials gave it.
    pub name: String,
}

/// Credentials that are not good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied;

/// Looks at the headers of a request, before anything else is looked at.
pub type Authenticate = Arc<dyn Fn(&HeaderMap) -> Result<Caller, Denied> + Send + Sync>;

/// Takes everybody. Only for a network where nobody else is.
pub fn anybody() -> Authenticate {
    Arc::new(|_| {
        Ok(Caller {
            name: "anybody".to_owned(),
        })
    })
}

/// What is asked for. The pin is the one in force when the request came, for all that is done for it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// The method.
    pub method: String,
    /// The version in which it is asked for.
    pub version: Version,
    /// The newest version of each object that the caller reads, as far as it said.
    pub reads: BTreeMap<String, Version>,
    /// The arguments.
    pub args: Map<String, Value>,
    /// The pin.
    pub pin: Arc<Pin>,
}

/// An answer that is no.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// One of [`code`], or a code of the service's own.
    pub code: i32,
    /// What was tried, and why it is refused.
    pub message: String,
}

impl Refusal {
    /// A refusal of the service itself.
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            code: code::REFUSED,
            message: message.to_string(),
        }
    }

    /// A failure of the service.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self {
            code: code::FAILED,
            message: message.to_string(),
        }
    }

    fn with(code: i32, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}

impl From<NotWhilePinned> for Refusal {
    fn from(why: NotWhilePinned) -> Self {
        Self::with(code::NOT_WHILE_PINNED, why)
    }
}

impl From<Unreceived> for Refusal {
    fn from(why: Unreceived) -> Self {
        Self::with(code::UNREADABLE, why)
    }
}

impl From<Unsaved> for Refusal {
    fn from(why: Unsaved) -> Self {
        match why {
            Unsaved::NotWhilePinned(why) => why.into(),
            why @ Unsaved::Unkept { .. } => Self::with(code::NOT_WHILE_PINNED, why),
            Unsaved::Unwritten(why) => Self::with(code::UNREADABLE, why),
        }
    }
}

impl From<NotBackported> for Refusal {
    fn from(why: NotBackported) -> Self {
        Self::with(code::UNREADABLE, why)
    }
}

impl From<Mismatch> for Refusal {
    fn from(why: Mismatch) -> Self {
        let code = match why {
            Mismatch::Version { .. } | Mismatch::Method { .. } => code::UNSUPPORTED_VERSION,
            Mismatch::Argument { .. } => code::INVALID_PARAMS,
        };
        Self::with(code, why)
    }
}

impl Request {
    /// An argument, or a refusal if it is not there.
    pub fn arg(&self, name: &str) -> Result<&Value, Refusal> {
        let missing = || {
            Refusal::with(
                code::INVALID_PARAMS,
                format!("{} needs the argument {name:?}", self.method),
            )
        };
        self.args.get(name).ok_or_else(missing)
    }

    /// An argument that is an object, brought up to the newest version.
    pub fn object<T: Versioned>(&self, name: &str, chain: &Chain<T>) -> Result<Held<T>, Refusal> {
        Ok(chain.receive(&self.arg(name)?.to_string())?)
    }

    /// Some fields of an argument that is an object of any version, also of one that is not known here: a method that only
    /// deletes needs no more than the key.
    pub fn fields_of_any_version(
        &self,
        name: &str,
        kind: &str,
        fields: &[&str],
    ) -> Result<Map<String, Value>, Refusal> {
        Ok(crate::boundary::fields_of_any_version(
            &self.arg(name)?.to_string(),
            kind,
            fields,
        )?)
    }

    /// An object as an answer: in the version of the pin, or in its own if that is newer, but in none that the caller says
    /// it does not read ([`Chain::answer`]).
    pub fn answer<T: Versioned>(&self, held: &Held<T>, chain: &Chain<T>) -> Result<Value, Refusal> {
        let sent = chain.answer(held, &self.pin, self.reads.get(T::NAME).copied())?;
        serde_json::from_str(&sent.text).map_err(Refusal::failed)
    }
}

/// What a service does.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does what is asked for. Version, method and names of arguments have been checked.
    async fn handle(&self, request: Request) -> Result<Value, Refusal>;
}

/// A service that is not running yet.
pub struct Server {
    interface: Interface,
    registry: Registry,
    pins: Arc<Pins>,
    authenticate: Authenticate,
    handler: Arc<dyn Handler>,
}

/// A service that runs.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    handle: ServerHandle,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, answers what was asked, and ends.
    pub async fn stop(self) {
        // An error says that it has ended already.
        if self.handle.stop().is_ok() {
            self.handle.stopped().await;
        }
    }
}

impl Server {
    /// A service with that interface and those objects.
    pub fn new(
        interface: Interface,
        registry: Registry,
        pins: Arc<Pins>,
        authenticate: Authenticate,
        handler: impl Handler,
    ) -> Self {
        Self {
            interface,
            registry,
            pins,
            authenticate,
            handler: Arc::new(handler),
        }
    }

    /// Listens, over HTTP only.
    pub async fn start(self, at: SocketAddr) -> std::io::Result<Running> {
        let Self { authenticate, .. } = &self;
        let door = tower::ServiceBuilder::new().layer(Door(Arc::clone(authenticate)));
        let config = ServerConfig::builder().http_only().build();
        let server = ServerBuilder::with_config(config)
            .set_http_middleware(door)
            .build(at)
            .await?;
        let address = server.local_addr()?;
        let handle = server.start(self.module().map_err(std::io::Error::other)?);
        Ok(Running { address, handle })
    }

    fn module(self) -> Result<RpcModule<Self>, jsonrpsee_server::RegisterMethodError> {
        let names: Vec<&'static str> = self.interface.names().chain([BACKPORT, VERSIONS]).collect();
        let mut module = RpcModule::new(self);
        for name in names {
            module.register_async_method(name, move |params, server, extensions| {
                let caller = extensions.get::<Caller>().cloned();
                async move {
                    let params: Result<Params, _> = params.parse();
                    let answered = match (caller, params) {
                        // The door lets nobody through whom it did not name.
                        (None, _) => Err(Refusal::failed("nobody asked who calls")),
                        (Some(_), Err(error)) => Err(Refusal::with(code::INVALID_PARAMS, error)),
                        (Some(caller), Ok(params)) => server.answer(name, caller, params).await,
                    };
                    answered.map_err(|Refusal { code, message }| {
                        ErrorObjectOwned::owned(code, message, None::<()>)
                    })
                }
            })?;
        }
        Ok(module)
    }

    async fn answer(&self, method: &'static str, caller: Caller, params: Params) -> Result<Value, Refusal> {
        let Params { version, reads, args } = params;
        self.interface.take(method, version, &args)?;
        let request = Request {
            caller,
            method: method.to_owned(),
            version,
            reads,
            args,
            pin: self.pins.now(),
        };
        match method {
            BACKPORT => self.backport(&request),
            VERSIONS => serde_json::to_value(self.versions(&request.pin)).map_err(Refusal::failed),
            _ => self.handler.handle(request).await,
        }
    }

    /// What somebody could not read, in a version that it can.
    fn backport(&self, request: &Request) -> Result<Value, Refusal> {
        let to: Version = serde_json::from_value(request.arg("to")?.clone())
            .map_err(|error| Refusal::with(code::INVALID_PARAMS, error))?;
        let sent = self.registry.backport(&request.arg("object")?.to_string(), to)?;
        serde_json::from_str(&sent.text).map_err(Refusal::failed)
    }

    fn versions(&self, pin: &Pin) -> ServiceVersions {
        let newest = self.registry.reads();
        let writes = newest.iter().filter_map(|(name, newest)| {
            let target = pin.target(name).ok()?;
            Some(((*name).to_owned(), target.unwrap_or(*newest)))
        });
        ServiceVersions {
            release: pin.manifest().label(pin.manifest().current()),
            pin: pin.release(),
            api: pin.api(),
            rpc_cap: pin.rpc(),
            rpc: self.interface.version(),
            writes: writes.collect(),
            reads: newest
                .into_iter()
                .map(|(name, version)| (name.to_owned(), version))
                .collect(),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server(RPC {})", self.interface.version())
    }
}

/// Asks who calls before the request is read.
#[derive(Clone)]
struct Door(Authenticate);

impl<S> Layer<S> for Door {
    type Service = Guarded<S>;
    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            authenticate: Arc::clone(&self.0),
        }
    }
}

#[derive(Clone)]
struct Guarded<S> {
    inner: S,
    authenticate: Authenticate,
}

impl<S, B> Service<HttpRequest<B>> for Guarded<S>
where
    S: Service<HttpRequest<B>, Response = HttpResponse>,
    S::Error: Into<BoxError> + 'static,
    S::Future: Send + 'static,
{
    type Response = HttpResponse;
    type Error = BoxError;
    type Future = Pinned<Box<dyn Future<Output = Result<HttpResponse, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: HttpRequest<B>) -> Self::Future {
        match (self.authenticate)(request.headers()) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                let answer = self.inner.call(request);
                Box::pin(async move { answer.await.map_err(Into::into) })
            }
            Err(Denied) => Box::pin(async {
                let response = HttpResponse::builder()
                    .status(StatusCode::UNAUTHORIZED)
                    .header(header::CONTENT_TYPE, "text/plain")
                    .body(HttpBody::from("who calls?\n"));
                response.map_err(Into::into)
            }),
        }
    }
}
