//! What the operator costs: while there is nothing to do, and when it is not wanted any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph_in_pods::{CephInPods, NAMESPACE, Operator};
use stagger_e2e::command::{run, say};
use stagger_e2e::roots::Release;

use crate::{ask_for, on_18};

const PORT: &str = "19283";
/// Requests are counted for so long.
const WHILE: Duration = Duration::from_mins(1);

/// Requests to the API server so far, by verb.
fn requests(cluster: &CephInPods) -> Result<BTreeMap<String, f64>> {
    let ask = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{PORT}; \
         printf 'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let text = run(cluster.ceph.sandbox().command("bash").args(["-c", &ask]))?;
    let mut by_verb = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("stagger_api_requests_total{") else {
            continue;
        };
        let verb = rest
            .split("verb=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let count = rest
            .rsplit(' ')
            .next()
            .and_then(|count| count.parse::<f64>().ok());
        let (verb, count) = verb
            .zip(count)
            .with_context(|| format!("not understood: {line}"))?;
        *by_verb.entry(verb.to_owned()).or_default() += count;
    }
    ensure!(!by_verb.is_empty(), "no requests are counted: {text}");
    Ok(by_verb)
}

/// With nothing to do there are no requests beyond watches and the Lease, and Ceph is asked for its status only.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn nothing_to_do_costs_nothing() -> Result<()> {
    on_18("nothing_to_do_costs_nothing", |cluster, operator, phases| {
        operator.kill()?;
        let address = format!("127.0.0.1:{PORT}");
        let operator = Operator::start_with(cluster, "two", Release::Reef, &["--metrics", &address])?;
        // It takes the Lease of the one that was killed when that has run out.
        std::thread::sleep(Duration::from_secs(40));
        ensure!(Operator::leader(cluster, std::slice::from_ref(&operator))? == 0);
        let before = requests(cluster)?;
        std::thread::sleep(WHILE);
        let after = requests(cluster)?;
        phases.lap("a quiet minute");
        let more: BTreeMap<String, f64> = after
            .iter()
            .map(|(verb, count)| (verb.clone(), count - before.get(verb).copied().unwrap_or(0.0)))
            .filter(|(_, count)| *count > 0.0)
            .collect();
        say(format!(
            "requests in a quiet minute: {more:?}; memory: {} kB",
            operator.memory()?
        ));
        // A watch ends by itself after some minutes, and is taken up again.
        let idle = |verb: &String| verb == "watch" || verb == "patch" || verb == "get" || verb == "update";
        ensure!(more.keys().all(idle), "{more:?}");
        let total: f64 = more.values().sum();
        ensure!(total <= 30.0, "more than the Lease and watches need: {more:?}");
        Ok(())
    })
}

/// Fields that are Rook's alone, some of them with values that a parser would write otherwise.
fn fields_of_rooks() -> Value {
    json!({
        "network": { "provider": "host", "connections": { "encryption": { "enabled": false }, "requireMsgr2": true } },
        "dashboard": { "enabled": true, "ssl": true, "urlPrefix": "/ceph", "port": 8443 },
        "monitoring": { "enabled": false, "metricsDisabled": false, "interval": "5s", "externalMgrEndpoints": [] },
        "crashCollector": { "disable": false, "daysToRetain": 30 },
        "logCollector": { "enabled": true, "periodicity": "daily", "maxLogSize": "500M" },
        "cleanupPolicy": {
            "confirmation": "",
            "sanitizeDisks": { "method": "quick", "dataSource": "zero", "iteration": 1 },
            "allowUninstallWithVolumes": false,
        },
        "mgr": { "modules": [{ "name": "rook", "enabled": true }], "allowMultiplePerNode": false },
        "mon": { "volumeClaimTemplate": { "spec": { "resources": { "requests": { "storage": "10Gi" } } } } },
        "placement": { "all": { "tolerations": [{ "key": "storage-node", "operator": "Exists" }] } },
        "resources": { "osd": { "limits": { "memory": "4Gi" }, "requests": { "cpu": 0.5, "memory": "4Gi" } } },
        "priorityClassNames": { "mon": "system-node-critical", "mgr": "system-cluster-critical" },
        "annotations": { "all": { "example.com/note": "kept" } },
        "labels": { "monitoring": {} },
        "security": { "keyRotation": { "enabled": false, "schedule": "@weekly" }, "kms": {} },
        "csi": { "readAffinity": { "enabled": false, "crushLocationLabels": null }, "cephfs": {} },
        "healthCheck": {
            "daemonHealth": { "mon": { "disabled": false, "interval": "45s", "timeout": "" }, "osd": { "interval": "60s" } },
            "livenessProbe": { "osd": { "disabled": false, "probe": { "periodSeconds": 10 } } },
        },
        "storage": {
            "config": { "osdsPerDevice": "1", "encryptedDevice": "false" },
            "onlyApplyOSDPlacement": false, "scheduleAlways": false, "allowDeviceClassUpdate": false,
            "fullRatio": 0.95, "store": { "type": "bluestore", "updateStore": "" },
            "migration": { "confirmation": "" },
        },
        "skipUpgradeChecks": false, "continueUpgradeAfterChecksEvenIfNotHealthy": false,
        "waitTimeoutForHealthyOSDInMinutes": 10, "upgradeOSDRequiresHealthyPGs": false,
        "removeOSDsIfOutAndSafeToRemove": false,
        "disruptionManagement": { "pgHealthyRegex": "^(active\\+clean|active\\+clean\\+scrubbing)$" },
    })
}

/// What is not there, or has nothing in it.
fn is_nothing(value: &Value) -> bool {
    value.is_null() || *value == json!({})
}

/// A Deployment without what is ours to set, by the image (which Rook writes into a variable too), `resources`,
/// `priorityClassNames` and `annotations` of the spec, and without what Kubernetes writes by itself.
fn without_ours(mut deployment: Value) -> Result<Value> {
    let fields = |value: &mut Value, names: &[&str]| {
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|name, _| !names.contains(&name.as_str()));
        }
    };
    fields(&mut deployment, &["status"]);
    let meta = &mut deployment["metadata"];
    fields(meta, &["generation", "managedFields", "resourceVersion"]);
    // The latter two are what older Rooks did not write.
    let of_daemon = ["ceph-version", "ceph_daemon_type", "ceph_daemon_id"];
    fields(&mut meta["labels"], &of_daemon);
    fields(
        &mut meta["annotations"],
        &[
            "stagger.dev/fence",
            "stagger.dev/fields",
            "deployment.kubernetes.io/revision",
        ],
    );
    if is_nothing(&meta["annotations"]) {
        fields(meta, &["annotations"]);
    }
    let template = &mut deployment["spec"]["template"];
    fields(&mut template["metadata"]["annotations"], &["example.com/note"]);
    if is_nothing(&template["metadata"]["annotations"]) {
        fields(&mut template["metadata"], &["annotations"]);
    }
    let pod = &mut template["spec"];
    fields(pod, &["priorityClassName"]);
    ensure!(pod["containers"].is_array(), "no containers in {pod:#}");
    for kind in ["containers", "initContainers"] {
        for container in pod[kind].as_array_mut().into_iter().flatten() {
            fields(container, &["image", "resources"]);
            for variable in container["env"].as_array_mut().into_iter().flatten() {
                if variable["name"] == "CONTAINER_IMAGE" {
                    fields(variable, &["value"]);
                }
            }
        }
    }
    Ok(deployment)
}

/// After an upgrade and a drain ours is ended, and what Rook finds is what it left, but for the images: its
/// resource byte by byte, its Deployments, and no budget but its own. What it writes then, stays.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn back_to_rook() -> Result<()> {
    on_18("back_to_rook", |cluster, operator, phases| {
        let old = cluster.image(Release::Reef)?;
        let new = format!("{old}-again");
        cluster.patch_cluster(&json!({ "spec": fields_of_rooks() }))?;
        ask_for(cluster, &new)?;
        let spec = || {
            let words = ["get", "cephcluster", NAMESPACE, "-n", NAMESPACE, "-o"];
            cluster
                .plane
                .ask(&[&words[..], &["jsonpath={.metadata.generation} {.spec}"]].concat())
        };
        let deployments = || -> Result<Vec<Value>> {
            cluster
                .all("deployments")?
                .into_iter()
                .map(without_ours)
                .collect()
        };
        let (wished, before) = (spec()?, deployments()?);
        cluster.wait_ready(&new, Duration::from_mins(8))?;
        cluster.drain("host2", 120)?;
        cluster.uncordon("host2")?;
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        operator.kill()?;
        phases.lap("a revision and a drain by ours");
        let (now, after) = (spec()?, deployments()?);
        ensure!(now == wished, "the resource was {wished}, and is {now}");
        for (was, is) in before.iter().zip(&after) {
            ensure!(was == is, "a Deployment was {was:#}, and is {is:#}");
        }
        ensure!(before.len() == after.len());
        let budgets: BTreeSet<String> = cluster
            .all("poddisruptionbudgets")?
            .iter()
            .map(|budget| {
                let name = budget["metadata"]["name"].as_str().unwrap_or_default();
                let may_go = budget["status"]["disruptionsAllowed"].as_u64();
                ensure!(may_go > Some(0), "{budget:#}");
                Ok(name.to_owned())
            })
            .collect::<Result<_>>()?;
        let rooks = [
            "rook-ceph-mds-fs",
            "rook-ceph-mgr-pdb",
            "rook-ceph-mon-pdb",
            "rook-ceph-osd",
            "rook-ceph-rgw-store",
        ];
        ensure!(budgets == rooks.map(str::to_owned).into(), "{budgets:?}");
        phases.lap("what Rook finds");
        // As Rook writes: what it read, changed, as a whole.
        let mut osd = cluster.get("deployment", "rook-ceph-osd-5")?;
        for kind in ["containers", "initContainers"] {
            osd["spec"]["template"]["spec"][kind][0]["image"] = json!(old);
        }
        cluster.replace("rook", &osd)?;
        // And as `kubectl apply --server-side` of what it wrote first: it takes nothing by force.
        let mut first = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "rook-ceph-osd-5", "namespace": NAMESPACE },
            "spec": osd["spec"],
        });
        first["metadata"]["labels"] = osd["metadata"]["labels"].clone();
        cluster.apply("rook", &[first])?;
        cluster.ceph.wait_clean(Duration::from_mins(2))?;
        let osd = cluster.get("deployment", "rook-ceph-osd-5")?;
        let image = &osd["spec"]["template"]["spec"]["containers"][0]["image"];
        ensure!(*image == old.as_str(), "{osd:#}");
        phases.lap("what Rook writes stays");
        Ok(())
    })
}
