//! The policy for guests whose hosts go down in turn.

use serde::{Deserialize, Serialize};

use super::{Capacity, Code, Guest, Reason, Storage, UnitId};

/// A maintenance: which units, which of them last, and what becomes of their guests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Maintenance {
    /// The units that are meant, sorted; all of the stage's kind, if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<UnitId>>,
    /// The unit whose wave is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<UnitId>,
    /// Units with these guests' storage go one at a time: names of guests are not looked at, hosts are given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub one_at_a_time: Vec<OneAtATime>,
    /// What becomes of guests.
    pub moving: EvacuationPolicy,
    /// Units start as soon as there is room for them, without waiting for the whole wave before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub flowing: bool,
}

/// Units of which one may be down at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OneAtATime {
    /// Why: `storage of template rbd on the nodes' own disks`.
    pub why: String,
    /// Which.
    pub units: Vec<UnitId>,
}

impl Maintenance {
    /// Whether that unit is meant.
    pub fn is_for(&self, unit: &UnitId) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.binary_search(unit).is_ok())
    }
}

/// What becomes of guests while their hosts go down in turn. They are moved back when their host is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EvacuationPolicy {
    /// Every guest is treated as if it did not run: none is moved, and those that run go down with their host.
    pub as_if_down: bool,
    /// Guests that are not redundant.
    pub local: LocalGuests,
    /// Guests on shared storage.
    pub shared: SharedGuests,
    /// Hosts that have a standby in common.
    pub standbys: Standbys,
    /// Memory that is kept for the failure of one more host.
    pub spare: Spare,
    /// What leaves a host.
    pub evacuate: Evacuate,
}

/// What becomes of guests whose disks are on their host only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LocalGuests {
    /// Their hosts are skipped.
    #[default]
    Skip,
    /// They stay; only where none of them runs.
    Accept,
    /// Those that run are stopped, copied and started elsewhere; the others stay.
    Relocate,
}

/// In what way hosts with guests on shared storage are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SharedGuests {
    /// One host of each pool at a time.
    One,
    /// One after another, without waiting for those before as long as there is room.
    Rolling,
    /// In sets that are chosen beforehand.
    #[default]
    Sets,
}

/// Whether hosts that have a standby in common may be down together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Standbys {
    /// If the standby has room for the guests of both.
    #[default]
    Capacity,
    /// Never.
    Exclude,
}

/// Whether memory that is kept for the failure of one more host may be used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Spare {
    /// No: each host that serves could still be lost.
    #[default]
    Keep,
    /// By the guests of one host on their standby: so much N+1 has always promised.
    Spend,
}

/// What leaves a host before it goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Evacuate {
    /// What runs on it.
    #[default]
    Guests,
    /// That, and the second copies of guests that run.
    Everything,
}

/// What becomes of one guest when its host goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestHandling {
    /// It stays there.
    Stays,
    /// It is moved to its standby.
    ToStandby,
    /// It is moved to any host of the pool.
    Anywhere,
    /// It is stopped, copied to any host of the pool, and started there.
    WithDowntime,
}

impl EvacuationPolicy {
    /// What becomes of that guest when its host goes down.
    pub fn turn(&self, guest: &Guest) -> GuestHandling {
        if self.as_if_down || !guest.runs {
            return GuestHandling::Stays;
        }
        match (guest.storage, self.local) {
            (Storage::Copied, _) => GuestHandling::ToStandby,
            (Storage::Shared, _) => GuestHandling::Anywhere,
            (Storage::Local, LocalGuests::Relocate) => GuestHandling::WithDowntime,
            (Storage::Local, LocalGuests::Skip | LocalGuests::Accept) => GuestHandling::Stays,
        }
    }

    /// Why that host must be left alone because of a guest, if it must.
    pub fn forbids(&self, capacity: &Capacity, host: u32) -> Option<Reason> {
        let because_of = |guest: &u32| {
            let guest = capacity.guest(*guest);
            let name = &guest.name;
            let runs = guest.runs && !self.as_if_down;
            match (guest.storage, self.local) {
                (Storage::Local, LocalGuests::Skip) => Some(Reason::new(
                    Code::NonRedundant,
                    format!(
                        "{name} has its disks there only; accept it while it is down, or move it off with downtime"
                    ),
                )),
                (Storage::Local, LocalGuests::Accept) if runs => Some(Reason::new(
                    Code::NonRedundantRunning,
                    format!(
                        "{name} runs and has its disks there only; stop it, or move it off with downtime"
                    ),
                )),
                _ if !runs => None,
                _ if guest.stuck.is_some() => Some(Reason::new(
                    Code::GuestStuck,
                    format!(
                        "{name} cannot be moved: {}",
                        guest.stuck.as_deref().unwrap_or_default()
                    ),
                )),
                _ => None,
            }
        };
        let of_others = || {
            let guest = capacity.eligible_guests(host).find(|at| {
                let guest = capacity.guest(*at);
                guest.runs && !self.as_if_down
            })?;
            let Guest { name, stuck, .. } = capacity.guest(guest);
            let why = stuck.as_deref().unwrap_or("where it runs is unknown");
            Some(Reason::new(
                Code::GuestStuck,
                format!("{name} may run there: {why}"),
            ))
        };
        capacity
            .guests_on(host)
            .iter()
            .find_map(because_of)
            .or_else(of_others)
    }
}
