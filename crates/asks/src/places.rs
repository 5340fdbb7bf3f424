//! Which units a host is, and which a claim takes down.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{Ix, Snapshot, UnitId};
use stagger_engine::cluster::Executor;

use crate::ask::NewAsk;
use crate::claim::Claim;

/// The level of failure domains that names hosts.
const HOST: &str = "host";

/// Where the units of a snapshot are.
#[derive(Debug, Clone, Default)]
pub struct HostPlaces {
    /// Of each unit, in the snapshot's order, its host.
    host_of: Vec<Option<String>>,
    /// Whether the unit is its host.
    is_host: Vec<bool>,
    of_host: BTreeMap<String, Vec<Ix>>,
}

/// A host that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} {name}{}", nearest.as_ref().map(|near| format!("; the nearest is {near}")).unwrap_or_default())]
pub struct UnknownPlace {
    /// Host or unit.
    pub what: &'static str,
    /// As it was asked for.
    pub name: String,
    /// The one that is most like it.
    pub nearest: Option<String>,
}

impl HostPlaces {
    /// Of this snapshot: by the backend's word, else by the failure domains.
    pub fn of(snapshot: &Snapshot, backend: &(impl Executor + ?Sized)) -> Self {
        let mut places = Self::default();
        for (at, unit) in (0_u32..).zip(snapshot.units()) {
            let by_domain = unit.domains.get(HOST).cloned();
            let host = backend.host_of(&unit.id).or(by_domain);
            let is_host = host.as_deref().is_some_and(|host| {
                unit.id.as_str() == host || unit.id.as_str().strip_prefix("host.") == Some(host)
            });
            if let Some(host) = &host {
                places.of_host.entry(host.clone()).or_default().push(Ix(at));
            }
            places.host_of.push(host);
            places.is_host.push(is_host);
        }
        places
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.of_host.keys().map(String::as_str)
    }

    /// The host that a name means: its own, or the same without its domain where only one is like that.
    pub fn host_named(&self, name: &str) -> Option<&str> {
        if let Some((host, _)) = self.of_host.get_key_value(name) {
            return Some(host);
        }
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let mut like = self
            .hosts()
            .filter(|host| short(host) == short(name) && host.contains('.') != name.contains('.'));
        match (like.next(), like.next()) {
            (Some(host), None) => Some(host),
            (Some(_) | None, _) => None,
        }
    }

    /// What an ask takes down.
    ///
    /// # Errors
    /// A host or unit that is not there.
    pub fn claim_of(
        &self,
        wanted: &NewAsk,
        snapshot: &Snapshot,
        called: &BTreeMap<String, String>,
    ) -> Result<Claim, UnknownPlace> {
        let mut claim = Claim::default();
        for name in &wanted.hosts {
            let meant = called.get(name).unwrap_or(name);
            let host = self.host_named(meant).ok_or_else(|| UnknownPlace {
                what: "host",
                name: meant.clone(),
                nearest: nearest(meant, self.hosts()),
            })?;
            claim.hosts.insert(host.to_owned());
        }
        for unit in &wanted.units {
            let at = snapshot.find(unit).ok_or_else(|| UnknownPlace {
                what: "unit",
                name: unit.to_string(),
                nearest: nearest(
                    unit.as_str(),
                    snapshot.units().iter().map(|unit| unit.id.as_str()),
                ),
            })?;
            claim.touched.extend(self.host_of[at.at()].clone());
            self.add(&mut claim, unit, at);
        }
        Ok(claim)
    }

    /// What taking these units down takes down.
    pub fn claim_of_units(&self, units: &[UnitId], snapshot: &Snapshot) -> Claim {
        let mut claim = Claim::default();
        for unit in units {
            match snapshot.find(unit) {
                Some(at) => self.add(&mut claim, unit, at),
                None => {
                    claim.units.insert(unit.clone());
                }
            }
        }
        claim
    }

    fn add(&self, claim: &mut Claim, unit: &UnitId, at: Ix) {
        claim.units.insert(unit.clone());
        if let Some(host) = &self.host_of[at.at()] {
            if self.is_host[at.at()] {
                claim.hosts.insert(host.clone());
            } else {
                claim.touched.insert(host.clone());
            }
        }
    }

    /// The units of this snapshot that a claim takes down, in its order. A unit that is a host is down if any part of it is.
    pub fn units_of(&self, claim: &Claim, snapshot: &Snapshot) -> Vec<Ix> {
        let mut found: BTreeSet<u32> = BTreeSet::new();
        for host in &claim.hosts {
            found.extend(self.of_host.get(host).into_iter().flatten().map(|at| at.0));
        }
        found.extend(
            claim
                .units
                .iter()
                .filter_map(|unit| snapshot.find(unit))
                .map(|at| at.0),
        );
        for host in &claim.touched {
            let units = self.of_host.get(host).into_iter().flatten();
            found.extend(units.filter(|at| self.is_host[at.at()]).map(|at| at.0));
        }
        found.into_iter().map(Ix).collect()
    }
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let by_likeness =
        |a: &&str, b: &&str| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b));
    known.max_by(by_likeness).map(str::to_owned)
}
