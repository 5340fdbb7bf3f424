//! Instances, made side by side.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Cluster;

/// Making one may take so long, on a busy machine.
const LIMIT: Duration = Duration::from_mins(4);

/// An instance to be made, with 1 GiB of disk and half of that of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// Its name.
    pub name: &'static str,
    /// Its disk template.
    pub template: &'static str,
    /// Where it runs.
    pub primary: &'static str,
    /// Where its second copy is; none but for `drbd`.
    pub secondary: Option<&'static str>,
    /// Whether it is started.
    pub up: bool,
}

impl Made {
    /// One that runs, on shared storage or on one node.
    pub fn on(name: &'static str, template: &'static str, primary: &'static str) -> Self {
        Self {
            name,
            template,
            primary,
            secondary: None,
            up: true,
        }
    }

    /// One that runs, and whose disks are mirrored.
    pub fn mirrored(name: &'static str, primary: &'static str, secondary: &'static str) -> Self {
        Self {
            secondary: Some(secondary),
            ..Self::on(name, "drbd", primary)
        }
    }

    /// The same, not started.
    #[must_use]
    pub fn down(self) -> Self {
        Self { up: false, ..self }
    }

    fn body(&self) -> Value {
        let Self {
            name,
            template,
            primary,
            secondary,
            up,
        } = self;
        let mut body = json!({
            "__version__": 1,
            "mode": "create",
            "name": name,
            "disk_template": template,
            "pnode": primary,
            "disks": [{ "size": 1024 }],
            "nics": [],
            "os_type": "dummy+default",
            "hypervisor": "fake",
            "beparams": { "memory": 512, "vcpus": 1 },
            "ip_check": false,
            "name_check": false,
            "start": up,
        });
        if let Some(secondary) = secondary {
            body["snode"] = json!(secondary);
        }
        if *template == "diskless" {
            body["disks"] = json!([]);
        }
        body
    }
}

impl Cluster {
    /// Submits the job that makes an instance, and gives its number.
    ///
    /// # Errors
    /// It was refused.
    pub fn submit_instance(&self, made: &Made) -> Result<u64> {
        self.submit("POST", "/2/instances", Some(&made.body()))
    }

    /// Makes instances, all at once.
    ///
    /// # Errors
    /// One of them could not be made.
    pub fn make(&self, all: &[Made]) -> Result<()> {
        let jobs = all
            .iter()
            .map(|made| Ok((made, self.submit_instance(made)?)))
            .collect::<Result<Vec<_>>>()?;
        for (made, job) in jobs {
            let ended = self.ended(job, LIMIT)?;
            ensure!(
                ended["status"] == "success",
                "{} was not made: {}",
                made.name,
                ended["opresult"]
            );
        }
        Ok(())
    }

    /// Whether all copies of a mirrored instance are whole, as Ganeti says by a job; else what is not.
    ///
    /// # Errors
    /// Nobody answers, or nothing is known of its disks.
    pub fn disks_of(&self, name: &str) -> Result<Result<(), String>> {
        let job = self.job("GET", &format!("/2/instances/{name}/info"), None, LIMIT)?;
        let disks = job["opresult"][0][name]["disks"]
            .as_array()
            .with_context(|| format!("nothing is known of the disks of {name}: {job}"))?;
        for disk in disks {
            for side in ["pstatus", "sstatus"] {
                // Path, major, minor, percent, time, degraded, local disk.
                let status = &disk[side];
                if !status[3].is_null() || status[5] != Value::Bool(false) {
                    return Ok(Err(format!("{side} of a disk of {name} is {status}")));
                }
            }
        }
        Ok(Ok(()))
    }
}
