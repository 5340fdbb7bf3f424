//! How a real one is asked: HTTP on a server of the test's own, SQL on a file, commands in a shell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::get;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sqlx::Connection as _;
use stagger_core::model::Fact;
use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::Hosts;
use stagger_engine::preflight::{Check, CheckOutcome};
use stagger_engine::secrets;
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::client::{IronicClient as _, RemoteIronic, conductors_at};
use stagger_ironic::config::{IronicConfig, IronicSettings};
use stagger_ironic::credentials::{Auth, HttpBasic};
use stagger_ironic::facts::ApiReport;
use stagger_ironic::observe::collect_facts;
use stagger_ironic::preflight::may_write;
use stagger_ironic::records::RecordStore;

use crate::common::CONFIG;

/// The tables that are looked at, with the columns that are.
const TABLES: &str = "
    create table alembic_version (version_num varchar(32) not null);
    insert into alembic_version values ('21c48150dea9');
    create table nodes (id integer primary key, version varchar(15), reservation varchar(255), uuid varchar(36),
        driver varchar(255), conductor_group varchar(255), name varchar(255), provision_state varchar(15), provision_updated_at datetime, conductor_affinity integer);
    insert into nodes values
        (1, '1.40', null, 'u1', 'ipmi', '', 'lab-1', 'wait call-back', '2026-11-30 00:31:05', 2),
        (2, '1.41', 'c1:8089', 'u2', 'ipmi', '', null, 'deploying', '2026-11-30 00:30:00.123456', 2),
        (3, null, 'c1:8089', 'u3', 'redfish', '', 'lab-3', 'active', '2026-01-01 00:00:00', 1),
        (4, '1.40', 'c2:8089', 'u4', 'ipmi', 'rack1', 'lab-4', 'clean failed', null, null),
        (5, '1.40', null, 'u5', null, '', 'lab-5', null, null, null),
        (6, '1.40', null, 'u6', 'ipmi', 'rack1', 'lab-6', 'inspect wait', null, null);
    create table ports (id integer primary key, version varchar(15));
    create table conductors (id integer primary key, hostname varchar(255), version varchar(15), online boolean,
        updated_at datetime);
    insert into conductors values (1, 'c1:8089', '1.4', 1, '2026-01-01'), (2, 'c2:8089', null, 0, '2026-01-01');
    create table conductor_hardware_interfaces (id integer primary key, version varchar(15), conductor_id integer,
        hardware_type varchar(255));
    insert into conductor_hardware_interfaces values (1, null, 1, 'ipmi'), (2, null, 1, 'ipmi'), (3, null, 1, 'redfish');
";

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

/// An API as Ironic's, of which the header of the root may be left out.
async fn api(maximum: Option<&'static str>) -> String {
    let root = get(move || async move {
        let body = json!({ "default_version": { "id": "v1", "version": "1.96", "min_version": "1.1" } });
        match maximum {
            Some(maximum) => (
                [("X-OpenStack-Ironic-API-Maximum-Version", maximum)],
                body.to_string(),
            )
                .into_response(),
            None => body.to_string().into_response(),
        }
    });
    let conductors = get(|headers: HeaderMap| async move {
        let version = headers
            .get("x-openstack-ironic-api-version")
            .and_then(|value| value.to_str().ok());
        if version != Some("1.49") {
            return (StatusCode::NOT_ACCEPTABLE, "no such version".to_owned());
        }
        let listed = json!({ "conductors": [
            { "hostname": "c1:8089", "conductor_group": "", "alive": true, "links": [] },
            { "hostname": "c2:8089", "conductor_group": "b", "alive": false, "links": [] },
        ] });
        (StatusCode::OK, listed.to_string())
    });
    let rpc = axum::routing::post(|call: String| async move {
        let call: Value = serde_json::from_str(&call).unwrap();
        let answer = if call["method"] == "keepalive_halt" {
            json!({ "jsonrpc": "2.0", "id": call["id"], "result": null })
        } else {
            json!({ "jsonrpc": "2.0", "id": call["id"], "error": { "code": -32601 } })
        };
        answer.to_string()
    });
    serve(
        Router::new()
            .route("/", root.merge(rpc))
            .route("/v1/conductors", conductors),
    )
    .await
}

struct Real {
    settings: IronicSettings,
    folder: tempfile::TempDir,
    database: String,
}

async fn real() -> Real {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let database = format!("sqlite://{path}/ironic.db");
    let mut made = sqlx::SqliteConnection::connect(&format!("{database}?mode=rwc"))
        .await
        .unwrap();
    for statement in TABLES.split(';').filter(|text| !text.trim().is_empty()) {
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&mut made)
            .await
            .unwrap();
    }
    made.close().await.unwrap();
    let text = CONFIG
        .replace("OURS", &format!("sqlite://{path}/ours.db?mode=rwc"))
        .replace("http://127.0.0.1:1", &api(Some("1.96")).await)
        .replace("http://a1", &api(Some("1.101")).await)
        .replace("http://a2", &api(None).await)
        .replace("sqlite:///nowhere", &database)
        .replace(
            "\"read-pin {service}\"",
            "\"cat {service}.pin\""
                .replace("cat ", &format!("cat {path}/"))
                .as_str(),
        )
        .replace("\"show\"", &format!("\"cat {path}/stat\""));
    std::fs::write(format!("{path}/c1.pin"), "2024.2\n").unwrap();
    std::fs::write(format!("{path}/c2.pin"), "\n").unwrap();
    std::fs::write(format!("{path}/a1.pin"), "two words").unwrap();
    let stat = "# pxname,svname,qcur,scur,stot,status,\nb,a1,0,1,8,UP,\nb,a2,1,1,8,DRAIN,\n";
    std::fs::write(format!("{path}/stat"), stat).unwrap();
    let config: IronicConfig = toml::from_str(&text).unwrap();
    let hosts = Hosts {
        folder: folder.path().join("hosts"),
        ..Hosts::default()
    };
    Real {
        settings: IronicSettings::new(config, hosts),
        folder,
        database,
    }
}

#[tokio::test]
async fn everything_is_seen_and_what_is_not_says_why() {
    let real = real().await;
    let config = &real.settings.cluster;
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    let book = RecordStore::open(
        &config.ours,
        &config.database,
        config.name.clone(),
        Duration::from_secs(1),
        Duration::from_secs(9),
    )
    .unwrap();
    let facts = collect_facts(&world, &book, config).await;
    // A header in whatever case counts; where there is none, the page itself.
    assert_eq!(facts.apis["a1"], ApiReport::Offers("1.101".parse().unwrap()));
    assert_eq!(facts.apis["a2"], ApiReport::Offers("1.96".parse().unwrap()));
    let conductors = facts.conductors.get().unwrap();
    assert!(conductors["c1:8089"].alive && !conductors["c2:8089"].alive);
    assert_eq!(conductors["c2:8089"].group, "b");
    let database = facts.database.get().unwrap();
    assert_eq!(database.revision, "21c48150dea9");
    let nodes = &database.rows["nodes"];
    assert_eq!(
        nodes.versions,
        BTreeMap::from([("1.40".to_owned(), 4), ("1.41".to_owned(), 1)])
    );
    assert_eq!((nodes.null, database.rows["ports"].null), (1, 0));
    assert!(
        !database.rows.contains_key("conductor_hardware_interfaces"),
        "it holds no object, and never has a version"
    );
    assert_eq!(
        database.reserved,
        BTreeMap::from([("c1:8089".to_owned(), 2), ("c2:8089".to_owned(), 1)])
    );
    let of_c1 = ["ipmi", "redfish"].map(str::to_owned);
    assert_eq!(
        database.drivers,
        BTreeMap::from([("c1:8089".to_owned(), of_c1.into())])
    );
    let counts = database.nodes.iter();
    let counts: Vec<_> = counts
        .map(|one| (one.group.as_str(), one.driver.as_str(), one.nodes))
        .collect();
    assert_eq!(
        counts,
        [("", "ipmi", 2), ("", "redfish", 1), ("rack1", "ipmi", 2)]
    );
    let in_flight: Vec<String> = database.in_flight.iter().map(ToString::to_string).collect();
    assert_eq!(
        in_flight,
        [
            "lab-6: inspect wait",
            "u2: deploying since 2026-11-30 00:30:00 UTC on c1:8089",
            "lab-1: wait call-back since 2026-11-30 00:31:05 UTC on c2:8089",
        ]
    );
    assert_eq!(database.conductors["c1:8089"].version.as_deref(), Some("1.4"));
    assert!(!database.conductors["c2:8089"].online);
    let shown = facts.balancer.get().unwrap();
    assert_eq!(shown.servers.len(), 2);
    assert_eq!(facts.pins["c1"], Fact::Yes(Some("2024.2".to_owned())));
    assert_eq!(facts.pins["c2"], Fact::Yes(None));
    assert!(matches!(&facts.pins["a1"], Fact::No(why) if why.contains("one word")));
    assert!(matches!(&facts.pins["a2"], Fact::No(why) if why.contains("ended with 1")));
    assert_eq!(
        facts.records,
        Fact::Yes(stagger_ironic::records::IronicRecords::default())
    );
    // What was seen can be kept, and read again.
    let text = serde_json::to_string(&facts).unwrap();
    assert_eq!(
        serde_json::from_str::<stagger_ironic::facts::IronicFacts>(&text).unwrap(),
        facts
    );
}

/// Seen: a database that can be read counted as good, and the first write of a run failed.
#[tokio::test]
async fn a_database_of_ours_that_is_only_read_is_found_before_a_run() {
    let mut real = real().await;
    let ours = real.settings.cluster.ours.clone();
    let mut facts = IronicBackend::new(real.settings.clone(), None)
        .unwrap()
        .collect_facts()
        .await;
    let passed = Check::passed("[cluster] ours", "it may write the lock and the records");
    assert_eq!(may_write(&real.settings, &facts).await, Some(passed));

    real.settings.cluster.ours = ours.replace("mode=rwc", "mode=ro");
    let refused = may_write(&real.settings, &facts).await.unwrap();
    assert_eq!(refused.outcome, CheckOutcome::Failed);
    assert!(refused.found.contains("readonly"), "{refused:?}");
    assert!(refused.hint.unwrap().contains("`insert`"));

    facts.records = Fact::No("away".to_owned());
    assert_eq!(
        may_write(&real.settings, &facts).await,
        None,
        "that is told already"
    );
}

#[tokio::test]
async fn a_first_configuration_lists_the_conductors_that_there_are() {
    let found = conductors_at(&api(None).await, None).await.unwrap();
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["c1:8089", "c2:8089"]);
    let silent = conductors_at("http://127.0.0.1:1", None).await.unwrap_err();
    assert!(
        silent.starts_with("http://127.0.0.1:1/v1/conductors: "),
        "{silent}"
    );
}

#[tokio::test]
async fn who_is_away_and_who_is_unclear_are_two() {
    let mut real = real().await;
    let nobody = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let odd = serve(Router::new().route("/", get(|| async { StatusCode::BAD_GATEWAY }))).await;
    real.settings.cluster.apis[0].url.clone_from(&nobody);
    real.settings.cluster.apis[1].url = odd;
    real.settings.cluster.endpoint = nobody;
    real.settings.cluster.database = format!("sqlite://{}/none.db", real.folder.path().display());
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    let apis = world.apis().await;
    assert!(matches!(&apis["a1"], ApiReport::Away(_)), "{apis:?}");
    assert!(
        matches!(&apis["a2"], ApiReport::Unclear(why) if why.contains("502")),
        "{apis:?}"
    );
    assert!(matches!(world.conductors().await, Fact::No(_)));
    assert!(matches!(world.database().await, Fact::No(_)));
}

#[tokio::test]
async fn muting_halts_the_heartbeat_and_writes_only_where_it_may() {
    let mut real = real().await;
    let rpc = api(None).await;
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    world.halt_keepalive(&rpc).await.unwrap();
    let error = world.write_offline("c1:8089").await.unwrap_err();
    assert!(error.why.contains("stopping.database"), "{error}");
    real.settings.cluster.stopping.database = Some(real.database.clone());
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    world.write_offline("c1:8089").await.unwrap();
    let database = world.database().await;
    assert!(!database.get().unwrap().conductors["c1:8089"].online);
}

#[tokio::test]
async fn a_token_is_asked_for_and_a_failing_command_is_shown() {
    let mut real = real().await;
    real.settings.cluster.token = Some("echo no keystone >&2; exit 3".to_owned());
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    let Fact::No(why) = world.conductors().await else {
        panic!("it should not have been asked")
    };
    assert!(why.contains("no keystone"), "{why}");
    real.settings.cluster.token = Some("echo secret".to_owned());
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    assert!(world.conductors().await.get().is_some());
}

/// An Ironic that wants this header of whoever asks, beside a Keystone that gives a new token each time, good for so long.
async fn guarded(wanted: fn(&HeaderMap, u32) -> bool, lasts: SignedDuration) -> (String, Arc<AtomicU32>) {
    let given = Arc::new(AtomicU32::new(0));
    let newest = Arc::clone(&given);
    let conductors = get(async move |headers: HeaderMap| {
        if wanted(&headers, newest.load(Ordering::Relaxed)) {
            (StatusCode::OK, json!({ "conductors": [] }).to_string())
        } else {
            (StatusCode::UNAUTHORIZED, "who is there?".to_owned())
        }
    });
    let count = Arc::clone(&given);
    let tokens = axum::routing::post(async move |request: String| {
        let request: Value = serde_json::from_str(&request).unwrap();
        let identity = &request["auth"]["identity"];
        let known = match identity["methods"][0].as_str() {
            Some("application_credential") => {
                identity["application_credential"] == json!({ "id": "21dced0f", "secret": "hidden-word" })
            }
            Some("password") => {
                let user =
                    json!({ "name": "stagger", "domain": { "name": "Default" }, "password": "hidden-word" });
                identity["password"]["user"] == user && request["auth"]["scope"]["system"]["all"] == true
            }
            _ => false,
        };
        if !known {
            return (StatusCode::UNAUTHORIZED, "could not find user").into_response();
        }
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let ends = jiff::Timestamp::now() + lasts;
        let body = json!({ "token": { "expires_at": ends.to_string() } }).to_string();
        let header = [("X-Subject-Token", format!("token-{number}"))];
        (StatusCode::CREATED, header, body).into_response()
    });
    let app = Router::new()
        .route("/v1/conductors", conductors)
        .route("/v3/auth/tokens", tokens);
    (serve(app).await, given)
}

/// A configuration with this section on who asks; the API, and Keystone, are there.
async fn asking(url: &str, auth: &str) -> Result<RemoteIronic, BackendError> {
    let mut real = real().await;
    let file = real.folder.path().join("secret");
    secrets::write(&file, b"hidden-word\n").unwrap();
    let auth = auth
        .replace("FILE", &file.display().to_string())
        .replace("URL", url);
    real.settings.cluster.auth = Some(toml::from_str(&auth).unwrap());
    url.clone_into(&mut real.settings.cluster.endpoint);
    let world = RemoteIronic::new(real.settings)?;
    let shown = format!("{world:?}");
    assert!(
        !shown.contains("hidden-word") && !shown.contains("aGlkZGVu"),
        "{shown}"
    );
    Ok(world)
}

const APPLICATION: &str =
    "kind = \"keystone\"\nurl = \"URL/v3\"\napplication_credential = \"21dced0f\"\npassword_file = \"FILE\"";

/// Bifrost and Metal3 have names and passwords in front of Ironic.
#[tokio::test]
async fn an_api_is_asked_by_name_and_password() {
    let wanted = |headers: &HeaderMap, _| {
        headers
            .get("authorization")
            .is_some_and(|value| value == "Basic c3RhZ2dlcjpoaWRkZW4td29yZA==")
    };
    let (url, _) = guarded(wanted, SignedDuration::ZERO).await;
    let basic = "kind = \"http-basic\"\nuser = \"stagger\"\npassword_file = \"FILE\"";
    let world = asking(&url, basic).await.unwrap();
    assert_eq!(world.conductors().await, Fact::Yes(BTreeMap::new()));
    let world = asking(&url, &basic.replace("stagger", "somebody")).await.unwrap();
    let Fact::No(why) = world.conductors().await else {
        panic!("somebody is nobody")
    };
    assert!(why.contains("answers 401"), "{why}");
    let error = asking(&url, &basic.replace("FILE", "/nowhere"))
        .await
        .unwrap_err();
    assert!(error.why.contains("/nowhere cannot be read"), "{error}");
}

#[tokio::test]
async fn a_token_of_keystone_is_used_until_its_end_and_renewed_where_it_is_refused() {
    let any = |headers: &HeaderMap, _| headers.contains_key("x-auth-token");
    let (url, given) = guarded(any, SignedDuration::from_hours(1)).await;
    let world = asking(&url, APPLICATION).await.unwrap();
    for _ in 0..3 {
        assert_eq!(world.conductors().await, Fact::Yes(BTreeMap::new()));
    }
    assert_eq!(given.load(Ordering::Relaxed), 1, "one token for an hour");

    // Its end is near: it would be over in the midst of a question.
    let (url, given) = guarded(any, SignedDuration::from_secs(20)).await;
    let user = "kind = \"keystone\"\nurl = \"URL/v3/\"\nuser = \"stagger\"\npassword_file = \"FILE\"";
    let world = asking(&url, user).await.unwrap();
    for _ in 0..2 {
        assert_eq!(world.conductors().await, Fact::Yes(BTreeMap::new()));
    }
    assert_eq!(given.load(Ordering::Relaxed), 2);

    // Somebody revoked the first.
    let second = |headers: &HeaderMap, newest: u32| {
        newest > 1
            && headers
                .get("x-auth-token")
                .is_some_and(|token| token == &*format!("token-{newest}"))
    };
    let (url, given) = guarded(second, SignedDuration::from_hours(1)).await;
    let world = asking(&url, APPLICATION).await.unwrap();
    assert_eq!(world.conductors().await, Fact::Yes(BTreeMap::new()));
    assert_eq!(given.load(Ordering::Relaxed), 2);

    // And one that is never taken is asked for no more than once again.
    let (url, given) = guarded(|_, _| false, SignedDuration::from_hours(1)).await;
    let world = asking(&url, APPLICATION).await.unwrap();
    assert!(matches!(world.conductors().await, Fact::No(why) if why.contains("answers 401")));
    assert_eq!(given.load(Ordering::Relaxed), 2);

    let world = asking(&url, &APPLICATION.replace("21dced0f", "gone"))
        .await
        .unwrap();
    let Fact::No(why) = world.conductors().await else {
        panic!("there is no token")
    };
    assert!(
        why.contains("/v3/auth/tokens gives no token, it answers 401") && !why.contains("hidden-word"),
        "{why}"
    );
}

/// A conductor's own port may want a name and a password too.
#[tokio::test]
async fn a_conductor_is_called_with_credentials_of_its_own() {
    let mut real = real().await;
    let port = axum::routing::post(|headers: HeaderMap| async move {
        if headers.contains_key("authorization") {
            (StatusCode::OK, json!({ "result": null }).to_string())
        } else {
            (StatusCode::UNAUTHORIZED, String::new())
        }
    });
    let rpc = serve(Router::new().route("/", port)).await;
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    let refused = world.halt_keepalive(&rpc).await.unwrap_err();
    assert!(refused.why.contains("answers 401"), "{refused}");
    let file = real.folder.path().join("secret");
    secrets::write(&file, b"hidden-word\n").unwrap();
    let auth = HttpBasic {
        user: "rpc".to_owned(),
        password_file: file,
    };
    real.settings.cluster.rpc_auth = Some(Auth::HttpBasic(auth));
    let world = RemoteIronic::new(real.settings).unwrap();
    world.halt_keepalive(&rpc).await.unwrap();
}

/// The root page of an API needs no database: clients would be answered with 500 all the same.
#[tokio::test]
async fn an_api_that_does_not_reach_its_database_does_not_count_as_serving() {
    let mut real = real().await;
    let root = get(|| async { json!({ "default_version": { "version": "1.96" } }).to_string() });
    let broken = get(|| async { (StatusCode::INTERNAL_SERVER_ERROR, "Access denied for user") });
    let url = serve(Router::new().route("/", root).route("/v1/conductors", broken)).await;
    real.settings.cluster.apis[0].url = url;
    let world = RemoteIronic::new(real.settings.clone()).unwrap();
    let apis = world.apis().await;
    let ApiReport::Unclear(why) = &apis["a1"] else {
        panic!("{apis:?}")
    };
    assert!(why.contains("/v1/conductors?limit=1 answers 500"), "{why}");
    assert!(matches!(apis["a2"], ApiReport::Offers(_)), "{apis:?}");
}
