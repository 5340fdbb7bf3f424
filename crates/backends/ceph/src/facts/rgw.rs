//! The object gateways, and the sizes in `status`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ParseError, from_json, parse};

/// What is taken from `status`: it carries the map of services, in which gateways enrol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CephStatus {
    /// How many placement groups there are, as far as the manager knows.
    pub placement_groups: u64,
    /// The gateways, by name.
    pub gateways: Vec<Gateway>,
    /// Daemons that have enrolled and are neither gateways nor in a map of their own.
    pub others: Vec<OtherDaemon>,
}

/// An object gateway. One that is stopped leaves the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gateway {
    /// Its name; with `@host` behind it where two hosts have one of the same name.
    pub name: String,
    /// The number under which it enrolled; a later start has a higher one.
    pub gid: u64,
    /// `18.2.7`.
    pub version: Option<String>,
    /// The host that it runs on.
    pub host: Option<String>,
    /// The zone that it serves, with zone group and realm where it tells them: `gold/eu/eu-west`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The service that it is one of, as cephadm names its daemons: `SERVICE.HOST.RANDOM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

impl Gateway {
    /// What those have in common that stand in for each other: clients of a zone or a service are not served by
    /// another's gateways.
    pub fn stands_in_for(&self) -> (Option<&str>, Option<&str>) {
        (self.zone.as_deref(), self.service.as_deref())
    }
}

/// A daemon of which only the map of services tells.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OtherDaemon {
    /// Its service: `rbd-mirror`.
    pub kind: String,
    /// `18.2.7`, if it tells.
    pub version: Option<String>,
}

#[derive(Deserialize)]
struct RawStatus {
    #[serde(default)]
    pgmap: RawPgs,
    #[serde(default)]
    servicemap: RawServices,
}

#[derive(Deserialize, Default)]
struct RawPgs {
    #[serde(default)]
    num_pgs: u64,
}

#[derive(Deserialize, Default)]
struct RawServices {
    #[serde(default)]
    services: BTreeMap<String, RawService>,
}

#[derive(Deserialize)]
struct RawService {
    /// Among the daemons stands a text called `summary`.
    #[serde(default)]
    daemons: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct RawDaemon {
    #[serde(default)]
    gid: u64,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

impl CephStatus {
    /// Reads `status`.
    ///
    /// # Errors
    /// No JSON, not that shape, or a name that cannot be one.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw: RawStatus = from_json(bytes, origin)?;
        let mut gateways = Vec::new();
        let enrolled = raw.servicemap.services.get("rgw").map(|service| &service.daemons);
        for (key, daemon) in enrolled
            .into_iter()
            .flatten()
            .filter(|(_, daemon)| daemon.is_object())
        {
            let daemon = RawDaemon::deserialize(daemon).map_err(|error| ParseError {
                origin: origin.to_owned(),
                source: error.into(),
            })?;
            let text = |name: &str| {
                daemon
                    .metadata
                    .get(name)
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            };
            // Since release 16 they enrol under a number and tell their name beside it.
            let name = text("id").unwrap_or_else(|| key.clone());
            parse::name(&name, origin)?;
            let zone: Vec<String> = ["realm_name", "zonegroup_name", "zone_name"]
                .into_iter()
                .filter_map(|name| text(name).filter(|name| !name.is_empty()))
                .collect();
            let host = text("hostname");
            gateways.push(Gateway {
                service: service_of(&name, host.as_deref()),
                name,
                gid: daemon.gid,
                version: text("ceph_version_short"),
                host,
                zone: (!zone.is_empty()).then(|| zone.join("/")),
            });
        }
        Ok(Self {
            placement_groups: raw.pgmap.num_pgs,
            gateways: distinct(gateways),
            others: others(&raw.servicemap),
        })
    }
}

/// The service of a gateway that cephadm has named: `SERVICE.HOST.RANDOM`, where a service may have dots in its name
/// and hosts have none in theirs. `None`: it is named otherwise, and nobody can tell.
fn service_of(name: &str, host: Option<&str>) -> Option<String> {
    let host = host?.split('.').next()?;
    let mut parts = name.rsplitn(3, '.');
    let (random, named, service) = (parts.next()?, parts.next()?, parts.next()?);
    (named == host && !random.is_empty() && !service.is_empty()).then(|| service.to_owned())
}

/// Services of which the maps tell otherwise.
const IN_MAPS: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];

fn others(map: &RawServices) -> Vec<OtherDaemon> {
    let services = map
        .services
        .iter()
        .filter(|(kind, _)| !IN_MAPS.contains(&kind.as_str()));
    let mut others: Vec<OtherDaemon> = services
        .flat_map(|(kind, service)| {
            let daemons = service.daemons.values().filter(|daemon| daemon.is_object());
            daemons.map(|daemon| OtherDaemon {
                kind: kind.clone(),
                version: daemon["metadata"]["ceph_version_short"]
                    .as_str()
                    .map(str::to_owned),
            })
        })
        .collect();
    others.sort();
    others
}

/// One entry a gateway: the latest of those of one name on one host, named by host too where two hosts
/// have one of that name.
fn distinct(mut gateways: Vec<Gateway>) -> Vec<Gateway> {
    gateways.sort_by(|a, b| (&a.name, &a.host, b.gid).cmp(&(&b.name, &b.host, a.gid)));
    gateways.dedup_by(|later, earlier| later.name == earlier.name && later.host == earlier.host);
    let names: Vec<String> = gateways.iter().map(|gateway| gateway.name.clone()).collect();
    for gateway in &mut gateways {
        if names.iter().filter(|name| **name == gateway.name).count() > 1
            && let Some(host) = &gateway.host
        {
            gateway.name = format!("{}@{host}", gateway.name);
        }
    }
    gateways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_one_whatever_number_it_enrolled_under() {
        let status = serde_json::json!({ "servicemap": { "services": { "rgw": { "daemons": {
            "summary": "",
            "4301": { "gid": 4301, "metadata": { "id": "a", "hostname": "h1", "ceph_version_short": "16.2.15" } },
            "4377": { "gid": 4377, "metadata": { "id": "a", "hostname": "h1", "ceph_version_short": "18.2.7" } },
            "4400": { "gid": 4400, "metadata": { "id": "a", "hostname": "h2" } },
            "4500": { "gid": 4500, "metadata": { "id": "b", "hostname": "h2" } },
        } } } } });
        let read = CephStatus::read(status.to_string().as_bytes(), "status").unwrap();
        let seen: Vec<_> = read.gateways.iter().map(|g| (g.name.as_str(), g.gid)).collect();
        assert_eq!(seen, [("a@h1", 4377), ("a@h2", 4400), ("b", 4500)]);
        assert_eq!(read.gateways[0].version.as_deref(), Some("18.2.7"));
    }

    #[test]
    fn a_gateway_tells_its_zone_and_cephadm_its_service() {
        let status = serde_json::json!({ "servicemap": { "services": {
            "rgw": { "daemons": {
                "summary": "",
                "4301": { "gid": 4301, "metadata": { "id": "s3.eu.h1.abcdef", "hostname": "h1.example.org",
                    "realm_name": "gold", "zonegroup_name": "eu", "zone_name": "west" } },
                "4400": { "gid": 4400, "metadata": { "id": "b", "hostname": "h2", "zone_name": "default" } },
            } },
            "rbd-mirror": { "daemons": {
                "summary": "",
                "4500": { "gid": 4500, "metadata": { "id": "m", "ceph_version_short": "18.2.7" } },
            } },
            "nfs": { "daemons": { "a": { "gid": 1, "metadata": {} } } },
            "osd": { "daemons": { "summary": "", "3": { "gid": 0, "metadata": {} } } },
        } } });
        let read = CephStatus::read(status.to_string().as_bytes(), "status").unwrap();
        let [b, s3] = &read.gateways[..] else {
            panic!("{:?}", read.gateways)
        };
        assert_eq!(b.stands_in_for(), (Some("default"), None));
        assert_eq!(s3.stands_in_for(), (Some("gold/eu/west"), Some("s3.eu")));
        let others: Vec<_> = read
            .others
            .iter()
            .map(|o| (o.kind.as_str(), o.version.as_deref()))
            .collect();
        assert_eq!(others, [("nfs", None), ("rbd-mirror", Some("18.2.7"))]);
    }
}
