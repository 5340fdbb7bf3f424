//! The certificate that RAPI presents, to compare and pin it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use sha2::{Digest as _, Sha256};
use stagger_engine::cluster::BackendError;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::rapi::tls::fingerprint_text;
use crate::rapi::wire::RapiAddress;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The SHA-256 fingerprint of the certificate that is presented at an address, as `openssl x509 -fingerprint` writes it. Nothing is
/// sent there: the certificate is looked at, and the connection ends.
///
/// # Errors
/// There is no such address, or nobody presents a certificate there.
pub async fn presented_fingerprint(address: &str) -> Result<String, BackendError> {
    let tried = format!("look at the certificate of {address}");
    let failed = |why: String| BackendError::transient(&tried, why);
    let to = RapiAddress::parse(address).map_err(|why| BackendError::permanent(&tried, why))?;
    let provider = Arc::new(ring::default_provider());
    let seen = Arc::new(Presented {
        sha256: Mutex::default(),
        schemes: provider.signature_verification_algorithms.supported_schemes(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&seen) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let name = ServerName::try_from(to.host.clone()).map_err(|error| failed(error.to_string()))?;
    let connect = async {
        let stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let connected = tokio::time::timeout(PATIENCE, connect).await;
    let found = *seen.sha256.lock().unwrap_or_else(PoisonError::into_inner);
    match (found, connected) {
        (Some(found), _) => Ok(fingerprint_text(&found)),
        (None, Ok(Err(error))) => Err(failed(error.to_string())),
        (None, Ok(Ok(_))) => Err(failed("no certificate was presented".to_owned())),
        (None, Err(_)) => Err(failed(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// Remembers what is presented, and believes nobody.
#[derive(Debug)]
struct Presented {
    sha256: Mutex<Option<[u8; 32]>>,
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Presented {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut seen = self.sha256.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(Sha256::digest(end_entity).into());
        Err(Error::General("it was only looked at".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("no certificate is trusted here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("no certificate is trusted here".to_owned()))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
