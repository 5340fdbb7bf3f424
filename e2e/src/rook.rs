//! How Rook walks through the OSDs of a cluster, to have something to compare with.
//!
//! Its queue: take the first, ask Ceph which others may stop with it, update those of the answer that
//! are still in the queue, wait until all is well, and on. One that may not stop goes to the end.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::ceph::Cluster;
use crate::rados::{Request, Target};

/// A manager hears of new placement groups within seconds.
const HEARD_OF: Duration = Duration::from_mins(1);

/// The batches that Rook would update one after another, each from a cluster that is whole again.
///
/// The cluster must be clean, and nothing is stopped: the answers are those that Rook would get, because
/// after each batch everything is where it was.
pub fn walk(cluster: &Cluster, max: u32) -> Result<Vec<Vec<u32>>> {
    let mut queue: VecDeque<u32> = (0..cluster.spec().osds).collect();
    let mut batches = Vec::new();
    let mut refused = 0;
    while let Some(first) = queue.pop_front() {
        let answer = ok_to_stop(cluster, first, max)?;
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

/// What Ceph answers about one OSD and others beside it. Of pools that were just made the manager does not know all
/// placement groups; then it is asked again, as Rook would ask.
fn ok_to_stop(cluster: &Cluster, osd: u32, max: u32) -> Result<Value> {
    let mut answer = Value::Null;
    cluster.wait_for("a manager that knows all placement groups", HEARD_OF, |rados| {
        let fields = json!({ "ids": [osd.to_string()], "max": max });
        answer = rados
            .ask(&Request::new(Target::Mgr, "osd ok-to-stop", fields))?
            .json()?;
        Ok(answer["unknown_pgs"].as_array().is_none_or(Vec::is_empty))
    })?;
    Ok(answer)
}
