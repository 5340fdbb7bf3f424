//! Takes services out of service at the balancer, and gives them back.

use std::collections::BTreeSet;
use std::time::Instant;

use stagger_core::model::UnitState;
use stagger_engine::cluster::BackendError;
use stagger_engine::template::filled;

use crate::balancer::{BalancerStatus, ServerState};
use crate::commands;
use crate::config::{Conductor, Role, Server, Service, StopMode};
use crate::facts::Known;
use crate::observe::balancer;
use crate::runs::serves;
use crate::visit::perform::Performer;

/// So often the balancer is told a state before it counts as refused.
const TELLS: u32 = 3;

impl<'a> Performer<'a> {
    /// Whether the balancer keeps requests from it while it is away.
    pub(crate) fn is_drained(&self, service: &Service<'_>) -> bool {
        match service.role {
            Role::Api => true,
            Role::Conductor => self.settings.cluster.stopping.way == StopMode::Drain,
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
        if is_drained {
            self.drain(service, &tried).await?;
        }
        let begun = Instant::now();
        loop {
            let mut left = None;
            if is_drained {
                left = self.requests(service, &tried).await?;
            }
            if left.is_none() {
                left = self.tasks(service, &tried).await?;
            }
            let Some(left) = left else {
                return Ok(if is_drained {
                    format!("drained after {} s", begun.elapsed().as_secs())
                } else {
                    self.settings.cluster.stopping.way.cost().to_owned()
                });
            };
            if begun.elapsed() > self.settings.pace.drain {
                let why = format!("after {} s {left}", begun.elapsed().as_secs());
                return Err(BackendError::transient(tried, why));
            }
            tokio::time::sleep(self.settings.pace.poll).await;
        }
    }

    /// No new request comes to it.
    async fn drain(&self, service: &Service<'_>, tried: &str) -> Result<(), BackendError> {
        let shown = self.balancer(tried).await?;
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
        let database = self.client.database().await;
        let database = database.known().map_err(|why| {
            BackendError::transient(tried, format!("whether it has tasks is not known: {why}"))
        })?;
        let reserved: u64 = reserves_as(conductor)
            .iter()
            .filter_map(|name| database.reserved.get(*name))
            .sum();
        Ok((reserved > 0).then(|| format!("it has reserved {reserved} nodes: tasks are under way")))
    }

    pub(crate) fn conductor(&self, service: &Service<'_>) -> Option<&'a Conductor> {
        let conductors = &self.settings.cluster.conductors;
        conductors.iter().find(|conductor| conductor.name == service.name)
    }

    pub(crate) async fn balancer(&self, tried: &str) -> Result<BalancerStatus, BackendError> {
        match balancer(self.client, &self.settings.cluster).await {
            Known::Yes(shown) => Ok(shown),
            Known::No(why) => Err(BackendError::transient(tried, why)),
        }
    }

    /// Brings a server of the balancer into a state, and looks whether it is there.
    pub(crate) async fn set(&self, server: &Server, state: &str) -> Result<(), BackendError> {
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
        let why = format!("the balancer was told {TELLS} times, and has it as {status}");
        Err(BackendError::permanent(tried, why))
    }

    /// Gives a service back: requests come to it again.
    pub(crate) async fn leave(&self, service: &Service<'_>) -> Result<String, BackendError> {
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
}

/// Under which names a conductor may reserve nodes: as it is registered, or by its host alone. That may be another one's on
/// the same host, and then this one counts as busy too.
fn reserves_as(conductor: &Conductor) -> BTreeSet<&str> {
    let registered = conductor.registered.as_str();
    let host = registered.rsplit_once(':').map_or(registered, |(host, _)| host);
    let also = conductor.also_registered.as_deref();
    [registered, host].into_iter().chain(also).collect()
}
