//! Nothing is found in the journals of random worlds, and every fault that is planted in one is.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "test code")]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Doors, Phase};
use stagger_core::plan::PlannedPart;
use stagger_core::run::{Action, Answer, Command, Ending, Entry, Event, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::driver::Listener;
use stagger_engine::sqlite::SqliteStore;
use stagger_report::{Law, verify};
use stagger_sim::{ClockSpeed, Scenario, random, simulate};

/// The journal as it stands: what a store has lost that was put back is not in it.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<Entry>>>);

impl Listener for Written {
    fn event(&mut self, entry: &Entry, _: &Run) {
        let mut entries = self.0.lock().unwrap();
        entries.retain(|before| before.seq < entry.seq);
        entries.push(entry.clone());
    }
}

/// `None`: an append that was said to have failed is in the store all the same, and nobody was told of it.
fn journal(scenario: &Scenario) -> Option<Vec<Entry>> {
    let written = Written::default();
    let store = Box::new(SqliteStore::in_memory().unwrap());
    let artifacts = Artifacts::in_folder("/dev/null/artifacts");
    simulate(
        scenario,
        store,
        artifacts,
        Box::new(written.clone()),
        ClockSpeed::Fast,
    )
    .unwrap();
    let entries = written.0.lock().unwrap().clone();
    let is_whole = (1..).zip(&entries).all(|(seq, entry)| entry.seq == seq);
    is_whole.then_some(entries)
}

fn journals(seeds: Range<u64>) -> impl Iterator<Item = (u64, Vec<Entry>)> {
    seeds.filter_map(|seed| Some((seed, journal(&random::scenario(seed).unwrap())?)))
}

#[test]
fn nothing_is_found_in_the_journals_of_random_worlds() {
    let mut found = Vec::new();
    let mut worlds = 0;
    for (seed, entries) in journals(1..250) {
        worlds += 1;
        let verified = verify(&entries).unwrap();
        let broken: Vec<_> = verified
            .laws
            .iter()
            .flat_map(|verdict| verdict.broken.iter().map(|breach| (verdict.law, breach.clone())))
            .collect();
        found.extend(
            broken
                .into_iter()
                .map(|broken| format!("world {seed}: {broken:?}")),
        );
    }
    assert!(worlds > 200, "{worlds}");
    assert!(
        found.is_empty(),
        "{} places: {:#?}",
        found.len(),
        &found[..found.len().min(20)]
    );
}

#[test]
fn every_law_is_held_against_something() {
    let mut looked_at = [0; Law::ALL.len()];
    for (_, entries) in journals(1000..1060) {
        let verified = verify(&entries).unwrap();
        for (count, verdict) in looked_at.iter_mut().zip(&verified.laws) {
            *count += verdict.looked_at;
        }
    }
    assert!(looked_at.iter().all(|count| *count > 0), "{looked_at:?}");
}

/// Plants a fault in the first journal that has room for it.
fn planted(law: Law, plant: impl Fn(&mut [Entry]) -> Option<()>) {
    let found = journals(2000..2300).find_map(|(seed, mut entries)| {
        assert!(verify(&entries).unwrap().holds(), "world {seed}");
        plant(&mut entries)?;
        Some((seed, verify(&entries).unwrap()))
    });
    let (seed, verified) = found.unwrap_or_else(|| panic!("no journal has room for {law:?}"));
    let verdict = verified.laws.iter().find(|verdict| verdict.law == law).unwrap();
    assert!(
        !verdict.broken.is_empty(),
        "world {seed}: {law:?} is said to hold"
    );
}

/// The first event of that sort, to be replaced by one that says nothing.
fn first(entries: &mut [Entry], is_it: impl Fn(&Event) -> bool) -> Option<&mut Entry> {
    entries.iter_mut().find(|entry| is_it(&entry.event))
}

fn without(entries: &mut [Entry], is_it: impl Fn(&Event) -> bool) -> Option<()> {
    first(entries, is_it)?.event = Event::Released;
    Some(())
}

fn is_stop(event: &Event) -> bool {
    matches!(
        event,
        Event::Intent {
            action: Action::Visit {
                phase: Phase::Enter | Phase::Change,
                ..
            },
            ..
        }
    )
}

#[test]
fn events_out_of_order_are_found() {
    planted(Law::Order, |entries| {
        entries.get_mut(5)?.seq += 1;
        Some(())
    });
    planted(Law::Order, |entries| {
        entries.get_mut(7)?.event = Event::Ended {
            outcome: Ending::Aborted,
        };
        Some(())
    });
    planted(Law::OneWriter, |entries| {
        let taken = entries.iter_mut().filter_map(|entry| match &mut entry.event {
            Event::LeaseTaken { fence, .. } => Some(fence),
            _ => None,
        });
        let [first, .., last] = &mut taken.collect::<Vec<_>>()[..] else {
            return None;
        };
        **last = **first;
        Some(())
    });
}

#[test]
fn effects_that_were_not_announced_or_have_no_outcome_are_found() {
    planted(Law::JournalFirst, |entries| {
        without(entries, |event| matches!(event, Event::Intent { .. }))
    });
    planted(Law::JournalFirst, |entries| {
        let over = entries
            .iter()
            .any(|entry| matches!(entry.event, Event::Ended { .. }));
        over.then_some(())?;
        without(entries, |event| matches!(event, Event::Settled { .. }))
    });
}

#[test]
fn what_no_plan_says_is_found() {
    let is_plan = |event: &Event| matches!(event, Event::Planned { plan } if plan.waves() > 0);
    planted(Law::BindingPlan, |entries| {
        let opened = entries
            .iter()
            .position(|entry| matches!(entry.event, Event::WaveOpened { .. }))?;
        let plans = entries[..opened].iter_mut().filter(|entry| is_plan(&entry.event));
        plans.for_each(|entry| entry.event = Event::Released);
        Some(())
    });
    planted(Law::BindingPlan, |entries| {
        let opened = first(entries, |event| matches!(event, Event::WaveOpened { .. }))?;
        let Event::WaveOpened { units, .. } = &mut opened.event else {
            return None;
        };
        units.pop().map(|_| ())
    });
    planted(Law::Limits, |entries| {
        entries
            .iter()
            .any(|entry| matches!(entry.event, Event::WaveOpened { .. }))
            .then_some(())?;
        let parts = entries.iter_mut().filter_map(|entry| match &mut entry.event {
            Event::Planned { plan } => plan.parts.first_mut(),
            _ => None,
        });
        for part in parts {
            if let PlannedPart::Stage(stage) = part {
                stage.parallel = 0;
            }
        }
        Some(())
    });
    planted(Law::Ending, |entries| {
        let done = Event::Ended {
            outcome: Ending::Done,
        };
        let ends = entries.iter().any(|entry| entry.event == done);
        ends.then_some(())?;
        let early = entries.iter().find(|entry| is_plan(&entry.event))?.event.clone();
        let mut plans = entries.iter_mut().rev();
        plans
            .find(|entry| matches!(entry.event, Event::Planned { .. }))?
            .event = early;
        Some(())
    });
}

#[test]
fn stops_that_were_not_agreed_to_are_found() {
    planted(Law::TwoJudges, |entries| {
        without(entries, |event| matches!(event, Event::Judged { .. }))
    });
    planted(Law::TwoJudges, |entries| {
        let judged = first(entries, |event| {
            matches!(
                event,
                Event::Judged {
                    ours: Answer::Yes,
                    ..
                }
            )
        })?;
        let Event::Judged { ours, .. } = &mut judged.event else {
            return None;
        };
        *ours = Answer::Unknown { why: String::new() };
        Some(())
    });
    planted(Law::TwoJudges, |entries| {
        let judged = first(entries, |event| {
            matches!(event, Event::Judged { facts: Some(_), .. })
        })?;
        let Event::Judged { facts, .. } = &mut judged.event else {
            return None;
        };
        *facts = facts.map(|facts| facts - SignedDuration::from_mins(5));
        Some(())
    });
    planted(Law::TwoJudges, |entries| {
        let Event::Intent { before, .. } = &mut first(entries, is_stop)?.event else {
            return None;
        };
        *before = Some(Timestamp::MAX);
        Some(())
    });
}

#[test]
fn what_goes_on_against_a_person_s_word_is_found() {
    planted(Law::PointsOfNoReturn, |entries| {
        let Event::Started(start) = &mut entries.first_mut()?.event else {
            return None;
        };
        start.policy.doors = Doors::Ask;
        without(entries, |event| {
            matches!(
                event,
                Event::Asked {
                    command: Command::Approve { .. },
                    ..
                }
            )
        })
    });
    for command in [Command::Pause, Command::Abort] {
        planted(Law::AskedToStop, |entries| {
            let opened = entries
                .iter()
                .position(|entry| matches!(entry.event, Event::WaveOpened { .. }))?;
            // The plan before it is another law's.
            entries[opened.checked_sub(1)?].event = Event::Asked {
                command: command.clone(),
                by: "anna@ops1".to_owned(),
            };
            Some(())
        });
    }
}

#[test]
fn what_goes_back_for_nothing_and_what_is_not_given_back_is_found() {
    planted(Law::Evidence, |entries| {
        let back = |event: &Event| {
            matches!(
                event,
                Event::Intent {
                    action: Action::GoBack { .. },
                    ..
                }
            )
        };
        let asked = |event: &Event| {
            matches!(
                event,
                Event::Asked {
                    command: Command::Rollback,
                    ..
                }
            )
        };
        let at = entries.iter().position(|entry| back(&entry.event))?;
        let before = &mut entries[..at];
        before.iter().all(|entry| !asked(&entry.event)).then_some(())?;
        let mut failed = before.iter_mut().rev();
        failed
            .find(|entry| matches!(entry.event, Event::WaveFailed { .. }))?
            .event = Event::Released;
        Some(())
    });
    // It is said that the change never came to those that are to blame, and another goes back.
    planted(Law::Evidence, |entries| {
        let asked = |entry: &Entry| {
            matches!(
                &entry.event,
                Event::Asked {
                    command: Command::Rollback,
                    ..
                }
            )
        };
        let at = entries.iter().position(|entry| match &entry.event {
            Event::WaveFailed { alone, .. } => !alone,
            _ => false,
        })?;
        let Event::WaveFailed { units, .. } = entries[at].event.clone() else {
            return None;
        };
        let rest = entries[at..].iter();
        let mut rest = rest.take_while(|entry| !matches!(entry.event, Event::WaveOpened { .. }));
        rest.any(|entry| {
            matches!(&entry.event, Event::Intent { action: Action::GoBack { unit, .. }, .. } if !units.contains(unit))
        })
        .then_some(())?;
        entries[..at].iter().all(|entry| !asked(entry)).then_some(())?;
        if let Event::WaveFailed { alone, .. } = &mut entries[at].event {
            *alone = true;
        }
        Some(())
    });
    for is_left in [true, false] {
        planted(Law::GivenBack, |entries| {
            entries
                .iter()
                .any(|entry| matches!(entry.event, Event::Ended { .. }))
                .then_some(())?;
            let gives_back = |event: &Event| match event {
                Event::Intent { action, .. } => match action {
                    Action::DropGuard { .. } => !is_left,
                    Action::Visit { phase, .. } => is_left && *phase == Phase::Leave,
                    _ => false,
                },
                _ => false,
            };
            let last = entries.iter().rposition(|entry| gives_back(&entry.event))?;
            let seq = entries[last].seq;
            entries[last].event = Event::Released;
            let settles = |event: &Event| matches!(event, Event::Settled { intent, .. } if *intent == seq);
            without(&mut entries[last..], settles)
        });
    }
}
