//! Keys of cephx. They are made here, all at once, and the mons start with them: no daemon has to be
//! let in one by one.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::spec::{CephSpec, Daemon, Kind};

/// The name under which the load's clients log in.
pub(crate) const LOAD_CLIENT: &str = "client.load";

/// Writes `keyring/<name>` for everyone, and `keyring/mons` with all keys and what each may do.
pub(super) fn write_keyrings(dir: &Path, spec: &CephSpec) -> Result<()> {
    write_keys(&dir.join("keyring"), &spec.all_daemons())
}

/// Writes into `folder` a keyring for each of `daemons` and each client, and `mons` with all of them.
pub(crate) fn write_keys(folder: &Path, daemons: &[Daemon]) -> Result<()> {
    let mut all = String::new();
    let mut add = |name: &str, caps: &[(&str, &str)]| -> Result<()> {
        let own = format!("[{name}]\n\tkey = {}\n", key()?);
        let path = folder.join(name);
        fs::write(&path, &own).with_context(|| format!("writing {}", path.display()))?;
        all += &own;
        for (service, may) in caps {
            writeln!(all, "\tcaps {service} = \"{may}\"").context("formatting a keyring")?;
        }
        Ok(())
    };
    add("mon.", &[("mon", "allow *")])?;
    add(
        "client.admin",
        &[
            ("mon", "allow *"),
            ("mgr", "allow *"),
            ("osd", "allow *"),
            ("mds", "allow *"),
        ],
    )?;
    add(
        LOAD_CLIENT,
        &[("mon", "allow r"), ("osd", "allow rwx"), ("mds", "allow rw")],
    )?;
    for daemon in daemons {
        if let Some(caps) = caps(daemon) {
            add(&daemon.ceph_name(), caps)?;
        }
    }
    let path = folder.join("mons");
    fs::write(&path, all).with_context(|| format!("writing {}", path.display()))
}

/// What a daemon may do; mons share one key.
fn caps(daemon: &Daemon) -> Option<&'static [(&'static str, &'static str)]> {
    match daemon.kind {
        Kind::Mon => None,
        Kind::Mgr => Some(&[
            ("mon", "allow profile mgr"),
            ("osd", "allow *"),
            ("mds", "allow *"),
        ]),
        Kind::Osd => Some(&[
            ("mon", "allow profile osd"),
            ("mgr", "allow profile osd"),
            ("osd", "allow *"),
        ]),
        Kind::Mds => Some(&[
            ("mon", "allow profile mds"),
            ("mgr", "allow profile mds"),
            ("osd", "allow rwx"),
            ("mds", "allow *"),
        ]),
        Kind::Rgw => Some(&[("mon", "allow rw"), ("mgr", "allow rw"), ("osd", "allow rwx")]),
    }
}

/// A new key: type 1 (AES), the time, the length, 16 random bytes; in base64.
fn key() -> Result<String> {
    let mut secret = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut secret))
        .context("reading /dev/urandom")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut bytes = vec![1, 0];
    bytes.extend((now.as_secs() as u32).to_le_bytes());
    bytes.extend(now.subsec_nanos().to_le_bytes());
    bytes.extend([16, 0]);
    bytes.extend(secret);
    Ok(base64(&bytes))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= chunk.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_fills_up() {
        assert_eq!(base64(b"Ceph"), "Q2VwaA==");
        assert_eq!(base64(b"stagger!"), "c3RhZ2dlciE=");
        assert_eq!(base64(b"osd"), "b3Nk");
    }
}
