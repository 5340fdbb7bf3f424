//! Authentication of RAPI.
//!
//! By an authority (a given one, or the system's), or by the fingerprint of the one certificate. Ganeti
//! creates its own certificates with version 1 of X.509 and without a verifiable name (`lib/utils/x509.py`
//! sets neither), which the verifier of rustls does not read: they can only be pinned.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::FromDer as _;

/// What to do about a certificate that is not believed.
pub const HINT: &str = "certificates that Ganeti made by itself are of X.509 version 1 and carry no name: pin one \
     with `fingerprint = \"…\"` (`openssl x509 -in /var/lib/ganeti/rapi.pem -noout -fingerprint -sha256` on the \
     master shows it), or give RAPI a certificate of version 3 with the cluster's name as its subjectAltName \
     (`gnt-cluster renew-crypto --rapi-certificate FILE`) and name its authority with `ca`";

/// A way of trust that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The authority's file.
    #[error("the certificates of {file} cannot be read: {why}")]
    Ca {
        /// Which.
        file: String,
        /// Why not.
        why: String,
    },
    /// The system has no authorities.
    #[error("this system has no certificates of authorities: {0}")]
    System(String),
    /// The fingerprint is not one.
    #[error("{0:?} is not a SHA-256 fingerprint: it has 64 hexadecimal digits, with or without colons")]
    Fingerprint(String),
    /// Both ways are given.
    #[error("`ca` and `fingerprint` are both given: give one of them")]
    Both,
    /// rustls itself.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// How a client verifies the server.
///
/// # Errors
/// A file that cannot be read, or a fingerprint that is none.
pub fn client_config(ca: Option<&Path>, fingerprint: Option<&str>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let setup = |error: Error| TlsError::Setup(error.to_string());
    let Some(fingerprint) = fingerprint else {
        let roots = match ca {
            Some(file) => given_roots(file)?,
            None => system_roots()?,
        };
        return Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(setup)?
            .with_root_certificates(roots)
            .with_no_client_auth());
    };
    if ca.is_some() {
        return Err(TlsError::Both);
    }
    let pinned = Pinned {
        sha256: read_fingerprint(fingerprint).ok_or_else(|| TlsError::Fingerprint(fingerprint.to_owned()))?,
        algorithms: provider.signature_verification_algorithms,
    };
    Ok(ClientConfig::builder_with_provider(provider)
        // Only there can a signature be verified with the bare key.
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth())
}

fn given_roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |why: String| TlsError::Ca {
        file: file.display().to_string(),
        why,
    };
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        return Err(TlsError::System(why.join("; ")));
    }
    Ok(roots)
}

/// A fingerprint as `openssl x509 -fingerprint` writes it.
pub(crate) fn fingerprint_text(sha256: &[u8; 32]) -> String {
    let pairs: Vec<String> = sha256.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

fn read_fingerprint(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// Believes one certificate, whatever it says of itself, from whoever has its key.
#[derive(Debug)]
struct Pinned {
    sha256: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found: [u8; 32] = Sha256::digest(end_entity).into();
        if found == self.sha256 {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!(
            "the certificate's fingerprint is {}, not the one that is pinned",
            fingerprint_text(&found)
        )))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("a pinned certificate takes TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(cert)
            .map_err(|error| Error::General(format!("the certificate cannot be read: {error}")))?;
        let key = SubjectPublicKeyInfoDer::from(parsed.public_key().raw);
        verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_with_colons_and_without() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        assert_eq!(read_fingerprint(&plain), Some([0xab; 32]));
        assert_eq!(read_fingerprint(&colons), Some([0xab; 32]));
        for bad in ["", "ab", &"zz".repeat(32), &"ab".repeat(33)] {
            assert_eq!(read_fingerprint(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn both_ways_at_once_are_refused() {
        let both = client_config(Some(Path::new("ca.pem")), Some(&"ab".repeat(32)));
        assert_eq!(both.err(), Some(TlsError::Both));
    }
}
