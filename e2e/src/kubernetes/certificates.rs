//! Who the API server is, and who signs the tokens of service accounts: made anew for each plane.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::KeyPair;

use super::GATEWAY;
use crate::certificates::Authority;

/// All that a plane needs, as PEM.
pub(super) struct Certificates {
    files: Vec<(&'static str, String)>,
}

impl Certificates {
    /// New keys, and certificates of the API server by an authority of their own.
    pub(super) fn new() -> Result<Self> {
        let authority = Authority::new()?;
        let of_pods = GATEWAY.to_string();
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc", &of_pods].map(str::to_owned);
        let server = authority.server(names.to_vec())?;
        let accounts = KeyPair::generate().context("making the key of the service accounts")?;
        Ok(Self {
            files: vec![
                ("ca.crt", authority.pem()),
                ("server.crt", server.certificate),
                ("server.key", server.key),
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
