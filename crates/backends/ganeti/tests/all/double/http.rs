//! RAPI's addresses, over HTTP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::queue::Op;
use super::{Dies, Fault, Filter, Reply, Request, World, no};

pub type Shared = Arc<Mutex<World>>;

/// `stagger:geheim`
pub const LOGIN: &str = "Basic c3RhZ2dlcjpnZWhlaW0=";

/// Serves a world until the runtime ends; returns its address.
pub async fn serve(world: &Shared) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().fallback(handle).with_state(Arc::clone(world));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

async fn handle(State(world): State<Shared>, request: axum::extract::Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let login = parts
        .headers
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    if login != Some(LOGIN) {
        return reply(no(401, "Unauthorized"));
    }
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let request = Request {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: words(parts.uri.query().unwrap_or_default()),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let (fault, dies) = {
        let mut world = world.lock().unwrap();
        world
            .questions
            .push(format!("{} {}", request.method, request.path));
        world.tick();
        let dies = world.kill.filter(|(at, _)| *at <= world.requests);
        if dies.is_some() {
            world.kill = None;
        }
        (world.take_fault(&request), dies)
    };
    if let Some((_, dies)) = dies {
        match dies {
            Dies::After => {
                answer(&world, &request).await;
            }
            Dies::Late(ticks) if request.word("reason").is_some() => {
                world.lock().unwrap().late.push_back((ticks, request.clone()));
            }
            Dies::Before | Dies::Late(_) => {}
        }
        world.lock().unwrap().killed.notify_one();
        std::future::pending::<()>().await;
    }
    if world.lock().unwrap().locked_out {
        return reply(no(401, "Unauthorized"));
    }
    match fault {
        None => reply(answer(&world, &request).await),
        Some(Fault::LoseAnswer) => {
            answer(&world, &request).await;
            broken()
        }
        Some(Fault::Late(ticks)) => {
            world.lock().unwrap().late.push_back((ticks, request));
            broken()
        }
        Some(Fault::Status(code)) => reply(no(code, "the test said so")),
        Some(Fault::QueueDrained) => reply(no(500, "Queue drained")),
        Some(Fault::DoneAndStatus(code)) => {
            answer(&world, &request).await;
            reply(no(code, "the test said so"))
        }
        Some(Fault::Garbage) => Response::new(Body::from("<html>")),
        Some(Fault::FailJob) => {
            let said = answer(&world, &request).await;
            world.lock().unwrap().jobs.last_mut().unwrap().fails = true;
            reply(said)
        }
    }
}

fn words(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| {
            let value = percent_decode_str(value).decode_utf8().unwrap();
            (name.to_owned(), value.into_owned())
        })
        .collect()
}

fn reply((code, value): Reply) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .body(Body::from(value.to_string()))
        .unwrap()
}

/// The connection ends in mid-answer.
fn broken() -> Response<Body> {
    let end = futures::stream::once(async { Err::<String, _>(std::io::Error::other("cut")) });
    Response::new(Body::from_stream(end))
}

async fn answer(world: &Shared, request: &Request) -> Reply {
    if let Some(id) = request.path.strip_suffix("/wait") {
        {
            let mut world = world.lock().unwrap();
            world.waits += 1;
            world.most_waits = world.most_waits.max(world.waits);
        }
        let said = wait(world, request, id).await;
        world.lock().unwrap().waits -= 1;
        return said;
    }
    world.lock().unwrap().answer(request)
}

/// Tells when a job's status is another than the one known, and nothing after a while.
async fn wait(world: &Shared, request: &Request, id: &str) -> Reply {
    let id: usize = id.rsplit('/').next().unwrap().parse().unwrap();
    for _ in 0..40 {
        {
            let mut world = world.lock().unwrap();
            let Some(job) = world.jobs.get(id - 1) else {
                return no(404, "no such job");
            };
            let status = json!([job.status]);
            // One line, when it begins. Without the serial that is known all lines are news.
            let logged = job.has_begun() && request.body["previous_log_serial"].is_null();
            if request.body["previous_job_info"] != status || logged {
                let line = json!([1, [1_795_219_724, 1], "message", "begun"]);
                let lines = if logged { vec![line] } else { Vec::new() };
                return (200, json!({ "job_info": status, "log_entries": lines }));
            }
            world.tick();
        }
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    (200, Value::Null)
}

impl World {
    /// What RAPI says to a request, and does.
    pub fn answer(&mut self, request: &Request) -> Reply {
        let parts: Vec<&str> = request.path.trim_start_matches("/2/").split('/').collect();
        let tags: Vec<String> = request
            .query
            .iter()
            .filter(|(name, _)| name == "tag")
            .map(|(_, tag)| tag.clone())
            .collect();
        let job = |world: &mut Self, op| (200, json!(world.submit(op, request.word("reason"))));
        match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["info"]) => (
                200,
                json!({
                    "name": "cluster",
                    "uuid": "d2776876-8229-4424-b27a-8479fe7e2b06",
                    "master": self.shown.master,
                    "software_version": "3.0.2",
                    "candidate_pool_size": self.pool,
                    "ipolicy": Self::ipolicy(),
                }),
            ),
            ("GET", ["groups"]) => (
                200,
                json!([{
                    "name": "default",
                    "uuid": "g1",
                    "alloc_policy": "preferred",
                    "ipolicy": Self::ipolicy(),
                }]),
            ),
            ("GET", ["nodes"]) => {
                let names = self.shown.nodes.keys();
                (200, names.map(|name| self.node_document(name)).collect())
            }
            ("GET", ["nodes", name]) if self.shown.nodes.contains_key(*name) => {
                (200, self.node_document(name))
            }
            ("GET", ["instances"]) => {
                let names = self.shown.instances.keys();
                (200, names.map(|name| self.instance_document(name)).collect())
            }
            ("GET", ["instances", name]) if self.shown.instances.contains_key(*name) => {
                (200, self.instance_document(name))
            }
            ("PUT", ["query", "node"]) => (200, self.boots(&request.body)),
            ("GET", ["jobs"]) => (200, self.jobs.iter().map(super::queue::Job::document).collect()),
            ("GET", ["jobs", id]) => match self.jobs.get(id.parse::<usize>().unwrap() - 1) {
                Some(job) => (200, job.document()),
                None => no(404, "no such job"),
            },
            ("GET", ["filters"]) => (200, self.shown.filters.values().map(filter_document).collect()),
            ("PUT", ["filters", uuid]) => self.put_filter(uuid, &request.body),
            ("DELETE", ["filters", uuid]) => match self.now.filters.remove(*uuid) {
                Some(_) => {
                    self.changed();
                    (200, Value::Null)
                }
                None => no(500, "no such filter"),
            },
            (_, ["nodes", node, ..]) if !self.now.nodes.contains_key(*node) => no(404, "no such node"),
            ("PUT", ["nodes", node, "role"]) => {
                let role = request.body.as_str().unwrap().to_owned();
                let node = (*node).to_owned();
                let promotes = request.word("auto-promote") == Some("1");
                job(self, Op::Role { node, role, promotes })
            }
            ("GET", ["nodes", node, "tags"]) => (200, json!(self.shown.nodes[*node].tags)),
            ("PUT", ["nodes", node, "tags"]) => {
                let node = (*node).to_owned();
                job(self, Op::TagsSet { node, tags })
            }
            ("DELETE", ["nodes", node, "tags"]) => {
                let node = (*node).to_owned();
                job(self, Op::TagsDel { node, tags })
            }
            ("POST", ["nodes", node, "powercycle"]) => {
                let node = (*node).to_owned();
                job(self, Op::Powercycle { node })
            }
            (method, ["instances", instance, verb]) => {
                let instance = (*instance).to_owned();
                let target = request.body["target_node"].as_str().map(str::to_owned);
                if *verb == "migrate" {
                    self.migrations.push((instance.clone(), request.body.clone()));
                    let live = request.body["mode"] == "live" && request.body["allow_failover"] != true;
                    if live && self.never_live.contains(&instance) {
                        self.fails_next = true;
                    }
                }
                let op = match (method, *verb) {
                    ("PUT", "migrate") => Op::Migrate { instance, target },
                    ("POST", "replace-disks") => {
                        assert_eq!(request.body["mode"], "replace_new_secondary");
                        let to = request.body["remote_node"].as_str().unwrap().to_owned();
                        Op::Replace { instance, to }
                    }
                    ("PUT", "shutdown") => Op::Shutdown { instance },
                    ("PUT", "startup") => Op::Startup { instance },
                    ("PUT", "activate-disks") => Op::Activate { instance },
                    ("GET", "info") => Op::Info { instance },
                    _ => return no(501, "no test needs it"),
                };
                job(self, op)
            }
            _ => no(404, &request.path),
        }
    }

    fn boots(&self, body: &Value) -> Value {
        let wanted = body["qfilter"][2].as_str();
        let rows: Vec<Value> = self
            .now
            .nodes
            .iter()
            .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name))
            .map(|(name, node)| {
                if body["fields"][1] == "pip" {
                    return json!([[0, name], [0, self.addresses.get(name)]]);
                }
                let boot = match (node.up, node.role) {
                    (_, "O") => json!([4, null]),
                    (false, _) => json!([2, null]),
                    (true, _) => json!([0, Self::boot_id(node)]),
                };
                json!([[0, name], boot])
            })
            .collect();
        json!({ "data": rows, "fields": [] })
    }

    fn put_filter(&mut self, uuid: &str, body: &Value) -> Reply {
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        if lengths != [8, 4, 4, 4, 12] {
            return no(400, "malformed UUID");
        }
        let filter = Filter {
            uuid: uuid.to_owned(),
            priority: body["priority"].as_u64().unwrap(),
            predicates: body["predicates"].clone(),
            action: body["action"].clone(),
            reason: body["reason"].clone(),
            watermark: self.jobs.len() as u64,
        };
        self.now.filters.insert(uuid.to_owned(), filter);
        self.changed();
        (200, json!(uuid))
    }
}

fn filter_document(filter: &Filter) -> Value {
    let mut trail = filter.reason.as_array().unwrap().clone();
    trail.push(json!(["luxid", "", 1_795_220_712_585_447_000_u64]));
    json!({
        "uuid": filter.uuid,
        "priority": filter.priority,
        "predicates": filter.predicates,
        "action": filter.action,
        "reason_trail": trail,
        "watermark": filter.watermark,
    })
}
