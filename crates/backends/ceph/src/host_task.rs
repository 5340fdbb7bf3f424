//! The maintenance task of a host's visit, and its commands.

use serde::{Deserialize, Serialize};
use stagger_core::model::Kind;
use stagger_engine::hosts::{Hosts, quoted};

use crate::config::Reboot;
use crate::restart;

/// What a host runs that has had its reboot.
pub const REBOOTED: &str = "rebooted";

/// What a host runs on which the command of its turn has ended well.
pub const MAINTAINED: &str = "maintained";

/// What stands in the command of a restart for those of the host's own daemons.
pub(crate) const RESTARTS: &str = "{restarts}";

/// The maintenance task of a host's visit, and its commands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostTask {
    /// It is rebooted.
    #[default]
    Reboot,
    /// What is pending is installed, and it is rebooted.
    Patch,
    /// A command is run, and whatever that does to the host is done then.
    Command {
        /// The command, in which `{host}` is replaced.
        command: String,
        /// Tells this task from others with the same command: 1 to 32 letters and digits.
        token: String,
    },
    /// Its daemons are restarted.
    Restart {
        /// Those of these kinds; empty: all of the host's.
        kinds: Vec<Kind>,
        /// Tells this task from other restarts: 1 to 32 letters and digits.
        token: String,
    },
}

/// What a host with a mark prints in the place of another boot, and one without it.
const MARKED: [&str; 2] = ["done", "before"];

impl HostTask {
    /// Whether the host boots in its turn.
    pub(crate) fn boots(&self) -> bool {
        matches!(self, Self::Reboot | Self::Patch)
    }

    /// Whether it is but a reboot.
    pub(crate) fn is_reboot(&self) -> bool {
        *self == Self::Reboot
    }

    /// The command that installs updates before the reboot, if there is one.
    pub(crate) fn patch(&self, reboot: &Reboot, hosts: &Hosts) -> Option<String> {
        (*self == Self::Patch).then(|| reboot.patch(hosts))
    }

    /// The command that prepares a host before its visit, if there is one.
    pub(crate) fn prepare(&self, reboot: &Reboot, hosts: &Hosts) -> Option<String> {
        reboot.prepare(hosts, *self == Self::Patch)
    }

    /// What has been done to a host after its turn.
    pub(crate) fn past_tense(&self) -> &'static str {
        match self {
            Self::Reboot | Self::Patch => REBOOTED,
            Self::Command { .. } | Self::Restart { .. } => MAINTAINED,
        }
    }

    /// The name of its stage.
    pub(crate) fn stage(&self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Patch => "patch",
            Self::Command { .. } => "exec",
            Self::Restart { .. } => "restart",
        }
    }

    /// Why there is no way back from it.
    pub(crate) fn irreversible_reason(&self) -> &'static str {
        match self {
            Self::Reboot => "a host that has rebooted has rebooted",
            Self::Restart { .. } => "daemons that were restarted were restarted",
            Self::Patch | Self::Command { .. } => "what was done to a host stays done",
        }
    }

    /// It in a few words: `reboot`.
    pub(crate) fn verb(&self) -> String {
        match self {
            Self::Reboot => "reboot".to_owned(),
            Self::Patch => "patch and reboot".to_owned(),
            Self::Command { .. } => "run a command on".to_owned(),
            Self::Restart { kinds, .. } if kinds.is_empty() => "restart all daemons of".to_owned(),
            Self::Restart { kinds, .. } => {
                let kinds: Vec<&str> = kinds.iter().map(Kind::as_str).collect();
                format!("restart {} daemons of", kinds.join(", "))
            }
        }
    }

    /// Whether daemons of that kind go down in a host's turn, as far as anybody knows.
    pub(crate) fn may_stop_kind(&self, kind: &str) -> bool {
        match self {
            Self::Reboot | Self::Patch | Self::Command { .. } => true,
            Self::Restart { kinds, .. } => restart::stops_kind(kinds, kind),
        }
    }

    /// By which commands a host gets it. A command leaves a mark on its host once it has ended with 0, and a mark is what a boot is of a
    /// reboot: whoever carries the run on finds it. Two of one task are never at work together, and the second finds the mark of the first.
    pub fn commands(&self, reboot: &Reboot, hosts: &Hosts) -> Reboot {
        let (command, token) = match self {
            Self::Reboot | Self::Patch => return reboot.clone(),
            Self::Command { command, token } => (command.clone(), token),
            Self::Restart { token, .. } => (RESTARTS.to_owned(), token),
        };
        let folder = hosts.folder.display().to_string();
        let mark = quoted(&format!("{folder}/exec-{token}-{{host}}"));
        let folder = quoted(&folder);
        let [done, before] = MARKED;
        let run = format!(
            "mkdir -p {folder} && find {folder} -maxdepth 1 -name 'exec-*' -mtime +30 -delete && exec 9>>{mark}.lock && flock 9 && \
             {{ [ -e {mark} ] || ( {command}\n) 9>&-; }} && touch {mark}"
        );
        Reboot {
            command: Some(run),
            boot_id: Some(format!("[ -e {mark} ] && echo {done} || echo {before}")),
            // The host was not told to go away.
            power: None,
            ..reboot.clone()
        }
    }
}
