//! Plays the kubelet for the nodes of a test cluster: `node-agent SETTINGS.json`.

use anyhow::{Context, Result};
use stagger_e2e::node;

#[tokio::main]
async fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("use: node-agent SETTINGS.json")?;
    let text = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
    node::run(serde_json::from_slice(&text).with_context(|| format!("reading {path}"))?).await
}
