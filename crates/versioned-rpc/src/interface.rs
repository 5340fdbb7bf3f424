//! Methods and arguments, with the version that brought each.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use stagger_versioned::Version;

/// All methods of a service, and the highest version that it offers. Client and server have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    version: Version,
    methods: BTreeMap<&'static str, Method>,
}

/// One method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    name: &'static str,
    since: Version,
    arguments: Vec<Argument>,
    instead: Option<&'static str>,
}

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    name: &'static str,
    /// `None`: it came with its method.
    since: Option<Version>,
    or_else: OrElse,
}

/// What a caller does about an argument that the other side does not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrElse {
    /// It does without: the argument only asks for something better.
    LeaveOut,
    /// It does not call: without the argument something else would be done.
    Refuse,
}

/// An interface that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotInterface {
    /// Two methods, or two arguments of one, have one name.
    #[error("{name:?} stands there twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// Something came after the version that is offered, or in another major.
    #[error("{what} came with {since}, and {version} is offered")]
    NotOffered {
        /// The method or argument.
        what: String,
        /// When it came.
        since: Version,
        /// What is offered.
        version: Version,
    },
    /// The other method of `instead` is not there, or is not older.
    #[error("{method} has {instead} instead, which is not an older method")]
    Instead {
        /// The method.
        method: String,
        /// What is to be called instead.
        instead: String,
    },
}

/// Something that may not be asked for under this cap, and has no older form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooNew {
    /// The method, or the method and the argument.
    pub what: String,
    /// The version that brought it.
    pub since: Version,
    /// The highest version that may be asked for.
    pub cap: Version,
}

impl fmt::Display for TooNew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, since, cap } = self;
        write!(
            f,
            "{what} came with version {since} of the RPC, and no more than {cap} may be asked for while services of an older \
             release work; nothing was asked for: try again when the upgrade is done"
        )
    }
}

impl std::error::Error for TooNew {}

/// What to ask for: which method, in which version, with which arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) method: &'static str,
    pub(crate) version: Version,
    pub(crate) args: Map<String, Value>,
}

/// Why a server does not take a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("version {asked} of the RPC is not offered; this service offers {lowest} to {highest}")]
    Version {
        asked: Version,
        lowest: Version,
        highest: Version,
    },
    #[error("{method} came with version {since}, and was asked for in {asked}")]
    Method {
        method: String,
        since: Version,
        asked: Version,
    },
    #[error("{method} has no argument {argument:?}{}", since.map(|since| format!(" before version {since}")).unwrap_or_default())]
    Argument {
        method: String,
        argument: String,
        since: Option<Version>,
    },
}

impl Method {
    /// A method and the version that brought it.
    pub fn since(name: &'static str, since: Version) -> Self {
        Self {
            name,
            since,
            arguments: Vec::new(),
            instead: None,
        }
    }

    /// An argument that it has had from the beginning.
    #[must_use]
    pub fn argument(mut self, name: &'static str) -> Self {
        self.arguments.push(Argument {
            name,
            since: None,
            or_else: OrElse::Refuse,
        });
        self
    }

    /// An argument that came later. It is always optional.
    #[must_use]
    pub fn argument_since(mut self, name: &'static str, since: Version, or_else: OrElse) -> Self {
        self.arguments.push(Argument {
            name,
            since: Some(since),
            or_else,
        });
        self
    }

    /// The older method that is called where this one is not known. It gets the same arguments, and has to have all of them.
    #[must_use]
    pub fn fallback(mut self, method: &'static str) -> Self {
        self.instead = Some(method);
        self
    }
}

impl Interface {
    /// An interface that offers everything up to that version. Nothing is ever taken away within a major.
    pub fn new(version: Version, methods: impl IntoIterator<Item = Method>) -> Result<Self, NotInterface> {
        let mut known: BTreeMap<&'static str, Method> = BTreeMap::new();
        for method in methods {
            let offered = |what: String, since: Version| {
                if version.understands(since) {
                    return Ok(());
                }
                Err(NotInterface::NotOffered { what, since, version })
            };
            offered(method.name.to_owned(), method.since)?;
            for (at, argument) in method.arguments.iter().enumerate() {
                let what = format!("{} of {}", argument.name, method.name);
                offered(what.clone(), argument.since.unwrap_or(method.since))?;
                if method.arguments[..at]
                    .iter()
                    .any(|earlier| earlier.name == argument.name)
                {
                    return Err(NotInterface::Twice { name: what });
                }
            }
            if let Some(before) = known.insert(method.name, method) {
                return Err(NotInterface::Twice {
                    name: before.name.to_owned(),
                });
            }
        }
        for method in known.values() {
            if let Some(instead) = method.instead
                && known.get(instead).is_none_or(|other| other.since >= method.since)
            {
                return Err(NotInterface::Instead {
                    method: method.name.to_owned(),
                    instead: instead.to_owned(),
                });
            }
        }
        Ok(Self {
            version,
            methods: known,
        })
    }

    /// The highest version that is offered.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The names of its methods.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.methods.keys().copied()
    }

    /// What to ask for under a cap.
    pub(crate) fn ask(&self, method: &str, cap: Version, args: &Map<String, Value>) -> Result<Asked, TooNew> {
        let too_new = |what: String, since: Version| TooNew { what, since, cap };
        let Some(mut chosen) = self.methods.get(method) else {
            // A name that stands in no interface came after all of them.
            return Err(too_new(
                method.to_owned(),
                Version::new(self.version.major(), self.version.minor() + 1),
            ));
        };
        while !cap.understands(chosen.since) {
            match chosen.instead.and_then(|instead| self.methods.get(instead)) {
                Some(older) => chosen = older,
                None => return Err(too_new(method.to_owned(), chosen.since)),
            }
        }
        let mut asked = Asked {
            method: chosen.name,
            version: chosen.since,
            args: Map::new(),
        };
        for (name, value) in args {
            let argument = chosen.arguments.iter().find(|argument| argument.name == name);
            // Nothing is the same as no argument.
            if value.is_null() && argument.is_none_or(|argument| argument.since.is_some()) {
                continue;
            }
            let Some(argument) = argument else {
                let wanted = self
                    .methods
                    .get(method)
                    .map_or(self.version, |wanted| wanted.since);
                return Err(too_new(format!("{name} of {}", chosen.name), wanted));
            };
            let since = argument.since.unwrap_or(chosen.since);
            match (cap.understands(since), argument.or_else) {
                (true, _) => {
                    asked.version = asked.version.max(since);
                    asked.args.insert(name.clone(), value.clone());
                }
                (false, OrElse::LeaveOut) => {}
                (false, OrElse::Refuse) => return Err(too_new(format!("{name} of {}", chosen.name), since)),
            }
        }
        Ok(asked)
    }

    /// Whether a server takes what is asked for.
    pub(crate) fn take(
        &self,
        method: &str,
        asked: Version,
        args: &Map<String, Value>,
    ) -> Result<(), Mismatch> {
        if !self.version.understands(asked) {
            return Err(Mismatch::Version {
                asked,
                lowest: Version::new(self.version.major(), 0),
                highest: self.version,
            });
        }
        let Some(known) = self.methods.get(method) else {
            return Ok(());
        };
        if known.since > asked {
            return Err(Mismatch::Method {
                method: method.to_owned(),
                since: known.since,
                asked,
            });
        }
        for name in args.keys() {
            let argument = known.arguments.iter().find(|argument| argument.name == name);
            let since = argument.map(|argument| argument.since.unwrap_or(known.since));
            if since.is_none_or(|since| since > asked) {
                return Err(Mismatch::Argument {
                    method: method.to_owned(),
                    argument: name.clone(),
                    since,
                });
            }
        }
        Ok(())
    }
}
