//! Who is next, and when.
//!
//! Asks go by their deadline, then by their age; one without a deadline counts as if it had one, [`NO_HURRY`] after it was
//! asked, so that a stream of urgent ones does not keep it out for ever. Whoever fits goes, also past one that does not
//! fit: that is what brings as many down at once as is safe. But only for so long: once an ask has waited for its patience
//! (or for half of the time that it has), nothing that comes after it in the order is granted if that would keep it out.
//! What was granted before ends by itself, so then it is its turn.
//!
//! All of it is pure, and the forecast is the same walk, on and on, as if everybody took all of their time.

use std::collections::{BTreeMap, BinaryHeap};

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::Ix;

use crate::scene::{Blocked, Scene};

/// An ask without a deadline is ordered as if it had one so long after it was asked.
pub const NO_HURRY: SignedDuration = SignedDuration::from_hours(24);
/// For so many of them it is said when their turn is; those behind wait for these.
const FORECAST: usize = 200;
/// So many times at which somebody is back are looked at.
const TURNS: usize = 200;

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// What is to go down.
    pub set: Vec<Ix>,
    /// Since when it waits.
    pub asked: Timestamp,
    /// It is of no use after that.
    pub until: Option<Timestamp>,
    /// Others may pass it for its patience. A run may not be passed: it comes back to a unit a few times, and then leaves it.
    pub is_patient: bool,
    /// How long it will be down.
    pub hold: SignedDuration,
    /// The newest fence when it had waited long enough; `None`: it has not.
    pub kept_free_since: Option<u64>,
    /// Since when it would not fit even if all who hold a claim were back; `None`: it would.
    pub unfit_since: Option<Timestamp>,
}

impl Queued {
    /// By what it is ordered.
    pub fn order(&self) -> (Timestamp, Timestamp) {
        let calm = self.asked.saturating_add(NO_HURRY).unwrap_or(Timestamp::MAX);
        (self.until.map_or(calm, |until| until.min(calm)), self.asked)
    }

    /// From when on nobody later may keep it out.
    pub fn waits_enough_at(&self, patience: SignedDuration) -> Timestamp {
        if !self.is_patient {
            return self.asked;
        }
        let patient = self.asked.saturating_add(patience).unwrap_or(Timestamp::MAX);
        let half = self.until.and_then(|until| {
            let half = until.duration_since(self.asked) / 2;
            self.asked.checked_add(half).ok()
        });
        half.map_or(patient, |half| half.min(patient))
    }
}

/// The places of these in the order in which they go.
pub fn in_order(queue: &[Queued]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..queue.len()).collect();
    order.sort_by_key(|at| (queue[*at].order(), *at));
    order
}

/// Looks at one who waits: whether it fits now. If it does not and has waited long enough, nothing after it may keep it out;
/// then its `kept_free_since` is set, and else it is not.
///
/// # Errors
/// Why it has to wait.
pub fn look_at(
    scene: &mut Scene<'_>,
    one: &mut Queued,
    now: Timestamp,
    patience: SignedDuration,
    fence: u64,
) -> Result<(), Blocked> {
    let blocked = match scene.fits(&one.set) {
        Ok(()) => return Ok(()),
        Err(blocked) => blocked,
    };
    wait_on(scene, one, now, patience, fence);
    Err(blocked)
}

/// One goes on waiting, whoever said so.
pub fn wait_on(
    scene: &mut Scene<'_>,
    one: &mut Queued,
    now: Timestamp,
    patience: SignedDuration,
    fence: u64,
) {
    // What can never be would keep others out in vain.
    if now < one.waits_enough_at(patience) || !scene.could_fit(&one.set) {
        one.kept_free_since = None;
        one.unfit_since = None;
        return;
    }
    // What is down for other reasons keeps it out: others wait for that no longer than its patience. For so long they do, since
    // what recovers keeps it out again and again for a moment.
    if scene.fits_once_released(&one.set) {
        one.unfit_since = None;
    } else {
        let since = *one.unfit_since.get_or_insert(now);
        if now.duration_since(since) > patience {
            one.kept_free_since = None;
            return;
        }
    }
    let since = *one.kept_free_since.get_or_insert(fence);
    scene.keep_free(&one.set, since);
}

/// A claim that ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningClaim {
    /// Its fence.
    pub fence: u64,
    /// What is down.
    pub set: Vec<Ix>,
    /// When it is back at the latest.
    pub ends: Timestamp,
}

/// When each of these goes, if everybody takes all of their time and nothing else happens; `None`: nobody can tell.
pub fn forecast(
    scene: &Scene<'_>,
    running: &[RunningClaim],
    queue: &[Queued],
    now: Timestamp,
    patience: SignedDuration,
    fence: u64,
) -> Vec<Option<Timestamp>> {
    let mut scene = scene.clone();
    let mut queue: Vec<Queued> = queue.to_vec();
    let mut waiting = in_order(&queue);
    // What is down for other reasons stays so, as far as anybody can tell.
    waiting.retain(|place| scene.fits_once_released(&queue[*place].set));
    waiting.truncate(FORECAST);
    let mut starts = vec![None; queue.len()];
    let mut running: BTreeMap<u64, RunningClaim> =
        running.iter().map(|one| (one.fence, one.clone())).collect();
    let mut ends: BinaryHeap<std::cmp::Reverse<(Timestamp, u64)>> = running
        .values()
        .map(|one| std::cmp::Reverse((one.ends.max(now), one.fence)))
        .collect();
    let (mut at, mut fence) = (now, fence);
    for _ in 0..TURNS {
        scene.forget_kept_free();
        let mut left = Vec::with_capacity(waiting.len());
        for place in waiting {
            let one = &mut queue[place];
            if look_at(&mut scene, one, at, patience, fence).is_err() {
                left.push(place);
                continue;
            }
            fence += 1;
            starts[place] = Some(at);
            scene.claim(fence, &one.set);
            let back = at.saturating_add(one.hold).unwrap_or(Timestamp::MAX);
            let started = RunningClaim {
                fence,
                set: one.set.clone(),
                ends: back,
            };
            ends.push(std::cmp::Reverse((back, fence)));
            running.insert(fence, started);
        }
        waiting = left;
        if waiting.is_empty() {
            break;
        }
        let Some(std::cmp::Reverse((next, _))) = ends.peek().copied() else {
            break;
        };
        at = next;
        while let Some(std::cmp::Reverse((end, over))) = ends.peek().copied() {
            if end > at {
                break;
            }
            ends.pop();
            if let Some(over) = running.remove(&over) {
                scene.release(over.fence, &over.set);
            }
        }
    }
    starts
}
