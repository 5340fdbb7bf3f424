//! Events, metrics and health, and rights that are missing.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::command::run;
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::Plane;
use stagger_e2e::sandbox::Sandbox;

use stagger_e2e::ceph_in_pods::rights_to_provision;

use crate::{NAMESPACE, Operator, PORT, World, deployed};

/// A cluster whose spec says nothing of an image, and something bold.
fn cluster() -> Value {
    json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": { "name": "my-cluster", "namespace": NAMESPACE },
        "spec": { "dataDirHostPath": "/var/lib/rook", "skipUpgradeChecks": true },
    })
}

#[test]
#[ignore = "needs root and Go; cargo xtask test runs it"]
fn events_metrics_health_missing_rights_and_agents() -> Result<()> {
    let folder = Folder::make("operator-", 1_000_000_000)?;
    let sandbox = Sandbox::start(folder.path(), &[])?;
    let plane = Plane::start(&sandbox)?;
    let world = World { sandbox, plane };
    world.begin(&cluster())?;
    world.a_locked_wish_is_not_changed()?;
    rights_to_provision(&world.plane)?;
    world.apply_text(&lesser_role()?)?;
    let config = world.kubeconfig()?;
    let mut operator = Operator::start(&world, "one", &config, &[])?;
    let told = world.rights_are_missed_and_given();
    let told = told.and_then(|()| world.all_is_told());
    let told = told.and_then(|()| world.no_right_is_granted_that_no_role_names());
    let told = told.and_then(|()| world.what_is_not_granted_is_refused());
    let told = told.and_then(|()| world.an_agent_writes_no_other_configmap());
    let told = told.and_then(|()| world.an_agent_writes_of_its_own_node());
    told.with_context(|| format!("the operator's log:\n{}", operator.log()))?;
    // A second one cannot take the same port, and says so.
    let mut second = Operator::start(&world, "two", &config, &[])?;
    let ended = second.ends()?;
    let log = second.log();
    ensure!(
        ended == Some(2) && log.contains(PORT) && log.contains("--metrics"),
        "the second ended with {ended:?}: {log}"
    );
    operator.stop(&world)?;
    world.agents_follow_the_operator(&config)
}

/// The operator's role without a right to nodes.
fn lesser_role() -> Result<String> {
    let text = fs::read_to_string(deployed("operator/rbac.yaml")).context("reading the role")?;
    let less = text.replace("resources: [nodes]", "resources: [namespaces]");
    ensure!(less != text, "the role gives no right to nodes");
    Ok(less)
}

impl World {
    fn rights_are_missed_and_given(&self) -> Result<()> {
        self.wait("the missing right is in the status", || {
            let message = self.status("{.status.message}")?;
            Ok(message.contains("cannot list resource \"nodes\"")
                && message.contains("deploy/operator/rbac.yaml"))
        })?;
        let reason = self.status("{.status.conditions[0].reason}")?;
        ensure!(reason == "MissingRights", "the reason is {reason}");
        let ready = self.get("/readyz")?;
        ensure!(
            ready.contains(" 503 ") && ready.contains("rook-ceph/my-cluster"),
            "{ready}"
        );
        self.plane
            .ask(&["apply", "--server-side", "-f", &deployed("operator/rbac.yaml")])?;
        self.wait("it is ready once the right is there", || {
            Ok(self.get("/readyz")?.contains(" 200 "))
        })?;
        self.wait("something else is in the status then", || {
            Ok(self.status("{.status.message}")?.contains("no image is named"))
        })
    }

    fn all_is_told(&self) -> Result<()> {
        self.wait("Events tell of it", || {
            let events = self.events()?;
            let told = |reason: &str, note: &str| {
                events
                    .iter()
                    .filter(|(found, text)| found == reason && text.contains(note))
                    .count()
            };
            Ok(told("Blocked", "MissingRights: nodes is forbidden") == 1
                && told("Blocked", "NoImage: no image is named") == 1
                && told("ChecksAreSkipped", "skipUpgradeChecks is set") == 1
                && told("FieldRemarked", "") == 0)
        })
        .with_context(|| format!("{:?}", self.events()))?;
        let health = self.get("/healthz")?;
        ensure!(health.contains(" 200 "), "{health}");
        let metrics = self.get("/metrics")?;
        let of = "namespace=\"rook-ceph\",name=\"my-cluster\"";
        for line in [
            "stagger_leader 1.0".to_owned(),
            format!("stagger_cluster_blocked{{{of},reason=\"NoImage\"}} 1.0"),
            "stagger_api_requests_total{verb=\"list\",code=\"403\"}".to_owned(),
            "stagger_api_requests_total{verb=\"create\",code=\"201\"}".to_owned(),
        ] {
            ensure!(metrics.contains(&line), "no {line} in\n{metrics}");
        }
        Ok(())
    }

    /// The answer to a question to the operator, head and body.
    fn get(&self, path: &str) -> Result<String> {
        let ask = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{PORT}; \
             printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
        );
        run(self.sandbox.command("bash").args(["-c", &ask]))
    }
}
