//! PodDisruptionBudgets as objects: what there is, and what it takes to have what there should be.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stagger_engine::backend::BackendError;

use crate::backend::failed;
use crate::cluster::CephCluster;
use crate::drains::Wanted;
use crate::drains::budgets::{Budget, Selects, Step, steps};
use crate::drains::fixed::{Fixed, Permits};
use crate::names;
use crate::watched::Watched;

const TRIED: &str = "bring the PodDisruptionBudgets to what they should be";

/// So many budgets are written at once.
const AT_ONCE: usize = 8;

/// What the names of budgets over other daemons begin with.
const OTHERS: [&str; 4] = [
    "rook-ceph-mon-pdb",
    "rook-ceph-mgr-pdb",
    "rook-ceph-mds-",
    "rook-ceph-rgw-",
];

/// The budgets of one cluster.
pub(super) struct Ensure<'a> {
    api: Api<PodDisruptionBudget>,
    found: &'a CephCluster,
    there: Vec<Arc<PodDisruptionBudget>>,
}

impl<'a> Ensure<'a> {
    /// With what there is in the namespace.
    pub(super) fn new(client: &Client, found: &'a CephCluster, there: Vec<Arc<PodDisruptionBudget>>) -> Self {
        let namespace = found.namespace().unwrap_or_default();
        Self {
            api: Api::namespaced(client.clone(), &namespace),
            found,
            there,
        }
    }

    /// Those over OSDs, in the order that leaves no moment without protection.
    pub(super) async fn over_osds(&self, wanted: &Wanted) -> Result<(), BackendError> {
        let mut there = BTreeMap::new();
        for one in &self.there {
            let name = one.name_any();
            let as_wanted = wanted.budgets.iter().find(|budget| budget.name == name);
            // What somebody else made for OSDs is left alone, unless it has the name of one of ours.
            if as_wanted.is_none() && !(name.starts_with(names::OSD_APP) && self.is_of_cluster(one)) {
                continue;
            }
            // One that is not as it should be is made so, whatever it is.
            let shown = as_wanted.filter(|budget| is_as(one, &spec_of(budget)));
            let shown = shown.cloned().unwrap_or_else(|| Budget {
                name: name.clone(),
                level: "unlike".to_owned(),
                selects: Selects::Unplaced,
                max_unavailable: u32::MAX,
            });
            there.insert(name, shown);
        }
        // Several at once: a large cluster has many domains to block while one is emptied. None is removed
        // before all that there should be are there.
        let (apply, delete): (Vec<Step>, Vec<Step>) = steps(&there, &wanted.budgets)
            .into_iter()
            .partition(|step| matches!(step, Step::Apply(_)));
        for all in [apply, delete] {
            let mut under_way =
                stream::iter(all.into_iter().map(|step| self.carry_out(step))).buffer_unordered(AT_ONCE);
            while let Some(done) = under_way.next().await {
                done?;
            }
        }
        Ok(())
    }

    async fn carry_out(&self, step: Step) -> Result<(), BackendError> {
        match step {
            Step::Apply(budget) => self.apply(&budget.name, &spec_of(&budget), None).await,
            Step::Delete(name) => self.delete(&name).await,
        }
    }

    /// Those of daemons that no failure domain binds.
    pub(super) async fn fixed(&self, wanted: &[Fixed], watched: &Watched) -> Result<(), BackendError> {
        for budget in wanted {
            let spec = spec_of_fixed(budget);
            let there = self.there.iter().find(|one| one.name_any() == budget.name);
            if !there.is_some_and(|one| is_as(one, &spec)) {
                let owner = watched.owner_of(&budget.app, budget.group.as_ref());
                self.apply(&budget.name, &spec, owner).await?;
            }
        }
        for one in &self.there {
            let name = one.name_any();
            let ours = OTHERS.iter().any(|start| name.starts_with(start)) && is_labelled(one);
            if ours && wanted.iter().all(|budget| budget.name != name) {
                self.delete(&name).await?;
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

    async fn apply(&self, name: &str, spec: &Value, owner: Option<Value>) -> Result<(), BackendError> {
        let owner = owner.unwrap_or_else(|| {
            json!({
                "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": self.found.name_any(),
                "uid": self.found.metadata.uid, "controller": true,
            })
        });
        let before = self.there.iter().find(|one| one.name_any() == name);
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {
                "name": name, "namespace": self.found.namespace(),
                "labels": { LABEL.0: LABEL.1 },
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

    async fn delete(&self, name: &str) -> Result<(), BackendError> {
        match self.api.delete(name, &DeleteParams::default()).await {
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

/// Whether a PodDisruptionBudget says what it should.
fn is_as(one: &PodDisruptionBudget, spec: &Value) -> bool {
    serde_json::to_value(&one.spec).is_ok_and(|is| is == *spec)
}

fn spec_of(budget: &Budget) -> Value {
    let mut expressions = vec![json!({ "key": names::APP, "operator": "In", "values": [names::OSD_APP] })];
    let label = names::topology(&budget.level);
    match &budget.selects {
        Selects::AllBut(without) if without.is_empty() => {}
        Selects::AllBut(without) => {
            let ids: Vec<String> = without.iter().map(u32::to_string).collect();
            expressions.push(json!({ "key": names::OSD, "operator": "NotIn", "values": ids }));
        }
        Selects::Domain(domain) => {
            expressions.push(json!({ "key": label, "operator": "In", "values": [domain] }));
        }
        Selects::Unplaced => expressions.push(json!({ "key": label, "operator": "DoesNotExist" })),
    }
    json!({
        "maxUnavailable": budget.max_unavailable,
        "selector": { "matchExpressions": expressions },
    })
}

fn spec_of_fixed(budget: &Fixed) -> Value {
    let mut labels = json!({ names::APP: budget.app });
    if let Some((label, value)) = &budget.group {
        labels[label] = json!(value);
    }
    let mut spec = json!({ "selector": { "matchLabels": labels } });
    match budget.permits {
        Permits::MaxUnavailable(count) => spec["maxUnavailable"] = json!(count),
        Permits::MinAvailable(count) => spec["minAvailable"] = json!(count),
    }
    spec
}
