//! RabbitMQ, if conductors are called over it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::BalancerServer;

/// How long RabbitMQ may take to answer, and the database to say whose the lock is before it is told anything.
pub(crate) const PROMPT: Duration = Duration::from_secs(5);

/// How long a change may still come from a process that has lost the lock: it looked whose the lock is, and then told RabbitMQ.
pub(crate) const LATE: Duration = Duration::from_secs(10);

/// RabbitMQ as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RabbitMq {
    /// Its management API: `http://10.0.0.5:15672`.
    pub url: String,
    /// Who asks there. It needs the tag `policymaker`, and all rights on Ironic's exchange, on the alternate one, and on the
    /// conductors' queues.
    pub user: String,
    /// The file with the password, which nobody else may read.
    pub password_file: PathBuf,
    /// The virtual host of Ironic's `transport_url`.
    #[serde(default = "default_vhost")]
    pub vhost: String,
    /// Ironic's `control_exchange`.
    #[serde(default = "default_exchange")]
    pub exchange: String,
}

fn default_vhost() -> String {
    "/".to_owned()
}
fn default_exchange() -> String {
    "ironic".to_owned()
}

impl RabbitMq {
    /// The exchange that gets what Ironic's has no queue for, and the policy that says so.
    pub fn alternate(&self) -> String {
        format!("stagger.{}", self.exchange)
    }
}

/// A conductor's place at the balancer, where that is RabbitMQ.
pub(crate) fn own_server(registered: &str, name: &str) -> BalancerServer {
    BalancerServer {
        backend: registered.to_owned(),
        server: name.to_owned(),
    }
}
