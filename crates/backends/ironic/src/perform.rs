//! Carries visits out: drained, changed, given back, each part as an ensure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stagger_core::model::{Phase, Revision, UnitId, UnitState};
use stagger_engine::backend::{BackendError, Call};

use crate::balancer::ServerState;
use crate::commands::{self, filled, with};
use crate::config::{Conductor, Role, Server, Service, Settings, Way};
use crate::facts::{ApiSays, Facts, Known};
use crate::look::{balancer, look, pin};
use crate::records::{Book, Record, RecordState};
use crate::releases::Releases;
use crate::runs::{registered, release_of, runs, serves};
use crate::translate::{Wished, seen};
use crate::world::World;

/// So often the balancer is told a state before it counts as refused.
const TELLS: u32 = 3;

/// What is written down when pins begin to be taken away.
pub(crate) const UNPIN: &str = "unpin";

/// One call, carried out.
pub(crate) struct Performer<'a> {
    pub(crate) world: &'a dyn World,
    pub(crate) book: &'a Book,
    pub(crate) settings: &'a Settings,
    pub(crate) table: &'a Releases,
    pub(crate) wished: Option<&'a Wished>,
    pub(crate) call: &'a Call,
}

impl<'a> Performer<'a> {
    /// The service of a unit.
    pub(crate) fn service(&self, unit: &UnitId) -> Result<Service<'a>, BackendError> {
        let name = unit.as_str().split_once('.').map_or("", |(_, name)| name);
        self.settings.cluster.service(name).ok_or_else(|| {
            BackendError::permanent(format!("find {unit}"), "the configuration has no such service")
        })
    }

    pub(crate) fn wished(&self) -> Result<&'a Wished, BackendError> {
        self.wished.ok_or_else(|| {
            BackendError::permanent("change Ironic", "the run keeps no memory of what was wished")
        })
    }

    pub(crate) async fn look(&self) -> Facts {
        look(self.world, self.book, &self.settings.cluster).await
    }

    pub(crate) async fn command(
        &self,
        service: &Service<'_>,
        which: &str,
        command: Option<&String>,
        words: &[(&str, &str)],
    ) -> Result<String, BackendError> {
        let Some(command) = command else {
            let tried = format!("{which} {}", service.name);
            return Err(
                BackendError::permanent(tried, "the configuration has no command for it")
                    .hint(format!("set `{which}` in [cluster.commands]")),
            );
        };
        let command = filled(command, service, words);
        commands::run(self.world, self.call, which, service.host, &command).await
    }

    /// One phase of a service's turn.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) async fn visit(
        &self,
        unit: &UnitId,
        phase: Phase,
        revision: &Revision,
    ) -> Result<String, BackendError> {
        let service = self.service(unit)?;
        match phase {
            Phase::Enter => self.enter(&service).await,
            Phase::Change => self.change(&service, revision).await,
            Phase::Leave => self.leave(&service).await,
        }
    }

    /// Whether the balancer keeps requests from it while it is away.
    fn is_drained(&self, service: &Service<'_>) -> bool {
        match service.role {
            Role::Api => true,
            Role::Conductor => self.settings.cluster.stopping.way == Way::Drain,
        }
    }

    /// Takes a service out of service: no request comes to it any more, and it has none.
    async fn enter(&self, service: &Service<'_>) -> Result<String, BackendError> {
        let tried = format!("drain {}", service.name);
        if !self.is_drained(service) {
            return Ok(self.settings.cluster.stopping.way.cost().to_owned());
        }
        let shown = self.balancer(&tried).await?;
        if service.servers.is_empty() {
            return Err(BackendError::permanent(
                tried,
                "it does not stand behind the balancer",
            ));
        }
        // Never both: with nobody left a request fails at once.
        for server in service.servers {
            if shown.peers(server).next().is_none() {
                let why = format!("nobody else in {} gets requests", server.backend);
                return Err(BackendError::transient(tried, why));
            }
        }
        for server in service.servers {
            self.set(server, "drain").await?;
        }
        let begun = Instant::now();
        loop {
            let busy = self.busy(service, &tried).await?;
            let Some(busy) = busy else {
                return Ok(format!("drained after {} s", begun.elapsed().as_secs()));
            };
            if begun.elapsed() > self.settings.pace.drain {
                let why = format!("after {} s {busy}", begun.elapsed().as_secs());
                return Err(BackendError::transient(tried, why));
            }
            tokio::time::sleep(self.settings.pace.poll).await;
        }
    }

    /// What a drained service still has to do; `None`: nothing.
    async fn busy(&self, service: &Service<'_>, tried: &str) -> Result<Option<String>, BackendError> {
        let shown = self.balancer(tried).await?;
        for server in service.servers {
            let says = shown.server(server);
            if says.sessions > 0 {
                return Ok(Some(format!("{server} has {} requests", says.sessions)));
            }
        }
        let Some(conductor) = self.conductor(service) else {
            return Ok(None);
        };
        let database = self.world.database().await;
        let database = database.known().map_err(|why| {
            BackendError::transient(tried, format!("whether it has tasks is not known: {why}"))
        })?;
        let reserved: u64 = self
            .reserves_as(conductor)
            .iter()
            .filter_map(|name| database.reserved.get(*name))
            .sum();
        Ok((reserved > 0).then(|| format!("it has reserved {reserved} nodes: tasks are under way")))
    }

    /// Under which names a conductor reserves nodes: as it is registered, or by its host alone where no other
    /// conductor has that.
    fn reserves_as(&self, conductor: &'a Conductor) -> BTreeSet<&'a str> {
        let names = [Some(&conductor.registered), conductor.also_registered.as_ref()];
        let names: BTreeSet<&str> = names.into_iter().flatten().map(String::as_str).collect();
        let host = |conductor: &'a Conductor| {
            let registered = conductor.registered.as_str();
            registered.rsplit_once(':').map_or(registered, |(host, _)| host)
        };
        let own = host(conductor);
        let mut others = self
            .settings
            .cluster
            .conductors
            .iter()
            .filter(|other| other.name != conductor.name);
        let shared = others.any(|other| host(other) == own);
        names.into_iter().chain((!shared).then_some(own)).collect()
    }

    fn conductor(&self, service: &Service<'_>) -> Option<&'a Conductor> {
        let conductors = &self.settings.cluster.conductors;
        conductors.iter().find(|conductor| conductor.name == service.name)
    }

    async fn balancer(&self, tried: &str) -> Result<crate::balancer::Shown, BackendError> {
        match balancer(self.world, &self.settings.cluster).await {
            Known::Yes(shown) => Ok(shown),
            Known::No(why) => Err(BackendError::transient(tried, why)),
        }
    }

    /// Brings a server of the balancer into a state, and looks whether it is there.
    async fn set(&self, server: &Server, state: &str) -> Result<(), BackendError> {
        let tried = format!("set {server} to {state}");
        let config = &self.settings.cluster.balancer;
        let words = [
            ("backend", server.backend.as_str()),
            ("server", server.server.as_str()),
            ("state", state),
        ];
        let command = with(&config.set, &words);
        let mut status = String::new();
        for tell in 1..=TELLS {
            let which = format!("{state}-{}-{}-{tell}", server.backend, server.server);
            commands::run(self.world, self.call, &which, &config.host, &command).await?;
            let says = self.balancer(&tried).await?.server(server);
            // One that is down is shown as down, drained or not.
            let is_so = match says.state {
                ServerState::Drained => state == "drain",
                ServerState::Up => state == "ready",
                ServerState::Down => true,
                ServerState::Unclear => false,
            };
            if is_so {
                return Ok(());
            }
            status = says.status;
        }
        let why = format!("the balancer was told {TELLS} times, and has it as {status}");
        Err(BackendError::permanent(tried, why))
    }

    /// The service runs that release, held to that older one or to none. It does not get requests meanwhile.
    async fn change(&self, service: &Service<'_>, revision: &Revision) -> Result<String, BackendError> {
        let (release, held_to) = release_of(revision);
        let wished = self.wished()?;
        let facts = self.look().await;
        let is_unpin = held_to.is_none() && release == wished.to && !self.is_patch(wished);
        if is_unpin {
            self.may_be_unpinned(service, &facts)?;
        }
        let before = facts
            .records
            .yes()
            .and_then(|records| records.services.get(service.name));
        let has_it = before.is_some_and(|record| record.release == release);
        let mut record = Record {
            release: release.to_owned(),
            pin: before.and_then(|record| record.pin.clone()),
            state: RecordState::Changing,
            run: self.call.run.to_string(),
        };
        self.book.note(self.call, service.name, &record).await?;
        if !has_it || !is_unpin {
            let command = service.commands.install.as_ref();
            self.command(service, "install", command, &[("release", release)])
                .await?;
        }
        record.pin = self.pinned(service, release, held_to, wished).await?;
        self.restart(service, &facts).await?;
        record.state = RecordState::Runs;
        self.serves_alone(service, &record).await?;
        self.book.note(self.call, service.name, &record).await?;
        Ok(format!("it runs {revision}"))
    }

    fn is_patch(&self, wished: &Wished) -> bool {
        let place = |text: &str| self.table.find(text).map(|found| found.place).ok();
        place(&wished.from) == place(&wished.to)
    }

    /// No pin goes while an old service lives, and that of an API only after those of all conductors: before that an
    /// API would take what conductors drop in silence.
    pub(crate) fn may_be_unpinned(&self, service: &Service<'_>, facts: &Facts) -> Result<(), BackendError> {
        let tried = format!("take the pin of {} away", service.name);
        let wished = self.wished()?;
        for other in seen(facts, &self.settings.cluster, self.table) {
            if other.name == service.name {
                continue;
            }
            let other_runs = other.runs.map_err(|reason| {
                BackendError::transient(
                    &tried,
                    format!("nobody could tell what {} runs: {}", other.name, reason.detail),
                )
            })?;
            if other_runs.release != wished.to {
                let why = format!(
                    "{} still runs {}, and one row that it cannot read breaks its lists",
                    other.name, other_runs.release
                );
                return Err(BackendError::permanent(tried, why));
            }
            let held = other_runs.held_to().is_some() && other.role == Role::Conductor;
            if held && service.role == Role::Api {
                let why = format!(
                    "{} is still pinned: it would drop in silence what this API takes",
                    other.name
                );
                return Err(BackendError::permanent(tried, why));
            }
        }
        Ok(())
    }

    /// What the next start reads as its pin, once it is as it should be.
    async fn pinned(
        &self,
        service: &Service<'_>,
        release: &str,
        held_to: Option<&str>,
        wished: &Wished,
    ) -> Result<Option<String>, BackendError> {
        if held_to.is_some() {
            self.write_pin(service, "write_pin", &wished.pin).await?;
        } else if release == wished.to {
            let command = service.commands.remove_pin.as_ref();
            self.command(service, "remove_pin", command, &[]).await?;
        }
        // An old release keeps what is written: to be held to itself changes nothing.
        let now = self.read_pin(service).await?;
        let wanted = match held_to {
            Some(_) => Some(&wished.pin),
            None if release == wished.to => None,
            None => now.as_ref(),
        };
        if now.as_ref() == wanted {
            return Ok(now);
        }
        let why = format!(
            "it would start with the pin {:?}, and not with {:?}",
            now.as_deref().unwrap_or("none"),
            wanted.map_or("none", String::as_str)
        );
        Err(BackendError::permanent(format!("pin {}", service.name), why))
    }

    pub(crate) async fn write_pin(
        &self,
        service: &Service<'_>,
        which: &str,
        pin: &str,
    ) -> Result<(), BackendError> {
        let command = service.commands.write_pin.as_ref();
        self.command(service, which, command, &[("pin", pin)])
            .await
            .map(drop)
    }

    pub(crate) async fn read_pin(&self, service: &Service<'_>) -> Result<Option<String>, BackendError> {
        let tried = format!("read the pin of {}", service.name);
        let Some(command) = &service.commands.read_pin else {
            return Err(BackendError::permanent(tried, "there is no command `read_pin`"));
        };
        match pin(self.world, service.host, &filled(command, service, &[])).await {
            Known::Yes(pin) => Ok(pin),
            Known::No(why) => Err(BackendError::transient(tried, why)),
        }
    }

    /// Stops it in the way that is set, and starts it.
    async fn restart(&self, service: &Service<'_>, facts: &Facts) -> Result<(), BackendError> {
        let stopping = &self.settings.cluster.stopping;
        match (service.role, stopping.way) {
            (Role::Api, _) | (Role::Conductor, Way::Drain) => {
                self.stop(service).await?;
                self.start(service).await
            }
            (Role::Conductor, Way::Mute) => {
                self.stop_muted(service, facts).await?;
                self.start(service).await
            }
            (Role::Conductor, Way::Hold) => {
                let lb = &self.settings.cluster.balancer.host;
                let held = |command: &Option<String>, which: &'static str| {
                    let command = command.clone().map(|command| filled(&command, service, &[]));
                    async move {
                        let command = command.unwrap_or_else(|| "false".to_owned());
                        commands::run(self.world, self.call, which, lb, &command).await
                    }
                };
                held(&stopping.hold, "hold").await?;
                let restarted = async {
                    self.nothing_under_way().await?;
                    self.stop(service).await?;
                    self.start(service).await
                };
                let restarted = restarted.await;
                // Whatever came of it: nothing is held for longer than that.
                let let_go = held(&stopping.let_go, "let_go").await;
                restarted.and(let_go.map(drop))
            }
        }
    }

    /// Waits until what had passed the door before it was shut is answered. The door opens again by itself, so this waits
    /// no longer than one question may take.
    async fn nothing_under_way(&self) -> Result<(), BackendError> {
        const TRIED: &str = "wait for the requests that had passed the door";
        let begun = Instant::now();
        loop {
            let shown = self.balancer(TRIED).await?;
            let services = self.settings.cluster.services();
            let apis = services.filter(|service| service.role == Role::Api);
            let servers = apis.flat_map(|api| api.servers);
            let sessions: u64 = servers.map(|server| shown.server(server).sessions).sum();
            if sessions == 0 {
                return Ok(());
            }
            if begun.elapsed() > self.settings.pace.call {
                let why = format!(
                    "after {} s the API services have {sessions}",
                    begun.elapsed().as_secs()
                );
                return Err(BackendError::transient(TRIED, why));
            }
            tokio::time::sleep(self.settings.pace.poll.min(Duration::from_millis(200))).await;
        }
    }

    async fn stop(&self, service: &Service<'_>) -> Result<(), BackendError> {
        let command = service.commands.stop.as_ref();
        self.command(service, "stop", command, &[]).await.map(drop)
    }

    async fn start(&self, service: &Service<'_>) -> Result<(), BackendError> {
        let command = service.commands.start.as_ref();
        self.command(service, "start", command, &[]).await?;
        match &service.commands.ready {
            None => Ok(()),
            ready => self
                .command(service, "ready", ready.as_ref(), &[])
                .await
                .map(drop),
        }
    }

    /// Its peers stop asking it before it stops: no heartbeat, and away in the table until it is gone.
    async fn stop_muted(&self, service: &Service<'_>, facts: &Facts) -> Result<(), BackendError> {
        let tried = format!("mute {}", service.name);
        let conductor = self.conductor(service);
        let named = conductor.and_then(|conductor| {
            let (name, alive) = registered(conductor, facts)?;
            Some((conductor.rpc.as_deref()?, name.to_owned(), alive))
        });
        let Some((rpc, name, alive)) = named else {
            return Err(BackendError::permanent(
                tried,
                "nobody could tell under which name it is registered",
            ));
        };
        if alive {
            self.world.halt_keepalive(rpc).await?;
        }
        let quiet = Instant::now();
        while alive && quiet.elapsed() < self.settings.pace.ring {
            self.world.write_offline(&name).await?;
            tokio::time::sleep(self.settings.pace.poll.min(Duration::from_secs(1))).await;
        }
        let stop = self.stop(service);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                stopped = &mut stop => return stopped,
                () = tokio::time::sleep(self.settings.pace.poll.min(Duration::from_secs(1))) => {
                    // It may be gone by now; then this is what Ironic writes too.
                    if let Err(error) = self.world.write_offline(&name).await {
                        tracing::warn!(%error, "a conductor that stops");
                    }
                }
            }
        }
    }

    /// Waits until the service says itself that it runs that, whatever the balancer does with it.
    async fn serves_alone(&self, service: &Service<'_>, record: &Record) -> Result<(), BackendError> {
        let tried = format!("wait until {} serves", service.name);
        let begun = Instant::now();
        loop {
            let mut facts = self.look().await;
            if let Known::Yes(records) = &mut facts.records {
                records.services.insert(service.name.to_owned(), record.clone());
            }
            let is_there = match service.role {
                Role::Api => matches!(facts.apis.get(service.name), Some(ApiSays::Offers(_))),
                Role::Conductor => self
                    .conductor(service)
                    .and_then(|conductor| registered(conductor, &facts))
                    .is_some_and(|(_, alive)| alive),
            };
            let says = runs(service, &facts, &self.settings.cluster, self.table);
            let why = match says {
                Ok(_) if is_there => return Ok(()),
                Ok(_) => serves(service, &facts, &self.settings.cluster).1,
                Err(reason) => reason.detail,
            };
            if begun.elapsed() > self.settings.pace.ready {
                let why = format!("after {} s {why}", begun.elapsed().as_secs());
                return Err(BackendError::permanent(tried, why));
            }
            tokio::time::sleep(self.settings.pace.poll).await;
        }
    }

    /// Gives a service back: requests come to it again.
    async fn leave(&self, service: &Service<'_>) -> Result<String, BackendError> {
        let tried = format!("give {} back", service.name);
        if self.is_drained(service) {
            for server in service.servers {
                self.set(server, "ready").await?;
            }
        }
        let begun = Instant::now();
        loop {
            let facts = self.look().await;
            let (state, why) = serves(service, &facts, &self.settings.cluster);
            if state == UnitState::Serving {
                return Ok("it serves".to_owned());
            }
            if begun.elapsed() > self.settings.pace.ready {
                let why = format!("after {} s it does not serve: {why}", begun.elapsed().as_secs());
                return Err(BackendError::permanent(tried, why));
            }
            tokio::time::sleep(self.settings.pace.poll).await;
        }
    }

    /// Starts a service once more as it was meant to be.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) async fn start_again(&self, unit: &UnitId) -> Result<String, BackendError> {
        let service = self.service(unit)?;
        let tried = format!("start {} once more", service.name);
        let facts = self.look().await;
        let records = facts
            .records
            .known()
            .map_err(|why| BackendError::transient(&tried, why.to_owned()))?;
        let mut record = if let Some(record) = records.services.get(service.name) {
            record.clone()
        } else {
            let runs = runs(&service, &facts, &self.settings.cluster, self.table)
                .map_err(|reason| BackendError::transient(&tried, reason.detail))?;
            Record {
                release: runs.release,
                pin: runs.pin.map(|(pin, _)| pin),
                state: RecordState::Runs,
                run: self.call.run.to_string(),
            }
        };
        let serves_now = serves(&service, &facts, &self.settings.cluster).0 == UnitState::Serving;
        if serves_now {
            self.enter(&service).await?;
        }
        record.pin = self.read_pin(&service).await?;
        record.state = RecordState::Changing;
        self.book.note(self.call, service.name, &record).await?;
        self.restart(&service, &facts).await?;
        record.state = RecordState::Runs;
        self.serves_alone(&service, &record).await?;
        self.book.note(self.call, service.name, &record).await?;
        self.leave(&service).await
    }

    /// Brings a service back to the old code. Up to the unpin the old code reads every row.
    ///
    /// # Errors
    /// Pins were taken away already, or what could not be done.
    pub(crate) async fn go_back(&self, unit: &UnitId, revision: &Revision) -> Result<String, BackendError> {
        let service = self.service(unit)?;
        let tried = format!("bring {} back to {revision}", service.name);
        let wished = self.wished()?;
        let facts = self.look().await;
        let records = facts
            .records
            .known()
            .map_err(|why| BackendError::transient(&tried, why.to_owned()))?;
        if records.is_marked(&wished.to, UNPIN) {
            let why = format!(
                "pins were taken away: rows that {} cannot read may have been written",
                wished.from
            );
            return Err(BackendError::permanent(tried, why));
        }
        if serves(&service, &facts, &self.settings.cluster).0 == UnitState::Serving {
            self.enter(&service).await?;
        } else if self.is_drained(&service) {
            for server in service.servers {
                self.set(server, "drain").await?;
            }
        }
        self.change(&service, revision).await?;
        self.leave(&service).await?;
        Ok(format!("it runs {revision} again"))
    }
}
