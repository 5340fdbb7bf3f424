//! The agents' rollout to this operator's release, before any cluster: observes them, decides by
//! [`crate::agent::daemon_set`], and acts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::Value;
use stagger_engine::cluster::BackendError;

use crate::agent::daemon_set::{
    Agent, AgentRollout, AgentSpec, AgentStep, NAME, daemon_set, decide, template_revision, version_of,
};
use crate::agent::node_of;
use crate::api::failed;
use crate::api::names;
use crate::api::names::MANAGER;
use crate::api::nodes::NodeCache;
use crate::api::watches::{Watches, is_synced};
use crate::observability::blocked::Blocked;
use crate::observability::events::{self, EventPublisher};
use crate::reconcile::Shared;
use crate::reconcile::owner;

/// How long changes are gathered before they are looked at together.
const BURST: Duration = Duration::from_millis(100);
/// After something could not be done, it is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// Why a cluster is not upgraded now, as far as that is up to the agents.
pub(crate) fn hold(stand: &AgentRollout, ours: &semver::Version) -> Option<Blocked> {
    let first = |why: &str| {
        Some(Blocked::until_changed(
            "AgentsFirst",
            format!("agents come before clusters: {why}"),
        ))
    };
    match stand {
        AgentRollout::Without | AgentRollout::Ready { .. } => None,
        AgentRollout::Unseen => first("they have not been seen yet"),
        AgentRollout::Rolling { why, fresh, wanted } => first(&format!(
            "{fresh} of {wanted} are of release {ours} and ready; {why}"
        )),
        AgentRollout::Newer(theirs) => Some(Blocked::until_changed(
            "OperatorTooOld",
            format!(
                "the agents are of release {theirs}, and this operator is of {ours}: run {theirs} or a newer one, or \
                 delete DaemonSet {NAME} first"
            ),
        )),
    }
}

/// Sees to the agents until its task is ended.
pub(crate) async fn run(shared: Shared) {
    let Some(image) = shared.options.image.clone().filter(|_| shared.options.agents) else {
        if shared.options.agents {
            tracing::warn!(
                "the image of this operator is not known, so there are no agents; --image says it"
            );
        }
        shared.agents.send_replace(AgentRollout::Without);
        return;
    };
    // Who makes no OSDs needs none.
    let mut provisions = shared.provisions.subscribe();
    if provisions.wait_for(|is| *is).await.is_err() {
        return;
    }
    let mut tend = Tend::new(shared, image);
    let pulse = tend.shared.health.begins("agents");
    let mut changes = tend.watches.changes();
    loop {
        changes.borrow_and_update();
        pulse.begin_work();
        let (stand, again) = match tend.pass().await {
            Ok(stand) => (stand, None),
            Err(error) => {
                let hint = error.hint.as_ref().map(|hint| format!("; {hint}"));
                let why = format!("{error}{}", hint.unwrap_or_default());
                (tend.rolling(why), Some(AGAIN))
            }
        };
        tend.report_rollout(stand);
        pulse.begin_wait();
        let again = async {
            match again {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = again => {}
        }
        tokio::time::sleep(BURST).await;
    }
}

/// What sees to the agents.
struct Tend {
    shared: Shared,
    image: String,
    watches: Watches,
    sets: Store<DaemonSet>,
    pods: Store<Pod>,
    nodes: Arc<NodeCache>,
    /// Once it is known of what object they are.
    events: Option<EventPublisher>,
    /// The nodes that there were when lists of devices were last looked through.
    swept: BTreeSet<String>,
}

impl Tend {
    fn new(shared: Shared, image: String) -> Self {
        let client = &shared.client;
        let namespace = &shared.options.namespace;
        let agents = || watcher::Config::default().labels(&format!("{}={NAME}", names::APP));
        let mut watches = Watches::new();
        let nodes = shared.nodes();
        watches.follow(nodes.changes());
        Self {
            sets: watches.watch(Api::namespaced(client.clone(), namespace), agents()),
            pods: watches.watch(Api::namespaced(client.clone(), namespace), agents()),
            nodes,
            watches,
            shared,
            image,
            events: None,
            swept: BTreeSet::new(),
        }
    }

    /// One look, and one thing done at most.
    async fn pass(&mut self) -> Result<AgentRollout, BackendError> {
        let missing = self.watches.missing_rights();
        if let Some(why) = missing.or_else(|| self.nodes.missing_rights()) {
            return Ok(self.rolling(why));
        }
        if !(is_synced(&self.sets) && is_synced(&self.pods) && self.nodes.is_synced()) {
            return Ok(AgentRollout::Unseen);
        }
        let ours = &self.shared.options.version;
        let set = self.sets.find(|set| set.name_any() == NAME);
        if let Some(theirs) = set.as_deref().and_then(version_of).filter(|theirs| theirs > ours) {
            return Ok(AgentRollout::Newer(theirs));
        }
        let wanted = AgentSpec {
            namespace: &self.shared.options.namespace,
            image: &self.image,
            program: &self.shared.options.program,
            version: ours,
            logs_of: &self.shared.options.watch_namespaces,
            owner: None,
        };
        let (_, word) = daemon_set(&wanted);
        let Some(set) = set.filter(|set| template_revision(set) == Some(&word)) else {
            let owner = owner::reference(&self.shared.client, &self.shared.options.namespace).await?;
            let (object, _) = daemon_set(&AgentSpec {
                owner: owner.as_ref(),
                ..wanted
            });
            self.apply(&object).await?;
            return Ok(self.rolling(format!("DaemonSet {NAME} was written just now")));
        };
        if self.events.is_none() {
            let options = &self.shared.options;
            let object = set.object_ref(&());
            self.events = Some(EventPublisher::new(
                &self.shared.client,
                &options.identity,
                object,
            ));
        }
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        if observed < set.metadata.generation {
            return Ok(self.rolling(format!("the controller of DaemonSet {NAME} has not seen it yet")));
        }
        let agents: Vec<Agent> = self
            .pods
            .state()
            .iter()
            .filter_map(|pod| Agent::of(pod))
            .collect();
        let nodes = self.nodes.all();
        let decided = decide(&nodes, &agents, &word);
        if let Err(error) = self.remove_stale_devices(nodes.into_keys().collect()).await {
            tracing::warn!(%error, "what nodes that are gone have listed may be left");
        }
        let (fresh, wanted) = (decided.fresh, decided.wanted);
        Ok(match decided.step {
            AgentStep::Done => AgentRollout::Ready {
                fresh,
                passed_over: decided.passed_over,
            },
            AgentStep::Wait { node, why } => AgentRollout::Rolling {
                why: format!("node {node} {why}"),
                fresh,
                wanted,
            },
            AgentStep::Replace(agent) => {
                self.replace(&agent).await?;
                AgentRollout::Rolling {
                    why: format!("the agent of node {} is being replaced", agent.node),
                    fresh,
                    wanted,
                }
            }
        })
    }

    /// Something is in the way; how many agents are well is as it was before.
    fn rolling(&self, why: String) -> AgentRollout {
        let (fresh, wanted) = match &*self.shared.agents.borrow() {
            AgentRollout::Rolling { fresh, wanted, .. } => (*fresh, *wanted),
            AgentRollout::Ready { fresh, .. } => (*fresh, *fresh),
            AgentRollout::Unseen | AgentRollout::Without | AgentRollout::Newer(_) => (0, 0),
        };
        AgentRollout::Rolling { why, fresh, wanted }
    }

    async fn apply(&self, object: &Value) -> Result<(), BackendError> {
        let api: Api<DaemonSet> = Api::namespaced(self.shared.client.clone(), &self.shared.options.namespace);
        let params = PatchParams::apply(MANAGER).force();
        let written = api.patch(NAME, &params, &Patch::Apply(object)).await;
        written.map_err(|error| failed(&format!("write DaemonSet {NAME}"), &error))?;
        tracing::info!(image = self.image, version = %self.shared.options.version, "agents are wanted of this");
        Ok(())
    }

    /// Ends an agent, so that the DaemonSet's controller makes another; that one and no other of its name.
    async fn replace(&self, agent: &Agent) -> Result<(), BackendError> {
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.shared.options.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(agent.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(&agent.pod, &params).await {
            Ok(_) => tracing::info!(node = agent.node, pod = agent.pod, "an agent is replaced"),
            // It has gone by itself.
            Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => {}
            Err(error) => return Err(failed(&format!("delete Pod {}", agent.pod), &error)),
        }
        Ok(())
    }

    /// Removes what agents of nodes that are gone have listed. Where the nodes are those of before, nobody is asked.
    async fn remove_stale_devices(&mut self, nodes: BTreeSet<String>) -> Result<(), BackendError> {
        if self.swept == nodes {
            return Ok(());
        }
        let api: Api<ConfigMap> = Api::namespaced(self.shared.client.clone(), &self.shared.options.namespace);
        let lists = ListParams::default().labels(&format!("{}={NAME}", names::APP));
        let lists = api.list(&lists).await;
        let lists = lists.map_err(|error| failed("list the ConfigMaps with devices", &error))?;
        for list in lists {
            if node_of(&list).is_some_and(|node| !nodes.contains(node)) {
                let name = list.name_any();
                match api.delete(&name, &DeleteParams::default()).await {
                    Ok(_) => tracing::info!(name, "its node is gone, and so is it"),
                    Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                    Err(error) => return Err(failed(&format!("delete ConfigMap {name}"), &error)),
                }
            }
        }
        self.swept = nodes;
        Ok(())
    }

    fn report_rollout(&self, stand: AgentRollout) {
        self.shared.metrics.agents(&stand);
        self.shared.agents.send_if_modified(|now| {
            if *now == stand {
                return false;
            }
            tracing::info!(?stand, "agents");
            if let Some(events) = &self.events
                && let Some(news) = events::of_agents(now, &stand)
            {
                events.send(news);
            }
            *now = stand;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_wait_until_the_agents_are_well_and_no_longer() {
        let ours = semver::Version::new(0, 2, 0);
        let told = |stand: &AgentRollout| hold(stand, &ours).map(|blocked| (blocked.reason, blocked.why));
        let ready = AgentRollout::Ready {
            fresh: 3,
            passed_over: vec!["a".to_owned()],
        };
        assert_eq!((told(&AgentRollout::Without), told(&ready)), (None, None));
        let rolling = AgentRollout::Rolling {
            why: "node b has no agent yet".to_owned(),
            fresh: 1,
            wanted: 3,
        };
        let why =
            "agents come before clusters: 1 of 3 are of release 0.2.0 and ready; node b has no agent yet";
        assert_eq!(told(&rolling), Some(("AgentsFirst", why.to_owned())));
        assert_eq!(told(&AgentRollout::Unseen).unwrap().0, "AgentsFirst");
        let (reason, why) = told(&AgentRollout::Newer(semver::Version::new(0, 10, 0))).unwrap();
        assert_eq!(reason, "OperatorTooOld");
        assert!(why.contains("0.10.0") && why.contains("0.2.0"), "{why}");
    }
}
