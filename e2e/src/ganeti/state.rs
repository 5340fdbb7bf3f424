//! What a rolling reboot must leave as it was, and what it must not.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::Cluster;
use crate::command::output;

/// An instance and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its disk template.
    pub template: String,
    /// Where it runs.
    pub primary: String,
    /// Where its second copy is.
    pub secondary: Option<String>,
    /// `running`, `ADMIN_down`, `ERROR_down` …
    pub status: String,
}

/// A cluster at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its master.
    pub master: String,
    /// The role of each node, as one letter: `M`, `C`, `R`, `D`, `O`.
    pub roles: BTreeMap<String, String>,
    /// The tags of each node, without those that stay when a visit is over.
    pub tags: BTreeMap<String, Vec<String>>,
    /// What visits have noted on each node of how it had booted before them.
    pub noted_boots: BTreeMap<String, Vec<String>>,
    /// The boot id of each node.
    pub boots: BTreeMap<String, String>,
    /// How often each node was rebooted.
    pub reboots: BTreeMap<String, usize>,
    /// The instances.
    pub instances: BTreeMap<String, Placed>,
}

/// How the note of a boot id begins; after it comes the time.
const BOOT: &str = "stagger:boot:";

impl Cluster {
    /// How it is now.
    ///
    /// # Errors
    /// Its remote API does not answer.
    pub fn state(&self) -> Result<State> {
        let mut roles = BTreeMap::new();
        let mut tags = BTreeMap::new();
        let mut noted_boots = BTreeMap::new();
        for node in self.rows("/2/nodes?bulk=1")? {
            let name = text(&node["name"]);
            roles.insert(name.clone(), text(&node["role"]));
            let (boots, others): (Vec<String>, Vec<String>) = texts(&node["tags"])
                .into_iter()
                .partition(|tag| tag.starts_with(BOOT));
            let boots = boots.iter().filter_map(|tag| tag[BOOT.len()..].split('@').next());
            noted_boots.insert(name.clone(), boots.map(str::to_owned).collect());
            tags.insert(name, others);
        }
        let mut boots = BTreeMap::new();
        let mut reboots = BTreeMap::new();
        for name in roles.keys() {
            boots.insert(name.clone(), self.boot_id(name)?);
            reboots.insert(name.clone(), self.reboots(name)?);
        }
        let placed = |instance: &Value| Placed {
            template: text(&instance["disk_template"]),
            primary: text(&instance["pnode"]),
            secondary: texts(&instance["snodes"]).into_iter().next(),
            status: text(&instance["status"]),
        };
        let instances = self.rows("/2/instances?bulk=1")?;
        Ok(State {
            master: self.master()?,
            roles,
            tags,
            noted_boots,
            boots,
            reboots,
            instances: instances
                .iter()
                .map(|instance| (text(&instance["name"]), placed(instance)))
                .collect(),
        })
    }

    fn rows(&self, path: &str) -> Result<Vec<Value>> {
        let reply = self.rapi("GET", path, None)?;
        match reply.body {
            Value::Array(rows) if reply.status == 200 => Ok(rows),
            other => bail!("{path} answered {}: {other}", reply.status),
        }
    }

    /// What `gnt-cluster verify` complains of: the code of each complaint, and of whom.
    ///
    /// # Errors
    /// It did not run.
    pub fn complaints(&self) -> Result<BTreeSet<String>> {
        let words = ["gnt-cluster", "verify", "--error-codes"];
        // It fails where it complains.
        let said = output(&mut self.nodectl(&self.master()?, "run", &words))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        ensure!(said.contains("Verifying"), "`gnt-cluster verify` said {said:?}");
        Ok(said.lines().filter_map(complaint).collect())
    }

    /// Job filters that `stagger` left behind, but for the two that stay: one remembers the newest token, and one how far
    /// the last journal had come. Neither lets a job wait.
    ///
    /// # Errors
    /// The remote API does not answer.
    pub fn filters_left(&self) -> Result<Vec<Value>> {
        let mut filters = self.rows("/2/filters?bulk=1")?;
        filters.retain(|filter| {
            let reasons = filter["reason_trail"].as_array().into_iter().flatten();
            let mut ours = reasons.filter(|reason| reason[0] == "stagger");
            let stays = |said: &str| said.contains("\"fence\"") || said.contains("\"anchored\"");
            ours.any(|reason| !stays(&text(&reason[1])))
        });
        Ok(filters)
    }

    /// Fails unless these nodes, and no other, were rebooted once since then, and all else is as it was: instances,
    /// roles, tags, job filters, disks. The master may be another one.
    ///
    /// # Errors
    /// What is not so.
    pub fn ensure_rebooted(&self, before: &State, nodes: &[&str]) -> Result<()> {
        let now = self.state()?;
        for (name, boot) in &before.boots {
            let wanted = before.reboots[name] + usize::from(nodes.contains(&name.as_str()));
            ensure!(
                now.reboots[name] == wanted,
                "{name} was rebooted {} times by now, and should have been {wanted} times",
                now.reboots[name]
            );
            let is_new = now.boots[name] != *boot;
            ensure!(is_new == nodes.contains(&name.as_str()), "the boot id of {name}");
        }
        self.ensure_all_else_is_as(before, &now)
    }

    /// Fails unless the last visit of each of these nodes has noted how it had booted then, and nothing older is left.
    ///
    /// # Errors
    /// What is not so.
    pub fn ensure_boots_are_noted(&self, before: &State, nodes: &[&str]) -> Result<()> {
        let now = self.state()?;
        for &name in nodes {
            let (noted, boot) = (&now.noted_boots[name], &before.boots[name]);
            ensure!(
                *noted == [boot.clone()],
                "{name} had booted as {boot}, and {noted:?} is noted"
            );
        }
        Ok(())
    }

    fn ensure_all_else_is_as(&self, before: &State, now: &State) -> Result<()> {
        ensure!(
            now.instances == before.instances,
            "instances are not as they were: {}",
            differences(&before.instances, &now.instances)
        );
        // The master is a candidate as well.
        let roles = |state: &State| -> BTreeMap<String, String> {
            let role = |role: &String| if role == "M" { "C".to_owned() } else { role.clone() };
            state
                .roles
                .iter()
                .map(|(name, it)| (name.clone(), role(it)))
                .collect()
        };
        ensure!(
            roles(now) == roles(before),
            "roles are not as they were: {}",
            differences(&before.roles, &now.roles)
        );
        ensure!(
            now.tags == before.tags,
            "tags are not as they were: {}",
            differences(&before.tags, &now.tags)
        );
        let left = self.filters_left()?;
        ensure!(left.is_empty(), "job filters are left: {left:?}");
        for (name, placed) in &now.instances {
            if placed.template == "drbd"
                && placed.status == "running"
                && let Err(why) = self.disks_of(name)?
            {
                bail!("not in sync: {why}");
            }
        }
        Ok(())
    }
}

/// `  - ERROR:ENODESSH:node:node3:ssh communication …` as code, kind and name.
fn complaint(line: &str) -> Option<String> {
    let (_, said) = line.split_once("ERROR:")?;
    let words: Vec<&str> = said.splitn(4, ':').take(3).map(str::trim).collect();
    Some(words.join(":"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    let mut all: Vec<String> = value.as_array().into_iter().flatten().map(text).collect();
    all.sort();
    all
}

fn differences<T: PartialEq + std::fmt::Debug>(
    before: &BTreeMap<String, T>,
    now: &BTreeMap<String, T>,
) -> String {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let differ = names
        .into_iter()
        .filter(|&name| before.get(name) != now.get(name));
    let told: Vec<String> = differ
        .map(|name| format!("{name}: {:?}, now {:?}", before.get(name), now.get(name)))
        .collect();
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_known_again_with_another_text() {
        let line = "  - ERROR:ENODETIME:node:node3:Node time diverges by at least 7.1s";
        assert_eq!(complaint(line).unwrap(), "ENODETIME:node:node3");
        assert_eq!(complaint("* Verifying node status"), None);
    }
}
