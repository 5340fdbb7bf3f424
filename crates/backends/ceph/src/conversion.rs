//! Conversion of an OSD's data for a release that does not read everything the newer one has written.
//!
//! Release 20 writes the log of `RocksDB` and the range of an OSD's maps in new formats. Release 20's own
//! tool converts the log beforehand. Release 18 reads the maps as empty: it fetches all of them again, from
//! the first, forty a message. If the OSD is marked up in the middle of that, it sometimes stays `booting`
//! for good, while its placement groups wait for it. So it may not come up before it has them, and an OSD
//! that is stuck in any case is started again. (Measured: `docs/reference/measured.md`.)

use std::time::Duration;

use serde_json::{Value, json};
use stagger_core::model::{GuardName, Revision, UnitId};
use stagger_engine::cluster::{BackendError, Call};
use tokio::time::{Instant, sleep};

use crate::api::{CephApi, QueryTarget};
use crate::effects::{OnHosts, kind_and_id};
use crate::guards;

/// How often it is started before the gates have to tell.
const STARTS: u32 = 3;

/// How long it has for its maps after a start, with nobody counting on it.
const FETCHES: Duration = Duration::from_secs(8);

/// When `noup` goes though this process was killed, in seconds: a start, and the time for the maps.
const NOUP_EXPIRES: u32 = 180;

/// How long an OSD that is not active may show the same newest map.
const STANDS_STILL: Duration = Duration::from_secs(10);

/// How long it is watched at most. After that the gates tell.
const LONGEST: Duration = Duration::from_mins(2);

/// Converts an OSD's data, starts it on the older release, and waits until it is active. Where it `runs`
/// that already, it is only started once more if it says that it stands still: then it serves nothing. One
/// that says nothing may well serve, and is left to the gates.
///
/// # Errors
/// A command failed, or the guard could not be taken or given back.
pub(crate) async fn roll_back(
    api: &dyn CephApi,
    hosts: &OnHosts<'_>,
    call: &Call,
    unit: &UnitId,
    to: &Revision,
    runs: bool,
) -> Result<String, BackendError> {
    let noup =
        GuardName::new(guards::NOUP).map_err(|e| BackendError::permanent("name a guard", e.to_string()))?;
    let units = std::slice::from_ref(unit);
    let id: Result<u32, _> = kind_and_id(unit).1.parse();
    if runs {
        let woke = match id {
            Ok(id) => watch(api, id).await,
            Err(_) => RestartOutcome::Unknown,
        };
        match woke {
            RestartOutcome::Active => return Ok(format!("it is active on {to} already")),
            RestartOutcome::Unknown => {
                return Ok(format!("it runs {to} already, and reports nothing of itself"));
            }
            RestartOutcome::Stuck => {}
        }
    } else {
        hosts.convert(call, unit, to).await?;
    }
    for nth in 1..=STARTS {
        guards::take(api, &noup, units, units, call, NOUP_EXPIRES).await?;
        let started = hosts.start_unseen(call, unit, nth).await;
        if started.is_ok() {
            sleep(FETCHES).await;
        }
        guards::drop(api, &noup, units, call).await?;
        started?;
        let Ok(id) = id.clone() else { break };
        match watch(api, id).await {
            RestartOutcome::Active => {
                return Ok(format!(
                    "converted, active on {to} after {nth} of at most {STARTS} starts"
                ));
            }
            RestartOutcome::Stuck => {}
            RestartOutcome::Unknown => break,
        }
    }
    Ok(format!("converted and started on {to}"))
}

/// What an OSD says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OsdReport {
    active: bool,
    newest_map: u64,
}

/// What has come of watching it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartOutcome {
    /// It is active.
    Active,
    /// It has stopped to fetch maps before it was active: it serves nothing.
    Stuck,
    /// It told nothing, or was still fetching at the end.
    Unknown,
}

/// Watches an OSD until it is active or stands still.
pub(crate) async fn watch(api: &dyn CephApi, id: u32) -> RestartOutcome {
    let began = Instant::now();
    let mut last: Option<(OsdReport, Instant)> = None;
    while began.elapsed() < LONGEST {
        if let Some(said) = ask(api, id).await {
            if said.active {
                return RestartOutcome::Active;
            }
            match last {
                Some((before, since)) if before == said => {
                    if since.elapsed() >= STANDS_STILL {
                        return RestartOutcome::Stuck;
                    }
                }
                Some(_) | None => last = Some((said, Instant::now())),
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
    RestartOutcome::Unknown
}

/// What it says now; `None`: nothing that can be understood, as while it starts.
async fn ask(api: &dyn CephApi, id: u32) -> Option<OsdReport> {
    let out = api
        .ask(
            QueryTarget::Osd(id),
            json!({ "prefix": "status", "format": "json" }),
        )
        .await
        .ok()?;
    parse_report(&out)
}

fn parse_report(out: &[u8]) -> Option<OsdReport> {
    let said: Value = serde_json::from_slice(out).ok()?;
    Some(OsdReport {
        active: said["state"].as_str()? == "active",
        // 18 tells a number, 20 the same in a string.
        newest_map: match &said["newest_map"] {
            Value::String(text) => text.parse().ok()?,
            other => other.as_u64()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use stagger_core::model::RunId;
    use stagger_engine::hosts::Hosts;

    use super::*;
    use crate::api::{CephAnswer, CephApiError};
    use crate::config::SoftwareByKind;

    /// An OSD that says these states and newest maps, a second each, and then the last for ever.
    struct Saying(Mutex<Vec<(&'static str, u64)>>);

    #[async_trait]
    impl CephApi for Saying {
        async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
            assert_eq!(
                (whom, &command["prefix"]),
                (QueryTarget::Osd(20), &json!("status"))
            );
            let mut left = self.0.lock().unwrap();
            let (state, newest) = if left.len() > 1 { left.remove(0) } else { left[0] };
            Ok(CephAnswer {
                rc: 0,
                out: json!({ "state": state, "newest_map": newest })
                    .to_string()
                    .into_bytes(),
                err: String::new(),
            })
        }
    }

    async fn watched(said: &[(&'static str, u64)]) -> RestartOutcome {
        watch(&Saying(Mutex::new(said.to_vec())), 20).await
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fetches_is_waited_for_and_one_that_stands_still_is_not() {
        assert_eq!(watched(&[("active", 393)]).await, RestartOutcome::Active);
        let slow: Vec<_> = (0..30)
            .map(|i| ("booting", 40 * i))
            .chain([("active", 1200)])
            .collect();
        assert_eq!(watched(&slow).await, RestartOutcome::Active);
        assert_eq!(
            watched(&[("booting", 200), ("booting", 240)]).await,
            RestartOutcome::Stuck
        );
    }

    /// An OSD that does not answer.
    struct Silent;

    #[async_trait]
    impl CephApi for Silent {
        async fn command(&self, _: QueryTarget, _: Value) -> Result<CephAnswer, CephApiError> {
            Err(CephApiError::NotRecorded {
                command: "status".to_owned(),
                file: "nowhere".into(),
            })
        }
    }

    /// To start one that serves is to stop it, and nobody was asked whether that is safe now.
    #[tokio::test(start_paused = true)]
    async fn one_that_runs_and_says_nothing_is_not_started_once_more() {
        let unit = UnitId::new("osd.20").unwrap();
        let to = Revision::new("18.2.7").unwrap();
        let (software, places) = (SoftwareByKind::default(), BTreeMap::new());
        let hosts = OnHosts {
            hosts: &Hosts::default(),
            software: &software,
            places: &places,
            fsid: "",
            image: None,
        };
        let call = Call {
            run: RunId::new("r").unwrap(),
            seq: 1,
            announced: 1,
            fence: 1,
            deadline: None,
        };
        let said = roll_back(&Silent, &hosts, &call, &unit, &to, true).await.unwrap();
        assert!(said.contains("reports nothing"), "{said}");
        // What does not run is started: here it cannot be, as there is no command for it.
        roll_back(&Silent, &hosts, &call, &unit, &to, false)
            .await
            .unwrap_err();
    }

    #[test]
    fn both_releases_are_understood() {
        let said = OsdReport {
            active: true,
            newest_map: 117,
        };
        let of_18 = br#"{"whoami":6,"state":"active","oldest_map":1,"newest_map":117,"num_pgs":4}"#;
        let of_20 = br#"{"whoami":6,"state":"active","maps":"[1~117]","oldest_map":"1","newest_map":"117"}"#;
        assert_eq!(parse_report(of_18), Some(said));
        assert_eq!(parse_report(of_20), Some(said));
        assert_eq!(
            parse_report(b"Error ENXIO: problem getting command descriptions"),
            None
        );
    }
}
