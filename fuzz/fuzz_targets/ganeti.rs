//! What Ganeti answers, and the files of its tools: an error, or a cluster that can be planned for.
#![no_main]

use std::collections::BTreeMap;

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use stagger_core::model::ClusterName;
use stagger_ganeti::config::Visits;
use stagger_ganeti::facts::{RapiAnswers, facts};
use stagger_ganeti::goal::EvacuationGoal;
use stagger_ganeti::loaders::{iallocator, text};
use stagger_ganeti::model::GanetiCluster;
use stagger_ganeti::translate::live::live_snapshot;
use stagger_ganeti::translate::{View, snapshot};

/// The memory of a node's operating system, in MiB, where nothing says it.
const KEPT: u64 = 1024;

fn name() -> ClusterName {
    ClusterName::new("fuzzed").expect("a name")
}

/// What a reader gives makes a snapshot.
fn is_of_use(cluster: &GanetiCluster) {
    let view = View {
        name: name(),
        at: Timestamp::UNIX_EPOCH,
        durations: BTreeMap::new(),
        ignore_ipolicy: false,
    };
    snapshot(cluster, &view).expect("what was read makes a snapshot");
}

/// The answers of the remote API, each under its name.
fn answers(bytes: &[u8]) {
    let Ok(mut all) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let mut take = |what: &str| all.get_mut(what).map(Value::take).unwrap_or_default();
    let answers = RapiAnswers {
        jobs: take("jobs"),
        info: take("info"),
        groups: take("groups"),
        nodes: take("nodes"),
        boots: take("boots"),
        instances: take("instances"),
    };
    let cluster = answers.cluster();
    let (Ok(cluster), Ok(facts)) = (cluster, facts(Timestamp::UNIX_EPOCH, answers)) else {
        return;
    };
    // Nodes that one answer has and another has not are an error, and no panic.
    let _ = live_snapshot(
        &name(),
        &facts,
        &cluster,
        None,
        &EvacuationGoal::default(),
        &Visits::default(),
    );
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    match which {
        b'a' => answers(rest),
        b'i' => {
            let read = std::str::from_utf8(rest)
                .ok()
                .map(|text| iallocator::read(text, KEPT));
            if let Some(Ok(cluster)) = read {
                is_of_use(&cluster);
            }
        }
        _ => {
            let Ok(file) = std::str::from_utf8(rest) else {
                return;
            };
            let Ok(cluster) = text::read(file) else { return };
            is_of_use(&cluster);
            let written = text::write(&cluster);
            assert_eq!(
                text::read(&written).as_ref().map(text::write).ok().as_ref(),
                Some(&written),
                "what is written is read as the same"
            );
        }
    }
});
