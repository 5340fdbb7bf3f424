//! The executor has the laws of every executor.

use std::collections::BTreeMap;

use stagger_conformance::executor::{an_older_holder_is_refused, performed_twice_is_performed_once};
use stagger_conformance::lock::claim;
use stagger_core::model::Phase;
use stagger_core::run::Action;
use stagger_engine::cluster::{Executor as _, Lock as _};

use crate::common::{Setup, call, goal, setup};
use crate::orders::{HELD, in_mid_upgrade, visit};

/// Services, the balancer, the schema and what is written down; commands that change nothing are no matter.
async fn now(setup: &Setup) -> (String, BTreeMap<(String, String), bool>, String, String) {
    let records = setup.backend(None).collect_facts().await.records;
    let inner = setup.lab.now();
    let services = format!("{:?}", inner.services);
    (
        services,
        inner.servers.clone(),
        inner.schema.clone(),
        format!("{records:?}"),
    )
}

fn of(phase: Phase) -> Action {
    visit("conductor.c1", phase, HELD)
}

#[tokio::test]
async fn a_visit_has_the_laws_of_every_executor() {
    let all = Phase::all();
    for (at, phase) in all.iter().enumerate() {
        for is_overtaken in [false, true] {
            let setup = setup("26.1.6");
            let (process, token) = in_mid_upgrade(&setup).await;
            for (seq, before) in (10..).zip(&all[..at]) {
                process.perform(&call(token, seq), &of(*before)).await.unwrap();
            }
            let world = async || now(&setup).await;
            let other = setup.backend(Some(goal()));
            if is_overtaken {
                process.unlock(&claim("one"), token).await.unwrap();
                let newer = other.lock(&claim("two"), token).await.unwrap();
                let (late, newer) = (call(token, 20), call(newer, 20));
                an_older_holder_is_refused(&other, &late, &newer, &of(*phase), world).await;
            } else {
                let both: [&dyn stagger_engine::cluster::Executor; 2] = [&process, &other];
                performed_twice_is_performed_once(both, &call(token, 20), &of(*phase), world).await;
            }
        }
    }
}

#[tokio::test]
async fn a_step_has_the_laws_of_every_executor() {
    let schema = Action::Step {
        step: "schema".parse().unwrap(),
    };
    for is_overtaken in [false, true] {
        let setup = setup("26.1.6");
        let (process, other) = (setup.backend(Some(goal())), setup.backend(Some(goal())));
        let token = process.lock(&claim("one"), 0).await.unwrap();
        let world = async || now(&setup).await;
        if is_overtaken {
            process.unlock(&claim("one"), token).await.unwrap();
            let newer = other.lock(&claim("two"), token).await.unwrap();
            an_older_holder_is_refused(&other, &call(token, 20), &call(newer, 20), &schema, world).await;
        } else {
            let both: [&dyn stagger_engine::cluster::Executor; 2] = [&process, &other];
            performed_twice_is_performed_once(both, &call(token, 20), &schema, world).await;
        }
    }
}
