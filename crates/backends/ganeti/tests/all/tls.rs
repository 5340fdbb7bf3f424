//! Whom we believe to be RAPI, over real TLS.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use stagger_ganeti::config::Visits;
use stagger_ganeti::rapi::client::Rapi;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use crate::common::settings;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tls")
        .join(name)
}

/// Shows a certificate, whatever it is and whether or not the key is its own, as rustls by itself would not.
fn acceptor(cert: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let signer = provider.key_provider.load_private_key(key).unwrap();
    let shown = rustls::sign::CertifiedKey::new(vec![cert], signer);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(shown)));
    TlsAcceptor::from(Arc::new(config))
}

/// Answers every request alike; returns its address.
async fn serve(cert: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> String {
    let acceptor = acceptor(cert, key);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let body = r#"{"master": "n1"}"#;
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    format!("https://localhost:{port}")
}

/// A certificate as it should be, with its key.
fn proper() -> (CertificateDer<'static>, PrivateKeyDer<'static>, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    (made.cert.der().clone(), key, made.cert.pem())
}

fn stock() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let cert = CertificateDer::from_pem_file(fixture("stock.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(fixture("stock.key")).unwrap();
    (cert, key)
}

fn fingerprint(cert: &CertificateDer<'_>) -> String {
    let bytes: Vec<_> = Sha256::digest(cert)
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect();
    bytes.join(":")
}

async fn ask(address: &str, ca: Option<&str>, fingerprint: Option<String>) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(&[address], folder.path(), Visits::default());
    if let Some(pem) = ca {
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, pem).unwrap();
        settings.cluster.ca = Some(file);
    }
    settings.cluster.fingerprint = fingerprint;
    let rapi = Rapi::new(&settings).map_err(|error| error.to_string())?;
    match rapi.get("/2/info").await {
        Ok(info) => Ok(info["master"].to_string()),
        Err(error) => {
            let error = error.of("ask", false);
            Err(format!("{error} HINT {}", error.hint.clone().unwrap_or_default()))
        }
    }
}

#[tokio::test]
async fn a_given_authority_is_believed_and_another_is_not() {
    let (cert, key, pem) = proper();
    let address = serve(cert, key).await;
    assert_eq!(ask(&address, Some(&pem), None).await.as_deref(), Ok("\"n1\""));
    let (_, _, other) = proper();
    let why = ask(&address, Some(&other), None).await.unwrap_err();
    assert!(why.contains("TLS"), "{why}");
    let by_address = address.replace("localhost", "127.0.0.1");
    let why = ask(&by_address, Some(&pem), None).await.unwrap_err();
    assert!(why.contains("TLS"), "a name is checked: {why}");
}

#[tokio::test]
async fn a_stock_certificate_is_refused_with_what_to_do_and_can_be_pinned() {
    let (cert, key) = stock();
    let pem = std::fs::read_to_string(fixture("stock.pem")).unwrap();
    let print = fingerprint(&cert);
    let address = serve(cert, key).await;
    let why = ask(&address, Some(&pem), None).await.unwrap_err();
    assert!(
        why.contains("fingerprint =") && why.contains("version 1"),
        "{why}"
    );
    assert_eq!(ask(&address, None, Some(print)).await.as_deref(), Ok("\"n1\""));
}

#[tokio::test]
async fn only_the_pinned_certificate_is_believed() {
    let (cert, key, _) = proper();
    let right = fingerprint(&cert);
    let address = serve(cert, key).await;
    assert_eq!(
        ask(&address, None, Some(right.clone())).await.as_deref(),
        Ok("\"n1\"")
    );
    let why = ask(&address, None, Some("ab".repeat(32))).await.unwrap_err();
    assert!(why.contains(&right), "it says what it found: {why}");
}

#[tokio::test]
async fn a_certificate_shown_by_who_has_not_its_key_is_not_believed() {
    let (cert, _) = stock();
    let (_, key, _) = proper();
    let print = fingerprint(&cert);
    let address = serve(cert, key).await;
    let why = ask(&address, None, Some(print)).await.unwrap_err();
    assert!(why.contains("TLS"), "{why}");
}
