//! Names from outside in commands: the name of a daemon, a host or a file is untrusted data.
//!
//! A command of the configuration may be quoted, or passed to a second shell (`ssh host '…'`, `sh -c "…"`).
//! No quoting holds at every depth, so a word that is put into a command must be *plain*: it reads the same
//! quoted, unquoted, and in a nested shell. Any other word is refused.

use serde::{Deserialize, Serialize};

use super::IdError;

/// Longer than any name of DNS, systemd or Ceph.
const LONGEST: usize = 255;

/// What speaks against putting a word into a command, if anything does.
///
/// # Errors
/// The rule that it breaks.
pub fn check_plain(word: &str) -> Result<(), &'static str> {
    let may_begin = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if word.len() > LONGEST {
        Err("it is longer than 255 bytes")
    } else if word.starts_with('-') {
        Err("it starts with a dash, as an option does")
    } else if !word.chars().next().is_none_or(may_begin) {
        Err("it starts with neither a letter nor a digit")
    } else if word
        .chars()
        .any(|c| !(may_begin(c) || matches!(c, '.' | '-' | '+' | '~' | ':' | '@')))
    {
        Err("it holds other characters than letters, digits and . - _ + ~ : @")
    } else {
        Ok(())
    }
}

/// A host, as it is reached: `node3`, `node3.example.org`, `root@10.0.0.7`, `fe80::1`. It is one plain word, and no
/// program takes it for an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl HostName {
    /// The name, checked.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        Self::try_from(text.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HostName {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        let host = text.rsplit_once('@').map_or(text.as_str(), |(_, host)| host);
        let checked = if host.is_empty() {
            Err("it is empty")
        } else {
            check_plain(&text).and_then(|()| check_plain(host))
        };
        match checked {
            Ok(()) => Ok(Self(text)),
            Err(why) => Err(IdError {
                what: "host",
                text,
                why,
            }),
        }
    }
}

impl std::str::FromStr for HostName {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::try_from(text.to_owned())
    }
}

impl From<HostName> for String {
    fn from(host: HostName) -> Self {
        host.0
    }
}

impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_field_are_plain() {
        for word in [
            "0",
            "node3.example.org",
            "cephfs.node3.abcdef",
            "rgw0_a",
            "18.2.7-1~bpo12+1",
            "stagger:000000000001:0:20261123-1:relocate-web1-to-n2",
            "",
        ] {
            assert_eq!(check_plain(word), Ok(()), "{word:?}");
        }
        for host in ["node3", "root@10.0.0.7", "fe80::1", "a_b.example.org"] {
            assert!(HostName::new(host).is_ok(), "{host:?}");
        }
    }

    #[test]
    fn what_a_shell_or_a_program_takes_apart_is_not() {
        for word in [
            "a;touch${IFS}x",
            "$(id)",
            "`id`",
            "a'b",
            "a\"b",
            "a b",
            "a\nb",
            "-oProxyCommand=id",
            "~root",
            "../x",
            "a/b",
            "a=b",
            "{host}",
            "%h",
            "a*",
            "ä",
            "a\u{0}",
            "a\\b",
            "!x",
            "a#b",
        ] {
            assert!(check_plain(word).is_err(), "{word:?} is plain");
            assert!(HostName::new(word).is_err(), "{word:?} is a host");
            assert!(serde_json::from_value::<HostName>(serde_json::json!(word)).is_err());
        }
        for host in ["", "root@", "root@-oProxyCommand", "@a", "-l"] {
            assert!(HostName::new(host).is_err(), "{host:?} is a host");
        }
    }
}
