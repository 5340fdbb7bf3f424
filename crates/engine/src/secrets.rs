//! Secrets: read from private files, and files that only their owner may read.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// A shorter one would stand in half of all words.
const SHORTEST: usize = 6;

/// The secrets that this process was given: they are taken out of everything that it writes down or shows.
static GIVEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The secret in the first line of a file.
///
/// # Errors
/// Why the file is refused.
pub fn read(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let failed = |error: io::Error| format!("{shown} cannot be read: {error}");
    // Of the file that is then read, not of one that stood there before.
    let opened = File::open(file).map_err(failed)?;
    let about = opened.metadata().map_err(failed)?;
    if about.permissions().mode() & 0o007 != 0 {
        return Err(format!(
            "everybody on this machine may read {shown}: `chmod o-rwx {shown}`"
        ));
    }
    let text = io::read_to_string(opened).map_err(failed)?;
    let secret = text.lines().next().unwrap_or_default();
    if secret.is_empty() {
        return Err(format!("{shown} has no password in its first line"));
    }
    remember(secret);
    Ok(secret.to_owned())
}

/// Whether a URL holds a password; a `{password}` that is filled in later is none.
pub fn in_url(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (user, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let in_user = user
        .split_once(':')
        .is_some_and(|(_, password)| password != "{password}");
    in_user
        || [user, rest]
            .iter()
            .any(|part| part.contains("password=") || part.contains("passwd="))
}

/// From now on this is redacted wherever it would be shown.
pub fn remember(secret: &str) {
    if secret.len() >= SHORTEST {
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        given.insert(secret.to_owned());
        given.insert(utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string());
    }
}

/// The text without the secrets that this process was given.
pub(crate) fn redact_given(text: &str, instead: &str) -> String {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    given
        .iter()
        .rev()
        .filter(|secret| text.contains(secret.as_str()))
        .fold(text.to_owned(), |text, secret| text.replace(secret, instead))
}

/// Makes a folder that only its owner may look into, and those above it that are not there.
///
/// # Errors
/// It cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a file for writing that only its owner may read; what stands in it goes.
///
/// # Errors
/// It cannot be made, or is another's.
pub fn create(file: &Path) -> io::Result<File> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    // It may have been there before.
    opened.set_permissions(Permissions::from_mode(0o600))?;
    Ok(opened)
}

/// Ensures that a private file exists, empty if it is new, readable by its owner only.
///
/// # Errors
/// It cannot be created, or belongs to another user.
pub fn ensure_private_file(file: &Path) -> io::Result<()> {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(file)?;
    if opened.metadata()?.permissions().mode() & 0o077 != 0 {
        opened.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Writes a file that only its owner may read.
///
/// # Errors
/// As [`create`].
pub fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    create(file)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_is_its_owner_s() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        make_folder(&inner).unwrap();
        assert_eq!((mode(&inner), mode(&folder.path().join("a"))), (0o700, 0o700));
        let file = inner.join("f");
        std::fs::write(&file, "before").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        write(&file, b"x").unwrap();
        assert_eq!(mode(&file), 0o600);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        for own in [&file, &inner.join("new")] {
            ensure_private_file(own).unwrap();
            assert_eq!(mode(own), 0o600);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
    }

    #[test]
    fn a_password_in_a_url_is_seen() {
        for (url, holds) in [
            ("mysql://me:x@db/a", true),
            ("mysql://me:{password}@db/a", false),
            ("mysql://me@db/a", false),
            ("https://h:6385/v1", false),
            ("postgres://db/a?user=b&password=x", true),
            ("sqlite:///a.db?mode=rwc", false),
        ] {
            assert_eq!(in_url(url), holds, "{url}");
        }
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        assert!(read(&file).unwrap_err().contains("cannot be read"));
        for (may, refused) in [(0o644, true), (0o602, true), (0o640, false), (0o600, false)] {
            std::fs::write(&file, "Tr0ub4dor-and-3\nmore\n").unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(may)).unwrap();
            match read(&file) {
                Ok(secret) => assert!(!refused && secret == "Tr0ub4dor-and-3", "{may:o}"),
                Err(why) => assert!(refused && why.contains("chmod o-rwx"), "{may:o}: {why}"),
            }
        }
        std::fs::write(&file, "\n").unwrap();
        assert!(read(&file).unwrap_err().contains("no password in its first line"));
        let told = crate::redact::redact("said Tr0ub4dor-and-3 and Tr0ub4dor%2Dand%2D3");
        assert_eq!(told, "said (removed) and (removed)");
    }
}
