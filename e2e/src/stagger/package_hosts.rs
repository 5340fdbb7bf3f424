//! The configuration for hosts with packages: what a site gives, and nothing that only a laboratory has.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::{Doors, Setting};
use crate::files::script;
use crate::package_hosts::Cluster;
use crate::roots::Release;

/// What a configuration for hosts with packages says.
#[derive(Debug)]
pub struct PackageHostsSetup {
    /// What becomes of points of no return.
    pub doors: Doors,
}

impl Default for PackageHostsSetup {
    fn default() -> Self {
        Self {
            doors: Doors::AutoAfter(1),
        }
    }
}

impl Setting for PackageHostsSetup {
    type Cluster = Cluster;

    fn folder(cluster: &Cluster) -> &Path {
        cluster.dir()
    }

    fn program(&self, _: &Cluster, _: &Path, binary: &Path) -> Result<Vec<String>> {
        Ok(vec![binary.display().to_string()])
    }

    fn text(&self, cluster: &Cluster, own: &Path) -> Result<String> {
        let dir = cluster.dir().display();
        let root = &cluster.root().path;
        for (name, command) in [("ceph", "ceph"), ("python", "/usr/bin/python3")] {
            let entrance = cluster
                .sandbox()
                .entrance(root, "What a client of the cluster runs", command)?;
            script(&own.join(name), &entrance)?;
        }
        let unavoidable: BTreeSet<_> = Release::ALL
            .iter()
            .flat_map(|release| release.unavoidable_health_codes())
            .collect();
        let unavoidable: Vec<_> = unavoidable.into_iter().collect();
        Ok(format!(
            r#"[cluster]
kind = "ceph"
name = "hosts"
ceph = ["{own}/ceph"]
python = ["{own}/python"]
conf = "{dir}/ceph.conf"
lock_expires = 30

[policy]
max_in_parallel = "100%"
canary_soak = 2
gate_hold = 1
gate_timeout = 180
doors = {doors}

[health]
accept = {unavoidable:?}

[hosts]
shell = ["{dir}/ssh", "{{host}}", "sh", "-s"]

[software]
profile = "debian"

[reboot]
timeout = 180
"#,
            own = own.display(),
            doors = self.doors.text(),
        ))
    }
}
