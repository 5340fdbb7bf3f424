//! Upgrades in which nothing goes wrong.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stagger_e2e::case::under_load;
use stagger_e2e::ceph::{Daemon, Kind};
use stagger_e2e::command::say;
use stagger_e2e::oracle;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Journal, Machine, Setup, says};
use stagger_e2e::verify;

use super::LIMIT;

const SETS: usize = 400;

/// In seconds.
const LATE: u32 = 90;

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn upgrade_18_to_20_under_load() -> Result<()> {
    let name = "upgrade_18_to_20_under_load";
    let releases = [Release::Reef, Release::Tentacle];
    under_load(name, Release::Reef, &releases, |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &Setup::default())?;
        let tally = oracle::beside_the_real_one(cluster, 3, SETS)?;
        tally.print("18");
        ensure!(tally.same == SETS, "they differ on 18: {:?}", tally.others);
        phases.lap("both oracles on 18");

        let to = verify::version(cluster, Release::Tentacle)?;
        let run = machine.start(&["run", "upgrade", "--to", &to])?;
        let ended = run
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        say(&ended.said);
        phases.lap("18 to 20");
        verify::is_on(cluster, &machine, Release::Tentacle)?;
        verify::nothing_is_left(cluster)?;
        verify::visited_each(cluster, 1)?;
        let journal = machine.journal()?;
        journal.both_judges_agreed()?;
        for (stage, seconds) in journal.stage_seconds() {
            say(format!("   stage {stage}: {seconds:.1} s"));
        }
        verify::is_healthy(cluster)?;

        // 20.2.4 looks only at groups whose last acting OSD is asked about.
        let tally = oracle::beside_the_real_one(cluster, 4, SETS)?;
        tally.print("20");
        ensure!(
            tally.others.is_empty(),
            "disagreements that the map does not prove: {:?}",
            tally.others
        );
        phases.lap("both oracles on 20");
        Ok(())
    })
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn mgr_restart_makes_pgs_unknown() -> Result<()> {
    let name = "mgr_restart_makes_pgs_unknown";
    let releases = [Release::Pacific, Release::Reef];
    under_load(name, Release::Pacific, &releases, |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &Setup::default())?;
        let to = verify::version(cluster, Release::Reef)?;
        let mut run = machine.start(&["run", "upgrade", "--to", &to])?;
        for _ in 0..2 {
            run.until("an OSD wave", LIMIT, |line| says(line, "wave", "osd:"))?;
        }
        // Both, so that no standby takes over what the active one knew.
        for mgr in ["a", "b"] {
            cluster.daemonctl(&["stop", "mgr", mgr])?;
        }
        let waves = machine.journal()?.waves().len();
        // Longer than a wave takes: nothing begins while nobody knows how the groups are.
        std::thread::sleep(Duration::from_secs(25));
        let blind = machine.journal()?.waves().len();
        ensure!(
            blind == waves,
            "{blind} waves after 25 s without a mgr, {waves} before"
        );
        phases.lap("without any mgr");
        for mgr in ["a", "b"] {
            cluster.daemonctl(&["start", "mgr", mgr])?;
        }
        run.end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        phases.lap("to the end");
        verify::is_on(cluster, &machine, Release::Reef)?;
        verify::nothing_is_left(cluster)?;
        machine.journal()?.both_judges_agreed()
    })
}

/// One OSD of the second wave takes a minute and a half to come up.
#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn others_join_beside_an_osd_that_is_long_in_coming_up() -> Result<()> {
    let name = "others_join_beside_an_osd_that_is_long_in_coming_up";
    let releases = [Release::Reef, Release::Tentacle];
    under_load(name, Release::Reef, &releases, |cluster, phases| {
        let setup = Setup {
            growth: false,
            gate_timeout: 300,
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let to = verify::version(cluster, Release::Tentacle)?;
        let waves = machine.planned(&["upgrade", "--to", &to], "osd")?;
        ensure!(
            waves.len() > 2 && waves[1].len() > 1,
            "nobody is left to join: {waves:?}"
        );
        let slow = &waves[1][0];
        let daemon = Daemon {
            kind: Kind::Osd,
            id: slow.trim_start_matches("osd.").to_owned(),
        };
        cluster.set_fault(&daemon, Some(&format!("20 start-after {LATE}")))?;
        phases.lap("planned");
        let run = machine.start(&["run", "upgrade", "--to", &to, "--no-barriers"])?;
        run.end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(60))?;
        phases.lap("18 to 20");
        let journal = machine.journal()?;
        let began = journal
            .settled("change", slow)
            .with_context(|| format!("{slow} was never changed"))?;
        let beside: Vec<String> = journal
            .of("wave-joined")
            .flat_map(Journal::joined)
            .filter(|unit| {
                journal
                    .settled("change", unit)
                    .is_some_and(|at| at < began + f64::from(LATE))
            })
            .collect();
        say(format!("   beside {slow}: {}", beside.join(" ")));
        ensure!(!beside.is_empty(), "nobody has joined beside {slow}");
        verify::is_on(cluster, &machine, Release::Tentacle)?;
        verify::nothing_is_left(cluster)?;
        verify::visited_each(cluster, 1)?;
        journal.both_judges_agreed()?;
        verify::is_healthy(cluster)
    })
}
