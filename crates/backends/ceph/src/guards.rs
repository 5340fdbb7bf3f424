//! Guards: settings of the cluster taken for a time and cleared afterwards.
//!
//! The change and the previous value are written to `config-key` before the setting is changed: a successor
//! can clear it after a crash, and an administrator's own setting stays.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stagger_core::model::{GuardName, UnitId};
use stagger_engine::cluster::{BackendError, Call};
use stagger_engine::heartbeats::Heartbeats;

use crate::api::{CephApi, QueryTarget};
use crate::effects::api_error;
use crate::facts::mds::FsMap;
use crate::facts::mon::Quorum;
use crate::facts::osd::OsdMap;
use crate::images;

/// `noout` on the OSDs of a wave.
pub(crate) const NOOUT: &str = "noout";
/// `noup` on an OSD that starts on an older release: it stays out of service while it fetches maps.
pub(crate) const NOUP: &str = "noup";
/// No standby follows an active metadata server's journal while they are changed.
pub(crate) const NO_STANDBY_REPLAY: &str = "no-standby-replay";
/// One rank a file system while its servers are changed.
pub(crate) const ONE_RANK: &str = "one-rank";

/// The balancer rests.
pub(crate) const NO_BALANCER: &str = "no-balancer";
/// The autoscaler rests, for all pools and whatever their own modes are.
pub(crate) const NO_AUTOSCALE: &str = "no-autoscale";
/// cephadm deploys, removes and reconfigures nothing.
pub(crate) const NO_ORCHESTRATOR: &str = "no-orchestrator";
/// No scrub begins.
pub(crate) const NO_SCRUBS: &str = "no-scrubs";

/// The first release that knows the flag `noautoscale`. It is set by itself and not by `osd pool set`, which also writes
/// the default mode of new pools, and writes `on` when it gives back.
const FIRST_NOAUTOSCALE: u32 = 17;
/// How long a guard lasts whose note does not say so.
const LASTS: u32 = 20 * 60;

/// How long surplus ranks may take to stop.
const RANKS_STOP: Duration = Duration::from_mins(5);

/// What a guard has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Record {
    /// Which run holds it.
    run: String,
    /// The fencing token of who took or renewed it last.
    #[serde(default)]
    token: u64,
    /// Grows with each renewal: by this others see that its holder lives.
    #[serde(default)]
    beat: u64,
    /// So many seconds after a renewal it may be given back by others; not there in those of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u32>,
    /// When that is by the clock of who wrote it, in seconds since 1970: to be shown, not to be compared.
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

/// Which units go down together with that one, as far as a guard of their wave tells.
///
/// # Errors
/// The cluster cannot be asked.
pub(crate) async fn wave_of(api: &dyn CephApi, unit: &UnitId) -> Result<Vec<UnitId>, BackendError> {
    let below = format!("stagger/guard/{NOOUT}/");
    for key in dump(api, &below).await?.keys() {
        let units = key.strip_prefix(&below).unwrap_or_default().split(',');
        let units: Vec<UnitId> = units.filter_map(|name| UnitId::new(name).ok()).collect();
        if units.contains(unit) {
            return Ok(units);
        }
    }
    Ok(vec![unit.clone()])
}

/// Takes a guard, or renews it. `osds`: those among `units`, or those that these carry.
pub(crate) async fn take(
    api: &dyn CephApi,
    guard: &GuardName,
    units: &[UnitId],
    osds: &[UnitId],
    call: &Call,
    expires: u32,
) -> Result<String, BackendError> {
    let key = key(guard, units);
    let held = read(api, &key).await?;
    let mut record = match held {
        // A renewal, or the same call once more: how it was before is known already.
        Some(record) => Record {
            beat: record.beat + 1,
            ..record
        },
        None => before(api, guard, osds).await?,
    };
    record.run = call.run.to_string();
    record.token = call.fence;
    record.expires = Some(expires);
    record.until = Timestamp::now().as_second() + i64::from(expires);
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
        NO_BALANCER => {
            if !record.before.is_empty() {
                ask_of(api, QueryTarget::Mgr, json!({ "prefix": "balancer off" })).await?;
            }
            Ok(paused(&record))
        }
        NO_ORCHESTRATOR => {
            if !record.before.is_empty() {
                ask_of(api, QueryTarget::Mgr, json!({ "prefix": "orch pause" })).await?;
            }
            Ok(paused(&record))
        }
        NO_AUTOSCALE | NO_SCRUBS => {
            for flag in record.before.keys() {
                ask(api, json!({ "prefix": "osd set", "key": flag })).await?;
            }
            Ok(paused(&record))
        }
        other => Err(BackendError::permanent(
            format!("take the guard {other}"),
            "this backend has no such guard",
        )),
    }
}

/// Ceph stops the surplus ranks one after another; the guard is in place when one is left.
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

fn paused(record: &Record) -> String {
    if record.before.is_empty() {
        "already so".to_owned()
    } else {
        record
            .before
            .keys()
            .map(|what| format!("{what} set"))
            .collect::<Vec<_>>()
            .join(", ")
            .replace("balancer set", "balancer off")
            .replace("cephadm set", "cephadm paused")
    }
}

/// The cluster-wide flags among these that are not set.
async fn unset_flags(api: &dyn CephApi, flags: &[&str]) -> Result<BTreeMap<String, String>, BackendError> {
    let map = OsdMap::read(&ask(api, json!({ "prefix": "osd dump" })).await?, "osd dump")
        .map_err(|e| BackendError::transient("read the OSD map", e.to_string()))?;
    Ok(flags
        .iter()
        .filter(|flag| !map.flags.iter().any(|set| set == **flag))
        .map(|flag| ((*flag).to_owned(), "unset".to_owned()))
        .collect())
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
async fn before(api: &dyn CephApi, guard: &GuardName, osds: &[UnitId]) -> Result<Record, BackendError> {
    let mut record = Record::default();
    match guard.as_str() {
        flag @ (NOOUT | NOUP) => {
            let map = OsdMap::read(&ask(api, json!({ "prefix": "osd dump" })).await?, "osd dump")
                .map_err(|e| BackendError::transient("read the OSD map", e.to_string()))?;
            if map.flags.iter().any(|set| set == flag) {
                return Ok(record);
            }
            for unit in osds {
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
        NO_BALANCER => {
            let status = ask_of(api, QueryTarget::Mgr, json!({ "prefix": "balancer status" })).await?;
            let status: Value = serde_json::from_slice(&status)
                .map_err(|e| BackendError::transient("read what the balancer does", e.to_string()))?;
            match &status["active"] {
                Value::Bool(true) => {
                    record.before.insert("balancer".to_owned(), "on".to_owned());
                }
                Value::Bool(false) => {}
                _ => {
                    return Err(BackendError::transient(
                        "read what the balancer does",
                        "its status does not say whether it is active",
                    ));
                }
            }
        }
        NO_ORCHESTRATOR => {
            let status = ask_of(api, QueryTarget::Mgr, json!({ "prefix": "orch status" })).await?;
            let status: Value = serde_json::from_slice(&status)
                .map_err(|e| BackendError::transient("read what cephadm does", e.to_string()))?;
            match &status["paused"] {
                Value::Bool(true) => {}
                Value::Bool(false) => {
                    record.before.insert("cephadm".to_owned(), "on".to_owned());
                }
                _ => {
                    return Err(BackendError::transient(
                        "read what cephadm does",
                        "its status does not say whether it is paused",
                    ));
                }
            }
        }
        NO_AUTOSCALE => {
            let quorum = ask(api, json!({ "prefix": "quorum_status" })).await?;
            let quorum = Quorum::read(&quorum, "quorum_status")
                .map_err(|e| BackendError::transient("read the monitors", e.to_string()))?;
            if quorum.min_mon_release >= FIRST_NOAUTOSCALE {
                record.before = unset_flags(api, &["noautoscale"]).await?;
            }
        }
        NO_SCRUBS => record.before = unset_flags(api, &["noscrub", "nodeep-scrub"]).await?,
        _ => {}
    }
    Ok(record)
}

/// Releases a guard: what it had changed becomes what it was. One that a later run has taken is that run's.
pub(crate) async fn drop(
    api: &dyn CephApi,
    guard: &GuardName,
    units: &[UnitId],
    call: &Call,
) -> Result<String, BackendError> {
    let key = key(guard, units);
    let Some(record) = read(api, &key).await? else {
        return Ok("not held".to_owned());
    };
    if record.token > call.fence {
        return Ok(format!("held by the later run {}", record.run));
    }
    clear(api, guard.as_str(), &record).await?;
    ask(api, json!({ "prefix": "config-key rm", "key": key })).await?;
    Ok("cleared".to_owned())
}

async fn clear(api: &dyn CephApi, guard: &str, record: &Record) -> Result<(), BackendError> {
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
        NO_BALANCER if !record.before.is_empty() => {
            ask_of(api, QueryTarget::Mgr, json!({ "prefix": "balancer on" })).await?;
        }
        NO_ORCHESTRATOR if !record.before.is_empty() => {
            ask_of(api, QueryTarget::Mgr, json!({ "prefix": "orch resume" })).await?;
            images::look_anew(api).await?;
        }
        NO_AUTOSCALE | NO_SCRUBS => {
            for flag in record.before.keys() {
                ask(api, json!({ "prefix": "osd unset", "key": flag })).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// A guard that is held in the cluster, whatever took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CephHeldGuard {
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
pub(crate) async fn held(api: &dyn CephApi) -> Result<Vec<CephHeldGuard>, BackendError> {
    let all = all(api).await?;
    Ok(all
        .into_iter()
        .map(|(_, guard, record)| listed_guard(guard, &record))
        .collect())
}

/// What came of a look at all guards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuardExpiry {
    /// Guards that expired and were cleared.
    pub gone: Vec<CephHeldGuard>,
    /// These are held.
    pub held: Vec<CephHeldGuard>,
    /// When the next of these expires, unless it is renewed.
    pub next: Option<Duration>,
    /// The longest of these lasts so long.
    pub longest: Option<Duration>,
}

/// Clears the guards that `beats` has seen unchanged for longer than their lifetime, whoever took them;
/// returns all.
pub(crate) async fn drop_expired(
    api: &dyn CephApi,
    beats: &mut Heartbeats,
    now: Instant,
) -> Result<GuardExpiry, BackendError> {
    let all = all(api).await?;
    let notes = all
        .iter()
        .map(|(key, _, record)| (key.clone(), format!("{record:?}")));
    let stood = beats.unchanged_for(now, notes);
    let mut looked = GuardExpiry::default();
    for (key, guard, record) in all {
        let lasts = Duration::from_secs(u64::from(record.expires.unwrap_or(LASTS)));
        let stood = stood.get(&key).copied().unwrap_or_default();
        if let Some(left) = lasts.checked_sub(stood) {
            looked.next = Some(looked.next.map_or(left, |next| next.min(left)));
            looked.longest = looked.longest.max(Some(lasts));
            looked.held.push(listed_guard(guard, &record));
            continue;
        }
        clear(api, &guard, &record).await?;
        ask(api, json!({ "prefix": "config-key rm", "key": key })).await?;
        looked.gone.push(listed_guard(guard, &record));
    }
    Ok(looked)
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

fn listed_guard(guard: String, record: &Record) -> CephHeldGuard {
    CephHeldGuard {
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
    ask_of(api, QueryTarget::Mon, command).await
}

async fn ask_of(api: &dyn CephApi, whom: QueryTarget, command: Value) -> Result<Vec<u8>, BackendError> {
    let tried = command["prefix"].as_str().unwrap_or("ask").to_owned();
    api.ask(whom, command).await.map_err(|e| api_error(&tried, &e))
}
