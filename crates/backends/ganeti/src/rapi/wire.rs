//! One request per connection, so that it is always known whether it was sent.
//!
//! RAPI has no idempotency key, so a write is never repeated unless it was certainly not sent.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use stagger_engine::secrets;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::GanetiTiming;

/// More than RAPI says of 10,000 nodes and 100,000 instances.
const LARGEST_ANSWER: usize = 1 << 30;

/// RAPI's port.
const PORT: u16 = 5080;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    /// Reads.
    Get,
    /// Most changes.
    Put,
    /// Some changes.
    Post,
    /// Takes away.
    Delete,
}

impl HttpMethod {
    /// As in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// An address where RAPI may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RapiAddress {
    /// Its name, as given.
    pub host: String,
    /// Its port.
    pub port: u16,
    tls: bool,
}

impl RapiAddress {
    /// `host`, `host:port`, or a URL of these. Without TLS only this machine is talked to.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some((other, _)) => return Err(format!("{text:?} is a {other} address, and RAPI is https")),
            None => (true, text),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                let port = port
                    .parse()
                    .map_err(|_| format!("{port:?} in {text:?} is not a port"))?;
                (host, port)
            }
            Some(_) | None => (rest, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || host.contains('/') {
            return Err(format!("{text:?} is not an address"));
        }
        if !tls && !["127.0.0.1", "::1", "localhost"].contains(&host.as_str()) {
            return Err(format!(
                "{text:?} is without TLS: the password would be readable on the way. Only this machine may be asked so"
            ));
        }
        Ok(Self { host, port, tls })
    }
}

impl std::fmt::Display for RapiAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Name and password as a request carries them. Never shown.
#[derive(Clone)]
pub struct Login(HeaderValue);

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(hidden)")
    }
}

impl Login {
    /// Of this user, with the password that the first line of a file is.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn from_file(user: &str, file: &Path) -> Result<Self, String> {
        Self::new(user, &secrets::read(file)?)
    }

    /// Of this user with this password.
    ///
    /// # Errors
    /// A user that cannot be one.
    pub fn new(user: &str, password: &str) -> Result<Self, String> {
        if user.is_empty() || user.contains(':') {
            return Err(format!("{user:?} is not a user of RAPI"));
        }
        let both = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let mut value = HeaderValue::try_from(format!("Basic {both}")).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nothing was sent.
    NotSent(String),
    /// It was sent, and may have its effect.
    Lost(String),
}

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RapiResponse {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

/// How requests are sent.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) tls: TlsConnector,
    pub(crate) login: Option<Login>,
    pub(crate) pace: GanetiTiming,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Wire {
    pub(crate) fn new(tls: rustls::ClientConfig, login: Option<Login>, pace: GanetiTiming) -> Self {
        Self {
            tls: TlsConnector::from(Arc::new(tls)),
            login,
            pace,
        }
    }

    /// One request, one connection.
    pub(crate) async fn ask(
        &self,
        to: &RapiAddress,
        method: HttpMethod,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<RapiResponse, NoAnswer> {
        let not_sent = |why: String| NoAnswer::NotSent(format!("{to}: {why}"));
        let too_long = |what: &str, time: std::time::Duration| {
            format!("{to}: {what} took longer than {} s", time.as_secs_f64())
        };
        let connect = async {
            let stream = TcpStream::connect((to.host.as_str(), to.port))
                .await
                .map_err(|error| not_sent(format!("no connection: {error}")))?;
            // A request is small: it is not held back to be joined with another.
            stream.set_nodelay(true).ok();
            if !to.tls {
                return Ok(Box::new(stream) as Box<dyn Stream>);
            }
            let name = ServerName::try_from(to.host.clone())
                .map_err(|error| not_sent(format!("not a name that a certificate can have: {error}")))?;
            let stream = self
                .tls
                .connect(name, stream)
                .await
                .map_err(|error| not_sent(format!("TLS: {error}")))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        };
        let stream = tokio::time::timeout(self.pace.connect, connect)
            .await
            .map_err(|_| NoAnswer::NotSent(too_long("a connection", self.pace.connect)))??;
        let request = self.request(to, method, path, body).map_err(not_sent)?;
        let answer = async {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| not_sent(error.to_string()))?;
            let connection = AbortOnDrop(tokio::spawn(connection));
            let lost = |error: &dyn std::error::Error| NoAnswer::Lost(format!("{to}: {error}"));
            let answer = sender.send_request(request).await.map_err(|error| lost(&error))?;
            let code = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), LARGEST_ANSWER)
                .collect()
                .await
                .map_err(|error| lost(&*error))?
                .to_bytes()
                .to_vec();
            drop(connection);
            Ok(RapiResponse { code, body })
        };
        tokio::time::timeout(self.pace.call, answer)
            .await
            .map_err(|_| NoAnswer::Lost(too_long("the answer", self.pace.call)))?
    }

    fn request(
        &self,
        to: &RapiAddress,
        method: HttpMethod,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<hyper::Request<Full<Bytes>>, String> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        let mut request = hyper::Request::builder()
            .method(method.as_str())
            .uri(path)
            .header(HOST, to.to_string())
            .header(CONTENT_TYPE, "application/json");
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login.0.clone());
        }
        request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection ends with its request.
struct AbortOnDrop(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, host, port) in [
            ("gnt.example.org", "gnt.example.org", 5080),
            ("node1:5443", "node1", 5443),
            ("https://node1:5080/", "node1", 5080),
            ("[2001:db8::1]:5080", "2001:db8::1", 5080),
            ("2001:db8::1", "2001:db8::1", 5080),
        ] {
            let address = RapiAddress::parse(text).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{text}");
            assert!(address.tls);
            let shown = address.to_string();
            assert_eq!(RapiAddress::parse(&shown).unwrap(), address, "{shown}");
        }
        for bad in ["", "https://", "ftp://node1", "node1:rapi", "node1/2"] {
            assert!(RapiAddress::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_password_never_goes_over_a_network_in_the_clear() {
        assert!(RapiAddress::parse("http://127.0.0.1:5080").is_ok());
        let why = RapiAddress::parse("http://node1:5080").unwrap_err();
        assert!(why.contains("without TLS"), "{why}");
    }

    #[test]
    fn a_password_is_read_from_a_file_that_others_cannot_read_and_never_shown() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "geheim\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let why = Login::from_file("stagger", &file).unwrap_err();
        assert!(why.contains("chmod"), "{why}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let login = Login::from_file("stagger", &file).unwrap();
        assert_eq!(login.0.to_str().unwrap(), "Basic c3RhZ2dlcjpnZWhlaW0=");
        assert_eq!(format!("{login:?} {:?}", login.0), "Login(hidden) Sensitive");
        assert!(Login::new("a:b", "c").is_err());
    }
}
