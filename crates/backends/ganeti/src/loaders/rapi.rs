//! Loads a cluster from Ganeti's remote API.
//!
//! Four bodies make a cluster: those of `/2/groups?bulk=1`, `/2/nodes?bulk=1`, `/2/instances?bulk=1` and
//! `/2/info`. Only the fields that planning needs are read; a node that does not answer has no numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stagger_core::model::HostName;

use crate::model::{
    AllocPolicy, GanetiCluster, GanetiNode, GroupIx, Instance, Ipolicy, NodeGroup, NodeIx, Resources, Spec,
    SpecKey, Status, Template,
};

/// The four bodies, as text.
#[derive(Debug, Clone, Default)]
pub struct Bodies {
    /// Of `/2/groups?bulk=1`.
    pub groups: String,
    /// Of `/2/nodes?bulk=1`.
    pub nodes: String,
    /// Of `/2/instances?bulk=1`.
    pub instances: String,
    /// Of `/2/info`.
    pub info: String,
}

/// Bodies that make no cluster.
#[derive(Debug, thiserror::Error)]
pub enum RapiError {
    /// A file that cannot be read.
    #[error("read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A body that is not what RAPI answers.
    #[error("the answer about {what} is not what Ganeti's RAPI gives")]
    Body {
        /// Which of the four.
        what: &'static str,
        /// Where, and what was expected there.
        #[source]
        source: serde_json::Error,
    },
    /// A body that contradicts itself or another.
    #[error("{what} {name}: {why}")]
    Contradiction {
        /// What it is about: node, instance, group.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
}

/// How much memory in MiB a node of a KVM cluster needs for itself, where nobody says it (`--static-kvm-node-memory`
/// of htools 3.0).
pub const KVM_NODE_MEMORY: u64 = 4096;

/// The hypervisor whose nodes do not tell what they need for themselves.
pub(crate) const KVM: &str = "kvm";

/// The files of a folder of bodies, in the order of [`Bodies`].
pub const FILES: [&str; 4] = ["groups.json", "nodes.json", "instances.json", "info.json"];

/// A body without what nobody plans by and may hold secrets: parameters of operating systems and hypervisors, and the
/// networks of instances.
pub fn without_parameters(mut body: Value) -> Value {
    let is_left_out = |key: &str| {
        key.contains("osparams")
            || key.contains("hvparams")
            || key.contains("nicparams")
            || key.starts_with("nic.")
            || ["os_hvp", "default_iallocator_params"].contains(&key)
    };
    let objects: &mut dyn Iterator<Item = &mut Value> = match &mut body {
        Value::Array(objects) => &mut objects.iter_mut(),
        one => &mut std::iter::once(one),
    };
    for fields in objects.filter_map(Value::as_object_mut) {
        fields.retain(|key, _| !is_left_out(key));
    }
    body
}

impl Bodies {
    /// The bodies in a folder, in files of these names ([`FILES`]).
    ///
    /// # Errors
    /// A file that is missing or cannot be read.
    pub fn in_folder(folder: &Path) -> Result<Self, RapiError> {
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path).map_err(|source| RapiError::File { path, source })
        };
        let [groups, nodes, instances, info] = FILES;
        Ok(Self {
            groups: read(groups)?,
            nodes: read(nodes)?,
            instances: read(instances)?,
            info: read(info)?,
        })
    }

    /// The cluster that they describe. Where KVM is its default hypervisor, nodes need [`KVM_NODE_MEMORY`] for
    /// themselves, as htools have it.
    ///
    /// # Errors
    /// A body that is no JSON, lacks a field, or refers to what there is not.
    pub fn cluster(&self) -> Result<GanetiCluster, RapiError> {
        self.cluster_with(KVM_NODE_MEMORY)
    }

    /// The same with so much memory in MiB for the nodes themselves where KVM is the default hypervisor; 0: as much as
    /// they report. A node reports all that is active there, with some of what its instances have.
    ///
    /// # Errors
    /// As of [`Bodies::cluster`].
    pub fn cluster_with(&self, kvm_node_memory: u64) -> Result<GanetiCluster, RapiError> {
        let groups: Vec<GroupBody> = body("groups", &self.groups)?;
        let nodes: Vec<NodeBody> = body("nodes", &self.nodes)?;
        let instances: Vec<InstanceBody> = body("instances", &self.instances)?;
        let info: Info = body("the cluster", &self.info)?;

        let mut cluster = GanetiCluster {
            tags: info.tags,
            ipolicy: Some(info.ipolicy.read("cluster", &info.master)?),
            ..GanetiCluster::default()
        };
        let mut by_uuid = BTreeMap::new();
        for group in groups {
            let ix = GroupIx(cluster.groups.len() as u32);
            if by_uuid.insert(group.uuid.clone(), ix).is_some() {
                return Err(invalid("group", &group.name, "another group has its UUID"));
            }
            cluster.groups.push(group.read()?);
        }
        let mut by_name = BTreeMap::new();
        for node in nodes {
            let ix = NodeIx(cluster.nodes.len() as u32);
            let name = node.name.clone();
            cluster.nodes.push(node.read(&by_uuid, &info.master)?);
            if by_name.insert(name.clone(), ix).is_some() {
                return Err(invalid("node", &name, "it is listed twice"));
            }
        }
        for instance in instances {
            cluster.instances.push(instance.read(&by_name)?);
        }
        if info.default_hypervisor == KVM {
            cluster.keep_for_nodes(kvm_node_memory);
        }
        check_limits(cluster)
    }
}

fn body<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, RapiError> {
    serde_json::from_str(text).map_err(|source| RapiError::Body { what, source })
}

pub(crate) fn invalid(what: &'static str, name: &str, why: impl Into<String>) -> RapiError {
    RapiError::Contradiction {
        what,
        name: name.to_owned(),
        why: why.into(),
    }
}

/// A cluster whose numbers can be added up.
pub(crate) fn check_limits(cluster: GanetiCluster) -> Result<GanetiCluster, RapiError> {
    if let Some((what, name, why)) = cluster.oversized() {
        return Err(invalid(what, name, why));
    }
    Ok(cluster)
}

#[derive(Deserialize)]
struct Info {
    master: String,
    #[serde(default)]
    default_hypervisor: String,
    #[serde(default)]
    tags: Vec<String>,
    ipolicy: IpolicyBody,
}

#[derive(Deserialize)]
struct GroupBody {
    name: String,
    uuid: String,
    alloc_policy: String,
    #[serde(default)]
    tags: Vec<String>,
    ipolicy: IpolicyBody,
}

#[derive(Deserialize)]
pub(crate) struct IpolicyBody {
    std: BTreeMap<String, u64>,
    minmax: Vec<Range>,
    #[serde(rename = "disk-templates")]
    templates: Vec<String>,
    #[serde(rename = "vcpu-ratio")]
    vcpu_ratio: f64,
    #[serde(rename = "spindle-ratio")]
    spindle_ratio: f64,
}

#[derive(Deserialize)]
struct Range {
    min: BTreeMap<String, u64>,
    max: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct NodeBody {
    name: String,
    offline: bool,
    drained: bool,
    #[serde(default = "default_true")]
    vm_capable: bool,
    #[serde(rename = "group.uuid")]
    group: String,
    ndparams: Ndparams,
    mtotal: Option<u64>,
    mnode: Option<u64>,
    mfree: Option<i64>,
    dtotal: Option<u64>,
    dfree: Option<i64>,
    ctotal: Option<u64>,
    cnos: Option<u64>,
    sptotal: Option<u64>,
    spfree: Option<i64>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Ndparams {
    #[serde(default)]
    pub(crate) exclusive_storage: bool,
    #[serde(default = "default_one")]
    pub(crate) spindle_count: u64,
    #[serde(default = "full_speed")]
    pub(crate) cpu_speed: f64,
}

#[derive(Deserialize)]
struct InstanceBody {
    name: String,
    status: String,
    pnode: String,
    #[serde(default)]
    snodes: Vec<String>,
    disk_template: String,
    disk_usage: u64,
    #[serde(default, rename = "disk.spindles")]
    spindles: Vec<Option<u64>>,
    beparams: Beparams,
    oper_ram: Option<u64>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    forthcoming: bool,
}

#[derive(Deserialize)]
struct Beparams {
    memory: Option<u64>,
    maxmem: Option<u64>,
    vcpus: u64,
    auto_balance: bool,
    #[serde(default = "default_one")]
    spindle_use: u64,
}

fn default_true() -> bool {
    true
}

fn default_one() -> u64 {
    1
}

fn full_speed() -> f64 {
    1.0
}

impl GroupBody {
    fn read(self) -> Result<NodeGroup, RapiError> {
        let alloc_policy = AllocPolicy::parse(&self.alloc_policy).ok_or_else(|| {
            let why = format!("{:?} is no allocation policy", self.alloc_policy);
            invalid("group", &self.name, why)
        })?;
        Ok(NodeGroup {
            ipolicy: Some(self.ipolicy.read("group", &self.name)?),
            name: self.name,
            uuid: self.uuid,
            alloc_policy,
            tags: self.tags,
            networks: Vec::new(),
        })
    }
}

impl IpolicyBody {
    pub(crate) fn read(self, what: &'static str, name: &str) -> Result<Ipolicy, RapiError> {
        let spec = |from: &BTreeMap<String, u64>| -> Result<Spec, RapiError> {
            let mut spec = Spec::default();
            for (size, key) in spec.iter_mut().zip(SpecKey::ALL) {
                *size = *from
                    .get(key.word())
                    .ok_or_else(|| invalid(what, name, format!("its policy has no {key}")))?;
            }
            Ok(spec)
        };
        let templates = self.templates.iter().map(|word| {
            Template::of_word(word)
                .ok_or_else(|| invalid(what, name, format!("{word:?} in its policy is no disk template")))
        });
        Ok(Ipolicy {
            standard: spec(&self.std)?,
            ranges: self
                .minmax
                .iter()
                .map(|range| Ok((spec(&range.min)?, spec(&range.max)?)))
                .collect::<Result<_, RapiError>>()?,
            templates: templates.collect::<Result<_, _>>()?,
            vcpu_ratio: self.vcpu_ratio,
            spindle_ratio: self.spindle_ratio,
        })
    }
}

impl NodeBody {
    fn read(self, groups: &BTreeMap<String, GroupIx>, master: &str) -> Result<GanetiNode, RapiError> {
        HostName::new(self.name.as_str()).map_err(|error| invalid("node", &self.name, error.why))?;
        let group = *groups.get(&self.group).ok_or_else(|| {
            invalid(
                "node",
                &self.name,
                format!("there is no group with the UUID {:?}", self.group),
            )
        })?;
        let resources = self.resources();
        Ok(GanetiNode {
            master: self.name == master,
            name: self.name,
            resources,
            offline: self.offline,
            drained: self.drained,
            vm_capable: self.vm_capable,
            group,
            tags: self.tags,
            exclusive_storage: self.ndparams.exclusive_storage,
        })
    }

    fn resources(&self) -> Option<Resources> {
        let exclusive = self.ndparams.exclusive_storage;
        Some(Resources {
            memory: self.mtotal?,
            memory_own: self.mnode?,
            memory_free: self.mfree?,
            // A cluster without a volume group says nothing of disks.
            disk: self.dtotal.unwrap_or(0),
            disk_free: self.dfree.unwrap_or(0),
            cpus: self.ctotal?,
            spindles: if exclusive {
                self.sptotal?
            } else {
                self.ndparams.spindle_count
            },
            spindles_free: if exclusive { self.spfree? } else { 0 },
            cpus_own: self.cnos.unwrap_or(1),
            cpu_speed: self.ndparams.cpu_speed,
        })
    }
}

impl InstanceBody {
    fn read(self, nodes: &BTreeMap<String, NodeIx>) -> Result<Instance, RapiError> {
        let wrong = |why: String| invalid("instance", &self.name, why);
        HostName::new(self.name.as_str()).map_err(|error| wrong(error.why.to_owned()))?;
        let node = |name: &str| {
            nodes
                .get(name)
                .copied()
                .ok_or_else(|| wrong(format!("there is no node {name:?}")))
        };
        let template = Template::of_word(&self.disk_template)
            .ok_or_else(|| wrong(format!("{:?} is no disk template", self.disk_template)))?;
        let status =
            Status::of_word(&self.status).ok_or_else(|| wrong(format!("{:?} is no status", self.status)))?;
        let primary = node(&self.pnode)?;
        let secondary = self.snodes.first().map(|name| node(name)).transpose()?;
        if secondary == Some(primary) && template == Template::Drbd {
            return Err(wrong(format!("{:?} is both its nodes", self.pnode)));
        }
        let memory = self
            .oper_ram
            .filter(|_| status.may_run())
            .or(self.beparams.maxmem)
            .or(self.beparams.memory)
            .ok_or_else(|| wrong("nothing says how much memory it has".to_owned()))?;
        Ok(Instance {
            memory,
            maxmem: self.beparams.maxmem.or(self.beparams.memory).unwrap_or(memory),
            disk: self.disk_usage,
            vcpus: self.beparams.vcpus,
            status,
            auto_balance: self.beparams.auto_balance,
            primary,
            secondary,
            template,
            spindle_use: self.beparams.spindle_use,
            disk_spindles: self
                .spindles
                .iter()
                .copied()
                .sum::<Option<u64>>()
                .filter(|_| !self.spindles.is_empty()),
            forthcoming: self.forthcoming,
            tags: self.tags,
            name: self.name,
        })
    }
}
