//! Schemathesis asks what the description permits, and what it does not.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::server::Served;

/// The program.
const VARIABLE: &str = "STAGGER_TEST_SCHEMATHESIS";

/// Runs that there are, beside all that it thinks of. Of a stream the first event is read: it has no end while a run goes on.
const SETTINGS: &str = r#"
max-stream-events = 1
request-timeout = 20.0

# Besides what is usual: the run is not as the `If-Match` says.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 412, 429, "5xx"]

[dictionaries.runs]
values = ["sim-demo", "sim-rollback"]

[dictionaries.clusters]
values = ["demo", "rollback"]

[parameters]
"path.run" = { dictionary = "runs", probability = 0.7 }
"query.cluster" = { dictionary = "clusters", probability = 0.5 }
"#;

/// Asks for one role. What it is asked with is the same each time.
async fn asked_as(served: &Served, role: &str) -> (bool, String) {
    let program = std::env::var_os(VARIABLE).map_or_else(
        || panic!("{VARIABLE} names no schemathesis: `cargo xtask test` makes one"),
        PathBuf::from,
    );
    let (address, certificate) = served.address();
    let folder = served.folder();
    let settings = folder.join("schemathesis.toml");
    std::fs::write(&settings, SETTINGS).unwrap();
    let token = served.token(role, &[]);
    let output = Command::new(program)
        .arg("--config-file")
        .arg(settings)
        .arg("run")
        .arg(format!("{address}/v1/openapi.json"))
        .args(["--url", &address, "--header", &format!("Authorization: {token}")])
        .arg("--tls-verify")
        .arg(certificate)
        .args([
            "--checks",
            "all",
            "--max-examples",
            "10",
            "--phases",
            "examples,coverage,fuzzing",
            "--continue-on-failure",
        ])
        .args(["--generation-deterministic", "--no-shrink"])
        .arg("--no-color")
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs schemathesis: `cargo xtask test` makes one, else STAGGER_TEST_SCHEMATHESIS names the program"]
async fn every_answer_is_one_that_the_description_names() {
    let asked = ["ask", "look", "operate", "approve"].map(async |role| {
        let served = Served::at_address().await;
        let (well, said) = asked_as(&served, role).await;
        assert!(well, "as {role}: {said}");
        // Where it may, it has asked for something, so that it was not turned away at the door.
        assert_eq!(
            served.asked().await.is_empty(),
            ["ask", "look"].contains(&role),
            "as {role}: {said}"
        );
    });
    futures::future::join_all(asked).await;
}
