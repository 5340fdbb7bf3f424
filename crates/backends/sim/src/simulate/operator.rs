//! Who looks after a run: what they do when it is held.
//!
//! They do what the run tells them to, as a person would: mend what is down, pass doors, accept what may be left, say
//! what they know of a host or of an effect, and in the end abort. They never lie.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stagger_core::model::{Code, HostName, PartName, Reason};
use stagger_core::run::{Command, Run};

use crate::scenario::Operator;
use crate::world::SimulatedCluster;

/// One thing that a person does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperatorAction {
    /// Starts what is down and not in the hands of the run.
    Start,
    /// Lets each pool serve with one less.
    Pools,
    /// Says something to the run.
    Say(Command),
}

/// What a person knows of the run that they look after.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperatorState {
    /// Why it is held, and since when they know.
    held: Option<(String, Timestamp)>,
    /// How often they have acted upon each reason.
    rounds: BTreeMap<String, u32>,
    acts: u32,
    /// Upon what they acted last.
    last: Option<String>,
}

/// After so many acts nothing that a person does helps.
const MOST_ACTS: u32 = 40;

/// What has not helped is tried again after twice the time, so often.
const MOST_DOUBLED: u32 = 6;

/// So often they mend and resume, before they accept or give up.
const PATIENCE: u32 = 3;

impl OperatorState {
    /// It is not held.
    pub(crate) fn clear_hold(&mut self) {
        self.held = None;
    }

    /// Since when it is held for that reason.
    pub(crate) fn held_since(&mut self, reason: &Reason, now: Timestamp) -> Timestamp {
        match &self.held {
            Some((slug, since)) if slug == reason.code.code() => *since,
            Some(_) | None => {
                self.held = Some((reason.code.code().to_owned(), now));
                now
            }
        }
    }

    /// Whether there is anything left that they could do.
    pub(crate) fn has_actions_left(&self) -> bool {
        self.acts < MOST_ACTS
    }

    /// How many times the usual they wait before they act upon that reason once more.
    pub(crate) fn waits(&self, reason: &Reason) -> i32 {
        let rounds = self.rounds.get(reason.code.code()).copied().unwrap_or(0);
        1 << rounds.min(MOST_DOUBLED)
    }

    /// Upon what they acted last.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// How often they acted.
    pub(crate) fn acts(&self) -> u32 {
        self.acts
    }
}

impl Operator {
    /// What they do about a run that is held so.
    pub(crate) fn acts(
        self,
        state: &mut OperatorState,
        run: &Run,
        reason: &Reason,
        world: &SimulatedCluster,
    ) -> Vec<OperatorAction> {
        state.held = None;
        state.acts += 1;
        state.last = Some(reason.code.code().to_owned());
        let round = state.rounds.entry(reason.code.code().to_owned()).or_default();
        *round += 1;
        let settled = self.hasty || world.is_healed();
        match &reason.code {
            Code::Paused => vec![OperatorAction::Say(Command::Resume)],
            Code::OneWayDoor => approvals(reason),
            Code::OutcomeUnknown => known(run, world),
            _ if *round < PATIENCE || !settled => {
                let mut acts = vec![OperatorAction::Start];
                if *round > 1 {
                    acts.push(OperatorAction::Pools);
                }
                acts.push(OperatorAction::Say(Command::Resume));
                acts
            }
            _ => {
                let words = approvals(reason);
                if words.is_empty() {
                    vec![OperatorAction::Say(Command::Abort)]
                } else {
                    words
                }
            }
        }
    }
}

/// The words that the run itself offers.
fn approvals(reason: &Reason) -> Vec<OperatorAction> {
    let offered = reason.detail.split('`').filter_map(|words| {
        let mut words = words.strip_prefix("stagger approve ")?.split(' ');
        let door = PartName::new(words.nth(1)?).ok()?;
        Some(OperatorAction::Say(Command::Approve { door }))
    });
    offered.collect()
}

/// Of each host that is off, that it is.
pub(crate) fn known_outcomes(world: &SimulatedCluster) -> Vec<Command> {
    let off = world.offs().filter_map(|host| {
        Some(Command::Confirm {
            host: HostName::new(host.clone()).ok()?,
            ended: Vec::new(),
        })
    });
    off.collect()
}

/// What can be said of calls of which nobody knows how they ended: that their host is off, or what is there.
fn known(run: &Run, world: &SimulatedCluster) -> Vec<OperatorAction> {
    let off: Vec<OperatorAction> = known_outcomes(world)
        .into_iter()
        .map(OperatorAction::Say)
        .collect();
    if !off.is_empty() {
        return off;
    }
    let name = &run.start().run;
    let open = run.open().filter_map(|(intent, _)| {
        let announced = run.announced_under(intent)?;
        let done = world.knows_how_it_ended(&format!("{name}-{intent}-{announced}"))?;
        Some(OperatorAction::Say(Command::Settle { intent, done }))
    });
    let mut said: Vec<OperatorAction> = open.collect();
    if said.is_empty() {
        said.push(OperatorAction::Say(Command::Resume));
    }
    said
}
