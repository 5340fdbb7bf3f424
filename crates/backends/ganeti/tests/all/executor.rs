//! The executor has the laws of every executor.

use std::collections::BTreeSet;

use stagger_conformance::executor::{an_older_holder_is_refused, performed_twice_is_performed_once};
use stagger_core::model::{Phase, UnitId};
use stagger_core::run::Action;
use stagger_engine::cluster::Executor as _;

use crate::common::{Setup, call, setup};
use crate::double::World;
use crate::migrations::{enter_n2, with_web};

/// A node: its name, its role, its tags, and how often it was rebooted.
type NodeNow = (String, &'static str, BTreeSet<String>, u32);

/// Each node's role, tags and boot, and where instances are: jobs that were refused change nothing of it.
fn now(setup: &Setup) -> (Vec<NodeNow>, String) {
    let world: &World = &setup.world();
    let nodes = world.now.nodes.iter();
    let nodes = nodes.map(|(name, node)| (name.clone(), node.role, node.tags.clone(), node.boot));
    (nodes.collect(), format!("{:?}", world.layout()))
}

fn phase(phase: Phase) -> Action {
    let Action::Visit {
        unit,
        revision,
        moves,
        ..
    } = enter_n2()
    else {
        panic!("a visit")
    };
    Action::Visit {
        unit,
        phase,
        revision,
        moves,
    }
}

#[tokio::test]
async fn a_visit_has_the_laws_of_every_executor() {
    let all = [Phase::Enter, Phase::Change, Phase::Leave];
    for (at, of) in all.into_iter().enumerate() {
        for is_overtaken in [false, true] {
            let setup = setup(with_web()).await;
            let memory = setup.memory().await;
            let process = setup.backend(Some(memory.clone()));
            for before in &all[..at] {
                process.perform(&call(5), &phase(*before)).await.unwrap();
            }
            let world = async || now(&setup);
            if is_overtaken {
                an_older_holder_is_refused(&process, &call(5), &call(6), &phase(of), world).await;
            } else {
                let other = setup.backend(Some(memory));
                performed_twice_is_performed_once([&process, &other], &call(5), &phase(of), world).await;
            }
        }
    }
}

/// A node that was not rebooted is, and given back.
#[tokio::test]
async fn a_restart_has_the_laws_of_every_executor() {
    let restart = Action::Restart {
        unit: UnitId::new("n2").unwrap(),
    };
    for is_overtaken in [false, true] {
        let setup = setup(with_web()).await;
        let memory = setup.memory().await;
        let process = setup.backend(Some(memory.clone()));
        process.perform(&call(5), &enter_n2()).await.unwrap();
        let world = async || now(&setup);
        if is_overtaken {
            an_older_holder_is_refused(&process, &call(5), &call(6), &restart, world).await;
        } else {
            let other = setup.backend(Some(memory));
            performed_twice_is_performed_once([&process, &other], &call(5), &restart, world).await;
        }
    }
}
