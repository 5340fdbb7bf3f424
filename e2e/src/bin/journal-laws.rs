//! The journal in ConfigMaps on a real API server: `journal-laws KUBECONFIG`, run inside its sandbox. It has the laws of every
//! store, and keeps to those of ConfigMaps.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use stagger_conformance::store::{has_the_laws, start};
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Ending, Event};
use stagger_engine::store::{JournalStore, StoreError};
use stagger_rook::journal::{CommandQueue, KubeStore, LABEL};

#[path = "../../../crates/backends/rook/src/journal/place.rs"]
mod place;
use place::ConfigMaps;

const NAMESPACE: &str = "rook-ceph";

#[tokio::main]
async fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("use: journal-laws KUBECONFIG")?;
    let file = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    has_the_laws(&ConfigMaps::of(client.clone(), NAMESPACE)).await;
    somebodys_hand_on_a_label_stops_nobody(&client).await?;
    old_journals_go(&client).await?;
    damage_is_found(&client).await
}

fn store(client: &Client, cluster: &str) -> Result<KubeStore> {
    Ok(KubeStore::new(
        client,
        NAMESPACE,
        ClusterName::new(cluster)?,
        CommandQueue::default(),
    ))
}

fn events(count: usize) -> Vec<Event> {
    (0..count)
        .map(|nth| Event::LeaseTaken {
            fence: nth as u64,
            holder: "x".repeat(500),
        })
        .collect()
}

/// Begins a run under the token 1.
async fn begun(client: &Client, cluster: &str) -> Result<(KubeStore, RunId)> {
    let mut store = store(client, cluster)?;
    let name = ClusterName::new(cluster)?;
    store.raise(&name, 1, "first").await?;
    let run = RunId::new("r1")?;
    store
        .begin(&name, 1, Timestamp::now(), start(&name, &run))
        .await?;
    Ok((store, run))
}

async fn chunks(client: &Client, cluster: &str) -> Result<(Api<ConfigMap>, Vec<String>)> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let all = maps
        .list(&ListParams::default().labels(&format!("{LABEL}={cluster}")))
        .await?;
    let names = all.items.iter().map(ResourceExt::name_any);
    Ok((maps.clone(), names.filter(|name| name.contains("-r1-")).collect()))
}

async fn somebodys_hand_on_a_label_stops_nobody(client: &Client) -> Result<()> {
    let (mut store, run) = begun(client, "laws-c").await?;
    let (maps, chunks) = chunks(client, "laws-c").await?;
    let patch = json!({ "metadata": { "labels": { "seen-by": "anna" } } });
    maps.patch(&chunks[0], &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    store.append(&run, 1, 1, Timestamp::now(), events(1)).await?;
    ensure!(store.journal(&run).await?.len() == 2, "the event is not there");
    Ok(())
}

/// Those of runs that are over go, the newest ones and what is not over stay, and so does what a newer holder
/// has made and not linked yet.
async fn old_journals_go(client: &Client) -> Result<()> {
    let mut store = store(client, "laws-e")?;
    let name = ClusterName::new("laws-e")?;
    store.raise(&name, 1, "first").await?;
    for run in ["r1", "r2", "r3", "r4", "r5"] {
        let run = RunId::new(run)?;
        store
            .begin(&name, 1, Timestamp::now(), start(&name, &run))
            .await?;
        if run.as_str() != "r2" {
            let outcome = Ending::Done;
            let mut more = if run.as_str() == "r1" {
                events(401)
            } else {
                Vec::new()
            };
            more.push(Event::Ended { outcome });
            store.append(&run, 1, 1, Timestamp::now(), more).await?;
        }
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let stray = async |fence: u64| -> Result<()> {
        let map = json!({
            "metadata": { "name": format!("stagger-laws-e-r9-000000-{fence}"), "labels": { LABEL: "laws-e" } },
        });
        maps.create(&PostParams::default(), &serde_json::from_value(map)?)
            .await?;
        Ok(())
    };
    stray(1).await?;
    stray(2).await?;
    store.prune(1, 2).await?;
    let kept: BTreeSet<String> = store
        .runs()
        .await?
        .into_iter()
        .map(|listed| listed.run.to_string())
        .collect();
    ensure!(kept == ["r2", "r4", "r5"].map(str::to_owned).into(), "{kept:?}");
    let all = maps
        .list(&ListParams::default().labels(&format!("{LABEL}=laws-e")))
        .await?;
    let chunks: BTreeSet<String> = all.items.iter().map(ResourceExt::name_any).collect();
    let expected = ["", "-r2-000000-1", "-r4-000000-1", "-r5-000000-1", "-r9-000000-2"];
    ensure!(
        chunks == expected.map(|rest| format!("stagger-laws-e{rest}")).into(),
        "{chunks:?}"
    );
    Ok(())
}

/// Also what no law of every store knows: a line that is none, and a chunk that is gone. Mended it is read.
async fn damage_is_found(client: &Client) -> Result<()> {
    let (mut store, run) = begun(client, "laws-d").await?;
    store.append(&run, 1, 1, Timestamp::now(), events(5)).await?;
    let (maps, chunks) = chunks(client, "laws-d").await?;
    let whole = maps.get(&chunks[0]).await?;
    let text = whole.data.as_ref().context("no data")?["event-00000004"].clone();
    for bad in ["nonsense", &text] {
        let patch = json!({ "data": { "event-00000004": bad } });
        maps.patch(&chunks[0], &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        match store.journal(&run).await {
            Err(StoreError::Damaged { last_good: 3, .. }) if bad != text => {}
            Ok(mended) if bad == text && mended.len() == 6 => {}
            other => bail!("with {bad} the journal reads as {other:?}"),
        }
    }
    maps.delete(&chunks[0], &DeleteParams::default()).await?;
    match store.journal(&run).await {
        Err(StoreError::Damaged { last_good: 0, .. }) => Ok(()),
        other => bail!("without its chunk the journal reads as {other:?}"),
    }
}
