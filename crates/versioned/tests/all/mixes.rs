//! A sample service of two roles, an API and a worker, in two releases: in all mixes of old and new, pinned and not, on old
//! and on migrated rows, and carried from one release to the next under load. Nothing is lost, and nothing fails.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stagger_versioned::store::migrate::{End, Limits, Migrations};
use stagger_versioned::store::{Objects, RaiseRows, Store};
use stagger_versioned::{Chain, Pin, Pins, Registry, Version, Versioned};
use stagger_versioned_rpc::{
    Client, ClientSettings, Handler, Interface, Method, OrElse, Refusal, Request, Running, Server, anyone,
};

use crate::ironic::{Node1_14, Node1_16, manifest, nodes, nodes_1_14, registry};
use crate::stores::{Database, old_row, on_sqlite, table};

const ROWS: usize = 6;

/// The code of one release, as far as the sample differs between them.
trait Code: Send + Sync + Sized + 'static {
    type Node: Versioned;
    fn chain() -> Chain<Self::Node>;
    fn interface() -> Interface;
    fn registry() -> Registry;
    /// Counts one more for somebody; how many it is now.
    fn count(node: &mut Self::Node, who: &str) -> u64;
    fn counted(node: &Self::Node, who: &str) -> u64;
}

struct Old;
struct New;

fn bump(texts: &mut BTreeMap<String, String>, who: &str) -> u64 {
    let count = read(texts, who) + 1;
    texts.insert(who.to_owned(), count.to_string());
    count
}

fn read(texts: &BTreeMap<String, String>, who: &str) -> u64 {
    texts.get(who).map_or(0, |count| count.parse().unwrap())
}

impl Code for Old {
    type Node = Node1_14;
    fn chain() -> Chain<Node1_14> {
        nodes_1_14()
    }
    fn interface() -> Interface {
        let count = Method::since("count", Version::new(1, 1))
            .argument("uuid")
            .argument("who");
        Interface::new(Version::new(1, 33), [count]).unwrap()
    }
    fn registry() -> Registry {
        Registry::new().with(Arc::new(nodes_1_14()))
    }
    fn count(node: &mut Node1_14, who: &str) -> u64 {
        bump(&mut node.extra, who)
    }
    fn counted(node: &Node1_14, who: &str) -> u64 {
        read(&node.extra, who)
    }
}

impl Code for New {
    type Node = Node1_16;
    fn chain() -> Chain<Node1_16> {
        nodes()
    }
    fn interface() -> Interface {
        let count = Method::since("count", Version::new(1, 1))
            .argument("uuid")
            .argument("who");
        let count = count.argument_since("why", Version::new(1, 38), OrElse::LeaveOut);
        Interface::new(Version::new(1, 40), [count]).unwrap()
    }
    fn registry() -> Registry {
        registry()
    }
    fn count(node: &mut Node1_16, who: &str) -> u64 {
        bump(&mut node.labels, who)
    }
    fn counted(node: &Node1_16, who: &str) -> u64 {
        read(&node.labels, who)
    }
}

fn objects<C: Code>() -> Objects<C::Node> {
    Objects::new(table(), Arc::new(C::chain()))
}

struct Worker<C> {
    store: Store,
    code: PhantomData<C>,
}

#[async_trait]
impl<C: Code> Handler for Worker<C> {
    async fn handle(&self, request: Request) -> Result<Value, Refusal> {
        let who = request.arg("who")?.as_str().unwrap().to_owned();
        let key = [request.arg("uuid")?.clone()];
        let objects = objects::<C>();
        let changed = objects.change(&self.store, &key, &request.pin, |node| {
            C::count(node, &who);
        });
        let stored = changed.await.map_err(Refusal::failed)?;
        request.answer(&stored.held, &C::chain())
    }
}

async fn worker<C: Code>(store: &Store, pins: &Arc<Pins>) -> Running {
    let handler = Worker::<C> {
        store: store.clone(),
        code: PhantomData,
    };
    let server = Server::new(C::interface(), C::registry(), Arc::clone(pins), anyone(), handler);
    server.start("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

/// Those who answer now, as a balancer knows them. Who holds one is in the middle of a request.
struct Rotation<T>(Mutex<Vec<Arc<T>>>);

impl<T> Rotation<T> {
    fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }
    fn add(&self, one: Arc<T>) {
        self.0.lock().unwrap().push(one);
    }
    fn pick(&self, at: u64) -> Arc<T> {
        let all = self.0.lock().unwrap();
        Arc::clone(&all[at as usize % all.len()])
    }
    /// Takes the first out, and waits until nobody asks it any more.
    async fn drain_first(&self) -> T {
        let mut one = self.0.lock().unwrap().remove(0);
        loop {
            match Arc::try_unwrap(one) {
                Ok(one) => return one,
                Err(held) => one = held,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// An API. It reads the store itself, and lets workers write.
#[async_trait]
trait Api: Send + Sync {
    /// Counts one more in a row; how many it is now.
    async fn count(&self, uuid: &str, who: &str) -> Result<u64, String>;
    /// How many rows it reads.
    async fn list(&self) -> Result<usize, String>;
}

struct ApiOf<C> {
    store: Store,
    pins: Arc<Pins>,
    workers: Arc<Rotation<Running>>,
    next: AtomicU64,
    code: PhantomData<C>,
}

#[async_trait]
impl<C: Code> Api for ApiOf<C> {
    async fn count(&self, uuid: &str, who: &str) -> Result<u64, String> {
        let worker = self.workers.pick(self.next.fetch_add(1, Ordering::Relaxed));
        let url = format!("http://{}", worker.address());
        let client = Client::new(&url, C::interface(), &C::registry(), ClientSettings::default()).unwrap();
        let args = Map::from_iter([("uuid".to_owned(), json!(uuid)), ("who".to_owned(), json!(who))]);
        let answer = client
            .call_for(&self.pins.now(), "count", &args, &C::chain())
            .await;
        Ok(C::counted(&answer.map_err(|error| error.to_string())?.value, who))
    }

    async fn list(&self) -> Result<usize, String> {
        let list = objects::<C>()
            .list(&self.store, None, 100)
            .await
            .map_err(|error| error.to_string())?;
        for row in &list {
            if let Err(why) = &row.object {
                return Err(why.to_string());
            }
        }
        Ok(list.len())
    }
}

fn api<C: Code>(store: &Store, pins: &Arc<Pins>, workers: &Arc<Rotation<Running>>) -> Box<dyn Api> {
    Box::new(ApiOf::<C> {
        store: store.clone(),
        pins: Arc::clone(pins),
        workers: Arc::clone(workers),
        next: AtomicU64::new(0),
        code: PhantomData,
    })
}

fn pins(release: &str) -> Arc<Pins> {
    Arc::new(Pins::new(manifest(), release).unwrap())
}

fn unpinned() -> Pin {
    Pin::none(manifest())
}

/// What the load was promised: how often each has counted in each row.
type Promised = BTreeMap<(String, String), u64>;

async fn kept(store: &Store, promised: &Promised) {
    for ((uuid, who), count) in promised {
        let node = objects::<New>()
            .get(store, &[json!(uuid)])
            .await
            .unwrap()
            .unwrap()
            .held
            .value;
        assert_eq!(New::counted(&node, who), *count, "{who} in {uuid}");
        // What nobody touched is as it was.
        assert_eq!(
            (node.labels["rack"].as_str(), node.traits[0].name.as_str()),
            ("r7", "GPU")
        );
    }
}

fn migrations() -> Migrations {
    Migrations::new()
        .then(RaiseRows::new("nodes", objects::<New>(), &unpinned()))
        .unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Runs {
    Old,
    Pinned,
    Unpinned,
}

/// Every mix in which no old code works beside unpinned code: that is what the order of an upgrade sees to.
async fn every_mix(store: &Store) {
    let mut promised = Promised::new();
    for at in 0..ROWS {
        old_row(
            store,
            &format!("n{at}"),
            [Some("1.14"), Some("1.13"), None][at % 3],
        )
        .await;
    }
    let mut mixes = 0;
    for migrated in [false, true] {
        if migrated {
            let report = migrations()
                .run(store, &unpinned(), Limits::default(), |_| {})
                .await
                .unwrap();
            assert_eq!(report.end, End::Done);
        }
        let all = [Runs::Old, Runs::Pinned, Runs::Unpinned];
        for (api_runs, worker_runs, other_runs) in all.into_iter().flat_map(|a| {
            all.into_iter()
                .flat_map(move |b| all.into_iter().map(move |c| (a, b, c)))
        }) {
            let mix = [api_runs, worker_runs, other_runs];
            let mixed = mix.contains(&Runs::Old) && mix.contains(&Runs::Unpinned);
            // What an unpinned service wrote once no old one reads; so old code goes first.
            let too_late = mix.contains(&Runs::Old)
                && (migrated || promised.keys().any(|(_, who)| who.contains("Unpinned")));
            if mixed || too_late {
                continue;
            }
            mixes += 1;
            let workers = Arc::new(Rotation::new());
            for runs in [worker_runs, other_runs] {
                workers.add(Arc::new(match runs {
                    Runs::Old => worker::<Old>(store, &pins("")).await,
                    Runs::Pinned => worker::<New>(store, &pins("newton")).await,
                    Runs::Unpinned => worker::<New>(store, &pins("")).await,
                }));
            }
            let api: Arc<dyn Api> = Arc::from(match api_runs {
                Runs::Old => api::<Old>(store, &pins(""), &workers),
                Runs::Pinned => api::<New>(store, &pins("newton"), &workers),
                Runs::Unpinned => api::<New>(store, &pins(""), &workers),
            });
            let mix = format!("{api_runs:?}-{worker_runs:?}-{other_runs:?}");
            let mut clients = Vec::new();
            for client in 0..3 {
                let data = if migrated { "migrated" } else { "as it was" };
                let (api, who) = (Arc::clone(&api), format!("{mix}, {data}, c{client}"));
                clients.push(tokio::spawn(async move {
                    let mut counted = Promised::new();
                    for at in client..client + ROWS * 2 {
                        let uuid = format!("n{}", at % ROWS);
                        let now = api
                            .count(&uuid, &who)
                            .await
                            .unwrap_or_else(|error| panic!("{who}: {error}"));
                        let before = counted.insert((uuid, who.clone()), now).unwrap_or(0);
                        assert_eq!(now, before + 1, "{who}");
                    }
                    counted
                }));
            }
            assert_eq!(api.list().await, Ok(ROWS), "{mix}");
            for client in clients {
                promised.extend(client.await.unwrap());
            }
            assert_eq!(api.list().await, Ok(ROWS), "{mix}");
            drop(api);
            workers.drain_first().await.stop().await;
            workers.drain_first().await.stop().await;
        }
    }
    assert!(mixes >= 20, "only {mixes} mixes");
    kept(store, &promised).await;
}

#[derive(Default)]
struct Load {
    promised: Mutex<Promised>,
    done: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    /// Lets it work for a while.
    async fn some(&self) {
        let until = self.done.load(Ordering::Relaxed) + 60;
        while self.done.load(Ordering::Relaxed) < until {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Two APIs and two workers go from one release to the next, one after the other, while three clients count.
async fn rolling_upgrade(store: &Store) {
    for at in 0..ROWS {
        old_row(store, &format!("n{at}"), [Some("1.14"), None][at % 2]).await;
    }
    let workers = Arc::new(Rotation::new());
    let apis: Arc<Rotation<Box<dyn Api>>> = Arc::new(Rotation::new());
    for _ in 0..2 {
        workers.add(Arc::new(worker::<Old>(store, &pins("")).await));
        apis.add(Arc::new(api::<Old>(store, &pins(""), &workers)));
    }
    let load = Arc::new(Load::default());
    let mut clients = Vec::new();
    for client in 0..3_u64 {
        let (load, apis) = (Arc::clone(&load), Arc::clone(&apis));
        clients.push(tokio::spawn(async move {
            let who = format!("c{client}");
            let mut at = client;
            while !load.stop.load(Ordering::Relaxed) {
                at += 1;
                let uuid = format!("n{}", at as usize % ROWS);
                let api = apis.pick(at);
                let counted = api
                    .count(&uuid, &who)
                    .await
                    .unwrap_or_else(|error| panic!("{who} in {uuid}: {error}"));
                let before = load
                    .promised
                    .lock()
                    .unwrap()
                    .insert((uuid, who.clone()), counted)
                    .unwrap_or(0);
                assert_eq!(counted, before + 1);
                let listed = api.list().await.unwrap_or_else(|error| panic!("{who}: {error}"));
                assert!(listed >= ROWS);
                load.done.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    load.some().await;
    // New code, pinned: workers first.
    let (worker_pins, api_pins) = ([pins("newton"), pins("newton")], [pins("newton"), pins("newton")]);
    for pins in &worker_pins {
        let new = worker::<New>(store, pins).await;
        let old = workers.drain_first().await;
        workers.add(Arc::new(new));
        old.stop().await;
        load.some().await;
    }
    for pins in &api_pins {
        apis.add(Arc::new(api::<New>(store, pins, &workers)));
        drop(apis.drain_first().await);
        load.some().await;
    }
    let counts = objects::<New>().versions(store).await.unwrap();
    assert!(
        counts
            .iter()
            .all(|count| count.version.as_deref() != Some("1.16")),
        "{counts:?}"
    );
    // The pins away, while they work: workers first.
    for pins in worker_pins.iter().chain(&api_pins) {
        pins.reload("").unwrap();
        load.some().await;
    }
    // Old rows that nobody touched since. A few more, so that something is left to do.
    for at in 0..ROWS {
        old_row(store, &format!("x{at}"), Some("1.13")).await;
    }
    let limits = Limits {
        max_count: NonZeroU64::new(2),
        ..Limits::default()
    };
    loop {
        let report = migrations()
            .run(store, &unpinned(), limits, |_| {})
            .await
            .unwrap();
        match report.end {
            End::Done => break,
            End::More | End::NoProgress => {}
            End::Stuck => panic!("{report:?}"),
        }
    }
    load.some().await;
    load.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let promised = load.promised.lock().unwrap().clone();
    assert_eq!(promised.len(), 3 * ROWS);
    kept(store, &promised).await;
    let counts = objects::<New>().versions(store).await.unwrap();
    assert!(
        matches!(&counts[..], [count] if count.version.as_deref() == Some("1.16")),
        "{counts:?}"
    );
}

#[test]
fn every_mix_works_and_loses_nothing() {
    on_sqlite(|store| Box::pin(async move { every_mix(&store).await }));
}

#[test]
fn an_upgrade_under_load_fails_and_loses_nothing() {
    on_sqlite(|store| Box::pin(async move { rolling_upgrade(&store).await }));
}

#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
fn both_on_postgres() {
    let database = Database::start();
    database.with("every_mix", |store| {
        Box::pin(async move { every_mix(&store).await })
    });
    database.with("rolling", |store| {
        Box::pin(async move { rolling_upgrade(&store).await })
    });
}
