//! The daemons that alone keep a condition from holding: it would hold if they were up.

use stagger_core::model::{Condition, Fact, IdError, Unit, UnitId, UnitState, Verdict};

use super::{Baseline, is_absent};
use crate::facts::CephFacts;
use crate::facts::pg_state::PgState;

/// Says it of the conditions of which that can be told.
pub(super) fn add_blockers(
    facts: &CephFacts,
    units: &[Unit],
    baseline: Option<&Baseline>,
    conditions: &mut [Condition],
) -> Result<(), IdError> {
    if conditions
        .iter()
        .all(|condition| condition.verdict == Verdict::Yes)
    {
        return Ok(());
    }
    let down = down_osds(facts, baseline)?;
    for condition in conditions
        .iter_mut()
        .filter(|condition| condition.verdict == Verdict::No)
    {
        condition.but_for = match condition.name.as_str() {
            "daemons-running" => running(units, baseline),
            "osds-up-in" if all_are_in(facts, baseline) => down.clone(),
            "pgs-clean" | "pgs-not-degraded" if only_undersized(facts) => down.clone(),
            _ => Vec::new(),
        };
    }
    Ok(())
}

fn down_osds(facts: &CephFacts, baseline: Option<&Baseline>) -> Result<Vec<UnitId>, IdError> {
    let osds = facts.osds.osds.iter();
    let down = osds.filter(|(id, osd)| !osd.up && !is_absent(facts, baseline, **id, osd));
    down.map(|(id, _)| UnitId::new(format!("osd.{id}"))).collect()
}

fn all_are_in(facts: &CephFacts, baseline: Option<&Baseline>) -> bool {
    let is_in = |id: &u32| facts.osds.osds.get(id).is_some_and(|osd| osd.inside);
    baseline.is_some_and(|baseline| baseline.osds_in.iter().all(is_in))
}

/// The daemons that do not serve, if each of them is down.
fn running(units: &[Unit], baseline: Option<&Baseline>) -> Vec<UnitId> {
    let expected = |unit: &&Unit| baseline.is_none_or(|baseline| baseline.daemons.contains_key(&unit.id));
    let missing = units
        .iter()
        .filter(expected)
        .filter(|unit| unit.state != UnitState::Serving);
    let down = missing.map(|unit| (unit.state == UnitState::Down).then(|| unit.id.clone()));
    down.collect::<Option<_>>().unwrap_or_default()
}

/// Whether every placement group that is not clean serves and has fewer OSDs than it should, and nothing else ails it. Whichever
/// it lacks is down then: one that is up again takes part, and the group peers or recovers for it.
fn only_undersized(facts: &CephFacts) -> bool {
    let Fact::Yes(pgs) = &facts.pgs else { return false };
    let lacking = [
        PgState::parse("active+undersized+degraded"),
        // One without objects lacks no copy of any.
        PgState::parse("active+undersized"),
    ];
    pgs.iter()
        .all(|pg| pg.state.clean() || lacking.contains(&pg.state))
}
