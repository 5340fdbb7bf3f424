//! What the resource definition refuses while a run is under way.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{NAMESPACE, World, ours};

impl World {
    /// What the resource definition refuses while a run is under way, and what it does not.
    pub(crate) fn a_locked_wish_is_not_changed(&self) -> Result<()> {
        let patch = |of: &[&str], patch: Value| {
            let patch = patch.to_string();
            let words = [
                "patch",
                "cephmaintenance",
                "my-cluster",
                "-n",
                NAMESPACE,
                "--type=merge",
                "-p",
                &patch,
            ];
            self.plane.ask(&[&words, of].concat())
        };
        let image = |image: Value| json!({ "spec": { "image": image } });
        let policy = |policy: Value| json!({ "spec": { "updatePolicy": policy } });
        let under_way = |is: Value| {
            let status = json!({ "status": { "underWay": is } });
            patch(&["--subresource=status"], status)
        };
        patch(&[], policy(json!({ "onSpecChange": "lock" })))?;
        patch(&[], image(json!("ceph:v20"))).context("the lock without a run")?;
        under_way(json!(true))?;
        for refused in [
            image(json!("ceph:v21")),
            image(Value::Null),
            policy(json!({ "osds": { "maxInParallelPerCluster": 2 } })),
            policy(json!({ "skipUpgradeChecks": true })),
            policy(json!({ "windows": [{ "from": "01:00", "until": "02:00", "zone": "UTC" }] })),
        ] {
            let Err(error) = patch(&[], refused.clone()) else {
                bail!("changed in spite of the lock: {refused}");
            };
            ensure!(format!("{error:#}").contains("onSpecChange is lock"), "{error:#}");
        }
        patch(&[], policy(json!({ "pause": true }))).context("a pause is no change")?;
        patch(
            &[],
            policy(json!({ "onSpecChange": "interrupt", "osds": { "grow": false } })),
        )
        .context("the lock can be opened")?;
        // As it was.
        under_way(Value::Null)?;
        self.plane
            .ask(&["delete", "cephmaintenance", "my-cluster", "-n", NAMESPACE])?;
        self.apply(&ours())
    }
}
