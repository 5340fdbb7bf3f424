//! The run protocol, model-checked around the real `stagger_core::run::Run`: every order in which
//! conductors, the lock, the journal, calls and the cluster can act, within bounds, and every fault.
//!
//! Two tests. With all rails nothing goes wrong, and from everywhere the end can be reached. Without any
//! one of them something does: the counterexample is kept in `scenarios/model/` and replayed. See
//! `docs/decisions/0003-run-protocol-is-model-checked.md`.

#[cfg(test)]
mod model {
    pub(crate) mod book;
    pub(crate) mod conductor;
    pub(crate) mod laws;
    pub(crate) mod rails;
    pub(crate) mod scenario;
    pub(crate) mod search;
    pub(crate) mod system;
    pub(crate) mod tell;
    pub(crate) mod world;
}

use std::collections::BTreeSet;

use model::laws::Law;
use model::rails::{Safeguard, Setup, Visits};
use model::scenario::{self, Scenario};
use model::search::search;

/// All that can be reached with these numbers of conductors and takeovers keeps the laws.
#[cfg(test)]
fn holds(setup: &Setup) {
    let found = search(setup);
    println!(
        "{setup:?}: {} states, {} steps, {} journals, {:.1} s",
        found.states,
        found.steps,
        found.journals,
        found.took.as_secs_f64()
    );
    if let Some((law, way)) = found.broken {
        panic!("{setup:?} breaks {law:?}:\n  {}", way.join("\n  "));
    }
    assert!(
        found.ends_after_takeover,
        "{setup:?}: no run ends after a takeover"
    );
}

#[test]
fn with_all_rails_every_law_holds() {
    for visits in [Visits::Fenced, Visits::Conditional, Visits::Bounded] {
        holds(&Setup::new(visits, false, 2, 2));
    }
    holds(&Setup::new(Visits::Fenced, true, 2, 2));
    for visits in [Visits::Fenced, Visits::Conditional, Visits::Bounded] {
        holds(&Setup::new(visits, false, 2, 2).with_a_stranger());
    }
    holds(&Setup::new(Visits::Bounded, false, 2, 2).with_time());
}

#[test]
#[ignore = "millions of states, some minutes; part of the long tests"]
fn with_all_rails_every_law_holds_for_three_conductors_and_three_holders() {
    for visits in [Visits::Fenced, Visits::Conditional, Visits::Bounded] {
        holds(&Setup::new(visits, false, 3, 3));
    }
    holds(&Setup::new(Visits::Bounded, true, 3, 3));
    holds(&Setup::new(Visits::Fenced, true, 2, 3));
    for visits in [Visits::Fenced, Visits::Conditional, Visits::Bounded] {
        holds(&Setup::new(visits, false, 3, 3).with_a_stranger());
    }
    for visits in [Visits::Fenced, Visits::Conditional] {
        holds(&Setup::new(visits, false, 2, 2).with_time());
    }
}

/// A rail, or two that stand in for each other, and what goes wrong without.
struct Case {
    name: &'static str,
    visits: Visits,
    guard: bool,
    without: &'static [Safeguard],
    breaks: Law,
    says: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "journal",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::JournalToken, Safeguard::JournalPlace],
        // Two units go down for it no more: what it writes cannot follow, and whoever reads it next is refused.
        breaks: Law::JournalMakesSense,
        says: "A holder that was overtaken writes on, as if nobody had taken over.",
    },
    Case {
        name: "world-fence",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::WorldFence],
        breaks: Law::OneDownAtMost,
        says: "A late enter of the holder before takes down a unit that the new one has finished with.",
    },
    Case {
        name: "raise-first",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::RaiseFirst],
        breaks: Law::OneDownAtMost,
        says: "The new holder cannot reach the unit and goes on without it; the unit has never met the new token, \
               and the late enter of the holder before takes it down.",
    },
    Case {
        name: "raise-first-conditional",
        visits: Visits::Conditional,
        guard: false,
        without: &[Safeguard::RaiseFirst],
        breaks: Law::OneDownAtMost,
        says: "The new holder leaves the unit as it is, so that its generation stays the same, and the late enter \
               of the holder before still fits.",
    },
    Case {
        name: "wait-out",
        visits: Visits::Bounded,
        guard: false,
        without: &[Safeguard::WaitOut],
        breaks: Law::OneDownAtMost,
        says: "The new holder does not wait until the call of the one before has died; it lands afterwards.",
    },
    Case {
        name: "wait-out-of-a-guard",
        visits: Visits::Fenced,
        guard: true,
        without: &[Safeguard::WaitOut],
        breaks: Law::GuardGivenBack,
        says: "A guard is given back, and then a late call of the holder before takes it once more.",
    },
    Case {
        name: "sender-stops",
        visits: Visits::Bounded,
        guard: false,
        without: &[Safeguard::SenderStops],
        breaks: Law::OneDownAtMost,
        says: "A holder is paused between announcing a call and sending it, and sends it when its lock is long \
               another's: there was nothing to wait out.",
    },
    Case {
        name: "sender-stops-conditional",
        visits: Visits::Conditional,
        guard: false,
        without: &[Safeguard::SenderStops],
        breaks: Law::OneDownAtMost,
        says: "A holder that was paused reads the newest generation when it wakes up, so that its late call fits.",
    },
    Case {
        name: "generation",
        visits: Visits::Conditional,
        guard: false,
        without: &[Safeguard::Generation],
        breaks: Law::OneDownAtMost,
        says: "A late call lands on a unit that has changed since it was sent.",
    },
    Case {
        name: "adopt",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::Adopt],
        breaks: Law::EndReachable,
        says: "The new holder does not carry out again what the one before had announced: the run never ends.",
    },
    Case {
        name: "effect-lock",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::EffectLock],
        breaks: Law::OneDownAtMost,
        says: "The answer of a command is lost and it is asked for again; the first call arrives when the visit is over, \
               and runs once more.",
    },
    Case {
        name: "lock",
        visits: Visits::Bounded,
        guard: false,
        without: &[Safeguard::Lock],
        breaks: Law::OneDownAtMost,
        says: "Two believe that they hold the lock; the one that was overtaken still sends a call that has no other \
               rail.",
    },
    Case {
        name: "lost-is-not-failed",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::LostIsNotFailed],
        breaks: Law::OneDownAtMost,
        says: "A call that goes unanswered is taken for one that failed; the unit is left again while the call is \
               still on its way, and the next wave begins.",
    },
    Case {
        name: "lost-is-not-failed-bounded",
        visits: Visits::Bounded,
        guard: false,
        without: &[Safeguard::LostIsNotFailed],
        breaks: Law::OneDownAtMost,
        says: "A call that goes unanswered is taken for one that failed; the wave passes, and then it lands.",
    },
    Case {
        name: "stranger",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::Stranger],
        breaks: Law::OneDownAtMost,
        says: "A run begins on another machine, whose journal knows nothing of the holder before; that one's command \
               is still on its way to another unit.",
    },
    Case {
        name: "stranger-conditional",
        visits: Visits::Conditional,
        guard: false,
        without: &[Safeguard::Stranger],
        breaks: Law::OneDownAtMost,
        says: "A run begins on another machine and touches one unit; the call of the holder before to another one \
               still fits there.",
    },
    Case {
        name: "stranger-bounded",
        visits: Visits::Bounded,
        guard: false,
        without: &[Safeguard::Stranger],
        breaks: Law::OneDownAtMost,
        says: "A run begins on another machine and waits for nothing; the call of the holder before lands afterwards.",
    },
    Case {
        name: "begun-in-time",
        visits: Visits::Fenced,
        guard: false,
        without: &[Safeguard::BegunInTime],
        breaks: Law::NoOldWord,
        says: "A command is on its way to its host for longer than the judges' word lasts; another unit goes down \
               meanwhile.",
    },
    Case {
        name: "sent-in-time",
        visits: Visits::Bounded,
        guard: false,
        without: &[Safeguard::SentInTime],
        breaks: Law::NoOldWord,
        says: "A holder is paused between what the judges said and the call, and makes it when another unit has long \
               gone down.",
    },
];

impl Case {
    fn with(&self) -> Setup {
        let setup = Setup::new(self.visits, self.guard, 2, 2);
        if self.breaks == Law::NoOldWord {
            return setup.with_time();
        }
        if self.without.contains(&Safeguard::Stranger) {
            setup.with_a_stranger()
        } else {
            setup
        }
    }
}

#[test]
fn without_any_rail_something_goes_wrong() {
    for case in CASES {
        let without = case.with().without(case.without).only(case.breaks);
        let found = search(&without);
        let Some((law, steps)) = found.broken else {
            panic!("{}: nothing goes wrong in {} states", case.name, found.states);
        };
        println!(
            "{}: {law:?} after {} steps, {} states",
            case.name,
            steps.len(),
            found.states
        );
        if std::env::var_os("STAGGER_WRITE_SCENARIOS").is_some() {
            let scenario = Scenario {
                says: case.says.to_owned(),
                steps,
                model: without.clone(),
            };
            scenario::write(case.name, &scenario);
        }
        let kept = scenario::read(case.name);
        assert_eq!(
            (kept.says.as_str(), &kept.model),
            (case.says, &without),
            "{}",
            case.name
        );
        let broken = scenario::replay(&kept, &without);
        assert_eq!(
            broken.refused,
            Vec::<String>::new(),
            "{}: a step is not possible",
            case.name
        );
        assert_eq!(broken.broken, Some(case.breaks), "{}", case.name);
        let harmless = scenario::replay(&kept, &case.with());
        assert_eq!(
            harmless.broken, None,
            "{}: it breaks with the rail too",
            case.name
        );
    }
}

#[test]
fn every_rail_has_a_case_and_every_file_is_replayed() {
    let switched_off: BTreeSet<Safeguard> = CASES.iter().flat_map(|case| case.without).copied().collect();
    assert_eq!(switched_off.len(), Safeguard::ALL.len());
    let files = std::fs::read_dir(scenario::folder()).unwrap();
    let files: BTreeSet<String> = files
        .map(|file| {
            file.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let names: BTreeSet<String> = CASES.iter().map(|case| case.name.to_owned()).collect();
    assert_eq!(files, names);
}

/// Rails that are there twice. The journal: who was overtaken is behind, since whoever takes over writes
/// first, so the place alone refuses it; and the token alone does. The lock: where the world checks the
/// token, expiry only permits a takeover, and the fence decides.
#[test]
fn either_rail_of_the_journal_is_enough_and_the_fence_needs_no_lock() {
    for rail in [Safeguard::JournalToken, Safeguard::JournalPlace, Safeguard::Lock] {
        holds(&Setup::new(Visits::Fenced, false, 2, 2).without(&[rail]));
    }
}
