//! Gateways as pods of one Deployment, which is how Rook lays out a store with several `instances`: so many replicas,
//! of which one at a time may be missing and none may be too many (`pkg/operator/ceph/object/spec.go`).

use anyhow::{Context, Result};
use serde_json::json;

use super::{CephInPods, NAMESPACE};
use crate::ceph::{Daemon, Kind, rgw_address};

impl CephInPods {
    /// Makes the two gateways one Deployment of two pods, on the nodes and at the addresses that they had, which
    /// Kubernetes updates one after the other.
    ///
    /// # Errors
    /// There are not two of them, the server refuses it, or it is not done within two minutes.
    pub fn gateways_in_one_deployment(&self) -> Result<()> {
        let gateways = self.ceph.spec().daemons(Kind::Rgw);
        let [one, other] = &gateways[..] else {
            anyhow::bail!("there are {} gateways", gateways.len());
        };
        let place = |gateway: &Daemon| super::deployments::place(&self.ceph, gateway);
        let (here, there) = (place(one), place(other));
        let name = format!("rook-ceph-rgw-store-{}", one.id);
        let mut deployment = self.get("deployment", &name)?;
        let deployed = deployment["spec"]["template"]["spec"]["containers"][0]["command"].as_array();
        let words: Vec<&str> = deployed
            .context("a gateway has no command")?
            .iter()
            .filter_map(|word| word.as_str())
            .collect();
        // All nodes have the network and the folder in common: each pod needs an address and a socket of its own.
        let socket = format!("{}/run/gateway-on-$NODE_NAME.asok", self.ceph.dir().display());
        let run = format!(
            "case \"$NODE_NAME\" in {here}) at={};; *) at={};; esac; \
             exec {} --rgw-frontends \"beast endpoint=$at\" --admin-socket \"{socket}\"",
            rgw_address(0),
            rgw_address(1),
            words.join(" "),
        );
        let spec = &mut deployment["spec"];
        spec["replicas"] = json!(2);
        spec["strategy"] = json!({
            "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 },
        });
        let pod = &mut spec["template"]["spec"];
        pod["containers"][0]["command"] = json!(["sh", "-c", run]);
        pod["containers"][0]["startupProbe"]["exec"]["command"] =
            json!(["sh", "-c", format!("test -S \"{socket}\"")]);
        pod["nodeSelector"] = json!(null);
        pod["affinity"] = json!({
            "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
                "matchExpressions": [{
                    "key": "kubernetes.io/hostname", "operator": "In", "values": [here, there],
                }],
            }] } },
            "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": { "matchLabels": { "app": "rook-ceph-rgw" } },
                "topologyKey": "kubernetes.io/hostname",
            }] },
        });
        let single = format!("deployment/rook-ceph-rgw-store-{}", other.id);
        let delete = ["delete", &single, "-n", NAMESPACE, "--cascade=foreground"];
        self.plane.ask(&delete)?;
        self.replace("rook", &deployment)?;
        let rollout = ["rollout", "status", "deployment", &name, "-n", NAMESPACE];
        self.plane
            .ask(&[&rollout[..], &["--timeout=120s"]].concat())
            .context("the two gateways do not run")
            .map(drop)
    }
}
