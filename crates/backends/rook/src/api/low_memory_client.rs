//! A client of the API server with small read buffers.
//!
//! A hyper connection keeps up to 400 KB of what it has read, and a list of objects holds several such pieces
//! until it is parsed: with a dozen watches that was a fifth of the operator's memory at 1,000 OSDs.

use http::{Request, Response};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

/// So many bytes of a connection are kept.
const KEPT: usize = 1 << 16;

/// A client as kube makes it, but for that, and without a proxy: for a configuration that has one, kube's own is used.
///
/// # Errors
/// The certificates or credentials of the configuration cannot be used.
pub(crate) fn sparing_client(
    config: &Config,
) -> kube::Result<
    ClientBuilder<
        impl Service<
            Request<Body>,
            Response = Response<hyper::body::Incoming>,
            Error = BoxError,
            Future: Send + 'static,
        > + Send
        + 'static,
    >,
> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let mut connector =
        hyper_timeout::TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .http1_max_buf_size(KEPT)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(
            config
                .default_retry
                .then(|| RetryLayer::new(RetryPolicy::server_retry())),
        )
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()))
}
