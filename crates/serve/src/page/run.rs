//! The page of a run: first what an operator has to know, then what may be asked, then what happened.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use maud::{Markup, html};
use serde_json::json;
use stagger_core::model::RunId;
use stagger_report::page::{Report, clock, figures, sections};

use super::parts::{Part, sent, whole};
use super::units::Map;
use super::{Sorry, Wanted, as_of, away, controls, document, glance, journal, tone, unit};
use crate::Shared;
use crate::access::{Caller, Role};
use crate::api::{OfRun, permitted};
use crate::problem::Problem;
use crate::runs::Seen;

/// What stands above the map, beside it, and below it.
struct Parts {
    above: Vec<Part>,
    counts: Part,
    unit: Part,
    below: Vec<Part>,
    lines: Part,
}

impl Parts {
    /// In the order of the page.
    fn in_order(self) -> Vec<Part> {
        let mut all = self.above;
        all.extend([self.counts, self.unit]);
        all.extend(self.below);
        all.push(self.lines);
        all
    }
}

pub(super) async fn page(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: OfRun,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Sorry> {
    let Path(run) = run.map_err(Problem::from)?;
    let (seen, gone) = known(&shared, &caller, &run).await?;
    let title = title(&seen);
    let map = Map::of(&seen.journal.reading.history);
    let parts = all(&seen, &caller, &map, &wanted);
    let written = seen.journal.reading.history.last;
    let body = html! {
        a.skip href="#now" { "To what it is at" } a.skip href="#units" { "To the units" } a.skip href="#journal" { "To the journal" }
        header.top {
            nav aria-label="pages" { a href="/" { "all clusters" } }
            (as_of(seen.at, &html! { "; event " (seen.view.seq) ", written " (clock(written)) " " (glance::relative(written)) }))
        }
        p.hidden #news role="status" {}
        main #run data-parts={ "/runs/" (run) "/parts" } data-stream={ "/v1/runs/" (run) "/stream" } data-seq=(seen.view.seq) {
            div #away { @if let Some(why) = &gone { (away(why, seen.at)) } }
            div #now { (whole(&parts.above)) }
            section #units aria-label="units" {
                h2 { "Units" }
                (parts.counts.whole())
                (map.whole(run.as_str()))
                form #find method="get" aria-label="unit" {
                    label { "Explain unit " input name="unit" value=(wanted.unit().unwrap_or_default()) placeholder="osd.17" autocomplete="off"; }
                    button { "Explain" }
                }
                p.quiet.script { "In the map: arrows move, Enter explains, Esc closes." }
                (parts.unit.whole())
            }
            (whole(&parts.below))
            section #journal aria-label="journal" {
                h2 { "Journal" }
                (journal::filters(&wanted))
                (parts.lines.whole())
            }
        }
        footer { "stagger " (env!("CARGO_PKG_VERSION")) ", from the journal of run " (run) }
    };
    let status = if gone.is_some() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    Ok((status, document(&title, &body)).into_response())
}

/// The run, or as it was before the store went away, and why that did.
async fn known(shared: &Shared, caller: &Caller, run: &RunId) -> Result<(Seen, Option<String>), Problem> {
    let problem = match permitted(shared, caller, run, Role::Look).await {
        Ok(seen) => return Ok((seen, None)),
        Err(problem) => problem,
    };
    // Only a store that is away leaves somebody without news; whoever may not look does not.
    if problem.status() != StatusCode::SERVICE_UNAVAILABLE {
        return Err(problem);
    }
    match shared
        .runs
        .last(run)
        .filter(|seen| caller.may(Role::Look, &seen.view.cluster))
    {
        Some(seen) => Ok((seen, Some(problem.detail().to_owned()))),
        None => Err(problem),
    }
}

fn title(seen: &Seen) -> String {
    format!("{} · {}", seen.view.verdict, seen.view.cluster)
}

/// The parts that are not as whoever asks has them, and the states of the units.
pub(super) async fn parts(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: OfRun,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    let Path(run) = run?;
    let seen = permitted(&shared, &caller, &run, Role::Look).await?;
    let map = Map::of(&seen.journal.reading.history);
    let parts = all(&seen, &caller, &map, &wanted).in_order();
    let have = wanted.have.as_deref().unwrap_or_default();
    let answer = json!({
        "at": seen.at,
        "seq": seen.view.seq,
        "written": seen.journal.reading.history.last,
        "title": title(&seen),
        "why": glance::why(&seen),
        "states": map.states(),
        "parts": sent(&parts, have),
    });
    Ok(Json(answer).into_response())
}

/// The names of the units, for a script that draws them.
pub(super) async fn map(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: OfRun,
) -> Result<Response, Problem> {
    let Path(run) = run?;
    let seen = permitted(&shared, &caller, &run, Role::Look).await?;
    let map = Map::of(&seen.journal.reading.history);
    Ok(Json(map.layout()).into_response())
}

fn all(seen: &Seen, caller: &Caller, map: &Map<'_>, wanted: &Wanted) -> Parts {
    let reading = &seen.journal.reading;
    let explained = wanted
        .unit()
        .map(|name| unit::unit(seen, name))
        .unwrap_or_default();
    let below = match seen.journal.verification() {
        Some(verification) => sections(&Report {
            view: &seen.view,
            history: &reading.history,
            verification,
            lines: &[],
            broken: None,
            version: env!("CARGO_PKG_VERSION"),
        }),
        None => Vec::new(),
    };
    Parts {
        above: vec![
            Part::new("verdict", &verdict(seen)),
            Part::new("glance", &glance::glance(seen)),
            Part::new("controls", &controls::controls(seen, caller)),
            Part::new("figures", &figures(&seen.view, &reading.history)),
        ],
        counts: Part::new("counts", &map.counts()),
        unit: Part::new("unit", &explained),
        below: below
            .iter()
            .map(|(name, content)| Part::new(name.as_str(), content))
            .collect(),
        lines: Part::new("lines", &journal::lines(&reading.lines, wanted)),
    }
}

fn verdict(seen: &Seen) -> Markup {
    let view = &seen.view;
    html! {
        p.verdict.(tone(view.verdict)) { strong { (view.verdict) } " " (glance::why(seen)) }
        h1 { (view.title) }
        p.where { "cluster " b { (view.cluster) } ", run " code { (view.run) } }
    }
}
