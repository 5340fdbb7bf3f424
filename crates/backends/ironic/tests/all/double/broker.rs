//! The message broker of an Ironic in memory: `RabbitMQ`, with a queue for each conductor.

use std::collections::BTreeSet;

use stagger_ironic::rabbitmq::{Exchange, QueueReport, Routing, RoutingChange};

/// One that routes calls to these conductors.
pub(super) fn of(conductors: impl Iterator<Item = String>) -> Routing {
    let queue = QueueReport {
        is_bound: true,
        consumers: 2,
        calls: 0,
    };
    Routing {
        queues: conductors.map(|name| (name, queue.clone())).collect(),
        ..Routing::default()
    }
}

/// A conductor starts: it binds its queue itself.
pub(super) fn join(routing: &mut Routing, conductor: &str) {
    if let Some(queue) = routing.queues.get_mut(conductor) {
        (queue.consumers, queue.is_bound) = (2, true);
    }
}

/// A conductor is gone; its queue stays.
pub(super) fn leave(routing: &mut Routing, conductor: &str) {
    if let Some(queue) = routing.queues.get_mut(conductor) {
        queue.consumers = 0;
    }
}

/// Whether calls for a conductor come to one other and no more to it.
pub(super) fn is_diverted(routing: &Routing, conductor: &str) -> bool {
    let stand_ins = routing.stand_ins.get(conductor).map_or(0, BTreeSet::len);
    !routing.queues[conductor].is_bound && stand_ins == 1 && routing.diverts
}

/// Changes the routing; which calls go to nobody then, or to two.
pub(super) fn change(routing: &mut Routing, change: RoutingChange) -> Option<String> {
    match change {
        RoutingChange::Prepare => routing.diverts = true,
        RoutingChange::Bind {
            exchange: Exchange::Ironic,
            queue,
            ..
        } => {
            routing.queues.get_mut(&queue).unwrap().is_bound = true;
        }
        RoutingChange::Unbind {
            exchange: Exchange::Ironic,
            queue,
            ..
        } => {
            routing.queues.get_mut(&queue).unwrap().is_bound = false;
        }
        RoutingChange::Bind { conductor, queue, .. } => {
            routing.stand_ins.entry(conductor).or_default().insert(queue);
        }
        RoutingChange::Unbind { conductor, queue, .. } => {
            routing.stand_ins.entry(conductor).or_default().remove(&queue);
        }
    }
    routing.queues.iter().find_map(|(name, queue)| {
        let taken = routing.stand_ins.get(name).map_or(0, BTreeSet::len);
        let goes_on = queue.is_bound || (routing.diverts && taken == 1);
        (!goes_on).then(|| format!("calls to {name} go to {taken} queues"))
    })
}
