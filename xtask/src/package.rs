//! What is released: a Debian package, the plugin of kubectl, what they are made of, and their checksums. The package is then
//! installed in a Debian of its own, tried, and removed; the container image is built and its program tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::krew;
use crate::report::{Outcome, Report, built, cargo, root, said, say, target_folder, workspace};
use crate::test::must_be_root;
use crate::tools::program;

/// The shells whose completions are packed.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Where the plugin's archive will be fetched from, unless that is said.
const SOMEWHERE: &str = "https://example.org/stagger";

/// Makes all of it in `target/package`.
pub(crate) fn package(url: Option<&str>) -> Result<()> {
    must_be_root()?;
    let folder = target_folder().join("package");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("completions")).with_context(|| format!("make {}", folder.display()))?;
    // What is packed has the commit's time, not the build's.
    let epoch = said(
        Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(root()),
    )?;
    let mut report = Report::default();
    let mut build = cargo(&[
        "build",
        "--locked",
        "--profile",
        "dist",
        "--package",
        "stagger-cli",
    ]);
    if report.run("build", build.env("SOURCE_DATE_EPOCH", &epoch))? == Outcome::Failed {
        bail!("it does not build");
    }
    let stagger = target_folder().join("dist/stagger");
    pages(&stagger, &folder)?;
    let mut deb = Command::new(program("cargo-deb")?);
    deb.args([
        "--quiet",
        "--no-build",
        "--no-strip",
        "--profile",
        "dist",
        "--package",
        "stagger-cli",
        "--output",
    ]);
    deb.arg(&folder)
        .current_dir(root())
        .env("SOURCE_DATE_EPOCH", &epoch);
    report.run("Debian package", &mut deb)?;
    let stagger_words = stagger.display().to_string();
    report.done("plugin of kubectl", || {
        krew::krew(
            &stagger_words,
            url.unwrap_or(SOMEWHERE),
            &folder.display().to_string(),
        )
    });
    report.done("what it is made of", || made_of(&folder));
    report.done("checksums", || checksums(&folder));
    let file = packed(&folder)?;
    report.run(
        "the harness",
        &mut workspace("build", &["--package", "stagger-e2e", "--bins"]),
    )?;
    report.run("installed, tried, removed", built("try-package").arg(&file))?;
    report.run("image, built and tried", &mut built("try-image"))?;
    let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len() / 1_000_000);
    say(&format!(
        "{}: {} MB; the program: {} MB",
        file.display(),
        size(&file),
        size(&stagger)
    ));
    ensure!(report.summary(), "not all is well");
    Ok(())
}

/// Manual pages and completions, as the program itself writes them.
fn pages(stagger: &Path, folder: &Path) -> Result<()> {
    let wrote = Command::new(stagger).arg("man").arg(folder.join("man")).status();
    ensure!(wrote.context("start stagger")?.success(), "stagger man failed");
    for shell in SHELLS {
        let text = said(Command::new(stagger).args(["completions", shell]))?;
        let file = folder.join("completions").join(format!("stagger.{shell}"));
        fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

/// The crates in it, in the form of SPDX.
fn made_of(folder: &Path) -> Result<()> {
    let mut sbom = Command::new(program("cargo-sbom")?);
    sbom.args([
        "--cargo-package",
        "stagger-cli",
        "--output-format",
        "spdx_json_2_3",
    ])
    .current_dir(root());
    let file = folder.join("stagger.spdx.json");
    fs::write(&file, said(&mut sbom)?).with_context(|| format!("write {}", file.display()))
}

fn checksums(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        files.extend(path.is_file().then(|| path.file_name().map(Into::into)).flatten());
    }
    files.sort();
    let names: Vec<PathBuf> = files;
    let sums = said(Command::new("sha256sum").args(&names).current_dir(folder))?;
    fs::write(folder.join("SHA256SUMS"), sums + "\n").context("write SHA256SUMS")
}

fn packed(folder: &Path) -> Result<PathBuf> {
    let mut found = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    found
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("there is no package in {}", folder.display()))
}
