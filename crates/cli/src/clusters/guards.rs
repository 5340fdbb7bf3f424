//! The guards that a cluster holds.

use std::time::{Duration, Instant};

use stagger_ceph::backend::CephBackend;
use stagger_engine::heartbeats::Heartbeats;
use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::rapi::reason::EMERGENCY;

use crate::documents::HeldGuard;
use crate::error::CliError;

/// The cluster that holds guards.
pub(crate) enum GuardHolder {
    Ceph(Box<CephBackend>),
    Ganeti(Box<GanetiBackend>),
}

impl GuardHolder {
    /// The command under which they are listed.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Ceph(_) => "ceph",
            Self::Ganeti(_) => "ganeti",
        }
    }

    /// The reason with which others pass whatever is held; `None`: there is no such thing.
    pub(crate) fn passes(&self) -> Option<&'static str> {
        match self {
            Self::Ceph(_) => None,
            Self::Ganeti(_) => Some(EMERGENCY),
        }
    }

    pub(crate) async fn held(&self) -> Result<Vec<HeldGuard>, CliError> {
        Ok(match self {
            Self::Ceph(ceph) => ceph.guards().await?.into_iter().map(HeldGuard::from).collect(),
            Self::Ganeti(ganeti) => ganeti.guards().await?.into_iter().map(HeldGuard::from).collect(),
        })
    }

    /// Gives back what these beats have seen unrenewed for longer than it lasts. What is there now?
    pub(crate) async fn clear_expired_and_list(
        &self,
        beats: &mut Heartbeats,
    ) -> Result<HeldGuards, CliError> {
        let now = Instant::now();
        Ok(match self {
            Self::Ceph(ceph) => {
                let looked = ceph.drop_expired_guards(beats, now).await?;
                HeldGuards {
                    gone: looked.gone.into_iter().map(HeldGuard::from).collect(),
                    held: looked.held.into_iter().map(HeldGuard::from).collect(),
                    next: looked.next,
                    longest: looked.longest,
                }
            }
            Self::Ganeti(ganeti) => {
                let looked = ganeti.drop_expired_guards(beats, now).await?;
                HeldGuards {
                    gone: looked.gone.into_iter().map(HeldGuard::from).collect(),
                    held: looked.held.into_iter().map(HeldGuard::from).collect(),
                    next: looked.next,
                    longest: looked.longest,
                }
            }
        })
    }
}

/// What came of a look at all guards.
pub(crate) struct HeldGuards {
    /// What was given back.
    pub(crate) gone: Vec<HeldGuard>,
    pub(crate) held: Vec<HeldGuard>,
    /// The first that is held goes then, if nobody renews it.
    pub(crate) next: Option<Duration>,
    /// The longest of them lasts so long.
    pub(crate) longest: Option<Duration>,
}
