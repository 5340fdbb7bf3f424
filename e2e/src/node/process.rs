//! How the processes of a container are started: in which root and network, with which variables, as which user.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::mounts::OwnRoot;
use super::user::User;

/// Where the processes of a container run.
#[derive(Debug, Clone)]
pub(super) struct Inside {
    pub(super) root: Root,
    pub(super) env: BTreeMap<String, String>,
    /// None: root.
    pub(super) user: Option<User>,
    /// The process whose network is the pod's own.
    pub(super) network: Option<String>,
    /// That of the pod.
    pub(super) address: String,
}

/// What they see of the files.
#[derive(Debug, Clone)]
pub(super) enum Root {
    /// All of the machine.
    Machine,
    /// The root of the image, which is shared.
    Image(PathBuf),
    /// A root of the container's own.
    Own(OwnRoot),
}

impl Inside {
    /// The first process of the container; its output goes to `log`.
    pub(super) fn first(&self, words: &[String], log: Option<&File>) -> Command {
        let network = self
            .network
            .iter()
            .flat_map(|target| ["nsenter", "--target", target, "--net", "--"].map(str::to_owned));
        let mut line: Vec<String> = network.collect();
        match &self.root {
            Root::Machine if self.user.is_none() => line.extend_from_slice(words),
            Root::Machine => line.extend(self.chroot(Path::new("/"), words)),
            Root::Image(root) => line.extend(self.chroot(root, words)),
            Root::Own(own) => {
                // The variables are the container's, not of what makes its root.
                let env = self.env.iter().map(|(name, value)| format!("{name}={value}"));
                let mut inside = vec!["env".to_owned(), "-i".to_owned(), format!("PATH={PATH}")];
                inside.extend(env.chain(words.iter().cloned()));
                line.extend(own.command(&self.user(), &inside));
                return command(&line, &BTreeMap::new(), log);
            }
        }
        command(&line, &self.env, log)
    }

    /// Where it serves.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Another process beside the first one, without output.
    pub(super) fn beside(&self, first: u32, words: &[String]) -> Command {
        match &self.root {
            Root::Machine | Root::Image(_) => self.first(words, None),
            Root::Own(own) => {
                let enter = [
                    "nsenter",
                    "--target",
                    &first.to_string(),
                    "--mount",
                    "--net",
                    "--",
                ];
                let mut line = enter.map(str::to_owned).to_vec();
                line.extend(self.chroot(&own.path(), words));
                command(&line, &self.env, None)
            }
        }
    }

    /// What `chroot` is told of the user.
    fn user(&self) -> Vec<String> {
        self.user.as_ref().map(User::words).unwrap_or_default()
    }

    fn chroot(&self, root: &Path, words: &[String]) -> Vec<String> {
        let mut line = vec!["chroot".to_owned()];
        line.extend(self.user());
        line.push(root.display().to_string());
        line.extend_from_slice(words);
        line
    }
}

/// Where programs are looked for, if the container does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn command(line: &[String], env: &BTreeMap<String, String>, log: Option<&File>) -> Command {
    let mut command = Command::new(&line[0]);
    let output = || {
        log.and_then(|log| log.try_clone().ok())
            .map_or_else(Stdio::null, Stdio::from)
    };
    command
        .args(&line[1..])
        .env_clear()
        .env("PATH", PATH)
        .envs(env)
        .stdin(Stdio::null())
        .stdout(output())
        .stderr(output())
        .kill_on_drop(true);
    command
}
