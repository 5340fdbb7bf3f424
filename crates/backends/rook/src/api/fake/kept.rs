//! Objects that the fake API server keeps: each is made, changed and deleted as a real one does it, as far as versions go. Of a
//! Deployment the controller has always done its work.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{FakeApi, Stored};

/// So many bytes of data an object may have.
const MOST: usize = 1 << 20;

impl FakeApi {
    /// Keeps the objects of a list, of which there are these.
    pub(crate) fn keeps(&self, list: &str, items: Vec<Value>) {
        let mut stored = self.0.lock().unwrap();
        stored.kept.insert(list.to_owned());
        stored.shown.insert(list.to_owned(), Vec::new());
        for object in items {
            stored.keep(&Method::POST, list, &object);
        }
    }

    /// An object that is kept, as it is now.
    pub(crate) fn object(&self, list: &str, name: &str) -> Option<Value> {
        let mut stored = self.0.lock().unwrap();
        stored
            .keep(&Method::GET, &format!("{list}/{name}"), &Value::Null)?
            .ok()
    }
}

impl Stored {
    /// What comes of a request about one object that is kept; `None`: it is about something else.
    pub(super) fn keep(
        &mut self,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> Option<Result<Value, StatusCode>> {
        if self.kept.contains(path) {
            let name = body["metadata"]["name"].as_str()?.to_owned();
            return Some(self.done(method, path, &name, body));
        }
        let (list, name) = path.rsplit_once('/')?;
        self.kept
            .contains(list)
            .then(|| self.done(method, list, name, body))
    }

    fn done(&mut self, method: &Method, list: &str, name: &str, body: &Value) -> Result<Value, StatusCode> {
        let items = self.shown.get_mut(list).ok_or(StatusCode::NOT_FOUND)?;
        let at = items.iter().position(|object| object["metadata"]["name"] == name);
        let before = match (at, method) {
            (Some(_), &Method::POST) => return Err(StatusCode::CONFLICT),
            (Some(at), &Method::GET) => return Ok(items[at].clone()),
            (Some(at), &Method::DELETE) => {
                items.remove(at);
                return Ok(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }));
            }
            (Some(at), _) => items[at].clone(),
            (None, &Method::POST) => Value::Null,
            (None, _) => return Err(StatusCode::NOT_FOUND),
        };
        let mut object = patched(&before, body)?;
        if object != before {
            self.version += 1;
            // Lists have the version 1.
            object["metadata"]["resourceVersion"] = json!((self.version + 1).to_string());
            match at {
                Some(at) => items[at].clone_from(&object),
                None => items.push(object.clone()),
            }
            self.show(list, &object);
        }
        Ok(object)
    }
}

/// The object with what a patch says; an apply is taken for a merge.
fn patched(before: &Value, patch: &Value) -> Result<Value, StatusCode> {
    let (version, wanted) = (
        &before["metadata"]["resourceVersion"],
        &patch["metadata"]["resourceVersion"],
    );
    if wanted.is_string() && wanted != version {
        return Err(StatusCode::CONFLICT);
    }
    let mut object = before.clone();
    merge(&mut object, patch);
    object["metadata"]["resourceVersion"].clone_from(version);
    if object["data"].to_string().len() > MOST {
        return Err(StatusCode::UNPROCESSABLE_ENTITY);
    }
    if object["spec"] != before["spec"] && !before.is_null() {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
        object["metadata"]["generation"] = json!(generation);
        object["status"]["observedGeneration"] = json!(generation);
    }
    Ok(object)
}

/// A merge patch, as RFC 7386 has it.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        into.clone_from(patch);
        return;
    };
    let mut fields = into.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
    *into = Value::Object(fields);
}
