//! The pages: complete without a script, and live with one.

mod controls;
mod journal;
mod list;
mod run;
mod summary;
mod unit;

use axum::Router;
use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{Form, Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;
use stagger_core::view::RunVerdict;
use stagger_report::page::STYLE;

use crate::Shared;
use crate::fragments::units::encoded;
use crate::problem::ProblemDetails;

const LIVE: &str = include_str!("page/live.js");
const MAP: &str = include_str!("page/map.js");
const ICON: &str = include_str!("page/icon.svg");
const LOOKS: &str = include_str!("page/serve.css");

/// Nothing of a page is from elsewhere, nothing in it is a script or a style, and no other page may hold it.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                                 base-uri 'none'; frame-ancestors 'none'";

/// The pages for those whose questions are answered.
pub(crate) fn pages() -> Router<Shared> {
    Router::new()
        .route("/", get(list::page))
        .route("/parts", get(list::parts))
        .route("/runs/{run}", get(run::page))
        .route("/runs/{run}/parts", get(run::parts))
        .route("/runs/{run}/map", get(run::map))
        .route("/runs/{run}/commands", post(controls::command))
}

/// What anybody may have.
pub(crate) fn open() -> Router<Shared> {
    let css = || async { asset("text/css; charset=utf-8", format!("{STYLE}\n{LOOKS}")) };
    let live = || async { asset("text/javascript; charset=utf-8", LIVE.to_owned()) };
    let map = || async { asset("text/javascript; charset=utf-8", MAP.to_owned()) };
    let icon = || async { asset("image/svg+xml", ICON.to_owned()) };
    Router::new()
        .route("/style.css", get(css))
        .route("/live.js", get(live))
        .route("/map.js", get(map))
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
                script src="/map.js" defer {}
                script src="/live.js" defer {}
            }
            body { (body) }
        }
    };
    Html(page.into_string())
}

/// A page that says why there is none.
pub(crate) fn error_page(problem: &ProblemDetails) -> Response {
    let body = html! {
        nav { a href="/" { "all runs" } }
        main { h1 { (problem.title()) } p { (problem.detail()) } }
    };
    (problem.status(), document(problem.title(), &body)).into_response()
}

/// Why there is no page.
pub(crate) struct PageError(ProblemDetails);

impl From<ProblemDetails> for PageError {
    fn from(problem: ProblemDetails) -> Self {
        Self(problem)
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        error_page(&self.0)
    }
}

/// What of a page is wanted: the unit that is explained, which lines of the journal.
#[derive(Debug, Default, Deserialize)]
struct PageQuery {
    unit: Option<String>,
    /// Which sort of lines.
    of: Option<String>,
    /// Which text they hold.
    q: Option<String>,
    /// Only lines before that event.
    before: Option<String>,
    /// The digests of the parts that the reader has.
    have: Option<String>,
}

/// The same as it comes.
type PageRequest = Result<Query<PageQuery>, QueryRejection>;

impl PageQuery {
    /// The unit that is explained.
    fn unit(&self) -> Option<&str> {
        self.unit.as_deref().filter(|unit| !unit.is_empty())
    }

    /// The same for an address, from another event on.
    fn query(&self, before: Option<u64>) -> String {
        let texts = [("unit", &self.unit), ("of", &self.of), ("q", &self.q)];
        let texts = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name, text.as_deref()?)));
        let mut pairs: Vec<String> = texts
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| format!("{name}={}", encoded(text)))
            .collect();
        pairs.extend(before.map(|before| format!("before={before}")));
        pairs.join("&")
    }
}

/// The time of a page, from the server; a script keeps it current.
fn as_of(at: Timestamp, of: &Markup) -> Markup {
    html! {
        p #live.quiet data-at=(at) {
            "as of " time datetime=(at) { (at.strftime("%Y-%m-%d %H:%M:%S")) } " UTC" (of)
        }
    }
}

/// The notice while the store is unreachable.
fn store_unreachable(why: &str, at: Timestamp) -> Markup {
    html! {
        p.away role="alert" {
            strong { "The store does not answer" } ": " (why) ". What is shown is as of "
            (at.strftime("%Y-%m-%d %H:%M:%S")) " UTC " (summary::relative(at))
        }
    }
}

/// How a verdict looks.
fn verdict_class(verdict: RunVerdict) -> &'static str {
    match verdict {
        RunVerdict::Done => "good",
        RunVerdict::Running => "plain",
        RunVerdict::Held | RunVerdict::Interrupted | RunVerdict::NeedsYou | RunVerdict::Ended => "bad",
    }
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
        Err(rejection) => return error_page(&rejection.into()),
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
        Ok(None) => (StatusCode::UNAUTHORIZED, login(Some("invalid or expired token"))).into_response(),
        Err(error) => error_page(&ProblemDetails::store(error.to_string())),
    }
}

/// The name of the cookie with a token.
pub(crate) const COOKIE: &str = "stagger";
