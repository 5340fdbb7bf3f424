//! Which releases there are, and what a cluster consists of.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result};

use super::API_PORT;

/// A release of Ironic that is in the root, at one exact version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 26.1, the last of the series 2024.2.
    Dalmatian,
    /// 29.0, the last of the series 2025.1.
    Epoxy,
    /// 32.0, the last of the series 2025.2.
    Flamingo,
    /// 35.0, of the series 2026.1.
    Gazpacho,
    /// 36.0, between two series.
    Intermediate,
    /// 39.0, of the series 2026.2.
    Hibiscus,
}

impl Release {
    /// Those of the stories and of most cases, oldest first.
    pub const USUAL: [Self; 3] = [Self::Dalmatian, Self::Epoxy, Self::Flamingo];
    /// Those of the cases on later releases, in a root of their own.
    pub const LATER: [Self; 4] = [Self::Epoxy, Self::Gazpacho, Self::Intermediate, Self::Hibiscus];
    /// All of them, oldest first.
    pub const ALL: [Self; 6] = [
        Self::Dalmatian,
        Self::Epoxy,
        Self::Flamingo,
        Self::Gazpacho,
        Self::Intermediate,
        Self::Hibiscus,
    ];

    /// The version on PyPI.
    pub fn version(self) -> &'static str {
        match self {
            Self::Dalmatian => "26.1.6",
            Self::Epoxy => "29.0.6",
            Self::Flamingo => "32.0.1",
            Self::Gazpacho => "35.0.1",
            Self::Intermediate => "36.0.0",
            Self::Hibiscus => "39.0.0",
        }
    }

    /// The value of `pin_release_version` by which the release after it knows it. 32.0.1 does not know itself by the
    /// name of its series, so here it is the version everywhere.
    pub fn pin(self) -> &'static str {
        match self {
            Self::Dalmatian => "26.1",
            Self::Epoxy => "29.0",
            Self::Flamingo => "32.0",
            Self::Gazpacho => "35.0",
            Self::Intermediate => "36.0",
            Self::Hibiscus => "39.0",
        }
    }

    /// The newest microversion of the API in it.
    pub fn microversion(self) -> &'static str {
        match self {
            Self::Dalmatian => "1.93",
            Self::Epoxy => "1.96",
            Self::Flamingo => "1.101",
            Self::Gazpacho => "1.111",
            Self::Intermediate => "1.112",
            Self::Hibiscus => "1.115",
        }
    }

    /// The version of the object `Node` in it.
    pub fn node_version(self) -> &'static str {
        match self {
            Self::Dalmatian => "1.40",
            Self::Epoxy => "1.41",
            Self::Flamingo => "1.42",
            Self::Gazpacho | Self::Intermediate | Self::Hibiscus => "1.44",
        }
    }

    /// The exact versions of everything that is installed with it, as `pip` takes them.
    pub(super) fn requirements(self) -> &'static str {
        match self {
            Self::Dalmatian => include_str!("constraints/26.1.6.txt"),
            Self::Epoxy => include_str!("constraints/29.0.6.txt"),
            Self::Flamingo => include_str!("constraints/32.0.1.txt"),
            Self::Gazpacho => include_str!("constraints/35.0.1.txt"),
            Self::Intermediate => include_str!("constraints/36.0.0.txt"),
            Self::Hibiscus => include_str!("constraints/39.0.0.txt"),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.version().fmt(f)
    }
}

impl FromStr for Release {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL
            .into_iter()
            .find(|release| [release.version(), release.pin()].contains(&text));
        let known = Self::ALL.map(Self::version).join(", ");
        found.with_context(|| format!("no Ironic `{text}` here: there are {known}"))
    }
}

/// A service of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The first conductor, `c1`.
    Conductor1,
    /// The second conductor, `c2`.
    Conductor2,
    /// The third, `c3`, where there are two groups of them.
    Conductor3,
    /// The fourth, `c4`, where there are two groups of them.
    Conductor4,
    /// The first API, `a1`.
    Api1,
    /// The second API, `a2`.
    Api2,
}

impl Service {
    /// The conductors, those of one group side by side.
    const CONDUCTORS: [Self; 4] = [
        Self::Conductor1,
        Self::Conductor2,
        Self::Conductor3,
        Self::Conductor4,
    ];
    /// The APIs.
    pub const APIS: [Self; 2] = [Self::Api1, Self::Api2];

    /// Its name for `ironicctl` and at the balancer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conductor1 => "c1",
            Self::Conductor2 => "c2",
            Self::Conductor3 => "c3",
            Self::Conductor4 => "c4",
            Self::Api1 => "a1",
            Self::Api2 => "a2",
        }
    }

    /// Whether it is a conductor.
    pub fn is_conductor(self) -> bool {
        Self::CONDUCTORS.contains(&self)
    }

    /// The address at which it listens itself. Only the balancer asks there.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Conductor1 => "127.0.2.1",
            Self::Conductor2 => "127.0.2.2",
            Self::Conductor3 => "127.0.2.5",
            Self::Conductor4 => "127.0.2.6",
            Self::Api1 => "127.0.2.3",
            Self::Api2 => "127.0.2.4",
        }
    }

    /// The port that it listens on, and by which it is reached at the balancer. That of conductors is Ironic's own for
    /// them: with another one a conductor has the port in its name and not in that of its locks, so that up to 32.0 it
    /// never finds those again that it held when it crashed.
    pub(super) fn port(self) -> u16 {
        if self.is_conductor() { 8089 } else { API_PORT }
    }

    /// Where it answers itself, past the balancer.
    pub fn url(self) -> String {
        format!("http://{}:{}", self.address(), self.port())
    }

    /// The address at which the balancer listens for a conductor. None for an API.
    pub(super) fn registered(self) -> Option<&'static str> {
        match self {
            Self::Conductor1 => Some("127.0.1.1"),
            Self::Conductor2 => Some("127.0.1.2"),
            Self::Conductor3 => Some("127.0.1.3"),
            Self::Conductor4 => Some("127.0.1.4"),
            Self::Api1 | Self::Api2 => None,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// What its tables are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// MariaDB, as nearly everywhere.
    MariaDb,
    /// PostgreSQL.
    Postgres,
}

impl Database {
    /// Its name for `ironicctl`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::Postgres => "postgres",
        }
    }

    /// As `stagger` has it in a URL.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::MariaDb => "mysql",
            Self::Postgres => "postgres",
        }
    }
}

/// How APIs call conductors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// By JSON-RPC, at the balancer.
    Balanced,
    /// By JSON-RPC, each conductor itself; then the balancer can hold all requests: see [`super::HOLD`].
    Direct,
    /// Over RabbitMQ.
    RabbitMq,
}

/// A cluster: conductors and two APIs, behind a balancer, with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IronicSpec {
    /// The release that it begins with.
    pub release: Release,
    /// `hash_ring_reset_interval`, in seconds: for so long an API does not hear of conductors that came or went, and so
    /// long a conductor waits in its end.
    pub ring_seconds: u32,
    /// How its APIs call its conductors.
    pub calls: Calls,
    /// Whether its API wants a token of Keystone's, and is reached by TLS from outside.
    pub keystone: bool,
    /// What its tables are in.
    pub database: Database,
    /// Whether there are four conductors, two in each of the groups `rack1` and `rack2`. If not, there are two, in the group
    /// without a name.
    pub has_groups: bool,
    /// What Ironic's fake hardware takes for each part of a deployment, in seconds.
    pub deploy_seconds: u32,
    /// Which releases are in its root.
    pub releases: &'static [Release],
}

impl IronicSpec {
    /// All conductors.
    pub fn conductors(self) -> &'static [Service] {
        if self.has_groups {
            &Service::CONDUCTORS
        } else {
            &Service::CONDUCTORS[..2]
        }
    }

    /// All services, conductors first.
    pub fn services(self) -> impl Iterator<Item = Service> {
        self.conductors().iter().chain(&Service::APIS).copied()
    }

    /// The groups with a name.
    pub(super) fn groups(self) -> &'static [&'static str] {
        if self.has_groups { &["rack1", "rack2"] } else { &[] }
    }

    /// The group of a conductor; empty: that without a name.
    pub(super) fn group(self, conductor: Service) -> &'static str {
        match conductor {
            _ if !self.has_groups => "",
            Service::Conductor1 | Service::Conductor2 => "rack1",
            Service::Conductor3 | Service::Conductor4 => "rack2",
            Service::Api1 | Service::Api2 => "",
        }
    }

    /// The name under which a conductor is registered: where the APIs ask it. None for an API.
    pub fn registered(self, service: Service) -> Option<&'static str> {
        let behind = service.registered()?;
        Some(if self.calls == Calls::Balanced {
            behind
        } else {
            service.address()
        })
    }
}

impl Default for IronicSpec {
    fn default() -> Self {
        Self {
            release: Release::Epoxy,
            ring_seconds: 3,
            calls: Calls::Balanced,
            keystone: false,
            database: Database::MariaDb,
            has_groups: false,
            deploy_seconds: 0,
            releases: &Release::USUAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_known_by_version_and_by_pin() {
        for release in Release::ALL {
            assert_eq!(release.version().parse::<Release>().unwrap(), release);
            assert_eq!(release.pin().parse::<Release>().unwrap(), release);
        }
        let error = "31.0".parse::<Release>().unwrap_err().to_string();
        assert!(error.contains("no Ironic `31.0` here"), "{error}");
    }

    #[test]
    fn everything_is_installed_at_an_exact_version() {
        for release in Release::ALL {
            let lines: Vec<_> = release
                .requirements()
                .lines()
                .filter(|line| !line.starts_with('#'))
                .collect();
            assert!(
                lines.contains(&format!("ironic=={release}").as_str()),
                "{lines:?}"
            );
            assert!(lines.len() > 50, "{} packages", lines.len());
            for line in lines {
                let version = line.split_once("==").map(|(_, version)| version);
                assert!(version.is_some_and(|version| !version.is_empty()), "{line}");
            }
        }
    }
}
