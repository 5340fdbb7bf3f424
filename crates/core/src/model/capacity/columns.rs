//! Capacity as stored in documents, and its validation.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Capacity, Guest, Host, Storage};
use crate::model::UnitId;

/// Hosts and guests that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// Two hosts of one name, or hosts that are not sorted as people count.
    #[error("host {0} is listed twice or out of order")]
    Order(UnitId),
    /// A host of a pool that there is not.
    #[error("host {0} is in a pool that does not exist")]
    Pool(UnitId),
    /// A guest that refers to what there is not, or contradicts itself.
    #[error("guest {name}: {why}")]
    Guest {
        /// Its name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A host that is not among the units.
    #[error("host {0} is not a unit of the snapshot")]
    NoUnit(UnitId),
}

/// As stored.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct CapacityDocument {
    hosts: Vec<Host>,
    guests: Vec<Guest>,
    pools: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

impl TryFrom<CapacityDocument> for Capacity {
    type Error = CapacityError;
    fn try_from(document: CapacityDocument) -> Result<Self, CapacityError> {
        let CapacityDocument {
            hosts,
            guests,
            pools,
            tags,
        } = document;
        Self::new(hosts, guests, pools, tags)
    }
}

impl From<Capacity> for CapacityDocument {
    fn from(capacity: Capacity) -> Self {
        let Capacity {
            hosts,
            guests,
            pools,
            tags,
            on: _,
            behind: _,
            elsewhere: _,
        } = capacity;
        Self {
            hosts,
            guests,
            pools,
            tags,
        }
    }
}

/// Whether all places exist.
pub(super) fn fit(
    hosts: &[Host],
    guests: &[Guest],
    pools: &[String],
    tags: &[String],
) -> Result<(), CapacityError> {
    if let Some(pair) = hosts
        .windows(2)
        .find(|pair| pair[0].unit.natural_key() >= pair[1].unit.natural_key())
    {
        return Err(CapacityError::Order(pair[1].unit.clone()));
    }
    if let Some(host) = hosts.iter().find(|host| host.pool as usize >= pools.len()) {
        return Err(CapacityError::Pool(host.unit.clone()));
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for guest in guests {
        let exists = |host: u32| (host as usize) < hosts.len();
        let why = if !exists(guest.host) || !guest.standby.is_none_or(exists) {
            "it is on a host that does not exist"
        } else if guest.standby == Some(guest.host) {
            "its standby is its host"
        } else if (guest.storage == Storage::Copied) != guest.standby.is_some() {
            "it has two copies or a standby, and not both"
        } else if guest.apart.iter().any(|tag| *tag as usize >= tags.len()) {
            "what keeps it apart has no name"
        } else if !names.insert(&guest.name) {
            "another one has its name"
        } else if guest.takes.iter().any(|amount| *amount < 0) {
            "it takes less than nothing"
        } else {
            continue;
        };
        return Err(CapacityError::Guest {
            name: guest.name.clone(),
            why,
        });
    }
    Ok(())
}
