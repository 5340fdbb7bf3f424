//! A Ceph's answers as conditions look at them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cluster::{ClusterAnswer, Metadata, PoolFacts, Setting};

/// The pools of `osd dump`, or of `osd pool ls detail`.
pub fn pools(answer: &[u8]) -> ClusterAnswer<Vec<PoolFacts>> {
    read(answer, "pools", |answer| {
        let pools = answer.get("pools").unwrap_or(answer).as_array()?;
        pools.iter().map(pool).collect()
    })
}

/// `type` of a pool that is erasure-coded.
const ERASURE: u64 = 3;

fn pool(pool: &Value) -> Option<PoolFacts> {
    let flags = pool.get("flags_names")?.as_str()?;
    let options = pool.get("options")?.as_object()?;
    Some(PoolFacts {
        name: pool.get("pool_name")?.as_str()?.to_owned(),
        erasure: pool.get("type")?.as_u64()? == ERASURE,
        flags: flags.split(',').map(str::to_owned).collect(),
        options: options
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
    })
}

/// What daemons of a kind say of themselves: `osd metadata`, `mon metadata`.
pub fn metadata(kind: &str, answer: &[u8]) -> ClusterAnswer<Vec<Metadata>> {
    read(answer, &format!("{kind} metadata"), |answer| {
        let all = answer.as_array()?.iter();
        all.map(|one| {
            let fields = one.as_object()?;
            let id = fields.get("id").or_else(|| fields.get("name")).map(text)?;
            Some(Metadata {
                daemon: format!("{kind}.{id}"),
                fields: fields
                    .iter()
                    .map(|(name, value)| (name.clone(), text(value)))
                    .collect(),
            })
        })
        .collect()
    })
}

/// The settings of `config dump`.
pub fn settings(answer: &[u8]) -> ClusterAnswer<Vec<Setting>> {
    read(answer, "config dump", |answer| {
        let all = answer.as_array()?.iter();
        all.map(|one| {
            Some(Setting {
                section: one.get("section")?.as_str()?.to_owned(),
                masked: one
                    .get("mask")
                    .and_then(Value::as_str)
                    .is_some_and(|mask| !mask.is_empty()),
                option: one.get("name")?.as_str()?.to_owned(),
                value: one.get("value").map(text)?,
            })
        })
        .collect()
    })
}

/// Of an answer to `config dump` only what these options are set to: the rest is not kept, since some of it may be secret.
/// `None`: it is no such answer.
pub fn settings_kept(answer: &[u8], options: &BTreeSet<String>) -> Option<Value> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let of_them = answer.as_array()?.iter().filter(|one| {
        let name = one.get("name").and_then(Value::as_str);
        name.is_some_and(|name| options.contains(name))
    });
    let kept = of_them.map(|one| {
        let field = |name: &str| Some((name.to_owned(), one.get(name)?.clone()));
        let fields: BTreeMap<String, Value> = ["section", "name", "value", "mask"]
            .into_iter()
            .filter_map(field)
            .collect();
        serde_json::to_value(fields).ok()
    });
    kept.collect::<Option<Vec<Value>>>().map(Value::Array)
}

fn read<T>(answer: &[u8], what: &str, shape: impl FnOnce(&Value) -> Option<T>) -> ClusterAnswer<T> {
    let read: Result<Value, _> = serde_json::from_slice(answer);
    match read.ok().as_ref().and_then(shape) {
        Some(read) => ClusterAnswer::Yes(read),
        None => ClusterAnswer::No(format!("what Ceph answers about its {what} cannot be read")),
    }
}

/// A value as people write it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}
