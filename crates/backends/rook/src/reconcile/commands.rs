//! Commands to a run through the CephMaintenance: a pause, another image, commands, an end.

use kube::ResourceExt as _;
use stagger_core::model::{HostName, PartName};
use stagger_core::run::Command;

use crate::api::maintenance::{Desired, Manage};
use crate::api::names::COMMAND;
use crate::executor::goal::{Goal, SUPERSEDED};
use crate::journal::CommandQueue;

/// Who asks, as a journal has it.
const BY: &str = "the CephMaintenance";
/// Commands to a run through the CephMaintenance.
pub(crate) struct OperatorCommands {
    wish: Goal,
    paused: Option<bool>,
    /// Whether the run is ended because something else is asked for.
    left: bool,
    /// The last command that was heard.
    pub(crate) command: Option<String>,
}

impl OperatorCommands {
    /// For a run that was asked for by that. A command that was `heard` before was not said to it.
    pub(crate) fn new(wish: Goal, heard: Option<String>) -> Self {
        Self {
            wish,
            paused: None,
            left: false,
            command: heard,
        }
    }

    /// Leaves the commands that a change of what is wanted comes to.
    pub(crate) fn apply_desired(&mut self, desired: &Desired, asked: &CommandQueue) {
        let maintenance = &desired.maintenance;
        let paused = maintenance.spec.update_policy.pause.unwrap_or(false);
        match self.paused.replace(paused) {
            Some(before) if before == paused => {}
            None if !paused => {}
            Some(_) | None => asked.ask(
                if paused { Command::Pause } else { Command::Resume },
                format!("{BY}: spec.updatePolicy.pause"),
            ),
        }
        let left = if desired.manages(Manage::Updates) {
            self.wish.differs(desired)
        } else {
            Some("updates are not managed any more".to_owned())
        };
        if !self.left
            && let Some(why) = left
        {
            // The wave is finished; what is wanted now is planned from there.
            self.left = true;
            asked.ask(Command::Abort, format!("{SUPERSEDED}: {why}"));
        }
        let command = maintenance.annotations().get(COMMAND).cloned();
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
    use crate::api::maintenance;
    use crate::client::status;
    use crate::executor::goal::is_superseded;

    fn cluster(image: &str, pause: bool, command: &str) -> Desired {
        let mut desired = maintenance::desired(
            json!({ "cephVersion": { "image": "ceph:18" } }),
            json!({ "manage": ["updates"], "image": image, "updatePolicy": { "pause": pause } }),
        );
        let annotations = desired.maintenance.annotations_mut();
        annotations.insert(COMMAND.to_owned(), command.to_owned());
        desired
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
            let written = status::unique_command(&status::command_text(&command), Some("abort#6"), None);
            assert_eq!(read_command(&written), Some(command), "{written}");
        }
    }

    /// What stands there from before a run is not said to it, and what is said once is heard once.
    #[test]
    fn wishes_are_heard_once() {
        let asked = CommandQueue::default();
        let heard = |wishes: &mut OperatorCommands, image, pause, command| {
            wishes.apply_desired(&cluster(image, pause, command), &asked);
            asked
                .take()
                .into_iter()
                .map(|(command, _)| command)
                .collect::<Vec<_>>()
        };
        let wish = Goal::of(&cluster("ceph:20", false, ""), true).unwrap();
        let mut wishes = OperatorCommands::new(wish, Some("abort#1".to_owned()));
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

    /// Its wave is finished, and nothing is tried again for that.
    #[test]
    fn a_run_of_a_maintenance_that_goes_ends() {
        let before = cluster("ceph:20", false, "");
        let wish = Goal::of(&before, true).unwrap();
        let mut unmanaged = before.clone();
        unmanaged.maintenance.spec.manage.clear();
        let mut deleted = before;
        let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        deleted.maintenance.metadata.deletion_timestamp = Some(at);
        for now in [unmanaged, deleted] {
            let asked = CommandQueue::default();
            let mut wishes = OperatorCommands::new(wish.clone(), Some(String::new()));
            wishes.apply_desired(&now, &asked);
            wishes.apply_desired(&now, &asked);
            let said = asked.take();
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(
                said[0].0 == Command::Abort && is_superseded(&said[0].1),
                "{said:?}"
            );
        }
    }
}
