//! Checks by tools that others keep. Each is pinned, built by `cargo install` where it is missing, and kept in the cache outside the
//! checkout by its exact version.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::report::{Report, cache, cargo, ignored, root, say};

/// A tool.
struct Tool {
    /// The crate that it comes in.
    package: &'static str,
    version: &'static str,
    program: &'static str,
    /// What it is built with beside that.
    features: &'static [&'static str],
    /// What it is asked, in the checkout.
    words: &'static [&'static str],
    /// What it finds.
    finds: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool {
        package: "typos-cli",
        version: "1.52.0",
        program: "typos",
        features: &[],
        words: &[],
        finds: "misspelt words",
    },
    Tool {
        package: "cargo-machete",
        version: "0.9.2",
        program: "cargo-machete",
        features: &[],
        words: &["--skip-target-dir"],
        finds: "dependencies that nothing uses",
    },
    Tool {
        package: "cargo-deny",
        version: "0.20.2",
        program: "cargo-deny",
        features: &[],
        // Advisories are in a repository of their own, which may not be there.
        words: &[
            "--log-level",
            "error",
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ],
        finds: "dependencies that may not be there",
    },
    Tool {
        package: "mdbook",
        version: "0.5.4",
        program: "mdbook",
        // It serves nothing here, and nobody searches in it.
        features: &["--no-default-features"],
        words: &["build", "docs"],
        finds: "pages that make no book",
    },
];

/// What makes packages.
const PACKERS: [Tool; 2] = [
    Tool {
        package: "cargo-deb",
        version: "3.8.0",
        program: "cargo-deb",
        features: &[],
        words: &[],
        finds: "",
    },
    Tool {
        package: "cargo-sbom",
        version: "0.10.0",
        program: "cargo-sbom",
        features: &[],
        words: &[],
        finds: "",
    },
];

/// Where that packer is; it is built if it is missing.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let tool = PACKERS.iter().find(|tool| tool.program == name);
    let tool = tool.with_context(|| format!("{name} is no tool of ours"))?;
    let program = tool.program()?;
    if !program.exists() {
        tool.install()?;
        std::fs::remove_dir_all(building()?).ok();
    }
    Ok(program)
}

/// Runs a case of the tests of `serve` with a program that it takes: the one that `variable` names, else the one that is brought along.
/// Where there is none, that is told as skipped.
pub(crate) fn api_case(
    report: &mut Report,
    name: &str,
    variable: &str,
    bring: impl FnOnce() -> Result<PathBuf>,
    case: &str,
) -> Result<()> {
    let program = match std::env::var_os(variable) {
        Some(given) => PathBuf::from(given),
        None => match bring() {
            Ok(program) => program,
            Err(error) => {
                report.skipped(name, &format!("{error:#}"));
                return Ok(());
            }
        },
    };
    report.run(name, ignored("api", Some(case)).env(variable, program))?;
    Ok(())
}

/// Runs each.
pub(crate) fn checks(report: &mut Report) -> Result<()> {
    for tool in &TOOLS {
        let program = tool.program()?;
        let name = format!("{}: {}", tool.program, tool.finds);
        if !program.exists()
            && let Err(error) = tool.install()
        {
            report.skipped(&name, &format!("{error:#}"));
            continue;
        }
        let mut command = Command::new(&program);
        command.args(tool.words).current_dir(root());
        report.run(&name, &mut command)?;
    }
    std::fs::remove_dir_all(building()?).ok();
    Ok(())
}

impl Tool {
    fn folder(&self) -> Result<PathBuf> {
        Ok(cache()?
            .join("tools")
            .join(format!("{}-{}", self.package, self.version)))
    }

    fn program(&self) -> Result<PathBuf> {
        Ok(self.folder()?.join("bin").join(self.program))
    }

    /// Builds it: quickly, for it runs for seconds. What the tools have in common is built once.
    fn install(&self) -> Result<()> {
        let Self {
            package,
            version,
            features,
            ..
        } = self;
        let folder = self.folder()?;
        say(&format!("== build {package} {version} into {}", folder.display()));
        let words = ["install", "--quiet", "--locked", "--debug", package, "--version"];
        let installed = cargo(&words)
            .args([version, "--root"])
            .arg(&folder)
            .args(*features)
            .env("CARGO_TARGET_DIR", building()?)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .status()
            .with_context(|| format!("build {package}"))?;
        if !installed.success() {
            bail!("{package} {version} cannot be built: it takes crates.io, or what mirrors it");
        }
        Ok(())
    }
}

/// Where tools are built. It is of no use to anybody else.
fn building() -> Result<PathBuf> {
    Ok(cache()?.join("tools/build"))
}
