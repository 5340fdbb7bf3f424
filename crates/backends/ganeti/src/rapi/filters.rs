//! Job filters: rules in the cluster's configuration that decide which jobs run.
//!
//! A filter is written without a job, at once and also while the queue is drained, and survives a change of
//! the master. It may carry a record as text; and its id may be chosen, so that a repeated write has no
//! further effect.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::rapi::client::{HttpMethod, Rapi, RapiClientError};
use crate::rapi::reason::Range;

/// By this source our records are known in a filter's reason trail.
const SOURCE: &str = "stagger";

/// What a filter does with the jobs that match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum FilterAction {
    /// They run.
    Accept,
    /// They wait.
    Pause,
    /// They are cancelled.
    Reject,
    /// The next filter decides.
    Continue,
}

/// Which jobs a filter matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobMatch {
    /// All.
    All,
    /// None: the filter is there for its record.
    None,
    /// Those with a reason in this range.
    Reasons(Range),
    /// Those with this very reason.
    Reason(String),
    /// Those with an opcode whose field is one of these names.
    Named {
        /// The opcode's field.
        field: &'static str,
        /// The names.
        names: BTreeSet<String>,
    },
}

impl JobMatch {
    /// As Ganeti has it.
    pub fn predicates(&self) -> Value {
        match self {
            Self::All => json!([["jobid", [">", "id", 0]]]),
            Self::None => json!([["jobid", ["<", "id", 0]]]),
            Self::Reasons(Range { from, below }) => {
                json!([["reason", ["&", [">=", "reason", from], ["<", "reason", below]]]])
            }
            Self::Reason(text) => json!([["reason", ["=", "reason", text]]]),
            Self::Named { field, names } => {
                let each = names.iter().map(|name| json!(["=", field, name]));
                let any: Vec<Value> = [json!("|")].into_iter().chain(each).collect();
                json!([["opcode", any]])
            }
        }
    }
}

/// The order of ours. Others' filters with the same number come by their age.
pub mod priority {
    /// Who is not the writer any more is refused first.
    pub const FENCE: u32 = 0;
    /// Then ours run.
    pub const OURS: u32 = 1;
    /// Then the rest waits.
    pub const REST: u32 = 2;
    /// Filters that are there for their record.
    pub const RECORD: u32 = 1000;
}

/// A filter to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter<R> {
    /// Its id, from [`id_of`].
    pub id: String,
    /// Lower is asked first.
    pub priority: u32,
    /// Which jobs.
    pub which: JobMatch,
    /// What happens to them.
    pub effect: FilterAction,
    /// What we keep in it.
    pub record: R,
}

/// A filter as found: those that carry a record of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedFilter<R> {
    /// Its id.
    pub id: String,
    /// Its record.
    pub record: R,
}

/// A filter as RAPI tells it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ListedFilter {
    /// Its id.
    pub uuid: String,
    /// Lower is asked first.
    pub priority: u32,
    /// Which jobs.
    pub predicates: Value,
    /// What happens to them: a word, or a list with a number.
    pub action: Value,
    /// Sources, texts and times.
    #[serde(default)]
    pub reason_trail: Vec<(String, String, Value)>,
}

impl ListedFilter {
    /// Our record in it, if it has one.
    pub fn record(&self) -> Option<&str> {
        self.reason_trail
            .iter()
            .find(|(source, ..)| source == SOURCE)
            .map(|(_, text, _)| text.as_str())
    }

    /// Our record in it, if it is one of that kind.
    pub fn record_of<R: DeserializeOwned>(&self) -> Option<RecordedFilter<R>> {
        let record = serde_json::from_str(self.record()?).ok()?;
        Some(RecordedFilter {
            id: self.uuid.clone(),
            record,
        })
    }
}

/// The id of a filter that is there for this purpose: the same words give the same id.
pub fn id_of(words: &[&str]) -> String {
    use std::fmt::Write as _;
    let digest = Sha256::digest(format!("stagger filter {}", words.join("\n")));
    let mut text = String::with_capacity(36);
    for (at, byte) in digest.iter().take(16).enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Version 8 of RFC 9562: made by rules of one's own.
        let byte = match at {
            6 => byte & 0x0f | 0x80,
            8 => byte & 0x3f | 0x80,
            _ => *byte,
        };
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Rapi {
    /// All filters, of whomever.
    ///
    /// # Errors
    /// No answer, or one that cannot be read.
    pub async fn filters(&self) -> Result<Vec<ListedFilter>, RapiClientError> {
        let listed = self.get("/2/filters?bulk=1").await?;
        serde_json::from_value(listed).map_err(|error| RapiClientError::Unreadable(error.to_string()))
    }

    /// Makes a filter be as it is given.
    ///
    /// # Errors
    /// No answer, or Ganeti does not take it.
    pub async fn put_filter<R: Serialize + Sync>(&self, filter: &Filter<R>) -> Result<(), RapiClientError> {
        let Filter {
            id,
            priority,
            which,
            effect,
            record,
        } = filter;
        let record =
            serde_json::to_string(record).map_err(|error| RapiClientError::Unreadable(error.to_string()))?;
        let body = json!({
            "priority": priority,
            "predicates": which.predicates(),
            "action": effect,
            "reason": [[SOURCE, record, 0]],
        });
        // Written twice it is written once, so it is repeated as a read is.
        self.read(HttpMethod::Put, &format!("/2/filters/{id}"), Some(&body))
            .await
            .map(|_| ())
    }

    /// Takes a filter away. One that is not there is away.
    ///
    /// # Errors
    /// No answer.
    pub async fn delete_filter(&self, id: &str) -> Result<(), RapiClientError> {
        match self
            .read(HttpMethod::Delete, &format!("/2/filters/{id}"), None)
            .await
        {
            Ok(_) | Err(RapiClientError::Refused { code: 404, .. }) => Ok(()),
            Err(error) => {
                // Ganeti has no word of its own for what is not there.
                let gone = self.filters().await?.iter().all(|filter| filter.uuid != id);
                if gone { Ok(()) } else { Err(error) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_for_ganeti_and_the_same_for_the_same_words() {
        let id = id_of(&["drain", "rest"]);
        assert_eq!(id, id_of(&["drain", "rest"]));
        assert_ne!(id, id_of(&["drain", "ours"]));
        let lengths: Vec<_> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "8");
    }

    #[test]
    fn recorded_filters_are_read() {
        let text = r#"[{"watermark": 77, "priority": 1, "predicates": [["jobid", [">", "id", 0]]], "action": "REJECT",
            "reason_trail": [["me", "roll-1", 1], ["luxid", "", 1795220712585447000]],
            "uuid": "3d457714-3f01-4503-98b3-301707d582c5"},
            {"watermark": 77, "priority": 0, "predicates": [["reason", ["=", "reason", "x"]]], "action": ["RATE_LIMIT", 3],
            "reason_trail": [["stagger", "{\"what\":\"x\"}", 1]], "uuid": "cc89296a-4ee2-4cf1-821f-0efdf9216f5b"}]"#;
        let filters: Vec<ListedFilter> = serde_json::from_str(text).unwrap();
        assert_eq!(filters[0].record(), None);
        assert_eq!(filters[1].record(), Some("{\"what\":\"x\"}"));
    }
}
