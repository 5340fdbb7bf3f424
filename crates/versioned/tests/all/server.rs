//! A PostgreSQL of the test's own, in a folder, reached by a socket there. The tests of the engine use it too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// It ends with the test.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    process: std::process::Child,
}

/// A program of PostgreSQL: below the folder of `STAGGER_TEST_POSTGRES`, else the newest that the system has. It refuses
/// to run as root.
fn program(name: &str, folder: &Path) -> Command {
    let bin = std::env::var_os("STAGGER_TEST_POSTGRES").map_or_else(
        || {
            let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
                .expect(
                    "PostgreSQL in /usr/lib/postgresql, or the folder with its bin/ in STAGGER_TEST_POSTGRES",
                )
                .map(|entry| entry.unwrap().path().join("bin"))
                .collect();
            found.sort();
            found.pop().unwrap()
        },
        |folder| PathBuf::from(folder).join("bin"),
    );
    let mut command = Command::new("setpriv");
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if root {
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
    }
    command.arg("--").arg(bin.join(name)).current_dir(folder);
    command
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let status = Command::new("chmod")
            .arg("777")
            .arg(folder.path())
            .status()
            .unwrap();
        assert!(status.success());
        let made = program("initdb", folder.path())
            .args([
                "--username",
                "tester",
                "--auth",
                "trust",
                "--no-sync",
                "--encoding",
                "UTF8",
                "-D",
            ])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let process = program("postgres", folder.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"])
            .arg(format!("unix_socket_directories={}", folder.path().display()))
            .arg("-D")
            .arg(&data)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { folder, process }
    }

    /// The URL of one of its databases. At first there is `postgres`, a moment after the start.
    pub(crate) fn url(&self, database: &str) -> String {
        format!(
            "postgres://tester@localhost/{database}?host={}",
            self.folder.path().display()
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().unwrap();
        self.process.wait().unwrap();
    }
}
