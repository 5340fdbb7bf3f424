//! The configuration for a cluster that cephadm manages: what a site gives, and nothing that only a laboratory has.

use std::path::Path;

use anyhow::Result;

use super::Setting;
use crate::cephadm_hosts::Cluster;
use crate::files::script;

/// What a configuration for a cluster of cephadm says.
#[derive(Debug, Default)]
pub struct CephadmSetup;

impl Setting for CephadmSetup {
    type Cluster = Cluster;

    fn folder(cluster: &Cluster) -> &Path {
        cluster.dir()
    }

    fn program(&self, _: &Cluster, _: &Path, binary: &Path) -> Result<Vec<String>> {
        Ok(vec![binary.display().to_string()])
    }

    fn text(&self, cluster: &Cluster, own: &Path) -> Result<String> {
        let dir = cluster.dir().display();
        for (name, command) in [("ceph", "ceph"), ("python", "/usr/bin/python3")] {
            let entrance = cluster.sandbox().entrance(
                cluster.client_root(),
                "What a client of the cluster runs",
                command,
            )?;
            script(&own.join(name), &entrance)?;
        }
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
doors = {{ auto-after = 1 }}

[hosts]
shell = ["{dir}/ssh", "{{host}}", "sh", "-s"]

[software]
profile = "cephadm"
image = "{image}"

[reboot]
timeout = 180
"#,
            own = own.display(),
            image = Cluster::image("{release}"),
        ))
    }
}
