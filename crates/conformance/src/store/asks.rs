//! Whatever is asked of a store, it answers as lists in memory do.

use std::fmt::Debug;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::Command;
use stagger_engine::store::{JournalStore, StoreError};

use super::lists::ListStore;
use super::{StorePlace, held, start};

/// Something asked of a store. Tokens and places are given by how far they are from the right one.
#[derive(Debug, Clone)]
enum Asked {
    Fence(u8),
    Raise(u8, i8),
    Begin(u8, u8, i8),
    Append(u8, i8, i8, u8),
    Journal(u8),
    Mark(u8, Option<i8>),
    Runs,
    Ask(u8, bool),
    Commands(u8),
    /// So many of those that are open.
    Taken(u8, u8),
    Reopen,
}

fn any_asked(clusters: u8) -> impl Strategy<Value = Asked> {
    let near = || prop_oneof![6 => Just(0_i8), 1 => Just(-1), 1 => Just(1)];
    prop_oneof![
        1 => (0..clusters).prop_map(Asked::Fence),
        3 => (0..clusters, prop_oneof![4 => Just(1_i8), 1 => Just(0), 1 => Just(-1), 1 => Just(5)])
            .prop_map(|(c, by)| Asked::Raise(c, by)),
        4 => (0..clusters, 0..4_u8, near()).prop_map(|(c, r, f)| Asked::Begin(c, r, f)),
        9 => (0..4_u8, near(), near(), 0..4_u8).prop_map(|(r, f, s, n)| Asked::Append(r, f, s, n)),
        2 => (0..4_u8).prop_map(Asked::Journal),
        2 => (0..4_u8, proptest::option::of(near())).prop_map(|(r, s)| Asked::Mark(r, s)),
        1 => Just(Asked::Runs),
        2 => (0..4_u8, any::<bool>()).prop_map(|(r, pause)| Asked::Ask(r, pause)),
        2 => (0..4_u8).prop_map(Asked::Commands),
        2 => (0..4_u8, 0..3_u8).prop_map(|(r, n)| Asked::Taken(r, n)),
        1 => Just(Asked::Reopen),
    ]
}

fn cluster(nth: u8) -> ClusterName {
    ClusterName::new(format!("c{nth}")).unwrap()
}

fn run(nth: u8) -> RunId {
    RunId::new(format!("r{nth}")).unwrap()
}

fn moved(from: u64, by: i8) -> u64 {
    from.saturating_add_signed(by.into())
}

/// What is told, without what differs between stores.
fn told<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(StoreError::FencedOut {
            cluster,
            ours,
            newest,
        }) => format!("{cluster} fenced out: {ours}, {newest}"),
        Err(StoreError::MovedOn { run, expected, found }) => format!("{run} moved on: {expected}, {found}"),
        Err(StoreError::NoRun(run)) => format!("no {run}"),
        Err(_) => "failed".to_owned(),
    }
}

/// Asks, and says what was answered. `lists` knows which tokens and places are right.
async fn ask(store: &mut dyn JournalStore, asked: &Asked, lists: &ListStore, now: i64) -> String {
    let at = Timestamp::from_second(1_000_000_000 + now).unwrap();
    // Holders count from 1.
    let fence = |of: &ClusterName, by: i8| moved(lists.newest(of), by).max(1);
    match asked {
        Asked::Fence(c) => told(store.fence(&cluster(*c)).await),
        Asked::Raise(c, by) => {
            let cluster = cluster(*c);
            told(store.raise(&cluster, fence(&cluster, *by), "holder").await)
        }
        Asked::Begin(c, r, by) => {
            let (cluster, run) = (cluster(*c), run(*r));
            let start = start(&cluster, &run);
            told(store.begin(&cluster, fence(&cluster, *by), at, start).await)
        }
        Asked::Append(r, by, from, count) => {
            let run = run(*r);
            let (token, after) = lists
                .end(&run)
                .map_or((1, 1), |(of, end)| (fence(of, *by), moved(end, *from)));
            let events = (0..*count).map(|nth| held(&nth.to_string())).collect();
            told(store.append(&run, token, after, at, events).await)
        }
        Asked::Journal(r) => told(store.journal(&run(*r)).await),
        Asked::Mark(r, from) => {
            let run = run(*r);
            let at = from.map(|from| lists.end(&run).map_or(1, |(_, end)| moved(end, from)));
            let mark = store.mark(&run, at).await;
            told(mark.map(|mark| mark.map(|mark| mark.seq)))
        }
        Asked::Runs => told(store.runs().await),
        Asked::Ask(r, pause) => {
            let command = if *pause { Command::Pause } else { Command::Abort };
            told(store.ask(&run(*r), at, &command, "anna@ops1").await)
        }
        Asked::Commands(r) => {
            let asked = store.pending_commands(&run(*r)).await;
            told(asked.map(|all| {
                all.into_iter()
                    .map(|(_, what, by)| (what, by))
                    .collect::<Vec<_>>()
            }))
        }
        Asked::Taken(r, count) => {
            let run = run(*r);
            let open = store.pending_commands(&run).await.unwrap();
            match open.get(usize::from(*count)).or(open.last()) {
                Some((id, ..)) => told(store.acknowledge_commands(&run, *id).await),
                None => String::new(),
            }
        }
        Asked::Reopen => String::new(),
    }
}

/// Asks both the same, one thing after another.
async fn compare<P: StorePlace>(place: &P, all: &[Asked]) -> Result<(), TestCaseError> {
    let mut lists = ListStore::default();
    let mut store = place.open(&cluster(0)).await;
    for (now, asked) in (0_i64..).zip(all) {
        if matches!(asked, Asked::Ask(..) | Asked::Commands(_) | Asked::Taken(..)) && !P::KEEPS_COMMANDS {
            continue;
        }
        if matches!(asked, Asked::Reopen) {
            store = place.open(&cluster(0)).await;
        }
        let known = lists.clone();
        let theirs = ask(&mut store, asked, &known, now).await;
        let ours = ask(&mut lists, asked, &known, now).await;
        prop_assert_eq!(theirs, ours, "{:?}", asked);
    }
    Ok(())
}

/// Whatever is asked of a store, it answers as lists in memory do. `empty` makes a place with nothing in it.
///
/// # Panics
/// The law is broken; it says by which questions.
pub fn it_answers_as_lists_do<P: StorePlace>(cases: u32, empty: impl AsyncFn() -> P) {
    let all = proptest::collection::vec(any_asked(P::CLUSTERS), 1..60);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let compared = runner.run(&all, |all| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { compare(&empty().await, &all).await })
    });
    compared.unwrap_or_else(|error| panic!("{error}"));
}
