//! The release of each service, as `stagger versions` shows it.

use std::collections::BTreeMap;

use serde::Serialize;
use stagger_core::model::UnitState;
use stagger_versioned::Version;

use crate::config::{IronicConfig, ServiceRole};
use crate::facts::IronicFacts;
use crate::releases::Releases;
use crate::services::statuses;

/// One service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceVersions {
    /// Its name.
    pub service: String,
    /// Its kind.
    pub kind: ServiceRole,
    /// Whether it serves.
    pub state: UnitState,
    /// What it runs; `None`: nobody could tell.
    pub runs: Option<RunsVersions>,
    /// Why it is unknown, or why it does not serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunsVersions {
    /// The release with its patch.
    pub release: String,
    /// The release that it is held to.
    pub pin: Option<String>,
    /// The highest version of the API that it offers, or would.
    pub api: Version,
    /// The highest version of the RPC that it speaks.
    pub rpc_cap: Version,
    /// The version in which it writes each object.
    pub objects: BTreeMap<String, Version>,
}

/// All services, conductors first.
pub fn versions(facts: &IronicFacts, config: &IronicConfig, table: &Releases) -> Vec<ServiceVersions> {
    let services = statuses(facts, config, table).into_iter().map(|status| {
        let (state, not_serving) = status.state;
        let (runs, unclear) = match status.runs {
            Ok(runs) => {
                let pin = runs.pinned_to();
                let versions = RunsVersions {
                    pin: pin.map(|pin| table.name(pin)),
                    api: table.api(runs.place, pin),
                    rpc_cap: table.rpc(runs.place, pin),
                    objects: table.objects(runs.place, pin),
                    release: runs.release,
                };
                (Some(versions), None)
            }
            Err(reason) => (None, Some(reason.detail)),
        };
        ServiceVersions {
            service: status.name.to_owned(),
            kind: status.role,
            state,
            runs,
            why: unclear.or_else(|| (state != UnitState::Serving).then_some(not_serving)),
        }
    });
    services.collect()
}
