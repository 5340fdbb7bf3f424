//! Identifier types, so that a unit is never taken for a stage.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// A name that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {why}")]
pub struct IdError {
    /// What the text was to name.
    pub what: &'static str,
    /// The text as given.
    pub text: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

const LONGEST: usize = 200;

fn validate(what: &'static str, text: &str) -> Result<(), IdError> {
    let why = if text.is_empty() {
        "it is empty"
    } else if text.len() > LONGEST {
        "it is longer than 200 bytes"
    } else if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "it holds white space or control characters"
    } else {
        return Ok(());
    };
    Err(IdError {
        what,
        text: text.to_owned(),
        why,
    })
}

// Shared, not copied: the same names stand in each observation, plan and event, by the ten thousand.
macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name, checked: 1 to 200 bytes without white space or control characters.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                Self::try_from(text.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                validate($what, &text)?;
                Ok(Self(text.into()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

id_type!(
    /// A cluster, as the configuration calls it.
    ClusterName, "cluster"
);
id_type!(
    /// The cluster's own identity: the fsid of Ceph, the UUID of Ganeti. It stays when its name in the configuration changes.
    ClusterId, "cluster's identity"
);
id_type!(
    /// A unit: the smallest thing that is stopped and started again, `osd.3`.
    UnitId, "unit"
);
id_type!(
    /// A kind of unit: `mon`, `osd`, `node`.
    Kind, "kind"
);
id_type!(
    /// What a unit runs: a release, with the hash of its configuration where that is known. Opaque;
    /// compared for equality only.
    Revision, "revision"
);
id_type!(
    /// A stage or a step of a procedure.
    PartName, "stage or step"
);
id_type!(
    /// A health fact: `quorum`, `pgs-clean`.
    ConditionName, "condition"
);
id_type!(
    /// A setting taken for a time: `noout`.
    GuardName, "guard"
);
id_type!(
    /// One run, made by the engine when it starts.
    RunId, "run"
);

/// Ids in numeric order where they end in numbers: `osd.9` before `osd.10`.
impl UnitId {
    /// The key by which units are sorted for people: the text before the trailing number, then that
    /// number, then the text itself, since `a1` and `a01` have the same number.
    pub fn natural_key(&self) -> (&str, Option<u64>, &str) {
        let digits = self.0.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (head, tail) = self.0.split_at(self.0.len() - digits);
        (head, tail.parse().ok(), &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_checked_on_every_way_in() {
        assert!(UnitId::new("osd.3").is_ok());
        for bad in ["", "osd 3", "osd\n3", &"x".repeat(201)] {
            assert!(UnitId::new(bad).is_err(), "{bad:?} was taken");
            assert!(serde_json::from_value::<UnitId>(serde_json::json!(bad)).is_err());
        }
    }

    #[test]
    fn names_that_count_alike_are_still_two() {
        let (one, other) = (UnitId::new("mon.a1").unwrap(), UnitId::new("mon.a01").unwrap());
        assert_ne!(one.natural_key(), other.natural_key());
    }

    #[test]
    fn units_sort_as_people_count() {
        let mut units: Vec<UnitId> = ["osd.10", "osd.9", "mon.a"]
            .iter()
            .map(|u| UnitId::new(*u).unwrap())
            .collect();
        units.sort_by(|a, b| a.natural_key().cmp(&b.natural_key()));
        let names: Vec<_> = units.iter().map(UnitId::as_str).collect();
        assert_eq!(names, ["mon.a", "osd.9", "osd.10"]);
    }
}
