//! How Rook walks through the OSDs of a cluster, to have something to compare with.
//!
//! Its queue: take the first, ask Ceph which others may stop with it, update those of the answer that
//! are still in the queue, wait until all is well, and on. One that may not stop goes to the end.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use serde_json::json;

use crate::ceph::Cluster;
use crate::rados::{Request, Target};

/// The batches that Rook would update one after another, each from a cluster that is whole again.
///
/// The cluster must be clean, and nothing is stopped: the answers are those that Rook would get, because
/// after each batch everything is where it was.
pub fn walk(cluster: &Cluster, max: u32) -> Result<Vec<Vec<u32>>> {
    let mut queue: VecDeque<u32> = (0..cluster.spec().osds).collect();
    let mut batches = Vec::new();
    let mut refused = 0;
    while let Some(first) = queue.pop_front() {
        let fields = json!({ "ids": [first.to_string()], "max": max });
        let answer = cluster
            .rados()
            .ask(&Request::new(Target::Mgr, "osd ok-to-stop", fields))?
            .json()?;
        if answer["ok_to_stop"] != true {
            queue.push_back(first);
            refused += 1;
            if refused > cluster.spec().osds {
                bail!("Rook would wait for ever: {queue:?} are never ok to stop: {answer}");
            }
            continue;
        }
        let named = answer["osds"].as_array().into_iter().flatten();
        let mut batch: Vec<u32> = named
            .filter_map(|osd| u32::try_from(osd.as_u64()?).ok())
            .filter(|osd| *osd == first || queue.contains(osd))
            .collect();
        batch.sort_unstable();
        queue.retain(|osd| !batch.contains(osd));
        batches.push(batch);
    }
    Ok(batches)
}
