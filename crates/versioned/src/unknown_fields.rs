//! Fields that a version does not know: finding them, and restoring them where their parent is unchanged.

use serde_ignored::Path;
use serde_json::{Map, Value};

use crate::loss::{Loss, nested};
use crate::object::Versioned;

/// The fields of a text that its type does not know, as JSON pointers. A text that is not of that type has none.
pub(crate) fn unknown<T: Versioned>(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let read: Result<T, _> = serde_ignored::deserialize(&mut reader, |path| found.push(pointer(&path)));
    if read.is_err() {
        found.clear();
    }
    found.sort();
    found
}

fn pointer(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => nested(&pointer(parent), &index.to_string()),
        Path::Map { parent, key } => nested(&pointer(parent), key),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            pointer(parent)
        }
    }
}

/// Puts unknown fields of the top level into an object that goes out in another version than the one in which it came. What
/// is deeper, or has a meaning of its own in that version, has no place there: it is lost.
pub(crate) fn carry_over(
    now: &mut Map<String, Value>,
    unknown: &[String],
    came: &Map<String, Value>,
) -> Vec<Loss> {
    let mut lost = Vec::new();
    for (key, value) in came {
        let at = nested("", key);
        if !unknown.contains(&at) {
            continue;
        }
        if now.contains_key(key) {
            lost.push(Loss {
                at,
                value: value.clone(),
                becomes: now.get(key).cloned(),
            });
        } else {
            now.insert(key.clone(), value.clone());
        }
    }
    // Those of the top level have one slash.
    let came = Value::Object(came.clone());
    for at in unknown.iter().filter(|at| at.matches('/').count() > 1) {
        lost.push(Loss {
            at: at.clone(),
            value: came.pointer(at).cloned().unwrap_or_default(),
            becomes: None,
        });
    }
    lost
}

/// Puts what only `came` has into `now`. `came` is the object as it came, `seen` is as much of it as the newest version
/// sees, `now` what that has become. What is no more where it was, and was not taken away on purpose, is lost.
pub(crate) fn put_back(
    now: &mut Map<String, Value>,
    seen: &Map<String, Value>,
    came: &Map<String, Value>,
) -> Vec<Loss> {
    let mut lost = Vec::new();
    in_map("", now, seen, came, &mut lost);
    lost
}

fn in_map(
    at: &str,
    now: &mut Map<String, Value>,
    seen: &Map<String, Value>,
    came: &Map<String, Value>,
    lost: &mut Vec<Loss>,
) {
    for (key, came) in came {
        match (now.get_mut(key), seen.get(key)) {
            (None, None) => {
                now.insert(key.clone(), came.clone());
            }
            // It was taken away, with all that was in it.
            (None, Some(_)) => {}
            (Some(now), seen) => in_value(nested(at, key), now, seen.unwrap_or(&Value::Null), came, lost),
        }
    }
}

fn in_value(at: String, now: &mut Value, seen: &Value, came: &Value, lost: &mut Vec<Loss>) {
    if seen == came {
        return;
    }
    if now == seen {
        now.clone_from(came);
        return;
    }
    match (now, seen, came) {
        (Value::Null, _, _) => {}
        (Value::Object(now), Value::Object(seen), Value::Object(came)) => in_map(&at, now, seen, came, lost),
        (Value::Array(now), Value::Array(seen), Value::Array(came)) if seen.len() == came.len() => {
            in_list(&at, now, seen, came, lost);
        }
        (now, _, came) => lost.push(Loss {
            at,
            value: came.clone(),
            becomes: Some(now.clone()),
        }),
    }
}

/// An element is the one that looks as it did, at its place or else at another. One that looks like none may be new, or
/// another one changed: nobody knows which, so what was hidden in those that are not found is lost.
fn in_list(at: &str, now: &mut [Value], seen: &[Value], came: &[Value], lost: &mut Vec<Loss>) {
    let mut missing = vec![true; seen.len()];
    let mut strangers = Vec::new();
    for (place, one) in now.iter_mut().enumerate() {
        if seen.get(place) == Some(&*one) {
            one.clone_from(&came[place]);
            missing[place] = false;
        } else {
            strangers.push(one);
        }
    }
    strangers.retain_mut(|one| {
        let found = (0..seen.len()).find(|place| missing[*place] && seen[*place] == **one);
        if let Some(place) = found {
            one.clone_from(&came[place]);
            missing[place] = false;
        }
        found.is_none()
    });
    if strangers.is_empty() {
        return;
    }
    for (place, came) in came.iter().enumerate() {
        if missing[place] && seen[place] != *came {
            lost.push(Loss {
                at: nested(at, &place.to_string()),
                value: came.clone(),
                becomes: None,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What becomes of `now`, and what is lost.
    fn after(seen: Value, came: Value, now: Value) -> (Value, Vec<String>) {
        let [Value::Object(seen), Value::Object(came), Value::Object(mut now)] = [seen, came, now] else {
            panic!("maps")
        };
        let lost = put_back(&mut now, &seen, &came);
        (Value::Object(now), lost.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_was_not_changed_gets_back_what_is_hidden_in_it() {
        let seen = json!({"a": null, "m": {"x": 1, "y": {"z": 1}}, "l": [{"n": 1}, {"n": 2}, {"n": 3}]});
        let came = json!({
            "a": "old", "m": {"x": 1, "y": {"z": 1, "h": 0}, "h": 1}, "l": [{"n": 1, "h": 1}, {"n": 2}, {"n": 3, "h": 3}],
        });
        let whole = after(seen.clone(), came.clone(), seen.clone());
        assert_eq!(whole, (came.clone(), Vec::new()));
        for (now, then) in [
            // One more, in the midst.
            (
                json!({"l": [{"n": 1}, {"n": 9}, {"n": 2}, {"n": 3}]}),
                json!({"l": [{"n": 1, "h": 1}, {"n": 9}, {"n": 2}, {"n": 3, "h": 3}]}),
            ),
            // In another order, one less, and one twice.
            (
                json!({"l": [{"n": 3}, {"n": 1}]}),
                json!({"l": [{"n": 3, "h": 3}, {"n": 1, "h": 1}]}),
            ),
            // One that hid nothing was changed.
            (
                json!({"l": [{"n": 1}, {"n": 7}, {"n": 3}]}),
                json!({"l": [{"n": 1, "h": 1}, {"n": 7}, {"n": 3, "h": 3}]}),
            ),
            // Beside it in a map.
            (
                json!({"m": {"x": 2, "y": {"z": 1}, "w": 1}}),
                json!({"m": {"x": 2, "y": {"z": 1, "h": 0}, "h": 1, "w": 1}}),
            ),
            // Taken away with what was in it.
            (json!({"m": {"x": 1}}), json!({"m": {"x": 1, "h": 1}})),
            (json!({"m": null}), json!({"m": null})),
        ] {
            let (got, lost) = after(seen.clone(), came.clone(), now);
            assert_eq!((got, lost), (then, Vec::new()));
        }
    }

    #[test]
    fn what_has_lost_its_place_is_named() {
        let seen = json!({"a": null, "l": [{"n": 1}, {"n": 2}]});
        let came = json!({"a": "old", "l": [{"n": 1, "h": 1}, {"n": 2, "h": 2}]});
        let (now, lost) = after(seen, came, json!({"a": "new", "l": [{"n": 1}, {"n": 7}]}));
        assert_eq!(now, json!({"a": "new", "l": [{"n": 1, "h": 1}, {"n": 7}]}));
        assert_eq!(
            lost,
            ["/a: \"old\" would become \"new\"", "/l/1: {\"h\":2,\"n\":2}"]
        );
    }

    /// A copy of an element is new: what is hidden in the first is there once.
    #[test]
    fn nothing_is_put_back_twice() {
        let seen = json!({"l": [{"n": 1}]});
        let came = json!({"l": [{"n": 1, "h": 1}]});
        let (now, lost) = after(seen, came, json!({"l": [{"n": 1}, {"n": 1}]}));
        assert_eq!((now, lost.len()), (json!({"l": [{"n": 1, "h": 1}, {"n": 1}]}), 0));
    }
}
