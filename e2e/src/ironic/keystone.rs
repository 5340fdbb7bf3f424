//! Keystone: who wants to ask Ironic shows a token of its, over TLS.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{Cluster, DATABASE_USER};
use crate::certificates::Authority;
use crate::command::run;
use crate::files::put;

/// Where it answers.
pub const KEYSTONE: &str = "https://127.0.0.1:5000/v3";
/// Who may do everything in the whole system, with the password of the database's users.
pub const ADMIN: &str = "admin";
/// The API with TLS, at the balancer.
pub const TLS_PORT: u16 = 6443;

const PROGRAM: &str = include_str!("serve_keystone.py");

/// Its folder below the cluster's: certificates, keys, database.
pub(super) const FOLDER: &str = "keystone";

/// Writes what it needs before it starts; the authority of its certificates is `ca.pem` there.
pub(super) fn write(dir: &Path) -> Result<()> {
    let home = dir.join(FOLDER);
    fs::create_dir_all(&home).with_context(|| format!("making {}", home.display()))?;
    let authority = Authority::new()?;
    let server = authority.server(vec!["127.0.0.1".to_owned()])?;
    put(&home.join("ca.pem"), &authority.pem())?;
    put(&home.join("certificate.pem"), &server.certificate)?;
    put(&home.join("key.pem"), &server.key)?;
    // As haproxy takes it.
    put(&home.join("both.pem"), &(server.certificate + &server.key))?;
    put(&dir.join("lib/serve_keystone.py"), PROGRAM)?;
    let home = home.display();
    let conf = format!(
        "[database]
connection = sqlite:///{home}/keystone.db
[token]
provider = fernet
[fernet_tokens]
key_repository = {home}/tokens
[fernet_receipts]
key_repository = {home}/receipts
[credential]
key_repository = {home}/credentials
"
    );
    put(&dir.join(FOLDER).join("keystone.conf"), &conf)
}

/// What Ironic has in its own configuration to believe its tokens.
pub(super) fn of_ironic(dir: &Path) -> String {
    let (_, password) = DATABASE_USER;
    let ca = dir.join(FOLDER).join("ca.pem");
    format!(
        "[keystone_authtoken]
auth_type = password
auth_url = {KEYSTONE}
www_authenticate_uri = {KEYSTONE}
cafile = {}
username = {ADMIN}
password = {password}
user_domain_id = default
project_name = admin
project_domain_id = default
",
        ca.display()
    )
}

impl Cluster {
    /// A token for the whole system.
    ///
    /// # Errors
    /// Keystone does not answer, or gives none.
    pub fn token(&self) -> Result<String> {
        let (_, password) = DATABASE_USER;
        let body = serde_json::json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": {
                "name": ADMIN, "domain": { "id": "default" }, "password": password,
            } } },
            "scope": { "system": { "all": true } },
        } });
        let mut curl = self.command("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--fail",
            "--noproxy",
            "*",
            "--max-time",
            "60",
            "--cacert",
        ])
        .arg(self.dir().join(FOLDER).join("ca.pem"))
        .args(["--output", "/dev/null", "--write-out", "%header{x-subject-token}"])
        .args(["--header", "Content-Type: application/json", "--data"])
        .arg(body.to_string());
        run(curl.arg(format!("{KEYSTONE}/auth/tokens"))).context("asking Keystone for a token")
    }
}
