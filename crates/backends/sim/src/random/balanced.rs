//! Random services behind a balancer.

use stagger_core::model::UnitId;

use crate::SimSpec;
use crate::rng::Rng;
use crate::scenario::{BalancedSpec, InjectedFault};

/// Services behind a balancer in the place of storage.
pub(super) fn balanced(rng: &mut Rng, spec: SimSpec) -> SimSpec {
    let groups = rng.between(1, 3) as u32;
    // Most people have two of each group; one in ten groups has one more or less.
    let conductors: Vec<u32> = (0..groups)
        .flat_map(|group| {
            let members = *rng.pick(&[1, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
            std::iter::repeat_n(group, members)
        })
        .collect();
    SimSpec {
        racks: rng.between(1, 3) as u32,
        hosts_per_rack: rng.between(1, 3) as u32,
        balanced: Some(BalancedSpec {
            conductors,
            apis: *rng.pick(&[1, 2, 2, 2, 3, 3, 4]),
            held: rng.percent(60),
        }),
        ..spec
    }
}

/// A fault that only such services have.
pub(super) fn fault(rng: &mut Rng, unit: UnitId) -> InjectedFault {
    InjectedFault::DrainHangs {
        unit,
        times: rng.below(4) as u32,
    }
}
