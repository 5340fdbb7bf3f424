//! Random faults: of the cluster, of those who carry the run out, and of their journal.

use stagger_core::model::{IdError, Phase, UnitId};

use super::{balanced, guests};
use crate::SimSpec;
use crate::rng::Rng;
use crate::scenario::{
    FailsOn, FaultWindow, InjectedFault, JournalFault, OracleFault, ProcessFault, ProcessSpec, node_name,
};

pub(super) fn fault(rng: &mut Rng, spec: &SimSpec) -> Result<InjectedFault, IdError> {
    let unit = unit(rng, spec)?;
    let when = window(rng);
    let phase = *rng.pick(&[Phase::Prepare, Phase::Enter, Phase::Change, Phase::Leave]);
    let on = if rng.percent(80) {
        FailsOn::New
    } else {
        FailsOn::Any
    };
    // What storage alone has, others have not.
    let drawn = match (&spec.guests, &spec.balanced) {
        (Some(guests), _) if rng.percent(30) && !guests.guests.is_empty() => {
            return Ok(guests::fault(rng, guests, when));
        }
        (_, Some(_)) if rng.percent(20) => return Ok(balanced::fault(rng, unit)),
        (None, None) => rng.below(18),
        (Some(_), _) | (_, Some(_)) => *rng.pick(&[0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 15, 16, 17]),
    };
    Ok(match drawn {
        0 => InjectedFault::Slow {
            unit,
            seconds: rng.between(10, 200) as u32,
        },
        1 => InjectedFault::NeverReturns { unit, on },
        2 => InjectedFault::Crashes {
            unit,
            after: rng.between(1, 30) as u32,
            again: *rng.pick(&[0, 7, 60]),
            on,
        },
        3 => InjectedFault::PerformFails {
            unit,
            phase: Some(phase),
            times: rng.below(4) as u32,
        },
        4 => InjectedFault::CallLate {
            unit,
            phase,
            seconds: rng.between(1, 60) as u32,
        },
        5 => InjectedFault::AnswerLost { unit, phase },
        6 => InjectedFault::GuardFails {
            times: rng.between(1, 3) as u32,
        },
        7 => InjectedFault::StalePgs {
            hidden: rng.percent(60),
            oracle_too: rng.percent(50),
            when,
        },
        8 => InjectedFault::Oracle {
            says: *rng.pick(&[
                OracleFault::Gone,
                OracleFault::Error,
                OracleFault::Unknown,
                OracleFault::Yes,
            ]),
            when,
        },
        9 => InjectedFault::OracleNo { unit, when },
        10 => InjectedFault::Blind { when },
        11 if spec.sites > 0 && rng.percent(50) => InjectedFault::Outage {
            what: format!("site-{}", rng.below(u64::from(spec.sites))),
            when,
        },
        11 => InjectedFault::Outage {
            what: format!("rack-{}", rng.below(u64::from(spec.racks))),
            when,
        },
        12 => InjectedFault::Outage {
            what: host(rng, spec),
            when,
        },
        13 | 14 => InjectedFault::Warning { when },
        15 => InjectedFault::Doubled {
            unit,
            phase,
            seconds: rng.between(1, 60) as u32,
        },
        16 => InjectedFault::HostOff {
            host: host(rng, spec),
            when,
        },
        _ => InjectedFault::Outage {
            what: unit.to_string(),
            when,
        },
    })
}

/// When something goes wrong: as an OSD is stopped, or at a time.
fn window(rng: &mut Rng) -> FaultWindow {
    if rng.percent(60) {
        FaultWindow {
            osd_stop: rng.between(1, 12) as u32,
            at: rng.below(15) as u32,
            lasts: lasts(rng),
        }
    } else {
        FaultWindow {
            osd_stop: 0,
            at: rng.below(400) as u32,
            lasts: lasts(rng),
        }
    }
}

/// One of the hosts.
fn host(rng: &mut Rng, spec: &SimSpec) -> String {
    let (rack, host) = (
        rng.below(u64::from(spec.racks)),
        rng.below(u64::from(spec.hosts_per_rack)),
    );
    format!("host-{rack}-{host}")
}

/// A unit on which something goes wrong: of storage mostly an OSD.
fn unit(rng: &mut Rng, spec: &SimSpec) -> Result<UnitId, IdError> {
    if let Some(guests) = &spec.guests {
        return node_name(rng.below(guests.memory.len() as u64) as u32);
    }
    if let Some(services) = &spec.balanced {
        let (kind, count) = if rng.percent(60) {
            ("conductor", services.conductors.len() as u64)
        } else {
            ("api", u64::from(services.apis))
        };
        let letter = char::from_u32(u32::from('a') + rng.below(count) as u32).unwrap_or('a');
        return UnitId::new(format!("{kind}.{letter}"));
    }
    if rng.percent(85) {
        UnitId::new(format!("osd.{}", rng.below(u64::from(spec.osds()))))
    } else {
        UnitId::new("mon.a")
    }
}

pub(super) fn conductor(rng: &mut Rng) -> ProcessSpec {
    let ill = |rng: &mut Rng| match rng.below(5) {
        0 => ProcessFault::Killed {
            at: rng.below(600) as u32,
            again: rng.between(1, 90) as u32,
        },
        1 => ProcessFault::Paused {
            call: rng.between(1, 120) as u32,
            lasts: rng.between(1, 120) as u32,
        },
        2 => ProcessFault::Frozen {
            call: rng.between(1, 120) as u32,
            lasts: rng.between(1, 120) as u32,
        },
        3 => ProcessFault::ClockSet {
            at: rng.below(600) as u32,
            by: *rng.pick(&[-3_600, -100, -15, 15, 100, 3_600]),
        },
        _ => ProcessFault::CutOff {
            at: rng.below(600) as u32,
            lasts: rng.between(1, 120) as u32,
        },
    };
    ProcessSpec {
        at: rng.below(60) as u32,
        ahead: *rng.pick(&[0, 0, 3, -3, 40, -40, 1_500, -1_500]),
        ills: observable_faults((0..rng.below(4)).map(|_| ill(rng)).collect()),
    }
}

/// Of a machine that is frozen only the time of day tells for how long: nothing on it could tell if that was set back meanwhile.
fn observable_faults(mut ills: Vec<ProcessFault>) -> Vec<ProcessFault> {
    if ills.iter().any(|ill| matches!(ill, ProcessFault::Frozen { .. })) {
        for ill in &mut ills {
            if let ProcessFault::ClockSet { by, .. } = ill {
                *by = by.abs();
            }
        }
    }
    ills
}

fn lasts(rng: &mut Rng) -> u32 {
    *rng.pick(&[0, 20, 100, 400])
}

pub(super) fn journal(rng: &mut Rng) -> JournalFault {
    match rng.below(4) {
        0 => JournalFault::Full {
            at: rng.below(600) as u32,
            lasts: rng.between(1, 300) as u32,
        },
        1 => JournalFault::Torn {
            append: rng.between(1, 150) as u32,
        },
        2 => JournalFault::Unsure {
            append: rng.between(1, 150) as u32,
        },
        _ => JournalFault::PutBack {
            at: rng.between(30, 600) as u32,
            lost: *rng.pick(&[2, 20, 120, 600]),
        },
    }
}
