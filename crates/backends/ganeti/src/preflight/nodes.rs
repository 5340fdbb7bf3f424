//! Nodes that commands of the configuration go to by ssh: whether each is reached so, and has what is run there.
//!
//! Commands run on this machine, and what they do on a node only they know. Of one that begins with ssh it is plain to see: the
//! words up to the node reach it, and the rest is run there. A shell is run there in its place, which only looks.
//!
//! A key may be good for one command, which is then run whatever is asked for (`command=` in `authorized_keys`): the reboot that is
//! not to happen now. So nothing is tried with a key that the command names, nor where it says nothing to run.

use std::collections::BTreeMap;

use stagger_engine::hosts::Hosts;
use stagger_engine::preflight::{Check, HostChecks, Template, ask_hosts};
use stagger_engine::template::filled;

use crate::config::Visits;
use crate::facts::{GanetiFacts, NodeRole};

/// How long a node may take to answer, in seconds.
const ANSWERS: u64 = 60;

/// No password is asked for, and a silent node is not waited for. Of an option that is given twice ssh takes the first.
const UNATTENDED: [&str; 2] = ["-oBatchMode=yes", "-oConnectTimeout=10"];

/// Flags of ssh whose value follows (`ssh(1)`).
const WITH_VALUE: &str = "BbcDEeFIiJLlmOopQRSWw";

/// Those that name a key, or a file that may name one.
const OF_KEYS: &str = "FIi";

/// Such options behind `-o`, in small letters.
const KEYS: [&str; 3] = ["certificatefile", "identit", "pkcs11"];

/// Flags of ssh that keep a script from being read, or change it on its way: no input, the background, a terminal.
const IN_THE_WAY: [char; 3] = ['n', 'f', 't'];

/// Which node a command goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Each that is visited.
    Node,
    /// The master.
    Master,
    /// Each that may be the next master.
    Successor,
}

/// A command that goes to a node by ssh.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SshCommand<'a> {
    /// The words that reach it, with `{host}` in the place of its name.
    way: Vec<String>,
    to: Target,
    /// What is run there, as far as it is plain to see.
    runs: Option<&'a str>,
}

/// Reads a command that begins with ssh. `None`: it does not, or goes elsewhere, or only the shell knows where.
fn by_ssh(command: &str) -> Option<SshCommand<'_>> {
    let mut rest = command.trim_start();
    let mut next = || {
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        rest = after.trim_start();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=@:,+%{}".contains(c);
        (!word.is_empty() && word.chars().all(plain)).then_some(word)
    };
    let mut way = Vec::new();
    let mut word = next()?;
    while ["sudo", "-n"].contains(&word) {
        way.push(word.to_owned());
        word = next()?;
    }
    if word != "ssh" && !word.ends_with("/ssh") {
        return None;
    }
    way.push(word.to_owned());
    way.extend(UNATTENDED.map(str::to_owned));
    loop {
        word = next()?;
        let Some(flags) = word.strip_prefix('-') else {
            break;
        };
        let Some(at) = flags.find(|flag: char| WITH_VALUE.contains(flag)) else {
            let kept = flags.replace(IN_THE_WAY, "");
            if !kept.is_empty() {
                way.push(format!("-{kept}"));
            }
            continue;
        };
        way.push(word.to_owned());
        let (flag, mut value) = flags[at..].split_at(1);
        if value.is_empty() {
            value = next()?;
            way.push(value.to_owned());
        }
        let value = value.to_lowercase();
        if OF_KEYS.contains(flag) || (flag == "o" && KEYS.iter().any(|key| value.starts_with(key))) {
            return None;
        }
    }
    let (user, name) = word.rsplit_once('@').unwrap_or(("", word));
    let to = match name {
        "{node}" => Target::Node,
        "{master}" => Target::Master,
        "{successor}" => Target::Successor,
        _ => return None,
    };
    // Options may follow the node's name too, and may themselves go by way of one.
    if rest.is_empty() || rest.starts_with('-') || way.iter().any(|word| word.contains('{')) {
        return None;
    }
    way.push(if user.is_empty() {
        "{host}".to_owned()
    } else {
        format!("{user}@{{host}}")
    });
    let runs = runs(rest);
    Some(SshCommand { way, to, runs })
}

/// What ssh is given to run: a text in quotes, or the words until something that the shell of this machine reads.
fn runs(rest: &str) -> Option<&str> {
    let quoted = |quote: char| {
        let (text, after) = rest.strip_prefix(quote)?.split_once(quote)?;
        (after.is_empty() || after.starts_with([' ', ';', '&', '|', '<', '>'])).then_some(text)
    };
    let of_this_shell = |c: char| ";&|<>()'\"\\$`\n".contains(c);
    let runs = match rest.chars().next()? {
        '\'' => quoted('\'')?,
        '"' => quoted('"').filter(|text| !text.contains(['$', '`', '\\']))?,
        _ => rest.split(of_this_shell).next()?.trim_end(),
    };
    (!runs.is_empty()).then_some(runs)
}

/// The nodes that a command goes to. Ganeti does not talk to those that are offline, and no run does.
fn nodes<'a>(to: Target, visits: &'a Visits, facts: &'a GanetiFacts) -> Vec<&'a str> {
    let of_role = |wanted: fn(NodeRole) -> bool| {
        let nodes = facts.nodes.values().filter(|node| wanted(node.role));
        nodes.map(|node| node.name.as_str()).collect()
    };
    match (to, &visits.successor) {
        (Target::Node, _) => of_role(|role| role != NodeRole::Offline),
        (Target::Master, _) => vec![facts.master.as_str()],
        (Target::Successor, Some(named)) => vec![named.as_str()],
        (Target::Successor, None) => of_role(|role| role == NodeRole::Candidate),
    }
}

/// What is asked of each node, by the words that reach it.
type Asked = BTreeMap<Vec<String>, BTreeMap<String, HostChecks>>;

/// What the commands need on each node. `samples`: the words that only a run knows. Beside it what cannot be filled in.
fn asked(
    templates: &[Template],
    samples: &[(&str, &str)],
    visits: &Visits,
    facts: &GanetiFacts,
) -> (Asked, Vec<Check>) {
    let mut asked = Asked::new();
    let mut wrong = Vec::new();
    for Template { key, command, .. } in templates {
        let Some(SshCommand { way, to, runs }) = by_ssh(command) else {
            continue;
        };
        for node in nodes(to, visits, facts) {
            let of_node = asked.entry(way.clone()).or_default();
            let of_node = of_node
                .entry(node.to_owned())
                .or_insert_with(HostChecks::without_folder);
            let own = [
                ("node", node),
                ("successor", node),
                ("master", facts.master.as_str()),
            ];
            match runs.map(|runs| filled(runs, &[&own, samples].concat())) {
                None => {}
                Some(Ok(line)) => of_node.add(key.clone(), line),
                Some(Err(error)) => wrong.push(Check::failed(node, format!("{key}: {error}"))),
            }
        }
    }
    (asked, wrong)
}

/// One look at each node that commands go to, by the way that they go, which changes nothing.
pub(super) async fn look(
    templates: &[Template],
    samples: &[(&str, &str)],
    visits: &Visits,
    facts: &GanetiFacts,
) -> Vec<Check> {
    let (asked, mut checks) = asked(templates, samples, visits, facts);
    for (mut shell, nodes) in asked {
        shell.push("sh".to_owned());
        let hosts = Hosts {
            shell,
            timeout: ANSWERS,
            ..Hosts::default()
        };
        checks.extend(ask_hosts(&hosts, nodes).await);
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NodeFacts;
    use crate::facts::notes::NodeNotes;

    fn way(command: &str) -> Option<String> {
        by_ssh(command).map(|found| found.way.join(" "))
    }

    #[test]
    fn the_words_up_to_the_node_reach_it() {
        const SSH: &str = "ssh -oBatchMode=yes -oConnectTimeout=10";
        for (command, wanted) in [
            ("ssh {node} reboot", format!("{SSH} {{host}}")),
            ("ssh -n root@{node} reboot", format!("{SSH} root@{{host}}")),
            (
                "ssh -4tt -p 22 -oUser=a -l root {master} x",
                format!("{SSH} -4 -p 22 -oUser=a -l root {{host}}"),
            ),
            (
                "ssh -qJ jump.example.org a@b@{successor} 'x'",
                format!("{SSH} -qJ jump.example.org a@b@{{host}}"),
            ),
            (
                "sudo -n /usr/bin/ssh root@{node} x",
                "sudo -n /usr/bin/ssh -oBatchMode=yes -oConnectTimeout=10 root@{host}".to_owned(),
            ),
        ] {
            assert_eq!(way(command), Some(wanted), "{command}");
        }
    }

    /// What would not be a shell on the node is never run.
    #[test]
    fn what_is_not_plainly_ssh_to_a_node_is_left_alone() {
        for command in [
            "",
            "reboot {node}",
            "ssh",
            "ssh root@{node}",
            "ssh root@proxy power off {node}",
            "ssh -p {node} root@proxy",
            "echo ssh root@{node} reboot",
            "off-by-ssh root@{node}",
            "said=$(ssh root@{node} reboot)",
            "ssh $options root@{node} reboot",
            "ssh 'root'@{node} reboot",
            "ssh root@{node}; reboot",
            "ssh root@{node} -p 22 reboot",
            "ssh -J root@{master} root@{node} reboot",
            "ssh -i /etc/stagger/key root@{node} reboot",
            "ssh -4i/etc/stagger/key root@{node} reboot",
            "ssh -F /etc/stagger/ssh root@{node} reboot",
            "ssh -oIdentityFile=/etc/stagger/key root@{node} reboot",
            "ssh -o IdentitiesOnly=yes root@{node} reboot",
            crate::config::CLEAN_REBOOT,
        ] {
            assert_eq!(by_ssh(command), None, "{command}");
        }
    }

    #[test]
    fn the_rest_is_run_there() {
        for (command, wanted) in [
            ("ssh {node} sudo systemctl reboot", Some("sudo systemctl reboot")),
            ("ssh {node} reboot >/dev/null 2>&1; true", Some("reboot")),
            ("ssh {node} sh -c 'a; b'", Some("sh -c")),
            ("ssh {node} 'a; b' && c", Some("a; b")),
            ("ssh {node} \"a 'b'\"", Some("a 'b'")),
            ("ssh {node} \"a $b\"", None),
            ("ssh {node} 'a'\"b\"", None),
        ] {
            assert_eq!(by_ssh(command).unwrap().runs, wanted, "{command}");
        }
    }

    fn facts() -> GanetiFacts {
        let roles = [
            ("n1", NodeRole::Master),
            ("n2", NodeRole::Candidate),
            ("n3", NodeRole::Regular),
            ("n4", NodeRole::Drained),
            ("n5", NodeRole::Offline),
        ];
        let node = |(name, role): (&str, NodeRole)| {
            let facts = NodeFacts {
                name: name.to_owned(),
                role,
                group: "g".to_owned(),
                vm_capable: true,
                notes: NodeNotes::default(),
                boot: None,
            };
            (name.to_owned(), facts)
        };
        GanetiFacts {
            at: jiff::Timestamp::UNIX_EPOCH,
            cluster: "lab".to_owned(),
            master: "n1".to_owned(),
            release: String::new(),
            nodes: roles.map(node).into(),
            instances: BTreeMap::new(),
            groups: BTreeMap::new(),
            candidates: None,
        }
    }

    #[test]
    fn each_node_that_a_command_may_go_to_is_asked() {
        let of = |command: &str, visits: &Visits| -> Vec<String> {
            let template = Template {
                key: "key".to_owned(),
                command: command.to_owned(),
                known: &[],
            };
            let (asked, wrong) = asked(&[template], &[], visits, &facts());
            assert!(wrong.is_empty(), "{wrong:?}");
            asked.into_values().flat_map(BTreeMap::into_keys).collect()
        };
        let any = Visits::default();
        assert_eq!(of("ssh {node} x", &any), ["n1", "n2", "n3", "n4"]);
        assert_eq!(of("ssh {master} x", &any), ["n1"]);
        assert_eq!(of("ssh {successor} x", &any), ["n2"]);
        let named = Visits {
            successor: Some("n3".to_owned()),
            ..Visits::default()
        };
        assert_eq!(of("ssh {successor} x", &named), ["n3"]);
        assert_eq!(of("powercycle", &any), [""; 0], "no node is gone to");
    }
}
