//! The agents' DaemonSet: its spec, and which agent is replaced next.
//!
//! Its pods are replaced only when they are deleted (`OnDelete`). The leading operator does that, node by
//! node, each healthy before the next. [`decide`] chooses the next one from the observed state; no queue is
//! kept.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use semver::Version;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::names::VERSION;
use crate::api::nodes::NodeSeen;

/// The name of the DaemonSet, the label `app` of its pods, and their account.
pub const NAME: &str = "stagger-agent";
/// The annotation of a pod that says what it was made of.
const MADE_OF: &str = "stagger.dev/made-of";
/// The label of the nodes that have an agent, with its value.
const OS: (&str, &str) = ("kubernetes.io/os", "linux");
/// Where agents leave word that all is well; it goes with the pod.
const READY: &str = "/run/stagger";
/// Where the kubelets have the logs of pods.
const POD_LOGS: &str = "/var/log/pods";
/// Where the agents keep what is theirs.
const STATE: &str = "/var/lib/stagger";

/// What agents are to be made of.
#[derive(Debug, Clone)]
pub struct AgentSpec<'a> {
    /// The operator's own namespace.
    pub namespace: &'a str,
    /// The operator's own image.
    pub image: &'a str,
    /// The path of `stagger` in it.
    pub program: &'a str,
    /// The operator's own release.
    pub version: &'a Version,
    /// The namespaces of the pods whose logs are kept; all, if there are none.
    pub logs_of: &'a [String],
    /// The operator's Deployment, as an owner reference.
    pub owner: Option<&'a Value>,
}

/// The DaemonSet, and what its pods are made of in a word.
pub fn daemon_set(of: &AgentSpec<'_>) -> (Value, String) {
    let version = of.version.to_string();
    let mut command = vec![of.program, "agent", "--namespace", of.namespace];
    for namespace in of.logs_of {
        command.extend(["--logs-of", namespace]);
    }
    let probe = [of.program, "agent", "--namespace", of.namespace, "--probe"];
    let host = |name: &str, path: &str, kind: &str| json!({ "name": name, "hostPath": { "path": path, "type": kind } });
    let mount =
        |name: &str, path: &str, read: bool| json!({ "name": name, "mountPath": path, "readOnly": read });
    let mut template = json!({
        "metadata": { "labels": { "app": NAME, VERSION: version } },
        "spec": {
            "serviceAccountName": NAME,
            "nodeSelector": { OS.0: OS.1 },
            // Also where nothing else may be: a node has devices whatever its taints are.
            "tolerations": [{ "operator": "Exists" }],
            "terminationGracePeriodSeconds": 10,
            "containers": [{
                "name": "agent", "image": of.image, "command": command,
                "env": [{ "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
                // Devices are read, and logs are root's.
                "securityContext": { "privileged": true, "runAsUser": 0, "readOnlyRootFilesystem": true },
                // The next node waits for this one: it is asked often at first, and seldom then.
                "startupProbe": {
                    "exec": { "command": probe }, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 600,
                },
                "readinessProbe": { "exec": { "command": probe }, "periodSeconds": 10, "timeoutSeconds": 5 },
                "resources": {
                    "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "256Mi" },
                },
                "volumeMounts": [
                    mount("devices", "/dev", true),
                    mount("pod-logs", POD_LOGS, true),
                    mount("state", STATE, false),
                    mount("ready", READY, false),
                ],
            }],
            "volumes": [
                host("devices", "/dev", "Directory"),
                host("pod-logs", POD_LOGS, "DirectoryOrCreate"),
                host("state", STATE, "DirectoryOrCreate"),
                { "name": "ready", "emptyDir": {} },
            ],
        },
    });
    let [a, b, c, d, ..] = Sha256::digest(template.to_string().as_bytes()).0;
    let made_of = format!("{a:02x}{b:02x}{c:02x}{d:02x}");
    template["metadata"]["annotations"] = json!({ MADE_OF: made_of });
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": NAME, "namespace": of.namespace, "labels": { "app": NAME, VERSION: version },
        },
        "spec": {
            "selector": { "matchLabels": { "app": NAME } },
            "updateStrategy": { "type": "OnDelete" },
            "template": template,
        },
    });
    if let Some(owner) = of.owner {
        set["metadata"]["ownerReferences"] = json!([owner]);
    }
    (set, made_of)
}

/// The release of the agents, by the DaemonSet's label.
pub fn version_of(set: &DaemonSet) -> Option<Version> {
    set.labels().get(VERSION)?.parse().ok()
}

/// What the pods of a DaemonSet are made of from now on.
pub fn template_revision(set: &DaemonSet) -> Option<&String> {
    set.spec
        .template
        .metadata
        .as_ref()?
        .annotations
        .as_ref()?
        .get(MADE_OF)
}

/// An agent as it is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its pod.
    pub pod: String,
    /// The pod's identity, so that no other is taken for it.
    pub uid: String,
    /// Its node.
    pub node: String,
    /// What it was made of.
    made_of: Option<String>,
    ready: bool,
    ending: bool,
}

impl Agent {
    /// What a pod says; none, if it is on no node yet.
    pub fn of(pod: &Pod) -> Option<Self> {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        Some(Self {
            pod: pod.name_any(),
            uid: pod.uid()?,
            node: pod.spec.as_ref()?.node_name.clone()?,
            made_of: pod.annotations().get(MADE_OF).cloned(),
            ready: conditions
                .into_iter()
                .flatten()
                .any(|one| one.type_ == "Ready" && one.status == "True"),
            ending: pod.metadata.deletion_timestamp.is_some(),
        })
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStep {
    /// Nothing.
    Done,
    /// A node is waited for.
    Wait {
        /// Which.
        node: String,
        /// What its agent lacks.
        why: &'static str,
    },
    /// This agent is to go, so that another takes its place.
    Replace(Agent),
}

/// What is to be done about the agents, and how many are as they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDecision {
    /// What comes next.
    pub step: AgentStep,
    /// How many are made of what they should be, and ready.
    pub fresh: usize,
    /// How many there should be.
    pub wanted: usize,
    /// Nodes that are cordoned or not ready, with an agent that is not as it should be: nobody waits for them. They
    /// have their turn once they take pods again.
    pub passed_over: Vec<String>,
}

/// Which agent goes next, if any: only when every other one is ready. One that is of old and not ready goes first;
/// it has nothing to lose, and may be what the new release is to cure.
pub fn decide(nodes: &BTreeMap<String, NodeSeen>, agents: &[Agent], made_of: &str) -> AgentDecision {
    let is_fresh = |agent: &Agent| agent.made_of.as_deref() == Some(made_of);
    let (mut waiting, mut broken, mut old) = (None, None, None);
    let (mut fresh, mut wanted, mut passed_over) = (0, 0, Vec::new());
    for (name, node) in nodes {
        if node.labels.get(OS.0).map(String::as_str) != Some(OS.1) {
            continue;
        }
        wanted += 1;
        let here: Vec<&Agent> = agents.iter().filter(|agent| agent.node == *name).collect();
        let lacks = match here.as_slice() {
            [] => Some("has no agent yet"),
            [only] if !only.ending => match (is_fresh(only), only.ready) {
                (true, true) => {
                    fresh += 1;
                    continue;
                }
                (true, false) => Some("its agent is not ready"),
                (false, _) => None,
            },
            _ => Some("its agent is ending"),
        };
        if !node.takes_pods {
            passed_over.push(name.clone());
            continue;
        }
        match (lacks, here.first()) {
            (Some(why), _) => {
                waiting.get_or_insert((name.clone(), why));
            }
            (None, Some(agent)) if agent.ready => {
                old.get_or_insert_with(|| (*agent).clone());
            }
            (None, Some(agent)) => {
                broken.get_or_insert_with(|| (*agent).clone());
            }
            (None, None) => {}
        }
    }
    let step = match (waiting, broken.or(old)) {
        (Some((node, why)), _) => AgentStep::Wait { node, why },
        (None, Some(agent)) => AgentStep::Replace(agent),
        (None, None) => AgentStep::Done,
    };
    AgentDecision {
        step,
        fresh,
        wanted,
        passed_over,
    }
}

/// How the agents stand, for who has to wait for them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AgentRollout {
    /// Nobody has looked yet.
    #[default]
    Unseen,
    /// There are none, as it is wished or because there is no image for them.
    Without,
    /// They are being brought to this release, or one of them is not well: why it takes longer.
    Rolling {
        /// What is waited for.
        why: String,
        /// How many are as they should be.
        fresh: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// They are as they should be.
    Ready {
        /// How many they are.
        fresh: usize,
        /// Nodes that were passed over.
        passed_over: Vec<String>,
    },
    /// They are of a newer release than the operator.
    Newer(Version),
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    const NEW: &str = "new";

    fn nodes(names: &[&str], out: &[&str]) -> BTreeMap<String, NodeSeen> {
        let one = |name: &&str| {
            let seen = NodeSeen {
                labels: [(OS.0.to_owned(), OS.1.to_owned())].into(),
                takes_pods: !out.contains(name),
            };
            ((*name).to_owned(), seen)
        };
        names.iter().map(one).collect()
    }

    /// `a+`: a new one that is ready, `a-`: one that is not; `a`, `a!`: the same of an old one; `a~`: one that is
    /// ending.
    fn agents(words: &str) -> Vec<Agent> {
        let one = |word: &str| {
            let node = word.trim_end_matches(['+', '-', '!', '~']);
            let mark = &word[node.len()..];
            Agent {
                pod: format!("agent-{node}"),
                uid: word.to_owned(),
                node: node.to_owned(),
                made_of: Some(if matches!(mark, "+" | "-") { NEW } else { "old" }.to_owned()),
                ready: matches!(mark, "+" | "" | "~"),
                ending: mark == "~",
            }
        };
        words.split_whitespace().map(one).collect()
    }

    fn next(words: &str, out: &[&str]) -> String {
        match decide(&nodes(&["a", "b", "c"], out), &agents(words), NEW).step {
            AgentStep::Done => "done".to_owned(),
            AgentStep::Wait { node, why } => format!("{node} {why}"),
            AgentStep::Replace(agent) => format!("replace {}", agent.node),
        }
    }

    #[test]
    fn one_goes_when_all_others_are_ready() {
        for (words, out, expected) in [
            ("", &[][..], "a has no agent yet"),
            ("a+ b+", &[], "c has no agent yet"),
            ("a b c", &[], "replace a"),
            ("a~ b c", &[], "a its agent is ending"),
            ("a~ a- b c", &[], "a its agent is ending"),
            ("b c", &[], "a has no agent yet"),
            ("a- b c", &[], "a its agent is not ready"),
            ("a+ b c", &[], "replace b"),
            ("a+ b+ c", &[], "replace c"),
            ("a+ b+ c+", &[], "done"),
            // What is broken is cured first, one after another too.
            ("a b c!", &[], "replace c"),
            ("a b! c!", &[], "replace b"),
            ("a b- c!", &[], "b its agent is not ready"),
            ("a+ b+ c!", &[], "replace c"),
            // A node that takes no pods is neither waited for nor touched.
            ("a b c", &["a"], "replace b"),
            ("a! b+ c+", &["a"], "done"),
            ("b c+", &["a"], "replace b"),
            ("a- b+ c+", &["a"], "done"),
            ("a~ b+ c+", &["a"], "done"),
            ("a b- c", &["a"], "b its agent is not ready"),
            ("a b c", &["a", "b", "c"], "done"),
        ] {
            assert_eq!(next(words, out), expected, "{words:?} without {out:?}");
        }
    }

    /// From any state: whoever does as it is told ends, and never takes a ready agent away while another is not
    /// ready.
    #[test]
    fn every_state_comes_to_its_end_one_by_one() {
        let marks = ["", "!", "+", "-", "~", "gone"];
        for state in 0..marks.len().pow(3) {
            let words: Vec<String> = ["a", "b", "c"]
                .iter()
                .enumerate()
                .map(|(nth, node)| (node, marks[state / marks.len().pow(nth as u32) % marks.len()]))
                .filter(|(_, mark)| *mark != "gone")
                .map(|(node, mark)| format!("{node}{mark}"))
                .collect();
            let mut now = agents(&words.join(" "));
            let mut steps = 0;
            loop {
                let decided = decide(&nodes(&["a", "b", "c"], &[]), &now, NEW);
                let not_ready = 3 - now.iter().filter(|agent| agent.ready && !agent.ending).count();
                let turned = match decided.step {
                    AgentStep::Done => break assert_eq!((decided.fresh, decided.wanted), (3, 3)),
                    AgentStep::Wait { node, .. } => node,
                    AgentStep::Replace(agent) => {
                        assert!(!agent.ready || not_ready == 0, "{words:?}: {now:?}");
                        agent.node
                    }
                };
                // The controllers and the kubelet do their part.
                now.retain(|agent| agent.node != turned);
                now.extend(agents(&format!("{turned}+")));
                steps += 1;
                assert!(steps <= 3, "{words:?}");
            }
        }
    }

    #[test]
    fn who_is_passed_over_is_named_if_its_agent_is_not_as_it_should_be() {
        let decided = decide(
            &nodes(&["a", "b", "c", "d"], &["a", "b", "d"]),
            &agents("a+ b c+"),
            NEW,
        );
        assert_eq!(decided.passed_over, ["b", "d"]);
        assert_eq!((decided.fresh, decided.wanted), (2, 4));
        let mut other = nodes(&["a"], &[]);
        other.insert("windows".to_owned(), NodeSeen::default());
        assert_eq!(decide(&other, &agents("a+"), NEW).step, AgentStep::Done);
    }

    #[test]
    fn what_agents_are_made_of_follows_image_release_and_words() {
        let (one, two) = (Version::new(0, 1, 0), Version::new(0, 2, 0));
        let owner = json!({ "kind": "Deployment" });
        let wanted = AgentSpec {
            namespace: "n",
            image: "stagger:1",
            program: "/stagger",
            version: &one,
            logs_of: &[],
            owner: None,
        };
        let word = |of: &AgentSpec<'_>| daemon_set(of).1;
        let with = |change: fn(&mut AgentSpec<'_>)| {
            let mut other = wanted.clone();
            change(&mut other);
            word(&other)
        };
        let first = word(&wanted);
        assert_eq!(
            first,
            word(&AgentSpec {
                owner: Some(&owner),
                ..wanted.clone()
            })
        );
        assert_ne!(
            first,
            word(&AgentSpec {
                version: &two,
                ..wanted.clone()
            })
        );
        assert_ne!(first, with(|of| of.image = "stagger:2"));
        let only = ["rook-ceph".to_owned()];
        let logs = AgentSpec {
            logs_of: &only,
            ..wanted.clone()
        };
        assert_ne!(first, word(&logs));

        let set: DaemonSet = serde_json::from_value(daemon_set(&wanted).0).unwrap();
        assert_eq!(
            (template_revision(&set), version_of(&set)),
            (Some(&first), Some(one))
        );
        let template = set.spec.template;
        let pod = Pod {
            metadata: ObjectMeta {
                annotations: template.metadata.unwrap().annotations,
                ..ObjectMeta::default()
            },
            spec: template.spec,
            status: None,
        };
        assert_eq!(Agent::of(&pod), None, "on no node yet");
        let mut pod = pod;
        pod.metadata.uid = Some("u".to_owned());
        pod.spec.as_mut().unwrap().node_name = Some("a".to_owned());
        let agent = Agent::of(&pod).unwrap();
        assert_eq!(
            (agent.made_of, agent.ready, agent.ending),
            (Some(first), false, false)
        );
    }
}
