//! The page of a run: first what an operator must know, then the commands, then the history.

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use maud::{Markup, html};
use serde_json::json;
use stagger_core::model::RunId;
use stagger_report::page::{clock, figures};

use super::{
    PageError, PageQuery, PageRequest, as_of, controls, document, journal, store_unreachable, summary, unit,
    verdict_class,
};
use crate::Shared;
use crate::access::{Caller, Role};
use crate::fragments::PageFragments;
use crate::fragments::parts::{PagePart, full_list, sent};
use crate::problem::ProblemDetails;
use crate::run_path::{RunPath, authorized_run};
use crate::runs::ReadRun;

/// Parts that depend on who looks, when, and at what.
struct Parts {
    above: Vec<PagePart>,
    unit: PagePart,
    lines: PagePart,
}

impl Parts {
    /// With those that depend on the journal alone, in the order of the page.
    fn in_order<'a>(&'a self, drawn: &'a PageFragments) -> impl Iterator<Item = &'a PagePart> {
        let beside = [&drawn.counts, &self.unit];
        self.above
            .iter()
            .chain(beside)
            .chain(&drawn.sections)
            .chain([&self.lines])
    }
}

pub(super) async fn page(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
    wanted: PageRequest,
) -> Result<Response, PageError> {
    let Path(run) = run.map_err(ProblemDetails::from)?;
    let Query(wanted) = wanted.map_err(ProblemDetails::from)?;
    let (seen, gone) = run_or_cached(&shared, &caller, &run).await?;
    let title = title(&seen);
    let drawn = seen.journal.drawn();
    let parts = all(&seen, &caller, &wanted);
    let written = seen.journal.reading.history.last;
    let body = html! {
        a.skip href="#now" { "To the current state" } a.skip href="#units" { "To the units" } a.skip href="#journal" { "To the journal" }
        header.top {
            nav aria-label="pages" { a href="/" { "all clusters" } }
            (as_of(seen.at, &html! { "; event " (seen.view.seq) ", written " (clock(written)) " " (summary::relative(written)) }))
        }
        p.hidden #news role="status" {}
        main #run data-parts={ "/runs/" (run) "/parts" } data-stream={ "/v1/runs/" (run) "/stream" } data-seq=(seen.view.seq) {
            div #away { @if let Some(why) = &gone { (store_unreachable(why, seen.at)) } }
            div #now { (full_list(&parts.above)) }
            section #units aria-label="units" {
                h2 { "Units" }
                (drawn.counts.full())
                (drawn.map)
                form #find method="get" aria-label="unit" {
                    label { "Explain unit " input name="unit" value=(wanted.unit().unwrap_or_default()) placeholder="osd.17" autocomplete="off"; }
                    button { "Explain" }
                }
                p.quiet.script { "In the map: arrows move, Enter explains, Esc closes." }
                (parts.unit.full())
            }
            (full_list(&drawn.sections))
            section #journal aria-label="journal" {
                h2 { "Journal" }
                (journal::filters(&wanted))
                (parts.lines.full())
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
async fn run_or_cached(
    shared: &Shared,
    caller: &Caller,
    run: &RunId,
) -> Result<(ReadRun, Option<String>), ProblemDetails> {
    let problem = match authorized_run(shared, caller, run, Role::Look).await {
        Ok(seen) => return Ok((seen, None)),
        Err(problem) => problem,
    };
    // The cached view is shown only for an unreachable store; a caller without permission gets nothing.
    if problem.status() != StatusCode::SERVICE_UNAVAILABLE {
        return Err(problem);
    }
    match shared
        .runs
        .last(run)
        .filter(|seen| caller.has_role(Role::Look, &seen.view.cluster))
    {
        Some(seen) => Ok((seen, Some(problem.detail().to_owned()))),
        None => Err(problem),
    }
}

fn title(seen: &ReadRun) -> String {
    format!("{} · {}", seen.view.verdict, seen.view.cluster)
}

/// The parts that differ from the reader's, and the states of the units.
pub(super) async fn parts(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
    wanted: PageRequest,
) -> Result<Response, ProblemDetails> {
    let (Path(run), Query(wanted)) = (run?, wanted?);
    let seen = authorized_run(&shared, &caller, &run, Role::Look).await?;
    let drawn = seen.journal.drawn();
    let parts = all(&seen, &caller, &wanted);
    let have = wanted.have.as_deref().unwrap_or_default();
    let answer = json!({
        "at": seen.at,
        "seq": seen.view.seq,
        "written": seen.journal.reading.history.last,
        "title": title(&seen),
        "why": summary::verdict_reason(&seen),
        "states": drawn.states,
        "parts": sent(parts.in_order(drawn), have),
    });
    Ok(Json(answer).into_response())
}

/// The names of the units, for a script that draws them.
pub(super) async fn map(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
) -> Result<Response, ProblemDetails> {
    let Path(run) = run?;
    let seen = authorized_run(&shared, &caller, &run, Role::Look).await?;
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, seen.journal.drawn().layout.clone()).into_response())
}

fn all(seen: &ReadRun, caller: &Caller, wanted: &PageQuery) -> Parts {
    let reading = &seen.journal.reading;
    let explained = wanted
        .unit()
        .map(|name| unit::unit(seen, name))
        .unwrap_or_default();
    Parts {
        above: vec![
            PagePart::new("verdict", &verdict(seen)),
            PagePart::new("glance", &summary::summary(seen)),
            PagePart::new("controls", &controls::controls(seen, caller)),
            PagePart::new("figures", &figures(&seen.view, &reading.history)),
        ],
        unit: PagePart::new("unit", &explained),
        lines: PagePart::new("lines", &journal::lines(&reading.lines, wanted)),
    }
}

fn verdict(seen: &ReadRun) -> Markup {
    let view = &seen.view;
    html! {
        p.verdict.(verdict_class(view.verdict)) { strong { (view.verdict) } " " (summary::verdict_reason(seen)) }
        h1 { (view.title) }
        p.where { "cluster " b { (view.cluster) } ", run " code { (view.run) } }
    }
}
