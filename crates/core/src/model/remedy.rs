//! What would free a unit that is skipped.

use super::{Code, Terms};

impl Code {
    /// What would free a unit of which a plan says this, in words.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most reasons say it themselves")]
    pub(crate) fn remedy(&self, terms: &Terms) -> String {
        let Terms {
            host, guest, standby, ..
        } = terms;
        let said = match self {
            Self::NeverOkToStop => {
                "more members of that budget serving, or a lower min_size where that is safe for your data"
            }
            Self::UnitDown => {
                "starting it, or removing it from the cluster; one that its cluster has taken out is not waited for"
            }
            Self::UnitUnknown | Self::RevisionUnknown => {
                "an observation that shows it: see the conditions in `stagger observe`"
            }
            Self::NonRedundant => {
                return format!("--accept-non-redundant once no such {guest} runs, or --move-non-redundant");
            }
            Self::NonRedundantRunning => {
                return format!(
                    "stopping it, or --move-non-redundant: such {guest}s are down while they move"
                );
            }
            Self::NoRoom => {
                return format!(
                    "more memory on the {standby}, or --spend-spare where only the reserve for a failure is short"
                );
            }
            Self::NoRoomAnywhere | Self::NoRoomForCopies => {
                return format!("room on other {host}s of the group");
            }
            Self::GuestStuck => return format!("what keeps the {guest} there: see its reason"),
            Self::InterruptionNotPermitted => "permission: --interrupt, or interruptions in [policy]",
            Self::OneAtATime => "the other one serving again",
            Self::MaxInParallelUsedUp => "the units that are down serving again, or a larger max_in_parallel",
            _ => "what its reason names; see docs/reference/reasons.md",
        };
        said.to_owned()
    }
}
