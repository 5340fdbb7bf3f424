//! Two processes that want to upgrade the same cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stagger_e2e::case::under_load;
use stagger_e2e::command::say;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Machine, Setup, says};
use stagger_e2e::verify;

use super::LIMIT;

const RELEASES: [Release; 2] = [Release::Pacific, Release::Reef];

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn two_runs_at_once() -> Result<()> {
    let name = "two_runs_at_once";
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        let machines = [
            Machine::new(cluster, "anna", &Setup::default())?,
            Machine::new(cluster, "bert", &Setup::default())?,
        ];
        let to = verify::version(cluster, Release::Reef)?;
        // Two who ask at the same moment may both be refused, never both go on.
        for attempt in 1..=5 {
            let runs = [
                machines[0].start(&["run", "upgrade", "--to", &to])?,
                machines[1].start(&["run", "upgrade", "--to", &to])?,
            ];
            let mut won = Vec::new();
            for (mut run, machine) in runs.into_iter().zip(&machines) {
                let begun = run.until("its lease", Duration::from_mins(1), |line| {
                    says(line, "lease", "token") || line.contains("is locked by")
                })?;
                if says(&begun, "lease", "token") {
                    won.push((run, machine));
                } else {
                    run.end(LIMIT)?
                        .expect(1)?
                        .expect_said(&["locked by run", "process", "since"])?;
                }
            }
            say(format!("attempt {attempt}: {} of 2 went on", won.len()));
            ensure!(won.len() < 2, "both have the lock");
            let Some((run, machine)) = won.pop() else {
                continue;
            };
            phases.lap("one of two was refused");
            run.end(LIMIT)?
                .expect(0)
                .with_context(|| machine.history_tail(40))?;
            phases.lap("the other to the end");
            verify::is_on(cluster, machine, Release::Reef)?;
            verify::nothing_is_left(cluster)?;
            return verify::visited_each(cluster, 1);
        }
        bail!("both were refused five times")
    })
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn stopped_for_a_minute_while_another_takes_over() -> Result<()> {
    let name = "stopped_for_a_minute_while_another_takes_over";
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &Setup::default())?;
        let to = verify::version(cluster, Release::Reef)?;
        let mut first = machine.start(&["run", "upgrade", "--to", &to])?;
        for _ in 0..2 {
            first.until("an OSD wave", LIMIT, |line| says(line, "wave", "osd:"))?;
        }
        machine.stop_in_visit(&first, "osd", LIMIT)?;
        let stopped = Instant::now();
        phases.lap("stopped in mid wave");

        let mut second = machine.start(&["resume"])?;
        second.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
        phases.lap("another took over");
        std::thread::sleep(Duration::from_mins(1).saturating_sub(stopped.elapsed()));
        first.signal("CONT")?;
        let gave_way = first.end(Duration::from_mins(1))?;
        say(format!(
            "the first, woken up, ended with {:?}: {}",
            gave_way.code,
            gave_way.said.lines().last().unwrap_or_default()
        ));
        ensure!(
            matches!(gave_way.code, Some(1 | 3)),
            "the first ended with {:?}",
            gave_way.code
        );
        phases.lap("the first woke up and gave way");
        second
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        phases.lap("the second to the end");
        verify::is_on(cluster, &machine, Release::Reef)?;
        verify::nothing_is_left(cluster)?;
        verify::visited_each(cluster, 1)?;
        machine.journal()?.both_judges_agreed()
    })
}
