//! The journal in ConfigMaps on a real API server: `journal-laws KUBECONFIG`, run inside its sandbox.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use stagger_core::model::{ClusterName, Policy, RunId, Target};
use stagger_core::run::{Ending, Event, Start};
use stagger_engine::store::{JournalStore, StoreError};
use stagger_rook::journal::{CommandQueue, KubeStore, LABEL};

const NAMESPACE: &str = "rook-ceph";

#[tokio::main]
async fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("use: journal-laws KUBECONFIG")?;
    let file = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    what_is_appended_is_read(&client).await?;
    an_older_holder_is_fenced_out_at_every_place(&client).await?;
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

fn start(cluster: &str, run: &str) -> Result<Event> {
    Ok(Event::Started(Box::new(Start {
        version: stagger_core::run::VERSION,
        run: RunId::new(run)?,
        cluster: ClusterName::new(cluster)?,
        target: Target {
            title: "nothing".to_owned(),
            parts: Vec::new(),
            only: None,
        },
        policy: Policy::default(),
        identity: None,
        baseline: json!(null),
        topology: stagger_core::model::Topology::default(),
    })))
}

fn events(count: usize) -> Vec<Event> {
    (0..count)
        .map(|nth| Event::LeaseTaken {
            fence: nth as u64,
            holder: "x".repeat(500),
        })
        .collect()
}

/// Begins a run with that token.
async fn begun(client: &Client, cluster: &str, fence: u64) -> Result<(KubeStore, RunId)> {
    let mut store = store(client, cluster)?;
    let name = ClusterName::new(cluster)?;
    store.raise(&name, fence, "first").await?;
    store
        .begin(&name, fence, Timestamp::now(), start(cluster, "r1")?)
        .await?;
    Ok((store, RunId::new("r1")?))
}

async fn what_is_appended_is_read(client: &Client) -> Result<()> {
    let (mut store, run) = begun(client, "laws-a", 1).await?;
    let mut seq = 1;
    // Over several chunks, by number and by size.
    for count in [1, 2, 300, 150, 1, 200] {
        let written = store
            .append(&run, 1, seq, Timestamp::now(), events(count))
            .await?;
        ensure!(written.len() == count && written[0].seq == seq + 1, "{written:?}");
        seq += count as u64;
    }
    match store.append(&run, 1, seq - 1, Timestamp::now(), events(1)).await {
        Err(StoreError::MovedOn { found, .. }) if found == seq => {}
        other => bail!("an append behind the end came to {other:?}"),
    }
    let other = self::store(client, "laws-a")?;
    let read = other.journal(&run).await?;
    ensure!(
        read.len() as u64 == seq,
        "{} of {seq} events are read",
        read.len()
    );
    ensure!(
        other.fence(&ClusterName::new("laws-a")?).await? == 1,
        "the token is not kept"
    );
    let runs = other.runs().await?;
    ensure!(runs.len() == 1 && runs[0].run == run, "{runs:?}");
    // Whoever keeps the lock tells the cluster of the journal's end, which must not take a question.
    let beside = store
        .beside()
        .await?
        .context("the store is to be had only once")?;
    store.append(&run, 1, seq, Timestamp::now(), events(1)).await?;
    let (told, read) = (beside.mark(&run, None).await?, other.mark(&run, None).await?);
    ensure!(
        told.as_ref().is_some_and(|mark| mark.seq == seq + 1) && told == read,
        "{told:?} is told, and {read:?} is read"
    );
    let before = other.mark(&run, Some(seq)).await?;
    ensure!(before.is_some() && before != read, "{before:?}");
    ensure!(
        other.mark(&run, Some(seq + 2)).await?.is_none(),
        "an event that never was has a mark"
    );
    Ok(())
}

/// Also where the holder before stands at the end of a full chunk, and in the midst of beginning another.
async fn an_older_holder_is_fenced_out_at_every_place(client: &Client) -> Result<()> {
    for (nth, before) in [0_usize, 1, 399, 400, 401].into_iter().enumerate() {
        let cluster = format!("laws-b{nth}");
        let (mut old, run) = begun(client, &cluster, 1).await?;
        let mut seq = 1;
        if before > 0 {
            old.append(&run, 1, seq, Timestamp::now(), events(before)).await?;
            seq += before as u64;
        }
        let mut new = store(client, &cluster)?;
        let name = ClusterName::new(&cluster)?;
        new.raise(&name, 2, "second").await?;
        match old.append(&run, 1, seq, Timestamp::now(), events(1)).await {
            Err(StoreError::FencedOut { newest: 2, .. }) => {}
            other => bail!("after {before} events an older holder's append came to {other:?}"),
        }
        match old
            .begin(&name, 1, Timestamp::now(), start(&cluster, "r2")?)
            .await
        {
            Err(StoreError::FencedOut { newest: 2, .. }) => {}
            other => bail!("an older holder's new run came to {other:?}"),
        }
        match old.raise(&name, 2, "first again").await {
            Err(StoreError::FencedOut { .. }) => {}
            other => bail!("the same token was raised twice: {other:?}"),
        }
        new.append(&run, 2, seq, Timestamp::now(), events(3)).await?;
        let read = new.journal(&run).await?;
        ensure!(read.len() as u64 == seq + 3, "{} events are read", read.len());
    }
    Ok(())
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
    let (mut store, run) = begun(client, "laws-c", 1).await?;
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
        store
            .begin(&name, 1, Timestamp::now(), start("laws-e", run)?)
            .await?;
        if run != "r2" {
            let outcome = Ending::Done;
            let run = RunId::new(run)?;
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

async fn damage_is_found(client: &Client) -> Result<()> {
    let (mut store, run) = begun(client, "laws-d", 1).await?;
    store.append(&run, 1, 1, Timestamp::now(), events(5)).await?;
    let (maps, chunks) = chunks(client, "laws-d").await?;
    let whole = maps.get(&chunks[0]).await?;
    let text = whole.data.as_ref().context("no data")?["event-00000004"].clone();
    let put = async |value: serde_json::Value| {
        let patch = json!({ "data": { "event-00000004": value } });
        maps.patch(&chunks[0], &PatchParams::default(), &Patch::Merge(&patch))
            .await
    };
    for bad in [json!(text.replace('x', "y")), json!(null), json!("nonsense")] {
        put(bad.clone()).await?;
        match store.journal(&run).await {
            Err(StoreError::Damaged { last_good: 3, .. }) => {}
            other => bail!("with {bad} the journal reads as {other:?}"),
        }
    }
    put(json!(text)).await?;
    ensure!(store.journal(&run).await?.len() == 6, "mended, it is not read");
    maps.delete(&chunks[0], &DeleteParams::default()).await?;
    match store.journal(&run).await {
        Err(StoreError::Damaged { last_good: 0, .. }) => Ok(()),
        other => bail!("without its chunk the journal reads as {other:?}"),
    }
}
