//! Certificates for the servers of a test-bed, by an authority of its own that is made anew each time.

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Who signs them. Its key is kept nowhere.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A server's certificate and key, as PEM.
pub(crate) struct Server {
    /// What it shows.
    pub(crate) certificate: String,
    /// What it keeps.
    pub(crate) key: String,
}

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new()).context("describing the authority")?;
        params
            .distinguished_name
            .push(DnType::CommonName, "stagger test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().context("making the authority's key")?;
        let issuer = CertifiedIssuer::self_signed(params, key).context("signing the authority")?;
        Ok(Self { issuer })
    }

    /// What those trust who trust it, as PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs a server that goes by these names and addresses.
    pub(crate) fn server(&self, names: Vec<String>) -> Result<Server> {
        let server = CertificateParams::new(names).context("describing the server")?;
        let key = KeyPair::generate().context("making the server's key")?;
        let signed = server
            .signed_by(&key, &self.issuer)
            .context("signing the server")?;
        Ok(Server {
            certificate: signed.pem(),
            key: key.serialize_pem(),
        })
    }
}
