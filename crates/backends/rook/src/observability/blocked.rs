//! Why a cluster is not changed now.

use stagger_engine::cluster::BackendError;
use stagger_engine::driver::DriveError;
use stagger_engine::supervisor::SuperviseError;

use crate::api::access::AccessError;

/// A word for the status, and a sentence: what keeps a cluster from being changed.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) reason: &'static str,
    pub(crate) why: String,
    /// Whether it may pass by itself: then it is tried again.
    pub(crate) passes: bool,
}

impl Blocked {
    pub(crate) fn until_changed(reason: &'static str, why: impl Into<String>) -> Self {
        Self {
            reason,
            why: why.into(),
            passes: false,
        }
    }

    pub(crate) fn temporary(reason: &'static str, why: impl Into<String>) -> Self {
        Self {
            reason,
            why: why.into(),
            passes: true,
        }
    }
}

impl From<BackendError> for Blocked {
    fn from(error: BackendError) -> Self {
        let hint = error
            .hint
            .as_ref()
            .map(|hint| format!("; {hint}"))
            .unwrap_or_default();
        Self::temporary("CannotBeAsked", format!("{error}{hint}"))
    }
}

impl From<AccessError> for Blocked {
    fn from(error: AccessError) -> Self {
        let source = std::error::Error::source(&error).map(|inner| format!(": {inner}"));
        Self::temporary(
            "CephNotReachable",
            format!("{error}{}", source.unwrap_or_default()),
        )
    }
}

impl From<SuperviseError> for Blocked {
    fn from(error: SuperviseError) -> Self {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            why = format!("{why}: {inner}");
            source = inner.source();
        }
        Self::temporary("RunNotStarted", why)
    }
}

impl From<DriveError> for Blocked {
    fn from(error: DriveError) -> Self {
        SuperviseError::from(error).into()
    }
}
