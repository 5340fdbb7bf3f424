//! Versions of objects, of the API and of the RPC between services.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `major.minor`, compared by number: 1.9 comes before 1.14.
///
/// Within a major, a higher minor reads everything that a lower one wrote. Across majors nothing is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The part before the dot.
    pub const fn major(self) -> u32 {
        self.major
    }

    /// The part after the dot.
    pub const fn minor(self) -> u32 {
        self.minor
    }

    /// Whether one who knows this version understands what `other` is: the same major, and no newer.
    pub const fn understands(self, other: Self) -> bool {
        self.major == other.major && other.minor <= self.minor
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor } = self;
        write!(f, "{major}.{minor}")
    }
}

/// A text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a version: two numbers with a dot between them, as 1.14")]
pub struct VersionError {
    text: String,
}

/// A number as it is printed again: digits only, no zero in front.
pub(crate) fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

impl FromStr for Version {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let parsed = || {
            let (major, minor) = text.split_once('.')?;
            Some(Self::new(number(major)?, number(minor)?))
        };
        parsed().ok_or_else(|| VersionError {
            text: text.to_owned(),
        })
    }
}

const DIGITS: &[u8; 10] = b"0123456789";

// By hand: a version stands in every message, and needs no memory of its own to be read.
impl Serialize for Version {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // From behind, as digits come: to format it takes longer than the rest of an envelope.
        // Two numbers of ten digits, a dot before each.
        let mut text = [b'.'; 22];
        let mut at = text.len();
        for number in [self.minor, self.major] {
            let mut left = number;
            loop {
                at -= 1;
                text[at] = DIGITS[(left % 10) as usize];
                left /= 10;
                if left == 0 {
                    break;
                }
            }
            at -= 1;
        }
        match std::str::from_utf8(&text[at + 1..]) {
            Ok(text) => to.serialize_str(text),
            Err(_) => to.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Version;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a version as text, as \"1.14\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Version, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_by_number() {
        let mut versions: Vec<Version> = ["1.14", "1.9", "2.0", "1.2"]
            .map(|text| text.parse().unwrap())
            .into();
        versions.sort();
        let texts: Vec<String> = versions.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["1.2", "1.9", "1.14", "2.0"]);
    }

    #[test]
    fn only_what_is_printed_the_same_is_a_version() {
        for text in [
            "",
            "1",
            "1.",
            ".1",
            "1.2.3",
            "1.02",
            "+1.2",
            "1.-2",
            "1. 2",
            "1.4294967296",
            "v1.2",
        ] {
            let error = text.parse::<Version>().unwrap_err();
            assert_eq!(error.text, text);
        }
        assert_eq!("1.0".parse::<Version>().unwrap().to_string(), "1.0");
    }

    #[test]
    fn in_json_it_is_the_text_that_is_shown() {
        for (major, minor) in [(0, 0), (1, 0), (1, 14), (10, 9), (u32::MAX, u32::MAX)] {
            let version = Version::new(major, minor);
            let text = serde_json::to_string(&version).unwrap();
            assert_eq!(text, format!("\"{version}\""));
            assert_eq!(serde_json::from_str::<Version>(&text).unwrap(), version);
        }
    }

    #[test]
    fn a_version_understands_its_major_up_to_itself() {
        let at = Version::new(1, 14);
        assert!(at.understands(Version::new(1, 14)));
        assert!(at.understands(Version::new(1, 9)));
        assert!(!at.understands(Version::new(1, 15)));
        assert!(!at.understands(Version::new(0, 3)));
        assert!(!at.understands(Version::new(2, 0)));
    }
}
