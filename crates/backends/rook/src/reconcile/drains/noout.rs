//! `noout` on the failure domains that drain: recorded, set, and cleared.
//!
//! Ceph has no conditional set and unset, and a process may sleep between its last leadership check and the
//! command. Two measures help: settings are compared with the current leader's record, and are cleared again
//! if the record lacks them; and a setting that is missing at a later pass, because a late process cleared
//! it, is set again.

use std::collections::BTreeSet;

use kube::Client;
use serde_json::json;
use stagger_ceph::api::{CephApi, QueryTarget};
use stagger_ceph::facts::osd::OsdMap;
use stagger_ceph::facts::tree::CrushTree;
use stagger_engine::cluster::BackendError;

use super::DrainReconciler;
use crate::disruption::drains::DesiredBudgets;
use crate::disruption::state_map::{self, StateMap};

const NOOUT: &str = "noout";

/// The buckets of the CRUSH map that have it.
pub(super) fn buckets_with_noout(osds: &OsdMap) -> BTreeSet<String> {
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

impl DrainReconciler {
    /// First written down, then set; first taken back, then forgotten. What is written is written under the version that
    /// was read: who slept while another operator wrote gets no further than that.
    pub(super) async fn ensure_noout(
        &mut self,
        wanted: &DesiredBudgets,
        there: Option<&BTreeSet<String>>,
        kept: &mut StateMap,
    ) -> Result<(), BackendError> {
        let new: BTreeSet<String> = wanted.noout.keys().cloned().collect();
        let before = kept.clone();
        let Change { mut set, unset } = Change::to(&new, &kept.noout, there);
        if !set.is_empty() {
            set = in_crush_map(&*self.api().await?, set).await?;
        }
        kept.memory = wanted.memory.clone();
        kept.noout.extend(set.iter().cloned());
        if kept.unwritten || *kept != before || !unset.is_empty() {
            state_map::write(&self.shared.client, &self.namespace, kept).await?;
        }
        if !set.is_empty() {
            let (api, client) = (self.api().await?, self.shared.client.clone());
            let namespace = self.namespace.clone();
            // It comes to its end also where the look is ended before it, as the CephMaintenance has gone.
            let setting = tokio::spawn(async move { set_recorded(&*api, &client, &namespace, &set).await });
            let set = setting.await;
            set.map_err(|error| BackendError::transient("set noout", error.to_string()))??;
        }
        if !unset.is_empty() {
            // Where one is gone, its host was purged with it, and its `noout` went, too: that is forgotten.
            unset_in_crush_map(&*self.api().await?, unset).await?;
            kept.noout.retain(|domain| new.contains(domain));
            state_map::write(&self.shared.client, &self.namespace, kept).await?;
        }
        Ok(())
    }
}

/// Sets it, and takes it back from those that are not remembered: whoever slept before it set `noout` may have been followed by an
/// operator that has given it back and forgotten it.
async fn set_recorded(
    api: &dyn CephApi,
    client: &Client,
    namespace: &str,
    set: &[String],
) -> Result<(), BackendError> {
    noout(api, "set-group", set).await?;
    let kept = match state_map::read(client, namespace).await {
        Ok(kept) => kept,
        Err(error) => {
            // The next look sets it again; what nobody remembers would be taken for a person's.
            unset_in_crush_map(api, set.to_vec()).await?;
            return Err(error);
        }
    };
    let late: Vec<String> = set
        .iter()
        .filter(|domain| !kept.noout.contains(*domain))
        .cloned()
        .collect();
    if late.is_empty() {
        return Ok(());
    }
    unset_in_crush_map(api, late.clone()).await?;
    Err(BackendError::transient(
        "set noout",
        format!("another operator has ended the drain of {}", late.join(", ")),
    ))
}

/// Takes it back from those of these that the CRUSH map has.
async fn unset_in_crush_map(api: &dyn CephApi, names: Vec<String>) -> Result<(), BackendError> {
    let still = in_crush_map(api, names).await?;
    noout(api, "unset-group", &still).await
}

async fn noout(api: &dyn CephApi, how: &str, who: &[String]) -> Result<(), BackendError> {
    if who.is_empty() {
        return Ok(());
    }
    tracing::info!(how, ?who, "noout");
    let command = json!({ "prefix": format!("osd {how}"), "flags": "noout", "who": who });
    api.ask(QueryTarget::Mon, command)
        .await
        .map(|_| ())
        .map_err(|error| BackendError::transient(format!("osd {how} noout"), error.to_string()))
}

/// Those of these that the CRUSH map has. Ceph refuses a command of which it knows none, and each look would fail by it.
async fn in_crush_map(api: &dyn CephApi, mut names: Vec<String>) -> Result<Vec<String>, BackendError> {
    let tried = "look for failure domains in the CRUSH map";
    let tree = api
        .ask(QueryTarget::Mon, json!({ "prefix": "osd tree" }))
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
    use std::sync::Mutex;

    use async_trait::async_trait;
    use axum::Router;
    use axum::routing::get;
    use http::StatusCode;
    use serde_json::Value;
    use stagger_ceph::api::{CephAnswer, CephApiError};

    use super::*;

    /// A Ceph with one host, and what it was told to do.
    #[derive(Default)]
    struct Ceph {
        told: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl CephApi for Ceph {
        async fn command(&self, _: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
            if command["prefix"] != "osd tree" {
                let text = format!("{} {}", command["prefix"].as_str().unwrap(), command["who"]);
                self.told.lock().unwrap().push(text);
            }
            let tree = json!({ "stray": [], "nodes": [
                { "id": -1, "name": "default", "type": "root", "children": [-2] },
                { "id": -2, "name": "n1", "type": "host", "children": [] },
            ] });
            Ok(CephAnswer {
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
        let ceph = Ceph::default();
        let left = in_crush_map(&ceph, names(&["n1", "n2"])).await.unwrap();
        assert_eq!(left, names(&["n1"]));
        assert_eq!(in_crush_map(&ceph, names(&["n2"])).await.unwrap(), names(&[]));
    }

    /// An API server on which our ConfigMap remembers these.
    fn remembering(noout: &[&str]) -> Client {
        let kept = json!({ "noout": noout }).to_string();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "stagger-drains", "namespace": "rook-ceph", "resourceVersion": "7" },
            "data": { "drains": kept },
        });
        let path = "/api/v1/namespaces/rook-ceph/configmaps/stagger-drains";
        let router = Router::new().route(path, get(async move || map.to_string()));
        Client::new(router, "rook-ceph")
    }

    #[tokio::test]
    async fn what_was_set_late_is_taken_back() {
        let n1 = ["n1".to_owned()];
        let ceph = Ceph::default();
        let set = set_recorded(&ceph, &remembering(&["n1"]), "rook-ceph", &n1).await;
        assert!(set.is_ok(), "{set:?}");
        let told = |ceph: &Ceph| std::mem::take(&mut *ceph.told.lock().unwrap());
        assert_eq!(told(&ceph), [r#"osd set-group ["n1"]"#]);
        let late = set_recorded(&ceph, &remembering(&[]), "rook-ceph", &n1).await;
        assert!(late.is_err_and(|error| error.why.contains("ended the drain of n1")));
        assert_eq!(
            told(&ceph),
            [r#"osd set-group ["n1"]"#, r#"osd unset-group ["n1"]"#]
        );
        let away = Client::new(Router::new(), "rook-ceph");
        let unread = Router::new().fallback(|| async { StatusCode::INTERNAL_SERVER_ERROR });
        for client in [away, Client::new(unread, "rook-ceph")] {
            let set = set_recorded(&ceph, &client, "rook-ceph", &n1).await;
            assert!(set.is_err(), "{set:?}");
            assert_eq!(
                told(&ceph),
                [r#"osd set-group ["n1"]"#, r#"osd unset-group ["n1"]"#]
            );
        }
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
