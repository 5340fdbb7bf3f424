//! Effects: each ensures the state that an action names.

use std::collections::BTreeMap;

use serde_json::json;
use stagger_core::model::{Phase, Revision, UnitId};
use stagger_engine::cluster::{BackendError, Call, in_full};
use stagger_engine::hosts::{Hosts, MayBegin, WHENEVER, last_words};
use stagger_engine::template::filled;

use crate::api::{CephApi, CephApiError, QueryTarget};
use crate::config::SoftwareByKind;
use crate::facts::release;
use crate::rollback_table;

/// The commands that take a daemon down which serves.
const STOPS: [&str; 3] = ["restart", "before_rollback", "rebuild"];

/// How often a start that met the pidfile of its dying predecessor is tried again.
const STARTS: u32 = 4;

/// An API error as the engine takes it.
pub(crate) fn api_error(tried: &str, error: &CephApiError) -> BackendError {
    let why = in_full(error);
    let made = if error.passes() {
        BackendError::transient(tried, why)
    } else {
        BackendError::permanent(tried, why)
    };
    // A question that was sent and never answered may still be carried out.
    let made = match error {
        CephApiError::TimedOut { .. } | CephApiError::Unreachable { .. } => made.outcome_unknown(),
        CephApiError::Start { .. }
        | CephApiError::Refused { .. }
        | CephApiError::NotRecorded { .. }
        | CephApiError::Recording { .. }
        | CephApiError::NotSaved { .. } => made,
    };
    match error.hint() {
        Some(hint) => made.hint(hint),
        None => made,
    }
}

/// A unit's kind and id: `osd.3` is `osd` and `3`.
pub(crate) fn kind_and_id(unit: &UnitId) -> (&str, &str) {
    unit.as_str().split_once('.').unwrap_or((unit.as_str(), ""))
}

/// Whether a unit that goes back to that release needs its data converted before, where `newest` is the
/// newest release that runs in its cluster.
pub(crate) fn is_converted(unit: &UnitId, newest: u32, to: &Revision) -> bool {
    let major = to.as_str().split('.').next().and_then(|major| major.parse().ok());
    major.is_some_and(|major| rollback_table::is_converted(kind_and_id(unit).0, newest, major))
}

/// Changes daemons on hosts.
pub(crate) struct OnHosts<'a> {
    pub(crate) hosts: &'a Hosts,
    pub(crate) software: &'a SoftwareByKind,
    /// Which host each daemon is on.
    pub(crate) places: &'a BTreeMap<UnitId, String>,
    /// The cluster's id, of the profile `cephadm`.
    pub(crate) fsid: &'a str,
    /// The image of the release that daemons get, of the profile `cephadm`.
    pub(crate) image: Option<&'a str>,
}

impl OnHosts<'_> {
    /// The new release, then a restart.
    pub(crate) async fn change(
        &self,
        call: &Call,
        unit: &UnitId,
        phase: Phase,
        to: &Revision,
    ) -> Result<String, BackendError> {
        match phase {
            Phase::Prepare => self.run(call, unit, "upgrade", Some(to)).await,
            // A daemon goes down and comes up in its restart: there is nothing to enter or to leave.
            Phase::Enter | Phase::Leave => Ok(String::new()),
            Phase::Change => self.restart(call, unit, Some(to)).await,
        }
    }

    /// The older release, then a restart or a new store.
    pub(crate) async fn roll_back(
        &self,
        call: &Call,
        unit: &UnitId,
        to: &Revision,
        rebuild: bool,
    ) -> Result<String, BackendError> {
        if rebuild {
            return self.run(call, unit, "rebuild", Some(to)).await;
        }
        self.run(call, unit, "rollback", Some(to)).await?;
        self.restart(call, unit, Some(to)).await
    }

    /// Stops and starts a daemon. The lock of a dying predecessor's pidfile is known by its words: the
    /// exit code 250 also means a store that cannot be opened.
    pub(crate) async fn restart(
        &self,
        call: &Call,
        unit: &UnitId,
        to: Option<&Revision>,
    ) -> Result<String, BackendError> {
        let mut attempt = 1;
        loop {
            let which = if attempt == 1 {
                "restart".to_owned()
            } else {
                format!("restart-{attempt}")
            };
            match self.run(call, unit, &which, to).await {
                Err(error) if attempt < STARTS && error.why.contains("failed to lock pidfile") => {
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    /// Stops the daemon and makes its data readable for the older release; then that is what its next
    /// start runs.
    pub(crate) async fn convert(
        &self,
        call: &Call,
        unit: &UnitId,
        to: &Revision,
    ) -> Result<(), BackendError> {
        self.run(call, unit, "before_rollback", Some(to)).await?;
        self.run(call, unit, "rollback", Some(to)).await?;
        Ok(())
    }

    /// Starts a daemon that nobody counts on, for the nth time in the same effect.
    pub(crate) async fn start_unseen(
        &self,
        call: &Call,
        unit: &UnitId,
        nth: u32,
    ) -> Result<(), BackendError> {
        self.run(call, unit, &format!("restart-unseen-{nth}"), None)
            .await?;
        Ok(())
    }

    /// The last log lines of a daemon, if there is a command for them.
    pub(crate) async fn logs(&self, call: &Call, unit: &UnitId) -> Option<String> {
        let (kind, _) = kind_and_id(unit);
        self.software.of(kind).logs.as_ref()?;
        self.run(call, unit, "logs", None).await.ok()
    }

    async fn run(
        &self,
        call: &Call,
        unit: &UnitId,
        which: &str,
        to: Option<&Revision>,
    ) -> Result<String, BackendError> {
        let (kind, id) = kind_and_id(unit);
        let software = self.software.of(kind);
        let verb = which.split('-').next().unwrap_or(which);
        let template = match verb {
            "upgrade" => software.upgrade,
            "before_rollback" => software.before_rollback,
            "rollback" => software.rollback.or(software.upgrade),
            "rebuild" => software.rebuild,
            "logs" => software.logs,
            _ => software.restart,
        };
        let tried = format!("{verb} {unit}");
        let Some(template) = template else {
            return Err(
                BackendError::permanent(tried, "the configuration has no command for it")
                    .hint(format!("set `{verb}` in [software.{kind}] or [software.all]")),
            );
        };
        let Some(host) = self.places.get(unit) else {
            return Err(BackendError::transient(tried, "its host is unknown"));
        };
        let release = to.map_or("", Revision::as_str);
        let words = [
            ("kind", kind),
            ("id", id),
            ("host", host),
            ("release", release),
            ("fsid", self.fsid),
        ];
        let image = self.image.filter(|_| to.is_some()).unwrap_or_default();
        let command = filled(&template, &words)?.replace("{image}", image);
        let shown = shown(&command, verb);
        // A daemon is only taken down on a fresh word. What comes after that in the same effect is never withheld.
        let fresh = || call.holds();
        let may_begin: MayBegin<'_> = if STOPS.contains(&which) { &fresh } else { WHENEVER };
        // Each command of an effect has a lock and a result of its own.
        let ran = self
            .hosts
            .run(
                host,
                &format!("{}-{which}", call.key()),
                call.fence,
                &command,
                may_begin,
            )
            .await
            .map_err(|error| BackendError {
                tried: format!("run {shown} on {host}"),
                ..error
            })?;
        if ran.code == 0 {
            return Ok(if verb == "logs" {
                ran.output
            } else {
                format!("{verb} on {host}")
            });
        }
        let why = if ran.code == 124 {
            format!(
                "{shown} on {host} was ended, as it took too long: {}",
                last_words(&ran.output)
            )
        } else if ran.output.contains("failed to lock pidfile") {
            format!(
                "{shown} on {host} ended with {}: failed to lock pidfile",
                ran.code
            )
        } else {
            format!(
                "{shown} on {host} ended with {}: {}",
                ran.code,
                last_words(&ran.output)
            )
        };
        let failed = BackendError::permanent(tried, why);
        Err(match monitor_start_hint(kind, id, &ran.output) {
            Some(cure) => failed.hint(cure),
            None => failed,
        })
    }
}

/// A command as messages have it: a script of many lines by what it is for.
fn shown(command: &str, verb: &str) -> String {
    if command.trim_end().contains('\n') {
        format!("the script `{verb}`")
    } else {
        format!("`{command}`")
    }
}

/// What helps a monitor that does not start since it has not recorded the release that it ran: see [`crate::mon_release`], which
/// is not done once another monitor is new.
fn monitor_start_hint(kind: &str, id: &str, output: &str) -> Option<String> {
    (kind == "mon" && output.contains("you should first upgrade to")).then(|| {
        format!(
            "mon.{id} has not recorded the release that it ran: its file `min_mon_release` is behind. A monitor records it with the \
             next change of the monitor map: run `ceph mon set-weight {id} 0` (or with the weight that `ceph mon dump -f json` \
             shows), then start the same run again"
        )
    })
}

/// A step of the procedure.
pub(crate) async fn step(api: &dyn CephApi, step: &str) -> Result<String, BackendError> {
    let tried = format!("take the step {step}");
    let Some(major) = step
        .strip_prefix("require-osd-release-")
        .and_then(|major| major.parse().ok())
    else {
        return Err(BackendError::permanent(tried, "this backend has no such step"));
    };
    let Some(name) = release::name(major) else {
        return Err(BackendError::permanent(
            tried,
            format!("release {major} has no known name"),
        ));
    };
    let command = json!({ "prefix": "osd require-osd-release", "release": name });
    api.ask(QueryTarget::Mon, command)
        .await
        .map_err(|e| api_error(&tried, &e))?;
    Ok(format!("require_osd_release is {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen in a story on a busy machine: a monitor that was out of the quorum when the others had all come to 18.
    #[test]
    fn a_monitor_that_has_not_recorded_the_release_has_a_cure() {
        let said = "you should first upgrade to 17 (quincy) or 18 (reef)";
        let told = monitor_start_hint("mon", "c", said).unwrap();
        assert!(told.contains("`ceph mon set-weight c 0`"), "{told}");
        assert_eq!(monitor_start_hint("osd", "1", said), None);
        assert_eq!(monitor_start_hint("mon", "c", "address in use"), None);
    }
}
