//! Drains services at the balancer, and undrains them.

use std::time::{Duration, Instant};

use stagger_core::model::{Fact, UnitState};
use stagger_engine::cluster::BackendError;
use stagger_engine::template::filled;

use crate::balancer::{BalancerStatus, ServerState};
use crate::commands;
use crate::config::{BalancerServer, Conductor, InFlight, IronicTiming, Service, ServiceRole, StopMode};
use crate::facts::DatabaseFacts;
use crate::in_flight;
use crate::observe::balancer;
use crate::rings::absence_permitted;
use crate::running_releases::serves;
use crate::visit::perform::Performer;

/// So often the balancer is told a state before it counts as refused.
const TELLS: u32 = 3;

impl<'a> Performer<'a> {
    /// Whether the balancer keeps requests from it while it is away.
    pub(crate) fn is_drained(&self, service: &Service<'_>) -> bool {
        match service.role {
            ServiceRole::Api => true,
            ServiceRole::Conductor => self.settings.cluster.stopping.way == StopMode::Drain,
        }
    }

    /// Takes a service out of service: no request comes to it any more, and it has none. A conductor that is stopped in
    /// another way goes on until then; here it is only waited for until it has no tasks.
    pub(crate) async fn enter(&self, service: &Service<'_>) -> Result<String, BackendError> {
        let is_drained = self.is_drained(service);
        let name = service.name;
        let tried = if is_drained {
            format!("drain {name}")
        } else {
            format!("wait until {name} has no tasks")
        };
        self.call.may_begin(&tried)?;
        if let Some(conductor) = self.called_over_rabbitmq(service).filter(|_| is_drained) {
            self.divert(conductor, &tried).await?;
        } else if is_drained {
            self.drain(service, &tried).await?;
        }
        let begun = Instant::now();
        loop {
            let Some((left, limit)) = self.work_left(service, is_drained, &tried).await? else {
                return Ok(if is_drained {
                    format!("drained after {} s", begun.elapsed().as_secs())
                } else {
                    self.settings.cluster.stopping.way.cost().to_owned()
                });
            };
            if begun.elapsed() > limit {
                let why = format!("after {} s {left}", begun.elapsed().as_secs());
                return Err(BackendError::transient(tried, why));
            }
            tokio::time::sleep(self.settings.pace.poll).await;
        }
    }

    /// What a service still has to do, and for how long that is waited for; `None`: nothing.
    async fn work_left(
        &self,
        service: &Service<'_>,
        is_drained: bool,
        tried: &str,
    ) -> Result<Option<(String, Duration)>, BackendError> {
        let IronicTiming { drain, in_flight, .. } = self.settings.pace;
        if is_drained && let Some(left) = self.requests(service, tried).await? {
            return Ok(Some((left, drain)));
        }
        let Some(conductor) = self.conductor(service) else {
            return Ok(None);
        };
        let database = self.rows(tried).await?;
        if let Some(left) = tasks_of(conductor, &database) {
            return Ok(Some((left, drain)));
        }
        let left = nodes_in_flight(conductor, &database, &self.settings.cluster.in_flight);
        Ok(left.map(|left| (left, in_flight)))
    }

    async fn rows(&self, tried: &str) -> Result<DatabaseFacts, BackendError> {
        match self.client.database().await {
            Fact::Yes(database) => Ok(database),
            Fact::No(why) => Err(BackendError::transient(
                tried,
                format!("whether it has tasks is not known: {why}"),
            )),
        }
    }

    /// No new request comes to it.
    async fn drain(&self, service: &Service<'_>, tried: &str) -> Result<(), BackendError> {
        let shown = self.balancer(tried).await?;
        if service.servers.is_empty() {
            return Err(BackendError::permanent(tried, "it is not behind the balancer"));
        }
        // Never both: with nobody left a request fails at once.
        let of = (service.role, service.name);
        let by_word = !self.permitted.is_empty()
            && absence_permitted(
                &self.collect_facts().await,
                &self.settings.cluster,
                &self.permitted,
                of,
            );
        for server in service.servers {
            if !by_word && shown.peers(server).next().is_none() {
                let why = format!("no other server in {} gets requests", server.backend);
                return Err(BackendError::transient(tried, why));
            }
        }
        for server in service.servers {
            self.set(server, "drain").await?;
        }
        Ok(())
    }

    /// The requests that a drained service still has; `None`: none.
    async fn requests(&self, service: &Service<'_>, tried: &str) -> Result<Option<String>, BackendError> {
        let shown = self.balancer(tried).await?;
        let mut busy = service
            .servers
            .iter()
            .map(|server| (server, shown.server(server).sessions));
        Ok(busy
            .find(|(_, sessions)| *sessions > 0)
            .map(|(server, sessions)| format!("{server} has {sessions} requests")))
    }

    /// The tasks that a conductor still has; `None`: none, or it is none.
    pub(crate) async fn tasks(
        &self,
        service: &Service<'_>,
        tried: &str,
    ) -> Result<Option<String>, BackendError> {
        let Some(conductor) = self.conductor(service) else {
            return Ok(None);
        };
        Ok(tasks_of(conductor, &self.rows(tried).await?))
    }

    pub(crate) fn conductor(&self, service: &Service<'_>) -> Option<&'a Conductor> {
        let conductors = &self.settings.cluster.conductors;
        conductors.iter().find(|conductor| conductor.name == service.name)
    }

    pub(crate) async fn balancer(&self, tried: &str) -> Result<BalancerStatus, BackendError> {
        match balancer(self.client, &self.settings.cluster).await {
            Fact::Yes(shown) => Ok(shown),
            Fact::No(why) => Err(BackendError::transient(tried, why)),
        }
    }

    /// Brings a server of the balancer into a state, and looks whether it is there.
    pub(crate) async fn set(&self, server: &BalancerServer, state: &str) -> Result<(), BackendError> {
        let tried = format!("set {server} to {state}");
        let config = &self.settings.cluster.balancer;
        let words = [
            ("backend", server.backend.as_str()),
            ("server", server.server.as_str()),
            ("state", state),
        ];
        let command = filled(&config.set, &words)?;
        let mut status = String::new();
        for tell in 1..=TELLS {
            let which = format!("{state}-{}-{}-{tell}", server.backend, server.server);
            commands::run(self.client, self.call, &which, &config.host, &command).await?;
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
        let why = format!("the balancer was told {TELLS} times, and still has it as {status}");
        Err(BackendError::permanent(tried, why))
    }

    /// Gives a service back: requests come to it again.
    pub(crate) async fn leave(&self, service: &Service<'_>) -> Result<String, BackendError> {
        let tried = format!("undrain {}", service.name);
        if let Some(conductor) = self
            .called_over_rabbitmq(service)
            .filter(|_| self.is_drained(service))
        {
            self.restore_calls(conductor, &tried).await?;
        } else if self.is_drained(service) {
            for server in service.servers {
                self.set(server, "ready").await?;
            }
        }
        let begun = Instant::now();
        loop {
            let facts = self.collect_facts().await;
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
}

/// The tasks that a conductor has; `None`: none.
fn tasks_of(conductor: &Conductor, database: &DatabaseFacts) -> Option<String> {
    let reserved: u64 = conductor
        .reserves_as()
        .iter()
        .filter_map(|name| database.reserved.get(*name))
        .sum();
    (reserved > 0).then(|| format!("it has reserved {reserved} nodes: tasks are under way"))
}

/// The nodes in flight that a conductor was the last to work on, where they are waited for; `None`: none, or it is away and
/// does nothing about them.
fn nodes_in_flight(conductor: &Conductor, database: &DatabaseFacts, config: &InFlight) -> Option<String> {
    let is_online = |name: &&str| database.conductors.get(*name).is_some_and(|row| row.online);
    if !conductor.reserves_as().iter().any(is_online) {
        return None;
    }
    let waited_for = in_flight::blocking_nodes(&database.in_flight, config);
    let nodes = in_flight::listed(&in_flight::of_conductor(waited_for, conductor))?;
    Some(format!(
        "it has nodes in flight: {nodes}; `[cluster.in_flight]` says which are waited for"
    ))
}
