//! Random clusters with random faults, from a seed.

use crate::conductors::{Conductor, Ill};
use crate::fault::{Fault, On, Says, When};
use crate::rng::Rng;
use crate::scenario::{Ask, Expect};
use crate::spec::{Level, PoolSpec, Seconds};
use crate::target::{Back, TargetSpec};
use crate::{Scenario, SimSpec};
use stagger_core::model::{Doors, Growth, IdError, Limit, OnFailure, Phase, Policy, Retry, Search, UnitId};
use stagger_core::run::Command;

/// A story in two phases: faults, then all is healed and a person says go on.
///
/// # Errors
/// None: all names are made of digits and letters.
pub fn scenario(seed: u64) -> Result<Scenario, IdError> {
    let mut rng = Rng::new(seed);
    let cluster = cluster(&mut rng, seed)?;
    let policy = policy(&mut rng);
    let heal = rng.between(100, 1500) as u32;
    let faults = (0..rng.below(5))
        .map(|_| fault(&mut rng, &cluster))
        .collect::<Result<_, _>>()?;
    let mut going_back = std::collections::BTreeMap::new();
    if rng.percent(20) {
        let how = *rng.pick(&[Back::Rebuild, Back::Impossible]);
        going_back.insert("osd".parse()?, how);
    }
    let mut asks = Vec::new();
    if rng.percent(5) {
        let command = if rng.percent(50) {
            Command::Rollback
        } else {
            Command::Pause
        };
        asks.push(Ask {
            at: rng.between(10, 600) as u32,
            command,
        });
    }
    asks.sort_by_key(|ask| ask.at);
    for later in [20, 2_000, 10_000] {
        asks.push(Ask {
            at: heal.max(600) + later,
            command: Command::Resume,
        });
    }
    let conductors = if rng.percent(30) {
        (0..rng.between(1, 2)).map(|_| conductor(&mut rng)).collect()
    } else {
        Vec::new()
    };
    Ok(Scenario {
        conductors,
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

fn cluster(rng: &mut Rng, seed: u64) -> Result<SimSpec, IdError> {
    let (racks, hosts, osds) = loop {
        let shape = (rng.between(1, 5), rng.between(1, 4), rng.between(1, 3));
        if shape.0 * shape.1 * shape.2 >= 3 {
            break shape;
        }
    };
    let all = racks * hosts * osds;
    let some = |rng: &mut Rng, most: u64| -> Result<Vec<UnitId>, IdError> {
        let count = rng.below(most + 1);
        (0..count)
            .map(|_| UnitId::new(format!("osd.{}", rng.below(all))))
            .collect()
    };
    let mut out = if rng.percent(25) {
        some(rng, 3)?
    } else {
        Vec::new()
    };
    let mut down = if rng.percent(15) {
        some(rng, 2)?
    } else {
        Vec::new()
    };
    // Dead for long: its data lies elsewhere.
    if rng.percent(15) {
        for dead in some(rng, 2)? {
            out.push(dead.clone());
            down.push(dead);
        }
    }
    let pools = (0..rng.between(1, 4)).map(|at| pool(rng, at)).collect();
    Ok(SimSpec {
        name: format!("random-{seed}").parse()?,
        release: "18.2.7".parse()?,
        seed,
        racks: racks as u32,
        hosts_per_rack: hosts as u32,
        osds_per_host: osds as u32,
        mons: *rng.pick(&[1, 3, 3, 3, 3, 4, 5]),
        mgrs: *rng.pick(&[1, 2, 2, 2, 2]),
        mds: *rng.pick(&[0, 0, 2, 2, 3]),
        mds_ranks: 1,
        rgws: *rng.pick(&[0, 0, 0, 2]),
        pools,
        out,
        down,
        seconds: Seconds {
            restart: 5,
            restart_osd: rng.between(2, 20) as u32,
            recovery: rng.between(1, 30) as u32,
            blind: *rng.pick(&[0, 5, 40]),
            call: *rng.pick(&[0, 0, 0, 1, 3]),
            ask: *rng.pick(&[0, 0, 1, 4]),
            install: *rng.pick(&[0, 0, 20, 300]),
            poll: 10,
            lock: 30,
        },
    })
}

fn pool(rng: &mut Rng, at: u64) -> PoolSpec {
    let domain = *rng.pick(&[Level::Osd, Level::Host, Level::Host, Level::Rack]);
    let (size, min_size, k) = if rng.percent(70) {
        let size = if rng.percent(85) { rng.between(2, 5) } else { 1 };
        // Mostly with room to lose one.
        let most = if rng.percent(85) { size.max(2) - 1 } else { size };
        (size, rng.between(1, most), 1)
    } else {
        let (k, m) = (rng.between(2, 8), rng.between(1, 3));
        (k + m, k + rng.below(m.min(2)), k)
    };
    PoolSpec {
        name: format!("p{at}"),
        size: size as u32,
        min_size: min_size as u32,
        k: k as u32,
        domain,
        pgs: rng.between(1, 8) as u32,
    }
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
        canary_soak: 2,
        approval_age: *rng.pick(&[20, 20, 12, 60]),
        gate_hold: 2,
        gate_timeout: *rng.pick(&[30, 60, 300]),
        doors: Doors::AutoAfter(1),
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

fn fault(rng: &mut Rng, spec: &SimSpec) -> Result<Fault, IdError> {
    let osd = UnitId::new(format!("osd.{}", rng.below(u64::from(spec.osds()))))?;
    let mon = UnitId::new("mon.a")?;
    let unit = if rng.percent(85) { osd } else { mon };
    let when = if rng.percent(60) {
        When {
            osd_stop: rng.between(1, 12) as u32,
            at: rng.below(15) as u32,
            lasts: lasts(rng),
        }
    } else {
        When {
            osd_stop: 0,
            at: rng.below(400) as u32,
            lasts: lasts(rng),
        }
    };
    let phase = *rng.pick(&[Phase::Prepare, Phase::Enter, Phase::Change, Phase::Leave]);
    let on = if rng.percent(80) { On::New } else { On::Any };
    Ok(match rng.below(16) {
        0 => Fault::Slow {
            unit,
            seconds: rng.between(10, 200) as u32,
        },
        1 => Fault::NeverReturns { unit, on },
        2 => Fault::Crashes {
            unit,
            after: rng.between(1, 30) as u32,
            again: *rng.pick(&[0, 7, 60]),
            on,
        },
        3 => Fault::PerformFails {
            unit,
            phase: Some(phase),
            times: rng.below(4) as u32,
        },
        4 => Fault::CallLate {
            unit,
            phase,
            seconds: rng.between(1, 60) as u32,
        },
        5 => Fault::AnswerLost { unit, phase },
        6 => Fault::GuardFails {
            times: rng.between(1, 3) as u32,
        },
        7 => Fault::StalePgs {
            hidden: rng.percent(60),
            oracle_too: rng.percent(50),
            when,
        },
        8 => Fault::Oracle {
            says: *rng.pick(&[Says::Gone, Says::Error, Says::Unknown, Says::Yes]),
            when,
        },
        9 => Fault::OracleNo { unit, when },
        10 => Fault::Blind { when },
        11 => Fault::Outage {
            what: format!("rack-{}", rng.below(u64::from(spec.racks))),
            when,
        },
        12 => {
            let what = format!(
                "host-{}-{}",
                rng.below(u64::from(spec.racks)),
                rng.below(u64::from(spec.hosts_per_rack))
            );
            Fault::Outage { what, when }
        }
        13 | 14 => Fault::Warning { when },
        _ => Fault::Outage {
            what: unit.to_string(),
            when,
        },
    })
}

fn conductor(rng: &mut Rng) -> Conductor {
    let ill = |rng: &mut Rng| match rng.below(3) {
        0 => Ill::Killed {
            at: rng.below(600) as u32,
            again: rng.between(1, 90) as u32,
        },
        1 => Ill::Paused {
            call: rng.between(1, 120) as u32,
            lasts: rng.between(1, 120) as u32,
        },
        _ => Ill::CutOff {
            at: rng.below(600) as u32,
            lasts: rng.between(1, 120) as u32,
        },
    };
    Conductor {
        at: rng.below(60) as u32,
        ahead: *rng.pick(&[0, 0, 3, -3, 40, -40, 1_500, -1_500]),
        ills: (0..rng.below(4)).map(|_| ill(rng)).collect(),
    }
}

fn lasts(rng: &mut Rng) -> u32 {
    *rng.pick(&[0, 20, 100, 400])
}
