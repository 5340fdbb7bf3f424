//! Agents on the nodes, which follow the operator's own release.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stagger_e2e::node::{Agent, Image, Node, Settings};
use stagger_e2e::stagger::binary;

use crate::{NAMESPACE, Operator, World};

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

impl World {
    /// Two nodes get an agent each, of the operator's image, and of the next operator's, one after the other. An
    /// operator that is older than the last that ran upgrades touches nothing.
    pub(crate) fn agents_follow_the_operator(&self, config: &Path) -> Result<()> {
        let images = ["stagger:one", "stagger:two"];
        let settings = Settings {
            kubeconfig: self.plane.kubeconfig(),
            folder: self.sandbox.dir().join("nodes"),
            nodes: ["n0", "n1"].map(|name| (name.to_owned(), Node::default())).into(),
            images: images.map(|name| (name.to_owned(), Image::default())).into(),
            pod_networks: false,
        };
        let _nodes = Agent::start(&self.sandbox, &self.plane, Path::new(AGENT), &settings)?;
        let program = format!("--program={}", binary()?.display());
        let start = |name: &str, image: &str, release: &str| {
            let image = format!("--image={image}");
            let release = format!("--version-as={release}");
            Operator::start(self, name, config, &[&image, &program, &release])
        };
        for (name, release, image) in [("three", "98.0.0", images[0]), ("four", "99.0.0", images[1])] {
            let mut operator = start(name, image, release)?;
            let brought = self.wait("every node has an agent of its image", || {
                let agents = self.ready_agents()?;
                ensure!(
                    image == images[0] || !agents.is_empty(),
                    "both agents went at once"
                );
                Ok(agents.len() == 2 && agents.iter().all(|found| found == image))
            });
            brought.with_context(|| operator.log())?;
            ensure!(self.lists_devices("n0")? && self.lists_devices("n1")?);
            if image == images[1] {
                self.plane.ask(&["delete", "node", "n0"])?;
                self.wait("the list of a node that is gone goes too", || {
                    Ok(!self.lists_devices("n0")? && self.lists_devices("n1")?)
                })?;
            }
            operator.stop(self)?;
        }
        self.plane.ask(&[
            "create",
            "configmap",
            "stagger-my-cluster",
            "-n",
            NAMESPACE,
            "--from-literal=operator=99.0.0",
        ])?;
        let mut operator = start("five", images[0], "98.0.0")?;
        let told = self.wait("an older operator says so", || {
            let reason = self.status("{.status.conditions[0].reason}")?;
            let message = self.status("{.status.message}")?;
            Ok(reason == "OperatorTooOld" && message.contains("99.0.0") && message.contains("98.0.0"))
        });
        told.with_context(|| operator.log())?;
        let agents = self.ready_agents()?;
        ensure!(
            !agents.is_empty() && agents.iter().all(|image| image == images[1]),
            "{agents:?}"
        );
        operator.stop(self)
    }

    /// Whether there is a list of the devices of a node.
    fn lists_devices(&self, node: &str) -> Result<bool> {
        let name = format!("configmap/stagger-devices-{node}");
        let found = ["get", &name, "-n", NAMESPACE, "--ignore-not-found", "-o", "json"];
        let found = self.plane.ask(&found)?;
        Ok(found.contains("devices.json") && found.contains(node))
    }

    /// The images of the agents that are ready and not ending.
    fn ready_agents(&self) -> Result<Vec<String>> {
        let words = [
            "get",
            "pods",
            "-n",
            NAMESPACE,
            "-l",
            "app=stagger-agent",
            "-o",
            "json",
        ];
        let list: Value = serde_json::from_str(&self.plane.ask(&words)?)?;
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            pod["metadata"]["deletionTimestamp"].is_null()
                && conditions
                    .into_iter()
                    .flatten()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().map(str::to_owned);
        let pods = list["items"].as_array().context("no list of pods")?;
        Ok(pods.iter().filter(is_ready).filter_map(image).collect())
    }
}
