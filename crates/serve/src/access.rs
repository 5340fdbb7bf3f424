//! Access control: roles, their clusters, and tokens.
//!
//! A token is 256 random bits, so its plain SHA-256 is kept: it cannot be reversed. The file of tokens
//! belongs to the user, and is read again for each request: a revoked token ends at once.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stagger_core::model::ClusterName;
use stagger_engine::secrets;

/// The prefix of tokens, by which one is recognised in a log.
const PREFIX: &str = "stagger_";
/// A token is good for no longer.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(90 * 24);

/// What a token permits. Each role includes those before it, but for [`Role::Ask`]: who looks does not ask, and who operates does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Ask to take hosts down, and see what came of that. Nothing else, not even to look at runs.
    Ask,
    /// Look at runs.
    Look,
    /// Pause, resume, abort and roll back.
    Operate,
    /// Approve points of no return, and settle calls whose outcome is unknown.
    Approve,
}

impl Role {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Look => "look",
            Self::Operate => "operate",
            Self::Approve => "approve",
        }
    }
}

/// Whose question is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// As a journal names them: `anna@ops1`, `token grafana`.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Of which clusters; `None`: of all.
    pub clusters: Option<Vec<ClusterName>>,
}

impl Caller {
    /// Whether they may know of a cluster at all.
    pub fn may_see(&self, cluster: &ClusterName) -> bool {
        self.clusters
            .as_ref()
            .is_none_or(|clusters| clusters.contains(cluster))
    }

    /// Whether they may do that there.
    pub fn has_role(&self, role: Role, cluster: &ClusterName) -> bool {
        self.may_see(cluster) && self.role >= role
    }
}

/// The stored form of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredToken {
    /// Its name, which journals tell.
    pub name: String,
    /// The SHA-256 of the token, in hexadecimal digits.
    sha256: String,
    /// What its holder may do.
    pub role: Role,
    /// Of which clusters; not there: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<ClusterName>>,
    /// Until when.
    pub expires: Timestamp,
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its name.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// Of which clusters; `None`: of all.
    pub clusters: Option<Vec<ClusterName>>,
    /// For how long, at most [`LONGEST`].
    pub good_for: SignedDuration,
}

/// Why tokens cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("{tried} {}: {source}", file.display())]
    File {
        /// What was tried.
        tried: &'static str,
        /// Which file.
        file: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// It is not as this program writes it.
    #[error("{} is no file of tokens: {source}", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: serde_json::Error,
    },
    /// Others can read or write it.
    #[error("{} may be read or written by others: `chmod 600` it", .0.display())]
    Open(PathBuf),
    /// There is one of that name.
    #[error("there is a token {0} already: revoke it first")]
    Known(String),
    /// There is none of that name.
    #[error("there is no token {0}")]
    Unknown(String),
    /// It would stand in journals.
    #[error(
        "{0:?} is no name of a token: 1 to 60 letters, digits, dots, dashes and underscores, a letter or digit first"
    )]
    Name(String),
    /// For too long or not at all.
    #[error("a token is good for 1 to 90 days")]
    GoodFor,
}

/// The file of tokens.
#[derive(Debug, Clone)]
pub struct Tokens {
    file: PathBuf,
}

impl Tokens {
    /// Those of that file; where there is none, there are no tokens.
    pub fn of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
        }
    }

    /// All of them.
    ///
    /// # Errors
    /// The file cannot be read, or is open to others.
    pub fn list(&self) -> Result<Vec<StoredToken>, TokenError> {
        let text = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.failed("read", source)),
        };
        let metadata = fs::metadata(&self.file).map_err(|source| self.failed("read", source))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::Open(self.file.clone()));
        }
        serde_json::from_str(&text).map_err(|source| TokenError::Unreadable {
            file: self.file.clone(),
            source,
        })
    }

    /// Makes one: it is returned here, and never again.
    ///
    /// # Errors
    /// There is one of that name, it would be good for too long, or the file cannot be written.
    pub fn add(&self, wanted: NewToken, now: Timestamp) -> Result<String, TokenError> {
        let NewToken {
            name,
            role,
            clusters,
            good_for,
        } = wanted;
        if good_for <= SignedDuration::ZERO || good_for > LONGEST {
            return Err(TokenError::GoodFor);
        }
        if !is_name(&name) {
            return Err(TokenError::Name(name));
        }
        let _alone = self.lock()?;
        let mut kept = self.list()?;
        if kept.iter().any(|known| known.name == name && known.expires > now) {
            return Err(TokenError::Known(name));
        }
        kept.retain(|known| known.name != name);
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| self.failed("make a token for", error.into()))?;
        let token = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
        kept.push(StoredToken {
            name,
            sha256: digest(&token),
            role,
            clusters,
            expires: now + good_for,
        });
        self.write(&kept)?;
        Ok(token)
    }

    /// Ends one.
    ///
    /// # Errors
    /// There is none of that name, or the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        let _alone = self.lock()?;
        let mut kept = self.list()?;
        let before = kept.len();
        kept.retain(|known| known.name != name);
        if kept.len() == before {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        self.write(&kept)
    }

    /// Who holds a token; `None`: it is none, or has expired or been revoked.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn holder(&self, token: &str, now: Timestamp) -> Result<Option<Caller>, TokenError> {
        let digest = digest(token);
        let known = self.list()?.into_iter().find(|known| known.sha256 == digest);
        Ok(known.filter(|known| known.expires > now).map(|known| Caller {
            name: format!("token {}", known.name),
            role: known.role,
            clusters: known.clusters,
        }))
    }

    /// Held by who changes the file: of two who do so at once, neither brings back what the other took away.
    fn lock(&self) -> Result<File, TokenError> {
        let failed = |source| self.failed("lock", source);
        if let Some(folder) = self.file.parent() {
            secrets::make_folder(folder).map_err(failed)?;
        }
        let file = self.file.with_extension("lock");
        secrets::ensure_private_file(&file).map_err(failed)?;
        let lock = File::open(&file).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(lock)
    }

    /// Writes a temporary file and renames it: a concurrent reader gets either the old or the new one.
    fn write(&self, kept: &[StoredToken]) -> Result<(), TokenError> {
        let failed = |source| self.failed("write", source);
        let folder = self.file.parent().unwrap_or(Path::new("."));
        secrets::make_folder(folder).map_err(failed)?;
        let text = serde_json::to_vec_pretty(kept).map_err(|error| failed(error.into()))?;
        let new = self.file.with_extension("new");
        let mut to = secrets::create(&new).map_err(failed)?;
        to.write_all(&text).and_then(|()| to.sync_all()).map_err(failed)?;
        fs::rename(&new, &self.file).map_err(failed)
    }

    fn failed(&self, tried: &'static str, source: io::Error) -> TokenError {
        TokenError::File {
            tried,
            file: self.file.clone(),
            source,
        }
    }
}

/// Names stand in journals, in lists and on command lines.
fn is_name(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.len() <= 60 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(letters)
}

fn digest(token: &str) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(token) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn wanted(name: &str, days: i64) -> NewToken {
        NewToken {
            name: name.to_owned(),
            role: Role::Operate,
            clusters: Some(vec![ClusterName::new("lab").unwrap()]),
            good_for: SignedDuration::from_hours(24 * days),
        }
    }

    #[test]
    fn a_token_is_good_until_it_expires_or_is_revoked_and_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serve/tokens.json");
        let (tokens, now) = (Tokens::of(&file), Timestamp::now());
        assert_eq!(tokens.holder("stagger_", now).unwrap(), None);
        let token = tokens.add(wanted("grafana", 30), now).unwrap();
        let holder = tokens.holder(&token, now).unwrap().unwrap();
        assert_eq!(holder.name, "token grafana");
        let (lab, other) = (
            ClusterName::new("lab").unwrap(),
            ClusterName::new("other").unwrap(),
        );
        assert!(holder.has_role(Role::Operate, &lab) && holder.has_role(Role::Look, &lab));
        assert!(!holder.has_role(Role::Approve, &lab) && !holder.has_role(Role::Look, &other));
        assert!(!fs::read_to_string(&file).unwrap().contains(&token));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        assert!(matches!(
            tokens.add(wanted("grafana", 1), now),
            Err(TokenError::Known(_))
        ));
        let later = now + SignedDuration::from_hours(24 * 30);
        assert_eq!(tokens.holder(&token, later).unwrap(), None);
        tokens.revoke("grafana").unwrap();
        assert_eq!(tokens.holder(&token, now).unwrap(), None);
        assert!(matches!(tokens.revoke("grafana"), Err(TokenError::Unknown(_))));
    }

    #[test]
    fn none_is_good_for_ever_and_none_is_read_that_others_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.json");
        let (tokens, now) = (Tokens::of(&file), Timestamp::now());
        for name in ["", "-x", "a b", "a\nb", "ä", &"x".repeat(61)] {
            let refused = tokens.add(wanted(name, 1), now);
            assert!(matches!(refused, Err(TokenError::Name(_))), "{name:?}");
        }
        for days in [0, 91] {
            assert!(matches!(
                tokens.add(wanted("a", days), now),
                Err(TokenError::GoodFor)
            ));
        }
        let token = tokens.add(wanted("a", 90), now).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(tokens.holder(&token, now), Err(TokenError::Open(_))));
        fs::write(&file, "[{").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(tokens.list(), Err(TokenError::Unreadable { .. })));
    }
}
