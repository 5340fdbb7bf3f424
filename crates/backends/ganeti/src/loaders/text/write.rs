//! A cluster as text.

use std::fmt::Write as _;

use crate::model::{GanetiCluster, GanetiNode, Instance, Ipolicy, NodeGroup, Spec};

/// The cluster in Ganeti's text format. What the format has no word for is written as its nearest: a node that
/// is drained, or carries no instances, as offline; one that says nothing of itself with `?`.
pub fn write(cluster: &GanetiCluster) -> String {
    let mut text = String::new();
    for group in &cluster.groups {
        add_group(&mut text, group);
    }
    text.push('\n');
    for node in &cluster.nodes {
        add_node(&mut text, node, cluster);
    }
    text.push('\n');
    for instance in &cluster.instances {
        add_instance(&mut text, instance, cluster);
    }
    text.push('\n');
    for tag in &cluster.tags {
        let _ = writeln!(text, "{tag}");
    }
    text.push('\n');
    if let Some(policy) = &cluster.ipolicy {
        add_ipolicy(&mut text, "", policy);
    }
    for group in &cluster.groups {
        if let Some(policy) = &group.ipolicy {
            add_ipolicy(&mut text, &group.name, policy);
        }
    }
    text
}

fn add_group(text: &mut String, group: &NodeGroup) {
    let NodeGroup {
        name,
        uuid,
        alloc_policy,
        tags,
        networks,
        ipolicy: _,
    } = group;
    let (tags, networks) = (tags.join(","), networks.join(","));
    let _ = writeln!(text, "{name}|{uuid}|{}|{tags}|{networks}", alloc_policy.as_str());
}

fn add_node(text: &mut String, node: &GanetiNode, cluster: &GanetiCluster) {
    let flag = match node {
        node if node.offline || node.drained || !node.vm_capable => "Y",
        node if node.master => "M",
        _ => "N",
    };
    let (name, uuid, tags) = (&node.name, &cluster.group(node.group).uuid, node.tags.join(","));
    let exclusive = yes_or_no(node.exclusive_storage);
    let Some(r) = &node.resources else {
        let _ = writeln!(
            text,
            "{name}|?|?|?|?|?|?|{flag}|{uuid}|1|{tags}|{exclusive}|0|1|1.0"
        );
        return;
    };
    let _ = writeln!(
        text,
        "{name}|{}|{}|{}|{}|{}|{}|{flag}|{uuid}|{}|{tags}|{exclusive}|{}|{}|{:?}",
        r.memory,
        r.memory_own,
        r.memory_free,
        r.disk,
        r.disk_free,
        r.cpus,
        r.spindles,
        r.spindles_free,
        r.cpus_own,
        r.cpu_speed
    );
}

fn add_instance(text: &mut String, instance: &Instance, cluster: &GanetiCluster) {
    let secondary = instance
        .secondary
        .map_or("", |secondary| cluster.node(secondary).name.as_str());
    let spindles = instance
        .disk_spindles
        .map_or_else(|| "-".to_owned(), |spindles| spindles.to_string());
    let _ = writeln!(
        text,
        "{}|{}|{}|{}|{}|{}|{}|{secondary}|{}|{}|{}|{spindles}|{}",
        instance.name,
        instance.memory,
        instance.disk,
        instance.vcpus,
        instance.status,
        yes_or_no(instance.auto_balance),
        cluster.node(instance.primary).name,
        instance.template,
        instance.tags.join(","),
        instance.spindle_use,
        yes_or_no(instance.forthcoming)
    );
}

fn add_ipolicy(text: &mut String, owner: &str, policy: &Ipolicy) {
    let ranges: Vec<String> = policy
        .ranges
        .iter()
        .flat_map(|(least, most)| [spec(least), spec(most)])
        .collect();
    let templates: Vec<&str> = policy.templates.iter().map(|template| template.word()).collect();
    let _ = writeln!(
        text,
        "{owner}|{}|{}|{}|{:?}|{:?}",
        spec(&policy.standard),
        ranges.join(";"),
        templates.join(","),
        policy.vcpu_ratio,
        policy.spindle_ratio
    );
}

fn spec(spec: &Spec) -> String {
    spec.map(|size| size.to_string()).join(",")
}

fn yes_or_no(is: bool) -> &'static str {
    if is { "Y" } else { "N" }
}
