//! `noout` on the failure domains that drain: written down, set, and taken back.
//!
//! Ceph sets and unsets under no condition, and a process may sleep between its last look at who it is and the command. Two
//! things stand against that: what was set is read back from the memory of whoever leads now, and goes again if that has
//! forgotten it; and what is missing at a later look, as somebody late has unset it, is set again.

use std::collections::BTreeSet;

use serde_json::json;
use stagger_ceph::api::{CephApi, Whom};
use stagger_ceph::facts::osd::OsdMap;
use stagger_ceph::facts::tree::CrushTree;
use stagger_engine::cluster::BackendError;

use super::Drains;
use super::state_map::{self, StateMap};
use crate::disruption::drains::Wanted;

const NOOUT: &str = "noout";

/// The buckets of the CRUSH map that have it.
pub(super) fn there(osds: &OsdMap) -> BTreeSet<String> {
    let has = |(_, flags): &(&String, &Vec<String>)| flags.iter().any(|flag| flag == NOOUT);
    let found = osds.node_flags.iter().filter(has);
    found.map(|(bucket, _)| bucket.clone()).collect()
}

/// What has to be done in Ceph.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    set: Vec<String>,
    unset: Vec<String>,
}

impl Change {
    /// From what was set by us to what is wanted; `there` is what Ceph has, where it was asked.
    fn to(wanted: &BTreeSet<String>, ours: &BTreeSet<String>, there: Option<&BTreeSet<String>>) -> Self {
        // What a person has set is there, and is not ours to take back later.
        let there = there.unwrap_or(ours);
        Self {
            set: wanted.difference(there).cloned().collect(),
            unset: ours.difference(wanted).cloned().collect(),
        }
    }
}

impl Drains {
    /// First written down, then set; first taken back, then forgotten. What is written is written under the version that
    /// was read: who slept while another operator wrote gets no further than that.
    pub(super) async fn ensure_noout(
        &mut self,
        wanted: &Wanted,
        there: Option<&BTreeSet<String>>,
        kept: &mut StateMap,
    ) -> Result<(), BackendError> {
        let new: BTreeSet<String> = wanted.noout.keys().cloned().collect();
        let before = kept.clone();
        let Change { mut set, unset } = Change::to(&new, &kept.noout, there);
        set = self.of_the_map(set).await?;
        kept.memory = wanted.memory.clone();
        kept.noout.extend(set.iter().cloned());
        if *kept != before || !unset.is_empty() {
            state_map::write(&self.shared.client, &self.namespace, kept).await?;
        }
        self.noout("set-group", &set).await?;
        if !set.is_empty() {
            self.is_still_remembered(&set).await?;
        }
        // Where one is gone, its host was purged with it, and its `noout` went, too: that is forgotten.
        let still = self.of_the_map(unset.clone()).await?;
        self.noout("unset-group", &still).await?;
        if !unset.is_empty() {
            kept.noout.retain(|domain| new.contains(domain));
            state_map::write(&self.shared.client, &self.namespace, kept).await?;
        }
        Ok(())
    }

    /// Whoever slept before it set `noout` may have been followed by an operator that has given it back and forgotten it.
    async fn is_still_remembered(&mut self, set: &[String]) -> Result<(), BackendError> {
        let kept = state_map::read(&self.shared.client, &self.namespace).await?;
        let late: Vec<String> = set
            .iter()
            .filter(|domain| !kept.noout.contains(*domain))
            .cloned()
            .collect();
        if late.is_empty() {
            return Ok(());
        }
        let still = self.of_the_map(late.clone()).await?;
        self.noout("unset-group", &still).await?;
        Err(BackendError::transient(
            "set noout",
            format!(
                "another operator has ended the drain of {} meanwhile",
                late.join(", ")
            ),
        ))
    }

    /// Those of these that the CRUSH map has. Ceph refuses a command of which it knows none, and each look would fail by it.
    async fn of_the_map(&mut self, names: Vec<String>) -> Result<Vec<String>, BackendError> {
        if names.is_empty() {
            return Ok(names);
        }
        let api = self.api().await?;
        of_the_map(&*api, names).await
    }

    async fn noout(&mut self, how: &str, who: &[String]) -> Result<(), BackendError> {
        if who.is_empty() {
            return Ok(());
        }
        tracing::info!(how, ?who, "noout");
        let command = json!({ "prefix": format!("osd {how}"), "flags": "noout", "who": who });
        let api = self.api().await?;
        api.ask(Whom::Mon, command)
            .await
            .map(|_| ())
            .map_err(|error| BackendError::transient(format!("osd {how} noout"), error.to_string()))
    }
}

async fn of_the_map(api: &dyn CephApi, mut names: Vec<String>) -> Result<Vec<String>, BackendError> {
    let tried = "look for failure domains in the CRUSH map";
    let tree = api
        .ask(Whom::Mon, json!({ "prefix": "osd tree" }))
        .await
        .map_err(|error| BackendError::transient(tried, error.to_string()))?;
    let tree = CrushTree::read(&tree, "osd tree")
        .map_err(|error| BackendError::transient(tried, error.to_string()))?;
    let there: BTreeSet<&str> = tree.buckets.values().map(|bucket| bucket.name.as_str()).collect();
    names.retain(|name| {
        let is_there = there.contains(name.as_str());
        if !is_there {
            tracing::warn!(name, "the CRUSH map has it no more, and noout goes with it");
        }
        is_there
    });
    Ok(names)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::Value;
    use stagger_ceph::api::{Answer, ApiError};

    use super::*;

    /// A Ceph with one host.
    struct Ceph;

    #[async_trait]
    impl CephApi for Ceph {
        async fn command(&self, _: Whom, command: Value) -> Result<Answer, ApiError> {
            assert_eq!(command["prefix"], "osd tree");
            let tree = json!({ "stray": [], "nodes": [
                { "id": -1, "name": "default", "type": "root", "children": [-2] },
                { "id": -2, "name": "n1", "type": "host", "children": [] },
            ] });
            Ok(Answer {
                rc: 0,
                out: tree.to_string().into_bytes(),
                err: String::new(),
            })
        }
    }

    /// It was drained, and purged together with its bucket. Ceph answers EINVAL where it knows none of those that are named.
    #[tokio::test]
    async fn who_is_purged_from_the_crush_map_is_not_asked_of_ceph() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let left = of_the_map(&Ceph, names(&["n1", "n2"])).await.unwrap();
        assert_eq!(left, names(&["n1"]));
        assert_eq!(of_the_map(&Ceph, names(&["n2"])).await.unwrap(), names(&[]));
    }

    fn domains(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_somebody_late_has_unset_is_set_again() {
        let (wanted, ours) = (domains(&["a", "b"]), domains(&["b", "c"]));
        let change = |there: Option<&[&str]>| {
            let there = there.map(domains);
            Change::to(&wanted, &ours, there.as_ref())
        };
        let of = |set: &[&str], unset: &[&str]| Change {
            set: domains(set).into_iter().collect(),
            unset: domains(unset).into_iter().collect(),
        };
        assert_eq!(change(None), of(&["a"], &["c"]));
        assert_eq!(change(Some(&["b"])), of(&["a"], &["c"]));
        assert_eq!(change(Some(&["c"])), of(&["a", "b"], &["c"]));
        assert_eq!(change(Some(&["a", "b", "c"])), of(&[], &["c"]));
    }
}
