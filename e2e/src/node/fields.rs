//! Fields of a pod, as its variables and its volumes may ask for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;

/// The value of a field; empty, where the pod has none. An error, where there is no such field.
pub(super) fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => meta.labels.as_ref().map(lines),
        "metadata.annotations" => meta.annotations.as_ref().map(lines),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" | "status.podIPs" => pod.status.as_ref().and_then(|status| status.pod_ip.clone()),
        "status.hostIP" | "status.hostIPs" => pod.status.as_ref().and_then(|status| status.host_ip.clone()),
        _ => {
            let named = |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']");
            let (map, key) = if let Some(key) = named("metadata.labels") {
                (&meta.labels, key)
            } else if let Some(key) = named("metadata.annotations") {
                (&meta.annotations, key)
            } else {
                return Err(format!("the node agent knows no field {path} of a pod"));
            };
            map.as_ref().and_then(|map| map.get(key).cloned())
        }
    };
    Ok(value.unwrap_or_default())
}

/// A line for each, with the value quoted.
fn lines(map: &BTreeMap<String, String>) -> String {
    map.iter().fold(String::new(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key}={value:?}");
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_by_path_and_by_key() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "a", "labels": { "app": "x", "with/slash": "say \"y\"" } },
            "spec": { "containers": [], "nodeName": "n0" },
            "status": { "podIP": "10.20.0.1", "hostIP": "10.20.0.1" },
        }))
        .unwrap();
        let ask = |path: &str| field(&pod, path);
        assert_eq!(ask("metadata.name").as_deref(), Ok("a"));
        assert_eq!(ask("spec.nodeName").as_deref(), Ok("n0"));
        assert_eq!(ask("status.podIP"), ask("status.hostIPs"));
        assert_eq!(ask("status.podIP").as_deref(), Ok("10.20.0.1"));
        assert_eq!(ask("metadata.labels['with/slash']").as_deref(), Ok("say \"y\""));
        assert_eq!(ask("metadata.labels['none']").as_deref(), Ok(""));
        assert_eq!(
            ask("metadata.labels").as_deref(),
            Ok("app=\"x\"\nwith/slash=\"say \\\"y\\\"\"\n")
        );
        assert!(ask("spec.color").is_err_and(|why| why.contains("spec.color")));
    }
}
