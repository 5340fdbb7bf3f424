//! A host's visit: active daemons are handed over, the host is rebooted, and its next boot is awaited. Around
//! that run the operator's commands: before the reboot, instead of it for a host that does not come back, and
//! after it.
//!
//! All of it is one phase. The reboot command starts only on a fresh approval. If the hand-over took too
//! long, nothing has started: both checks are repeated, and the next time there is nothing left to hand over.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stagger_core::model::UnitId;
use stagger_engine::cluster::{BackendError, Call};
use stagger_engine::hosts::{Hosts, last_words};
use stagger_engine::template::filled;

use super::host_queries;
use crate::api::{CephApi, QueryTarget};
use crate::config::{Reboot, SoftwareByKind};
use crate::effects::api_error;
use crate::facts::mds::FsMap;
use crate::facts::mgr::MgrMap;
use crate::host_task::{HostTask, RESTARTS};
use crate::restart;
use crate::translate::BaselineDaemon;

/// How long a standby may take to be active.
const TAKES_OVER: Duration = Duration::from_mins(1);

/// Between two looks at what is waited for in the cluster.
const LOOK: Duration = Duration::from_millis(500);

/// What a host's turn is made of.
pub(crate) struct HostVisit<'a> {
    pub(crate) api: &'a dyn CephApi,
    pub(crate) shell: &'a Hosts,
    pub(crate) reboot: &'a Reboot,
    pub(crate) software: &'a SoftwareByKind,
    /// Between two questions to a host that is on its way.
    pub(crate) poll: Duration,
    /// On which host each daemon is.
    pub(crate) places: &'a BTreeMap<UnitId, String>,
    /// The daemons that ran before the run.
    pub(crate) ran: &'a BTreeMap<UnitId, BaselineDaemon>,
    /// The hosts that go down together, this one among them.
    pub(crate) wave: &'a BTreeSet<String>,
    /// What the turn is for.
    pub(crate) task: &'a HostTask,
    /// One hand-over at a time.
    pub(crate) handing_over: &'a tokio::sync::Mutex<()>,
}

/// Whether the command that reboots may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Send {
    /// Unless the host has booted already.
    Yes,
    /// It was sent before, or the host does not wholly serve: it is only waited for.
    No,
}

/// Whether the power of a host was cut since its turn began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    Untouched,
    Cycled,
}

impl Power {
    fn annotation(self) -> &'static str {
        match self {
            Self::Untouched => "",
            Self::Cycled => ", once its power was cut",
        }
    }
}

impl HostVisit<'_> {
    /// Lays out on a host what its turn needs. Nothing stops.
    ///
    /// # Errors
    /// The command failed.
    pub(crate) async fn prepare(
        shell: &Hosts,
        call: &Call,
        host: &str,
        command: &str,
    ) -> Result<String, BackendError> {
        let line = filled(command, &[("host", host)])?;
        let tried = format!("prepare {host}");
        let ran = shell
            .run(
                host,
                &format!("{}-prepare", call.key()),
                call.fence,
                &line,
                &|| Ok(()),
            )
            .await?;
        if ran.code == 0 {
            return Ok(String::new());
        }
        let why = format!(
            "`prepare` ended with {} there: {}",
            ran.code,
            last_words(&ran.output)
        );
        Err(BackendError::permanent(tried, why)
            .hint(format!("fix it on {host}; a later run continues with it")))
    }

    /// Ensures that a host has another boot than `before`, and tells that boot with what is worth telling.
    ///
    /// # Errors
    /// The command failed, or the host does not come back in time.
    pub(crate) async fn reboot(
        &self,
        call: &Call,
        host: &str,
        before: &str,
        send: Send,
    ) -> Result<(String, String), BackendError> {
        let tried = format!("{} {host}", self.task.verb());
        let mut begun = Instant::now();
        let mut sent = false;
        let mut lost = String::new();
        let mut silent = String::new();
        let mut power = Power::Untouched;
        loop {
            match host_queries::boot(self.shell, self.reboot, host).await {
                Ok(now) if now != before => {
                    let took = begun.elapsed().as_secs();
                    let told = match (sent, self.task.boots()) {
                        (true, false) => format!("done after {took} s"),
                        (true, true) => format!("back after {took} s{}", power.annotation()),
                        (false, false) => "it was done already".to_owned(),
                        (false, true) => format!("it has booted already{}", power.annotation()),
                    };
                    self.check_after(host).await?;
                    return Ok((now, told));
                }
                Ok(_) if send == Send::Yes && !sent => {
                    // Monitors look at no token: whoever was overtaken is refused by the host before anything is handed over.
                    self.shell.raise_fence(host, call.fence).await?;
                    self.hand_over().await?;
                    self.run_before(call, host, &tried).await?;
                    lost = self.send(call, host, &tried).await?;
                    sent = true;
                    begun = Instant::now();
                }
                Ok(_) => self.unchanged().clone_into(&mut silent),
                Err(error) => {
                    silent = error.why;
                    // A host that answers is not cut off, nor one that somebody else may be working on: who was not sent away here.
                    if sent
                        && begun.elapsed() > self.timeout()
                        && power == Power::Untouched
                        && let Some(command) = &self.reboot.power
                    {
                        self.cut_power(command, host).await?;
                        power = Power::Cycled;
                        begun = Instant::now();
                    }
                }
            }
            let elapsed = begun.elapsed();
            if elapsed > self.timeout() {
                let how = if lost.is_empty() {
                    String::new()
                } else {
                    format!(", and whether it received the command is unknown: {lost}")
                };
                let not_yet = if self.task.boots() {
                    "is not back"
                } else {
                    "is not done"
                };
                let why = format!(
                    "{host} {not_yet} after {} s{}: {silent}{how}",
                    elapsed.as_secs(),
                    power.annotation()
                );
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "check {host}; once it is back and its daemons serve, `stagger resume` continues. [reboot] timeout is \
                     how long a host may take"
                )));
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    /// What a host tells whose turn has not changed it.
    fn unchanged(&self) -> &'static str {
        if self.task.boots() {
            "it still has its old boot id"
        } else {
            "the command has not ended with 0"
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.reboot.timeout)
    }

    /// What is to be done on the host before its reboot. A command that failed is not in the host's memory of what it has done: it is
    /// run again with the next turn.
    async fn run_before(&self, call: &Call, host: &str, tried: &str) -> Result<(), BackendError> {
        let patch = self.task.patch(self.reboot, self.shell);
        let commands = [("before", self.reboot.before.clone()), ("patch", patch)];
        for (key, command) in commands {
            let Some(command) = command else { continue };
            let line = filled(&command, &[("host", host)])?;
            let fresh = || call.holds();
            let named = format!("{}-{key}", call.key());
            let ran = self.shell.run(host, &named, call.fence, &line, &fresh).await?;
            if ran.code != 0 {
                let said = last_words(&ran.output);
                let why = format!(
                    "`{key}` ended with {} there, so it was not rebooted: {said}",
                    ran.code
                );
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "fix it on {host}, then `stagger resume`: [reboot] {key} runs again"
                )));
            }
        }
        Ok(())
    }

    /// Waits until the host says that it is as it is wanted.
    async fn check_after(&self, host: &str) -> Result<(), BackendError> {
        let Some(command) = &self.reboot.after else {
            return Ok(());
        };
        let line = filled(command, &[("host", host)])?;
        let begun = Instant::now();
        loop {
            let why = match host_queries::run_with_limit(self.shell, host, &line, host_queries::LOOKS).await {
                Ok(ran) if ran.code == 0 => return Ok(()),
                Ok(ran) => format!("`after` ends with {}: {}", ran.code, last_words(&ran.output)),
                Err(error) => error.why,
            };
            if begun.elapsed() > self.timeout() {
                let done = if self.task.boots() {
                    "has booted"
                } else {
                    "is done"
                };
                let why = format!("{host} {done}, but is not in the wanted state: {why}");
                return Err(
                    BackendError::permanent(format!("look at {host}"), why).hint(format!(
                        "fix {host}, then `stagger resume`: [reboot] after runs again"
                    )),
                );
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    /// Powers the host off and on, from this machine.
    async fn cut_power(&self, command: &str, host: &str) -> Result<(), BackendError> {
        let tried = format!("power {host} off and on");
        let line = filled(command, &[("host", host)])?;
        let mut shell = tokio::process::Command::new("sh");
        shell.arg("-c").arg(&line).stdin(Stdio::null()).kill_on_drop(true);
        let failed = |why: String| BackendError::permanent(&tried, format!("`{line}` {why}"));
        let output = match tokio::time::timeout(host_queries::LOOKS, shell.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(failed(format!("cannot be started: {error}"))),
            Err(_) => {
                return Err(failed(format!(
                    "did not end within {} s",
                    host_queries::LOOKS.as_secs()
                )));
            }
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(failed(format!(
            "ended with {}: {}",
            output.status,
            last_words(&said)
        )))
    }

    /// Sends the command; what is not certain of that, if anything.
    async fn send(&self, call: &Call, host: &str, tried: &str) -> Result<String, BackendError> {
        let mut command = filled(&self.reboot.command(self.shell), &[("host", host)])?;
        if let HostTask::Restart { kinds, .. } = self.task {
            let daemons = restart::daemons(self.places, self.ran, host);
            let restarts = restart::commands(self.software, self.shell, &daemons, host, kinds)?;
            command = command.replace(RESTARTS, &restarts);
        }
        let fresh = || call.holds();
        let key = format!("{}-reboot", call.key());
        match self.shell.run(host, &key, call.fence, &command, &fresh).await {
            Ok(ran) if ran.code == 0 => Ok(String::new()),
            Ok(ran) => {
                let said = last_words(&ran.output);
                let shown = match self.task {
                    HostTask::Reboot | HostTask::Patch => format!("`{command}`"),
                    HostTask::Command { command, .. } => format!("`{command}`"),
                    HostTask::Restart { .. } => "the restart of its daemons".to_owned(),
                };
                let why = format!("{shown} for {host} ended with {}: {said}", ran.code);
                Err(BackendError::permanent(tried, why))
            }
            // A host that goes down takes the connection with it.
            Err(error) if error.outcome_unknown => Ok(error.why),
            Err(error) => Err(error),
        }
    }

    /// Makes daemons active that are on no host of the wave, in the place of those that are. Where none stands by elsewhere,
    /// nothing is done: a person has permitted that.
    async fn hand_over(&self) -> Result<(), BackendError> {
        let _one = self.handing_over.lock().await;
        self.hand_over_manager().await?;
        self.hand_over_servers().await
    }

    /// Whether a daemon goes down with the wave; `None`: it is not known on which host it is.
    fn is_stopped(&self, kind: &str, name: &str) -> Option<bool> {
        if !self.task.may_stop_kind(kind) {
            return Some(false);
        }
        let unit = UnitId::new(format!("{kind}.{name}")).ok()?;
        Some(self.wave.contains(self.places.get(&unit)?))
    }

    async fn hand_over_manager(&self) -> Result<(), BackendError> {
        const TRIED: &str = "hand the active manager over";
        let mut failed: BTreeSet<String> = BTreeSet::new();
        let begun = Instant::now();
        loop {
            let map = self.ask(json!({ "prefix": "mgr dump" })).await?;
            let map = MgrMap::read(&map, "mgr dump")
                .map_err(|error| BackendError::transient(TRIED, error.to_string()))?;
            let stays = |name: &&String| self.is_stopped("mgr", name) == Some(false);
            match &map.active {
                Some(active) if self.is_stopped("mgr", active) != Some(true) => {
                    if map.available {
                        return Ok(());
                    }
                }
                // Its place is taken by whichever standby the monitors choose: one of the wave hands over again. Whoever was
                // asked once stands behind all others.
                Some(active) if map.available && !failed.contains(active) => {
                    if !map.standbys.iter().any(|name| stays(&name)) {
                        return Ok(());
                    }
                    failed.insert(active.clone());
                    self.ask(json!({ "prefix": "mgr fail", "who": active })).await?;
                }
                // Standbys of the wave are chosen again and again: it goes down with its host, and a standby takes over then.
                Some(_) if map.available && begun.elapsed() > TAKES_OVER => return Ok(()),
                Some(_) | None => {}
            }
            if begun.elapsed() > TAKES_OVER {
                return Err(BackendError::transient(
                    TRIED,
                    format!("after {} s no manager elsewhere is active", TAKES_OVER.as_secs()),
                )
                .hint("see `ceph mgr stat`"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ranks of file systems. The monitors refuse to fail a server that is behind with its journal: it goes down with its host,
    /// and a standby takes over then.
    async fn hand_over_servers(&self) -> Result<(), BackendError> {
        const TRIED: &str = "hand ranks of file systems over";
        let mut failed: BTreeSet<String> = BTreeSet::new();
        let begun = Instant::now();
        loop {
            let map = self.ask(json!({ "prefix": "fs dump" })).await?;
            let map = FsMap::read(&map, "fs dump")
                .map_err(|error| BackendError::transient(TRIED, error.to_string()))?;
            let mut servers = map.filesystems.iter().flat_map(|fs| &fs.servers);
            let is_settled = map.filesystems.iter().all(|fs| {
                let active = fs.servers.iter().filter(|server| server.active()).count();
                active as u32 >= fs.max_mds && fs.lost_ranks == 0
            });
            let next = servers.find(|server| {
                server.active()
                    && !failed.contains(&server.name)
                    && self.is_stopped("mds", &server.name) == Some(true)
            });
            let elsewhere = map
                .standbys
                .iter()
                .any(|name| self.is_stopped("mds", name) == Some(false));
            match next {
                Some(server) if elsewhere && is_settled => {
                    failed.insert(server.name.clone());
                    let question = json!({ "prefix": "mds fail", "role_or_gid": server.name });
                    let answer = self.api.command(QueryTarget::Mon, question).await;
                    answer.map_err(|error| api_error(TRIED, &error))?;
                }
                Some(_) if elsewhere => {}
                // Whether ranks are settled is for the gates where nothing was handed over.
                Some(_) | None if is_settled || failed.is_empty() => return Ok(()),
                Some(_) | None => {}
            }
            if begun.elapsed() > TAKES_OVER {
                return Err(BackendError::transient(
                    TRIED,
                    format!("after {} s not all ranks are active", TAKES_OVER.as_secs()),
                )
                .hint("see `ceph fs status`"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn ask(&self, question: Value) -> Result<Vec<u8>, BackendError> {
        let tried = question["prefix"].as_str().unwrap_or("ask").to_owned();
        self.api
            .ask(QueryTarget::Mon, question)
            .await
            .map_err(|error| api_error(&tried, &error))
    }
}
