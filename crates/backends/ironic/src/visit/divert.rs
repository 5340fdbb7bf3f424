//! Drains conductors that are called over RabbitMQ, and undrains them.

use std::collections::BTreeSet;
use std::time::Instant;

use stagger_engine::cluster::BackendError;

use crate::balancer::ServerState;
use crate::config::{Conductor, IronicConfig, PROMPT, Service, ServiceRole};
use crate::facts::IronicFacts;
use crate::rabbitmq::{Exchange, Routing, RoutingChange};
use crate::rings::{absence_permitted, rings, stand_ins};
use crate::visit::perform::Performer;
use stagger_core::model::Fact;

/// So often a change to the routing is tried: each may be repeated.
const TRIES: u32 = 3;

/// The conductors that may get the calls of that one: its stand-ins that take calls.
pub(crate) fn accepting_stand_ins<'a>(
    facts: &'a IronicFacts,
    config: &'a IronicConfig,
    name: &str,
) -> Vec<&'a Conductor> {
    let names: BTreeSet<&str> = stand_ins(&rings(facts, config), name);
    let conductors = config
        .conductors
        .iter()
        .filter(|other| names.contains(other.name.as_str()));
    let up = conductors.filter(|other| {
        let Fact::Yes(shown) = &facts.balancer else {
            return false;
        };
        other
            .servers
            .iter()
            .all(|server| shown.server(server).state == ServerState::Up)
    });
    up.collect()
}

impl<'a> Performer<'a> {
    /// The conductor of a service, where its calls go over RabbitMQ.
    pub(crate) fn called_over_rabbitmq(&self, service: &Service<'_>) -> Option<&'a Conductor> {
        let behind = self.settings.cluster.rabbitmq.is_some() && service.role == ServiceRole::Conductor;
        if behind { self.conductor(service) } else { None }
    }

    async fn routing(&self, tried: &str) -> Result<Routing, BackendError> {
        match self.client.routing().await {
            Some(Fact::Yes(routing)) => Ok(routing),
            Some(Fact::No(why)) => Err(BackendError::transient(tried, why)),
            None => Err(BackendError::permanent(
                tried,
                "the configuration has no `[cluster.rabbitmq]`",
            )),
        }
    }

    async fn reroute(&self, tried: &str, changes: &[RoutingChange]) -> Result<(), BackendError> {
        for change in changes {
            let mut tries = 1;
            loop {
                self.call.may_begin(tried)?;
                // RabbitMQ knows no fencing tokens: whoever has the lock now waits for longer than both of these may take.
                match self.try_reroute(change).await {
                    Ok(()) => break,
                    Err(why) if tries == TRIES => return Err(BackendError::transient(tried, why)),
                    Err(_) => tries += 1,
                }
                tokio::time::sleep(self.settings.pace.poll).await;
            }
        }
        Ok(())
    }

    async fn try_reroute(&self, change: &RoutingChange) -> Result<(), String> {
        self.book.check_holder(self.call, PROMPT).await?;
        self.client.reroute(change).await
    }

    /// Its calls go to a stand-in. What it had been sent before is with it some moments later. Those of one without a stand-in, which
    /// is away by a person's word, wait in its queue until it is back.
    pub(crate) async fn divert(&self, conductor: &Conductor, tried: &str) -> Result<(), BackendError> {
        let facts = self.collect_facts().await;
        let config = &self.settings.cluster;
        let of = (ServiceRole::Conductor, conductor.name.as_str());
        if absence_permitted(&facts, config, &self.permitted, of) {
            return Ok(());
        }
        let own = conductor.registered.as_str();
        let routing = self.routing(tried).await?;
        let candidates = accepting_stand_ins(&facts, config, &conductor.name);
        // One that is bound already was chosen by a try before.
        let bound = routing.stand_ins.get(own);
        let is_bound = |other: &&&Conductor| bound.is_some_and(|bound| bound.contains(&other.registered));
        let chosen = candidates.iter().find(is_bound).or(candidates.first());
        let Some(stand_in) = chosen.map(|chosen| chosen.registered.as_str()) else {
            let why = "no stand-in of it takes calls";
            return Err(BackendError::transient(tried, why));
        };
        self.reroute(tried, &routing.before_diverting(own, stand_in))
            .await?;
        self.wait_until_in_force(own, stand_in, tried).await?;
        let unbind = RoutingChange::Unbind {
            exchange: Exchange::Ironic,
            conductor: own.to_owned(),
            queue: own.to_owned(),
        };
        self.reroute(tried, &[unbind]).await?;
        tokio::time::sleep(self.settings.pace.settle).await;
        Ok(())
    }

    /// Waits until RabbitMQ says that what no queue is bound for goes to the stand-in: a policy is in force some moments after it was
    /// set. Before that a call would be lost.
    async fn wait_until_in_force(&self, own: &str, stand_in: &str, tried: &str) -> Result<(), BackendError> {
        let begun = Instant::now();
        loop {
            let routing = self.routing(tried).await?;
            if routing.is_ready_to_divert(own, stand_in) {
                return Ok(());
            }
            if begun.elapsed() > self.settings.pace.call {
                let why = match routing.policy_of_others {
                    Some(policy) => {
                        format!("the policy {policy:?} takes precedence over ours on Ironic's exchange")
                    }
                    None => {
                        "RabbitMQ does not hand calls without a queue to the alternate exchange".to_owned()
                    }
                };
                return Err(BackendError::transient(tried, why));
            }
            tokio::time::sleep(self.settings.pace.poll).await;
        }
    }

    /// It gets its own calls again.
    pub(crate) async fn restore_calls(&self, conductor: &Conductor, tried: &str) -> Result<(), BackendError> {
        let routing = self.routing(tried).await?;
        self.reroute(tried, &routing.restoring_changes(&conductor.registered))
            .await
    }
}
