//! PodDisruptionBudgets as objects: the existing ones, and the changes towards the wanted ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::{Selector, SelectorExt as _};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stagger_engine::cluster::BackendError;

use crate::api::cache::ObjectCache;
use crate::api::cluster::CephCluster;
use crate::api::daemons;
use crate::api::failed;
use crate::api::names;
use crate::api::objects::Pod;
use crate::disruption::drains::OsdDisruptionBudget;
use crate::disruption::drains::fixed::{self, Fixed, Permits};

const TRIED: &str = "bring the PodDisruptionBudgets to what they should be";

/// So many budgets are deleted at once.
const AT_ONCE: usize = 8;

/// That over managers, which Rook writes whatever `managePodBudgets` says.
const ROOKS: &str = "rook-ceph-mgr-pdb";
/// That over monitors.
const MONITORS: &str = "rook-ceph-mon-pdb";
/// What the names of budgets over other daemons begin with.
const OTHERS: [&str; 5] = [
    MONITORS,
    ROOKS,
    "rook-ceph-rbd-mirror",
    "rook-ceph-mds-",
    "rook-ceph-rgw-",
];

/// The budgets that neither Rook nor we make, and that select a pod of an OSD. Of a pod under two budgets the API server grants no eviction.
pub(crate) fn foreign_osd_budgets(there: &[Arc<PodDisruptionBudget>], pods: &[Arc<Pod>]) -> Vec<String> {
    let is_osd = |pod: &&Arc<Pod>| {
        pod.labels()
            .get(names::APP)
            .is_some_and(|app| app == names::OSD_APP)
    };
    let selects_an_osd = |one: &&Arc<PodDisruptionBudget>| {
        let selector = one.spec.as_ref().and_then(|spec| spec.selector.clone());
        // What is no selector selects nobody.
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        selector.is_some_and(|selector| {
            pods.iter()
                .filter(is_osd)
                .any(|pod| selector.matches(pod.labels()))
        })
    };
    let is_of_others = |one: &&Arc<PodDisruptionBudget>| {
        let is_rooks = |owner: &OwnerReference| owner.api_version.starts_with("ceph.rook.io/");
        let is_ours = one.name_any() == names::DEFAULT_BUDGET || is_labelled(one);
        !is_ours && !one.owner_references().iter().any(is_rooks)
    };
    let found = there.iter().filter(is_of_others).filter(selects_an_osd);
    found.map(|one| one.name_any()).collect()
}

/// The budgets of one cluster.
pub(crate) struct Ensure<'a> {
    api: Api<PodDisruptionBudget>,
    found: &'a CephCluster,
    there: Vec<Arc<PodDisruptionBudget>>,
    /// Whether Rook's operator runs: then that of the managers is Rook's, whatever Rook is told.
    rook_runs: bool,
}

impl<'a> Ensure<'a> {
    /// With what there is in the namespace.
    pub(crate) fn new(
        client: &Client,
        found: &'a CephCluster,
        there: Vec<Arc<PodDisruptionBudget>>,
        rook_runs: bool,
    ) -> Self {
        let namespace = found.namespace().unwrap_or_default();
        Self {
            api: Api::namespaced(client.clone(), &namespace),
            found,
            there,
            rook_runs,
        }
    }

    /// That over OSDs, and away with those that Rook, or an older release, has made beside it. It comes first, so that no
    /// moment is without one.
    pub(crate) async fn apply_osd_budget(
        &self,
        wanted: Option<&OsdDisruptionBudget>,
    ) -> Result<(), BackendError> {
        if let Some(budget) = wanted {
            let spec = spec_of(budget);
            let there = self.cached_budget(names::DEFAULT_BUDGET);
            // One that is not as it should be is made so, whatever it is.
            if !there.is_some_and(|one| matches_spec(one, &spec)) {
                self.apply(names::DEFAULT_BUDGET, &spec, None, true).await?;
            }
        }
        // What somebody else made for OSDs is left alone.
        let is_stale = |one: &&Arc<PodDisruptionBudget>| {
            let name = one.name_any();
            let is_wanted = wanted.is_some() && name == names::DEFAULT_BUDGET;
            !is_wanted && name.starts_with(names::OSD_APP) && self.is_of_cluster(one)
        };
        let stale: Vec<_> = self.there.iter().filter(is_stale).cloned().collect();
        let deleting = stale
            .into_iter()
            .map(|one| async move { self.delete(&one).await });
        let mut deleting = stream::iter(deleting).buffer_unordered(AT_ONCE);
        while let Some(done) = deleting.next().await {
            done?;
        }
        Ok(())
    }

    /// Ours become nobody's, and who manages them next finds them by their names. That over OSDs lets one go, as Rook's does, and that over
    /// monitors as many as Rook's while all are well: nobody might ever write it again.
    pub(crate) async fn leave(&self, watched: &ObjectCache) -> Result<(), BackendError> {
        let monitors = watched.daemons().0.into_keys();
        let monitors = monitors.filter(|unit| daemons::kind_of(unit) == "mon").count();
        for one in self.there.iter().filter(|one| is_labelled(one)) {
            let name = one.name_any();
            let spec = remaining_spec(&name, monitors).unwrap_or_else(|| json!(one.spec));
            self.apply(&name, &spec, None, false).await?;
        }
        Ok(())
    }

    fn cached_budget(&self, name: &str) -> Option<&Arc<PodDisruptionBudget>> {
        self.there.iter().find(|one| one.name_any() == name)
    }

    /// Those of daemons that no failure domain binds.
    pub(crate) async fn fixed(&self, wanted: &[Fixed], watched: &ObjectCache) -> Result<(), BackendError> {
        let is_rooks = |name: &str| self.rook_runs && name == ROOKS;
        for budget in wanted.iter().filter(|budget| !is_rooks(&budget.name)) {
            let spec = spec_of_fixed(budget);
            let there = self.cached_budget(&budget.name);
            if !there.is_some_and(|one| matches_spec(one, &spec)) {
                let owner = watched.owner_of(&budget.app, budget.group.as_ref());
                self.apply(&budget.name, &spec, owner, true).await?;
            }
        }
        for one in self.there.iter().filter(|one| !is_rooks(&one.name_any())) {
            if is_stale(one, wanted) {
                self.delete(one).await?;
            }
        }
        Ok(())
    }

    fn is_of_cluster(&self, one: &PodDisruptionBudget) -> bool {
        let uid = self.found.metadata.uid.as_deref();
        one.owner_references()
            .iter()
            .any(|owner| Some(owner.uid.as_str()) == uid)
    }

    /// Writes one, with the label that says whose it is where it is `ours`. Its owner stays who it was, if none is named.
    async fn apply(
        &self,
        name: &str,
        spec: &Value,
        owner: Option<Value>,
        ours: bool,
    ) -> Result<(), BackendError> {
        let before = self.cached_budget(name);
        let of_before = before.and_then(|one| one.owner_references().first());
        let owner = owner
            .or_else(|| of_before.map(|owner| json!(owner)))
            .unwrap_or_else(|| {
                json!({
                    "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": self.found.name_any(),
                    "uid": self.found.metadata.uid, "controller": true,
                })
            });
        let labels = if ours {
            json!({ LABEL.0: LABEL.1 })
        } else {
            json!({})
        };
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {
                "name": name, "namespace": self.found.namespace(),
                "labels": labels,
                "ownerReferences": [owner],
                "resourceVersion": before.and_then(|one| one.metadata.resource_version.clone()),
            },
            "spec": spec,
        });
        let object: PodDisruptionBudget = serde_json::from_value(object)
            .map_err(|error| BackendError::permanent(TRIED, error.to_string()))?;
        let params = PostParams::default();
        let written = match before {
            None => self.api.create(&params, &object).await,
            Some(_) => self.api.replace(name, &params, &object).await,
        };
        // What was seen may be older than our own last write: then the next look tells.
        written.map_err(|error| failed(TRIED, &error))?;
        tracing::info!(budget = name, "applied");
        Ok(())
    }

    /// Deletes just what was seen: one that somebody has changed or made anew since stays, and is looked at again.
    async fn delete(&self, seen: &PodDisruptionBudget) -> Result<(), BackendError> {
        let name = seen.name_any();
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: seen.resource_version(),
                uid: seen.uid(),
            }),
            ..DeleteParams::default()
        };
        match self.api.delete(&name, &params).await {
            Ok(_) => tracing::info!(budget = name, "deleted"),
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => return Err(failed(TRIED, &error)),
        }
        Ok(())
    }
}

/// Who wrote a budget.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "stagger");

fn is_labelled(one: &PodDisruptionBudget) -> bool {
    one.labels().get(LABEL.0).map(String::as_str) == Some(LABEL.1)
}

/// Whether it is over daemons that no failure domain binds, was made by Rook or by us, and there should be none. One that
/// Rook has left behind would go on blocking drains for a store that is gone, or that has shrunk to one gateway.
fn is_stale(one: &PodDisruptionBudget, wanted: &[Fixed]) -> bool {
    let name = one.name_any();
    let is_of_rook = || {
        let mut owners = one.owner_references().iter();
        owners.any(|owner| owner.api_version.starts_with("ceph.rook.io/"))
    };
    OTHERS.iter().any(|start| name.starts_with(start))
        && (is_labelled(one) || is_of_rook())
        && wanted.iter().all(|budget| budget.name != name)
}

/// Whether a PodDisruptionBudget says what it should.
fn matches_spec(one: &PodDisruptionBudget, spec: &Value) -> bool {
    serde_json::to_value(&one.spec).is_ok_and(|is| is == *spec)
}

fn spec_of(budget: &OsdDisruptionBudget) -> Value {
    let mut expressions = vec![json!({ "key": names::APP, "operator": "In", "values": [names::OSD_APP] })];
    if !budget.without.is_empty() {
        let ids: Vec<String> = budget.without.iter().map(u32::to_string).collect();
        expressions.push(json!({ "key": names::OSD, "operator": "NotIn", "values": ids }));
    }
    json!({
        "maxUnavailable": budget.max_unavailable,
        "selector": { "matchExpressions": expressions },
    })
}

/// What is left of one that follows how daemons are; `None`: it does not, and stays as it is.
fn remaining_spec(name: &str, monitors: usize) -> Option<Value> {
    match name {
        names::DEFAULT_BUDGET => Some(spec_of(&OsdDisruptionBudget::OF_ROOK)),
        MONITORS => {
            let permits = fixed::monitors(u32::try_from(monitors).unwrap_or(u32::MAX), 0)?;
            Some(spec_of_fixed(&Fixed {
                name: name.to_owned(),
                app: names::MON_APP.to_owned(),
                group: None,
                without: BTreeSet::new(),
                permits,
            }))
        }
        _ => None,
    }
}

fn spec_of_fixed(budget: &Fixed) -> Value {
    let mut labels = json!({ names::APP: budget.app });
    if let Some((label, value)) = &budget.group {
        labels[label] = json!(value);
    }
    let mut spec = json!({ "selector": { "matchLabels": labels } });
    if !budget.without.is_empty() {
        let others = json!({ "key": daemons::ID, "operator": "NotIn", "values": budget.without });
        spec["selector"]["matchExpressions"] = json!([others]);
    }
    match budget.permits {
        Permits::MaxUnavailable(count) => spec["maxUnavailable"] = json!(count),
        Permits::MinAvailable(count) => spec["minAvailable"] = json!(count),
    }
    spec
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::routing::delete;
    use axum::{Json, Router};
    use http::StatusCode;

    use super::*;

    fn made(name: &str, by: &Value, labels: &Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels, "ownerReferences": [by] },
            "spec": { "minAvailable": 1 },
        }))
        .unwrap()
    }

    #[test]
    fn that_over_monitors_is_not_over_those_that_are_out() {
        let mut budget = Fixed {
            name: "rook-ceph-mon-pdb".to_owned(),
            app: "rook-ceph-mon".to_owned(),
            group: None,
            without: BTreeSet::new(),
            permits: Permits::MaxUnavailable(1),
        };
        // As Rook has it.
        let all = json!({
            "maxUnavailable": 1, "selector": { "matchLabels": { "app": "rook-ceph-mon" } },
        });
        assert_eq!(spec_of_fixed(&budget), all);
        budget.permits = Permits::MaxUnavailable(0);
        budget.without = BTreeSet::from(["b".to_owned()]);
        let others = json!([{ "key": "ceph_daemon_id", "operator": "NotIn", "values": ["b"] }]);
        assert_eq!(spec_of_fixed(&budget)["selector"]["matchExpressions"], others);
    }

    /// It may have become somebody else's since it was seen.
    #[tokio::test]
    async fn a_budget_is_deleted_as_it_was_seen_or_not_at_all() {
        let asked = Arc::new(Mutex::new(Vec::<Value>::new()));
        let heard = Arc::clone(&asked);
        let conflict = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict", "message": "it is another",
        });
        let answer = async move |Json(body): Json<Value>| {
            heard.lock().unwrap().push(body);
            (StatusCode::CONFLICT, conflict.to_string())
        };
        let path = "/apis/policy/v1/namespaces/rook-ceph/poddisruptionbudgets/rook-ceph-osd-host-n1";
        let client = Client::new(Router::new().route(path, delete(answer)), "rook-ceph");
        let cluster: CephCluster = serde_json::from_value(json!({
            "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
            "metadata": { "name": "c", "namespace": "rook-ceph", "uid": "c-1" }, "spec": {},
        }))
        .unwrap();
        let mut seen = made(
            "rook-ceph-osd-host-n1",
            &json!({ "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": "c", "uid": "c-1" }),
            &json!({}),
        );
        seen.metadata.uid = Some("b-1".to_owned());
        seen.metadata.resource_version = Some("7".to_owned());
        let budgets = Ensure::new(&client, &cluster, vec![Arc::new(seen)], true);
        assert!(
            budgets.apply_osd_budget(None).await.is_err(),
            "it was another one, and that was not noticed"
        );
        let asked = asked.lock().unwrap();
        assert_eq!(
            asked[0]["preconditions"],
            json!({ "uid": "b-1", "resourceVersion": "7" })
        );
    }

    #[test]
    fn a_budget_of_somebody_else_s_over_osds_is_found() {
        let rook =
            json!([{ "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": "c", "uid": "1" }]);
        let owned_by = |owners: &Value, name: &str, selector: &Value| -> Arc<PodDisruptionBudget> {
            let one = json!({
                "metadata": { "name": name, "ownerReferences": owners }, "spec": { "maxUnavailable": 1, "selector": selector },
            });
            Arc::new(serde_json::from_value(one).unwrap())
        };
        let budget = |name: &str, selector: &Value| owned_by(&json!([]), name, selector);
        let pod = |app: &str| -> Arc<Pod> {
            let one = json!({ "metadata": { "name": app, "labels": { "app": app, "team": "storage" } } });
            Arc::new(serde_json::from_value(one).unwrap())
        };
        let osds = json!({ "matchLabels": { "app": "rook-ceph-osd" } });
        let there = [
            budget(names::DEFAULT_BUDGET, &osds),
            owned_by(&rook, "rook-ceph-osd-host-n1", &osds),
            budget("rook-ceph-osd-of-a-team", &osds),
            budget("of-a-team", &json!({ "matchLabels": { "team": "storage" } })),
            budget(
                "of-monitors",
                &json!({ "matchLabels": { "app": "rook-ceph-mon" } }),
            ),
            budget("of-all", &json!({})),
        ];
        let pods = [pod("rook-ceph-osd"), pod("rook-ceph-mon")];
        assert_eq!(
            foreign_osd_budgets(&there, &pods),
            ["rook-ceph-osd-of-a-team", "of-a-team", "of-all"]
        );
        assert_eq!(foreign_osd_budgets(&there, &pods[1..]), [""; 0]);
    }

    #[test]
    fn what_is_left_lets_go_what_rook_would_let_go() {
        let selector = json!({ "matchLabels": { "app": "rook-ceph-mon" } });
        assert_eq!(
            remaining_spec(MONITORS, 5),
            Some(json!({ "maxUnavailable": 2, "selector": selector }))
        );
        let osds = remaining_spec(names::DEFAULT_BUDGET, 5).unwrap();
        assert_eq!(osds["maxUnavailable"], json!(1));
        for (name, monitors) in [(MONITORS, 2), ("rook-ceph-rgw-a", 5)] {
            assert_eq!(remaining_spec(name, monitors), None, "{name}");
        }
    }

    #[test]
    fn what_rook_or_we_left_of_a_store_that_is_gone_goes_and_that_of_others_stays() {
        let store =
            json!({ "apiVersion": "ceph.rook.io/v1", "kind": "CephObjectStore", "name": "a", "uid": "1" });
        let other = json!({ "apiVersion": "example.com/v1", "kind": "Guard", "name": "a", "uid": "2" });
        let (none, ours) = (json!({}), json!({ LABEL.0: LABEL.1 }));
        let wanted = [Fixed {
            name: "rook-ceph-rgw-b".to_owned(),
            app: "rook-ceph-rgw".to_owned(),
            group: None,
            without: BTreeSet::new(),
            permits: Permits::MinAvailable(1),
        }];
        for (name, by, labels, stale) in [
            ("rook-ceph-rgw-a", &store, &none, true),
            ("rook-ceph-mds-fs", &store, &none, true),
            ("rook-ceph-rbd-mirror", &store, &none, true),
            ("rook-ceph-rgw-a", &other, &ours, true),
            ("rook-ceph-rgw-a", &other, &none, false),
            ("rook-ceph-rgw-b", &store, &none, false),
            ("rook-ceph-osd-zone-a", &store, &ours, false),
        ] {
            assert_eq!(
                is_stale(&made(name, by, labels), &wanted),
                stale,
                "{name} of {by}"
            );
        }
    }
}
