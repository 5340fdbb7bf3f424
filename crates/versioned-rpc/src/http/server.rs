//! The HTTP server.

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
use serde_json::Value;
use stagger_versioned::{Pins, Registry};
use tower::{BoxError, Layer, Service};

use crate::{Answers, Caller, Interface, Opened, Params, Refusal, Request, code};

/// Credentials that are not good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied;

/// Looks at the headers of a request, before anything else is looked at.
pub type Authenticate = Arc<dyn Fn(&HeaderMap) -> Result<Caller, Denied> + Send + Sync>;

/// Takes everybody. Only for a network where nobody else is.
pub fn anyone() -> Authenticate {
    Arc::new(|_| {
        Ok(Caller {
            name: "anybody".to_owned(),
        })
    })
}

/// What a service does.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does what is asked for. Version, method and names of arguments have been checked.
    async fn handle(&self, request: Request) -> Result<Value, Refusal>;
}

/// A service that is not running yet.
pub struct Server {
    answers: Answers,
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
            answers: Answers::new(interface, registry, pins),
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
        let names: Vec<&'static str> = self.answers.methods().collect();
        let mut module = RpcModule::new(self);
        for name in names {
            module.register_async_method(name, move |params, server, extensions| {
                let caller = extensions.get::<Caller>().cloned();
                async move {
                    let params: Result<Params, _> = params.parse();
                    let answered = match (caller, params) {
                        // The door lets nobody through whom it did not name.
                        (None, _) => Err(Refusal::failed("the caller was not checked")),
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
        match self.answers.open(caller, method, params)? {
            Opened::Answered(answer) => Ok(answer),
            Opened::Request(request) => self.handler.handle(request).await,
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({:?})", self.answers)
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
