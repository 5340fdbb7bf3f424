//! Prometheus metrics. The page `docs/reference/metrics.md` lists them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use stagger_core::model::Phase;
use stagger_core::run::{Action, Ending, Entry, Event, Run};
use stagger_core::view::RunVerdict;

use crate::agent::daemon_set::AgentRollout;
use crate::observability::status::ClusterStatus;

/// All that the operator counts and measures.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    now: Arc<Now>,
    waves: Family<OfCluster, Counter>,
    units: Family<OfCluster, Counter>,
    rollbacks: Family<OfCluster, Counter>,
    commands: Family<OfCommand, Counter>,
    requests: Family<OfRequest, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfCluster {
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCommand {
    namespace: String,
    name: String,
    command: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequest {
    verb: &'static str,
    code: String,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("stagger");
        let now = Arc::new(Now::default());
        registry.register_collector(Box::new(Arc::clone(&now)));
        let mut counter = |name: &str, help: &str| {
            let family = Family::<OfCluster, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let waves = counter("waves_completed", "Waves that have passed their gates");
        let units = counter(
            "units_restarted",
            "Daemons that were changed, restarted or rolled back",
        );
        let rollbacks = counter("rollbacks", "Runs that were rolled back");
        let commands = Family::default();
        registry.register(
            "ceph_commands",
            "Commands that were sent to Ceph",
            Family::clone(&commands),
        );
        let requests = Family::default();
        registry.register(
            "api_requests",
            "Requests to the Kubernetes API server",
            Family::clone(&requests),
        );
        Self {
            registry,
            now,
            waves,
            units,
            rollbacks,
            commands,
            requests,
        }
    }

    /// As Prometheus takes it.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Whether this operator leads.
    pub(crate) fn leads(&self, leads: bool) {
        self.now.state().leads = leads;
    }

    /// How the agents stand.
    pub(crate) fn agents(&self, stand: &AgentRollout) {
        self.now.state().agents = match stand {
            AgentRollout::Rolling { fresh, wanted, .. } => Some((*fresh, *wanted)),
            AgentRollout::Ready { fresh, passed_over } => Some((*fresh, fresh + passed_over.len())),
            AgentRollout::Unseen | AgentRollout::Without | AgentRollout::Newer(_) => None,
        };
    }

    /// A request to the API server was answered with that code, or not at all.
    pub(crate) fn request(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&OfRequest { verb, code }).inc();
    }

    /// What is measured of a cluster, until that is dropped.
    pub(crate) fn cluster(self: &Arc<Self>, namespace: &str, name: &str) -> ClusterMetrics {
        let cluster = OfCluster {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.now
            .state()
            .clusters
            .insert(cluster.clone(), Cluster::default());
        // What was never counted is 0, not missing.
        for family in [&self.waves, &self.units, &self.rollbacks] {
            drop(family.get_or_create(&cluster));
        }
        ClusterMetrics {
            metrics: Arc::clone(self),
            cluster,
        }
    }
}

/// What is measured of one cluster.
#[derive(Debug)]
pub(crate) struct ClusterMetrics {
    metrics: Arc<Metrics>,
    cluster: OfCluster,
}

impl ClusterMetrics {
    /// Its status is this now.
    pub(crate) fn status(&self, told: &ClusterStatus) {
        self.change(|cluster| {
            cluster.phase.clone_from(&told.phase);
            cluster.reason.clone_from(&told.reason);
            let drains = told.drains.as_ref();
            cluster.draining = drains.map_or(0, |drains| drains.draining.len());
            cluster.waiting = drains.map_or(0, |drains| drains.waiting.len());
        });
    }

    /// A run has come to this.
    pub(crate) fn run(&self, run: &Run, verdict: RunVerdict) {
        let down = run.wave().map_or(0, |wave| {
            wave.units.values().filter(|visit| visit.since.is_some()).count()
        });
        let of_run = RunGauges {
            verdict,
            waves_done: run.waves_passed() as usize,
            waves_left: run
                .plan()
                .filter(|_| run.ended().is_none())
                .map_or(0, stagger_core::plan::Plan::waves),
            down,
            guards: run.guards(),
            held: run.held().map(|(_, since)| since),
        };
        self.change(|cluster| cluster.run = Some(of_run));
    }

    /// A line of a run's journal.
    pub(crate) fn journal(&self, entry: &Entry) {
        let counted = match &entry.event {
            Event::WavePassed => &self.metrics.waves,
            Event::Intent {
                action:
                    Action::Visit {
                        phase: Phase::Change, ..
                    }
                    | Action::Restart { .. }
                    | Action::GoBack { .. },
                ..
            } => &self.metrics.units,
            Event::Ended {
                outcome: Ending::RolledBack { .. },
            } => &self.metrics.rollbacks,
            _ => return,
        };
        counted.get_or_create(&self.cluster).inc();
    }

    /// Ceph was sent a command.
    pub(crate) fn command(&self, command: String, answered: bool) {
        let OfCluster { namespace, name } = self.cluster.clone();
        let outcome = if answered { "answered" } else { "failed" };
        let labels = OfCommand {
            namespace,
            name,
            command,
            outcome,
        };
        self.metrics.commands.get_or_create(&labels).inc();
        if answered {
            self.change(|cluster| cluster.answered = Some(Timestamp::now()));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Cluster)) {
        if let Some(cluster) = self.metrics.now.state().clusters.get_mut(&self.cluster) {
            change(cluster);
        }
    }
}

impl Drop for ClusterMetrics {
    fn drop(&mut self) {
        self.metrics.now.state().clusters.remove(&self.cluster);
    }
}

/// How things are now: what is not so any more is not told any more either.
#[derive(Debug, Default)]
struct Now(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    leads: bool,
    /// How many agents are as they should be, of how many.
    agents: Option<(usize, usize)>,
    clusters: BTreeMap<OfCluster, Cluster>,
}

#[derive(Debug, Default)]
struct Cluster {
    phase: String,
    reason: String,
    draining: usize,
    waiting: usize,
    answered: Option<Timestamp>,
    run: Option<RunGauges>,
}

#[derive(Debug)]
struct RunGauges {
    verdict: RunVerdict,
    waves_done: usize,
    waves_left: usize,
    down: usize,
    guards: usize,
    held: Option<Timestamp>,
}

impl Now {
    fn state(&self) -> MutexGuard<'_, State> {
        // Values that do not depend on each other: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The labels of one value.
type Labels = Vec<(&'static str, String)>;

impl OfCluster {
    fn labels(&self) -> Labels {
        vec![("namespace", self.namespace.clone()), ("name", self.name.clone())]
    }

    fn with(&self, label: &'static str, value: &str) -> Labels {
        let mut labels = self.labels();
        labels.push((label, value.to_owned()));
        labels
    }
}

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.state();
        let clusters = &state.clusters;
        let flag = |holds: bool| f64::from(u8::from(holds));
        let help = "Whether this operator leads";
        let leader = encoder.encode_descriptor("leader", help, None, MetricType::Gauge)?;
        ConstGauge::new(flag(state.leads)).encode(leader)?;
        if let Some((ready, wanted)) = state.agents {
            of_agents(&mut encoder, ready, wanted)?;
        }
        let mut gauge = |name: &str, help: &str, values: Vec<(Labels, f64)>| -> fmt::Result {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in values {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        let each = |value: fn(&Cluster) -> Option<f64>| -> Vec<(Labels, f64)> {
            clusters
                .iter()
                .filter_map(|(of, cluster)| Some((of.labels(), value(cluster)?)))
                .collect()
        };
        let phases = clusters.iter().flat_map(|(of, cluster)| {
            ["Ready", "Progressing", "Blocked"]
                .map(|phase| (of.with("phase", phase), flag(cluster.phase == phase)))
        });
        gauge(
            "cluster_phase",
            "The phase that a cluster is in is 1",
            phases.collect(),
        )?;
        let blocked = clusters.iter().filter(|(_, cluster)| cluster.phase == "Blocked");
        gauge(
            "cluster_blocked",
            "1 while the cluster is blocked, with the reason",
            blocked
                .map(|(of, cluster)| (of.with("reason", &cluster.reason), 1.0))
                .collect(),
        )?;
        gauge(
            "ceph_last_answer_timestamp_seconds",
            "When Ceph last answered outside of runs; a healthy cluster is asked for its status only",
            each(|cluster| cluster.answered.map(seconds)),
        )?;
        gauge(
            "drains",
            "Failure domains that are being emptied, or have OSDs that are down",
            each(|cluster| Some(cluster.draining as f64)),
        )?;
        gauge(
            "drains_waiting",
            "Failure domains with a cordoned node from which nothing may be evicted now",
            each(|cluster| Some(cluster.waiting as f64)),
        )?;
        let verdicts = clusters.iter().filter_map(|(of, cluster)| {
            let verdict = cluster.run.as_ref()?.verdict;
            Some(
                [
                    ("running", RunVerdict::Running),
                    ("held", RunVerdict::Held),
                    ("needs-you", RunVerdict::NeedsYou),
                    ("done", RunVerdict::Done),
                    ("ended", RunVerdict::Ended),
                ]
                .map(|(word, one)| (of.with("verdict", word), flag(one == verdict))),
            )
        });
        gauge(
            "run_verdict",
            "The verdict of the newest run is 1",
            verdicts.flatten().collect(),
        )?;
        gauge(
            "run_held_since_timestamp_seconds",
            "Since when the run is held; absent while it is not",
            each(|cluster| cluster.run.as_ref()?.held.map(seconds)),
        )?;
        gauge(
            "run_waves_done",
            "Waves that the newest run has passed",
            each(|cluster| Some(cluster.run.as_ref()?.waves_done as f64)),
        )?;
        gauge(
            "run_waves_left",
            "Waves that are left in the newest run, the open one included",
            each(|cluster| Some(cluster.run.as_ref()?.waves_left as f64)),
        )?;
        gauge(
            "run_units_down",
            "Daemons of the open wave that are or may be down, and have not passed their gates yet",
            each(|cluster| Some(cluster.run.as_ref()?.down as f64)),
        )?;
        gauge(
            "run_guards",
            "Guards that the run holds in the cluster, as noout",
            each(|cluster| Some(cluster.run.as_ref()?.guards as f64)),
        )
    }
}

fn of_agents(encoder: &mut DescriptorEncoder<'_>, ready: usize, wanted: usize) -> fmt::Result {
    let help = "Agents of this operator's release that are ready";
    let gauge = encoder.encode_descriptor("agents_ready", help, None, MetricType::Gauge)?;
    ConstGauge::new(ready as f64).encode(gauge)?;
    let help = "Nodes that should have an agent";
    let gauge = encoder.encode_descriptor("agents_wanted", help, None, MetricType::Gauge)?;
    ConstGauge::new(wanted as f64).encode(gauge)
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use stagger_core::model::Reason;

    use super::*;
    use crate::observability::status::DrainStatus;

    /// Of a cluster that has done, and is at, all that is measured.
    fn full() -> (Arc<Metrics>, ClusterMetrics) {
        let metrics = Arc::new(Metrics::new());
        metrics.leads(true);
        metrics.agents(&AgentRollout::Rolling {
            why: String::new(),
            fresh: 2,
            wanted: 3,
        });
        metrics.request("list", Some(200));
        metrics.request("patch", None);
        let cluster = metrics.cluster("rook-ceph", "my-cluster");
        cluster.command("osd dump".to_owned(), true);
        cluster.command("osd dump".to_owned(), false);
        cluster.status(&ClusterStatus {
            phase: "Blocked".to_owned(),
            reason: "NeedsAPerson".to_owned(),
            drains: Some(DrainStatus {
                draining: BTreeSet::from(["a".to_owned()]),
                waiting: BTreeSet::from(["b".to_owned(), "c".to_owned()]),
                ..DrainStatus::default()
            }),
            ..ClusterStatus::default()
        });
        cluster.change(|cluster| {
            cluster.run = Some(RunGauges {
                verdict: RunVerdict::NeedsYou,
                waves_done: 3,
                waves_left: 4,
                down: 2,
                guards: 1,
                held: Some(Timestamp::UNIX_EPOCH),
            });
        });
        let entry = |event: serde_json::Value| Entry {
            seq: 9,
            at: Timestamp::UNIX_EPOCH,
            event: serde_json::from_value(event).unwrap(),
        };
        let intent = |action: serde_json::Value| entry(json!({ "event": "intent", "action": action }));
        for phase in ["enter", "change", "leave"] {
            cluster.journal(&intent(
                json!({ "action": "visit", "unit": "osd.1", "phase": phase, "revision": "r" }),
            ));
        }
        cluster.journal(&intent(json!({ "action": "restart", "unit": "osd.1" })));
        cluster.journal(&entry(json!({ "event": "wave-passed" })));
        let reason = serde_json::to_value(Reason::of_backend("unhealthy", "x")).unwrap();
        cluster.journal(&entry(
            json!({ "event": "ended", "outcome": { "ending": "rolled-back", "reason": reason } }),
        ));
        (metrics, cluster)
    }

    #[test]
    fn all_that_is_measured_is_told() {
        let (metrics, cluster) = full();
        let text = metrics.text().unwrap();
        let of = "namespace=\"rook-ceph\",name=\"my-cluster\"";
        for line in [
            "stagger_leader 1.0".to_owned(),
            "stagger_agents_ready 2.0".to_owned(),
            "stagger_agents_wanted 3.0".to_owned(),
            "stagger_api_requests_total{verb=\"list\",code=\"200\"} 1".to_owned(),
            "stagger_api_requests_total{verb=\"patch\",code=\"none\"} 1".to_owned(),
            format!("stagger_ceph_commands_total{{{of},command=\"osd dump\",outcome=\"failed\"}} 1"),
            format!("stagger_cluster_phase{{{of},phase=\"Blocked\"}} 1.0"),
            format!("stagger_cluster_phase{{{of},phase=\"Ready\"}} 0.0"),
            format!("stagger_cluster_blocked{{{of},reason=\"NeedsAPerson\"}} 1.0"),
            format!("stagger_drains{{{of}}} 1.0"),
            format!("stagger_drains_waiting{{{of}}} 2.0"),
            format!("stagger_run_verdict{{{of},verdict=\"needs-you\"}} 1.0"),
            format!("stagger_run_verdict{{{of},verdict=\"running\"}} 0.0"),
            format!("stagger_run_held_since_timestamp_seconds{{{of}}} 0.0"),
            format!("stagger_run_waves_left{{{of}}} 4.0"),
            format!("stagger_units_restarted_total{{{of}}} 2"),
            format!("stagger_waves_completed_total{{{of}}} 1"),
            format!("stagger_rollbacks_total{{{of}}} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        drop(cluster);
        let text = metrics.text().unwrap();
        assert!(!text.contains("stagger_cluster_phase{"), "{text}");
        assert!(text.contains("stagger_waves_completed_total{"), "{text}");
    }

    #[test]
    fn the_page_has_each_metric_and_no_other() {
        let text = full().0.text().unwrap();
        let kinds: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .collect();
        let told: BTreeSet<String> = kinds
            .iter()
            .map(|(name, kind)| match *kind {
                "counter" => format!("{name}_total"),
                _ => (*name).to_owned(),
            })
            .collect();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/metrics.md");
        let page = std::fs::read_to_string(page).unwrap();
        let on_the_page: BTreeSet<String> = page
            .lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
            .collect();
        assert_eq!(told, on_the_page);
    }
}
