//! The release that each monitor records on its disk, in its file `min_mon_release`.
//!
//! A monitor of release N starts on a store only if the release recorded there is at least N - 2. It records its own release when a
//! change of the monitor map reaches it through Paxos, and not if it learned that map from another monitor while it was out of
//! the quorum (`MonmapMonitor::update_from_paxos` returns before): then the record may be two releases behind the cluster, and
//! the new monitor does not start: "you should first upgrade to 17 (quincy) or 18 (reef)". The record cannot be asked for. So
//! the monitor map is changed once, while all monitors are in quorum and before the first of them is upgraded.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use stagger_core::model::Revision;
use stagger_engine::cluster::BackendError;

use crate::api::{CephApi, QueryTarget};
use crate::effects::api_error;
use crate::facts::release::Version;
use crate::facts::versions::DaemonVersions;

/// How often the monitors are looked at until all of them have the new map.
const LOOKS: u32 = 30;

/// What of `quorum_status` is needed.
#[derive(Debug, Deserialize)]
struct Monitors {
    quorum_names: Vec<String>,
    monmap: MonitorMap,
}

#[derive(Debug, Deserialize)]
struct MonitorMap {
    epoch: u64,
    mons: Vec<Monitor>,
}

#[derive(Debug, Deserialize)]
struct Monitor {
    name: String,
    #[serde(default)]
    weight: u16,
}

/// Makes every monitor record the release that it runs, if none of them is of the release of `to` yet. To give the first monitor
/// the weight that it has makes a new map and changes nothing in it, so this may be done again, and be interrupted anywhere.
/// `pause`: between two looks.
///
/// # Errors
/// Ceph gives no answer, or the monitors do not come to a whole quorum with the new map.
pub(crate) async fn record(
    api: &dyn CephApi,
    to: &Revision,
    pause: Duration,
) -> Result<String, BackendError> {
    let tried = "have the monitors record their release";
    if !is_before_the_first(api, to).await? {
        return Ok(String::new());
    }
    let before = monitors(api).await?;
    let missing = |monitors: &Monitors| {
        let names = monitors.monmap.mons.iter().map(|mon| mon.name.as_str());
        let missing: Vec<&str> = names
            .filter(|name| !monitors.quorum_names.iter().any(|member| member == name))
            .collect();
        missing.join(", ")
    };
    let out = missing(&before);
    if !out.is_empty() {
        return Err(BackendError::transient(tried, format!("not in quorum: {out}")));
    }
    let Some(first) = before.monmap.mons.first() else {
        return Err(BackendError::transient(tried, "the monitor map is empty"));
    };
    let same = json!({ "prefix": "mon set-weight", "name": first.name, "weight": first.weight });
    api.ask(QueryTarget::Mon, same)
        .await
        .map_err(|error| api_error(tried, &error))?;
    let mut seen = String::new();
    for _ in 0..LOOKS {
        // While they elect a leader they may refuse to answer.
        match monitors(api).await {
            Ok(now) if now.monmap.epoch > before.monmap.epoch && missing(&now).is_empty() => {
                return Ok(format!(
                    "all {} monitors recorded their release with monitor map {}",
                    now.monmap.mons.len(),
                    now.monmap.epoch
                ));
            }
            Ok(now) => {
                seen = format!(
                    "after `ceph mon set-weight {} {}` the map is {} and was {}; not in quorum: {}",
                    first.name,
                    first.weight,
                    now.monmap.epoch,
                    before.monmap.epoch,
                    missing(&now)
                );
            }
            Err(error) => seen = error.why,
        }
        tokio::time::sleep(pause).await;
    }
    Err(BackendError::transient(tried, seen))
}

/// Whether every monitor runs an older release.
async fn is_before_the_first(api: &dyn CephApi, to: &Revision) -> Result<bool, BackendError> {
    let tried = "read the versions of the monitors";
    let Some(to) = Version::parse(to.as_str()) else {
        return Ok(false);
    };
    let told = api
        .ask(QueryTarget::Mon, json!({ "prefix": "versions" }))
        .await
        .map_err(|error| api_error(tried, &error))?;
    let versions = DaemonVersions::read(&told, "versions")
        .map_err(|error| BackendError::transient(tried, error.to_string()))?;
    let running = versions.by_kind.get("mon");
    let mut running = running
        .into_iter()
        .flatten()
        .map(|(version, _)| Version::parse(version));
    Ok(running.all(|version| version.is_some_and(|version| version.major < to.major)))
}

async fn monitors(api: &dyn CephApi) -> Result<Monitors, BackendError> {
    let tried = "read the monitors and their quorum";
    let told = api
        .ask(QueryTarget::Mon, json!({ "prefix": "quorum_status" }))
        .await
        .map_err(|error| api_error(tried, &error))?;
    serde_json::from_slice(&told).map_err(|error| BackendError::transient(tried, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use serde_json::Value;

    use super::*;
    use crate::api::{CephAnswer, CephApiError, command_line};

    /// Three monitors, of which some run 20, and whose map changes when somebody asks for it.
    struct ThreeMonitors {
        new: u32,
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        epoch: u64,
        /// So many looks find the last one out of the quorum.
        electing: u32,
        changes: Vec<String>,
    }

    fn monitors(new: u32, electing: u32) -> ThreeMonitors {
        let state = State {
            electing,
            ..State::default()
        };
        ThreeMonitors {
            new,
            state: Mutex::new(state),
        }
    }

    #[async_trait]
    impl CephApi for ThreeMonitors {
        async fn command(&self, _: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
            let mut state = self.state.lock().unwrap();
            let out = match command["prefix"].as_str().unwrap() {
                "versions" => {
                    let version = |text: &str| format!("ceph version {text} (abc) x (stable)");
                    let mut mon = json!({ version("18.2.7"): 3 - self.new });
                    if self.new > 0 {
                        mon[version("20.2.4")] = self.new.into();
                    }
                    json!({ "mon": mon })
                }
                "quorum_status" => {
                    let whole = state.epoch == 0 || state.electing == 0;
                    if !whole {
                        state.electing -= 1;
                    }
                    let names = ["a", "b", "c"];
                    let mons = names.map(|name| json!({ "name": name, "rank": 0, "weight": 7 }));
                    let quorum = &names[..if whole { 3 } else { 2 }];
                    json!({ "quorum_names": quorum, "monmap": { "epoch": 4 + state.epoch, "mons": mons } })
                }
                _ => {
                    state.epoch += 1;
                    state.changes.push(command_line(&command).join(" "));
                    Value::Null
                }
            };
            Ok(CephAnswer {
                rc: 0,
                out: out.to_string().into_bytes(),
                err: String::new(),
            })
        }
    }

    async fn recorded(monitors: &ThreeMonitors) -> Result<String, BackendError> {
        record(
            monitors,
            &Revision::new("20.2.4").unwrap(),
            Duration::from_secs(1),
        )
        .await
    }

    fn changes(monitors: &ThreeMonitors) -> Vec<String> {
        monitors.state.lock().unwrap().changes.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn the_map_is_changed_before_the_first_monitor_and_nothing_in_it() {
        let monitors = monitors(0, 3);
        let told = recorded(&monitors).await.unwrap();
        assert_eq!(told, "all 3 monitors recorded their release with monitor map 5");
        assert_eq!(changes(&monitors), ["mon set-weight a 7"]);
    }

    #[tokio::test(start_paused = true)]
    async fn once_a_monitor_is_new_the_map_is_left_alone() {
        let monitors = monitors(1, 0);
        assert_eq!(recorded(&monitors).await.unwrap(), "");
        assert!(changes(&monitors).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn monitors_that_do_not_come_back_to_a_quorum_are_named() {
        let error = recorded(&monitors(0, u32::MAX)).await.unwrap_err();
        assert!(error.why.contains("not in quorum: c"), "{error:?}");
    }
}
