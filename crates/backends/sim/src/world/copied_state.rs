//! What the copy of a real cluster says of itself: the snapshot it was made from, with what has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use stagger_core::model::{
    Budgets, BudgetsBuilder, Condition, ConditionName, Ix, Kind, MoveKind, Part, PartName, Snapshot, Target,
    UnitId, UnitState, Verdict,
};
use stagger_core::plan::USUAL_VISIT;
use stagger_core::run::Answer;

use super::error::ObserveError;
use super::pg_availability::PgAvailabilities;
use super::{SimDaemon, SimulatedCluster};
use crate::copy::ClusterCopy;

/// The ways to move, the names of their durations, and how many seconds a plan reckons with where nothing is known.
const MOVES: [(MoveKind, &str, u32); 3] = [
    (MoveKind::Migrate, "migrate", 11),
    (MoveKind::Relocate, "relocate", 120),
    (MoveKind::ReplaceStandby, "replace-standby", 120),
];

/// Of what a world is a copy, and what has become of it since.
#[derive(Debug, Clone)]
pub(crate) struct CopiedState {
    of: Arc<ClusterCopy>,
    hosts: Vec<String>,
    pub(super) standings: PgAvailabilities,
    /// How many metadata servers held a rank.
    ranks: usize,
    /// The step that each of these conditions comes with.
    steps: BTreeMap<ConditionName, PartName>,
}

impl CopiedState {
    pub(super) fn new(of: Arc<ClusterCopy>) -> Self {
        let hosts = of.hosts().into_iter().map(str::to_owned).collect();
        let active = of
            .snapshot
            .units()
            .iter()
            .filter(|unit| unit.kind.as_str() == "mds" && unit.precedence > 0);
        Self {
            hosts,
            standings: PgAvailabilities::default(),
            ranks: active.count(),
            steps: BTreeMap::new(),
            of,
        }
    }

    /// From start to serving. A visit to an OSD is over when its groups are whole again: see [`recovery`].
    pub(super) fn start(&self, kind: &Kind) -> u32 {
        let visit = visit(&self.of.snapshot, kind);
        if kind.as_str() == "osd" {
            visit - recovery(visit)
        } else {
            visit
        }
    }

    /// Whether units are drained before they are changed.
    pub(crate) fn drains(&self) -> bool {
        self.of.drains
    }

    /// How many seconds a move takes: as long as is known, else as long as a plan reckons with.
    pub(crate) fn move_takes(&self, how: MoveKind) -> u32 {
        let Some((_, name, usual)) = MOVES.iter().find(|(of, ..)| *of == how) else {
            return 0;
        };
        let kind = Kind::new(*name).ok();
        let known = kind.and_then(|kind| self.of.snapshot.duration(&kind));
        known.map_or(*usual, |time| u32::try_from(time.as_secs()).unwrap_or(*usual))
    }

    pub(super) fn pool_number(&self, pool: usize) -> u32 {
        self.of.pools[pool].number
    }

    pub(super) fn host(&self, host: u32) -> String {
        self.hosts.get(host as usize).cloned().unwrap_or_default()
    }
}

/// How long a visit to a unit of that kind takes, in seconds.
pub(super) fn visit(snapshot: &Snapshot, kind: &Kind) -> u32 {
    let seconds = snapshot.duration(kind).unwrap_or(USUAL_VISIT).as_secs();
    u32::try_from(seconds).unwrap_or(0).max(1)
}

/// How much of the visit to an OSD goes into making good what it missed: a third, of which nobody knows
/// better.
pub(super) fn recovery(visit: u32) -> u32 {
    visit / 3
}

/// The number before the first point.
fn major(release: &str) -> Option<u32> {
    release.split('.').next()?.parse().ok()
}

impl SimulatedCluster {
    /// What an observation of a copy shows now.
    pub(crate) fn copied_snapshot(&self, unknown: Option<&str>) -> Result<Option<Snapshot>, ObserveError> {
        let Some(copy) = &self.copy else { return Ok(None) };
        let before = &copy.of.snapshot;
        let mut units = before.units().to_vec();
        for (at, (unit, daemon)) in units.iter_mut().zip(&self.daemons).enumerate() {
            // What was not touched is as it was observed, unknown states and revisions included.
            if daemon.turn > 0 {
                unit.state = if daemon.up {
                    UnitState::Serving
                } else {
                    UnitState::Down
                };
                unit.revision = Some(daemon.runs.clone());
            }
            if daemon.drained {
                unit.state = UnitState::Down;
            }
            if daemon.kind.as_str() == "mgr" {
                unit.precedence = u32::from(self.is_active(at));
            }
        }
        let conditions = before
            .conditions()
            .map(|was| self.copied_condition(copy, was, unknown));
        let generation = match self.generation - 1 {
            0 => before.generation().to_owned(),
            changes => format!("{} and {changes} changes", before.generation()),
        };
        let snapshot = Snapshot::new(
            before.cluster().clone(),
            self.time(),
            generation,
            units,
            self.copied_budgets(copy),
            conditions.collect(),
            self.copied_durations(before),
        )?;
        let snapshot = snapshot
            .with_absent(before.absent().to_vec())
            .with_interruptions(before.interruptions().to_vec())
            .with_bystanders(before.bystanders().to_vec())
            .with_drained(self.drained_units())
            .with_terms(before.terms().clone());
        Ok(Some(match self.capacity()? {
            Some(capacity) => snapshot.with_capacity(capacity)?,
            None => snapshot,
        }))
    }

    /// How long visits take, and moves.
    fn copied_durations(&self, before: &Snapshot) -> BTreeMap<Kind, SignedDuration> {
        let kinds = self.daemons.iter().map(|daemon| daemon.kind.clone());
        let moves = MOVES.iter().filter_map(|(_, name, _)| Kind::new(*name).ok());
        kinds
            .chain(moves)
            .filter_map(|kind| before.duration(&kind).map(|time| (kind, time)))
            .collect()
    }

    /// What is wanted of it: what its steps come to, and what a host runs that was rebooted.
    pub(crate) fn wants(&mut self, target: &Target) {
        self.wanted = target.stages().next().map(|stage| stage.revision.clone());
        let Some(copy) = &mut self.copy else { return };
        let steps = target.parts.iter().filter_map(|part| match part {
            Part::Step(step) => Some((step.done_when.clone(), step.name.clone())),
            Part::Stage(_) => None,
        });
        copy.steps = steps.collect();
    }

    /// Whether a condition has come with what was done: by a step, or by what all units run.
    fn is_established(&self, copy: &CopiedState, name: &ConditionName) -> bool {
        let by_step = copy.steps.get(name);
        let mut by_units = copy.of.comes_with.iter().filter(|(comes, _)| comes == name);
        by_step.is_some_and(|step| self.steps.contains(step))
            || by_units.any(|(_, revisions)| {
                let mut units = self.daemons.iter().filter(|daemon| daemon.baseline);
                units.all(|daemon| revisions.contains(&daemon.runs))
            })
    }

    /// What may be down together, as before; and of groups with objects missing, those that have all.
    fn copied_budgets(&self, copy: &CopiedState) -> Budgets {
        let before = copy.of.snapshot.budgets().clone();
        if copy.standings.short.is_empty() && self.carried.is_none() {
            return before;
        }
        let mut budgets = BudgetsBuilder::from(before);
        // Those of before stand as well: whoever has moved comes back.
        let places = self
            .daemons
            .iter()
            .map(|daemon| copy.of.snapshot.find(&daemon.id).unwrap_or(Ix(0)));
        self.pairs(&mut budgets, &places.collect::<Vec<Ix>>());
        for group in &copy.standings.short {
            let pg = &self.pgs[*group as usize];
            let pool = &self.spec.pools[pg.pool];
            let shards = pg.shards.iter().zip(&pg.missing);
            let whole: Vec<(Ix, u32)> = shards
                .filter_map(|(osd, missing)| osd.filter(|_| !missing).map(|osd| (Ix(osd), 1)))
                .collect();
            if whole.is_empty() {
                continue;
            }
            let limit = (whole.len() as u32).saturating_sub(pool.min_size);
            budgets.add_for(
                0,
                "placement groups without missing objects",
                &self.pg_name(*group as usize),
                limit,
                &whole,
            );
        }
        budgets.build()
    }

    /// A condition that was not well stays as it was: nobody cures the cluster in a simulation. One
    /// that was well is so while what it speaks of is; one that waits for the upgrade comes with it.
    fn copied_condition(&self, copy: &CopiedState, was: &Condition, unknown: Option<&str>) -> Condition {
        let name = was.name.as_str();
        let (verdict, why) = if self.is_established(copy, &was.name) {
            (Verdict::Yes, "it has come with the change".to_owned())
        } else if let Some(found) = self.release_condition(name, was.verdict) {
            found
        } else if was.verdict == Verdict::Yes {
            self.turned(copy, name, unknown)
                .unwrap_or_else(|| (was.verdict, was.why.clone()))
        } else {
            (was.verdict, was.why.clone())
        };
        Condition::new(was.name.clone(), verdict, why)
    }

    /// What has become of a condition that was well, if it is not any more.
    fn turned(&self, copy: &CopiedState, name: &str, unknown: Option<&str>) -> Option<(Verdict, String)> {
        let down = |kinds: &[&str]| {
            let worse = self.daemons.iter().filter(|daemon| {
                daemon.baseline && !daemon.up && (kinds.is_empty() || kinds.contains(&daemon.kind.as_str()))
            });
            let worse: Vec<&str> = worse.map(|daemon| daemon.id.as_str()).collect();
            let some = worse[..worse.len().min(5)].join(", ");
            let more = match worse.len().saturating_sub(5) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            (!worse.is_empty()).then(|| (Verdict::No, format!("down: {some}{more}")))
        };
        match name {
            "daemons-running" => down(&[]),
            "nodes-answer" => {
                let silent = self.daemons.iter().filter(|d| d.baseline && !d.up && !d.drained);
                let silent = silent.map(|daemon| daemon.id.to_string()).collect::<Vec<_>>();
                (!silent.is_empty()).then(|| (Verdict::No, format!("down: {}", silent.join(", "))))
            }
            "instances-up" => {
                let guests = self.guests_down();
                (!guests.is_empty()).then(|| (Verdict::No, format!("down: {}", guests.join(", "))))
            }
            "conductors-serve" => down(&["conductor"]),
            "apis-serve" => down(&["api"]),
            "osds-up-in" => down(&["osd"]),
            "quorum" => down(&["mon"]),
            "mgr-active" => down(&["mgr"]),
            "rgw-serving" => down(&["rgw"]),
            "mds-active" => {
                let up = self.daemons.iter().filter(|d| d.kind.as_str() == "mds" && d.up);
                let up = up.count();
                (up < copy.ranks).then(|| (Verdict::No, format!("{up} of {} ranks active", copy.ranks)))
            }
            "pgs-known" | "pg-stats-fresh" => unknown.map(|why| (Verdict::Unknown, why.to_owned())),
            "pgs-clean" | "pgs-not-degraded" => match (unknown, copy.standings.dirty) {
                (Some(why), _) => Some((Verdict::Unknown, why.to_owned())),
                (None, 0) => None,
                (None, dirty) => Some((
                    Verdict::No,
                    format!("{dirty} of {} placement groups are not", self.pgs.len()),
                )),
            },
            _ => None,
        }
    }

    /// The conditions that come with a release: `require-osd-release-18` and its like.
    fn release_condition(&self, name: &str, was: Verdict) -> Option<(Verdict, String)> {
        let (what, wanted) = name.rsplit_once('-')?;
        let wanted: u32 = wanted.parse().ok()?;
        let all_run = |kind: &str| {
            let of_kind = self.daemons.iter().filter(|d| d.kind.as_str() == kind);
            let runs = |daemon: &SimDaemon| major(daemon.runs.as_str()).is_some_and(|now| now >= wanted);
            of_kind.clone().count() > 0 && of_kind.clone().all(runs)
        };
        let holds = match what {
            "require-osd-release" => {
                was == Verdict::Yes
                    || self
                        .require
                        .as_ref()
                        .and_then(|release| major(release.as_str()))
                        .is_some_and(|now| now >= wanted)
            }
            // It moves by itself with the last monitor.
            "min-mon-release" => was == Verdict::Yes || all_run("mon"),
            "osds-run" => all_run("osd"),
            _ => return None,
        };
        let verdict = match (holds, was) {
            (true, _) => Verdict::Yes,
            (false, Verdict::Unknown) => Verdict::Unknown,
            (false, Verdict::Yes | Verdict::No) => Verdict::No,
        };
        Some((verdict, "in the simulation".to_owned()))
    }

    /// What the oracle of a copied cluster answers: by the truth, of monitors and OSDs, as Ceph's does.
    pub(crate) fn copied_answer(&self, set: &[UnitId]) -> Answer {
        let going: Vec<usize> = set.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
        let mut leaves = vec![false; self.daemons.len()];
        for unit in &going {
            leaves[*unit] = true;
        }
        for (group, _) in going.iter().flat_map(|unit| &self.on_osd[*unit]) {
            let pg = &self.pgs[*group as usize];
            let (mut up, mut whole) = (0, 0);
            for (osd, missing) in pg.shards.iter().zip(&pg.missing) {
                let Some(osd) = osd.filter(|osd| !leaves[*osd as usize]) else {
                    continue;
                };
                let there = self.daemons[osd as usize].up;
                up += u32::from(there);
                whole += u32::from(there && !missing);
            }
            let min_size = self.spec.pools[pg.pool].min_size;
            if up.min(whole) < min_size {
                return Answer::No {
                    why: format!(
                        "placement group {} would have {} left of {min_size}",
                        self.pg_name(*group as usize),
                        up.min(whole)
                    ),
                };
            }
        }
        let mons = || {
            self.daemons
                .iter()
                .enumerate()
                .filter(|(_, d)| d.kind.as_str() == "mon")
        };
        if going
            .iter()
            .any(|unit| self.daemons[*unit].kind.as_str() == "mon")
        {
            let (all, left) = (
                mons().count(),
                mons().filter(|(at, d)| d.up && !leaves[*at]).count(),
            );
            if left * 2 <= all {
                return Answer::No {
                    why: format!("{left} of {all} monitors would be left"),
                };
            }
        }
        Answer::Yes
    }
}
