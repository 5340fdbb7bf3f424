//! The commands on a store in PostgreSQL.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[path = "../../versioned/tests/all/server.rs"]
mod server;
use server::Server;

/// Its exit code, and all that it says.
fn said(config: &Path, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    command
        .args(words)
        .arg("--config")
        .arg(config)
        .env("NO_COLOR", "1");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
fn a_store_in_postgres_is_made_checked_and_missed() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("stagger.toml");
    let secret = folder.path().join("password");
    std::fs::write(&secret, "hidden/and@odd\n").unwrap();
    // One that others may read is refused.
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let cluster = "[cluster]\nkind = \"ceph\"\nname = \"lab\"\n";
    let store = format!(
        "[store]\nurl = \"{}\"\npassword_file = \"{}\"\n",
        server.url("postgres"),
        secret.display()
    );
    std::fs::write(&config, format!("{cluster}{store}")).unwrap();
    let stagger = |words: &[&str]| {
        let (code, text) = said(&config, words);
        assert!(!text.contains("hidden"), "{text}");
        (code, text)
    };
    let mut before = stagger(&["db", "check"]);
    for _ in 0..50 {
        if before.0 != 4 {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
        before = stagger(&["db", "check"]);
    }
    assert_eq!(before.0, 1, "{}", before.1);
    assert!(before.1.contains("run `stagger db upgrade`"), "{}", before.1);
    let (code, text) = stagger(&["history"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("it has no schema yet"), "{text}");
    assert_eq!(stagger(&["db", "online-data-migrations"]).0, 3);

    let (code, text) = stagger(&["db", "upgrade"]);
    assert!(
        code == 0 && text.contains("made, with the schema of revision 2"),
        "{text}"
    );
    let (code, text) = stagger(&["db", "upgrade"]);
    assert!(code == 0 && text.contains("already"), "{text}");
    for words in [
        &["db", "check"][..],
        &["db", "version"],
        &["db", "online-data-migrations"],
        &["history"],
    ] {
        let (code, text) = stagger(words);
        assert_eq!(code, 0, "{words:?}: {text}");
    }
    assert_eq!(stagger(&["status"]).0, 2, "there is no run yet");

    drop(server);
    for words in [&["db", "check"][..], &["db", "upgrade"], &["history"]] {
        let (code, text) = stagger(words);
        assert_eq!(code, 4, "{words:?}: {text}");
    }
}
