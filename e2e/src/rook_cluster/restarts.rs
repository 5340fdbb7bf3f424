//! How often daemons were restarted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;

use super::{NAMESPACE, RookCluster};

/// The lives of each daemon so far, by the name of its Deployment: of each pod its uid, and how often each of its
/// containers was started again.
pub type Incarnations = BTreeMap<String, BTreeMap<String, u64>>;

/// How often each daemon was restarted since, where it was; one that is new or gone counts as restarted.
pub type Restarts = BTreeMap<String, u64>;

impl RookCluster {
    /// The pods that daemons run in now.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn incarnations(&self) -> Result<Incarnations> {
        let pods = self.plane.objects(NAMESPACE, "pods")?;
        Ok(incarnations(&pods))
    }

    /// The restarts since then, as far as pods show them: of a pod that came and went in between nothing is known.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn restarts_since(&self, before: &Incarnations) -> Result<Restarts> {
        Ok(restarts(before, &self.incarnations()?))
    }
}

fn incarnations(pods: &[Value]) -> Incarnations {
    let mut all = Incarnations::new();
    for pod in pods {
        let (meta, status) = (&pod["metadata"], &pod["status"]);
        // Rook's Jobs and its operator are no daemons.
        let is_daemon = meta["labels"]["ceph_daemon_id"].is_string();
        let hash = meta["labels"]["pod-template-hash"].as_str();
        let (Some(name), Some(hash), true) = (meta["name"].as_str(), hash, is_daemon) else {
            continue;
        };
        let Some((deployment, _)) = name.split_once(&format!("-{hash}-")) else {
            continue;
        };
        let containers = status["containerStatuses"].as_array().into_iter().flatten();
        let again = containers.filter_map(|one| one["restartCount"].as_u64()).sum();
        let uid = meta["uid"].as_str().unwrap_or_default().to_owned();
        all.entry(deployment.to_owned()).or_default().insert(uid, again);
    }
    all
}

fn restarts(before: &Incarnations, now: &Incarnations) -> Restarts {
    let none = BTreeMap::new();
    let daemons: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let mut all = Restarts::new();
    for daemon in daemons {
        let (old, new) = (
            before.get(daemon).unwrap_or(&none),
            now.get(daemon).unwrap_or(&none),
        );
        let again: u64 = new
            .iter()
            .map(|(uid, count)| match old.get(uid) {
                Some(before) => count.saturating_sub(*before),
                None => count + 1,
            })
            .sum();
        let gone = u64::from(new.is_empty());
        if again + gone > 0 {
            all.insert(daemon.clone(), again + gone);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, hash: &str, uid: &str, again: u64) -> Value {
        json!({
            "metadata": { "name": format!("{name}-{hash}-x"), "uid": uid,
                "labels": { "ceph_daemon_id": "a", "pod-template-hash": hash } },
            "status": { "containerStatuses": [{ "restartCount": again }] },
        })
    }

    #[test]
    fn new_pods_and_restarted_containers_are_restarts() {
        let before = incarnations(&[
            pod("rook-ceph-mon-a", "h1", "u1", 0),
            pod("rook-ceph-mon-b", "h1", "u2", 1),
            pod("rook-ceph-osd-0", "h1", "u3", 0),
            json!({ "metadata": { "name": "rook-ceph-operator-h-x", "labels": { "pod-template-hash": "h" } } }),
        ]);
        assert_eq!(before.len(), 3);
        assert_eq!(restarts(&before, &before), Restarts::new());
        let now = incarnations(&[
            pod("rook-ceph-mon-a", "h2", "u9", 0),
            pod("rook-ceph-mon-b", "h1", "u2", 3),
        ]);
        let expected = [
            ("rook-ceph-mon-a", 1),
            ("rook-ceph-mon-b", 2),
            ("rook-ceph-osd-0", 1),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(restarts(&before, &now), Restarts::from(expected));
    }
}
