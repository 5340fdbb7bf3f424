//! Pins: a process of the new release that speaks and stores like the old one.
//!
//! One pin covers the API, the RPC and all objects. A request handler takes it once ([`Pins::now`]) and uses
//! it for everything, so that a change of the pin in the middle never applies half.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::Version;
use crate::loss::{Loss, loss_list};
use crate::manifest::{Manifest, Place, UnknownRelease};

/// The release that this process is held to, or none.
#[derive(Debug, Clone)]
pub struct Pin {
    manifest: Arc<Manifest>,
    /// The release; `None` is no pin.
    place: Option<Place>,
}

/// A pin that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot pin to it: {0}; leave it empty for no pin")]
pub struct UnknownPin(#[from] UnknownRelease);

/// Something that the release that this process is pinned to does not know. In HTTP it is [`NotWhilePinned::STATUS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotWhilePinned {
    /// The release that the process is pinned to.
    pub pin: String,
    /// The object.
    pub object: String,
    /// What does not fit; empty where the whole object is not known.
    pub lost: Vec<Loss>,
    /// The first release that knows it, if the manifest tells.
    pub since: Option<String>,
}

impl NotWhilePinned {
    /// 406 Not Acceptable.
    pub const STATUS: u16 = 406;
}

impl fmt::Display for NotWhilePinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pin,
            object,
            lost,
            since,
        } = self;
        if lost.is_empty() {
            write!(
                f,
                "{object} is not known to {pin}, to which this service is pinned"
            )?;
        } else {
            write!(
                f,
                "{object} has what {pin} does not know, to which this service is pinned ({})",
                loss_list(lost)
            )?;
        }
        if let Some(since) = since {
            write!(f, "; it came with {since}")?;
        }
        write!(
            f,
            "; nothing was stored or sent: try again when the upgrade is done"
        )
    }
}

impl std::error::Error for NotWhilePinned {}

/// A version of the API that is not offered. In HTTP it is [`NotAcceptable::STATUS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAcceptable {
    /// What was asked for.
    pub asked: Version,
    /// The lowest version of the API.
    pub lowest: Version,
    /// The highest that is offered now.
    pub highest: Version,
    /// The pin, if there is one; without it more is offered.
    pub pin: Option<String>,
}

impl NotAcceptable {
    /// 406 Not Acceptable.
    pub const STATUS: u16 = 406;
}

impl fmt::Display for NotAcceptable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            lowest,
            highest,
            pin,
        } = self;
        write!(
            f,
            "version {asked} of the API is not offered; {lowest} to {highest} are"
        )?;
        match pin {
            Some(pin) => write!(f, " while this service is pinned to {pin}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotAcceptable {}

impl Pin {
    /// No pin: the newest of everything.
    pub fn none(manifest: Arc<Manifest>) -> Self {
        Self {
            manifest,
            place: None,
        }
    }

    /// Reads a setting: a release by name or number, or nothing at all for no pin.
    pub fn read(manifest: Arc<Manifest>, setting: &str) -> Result<Self, UnknownPin> {
        let setting = setting.trim();
        let place = match setting {
            "" => None,
            _ => Some(manifest.find(setting)?.place),
        };
        Ok(Self { manifest, place })
    }

    /// The same manifest, and no pin.
    #[must_use]
    pub fn without_pin(&self) -> Self {
        Self::none(Arc::clone(&self.manifest))
    }

    /// The release, or `None` if there is no pin.
    pub fn release(&self) -> Option<String> {
        self.place.map(|place| self.manifest.label(place))
    }

    /// The manifest that it was read against.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The version in which a new object is stored and sent; `None` if there is no pin, and it is the newest.
    pub fn target(&self, object: &str) -> Result<Option<Version>, NotWhilePinned> {
        match self.place {
            None => Ok(None),
            Some(place) => match self.manifest.writes(place, object) {
                Some(version) => Ok(Some(version)),
                None => Err(self.refusal(object, Version::new(0, 0), Vec::new())),
            },
        }
    }

    /// Whether that version of an object, with all that came with it, may be used now.
    pub fn permits(&self, object: &str, version: Version) -> bool {
        match self.target(object) {
            Ok(None) => true,
            Ok(Some(target)) => target >= version,
            Err(_) => false,
        }
    }

    /// The highest version of the API that is offered.
    pub fn api(&self) -> Version {
        self.manifest.api(self.current())
    }

    /// The highest version of the RPC that is asked of others.
    pub fn rpc(&self) -> Version {
        self.manifest.rpc(self.current())
    }

    /// The version of the API that a request gets: the one that it asks for, or the lowest.
    pub fn negotiate(&self, lowest: Version, asked: Option<Version>) -> Result<Version, NotAcceptable> {
        let highest = self.api();
        let asked = asked.unwrap_or(lowest);
        if (lowest..=highest).contains(&asked) {
            return Ok(asked);
        }
        Err(NotAcceptable {
            asked,
            lowest,
            highest,
            pin: self.release(),
        })
    }

    /// The refusal of what needs that version of the object.
    pub(crate) fn refusal(&self, object: &str, needs: Version, lost: Vec<Loss>) -> NotWhilePinned {
        NotWhilePinned {
            pin: self.manifest.label(self.current()),
            object: object.to_owned(),
            lost,
            since: self
                .manifest
                .first_release_with(object, needs)
                .map(|place| self.manifest.label(place)),
        }
    }

    fn current(&self) -> Place {
        self.place.unwrap_or(self.manifest.current())
    }
}

/// The pin of a process, which may be set anew while it runs.
#[derive(Debug)]
pub struct Pins {
    manifest: Arc<Manifest>,
    now: RwLock<Arc<Pin>>,
}

/// What a pin was and is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The release before, if there was a pin.
    pub from: Option<String>,
    /// The release now, if there is a pin.
    pub to: Option<String>,
}

impl Pins {
    /// Reads the setting at start. A process whose pin is none must not start.
    pub fn new(manifest: Arc<Manifest>, setting: &str) -> Result<Self, UnknownPin> {
        let pin = Pin::read(Arc::clone(&manifest), setting)?;
        Ok(Self {
            manifest,
            now: RwLock::new(Arc::new(pin)),
        })
    }

    /// The pin in force. Take it once for each piece of work, and use it for all of that.
    pub fn now(&self) -> Arc<Pin> {
        // The lock only guards the exchange of a pointer, which cannot be left half done.
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets it anew, for all work that begins from now on. A setting that is none changes nothing.
    pub fn reload(&self, setting: &str) -> Result<Changed, UnknownPin> {
        let pin = Arc::new(Pin::read(Arc::clone(&self.manifest), setting)?);
        let to = pin.release();
        let before = std::mem::replace(
            &mut *self.now.write().unwrap_or_else(PoisonError::into_inner),
            pin,
        );
        Ok(Changed {
            from: before.release(),
            to,
        })
    }
}
