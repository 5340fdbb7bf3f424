//! Networks of pods that do not ask for that of their node: a namespace for each, behind one bridge.
//!
//! From each of them the sandbox's own addresses can be reached, those of nodes on its loopback among them, and all pods;
//! from the sandbox each pod.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use crate::kubernetes::GATEWAY;

const BRIDGE: &str = "pods";
const PREFIX: u8 = 16;

/// Makes the bridge, inside the sandbox.
pub(super) async fn bridge() -> Result<(), String> {
    ip(&format!("link add {BRIDGE} type bridge")).await?;
    ip(&format!("address add {GATEWAY}/{PREFIX} dev {BRIDGE}")).await?;
    ip(&format!("link set {BRIDGE} up")).await
}

/// The address of the pod of that number: 1 and on.
pub(super) fn address(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(GATEWAY) + u32::from(number))
}

/// Whether a pod has one of its own.
pub(super) fn is_own(pod: &Pod) -> bool {
    let shares = pod.spec.as_ref().and_then(|spec| spec.host_network);
    shares != Some(true)
}

/// The network of a pod that has one of its own. All its containers wait for it, and the first of them makes it.
#[derive(Debug)]
pub(super) struct OwnNetwork {
    /// Its address; none: it shares that of its node.
    address: Option<Ipv4Addr>,
    made: OnceCell<Network>,
}

impl OwnNetwork {
    /// Made when it is first asked for.
    pub(super) fn of(address: Option<Ipv4Addr>) -> Arc<Self> {
        Arc::new(Self {
            address,
            made: OnceCell::new(),
        })
    }

    /// The process whose network it is, if it is one of its own. The error says what the pod waits for.
    pub(super) async fn target(&self) -> Result<Option<String>, String> {
        let Some(address) = self.address else {
            return Ok(None);
        };
        let network = self.made.get_or_try_init(|| Network::make(address)).await?;
        Ok(Some(network.target()))
    }
}

/// The network of one pod. It ends when this is dropped, or with the agent.
#[derive(Debug)]
struct Network {
    /// Holds the namespace, as a pod's pause container does.
    holder: Child,
}

impl Network {
    /// Makes one with that address.
    async fn make(address: Ipv4Addr) -> Result<Self, String> {
        let first = "ip link set lo up; echo ready; exec cat >/dev/null";
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", first])
            // It ends when the pipe closes: with the agent, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("making a network: {error}"))?;
        let said = holder.stdout.take().ok_or("a network without a voice")?;
        let mut line = String::new();
        let read = BufReader::new(said).read_line(&mut line).await;
        if read.is_err() || line.trim() != "ready" {
            return Err("a network could not be made".to_owned());
        }
        let network = Self { holder };
        let target = network.target();
        let [_, _, third, fourth] = address.octets();
        let outer = format!("pod{third}-{fourth}");
        ip(&format!(
            "link add {outer} type veth peer name eth0 netns {target}"
        ))
        .await?;
        ip(&format!("link set {outer} master {BRIDGE} up")).await?;
        for step in [
            format!("address add {address}/{PREFIX} dev eth0"),
            "link set eth0 up".to_owned(),
            format!("route add default via {GATEWAY}"),
        ] {
            let mut inside = Command::new("nsenter");
            inside.args(["--target", &target, "--net", "--", "ip"]);
            run(inside.args(step.split(' '))).await?;
        }
        Ok(network)
    }

    /// The process whose network it is.
    fn target(&self) -> String {
        self.holder.id().unwrap_or_default().to_string()
    }
}

async fn ip(words: &str) -> Result<(), String> {
    run(Command::new("ip").args(words.split(' '))).await
}

async fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{:?}", command.as_std());
    let ended = command.stdin(Stdio::null()).output().await;
    let ended = ended.map_err(|error| format!("{shown}: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(format!(
        "{shown}: {}",
        String::from_utf8_lossy(&ended.stderr).trim()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_pod_has_an_address_after_the_gateway() {
        assert_eq!(address(1), Ipv4Addr::new(10, 30, 0, 2));
        assert_eq!(address(255), Ipv4Addr::new(10, 30, 1, 0));
    }

    #[test]
    fn only_who_asks_shares_the_network_of_its_node() {
        let pod = |spec| serde_json::from_value::<Pod>(json!({ "spec": spec })).unwrap();
        assert!(is_own(&pod(json!({ "containers": [] }))));
        assert!(is_own(&pod(json!({ "containers": [], "hostNetwork": false }))));
        assert!(!is_own(&pod(json!({ "containers": [], "hostNetwork": true }))));
    }
}
