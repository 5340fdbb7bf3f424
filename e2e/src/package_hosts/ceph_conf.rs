//! The `ceph.conf` of the hosts, and the one beside them.

use crate::ceph::quick;
use crate::hosts::network;

/// The text for a cluster whose monitors are at these addresses.
pub(super) fn text(fsid: &str, mons: &[String]) -> String {
    let mons: Vec<String> = mons.iter().map(|address| format!("v2:{address}:3300")).collect();
    let text = TEXT
        .replace("{fsid}", fsid)
        .replace("{mon_host}", &mons.join(","))
        .replace("{network}", network::NETWORK);
    quick(&text)
}

const TEXT: &str = "\
[global]
fsid = {fsid}
mon_host = {mon_host}
public_network = {network}
ms_bind_msgr1 = false
{quick_global}[mon]
{quick_mon}[mgr]
{quick_mgr}[osd]
{quick_osd}";
