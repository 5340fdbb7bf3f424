//! How a run of a test begins.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses a part of it, and it is test code"
)]

use jiff::Timestamp;
use stagger_core::model::{Part, Policy, Target};
use stagger_core::run::{Entry, Event, Run, Start, VERSION};

/// The run `r1` of the cluster `lab`.
pub fn start(parts: Vec<Part>, policy: Policy) -> Start {
    Start {
        version: VERSION,
        run: "r1".parse().unwrap(),
        cluster: "lab".parse().unwrap(),
        target: Target {
            title: "up".to_owned(),
            parts,
            only: None,
        },
        policy,
        baseline: serde_json::Value::Null,
        topology: stagger_core::model::Topology::default(),
        identity: None,
    }
}

/// It has begun, at the first second.
pub fn run(start: Start) -> Run {
    let first = Entry {
        seq: 1,
        at: Timestamp::UNIX_EPOCH,
        event: Event::Started(Box::new(start)),
    };
    Run::begin(first).unwrap()
}
