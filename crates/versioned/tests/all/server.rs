//! A PostgreSQL of the test's own, in a folder, reached by a socket there. The tests of the engine use it too.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// It ends with the test.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    process: std::process::Child,
}

/// Where the programs of a PostgreSQL are.
enum Programs {
    /// In this folder.
    Here(PathBuf),
    /// In a root of its own, in that folder of it.
    Inside(PathBuf, PathBuf),
}

/// Makes the folder of the test the `/mnt` of the root, for nobody but the program that is started there.
const ENTER: &str = r#"folder=$1 root=$2; shift 2
mount --bind "$folder" "$root/mnt" && exec chroot --userspec=65534:65534 --groups= "$root" "$@""#;

/// `STAGGER_TEST_POSTGRES` is a folder with `bin/`, or a whole root of Debian with the package `postgresql`; without it
/// the newest is taken that the system has.
fn programs() -> Programs {
    let newest = |root: &Path| {
        let folder = root.join("usr/lib/postgresql");
        let mut found: Vec<PathBuf> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| {
                panic!(
                    "{}: {error}. Tests need PostgreSQL: install it, or give the folder with its bin/ in STAGGER_TEST_POSTGRES; \
                     `cargo xtask test` brings one along",
                    folder.display()
                )
            })
            .map(|entry| PathBuf::from("usr/lib/postgresql").join(entry.unwrap().file_name()).join("bin"))
            .collect();
        found.sort();
        found.pop().unwrap()
    };
    let Some(folder) = std::env::var_os("STAGGER_TEST_POSTGRES").map(PathBuf::from) else {
        let root = Path::new("/");
        return Programs::Here(root.join(newest(root)));
    };
    if folder.join("bin/postgres").exists() {
        return Programs::Here(folder.join("bin"));
    }
    let bin = Path::new("/").join(newest(&folder));
    Programs::Inside(folder, bin)
}

/// A program of PostgreSQL, and the folder as that program sees it. It refuses to run as root.
fn program(name: &str, folder: &Path) -> (Command, PathBuf) {
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let (mut command, seen) = match programs() {
        Programs::Here(bin) => {
            let mut command = Command::new("setpriv");
            if root {
                command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
            }
            command.arg("--").arg(bin.join(name));
            (command, folder.to_owned())
        }
        Programs::Inside(within, bin) => {
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
            command.arg(folder).arg(within).arg(bin.join(name));
            (command, PathBuf::from("/mnt"))
        }
    };
    command
        .current_dir(folder)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    (command, seen)
}

impl Server {
    /// One that may lose everything with the machine, and so is faster.
    pub(crate) fn start() -> Self {
        Self::with(&["fsync=off"])
    }

    /// One with these settings.
    pub(crate) fn with(settings: &[&str]) -> Self {
        Self::within(&std::env::temp_dir(), settings)
    }

    /// One whose folder is in that one.
    pub(crate) fn within(parent: &Path, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let status = Command::new("chmod")
            .arg("777")
            .arg(folder.path())
            .status()
            .unwrap();
        assert!(status.success());
        let (mut make, seen) = program("initdb", folder.path());
        make.args(["--username", "tester", "--auth", "trust", "--no-sync"]);
        make.args(["--encoding", "UTF8", "--no-locale", "-D"]);
        let made = make.arg(seen.join("data")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let (mut serve, seen) = program("postgres", folder.path());
        let mut sockets = OsStr::new("unix_socket_directories=").to_owned();
        sockets.push(&seen);
        serve.args(["-c", "listen_addresses=", "-c"]).arg(sockets);
        for setting in settings {
            serve.args(["-c", setting]);
        }
        let process = serve
            .arg("-D")
            .arg(seen.join("data"))
            .stdout(Stdio::null())
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
