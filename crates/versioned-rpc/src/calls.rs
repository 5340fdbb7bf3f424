//! The client side, without I/O.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stagger_versioned::boundary::{Held, Unreceived};
use stagger_versioned::{Chain, Pin, Registry, Version, Versioned};

use crate::interface::Asked;
use crate::{BACKPORT, Interface, Params, TooNew, VERSIONS};

/// What a caller of one service knows to ask.
#[derive(Debug, Clone)]
pub struct Calls {
    interface: Interface,
    reads: BTreeMap<String, Version>,
}

/// What to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The method.
    pub method: String,
    /// What stands beside it.
    pub params: Params,
}

/// What an answer means.
#[derive(Debug)]
pub enum Received<T> {
    /// It is this object.
    Object(Held<T>),
    /// It is newer than this code: send this, and its answer is the object.
    AskAgain(Message),
}

impl Calls {
    /// Those of a process with these objects. What it reads is told with every call.
    pub fn new(interface: Interface, registry: &Registry) -> Self {
        let reads = registry
            .newest_versions()
            .into_iter()
            .map(|(name, version)| (name.to_owned(), version));
        Self {
            interface,
            reads: reads.collect(),
        }
    }

    /// Does not tell what it reads, as old clients did not.
    #[must_use]
    pub fn without_read_versions(mut self) -> Self {
        self.reads.clear();
        self
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// How to ask for a method under the cap of the pin: in the lowest version that has all that is asked for.
    pub fn ask(&self, pin: &Pin, method: &str, args: &Map<String, Value>) -> Result<Message, TooNew> {
        let cap = pin.rpc().min(self.interface.version());
        let Asked {
            method,
            version,
            args,
        } = self.interface.ask(method, cap, args)?;
        Ok(self.message(method, version, args))
    }

    /// What an answer is that should be an object.
    pub fn receive<T: Versioned>(&self, answer: Value, chain: &Chain<T>) -> Result<Received<T>, Unreceived> {
        match chain.receive(&answer.to_string()) {
            Ok(held) => Ok(Received::Object(held)),
            Err(Unreceived::Newer { ask_for, .. }) => {
                let args = Map::from_iter([
                    ("object".to_owned(), answer),
                    ("to".to_owned(), Value::from(ask_for.to_string())),
                ]);
                Ok(Received::AskAgain(self.message(BACKPORT, self.oldest(), args)))
            }
            Err(other) => Err(other),
        }
    }

    /// How to ask a service what it runs and speaks: the answer is [`ServiceVersions`](crate::ServiceVersions).
    pub fn versions(&self) -> Message {
        self.message(VERSIONS, self.oldest(), Map::new())
    }

    /// What every service of this major understands.
    fn oldest(&self) -> Version {
        Version::new(self.interface.version().major(), 0)
    }

    fn message(&self, method: &str, version: Version, args: Map<String, Value>) -> Message {
        Message {
            method: method.to_owned(),
            params: Params {
                version,
                reads: self.reads.clone(),
                args,
            },
        }
    }
}
