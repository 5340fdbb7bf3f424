//! What would free a unit that is skipped.

use super::{Code, Terms};

impl Code {
    /// What would free a unit of which a plan says this, in words.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most reasons say it themselves")]
    pub(crate) fn remedy(&self, terms: &Terms) -> String {
        let Terms {
            host, guest, standby, ..
        } = terms;
        if let Some(words) = terms.remedies.get(self.code()) {
            return words.clone();
        }
        let said = match self {
            Self::NeverOkToStop => "more members of that budget serving, or a budget that permits one more",
            Self::UnitDown => {
                "starting it, or removing it from the cluster; one that its cluster has taken out is not waited for"
            }
            Self::UnitUnknown | Self::RevisionUnknown => {
                "an observation that shows it: see the conditions in `stagger observe`"
            }
            Self::NonRedundant => {
                return format!("permission once no such {guest} runs, or moving it off with downtime");
            }
            Self::NonRedundantRunning => {
                return format!("stopping it, or moving it off: such {guest}s are down while they move");
            }
            Self::NoRoom => {
                return format!(
                    "more memory on the {standby}, or its reserve for a failure where only that is short"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_s_own_remedy_is_said_in_place_of_the_general_one() {
        let general = Terms::default();
        let own = Terms::default().with_remedies([(Code::NonRedundant, "--accept")]);
        assert_eq!(Code::NonRedundant.remedy(&own), "--accept");
        for code in [
            Code::NeverOkToStop,
            Code::NonRedundantRunning,
            Code::NoRoom,
            Code::OneAtATime,
        ] {
            assert_eq!(code.remedy(&own), code.remedy(&general));
        }
    }

    /// As earlier builds wrote them, and as they read ours.
    #[test]
    fn words_without_remedies_are_as_they_were() {
        let before = r#"{"unit":"node","host":"node","guest":"instance","standby":"secondary"}"#;
        let terms: Terms = serde_json::from_str(before).unwrap();
        assert_eq!(terms, Terms::new("node", "node", "instance", "secondary"));
        assert_eq!(serde_json::to_string(&terms).unwrap(), before);
        let own = terms.with_remedies([(Code::NoRoom, "--spend-spare")]);
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Terms>(&text).unwrap(), own);
    }
}
