//! The two programs that may be missing on the machine itself. Everything else is in roots.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command::{run, say};

/// Something that has to be on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needed {
    /// To build roots.
    Debootstrap,
    /// To give a sandbox its loopback.
    Iproute2,
}

impl Needed {
    /// The package, and a command that works if it is there.
    fn package(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::Debootstrap => ("debootstrap", ["debootstrap", "--version"]),
            Self::Iproute2 => ("iproute2", ["ip", "-V"]),
        }
    }

    /// Installs it if it is missing, which takes root.
    pub(crate) fn ensure(self) -> Result<()> {
        let (package, [program, arg]) = self.package();
        if Command::new(program).arg(arg).output().is_ok() {
            return Ok(());
        }
        let id = run(Command::new("id").arg("-u"))?;
        ensure!(
            id.trim() == "0",
            "{package} is missing, and only root can install it: `sudo apt-get install {package}`"
        );
        say(format!("installing {package}"));
        let mut install = Command::new("apt-get");
        install.args(["-o", "DPkg::Lock::Timeout=120", "install", "-y"]);
        install.args(["--no-install-recommends", package]);
        install
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        run(&mut install)
            .with_context(|| format!("installing {package}; `apt-get update` may be needed first"))?;
        Ok(())
    }
}
