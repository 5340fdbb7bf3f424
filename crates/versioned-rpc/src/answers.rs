//! The server side, without I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use stagger_versioned::boundary::{Held, NotBackported, Unreceived, Unsaved};
use stagger_versioned::pin::NotWhilePinned;
use stagger_versioned::{Chain, Pin, Pins, Registry, Version, Versioned};

use crate::interface::Mismatch;
use crate::{BACKPORT, Interface, Params, ServiceVersions, VERSIONS, code};

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name that its credentials gave it.
    pub name: String,
}

/// What is asked for. The pin is the one in force when the request came, for all that is done for it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// The method.
    pub method: String,
    /// The version in which it is asked for.
    pub version: Version,
    /// The newest version of each object that the caller reads, as far as it said.
    pub reads: BTreeMap<String, Version>,
    /// The arguments.
    pub args: Map<String, Value>,
    /// The pin.
    pub pin: Arc<Pin>,
}

/// An answer that is no.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// One of [`code`], or a code of the service's own.
    pub code: i32,
    /// What was tried, and why it is refused.
    pub message: String,
}

impl Refusal {
    /// A refusal of the service itself.
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            code: code::REFUSED,
            message: message.to_string(),
        }
    }

    /// A failure of the service.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self {
            code: code::FAILED,
            message: message.to_string(),
        }
    }

    pub(crate) fn with(code: i32, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}

impl From<NotWhilePinned> for Refusal {
    fn from(why: NotWhilePinned) -> Self {
        Self::with(code::NOT_WHILE_PINNED, why)
    }
}

impl From<Unreceived> for Refusal {
    fn from(why: Unreceived) -> Self {
        Self::with(code::UNREADABLE, why)
    }
}

impl From<Unsaved> for Refusal {
    fn from(why: Unsaved) -> Self {
        match why {
            Unsaved::NotWhilePinned(why) => why.into(),
            why @ Unsaved::Unkept { .. } => Self::with(code::NOT_WHILE_PINNED, why),
            Unsaved::Unwritten(why) => Self::with(code::UNREADABLE, why),
        }
    }
}

impl From<NotBackported> for Refusal {
    fn from(why: NotBackported) -> Self {
        Self::with(code::UNREADABLE, why)
    }
}

impl From<Mismatch> for Refusal {
    fn from(why: Mismatch) -> Self {
        let code = match why {
            Mismatch::Version { .. } | Mismatch::Method { .. } => code::UNSUPPORTED_VERSION,
            Mismatch::Argument { .. } => code::INVALID_PARAMS,
        };
        Self::with(code, why)
    }
}

impl Request {
    /// An argument, or a refusal if it is not there.
    pub fn arg(&self, name: &str) -> Result<&Value, Refusal> {
        let missing = || {
            Refusal::with(
                code::INVALID_PARAMS,
                format!("{} needs the argument {name:?}", self.method),
            )
        };
        self.args.get(name).ok_or_else(missing)
    }

    /// An argument that is an object, brought up to the newest version.
    pub fn object<T: Versioned>(&self, name: &str, chain: &Chain<T>) -> Result<Held<T>, Refusal> {
        Ok(chain.receive(&self.arg(name)?.to_string())?)
    }

    /// Some fields of an argument that is an object of any version, also of one that is not known here: a method that only
    /// deletes needs no more than the key.
    pub fn fields_of_any_version(
        &self,
        name: &str,
        kind: &str,
        fields: &[&str],
    ) -> Result<Map<String, Value>, Refusal> {
        Ok(stagger_versioned::boundary::fields_of_any_version(
            &self.arg(name)?.to_string(),
            kind,
            fields,
        )?)
    }

    /// An object as an answer: in the version of the pin, or in its own if that is newer, but in none that the caller says
    /// it does not read ([`Chain::answer`]).
    pub fn answer<T: Versioned>(&self, held: &Held<T>, chain: &Chain<T>) -> Result<Value, Refusal> {
        let sent = chain.answer(held, &self.pin, self.reads.get(T::NAME).copied())?;
        serde_json::from_str(&sent.text).map_err(Refusal::failed)
    }
}

/// What a service knows to answer with.
pub struct Answers {
    interface: Interface,
    registry: Registry,
    pins: Arc<Pins>,
}

/// A message that was understood.
#[derive(Debug)]
pub enum Opened {
    /// Every service answers it alike: this is the answer.
    Answered(Value),
    /// The service has to do it. Version, method and names of arguments have been checked.
    Request(Request),
}

impl Answers {
    /// Those of a service with that interface and those objects.
    pub fn new(interface: Interface, registry: Registry, pins: Arc<Pins>) -> Self {
        Self {
            interface,
            registry,
            pins,
        }
    }

    /// The names of all methods, those that every service has among them.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.interface.names().chain([BACKPORT, VERSIONS])
    }

    /// What a message means. Ask who calls before: this is for one whose credentials were good enough.
    pub fn open(&self, caller: Caller, method: &str, params: Params) -> Result<Opened, Refusal> {
        let Params { version, reads, args } = params;
        self.interface.take(method, version, &args)?;
        let request = Request {
            caller,
            method: method.to_owned(),
            version,
            reads,
            args,
            pin: self.pins.now(),
        };
        Ok(match method {
            BACKPORT => Opened::Answered(self.backport(&request)?),
            VERSIONS => {
                let versions = serde_json::to_value(self.versions(&request.pin));
                Opened::Answered(versions.map_err(Refusal::failed)?)
            }
            _ => Opened::Request(request),
        })
    }

    /// What somebody could not read, in a version that it can.
    fn backport(&self, request: &Request) -> Result<Value, Refusal> {
        let to: Version = serde_json::from_value(request.arg("to")?.clone())
            .map_err(|error| Refusal::with(code::INVALID_PARAMS, error))?;
        let sent = self.registry.backport(&request.arg("object")?.to_string(), to)?;
        serde_json::from_str(&sent.text).map_err(Refusal::failed)
    }

    fn versions(&self, pin: &Pin) -> ServiceVersions {
        let newest = self.registry.newest_versions();
        let writes = newest.iter().filter_map(|(name, newest)| {
            let target = pin.target(name).ok()?;
            Some(((*name).to_owned(), target.unwrap_or(*newest)))
        });
        ServiceVersions {
            release: pin.manifest().label(pin.manifest().current()),
            pin: pin.release(),
            api: pin.api(),
            rpc_cap: pin.rpc(),
            rpc: self.interface.version(),
            writes: writes.collect(),
            reads: newest
                .into_iter()
                .map(|(name, version)| (name.to_owned(), version))
                .collect(),
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answers(RPC {})", self.interface.version())
    }
}
