//! Conditional requests: `ETag`, `If-None-Match`, `If-Match`.

use std::fmt::Write as _;
use std::marker::PhantomData;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// A document with its tag; empty, if the caller has it already.
pub(crate) struct Tagged<T> {
    body: Bytes,
    known: bool,
    document: PhantomData<T>,
}

impl<T: Serialize> Tagged<T> {
    pub(crate) fn of(document: &T, headers: &HeaderMap) -> Self {
        let body = body(document);
        let known = headers.get(header::IF_NONE_MATCH);
        Self {
            known: known.is_some_and(|known| names(known, &tag(&body))),
            body,
            document: PhantomData,
        }
    }
}

impl<T> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let tag = HeaderValue::try_from(tag(&self.body)).unwrap_or(HeaderValue::from_static("\"\""));
        if self.known {
            return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
        }
        let json = HeaderValue::from_static("application/json");
        ([(header::ETAG, tag), (header::CONTENT_TYPE, json)], self.body).into_response()
    }
}

impl<T: JsonSchema> aide::OperationOutput for Tagged<T> {
    type Inner = T;

    fn operation_response(
        ctx: &mut aide::generate::GenContext,
        operation: &mut aide::openapi::Operation,
    ) -> Option<aide::openapi::Response> {
        Json::<T>::operation_response(ctx, operation)
    }

    fn inferred_responses(
        ctx: &mut aide::generate::GenContext,
        operation: &mut aide::openapi::Operation,
    ) -> Vec<(Option<aide::openapi::StatusCode>, aide::openapi::Response)> {
        Json::<T>::inferred_responses(ctx, operation)
    }
}

/// A document as it is sent.
pub(crate) fn body(document: &impl Serialize) -> Bytes {
    serde_json::to_vec(document).unwrap_or_default().into()
}

/// The tag of an answer: its first 64 bits of SHA-256.
pub(crate) fn tag(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    let mut tag = String::from('"');
    for byte in &digest[..8] {
        // Writing to a string does not fail.
        write!(tag, "{byte:02x}").ok();
    }
    tag.push('"');
    tag
}

/// Whether a header names that tag, or any.
pub(crate) fn names(header: &HeaderValue, tag: &str) -> bool {
    let text = header.to_str().unwrap_or_default();
    text.split(',')
        .map(str::trim)
        .any(|named| named == "*" || named.trim_start_matches("W/") == tag)
}
