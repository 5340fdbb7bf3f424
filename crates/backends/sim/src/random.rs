//! Random clusters with random faults, from a seed.

mod balanced;
mod cluster;
mod faults;
mod guests;
mod stretch;

use stagger_core::model::{Doors, Growth, IdError, Limit, OnFailure, Policy, Retry, Search};
use stagger_core::run::Command;

use crate::Scenario;
use crate::rng::Rng;
use crate::scenario::{Expect, JournalFault, Operator, RollbackSupport, ScheduledCommand, TargetSpec};

/// A story in two phases: faults, then all is healed. A person looks after the run all the time.
///
/// # Errors
/// None: all names are made of digits and letters.
pub fn scenario(seed: u64) -> Result<Scenario, IdError> {
    let mut rng = Rng::new(seed);
    let cluster = cluster::cluster(&mut rng, seed)?;
    let cluster = match rng.below(100) {
        0..13 => stretch::stretched(&mut rng, cluster),
        13..26 => guests::guests(&mut rng, cluster::without_storage(cluster)),
        26..39 => balanced::balanced(&mut rng, cluster::without_storage(cluster)),
        _ => cluster,
    };
    let policy = policy(&mut rng);
    let heal = rng.between(100, 1500) as u32;
    let faults = (0..rng.below(5))
        .map(|_| faults::fault(&mut rng, &cluster))
        .collect::<Result<_, _>>()?;
    let mut going_back = std::collections::BTreeMap::new();
    if rng.percent(20) {
        let how = *rng.pick(&[RollbackSupport::Rebuild, RollbackSupport::Impossible]);
        going_back.insert("osd".parse()?, how);
    }
    let mut asks = Vec::new();
    if rng.percent(12) {
        let command = match rng.below(5) {
            0 => Command::Rollback,
            1 => Command::Abort,
            2 => Command::Resume,
            _ => Command::Pause,
        };
        asks.push(ScheduledCommand {
            at: rng.between(10, 600) as u32,
            command,
        });
    }
    let conductors = if rng.percent(35) {
        (0..rng.between(1, 3))
            .map(|_| faults::conductor(&mut rng))
            .collect()
    } else {
        Vec::new()
    };
    // Nothing is noted on a service that is drained: of one that a journal has lost nobody knows whose it is.
    let is_drained = cluster.balanced.is_some();
    let journal = if rng.percent(15) {
        (0..rng.between(1, 2))
            .map(|_| faults::journal(&mut rng))
            .filter(|ill| !(is_drained && matches!(ill, JournalFault::PutBack { .. })))
            .collect()
    } else {
        Vec::new()
    };
    let person = Operator {
        after: *rng.pick(&[5, 30, 120, 400]),
        hasty: rng.percent(20),
    };
    Ok(Scenario {
        conductors,
        journal,
        person: Some(person),
        about: format!("Random cluster {seed}."),
        cluster,
        target: TargetSpec {
            to: "20.2.1".parse()?,
            going_back,
        },
        policy,
        heal: Some(heal),
        faults,
        asks,
        expect: Expect::default(),
    })
}

fn policy(rng: &mut Rng) -> Policy {
    Policy {
        max_in_parallel: *rng.pick(&[
            Limit::Percent(15),
            Limit::Percent(40),
            Limit::Percent(100),
            Limit::Count(2),
        ]),
        growth: *rng.pick(&[Growth::Double, Growth::None]),
        barrier: !rng.percent(30),
        canary_soak: 2,
        approval_age: *rng.pick(&[20, 20, 12, 60]),
        gate_hold: 2,
        gate_timeout: *rng.pick(&[30, 60, 300]),
        doors: *rng.pick(&[Doors::AutoAfter(1), Doors::AutoAfter(1), Doors::Ask]),
        partial: rng.percent(10),
        on_failure: *rng.pick(&[OnFailure::Rollback, OnFailure::Stop, OnFailure::Continue]),
        rebuild_to_go_back: rng.percent(50),
        retry: Retry {
            first: 5,
            longest: 40,
            tries: 3,
        },
        search: Search { seed: 1, steps: 30 },
        ..Policy::default()
    }
}
