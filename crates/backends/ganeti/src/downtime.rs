//! Which instances stop during a move, although their disks would permit a live migration.

use stagger_core::model::Storage;

use crate::config::{MigrationMode, Visits};
use crate::facts::{GanetiFacts, InstanceFacts, RunState};

/// So many are named of each kind.
const NAMED: usize = 8;

/// Why an instance that runs stops while it is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Downtime {
    /// Ganeti shuts it down here and starts it there, whatever it is asked for: it has `always_failover`.
    Always,
    /// Its rule says so.
    NonLive,
    /// Only where it cannot be migrated, as its rule permits.
    WhereNeeded,
}

impl Downtime {
    /// Of this instance; `None`: it is migrated live, is copied with its disks, or does not run.
    pub fn of(instance: &InstanceFacts, visits: &Visits) -> Option<Self> {
        if instance.doing != RunState::Up || instance.storage == Storage::Local {
            return None;
        }
        if instance.always_failover {
            return Some(Self::Always);
        }
        let rule = visits.migration_of(&instance.name)?;
        match rule.mode {
            MigrationMode::NonLive => Some(Self::NonLive),
            MigrationMode::Live => rule.allow_failover.then_some(Self::WhereNeeded),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Always => "shut down here and started there, and again on the way back (`always_failover`)",
            Self::NonLive => {
                "stopped while they are migrated, and again on the way back (`mode = \"non-live\"`)"
            }
            Self::WhereNeeded => {
                "shut down here and started there where they cannot be migrated (`allow_failover = true`)"
            }
        }
    }
}

/// Why an instance is not moved: nobody has permitted the downtime that it would have.
pub fn not_permitted(instance: &InstanceFacts, visits: &Visits) -> Option<String> {
    let permitted = || {
        let rule = visits.migration_of(&instance.name);
        rule.is_some_and(|rule| rule.allow_failover)
    };
    let name = &instance.name;
    (Downtime::of(instance, visits) == Some(Downtime::Always) && !permitted()).then(|| {
        format!(
            "{name} has `always_failover`: Ganeti would shut it down and start it elsewhere; a rule under [[cluster.visits.migrate]] \
             with `allow_failover = true` permits that"
        )
    })
}

/// A sentence for each kind of downtime, with the instances that have it. What nobody has permitted is not among them: it is not
/// moved.
pub fn downtimes(facts: &GanetiFacts, visits: &Visits) -> Vec<String> {
    let kinds = [Downtime::Always, Downtime::NonLive, Downtime::WhereNeeded];
    let of_kind = |kind: Downtime| {
        let moved = facts.instances.values();
        let moved = moved.filter(|instance| not_permitted(instance, visits).is_none());
        let names: Vec<&str> = moved
            .filter(|instance| Downtime::of(instance, visits) == Some(kind))
            .map(|instance| instance.name.as_str())
            .collect();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(" ");
        (!names.is_empty()).then(|| {
            format!(
                "some moved instances are interrupted: {shown}{more}: {}",
                kind.text()
            )
        })
    };
    kinds.into_iter().filter_map(of_kind).collect()
}
