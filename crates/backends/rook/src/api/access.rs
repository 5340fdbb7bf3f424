//! Access to Ceph, as Rook has it: the monitors' addresses in a ConfigMap and the administrator's key in a
//! Secret.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use stagger_ceph::api::Access;
use stagger_engine::secrets;

/// The ConfigMap with the addresses.
pub const ENDPOINTS: &str = "rook-ceph-mon-endpoints";
/// The Secret with the key.
pub const SECRET: &str = "rook-ceph-mon";

/// Makes the names of files that are being written distinct.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Why Ceph cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The API server did not give an object.
    #[error("{kind} {namespace}/{name} cannot be read")]
    Object {
        /// Its kind.
        kind: &'static str,
        /// Where it should be.
        namespace: String,
        /// Its name.
        name: &'static str,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// An object lacks something.
    #[error("{kind} {name}: {why}")]
    Lacks {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: &'static str,
        /// What.
        why: String,
    },
    /// A file cannot be written.
    #[error("{path} cannot be written")]
    File {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// How the programs that speak to Ceph are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The `ceph` program, with what stands before it.
    pub ceph: Vec<String>,
    /// The Python that has the `rados` module, with what stands before it; empty: none.
    pub python: Vec<String>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            ceph: vec!["ceph".to_owned()],
            python: vec!["/usr/bin/python3".to_owned()],
        }
    }
}

/// Reads addresses and key, and writes `ceph.conf` and a keyring, which nobody else may read, into `folder`.
///
/// # Errors
/// An object is missing or lacks something, or a file cannot be written.
pub async fn access(
    client: &Client,
    namespace: &str,
    folder: &Path,
    programs: &Programs,
) -> Result<Access, AccessError> {
    let failed = |kind, name| {
        move |source| AccessError::Object {
            kind,
            namespace: namespace.to_owned(),
            name,
            source,
        }
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps
        .get(ENDPOINTS)
        .await
        .map_err(failed("ConfigMap", ENDPOINTS))?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets.get(SECRET).await.map_err(failed("Secret", SECRET))?;
    let endpoints = map.data.as_ref().and_then(|data| data.get("data"));
    let hosts = mon_host(endpoints.map(String::as_str).unwrap_or_default())?;
    let field = |name: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(name));
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).trim().to_owned());
        text.filter(|text| !text.is_empty())
            .ok_or_else(|| AccessError::Lacks {
                kind: "Secret",
                name: SECRET,
                why: format!("it has no {name}"),
            })
    };
    let (user, key) = (field("ceph-username")?, field("ceph-secret")?);
    files(folder, &hosts, &user, &key, programs)
}

/// Writes `ceph.conf` and a keyring, which nobody else may read, into `folder`. `hosts` as of [`mon_host`].
///
/// # Errors
/// A file cannot be written.
pub fn files(
    folder: &Path,
    hosts: &str,
    user: &str,
    key: &str,
    programs: &Programs,
) -> Result<Access, AccessError> {
    let conf = folder.join("ceph.conf");
    let keyring = folder.join("keyring");
    write(&keyring, &format!("[{user}]\n\tkey = {key}\n"))?;
    write(
        &conf,
        &format!(
            "[global]\nmon_host = {hosts}\nkeyring = {}\n[{user}]\nadmin_socket =\nlog_file =\npid_file =\n",
            keyring.display()
        ),
    )?;
    Ok(Access {
        ceph: programs.ceph.clone(),
        python: (!programs.python.is_empty()).then(|| programs.python.clone()),
        conf: Some(conf),
        name: Some(user.to_owned()),
        keyring: Some(keyring),
        timeout: Duration::from_secs(30),
    })
}

/// `mon_host` from `a=10.0.0.1:6789,b=…`: with the port of the older protocol both are spoken, with any
/// other the newer one.
///
/// # Errors
/// They are no addresses.
pub fn mon_host(endpoints: &str) -> Result<String, AccessError> {
    let lacks = |why: String| AccessError::Lacks {
        kind: "ConfigMap",
        name: ENDPOINTS,
        why,
    };
    let mut hosts = Vec::new();
    for endpoint in endpoints
        .split(',')
        .filter(|endpoint| !endpoint.trim().is_empty())
    {
        let address = endpoint.split_once('=').map(|(_, address)| address.trim());
        let parts = address.and_then(|address| address.rsplit_once(':'));
        let Some((host, port)) = parts.filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        else {
            return Err(lacks(format!("{endpoint:?} in `data` is not NAME=ADDRESS:PORT")));
        };
        hosts.push(if port == "6789" {
            format!("[v2:{host}:3300,v1:{host}:6789]")
        } else {
            format!("[v2:{host}:{port}]")
        });
    }
    if hosts.is_empty() {
        return Err(lacks("`data` names no monitor".to_owned()));
    }
    Ok(hosts.join(","))
}

fn write(path: &Path, text: &str) -> Result<(), AccessError> {
    let failed = |source| AccessError::File {
        path: path.display().to_string(),
        source,
    };
    if let Some(folder) = path.parent() {
        secrets::make_folder(folder).map_err(failed)?;
    }
    // Whoever reads it meanwhile reads the one before, in one piece.
    let new = path.with_extension(format!("{}.new", NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_become_addresses() {
        assert_eq!(
            mon_host("a=10.0.0.1:6789,b=10.0.0.2:3300").unwrap(),
            "[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.2:3300]"
        );
        assert_eq!(mon_host("a=[fd00::1]:3300").unwrap(), "[v2:[fd00::1]:3300]");
        for bad in ["", " ", "a", "a=10.0.0.1", "a=:3300", "a=10.0.0.1:many"] {
            mon_host(bad).unwrap_err();
        }
    }
}
