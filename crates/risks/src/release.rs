//! Releases and ranges of them.

use std::fmt;

use semver::{Version, VersionReq};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

/// The three numbers of a release: of `18.2.1-262.el9cp` and of `v18.2.1` they are 18.2.1, of `2025.1` 2025.1.0. Updates of vendors behind them do
/// not count: ranges of upstream's releases say nothing of these. `None`: it does not begin with two numbers.
pub fn release(text: &str) -> Option<Version> {
    let digits = |part: &str| -> Option<u64> {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    let text = text.trim();
    let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
    let major = parts.next()?.parse().ok()?;
    let minor = digits(parts.next()?)?;
    let patch = parts.next().map_or(Some(0), digits)?;
    Some(Version::new(major, minor, patch))
}

/// Ranges of releases of which one is enough: `"19.2.1"`, `">=18.2.5, <18.2.7"`, or a list of such. A release that stands alone is
/// that one, and `*` is any. With a comparison: `>`, `>=`, `<`, `<=`, `=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    /// As it was written.
    text: String,
    release: VersionReq,
}

impl Ranges {
    /// Any release.
    pub fn any() -> Self {
        Self(vec![Range {
            text: "*".to_owned(),
            release: VersionReq::STAR,
        }])
    }

    /// Whether the release is in one of them.
    pub fn contain(&self, release: &Version) -> bool {
        self.0.iter().any(|range| range.release.matches(release))
    }

    /// Whether a release in one of them is later than that one.
    pub(crate) fn include_later_than(&self, release: &Version) -> bool {
        self.0.iter().any(|range| {
            // A range begins or ends at a release that it names, or beside it; or it has no end.
            let named =
                range.release.comparators.iter().map(|bound| {
                    Version::new(bound.major, bound.minor.unwrap_or(0), bound.patch.unwrap_or(0))
                });
            let beside = named.flat_map(|at| {
                let before = Version::new(at.major, at.minor, at.patch.saturating_sub(1));
                let after = Version::new(at.major, at.minor, at.patch + 1);
                [before, at, after]
            });
            let next = Version::new(release.major, release.minor, release.patch + 1);
            let last = Version::new(u64::MAX, 0, 0);
            beside
                .chain([next, last])
                .any(|at| at > *release && range.release.matches(&at))
        })
    }

    fn parse(texts: Vec<String>) -> Result<Self, String> {
        if texts.is_empty() {
            return Err("an empty list is no range of releases: \"*\" is any".to_owned());
        }
        texts
            .into_iter()
            .map(Range::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Range {
    fn parse(text: String) -> Result<Self, String> {
        let wrong = |why: &dyn fmt::Display| {
            format!(
                "{text:?} is no range of releases ({why}): write one like \">=18.2.5, <18.2.7\", \"19.2.1\" or \"*\""
            )
        };
        if text.contains(['^', '~']) {
            return Err(wrong(&"neither ^ nor ~ is taken"));
        }
        // Alone, a release is that one, and not what is compatible with it.
        let alone = text.trim().starts_with(|c: char| c.is_ascii_digit());
        let read = if alone {
            format!("={}", text.trim())
        } else {
            text.clone()
        };
        match VersionReq::parse(&read) {
            Ok(release) => Ok(Self { text, release }),
            Err(error) => Err(wrong(&error)),
        }
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.0.iter().map(|range| range.text.as_str()).collect();
        f.write_str(&texts.join(" or "))
    }
}

impl Serialize for Ranges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ranges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a range of releases, or a list of ranges")]
        enum Written {
            One(String),
            Several(Vec<String>),
        }
        let texts = match Written::deserialize(deserializer)? {
            Written::One(text) => vec![text],
            Written::Several(texts) => texts,
        };
        Self::parse(texts).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Result<Ranges, String> {
        Ranges::parse(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn what_vendors_write_behind_a_release_does_not_count() {
        assert_eq!(release("v18.2.1"), release("18.2.1"));
        for (text, read) in [
            ("18.2.7", Some((18, 2, 7))),
            ("18.2.1-262.el9cp", Some((18, 2, 1))),
            ("19.2.3+snapcf306793a4", Some((19, 2, 3))),
            ("2025.1", Some((2025, 1, 0))),
            ("29.0.6", Some((29, 0, 6))),
            ("18", None),
            ("reef", None),
            ("", None),
        ] {
            assert_eq!(
                release(text),
                read.map(|(a, b, c)| Version::new(a, b, c)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_release_alone_is_that_one() {
        let contain = |texts: &[&str], text: &str| ranges(texts).unwrap().contain(&release(text).unwrap());
        assert!(contain(&["19.2.1"], "19.2.1"));
        assert!(!contain(&["19.2.1"], "19.2.2"));
        assert!(contain(&[">=18.2.5, <18.2.7"], "18.2.6"));
        assert!(!contain(&[">=18.2.5, <18.2.7"], "18.2.7"));
        assert!(contain(&["<16.0.0", "17.2.8"], "17.2.8"));
        assert!(contain(&["*"], "1.0.0"));
        assert!(Ranges::any().contain(&Version::new(0, 0, 1)));
    }

    #[test]
    fn a_range_reaches_beyond_what_is_below_its_last_release() {
        let reach =
            |texts: &[&str], text: &str| ranges(texts).unwrap().include_later_than(&release(text).unwrap());
        assert!(reach(&["17.2.8"], "17.2.7"));
        assert!(!reach(&["17.2.8"], "17.2.8"));
        assert!(reach(&[">=18.2.5, <18.2.7"], "18.2.5"));
        assert!(!reach(&[">=18.2.5, <18.2.7"], "18.2.6"));
        assert!(reach(&[">=19.2.4"], "20.2.4"));
        assert!(reach(&["*"], "20.2.4"));
        assert!(reach(&["<20.0.0"], "19.9.9"), "19.9.10");
        assert!(!reach(&["<20.0.0"], "20.0.0"));
    }

    #[test]
    fn what_is_no_range_is_refused_with_one_that_is() {
        for bad in [
            &["reef"][..],
            &[],
            &["^18.2.5"],
            &["~18"],
            &[">= "],
            &["18.2.5 to 18.2.7"],
        ] {
            let why = ranges(bad).unwrap_err();
            assert!(why.contains("no range"), "{bad:?}: {why}");
        }
    }
}
