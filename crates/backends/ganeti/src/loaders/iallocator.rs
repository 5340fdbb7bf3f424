//! The request that Ganeti sends to an allocator (its page "Ganeti automatic instance allocation"; `hail` is one), as a cluster.
//!
//! It tells of the whole cluster before it tells what is asked for, and only the former is read. It does not say which
//! node is the master, nor whether an instance really runs: what should run counts as running.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use stagger_core::model::UnitId;

use crate::loaders::rapi::{IpolicyBody, KVM, Ndparams, RapiError, check_limits, invalid};
use crate::model::{
    AllocPolicy, GanetiCluster, GanetiNode, GroupIx, Instance, NodeGroup, NodeIx, Resources, Status, Template,
};

/// A request that makes no cluster.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is not what Ganeti sends.
    #[error("it is no request to an allocator of Ganeti")]
    Unreadable(#[source] serde_json::Error),
    /// It contradicts itself.
    #[error(transparent)]
    Contradiction(#[from] RapiError),
}

/// The cluster of a request. Where KVM is the first of its hypervisors, so much memory in MiB is for each node itself; 0: as
/// much as it reports.
///
/// # Errors
/// It is no JSON, lacks a field, or refers to what there is not.
pub fn read(request: &str, kvm_node_memory: u64) -> Result<GanetiCluster, RequestError> {
    let request: Request = serde_json::from_str(request).map_err(RequestError::Unreadable)?;
    let mut cluster = GanetiCluster {
        tags: request.cluster_tags,
        ..GanetiCluster::default()
    };
    let mut groups = BTreeMap::new();
    for (uuid, group) in request.nodegroups.0 {
        groups.insert(uuid.clone(), GroupIx(cluster.groups.len() as u32));
        cluster.groups.push(group.read(uuid)?);
    }
    let mut nodes = BTreeMap::new();
    for (name, node) in request.nodes.0 {
        if nodes
            .insert(name.clone(), NodeIx(cluster.nodes.len() as u32))
            .is_some()
        {
            return Err(invalid("node", &name, "it is listed twice").into());
        }
        cluster.nodes.push(node.read(name, &groups)?);
    }
    for (name, instance) in request.instances.0 {
        cluster.instances.push(instance.read(name, &nodes)?);
    }
    if request
        .enabled_hypervisors
        .first()
        .is_some_and(|first| first == KVM)
    {
        cluster.keep_for_nodes(kvm_node_memory);
    }
    Ok(check_limits(cluster)?)
}

/// An object in the order in which it is written: hroller lists nodes in that order.
struct OrderedEntries<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedEntries<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = OrderedEntries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedEntries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(OrderedEntries(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Request {
    cluster_tags: Vec<String>,
    enabled_hypervisors: Vec<String>,
    nodegroups: OrderedEntries<GroupPart>,
    nodes: OrderedEntries<NodePart>,
    instances: OrderedEntries<InstancePart>,
}

/// Of a key that stands twice the first counts, as for htools. A request that one of Ganeti's own tests sends has one.
impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Request;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
                let (mut tags, mut hypervisors) = (None, None);
                let (mut groups, mut nodes, mut instances) = (None, None, None);
                let mut asked = None::<IgnoredAny>;
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "cluster_tags" if tags.is_none() => tags = Some(map.next_value()?),
                        "enabled_hypervisors" if hypervisors.is_none() => {
                            hypervisors = Some(map.next_value()?);
                        }
                        "nodegroups" if groups.is_none() => groups = Some(map.next_value()?),
                        "nodes" if nodes.is_none() => nodes = Some(map.next_value()?),
                        "instances" if instances.is_none() => instances = Some(map.next_value()?),
                        // What is asked for: without it, it is no request.
                        "request" => asked = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                asked.ok_or_else(|| A::Error::missing_field("request"))?;
                Ok(Request {
                    cluster_tags: tags.ok_or_else(|| A::Error::missing_field("cluster_tags"))?,
                    enabled_hypervisors: hypervisors.unwrap_or_default(),
                    nodegroups: groups.ok_or_else(|| A::Error::missing_field("nodegroups"))?,
                    nodes: nodes.ok_or_else(|| A::Error::missing_field("nodes"))?,
                    instances: instances.ok_or_else(|| A::Error::missing_field("instances"))?,
                })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[derive(Deserialize)]
struct GroupPart {
    name: String,
    alloc_policy: String,
    #[serde(default)]
    networks: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    ipolicy: IpolicyBody,
}

#[derive(Deserialize)]
struct NodePart {
    group: String,
    offline: bool,
    drained: bool,
    vm_capable: Option<bool>,
    ndparams: Ndparams,
    #[serde(default)]
    tags: Vec<String>,
    total_memory: Option<u64>,
    reserved_memory: Option<u64>,
    free_memory: Option<i64>,
    total_disk: Option<u64>,
    free_disk: Option<i64>,
    total_cpus: Option<u64>,
    reserved_cpus: Option<u64>,
    total_spindles: Option<u64>,
    free_spindles: Option<i64>,
}

#[derive(Deserialize)]
struct InstancePart {
    memory: u64,
    vcpus: u64,
    disk_space_total: u64,
    disk_template: String,
    nodes: Vec<String>,
    admin_state: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    spindle_use: u64,
    #[serde(default)]
    disks: Vec<DiskPart>,
    #[serde(default)]
    forthcoming: bool,
}

#[derive(Deserialize)]
struct DiskPart {
    spindles: Option<u64>,
}

impl GroupPart {
    fn read(self, uuid: String) -> Result<NodeGroup, RapiError> {
        let alloc_policy = AllocPolicy::parse(&self.alloc_policy).ok_or_else(|| {
            let why = format!("{:?} is no allocation policy", self.alloc_policy);
            invalid("group", &self.name, why)
        })?;
        Ok(NodeGroup {
            ipolicy: Some(self.ipolicy.read("group", &self.name)?),
            name: self.name,
            uuid,
            alloc_policy,
            tags: self.tags,
            networks: self.networks,
        })
    }
}

impl NodePart {
    fn read(self, name: String, groups: &BTreeMap<String, GroupIx>) -> Result<GanetiNode, RapiError> {
        UnitId::new(name.as_str()).map_err(|error| invalid("node", &name, error.why))?;
        let group = *groups.get(&self.group).ok_or_else(|| {
            let why = format!("there is no group with the UUID {:?}", self.group);
            invalid("node", &name, why)
        })?;
        Ok(GanetiNode {
            resources: self.resources(),
            name,
            offline: self.offline,
            drained: self.drained,
            vm_capable: self.vm_capable.unwrap_or(true),
            master: false,
            group,
            tags: self.tags,
            exclusive_storage: self.ndparams.exclusive_storage,
        })
    }

    fn resources(&self) -> Option<Resources> {
        let exclusive = self.ndparams.exclusive_storage;
        Some(Resources {
            memory: self.total_memory?,
            memory_own: self.reserved_memory?,
            memory_free: self.free_memory?,
            disk: self.total_disk?,
            disk_free: self.free_disk?,
            cpus: self.total_cpus?,
            spindles: if exclusive {
                self.total_spindles?
            } else {
                self.ndparams.spindle_count
            },
            spindles_free: if exclusive { self.free_spindles? } else { 0 },
            cpus_own: self.reserved_cpus?,
            cpu_speed: self.ndparams.cpu_speed,
        })
    }
}

impl InstancePart {
    fn read(self, name: String, nodes: &BTreeMap<String, NodeIx>) -> Result<Instance, RapiError> {
        let wrong = |why: String| invalid("instance", &name, why);
        UnitId::new(name.as_str()).map_err(|error| wrong(error.why.to_owned()))?;
        let node = |named: &String| {
            let known = nodes.get(named).copied();
            known.ok_or_else(|| wrong(format!("there is no node {named:?}")))
        };
        let template = Template::of_word(&self.disk_template)
            .ok_or_else(|| wrong(format!("{:?} is no disk template", self.disk_template)))?;
        let status = match self.admin_state.as_deref() {
            None | Some("up") => Status::Running,
            Some("down") => Status::AdminDown,
            Some("offline") => Status::AdminOffline,
            Some(other) => return Err(wrong(format!("{other:?} is no state"))),
        };
        let (primary, secondary) = match self.nodes.as_slice() {
            [] => return Err(wrong("it is on no node".to_owned())),
            [primary] => (node(primary)?, None),
            [primary, secondary, ..] => (node(primary)?, Some(node(secondary)?)),
        };
        if secondary == Some(primary) && template == Template::Drbd {
            return Err(wrong(format!("{:?} is both its nodes", self.nodes[0])));
        }
        let spindles = self.disks.iter().map(|disk| disk.spindles);
        Ok(Instance {
            memory: self.memory,
            maxmem: self.memory,
            disk: self.disk_space_total,
            vcpus: self.vcpus,
            status,
            // A request does not say it, and htools take it for so.
            auto_balance: true,
            primary,
            secondary,
            template,
            spindle_use: self.spindle_use,
            disk_spindles: spindles.sum(),
            forthcoming: self.forthcoming,
            tags: self.tags,
            name,
        })
    }
}
