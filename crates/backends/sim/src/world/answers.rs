//! What the cluster says of itself: the snapshot, its conditions, and the oracle's answers.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Absent, Condition, ConditionName, IdError, Ix, Kind, Reason, Snapshot, Unit, UnitId, UnitState, Verdict,
};
use stagger_core::run::Answer;
use stagger_engine::cluster::BackendError;

use super::ground_truth::ReportedState;
use super::{ObserveError, SimulatedCluster};
use crate::scenario::{InjectedFault, NODE, OracleFault};
use crate::target::{UNPIN, UNPINNED, require_condition};

/// A condition that nothing is down.
fn down(names: &[&str]) -> (Verdict, String) {
    match names {
        [] => (Verdict::Yes, "as before the run".to_owned()),
        some => (
            Verdict::No,
            format!("{} down", some[..some.len().min(8)].join(" ")),
        ),
    }
}

impl SimulatedCluster {
    /// What is observed now is not so, and nothing shows it.
    fn is_deceptive(&self) -> bool {
        self.has_fault(|fault| matches!(fault, InjectedFault::StalePgs { hidden: true, .. }))
    }

    fn has_fault(&self, which: impl Fn(&InjectedFault) -> bool) -> bool {
        self.faults.iter().any(|state| state.on && which(&state.fault))
    }

    /// Whether nothing can be observed now.
    pub(crate) fn is_blind(&self) -> bool {
        self.has_fault(|fault| matches!(fault, InjectedFault::Blind { .. }))
    }

    /// Why the states of placement groups are not to be trusted, if that is known.
    fn pgs_unknown(&self) -> Option<&'static str> {
        if self.drains() {
            None
        } else if self.active_mgr.is_none() {
            Some("no manager is active")
        } else if self.elapsed() < self.blind_until {
            Some("the manager has just become active")
        } else if self.has_fault(|fault| matches!(fault, InjectedFault::StalePgs { hidden: false, .. })) {
            Some("they are older than the map of OSDs")
        } else {
            None
        }
    }

    pub(crate) fn said_missing(&self, pg: usize) -> &[bool] {
        match &self.frozen {
            Some(frozen) => &frozen[pg],
            None => &self.pgs[pg].missing,
        }
    }

    /// What an observation shows now; by the clock of whoever looks it is that time.
    pub(crate) fn snapshot(&mut self, at: Timestamp) -> Result<Snapshot, ObserveError> {
        let unknown = self.pgs_unknown();
        if let Some(snapshot) = self.copied_snapshot(unknown)? {
            return Ok(snapshot);
        }
        let as_it_is = (self.generation, self.changes, unknown);
        if let Some((as_it_was, snapshot)) = &self.shown_last
            && *as_it_was == as_it_is
        {
            let (lies, now) = (self.is_deceptive(), self.elapsed());
            self.truth.observed_again(lies, now);
            return Ok(snapshot.clone().reobserved_at(at));
        }
        let snapshot = self.fresh_observation(at, unknown)?;
        self.shown_last = Some((as_it_is, snapshot.clone()));
        Ok(snapshot)
    }

    /// What an observation was answered with last.
    pub(crate) fn last_shown(&self) -> Option<Snapshot> {
        self.shown_last.as_ref().map(|(_, snapshot)| snapshot.clone())
    }

    fn fresh_observation(
        &mut self,
        at: Timestamp,
        unknown: Option<&'static str>,
    ) -> Result<Snapshot, ObserveError> {
        let mut units = Vec::with_capacity(self.daemons.len());
        let mut place = vec![Ix(0); self.daemons.len()];
        for (at, daemon) in self.daemons.iter().enumerate() {
            if daemon.destroyed {
                continue;
            }
            place[at] = Ix(units.len() as u32);
            let mut domains = BTreeMap::new();
            domains.insert("host".to_owned(), self.host_name(daemon.host));
            domains.insert("rack".to_owned(), self.rack_name(daemon.host));
            if let Some(site) = self.site_name(daemon.host) {
                domains.insert("site".to_owned(), site);
            }
            units.push(Unit {
                id: daemon.id.clone(),
                kind: daemon.kind.clone(),
                state: if daemon.serves() {
                    UnitState::Serving
                } else {
                    UnitState::Down
                },
                revision: Some(daemon.runs.clone()),
                domains,
                precedence: u32::from(self.is_active(at)),
                untouchable: None,
            });
        }
        let budgets = self.may_be_down(unknown, &place);
        let recovers = unknown.is_none() && (0..self.pgs.len()).any(|pg| self.recovers(pg));
        let conditions = self.conditions(unknown)?;
        let seconds = &self.spec.seconds;
        let mut durations = BTreeMap::new();
        for kind in ["mon", "mgr", "mds", "rgw", "conductor", "api", NODE] {
            durations.insert(
                Kind::new(kind)?,
                SignedDuration::from_secs(i64::from(seconds.restart)),
            );
        }
        let osd = i64::from(seconds.restart_osd) + i64::from(seconds.recovery);
        durations.insert(Kind::new("osd")?, SignedDuration::from_secs(osd));
        let said = ReportedState {
            serving: self
                .daemons
                .iter()
                .filter(|d| d.serves())
                .map(|d| d.id.clone())
                .collect(),
            missing: (0..self.pgs.len())
                .map(|pg| self.said_missing(pg).to_vec())
                .collect(),
            known: unknown.is_none(),
        };
        let snapshot = Snapshot::new(
            self.spec.name.clone(),
            at,
            format!("osdmap {}", self.generation),
            units,
            budgets,
            conditions,
            durations,
        )?;
        let absent = self.daemons.iter().filter(|daemon| daemon.destroyed);
        let mut snapshot = snapshot.with_absent(absent.map(|daemon| Absent {
            unit: daemon.id.clone(),
            kind: daemon.kind.clone(),
            reason: Reason::of_backend(
                "osd-destroyed",
                "it is in the map of OSDs, and there is nothing behind it",
            ),
        }));
        if self.drains() {
            snapshot = snapshot.with_drained(self.drained_units());
        }
        if let Some(capacity) = self.capacity()? {
            snapshot = snapshot.with_capacity(capacity)?;
        }
        if recovers {
            let places = self
                .daemons
                .iter()
                .map(|daemon| snapshot.find(&daemon.id).unwrap_or(Ix(0)));
            let places: Vec<Ix> = places.collect();
            let once = self.may_be_down_once_recovered(&places);
            snapshot = snapshot.with_recovered(once)?;
        }
        let (lies, now) = (self.is_deceptive(), self.elapsed());
        self.truth.observed(said, lies, now);
        Ok(snapshot)
    }

    /// The units of these kinds that served before the run and do not now.
    fn worse(&self, kinds: &[&str]) -> Vec<&str> {
        let all = self.daemons.iter();
        all.filter(|d| kinds.contains(&d.kind.as_str()) && d.baseline && !d.serves())
            .map(|d| d.id.as_str())
            .collect()
    }

    fn conditions(&self, unknown: Option<&'static str>) -> Result<Vec<Condition>, IdError> {
        let mons: Vec<_> = self.daemons.iter().filter(|d| d.kind.as_str() == "mon").collect();
        let up = mons.iter().filter(|d| d.up).count();
        let quorum = if up * 2 > mons.len() && self.worse(&["mon"]).is_empty() {
            Verdict::Yes
        } else {
            Verdict::No
        };
        let mgr = match self.active_mgr {
            Some(at) => (Verdict::Yes, self.daemons[at].id.to_string()),
            None => (Verdict::No, "none".to_owned()),
        };
        let mds_up = self
            .daemons
            .iter()
            .filter(|d| d.kind.as_str() == "mds" && d.up)
            .count();
        let ranks = self.spec.mds_ranks.min(self.spec.mds);
        let mds = if mds_up as u32 >= ranks {
            Verdict::Yes
        } else {
            Verdict::No
        };
        let known = match unknown {
            None => (Verdict::Yes, "all reported".to_owned()),
            Some(why) => (Verdict::Unknown, why.to_owned()),
        };
        let dirty = (0..self.pgs.len()).filter(|pg| self.is_dirty(*pg)).count();
        let clean = match unknown {
            Some(why) => (Verdict::Unknown, why.to_owned()),
            None if dirty == 0 => (Verdict::Yes, format!("{} active and clean", self.pgs.len())),
            None => (Verdict::No, format!("{dirty} of {} are not", self.pgs.len())),
        };
        let mut list = if self.drains() {
            self.conditions_of_what_is_drained()
        } else {
            Vec::new()
        };
        list.extend([
            (
                "quorum".to_owned(),
                (quorum, format!("{up} of {} in quorum", mons.len())),
            ),
            (
                "daemons-running".to_owned(),
                down(&self.worse(&["mon", "mgr", "mds", "rgw"])),
            ),
            ("osds-up-in".to_owned(), down(&self.worse(&["osd"]))),
            ("pgs-known".to_owned(), known),
            ("pgs-clean".to_owned(), clean),
            ("mgr-active".to_owned(), mgr),
            (
                "mds-active".to_owned(),
                (mds, format!("{mds_up} for {ranks} ranks")),
            ),
        ]);
        let health = if self.has_fault(|fault| matches!(fault, InjectedFault::Warning { .. })) {
            (Verdict::No, "PG_NOT_DEEP_SCRUBBED".to_owned())
        } else {
            (Verdict::Yes, "no warning that is new".to_owned())
        };
        list.push(("health".to_owned(), health));
        let require = self.require.as_ref().unwrap_or(&self.spec.release);
        list.push((
            require_condition(require),
            (Verdict::Yes, format!("require_osd_release {require}")),
        ));
        let late = self.only_lack_osds();
        list.into_iter()
            .map(|(name, (verdict, why))| {
                let but_for = match name.as_str() {
                    "osds-up-in" | "pgs-clean" if verdict == Verdict::No => late.clone(),
                    _ => Vec::new(),
                };
                Ok(Condition {
                    but_for,
                    ..Condition::new(ConditionName::new(name)?, verdict, why)
                })
            })
            .collect()
    }

    /// The OSDs that are down, if nothing but that ails any placement group.
    fn only_lack_osds(&self) -> Vec<UnitId> {
        let serves = |pg: &usize| {
            let missing = self.said_missing(*pg);
            let shards = self.pgs[*pg].shards.iter().zip(missing);
            // What is up again and lacks objects recovers.
            shards
                .filter_map(|(osd, missing)| osd.map(|osd| (&self.daemons[osd as usize], *missing)))
                .all(|(daemon, missing)| !(missing && daemon.up))
        };
        if !(0..self.pgs.len()).all(|pg| serves(&pg)) {
            return Vec::new();
        }
        let osds = self.daemons.iter().filter(|d| d.osd.is_some() && d.baseline);
        osds.filter(|d| !d.up).map(|d| d.id.clone()).collect()
    }

    /// What the gates of hosts of guests, and of services behind a balancer, ask for.
    fn conditions_of_what_is_drained(&self) -> Vec<(String, (Verdict, String))> {
        let guests = self.guests_down();
        let guests: Vec<&str> = guests.iter().map(String::as_str).collect();
        let begun = self.steps.iter().any(|step| step.as_str() == UNPIN);
        let begun = if begun { Verdict::Yes } else { Verdict::No };
        // Whom a visit has drained is on its way, and its own gate waits for it.
        let silent = self.daemons.iter().filter(|d| d.baseline && !d.up && !d.drained);
        let silent: Vec<&str> = silent.map(|daemon| daemon.id.as_str()).collect();
        vec![
            ("nodes-answer".to_owned(), down(&silent)),
            ("guests-up".to_owned(), down(&guests)),
            ("conductors-serve".to_owned(), down(&self.worse(&["conductor"]))),
            ("apis-serve".to_owned(), down(&self.worse(&["api"]))),
            (UNPINNED.to_owned(), (begun, "as it was taken".to_owned())),
        ]
    }

    /// A placement group that is worse than before the run, as reported.
    fn is_dirty(&self, pg: usize) -> bool {
        let missing = self.said_missing(pg);
        let shards = self.pgs[pg].shards.iter().zip(missing);
        shards
            .filter_map(|(osd, missing)| osd.map(|osd| (&self.daemons[osd as usize], *missing)))
            .any(|(daemon, missing)| daemon.baseline && (missing || !daemon.up))
    }

    /// What the oracle answers now.
    pub(crate) fn oracle(&mut self, set: &[UnitId]) -> Result<Answer, BackendError> {
        if self.drains() {
            // Neither Ganeti nor Ironic has one.
            self.truth.no_oracle();
            return Ok(Answer::NoOracle);
        }
        let now = self.elapsed();
        let says = self.faults.iter().find_map(|state| match &state.fault {
            InjectedFault::Oracle { says, .. } if state.on => Some(*says),
            _ => None,
        });
        let refused = self.faults.iter().find_map(|state| match &state.fault {
            InjectedFault::OracleNo { unit, .. } if state.on && set.contains(unit) => Some(unit.clone()),
            _ => None,
        });
        let fooled =
            self.has_fault(|fault| matches!(fault, InjectedFault::StalePgs { oracle_too: true, .. }));
        let answer = match says {
            Some(OracleFault::Gone) => {
                self.truth.no_oracle();
                return Ok(Answer::NoOracle);
            }
            Some(OracleFault::Error) => {
                return Err(BackendError::transient(
                    "ask whether the set may stop",
                    "timed out",
                ));
            }
            Some(OracleFault::Unknown) => {
                return Ok(Answer::Unknown {
                    why: "it has no states of placement groups yet".to_owned(),
                });
            }
            Some(OracleFault::Yes) => {
                self.truth.record_oracle_answer(set, true, false, now);
                return Ok(Answer::Yes);
            }
            None => match (refused, self.pgs_unknown().filter(|_| self.frozen.is_none())) {
                (Some(unit), _) => Answer::No {
                    why: format!("{unit} is never ok to stop"),
                },
                (None, Some(why)) => Answer::Unknown { why: why.to_owned() },
                (None, None) => self.true_answer(set, fooled),
            },
        };
        self.truth
            .record_oracle_answer(set, answer == Answer::Yes, !fooled, now);
        Ok(answer)
    }

    fn true_answer(&self, set: &[UnitId], fooled: bool) -> Answer {
        if self.copy.is_some() {
            return self.copied_answer(set);
        }
        let going: Vec<usize> = set.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
        for (at, pg) in self.pgs.iter().enumerate() {
            let missing = if fooled {
                self.said_missing(at)
            } else {
                &pg.missing
            };
            let shards = pg.shards.iter().zip(missing);
            let complete: Vec<usize> = shards
                .filter_map(|(osd, missing)| osd.filter(|_| !missing))
                .map(|osd| osd as usize)
                .filter(|osd| self.daemons[*osd].up)
                .collect();
            let up: Vec<usize> = pg
                .shards
                .iter()
                .flatten()
                .map(|osd| *osd as usize)
                .filter(|osd| self.daemons[*osd].up)
                .collect();
            for there in [complete, up] {
                let left = there.iter().filter(|osd| !going.contains(osd)).count();
                if left < there.len() && (left as u32) < self.spec.pools[pg.pool].min_size {
                    return Answer::No {
                        why: format!("placement group {} would have {left} left", self.pg_name(at)),
                    };
                }
            }
        }
        for service in self.services() {
            let up = || self.members(service).filter(|at| self.daemons[*at].up);
            let touched = up().any(|at| going.contains(&at));
            let left = up().filter(|at| !going.contains(at)).count() as u32;
            let (kind, need) = (service.kind, service.need);
            if touched && left < need {
                return Answer::No {
                    why: format!("{left} of {kind} would be left, and {need} are needed"),
                };
            }
        }
        Answer::Yes
    }
}
