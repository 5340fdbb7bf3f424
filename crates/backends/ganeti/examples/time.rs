//! How long a cluster in Ganeti's text format takes: `cargo run --release -p stagger-ganeti --example time -- FILE
//! [exclude|capacity] [STEPS]`.
#![expect(clippy::print_stdout, reason = "it is for looking at")]

use std::collections::BTreeMap;
use std::time::Instant;

use jiff::Timestamp;
use stagger_core::check::check;
use stagger_core::model::{EvacuationPolicy, Growth, Limit, LocalGuests, Policy, Search, Standbys};
use stagger_core::plan::{PlanningInput, plan};
use stagger_ganeti::goal::GanetiRebootGoal;
use stagger_ganeti::loaders::text;
use stagger_ganeti::target::reboot;
use stagger_ganeti::translate::{View, snapshot};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let file = words.next().ok_or("a file is wanted")?;
    let standbys = match words.next().as_deref() {
        Some("exclude") => Standbys::Exclude,
        _ => Standbys::Capacity,
    };
    let steps = words.next().map_or(Ok(20_000), |steps| steps.parse())?;
    let begun = Instant::now();
    let cluster = text::read(&std::fs::read_to_string(file)?)?;
    let loaded = begun.elapsed();
    let view = View {
        name: "lab".parse()?,
        at: Timestamp::UNIX_EPOCH,
        durations: BTreeMap::new(),
        ignore_ipolicy: false,
    };
    let wish = GanetiRebootGoal {
        moving: EvacuationPolicy {
            standbys,
            local: LocalGuests::Relocate,
            ..EvacuationPolicy::default()
        },
        ..GanetiRebootGoal::default()
    };
    let (snapshot, target) = (snapshot(&cluster, &view)?, reboot(&cluster, &wish)?);
    let seen = begun.elapsed();
    let policy = Policy {
        max_in_parallel: Limit::Percent(100),
        growth: Growth::None,
        search: Search { seed: 1, steps },
        ..Policy::default()
    };
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy: &policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    };
    let made = plan(&ask);
    let planned = begun.elapsed();
    let findings = check(&ask, &made);
    let judged = begun.elapsed();
    println!(
        "{} waves, at least {}; {} units, {} left alone; {} findings",
        made.waves(),
        made.at_least(),
        made.units(),
        made.left_alone.len(),
        findings.len()
    );
    for stage in made.stages() {
        let schedule = stage.schedule.as_ref().map_or(0, |schedule| schedule.seconds);
        println!(
            "{} s in waves, {schedule} s without barriers",
            made.forecast().as_secs()
        );
    }
    println!(
        "load {loaded:.2?}, snapshot {:.2?}, plan {:.2?}, check {:.2?}",
        seen.saturating_sub(loaded),
        planned.saturating_sub(seen),
        judged.saturating_sub(planned)
    );
    Ok(())
}
