//! What goes wrong.

use serde::{Deserialize, Serialize};
use stagger_core::model::{Phase, UnitId};

/// When a fault is there: from `at` seconds after the start, or after the `osd_stop`-th OSD was
/// stopped by the run, for `lasts` seconds (0: until all is healed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultWindow {
    /// Seconds.
    pub at: u32,
    /// Counted from this stop of an OSD by the run; 0: from the start.
    pub osd_stop: u32,
    /// Seconds; 0: until healed.
    pub lasts: u32,
}

/// On what a unit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailsOn {
    /// Only on another release than the one it ran at first.
    #[default]
    New,
    /// On any.
    Any,
}

/// What an oracle says instead of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OracleFault {
    /// It does not exist.
    Gone,
    /// The call fails.
    Error,
    /// It cannot tell.
    Unknown,
    /// Yes, to everything.
    Yes,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case", deny_unknown_fields)]
pub enum InjectedFault {
    /// A start takes so much longer.
    Slow {
        /// Which unit.
        unit: UnitId,
        /// Seconds more.
        seconds: u32,
    },
    /// It does not come up.
    NeverReturns {
        /// Which unit.
        unit: UnitId,
        /// On what.
        #[serde(default)]
        on: FailsOn,
    },
    /// It comes up and falls again.
    Crashes {
        /// Which unit.
        unit: UnitId,
        /// Seconds after it came up.
        after: u32,
        /// It starts again after so many seconds; 0: it stays down.
        #[serde(default)]
        again: u32,
        /// On what.
        #[serde(default)]
        on: FailsOn,
    },
    /// Calls to a unit fail without effect.
    PerformFails {
        /// Which unit.
        unit: UnitId,
        /// In which phase; any.
        #[serde(default)]
        phase: Option<Phase>,
        /// So often; 0: always.
        #[serde(default)]
        times: u32,
    },
    /// A call fails for its sender, and has its effect so much later.
    CallLate {
        /// Which unit.
        unit: UnitId,
        /// In which phase.
        phase: Phase,
        /// Seconds.
        seconds: u32,
    },
    /// A call has its effect, and its answer is lost.
    AnswerLost {
        /// Which unit.
        unit: UnitId,
        /// In which phase.
        phase: Phase,
    },
    /// A call comes twice: once as it should, and once more so much later.
    Doubled {
        /// Which unit.
        unit: UnitId,
        /// In which phase.
        phase: Phase,
        /// Seconds.
        seconds: u32,
    },
    /// A host is off: what runs on it is down, and nothing answers there.
    HostOff {
        /// Its name.
        host: String,
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
    /// A guest cannot be moved: the node that it is on is drained, and no more.
    MoveFails {
        /// Which guest.
        guest: String,
        /// So often; 0: always.
        #[serde(default)]
        times: u32,
    },
    /// Somebody starts a guest that did not run.
    GuestStarts {
        /// Its number.
        guest: u32,
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
    /// A service is drained, and its requests do not end: the call fails.
    DrainHangs {
        /// Which.
        unit: UnitId,
        /// So often; 0: always.
        #[serde(default)]
        times: u32,
    },
    /// Taking guards fails.
    GuardFails {
        /// So often; 0: always.
        #[serde(default)]
        times: u32,
    },
    /// A unit, or all of a host or rack, goes down by itself.
    Outage {
        /// `osd.3`, or the name of a host or a rack.
        what: String,
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
    /// The states of placement groups are old.
    StalePgs {
        /// They are said to be new.
        #[serde(default)]
        hidden: bool,
        /// The oracle knows no more than that.
        #[serde(default)]
        oracle_too: bool,
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
    /// The oracle says something else than the truth.
    Oracle {
        /// What.
        says: OracleFault,
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
    /// The oracle never agrees to one unit.
    OracleNo {
        /// Which.
        unit: UnitId,
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
    /// The cluster warns of something that has nothing to do with the run.
    Warning {
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
    /// Nothing can be observed.
    Blind {
        /// When.
        #[serde(default)]
        when: FaultWindow,
    },
}

impl InjectedFault {
    /// What kind of fault, as scenario files name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Slow { .. } => "slow",
            Self::NeverReturns { .. } => "never-returns",
            Self::Crashes { .. } => "crashes",
            Self::PerformFails { .. } => "perform-fails",
            Self::CallLate { .. } => "call-late",
            Self::AnswerLost { .. } => "answer-lost",
            Self::GuardFails { .. } => "guard-fails",
            Self::Outage { .. } => "outage",
            Self::Doubled { .. } => "doubled",
            Self::HostOff { .. } => "host-off",
            Self::MoveFails { .. } => "move-fails",
            Self::GuestStarts { .. } => "guest-starts",
            Self::DrainHangs { .. } => "drain-hangs",
            Self::StalePgs { .. } => "stale-pgs",
            Self::Oracle { .. } => "oracle",
            Self::OracleNo { .. } => "oracle-no",
            Self::Warning { .. } => "warning",
            Self::Blind { .. } => "blind",
        }
    }

    /// When it is there; `None`: whenever it applies.
    pub(crate) fn when(&self) -> Option<FaultWindow> {
        match self {
            Self::Outage { when, .. }
            | Self::HostOff { when, .. }
            | Self::GuestStarts { when, .. }
            | Self::StalePgs { when, .. }
            | Self::Oracle { when, .. }
            | Self::OracleNo { when, .. }
            | Self::Warning { when }
            | Self::Blind { when } => Some(*when),
            Self::Slow { .. }
            | Self::NeverReturns { .. }
            | Self::Crashes { .. }
            | Self::PerformFails { .. }
            | Self::CallLate { .. }
            | Self::AnswerLost { .. }
            | Self::Doubled { .. }
            | Self::MoveFails { .. }
            | Self::DrainHangs { .. }
            | Self::GuardFails { .. } => None,
        }
    }
}
