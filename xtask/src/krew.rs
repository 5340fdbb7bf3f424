//! The plugin of kubectl: an archive with the program under that name, and the manifest by which krew installs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::report::{root, say};

/// Its name: `kubectl stagger`.
const PLUGIN: &str = "stagger";
/// How kubectl finds it in the `PATH`.
const BIN: &str = "kubectl-stagger";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const LICENSE: &str = "LICENSE";

/// Packs a program that was built already into `folder`. `url`: where its archives will be, without a slash at the end.
pub(crate) fn krew(program: &str, url: &str, folder: &str) -> Result<()> {
    let (archive, manifest) = packed(Path::new(program), url, Path::new(folder))?;
    say(&format!("{}: put it at {url}/", archive.display()));
    say(&format!(
        "{}: kubectl krew install --manifest={}",
        manifest.display(),
        manifest.display()
    ));
    Ok(())
}

fn packed(program: &Path, url: &str, folder: &Path) -> Result<(PathBuf, PathBuf)> {
    ensure!(
        url.starts_with("https://") && !url.ends_with('/'),
        "krew fetches from https, and {url:?} is no such folder"
    );
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("kubectl has no name for {other}"),
    };
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let inside = tempfile::tempdir_in(folder).context("make a folder for what is packed")?;
    let copies = [(program.to_owned(), BIN), (root().join(LICENSE), LICENSE)];
    for (from, name) in copies {
        fs::copy(&from, inside.path().join(name)).with_context(|| format!("copy {}", from.display()))?;
    }
    let name = format!("{BIN}-v{VERSION}-linux-{arch}.tar.gz");
    let archive = folder.join(&name);
    // The same program gives the same bytes.
    let packing = Command::new("tar")
        .args([
            "--create",
            "--sort=name",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ])
        .args(["--use-compress-program", "gzip --no-name"])
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(inside.path())
        .args([BIN, LICENSE])
        .status()
        .context("start tar")?;
    ensure!(packing.success(), "tar could not make {}", archive.display());
    let bytes = fs::read(&archive).with_context(|| format!("read {}", archive.display()))?;
    let sum = sha256(&bytes);
    let manifest = folder.join(format!("{PLUGIN}.yaml"));
    fs::write(&manifest, text(arch, &format!("{url}/{name}"), &sum))
        .with_context(|| format!("write {}", manifest.display()))?;
    Ok((archive, manifest))
}

/// As hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    sum.iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// As <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/> has it.
fn text(arch: &str, url: &str, sha256: &str) -> String {
    format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: {PLUGIN}
spec:
  version: v{VERSION}
  shortDescription: Upgrade Ceph and drain its nodes, as many at once as is safe
  description: |
    Says from a kubeconfig what an upgrade of a Ceph cluster of Rook's would do, in which waves and
    why, how far one is, and why a drain waits. Where its operator runs, it talks to that one.
  platforms:
    - selector:
        matchLabels:
          os: linux
          arch: {arch}
      uri: {url}
      sha256: {sha256}
      bin: {BIN}
      files:
        - from: {BIN}
          to: .
        - from: {LICENSE}
          to: .
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_the_archive_by_its_sum_and_the_same_program_gives_the_same() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/sh\n")?;
        let pack = |place: &str| {
            let (archive, manifest) = packed(&program, "https://example.com/v", &folder.path().join(place))?;
            Ok::<_, anyhow::Error>((fs::read(archive)?, fs::read_to_string(manifest)?))
        };
        let (archive, manifest) = pack("one")?;
        assert_eq!(pack("two")?, (archive.clone(), manifest.clone()));
        let manifest: serde_json::Value = serde_saphyr::from_str(&manifest)?;
        let platform = &manifest["spec"]["platforms"][0];
        assert_eq!(platform["sha256"], sha256(&archive));
        assert!(packed(&program, "http://example.com", folder.path()).is_err());
        Ok(())
    }
}
