//! Prometheus metrics of the newest run of each cluster.

use std::sync::atomic::AtomicU64;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderName, header};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stagger_core::view::RunVerdict;

use crate::Shared;
use crate::access::Caller;
use crate::problem::ProblemDetails;
use crate::runs::{InList, Listing};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const VERDICTS: [RunVerdict; 6] = [
    RunVerdict::Running,
    RunVerdict::Held,
    RunVerdict::Interrupted,
    RunVerdict::NeedsYou,
    RunVerdict::Done,
    RunVerdict::Ended,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    cluster: String,
    run: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    cluster: String,
    run: String,
    verdict: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStore {
    store: String,
}

type OfRuns = Family<RunLabels, Gauge>;
type Moments = Family<RunLabels, Gauge<f64, AtomicU64>>;

pub(crate) async fn metrics(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Result<([(HeaderName, &'static str); 1], String), ProblemDetails> {
    let sees_all = caller.clusters.is_none();
    let newest = shared.runs.newest(caller).await;
    let Listing { runs, away } = newest.map_err(|error| ProblemDetails::of(&error))?;
    // Where stores are is for those who see all that is in them.
    let names = shared.runs.stores.names().filter(|_| sees_all);
    let answer = names.map(|name| (name, away.iter().all(|away| away.store != name)));
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text(&runs, answer)))
}

/// `stores`: each with whether it answers.
fn text<'a>(newest: &[InList], stores: impl Iterator<Item = (&'a str, bool)>) -> String {
    let mut all = Registry::with_prefix("stagger");
    let up = Family::<OfStore, Gauge>::default();
    all.register("store_up", "Whether a store of runs is reachable", up.clone());
    for (name, answers) in stores {
        let of = OfStore {
            store: name.to_owned(),
        };
        up.get_or_create(&of).set(i64::from(answers));
    }
    let registry = all.sub_registry_with_prefix("run");
    let verdict = Family::<VerdictLabels, Gauge>::default();
    registry.register(
        "verdict",
        "1 for the verdict of the newest run of a cluster",
        verdict.clone(),
    );
    let readable = OfRuns::default();
    registry.register(
        "readable",
        "Whether the journal of the run can be read",
        readable.clone(),
    );
    let changed = OfRuns::default();
    registry.register("changed_units", "Units that the run has changed", changed.clone());
    let passed = OfRuns::default();
    registry.register("passed_waves", "Waves that have passed", passed.clone());
    let left = OfRuns::default();
    registry.register("left_waves", "Waves that are still planned", left.clone());
    let skipped = OfRuns::default();
    registry.register("skipped_units", "Units that the run skips", skipped.clone());
    let seconds = OfRuns::default();
    registry.register("left_seconds", "Forecast of what is left", seconds.clone());
    let started = Moments::default();
    registry.register(
        "started_timestamp_seconds",
        "When the run started",
        started.clone(),
    );
    for run in newest {
        let of = RunLabels {
            cluster: run.listed.cluster.to_string(),
            run: run.listed.run.to_string(),
        };
        readable.get_or_create(&of).set(i64::from(run.view.is_ok()));
        let Ok(view) = &run.view else {
            continue;
        };
        for each in VERDICTS {
            let of = VerdictLabels {
                cluster: of.cluster.clone(),
                run: of.run.clone(),
                verdict: each.to_string().to_lowercase().replace(' ', "-"),
            };
            verdict.get_or_create(&of).set(i64::from(each == view.verdict));
        }
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        changed.get_or_create(&of).set(count(view.changed));
        passed.get_or_create(&of).set(i64::from(view.waves_passed));
        left.get_or_create(&of).set(count(view.waves_left));
        let aside: usize = view.left_alone.iter().map(|group| group.count).sum();
        skipped.get_or_create(&of).set(count(aside));
        seconds.get_or_create(&of).set(view.seconds_left);
        started
            .get_or_create(&of)
            .set(view.started.as_duration().as_secs_f64());
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    encode(&mut text, &all).ok();
    text
}
