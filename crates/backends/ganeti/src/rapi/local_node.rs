//! Which node of the cluster this machine is.
//!
//! A host's own name may differ from its node's name, and a process that does not know that it runs on a node
//! would hand nothing over and reboot itself. The node's primary address decides: it is one of this machine's
//! own, or it is not.

use std::net::{IpAddr, UdpSocket};

use serde_json::{Value, json};

use crate::rapi::client::{HttpMethod, Rapi, RapiClientError};

/// The node that this machine is, by its primary address; else the name that the host gives itself. Where several nodes' addresses
/// are this machine's, as in a test of many nodes on one, nothing follows from that.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn node_or_host(rapi: &Rapi, host: &str) -> Result<String, RapiClientError> {
    // Nothing of it is asked of the nodes themselves.
    let question = json!({ "fields": ["name", "pip"] });
    let answer = rapi
        .read(HttpMethod::Put, "/2/query/node", Some(&question))
        .await?;
    let ours: Vec<&str> = nodes(&answer)
        .into_iter()
        .filter(|(_, address)| is_local_address(*address))
        .map(|(name, _)| name)
        .collect();
    Ok(match ours.as_slice() {
        [node] => (*node).to_owned(),
        _ => host.to_owned(),
    })
}

/// Names and primary addresses. Values stand beside a word on whether they are known; 0: they are.
fn nodes(answer: &Value) -> Vec<(&str, IpAddr)> {
    let rows = answer["data"].as_array().into_iter().flatten();
    rows.filter_map(|row| Some((row[0][1].as_str()?, row[1][1].as_str()?.parse().ok()?)))
        .collect()
}

/// A socket can be bound to none but a machine's own addresses. Nothing is sent.
fn is_local_address(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}
