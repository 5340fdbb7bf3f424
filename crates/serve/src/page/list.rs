//! The list of clusters, each with its newest run; then earlier runs.

use std::collections::BTreeSet;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::json;
use stagger_core::model::UnitId;
use stagger_core::view::{RunVerdict, RunView};
use stagger_report::duration;
use stagger_report::names::{compress, fit};
use stagger_report::page::timestamp;

use super::{PageRequest, as_of, document, store_unreachable, summary, verdict_class};
use crate::Shared;
use crate::access::Caller;
use crate::asks::section;
use crate::fragments::parts::{PagePart, full_list, sent};
use crate::problem::ProblemDetails;
use crate::read_error::ReadError;
use crate::runs::{InList, Listing};

/// The maximum length of a list of units, in characters.
const NAMES: usize = 80;

pub(super) async fn page(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, super::PageError> {
    let name = caller.name.clone();
    let asks = section::parts(&shared, &caller).await;
    let (listing, gone) = list_or_cached(&shared, caller).await?;
    let at = gone.as_ref().map_or_else(Timestamp::now, |(_, at)| *at);
    let body = html! {
        header.top { h1 { "Clusters" } (as_of(at, &html! { ", for " (name) })) }
        main data-parts="/parts" {
            @if let Some((why, at)) = &gone { (store_unreachable(why, *at)) }
            (full_list(&all(&listing)))
            (full_list(&asks))
        }
    };
    let status = if gone.is_some() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    Ok((status, document("stagger", &body)).into_response())
}

/// The parts that differ from the reader's.
pub(super) async fn parts(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    wanted: PageRequest,
) -> Result<Response, ProblemDetails> {
    let Query(wanted) = wanted?;
    let asks = section::parts(&shared, &caller).await;
    let listing = shared.runs.list(caller, None).await;
    let mut parts = all(&listing.map_err(|error| ProblemDetails::of(&error))?);
    parts.extend(asks);
    let have = wanted.have.as_deref().unwrap_or_default();
    Ok(Json(json!({ "at": Timestamp::now(), "parts": sent(&parts, have) })).into_response())
}

/// The runs, or what was known of them before the store went away, and why it did.
async fn list_or_cached(
    shared: &Shared,
    caller: Caller,
) -> Result<(Listing, Option<(String, Timestamp)>), ProblemDetails> {
    match shared.runs.list(caller.clone(), None).await {
        Ok(listing) => Ok((listing, None)),
        Err(ReadError::Store(why)) => match shared.runs.last_list(&caller) {
            Some((runs, at)) => {
                let away = Vec::new();
                Ok((Listing { runs, away }, Some((why, at))))
            }
            None => Err(ProblemDetails::of(&ReadError::Store(why))),
        },
        Err(error) => Err(ProblemDetails::of(&error)),
    }
}

/// What needs a person comes first.
fn urgency(run: &InList) -> u8 {
    match run.view.as_ref().map(|view| view.verdict) {
        Err(_) | Ok(RunVerdict::NeedsYou) => 0,
        Ok(RunVerdict::Interrupted) => 1,
        Ok(RunVerdict::Held) => 2,
        Ok(RunVerdict::Running) => 3,
        Ok(RunVerdict::Ended) => 4,
        Ok(RunVerdict::Done) => 5,
    }
}

fn all(Listing { runs, away }: &Listing) -> Vec<PagePart> {
    let mut parts: Vec<PagePart> = away
        .iter()
        .map(|away| {
            let told = html! {
                p.away role="status" { "The runs of " b { (away.store) } " are not in this list: " (away.why) }
            };
            PagePart::new(format!("away-{}", away.store), &told)
        })
        .collect();
    if runs.is_empty() && away.is_empty() {
        let none = html! { p { "There is no run yet. " code { "stagger run" } " starts one." } };
        return vec![PagePart::new("none", &none)];
    }
    let mut clusters = BTreeSet::new();
    let (mut newest, before): (Vec<&InList>, Vec<&InList>) = runs
        .iter()
        .partition(|run| clusters.insert(run.listed.cluster.clone()));
    newest.sort_by_key(|run| (urgency(run), run.listed.cluster.clone()));
    parts.extend(
        newest
            .iter()
            .map(|run| PagePart::new(format!("cluster-{}", run.listed.cluster), &card(run))),
    );
    if !before.is_empty() {
        parts.push(PagePart::new("before", &earlier(&before)));
    }
    parts
}

/// A cluster with its newest run.
fn card(run: &InList) -> Markup {
    let id = run.listed.run.as_str();
    let link = html! { a href={ "/runs/" (id) } { (run.listed.cluster) } };
    match &run.view {
        Ok(view) => html! {
            article.cluster.(verdict_class(view.verdict)) {
                h2 { (link) }
                p.verdict.(verdict_class(view.verdict)) { strong { (view.verdict) } " " (view.why) }
                p { (view.title) }
                (at_work(view))
                p.quiet { code { (id) } ", " (time(view)) }
            }
        },
        Err(error) => html! {
            article.cluster.bad { h2 { (link) } p.verdict.bad { strong { "UNREADABLE" } " " (error.to_string()) } }
        },
    }
}

/// The state of a running run: progress, units out of service, waits.
fn at_work(view: &RunView) -> Markup {
    let waves = view.waves_passed as usize + view.waves_left;
    let out = [
        "entering",
        "changing",
        "leaving",
        "restarting",
        "going back",
        "failed",
    ];
    let units = view.current.iter().flat_map(|current| &current.units);
    let out: Vec<&UnitId> = units
        .filter(|(doing, _)| out.contains(&doing.as_str()))
        .flat_map(|(_, units)| units)
        .collect();
    html! {
        @if view.ending.is_none() {
            p { (view.changed) @if view.changed == 1 { " unit" } @else { " units" } " changed, " (view.waves_passed) " of " (waves) " waves passed" }
            @if !out.is_empty() { p.state.down { b aria-hidden="true" { "▼" } " " (out.len()) " down: " (fit(&compress(out), NAMES)) } }
            @for (gate, why) in view.current.iter().flat_map(|current| &current.shut) { p.state.verifying { b aria-hidden="true" { "◆" } " waits for " (gate) ": " (why) } }
        }
    }
}

fn earlier(runs: &[&InList]) -> Markup {
    html! {
        h2 { "Runs before" }
        table.runs {
            thead { tr { th scope="col" { "run" } th scope="col" { "cluster" } th scope="col" { "verdict" } th scope="col" { "what" } th.number scope="col" { "changed" } th.number scope="col" { "time" } } }
            tbody { @for run in runs { (row(run)) } }
        }
    }
}

fn row(run: &InList) -> Markup {
    let id = run.listed.run.as_str();
    html! {
        tr {
            td { a href={ "/runs/" (id) } { code { (id) } } }
            td { (run.listed.cluster) }
            @match &run.view {
                Ok(view) => {
                    td { span.(verdict_class(view.verdict)) { b { (view.verdict) } } }
                    td { (view.title) br; span.quiet { (view.why) } }
                    td.number { (view.changed) @if view.changed == 1 { " unit" } @else { " units" } }
                    td.number { (time(view)) }
                }
                Err(error) => { td { span.bad { b { "UNREADABLE" } } } td colspan="3" { (error.to_string()) } }
            }
        }
    }
}

/// The duration and end of a run, or its start.
fn time(view: &RunView) -> Markup {
    html! {
        @match view.ended_at {
            Some(ended) => { "took " (duration(ended.duration_since(view.started))) ", until " (timestamp(ended)) " UTC" }
            None => { "started " (timestamp(view.started)) " UTC " (summary::relative(view.started)) }
        }
    }
}
