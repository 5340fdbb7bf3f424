//! The database of each monitor.
//!
//! No metadata names it, but a monitor has performance counters under its database's name.

use serde_json::{Value, json};

use super::CephFacts;
use crate::api::{CephApi, QueryTarget};

/// The release from which on there is no `LevelDB`.
pub(crate) const NO_LEVELDB: u32 = 17;

/// Asks each monitor that may still have `LevelDB`, and notes what it has; one that does not tell has
/// `unknown`, and is not upgraded.
pub async fn ask_mons(api: &dyn CephApi, facts: &mut CephFacts) {
    for mon in &mut facts.mon_metadata {
        let major = mon
            .version
            .as_deref()
            .and_then(|version| version.split('.').next());
        if major.is_none_or(|major| major.parse().is_ok_and(|major: u32| major < NO_LEVELDB))
            && let Some(rank) = facts.mons.ranks.get(&mon.name)
        {
            let counters = api
                .ask(QueryTarget::MonAt(*rank), json!({ "prefix": "perf dump" }))
                .await
                .unwrap_or_default();
            mon.kv_backend = Some(database(&counters).to_owned());
        }
    }
}

fn database(counters: &[u8]) -> &'static str {
    let counters: Value = serde_json::from_slice(counters).unwrap_or(Value::Null);
    ["rocksdb", "leveldb"]
        .into_iter()
        .find(|name| counters.get(name).is_some())
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_tell_the_database() {
        assert_eq!(database(br#"{"mon":{},"rocksdb":{"get":1}}"#), "rocksdb");
        assert_eq!(database(br#"{"mon":{},"leveldb":{"leveldb_get":1}}"#), "leveldb");
        assert_eq!(database(br#"{"mon":{}}"#), "unknown");
        assert_eq!(database(b""), "unknown");
    }
}
