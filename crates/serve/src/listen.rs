//! Listeners: a private socket of the user, or an address with TLS and tokens.

use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper_util::rt::TokioTimer;
use listenfd::ListenFd;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use crate::access::Tokens;
use crate::asks::{AskDesk, fleetlock};
use crate::authentication::{Authentication, Peer, authenticate, refuse_foreign_pages, with_timeout};
use crate::idempotency::IdempotencyKeys;
use crate::limits::raise_descriptors;
use crate::problem::ProblemDetails;
use crate::run_processes::RunStarter;
use crate::runs::RunCatalog;
use crate::stores::Stores;
use crate::write_timeout::{PatientAcceptor, PatientListener};
use crate::{ServeSettings, Shared, api, page};

/// No question is larger.
const LARGEST: usize = 64 << 10;
/// Answers that are under way may take so long when it ends.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Where questions are taken.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A socket for the user of this process alone, who needs no token.
    Socket {
        /// Where.
        path: PathBuf,
        /// As whom the journals name that user: `anna@ops1`.
        user: String,
    },
    /// The same, opened by a service manager, which has handed it over.
    Handed {
        /// As whom the journals name that user.
        user: String,
    },
    /// An address, for holders of a token.
    Address {
        /// Which.
        address: SocketAddr,
        /// With which certificate.
        tls: Tls,
    },
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The file of the certificate and of those that signed it.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket or the address cannot be had.
    #[error("listen at {at}: {source}")]
    Listen {
        /// Where.
        at: String,
        /// Why not.
        source: io::Error,
    },
    /// Another process serves there.
    #[error("another process answers at {} already", .0.display())]
    InUse(PathBuf),
    /// The service manager has handed over none.
    #[error("no Unix socket was handed over: {0}")]
    NotHanded(String),
    /// What is there is no socket.
    #[error("{} is not a socket, and is left as it is", .0.display())]
    NoSocket(PathBuf),
    /// The certificate or its key is of no use.
    #[error("the certificate {} with its key: {why}", file.display())]
    Certificate {
        /// Which.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// Serving ended.
    #[error("serving ended: {0}")]
    Ended(io::Error),
}

/// Answers until `end` comes. `ready` is called once it listens.
///
/// # Errors
/// It cannot listen there.
pub async fn serve(
    settings: ServeSettings,
    listen: Listen,
    ready: impl FnOnce(),
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    raise_descriptors();
    match listen {
        Listen::Socket { path, user } => {
            let listener = socket(&path)?;
            ready();
            let done = on_socket(settings, listener, user, end).await;
            fs::remove_file(&path).ok();
            done
        }
        Listen::Handed { user } => {
            let listener = inherited_socket()?;
            ready();
            on_socket(settings, listener, user, end).await
        }
        Listen::Address { address, tls } => {
            let config = RustlsConfig::from_config(Arc::new(server_config(&tls)?));
            let failed = |source| ServeError::Listen {
                at: address.to_string(),
                source,
            };
            let listener = std::net::TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let patient = PatientAcceptor {
                stalled: settings.limits.stalled,
            };
            let server = axum_server::from_tcp(listener).map_err(failed)?;
            let server = server.acceptor(RustlsAcceptor::new(config).acceptor(patient));
            ready();
            on_address(settings, server, end).await
        }
    }
}

/// All routes, for callers who are authenticated.
fn router(settings: ServeSettings, authentication: Authentication) -> Router {
    let limits = settings.limits;
    let shared = Shared {
        runs: RunCatalog::of(Stores::of(settings.stores, &limits)),
        asks: AskDesk::of(settings.asks),
        tokens: Arc::new(Tokens::of(&settings.tokens)),
        once: Arc::new(IdempotencyKeys::default()),
        carrier: settings.carry_on.map(|how| Arc::new(RunStarter::new(how))),
        streams: Arc::new(Semaphore::new(limits.streams)),
        patience: limits.whole,
        most_streams: limits.streams,
    };
    let (api, _) = api::described();
    let known = api.merge(page::pages());
    known
        .layer(middleware::from_fn_with_state(
            authentication.clone(),
            authenticate,
        ))
        .merge(fleetlock::routes())
        .merge(page::open())
        .fallback(|| async { ProblemDetails::not_found() })
        .method_not_allowed_fallback(|| async { ProblemDetails::method() })
        .layer(middleware::from_fn_with_state(limits.whole, with_timeout))
        .layer(middleware::from_fn_with_state(
            authentication,
            refuse_foreign_pages,
        ))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(shared)
}

/// Binds a socket where there is none, or replaces an abandoned one.
fn socket(path: &Path) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError::Listen {
        at: path.display().to_string(),
        source,
    };
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            return Err(ServeError::NoSocket(path.to_owned()));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(ServeError::InUse(path.to_owned()));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// The first socket that was handed over.
fn inherited_socket() -> Result<UnixListener, ServeError> {
    let none = |why: String| ServeError::NotHanded(why);
    let taken = ListenFd::from_env().take_unix_listener(0);
    let listener = taken.map_err(|error| none(error.to_string()))?;
    let listener = listener.ok_or_else(|| none("there is no first one".to_owned()))?;
    listener
        .set_nonblocking(true)
        .map_err(|error| none(error.to_string()))?;
    UnixListener::from_std(listener).map_err(|error| none(error.to_string()))
}

async fn on_socket(
    settings: ServeSettings,
    listener: UnixListener,
    user: String,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let listener = PatientListener {
        listener,
        stalled: settings.limits.stalled,
    };
    let router = router(settings, Authentication::Socket { user });
    let service = router.into_make_service_with_connect_info::<Peer>();
    let (ending, ended) = tokio::sync::oneshot::channel();
    let serving = axum::serve(listener, service).with_graceful_shutdown(async {
        end.await;
        ending.send(()).ok();
    });
    // A stream lasts as long as its reader reads: it is not waited for.
    let last_answers = async {
        ended.await.ok();
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        done = serving => done.map_err(ServeError::Ended),
        () = last_answers => Ok(()),
    }
}

async fn on_address(
    settings: ServeSettings,
    server: axum_server::Server<SocketAddr, RustlsAcceptor<PatientAcceptor>>,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let authentication = Authentication::Tokens(Arc::new(Tokens::of(&settings.tokens)));
    let head = settings.limits.head;
    let router = router(settings, authentication);
    let handle = Handle::new();
    // Whoever would have to be told apart by what they send first would not be waited for in vain.
    let mut server = server.handle(handle.clone()).http1_only();
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head);
    tokio::spawn(async move {
        end.await;
        handle.graceful_shutdown(Some(LAST_ANSWERS));
    });
    server
        .serve(router.into_make_service())
        .await
        .map_err(ServeError::Ended)
}

fn server_config(tls: &Tls) -> Result<ServerConfig, ServeError> {
    let failed = |why: String| ServeError::Certificate {
        file: tls.certificate.clone(),
        why,
    };
    let certificates = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| failed(format!("the key {}: {error}", tls.key.display())))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| failed(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
