//! What keeps a virtual cluster from the power of the machine under it.
//!
//! Ganeti's fake hypervisor powercycles a node as the others do: it asks the kernel to reboot at once. With several
//! virtual nodes on one machine that kernel is the machine's. Three things stand in between:
//!
//! - the root's Ganeti is patched: a powercycle runs the cluster's `nodectl NODE reboot`, and nothing in it names
//!   the kernel's trigger any more. [`check`] looks at that before anything is started, and refuses without it;
//! - in the sandbox another file lies over the trigger, where the kernel has one, which also tells whether anybody
//!   ever wrote to it ([`Mask`]);
//! - the nodes run in a process namespace of the sandbox's own, in which the call to reboot ends that namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{output, run};
use crate::sandbox::Sandbox;

/// Ganeti's Python code in a root, by release: a root has one of them.
const CODE: [&str; 2] = ["usr/share/ganeti/3.0/ganeti", "usr/share/ganeti/3.1/ganeti"];

/// Where Ganeti's Python code is, relative to that root.
///
/// # Errors
/// It is of another release than those that are known here.
pub(super) fn code(root: &Path) -> Result<&'static str> {
    let found = CODE.into_iter().find(|code| root.join(code).is_dir());
    found.with_context(|| format!("{} has none of {}", root.display(), CODE.join(", ")))
}

/// Where the programs and the code of Ganeti are in a root.
const TREES: [&str; 2] = ["usr/share/ganeti", "usr/lib/ganeti"];

/// The class of hypervisors from which all of them have their powercycle.
const HYPERVISORS: &str = "hypervisor/hv_base.py";

/// Where nodes check themselves; it looks whether the trigger is there, to know that `/proc` is.
const NODE: &str = "backend.py";

/// The kernel's trigger, and a file of `/proc` that harms nobody.
const TRIGGER: &str = "/proc/sysrq-trigger";
const HARMLESS: &str = "/proc/uptime";

/// What no file of a patched root has.
const WORD: &str = "sysrq";

const HEAD: &str = "  def LinuxPowercycle(cls):\n";

/// It never returns: the caller is a fork of the node's daemon, which would go on as a second one.
pub(super) const BODY: &str = r#"    """stagger's test-bed: reboots this virtual node, never the machine under it."""
    home = os.environ["GANETI_ROOTDIR"]
    nodectl = os.path.join(os.path.dirname(home), "nodectl")
    os.execve(nodectl, [nodectl, os.path.basename(home), "reboot"],
              {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

"#;

/// Patches the Ganeti of a root that is being built.
pub(super) fn patch(root: &Path) -> Result<()> {
    let code = root.join(code(root)?);
    change(&code.join(HYPERVISORS), patched)?;
    change(&code.join(NODE), |text| Ok(text.replace(TRIGGER, HARMLESS)))
}

fn change(path: &Path, with: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let text = with(&text).with_context(|| format!("patching {}", path.display()))?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// The source of the class of hypervisors with another powercycle.
fn patched(source: &str) -> Result<String> {
    let (before, after) = source
        .split_once(HEAD)
        .context("it has no LinuxPowercycle: this Ganeti is another than the patch is for")?;
    ensure!(!after.contains(HEAD), "it has LinuxPowercycle twice");
    let mut rest = after.len();
    let mut seen = 0;
    for line in after.split_inclusive('\n') {
        let inside = line.trim().is_empty() || line.starts_with("    ");
        if !inside {
            rest = seen;
            break;
        }
        seen += line.len();
    }
    Ok([before, HEAD, BODY, &after[rest..]].concat())
}

/// Whether the Ganeti of a root may be started: whether its powercycle is ours.
///
/// # Errors
/// It is not, or that cannot be told. Nothing was started.
pub(super) fn check(root: &Path) -> Result<()> {
    looked_at(root).with_context(|| {
        format!(
            "the Ganeti in {} was not started: a powercycle in it could reboot this machine; \
             remove that folder, and a patched one is built",
            root.display()
        )
    })
}

fn looked_at(root: &Path) -> Result<()> {
    let path = root.join(code(root)?).join(HYPERVISORS);
    let source = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let ours = source.contains(&[HEAD, BODY].concat());
    ensure!(ours, "{} has not the powercycle of the test-bed", path.display());
    // Compiled code too: Python takes it instead of the source.
    let mut grep = Command::new("grep");
    grep.args([
        "--recursive",
        "--files-with-matches",
        "--fixed-strings",
        "--text",
        WORD,
    ]);
    let found = output(grep.args(TREES).current_dir(root))?;
    match found.status.code() {
        Some(1) => Ok(()),
        Some(0) => bail!(
            "these files name the kernel's trigger: {}",
            String::from_utf8_lossy(&found.stdout).trim().replace('\n', ", ")
        ),
        _ => bail!(
            "looking through it failed: {}",
            String::from_utf8_lossy(&found.stderr).trim()
        ),
    }
}

const MASK: &str = "Nobody may write here.\n";

/// What lies over the kernel's trigger in a sandbox.
#[derive(Debug)]
pub(super) struct Mask {
    file: PathBuf,
}

impl Mask {
    /// Lays it over the trigger, in the sandbox's own `/proc` and in that of the root, where the kernel has one.
    pub(super) fn lay(sandbox: &Sandbox, root: &Path) -> Result<Self> {
        let file = sandbox.dir().join("power");
        fs::write(&file, MASK).with_context(|| format!("writing {}", file.display()))?;
        let inner = root.join(TRIGGER.trim_start_matches('/'));
        for trigger in [Path::new(TRIGGER), inner.as_path()] {
            let there = output(sandbox.command("test").arg("-e").arg(trigger))?;
            if !there.status.success() {
                continue;
            }
            run(sandbox.command("mount").arg("--bind").arg(&file).arg(trigger))?;
            let seen = run(sandbox.command("cat").arg(trigger))?;
            ensure!(
                seen == MASK,
                "{} in the sandbox is still the kernel's: the cluster was not started",
                trigger.display()
            );
        }
        Ok(Self { file })
    }

    /// Whether nobody wrote to it.
    pub(super) fn ensure_untouched(&self) -> Result<()> {
        let text =
            fs::read_to_string(&self.file).with_context(|| format!("reading {}", self.file.display()))?;
        ensure!(
            text == MASK,
            "something in the cluster tried to reboot this machine: it wrote {text:?}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the manner of Ganeti's, and as dangerous.
    const DANGEROUS: &str = "class BaseHypervisor(object):\n\
        \x20 @classmethod\n\
        \x20 def LinuxPowercycle(cls):\n\
        \x20   with open('/proc/sysrq-trigger', 'w') as trigger:\n\
        \n\
        \x20     trigger.write('b')\n\
        \n\
        \x20 @staticmethod\n\
        \x20 def Other():\n\
        \x20   pass\n";

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in [
            "usr/share/ganeti/3.0/ganeti/hypervisor/__pycache__",
            "usr/lib/ganeti/tools",
        ] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let code = root.path().join(CODE[0]);
        fs::write(code.join(HYPERVISORS), DANGEROUS).unwrap();
        fs::write(
            code.join(NODE),
            "if not os.path.isfile(\"/proc/sysrq-trigger\"):\n  pass\n",
        )
        .unwrap();
        root
    }

    #[test]
    fn only_the_powercycle_is_another() {
        let text = patched(DANGEROUS).unwrap();
        assert!(
            text.starts_with("class BaseHypervisor(object):\n  @classmethod\n  def LinuxPowercycle(cls):\n")
        );
        assert!(
            text.ends_with(
                "\"/usr/sbin:/usr/bin:/sbin:/bin\"})\n\n  @staticmethod\n  def Other():\n    pass\n"
            )
        );
        assert!(!text.contains(WORD));
        assert!(patched("class BaseHypervisor(object):\n  pass\n").is_err());
    }

    #[test]
    fn an_unpatched_root_is_refused() {
        let root = root();
        let error = format!("{:#}", check(root.path()).unwrap_err());
        assert!(error.contains("could reboot this machine"), "{error}");
        assert!(
            error.contains("has not the powercycle of the test-bed"),
            "{error}"
        );
    }

    #[test]
    fn a_patched_root_may_be_started_until_something_names_the_trigger() {
        let root = root();
        patch(root.path()).unwrap();
        check(root.path()).unwrap();
        let compiled = root
            .path()
            .join(CODE[0])
            .join("hypervisor/__pycache__/hv_base.cpython-311.pyc");
        fs::write(&compiled, b"\0\xff/proc/sysrq-trigger\0").unwrap();
        let error = format!("{:#}", check(root.path()).unwrap_err());
        assert!(error.contains("hv_base.cpython-311.pyc"), "{error}");
    }

    #[test]
    fn what_cannot_be_looked_at_is_refused() {
        let empty = tempfile::tempdir().unwrap();
        assert!(check(empty.path()).is_err());
        let root = root();
        patch(root.path()).unwrap();
        fs::remove_dir_all(root.path().join("usr/lib/ganeti")).unwrap();
        assert!(check(root.path()).is_err(), "one of the trees is missing");
    }
}
