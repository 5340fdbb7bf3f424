//! Cases of a cluster that Rook laid out, each on a real Kubernetes with real Ceph daemons in its pods, under
//! load.

mod drains;
mod upgrades;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");
