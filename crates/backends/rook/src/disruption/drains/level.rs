//! The lowest level of failure domains that a pool's rule enforces.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::api::names::LEVELS;

/// Where `host` stands among the levels.
const HOST: usize = 1;

#[derive(Deserialize)]
struct OsdDump {
    pools: Vec<Pool>,
}

#[derive(Deserialize)]
struct Pool {
    pool_name: String,
    crush_rule: i64,
}

#[derive(Deserialize)]
struct Rule {
    rule_id: i64,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    op: String,
    #[serde(default, rename = "type")]
    kind: String,
}

/// The level, from what `osd dump` and `osd crush rule dump` answer; `None`: there are no pools. `host` is the lowest: a
/// single OSD has no label of its own, and nobody drains less than a host. A level that Ceph does not name itself counts as
/// `host` too: it cannot be compared with others.
///
/// # Errors
/// An answer that is not understood, in words.
pub fn lowest(osd_dump: &[u8], rules: &[u8]) -> Result<Option<String>, String> {
    let dump: OsdDump = serde_json::from_slice(osd_dump).map_err(|e| format!("`osd dump`: {e}"))?;
    let rules: Vec<Rule> =
        serde_json::from_slice(rules).map_err(|e| format!("`osd crush rule dump`: {e}"))?;
    let rules: BTreeMap<i64, &Rule> = rules.iter().map(|rule| (rule.rule_id, rule)).collect();
    let mut lowest: Option<usize> = None;
    for pool in &dump.pools {
        let rule = rules.get(&pool.crush_rule).ok_or_else(|| {
            format!(
                "pool {} has rule {}, and there is none",
                pool.pool_name, pool.crush_rule
            )
        })?;
        // The last choice of a rule is its finest: no two copies are in one of those.
        let chosen = rule.steps.iter().rev().find(|step| step.op.starts_with("choose"));
        let kind = chosen.map_or("osd", |step| step.kind.as_str());
        let place = LEVELS.iter().position(|level| *level == kind);
        let place = place.unwrap_or(HOST).max(HOST);
        lowest = Some(lowest.map_or(place, |before| before.min(place)));
    }
    Ok(lowest.map(|place| LEVELS[place].to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finest_rule_counts() {
        let rules = br#"[
            {"rule_id": 0, "rule_name": "replicated_rule", "steps": [
                {"op": "take", "item": -1, "item_name": "default"},
                {"op": "chooseleaf_firstn", "num": 0, "type": "host"}, {"op": "emit"}]},
            {"rule_id": 1, "rule_name": "by-zone", "steps": [
                {"op": "take", "item": -1, "item_name": "default"},
                {"op": "chooseleaf_firstn", "num": 0, "type": "zone"}, {"op": "emit"}]},
            {"rule_id": 2, "rule_name": "two-in-a-rack", "steps": [
                {"op": "set_chooseleaf_tries", "num": 5},
                {"op": "take", "item": -1, "item_name": "default"},
                {"op": "choose_indep", "num": 2, "type": "rack"},
                {"op": "chooseleaf_indep", "num": 2, "type": "host"}, {"op": "emit"}]},
            {"rule_id": 3, "rule_name": "anywhere", "steps": [
                {"op": "take", "item": -1, "item_name": "default"},
                {"op": "choose_firstn", "num": 0, "type": "osd"}, {"op": "emit"}]}
        ]"#;
        let pools = |rules: &[i64]| {
            let pools: Vec<_> = rules
                .iter()
                .map(|rule| serde_json::json!({ "pool_name": format!("p{rule}"), "crush_rule": rule }))
                .collect();
            serde_json::json!({ "epoch": 7, "pools": pools }).to_string()
        };
        let level = |of: &[i64]| lowest(pools(of).as_bytes(), rules);
        assert_eq!(level(&[]), Ok(None));
        assert_eq!(level(&[1]), Ok(Some("zone".to_owned())));
        assert_eq!(level(&[1, 0]), Ok(Some("host".to_owned())));
        assert_eq!(level(&[2]), Ok(Some("host".to_owned())));
        // No Deployment has a label for a single OSD.
        assert_eq!(level(&[1, 3]), Ok(Some("host".to_owned())));
        assert!(level(&[9]).unwrap_err().contains("rule 9"));
        assert!(lowest(b"", rules).is_err());
    }
}
