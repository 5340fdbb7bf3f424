//! What of journals in ConfigMaps only a fake API server can show, and the laws of every store on it.

use stagger_conformance::store::{Damage, StorePlace as _, has_the_laws, it_answers_as_lists_do, start};
use stagger_core::run::Ending;

use super::place::ConfigMaps;
use super::*;
use crate::api::fake::FakeApi;

const MAPS: &str = "/api/v1/namespaces/n/configmaps";

fn place() -> (FakeApi, ConfigMaps) {
    let api = FakeApi::default();
    api.keeps(MAPS, Vec::new());
    let maps = ConfigMaps::of(api.client(), "n");
    (api, maps)
}

#[tokio::test]
async fn it_has_the_laws_of_every_store() {
    has_the_laws(&place().1).await;
}

#[test]
fn it_answers_as_memory_does() {
    it_answers_as_lists_do(60, async || place().1);
}

/// A call made the first chunk and was dropped before it was linked; the same holder begins the run once more.
#[tokio::test]
async fn what_a_call_has_left_that_was_cut_short_is_no_part_of_a_journal() {
    let (api, place) = place();
    let (cluster, run) = (ClusterName::new("c").unwrap(), RunId::new("r").unwrap());
    let left = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "stagger-c-r-000000-1" },
        "data": { "fence": "1", "event-00000001": "of another time" } });
    api.keeps(MAPS, vec![left]);
    let mut store = place.open(&cluster).await;
    store.raise(&cluster, 1, "h").await.unwrap();
    let at = Timestamp::UNIX_EPOCH;
    let begun = store.begin(&cluster, 1, at, start(&cluster, &run)).await.unwrap();
    let more = store.append(&run, 1, 1, at, vec![Event::Released]).await.unwrap();
    let read = place.open(&cluster).await.journal(&run).await.unwrap();
    assert_eq!(read, [vec![begun], more].concat());
}

/// Whoever takes over writes to every journal, and prunes them.
#[tokio::test]
async fn a_damaged_journal_of_a_run_that_is_over_stops_nobody() {
    let (api, place) = place();
    let (cluster, run) = (ClusterName::new("c").unwrap(), RunId::new("r").unwrap());
    let mut store = place.open(&cluster).await;
    store.raise(&cluster, 1, "h").await.unwrap();
    let at = Timestamp::UNIX_EPOCH;
    store.begin(&cluster, 1, at, start(&cluster, &run)).await.unwrap();
    let ended = Event::Ended {
        outcome: Ending::Done,
    };
    let events = vec![Event::Released, ended];
    store.append(&run, 1, 1, at, events).await.unwrap();
    place.damage(&cluster, &run, 2, Damage::Gone).await;

    let mut next = place.open(&cluster).await;
    next.raise(&cluster, 2, "h").await.unwrap();
    assert_eq!(next.fence(&cluster).await.unwrap(), 2);
    next.prune(2, 0).await.unwrap();
    assert!(next.runs().await.unwrap().is_empty());
    assert_eq!(api.object(MAPS, "stagger-c-r-000000-1"), None);
}

#[test]
fn an_older_operator_is_outranked_and_so_is_one_that_cannot_tell() {
    let told = |theirs: Option<&str>| {
        let data = theirs.map(|theirs| json!({ OPERATOR: theirs }));
        let head = json!({ "metadata": { "name": "stagger-c" }, "data": data });
        outranked(&Version::new(0, 2, 0), &serde_json::from_value(head).unwrap())
    };
    for good in [None, Some("0.1.9"), Some("0.2.0"), Some("0.2.0-rc.1")] {
        assert_eq!(told(good), None, "{good:?}");
    }
    for newer in ["0.2.1", "0.10.0", "1.0.0-rc.1", "next", ""] {
        let why = told(Some(newer)).unwrap();
        assert!(
            why.contains(newer) && why.contains("0.2.0") && why.contains("ConfigMap stagger-c"),
            "{why}"
        );
    }
}
