//! Three releases of the inventory, one after the other, under load and with every process killed in the middle.
//!
//! Three instances on one PostgreSQL go from 1.0 to 2.0, pinned and then not, their rows are migrated online, and 3.0 drops
//! what 1.0 needed. Clients book movements all the time. None of them may fail, none may be lost, none be booked twice.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

#[path = "../../../crates/versioned/tests/all/server.rs"]
#[allow(dead_code, reason = "it serves other tests too")]
mod server;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::Server;
use sqlx::{AssertSqlSafe, Row as _};
use stagger_versioned::store::{Connect, Store};

const ONE: &str = env!("CARGO_BIN_EXE_inventory-one");
const TWO: &str = env!("CARGO_BIN_EXE_inventory-two");
const THREE: &str = env!("CARGO_BIN_EXE_inventory-three");
/// For so long anything here is waited for at most. A client tries for a minute to book one movement.
const PATIENCE: Duration = Duration::from_mins(2);
const ITEMS: [&str; 5] = ["chair", "desk", "lamp", "shelf", "table"];

/// Three instances, and the clients of them.
struct Warehouse {
    database: String,
    ports: Vec<u16>,
    instances: Vec<Child>,
    clients: Vec<Child>,
    /// What clients said that have ended.
    tallies: Vec<Value>,
}

impl Warehouse {
    fn urls(&self) -> Vec<String> {
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        self.ports.iter().map(url).collect()
    }

    fn start(&self, at: usize, release: &str, pin: &str) -> Child {
        let others = self.urls().into_iter().enumerate();
        let peers: Vec<String> = others
            .filter(|(other, _)| *other != at)
            .map(|(_, url)| url)
            .collect();
        let child = Command::new(release)
            .args(["serve", "--database", &self.database])
            .args(["--listen", &format!("127.0.0.1:{}", self.ports[at])])
            .args(["--peers", &peers.join(","), "--pin", pin])
            .spawn()
            .unwrap();
        self.wait_for(at);
        child
    }

    /// Ends an instance as a crash does, and starts it anew.
    fn replace(&mut self, at: usize, release: &str, pin: &str) {
        kill(&mut self.instances[at]);
        self.instances[at] = self.start(at, release, pin);
    }

    fn wait_for(&self, at: usize) {
        let begun = Instant::now();
        while self.ask(at, "GET", "/status", "").is_none() {
            assert!(begun.elapsed() < PATIENCE, "instance {at} does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The status and the body of an answer, if there is one. The client reads release 1.0.
    fn ask(&self, at: usize, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[at])).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ninventory-reads: 1.0\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    fn status(&self, at: usize) -> Value {
        let (status, body) = self.ask(at, "GET", "/status", "").unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// No process ever got what it does not understand.
    fn all_understand(&self) {
        for at in 0..self.ports.len() {
            let status = self.status(at);
            assert_eq!(status["refused"], json!(0), "instance {at}: {status}");
        }
    }

    fn client(&mut self, release: &str, name: &str) {
        let child = Command::new(release)
            .args(["client", "--name", name, "--servers", &self.urls().join(",")])
            .args(["--items", &ITEMS.join(",")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        self.clients.push(child);
    }

    /// Ends the clients, which say what they did.
    fn end_clients(&mut self) {
        for client in &mut self.clients {
            drop(client.stdin.take());
        }
        let begun = Instant::now();
        let works = |client: &mut Child| client.try_wait().unwrap().is_none();
        while self.clients.iter_mut().any(works) {
            assert!(begun.elapsed() < PATIENCE, "clients do not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        for client in self.clients.drain(..) {
            let done = client.wait_with_output().unwrap();
            assert!(done.status.success(), "{done:?}");
            let tally: Value = serde_json::from_slice(&done.stdout).unwrap();
            assert_eq!(tally["failed"], json!(0), "{tally}");
            self.tallies.push(tally);
        }
    }

    fn run(&self, release: &str, words: &[&str]) -> (i32, String) {
        let mut command = Command::new(release);
        let done = command
            .args(words)
            .args(["--database", &self.database])
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        (done.status.code().unwrap_or(-1), said)
    }
}

impl Drop for Warehouse {
    fn drop(&mut self) {
        for child in self.instances.iter_mut().chain(&mut self.clients) {
            kill(child);
        }
    }
}

/// Ports for three instances, below those that the kernel gives to whoever connects: among these, a client of an instance that is
/// down may be connected with itself, and hold the instance's port.
fn ports() -> Vec<u16> {
    let from = 16_384 + u16::try_from(std::process::id() % 8_192).unwrap();
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (from..32_768).filter(free).take(3).collect()
}

/// `kill -9`.
fn kill(child: &mut Child) {
    // It may have ended by itself, and is waited for all the same.
    drop(child.kill());
    child.wait().unwrap();
}

fn a_while() {
    std::thread::sleep(Duration::from_millis(700));
}

/// The only answer of a statement.
fn number(database: &str, sql: &str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Store::connect(database, Connect::default()).await.unwrap();
        let row = sqlx::query(AssertSqlSafe(sql.to_owned()))
            .fetch_one(store.pool())
            .await
            .unwrap();
        let number: i64 = row.get(0);
        store.close().await;
        number
    })
}

fn rows_of(database: &str, table: &str, version: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table} WHERE version = '{version}'");
    number(database, &sql)
}

/// An item as a client of 1.0 or 2.0 sends it.
fn item(version: &str, fields: &Value) -> String {
    json!({"kind": "Item", "version": version, "data": fields}).to_string()
}

#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
#[expect(clippy::too_many_lines, reason = "one story, told in its order")]
fn from_1_0_to_3_0_under_load_while_each_process_is_killed() {
    let server = Server::start();
    let database = server.url("postgres");
    let mut warehouse = Warehouse {
        database: database.clone(),
        ports: ports(),
        instances: Vec::new(),
        clients: Vec::new(),
        tallies: Vec::new(),
    };

    // 1.0, and its first items.
    let begun = Instant::now();
    loop {
        let (code, said) = warehouse.run(ONE, &["schema"]);
        if code == 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
    for at in 0..3 {
        let instance = warehouse.start(at, ONE, "");
        warehouse.instances.push(instance);
    }
    for sku in ITEMS {
        let fields = json!({"sku": sku, "name": sku, "place": "A-12", "on_hand": 0});
        let (status, body) = warehouse.ask(0, "PUT", "/items", &item("1.0", &fields)).unwrap();
        assert_eq!(status, 200, "{body}");
    }
    warehouse.client(ONE, "a");
    warehouse.client(ONE, "b");
    a_while();
    warehouse.replace(0, ONE, "");
    a_while();

    // The schema first, then one process after the other, pinned. One of them is killed once more among both releases.
    let (code, said) = warehouse.run(TWO, &["schema"]);
    assert_eq!(code, 0, "{said}");
    a_while();
    let noted = json!({"sku": "lamp", "title": "Lamp", "place": "B-1", "on_hand": 0, "note": "fragile"});
    for at in 0..3 {
        warehouse.replace(at, TWO, "aisle");
        a_while();
        warehouse.all_understand();
        if at == 1 {
            warehouse.replace(1, TWO, "aisle");
        }
        assert_eq!(warehouse.status(at)["writes"], json!("1.0"));
        // What 1.0 does not know is refused, and nothing is stored.
        let (status, body) = warehouse.ask(at, "PUT", "/items", &item("1.1", &noted)).unwrap();
        assert_eq!(status, 406, "{body}");
        assert!(body.contains("/note: \"fragile\""), "{body}");
    }
    // Enough for a migration to be killed among them.
    let begun = Instant::now();
    while rows_of(&database, "movements", "1.0") < 300 {
        assert!(begun.elapsed() < PATIENCE, "clients are too slow");
        a_while();
    }
    assert_eq!(rows_of(&database, "items", "1.1"), 0);
    assert_eq!(rows_of(&database, "movements", "1.1"), 0);
    // A migration is for when no process is pinned; a service of 3.0 could read none of these rows.
    let (code, said) = warehouse.run(THREE, &["schema"]);
    assert!(code != 0 && said.contains("is not known here any more"), "{said}");

    // The pins go, one after the other. One is killed among pinned and unpinned ones.
    warehouse.client(TWO, "c");
    for at in 0..3 {
        warehouse.replace(at, TWO, "");
        a_while();
        warehouse.all_understand();
        if at == 0 {
            warehouse.replace(0, TWO, "");
        }
    }
    assert!(rows_of(&database, "movements", "1.1") > 0);
    let (status, body) = warehouse.ask(2, "PUT", "/items", &item("1.1", &noted)).unwrap();
    assert_eq!(status, 200, "{body}");
    // A client of 1.0 gets what it reads.
    let (status, body) = warehouse.ask(1, "GET", "/items/lamp", "").unwrap();
    assert!(
        status == 200 && body.contains(r#""version":"1.0""#) && body.contains(r#""name":"Lamp""#),
        "{status} {body}"
    );

    // Online migration: killed in the middle, it goes on where it was.
    let old = rows_of(&database, "movements", "1.0");
    let mut migrating = Command::new(TWO)
        .args(["migrate", "--database", &database, "--batch", "1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while rows_of(&database, "movements", "1.0") == old {
        assert!(begun.elapsed() < PATIENCE, "no movement is migrated");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(&mut migrating);
    let left = rows_of(&database, "movements", "1.0");
    assert!(0 < left && left < old, "{left} of {old} are left");
    warehouse.replace(1, TWO, "");
    let (code, said) = warehouse.run(TWO, &["migrate", "--max-count", "3"]);
    assert_eq!(code, 6, "{said}");
    let (code, said) = warehouse.run(TWO, &["migrate"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(rows_of(&database, "movements", "1.0"), 0);
    assert_eq!(rows_of(&database, "items", "1.0"), 0);

    // Clients of 1.0 end before services do not know it any more.
    warehouse.end_clients();
    warehouse.client(TWO, "d");
    warehouse.client(TWO, "e");
    for at in 0..3 {
        warehouse.replace(at, THREE, "bay");
        a_while();
        warehouse.all_understand();
    }
    for at in 0..3 {
        warehouse.replace(at, THREE, "");
    }
    let (code, said) = warehouse.run(THREE, &["schema"]);
    assert_eq!(code, 0, "{said}");
    a_while();
    warehouse.client(THREE, "f");
    warehouse.replace(2, THREE, "");
    a_while();
    warehouse.all_understand();
    warehouse.end_clients();

    // Each movement that a client was told of is there once, and the items are the sum of them.
    let booked: i64 = warehouse
        .tallies
        .iter()
        .map(|tally| tally["booked"].as_i64().unwrap())
        .sum();
    assert!(booked > 200, "{:?}", warehouse.tallies);
    assert_eq!(number(&database, "SELECT count(*) FROM movements"), booked);
    let moved =
        "SELECT CAST(sum(CASE direction WHEN 'in' THEN amount ELSE -amount END) AS BIGINT) FROM movements";
    let on_hand = "SELECT CAST(sum(on_hand) AS BIGINT) FROM items";
    assert_eq!(number(&database, moved), number(&database, on_hand));
    for tally in &warehouse.tallies {
        writeln!(std::io::stderr(), "{tally}").unwrap();
    }
}
