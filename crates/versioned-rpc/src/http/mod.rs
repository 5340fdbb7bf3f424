//! JSON-RPC 2.0 over HTTP, with jsonrpsee.
//!
//! The caller is authenticated before anything else, the version included: an older version is no way around
//! it.

mod client;
mod server;

pub use client::{CallError, Client, ClientSettings};
pub use server::{Authenticate, Denied, Handler, Running, Server, anyone};
