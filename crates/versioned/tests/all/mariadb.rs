//! A MariaDB of the test's own, in a folder, reached by a socket there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// It ends with the test.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    process: std::process::Child,
}

/// Makes the folder of the test the `/mnt` of the root, for nobody but the program that is started there.
const ENTER: &str = r#"folder=$1 root=$2; shift 2
mount --bind "$folder" "$root/mnt" && exec chroot --userspec=65534:65534 --groups= "$root" "$@""#;

/// A root of Debian with the package `mariadb-server`: `STAGGER_TEST_MARIADB`, or that of the tests with PostgreSQL, which has
/// both.
fn root() -> PathBuf {
    let given = ["STAGGER_TEST_MARIADB", "STAGGER_TEST_POSTGRES"]
        .into_iter()
        .filter_map(|variable| std::env::var_os(variable).map(PathBuf::from))
        .find(|root| root.join("usr/sbin/mariadbd").exists());
    given.unwrap_or_else(|| {
        panic!(
            "tests need a MariaDB: give a root of Debian with the package mariadb-server in STAGGER_TEST_MARIADB; \
             `cargo xtask test` brings one along"
        )
    })
}

/// A program of MariaDB, which finds the folder at `/mnt`.
fn program(name: &str, folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "--",
        "sh",
        "-c",
        ENTER,
        "sh",
    ]);
    command.arg(folder).arg(root()).arg(name);
    command.args(["--no-defaults", "--datadir=/mnt/data", "--tmpdir=/mnt"]);
    command
        .current_dir(folder)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

impl Server {
    /// One that may lose everything with the machine, and so is faster.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let status = Command::new("chmod").arg("777").arg(folder.path()).status();
        assert!(status.unwrap().success());
        let mut make = program("/usr/bin/mariadb-install-db", folder.path());
        make.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        let made = make.output().unwrap();
        assert!(
            made.status.success(),
            "{}{}",
            String::from_utf8_lossy(&made.stdout),
            String::from_utf8_lossy(&made.stderr)
        );
        let mut serve = program("/usr/sbin/mariadbd", folder.path());
        serve.args([
            "--socket=/mnt/sql",
            "--pid-file=/mnt/pid",
            "--skip-networking",
            "--character-set-server=utf8mb4",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=60",
        ]);
        let process = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { folder, process }
    }

    /// The URL of one of its databases. At first there is `mysql`, some moments after the start.
    pub(crate) fn url(&self, database: &str) -> String {
        let socket = self.folder.path().join("sql");
        format!("mysql://root@localhost/{database}?socket={}", socket.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        self.process.wait().unwrap();
    }
}
