//! What the operator costs on a large cluster: made, left alone for a minute, drained, upgraded.

mod operator;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stagger_core::model::ClusterName;
use stagger_engine::store::JournalStore as _;
use stagger_rook::api::cluster::CephCluster;
use stagger_rook::api::maintenance::CephMaintenance;
use stagger_rook::journal::{CommandQueue, KubeStore};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use operator::{cpu, memory};

use super::audit;
use super::ceph::Ceph;
use super::deployments::{self, NAMESPACE};
use super::evictions::{self, QUESTIONS};
use super::figures::{Figures, waves};
use super::pod_memory::PodMemory;
use super::socket;
use crate::ceph_in_pods::{rights_to_provision, webhook};
use crate::command::{last_lines, say};
use crate::folder::Folder;
use crate::kubernetes::{Plane, definitions};
use crate::node::{self, Image};
use crate::roots::{self, Release};
use crate::sandbox::Sandbox;

/// Who asks the API server.
const ACCOUNT: &str = "system:serviceaccount:rook-ceph:stagger-operator";
/// The images before and after: of the same release, so it is a revision.
const IMAGES: [&str; 2] = ["quay.io/ceph/ceph:v18.2.7", "quay.io/ceph/ceph:v18.2.7-20261101"];
/// What both say of themselves.
const RELEASE: &str = "ceph version 18.2.7 (6b0e988052ec84cf2d4a54ff9bbbc5e720b621ad) reef (stable)";
/// How often a node is drained.
const DRAINS: usize = 21;
/// Requests are counted for so long while there is nothing to do.
const QUIET: Duration = Duration::from_mins(1);
/// How long one thing may take that should take seconds.
const SOON: Duration = Duration::from_mins(2);
/// How long the whole revision may take.
const LONG: Duration = Duration::from_hours(1);

/// What the part inside the sandbox is told.
#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    /// The administrator's.
    kubeconfig: PathBuf,
    /// The operator's.
    account: PathBuf,
    answers: PathBuf,
    stagger: PathBuf,
    folder: PathBuf,
    audit: PathBuf,
    /// A root with Ceph: its `python3` holds the connections.
    root: PathBuf,
}

/// Makes the cluster, has the figures printed, and takes it down again.
///
/// # Errors
/// A part of it does not start, or does not come to where it should.
pub fn measure(answers: &Path, stagger: &Path) -> Result<()> {
    let folder = Folder::make("rook-bench-", 2_000_000_000)?;
    let root = roots::ensure(&[Release::Tentacle])?
        .pop()
        .context("no root of Ceph 20")?;
    let sandbox = Sandbox::start(folder.path(), &[&root.path])?;
    let plane = Plane::start_audited(&sandbox, Some(ACCOUNT))?;
    let dir = sandbox.dir();
    plane.ask(&["create", "namespace", NAMESPACE])?;
    rights_to_provision(&plane)?;
    webhook(&plane)?;
    definitions::of_rook(&plane)?;
    definitions::ours(&plane)?;
    let objects = dir.join("objects.json");
    fs::write(&objects, objects_of_rook().to_string()).context("writing the objects of Rook")?;
    plane.ask(&["create", "-f", &objects.display().to_string()])?;
    let token = plane.ask(&[
        "create",
        "token",
        "stagger-operator",
        "-n",
        NAMESPACE,
        "--duration=8h",
    ])?;
    let settings = Settings {
        kubeconfig: plane.kubeconfig(),
        account: dir.join("operator.kubeconfig"),
        answers: answers.to_owned(),
        stagger: stagger.to_owned(),
        folder: dir.to_owned(),
        audit: plane.audit(),
        root: root.path,
    };
    let account = plane.kubeconfig_for("stagger-operator", NAMESPACE, token.trim());
    fs::write(&settings.account, account).context("writing the operator's kubeconfig")?;
    let path = dir.join("bench.json");
    fs::write(&path, serde_json::to_vec(&settings)?).context("writing settings")?;
    let program = std::env::current_exe().context("finding this program")?;
    let mut inside = sandbox.command(program);
    let ended = inside.arg("inside").arg(&path).status();
    let ended = ended.context("starting the part inside the sandbox")?;
    ensure!(
        ended.success(),
        "the part inside the sandbox ended with {ended}:\n{}",
        plane.logs_tail()
    );
    Ok(())
}

fn objects_of_rook() -> Value {
    let meta = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("rook-ceph-mon-endpoints"),
            "data": { "data": "a=127.0.0.1:3300" },
        },
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": meta("rook-ceph-mon"),
            "stringData": { "ceph-username": "client.admin", "ceph-secret": "none" },
        },
        {
            "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": meta(NAMESPACE),
            "spec": {
                "cephVersion": { "image": IMAGES[0] },
                "dataDirHostPath": "/var/lib/rook",
                "disruptionManagement": { "managePodBudgets": true },
            },
        },
        {
            "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance", "metadata": meta(NAMESPACE),
            "spec": {
                "cephCluster": NAMESPACE, "manage": ["drains", "updates", "provisioning"],
                "updatePolicy": { "osds": { "grow": false } },
            },
        },
    ] })
}

/// The part inside the sandbox: plays nodes and Ceph, starts the operator, measures.
///
/// # Errors
/// As of [`measure`].
pub async fn inside(settings: &Path) -> Result<()> {
    let text = fs::read(settings).with_context(|| format!("reading {}", settings.display()))?;
    let settings: Settings = serde_json::from_slice(&text).context("reading settings")?;
    let ceph = Ceph::load(&settings.answers)?;
    let file = Kubeconfig::read_from(&settings.kubeconfig).context("reading the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let world = World {
        client: Client::try_from(config).context("connecting to the API server")?,
        places: ceph.places(),
        ceph: Arc::new(Mutex::new(ceph)),
        settings,
    };
    let mut played = JoinSet::new();
    played.spawn(node::run(world.nodes()));
    let listener = UnixListener::bind(world.socket()).context("listening for questions to Ceph")?;
    played.spawn(socket::serve(listener, Arc::clone(&world.ceph)));
    let mut beside = JoinSet::new();
    let measured = tokio::select! {
        measured = world.measure(&mut beside) => measured,
        Some(ended) = played.join_next() => bail!("nodes or Ceph are played no more: {ended:?}"),
    };
    let figures = measured.with_context(|| {
        let log = fs::read(world.settings.folder.join("operator.log")).unwrap_or_default();
        format!(
            "the operator's log:\n{}",
            last_lines(&String::from_utf8_lossy(&log), 40)
        )
    })?;
    let text = serde_json::to_string(&figures)?;
    #[expect(clippy::print_stdout, reason = "the figures are data")]
    {
        println!("{text}");
    }
    Ok(())
}

/// The budgets over OSDs, and how many each lets go.
type Budgets = BTreeMap<String, Option<IntOrString>>;

fn over_osds(most: i32) -> Budgets {
    BTreeMap::from([("rook-ceph-osd".to_owned(), Some(IntOrString::Int(most)))])
}

struct World {
    client: Client,
    settings: Settings,
    places: BTreeMap<u32, (String, String)>,
    ceph: Arc<Mutex<Ceph>>,
}

impl World {
    fn ceph(&self) -> MutexGuard<'_, Ceph> {
        self.ceph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn socket(&self) -> PathBuf {
        self.settings.folder.join("ceph.sock")
    }

    fn hosts(&self) -> BTreeSet<&str> {
        self.places.values().map(|(host, _)| host.as_str()).collect()
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn nodes(&self) -> node::Settings {
        let image = Image {
            played: Some(RELEASE.to_owned()),
            ..Image::default()
        };
        node::Settings {
            kubeconfig: self.settings.kubeconfig.clone(),
            folder: self.settings.folder.join("nodes"),
            nodes: self
                .hosts()
                .into_iter()
                .map(|host| (host.to_owned(), node::Node::default()))
                .collect(),
            images: IMAGES.map(|name| (name.to_owned(), image.clone())).into(),
            pod_networks: false,
        }
    }

    async fn measure(&self, beside: &mut JoinSet<()>) -> Result<Figures> {
        self.deployments().await?;
        let ceph = Arc::clone(&self.ceph);
        let pods = self.api::<Pod>();
        beside.spawn(async move {
            let mut serving: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
            let tell = |pod: &Pod, is_there: bool| {
                let id = pod.labels().get("ceph_daemon_id").and_then(|id| id.parse().ok());
                let Some(osd) = id else { return };
                let pods = serving.entry(osd).or_default();
                if is_there && serves(pod) {
                    pods.insert(pod.name_any());
                } else {
                    pods.remove(&pod.name_any());
                }
                let mut ceph = ceph.lock().unwrap_or_else(PoisonError::into_inner);
                ceph.says(osd, !pods.is_empty());
            };
            follow(pods, "app=rook-ceph-osd", tell).await;
        });
        let ceph = Arc::clone(&self.ceph);
        beside.spawn(async move {
            let mut beat = interval(Duration::from_secs(1));
            loop {
                beat.tick().await;
                ceph.lock().unwrap_or_else(PoisonError::into_inner).next_map();
            }
        });
        let (tell, budgets) = watch::channel(BTreeMap::new());
        let all = self.api::<PodDisruptionBudget>();
        beside.spawn(async move {
            let tell = |budget: &PodDisruptionBudget, is_there: bool| {
                let name = budget.name_any();
                let spec = budget.spec.as_ref();
                let most = spec.and_then(|spec| spec.max_unavailable.clone());
                if name.starts_with("rook-ceph-osd") {
                    tell.send_modify(|all| {
                        all.remove(&name);
                        all.extend(is_there.then_some((name, most)));
                    });
                }
            };
            follow(all, "", tell).await;
        });
        let mut operator = self.operator()?;
        let pid = operator.id().context("the operator has no number")?;
        let pod = PodMemory::begin(pid)?;
        tokio::select! {
            ended = operator.wait() => bail!("the operator ended by itself: {ended:?}"),
            figures = self.figures(pid, &pod, budgets) => figures,
        }
    }

    async fn figures(
        &self,
        pid: u32,
        pod: &PodMemory,
        mut budgets: watch::Receiver<Budgets>,
    ) -> Result<Figures> {
        self.ready(IMAGES[0], SOON).await?;
        self.at_rest(&mut budgets).await?;
        say("a quiet minute");
        sleep(Duration::from_secs(20)).await;
        let begun = Timestamp::now();
        sleep(QUIET).await;
        let mut figures = Figures {
            osds: self.places.len(),
            hosts: self.hosts().len(),
            ..Figures::default()
        };
        figures.quiet(&audit::between(&self.settings.audit, begun, Timestamp::now())?);
        figures.quiet_kb = memory(pid)?;
        figures.pod_kb = pod.peak_kb()?;
        say(format!("{figures:?}"));

        say(format!(
            "{QUESTIONS} evictions are asked about, with the webhook and without"
        ));
        figures.evictions = evictions::measure(&self.client).await?;

        say(format!("{DRAINS} drains"));
        for nth in 0..DRAINS {
            let took = self.drain(nth, &mut budgets).await?;
            say(format!("   {} ms", took.as_millis()));
            figures.blocked_ms.push(took.as_millis());
        }
        figures.drained_kb = memory(pid)?;

        say("a revision");
        let begun = Instant::now();
        let patch = json!({ "spec": { "cephVersion": { "image": IMAGES[1] } } });
        let clusters: Api<CephCluster> = self.api();
        clusters
            .patch(NAMESPACE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .context("asking for the revision")?;
        self.ready(IMAGES[1], LONG).await?;
        figures.took_s = begun.elapsed().as_secs();
        figures.peak_kb = memory(pid)?;
        figures.pod_kb = pod.peak_kb()?;
        figures.cpu_s = cpu(pid)?;
        let name = ClusterName::new(NAMESPACE)?;
        let store = KubeStore::new(&self.client, NAMESPACE, name, CommandQueue::default());
        let runs = store.runs().await.context("reading the journal")?;
        let run = runs.first().context("there is no run")?;
        let waves = waves(&store.journal(&run.run).await.context("reading the journal")?);
        figures.revision(&waves, |from, until| {
            audit::between(&self.settings.audit, from, until)
        })?;
        (figures.most_down, figures.stopped) = self.ceph().worst();
        ensure!(
            figures.stopped == 0,
            "{} placement groups could not serve at some time",
            figures.stopped
        );
        Ok(figures)
    }

    /// Makes all Deployments, and waits until their pods serve.
    async fn deployments(&self) -> Result<()> {
        let mut all = Vec::new();
        for kind in ["mon", "mgr"] {
            for (nth, id) in self.ceph().names(kind).iter().enumerate() {
                all.push(deployments::of(kind, id, &format!("host{nth}"), None, IMAGES[0]));
            }
        }
        for (osd, (host, rack)) in &self.places {
            all.push(deployments::of(
                "osd",
                &osd.to_string(),
                host,
                Some(rack),
                IMAGES[0],
            ));
        }
        let count = all.len();
        say(format!("{count} Deployments"));
        let api: Api<Deployment> = self.api();
        let params = PostParams {
            field_manager: Some("rook".to_owned()),
            ..PostParams::default()
        };
        stream::iter(all)
            .map(|one| async {
                let one = serde_json::from_value(one).context("a Deployment of ours is none")?;
                api.create(&params, &one).await.context("making a Deployment")
            })
            .buffer_unordered(16)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        let begun = Instant::now();
        loop {
            let list = api
                .list(&ListParams::default())
                .await
                .context("listing Deployments")?;
            let ready = |one: &&Deployment| {
                let status = one.status.as_ref();
                status.and_then(|status| status.ready_replicas) == Some(1)
            };
            let ready = list.items.iter().filter(ready).count();
            if ready == count {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < SOON + Duration::from_millis(500) * count as u32,
                "only {ready} of {count} Deployments serve"
            );
            sleep(Duration::from_secs(2)).await;
        }
    }

    /// Waits until every daemon has that image.
    async fn ready(&self, image: &str, limit: Duration) -> Result<()> {
        let maintenances: Api<CephMaintenance> = self.api();
        let (begun, mut last) = (Instant::now(), String::new());
        let mut moved = Instant::now();
        loop {
            let found = maintenances
                .get(NAMESPACE)
                .await
                .context("reading the CephMaintenance")?;
            let status = found.status.unwrap_or_default();
            let (phase, message) = (
                status.phase.unwrap_or_default(),
                status.message.unwrap_or_default(),
            );
            if phase == "Ready" && message.ends_with(image) {
                return Ok(());
            }
            if phase != "Blocked" {
                moved = Instant::now();
            }
            ensure!(moved.elapsed() < SOON, "it is blocked: {message}");
            ensure!(
                begun.elapsed() < limit,
                "not within {} s: {message}",
                limit.as_secs()
            );
            if message != last {
                let shown: String = message.chars().take(160).collect();
                say(format!("   {:6.1} s  {shown}", begun.elapsed().as_secs_f64()));
                last = message;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until there is just one budget over OSDs, and it lets one go.
    async fn at_rest(&self, budgets: &mut watch::Receiver<Budgets>) -> Result<()> {
        wait_for(budgets, "one OSD may be evicted", |there| *there == over_osds(1)).await
    }

    /// Cordons a node, evicts one of its OSDs, and says how long it took until all other nodes were blocked.
    async fn drain(&self, nth: usize, budgets: &mut watch::Receiver<Budgets>) -> Result<Duration> {
        let osd = self.places.keys().nth(nth * self.places.len() / DRAINS);
        let osd = osd.context("there is no OSD")?;
        let node = &self.places[osd].0;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let cordon = async |is: bool| {
            let patch = json!({ "spec": { "unschedulable": is } });
            let params = PatchParams::default();
            nodes
                .patch(node, &params, &Patch::Merge(&patch))
                .await
                .context("a cordon")
        };
        let pods: Api<Pod> = self.api();
        let of_osd = ListParams::default().labels(&format!("app=rook-ceph-osd,ceph_daemon_id={osd}"));
        let pod = pods.list(&of_osd).await.context("looking for a pod")?;
        let pod = pod.items.first().context("an OSD has no pod")?.name_any();
        cordon(true).await?;
        sleep(Duration::from_secs(1)).await;
        let eviction = json!({ "metadata": { "name": pod } });
        let begun = loop {
            let begun = Instant::now();
            let params = PostParams::default();
            match pods
                .create_subresource::<Value, Value>("eviction", &pod, &params, &eviction)
                .await
            {
                Ok(_) => break begun,
                // Its controller has not looked at the budget yet.
                Err(kube::Error::Api(answer)) if answer.code == 429 => {
                    sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error).with_context(|| format!("evicting {pod}")),
            }
        };
        wait_for(budgets, "nothing else may be evicted", |there| {
            *there == over_osds(0)
        })
        .await?;
        let took = begun.elapsed();
        cordon(false).await?;
        self.at_rest(budgets).await?;
        sleep(Duration::from_secs(3)).await;
        Ok(took)
    }
}

async fn wait_for(
    budgets: &mut watch::Receiver<Budgets>,
    what: &str,
    holds: impl FnMut(&Budgets) -> bool,
) -> Result<()> {
    let seen = timeout(SOON, budgets.wait_for(holds))
        .await
        .map(|seen| seen.is_ok());
    if let Ok(true) = seen {
        return Ok(());
    }
    let there: Vec<_> = budgets.borrow().clone().into_iter().take(5).collect();
    bail!("not within {} s: {what}; there are {there:?} …", SOON.as_secs());
}

/// Tells of each object when it is there anew or otherwise than before, and when it is gone.
async fn follow<K>(api: Api<K>, labels: &str, mut tell: impl FnMut(&K, bool))
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().labels(labels);
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(one) | watcher::Event::InitApply(one)) => tell(&one, true),
            Ok(watcher::Event::Delete(one)) => tell(&one, false),
            // What was interrupted goes on by itself.
            Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
        }
    }
}

/// Whether a pod is ready and not on its way out.
fn serves(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let is_ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}
