//! A process that is killed at any point, and another that carries on, come to the same end.
#![allow(
    missing_docs,
    unreachable_pub,
    let_underscore_drop,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code"
)]

use crate::playing;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use stagger_conformance::fuse::{Fuse, FusedBackend, FusedStore};
use stagger_conformance::listener::JournalPrinter;
use stagger_core::model::RunId;
use stagger_engine::clock::Clock;
use stagger_engine::cluster::{Backend, Executor as _, LockError};
use stagger_engine::driver::DriverParts;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::StoreError;
use stagger_engine::supervisor::{self, Identity, SuperviseError};
use stagger_sim::simulate::ScenarioDriver;
use stagger_sim::{ClockSpeed, Scenario, Sim, SimEnding, target};

const SMALL: &str = r#"
[cluster]
name = "small"
release = "18.2.7"
racks = 2
hosts_per_rack = 2
osds_per_host = 2
mons = 3
mgrs = 2
[cluster.seconds]
poll = 10
blind = 3
[[cluster.pool]]
name = "rbd"
size = 3
min_size = 2
domain = "host"
pgs = 8
[target]
to = "20.2.1"
[policy]
doors = { auto-after = 1 }
max_in_parallel = 2
gate_hold = 2
gate_timeout = 40
canary_soak = 2
search = { steps = 100 }
"#;

const ONE_FAILS: &str = r#"
[[fault]]
fault = "never-returns"
unit = "osd.5"
"#;

fn scenario(continues: bool, fails: bool) -> Scenario {
    let mut text = SMALL.to_owned();
    if continues {
        text.push_str("on_failure = \"continue\"\n");
    }
    if fails {
        text.push_str(ONE_FAILS);
    }
    Scenario::parse(&text).unwrap()
}

/// All that counts of an end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End {
    ending: (&'static str, Option<String>),
    left: Vec<(String, String)>,
    units: BTreeMap<String, (String, bool)>,
    visits: BTreeMap<String, u32>,
    waves: u32,
    guards: Vec<String>,
}

struct Lives<'a> {
    scenario: &'a Scenario,
    sim: Sim,
    journal: &'a Path,
    /// At which point each process dies; the last one lives.
    fuses: Vec<u64>,
    raises_fences: bool,
    /// A call of a process that is dead lands when its successor has taken over.
    stray_lands: bool,
    points: u64,
    strays: u32,
}

enum Life {
    Ended(SimEnding, u32),
    Killed,
}

impl<'a> Lives<'a> {
    fn new(scenario: &'a Scenario, journal: &'a Path, fuses: &[u64]) -> Self {
        Self {
            sim: Sim::new(scenario.cluster.clone(), scenario.faults.clone()).unwrap(),
            scenario,
            journal,
            fuses: fuses.to_vec(),
            raises_fences: true,
            stray_lands: false,
            points: 0,
            strays: 0,
        }
    }

    async fn live(&mut self) -> (SimEnding, u32) {
        let mut number = 0;
        let mut stray = None;
        let began = self.sim.clock().now();
        loop {
            let point = self.fuses.get(number).copied().unwrap_or(0);
            number += 1;
            assert!(number < 20, "it never comes to an end");
            let fuse = Fuse::at(point);
            let life = self.one(number as u32, &fuse, began, stray.take()).await;
            self.points = fuse.passed();
            if let Life::Ended(ending, waves) = life {
                return (ending, waves);
            }
            stray = fuse.stray.lock().unwrap().take().filter(|_| self.stray_lands);
        }
    }

    async fn one(
        &mut self,
        number: u32,
        fuse: &Arc<Fuse>,
        began: jiff::Timestamp,
        stray: Option<(stagger_engine::cluster::Call, stagger_core::run::Action)>,
    ) -> Life {
        let clock = self.sim.clock();
        let backend: Arc<dyn Backend> = Arc::new(FusedBackend {
            inner: self.sim.clone(),
            fuse: Arc::clone(fuse),
            raises_fences: self.raises_fences,
        });
        let who = Identity {
            incarnation: format!("life-{number}"),
            host: "localhost".to_owned(),
            process: number,
        };
        let run = RunId::new("run-1").unwrap();
        loop {
            let store = FusedStore {
                store: SqliteStore::open(self.journal).unwrap(),
                fuse: Arc::clone(fuse),
            };
            let begun = !matches!(
                stagger_engine::store::JournalStore::journal(&store, &run).await,
                Err(StoreError::NoRun(_))
            );
            let parts = DriverParts {
                backend: Arc::clone(&backend),
                store: Box::new(store),
                clock: Arc::new(clock.clone()),
                artifacts: playing::artifacts(),
                listener: Box::new(JournalPrinter),
            };
            let started = if begun {
                supervisor::resume(parts, &who, &run).await
            } else {
                let Scenario {
                    cluster,
                    target: want,
                    policy,
                    ..
                } = self.scenario;
                let target = target(cluster, want, policy).unwrap();
                supervisor::start(
                    parts,
                    &who,
                    run.clone(),
                    target,
                    policy.clone(),
                    serde_json::Value::Null,
                    stagger_core::model::Topology::default(),
                )
                .await
            };
            let (mut driver, lease) = match started {
                Ok(both) => both,
                Err(_) if fuse.is_dead() => return Life::Killed,
                Err(SuperviseError::Lock(LockError::Held(_))) => {
                    let later = clock.now().checked_add(SignedDuration::from_secs(5)).unwrap();
                    clock.sleep_until(later).await;
                    continue;
                }
                Err(SuperviseError::Over(_)) => {
                    let replayed = supervisor::replay(&SqliteStore::open(self.journal).unwrap(), &run)
                        .await
                        .unwrap();
                    return Life::Ended(
                        SimEnding::Over(replayed.ended().unwrap().clone()),
                        replayed.waves_passed(),
                    );
                }
                Err(error) => panic!("{error:?}"),
            };
            if let Some((call, action)) = stray {
                self.strays += 1;
                let refused = self.sim.perform(&call, &action).await.is_err();
                assert!(
                    refused || !self.raises_fences,
                    "{action:?} of {call:?} took effect"
                );
            }
            let scenario_driver = ScenarioDriver::new(self.scenario, began);
            return match scenario_driver.drive(&mut driver, &self.sim).await {
                Ok(_) if fuse.is_dead() => Life::Killed,
                Ok(ending) => {
                    let waves = driver.run().waves_passed();
                    match lease.release(&backend).await {
                        Ok(()) => Life::Ended(ending, waves),
                        Err(_) => Life::Killed,
                    }
                }
                Err(error) => {
                    assert!(fuse.is_dead(), "{error:?}");
                    Life::Killed
                }
            };
        }
    }

    fn end(&self, ending: &SimEnding, waves: u32) -> End {
        let world = self.sim.world();
        let units = world.units();
        End {
            ending: playing::word(ending),
            left: playing::left(ending),
            units: units
                .map(|(id, runs, up)| (id.to_string(), (runs.to_string(), up)))
                .collect(),
            visits: world
                .truth()
                .visits
                .iter()
                .map(|(id, n)| (id.to_string(), *n))
                .collect(),
            waves,
            guards: world.guards().map(ToString::to_string).collect(),
        }
    }
}

/// A folder for journals: in memory, where the machine has such a place, since fsync is not the point.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn lives<'a>(scenario: &'a Scenario, journal: &'a Path, fuses: &[u64]) -> (End, Lives<'a>) {
    let _ = std::fs::remove_dir_all(journal.parent().unwrap());
    let mut lives = Lives::new(scenario, journal, fuses);
    let (ending, waves) = in_its_world(&mut lives);
    let end = lives.end(&ending, waves);
    (end, lives)
}

fn in_its_world(lives: &mut Lives) -> (SimEnding, u32) {
    let sim = lives.sim.clone();
    sim.carry_out(ClockSpeed::Fast, lives.live()).unwrap()
}

fn every_point(scenario: &Scenario, expected: &str) {
    let folder = folder();
    let journal = folder.path().join("j").join("journal.db");
    let (undisturbed, one_life) = lives(scenario, &journal, &[]);
    assert_eq!(undisturbed.ending.0, expected);
    assert!(undisturbed.guards.is_empty());
    println!("{} points, {undisturbed:?}", one_life.points);
    for point in 1..=one_life.points {
        let (end, lives) = lives(scenario, &journal, &[point]);
        assert_eq!(end, undisturbed, "killed at point {point}");
        assert_eq!(
            lives.sim.world().truth().violations,
            [""; 0],
            "killed at point {point}"
        );
    }
    // Twice: again soon after its successor has taken over, and later.
    for first in (1..=one_life.points).step_by(37) {
        for second in (1..=24).step_by(3).chain([70, 150]) {
            let (end, lives) = lives(scenario, &journal, &[first, second]);
            assert_eq!(end, undisturbed, "killed at points {first} and {second}");
            assert_eq!(lives.sim.world().truth().violations, [""; 0]);
        }
    }
}

#[test]
fn killed_anywhere_it_comes_to_the_same_end() {
    every_point(&scenario(false, false), "done");
}

#[test]
fn killed_anywhere_while_one_unit_goes_back_it_comes_to_the_same_end() {
    every_point(&scenario(true, true), "held");
}

#[test]
fn killed_anywhere_while_a_wave_goes_back_it_comes_to_the_same_end() {
    every_point(&scenario(false, true), "rolled-back");
}

/// Every call that a paused holder still sends after its successor has taken over is refused; and
/// without the raised fence one would not be, so that this test can fail.
#[test]
fn a_late_call_of_a_holder_before_is_refused() {
    let folder = folder();
    let journal = folder.path().join("j").join("journal.db");
    let scenario = scenario(true, true);
    let (_, one_life) = lives(&scenario, &journal, &[]);
    let (mut strays, mut landed) = (0, 0);
    for point in (1..=one_life.points).step_by(2) {
        for raises_fences in [true, false] {
            let _ = std::fs::remove_dir_all(journal.parent().unwrap());
            let mut lives = Lives::new(&scenario, &journal, &[point]);
            lives.stray_lands = true;
            lives.raises_fences = raises_fences;
            in_its_world(&mut lives);
            strays += lives.strays;
            if raises_fences {
                assert_eq!(
                    lives.sim.world().truth().violations,
                    [""; 0],
                    "killed at point {point}"
                );
            } else if lives.strays > 0 && lives.sim.world().truth().refused == 0 {
                landed += 1;
            }
        }
    }
    assert!(
        strays > 40 && landed > 5,
        "{strays} calls came late, {landed} landed without the fence"
    );
}
