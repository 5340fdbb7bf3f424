//! Each stop is judged by the truth at that instant, and by what was said of it before.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::UnitId;
use stagger_core::plan::Move;
use stagger_core::run::Command;

use super::SimulatedCluster;

/// What came of a run by the truth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct GroundTruth {
    /// Stops of serving units by the run.
    pub stops: u32,
    /// Each stop that was not safe and could have been known not to be.
    pub violations: Vec<String>,
    /// Stops made unsafe by a fault that came after both judges had answered.
    pub raced: u32,
    /// Stops made unsafe by lies on which all sources agreed.
    pub undetectable: u32,
    /// Calls that had their effect after their sender had given them up.
    pub late: u32,
    /// Stops made unsafe by those.
    pub late_unsafe: Vec<String>,
    /// What the run kept from serving for longer than it takes to notice.
    pub unsafe_seconds: Vec<String>,
    /// Units that served on the target and were brought back with nothing against it.
    pub undone: Vec<String>,
    /// The journal had lost what was begun, and whoever carried the run on did not hear of it.
    pub untold: Vec<String>,
    /// A person asked to go back.
    pub(crate) asked_back: bool,
    /// One of them has its effect right now.
    pub(crate) landing: bool,
    /// Calls of older holders that were refused.
    pub refused: u32,
    /// How often each unit was stopped by the run.
    pub visits: BTreeMap<UnitId, u32>,
    /// Units that a fault took down since the judges were last asked.
    since_judged: BTreeSet<UnitId>,
    /// When that was, in milliseconds.
    judged_at: u64,
    /// The same since the last observation: what the oracle does not look at, our own judge alone has judged.
    since_observed: BTreeSet<UnitId>,
    /// When that was, in milliseconds.
    observed_at: u64,
    /// What the last observation said.
    said: ReportedState,
    /// A lie that looked as the truth does was part of it.
    said_lies: bool,
    /// There was one.
    was_observed: bool,
    /// When each unit was last said to be down, in milliseconds.
    said_down: BTreeMap<UnitId, u64>,
    /// What the oracle said last, and of what set.
    oracle: Option<(BTreeSet<UnitId>, bool)>,
    /// When that was, in milliseconds.
    oracle_at: u64,
    /// It was deceived then, or lied.
    oracle_lies: bool,
    /// When it last said no of each unit and did not say yes since, in milliseconds.
    refused_at: BTreeMap<UnitId, u64>,
}

/// What an observation said, for comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReportedState {
    /// Units said to serve.
    pub(crate) serving: BTreeSet<UnitId>,
    /// Of each placement group, which shards are said to lack objects.
    pub(crate) missing: Vec<Vec<bool>>,
    /// It was said that those states are to be trusted.
    pub(crate) known: bool,
}

impl GroundTruth {
    /// A fault took a unit down.
    pub(crate) fn fault_hit(&mut self, unit: &UnitId) {
        self.since_judged.insert(unit.clone());
        self.since_observed.insert(unit.clone());
    }

    /// An observation was answered with this; `lies`: a lie that looked as the truth does was part of it.
    pub(crate) fn observed(&mut self, said: ReportedState, lies: bool, now: u64) {
        if self.was_observed {
            for back in said.serving.difference(&self.said.serving) {
                self.said_down.insert(back.clone(), self.observed_at);
            }
        }
        self.was_observed = true;
        self.said = said;
        self.observed_again(lies, now);
    }

    /// An observation was answered as the last one was.
    pub(crate) fn observed_again(&mut self, lies: bool, now: u64) {
        self.said_lies = lies;
        self.since_observed.clear();
        self.observed_at = now;
        self.judged(now);
    }

    fn judged(&mut self, now: u64) {
        self.since_judged.clear();
        self.judged_at = now;
    }

    /// There is no oracle.
    pub(crate) fn no_oracle(&mut self) {
        self.oracle = None;
        self.oracle_lies = false;
    }

    /// The oracle was asked, and said so; `honest`: by the truth.
    pub(crate) fn record_oracle_answer(&mut self, set: &[UnitId], yes: bool, honest: bool, now: u64) {
        if honest {
            self.judged(now);
        }
        for id in set {
            if yes {
                self.refused_at.remove(id);
            } else {
                self.refused_at.insert(id.clone(), now);
            }
        }
        self.oracle = Some((set.iter().cloned().collect(), yes));
        self.oracle_lies = !honest;
        self.oracle_at = now;
    }
}

/// Why a stop is not safe.
struct UnsafeReason {
    what: String,
    /// Units whose absence makes it so.
    absent: Vec<UnitId>,
    /// By what was said alone it would be safe.
    said_fine: bool,
    /// The oracle does not look at that.
    unasked: bool,
}

impl SimulatedCluster {
    /// The oracle said no of a set with that unit when it was last asked about it, and its word still counts.
    pub(crate) fn was_just_refused(&self, unit: &str) -> bool {
        let mut refused = self.truth.refused_at.iter();
        refused.any(|(id, at)| id.as_str() == unit && self.still_counts(*at))
    }

    /// Judges the stop of a unit that is up, right before it falls.
    pub(crate) fn judge_stop(&mut self, unit: usize, what: &str) {
        self.judge(unit, what, |world| match world.daemons[unit].osd {
            Some(osd) => world.bad_osd(osd),
            None => world.bad_daemon(unit),
        });
    }

    /// Judges that a unit is drained, right before it is and after its guests have gone.
    pub(crate) fn judge_drain(&mut self, unit: usize, moves: &[Move]) {
        self.judge(unit, "drain", |world| {
            let full = world.over_filled(moves);
            match full.first() {
                None => world.bad_daemon(unit),
                Some(first) => Some(UnsafeReason {
                    what: format!("{} has more guests than memory", world.daemons[*first].id),
                    absent: full.iter().map(|node| world.daemons[*node].id.clone()).collect(),
                    said_fine: false,
                    unasked: true,
                }),
            }
        });
    }

    /// Judges the restart of a unit by whom it carries: no guest goes down with its node, whatever anybody has said.
    pub(crate) fn judge_reboot(&mut self, unit: usize) {
        let guests = self.running_on(unit);
        if !self.daemons[unit].up || guests.is_empty() {
            return;
        }
        let at = self.elapsed() / 1000;
        let (id, guests) = (&self.daemons[unit].id, guests.join(" "));
        let text = format!("at {at} s, restart {id}: {guests} run there");
        if self.truth.landing {
            self.truth.late_unsafe.push(text);
        } else {
            self.truth.violations.push(text);
        }
    }

    fn judge(&mut self, unit: usize, what: &str, bad: impl Fn(&Self) -> Option<UnsafeReason>) {
        let id = self.daemons[unit].id.clone();
        self.truth.stops += 1;
        *self.truth.visits.entry(id.clone()).or_insert(0) += 1;
        self.daemons[unit].ours = true;
        self.daemons[unit].ours_to_give_back = true;
        // Of a copy it is counted what each stop comes to for the placement groups.
        if self.copy.is_some() {
            return;
        }
        let contradicted = self.contradicted(&id);
        let bad = bad(self);
        let at = self.elapsed() / 1000;
        let seen_down = self.was_observed_down(&id);
        // Excused is only what came after both judges had answered, and only as long as their word counts: a call that came late
        // within that is no other than one that came at once.
        let raced = bad.as_ref().is_some_and(|bad| {
            let (since, judged_at) = if bad.unasked {
                (&self.truth.since_observed, self.truth.observed_at)
            } else {
                (&self.truth.since_judged, self.truth.judged_at)
            };
            let passed = self.elapsed().saturating_sub(judged_at);
            let counts = self
                .grace
                .approval
                .is_none_or(|approval| passed <= approval * 1000);
            counts && (seen_down || bad.absent.iter().any(|unit| since.contains(unit)))
        });
        match (bad, contradicted) {
            (Some(_), _) if raced => self.truth.raced += 1,
            (Some(UnsafeReason { what: why, .. }), _) | (None, Some(why)) if self.truth.landing => {
                let text = format!("at {at} s, {what} {id}, late: {why}");
                self.truth.late_unsafe.push(text);
            }
            (Some(bad), _) => {
                if bad.said_fine && self.lied_to() && !self.oracle_refused(&id) {
                    self.truth.undetectable += 1;
                } else {
                    let text = format!("at {at} s, {what} {id}: {}", bad.what);
                    self.truth.violations.push(text);
                }
            }
            (None, Some(_)) if seen_down => self.truth.raced += 1,
            (None, Some(why)) => {
                let text = format!("at {at} s, {what} {id} although it was reported otherwise: {why}");
                self.truth.violations.push(text);
            }
            (None, None) => {}
        }
        if self.daemons[unit].osd.is_some() || self.drains() {
            self.osd_stopped_by_run();
        }
    }

    /// A person asks the run for something.
    pub(crate) fn record_command(&mut self, command: &Command) {
        self.watched.touched = true;
        match command {
            Command::Rollback | Command::Abort => self.truth.asked_back = true,
            Command::Confirm { host, .. } => {
                self.said_off.insert(host.to_string());
            }
            Command::Resume => self.said_off.clear(),
            _ => {}
        }
    }

    /// Who is brought back since it does not serve, or did not when it was looked at right before, speaks against the change when
    /// others follow.
    pub(crate) fn record_rollback(&mut self, unit: usize) {
        let daemon = &self.daemons[unit];
        let is_down = !daemon.up || self.recovered_during_rollback(&daemon.id);
        let failed = is_down && (daemon.change_failed || daemon.installed != daemon.first);
        self.daemons[unit].failed |= failed;
    }

    /// Whether it came up while it was being brought back.
    fn recovered_during_rollback(&self, id: &UnitId) -> bool {
        self.was_observed_down(id) && self.still_counts(self.truth.observed_at)
    }

    /// Judges a unit's going back, right before it falls.
    pub(crate) fn judge_going_back(&mut self, unit: usize) {
        let daemon = &self.daemons[unit];
        let served = daemon.up && daemon.runs != daemon.first;
        let is_too_late = self.recovered_during_rollback(&daemon.id);
        if self.copy.is_some()
            || !served
            || self.truth.asked_back
            || is_too_late
            || self.speaks_against_the_change()
        {
            return;
        }
        let at = self.elapsed() / 1000;
        let text = format!(
            "at {at} s {} served on {} and was rolled back",
            daemon.id, daemon.runs
        );
        self.truth.undone.push(text);
    }

    /// It was down when it was looked at. If it came up by itself since, that excuses whoever takes it for down, as long as the
    /// word of a judge counts.
    fn was_observed_down(&self, id: &UnitId) -> bool {
        let said_down = self.truth.said_down.get(id).copied();
        !self.truth.said.serving.contains(id) || said_down.is_some_and(|said| self.still_counts(said))
    }

    /// What was said then counts as an approval does.
    fn still_counts(&self, at: u64) -> bool {
        let age = self.grace.approval.unwrap_or(u64::MAX / 1000) * 1000;
        self.elapsed().saturating_sub(at) <= age
    }

    fn oracle_refused(&self, id: &UnitId) -> bool {
        matches!(&self.truth.oracle, Some((set, false)) if set.contains(id))
    }

    /// One of the two lied when it was asked, and its word still counts.
    fn lied_to(&self) -> bool {
        let truth = &self.truth;
        truth.said_lies && self.still_counts(truth.observed_at)
            || truth.oracle_lies && self.still_counts(truth.oracle_at)
    }

    /// A source that spoke against this stop.
    fn contradicted(&self, id: &UnitId) -> Option<String> {
        if self.oracle_refused(id) {
            return Some("the oracle said no".to_owned());
        }
        let osd = self.daemons[*self.by_id.get(id)?].osd?;
        if !self.truth.said.known && !self.on_osd[osd as usize].is_empty() {
            return Some("the states of placement groups were not known".to_owned());
        }
        // By what was said alone: what is true beside it the other judge has looked at, and `bad` does.
        for (pg, shard) in &self.on_osd[osd as usize] {
            let said = self.truth.said.missing.get(*pg as usize)?;
            let pool = &self.spec.pools[self.pgs[*pg as usize].pool];
            if said[*shard as usize] {
                continue;
            }
            let shards = self.pgs[*pg as usize].shards.iter().enumerate();
            let left = shards
                .filter_map(|(at, other)| other.map(|other| (at, other)))
                .filter(|(at, other)| {
                    let daemon = &self.daemons[*other as usize];
                    *other != osd && !said[*at] && daemon.up && self.truth.said.serving.contains(&daemon.id)
                })
                .count();
            if (left as u32) < pool.min_size {
                return Some(format!(
                    "placement group {} would have {left} of {} that are said to be complete",
                    self.pg_name(*pg as usize),
                    pool.min_size
                ));
            }
        }
        None
    }

    fn bad_osd(&self, osd: u32) -> Option<UnsafeReason> {
        for (pg, shard) in &self.on_osd[osd as usize] {
            let group = &self.pgs[*pg as usize];
            let pool = &self.spec.pools[group.pool];
            let up = group.shards.iter().flatten();
            let up = up.filter(|other| **other != osd && self.daemons[**other as usize].up);
            let up: Vec<u32> = up.copied().collect();
            let mut left = up.len() as u32;
            if !group.missing[*shard as usize] {
                let complete = self.complete(*pg as usize).filter(|other| *other != osd);
                left = left.min(complete.count() as u32);
            }
            let sites = self.sites(up.iter().copied());
            let loses_a_site = sites < pool.sites && self.sites(up.into_iter().chain([osd])) >= pool.sites;
            if left >= pool.min_size && !loses_a_site {
                continue;
            }
            let said = self.truth.said.missing.get(*pg as usize);
            let others = group.shards.iter().enumerate();
            let others = others.filter_map(|(at, other)| other.filter(|o| *o != osd).map(|o| (at, o)));
            let said_left = others
                .clone()
                .filter(|(at, other)| {
                    said.is_some_and(|said| !said[*at])
                        && self
                            .truth
                            .said
                            .serving
                            .contains(&self.daemons[*other as usize].id)
                        && self.daemons[*other as usize].up
                })
                .count() as u32;
            return Some(UnsafeReason {
                what: if loses_a_site {
                    format!(
                        "placement group {} has OSDs in {sites} sites left, and needs {}",
                        self.pg_name(*pg as usize),
                        pool.sites
                    )
                } else {
                    format!(
                        "placement group {} has {left} left, and needs {}",
                        self.pg_name(*pg as usize),
                        pool.min_size
                    )
                },
                // One that fell and is up again still lacks what was written meanwhile.
                absent: others
                    .filter(|(at, other)| !self.daemons[*other as usize].up || group.missing[*at])
                    .map(|(_, other)| self.daemons[other as usize].id.clone())
                    .collect(),
                // What is said to be incomplete is said to be missed by nobody.
                // Nobody is told a lie about where an OSD stands.
                said_fine: !loses_a_site
                    && (said_left >= pool.min_size || said.is_some_and(|said| said[*shard as usize])),
                unasked: loses_a_site,
            });
        }
        None
    }

    fn bad_daemon(&self, unit: usize) -> Option<UnsafeReason> {
        let services = self.services();
        let service = services
            .into_iter()
            .find(|service| self.members(*service).any(|at| at == unit))?;
        let others = || self.members(service).filter(|at| *at != unit);
        let left = others().filter(|at| self.daemons[*at].serves()).count() as u32;
        let (kind, need) = (service.kind, service.need);
        (left < need).then(|| UnsafeReason {
            what: format!("{left} of {kind} are left, and {need} are needed"),
            absent: others()
                .filter(|at| !self.daemons[*at].serves())
                .map(|at| self.daemons[at].id.clone())
                .collect(),
            said_fine: false,
            unasked: false,
        })
    }

    pub(crate) fn pg_name(&self, pg: usize) -> String {
        format!(
            "{}.{:x}",
            self.pool_number(self.pgs[pg].pool),
            self.pgs[pg].number
        )
    }
}
