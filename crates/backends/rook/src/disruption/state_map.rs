//! The persistent state of drains, in stagger's own ConfigMap, and the state that Rook has left in its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stagger_engine::cluster::BackendError;
use tokio::time::Instant;

use crate::api::failed;
use crate::api::names::MANAGER;
use crate::disruption::drains::DrainMemory;

/// Ours.
const OURS: &str = "stagger-drains";
/// The key in it.
const KEY: &str = "drains";
/// Rook's, which it writes while it manages the budgets, and never after.
const ROOKS: &str = "rook-ceph-pdbstatemap";
/// How Rook's keys end that say since when it has `noout` on a failure domain.
const SINCE: &str = "-noout-last-set-at";

/// A Rook that was in the midst of a drain when it was told to leave them sets `noout` first, and has written so by then.
const WRITTEN: Duration = Duration::from_mins(1);

/// What is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StateMap {
    pub(crate) memory: DrainMemory,
    /// The failure domains on which `noout` was set, or was about to be.
    pub(crate) noout: BTreeSet<String>,
    /// The version of Rook's ConfigMap from which `noout` was taken over: what it says is of before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_over: Option<String>,
    /// The version of our ConfigMap that says so; `None`: there is none yet. What another operator has written since is
    /// never written over.
    #[serde(skip)]
    version: Option<String>,
    /// Whether it was looked at what Rook has left, since drains are ours.
    #[serde(skip)]
    with_rooks: bool,
    /// The domains with a `noout` that is not ours, and when each was first seen.
    #[serde(skip)]
    foreign: BTreeMap<String, Instant>,
    /// Whether something was taken over from Rook that our ConfigMap does not say yet.
    #[serde(skip)]
    pub(crate) unwritten: bool,
}

impl StateMap {
    /// Whether nothing drains, and nothing has to be given back.
    pub(crate) fn is_idle(&self) -> bool {
        self.noout.is_empty() && self.memory == DrainMemory::default()
    }

    /// Whether one of the domains that have `noout` in Ceph, and not by us, has it so newly that Rook may yet be about to write that it is Rook's.
    pub(crate) fn may_belong_to_rook(&mut self, there: &BTreeSet<String>) -> bool {
        let (noout, foreign) = (&self.noout, &mut self.foreign);
        foreign.retain(|domain, _| there.contains(domain));
        for domain in there.difference(noout) {
            foreign.entry(domain.clone()).or_insert_with(Instant::now);
        }
        foreign.retain(|domain, _| !noout.contains(domain));
        foreign.values().any(|since| since.elapsed() < WRITTEN)
    }

    /// With what Rook was at when it stopped managing the budgets: the `noout` that it has set is given back with ours.
    fn take_over(mut self, rooks: &ConfigMap) -> Self {
        let version = rooks.resource_version();
        if self.taken_over == version {
            return self;
        }
        self.taken_over = version;
        self.unwritten = true;
        for (key, since) in rooks.data.iter().flatten() {
            let Some(domain) = key.strip_suffix(SINCE) else {
                continue;
            };
            self.noout.insert(domain.to_owned());
            if let Ok(since) = since.parse::<Timestamp>() {
                self.memory.draining.entry(domain.to_owned()).or_insert(since);
            }
        }
        self
    }
}

/// What is remembered, by what was `known` of it; where drains are `managed` here, with what Rook has left. Where they are not,
/// what Rook has set is Rook's, which may be in the midst of a drain.
pub(crate) async fn load(
    client: &Client,
    namespace: &str,
    known: Option<StateMap>,
    managed: bool,
) -> Result<StateMap, BackendError> {
    let mut kept = match known {
        Some(kept) => kept,
        None => read(client, namespace).await?,
    };
    if managed && !kept.with_rooks {
        kept = with_rook_state(client, namespace, kept).await?;
    }
    // Rook may write it anew while drains are Rook's.
    kept.with_rooks = managed;
    Ok(kept)
}

/// What is remembered, with what Rook has left as of now.
pub(crate) async fn with_rook_state(
    client: &Client,
    namespace: &str,
    kept: StateMap,
) -> Result<StateMap, BackendError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let tried = "read what Rook has left of drains";
    let rooks = maps.get_opt(ROOKS).await.map_err(|error| failed(tried, &error))?;
    Ok(match &rooks {
        Some(rooks) => kept.take_over(rooks),
        None => kept,
    })
}

/// Reads what is remembered.
pub(crate) async fn read(client: &Client, namespace: &str) -> Result<StateMap, BackendError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let tried = "read what is remembered of drains";
    let ours = maps.get_opt(OURS).await.map_err(|error| failed(tried, &error))?;
    let text = ours.as_ref().and_then(|map| map.data.as_ref()?.get(KEY));
    let mut kept = match text {
        None => StateMap::default(),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            BackendError::permanent(tried, error.to_string()).hint(format!("delete ConfigMap {OURS}"))
        })?,
    };
    kept.version = ours.as_ref().and_then(ResourceExt::resource_version);
    Ok(kept)
}

/// Remembers it, unless another operator has remembered something since.
///
/// # Errors
/// As well where it has: then it is to be read anew.
pub(crate) async fn write(client: &Client, namespace: &str, kept: &mut StateMap) -> Result<(), BackendError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let tried = "remember what is done for drains";
    let text =
        serde_json::to_string(kept).map_err(|error| BackendError::permanent(tried, error.to_string()))?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": OURS, "namespace": namespace, "resourceVersion": kept.version },
        "data": { KEY: text },
    });
    let written = if kept.version.is_some() {
        let params = PatchParams::apply(MANAGER).force();
        maps.patch(OURS, &params, &Patch::Apply(&map)).await
    } else {
        let map = serde_json::from_value(map);
        let map = map.map_err(|error| BackendError::permanent(tried, error.to_string()))?;
        maps.create(&PostParams::default(), &map).await
    };
    let written = written.map_err(|error| match &error {
        kube::Error::Api(answer) if answer.code == 409 => {
            BackendError::transient(tried, "another operator has changed it; it is read again")
        }
        _ => failed(tried, &error),
    })?;
    kept.version = written.resource_version();
    kept.unwritten = false;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::Router;
    use axum::routing::get;
    use http::StatusCode;

    use super::*;

    fn rooks(version: &str, data: &[(&str, &str)]) -> ConfigMap {
        let data: BTreeMap<String, String> = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let mut map = ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        };
        map.metadata.resource_version = Some(version.to_owned());
        map
    }

    #[test]
    fn what_rook_had_set_is_given_back_with_ours_and_only_once() {
        let map = rooks(
            "7",
            &[
                ("draining-failure-domain", "zone-a"),
                ("set-no-out", "true"),
                ("zone-a-noout-last-set-at", "2026-11-24T10:00:00Z"),
                ("zone-b-noout-last-set-at", ""),
            ],
        );
        let kept = StateMap::default().take_over(&map);
        assert_eq!(
            kept.noout,
            BTreeSet::from(["zone-a".to_owned(), "zone-b".to_owned()])
        );
        assert!(kept.unwritten);
        let since: Timestamp = "2026-11-24T10:00:00Z".parse().unwrap();
        assert_eq!(
            kept.memory.draining,
            BTreeMap::from([("zone-a".to_owned(), since)])
        );
        // When it is over, a person may set it.
        let later = StateMap {
            noout: BTreeSet::new(),
            memory: DrainMemory::default(),
            ..kept
        };
        assert!(later.clone().take_over(&map).is_idle());
        // Rook was on again meanwhile.
        let map = rooks("9", &[("zone-c-noout-last-set-at", "2026-11-25T10:00:00Z")]);
        assert!(!later.take_over(&map).is_idle());
        assert!(StateMap::default().take_over(&rooks("1", &[])).is_idle());
    }

    /// An API server on which Rook is in the midst of a drain, and nothing of ours is.
    fn while_rook_drains() -> Client {
        let rooks = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": ROOKS, "namespace": "rook-ceph", "resourceVersion": "7" },
            "data": { "zone-a-noout-last-set-at": "2026-11-24T10:00:00Z" },
        });
        let none = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "not found",
        });
        let path = |name: &str| format!("/api/v1/namespaces/rook-ceph/configmaps/{name}");
        let router = Router::new()
            .route(&path(ROOKS), get(async move || rooks.to_string()))
            .route(
                &path(OURS),
                get(async move || (StatusCode::NOT_FOUND, none.to_string())),
            );
        Client::new(router, "rook-ceph")
    }

    #[tokio::test(start_paused = true)]
    async fn a_noout_of_somebody_else_is_asked_about_for_a_minute() {
        let there = BTreeSet::from(["zone-a".to_owned(), "zone-b".to_owned()]);
        let mut kept = StateMap {
            noout: BTreeSet::from(["zone-a".to_owned()]),
            ..StateMap::default()
        };
        assert!(kept.may_belong_to_rook(&there));
        tokio::time::advance(WRITTEN / 2).await;
        assert!(kept.may_belong_to_rook(&there));
        tokio::time::advance(WRITTEN / 2).await;
        assert!(!kept.may_belong_to_rook(&there), "it is a person's");
        assert!(!kept.may_belong_to_rook(&BTreeSet::new()));
        assert!(kept.may_belong_to_rook(&there), "it was set anew");
        kept.noout.insert("zone-b".to_owned());
        assert!(!kept.may_belong_to_rook(&there), "it is ours");
    }

    /// Who only observes would take the `noout` of a drain of Rook's away.
    #[tokio::test]
    async fn what_rook_has_set_is_rooks_until_drains_are_ours() {
        let client = while_rook_drains();
        let observing = load(&client, "rook-ceph", None, false).await.unwrap();
        assert!(observing.is_idle(), "{observing:?}");
        let managing = load(&client, "rook-ceph", Some(observing), true).await.unwrap();
        assert_eq!(managing.noout, BTreeSet::from(["zone-a".to_owned()]));
        // Whoever leads next is to know of it as well.
        assert!(managing.unwritten);
        let again = with_rook_state(&client, "rook-ceph", managing.clone())
            .await
            .unwrap();
        assert_eq!(
            again, managing,
            "what is of the same version was taken over again"
        );
    }
}
