//! Ceph's releases.

use std::fmt;

/// The releases that this program knows, with their names.
const NAMES: [(u32, &str); 9] = [
    (12, "luminous"),
    (13, "mimic"),
    (14, "nautilus"),
    (15, "octopus"),
    (16, "pacific"),
    (17, "quincy"),
    (18, "reef"),
    (19, "squid"),
    (20, "tentacle"),
];

/// The major numbers of the releases that this program knows, oldest first.
pub fn known_majors() -> impl Iterator<Item = u32> {
    NAMES.into_iter().map(|(major, _)| major)
}

/// The name of a release: 18 is `reef`.
pub fn name(major: u32) -> Option<&'static str> {
    NAMES.into_iter().find(|(m, _)| *m == major).map(|(_, name)| name)
}

/// The release of that name.
pub fn major(name: &str) -> Option<u32> {
    NAMES
        .into_iter()
        .find(|(_, n)| *n == name)
        .map(|(major, _)| major)
}

/// A version in short: `18.2.7`, or `18.2.1-262.el9cp` as vendors write it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 18: the release.
    pub major: u32,
    /// 2: stable.
    pub minor: u32,
    /// 7: the update.
    pub patch: u32,
    /// What stands behind the third number.
    pub rest: String,
}

impl Version {
    /// From three numbers with dots between, and what vendors put behind them: letters, digits and
    /// `. - _ + ~`, since it goes into the names of packages.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (major, minor, last) = (parts.next()?, parts.next()?, parts.next()?);
        let digits = last.bytes().take_while(u8::is_ascii_digit).count();
        let (patch, rest) = last.split_at(digits);
        let odd = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_' | '+' | '~');
        if rest.starts_with('.') || rest.contains(odd) {
            return None;
        }
        let number = |part: &str| match part {
            part if part.bytes().all(|b| b.is_ascii_digit()) => part.parse().ok(),
            _ => None,
        };
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
            patch: number(patch)?,
            rest: rest.to_owned(),
        })
    }

    /// From Ceph's long form: `ceph version 18.2.7 (6b0e98…) reef (stable)`.
    pub fn parse_long(text: &str) -> Option<Self> {
        Self::parse(text.strip_prefix("ceph version ")?.split(' ').next()?)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            major,
            minor,
            patch,
            rest,
        } = self;
        write!(f, "{major}.{minor}.{patch}{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_read_and_print_the_same() {
        for text in ["18.2.7", "18.2.1-262.el9cp", "20.3.0-1234-gabcdef"] {
            assert_eq!(Version::parse(text).unwrap().to_string(), text);
        }
        for bad in [
            "",
            "18",
            "18.2",
            "18.2.",
            "reef",
            "18.2.7.1",
            "-1.2.3",
            "18.2.7 x",
            "+18.2.7",
            "18.2.7;id",
            "18.2.7$(id)",
            "18.2.7é",
        ] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
        let long = "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)";
        assert_eq!(Version::parse_long(long).unwrap().to_string(), "16.2.15");
    }
}
