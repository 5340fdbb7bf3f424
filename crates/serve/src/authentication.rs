//! Authentication: the user of a socket, or the holder of a token; requests from foreign pages are refused.

use std::sync::Arc;
use std::time::Duration;

use crate::access::{Caller, Role, Tokens};
use crate::page::{COOKIE, POLICY};
use crate::problem::ProblemDetails;
use crate::write_timeout::PatientListener;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::serve::IncomingStream;
use jiff::Timestamp;

/// Where those are answered who may only ask.
const OF_ASKERS: [&str; 2] = ["/v1/asks", "/v1/openapi.json"];

/// How a caller is known.
#[derive(Debug, Clone)]
pub(crate) enum Authentication {
    /// By the user of the other end.
    Socket { user: String },
    /// By a token.
    Tokens(Arc<Tokens>),
}

/// The user of the other end of a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(Option<u32>);

impl Connected<IncomingStream<'_, PatientListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, PatientListener>) -> Self {
        let peer = stream.io().get_ref().peer_cred();
        Self(peer.ok().map(|peer| peer.uid()))
    }
}

/// Answers only those who are known, and tells the rest how they come to be.
pub(crate) async fn authenticate(
    State(authentication): State<Authentication>,
    peer: Option<axum::Extension<ConnectInfo<Peer>>>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match &authentication {
        Authentication::Socket { user } => {
            let us = rustix::process::geteuid().as_raw();
            let peer = peer.and_then(|axum::Extension(ConnectInfo(Peer(peer)))| peer);
            // The file's permissions keep others out; this checks it again.
            peer.filter(|peer| *peer == us || *peer == 0).map(|peer| Caller {
                name: if peer == us {
                    user.clone()
                } else {
                    format!("root at the socket of {user}")
                },
                role: Role::Approve,
                clusters: None,
            })
        }
        Authentication::Tokens(tokens) => match token(request.headers()) {
            None => None,
            Some(token) => match tokens.holder(token, Timestamp::now()) {
                Ok(holder) => holder,
                Err(error) => return ProblemDetails::store(error.to_string()).into_response(),
            },
        },
    };
    let Some(caller) = caller else {
        let wants_page = request.method() == Method::GET && !request.uri().path().starts_with("/v1/");
        return match authentication {
            Authentication::Tokens(_) if wants_page && request.uri().path() != "/metrics" => {
                Redirect::to("/login").into_response()
            }
            Authentication::Tokens(_) => ProblemDetails::unknown_caller().into_response(),
            Authentication::Socket { user } => {
                ProblemDetails::forbidden(format!("this socket is for {user} alone")).into_response()
            }
        };
    };
    let path = request.uri().path();
    if caller.role < Role::Look && !OF_ASKERS.iter().any(|known| path.starts_with(known)) {
        let why = format!("{} may ask, and nothing else", caller.name);
        return ProblemDetails::forbidden(why).into_response();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// The token of a question: `Authorization`, or the cookie of a page.
fn token(headers: &HeaderMap) -> Option<&str> {
    if let Some(given) = headers.get(header::AUTHORIZATION) {
        return given.to_str().ok()?.strip_prefix("Bearer ").map(str::trim);
    }
    let cookies = headers.get_all(header::COOKIE).iter();
    cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Refuses requests from foreign pages: none acts with a user's credentials, and none can read an answer.
pub(crate) async fn refuse_foreign_pages(
    State(authentication): State<Authentication>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if let Some(why) = foreign(&authentication, request.method(), headers) {
        return ProblemDetails::forbidden(why).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Without a referrer a browser would not say either that a form is of our own page.
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// An answer may take as long as its reader reads; a request must arrive in time.
pub(crate) async fn with_timeout(State(whole): State<Duration>, request: Request, next: Next) -> Response {
    tokio::time::timeout(whole, next.run(request))
        .await
        .unwrap_or_else(|_| ProblemDetails::too_slow().into_response())
}

/// Why a question may have been made by a page from elsewhere.
fn foreign(authentication: &Authentication, method: &Method, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    // A name that leads to this machine by somebody's DNS is not one of these.
    if let Authentication::Socket { .. } = authentication {
        let name = host.rsplit_once(':').map_or(host, |(name, port)| {
            if port.bytes().all(|digit| digit.is_ascii_digit()) {
                name
            } else {
                host
            }
        });
        if !["localhost", "127.0.0.1", "[::1]"].contains(&name) {
            return Some(format!("a socket is asked as localhost, not as {host:?}"));
        }
    }
    if method == Method::GET || method == Method::HEAD {
        return None;
    }
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site"))
        && site != "same-origin"
        && site != "none"
    {
        return Some("a page from elsewhere asks".to_owned());
    }
    let origin = text(header::ORIGIN)?;
    let of_host = origin.split_once("://").map(|(_, of)| of);
    (of_host != Some(host)).then(|| format!("a page of {origin} asks"))
}
