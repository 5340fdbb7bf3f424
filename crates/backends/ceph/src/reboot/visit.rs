//! A host's turn: what is active on it is handed over, it is rebooted, and its next boot is waited for.
//!
//! All of it is one phase. The command that reboots is begun on a word of both judges that is still fresh: where the hand-over
//! took too long nothing was begun, they are asked once more, and the next time there is nothing left to hand over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stagger_core::model::UnitId;
use stagger_engine::cluster::{BackendError, Call};
use stagger_engine::hosts::{Hosts, last_words};
use stagger_engine::template::filled;

use super::ask;
use crate::api::{CephApi, Whom};
use crate::config::Reboot;
use crate::effects::api_error;
use crate::facts::mds::FsMap;
use crate::facts::mgr::MgrMap;

/// How long a standby may take to be active.
const TAKES_OVER: Duration = Duration::from_mins(1);

/// Between two looks at what is waited for in the cluster.
const LOOK: Duration = Duration::from_millis(500);

/// What a host's turn is made of.
pub(crate) struct Visit<'a> {
    pub(crate) api: &'a dyn CephApi,
    pub(crate) shell: &'a Hosts,
    pub(crate) reboot: &'a Reboot,
    /// Between two questions to a host that is on its way.
    pub(crate) poll: Duration,
    /// On which host each daemon is.
    pub(crate) places: &'a BTreeMap<UnitId, String>,
    /// The hosts that go down together, this one among them.
    pub(crate) wave: &'a BTreeSet<String>,
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

impl Visit<'_> {
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
        let tried = format!("reboot {host}");
        let mut begun = Instant::now();
        let mut sent = false;
        let mut lost = String::new();
        let mut silent = String::new();
        loop {
            match ask::boot(self.shell, self.reboot, host).await {
                Ok(now) if now != before && sent => {
                    return Ok((now, format!("back after {} s", begun.elapsed().as_secs())));
                }
                Ok(now) if now != before => return Ok((now, "it has booted already".to_owned())),
                Ok(_) if send == Send::Yes && !sent => {
                    self.hand_over().await?;
                    lost = self.send(call, host, &tried).await?;
                    sent = true;
                    begun = Instant::now();
                }
                Ok(_) => "it still has the boot of before".clone_into(&mut silent),
                Err(error) => silent = error.why,
            }
            let elapsed = begun.elapsed();
            if elapsed > Duration::from_secs(self.reboot.timeout) {
                let how = if lost.is_empty() {
                    String::new()
                } else {
                    format!(", and nobody knows whether it took the command: {lost}")
                };
                let why = format!("{host} is not back after {} s: {silent}{how}", elapsed.as_secs());
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "see to {host}; once it is back and its daemons serve, `stagger resume` goes on. [reboot] timeout is how \
                     long a host may take"
                )));
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    /// Sends the command; what is not certain of that, if anything.
    async fn send(&self, call: &Call, host: &str, tried: &str) -> Result<String, BackendError> {
        let command = filled(&self.reboot.command(self.shell), &[("host", host)])?;
        let fresh = || call.holds();
        let key = format!("{}-reboot", call.key());
        match self.shell.run(host, &key, call.fence, &command, &fresh).await {
            Ok(ran) if ran.code == 0 => Ok(String::new()),
            Ok(ran) => {
                let said = last_words(&ran.output);
                let why = format!("`{command}` for {host} ended with {}: {said}", ran.code);
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

    /// Whether a daemon is on a host of the wave; `None`: nobody knows where it is.
    fn goes_down(&self, kind: &str, name: &str) -> Option<bool> {
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
            let stays = |name: &&String| self.goes_down("mgr", name) == Some(false);
            match &map.active {
                Some(active) if self.goes_down("mgr", active) != Some(true) => {
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
                    && self.goes_down("mds", &server.name) == Some(true)
            });
            let elsewhere = map
                .standbys
                .iter()
                .any(|name| self.goes_down("mds", name) == Some(false));
            match next {
                Some(server) if elsewhere && is_settled => {
                    failed.insert(server.name.clone());
                    let question = json!({ "prefix": "mds fail", "role_or_gid": server.name });
                    let answer = self.api.command(Whom::Mon, question).await;
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
            .ask(Whom::Mon, question)
            .await
            .map_err(|error| api_error(&tried, &error))
    }
}
