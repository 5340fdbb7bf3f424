//! JSON-RPC 2.0 over HTTP, with jsonrpsee.
//!
//! Who calls is asked before anything else is looked at, the version too: an older version is no way around it.

mod client;
mod server;

pub use client::{CallError, Client, ClientSettings};
pub use server::{Authenticate, Denied, Handler, Running, Server, anybody};
