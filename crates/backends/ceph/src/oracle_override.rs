//! When an operator's approval overrides Ceph's own oracle: only for the approved interruption, and for no
//! other objection of the oracle.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stagger_core::model::UnitId;
use stagger_engine::cluster::BackendError;

use crate::api::{CephApi, QueryTarget};
use crate::effects::{api_error, kind_and_id};
use crate::facts::CephFacts;
use crate::facts::pg::PgId;
use crate::translate::{Permitted, interruptions, pool_name};

/// Who approved that these stop although the oracle refuses; `None`: no one.
///
/// # Errors
/// The oracle no longer answers.
pub(crate) async fn override_by(
    api: &dyn CephApi,
    facts: &CephFacts,
    permitted: &Permitted,
    units: &[UnitId],
) -> Result<Option<String>, BackendError> {
    let Some((kind, _)) = units.first().map(kind_and_id) else {
        return Ok(None);
    };
    match (kind, units) {
        ("osd", _) => by_pools(api, facts, permitted, units).await,
        // Two at once are never what was permitted.
        (_, [only]) => Ok(by_daemon(facts, permitted, only)),
        (_, _) => Ok(None),
    }
}

/// Nothing stands in for this daemon by what the cluster says now, and that is what the oracle fears.
fn by_daemon(facts: &CephFacts, permitted: &Permitted, unit: &UnitId) -> Option<String> {
    let units = crate::translate::units(facts, None).ok()?;
    let places: BTreeMap<&str, u32> = (0..)
        .zip(&units)
        .map(|(at, unit)| (unit.id.as_str(), at))
        .collect();
    let found = interruptions(facts, &places, permitted).ok()?;
    let found = found
        .into_iter()
        .find(|found| found.permitted && found.units == [unit.clone()])?;
    Some(format!("an operator permits it as {}", found.name))
}

/// All that the oracle fears are groups of pools that a person lets be interrupted, and each of them is whole now.
async fn by_pools(
    api: &dyn CephApi,
    facts: &CephFacts,
    permitted: &Permitted,
    units: &[UnitId],
) -> Result<Option<String>, BackendError> {
    let ids: Vec<&str> = units.iter().map(|unit| kind_and_id(unit).1).collect();
    let question = json!({ "prefix": "osd ok-to-stop", "ids": ids, "format": "json" });
    let answer = api
        .command(QueryTarget::Mgr, question)
        .await
        .map_err(|error| api_error("osd ok-to-stop", &error))?;
    let body: Value = serde_json::from_slice(&answer.out).unwrap_or(Value::Null);
    let body = match &body["ok_to_stop"] {
        inner @ Value::Object(_) => inner.clone(),
        _ => body,
    };
    Ok(only_permitted_objections(&body, facts, permitted))
}

fn only_permitted_objections(body: &Value, facts: &CephFacts, permitted: &Permitted) -> Option<String> {
    let list = |name: &str| -> Vec<&str> {
        let list = body[name].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let others = ["bad_already_inactive", "bad_no_pool_pgs", "unknown_pgs"];
    if others.iter().any(|name| !list(name).is_empty()) {
        return None;
    }
    let feared = list("bad_become_inactive");
    // What it does not list nobody has permitted.
    if feared.is_empty() || body["num_not_ok_pgs"].as_u64() != Some(feared.len() as u64) {
        return None;
    }
    let mut names = Vec::new();
    for group in feared {
        let pool = facts.osds.pools.get(&PgId::parse(group)?.pool)?;
        let name = pool_name(pool);
        if pool.size != pool.min_size || !permitted.has("pool", &name) {
            return None;
        }
        names.push(name);
    }
    names.sort();
    names.dedup();
    Some(format!("an operator permits it as {}", names.join(", ")))
}
