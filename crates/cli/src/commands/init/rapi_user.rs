//! The RAPI user, on a node: the existing one, or a new one.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use stagger_engine::supervisor::random_hex;

use crate::error::CliError;

/// What a new user is called.
pub(super) const OURS: &str = "stagger";

/// A user of RAPI who may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RapiUser {
    /// What it is called.
    pub(super) name: String,
    /// Its password; `None`: Ganeti has only a digest of it.
    pub(super) password: Option<String>,
}

/// The users with `write` in ganeti-rapi's file: a name, a password or its digest, and options in each line.
fn writers(users: &str) -> Vec<RapiUser> {
    let lines = users.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, password) = (words.next()?, words.next()?);
            let mut options = words.flat_map(|word| word.split(','));
            let clear = match password.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                None => Some(password),
                Some((scheme, password)) => scheme.eq_ignore_ascii_case("cleartext").then_some(password),
            };
            options.any(|option| option == "write").then(|| RapiUser {
                name: name.to_owned(),
                password: clear.map(str::to_owned),
            })
        })
        .collect()
}

/// Who is asked: one whose password can be read there, if there is one.
pub(super) fn chosen(users: &str) -> Option<RapiUser> {
    let mut writers = writers(users);
    let readable = writers.iter().position(|writer| writer.password.is_some());
    (!writers.is_empty()).then(|| writers.swap_remove(readable.unwrap_or(0)))
}

/// What was done for the password.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Password {
    /// The file was there, and is left as it is.
    Kept,
    /// It was written, for a user that Ganeti has.
    Written,
    /// It was written, for a user that was added to Ganeti's file.
    Added,
    /// It is missing: Ganeti has only a digest, or no user who may write.
    Missing,
}

/// Sees to it that the file with the password is there: from Ganeti's own file, or, if that was asked for, by a new user in it.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn ensure(users: &Path, file: &Path, make_user: bool) -> Result<Password, CliError> {
    if file.exists() {
        return Ok(Password::Kept);
    }
    let wrong =
        |path: &Path, error: &std::io::Error| CliError::usage(format!("write {}: {error}", path.display()));
    let text = match std::fs::read_to_string(users) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        // Who is not root there is told what is missing.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !make_user => {
            return Ok(Password::Missing);
        }
        Err(error) => return Err(CliError::usage(format!("read {}: {error}", users.display()))),
    };
    if let Some(password) = chosen(&text).and_then(|writer| writer.password) {
        write_secret(file, &password).map_err(|error| wrong(file, &error))?;
        return Ok(Password::Written);
    }
    if !make_user {
        return Ok(Password::Missing);
    }
    let is_ours = |line: &str| line.split_whitespace().next() == Some(OURS);
    if text.lines().any(is_ours) {
        return Err(CliError::usage(format!(
            "{} has a user {OURS}, and its password is not to be read there",
            users.display()
        ))
        .hint(format!("put it into {}, with `chmod 600`", file.display())));
    }
    let password = random_hex(16);
    // First what can be done again: a user whose password nobody knows would stay behind.
    write_secret(file, &password).map_err(|error| wrong(file, &error))?;
    let newline = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let mut open = std::fs::OpenOptions::new();
    open.append(true)
        .create(true)
        .mode(0o640)
        .open(users)
        .and_then(|mut users| writeln!(users, "{newline}{OURS} {password} write"))
        .map_err(|error| wrong(users, &error))?;
    Ok(Password::Added)
}

/// A file that its owner alone may read.
fn write_secret(file: &Path, secret: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    made.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    writeln!(made, "{secret}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(users: &str) -> Vec<String> {
        writers(users).into_iter().map(|writer| writer.name).collect()
    }

    #[test]
    fn who_may_write_is_read_from_the_file_of_users() {
        let users = "# name password options\nlooker geheim\nmon {HA1}0123 read\nstagger x write\nboth {cleartext}y read,write\n\
                     third {HA1}0123 write\n";
        assert_eq!(names(users), ["stagger", "both", "third"]);
        let passwords: Vec<Option<String>> =
            writers(users).into_iter().map(|writer| writer.password).collect();
        assert_eq!(passwords, [Some("x".to_owned()), Some("y".to_owned()), None]);
        assert_eq!(chosen("third {HA1}0 write\nboth y write\n").unwrap().name, "both");
        assert_eq!(chosen("third {HA1}0 write\n").unwrap().name, "third");
        assert_eq!(chosen("mon x read\n"), None);
    }

    #[test]
    fn the_password_of_ganetis_own_user_is_kept_where_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let (users, file) = (folder.path().join("users"), folder.path().join("etc/password"));
        std::fs::write(&users, "admin geheim write\n").unwrap();
        assert_eq!(ensure(&users, &file, true).unwrap(), Password::Written);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "geheim\n");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        std::fs::write(&users, "admin other write\n").unwrap();
        assert_eq!(ensure(&users, &file, true).unwrap(), Password::Kept);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "geheim\n");
    }

    #[test]
    fn a_user_is_added_only_if_that_was_asked_for_and_none_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let (users, file) = (folder.path().join("users"), folder.path().join("password"));
        std::fs::write(&users, "looker geheim").unwrap();
        assert_eq!(ensure(&users, &file, false).unwrap(), Password::Missing);
        assert!(!file.exists());
        assert_eq!(ensure(&users, &file, true).unwrap(), Password::Added);
        let password = std::fs::read_to_string(&file).unwrap();
        let password = password.trim();
        assert_eq!(password.len(), 32, "{password}");
        let text = std::fs::read_to_string(&users).unwrap();
        assert_eq!(text, format!("looker geheim\n{OURS} {password} write\n"));
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&users, format!("{OURS} {{HA1}}0123 write\n")).unwrap();
        let refused = ensure(&users, &file, true).unwrap_err();
        assert!(
            refused.text().contains("has a user stagger"),
            "{}",
            refused.text()
        );
    }
}
