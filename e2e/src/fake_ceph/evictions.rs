//! How long the API server takes to say whether a pod may be evicted: with the operator's webhook, and without it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use super::deployments::NAMESPACE;

/// How often it is asked, each time.
pub(super) const QUESTIONS: usize = 1000;
/// How many questions are under way at once.
const AT_ONCE: usize = 8;
/// The webhook's configuration, and its name in that.
const CONFIGURATION: &str = "stagger-evictions";
const WEBHOOK: &str = "evictions.stagger.dev";
/// By what the API server counts how long webhooks took, in cumulative buckets.
const SERIES: &str = "apiserver_admission_webhook_admission_duration_seconds_bucket{";
/// So many questions are asked at most until the API server has noticed that there is no webhook.
const NOTICED: usize = 1000;

/// What was measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Evictions {
    /// Microseconds from each question to its answer.
    asked_us: Vec<u128>,
    /// The same while there is no webhook.
    alone_us: Vec<u128>,
    /// How many of the questions the webhook answered within so many milliseconds, by the API server's clock.
    webhook_within_ms: BTreeMap<u64, u64>,
}

/// Asks about the pods of OSDs in turn. Nothing comes of it: each question is a dry run.
///
/// # Errors
/// An answer is another than yes or not now, or the webhook is asked without its configuration.
pub(super) async fn measure(client: &Client) -> Result<Evictions> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of_osds = ListParams::default().labels("app=rook-ceph-osd");
    let all = pods.list(&of_osds).await.context("listing the pods of OSDs")?;
    let names: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();

    let before = buckets(client).await?;
    let asked_us = asked(&pods, &names, QUESTIONS).await?;
    let after = buckets(client).await?;
    let within = after
        .iter()
        .map(|(limit, count)| (*limit, count - before.get(limit).copied().unwrap_or(0)));

    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mut configuration = configurations
        .get(CONFIGURATION)
        .await
        .context("reading the webhook's configuration")?;
    configurations
        .delete(CONFIGURATION, &DeleteParams::default())
        .await
        .context("taking the webhook away")?;
    gone(client, &pods, &names).await?;
    let alone_us = asked(&pods, &names, QUESTIONS).await?;
    configuration.metadata.resource_version = None;
    configuration.metadata.uid = None;
    configurations
        .create(&PostParams::default(), &configuration)
        .await
        .context("giving the webhook back")?;
    Ok(Evictions {
        asked_us,
        alone_us,
        webhook_within_ms: within.collect(),
    })
}

/// Asks until the API server asks the webhook no more.
async fn gone(client: &Client, pods: &Api<Pod>, names: &[String]) -> Result<()> {
    let mut count = buckets(client).await?;
    for _ in 0..NOTICED / AT_ONCE {
        asked(pods, names, AT_ONCE).await?;
        let now = buckets(client).await?;
        if now == count {
            return Ok(());
        }
        count = now;
    }
    ensure!(false, "the API server asks a webhook that has no configuration");
    Ok(())
}

/// How long each of so many questions took, in microseconds.
async fn asked(pods: &Api<Pod>, names: &[String], times: usize) -> Result<Vec<u128>> {
    let params = EvictParams {
        post_options: PostParams {
            dry_run: true,
            ..PostParams::default()
        },
        ..EvictParams::default()
    };
    stream::iter(names.iter().cycle().take(times))
        .map(|pod| async {
            let begun = Instant::now();
            match pods.evict(pod, &params).await {
                Ok(_) => Ok(begun.elapsed().as_micros()),
                Err(kube::Error::Api(answer)) if answer.code == 429 => Ok(begun.elapsed().as_micros()),
                Err(error) => Err(error).context("asking for an eviction"),
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// How many questions the webhook has answered within so many milliseconds, ever.
async fn buckets(client: &Client) -> Result<BTreeMap<u64, u64>> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client
        .request_text(request)
        .await
        .context("asking the API server for its metrics")?;
    Ok(buckets_of(&text))
}

fn buckets_of(metrics: &str) -> BTreeMap<u64, u64> {
    let mut buckets = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with(SERIES)) {
        let Some((labels, count)) = line.rsplit_once("} ") else {
            continue;
        };
        let limit = labels
            .split_once("le=\"")
            .and_then(|(_, rest)| rest.split('"').next()?.parse().ok())
            // The last one has no limit.
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .and_then(|limit| u64::try_from(limit.as_millis()).ok());
        let count: Option<u64> = count.trim().parse().ok();
        if let (true, Some(limit), Some(count)) = (labels.contains(WEBHOOK), limit, count) {
            *buckets.entry(limit).or_insert(0) += count;
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_of_one_webhook_are_added_up() {
        let series = |name: &str, rejected: &str, le: &str, count: u64| {
            format!(
                "{SERIES}name=\"{name}\",operation=\"CREATE\",rejected=\"{rejected}\",type=\"validating\",le=\"{le}\"}} {count}\n"
            )
        };
        let text = [
            series(WEBHOOK, "false", "0.025", 7),
            series(WEBHOOK, "true", "0.025", 1),
            series(WEBHOOK, "false", "0.1", 9),
            series(WEBHOOK, "false", "+Inf", 10),
            series("another.example.org", "false", "0.1", 99),
            "apiserver_requests 5\n".to_owned(),
        ];
        assert_eq!(buckets_of(&text.concat()), BTreeMap::from([(25, 8), (100, 9)]));
    }
}
