//! A fake API server for tests: its list of each resource, and the events of its watches.

mod kept;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// It knows lists by their paths (`/api/v1/namespaces/n/pods`), and of single objects those that it keeps.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    /// What a watch lists at its beginning.
    shown: BTreeMap<String, Vec<Value>>,
    /// What anybody else is answered; where it is not there, the same.
    now: BTreeMap<String, Vec<Value>>,
    watches: Vec<(String, UnboundedSender<String>)>,
    /// The lists whose objects are kept.
    kept: BTreeSet<String>,
    /// The newest version of an object that is kept.
    version: u64,
}

impl Stored {
    fn show(&self, path: &str, object: &Value) {
        let line = modified(object);
        for (_, watch) in self.watches.iter().filter(|(of, _)| of == path) {
            watch.send(line.clone()).ok();
        }
    }
}

fn modified(object: &Value) -> String {
    format!("{}\n", json!({ "type": "MODIFIED", "object": object }))
}

impl FakeApi {
    pub(crate) fn client(&self) -> Client {
        let router = Router::new().fallback(answer).with_state(self.clone());
        Client::new(router, "n")
    }

    /// What is listed at a path.
    pub(crate) fn has(&self, path: &str, items: Vec<Value>) {
        self.0.lock().unwrap().shown.insert(path.to_owned(), items);
    }

    /// What is listed there by now, while watches are behind.
    pub(crate) fn set_list(&self, path: &str, items: Vec<Value>) {
        self.0.lock().unwrap().now.insert(path.to_owned(), items);
    }

    /// The watches there show that an object has changed.
    pub(crate) fn send_modified(&self, path: &str, object: &Value) {
        self.0.lock().unwrap().show(path, object);
    }
}

async fn answer(State(server): State<FakeApi>, request: Request<Body>) -> Response<Body> {
    let (request, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let (path, query) = (request.uri.path().to_owned(), request.uri.query().unwrap_or(""));
    let accepts = |word: &str| {
        let accept = request
            .headers
            .get("accept")
            .and_then(|value| value.to_str().ok());
        accept.is_some_and(|accept| accept.contains(word))
    };
    let mut stored = server.0.lock().unwrap();
    if query.contains("watch=true") {
        let (tell, told) = unbounded_channel::<String>();
        // What changed between its list and this, and perhaps what did not.
        for object in stored
            .shown
            .get(&path)
            .filter(|_| stored.kept.contains(&path))
            .into_iter()
            .flatten()
        {
            tell.send(modified(object)).ok();
        }
        stored.watches.push((path, tell));
        let lines = stream::unfold(told, async |mut told| Some((told.recv().await?, told)));
        return Response::new(Body::from_stream(lines.map(Ok::<_, std::io::Error>)));
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(answer) = stored.keep(&request.method, &path, &body) {
        return answer.map_or_else(refused, |object| Response::new(Body::from(object.to_string())));
    }
    let is_list = !path.contains("/configmaps/") && !path.ends_with("/status");
    if request.method != http::Method::GET || !is_list {
        return refused(StatusCode::NOT_FOUND);
    }
    // A watch lists its pages by their size; the operator reads only metadata where it asks once more.
    let is_of_watch = query.contains("limit=") && !accepts("PartialObjectMetadataList");
    let now = stored.now.get(&path).filter(|_| !is_of_watch);
    let items = now
        .or_else(|| stored.shown.get(&path))
        .cloned()
        .unwrap_or_default();
    let kind = if accepts("PartialObjectMetadataList") {
        ("meta.k8s.io/v1", "PartialObjectMetadataList")
    } else {
        ("v1", "List")
    };
    let list = json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "resourceVersion": "1" }, "items": items });
    Response::new(Body::from(list.to_string()))
}

fn refused(code: StatusCode) -> Response<Body> {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason,
        "message": "it is refused",
    });
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = code;
    response
}
