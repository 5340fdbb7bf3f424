//! Who the API server is, and who signs the tokens of service accounts: made anew for each plane.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// All that a plane needs, as PEM.
pub(super) struct Certificates {
    files: Vec<(&'static str, String)>,
}

impl Certificates {
    /// New keys, and certificates of the API server by an authority of their own.
    pub(super) fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new()).context("describing the authority")?;
        params
            .distinguished_name
            .push(DnType::CommonName, "stagger test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().context("making the authority's key")?;
        let authority = CertifiedIssuer::self_signed(params, key).context("signing the authority")?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let server = CertificateParams::new(names.to_vec()).context("describing the server")?;
        let key = KeyPair::generate().context("making the server's key")?;
        let signed = server.signed_by(&key, &authority).context("signing the server")?;
        let accounts = KeyPair::generate().context("making the key of the service accounts")?;
        Ok(Self {
            files: vec![
                ("ca.crt", authority.pem()),
                ("server.crt", signed.pem()),
                ("server.key", key.serialize_pem()),
                ("accounts.key", accounts.serialize_pem()),
                ("accounts.pub", accounts.public_key_pem()),
            ],
        })
    }

    /// Writes them into a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        for (name, text) in &self.files {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }
}
