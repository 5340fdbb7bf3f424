//! What a person wants of a run, by the CephCluster: a pause, another image, commands.

use kube::ResourceExt as _;
use stagger_core::model::{HostName, PartName};
use stagger_core::run::Command;

use super::COMMAND;
use crate::cluster::CephCluster;
use crate::journal::Asked;
use crate::wish::Wish;

/// Who asks, as a journal has it.
const BY: &str = "the CephCluster";
/// The same, of a spec that asks for something else.
const BY_SPEC: &str = "the CephCluster now asks for something else";

/// Whether a run was ended as something else was asked for, by who asked for that.
pub(super) fn is_interruption(by: &str) -> bool {
    by.starts_with(BY_SPEC)
}

/// What a person wants of a run, by the CephCluster.
pub(super) struct Wishes {
    wish: Wish,
    paused: Option<bool>,
    /// Whether the run is ended because something else is asked for.
    left: bool,
    /// The last command that was heard.
    pub(super) command: Option<String>,
}

impl Wishes {
    /// For a run that was asked for by that. A command that was `heard` before was not said to it.
    pub(super) fn new(wish: Wish, heard: Option<String>) -> Self {
        Self {
            wish,
            paused: None,
            left: false,
            command: heard,
        }
    }

    /// Leaves the commands that a change of the CephCluster comes to.
    pub(super) fn heed(&mut self, found: &CephCluster, asked: &Asked) {
        let paused = found.spec.update_policy.pause.unwrap_or(false);
        match self.paused.replace(paused) {
            Some(before) if before == paused => {}
            None if !paused => {}
            Some(_) | None => asked.ask(
                if paused { Command::Pause } else { Command::Resume },
                format!("{BY}: spec.updatePolicy.pause"),
            ),
        }
        if !self.left
            && let Some(why) = self.wish.differs(&found.spec)
        {
            // The wave is finished; what is wanted now is planned from there.
            self.left = true;
            asked.ask(Command::Abort, format!("{BY_SPEC}: {why}"));
        }
        let command = found.annotations().get(COMMAND).cloned();
        if command != self.command {
            if let Some(read) = command.as_deref().and_then(read_command) {
                asked.ask(read, format!("{BY}: annotation {COMMAND}"));
            }
            self.command = command;
        }
    }
}

/// `resume`, `pause`, `abort`, `rollback`, `approve DOOR`, `confirm NODE is-off`, `settle NUMBER done` or `failed`; what stands
/// behind `#` only makes it a new one.
fn read_command(text: &str) -> Option<Command> {
    let text = text.split('#').next().unwrap_or_default().trim();
    match text.split_once(' ') {
        Some(("approve", door)) => Some(Command::Approve {
            door: PartName::new(door.trim()).ok()?,
        }),
        Some(("confirm", said)) => {
            let (host, "is-off") = said.trim().split_once(' ')? else {
                return None;
            };
            Some(Command::Confirm {
                host: HostName::new(host).ok()?,
                ended: Vec::new(),
            })
        }
        Some(("settle", said)) => {
            let (intent, how) = said.trim().split_once(' ')?;
            let done = match how {
                "done" => true,
                "failed" => false,
                _ => return None,
            };
            let intent = intent.parse().ok()?;
            Some(Command::Settle { intent, done })
        }
        Some(_) => None,
        None => match text {
            "resume" => Some(Command::Resume),
            "pause" => Some(Command::Pause),
            "abort" => Some(Command::Abort),
            "rollback" => Some(Command::Rollback),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::told;

    fn cluster(image: &str, pause: bool, command: &str) -> CephCluster {
        serde_json::from_value(json!({
            "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
            "metadata": { "name": "c", "annotations": { "stagger.dev/command": command } },
            "spec": { "cephVersion": { "image": image }, "updatePolicy": { "pause": pause } },
        }))
        .unwrap()
    }

    #[test]
    fn commands_are_words_and_all_else_is_none() {
        let approve = Command::Approve {
            door: PartName::new("last-mon").unwrap(),
        };
        assert_eq!(read_command("approve last-mon"), Some(approve));
        assert_eq!(read_command("resume#2"), Some(Command::Resume));
        assert_eq!(read_command(" rollback "), Some(Command::Rollback));
        for other in [
            "",
            "#",
            "retry#1",
            "approve",
            "approve a door",
            "confirm node-3",
            "confirm node-3 is-on",
            "confirm -oProxyCommand=x is-off",
            "settle 12",
            "settle twelve done",
            "settle 12 perhaps",
            "resume now",
            "delete",
        ] {
            assert_eq!(read_command(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_the_command_line_writes_is_understood() {
        let door = PartName::new("last-mon").unwrap();
        for command in [
            Command::Resume,
            Command::Pause,
            Command::Abort,
            Command::Rollback,
            Command::Approve { door },
            Command::Confirm {
                host: HostName::new("node-3").unwrap(),
                ended: Vec::new(),
            },
            Command::Settle {
                intent: 12,
                done: true,
            },
            Command::Settle {
                intent: 13,
                done: false,
            },
        ] {
            let written = told::anew(&told::words(&command), Some("abort#6"), None);
            assert_eq!(read_command(&written), Some(command), "{written}");
        }
    }

    /// What stands there from before a run is not said to it, and what is said once is heard once.
    #[test]
    fn wishes_are_heard_once() {
        let asked = Asked::default();
        let heard = |wishes: &mut Wishes, image, pause, command| {
            wishes.heed(&cluster(image, pause, command), &asked);
            asked
                .take()
                .into_iter()
                .map(|(command, _)| command)
                .collect::<Vec<_>>()
        };
        let wish = Wish::of(&cluster("ceph:20", false, "").spec, true).unwrap();
        let mut wishes = Wishes::new(wish, Some("abort#1".to_owned()));
        assert_eq!(heard(&mut wishes, "ceph:20", false, "abort#1"), []);
        assert_eq!(heard(&mut wishes, "ceph:20", true, "abort#1"), [Command::Pause]);
        assert_eq!(heard(&mut wishes, "ceph:20", true, "abort#1"), []);
        assert_eq!(heard(&mut wishes, "ceph:20", false, "abort#1"), [Command::Resume]);
        assert_eq!(
            heard(&mut wishes, "ceph:20", false, "resume#1"),
            [Command::Resume]
        );
        assert!(!wishes.left);
        assert_eq!(heard(&mut wishes, "ceph:21", false, "resume#1"), [Command::Abort]);
        assert!(wishes.left);
        assert_eq!(heard(&mut wishes, "ceph:22", false, "resume#1"), []);
    }
}
