//! New OSDs: observes nodes, claims, Jobs and reports, decides by [`crate::provision`], and acts.
//!
//! It works beside a run and waits for none: growth takes precedence over updates. If everything wanted
//! exists, no requests are made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1;
use k8s_openapi::api::batch::v1::Job as JobObject;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use stagger_engine::cluster::BackendError;
use tokio::sync::watch;

use crate::api::access::SECRET;
use crate::api::cache::ObjectCache;
use crate::api::cluster::{CephCluster, DeviceSet};
use crate::api::daemons::osd_of;
use crate::api::failed;
use crate::api::maintenance::{Desired, Manage};
use crate::api::objects::Deployment;
use crate::api::rook_operator;
use crate::observability::health::Pulse;
use crate::observability::status::Provisioning;
use crate::observability::writer::StatusWriter;
use crate::provision::{
    self, Act, DeployedOsd, Failed, JobState, JobTarget, NewOsd, NodeReport, On, Owner, Prepare, PrepareJob,
    ProvisioningDecision, ProvisioningState, ProvisioningWarning, claimed, decide, requested_devices,
};
use crate::reconcile::Shared;

/// How long changes are gathered before they are looked at together.
const BURST: Duration = Duration::from_millis(100);
/// After something could not be done, it is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// What sees to the new OSDs of one cluster.
pub(crate) struct Provision {
    shared: Shared,
    namespace: String,
    watched: Arc<ObjectCache>,
    writer: Arc<StatusWriter>,
    /// Where devices could not be prepared.
    failed: BTreeMap<JobTarget, Failed>,
    pulse: Pulse,
    /// What was last seen of each Job and its report, and since when it is so.
    stands: BTreeMap<JobTarget, (String, Timestamp)>,
}

/// What the resource asks for, as things are.
struct DesiredOsds<'a> {
    /// The devices that are to become OSDs.
    devices: BTreeMap<JobTarget, BTreeSet<String>>,
    /// The claims that are to be made.
    claims: Vec<Act>,
    /// The set of each claim.
    sets: BTreeMap<String, &'a DeviceSet>,
    /// Fields that are not obeyed, each in a sentence.
    remarks: Vec<String>,
}

impl<'a> DesiredOsds<'a> {
    /// The set of a claim.
    fn set_of(&self, claim: &str, tried: &str) -> Result<&'a DeviceSet, BackendError> {
        self.sets.get(claim).copied().ok_or_else(|| {
            let why = format!(
                "claim {claim} is not there, or belongs to no set of spec.storage.storageClassDeviceSets that is \
                 obeyed"
            );
            BackendError::transient(tried, why)
        })
    }
}

impl Provision {
    pub(crate) fn new(
        shared: Shared,
        namespace: &str,
        watched: Arc<ObjectCache>,
        writer: Arc<StatusWriter>,
    ) -> Self {
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
    pub(crate) async fn run(mut self, mut told: watch::Receiver<Arc<Desired>>) {
        let mut changes = self.watched.changes();
        loop {
            changes.borrow_and_update();
            let desired = told.borrow_and_update().clone();
            self.pulse.begin_work();
            let next = self.pass(&desired).await;
            self.pulse.begin_wait();
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
    async fn pass(&mut self, desired: &Desired) -> Option<Duration> {
        let found = &desired.cluster;
        if !desired.manages(Manage::Provisioning) {
            self.report_rook_conflict(None);
            self.report(Vec::new(), Vec::new(), std::iter::empty());
            return None;
        }
        if self.watched.missing_rights().is_some() {
            // What is seen may be old: an OSD that is there may not be seen. The status says so.
            return Some(AGAIN);
        }
        let now = Timestamp::now();
        let nodes = self.watched.nodes();
        let known = deployed_osds(&self.osds());
        let mut wished = self.desired_osds(found, &known);
        let reports = self.watched.reports();
        let told: BTreeMap<JobTarget, Result<NodeReport, String>> =
            reports.iter().map(|map| provision::read(map)).collect();
        let jobs = self.jobs(now);
        let able = nodes.iter().filter(|(_, node)| node.takes_pods);
        let decided = decide(ProvisioningState {
            now,
            patience: self.shared.options.prepare_timeout,
            wished: &wished.devices,
            nodes: &able.map(|(name, _)| name.clone()).collect(),
            known: &known,
            jobs: &jobs,
            told: &told,
            failed: &self.failed,
        });
        let ProvisioningDecision {
            mut acts,
            mut remarks,
            again,
        } = decided;
        acts.append(&mut wished.claims);
        let kept = if acts.is_empty() {
            None
        } else {
            self.rook_conflict().await
        };
        let mut wrong = kept.is_some();
        self.report_rook_conflict(kept);
        if !wrong {
            for act in acts {
                let at = act.at().clone();
                if let Err(error) = self.carry_out(found, &wished, act, now).await {
                    let message = with_hint(&error);
                    tracing::warn!(%message, "new OSDs");
                    let reason = "CannotBeDone";
                    remarks.push(ProvisioningWarning { at, reason, message });
                    wrong = true;
                }
            }
        }
        self.report(remarks, wished.remarks, jobs.keys());
        let again = again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let soon = wrong.then_some(AGAIN);
        [again, soon].into_iter().flatten().min()
    }

    /// Why Rook's operator, which is to run or of which nobody can tell, keeps new OSDs from being made here.
    async fn rook_conflict(&self) -> Option<String> {
        let running = rook_operator::running(&self.shared.client, &self.namespace, &self.watched).await;
        running.unwrap_or_else(|error| {
            tracing::warn!(%error, "new OSDs cannot be managed now");
            Some(with_hint(&error))
        })
    }

    /// The reason is the key as well: another reason is news.
    fn report_rook_conflict(&self, kept: Option<String>) {
        let why = kept.map(|why| format!("provisioning is managed here: {why}"));
        let troubles = why.map(|why| (why.clone(), why));
        self.writer
            .set_problems("ProvisioningBesideRook", troubles.into_iter().collect());
    }

    fn report<'a>(
        &self,
        remarks: Vec<ProvisioningWarning>,
        not_obeyed: Vec<String>,
        preparing: impl Iterator<Item = &'a JobTarget>,
    ) {
        let provisioning = Provisioning {
            preparing: preparing.map(|at| at.name().to_owned()).collect(),
            remarks,
            not_obeyed,
        };
        let something = (provisioning != Provisioning::default()).then_some(provisioning);
        self.writer.update(|told| told.provisioning = something);
    }

    fn desired_osds<'a>(
        &self,
        found: &'a CephCluster,
        known: &BTreeMap<u32, DeployedOsd>,
    ) -> DesiredOsds<'a> {
        let storage = &found.spec.storage;
        let of_nodes = requested_devices(storage, &self.watched.nodes().into_keys().collect());
        let with_osd = known.values().filter_map(|osd| match &osd.at {
            Some(JobTarget::Claim(claim)) => Some(claim.clone()),
            Some(JobTarget::Node(_)) | None => None,
        });
        let sets = storage.storage_class_device_sets.as_deref().unwrap_or_default();
        let uid = found.metadata.uid.as_deref().unwrap_or_default();
        let namespace = &self.namespace;
        let claims = self.watched.claims();
        let of_claims = claimed(sets, &claims, &with_osd.collect(), Owner { namespace, uid });
        let nodes = of_nodes.devices.into_iter();
        let nodes = nodes.map(|(node, devices)| (JobTarget::Node(node), devices));
        let claims = of_claims.wished.into_iter().map(|claim| {
            let path = provision::claim_path(&claim);
            (JobTarget::Claim(claim), BTreeSet::from([path]))
        });
        let make = of_claims.make.into_iter().map(|(name, object)| {
            let at = JobTarget::Claim(name);
            Act::Claim { at, object }
        });
        DesiredOsds {
            devices: nodes.chain(claims).collect(),
            claims: make.collect(),
            sets: of_claims.sets,
            remarks: of_nodes.remarks.into_iter().chain(of_claims.remarks).collect(),
        }
    }

    fn osds(&self) -> BTreeMap<u32, Arc<Deployment>> {
        let (daemons, _) = self.watched.daemons();
        let osds = daemons
            .into_iter()
            .filter_map(|(unit, deployment)| Some((osd_of(&unit)?, deployment)));
        osds.collect()
    }

    /// The Jobs, and since when each stands as it does.
    fn jobs(&mut self, now: Timestamp) -> BTreeMap<JobTarget, PrepareJob> {
        let reports = self.watched.reports();
        let mut jobs = BTreeMap::new();
        for object in self.watched.prepare_jobs() {
            let Some(at) = provision::job_at(&object) else {
                continue;
            };
            let own = reports.iter().filter(|map| provision::read(map).0 == at);
            let marks: Vec<_> = own.map(|map| map.resource_version()).collect();
            let mark = format!("{:?} {:?} {marks:?}", object.uid(), object.status);
            let stands = self.stands.entry(at.clone()).or_insert((String::new(), now));
            if stands.0 != mark {
                *stands = (mark, now);
            }
            let state = job_state(&object);
            let progressed = stands.1;
            jobs.insert(at, PrepareJob { state, progressed });
        }
        self.stands.retain(|at, _| jobs.contains_key(at));
        jobs
    }

    async fn carry_out(
        &mut self,
        found: &CephCluster,
        wished: &DesiredOsds<'_>,
        act: Act,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        let client = &self.shared.client;
        let jobs: Api<JobObject> = Api::namespaced(client.clone(), &self.namespace);
        match act {
            Act::Create { at, osd } => {
                tracing::info!(osd = osd.id, %at, "a new OSD");
                self.create(found, wished, &at, &osd).await
            }
            Act::Note { id, device, .. } => {
                let deployments: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
                let name = format!("rook-ceph-osd-{id}");
                let patch = json!({ "metadata": { "annotations": { provision::DEVICE: device } } });
                let params = PatchParams::default();
                let patch = Patch::Merge(&patch);
                let noted = deployments.patch(&name, &params, &patch);
                let tried = format!("note at Deployment {name} that its device is {device} too");
                noted.await.map(drop).map_err(|error| failed(&tried, &error))
            }
            Act::Settle { at, why } => {
                // The report last: while it is there, no Job is started.
                let name = provision::job_name(&at);
                ignore_not_found(jobs.delete(&name, &DeleteParams::background()).await, &name)?;
                let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &self.namespace);
                let name = provision::report_name(&at);
                ignore_not_found(maps.delete(&name, &DeleteParams::default()).await, &name)?;
                self.job_finished(wished, at, why, now);
                Ok(())
            }
            Act::Start { at, devices } => {
                tracing::info!(%at, ?devices, "devices are to be prepared");
                self.start(found, wished, &at, &devices).await
            }
            Act::Claim { at, object } => {
                tracing::info!(%at, "a volume is asked for");
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &self.namespace);
                create(&claims, object, &format!("make {at}")).await
            }
        }
    }

    /// What is remembered once a Job is over.
    fn job_finished(&mut self, wished: &DesiredOsds<'_>, at: JobTarget, why: Option<String>, now: Timestamp) {
        let Some(why) = why else {
            self.failed.remove(&at);
            return;
        };
        tracing::warn!(%at, why, "not all devices could be prepared");
        let devices = wished.devices.get(&at).cloned().unwrap_or_default();
        let before = self.failed.get(&at).filter(|before| before.devices == devices);
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        let failed = Failed {
            times,
            last: now,
            why,
            devices,
        };
        self.failed.insert(at, failed);
    }

    /// The image for what is new.
    fn image(&self, found: &CephCluster) -> Result<String, BackendError> {
        let wanted = found.spec.ceph_version.image.clone().unwrap_or_default();
        let (daemons, _) = self.watched.daemons();
        let of_kind = |kind: &'static str| {
            daemons
                .iter()
                .filter(move |(unit, _)| crate::api::daemons::kind_of(unit) == kind)
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
        wished: &DesiredOsds<'_>,
        at: &JobTarget,
        osd: &provision::OsdInfo,
    ) -> Result<(), BackendError> {
        let tried = format!("make the Deployment of osd.{}", osd.id);
        let osds = self.osds();
        let mut nodes = self.watched.nodes();
        let (node, labels, claim) = match at {
            JobTarget::Node(node) => (node, nodes.remove(node).unwrap_or_default().labels, None),
            JobTarget::Claim(claim) => {
                let set = wished.set_of(claim, &tried)?;
                let node = nodes.remove(&osd.node).ok_or_else(|| {
                    let why = format!("{at} was prepared on node {:?}, which is not there", osd.node);
                    BackendError::transient(&tried, why)
                })?;
                (&osd.node, node.labels, Some((claim.as_str(), set)))
            }
        };
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
        let has_it = |osd: &&Deployment| {
            crate::executor::managed_fields::template_image(osd, "osd") == Some(image.as_str())
        };
        let made = provision::deployment(NewOsd {
            namespace: &self.namespace,
            cluster: &found.name_any(),
            owner: &owner(found),
            fsid: &fsid,
            node,
            labels: &labels,
            claim,
            osd,
            image: &image,
            sibling: nearest(osds.values().map(AsRef::as_ref).filter(has_it), at),
        });
        let api: Api<v1::Deployment> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        create(&api, made, &tried).await
    }

    async fn start(
        &self,
        found: &CephCluster,
        wished: &DesiredOsds<'_>,
        at: &JobTarget,
        devices: &BTreeSet<String>,
    ) -> Result<(), BackendError> {
        let tried = format!("have the devices of {at} prepared");
        let Some(own_image) = &self.shared.options.image else {
            return Err(BackendError::permanent(
                tried,
                "the operator does not know the image that it runs from",
            )
            .hint("start it with --image"));
        };
        let image = self.image(found)?;
        let osds = self.osds();
        let labels;
        let on = match at {
            JobTarget::Node(name) => {
                labels = self.watched.nodes().remove(name).unwrap_or_default().labels;
                On::Node {
                    name,
                    labels: &labels,
                    devices,
                }
            }
            JobTarget::Claim(name) => {
                let set = wished.set_of(name, &tried)?;
                On::Claim { name, set }
            }
        };
        let job = provision::job(Prepare {
            namespace: &self.namespace,
            owner: &owner(found),
            on,
            image: &image,
            own_image,
            own_path: &self.shared.options.program,
            like: &provision::common_fields(nearest(osds.values().map(AsRef::as_ref), at)),
        });
        let api: Api<JobObject> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        self.make_room(&api, &provision::job_name(at), &tried).await?;
        create(&api, job, &tried).await
    }

    /// Removes a Job of that name that Rook has left, which is over.
    async fn make_room(&self, api: &Api<JobObject>, name: &str, tried: &str) -> Result<(), BackendError> {
        let jobs = self.watched.prepare_jobs();
        let Some(left) = jobs.iter().find(|job| job.name_any() == name) else {
            return Ok(());
        };
        if job_state(left) == JobState::Runs {
            let why = format!("Job {name}, which stagger did not create, is still running");
            return Err(BackendError::transient(tried, why).hint("delete it, if it is not needed"));
        }
        ignore_not_found(api.delete(name, &DeleteParams::background()).await, name)
    }
}

/// An OSD that a new one is made like: best one that is on a claim as well, or on a node's device.
fn nearest<'a>(osds: impl Iterator<Item = &'a Deployment>, at: &JobTarget) -> Option<&'a Deployment> {
    let on_claim = |at: Option<&JobTarget>| matches!(at, Some(JobTarget::Claim(_)));
    osds.min_by_key(|osd| on_claim(provision::osd_location(osd).as_ref()) != on_claim(Some(at)))
}

fn deployed_osds(osds: &BTreeMap<u32, Arc<Deployment>>) -> BTreeMap<u32, DeployedOsd> {
    osds.iter()
        .map(|(id, osd)| {
            let known = DeployedOsd {
                at: provision::osd_location(osd),
                devices: provision::devices_of(osd),
            };
            (*id, known)
        })
        .collect()
}

fn job_state(job: &JobObject) -> JobState {
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
        "uid": found.metadata.uid, "controller": true,
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

fn with_hint(error: &BackendError) -> String {
    let hint = error.hint.as_ref().map(|hint| format!("; {hint}"));
    format!("{error}{}", hint.unwrap_or_default())
}

/// One that is gone already is gone.
fn ignore_not_found<T>(deleted: kube::Result<T>, name: &str) -> Result<(), BackendError> {
    match deleted {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(failed(&format!("remove {name}"), &error)),
    }
}
