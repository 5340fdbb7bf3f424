//! The operator's account may do what its roles say, and nothing else.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{NAMESPACE, World};

/// A namespace that nobody watches.
const ELSEWHERE: &str = "default";
const ACCOUNT: &str = "system:serviceaccount:rook-ceph:stagger-operator";
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
/// Beside all that can be listed.
const MORE: [(&str, &str, &str); 8] = [
    ("", "pods", "exec"),
    ("", "pods", "log"),
    ("", "pods", "eviction"),
    ("", "nodes", "proxy"),
    ("", "serviceaccounts", "token"),
    ("apps", "deployments", "scale"),
    ("ceph.rook.io", "cephclusters", "status"),
    ("stagger.dev", "cephmaintenances", "status"),
];

/// A verb on a resource in a namespace: group, resource with its subresource, namespace, verb.
type Right = (String, String, String, String);

impl World {
    /// Every verb on every resource is asked for, where the clusters are and elsewhere.
    pub(crate) fn no_right_is_granted_that_no_role_names(&self) -> Result<()> {
        let granted = self.granted()?;
        let allowed = self.allowed()?;
        let beyond: Vec<&Right> = allowed.difference(&granted).collect();
        ensure!(beyond.is_empty(), "it may do more than its roles say: {beyond:?}");
        let missing: Vec<&Right> = granted.difference(&allowed).collect();
        ensure!(
            missing.is_empty(),
            "it may not do what its roles say: {missing:?}"
        );
        for (group, resource, verb) in [
            // Rook's to write.
            ("ceph.rook.io", "cephclusters/status", "patch"),
            ("apiextensions.k8s.io", "customresourcedefinitions", "patch"),
            ("", "secrets", "list"),
            ("", "pods/exec", "create"),
            ("", "nodes", "patch"),
            ("apps", "deployments/scale", "patch"),
        ] {
            for namespace in [NAMESPACE, ELSEWHERE] {
                let right = [group, resource, namespace, verb].map(str::to_owned);
                ensure!(!allowed.contains(&right.clone().into()), "it may {right:?}");
            }
        }
        let elsewhere = allowed
            .iter()
            .filter(|(_, _, namespace, _)| namespace == ELSEWHERE);
        let resources: BTreeSet<&str> = elsewhere.map(|(_, resource, _, _)| resource.as_str()).collect();
        let whole_cluster = [
            "cephclusters",
            "cephmaintenances",
            "cephmaintenances/status",
            "nodes",
        ];
        ensure!(
            resources == BTreeSet::from(whole_cluster),
            "elsewhere it may {resources:?}"
        );
        Ok(())
    }

    /// What no role names is tried, as the account itself would.
    pub(crate) fn what_is_not_granted_is_refused(&self) -> Result<()> {
        let status = r#"{"status":{"phase":"Ready"}}"#;
        let tries: [&[&str]; 16] = [
            &["get", "secret", "another", "-n", NAMESPACE],
            &["get", "secrets", "-n", NAMESPACE],
            &["get", "--raw", "/api/v1/namespaces/rook-ceph/secrets?watch=1"],
            &["get", "pods", "-n", ELSEWHERE],
            &["get", "deployments", "--all-namespaces"],
            &["get", "--raw", "/api/v1/nodes/n0/proxy/pods"],
            &["create", "configmap", "x", "-n", ELSEWHERE],
            &["create", "token", "default", "-n", NAMESPACE],
            &[
                "create",
                "clusterrolebinding",
                "x",
                "--clusterrole=cluster-admin",
                "--user=x",
            ],
            &[
                "replace",
                "--raw",
                "/api/v1/namespaces/rook-ceph/pods/x/status",
                "-f",
                "/dev/null",
            ],
            &[
                "patch",
                "cephcluster",
                "my-cluster",
                "-n",
                NAMESPACE,
                "--subresource=status",
                "--type=merge",
                "-p",
                status,
            ],
            &[
                "patch",
                "crd",
                "cephclusters.ceph.rook.io",
                "--type=merge",
                "-p",
                "{}",
            ],
            &["patch", "node", "n0", "--type=merge", "-p", "{}"],
            &["delete", "cephcluster", "my-cluster", "-n", NAMESPACE],
            &["delete", "crd", "cephmaintenances.stagger.dev"],
            &["delete", "--raw", "/api/v1/namespaces/rook-ceph/configmaps"],
        ];
        for words in tries {
            match self.plane.ask(&[words, &["--as", ACCOUNT]].concat()) {
                Ok(said) => bail!("it may {words:?}: {said}"),
                Err(error) => {
                    let error = format!("{error:#}");
                    ensure!(error.contains("forbidden"), "{words:?}: {error}");
                }
            }
        }
        Ok(())
    }

    /// An agent writes down the devices of its own node, a pod that prepares devices what came of it, and neither a journal.
    pub(crate) fn an_agent_writes_no_other_configmap(&self) -> Result<()> {
        for (account, why) in [
            ("stagger-agent", "of its own node alone"),
            ("stagger-osd-prepare", "reports of devices alone"),
        ] {
            let account = format!("system:serviceaccount:{NAMESPACE}:{account}");
            let words = [
                "create",
                "configmap",
                "stagger-my-cluster-x",
                "-n",
                NAMESPACE,
                "--as",
                &account,
            ];
            match self.plane.ask(&words) {
                Ok(_) => bail!("{account} wrote a journal"),
                Err(error) => {
                    let error = format!("{error:#}");
                    ensure!(error.contains(why), "{error}");
                }
            }
        }
        Ok(())
    }

    /// An agent is known by the node of its pod, which the API server has put into its token.
    pub(crate) fn an_agent_writes_of_its_own_node(&self) -> Result<()> {
        let account = format!("system:serviceaccount:{NAMESPACE}:stagger-agent");
        let of_n0 = "authentication.kubernetes.io/node-name=n0";
        let as_agent = ["--as", account.as_str(), "--as-user-extra", of_n0];
        let journal = "stagger-my-cluster-journal";
        self.plane
            .ask(&["create", "configmap", journal, "-n", NAMESPACE])?;
        // Made, and written again; another one is neither.
        let own = "stagger-devices-n0";
        for (name, may) in [
            (own, true),
            (own, true),
            ("stagger-devices-n1", false),
            (journal, false),
        ] {
            let text = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: {NAMESPACE} }}\ndata: {{ a: b }}\n"
            );
            let file = self.sandbox.dir().join("written-by-an-agent.yaml");
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
            let file = file.display().to_string();
            // Nothing is read before it is written: an agent may not.
            let words = [
                "apply",
                "--server-side",
                "--force-conflicts",
                "--validate=false",
                "-f",
                &file,
            ];
            match (self.plane.ask(&[&words, &as_agent[..]].concat()), may) {
                (Ok(_), true) => {}
                (Ok(said), false) => bail!("the agent of n0 may write {name}: {said}"),
                (Err(error), true) => {
                    return Err(error.context(format!("the agent of n0 may not write {name}")));
                }
                (Err(error), false) => {
                    let error = format!("{error:#}");
                    ensure!(error.contains("of its own node alone"), "{name}: {error}");
                }
            }
        }
        for name in [own, journal] {
            self.plane.ask(&["delete", "configmap", name, "-n", NAMESPACE])?;
        }
        Ok(())
    }

    /// What the roles of the account say.
    fn granted(&self) -> Result<BTreeSet<Right>> {
        let mut granted = BTreeSet::new();
        let rules = |words: &[&str]| -> Result<Vec<Value>> {
            let list: Value = serde_json::from_str(&self.plane.ask(words)?)?;
            let items = list["items"].as_array().context("no list of roles")?;
            Ok(items
                .iter()
                .filter_map(|role| role["rules"].as_array().cloned())
                .flatten()
                .collect())
        };
        let own = [
            "get",
            "role",
            "stagger-operator",
            "stagger-cluster",
            "stagger-provisioning",
        ];
        let own = rules(&[&own[..], &["-n", NAMESPACE, "-o", "json"]].concat())?;
        let mut add = |rules: &[Value], namespace: &str| {
            let texts = |value: &Value| -> Vec<String> {
                let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                texts.map(str::to_owned).collect()
            };
            // A right to one object is none to all of them.
            for rule in rules.iter().filter(|rule| rule["resourceNames"].is_null()) {
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        for verb in texts(&rule["verbs"]) {
                            granted.insert((group.clone(), resource.clone(), namespace.to_owned(), verb));
                        }
                    }
                }
            }
        };
        add(&own, NAMESPACE);
        // kubectl gives one object as itself.
        let whole = ["get", "clusterrole", "stagger-operator", "-o", "json"];
        let whole: Value = serde_json::from_str(&self.plane.ask(&whole)?)?;
        let whole = whole["rules"].as_array().context("a ClusterRole without rules")?;
        add(whole, NAMESPACE);
        add(whole, ELSEWHERE);
        Ok(granted)
    }

    /// What the API server lets it do.
    fn allowed(&self) -> Result<BTreeSet<Right>> {
        let listed = self
            .plane
            .ask(&["api-resources", "--verbs=list", "-o", "name", "--no-headers"])?;
        let named = listed.lines().map(|name| {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            (group, resource, "")
        });
        let mut reviews = Vec::new();
        for (group, resource, subresource) in named.chain(MORE) {
            for namespace in [NAMESPACE, ELSEWHERE] {
                for verb in VERBS {
                    reviews.push(json!({
                        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                        "spec": {
                            "user": ACCOUNT,
                            "groups": ["system:serviceaccounts", "system:serviceaccounts:rook-ceph", "system:authenticated"],
                            "resourceAttributes": {
                                "group": group, "resource": resource, "subresource": subresource,
                                "namespace": namespace, "verb": verb,
                            },
                        },
                    }));
                }
            }
        }
        let asked = reviews.len();
        let path = self.sandbox.dir().join("reviews.json");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": reviews });
        std::fs::write(&path, list.to_string()).context("writing questions")?;
        let answers = self
            .plane
            .ask(&["create", "-o", "json", "-f", &path.display().to_string()])?;
        // One after another, and no list.
        let answers = serde_json::Deserializer::from_str(&answers).into_iter::<Value>();
        let answers = answers
            .collect::<Result<Vec<Value>, _>>()
            .context("reading the answers")?;
        ensure!(
            answers.len() == asked,
            "{} answers to {asked} questions",
            answers.len()
        );
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let right = |answer: &Value| {
            let of = &answer["spec"]["resourceAttributes"];
            let resource = match text(&of["subresource"]) {
                none if none.is_empty() => text(&of["resource"]),
                part => format!("{}/{part}", text(&of["resource"])),
            };
            (
                text(&of["group"]),
                resource,
                text(&of["namespace"]),
                text(&of["verb"]),
            )
        };
        let yes = answers
            .iter()
            .filter(|answer| answer["status"]["allowed"] == true);
        Ok(yes.map(right).collect())
    }
}
