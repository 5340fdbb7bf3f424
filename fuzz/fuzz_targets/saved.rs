//! An inventory of a Ceph: what can be observed can be planned, and the judge agrees with each plan.
#![no_main]

use std::collections::BTreeMap;

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use stagger_ceph::api::saved::FromSaved;
use stagger_ceph::facts::{CollectOptions, Fact, collect};
use stagger_ceph::oktostop::Maps;
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::check::check;
use stagger_core::model::{Growth, Limit, Policy};
use stagger_core::plan::{PlanningInput, plan};
use stagger_engine::inventory::Inventory;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    /// A long list of placement groups is read on a thread of its own.
    static RUNTIME: Runtime = Builder::new_current_thread().build().unwrap();
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(inventory) = Inventory::read(bytes) else {
        return;
    };
    let (cluster, taken) = (inventory.cluster.clone(), inventory.taken);
    let written = inventory.to_json().unwrap();
    assert_eq!(Inventory::read(&written).unwrap().to_json().unwrap(), written);
    let Ok(answers) = inventory.answers() else { return };
    let options = CollectOptions {
        tries: 1,
        ..CollectOptions::default()
    };
    let api = FromSaved::new(answers, "it");
    let Ok(facts) = RUNTIME.with(|runtime| runtime.block_on(collect(&api, &options, taken))) else {
        return;
    };
    let Ok(snapshot) = translate(
        &cluster,
        &facts,
        &HealthPolicy::default(),
        None,
        BTreeMap::new(),
        &Permitted::default(),
    ) else {
        return;
    };
    if let Fact::Yes(pgs) = &facts.pgs {
        let maps = Maps {
            pgs: pgs.clone(),
            osds: facts.osds.clone(),
            tree: facts.tree.clone(),
        };
        let oracle = maps.oracle();
        if let Some(first) = facts.osds.osds.keys().next() {
            let largest = oracle.largest(&[*first], 8).unwrap();
            if largest.verdict.ok() {
                assert!(largest.verdict.osds.len() as u32 >= largest.by_ceph_walk.min(8));
            }
        }
    }
    let mut policy = Policy {
        max_in_parallel: Limit::Percent(50),
        growth: Growth::None,
        ..Policy::default()
    };
    policy.search.steps = 200;
    let none = BTreeMap::new();
    let earned = BTreeMap::new();
    for release in ["18.2.7", "20.2.4"] {
        let Ok(target) = target(&facts, release, &TargetPolicy::default()) else {
            continue;
        };
        let ask = PlanningInput {
            snapshot: &snapshot,
            target: &target,
            policy: &policy,
            aside: &none,
            earned: &earned,
            parent: None,
        };
        let made = plan(&ask);
        assert_eq!(
            check(&ask, &made),
            [],
            "the judge finds nothing in a plan of ours"
        );
        let _: Timestamp = snapshot.observed_at();
    }
});
