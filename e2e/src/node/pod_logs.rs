//! The logs of pods as a kubelet has them on its node: `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/N.log`, of the
//! last two runs of a container, and only while there is the pod. They are links to the agent's own.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

/// Where a kubelet has the logs of a pod.
const LOGS: &str = "var/log/pods";

/// The folder of a pod's logs on its node; `hosts` has the files of each node.
fn folder(hosts: &Path, pod: &Pod) -> PathBuf {
    let meta = &pod.metadata;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let [namespace, name, uid] =
        [&meta.namespace, &meta.name, &meta.uid].map(|part| part.as_deref().unwrap_or_default());
    hosts
        .join(node.unwrap_or_default())
        .join(LOGS)
        .join(format!("{namespace}_{name}_{uid}"))
}

/// Shows the log of a run of a container. The one before stays, older ones go.
pub(super) fn show(hosts: &Path, pod: &Pod, container: &str, run: u32, log: &Path) -> std::io::Result<()> {
    let folder = folder(hosts, pod).join(container);
    fs::create_dir_all(&folder)?;
    if let Some(old) = run.checked_sub(2) {
        fs::remove_file(folder.join(format!("{old}.log"))).ok();
    }
    let place = folder.join(format!("{run}.log"));
    // One of a node that was lost meanwhile.
    fs::remove_file(&place).ok();
    fs::hard_link(log, place)
}

/// The pod is gone, and with it its logs.
pub(super) fn remove(hosts: &Path, pod: &Pod) -> std::io::Result<()> {
    fs::remove_dir_all(folder(hosts, pod))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_two_runs_are_there_while_there_is_the_pod() {
        let hosts = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u" },
            "spec": { "nodeName": "n0", "containers": [] },
        }))
        .unwrap();
        let own = hosts.path().join("own");
        for run in 0..3_u32 {
            fs::write(own.with_extension(run.to_string()), run.to_string()).unwrap();
            show(hosts.path(), &pod, "c", run, &own.with_extension(run.to_string())).unwrap();
        }
        let place = hosts.path().join("n0/var/log/pods/ns_p_u/c");
        assert!(!place.join("0.log").exists());
        assert_eq!(fs::read_to_string(place.join("1.log")).unwrap(), "1");
        // What is written later is seen too.
        fs::write(own.with_extension("2"), "more").unwrap();
        assert_eq!(fs::read_to_string(place.join("2.log")).unwrap(), "more");
        remove(hosts.path(), &pod).unwrap();
        assert!(!place.exists() && own.with_extension("2").exists());
    }
}
