//! How conductors are stopped without failed requests.

use serde::{Deserialize, Serialize};

/// How conductors are stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stopping {
    /// In which way.
    pub way: StopMode,
    /// Whether stagger may write into Ironic's table of conductors, which `mute` does.
    pub writes_into_ironic: bool,
    /// Ironic's database, for that write: as `database`, with a user who may change `conductors`.
    pub database: Option<String>,
    /// Holds all requests at the door of the API, for `hold`; run on the balancer's host. It must end by itself.
    pub hold: Option<String>,
    /// Lets them go on.
    pub let_go: Option<String>,
    /// `[DEFAULT] hash_ring_reset_interval` of Ironic, in seconds: a stopped conductor is asked for so long.
    pub ring: u64,
}

impl Default for Stopping {
    fn default() -> Self {
        Self {
            way: StopMode::default(),
            writes_into_ironic: false,
            database: None,
            hold: None,
            let_go: None,
            ring: 15,
        }
    }
}

/// The ways of stopping a conductor so that no request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopMode {
    /// Its JSON-RPC port stands behind the balancer, and is drained to its peers; or its calls go over RabbitMQ, and are routed to the
    /// queue of one of them.
    #[default]
    Drain,
    /// It stops its heartbeat, and is written down as away in Ironic's table until it is gone.
    Mute,
    /// Requests wait at the door of the API until it is back.
    Hold,
}

impl StopMode {
    /// What it does and what it costs, for the plan.
    pub fn cost(self) -> &'static str {
        match self {
            Self::Drain => "its calls are drained to its peers; no request fails or waits",
            Self::Mute => "it is muted, which writes into Ironic's table of conductors; no request fails",
            Self::Hold => "all requests wait at the API until it is back, which took 20 s each time on 26.1",
        }
    }
}
