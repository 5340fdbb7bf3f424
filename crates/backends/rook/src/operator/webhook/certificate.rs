//! The webhook's certificate: self-made by the operator, trusted by the API server through its configuration,
//! and never stored.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// How long it is good for, in days; after two thirds of that there is a new one.
const DAYS: i64 = 90;

/// A certificate and its key.
pub(super) struct Certificate {
    pem: String,
    server: Arc<ServerConfig>,
    made: Timestamp,
}

impl Certificate {
    /// A new one for a host, which signs itself.
    ///
    /// # Errors
    /// The host's name is none, or there is no randomness.
    pub(super) fn new(host: &str) -> Result<Self, CertificateError> {
        let made = Timestamp::now();
        let mut params = CertificateParams::new([host.to_owned()])?;
        params
            .distinguished_name
            .push(DnType::CommonName, "stagger operator");
        // By whole days, and clocks may differ.
        let midnight = |days| {
            let (year, month, day) = date(made, days);
            rcgen::date_time_ymd(year, month, day)
        };
        (params.not_before, params.not_after) = (midnight(-1), midnight(DAYS + 1));
        let key = KeyPair::generate()?;
        let signed = params.self_signed(&key)?;
        let der: CertificateDer<'static> = signed.der().clone();
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![der], secret)?;
        Ok(Self {
            pem: signed.pem(),
            server: Arc::new(server),
            made,
        })
    }

    /// What the API server is to trust.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// How it is shown.
    pub(super) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Whether it is time for a new one.
    pub(super) fn is_to_be_renewed(&self, now: Timestamp) -> bool {
        now.duration_since(self.made) > SignedDuration::from_hours(DAYS * 24 * 2 / 3)
    }
}

/// Year, month and day, so many days from then.
fn date(from: Timestamp, days: i64) -> (i32, u8, u8) {
    let then = from.saturating_add(SignedDuration::from_hours(days * 24));
    let date = then.unwrap_or(from).to_zoned(TimeZone::UTC).date();
    let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
    (i32::from(date.year()), month, day)
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    /// It cannot be made.
    #[error("make a certificate for the webhook: {0}")]
    Make(#[from] rcgen::Error),
    /// It cannot be shown.
    #[error("serve with the webhook's certificate: {0}")]
    Serve(#[from] rustls::Error),
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

    use super::*;

    /// Whether a client that trusts these takes what is shown for that host, over bytes in memory.
    fn is_trusted(shown: &Certificate, trusted: &[&Certificate], host: &str) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        let bundle: String = trusted.iter().map(|one| one.pem()).collect();
        for one in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(one.unwrap())?;
        }
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = ServerName::try_from(host.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), host)?;
        let mut server = ServerConnection::new(shown.server())?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut &wire[..]).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut &wire[..]).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn while_one_is_renewed_both_are_trusted_whichever_is_shown() {
        let host = "stagger-evictions.rook-ceph.svc";
        let [first, renewed, other] = [(); 3].map(|()| Certificate::new(host).unwrap());
        for shown in [&first, &renewed] {
            is_trusted(shown, &[&renewed, &first], host).unwrap();
            is_trusted(shown, &[&other], host).unwrap_err();
            is_trusted(shown, &[&renewed, &first], "another.svc").unwrap_err();
        }
        let days = |days: i64| first.made + SignedDuration::from_hours(days * 24);
        assert!(!first.is_to_be_renewed(days(59)) && first.is_to_be_renewed(days(61)));
    }

    #[test]
    fn a_date_is_counted_over_the_end_of_a_year() {
        let from: Timestamp = "2026-12-31T12:00:00Z".parse().unwrap();
        assert_eq!([date(from, -1), date(from, 1)], [(2026, 12, 30), (2027, 1, 1)]);
    }
}
