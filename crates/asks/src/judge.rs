//! The two judges of a set that is asked for: those of a wave.

use stagger_core::check::may_stop;
use stagger_core::model::{Ix, Snapshot, UnitId, UnitState};
use stagger_core::run::Answer;
use stagger_engine::cluster::Executor;

use crate::marked::with_down;

/// What the judges say of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JudgedSet {
    /// Both agree, or there is no oracle and ours agrees.
    Yes,
    /// It may not go down now, and why.
    No(String),
}

/// Whether `set` may go down beside what is down and what others claim: first by our own check over the whole set, then by
/// the cluster's oracle about the set with `beside`, all of the claimed that is still up. Unknown is no.
pub async fn judge(
    backend: &(impl Executor + ?Sized),
    snapshot: &Snapshot,
    claimed: &[Ix],
    beside: &[UnitId],
    set: &[Ix],
) -> JudgedSet {
    if let Err(why) = own_check(snapshot, claimed, set) {
        return JudgedSet::No(why);
    }
    let up = |at: &&Ix| snapshot.unit(**at).state == UnitState::Serving;
    let stops = set.iter().any(|at| up(&at));
    if !stops {
        // All of it is down already: nothing more goes.
        return JudgedSet::Yes;
    }
    let ours = set.iter().filter(up).map(|at| snapshot.unit(*at).id.clone());
    let mut units: Vec<UnitId> = ours.chain(beside.iter().cloned()).collect();
    units.sort_by(|a, b| a.natural_key().cmp(&b.natural_key()));
    units.dedup();
    match backend.check_stop(&units).await {
        Ok(Answer::Yes | Answer::NoOracle | Answer::Overridden { .. }) => JudgedSet::Yes,
        Ok(Answer::No { why }) => JudgedSet::No(format!("the cluster says no: {why}")),
        Ok(Answer::Unknown { why }) => JudgedSet::No(format!("the cluster cannot tell: {why}")),
        Err(error) => JudgedSet::No(format!("the cluster cannot be asked: {error}")),
    }
}

/// Our own check: budgets with all that is claimed counted as down, and no guests that run on what goes down.
///
/// # Errors
/// In words, what it would break.
pub fn own_check(snapshot: &Snapshot, claimed: &[Ix], set: &[Ix]) -> Result<(), String> {
    if let Some(at) = set.iter().find(|at| claimed.contains(at)) {
        return Err(format!(
            "{} is taken down by another already",
            snapshot.unit(*at).id
        ));
    }
    guests(snapshot, set)?;
    let marked = with_down(snapshot.clone(), claimed).map_err(|error| error.to_string())?;
    may_stop(&marked, set)
}

/// Whoever is granted a host moves no guests: one with guests is to be drained first.
fn guests(snapshot: &Snapshot, set: &[Ix]) -> Result<(), String> {
    let Some(capacity) = snapshot.capacity() else {
        return Ok(());
    };
    for at in set {
        let unit = snapshot.unit(*at);
        let Some(host) = capacity.find(&unit.id) else {
            continue;
        };
        let carried = capacity.guests_on(host).len();
        if carried > 0 && unit.state == UnitState::Serving {
            let terms = snapshot.terms();
            return Err(format!(
                "{} carries {carried} {}{}: move them first, or let `stagger run reboot` do it",
                unit.id,
                terms.guest,
                if carried == 1 { "" } else { "s" }
            ));
        }
    }
    Ok(())
}
