//! Boots hosts with a cluster that cephadm has made, says how to work on them, and holds them open.

use std::io::{Read as _, stdin};

use anyhow::Result;
use stagger_e2e::cephadm_hosts::Cluster;
use stagger_e2e::command::say;

fn main() -> Result<()> {
    let cluster = Cluster::boot()?;
    say(format!("healthy     after {:.1} s", cluster.took().as_secs_f64()));
    let dir = cluster.dir().display();
    say(format!("folder      {dir}"));
    say(format!("a command   {dir}/ssh h1 podman ps"));
    say(format!("Ceph's      {dir}/ceph orch ps"));
    for version in cluster.versions() {
        say(format!("an image    {}", Cluster::image(version)));
    }
    say("It ends when stdin closes, or on Ctrl-C.");
    let mut buffer = [0_u8; 256];
    while stdin().read(&mut buffer)? > 0 {}
    cluster.stop()
}
