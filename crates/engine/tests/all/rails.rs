//! A rail of each kind (law 9), through the supervisor: a process is stopped in the middle of a call, another takes its run
//! over, and the call lands at any moment of that. Each rail keeps it from doing harm, and where the rail is off it does some.
//! Time is tokio's, and paused.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use stagger_core::model::Policy;
use stagger_core::run::Ending;
use stagger_engine::clock::{Clock, Moment};
use stagger_engine::cluster::Fencing;
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::supervisor::{self, Identity};
use tokio::time::Instant;

use crate::one_unit::{Begun, OneUnit, Rail, parts};

/// What each call but the late one takes.
const CALL: Duration = Duration::from_secs(1);

/// So long after it began the other process takes the run over.
const TAKEN_OVER: Duration = Duration::from_secs(2);

/// Within this time a call has ended where nothing else keeps it from landing.
const BOUND: Duration = Duration::from_secs(15);

/// The time that tokio has paused.
struct Paused(Instant);

#[async_trait]
impl Clock for Paused {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.uptime()).unwrap()
    }
    fn uptime(&self) -> Duration {
        self.0.elapsed()
    }
    fn moment(&self) -> Moment {
        let (up, wall) = (self.uptime(), self.uptime());
        Moment { up, wall }
    }
    async fn sleep_until(&self, until: Timestamp) {
        let left = until.duration_since(self.now()).max(SignedDuration::ZERO);
        tokio::time::sleep(left.unsigned_abs()).await;
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End {
    /// Whose calls have landed, by their tokens.
    landed: Vec<u64>,
    /// What was done to the unit.
    calls: Vec<String>,
    /// The run of the one after has said so.
    is_done: bool,
    /// It serves on what was wanted.
    serves: bool,
}

impl End {
    /// The holder before had a call land when the one after it had begun.
    fn is_mixed(&self) -> bool {
        let first = self.landed.iter().rposition(|token| *token == 1);
        let second = self.landed.iter().position(|token| *token == 2);
        first > second
    }

    fn is_well(&self) -> bool {
        self.is_done && self.serves
    }

    /// A run is done, and what it has done is undone.
    fn is_harmed(&self) -> bool {
        self.is_done && !self.serves
    }
}

/// Nothing is waited for but calls.
fn hasty() -> Policy {
    Policy {
        soak: 0,
        canary_soak: 0,
        gate_hold: 0,
        ..Policy::default()
    }
}

/// A process is stopped in the middle of a call, which lands so much later; another takes over, and its run is done.
async fn taken_over(fencing: Fencing, rail: Rail, late: Duration) -> End {
    let clock = Arc::new(Paused(Instant::now()));
    let world = Arc::new(OneUnit {
        late: Some(late),
        ..OneUnit::new(clock, fencing, rail)
    });
    let begun = Begun::on(Arc::clone(&world), hasty(), |file| Box::new(file)).await;
    let Begun {
        mut driver,
        _lease: lease,
        folder,
        ..
    } = begun;
    let run = driver.run().start().run.clone();
    let mut signals = NoSignals;
    let mut first = Box::pin(drive(&mut driver, &mut signals));
    let mut stopped = world.stopped.subscribe();
    tokio::select! {
        end = &mut first => panic!("it was not stopped: {end:?}"),
        is = stopped.wait_for(|is| *is) => drop(is.unwrap()),
    }
    // From here on nobody polls what the first process would do.
    let sent = Instant::now();
    tokio::time::sleep(TAKEN_OVER).await;
    let other = Arc::new(world.of_another_process());
    let who = Identity::current_process();
    let parts = parts(&other, &folder, |file| Box::new(file));
    let (mut heir, heirs) = supervisor::resume(parts, &who, &run).await.unwrap();
    let end = drive(&mut heir, &mut NoSignals).await.unwrap();
    let is_done = end == Stopped::Over(Ending::Done);
    // The first wakes up, and finds that it has lost everything.
    tokio::time::sleep_until(sent + late + CALL).await;
    let lost = first.await;
    assert!(lost.is_err(), "{lost:?}");
    drop((lease, heirs));
    let (up, runs, calls) = world.unit.lock().unwrap().clone();
    End {
        landed: world.rail.landed.lock().unwrap().clone(),
        calls,
        is_done,
        serves: up && runs == "2",
    }
}

/// All moments from the taking over on at which the late call may land, each between two others at which something happens.
async fn at_every_moment(fencing: Fencing, rail: impl Fn() -> Rail, until: Duration) -> Vec<End> {
    let half = CALL / 2;
    let mut late = TAKEN_OVER + half / 2;
    let mut ends = Vec::new();
    while late < until {
        ends.push(taken_over(fencing, rail(), late).await);
        late += half;
    }
    assert!(ends.len() > 20, "only {} moments", ends.len());
    ends
}

fn checking() -> Rail {
    Rail {
        checks: true,
        takes: CALL,
        ..Rail::default()
    }
}

fn heedless() -> Rail {
    Rail {
        checks: false,
        ..checking()
    }
}

/// Until the run of the one after is over, and longer.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn a_late_call_is_refused_by_its_token() {
    for end in at_every_moment(Fencing::Fenced, checking, LONG).await {
        assert!(end.is_well(), "{end:?}");
        assert!(!end.landed.contains(&1), "{end:?}");
        assert_eq!(end.calls[0], "fence 2 on u.1", "before anything else: {end:?}");
    }
    let ends = at_every_moment(Fencing::Fenced, heedless, LONG).await;
    assert!(ends.iter().all(|end| end.landed.contains(&1)));
    assert!(
        ends.iter().any(End::is_harmed),
        "where nobody looks at tokens it does harm"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_call_is_refused_by_its_generation() {
    for end in at_every_moment(Fencing::Conditional, checking, LONG).await {
        assert!(end.is_well(), "{end:?}");
        assert!(!end.landed.contains(&1), "{end:?}");
        assert_eq!(
            end.calls[0], "fence 2 on u.1",
            "the generation is another: {end:?}"
        );
    }
    let late = || Rail {
        reads_late: true,
        ..checking()
    };
    for (why, rail) in [
        (
            "where nobody looks at generations",
            &heedless as &dyn Fn() -> Rail,
        ),
        (
            "where the generation is read by who wakes up with the call",
            &late,
        ),
    ] {
        let ends = at_every_moment(Fencing::Conditional, rail, LONG).await;
        assert!(ends.iter().any(End::is_harmed), "{why} it does harm");
    }
}

/// The unit looks at nothing: the one after begins when what was sent has ended.
#[tokio::test(start_paused = true)]
async fn a_late_call_that_is_bounded_has_ended_before_the_next_one_acts() {
    for end in at_every_moment(Fencing::Bounded(BOUND), heedless, BOUND).await {
        assert!(end.is_well(), "{end:?}");
        assert!(end.landed.contains(&1) && !end.is_mixed(), "{end:?}");
    }
    let ends = at_every_moment(Fencing::Bounded(Duration::ZERO), heedless, BOUND).await;
    assert!(
        ends.iter().any(End::is_mixed),
        "without a bound it acts beside the late call"
    );
    assert!(ends.iter().any(End::is_harmed), "and that does harm");
}

/// The longest that a late call can take, and its run is not begun a moment later.
#[tokio::test(start_paused = true)]
async fn what_is_bounded_is_waited_out_from_the_taking_over_on() {
    let begun = Instant::now();
    let latest = (TAKEN_OVER + BOUND).saturating_sub(Duration::from_millis(1));
    let end = taken_over(Fencing::Bounded(BOUND), heedless(), latest).await;
    assert!(end.is_well() && !end.is_mixed(), "{end:?}");
    assert!(begun.elapsed() > TAKEN_OVER + BOUND);
    // A moment more than it said, and it meets the calls of the one after.
    let end = taken_over(Fencing::Bounded(BOUND), heedless(), latest + CALL * 2).await;
    assert!(end.is_mixed(), "{end:?}");
}
