//! Whether every dependency may be used: its licence is among those that `deny.toml` allows.
//!
//! `cargo deny` says the same and more; this needs no tool and no network.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::report::{cargo, root};

/// Packages that are in no binary that is given away, with the licence that they may have beside the rest.
const BESIDE: [(&str, &str); 1] = [
    // LLVM's libFuzzer, in `fuzz/` only.
    ("libfuzzer-sys", "NCSA"),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

/// Looks at all that is in the two lock files.
pub(crate) fn licences() -> Result<()> {
    let text = std::fs::read_to_string(root().join("deny.toml")).context("read deny.toml")?;
    let allowed = allowed(&text)?;
    let mut wrong = BTreeSet::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let output = cargo(&[
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--manifest-path",
            manifest,
        ])
        .output()
        .context("cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata of {manifest}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
        for package in metadata
            .packages
            .iter()
            .filter(|package| package.source.is_some())
        {
            let Package {
                name,
                version,
                license,
                ..
            } = package;
            let beside = BESIDE
                .iter()
                .find(|(exempt, _)| exempt == name)
                .map(|(_, licence)| *licence);
            let may = |licence: &str| allowed.contains(licence) || beside == Some(licence);
            match license {
                None => {
                    wrong.insert(format!("{name} {version} names no licence"));
                }
                Some(license) if !permits(license, &may)? => {
                    wrong.insert(format!("{name} {version} is under {license}"));
                }
                Some(_) => {}
            }
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let wrong: Vec<String> = wrong.into_iter().collect();
    bail!(
        "not among the licences that deny.toml allows: {}; use another package, or say in deny.toml why this licence is as free",
        wrong.join(", ")
    )
}

/// The list `allow` of the section `[licenses]`.
fn allowed(text: &str) -> Result<BTreeSet<String>> {
    let list = text
        .split_once("[licenses]")
        .and_then(|(_, section)| section.split_once("\nallow = ["))
        .and_then(|(_, list)| list.split_once(']'))
        .context("deny.toml has no list of allowed licences")?
        .0;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether an SPDX expression can be met: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`.
fn permits(expression: &str, may: &impl Fn(&str) -> bool) -> Result<bool> {
    // Older packages write a slash for OR.
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, may)?;
    if at < words.len() {
        bail!("the licence {expression:?} cannot be read");
    }
    Ok(met)
}

fn any(words: &[&str], at: &mut usize, may: &impl Fn(&str) -> bool) -> Result<bool> {
    let mut met = all(words, at, may)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, may)?;
    }
    Ok(met)
}

fn all(words: &[&str], at: &mut usize, may: &impl Fn(&str) -> bool) -> Result<bool> {
    let mut met = one(words, at, may)?;
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, may)?;
    }
    Ok(met)
}

fn one(words: &[&str], at: &mut usize, may: &impl Fn(&str) -> bool) -> Result<bool> {
    let word = *words.get(*at).context("a licence breaks off")?;
    *at += 1;
    if word != "(" {
        // An exception only gives more leave than the licence itself.
        if words.get(*at) == Some(&"WITH") {
            *at += 2;
        }
        return Ok(may(word));
    }
    let met = any(words, at, may)?;
    if words.get(*at) != Some(&")") {
        bail!("a licence lacks a closing bracket");
    }
    *at += 1;
    Ok(met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_weighed() {
        let may = |licence: &str| ["MIT", "Apache-2.0", "Unicode-3.0"].contains(&licence);
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR LGPL-2.1-or-later", true),
            ("MIT/Apache-2.0", true),
            ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
            ("MIT AND GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", true),
        ] {
            assert_eq!(permits(expression, &may).unwrap(), met, "{expression}");
        }
        for bad in ["", "MIT AND", "(MIT", "MIT MIT"] {
            assert!(permits(bad, &may).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_list_is_found() {
        let list = allowed("[licenses]\n# MIT\nallow = [\n    \"ISC\",\n    \"MIT\",\n]\nother = [\"X\"]\n")
            .unwrap();
        assert_eq!(list.into_iter().collect::<Vec<_>>(), ["ISC", "MIT"]);
        assert!(allowed("[bans]\n").is_err());
    }
}
