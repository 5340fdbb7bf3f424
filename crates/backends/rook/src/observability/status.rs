//! The status of a CephMaintenance: one value, from which its conditions, Events and metrics are made.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::executor::migrations;
use crate::provision::ProvisioningWarning;

/// What is to be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ClusterStatus {
    /// `Ready`, `Progressing`, `Blocked`.
    pub(crate) phase: String,
    /// In a sentence.
    pub(crate) message: String,
    /// A stable word for the reason.
    pub(crate) reason: String,
    /// The generation of the spec that it is about.
    pub(crate) generation: i64,
    /// The image that is aimed at.
    pub(crate) image: Option<String>,
    /// The run, if there is or was one.
    pub(crate) run: Option<Value>,
    /// The migrations of the run.
    pub(crate) migrations: Vec<migrations::MigrationStatus>,
    /// What a run went back from, or a person ended: it is not tried again by itself. The journal has it; this
    /// is for people.
    pub(crate) gave_up: Option<String>,
    /// The run after which a person asked to try again.
    pub(crate) retry_after: Option<String>,
    /// What is blocked by drains, and why.
    pub(crate) drains: Option<DrainStatus>,
    /// The status of new OSDs.
    pub(crate) provisioning: Option<Provisioning>,
    /// The status of OSDs that might be removed.
    pub(crate) removal: Option<String>,
    /// What else is wrong: for each word of a reason the objects that it is about, each with a sentence.
    pub(crate) troubles: Troubles,
    /// The last command to try again that was heard.
    pub(crate) heard: Option<String>,
    /// How much was looked at since this process began.
    pub(crate) looked_at: LookedAt,
}

/// What of a cluster was looked at to the end, once at least. Until all of it was, a trouble that an earlier process told of may still be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LookedAt {
    /// What its daemons are, and what is asked for.
    pub(crate) cluster: bool,
    /// What may be evicted.
    pub(crate) drains: bool,
}

impl ClusterStatus {
    /// Whether it says no more than what is `written`. The first that is made of a whole look does, whatever it says: what is written is an earlier
    /// process' word, and has troubles that this one might never hear of.
    pub(crate) fn is_covered_by(&self, written: &Self) -> bool {
        let says_the_same = *written
            == Self {
                looked_at: written.looked_at,
                ..self.clone()
            };
        let LookedAt { cluster, drains } = self.looked_at;
        says_the_same && (self.looked_at == written.looked_at || !(cluster && drains))
    }

    /// Whether a run is not over.
    pub(crate) fn run_is_on(&self) -> bool {
        let verdict = self.run.as_ref().map(|run| &run["verdict"]);
        verdict.is_some_and(|verdict| *verdict != "done" && *verdict != "ended")
    }
}

/// What is wrong beside a run, by reason and object.
pub(crate) type Troubles = BTreeMap<&'static str, BTreeMap<String, String>>;

/// What drains come to, as the status has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DrainStatus {
    /// The failure domains of which nothing may be evicted, at most 20.
    pub(crate) blocked: Vec<String>,
    /// How many they are.
    pub(crate) blocked_count: usize,
    /// Why nothing may.
    pub(crate) why: String,
    /// Those that are being emptied, or have OSDs that are down.
    pub(crate) draining: BTreeSet<String>,
    /// Those with a cordoned node of which nothing may be evicted.
    pub(crate) waiting: BTreeSet<String>,
    /// Those with `noout`, with when it goes.
    pub(crate) noout: BTreeMap<String, Timestamp>,
}

/// What new OSDs come to, as the status has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Provisioning {
    /// The nodes and claims whose devices are being prepared.
    pub(crate) preparing: Vec<String>,
    /// What is not done, and why.
    pub(crate) remarks: Vec<ProvisioningWarning>,
    /// Fields of the spec that are not obeyed, each in a sentence.
    pub(crate) not_obeyed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_whole_look_is_told_though_it_says_what_was_said_before() {
        let written = ClusterStatus::default();
        let looked = |cluster, drains| ClusterStatus {
            looked_at: LookedAt { cluster, drains },
            ..ClusterStatus::default()
        };
        assert!(looked(true, false).is_covered_by(&written));
        assert!(!looked(true, true).is_covered_by(&written));
        assert!(looked(true, true).is_covered_by(&looked(true, true)));
        let news = ClusterStatus {
            phase: "Blocked".to_owned(),
            ..looked(false, false)
        };
        assert!(!news.is_covered_by(&written));
    }
}
