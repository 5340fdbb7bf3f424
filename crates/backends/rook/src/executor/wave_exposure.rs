//! Wave exposure: the OSDs that a run has down, or may yet stop, in its open wave. No other OSD may be
//! evicted beside them without proof that it is safe.
//!
//! A run publishes the set at each event; the reconciler of the PodDisruptionBudgets reads it and confirms
//! when they are closed for it, and the run waits for that confirmation before it stops an OSD. An OSD that
//! was visited and serves is no longer exposed, though its wave is still open: before it is stopped again, it
//! returns to the set, and the run waits for a new confirmation.
//!
//! Monitors, metadata servers and all other daemons are checked with Ceph by each side alone: here each side
//! learns of the other's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use stagger_core::model::UnitId;
use stagger_core::run::{Action, OpenWave, Run, Visit};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::daemons::{kind_of, osd_of};

/// A pod whose eviction was granted shows that it goes by then, or stays.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// So many of a wave are named.
const SHOWN: usize = 3;

/// The OSDs of a wave that are or may be stopped; `None`: no wave is open.
pub type ExposedOsds = Option<BTreeSet<u32>>;

/// What of the open wave is exposed, and how far the budgets are closed for it.
#[derive(Debug)]
pub struct WaveExposure {
    /// By what the run is at.
    told: watch::Sender<ExposedWave>,
    closed: watch::Sender<BTreeSet<u32>>,
    /// Whether evictions beside a wave are kept by budgets of ours or by the webhook.
    guarded: watch::Sender<bool>,
    /// The daemons whose eviction was granted, and when; OSDs only where drains are somebody else's.
    let_go: Mutex<BTreeMap<UnitId, Instant>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
/// What the run has come to.
struct ExposedWave {
    /// All OSDs of the open wave.
    all: BTreeSet<u32>,
    open: bool,
    exposed: BTreeSet<u32>,
    /// Those that had their turn, and about which it was asked whether they may be stopped once more.
    again: BTreeSet<u32>,
    /// The exposed that are no OSDs.
    others: BTreeSet<UnitId>,
    /// The code of the reason for which the run is held with its wave open, and since when.
    held: Option<(String, Timestamp)>,
}

impl ExposedWave {
    fn wave(&self) -> ExposedOsds {
        self.open
            .then(|| self.exposed.union(&self.again).copied().collect())
    }
}

impl Default for WaveExposure {
    fn default() -> Self {
        Self {
            told: watch::channel(ExposedWave::default()).0,
            closed: watch::channel(BTreeSet::new()).0,
            guarded: watch::channel(false).0,
            let_go: Mutex::default(),
        }
    }
}

impl WaveExposure {
    /// Says what the run is at.
    pub fn run_is_at(&self, run: &Run) {
        let osds = |units: &mut dyn Iterator<Item = &UnitId>| units.filter_map(osd_of).collect();
        let acting = |unit: &UnitId| run.open().any(|(_, action)| acts_on(action) == Some(unit));
        let (open, all, exposed, others) = match run.wave() {
            None => (false, BTreeSet::new(), BTreeSet::new(), BTreeSet::new()),
            Some(wave) => {
                let exposed: BTreeSet<&UnitId> = wave
                    .units
                    .iter()
                    .filter(|(unit, visit)| acting(unit) || !is_visited(wave, visit))
                    .map(|(unit, _)| unit)
                    .collect();
                let others = exposed.iter().filter(|unit| osd_of(unit).is_none());
                let others = others.map(|unit| (*unit).clone()).collect();
                let exposed = osds(&mut exposed.into_iter());
                (true, osds(&mut wave.units.keys()), exposed, others)
            }
        };
        let held = run.held().filter(|_| open);
        let held = held.map(|(reason, since)| (reason.code.to_string(), since));
        self.told.send_if_modified(|told| {
            told.held = held;
            let before = told.wave();
            if told.all != all {
                told.again.clear();
            }
            (told.open, told.all, told.exposed) = (open, all, exposed);
            told.others = others;
            told.wave() != before
        });
    }

    /// Counts a daemon that is no OSD as one that is about to be evicted; a `trial` counts for nobody. Who is counted first and then
    /// looks at the wave, and a run that opens its wave first and then looks at who is counted, cannot miss each other.
    ///
    /// # Errors
    /// One of its kind is being stopped by a run.
    pub fn count_eviction(&self, unit: &UnitId, trial: bool) -> Result<(), String> {
        self.count_unless_exposed(unit, trial, || {
            let told = self.told.borrow();
            let mut others = told.others.iter();
            match others.find(|other| *other != unit && kind_of(other) == kind_of(unit)) {
                None => Ok(()),
                Some(other) => Err(format!(
                    "an update is about to restart {other}, or has it down; another one goes when that is over"
                )),
            }
        })
    }

    /// Counts it, then looks whether it is kept; one that is counts as before: an earlier eviction of it may be on its way.
    fn count_unless_exposed(
        &self,
        unit: &UnitId,
        trial: bool,
        kept: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        if trial {
            return kept();
        }
        let before = self.evictions().insert(unit.clone(), Instant::now());
        let answer = kept();
        if answer.is_err() {
            match before {
                Some(at) => drop(self.evictions().insert(unit.clone(), at)),
                None => self.cancel_eviction(unit),
            }
        }
        answer
    }

    /// The same where drains are somebody else's to see to. What an update has down, or may yet stop, is proven beside all others as they are: no
    /// other OSD goes meanwhile.
    ///
    /// # Errors
    /// It has to wait until the wave is over.
    pub fn count_eviction_beside_wave(&self, unit: &UnitId, trial: bool) -> Result<(), String> {
        let Some(osd) = osd_of(unit) else {
            return self.count_eviction(unit, trial);
        };
        self.count_unless_exposed(unit, trial, || self.check_not_exposed(osd))
    }

    fn check_not_exposed(&self, osd: u32) -> Result<(), String> {
        match self.told.borrow().wave() {
            Some(wave) if !wave.is_empty() && !wave.contains(&osd) => {
                let wave: Vec<String> = wave.iter().map(|osd| format!("osd.{osd}")).collect();
                let (some, more) = wave.split_at(wave.len().min(SHOWN));
                let more = match more.len() {
                    0 => String::new(),
                    more => format!(" and {more} others"),
                };
                Err(format!(
                    "an update is about to restart {}{more}, or has them down; another OSD goes when that is over",
                    some.join(", ")
                ))
            }
            _ => Ok(()),
        }
    }

    /// What a person has to do so that the open wave goes on, if it does not by itself: until then nothing that it keeps is let go.
    pub fn operator_action(&self, namespace: &str) -> Option<String> {
        let told = self.told.borrow();
        let (code, since) = told.held.as_ref()?;
        Some(format!(
            "the update is held since {since:.0} ({code}); it continues by `stagger resume -n {namespace}`, or ends by \
             `stagger abort -n {namespace}`; `stagger status -n {namespace}` says why"
        ))
    }

    /// That daemon is not evicted after all.
    pub fn cancel_eviction(&self, unit: &UnitId) {
        self.evictions().remove(unit);
    }

    /// One of that kind, and none of these, whose eviction was granted a moment ago.
    pub fn evicting_of_kind(&self, kind: &str, but_for: &[UnitId]) -> Option<UnitId> {
        let mut all = self.evictions();
        all.retain(|_, at| at.elapsed() < ON_ITS_WAY);
        let mut of_kind = all.keys().filter(|unit| kind_of(unit) == kind);
        of_kind.find(|unit| !but_for.contains(unit)).cloned()
    }

    fn evictions(&self) -> MutexGuard<'_, BTreeMap<UnitId, Instant>> {
        self.let_go.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is exposed now, and its changes.
    pub fn wave(&self) -> Waves {
        Waves(self.told.subscribe())
    }

    /// Says that the budgets are about to be what they should be beside that wave: who is not of it any more has
    /// no closed budgets from now on.
    pub fn is_changing(&self, wave: &ExposedOsds) {
        let now = wave.as_ref();
        self.closed
            .send_modify(|closed| closed.retain(|osd| now.is_some_and(|wave| wave.contains(osd))));
    }

    /// Whether the budgets are not yet known to be closed for all of that wave.
    pub fn is_unconfirmed(&self, wave: &ExposedOsds) -> bool {
        let closed = self.closed.borrow();
        wave.as_ref().is_some_and(|wave| !wave.is_subset(&closed))
    }

    /// Says whether budgets of ours, or the webhook, keep evictions from coming beside a wave. While nothing does, no wave is closed.
    pub fn set_guarded(&self, guarded: bool) {
        if !guarded {
            self.closed.send_replace(BTreeSet::new());
        }
        self.guarded.send_replace(guarded);
    }

    /// Whether they are kept, by then at the latest.
    pub async fn wait_until_guarded(&self, limit: Duration) -> bool {
        let mut guarded = self.guarded.subscribe();
        let guarded = tokio::time::timeout(limit, guarded.wait_for(|is| *is)).await;
        matches!(guarded, Ok(Ok(_)))
    }

    /// Says that now nothing may be evicted beside that wave that is not proven.
    pub fn is_closed(&self, wave: ExposedOsds) {
        self.closed.send_replace(wave.unwrap_or_default());
    }

    /// Exposes these of the open wave, as they are about to be stopped, and waits until the budgets are closed
    /// for them.
    pub async fn closed_for(&self, osds: &BTreeSet<u32>) {
        self.told.send_if_modified(|told| {
            let before = told.wave();
            let asked: BTreeSet<u32> = osds.intersection(&told.all).copied().collect();
            told.again.extend(asked.difference(&told.exposed));
            told.wave() != before
        });
        let mut closed = self.closed.subscribe();
        // It ends only with its sender, which is here.
        closed.wait_for(|closed| osds.is_subset(closed)).await.ok();
    }
}

/// What is exposed, as it changes.
#[derive(Debug, Clone)]
pub struct Waves(watch::Receiver<ExposedWave>);

impl Waves {
    /// What is exposed now; it counts as seen.
    pub fn now(&mut self) -> ExposedOsds {
        self.0.borrow_and_update().wave()
    }

    /// Waits until it is not what was last seen.
    ///
    /// # Errors
    /// Nobody tells any more.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.0.changed().await
    }
}

/// Whether the run is done with a unit of the wave, unless it fails later.
fn is_visited(wave: &OpenWave, visit: &Visit) -> bool {
    if wave.failure().is_some() || wave.is_rollback() {
        return visit.went_back == Some(Ok(()));
    }
    wave.is_agreed() && visit.is_changed()
}

fn acts_on(action: &Action) -> Option<&UnitId> {
    match action {
        Action::Visit { unit, .. } | Action::Restart { unit } | Action::GoBack { unit, .. } => Some(unit),
        Action::TakeGuard { .. }
        | Action::DropGuard { .. }
        | Action::Step { .. }
        | Action::Collect { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use stagger_core::model::{Code, PartName, Phase, Reason, Revision};
    use stagger_core::run::Effect;
    use stagger_core::run::{Answer, Entry, Event, Outcome, Start};

    use super::*;

    fn osd(id: u32) -> UnitId {
        UnitId::new(format!("osd.{id}")).unwrap()
    }

    fn revision(text: &str) -> Revision {
        Revision::new(text).unwrap()
    }

    /// A run whose wave of osd.0 and osd.1 was just opened, and who hears of it.
    struct Told {
        run: Run,
        exposed: WaveExposure,
    }

    impl Told {
        fn new() -> Self {
            let start: Start = serde_json::from_value(json!({
                "version": stagger_core::run::VERSION, "run": "r", "cluster": "lab", "baseline": null,
                "target": { "title": "up", "parts": [] }, "policy": {},
            }))
            .unwrap();
            let first = Entry {
                seq: 1,
                at: Timestamp::UNIX_EPOCH,
                event: Event::Started(Box::new(start)),
            };
            let mut told = Self {
                run: Run::begin(first).unwrap(),
                exposed: WaveExposure::default(),
            };
            let opened = Event::WaveOpened {
                stage: PartName::new("osd").unwrap(),
                units: vec![(osd(0), revision("old")), (osd(1), revision("old"))],
                not_serving: Vec::new(),
            };
            told.hears(opened);
            told
        }

        fn hears(&mut self, event: Event) {
            let (seq, at) = (self.run.seq() + 1, Timestamp::UNIX_EPOCH);
            self.run.apply(Entry { seq, at, event }).unwrap();
            self.exposed.run_is_at(&self.run);
        }

        fn does(&mut self, action: Action) -> u64 {
            self.hears(Effect::from(action).into());
            self.run.seq()
        }

        fn changes(&mut self, id: u32) -> u64 {
            self.does(Action::Visit {
                unit: osd(id),
                phase: Phase::Change,
                revision: revision("new"),
                moves: Vec::new(),
            })
        }

        fn settles(&mut self, intent: u64, failed: Option<&str>) {
            let outcome = match failed {
                None => Outcome::Done { note: String::new() },
                Some(why) => Outcome::Failed { why: why.to_owned() },
            };
            self.hears(Event::Settled { intent, outcome });
        }

        /// Up to where osd.0 has had its turn and osd.1 could not be started.
        fn half_done() -> Self {
            let mut told = Self::new();
            told.hears(Event::Judged {
                units: vec![osd(0), osd(1)],
                ours: Answer::Yes,
                theirs: Answer::Yes,
                facts: None,
            });
            let (first, second) = (told.changes(0), told.changes(1));
            assert_eq!(told.wave(), Some(BTreeSet::from([0, 1])));
            told.settles(first, None);
            told.settles(second, Some("its pod cannot be scheduled"));
            told
        }

        fn wave(&self) -> ExposedOsds {
            self.exposed.wave().now()
        }
    }

    async fn is_closed_for(told: &Told, ids: &[u32]) -> bool {
        let osds = ids.iter().copied().collect();
        let closed = told.exposed.closed_for(&osds);
        tokio::time::timeout(Duration::from_millis(20), closed)
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn a_wave_is_exposed_from_its_opening_until_each_had_its_turn() {
        let mut told = Told::new();
        assert_eq!(told.wave(), Some(BTreeSet::from([0, 1])));
        assert!(!is_closed_for(&told, &[0, 1]).await);
        told.exposed.is_closed(told.wave());
        assert!(is_closed_for(&told, &[0, 1]).await);
        // That it was asked about when it was opened does not keep it.
        told = Told::half_done();
        assert_eq!(told.wave(), Some(BTreeSet::from([1])));
        told = Told::new();
        told.hears(Event::WaveDropped {
            reason: Reason::new(Code::OracleSaysNo, ""),
        });
        assert_eq!(told.wave(), None);
    }

    /// Both would be told by Ceph that one monitor may stop.
    #[tokio::test(start_paused = true)]
    async fn no_monitor_is_evicted_beside_one_that_a_run_restarts() {
        let mon = |id: &str| UnitId::new(format!("mon.{id}")).unwrap();
        let mut told = Told::new();
        assert_eq!(told.exposed.count_eviction(&mon("b"), false), Ok(()));
        assert_eq!(told.exposed.evicting_of_kind("mon", &[mon("a")]), Some(mon("b")));
        assert_eq!(told.exposed.evicting_of_kind("mon", &[mon("b")]), None);
        assert_eq!(told.exposed.evicting_of_kind("mds", &[]), None);
        tokio::time::advance(ON_ITS_WAY).await;
        assert_eq!(told.exposed.evicting_of_kind("mon", &[mon("a")]), None);

        told.hears(Event::WaveDropped {
            reason: Reason::new(Code::OracleSaysNo, ""),
        });
        told.hears(Event::WaveOpened {
            stage: PartName::new("mon").unwrap(),
            units: vec![(mon("a"), revision("old"))],
            not_serving: Vec::new(),
        });
        let refused = told.exposed.count_eviction(&mon("b"), false);
        assert!(refused.is_err_and(|why| why.contains("about to restart mon.a")));
        assert_eq!(told.exposed.evicting_of_kind("mon", &[]), None);
        // Itself it is down anyway, and a metadata server is none of them.
        assert_eq!(told.exposed.count_eviction(&mon("a"), true), Ok(()));
        let server = UnitId::new("mds.fs-a").unwrap();
        assert_eq!(told.exposed.count_eviction(&server, true), Ok(()));
    }

    #[test]
    fn no_osd_goes_beside_a_wave_though_drains_are_somebody_else_s() {
        let mut told = Told::new();
        let may_go = |told: &Told, id| told.exposed.count_eviction_beside_wave(&osd(id), true);
        assert!(
            may_go(&told, 2)
                .is_err_and(|why| why.contains("about to restart osd.0, osd.1, or has them down"))
        );
        // Itself it is down anyway.
        assert_eq!(may_go(&told, 0), Ok(()));
        // A person has to act before it is over, and who waits is told so.
        assert_eq!(told.exposed.operator_action("rook-ceph"), None);
        told.hears(Event::Held {
            reason: Reason::new(Code::Paused, "a person paused it"),
        });
        let how = told.exposed.operator_action("rook-ceph").unwrap();
        for word in [
            "1970-01-01T00:00:00Z (paused)",
            "`stagger resume -n rook-ceph`",
            "`stagger abort -n rook-ceph`",
        ] {
            assert!(how.contains(word), "{how}");
        }
        told.hears(Event::Released);
        assert_eq!(told.exposed.operator_action("rook-ceph"), None);
        told.hears(Event::WaveDropped {
            reason: Reason::new(Code::OracleSaysNo, ""),
        });
        assert_eq!(may_go(&told, 2), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_keeps_evictions_any_more_no_wave_is_closed() {
        let told = Told::new();
        let limit = Duration::from_secs(1);
        assert!(!told.exposed.wait_until_guarded(limit).await);
        told.exposed.set_guarded(true);
        told.exposed.is_closed(told.wave());
        assert!(told.exposed.wait_until_guarded(limit).await);
        assert!(is_closed_for(&told, &[0, 1]).await);
        told.exposed.set_guarded(false);
        assert!(!told.exposed.wait_until_guarded(limit).await);
        assert!(!is_closed_for(&told, &[0]).await);
    }

    /// The API server may take its time until it shows that the pod goes.
    #[tokio::test(start_paused = true)]
    async fn an_osd_that_was_let_go_a_moment_ago_is_known_to_the_next_wave() {
        let told = Told::new();
        let goes = || told.exposed.evicting_of_kind("osd", &[osd(0), osd(1)]);
        assert!(told.exposed.count_eviction_beside_wave(&osd(2), false).is_err());
        assert_eq!(goes(), None);
        assert_eq!(told.exposed.count_eviction_beside_wave(&osd(0), false), Ok(()));
        assert_eq!(goes(), None, "it is of the wave");
        // Whoever asks once more and is refused leaves the first eviction on its way.
        let mut told = Told::new();
        let dropped = Event::WaveDropped {
            reason: Reason::new(Code::OracleSaysNo, ""),
        };
        told.hears(dropped);
        assert_eq!(told.exposed.count_eviction_beside_wave(&osd(2), false), Ok(()));
        let opened = Event::WaveOpened {
            stage: PartName::new("osd").unwrap(),
            units: vec![(osd(0), revision("old"))],
            not_serving: Vec::new(),
        };
        told.hears(opened);
        assert!(told.exposed.count_eviction_beside_wave(&osd(2), false).is_err());
        assert_eq!(told.exposed.evicting_of_kind("osd", &[osd(0)]), Some(osd(2)));
        let idle = WaveExposure::default();
        assert_eq!(idle.count_eviction_beside_wave(&osd(2), true), Ok(()));
        assert_eq!(
            idle.evicting_of_kind("osd", &[]),
            None,
            "nothing comes of a trial"
        );
        assert_eq!(idle.count_eviction_beside_wave(&osd(2), false), Ok(()));
        assert_eq!(idle.evicting_of_kind("osd", &[osd(0)]), Some(osd(2)));
        tokio::time::advance(ON_ITS_WAY).await;
        assert_eq!(idle.evicting_of_kind("osd", &[osd(0)]), None);
    }

    #[tokio::test]
    async fn who_is_to_be_stopped_once_more_is_exposed_first_and_waits_for_closed_budgets() {
        let told = Told::half_done();
        let mut waves = told.exposed.wave();
        told.exposed.is_closed(Some(BTreeSet::from([0, 1])));
        // Budgets are opened again beside osd.0: from the moment at which that begins they count as open.
        told.exposed.is_changing(&waves.now());
        assert!(!is_closed_for(&told, &[0]).await);
        assert_eq!(waves.now(), Some(BTreeSet::from([0, 1])));
        told.exposed.is_closed(told.wave());
        assert!(is_closed_for(&told, &[0]).await);
        // Nobody else's OSD is ever of the wave.
        assert!(!is_closed_for(&told, &[7]).await);
        assert_eq!(told.wave(), Some(BTreeSet::from([0, 1])));
    }

    #[test]
    fn a_wave_on_its_way_back_is_exposed_until_each_is_back() {
        let mut told = Told::half_done();
        told.hears(Event::WaveFailed {
            units: vec![osd(1)],
            reason: Reason::new(Code::VisitFailed, ""),
            alone: false,
        });
        assert_eq!(told.wave(), Some(BTreeSet::from([0, 1])));
        let back = told.does(Action::GoBack {
            unit: osd(0),
            revision: revision("old"),
            rebuild: false,
        });
        told.settles(back, None);
        assert_eq!(told.wave(), Some(BTreeSet::from([1])));
    }
}
