//! A server with two runs in its store, and questions as they go over the wire.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Map, Value};
use stagger_asks::LedgerLocation;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event};
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{JournalStore, StoreError};
use stagger_serve::access::{NewToken, Role, Tokens};
use stagger_serve::{Listen, RequestTimeouts, RunLauncher, RunStore, ServeSettings, StoreOpener, Tls, serve};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

const DEMO: &str = include_str!("../../../report/tests/journals/demo.jsonl");
const ROLLED_BACK: &str = include_str!("../../../report/tests/journals/rolled-back.jsonl");
/// The store that there always is.
pub const FIRST: &str = "journal";
/// So many events of the first are written at the beginning.
const WRITTEN: usize = 200;

fn entries(journal: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let mut fields: Map<String, Value> = serde_json::from_str(line).unwrap();
        let seq = serde_json::from_value(fields.remove("seq").unwrap()).unwrap();
        let at = serde_json::from_value(fields.remove("at").unwrap()).unwrap();
        let event = serde_json::from_value(fields.into()).unwrap();
        Entry { seq, at, event }
    };
    journal.lines().map(entry).collect()
}

fn start(entries: &[Entry]) -> (ClusterName, RunId) {
    match &entries[0].event {
        Event::Started(start) => (start.cluster.clone(), start.run.clone()),
        other => panic!("{other:?}"),
    }
}

async fn begin(store: &mut dyn JournalStore, entries: &[Entry]) {
    let (cluster, run) = start(entries);
    store.raise(&cluster, 1, "test").await.unwrap();
    store
        .begin(&cluster, 1, entries[0].at, entries[0].event.clone())
        .await
        .unwrap();
    append(store, &run, &entries[1..]).await;
}

async fn append(store: &mut dyn JournalStore, run: &RunId, entries: &[Entry]) {
    for entry in entries {
        store
            .append(run, 1, entry.seq - 1, entry.at, vec![entry.event.clone()])
            .await
            .unwrap();
    }
}

enum Way {
    Socket(PathBuf),
    Address { port: u16, tls: TlsConnector },
}

pub struct Served {
    folder: TempDir,
    way: Way,
    demo: Vec<Entry>,
    written: Mutex<usize>,
    is_lost: Arc<Mutex<BTreeSet<String>>>,
    _end: oneshot::Sender<()>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status,
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
            body: body.to_owned(),
        }
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The word of the problem that it tells of.
    pub fn problem(&self) -> String {
        assert_eq!(
            self.header("content-type").as_deref(),
            Some("application/problem+json"),
            "{self:?}"
        );
        let told = self.json();
        assert_eq!(told["status"], self.status);
        told["type"]
            .as_str()
            .unwrap()
            .strip_prefix("urn:stagger:problem:")
            .unwrap()
            .to_owned()
    }
}

pub trait Wire: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Wire for T {}

pub struct Stream {
    wire: Pin<Box<dyn Wire>>,
    read: String,
}

impl Stream {
    /// What comes up to the line that begins so.
    pub async fn until(&mut self, line: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            if let Some(at) = self.read.find(line)
                && let Some(end) = self.read[at..].find("\n\n")
            {
                let rest = self.read.split_off(at + end + 2);
                return std::mem::replace(&mut self.read, rest);
            }
            let read = tokio::time::timeout(Duration::from_secs(20), self.wire.read(&mut buffer));
            let count = read
                .await
                .unwrap_or_else(|_| panic!("no {line} after {}", self.read))
                .unwrap();
            assert_ne!(count, 0, "the stream ended: {}", self.read);
            self.read.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
}

impl Served {
    pub async fn at_socket() -> Self {
        Self::at_socket_within(RequestTimeouts::default()).await
    }

    pub async fn at_socket_within(limits: RequestTimeouts) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let listen = Listen::Socket {
            path: path.clone(),
            user: "anna@ops1".to_owned(),
        };
        Self::new(folder, Way::Socket(path), listen, limits, &[]).await
    }

    pub async fn at_address() -> Self {
        Self::at_address_within(RequestTimeouts::default()).await
    }

    pub async fn at_address_within(limits: RequestTimeouts) -> Self {
        Self::at_address_of(limits, &[]).await
    }

    /// With a store more for each of those clusters.
    pub async fn at_address_of(limits: RequestTimeouts, site: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let tls = Tls {
            certificate: folder.path().join("c.pem"),
            key: folder.path().join("k.pem"),
        };
        std::fs::write(&tls.certificate, cert.pem()).unwrap();
        std::fs::write(&tls.key, signing_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&tls.certificate).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let listen = Listen::Address {
            address: ([127, 0, 0, 1], port).into(),
            tls,
        };
        let tls = TlsConnector::from(Arc::new(config));
        Self::new(folder, Way::Address { port, tls }, listen, limits, site).await
    }

    async fn new(folder: TempDir, way: Way, listen: Listen, limits: RequestTimeouts, site: &[&str]) -> Self {
        let file = folder.path().join(format!("{FIRST}.db"));
        let demo = entries(DEMO);
        let mut store = SqliteStore::open(&file).unwrap();
        begin(&mut store, &demo[..WRITTEN]).await;
        begin(&mut store, &entries(ROLLED_BACK)).await;
        drop(store);
        let is_lost = Arc::new(Mutex::new(BTreeSet::new()));
        let store_of = |name: &str, clusters: &[&str]| {
            let (lost, name) = (Arc::clone(&is_lost), name.to_owned());
            let file = folder.path().join(format!("{name}.db"));
            let clusters = clusters.iter().map(|name| ClusterName::new(*name).unwrap());
            let open: StoreOpener = Arc::new({
                let name = name.clone();
                move || {
                    let opened = if lost.lock().unwrap().contains(&name) {
                        Err(StoreError::Failed {
                            tried: format!("open the store {name}"),
                            why: "it is away".to_owned(),
                        })
                    } else {
                        SqliteStore::open(&file).map(|store| Box::new(store) as Box<dyn JournalStore>)
                    };
                    Box::pin(async { opened })
                }
            });
            RunStore {
                name,
                clusters: clusters.collect(),
                open,
            }
        };
        let first = store_of(FIRST, &["demo", "rollback"]);
        let others = site.iter().map(|name| store_of(name, &[name]));
        let stores: Vec<RunStore> = std::iter::once(first).chain(others).collect();
        let tokens = folder.path().join("tokens.json");
        let asks = vec![LedgerLocation::File(folder.path().join("asks.db"))];
        // It writes down for which run it was started, and is at work until there is a file `over`, or no folder any more.
        // Of a run that it is to begin it writes down all that it was told, and the plan; a file `said` is its last word and failure.
        let script = r#"
            case "$1" in
                resume) echo "$2" >> "$0/started" ;;
                run) cp "$2" "$0/plan"; echo "$*" >> "$0/begun" ;;
            esac
            while [ -d "$0" ] && ! [ -e "$0/over" ]; do
                if [ "$1" = run ] && [ -e "$0/said" ]; then cat "$0/said"; rm "$0/said"; exit 1; fi
                sleep 0.02
            done"#;
        let words = ["sh", "-c", script].map(OsString::from).into_iter();
        let command: Vec<OsString> = words.chain([folder.path().as_os_str().to_owned()]).collect();
        let clusters = ["demo", "rollback"].into_iter().chain(site.iter().copied());
        let clusters = clusters.map(|name| (ClusterName::new(name).unwrap(), command.clone()));
        let carry_on = Some(RunLauncher {
            clusters: clusters.collect(),
            command,
            logs: folder.path().join("logs"),
        });
        let (end, ended) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let ended = async move {
                ended.await.ok();
            };
            let settings = ServeSettings {
                stores,
                asks,
                tokens,
                carry_on,
                limits,
            };
            serve(settings, listen, || {}, ended).await.unwrap();
        });
        let served = Self {
            folder,
            way,
            demo,
            written: Mutex::new(WRITTEN),
            is_lost,
            _end: end,
        };
        for _ in 0..200 {
            if served.try_connect().await.is_some() {
                return served;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nobody listens");
    }

    /// Where it answers, and the file of the certificate that it does so with.
    pub fn address(&self) -> (String, PathBuf) {
        let Way::Address { port, .. } = &self.way else {
            panic!("a socket has no address");
        };
        (
            format!("https://localhost:{port}"),
            self.folder.path().join("c.pem"),
        )
    }

    /// A folder for what a test writes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub async fn try_connect(&self) -> Option<Pin<Box<dyn Wire>>> {
        Some(match &self.way {
            Way::Socket(path) => Box::pin(UnixStream::connect(path).await.ok()?),
            Way::Address { port, tls } => {
                let tcp = TcpStream::connect(("127.0.0.1", *port)).await.ok()?;
                let name = ServerName::try_from("localhost").unwrap();
                Box::pin(tls.connect(name, tcp).await.unwrap())
            }
        })
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Pin<Box<dyn Wire>> {
        let mut wire = self.try_connect().await.unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let given = |name: &str| headers.iter().any(|(known, _)| *known == name);
        for (name, value) in [("host", "localhost"), ("content-type", "application/json")] {
            if !given(name) {
                write!(text, "{name}: {value}\r\n").unwrap();
            }
        }
        for (name, value) in headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        write!(text, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        // Who is refused may be hung up on.
        wire.write_all(text.as_bytes()).await.ok();
        wire
    }

    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut wire = self.send(method, path, headers, body).await;
        let mut bytes = Vec::new();
        wire.read_to_end(&mut bytes).await.ok();
        Answer::of(&unchunked(&String::from_utf8_lossy(&bytes)))
    }

    /// The same, of an answer that may go on without an end: its beginning.
    pub async fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut wire = self.send(method, path, headers, body).await;
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !text.contains("\r\n\r\n") {
            let count = wire.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "no answer: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        Answer::of(&text)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    pub async fn with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask("GET", path, headers, "").await
    }

    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.ask("POST", path, headers, body).await
    }

    pub async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        Stream {
            wire: self.send("GET", path, headers, "").await,
            read: String::new(),
        }
    }

    fn store(&self) -> SqliteStore {
        self.store_of(FIRST)
    }

    fn store_of(&self, name: &str) -> SqliteStore {
        SqliteStore::open(&self.folder.path().join(format!("{name}.db"))).unwrap()
    }

    /// Writes so many more events of the run that is not over.
    pub async fn write(&self, count: usize) {
        let (_, run) = start(&self.demo);
        let from = {
            let mut written = self.written.lock().unwrap();
            *written += count;
            *written - count
        };
        append(&mut self.store(), &run, &self.demo[from..from + count]).await;
    }

    /// What that run was asked for, and by whom.
    pub async fn asked(&self) -> Vec<(Command, String)> {
        let (_, run) = start(&self.demo);
        let asked = self.store().pending_commands(&run).await.unwrap();
        asked.into_iter().map(|(_, command, by)| (command, by)).collect()
    }

    fn tokens(&self) -> Tokens {
        let file: &Path = self.folder.path();
        Tokens::of(&file.join("tokens.json"))
    }

    /// A token of that role for those clusters, or for all; as it is sent.
    pub fn token(&self, role: &str, clusters: &[&str]) -> String {
        let clusters: Vec<ClusterName> = clusters
            .iter()
            .map(|name| ClusterName::new(*name).unwrap())
            .collect();
        let wanted = NewToken {
            name: role.to_owned(),
            role: match role {
                "ask" => Role::Ask,
                "look" => Role::Look,
                "operate" => Role::Operate,
                _ => Role::Approve,
            },
            clusters: (!clusters.is_empty()).then_some(clusters),
            good_for: SignedDuration::from_hours(1),
        };
        let token = self.tokens().add(wanted, Timestamp::now()).unwrap();
        format!("Bearer {token}")
    }

    /// One that is good until then, whatever a day may be. Which that is, only the file says.
    pub fn token_until(&self, name: &str, expires: Timestamp) -> String {
        let wanted = NewToken {
            name: name.to_owned(),
            role: Role::Look,
            clusters: None,
            good_for: SignedDuration::from_hours(1),
        };
        let token = self.tokens().add(wanted, Timestamp::now()).unwrap();
        let file = self.folder.path().join("tokens.json");
        let mut kept: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let all = kept.as_array_mut().unwrap();
        let one = all.iter_mut().find(|kept| kept["name"] == name).unwrap();
        one["expires"] = expires.to_string().into();
        std::fs::write(&file, kept.to_string()).unwrap();
        format!("Bearer {token}")
    }

    pub fn revoke(&self, name: &str) {
        self.tokens().revoke(name).unwrap();
    }

    /// Begins a run of that name.
    pub async fn begin_run(&self, cluster: &str, run: &str, at: Timestamp) {
        self.begin_run_in(FIRST, cluster, run, at).await;
    }

    /// The same in that store.
    pub async fn begin_run_in(&self, store: &str, cluster: &str, run: &str, at: Timestamp) {
        let Event::Started(mut begun) = self.demo[0].event.clone() else {
            panic!("a journal begins with a start");
        };
        begun.cluster = ClusterName::new(cluster).unwrap();
        begun.run = RunId::new(run).unwrap();
        let cluster = begun.cluster.clone();
        let mut store = self.store_of(store);
        // It may have been raised before.
        store.raise(&cluster, 1, "test").await.ok();
        store.begin(&cluster, 1, at, Event::Started(begun)).await.unwrap();
    }

    /// Begins the run `full`, with so many events of about so many bytes.
    pub async fn fill(&self, events: u64, bytes: usize) {
        self.begin_run("full", "full", Timestamp::now()).await;
        let mut store = self.store();
        let asked = Event::Asked {
            command: Command::Resume,
            by: "x".repeat(bytes),
        };
        let all = (0..events).map(|_| asked.clone()).collect();
        let run = RunId::new("full").unwrap();
        store.append(&run, 1, 1, Timestamp::now(), all).await.unwrap();
    }

    /// Begins so many more runs of the first cluster.
    pub async fn crowd(&self, count: usize) {
        let mut store = self.store();
        let (cluster, _) = start(&self.demo);
        for number in 0..count {
            let Event::Started(mut begun) = self.demo[0].event.clone() else {
                panic!("a journal begins with a start");
            };
            begun.run = RunId::new(format!("crowd-{number}")).unwrap();
            store
                .begin(&cluster, 1, Timestamp::now(), Event::Started(begun))
                .await
                .unwrap();
        }
    }

    /// The runs for which processes were started.
    pub fn started(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("started"));
        text.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// They end.
    pub fn over(&self) {
        std::fs::write(self.folder.path().join("over"), "").unwrap();
    }

    pub fn lose_the_store(&self) {
        self.lose(FIRST);
    }

    pub fn lose(&self, store: &str) {
        self.is_lost.lock().unwrap().insert(store.to_owned());
    }

    pub fn find_the_store(&self) {
        self.is_lost.lock().unwrap().clear();
    }

    /// What the process that was to begin a run was told, once it has begun, and the plan that it was given.
    pub async fn begun(&self) -> (String, Value) {
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        for _ in 0..500 {
            let words = read("begun");
            if words.ends_with('\n') {
                return (words, serde_json::from_str(&read("plan")).unwrap());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no process was started");
    }

    /// How many of them were started.
    pub fn beginnings(&self) -> usize {
        let text = std::fs::read_to_string(self.folder.path().join("begun"));
        text.unwrap_or_default().lines().count()
    }

    /// That process says so, and fails.
    pub fn refuse(&self, said: &str) {
        std::fs::write(self.folder.path().join("saying"), said).unwrap();
        std::fs::rename(self.folder.path().join("saying"), self.folder.path().join("said")).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.over();
    }
}

/// A body that came in pieces, as one.
fn unchunked(text: &str) -> String {
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return text.to_owned();
    };
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return text.to_owned();
    }
    let (mut rest, mut whole) = (body.as_bytes(), Vec::new());
    loop {
        let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let size = std::str::from_utf8(&rest[..line]).unwrap().trim();
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&rest[line + 1..line + 1 + size]);
        rest = &rest[line + 1 + size + 2..];
    }
    format!("{head}\r\n\r\n{}", String::from_utf8_lossy(&whole))
}
