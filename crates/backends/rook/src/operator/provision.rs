//! New OSDs: sees nodes, Jobs and reports, decides by [`crate::provision`], and has it so.
//!
//! It goes on beside a run and waits for none: growth takes precedence over updates. Where nothing is wished
//! that is not there, nothing is asked of anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job as JobObject;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use stagger_engine::backend::BackendError;
use tokio::sync::watch;

use super::Shared;
use super::health::Pulse;
use super::status::{Provisioning, Writer};
use crate::access::SECRET;
use crate::backend::failed;
use crate::cluster::CephCluster;
use crate::daemons::osd_of;
use crate::provision::{
    self, Act, Decided, Failed, Job, JobState, Known, NewOsd, NodeStatus, Prepare, Remark, Seen, decide,
    wished,
};
use crate::watched::Watched;

/// How long changes are gathered before they are looked at together.
const BURST: Duration = Duration::from_millis(100);
/// After something could not be done, it is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// What sees to the new OSDs of one cluster.
pub(super) struct Provision {
    shared: Shared,
    namespace: String,
    watched: Arc<Watched>,
    writer: Arc<Writer>,
    /// The nodes that could not be prepared.
    failed: BTreeMap<String, Failed>,
    pulse: Pulse,
    /// What was last seen of each node's Job and report, and since when it is so.
    stands: BTreeMap<String, (String, Timestamp)>,
}

impl Provision {
    pub(super) fn new(shared: Shared, namespace: &str, watched: Arc<Watched>, writer: Arc<Writer>) -> Self {
        Self {
            pulse: shared.health.begins(format!("new OSDs of {namespace}")),
            shared,
            namespace: namespace.to_owned(),
            watched,
            writer,
            failed: BTreeMap::new(),
            stands: BTreeMap::new(),
        }
    }

    /// Sees to new OSDs until its task is ended. A changed resource counts at once, whatever was under way.
    pub(super) async fn see_to(mut self, mut told: watch::Receiver<Arc<CephCluster>>) {
        let mut changes = self.watched.changes();
        loop {
            changes.borrow_and_update();
            let found = told.borrow_and_update().clone();
            self.pulse.works();
            let next = self.pass(&found).await;
            self.pulse.rests();
            let again = async {
                match next {
                    None => std::future::pending().await,
                    Some(after) => tokio::time::sleep(after).await,
                }
            };
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                changed = changes.changed() => if changed.is_err() { return },
                () = again => {}
            }
            tokio::time::sleep(BURST).await;
        }
    }

    /// One look, and after how long there should be another; `None`: when something changes.
    async fn pass(&mut self, found: &CephCluster) -> Option<Duration> {
        if found.metadata.deletion_timestamp.is_some() {
            return None;
        }
        if self.watched.missing_rights().is_some() {
            // What is seen may be old: an OSD that is there may not be seen. The status says so.
            return Some(AGAIN);
        }
        let now = Timestamp::now();
        let nodes = self.watched.nodes();
        let wished = wished(&found.spec.storage, &nodes.keys().cloned().collect());
        let told: BTreeMap<String, Result<NodeStatus, String>> = self
            .watched
            .reports()
            .iter()
            .map(|map| provision::read(map))
            .filter(|(_, told)| !told.as_ref().is_ok_and(|told| told.pvc_backed_osd))
            .collect();
        let jobs = self.jobs(now);
        let known = known(&self.osds());
        let able = nodes.iter().filter(|(_, node)| node.takes_pods);
        let decided = decide(Seen {
            now,
            patience: self.shared.options.prepare_timeout,
            wished: &wished.devices,
            nodes: &able.map(|(name, _)| name.clone()).collect(),
            known: &known,
            jobs: &jobs,
            told: &told,
            failed: &self.failed,
        });
        let Decided {
            acts,
            mut remarks,
            again,
        } = decided;
        let mut wrong = false;
        if !acts.is_empty() {
            match self.shared.replicas_of_rook(&self.namespace).await {
                Ok(0) => {
                    for act in acts {
                        let node = node_of(&act);
                        if let Err(error) = self.carry_out(found, act, now).await {
                            let hint = error.hint.as_ref().map(|hint| format!("; {hint}"));
                            let message = format!("{error}{}", hint.unwrap_or_default());
                            tracing::warn!(%message, "new OSDs");
                            remarks.push(Remark {
                                node,
                                reason: "CannotBeDone",
                                message,
                            });
                            wrong = true;
                        }
                    }
                }
                // The other operator sees to it.
                Ok(_) => return Some(AGAIN),
                Err(error) => {
                    tracing::warn!(%error, "new OSDs cannot be seen to now");
                    wrong = true;
                }
            }
        }
        self.tell(remarks, wished.remarks, jobs.keys());
        let again = again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let soon = wrong.then_some(AGAIN);
        [again, soon].into_iter().flatten().min()
    }

    fn tell<'a>(
        &self,
        remarks: Vec<Remark>,
        not_obeyed: Vec<String>,
        preparing: impl Iterator<Item = &'a String>,
    ) {
        let provisioning = Provisioning {
            preparing: preparing.cloned().collect(),
            remarks,
            not_obeyed,
        };
        let something = (provisioning != Provisioning::default()).then_some(provisioning);
        self.writer.tell(|told| told.provisioning = something);
    }

    fn osds(&self) -> BTreeMap<u32, Arc<Deployment>> {
        let (daemons, _) = self.watched.daemons();
        let osds = daemons
            .into_iter()
            .filter_map(|(unit, deployment)| Some((osd_of(&unit)?, deployment)));
        osds.collect()
    }

    /// The Jobs, and since when each stands as it does.
    fn jobs(&mut self, now: Timestamp) -> BTreeMap<String, Job> {
        let reports = self.watched.reports();
        let mut jobs = BTreeMap::new();
        for object in self.watched.prepare_jobs() {
            let Some(node) = object.labels().get(provision::NODE).cloned() else {
                continue;
            };
            let of_node = reports.iter().filter(|map| provision::read(map).0 == node);
            let marks: Vec<_> = of_node.map(|map| map.resource_version()).collect();
            let mark = format!("{:?} {:?} {marks:?}", object.uid(), object.status);
            let stands = self.stands.entry(node.clone()).or_insert((String::new(), now));
            if stands.0 != mark {
                *stands = (mark, now);
            }
            let state = state_of(&object);
            let progressed = stands.1;
            jobs.insert(node, Job { state, progressed });
        }
        self.stands.retain(|node, _| jobs.contains_key(node));
        jobs
    }

    async fn carry_out(&mut self, found: &CephCluster, act: Act, now: Timestamp) -> Result<(), BackendError> {
        let client = &self.shared.client;
        let jobs: Api<JobObject> = Api::namespaced(client.clone(), &self.namespace);
        match act {
            Act::Create { node, osd } => {
                tracing::info!(osd = osd.id, node, "a new OSD");
                self.create(found, &node, &osd).await
            }
            Act::Note { id, device } => {
                let deployments: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
                let name = format!("rook-ceph-osd-{id}");
                let patch = json!({ "metadata": { "annotations": { provision::DEVICE: device } } });
                let params = PatchParams::default();
                let patch = Patch::Merge(&patch);
                let noted = deployments.patch(&name, &params, &patch);
                let tried = format!("note at Deployment {name} that its device is {device} too");
                noted.await.map(drop).map_err(|error| failed(&tried, &error))
            }
            Act::Settle { node, why } => {
                // The report last: while it is there, no Job is started.
                let name = provision::job_name(&node);
                gone(jobs.delete(&name, &DeleteParams::background()).await, &name)?;
                let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &self.namespace);
                let name = provision::report_name(&node);
                gone(maps.delete(&name, &DeleteParams::default()).await, &name)?;
                self.settled(found, node, why, now);
                Ok(())
            }
            Act::Start { node, devices } => {
                tracing::info!(node, ?devices, "devices are to be prepared");
                self.start(found, &node, &devices).await
            }
        }
    }

    /// What is remembered of a node whose Job is over.
    fn settled(&mut self, found: &CephCluster, node: String, why: Option<String>, now: Timestamp) {
        let Some(why) = why else {
            self.failed.remove(&node);
            return;
        };
        tracing::warn!(node, why, "not all devices could be prepared");
        let nodes = self.watched.nodes().into_keys().collect();
        let mut wished = wished(&found.spec.storage, &nodes).devices;
        let devices = wished.remove(&node).unwrap_or_default();
        let before = self.failed.get(&node).filter(|before| before.devices == devices);
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        let failed = Failed {
            times,
            last: now,
            why,
            devices,
        };
        self.failed.insert(node, failed);
    }

    /// The image for what is new.
    fn image(&self, found: &CephCluster) -> Result<String, BackendError> {
        let wanted = found.spec.ceph_version.image.clone().unwrap_or_default();
        let (daemons, _) = self.watched.daemons();
        let of_kind = |kind: &'static str| {
            daemons
                .iter()
                .filter(move |(unit, _)| crate::daemons::kind_of(unit) == kind)
                .map(|(_, deployment)| deployment.as_ref())
        };
        let image =
            provision::image(&wanted, of_kind("mon"), of_kind("osd")).filter(|image| !image.is_empty());
        image.map(str::to_owned).ok_or_else(|| {
            BackendError::permanent(
                "choose the image of a new OSD",
                "spec.cephVersion.image is not set",
            )
        })
    }

    async fn create(
        &self,
        found: &CephCluster,
        node: &str,
        osd: &provision::OsdInfo,
    ) -> Result<(), BackendError> {
        let tried = format!("make the Deployment of osd.{}", osd.id);
        let secrets: Api<Secret> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        let secret = secrets
            .get(SECRET)
            .await
            .map_err(|error| failed(&tried, &error))?;
        let fsid = secret.data.as_ref().and_then(|data| data.get("fsid"));
        let fsid = fsid.map(|fsid| String::from_utf8_lossy(&fsid.0).trim().to_owned());
        let fsid =
            fsid.ok_or_else(|| BackendError::permanent(&tried, format!("Secret {SECRET} has no fsid")))?;
        let image = self.image(found)?;
        let osds = self.osds();
        let has_it = |osd: &&Arc<Deployment>| crate::ours::template_image(osd, "osd") == Some(image.as_str());
        let labels = self.watched.nodes().remove(node).unwrap_or_default().labels;
        let made = provision::deployment(NewOsd {
            namespace: &self.namespace,
            cluster: &found.name_any(),
            owner: &owner(found),
            fsid: &fsid,
            node,
            labels: &labels,
            osd,
            image: &image,
            sibling: osds.values().find(has_it).map(AsRef::as_ref),
        });
        let api: Api<Deployment> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        create(&api, made, &tried).await
    }

    async fn start(
        &self,
        found: &CephCluster,
        node: &str,
        devices: &BTreeSet<String>,
    ) -> Result<(), BackendError> {
        let tried = format!("have the devices of node {node} prepared");
        let Some(own_image) = &self.shared.options.image else {
            return Err(BackendError::permanent(
                tried,
                "the operator does not know the image that it runs from",
            )
            .hint("start it with --image"));
        };
        let image = self.image(found)?;
        let labels = self.watched.nodes().remove(node).unwrap_or_default().labels;
        let osds = self.osds();
        let job = provision::job(Prepare {
            namespace: &self.namespace,
            owner: &owner(found),
            node,
            labels: &labels,
            devices,
            image: &image,
            own_image,
            own_path: &self.shared.options.program,
            like: &provision::like(osds.values().next().map(AsRef::as_ref)),
        });
        let api: Api<JobObject> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        create(&api, job, &tried).await
    }
}

fn known(osds: &BTreeMap<u32, Arc<Deployment>>) -> BTreeMap<u32, Known> {
    osds.iter()
        .map(|(id, osd)| {
            let known = Known {
                node: provision::node_of(osd),
                devices: provision::devices_of(osd),
            };
            (*id, known)
        })
        .collect()
}

fn node_of(act: &Act) -> String {
    match act {
        Act::Create { node, .. } | Act::Settle { node, .. } | Act::Start { node, .. } => node.clone(),
        Act::Note { .. } => String::new(),
    }
}

fn state_of(job: &JobObject) -> JobState {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    for condition in conditions
        .into_iter()
        .flatten()
        .filter(|one| one.status == "True")
    {
        match condition.type_.as_str() {
            "Complete" => return JobState::Done,
            "Failed" => {
                let why = condition.message.clone().unwrap_or_default();
                return JobState::Failed(format!("Job {}: {why}", job.name_any()));
            }
            _ => {}
        }
    }
    JobState::Runs
}

fn owner(found: &CephCluster) -> Value {
    json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": found.name_any(),
        "uid": found.metadata.uid, "controller": true, "blockOwnerDeletion": true,
    })
}

/// Makes an object; one that is there was made by whom we follow.
async fn create<K>(api: &Api<K>, object: Value, tried: &str) -> Result<(), BackendError>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K =
        serde_json::from_value(object).map_err(|error| BackendError::permanent(tried, error.to_string()))?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
        Err(error) => Err(failed(tried, &error)),
    }
}

/// One that is gone already is gone.
fn gone<T>(deleted: kube::Result<T>, name: &str) -> Result<(), BackendError> {
    match deleted {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(failed(&format!("remove {name}"), &error)),
    }
}
