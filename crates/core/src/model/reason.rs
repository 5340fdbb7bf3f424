//! Reasons: stable codes with their facts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A refusal, a hold or the cause why a unit is skipped. Its code has a paragraph in `docs/reference/reasons.md`; `detail`
/// carries the facts of this case, and is for people: nothing is decided by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Which kind of reason.
    #[serde(rename = "slug")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub code: Code,
    /// The facts of this case: names, numbers, and what would help.
    pub detail: String,
}

impl Reason {
    /// A reason with its facts.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }

    /// A reason that one system has, by that system's own word in kebab-case.
    pub fn of_backend(word: &str, detail: impl Into<String>) -> Self {
        Self::new(Code::from(word), detail)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, detail } = self;
        write!(f, "{code}: {detail}")
    }
}

/// The kinds of reasons: those that the core gives and decides by, and the words of backends.
macro_rules! codes {
    ($($(#[$doc:meta])+ $variant:ident = $word:literal,)+) => {
        /// Which kind of reason. Journals and documents hold its word.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum Code {
            $($(#[$doc])+ $variant,)+
            /// A word of a backend, or of a release that knows more: nothing is decided by it.
            Other(String),
        }

        impl Code {
            /// Every kind that has a name here.
            pub const NAMED: &[Self] = &[$(Self::$variant,)+];

            /// The stable word, in kebab-case.
            pub fn code(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for Code {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }
    };
}

codes! {
    /// Each time that both judges had agreed it was too late to begin.
    ApprovalTooShort = "approval-too-short",
    /// A person asked for the way back.
    AskedToGoBack = "asked-to-go-back",
    /// Nothing of it was begun when a person asked to stop.
    AskedToStop = "asked-to-stop",
    /// It cannot go back past a door that was passed.
    BehindAOneWayDoor = "behind-a-one-way-door",
    /// The cluster does not answer.
    ClusterUnreachable = "cluster-unreachable",
    /// It refused to be taken out of service, and was left as what it was.
    CouldNotBeEntered = "could-not-be-entered",
    /// Its software could not be laid out.
    CouldNotBePrepared = "could-not-be-prepared",
    /// A door that opens by itself after a time.
    DoorSoaking = "door-soaking",
    /// What served when the wave was opened does not, and is not of the wave.
    FaultOutsideTheWave = "fault-outside-the-wave",
    /// All gates are open, and have to stay so for a while.
    GatesHolding = "gates-holding",
    /// A gate is shut.
    GatesShut = "gates-shut",
    /// Nothing leads back.
    GoingBackIsImpossible = "going-back-is-impossible",
    /// Data would have to be rebuilt, and the policy does not permit it.
    GoingBackNeedsARebuild = "going-back-needs-a-rebuild",
    /// A guard could not be taken.
    GuardFailed = "guard-failed",
    /// A guest that can neither move nor be stopped.
    GuestStuck = "guest-stuck",
    /// Its host is off, as confirmed by an operator.
    HostOff = "host-off",
    /// Its visit interrupts a service, and that is not approved.
    InterruptionNotPermitted = "interruption-not-permitted",
    /// The journal refers to something that does not exist.
    JournalUnreadable = "journal-unreadable",
    /// Units that are already down touch the maximum number of failure domains.
    MaxDomainsUsedUp = "max-domains-used-up",
    /// As many are down already as may be.
    MaxInParallelUsedUp = "max-in-parallel-used-up",
    /// A budget has nothing left, even with all other units up.
    NeverOkToStop = "never-ok-to-stop",
    /// Its guests find no room elsewhere now.
    NoRoom = "no-room",
    /// Its guests fit on no other host, even with all hosts up.
    NoRoomAnywhere = "no-room-anywhere",
    /// The copies of its guests find no room.
    NoRoomForCopies = "no-room-for-copies",
    /// A guest with one copy of its data.
    NonRedundant = "non-redundant",
    /// Such a guest that runs.
    NonRedundantRunning = "non-redundant-running",
    /// The way back is not for it.
    NotChangedByThisRun = "not-changed-by-this-run",
    /// It serves, and to stop it once more is not safe now.
    NotSafeToStopAgain = "not-safe-to-stop-again",
    /// Its kind has its turn one by one.
    OneAtATime = "one-at-a-time",
    /// What comes cannot be taken back.
    OneWayDoor = "one-way-door",
    /// The system's own oracle refuses.
    OracleSaysNo = "oracle-says-no",
    /// The oracle cannot tell.
    OracleUnknown = "oracle-unknown",
    /// The outcome of an effect is unknown.
    OutcomeUnknown = "outcome-unknown",
    /// No maintenance window is long enough now.
    OutsideWindow = "outside-window",
    /// A person paused the run.
    Paused = "paused",
    /// Its revision is unknown.
    RevisionUnknown = "revision-unknown",
    /// What should go back did not.
    RollbackFailed = "rollback-failed",
    /// What was changed last proves itself.
    Soaking = "soaking",
    /// Two hosts whose guests have the same standby.
    StandbyShared = "standby-shared",
    /// A step failed.
    StepFailed = "step-failed",
    /// A step was done, and what it is for is not so.
    StepWithoutEffect = "step-without-effect",
    /// The plan does not reach the target.
    TargetOutOfReach = "target-out-of-reach",
    /// It was down before its turn.
    UnitDown = "unit-down",
    /// It is unknown whether it serves.
    UnitUnknown = "unit-unknown",
    /// A stage left units that the next one waits for.
    UnitsLeftBehind = "units-left-behind",
    /// Units whose time has not come again.
    UnitsSetAside = "units-set-aside",
    /// A visit failed.
    VisitFailed = "visit-failed",
    /// Calls of a process before may still land.
    WaitingOutCalls = "waiting-out-calls",
    /// A wave failed, and policy is to stop.
    WaveFailed = "wave-failed",
    /// Something of the open wave must be left alone now.
    WaveLeftAlone = "wave-left-alone",
    /// It went back with its wave.
    WentBack = "went-back",
    /// The plan is no longer safe.
    WorldHasMoved = "world-has-moved",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl From<String> for Code {
    fn from(word: String) -> Self {
        Self::from(word.as_str())
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.code().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_what_it_was_written() {
        for code in Code::NAMED
            .iter()
            .chain([&Code::Other("node-cordoned".to_owned())])
        {
            assert_eq!(Code::from(code.code()), *code);
            let written = serde_json::to_string(code).unwrap();
            assert_eq!(serde_json::from_str::<Code>(&written).unwrap(), *code);
        }
    }
}
