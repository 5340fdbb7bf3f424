//! Guards: settings of the cluster taken for a time and given back.
//!
//! What was changed, and how it was before, is written to `config-key` before the setting is touched:
//! whoever comes after a crash can give it back, and what an administrator had set stays.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stagger_core::model::{GuardName, UnitId};
use stagger_engine::backend::BackendError;

use crate::api::{CephApi, Whom};
use crate::effects::api_error;
use crate::facts::mds::FsMap;
use crate::facts::osd::OsdMap;

/// `noout` on the OSDs of a wave.
pub(crate) const NOOUT: &str = "noout";
/// `noup` on an OSD that starts on an older release: nobody counts on it while it fetches maps.
pub(crate) const NOUP: &str = "noup";
/// No standby follows an active metadata server's journal while they are changed.
pub(crate) const NO_STANDBY_REPLAY: &str = "no-standby-replay";
/// One rank a file system while its servers are changed.
pub(crate) const ONE_RANK: &str = "one-rank";

/// How long surplus ranks may take to stop.
const RANKS_STOP: Duration = Duration::from_mins(5);

/// What a guard has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Record {
    /// Which run holds it.
    run: String,
    /// When it goes by itself, in seconds since 1970.
    until: i64,
    /// OSDs that did not have the flag before.
    #[serde(default)]
    osds: Vec<String>,
    /// File systems with the value that they had before.
    #[serde(default)]
    before: BTreeMap<String, String>,
}

fn key(guard: &GuardName, units: &[UnitId]) -> String {
    let names: Vec<_> = units.iter().map(UnitId::as_str).collect();
    format!("stagger/guard/{guard}/{}", names.join(","))
}

/// Takes a guard, or renews it.
pub(crate) async fn take(
    api: &dyn CephApi,
    guard: &GuardName,
    units: &[UnitId],
    run: &str,
    until: i64,
) -> Result<String, BackendError> {
    let key = key(guard, units);
    let held = read(api, &key).await?;
    let mut record = match held {
        // A renewal, or the same call once more: how it was before is known already.
        Some(record) => Record {
            run: run.to_owned(),
            until,
            ..record
        },
        None => before(api, guard, units, run, until).await?,
    };
    record.until = until;
    let text = serde_json::to_string(&record)
        .map_err(|e| BackendError::permanent("write a guard", e.to_string()))?;
    ask(
        api,
        json!({ "prefix": "config-key set", "key": key, "val": text }),
    )
    .await?;
    match guard.as_str() {
        NOOUT | NOUP if record.osds.is_empty() => Ok("already set by others".to_owned()),
        flag @ (NOOUT | NOUP) => {
            ask(
                api,
                json!({ "prefix": "osd set-group", "flags": flag, "who": record.osds }),
            )
            .await?;
            Ok(format!("set on {}", record.osds.join(" ")))
        }
        NO_STANDBY_REPLAY => {
            for fs in record.before.keys() {
                fs_set(api, fs, "allow_standby_replay", "0").await?;
            }
            Ok(changed(&record))
        }
        ONE_RANK => {
            for fs in record.before.keys() {
                fs_set(api, fs, "max_mds", "1").await?;
            }
            one_rank_is_left(api).await?;
            Ok(changed(&record))
        }
        other => Err(BackendError::permanent(
            format!("take the guard {other}"),
            "this backend has no such guard",
        )),
    }
}

/// Ceph stops the surplus ranks one after another, after it was told; only then the guard is there.
async fn one_rank_is_left(api: &dyn CephApi) -> Result<(), BackendError> {
    let begun = Instant::now();
    loop {
        let map = FsMap::read(&ask(api, json!({ "prefix": "fs dump" })).await?, "fs dump")
            .map_err(|e| BackendError::transient("read the file systems", e.to_string()))?;
        let several: Vec<_> = map
            .filesystems
            .iter()
            .filter(|fs| fs.ranks() > 1)
            .map(|fs| format!("{} has {}", fs.name, fs.ranks()))
            .collect();
        if several.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > RANKS_STOP {
            return Err(BackendError::transient(
                "bring the file systems to one rank",
                format!("after {} s {} ranks", RANKS_STOP.as_secs(), several.join(", ")),
            )
            .hint("see `ceph fs status`"));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn changed(record: &Record) -> String {
    if record.before.is_empty() {
        "already so".to_owned()
    } else {
        format!(
            "on {}",
            record.before.keys().cloned().collect::<Vec<_>>().join(" ")
        )
    }
}

/// What the guard is about to change.
async fn before(
    api: &dyn CephApi,
    guard: &GuardName,
    units: &[UnitId],
    run: &str,
    until: i64,
) -> Result<Record, BackendError> {
    let mut record = Record {
        run: run.to_owned(),
        until,
        ..Record::default()
    };
    match guard.as_str() {
        flag @ (NOOUT | NOUP) => {
            let map = OsdMap::read(&ask(api, json!({ "prefix": "osd dump" })).await?, "osd dump")
                .map_err(|e| BackendError::transient("read the OSD map", e.to_string()))?;
            if map.flags.iter().any(|set| set == flag) {
                return Ok(record);
            }
            for unit in units {
                let id = unit.as_str().strip_prefix("osd.").and_then(|id| id.parse().ok());
                let osd = id.and_then(|id: u32| map.osds.get(&id));
                let Some(osd) = osd else {
                    return Err(BackendError::permanent(
                        format!("set {flag} on {unit}"),
                        "there is no such OSD",
                    ));
                };
                if !osd.flags.iter().any(|set| set == flag) {
                    record.osds.push(unit.to_string());
                }
            }
        }
        NO_STANDBY_REPLAY | ONE_RANK => {
            let map = FsMap::read(&ask(api, json!({ "prefix": "fs dump" })).await?, "fs dump")
                .map_err(|e| BackendError::transient("read the file systems", e.to_string()))?;
            for fs in map.filesystems {
                if guard.as_str() == ONE_RANK && fs.max_mds > 1 {
                    record.before.insert(fs.name, fs.max_mds.to_string());
                } else if guard.as_str() == NO_STANDBY_REPLAY && fs.standby_replay {
                    record.before.insert(fs.name, "1".to_owned());
                }
            }
        }
        _ => {}
    }
    Ok(record)
}

/// Gives a guard back: what it had changed goes to how it was.
pub(crate) async fn drop(
    api: &dyn CephApi,
    guard: &GuardName,
    units: &[UnitId],
) -> Result<String, BackendError> {
    let key = key(guard, units);
    let Some(record) = read(api, &key).await? else {
        return Ok("not held".to_owned());
    };
    give_back(api, guard.as_str(), &record).await?;
    ask(api, json!({ "prefix": "config-key rm", "key": key })).await?;
    Ok("given back".to_owned())
}

async fn give_back(api: &dyn CephApi, guard: &str, record: &Record) -> Result<(), BackendError> {
    match guard {
        NOOUT | NOUP if !record.osds.is_empty() => {
            ask(
                api,
                json!({ "prefix": "osd unset-group", "flags": guard, "who": record.osds }),
            )
            .await?;
        }
        NO_STANDBY_REPLAY => {
            for (fs, value) in &record.before {
                fs_set(api, fs, "allow_standby_replay", value).await?;
            }
        }
        ONE_RANK => {
            for (fs, value) in &record.before {
                fs_set(api, fs, "max_mds", value).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// A guard that is held in the cluster, whoever took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldGuard {
    /// Its name.
    pub guard: String,
    /// What it changed: OSDs, or file systems; nothing, if others had set it before.
    pub on: Vec<String>,
    /// Which run took it.
    pub run: String,
    /// When it goes by itself.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub until: Timestamp,
}

/// All guards that are held.
pub(crate) async fn held(api: &dyn CephApi) -> Result<Vec<HeldGuard>, BackendError> {
    let all = all(api).await?;
    Ok(all
        .into_iter()
        .map(|(_, guard, record)| shown(guard, &record))
        .collect())
}

/// Gives back every guard that is past its expiry, whoever took it, and returns them.
pub(crate) async fn drop_expired(api: &dyn CephApi, now: Timestamp) -> Result<Vec<HeldGuard>, BackendError> {
    let mut gone = Vec::new();
    for (key, guard, record) in all(api).await? {
        if record.until < now.as_second() {
            give_back(api, &guard, &record).await?;
            ask(api, json!({ "prefix": "config-key rm", "key": key })).await?;
            gone.push(shown(guard, &record));
        }
    }
    Ok(gone)
}

/// Keys, names and records.
async fn all(api: &dyn CephApi) -> Result<Vec<(String, String, Record)>, BackendError> {
    let mut found = Vec::new();
    for (key, text) in dump(api, "stagger/guard/").await? {
        let record = serde_json::from_str(&text).map_err(|error| {
            BackendError::permanent(format!("read the guard {key}"), error.to_string()).hint(format!(
                "if the setting is as it should be, `ceph config-key rm {key}` takes the record away"
            ))
        })?;
        let guard = key.split('/').nth(2).unwrap_or_default().to_owned();
        found.push((key, guard, record));
    }
    Ok(found)
}

fn shown(guard: String, record: &Record) -> HeldGuard {
    HeldGuard {
        guard,
        on: record.osds.iter().chain(record.before.keys()).cloned().collect(),
        run: record.run.clone(),
        until: Timestamp::from_second(record.until).unwrap_or(Timestamp::MAX),
    }
}

async fn fs_set(api: &dyn CephApi, fs: &str, what: &str, value: &str) -> Result<(), BackendError> {
    ask(
        api,
        json!({ "prefix": "fs set", "fs_name": fs, "var": what, "val": value }),
    )
    .await
    .map(|_| ())
}

async fn read(api: &dyn CephApi, key: &str) -> Result<Option<Record>, BackendError> {
    let all = dump(api, key).await?;
    let Some(text) = all.get(key) else { return Ok(None) };
    serde_json::from_str(text)
        .map(Some)
        .map_err(|e| BackendError::permanent(format!("read the guard {key}"), e.to_string()))
}

async fn dump(api: &dyn CephApi, prefix: &str) -> Result<BTreeMap<String, String>, BackendError> {
    let out = ask(api, json!({ "prefix": "config-key dump", "key": prefix })).await?;
    serde_json::from_slice(&out)
        .map_err(|e| BackendError::transient(format!("read the keys below {prefix}"), e.to_string()))
}

async fn ask(api: &dyn CephApi, command: Value) -> Result<Vec<u8>, BackendError> {
    let tried = command["prefix"].as_str().unwrap_or("ask").to_owned();
    api.ask(Whom::Mon, command)
        .await
        .map_err(|e| api_error(&tried, &e))
}
