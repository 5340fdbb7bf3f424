//! Asks, grants and claims, against brute force and against a cluster that knows what is safe.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod claims;
mod gates;
mod laws;
mod ledgers;
mod toy;
