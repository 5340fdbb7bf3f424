//! The loss of a conversion, found by converting there and back.
//!
//! It need not be declared beside the conversion, so it cannot be forgotten.

use std::fmt;

use serde_json::Value;

/// One value that does not survive a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Where it stands, as a JSON pointer: `/traits/0/note`.
    pub at: String,
    /// What stands there.
    pub value: Value,
    /// What would stand there after it was converted and brought back; `None` if nothing.
    pub becomes: Option<Value>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, value, becomes } = self;
        match becomes {
            Some(becomes) => write!(f, "{at}: {value} would become {becomes}"),
            None => write!(f, "{at}: {value}"),
        }
    }
}

/// Where `before` differs from `after`, lists that grew or shrank as a whole.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<Loss> {
    let mut found = Vec::new();
    compare(String::new(), before, after, &mut found);
    found
}

/// A place in what stands at another.
pub(crate) fn nested(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// All of them in one line.
pub(crate) fn loss_list(lost: &[Loss]) -> String {
    let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
    lost.join(", ")
}

fn compare(at: String, before: &Value, after: &Value, found: &mut Vec<Loss>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let at = nested(&at, key);
                match after.get(key) {
                    Some(other) => compare(at, value, other, found),
                    None => found.push(Loss {
                        at,
                        value: value.clone(),
                        becomes: None,
                    }),
                }
            }
            for (key, value) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
                found.push(Loss {
                    at: nested(&at, key),
                    value: Value::Null,
                    becomes: Some(value.clone()),
                });
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (place, (before, after)) in before.iter().zip(after).enumerate() {
                compare(format!("{at}/{place}"), before, after, found);
            }
        }
        (before, after) if before == after => {}
        (before, after) => found.push(Loss {
            at,
            value: before.clone(),
            becomes: Some(after.clone()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_place_that_differs_is_named_once() {
        let before = json!({"a": 1, "b": {"c/d": [1, 2], "gone": true}, "e": [1], "same": null});
        let after = json!({"a": 1, "b": {"c/d": [1, 3]}, "e": [1, 2], "same": null, "new": 5});
        let found: Vec<String> = differences(&before, &after)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "/b/c~1d/1: 2 would become 3",
                "/b/gone: true",
                "/e: [1] would become [1,2]",
                "/new: null would become 5",
            ]
        );
    }
}
