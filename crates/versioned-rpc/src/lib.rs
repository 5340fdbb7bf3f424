//! Experimental: calls between services of several releases.
//!
//! Nothing of stagger uses this crate: it may change in any release. What it says, and what it means, is decided without I/O:
//! an [`Interface`] says with which version each method and each argument came, [`Calls`] makes what a caller sends and
//! explains what comes back, [`Answers`] checks what came and answers what every service answers. The feature `http` puts
//! JSON-RPC 2.0 over HTTP around them, as `http::Client` and `http::Server`.
//!
//! A caller asks for no more than its pin permits and says in which version it asks; a service checks that. Objects travel in
//! envelopes, in the versions of the sender's pin; the caller says which it reads, gets none that is newer, and asks again
//! where it gets one all the same.
//!
//! ```json
//! {"method": "update_node", "params": {
//!     "version": "1.33", "reads": {"Node": "1.14"}, "args": {"node": {"kind": "Node", "version": "1.14", "data": {}}}}}
//! ```

mod answers;
mod calls;
#[cfg(feature = "http")]
pub mod http;
mod interface;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "http")]
pub use self::http::{
    Authenticate, CallError, Client, ClientSettings, Denied, Handler, Running, Server, anyone,
};
pub use answers::{Answers, Caller, Opened, Refusal, Request};
pub use calls::{Calls, Message, Received};
pub use interface::{Argument, Interface, Method, NotInterface, OrElse, TooNew};

use stagger_versioned::Version;

/// What stands beside the method in a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// The version in which it is asked for.
    pub version: Version,
    /// The newest version of each object that the caller reads, as far as it says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reads: BTreeMap<String, Version>,
    /// The arguments.
    #[serde(default)]
    pub args: Map<String, Value>,
}

/// The method by which an object is asked for in an older version. Every server has it.
pub const BACKPORT: &str = "object_backport";

/// The method by which a server tells its versions. Every server has it.
pub const VERSIONS: &str = "service_versions";

/// What a service runs and speaks: enough to know whether it is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceVersions {
    /// The release of its code.
    pub release: String,
    /// The release that it is pinned to, if it is.
    pub pin: Option<String>,
    /// The highest version of the API that it offers.
    pub api: Version,
    /// The highest version of the RPC that it asks of others.
    pub rpc_cap: Version,
    /// The highest version of the RPC that others may ask of it.
    pub rpc: Version,
    /// The newest version of each object that it reads.
    pub reads: BTreeMap<String, Version>,
    /// The version of each object in which it writes new ones.
    pub writes: BTreeMap<String, Version>,
}

/// Codes of errors. Those of JSON-RPC itself are used for what they are for.
pub mod code {
    /// The version asked for is not offered.
    pub const UNSUPPORTED_VERSION: i32 = -32001;
    /// What is asked for is not known to the release that the service is pinned to. In HTTP it is 406.
    pub const NOT_WHILE_PINNED: i32 = -32002;
    /// An object cannot be read.
    pub const UNREADABLE: i32 = -32003;
    /// What the service itself refuses.
    pub const REFUSED: i32 = -32010;
    /// The service failed.
    pub const FAILED: i32 = -32011;
    /// The parameters are wrong.
    pub const INVALID_PARAMS: i32 = -32602;
}
