//! Authentication to a service of Ironic: a name and a password, a Keystone token, a token that a command
//! prints, or none.
//!
//! A token is used until shortly before its end. If it is refused earlier, a new one is requested, once.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::AUTHORIZATION;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stagger_engine::hosts::last_words;
use stagger_engine::secrets;

/// How services are asked, `[cluster.auth]` and `[cluster.rpc_auth]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Auth {
    /// By name and password: `auth_strategy = http_basic`, as Bifrost and Metal3 have it.
    HttpBasic(HttpBasic),
    /// With a token of Keystone's: `auth_strategy = keystone`, as Kolla has it.
    Keystone(Box<Keystone>),
}

/// A name and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpBasic {
    /// The name.
    pub user: String,
    /// The file with the password, which nobody else may read.
    pub password_file: PathBuf,
}

/// Who asks Keystone for a token: an application credential, or a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keystone {
    /// Where it answers: `https://keystone.example.org:5000/v3`.
    pub url: String,
    /// The id of an application credential.
    #[serde(default)]
    pub application_credential: Option<String>,
    /// The name of a user, where there is no application credential.
    #[serde(default)]
    pub user: Option<String>,
    /// The user's domain, by name.
    #[serde(default = "default_domain")]
    pub user_domain: String,
    /// The project that the user asks for, by name; without it the whole system (`system_scope = all`).
    #[serde(default)]
    pub project: Option<String>,
    /// The project's domain, by name.
    #[serde(default = "default_domain")]
    pub project_domain: String,
    /// The file with the secret of the credential or the password of the user, which nobody else may read.
    pub password_file: PathBuf,
}

fn default_domain() -> String {
    "Default".to_owned()
}

impl Auth {
    /// What in it does not fit together. `section`: where it stands.
    ///
    /// # Errors
    /// In words, with the names of the settings.
    pub(crate) fn verify(&self, section: &str) -> Result<(), String> {
        match self {
            Self::HttpBasic(HttpBasic { user, .. }) if user.is_empty() || user.contains(':') => {
                Err(format!("`{section}.user` is {user:?}: a name without a colon"))
            }
            Self::HttpBasic(_) => Ok(()),
            Self::Keystone(keystone) => match (&keystone.application_credential, &keystone.user) {
                (Some(_), None) if keystone.project.is_some() => Err(format!(
                    "`{section}` has an application credential, which is of one project by itself: leave `project` out"
                )),
                (Some(_), None) | (None, Some(_)) => Ok(()),
                (Some(_), Some(_)) | (None, None) => Err(format!(
                    "`{section}` is of Keystone: give `application_credential`, or `user` and `project`"
                )),
            },
        }
    }
}

impl Keystone {
    /// What a token is asked for with (Identity API v3, `POST /v3/auth/tokens`).
    fn request(&self, secret: &str) -> Value {
        let Self {
            application_credential,
            user,
            user_domain,
            project,
            project_domain,
            ..
        } = self;
        if let Some(id) = application_credential {
            return json!({ "auth": { "identity": {
                "methods": ["application_credential"],
                "application_credential": { "id": id, "secret": secret },
            } } });
        }
        let scope = match project {
            Some(name) => json!({ "project": { "name": name, "domain": { "name": project_domain } } }),
            None => json!({ "system": { "all": true } }),
        };
        json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": {
                "name": user, "domain": { "name": user_domain }, "password": secret,
            } } },
            "scope": scope,
        } })
    }
}

/// What is sent beside a question.
#[derive(Clone)]
pub(crate) struct Header {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

/// Where a header comes from.
pub(crate) enum CredentialSource {
    /// There is none.
    Nobody,
    /// Always the same.
    Same(Header),
    /// A command prints a token.
    Command(String),
    /// Keystone gives one for this.
    Keystone { url: String, request: Value },
}

/// Who asks a service.
pub(crate) struct Credentials {
    pub(crate) source: CredentialSource,
    kept: Mutex<Option<(Header, Timestamp)>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let source = match &self.source {
            CredentialSource::Nobody => "nobody",
            CredentialSource::Same(header) => header.name,
            CredentialSource::Command(_) => "a command",
            CredentialSource::Keystone { url, .. } => url,
        };
        f.debug_tuple("Credentials").field(&source).finish()
    }
}

/// The header of a token.
const TOKEN: &str = "x-auth-token";

/// How long a token is used of which nobody said how long it lasts.
const LASTS: Duration = Duration::from_mins(5);

/// A token is not used any more so long before its end: a question with it takes a while, and clocks differ.
const BEFORE_ITS_END: Duration = Duration::from_secs(30);

impl Credentials {
    /// Those of nobody.
    pub(crate) fn none() -> Self {
        Self::of(CredentialSource::Nobody)
    }

    /// A token that somebody has.
    pub(crate) fn token(token: Option<&str>) -> Self {
        Self::of(match token {
            None => CredentialSource::Nobody,
            Some(token) => CredentialSource::Same(Header {
                name: TOKEN,
                value: token.to_owned(),
            }),
        })
    }

    /// As the configuration says: `command` is one that prints a token.
    ///
    /// # Errors
    /// A file cannot be read, or others may read it.
    pub(crate) fn configured(auth: Option<&Auth>, command: Option<&str>) -> Result<Self, String> {
        let source = match (auth, command) {
            (None, None) => CredentialSource::Nobody,
            (None, Some(command)) => CredentialSource::Command(command.to_owned()),
            (Some(Auth::HttpBasic(HttpBasic { user, password_file })), _) => {
                let password = secrets::read(password_file)?;
                let encoded = STANDARD.encode(format!("{user}:{password}"));
                secrets::remember(&encoded);
                CredentialSource::Same(Header {
                    name: AUTHORIZATION.as_str(),
                    value: format!("Basic {encoded}"),
                })
            }
            (Some(Auth::Keystone(keystone)), _) => CredentialSource::Keystone {
                url: format!("{}/auth/tokens", keystone.url.trim_end_matches('/')),
                request: keystone.request(&secrets::read(&keystone.password_file)?),
            },
        };
        Ok(Self::of(source))
    }

    fn of(source: CredentialSource) -> Self {
        Self {
            source,
            kept: Mutex::new(None),
        }
    }

    /// Whether what was refused may be another thing when it is asked for anew.
    pub(crate) fn can_be_renewed(&self) -> bool {
        matches!(
            self.source,
            CredentialSource::Command(_) | CredentialSource::Keystone { .. }
        )
    }

    /// What was given last is not used again.
    pub(crate) fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is sent, where that is known without asking anybody.
    pub(crate) fn cached(&self) -> CachedCredential {
        match &self.source {
            CredentialSource::Nobody => return CachedCredential::Nothing,
            CredentialSource::Same(header) => return CachedCredential::Header(header.clone()),
            CredentialSource::Command(_) | CredentialSource::Keystone { .. } => {}
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match kept {
            Some((header, until)) if Timestamp::now() < until => CachedCredential::Header(header),
            Some(_) | None => CachedCredential::AskFor,
        }
    }

    /// A token that was given, to be used until shortly before its end, or for a while where nobody said how long it lasts.
    pub(crate) fn store(&self, token: String, ends: Option<Timestamp>) -> Header {
        secrets::remember(&token);
        let header = Header {
            name: TOKEN,
            value: token,
        };
        let until = ends.map_or_else(|| Timestamp::now() + LASTS, |ends| ends - BEFORE_ITS_END);
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((header.clone(), until));
        header
    }
}

/// What is known of what is sent.
pub(crate) enum CachedCredential {
    /// Nothing is.
    Nothing,
    /// This is.
    Header(Header),
    /// A token, which its source has to be asked for.
    AskFor,
}

/// The token that a command prints.
pub(crate) async fn printed(command: &str, limit: Duration) -> Result<String, String> {
    let asked = tokio::process::Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(limit, asked)
        .await
        .map_err(|_| format!("`token` has not ended after {} s", limit.as_secs()))?
        .map_err(|error| format!("`token` cannot be run: {error}"))?;
    let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || token.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!(
            "`token` ended with {}: {}",
            output.status,
            last_words(&said)
        ));
    }
    Ok(token)
}
