//! Stops and starts services. A conductor is stopped in one of three ways, so that no request fails.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use stagger_engine::cluster::BackendError;

use crate::commands::{self, filled};
use crate::config::{IronicTiming, Service, ServiceRole, StopMode};
use crate::facts::IronicFacts;
use crate::running_releases::registered;
use crate::visit::perform::Performer;

impl Performer<'_> {
    /// Stops it in the way that is set, and starts it.
    pub(crate) async fn restart(
        &self,
        service: &Service<'_>,
        facts: &IronicFacts,
    ) -> Result<(), BackendError> {
        let stopping = &self.settings.cluster.stopping;
        match (service.role, stopping.way) {
            (ServiceRole::Api, _) | (ServiceRole::Conductor, StopMode::Drain) => {
                self.stop(service).await?;
                self.start(service).await
            }
            (ServiceRole::Conductor, StopMode::Mute) => {
                self.silence_then_stop(service, facts).await?;
                self.start(service).await
            }
            (ServiceRole::Conductor, StopMode::Hold) => self.restart_behind_the_door(service).await,
        }
    }

    /// Requests wait at the door of the API meanwhile. It is shut anew by each try, since it opens by itself after a while.
    async fn restart_behind_the_door(&self, service: &Service<'_>) -> Result<(), BackendError> {
        let stopping = &self.settings.cluster.stopping;
        let attempt = Timestamp::now().as_millisecond();
        let door = async |which: &str, command: &Option<String>| {
            let Some(command) = command else {
                let why = format!("the configuration has no `stopping.{which}`");
                return Err(BackendError::permanent(format!("{which} requests"), why));
            };
            let command = filled(command, service, &[])?;
            let host = &self.settings.cluster.balancer.host;
            commands::run(
                self.client,
                self.call,
                &format!("{which}-{attempt}"),
                host,
                &command,
            )
            .await
        };
        door("hold", &stopping.hold).await?;
        let restarted = async {
            self.wait_until_idle(service).await?;
            self.stop(service).await?;
            self.start(service).await
        };
        let restarted = restarted.await;
        if restarted.as_ref().is_err_and(|error| error.outcome_unknown) {
            // It may be at work there: what waits goes on to wait, until the next try or until the door opens.
            return restarted;
        }
        let let_go = door("let_go", &stopping.let_go).await;
        restarted.and(let_go.map(drop))
    }

    /// Waits until what had passed the door before it was shut is answered, and the conductor has no task. The door opens
    /// again by itself, so this waits no longer than one question may take.
    async fn wait_until_idle(&self, service: &Service<'_>) -> Result<(), BackendError> {
        const TRIED: &str = "wait for requests in flight";
        let begun = Instant::now();
        loop {
            let shown = self.balancer(TRIED).await?;
            let services = self.settings.cluster.services();
            let apis = services.filter(|service| service.role == ServiceRole::Api);
            let servers = apis.flat_map(|api| api.servers);
            let sessions: u64 = servers.map(|server| shown.server(server).sessions).sum();
            let left = if sessions > 0 {
                Some(format!("the API services have {sessions} requests"))
            } else {
                self.tasks(service, TRIED).await?
            };
            let Some(left) = left else { return Ok(()) };
            if begun.elapsed() > self.settings.pace.call {
                let why = format!("after {} s {left}", begun.elapsed().as_secs());
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

    /// Keeps a conductor written down as away until nobody asks it any more, and it has no task: whoever had not heard of it
    /// yet may have given it one more.
    async fn until_forgotten(
        &self,
        service: &Service<'_>,
        name: &str,
        tried: &str,
    ) -> Result<(), BackendError> {
        let IronicTiming {
            ring, drain, poll, ..
        } = self.settings.pace;
        let muted = Instant::now();
        loop {
            self.client.write_offline(name).await?;
            if muted.elapsed() >= ring {
                let Some(left) = self.tasks(service, tried).await? else {
                    return Ok(());
                };
                if muted.elapsed() > ring + drain {
                    let why = format!("after {} s {left}", muted.elapsed().as_secs());
                    return Err(BackendError::transient(tried, why));
                }
            }
            tokio::time::sleep(poll.min(Duration::from_secs(1))).await;
        }
    }

    /// Its peers stop asking it before it stops: no heartbeat, and away in the table until it is gone.
    async fn silence_then_stop(
        &self,
        service: &Service<'_>,
        facts: &IronicFacts,
    ) -> Result<(), BackendError> {
        let tried = format!("mute {}", service.name);
        let conductor = self.conductor(service);
        let named = conductor.and_then(|conductor| {
            let (name, alive) = registered(conductor, facts)?;
            Some((conductor.rpc.as_deref()?, name.to_owned(), alive))
        });
        let Some((rpc, name, alive)) = named else {
            return Err(BackendError::permanent(
                tried,
                "the name under which it is registered is unknown",
            ));
        };
        if alive {
            self.client.halt_keepalive(rpc).await?;
            self.until_forgotten(service, &name, &tried).await?;
        }
        let stop = self.stop(service);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                stopped = &mut stop => return stopped,
                () = tokio::time::sleep(self.settings.pace.poll.min(Duration::from_secs(1))) => {
                    // It may be gone by now; then this is what Ironic writes too.
                    if let Err(error) = self.client.write_offline(&name).await {
                        tracing::warn!(%error, "a conductor that stops");
                    }
                }
            }
        }
    }
}
