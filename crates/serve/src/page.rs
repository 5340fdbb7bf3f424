//! The pages: whole without a script, and live with one.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;
use stagger_core::model::PartName;
use stagger_core::run::Command;
use stagger_core::view::{RunView, Verdict};
use stagger_report::duration;
use stagger_report::page::{Report, STYLE, details, heading};
use stagger_report::sentences::command_words;

use crate::Shared;
use crate::access::{Caller, Role};
use crate::api::{OfRun, ask, permitted, refused, role_of};
use crate::problem::Problem;
use crate::runs::{InList, Seen};

const SCRIPT: &str = include_str!("page/live.js");
const ICON: &str = include_str!("page/icon.svg");
const LOOKS: &str = include_str!("page/serve.css");

/// Nothing of a page is from elsewhere, nothing in it is a script or a style, and no other page may hold it.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                                 base-uri 'none'; frame-ancestors 'none'";

/// The pages for those whose questions are answered.
pub(crate) fn pages() -> Router<Shared> {
    Router::new()
        .route("/", get(index))
        .route("/runs/{run}", get(run))
        .route("/runs/{run}/part", get(part))
        .route("/runs/{run}/commands", post(command))
}

/// What anybody may have.
pub(crate) fn open() -> Router<Shared> {
    let css = || async { asset("text/css; charset=utf-8", format!("{STYLE}\n{LOOKS}")) };
    let js = || async { asset("text/javascript; charset=utf-8", SCRIPT.to_owned()) };
    let icon = || async { asset("image/svg+xml", ICON.to_owned()) };
    Router::new()
        .route("/style.css", get(css))
        .route("/live.js", get(js))
        .route("/icon.svg", get(icon))
        .route("/login", get(|| async { login(None) }).post(enter))
        .route("/healthz", get(|| async { "ok\n" }))
}

fn asset(kind: &'static str, text: String) -> ([(HeaderName, &'static str); 2], String) {
    (
        [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")],
        text,
    )
}

fn document(title: &str, body: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/style.css";
                script src="/live.js" defer {}
            }
            body { (body) }
        }
    };
    Html(page.into_string())
}

/// A page that says why there is none.
pub(crate) fn sorry(problem: &Problem) -> Response {
    let body = html! {
        nav { a href="/" { "all runs" } }
        main { h1 { (problem.title()) } p { (problem.detail()) } }
    };
    (problem.status(), document(problem.title(), &body)).into_response()
}

/// A page, or why there is none.
type Paged<T> = Result<T, Sorry>;

pub(crate) struct Sorry(Problem);

impl From<Problem> for Sorry {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Sorry {
    fn into_response(self) -> Response {
        sorry(&self.0)
    }
}

async fn index(State(shared): State<Shared>, Extension(caller): Extension<Caller>) -> Paged<Html<String>> {
    let name = caller.name.clone();
    let runs = shared.runs.list(caller, None).await;
    let runs = runs.map_err(|error| Problem::of(&error))?;
    let body = html! {
        header {
            h1 { "Runs" }
            p.quiet { "as of " (jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S")) " UTC, for " (name) }
        }
        main {
            @if runs.is_empty() {
                p { "There is no run yet. " code { "stagger run" } " begins one." }
            } @else {
                table.runs {
                    thead { tr { th { "run" } th { "cluster" } th { "verdict" } th { "what" } th.number { "changed" } th.number { "time" } } }
                    tbody { @for run in &runs { (row(run)) } }
                }
            }
        }
    };
    Ok(document("stagger", &body))
}

fn row(run: &InList) -> Markup {
    let id = run.listed.run.as_str();
    html! {
        tr {
            td { a href={ "/runs/" (id) } { code { (id) } } }
            td { (run.listed.cluster) }
            @match &run.view {
                Ok(view) => {
                    td { span.(tone(view)) { b { (view.verdict.to_string()) } } }
                    td { (view.title) br; span.quiet { (view.why) } }
                    td.number { (view.changed) @if view.changed == 1 { " unit" } @else { " units" } }
                    td.number { (time(view)) }
                }
                Err(error) => { td { span.bad { b { "UNREADABLE" } } } td colspan="3" { (error.to_string()) } }
            }
        }
    }
}

fn tone(view: &RunView) -> &'static str {
    match view.verdict {
        Verdict::Done => "good",
        Verdict::Running => "plain",
        Verdict::Held | Verdict::Interrupted | Verdict::NeedsYou | Verdict::Ended => "bad",
    }
}

fn time(view: &RunView) -> String {
    match view.ended_at {
        Some(ended) => format!("took {}", duration(ended.duration_since(view.started))),
        None => format!(
            "for {}",
            duration(jiff::Timestamp::now().duration_since(view.started))
        ),
    }
}

async fn run(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: OfRun,
) -> Paged<Html<String>> {
    let Path(run) = run.map_err(Problem::from)?;
    let seen = permitted(&shared, &caller, &run, Role::Look).await?;
    let title = format!("{} · {}", seen.view.verdict, seen.view.cluster);
    let body = html! {
        nav { a href="/" { "all runs" } span.quiet #live { "this page is as of " (jiff::Timestamp::now().strftime("%H:%M:%S")) " UTC" } }
        div #run data-run=(run.as_str()) data-seq=(seen.view.seq) { (inside(&seen, &caller)) }
    };
    Ok(document(&title, &body))
}

/// What of the page changes.
async fn part(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: OfRun,
) -> Paged<Html<String>> {
    let Path(run) = run.map_err(Problem::from)?;
    let seen = permitted(&shared, &caller, &run, Role::Look).await?;
    Ok(Html(inside(&seen, &caller).into_string()))
}

fn inside(seen: &Seen, caller: &Caller) -> Markup {
    let reading = &seen.journal.reading;
    let Some(verification) = seen.journal.verification() else {
        return html! { p.bad { "the journal does not begin with the start of a run" } };
    };
    let report = Report {
        view: &seen.view,
        history: &reading.history,
        verification,
        lines: &reading.lines,
        broken: None,
        version: env!("CARGO_PKG_VERSION"),
    };
    html! { (heading(&report)) (controls(seen, caller)) (details(&report)) }
}

/// What may be asked of a run by whoever looks, with what it costs.
fn controls(seen: &Seen, caller: &Caller) -> Markup {
    let view = &seen.view;
    let cluster = &view.cluster;
    if view.ending.is_some() || !caller.may(Role::Operate, cluster) {
        return html! {};
    }
    let button = |word: &str, text: &str, title: &str| {
        html! { button name="command" value=(word) title=(title) { (text) } }
    };
    let plan = seen.journal.reading.run.plan();
    let words = seen.journal.reading.words();
    html! {
        @for (command, by) in &seen.asked {
            p.asked role="status" {
                b { (command_words(command)) } " was asked for by " (by)
                @if view.verdict == Verdict::Interrupted { "; nobody carries the run out: " code { "stagger resume " (view.run) } " heeds it" }
                @else { ", and is not heeded yet" }
            }
        }
        section.controls aria-label="what the run may be asked for" {
            form method="post" action={ "/runs/" (view.run) "/commands" } {
                (button("pause", "Pause", "starts no new wave"))
                (button("resume", "Resume", "goes on where it was paused or held"))
                details {
                    summary { "End it" }
                    p { "Abort finishes the wave, gives everything back, and ends: what is changed stays changed." }
                    (button("abort", "Abort", "finishes the wave and ends"))
                    p { "Rollback brings what was changed back to the release before, as far as that is possible." }
                    (button("rollback", "Roll back", "brings back what was changed"))
                }
            }
            @if let Some(plan) = plan {
                @if caller.may(Role::Approve, cluster) && !words.is_empty() {
                    details {
                        summary { "Approve (" (words.len()) ")" }
                        @for word in &words {
                            form method="post" action={ "/runs/" (view.run) "/commands" } {
                                input type="hidden" name="plan" value=(plan.id);
                                input type="hidden" name="door" value=(word);
                                p { code { (word) } ": " (cost(seen, word)) }
                                label { input type="checkbox" required; " I have read what it costs" } " "
                                (button("approve", "Approve", "it cannot be taken back"))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What the approval of a word comes to.
fn cost(seen: &Seen, word: &str) -> String {
    let Some(plan) = seen.journal.reading.run.plan() else {
        return "nothing is planned now".to_owned();
    };
    if let Some(door) = plan.doors().into_iter().find(|door| door.name.as_str() == word) {
        return format!("cannot be taken back. {}", door.why);
    }
    if let Some(found) = plan.interruptions.iter().find(|found| found.name == word) {
        return format!("{} is without service for about {} s", found.what, found.seconds);
    }
    "goes on although units of the stage before are left as they are".to_owned()
}

/// What a form of the page asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    command: String,
    plan: Option<String>,
    door: Option<PartName>,
}

async fn command(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: OfRun,
    wish: Result<Form<Wish>, FormRejection>,
) -> Paged<Redirect> {
    let Path(run) = run.map_err(Problem::from)?;
    let Form(Wish { command, plan, door }) = wish.map_err(Problem::from)?;
    let command = match (command.as_str(), door) {
        ("pause", _) => Command::Pause,
        ("resume", _) => Command::Resume,
        ("abort", _) => Command::Abort,
        ("rollback", _) => Command::Rollback,
        ("approve", Some(door)) => Command::Approve { door },
        _ => return Err(Problem::malformed("no form of this page asks for that").into()),
    };
    let seen = permitted(&shared, &caller, &run, role_of(&command)).await?;
    let now = seen.journal.reading.run.plan().map(|plan| plan.id.clone());
    if matches!(command, Command::Approve { .. }) && (plan.is_none() || plan != now) {
        return Err(Problem::moved("it follows another plan than the one that you saw: look again").into());
    }
    if let Some(problem) = refused(&seen, &command) {
        return Err(problem.into());
    }
    ask(&shared, &caller, &seen, command).await?;
    Ok(Redirect::to(&format!("/runs/{run}")))
}

fn login(why: Option<&str>) -> Html<String> {
    let body = html! {
        main {
            h1 { "stagger" }
            @if let Some(why) = why { p.bad role="alert" { (why) } }
            form method="post" action="/login" {
                label { "Token " input type="password" name="token" autocomplete="current-password" required; } " "
                button { "Enter" }
            }
            p.quiet { code { "stagger token add NAME" } " makes one on the machine that serves this page." }
        }
    };
    document("stagger", &body)
}

#[derive(Debug, Deserialize)]
struct Entered {
    token: String,
}

/// A token as a cookie: of this page alone, which no script reads.
async fn enter(State(shared): State<Shared>, entered: Result<Form<Entered>, FormRejection>) -> Response {
    let Form(Entered { token }) = match entered {
        Ok(entered) => entered,
        Err(rejection) => return sorry(&rejection.into()),
    };
    let token = token.trim();
    match shared.tokens.holder(token, jiff::Timestamp::now()) {
        Ok(Some(_)) => {
            let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; Secure; SameSite=Strict");
            let Ok(cookie) = HeaderValue::try_from(cookie) else {
                return (StatusCode::UNAUTHORIZED, login(Some("this is no token"))).into_response();
            };
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        Ok(None) => (
            StatusCode::UNAUTHORIZED,
            login(Some("this is no token, or it is good no more")),
        )
            .into_response(),
        Err(error) => sorry(&Problem::store(error.to_string())),
    }
}

/// The name of the cookie with a token.
pub(crate) const COOKIE: &str = "stagger";
